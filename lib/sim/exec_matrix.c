/* SPDX-License-Identifier: MIT
 *
 * Matrix instructions: fragments are gathered into whole matrices, multiplied by arith_mma.c, and scattered again.
 */
#include "sim/exec.h"

static uint32_t reg32(const stitch__exec *x, uint32_t o, uint32_t lane)
{
    return ((const uint32_t *)stitch__operand(x, o))[lane];
}

static void set32(stitch__exec *x, uint32_t o, uint32_t lane, uint32_t v)
{
    ((uint32_t *)(void *)(x->regs + o))[lane] = v;
}

/* Matrix instructions need the whole warp. RUN_NEXT or RUN_FRAME when it is here. */
static int whole_warp(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    uint32_t here;
    int rc = stitch__sync_lanes(x, in, mask, x->warp->exists, &here);
    if (rc != STITCH__RUN_PARK && here != ~0u && x->check_sync)
        stitch__report(x, STITCH__SIM_INACTIVE_LANE, in, (uint32_t)__builtin_ctz(here), STITCH__SIM_GENERIC, 0, 0,
                       "a matrix instruction needs all 32 lanes; here are 0x%08x", here);
    return rc;
}

/* ---- ldmatrix and the like --------------------------------------------------------------------------------------- */

static void count_rows(stitch__exec *x, const stitch__instr *in, uint32_t matrices, const uint64_t *address)
{
    if (!x->counting)
        return;
    stitch__mem_count *c = &x->fc->mem[stitch__pc(x, in)];
    c->requests++;
    c->bytes += matrices * 128;
    for (uint32_t j = 0; j < matrices; j++) { /* eight rows of four banks each */
        uint8_t depth[8] = {0};
        uint32_t worst = 0;
        for (uint32_t r = 0; r < 8; r++) {
            uint8_t *d = &depth[address[8 * j + r] >> 4 & 7];
            if (++*d > worst)
                worst = *d;
        }
        c->units += worst;
        c->ideal++;
    }
}

int stitch__exec_ldmatrix(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const stitch__matrix *m = in->data;
    int rc = whole_warp(x, in, mask);
    if (rc == STITCH__RUN_PARK)
        return rc;
    const uint64_t *address = stitch__operand(x, in->more[m->count]);
    uint16_t rows[4][8][8];
    for (uint32_t i = 0; i < m->count * 8u; i++)
        stitch__read_bytes(x, in, (stitch__sim_space)in->space, address[i], rows[i / 8][i % 8], 16, 16, i);
    count_rows(x, in, m->count, address);
    for (uint32_t j = 0; j < m->count; j++)
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t a = l / 4, b = 2 * (l % 4);
            uint32_t lo = m->trans ? rows[j][b][a] : rows[j][a][b],
                     hi = m->trans ? rows[j][b + 1][a] : rows[j][a][b + 1];
            set32(x, in->more[j], l, lo | hi << 16);
        }
    return x->kill ? STITCH__RUN_KILL : stitch__sync_done(x, in, rc);
}

int stitch__exec_stmatrix(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const stitch__matrix *m = in->data;
    int rc = whole_warp(x, in, mask);
    if (rc == STITCH__RUN_PARK)
        return rc;
    const uint64_t *address = stitch__operand(x, in->more[0]);
    uint16_t rows[4][8][8];
    for (uint32_t j = 0; j < m->count; j++)
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t a = l / 4, b = 2 * (l % 4), v = reg32(x, in->more[1 + j], l);
            *(m->trans ? &rows[j][b][a] : &rows[j][a][b]) = (uint16_t)v;
            *(m->trans ? &rows[j][b + 1][a] : &rows[j][a][b + 1]) = (uint16_t)(v >> 16);
        }
    count_rows(x, in, m->count, address);
    for (uint32_t i = 0; i < m->count * 8u; i++)
        stitch__write_bytes(x, in, (stitch__sim_space)in->space, address[i], rows[i / 8][i % 8], 16, 16, i);
    return x->kill ? STITCH__RUN_KILL : stitch__sync_done(x, in, rc);
}

int stitch__exec_movmatrix(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    int rc = whole_warp(x, in, mask);
    if (rc == STITCH__RUN_PARK)
        return rc;
    uint16_t e[8][8];
    for (uint32_t l = 0; l < 32; l++) {
        uint32_t v = reg32(x, in->more[1], l);
        e[l / 4][2 * (l % 4)] = (uint16_t)v;
        e[l / 4][2 * (l % 4) + 1] = (uint16_t)(v >> 16);
    }
    for (uint32_t l = 0; l < 32; l++)
        set32(x, in->more[0], l, e[2 * (l % 4)][l / 4] | (uint32_t)e[2 * (l % 4) + 1][l / 4] << 16);
    return stitch__sync_done(x, in, rc);
}

/* ---- elements of matrices in memory order ------------------------------------------------------------------------ */

/* Element `at` of a packed array of elements of `bits` bits; 4-bit ones take a byte. */
static void put_element(void *array, uint32_t at, uint32_t bits, uint64_t v)
{
    switch (bits) {
    case 64: ((uint64_t *)array)[at] = v; break;
    case 32: ((uint32_t *)array)[at] = (uint32_t)v; break;
    case 16: ((uint16_t *)array)[at] = (uint16_t)v; break;
    default: ((uint8_t *)array)[at] = (uint8_t)v; break;
    }
}

static uint64_t get_element(const void *array, uint32_t at, uint32_t bits)
{
    switch (bits) {
    case 64: return ((const uint64_t *)array)[at];
    case 32: return ((const uint32_t *)array)[at];
    case 16: return ((const uint16_t *)array)[at];
    default: return ((const uint8_t *)array)[at];
    }
}

/* Element `j` of a register; 4-bit signed ones are extended to a byte. */
static uint64_t unpack(uint64_t reg, uint32_t j, uint32_t bits, bool is_signed)
{
    if (bits >= 32)
        return reg;
    uint64_t v = reg >> (j * bits) & ((UINT64_C(1) << bits) - 1);
    if (bits == 4 && is_signed && v & 8)
        v |= 0xf0;
    return v;
}

static uint64_t read_reg(const stitch__exec *x, uint32_t o, uint32_t lane, uint32_t bits)
{
    return bits == 64 ? ((const uint64_t *)stitch__operand(x, o))[lane] : reg32(x, o, lane);
}

/* Fragment A of mma: register r holds row g (+ 8 for odd r of a 16-row matrix), columns from q * E + 4 * E * (r / 2).
 */
static void gather_a(const stitch__exec *x, const uint32_t *regs, uint32_t n, uint32_t bits, bool is_signed,
                     uint32_t rows, uint32_t k, void *out)
{
    uint32_t each = bits >= 32 ? 1 : 32 / bits;
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t row = l / 4 + (rows == 16 ? 8 * (r & 1) : 0),
                     col = (l % 4) * each + 4 * each * (rows == 16 ? r >> 1 : r);
            uint64_t v = read_reg(x, regs[r], l, bits);
            for (uint32_t j = 0; j < each; j++)
                put_element(out, row * k + col + j, bits, unpack(v, j, bits, is_signed));
        }
}

static void gather_b(const stitch__exec *x, const uint32_t *regs, uint32_t n, uint32_t bits, bool is_signed,
                     uint32_t cols, void *out)
{
    uint32_t each = bits >= 32 ? 1 : 32 / bits;
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t l = 0; l < 32; l++) {
            uint64_t v = read_reg(x, regs[r], l, bits);
            for (uint32_t j = 0; j < each; j++)
                put_element(out, ((l % 4) * each + 4 * each * r + j) * cols + l / 4, bits,
                            unpack(v, j, bits, is_signed));
        }
}

static uint32_t acc_bits(uint8_t num)
{
    return num == STITCH__F16 ? 16 : num == STITCH__F64 ? 64 : 32;
}

static void gather_c(const stitch__exec *x, const uint32_t *regs, uint32_t n, uint8_t num, void *out)
{
    uint32_t bits = acc_bits(num);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t l = 0; l < 32; l++) {
            uint64_t v = read_reg(x, regs[r], l, bits);
            if (bits == 16) {
                put_element(out, (l / 4 + 8 * r) * 8 + 2 * (l % 4), 16, v & 0xffff);
                put_element(out, (l / 4 + 8 * r) * 8 + 2 * (l % 4) + 1, 16, v >> 16);
            } else {
                put_element(out, (l / 4 + 8 * (r >> 1)) * 8 + 2 * (l % 4) + (r & 1), bits, v);
            }
        }
}

static void scatter_d(stitch__exec *x, const uint32_t *regs, uint32_t n, uint8_t num, const void *d)
{
    uint32_t bits = acc_bits(num);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t l = 0; l < 32; l++) {
            if (bits == 16) {
                uint32_t at = (l / 4 + 8 * r) * 8 + 2 * (l % 4);
                set32(x, regs[r], l, (uint32_t)get_element(d, at, 16) | (uint32_t)get_element(d, at + 1, 16) << 16);
                continue;
            }
            uint64_t v = get_element(d, (l / 4 + 8 * (r >> 1)) * 8 + 2 * (l % 4) + (r & 1), bits);
            if (bits == 64)
                ((uint64_t *)(void *)(x->regs + regs[r]))[l] = v;
            else
                set32(x, regs[r], l, (uint32_t)v);
        }
}

static bool is_signed_num(uint8_t num)
{
    return num == STITCH__S8;
}

int stitch__exec_mma(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const stitch__matrix *m = in->data;
    int rc = whole_warp(x, in, mask);
    if (rc == STITCH__RUN_PARK)
        return rc;
    uint64_t a[16 * 256 / 4], b[8 * 256 / 4], c[16 * 8];
    const uint32_t *r = in->more;
    gather_a(x, r + m->nd, m->na, m->bits_a, is_signed_num(m->a), m->m, m->k, a);
    gather_b(x, r + m->nd + m->na, m->nb, m->bits_b, is_signed_num(m->b), m->n, b);
    gather_c(x, r + m->nd + m->na + m->nb, m->nc, m->c, c);
    stitch__mma run = {.m = m->m,
                       .n = m->n,
                       .k = m->k,
                       .a = m->a,
                       .b = m->b,
                       .c = m->c,
                       .d = m->d,
                       .exact = !x->launch->mma_fast,
                       .satfinite = m->satfinite};
    uint64_t d[16 * 8];
    stitch__mma_run(&run, d, a, b, c);
    scatter_d(x, r, m->nd, m->d, d);
    return stitch__sync_done(x, in, rc);
}

/* ---- wmma -------------------------------------------------------------------------------------------------------- */

/* Where element `p` of a lane lies in a rows x cols matrix. Accumulators of 16 x 16 lie as two m16n8 tiles of mma do,
 * as programs that look inside expect; the others have an order of our own. */
static uint32_t wmma_at(uint32_t rows, uint32_t cols, bool accumulator, uint32_t lane, uint32_t p)
{
    if (accumulator && rows == 16 && cols == 16)
        return (lane / 4 + 8 * (p >> 1 & 1)) * 16 + 8 * (p >> 2) + 2 * (lane % 4) + (p & 1);
    return (p * 32 + lane) % (rows * cols);
}

static void wmma_gather(const stitch__exec *x, const uint32_t *regs, uint32_t n, uint32_t bits, uint32_t rows,
                        uint32_t cols, bool acc, void *out)
{
    uint32_t each = bits >= 32 ? 1 : 32 / bits;
    for (uint32_t r = 0; r < n && r * each * 32 < rows * cols; r++)
        for (uint32_t l = 0; l < 32; l++) {
            uint64_t v = read_reg(x, regs[r], l, bits);
            for (uint32_t j = 0; j < each; j++)
                put_element(out, wmma_at(rows, cols, acc, l, r * each + j), bits, unpack(v, j, bits, false));
        }
}

static void wmma_scatter(stitch__exec *x, const uint32_t *regs, uint32_t n, uint32_t bits, uint32_t rows, uint32_t cols,
                         bool acc, const void *from)
{
    uint32_t each = bits >= 32 ? 1 : 32 / bits;
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t l = 0; l < 32; l++) {
            uint64_t v = 0;
            for (uint32_t j = 0; j < each; j++)
                v |= get_element(from, wmma_at(rows, cols, acc, l, r * each + j), bits) << (j * (bits < 32 ? bits : 0));
            if (bits == 64)
                ((uint64_t *)(void *)(x->regs + regs[r]))[l] = v;
            else
                set32(x, regs[r], l, (uint32_t)v);
        }
}

static void wmma_shape(const stitch__matrix *m, uint32_t *rows, uint32_t *cols, bool *acc)
{
    *acc = m->which == 'c' || m->which == 'd';
    *rows = m->which == 'b' ? m->k : m->m;
    *cols = m->which == 'a' ? m->k : m->n;
}

int stitch__exec_wmma_load(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const stitch__matrix *m = in->data;
    int rc = whole_warp(x, in, mask);
    if (rc == STITCH__RUN_PARK)
        return rc;
    uint32_t rows, cols, bits = m->bits_a, size = bits / 8, lane = (uint32_t)__builtin_ctz(mask);
    bool acc;
    wmma_shape(m, &rows, &cols, &acc);
    uint64_t address = ((const uint64_t *)stitch__operand(x, in->more[m->nd]))[lane];
    uint32_t lead = m->d_col ? cols : rows, inner = m->d_col ? rows : cols;
    uint64_t stride = in->sub ? reg32(x, in->more[m->nd + 1], lane) : inner;
    uint64_t matrix[512] = {0}, line[64];
    for (uint32_t i = 0; i < lead; i++) {
        stitch__read_bytes(x, in, (stitch__sim_space)in->space, address + i * stride * size, line, inner * size, size,
                           i & 31);
        for (uint32_t k = 0; k < inner; k++)
            put_element(matrix, m->d_col ? k * cols + i : i * cols + k, bits, get_element(line, k, bits));
    }
    wmma_scatter(x, in->more, m->nd, bits, rows, cols, acc, matrix);
    return x->kill ? STITCH__RUN_KILL : stitch__sync_done(x, in, rc);
}

int stitch__exec_wmma_store(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const stitch__matrix *m = in->data;
    int rc = whole_warp(x, in, mask);
    if (rc == STITCH__RUN_PARK)
        return rc;
    uint32_t rows, cols, bits = m->bits_a, size = bits / 8, lane = (uint32_t)__builtin_ctz(mask);
    bool acc;
    wmma_shape(m, &rows, &cols, &acc);
    uint64_t address = ((const uint64_t *)stitch__operand(x, in->more[0]))[lane];
    uint32_t lead = m->d_col ? cols : rows, inner = m->d_col ? rows : cols;
    uint64_t stride = in->sub ? reg32(x, in->more[1], lane) : inner;
    uint64_t matrix[512] = {0}, line[64];
    wmma_gather(x, in->more + 2, m->nd, bits, rows, cols, acc, matrix);
    for (uint32_t i = 0; i < lead; i++) {
        for (uint32_t k = 0; k < inner; k++)
            put_element(line, k, bits, get_element(matrix, m->d_col ? k * cols + i : i * cols + k, bits));
        stitch__write_bytes(x, in, (stitch__sim_space)in->space, address + i * stride * size, line, inner * size, size,
                            i & 31);
    }
    return x->kill ? STITCH__RUN_KILL : stitch__sync_done(x, in, rc);
}

int stitch__exec_wmma_mma(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const stitch__matrix *m = in->data;
    int rc = whole_warp(x, in, mask);
    if (rc == STITCH__RUN_PARK)
        return rc;
    uint64_t a[512] = {0}, b[512] = {0}, c[256] = {0}, d[256];
    const uint32_t *r = in->more;
    wmma_gather(x, r + m->nd, m->na, m->bits_a, m->m, m->k, false, a);
    wmma_gather(x, r + m->nd + m->na, m->nb, m->bits_b, m->k, m->n, false, b);
    wmma_gather(x, r + m->nd + m->na + m->nb, m->nc, acc_bits(m->c), m->m, m->n, true, c);
    stitch__mma run = {.m = m->m,
                       .n = m->n,
                       .k = m->k,
                       .a = m->a,
                       .b = m->b,
                       .c = m->c,
                       .d = m->d,
                       .exact = !x->launch->mma_fast,
                       .satfinite = m->satfinite};
    if (!stitch__mma_run(&run, d, a, b, c)) {
        stitch__report(x, STITCH__SIM_ILLEGAL, in, 0, STITCH__SIM_GENERIC, 0, 0,
                       "this shape and these types are not run");
        return STITCH__RUN_KILL;
    }
    wmma_scatter(x, r, m->nd, acc_bits(m->d), m->m, m->n, true, d);
    return stitch__sync_done(x, in, rc);
}

/* ---- wgmma ------------------------------------------------------------------------------------------------------- */

/* Address in shared memory of the 16 bytes that begin at (row, byte) of an operand whose descriptor is `d`. `trans`:
 * the other dimension is contiguous: `row` counts along k then. */
static uint32_t descriptor_address(uint64_t d, uint32_t row, uint32_t byte, bool trans)
{
    uint32_t start = (uint32_t)(d & 0x3fff) << 4, lead = (uint32_t)(d >> 16 & 0x3fff) << 4,
             stride = (uint32_t)(d >> 32 & 0x3fff) << 4;
    uint32_t mode = (uint32_t)(d >> 62), a;
    static const uint32_t widths[4] = {16, 128, 64, 32};
    static const uint32_t masks[4] = {0, 0x70, 0x30, 0x10};
    uint32_t width = widths[mode];
    if (mode == 0) {
        a = trans ? start + (byte / 16) * stride + (row / 8) * lead + (row % 8) * 16 + byte % 16
                  : start + (row / 8) * stride + (byte / 16) * lead + (row % 8) * 16 + byte % 16;
        return a;
    }
    a = trans ? start + (byte / width) * lead + (row / 8) * stride + (row % 8) * width + byte % width
              : start + (row / 8) * stride + (row % 8) * width + byte;
    return a ^ (a >> 3 & masks[mode]);
}

/* rows x k elements (trans: read along the rows) into out[row][k]. */
static void read_operand(stitch__exec *x, const stitch__instr *in, uint64_t d, uint32_t first_row, uint32_t rows,
                         uint32_t k, uint32_t bits, bool trans, void *out, bool by_column, uint32_t columns)
{
    uint32_t size = bits / 8, per = 16 / size, rank = x->block->rank << 24;
    uint8_t chunk[16];
    uint32_t outer = trans ? k : rows, inner = trans ? rows : k;
    for (uint32_t i = 0; i < outer; i++)
        for (uint32_t j = 0; j < inner; j += per) {
            uint32_t a = trans ? descriptor_address(d, i, (first_row + j) * size, true)
                               : descriptor_address(d, first_row + i, j * size, false);
            stitch__read_bytes(x, in, STITCH__SIM_SHARED, (a & 0x3ffff) | rank, chunk, 16, 16, i & 31);
            stitch__product_reads(x, a & 0x3ffff);
            stitch__race_proxy(x, in, x->block, i & 31, a & 0x3ffff, 16);
            for (uint32_t e = 0; e < per && j + e < inner; e++) {
                uint32_t row = trans ? j + e : i, col = trans ? i : j + e;
                put_element(out, by_column ? col * columns + row : row * k + col, bits, get_element(chunk, e, bits));
            }
        }
}

static void negate(uint8_t num, void *array, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (num == STITCH__TF32)
            ((uint32_t *)array)[i] ^= 0x80000000u;
        else if (num == STITCH__F16 || num == STITCH__BF16)
            ((uint16_t *)array)[i] ^= 0x8000u;
        else
            ((uint8_t *)array)[i] ^= 0x80u;
    }
}

int stitch__exec_wgmma(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const stitch__matrix *m = in->data;
    int rc = whole_warp(x, in, mask);
    if (rc == STITCH__RUN_PARK)
        return rc;
    const uint32_t *r = in->more;
    uint32_t warp = x->warp->index % 4, bits = acc_bits(m->d), per = bits == 16 ? 2 : 4;
    uint64_t a[16 * 32 / 2], b[256 * 32 / 4], tile_b[8 * 32 / 2], c[16 * 8], d[16 * 8];
    if (m->a_smem)
        read_operand(x, in, ((const uint64_t *)stitch__operand(x, r[2 * m->nd]))[0], 16 * warp, 16, m->k, m->bits_a,
                     m->trans_a, a, false, 0);
    else
        gather_a(x, r + 2 * m->nd, 4, m->bits_a, false, 16, m->k, a);
    uint64_t desc_b = ((const uint64_t *)stitch__operand(x, r[2 * m->nd + m->na]))[0];
    uint32_t scale_d = *(const uint32_t *)stitch__operand(x, r[2 * m->nd + m->na + 1]);
    read_operand(x, in, desc_b, 0, m->n, m->k, m->bits_b, m->trans_b, b, true, m->n);
    if (m->scale_a == 0xff)
        negate(m->a, a, 16u * m->k);
    if (m->scale_b == 0xff)
        negate(m->b, b, (uint32_t)m->n * m->k);
    stitch__mma run = {.m = 16,
                       .n = 8,
                       .k = m->k,
                       .a = m->a,
                       .b = m->b,
                       .c = m->d,
                       .d = m->d,
                       .exact = !x->launch->mma_fast,
                       .satfinite = m->satfinite};
    for (uint32_t t = 0; t < m->n / 8u; t++) {
        for (uint32_t k = 0; k < m->k; k++)
            for (uint32_t n = 0; n < 8; n++)
                put_element(tile_b, k * 8 + n, m->bits_b, get_element(b, k * m->n + 8 * t + n, m->bits_b));
        memset(c, 0, sizeof(c));
        if (scale_d & mask & -mask)
            gather_c(x, r + m->nd + t * per, per, m->d, c);
        stitch__mma_run(&run, d, a, tile_b, c);
        scatter_d(x, r + t * per, per, m->d, d);
    }
    return x->kill ? STITCH__RUN_KILL : stitch__sync_done(x, in, rc);
}

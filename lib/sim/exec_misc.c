/* SPDX-License-Identifier: MIT
 *
 * Instructions that are none of the plain lane functions: bit insertion, carries, clocks, traps.
 */
#include "sim/exec.h"

static void put32(stitch__exec *x, uint32_t o, const uint32_t *v, uint32_t mask)
{
    uint32_t *d = (uint32_t *)(void *)(x->regs + o);
    for (int i = 0; i < 32; i++)
        d[i] = mask >> i & 1 ? v[i] : d[i];
}

static void put64(stitch__exec *x, uint32_t o, const uint64_t *v, uint32_t mask)
{
    uint64_t *d = (uint64_t *)(void *)(x->regs + o);
    for (int i = 0; i < 32; i++)
        d[i] = mask >> i & 1 ? v[i] : d[i];
}

static void put_pred(stitch__exec *x, uint32_t o, uint32_t v, uint32_t mask)
{
    uint32_t *d = (uint32_t *)(void *)(x->regs + o);
    *d = (*d & ~mask) | (v & mask);
}

int stitch__exec_clock(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    /* No time is modelled: clocks count the warp's progress, so that code that waits for them ends. */
    uint64_t v = x->executed * 4 + (uint64_t)x->warp->index;
    uint64_t wide[32];
    uint32_t narrow[32];
    if (in->sub >= STITCH__SREG_GLOBALTIMER - STITCH__SREG_COUNT)
        v = UINT64_C(1700000000000000000) + x->executed * 64;
    bool hi = in->sub == STITCH__SREG_CLOCK_HI - STITCH__SREG_COUNT ||
              in->sub == STITCH__SREG_GLOBALTIMER_HI - STITCH__SREG_COUNT;
    for (int i = 0; i < 32; i++) {
        wide[i] = v;
        narrow[i] = (uint32_t)(hi ? v >> 32 : v);
    }
    if (in->sub == STITCH__SREG_CLOCK64 - STITCH__SREG_COUNT ||
        in->sub == STITCH__SREG_GLOBALTIMER - STITCH__SREG_COUNT)
        put64(x, in->o[0], wide, mask);
    else
        put32(x, in->o[0], narrow, mask);
    stitch__poll(x);
    return STITCH__RUN_NEXT;
}

int stitch__exec_lop3(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const uint32_t *a = stitch__operand(x, in->o[1]), *b = stitch__operand(x, in->o[2]),
                   *c = stitch__operand(x, in->o[3]);
    uint32_t r[32] = {0}, lut = in->sub;
    for (uint32_t k = 0; k < 8; k++) {
        if (!(lut >> k & 1))
            continue;
        uint32_t na = k & 4 ? 0 : ~0u, nb = k & 2 ? 0 : ~0u, nc = k & 1 ? 0 : ~0u;
        for (int i = 0; i < 32; i++)
            r[i] |= (a[i] ^ na) & (b[i] ^ nb) & (c[i] ^ nc);
    }
    put32(x, in->o[0], r, mask);
    return STITCH__RUN_NEXT;
}

int stitch__exec_bfi(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const uint32_t *c = stitch__operand(x, in->o[3]), *d = stitch__operand(x, in->o[4]);
    if (in->size == 4) {
        const uint32_t *a = stitch__operand(x, in->o[1]), *b = stitch__operand(x, in->o[2]);
        uint32_t r[32];
        for (int i = 0; i < 32; i++) {
            uint32_t pos = c[i] & 0xff, len = d[i] & 0xff;
            uint64_t keep = (len >= 32 ? 0xffffffffu : (UINT64_C(1) << len) - 1);
            uint32_t m = pos > 31 ? 0 : (uint32_t)(keep << pos);
            r[i] = (b[i] & ~m) | ((pos > 31 ? 0 : a[i] << pos) & m);
        }
        put32(x, in->o[0], r, mask);
        return STITCH__RUN_NEXT;
    }
    const uint64_t *a = stitch__operand(x, in->o[1]), *b = stitch__operand(x, in->o[2]);
    uint64_t r[32];
    for (int i = 0; i < 32; i++) {
        uint32_t pos = c[i] & 0xff, len = d[i] & 0xff;
        uint64_t keep = len >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << len) - 1, m = pos > 63 ? 0 : keep << pos;
        r[i] = (b[i] & ~m) | ((pos > 63 ? 0 : a[i] << pos) & m);
    }
    put64(x, in->o[0], r, mask);
    return STITCH__RUN_NEXT;
}

int stitch__exec_carry(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const void *pa = stitch__operand(x, in->o[2]), *pb = stitch__operand(x, in->o[3]),
               *pc = stitch__operand(x, in->o[4]);
    uint32_t cin = in->more[0] ? *(const uint32_t *)stitch__operand(x, in->more[0]) : 0, cout = 0;
    bool wide = in->size == 8, sub = in->sub == STITCH__CARRY_SUB, s = in->flags & STITCH__IN_SIGNED;
    uint64_t r64[32];
    uint32_t r32[32];
    for (int i = 0; i < 32; i++) {
        uint64_t a = wide ? ((const uint64_t *)pa)[i] : ((const uint32_t *)pa)[i];
        uint64_t b = wide ? ((const uint64_t *)pb)[i] : ((const uint32_t *)pb)[i];
        uint64_t c = in->sub < STITCH__CARRY_MADLO ? 0 : wide ? ((const uint64_t *)pc)[i] : ((const uint32_t *)pc)[i];
        unsigned __int128 sum, carry = cin >> i & 1;
        if (in->sub >= STITCH__CARRY_MADLO) {
            uint64_t product;
            if (wide) {
                unsigned __int128 p =
                    s ? (unsigned __int128)((__int128)(int64_t)a * (int64_t)b) : (unsigned __int128)a * b;
                product = (uint64_t)(in->sub == STITCH__CARRY_MADHI ? p >> 64 : p);
            } else {
                uint64_t p = s ? (uint64_t)((int64_t)(int32_t)a * (int32_t)b) : a * b;
                product = (uint32_t)(in->sub == STITCH__CARRY_MADHI ? p >> 32 : p);
            }
            a = product;
            b = c;
        }
        if (sub)
            sum = (unsigned __int128)a - b - carry;
        else
            sum = (unsigned __int128)a + b + carry;
        cout |= (uint32_t)(wide ? (sum >> 64 & 1) : (sum >> 32 & 1)) << i;
        r64[i] = (uint64_t)sum;
        r32[i] = (uint32_t)sum;
    }
    if (wide)
        put64(x, in->o[0], r64, mask);
    else
        put32(x, in->o[0], r32, mask);
    if (in->o[1])
        put_pred(x, in->o[1], cout, mask);
    return STITCH__RUN_NEXT;
}

int stitch__exec_testp(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    put_pred(x, in->o[0],
             stitch__arith_testp((stitch__num)in->sub2, (stitch__testp)in->sub, stitch__operand(x, in->o[1])), mask);
    return STITCH__RUN_NEXT;
}

static uint32_t logic(uint8_t how, uint32_t a, uint32_t c)
{
    return how == STITCH__BOOL_AND ? a & c : how == STITCH__BOOL_OR ? a | c : how == STITCH__BOOL_XOR ? a ^ c : a;
}

int stitch__exec_set(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    uint32_t hi = 0,
             lo = (*(const stitch__cmp_fn *)in->data)(stitch__operand(x, in->o[1]), stitch__operand(x, in->o[2]), &hi);
    uint32_t c = in->o[3] ? *(const uint32_t *)stitch__operand(x, in->o[3]) : 0, r[32], yes, yes_hi = 0;
    switch (in->sub2) {
    case STITCH__F32: yes = 0x3f800000; break;
    case STITCH__F16: yes = 0x3c00; break;
    case STITCH__BF16: yes = 0x3f80; break;
    case STITCH__F16X2:
        yes = 0x3c00;
        yes_hi = 0x3c000000;
        break;
    case STITCH__BF16X2:
        yes = 0x3f80;
        yes_hi = 0x3f800000;
        break;
    case STITCH__U16:
    case STITCH__S16: yes = 0xffff; break;
    default:
        yes = in->vec == 2 ? 0xffff : ~0u;
        yes_hi = in->vec == 2 ? 0xffff0000u : 0;
        break;
    }
    lo = logic(in->sub, lo, c);
    hi = logic(in->sub, hi, c);
    for (int i = 0; i < 32; i++)
        r[i] = (lo >> i & 1 ? yes : 0) | (hi >> i & 1 ? yes_hi : 0);
    put32(x, in->o[0], r, mask);
    return STITCH__RUN_NEXT;
}

int stitch__exec_nop(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    (void)x;
    (void)in;
    (void)mask;
    return STITCH__RUN_NEXT;
}

int stitch__exec_nanosleep(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    (void)in;
    (void)mask;
    stitch__poll(x);
    x->quantum -= 1024;
    return STITCH__RUN_NEXT;
}

int stitch__exec_trap(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__report(x, STITCH__SIM_TRAP, in, (uint32_t)__builtin_ctz(mask), STITCH__SIM_GENERIC, 0, 0,
                   in->sub ? "breakpoint" : "trap");
    x->kill = true;
    return STITCH__RUN_KILL;
}

/* SPDX-License-Identifier: MIT
 *
 * Runs the programs of ptx_program.h in plain C, from the reference of each instruction: the third opinion where a
 * simulator and a GPU differ, and the only one where there is no GPU.
 */
#include "ptx_program.h"
#include "reference.h"

#include <string.h>

typedef struct thread {
    uint64_t h[PROG_H], r[PROG_R], d[PROG_D];
    bool p[PROG_P];
    uint32_t local[4];
} thread;

static uint64_t *file(thread *t, unsigned width)
{
    return width == 16 ? t->h : width == 32 ? t->r : t->d;
}

static bool holds(const thread *t, const stmt *s)
{
    return s->pred < 0 || t->p[s->pred] != s->negated;
}

static void run_instr(const program *p, const stmt *s, thread *t)
{
    const instr *in = &p->list[s->instr];
    const uint8_t regs[3] = {s->a, s->b, s->c};
    uint64_t x[3] = {0}, result;
    unsigned width = instr_width(in->dst);
    if (!holds(t, s))
        return;
    for (int k = 0; k < in->inputs; k++)
        x[k] = file(t, instr_width(in->src[k]))[regs[k]];
    if (in->flags & INSTR_DIVIDES)
        x[1] = (x[1] & 127) | 1;
    if (!in->ref(in, x, &result)) {
        /* No reference: the special functions, and the packed conversions that test_sim_arith.c checks apart. */
        if (in->flags & INSTR_APPROXIMATE)
            result = stitch__arith_eval(&in->u.op, x[0], x[1], x[2]);
        else
            result = stitch__arith_eval_cvt(&in->u.cvt, x[0], x[1]);
    }
    if (width < 64)
        result &= (1ull << width) - 1;
    if (in->flags & INSTR_UNKNOWN_NAN && (result & 0x7fffffffffffffffu) > 0x7ff0000000000000u)
        result = 0x7ff8000000000000u;
    file(t, width)[s->dst] = result;
}

static void run_pack(const stmt *s, thread *t)
{
    unsigned next = (s->a + 1u) % 8;
    uint64_t v;
    switch (s->mode) {
    case 0: t->r[s->dst] = t->h[s->b] << 16 | t->h[s->a]; break;
    case 1: t->d[s->dst] = t->r[s->b] << 32 | t->r[s->a]; break;
    case 2:
        v = t->r[s->dst];
        t->h[s->a] = v & 0xffff;
        t->h[next] = v >> 16;
        break;
    case 3:
        v = t->d[s->dst];
        t->r[s->a] = v & 0xffffffff;
        t->r[next] = v >> 32;
        break;
    case 4: t->r[s->dst] = t->h[s->a]; break;
    default: t->d[s->dst] = (uint64_t)(int64_t)(int32_t)t->r[s->a]; break;
    }
}

static void run_list(const program *p, size_t from, size_t to, thread *t);

/* Statements of one thread. */
static void run_one(const program *p, size_t at, thread *t)
{
    const stmt *s = &p->at[at];
    switch (s->kind) {
    case STMT_INSTR: run_instr(p, s, t); break;
    case STMT_PREDICATE: {
        bool a = t->p[s->a], b = t->p[s->b];
        t->p[s->dst] = s->mode == 0 ? a && b : s->mode == 1 ? a || b : s->mode == 2 ? a != b : !a;
        break;
    }
    case STMT_TEST: t->p[s->dst] = (t->r[s->a] & s->value) == (s->value & 0x55555555); break;
    case STMT_IF:
        if (holds(t, s))
            run_list(p, at + 1, at + 1 + s->body, t);
        else
            run_list(p, at + 1 + s->body, at + 1 + s->body + s->other, t);
        break;
    case STMT_LOOP:
        for (uint64_t n = s->value ? s->value : t->r[s->a] & 3; n > 0; n--)
            run_list(p, at + 1, at + 1 + s->body, t);
        break;
    case STMT_LOCAL:
        t->local[t->r[s->b] >> 2 & 3] = (uint32_t)t->r[s->a];
        t->r[s->dst] = t->local[t->r[s->c] >> 2 & 3];
        break;
    case STMT_PACK: run_pack(s, t); break;
    default: break;
    }
}

static void run_list(const program *p, size_t from, size_t to, thread *t)
{
    for (size_t i = from; i < to; i += 1u + p->at[i].body + p->at[i].other)
        if (!p->at[i].removed)
            run_one(p, i, t);
}

static uint32_t fold(unsigned mode, uint32_t a, uint32_t b)
{
    switch (mode % 6) {
    case 0: return a + b;
    case 1: return (int32_t)a < (int32_t)b ? a : b;
    case 2: return a > b ? a : b;
    case 3: return a & b;
    case 4: return a | b;
    default: return a ^ b;
    }
}

static void run_shuffle(const stmt *s, thread *warp)
{
    uint32_t value[32];
    bool pred[32];
    for (int i = 0; i < 32; i++) {
        /* c = clamp | segment mask << 8. Lanes of a segment have the same bits under the mask. */
        int mode = s->mode & 3, by = (int)(s->value & 31), mask = s->mode & 4 ? 0x10 : 0, clamp = mode ? 31 : 0;
        int low = i & mask, high = low | (clamp & ~mask & 31), j;
        bool in_range;
        switch (mode) {
        case 0:
            j = i - by;
            in_range = j >= high; /* for .up the clamp is the lowest lane */
            break;
        case 1:
            j = i + by;
            in_range = j <= high;
            break;
        case 2:
            j = i ^ by;
            in_range = j <= high;
            break;
        default: j = low | (by & ~mask & 31); in_range = j <= high;
        }
        pred[i] = in_range;
        value[i] = (uint32_t)warp[in_range ? j : i].r[s->a];
    }
    for (int i = 0; i < 32; i++) {
        warp[i].p[s->c] = pred[i];
        warp[i].r[s->dst] = value[i];
    }
}

static void run_warp(const stmt *s, thread *warp)
{
    uint32_t values[32], ballot = 0, all;
    for (int i = 0; i < 32; i++) {
        values[i] = (uint32_t)warp[i].r[s->a];
        ballot |= (uint32_t)warp[i].p[s->c] << i;
    }
    switch (s->kind) {
    case STMT_SHUFFLE: run_shuffle(s, warp); break;
    case STMT_VOTE:
        for (int i = 0; i < 32; i++) {
            if ((s->mode & 3) == 3)
                warp[i].r[s->dst] = ballot;
            else
                warp[i].p[s->dst % PROG_P] = (s->mode & 3) == 0   ? ballot == 0xffffffff
                                             : (s->mode & 3) == 1 ? ballot != 0
                                                                  : ballot == 0 || ballot == 0xffffffff;
        }
        break;
    case STMT_MATCH:
        for (int i = 0; i < 32; i++) {
            all = 0;
            for (int j = 0; j < 32; j++)
                all |= (uint32_t)((values[i] & 3) == (values[j] & 3)) << j;
            warp[i].r[s->dst] = all;
        }
        break;
    default: /* STMT_REDUX */
        all = values[0];
        for (int i = 1; i < 32; i++)
            all = fold(s->mode, all, values[i]);
        for (int i = 0; i < 32; i++)
            warp[i].r[s->dst] = all;
    }
}

static void run_block(const program *p, thread *t)
{
    for (size_t i = 0; i < p->count; i += 1u + p->at[i].body + p->at[i].other) {
        const stmt *s = &p->at[i];
        if (s->removed)
            continue;
        if (s->kind < STMT_SHUFFLE || s->kind == STMT_LOCAL || s->kind == STMT_PACK) {
            for (int k = 0; k < PROG_THREADS; k++)
                run_one(p, i, &t[k]);
        } else if (s->kind == STMT_SHARED) {
            uint32_t words[PROG_THREADS];
            for (int k = 0; k < PROG_THREADS; k++)
                words[k] = (uint32_t)t[k].r[s->a];
            for (int k = 0; k < PROG_THREADS; k++)
                t[k].r[s->dst] = words[(unsigned)k ^ s->value];
        } else if (s->kind == STMT_ATOMIC) {
            uint32_t word = s->value;
            for (int k = 0; k < PROG_THREADS; k++)
                word = fold(s->mode, word, (uint32_t)t[k].r[s->a]);
            for (int k = 0; k < PROG_THREADS; k++)
                t[k].r[s->dst] = word;
        } else {
            for (int k = 0; k < PROG_THREADS; k += 32)
                run_warp(s, t + k);
        }
    }
}

void program_inputs(const program *p, uint64_t *words)
{
    static const uint8_t narrow[] = {STITCH__F16, STITCH__BF16, STITCH__S16, STITCH__U8},
                         middle[] = {STITCH__F32, STITCH__S32, STITCH__F32, STITCH__U32},
                         wide[] = {STITCH__F64, STITCH__S64, STITCH__F64, STITCH__U64};
    uint64_t state = p->seed ^ 0xabcdef;
    for (int i = 0; i < PROG_BLOCKS * PROG_THREADS; i++) {
        uint64_t *w = words + (size_t)i * PROG_WORDS;
        for (int k = 0; k < PROG_H; k++)
            *w++ = ref_pattern(narrow[k % 4], &state) & 0xffff;
        for (int k = 0; k < PROG_R; k++)
            *w++ = k % 5 == 4 ? ref_pattern(STITCH__F16, &state) | ref_pattern(STITCH__F16, &state) << 16
                              : ref_pattern(middle[k % 4], &state);
        for (int k = 0; k < PROG_D; k++)
            *w++ = ref_pattern(wide[k % 4], &state);
        *w = ref_random(&state) & ((1u << PROG_P) - 1);
    }
}

void program_evaluate(const program *p, uint64_t *words)
{
    for (int block = 0; block < PROG_BLOCKS; block++) {
        static const thread empty;
        thread t[PROG_THREADS];
        uint64_t *at = words + (size_t)block * PROG_THREADS * PROG_WORDS;
        for (int k = 0; k < PROG_THREADS; k++) {
            const uint64_t *w = at + (size_t)k * PROG_WORDS;
            t[k] = empty;
            memcpy(t[k].h, w, sizeof(t[k].h));
            memcpy(t[k].r, w + PROG_H, sizeof(t[k].r));
            memcpy(t[k].d, w + PROG_H + PROG_R, sizeof(t[k].d));
            for (int i = 0; i < PROG_P; i++)
                t[k].p[i] = w[PROG_WORDS - 1] >> i & 1;
            for (int i = 0; i < 4; i++)
                t[k].local[i] = (uint32_t)t[k].r[i];
        }
        run_block(p, t);
        for (int k = 0; k < PROG_THREADS; k++) {
            uint64_t *w = at + (size_t)k * PROG_WORDS;
            memcpy(w, t[k].h, sizeof(t[k].h));
            memcpy(w + PROG_H, t[k].r, sizeof(t[k].r));
            memcpy(w + PROG_H + PROG_R, t[k].d, sizeof(t[k].d));
            w[PROG_WORDS - 1] = 0;
            for (int i = 0; i < PROG_P; i++)
                w[PROG_WORDS - 1] |= (uint64_t)t[k].p[i] << i;
        }
    }
}

/* SPDX-License-Identifier: MIT
 *
 * Random PTX programs: see ptx_program.h. This file makes and prints them; ptx_evaluate.c runs them.
 */
#include "ptx_program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct maker {
    program *p;
    uint64_t state;
    const program_options *options;
    uint16_t *usable;
    size_t usable_count;
} maker;

static uint64_t draw(maker *m)
{
    uint64_t z = m->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static unsigned below(maker *m, unsigned n)
{
    return (unsigned)(draw(m) >> 33) % n;
}

static stmt *push(maker *m, stmt_kind kind)
{
    program *p = m->p;
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 64;
        stmt *at = realloc(p->at, capacity * sizeof(*at));
        if (!at) {
            p->failed = true;
            return NULL;
        }
        p->at = at;
        p->capacity = capacity;
    }
    stmt *s = &p->at[p->count++];
    memset(s, 0, sizeof(*s));
    s->kind = (uint8_t)kind;
    s->pred = -1;
    return s;
}

static unsigned file_size(unsigned width)
{
    return width == 16 ? PROG_H : width == 32 ? PROG_R : PROG_D;
}

bool program_uses(const instr *in, const program_options *options)
{
    if (in->flags & INSTR_CONTEXT)
        return false;
    if (!(in->flags & INSTR_APPROXIMATE)) {
        uint64_t x[3] = {0}, out;
        return in->ref(in, x, &out) || in->dst == STITCH__TF32 || in->dst == STITCH__E4M3X2 ||
               in->dst == STITCH__E5M2X2 || in->src[0] == STITCH__E4M3X2 || in->src[0] == STITCH__E5M2X2;
    }
    stitch__sfu_accuracy a = stitch__arith_sfu_accuracy((stitch__fop)in->u.op.op);
    bool division = in->u.op.op == STITCH__DIV_APPROX || in->u.op.op == STITCH__DIV_FULL;
    if (division)
        a = stitch__arith_sfu_accuracy(STITCH__RCP_APPROX);
    return options->approximate && a.exact;
}

/* min.f16, .f32 and .f64 of a register with itself: ptxas makes a move of it, which keeps a NaN's payload, where PTX
 * and the instruction give the canonical NaN. The other forms it leaves alone. */
static bool is_foldable(const instr *in)
{
    const stitch__arith_op *op = &in->u.op;
    bool min = !strncmp(in->name, "min.", 4) || !strncmp(in->name, "max.", 4);
    return min && (in->src[0] == STITCH__F16 || in->src[0] == STITCH__F32 || in->src[0] == STITCH__F64) && !op->flags;
}

static void make_instr(maker *m, bool allow_predicate)
{
    stmt *s = push(m, STMT_INSTR);
    if (!s)
        return;
    s->instr = m->usable[below(m, (unsigned)m->usable_count)];
    const instr *in = &m->p->list[s->instr];
    uint8_t *src[3] = {&s->a, &s->b, &s->c};
    s->dst = (uint8_t)below(m, file_size(instr_width(in->dst)));
    for (int k = 0; k < in->inputs; k++)
        *src[k] = (uint8_t)below(m, file_size(instr_width(in->src[k])));
    if (is_foldable(in) && s->b == s->a)
        s->b = (uint8_t)((s->a + 1) % file_size(instr_width(in->src[1])));
    if (allow_predicate && below(m, 6) == 0) {
        s->pred = (int8_t)below(m, PROG_P);
        s->negated = below(m, 2);
    }
}

static void make_simple(maker *m)
{
    stmt *s;
    switch (below(m, 16)) {
    case 0:
        if ((s = push(m, STMT_PREDICATE))) {
            s->dst = (uint8_t)below(m, PROG_P);
            s->a = (uint8_t)below(m, PROG_P);
            s->b = (uint8_t)below(m, PROG_P);
            s->mode = (uint8_t)below(m, 4);
        }
        return;
    case 1:
        if ((s = push(m, STMT_TEST))) {
            static const uint32_t masks[] = {1, 3, 0x80000000, 0x100, 7, 0xffffffff};
            s->dst = (uint8_t)below(m, PROG_P);
            s->a = (uint8_t)below(m, PROG_R);
            s->value = masks[below(m, 6)];
        }
        return;
    case 2:
        if ((s = push(m, STMT_LOCAL))) {
            s->dst = (uint8_t)below(m, PROG_R);
            s->a = (uint8_t)below(m, PROG_R);
            s->b = (uint8_t)below(m, PROG_R);
            s->c = (uint8_t)below(m, PROG_R);
        }
        return;
    case 3:
    case 4:
        if ((s = push(m, STMT_PACK))) {
            s->mode = (uint8_t)below(m, 6);
            s->dst = (uint8_t)below(m, 8); /* all files have 8 */
            s->a = (uint8_t)below(m, 8);
            s->b = (uint8_t)below(m, 8);
        }
        return;
    default: make_instr(m, true);
    }
}

static void make_list(maker *m, unsigned length, unsigned depth);

static void make_block(maker *m, unsigned depth)
{
    size_t at = m->p->count;
    bool loop = below(m, 3) == 0;
    stmt *s = push(m, loop ? STMT_LOOP : STMT_IF);
    if (!s)
        return;
    if (loop) {
        s->value = below(m, 4); /* 0: a thread's own count */
        s->a = (uint8_t)below(m, PROG_R);
    } else {
        s->pred = (int8_t)below(m, PROG_P);
        s->negated = below(m, 2);
    }
    bool has_other = !loop && below(m, 2);
    make_list(m, 1 + below(m, 5), depth + 1);
    if (m->p->failed)
        return;
    m->p->at[at].body = (uint16_t)(m->p->count - at - 1);
    if (has_other) {
        make_list(m, 1 + below(m, 4), depth + 1);
        if (m->p->failed)
            return;
        m->p->at[at].other = (uint16_t)(m->p->count - at - 1 - m->p->at[at].body);
    }
}

static void make_list(maker *m, unsigned length, unsigned depth)
{
    for (unsigned i = 0; i < length && !m->p->failed; i++) {
        if (depth < PROG_MAX_DEPTH && below(m, depth ? 10 : 5) == 0)
            make_block(m, depth);
        else
            make_simple(m);
    }
}

static void make_warp(maker *m)
{
    static const uint8_t kinds[] = {STMT_SHUFFLE, STMT_SHUFFLE, STMT_VOTE,  STMT_MATCH,
                                    STMT_REDUX,   STMT_SHARED,  STMT_ATOMIC};
    stmt *s = push(m, (stmt_kind)kinds[below(m, sizeof(kinds))]);
    if (!s)
        return;
    s->mode = (uint8_t)below(m, 8);
    s->dst = (uint8_t)below(m, PROG_R);
    s->a = (uint8_t)below(m, PROG_R);
    s->b = (uint8_t)below(m, PROG_R);
    s->c = (uint8_t)below(m, PROG_P);
    s->value = below(m, 128);
}

void program_make(program *p, uint64_t seed, const instr *list, size_t list_count, const program_options *options)
{
    maker m = {.p = p, .state = seed * 0x2545f4914f6cdd1du + 1, .options = options};
    memset(p, 0, sizeof(*p));
    p->list = list;
    p->list_count = list_count;
    p->seed = seed;
    p->plain = options->plain;
    m.usable = malloc(list_count * sizeof(*m.usable));
    if (!m.usable) {
        p->failed = true;
        return;
    }
    for (size_t i = 0; i < list_count; i++)
        if (program_uses(&list[i], options) && !(options->skip && options->skip[i]))
            m.usable[m.usable_count++] = (uint16_t)i;
    unsigned left = options->length;
    while (left > 0 && !p->failed) {
        unsigned n = 1 + below(&m, 6);
        n = n > left ? left : n;
        make_list(&m, n, 0);
        make_warp(&m);
        left -= n;
    }
    free(m.usable);
}

void program_free(program *p)
{
    free(p->at);
    memset(p, 0, sizeof(*p));
}

/* ---- PTX ------------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void out(prog_text *t, const char *fmt, ...)
{
    va_list ap;
    if (t->failed)
        return;
    for (int tries = 0; tries < 2; tries++) {
        va_start(ap, fmt);
        int n = vsnprintf(t->at ? t->at + t->length : NULL, t->capacity - t->length, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < t->capacity - t->length) {
            t->length += (size_t)n;
            return;
        }
        size_t capacity = 2 * t->capacity + (size_t)(n > 0 ? n : 0) + 8192;
        char *more = n >= 0 ? realloc(t->at, capacity) : NULL;
        if (!more)
            break;
        t->at = more;
        t->capacity = capacity;
    }
    t->failed = true;
}

void prog_begin(prog_text *t, unsigned arch)
{
    out(t, ".version 8.7\n.target sm_%u\n.address_size 64\n", arch);
}

static char file_letter(unsigned width)
{
    return width == 16 ? 'h' : width == 32 ? 'r' : 'd';
}

/* Results go through memory after every statement, unless the program is `plain`. ptxas 13.0 (the compiler of driver
 * 580) merges statements wrongly now and then, one random kernel in 60, and a difference of its making says nothing of
 * the simulator. What its machine code for sm_90 shows:
 *
 *   - It takes the type of a register's definition for the type of its contents. A float shift count is truncated to an
 *     integer; cvt.bf16.f16 then cvt.s64.f16 becomes one F2I of the first operand; the 1 of a selp, set or cnot becomes
 *     1.0, or stays 1, where cvt reads it as f32 or makes f16 of it; cvt.tf32.f32 of an f16x2 reads the low half alone;
 *     cvt.sat.f32.f32 after add.sat.s32 is dropped, as it is taken for saturated.
 *   - Conversions in a row lose the inner one's limits: cvt.sat.s32.s64 after cvt.s64.f32 turns NaN into 0, not the
 *     least number; cvt.sat.s16.u32 after cvt.sat.u32.f32 gives negative numbers; .ftz of either may be lost or gained.
 *   - abs.s16, abs.s32 and neg.s32 of the least number count as not negative afterwards.
 *   - mad.hi three times in an unrolled loop is done twice.
 *   - A predicate that is known on a branch stays known in a loop there that changes it; `or.pred p, q, q` is replaced
 *     by q after q has changed; `and` and `or` of the same two predicates become one PLOP3 with the wrong result.
 *   - An instruction moves below a guarded change of its operands, a vote into a branch that not all lanes take.
 *   - mov.b32 {h0, h1} of a zero-extended 16-bit register gives it twice; a 16-bit register that was written under a
 *     guard, or taken out of a pack, is stored as 64 bits with what its upper half happened to hold.
 *   - Results of approximate instructions on operands known to be 0 or 1 are computed at compile time, rounded
 *     correctly. */
static void pin(const program *p, prog_text *t, char file, unsigned at)
{
    static const char *const types[3] = {"u16", "u32", "u64"};
    if (p->plain)
        return;
    if (file == 'p') {
        out(t,
            "selp.u32 %%tt, 1, 0, %%p%u; st.volatile.shared.u32 [%%tk], %%tt; ld.volatile.shared.u32 %%tt, [%%tk]; "
            "setp.ne.u32 %%p%u, %%tt, 0;\n",
            at, at);
        return;
    }
    const char *type = types[file == 'h' ? 0 : file == 'r' ? 1 : 2];
    out(t, "st.volatile.shared.%s [%%tk], %%%c%u; ld.volatile.shared.%s %%%c%u, [%%tk];\n", type, file, at, type, file,
        at);
}

/* Branches when the predicate is `when`. Pinned: on a copy, from which nothing follows for the predicate itself. */
static void print_branch(const program *p, prog_text *t, unsigned at, bool when, char label, unsigned number)
{
    if (p->plain)
        out(t, "@%s%%p%u bra %c%u;\n", when ? "" : "!", at, label, number);
    else
        out(t,
            "selp.u32 %%tt, 1, 0, %%p%u; st.volatile.shared.u32 [%%tk], %%tt; ld.volatile.shared.u32 %%tt, [%%tk]; "
            "setp.%s.u32 %%tq, %%tt, 0; @%%tq bra %c%u;\n",
            at, when ? "ne" : "eq", label, number);
}

/* The code of an instruction with registers filled in; a predicated one may only be a single instruction. */
static void print_instr(const program *p, const stmt *s, prog_text *t, unsigned label)
{
    const instr *in = &p->list[s->instr];
    const uint8_t regs[3] = {s->a, s->b, s->c};
    bool single =
        strchr(in->code, ';') == in->code + strlen(in->code) - 1 && !(in->flags & (INSTR_DIVIDES | INSTR_UNKNOWN_NAN));
    if (s->pred >= 0 && single)
        out(t, "@%s%%p%d ", s->negated ? "!" : "", s->pred);
    else if (s->pred >= 0)
        print_branch(p, t, (unsigned)s->pred, s->negated, 'S', label);
    unsigned width = instr_width(in->src[1]);
    if (in->flags & INSTR_DIVIDES) /* a small positive divisor */
        out(t, "and.b%u %%z%u, %%%c%u, 127; or.b%u %%z%u, %%z%u, 1;\n", width, width, file_letter(width), s->b, width,
            width, width);
    for (const char *c = in->code; *c; c++) {
        if (c[0] != '%' || !c[1]) {
            out(t, "%c", *c);
            continue;
        }
        c++;
        if (*c == 'd')
            out(t, "%%%c%u", file_letter(instr_width(in->dst)), s->dst);
        else if (*c == 'b' && in->flags & INSTR_DIVIDES)
            out(t, "%%z%u", width);
        else if (*c >= 'a' && *c <= 'c')
            out(t, "%%%c%u", file_letter(instr_width(in->src[*c - 'a'])), regs[*c - 'a']);
        else
            out(t, "%%t%c", *c);
    }
    out(t, "\n");
    if (in->flags & INSTR_UNKNOWN_NAN) /* whatever NaN the hardware makes */
        out(t, "setp.nan.f64 %%tq, %%d%u, %%d%u; selp.b64 %%d%u, 0x7ff8000000000000, %%d%u, %%tq;\n", s->dst, s->dst,
            s->dst, s->dst);
    if (s->pred >= 0 && !single)
        out(t, "S%u:\n", label);
    pin(p, t, file_letter(instr_width(in->dst)), s->dst);
}

static void print_pack(const program *p, const stmt *s, prog_text *t)
{
    unsigned next = (s->a + 1) % 8;
    switch (s->mode) {
    case 0: out(t, "mov.b32 %%r%u, {%%h%u, %%h%u};\n", s->dst, s->a, s->b); break;
    case 1: out(t, "mov.b64 %%d%u, {%%r%u, %%r%u};\n", s->dst, s->a, s->b); break;
    case 2: out(t, "mov.b32 {%%h%u, %%h%u}, %%r%u;\n", s->a, next, s->dst); break;
    case 3: out(t, "mov.b64 {%%r%u, %%r%u}, %%d%u;\n", s->a, next, s->dst); break;
    case 4: out(t, "cvt.u32.u16 %%r%u, %%h%u;\n", s->dst, s->a); break;
    default: out(t, "cvt.s64.s32 %%d%u, %%r%u;\n", s->dst, s->a); break;
    }
    if (s->mode == 2 || s->mode == 3) {
        pin(p, t, s->mode == 2 ? 'h' : 'r', s->a);
        pin(p, t, s->mode == 2 ? 'h' : 'r', next);
    } else {
        pin(p, t, s->mode == 1 || s->mode == 5 ? 'd' : 'r', s->dst);
    }
}

static const char *const redux_names[6] = {"add.s32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"};
static const char *const atomic_names[6] = {"add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"};

static void print_warp(const program *p, const stmt *s, prog_text *t)
{
    static const char *const shuffles[4] = {"up", "down", "bfly", "idx"};
    static const char *const votes[3] = {"all", "any", "uni"};
    switch (s->kind) {
    case STMT_SHUFFLE:
        out(t, "shfl.sync.%s.b32 %%tt|%%p%u, %%r%u, %u, %u, 0xffffffff; mov.b32 %%r%u, %%tt;\n", shuffles[s->mode & 3],
            s->c, s->a, s->value & 31, (s->mode & 3 ? 31u : 0u) | (s->mode & 4 ? 0x1000u : 0u), s->dst);
        break;
    case STMT_VOTE:
        if ((s->mode & 3) == 3)
            out(t, "vote.sync.ballot.b32 %%r%u, %%p%u, 0xffffffff;\n", s->dst, s->c);
        else
            out(t, "vote.sync.%s.pred %%p%u, %%p%u, 0xffffffff;\n", votes[s->mode & 3], s->dst % PROG_P, s->c);
        break;
    case STMT_MATCH:
        out(t, "and.b32 %%tt, %%r%u, 3; match.any.sync.b32 %%r%u, %%tt, 0xffffffff;\n", s->a, s->dst);
        break;
    case STMT_REDUX: out(t, "redux.sync.%s %%r%u, %%r%u, 0xffffffff;\n", redux_names[s->mode % 6], s->dst, s->a); break;
    case STMT_SHARED:
        out(t,
            "st.shared.u32 [%%tm], %%r%u; bar.sync 0; xor.b32 %%tt, %%ty, %u; shl.b32 %%tt, %%tt, 2; mov.u32 %%tu, "
            "words;"
            " add.u32 %%tt, %%tt, %%tu; ld.shared.u32 %%r%u, [%%tt]; bar.sync 0;\n",
            s->a, s->value, s->dst);
        break;
    default: /* STMT_ATOMIC */
        out(t,
            "setp.eq.u32 %%tq, %%ty, 0; @%%tq st.shared.u32 [word], %u; bar.sync 0; red.shared.%s [word], %%r%u; "
            "bar.sync 0;"
            " ld.shared.u32 %%r%u, [word]; bar.sync 0;\n",
            s->value, atomic_names[s->mode % 6], s->a, s->dst);
    }
    if (s->kind == STMT_VOTE && (s->mode & 3) != 3)
        pin(p, t, 'p', s->dst % PROG_P);
    else
        pin(p, t, 'r', s->dst);
    if (s->kind == STMT_SHUFFLE)
        pin(p, t, 'p', s->c);
}

static void print_list(const program *p, prog_text *t, size_t from, size_t to, unsigned *label);

static void print_one(const program *p, prog_text *t, size_t at, unsigned *label)
{
    const stmt *s = &p->at[at];
    unsigned mine = (*label)++;
    static const char *const logic[4] = {"and", "or", "xor", "not"};
    switch (s->kind) {
    case STMT_INSTR: print_instr(p, s, t, mine); break;
    case STMT_PREDICATE:
        if (s->mode == 3)
            out(t, "not.pred %%p%u, %%p%u;\n", s->dst, s->a);
        else
            out(t, "%s.pred %%p%u, %%p%u, %%p%u;\n", logic[s->mode], s->dst, s->a, s->b);
        pin(p, t, 'p', s->dst);
        break;
    case STMT_TEST:
        out(t, "and.b32 %%tt, %%r%u, %u; setp.eq.u32 %%p%u, %%tt, %u;\n", s->a, s->value, s->dst,
            s->value & 0x55555555);
        pin(p, t, 'p', s->dst);
        break;
    case STMT_IF:
        print_branch(p, t, (unsigned)s->pred, s->negated, 'E', mine);
        print_list(p, t, at + 1, at + 1 + s->body, label);
        if (s->other)
            out(t, "bra F%u;\n", mine);
        out(t, "E%u:\n", mine);
        print_list(p, t, at + 1 + s->body, at + 1 + s->body + s->other, label);
        if (s->other)
            out(t, "F%u:\n", mine);
        break;
    case STMT_LOOP:
        out(t, "{ .reg .u32 %%n; .reg .pred %%q;\n");
        if (s->value)
            out(t, "mov.u32 %%n, %u;\n", s->value);
        else
            out(t, "and.b32 %%n, %%r%u, 3;\n", s->a);
        out(t, "B%u: setp.eq.u32 %%q, %%n, 0; @%%q bra E%u;\n", mine, mine);
        print_list(p, t, at + 1, at + 1 + s->body, label);
        out(t, "sub.u32 %%n, %%n, 1; bra B%u;\nE%u: }\n", mine, mine);
        break;
    case STMT_LOCAL:
        out(t,
            "and.b32 %%tt, %%r%u, 12; cvt.u64.u32 %%tw, %%tt; add.u64 %%tw, %%tl, %%tw; st.local.u32 [%%tw], %%r%u;"
            " and.b32 %%tt, %%r%u, 12; cvt.u64.u32 %%tw, %%tt; add.u64 %%tw, %%tl, %%tw; ld.local.u32 %%r%u, [%%tw];\n",
            s->b, s->a, s->c, s->dst);
        pin(p, t, 'r', s->dst);
        break;
    case STMT_PACK: print_pack(p, s, t); break;
    default: print_warp(p, s, t);
    }
}

static void print_list(const program *p, prog_text *t, size_t from, size_t to, unsigned *label)
{
    for (size_t i = from; i < to; i += 1u + p->at[i].body + p->at[i].other)
        if (!p->at[i].removed)
            print_one(p, t, i, label);
}

void program_print(const program *p, prog_text *t, const char *kernel)
{
    unsigned label = 0, word = 0;
    out(t, ".visible .entry %s(.param .u64 in, .param .u64 out, .param .u32 n)\n{\n", kernel);
    out(t,
        ".reg .b16 %%h<%d>, %%z16; .reg .b32 %%r<%d>, %%z32, %%tt, %%tu, %%tv, %%tx, %%tm, %%ty, %%tk; .reg .b64 "
        "%%d<%d>, "
        "%%z64, "
        "%%tw, %%ti, %%to, %%tl;\n",
        PROG_H, PROG_R, PROG_D);
    out(t,
        ".reg .pred %%p<%d>, %%tp, %%tq;\n.local .align 16 .b8 scratch[16];\n.shared .align 4 .b8 words[%d];\n.shared "
        ".align 4 .u32 word;\n.shared .align 8 .b8 pins[%d];\n",
        PROG_P, 4 * PROG_THREADS, 8 * PROG_THREADS);
    out(t,
        "mov.u32 %%tt, %%ctaid.x; mov.u32 %%tu, %%ntid.x; mov.u32 %%tv, %%tid.x; mad.lo.u32 %%tt, %%tt, %%tu, %%tv;\n"
        "ld.param.u64 %%ti, [in]; cvta.to.global.u64 %%ti, %%ti; mul.wide.u32 %%tw, %%tt, %d; add.s64 %%ti, %%ti, "
        "%%tw;\n"
        "ld.param.u64 %%to, [out]; cvta.to.global.u64 %%to, %%to; add.s64 %%to, %%to, %%tw;\n"
        "mov.u32 %%ty, %%tv; mov.u32 %%tm, words; shl.b32 %%tv, %%tv, 2; add.u32 %%tm, %%tm, %%tv; mov.u64 %%tl, "
        "scratch;\n"
        "mov.u32 %%tk, pins; shl.b32 %%tv, %%ty, 3; add.u32 %%tk, %%tk, %%tv;\n",
        8 * PROG_WORDS);
    for (int i = 0; i < PROG_H; i++)
        out(t, "ld.global.u16 %%h%d, [%%ti+%u];\n", i, 8 * word++);
    for (int i = 0; i < PROG_R; i++)
        out(t, "ld.global.u32 %%r%d, [%%ti+%u];\n", i, 8 * word++);
    for (int i = 0; i < PROG_D; i++)
        out(t, "ld.global.u64 %%d%d, [%%ti+%u];\n", i, 8 * word++);
    out(t, "ld.global.u32 %%tt, [%%ti+%u];\n", 8 * word);
    for (int i = 0; i < PROG_P; i++)
        out(t, "and.b32 %%tu, %%tt, %u; setp.ne.u32 %%p%d, %%tu, 0;\n", 1u << i, i);
    for (int i = 0; i < 4; i++)
        out(t, "st.local.u32 [%%tl+%d], %%r%d;\n", 4 * i, i);
    print_list(p, t, 0, p->count, &label);
    word = 0;
    for (int i = 0; i < PROG_H; i++)
        out(t, "cvt.u64.u16 %%tw, %%h%d; st.global.u64 [%%to+%u], %%tw;\n", i, 8 * word++);
    for (int i = 0; i < PROG_R; i++)
        out(t, "cvt.u64.u32 %%tw, %%r%d; st.global.u64 [%%to+%u], %%tw;\n", i, 8 * word++);
    for (int i = 0; i < PROG_D; i++)
        out(t, "st.global.u64 [%%to+%u], %%d%d;\n", 8 * word++, i);
    out(t, "mov.u32 %%tt, 0;\n");
    for (int i = 0; i < PROG_P; i++)
        out(t, "selp.u32 %%tu, %u, 0, %%p%d; or.b32 %%tt, %%tt, %%tu;\n", 1u << i, i);
    out(t, "cvt.u64.u32 %%tw, %%tt; st.global.u64 [%%to+%u], %%tw;\nret;\n}\n", 8 * word);
}

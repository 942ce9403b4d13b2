/* SPDX-License-Identifier: MIT
 *
 * Function bodies of PTX: declarations, labels, scopes, operands. Each instruction is handed to decode.c.
 */
#include "sim/parse.h"

/* ---- emitting ---------------------------------------------------------------------------------------------------- */

stitch__instr *ptx_emit(ptx_parser *p)
{
    if (stitch__grow(p->m->ctx, &p->code, &p->code_cap, p->code_count + 1, sizeof(*p->code))) {
        ptx_nomem(p);
        return NULL;
    }
    stitch__instr *in = &p->code[p->code_count++];
    memset(in, 0, sizeof(*in));
    in->guard = p->guard;
    in->flags = p->guard_not ? STITCH__IN_GUARD_NOT : 0;
    in->line = p->instr_line;
    in->vec = 1;
    if (!ptx_place_here(p, &in->place))
        return NULL;
    return in;
}

static uint32_t vreg_range(ptx_parser *p, uint8_t bank, uint8_t num, uint32_t count)
{
    stitch__sim_function *f = p->f;
    if (count > (1u << 24) || f->vreg_count + count > (1u << 26)) {
        ptx_fail(p, "too many registers");
        return 0;
    }
    if (stitch__grow(p->m->ctx, &f->ranges, &f->range_cap, f->range_count + 1, sizeof(*f->ranges))) {
        ptx_nomem(p);
        return 0;
    }
    uint32_t first = f->vreg_count;
    f->ranges[f->range_count++] = (stitch__vreg_range){first, count, bank, num};
    f->vreg_count += count;
    return first;
}

uint32_t ptx_vreg(ptx_parser *p, uint8_t bank)
{
    return vreg_range(p, bank, 0, 1) | STITCH__OPD_REG;
}

static bool const_index_grow(ptx_parser *p)
{
    stitch__sim_function *f = p->f;
    size_t cap = p->const_index_cap ? p->const_index_cap : 64;
    while (cap < (f->const_count + 1) * 2)
        cap *= 2;
    uint32_t *table = stitch__calloc(p->m->ctx, cap, sizeof(uint32_t));
    if (!table)
        return ptx_nomem(p);
    for (size_t i = 0; i < f->const_count; i++) {
        const stitch__const *c = &f->consts[i];
        size_t h =
            (size_t)((c->value * UINT64_C(0x9e3779b97f4a7c15)) >> 20 ^ c->ref * 7u ^ c->kind ^ c->wide) & (cap - 1);
        while (table[h])
            h = (h + 1) & (cap - 1);
        table[h] = (uint32_t)i + 1;
    }
    stitch_free(p->const_index);
    p->const_index = table;
    p->const_index_cap = cap;
    return true;
}

uint32_t ptx_const_ref(ptx_parser *p, bool wide, uint8_t kind, uint32_t ref, uint64_t value)
{
    stitch__sim_function *f = p->f;
    if ((f->const_count + 1) * 2 > p->const_index_cap && !const_index_grow(p))
        return 0;
    size_t mask = p->const_index_cap - 1;
    size_t h = (size_t)((value * UINT64_C(0x9e3779b97f4a7c15)) >> 20 ^ ref * 7u ^ kind ^ wide) & mask;
    for (; p->const_index[h]; h = (h + 1) & mask) {
        const stitch__const *c = &f->consts[p->const_index[h] - 1];
        if (c->value == value && c->wide == wide && c->kind == kind && c->ref == ref)
            return STITCH__OPD_CONST | (p->const_index[h] - 1);
    }
    if (stitch__grow(p->m->ctx, &f->consts, &f->const_cap, f->const_count + 1, sizeof(*f->consts))) {
        ptx_nomem(p);
        return 0;
    }
    f->consts[f->const_count] = (stitch__const){.value = value, .wide = wide, .kind = kind, .ref = ref};
    p->const_index[h] = (uint32_t)++f->const_count;
    return STITCH__OPD_CONST | (uint32_t)(f->const_count - 1);
}

uint32_t ptx_const(ptx_parser *p, uint64_t value, bool wide)
{
    return ptx_const_ref(p, wide, 0, 0, wide ? value : (uint32_t)value);
}

/* ---- declarations in a body -------------------------------------------------------------------------------------- */

static bool parse_reg(ptx_parser *p)
{
    uint32_t size;
    uint8_t bank, num;
    while (p->tok.kind == PTX_DOT && (ptx_word(&p->tok, "v2") || ptx_word(&p->tok, "v4")))
        return ptx_fail(p, "vector registers are not supported");
    if (!ptx_decl_type(&p->tok, &size, &bank, &num))
        return ptx_fail(p, "unknown register type .%.*s", (int)(p->tok.len > 60 ? 60 : p->tok.len), p->tok.text);
    do {
        ptx_next(p);
        if (p->tok.kind != PTX_ID)
            return ptx_fail(p, "a register name is expected");
        ptx_token name = p->tok;
        ptx_next(p);
        int64_t count = 1;
        bool ranged = false;
        if (ptx_accept(p, '<')) {
            ranged = true;
            if (!ptx_constant_int(p, &count) || !ptx_expect(p, '>'))
                return false;
            if (count < 0 || count > (1 << 24))
                return ptx_fail(p, "too many registers");
        }
        uint32_t first = vreg_range(p, bank == 3 ? STITCH__BANK_64 : bank, num, (uint32_t)count);
        ptx_symbol *s = ptx_define(p, name, PTX_SYM_REG);
        if (!s || p->failed)
            return false;
        s->ranged = ranged;
        s->index = first;
        s->count = (uint32_t)count;
        s->bank = bank;
        s->num = num;
    } while (ptx_is(p, ','));
    return ptx_expect(p, ';');
}

static bool parse_local(ptx_parser *p, bool param)
{
    stitch__sim_function *f = p->f;
    do {
        ptx_decl d;
        if (!ptx_parse_decl(p, &d))
            return false;
        uint32_t *area = param ? &f->param_area : &f->local_bytes;
        uint64_t at = ((uint64_t)*area + d.align - 1) / d.align * d.align;
        if (d.size > (512u << 10) || at + d.size > (512u << 10))
            return ptx_fail(p, "more than 512 KiB of local memory");
        ptx_symbol *s = ptx_define(p, d.name, param ? PTX_SYM_SCRATCH : PTX_SYM_LOCAL);
        if (!s)
            return false;
        s->index = (uint32_t)at;
        s->size = d.size;
        *area = (uint32_t)(at + d.size);
    } while (ptx_accept(p, ','));
    return ptx_expect(p, ';');
}

static bool use_shared(ptx_parser *p, stitch__shared_var *v)
{
    stitch__sim_function *f = p->f;
    for (size_t i = 0; i < f->shared_count; i++)
        if (f->shared[i] == v)
            return true;
    if (stitch__grow(p->m->ctx, &f->shared, &f->shared_cap, f->shared_count + 1, sizeof(*f->shared)))
        return ptx_nomem(p);
    f->shared[f->shared_count++] = v;
    return true;
}

static bool parse_pragma(ptx_parser *p)
{
    ptx_next(p);
    do {
        if (p->tok.kind != PTX_STR)
            return ptx_fail(p, "a string is expected behind .pragma");
        static const char word[] = "used_bytes_mask";
        if (p->tok.len > sizeof(word) && memcmp(p->tok.text, word, sizeof(word) - 1) == 0) {
            uint64_t v = 0;
            const char *s = p->tok.text + sizeof(word) - 1, *e = p->tok.text + p->tok.len;
            while (s < e && (*s == ' ' || *s == '='))
                s++;
            unsigned base = 10;
            if (e - s > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
                base = 16;
                s += 2;
            }
            for (; s < e; s++) {
                unsigned digit = *s >= '0' && *s <= '9' ? (unsigned)(*s - '0') : ((unsigned)*s | 32u) - 'a' + 10u;
                if (digit >= base)
                    break;
                v = v * base + digit;
            }
            p->bytes_mask = (uint32_t)v;
        }
        ptx_next(p);
    } while (ptx_accept(p, ','));
    return ptx_expect(p, ';');
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static bool parse_operand(ptx_parser *p, ptx_operand *o, unsigned depth);

static int32_t sub_alloc(ptx_parser *p, uint32_t count)
{
    if (p->sub_count + count > PTX_MAX_SUB) {
        ptx_fail(p, "an instruction has too many operands");
        return -1;
    }
    p->sub_count += count;
    return (int32_t)(p->sub_count - count);
}

/* Operands up to `close`; consecutive in sub[], which is why they are read into a copy first. */
static bool parse_list(ptx_parser *p, ptx_operand *o, char close, unsigned depth)
{
    ptx_operand *items = stitch__alloc(p->m->ctx, PTX_MAX_SUB * sizeof(*items));
    uint32_t count = 0;
    if (!items)
        return ptx_nomem(p);
    while (!p->failed && !ptx_is(p, close)) {
        if (count == PTX_MAX_SUB) {
            ptx_fail(p, "an instruction has too many operands");
            break;
        }
        if (!parse_operand(p, &items[count++], depth + 1))
            break;
        if (!ptx_is(p, close))
            ptx_expect(p, ',');
    }
    if (!p->failed) {
        ptx_next(p);
        int32_t first = sub_alloc(p, count);
        if (first >= 0) {
            memcpy(&p->sub[first], items, count * sizeof(*items));
            o->first = (uint32_t)first;
            o->count = count;
        }
    }
    stitch_free(items);
    return !p->failed;
}

static bool parse_name(ptx_parser *p, ptx_operand *o)
{
    ptx_token name = p->tok;
    o->name = name;
    ptx_next(p);
    if (name.len == 1 && name.text[0] == '_') {
        o->kind = PTX_O_SINK;
        return true;
    }
    uint32_t number;
    const ptx_symbol *s = ptx_lookup(p, name, &number);
    if (!s && name.text[0] == '%') {
        uint32_t len = name.len;
        if (p->tok.kind == PTX_DOT && p->tok.glued && p->tok.len == 1) {
            len += 2;
            ptx_next(p);
        }
        int sreg = ptx_sreg(name.text, len);
        o->kind = sreg < 0 ? PTX_O_NAME : PTX_O_SREG;
        o->name.len = len;
        o->reg = (uint32_t)sreg;
        return true;
    }
    if (!s && ptx_word(&name, "WARP_SZ")) {
        o->kind = PTX_O_INT;
        o->value = 32;
        return true;
    }
    if (!s) {
        o->kind = PTX_O_NAME;
        return true;
    }
    if (s->kind == PTX_SYM_REG) {
        o->kind = PTX_O_REG;
        o->reg = s->index + number;
        o->bank = s->bank;
        o->num = s->num;
        return true;
    }
    o->kind = PTX_O_SYM;
    o->symbol = s;
    if (s->kind == PTX_SYM_SHARED && !use_shared(p, s->shared))
        return false;
    return true;
}

static bool parse_operand(ptx_parser *p, ptx_operand *o, unsigned depth)
{
    memset(o, 0, sizeof(*o));
    o->pair = -1;
    if (depth > 4)
        return ptx_fail(p, "operands are nested too deeply");
    if (ptx_accept(p, '!')) {
        if (p->tok.kind != PTX_ID)
            return ptx_fail(p, "a predicate is expected behind '!'");
        o->negated = true;
    }
    if (ptx_accept(p, '{')) {
        o->kind = PTX_O_VEC;
        return parse_list(p, o, '}', depth);
    }
    if (ptx_accept(p, '[')) {
        o->kind = PTX_O_ADDR;
        return parse_list(p, o, ']', depth);
    }
    if (ptx_accept(p, '(')) {
        o->kind = PTX_O_LIST;
        return parse_list(p, o, ')', depth);
    }
    bool minus = false, complement = false;
    while (ptx_is(p, '-') || ptx_is(p, '+') || ptx_is(p, '~')) {
        minus ^= ptx_is(p, '-');
        complement ^= ptx_is(p, '~');
        ptx_next(p);
    }
    if (p->tok.kind == PTX_INT || p->tok.kind == PTX_F32 || p->tok.kind == PTX_F64) {
        o->kind = p->tok.kind == PTX_INT ? PTX_O_INT : p->tok.kind == PTX_F32 ? PTX_O_F32 : PTX_O_F64;
        o->value = p->tok.value;
        if (minus)
            o->value = o->kind == PTX_O_INT   ? 0 - o->value
                       : o->kind == PTX_O_F32 ? o->value ^ 0x80000000u
                                              : o->value ^ (UINT64_C(1) << 63);
        if (complement)
            o->value = ~o->value;
        ptx_next(p);
        return true;
    }
    if (p->tok.kind != PTX_ID || minus || complement)
        return ptx_fail(p, "an operand is expected, found '%.*s'", (int)(p->tok.len > 60 ? 60 : p->tok.len),
                        p->tok.text);
    if (!parse_name(p, o))
        return false;
    if ((ptx_is(p, '+') || ptx_is(p, '-')) && o->kind != PTX_O_SINK) {
        bool plus = ptx_is(p, '+');
        int64_t n;
        if (plus)
            ptx_next(p);
        if (!ptx_constant_int(p, &n))
            return false;
        o->imm = n;
    }
    if (ptx_accept(p, '|')) {
        int32_t at = sub_alloc(p, 1);
        ptx_operand second;
        if (at < 0 || !parse_operand(p, &second, depth + 1))
            return false;
        p->sub[at] = second;
        o->pair = at;
    }
    return true;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static bool parse_label(ptx_parser *p, ptx_token name)
{
    if (stitch__grow(p->m->ctx, &p->labels, &p->label_cap, p->label_count + 1, sizeof(*p->labels)))
        return ptx_nomem(p);
    p->labels[p->label_count++] =
        (ptx_label){.name = name.text, .len = name.len, .scope = p->scope, .instr = (uint32_t)p->code_count};
    return true;
}

static bool parse_targets(ptx_parser *p, ptx_token label)
{
    ptx_symbol *s = ptx_define(p, label, PTX_SYM_TABLE);
    if (!s || stitch__grow(p->m->ctx, &p->tables, &p->table_cap, p->table_count + 1, sizeof(*p->tables)))
        return ptx_nomem(p);
    ptx_table *t = &p->tables[p->table_count];
    memset(t, 0, sizeof(*t));
    t->scope = p->scope;
    t->line = p->tok.line;
    s->index = (uint32_t)p->table_count++;
    uint32_t cap = 0;
    do {
        ptx_next(p);
        if (p->tok.kind != PTX_ID)
            return ptx_fail(p, "a label is expected in .branchtargets");
        if (t->count == cap) {
            uint32_t next = cap ? cap * 2 : 16;
            ptx_token *names = stitch__arena_array(&p->m->arena, next, sizeof(*names));
            if (!names)
                return ptx_nomem(p);
            if (cap)
                memcpy(names, t->names, cap * sizeof(*names));
            t->names = names;
            cap = next;
        }
        t->names[t->count++] = p->tok;
        ptx_next(p);
    } while (ptx_is(p, ','));
    return ptx_expect(p, ';');
}

static bool skip_statement(ptx_parser *p)
{
    while (p->tok.kind != PTX_EOF && !ptx_is(p, ';'))
        ptx_next(p);
    return ptx_expect(p, ';');
}

bool ptx_branch_fixup(ptx_parser *p, uint32_t instr, ptx_token name, uint32_t *table_slot)
{
    if (stitch__grow(p->m->ctx, &p->fixups, &p->fixup_cap, p->fixup_count + 1, sizeof(*p->fixups)))
        return ptx_nomem(p);
    p->fixups[p->fixup_count++] = (ptx_fixup){.instr = instr,
                                              .scope = p->scope,
                                              .line = p->instr_line,
                                              .name = name.text,
                                              .len = name.len,
                                              .table_slot = table_slot};
    return true;
}

static bool parse_instruction(ptx_parser *p)
{
    p->guard = 0;
    p->guard_not = false;
    p->instr_line = p->tok.line;
    if (ptx_accept(p, '@')) {
        p->guard_not = ptx_accept(p, '!');
        uint32_t number;
        ptx_symbol *s = p->tok.kind == PTX_ID ? ptx_lookup(p, p->tok, &number) : NULL;
        if (!s || s->kind != PTX_SYM_REG || s->bank != STITCH__BANK_PRED)
            return ptx_fail(p, "a predicate register is expected behind '@'");
        p->guard = (s->index + number) | STITCH__OPD_REG;
        ptx_next(p);
    }
    if (p->tok.kind != PTX_ID)
        return ptx_fail(p, "an instruction is expected, found '%.*s'", (int)(p->tok.len > 60 ? 60 : p->tok.len),
                        p->tok.text);
    ptx_token op = p->tok;
    p->instr_line = op.line;
    snprintf(p->op, sizeof(p->op), "%.*s", (int)op.len, op.text);
    size_t n = (size_t)snprintf(p->mnemonic, sizeof(p->mnemonic), "%.*s", (int)(op.len > 100 ? 100 : op.len), op.text);
    p->mod_count = 0;
    p->mod_used = 0;
    ptx_next(p);
    while (p->tok.kind == PTX_DOT) {
        if (p->mod_count == PTX_MAX_MODS)
            return ptx_fail(p, "an instruction has too many modifiers");
        if (n + p->tok.len + 2 < sizeof(p->mnemonic))
            n += (size_t)snprintf(p->mnemonic + n, sizeof(p->mnemonic) - n, ".%.*s", (int)p->tok.len, p->tok.text);
        p->mods[p->mod_count++] = p->tok;
        ptx_next(p);
    }
    p->operand_count = 0;
    p->sub_count = 0;
    while (!ptx_is(p, ';')) {
        if (p->operand_count == PTX_MAX_OPERANDS)
            return ptx_fail(p, "an instruction has too many operands");
        if (!parse_operand(p, &p->operands[p->operand_count++], 0))
            return false;
        if (!ptx_is(p, ';') && !ptx_is(p, ',') && strcmp(p->op, "call") != 0)
            return ptx_expect(p, ';');
        ptx_accept(p, ',');
    }
    ptx_next(p);
    p->f->instr_total++;
    bool ok = ptx_decode(p);
    p->bytes_mask = 0;
    return ok;
}

/* Statements up to the closing brace. */
static bool parse_block(ptx_parser *p, unsigned depth)
{
    if (depth > 100)
        return ptx_fail(p, "blocks are nested too deeply");
    size_t symbols = p->symbol_count;
    uint32_t scope = p->scope;
    if (!ptx_scope_enter(p))
        return false;
    while (!ptx_is(p, '}')) {
        bool ok = true;
        if (p->tok.kind == PTX_EOF)
            return ptx_fail(p, "a function body does not end");
        if (p->tok.kind == PTX_DOT) {
            ptx_token word = p->tok;
            if (ptx_word(&word, "loc")) {
                ok = ptx_parse_loc(p);
            } else if (ptx_word(&word, "file")) {
                ok = ptx_parse_file(p);
            } else if (ptx_word(&word, "pragma")) {
                ok = parse_pragma(p);
            } else if (ptx_word(&word, "reg")) {
                ptx_next(p);
                ok = parse_reg(p);
            } else if (ptx_word(&word, "local") || ptx_word(&word, "param")) {
                ptx_next(p);
                ok = parse_local(p, word.text[0] == 'p');
            } else if (ptx_word(&word, "shared")) {
                do {
                    ptx_decl d;
                    ptx_next(p);
                    stitch__shared_var *v = ptx_parse_decl(p, &d) ? ptx_shared_declare(p, &d, false) : NULL;
                    ok = v && use_shared(p, v);
                } while (ok && ptx_is(p, ','));
                ok = ok && ptx_expect(p, ';');
            } else {
                return ptx_fail(p, "directive .%.*s is not supported in a body", (int)(word.len > 60 ? 60 : word.len),
                                word.text);
            }
        } else if (ptx_accept(p, '{')) {
            ok = parse_block(p, depth + 1);
        } else if (ptx_accept(p, ';')) {
            continue;
        } else if (p->tok.kind == PTX_ID) {
            /* A label is a name and a colon; only look-ahead tells it from an instruction. */
            const char *pos = p->pos;
            uint32_t line = p->line;
            ptx_token name = p->tok;
            ptx_next(p);
            if (ptx_accept(p, ':')) {
                if (p->tok.kind == PTX_DOT && ptx_word(&p->tok, "branchtargets")) {
                    ok = parse_targets(p, name);
                } else if (p->tok.kind == PTX_DOT && ptx_word(&p->tok, "callprototype")) {
                    ok = ptx_define(p, name, PTX_SYM_PROTO) && skip_statement(p);
                } else {
                    ok = parse_label(p, name);
                }
            } else if (!p->failed) {
                p->pos = pos;
                p->line = line;
                p->tok = name;
                ok = parse_instruction(p);
            }
        } else {
            ok = parse_instruction(p);
        }
        if (!ok || p->failed)
            return false;
    }
    ptx_next(p);
    ptx_scope_leave(p, symbols, scope);
    return true;
}

static bool resolve_labels(ptx_parser *p)
{
    enum { BUCKETS = 1024 };
    int32_t *heads = stitch__alloc(p->m->ctx, BUCKETS * sizeof(int32_t));
    if (!heads)
        return ptx_nomem(p);
    memset(heads, 0xff, BUCKETS * sizeof(int32_t));
    for (size_t i = 0; i < p->label_count; i++) {
        ptx_label *l = &p->labels[i];
        l->hash = 5381;
        for (uint32_t k = 0; k < l->len; k++)
            l->hash = l->hash * 33 + (uint8_t)l->name[k];
        l->next = heads[l->hash % BUCKETS];
        heads[l->hash % BUCKETS] = (int32_t)i;
    }
    for (size_t i = 0; i < p->fixup_count && !p->failed; i++) {
        const ptx_fixup *x = &p->fixups[i];
        uint32_t hash = 5381, target = UINT32_MAX;
        for (uint32_t k = 0; k < x->len; k++)
            hash = hash * 33 + (uint8_t)x->name[k];
        for (uint32_t scope = x->scope; target == UINT32_MAX; scope = p->scope_parent[scope]) {
            for (int32_t k = heads[hash % BUCKETS]; k >= 0; k = p->labels[k].next) {
                const ptx_label *l = &p->labels[k];
                if (l->hash == hash && l->scope == scope && l->len == x->len && memcmp(l->name, x->name, x->len) == 0)
                    target = l->instr;
            }
            if (scope == 0)
                break;
        }
        if (target == UINT32_MAX) {
            p->tok.line = x->line;
            ptx_fail(p, "label '%.*s' is not defined", (int)(x->len > 200 ? 200 : x->len), x->name);
        } else if (x->table_slot) {
            *x->table_slot = target;
        } else {
            p->code[x->instr].imm = target;
        }
    }
    stitch_free(heads);
    return !p->failed;
}

bool ptx_parse_body(ptx_parser *p)
{
    stitch__sim_function *f = p->f;
    p->code_count = p->fixup_count = p->label_count = p->table_count = 0;
    if (p->const_index)
        memset(p->const_index, 0, p->const_index_cap * sizeof(uint32_t));
    p->bytes_mask = 0;
    if (!ptx_expect(p, '{') || !parse_block(p, 0))
        return false;
    p->guard = 0;
    p->guard_not = false;
    stitch__instr *end = ptx_emit(p); /* falling off the end returns */
    if (!end)
        return false;
    end->op = STITCH__OP_RET;
    end->cls = STITCH__SIM_CLASS_CONTROL;
    if (!resolve_labels(p))
        return false;
    f->code = p->code;
    f->code_count = (uint32_t)p->code_count;
    p->code = NULL;
    p->code_count = p->code_cap = 0;
    stitch_error *err = NULL;
    int rc = stitch__sim_flow(f, &err);
    stitch_error_free(err);
    return rc == STITCH_OK || ptx_nomem(p);
}

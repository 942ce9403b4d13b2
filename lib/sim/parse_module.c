/* SPDX-License-Identifier: MIT
 *
 * Module level of PTX: directives, variables with their initialisers, function headers; and the module's own calls.
 */
#include "sim/parse.h"

bool ptx_decl_type(const ptx_token *t, uint32_t *size, uint8_t *bank, uint8_t *num)
{
    static const struct {
        const char *name;
        uint8_t size, bank, num;
    } types[] = {{"b8", 1, 0, STITCH__U8},
                 {"u8", 1, 0, STITCH__U8},
                 {"s8", 1, 0, STITCH__S8},
                 {"b16", 2, 0, STITCH__U16},
                 {"u16", 2, 0, STITCH__U16},
                 {"s16", 2, 0, STITCH__S16},
                 {"f16", 2, 0, STITCH__F16},
                 {"bf16", 2, 0, STITCH__BF16},
                 {"b32", 4, 0, STITCH__U32},
                 {"u32", 4, 0, STITCH__U32},
                 {"s32", 4, 0, STITCH__S32},
                 {"f32", 4, 0, STITCH__F32},
                 {"f16x2", 4, 0, STITCH__F16X2},
                 {"bf16x2", 4, 0, STITCH__BF16X2},
                 {"b64", 8, 1, STITCH__U64},
                 {"u64", 8, 1, STITCH__U64},
                 {"s64", 8, 1, STITCH__S64},
                 {"f64", 8, 1, STITCH__F64},
                 {"pred", 0, 2, 0},
                 {"b128", 16, 3, 0}};
    if (t->kind != PTX_DOT)
        return false;
    for (size_t i = 0; i < STITCH__COUNT(types); i++)
        if (ptx_word(t, types[i].name)) {
            *size = types[i].size;
            *bank = types[i].bank;
            *num = types[i].num;
            return true;
        }
    return false;
}

bool ptx_constant_int(ptx_parser *p, int64_t *out)
{
    bool negative = false;
    while (ptx_is(p, '-') || ptx_is(p, '+')) {
        if (ptx_is(p, '-'))
            negative = !negative;
        ptx_next(p);
    }
    if (p->tok.kind != PTX_INT)
        return ptx_fail(p, "a whole number is expected, found '%.*s'", (int)(p->tok.len > 60 ? 60 : p->tok.len),
                        p->tok.text);
    *out = (int64_t)(negative ? 0 - p->tok.value : p->tok.value);
    ptx_next(p);
    return true;
}

bool ptx_parse_decl(ptx_parser *p, ptx_decl *d)
{
    memset(d, 0, sizeof(*d));
    bool typed = false;
    uint32_t vector = 1;
    int64_t n;
    while (p->tok.kind == PTX_DOT) {
        uint8_t bank, num;
        uint32_t size;
        if (ptx_word(&p->tok, "align")) {
            ptx_next(p);
            if (!ptx_constant_int(p, &n))
                return false;
            if (n <= 0 || n > 4096 || (n & (n - 1)))
                return ptx_fail(p, "alignment %" PRId64 " is no power of two up to 4096", n);
            if (!d->pointer || !typed)
                d->align = (uint32_t)n;
            continue;
        }
        if (ptx_decl_type(&p->tok, &size, &bank, &num)) {
            d->elem_size = size;
            d->bank = bank;
            d->num = num;
            typed = true;
        } else if (ptx_word(&p->tok, "v2") || ptx_word(&p->tok, "v4")) {
            vector = p->tok.text[1] == '2' ? 2 : 4;
        } else if (ptx_word(&p->tok, "ptr")) {
            d->pointer = true; /* what follows describes what it points to */
            ptx_next(p);
            while (p->tok.kind == PTX_DOT) {
                bool align = ptx_word(&p->tok, "align");
                ptx_next(p);
                if (align && !ptx_constant_int(p, &n))
                    return false;
            }
            break;
        } else if (ptx_word(&p->tok, "texref") || ptx_word(&p->tok, "samplerref") || ptx_word(&p->tok, "surfref")) {
            d->elem_size = 8;
            d->bank = STITCH__BANK_64;
            d->num = STITCH__U64;
            typed = true;
        } else if (!ptx_word(&p->tok, "attribute")) {
            return ptx_fail(p, "unknown word .%.*s in a declaration", (int)(p->tok.len > 60 ? 60 : p->tok.len),
                            p->tok.text);
        } else {
            ptx_next(p);
            while (p->tok.kind != PTX_EOF && !ptx_is(p, ')'))
                ptx_next(p);
        }
        ptx_next(p);
    }
    if (!typed)
        return ptx_fail(p, "a declaration has no type");
    if (p->tok.kind != PTX_ID)
        return ptx_fail(p, "a name is expected in a declaration");
    d->name = p->tok;
    d->size = (uint64_t)d->elem_size * vector;
    if (!d->align)
        d->align = (uint32_t)(d->size ? d->size : 1);
    ptx_next(p);
    while (ptx_accept(p, '[')) {
        if (ptx_accept(p, ']')) {
            d->open_array = true;
            d->size = 0;
            continue;
        }
        if (!ptx_constant_int(p, &n) || !ptx_expect(p, ']'))
            return false;
        if (n < 0 || (n && d->size > (UINT64_C(1) << 40) / (uint64_t)n))
            return ptx_fail(p, "array size is out of range");
        d->size *= (uint64_t)n;
    }
    return true;
}

stitch__shared_var *ptx_shared_declare(ptx_parser *p, const ptx_decl *d, bool dynamic)
{
    stitch__sim_module *m = p->m;
    stitch__shared_var *v = stitch__arena_alloc(&m->arena, sizeof(*v));
    char *name = stitch__arena_strndup(&m->arena, d->name.text, d->name.len);
    ptx_symbol *s = v && name ? ptx_define(p, d->name, PTX_SYM_SHARED) : NULL;
    if (!s) {
        ptx_nomem(p);
        return NULL;
    }
    v->name = name;
    v->size = d->size;
    v->align = d->align;
    v->dynamic = dynamic || d->open_array;
    s->shared = v;
    s->size = d->size;
    return v;
}

static bool add_reloc(ptx_parser *p, const stitch__reloc *r)
{
    if (stitch__grow(p->m->ctx, &p->m->relocs, &p->m->reloc_cap, p->m->reloc_count + 1, sizeof(*r)))
        return ptx_nomem(p);
    p->m->relocs[p->m->reloc_count++] = *r;
    return true;
}

/* One element of an initialiser: a number, or an address: g, g+4, generic(g), generic(g)+4. */
static bool init_element(ptx_parser *p, stitch__sim_var_data *v, uint32_t variable, const ptx_decl *d, uint64_t *at)
{
    uint64_t value = 0;
    bool negative = false;
    while (ptx_is(p, '-') || ptx_is(p, '+')) {
        negative ^= ptx_is(p, '-');
        ptx_next(p);
    }
    if (*at + d->elem_size > v->init_len)
        return ptx_fail(p, "more initial values than elements");
    if (p->tok.kind == PTX_ID) {
        bool generic = ptx_word(&p->tok, "generic");
        if (generic) {
            ptx_next(p);
            if (!ptx_expect(p, '('))
                return false;
        }
        uint32_t unused;
        ptx_symbol *s = p->tok.kind == PTX_ID ? ptx_lookup(p, p->tok, &unused) : NULL;
        if (!s || (s->kind != PTX_SYM_VAR && s->kind != PTX_SYM_FUNC) || d->elem_size != 8)
            return ptx_fail(p, "an initialiser that is no number and no address is not supported");
        if (s->kind == PTX_SYM_FUNC) {
            value = STITCH__SIM_FUNC_WINDOW + 16 * (uint64_t)s->index;
            p->m->functions[s->index]->address_taken = true;
            memcpy(v->init + *at, &value, 8);
            *at += 8;
            ptx_next(p);
            return !generic || ptx_expect(p, ')');
        }
        ptx_next(p);
        if (generic && !ptx_expect(p, ')'))
            return false;
        int64_t addend = 0;
        if ((ptx_is(p, '+') || ptx_is(p, '-')) && !ptx_constant_int(p, &addend))
            return false;
        stitch__reloc r = {.function = UINT32_MAX,
                           .constant = variable,
                           .variable = s->index,
                           .addend = (uint64_t)addend,
                           .offset = (uint32_t)*at,
                           .size = 8};
        if (!add_reloc(p, &r))
            return false;
    } else if (p->tok.kind == PTX_INT || p->tok.kind == PTX_F32 || p->tok.kind == PTX_F64) {
        value = p->tok.value;
        if (p->tok.kind == PTX_F64 && d->num == STITCH__F32) {
            double x;
            memcpy(&x, &value, 8);
            float f = (float)(negative ? -x : x);
            uint32_t bits;
            memcpy(&bits, &f, 4);
            value = bits;
        } else if (negative) {
            value = p->tok.kind == PTX_INT ? 0 - value
                                           : value ^ (p->tok.kind == PTX_F32 ? UINT64_C(1) << 31 : UINT64_C(1) << 63);
        }
        ptx_next(p);
        memcpy(v->init + *at, &value, d->elem_size > 8 ? 8 : d->elem_size);
    } else {
        return ptx_fail(p, "an initial value is expected");
    }
    *at += d->elem_size;
    return true;
}

static bool init_list(ptx_parser *p, stitch__sim_var_data *v, uint32_t variable, const ptx_decl *d, uint64_t *at,
                      unsigned depth)
{
    if (!ptx_is(p, '{'))
        return init_element(p, v, variable, d, at);
    if (depth > 8)
        return ptx_fail(p, "initialiser is nested too deeply");
    ptx_next(p);
    while (!ptx_is(p, '}')) {
        if (!init_list(p, v, variable, d, at, depth + 1))
            return false;
        if (!ptx_is(p, '}') && !ptx_expect(p, ','))
            return false;
    }
    ptx_next(p);
    return true;
}

static bool parse_variable(ptx_parser *p, bool constant, bool external)
{
    stitch__sim_module *m = p->m;
    do {
        ptx_decl d;
        if (!ptx_parse_decl(p, &d))
            return false;
        if (d.bank > STITCH__BANK_64)
            return ptx_fail(p, "a variable cannot have this type");
        if (d.size > UINT64_C(1) << 32)
            return ptx_fail(p, "variable %.*s is larger than 4 GiB", (int)d.name.len, d.name.text);
        if (stitch__grow(m->ctx, &m->variables, &m->variable_cap, m->variable_count + 1, sizeof(*m->variables)))
            return ptx_nomem(p);
        uint32_t index = (uint32_t)m->variable_count;
        stitch__sim_var_data *v = &m->variables[index];
        memset(v, 0, sizeof(*v));
        char *name = stitch__arena_strndup(&m->arena, d.name.text, d.name.len);
        ptx_symbol *s = ptx_define(p, d.name, PTX_SYM_VAR);
        if (!name || !s)
            return ptx_nomem(p);
        s->index = index;
        s->size = d.size;
        if (ptx_accept(p, '=')) {
            if (d.open_array)
                return ptx_fail(p, "an initialised array needs a size");
            if (d.size > (64u << 20))
                return ptx_fail(p, "an initialiser of more than 64 MiB is not supported");
            v->init_len = d.size;
            v->init = stitch__arena_alloc(&m->arena, d.size ? d.size : 1);
            if (!v->init)
                return ptx_nomem(p);
            uint64_t at = 0;
            if (!init_list(p, v, index, &d, &at, 0))
                return false;
        } else if (external) {
            return ptx_fail(p, "variable %s is defined elsewhere: linking is not supported", name);
        }
        v->info = (stitch__sim_variable){
            .name = name, .size = d.size ? d.size : 1, .align = d.align, .constant = constant, .initialised = true};
        m->variable_count++;
    } while (ptx_accept(p, ','));
    return ptx_expect(p, ';');
}

/* ---- function headers -------------------------------------------------------------------------------------------- */

static bool parse_params(ptx_parser *p, stitch__sim_function *f, stitch__sim_param **list, uint32_t *count,
                         uint32_t *offset)
{
    size_t cap = *count;
    while (!ptx_is(p, ')')) {
        ptx_decl d;
        bool reg = p->tok.kind == PTX_DOT && ptx_word(&p->tok, "reg");
        if (!reg && !(p->tok.kind == PTX_DOT && ptx_word(&p->tok, "param")))
            return ptx_fail(p, ".param expected");
        ptx_next(p);
        if (!ptx_parse_decl(p, &d))
            return false;
        if (d.size > STITCH__SIM_PARAM_MAX)
            return ptx_fail(p, "parameter %.*s is too large", (int)d.name.len, d.name.text);
        if (stitch__grow(p->m->ctx, list, &cap, (size_t)*count + 1, sizeof(**list)))
            return ptx_nomem(p);
        *offset = (*offset + d.align - 1) / d.align * d.align;
        ptx_symbol *s = ptx_define(p, d.name, f->entry ? PTX_SYM_PARAM : PTX_SYM_SCRATCH);
        char *name = stitch__arena_strndup(&p->m->arena, d.name.text, d.name.len);
        if (!s || !name)
            return ptx_nomem(p);
        s->index = *offset;
        s->size = d.size;
        (*list)[(*count)++] = (stitch__sim_param){name, *offset, (uint32_t)d.size, d.align, d.pointer};
        *offset += (uint32_t)d.size;
        if (*offset > STITCH__SIM_PARAM_MAX)
            return ptx_fail(p, "the parameters take more than %u bytes", STITCH__SIM_PARAM_MAX);
        if (reg && !f->info.refusal)
            f->info.refusal = "functions with register parameters are not supported";
        if (!ptx_is(p, ')') && !ptx_expect(p, ','))
            return false;
    }
    return ptx_expect(p, ')');
}

static bool three(ptx_parser *p, uint32_t out[3])
{
    out[0] = out[1] = out[2] = 1;
    for (int i = 0; i < 3; i++) {
        int64_t n;
        if (!ptx_constant_int(p, &n))
            return false;
        out[i] = n < 0 ? 0 : n > INT32_MAX ? INT32_MAX : (uint32_t)n;
        if (!ptx_accept(p, ','))
            break;
    }
    return true;
}

static bool parse_tuning(ptx_parser *p, stitch__sim_function *f)
{
    stitch__sim_function_info *i = &f->info;
    i->max_threads = 1024;
    while (p->tok.kind == PTX_DOT) {
        uint32_t v[3];
        ptx_token word = p->tok;
        ptx_next(p);
        if (ptx_word(&word, "noreturn") || ptx_word(&word, "explicitcluster") || ptx_word(&word, "blocksareclusters"))
            continue;
        if (ptx_word(&word, "pragma")) {
            ptx_next(p);
            if (!ptx_expect(p, ';'))
                return false;
            continue;
        }
        if (ptx_word(&word, "unified") || ptx_word(&word, "attribute")) {
            while (p->tok.kind != PTX_EOF && !ptx_is(p, ')'))
                ptx_next(p);
            ptx_next(p);
            continue;
        }
        if (!three(p, v))
            return false;
        uint64_t product = (uint64_t)v[0] * v[1] * v[2];
        if (ptx_word(&word, "maxntid"))
            i->max_threads = product > 1024 ? 1024 : (uint32_t)product;
        else if (ptx_word(&word, "reqntid")) {
            i->max_threads = product > 1024 ? 1024 : (uint32_t)product;
            memcpy(i->required_block, v, sizeof(v));
        } else if (ptx_word(&word, "reqnctapercluster"))
            memcpy(i->required_cluster, v, sizeof(v));
        else if (ptx_word(&word, "maxclusterrank"))
            i->max_cluster = v[0];
        else if (ptx_word(&word, "minnctapersm"))
            i->min_blocks = v[0];
        else if (!ptx_word(&word, "maxnreg") && !ptx_word(&word, "maxnctapersm") && !ptx_word(&word, "abi_preserve") &&
                 !ptx_word(&word, "abi_preserve_control"))
            return ptx_fail(p, "unknown function directive .%.*s", (int)(word.len > 60 ? 60 : word.len), word.text);
    }
    return true;
}

static stitch__sim_function *function_new(ptx_parser *p, bool entry)
{
    stitch__sim_module *m = p->m;
    if (stitch__grow(m->ctx, &m->functions, &m->function_cap, m->function_count + 1, sizeof(*m->functions)))
        return NULL;
    stitch__sim_function *f = stitch__calloc(m->ctx, 1, sizeof(*f));
    if (!f)
        return NULL;
    f->module = m;
    f->entry = entry;
    f->index = (uint32_t)m->function_count;
    f->shared_min = f->global_min = 16;
    m->functions[m->function_count++] = f;
    return f;
}

static bool parse_function(ptx_parser *p, bool entry)
{
    stitch__sim_module *m = p->m;
    uint32_t offset = 0;
    size_t symbols = p->symbol_count;
    uint32_t scope = p->scope;
    stitch__sim_function *f = function_new(p, entry);
    if (!f)
        return ptx_nomem(p);
    if (!ptx_scope_enter(p))
        return false;
    if (!entry && ptx_accept(p, '(') && !parse_params(p, f, &f->params, &f->info.param_count, &offset))
        return false;
    f->return_count = f->info.param_count;
    while (p->tok.kind == PTX_DOT && ptx_word(&p->tok, "attribute")) {
        while (p->tok.kind != PTX_EOF && !ptx_is(p, ')'))
            ptx_next(p);
        ptx_next(p);
    }
    if (p->tok.kind != PTX_ID)
        return ptx_fail(p, "a function name is expected");
    ptx_token name = p->tok;
    f->name = stitch__arena_strndup(&m->arena, name.text, name.len);
    if (!f->name)
        return ptx_nomem(p);
    f->info.name = f->name;
    ptx_next(p);
    if (ptx_accept(p, '(') && !parse_params(p, f, &f->params, &f->info.param_count, &offset))
        return false;
    f->param_area = (offset + 15) & ~15u;
    f->info.param_bytes = offset;
    f->info.params = f->params;
    if (!parse_tuning(p, f))
        return false;
    if (!ptx_is(p, ';')) {
        f->has_body = true;
        p->f = f;
        /* The function may call itself: its name must be known inside, and stay known behind. */
        uint32_t inner = p->scope;
        ptx_symbol *self = ptx_define(p, name, PTX_SYM_FUNC);
        if (!self)
            return false;
        self->index = f->index;
        p->place = 0;
        if (!ptx_parse_body(p))
            return false;
        p->f = NULL;
        p->scope = inner;
    } else {
        ptx_next(p);
    }
    ptx_scope_leave(p, symbols, scope);
    uint32_t unused;
    ptx_symbol *s = ptx_lookup(p, name, &unused);
    if (s && s->kind == PTX_SYM_FUNC && s->len == name.len) {
        if (f->has_body)
            s->index = f->index;
        else /* a repeated declaration */
            return true;
    } else {
        s = ptx_define(p, name, PTX_SYM_FUNC);
        if (!s)
            return false;
        s->index = f->index;
    }
    if (entry && f->has_body) {
        if (stitch__grow(m->ctx, &m->entries, &m->entry_cap, m->entry_count + 1, sizeof(*m->entries)))
            return ptx_nomem(p);
        m->entries[m->entry_count++] = f;
    }
    return true;
}

static bool parse_shared(ptx_parser *p, bool external)
{
    stitch__sim_module *m = p->m;
    do {
        ptx_decl d;
        if (!ptx_parse_decl(p, &d))
            return false;
        stitch__shared_var *v = ptx_shared_declare(p, &d, external);
        if (!v || stitch__grow(m->ctx, &m->shared, &m->shared_cap, m->shared_count + 1, sizeof(*m->shared)))
            return ptx_nomem(p);
        m->shared[m->shared_count++] = v;
    } while (ptx_accept(p, ','));
    return ptx_expect(p, ';');
}

static bool parse_target(ptx_parser *p)
{
    for (;;) {
        ptx_next(p);
        if (p->tok.kind != PTX_ID)
            return ptx_fail(p, "a target is expected");
        if (p->tok.len > 3 && memcmp(p->tok.text, "sm_", 3) == 0) {
            p->m->arch = 0;
            for (uint32_t i = 3; i < p->tok.len && p->tok.text[i] >= '0' && p->tok.text[i] <= '9' && i < 8; i++)
                p->m->arch = p->m->arch * 10 + (uint32_t)(p->tok.text[i] - '0');
        }
        ptx_next(p);
        if (!ptx_is(p, ','))
            return true;
    }
}

static bool parse_top(ptx_parser *p)
{
    bool external = false;
    while (p->tok.kind != PTX_EOF) {
        if (ptx_accept(p, ';'))
            continue;
        if (p->tok.kind != PTX_DOT)
            return ptx_fail(p, "a directive is expected, found '%.*s'", (int)(p->tok.len > 60 ? 60 : p->tok.len),
                            p->tok.text);
        ptx_token word = p->tok;
        if (ptx_word(&word, "loc")) {
            if (!ptx_parse_loc(p))
                return false;
            continue;
        }
        if (ptx_word(&word, "file")) {
            if (!ptx_parse_file(p))
                return false;
            continue;
        }
        if (ptx_word(&word, "section")) {
            if (!ptx_skip_section(p))
                return false;
            continue;
        }
        if (ptx_word(&word, "target")) {
            if (!parse_target(p))
                return false;
            continue;
        }
        ptx_next(p);
        bool ok = true, keep = false;
        if (ptx_word(&word, "version")) {
            double v = 0;
            memcpy(&v, &p->tok.value, 8);
            p->m->version = p->tok.kind == PTX_F64 ? (uint32_t)(v * 10 + 0.5) : (uint32_t)p->tok.value * 10;
            ptx_next(p);
        } else if (ptx_word(&word, "address_size")) {
            int64_t n;
            ok = ptx_constant_int(p, &n) && (n == 64 || ptx_fail(p, "only 64-bit addresses are supported"));
        } else if (ptx_word(&word, "visible") || ptx_word(&word, "weak") || ptx_word(&word, "common")) {
            keep = true;
        } else if (ptx_word(&word, "extern")) {
            external = keep = true;
        } else if (ptx_word(&word, "func")) {
            ok = parse_function(p, false);
        } else if (ptx_word(&word, "entry")) {
            ok = parse_function(p, true);
        } else if (ptx_word(&word, "global")) {
            ok = parse_variable(p, false, external);
        } else if (ptx_word(&word, "const")) {
            ok = parse_variable(p, true, external);
        } else if (ptx_word(&word, "shared")) {
            ok = parse_shared(p, external);
        } else if (ptx_word(&word, "pragma")) {
            ptx_next(p);
            ok = ptx_expect(p, ';');
        } else {
            return ptx_fail(p, "directive .%.*s is not supported", (int)(word.len > 60 ? 60 : word.len), word.text);
        }
        if (!ok)
            return false;
        if (!keep)
            external = false;
    }
    return !p->failed;
}

/* Names of files and inlined functions come behind the code that refers to them. */
static void finish_places(ptx_parser *p)
{
    stitch__sim_module *m = p->m;
    for (size_t i = 1; i < m->place_count; i++) {
        const ptx_loc *l = &p->locs[i];
        stitch__sim_place *place = &m->places[i];
        if (l->line == 0) {
            place->line = place->column = 0;
            continue;
        }
        for (size_t k = 0; k < p->file_count; k++)
            if (p->files[k].number == l->file)
                place->file = p->files[k].name;
        if (!place->file)
            place->file = "?";
        if (l->place_inlined)
            place->inlined_at = &m->places[l->place_inlined - 1];
        for (size_t k = 0; l->function_len && k < p->string_count; k++)
            if (p->strings[k].len == l->function_len &&
                memcmp(p->strings[k].label, l->function_label, l->function_len) == 0)
                place->function = p->strings[k].text;
    }
    if (m->place_count)
        m->places[0].line = m->places[0].column = 0;
}

static void parser_free(ptx_parser *p)
{
    if (!p)
        return;
    stitch_free(p->symbols);
    stitch_free(p->scope_parent);
    stitch_free(p->code);
    stitch_free(p->fixups);
    stitch_free(p->labels);
    stitch_free(p->tables);
    stitch_free(p->const_index);
    stitch_free(p->locs);
    stitch_free(p->loc_buckets);
    stitch_free(p->loc_next);
    stitch_free(p->files);
    stitch_free(p->strings);
    stitch_free(p);
}

int stitch__sim_module_load(stitch__sim_module **out, const stitch_context *ctx, const char *ptx, size_t len,
                            const char *name, stitch_error **err)
{
    int rc = STITCH_E_NOMEM;
    *out = NULL;
    stitch__sim_module *m = stitch__calloc(ctx, 1, sizeof(*m));
    ptx_parser *p = stitch__calloc(ctx, 1, sizeof(*p));
    if (!m || !p)
        goto out;
    m->ctx = m->arena.ctx = ctx;
    m->name = stitch__strdup(ctx, name ? name : "");
    p->m = m;
    p->text = p->pos = ptx;
    p->end = ptx + len;
    p->line = 1;
    p->what = m->name;
    p->scope_count = 1;
    memset(p->buckets, 0xff, sizeof(p->buckets));
    if (!m->name || stitch__grow(ctx, &p->scope_parent, &p->scope_cap, 1, sizeof(uint32_t)) ||
        stitch__grow(ctx, &m->places, &m->place_cap, 1, sizeof(*m->places)) ||
        stitch__grow(ctx, &p->locs, &p->loc_cap, 1, sizeof(*p->locs)) ||
        stitch__grow(ctx, &p->loc_next, &p->loc_next_cap, 1, sizeof(*p->loc_next)))
        goto out;
    p->scope_parent[0] = 0;
    m->places[0] = (stitch__sim_place){0}; /* place 0: none */
    p->locs[0] = (ptx_loc){0};
    p->loc_next[0] = -1;
    m->place_count = 1;
    if (len > (256u << 20)) {
        rc = stitch__err(ctx, err, STITCH_E_LIMIT, "the PTX text has %zu bytes, more than 256 MiB", len);
        goto out;
    }
    ptx_next(p);
    if (!parse_top(p)) {
        if (!p->nomem)
            rc = stitch__err(ctx, err, STITCH_E_COMPILE, "%s", p->error);
        goto out;
    }
    finish_places(p);
    rc = stitch__sim_module_link(m);
    if (rc == STITCH_OK) {
        *out = m;
        m = NULL;
    }
out:
    if (rc == STITCH_E_NOMEM)
        stitch__err_nomem(ctx, err);
    if (rc)
        stitch__err_domain(err, STITCH_DOMAIN_SIM);
    parser_free(p);
    stitch__sim_module_free(m);
    return rc;
}

void stitch__sim_module_free(stitch__sim_module *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->function_count; i++) {
        stitch__sim_function *f = m->functions[i];
        stitch_free(f->params);
        stitch_free(f->code);
        stitch_free(f->consts);
        stitch_free(f->const_block);
        stitch_free(f->ranges);
        stitch_free(f->shared);
        stitch_free(f->callees);
        stitch_free(f);
    }
    stitch_free(m->functions);
    stitch_free(m->entries);
    stitch_free(m->variables);
    stitch_free(m->shared);
    stitch_free(m->relocs);
    stitch_free(m->places);
    stitch_free(m->name);
    stitch__arena_free(&m->arena);
    stitch_free(m);
}

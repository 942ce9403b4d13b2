/* SPDX-License-Identifier: MIT
 *
 * Names and source places of the PTX front end.
 */
#include "sim/parse.h"

static uint32_t hash_name(const char *s, uint32_t len)
{
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)s[i]) * 16777619u;
    return h;
}

ptx_symbol *ptx_define(ptx_parser *p, ptx_token name, ptx_symbol_kind kind)
{
    if (stitch__grow(p->m->ctx, &p->symbols, &p->symbol_cap, p->symbol_count + 1, sizeof(*p->symbols))) {
        ptx_nomem(p);
        return NULL;
    }
    ptx_symbol *s = &p->symbols[p->symbol_count];
    memset(s, 0, sizeof(*s));
    s->name = name.text;
    s->len = name.len;
    s->hash = hash_name(name.text, name.len);
    s->kind = kind;
    s->scope = p->scope;
    s->next = p->buckets[s->hash & 4095];
    p->buckets[s->hash & 4095] = (int32_t)p->symbol_count++;
    return s;
}

static ptx_symbol *find(ptx_parser *p, const char *text, uint32_t len, bool ranged)
{
    uint32_t h = hash_name(text, len);
    for (int32_t i = p->buckets[h & 4095]; i >= 0; i = p->symbols[i].next) {
        ptx_symbol *s = &p->symbols[i];
        if (s->hash == h && s->len == len && s->ranged == ranged && memcmp(s->name, text, len) == 0)
            return s;
    }
    return NULL;
}

ptx_symbol *ptx_lookup(ptx_parser *p, ptx_token name, uint32_t *number)
{
    *number = 0;
    uint32_t stem = name.len;
    while (stem > 0 && name.text[stem - 1] >= '0' && name.text[stem - 1] <= '9')
        stem--;
    if (stem < name.len && stem > 0 && name.len - stem < 9) {
        ptx_symbol *s = find(p, name.text, stem, true);
        if (s) {
            uint32_t n = 0;
            for (uint32_t i = stem; i < name.len; i++)
                n = n * 10 + (uint32_t)(name.text[i] - '0');
            if (n < s->count) {
                *number = n;
                return s;
            }
        }
    }
    return find(p, name.text, name.len, false);
}

bool ptx_scope_enter(ptx_parser *p)
{
    if (stitch__grow(p->m->ctx, &p->scope_parent, &p->scope_cap, p->scope_count + 1, sizeof(uint32_t)))
        return ptx_nomem(p);
    p->scope_parent[p->scope_count] = p->scope;
    p->scope = p->scope_count++;
    return true;
}

void ptx_scope_leave(ptx_parser *p, size_t symbols, uint32_t scope)
{
    while (p->symbol_count > symbols) {
        ptx_symbol *s = &p->symbols[--p->symbol_count];
        p->buckets[s->hash & 4095] = s->next;
    }
    p->scope = scope;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static bool number_token(ptx_parser *p, uint32_t *out)
{
    if (p->tok.kind != PTX_INT || p->tok.value > UINT32_MAX)
        return ptx_fail(p, "a number is expected in .loc or .file");
    *out = (uint32_t)p->tok.value;
    ptx_next(p);
    return true;
}

static uint32_t loc_hash(uint32_t file, uint32_t line, uint32_t column)
{
    return (file * 2654435761u ^ line * 40503u ^ column * 97u) & 4095;
}

static bool place_add(ptx_parser *p, const ptx_loc *loc, uint32_t ptx_line, uint32_t *out)
{
    stitch__sim_module *m = p->m;
    if (!p->loc_buckets) {
        p->loc_buckets = stitch__alloc(m->ctx, 4096 * sizeof(int32_t));
        if (!p->loc_buckets)
            return ptx_nomem(p);
        memset(p->loc_buckets, 0xff, 4096 * sizeof(int32_t));
    }
    if (stitch__grow(m->ctx, &m->places, &m->place_cap, m->place_count + 1, sizeof(*m->places)) ||
        stitch__grow(m->ctx, &p->locs, &p->loc_cap, m->place_count + 1, sizeof(*p->locs)) ||
        stitch__grow(m->ctx, &p->loc_next, &p->loc_next_cap, m->place_count + 1, sizeof(*p->loc_next)))
        return ptx_nomem(p);
    uint32_t h = loc_hash(loc->file, loc->line, loc->column);
    size_t i = m->place_count++;
    m->places[i] = (stitch__sim_place){.line = loc->line, .column = loc->column, .ptx_line = ptx_line};
    p->locs[i] = *loc;
    p->loc_next[i] = p->loc_buckets[h];
    p->loc_buckets[h] = (int32_t)i;
    *out = (uint32_t)i;
    return true;
}

/* Newest place at a position; `exact` NULL matches any. */
static int32_t place_find(ptx_parser *p, const ptx_loc *loc, bool exact)
{
    if (!p->loc_buckets)
        return -1;
    for (int32_t i = p->loc_buckets[loc_hash(loc->file, loc->line, loc->column)]; i >= 0; i = p->loc_next[i]) {
        const ptx_loc *l = &p->locs[i];
        if (l->file != loc->file || l->line != loc->line || l->column != loc->column)
            continue;
        if (!exact || (l->place_inlined == loc->place_inlined && l->function_len == loc->function_len &&
                       (l->function_len == 0 || memcmp(l->function_label, loc->function_label, l->function_len) == 0)))
            return i;
    }
    return -1;
}

bool ptx_parse_loc(ptx_parser *p)
{
    uint32_t ptx_line = p->tok.line;
    ptx_loc loc = {0};
    ptx_next(p);
    if (!number_token(p, &loc.file) || !number_token(p, &loc.line) || !number_token(p, &loc.column))
        return false;
    while (ptx_is(p, ',')) {
        ptx_next(p);
        if (ptx_word(&p->tok, "function_name")) {
            ptx_next(p);
            if (p->tok.kind != PTX_ID)
                return ptx_fail(p, "a label is expected behind function_name");
            loc.function_label = p->tok.text;
            loc.function_len = p->tok.len;
            ptx_next(p);
            if (ptx_accept(p, '+')) {
                uint32_t unused;
                if (!number_token(p, &unused))
                    return false;
            }
        } else if (ptx_word(&p->tok, "inlined_at")) {
            ptx_loc at = {0};
            ptx_next(p);
            if (!number_token(p, &at.file) || !number_token(p, &at.line) || !number_token(p, &at.column))
                return false;
            int32_t found = place_find(p, &at, false);
            uint32_t index = (uint32_t)found;
            if (found < 0 && !place_add(p, &at, ptx_line, &index))
                return false;
            loc.place_inlined = index + 1;
        } else {
            return ptx_fail(p, "function_name or inlined_at expected");
        }
    }
    if (loc.line == 0) /* "no line": keep the place before it */
        return true;
    int32_t found = place_find(p, &loc, true);
    uint32_t index = (uint32_t)found;
    if (found < 0 && !place_add(p, &loc, ptx_line, &index))
        return false;
    p->place = index;
    return true;
}

bool ptx_place_here(ptx_parser *p, uint32_t *place)
{
    if (p->place) {
        *place = p->place;
        return true;
    }
    ptx_loc none = {.file = 0, .line = 0, .column = p->instr_line};
    int32_t found = place_find(p, &none, true);
    if (found >= 0) {
        *place = (uint32_t)found;
        return true;
    }
    return place_add(p, &none, p->instr_line, place);
}

bool ptx_parse_file(ptx_parser *p)
{
    ptx_next(p);
    uint32_t number = 0;
    if (!number_token(p, &number))
        return false;
    if (p->tok.kind != PTX_STR)
        return ptx_fail(p, "a file name is expected");
    if (stitch__grow(p->m->ctx, &p->files, &p->file_cap, p->file_count + 1, sizeof(*p->files)))
        return ptx_nomem(p);
    p->files[p->file_count].number = number;
    p->files[p->file_count].name = stitch__arena_strndup(&p->m->arena, p->tok.text, p->tok.len);
    if (!p->files[p->file_count++].name)
        return ptx_nomem(p);
    ptx_next(p);
    while (ptx_accept(p, ',')) { /* time stamp and size */
        uint32_t unused;
        if (!number_token(p, &unused))
            return false;
    }
    return true;
}

/* One label of .debug_str: its bytes up to the NUL. */
static bool section_string(ptx_parser *p, ptx_token label)
{
    stitch__buf b;
    stitch__buf_init(&b, p->m->ctx);
    bool ended = false;
    while (p->tok.kind == PTX_DOT && ptx_word(&p->tok, "b8")) {
        ptx_next(p);
        do {
            if (p->tok.kind != PTX_INT) {
                stitch__buf_free(&b);
                return ptx_fail(p, "a byte is expected");
            }
            if (p->tok.value == 0)
                ended = true;
            else if (!ended)
                stitch__buf_putc(&b, (char)p->tok.value);
            ptx_next(p);
        } while (ptx_accept(p, ','));
    }
    char *text = b.failed ? NULL : stitch__arena_strndup(&p->m->arena, b.data ? b.data : "", b.len);
    stitch__buf_free(&b);
    if (!text || stitch__grow(p->m->ctx, &p->strings, &p->string_cap, p->string_count + 1, sizeof(*p->strings)))
        return ptx_nomem(p);
    p->strings[p->string_count].label = label.text;
    p->strings[p->string_count].len = label.len;
    p->strings[p->string_count++].text = text;
    return true;
}

bool ptx_skip_section(ptx_parser *p)
{
    ptx_next(p);
    bool strings = ptx_word(&p->tok, "debug_str");
    ptx_next(p);
    if (!ptx_expect(p, '{'))
        return false;
    unsigned depth = 1;
    while (depth && p->tok.kind != PTX_EOF) {
        if (strings && p->tok.kind == PTX_ID) {
            ptx_token label = p->tok;
            ptx_next(p);
            if (ptx_accept(p, ':') && !section_string(p, label))
                return false;
            continue;
        }
        if (ptx_is(p, '{'))
            depth++;
        else if (ptx_is(p, '}'))
            depth--;
        ptx_next(p);
    }
    return depth == 0 || ptx_fail(p, "a section does not end");
}

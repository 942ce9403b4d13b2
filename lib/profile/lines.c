/* SPDX-License-Identifier: MIT
 *
 * Reads the line table of a cubin: DWARF 2 to 4, with NVIDIA's extended opcode for inlined functions. Each sequence of
 * the table belongs to one code section, which a relocation of its start address names.
 *
 * The bytes may be damaged or hostile: a cursor checks every read, and what has been read before the damage stays.
 */
#include "profile/lines.h"

#include <stdlib.h>

#include "cuda/elf.h"

enum {
    LNS_COPY = 1,
    LNS_ADVANCE_PC,
    LNS_ADVANCE_LINE,
    LNS_SET_FILE,
    LNS_CONST_ADD_PC = 8,
    LNS_FIXED_ADVANCE_PC = 9,
    LNE_END_SEQUENCE = 1,
    LNE_SET_ADDRESS = 2,
    LNE_INLINED_CALL = 0x90, /* NVIDIA's: row of the call in this sequence (from 1; 0: none), name of the function */
    MAX_ROWS = 1 << 22,
    MAX_FILES = 1 << 12,
    MAX_FILE_ENTRIES = 1 << 16, /* of all units */
    MAX_STEPS = 1 << 26,        /* through relocations, where they are out of order */
    MAX_INLINED = 64,
};

static const char compiled_file[] = "program.cu"; /* what compile.c calls its source */

typedef struct function {
    const char *name;
    uint64_t value;
    uint32_t section, symbol;
    bool entry;
} function;

typedef struct row {
    uint64_t address;
    uint32_t section;
    uint32_t line, file;
    uint32_t call;  /* 1 + index into rows of where it was inlined; 0: it was not */
    uint32_t order; /* of equal addresses the highest counts */
    bool end;
} row;

struct stitch__lines {
    stitch__arena arena;
    function *functions;
    size_t function_count;
    const char **files; /* [0]: not known */
    size_t file_count, file_cap;
    uint32_t source; /* index into files */
    row *rows;       /* in the order of the table: calls are counted in it */
    size_t row_count, row_cap;
    uint32_t *sorted; /* rows by section, address, order */
};

/* ---- reading ---- */

typedef struct cursor {
    const unsigned char *at, *end;
    bool bad;
} cursor;

static uint64_t take(cursor *c, size_t bytes)
{
    uint64_t v = 0;
    if (c->bad || (size_t)(c->end - c->at) < bytes) {
        c->bad = true;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)c->at[i] << (8 * i);
    c->at += bytes;
    return v;
}

static uint64_t take_leb(cursor *c, bool is_signed)
{
    uint64_t v = 0;
    unsigned shift = 0, byte;
    do {
        byte = (unsigned)take(c, 1);
        if (shift < 64)
            v |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (!c->bad && (byte & 0x80));
    if (is_signed && shift < 64 && (byte & 0x40))
        v |= ~UINT64_C(0) << shift;
    return c->bad ? 0 : v;
}

static const char *take_string(cursor *c)
{
    const char *s = (const char *)c->at;
    const unsigned char *nul = c->bad ? NULL : memchr(c->at, 0, (size_t)(c->end - c->at));
    if (!nul) {
        c->bad = true;
        return "";
    }
    c->at = nul + 1;
    return s;
}

typedef struct table {
    stitch__lines *out;
    const stitch__elf *e;
    stitch__section lines, symtab, relocations;
    bool relocated;
    size_t relocation_at; /* they are looked up in ascending order */
    uint32_t *files;      /* of the unit: its numbers -> out->files */
    size_t file_count, file_cap, file_entries, steps;
} table;

typedef struct state {
    uint64_t address;
    uint32_t section, file, line, call;
    size_t first; /* row of the sequence */
} state;

static int add_file(stitch__lines *l, const char *name, uint32_t *index)
{
    for (*index = 0; *index < l->file_count; ++*index) {
        if (strcmp(l->files[*index], name) == 0)
            return STITCH_OK;
    }
    *index = 0;
    if (l->file_count >= MAX_FILES)
        return STITCH_OK;
    const char *copy = stitch__arena_strdup(&l->arena, name);
    if (!copy || stitch__grow(l->arena.ctx, &l->files, &l->file_cap, l->file_count + 1, sizeof(*l->files)))
        return STITCH_E_NOMEM;
    *index = (uint32_t)l->file_count;
    l->files[l->file_count++] = copy;
    return STITCH_OK;
}

static int read_files(table *t, cursor *c)
{
    stitch__lines *l = t->out;
    t->file_count = 0;
    while (*take_string(c)) /* folders */
        ;
    for (;;) {
        const char *name = take_string(c), *slash = strrchr(name, '/');
        if (!*name)
            return STITCH_OK;
        for (int i = 0; i < 3; i++) /* folder, time, size */
            take_leb(c, false);
        if (t->file_count >= MAX_FILES || ++t->file_entries > MAX_FILE_ENTRIES)
            continue;
        if (stitch__grow(l->arena.ctx, &t->files, &t->file_cap, t->file_count + 1, sizeof(*t->files)) ||
            add_file(l, stitch__source_path(slash ? slash + 1 : name), &t->files[t->file_count]))
            return STITCH_E_NOMEM;
        if (!l->source || strcmp(l->files[t->files[t->file_count]], compiled_file) == 0)
            l->source = t->files[t->file_count];
        t->file_count++;
    }
}

/* The code section and the address that the eight bytes at `at` of the table stand for. */
static void relocate(table *t, uint64_t at, uint64_t in_place, state *s)
{
    bool rela = t->relocations.type == STITCH__ELF_RELA;
    size_t bytes = rela ? 24 : 16, count = t->relocated ? (size_t)(t->relocations.size / bytes) : 0;
    const unsigned char *base = t->e->data + t->relocations.offset;
    s->section = 0;
    s->address = in_place;
    for (size_t n = 0; n < count && t->steps < MAX_STEPS; n++, t->steps++) {
        size_t i = (t->relocation_at + n) % count;
        const unsigned char *r = base + i * bytes;
        uint64_t symbol = stitch__u64(r + 8) >> 32;
        if (stitch__u64(r) != at)
            continue;
        t->relocation_at = i;
        if (symbol < t->symtab.size / 24) {
            stitch__symbol of = stitch__elf_symbol(t->e, &t->symtab, (size_t)symbol);
            s->section = of.section;
            s->address = of.value + (rela ? stitch__u64(r + 16) : in_place);
        }
        return;
    }
}

static int add_row(table *t, const state *s, bool end)
{
    stitch__lines *l = t->out;
    if (!s->section || l->row_count >= MAX_ROWS)
        return STITCH_OK;
    if (stitch__grow(l->arena.ctx, &l->rows, &l->row_cap, l->row_count + 1, sizeof(*l->rows)))
        return STITCH_E_NOMEM;
    uint32_t file = s->file - 1 < t->file_count ? t->files[s->file - 1] : 0;
    uint32_t call = s->call && s->call <= l->row_count - s->first ? (uint32_t)s->first + s->call : 0;
    /* Where one sequence ends, another may begin. */
    uint32_t order = end ? 0 : (uint32_t)l->row_count + 1;
    l->rows[l->row_count++] = (row){s->address, s->section, s->line, file, call, order, end};
    return STITCH_OK;
}

static state fresh(const table *t)
{
    return (state){.file = 1, .line = 1, .first = t->out->row_count};
}

static int extended(table *t, cursor *c, state *s)
{
    uint64_t length = take_leb(c, false);
    int rc = STITCH_OK;
    if (c->bad || length == 0 || length > (uint64_t)(c->end - c->at)) {
        c->bad = true;
        return STITCH_OK;
    }
    cursor inner = {c->at, c->at + length, false};
    c->at = inner.end;
    switch (take(&inner, 1)) {
    case LNE_END_SEQUENCE:
        rc = add_row(t, s, true);
        *s = fresh(t);
        break;
    case LNE_SET_ADDRESS: {
        uint64_t at = (uint64_t)(inner.at - (t->e->data + t->lines.offset)), address = take(&inner, 8);
        if (!inner.bad)
            relocate(t, at, address, s);
        break;
    }
    case LNE_INLINED_CALL: {
        uint64_t call = take_leb(&inner, false);
        s->call = call < UINT32_MAX ? (uint32_t)call : 0;
        break;
    }
    default: break;
    }
    return rc;
}

typedef struct header {
    unsigned least, line_range, opcode_base;
    int line_base;
    const unsigned char *lengths; /* of the standard opcodes, [0] of the first */
} header;

static int run(table *t, cursor *c, const header *h)
{
    state s = fresh(t);
    int rc = STITCH_OK;
    while (rc == STITCH_OK && !c->bad && c->at < c->end) {
        unsigned op = (unsigned)take(c, 1);
        if (op >= h->opcode_base) {
            unsigned steps = op - h->opcode_base;
            s.address += (uint64_t)(steps / h->line_range) * h->least;
            s.line += (uint32_t)(h->line_base + (int)(steps % h->line_range));
            rc = add_row(t, &s, false);
            continue;
        }
        switch (op) {
        case 0: rc = extended(t, c, &s); break;
        case LNS_COPY: rc = add_row(t, &s, false); break;
        case LNS_ADVANCE_PC: s.address += take_leb(c, false) * h->least; break;
        case LNS_ADVANCE_LINE: s.line += (uint32_t)take_leb(c, true); break;
        case LNS_SET_FILE: s.file = (uint32_t)take_leb(c, false); break;
        case LNS_CONST_ADD_PC: s.address += (uint64_t)((255 - h->opcode_base) / h->line_range) * h->least; break;
        case LNS_FIXED_ADVANCE_PC: s.address += take(c, 2); break;
        default:
            for (unsigned i = h->lengths[op - 1]; i > 0 && !c->bad; i--)
                take_leb(c, false);
        }
    }
    return rc;
}

/* One unit; the cursor is behind it afterwards. */
static int read_unit(table *t, cursor *c)
{
    header h = {0};
    uint64_t length = take(c, 4);
    if (c->bad || length > (uint64_t)(c->end - c->at)) {
        c->bad = true;
        return STITCH_OK;
    }
    cursor unit = {c->at, c->at + length, false};
    c->at = unit.end;
    unsigned version = (unsigned)take(&unit, 2);
    uint64_t header_length = take(&unit, 4);
    if (unit.bad || version < 2 || version > 4 || header_length > (uint64_t)(unit.end - unit.at))
        return STITCH_OK;
    cursor head = {unit.at, unit.at + header_length, false};
    unit.at = head.end;
    h.least = (unsigned)take(&head, 1);
    take(&head, version >= 4 ? 2 : 1); /* operations of an instruction; whether a row is a statement by default */
    h.line_base = (int8_t)take(&head, 1);
    h.line_range = (unsigned)take(&head, 1);
    h.opcode_base = (unsigned)take(&head, 1);
    h.lengths = head.at;
    for (unsigned i = 1; i < h.opcode_base; i++)
        take(&head, 1);
    if (head.bad || h.line_range == 0 || h.opcode_base == 0)
        return STITCH_OK;
    int rc = read_files(t, &head);
    return rc ? rc : run(t, &unit, &h);
}

static int read_table(stitch__lines *l, const stitch__elf *e, const stitch__section *names,
                      const stitch__section *symtab)
{
    table t = {.out = l, .e = e, .symtab = *symtab};
    uint32_t index = 0;
    int rc = STITCH_OK;
    for (uint32_t i = 1; i < e->shnum && !index; i++) {
        const char *name = stitch__elf_section(e, i, &t.lines) ? stitch__elf_string(e, names, t.lines.name) : NULL;
        if (name && strcmp(name, ".debug_line") == 0 && stitch__elf_holds(e, t.lines.offset, t.lines.size))
            index = i;
    }
    for (uint32_t i = 1; i < e->shnum && index && !t.relocated; i++) {
        if (stitch__elf_section(e, i, &t.relocations) && t.relocations.info == index)
            t.relocated = (t.relocations.type == STITCH__ELF_RELA || t.relocations.type == STITCH__ELF_REL) &&
                          stitch__elf_holds(e, t.relocations.offset, t.relocations.size);
    }
    if (!t.relocated)
        return STITCH_OK;
    cursor c = {e->data + t.lines.offset, e->data + t.lines.offset + t.lines.size, false};
    while (rc == STITCH_OK && !c.bad && c.at < c.end)
        rc = read_unit(&t, &c);
    stitch_free(t.files);
    return rc;
}

static int read_functions(stitch__lines *l, const stitch__elf *e, const stitch__section *symtab,
                          const stitch__section *strings)
{
    size_t count = (size_t)(symtab->size / 24), n = 0;
    bool there = stitch__elf_holds(e, strings->offset, strings->size);
    size_t size = there ? (size_t)strings->size : 0;
    /* Once for all names: any number of symbols can have the same long one. */
    char *text = stitch__arena_alloc(&l->arena, size + 1);
    for (size_t i = 0; i < count; i++)
        n += stitch__elf_symbol(e, symtab, i).type == STITCH__ELF_FUNC;
    l->functions = stitch__arena_array(&l->arena, n + 1, sizeof(*l->functions));
    if (!l->functions || !text)
        return STITCH_E_NOMEM;
    memcpy(text, e->data + (there ? strings->offset : 0), size);
    for (size_t i = 0; i < count; i++) {
        stitch__symbol s = stitch__elf_symbol(e, symtab, i);
        const char *name = s.type == STITCH__ELF_FUNC && s.name < size ? text + s.name : "";
        if (!*name || !s.section || s.section >= e->shnum)
            continue;
        l->functions[l->function_count++] =
            (function){name, s.value, s.section, (uint32_t)i, s.other & STITCH__ELF_ENTRY};
    }
    return STITCH_OK;
}

/* ---- order ---- */

static int compare_rows(const row *a, uint32_t section, uint64_t address, uint32_t order)
{
    if (a->section != section)
        return a->section < section ? -1 : 1;
    if (a->address != address)
        return a->address < address ? -1 : 1;
    return (a->order > order) - (a->order < order);
}

/* A merge sort: qsort() has no argument for the rows, and the order of the table is nearly the one that is wanted. */
static void merge_sort(const row *rows, uint32_t *list, uint32_t *spare, size_t count)
{
    if (count < 2)
        return;
    size_t half = count / 2, a = 0, b = half, n = 0;
    merge_sort(rows, list, spare, half);
    merge_sort(rows, list + half, spare, count - half);
    while (a < half && b < count) {
        const row *y = &rows[list[b]];
        spare[n++] = compare_rows(&rows[list[a]], y->section, y->address, y->order) <= 0 ? list[a++] : list[b++];
    }
    while (a < half)
        spare[n++] = list[a++];
    memcpy(list, spare, n * sizeof(*list)); /* the rest is in its place */
}

static int sort_rows(stitch__lines *l)
{
    uint32_t *spare = stitch__calloc(l->arena.ctx, l->row_count + 1, sizeof(*spare));
    l->sorted = stitch__arena_array(&l->arena, l->row_count + 1, sizeof(*l->sorted));
    if (!spare || !l->sorted) {
        stitch_free(spare);
        return STITCH_E_NOMEM;
    }
    for (size_t i = 0; i < l->row_count; i++)
        l->sorted[i] = (uint32_t)i;
    merge_sort(l->rows, l->sorted, spare, l->row_count);
    stitch_free(spare);
    return STITCH_OK;
}

/* ---- what others use ---- */

int stitch__lines_read(const stitch_context *ctx, const void *cubin, size_t size, stitch__lines **out, const char **why)
{
    stitch__section names, symtab, strings;
    stitch__elf e;
    uint32_t none;
    *out = NULL;
    *why = stitch__elf_open(&e, cubin, size, &names);
    if (!*why && !stitch__elf_symbols(&e, &symtab, &strings))
        *why = "it has no symbol table";
    if (*why)
        return STITCH_E_FORMAT;
    *why = "";
    stitch__lines *l = stitch__calloc(ctx, 1, sizeof(*l));
    if (!l)
        return STITCH_E_NOMEM;
    l->arena.ctx = ctx;
    int rc = add_file(l, "", &none);
    if (rc == STITCH_OK)
        rc = read_functions(l, &e, &symtab, &strings);
    if (rc == STITCH_OK)
        rc = read_table(l, &e, &names, &symtab);
    if (rc == STITCH_OK)
        rc = sort_rows(l);
    if (rc)
        stitch__lines_free(l);
    else
        *out = l;
    return rc;
}

/* The row that holds for an address: the last one at or before it. */
static const row *row_at(const stitch__lines *l, uint32_t section, uint64_t address)
{
    size_t low = 0, high = l->row_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_rows(&l->rows[l->sorted[middle]], section, address, UINT32_MAX) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    const row *r = low ? &l->rows[l->sorted[low - 1]] : NULL;
    return r && r->section == section && !r->end ? r : NULL;
}

static const function *find_function(const stitch__lines *l, uint32_t symbol, const char *name)
{
    const function *named = NULL;
    for (size_t i = 0; i < l->function_count; i++) {
        if (l->functions[i].symbol == symbol)
            return &l->functions[i];
        if (!named && strcmp(l->functions[i].name, name) == 0)
            named = &l->functions[i];
    }
    return named;
}

bool stitch__lines_find(const stitch__lines *l, uint32_t symbol, const char *name, uint64_t offset, stitch__place *out)
{
    const function *f = find_function(l, symbol, name);
    *out = (stitch__place){NULL, "", 0, false};
    if (!f)
        return false;
    out->kernel = f->entry ? f->name : NULL;
    for (size_t i = 0; i < l->function_count && !out->kernel; i++) { /* a function that was not inlined */
        if (l->functions[i].entry && l->functions[i].section == f->section)
            out->kernel = l->functions[i].name;
    }
    const row *innermost = row_at(l, f->section, f->value + offset), *r = innermost;
    for (int i = 0; r && i < MAX_INLINED && r->file != l->source; i++)
        r = r->call ? &l->rows[r->call - 1] : NULL;
    if (!r || r->file != l->source)
        r = innermost;
    if (r && r->line) {
        out->file = l->files[r->file];
        out->line = r->line;
        out->source = l->source && r->file == l->source;
    }
    return true;
}

void stitch__lines_free(stitch__lines *l)
{
    if (!l)
        return;
    stitch_free(l->files);
    stitch_free(l->rows);
    stitch__arena_free(&l->arena);
    stitch_free(l);
}

bool stitch__lines_text(const char *text, uint32_t number, const char **out, size_t *len)
{
    for (uint32_t i = 1; i < number && text; i++) {
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    if (!text || !number)
        return false;
    text += strspn(text, " \t\r");
    *out = text;
    *len = strcspn(text, "\n");
    while (*len && strchr(" \t\r", text[*len - 1]))
        --*len;
    return true;
}

/* SPDX-License-Identifier: MIT
 *
 * Walks a cubin: every function's instructions, module variables, functions that it calls outside itself. The bytes may
 * come from a stranger's file, so that every offset is checked before use and no section is read twice.
 */
#include <stdio.h>

#include "verify/scan.h"

enum {
    EM_CUDA = 190,
    SHT_SYMTAB = 2,
    SHT_NOBITS = 8,
    SHF_EXECUTE = 4,
    STT_OBJECT = 1,
    STT_FUNC = 2,
    STO_MANAGED = 0x04,
    STO_ENTRY = 0x10,
    INSTRUCTION = 16, /* bytes */
};

typedef struct section {
    uint32_t name, type, link;
    uint64_t flags, offset, size, entsize;
} section;

typedef struct reader {
    stitch__scan *scan;
    const unsigned char *data;
    size_t size;
    uint64_t shoff;
    uint32_t shnum, shentsize;
    section names, symbols, strings;
    int arch;
    uint64_t code_left;  /* bytes of code that may still come: sections of a valid file do not overlap */
    uint64_t names_left; /* and of names: any number of symbols can have the same long one */
    const char **why;
} reader;

static uint32_t u16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32(const unsigned char *p)
{
    return u16(p) | u16(p + 2) << 16;
}

static uint64_t u64(const unsigned char *p)
{
    return u32(p) | (uint64_t)u32(p + 4) << 32;
}

static int bad(reader *r, const char *why)
{
    *r->why = why;
    return STITCH_E_FORMAT;
}

static bool inside(const reader *r, const section *s)
{
    return s->offset <= r->size && s->size <= r->size - s->offset;
}

static section read_section(const reader *r, uint32_t index)
{
    const unsigned char *p = r->data + r->shoff + (uint64_t)index * r->shentsize;
    return (section){u32(p), u32(p + 4), u32(p + 40), u64(p + 8), u64(p + 24), u64(p + 32), u64(p + 56)};
}

/* NULL when it does not end inside the table. */
static const char *string_at(const reader *r, const section *table, uint32_t at)
{
    if (!inside(r, table) || at >= table->size)
        return NULL;
    const char *s = (const char *)r->data + table->offset + at;
    return memchr(s, '\0', (size_t)(table->size - at)) ? s : NULL;
}

static int read_header(reader *r)
{
    const unsigned char *p = r->data;
    if (r->size < 64 || memcmp(p, "\177ELF", 4) != 0)
        return bad(r, "it is no ELF file");
    if (p[4] != 2 || p[5] != 1 || u16(p + 18) != EM_CUDA)
        return bad(r, "it is no 64-bit little-endian CUDA ELF file");
    r->shoff = u64(p + 40);
    r->shentsize = u16(p + 58);
    r->shnum = u16(p + 60);
    uint64_t table = (uint64_t)r->shnum * r->shentsize;
    if (r->shentsize < 64 || r->shoff > r->size || table > r->size - r->shoff)
        return bad(r, "its section table lies outside the file");
    if (u16(p + 62) >= r->shnum)
        return bad(r, "it has no table of section names");
    r->names = read_section(r, u16(p + 62));
    for (uint32_t i = 0; i < r->shnum; i++) {
        r->symbols = read_section(r, i);
        if (r->symbols.type == SHT_SYMTAB)
            break;
    }
    if (r->symbols.type != SHT_SYMTAB || r->symbols.entsize != 24 || !inside(r, &r->symbols) ||
        r->symbols.link >= r->shnum)
        return bad(r, "it has no symbol table");
    r->strings = read_section(r, r->symbols.link);
    return STITCH_OK;
}

static int read_code(reader *r, const section *s, const char *symbol, bool kernel)
{
    stitch__scan_function *f;
    if (s->type == SHT_NOBITS || !inside(r, s) || s->size % INSTRUCTION != 0)
        return bad(r, "a function's code lies outside the file or is no whole number of instructions");
    if (s->size > r->code_left)
        return bad(r, "two functions share their code");
    r->code_left -= s->size;
    int rc = stitch__scan_add_function(r->scan, symbol, strlen(symbol), kernel, &f);
    const unsigned char *p = r->data + s->offset;
    for (uint64_t at = 0; at < s->size && rc == STITCH_OK; at += INSTRUCTION) {
        stitch__sass decoded;
        stitch__sass_decode(r->arch, u64(p + at), u64(p + at + 8), &decoded);
        f->instructions++;
        f->unknown += decoded.kind == STITCH__SCAN_NOT_KNOWN;
        f->computing += stitch__sass_computes(&decoded);
        if (decoded.kind != STITCH__SCAN_PLAIN)
            rc = stitch__scan_add_op(r->scan, f, &decoded, at, false);
    }
    return rc;
}

/* Which sections hold kernels: bit 1 of kinds[section]. */
static int read_symbols(reader *r, unsigned char *kinds)
{
    const unsigned char *p = r->data + r->symbols.offset;
    for (uint64_t i = 0; i < r->symbols.size / 24; i++, p += 24) {
        unsigned type = p[4] & 15, other = p[5];
        uint32_t index = u16(p + 6);
        const char *name = type == STT_FUNC || type == STT_OBJECT ? string_at(r, &r->strings, u32(p)) : NULL, *where;
        int rc = STITCH_OK;
        if (!name || !*name)
            continue;
        if (strlen(name) > r->names_left)
            return bad(r, "its symbols' names are longer than the file");
        r->names_left -= strlen(name);
        if (type == STT_FUNC && index == 0)
            rc = stitch__scan_add_call(r->scan, name, strlen(name));
        if (rc)
            return rc;
        if (index == 0 || index >= r->shnum)
            continue;
        if (type == STT_FUNC && (other & STO_ENTRY))
            kinds[index] = 1;
        section s = read_section(r, index);
        if (type == STT_OBJECT && (where = string_at(r, &r->names, s.name)) &&
            (strcmp(where, ".nv.global") == 0 || strncmp(where, ".nv.global.", 11) == 0 ||
             strcmp(where, ".nv.constant3") == 0)) /* of __constant__, which is memory as any other */
            rc = stitch__scan_add_global(r->scan, name, strlen(name), u64(p + 16), s.type != SHT_NOBITS,
                                         (other & STO_MANAGED) != 0);
        if (rc)
            return rc;
    }
    return STITCH_OK;
}

int stitch__scan_cubin(stitch__scan *scan, const void *data, size_t size, const char **why)
{
    reader r = {.scan = scan, .data = data, .size = size, .code_left = size, .names_left = size, .why = why};
    *why = "";
    if (sscanf(scan->arch, "sm_%d", &r.arch) != 1)
        return bad(&r, "its architecture is not known");
    int rc = read_header(&r);
    if (rc)
        return rc;
    unsigned char *kinds = stitch__arena_alloc(&scan->arena, r.shnum);
    if (!kinds)
        return STITCH_E_NOMEM;
    rc = read_symbols(&r, kinds);
    for (uint32_t i = 0; i < r.shnum && rc == STITCH_OK; i++) {
        section s = read_section(&r, i);
        const char *name = string_at(&r, &r.names, s.name);
        if (!(s.flags & SHF_EXECUTE) || s.size == 0)
            continue;
        if (!name || strncmp(name, ".text.", 6) != 0)
            return bad(&r, "it has code outside of functions");
        rc = read_code(&r, &s, name + 6, kinds[i] != 0);
    }
    return rc;
}

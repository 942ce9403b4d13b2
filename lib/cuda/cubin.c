/* SPDX-License-Identifier: MIT
 *
 * Reads a cubin: an ELF file whose .nv.info sections say what the driver must know about each kernel. The bytes may
 * come from a damaged cache or a hostile program file, so that every offset is checked before use.
 *
 * .nv.info is a list of {format u8, attribute u8, value u16}; format 4 is followed by `value` bytes of payload.
 */
#include "cuda/internal.h"

enum {
    EM_CUDA = 190,
    SHT_SYMTAB = 2,
    STT_FUNC = 2,
    STO_ENTRY = 0x10,        /* in st_other: a __global__ function */
    INFO_SIZED = 4,          /* format */
    INFO_MAX_THREADS = 0x05, /* u32 x, y, z */
    INFO_REQNTID = 0x10,     /* u32 x, y, z */
    INFO_FRAME_SIZE = 0x11,  /* u32 symbol, bytes */
    INFO_MIN_STACK = 0x12,   /* u32 symbol, bytes */
    INFO_PARAM = 0x17,       /* u32 index, u16 ordinal, u16 offset, u32 packed: bytes in the upper 14 bits */
    INFO_PARAM_SIZES = 0x19, /* u16 (in `value`): bytes of all parameters */
    INFO_REGISTERS = 0x2f,   /* u32 symbol, count */
    INFO_PARAM_V2 = 0x45,    /* u32 index, u16 ordinal, u16 offset, u16 bytes, u16 flags: blocks over 4 KiB */
    MAX_PARAMS = 8192,
    RESERVED_SHARED = 1024, /* what the hardware keeps of each block from sm_90 on; counted in .nv.shared */
};

typedef struct elf {
    const unsigned char *data;
    size_t size;
    uint64_t shoff;
    uint32_t shnum, shentsize;
} elf;

typedef struct section {
    uint32_t name, type, link, info;
    uint64_t offset, size, entsize;
} section;

typedef struct reader {
    stitch__arena *arena;
    elf e;
    section names, symtab, strtab;
    uint32_t *by_section; /* text section -> 1 + index of its entry */
    uint32_t *by_symbol;  /* symbol -> 1 + index of its entry */
    size_t symbol_count;
    bool reserved_shared;
    stitch__entries *out;
    const char **why;
} reader;

static uint16_t u16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
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

static bool in_file(const elf *e, uint64_t offset, uint64_t size)
{
    return offset <= e->size && size <= e->size - offset;
}

static bool read_section(const elf *e, uint32_t index, section *s)
{
    if (index >= e->shnum)
        return false;
    const unsigned char *p = e->data + e->shoff + (uint64_t)index * e->shentsize;
    *s = (section){u32(p), u32(p + 4), u32(p + 40), u32(p + 44), u64(p + 24), u64(p + 32), u64(p + 56)};
    return true;
}

/* A string of a string table; NULL when it does not end inside the table. */
static const char *string_at(const elf *e, const section *table, uint32_t at)
{
    if (!in_file(e, table->offset, table->size) || at >= table->size)
        return NULL;
    const char *s = (const char *)e->data + table->offset + at;
    return memchr(s, '\0', (size_t)(table->size - at)) ? s : NULL;
}

static int read_header(reader *r, const void *data, size_t size)
{
    const unsigned char *p = data;
    elf *e = &r->e;
    if (size < 64 || memcmp(p, "\177ELF", 4) != 0)
        return bad(r, "it is no ELF file");
    if (p[4] != 2 || p[5] != 1 || u16(p + 18) != EM_CUDA)
        return bad(r, "it is no 64-bit little-endian CUDA ELF file");
    *e = (elf){p, size, u64(p + 40), u16(p + 60), u16(p + 58)};
    if (e->shentsize < 64 || !in_file(e, e->shoff, (uint64_t)e->shnum * e->shentsize))
        return bad(r, "its section table lies outside the file");
    if (!read_section(e, u16(p + 62), &r->names))
        return bad(r, "it has no table of section names");
    return STITCH_OK;
}

/* Entries are the functions of the symbol table that are marked as such. */
static int read_symbols(reader *r)
{
    const elf *e = &r->e;
    bool found = false;
    for (uint32_t i = 0; i < e->shnum && !found; i++)
        found = read_section(e, i, &r->symtab) && r->symtab.type == SHT_SYMTAB;
    if (!found || r->symtab.entsize != 24 || !in_file(e, r->symtab.offset, r->symtab.size) ||
        !read_section(e, r->symtab.link, &r->strtab))
        return bad(r, "it has no symbol table");
    r->symbol_count = (size_t)(r->symtab.size / 24);
    r->by_section = stitch__arena_array(r->arena, (size_t)e->shnum + 1, sizeof(*r->by_section));
    r->by_symbol = stitch__arena_array(r->arena, r->symbol_count + 1, sizeof(*r->by_symbol));
    if (!r->by_section || !r->by_symbol)
        return STITCH_E_NOMEM;
    const unsigned char *symbols = e->data + r->symtab.offset;
    size_t count = 0;
    for (size_t i = 0; i < r->symbol_count; i++)
        count += (symbols[i * 24 + 4] & 15) == STT_FUNC && (symbols[i * 24 + 5] & STO_ENTRY);
    r->out->list = stitch__arena_array(r->arena, count + 1, sizeof(*r->out->list));
    if (!r->out->list)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < r->symbol_count; i++) {
        const unsigned char *s = symbols + i * 24;
        if ((s[4] & 15) != STT_FUNC || !(s[5] & STO_ENTRY))
            continue;
        const char *name = string_at(e, &r->strtab, u32(s));
        if (!name || !*name || u16(s + 6) >= e->shnum)
            return bad(r, "a kernel has no name or no section");
        stitch__entry *entry = &r->out->list[r->out->count];
        *entry = (stitch__entry){stitch__arena_strdup(r->arena, name), -1, 0, 0, -1, -1, -1, 0, NULL};
        if (!entry->symbol)
            return STITCH_E_NOMEM;
        r->out->count++;
        r->by_section[u16(s + 6)] = (uint32_t)r->out->count;
        r->by_symbol[i] = (uint32_t)r->out->count;
    }
    return STITCH_OK;
}

/* One pass over a .nv.info section. `entry` is NULL for the global one. `counting`: only finds the number of
 * parameters. */
static int walk_info(reader *r, const section *s, stitch__entry *entry, bool counting)
{
    const elf *e = &r->e;
    if (!in_file(e, s->offset, s->size))
        return bad(r, "a .nv.info section lies outside the file");
    const unsigned char *p = e->data + s->offset, *end = p + s->size;
    while (end - p >= 4) {
        unsigned format = p[0], attribute = p[1], value = u16(p + 2);
        p += 4;
        size_t len = format == INFO_SIZED ? value : 0;
        if ((size_t)(end - p) < len)
            return bad(r, "a .nv.info entry runs past its section");
        const unsigned char *v = p;
        p += len;
        if (format != INFO_SIZED)
            continue;
        if (!entry) {
            uint32_t symbol = len >= 8 ? u32(v) : UINT32_MAX;
            if (symbol >= r->symbol_count || !r->by_symbol[symbol])
                continue;
            stitch__entry *of = &r->out->list[r->by_symbol[symbol] - 1];
            if (attribute == INFO_REGISTERS)
                of->registers = u32(v + 4);
            else if ((attribute == INFO_FRAME_SIZE || attribute == INFO_MIN_STACK) && u32(v + 4) > of->local)
                of->local = u32(v + 4);
        } else if ((attribute == INFO_PARAM || attribute == INFO_PARAM_V2) && len >= 12) {
            size_t ordinal = u16(v + 4);
            if (counting) {
                if (ordinal >= MAX_PARAMS)
                    return bad(r, "a kernel has too many parameters");
                entry->param_count = ordinal + 1 > entry->param_count ? ordinal + 1 : entry->param_count;
            } else {
                entry->params[ordinal].offset = u16(v + 6);
                entry->params[ordinal].size = attribute == INFO_PARAM ? u32(v + 8) >> 18 : u16(v + 8);
            }
        } else if ((attribute == INFO_MAX_THREADS || attribute == INFO_REQNTID) && len >= 12) {
            uint64_t x = u32(v), y = u32(v + 4), z = u32(v + 8);
            if (x && y && z && x <= 1024 && y <= 1024 && z <= 1024)
                entry->max_threads = (int64_t)(x * y * z);
        }
    }
    return STITCH_OK;
}

static int read_info(reader *r, const section *s, stitch__entry *entry)
{
    if (!entry)
        return walk_info(r, s, NULL, false);
    if (entry->params)
        return bad(r, "a kernel has two .nv.info sections");
    int rc = walk_info(r, s, entry, true);
    if (rc)
        return rc;
    entry->params = stitch__arena_array(r->arena, entry->param_count + 1, sizeof(*entry->params));
    if (!entry->params)
        return STITCH_E_NOMEM;
    if ((rc = walk_info(r, s, entry, false)) != STITCH_OK)
        return rc;
    for (size_t i = 0; i < entry->param_count; i++) {
        const stitch__param_layout *p = &entry->params[i];
        /* The first may start late: an over-aligned struct is aligned in the constant bank, not in the block. */
        bool after = i == 0 || p->offset >= entry->params[i - 1].offset + entry->params[i - 1].size;
        if (p->size == 0 || !after)
            return bad(r, "the parameters of a kernel overlap or have gaps in their numbering");
    }
    return STITCH_OK;
}

static int read_sections(reader *r)
{
    const elf *e = &r->e;
    int rc = STITCH_OK;
    for (uint32_t i = 0; i < e->shnum && rc == STITCH_OK; i++) {
        section s;
        const char *name;
        if (!read_section(e, i, &s) || !(name = string_at(e, &r->names, s.name)))
            return bad(r, "a section has no name");
        if (strcmp(name, ".nv.info") == 0) {
            rc = read_info(r, &s, NULL);
        } else if (strncmp(name, ".nv.info.", 9) == 0 && s.info < e->shnum && r->by_section[s.info]) {
            rc = read_info(r, &s, &r->out->list[r->by_section[s.info] - 1]);
        } else if (strncmp(name, ".nv.shared.reserved", 19) == 0) {
            r->reserved_shared = true;
        } else if (strncmp(name, ".nv.shared.", 11) == 0 && s.info < e->shnum && r->by_section[s.info]) {
            r->out->list[r->by_section[s.info] - 1].static_shared = s.size > (1u << 30) ? -1 : (int64_t)s.size;
        }
    }
    return rc;
}

int stitch__cubin_parse(stitch__arena *arena, const void *data, size_t size, stitch__entries *out, const char **why)
{
    reader r = {.arena = arena, .out = out, .why = why};
    *out = (stitch__entries){0};
    *why = "";
    int rc = read_header(&r, data, size);
    if (rc == STITCH_OK)
        rc = read_symbols(&r);
    if (rc == STITCH_OK)
        rc = read_sections(&r);
    if (rc) {
        *out = (stitch__entries){0};
        return rc;
    }
    for (size_t i = 0; i < out->count && r.reserved_shared; i++) {
        if (out->list[i].static_shared >= RESERVED_SHARED)
            out->list[i].static_shared -= RESERVED_SHARED;
    }
    return STITCH_OK;
}

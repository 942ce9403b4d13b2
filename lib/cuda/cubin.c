/* SPDX-License-Identifier: MIT
 *
 * Reads a cubin: an ELF file whose .nv.info sections say what the driver must know about each kernel. The bytes may
 * come from a damaged cache or a hostile program file, so that every offset is checked before use.
 *
 * .nv.info is a list of {format u8, attribute u8, value u16}; format 4 is followed by `value` bytes of payload.
 */
#include "cuda/elf.h"
#include "cuda/internal.h"

enum {
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

typedef struct reader {
    stitch__arena *arena;
    stitch__elf e;
    stitch__section names, symtab, strtab;
    uint32_t *by_section; /* text section -> 1 + index of its entry */
    uint32_t *by_symbol;  /* symbol -> 1 + index of its entry */
    size_t symbol_count;
    bool reserved_shared;
    uint64_t info_left; /* bytes of .nv.info that may still come: sections of a valid file do not overlap */
    stitch__entries *out;
    const char **why;
} reader;

static int bad(reader *r, const char *why)
{
    *r->why = why;
    return STITCH_E_FORMAT;
}

static bool is_entry(stitch__symbol s)
{
    return s.type == STITCH__ELF_FUNC && (s.other & STITCH__ELF_ENTRY);
}

/* Entries are the functions of the symbol table that are marked as such. */
static int read_symbols(reader *r)
{
    const stitch__elf *e = &r->e;
    if (!stitch__elf_symbols(e, &r->symtab, &r->strtab))
        return bad(r, "it has no symbol table");
    r->symbol_count = (size_t)(r->symtab.size / 24);
    r->by_section = stitch__arena_array(r->arena, (size_t)e->shnum + 1, sizeof(*r->by_section));
    r->by_symbol = stitch__arena_array(r->arena, r->symbol_count + 1, sizeof(*r->by_symbol));
    if (!r->by_section || !r->by_symbol)
        return STITCH_E_NOMEM;
    size_t count = 0, bytes = 0;
    for (size_t i = 0; i < r->symbol_count; i++)
        count += is_entry(stitch__elf_symbol(e, &r->symtab, i));
    r->out->list = stitch__arena_array(r->arena, count + 1, sizeof(*r->out->list));
    if (!r->out->list)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < r->symbol_count; i++) {
        stitch__symbol s = stitch__elf_symbol(e, &r->symtab, i);
        if (!is_entry(s))
            continue;
        const char *name = stitch__elf_string(e, &r->strtab, s.name);
        if (!name || !*name || s.section >= e->shnum)
            return bad(r, "a kernel has no name or no section");
        /* Any number of symbols can have the same long name, and each gets a copy. */
        bytes += strlen(name) + 1;
        if (bytes > e->size)
            return bad(r, "its kernels' names are longer than the file");
        stitch__entry *entry = &r->out->list[r->out->count];
        *entry = (stitch__entry){stitch__arena_strdup(r->arena, name), -1, 0, 0, -1, -1, -1, 0, NULL};
        if (!entry->symbol)
            return STITCH_E_NOMEM;
        r->out->count++;
        r->by_section[s.section] = (uint32_t)r->out->count;
        r->by_symbol[i] = (uint32_t)r->out->count;
    }
    return STITCH_OK;
}

/* One pass over a .nv.info section. `entry` is NULL for the global one. `counting`: only finds the number of
 * parameters. */
static int walk_info(reader *r, const stitch__section *s, stitch__entry *entry, bool counting)
{
    const stitch__elf *e = &r->e;
    if (!stitch__elf_holds(e, s->offset, s->size))
        return bad(r, "a .nv.info section lies outside the file");
    const unsigned char *p = e->data + s->offset, *end = p + s->size;
    while (end - p >= 4) {
        unsigned format = p[0], attribute = p[1], value = stitch__u16(p + 2);
        p += 4;
        size_t len = format == INFO_SIZED ? value : 0;
        if ((size_t)(end - p) < len)
            return bad(r, "a .nv.info entry runs past its section");
        const unsigned char *v = p;
        p += len;
        if (format != INFO_SIZED)
            continue;
        if (!entry) {
            uint32_t symbol = len >= 8 ? stitch__u32(v) : UINT32_MAX;
            if (symbol >= r->symbol_count || !r->by_symbol[symbol])
                continue;
            stitch__entry *of = &r->out->list[r->by_symbol[symbol] - 1];
            if (attribute == INFO_REGISTERS)
                of->registers = stitch__u32(v + 4);
            else if ((attribute == INFO_FRAME_SIZE || attribute == INFO_MIN_STACK) && stitch__u32(v + 4) > of->local)
                of->local = stitch__u32(v + 4);
        } else if ((attribute == INFO_PARAM || attribute == INFO_PARAM_V2) && len >= 12) {
            size_t ordinal = stitch__u16(v + 4);
            if (counting) {
                if (ordinal >= MAX_PARAMS)
                    return bad(r, "a kernel has too many parameters");
                entry->param_count = ordinal + 1 > entry->param_count ? ordinal + 1 : entry->param_count;
            } else {
                entry->params[ordinal].offset = stitch__u16(v + 6);
                entry->params[ordinal].size = attribute == INFO_PARAM ? stitch__u32(v + 8) >> 18 : stitch__u16(v + 8);
            }
        } else if ((attribute == INFO_MAX_THREADS || attribute == INFO_REQNTID) && len >= 12) {
            uint64_t x = stitch__u32(v), y = stitch__u32(v + 4), z = stitch__u32(v + 8);
            if (x && y && z && x <= 1024 && y <= 1024 && z <= 1024)
                entry->max_threads = (int64_t)(x * y * z);
        }
    }
    return STITCH_OK;
}

static int read_info(reader *r, const stitch__section *s, stitch__entry *entry)
{
    if (s->size > r->info_left)
        return bad(r, "its .nv.info sections overlap");
    r->info_left -= s->size;
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
    const stitch__elf *e = &r->e;
    int rc = STITCH_OK;
    for (uint32_t i = 0; i < e->shnum && rc == STITCH_OK; i++) {
        stitch__section s;
        const char *name;
        if (!stitch__elf_section(e, i, &s) || !(name = stitch__elf_string(e, &r->names, s.name)))
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
    reader r = {.arena = arena, .info_left = size, .out = out, .why = why};
    *out = (stitch__entries){0};
    *why = "";
    const char *none = stitch__elf_open(&r.e, data, size, &r.names);
    int rc = none ? bad(&r, none) : read_symbols(&r);
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

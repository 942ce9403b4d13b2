/* SPDX-License-Identifier: MIT
 *
 * Sections, symbols and strings of a CUDA ELF file. The bytes may come from a damaged cache or a hostile program file:
 * every offset is checked before use.
 */
#ifndef STITCH_LIB_CUDA_ELF_H
#define STITCH_LIB_CUDA_ELF_H

#include "base/base.h"

enum {
    STITCH__ELF_SYMTAB = 2, /* section types */
    STITCH__ELF_RELA = 4,
    STITCH__ELF_REL = 9,
    STITCH__ELF_FUNC = 2,     /* symbol type */
    STITCH__ELF_ENTRY = 0x10, /* in a symbol's `other`: a __global__ function */
};

typedef struct stitch__elf {
    const unsigned char *data;
    size_t size;
    uint64_t shoff;
    uint32_t shnum, shentsize;
} stitch__elf;

typedef struct stitch__section {
    uint32_t name, type, link, info;
    uint64_t offset, size, entsize;
} stitch__section;

typedef struct stitch__symbol {
    uint32_t name;
    uint8_t type, other;
    uint16_t section;
    uint64_t value, size;
} stitch__symbol;

static inline uint16_t stitch__u16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t stitch__u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t stitch__u64(const unsigned char *p)
{
    return stitch__u32(p) | (uint64_t)stitch__u32(p + 4) << 32;
}

/* NULL, or why it is none. `names`: the table of section names. */
const char *stitch__elf_open(stitch__elf *e, const void *data, size_t size, stitch__section *names);
bool stitch__elf_holds(const stitch__elf *e, uint64_t offset, uint64_t size);
bool stitch__elf_section(const stitch__elf *e, uint32_t index, stitch__section *out);
/* A string of a string table; NULL when it does not end inside the table. */
const char *stitch__elf_string(const stitch__elf *e, const stitch__section *table, uint32_t at);
/* The symbol table and its strings; the number of symbols is symtab->size / 24. */
bool stitch__elf_symbols(const stitch__elf *e, stitch__section *symtab, stitch__section *strings);
/* Of a table that stitch__elf_symbols() found; index within it. */
stitch__symbol stitch__elf_symbol(const stitch__elf *e, const stitch__section *symtab, size_t index);

#endif

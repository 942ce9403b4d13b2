/* SPDX-License-Identifier: MIT
 *
 * See elf.h.
 */
#include "cuda/elf.h"

enum { EM_CUDA = 190, SYMBOL_BYTES = 24 };

const char *stitch__elf_open(stitch__elf *e, const void *data, size_t size, stitch__section *names)
{
    const unsigned char *p = data;
    if (size < 64 || memcmp(p, "\177ELF", 4) != 0)
        return "it is no ELF file";
    if (p[4] != 2 || p[5] != 1 || stitch__u16(p + 18) != EM_CUDA)
        return "it is no 64-bit little-endian CUDA ELF file";
    *e = (stitch__elf){p, size, stitch__u64(p + 40), stitch__u16(p + 60), stitch__u16(p + 58)};
    if (e->shentsize < 64 || !stitch__elf_holds(e, e->shoff, (uint64_t)e->shnum * e->shentsize))
        return "its section table lies outside the file";
    if (!stitch__elf_section(e, stitch__u16(p + 62), names))
        return "it has no table of section names";
    return NULL;
}

bool stitch__elf_holds(const stitch__elf *e, uint64_t offset, uint64_t size)
{
    return offset <= e->size && size <= e->size - offset;
}

bool stitch__elf_section(const stitch__elf *e, uint32_t index, stitch__section *out)
{
    if (index >= e->shnum)
        return false;
    const unsigned char *p = e->data + e->shoff + (uint64_t)index * e->shentsize;
    *out = (stitch__section){stitch__u32(p),      stitch__u32(p + 4),  stitch__u32(p + 40), stitch__u32(p + 44),
                             stitch__u64(p + 24), stitch__u64(p + 32), stitch__u64(p + 56)};
    return true;
}

const char *stitch__elf_string(const stitch__elf *e, const stitch__section *table, uint32_t at)
{
    if (!stitch__elf_holds(e, table->offset, table->size) || at >= table->size)
        return NULL;
    const char *s = (const char *)e->data + table->offset + at;
    return memchr(s, '\0', (size_t)(table->size - at)) ? s : NULL;
}

bool stitch__elf_symbols(const stitch__elf *e, stitch__section *symtab, stitch__section *strings)
{
    bool found = false;
    for (uint32_t i = 0; i < e->shnum && !found; i++)
        found = stitch__elf_section(e, i, symtab) && symtab->type == STITCH__ELF_SYMTAB;
    return found && symtab->entsize == SYMBOL_BYTES && stitch__elf_holds(e, symtab->offset, symtab->size) &&
           stitch__elf_section(e, symtab->link, strings);
}

stitch__symbol stitch__elf_symbol(const stitch__elf *e, const stitch__section *symtab, size_t index)
{
    const unsigned char *p = e->data + symtab->offset + index * SYMBOL_BYTES;
    return (stitch__symbol){stitch__u32(p),     p[4] & 15,          p[5],
                            stitch__u16(p + 6), stitch__u64(p + 8), stitch__u64(p + 16)};
}

/* SPDX-License-Identifier: MIT
 *
 * Makes a cubin with symbols and a line table and nothing else, for tests of what reads them.
 */
#ifndef STITCH_TESTS_LINE_TABLE_H
#define STITCH_TESTS_LINE_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda/elf.h"

/* A row of the table: the code from `address` on is from there. call: from 1, the row of this kernel that it was
 * inlined at. The last row of a kernel is where its code ends. */
typedef struct line_row {
    uint64_t address;
    uint32_t line, file, call;
} line_row;

typedef struct line_kernel {
    const char *name;
    const line_row *rows; /* count of them; none: the kernel is not in the table */
    size_t count;
    const char *callee; /* a function in the kernel's section at callee_at; NULL: none */
    uint64_t callee_at;
} line_kernel;

typedef struct line_cubin {
    unsigned char data[8192];
    size_t size;
    size_t table, table_size; /* the line table */
} line_cubin;

enum { LINE_SECTIONS = 6 }; /* before the kernels' own */

static void lt_put(line_cubin *c, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        c->data[c->size++] = (unsigned char)(v >> (8 * i));
}

static void lt_text(line_cubin *c, const char *text)
{
    memcpy(c->data + c->size, text, strlen(text) + 1);
    c->size += strlen(text) + 1;
}

static void lt_set(line_cubin *c, size_t at, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        c->data[at + i] = (unsigned char)(v >> (8 * i));
}

static void lt_leb(line_cubin *c, int64_t v)
{
    for (;; v >>= 7) {
        bool last = (v >> 7 == 0 && !(v & 0x40)) || (v >> 7 == -1 && (v & 0x40));
        lt_put(c, (uint64_t)(v & 0x7f) | (last ? 0 : 0x80), 1);
        if (last)
            return;
    }
}

static void lt_kernel(line_cubin *c, const line_kernel *k, size_t *relocation, bool special)
{
    line_row now = {0, 1, 1, 0};
    lt_put(c, 0, 1);
    lt_put(c, 9, 1);
    lt_put(c, 2, 1); /* set address */
    *relocation = c->size - c->table;
    lt_put(c, 0, 8);
    for (size_t i = 0; i < k->count; i++) {
        const line_row *r = &k->rows[i];
        int64_t lines = (int64_t)r->line - now.line, step = (int64_t)(r->address - now.address);
        if (r->file != now.file) {
            lt_put(c, 4, 1);
            lt_leb(c, r->file);
        }
        if (r->call != now.call) {
            lt_put(c, 0, 1);
            lt_put(c, 3, 1);
            lt_put(c, 0x90, 1);
            lt_put(c, r->call, 1);
            lt_put(c, 0, 1);
        }
        if (special && i + 1 < k->count && lines >= -5 && lines < 9 && step >= 0 && step <= 16) {
            lt_put(c, (uint64_t)(lines + 5 + 14 * step + 10), 1);
        } else {
            lt_put(c, 3, 1);
            lt_leb(c, lines);
            if (special && step < 65536) {
                lt_put(c, 9, 1);
                lt_put(c, (uint64_t)step, 2);
            } else {
                lt_put(c, 2, 1);
                /* unsigned numbers have no sign bit */
                for (uint64_t v = (uint64_t)step;; v >>= 7) {
                    lt_put(c, (v & 0x7f) | (v >> 7 ? 0x80 : 0), 1);
                    if (!(v >> 7))
                        break;
                }
            }
            if (i + 1 < k->count)
                lt_put(c, 1, 1);
        }
        now = *r;
    }
    lt_put(c, 0, 1);
    lt_put(c, 1, 1);
    lt_put(c, 1, 1); /* end of sequence */
}

static void lt_section(line_cubin *c, size_t index, uint32_t name, uint32_t type, size_t offset, size_t size,
                       uint32_t link, uint32_t info, size_t entry)
{
    size_t at = (size_t)stitch__u64(c->data + 40) + index * 64;
    lt_set(c, at, name, 4);
    lt_set(c, at + 4, type, 4);
    lt_set(c, at + 24, offset, 8);
    lt_set(c, at + 32, size, 8);
    lt_set(c, at + 40, link, 4);
    lt_set(c, at + 44, info, 4);
    lt_set(c, at + 56, entry, 8);
}

static void lt_symbol(line_cubin *c, uint32_t name, unsigned other, size_t section, uint64_t value)
{
    lt_put(c, name, 4);
    lt_put(c, 0x12, 1); /* a global function */
    lt_put(c, other, 1);
    lt_put(c, section, 2);
    lt_put(c, value, 8);
    lt_put(c, 64, 8);
}

/* files: NULL-terminated. special: with the opcodes that advance address and line at once. rela: relocations with or
 * without an addend. */
__attribute__((unused)) static void make_line_cubin(line_cubin *c, const line_kernel *kernels, size_t count,
                                                    const char *const *files, unsigned version, bool special, bool rela)
{
    static const char *const names[LINE_SECTIONS] = {"",        ".shstrtab",   ".strtab",
                                                     ".symtab", ".debug_line", ".rela.debug_line"};
    static const unsigned char lengths[9] = {0, 1, 1, 1, 1, 0, 0, 0, 1};
    uint32_t name_at[LINE_SECTIONS], text_at[8], kernel_at[8], callee_at[8], symbol_of[8];
    size_t relocations[8], start, at, symbols = 1;
    memset(c, 0, sizeof(*c));
    memcpy(c->data, "\177ELF\2\1\1", 7);
    lt_set(c, 18, 190, 2);
    lt_set(c, 58, 64, 2);
    lt_set(c, 60, LINE_SECTIONS + count, 2);
    lt_set(c, 62, 1, 2);
    c->size = 64;
    lt_set(c, 40, 4096, 8); /* section headers */
    start = c->size;
    for (size_t i = 0; i < LINE_SECTIONS; i++) {
        name_at[i] = (uint32_t)(c->size - start);
        lt_text(c, names[i]);
    }
    for (size_t i = 0; i < count; i++) {
        char text[128];
        snprintf(text, sizeof(text), ".text.%s", kernels[i].name);
        text_at[i] = (uint32_t)(c->size - start);
        lt_text(c, text);
    }
    lt_section(c, 1, name_at[1], 3, start, c->size - start, 0, 0, 0);
    start = c->size;
    lt_text(c, "");
    for (size_t i = 0; i < count; i++) {
        kernel_at[i] = (uint32_t)(c->size - start);
        lt_text(c, kernels[i].name);
        callee_at[i] = (uint32_t)(c->size - start);
        lt_text(c, kernels[i].callee ? kernels[i].callee : "");
    }
    lt_section(c, 2, name_at[2], 3, start, c->size - start, 0, 0, 0);
    start = c->size;
    lt_put(c, 0, 8);
    lt_put(c, 0, 8);
    lt_put(c, 0, 8);
    for (size_t i = 0; i < count; i++) {
        symbol_of[i] = (uint32_t)symbols++;
        lt_symbol(c, kernel_at[i], 0x10, LINE_SECTIONS + i, 0);
        if (kernels[i].callee) {
            symbols++;
            lt_symbol(c, callee_at[i], 0, LINE_SECTIONS + i, kernels[i].callee_at);
        }
    }
    lt_section(c, 3, name_at[3], 2, start, c->size - start, 2, 1, 24);
    c->table = start = c->size;
    lt_put(c, 0, 4);
    lt_put(c, version, 2);
    lt_put(c, 0, 4);
    at = c->size;
    lt_put(c, 1, 1);
    if (version >= 4)
        lt_put(c, 1, 1);
    lt_put(c, 1, 1);
    lt_put(c, (uint64_t)-5, 1);
    lt_put(c, 14, 1);
    lt_put(c, 10, 1);
    for (size_t i = 0; i < sizeof(lengths); i++)
        lt_put(c, lengths[i], 1);
    lt_text(c, "/folder");
    lt_text(c, "");
    for (; *files; files++) {
        lt_text(c, *files);
        lt_put(c, 1, 1);
        lt_put(c, 0, 2);
    }
    lt_text(c, "");
    lt_set(c, at - 4, c->size - at, 4);
    for (size_t i = 0; i < count; i++)
        if (kernels[i].count)
            lt_kernel(c, &kernels[i], &relocations[i], special);
    c->table_size = c->size - start;
    lt_set(c, start, c->table_size - 4, 4);
    lt_section(c, 4, name_at[4], 1, start, c->table_size, 0, 0, 0);
    start = c->size;
    for (size_t n = count; n-- > 0;) { /* backwards: they need not be in order */
        if (!kernels[n].count)
            continue;
        lt_put(c, relocations[n], 8);
        lt_put(c, (uint64_t)symbol_of[n] << 32 | 2, 8);
        if (rela)
            lt_put(c, 0, 8);
    }
    lt_section(c, 5, name_at[5], rela ? 4 : 9, start, c->size - start, 3, 4, rela ? 24 : 16);
    for (size_t i = 0; i < count; i++)
        lt_section(c, LINE_SECTIONS + i, text_at[i], 1, 64, 0, 3, symbol_of[i], 0);
    c->size = 4096 + (LINE_SECTIONS + count) * 64;
}

#endif

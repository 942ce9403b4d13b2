/* SPDX-License-Identifier: MIT
 *
 * Runs a fuzz target without a fuzzer: every file of a folder, then mutations of each (cut, flipped, spliced, repeated
 * bytes) from a fixed seed. With a fuzzer the targets are built without this file:
 *   clang -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_task.c
 *
 * usage: fuzz_x FOLDER [MUTATIONS]      (default: 300 of each file)
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_FILES = 1000, MAX_BYTES = 1 << 20 };

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(MAX_BYTES);
    *size = f && data ? fread(data, 1, MAX_BYTES, f) : 0;
    if (f)
        fclose(f);
    return data;
}

/* One to four changes. Room for twice the size is there. */
static size_t mutate(uint8_t *data, size_t size, const uint8_t *other, size_t other_size)
{
    static const char interesting[] = "\0\"{}[],:\\0-9eE.\x80\xff\x7f";
    size_t changes = 1 + next() % 4;
    for (size_t k = 0; k < changes; k++) {
        size_t at = size ? next() % size : 0, len = size ? 1 + next() % (size - at) : 0;
        switch (next() % 7) {
        case 0: size = at; break;
        case 1:
            if (size)
                data[at] ^= (uint8_t)(1u << next() % 8);
            break;
        case 2:
            if (size)
                data[at] = (uint8_t)interesting[next() % sizeof(interesting)];
            break;
        case 3: /* leave bytes out */
            memmove(data + at, data + at + len, size - at - len);
            size -= len;
            break;
        case 4: /* double some */
            if (size + len < 2 * (size_t)MAX_BYTES && len < 4096) {
                memmove(data + at + len, data + at, size - at);
                size += len;
            }
            break;
        case 5: /* end as another file does */
            if (other_size) {
                size_t from = next() % other_size;
                memcpy(data + at, other + from, other_size - from);
                size = at + other_size - from;
            }
            break;
        default:
            if (size)
                data[at] = (uint8_t)next();
            break;
        }
        size = size < MAX_BYTES ? size : MAX_BYTES;
    }
    return size;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int main(int argc, char **argv)
{
    static char *names[MAX_FILES];
    size_t count = 0, runs = 0, mutations = argc > 2 ? strtoull(argv[2], NULL, 10) : 300;
    uint8_t *work = malloc(3 * (size_t)MAX_BYTES), *other = NULL;
    size_t other_size = 0;
    struct dirent *entry;
    DIR *folder = argc > 1 ? opendir(argv[1]) : NULL;

    if (!folder || !work) {
        printf("1..1\nnot ok 1 - usage: %s FOLDER [MUTATIONS]\n", argv[0]);
        return 1;
    }
    while ((entry = readdir(folder)) && count < MAX_FILES)
        if (entry->d_name[0] != '.')
            names[count++] = strdup(entry->d_name);
    closedir(folder);
    qsort(names, count, sizeof(names[0]), by_name);
    for (size_t i = 0; i < count; i++) {
        char path[4096];
        uint8_t *data;
        size_t size;
        snprintf(path, sizeof(path), "%s/%s", argv[1], names[i]);
        data = read_file(path, &size);
        LLVMFuzzerTestOneInput(data, size);
        for (size_t k = 0; k < mutations; k++, runs++) {
            memcpy(work, data, size);
            size_t mutated = mutate(work, size, other, other_size);
            uint8_t *exact = malloc(mutated ? mutated : 1); /* so that a sanitizer sees every byte beyond */
            memcpy(exact, work, mutated);
            LLVMFuzzerTestOneInput(exact, mutated);
            free(exact);
        }
        free(other);
        other = data;
        other_size = size;
        free(names[i]);
    }
    free(other);
    free(work);
    printf("1..1\n%sok 1 - %zu files, %zu mutations\n", count ? "" : "not ", count, runs);
    return count ? 0 : 1;
}

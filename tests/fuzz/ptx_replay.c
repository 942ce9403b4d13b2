/* SPDX-License-Identifier: MIT
 *
 * Differences that ptx_diff printed, run again: whether the simulator now gives what the GPU gave, and whether the GPU
 * itself gives it without optimisation. Needs no GPU for the first.
 */
#include "ptx_replay.h"

#include <inttypes.h>

enum { THREADS = PROG_BLOCKS * PROG_THREADS, WORDS = THREADS * PROG_WORDS };

typedef struct difference {
    uint64_t seed, sim, gpu;
    unsigned thread, word;
    char *ptx;
    size_t length, capacity;
} difference;

typedef struct tally {
    unsigned run, as_gpu, as_before, gpu_again, gpu_unoptimized;
    bool failed;
} tally;

const char *replay_register(unsigned word, char buffer[8])
{
    if (word < PROG_H)
        snprintf(buffer, 8, "%%h%u", word);
    else if (word < PROG_H + PROG_R)
        snprintf(buffer, 8, "%%r%u", word - PROG_H);
    else if (word < PROG_WORDS - 1)
        snprintf(buffer, 8, "%%d%u", word - PROG_H - PROG_R);
    else
        snprintf(buffer, 8, "%%p");
    return buffer;
}

/* "seed S: thread T, %r1: the simulator gives X, <GPU> gives Y; reduced:" */
static bool read_head(const char *line, difference *d)
{
    char name[8], candidate[8];
    const char *last = line, *at;
    if (sscanf(line, "seed %" SCNu64 ": thread %u, %7[^:]: the simulator gives %" SCNx64, &d->seed, &d->thread, name,
               &d->sim) != 4 ||
        d->thread >= THREADS)
        return false;
    while ((at = strstr(last, " gives ")))
        last = at + 7;
    if (sscanf(last, "%" SCNx64, &d->gpu) != 1)
        return false;
    for (d->word = 0; d->word < PROG_WORDS; d->word++)
        if (!strcmp(replay_register(d->word, candidate), name))
            return true;
    return false;
}

static bool append(difference *d, const char *line)
{
    size_t n = strlen(line);
    if (d->length + n + 1 > d->capacity) {
        size_t capacity = 2 * (d->length + n) + 4096;
        char *more = realloc(d->ptx, capacity);
        if (!more)
            return false;
        d->ptx = more;
        d->capacity = capacity;
    }
    memcpy(d->ptx + d->length, line, n + 1);
    d->length += n;
    return true;
}

static bool run(runner *r, const difference *d, const uint64_t *in, uint64_t *out, uint64_t *word)
{
    CUmodule module;
    bool ok = runner_load(r, d->ptx, &module);
    if (ok) {
        memset(out, 0, WORDS * sizeof(*out));
        ok = runner_run(r, module, "k", PROG_BLOCKS, PROG_THREADS, in, WORDS * sizeof(*in), out, WORDS * sizeof(*out),
                        THREADS);
        r->Unload(module);
    }
    *word = out[(size_t)d->thread * PROG_WORDS + d->word];
    if (!ok)
        fprintf(stderr, "seed %" PRIu64 ": %s\n", d->seed, r->error);
    return ok;
}

static void run_again(const difference *d, runner *sim, runner *gpu, uint64_t *in, uint64_t *out, tally *t)
{
    char name[8];
    uint64_t word, again, unoptimized;
    program_inputs(&(program){.seed = d->seed}, in);
    if (!run(sim, d, in, out, &word)) {
        t->failed = true;
        return;
    }
    t->run++;
    t->as_gpu += word == d->gpu;
    t->as_before += word == d->sim;
    printf("seed %" PRIu64 ", thread %u, %s: the simulator gave %" PRIx64 ", gives %" PRIx64 "; the GPU gave %" PRIx64,
           d->seed, d->thread, replay_register(d->word, name), d->sim, word, d->gpu);
    if (gpu) {
        bool ok = run(gpu, d, in, out, &again);
        gpu->unoptimized = true;
        ok = run(gpu, d, in, out, &unoptimized) && ok;
        gpu->unoptimized = false;
        t->failed |= !ok;
        t->gpu_again += ok && again == d->gpu;
        t->gpu_unoptimized += ok && unoptimized == word;
        printf(", gives %" PRIx64 ", without optimisation %" PRIx64 "%s", again, unoptimized,
               unoptimized == word ? "" : ", not what the simulator gives");
    }
    printf("\n");
}

int replay(const char *path, runner *sim, runner *gpu)
{
    static char line[16384];
    FILE *f = fopen(path, "r");
    uint64_t *in = malloc(WORDS * sizeof(*in)), *out = malloc(WORDS * sizeof(*out));
    difference d = {0};
    tally t = {0};
    bool have = false, ptx = false;
    if (!f)
        fprintf(stderr, "ptx_diff: cannot open %s\n", path);
    t.failed = !f || !in || !out;
    while (!t.failed && fgets(line, sizeof(line), f)) {
        if (!ptx && !strncmp(line, "seed ", 5)) {
            have = read_head(line, &d);
            d.length = 0;
        }
        ptx |= have && !strncmp(line, ".version", 8);
        if (!ptx)
            continue;
        t.failed = !append(&d, line);
        if (!t.failed && !strcmp(line, "}\n")) {
            run_again(&d, sim, gpu, in, out, &t);
            have = ptx = false;
        }
    }
    printf("%u kernels: in %u the simulator gives what the GPU gave, in %u what it gave itself\n", t.run, t.as_gpu,
           t.as_before);
    if (gpu)
        printf("the GPU gives the same again in %u, and without optimisation what the simulator gives in %u\n",
               t.gpu_again, t.gpu_unoptimized);
    if (f)
        fclose(f);
    free(in);
    free(out);
    free(d.ptx);
    return t.failed || !t.run ? 2 : t.as_gpu < t.run;
}

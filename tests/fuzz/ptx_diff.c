/* SPDX-License-Identifier: MIT
 *
 * Differential fuzzing of the simulator: random PTX kernels, run through two of three ways and compared bit for bit.
 *
 *     ptx_diff [--count N] [--seed S] [--length L] [--reference] [--gpu-only] [--approximate] [--emit S] [--batch B]
 *              [--max N]
 *
 * By default kernels S, S + 1, ... run on the GPU (libcuda.so.1, or what STITCH_CUDA_DRIVER names) and in the
 * simulator.
 * --reference compares the simulator with the evaluator in C instead, and needs no GPU; --gpu-only compares the GPU
 * with the evaluator. --approximate also uses the special functions. --emit
 * prints kernel S. A difference is reduced to the fewest statements that still show it, and printed with its PTX; after
 * --max of them (5) the run ends early, and says after how many kernels. Exit:
 * 0 none found, 1 found, 2 something else failed, 77 no GPU.
 */
#include "ptx_program.h"
#include "runner.h"

#include <time.h>

void *stitch__sim_get_proc(const char *symbol, void *userdata);

enum { THREADS = PROG_BLOCKS * PROG_THREADS, WORDS = THREADS * PROG_WORDS, MAX_BATCH = 64 };

typedef struct side {
    const char *name;
    runner *driver; /* NULL: the evaluator */
} side;

typedef struct fuzzer {
    side sides[2];
    const instr *list;
    size_t list_count;
    program_options options;
    uint64_t *in, *out[2]; /* WORDS each */
} fuzzer;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const char *register_name(unsigned word, char buffer[8])
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

/* Runs one program of a loaded module (or evaluates it). */
static bool run_side(fuzzer *f, int which, const program *p, CUmodule module, const char *kernel)
{
    side *s = &f->sides[which];
    if (!s->driver) {
        memcpy(f->out[which], f->in, WORDS * sizeof(uint64_t));
        program_evaluate(p, f->out[which]);
        return true;
    }
    memset(f->out[which], 0, WORDS * sizeof(uint64_t));
    return runner_run(s->driver, module, kernel, PROG_BLOCKS, PROG_THREADS, f->in, WORDS * sizeof(uint64_t),
                      f->out[which], WORDS * sizeof(uint64_t), THREADS);
}

/* -1: equal; else the first word that differs. -2: a side failed (message printed when `loud`). */
static long compare(fuzzer *f, const program *p, const CUmodule *modules, const char *kernel, bool loud)
{
    program_inputs(p, f->in);
    for (int which = 0; which < 2; which++) {
        if (!run_side(f, which, p, modules[which], kernel)) {
            if (loud)
                fprintf(stderr, "seed %llu: %s: %s\n", (unsigned long long)p->seed, f->sides[which].name,
                        f->sides[which].driver->error);
            return -2;
        }
    }
    for (long i = 0; i < WORDS; i++)
        if (f->out[0][i] != f->out[1][i])
            return i;
    return -1;
}

static bool load_both(fuzzer *f, const char *ptx, CUmodule *modules, bool loud)
{
    memset(modules, 0, 2 * sizeof(*modules));
    for (int which = 0; which < 2; which++) {
        runner *driver = f->sides[which].driver;
        if (driver && !runner_load(driver, ptx, &modules[which])) {
            if (loud)
                fprintf(stderr, "%s: %s\n", f->sides[which].name, driver->error);
            if (which && f->sides[0].driver)
                f->sides[0].driver->Unload(modules[0]);
            return false;
        }
    }
    return true;
}

static void unload_both(fuzzer *f, CUmodule *modules)
{
    for (int which = 0; which < 2; which++)
        if (f->sides[which].driver)
            f->sides[which].driver->Unload(modules[which]);
}

static long try_alone(fuzzer *f, const program *p, bool loud)
{
    prog_text t = {0};
    CUmodule modules[2];
    long r = -2;
    prog_begin(&t, 90);
    program_print(p, &t, "k");
    if (!t.failed && load_both(f, t.at, modules, loud)) {
        r = compare(f, p, modules, "k", loud);
        unload_both(f, modules);
    }
    free(t.at);
    return r;
}

/* Takes statements out while the outcome stays a difference (or a failure, if it was one). */
static long reduce(fuzzer *f, program *p, long outcome)
{
    bool failure = outcome == -2, changed = true;
    while (changed) {
        changed = false;
        for (size_t chunk = p->count / 2 + 1; chunk > 0; chunk /= 2) {
            for (size_t i = 0; i < p->count; i += chunk) {
                bool before[4096], any = false;
                size_t n = p->count - i < chunk ? p->count - i : chunk;
                if (n > 4096)
                    continue;
                for (size_t k = 0; k < n; k++) {
                    before[k] = p->at[i + k].removed;
                    any |= !before[k];
                    p->at[i + k].removed = true;
                }
                long r = any ? try_alone(f, p, false) : -1;
                if (any && (failure ? r == -2 : r >= 0)) {
                    outcome = r;
                    changed = true;
                } else {
                    for (size_t k = 0; k < n; k++)
                        p->at[i + k].removed = before[k];
                }
            }
        }
    }
    return outcome;
}

static void report(fuzzer *f, program *p)
{
    char name[8];
    long at = reduce(f, p, try_alone(f, p, false));
    if (at < 0) {
        printf("seed %llu: fails; reduced:\n", (unsigned long long)p->seed);
        try_alone(f, p, true);
    } else {
        try_alone(f, p, false); /* the outputs of the reduced program */
        printf("seed %llu: thread %ld, %s: %s gives %llx, %s gives %llx; reduced:\n", (unsigned long long)p->seed,
               at / PROG_WORDS, register_name((unsigned)(at % PROG_WORDS), name), f->sides[0].name,
               (unsigned long long)f->out[0][at], f->sides[1].name, (unsigned long long)f->out[1][at]);
        const uint64_t *w = f->in + at / PROG_WORDS * PROG_WORDS;
        for (unsigned i = 0; i < PROG_WORDS; i++)
            printf("%s=%llx ", register_name(i, name), (unsigned long long)w[i]);
        printf("\n");
    }
    for (size_t i = 0; i < p->count; i++)
        if (!p->at[i].removed && p->at[i].kind == STMT_INSTR)
            printf("  uses %s\n", p->list[p->at[i].instr].name);
    prog_text t = {0};
    prog_begin(&t, 90);
    program_print(p, &t, "k");
    if (!t.failed)
        fputs(t.at, stdout);
    free(t.at);
    fflush(stdout);
}

/* Kernels seed .. seed + n - 1 in one module. */
static int run_batch(fuzzer *f, uint64_t seed, unsigned n, int *found)
{
    program programs[MAX_BATCH];
    prog_text t = {0};
    CUmodule modules[2];
    int rc = 0;
    prog_begin(&t, 90);
    for (unsigned i = 0; i < n; i++) {
        char kernel[24];
        program_make(&programs[i], seed + i, f->list, f->list_count, &f->options);
        snprintf(kernel, sizeof(kernel), "k%u", i);
        program_print(&programs[i], &t, kernel);
        t.failed |= programs[i].failed;
    }
    if (t.failed) {
        rc = 2;
        goto out;
    }
    if (!load_both(f, t.at, modules, true)) { /* find which */
        for (unsigned i = 0; i < n; i++) {
            if (try_alone(f, &programs[i], false) == -2) {
                report(f, &programs[i]);
                (*found)++;
                break;
            }
        }
        rc = *found ? 0 : 2;
        goto out;
    }
    for (unsigned i = 0; i < n; i++) {
        char kernel[24];
        snprintf(kernel, sizeof(kernel), "k%u", i);
        if (compare(f, &programs[i], modules, kernel, true) != -1) {
            report(f, &programs[i]);
            (*found)++;
        }
    }
    unload_both(f, modules);
out:
    for (unsigned i = 0; i < n; i++)
        program_free(&programs[i]);
    free(t.at);
    return rc;
}

/* Instructions that the simulator refuses are no difference: leave them out. Their names are printed. */
static bool *probe(runner *driver, const instr *list, size_t count)
{
    enum { GROUP = 50 };
    bool *skip = calloc(count, sizeof(*skip));
    uint64_t in[3] = {1, 1, 1}, out = 0;
    for (size_t first = 0; skip && first < count; first += GROUP) {
        size_t n = count - first < GROUP ? count - first : GROUP;
        char *ptx = instr_kernels(list + first, n, 90);
        CUmodule module;
        bool loaded = ptx && runner_load(driver, ptx, &module);
        free(ptx);
        for (size_t i = 0; i < n; i++) {
            char kernel[24];
            snprintf(kernel, sizeof(kernel), "k%zu", i);
            skip[first + i] =
                !loaded || !runner_run(driver, module, kernel, 1, 1, in, sizeof(in), &out, sizeof(out), 1);
            if (skip[first + i])
                printf("refused by the simulator, not used: %s\n", list[first + i].name);
        }
        if (loaded)
            driver->Unload(module);
    }
    return skip;
}

int main(int argc, char **argv)
{
    static runner sim, gpu;
    fuzzer f = {.options = {.length = 40}};
    uint64_t count = 1000, seed = 1, emit = 0, done = 0;
    unsigned batch = 16;
    long max = 5;
    bool reference = false, gpu_only = false, print = false;
    bool *skip = NULL;
    int found = 0, rc = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (!strcmp(argv[i], "--reference"))
            reference = true;
        else if (!strcmp(argv[i], "--gpu-only"))
            gpu_only = true;
        else if (!strcmp(argv[i], "--approximate"))
            f.options.approximate = true;
        else if (!strcmp(argv[i], "--count") && ++i)
            count = strtoull(value, NULL, 0);
        else if (!strcmp(argv[i], "--seed") && ++i)
            seed = strtoull(value, NULL, 0);
        else if (!strcmp(argv[i], "--length") && ++i)
            f.options.length = (unsigned)strtoul(value, NULL, 0);
        else if (!strcmp(argv[i], "--batch") && ++i)
            batch = (unsigned)strtoul(value, NULL, 0);
        else if (!strcmp(argv[i], "--max") && ++i)
            max = strtol(value, NULL, 0);
        else if (!strcmp(argv[i], "--emit") && ++i) {
            emit = strtoull(value, NULL, 0);
            print = true;
        } else {
            fprintf(stderr, "ptx_diff: unknown option %s; the head of ptx_diff.c lists them\n", argv[i]);
            return 2;
        }
    }
    batch = batch < 1 ? 1 : batch > MAX_BATCH ? MAX_BATCH : batch;
    instr *list = instr_list(&f.list_count);
    f.list = list;
    f.in = malloc(WORDS * sizeof(uint64_t));
    f.out[0] = malloc(WORDS * sizeof(uint64_t));
    f.out[1] = malloc(WORDS * sizeof(uint64_t));
    if (!list || !f.in || !f.out[0] || !f.out[1]) {
        rc = 2;
        goto out;
    }
    if (print) {
        program p;
        prog_text t = {0};
        program_make(&p, emit, f.list, f.list_count, &f.options);
        prog_begin(&t, 90);
        program_print(&p, &t, "k");
        if (!t.failed)
            fputs(t.at, stdout);
        free(t.at);
        program_free(&p);
        goto out;
    }
    f.sides[0] = (side){"the simulator", &sim};
    f.sides[1] = (side){"the reference", NULL};
    if (!reference) {
        void *driver = runner_dlopen();
        if (!driver) {
            printf("SKIP: no CUDA driver here (%s)\n", dlerror());
            rc = 77;
            goto out;
        }
        if (!runner_open(&gpu, runner_dlsym, driver)) {
            fprintf(stderr, "ptx_diff: GPU: %s\n", gpu.error);
            rc = 2;
            goto out;
        }
        printf("%s, driver %d\n", gpu.name, gpu.driver_version);
        f.sides[1] = (side){gpu.name, &gpu};
        if (gpu_only)
            f.sides[0] = (side){"the reference", NULL};
    }
    if (f.sides[0].driver && !runner_open(&sim, stitch__sim_get_proc, NULL)) {
        fprintf(stderr, "ptx_diff: simulator: %s\n", sim.error);
        rc = 2;
        goto out;
    }
    if (f.sides[0].driver)
        f.options.skip = skip = probe(&sim, list, f.list_count);
    double start = seconds();
    while (done < count && !rc && found < max) {
        unsigned size = (unsigned)(count - done < batch ? count - done : batch);
        rc = run_batch(&f, seed + done, size, &found);
        done += size;
    }
    printf("%d of %llu kernels differ, %.1f s%s\n", found, (unsigned long long)done, seconds() - start,
           done < count ? " (ended early)" : "");
    if (!rc && found)
        rc = 1;
out:
    free(list);
    free(skip);
    free(f.in);
    free(f.out[0]);
    free(f.out[1]);
    return rc;
}

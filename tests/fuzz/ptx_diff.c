/* SPDX-License-Identifier: MIT
 *
 * Differential fuzzing of the simulator: random PTX kernels, run through two of three ways and compared bit for bit.
 *
 *     ptx_diff [--count N] [--seed S] [--length L] [--reference] [--gpu-only] [--approximate] [--plain] [--batch B]
 *              [--max N]
 *     ptx_diff --emit S [--length L] [--approximate] [--plain]
 *     ptx_diff --replay FILE [--reference]
 *
 * By default kernels S, S + 1, ... run on the GPU (libcuda.so.1, or what STITCH_CUDA_DRIVER names) and in the
 * simulator.
 * --reference compares the simulator with the evaluator in C instead, and needs no GPU; --gpu-only compares the GPU
 * with the evaluator. --approximate also uses the special functions. --plain leaves the statements of a kernel to the
 * compiler as they are, whose mistakes then show: ptx_program.c has a list. --emit prints kernel S.
 *
 * A difference is reduced to the fewest statements that still show it, and printed with its PTX; after --max of them
 * (5) the run ends early, and says after how many kernels. Where the GPU gives what the other side gives once its
 * compiler optimises nothing, the GPU contradicts itself: such kernels are printed too, but counted apart.
 *
 * --replay runs the reduced kernels of such a print again, and says how many of the GPU's answers the simulator gives
 * now; if there is a GPU and no --reference, it also says what that gives with and without optimisation.
 *
 * Exit: 0 none found, 1 found, 2 something else failed, 77 no GPU.
 */
#include "ptx_program.h"
#include "ptx_replay.h"

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
    uint64_t *in, *out[2];     /* WORDS each */
    int found, contradictions; /* kernels that differ: from both levels of optimisation, from the usual one alone */
} fuzzer;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
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

/* Whether the GPU agrees with the other side once its compiler optimises nothing. If it does not, it stays at that
 * level, so that the kernel is reduced to what is not the compiler's. */
static bool contradicts_itself(fuzzer *f, const program *p)
{
    runner *gpu = f->sides[1].driver;
    if (!gpu)
        return false;
    gpu->unoptimized = true;
    long r = try_alone(f, p, false);
    gpu->unoptimized = r >= 0;
    return r == -1;
}

static void report(fuzzer *f, program *p)
{
    char name[8];
    long at = try_alone(f, p, false);
    bool contradiction = at >= 0 && contradicts_itself(f, p);
    at = reduce(f, p, at);
    if (at < 0) {
        printf("seed %llu: fails; reduced:\n", (unsigned long long)p->seed);
        try_alone(f, p, true);
    } else {
        try_alone(f, p, false); /* the outputs of the reduced program */
        printf("seed %llu: thread %ld, %s: %s gives %llx, %s gives %llx; reduced:\n", (unsigned long long)p->seed,
               at / PROG_WORDS, replay_register((unsigned)(at % PROG_WORDS), name), f->sides[0].name,
               (unsigned long long)f->out[0][at], f->sides[1].name, (unsigned long long)f->out[1][at]);
        const uint64_t *w = f->in + at / PROG_WORDS * PROG_WORDS;
        for (unsigned i = 0; i < PROG_WORDS; i++)
            printf("%s=%llx ", replay_register(i, name), (unsigned long long)w[i]);
        printf("\n");
    }
    if (contradiction)
        printf("  without optimisation %s gives the same as %s\n", f->sides[1].name, f->sides[0].name);
    f->contradictions += contradiction;
    f->found += !contradiction;
    if (f->sides[1].driver)
        f->sides[1].driver->unoptimized = false;
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
static int run_batch(fuzzer *f, uint64_t seed, unsigned n)
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
                break;
            }
        }
        rc = f->found ? 0 : 2;
        goto out;
    }
    for (unsigned i = 0; i < n; i++) {
        char kernel[24];
        snprintf(kernel, sizeof(kernel), "k%u", i);
        if (compare(f, &programs[i], modules, kernel, true) != -1)
            report(f, &programs[i]);
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

typedef struct settings {
    uint64_t count, seed, emit;
    unsigned batch;
    long max;
    bool reference, gpu_only, print;
    const char *replay;
} settings;

static bool parse(int argc, char **argv, settings *o, program_options *options)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (!strcmp(argv[i], "--reference"))
            o->reference = true;
        else if (!strcmp(argv[i], "--gpu-only"))
            o->gpu_only = true;
        else if (!strcmp(argv[i], "--approximate"))
            options->approximate = true;
        else if (!strcmp(argv[i], "--plain"))
            options->plain = true;
        else if (!strcmp(argv[i], "--count") && ++i)
            o->count = strtoull(value, NULL, 0);
        else if (!strcmp(argv[i], "--seed") && ++i)
            o->seed = strtoull(value, NULL, 0);
        else if (!strcmp(argv[i], "--length") && ++i)
            options->length = (unsigned)strtoul(value, NULL, 0);
        else if (!strcmp(argv[i], "--batch") && ++i)
            o->batch = (unsigned)strtoul(value, NULL, 0);
        else if (!strcmp(argv[i], "--max") && ++i)
            o->max = strtol(value, NULL, 0);
        else if (!strcmp(argv[i], "--replay") && ++i)
            o->replay = value;
        else if (!strcmp(argv[i], "--emit") && ++i) {
            o->emit = strtoull(value, NULL, 0);
            o->print = true;
        } else {
            fprintf(stderr, "ptx_diff: unknown option %s; the head of ptx_diff.c lists them\n", argv[i]);
            return false;
        }
    }
    o->batch = o->batch < 1 ? 1 : o->batch > MAX_BATCH ? MAX_BATCH : o->batch;
    return true;
}

static void print_kernel(fuzzer *f, uint64_t seed)
{
    program p;
    prog_text t = {0};
    program_make(&p, seed, f->list, f->list_count, &f->options);
    prog_begin(&t, 90);
    program_print(&p, &t, "k");
    if (!t.failed)
        fputs(t.at, stdout);
    free(t.at);
    program_free(&p);
}

/* Who is compared with whom. 0, or the exit status. */
static int open_sides(fuzzer *f, const settings *o, runner *sim, runner *gpu)
{
    f->sides[0] = (side){"the simulator", sim};
    f->sides[1] = (side){"the reference", NULL};
    if (!o->reference) {
        void *driver = runner_dlopen();
        if (driver) {
            if (!runner_open(gpu, runner_dlsym, driver)) {
                fprintf(stderr, "ptx_diff: GPU: %s\n", gpu->error);
                return 2;
            }
            printf("%s, driver %d\n", gpu->name, gpu->driver_version);
            f->sides[1] = (side){gpu->name, gpu};
            if (o->gpu_only)
                f->sides[0] = (side){"the reference", NULL};
        } else if (!o->replay) {
            printf("SKIP: no CUDA driver here (%s)\n", dlerror());
            return 77;
        }
    }
    if (f->sides[0].driver && !runner_open(sim, stitch__sim_get_proc, NULL)) {
        fprintf(stderr, "ptx_diff: simulator: %s\n", sim->error);
        return 2;
    }
    return 0;
}

static int fuzz(fuzzer *f, const settings *o)
{
    uint64_t done = 0;
    int rc = 0;
    bool *skip = f->sides[0].driver ? probe(f->sides[0].driver, f->list, f->list_count) : NULL;
    f->options.skip = skip;
    double start = seconds();
    while (done < o->count && !rc && f->found + f->contradictions < o->max) {
        unsigned size = (unsigned)(o->count - done < o->batch ? o->count - done : o->batch);
        rc = run_batch(f, o->seed + done, size);
        done += size;
    }
    printf("%d of %llu kernels differ, ", f->found, (unsigned long long)done);
    if (f->sides[1].driver)
        printf("in %d the GPU contradicts itself, ", f->contradictions);
    printf("%.1f s%s\n", seconds() - start, done < o->count ? " (ended early)" : "");
    free(skip);
    return rc ? rc : f->found > 0;
}

int main(int argc, char **argv)
{
    static runner sim, gpu;
    fuzzer f = {.options = {.length = 40}};
    settings o = {.count = 1000, .seed = 1, .batch = 16, .max = 5};
    int rc = 2;
    if (!parse(argc, argv, &o, &f.options))
        return 2;
    instr *list = instr_list(&f.list_count);
    f.list = list;
    f.in = malloc(WORDS * sizeof(uint64_t));
    f.out[0] = malloc(WORDS * sizeof(uint64_t));
    f.out[1] = malloc(WORDS * sizeof(uint64_t));
    if (list && f.in && f.out[0] && f.out[1]) {
        if (o.print) {
            print_kernel(&f, o.emit);
            rc = 0;
        } else if (!(rc = open_sides(&f, &o, &sim, &gpu))) {
            rc = o.replay ? replay(o.replay, &sim, f.sides[1].driver) : fuzz(&f, &o);
        }
    }
    free(list);
    free(f.in);
    free(f.out[0]);
    free(f.out[1]);
    return rc;
}

/* SPDX-License-Identifier: MIT
 *
 * Stage time. Candidate and main baseline alternate; every timed run has new input contents, poisoned outputs and a
 * flushed L2 cache, and its outputs are compared with the reference.
 *
 * Where both are in workers they alternate in blocks of a few runs: the device takes longer to change from one process
 * to another than many programs run. The outputs of each run of a block are kept, and checked after it. Blocks take
 * turns with the addresses of inputs and outputs: where they lie in memory is worth a per cent or two to short kernels,
 * and two processes never have the same places.
 */
#include "verify/verify.h"

#include "cuda/clocks.h"

#define LEAST_RUNS   10
#define CLOCKS_EVERY 10           /* iterations */
#define OTHERS_EVERY 10           /* checked iterations: then baselines are checked, too */
#define KEPT_BYTES   (256u << 20) /* of outputs of a block, or of copies of inputs, for each side */
#define BLOCKS       8            /* at least, if there are so many runs: each order with each choice of addresses */
#define BLOCK_US     20000.0      /* a side's runs in a row, by the device's time: what matters beyond that is drift */

/* One side of the measurement: the candidate, or a baseline. What a program needs beside its kernels (another process,
 * guarded memory) must cost both sides the same: where the candidate is in a worker, a baseline that is a program gets
 * a worker of its own, in which no candidate has ever run. */
typedef struct side {
    stitch__timing *timing;
    CUdeviceptr *set;          /* where its outputs are compared */
    stitch__oracle *oracle;    /* of a baseline in this process; NULL: driven through `program` */
    stitch__candidate program; /* the candidate, or a baseline in a worker */
    stitch__worker *worker;    /* of that baseline */
    bool candidate;
    bool broken;      /* a baseline that failed: not measured further */
    uint32_t kept;    /* outputs of so many runs in a row have room; 0: of one, where the program wrote them */
    uint64_t *hashes; /* of those, a row of tensors for each run */
} side;

typedef struct timer {
    stitch__verify *v;
    CUevent start, stop;
    CUdeviceptr flush;
    uint64_t flush_bytes;
    size_t side_count;
    side *sides; /* the candidate, the main baseline, others */
    stitch__trial_output *outputs;
    int64_t checking_ns; /* spent on checking outputs of timed runs */
    bool can_move;       /* inputs are small enough to be there twice */
} timer;

/* Iterations that are measured together. */
typedef struct block {
    size_t number;       /* of the block */
    size_t first, count; /* iterations; count 1: nothing need be kept */
    bool check;          /* all of them, and not only those that always are */
    bool last;           /* none follow */
    uint64_t keys[STITCH__BLOCK];
} block;

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int add_name(stitch__verify *v, stitch__timing *t, const char *name, int precision, stitch_error **err)
{
    t->precision = precision;
    return stitch__report_set(v->report, &t->name, name, 255, err);
}

/* A baseline that cannot be measured is said so and left out: it is not the candidate's fault. What it had measured
 * before does not count. In a worker it can lose that one only, not this process's context. */
static int drop_baseline(stitch__verify *v, side *s, int rc, stitch_error **why, stitch_error **err)
{
    bool lost = (rc == STITCH_E_FAULT && !s->worker) || rc == STITCH_E_CANCELLED || rc == STITCH_E_TIMEOUT;
    s->broken = true;
    if (lost) {
        stitch__err_hand_on(err, why);
        return rc;
    }
    s->timing->count = 0;
    s->timing->checks = s->timing->checks_passed = 0;
    s->timing->max_abs = s->timing->max_rel = 0;
    s->timing->mismatches = 0;
    rc = stitch__report_note(v->report, err, "baseline %s could not be measured: %s", s->timing->name,
                             *why ? stitch_error_message(*why) : stitch_status_text(rc));
    stitch_error_free(*why);
    *why = NULL;
    return rc;
}

/* How something that was done with a baseline ended: `code` is the program's failure, `rc` any other one; *why, which
 * is used up, has the error of either. One whose worker is gone cannot be measured, whenever that shows. */
static int end_baseline_call(stitch__verify *v, side *s, int rc, int code, stitch_error **why, stitch_error **err)
{
    bool gone = rc && s->worker && stitch__worker_lost(s->worker) && rc != STITCH_E_CANCELLED && rc != STITCH_E_TIMEOUT;

    if (!rc && !code) {
        stitch_error_free(*why);
        return STITCH_OK;
    }
    if (rc && !gone) {
        stitch__err_hand_on(err, why);
        return rc;
    }
    return drop_baseline(v, s, rc ? rc : code, why, err);
}

static int prepare_in_worker(timer *t, side *s, stitch_error **why)
{
    stitch__verify *v = t->v;
    int code = STITCH_OK, rc = stitch__candidate_fill(v, &s->program, &v->scope, why);

    if (!rc)
        rc = stitch__candidate_afresh(v, &s->program, &v->scope, &code, why, why);
    return rc ? rc : code;
}

/* Compiled here, as the candidate was; the worker only loads. */
static int open_in_worker(timer *t, side *s, stitch_program *program, stitch_error **why)
{
    stitch__verify *v = t->v;
    const stitch__worker_options clean = {.role = STITCH__WORKER_BASELINE};
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    int rc = stitch_program_validate(program, v->task->iface, v->dev->info.arch, why);

    options.arch = v->dev->info.arch;
    options.ptx = v->dev->info.simulated;
    if (!rc)
        rc = stitch_program_compile(program, &options, NULL, why);
    if (!rc)
        rc = stitch__worker_acquire(v->ctx, &v->scope, &clean, &s->worker, why);
    if (!rc)
        rc = stitch__worker_open(s->worker, &v->scope, v->task, program, &s->program, why);
    if (!rc)
        rc = stitch__set_make(v, NULL, " (baseline)", &s->set, why);
    return rc ? rc : prepare_in_worker(t, s, why);
}

static int open_baseline(timer *t, side *s, const stitch__compute *what, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch_error *why = NULL;
    int rc;

    if (v->worker && what->program && !what->output_dtype) {
        rc = open_in_worker(t, s, what->program, &why);
        return rc ? drop_baseline(v, s, rc, &why, err) : STITCH_OK;
    }
    rc = stitch__oracle_open(v->task, what, v->dev, v->options.ops, v->options.op_count, &s->oracle, &why);

    if (!rc)
        rc = stitch__set_make(v, s->oracle, " (baseline)", &s->set, &why);
    if (!rc)
        rc = stitch__set_bound(v, s->oracle, s->set, &why);
    return rc ? drop_baseline(v, s, rc, &why, err) : STITCH_OK;
}

static int open_sides(timer *t, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch_report *r = v->report;
    size_t declared = v->task->baseline_count, count = declared ? declared : 1;
    bool recorded = !declared && v->task->reference.kind == STITCH__COMPUTE_TENSORS;
    int rc;

    t->sides = stitch__calloc(v->ctx, 1 + count, sizeof(*t->sides));
    t->outputs = stitch__calloc(v->ctx, stitch__output_count(v), sizeof(*t->outputs));
    r->baselines = stitch__calloc(v->ctx, count, sizeof(*r->baselines));
    if (!t->sides || !t->outputs || !r->baselines)
        return stitch__err_nomem(v->ctx, err);
    t->side_count = 1;
    t->sides[0] = (side){.timing = &r->candidate, .set = v->first, .program = v->candidate, .candidate = true};
    rc = add_name(v, &r->candidate, "candidate", v->task->precision, err);
    if (!rc && recorded) /* reading tensors from a file is nothing to be faster than */
        return stitch__report_note(r, err, "the task has no baseline, so that there is no speed-up");
    for (size_t i = 0; !rc && i < count; i++) {
        const stitch__compute *what = declared ? &v->task->baselines[i] : &v->task->reference;
        side *s = &t->sides[t->side_count++];
        s->timing = &r->baselines[r->baseline_count++];
        rc = add_name(v, s->timing, declared ? what->name : "the reference", declared ? what->precision : -1, err);
        if (!rc)
            rc = open_baseline(t, s, what, err);
    }
    return rc;
}

/* Room for outputs of several runs, where that is worth something. Without it, a run is a block. */
static int make_room(timer *t, side *s, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch_error *why = NULL;
    uint64_t bytes = 0, runs;
    int rc;

    if (s->oracle || s->broken || !s->program.ops->keep)
        return STITCH_OK;
    for (size_t i = 0; i < v->count; i++)
        bytes += v->infos[i].role == STITCH_TENSOR_OUTPUT ? v->infos[i].bytes : 0;
    runs = bytes ? KEPT_BYTES / bytes : STITCH__BLOCK;
    runs = runs < STITCH__BLOCK ? runs : STITCH__BLOCK;
    if (runs < 2)
        return STITCH_OK;
    s->hashes = stitch__calloc(v->ctx, (size_t)runs * v->count + 1, sizeof(*s->hashes));
    if (!s->hashes)
        return stitch__err_nomem(v->ctx, err);
    rc = s->program.ops->keep(s->program.self, &v->scope, (uint32_t)runs, &why);
    if (rc == STITCH_E_CANCELLED || rc == STITCH_E_TIMEOUT || rc == STITCH_E_IO) { /* IO: it is lost */
        if (!s->candidate)
            return end_baseline_call(v, s, rc, STITCH_OK, &why, err);
        stitch__err_hand_on(err, &why);
        return rc;
    }
    s->kept = rc ? 0 : (uint32_t)runs;
    stitch_error_free(why);
    return STITCH_OK;
}

static bool inputs_small(const stitch__verify *v)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < v->count; i++)
        bytes += v->infos[i].role == STITCH_TENSOR_INPUT ? v->infos[i].bytes : 0;
    return bytes <= KEPT_BYTES;
}

static int open_timer(timer *t, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch__device *dev = v->dev;
    int rc = open_sides(t, err);

    if (rc)
        return rc;
    STITCH__CU(dev->drv->EventCreate(&t->start, CU_EVENT_DEFAULT));
    STITCH__CU(dev->drv->EventCreate(&t->stop, CU_EVENT_DEFAULT));
    t->can_move = inputs_small(v);
    t->flush_bytes = v->options.flush_bytes;
    if (t->flush_bytes == 0)
        t->flush_bytes = stitch__flush_bytes(dev);
    if (t->flush_bytes == UINT64_MAX)
        t->flush_bytes = 0;
    if (t->flush_bytes)
        rc = stitch__mem_alloc(dev, (size_t)t->flush_bytes, "cache flush", &t->flush, err);
    v->report->flush_bytes = t->flush_bytes;
    v->report->warmup = v->options.warmup;
out:
    return rc;
}

static void close_timer(timer *t)
{
    stitch__verify *v = t->v;
    if (!stitch__abandoned(v)) {
        for (size_t i = 1; i < t->side_count; i++) {
            side *s = &t->sides[i];
            stitch__oracle_close(s->oracle);
            if (s->program.ops)
                s->program.ops->close(s->program.self);
            stitch__worker_release(s->worker, true);
            stitch__set_free(v, s->set);
        }
        if (t->start)
            v->dev->drv->EventDestroy(t->start);
        if (t->stop)
            v->dev->drv->EventDestroy(t->stop);
        stitch__mem_free(v->dev, t->flush);
    }
    for (size_t i = 0; i < t->side_count; i++)
        stitch_free(t->sides[i].hashes);
    stitch_free(t->sides);
    stitch_free(t->outputs);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static int wait_baseline(timer *t, int *code, stitch_error **why)
{
    stitch__verify *v = t->v;
    if (!*code)
        *code = stitch__stream_wait(v->dev, v->stream, &v->scope, "timing a baseline", why);
    return *code;
}

static int warm_up(timer *t, side *s, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch__run run = STITCH__RUN_INIT;
    int rc = STITCH_OK;
    for (int i = 0; !rc && !*code && i < v->options.warmup; i++) {
        if (!s->oracle) {
            rc = s->program.ops->run(s->program.self, &v->scope, &run, code, why, err);
            continue;
        }
        *code = stitch__oracle_run(s->oracle, v->stream, why);
        wait_baseline(t, code, why);
    }
    return rc;
}

/* One run of a baseline, measured as the runner measures the candidate. */
static int time_baseline(timer *t, side *s, double *us, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch__device *dev = v->dev;
    float ms = 0;
    bool more = false;
    int rc = stitch__clear_states(v, s->set, err);

    if (!rc)
        rc = stitch__poison(v, s->set, s->oracle, STITCH__POISON_A, err);
    if (rc)
        return rc;
    *code = stitch__oracle_ready(s->oracle, v->stream, why);
    if (*code)
        goto out;
    if (t->flush)
        STITCH__CU(dev->drv->MemsetD8Async(t->flush, 0x5a, (size_t)t->flush_bytes, v->stream));
    STITCH__CU(dev->drv->EventRecord(t->start, v->stream));
    *code = stitch__oracle_begin(s->oracle, v->stream, &more, why);
    if (!*code)
        *code = stitch__cu_check(dev, dev->drv->EventRecord(t->stop, v->stream), why, "recording the end of a run");
    if (!*code && more) /* its results lie elsewhere: taking them to the outputs is not its work */
        *code = stitch__oracle_finish(s->oracle, v->stream, why);
    if (wait_baseline(t, code, why))
        goto out;
    STITCH__CU(dev->drv->EventElapsedTime(&ms, t->start, t->stop));
    *us = (double)ms * 1000;
out:
    return rc;
}

static uint64_t seed_of(const timer *t, size_t iteration)
{
    return stitch__seed_derive(t->v->options.seed, STITCH__SEED_TIMED, iteration);
}

/* The timed runs of a side in a block. */
static int timed_runs(timer *t, side *s, const block *b, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = t->v;
    const stitch__candidate *c = &s->program;
    stitch__timed_block runs = {.run = STITCH__RUN_INIT, .count = (uint32_t)b->count};
    double us[STITCH__BLOCK] = {0};
    int rc = STITCH_OK;

    runs.run.poison = STITCH__POISON_A;
    runs.run.flush_bytes = t->flush_bytes;
    runs.run.draw = 1;
    runs.run.seed = seed_of(t, b->first);
    for (size_t k = 0; k < b->count; k++) {
        runs.seeds[k] = seed_of(t, b->first + k);
        runs.keys[k] = b->keys[k];
    }
    if (b->count > 1) {
        runs.run.moved = t->can_move && b->number & 2;
        runs.run.set = b->number & 4 ? 1 : 0;
    }
    if (s->oracle) {
        rc = stitch__fill_inputs(v, runs.run.seed, NULL, err);
        if (!rc)
            rc = time_baseline(t, s, us, code, why, err);
    } else if (b->count == 1) {
        rc = c->ops->timed_run(c->self, &v->scope, &runs.run, us, code, why, err);
    } else {
        rc = c->ops->timed_block(c->self, &v->scope, &runs, us, s->hashes, code, why, err);
    }
    for (size_t k = 0; !rc && !*code && k < b->count; k++)
        rc = stitch__timing_add(v->report, s->timing, us[k], err);
    return rc;
}

static int enqueue_hashes(timer *t, side *s, uint64_t key, stitch_error **err)
{
    stitch__verify *v = t->v;
    int rc = STITCH_OK;

    for (size_t i = 0; !rc && i < v->count; i++)
        if (v->infos[i].role == STITCH_TENSOR_OUTPUT)
            rc = stitch__hash_enqueue(&v->hasher, v->stream, s->set[i], v->infos[i].bytes, key, i, err);
    return rc;
}

/* What a run left is what it left when it ended: no later run of the block has written to it. */
static int same_hashes(timer *t, side *s, size_t k, bool *same, stitch_error **err)
{
    stitch__verify *v = t->v;
    const uint64_t *hashes = s->hashes + k * v->count;
    int rc = stitch__hash_fetch(&v->hasher, v->stream, &v->scope, "hashing outputs", v->hashes_after, err);

    *same = true;
    for (size_t i = 0; !rc && i < v->count; i++)
        if (v->infos[i].role == STITCH_TENSOR_OUTPUT)
            *same = *same && hashes[i] == v->hashes_after[i];
    return rc;
}

static bool all_pass(const timer *t)
{
    bool pass = true;
    for (size_t i = 0; i < stitch__output_count(t->v); i++)
        pass = pass && stitch__output_passes(&t->outputs[i]);
    return pass;
}

/* The outputs of run k of a block against the reference, which has just run on its inputs. *kept: see above. */
static int check_run(timer *t, side *s, const block *b, size_t k, bool *kept, stitch_error **err)
{
    stitch__verify *v = t->v;
    int set = b->count > 1 ? STITCH__SETS + (int)k : 0;
    bool good = true;
    int rc = s->oracle ? STITCH_OK : s->program.ops->fetch(s->program.self, &v->scope, set, s->set, v->stream, err);

    *kept = true;
    if (!rc && b->count > 1)
        rc = enqueue_hashes(t, s, b->keys[k], err);
    if (!rc)
        rc = stitch__compare_set(v, s->set, s->oracle, NULL, t->outputs, err);
    if (!rc && b->count > 1)
        rc = same_hashes(t, s, k, kept, err);
    if (!rc)
        good = all_pass(t);
    if (!rc && !good && s->candidate) {
        rc = stitch__budget_apply(v, t->outputs, err);
        good = all_pass(t);
    }
    for (size_t i = 0; !rc && i < stitch__output_count(v); i++) {
        const stitch__comparison *c = &t->outputs[i].c;
        s->timing->max_abs = c->max_abs > s->timing->max_abs ? c->max_abs : s->timing->max_abs;
        s->timing->max_rel = c->max_rel > s->timing->max_rel ? c->max_rel : s->timing->max_rel;
        s->timing->mismatches += c->mismatches;
    }
    s->timing->checks++;
    s->timing->checks_passed += good && *kept;
    return rc;
}

/* A checked run of the candidate was wrong: the stage fails, with what was wrong. */
static int wrong_run(timer *t, size_t iteration, stitch_error **why)
{
    stitch__verify *v = t->v;
    stitch__buf b;
    char *text;
    int rc;

    stitch__buf_init(&b, v->ctx);
    for (size_t k = 0; k < stitch__output_count(v); k++)
        if (!stitch__output_passes(&t->outputs[k])) {
            stitch__describe_comparison(&b, v->report, &t->outputs[k]);
            break;
        }
    text = stitch__buf_take(&b, NULL);
    if (!text)
        return stitch__err_nomem(v->ctx, why);
    rc = stitch__err(v->ctx, why, STITCH_E_VALIDATE, "right in the trials, but wrong in timed run %zu: %s",
                     iteration + 1, text);
    stitch_free(text);
    return rc;
}

/* Draws the inputs here as well: a side in a worker has its own, and until now nothing else ran on the device. Nobody
 * waits for it before the comparison does. */
static int run_reference(stitch__verify *v, uint64_t seed, stitch_error **err)
{
    int rc = stitch__fill_inputs(v, seed, NULL, err);
    if (!rc)
        rc = stitch__clear_states(v, v->want, err);
    return rc ? rc : stitch__oracle_run(v->oracle, v->stream, err);
}

/* What a checked run of a side made. */
static int check_side(timer *t, side *s, const block *b, size_t k, int *code, stitch_error **why, stitch_error **err)
{
    size_t i = b->first + k;
    bool kept;
    int rc;

    if (!s->candidate) {
        stitch_error *baseline_why = NULL;
        rc = check_run(t, s, b, k, &kept, &baseline_why);
        return end_baseline_call(t->v, s, rc, STITCH_OK, &baseline_why, err);
    }
    rc = check_run(t, s, b, k, &kept, err);
    if (rc || s->timing->checks == s->timing->checks_passed)
        return rc;
    *code = kept ? wrong_run(t, i, why)
                 : stitch__err(t->v->ctx, why, STITCH_E_VALIDATE,
                               "the outputs of timed run %zu were written to after it had ended", i + 1);
    return STITCH_OK;
}

static int check_block(timer *t, const block *b, size_t sides, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = t->v;
    size_t total = (size_t)v->options.iterations;
    size_t secret = (size_t)(stitch__seed_derive(v->options.seed, STITCH__SEED_CHECK, 0) % total);
    int64_t began = stitch__now_ns();
    int rc = STITCH_OK;

    for (size_t k = 0; !rc && !*code && k < b->count; k++) {
        size_t i = b->first + k;
        if (!b->check && i && i != secret && !(b->last && k + 1 == b->count))
            continue;
        rc = run_reference(v, seed_of(t, i), err);
        for (size_t n = 0; !rc && !*code && n < sides; n++)
            if (!t->sides[n].broken && (n == 0 || i % OTHERS_EVERY == 0 || (b->last && k + 1 == b->count)))
                rc = check_side(t, &t->sides[n], b, k, code, why, err);
    }
    t->checking_ns += stitch__now_ns() - began;
    return rc;
}

/* Candidate and main baseline, in turn one before the other, so that neither gains by its place; then the baselines
 * that take part. */
static int measure_block(timer *t, block *b, size_t sides, int *code, stitch_error **why, stitch_error **err)
{
    bool swap = b->number % 2 && sides > 1;
    int rc = STITCH_OK;

    for (size_t k = 0; k < b->count; k++)
        b->keys[k] = stitch__seed_derive(t->v->options.seed, STITCH__SEED_KEPT, b->first + k);
    for (size_t k = 0; !rc && !*code && k < sides; k++) {
        side *s = &t->sides[swap && k < 2 ? 1 - k : k];
        stitch_error *baseline_why = NULL;
        int side_code = STITCH_OK;
        if (s->broken)
            continue;
        if (s->candidate) {
            rc = timed_runs(t, s, b, code, why, err);
            continue;
        }
        rc = timed_runs(t, s, b, &side_code, &baseline_why, &baseline_why);
        rc = end_baseline_call(t->v, s, rc, side_code, &baseline_why, err);
    }
    return rc || *code ? rc : check_block(t, b, sides, code, why, err);
}

/* The first runs are alone: a program that is wrong ends there. Then as many as all sides have room for, and as are
 * short enough. */
static size_t block_size(const timer *t, size_t sides, size_t first, size_t total)
{
    size_t count = (total - 1 + BLOCKS - 1) / BLOCKS;

    if (first == 0)
        return 1;
    count = count < total - first ? count : total - first;
    count = count < STITCH__BLOCK ? count : STITCH__BLOCK;
    for (size_t k = 0; k < sides; k++) {
        const side *s = &t->sides[k];
        double us = s->timing->count ? s->timing->samples[s->timing->count - 1] : 0;
        size_t most = s->kept;
        if (s->broken)
            continue;
        if (us > 0 && BLOCK_US / us < (double)most)
            most = (size_t)(BLOCK_US / us);
        count = most < count ? most : count;
    }
    return count ? count : 1;
}

static void watch_clocks(timer *t)
{
    stitch__clock_range *c = &t->v->report->clocks;
    stitch__clock_sample now;

    if (!stitch__clocks_read(t->v->dev, &now))
        return;
    c->sm_low = !c->count || now.sm_mhz < c->sm_low ? now.sm_mhz : c->sm_low;
    c->sm_high = now.sm_mhz > c->sm_high ? now.sm_mhz : c->sm_high;
    c->memory_low = !c->count || now.memory_mhz < c->memory_low ? now.memory_mhz : c->memory_low;
    c->memory_high = now.memory_mhz > c->memory_high ? now.memory_mhz : c->memory_high;
    c->reasons |= now.reasons;
    c->count++;
}

static int warm_up_all(timer *t, int *code, stitch_error **why, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t k = 0; !rc && !*code && k < t->side_count; k++) {
        stitch_error *baseline_why = NULL;
        int side_code = STITCH_OK;
        if (t->sides[k].broken)
            continue;
        if (t->sides[k].candidate) {
            rc = warm_up(t, &t->sides[k], code, why, err);
            continue;
        }
        rc = warm_up(t, &t->sides[k], &side_code, &baseline_why, &baseline_why);
        rc = end_baseline_call(t->v, &t->sides[k], rc, side_code, &baseline_why, err);
    }
    return rc;
}

/* Every run of the candidate is checked while checking has taken less than half of the time budget; the first, the last
 * and one that nobody can know beforehand always are. Baselines are the task's own: some of their runs are. */
static int measure(timer *t, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = t->v;
    size_t total = (size_t)v->options.iterations, others = total / 4 > LEAST_RUNS ? total / 4 : LEAST_RUNS;
    int64_t budget = v->options.time_budget_ms * 1000000, end = stitch__now_ns() + budget;
    size_t done = 0, watched = 0, blocks = 0;
    int rc = warm_up_all(t, code, why, err);

    while (!rc && !*code && done < total) {
        bool out_of_time = done + 1 >= LEAST_RUNS && stitch__now_ns() > end;
        size_t sides = done < others || t->side_count <= 2 ? t->side_count : 2;
        block b = {.number = blocks++, .first = done, .count = out_of_time ? 1 : block_size(t, sides, done, total)};
        b.last = out_of_time || done + b.count == total;
        b.check = t->checking_ns < budget / 2;
        if (done >= watched || b.last) {
            watch_clocks(t);
            watched = done + CLOCKS_EVERY;
        }
        rc = measure_block(t, &b, sides, code, why, err);
        done += b.count;
        stitch__stage_progress(v, STITCH_STAGE_TIME, (int64_t)done, (int64_t)total);
        if (out_of_time && done < total) {
            if (!rc)
                rc = stitch__report_note(v->report, err,
                                         "timing ended after %zu of %zu runs: its time budget of %lld ms was spent",
                                         done, total, (long long)v->options.time_budget_ms);
            break;
        }
    }
    return rc;
}

/* A time that the device cannot have needed was not measured on the work that the task asks for. */
static int check_bound(timer *t, int *code, stitch_error **why, stitch_error **err)
{
    stitch_report *r = t->v->report;
    int rc = STITCH_OK;

    stitch__lower_bound(t->v, &r->bound);
    if (r->candidate.count && r->candidate.median < r->bound.us)
        rc = stitch__bound_confirm(t->v, &r->bound, err);
    if (!rc && r->candidate.count && r->candidate.median < r->bound.us)
        *code = stitch__err(t->v->ctx, why, STITCH_E_VALIDATE,
                            "faster than the device can be: %.3g us, but %s takes %.3g us at the peak rate",
                            r->candidate.median,
                            r->bound.memory_us >= r->bound.flops_us ? "reading the inputs and writing the outputs once"
                                                                    : "the number of operations that the task states",
                            r->bound.us);
    return rc;
}

/* Statistics of what was measured. */
static int conclude(timer *t, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch_report *r = v->report;
    uint64_t seed = stitch__seed_derive(v->options.seed, STITCH__SEED_BOOTSTRAP, 0);
    int rc = STITCH_OK;

    stitch__timing_finish(r, &r->candidate);
    for (size_t i = 0; i < r->baseline_count; i++)
        stitch__timing_finish(r, &r->baselines[i]);
    if (r->baseline_count && r->baselines[0].count && r->candidate.count) {
        size_t pairs = r->candidate.count < r->baselines[0].count ? r->candidate.count : r->baselines[0].count;
        rc = stitch__speedup_interval(v->ctx, r->baselines[0].samples, r->candidate.samples, pairs, seed,
                                      &r->speedup_low, &r->speedup_high, err);
    }
    return rc || *code ? rc : check_bound(t, code, why, err);
}

/* Weights are written once; nothing may have changed them since. */
static int check_weights(stitch__verify *v, int *code, stitch_error **why, stitch_error **err)
{
    size_t changed;
    int rc = stitch__find_changed(v, false, &changed, err);
    if (!rc && changed != SIZE_MAX)
        *code = stitch__err(v->ctx, why, STITCH_E_VALIDATE, "the program changed its weight %s while it was timed",
                            v->infos[changed].name);
    return rc;
}

/* Starts the workers of baselines and so on while others may use the device, then waits until nobody does. */
static int open_alone(timer *t, stitch__gpu_lock *lock, stitch_error **err)
{
    stitch__verify *v = t->v;
    char *unlocked = NULL;
    int rc = stitch__share_or_time(v, false, lock, NULL, err);

    if (!rc)
        rc = open_timer(t, err);
    stitch__gpu_lock_release(lock);
    if (!rc)
        rc = stitch__share_or_time(v, true, lock, &unlocked, err);
    if (!rc && unlocked)
        rc = stitch__report_note(v->report, err, "other verifications on this GPU were not kept away: %s", unlocked);
    stitch_free(unlocked);
    if (!rc && v->dev->drv->CtxResetPersistingL2Cache)
        v->report->l2_reset = v->dev->drv->CtxResetPersistingL2Cache() == CUDA_SUCCESS;
    return rc;
}

int stitch__stage_time(stitch__verify *v, stitch_error **err)
{
    timer t = {.v = v};
    stitch__gpu_lock lock = STITCH__GPU_LOCK_INIT;
    stitch_error *why = NULL;
    int code = STITCH_OK, rc;

    if (v->dev->info.simulated)
        return stitch__stage_end(v, STITCH_STAGE_TIME, STITCH_STAGE_SKIPPED, "the simulator reports no times", err);
    rc = open_alone(&t, &lock, err);
    if (!rc)
        rc = stitch__hash_tensors(v, false, err);
    if (!rc)
        rc = stitch__candidate_afresh(v, &v->candidate, &v->scope, &code, &why, err);
    for (size_t k = 0; !rc && !code && k < t.side_count; k++)
        rc = make_room(&t, &t.sides[k], err);
    if (!rc && !code)
        rc = measure(&t, &code, &why, err);
    if (!rc && !code)
        rc = stitch__exploit_after_timing(v, &code, &why, err);
    if (!rc && !code)
        rc = check_weights(v, &code, &why, err);
    if (!rc && !code)
        rc = v->candidate.ops->inspect(v->candidate.self, &v->scope, &code, &why, err);
    close_timer(&t);
    stitch__gpu_lock_release(&lock);
    if (!rc)
        rc = conclude(&t, &code, &why, err);
    if (rc) {
        stitch_error_free(why);
        return rc;
    }
    return stitch__stage_judge(v, STITCH_STAGE_TIME, code, &why, err);
}

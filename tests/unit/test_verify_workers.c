/* SPDX-License-Identifier: MIT
 *
 * Stage time with the candidate and the main baseline each in a worker, on a driver without a GPU: they are on the same
 * memory, either may be lost at any time, and the baseline is run in the candidate's worker as the control. Needs
 * NVRTC.
 *
 * Workers are runners of this process here (the linker puts the __wrap_ functions below in the place of the library's).
 */
#include <stddef.h>

#include "runner/runner.h"
#include "verify_fixture.h"
#include "worker/client.h"

enum { INPUT, WEIGHT, OUTPUT, TENSORS, MOST_WORKERS = 8 };

/* ---- workers ----------------------------------------------------------------------------------------------------- */

typedef struct fake_worker {
    stitch__worker w; /* what the verifier sees */
    bool taken;
    stitch__candidate inner; /* the runner at hand; ops NULL: there is none */
    stitch__buffer buffer;
    CUdeviceptr places[STITCH__SETS][TENSORS];
    _Alignas(256) float memory[STITCH__SETS][TENSORS][N];
    float kept[STITCH__BLOCK][N];
    uint32_t room; /* for outputs of so many runs */
    int opened, prepared;
    bool outside;           /* something is written around its memory, and nobody has looked */
    float last_prepared_on; /* the first input, when prepare was called */
} fake_worker;

static fake_worker workers[MOST_WORKERS];
static size_t worker_count;

/* What an operation is about to do. */
typedef enum event { OTHER, OPEN, FILL, PREPARE, WITHOUT_STEP, RUN_BLOCK, TIMED_RUN, KEEP, FETCH, INSPECT } event;

/* What shall happen. */
static struct {
    double slower_us[MOST_WORKERS]; /* whatever runs in a worker */
    double least_us[MOST_WORKERS];  /* by the host's clock; 0: it cannot tell */
    bool same_places, gone, writes_outside;
    bool spoils; /* the candidate without one of its steps: a weight, and what is around its memory */
    struct {
        event event;
        int worker, nth; /* of these events of this worker */
        int rc, code;    /* how it ends */
        bool lost;       /* and the worker with it */
    } fails;
    int seen, seen_before_control; /* of these events */
} will;

static int without_step;   /* runs without one */
static int64_t longest_ns; /* that one of them had */

static fake_worker *of(const void *w)
{
    return (fake_worker *)(uintptr_t)w; /* `w` is its first member */
}

/* Whether this operation fails: it is the one that shall, or nothing can be asked of the worker any more. */
static bool fails(fake_worker *f, event what, int *code, stitch_error **why, int *rc, stitch_error **e)
{
    if (code)
        *code = STITCH_OK;
    if (f->w.lost) {
        *rc = stitch__err(ctx, e, STITCH_E_STATE, "there is no worker any more: the worker died");
        return true;
    }
    if (what == OTHER || will.fails.event != what || f != &workers[will.fails.worker] || ++will.seen != will.fails.nth)
        return false;
    f->w.lost = will.fails.lost;
    *rc = will.fails.rc ? stitch__err(ctx, e, will.fails.rc, "the worker died") : STITCH_OK;
    if (code)
        *code = will.fails.code ? stitch__err(ctx, why, will.fails.code, "the worker died") : STITCH_OK;
    return true;
}

static int op_load(void *self, const stitch__scope *scope, const stitch__load *how, int *code, stitch_error **why,
                   stitch_error **e)
{
    stitch__candidate c = of(self)->inner;
    int rc;

    return fails(of(self), OTHER, code, why, &rc, e) ? rc : c.ops->load(c.self, scope, how, code, why, e);
}

static int op_prepare(void *self, const stitch__scope *scope, stitch__prepared *out, int *code, stitch_error **why,
                      stitch_error **e)
{
    fake_worker *f = of(self);
    int rc;

    if (fails(f, PREPARE, code, why, &rc, e))
        return rc;
    f->prepared++;
    f->last_prepared_on = f->memory[0][INPUT][0];
    return f->inner.ops->prepare(f->inner.self, scope, out, code, why, e);
}

static int op_fill_weights(void *self, const stitch__scope *scope, uint64_t seed, stitch_error **e)
{
    stitch__candidate c = of(self)->inner;
    int rc;

    return fails(of(self), OTHER, NULL, NULL, &rc, e) ? rc : c.ops->fill_weights(c.self, scope, seed, e);
}

static int op_fill_inputs(void *self, const stitch__scope *scope, uint64_t seed, const stitch__variant *variant,
                          stitch_error **e)
{
    stitch__candidate c = of(self)->inner;
    int rc;

    return fails(of(self), FILL, NULL, NULL, &rc, e) ? rc : c.ops->fill_inputs(c.self, scope, seed, variant, e);
}

static int op_clear_states(void *self, const stitch__scope *scope, int set, stitch_error **e)
{
    stitch__candidate c = of(self)->inner;
    int rc;

    return fails(of(self), OTHER, NULL, NULL, &rc, e) ? rc : c.ops->clear_states(c.self, scope, set, e);
}

static int op_hash(void *self, const stitch__scope *scope, uint64_t seed, bool inputs, uint64_t *out, stitch_error **e)
{
    stitch__candidate c = of(self)->inner;
    int rc;

    return fails(of(self), OTHER, NULL, NULL, &rc, e) ? rc : c.ops->hash(c.self, scope, seed, inputs, out, e);
}

/* A program without one of its steps may do anything. */
static int op_run(void *self, const stitch__scope *scope, const stitch__run *run, int *code, stitch_error **why,
                  stitch_error **e)
{
    fake_worker *f = of(self);
    int rc;

    if (fails(f, run->skip >= 0 ? WITHOUT_STEP : OTHER, code, why, &rc, e))
        return rc;
    rc = f->inner.ops->run(f->inner.self, scope, run, code, why, e);
    if (run->skip < 0)
        return rc;
    without_step++;
    longest_ns =
        scope->deadline_ns - stitch__now_ns() > longest_ns ? scope->deadline_ns - stitch__now_ns() : longest_ns;
    if (will.spoils) {
        ((float *)(uintptr_t)stitch__runner_set(f->inner.self, 0)[WEIGHT])[5] += 1;
        f->outside = true;
    }
    return rc;
}

static int op_timed_run(void *self, const stitch__scope *scope, const stitch__run *run, stitch__took *took, int *code,
                        stitch_error **why, stitch_error **e)
{
    fake_worker *f = of(self);
    int rc;

    if (fails(f, TIMED_RUN, code, why, &rc, e))
        return rc;
    rc = f->inner.ops->timed_run(f->inner.self, scope, run, took, code, why, e);
    took->us += will.slower_us[f - workers];
    took->least_us = will.least_us[f - workers];
    return rc;
}

static int op_run_block(void *self, const stitch__scope *scope, const stitch__run_block *block, stitch__took *took,
                        uint64_t *hashes, int *code, stitch_error **why, stitch_error **e)
{
    CUdeviceptr into[STITCH__BLOCK * TENSORS] = {0};
    fake_worker *f = of(self);
    int rc;

    if (fails(f, RUN_BLOCK, code, why, &rc, e))
        return rc;
    for (uint32_t k = 0; k < block->count; k++) {
        CHECK(!(block->runs[k].does & STITCH__RUN_KEPT) || k < f->room);
        into[k * TENSORS + OUTPUT] = (CUdeviceptr)(uintptr_t)f->kept[k];
    }
    rc = stitch__runner_block(f->inner.self, scope, block, into, took, hashes, code, why, e);
    for (uint32_t k = 0; k < block->count; k++) {
        took[k].us += will.slower_us[f - workers];
        took[k].least_us = will.least_us[f - workers];
    }
    return rc;
}

static int op_keep(void *self, const stitch__scope *scope, uint32_t count, stitch_error **e)
{
    int rc;

    if (fails(of(self), KEEP, NULL, NULL, &rc, e))
        return rc;
    of(self)->room = count;
    return STITCH_OK;
}

static int op_fetch(void *self, const stitch__scope *scope, int set, const CUdeviceptr *into, CUstream stream,
                    stitch_error **e)
{
    fake_worker *f = of(self);
    int rc;

    if (fails(f, FETCH, NULL, NULL, &rc, e))
        return rc;
    memcpy((void *)(uintptr_t)into[OUTPUT], set < STITCH__SETS ? f->memory[set][OUTPUT] : f->kept[set - STITCH__SETS],
           sizeof(f->kept[0]));
    if (set < STITCH__SETS) /* which may be in memory of the other one's */
        memcpy((void *)(uintptr_t)into[OUTPUT], (void *)(uintptr_t)f->places[set][OUTPUT], sizeof(f->kept[0]));
    return STITCH_OK;
}

static int op_inspect(void *self, const stitch__scope *scope, int *code, stitch_error **why, stitch_error **e)
{
    fake_worker *f = of(self);
    int rc;

    if (fails(f, INSPECT, code, why, &rc, e))
        return rc;
    if ((will.writes_outside && f->w.role == STITCH__WORKER_BASELINE) || f->outside) {
        f->outside = false; /* which looking mends */
        *code = stitch__err(ctx, why, STITCH_E_VALIDATE, "it wrote outside of its buffers");
        return STITCH_OK;
    }
    return f->inner.ops->inspect(f->inner.self, scope, code, why, e);
}

static void op_close(void *self)
{
    fake_worker *f = of(self);

    if (f->inner.ops)
        f->inner.ops->close(f->inner.self);
    f->inner = (stitch__candidate){NULL, NULL};
}

static const stitch__candidate_ops ops = {
    .where = "in a worker",
    .load = op_load,
    .prepare = op_prepare,
    .fill_weights = op_fill_weights,
    .fill_inputs = op_fill_inputs,
    .clear_states = op_clear_states,
    .hash = op_hash,
    .run = op_run,
    .timed_run = op_timed_run,
    .run_block = op_run_block,
    .keep = op_keep,
    .fetch = op_fetch,
    .inspect = op_inspect,
    .close = op_close,
};

int __real_stitch__worker_acquire(stitch_context *c, const stitch__scope *scope, const stitch__worker_options *options,
                                  stitch__worker **out, stitch_error **e);
int __wrap_stitch__worker_acquire(stitch_context *c, const stitch__scope *scope, const stitch__worker_options *options,
                                  stitch__worker **out, stitch_error **e);
int __wrap_stitch__worker_open_beside(stitch__worker *w, stitch__worker *beside, const stitch__scope *scope,
                                      stitch_task *task, stitch_program *p, stitch__candidate *out, stitch_error **e);
int __wrap_stitch__worker_open(stitch__worker *w, const stitch__scope *scope, stitch_task *task, stitch_program *p,
                               stitch__candidate *out, stitch_error **e);
void __wrap_stitch__worker_release(stitch__worker *w, bool reusable);

/* One of the role that idles, or a new one. A compiler there is none: sources are compiled here. */
int __wrap_stitch__worker_acquire(stitch_context *c, const stitch__scope *scope, const stitch__worker_options *options,
                                  stitch__worker **out, stitch_error **e)
{
    int role = options ? options->role : STITCH__WORKER_CANDIDATE;
    fake_worker *f = NULL;

    if (role == STITCH__WORKER_COMPILER)
        return __real_stitch__worker_acquire(c, scope, options, out, e);
    for (size_t i = 0; !f && i < worker_count; i++)
        if (!workers[i].taken && !workers[i].w.lost && workers[i].w.role == role)
            f = &workers[i];
    CHECK(f || worker_count < MOST_WORKERS);
    if (!f) {
        f = &workers[worker_count++];
        f->w = (stitch__worker){.ctx = c, .role = role, .count = TENSORS, .share = -1};
        f->w.process.pid = 1000 + (int)worker_count;
    }
    f->taken = true;
    *out = &f->w;
    return STITCH_OK;
}

/* Each place is the other place there, as share_place() in outputs.c has it; what opens clears its inputs. */
static void take_places(fake_worker *f, fake_worker *lender)
{
    for (int set = 0; set < STITCH__SETS; set++) {
        int theirs = will.same_places ? set : 1 - set;
        for (size_t i = 0; i < TENSORS; i++)
            f->places[set][i] = i == WEIGHT ? 0
                                : lender    ? lender->places[theirs][i]
                                            : (CUdeviceptr)(uintptr_t)f->memory[set][i];
        f->w.places[set] = f->places[set];
        memset((void *)(uintptr_t)f->places[set][INPUT], 0, sizeof(f->memory[0][0]));
    }
    if (lender) {
        f->buffer = lender->buffer;
        f->buffer.lender = (int)lender->w.process.pid;
        lender->buffer.made += will.gone;
    } else if (!f->buffer.made) {
        f->buffer = (stitch__buffer){.bytes = sizeof(f->memory[0][0]), .used = true, .made = 1};
        f->buffer.memory.ptr = f->places[0][OUTPUT];
    }
    f->w.buffers = &f->buffer;
    f->w.buffer_count = 1;
}

int __wrap_stitch__worker_open_beside(stitch__worker *w, stitch__worker *beside, const stitch__scope *scope,
                                      stitch_task *task, stitch_program *p, stitch__candidate *out, stitch_error **e)
{
    fake_worker *f = of(w);
    stitch__runner_options options = {.places = {f->places[0], f->places[1]}};
    stitch__device *dev = NULL;
    stitch__runner *r = NULL;
    int rc;

    memset(out, 0, sizeof(*out));
    CHECK(f->taken && !f->inner.ops);
    f->opened++;
    f->room = 0;
    if (f == &workers[0] && f->opened == 2)
        will.seen_before_control = will.seen;
    if (fails(f, OPEN, NULL, NULL, &rc, e))
        return rc;
    take_places(f, beside ? of(beside) : NULL);
    rc = stitch__device_get(ctx, &dev, e);
    if (!rc)
        rc = stitch__runner_open(task, p, dev, &options, &r, e);
    if (rc)
        return rc;
    f->inner = stitch__runner_candidate(r);
    *out = (stitch__candidate){&ops, f};
    return STITCH_OK;
}

int __wrap_stitch__worker_open(stitch__worker *w, const stitch__scope *scope, stitch_task *task, stitch_program *p,
                               stitch__candidate *out, stitch_error **e)
{
    return __wrap_stitch__worker_open_beside(w, NULL, scope, task, p, out, e);
}

void __wrap_stitch__worker_release(stitch__worker *w, bool reusable)
{
    if (!w)
        return;
    CHECK(of(w)->taken);
    op_close(w);
    of(w)->taken = false;
    w->lost |= !reusable;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static int on_zeros; /* runs of the baseline on inputs that nobody has drawn */

static void run_careful_baseline(void **params)
{
    on_zeros += ((float *)PTR(0))[0] == 0;
    run_baseline(params);
}

static int wrong_after; /* calls of the candidate; negative: never */

static void run_candidate(void **params)
{
    float *y = PTR(2);

    multiply(y, PTR(0), PTR(1));
    if (wrong_after >= 0 && calls >= wrong_after)
        y[7] += 1;
    calls++;
}

/* y = x w, if h is as `bump` left it; h is set back. */
static void run_counted(void **params)
{
    float *y = PTR(2);
    int *h = PTR(3);

    multiply(y, PTR(0), PTR(1));
    y[3] += (float)(h[0] - 1);
    h[0]--;
    calls++;
}

static void run_bump(void **params)
{
    ++*(int *)PTR(0);
}

static void run_zeros(void **params)
{
    memset(PTR(0), 0, N * sizeof(int));
}

static fake_kernel kernels[] = {
    VERIFY_KERNELS,
    {"oracle", 4, NULL, run_oracle, 100, 0},
    {"baseline", 4, NULL, run_careful_baseline, 40, 0},
    {"candidate", 4, NULL, run_candidate, 10, 0},
    {"counted", 5, NULL, run_counted, 10, 0},
    {"bump", 1, NULL, run_bump, 1, 0},
    {"zeros", 1, NULL, run_zeros, 1, 0},
};

enum { BASELINE = STITCH__COUNT(kernels) - 5 };

/* Three steps: two that keep a count in what has been prepared, and one that does nothing for the outputs. */
static stitch_program *counted(void)
{
    static const char source[] =
        "extern \"C\" __global__ void zeros(int *h) { h[threadIdx.x] = 0; }\n"
        "extern \"C\" __global__ void bump(int *h) { h[0] += 1; }\n"
        "extern \"C\" __global__ void counted(const float *x, const float *w, float *y, int *h, int n) "
        "{ int i = threadIdx.x; y[i] = x[i] * w[i] + h[0] - 1; h[0] -= 1; }";
    static const char plan[] =
        "{\"stitch\":1,\"buffers\":{\"h\":{\"dtype\":\"i32\",\"shape\":[64]},"
        "\"z\":{\"dtype\":\"i32\",\"shape\":[64]}},"
        "\"prepare\":[{\"kernel\":\"zeros\",\"grid\":[1],\"block\":[64],\"args\":[\"h\"]}],"
        "\"run\":[{\"kernel\":\"bump\",\"grid\":[1],\"block\":[1],\"args\":[\"h\"]},"
        "{\"kernel\":\"counted\",\"grid\":[1],\"block\":[64],\"args\":[\"x\",\"w\",\"y\",\"h\",{\"i32\":\"N\"}]},"
        "{\"kernel\":\"zeros\",\"grid\":[1],\"block\":[64],\"args\":[\"z\"]}]}";

    return program(ctx, source, plan);
}

/* ---- fixture ----------------------------------------------------------------------------------------------------- */

static void reset(void)
{
    static const size_t sizes[][12] = {VERIFY_KERNEL_SIZES, {8, 8, 8, 4}, {8, 8, 8, 4}, {8, 8, 8, 4},
                                       {8, 8, 8, 8, 4},     {8},          {8}};

    reset_driver(kernels, sizes, STITCH__COUNT(kernels));
    memset(&will, 0, sizeof(will));
    memset(workers, 0, sizeof(workers));
    worker_count = on_zeros = without_step = 0;
    longest_ns = 0;
    wrong_after = -1;
    kernels[BASELINE].us = 40;
}

static void need_context(void)
{
    reset();
    need_compiler();
}

static stitch_verify_options options_of(int iterations)
{
    stitch_verify_options o = quick(1, iterations);

    o.profile = STITCH_PROFILE_NEVER;
    o.where = STITCH_VERIFY_AUTO;
    return o;
}

static stitch_report_summary verify(void)
{
    stitch_verify_options o = options_of(40);

    get_verdict(&o, task_with_baseline(ctx), candidate(ctx));
    for (size_t i = 0; i < worker_count; i++)
        CHECK(!workers[i].taken && !workers[i].inner.ops);
    return got.s;
}

static const json_t *control(const char *name)
{
    return json_object_get(json_object_get(json_object_get(got.json, "time"), "control"), name);
}

static const char *control_note(void)
{
    const char *text = json_string_value(json_object_get(json_object_get(got.json, "time"), "control_note"));
    return text ? text : "";
}

/* The program has its verdict and its times, but there is nothing to compare them with. */
static void check_alone(const char *why)
{
    if (got.s.failed_stage)
        FAIL("%s", got.text);
    CHECK_INT(got.s.timed, 1);
    CHECK_NEAR(got.s.median_us, 10, 1e-3);
    CHECK_NEAR(got.s.baseline_us, 0, 0);
    CHECK_NEAR(got.s.speedup, 0, 0);
    CHECK_HAS(got.text, "baseline eager could not be measured: ");
    CHECK_HAS(got.text, why);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* What the first run of all left is fetched before the other side's clears the place; blocks come behind it. */
TEST(both_in_workers)
{
    need_context();
    verify();
    if (got.s.failed_stage)
        FAIL("%s", got.text);
    CHECK_INT(worker_count, 2);
    CHECK(workers[0].w.role == STITCH__WORKER_CANDIDATE && workers[1].w.role == STITCH__WORKER_BASELINE);
    CHECK_NEAR(got.s.median_us, 10, 1e-3);
    CHECK_NEAR(got.s.baseline_us, 40, 1e-3);
    CHECK_INT(json_integer_value(json_object_get(candidate_time(), "checked_runs_passed")), 40);
    const json_t *main = json_array_get(json_object_get(json_object_get(got.json, "time"), "baselines"), 0);
    CHECK_INT(json_integer_value(json_object_get(main, "checked_runs")), 5); /* each tenth, and the last */
    CHECK_INT(json_integer_value(json_object_get(main, "checked_runs_passed")), 5);
    CHECK(!strstr(got.text, "could not be measured"));
    CHECK_STR(control_note(), "");
    CHECK_INT(on_zeros, 0);
}

TEST(a_wrong_run_in_a_worker)
{
    need_context();
    verify();
    int all = calls;
    reset();
    wrong_after = all - 3 - 1; /* three come after timing */
    CHECK_INT(verify().failed_stage, STITCH_STAGE_TIME);
    CHECK_HAS(got.message, "wrong in timed run 40:");
}

/* What the baseline takes more in the candidate's worker is taken off the candidate's times, and is known the next
 * time. */
TEST(the_control)
{
    need_context();
    for (int time = 0; time < 2; time++) {
        int opened = workers[0].opened;
        will.slower_us[0] = 0.25;
        CHECK_INT(verify().failed_stage, STITCH_STAGE_NONE);
        CHECK_NEAR(json_number_value(control("candidate_worker_us")), 40.25, 1e-3);
        CHECK_NEAR(json_number_value(control("baseline_worker_us")), 40, 1e-3);
        CHECK_NEAR(json_number_value(control("taken_off_us")), 0.25, 1e-3);
        CHECK_INT(json_integer_value(control("runs")), 64);
        CHECK_NEAR(got.s.median_us, 10, 1e-3);
        CHECK_INT(workers[0].opened - opened, time ? 1 : 3); /* by candidate, control, candidate */
    }
    workers[1].w.lost = true; /* another one in its place may be as slow */
    int opened = workers[0].opened;
    will.slower_us[2] = 0.25;
    CHECK_INT(verify().failed_stage, STITCH_STAGE_NONE);
    CHECK_INT(workers[0].opened - opened, 3);
    CHECK_NEAR(json_number_value(control("taken_off_us")), 0, 1e-3);
    stitch_verify_options o = options_of(40); /* nor is it known for another task */
    stitch_task *t = task_with_baseline(ctx);
    CHECK_OK(stitch_task_set_flops(t, "N", &err));
    opened = workers[0].opened;
    get_verdict(&o, t, candidate(ctx));
    CHECK_INT(workers[0].opened - opened, 3);
}

/* Where there is nothing to gain. */
TEST(no_control)
{
    stitch_verify_options o = options_of(40);

    need_context();
    kernels[BASELINE].us = 200;
    CHECK_INT(verify().failed_stage, STITCH_STAGE_NONE);
    CHECK_HAS(control_note(), "takes so long");
    CHECK_INT(workers[0].opened, 1);
    reset();
    o.flush_bytes = UINT64_MAX;
    get_verdict(&o, task_with_baseline(ctx), candidate(ctx));
    CHECK_HAS(control_note(), "the caches are not emptied");
    CHECK_INT(workers[0].opened, 1);
    reset();
    get_verdict(&o, task_with_reference(ctx), candidate(ctx)); /* which is no program of a worker's: in float64 */
    CHECK_HAS(control_note(), "do not both run in workers");
    CHECK_INT(worker_count, 1);
}

/* More than two workers differ by is something else: nothing is taken off. */
TEST(a_control_that_was_disturbed)
{
    static const struct {
        double us, more;
    } rows[] = {{40, 1.25}, {40, -1.25}, {10, 0.75}, {10, -0.75}};

    need_context();
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        reset();
        kernels[BASELINE].us = rows[i].us;
        will.slower_us[0] = rows[i].more > 0 ? rows[i].more : 0;
        will.slower_us[1] = rows[i].more < 0 ? -rows[i].more : 0;
        CHECK_INT(verify().failed_stage, STITCH_STAGE_NONE);
        CHECK_NEAR(json_number_value(control("taken_off_us")), 0, 0);
        CHECK_HAS(control_note(), "something else disturbed it");
        CHECK_NEAR(got.s.median_us, 10 + will.slower_us[0], 1e-3);
    }
}

/* What is small for two workers may be much of a run of the candidate: that is put back when all is measured. */
TEST(a_control_that_is_too_much)
{
    need_context();
    kernels[BASELINE + 1].us = 1;
    will.slower_us[0] = 0.75;
    CHECK_INT(verify().failed_stage, STITCH_STAGE_NONE);
    kernels[BASELINE + 1].us = 10;
    CHECK_NEAR(json_number_value(control("taken_off_us")), 0, 0);
    CHECK_HAS(control_note(), "too much of a run of the candidate");
    CHECK_NEAR(got.s.median_us, 1.75, 1e-3);
}

/* A time that the device cannot need is one that was measured, not one that something has been taken off. */
TEST(a_bound_of_what_was_measured)
{
    static const struct {
        double slower_us;
        int stage;
    } rows[] = {{0, STITCH_STAGE_TIME}, {0.25, STITCH_STAGE_NONE}};
    stitch__device *dev = NULL;
    stitch_verify_options o = options_of(40);

    need_context();
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    int32_t clock_khz = dev->info.clock_khz;
    dev->info.clock_khz = 1000000;
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch_task *t = task_with_baseline(ctx);
        char flops[64];
        reset();
        will.slower_us[0] = rows[i].slower_us;
        /* What takes 10.1 us at the peak rate of a policy that allows everything. */
        snprintf(flops, sizeof(flops), "%.0f",
                 10.1e-6 * stitch__arch_rates_of(9, 0)->limit_any * dev->info.multiprocessors * 1e9);
        CHECK_OK(stitch_task_set_flops(t, flops, &err));
        get_verdict(&o, t, candidate(ctx));
        CHECK_INT(got.s.failed_stage, rows[i].stage);
        if (rows[i].stage)
            CHECK_HAS(got.message, "faster than the device can be: 10 us, but the number of operations that the task "
                                   "states takes 10.1 us");
        else
            CHECK_NEAR(got.s.median_us, 10, 1e-3);
    }
    dev->info.clock_khz = clock_khz;
}

/* Else the candidate could pass for what the baseline wrote, or the other way round. */
TEST(the_same_places)
{
    need_context();
    will.same_places = true;
    verify();
    check_alone("it has the candidate's places for inputs and outputs");
}

TEST(memory_that_has_gone)
{
    need_context();
    will.gone = true;
    verify();
    check_alone("the memory that it shared with the candidate is gone");
}

/* What it does in trials is looked for after them, not only when it is timed. */
TEST(a_candidate_that_writes_outside)
{
    static const int stages[] = {STITCH_STAGE_CORRECT, STITCH_STAGE_EXPLOIT};

    need_context();
    for (int i = 0; i < 2; i++) {
        reset();
        will.fails.event = INSPECT;
        will.fails.nth = 1 + i;
        will.fails.code = STITCH_E_VALIDATE;
        CHECK_INT(verify().failed_stage, stages[i]);
        CHECK_INT(got.s.status, STITCH_E_VALIDATE);
    }
}

/* It is the baseline's doing, and would be found to be the candidate's. */
TEST(a_baseline_that_writes_outside)
{
    need_context();
    will.writes_outside = true;
    verify();
    check_alone("it wrote outside of its buffers");
}

/* The baseline's opening has cleared the inputs that the candidate is prepared on. The second time nothing else draws
 * them: the control is known. */
TEST(inputs_are_drawn_again)
{
    need_context();
    for (int time = 0; time < 2; time++) {
        int before = workers[0].prepared;
        CHECK_INT(verify().failed_stage, STITCH_STAGE_NONE);
        CHECK_INT(workers[0].prepared - before, time ? 3 : 4); /* stages prepare, exploit and time; the control */
        CHECK(workers[0].last_prepared_on != 0);
    }
}

/* Wherever a baseline's worker is lost, that costs the comparison and nothing else. */
TEST(a_baseline_that_is_lost)
{
    static const struct {
        event event;
        int nth, rc, code;
        bool lost;
    } rows[] = {
        {OPEN, 1, STITCH_E_IO, 0, true},
        {FILL, 1, STITCH_E_IO, 0, true},
        {PREPARE, 1, 0, STITCH_E_FAULT, true},
        {RUN_BLOCK, 1, 0, STITCH_E_FAULT, true}, /* before the control */
        {RUN_BLOCK, 2, 0, STITCH_E_FAULT, true},
        /* in it */ {INSPECT, 1, 0, STITCH_E_FAULT, true},
        {KEEP, 1, STITCH_E_IO, 0, true},
        {RUN_BLOCK, 1 + 8, 0, STITCH_E_FAULT, true},     /* as the control's last */
        {RUN_BLOCK, 1 + 8 + 1, 0, STITCH_E_FAULT, true}, /* warming up */
        {TIMED_RUN, 1, 0, STITCH_E_FAULT, true},
        {RUN_BLOCK, 1 + 8 + 1 + 3, 0, STITCH_E_FAULT, true}, /* a block */
        {FETCH, 1, STITCH_E_IO, 0, true},
        {FETCH, 2, STITCH_E_IO, 0, true},
        {PREPARE, 1, 0, STITCH_E_DRIVER, false},
        {TIMED_RUN, 1, 0, STITCH_E_DRIVER, false},
        {OPEN, 1, STITCH_E_UNSUPPORTED, 0, false},
    };

    need_context();
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        reset();
        printf("# row %zu\n", i);
        will.fails.event = rows[i].event;
        will.fails.worker = 1;
        will.fails.nth = rows[i].nth;
        will.fails.rc = rows[i].rc;
        will.fails.code = rows[i].code;
        will.fails.lost = rows[i].lost;
        verify();
        CHECK(will.seen >= rows[i].nth);
        check_alone("the worker died");
    }
}

/* What the host's clock saw of one that is left out says nothing of the candidate's times. */
TEST(times_beside_a_baseline_that_is_lost)
{
    need_context();
    for (int lost = 0; lost < 2; lost++) {
        reset();
        will.least_us[0] = 60;
        will.least_us[1] = 90; /* 50 more than by events, as the candidate's */
        will.fails.event = lost ? RUN_BLOCK : OTHER;
        will.fails.worker = 1;
        will.fails.nth = 1 + 8 + 1 + 3;
        will.fails.code = STITCH_E_FAULT;
        will.fails.lost = true;
        CHECK_INT(verify().failed_stage, lost ? STITCH_STAGE_TIME : STITCH_STAGE_NONE);
        if (lost)
            CHECK_HAS(got.message, "the program changes the times of events");
    }
}

/* The baseline ended the candidate's worker, where it was the control. The candidate goes on in another one. */
TEST(a_control_that_ends_the_candidates_worker)
{
    need_context();
    will.fails.event = RUN_BLOCK; /* to count them */
    CHECK_INT(verify().failed_stage, STITCH_STAGE_NONE);
    int before = will.seen_before_control;
    CHECK(before > 0);
    for (int i = 0; i < 2; i++) {
        reset();
        will.fails.event = i ? RUN_BLOCK : OPEN;
        will.fails.nth = i ? before + 1 : 2;
        will.fails.rc = i ? STITCH_OK : STITCH_E_IO;
        will.fails.code = i ? STITCH_E_FAULT : STITCH_OK;
        will.fails.lost = true;
        verify();
        check_alone("it ended the worker of the candidate, where it was the control");
        CHECK_INT(worker_count, 3);
        CHECK(workers[0].w.lost && workers[2].w.role == STITCH__WORKER_CANDIDATE);
        CHECK_HAS(control_note(), "does not run in the candidate's worker");
        CHECK(workers[2].last_prepared_on != 0);
    }
}

/* A deadline or a cancellation is nobody's failure, wherever it shows. */
TEST(cancelled_in_a_worker)
{
    static const struct {
        event event;
        int worker, nth;
    } rows[] = {{OPEN, 1, 1},      {OPEN, 0, 2}, {RUN_BLOCK, 1, 1}, {RUN_BLOCK, 1, 4},
                {TIMED_RUN, 1, 1}, {KEEP, 1, 1}, {FETCH, 1, 1},     {INSPECT, 1, 1}};

    need_context();
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch_verify_options o = options_of(40);
        reset();
        printf("# row %zu\n", i);
        will.fails.event = rows[i].event;
        will.fails.worker = rows[i].worker;
        will.fails.nth = rows[i].nth;
        will.fails.rc = STITCH_E_CANCELLED;
        will.fails.lost = true;
        get_failure(&o, task_with_baseline(ctx), candidate(ctx), STITCH_E_CANCELLED, "the worker died");
        for (size_t k = 0; k < worker_count; k++)
            CHECK(!workers[k].taken);
    }
}

/* Each step is left out once, also where it writes what others count on. Whatever the program does without it is no
 * fault of the program's: neither the end of its worker, nor what is left in the one that goes on. */
TEST(without_one_of_its_steps)
{
    stitch_verify_options o = options_of(40);

    need_context();
    for (int i = 0; i < 4; i++) {
        reset();
        will.spoils = i == 1;
        will.fails.event = WITHOUT_STEP;
        will.fails.nth = i < 2 ? 0 : i - 1;           /* that of the first step, or of the second */
        o.flush_bytes = i < 3 ? 1 << 20 : UINT64_MAX; /* without a control it is timed in the worker that came then */
        will.fails.code = STITCH_E_FAULT;
        will.fails.lost = true;
        get_verdict(&o, task_with_baseline(ctx), counted());
        if (got.s.failed_stage)
            FAIL("row %d: %s", i, got.text);
        const json_t *found = json_object_get(got.json, "exploit");
        CHECK_INT(json_integer_value(json_object_get(found, "steps_left_out_in_turn")), 3);
        /* With a weight that is not what it was, nothing looks dead. */
        CHECK_INT(json_integer_value(json_object_get(found, "dead_steps")), i != 1);
        CHECK_INT(got.s.timed, 1);
        CHECK_INT(worker_count, i < 2 ? 2 : 3);
        CHECK(longest_ns > 0 && longest_ns <= INT64_C(5000000000)); /* of the call's ten minutes */
        /* In stage prepare, afresh, after the first step and after the second; then twice more to see that the third is
         * dead or, where a weight is changed, after the third and with the weight mended; as the control; to be timed.
         */
        if (i < 2)
            CHECK_INT(workers[0].prepared, 8);
    }
}

/* A step that leaves what was prepared as it was is no reason to load the program again. */
TEST(with_all_that_was_prepared)
{
    static const char source[] =
        "extern \"C\" __global__ void zeros(int *h) { h[threadIdx.x] = 0; }\n" KERNEL("candidate", "float");
    static const char run[] =
        "\"run\":[{\"kernel\":\"candidate\",\"grid\":[1],\"block\":[64],\"args\":[\"x\",\"w\",\"y\",{\"i32\":\"N\"}]},"
        "{\"kernel\":\"candidate\",\"grid\":[1],\"block\":[64],\"args\":[\"x\",\"w\",\"y\",{\"i32\":\"N\"}]}]}";
    stitch_verify_options o = options_of(40);
    char plan[1000];
    int prepared[2];

    need_context();
    o.last_stage = STITCH_STAGE_EXPLOIT;
    for (int prepares = 0; prepares < 2; prepares++) {
        reset();
        snprintf(plan, sizeof(plan), "{\"stitch\":1,\"buffers\":{\"h\":{\"dtype\":\"i32\",\"shape\":[64]}},%s%s",
                 prepares ? "\"prepare\":[{\"kernel\":\"zeros\",\"grid\":[1],\"block\":[64],\"args\":[\"h\"]}]," : "",
                 run);
        get_verdict(&o, task_with_baseline(ctx), program(ctx, source, plan));
        if (got.s.failed_stage)
            FAIL("%s", got.text);
        prepared[prepares] = workers[0].prepared;
    }
    CHECK_INT(prepared[1], prepared[0]);
}

/* One that idled may have died meanwhile, which is not the program's doing: one more, and no further one. */
TEST(one_that_died_while_it_idled)
{
    stitch_verify_options o = options_of(40);

    need_context();
    will.fails.event = OPEN;
    will.fails.nth = 1;
    will.fails.rc = STITCH_E_IO;
    will.fails.lost = true;
    CHECK_INT(verify().failed_stage, STITCH_STAGE_NONE);
    CHECK_INT(worker_count, 3);
    CHECK_NEAR(got.s.speedup, 4, 1e-3);
    reset();
    will.fails.event = OPEN;
    will.fails.nth = 1;
    will.fails.rc = STITCH_E_DRIVER;
    get_failure(&o, task_with_baseline(ctx), candidate(ctx), STITCH_E_DRIVER, "the worker died");
    CHECK_INT(worker_count, 1);
}

/* It had the program: what it says of it is no reason to run that in this process. */
TEST(one_that_cannot)
{
    static const int codes[] = {STITCH_E_UNSUPPORTED, STITCH_E_NOT_FOUND, STITCH_E_IO};
    stitch_verify_options o = options_of(40);
    stitch_report *r = NULL;

    need_context();
    for (size_t i = 0; i < STITCH__COUNT(codes); i++) {
        stitch_task *t = task_with_baseline(ctx);
        stitch_program *p = candidate(ctx);
        reset();
        will.fails.event = OPEN;
        will.fails.nth = 1;
        will.fails.rc = codes[i];
        CHECK_INT(stitch_verify_program(ctx, t, p, &o, &r, &err), codes[i]);
        CHECK_STR(stitch_error_message(err), "the worker died"); /* and no word of what else could be done */
        stitch_error_free(err);
        err = NULL;
        stitch_program_free(p);
        stitch_task_free(t);
    }
}

TEST_MAIN(RUN(both_in_workers), RUN(a_wrong_run_in_a_worker), RUN(the_control), RUN(no_control),
          RUN(a_control_that_was_disturbed), RUN(a_control_that_is_too_much), RUN(a_bound_of_what_was_measured),
          RUN(the_same_places), RUN(memory_that_has_gone), RUN(a_candidate_that_writes_outside),
          RUN(a_baseline_that_writes_outside), RUN(inputs_are_drawn_again), RUN(a_baseline_that_is_lost),
          RUN(times_beside_a_baseline_that_is_lost), RUN(a_control_that_ends_the_candidates_worker),
          RUN(cancelled_in_a_worker), RUN(without_one_of_its_steps), RUN(with_all_that_was_prepared),
          RUN(one_that_died_while_it_idled), RUN(one_that_cannot), RUN(nothing_is_left))

/* SPDX-License-Identifier: MIT
 *
 * Runs in blocks, as a candidate in a worker makes them, on a driver without a GPU: which runs are one block and at
 * which addresses, that every run of a block is checked, and that what a run left must not change. Needs NVRTC.
 *
 * And what a verification does while others use the device.
 *
 * The candidate is the runner of this process with the two operations that a worker has besides (the linker puts
 * __wrap_stitch__runner_candidate() in the place of the library's function).
 */
#include <pthread.h>
#include <unistd.h>

#include "runner/runner.h"
#include "verify_fixture.h"

enum { TENSORS = 3, OUTPUT = 2, MOST_BLOCKS = 200 };

/* ---- a candidate that keeps outputs ------------------------------------------------------------------------------ */

static struct {
    stitch__candidate_ops ops;
    stitch__candidate inner; /* the runner */
    float kept[STITCH__BLOCK][N];
    uint32_t room; /* for so many outputs; 0: not asked for yet */
    bool timing;   /* a timed run has been made */
    /* timed runs: blocks, and single ones as blocks of one */
    struct {
        uint32_t count;
        int set, moved;
    } blocks[MOST_BLOCKS];
    size_t block_count;
    /* others: how many are in each block */
    uint32_t ahead[MOST_BLOCKS];
    size_t ahead_count, alone;
    uint64_t keys[2 * MOST_BLOCKS];
    size_t key_count;
    /* what shall happen */
    int keep_status;
    int change_block, change_run; /* the output of a run of a timed block changes after it; negative: of none */
    int change_ahead;             /* of another block */
    bool change_hash;             /* its hash in place of the output itself */
    bool writes_outside;          /* timed runs write outside of their buffers */
    int hidden_after;             /* and put it back when it has been looked for so often since; 0: never */
    int looks;                    /* for that */
    bool mends;                   /* what a run left is right when it is looked at for the second time */
    int fetched[STITCH__BLOCK];
} kept;

stitch__candidate __real_stitch__runner_candidate(stitch__runner *r);
stitch__candidate __wrap_stitch__runner_candidate(stitch__runner *r);

static int keep(void *self, const stitch__scope *scope, uint32_t count, stitch_error **e)
{
    CHECK(count >= 1 && count <= STITCH__BLOCK && !kept.room);
    kept.room = count;
    return kept.keep_status ? stitch__err(ctx, e, kept.keep_status, "no room") : STITCH_OK;
}

static void note_block(uint32_t count, const stitch__run *run)
{
    if (!run->draw)
        return;
    CHECK(kept.block_count < MOST_BLOCKS);
    kept.timing = true;
    kept.blocks[kept.block_count].count = count;
    kept.blocks[kept.block_count].set = run->set;
    kept.blocks[kept.block_count++].moved = run->moved;
}

static int timed_run(void *self, const stitch__scope *scope, const stitch__run *run, stitch__took *took, int *code,
                     stitch_error **why, stitch_error **e)
{
    note_block(1, run);
    return kept.inner.ops->timed_run(self, scope, run, took, code, why, e);
}

static int run_alone(void *self, const stitch__scope *scope, const stitch__run *run, int *code, stitch_error **why,
                     stitch_error **e)
{
    kept.alone++;
    return kept.inner.ops->run(self, scope, run, code, why, e);
}

/* As serve_program.c does it. */
static int run_block(void *self, const stitch__scope *scope, const stitch__run_block *block, stitch__took *took,
                     uint64_t *hashes, int *code, stitch_error **why, stitch_error **e)
{
    CUdeviceptr into[STITCH__BLOCK * TENSORS] = {0};
    bool timed = block->runs[0].does & STITCH__RUN_TIMED, some = block->runs[0].does & STITCH__RUN_KEPT, change;
    int rc;

    for (uint32_t k = 0; k < block->count; k++) {
        const stitch__block_run *run = &block->runs[k];
        into[k * TENSORS + OUTPUT] = (CUdeviceptr)(uintptr_t)kept.kept[k];
        CHECK(!(run->does & STITCH__RUN_TIMED) == !timed && !(run->does & STITCH__RUN_KEPT) == !some);
        CHECK(!some || (block->count > 1 && k < kept.room && kept.key_count < STITCH__COUNT(kept.keys)));
        if (some)
            kept.keys[kept.key_count++] = run->key;
    }
    if (timed)
        note_block(block->count, &block->runs[0].run);
    else if (some)
        kept.ahead[kept.ahead_count++] = block->count;
    memset(kept.fetched, 0, sizeof(kept.fetched));
    change = some &&
             (timed ? (int)kept.block_count - 1 == kept.change_block : (int)kept.ahead_count - 1 == kept.change_ahead);
    rc = stitch__runner_block(self, scope, block, into, took, hashes, code, why, e);
    if (change && kept.change_hash)
        hashes[kept.change_run * TENSORS + OUTPUT] ^= 1;
    else if (change)
        kept.kept[kept.change_run][N - 1] = -0.0f; /* the right value might be 0 */
    return rc;
}

static int fetch(void *self, const stitch__scope *scope, int set, const CUdeviceptr *into, CUstream stream,
                 stitch_error **e)
{
    if (set < STITCH__SETS)
        return kept.inner.ops->fetch(self, scope, set, into, stream, e);
    CHECK((uint32_t)(set - STITCH__SETS) < kept.room);
    if (kept.fetched[set - STITCH__SETS]++ && kept.mends)
        kept.kept[set - STITCH__SETS][7] -= 1;
    memcpy((void *)(uintptr_t)into[OUTPUT], kept.kept[set - STITCH__SETS], sizeof(kept.kept[0]));
    return STITCH_OK;
}

/* As a worker's guards would tell. */
static int inspect(void *self, const stitch__scope *scope, int *code, stitch_error **why, stitch_error **e)
{
    kept.looks += kept.timing;
    if (kept.timing && kept.writes_outside && (!kept.hidden_after || kept.looks <= kept.hidden_after))
        *code = stitch__err(ctx, why, STITCH_E_VALIDATE, "it wrote outside of its buffers");
    return STITCH_OK;
}

stitch__candidate __wrap_stitch__runner_candidate(stitch__runner *r)
{
    kept.inner = __real_stitch__runner_candidate(r);
    kept.ops = *kept.inner.ops;
    kept.ops.keep = keep;
    kept.ops.run = run_alone;
    kept.ops.timed_run = timed_run;
    kept.ops.run_block = run_block;
    kept.ops.fetch = fetch;
    kept.ops.inspect = inspect;
    return (stitch__candidate){&kept.ops, kept.inner.self};
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static int wrong_at, fault_at, input_at; /* negative: never */
static useconds_t oracle_us;             /* how long the reference takes, while the candidate is timed */
static float seen[4096];                 /* the first input of each call */
static int64_t hang_ms;                  /* how long each call takes */

static void run_slow_oracle(void **params)
{
    run_oracle(params);
    if (kept.timing && oracle_us)
        usleep(oracle_us);
}

static void run_candidate(void **params)
{
    float *x = PTR(0), *w = PTR(1), *y = PTR(2);
    int call = calls++;

    if (call < (int)STITCH__COUNT(seen))
        seen[call] = x[0];
    multiply(y, x, w);
    if (call == wrong_at)
        y[7] += 1;
    if (call == input_at)
        x[3] += 1;
    if (hang_ms)
        fake.busy_until_ns = stitch__now_ns() + hang_ms * 1000000;
    if (call == fault_at)
        fake.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
}

static fake_kernel kernels[] = {
    VERIFY_KERNELS,
    {"oracle", 4, NULL, run_slow_oracle, 100, 0},
    {"candidate", 4, NULL, run_candidate, 10, 0},
};

/* ---- fixture ----------------------------------------------------------------------------------------------------- */

static int failing(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    return STITCH_E_IO;
}

/* Its baseline cannot be measured: one in this process would have no blocks, and then nobody has. */
static stitch_task *task(stitch_context *c)
{
    stitch_task *t = task_with_reference(c);

    CHECK_OK(stitch_task_add_baseline_fn(t, "none", STITCH_PRECISION_F32, failing, NULL, &err));
    return t;
}

static void reset(void)
{
    static const size_t sizes[][12] = {VERIFY_KERNEL_SIZES, {8, 8, 8, 4}, {8, 8, 8, 4}};

    reset_driver(kernels, sizes, STITCH__COUNT(kernels));
    kernels[STITCH__COUNT(kernels) - 1].us = 10;
    memset(&kept, 0, sizeof(kept));
    kept.change_block = kept.change_ahead = -1;
    wrong_at = fault_at = input_at = -1;
    oracle_us = 0;
    hang_ms = 0;
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
    o.where = STITCH_VERIFY_HERE;
    return o;
}

static int64_t runs, checked, passed;

static stitch_report_summary verify(stitch_verify_options o)
{
    get_verdict(&o, task(ctx), candidate(ctx));
    runs = json_integer_value(json_object_get(candidate_time(), "runs"));
    checked = json_integer_value(json_object_get(candidate_time(), "checked_runs"));
    passed = json_integer_value(json_object_get(candidate_time(), "checked_runs_passed"));
    return got.s;
}

/* Calls of the candidate before the first timed run. */
static int calls_before(void)
{
    stitch_verify_options o = options_of(1);
    reset();
    CHECK_INT(verify(o).failed_stage, STITCH_STAGE_NONE);
    int before = calls - 1 - 3; /* the timed run, and those after */
    reset();
    return before;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const json_t *in_blocks(const char *name)
{
    return json_object_get(json_object_get(json_object_get(got.json, "time"), "blocks"), name);
}

static const char *method(void)
{
    return json_string_value(json_object_get(json_object_get(got.json, "time"), "method"));
}

/* The report says how runs were put together, and why they were not. */
TEST(the_report_has_the_blocks)
{
    need_context();
    CHECK_INT(verify(options_of(100)).failed_stage, STITCH_STAGE_NONE);
    CHECK_INT(json_integer_value(in_blocks("count")), (json_int_t)kept.block_count);
    CHECK_INT(json_integer_value(in_blocks("longest")), 13);
    CHECK_INT(json_integer_value(in_blocks("input_places")), 2);
    CHECK_INT(json_integer_value(in_blocks("output_places")), 2);
    CHECK(json_is_null(in_blocks("one_by_one")));
    CHECK_HAS(method(), "in blocks of several runs");
    reset();
    kept.keep_status = STITCH_E_UNSUPPORTED;
    CHECK_INT(verify(options_of(20)).failed_stage, STITCH_STAGE_NONE);
    CHECK_INT(json_integer_value(in_blocks("count")), 20);
    CHECK_INT(json_integer_value(in_blocks("longest")), 1);
    CHECK_INT(json_integer_value(in_blocks("input_places")), 1);
    CHECK_INT(json_integer_value(in_blocks("output_places")), 1);
    CHECK_HAS(json_string_value(in_blocks("one_by_one")), "no room");
    CHECK(!strstr(method(), "blocks"));
    reset(); /* a baseline in this process */
    stitch_verify_options o = options_of(20);
    get_verdict(&o, task_with_reference(ctx), candidate(ctx));
    CHECK_HAS(json_string_value(in_blocks("one_by_one")), "the main baseline runs in the host's process");
}

TEST(timed_runs_that_write_outside)
{
    need_context();
    kept.writes_outside = true;
    CHECK_INT(verify(options_of(20)).failed_stage, STITCH_STAGE_TIME);
    CHECK_HAS(got.message, "wrote outside of its buffers");
    CHECK_INT(got.s.timed, 0);
}

/* Where inputs never change, what lies there could be an answer that is gone before the end: it is looked for after
 * runs that nobody can know, one in each eighth of them. */
TEST(fixed_inputs_are_looked_after)
{
    static const float x[N] = {1};
    stitch_verify_options o = options_of(40);

    need_context();
    for (int fixed = 0; fixed < 2; fixed++) {
        for (int hides = 0; hides < 2; hides++) {
            stitch_task *t = task(ctx);
            reset();
            if (fixed)
                CHECK_OK(stitch_task_set_data(t, "x", x, sizeof(x), &err));
            kept.writes_outside = hides;
            kept.hidden_after = 8;
            get_verdict(&o, t, candidate(ctx));
            CHECK_INT(kept.looks, !fixed || hides ? 1 : 8 + 1);
            CHECK(fixed ? !kept.room : kept.room > 0); /* nor are there answers of earlier runs to be found */
            CHECK_INT(got.s.failed_stage, hides ? STITCH_STAGE_TIME : STITCH_STAGE_NONE);
        }
    }
}

TEST(blocks_take_turns)
{
    int combinations[4] = {0};
    uint32_t total = 0;

    need_context();
    int before = calls_before();
    CHECK_INT(verify(options_of(100)).failed_stage, STITCH_STAGE_NONE);
    CHECK(runs == 100 && checked == 100 && passed == 100);
    CHECK_INT(kept.room, STITCH__BLOCK);
    CHECK_INT(kept.block_count, 9);
    CHECK(kept.blocks[0].count == 1 && !kept.blocks[0].set && !kept.blocks[0].moved);
    for (size_t i = 0; i < kept.block_count; i++) {
        total += kept.blocks[i].count;
        CHECK(kept.blocks[i].count <= STITCH__BLOCK);
        if (i)
            combinations[2 * kept.blocks[i].set + kept.blocks[i].moved]++;
    }
    CHECK_INT(total, 100);
    for (int i = 0; i < 4; i++)
        CHECK_INT(combinations[i], 2); /* for each side going first */
    /* No input comes twice, nor does a key. */
    for (int i = before; i < before + 100; i++)
        for (int j = before; j < i; j++)
            CHECK(seen[i] != seen[j]);
    CHECK_INT(kept.key_count, 99 + 12 + 4 + 3); /* and of the runs that are made ahead: see below */
    for (size_t i = 0; i < kept.key_count; i++)
        for (size_t j = 0; j < i; j++)
            CHECK(kept.keys[i] && kept.keys[i] != kept.keys[j]);
}

TEST(any_number_of_runs)
{
    need_context();
    for (int n = 1; n <= 40; n++) {
        uint32_t total = 0;
        reset();
        CHECK_INT(verify(options_of(n)).failed_stage, STITCH_STAGE_NONE);
        for (size_t i = 0; i < kept.block_count; i++)
            total += kept.blocks[i].count;
        CHECK(total == (uint32_t)n && runs == n && checked == n && passed == n);
    }
}

/* Short runs are many in a block, long ones are alone. */
TEST(blocks_are_short)
{
    static const struct {
        double us;
        uint32_t most;
    } rows[] = {{10, 13}, {3000, 6}, {10001, 1}, {30000, 1}};

    need_context();
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        uint32_t most = 0;
        reset();
        kernels[STITCH__COUNT(kernels) - 1].us = rows[i].us;
        CHECK_INT(verify(options_of(100)).failed_stage, STITCH_STAGE_NONE);
        for (size_t k = 0; k < kept.block_count; k++)
            most = kept.blocks[k].count > most ? kept.blocks[k].count : most;
        CHECK_INT(most, rows[i].most);
        CHECK(runs == 100 && checked == 100);
    }
}

/* Wherever in a block it is. */
TEST(a_wrong_run)
{
    char words[60];

    need_context();
    int before = calls_before();
    for (int n = 0; n < 40; n++) {
        reset();
        wrong_at = before + n;
        CHECK_INT(verify(options_of(40)).failed_stage, STITCH_STAGE_TIME);
        snprintf(words, sizeof(words), "wrong in timed run %d:", n + 1);
        CHECK_HAS(got.message, words);
    }
}

/* Blocks of 40 runs: one, then seven of five, then four. */
TEST(an_output_that_changed)
{
    static const struct {
        int block, run, iteration;
    } rows[] = {{1, 0, 2}, {1, 4, 6}, {4, 2, 19}, {8, 3, 40}};
    char words[80];

    need_context();
    for (size_t i = 0; i < 2 * STITCH__COUNT(rows); i++) {
        reset();
        kept.change_block = rows[i / 2].block;
        kept.change_run = rows[i / 2].run;
        kept.change_hash = i % 2;
        CHECK_INT(verify(options_of(40)).failed_stage, STITCH_STAGE_TIME);
        snprintf(words, sizeof(words), "the outputs of timed run %d were written to after it had ended",
                 rows[i / 2].iteration);
        CHECK_HAS(got.message, words);
    }
}

/* A wrong run is looked at once more, alone. That it is right by then is no excuse. */
TEST(an_output_that_was_mended)
{
    need_context();
    int before = calls_before();
    reset();
    wrong_at = before + 5 + 2; /* in the second block of several */
    kept.mends = true;
    CHECK_INT(verify(options_of(40)).failed_stage, STITCH_STAGE_TIME);
    CHECK_HAS(got.message, "the outputs of timed run 8 were written to after it had ended");
}

static int secret_of(uint64_t seed, int part)
{
    return part * 5 + (int)(stitch__seed_derive(seed, STITCH__SEED_CHECK, (uint64_t)part) % 5);
}

/* When there is no time to check all runs, some still are: the first, the last, and one in each eighth of the 40 that
 * nobody knows. */
TEST(out_of_time)
{
    stitch_verify_options o = options_of(40);

    need_context();
    int before = calls_before();
    do /* none is the first or the last of the runs that are made */
        ++o.seed;
    while (secret_of(o.seed, 0) != 3 || secret_of(o.seed, 1) != 7 || secret_of(o.seed, 2) < 12);
    o.time_budget_ms = 1;
    for (int n = 0; n < 12; n++) {
        bool caught = n == 0 || n == 3 || n == 7 || n == 11;
        reset();
        oracle_us = 3000;
        wrong_at = before + n;
        CHECK_INT(verify(o).failed_stage, caught ? STITCH_STAGE_TIME : STITCH_STAGE_NONE);
        /* One, two blocks of five, then at least ten have been made: a last one. */
        CHECK_INT(kept.blocks[kept.block_count - 1].count, n == 0 || n == 11 || !caught ? 1 : 5);
        CHECK(caught || (runs == 12 && checked == 4 && passed == 4));
    }
}

TEST(a_fault_in_a_block)
{
    need_context();
    int before = calls_before();
    reset();
    fault_at = before + 3;
    stitch_report_summary s = verify(options_of(40));
    CHECK_INT(s.failed_stage, STITCH_STAGE_TIME);
    CHECK_INT(s.status, STITCH_E_FAULT);
    fake.fault = CUDA_SUCCESS;
    stitch_context_free(ctx); /* it knows of the fault */
    ctx = NULL;
}

/* Without room runs are alone; a call that is cancelled, too late, or has lost its worker ends. */
TEST(no_room)
{
    static const int harmless[] = {STITCH_E_UNSUPPORTED, STITCH_E_NOMEM, STITCH_E_DRIVER};
    static const int fatal[] = {STITCH_E_CANCELLED, STITCH_E_TIMEOUT, STITCH_E_IO};

    need_context();
    for (size_t i = 0; i < STITCH__COUNT(harmless); i++) {
        reset();
        kept.keep_status = harmless[i];
        CHECK_INT(verify(options_of(20)).failed_stage, STITCH_STAGE_NONE);
        CHECK_INT(kept.block_count, 20);
        CHECK(runs == 20 && checked == 20);
    }
    for (size_t i = 0; i < STITCH__COUNT(fatal); i++) {
        stitch_verify_options o = options_of(20);
        reset();
        kept.keep_status = fatal[i];
        get_failure(&o, task(ctx), candidate(ctx), fatal[i], "no room");
    }
}

/* ---- runs ahead of their turn ------------------------------------------------------------------------------------ */

static stitch_verify_options with_trials(int trials)
{
    stitch_verify_options o = options_of(10);
    o.trials = trials;
    return o;
}

/* Trials, all but the first, those of other inputs, then what stage exploit and the end of stage time look at. */
TEST(runs_ahead)
{
    static const struct {
        int trials;
        uint32_t blocks[6];
    } rows[] = {{1, {12, 4, 3}}, {2, {2, 12, 4, 3}}, {5, {8, 12, 4, 3}}, {9, {16, 12, 4, 3}}, {12, {16, 6, 12, 4, 3}}};

    need_context();
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        size_t n = 0;
        reset();
        CHECK_INT(verify(with_trials(rows[i].trials)).failed_stage, STITCH_STAGE_NONE);
        for (; n < STITCH__COUNT(rows[i].blocks) && rows[i].blocks[n]; n++)
            CHECK_INT(kept.ahead[n], rows[i].blocks[n]);
        CHECK_INT(kept.ahead_count, n);
        CHECK_INT(kept.alone, 3); /* the first trial, and after a fresh start */
    }
}

static struct {
    int blocks, runs, hashes, set; /* calls, and the set that was fetched */
    uint64_t filled;               /* the last seed */
} asked;

static int note_runs(void *self, const stitch__scope *scope, const stitch__run_block *block, stitch__took *took,
                     uint64_t *hashes, int *code, stitch_error **why, stitch_error **e)
{
    asked.blocks++;
    return STITCH_OK;
}

static int note_run(void *self, const stitch__scope *scope, const stitch__run *run, int *code, stitch_error **why,
                    stitch_error **e)
{
    asked.runs++;
    return STITCH_OK;
}

static int note_fill(void *self, const stitch__scope *scope, uint64_t seed, const stitch__variant *variant,
                     stitch_error **e)
{
    asked.filled = seed;
    return STITCH_OK;
}

static int note_hash(void *self, const stitch__scope *scope, uint64_t seed, bool inputs, uint64_t *out,
                     stitch_error **e)
{
    asked.hashes++;
    return STITCH_OK;
}

static int note_fetch(void *self, const stitch__scope *scope, int set, const CUdeviceptr *into, CUstream stream,
                      stitch_error **e)
{
    asked.set = set;
    return STITCH_OK;
}

enum { SEED = 5, OTHER_SEED = 6 };

/* A verification of a task without tensors, for which two runs on the same inputs have been made ahead. */
static stitch__verify foresee(stitch__device *dev, bool states)
{
    static const stitch__candidate_ops ops = {
        .run_block = note_runs, .run = note_run, .fill_inputs = note_fill, .hash = note_hash, .fetch = note_fetch};
    static uint64_t hashes[2];
    stitch__block_run two[2] = {{.run = stitch__run_of_set(0)},
                                {.run = stitch__run_of_set(1), .does = STITCH__RUN_INPUTS}};
    stitch__verify v = {.ctx = ctx, .dev = dev, .candidate = {&ops, NULL}, .room = 2, .has_states = states};
    int code = STITCH_OK;

    v.hasher.dev = dev;
    v.hashes = &hashes[0];
    v.hashes_after = &hashes[1];
    two[0].run.draw = 1;
    two[0].run.seed = SEED;
    memset(&asked, 0, sizeof(asked));
    CHECK_OK(stitch__ahead_make(&v, two, 2, &code, &err, &err));
    CHECK_INT(asked.blocks, states ? 0 : 1);
    return v;
}

/* What was made ahead is the result of the very runs that come, or of none: then those are made. */
TEST(runs_that_were_not_foreseen)
{
    static const stitch__variant large = {.scale = 64};
    const stitch__run first = stitch__run_of_set(0), second = stitch__run_of_set(1);
    stitch__run moved = first, without = first, left = first;
    const struct {
        uint64_t seed;
        const stitch__variant *variant;
        const stitch__run *run;
        int times;
        bool foreseen, states;
    } rows[] = {
        {SEED, NULL, &first, 1, true, false},    {OTHER_SEED, NULL, &first, 1, false, false},
        {SEED, &large, &first, 1, false, false}, {SEED, NULL, &second, 1, false, false},
        {SEED, NULL, &moved, 1, false, false},   {SEED, NULL, &without, 1, false, false},
        {SEED, NULL, &left, 1, false, false},    {SEED, NULL, &first, 2, false, false},
        {SEED, NULL, &first, 1, false, true},
    };
    stitch__device *dev = NULL;
    int code = STITCH_OK;

    moved.moved = 1;
    without.skip = 0;
    left.poison = -1;
    need_context();
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch__verify v = foresee(dev, rows[i].states);
        CHECK_OK(stitch__draw_inputs(&v, rows[i].seed, rows[i].variant, &err));
        CHECK_OK(stitch__candidate_run(&v, &v.scope, rows[i].run, rows[i].times, NULL, &code, &err, &err));
        printf("# row %zu\n", i);
        CHECK_INT(asked.runs, rows[i].foreseen ? 0 : rows[i].times);
        CHECK_INT(asked.set, rows[i].foreseen ? STITCH__SETS : rows[i].run->set);
        CHECK_INT(asked.filled, rows[i].foreseen ? 0 : rows[i].seed); /* else it still had the last ones' */
        CHECK(stitch__ahead_left(&v) == rows[i].foreseen);
        stitch__ahead_close(&v);
    }
    for (int other = 0; other < 2; other++) { /* hashes with another key say nothing */
        stitch__verify v = foresee(dev, false);
        size_t changed;
        CHECK_OK(stitch__draw_inputs(&v, SEED, NULL, &err));
        CHECK_OK(stitch__hash_tensors(&v, true, &err));
        CHECK_OK(stitch__candidate_run(&v, &v.scope, &first, 1, NULL, &code, &err, &err));
        CHECK_OK(stitch__candidate_run(&v, &v.scope, &second, 1, NULL, &code, &err, &err));
        v.hashed_with += (uint64_t)other;
        CHECK_OK(stitch__find_changed(&v, true, &changed, &err));
        CHECK_INT(asked.hashes, other);
        stitch__ahead_close(&v);
    }
    stitch__device_leave(dev);
}

/* Whichever run is wrong, the verdict is the one that runs alone lead to; also where one changes an input that it may
 * only read. (Beyond the trials the reference would compute with that one, for here it is in the same memory.) */
TEST(the_same_verdict_as_alone)
{
    need_context();
    reset();
    CHECK_INT(verify(with_trials(4)).failed_stage, STITCH_STAGE_NONE);
    int last = calls, trials = 2 * (4 + 6), caught[2] = {0};
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < (i ? trials : last); n++) {
            int *deed = i ? &input_at : &wrong_at, stage;
            char message[sizeof(got.message)];
            reset();
            kept.keep_status = STITCH_E_UNSUPPORTED;
            *deed = n;
            stage = verify(with_trials(4)).failed_stage;
            snprintf(message, sizeof(message), "%s", got.message);
            CHECK_INT(kept.ahead_count, 0);
            caught[i] += stage != STITCH_STAGE_NONE;
            reset();
            *deed = n;
            CHECK_INT(verify(with_trials(4)).failed_stage, stage);
            CHECK_STR(got.message, message);
        }
    }
    printf("# of %d wrong runs %d are caught, of %d changed inputs %d\n", last, caught[0], trials, caught[1]);
    CHECK(caught[0] >= last - 13 && caught[1] >= 8); /* a warm-up and other inputs than declared decide nothing */
}

TEST(an_output_that_changed_ahead)
{
    static const struct {
        int block, run, stage;
    } rows[] = {{0, 0, STITCH_STAGE_CORRECT}, {0, 7, STITCH_STAGE_CORRECT}, {1, 3, STITCH_STAGE_CORRECT},
                {2, 0, STITCH_STAGE_EXPLOIT}, {2, 3, STITCH_STAGE_EXPLOIT}, {3, 1, STITCH_STAGE_TIME}};

    need_context();
    for (size_t i = 0; i < 2 * STITCH__COUNT(rows); i++) {
        reset();
        kept.change_ahead = rows[i / 2].block;
        kept.change_run = rows[i / 2].run;
        kept.change_hash = i % 2;
        CHECK_INT(verify(with_trials(5)).failed_stage, rows[i / 2].stage);
        CHECK_HAS(got.message, "output y of a run was written to after it had ended");
    }
}

/* ---- others on the device ---------------------------------------------------------------------------------------- */

static stitch__gpu_lock others;
static int others_ms;

static void take_device(void)
{
    stitch__scope scope = stitch__scope_make(ctx, NULL, 10000);
    stitch__device *dev;

    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__gpu_lock_take(dev, &scope, true, &others, NULL, &err));
    CHECK(others.fd >= 0);
}

static void *give_back_later(void *unused)
{
    usleep((useconds_t)others_ms * 1000);
    stitch__gpu_lock_release(&others);
    return NULL;
}

/* Where others had the device most of the time, a program that does not end in what is left has no verdict for it. */
TEST(a_deadline_that_others_used_up)
{
    static const int held_ms[] = {100, 700};

    need_context();
    for (size_t i = 0; i < STITCH__COUNT(held_ms); i++) {
        stitch_verify_options o = options_of(10);
        stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
        stitch_task *t = task(ctx);
        stitch_program *p = candidate(ctx);
        stitch_report *r = NULL;
        pthread_t thread;

        reset();
        hang_ms = 1500;
        o.timeout_ms = 1000;
        others_ms = held_ms[i];
        take_device();
        CHECK_INT(pthread_create(&thread, NULL, give_back_later, NULL), 0);
        int rc = stitch_verify_program(ctx, t, p, &o, &r, &err);
        CHECK_INT(pthread_join(thread, NULL), 0);
        if (i == 0) {
            CHECK_OK(rc);
            CHECK_INT(stitch_report_summary_get(r, &s), 0);
            CHECK_INT(s.failed_stage, STITCH_STAGE_CORRECT);
            CHECK_INT(s.status, STITCH_E_TIMEOUT);
        } else {
            CHECK_ERR(rc, STITCH_E_TIMEOUT, "of the call's 1.0 s: the program did not end");
            CHECK(!r);
        }
        stitch_report_free(r);
        stitch_program_free(p);
        stitch_task_free(t);
        reset();
    }
}

static void take_after_timing(int stage, int status, int64_t done, int64_t total, void *userdata)
{
    if (stage == STITCH_STAGE_TIME && status == STITCH_STAGE_PASSED)
        take_device();
}

/* Others who time for long cost a program its profile, not its verdict. */
TEST(a_profile_that_waits_too_long)
{
    stitch_verify_options o = options_of(10);
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_report *r = NULL;
    const char *why = "";
    int status = 0;

    need_context();
    stitch_task *t = task(ctx);
    stitch_program *p = candidate(ctx);
    o.profile = STITCH_PROFILE_TIMELINE;
    o.timeout_ms = 2000;
    o.on_stage = take_after_timing;
    CHECK_OK(stitch_verify_program(ctx, t, p, &o, &r, &err));
    stitch__gpu_lock_release(&others);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.failed_stage, STITCH_STAGE_NONE);
    CHECK_INT(s.timed, 1);
    CHECK_INT(stitch_report_stage(r, STITCH_STAGE_PROFILE, &status, NULL, &why), 0);
    CHECK_INT(status, STITCH_STAGE_SKIPPED);
    CHECK_HAS(why, "waiting for another process that times");
    stitch_report_free(r);
    stitch_program_free(p);
    stitch_task_free(t);
}

/* ---- host memory ------------------------------------------------------------------------------------------------- */

/* Every allocation of stage time fails in turn. */
TEST(host_memory_runs_out)
{
    stitch_verify_options o = options_of(10);
    int64_t first = 0;
    int refused = 0;
    bool enough = false;

    need_context();
    stitch_context *own = metered_context();
    stitch_task *t = task(own);
    for (int64_t n = -2; !enough; n++) {
        stitch_program *p = candidate(own);

        reset();
        o.last_stage = n == -1 ? STITCH_STAGE_EXPLOIT : STITCH_STAGE_TIME; /* -2: compiles what is kept */
        refuse_memory(n < 0 ? -1 : first + n);
        refused += verify_short_of_memory(own, t, p, &o, n < 0 ? OF_LIBRARY : 0, &enough) != STITCH_OK;
        if (n == -1)
            first = memory.calls;
    }
    printf("# %d allocations\n", refused);
    CHECK(refused > 10);
    free_metered(own, t);
}

TEST_MAIN(RUN(the_report_has_the_blocks), RUN(timed_runs_that_write_outside), RUN(fixed_inputs_are_looked_after),
          RUN(blocks_take_turns), RUN(any_number_of_runs), RUN(blocks_are_short), RUN(a_wrong_run),
          RUN(an_output_that_changed), RUN(an_output_that_was_mended), RUN(out_of_time), RUN(no_room),
          RUN(a_fault_in_a_block), RUN(runs_ahead), RUN(runs_that_were_not_foreseen), RUN(the_same_verdict_as_alone),
          RUN(an_output_that_changed_ahead), RUN(a_deadline_that_others_used_up), RUN(a_profile_that_waits_too_long),
          RUN(host_memory_runs_out), RUN(nothing_is_left))

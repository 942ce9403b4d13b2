/* SPDX-License-Identifier: MIT
 *
 * Each rule of the advice: facts that it holds for, the same facts but for the figure that decides, and its
 * documentation.
 */
#include "rule_facts.h"

#define PAIR(id)                                                                                                       \
    {                                                                                                                  \
#id, id                                                                                                        \
    }
static const struct {
    const char *id;
    build_fn build;
} pairs[] = {PAIR(conversions),
             PAIR(small_grid),
             PAIR(uncoalesced),
             PAIR(bank_conflicts),
             PAIR(spills),
             PAIR(atomic_contention),
             PAIR(tensor_unused),
             PAIR(barrier_stalls),
             PAIR(fp64_bound),
             PAIR(xu_bound),
             PAIR(instruction_bound),
             PAIR(l2_thrash),
             PAIR(cache_bound),
             PAIR(partial_warps),
             PAIR(divergence),
             PAIR(memory_bound_near_limit),
             PAIR(low_occupancy),
             PAIR(tail_effect),
             PAIR(compute_bound_near_limit),
             PAIR(uneven_blocks),
             PAIR(latency_bound),
             PAIR(host_copies),
             PAIR(host_bound),
             PAIR(slow_calls),
             PAIR(sync_bound),
             PAIR(launch_bound),
             PAIR(redundant_copies),
             PAIR(many_small_kernels),
             PAIR(fusable_neighbours)};

TEST(each_rule_has_a_pair)
{
    size_t count;
    const stitch__rule *rules = stitch__rules(&count);
    for (size_t i = 0; i < count; i++) {
        size_t found = 0;
        for (size_t j = 0; j < STITCH__COUNT(pairs); j++)
            found += strcmp(pairs[j].id, rules[i].id) == 0;
        if (found != 1)
            FAIL("rule %s: %zu pairs in this file, 1 is needed", rules[i].id, found);
    }
    CHECK_INT(count, STITCH__COUNT(pairs));
}

TEST(rules_hold_and_do_not_hold)
{
    for (size_t i = 0; i < STITCH__COUNT(pairs); i++) {
        for (int holds = 0; holds < 2; holds++) {
            stitch__facts *f = h200(NULL);
            stitch__advices a;
            pairs[i].build(f, holds);
            CHECK_INT(stitch__advise(NULL, f, &a), STITCH_OK);
            if ((advice_of(&a, pairs[i].id) != NULL) != holds)
                FAIL("rule %s %s", pairs[i].id, holds ? "is silent" : "is said although it does not hold");
            check_all(pairs[i].id, f, &a);
            stitch__advices_free(&a);
            stitch__facts_free(f);
        }
    }
}

TEST(rules_hide_only_later_rules)
{
    size_t count;
    const stitch__rule *rules = stitch__rules(&count);
    for (size_t i = 0; i < count; i++) {
        char ids[512], *rest = NULL;
        CHECK(strlen(rules[i].hides) < sizeof(ids));
        if (*rules[i].hides)
            CHECK(rules[i].hides[0] == ' ' && rules[i].hides[strlen(rules[i].hides) - 1] == ' ');
        strcpy(ids, rules[i].hides);
        for (char *id = strtok_r(ids, " ", &rest); id; id = strtok_r(NULL, " ", &rest)) {
            size_t at = 0;
            while (at < count && strcmp(rules[at].id, id) != 0)
                at++;
            if (at <= i || at == count || rules[at].about != rules[i].about)
                FAIL("rule %s cannot hide %s", rules[i].id, id);
        }
    }
}

/* The table in docs/profile.md is that of the rules. */
TEST(each_rule_is_documented)
{
    static const char *const about[] = {"kernel", "steps", "run"};
    char *text = NULL, row[512];
    size_t len, count;
    const stitch__rule *rules = stitch__rules(&count);
    CHECK_OK(stitch__file_read(NULL, STITCH_TEST_DOCS "/profile.md", 0, &text, &len, &err));
    for (size_t i = 0; i < count; i++) {
        snprintf(row, sizeof(row), "\n| `%s` | %s | %s | %s |\n", rules[i].id, about[rules[i].about], rules[i].when,
                 rules[i].problem);
        if (!strstr(text, row))
            FAIL("docs/profile.md lacks the row:%s", row);
    }
    stitch_free(text);
}

/* ---- what single rules do besides ---- */

TEST(a_cause_hides_its_effects)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    uncoalesced(f, true);
    advise(f, &a);
    CHECK(advice_of(&a, "uncoalesced") != NULL);
    CHECK(advice_of(&a, "latency_bound") == NULL);
    stitch__advices_free(&a);
    METRIC(&f->kernels[0], STORE_SECTORS) = 2e6;
    METRIC(&f->kernels[0], STORE_ASKED) = 32;
    advise(f, &a);
    CHECK(advice_of(&a, "latency_bound") != NULL);
    release(f, &a);
}

static bool says_uncoalesced(double load_sectors, double load_asked)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = plain_kernel(f);
    METRIC(k, LOAD_SECTORS) = load_sectors * METRIC(k, LOAD_REQUESTS);
    METRIC(k, LOAD_ASKED) = load_asked;
    METRIC(k, STALL_LONG) = 9; /* warps wait for memory: that says nothing about how wide their accesses are */
    advise(f, &a);
    bool said = advice_of(&a, "uncoalesced") != NULL;
    release(f, &a);
    return said;
}

/* 16 sectors a request are what float4 needs, and four times what float does. */
TEST(vector_accesses_are_not_taken_for_uncoalesced_ones)
{
    static const struct {
        double sectors, asked;
        bool said;
    } rows[] = {
        {4, 32, false},            /* floats side by side */
        {5, 25.6, false},          /* ... that do not begin at a sector */
        {8, 16, true},             /* every other one */
        {16, 8, true},             /* every fourth one */
        {16, 32, false},           /* float4 */
        {17, 512.0 / 17, false},   /* ... that do not begin at a sector */
        {32, 16, true},            /* every other float4 */
        {1, 4, false},             /* one lane */
        {1, 128, false},           /* all lanes the same address */
        {2, 32, false},            /* halves */
        {3, 64.0 / 3, false},      /* ... that do not begin at a sector */
        {32, 4, true},             /* a column */
        {1.75, 256.0 / 14, false}, /* three times in four one lane, else a warp side by side */
        {4, NAN, false},           /* not known how wide: */
        {16, NAN, false},
        {17, NAN, true},
        {16, 0, false}, /* counted, but of other accesses than the sectors (cp.async) */
    };
    for (size_t i = 0; i < STITCH__COUNT(rows); i++)
        if (says_uncoalesced(rows[i].sectors, rows[i].asked) != rows[i].said)
            FAIL("%g sectors a request, %g bytes of each asked for: %s", rows[i].sectors, rows[i].asked,
                 rows[i].said ? "not said" : "said");
}

/* By what is wasted, not by what moves: the part of the time that can be gained. */
TEST(what_uncoalesced_accesses_waste)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = plain_kernel(f);
    METRIC(k, LOAD_SECTORS) = 16e6;
    METRIC(k, LOAD_ASKED) = 8;
    METRIC(k, STALL_LONG) = 9;
    advise(f, &a);
    const stitch__advice *said = advice_of(&a, "uncoalesced");
    CHECK(said != NULL);
    CHECK_HAS(said->evidence,
              "16.0 sectors a load request (8 bytes of each are asked for), 4.0 a store request (32 bytes");
    CHECK(said->gain_share > 0 && said->gain_share <= 12.0 / 18);
    release(f, &a);
}

TEST(counts_of_the_simulator_suffice)
{
    stitch__facts *f = simulated();
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "counted", 0);
    METRIC(k, INST) = 10000;
    METRIC(k, FLOPS) = METRIC(k, MMA_INST) = METRIC(k, LOCAL_REQUESTS) = 0;
    METRIC(k, GLOBAL_REQUESTS) = 2000;
    METRIC(k, GLOBAL_SECTORS) = 36000;
    METRIC(k, GLOBAL_IDEAL_SECTORS) = 8000;
    METRIC(k, GLOBAL_BYTES) = 256000;
    METRIC(k, SHARED_WAVEFRONTS) = 33000;
    METRIC(k, SHARED_IDEAL_WAVEFRONTS) = 2000;
    METRIC(k, BRANCHES) = 1000;
    METRIC(k, DIVERGENT_BRANCHES) = 500;
    METRIC(k, ATOMICS) = 320;
    METRIC(k, ATOMIC_COLLISIONS) = 310;
    *add_line(k, 4, "y[x * n + i] = t[x][i];", NULL, 0) = (stitch__line_fact){
        "program.cu", 4, "y[x * n + i] = t[x][i];", 0, 0, {{0}}, 500, 1000, 32000, 4000, 32000, 1000};
    *add_line(k, 3, "t[i][x] = u[i * n + x];", NULL, 0) =
        (stitch__line_fact){"program.cu", 3, "t[i][x] = u[i * n + x];", 0, 0, {{0}}, 900, 1000, 4000, 4000, 1000, 1000};
    CHECK_INT(stitch__advise(NULL, f, &a), STITCH_OK);
    CHECK(advice_of(&a, "uncoalesced") != NULL);
    CHECK_INT(advice_of(&a, "uncoalesced")->line, 4);
    CHECK_STR(advice_of(&a, "uncoalesced")->source, "y[x * n + i] = t[x][i];");
    CHECK_HAS(advice_of(&a, "uncoalesced")->evidence, "4.5 times");
    CHECK(advice_of(&a, "bank_conflicts") != NULL);
    CHECK_INT(advice_of(&a, "bank_conflicts")->line, 4);
    CHECK_HAS(advice_of(&a, "bank_conflicts")->evidence, "16.5-way");
    CHECK(advice_of(&a, "atomic_contention") != NULL);
    CHECK_INT(a.count, 3); /* a kernel has three at the most; divergence is the fourth */
    for (size_t i = 0; i < a.count; i++)
        CHECK(a.list[i].gain_us == 0 && a.list[i].gain_share == 0);
    stitch__advices_free(&a);
    METRIC(k, ATOMIC_COLLISIONS) = 10;
    METRIC(k, GLOBAL_SECTORS) = 9000;
    CHECK_INT(stitch__advise(NULL, f, &a), STITCH_OK);
    CHECK(advice_of(&a, "divergence") != NULL);
    CHECK(advice_of(&a, "uncoalesced") == NULL);
    CHECK(advice_of(&a, "atomic_contention") == NULL);
    release(f, &a);
}

/* A product that loads both factors of each multiply-add: under float32 alone, tiles are what helps. */
TEST(products_are_told_by_counts)
{
    stitch__facts *f = simulated();
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "matmul", 0);
    METRIC(k, INST) = 1000;
    METRIC(k, FLOPS) = 64000;
    METRIC(k, GLOBAL_BYTES) = 256000;
    METRIC(k, MMA_INST) = 0;
    add_line(k, 9, "s += x[r * n + k] * y[k * n + c];", NULL, 0)->instructions = 700;
    for (int policy = 0; policy < 2; policy++) {
        f->precision = policy ? STITCH_PRECISION_TF32 : STITCH_PRECISION_F32;
        CHECK_INT(stitch__advise(NULL, f, &a), STITCH_OK);
        CHECK_INT(advice_of(&a, "tensor_unused") != NULL, policy);
        CHECK(advice_of(&a, "cache_bound") != NULL);
        CHECK_INT(advice_of(&a, "cache_bound")->line, 9);
        CHECK_HAS(advice_of(&a, "cache_bound")->evidence, "0.25 operations for each byte");
        stitch__advices_free(&a);
    }
    METRIC(k, FLOPS) = 4096000; /* from registers */
    CHECK_INT(stitch__advise(NULL, f, &a), STITCH_OK);
    CHECK(advice_of(&a, "cache_bound") == NULL);
    release(f, &a);
}

TEST(grids_of_the_simulator_are_not_judged)
{
    stitch__facts *f = simulated();
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "counted", 0);
    k->grid[0] = 4;
    k->waves = 1.1;
    CHECK_INT(stitch__advise(NULL, f, &a), STITCH_OK);
    CHECK_INT(a.count, 0);
    release(f, &a);
}

TEST(a_timeline_alone_says_little)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "timed", 500);
    k->occupancy = 0.4;
    advise(f, &a);
    CHECK_INT(a.count, 0);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_UNKNOWN);
    stitch__advices_free(&a);
    k->occupancy = 0.125;
    k->limiter = "shared memory";
    k->local = 64;
    advise(f, &a);
    CHECK(advice_of(&a, "low_occupancy") != NULL);
    CHECK_HAS(advice_of(&a, "low_occupancy")->action, "smaller tiles");
    CHECK(advice_of(&a, "spills") != NULL);
    CHECK(advice_of(&a, "spills")->gain_us == 0); /* not known */
    release(f, &a);
}

TEST(samples_alone_name_the_line)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "sampled", 500);
    add_line(k, 3, "float v = x[i];", "wait", 100);
    add_line(k, 9, "sum += v;", "long_scoreboard", 900);
    advise(f, &a);
    CHECK(advice_of(&a, "latency_bound") != NULL);
    CHECK_INT(advice_of(&a, "latency_bound")->line, 9);
    CHECK_HAS(advice_of(&a, "latency_bound")->evidence,
              "warps wait, 90 % of that for global or local memory (long_scoreboard)");
    stitch__advices_free(&a);
    k->samples = 0; /* too few to say anything */
    k->lines[0].samples = k->lines[0].reasons[0].samples = 1;
    k->lines[1].samples = k->lines[1].reasons[0].samples = 9;
    advise(f, &a);
    CHECK_INT(a.count, 0);
    release(f, &a);
}

TEST(small_kernels_get_no_advice_of_their_own)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k;
    memory_bound_near_limit(f, true);
    k = timed_kernel(f, "tiny", 5);
    k->local = 1000;
    k->occupancy = 0.1;
    advise(f, &a);
    for (size_t i = 0; i < a.count; i++)
        CHECK_INT(a.list[i].kernel, 0);
    stitch__advices_free(&a);
    f->kernels[1].time_us = 100;
    advise(f, &a);
    CHECK(advice_of(&a, "low_occupancy") != NULL);
    release(f, &a);
}

/* Each of 20 steps has 1 % of the time, the kernel that they share has 20 %. */
TEST(steps_with_the_same_kernel_are_one_advice)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    memory_bound_near_limit(f, true);
    f->wall_us = f->busy_us = 625;
    for (int i = 0; i < 20; i++)
        timed_kernel(f, "same", 6.25)->occupancy = 0.125;
    CHECK_INT(stitch__advise(NULL, f, &a), STITCH_OK);
    CHECK_INT(a.count, 2);
    const stitch__advice *v = advice_of(&a, "low_occupancy");
    CHECK(v != NULL);
    CHECK_HAS(v->evidence, "(and 19 more steps with this kernel)");
    CHECK_NEAR(v->gain_us, 20 * 6.25 * 0.75, 1e-6);
    release(f, &a);
}

/* Constants that the tensor pipe moves are no use of it. */
TEST(a_tensor_pipe_that_is_next_to_idle)
{
    static const double active[] = {0, 0.3, 5};
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    tensor_unused(f, true);
    for (size_t i = 0; i < STITCH__COUNT(active); i++) {
        METRIC(&f->kernels[0], TENSOR_ACTIVE) = active[i];
        CHECK_INT(stitch__advise(NULL, f, &a), STITCH_OK);
        CHECK_INT(advice_of(&a, "tensor_unused") != NULL, active[i] < 1);
        stitch__advices_free(&a);
    }
    stitch__facts_free(f);
}

TEST(kernels_of_a_library_get_what_its_caller_can_do)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k;
    tensor_unused(f, true);
    k = &f->kernels[0];
    k->library = true;
    k->occupancy = 0.125;
    k->local = 1000;
    METRIC(k, LOCAL_LOADS) = 5e5;
    advise(f, &a);
    CHECK_INT(a.count, 1);
    CHECK_STR(a.list[0].rule, "tensor_unused");
    release(f, &a);
}

TEST(tensor_cores_by_policy)
{
    static const struct {
        int precision;
        bool said;
        const char *words;
    } cases[] = {{STITCH_PRECISION_ANY, true, "any products"},
                 {STITCH_PRECISION_F32, false, ""},
                 {STITCH_PRECISION_TF32, true, "TF32"},
                 {STITCH_PRECISION_F16, true, "half"},
                 {-1, true, "not known"}};
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch__facts *f = h200(NULL);
        stitch__advices a;
        tensor_unused(f, true);
        f->precision = cases[i].precision;
        advise(f, &a);
        const stitch__advice *v = advice_of(&a, "tensor_unused");
        CHECK_INT(v != NULL, cases[i].said);
        if (v)
            CHECK_HAS(v->action, cases[i].words);
        release(f, &a);
    }
}

TEST(tensor_cores_where_they_cannot_help)
{
    for (int i = 0; i < 5; i++) {
        stitch__facts *f = h200(NULL);
        stitch__advices a;
        tensor_unused(f, true);
        stitch__kernel_fact *k = &f->kernels[0];
        if (i == 0)
            METRIC(k, TENSOR_INST) = 1e6;
        else if (i == 1)
            METRIC(k, FP64_SHARE) = 50;
        else if (i == 2)
            METRIC(k, FFMA) = 8.0 * 4096 * 256; /* a few a thread: no product */
        else if (i == 3)
            METRIC(k, DRAM_BYTES) = 500 * 0.9 * 4100e3;
        else
            f->ceilings.tf32_tflops = 0; /* no such unit */
        advise(f, &a);
        if (advice_of(&a, "tensor_unused"))
            FAIL("said in case %d", i);
        release(f, &a);
    }
}

/* The cheap counters do not tell what the instructions are. */
TEST(few_counters_are_not_taken_for_zeros)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "cheap", 500);
    cheap_counters(k);
    METRIC(k, ISSUE) = 75;
    advise(f, &a);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_COMPUTE);
    CHECK_INT(a.count, 0);
    stitch__advices_free(&a);
    METRIC(k, ISSUE) = 95;
    advise(f, &a);
    CHECK_INT(a.count, 1);
    CHECK_STR(a.list[0].rule, "compute_bound_near_limit");
    CHECK_HAS(a.list[0].evidence, "95 % of the issue slots are taken");
    release(f, &a);
}

/* Figures beside the deciding one that keep a rule silent, or make it speak after all. */
TEST(rules_by_their_other_conditions)
{
    enum { CASES = 16 };
    static const struct {
        const char *rule;
        bool said;
    } want[CASES] = {
        {"low_occupancy", false},      {"low_occupancy", true},   {"uncoalesced", true},    {"divergence", false},
        {"l2_thrash", false},          {"l2_thrash", true},       {"l2_thrash", false},     {"conversions", false},
        {"launch_bound", false},       {"launch_bound", false},   {"tail_effect", false},   {"barrier_stalls", false},
        {"many_small_kernels", false}, {"bank_conflicts", false}, {"low_occupancy", false}, {"low_occupancy", false}};
    for (int i = 0; i < CASES; i++) {
        stitch__facts *f = h200(NULL);
        stitch__advices a;
        stitch__kernel_fact *k = NULL;
        if (i < 2) { /* kernels for tensor cores have few warps */
            low_occupancy(f, true);
            METRIC(&f->kernels[0], TENSOR_ACTIVE) = i ? 10 : 50;
        } else if (i == 2) { /* 32 sectors are too many, whatever warps wait for */
            uncoalesced(f, true);
            METRIC(&f->kernels[0], STALL_LONG) = 0;
        } else if (i == 3) { /* one branch in ten: the bounds check */
            k = plain_kernel(f);
            METRIC(k, BRANCHES) = 1000;
            METRIC(k, DIVERGENT_BRANCHES) = 100;
        } else if (i == 4) { /* L1 serves what is asked for again: a stencil */
            l2_thrash(f, false);
            METRIC(&f->kernels[0], LOAD_SECTORS) = 2.5 * 1.2e9 / 32;
            METRIC(&f->kernels[0], LOAD_REQUESTS) = METRIC(&f->kernels[0], LOAD_SECTORS) / 4;
        } else if (i < 7) { /* what is asked for is known */
            l2_thrash(f, false);
            METRIC(&f->kernels[0], GLOBAL_SECTORS) = METRIC(&f->kernels[0], GLOBAL_IDEAL_SECTORS) =
                (i == 5 ? 5e8 : 1.4e9) / 32;
        } else if (i == 7) { /* 3 % of the time */
            conversions(f, true);
            timed_kernel(f, "other", 500 / 0.03);
        } else if (i < 10) { /* long kernels hide launches; two are no chain */
            many_launches(f, i == 8 ? 40 : 2, i == 8 ? 20 : 2, i == 8 ? 1000 : 5);
        } else if (i == 10) { /* a sixth of the last of many waves */
            tail_effect(f, true);
            f->kernels[0].waves = 8.1;
        } else if (i == 11) { /* at its limit in spite of them */
            barrier_stalls(f, true);
            METRIC(&f->kernels[0], DRAM_BYTES) = 500 * 0.9 * 4100e3;
        } else if (i == 12) {
            many_launches(f, 3, 2, 5);
            f->graph = true;
        } else if (i == 14) { /* a product with large tiles in registers: that is why it is as fast as it is */
            low_occupancy(f, true);
            METRIC(&f->kernels[0], FMA_SHARE) = 72;
        } else if (i == 15) { /* tensor cores are busy wherever there is a block */
            low_occupancy(f, true);
            METRIC(&f->kernels[0], TENSOR_ACTIVE) = 45;
            METRIC(&f->kernels[0], SM_ACTIVE) = 82;
        } else { /* shared memory has next to nothing to do */
            bank_conflicts(f, true);
            METRIC(&f->kernels[0], L1_SHARE) = 5;
        }
        advise(f, &a);
        if ((advice_of(&a, want[i].rule) != NULL) != want[i].said)
            FAIL("case %d: %s %s", i, want[i].rule, want[i].said ? "is silent" : "is said");
        release(f, &a);
    }
}

TEST(counts_are_short)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},        {7, "7"},        {3970, "3970"},     {9999, "9999"},
                 {10000, "10 k"}, {33000, "33 k"}, {8.59e9, "8.59 G"}, {1.5e15, "1.5 P"},
                 {NAN, "0"},      {0.25, "0.25"},  {1e30, "1e+30"}};
    for (size_t i = 0; i < STITCH__COUNT(cases); i++)
        CHECK_STR(stitch__count(cases[i].value).s, cases[i].text);
}

TEST(sums_of_products_are_told_by_their_text)
{
    static const char *const yes[] = {"acc += a[i * n + k] * b[k * n + j];", "acc[y][x] += ra[y] * rb[x];",
                                      "acc = fmaf(a, b, acc);", "s = __fmaf_rn(x[i],w[i],s);"};
    static const char *const no[] = {"",
                                     "s += d * d;",
                                     "x += 2.0f * y;",
                                     "y += x * 0.5f;",
                                     "i += 1;",
                                     "a = b * c;",
                                     "s = fmaf(d, d, s);",
                                     "fma(",
                                     "fma(a",
                                     "fma(a,",
                                     "+=",
                                     "+=*",
                                     "x +=* p;",
                                     "+= a *",
                                     "sum += x[i]; /* no product */"};
    for (size_t i = 0; i < STITCH__COUNT(yes); i++) {
        if (!stitch__sums_products(yes[i]))
            FAIL("no: %s", yes[i]);
    }
    for (size_t i = 0; i < STITCH__COUNT(no); i++) {
        if (stitch__sums_products(no[i]))
            FAIL("yes: %s", no[i]);
    }
}

/* ---- steps ---- */

static stitch__facts *chain(size_t count)
{
    stitch__facts *f = h200(NULL);
    add_steps(f, count);
    for (size_t i = 0; i < count; i++) {
        stitch__kernel_fact *k = timed_kernel(f, i % 2 ? "odd" : "even", 100);
        k->step = (int32_t)i;
        f->steps[i].name = "k";
        f->steps[i].next = i + 1 < count ? (int32_t)i + 1 : -1;
        f->steps[i].between = "h";
        f->steps[i].between_bytes = 41000000;
    }
    f->launches = count;
    f->wall_us = f->busy_us = 100.0 * (double)count;
    return f;
}

TEST(chains_of_steps_are_one_advice)
{
    stitch__facts *f = chain(6);
    stitch__advices a;
    advise(f, &a);
    CHECK_INT(a.count, 1);
    CHECK_STR(a.list[0].rule, "fusable_neighbours");
    CHECK_INT(a.list[0].step, 0);
    CHECK_INT(a.list[0].kernel, -1);
    CHECK_HAS(a.list[0].evidence, "run[0] (k), run[1] (k), run[2] (k), run[3] (k) and more hand on 205 MB");
    CHECK_NEAR(a.list[0].gain_us, 5 * (20 + 2.3), 1e-6); /* each buffer written and read at 4100 GB/s, and a launch */
    stitch__advices_free(&a);
    f->graph = true;
    advise(f, &a);
    CHECK_NEAR(a.list[0].gain_us, 5 * (20 + 1.2), 1e-6);
    stitch__advices_free(&a);
    f->kernels[0].time_us = 2000; /* the others cannot give more than they take */
    for (int i = 1; i < 6; i++)
        f->kernels[i].time_us = 10;
    f->wall_us = f->busy_us = 2050;
    advise(f, &a);
    CHECK_NEAR(a.list[0].gain_us, 50, 1e-6);
    release(f, &a);
}

TEST(steps_of_others_are_not_fused)
{
    stitch__facts *f = chain(6);
    stitch__advices a;
    f->steps[1].kind = "op";
    f->steps[4].kind = "gemm";
    advise(f, &a);
    CHECK_INT(a.count, 2); /* 2 and 3; 4 and 5: what comes after a product can be its epilogue */
    for (size_t i = 0; i < a.count; i++)
        CHECK(a.list[i].step == 2 || a.list[i].step == 4);
    release(f, &a);
}

TEST(steps_in_circles_end)
{
    stitch__facts *f = chain(6);
    stitch__advices a;
    f->steps[5].next = 0;
    f->steps[3].next = 3;
    f->steps[2].next = 1;
    f->steps[4].next = 99;
    f->steps[0].next = -7;
    advise(f, &a);
    CHECK_INT(a.count, 1);
    CHECK_INT(a.list[0].step, 1);
    release(f, &a);
}

TEST(copying_steps_are_said_without_times)
{
    stitch__facts *f = simulated();
    stitch__advices a;
    add_steps(f, 3);
    f->steps[1].kind = "copy";
    f->steps[1].moves_only = true;
    CHECK_INT(stitch__advise(NULL, f, &a), STITCH_OK);
    CHECK_INT(a.count, 1);
    CHECK_STR(a.list[0].rule, "redundant_copies");
    CHECK_HAS(a.list[0].evidence, "run[1]");
    release(f, &a);
}

/* What the tracing itself adds to the gaps is not taken for the run's. */
TEST(idle_time_of_the_trace_is_not_that_of_the_run)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    many_launches(f, 40, 2, 100);
    f->wall_us = 84;
    advise(f, &a);
    CHECK(advice_of(&a, "launch_bound") == NULL);
    release(f, &a);
}

TEST_MAIN(RUN(each_rule_has_a_pair), RUN(rules_hold_and_do_not_hold), RUN(rules_hide_only_later_rules),
          RUN(each_rule_is_documented), RUN(a_cause_hides_its_effects),
          RUN(vector_accesses_are_not_taken_for_uncoalesced_ones), RUN(what_uncoalesced_accesses_waste),
          RUN(counts_of_the_simulator_suffice), RUN(products_are_told_by_counts),
          RUN(grids_of_the_simulator_are_not_judged), RUN(a_timeline_alone_says_little),
          RUN(samples_alone_name_the_line), RUN(small_kernels_get_no_advice_of_their_own),
          RUN(steps_with_the_same_kernel_are_one_advice), RUN(a_tensor_pipe_that_is_next_to_idle),
          RUN(kernels_of_a_library_get_what_its_caller_can_do), RUN(tensor_cores_by_policy),
          RUN(tensor_cores_where_they_cannot_help), RUN(few_counters_are_not_taken_for_zeros),
          RUN(rules_by_their_other_conditions), RUN(counts_are_short), RUN(sums_of_products_are_told_by_their_text),
          RUN(chains_of_steps_are_one_advice), RUN(steps_of_others_are_not_fused), RUN(steps_in_circles_end),
          RUN(copying_steps_are_said_without_times), RUN(idle_time_of_the_trace_is_not_that_of_the_run))

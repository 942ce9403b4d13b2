/* SPDX-License-Identifier: MIT
 *
 * metrics.def against the CUPTI at hand, which needs no GPU for this: what each chip offers, in how many passes, and
 * what becomes of names that it lacks.
 */
#include <dlfcn.h>
#include <math.h>

#include "base/base.h"
#include "check.h"
#include "cuda/cuda.h"
#include "cupti_profiler_layout.h"
#include "profile/metric_plan.h"

static stitch_context *ctx;
static stitch_error *err;
static const stitch__cupti *cupti;

static void need_cupti(void)
{
#ifdef __SANITIZE_ADDRESS__
    SKIP("CUPTI opens a library with RTLD_DEEPBIND, which AddressSanitizer does not allow");
#endif
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    o.device = "none";
    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, &o, &err));
    int rc = stitch__cupti_get(ctx, &cupti, &err);
    if (rc == STITCH_OK)
        rc = stitch__cupti_open_profiler(ctx, cupti, &err);
    if (rc == STITCH_E_NO_LIBRARY || (rc == STITCH_E_LIBRARY && !dlopen("libcuda.so.1", RTLD_LAZY)))
        SKIP(stitch_error_message(err)); /* later versions of it do not even start without a driver */
    CHECK_OK(rc);
}

/* ---- the table ---- */

TEST(keys)
{
    size_t cheap = 0, full = 0;
    for (int i = 0; i < STITCH__METRICS; i++) {
        const stitch__metric_info *info = stitch__metric_info_of(i);
        CHECK(info && *info->key && *info->unit);
        CHECK_INT(stitch__metric_find(info->key), i); /* no key twice */
        CHECK((info->cupti == NULL) == (info->set == STITCH__METRIC_COUNTED));
        if (info->cupti) { /* what is for the full set alone comes first, and there is something else */
            const char *star = strrchr(info->cupti, '*');
            CHECK(!star || (star == info->cupti && strchr(star, '|')));
        }
        cheap += info->set == STITCH__METRIC_CHEAP;
        full += info->set == STITCH__METRIC_FULL;
    }
    CHECK(cheap >= 8 && full >= 20);
    CHECK(!stitch__metric_info_of(-1) && !stitch__metric_info_of(STITCH__METRICS));
    CHECK_INT(stitch__metric_find("no_such_key"), -1);
    CHECK_INT(stitch__metric_find(NULL), -1);
    CHECK_INT(stitch__metric_find("dram_bytes"), STITCH__METRIC_DRAM_BYTES);
}

TEST(names)
{
    static const char *const bad[] = {NULL, "", " ", "a b", "a,b", "a\nb", "a;b", "caf\xc3\xa9"};
    char name[STITCH__METRIC_NAME + 2];
    for (size_t i = 0; i < STITCH__COUNT(bad); i++)
        CHECK(!stitch__metric_name_ok(bad[i]));
    CHECK(stitch__metric_name_ok("TPC.TriageCompute.tpc__l1tex_sram_bytes_mem_untagged_data_shared_allocated_compute_"
                                 "realtime.avg.peak_sustained_elapsed.per_second")); /* the longest of GH100 */
    memset(name, 'a', sizeof(name));
    name[STITCH__METRIC_NAME] = '\0';
    CHECK(stitch__metric_name_ok(name));
    name[STITCH__METRIC_NAME] = 'a';
    name[STITCH__METRIC_NAME + 1] = '\0';
    CHECK(!stitch__metric_name_ok(name));
    for (int i = 0; i < STITCH__METRICS; i++) {
        const stitch__metric_info *info = stitch__metric_info_of(i);
        for (const char *at = info->cupti; at && *at;) {
            at += strspn(at, "+-|*");
            size_t len = strcspn(at, "+-|");
            CHECK(len <= STITCH__METRIC_NAME);
            memcpy(name, at, len);
            name[len] = '\0';
            CHECK(stitch__metric_name_ok(name));
            at += len;
        }
    }
}

/* ---- chips ---- */

/* The plans of CUPTI before that of CUDA 12.9 take a pass more for some. */
static size_t pass_more(void)
{
    enum { OF_CUDA_12_9 = 28 };
    uint32_t version = 0;
    CHECK_INT(cupti->GetVersion(&version), STITCH__CUPTI_OK);
    return version < OF_CUDA_12_9 ? 1 : 0;
}

TEST(what_chips_offer)
{
    static const struct {
        const char *chip, *missing;
        size_t full_passes;
    } chips[] = {
        {"GA100", "stall_gmma", 6}, {"GA102", "stall_gmma", 6}, {"AD102", "stall_gmma", 6},
        {"GH100", "", 6},           {"GB100", "stall_gmma", 6}, {"GB202", "stall_gmma", 6},
    };
    need_cupti();
    size_t seen = 0;
    for (size_t i = 0; i < STITCH__COUNT(chips); i++) {
        stitch__metric_plan p;
        int rc = stitch__metric_plan_make(ctx, cupti, chips[i].chip, NULL, STITCH__METRIC_CHEAP, NULL, 0, &p, &err);
        if (rc == STITCH_E_UNSUPPORTED) { /* newer than this CUPTI */
            printf("# %s\n", stitch_error_message(err));
            continue;
        }
        CHECK_OK(rc);
        size_t cheap = p.passes, cheap_names = p.name_count;
        CHECK_STR(p.missing, "");
        stitch__metric_plan_free(&p);
        CHECK_OK(stitch__metric_plan_make(ctx, cupti, chips[i].chip, NULL, STITCH__METRIC_FULL, NULL, 0, &p, &err));
        printf("# %s: cheap set %zu passes for %zu metrics, full set %zu passes for %zu, config image %zu bytes, not "
               "offered: %s\n",
               chips[i].chip, cheap, cheap_names, p.passes, p.name_count, p.config_size, *p.missing ? p.missing : "-");
        CHECK(cheap >= 1 && cheap <= 2);
        CHECK(p.passes > cheap && p.passes <= chips[i].full_passes + pass_more());
        CHECK_STR(p.missing, chips[i].missing);
        stitch__metric_plan_free(&p);
        seen++;
    }
    CHECK(seen >= 4);
}

static bool uses(const stitch__metric_plan *p, int metric, const char *name, bool minus)
{
    for (size_t i = 0; i < p->metrics[metric].count; i++) {
        if (strcmp(p->names[p->metrics[metric].name[i]], name) == 0 && p->metrics[metric].minus[i] == minus)
            return true;
    }
    return false;
}

TEST(alternatives)
{
    stitch__metric_plan p;
    need_cupti();
    CHECK_OK(stitch__metric_plan_make(ctx, cupti, "GH100", NULL, STITCH__METRIC_FULL, NULL, 0, &p, &err));
    CHECK_INT(p.metrics[STITCH__METRIC_TENSOR_INST].count, 2);
    CHECK(uses(&p, STITCH__METRIC_TENSOR_INST, "sm__inst_executed_pipe_tensor.sum", false));
    CHECK(uses(&p, STITCH__METRIC_TENSOR_INST, "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum", true));
    CHECK(uses(&p, STITCH__METRIC_DRAM_READ, "dram__bytes_read.sum", false));
    CHECK(uses(&p, STITCH__METRIC_INST, "sm__inst_executed_realtime.sum", false));
    CHECK_INT(p.metrics[STITCH__METRIC_INST].count, 1);
    CHECK_INT(p.metrics[STITCH__METRIC_FFMA].count, 1);
    CHECK_INT(p.metrics[STITCH__METRIC_FLOPS].count, 0);
    stitch__metric_plan_free(&p);
    CHECK_OK(stitch__metric_plan_make(ctx, cupti, "GH100", NULL, STITCH__METRIC_CHEAP, NULL, 0, &p, &err));
    CHECK(uses(&p, STITCH__METRIC_INST, "smsp__inst_executed.sum", false)); /* not that of the full set */
    for (size_t i = 0; i < p.name_count; i++)
        CHECK(!strstr(p.names[i], "sass") && !strstr(p.names[i], "realtime"));
    stitch__metric_plan_free(&p);
    if (stitch__metric_plan_make(ctx, cupti, "GB202", NULL, STITCH__METRIC_FULL, NULL, 0, &p, &err) == STITCH_OK) {
        CHECK(uses(&p, STITCH__METRIC_DRAM_READ, "dram__bytes_op_read.sum", false) ||
              uses(&p, STITCH__METRIC_DRAM_READ, "dram__bytes_read.sum", false)); /* before CUDA 12.9 */
        stitch__metric_plan_free(&p);
    }
    if (stitch__metric_plan_make(ctx, cupti, "GB100", NULL, STITCH__METRIC_FULL, NULL, 0, &p, &err) == STITCH_OK) {
        CHECK_INT(p.metrics[STITCH__METRIC_FFMA].count, 3);
        stitch__metric_plan_free(&p);
    }
}

/* ---- metrics by name ---- */

TEST(extra_metrics)
{
    static const char *const extra[] = {
        "sm__cycles_elapsed.max",     "dram__bytes.sum", "no_such__metric.sum",
        "dram__bytes.no_such_rollup", "dram__bytes",     "launch__registers_per_thread"};
    stitch__metric_plan p;
    need_cupti();
    CHECK_OK(stitch__metric_plan_make(ctx, cupti, "GH100", NULL, STITCH__METRIC_CHEAP, extra, STITCH__COUNT(extra), &p,
                                      &err));
    CHECK_STR(p.missing, "no_such__metric.sum, dram__bytes.no_such_rollup, dram__bytes, launch__registers_per_thread");
    CHECK_STR(p.names[p.extra[0]], "sm__cycles_elapsed.max");
    CHECK_STR(p.names[p.extra[1]], "dram__bytes.sum");
    CHECK_INT(p.extra[1], p.metrics[STITCH__METRIC_DRAM_BYTES].name[0]); /* collected once */
    CHECK(p.extra[2] == SIZE_MAX && p.extra[3] == SIZE_MAX && p.extra[4] == SIZE_MAX && p.extra[5] == SIZE_MAX);
    CHECK_INT(p.passes, 2);
    stitch__metric_plan_free(&p);
    stitch__metric_plan_free(&p);
}

TEST(bad_requests)
{
    const char *names[STITCH__FACTS_EXTRA + 1];
    char longest[400];
    stitch__metric_plan p;
    need_cupti();
    CHECK_ERR(stitch__metric_plan_make(ctx, cupti, "XX100", NULL, STITCH__METRIC_CHEAP, NULL, 0, &p, &err),
              STITCH_E_UNSUPPORTED, "XX100");
    CHECK_ERR(stitch__metric_plan_make(ctx, cupti, "GH100", NULL, STITCH__METRIC_COUNTED, NULL, 0, &p, &err),
              STITCH_E_INVALID, "no set");
    CHECK_ERR(stitch__metric_plan_make(ctx, cupti, "GH100", NULL, -1, NULL, 0, &p, &err), STITCH_E_INVALID, "no set");
    for (size_t i = 0; i < STITCH__COUNT(names); i++)
        names[i] = "dram__bytes.sum";
    CHECK_ERR(stitch__metric_plan_make(ctx, cupti, "GH100", NULL, STITCH__METRIC_CHEAP, names, STITCH__COUNT(names), &p,
                                       &err),
              STITCH_E_INVALID, "at most 64");
    CHECK_OK(stitch__metric_plan_make(ctx, cupti, "GH100", NULL, STITCH__METRIC_CHEAP, names, STITCH__FACTS_EXTRA, &p,
                                      &err));
    stitch__metric_plan_free(&p);
    memset(longest, 'a', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    const char *bad[] = {NULL, "", "a b", "dram__bytes.sum\n", "a|b", "a-b", longest, "\xff"};
    for (size_t i = 0; i < STITCH__COUNT(bad); i++) {
        names[0] = bad[i];
        CHECK_ERR(stitch__metric_plan_make(ctx, cupti, "GH100", NULL, STITCH__METRIC_CHEAP, names, 1, &p, &err),
                  STITCH_E_INVALID, "extra metric 0");
    }
}

/* Whatever counter data holds, evaluation ends with an error or values. */
TEST(data_that_is_none)
{
    static _Alignas(16) uint8_t data[4096];
    double metrics[STITCH__METRICS], extra[1];
    stitch__metric_plan p;
    need_cupti();
    CHECK_OK(stitch__metric_plan_make(ctx, cupti, "GH100", NULL, STITCH__METRIC_CHEAP, NULL, 0, &p, &err));
    CHECK(stitch__metric_plan_evaluate(&p, data, sizeof(data), 0, metrics, extra, &err) != STITCH_OK);
    CHECK_INT(stitch_error_domain(err), STITCH_DOMAIN_CUPTI);
    for (int i = 0; i < STITCH__METRICS; i++)
        CHECK(isnan(metrics[i]));
    stitch__metric_plan_free(&p);
}

TEST(a_table_of_no_profiler)
{
    stitch__cupti old;
    need_cupti();
    old = *cupti;
    old.RangeProfilerStart = NULL;
    CHECK_ERR(stitch__cupti_open_profiler(ctx, &old, &err), STITCH_E_NO_LIBRARY,
              "lacks cuptiRangeProfilerStart, and hardware counters need it; use the CUPTI of CUDA 12.6 Update 2");
}

/* Each of the libraries beside CUPTI takes a tenth of a second to open. */
TEST(nothing_is_opened_for_no_use)
{
    stitch__metric_plan p;
    need_cupti();
    CHECK_OK(stitch__metric_plan_make(ctx, cupti, "GH100", NULL, STITCH__METRIC_CHEAP, NULL, 0, &p, &err));
    stitch__metric_plan_free(&p);
    CHECK(dlopen("libnvperf_host.so", RTLD_LAZY | RTLD_NOLOAD));
    CHECK(!dlopen("libnvperf_target.so", RTLD_LAZY | RTLD_NOLOAD));
}

TEST_MAIN(RUN(keys), RUN(names), RUN(what_chips_offer), RUN(alternatives), RUN(extra_metrics), RUN(bad_requests),
          RUN(data_that_is_none), RUN(a_table_of_no_profiler), RUN(nothing_is_opened_for_no_use))

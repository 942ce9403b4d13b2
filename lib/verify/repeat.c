/* SPDX-License-Identifier: MIT
 *
 * What a report says so that its result can be repeated: what was asked for, and with which software it was done.
 */
#include "verify/verify.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "program/program.h"

static const char *word(const char *const *words, size_t count, int which)
{
    return which >= 0 && (size_t)which < count ? words[which] : "unknown";
}

#define WORD(words, which) word(words, STITCH__COUNT(words), which)

static json_t *metrics_json(bool *failed, const stitch__collect_options *c)
{
    json_t *list = json_array();

    for (size_t i = 0; i < c->extra_count; i++)
        stitch__json_push(failed, list, json_string(c->extra[i]));
    return list;
}

/* With the defaults filled in, so that a library with other ones can be asked for the same. */
int stitch__take_options(stitch__verify *v, stitch_error **err)
{
    static const char *const where[] = {"auto", "here", "worker"}, *const simulate[] = {"auto", "never"},
                             *const profile[] = {"auto", "full", "timeline", "never"};
    const stitch_verify_options *o = &v->options;
    json_t *all = json_object();
    bool failed = false;
    int last = o->last_stage;

    stitch__json_put(&failed, all, "trials", json_integer(o->trials));
    stitch__json_put(&failed, all, "warmup", json_integer(o->warmup));
    stitch__json_put(&failed, all, "iterations", json_integer(o->iterations));
    stitch__json_put(&failed, all, "time_budget_ms", json_integer(o->time_budget_ms));
    stitch__json_put(&failed, all, "timeout_ms", json_integer(o->timeout_ms));
    stitch__json_put(&failed, all, "last_stage", last ? json_string(stitch_stage_name(last)) : json_null());
    stitch__json_put(&failed, all, "where", json_string(WORD(where, o->where)));
    stitch__json_put(&failed, all, "simulate", json_string(WORD(simulate, o->simulate)));
    stitch__json_put(&failed, all, "profile", json_string(WORD(profile, o->profile)));
    stitch__json_put(&failed, all, "metrics", metrics_json(&failed, &v->collect));
    v->report->options = all;
    return failed ? stitch__err_nomem(v->ctx, err) : STITCH_OK;
}

/* The release of the kernel's module ("580.159.03"): the driver library's own number stands for many. */
static void read_release(char *out, size_t size)
{
    int fd = open("/sys/module/nvidia/version", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : 0;

    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    if (fd >= 0)
        close(fd);
}

/* cuBLASLt is not opened to be asked for its number: where a worker alone has it, its file has to do, by the name that
 * links lead to, which mostly has a number as well. */
static void name_cublaslt(stitch__verify *v, char *out, size_t size)
{
    size_t version = stitch__cublaslt_version(v->ctx);
    char *path = version ? NULL : stitch__cublaslt_find(v->ctx), *real = path ? realpath(path, NULL) : NULL;

    *out = '\0';
    if (version)
        snprintf(out, size, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    else if (real || path)
        snprintf(out, size, "%s", real ? real : path);
    free(real);
    stitch_free(path);
}

static bool has_products(const stitch_program *program)
{
    return program && stitch__doc_has(&program->doc, STITCH__STEP_GEMM);
}

static bool task_has_products(const stitch_task *t)
{
    bool any = has_products(t->reference.program);

    for (size_t i = 0; i < t->baseline_count; i++)
        any = any || has_products(t->baselines[i].program);
    return any;
}

int stitch__take_software(stitch__verify *v, stitch_error **err)
{
    stitch_report *r = v->report;
    char text[512];
    int rc;

    if (!v->dev || v->dev->info.simulated) /* which computes products itself */
        return STITCH_OK;
    read_release(text, sizeof(text));
    rc = stitch__report_set(r, &r->driver_release, text, 100, err);
    if (rc || !(has_products(v->program) || task_has_products(v->task)))
        return rc;
    name_cublaslt(v, text, sizeof(text));
    return stitch__report_set(r, &r->cublaslt, text, sizeof(text), err);
}

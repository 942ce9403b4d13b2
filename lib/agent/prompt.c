/* SPDX-License-Identifier: MIT
 *
 * The texts that prompt templates are filled with, and the fingerprints that recordings are matched by.
 */
#include "agent/agent.h"

static void put_shape(stitch__buf *b, const stitch_tensor_info *t)
{
    stitch__buf_putc(b, '[');
    for (size_t d = 0; d < t->rank; d++)
        stitch__buf_printf(b, "%s%s", d ? ", " : "", t->shape_expr[d]);
    stitch__buf_puts(b, "] = [");
    for (size_t d = 0; d < t->rank; d++)
        stitch__buf_printf(b, "%s%" PRId64, d ? ", " : "", t->shape[d]);
    stitch__buf_putc(b, ']');
}

static void put_tensors(stitch__buf *b, const stitch_interface *in, int role, const char *title)
{
    bool any = false;
    for (size_t i = 0; i < stitch_interface_tensor_count(in); i++) {
        stitch_tensor_info t = STITCH_TENSOR_INFO_INIT;
        if (stitch_interface_tensor(in, i, &t) != STITCH_OK || t.role != role)
            continue;
        if (!any)
            stitch__buf_printf(b, "%s:\n", title);
        any = true;
        stitch__buf_printf(b, "- `%s` %s ", t.name, stitch_dtype_name(t.dtype));
        put_shape(b, &t);
        stitch__buf_printf(b, ", %.4g MB\n", (double)t.bytes / 1e6);
    }
}

static const char *precision_text(int precision)
{
    switch (precision) {
    case STITCH_PRECISION_F32: return "float32 throughout: no TF32, no half precision";
    case STITCH_PRECISION_TF32: return "TF32 products are allowed, half precision is not";
    case STITCH_PRECISION_F16: return "half precision (f16, bf16) products with float32 accumulation are allowed";
    default: return "any arithmetic that stays within the tolerance";
    }
}

int stitch__prompt_interface(stitch_context *ctx, const stitch_task *task, char **out, stitch_error **err)
{
    const stitch_interface *in = stitch_task_interface(task);
    double atol, rtol;
    stitch__buf b;

    *out = NULL;
    stitch__buf_init(&b, ctx);
    stitch__buf_puts(&b, "Dims:");
    for (size_t i = 0; i < stitch_interface_dim_count(in); i++) {
        const char *name;
        int64_t value;
        if (stitch_interface_dim(in, i, &name, &value) == STITCH_OK)
            stitch__buf_printf(&b, "%s %s = %" PRId64, i ? "," : "", name, value);
    }
    stitch__buf_puts(&b, "\n\n");
    put_tensors(&b, in, STITCH_TENSOR_INPUT, "Inputs");
    put_tensors(&b, in, STITCH_TENSOR_WEIGHT, "Weights");
    put_tensors(&b, in, STITCH_TENSOR_STATE, "States (kept between runs)");
    put_tensors(&b, in, STITCH_TENSOR_OUTPUT, "Outputs");
    stitch_task_tolerance(task, &atol, &rtol);
    stitch__buf_printf(
        &b, "\nTolerance: every element within %g + %g * |expected| of a float64 oracle. Precision policy: %s.", atol,
        rtol, precision_text(stitch_task_precision(task)));
    *out = stitch__buf_take(&b, NULL);
    return *out ? STITCH_OK : stitch__err_nomem(ctx, err);
}

int stitch__prompt_device(stitch_context *ctx, char **facts, char **stable, stitch_error **err)
{
    stitch_device_info d = STITCH_DEVICE_INFO_INIT;
    stitch__buf b;
    int rc;

    *facts = *stable = NULL;
    if ((rc = stitch_device_query(ctx, &d, err)) != STITCH_OK)
        return rc;
    stitch__buf_init(&b, ctx);
    stitch__buf_printf(
        &b,
        "%s, compiled for %s: %d multiprocessors, %.1f GB memory, %.0f MiB L2, up to %.0f KiB shared memory a block "
        "(%.0f KiB a multiprocessor), %d threads a block at most.",
        d.name, d.arch, d.multiprocessors, (double)d.memory_bytes / 1e9, (double)d.l2_bytes / 1048576.0,
        (double)d.shared_bytes_per_block_optin / 1024.0, (double)d.shared_bytes_per_multiprocessor / 1024.0,
        d.max_threads_per_block);
    *facts = stitch__buf_take(&b, NULL);
    *stable = stitch__strdup(ctx, d.arch);
    if (*facts && *stable)
        return STITCH_OK;
    stitch__zero_free(*facts);
    stitch__zero_free(*stable);
    return stitch__err_nomem(ctx, err);
}

/* A fence longer than any run of backticks inside, so that the text cannot end its block. */
static void put_block(stitch__buf *b, const char *kind, const char *text)
{
    size_t longest = 2, run = 0;
    for (const char *c = text; *c; c++) {
        run = *c == '`' ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    for (size_t i = 0; i <= longest; i++)
        stitch__buf_putc(b, '`');
    stitch__buf_printf(b, "%s\n%s%s", kind, text, *text && text[strlen(text) - 1] == '\n' ? "" : "\n");
    for (size_t i = 0; i <= longest; i++)
        stitch__buf_putc(b, '`');
    stitch__buf_putc(b, '\n');
}

int stitch__prompt_program(stitch_context *ctx, const stitch_candidate *candidate, char **out, stitch_error **err)
{
    enum { MAX_RAW_REPLY = 64 * 1024 };
    stitch__buf b, raw;

    *out = NULL;
    stitch__buf_init(&b, ctx);
    stitch__buf_init(&raw, ctx);
    const stitch_program *p = stitch_candidate_program(candidate);
    if (p) {
        put_block(&b, "cuda", stitch_program_source(p));
        stitch__buf_putc(&b, '\n');
        put_block(&b, "json", stitch_program_json(p));
    } else {
        const char *reply = stitch_candidate_reply(candidate);
        stitch__buf_puts_clean(&raw, reply, strlen(reply), MAX_RAW_REPLY);
        put_block(&b, "text", raw.data ? raw.data : "");
        b.failed |= raw.failed;
    }
    stitch__buf_free(&raw);
    *out = stitch__buf_take(&b, NULL);
    return *out ? STITCH_OK : stitch__err_nomem(ctx, err);
}

int stitch__prompt_history(stitch_context *ctx, const stitch_attempt *attempts, const stitch_report *const *reports,
                           size_t count, char **out, char **stable, stitch_error **err)
{
    stitch__buf text, fixed;
    char *feedback = NULL;
    int rc = STITCH_OK;

    *out = *stable = NULL;
    stitch__buf_init(&text, ctx);
    stitch__buf_init(&fixed, ctx);
    for (size_t i = 0; i < count; i++) {
        const stitch_attempt *a = &attempts[i];
        stitch__buf *both[2] = {&text, &fixed};
        for (int k = 0; k < 2; k++)
            stitch__buf_printf(both[k], "Attempt %zu (%s): ", i + 1, stitch_action_name(a->action));
        if (a->failed_stage) {
            stitch__buf_printf(&text, "failed in stage %s.\n", stitch_stage_name(a->failed_stage));
            stitch__buf_printf(&fixed, "failed in stage %s.\n", stitch_stage_name(a->failed_stage));
        } else if (!a->correct) {
            for (int k = 0; k < 2; k++)
                stitch__buf_puts(both[k], "wrong results.\n");
        } else {
            if (a->speedup > 0)
                stitch__buf_printf(&text, "correct, %.1f us, %.2fx the baseline's speed.\n", a->median_us, a->speedup);
            else
                stitch__buf_puts(&text, "correct.\n");
            stitch__buf_puts(&fixed, "correct.\n");
        }
        /* The last attempts in some detail, the earlier ones in a line. */
        if (reports && reports[i] && i + 2 >= count) {
            if ((rc = stitch_report_feedback(reports[i], 2048, &feedback, err)) != STITCH_OK)
                goto out;
            stitch__buf_printf(&text, "%s\n", feedback);
            stitch__buf_printf(&fixed, "%s\n", stitch_report_fingerprint(reports[i]));
            stitch__zero_free(feedback);
        }
    }
    *out = stitch__buf_take(&text, NULL);
    *stable = stitch__buf_take(&fixed, NULL);
    if (!*out || !*stable) {
        stitch__zero_free(*out);
        stitch__zero_free(*stable);
        rc = stitch__err_nomem(ctx, err);
    }
out:
    stitch_free(feedback);
    stitch__buf_free(&text);
    stitch__buf_free(&fixed);
    return rc;
}

int stitch__prompt_render(stitch_context *ctx, const char *name, const stitch__var *vars, size_t count, char **prompt,
                          char fingerprint[65], stitch_error **err)
{
    char *stable = NULL;
    int rc;

    *prompt = NULL;
    const char *text = stitch__agent_prompt(ctx, name), *system = stitch__agent_prompt(ctx, "system");
    if ((rc = stitch__template_render(ctx, name, text, vars, count, false, prompt, err)) != STITCH_OK)
        return rc;
    if ((rc = stitch__template_render(ctx, name, text, vars, count, true, &stable, err)) != STITCH_OK) {
        stitch__zero_free(*prompt);
        return rc;
    }
    stitch__sha256 h;
    stitch__sha256_init(&h);
    stitch__sha256_string(&h, system);
    stitch__sha256_string(&h, stable);
    stitch__sha256_hex(&h, fingerprint);
    stitch_free(stable);
    return STITCH_OK;
}

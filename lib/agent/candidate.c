/* SPDX-License-Identifier: MIT
 *
 * Candidates: a program with the reply that it came in, or a reply that is no program.
 */
#include "agent/agent.h"

static int candidate_new(stitch_context *ctx, stitch_candidate **out, stitch_error **err)
{
    stitch_candidate *c = stitch__calloc(ctx, 1, sizeof(*c));
    if (!c)
        return stitch__err_nomem(ctx, err);
    c->tokens = -1;
    *out = c;
    return STITCH_OK;
}

void stitch_candidate_free(stitch_candidate *c)
{
    if (!c)
        return;
    stitch_program_free(c->program);
    stitch_error_free(c->format_error);
    stitch_free(c->reply);
    stitch_free(c->notes);
    stitch_free(c->notice);
    stitch_free(c);
}

int stitch_candidate_from_reply(stitch_context *ctx, const char *text, stitch_candidate **out, stitch_error **err)
{
    stitch__blocks blocks = {NULL, NULL, NULL};
    stitch_candidate *c = NULL;
    int rc;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_candidate_from_reply: out must not be NULL");
    *out = NULL;
    if (!ctx || !text)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_candidate_from_reply: context and text must not be NULL");
    if ((rc = stitch__reply_split(ctx, text, &blocks, err)) != STITCH_OK)
        goto out;
    if (!blocks.cuda || !blocks.json) {
        rc = stitch__err_native(ctx, err, STITCH_E_REPLY, STITCH_DOMAIN_REPLY, 0, "the reply holds no ```%s block",
                                blocks.cuda ? "json" : "cuda");
        goto out;
    }
    if ((rc = candidate_new(ctx, &c, err)) != STITCH_OK)
        goto out;
    if ((rc = stitch_program_parse(ctx, blocks.cuda, blocks.json, NULL, &c->program, err)) != STITCH_OK)
        goto out;
    c->reply = stitch__strdup(ctx, text);
    if (!c->reply) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    c->notes = blocks.notes;
    blocks.notes = NULL;
    *out = c;
    c = NULL;
out:
    stitch_candidate_free(c);
    stitch__blocks_free(&blocks);
    return rc;
}

int stitch_candidate_from_program(stitch_context *ctx, stitch_program *program, stitch_candidate **out,
                                  stitch_error **err)
{
    int rc;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_candidate_from_program: out must not be NULL");
    *out = NULL;
    if (!ctx || !program)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_candidate_from_program: context and program must not be NULL");
    if ((rc = candidate_new(ctx, out, err)) == STITCH_OK)
        (*out)->program = program;
    return rc;
}

stitch_program *stitch_candidate_program(const stitch_candidate *c)
{
    return c ? c->program : NULL;
}

const char *stitch_candidate_reply(const stitch_candidate *c)
{
    return c && c->reply ? c->reply : "";
}

const char *stitch_candidate_notes(const stitch_candidate *c)
{
    return c && c->notes ? c->notes : "";
}

const char *stitch_candidate_notice(const stitch_candidate *c)
{
    return c && c->notice ? c->notice : "";
}

int stitch_candidate_format_repairs(const stitch_candidate *c)
{
    return c ? c->format_repairs : 0;
}

int64_t stitch_candidate_tokens(const stitch_candidate *c)
{
    return c ? c->tokens : -1;
}

int stitch_verify(stitch_context *ctx, stitch_task *task, stitch_candidate *candidate,
                  const stitch_verify_options *options, stitch_report **out, stitch_error **err)
{
    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_verify: out must not be NULL");
    *out = NULL;
    if (!ctx || !task || !candidate)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_verify: context, task and candidate must not be NULL");
    if (candidate->program)
        return stitch_verify_program(ctx, task, candidate->program, options, out, err);
    return stitch_report_new_format_failure(ctx, candidate->format_error, out, err);
}

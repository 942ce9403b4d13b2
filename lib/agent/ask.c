/* SPDX-License-Identifier: MIT
 *
 * Asks a model, and asks again, cheaply, where an answer cannot be read. Several answers are worked on at once.
 */
#include "agent/agent.h"

void stitch__answer_clear(stitch__answer *a)
{
    stitch_error_free(a->error);
    a->error = NULL;
    stitch__zero_free(a->text);
    stitch__zero_free(a->notice);
}

static bool curable(int status)
{
    return status == STITCH_E_REPLY || status == STITCH_E_FORMAT || status == STITCH_E_LIMIT;
}

/* Appends a reply's notice, takes over its text, adds up its tokens. */
static int take_reply(stitch_context *ctx, stitch__answer *a, const stitch_reply *reply)
{
    char *text = stitch__strdup(ctx, stitch_reply_text(reply));
    if (!text)
        return stitch__err_nomem(ctx, &a->error);
    stitch_free(a->text);
    a->text = text;
    int64_t in = stitch_reply_tokens_in(reply), out = stitch_reply_tokens_out(reply);
    if (in >= 0 && out >= 0 && a->tokens >= 0)
        a->tokens += in + out;
    else
        a->tokens = -1;
    const char *notice = stitch_reply_notice(reply);
    if (*notice) {
        stitch__buf b;
        stitch__buf_init(&b, ctx);
        stitch__buf_printf(&b, "%s%s%s", a->notice ? a->notice : "", a->notice ? "\n" : "", notice);
        char *joined = stitch__buf_take(&b, NULL);
        if (!joined)
            return stitch__err_nomem(ctx, &a->error);
        stitch_free(a->notice);
        a->notice = joined;
    }
    return STITCH_OK;
}

/* Why it cannot be read may be that the endpoint ended it: thinking has used up all tokens, say. */
static void say_how_it_ended(const stitch_context *ctx, stitch__answer *a, const char *finish)
{
    if (!a->error || !*finish || strcmp(finish, "stop") == 0)
        return;
    if (strcmp(finish, "length") == 0)
        stitch__err_native(ctx, &a->error, a->status, stitch_error_domain(a->error), stitch_error_native(a->error),
                           "%s; the reply was cut off at its token limit (max_tokens), thinking included",
                           stitch_error_message(a->error));
    else
        stitch__err_native(ctx, &a->error, a->status, stitch_error_domain(a->error), stitch_error_native(a->error),
                           "%s; the endpoint ended the reply with finish_reason \"%.32s\"",
                           stitch_error_message(a->error), finish);
}

/* One answer's conversation: system, prompt, then for each try the reply and what was wrong with it. Older tries stay:
 * a repair may have brought one block alone, and the other is in the reply before. */
typedef struct talk {
    stitch_message messages[2 + 2 * STITCH__MAX_REPAIRS];
    char *texts[2 * STITCH__MAX_REPAIRS]; /* of the messages behind the first two */
    size_t count;
    char fingerprint[65];
    bool waiting; /* is part of the next round */
} talk;

static int ask_again(stitch_context *ctx, const stitch__ask *ask, talk *t, const stitch__answer *a,
                     const char *instruction, stitch_error **err)
{
    stitch__var vars[] = {
        {"error", stitch_error_message(a->error), NULL},
        {"instruction", instruction, NULL},
    };
    char **said = &t->texts[t->count - 2], *repair = NULL;
    int rc = stitch__template_render(ctx, "format_repair", stitch__agent_prompt(ctx, "format_repair"), vars, 2, false,
                                     &repair, err);
    if (rc)
        return rc;
    said[0] = stitch__strdup(ctx, a->text);
    said[1] = repair;
    if (!said[0])
        return stitch__err_nomem(ctx, err);
    t->messages[t->count++] = (stitch_message){STITCH_MESSAGE_ASSISTANT, 0, said[0]};
    t->messages[t->count++] = (stitch_message){STITCH_MESSAGE_USER, 0, said[1]};
    t->waiting = true;
    stitch__sha256 h;
    stitch__sha256_init(&h);
    stitch__sha256_string(&h, ask->fingerprint);
    stitch__sha256_string(&h, a->text);
    stitch__sha256_string(&h, repair);
    stitch__sha256_hex(&h, t->fingerprint);
    return STITCH_OK;
}

/* Sends every waiting conversation and reads what comes back. */
static int run_round(stitch_context *ctx, const stitch__ask *ask, const char *label, talk *talks,
                     stitch__answer *answers, size_t count, stitch_request *requests, stitch_reply **replies,
                     int *statuses, stitch_error **errors, stitch_error **err)
{
    size_t n = 0;
    int rc = STITCH_OK;

    for (size_t i = 0; i < count; i++) {
        if (!talks[i].waiting)
            continue;
        stitch_request r = STITCH_REQUEST_INIT;
        r.messages = talks[i].messages;
        r.message_count = talks[i].count;
        r.label = label;
        r.fingerprint = talks[i].fingerprint;
        r.json_schema = ask->json_schema;
        r.on_token = ask->on_token;
        r.userdata = ask->userdata;
        r.cancel = ask->cancel;
        r.timeout_ms = ask->timeout_ms;
        requests[n] = r;
        replies[n] = NULL;
        errors[n] = NULL;
        statuses[n++] = STITCH_E_INTERNAL;
    }
    stitch_model_complete_many(ask->model, requests, n, statuses, replies, errors);
    n = 0;
    for (size_t i = 0; i < count; i++) {
        if (!talks[i].waiting)
            continue;
        stitch__answer *a = &answers[i];
        size_t k = n++;
        talks[i].waiting = false;
        stitch_error_free(a->error);
        a->error = errors[k];
        a->status = statuses[k];
        a->unread = false;
        if (a->status == STITCH_OK) {
            const char *instruction = "";
            a->status = take_reply(ctx, a, replies[k]);
            if (a->status == STITCH_OK) {
                a->status = ask->read(ctx, replies[k], a->state, &instruction, &a->error);
                a->unread = curable(a->status);
                if (a->unread)
                    say_how_it_ended(ctx, a, stitch_reply_finish(replies[k]));
            }
            if (a->unread && a->repairs < ask->max_repairs && a->repairs < STITCH__MAX_REPAIRS) {
                a->repairs++;
                if (rc == STITCH_OK)
                    rc = ask_again(ctx, ask, &talks[i], a, instruction, err);
            }
        }
        stitch_reply_free(replies[k]);
    }
    return rc;
}

int stitch__ask_many(stitch_context *ctx, const stitch__ask *ask, stitch__answer *answers, size_t count,
                     stitch_error **err)
{
    stitch__buf label;
    talk *talks = stitch__calloc(ctx, count, sizeof(*talks));
    stitch_request *requests = stitch__calloc(ctx, count, sizeof(*requests));
    stitch_reply **replies = stitch__calloc(ctx, count, sizeof(*replies));
    stitch_error **errors = stitch__calloc(ctx, count, sizeof(*errors));
    int *statuses = stitch__calloc(ctx, count, sizeof(*statuses));
    int rc = STITCH_OK;

    stitch__buf_init(&label, ctx);
    stitch__buf_printf(&label, "%s:format", ask->label);
    if (!talks || !requests || !replies || !errors || !statuses || label.failed) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        talks[i].messages[0] = (stitch_message){STITCH_MESSAGE_SYSTEM, 0, stitch__agent_prompt(ctx, "system")};
        talks[i].messages[1] = (stitch_message){STITCH_MESSAGE_USER, 0, ask->prompt};
        talks[i].count = 2;
        talks[i].waiting = true;
        memcpy(talks[i].fingerprint, ask->fingerprint, 65);
    }
    for (int round = 0, waiting = 1; waiting && rc == STITCH_OK; round++) {
        rc = run_round(ctx, ask, round ? label.data : ask->label, talks, answers, count, requests, replies, statuses,
                       errors, err);
        waiting = 0;
        for (size_t i = 0; i < count; i++)
            waiting += talks[i].waiting;
    }
    if (rc == STITCH_OK) {
        size_t usable = 0, first = count;
        for (size_t i = 0; i < count; i++) {
            usable += answers[i].status == STITCH_OK || answers[i].unread;
            if (answers[i].status != STITCH_OK && first == count)
                first = i;
        }
        if (!usable && first < count) {
            rc = answers[first].status;
            if (!answers[first].error) {
                stitch__err(ctx, err, rc, "%s: %s", ask->label, stitch_status_text(rc));
            } else if (err) { /* hand the first failure on */
                stitch_error_free(*err);
                *err = answers[first].error;
                answers[first].error = NULL;
            }
        }
    }
out:
    for (size_t i = 0; talks && i < count; i++) {
        for (size_t k = 0; k < STITCH__COUNT(talks[i].texts); k++)
            stitch_free(talks[i].texts[k]);
    }
    stitch__buf_free(&label);
    stitch_free(talks);
    stitch_free(requests);
    stitch_free(replies);
    stitch_free(errors);
    stitch_free(statuses);
    return rc;
}

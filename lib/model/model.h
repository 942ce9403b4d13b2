/* SPDX-License-Identifier: MIT
 *
 * Private interface of the model module: kinds of models, replies, the wire formats.
 */
#ifndef STITCH_LIB_MODEL_H
#define STITCH_LIB_MODEL_H

#include "base/base.h"
#include <stitch/model.h>

struct stitch_reply {
    const stitch_context *ctx;
    char *text, *reasoning, *finish, *notice, *model; /* NULL: "" */
    int64_t tokens_in, tokens_out;                    /* -1: unknown */
    double cost, milliseconds;
};

int stitch__reply_new(const stitch_context *ctx, stitch_reply **out, stitch_error **err);
/* Replaces *slot by a copy; STITCH_E_NOMEM keeps the old text. */
int stitch__reply_text_set(stitch_reply *reply, char **slot, const char *text, size_t len);
int stitch__reply_notice_add(stitch_reply *reply, const char *text);

/* One request of a stitch_model_complete_many() call. */
typedef struct stitch__call {
    const stitch_request *request;
    const char *label;    /* never NULL */
    int64_t number;       /* running number of the label within the model, from 1 */
    char fingerprint[65]; /* the caller's, or a hash of the messages */
    size_t index;         /* for on_token */
    int status;
    stitch_reply *reply;
    stitch_error *error;
} stitch__call;

typedef struct stitch__model_kind {
    const char *name;
    /* Answers all calls: sets status, and reply or error, of each. */
    void (*complete)(stitch_model *model, stitch__call *calls, size_t count);
    void (*destroy)(stitch_model *model);
    bool uses_budget; /* wrappers leave it to what they wrap */
} stitch__model_kind;

typedef struct stitch__label_count {
    char *label;
    int64_t count;
} stitch__label_count;

/* Base of every kind: the first member of its struct. */
struct stitch_model {
    stitch_context *ctx;
    const stitch__model_kind *kind;
    stitch_budget *budget; /* not owned; NULL: none */
    stitch__label_count *labels;
    size_t label_count, label_capacity;
};

/* `size` bytes with the base filled in. */
void *stitch__model_alloc(stitch_context *ctx, const stitch__model_kind *kind, size_t size, stitch_error **err);

/* ---- budget.c ---- */
int stitch__budget_check(const stitch_budget *budget, const stitch_context *ctx, stitch_error **err);
void stitch__budget_add(stitch_budget *budget, const stitch_reply *reply);

/* ---- sse.c: server-sent events, fed in pieces of any size ---- */

/* One event's data (lines joined by \n). Returns a status; not STITCH_OK ends the parsing. */
typedef int (*stitch__sse_event)(const char *data, size_t len, void *userdata);

typedef struct stitch__sse {
    stitch__buf line, data;
    size_t limit; /* bytes of one event */
    bool has_data, after_cr, started;
    stitch__sse_event event;
    void *userdata;
} stitch__sse;

void stitch__sse_init(stitch__sse *s, const stitch_context *ctx, size_t limit, stitch__sse_event event, void *userdata);
int stitch__sse_feed(stitch__sse *s, const char *bytes, size_t len, stitch_error **err);
/* At the end of the stream: an event that was not closed by an empty line is given out too if its last line is whole JSON. */
int stitch__sse_finish(stitch__sse *s, stitch_error **err);
void stitch__sse_free(stitch__sse *s);

/* ---- chat.c: chat completions ---- */

typedef struct stitch__chat {
    const stitch_context *ctx;
    stitch__buf text, reasoning;
    char finish[32], model[128];
    int64_t tokens_in, tokens_out;
    size_t limit;  /* bytes of text and reasoning */
    bool done;     /* [DONE], or a finish reason */
    const stitch_request *request;
    size_t index;
} stitch__chat;

void stitch__chat_init(stitch__chat *c, const stitch_context *ctx, size_t limit, const stitch_request *request, size_t index);
/* A chunk of a stream ("[DONE]" included), or a whole reply. STITCH_E_HTTP for an error object, STITCH_E_FORMAT, STITCH_E_LIMIT. */
int stitch__chat_chunk(stitch__chat *c, const char *json, size_t len, stitch_error **err);
int stitch__chat_whole(stitch__chat *c, const char *json, size_t len, stitch_error **err);
/* Splits <think>...</think> off the text and makes the reply. */
int stitch__chat_reply(stitch__chat *c, stitch_reply **out, stitch_error **err);
void stitch__chat_free(stitch__chat *c);

/* The request body. `features` says what the endpoint has not refused so far. */
typedef struct stitch__chat_features {
    bool stream, usage_option, json_schema, temperature, completion_tokens; /* the last: max_completion_tokens instead of max_tokens */
} stitch__chat_features;
char *stitch__chat_body(const stitch_context *ctx, const char *model, const stitch_request *request, int64_t max_tokens, double temperature,
                        const json_t *extra, const stitch__chat_features *features);
/* Looks at a refusal (status 400 or 422) and takes a feature back if it names one. True: try again. */
bool stitch__chat_degrade(stitch__chat_features *features, const char *message, bool had_schema, bool schema_required);
/* The message of an error body, cleaned and shortened; falls back to the body itself. */
void stitch__chat_error_text(stitch__buf *out, const char *body, size_t len);

/* ---- recording.c: one exchange a line ---- */

typedef struct stitch__recorded {
    char *label, *fingerprint;
    int64_t number;
    char *text, *reasoning, *finish, *model;
    int64_t tokens_in, tokens_out;
    double milliseconds;
} stitch__recorded;

typedef struct stitch__recording {
    const stitch_context *ctx;
    stitch__recorded *entries;
    size_t count, capacity;
    bool cut; /* the last line was not complete and is left out */
} stitch__recording;

int stitch__recording_parse(const stitch_context *ctx, const char *text, size_t len, const char *what, stitch__recording *out, stitch_error **err);
void stitch__recording_free(stitch__recording *r);
/* A line with its newline; released with stitch_free. */
char *stitch__recording_line(const stitch_context *ctx, const stitch__call *call);

#endif

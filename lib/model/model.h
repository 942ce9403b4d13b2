/* SPDX-License-Identifier: MIT
 *
 * Private interface of the model module: kinds of models, replies, the wire formats.
 */
#ifndef STITCH_LIB_MODEL_H
#define STITCH_LIB_MODEL_H

#include "base/base.h"
#include <stitch/model.h>

#define STITCH__MODEL_MAX_LABEL 200

/* ---- reply.c --------------------------------------------------------------------------------------------------- */

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

/* ---- model.c --------------------------------------------------------------------------------------------------- */

/* Called once for each reply, as soon as it is there and before the caller sees it. */
typedef void (*stitch__reply_hook)(size_t index, stitch_reply *reply, void *userdata);

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
    stitch__reply_hook hook; /* may be NULL */
    void *hook_userdata;
} stitch__call;

typedef struct stitch__model_kind {
    const char *name;
    /* Answers all calls: sets status, and reply or error, of each. Calls stitch__call_begin() before the work on a call
     * starts and stitch__call_answered() for each reply. */
    void (*complete)(stitch_model *model, stitch__call *calls, size_t count);
    void (*destroy)(stitch_model *model);
    bool wraps; /* passes requests on: budget and cancellation are the inner model's business */
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
/* The counter of a label, made when it is new; NULL: out of memory. Valid until the next call. */
int64_t *stitch__model_counter(stitch_model *model, const char *label);
/* stitch_model_complete_many() with a hook. */
int stitch__model_complete_many(stitch_model *model, const stitch_request *requests, size_t count, int *statuses,
                                stitch_reply **replies, stitch_error **errs, stitch__reply_hook hook,
                                void *hook_userdata);
/* Sets the status (and returns it): cancellation or a spent budget keep a call from starting. */
int stitch__call_begin(stitch_model *model, stitch__call *call);
/* call->reply is complete: sets the status, counts it against the budget, runs the hook. */
void stitch__call_answered(stitch_model *model, stitch__call *call);
/* Frees a reply that came to nothing and sets the status. */
void stitch__call_failed(stitch__call *call, int status);
/* Hands a piece to the caller's on_token; reasoning -1 with no text: everything so far is void. */
void stitch__call_piece(const stitch__call *call, int reasoning, const char *text);
/* The reply's texts as one piece each, for kinds that have no smaller ones. */
void stitch__call_pieces(const stitch__call *call);

/* ---- message.c: messages as JSON, in recordings, in files and over HTTP ----------------------------------------- */

const char *stitch__message_role(int32_t role); /* "system", ...; NULL for a value that is no role */
/* Array of {"role", "content"}; NULL: out of memory. */
json_t *stitch__messages_json(const stitch_message *messages, size_t count);
void stitch__messages_hash(const stitch_message *messages, size_t count, char hex[65]);
uint64_t stitch__messages_bytes(const stitch_message *messages, size_t count);

/* ---- budget.c -------------------------------------------------------------------------------------------------- */

int stitch__budget_check(const stitch_budget *budget, const stitch_context *ctx, stitch_error **err);
void stitch__budget_add(stitch_budget *budget, int64_t tokens, double cost, int64_t requests);
/* Tokens of a text that nobody counted: a quarter of its bytes, which is on the high side for English and code. */
int64_t stitch__budget_estimate(uint64_t bytes);

/* ---- secret.c: keeping a key out of what a server sends ---------------------------------------------------------- */

#define STITCH__SECRET_MASK "[key]"
/* Shorter keys are placeholders of local servers ("x", "EMPTY"): hiding them would damage ordinary text. */
#define STITCH__SECRET_MIN_ERROR 4
#define STITCH__SECRET_MIN_REPLY 12

/* Appends text with every occurrence of the secret (NULL: none) replaced, if that has at least `min` bytes. */
void stitch__secret_append(stitch__buf *out, const char *text, size_t len, const char *secret, size_t min);

/* The same for text that arrives in pieces: what may be the beginning of the secret is held back. */
typedef struct stitch__secret_filter {
    const char *secret; /* NULL: everything passes */
    size_t matched;     /* bytes that are held back: the secret's first ones */
} stitch__secret_filter;

void stitch__secret_filter_init(stitch__secret_filter *f, const char *secret);
void stitch__secret_filter_feed(stitch__secret_filter *f, stitch__buf *out, const char *text, size_t len);
void stitch__secret_filter_end(stitch__secret_filter *f, stitch__buf *out);

/* ---- sse.c: server-sent events, fed in pieces of any size -------------------------------------------------------- */

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
/* At the end of the stream: an event that was not closed by an empty line is given out too if its last line is whole
 * JSON. */
int stitch__sse_finish(stitch__sse *s, stitch_error **err);
void stitch__sse_free(stitch__sse *s);

/* ---- http_body.c: requests of OpenAI-compatible endpoints -------------------------------------------------------- */

typedef enum stitch__limit_name {
    STITCH__LIMIT_MAX_TOKENS,
    STITCH__LIMIT_MAX_COMPLETION_TOKENS,
    STITCH__LIMIT_NONE
} stitch__limit_name;

/* What an endpoint has not refused so far. Only ever taken back, so that adapting ends. */
typedef struct stitch__chat_features {
    bool stream, usage_option, json_schema, temperature, system_role;
    stitch__limit_name limit_name;
} stitch__chat_features;

typedef struct stitch__chat_settings {
    const char *model;
    const json_t *extra;  /* object merged into the body, null removes a member; NULL: none */
    int64_t max_tokens;   /* 0: not sent */
    double temperature;   /* < 0: not sent */
    bool schema_required; /* a refused schema is an error */
    bool stream_required;
} stitch__chat_settings;

/* NULL: out of memory. */
char *stitch__chat_body(const stitch_context *ctx, const stitch_request *request, const stitch__chat_settings *settings,
                        const stitch__chat_features *features);

/* An error object or the body of an answer with an error status. */
typedef struct stitch__refusal {
    char code[64], type[64], param[64]; /* "" where not given */
    int status;                         /* HTTP status that the object states; 0: none */
    bool structured;                    /* it was JSON with a message */
} stitch__refusal;

/* Appends the message, or the body itself where it has none: without the secret, clean, at most 600 bytes. */
void stitch__refusal_read(stitch__refusal *r, stitch__buf *message, const char *body, size_t len, const char *secret);
/* Takes back what a refusal (status 400 or 422) of a body that was made with `sent` names. True: worth another try. */
bool stitch__chat_adapt(stitch__chat_features *features, const stitch__chat_features *sent,
                        const stitch_request *request, const stitch__chat_settings *settings,
                        const stitch__refusal *refusal, const char *message);

/* ---- http_reply.c: replies, whole or in chunks ------------------------------------------------------------------- */

typedef enum stitch__think {
    STITCH__THINK_START,
    STITCH__THINK_INSIDE,
    STITCH__THINK_AFTER,
    STITCH__THINK_NONE
} stitch__think;

typedef struct stitch__chat {
    const stitch_context *ctx;
    stitch__buf text, reasoning;
    stitch__buf clean, held; /* a piece without the secret; what may become a <think> mark */
    char finish[64], model[128];
    int64_t tokens_in, tokens_out;
    size_t limit;   /* bytes of text and reasoning */
    bool done;      /* a finish reason, [DONE], or a whole reply */
    bool last_seen; /* [DONE]: nothing follows */
    bool refused;   /* an error object came, see refusal */
    bool pieces;    /* on_token got something */
    stitch__refusal refusal;
    stitch__think think;
    stitch__secret_filter filters[2]; /* of text and reasoning */
    const char *secret;
    const stitch_request *request; /* may be NULL */
    size_t index;
} stitch__chat;

/* Everything pointed to must outlive the chat. `secret` may be NULL. */
void stitch__chat_init(stitch__chat *c, const stitch_context *ctx, size_t limit, const char *secret,
                       const stitch_request *request, size_t index);
/* A chunk of a stream ("[DONE]" included), or a whole reply. STITCH_E_HTTP for an error object or a malformed document,
 * STITCH_E_LIMIT, STITCH_E_NOMEM. */
int stitch__chat_chunk(stitch__chat *c, const char *json, size_t len, stitch_error **err);
int stitch__chat_whole(stitch__chat *c, const char *json, size_t len, stitch_error **err);
/* After the last chunk: lets go of what was held back and makes the reply. */
int stitch__chat_reply(stitch__chat *c, stitch_reply **out, stitch_error **err);
void stitch__chat_free(stitch__chat *c);

/* ---- http.c ---- */

/* Length of the first pause between tries, for tests that do not want to wait. */
void stitch__http_set_backoff(stitch_model *model, int64_t first_ms);

/* ---- curl.c ------------------------------------------------------------------------------------------------------ */

/* libcurl's version, "libcurl/7.88.1 ..."; NULL: there is none, and *why says so. Opens it in a wheel. Any thread. */
const char *stitch__curl_open(const char **why);

/* ---- retry.c (built with libcurl) -------------------------------------------------------------------------------- */

bool stitch__retry_status(long status);                     /* of an answer */
bool stitch__retry_refusal(const stitch__refusal *refusal); /* of an error object inside a successful answer */
/* Value of a Retry-After header (seconds or a date) in milliseconds from now_s; -1 where it says nothing. */
int64_t stitch__retry_after_ms(const char *value, int64_t now_s);
/* Pause after `tries` tries: doubles from first_ms up to max_ms, half of it random, never sooner than the server asks.
 */
int64_t stitch__retry_pause_ms(int tries, int64_t first_ms, int64_t max_ms, int64_t retry_after_ms, uint64_t *random);

/* ---- recording.c: one exchange a line ---------------------------------------------------------------------------- */

typedef struct stitch__recorded {
    char *label, *fingerprint; /* fingerprint NULL: matches any prompt */
    int64_t number;
    char *text, *reasoning, *finish, *model;
    int64_t tokens_in, tokens_out;
    double milliseconds, cost;
    size_t line;
    bool used;
} stitch__recorded;

typedef struct stitch__recording {
    const stitch_context *ctx;
    stitch__recorded *entries;
    size_t count, capacity;
    bool cut;           /* the last line was not complete and is left out */
    bool unterminated;  /* the last line is complete but for its newline */
    size_t whole_bytes; /* up to the end of the last complete line */
} stitch__recording;

int stitch__recording_parse(const stitch_context *ctx, const char *text, size_t len, const char *what,
                            stitch__recording *out, stitch_error **err);
void stitch__recording_free(stitch__recording *r);
/* A line with its newline; released with stitch_free. */
char *stitch__recording_line(const stitch_context *ctx, const stitch__call *call, const stitch_reply *reply);

#endif

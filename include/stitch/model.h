/* SPDX-License-Identifier: MIT
 *
 * Language models: OpenAI-compatible endpoints, recordings, files exchanged with another program, host functions.
 */
#ifndef STITCH_MODEL_H
#define STITCH_MODEL_H

#include <stitch/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A source of replies. Used by one thread at a time; stitch_model_complete_many() runs requests at once by itself.
 * @since 0.1.0 */
typedef struct stitch_model stitch_model;

/** What a model answered. @since 0.1.0 */
typedef struct stitch_reply stitch_reply;

/** A limit on tokens and cost that several models can share. Thread-safe. @since 0.1.0 */
typedef struct stitch_budget stitch_budget;

typedef enum stitch_message_role {
    STITCH_MESSAGE_SYSTEM = 0,
    STITCH_MESSAGE_USER = 1,
    STITCH_MESSAGE_ASSISTANT = 2,
} stitch_message_role;

typedef struct stitch_message {
    int32_t role;
    int32_t reserved;
    const char *content; /**< UTF-8 */
} stitch_message;

/**
 * A piece of the reply as it arrives: of the answer (`reasoning` 0) or of the thinking before it (1). `reasoning` -1
 * with an empty text: the reply broke off and is asked for again; what came so far is void. `request` is the index in
 * stitch_model_complete_many(). The text is UTF-8, not NUL-terminated, and valid during the call. Called
 * from the thread that waits; must not use the model. @since 0.1.0
 */
typedef void (*stitch_token_fn)(size_t request, int reasoning, const char *text, size_t len, void *userdata);

/** What is asked. Nothing in it is kept after the call. @since 0.1.0 */
typedef struct stitch_request {
    size_t struct_size;
    const stitch_message *messages;
    size_t message_count;
    /** What the request is for, e.g. "plan", "code:draft": at most 200 bytes. Recordings are keyed by it and its
     * running number, which counts the requests of a label that were answered. NULL: "". */
    const char *label;
    /** Identifies what the prompt says apart from measured figures; recordings notice when it changes. At most 64
     *  bytes. NULL: a hash of all messages. */
    const char *fingerprint;
    /** JSON Schema text for endpoints with structured output; NULL: free text. */
    const char *json_schema;
    int64_t max_tokens;       /**< of the reply; 0: the model's option, else the endpoint's default */
    double temperature;       /**< < 0: the endpoint's default */
    stitch_token_fn on_token; /**< may be NULL */
    void *userdata;
    const stitch_cancel *cancel;
    int64_t timeout_ms; /**< total, retries and waiting in line included; 0: the model's option, which starts when the
                           request is sent */
} stitch_request;

#define STITCH_REQUEST_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(stitch_request), NULL, 0, NULL, NULL, NULL, 0, -1.0, NULL, NULL, NULL, 0                                \
    }

STITCH_API int stitch_request_init(stitch_request *request, size_t struct_size);

/**
 * Options of an OpenAI-compatible endpoint (POST BASE/chat/completions). Strings are copied.
 *
 * Proxies are taken from the environment as curl does (https_proxy, no_proxy, ...), certificate authorities from
 * CURL_CA_BUNDLE, SSL_CERT_FILE and SSL_CERT_DIR, else the system's. Certificates are always verified. Redirects are
 * not followed. Parameters that the endpoint refuses by name (max_tokens, temperature, response_format, stream_options,
 * a system role) are left out or replaced for the life of the model. @since 0.1.0
 */
typedef struct stitch_http_options {
    size_t struct_size;
    const char
        *base_url; /**< "https://host/v1", with a query if the endpoint needs one, without user or password; required */
    const char *model;   /**< required */
    const char *api_key; /**< NULL: from the environment variable below. Never logged, recorded or put in an error, and
                            blotted out of replies that repeat it (keys under 12 bytes are taken for placeholders). */
    const char *api_key_env; /**< NULL: "STITCH_API_KEY", then "OPENAI_API_KEY"; no key at all is allowed */
    int32_t stream;          /**< 0: default (on), 1: on, -1: off */
    int32_t
        structured; /**< response_format with a JSON Schema: 0: try it, fall back once refused; 1: always; -1: never */
    int32_t max_retries;        /**< after 408, 409, 425, 429, 5xx and broken connections; 0: 5; -1: none */
    int32_t max_concurrent;     /**< 0: 8 */
    int64_t connect_timeout_ms; /**< 0: 15 s */
    int64_t idle_timeout_ms;    /**< no byte for this long; does not count before the first byte of a reply that is not
                                   streamed; 0: 120 s */
    int64_t total_timeout_ms;   /**< 0: 30 min */
    int64_t max_tokens;         /**< 0: not sent */
    uint64_t max_reply_bytes;   /**< of text and thinking; a stream as a whole may have 16 times as many; 0: 16 MiB, at
                                   most 1 GiB */
    double temperature;         /**< < 0 : not sent; 0 of _INIT means not sent too, use request.temperature for 0 */
    const char *extra_body;     /**< JSON object merged into the request body, null removes a member; NULL: none */
    double price_in, price_out; /**< per million tokens, for budgets and reports; 0: unknown */
} stitch_http_options;

#define STITCH_HTTP_OPTIONS_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(stitch_http_options), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, NULL, 0.0, 0.0            \
    }

STITCH_API int stitch_http_options_init(stitch_http_options *options, size_t struct_size);

/**
 * STITCH_E_AUTH where the endpoint refuses the key, STITCH_E_LIMIT for a prompt or a reply that is too long,
 * STITCH_E_TIMEOUT, STITCH_E_HTTP otherwise, are what requests to it may fail with; the native code is the HTTP status
 * or curl's. STITCH_E_UNSUPPORTED if the library was built without libcurl, STITCH_E_NO_LIBRARY if it is opened at run
 * time (in a wheel) and not there. @since 0.1.0
 */
STITCH_API int stitch_model_new_http(stitch_context *ctx, const stitch_http_options *options, stitch_model **out,
                                     stitch_error **err);

/**
 * Answers from a recording (JSON Lines). Requests match by label and running number; a request whose fingerprint
 * differs from the recorded one is answered all the same and carries a notice, unless `strict` is 1: then
 * STITCH_E_REPLAY. @since 0.1.0
 */
STITCH_API int stitch_model_new_replay(stitch_context *ctx, const char *path, int strict, stitch_model **out,
                                       stitch_error **err);

/**
 * Passes requests on to `inner` (which it owns once this succeeded) and appends every exchange to the file,
 * docs/recordings.md. An earlier recording is gone on with. An exchange that cannot be written is no failure: its reply
 * carries a notice. Models that record to the same file need different labels. No keys get in. @since 0.1.0
 */
STITCH_API int stitch_model_new_record(stitch_context *ctx, stitch_model *inner, const char *path, stitch_model **out,
                                       stitch_error **err);

/**
 * Exchanges files with whatever answers: writes FOLDER/NNNN.request.md and .request.json, waits for NNNN.reply.md,
 * complete once its last line is "<!-- end -->", or NNNN.reply.json ({"content", "reasoning"?, "usage"?:
 * {"prompt_tokens", "completion_tokens"}}), complete once it parses. Waits without end unless the request has a
 * time-out. Several models and processes may share a folder. docs/recordings.md is for whoever answers. @since 0.1.0
 */
STITCH_API int stitch_model_new_relay(stitch_context *ctx, const char *folder, stitch_model **out, stitch_error **err);

/**
 * A host's own model. Fills the reply with stitch_reply_set(); returns a status. Called from the thread that asks, for
 * one request after the other. May call request->on_token (if it is not NULL) with pieces; otherwise the whole text is
 * passed to it. @since 0.1.0
 */
typedef int (*stitch_model_fn)(const stitch_request *request, stitch_reply *reply, void *userdata);
STITCH_API int stitch_model_new_host(stitch_context *ctx, stitch_model_fn fn, void *userdata, stitch_model **out,
                                     stitch_error **err);

/**
 * From a text, for command lines and configuration: "https://host/v1#MODEL" (also http://), "replay:FILE",
 * "replay-strict:FILE", "relay:FOLDER", "record:FILE,SPEC". @since 0.1.0
 */
STITCH_API int stitch_model_open(stitch_context *ctx, const char *spec, stitch_model **out, stitch_error **err);
/** Waits for nothing: requests in progress must have returned. */
STITCH_API void stitch_model_free(stitch_model *model);

/** Blocks until the reply is complete. @since 0.1.0 */
STITCH_API int stitch_model_complete(stitch_model *model, const stitch_request *request, stitch_reply **out,
                                     stitch_error **err);
/** `count` requests at once, all of the same struct_size. statuses[i] and replies[i] (NULL on failure) for each, errs
 * may be NULL. Returns STITCH_OK if all succeeded, otherwise the first failure. A request that is not valid keeps all
 * from being sent. @since 0.1.0 */
STITCH_API int stitch_model_complete_many(stitch_model *model, const stitch_request *requests, size_t count,
                                          int *statuses, stitch_reply **replies, stitch_error **errs);

STITCH_API void stitch_reply_free(stitch_reply *reply);
/** Host models only: text (and reasoning, may be NULL) of the answer; token counts, -1: unknown. Copied.
 *  STITCH_E_INVALID for text that is not UTF-8. */
STITCH_API int stitch_reply_set(stitch_reply *reply, const char *text, const char *reasoning, int64_t tokens_in,
                                int64_t tokens_out);
STITCH_API const char *stitch_reply_text(const stitch_reply *reply);
STITCH_API const char *stitch_reply_reasoning(const stitch_reply *reply);
/** "stop", "length", ...: "" where unknown. */
STITCH_API const char *stitch_reply_finish(const stitch_reply *reply);
/** What the caller should know ("prompt differs from the recorded one"), one a line; "" if nothing. */
STITCH_API const char *stitch_reply_notice(const stitch_reply *reply);
/** The model that answered. */
STITCH_API const char *stitch_reply_model(const stitch_reply *reply);
STITCH_API int64_t stitch_reply_tokens_in(const stitch_reply *reply);  /**< -1: unknown */
STITCH_API int64_t stitch_reply_tokens_out(const stitch_reply *reply); /**< -1: unknown */
STITCH_API double stitch_reply_cost(const stitch_reply *reply);        /**< 0 where prices are unknown */
STITCH_API double stitch_reply_milliseconds(const stitch_reply *reply);

/** 0: no limit. Tokens in and out are added up; where a model does not count them, a quarter of the bytes. @since 0.1.0
 */
STITCH_API int stitch_budget_new(stitch_context *ctx, int64_t max_tokens, double max_cost, stitch_budget **out,
                                 stitch_error **err);
STITCH_API void stitch_budget_free(stitch_budget *budget);
STITCH_API void stitch_budget_used(const stitch_budget *budget, int64_t *tokens, double *cost, int64_t *requests);
/** A spent budget makes further requests fail with STITCH_E_BUDGET; one in progress is finished. The budget must
 * outlive the model. */
STITCH_API void stitch_model_set_budget(stitch_model *model, stitch_budget *budget);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * What the files of the HTTP model share: the model, and one call on its way.
 */
#ifndef STITCH_LIB_MODEL_HTTP_H
#define STITCH_LIB_MODEL_HTTP_H

#include "model/curl.h"
#include "model/model.h"

#ifdef CURL_VERSION_THREADSAFE
#define STITCH__CURL_THREADSAFE CURL_VERSION_THREADSAFE
#else
#define STITCH__CURL_THREADSAFE 0
#endif

typedef struct stitch__http_model {
    stitch_model base;
    stitch_http_options o; /* defaults filled in; only `model` of the strings is set, and owned */
    char *url;             /* of the POST; may hold a query with a secret of its own */
    char *shown_url;       /* without the query: for messages */
    char *key;             /* NULL: none */
    char *ca_file, *ca_folder;
    json_t *extra;
    stitch__chat_features features;
    uint64_t random; /* of the pauses' jitter */
    int64_t first_backoff_ms;
    bool curl_started;
} stitch__http_model;

typedef enum stitch__phase { STITCH__PHASE_WAITING, STITCH__PHASE_RUNNING, STITCH__PHASE_DONE } stitch__phase;
typedef enum stitch__body_kind { STITCH__BODY_UNKNOWN, STITCH__BODY_STREAM, STITCH__BODY_WHOLE } stitch__body_kind;

/* One call on its way: several tries, one after the other. */
typedef struct stitch__transfer {
    stitch__http_model *m;
    stitch__call *call;
    stitch__scope scope;
    stitch__phase phase;
    int tries, adaptations;
    int64_t start_at_ns; /* not before */
    /* the try */
    CURLM *multi; /* while it is running */
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    char curl_text[CURL_ERROR_SIZE];
    stitch__chat_features sent;
    stitch__chat_settings settings;
    int64_t began_ns, last_byte_ns;
    curl_off_t uploaded;
    /* the answer */
    size_t header_bytes;
    uint64_t body_bytes;
    int64_t retry_after_ms; /* -1: the server did not say */
    char content_type[64], location[256];
    stitch__body_kind kind;
    stitch__sse sse;
    stitch__chat chat;
    stitch__buf raw; /* error bodies, whole replies, and what comes before the kind is known */
    int failed;      /* status set while receiving */
} stitch__transfer;

/* Starts the next try. On failure the call's error is set. */
int stitch__transfer_start(stitch__transfer *t, CURLM *multi);
/* Judges a try that ended with `result`: the call is done, or waits for another try. */
void stitch__transfer_ended(stitch__transfer *t, CURLcode result);
/* Ends what took too long: the call, or a try whose connection is silent. */
void stitch__transfer_check(stitch__transfer *t);
/* The call is over; its error is set unless status is STITCH_OK. */
void stitch__transfer_finish(stitch__transfer *t, int status);

/* http_receive.c */
size_t stitch__http_on_header(char *line, size_t size, size_t count, void *transfer);
size_t stitch__http_on_body(char *bytes, size_t size, size_t count, void *transfer);
int stitch__http_on_progress(void *transfer, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                             curl_off_t up);
int stitch__http_on_event(const char *data, size_t len, void *transfer);
/* The last byte is there: what was not decided is. */
int stitch__http_body_end(stitch__transfer *t);

#endif

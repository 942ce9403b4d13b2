/* SPDX-License-Identifier: MIT
 *
 * The verifier's side of a connection: greeting, requests, and what it means when there is no proper answer.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <stitch/version.h>

#include "worker/client.h"

enum {
    END_WAIT_MS = 300, /* for the status of a process that has closed its connection */
    CLOCK_SLACK_US = 1000,
};

/* ---- losing one -------------------------------------------------------------------------------------------------- */

static void set_why(stitch__worker *w, const char *text)
{
    if (!w->why_lost)
        w->why_lost = stitch__strdup(w->ctx, text); /* NULL: there is no memory for it */
}

void stitch__worker_lose(stitch__worker *w, const char *why)
{
    w->lost = true;
    set_why(w, why);
    stitch__process_kill(&w->process);
    stitch__channel_close(&w->channel);
}

/* The connection is closed: why? */
static void describe_end(stitch__worker *w, const stitch__scope *scope, const char *what, char *out, size_t size)
{
    char how[96];
    bool ended = stitch__process_ended(&w->process, scope ? stitch__scope_left_ms(scope, END_WAIT_MS) : END_WAIT_MS);

    stitch__process_end_text(&w->process, how, sizeof(how));
    if (ended)
        snprintf(out, size, "the worker died %s while %s", how, what);
    else
        snprintf(out, size, "the worker closed its connection while %s, and was ended", what);
}

static void hand_on(stitch__worker *w, stitch_error **err, int code, const char *message)
{
    stitch__buf words;
    stitch__err(w->ctx, err, code, "%s", message);
    stitch__buf_init(&words, w->ctx);
    stitch__process_words(&w->process, &words);
    if (words.data && words.len)
        stitch__err_details(err, words.data);
    stitch__buf_free(&words);
}

/* A request had no proper answer, `how` (STITCH_E_*) and `cause` say why not: ends the worker and decides whose failure
 * that is. */
static int unanswered(stitch__worker *w, const stitch__scope *scope, int op, int how, stitch_error *cause,
                      const stitch__blame *blame, stitch_error **err)
{
    const char *what = stitch__worker_op_text(op);
    char text[512];
    int code = STITCH_E_IO;

    switch (how) {
    case STITCH_E_TIMEOUT:
        code = how;
        snprintf(text, sizeof(text), "%s%s did not end before its deadline; the worker was killed",
                 blame ? "the program did not end in time: " : "", what);
        break;
    case STITCH_E_CANCELLED:
    case STITCH_E_NOMEM:
        code = how;
        snprintf(text, sizeof(text), "%s", cause ? stitch_error_message(cause) : stitch_status_text(how));
        break;
    case STITCH_E_FORMAT:
        snprintf(text, sizeof(text), "the worker broke the protocol while %s: %s", what,
                 cause ? stitch_error_message(cause) : "no proper message");
        break;
    default: describe_end(w, scope, what, text, sizeof(text)); break;
    }
    stitch__worker_lose(w, text);
    stitch_error_free(cause);
    if (blame && (code == STITCH_E_TIMEOUT || code == STITCH_E_IO)) {
        *blame->code = code == STITCH_E_IO ? STITCH_E_FAULT : code;
        hand_on(w, blame->why, *blame->code, text);
        return STITCH_OK;
    }
    hand_on(w, err, code, text);
    return code;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

int stitch__worker_send(stitch__worker *w, const stitch__scope *scope, const stitch__request *q, int memory,
                        const stitch__blame *blame, int64_t *start, stitch_error **err)
{
    stitch_error *cause = NULL;
    stitch__buf b;
    int rc;

    if (blame)
        *blame->code = STITCH_OK;
    stitch__worker_settle(w);
    if (w->lost)
        return stitch__err(w->ctx, err, STITCH_E_STATE, "there is no worker any more: %s",
                           w->why_lost ? w->why_lost : "it was lost");
    stitch__buf_init(&b, w->ctx);
    stitch__request_encode(q, &b);
    *start = stitch__now_ns();
    rc = stitch__channel_send(&w->channel, scope, q->op, &b, memory, stitch__worker_op_text(q->op), &cause);
    stitch__buf_free(&b);
    return rc ? unanswered(w, scope, q->op, rc, cause, blame, err) : STITCH_OK;
}

/* The error that a worker reports, cleaned: it goes into reports, logs and prompts. */
static int take_error(stitch__worker *w, const stitch__reply *r, int code, stitch_error **err)
{
    stitch__buf message, details;

    stitch__buf_init(&message, w->ctx);
    stitch__buf_init(&details, w->ctx);
    stitch__buf_puts_clean(&message, r->message, strlen(r->message), STITCH__WORKER_MAX_MESSAGE);
    stitch__buf_puts_clean(&details, r->details, strlen(r->details), STITCH__WORKER_MAX_DETAILS);
    if (message.failed || details.failed)
        code = stitch__err_nomem(w->ctx, err);
    else
        stitch__err_native(w->ctx, err, code, r->domain, r->native, "%s",
                           message.len ? message.data : stitch_status_text(code));
    if (details.len && !details.failed)
        stitch__err_details(err, details.data);
    stitch__buf_free(&message);
    stitch__buf_free(&details);
    return code;
}

/* What no honest worker says. */
static const char *lie(const stitch__request *q, const stitch__reply *r, const stitch__blame *blame, int64_t wall_ns)
{
    double wall_us = (double)wall_ns / 1000 * 1.01 + CLOCK_SLACK_US; /* the device has a clock of its own */
    double block_us = 0;

    for (uint32_t k = 0; k < STITCH__BLOCK; k++)
        block_us += r->took[k].us > r->took[k].least_us ? r->took[k].us : r->took[k].least_us;

    if (r->busy_ns > (uint64_t)wall_ns)
        return "it worked longer than it was waited for";
    if (r->code && !blame)
        return "it blames the program for what the program has no part in";
    /* The deadline is kept here, and only here a call is cancelled. */
    if (r->rc == STITCH_E_TIMEOUT || r->rc == STITCH_E_CANCELLED || r->code == STITCH_E_TIMEOUT ||
        r->code == STITCH_E_CANCELLED)
        return "it ended for a deadline that it does not have";
    if (r->prepared.us > wall_us || block_us > wall_us)
        return "it measured more time than has passed";
    if (!r->code && q->op == STITCH__OP_WORKER_RUN_BLOCK && !r->rc && r->run_count != q->block.count)
        return "it made another number of runs";
    return NULL;
}

int stitch__worker_receive(stitch__worker *w, const stitch__scope *scope, const stitch__request *q, int64_t start,
                           const stitch__blame *blame, stitch__reply *reply, stitch_error **err)
{
    stitch_error *cause = NULL;
    const char *wrong;
    int op, rc;

    rc = stitch__channel_receive(&w->channel, scope, &op, NULL, stitch__worker_op_text(q->op), &cause);
    if (!rc && op != q->op)
        rc = stitch__err(w->ctx, &cause, STITCH_E_FORMAT, "it answered another request");
    if (!rc)
        rc = stitch__reply_decode(op, w->channel.payload, w->channel.bytes, reply, &cause);
    if (!rc && (wrong = lie(q, reply, blame, stitch__now_ns() - start)))
        rc = stitch__err(w->ctx, &cause, STITCH_E_FORMAT, "%s", wrong);
    if (rc)
        return unanswered(w, scope, q->op, rc, cause, blame, err);
    if (reply->code) {
        *blame->code = take_error(w, reply, reply->code, blame->why);
        if (reply->code == STITCH_E_FAULT)
            stitch__worker_lose(w, "the program faulted in it");
        return STITCH_OK;
    }
    if (reply->rc == STITCH_E_FAULT) {
        /* The worker's context is lost, not this process's: STITCH_E_FAULT would say that. */
        if (blame)
            *blame->code = take_error(w, reply, STITCH_E_FAULT, blame->why);
        else
            take_error(w, reply, STITCH_E_IO, err);
        stitch__worker_lose(w, "its GPU context was lost");
        return blame ? STITCH_OK : STITCH_E_IO;
    }
    return reply->rc ? take_error(w, reply, reply->rc, err) : STITCH_OK;
}

int stitch__worker_call(stitch__worker *w, const stitch__scope *scope, const stitch__request *q, int memory,
                        const stitch__blame *blame, stitch__reply *reply, stitch_error **err)
{
    int64_t start = 0;
    int rc;

    memset(reply, 0, sizeof(*reply));
    reply->text = "";
    rc = stitch__worker_send(w, scope, q, memory, blame, &start, err);
    if (rc || (blame && *blame->code))
        return rc;
    return stitch__worker_receive(w, scope, q, start, blame, reply, err);
}

bool stitch__worker_quiet(const stitch__worker *w)
{
    struct pollfd p = {w->channel.fd, POLLIN, 0};
    int ready;

    do
        ready = poll(&p, 1, 0);
    while (ready < 0 && errno == EINTR); /* also without a wait, where the host's signals come often */
    return ready == 0;
}

int stitch__worker_alive(stitch__worker *w, const stitch__scope *scope, int op, stitch_error **err)
{
    if (w->lost)
        return stitch__err(w->ctx, err, STITCH_E_STATE, "there is no worker any more: %s",
                           w->why_lost ? w->why_lost : "it was lost");
    if (stitch__worker_quiet(w))
        return STITCH_OK;
    return unanswered(w, scope, op, STITCH_E_IO, NULL, NULL, err);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static bool device_uuid(const stitch__device *dev, CUuuid *uuid)
{
    return !dev->info.simulated && dev->drv->DeviceGetUuid &&
           dev->drv->DeviceGetUuid(uuid, dev->ordinal) == CUDA_SUCCESS;
}

/* The worker sees this device only. Slices of a device (MIG) have names of their own: there the ordinal has to do. */
static char *visible_devices(stitch__arena *arena, const stitch__device *dev)
{
    CUuuid uuid;
    char text[40];
    size_t at = 0;

    if (strstr(dev->info.name, "MIG") || !device_uuid(dev, &uuid))
        return NULL;
    for (int i = 0; i < 16; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                               (unsigned char)uuid.bytes[i]);
    return stitch__arena_printf(arena, "CUDA_VISIBLE_DEVICES=GPU-%s", text);
}

/* Libraries that are found through the home folder, which a worker does not know. */
static char *library(stitch__arena *arena, const char *variable, char *path)
{
    char *entry = path && *path == '/' ? stitch__arena_printf(arena, "%s=%s", variable, path) : NULL;
    stitch_free(path);
    return entry;
}

static int start_process(stitch__worker *w, stitch__arena *arena, char *device, size_t size, stitch_error **err)
{
    bool compiler = w->role == STITCH__WORKER_COMPILER;
    char *extra[6] = {NULL}, *visible = NULL;
    const stitch__nvrtc *nvrtc = NULL;
    size_t count = 0;

    if (compiler) { /* the very one that this process has, which may have come with something else */
        int rc = stitch__nvrtc_get(w->ctx, &nvrtc, err);
        if (rc)
            return rc;
        snprintf(device, size, "none");
    } else if (w->dev->info.simulated) {
        snprintf(device, size, "sim:%s", w->dev->info.arch);
    } else {
        visible = visible_devices(arena, w->dev);
        snprintf(device, size, "cuda:%d", visible ? 0 : (int)w->dev->ordinal);
        if ((extra[count] = visible))
            count++;
    }
    if (nvrtc)
        extra[count] = library(arena, "STITCH_NVRTC", stitch__strdup(w->ctx, nvrtc->path));
    else if (!getenv("STITCH_NVRTC"))
        extra[count] = library(arena, "STITCH_NVRTC", stitch__nvrtc_find(w->ctx));
    count += extra[count] != NULL;
    if (!compiler && !getenv("STITCH_CUBLASLT") &&
        (extra[count] = library(arena, "STITCH_CUBLASLT", stitch__cublaslt_find(w->ctx))))
        count++;
    if (!compiler && !w->dev->info.simulated && !getenv("STITCH_CUPTI") &&
        (extra[count] = library(arena, "STITCH_CUPTI", stitch__cupti_find(w->ctx))))
        count++;
    if (w->role == STITCH__WORKER_PROFILER &&
        (extra[count] = stitch__arena_printf(arena, "%s=1", STITCH__WORKER_COUNTS)))
        count++;
    extra[count] = NULL;
    return stitch__process_start(w->ctx, w->path, extra, &w->process, &w->channel.fd, err);
}

static int send_greeting(stitch__worker *w, const char *device, stitch_error **err)
{
    const stitch_context_options *o = stitch__context_options(w->ctx);
    stitch__scope scope = {.ctx = w->ctx};
    stitch__request q = {.op = STITCH__OP_WORKER_HELLO,
                         .protocol = STITCH__WORKER_PROTOCOL,
                         .sandbox = w->sandbox,
                         .role = (uint32_t)w->role};
    stitch__buf b, folders;
    int rc = stitch__random(w->ctx, q.key, sizeof(q.key), err);

    stitch__buf_init(&folders, w->ctx);
    if (!rc && w->role == STITCH__WORKER_COMPILER)
        rc = stitch__nvrtc_includes(w->ctx, &folders, err);
    if (rc) {
        stitch__buf_free(&folders);
        return rc;
    }
    memcpy(w->channel.key, q.key, sizeof(q.key));
    w->channel.keyed = true;
    q.device = device;
    q.cache_dir = o->cache_dir;
    q.cuda_path = o->cuda_path;
    q.text = folders.data;
    stitch__buf_init(&b, w->ctx);
    stitch__request_encode(&q, &b);
    memset(q.key, 0, sizeof(q.key));
    rc = stitch__channel_send(&w->channel, &scope, q.op, &b, -1, "starting a worker", err);
    stitch__buf_free(&b);
    stitch__buf_free(&folders);
    return rc;
}

int stitch__worker_start(stitch_context *ctx, stitch__device *dev, const char *path, uint32_t sandbox, int role,
                         stitch__worker **out, stitch_error **err)
{
    stitch__worker *w = stitch__calloc(ctx, 1, sizeof(*w));
    stitch__arena arena = {.ctx = ctx};
    char device[64];
    int rc;

    *out = NULL;
    if (!w)
        return stitch__err_nomem(ctx, err);
    w->ctx = ctx;
    w->dev = dev;
    w->sandbox = sandbox;
    w->role = role;
    w->share = -1;
    w->channel = (stitch__channel){.fd = -1, .ctx = ctx};
    w->process = (stitch__process){.pidfd = -1, .words = -1, .ended = true};
    w->path = stitch__strdup(ctx, path);
    rc = w->path ? start_process(w, &arena, device, sizeof(device), err) : stitch__err_nomem(ctx, err);
    /* A process that has died already shows when the answer is waited for. */
    if (!rc && (rc = send_greeting(w, device, err)) == STITCH_E_IO)
        rc = STITCH_OK;
    stitch__arena_free(&arena);
    if (rc) {
        stitch__process left;
        stitch__worker_end(w, &left);
        (void)stitch__process_ended(&left, END_WAIT_MS);
        stitch__process_clear(&left);
    } else {
        *out = w;
    }
    return rc;
}

static int check_greeting(stitch__worker *w, const stitch__reply *r, stitch_error **err)
{
    const stitch__nvrtc *nvrtc;
    CUuuid uuid;
    int rc;

    if (r->protocol != STITCH__WORKER_PROTOCOL || strcmp(r->version, stitch_version_string()) != 0)
        return stitch__err(w->ctx, err, STITCH_E_UNSUPPORTED,
                           "%s is of version %.40s, this library of version %s: install both from one build", w->path,
                           stitch__utf8_valid(r->version, strlen(r->version)) ? r->version : "?",
                           stitch_version_string());
    if (w->role == STITCH__WORKER_COMPILER) {
        rc = stitch__nvrtc_get(w->ctx, &nvrtc, err);
        if (!rc && (r->nvrtc_major != (uint32_t)nvrtc->major || r->nvrtc_minor != (uint32_t)nvrtc->minor))
            rc = stitch__err(w->ctx, err, STITCH_E_UNSUPPORTED,
                             "the compiler's process has found NVRTC %" PRIu32 ".%" PRIu32 ", this process %d.%d",
                             r->nvrtc_major, r->nvrtc_minor, nvrtc->major, nvrtc->minor);
        return rc;
    }
    if (strcmp(r->arch, w->dev->info.arch) != 0 ||
        (device_uuid(w->dev, &uuid) && memcmp(uuid.bytes, r->uuid, sizeof(r->uuid)) != 0))
        return stitch__err(w->ctx, err, STITCH_E_IO, "the worker has opened another device than this process");
    return STITCH_OK;
}

int stitch__worker_greeted(stitch__worker *w, const stitch__scope *scope, stitch_error **err)
{
    static const stitch__request q = {.op = STITCH__OP_WORKER_HELLO};
    stitch__reply r;
    stitch__buf b;
    int64_t start = 0; /* the boot of the machine: the greeting went out at some time after it */
    int rc;

    if (w->greeted)
        return STITCH_OK;
    rc = stitch__worker_receive(w, scope, &q, start, NULL, &r, err);
    if (!rc)
        rc = check_greeting(w, &r, err);
    if (rc)
        return rc;
    stitch__buf_init(&b, w->ctx);
    stitch__buf_puts_clean(&b, r.sandbox, strlen(r.sandbox), 255);
    w->sandbox_text = stitch__buf_take(&b, NULL);
    if (!w->sandbox_text)
        return stitch__err_nomem(w->ctx, err);
    w->greeted = true;
    return STITCH_OK;
}

void stitch__worker_end(stitch__worker *w, stitch__process *left)
{
    stitch__worker_close(w);
    stitch__outputs_close(w, false);
    stitch__process_kill(&w->process);
    stitch__channel_close(&w->channel);
    *left = w->process;
    stitch_free(w->path);
    stitch_free(w->sandbox_text);
    stitch_free(w->why_lost);
    stitch_free(w);
}

/* ---- small ones -------------------------------------------------------------------------------------------------- */

int stitch__worker_ping(stitch__worker *w, const stitch__scope *scope, stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_PING};
    stitch__reply r;
    return stitch__worker_call(w, scope, &q, -1, NULL, &r, err);
}

int stitch__worker_probe(stitch__worker *w, const stitch__scope *scope, const char *question, char **answer,
                         stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_PROBE, .text = question};
    stitch__reply r;
    int rc = stitch__worker_call(w, scope, &q, -1, NULL, &r, err);

    *answer = rc ? NULL : stitch__strdup(w->ctx, r.text);
    return rc || *answer ? rc : stitch__err_nomem(w->ctx, err);
}

const char *stitch__worker_sandbox(const stitch__worker *w)
{
    return w->sandbox_text ? w->sandbox_text : "";
}

int stitch__worker_pid(const stitch__worker *w)
{
    return (int)w->process.pid;
}

bool stitch__worker_lost(const stitch__worker *w)
{
    return w->lost;
}

stitch__control *stitch__worker_control(stitch__worker *w)
{
    return &w->control;
}

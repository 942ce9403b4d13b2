/* SPDX-License-Identifier: MIT
 *
 * The worker's process: starts and greets, reads requests, answers them. serve_program.c does what they ask of a
 * program.
 */
#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <stitch/version.h>

#include "cuda/cupti.h"
#include "cuda/guards.h"
#include "worker/serve.h"

/* ---- answering --------------------------------------------------------------------------------------------------- */

static int handle(stitch__server *s, stitch__exchange *x)
{
    switch (x->q->op) {
    case STITCH__OP_WORKER_PING: return STITCH_OK;
    case STITCH__OP_WORKER_HELLO: return stitch__err(s->ctx, &x->err, STITCH_E_STATE, "greeted twice");
    case STITCH__OP_WORKER_PROBE:
        if (!s->hooks || !s->hooks->probe)
            return stitch__err(s->ctx, &x->err, STITCH_E_UNSUPPORTED, "this worker answers no probes");
        s->hooks->probe(x->q->text, &x->text);
        x->reply.text = x->text.data ? x->text.data : "";
        return STITCH_OK;
    default: return s->compiler ? stitch__serve_compiler(s, x) : stitch__serve_program(s, x);
    }
}

/* The advice of lib/cuda is for a process that lost its own context; here that is the worker's loss. */
static char *without_advice(const stitch_context *ctx, const char *message)
{
    static const char advice[] = "; the GPU context of this process is lost, only a new process can use the GPU again";
    const char *at = strstr(message, advice);
    stitch__buf b;

    stitch__buf_init(&b, ctx);
    stitch__buf_append(&b, message, at ? (size_t)(at - message) : strlen(message));
    if (at)
        stitch__buf_puts(&b, at + sizeof(advice) - 1);
    return stitch__buf_take(&b, NULL);
}

static int send_reply(stitch__server *s, stitch__exchange *x, int rc, int64_t start)
{
    stitch_error *from = rc ? x->err : x->code ? x->why : NULL;
    char *message = from ? without_advice(s->ctx, stitch_error_message(from)) : NULL;
    stitch__buf b;
    int sent;

    x->reply.op = x->q->op;
    x->reply.rc = rc;
    x->reply.code = rc ? STITCH_OK : x->code;
    x->reply.domain = from ? stitch_error_domain(from) : STITCH_DOMAIN_NONE;
    x->reply.native = from ? stitch_error_native(from) : 0;
    x->reply.message = message;
    x->reply.details = from ? stitch_error_details(from) : NULL;
    x->reply.busy_ns = (uint64_t)(stitch__now_ns() - start);
    stitch__buf_init(&b, s->ctx);
    stitch__reply_encode(&x->reply, x->hashes, &b);
    sent = stitch__channel_send(&s->channel, NULL, x->q->op, &b, -1, "answering", NULL);
    stitch__buf_free(&b);
    stitch_free(message);
    stitch_free(x->hashes);
    stitch__buf_free(&x->text);
    stitch_error_free(x->why);
    stitch_error_free(x->err);
    if (x->memory >= 0)
        close(x->memory);
    return sent;
}

static int answer(stitch__server *s, int op, int memory)
{
    stitch__request q;
    stitch__exchange x = {.q = &q, .memory = memory};
    int64_t start = stitch__now_ns();
    int rc;

    stitch__buf_init(&x.text, s->ctx);
    rc = stitch__request_decode(op, s->channel.payload, s->channel.bytes, &q, &x.err);
    if (!rc)
        rc = handle(s, &x);
    /* After a fault, or while the device still runs the program, this process is of no more use. */
    s->lost = rc == STITCH_E_FAULT || x.code == STITCH_E_FAULT || (s->runner && stitch__runner_abandoned(s->runner));
    /* A compilation that took much memory may have left the process with little. */
    s->lost |= s->compiler && !s->code_waits && stitch__sandbox_spent(s->memory);
    return send_reply(s, &x, rc, start);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

/* The verifier is gone: so is this process, whatever it is doing. */
static void *watch(void *unused)
{
    struct pollfd p = {STITCH__WORKER_FD, POLLRDHUP, 0};
    (void)unused;
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

static int start_watch(stitch__server *s, stitch_error **err)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int failed = pthread_attr_init(&attributes);

    if (!failed) {
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        failed = pthread_create(&thread, &attributes, watch, NULL);
        pthread_attr_destroy(&attributes);
    }
    return failed ? stitch__err(s->ctx, err, STITCH_E_IO, "no thread to watch the verifier: error %d", failed)
                  : STITCH_OK;
}

static void add_folder_of(stitch__buf *b, const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (slash && slash > path)
        stitch__buf_printf(b, "%.*s\n", (int)(slash - path), path);
}

/* Of a library that may be a link to another folder's, and is opened later than the others. */
static void add_folders_of(stitch__buf *b, const char *path)
{
    char *real = path && *path ? realpath(path, NULL) : NULL;
    add_folder_of(b, path);
    add_folder_of(b, real);
    free(real);
}

/* What the CUDA libraries and the compiler may still have to read. */
static void readable_folders(stitch__server *s, const stitch__request *q, stitch__buf *b)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    char *driver = stitch__driver_find(s->ctx);
    stitch__buf found;

    if (*q->cache_dir)
        stitch__buf_printf(b, "%s\n", q->cache_dir);
    if (*q->cuda_path)
        stitch__buf_printf(b, "%s\n", q->cuda_path);
    while (path && *path) {
        size_t len = strcspn(path, ":");
        stitch__buf_printf(b, "%.*s\n", (int)len, path);
        path += len + (path[len] == ':');
    }
    add_folder_of(b, driver);
    stitch_free(driver);
    add_folder_of(b, getenv("STITCH_CUDA_DRIVER"));
    add_folder_of(b, getenv("STITCH_NVRTC"));
    add_folder_of(b, getenv("STITCH_CUBLASLT"));
    add_folders_of(b, getenv("STITCH_CUPTI")); /* opened only when it is asked for: nothing of it is there before */
    stitch__buf_init(&found, s->ctx);
    stitch__toolkit_folders(s->ctx, false, &found);
    stitch__toolkit_folders(s->ctx, true, &found);
    for (const char *line = found.data; line && *line;) {
        size_t len = strcspn(line, "\n");
        const char *python = strstr(line, "/lib/python3");
        /* Wheels are looked for with a pattern, which lists the folders above them, too. */
        if (python && python < line + len)
            stitch__buf_printf(b, "%.*s/lib\n", (int)(python - line), line);
        else
            stitch__buf_printf(b, "%.*s\n", (int)len, line);
        line += len + (line[len] == '\n');
    }
    stitch__buf_free(&found);
}

static int open_device(stitch__server *s, stitch_error **err)
{
    stitch__device *dev;
    int rc = stitch__device_get(s->ctx, &s->dev, err);

    if (!rc)
        rc = stitch__device_enter(s->dev, err);
    if (rc)
        return rc;
    s->entered = true;
    dev = s->dev;
    STITCH__CU(dev->drv->StreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
    /* The library's own kernels: compiled and loaded before anything of a stranger's is here. */
    rc = stitch__runner_warm(dev, NULL, NULL);
    if (rc)
        rc = stitch__err(s->ctx, err, rc, "the library's own kernels cannot be compiled or loaded in a worker");
out:
    return rc;
}

static int open_confined_device(stitch__server *s, const stitch__request *q, stitch__buf *folders, stitch_error **err)
{
    int rc = folders->failed ? stitch__err_nomem(s->ctx, err) : STITCH_OK;

    if (!rc && q->sandbox == STITCH__SANDBOX_FULL)
        stitch__sandbox_files(folders->data ? folders->data : "", true, &s->sandbox);
    if (!rc)
        rc = open_device(s, err);
    /* The simulator knows the bounds of every buffer by itself. */
    if (!rc && !s->dev->info.simulated && !stitch__guards_enable(s->dev))
        stitch__buf_puts(&s->sandbox, s->sandbox.len ? ", no guarded memory" : "no guarded memory");
    if (!rc && stitch__device_reaches_host(s->dev))
        stitch__buf_puts(&s->sandbox, s->sandbox.len ? ", reaches host memory" : "reaches host memory");
    if (!rc && q->sandbox == STITCH__SANDBOX_LATE) {
        stitch__sandbox_files(folders->data ? folders->data : "", true, &s->sandbox);
        stitch__buf_puts(&s->sandbox, " (one thread)");
    }
    return rc;
}

/* NVRTC asks for the same megabytes for each source and gives all of them back. Where the process keeps them the system
 * need not map and clear hundreds of pages each time, which on a virtual machine takes longer than a small kernel does.
 */
static void keep_memory(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_ARENA_MAX, 1); /* a thread's own arena gives its memory back whatever the thresholds are */
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 512 << 20);
    (void)mallopt(M_TOP_PAD, 16 << 20);
#endif
}

/* NVRTC is opened under the sandbox already: whatever it lacks there shows now. */
static int open_compiler(stitch__server *s, const stitch__request *q, stitch__buf *folders, stitch_error **err)
{
    char *nvrtc = stitch__nvrtc_find(s->ctx);
    int rc;

    keep_memory();
    add_folders_of(folders, nvrtc);
    stitch__buf_puts(folders, q->text); /* those that options of the verifier's name */
    stitch_free(nvrtc);
    rc = folders->failed ? stitch__err_nomem(s->ctx, err) : STITCH_OK;
    if (!rc && q->sandbox != STITCH__SANDBOX_NONE) {
        stitch__sandbox_compiler(&s->sandbox, &s->memory);
        stitch__sandbox_files(folders->data ? folders->data : "", false, &s->sandbox);
    }
    if (!rc)
        rc = stitch__nvrtc_get(s->ctx, &s->nvrtc, err);
    return rc;
}

static int open_all(stitch__server *s, const stitch__request *q, stitch_error **err)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch__buf folders;
    int rc;

    if (q->protocol != STITCH__WORKER_PROTOCOL)
        return stitch__err(NULL, err, STITCH_E_UNSUPPORTED, "the worker speaks protocol %d, the library %" PRIu32,
                           STITCH__WORKER_PROTOCOL, q->protocol);
    s->compiler = q->role == STITCH__WORKER_COMPILER;
    options.device = q->device;
    options.cache_dir = q->cache_dir;
    options.cuda_path = *q->cuda_path ? q->cuda_path : NULL;
    rc = stitch_context_new(&s->ctx, &options, err);
    if (rc)
        return rc;
    stitch__buf_init(&folders, s->ctx);
    readable_folders(s, q, &folders);
    rc = s->compiler ? open_compiler(s, q, &folders, err) : open_confined_device(s, q, &folders, err);
    if (!rc)
        rc = start_watch(s, err);
    if (!rc && q->sandbox != STITCH__SANDBOX_NONE)
        stitch__sandbox_calls(&s->sandbox);
    stitch__buf_free(&folders);
    return rc;
}

static int greet(stitch__server *s)
{
    stitch__request q;
    stitch__exchange x = {.q = &q, .memory = -1};
    int64_t start = stitch__now_ns();
    CUuuid uuid;
    int op, rc = stitch__channel_receive(&s->channel, NULL, &op, NULL, "greeting", NULL);

    if (rc)
        return rc;
    rc = stitch__request_decode(op, s->channel.payload, s->channel.bytes, &q, &x.err);
    if (!rc)
        rc = open_all(s, &q, &x.err);
    if (!rc) {
        x.reply.protocol = STITCH__WORKER_PROTOCOL;
        x.reply.pid = (uint32_t)getpid();
        x.reply.version = stitch_version_string();
        x.reply.sandbox = s->sandbox.data ? s->sandbox.data : "";
        x.reply.nvrtc_major = s->nvrtc ? (uint32_t)s->nvrtc->major : 0;
        x.reply.nvrtc_minor = s->nvrtc ? (uint32_t)s->nvrtc->minor : 0;
    }
    if (!rc && s->dev) {
        x.reply.arch = s->dev->info.arch;
        x.reply.name = s->dev->info.name;
        if (s->dev->drv->DeviceGetUuid && s->dev->drv->DeviceGetUuid(&uuid, s->dev->ordinal) == CUDA_SUCCESS)
            memcpy(x.reply.uuid, uuid.bytes, sizeof(x.reply.uuid));
    }
    int sent = send_reply(s, &x, rc, start);
    return rc ? rc : sent;
}

/* What a profile begins with, and mostly while nobody waits for it yet: most of a tenth of a second. Switches nothing
 * on. */
static void open_profiling(stitch__server *s)
{
    const stitch__cupti *cupti;
    if (!s->dev->info.simulated && stitch__cupti_get(s->ctx, &cupti, NULL) == STITCH_OK)
        (void)stitch__cupti_open_profiler(s->ctx, cupti, NULL); /* the profile says if it cannot be had */
}

static void close_all(stitch__server *s)
{
    stitch__serve_close_program(s, false);
    stitch__buf_free(&s->code);
    if (s->stream)
        s->dev->drv->StreamDestroy(s->stream);
    if (s->entered)
        stitch__device_leave(s->dev);
    stitch__channel_close(&s->channel);
    stitch__buf_free(&s->sandbox);
    stitch_context_free(s->ctx);
}

/* Answers until the verifier is gone, or this process of no more use. */
static void *serve(void *server)
{
    stitch__server *s = server;
    int op, memory, rc = STITCH_OK;

    if (s->compiler)
        stitch__serve_warm_compiler(s);
    else if (getenv(STITCH__WORKER_COUNTS))
        open_profiling(s);
    while (!rc && !s->lost) {
        rc = stitch__channel_receive(&s->channel, NULL, &op, &memory, "waiting for a request", NULL);
        if (!rc)
            rc = answer(s, op, memory);
    }
    return NULL;
}

int stitch__worker_main(const stitch__worker_hooks *hooks)
{
    stitch__server s = {.channel = {.fd = STITCH__WORKER_FD, .server = true}, .hooks = hooks};
    pthread_t thread;
    int kind = 0;
    socklen_t len = sizeof(kind);

    if (getsockopt(STITCH__WORKER_FD, SOL_SOCKET, SO_TYPE, &kind, &len) != 0 || kind != SOCK_STREAM)
        return 2; /* started by hand */
#ifdef SYS_close_range
    (void)syscall(SYS_close_range, STITCH__WORKER_FD + 1, ~0u, 0);
#endif
    stitch__sandbox_limits(&s.sandbox);
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 5); /* the host goes first */
    if (greet(&s) == STITCH_OK) {
        /* NVRTC recurses as deep as a source nests: a thread with stack for that, one for all sources. */
        if (s.compiler && stitch__rtc_thread(&thread, serve, &s))
            (void)pthread_join(thread, NULL);
        else
            (void)serve(&s);
    }
    if (s.lost)
        _exit(0); /* tidying up would ask a driver that no longer answers */
    close_all(&s);
    return 0;
}

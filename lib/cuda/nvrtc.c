/* SPDX-License-Identifier: MIT
 *
 * One compilation by NVRTC, on a thread of its own: the compiler recurses as deep as the source nests, and the caller's
 * stack may be small. (NVRTC would raise the stack limit of the whole process instead; it is told not to.)
 */
#include <signal.h>

#include "cuda/internal.h"

typedef struct job {
    const stitch__nvrtc *nvrtc;
    stitch__arena *arena;
    const char *source;
    const char *const *options, *const *names;
    size_t option_count, name_count;
    stitch__rtc *out;
    int rc;
} job;

static bool ok(job *j, nvrtcResult result, const char *call)
{
    if (result == NVRTC_SUCCESS)
        return true;
    j->out->result = result;
    j->out->failed = call;
    return false;
}

static char *text_of(job *j, size_t size)
{
    char *text = stitch__alloc(j->arena->ctx, size + 1);
    if (text)
        text[size] = '\0';
    else
        j->rc = STITCH_E_NOMEM;
    return text;
}

/* The log has a NUL at its end, which counts; so has PTX. */
static void get_log(job *j, nvrtcProgram program)
{
    size_t size = 0;
    if (j->nvrtc->GetProgramLogSize(program, &size) != NVRTC_SUCCESS || !(j->out->log = text_of(j, size)))
        return;
    if (size && j->nvrtc->GetProgramLog(program, j->out->log) != NVRTC_SUCCESS)
        size = 0;
    j->out->log[size] = '\0';
    j->out->log_len = strlen(j->out->log);
}

static void get_ptx(job *j, nvrtcProgram program)
{
    size_t size = 0;
    if (j->nvrtc->GetPTXSize(program, &size) != NVRTC_SUCCESS || size == 0 || !(j->out->ptx = text_of(j, size)))
        return;
    if (j->nvrtc->GetPTX(program, j->out->ptx) != NVRTC_SUCCESS)
        j->out->ptx[0] = '\0';
    j->out->ptx_len = strlen(j->out->ptx);
}

static void get_cubin(job *j, nvrtcProgram program)
{
    size_t size = 0;
    if (!ok(j, j->nvrtc->GetCUBINSize(program, &size), "nvrtcGetCUBINSize") || size == 0 ||
        !(j->out->cubin = text_of(j, size)))
        return;
    if (ok(j, j->nvrtc->GetCUBIN(program, j->out->cubin), "nvrtcGetCUBIN"))
        j->out->cubin_size = size;
}

static void get_symbols(job *j, nvrtcProgram program)
{
    for (size_t i = 0; i < j->name_count; i++) {
        const char *symbol = NULL;
        if (!ok(j, j->nvrtc->GetLoweredName(program, j->names[i], &symbol), "nvrtcGetLoweredName"))
            return;
        if (symbol && !(j->out->symbols[i] = stitch__arena_strdup(j->arena, symbol)))
            j->rc = STITCH_E_NOMEM;
    }
}

static void compile(job *j)
{
    nvrtcProgram program = NULL;
    const char *texts[64], *names[64];
    size_t headers = stitch__header_count < STITCH__COUNT(texts) ? stitch__header_count : STITCH__COUNT(texts);
    for (size_t i = 0; i < headers; i++) {
        texts[i] = stitch__headers[i].text;
        names[i] = stitch__headers[i].name;
    }
    if (!ok(j, j->nvrtc->CreateProgram(&program, j->source, "program.cu", (int)headers, texts, names),
            "nvrtcCreateProgram"))
        return;
    for (size_t i = 0; i < j->name_count; i++) {
        if (!ok(j, j->nvrtc->AddNameExpression(program, j->names[i]), "nvrtcAddNameExpression"))
            goto out;
    }
    j->out->result = j->nvrtc->CompileProgram(program, (int)j->option_count, j->options);
    get_log(j, program);
    get_ptx(j, program); /* there after errors of ptxas, too */
    if (j->out->result != NVRTC_SUCCESS)
        goto out;
    get_symbols(j, program);
    if (!j->out->failed && strncmp(j->options[0], "--gpu-architecture=sm_", 22) == 0)
        get_cubin(j, program);
out:
    j->nvrtc->DestroyProgram(&program);
}

static void *thread_main(void *arg)
{
    compile(arg);
    return NULL;
}

/* The largest stack that can be had; pages that are not touched cost nothing. */
static bool start(pthread_t *thread, job *j)
{
    static const size_t stacks[] = {(size_t)256 << 20, (size_t)64 << 20, (size_t)16 << 20};
    sigset_t all, before;
    bool started = false;
    sigfillset(&all); /* the host's signals are handled on the host's threads */
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    for (size_t i = 0; i < STITCH__COUNT(stacks) && !started; i++) {
        pthread_attr_t attr;
        if (pthread_attr_init(&attr) != 0)
            break;
        if (pthread_attr_setstacksize(&attr, stacks[i]) == 0)
            started = pthread_create(thread, &attr, thread_main, j) == 0;
        pthread_attr_destroy(&attr);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

int stitch__rtc_run(const stitch__nvrtc *nvrtc, stitch__arena *arena, const char *source, const char *const *options,
                    size_t option_count, const char *const *names, size_t name_count, stitch__rtc *out)
{
    job j = {nvrtc, arena, source, options, names, option_count, name_count, out, STITCH_OK};
    pthread_t thread;
    memset(out, 0, sizeof(*out));
    out->symbols = stitch__arena_array(arena, name_count + 1, sizeof(*out->symbols));
    if (!out->symbols)
        return STITCH_E_NOMEM;
    if (!start(&thread, &j))
        return STITCH_E_NOMEM;
    pthread_join(thread, NULL);
    return j.rc;
}

void stitch__rtc_free(stitch__rtc *rtc)
{
    stitch__zero_free(rtc->log);
    stitch__zero_free(rtc->ptx);
    stitch__zero_free(rtc->cubin);
}

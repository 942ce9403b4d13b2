/* SPDX-License-Identifier: MIT
 *
 * One compilation by NVRTC, on a thread for it: the compiler recurses as deep as the source nests, and the caller's
 * stack may be small. (NVRTC would raise the stack limit of the whole process instead; it is told not to.)
 *
 * NVRTC cannot be interrupted. A caller whose time is over leaves the thread to itself; so everything that it uses is
 * its own and outlives the context: copies, by malloc().
 */
#include <signal.h>
#include <time.h>

#include "cuda/internal.h"

enum { SLICE_MS = 5 }; /* how late a cancellation may be noticed */

typedef struct job {
    stitch__nvrtc nvrtc;
    stitch__arena arena; /* what `in` points to */
    stitch__rtc_input in;
    stitch__rtc out;
    int rc;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool ended, abandoned; /* abandoned: the thread frees the job */
} job;

static bool ok(job *j, nvrtcResult result, int call)
{
    if (result == NVRTC_SUCCESS)
        return true;
    j->out.result = result;
    j->out.call = call;
    return false;
}

static char *text_of(job *j, size_t size)
{
    char *text = stitch__alloc(NULL, size + 1);
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
    if (j->nvrtc.GetProgramLogSize(program, &size) != NVRTC_SUCCESS || !(j->out.log = text_of(j, size)))
        return;
    if (size && j->nvrtc.GetProgramLog(program, j->out.log) != NVRTC_SUCCESS)
        size = 0;
    j->out.log[size] = '\0';
    j->out.log_len = strlen(j->out.log);
}

static void get_ptx(job *j, nvrtcProgram program)
{
    size_t size = 0;
    if (j->nvrtc.GetPTXSize(program, &size) != NVRTC_SUCCESS || size == 0 || !(j->out.ptx = text_of(j, size)))
        return;
    if (j->nvrtc.GetPTX(program, j->out.ptx) != NVRTC_SUCCESS)
        j->out.ptx[0] = '\0';
    j->out.ptx_len = strlen(j->out.ptx);
}

static void get_cubin(job *j, nvrtcProgram program)
{
    size_t size = 0;
    if (!ok(j, j->nvrtc.GetCUBINSize(program, &size), STITCH__RTC_CUBIN_SIZE) || size == 0 ||
        !(j->out.cubin = text_of(j, size)))
        return;
    if (ok(j, j->nvrtc.GetCUBIN(program, j->out.cubin), STITCH__RTC_CUBIN))
        j->out.cubin_size = size;
}

static void get_symbols(job *j, nvrtcProgram program)
{
    j->out.symbols = stitch__calloc(NULL, j->in.name_count + 1, sizeof(*j->out.symbols));
    if (!j->out.symbols) {
        j->rc = STITCH_E_NOMEM;
        return;
    }
    j->out.symbol_count = j->in.name_count;
    for (size_t i = 0; i < j->in.name_count; i++) {
        const char *symbol = NULL;
        if (!ok(j, j->nvrtc.GetLoweredName(program, j->in.names[i], &symbol), STITCH__RTC_LOWERED))
            return;
        if (symbol && !(j->out.symbols[i] = stitch__strdup(NULL, symbol)))
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
    if (!ok(j, j->nvrtc.CreateProgram(&program, j->in.source, "program.cu", (int)headers, texts, names),
            STITCH__RTC_CREATE))
        return;
    for (size_t i = 0; i < j->in.name_count; i++) {
        if (!ok(j, j->nvrtc.AddNameExpression(program, j->in.names[i]), STITCH__RTC_NAME))
            goto out;
    }
    j->out.result = j->nvrtc.CompileProgram(program, (int)j->in.option_count, j->in.options);
    get_log(j, program);
    get_ptx(j, program); /* there after errors of ptxas, too */
    if (j->out.result != NVRTC_SUCCESS)
        goto out;
    get_symbols(j, program);
    if (j->out.call == STITCH__RTC_COMPILE && strncmp(j->in.options[0], "--gpu-architecture=sm_", 22) == 0)
        get_cubin(j, program);
out:
    j->nvrtc.DestroyProgram(&program);
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

static void free_job(job *j)
{
    stitch__rtc_free(&j->out);
    stitch__arena_free(&j->arena);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
    stitch_free(j);
}

static bool copy_texts(job *j, const char *const *from, size_t count, const char *const **to)
{
    const char **texts = stitch__arena_array(&j->arena, count + 1, sizeof(*texts));

    for (size_t i = 0; texts && i < count; i++)
        if (!(texts[i] = stitch__arena_strdup(&j->arena, from[i])))
            return false;
    *to = texts;
    return texts != NULL;
}

static job *make_job(const stitch__nvrtc *nvrtc, const stitch__rtc_input *in)
{
    job *j = stitch__calloc(NULL, 1, sizeof(*j));
    pthread_condattr_t attr;

    if (!j)
        return NULL;
    if (pthread_condattr_init(&attr) != 0) {
        stitch_free(j);
        return NULL;
    }
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, &attr);
    pthread_condattr_destroy(&attr);
    j->nvrtc = *nvrtc;
    j->in = *in;
    j->in.source = stitch__arena_strdup(&j->arena, in->source);
    if (j->in.source && copy_texts(j, in->options, in->option_count, &j->in.options) &&
        copy_texts(j, in->names, in->name_count, &j->in.names))
        return j;
    free_job(j);
    return NULL;
}

static void *thread_main(void *arg)
{
    job *j = arg;
    bool own;

    (void)stitch__signals_keep();
    compile(j);
    pthread_mutex_lock(&j->lock);
    j->ended = true;
    own = j->abandoned;
    pthread_cond_signal(&j->changed);
    pthread_mutex_unlock(&j->lock);
    if (own) {
        free_job(j);
        stitch__leaving_waits(false);
    }
    return NULL;
}

/* The largest stack that can be had; pages that are not touched cost nothing. */
bool stitch__rtc_thread(pthread_t *thread, void *(*run)(void *), void *arg)
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
            started = pthread_create(thread, &attr, run, arg) == 0;
        pthread_attr_destroy(&attr);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* Until the compilation or the scope has ended. */
static int wait_for(job *j, const stitch__scope *scope, stitch_error **err)
{
    int rc = STITCH_OK;

    pthread_mutex_lock(&j->lock);
    while (!j->ended && !(rc = stitch__scope_check(scope, "compiling", err))) {
        int64_t until = stitch__now_ns() + INT64_C(1000000) * SLICE_MS;
        struct timespec t = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
        if (scope->cancel || scope->deadline_ns)
            pthread_cond_timedwait(&j->changed, &j->lock, &t);
        else
            pthread_cond_wait(&j->changed, &j->lock);
    }
    j->abandoned = rc != STITCH_OK;
    if (j->abandoned)
        stitch__leaving_waits(true);
    pthread_mutex_unlock(&j->lock);
    return rc;
}

int stitch__rtc_run(const stitch__nvrtc *nvrtc, const stitch__scope *scope, const stitch__rtc_input *in,
                    stitch__rtc *out, stitch_error **err)
{
    job *j = make_job(nvrtc, in);
    pthread_t thread;
    int rc;

    memset(out, 0, sizeof(*out));
    if (!j || !stitch__rtc_thread(&thread, thread_main, j)) {
        if (j)
            free_job(j);
        return stitch__err_nomem(scope->ctx, err);
    }
    rc = wait_for(j, scope, err);
    if (rc) {
        pthread_detach(thread);
        return rc;
    }
    pthread_join(thread, NULL);
    if (j->rc)
        rc = stitch__err_nomem(scope->ctx, err);
    if (!rc) {
        *out = j->out;
        memset(&j->out, 0, sizeof(j->out));
    }
    free_job(j);
    return rc;
}

int stitch__rtc_run_here(const stitch__nvrtc *nvrtc, const stitch__rtc_input *in, stitch__rtc *out)
{
    job j = {.nvrtc = *nvrtc, .in = *in};

    compile(&j);
    if (j.rc)
        stitch__rtc_free(&j.out);
    *out = j.out;
    return j.rc;
}

void stitch__rtc_free(stitch__rtc *rtc)
{
    stitch__zero_free(rtc->log);
    stitch__zero_free(rtc->ptx);
    stitch__zero_free(rtc->cubin);
    for (size_t i = 0; i < rtc->symbol_count; i++)
        stitch_free(rtc->symbols[i]);
    stitch__zero_free(rtc->symbols);
    rtc->symbol_count = 0;
}

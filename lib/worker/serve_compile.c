/* SPDX-License-Identifier: MIT
 *
 * A compiler's process: runs NVRTC on what the verifier sends and hands over what comes out, as it is. Whatever that
 * means (messages, kernels, facts) the verifier reads for itself.
 */
#include "worker/serve.h"

/* Where the log is cut: behind the last line that fits. */
static size_t log_bytes(const stitch__rtc *rtc)
{
    size_t len = rtc->log_len;

    if (len <= STITCH__WORKER_MAX_LOG)
        return len;
    for (len = STITCH__WORKER_MAX_LOG; len && rtc->log[len - 1] != '\n';)
        len--;
    return len;
}

/* Into s->code, one piece after the other. */
static int keep_pieces(stitch__server *s, stitch__exchange *x, const stitch__rtc *rtc)
{
    uint64_t *sizes = x->reply.pieces, total = 0;
    stitch__buf symbols;
    int rc = STITCH_OK;

    stitch__buf_init(&symbols, s->ctx);
    for (size_t i = 0; i < rtc->symbol_count; i++)
        stitch__put_text(&symbols, rtc->symbols[i]);
    sizes[STITCH__PIECE_LOG] = log_bytes(rtc);
    sizes[STITCH__PIECE_PTX] = rtc->ptx_len;
    sizes[STITCH__PIECE_CUBIN] = rtc->cubin_size;
    sizes[STITCH__PIECE_SYMBOLS] = symbols.len;
    total = stitch__reply_code_bytes(&x->reply);
    if (total > STITCH__WORKER_MAX_CODE) {
        rc = stitch__err(s->ctx, &x->err, STITCH_E_LIMIT, "log and code have %" PRIu64 " bytes; the limit is %d MiB",
                         total, STITCH__WORKER_MAX_CODE >> 20);
    } else {
        stitch__buf_append(&s->code, rtc->log ? rtc->log : "", (size_t)sizes[STITCH__PIECE_LOG]);
        stitch__buf_append(&s->code, rtc->ptx ? rtc->ptx : "", rtc->ptx_len);
        stitch__buf_append(&s->code, rtc->cubin ? rtc->cubin : "", rtc->cubin_size);
        stitch__buf_append(&s->code, symbols.data ? symbols.data : "", symbols.len);
        if (s->code.failed || symbols.failed)
            rc = stitch__err_nomem(s->ctx, &x->err);
    }
    stitch__buf_free(&symbols);
    return rc;
}

static int do_compile(stitch__server *s, stitch__exchange *x)
{
    stitch__arena arena = {.ctx = s->ctx};
    stitch__rtc rtc = {.result = NVRTC_SUCCESS};
    stitch__rtc_input in;
    void *data = NULL;
    int rc = stitch__memory_map(s->ctx, x->memory, x->q->bytes, false, "the source", &data, &x->err);

    stitch__buf_free(&s->code);
    s->code_waits = false;
    if (!rc)
        rc = stitch__rtc_input_decode(&arena, data, (size_t)x->q->bytes, &in, &x->err);
    if (!rc) {
        stitch__sandbox_seconds(x->q->seconds);
        rc = stitch__rtc_run_here(s->nvrtc, &in, &rtc);
        if (rc)
            (void)stitch__err_nomem(s->ctx, &x->err);
    }
    if (!rc)
        rc = keep_pieces(s, x, &rtc);
    if (!rc) {
        x->reply.result = (uint32_t)rtc.result;
        x->reply.rtc_call = (uint32_t)rtc.call;
        s->code_waits = s->code.len > STITCH__WORKER_CODE_INSIDE;
        x->reply.compiled = s->code_waits ? NULL : s->code.data;
    }
    stitch__rtc_free(&rtc);
    stitch__arena_free(&arena);
    stitch__memory_unmap(data, x->q->bytes);
    return rc;
}

/* What did not fit into the reply, into memory that the verifier has made for it. */
static int do_code(stitch__server *s, stitch__exchange *x)
{
    void *room = NULL;
    int rc = stitch__memory_map(s->ctx, x->memory, x->q->bytes, true, "compiled code", &room, &x->err);

    if (!rc && x->q->bytes != s->code.len)
        rc = stitch__err(s->ctx, &x->err, STITCH_E_INVALID, "there are %zu bytes of code, not %" PRIu64, s->code.len,
                         x->q->bytes);
    if (!rc && room)
        memcpy(room, s->code.data, s->code.len);
    stitch__memory_unmap(room, x->q->bytes);
    stitch__buf_free(&s->code);
    s->code_waits = false;
    return rc;
}

int stitch__serve_compiler(stitch__server *s, stitch__exchange *x)
{
    switch (x->q->op) {
    case STITCH__OP_WORKER_COMPILE: return do_compile(s, x);
    case STITCH__OP_WORKER_CODE: return do_code(s, x);
    default: return stitch__err(s->ctx, &x->err, STITCH_E_UNSUPPORTED, "request %d is none for a compiler", x->q->op);
    }
}

void stitch__serve_warm_compiler(stitch__server *s)
{
    static const char source[] = "extern \"C\" __global__ void k(float *x) { x[threadIdx.x] *= 2; }";
    char arch[40];
    const char *const options[] = {arch, "-std=c++17", "-lineinfo", "--modify-stack-limit=false"};
    const stitch__rtc_input in = {source, options, NULL, STITCH__COUNT(options), 0};
    stitch__rtc rtc;
    int archs[256], count = 0;

    if (s->nvrtc->GetNumSupportedArchs(&count) != NVRTC_SUCCESS || count < 1 || count > (int)STITCH__COUNT(archs) ||
        s->nvrtc->GetSupportedArchs(archs) != NVRTC_SUCCESS)
        return;
    snprintf(arch, sizeof(arch), "--gpu-architecture=sm_%d", archs[count / 2]);
    if (stitch__rtc_run_here(s->nvrtc, &in, &rtc) == STITCH_OK)
        stitch__rtc_free(&rtc);
}

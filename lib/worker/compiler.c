/* SPDX-License-Identifier: MIT
 *
 * Sources of strangers are compiled in a process of their own: a few hundred bytes of source can make NVRTC overrun its
 * stack or run for hours, and it can neither be interrupted nor survive that. The verifier's side.
 */
#include <stdio.h>
#include <unistd.h>

#include "worker/client.h"

enum {
    MAX_SOURCE = 64 << 20, /* the verifier has limits of its own; these are for whoever reads */
    MAX_TEXT = 1 << 20,
    MAX_TEXTS = 1 << 14,
};

#define ADVICE                                                                                                         \
    "macros or templates that multiply, deep nesting and very long expressions do that, so the program should have "   \
    "less of them"

/* ---- what NVRTC is given, as bytes ------------------------------------------------------------------------------- */

static void put_texts(stitch__buf *b, const char *const *texts, size_t count)
{
    stitch__put_u32(b, (uint32_t)count);
    for (size_t i = 0; i < count; i++)
        stitch__put_text(b, texts[i]);
}

void stitch__rtc_input_encode(const stitch__rtc_input *in, stitch__buf *out)
{
    stitch__put_text(out, in->source);
    put_texts(out, in->options, in->option_count);
    put_texts(out, in->names, in->name_count);
}

static const char *const *get_texts(stitch__reader *r, stitch__arena *arena, size_t *count, bool *memory)
{
    const char **texts = NULL;

    *count = stitch__get_u32(r);
    if (*count > MAX_TEXTS || *count > r->len / 5) /* each has a length and a NUL */
        r->failed = true;
    if (!r->failed && !(texts = stitch__arena_array(arena, *count + 1, sizeof(*texts))))
        *memory = false;
    for (size_t i = 0; texts && i < *count; i++)
        texts[i] = stitch__get_text(r, MAX_TEXT);
    return texts;
}

int stitch__rtc_input_decode(stitch__arena *arena, const void *data, size_t len, stitch__rtc_input *out,
                             stitch_error **err)
{
    stitch__reader r = {.data = data, .len = len};
    bool memory = true;

    out->source = stitch__get_text(&r, MAX_SOURCE);
    out->options = get_texts(&r, arena, &out->option_count, &memory);
    out->names = get_texts(&r, arena, &out->name_count, &memory);
    if (!memory)
        return stitch__err_nomem(arena->ctx, err);
    if (r.failed || r.at != r.len || !out->option_count)
        return stitch__err(arena->ctx, err, STITCH_E_FORMAT, "what is to be compiled is malformed");
    return STITCH_OK;
}

/* ---- what it gives ----------------------------------------------------------------------------------------------- */

/* Where the pieces are: in the reply, or in memory that the process can still write to, of which each byte is read
 * once, by a call. */
typedef struct answer {
    const uint8_t *inside;
    int memory;
    uint64_t at;
} answer;

static int take_piece(stitch__worker *w, answer *a, uint64_t bytes, char **out, stitch_error **err)
{
    char *piece = stitch__alloc(w->ctx, (size_t)bytes + 1);

    *out = piece;
    if (!piece)
        return stitch__err_nomem(w->ctx, err);
    piece[bytes] = 0;
    if (a->inside && bytes)
        memcpy(piece, a->inside + a->at, (size_t)bytes);
    for (uint64_t done = 0; !a->inside && done < bytes;) {
        ssize_t n = pread(a->memory, piece + done, (size_t)(bytes - done), (off_t)(a->at + done));
        if (n <= 0)
            return stitch__err_errno(w->ctx, err, STITCH_E_IO, "reading compiled code");
        done += (uint64_t)n;
    }
    a->at += bytes;
    return STITCH_OK;
}

/* One for each name, "" where there is none. */
static int take_symbols(stitch__worker *w, const char *piece, size_t bytes, size_t count, stitch__rtc *out,
                        stitch_error **err)
{
    stitch__reader r = {.data = (const uint8_t *)piece, .len = bytes};

    out->symbols = stitch__calloc(w->ctx, count + 1, sizeof(*out->symbols));
    if (!out->symbols)
        return stitch__err_nomem(w->ctx, err);
    for (; out->symbol_count < count && !r.failed; out->symbol_count++) {
        const char *symbol = stitch__get_text(&r, MAX_TEXT);
        if (*symbol && !(out->symbols[out->symbol_count] = stitch__strdup(w->ctx, symbol)))
            return stitch__err_nomem(w->ctx, err);
    }
    if (r.failed || r.at != r.len)
        return stitch__err(w->ctx, err, STITCH_E_COMPILE, "names and kernels of the answer do not fit");
    return STITCH_OK;
}

static int take_pieces(stitch__worker *w, const stitch__reply *r, answer *a, const stitch__rtc_input *in,
                       stitch__rtc *out, stitch_error **err)
{
    char *symbols = NULL;
    int rc = take_piece(w, a, r->pieces[STITCH__PIECE_LOG], &out->log, err);

    if (!rc)
        rc = take_piece(w, a, r->pieces[STITCH__PIECE_PTX], &out->ptx, err);
    if (!rc)
        rc = take_piece(w, a, r->pieces[STITCH__PIECE_CUBIN], &out->cubin, err);
    if (!rc)
        rc = take_piece(w, a, r->pieces[STITCH__PIECE_SYMBOLS], &symbols, err);
    if (rc) {
        stitch_free(symbols);
        return rc;
    }
    out->result = (nvrtcResult)r->result;
    out->call = (int)r->rtc_call;
    out->log_len = strlen(out->log); /* texts: whatever is behind a NUL is not part of them */
    out->ptx_len = strlen(out->ptx);
    out->cubin_size = (size_t)r->pieces[STITCH__PIECE_CUBIN];
    if (out->result == NVRTC_SUCCESS)
        rc = take_symbols(w, symbols, (size_t)r->pieces[STITCH__PIECE_SYMBOLS], in->name_count, out, err);
    stitch_free(symbols);
    return rc;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

typedef struct asking {
    stitch__worker *w;
    const stitch__scope *scope;
    int64_t begun;
    bool its_own; /* an error that the process reports, rather than one of ours */
    int code;     /* of what became of the process, with */
    stitch_error *why;
} asking;

/* The source has been with the process: whatever became of that, but for our own time and memory, is the source's. */
static int blame(asking *a, int rc, stitch_error *cause, stitch_error **err)
{
    stitch__worker *w = a->w;
    stitch_error *from = cause ? cause : a->why;
    const char *message = from ? stitch_error_message(from) : stitch_status_text(rc ? rc : a->code);
    double seconds = (double)(stitch__now_ns() - a->begun) / 1e9;

    if (rc && rc != STITCH_E_COMPILE && !a->its_own)
        return stitch__err(w->ctx, err, rc, "%s", message);
    if (a->code == STITCH_E_TIMEOUT)
        return stitch__err(
            w->ctx, err, STITCH_E_TIMEOUT,
            "the source was not compiled in time: the compiler's process was killed after %.1f s; " ADVICE
            ", or the call more time",
            seconds);
    stitch__err(w->ctx, err, STITCH_E_COMPILE,
                "the compiler, in a process of its own, did not come through this source: %.1000s; " ADVICE, message);
    if (from && *stitch_error_details(from))
        stitch__err_details(err, stitch_error_details(from));
    return STITCH_E_COMPILE;
}

/* Sends the source. *seen: the process may have it. */
static int send_source(asking *a, const stitch__rtc_input *in, stitch__request *q, bool *seen, stitch_error **err)
{
    stitch__worker *w = a->w;
    int64_t left = stitch__scope_left_ms(a->scope, INT64_C(1000) << 20);
    stitch__buf b;
    int memory = -1, rc;

    stitch__buf_init(&b, w->ctx);
    stitch__rtc_input_encode(in, &b);
    q->bytes = b.len;
    q->seconds = (uint32_t)(2 * left / 1000);
    rc = b.failed ? stitch__err_nomem(w->ctx, err) : stitch__memory_make(w->ctx, "the source", b.len, &memory, err);
    if (!rc)
        rc = stitch__memory_write(w->ctx, memory, 0, b.data, b.len, "the source", err);
    if (!rc)
        rc = stitch__memory_freeze(w->ctx, memory, "the source", err);
    a->begun = stitch__now_ns();
    if (!rc)
        rc = stitch__worker_send(w, a->scope, q, memory, NULL, &a->begun, err);
    *seen = rc == STITCH_OK;
    w->used = true;
    if (memory >= 0)
        close(memory);
    stitch__buf_free(&b);
    return rc;
}

/* What is too large for the reply comes through a memory file. */
static int fetch_code(asking *a, const stitch__reply *r, answer *from, stitch_error **err)
{
    stitch__request q = {.op = STITCH__OP_WORKER_CODE, .bytes = stitch__reply_code_bytes(r)};
    const stitch__blame blamed = {&a->code, &a->why};
    stitch__reply fetched;
    int rc = stitch__memory_make(a->w->ctx, "compiled code", q.bytes, &from->memory, err);

    if (rc)
        return rc;
    rc = stitch__worker_call(a->w, a->scope, &q, from->memory, &blamed, &fetched, err);
    a->its_own = rc && fetched.rc;
    return rc;
}

static int receive_code(asking *a, const stitch__request *q, const stitch__rtc_input *in, stitch__rtc *out,
                        stitch_error **err)
{
    const stitch__blame blamed = {&a->code, &a->why};
    answer from = {.memory = -1};
    stitch_error *cause = NULL;
    stitch__reply r = {.rc = STITCH_OK};
    int rc = stitch__worker_receive(a->w, a->scope, q, a->begun, &blamed, &r, &cause);

    a->its_own = rc && r.rc;
    if (!rc && !a->code) {
        from.inside = r.compiled;
        if (!from.inside && stitch__reply_code_bytes(&r))
            rc = fetch_code(a, &r, &from, &cause);
    }
    if (!rc && !a->code)
        rc = take_pieces(a->w, &r, &from, in, out, &cause);
    if (!rc && !a->code && (r.result == NVRTC_ERROR_OUT_OF_MEMORY || r.result == NVRTC_ERROR_INTERNAL_ERROR))
        rc = stitch__err(a->w->ctx, &cause, STITCH_E_COMPILE, "NVRTC ended with error %" PRIu32 " (%s)", r.result,
                         r.result == NVRTC_ERROR_OUT_OF_MEMORY ? "out of memory" : "internal error");
    if (rc || a->code)
        rc = blame(a, rc, cause, err);
    if (from.memory >= 0)
        close(from.memory);
    stitch_error_free(cause);
    stitch_error_free(a->why);
    return rc;
}

int stitch__worker_compile(stitch_context *ctx, const stitch__scope *scope, const stitch__worker_options *options,
                           const stitch__rtc_input *in, stitch__rtc *out, bool *missing, stitch_error **err)
{
    stitch__worker_options o = options ? *options : (stitch__worker_options){0};
    stitch__request q = {.op = STITCH__OP_WORKER_COMPILE};
    asking a = {.scope = scope};
    bool seen = false;
    int rc;

    o.role = STITCH__WORKER_COMPILER;
    memset(out, 0, sizeof(*out));
    for (int attempt = 0; attempt < 2; attempt++) {
        stitch_error *why = NULL; /* one that idled may have died meanwhile: one more, that nobody has used */
        o.fresh = o.fresh || attempt;
        rc = stitch__worker_acquire(ctx, scope, &o, &a.w, &why);
        if (!rc)
            rc = send_source(&a, in, &q, &seen, &why);
        if (rc)
            stitch__err_hand_on(err, &why);
        if (rc != STITCH_E_IO || !a.w || attempt)
            break;
        stitch__worker_release(a.w, false);
        a.w = NULL;
    }
    *missing = !seen;
    if (!rc)
        rc = receive_code(&a, &q, in, out, err);
    if (rc)
        stitch__rtc_free(out);
    stitch__worker_release(a.w, true);
    return rc;
}

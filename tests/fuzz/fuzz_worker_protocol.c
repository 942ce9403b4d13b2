/* SPDX-License-Identifier: MIT
 *
 * Messages between a verifier and a worker, in both directions. The first byte says what the rest is: a reply or a
 * request of some type, a frame's header, a source with its options, a
 * task's description. What is accepted must come out of the encoder as it
 * went in.
 */
#include <math.h>
#include <stdlib.h>

#include "worker/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const stitch__buf *b, const uint8_t *data, size_t size)
{
    if (b->failed || b->len != size || (size && memcmp(b->data, data, size) != 0))
        abort();
}

static void check_reply(int op, const uint8_t *data, size_t size)
{
    stitch__reply r;
    stitch_error *err = NULL;
    stitch__buf b;

    if (stitch__reply_decode(op, data, size, &r, &err)) {
        if (!*stitch_error_message(err))
            abort();
        stitch_error_free(err);
        return;
    }
    if (!(r.prepared.us >= 0) || !isfinite(r.prepared.us) || r.rc > 0 || r.code > 0 || (r.rc && r.code) ||
        r.run_count > STITCH__BLOCK ||
        r.hash_count > (r.run_count ? r.run_count : 1) * (size_t)STITCH__TASK_MAX_TENSORS)
        abort();
    for (uint32_t k = 0; k < STITCH__BLOCK; k++)
        if (!(r.took[k].us >= 0) || !isfinite(r.took[k].us) || !(r.took[k].least_us >= 0) ||
            !isfinite(r.took[k].least_us))
            abort();
    for (int i = 0; i < STITCH__PIECES; i++)
        if (r.pieces[i] > STITCH__WORKER_MAX_CODE || r.rtc_call >= STITCH__RTC_CALLS)
            abort();
    uint64_t *hashes = malloc((r.hash_count + 1) * sizeof(*hashes));
    for (size_t i = 0; i < r.hash_count; i++)
        hashes[i] = stitch__reply_hash(&r, data, i);
    stitch__buf_init(&b, NULL);
    stitch__reply_encode(&r, hashes, &b);
    same(&b, data, size);
    stitch__buf_free(&b);
    free(hashes);
}

static bool sane(const stitch__run *run)
{
    return run->set >= 0 && run->set < STITCH__SETS && run->skip >= -1;
}

static void check_request(int op, const uint8_t *data, size_t size)
{
    stitch__request q;
    stitch__buf b;

    if (stitch__request_decode(op, data, size, &q, NULL))
        return;
    /* Runs of a block come after the sets. */
    int sets = op == STITCH__OP_WORKER_FETCH ? STITCH__SETS + STITCH__BLOCK : STITCH__SETS;
    if (q.set < 0 || q.set >= sets || q.block.count > STITCH__BLOCK || q.kept > STITCH__BLOCK ||
        q.buffer >= STITCH__WORKER_BUFFERS || !sane(&q.run))
        abort();
    for (uint32_t k = 0; k < q.block.count; k++) {
        const stitch__block_run *run = &q.block.runs[k];
        if (!sane(&run->run) || run->does > STITCH__RUN_FLAGS ||
            (run->variant && (!isfinite(run->variant->scale) || (run->variant->dist && !run->variant->dist->kind))))
            abort();
    }
    stitch__buf_init(&b, NULL);
    stitch__request_encode(&q, &b);
    same(&b, data, size);
    stitch__buf_free(&b);
}

static void check_frame(bool reply, const uint8_t *data, size_t size)
{
    uint8_t again[STITCH__FRAME_BYTES];
    stitch__frame f;

    if (size < STITCH__FRAME_BYTES || stitch__frame_decode(data, reply, &f, NULL))
        return;
    if (f.bytes > STITCH__WORKER_MAX_PAYLOAD || !f.op || f.op >= STITCH__OP_WORKER_COUNT)
        abort();
    stitch__frame_encode(&f, reply, again);
    if (memcmp(again, data, sizeof(again)) != 0)
        abort();
}

static void check_task(const uint8_t *data, size_t size)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_task *t = NULL;
    stitch__buf b;

    options.device = "none";
    options.cache_dir = "";
    if (stitch_context_new(&ctx, &options, NULL))
        abort();
    if (stitch__worker_task_decode(ctx, data, size, &t, NULL) == STITCH_OK) {
        stitch_task *second = NULL;
        stitch__buf_init(&b, NULL);
        stitch__worker_task_encode(t, &b); /* spaces of expressions may differ, but not what they mean */
        if (b.failed || stitch__worker_task_decode(ctx, b.data, b.len, &second, NULL) ||
            stitch_interface_tensor_count(stitch_task_interface(second)) !=
                stitch_interface_tensor_count(stitch_task_interface(t)))
            abort();
        stitch__buf_free(&b);
        stitch_task_free(second);
        stitch_task_free(t);
    }
    stitch_context_free(ctx);
}

static void check_source(const uint8_t *data, size_t size)
{
    stitch__arena arena = {0};
    stitch__rtc_input in;
    stitch__buf b;

    if (stitch__rtc_input_decode(&arena, data, size, &in, NULL) == STITCH_OK) {
        stitch__buf_init(&b, NULL);
        stitch__rtc_input_encode(&in, &b);
        same(&b, data, size);
        stitch__buf_free(&b);
    }
    stitch__arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    int kind = data[0] / 32, op = data[0] % 32;
    data++;
    size--;
    switch (kind) {
    case 0: check_reply(op, data, size); break;
    case 1: check_request(op, data, size); break;
    case 2: check_frame(op % 2, data, size); break;
    case 3: check_source(data, size); break;
    default: check_task(data, size); break;
    }
    return 0;
}

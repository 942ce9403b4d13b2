/* SPDX-License-Identifier: MIT
 *
 * Messages between a verifier and a worker: what is sent is what comes, and nothing else is taken for it.
 */
#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stitch/version.h>

#include "check.h"
#include "descriptors.h"
#include "worker/client.h"

static stitch_error *err;

/* ---- wire -------------------------------------------------------------------------------------------------------- */

TEST(hmac_of_rfc_4231)
{
    /* Test cases 1 and 2: their keys are shorter than ours, and a key is filled up with zeros. */
    static const struct {
        const char *key, *data, *mac;
    } cases[] = {
        {"\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b", "Hi There",
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"}};

    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        uint8_t key[STITCH__WORKER_KEY] = {0}, mac[STITCH__SHA256_SIZE];
        char hex[65];
        size_t len = strlen(cases[i].data);
        memcpy(key, cases[i].key, strlen(cases[i].key));
        for (size_t cut = 0; cut <= len; cut++) {
            stitch__hmac_sha256(key, cases[i].data, cut, cases[i].data + cut, len - cut, mac);
            for (int k = 0; k < 32; k++)
                snprintf(hex + 2 * k, 3, "%02x", mac[k]);
            CHECK_STR(hex, cases[i].mac);
        }
    }
}

TEST(numbers_and_texts)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__put_u32(&b, 0xfffefdfcu);
    stitch__put_u64(&b, UINT64_MAX - 1);
    stitch__put_f64(&b, -0.1);
    stitch__put_text(&b, "text");
    stitch__put_text(&b, NULL);
    stitch__put_u32(&b, 2);

    stitch__reader r = {.data = (const uint8_t *)b.data, .len = b.len};
    CHECK(stitch__get_u32(&r) == 0xfffefdfcu);
    CHECK(stitch__get_u64(&r) == UINT64_MAX - 1);
    CHECK(stitch__get_f64(&r) == -0.1);
    CHECK_STR(stitch__get_text(&r, 4), "text");
    CHECK_STR(stitch__get_text(&r, 4), "");
    CHECK(!r.failed);
    CHECK(!stitch__get_bool(&r));
    CHECK(r.failed); /* 2 is no bool */
    CHECK(stitch__get_u32(&r) == 0);
    stitch__buf_free(&b);
}

TEST(texts_from_strangers)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {{"\4\0\0\0abcd", 8},
               {"\4\0\0\0abcdX", 9},
               {"\4\0\0\0ab\0d\0", 9},
               {"\xff\xff\xff\xff"
                "a",
                5},
               {"\5\0\0\0abcde\0", 10},
               {"\1\0", 2}};
    for (size_t i = 0; i < STITCH__COUNT(bad); i++) {
        stitch__reader r = {.data = (const uint8_t *)bad[i].bytes, .len = bad[i].len};
        CHECK_STR(stitch__get_text(&r, 4), "");
        CHECK(r.failed);
    }
}

/* ---- sources ----------------------------------------------------------------------------------------------------- */

TEST(sources_arrive_as_sent)
{
    static const char *const options[] = {"--gpu-architecture=sm_90", ""}, *const names[] = {"k<float, 3>"};
    const stitch__rtc_input in = {"__global__ ...", options, names, 2, 1};
    stitch__arena arena = {0};
    stitch__rtc_input got;
    stitch__buf b;

    stitch__buf_init(&b, NULL);
    stitch__rtc_input_encode(&in, &b);
    CHECK_OK(stitch__rtc_input_decode(&arena, b.data, b.len, &got, &err));
    CHECK_STR(got.source, in.source);
    CHECK(got.option_count == 2 && got.name_count == 1);
    CHECK_STR(got.options[0], options[0]);
    CHECK_STR(got.options[1], "");
    CHECK_STR(got.names[0], names[0]);
    for (size_t len = 0; len < b.len; len++)
        CHECK_ERR(stitch__rtc_input_decode(&arena, b.data, len, &got, &err), STITCH_E_FORMAT, "malformed");
    stitch__buf_putc(&b, 0);
    CHECK_ERR(stitch__rtc_input_decode(&arena, b.data, b.len, &got, &err), STITCH_E_FORMAT, "malformed");
    stitch__buf_free(&b);
    stitch__buf_init(&b, NULL);
    stitch__put_text(&b, "source");
    stitch__put_u32(&b, UINT32_MAX); /* so many options */
    CHECK_ERR(stitch__rtc_input_decode(&arena, b.data, b.len, &got, &err), STITCH_E_FORMAT, "malformed");
    stitch__buf_free(&b);
    stitch__arena_free(&arena);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static const stitch_dist quarter = {.kind = STITCH_DIST_BERNOULLI, .a = 0.25};
static const stitch__variant like_this = {.dist = &quarter}, larger = {.scale = 64};

static stitch__request sample(int op)
{
    stitch__request q = {.op = op};
    for (int i = 0; i < STITCH__WORKER_KEY; i++)
        q.key[i] = (uint8_t)(i * 7);
    q.protocol = STITCH__WORKER_PROTOCOL;
    q.sandbox = STITCH__SANDBOX_FULL;
    q.device = "sim:sm_90a";
    q.cache_dir = "/tmp/c";
    q.cuda_path = "";
    q.task_bytes = 100;
    q.program_bytes = 200;
    q.tensor = 5;
    q.offset = 1;
    q.bytes = 1ull << 40;
    q.at = 4096;
    q.share_bytes = 8192;
    q.load = (stitch__load){255};
    q.seed = 0xfedcba9876543210u;
    q.has_variant = true;
    q.inputs = true;
    q.scale = 64;
    q.dist = (stitch_dist){.kind = STITCH_DIST_BERNOULLI, .a = 0.05};
    q.set = 1;
    q.run = (stitch__run){1, 0x7f, 3, 1, 12345};
    q.kept = STITCH__BLOCK;
    q.buffer = STITCH__WORKER_BUFFERS - 1;
    q.keep_buffers = true;
    q.block = (stitch__run_block){.count = 3,
                                  .runs = {{q.run, STITCH__RUN_FLAGS, 8, NULL},
                                           {q.run, STITCH__RUN_KEPT, UINT64_MAX, &like_this},
                                           {q.run, 0, 9, &larger}}};
    q.parts = STITCH__PARTS;
    q.metrics = STITCH__METRIC_FULL;
    q.text = "why?";
    q.role = STITCH__WORKER_COMPILER;
    q.seconds = 77;
    return q;
}

TEST(requests_arrive_as_sent)
{
    for (int op = 1; op < STITCH__OP_WORKER_COUNT; op++) {
        stitch__request q = sample(op), got;
        stitch__buf b, again;
        stitch__buf_init(&b, NULL);
        stitch__buf_init(&again, NULL);
        stitch__request_encode(&q, &b);
        CHECK_OK(stitch__request_decode(op, b.data ? b.data : "", b.len, &got, &err));
        stitch__request_encode(&got, &again);
        CHECK_INT(again.len, b.len);
        CHECK(b.len == 0 || memcmp(b.data, again.data, b.len) == 0);
        if (op == STITCH__OP_WORKER_RUN) {
            CHECK_INT(got.run.skip, 3);
            CHECK_INT(got.run.flush_bytes, 12345);
        }
        if (op == STITCH__OP_WORKER_RUN_BLOCK) {
            const stitch__block_run *runs = got.block.runs;
            CHECK_INT(got.block.count, 3);
            CHECK(runs[0].run.flush_bytes == 12345 && runs[0].does == STITCH__RUN_FLAGS && !runs[0].variant);
            CHECK(runs[1].key == UINT64_MAX && runs[1].does == STITCH__RUN_KEPT);
            CHECK(runs[1].variant->dist->kind == STITCH_DIST_BERNOULLI && runs[1].variant->dist->a == 0.25);
            CHECK(runs[2].key == 9 && runs[2].variant->scale == 64 && !runs[2].variant->dist);
        }
        if (op == STITCH__OP_WORKER_HELLO)
            CHECK_INT(got.role, STITCH__WORKER_COMPILER);
        if (op == STITCH__OP_WORKER_COMPILE)
            CHECK(got.bytes == 1ull << 40 && got.seconds == 77);
        if (op == STITCH__OP_WORKER_CODE)
            CHECK(got.bytes == 1ull << 40);
        if (op == STITCH__OP_WORKER_PLACE || op == STITCH__OP_WORKER_KEEP)
            CHECK_INT(got.buffer, STITCH__WORKER_BUFFERS - 1);
        if (op == STITCH__OP_WORKER_CLOSE)
            CHECK(got.keep_buffers);
        if (op == STITCH__OP_WORKER_PROFILE) {
            CHECK_INT(got.run.flush_bytes, 12345);
            CHECK_INT(got.parts, STITCH__PARTS);
            CHECK_INT(got.metrics, STITCH__METRIC_FULL);
            CHECK_STR(got.text, "why?");
        }
        if (op == STITCH__OP_WORKER_FILL_INPUTS) {
            CHECK(got.seed == q.seed && got.has_variant && got.scale == 64);
            CHECK_INT(got.dist.kind, STITCH_DIST_BERNOULLI);
        }
        /* Every shorter one, and a longer one, is refused. */
        stitch__buf_putc(&b, 0);
        CHECK_ERR(stitch__request_decode(op, b.data, b.len, &got, &err), STITCH_E_FORMAT, "malformed");
        for (size_t len = 0; len + 1 < b.len; len++)
            CHECK_ERR(stitch__request_decode(op, b.data, len, &got, &err), STITCH_E_FORMAT, "malformed");
        stitch__buf_free(&b);
        stitch__buf_free(&again);
    }
    stitch__request got;
    CHECK_ERR(stitch__request_decode(0, "", 0, &got, &err), STITCH_E_FORMAT, "malformed");
    CHECK_ERR(stitch__request_decode(STITCH__OP_WORKER_COUNT, "", 0, &got, &err), STITCH_E_FORMAT, "malformed");
}

static void refuse_request(const stitch__request *q)
{
    stitch__request got;
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__request_encode(q, &b);
    CHECK_ERR(stitch__request_decode(q->op, b.data, b.len, &got, &err), STITCH_E_FORMAT, "malformed");
    stitch__buf_free(&b);
}

static void refuse_block(stitch__block_run run)
{
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_RUN_BLOCK, .block = {.count = 1, .runs = {run}}});
}

TEST(requests_out_of_range)
{
    static const stitch_dist negative = {.kind = -1};
    static const stitch__variant not_a_number = {.scale = NAN}, of_no_kind = {.dist = &negative};
    static const stitch__run runs[] = {{2, -1, -1, 0, 0}, {-1, -1, -1, 0, 0}, {0, 256, -1, 0, 0},
                                       {0, -2, -1, 0, 0}, {0, -1, -2, 0, 0},  {0, -1, -1, 2, 0}};
    for (size_t i = 0; i < STITCH__COUNT(runs); i++) {
        refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_RUN, .run = runs[i]});
        refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_PROFILE, .run = runs[i]});
    }
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_PROFILE, .run = STITCH__RUN_INIT, .parts = 8});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_PROFILE, .run = STITCH__RUN_INIT, .metrics = 2});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_CLEAR_STATES, .set = 2});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_PLACE, .set = STITCH__SETS});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_FETCH, .set = STITCH__SETS + STITCH__BLOCK});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_KEEP, .kept = 0});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_KEEP, .kept = STITCH__BLOCK + 1});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_PLACE, .buffer = STITCH__WORKER_BUFFERS});
    refuse_request(
        &(stitch__request){.op = STITCH__OP_WORKER_KEEP, .kept = 1, .bytes = 1, .buffer = STITCH__WORKER_BUFFERS});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_RUN_BLOCK});
    refuse_block((stitch__block_run){.run = runs[0]});
    refuse_block((stitch__block_run){.run = STITCH__RUN_INIT, .does = STITCH__RUN_FLAGS + 1});
    refuse_block((stitch__block_run){.run = STITCH__RUN_INIT, .variant = &not_a_number});
    refuse_block((stitch__block_run){.run = STITCH__RUN_INIT, .variant = &of_no_kind});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_FILL_INPUTS, .has_variant = true, .scale = NAN});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_FILL_INPUTS, .has_variant = true, .dist = {.kind = -1}});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_LOAD, .load = {256}});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_HELLO, .role = STITCH__WORKER_COMPILER + 1});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_HELLO, .sandbox = STITCH__SANDBOX_FULL + 1});
    refuse_request(&(stitch__request){.op = STITCH__OP_WORKER_OPEN, .task_bytes = UINT64_MAX, .program_bytes = 2});
}

TEST(replies_arrive_as_sent)
{
    const uint64_t hashes[] = {1, UINT64_MAX, 3};
    for (int op = 1; op < STITCH__OP_WORKER_COUNT; op++) {
        stitch__reply r = {.op = op,
                           .busy_ns = 77,
                           .protocol = 1,
                           .pid = 42,
                           .uuid = "0123456789abcde",
                           .version = "1.2",
                           .arch = "sm_90a",
                           .name = "GPU",
                           .sandbox = "seccomp",
                           .prepared = {1.5, 2, 3, 4, 5, 6},
                           .hash_count = 3,
                           .run_count = 2,
                           .took = {{12.25, 11.5}, {0, 3}},
                           .text = "because",
                           .result = 6,
                           .rtc_call = STITCH__RTC_CUBIN,
                           .pieces = {3, 0, 2, 1},
                           .compiled = "logCUs"};
        stitch__reply got;
        stitch__buf b;
        stitch__buf_init(&b, NULL);
        stitch__reply_encode(&r, hashes, &b);
        CHECK_OK(stitch__reply_decode(op, b.data, b.len, &got, &err));
        CHECK_INT(got.busy_ns, 77);
        switch (op) {
        case STITCH__OP_WORKER_HELLO:
            CHECK_STR(got.arch, "sm_90a");
            CHECK_STR(got.sandbox, "seccomp");
            CHECK(memcmp(got.uuid, r.uuid, 16) == 0);
            break;
        case STITCH__OP_WORKER_PREPARE: CHECK(got.prepared.us == 1.5 && got.prepared.steps == 6); break;
        case STITCH__OP_WORKER_RUN_BLOCK:
            CHECK_INT(got.run_count, 2);
            CHECK(memcmp(got.took, r.took, sizeof(got.took)) == 0);
            /* fall through */
        case STITCH__OP_WORKER_HASH:
            CHECK_INT(got.hash_count, 3);
            for (size_t i = 0; i < 3; i++)
                CHECK(stitch__reply_hash(&got, b.data, i) == hashes[i]);
            CHECK(stitch__reply_hash(&got, b.data, 3) == 0);
            break;
        case STITCH__OP_WORKER_TIMED_RUN: CHECK(got.took[0].us == 12.25 && got.took[0].least_us == 11.5); break;
        case STITCH__OP_WORKER_COMPILE:
            CHECK(got.result == 6 && got.rtc_call == STITCH__RTC_CUBIN && got.pieces[STITCH__PIECE_CUBIN] == 2);
            CHECK_INT(stitch__reply_code_bytes(&got), 6);
            CHECK(memcmp(got.compiled, "logCUs", 6) == 0);
            break;
        case STITCH__OP_WORKER_PROFILE:
        case STITCH__OP_WORKER_PROBE: CHECK_STR(got.text, "because"); break;
        default: break;
        }
        for (size_t len = 0; len < b.len; len++)
            CHECK_ERR(stitch__reply_decode(op, b.data, len, &got, &err), STITCH_E_FORMAT, "malformed");
        stitch__buf_putc(&b, 0);
        CHECK_ERR(stitch__reply_decode(op, b.data, b.len, &got, &err), STITCH_E_FORMAT, "malformed");
        stitch__buf_free(&b);
    }
}

TEST(failures_arrive_as_sent)
{
    char details[STITCH__WORKER_MAX_DETAILS + 100];
    stitch__reply r = {.op = STITCH__OP_WORKER_RUN,
                       .code = STITCH_E_FAULT,
                       .domain = STITCH_DOMAIN_DRIVER,
                       .native = 700,
                       .message = "it faulted",
                       .details = details};
    stitch__reply got;
    stitch__buf b;

    memset(details, 'x', sizeof(details));
    details[sizeof(details) - 1] = 0;
    memcpy(details + STITCH__WORKER_MAX_DETAILS - 1, "\xc3\xa9", 2); /* a character across the limit is left out */
    stitch__buf_init(&b, NULL);
    stitch__reply_encode(&r, NULL, &b);
    CHECK_OK(stitch__reply_decode(r.op, b.data, b.len, &got, &err));
    CHECK_INT(got.code, STITCH_E_FAULT);
    CHECK_INT(got.native, 700);
    CHECK_STR(got.message, "it faulted");
    CHECK_INT(strlen(got.details), STITCH__WORKER_MAX_DETAILS - 1);
    stitch__buf_free(&b);
}

static void refuse_reply(const stitch__reply *r)
{
    static const uint64_t hashes[STITCH__TASK_MAX_TENSORS + 1];
    stitch__reply got;
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__reply_encode(r, hashes, &b);
    CHECK_ERR(stitch__reply_decode(r->op, b.data, b.len, &got, &err), STITCH_E_FORMAT, "malformed");
    stitch__buf_free(&b);
}

/* One run more than a reply has places for. */
static void refuse_too_many_runs(void)
{
    stitch__reply r = {.op = STITCH__OP_WORKER_RUN_BLOCK, .run_count = STITCH__BLOCK}, got;
    size_t count_at, hashes_at;
    stitch__buf b, more;

    stitch__buf_init(&b, NULL);
    stitch__buf_init(&more, NULL);
    stitch__reply_encode(&r, NULL, &b);
    CHECK_OK(stitch__reply_decode(r.op, b.data, b.len, &got, &err));
    hashes_at = b.len - 4;                         /* their count, 0, is what ends it */
    count_at = hashes_at - 16 * STITCH__BLOCK - 4; /* before two times of each run */
    stitch__buf_append(&more, b.data, count_at);
    stitch__put_u32(&more, STITCH__BLOCK + 1);
    stitch__buf_append(&more, b.data + count_at + 4, hashes_at - count_at - 4);
    stitch__put_f64(&more, 0);
    stitch__put_f64(&more, 0);
    stitch__put_u32(&more, 0);
    CHECK_ERR(stitch__reply_decode(r.op, more.data, more.len, &got, &err), STITCH_E_FORMAT, "malformed");
    stitch__buf_free(&b);
    stitch__buf_free(&more);
}

TEST(replies_out_of_range)
{
    static const double times[] = {NAN, INFINITY, -INFINITY, -1e-9};
    for (size_t i = 0; i < STITCH__COUNT(times); i++) {
        refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_TIMED_RUN, .took = {{.us = times[i]}}});
        refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_TIMED_RUN, .took = {{.least_us = times[i]}}});
        refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_PREPARE, .prepared = {.us = times[i]}});
    }
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_PREPARE, .prepared = {.steps = UINT64_MAX}});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_PREPARE, .prepared = {.launches = UINT64_MAX}});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_PREPARE, .prepared = {.prepare_launches = UINT64_MAX}});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_PREPARE, .prepared = {.workspace_bytes = UINT64_MAX}});
    refuse_reply(
        &(stitch__reply){.op = STITCH__OP_WORKER_PREPARE, .prepared = {.library_workspace_bytes = UINT64_MAX}});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_HASH, .hash_count = STITCH__TASK_MAX_TENSORS + 1});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_RUN_BLOCK});
    refuse_too_many_runs();
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_RUN_BLOCK, .run_count = 1, .took = {{-1, 0}}});
    refuse_reply(&(stitch__reply){
        .op = STITCH__OP_WORKER_RUN_BLOCK, .run_count = 1, .hash_count = STITCH__TASK_MAX_TENSORS + 1});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_COMPILE, .rtc_call = STITCH__RTC_CALLS});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_COMPILE, .result = UINT32_MAX});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_COMPILE, .pieces = {STITCH__WORKER_MAX_LOG + 1}});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_COMPILE, .pieces = {0, UINT64_MAX, 1}});
    refuse_reply(&(stitch__reply){
        .op = STITCH__OP_WORKER_COMPILE,
        .pieces = {0, STITCH__WORKER_MAX_CODE / 2, STITCH__WORKER_MAX_CODE / 2, STITCH__WORKER_MAX_CODE / 2}});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_RUN, .rc = 1});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_RUN, .rc = -1000});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_RUN, .code = -1000});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_RUN, .rc = STITCH_E_IO, .code = STITCH_E_FAULT});
    refuse_reply(&(stitch__reply){.op = STITCH__OP_WORKER_RUN, .domain = 1000});
}

/* ---- task -------------------------------------------------------------------------------------------------------- */

TEST(tasks_arrive_as_sent)
{
    static const char *const shape[] = {"N", "2 * M + 1"};
    stitch_dist range = {.kind = STITCH_DIST_RANDINT, .a = 0, .b = 7};
    stitch_context *ctx = NULL;
    stitch_task *t = NULL, *got = NULL;
    stitch__buf b;

    CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    CHECK_OK(stitch_task_new(ctx, "sent", &t, &err));
    CHECK_OK(stitch_task_set_dim(t, "N", 5, &err));
    CHECK_OK(stitch_task_set_dim(t, "M", 30, &err));
    CHECK_OK(stitch_task_set_reduced_dim(t, "M", 3, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_F32, 2, shape, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_INPUT, "i", STITCH_DTYPE_I32, 1, shape, &range, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_INPUT, "without", STITCH_DTYPE_I32, 0, NULL, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_STATE, "s", STITCH_DTYPE_BF16, 1, shape, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 2, shape, NULL, &err));
    CHECK_OK(stitch_task_use_reduced(t, 1, &err));
    stitch__buf_init(&b, NULL);
    stitch__worker_task_encode(t, &b);
    CHECK(!b.failed);
    CHECK_OK(stitch__worker_task_decode(ctx, b.data, b.len, &got, &err));
    CHECK_STR(stitch_task_name(got), "sent");
    CHECK_INT(stitch_interface_tensor_count(got->iface), 5);
    for (size_t i = 0; i < 5; i++) {
        stitch_tensor_info a = STITCH_TENSOR_INFO_INIT, c = STITCH_TENSOR_INFO_INIT;
        CHECK_INT(stitch_interface_tensor(t->iface, i, &a), 0);
        CHECK_INT(stitch_interface_tensor(got->iface, i, &c), 0);
        CHECK_STR(c.name, a.name);
        CHECK_INT(c.role, a.role);
        CHECK_INT(c.dtype, a.dtype);
        CHECK_INT(c.bytes, a.bytes);
        CHECK(memcmp(&got->tensors[i].dist, &t->tensors[i].dist, sizeof(stitch_dist)) == 0);
    }
    stitch_task_free(got);
    for (size_t len = 0; len < b.len; len++) {
        int rc = stitch__worker_task_decode(ctx, b.data, len, &got, &err);
        CHECK(rc != STITCH_OK && !got);
    }
    stitch_error_free(err);
    err = NULL;
    stitch__buf_free(&b);
    stitch_task_free(t);
    stitch_context_free(ctx);
}

/* Outputs of a run lie beside each other, and those of the next run behind them: no two at the same place. */
TEST(room_for_kept_outputs)
{
    static const char *const one[] = {"1"}, *const odd[] = {"257"}, *const huge[] = {"H"};
    stitch_context *ctx = NULL;
    stitch_task *t = NULL;
    static uint64_t at[STITCH__TASK_MAX_TENSORS];
    uint64_t bytes, end = 0;
    char name[20];

    CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    CHECK_OK(stitch_task_new(ctx, "kept", &t, &err));
    CHECK(stitch__kept_layout(t->iface, at) > 0); /* a run without outputs */
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, "a", STITCH_DTYPE_BOOL, 1, odd, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_STATE, "s", STITCH_DTYPE_F32, 1, odd, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, "b", STITCH_DTYPE_F32, 1, odd, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, "c", STITCH_DTYPE_BF16, 1, one, NULL, &err));
    bytes = stitch__kept_layout(t->iface, at);
    for (size_t i = 0; i < 4; i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        CHECK_INT(stitch_interface_tensor(t->iface, i, &info), 0);
        if (info.role != STITCH_TENSOR_OUTPUT)
            continue;
        CHECK(at[i] >= end && at[i] % 256 == 0);
        end = at[i] + info.bytes;
    }
    CHECK(bytes >= end && bytes % 256 == 0);
    /* The largest task there can be. */
    CHECK_OK(stitch_task_set_dim(t, "H", INT64_C(1) << 46, &err));
    for (int i = 4; i < STITCH__TASK_MAX_TENSORS; i++) {
        snprintf(name, sizeof(name), "h%d", i);
        CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, name, STITCH_DTYPE_BOOL, 1, huge, NULL, &err));
    }
    bytes = stitch__kept_layout(t->iface, at);
    CHECK(bytes > at[STITCH__TASK_MAX_TENSORS - 1] && bytes <= UINT64_MAX / STITCH__BLOCK);
    stitch_task_free(t);
    stitch_context_free(ctx);
}

/* ---- channel ----------------------------------------------------------------------------------------------------- */

static stitch__channel asker, server;

static void connect_both(void)
{
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    asker = (stitch__channel){.fd = pair[0], .keyed = true};
    server = (stitch__channel){.fd = pair[1], .server = true, .keyed = true};
    memset(asker.key, 1, sizeof(asker.key));
    memset(server.key, 1, sizeof(server.key));
}

static void close_both(void)
{
    stitch__channel_close(&asker);
    stitch__channel_close(&server);
}

static void send_text(stitch__channel *c, int op, const char *text, int memory)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__buf_puts(&b, text);
    CHECK_OK(stitch__channel_send(c, NULL, op, &b, memory, "testing", &err));
    stitch__buf_free(&b);
}

TEST(messages_and_descriptors)
{
    int op, memory, fd;

    connect_both();
    for (int i = 0; i < 3; i++) {
        CHECK_OK(stitch__memory_make(NULL, "test", 10, &fd, &err));
        send_text(&asker, STITCH__OP_WORKER_PROBE, "question", fd);
        close(fd);
        CHECK_OK(stitch__channel_receive(&server, NULL, &op, &memory, "testing", &err));
        CHECK_INT(op, STITCH__OP_WORKER_PROBE);
        CHECK(server.bytes == 8 && memcmp(server.payload, "question", 8) == 0);
        CHECK(memory >= 0 && (fcntl(memory, F_GETFD) & FD_CLOEXEC));
        close(memory);
        send_text(&server, STITCH__OP_WORKER_PROBE, "", -1);
        CHECK_OK(stitch__channel_receive(&asker, NULL, &op, NULL, "testing", &err));
        CHECK_INT(asker.bytes, 0);
    }
    close_both();
}

TEST(descriptors_for_the_verifier_are_dropped)
{
    int op, fd, before = count_descriptors();

    connect_both();
    asker.sequence = 1;
    server.sequence = 1;
    CHECK_OK(stitch__memory_make(NULL, "test", 10, &fd, &err));
    send_text(&server, STITCH__OP_WORKER_PING, "", fd);
    close(fd);
    CHECK_OK(stitch__channel_receive(&asker, NULL, &op, NULL, "testing", &err));
    close_both();
    CHECK_INT(count_descriptors(), before);
}

/* A message of the asker's, with more descriptors than one may bring. */
static void send_many(const int *fds, size_t count)
{
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    uint8_t message[STITCH__FRAME_BYTES];
    int pair[2], real = asker.fd;
    struct iovec part = {message, sizeof(message)};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes};

    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    asker.fd = pair[0];
    send_text(&asker, STITCH__OP_WORKER_PING, "", -1);
    asker.fd = real;
    CHECK_INT(recv(pair[1], message, sizeof(message), 0), sizeof(message));
    m.msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    CHECK_INT(sendmsg(real, &m, 0), sizeof(message));
    close(pair[0]);
    close(pair[1]);
}

/* One is kept, the others are closed: a worker's table of descriptors is not filled by whoever writes to it. */
TEST(more_descriptors_than_one)
{
    int op, memory, fds[4], before = count_descriptors();

    connect_both();
    for (int i = 0; i < 4; i++)
        CHECK_OK(stitch__memory_make(NULL, "test", 10, &fds[i], &err));
    send_many(fds, 4);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    CHECK_OK(stitch__channel_receive(&server, NULL, &op, &memory, "testing", &err));
    CHECK_INT(op, STITCH__OP_WORKER_PING);
    CHECK(memory >= 0);
    close(memory);
    close_both();
    CHECK_INT(count_descriptors(), before);
}

static void refuse_message(int code, const char *part)
{
    stitch__scope scope = stitch__scope_make(NULL, NULL, 50);
    int op;
    CHECK_ERR(stitch__channel_receive(&asker, &scope, &op, NULL, "testing", &err), code, part);
    CHECK_INT(op, STITCH__OP_NONE);
    close_both();
}

TEST(forged_messages)
{
    connect_both(); /* another key */
    server.key[0] ^= 1;
    server.sequence = asker.sequence = 1;
    send_text(&server, STITCH__OP_WORKER_PING, "", -1);
    refuse_message(STITCH_E_FORMAT, "not signed");

    connect_both(); /* a request played back as its own reply */
    asker.server = false;
    server.server = false;
    send_text(&server, STITCH__OP_WORKER_PING, "", -1);
    asker.sequence = 1;
    refuse_message(STITCH_E_FORMAT, "a request came instead of a reply");

    connect_both(); /* the reply to an earlier request */
    asker.sequence = 2;
    server.sequence = 1;
    send_text(&server, STITCH__OP_WORKER_PING, "", -1);
    refuse_message(STITCH_E_FORMAT, "message 1 came where 2 was due");

    connect_both();
    CHECK(send(server.fd, "GET / HTTP/1.0\r\n\r\n                                                        ", 70, 0) ==
          70);
    refuse_message(STITCH_E_FORMAT, "no message");

    connect_both(); /* half a header, and no more */
    CHECK(send(server.fd, "STW1", 4, 0) == 4);
    refuse_message(STITCH_E_TIMEOUT, "deadline");

    connect_both();
    close(server.fd);
    server.fd = -1;
    refuse_message(STITCH_E_IO, "closed");
}

/* ---- greeting ---------------------------------------------------------------------------------------------------- */

static CUresult CUDAAPI uuid_of(CUuuid *uuid, CUdevice device)
{
    memset(uuid->bytes, 0x5a, sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}

/* What a worker says of itself when it has started; `change` is what is not as it should be. */
static int greet(int change, bool simulated)
{
    stitch__driver driver = {.DeviceGetUuid = uuid_of};
    stitch__device dev = {.drv = &driver, .info = {.arch = "sm_90", .simulated = simulated}};
    stitch__worker w = {.dev = &dev, .path = (char *)(uintptr_t) "stitch-worker", .share = -1};
    stitch__reply r = {.op = STITCH__OP_WORKER_HELLO,
                       .protocol = STITCH__WORKER_PROTOCOL + (change == 1),
                       .version = change == 2 ? "0.0.0" : stitch_version_string(),
                       .arch = change == 3 ? "sm_91" : "sm_90",
                       .sandbox = "all\n"};
    stitch__scope scope = stitch__scope_make(NULL, NULL, 1000);
    stitch__buf b;
    int rc;

    connect_both();
    asker.sequence = server.sequence = 1;
    memset(r.uuid, 0x5a, sizeof(r.uuid));
    r.uuid[15] ^= change == 4;
    stitch__buf_init(&b, NULL);
    stitch__reply_encode(&r, NULL, &b);
    CHECK_OK(stitch__channel_send(&server, NULL, STITCH__OP_WORKER_HELLO, &b, -1, "testing", &err));
    stitch__buf_free(&b);
    w.channel = asker;
    rc = stitch__worker_greeted(&w, &scope, &err);
    CHECK(w.greeted == (rc == STITCH_OK));
    asker = w.channel;
    stitch_free(w.sandbox_text);
    close_both();
    return rc;
}

/* A worker of another build would be misunderstood, one on another device would be timed on that. */
TEST(a_worker_that_is_another_one)
{
    for (int simulated = 0; simulated < 2; simulated++) {
        CHECK_OK(greet(0, simulated));
        CHECK_ERR(greet(1, simulated), STITCH_E_UNSUPPORTED, "install both from one build");
        CHECK_ERR(greet(2, simulated), STITCH_E_UNSUPPORTED, "of version 0.0.0");
        CHECK_ERR(greet(3, simulated), STITCH_E_IO, "another device");
    }
    CHECK_ERR(greet(4, false), STITCH_E_IO, "another device");
    CHECK_OK(greet(4, true)); /* simulated ones have none that lasts */
}

static void refuse_request_message(const char *part)
{
    stitch__scope scope = stitch__scope_make(NULL, NULL, 50);
    int op, memory, before = count_descriptors();

    CHECK_ERR(stitch__channel_receive(&server, &scope, &op, &memory, "testing", &err), STITCH_E_FORMAT, part);
    CHECK(op == STITCH__OP_NONE && memory < 0);
    CHECK_INT(count_descriptors(), before); /* what came with it is gone */
    close_both();
}

/* Neither side takes what is not its turn; the worker waits for a greeting first, which has the key. */
TEST(requests_that_are_none)
{
    static const uint8_t none[STITCH__WORKER_KEY];
    int fd;

    CHECK_OK(stitch__memory_make(NULL, "test", 10, &fd, &err));
    connect_both(); /* one that it has had already, or one left out */
    server.sequence = 1;
    send_text(&asker, STITCH__OP_WORKER_PING, "", fd);
    refuse_request_message("message 1 came where 2 was due");
    connect_both();
    asker.sequence = 1;
    send_text(&asker, STITCH__OP_WORKER_PING, "", fd);
    refuse_request_message("message 2 came where 1 was due");
    connect_both();
    asker.key[5] ^= 1;
    send_text(&asker, STITCH__OP_WORKER_PING, "", fd);
    refuse_request_message("not signed");
    connect_both();
    server.keyed = false;
    send_text(&asker, STITCH__OP_WORKER_PING, "a ping that is long enough for a key, or even longer", fd);
    refuse_request_message("the first message is no greeting");
    connect_both();
    server.keyed = false;
    send_text(&asker, STITCH__OP_WORKER_HELLO, "too short for one", fd);
    refuse_request_message("the first message is no greeting");
    close(fd);
    CHECK(memcmp(asker.key, none, sizeof(none)) == 0); /* nor does it stay in memory */
}

TEST(every_changed_bit_is_noticed)
{
    uint8_t bytes[STITCH__FRAME_BYTES + 5];
    stitch__frame f = {.op = STITCH__OP_WORKER_PROBE, .bytes = 5, .sequence = 1};

    connect_both();
    stitch__frame_encode(&f, true, bytes);
    stitch__hmac_sha256(asker.key, bytes, STITCH__FRAME_BYTES, "hello", 5, f.mac);
    close_both();
    for (size_t bit = 0; bit <= 8 * sizeof(bytes); bit++) { /* the last one changes nothing */
        stitch__scope scope = stitch__scope_make(NULL, NULL, 20);
        int op;
        connect_both();
        asker.sequence = 1;
        stitch__frame_encode(&f, true, bytes);
        memcpy(bytes + STITCH__FRAME_BYTES, "hello", 5);
        if (bit < 8 * sizeof(bytes))
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(send(server.fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes));
        int rc = stitch__channel_receive(&asker, &scope, &op, NULL, "testing", NULL);
        CHECK(bit < 8 * sizeof(bytes) ? rc == STITCH_E_FORMAT || rc == STITCH_E_TIMEOUT : rc == STITCH_OK);
        close_both();
    }
}

TEST(sending_to_somebody_who_does_not_read)
{
    stitch__scope scope = stitch__scope_make(NULL, NULL, 50);
    stitch__buf b;
    int rc = STITCH_OK;

    connect_both();
    stitch__buf_init(&b, NULL);
    for (int i = 0; i < 100000; i++)
        stitch__buf_puts(&b, "0123456789");
    for (int i = 0; i < 100 && !rc; i++)
        rc = stitch__channel_send(&asker, &scope, STITCH__OP_WORKER_PROBE, &b, -1, "testing", &err);
    CHECK_ERR(rc, STITCH_E_TIMEOUT, "deadline");
    stitch__buf_puts(&b, "0123456789012345678901234567890123456789012345678901234567890123456789");
    for (int i = 0; i < 5000; i++)
        stitch__buf_puts(&b, "0123456789");
    CHECK_ERR(stitch__channel_send(&asker, &scope, STITCH__OP_WORKER_PROBE, &b, -1, "testing", &err), STITCH_E_LIMIT,
              "the limit is");
    stitch__buf_free(&b);
    close_both();
}

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

TEST(memory_files_keep_their_size)
{
    void *ptr = NULL;
    int fd;

    CHECK_OK(stitch__memory_make(NULL, "test", 8192, &fd, &err));
    CHECK(ftruncate(fd, 0) != 0);
    CHECK(ftruncate(fd, 10000) != 0);
    CHECK_OK(stitch__memory_map(NULL, fd, 8192, true, "test", &ptr, &err));
    memset(ptr, 7, 8192);
    stitch__memory_unmap(ptr, 8192);
    CHECK_ERR(stitch__memory_map(NULL, fd, 8191, true, "test", &ptr, &err), STITCH_E_FORMAT, "8192 came");
    CHECK_ERR(stitch__memory_map(NULL, fd, 8192, false, "test", &ptr, &err), STITCH_E_FORMAT, "no sealed");
    CHECK_OK(stitch__memory_write(NULL, fd, 100, "data", 4, "test", &err));
    CHECK_OK(stitch__memory_freeze(NULL, fd, "test", &err));
    CHECK(pwrite(fd, "x", 1, 0) < 0);
    CHECK_OK(stitch__memory_map(NULL, fd, 8192, false, "test", &ptr, &err));
    CHECK(memcmp((char *)ptr + 99, "\7data\7", 6) == 0);
    stitch__memory_unmap(ptr, 8192);
    close(fd);

    fd = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(ftruncate(fd, 4096) == 0);
    CHECK_ERR(stitch__memory_map(NULL, fd, 4096, true, "test", &ptr, &err), STITCH_E_FORMAT, "no sealed");
    close(fd);
    CHECK_ERR(stitch__memory_map(NULL, -1, 4096, true, "test", &ptr, &err), STITCH_E_FORMAT, "no sealed");
    CHECK_ERR(stitch__memory_make(NULL, "test", UINT64_MAX, &fd, &err), STITCH_E_LIMIT, "shared memory");
}

/* ---- environment ------------------------------------------------------------------------------------------------- */

TEST(environment_has_no_secrets)
{
    static const char *const from[] = {"PATH=/bin",
                                       "HOME=/home/me",
                                       "OPENAI_API_KEY=sk-1",
                                       "CUDA_HOME=/cuda",
                                       "CUDA_API_KEY=sk-2",
                                       "STITCH_NVRTC=/a",
                                       "NVIDIA_TOKEN=3",
                                       "CUDA_SECRET=4",
                                       "CUBLAS_PASSPHRASE=5",
                                       "NVIDIA_AUTHORIZATION=6",
                                       "CUDA_CREDENTIALS=7",
                                       "LD_PRELOAD=/x.so",
                                       "CUDA_VISIBLE_DEVICES=1",
                                       "ODD",
                                       "=odd",
                                       "CUDA_CACHE_DISABLE=0",
                                       NULL};
    static const char *const extra[] = {"STITCH_NVRTC=/b", "CUDA_VISIBLE_DEVICES=GPU-0", NULL};
    static const char *const want[] = {"PATH=/bin", "CUDA_HOME=/cuda", "STITCH_NVRTC=/b", "CUDA_VISIBLE_DEVICES=GPU-0",
                                       "CUDA_CACHE_DISABLE=1"};
    stitch__arena arena = {0};
    char **got = stitch__worker_environment(&arena, (char *const *)(uintptr_t)from, (char *const *)(uintptr_t)extra);

    CHECK(got);
    for (size_t i = 0; i < STITCH__COUNT(want); i++)
        CHECK_STR(got[i], want[i]);
    CHECK(!got[STITCH__COUNT(want)]);
    got = stitch__worker_environment(&arena, NULL, NULL);
    CHECK(got && got[0] && !got[1]);
    stitch__arena_free(&arena);
}

TEST_MAIN(RUN(hmac_of_rfc_4231), RUN(numbers_and_texts), RUN(texts_from_strangers), RUN(sources_arrive_as_sent),
          RUN(requests_arrive_as_sent), RUN(requests_out_of_range), RUN(replies_arrive_as_sent),
          RUN(failures_arrive_as_sent), RUN(replies_out_of_range), RUN(tasks_arrive_as_sent),
          RUN(room_for_kept_outputs), RUN(messages_and_descriptors), RUN(descriptors_for_the_verifier_are_dropped),
          RUN(more_descriptors_than_one), RUN(forged_messages), RUN(requests_that_are_none),
          RUN(a_worker_that_is_another_one), RUN(every_changed_bit_is_noticed),
          RUN(sending_to_somebody_who_does_not_read), RUN(memory_files_keep_their_size),
          RUN(environment_has_no_secrets))

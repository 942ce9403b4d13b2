/* SPDX-License-Identifier: MIT
 *
 * The worker's side of a session, called as its process calls it: what it refuses, and what becomes of memory of the
 * verifier's from one program to the next. On a simulated device; memory that two processes map there is none, so the
 * linker puts the __wrap_ functions below in the place of those that map and clear it. Needs NVRTC.
 */
#include <unistd.h>

#include "check.h"
#include "cuda/guards.h"
#include "worker/serve.h"

enum { N = 32, BYTES = N * 4, X = 0, Y = 1 };

static stitch_context *ctx;
static stitch_error *err;
static stitch__server server;
static int imported, renewed;
static CUdeviceptr last_renewed;
static int renew_status; /* of clearing memory that an earlier program had */

/* ---- memory of the verifier's ------------------------------------------------------------------------------------ */

int __wrap_stitch__guards_import(stitch__device *dev, int fd, size_t bytes, const char *name, CUdeviceptr wanted,
                                 CUdeviceptr *out, stitch_error **e);
int __wrap_stitch__guards_renew(stitch__device *dev, CUdeviceptr ptr, const char *name, stitch_error **e);
int __wrap_stitch__guards_check(stitch__device *dev, bool whole, stitch__buf *found, stitch_error **e);

int __wrap_stitch__guards_import(stitch__device *dev, int fd, size_t bytes, const char *name, CUdeviceptr wanted,
                                 CUdeviceptr *out, stitch_error **e)
{
    imported++;
    return stitch__mem_alloc(dev, bytes, name, out, e);
}

int __wrap_stitch__guards_renew(stitch__device *dev, CUdeviceptr ptr, const char *name, stitch_error **e)
{
    renewed++;
    last_renewed = ptr;
    return renew_status ? stitch__err(ctx, e, renew_status, "it could not be cleared") : STITCH_OK;
}

static const char *around = ""; /* what is found around the program's memory */
static bool looked_at_all;      /* of it, and not only at what is near */

int __wrap_stitch__guards_check(stitch__device *dev, bool whole, stitch__buf *found, stitch_error **e)
{
    stitch__buf_puts(found, around);
    looked_at_all = whole;
    return STITCH_OK;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* As the process answers one; the program's failure counts, too. Takes `memory`. */
static int ask(const stitch__request *q, int memory)
{
    stitch__exchange x = {.q = q, .memory = memory};
    int rc;

    stitch__buf_init(&x.text, ctx);
    rc = stitch__serve_program(&server, &x);
    stitch_error_free(err);
    err = rc ? x.err : x.why;
    stitch_error_free(rc ? x.why : x.err);
    stitch_free(x.hashes);
    stitch__buf_free(&x.text);
    if (memory >= 0)
        close(memory);
    return rc ? rc : x.code;
}

/* A request that fails like that, whatever came with it. */
#define REFUSED(q, code, part)                                                                                         \
    do {                                                                                                               \
        const stitch__request refused = q;                                                                             \
        CHECK_ERR(ask(&refused, -1), code, part);                                                                      \
    } while (0)
#define Q(...) ((stitch__request){__VA_ARGS__})

static int some_memory(void)
{
    int memory = -1;
    CHECK_OK(stitch__memory_make(ctx, "memory", BYTES, &memory, &err));
    return memory;
}

static void open_program(void)
{
    static const char *const shape[] = {"N"};
    static const char plan[] =
        "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[1],\"block\":[32],\"args\":[\"x\",\"y\"]}]}";
    stitch__request q = {.op = STITCH__OP_WORKER_OPEN};
    stitch_program *program = NULL;
    stitch_task *task = NULL;
    stitch__buf b;
    void *file = NULL;
    size_t size = 0;
    int memory = -1;

    CHECK_OK(stitch_task_new(ctx, "serve", &task, &err));
    CHECK_OK(stitch_task_set_dim(task, "N", N, &err));
    CHECK_OK(stitch_task_add_tensor(task, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(task, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_program_parse(ctx,
                                  "__global__ void k(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }",
                                  plan, NULL, &program, &err));
    CHECK_OK(stitch_program_save_memory(program, &file, &size, &err));
    stitch__buf_init(&b, ctx);
    stitch__worker_task_encode(task, &b);
    q.task_bytes = b.len;
    q.program_bytes = size;
    CHECK_OK(stitch__memory_make(ctx, "the program", b.len + size, &memory, &err));
    CHECK_OK(stitch__memory_write(ctx, memory, 0, b.data, b.len, "the program", &err));
    CHECK_OK(stitch__memory_write(ctx, memory, b.len, file, size, "the program", &err));
    CHECK_OK(stitch__memory_freeze(ctx, memory, "the program", &err));
    CHECK_OK(ask(&q, memory));
    stitch__buf_free(&b);
    stitch_free(file);
    stitch_program_free(program);
    stitch_task_free(task);
}

static void open_server(void)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;

    options.device = "sim:sm_90";
    options.cache_dir = "";
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
    server = (stitch__server){.ctx = ctx};
    CHECK_OK(stitch__device_get(ctx, &server.dev, &err));
    CHECK_OK(stitch__device_enter(server.dev, &err));
    CHECK_INT(server.dev->drv->StreamCreate(&server.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    imported = renewed = renew_status = 0;
}

static void close_server(void)
{
    stitch__serve_close_program(&server, false);
    CHECK(!server.buffers && !server.buffer_count);
    server.dev->drv->StreamDestroy(server.stream);
    stitch__device_leave(server.dev);
    stitch_context_free(ctx);
    ctx = NULL;
}

/* With `share` bytes to fetch outputs through. */
static void start_program(uint64_t share)
{
    const stitch__request start = {.op = STITCH__OP_WORKER_START, .share_bytes = share},
                          weights = {.op = STITCH__OP_WORKER_FILL_WEIGHTS, .seed = 1},
                          inputs = {.op = STITCH__OP_WORKER_FILL_INPUTS, .seed = 2},
                          load = {.op = STITCH__OP_WORKER_LOAD, .load = {-1}},
                          prepare = {.op = STITCH__OP_WORKER_PREPARE};
    int memory = -1, rc;

    if (share)
        CHECK_OK(stitch__memory_make(ctx, "outputs", share, &memory, &err));
    CHECK_OK(ask(&start, memory));
    CHECK_OK(ask(&weights, -1));
    CHECK_OK(ask(&inputs, -1));
    rc = ask(&load, -1);
    if (rc == STITCH_E_NO_LIBRARY) {
        close_server();
        SKIP("there is no NVRTC");
    }
    CHECK_OK(rc);
    CHECK_OK(ask(&prepare, -1));
}

static stitch__request place(uint64_t tensor, int set, uint32_t buffer)
{
    return Q(.op = STITCH__OP_WORKER_PLACE, .tensor = tensor, .bytes = BYTES, .set = set, .buffer = buffer);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* What a program left in memory of the verifier's, the next one does not find: it might be the answer. */
TEST(memory_is_cleared_between_programs)
{
    const stitch__request first = place(Y, 0, 0), second = place(Y, 1, 1),
                          close_it = {.op = STITCH__OP_WORKER_CLOSE, .keep_buffers = true};
    CUdeviceptr at;

    open_server();
    open_program();
    CHECK_OK(ask(&first, some_memory()));
    CHECK_OK(ask(&second, some_memory()));
    CHECK(imported == 2 && renewed == 0); /* new memory is clear */
    CHECK(server.buffers[0].ptr && server.buffers[1].ptr && server.buffers[0].ptr != server.buffers[1].ptr);
    start_program(0);
    CHECK(stitch__runner_set(server.runner, 0)[Y] == server.buffers[0].ptr);
    CHECK(stitch__runner_set(server.runner, 1)[Y] == server.buffers[1].ptr);
    CHECK_OK(ask(&close_it, -1));
    at = server.buffers[0].ptr;
    open_program();
    CHECK(server.buffers[0].ptr == at);
    renew_status = STITCH_E_DRIVER;
    REFUSED(first, STITCH_E_DRIVER, "could not be cleared");
    CHECK(!server.places[0][Y] && !server.buffers[0].used);
    renew_status = STITCH_OK;
    CHECK_OK(ask(&first, -1));
    CHECK(imported == 2 && renewed == 2 && last_renewed == at);
    CHECK(server.places[0][Y] == at);
    REFUSED(place(Y, 1, 0), STITCH_E_INVALID, "buffer 0 for y is in use"); /* two places in one */
    CHECK_OK(ask(&second, -1));
    CHECK_INT(renewed, 3);
    close_server();
}

TEST(memory_that_there_is_not)
{
    const stitch__request first = place(Y, 0, 3);
    stitch__request q;

    open_server();
    REFUSED(first, STITCH_E_INVALID, "there is no tensor 1");
    open_program();
    REFUSED(first, STITCH_E_INVALID, "or there is none");
    REFUSED(place(2, 0, 0), STITCH_E_INVALID, "there is no tensor 2");
    REFUSED(place(UINT64_MAX, 0, 0), STITCH_E_INVALID, "there is no tensor");
    q = first;
    q.bytes--;
    CHECK_ERR(ask(&q, some_memory()), STITCH_E_INVALID, "no output or input of 127 bytes");
    CHECK_OK(ask(&first, some_memory()));
    q = place(X, 0, 3);
    CHECK_ERR(ask(&q, some_memory()), STITCH_E_INVALID, "is in use"); /* a number that is taken */
    q = place(Y, 0, 4);
    CHECK_ERR(ask(&q, some_memory()), STITCH_E_STATE, "there is memory for y already");
    CHECK_INT(imported, 1);
    start_program(0);
    q = place(X, 0, 5);
    CHECK_ERR(ask(&q, some_memory()), STITCH_E_INVALID, "comes too late");
    CHECK_INT(imported, 1);
    close_server();
}

/* Room for the outputs of several runs is memory of its own size. */
TEST(room_that_does_not_fit)
{
    stitch__request keep = {.op = STITCH__OP_WORKER_KEEP, .kept = 2, .bytes = 1};
    stitch__request block = {.op = STITCH__OP_WORKER_RUN_BLOCK, .block = {.count = 3}};

    open_server();
    REFUSED(keep, STITCH_E_STATE, "no program has been started");
    open_program();
    start_program(0);
    for (uint32_t k = 0; k < 3; k++)
        block.block.runs[k] = (stitch__block_run){.run = STITCH__RUN_INIT, .does = STITCH__RUN_KEPT};
    REFUSED(block, STITCH_E_STATE, "there is room for the outputs of 0 runs, not of 3");
    REFUSED(keep, STITCH_E_INVALID, "the outputs of 2 runs take ");
    REFUSED(block, STITCH_E_STATE, "there is room for the outputs of 0 runs, not of 3");
    keep.bytes = 0; /* memory of its own */
    CHECK_OK(ask(&keep, -1));
    CHECK_INT(imported, 0);
    REFUSED(block, STITCH_E_STATE, "there is room for the outputs of 2 runs, not of 3");
    block.block.count = 2;
    CHECK_OK(ask(&block, -1));
    keep.bytes = server.kept_bytes * 2;
    CHECK_OK(ask(&keep, some_memory()));
    CHECK_INT(imported, 1);
    CHECK_OK(ask(&block, -1));
    close_server();
}

/* Nothing but outputs and states can be fetched, whole or in parts, into the memory that is there for it. */
TEST(bytes_that_there_are_not)
{
    static const struct {
        uint64_t offset, bytes, at;
        int set;
        uint64_t tensor;
        int rc;
    } rows[] = {
        {0, BYTES, 0, 0, Y, 0},
        {BYTES - 1, 1, BYTES - 1, 1, Y, 0},
        {BYTES, 0, BYTES, 0, Y, 0},
        {0, BYTES + 1, 0, 0, Y, STITCH_E_INVALID},
        {1, BYTES, 0, 0, Y, STITCH_E_INVALID},
        {BYTES + 1, 0, 0, 0, Y, STITCH_E_INVALID},
        {UINT64_MAX, 2, 0, 0, Y, STITCH_E_INVALID},
        {0, 1, BYTES, 0, Y, STITCH_E_INVALID},
        {0, 0, BYTES + 1, 0, Y, STITCH_E_INVALID},
        {0, 2, UINT64_MAX, 0, Y, STITCH_E_INVALID},
        {0, BYTES, 0, 0, X, STITCH_E_INVALID},
        {0, BYTES, 0, 0, 2, STITCH_E_INVALID},
        {0, BYTES, 0, STITCH__SETS, Y, STITCH_E_STATE},
    };

    open_server();
    open_program();
    start_program(BYTES);
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        const stitch__request q = {.op = STITCH__OP_WORKER_FETCH,
                                   .offset = rows[i].offset,
                                   .bytes = rows[i].bytes,
                                   .at = rows[i].at,
                                   .set = rows[i].set,
                                   .tensor = rows[i].tensor};
        int rc = ask(&q, -1);
        if (rc != rows[i].rc)
            FAIL("row %zu: %s (%s)", i, stitch_status_name(rc), stitch_error_message(err));
    }
    stitch_error_free(err);
    err = NULL;
    close_server();
}

/* What is written there is the program's doing. Where inputs never change, an answer could be kept far away. */
TEST(what_is_around_its_memory)
{
    static const float x[N] = {1};
    const stitch__request look = {.op = STITCH__OP_WORKER_INSPECT},
                          data = {.op = STITCH__OP_WORKER_DATA, .tensor = X, .bytes = BYTES};

    open_server();
    for (int fixed = 0; fixed < 2; fixed++) {
        open_program();
        if (fixed) {
            int memory = some_memory();
            CHECK_OK(stitch__memory_write(ctx, memory, 0, x, sizeof(x), "x", &err));
            CHECK_OK(stitch__memory_freeze(ctx, memory, "x", &err));
            CHECK_OK(ask(&data, memory));
        }
        start_program(0);
        around = "";
        CHECK_OK(ask(&look, -1));
        CHECK(looked_at_all == fixed);
        around = "y: 4 bytes behind it were written";
        REFUSED(look, STITCH_E_VALIDATE, "wrote outside of its buffers: y: 4 bytes behind it");
    }
    close_server();
}

TEST(requests_out_of_turn)
{
    static const int need_program[] = {
        STITCH__OP_WORKER_LOAD,  STITCH__OP_WORKER_PREPARE,   STITCH__OP_WORKER_FILL_INPUTS, STITCH__OP_WORKER_HASH,
        STITCH__OP_WORKER_RUN,   STITCH__OP_WORKER_TIMED_RUN, STITCH__OP_WORKER_RUN_BLOCK,   STITCH__OP_WORKER_PROFILE,
        STITCH__OP_WORKER_FETCH, STITCH__OP_WORKER_INSPECT};
    stitch__request data = {.op = STITCH__OP_WORKER_DATA, .tensor = X, .bytes = BYTES};
    char metrics[2 * STITCH__FACTS_EXTRA + 3] = "";
    int memory;

    open_server();
    for (int started = 0; started < 2; started++) {
        for (size_t i = 0; i < STITCH__COUNT(need_program); i++)
            REFUSED(Q(.op = need_program[i], .block = {.count = 1}), STITCH_E_STATE, "no program has been started");
        if (!started) {
            REFUSED(Q(.op = STITCH__OP_WORKER_START), STITCH_E_STATE, "there is no program to start");
            open_program();
        }
    }
    memory = some_memory();
    CHECK_OK(stitch__memory_freeze(ctx, memory, "x", &err));
    CHECK_OK(ask(&data, memory));
    start_program(0);
    REFUSED(Q(.op = STITCH__OP_WORKER_START), STITCH_E_STATE, "or it has been started");
    memory = some_memory();
    CHECK_OK(stitch__memory_freeze(ctx, memory, "x", &err));
    CHECK_ERR(ask(&data, memory), STITCH_E_STATE, "data of x comes too late");
    for (int i = 0; i <= STITCH__FACTS_EXTRA; i++)
        memcpy(metrics + 2 * i, "m,", 2);
    REFUSED(Q(.op = STITCH__OP_WORKER_PROFILE, .run = STITCH__RUN_INIT, .text = metrics), STITCH_E_LIMIT,
            "metrics were asked for");
    REFUSED(Q(.op = STITCH__OP_WORKER_CODE), STITCH_E_UNSUPPORTED, "is not known");
    close_server();
}

TEST_MAIN(RUN(memory_is_cleared_between_programs), RUN(memory_that_there_is_not), RUN(room_that_does_not_fit),
          RUN(bytes_that_there_are_not), RUN(what_is_around_its_memory), RUN(requests_out_of_turn))

/* SPDX-License-Identifier: MIT
 *
 * Device memory that a worker shares with its verifier, or borrows of another one: which of it serves which program,
 * and what becomes of it when either closes its program or is lost. There is no device here, only a driver that
 * exports, and no process that answers: the linker puts the __wrap_ functions below in the place of the library's.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "descriptors.h"
#include "worker/client.h"

static stitch_error *err;
static stitch__driver driver; /* what a test does not expect to be called is NULL */
static stitch__device dev;

enum { PID = 4711, BYTES = 256, AT = 1 << 22, MADE = 77 };

static CUresult CUDAAPI export_memory(void *handle, CUmemGenericAllocationHandle memory, CUmemAllocationHandleType type,
                                      unsigned long long flags)
{
    int *fd = handle;

    CHECK(memory == 1 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !flags);
    *fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return *fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult CUDAAPI push(CUcontext context)
{
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI pop(CUcontext *context)
{
    return CUDA_SUCCESS;
}

int __real_stitch__worker_call(stitch__worker *w, const stitch__scope *scope, const stitch__request *q, int memory,
                               const stitch__blame *blame, stitch__reply *reply, stitch_error **e);
int __wrap_stitch__worker_call(stitch__worker *w, const stitch__scope *scope, const stitch__request *q, int memory,
                               const stitch__blame *blame, stitch__reply *reply, stitch_error **e);
bool __wrap_stitch__export_make(stitch__device *d, size_t bytes, CUstream stream, stitch__export *out);

static stitch__request asked; /* the last request */
static int made, sent;        /* buffers, and descriptors that came with requests */
static int call_status;       /* what a request ends with */
static bool loses;            /* and the worker with it */

int __wrap_stitch__worker_call(stitch__worker *w, const stitch__scope *scope, const stitch__request *q, int memory,
                               const stitch__blame *blame, stitch__reply *reply, stitch_error **e)
{
    if (w->lost)
        return __real_stitch__worker_call(w, scope, q, memory, blame, reply, e);
    asked = *q;
    sent += memory >= 0;
    w->lost = loses;
    return call_status ? stitch__err(NULL, e, call_status, "trouble with a worker") : STITCH_OK;
}

bool __wrap_stitch__export_make(stitch__device *d, size_t bytes, CUstream stream, stitch__export *out)
{
    CUdeviceptr at = (CUdeviceptr)(++made) << 24;

    *out = (stitch__export){.ptr = at + 512,
                            .fd = open("/dev/null", O_RDONLY | O_CLOEXEC),
                            .reserved = at,
                            .mapped_bytes = 2 << 20,
                            .handle = 1};
    return out->fd >= 0;
}

static int freed; /* buffers */

static CUresult CUDAAPI free_memory(CUmemGenericAllocationHandle memory)
{
    freed++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI free_addresses(CUdeviceptr at, size_t bytes)
{
    return CUDA_SUCCESS;
}

static stitch__worker worker(int pid, stitch__buffer *b)
{
    stitch__worker w = {.dev = &dev, .buffers = b, .buffer_count = b ? 1 : 0, .buffer_cap = b ? 1 : 0};

    driver.MemExportToShareableHandle = export_memory;
    driver.MemRelease = free_memory;
    driver.MemAddressFree = free_addresses;
    driver.CtxPushCurrent = push;
    driver.CtxPopCurrent = pop;
    dev.drv = &driver;
    dev.info.memory_bytes = UINT64_C(64) << 30;
    w.process.pid = pid;
    w.share = -1;
    return w;
}

static stitch__buffer lent(uint64_t mapped_bytes)
{
    return (stitch__buffer){
        .memory = {.ptr = AT, .fd = -1, .reserved = AT / 2, .mapped_bytes = mapped_bytes, .handle = 1},
        .bytes = BYTES,
        .used = true,
        .made = MADE};
}

/* However much it is: to let it go would leave the other one's addresses to whatever comes there next. */
TEST(what_is_lent_is_kept)
{
    stitch__buffer b = lent(UINT64_C(1) << 30);
    stitch__worker w = worker(PID, &b);

    CHECK(!stitch__buffers_spare(&w));
    w.lends = true;
    CHECK(stitch__buffers_spare(&w));
    w.buffers_unsure = true; /* the process may have other numbers for them */
    CHECK(!stitch__buffers_spare(&w));
}

TEST(a_worker_that_is_lost_borrows_nothing)
{
    stitch__buffer b = lent(2 << 20);
    stitch__worker lender = worker(PID, &b), w = worker(PID + 1, NULL);
    stitch__request q = {.op = STITCH__OP_WORKER_PLACE, .bytes = BYTES};
    CUdeviceptr out = 1;
    int before = count_descriptors();

    w.lost = true;
    CHECK_ERR(stitch__buffer_borrow(&w, NULL, &lender, AT, &q, &out, &err), STITCH_E_STATE, "no worker any more");
    CHECK(!out && lender.lends && w.buffers_unsure);
    CHECK_INT(w.buffer_count, 1);
    CHECK(q.wanted == AT / 2);
    CHECK_INT(count_descriptors(), before);
    CHECK(stitch__worker_stands(&w, &lender));
    stitch__buffers_release(&w, false); /* and unmaps nothing: it is the lender's */
    CHECK_INT(w.buffer_count, 0);
    CHECK(b.memory.ptr == AT && b.memory.handle == 1);
}

TEST(there_is_nothing_to_borrow)
{
    stitch__buffer b = lent(2 << 20);
    stitch__worker lender = worker(PID, &b), w = worker(PID + 1, NULL);
    stitch__request q = {.op = STITCH__OP_WORKER_PLACE, .bytes = BYTES};
    CUdeviceptr out = 1;

    CHECK_ERR(stitch__buffer_borrow(&w, NULL, &lender, AT + 1, &q, &out, &err), STITCH_E_UNSUPPORTED, "no memory");
    q.bytes = BYTES + 1;
    CHECK_ERR(stitch__buffer_borrow(&w, NULL, &lender, AT, &q, &out, &err), STITCH_E_UNSUPPORTED, "no memory");
    q.bytes = BYTES;
    b.lender = PID + 2; /* which may take it back */
    CHECK_ERR(stitch__buffer_borrow(&w, NULL, &lender, AT, &q, &out, &err), STITCH_E_UNSUPPORTED, "no memory");
    CHECK(!out && !lender.lends && !w.buffer_count);
}

TEST(whether_it_is_still_there)
{
    stitch__buffer theirs = lent(2 << 20), ours = theirs;
    stitch__worker lender = worker(PID, &theirs), w = worker(PID + 1, &ours);

    ours.lender = PID;
    CHECK(stitch__worker_stands(&w, &lender));
    theirs.made++; /* other memory at the same address */
    CHECK(!stitch__worker_stands(&w, &lender));
    ours.used = false; /* of an earlier program */
    CHECK(stitch__worker_stands(&w, &lender));
    ours.used = true;
    theirs = lent(2 << 20);
    theirs.memory.ptr++;
    CHECK(!stitch__worker_stands(&w, &lender));
    theirs.memory.ptr--;
    lender.process.pid++; /* another worker in its place */
    CHECK(!stitch__worker_stands(&w, &lender));
    lender.process.pid--;
    CHECK(stitch__worker_stands(&w, &lender));
    lender.buffer_count = 0;
    CHECK(!stitch__worker_stands(&w, &lender));
}

/* It was told to keep what it had, so that is what is known here, too: else the next program's memory would get numbers
 * that its process has given away. */
TEST(what_one_that_idles_has)
{
    stitch__buffer b = lent(2 << 20);
    stitch__worker lender = worker(PID, NULL), other = worker(PID + 2, NULL), w = worker(PID + 1, &b);

    b.used = false;
    CHECK(!stitch__buffers_foreign(&w, NULL));
    b.lender = PID;
    CHECK(!stitch__buffers_foreign(&w, &lender));
    CHECK(stitch__buffers_foreign(&w, &other) && stitch__buffers_foreign(&w, NULL));
    stitch__worker_close(&w);
    CHECK_INT(w.buffer_count, 1);
    CHECK(b.memory.ptr == AT);
}

/* Which buffer a program gets for so many bytes. */
static uint32_t share(stitch__worker *w, uint64_t bytes)
{
    stitch__request q = {.op = STITCH__OP_WORKER_PLACE, .bytes = bytes};
    CUdeviceptr out = 0;

    CHECK_OK(stitch__buffer_share(w, NULL, &q, &out, &err));
    CHECK(asked.buffer < w->buffer_count && out == w->buffers[asked.buffer].memory.ptr);
    CHECK(asked.wanted && asked.wanted == w->buffers[asked.buffer].memory.reserved);
    CHECK(w->buffers[asked.buffer].used && w->buffers[asked.buffer].bytes == bytes);
    CHECK(w->buffers[asked.buffer].memory.fd < 0);
    return asked.buffer;
}

/* A program finds memory of its own; what is free again serves the next one, if it is of the size that it needs. */
TEST(one_program_after_another)
{
    stitch__worker w = worker(PID, NULL);
    int before = count_descriptors();

    made = sent = call_status = 0;
    CHECK_INT(share(&w, 256), 0);
    CHECK_INT(share(&w, 256), 1);
    CHECK_INT(share(&w, 512), 2);
    CHECK(made == 3 && sent == 3);
    stitch__buffers_release(&w, true);
    CHECK_INT(share(&w, 512), 2);
    CHECK(share(&w, 256) + share(&w, 256) == 0 + 1);
    CHECK(made == 3 && sent == 3); /* its process has them */
    CHECK_INT(share(&w, 256), 3);
    CHECK_INT(share(&w, 512), 4);
    stitch__buffers_release(&w, true);
    w.buffers[1].lender = PID + 1; /* which may have gone with what it lent */
    CHECK(share(&w, 256) != 1 && share(&w, 256) != 1 && share(&w, 256) != 1);
    CHECK(made == 6 && sent == 6);
    call_status = STITCH_E_DRIVER;
    stitch__request q = {.op = STITCH__OP_WORKER_PLACE, .bytes = 1024};
    CUdeviceptr out = 1;
    CHECK_ERR(stitch__buffer_share(&w, NULL, &q, &out, &err), STITCH_E_DRIVER, "trouble");
    CHECK(!out && w.buffers_unsure && !stitch__buffers_spare(&w));
    CHECK_INT(count_descriptors(), before);
    freed = 0;
    stitch__buffers_release(&w, false);
    CHECK(!w.buffers_unsure && !w.buffer_count);
    CHECK_INT(freed, made - 1); /* but for what was made to be another one's */
}

TEST(no_more_of_it)
{
    stitch__worker w = worker(PID, NULL);
    stitch__request q = {.op = STITCH__OP_WORKER_PLACE, .bytes = BYTES};
    CUdeviceptr out = 1;
    int before = count_descriptors();

    made = sent = freed = call_status = 0;
    for (uint32_t i = 0; i < STITCH__WORKER_BUFFERS; i++)
        CHECK_INT(share(&w, BYTES), i);
    CHECK_ERR(stitch__buffer_share(&w, NULL, &q, &out, &err), STITCH_E_UNSUPPORTED, "no more memory");
    CHECK(!out && w.buffer_count == STITCH__WORKER_BUFFERS && sent == STITCH__WORKER_BUFFERS);
    CHECK_INT(freed, 1);                              /* which there was no number for */
    w.buffers[7].memory = (stitch__export){.fd = -1}; /* a number that is free */
    CHECK_INT(share(&w, BYTES), 7);
    stitch__buffers_release(&w, false);
    CHECK_INT(freed, 1 + STITCH__WORKER_BUFFERS);
    CHECK_INT(count_descriptors(), before);
}

/* What has been borrowed before is borrowed again while it is the very same memory. */
TEST(borrowed_once_more)
{
    stitch__buffer b = lent(2 << 20);
    stitch__worker lender = worker(PID, &b), w = worker(PID + 1, NULL);
    stitch__request q = {.op = STITCH__OP_WORKER_PLACE, .bytes = BYTES};
    CUdeviceptr out;
    int before = count_descriptors();

    made = sent = call_status = 0;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(stitch__buffer_borrow(&w, NULL, &lender, AT, &q, &out, &err));
        CHECK(out == AT && asked.buffer == 0 && sent == 1 && w.buffers[0].used);
        CHECK(stitch__worker_stands(&w, &lender));
        stitch__buffers_release(&w, true);
    }
    b.made++; /* other memory at the same address */
    CHECK_OK(stitch__buffer_borrow(&w, NULL, &lender, AT, &q, &out, &err));
    CHECK(asked.buffer == 1 && sent == 2);
    CHECK_OK(stitch__buffer_borrow(&w, NULL, &lender, AT, &q, &out, &err)); /* the first one is in use */
    CHECK(asked.buffer == 2 && sent == 3);
    CHECK(made == 0 && stitch__worker_stands(&w, &lender));
    stitch__buffers_release(&w, true);
    lender.process.pid = PID + 5; /* another worker with memory of the same age */
    CHECK_OK(stitch__buffer_borrow(&w, NULL, &lender, AT, &q, &out, &err));
    CHECK(asked.buffer == 3 && sent == 4);
    CHECK_INT(count_descriptors(), before);
    stitch__buffers_release(&w, false);
}

/* Of what idles there is not much, however large the device is, and nothing that somebody else may have taken back. */
TEST(what_may_idle)
{
    stitch__buffer b = lent(128 << 20);
    stitch__worker w = worker(PID, &b);

    CHECK(stitch__buffers_spare(&w));
    b.memory.mapped_bytes++;
    CHECK(!stitch__buffers_spare(&w));
    b = lent(128 << 20);
    dev.info.memory_bytes = UINT64_C(16) << 30;
    CHECK(!stitch__buffers_spare(&w));
    b = lent(64 << 20);
    CHECK(stitch__buffers_spare(&w));
    b.lender = PID + 1;
    CHECK(stitch__buffers_spare(&w));
    b.used = false;
    CHECK(!stitch__buffers_spare(&w));
}

/* What one side writes in a set must not be what the other one finds in the same set. */
TEST(never_the_same_place_at_the_same_time)
{
    CUdeviceptr ours[2][3] = {{0, 10, 20}, {0, 11, 21}}, theirs[2][3] = {{0, 11, 21}, {0, 10, 20}};
    stitch__worker w = worker(PID, NULL), other = worker(PID + 1, NULL);

    w.count = other.count = 3;
    for (int set = 0; set < 2; set++) {
        w.places[set] = ours[set];
        other.places[set] = theirs[set];
    }
    CHECK(stitch__worker_apart(&w, &other)); /* crosswise; 0 is no place */
    theirs[1][2] = 21;
    CHECK(!stitch__worker_apart(&w, &other));
    other.places[1] = NULL;
    CHECK(stitch__worker_apart(&w, &other));
    theirs[0][1] = 10;
    CHECK(!stitch__worker_apart(&w, &other));
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

enum { X, Y, STATE, TENSORS };

static stitch__worker with_tensors(int pid, stitch_tensor_info infos[TENSORS], uint64_t input_bytes)
{
    stitch__worker w = worker(pid, NULL);

    infos[X] = (stitch_tensor_info){.name = "x", .role = STITCH_TENSOR_INPUT, .bytes = input_bytes};
    infos[Y] = (stitch_tensor_info){.name = "y", .role = STITCH_TENSOR_OUTPUT, .bytes = BYTES};
    infos[STATE] = (stitch_tensor_info){.name = "s", .role = STITCH_TENSOR_STATE, .bytes = BYTES};
    w.infos = infos;
    w.count = TENSORS;
    w.stream = (CUstream)(uintptr_t)16;
    return w;
}

static void forget_places(stitch__worker *w)
{
    for (int set = 0; set < STITCH__SETS; set++)
        stitch__zero_free(w->places[set]);
    stitch__zero_free(w->unshared);
    stitch__buffers_release(w, false);
}

/* Each place of a tensor is the other place there. Inputs have a second one where they are small. */
TEST(places_crosswise)
{
    static const uint64_t sizes[] = {BYTES, STITCH__KEPT_BYTES, STITCH__KEPT_BYTES + 1};

    for (size_t i = 0; i < STITCH__COUNT(sizes); i++) {
        stitch_tensor_info infos[2][TENSORS];
        stitch__worker lender = with_tensors(PID, infos[0], sizes[i]), w = with_tensors(PID + 1, infos[1], sizes[i]);
        bool small = sizes[i] <= STITCH__KEPT_BYTES;

        made = call_status = 0;
        CHECK_OK(stitch__outputs_share(&lender, NULL, NULL, &err));
        CHECK_INT(made, small ? 4 : 3);
        CHECK_OK(stitch__outputs_share(&w, &lender, NULL, &err));
        CHECK_INT(made, small ? 4 : 3 + 1); /* what the other one has no second place of */
        for (int set = 0; set < STITCH__SETS; set++) {
            CHECK(w.places[set][Y] && w.places[set][Y] == lender.places[1 - set][Y]);
            CHECK(!w.places[set][STATE] && !lender.places[set][STATE]);
            CHECK(!small || (w.places[set][X] && w.places[set][X] == lender.places[1 - set][X]));
        }
        CHECK(small || (w.places[0][X] && w.places[0][X] != lender.places[0][X] && !w.places[1][X]));
        CHECK(lender.lends && stitch__worker_apart(&w, &lender) && stitch__worker_stands(&w, &lender));
        forget_places(&w);
        forget_places(&lender);
    }
}

/* Where memory cannot be shared outputs are fetched, and why is said; a worker that is lost is another matter. */
TEST(no_places)
{
    static const struct {
        int status;
        bool lost, fetched;
    } rows[] = {{STITCH_E_UNSUPPORTED, false, true},
                {STITCH_E_DRIVER, false, true},
                {STITCH_E_CANCELLED, false, false},
                {STITCH_E_TIMEOUT, false, false},
                {STITCH_E_IO, true, false}};

    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch_tensor_info infos[TENSORS];
        stitch__worker w = with_tensors(PID, infos, BYTES);
        int rc;

        call_status = rows[i].status;
        loses = rows[i].lost;
        rc = stitch__outputs_share(&w, NULL, NULL, &err);
        loses = false;
        if (rows[i].fetched) {
            CHECK_OK(rc);
            CHECK_STR(stitch__worker_unshared(&w), "trouble with a worker");
            CHECK(!w.places[0] && !w.places[1]);
        } else {
            CHECK_ERR(rc, rows[i].status, "trouble with a worker");
            CHECK(!stitch__worker_unshared(&w));
        }
        forget_places(&w);
    }
    call_status = 0;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

static int last_end; /* of the connection that is closed while outputs are copied; -1: none is */

static CUresult CUDAAPI copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    if (last_end >= 0)
        close(last_end);
    last_end = -1;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI ready(CUstream stream)
{
    return CUDA_SUCCESS;
}

/* Memory of a process that has died may be anybody's: what was copied from it is no output. */
TEST(outputs_of_one_that_has_died)
{
    static const CUstream streams[] = {NULL, (CUstream)(uintptr_t)8};
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_tensor_info info = {.name = "y", .role = STITCH_TENSOR_OUTPUT, .bytes = BYTES};
    static char theirs[2][BYTES], ours[BYTES];
    CUdeviceptr places[2][1], into = (CUdeviceptr)(uintptr_t)ours;
    stitch_context *ctx = NULL;

    options.device = "none";
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
    stitch__scope scope = stitch__scope_make(ctx, NULL, 10000);
    dev.ctx = ctx;
    driver.MemcpyDtoDAsync = copy;
    driver.StreamQuery = driver.StreamSynchronize = ready;
    for (int when = 0; when < 3; when++) { /* not at all, before, while they are copied */
        for (size_t i = 0; i < STITCH__COUNT(streams); i++) {
            stitch__worker w = worker(PID, NULL);
            int ends[2], rc;

            w.ctx = ctx;
            w.stream = (CUstream)(uintptr_t)16;
            w.infos = &info;
            w.count = 1;
            for (int set = 0; set < 2; set++) {
                memset(theirs[set], 'a' + set, BYTES);
                places[set][0] = (CUdeviceptr)(uintptr_t)theirs[set];
                w.places[set] = places[set];
            }
            CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
            w.channel = (stitch__channel){.fd = ends[0], .ctx = ctx};
            w.process = (stitch__process){.pidfd = -1, .words = -1, .ended = true};
            last_end = when == 2 ? ends[1] : -1;
            if (when == 1)
                close(ends[1]);
            memset(ours, 0, BYTES);
            rc = stitch__outputs_fetch(&w, &scope, 1, &into, streams[i], &err);
            if (when == 0 || (when == 2 && streams[i])) { /* the next request would tell */
                CHECK_OK(rc);
                CHECK(memcmp(ours, theirs[1], BYTES) == 0);
                CHECK(w.reader == streams[i]);
            } else {
                CHECK_ERR(rc, STITCH_E_IO, "while copying outputs");
                CHECK(w.lost);
                CHECK(when == 2 || !ours[0]);
            }
            if (when == 0)
                close(ends[1]);
            stitch__channel_close(&w.channel);
            stitch_free(w.why_lost);
        }
    }
    dev.ctx = NULL;
    stitch_context_free(ctx);
}

/* Of the very run that is asked for, from where the worker has put them. */
TEST(outputs_of_runs_of_a_block)
{
    enum { RUNS = 3, ROW = 512, AT_Y = 256 };
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_tensor_info infos[TENSORS];
    stitch__worker w = with_tensors(PID, infos, BYTES);
    static char theirs[RUNS][ROW], ours[BYTES];
    CUdeviceptr places[TENSORS] = {0}, into[TENSORS] = {0, (CUdeviceptr)(uintptr_t)ours, 0};
    uint64_t offsets[TENSORS] = {0, AT_Y, 0};
    stitch_context *ctx = NULL;
    int ends[2];

    options.device = "none";
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
    stitch__scope scope = stitch__scope_make(ctx, NULL, 10000);
    w.ctx = dev.ctx = ctx;
    driver.MemcpyDtoDAsync = copy;
    driver.StreamQuery = driver.StreamSynchronize = ready;
    last_end = -1;
    w.places[0] = w.places[1] = places;
    w.kept = (CUdeviceptr)(uintptr_t)theirs;
    w.kept_bytes = ROW;
    w.kept_offsets = offsets;
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    w.channel = (stitch__channel){.fd = ends[0], .ctx = ctx};
    for (int run = 0; run < RUNS; run++)
        memset(theirs[run] + AT_Y, 'a' + run, BYTES);
    for (int run = RUNS - 1; run >= 0; run--) {
        CHECK_OK(stitch__outputs_fetch(&w, &scope, STITCH__SETS + run, into, NULL, &err));
        CHECK(ours[0] == 'a' + run && ours[BYTES - 1] == 'a' + run);
    }
    close(ends[1]);
    stitch__channel_close(&w.channel);
    dev.ctx = NULL;
    stitch_context_free(ctx);
}

TEST_MAIN(RUN(what_is_lent_is_kept), RUN(a_worker_that_is_lost_borrows_nothing), RUN(there_is_nothing_to_borrow),
          RUN(whether_it_is_still_there), RUN(what_one_that_idles_has), RUN(one_program_after_another),
          RUN(no_more_of_it), RUN(borrowed_once_more), RUN(what_may_idle), RUN(never_the_same_place_at_the_same_time),
          RUN(places_crosswise), RUN(no_places), RUN(outputs_of_one_that_has_died), RUN(outputs_of_runs_of_a_block))

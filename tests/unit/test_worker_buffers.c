/* SPDX-License-Identifier: MIT
 *
 * Device memory of a worker's that another one borrows: what becomes of it when either closes its program or is lost.
 * There is no device here, only a driver that exports.
 */
#include <fcntl.h>
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

static stitch__worker worker(int pid, stitch__buffer *b)
{
    stitch__worker w = {.dev = &dev, .buffers = b, .buffer_count = b ? 1 : 0, .buffer_cap = b ? 1 : 0};

    driver.MemExportToShareableHandle = export_memory;
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

TEST_MAIN(RUN(what_is_lent_is_kept), RUN(a_worker_that_is_lost_borrows_nothing), RUN(there_is_nothing_to_borrow),
          RUN(whether_it_is_still_there), RUN(never_the_same_place_at_the_same_time), RUN(what_one_that_idles_has))

/* SPDX-License-Identifier: MIT
 *
 * Inside of the interpreter: warps, blocks, and the instruction functions that the decoder refers to.
 */
#ifndef STITCH_LIB_SIM_EXEC_H
#define STITCH_LIB_SIM_EXEC_H

#include "sim/ir.h"

/* X(name): instruction functions. The decoder stores them in instr.u.fn. */
#define STITCH__EXEC_LIST(X)                                                                                           \
    X(load)                                                                                                            \
    X(store)                                                                                                           \
    X(atom)                                                                                                            \
    X(clock)                                                                                                           \
    X(localaddr)                                                                                                       \
    X(lop3)                                                                                                            \
    X(bfi)                                                                                                             \
    X(carry)                                                                                                           \
    X(testp) X(set) X(isspacep) X(call) X(brx) X(trap) X(nop) X(nanosleep) X(predsel) X(sync_note) X(shfl) X(vote)     \
        X(match) X(activemask) X(redux) X(elect) X(barwarp) X(bar) X(fence) X(cluster_arrive) X(cluster_wait) X(mapa)  \
            X(getctarank) X(cpasync) X(cpasync_commit) X(cpasync_wait) X(cpasync_mbar) X(mbar_init) X(mbar_inval)      \
                X(mbar_arrive) X(mbar_test) X(mbar_pending) X(bulk) X(bulk_commit) X(bulk_wait) X(ldmatrix)            \
                    X(stmatrix) X(movmatrix) X(mma) X(wmma_load) X(wmma_store) X(wmma_mma) X(wgmma) X(wgmma_sync)      \
                        X(product_note)
#define STITCH__EXEC_DECLARE(name)                                                                                     \
    int stitch__exec_##name(struct stitch__exec *x, const stitch__instr *in, uint32_t mask);
STITCH__EXEC_LIST(STITCH__EXEC_DECLARE)
#undef STITCH__EXEC_DECLARE

typedef struct stitch__call stitch__call;

/* ---- state ------------------------------------------------------------------------------------------------------- */

enum { STITCH__WARP_RUN, STITCH__WARP_BARRIER, STITCH__WARP_CLUSTER, STITCH__WARP_PRODUCT, STITCH__WARP_DONE };
#define STITCH__MAX_WARPS    32
#define STITCH__MAX_BARRIERS 16
#define STITCH__MAX_DEPTH    256

typedef struct stitch__split {
    uint32_t pc, mask;
    bool parked; /* waits at pc for other lanes */
} stitch__split;

typedef struct stitch__frame {
    const stitch__sim_function *f;
    struct stitch__frame *up;
    uint8_t *regs;
    uint8_t *scratch;         /* parameter area: rows of 32 words, see stitch__row() */
    const stitch__call *call; /* of the frame above: where results go */
    uint32_t local_base, return_pc;
    uint32_t count; /* splits that do not run now */
    stitch__split split[32];
    uint32_t pc, mask;    /* the running one */
    uint32_t next_pc;     /* smallest pc of an unparked split, UINT32_MAX if none */
    uint32_t *products;   /* products.c; NULL: nothing to know */
    uint32_t polls, hold; /* of the running split, while others wait: polls of memory; blocks it may run out of turn */
} stitch__frame;

typedef struct stitch__copy { /* a warp's cp.async that is not applied yet */
    uint64_t src[32];
    uint32_t dst[32], bytes[32]; /* bytes: copied; zeros up to size */
    uint32_t group[32];          /* commit group; UINT32_MAX: not committed yet */
    uint32_t mask, size, seq;
    const stitch__instr *in;
    const stitch__sim_function *f;
} stitch__copy;

/* A bulk or tensor copy that is not applied yet, or an arrival that waits for cp.async. */
typedef struct stitch__flight {
    uint8_t kind; /* STITCH__FLIGHT_* */
    uint8_t rank, redop, rednum;
    uint32_t bytes, warp, lane, seq, group;
    uint32_t shared;   /* offset in this block's shared memory */
    uint64_t global;   /* plain copies: address; tensor copies: of the map */
    uint64_t mbarrier; /* shared address with rank, UINT64_MAX: none */
    int32_t coord[5];
    struct stitch__block *by;   /* who issued it */
    struct stitch__block *from; /* shared to shared: the source */
    uint32_t from_offset;
    bool noinc;
    const stitch__instr *in;
    const stitch__sim_function *f;
} stitch__flight;

enum { STITCH__FLIGHT_LOAD, STITCH__FLIGHT_STORE, STITCH__FLIGHT_SHARED, STITCH__FLIGHT_ARRIVE };

struct stitch__block;
typedef struct stitch__warp {
    struct stitch__block *block;
    stitch__frame *top;
    uint32_t index, alive, exists;
    uint8_t state;
    uint32_t clock; /* block time of the last synchronisation */
    bool polled;    /* looked at memory that others write */
    uint32_t bar_id, bar_pc, cluster_phase;
    bool cluster_arrived;
    const stitch__instr *waits_at;
    const stitch__sim_function *waits_in;
    uint8_t *local;       /* rows */
    uint32_t *local_init; /* lane mask of each byte */
    uint32_t local_size;
    stitch__copy *copies;
    size_t copy_count, copy_cap;
    uint32_t commits[32]; /* groups of cp.async committed by each lane so far */
    uint32_t bulk_commits[32];
    uint32_t copy_seq;
    struct stitch__products *products;
    stitch__frame *spare; /* the kernel's frame of the block before, to be used again */
    uint32_t stuck;       /* times that all lanes were found waiting, since one went on */
    bool force;           /* let the next warp instruction go on without the lanes that it misses */
} stitch__warp;

typedef struct stitch__barrier {
    uint32_t arrived;        /* threads */
    uint32_t expected;       /* 0: all of the block */
    uint32_t warps;          /* which warps wait */
    uint32_t arrived_warps;  /* which came, waiting or not */
    uint32_t votes, or_mask; /* of bar.red */
    bool all;
} stitch__barrier;

/* Who accessed a granule of shared memory last: see race.c. */
typedef struct stitch__race {
    uint64_t *w, *r;
    uint32_t *wpc, *rpc;
    /* Bits, since the last barrier of all threads. By 64 bytes: something was written, something was read. By granule:
     * it was read by several warps, so that one more reader changes nothing. */
    uint64_t *wrote, *read, *crowded;
    size_t words; /* of all three, one behind the other */
} stitch__race;

/* The same of global memory. Most accesses are whole lines of 16 granules by consecutive lanes; a line keeps one record
 * for all of them, until an access does not fit the pattern. A tag tells records of this launch from old ones. */
typedef struct stitch__race_entry {
    uint64_t w, r;
    uint32_t wtag, rtag; /* tag 11 bits, log2 of granules a lane 3 bits (lines), pc 18 bits */
} stitch__race_entry;

/* Which granules of a line its record is about: all of them, or one element of one lane. */
typedef struct stitch__race_line {
    stitch__race_entry e;
    uint8_t wfrom, wcount, rfrom, rcount;
    uint32_t unused;
} stitch__race_line;

/* Lanes that access single elements all over memory leave entries of 4 bytes, as long as one thread a granule reads or
 * writes, all of a line at one pc and at the same time after their block began: this is what a line's have in common.
 */
typedef struct stitch__race_brief {
    uint32_t head; /* tag 11 bits, time 21 bits; STITCH__BRIEF_CLOSED: no such entries, whatever is there */
    uint16_t r, w; /* pc + 1; 0: no reads, no writes, and the entries hold anything */
} stitch__race_brief;

typedef struct stitch__race_log {
    stitch__race_line *line;
    stitch__race_entry *word;
    stitch__race_brief *brief;   /* by line */
    uint32_t *brief_w, *brief_r; /* by granule: block 22 bits, warp 5, lane 5; 0: nobody */
    uint32_t tag;                /* shifted into place */
} stitch__race_log;

#define STITCH__LINE      16u
#define STITCH__TAG_SHIFT 21
#define STITCH__TAG_EACH  18
#define STITCH__TAG_PC    ((1u << STITCH__TAG_EACH) - 1)
/* Host threads share these records and take no lock: an entry counts once its tag is there. What two threads do at the
 * same moment may lose one of the records, which can hide a race but not invent one. */
#define STITCH__SEE(x)        __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define STITCH__SEE_TAG(x)    __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STITCH__PUT(x, v)     __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
#define STITCH__PUT_TAG(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

static inline bool stitch__race_now(const stitch__race_log *log, uint32_t tag)
{
    return (tag ^ log->tag) >> STITCH__TAG_SHIFT == 0;
}

/* w of a line: look at its granules; at their brief entries. */
#define STITCH__LINE_WORDS      (UINT64_C(1) << 36)
#define STITCH__LINE_BRIEF      (UINT64_C(1) << 37)
#define STITCH__LINE_SPECIAL    (STITCH__LINE_WORDS | STITCH__LINE_BRIEF)
#define STITCH__BRIEF_CLOSED    ((1u << STITCH__TAG_SHIFT) - 1)
#define STITCH__BRIEF_SEQ_SHIFT 10
#define STITCH__BRIEF_PC        0xffffu /* pcs are smaller */

/* Another block touched the shared memory since the last cluster barrier; wgmma, or bulk stores, are in progress. */
enum { STITCH__SLOW_FAR = 1, STITCH__SLOW_PRODUCTS = 2, STITCH__SLOW_STORES = 4 };

struct stitch__cluster;
typedef struct stitch__block {
    const stitch__sim_launch *launch;
    struct stitch__cluster *cluster;
    uint32_t id[3], rank, seq; /* seq: order in which blocks began, from 1 */
    uint64_t linear;
    uint8_t *shared;       /* byte 0 is offset 0 of the window; shared_end bytes */
    uint64_t *shared_init; /* bit per byte */
    uint32_t shared_end;
    stitch__race race;
    uint32_t full;                       /* time of the last barrier of all threads */
    uint32_t begin;                      /* time when the block began */
    uint32_t slow;                       /* STITCH__SLOW_*: why each access to shared memory needs all checks */
    uint32_t proxy_fence;                /* time of the last fence.proxy.async */
    uint32_t *product_reads;             /* products.c */
    bool partial;                        /* some threads met since then without the others */
    uint32_t (*seen)[STITCH__MAX_WARPS]; /* seen[a][b]: warp a is ordered behind what warp b did before this time */
    uint32_t released[STITCH__MAX_WARPS];
    uint64_t acquired; /* launch time of the last look at memory of other blocks */
    stitch__barrier barrier[STITCH__MAX_BARRIERS];
    stitch__warp *warps;
    uint32_t warp_count, live_warps, thread_count;
    bool done, killed;
    uint64_t executed;
    uint64_t async_bytes;
    stitch__flight *bulk; /* bulk copies in flight, see exec_bulk.c */
    size_t bulk_count, bulk_cap;
} stitch__block;

typedef struct stitch__cluster {
    uint32_t count, arrived, phase;
    uint32_t time;         /* goes up at every synchronisation in one of the blocks */
    uint32_t released[16]; /* by rank: time of the last release */
    uint32_t seen[16][16]; /* seen[a][b]: block a is ordered behind what block b did before this time */
    stitch__block *blocks[16];
} stitch__cluster;

/* How the addresses of the 32 lanes lie to each other: see exec_shape.h. */
typedef struct stitch__shape {
    uint64_t rel64[32]; /* distances from lane 0 */
    uint32_t rel[32];   /* the same, low words */
    int64_t low, high;  /* smallest and largest */
    uint32_t bits;      /* all of them or-ed, for the alignment */
    uint32_t stride;    /* distance from lane 0 to lane 1 */
    bool line, half;    /* so it goes on for all lanes; for the lanes of either half of the warp */
    /* What counting gave last, for which width and place (key) */
    uint32_t shared_key, shared_units, global_key, global_units, global_ideal;
} stitch__shape;

#define STITCH__SHAPE_NONE UINT32_MAX
#define STITCH__SHAPES     16u
typedef struct stitch__shapes {
    uint32_t count, irregular;
    stitch__shape shape[STITCH__SHAPES];
} stitch__shapes;

/* Counts of one function in one host thread. */
typedef struct stitch__mem_count {
    uint64_t requests, units, ideal, bytes; /* units: sectors or wavefronts */
    uint64_t atomics, collisions;
} stitch__mem_count;

typedef struct stitch__fn_count {
    uint64_t *entered, *lanes; /* by basic block */
    uint64_t *divergent;       /* by pc: branches that split a warp */
    stitch__mem_count *mem;    /* by pc */
    stitch__sim_alloc **alloc; /* by pc: the allocation hit last */
    stitch__shape **shape;     /* by pc: the shape seen last */
} stitch__fn_count;

struct stitch__job;
typedef struct stitch__exec {
    struct stitch__job *job;
    const stitch_context *job_ctx;
    const stitch__sim_launch *launch;
    stitch__block *block;
    stitch__warp *warp;
    stitch__frame *frame;
    uint8_t *regs;
    const uint8_t *consts;
    uint64_t prefix; /* of race keys: block and warp */
    bool check_init, check_shared, check_global, check_sync, counting, talks;
    bool kill;
    bool avx2;
    int32_t quantum;
    stitch__fn_count *counts; /* by function index */
    stitch__fn_count *fc;     /* of the running function */
    stitch__shapes *shapes;
    uint64_t executed, lanes;
    uint64_t barriers;
    uint32_t shared_shift, global_shift; /* log2 of the race granules */
    stitch_error *err;
    int rc;
} stitch__exec;

static inline void *stitch__operand(const stitch__exec *x, uint32_t o)
{
    return (o & STITCH__OFFSET_CONST ? (uint8_t *)(uintptr_t)x->consts : x->regs) + (o & ~STITCH__OFFSET_CONST);
}

/* Byte `at` of lane `lane` in memory that is laid out in rows of one word a lane. */
static inline size_t stitch__row(uint32_t at, uint32_t lane)
{
    return (size_t)(at >> 2) * 128 + lane * 4 + (at & 3);
}

/* exec_run*.c: runs the block's current warp until it waits, ends or its quantum is spent. */
void stitch__run_warp_generic(stitch__exec *x);
void stitch__run_warp_avx2(stitch__exec *x);

/* exec.c */
int stitch__sync_lanes(stitch__exec *x, const stitch__instr *in, uint32_t mask, uint32_t members, uint32_t *active);

/* Lanes that name the same members and are all here: each such group goes through a warp instruction by itself. */
typedef struct stitch__groups {
    uint32_t all, count; /* all: of every group */
    uint32_t lanes[32];
} stitch__groups;
int stitch__sync_groups(stitch__exec *x, const stitch__instr *in, uint32_t mask, uint32_t o, stitch__groups *g);
int stitch__sync_done(stitch__exec *x, const stitch__instr *in,
                      int rc);         /* what to return after it let the lanes through */
void stitch__unstick(stitch__exec *x); /* every lane of the warp is parked: try again, then force */
bool stitch__next_split(stitch__exec *x);
void stitch__warp_frame(stitch__exec *x); /* reloads x from warp->top */
bool stitch__frame_push(stitch__exec *x, const stitch__sim_function *f, uint32_t mask);
void stitch__frame_free(stitch__frame *f);
void stitch__lanes_exit(stitch__exec *x, uint32_t mask); /* of the running split */
void stitch__lanes_return(stitch__exec *x, uint32_t mask);
void stitch__split_add(stitch__frame *f, uint32_t pc, uint32_t mask, bool parked);
uint32_t stitch__pc(const stitch__exec *x, const stitch__instr *in);
void stitch__poll(stitch__exec *x); /* the warp looked at memory that others write */

uint64_t stitch__grid_workspace(const stitch__exec *x); /* launch.c: what %envreg1 and 2 point to */
int stitch__builtin_call(stitch__exec *x, const stitch__instr *in, uint32_t mask); /* printf.c */

/* barrier.c */
void stitch__cluster_check(stitch__cluster *c);
void stitch__barrier_exit(stitch__exec *x);  /* lanes of x->warp ended: barriers may be complete now */
bool stitch__barrier_stuck(stitch__exec *x); /* every warp waits: report, and let the block end */

/* race.c */
bool stitch__race_open(stitch__exec *x, stitch__block *b);
/* Checks an access and records it. True: it raced. */
bool stitch__race_shared(stitch__exec *x, const stitch__instr *in, stitch__block *owner, uint32_t lane, uint32_t offset,
                         uint32_t size, bool write, bool atomic);
void stitch__race_global(stitch__exec *x, const stitch__instr *in, stitch__sim_alloc *a, uint32_t lane, uint64_t offset,
                         uint32_t size, bool write, bool atomic, const void *new_value);
/* A write that was checked before, when its copy was issued, has happened by now. */
void stitch__race_wrote(stitch__exec *x, const stitch__instr *in, stitch__block *owner, uint32_t lane, uint32_t offset,
                        uint32_t size);
/* A bulk copy by a thread of block `by` has filled a range; who acquires from now on is ordered behind it. */
void stitch__race_landed(stitch__exec *x, const stitch__instr *in, stitch__block *owner, stitch__block *by,
                         uint32_t warp, uint32_t lane, uint32_t offset, uint32_t size);
/* The asynchronous proxy reads a range: ordinary stores there need a fence.proxy.async behind them. */
void stitch__race_proxy(stitch__exec *x, const stitch__instr *in, const stitch__block *owner, uint32_t lane,
                        uint32_t offset, uint32_t size);
uint32_t stitch__tick(stitch__block *b); /* the next point in time */
stitch__race_log *stitch__race_of(stitch__exec *x, stitch__sim_alloc *a);
void stitch__race_expand(const stitch__exec *x, stitch__race_log *log, uint64_t line);
void stitch__time_warp(stitch__exec *x); /* lanes of the warp met */
void stitch__time_release(stitch__exec *x, bool others);
void stitch__time_acquire(stitch__exec *x, bool others);

#define STITCH__KEY_LANE_SHIFT  26
#define STITCH__KEY_WARP_SHIFT  31
#define STITCH__KEY_BLOCK_SHIFT 40
#define STITCH__KEY_CLOCK       ((UINT64_C(1) << 26) - 1)
#define STITCH__KEY_MULTILANE   (UINT64_C(1) << 36)
#define STITCH__KEY_MULTIWARP   (UINT64_C(1) << 37)
#define STITCH__KEY_MULTIBLOCK  (UINT64_C(1) << 38)
#define STITCH__KEY_PROXY       STITCH__KEY_MULTIBLOCK /* of a write to shared memory: not by an ordinary store */
#define STITCH__KEY_ATOMIC      (UINT64_C(1) << 39)

/* exec_async.c */
bool stitch__copies_apply(stitch__exec *x, stitch__warp *w, uint32_t mask, uint32_t keep, uint32_t before_seq,
                          bool all);
/* A copy in flight to a range of shared memory. */
typedef struct stitch__pending {
    const stitch__instr *in;
    const stitch__sim_function *f;
    const stitch__block *block; /* thread that issued it */
    uint32_t warp, lane;
} stitch__pending;
bool stitch__copies_find(const stitch__block *b, uint32_t offset, uint32_t size, stitch__pending *out);

uint64_t stitch__atom_value(const stitch__instr *in, uint64_t old, uint64_t b, uint64_t c,
                            bool shared); /* exec_warp.c */

/* exec_bulk.c */
void stitch__flights_overwritten(stitch__exec *x, const stitch__instr *in, const stitch__block *owner, uint32_t lane,
                                 uint32_t offset, uint32_t size);
void stitch__flights_exit(stitch__exec *x); /* the warp ends */

/* products.c */
void stitch__products_reset(stitch__block *b);
void stitch__products_wake(stitch__block *b); /* those that wait for others of their warpgroup look again */
void stitch__product_reads(stitch__exec *x, uint32_t offset); /* 16 bytes, by the product begun last */
void stitch__product_overwrites(stitch__exec *x, const stitch__instr *in, const stitch__block *owner, uint32_t lane,
                                uint32_t offset, uint32_t size);

/* report.c */
STITCH__PRINTF(8, 9)
void stitch__report(stitch__exec *x, stitch__sim_fault kind, const stitch__instr *in, uint32_t lane,
                    stitch__sim_space space, uint64_t address, uint32_t size, const char *fmt, ...);
void stitch__report_race(stitch__exec *x, stitch__sim_fault kind, const stitch__instr *in, uint32_t lane, bool write,
                         stitch__sim_space space, uint64_t address, uint32_t size, stitch__sim_alloc *a,
                         uint64_t other_key, uint32_t other_pc, bool other_write);
/* An access to shared memory that a copy in flight fills, or an access to registers of a matrix product in progress. */
void stitch__report_unwaited(stitch__exec *x, const stitch__instr *in, uint32_t lane, bool write, uint64_t address,
                             uint32_t size, const stitch__pending *copy, const char *detail);
void stitch__report_bounds(stitch__exec *x, const stitch__instr *in, uint32_t lane, stitch__sim_space space,
                           uint64_t address, uint32_t size, bool write, stitch__sim_alloc *a, stitch__sim_fault kind);

/* memory access, exec_memory.c */
/* Host address of [address, address + size) for one lane after all checks, or NULL if the access is wrong (reported).
 * `owner` is set for shared memory. */
typedef struct stitch__where {
    uint8_t *host;
    stitch__sim_alloc *alloc; /* global */
    stitch__block *owner;     /* shared */
    uint64_t offset;          /* in the allocation or the block's shared memory */
    stitch__sim_space space;
} stitch__where;
bool stitch__locate(stitch__exec *x, const stitch__instr *in, stitch__sim_space space, uint64_t address, uint32_t size,
                    uint32_t align, uint32_t lane, bool write, stitch__where *w);
void stitch__mark_init(const stitch__where *w, uint32_t size);
bool stitch__is_init(const stitch__where *w, uint32_t size);
/* Generic copies for matrix and asynchronous instructions: checks, records, copies. */
bool stitch__read_bytes(stitch__exec *x, const stitch__instr *in, stitch__sim_space space, uint64_t address, void *to,
                        uint32_t size, uint32_t align, uint32_t lane);
bool stitch__write_bytes(stitch__exec *x, const stitch__instr *in, stitch__sim_space space, uint64_t address,
                         const void *from, uint32_t size, uint32_t align, uint32_t lane);

/* Variants told apart by instr.sub. */
enum {
    STITCH__ATOM_ADD,
    STITCH__ATOM_MIN,
    STITCH__ATOM_MAX,
    STITCH__ATOM_AND,
    STITCH__ATOM_OR,
    STITCH__ATOM_XOR,
    STITCH__ATOM_EXCH,
    STITCH__ATOM_CAS,
    STITCH__ATOM_INC,
    STITCH__ATOM_DEC
};
enum { STITCH__SHFL_IDX, STITCH__SHFL_UP, STITCH__SHFL_DOWN, STITCH__SHFL_BFLY };
enum { STITCH__VOTE_ALL, STITCH__VOTE_ANY, STITCH__VOTE_UNI, STITCH__VOTE_BALLOT };
enum { STITCH__WGMMA_FENCE, STITCH__WGMMA_COMMIT, STITCH__WGMMA_WAIT };
enum { STITCH__MATCH_ANY, STITCH__MATCH_ALL };
enum { STITCH__CARRY_ADD, STITCH__CARRY_SUB, STITCH__CARRY_MADLO, STITCH__CARRY_MADHI };
enum { STITCH__BAR_SYNC, STITCH__BAR_ARRIVE, STITCH__BAR_POPC, STITCH__BAR_AND, STITCH__BAR_OR };

/* Decoded facts of matrix instructions (instr.data). */
typedef struct stitch__matrix {
    uint16_t m, n, k;
    uint8_t a, b, c, d;     /* stitch__num of the elements */
    uint8_t na, nb, nc, nd; /* registers of each fragment */
    uint8_t a_col, b_col;   /* layout: column-major */
    uint8_t d_col, which;   /* wmma.load/store: 'a' 'b' 'c' 'd' */
    bool satfinite, trans, sparse;
    uint8_t bits_a, bits_b; /* element bits: 4, 8, 16, 32, 64 */
    bool a_signed, b_signed;
    bool xor_popc, and_popc;
    uint8_t count; /* ldmatrix: matrices */
    bool a_smem;   /* wgmma */
    uint8_t scale_a, scale_b, trans_a, trans_b;
} stitch__matrix;

enum {
    STITCH__BUILTIN_NONE,
    STITCH__BUILTIN_VPRINTF,
    STITCH__BUILTIN_ASSERT,
    STITCH__BUILTIN_MALLOC,
    STITCH__BUILTIN_FREE
};

struct stitch__call {
    uint32_t callee; /* function index; UINT32_MAX: through a pointer in o[0] */
    uint8_t builtin;
    uint32_t count, returns; /* scratch pieces: the first `returns` are results */
    stitch__sim_callee_param piece[];
};

typedef struct stitch__bulk {
    uint8_t rank; /* tensor copies: 1..5; 0: plain */
    uint8_t kind; /* STITCH__FLIGHT_LOAD, _STORE, _SHARED */
    bool multicast, reduce;
    uint8_t redop, rednum;
} stitch__bulk;

enum { STITCH__MBAR_ARRIVE, STITCH__MBAR_EXPECT_ARRIVE, STITCH__MBAR_DROP, STITCH__MBAR_EXPECT, STITCH__MBAR_COMPLETE };

#endif

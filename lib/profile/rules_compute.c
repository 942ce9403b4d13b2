/* SPDX-License-Identifier: MIT
 *
 * Rules about a kernel's arithmetic, how much of it runs at once, and what its warps wait for.
 */
#include <math.h>

#include "profile/ceilings.h"
#include "profile/rules.h"

#include <stitch/task.h>

/* ---- thresholds, with their reason ---- */

/* [BPG] "Occupancy": there is a point above which more of it does not help; half of the warps is a common one. */
#define OCCUPANCY_ENOUGH 0.50
/* Without counters low occupancy alone is a weak sign: it has to be very low. */
#define OCCUPANCY_POOR 0.25
/* Kernels that keep tensor cores busy have few and large blocks by design. */
#define TENSOR_BUSY 0.40
/* HFMA2.MMA, which sm_80 and sm_90 move constants with, keeps the tensor pipe busy a little. */
#define TENSOR_IDLE 0.01
/* Six waves or fewer: with more, a part of one is a smaller part of the time. */
#define TAIL_FROM 0.15
/* A tenth of the multiprocessors without a block. */
#define GRID_FULL 0.90
/* A quarter of the lanes idle. */
#define LANES_FROM 0.75
/* A fifth of the branches: bounds checks split only the last warp of a row. */
#define DIVERGENT_FROM 0.20
/* Warps that split for a moment: erff() takes one of two ways with half of its instructions, and compilers make selects
 * of such. */
#define LANES_SPLIT     0.90
#define COLLISIONS_FROM 0.25
/* A thread that does 32 multiply-adds sums products; the intensity is half of where float32 arithmetic starts to bound
 * (15 operations a byte on an H100 or H200). */
#define PRODUCT_TERMS     32
#define PRODUCT_INTENSITY 8.0
/* A product loads what it multiplies: 24 values for 128 multiply-adds of a thread with 8 x 16 results, which are 6
 * loads of a warp at the least. erff() of a float4 has one load for 80. */
#define ADDS_OF_A_LOAD 32
/* And each of its results is a sum of many: erff() of a float takes some 20, tanhf() and expf() together as many. Of
 * half precision two results fit into the four bytes. */
#define ADDS_OF_A_RESULT 64
#define RESULT_BYTES     4.0
/* Pairs with a root or exponential each (distances of few dimensions) load, add and sum like a product, too. Attention
 * with 32 dimensions and float32 products has 0.2. */
#define XU_OF_FMA 0.30
/* "Most instructions". */
#define MOST_INST 0.50
/* Achieved occupancy below this part of the theoretical one: multiprocessors run dry. */
#define UNEVEN_BELOW 0.60

/* A block takes about half a microsecond from its start to the first value that it has loaded, and its place is empty
 * for a moment before and after. */
#define SHORT_BLOCK_US 2.0

static bool near_limit(const stitch__subject *s)
{
    return s->g->reached >= STITCH__REACHED_FROM;
}

/* ---- arithmetic ---- */

bool stitch__rule_compute_bound_near_limit(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    if (!(g->compute >= STITCH__REACHED_FROM) || g->compute < g->memory || g->compute == g->xu || g->compute == g->fp64)
        return false;
    stitch__say(out->evidence, "%s", stitch__level(g->compute_part, g->compute).s);
    out->part = 1 - g->compute;
    return true;
}

/* How near the device's other parts are, which stay what they are when one pipe has nothing to do any more. */
static double others(const stitch__figures *g, double without)
{
    double parts[] = {g->memory, g->fma, g->alu, g->xu, g->fp64, g->tensor}, most = 0;
    for (size_t i = 0; i < STITCH__COUNT(parts); i++) {
        if (parts[i] != without && parts[i] > most)
            most = parts[i];
    }
    return most;
}

static bool pipe_bound(const stitch__subject *s, double share, const char *name, stitch__finding *out)
{
    double rest = others(s->g, share);
    if (!(share >= STITCH__BOUND_FROM) || rest > share)
        return false;
    stitch__say(out->evidence, "%s pipe at %.0f %% of its peak, the next part at %.0f %%", name, 100 * share,
                100 * rest);
    out->part = 1 - rest / share;
    out->line = stitch__waiting_line(s->k, "math_pipe_throttle", "math_pipe_throttle");
    return true;
}

/* [PG] "Arithmetic Instructions": 16 results a clock and multiprocessor, an eighth of float32. */
bool stitch__rule_xu_bound(const stitch__subject *s, stitch__finding *out)
{
    return pipe_bound(s, s->g->xu, "special-function (XU)", out);
}

bool stitch__rule_fp64_bound(const stitch__subject *s, stitch__finding *out)
{
    return pipe_bound(s, s->g->fp64, "float64", out);
}

/* The part of the instructions that are float32 arithmetic: chips differ in how many of them fill the pipe. */
static double arithmetic(const stitch__kernel_fact *k)
{
    double threads = stitch__metric_of(k, STITCH__METRIC_FFMA) +
                     stitch__or(stitch__metric_of(k, STITCH__METRIC_FADD), 0) +
                     stitch__or(stitch__metric_of(k, STITCH__METRIC_FMUL), 0);
    return stitch__ratio(threads, STITCH__WARP * stitch__metric_of(k, STITCH__METRIC_INST));
}

/* Compute-bound by what is not the arithmetic that anyone asked for. */
bool stitch__rule_instruction_bound(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double most = stitch__most(g->issue, g->alu), rest = fmax(stitch__or(g->fma, 0), stitch__or(g->tensor, 0));
    rest = fmax(rest, fmax(stitch__or(g->xu, 0), stitch__or(g->fp64, 0)));
    if (!(most >= STITCH__BOUND_FROM) || g->memory > most || rest >= STITCH__BOUND_FROM || isnan(g->fma) ||
        arithmetic(s->k) > MOST_INST)
        return false;
    stitch__say(out->evidence, "%s, the busiest arithmetic pipe is at %.0f %%",
                stitch__level(most == g->issue ? "issue slots" : "integer pipe", most).s, 100 * rest);
    out->part = 1 - fmax(rest, stitch__or(g->memory, 0)) / most;
    out->line = stitch__heaviest_line(s->k, 'w');
    return true;
}

/* As many multiply-adds as a product has for what is loaded and stored. Functions (GELU of what L2 holds) are
 * multiply-adds, too. What is not known does not speak against it. */
static bool like_a_product(const stitch__subject *s, double ffma)
{
    const stitch__figures *g = s->g;
    double loads = g->load_requests + stitch__metric_of(s->k, STITCH__METRIC_SHARED_LOAD_WAVEFRONTS);
    double stored = g->store_sectors * stitch__or(stitch__at_most_1(g->store_asked / STITCH__SECTOR_BYTES), 1) *
                    STITCH__SECTOR_BYTES;
    return !(g->xu > XU_OF_FMA * g->fma) && !(loads * ADDS_OF_A_LOAD < ffma / STITCH__WARP) &&
           !(stored / RESULT_BYTES * ADDS_OF_A_RESULT > ffma);
}

/* The kernel sums products: by its counters, or, where those are not known, by the text of its hottest line. */
static bool multiplies(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double ffma = stitch__metric_of(s->k, STITCH__METRIC_FFMA);
    double share;
    const stitch__line_fact *line = stitch__product_line(s->k, &share);
    out->line = line;
    if (!isnan(ffma)) {
        stitch__say(out->evidence, "no tensor instruction, %s multiply-adds (%.0f a thread)", stitch__count(ffma).s,
                    stitch__or(stitch__ratio(ffma, g->blocks * g->threads), 0));
        return ffma >= PRODUCT_TERMS * g->blocks * g->threads && like_a_product(s, ffma) &&
               (g->intensity >= PRODUCT_INTENSITY || g->fma >= STITCH__BOUND_FROM);
    }
    if (!line || s->g->dram >= STITCH__BOUND_FROM)
        return false;
    stitch__say(out->evidence, "no tensor instruction, and %.0f %% of the %s are at a line that sums products",
                100 * share, line->samples ? "samples" : "instructions");
    return true;
}

/* [PG] "Warp Matrix Functions". */
bool stitch__rule_tensor_unused(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double matrix = stitch__measured(stitch__ceilings_matrix(&s->f->ceilings, s->f->precision));
    double f32 = stitch__measured(s->f->ceilings.f32_tflops);
    if (s->f->precision == STITCH_PRECISION_F32 || !(g->tensor_inst == 0) || g->tensor > TENSOR_IDLE ||
        g->fp64 >= STITCH__WAIT_FROM || (matrix > 0 && f32 > 0 && matrix <= f32) || !multiplies(s, out))
        return false;
    double needs = stitch__or(stitch__measured(g->tflops / matrix), 0);
    if (isnan(g->tflops) && matrix > 0 && f32 > 0)
        needs = f32 / matrix * stitch__or(g->fma, 0);
    out->part = 1 - fmax(needs, stitch__or(g->dram, 0));
    if (g->tflops > 0 && matrix > 0)
        stitch__say(out->evidence, "; %.3g TFLOP/s where tensor cores do %.0f", g->tflops, matrix);
    stitch__say(out->action, "%s", stitch__products_hint(s->f->precision));
    return out->part > 0;
}

/* ---- parallelism ---- */

bool stitch__rule_low_occupancy(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    if (!(g->occupancy < (isnan(g->reached) ? OCCUPANCY_POOR : OCCUPANCY_ENOUGH)) || g->reached >= STITCH__BOUND_FROM ||
        g->tensor >= TENSOR_BUSY * g->active || (s->k->waves > 0 && s->k->waves < 1))
        return false;
    stitch__say(out->evidence,
                "%.0f %% of the warps that fit%s%.40s: block of %.0f threads, %" PRIu32 " registers, %" PRIu64
                " bytes of shared memory",
                100 * g->occupancy, *s->k->limiter ? ", limited by " : "", s->k->limiter, stitch__or(g->threads, 0),
                s->k->registers, (uint64_t)s->k->static_shared + s->k->dynamic_shared);
    if (strcmp(s->k->limiter, "registers") == 0 && s->k->local)
        stitch__say(out->action, "Registers limit it, and not all values fit into them: fewer values alive at once.");
    else if (g->tensor_inst > 0) /* large tiles in registers and shared memory are what tensor cores need */
        stitch__say(out->action, "With tensor cores: more stages of tiles on their way (cp.async, TMA), rather than "
                                 "smaller tiles.");
    else
        stitch__say(out->action, "%s", stitch__limiter_hint(s->k->limiter));
    out->part = fmin(1 - stitch__or(g->reached, 0), 1 - g->occupancy / OCCUPANCY_ENOUGH);
    out->line = stitch__waiting_line(s->k, "long_scoreboard", "short_scoreboard");
    return true;
}

/* [NCU] tail effect: a wave that is not full takes as long as a full one. */
bool stitch__rule_tail_effect(const stitch__subject *s, stitch__finding *out)
{
    double waves = stitch__measured(s->k->waves), lost = (ceil(waves) - waves) / ceil(waves);
    if (!(waves > 1) || !(lost >= TAIL_FROM) || near_limit(s) || isnan(s->g->time_us))
        return false;
    stitch__say(out->evidence, "%.0f blocks are %.2f waves: the last one keeps %.0f %% of the device busy",
                stitch__or(s->g->blocks, 0), waves, 100 * (waves - floor(waves)));
    out->part = fmin(lost, 1 - stitch__or(s->g->reached, 0));
    return true;
}

/* [BPG] "Thread and Block Heuristics": more blocks than multiprocessors. Grids of the simulator are those of reduced
 * sizes: only what is timed. */
bool stitch__rule_small_grid(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    if (!(g->blocks <= GRID_FULL * g->multiprocessors) || near_limit(s) || isnan(g->time_us))
        return false;
    stitch__say(out->evidence, "%.0f blocks of %.0f threads on %.0f multiprocessors", g->blocks,
                stitch__or(g->threads, 0), g->multiprocessors);
    out->part = fmin(1 - g->blocks / g->multiprocessors, 1 - STITCH__EMPTY_KERNEL_US / g->time_us);
    out->part = fmin(out->part, 1 - stitch__or(g->reached, 0));
    return out->part > 0;
}

/* The part of the lanes of a block's warps that are threads of it. */
static double existing_lanes(const stitch__figures *g)
{
    return g->threads / (STITCH__WARP * ceil(g->threads / STITCH__WARP));
}

bool stitch__rule_partial_warps(const stitch__subject *s, stitch__finding *out)
{
    double warps = ceil(s->g->threads / STITCH__WARP), lost = 1 - existing_lanes(s->g);
    if (!(lost >= 1 - GRID_FULL) || near_limit(s))
        return false;
    stitch__say(out->evidence, "blocks of %.0f threads: the last of %.0f warps has %.0f lanes", s->g->threads, warps,
                s->g->threads - STITCH__WARP * (warps - 1));
    out->part = fmin(lost, 1 - stitch__or(s->g->dram, 0)); /* full warps have fewer instructions and as many bytes */
    return true;
}

/* [NCU] "Occupancy": achieved below theoretical is load imbalance or what scheduling warps costs. */
bool stitch__rule_uneven_blocks(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double achieved = g->achieved_occupancy * g->active; /* CUPTI counts while a multiprocessor has some warp */
    if (!(achieved < UNEVEN_BELOW * g->occupancy) || !(s->k->waves >= 1) || near_limit(s))
        return false;
    stitch__say(out->evidence, "%.0f %% of the warps that a multiprocessor holds are there on the average, %.0f %% fit",
                100 * achieved, 100 * g->occupancy);
    if (g->active < 1)
        stitch__say(out->evidence, "; for %.0f %% of the time multiprocessors have no block", 100 * (1 - g->active));
    /* Little's law: blocks that are there = blocks that begin in a time * how long one lives. */
    double life = g->time_us * achieved / g->occupancy / s->k->waves;
    if (life < SHORT_BLOCK_US) {
        stitch__say(out->evidence, "; a block lives for %.1f us", life);
        stitch__say(out->action, "Here blocks are too short: give each more to do, in a loop over the grid.");
    } else {
        stitch__say(out->action, "Split large pieces of work, start them first, or let blocks fetch work from a "
                                 "counter; warps of a block should end together.");
    }
    out->part = fmin(1 - stitch__or(g->reached, 0), 1 - achieved / g->occupancy);
    return true;
}

/* ---- waiting ---- */

static const char in_flight_hint[] =
    "Have more in flight: several independent loads and operations a thread (two to eight elements each), 16 bytes a "
    "load, more warps a multiprocessor.";

/* Little's law: bytes or operations in flight = latency * throughput; too little is in flight. */
bool stitch__rule_latency_bound(const stitch__subject *s, stitch__finding *out)
{
    double share;
    const char *reason = stitch__stall_most(s->k, &share), *meaning, *hint = stitch__stall_hint(reason, &meaning);
    bool sampled = s->v->bound == STITCH__BOUND_UNKNOWN && *reason && share >= 2 * STITCH__WAIT_FROM;
    if ((s->v->bound != STITCH__BOUND_LATENCY && !sampled) ||
        (share >= STITCH__WAIT_FROM && strcmp(reason, "barrier") == 0))
        return false; /* barriers have a rule of their own */
    if (sampled)
        stitch__say(out->evidence, "counters are not known");
    else
        stitch__say(out->evidence, "%s at %.0f %%, %s at %.0f %%", s->g->memory_part, 100 * s->g->memory,
                    s->g->compute_part, 100 * s->g->compute);
    out->part = 1 - stitch__or(s->g->reached, 0);
    stitch__say(out->action, "%s", *hint ? hint : in_flight_hint);
    if (!*reason)
        return true;
    stitch__say(out->evidence, "; warps wait, %.0f %% of that %s (%s)", 100 * share, meaning, reason);
    out->part = fmin(out->part, share);
    out->line = stitch__waiting_line(s->k, reason, reason);
    return true;
}

bool stitch__rule_barrier_stalls(const stitch__subject *s, stitch__finding *out)
{
    double share = stitch__stall_share(s->k, "barrier");
    if (!(share >= STITCH__WAIT_FROM) || near_limit(s))
        return false;
    stitch__say(out->evidence, "%.0f %% of the waiting of warps is at barriers, blocks of %.0f threads", 100 * share,
                stitch__or(s->g->threads, 0));
    out->part = fmin(share, 1 - stitch__or(s->g->reached, 0));
    out->line = stitch__waiting_line(s->k, "barrier", "barrier");
    return true;
}

/* [BPG] "Branching and Divergence". */
bool stitch__rule_divergence(const stitch__subject *s, stitch__finding *out)
{
    double branches = stitch__metric_of(s->k, STITCH__METRIC_BRANCHES),
           split = stitch__metric_of(s->k, STITCH__METRIC_DIVERGENT_BRANCHES);
    double there = stitch__or(existing_lanes(s->g), 1), lanes = s->g->lanes / there;
    if (s->g->memory >= STITCH__BOUND_FROM)
        return false;
    if (lanes < LANES_FROM) {
        stitch__say(out->evidence, "%.1f of %.3g lanes do something in an instruction", STITCH__WARP * s->g->lanes,
                    STITCH__WARP * there);
        out->part = fmin(1 - lanes, 1 - stitch__or(s->g->dram, 0));
    } else if (split >= DIVERGENT_FROM * branches && split > 0 && !(lanes >= LANES_SPLIT)) {
        stitch__say(out->evidence, "%s of %s branches split their warp", stitch__count(split).s,
                    stitch__count(branches).s);
        if (!isnan(lanes))
            stitch__say(out->evidence, ", %.1f of %.3g lanes do something in an instruction",
                        STITCH__WARP * s->g->lanes, STITCH__WARP * there);
        /* Not known how long they are apart: two halves, one after the other, all the time. */
        out->part = stitch__or(1 - lanes, 0.5 * fmin(split / branches, 1));
    } else {
        return false;
    }
    out->line = stitch__waiting_line(s->k, "branch_resolving", "branch_resolving");
    return true;
}

bool stitch__rule_atomic_contention(const stitch__subject *s, stitch__finding *out)
{
    double atomics = stitch__metric_of(s->k, STITCH__METRIC_ATOMICS),
           same = stitch__metric_of(s->k, STITCH__METRIC_ATOMIC_COLLISIONS);
    if (atomics > 0 && same >= COLLISIONS_FROM * atomics) {
        stitch__say(out->evidence, "%s of %s atomic operations go to an address that another lane of the warp goes to",
                    stitch__count(same).s, stitch__count(atomics).s);
        out->part = fmin(same / atomics, 1 - stitch__or(s->g->dram, 0));
    }
    for (size_t i = 0; i < stitch__lines_of(s->k); i++) {
        const stitch__line_fact *l = &s->k->lines[i];
        double share = l->samples ? stitch__line_share(s->k, l) : NAN;
        if (!stitch__is_atomic(l->text))
            continue;
        if (share >= STITCH__WAIT_FROM) {
            stitch__say(out->evidence, "%s%.0f %% of the samples are at an atomic operation",
                        *out->evidence ? "; " : "", 100 * share);
            out->part = fmax(out->part, share);
        }
        out->line = l;
        break;
    }
    return *out->evidence != 0;
}

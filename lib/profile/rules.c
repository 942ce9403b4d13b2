/* SPDX-License-Identifier: MIT
 *
 * The rules of the advice. A rule is a function that says whether the facts show its problem, and an entry of the table
 * at the end of this file with its words. To add one: write the function, add the entry, a line in docs/profile.md and
 * a pair in tests/unit/test_profile_rules.c (both are checked).
 *
 * What a function gives: evidence (the figures), part (of the kernel's time: what could be gained if the problem were
 * gone altogether, so an upper bound) or gain_us, and a line where one is known. NAN compares as false: a condition on
 * a figure that is not known does not hold, so that rules are written as what must be known to be true.
 *
 * Sources: [BPG] CUDA C++ Best Practices Guide, [PG] CUDA C++ Programming Guide, [NCU] Nsight Compute's documentation
 * (kernel profiling guide: metrics, stall reasons) and the conditions of its rules.
 */
#include <math.h>
#include <stdio.h>

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
/* 32 lanes * 4 bytes are 4 sectors of 32 bytes, 32 lanes * 16 bytes (the widest access) are 16. */
#define SECTORS_OF_4_BYTES  4.0
#define SECTORS_OF_16_BYTES 16.0
#define SECTORS_SLACK       0.5 /* an odd start of a row costs a part of a sector */
/* Rows that do not begin at 32 bytes cost 5 sectors for 4: that is not yet a wrong pattern. */
#define SECTORS_OVER_IDEAL 1.5
/* The counter is not exactly 0 for kernels without conflicts: the data stage has other reasons to repeat. */
#define CONFLICTS_FROM 0.20
/* Below 0.5 % of all instructions, local memory is used outside of loops. 16 bytes are four values. */
#define SPILLS_OF_INST 0.005
#define SPILL_BYTES    16
/* Six waves or fewer: with more, a part of one is a smaller part of the time. */
#define TAIL_FROM 0.15
/* A tenth of the multiprocessors without a block. */
#define GRID_FULL 0.90
#define WARP      32.0
/* A quarter of the lanes idle. */
#define LANES_FROM 0.75
/* A fifth of the branches: bounds checks split only the last warp of a row. */
#define DIVERGENT_FROM  0.20
#define COLLISIONS_FROM 0.25
/* A thread that does 32 multiply-adds sums products; the intensity is half of where float32 arithmetic starts to bound
 * (15 operations a byte on an H100 or H200). */
#define PRODUCT_TERMS     32
#define PRODUCT_INTENSITY 8.0
/* Achieved occupancy below this part of the theoretical one: multiprocessors run dry. */
#define UNEVEN_BELOW 0.60
/* Sectors that are asked for twice for each that DRAM delivers are reuse; hits of less than half do not serve it. */
#define REUSE_FROM  2.0
#define L2_HIT_POOR 0.50
#define OVER_IDEAL  1.5
/* A multiply-add whose two float32 factors are both loaded makes 0.25 operations a byte; tiles make far more than 1. */
#define REUSE_POOR 1.0
/* Of the run's time. */
#define LAUNCHES_FROM 0.20
#define WAITS_FROM    0.10
#define COPIES_FROM   0.05
#define MOVES_FROM    0.05
/* A launch costs the host 2 to 5 us: with longer kernels it is hidden. */
#define HIDES_LAUNCH_US 10.0
#define SMALL_US        5.0
#define SEVERAL         4 /* launches: fewer are no chain */

STITCH__PRINTF(2, 3) static void say(char out[STITCH__EVIDENCE_BYTES], const char *fmt, ...)
{
    size_t len = strlen(out);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(out + len, STITCH__EVIDENCE_BYTES - len, fmt, ap);
    va_end(ap);
}

static double metric(const stitch__subject *s, int which)
{
    return stitch__measured(s->k->metric[which]);
}

static bool near_limit(const stitch__subject *s)
{
    return s->g->reached >= STITCH__REACHED_FROM;
}

/* ---- memory accesses ---- */

static double waits_for_memory(const stitch__subject *s)
{
    double a = stitch__stall_share(s->k, "long_scoreboard"), b = stitch__stall_share(s->k, "lg_throttle");
    return isnan(a) && isnan(b) ? NAN : fmin(stitch__or(a, 0) + stitch__or(b, 0), 1);
}

/* Part of the time that memory can be the reason of, by how busy it is and how much warps wait; 1 if not known. */
static double memory_part(const stitch__subject *s)
{
    return stitch__or(stitch__most(s->g->memory, waits_for_memory(s)), 1);
}

/* Sectors beyond those of 4-byte accesses, if it is clear that they are too many. */
static double wasted_sectors(const stitch__subject *s, double requests, double sectors)
{
    double each = stitch__ratio(sectors, requests), ideal = SECTORS_OF_4_BYTES * requests;
    bool vectors = each <= SECTORS_OF_16_BYTES + SECTORS_SLACK; /* 8 or 16 can be float2 or float4 */
    if (!(each > SECTORS_OF_4_BYTES + SECTORS_SLACK) ||
        (vectors && !(waits_for_memory(s) >= 2 * STITCH__WAIT_FROM && s->g->dram < STITCH__BOUND_FROM)))
        return 0;
    return sectors - ideal;
}

/* [BPG] "Coalesced Access to Global Memory"; [NCU] memory tables, sectors/req. */
static bool uncoalesced(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double wasted;
    if (!(g->sectors > 0) || (g->compute >= STITCH__BOUND_FROM && g->compute > g->memory))
        return false;
    if (!isnan(g->ideal)) {
        wasted = g->sectors - g->ideal;
        if (!(g->sectors >= SECTORS_OVER_IDEAL * g->ideal))
            return false;
        say(out->evidence, "%s sectors of 32 bytes move where %s would hold what is asked for (%.1f times)",
            stitch__count(g->sectors).s, stitch__count(g->ideal).s, g->sectors / fmax(g->ideal, 1));
        out->line = stitch__heaviest_line(s->k, 'g');
    } else {
        double loads = stitch__or(wasted_sectors(s, g->load_requests, g->load_sectors), 0);
        double stores = stitch__or(wasted_sectors(s, g->store_requests, g->store_sectors), 0);
        wasted = loads + stores;
        if (!(wasted >= STITCH__WAIT_FROM * g->sectors))
            return false;
        say(out->evidence,
            "%.1f sectors a load request, %.1f a store request; 4-byte accesses of a warp to neighbouring "
            "addresses need 4, 16-byte ones 16",
            stitch__or(stitch__ratio(g->load_sectors, g->load_requests), 0),
            stitch__or(stitch__ratio(g->store_sectors, g->store_requests), 0));
        out->line = stitch__waiting_line(s->k, "long_scoreboard", "lg_throttle");
    }
    out->part = fmin(wasted / g->sectors, 1) * memory_part(s);
    return true;
}

/* [PG] "Shared Memory": 32 banks of 4 bytes; [NCU] wavefronts. */
static bool bank_conflicts(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double part = stitch__ratio(g->shared_wasted, g->shared_wavefronts);
    double waits = stitch__or(stitch__stall_share(s->k, "short_scoreboard"), 0) +
                   stitch__or(stitch__stall_share(s->k, "mio_throttle"), 0);
    double busy = stitch__or(stitch__most(g->l1, waits > 0 ? fmin(waits, 1) : NAN), 1);
    if (!(part >= CONFLICTS_FROM) || busy < STITCH__WAIT_FROM)
        return false;
    say(out->evidence, "%s of %s wavefronts of shared memory are repeats (%.1f-way on the average)",
        stitch__count(g->shared_wasted).s, stitch__count(g->shared_wavefronts).s,
        fmin(1 / fmax(1 - part, 1 / WARP), WARP));
    if (!isnan(g->l1))
        say(out->evidence, "; the load/store pipe is at %.0f %%", 100 * g->l1);
    out->part = fmin(part, 1) * busy;
    out->line = stitch__heaviest_line(s->k, 's');
    if (!out->line)
        out->line = stitch__waiting_line(s->k, "short_scoreboard", "mio_throttle");
    return true;
}

/* [BPG] "Local Memory". */
static bool spills(const stitch__subject *s, stitch__finding *out)
{
    double inst = metric(s, STITCH__METRIC_INST), local = s->g->local_requests;
    if (isnan(local) ? s->k->local < SPILL_BYTES : !(local > stitch__or(SPILLS_OF_INST * inst, 0)))
        return false;
    if (local > 0)
        say(out->evidence, "%s requests to local memory", stitch__count(local).s);
    if (local > 0 && s->g->requests >= 0)
        say(out->evidence, " beside %s to global memory", stitch__count(s->g->requests).s);
    if (s->k->local)
        say(out->evidence, "%s%" PRIu32 " bytes a thread, %" PRIu32 " registers", *out->evidence ? "; " : "",
            s->k->local, s->k->registers);
    if (local > 0 && s->g->requests >= 0)
        out->part = local / (local + s->g->requests) * memory_part(s);
    out->line = stitch__waiting_line(s->k, "long_scoreboard", "lg_throttle");
    if (s->k->registers >= 255)
        say(out->action, "The kernel has all 255 registers: split it, or give a thread less to do.");
    return true;
}

/* By counts alone: each factor is loaded for each product. */
static bool loads_factors(const stitch__subject *s, stitch__finding *out)
{
    double share, each = stitch__ratio(metric(s, STITCH__METRIC_FLOPS), metric(s, STITCH__METRIC_GLOBAL_BYTES));
    const stitch__line_fact *line = stitch__product_line(s->k, &share);
    if (!line || !isnan(s->g->time_us) || !(each < REUSE_POOR))
        return false;
    say(out->evidence,
        "%.2f operations for each byte loaded, %.0f %% of the instructions are at a line that sums products", each,
        100 * share);
    out->part = share;
    out->line = line;
    return true;
}

/* [NCU] memory chart: a level is at its peak while the one below is not. */
static bool cache_bound(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double throttle = stitch__stall_share(s->k, "lg_throttle"), level = stitch__most(g->l1, g->l2);
    bool busy = level >= STITCH__BOUND_FROM && level > g->dram, waits = throttle >= STITCH__WAIT_FROM;
    if (loads_factors(s, out))
        return true;
    if (!(g->dram < STITCH__BOUND_FROM) || (!busy && !waits) || g->compute > stitch__or(level, 1))
        return false;
    if (busy)
        say(out->evidence, "%s at %.0f %% of its peak, DRAM at %.0f %%", level == g->l1 ? "load/store pipe" : "L2",
            100 * level, 100 * g->dram);
    if (waits)
        say(out->evidence, "%swarps wait %.0f %% of it for a free slot in the load/store queue (lg_throttle)",
            busy ? "; " : "", 100 * throttle);
    double ffma = metric(s, STITCH__METRIC_FFMA), loads = g->load_requests;
    if (ffma > 0 && loads > 0)
        say(out->evidence, "; %.1f multiply-adds a load from global memory",
            stitch__or(stitch__ratio(ffma / WARP, loads), 0));
    if (isnan(g->sectors))
        say(out->action, "Whether accesses are coalesced was not counted: check that first.");
    out->part = 1 - fmax(g->dram, stitch__or(g->compute, 0));
    out->line = waits ? stitch__waiting_line(s->k, "lg_throttle", "long_scoreboard") : stitch__heaviest_line(s->k, 'w');
    return true;
}

/* [BPG] "L2 Cache". The bytes that an ideal kernel would move are not known from counters: reuse shows in requests. */
static bool l2_thrash(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double ideal = 32 * g->ideal, asked = 32 * g->load_sectors, read = metric(s, STITCH__METRIC_DRAM_READ);
    double hit = metric(s, STITCH__METRIC_L2_HIT) / 100;
    if (!(g->dram >= STITCH__BOUND_FROM))
        return false;
    if (g->dram_bytes >= OVER_IDEAL * ideal && ideal > 0) {
        say(out->evidence, "DRAM moves %.3g MB, %.3g MB are asked for", g->dram_bytes / 1e6, ideal / 1e6);
        out->part = 1 - ideal / g->dram_bytes;
    } else if (stitch__ratio(asked, read) >= REUSE_FROM && hit < L2_HIT_POOR) {
        say(out->evidence, "each byte from DRAM is asked for %.1f times, but L2 hits are %.0f %% (DRAM reads %.3g MB)",
            asked / read, 100 * hit, read / 1e6);
        out->part = 1 - fmax(stitch__or(g->compute, 0), read / asked);
    } else {
        return false;
    }
    return true;
}

static bool memory_bound_near_limit(const stitch__subject *s, stitch__finding *out)
{
    if (!(s->g->dram >= STITCH__REACHED_FROM))
        return false;
    say(out->evidence, "DRAM at %.0f %% of its ceiling, %.0f GB/s", 100 * s->g->dram, stitch__or(s->g->gb_s, 0));
    out->part = 1 - s->g->dram;
    return true;
}

/* ---- arithmetic ---- */

static bool compute_bound_near_limit(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    if (!(g->compute >= STITCH__REACHED_FROM) || g->compute < g->memory || g->compute == g->xu || g->compute == g->fp64)
        return false;
    say(out->evidence, "%s at %.0f %%", g->compute_part, 100 * g->compute);
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
    say(out->evidence, "%s pipe at %.0f %% of its peak, the next part at %.0f %%", name, 100 * share, 100 * rest);
    out->part = 1 - rest / share;
    out->line = stitch__waiting_line(s->k, "math_pipe_throttle", "math_pipe_throttle");
    return true;
}

/* [PG] "Arithmetic Instructions": 16 results a clock and multiprocessor, an eighth of float32. */
static bool xu_bound(const stitch__subject *s, stitch__finding *out)
{
    return pipe_bound(s, s->g->xu, "special-function (XU)", out);
}

static bool fp64_bound(const stitch__subject *s, stitch__finding *out)
{
    return pipe_bound(s, s->g->fp64, "float64", out);
}

/* Compute-bound by what is not the arithmetic that anyone asked for. */
static bool instruction_bound(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double most = stitch__most(g->issue, g->alu), rest = fmax(stitch__or(g->fma, 0), stitch__or(g->tensor, 0));
    rest = fmax(rest, fmax(stitch__or(g->xu, 0), stitch__or(g->fp64, 0)));
    if (!(most >= STITCH__BOUND_FROM) || g->memory > most || rest >= STITCH__BOUND_FROM || isnan(g->fma))
        return false;
    say(out->evidence, "%s at %.0f %%, the arithmetic pipes at %.0f %% at the most",
        most == g->issue ? "issue slots" : "integer pipe", 100 * most, 100 * rest);
    out->part = 1 - fmax(rest, stitch__or(g->memory, 0)) / most;
    out->line = stitch__heaviest_line(s->k, 'w');
    return true;
}

/* The kernel sums products: by its counters, or, where those are not known, by the text of its hottest line. */
static bool multiplies(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double ffma = metric(s, STITCH__METRIC_FFMA);
    double share;
    const stitch__line_fact *line = stitch__product_line(s->k, &share);
    out->line = line;
    if (!isnan(ffma)) {
        say(out->evidence, "no tensor instruction, %s multiply-adds (%.0f a thread)", stitch__count(ffma).s,
            stitch__or(stitch__ratio(ffma, g->blocks * g->threads), 0));
        return ffma >= PRODUCT_TERMS * g->blocks * g->threads &&
               (g->intensity >= PRODUCT_INTENSITY || g->fma >= STITCH__BOUND_FROM);
    }
    if (!line || s->g->dram >= STITCH__BOUND_FROM)
        return false;
    say(out->evidence, "no tensor instruction, and %.0f %% of the %s are at a line that sums products", 100 * share,
        line->samples ? "samples" : "instructions");
    return true;
}

/* [PG] "Warp Matrix Functions". */
static bool tensor_unused(const stitch__subject *s, stitch__finding *out)
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
        say(out->evidence, "; %.3g TFLOP/s where tensor cores do %.0f", g->tflops, matrix);
    say(out->action, "%s", stitch__products_hint(s->f->precision));
    return out->part > 0;
}

/* ---- parallelism ---- */

static bool low_occupancy(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    if (!(g->occupancy < (isnan(g->reached) ? OCCUPANCY_POOR : OCCUPANCY_ENOUGH)) || near_limit(s) ||
        g->tensor >= TENSOR_BUSY || (s->k->waves > 0 && s->k->waves < 1))
        return false;
    say(out->evidence,
        "%.0f %% of the warps that fit%s%.40s: block of %.0f threads, %" PRIu32 " registers, %" PRIu64
        " bytes of shared memory",
        100 * g->occupancy, *s->k->limiter ? ", limited by " : "", s->k->limiter, stitch__or(g->threads, 0),
        s->k->registers, (uint64_t)s->k->static_shared + s->k->dynamic_shared);
    say(out->action, "%s", stitch__limiter_hint(s->k->limiter));
    out->part = fmin(1 - stitch__or(g->reached, 0), 1 - g->occupancy / OCCUPANCY_ENOUGH);
    out->line = stitch__waiting_line(s->k, "long_scoreboard", "short_scoreboard");
    return true;
}

/* [NCU] tail effect: a wave that is not full takes as long as a full one. */
static bool tail_effect(const stitch__subject *s, stitch__finding *out)
{
    double waves = stitch__measured(s->k->waves), lost = (ceil(waves) - waves) / ceil(waves);
    if (!(waves > 1) || !(lost >= TAIL_FROM) || near_limit(s) || isnan(s->g->time_us))
        return false;
    say(out->evidence, "%.0f blocks are %.2f waves: the last one keeps %.0f %% of the device busy",
        stitch__or(s->g->blocks, 0), waves, 100 * (waves - floor(waves)));
    out->part = lost;
    return true;
}

/* [BPG] "Thread and Block Heuristics": more blocks than multiprocessors. Grids of the simulator are those of reduced
 * sizes: only what is timed. */
static bool small_grid(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    if (!(g->blocks <= GRID_FULL * g->multiprocessors) || near_limit(s) || isnan(g->time_us))
        return false;
    say(out->evidence, "%.0f blocks of %.0f threads on %.0f multiprocessors", g->blocks, stitch__or(g->threads, 0),
        g->multiprocessors);
    out->part = fmin(1 - g->blocks / g->multiprocessors, 1 - STITCH__EMPTY_KERNEL_US / g->time_us);
    return out->part > 0;
}

static bool partial_warps(const stitch__subject *s, stitch__finding *out)
{
    double warps = ceil(s->g->threads / WARP), lost = 1 - s->g->threads / (WARP * warps);
    if (!(lost >= 1 - GRID_FULL) || near_limit(s))
        return false;
    say(out->evidence, "blocks of %.0f threads: the last of %.0f warps has %.0f lanes", s->g->threads, warps,
        s->g->threads - WARP * (warps - 1));
    out->part = lost;
    return true;
}

static bool uneven_blocks(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    if (!(g->achieved_occupancy < UNEVEN_BELOW * g->occupancy) || !(s->k->waves >= 1) || near_limit(s))
        return false;
    say(out->evidence, "%.0f %% of the warps that fit are active on the average, %.0f %% could be",
        100 * g->achieved_occupancy, 100 * g->occupancy);
    out->part = fmin(1 - stitch__or(g->reached, 0), 1 - g->achieved_occupancy / g->occupancy);
    return true;
}

/* ---- waiting ---- */

/* Little's law: bytes or operations in flight = latency * throughput; too little is in flight. */
static bool latency_bound(const stitch__subject *s, stitch__finding *out)
{
    double share;
    const char *reason = stitch__stall_most(s->k, &share), *meaning, *hint = stitch__stall_hint(reason, &meaning);
    bool sampled = s->v->bound == STITCH__BOUND_UNKNOWN && *reason && share >= 2 * STITCH__WAIT_FROM;
    if ((s->v->bound != STITCH__BOUND_LATENCY && !sampled) ||
        (share >= STITCH__WAIT_FROM && strcmp(reason, "barrier") == 0))
        return false; /* barriers have a rule of their own */
    if (sampled)
        say(out->evidence, "counters are not known");
    else
        say(out->evidence, "%s at %.0f %%, %s at %.0f %%", s->g->memory_part, 100 * s->g->memory, s->g->compute_part,
            100 * s->g->compute);
    out->part = 1 - stitch__or(s->g->reached, 0);
    if (!*reason)
        return true;
    say(out->evidence, "; %.0f %% of waiting is %s%s%s", 100 * share, reason, *meaning ? ": " : "", meaning);
    say(out->action, "%s", hint);
    out->part = fmin(out->part, share);
    out->line = stitch__waiting_line(s->k, reason, reason);
    return true;
}

static bool barrier_stalls(const stitch__subject *s, stitch__finding *out)
{
    double share = stitch__stall_share(s->k, "barrier");
    if (!(share >= STITCH__WAIT_FROM) || near_limit(s))
        return false;
    say(out->evidence, "%.0f %% of the waiting of warps is at barriers, blocks of %.0f threads", 100 * share,
        stitch__or(s->g->threads, 0));
    out->part = fmin(share, 1 - stitch__or(s->g->reached, 0));
    out->line = stitch__waiting_line(s->k, "barrier", "barrier");
    return true;
}

/* [BPG] "Branching and Divergence". */
static bool divergence(const stitch__subject *s, stitch__finding *out)
{
    double branches = metric(s, STITCH__METRIC_BRANCHES), split = metric(s, STITCH__METRIC_DIVERGENT_BRANCHES);
    if (s->g->memory >= STITCH__BOUND_FROM)
        return false;
    if (s->g->lanes < LANES_FROM) {
        say(out->evidence, "%.1f of 32 lanes do something in an instruction", WARP * s->g->lanes);
        out->part = 1 - s->g->lanes;
    } else if (split >= DIVERGENT_FROM * branches && split > 0) {
        say(out->evidence, "%s of %s branches split their warp", stitch__count(split).s, stitch__count(branches).s);
        out->part = 0.5 * fmin(split / branches, 1); /* two halves, one after the other */
    } else {
        return false;
    }
    out->line = stitch__waiting_line(s->k, "branch_resolving", "branch_resolving");
    return true;
}

static bool atomic_contention(const stitch__subject *s, stitch__finding *out)
{
    double atomics = metric(s, STITCH__METRIC_ATOMICS), same = metric(s, STITCH__METRIC_ATOMIC_COLLISIONS);
    if (atomics > 0 && same >= COLLISIONS_FROM * atomics) {
        say(out->evidence, "%s of %s atomic operations go to an address that another lane of the warp goes to",
            stitch__count(same).s, stitch__count(atomics).s);
        out->part = fmin(same / atomics, 1);
    }
    for (size_t i = 0; i < stitch__lines_of(s->k); i++) {
        const stitch__line_fact *l = &s->k->lines[i];
        double share = l->samples ? stitch__line_share(s->k, l) : NAN;
        if (!strstr(l->text, "atomic") && !strstr(l->text, "red."))
            continue;
        if (share >= STITCH__WAIT_FROM) {
            say(out->evidence, "%s%.0f %% of the samples are at an atomic operation", *out->evidence ? "; " : "",
                100 * share);
            out->part = fmax(out->part, share);
        }
        out->line = l;
        break;
    }
    return *out->evidence != 0;
}

/* ---- steps ---- */

static bool conversions(const stitch__subject *s, stitch__finding *out)
{
    const stitch__step_fact *step = stitch__step_of(s->f, s->k->step);
    if (!step || !step->moves_only || !(s->g->share >= MOVES_FROM || isnan(s->g->time_us)))
        return false;
    const stitch__step_fact *next = stitch__step_of(s->f, step->next);
    say(out->evidence, "%.60s computes nothing", step->place);
    if (next)
        say(out->evidence, "; %.3g MB in %.60s go on to %.60s", (double)step->between_bytes / 1e6, step->between,
            next->place);
    out->part = 1;
    return true;
}

/* A chain of steps in one kernel: what is handed on is neither written nor read, and launches are saved. */
static bool fusable_neighbours(const stitch__subject *s, stitch__finding *out)
{
    const stitch__ceilings *c = &s->f->ceilings;
    double launch = s->f->graph ? c->graph_node_us : c->launch_us, bytes = 0, time = 0, longest = 0, gain = 0;
    int count = 0;
    bool timed = true;
    for (int32_t at = s->step, next; at >= 0; at = next) {
        const stitch__step_fact *step = &s->f->steps[at];
        double launches, here = stitch__step_time(s, at, &launches);
        timed &= !isnan(here);
        time += here;
        longest = fmax(longest, here);
        next = stitch__fusable_next(s->f, at);
        if (next >= 0) {
            bytes += launches * (double)step->between_bytes;
            gain += launch > 0 ? launches * launch : 0;
        }
        if (count < 4)
            say(out->evidence, "%s%.40s (%.40s)", count ? ", " : "", step->place, stitch__step_name(step));
        count++;
    }
    if (count < 2)
        return false;
    say(out->evidence, "%s hand on %.3g MB that nothing else reads", count > 4 ? " and more" : "", bytes / 1e6);
    if (c->dram_gb_s > 0)
        gain += 2 * bytes / (c->dram_gb_s * 1e3); /* written and read */
    out->gain_us = timed ? fmin(gain, fmax(time - longest, 0)) : gain;
    return true;
}

/* ---- the run ---- */

/* The run's time, or NAN, with which nothing holds. */
static double run_time(const stitch__subject *s)
{
    return s->run->time_us > 0 ? s->run->time_us : NAN;
}

static bool launch_bound(const stitch__subject *s, stitch__finding *out)
{
    const stitch__run_figures *r = s->run;
    double nodes = s->f->ceilings.graph_node_us;
    if (s->f->graph || s->f->launches < SEVERAL || !(r->launch_us >= LAUNCHES_FROM * run_time(s)) ||
        !(r->kernel_us < HIDES_LAUNCH_US))
        return false;
    say(out->evidence, "%" PRIu64 " kernels of %.1f us, one by one; the device is idle for %.1f of %.1f us in between",
        s->f->launches, r->kernel_us, r->launch_us, r->time_us);
    out->gain_us = fmax(r->launch_us - (nodes > 0 ? nodes * (double)(s->f->launches - 1) : 0), 0);
    return true;
}

static bool many_small_kernels(const stitch__subject *s, stitch__finding *out)
{
    const stitch__run_figures *r = s->run;
    double cost = r->launch_us + ((double)s->f->launches - 1) * fmin(STITCH__EMPTY_KERNEL_US, r->kernel_us);
    if (s->f->launches < SEVERAL || !(r->kernel_us <= SMALL_US) || !(cost >= LAUNCHES_FROM * run_time(s)))
        return false;
    say(out->evidence, "%" PRIu64 " kernels of %.1f us; starting and ending them takes about %.1f of %.1f us%s",
        s->f->launches, r->kernel_us, fmin(cost, r->time_us), r->time_us,
        s->f->graph ? ", although it is a graph" : "");
    out->gain_us = cost;
    return true;
}

static bool host_bound(const stitch__subject *s, stitch__finding *out)
{
    if (!(s->run->host_us >= WAITS_FROM * run_time(s)))
        return false;
    say(out->evidence, "the device is idle for %.1f of %.1f us while the host is in no CUDA call", s->run->host_us,
        s->run->time_us);
    out->gain_us = s->run->host_us;
    return true;
}

static bool sync_bound(const stitch__subject *s, stitch__finding *out)
{
    if (!(s->run->sync_us >= WAITS_FROM * run_time(s)))
        return false;
    say(out->evidence, "the device is idle for %.1f of %.1f us while the host still waits for it", s->run->sync_us,
        s->run->time_us);
    out->gain_us = s->run->sync_us;
    return true;
}

/* [BPG] "Data Transfer Between Host and Device": pinned, asynchronous, few and large, or none. */
static bool host_copies(const stitch__subject *s, stitch__finding *out)
{
    double time = stitch__measured(s->f->host_copy_us);
    if (!(time >= WAITS_FROM * run_time(s)))
        return false;
    say(out->evidence, "%.1f of %.1f us copy %.3g MB between host and device at %.1f GB/s", time, s->run->time_us,
        (double)s->f->host_copy_bytes / 1e6, stitch__or(stitch__ratio((double)s->f->host_copy_bytes / 1e3, time), 0));
    if (s->f->pageable_copies)
        say(out->evidence, ", %" PRIu64 " of the copies with memory that is not pinned", s->f->pageable_copies);
    out->gain_us = time;
    return true;
}

static bool redundant_copies(const stitch__subject *s, stitch__finding *out)
{
    double time = stitch__measured(s->f->copy_us) - stitch__or(stitch__measured(s->f->host_copy_us), 0);
    size_t steps = 0, first = 0;
    for (size_t i = s->f->step_count; i-- > 0;) {
        const stitch__step_fact *step = &s->f->steps[i];
        if (step->moves_only && (strcmp(step->kind, "copy") == 0 || strcmp(step->kind, "fill") == 0)) {
            steps++;
            first = i;
        }
    }
    if (!(time >= COPIES_FROM * run_time(s)) && !(steps && !(s->run->time_us > 0)))
        return false;
    if (s->run->time_us > 0)
        say(out->evidence, "%.1f of %.1f us are copies and fills within the device (%" PRIu64 " and %" PRIu64 ")", time,
            s->run->time_us, s->f->copies, s->f->fills);
    if (steps)
        say(out->evidence, "%s%zu steps of the program do nothing else, the first is %.60s", *out->evidence ? "; " : "",
            steps, s->f->steps[first].place);
    out->gain_us = s->run->time_us > 0 ? time : 0;
    return true;
}

/* ---- the table ---- */

#define KERNEL  STITCH__RULE_KERNEL
#define STEPS   STITCH__RULE_STEPS
#define RUN     STITCH__RULE_RUN
#define LIBRARY STITCH__RULE_LIBRARY
#define INFORMS STITCH__RULE_INFORMS

/* Causes before what they cause: a rule hides only rules that come after it. The columns are those of stitch__rule. */
static const stitch__rule rules[] = {
    {"conversions", KERNEL, LIBRARY, conversions, "a step only moves or converts, with 5 % of the kernels' time",
     "A whole kernel only moves or converts data between two steps.",
     "Let the step before write, or the step after read, the data in that form.",
     " memory_bound_near_limit latency_bound cache_bound "},
    {"small_grid", KERNEL, 0, small_grid, "fewer blocks than 90 % of the multiprocessors",
     "The grid has fewer blocks than the device has multiprocessors.",
     "Split the work more finely: smaller tiles, a split of the reduction (split-K, several blocks a row), or several "
     "problems in one launch.",
     " tail_effect low_occupancy uneven_blocks latency_bound partial_warps "},
    {"uncoalesced", KERNEL, 0, uncoalesced,
     "more than 16.5 sectors a request; above 4.5 if warps wait for memory; counted: 1.5 times what is asked for",
     "Threads of a warp access global memory far apart, so that most of each 32-byte sector is moved for nothing.",
     "Let threadIdx.x run along the dimension that is contiguous in memory; go through a tile in shared memory where "
     "input and output run along different ones.",
     " l2_thrash memory_bound_near_limit cache_bound latency_bound "},
    {"bank_conflicts", KERNEL, 0, bank_conflicts, "20 % of the wavefronts of shared memory are repeats, and it is busy",
     "Threads of a warp access different words of the same bank of shared memory, one after the other.",
     "Pad the rows of the array in shared memory by one element (tile[32][33]), or swizzle the index (column ^ row).",
     " cache_bound latency_bound "},
    {"spills", KERNEL, 0, spills, "0.5 % of the instructions use local memory; without counters 16 bytes a thread",
     "Values of a thread lie in local memory, which is global memory behind the caches.",
     "Fewer values alive at once (smaller tiles a thread, less unrolling), a larger register limit "
     "(__launch_bounds__), and constant indices into local arrays.",
     " latency_bound cache_bound "},
    {"atomic_contention", KERNEL, 0, atomic_contention,
     "25 % of atomic lanes meet another of their warp, or 20 % of the samples are at a line with an atomic operation",
     "Many threads update the same addresses atomically and wait for each other.",
     "Add up within the warp (__reduce_add_sync, shuffles) and the block (shared memory) first: one atomic a block.",
     " latency_bound cache_bound "},
    {"tensor_unused", KERNEL, LIBRARY, tensor_unused,
     "no tensor instruction, 32 or more multiply-adds a thread at 8 operations a byte, and the policy allows products",
     "The kernel multiplies matrices on float32 units; tensor cores do nothing.",
     "Use tensor cores: mma.sync or wgmma on tiles in shared memory (fed by cp.async or TMA), or a product of the "
     "library.",
     " compute_bound_near_limit "},
    {"barrier_stalls", KERNEL, 0, barrier_stalls, "20 % of the waiting is at barriers",
     "Warps wait for the others of their block at barriers.",
     "Fewer barriers (double buffering, __syncwarp() where a warp is enough), smaller blocks, or the same work for "
     "each "
     "warp.",
     ""},
    {"fp64_bound", KERNEL, 0, fp64_bound, "float64 pipe at 60 %, nothing else above it",
     "float64 arithmetic bounds the kernel.",
     "Use float32 where it is precise enough, and float literals (1.0f) and functions (expf) where no double is meant.",
     ""},
    {"xu_bound", KERNEL, 0, xu_bound, "special-function pipe at 60 %, nothing else above it",
     "Special functions (exp, log, sin, rsqrt, divisions, conversions) bound the kernel: an eighth of the rate of "
     "float32.",
     "Evaluate fewer of them (common factors, exp2 with a folded constant, once a row instead of once an element), or "
     "a part by polynomials on the float32 pipe.",
     ""},
    {"instruction_bound", KERNEL, 0, instruction_bound,
     "issue slots or the integer pipe at 60 %, every arithmetic pipe below",
     "Most instructions are not the kernel's arithmetic: indices, conversions, loads and stores of single values, "
     "loops.",
     "Wider accesses (float4), indices worked out once outside of loops (32-bit ones), unrolled inner loops, more "
     "results "
     "a thread.",
     " compute_bound_near_limit "},
    {"l2_thrash", KERNEL, 0, l2_thrash, "DRAM at 60 %, data asked for twice or more, L2 hits below 50 %",
     "Data is used again but comes from DRAM again: what runs at once needs more than L2 holds.",
     "Order the blocks so that neighbours in time share tiles (groups of rows and columns), use larger tiles, or split "
     "the work into parts that fit L2.",
     " memory_bound_near_limit "},
    {"cache_bound", KERNEL, 0, cache_bound,
     "L1 or L2 at 60 %, or 20 % of the waiting for the load queue, DRAM below 60 %; counted: sums of products with "
     "less than an operation a byte",
     "The way to the caches bounds the kernel, not DRAM: too many loads and stores for what they bring.",
     "Keep tiles in shared memory, and several results a thread in registers, so that a loaded value is used many "
     "times; "
     "load 16 bytes at once.",
     " latency_bound "},
    {"memory_bound_near_limit", KERNEL, INFORMS, memory_bound_near_limit, "DRAM at 80 % of its ceiling",
     "The kernel moves data as fast as the device can.",
     "Only less traffic helps: fuse it with its neighbours, keep intermediates on chip, smaller types.",
     " partial_warps divergence "},
    {"compute_bound_near_limit", KERNEL, INFORMS, compute_bound_near_limit,
     "an arithmetic pipe, tensor cores or issue slots at 80 %", "The kernel computes as fast as that unit can.",
     "Only less arithmetic helps: fewer operations, a faster unit or a smaller type.", ""},
    {"partial_warps", KERNEL, 0, partial_warps, "10 % of the lanes of a block's warps do not exist",
     "The block size is no multiple of 32: its last warp has idle lanes.", "Use a multiple of 32 threads a block.",
     " divergence "},
    {"divergence", KERNEL, 0, divergence, "less than 24 of 32 lanes active, or 20 % of the branches split their warp",
     "Threads of a warp take different ways, one after the other.",
     "Let whole warps take the same way: sort or group the work, move the condition to the index, or compute both and "
     "select.",
     ""},
    {"low_occupancy", KERNEL, 0, low_occupancy, "below 50 % (25 % without counters), far from every limit",
     "Too few warps fit on a multiprocessor to cover the time that each waits.",
     "Let more warps fit, or give each more "
     "independent work.",
     " latency_bound "},
    {"tail_effect", KERNEL, 0, tail_effect, "more than one wave, and what the last one leaves idle is 15 % of the time",
     "The last wave of blocks leaves most of the device idle.",
     "Choose tiles or a grid-stride loop so that the blocks are a whole number of waves.", " uneven_blocks "},
    {"uneven_blocks", KERNEL, 0, uneven_blocks, "achieved occupancy below 60 % of the theoretical one",
     "Multiprocessors run out of blocks long before the kernel ends: some blocks have much more to do.",
     "Split large pieces of work, start them first, or let blocks fetch work from a counter.", ""},
    {"latency_bound", KERNEL, 0, latency_bound, "no unit at 60 % and nothing else explains it",
     "Warps wait most of the time, and no part of the device is busy.", "", ""},
    {"host_copies", RUN, 0, host_copies, "10 % of the run's time",
     "Copies between host and device are a large part of the run.",
     "Keep the data on the device, copy what is needed once, from pinned memory (cuMemAllocHost), asynchronously "
     "beside "
     "kernels.",
     ""},
    {"host_bound", RUN, 0, host_bound, "10 % of the run's time", "The device waits for the host's own code.",
     "Launch ahead of the device, do the host's work beside it, or record the launches in a CUDA graph once.", ""},
    {"sync_bound", RUN, 0, sync_bound, "10 % of the run's time",
     "The host waits for the device and launches the next work only then.",
     "Synchronise once at the end; order work by streams and events; leave results that decide the next launch on the "
     "device.",
     ""},
    {"launch_bound", RUN, 0, launch_bound, "4 or more kernels below 10 us, 20 % of the run idle in launches, no graph",
     "Short kernels are launched one by one, and the device waits for each launch.",
     "Run them as one CUDA graph, and fuse what follows each other.", " many_small_kernels "},
    {"many_small_kernels", RUN, 0, many_small_kernels,
     "4 or more kernels up to 5 us; gaps and what empty kernels take are 20 % of the run",
     "The run is many kernels that are hardly longer than their start.",
     "Fuse them: elementwise steps into their producers, or a persistent kernel with grid-wide barriers.", ""},
    {"redundant_copies", RUN, 0, redundant_copies, "5 % of the run's time; steps that copy, where nothing is timed",
     "Copies and fills within the device move data that a kernel could have written where it is wanted.",
     "Let the producer write into the final place, and read through an offset or stride; fill in the kernel that uses "
     "the buffer.",
     ""},
    {"fusable_neighbours", STEPS, 0, fusable_neighbours, "a buffer that one step alone writes and one alone reads",
     "Steps hand data on through memory that one kernel could keep in registers or shared memory.",
     "Fuse them into one kernel (the epilogue of a product, one pass over the row).", ""},
};

const stitch__rule *stitch__rules(size_t *count)
{
    *count = STITCH__COUNT(rules);
    return rules;
}

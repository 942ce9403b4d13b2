/* SPDX-License-Identifier: MIT
 *
 * Rules about how a kernel uses memory.
 */
#include <math.h>

#include "profile/rules.h"

/* ---- thresholds, with their reason ---- */

/* 32 lanes * 4 bytes are 4 sectors of 32 bytes, 32 lanes * 16 bytes (the widest access) are 16. */
#define SECTORS_OF_4_BYTES  4.0
#define SECTORS_OF_16_BYTES 16.0
#define SECTORS_SLACK       0.5 /* an odd start of a row costs a part of a sector */
/* What lies side by side takes a sector more than its bytes at the most, wherever it begins: every other float
 * takes 1.6 times as much as that. */
#define SECTORS_OVER_CONTIGUOUS 1.25
/* Rows that do not begin at 32 bytes cost 5 sectors for 4: that is not yet a wrong pattern. */
#define SECTORS_OVER_IDEAL 1.5
/* The counter is not exactly 0 for kernels without conflicts: the data stage has other reasons to repeat. */
#define CONFLICTS_FROM 0.20
/* Below 0.5 % of all instructions, local memory is used outside of loops. 16 bytes are four values. */
#define SPILLS_OF_INST 0.005
#define SPILL_BYTES    16
#define REGISTERS_MOST 255
/* What a kernel starts without in L2 is read once; half as much again is data that L2 has lost meanwhile. */
#define OVER_IDEAL 1.5
/* Tiles lie in shared memory already. */
#define SHARED_FROM 0.50
/* A multiply-add whose two float32 factors are both loaded makes 0.25 operations a byte; tiles make far more than 1. */
#define REUSE_POOR 1.0

/* ---- conditions ---- */

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

/* Sectors of a request beyond those that its bytes need, if it is clear that they are too many: where it is not known
 * how wide the accesses are, 8 or 16 can be float2 or float4. */
static double wasted_sectors(double each, double asked)
{
    double need = each * asked / STITCH__SECTOR_BYTES;
    if (isnan(asked))
        return each > SECTORS_OF_16_BYTES + SECTORS_SLACK ? each - SECTORS_OF_4_BYTES : 0;
    return each >= SECTORS_OVER_CONTIGUOUS * (need + 1) ? each - fmax(need, 1) : 0;
}

static void say_sectors(stitch__finding *out, const char *what, double each, double asked)
{
    if (!(each > 0))
        return;
    stitch__say(out->evidence, *out->evidence ? ", %.1f a %s request" : "%.1f sectors a %s request", each, what);
    if (!isnan(asked))
        stitch__say(out->evidence, " (%.3g bytes of each are asked for)", asked);
}

/* [BPG] "Coalesced Access to Global Memory"; [NCU] memory tables, sectors/req. */
bool stitch__rule_uncoalesced(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double wasted;
    if (!(g->sectors > 0) || (g->compute >= STITCH__BOUND_FROM && g->compute > g->memory))
        return false;
    if (!isnan(g->ideal)) {
        wasted = g->sectors - g->ideal;
        if (!(g->sectors >= SECTORS_OVER_IDEAL * g->ideal))
            return false;
        stitch__say(out->evidence, "%s sectors of 32 bytes move where %s would hold what is asked for (%.1f times)",
                    stitch__count(g->sectors).s, stitch__count(g->ideal).s, g->sectors / fmax(g->ideal, 1));
        out->line = stitch__heaviest_line(s->k, 'g');
    } else {
        double load = stitch__ratio(g->load_sectors, g->load_requests);
        double store = stitch__ratio(g->store_sectors, g->store_requests);
        wasted = stitch__or(g->load_requests * wasted_sectors(load, g->load_asked), 0) +
                 stitch__or(g->store_requests * wasted_sectors(store, g->store_asked), 0);
        if (!(wasted > 0 && wasted >= STITCH__WAIT_FROM * g->sectors))
            return false;
        say_sectors(out, "load", load, g->load_asked);
        say_sectors(out, "store", store, g->store_asked);
        if (isnan(g->load_asked) && isnan(g->store_asked))
            stitch__say(out->evidence, "; 4-byte accesses of a warp to neighbouring addresses need 4, 16-byte ones 16");
        out->line = stitch__waiting_line(s->k, "long_scoreboard", "lg_throttle");
    }
    out->part = fmin(wasted / g->sectors, 1) * memory_part(s);
    return true;
}

/* [PG] "Shared Memory": 32 banks of 4 bytes; [NCU] wavefronts. */
bool stitch__rule_bank_conflicts(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double part = stitch__ratio(g->shared_wasted, g->shared_wavefronts);
    double waits = stitch__or(stitch__stall_share(s->k, "short_scoreboard"), 0) +
                   stitch__or(stitch__stall_share(s->k, "mio_throttle"), 0);
    double busy = stitch__or(stitch__most(g->l1, waits > 0 ? fmin(waits, 1) : NAN), 1);
    if (!(part >= CONFLICTS_FROM) || busy < STITCH__WAIT_FROM)
        return false;
    stitch__say(out->evidence, "%s of %s wavefronts of shared memory are repeats (%.1f-way on the average)",
                stitch__count(g->shared_wasted).s, stitch__count(g->shared_wavefronts).s,
                fmin(1 / fmax(1 - part, 1 / STITCH__WARP), STITCH__WARP));
    if (!isnan(g->l1))
        stitch__say(out->evidence, "; the load/store pipe is at %.0f %%", 100 * g->l1);
    out->part = fmin(fmin(part, 1) * busy, 1 - stitch__or(g->dram, 0));
    out->line = stitch__heaviest_line(s->k, 's');
    if (!out->line)
        out->line = stitch__waiting_line(s->k, "short_scoreboard", "mio_throttle");
    return true;
}

/* [BPG] "Local Memory". */
bool stitch__rule_spills(const stitch__subject *s, stitch__finding *out)
{
    double inst = stitch__metric_of(s->k, STITCH__METRIC_INST), local = s->g->local_requests;
    if (isnan(local) ? s->k->local < SPILL_BYTES : !(local > stitch__or(SPILLS_OF_INST * inst, 0)))
        return false;
    if (local > 0)
        stitch__say(out->evidence, "%s requests to local memory", stitch__count(local).s);
    if (local > 0 && s->g->requests >= 0)
        stitch__say(out->evidence, " beside %s to global memory", stitch__count(s->g->requests).s);
    if (s->k->local)
        stitch__say(out->evidence, "%s%" PRIu32 " bytes a thread, %" PRIu32 " registers", *out->evidence ? "; " : "",
                    s->k->local, s->k->registers);
    if (local > 0 && s->g->requests >= 0)
        out->part = local / (local + s->g->requests) * memory_part(s);
    out->line = stitch__waiting_line(s->k, "long_scoreboard", "lg_throttle");
    if (s->k->registers >= REGISTERS_MOST)
        stitch__say(out->action, "The kernel has all 255 registers: split it, or give a thread less to do.");
    else
        stitch__say(out->action, "A larger register limit, if there is one (__launch_bounds__, -maxrregcount).");
    return true;
}

/* Of what goes through the data stage of L1, the part that is shared memory's: a wavefront is 128 bytes of global
 * memory at the most. */
static double shared_part(const stitch__figures *g)
{
    return stitch__ratio(g->shared_wavefronts, g->shared_wavefronts + stitch__or(g->sectors, 0) / SECTORS_OF_4_BYTES);
}

static const char tiles_hint[] = "Keep what several threads load in shared memory.";

/* By counts alone: each factor is loaded for each product. */
static bool loads_factors(const stitch__subject *s, stitch__finding *out)
{
    double share, each = stitch__ratio(stitch__metric_of(s->k, STITCH__METRIC_FLOPS),
                                       stitch__metric_of(s->k, STITCH__METRIC_GLOBAL_BYTES));
    const stitch__line_fact *line = stitch__product_line(s->k, &share);
    if (!line || !isnan(s->g->time_us) || !(each < REUSE_POOR))
        return false;
    stitch__say(out->evidence,
                "%.2f operations for each byte loaded, %.0f %% of the instructions are at a line that sums products",
                each, 100 * share);
    stitch__say(out->action, "%s", tiles_hint);
    out->part = share;
    out->line = line;
    return true;
}

/* [NCU] memory chart: a level is at its peak while the one below is not. */
bool stitch__rule_cache_bound(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    double throttle = stitch__stall_share(s->k, "lg_throttle"), level = stitch__most(g->l1, g->l2);
    bool busy = level >= STITCH__BOUND_FROM && level > g->dram, waits = throttle >= STITCH__WAIT_FROM;
    if (loads_factors(s, out))
        return true;
    /* A queue that is full says more than L2 where L1 was not counted. */
    double nearest = !busy && isnan(g->l1) ? 1 : level;
    if (!(g->dram < STITCH__BOUND_FROM) || (!busy && !waits) || g->compute > nearest)
        return false;
    if (busy)
        stitch__say(out->evidence, "%s at %.0f %% of its peak, DRAM at %.0f %%",
                    level == g->l1 ? "load/store pipe" : "L2", 100 * level, 100 * g->dram);
    if (waits)
        stitch__say(out->evidence,
                    "%swarps wait, %.0f %% of that for a free slot in the load/store queue (lg_throttle)",
                    busy ? "; " : "", 100 * throttle);
    double ffma = stitch__metric_of(s->k, STITCH__METRIC_FFMA), loads = g->load_requests;
    if (ffma > 0 && loads > 0)
        stitch__say(out->evidence, "; %.1f multiply-adds a load from global memory",
                    stitch__or(stitch__ratio(ffma / STITCH__WARP, loads), 0));
    bool shared = !waits && level == g->l1 && shared_part(g) >= SHARED_FROM;
    if (shared)
        stitch__say(out->evidence, "; %.0f %% of what goes through it is shared memory's", 100 * shared_part(g));
    else
        stitch__say(out->action, "%s", tiles_hint);
    if (isnan(g->sectors))
        stitch__say(out->action, "%sWhether accesses are coalesced was not counted: check that first.",
                    *out->action ? " " : "");
    out->part = 1 - fmax(g->dram, stitch__or(g->compute, 0));
    out->line = waits    ? stitch__waiting_line(s->k, "lg_throttle", "long_scoreboard")
                : shared ? stitch__waiting_line(s->k, "short_scoreboard", "mio_throttle")
                         : stitch__heaviest_line(s->k, 'w');
    return true;
}

/* [BPG] "L2 Cache". What is asked for and what L2 finds do not tell: L1 serves reuse, too. So by what there is to read.
 */
bool stitch__rule_l2_thrash(const stitch__subject *s, stitch__finding *out)
{
    const stitch__figures *g = s->g;
    const stitch__step_fact *step = stitch__step_of(s->f, s->k->step);
    double ideal = 32 * g->ideal, read = stitch__metric_of(s->k, STITCH__METRIC_DRAM_READ);
    double given = step && step->bytes ? (double)step->bytes : NAN;
    if (!(g->dram >= STITCH__BOUND_FROM))
        return false;
    if (g->dram_bytes >= OVER_IDEAL * ideal && ideal > 0) {
        stitch__say(out->evidence, "DRAM moves %.3g MB, %.3g MB are asked for", g->dram_bytes / 1e6, ideal / 1e6);
        out->part = 1 - ideal / g->dram_bytes;
    } else if (read >= OVER_IDEAL * given) {
        stitch__say(out->evidence, "%.3g MB are read from DRAM, and all that the kernel is given are %.3g MB",
                    read / 1e6, given / 1e6);
        out->part = fmin(stitch__or(stitch__ratio(read - given, g->dram_bytes), 0), 1 - stitch__or(g->compute, 0));
    } else {
        return false;
    }
    return true;
}

bool stitch__rule_memory_bound_near_limit(const stitch__subject *s, stitch__finding *out)
{
    if (!(s->g->dram >= STITCH__REACHED_FROM))
        return false;
    stitch__say(out->evidence, "DRAM at %.0f %% of its ceiling", 100 * s->g->dram);
    if (s->g->gb_s > 0)
        stitch__say(out->evidence, ", %.0f GB/s", s->g->gb_s);
    double each = stitch__ratio(s->g->load_sectors, s->g->load_requests);
    if (isnan(s->g->load_asked) && each > SECTORS_OF_4_BYTES + SECTORS_SLACK)
        stitch__say(
            out->action,
            "A load of a warp takes %.1f sectors of 32 bytes: as it should be if a thread loads %.0f bytes at once, "
            "otherwise accesses are not coalesced.",
            each, each > 2 * SECTORS_OF_4_BYTES + SECTORS_SLACK ? 16.0 : 8.0);
    out->part = 1 - s->g->dram;
    return true;
}

/* SPDX-License-Identifier: MIT
 *
 * Pieces of the main loop (exec_run.h), compiled with it for each processor: lane arrays to memory and back, records of
 * written bytes and of accesses in the cases without a conflict, counting.
 */
#include "sim/exec.h"

#define ALL 0xffffffffu
#if defined(__clang__)
#define EACH_LANE _Pragma("clang loop vectorize(enable)") for (int i = 0; i < 32; i++)
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define EACH_LANE _Pragma("GCC ivdep") for (int i = 0; i < 32; i++)
#endif

static inline void blend32(uint32_t *d, const uint32_t *s, uint32_t mask)
{
    EACH_LANE d[i] = mask >> i & 1 ? s[i] : d[i];
}

static inline void blend64(uint64_t *d, const uint64_t *s, uint32_t mask)
{
    EACH_LANE d[i] = mask >> i & 1 ? s[i] : d[i];
}

/* ---- between memory and registers -------------------------------------------------------------------------------- */

/* One element of each of `n` lanes (16 or 32), at `s`, `s` + stride, ..., as 32- or 64-bit words. */
#define SPREAD(type)                                                                                                   \
    for (int i = 0; i < n; i++) {                                                                                      \
        type v;                                                                                                        \
        memcpy(&v, s + (size_t)i * stride, sizeof(v));                                                                 \
        if (wide)                                                                                                      \
            ((uint64_t *)d)[i] = (uint64_t)(int64_t)v;                                                                 \
        else                                                                                                           \
            ((uint32_t *)d)[i] = (uint32_t)v;                                                                          \
    }

static inline void spread_element(void *d, const uint8_t *s, size_t stride, int n, uint8_t size, bool sx, bool wide)
{
    switch (size) {
    case 4:
        if (wide && sx) {
            SPREAD(int32_t)
        } else if (wide) {
            SPREAD(uint32_t)
        } else if (stride == 4) {
            memcpy(d, s, (size_t)n * 4);
        } else if (stride == 0) {
            uint32_t v;
            memcpy(&v, s, 4);
            for (int i = 0; i < n; i++)
                ((uint32_t *)d)[i] = v;
        } else {
            for (int i = 0; i < n; i++)
                memcpy((uint32_t *)d + i, s + (size_t)i * stride, 4);
        }
        break;
    case 8:
        if (stride == 8)
            memcpy(d, s, (size_t)n * 8);
        else
            for (int i = 0; i < n; i++)
                memcpy((uint64_t *)d + i, s + (size_t)i * stride, 8);
        break;
    case 2:
        if (sx)
            SPREAD(int16_t)
        else
            SPREAD(uint16_t)
        break;
    default:
        if (sx)
            SPREAD(int8_t)
        else
            SPREAD(uint8_t)
        break;
    }
}

/* Loads for `n` lanes from lane `lane` on, whose offsets are multiples of stride: consecutive elements, or one for all
 * (stride 0). */
static inline void spread(uint8_t *regs, const stitch__instr *in, const uint8_t *from, size_t stride, int lane, int n)
{
    bool sx = in->flags & STITCH__IN_SIGNED, wide = in->flags & STITCH__IN_WIDE || in->size == 8;
    size_t width = wide ? 8 : 4;
    for (uint32_t k = 0; k < in->vec; k++) {
        uint8_t *d = regs + in->o[k] + (size_t)lane * width;
        const uint8_t *s = from + k * in->size;
        if (n == 32) /* numbers that the compiler knows */
            spread_element(d, s, stride, 32, in->size, sx, wide);
        else
            spread_element(d, s, stride, 16, in->size, sx, wide);
    }
}

static inline void gather(uint8_t *regs, const stitch__instr *in, const uint8_t *from, const uint32_t *offset)
{
    for (uint32_t k = 0; k < in->vec; k++) {
        const uint8_t *s = from + k * in->size;
        void *d = regs + in->o[k];
        bool sx = in->flags & STITCH__IN_SIGNED, wide = in->flags & STITCH__IN_WIDE || in->size == 8;
        if (in->size == 4 && !wide) {
            for (int i = 0; i < 32; i++)
                memcpy((uint32_t *)d + i, s + offset[i], 4);
            continue;
        }
        for (int i = 0; i < 32; i++) {
            uint64_t v = 0;
            memcpy(&v, s + offset[i], in->size);
            if (sx && in->size < 8)
                v = (uint64_t)((int64_t)(v << (64 - 8 * in->size)) >> (64 - 8 * in->size));
            if (wide)
                ((uint64_t *)d)[i] = v;
            else
                ((uint32_t *)d)[i] = (uint32_t)v;
        }
    }
}

static inline void scatter(stitch__exec *x, const stitch__instr *in, uint8_t *to, const uint32_t *offset)
{
    for (uint32_t k = 0; k < in->vec; k++) {
        uint8_t *d = to + k * in->size;
        const void *s = stitch__operand(x, in->o[1 + k]);
        size_t width = in->flags & STITCH__IN_WIDE || in->size == 8 ? 8 : 4;
        if (in->size == 4 && width == 4)
            for (int i = 0; i < 32; i++)
                memcpy(d + offset[i], (const uint32_t *)s + i, 4);
        else
            for (int i = 0; i < 32; i++)
                memcpy(d + offset[i], (const uint8_t *)s + (size_t)i * width, in->size);
    }
}

/* Stores of `n` lanes from lane `lane` on to consecutive elements. */
static inline void collect(stitch__exec *x, const stitch__instr *in, uint8_t *to, uint32_t lane, uint32_t n)
{
    size_t step = (size_t)in->size * in->vec, width = in->flags & STITCH__IN_WIDE || in->size == 8 ? 8 : 4;
    for (uint32_t k = 0; k < in->vec; k++) {
        uint8_t *d = to + k * in->size;
        const uint8_t *s = (const uint8_t *)stitch__operand(x, in->o[1 + k]) + lane * width;
        if (in->size == step && in->size == width)
            memcpy(d, s, n * step);
        else if (in->size == 4 && width == 4)
            for (uint32_t i = 0; i < n; i++)
                memcpy(d + i * step, s + 4 * (size_t)i, 4);
        else
            for (uint32_t i = 0; i < n; i++)
                memcpy(d + i * step, s + i * width, in->size);
    }
}

/* ---- written bytes ----------------------------------------------------------------------------------------------- */

static inline bool bits_set(const uint64_t *bits, uint64_t at, uint64_t count)
{
    const uint64_t *w = bits + at / 64;
    unsigned shift = at % 64;
    while (count) {
        uint64_t take = 64 - shift < count ? 64 - shift : count;
        uint64_t mask = (take == 64 ? ~UINT64_C(0) : (UINT64_C(1) << take) - 1) << shift;
        if ((*w & mask) != mask)
            return false;
        count -= take;
        shift = 0;
        w++;
    }
    return true;
}

static inline void set_bits(uint64_t *bits, uint64_t at, uint64_t count)
{
    uint64_t *w = bits + at / 64;
    unsigned shift = at % 64;
    while (count) {
        uint64_t take = 64 - shift < count ? 64 - shift : count;
        *w |= (take == 64 ? ~UINT64_C(0) : (UINT64_C(1) << take) - 1) << shift;
        count -= take;
        shift = 0;
        w++;
    }
}

/* Several host threads may write neighbouring bytes. */
static inline bool bits_set_shared(const _Atomic(uint64_t) *bits, uint64_t at, uint64_t count)
{
    const _Atomic(uint64_t) *w = bits + at / 64;
    unsigned shift = at % 64;
    while (count) {
        uint64_t take = 64 - shift < count ? 64 - shift : count;
        uint64_t mask = (take == 64 ? ~UINT64_C(0) : (UINT64_C(1) << take) - 1) << shift;
        if ((atomic_load_explicit(w, memory_order_relaxed) & mask) != mask)
            return false;
        count -= take;
        shift = 0;
        w++;
    }
    return true;
}

static inline void set_bits_shared(_Atomic(uint64_t) *bits, uint64_t at, uint64_t count)
{
    _Atomic(uint64_t) *w = bits + at / 64;
    unsigned shift = at % 64;
    while (count) {
        uint64_t take = 64 - shift < count ? 64 - shift : count;
        uint64_t mask = (take == 64 ? ~UINT64_C(0) : (UINT64_C(1) << take) - 1) << shift;
        if ((atomic_load_explicit(w, memory_order_relaxed) & mask) != mask)
            atomic_fetch_or_explicit(w, mask, memory_order_relaxed);
        count -= take;
        shift = 0;
        w++;
    }
}

/* ---- races: the cases without a conflict ------------------------------------------------------------------------- */

#if defined(__clang__)
#define VECTOR_LOOP
#else
#define VECTOR_LOOP _Pragma("GCC ivdep")
#endif

/* Bits of the 64-byte pieces of shared memory that [from, to) touches; they lie in at most two words. */
static inline bool lines_any(const uint64_t *bits, uint32_t from, uint32_t to)
{
    for (uint32_t i = from >> 6; i <= (to - 1) >> 6; i++)
        if (bits[i >> 6] >> (i & 63) & 1)
            return true;
    return false;
}

static inline void lines_set(uint64_t *bits, uint32_t from, uint32_t to)
{
    for (uint32_t i = from >> 6; i <= (to - 1) >> 6; i++)
        bits[i >> 6] |= UINT64_C(1) << (i & 63);
}

static inline unsigned log2_of(uint32_t each)
{
    return (unsigned)__builtin_ctz(each);
}

/* Consecutive lanes from `first_lane` on read the bytes [from, to) of shared memory, `each` granules a lane; `several`:
 * MULTILANE if other lanes read the same. False: there may be a conflict. */
static inline bool shared_read_run(stitch__exec *x, uint32_t from, uint32_t to, uint32_t each, uint32_t first_lane,
                                   uint64_t several, uint32_t pc)
{
    stitch__race *race = &x->block->race;
    uint32_t at = from >> x->shared_shift, n = (to >> x->shared_shift) - at;
    unsigned shift = log2_of(each);
    uint64_t full = x->block->full, key = x->prefix | x->warp->clock | (uint64_t)first_lane << STITCH__KEY_LANE_SHIFT,
             bad = 0;
    if (lines_any(race->wrote, from, to)) {
        const uint64_t *w = race->w + at;
        VECTOR_LOOP for (uint32_t i = 0; i < n; i++)
        {
            uint64_t mine = key + ((uint64_t)(i >> shift) << STITCH__KEY_LANE_SHIFT);
            bad |= (uint64_t)((int64_t)(w[i] & STITCH__KEY_CLOCK) >= (int64_t)full) &
                   (uint64_t)(((w[i] ^ mine) >> STITCH__KEY_LANE_SHIFT | several) != 0);
        }
        if (bad)
            return false;
    }
    if (!x->block->partial && bits_set(race->crowded, at, n))
        return true;
    lines_set(race->read, from, to);
    uint64_t *r = race->r + at, warp = (x->prefix >> STITCH__KEY_WARP_SHIFT) & 31, crowd = STITCH__KEY_MULTIWARP;
    uint32_t *rpc = race->rpc + at;
    VECTOR_LOOP for (uint32_t i = 0; i < n; i++)
    {
        uint64_t e = r[i], mine = key + ((uint64_t)(i >> shift) << STITCH__KEY_LANE_SHIFT);
        uint64_t live = 0 - (uint64_t)((int64_t)(e & STITCH__KEY_CLOCK) >= (int64_t)full);
        uint64_t same_warp = 0 - (uint64_t)(((e >> STITCH__KEY_WARP_SHIFT) & 31) == warp);
        uint64_t now = 0 - (uint64_t)(((e ^ mine) & STITCH__KEY_CLOCK) == 0); /* no __syncwarp() since */
        uint64_t other_lane = 0 - (uint64_t)(((e ^ mine) & (UINT64_C(31) << STITCH__KEY_LANE_SHIFT)) != 0);
        uint64_t flags = (e & STITCH__KEY_MULTIWARP) | (same_warp & now & (e | other_lane) & STITCH__KEY_MULTILANE) |
                         (~same_warp & STITCH__KEY_MULTIWARP);
        uint64_t next = mine | several | (live & flags);
        crowd &= next;
        r[i] = next;
        rpc[i] = pc;
    }
    if (crowd)
        set_bits(race->crowded, at, n);
    return true;
}

static inline bool shared_write_run(stitch__exec *x, uint32_t from, uint32_t to, uint32_t each, uint32_t first_lane,
                                    uint32_t pc)
{
    stitch__race *race = &x->block->race;
    uint32_t at = from >> x->shared_shift, n = (to >> x->shared_shift) - at;
    unsigned shift = log2_of(each);
    uint64_t *w = race->w + at, full = x->block->full, bad = 0;
    uint64_t key = x->prefix | x->warp->clock | (uint64_t)first_lane << STITCH__KEY_LANE_SHIFT;
    uint32_t *wpc = race->wpc + at;
    if (lines_any(race->wrote, from, to) || lines_any(race->read, from, to)) {
        const uint64_t *r = race->r + at;
        VECTOR_LOOP for (uint32_t i = 0; i < n; i++)
        {
            uint64_t mine = key + ((uint64_t)(i >> shift) << STITCH__KEY_LANE_SHIFT);
            bad |= (uint64_t)((int64_t)(w[i] & STITCH__KEY_CLOCK) >= (int64_t)full) &
                   (uint64_t)((w[i] ^ mine) >> STITCH__KEY_LANE_SHIFT != 0);
            bad |= (uint64_t)((int64_t)(r[i] & STITCH__KEY_CLOCK) >= (int64_t)full) &
                   (uint64_t)((r[i] ^ mine) >> STITCH__KEY_LANE_SHIFT != 0);
        }
        if (bad)
            return false;
    }
    lines_set(race->wrote, from, to);
    VECTOR_LOOP for (uint32_t i = 0; i < n; i++)
    {
        w[i] = key + ((uint64_t)(i >> shift) << STITCH__KEY_LANE_SHIFT);
        wpc[i] = pc;
    }
    return true;
}

static inline bool shared_write_one(stitch__exec *x, uint32_t from, uint32_t size, uint64_t lane, uint32_t pc)
{
    stitch__race *race = &x->block->race;
    uint64_t mine = x->prefix | x->warp->clock | lane << STITCH__KEY_LANE_SHIFT, full = x->block->full;
    uint32_t line = from >> 6;
    uint64_t bit = UINT64_C(1) << (line & 63);
    bool seen = (race->wrote[line >> 6] | race->read[line >> 6]) & bit;
    race->wrote[line >> 6] |= bit;
    for (uint32_t g = from >> x->shared_shift, end = (from + size) >> x->shared_shift; g < end; g++) {
        uint64_t w = race->w[g], r = race->r[g];
        if (seen && (((w & STITCH__KEY_CLOCK) >= full && (w ^ mine) >> STITCH__KEY_LANE_SHIFT) ||
                     ((r & STITCH__KEY_CLOCK) >= full && (r ^ mine) >> STITCH__KEY_LANE_SHIFT)))
            return false;
        race->w[g] = mine;
        race->wpc[g] = pc;
    }
    return true;
}

/* One read of an element by one lane, or by several (`several` MULTILANE). */
static inline bool shared_read_one(stitch__exec *x, uint32_t from, uint32_t size, uint64_t lane, uint64_t several,
                                   uint32_t pc)
{
    stitch__race *race = &x->block->race;
    uint64_t mine = x->prefix | x->warp->clock | lane << STITCH__KEY_LANE_SHIFT, full = x->block->full;
    uint32_t line = from >> 6; /* an aligned element lies in one piece */
    uint64_t bit = UINT64_C(1) << (line & 63);
    bool wrote = race->wrote[line >> 6] & bit;
    race->read[line >> 6] |= bit;
    for (uint32_t g = from >> x->shared_shift, end = (from + size) >> x->shared_shift; g < end; g++) {
        uint64_t e = race->w[g], more = several;
        if (wrote && (e & STITCH__KEY_CLOCK) >= full && (several || (e ^ mine) >> STITCH__KEY_LANE_SHIFT))
            return false;
        if (!x->block->partial && race->crowded[g >> 6] >> (g & 63) & 1)
            continue;
        e = race->r[g];
        if ((e & STITCH__KEY_CLOCK) >= full && (e ^ mine) >> STITCH__KEY_LANE_SHIFT) {
            more |= e & STITCH__KEY_MULTIWARP;
            if ((e ^ mine) >> STITCH__KEY_WARP_SHIFT & 31)
                more |= STITCH__KEY_MULTIWARP;
            else if (((e ^ mine) & STITCH__KEY_CLOCK) == 0)
                more |= STITCH__KEY_MULTILANE;
        }
        race->r[g] = mine | more;
        race->rpc[g] = pc;
        if (more & STITCH__KEY_MULTIWARP)
            race->crowded[g >> 6] |= UINT64_C(1) << (g & 63);
    }
    return true;
}

/* Global memory. A line keeps one record of reads and one of writes, each of all its 16 granules by consecutive lanes
 * or of one element by one lane. These fit it or say false: then its granules have records of their own. */

/* Granules [from, from + count) are read by `mine` (of the first lane), as `tag` says. */
static inline bool line_read(stitch__exec *x, stitch__race_log *log, stitch__race_line *l, uint64_t mine, uint32_t tag,
                             uint32_t from, uint32_t count)
{
    uint32_t wtag = STITCH__SEE_TAG(l->e.wtag), rtag = STITCH__SEE_TAG(l->e.rtag);
    if (stitch__race_now(log, wtag)) {
        uint64_t w = STITCH__SEE(l->e.w);
        uint32_t wfrom = STITCH__SEE(l->wfrom), wcount = STITCH__SEE(l->wcount);
        bool same = wfrom == from && wcount == count && !((wtag ^ tag) >> STITCH__TAG_EACH) &&
                    !((w ^ mine) >> STITCH__KEY_LANE_SHIFT);
        if (w & STITCH__LINE_SPECIAL || (!same && wfrom < from + count && from < wfrom + wcount))
            return false;
    }
    if (stitch__race_now(log, rtag)) {
        uint64_t r = STITCH__SEE(l->e.r);
        if (STITCH__SEE(l->rfrom) != from || STITCH__SEE(l->rcount) != count)
            return false;
        if (r & STITCH__KEY_MULTIBLOCK && !x->talks)
            return true;
        if ((r ^ mine) >> STITCH__KEY_BLOCK_SHIFT)
            mine |= STITCH__KEY_MULTIBLOCK;
        else if ((r ^ mine) >> STITCH__KEY_WARP_SHIFT & 31)
            mine |= STITCH__KEY_MULTIWARP;
        else if ((r ^ mine) >> STITCH__KEY_LANE_SHIFT & 31 || (rtag ^ tag) >> STITCH__TAG_EACH)
            return false;
        mine |= r & (STITCH__KEY_MULTIBLOCK | STITCH__KEY_MULTIWARP);
        mine |= (r ^ mine) & STITCH__KEY_CLOCK ? 0 : r & STITCH__KEY_MULTILANE;
    }
    STITCH__PUT(l->e.r, mine);
    STITCH__PUT(l->rfrom, (uint8_t)from);
    STITCH__PUT(l->rcount, (uint8_t)count);
    STITCH__PUT_TAG(l->e.rtag, tag);
    return true;
}

static inline bool line_write(stitch__race_log *log, stitch__race_line *l, uint64_t mine, uint32_t tag, uint32_t from,
                              uint32_t count)
{
    uint32_t wtag = STITCH__SEE_TAG(l->e.wtag), rtag = STITCH__SEE_TAG(l->e.rtag);
    if (stitch__race_now(log, wtag)) {
        uint64_t w = STITCH__SEE(l->e.w);
        if (w & STITCH__LINE_SPECIAL || STITCH__SEE(l->wfrom) != from || STITCH__SEE(l->wcount) != count ||
            (wtag ^ tag) >> STITCH__TAG_EACH || (w ^ mine) >> STITCH__KEY_LANE_SHIFT)
            return false;
    }
    if (stitch__race_now(log, rtag)) {
        uint32_t rfrom = STITCH__SEE(l->rfrom), rcount = STITCH__SEE(l->rcount);
        if (rfrom < from + count && from < rfrom + rcount &&
            (rfrom != from || rcount != count || (rtag ^ tag) >> STITCH__TAG_EACH ||
             (STITCH__SEE(l->e.r) ^ mine) >> STITCH__KEY_LANE_SHIFT))
            return false;
    }
    STITCH__PUT(l->e.w, mine);
    STITCH__PUT(l->wfrom, (uint8_t)from);
    STITCH__PUT(l->wcount, (uint8_t)count);
    STITCH__PUT_TAG(l->e.wtag, tag);
    return true;
}

/* `lanes` lanes from `first_lane` on, whole lines from granule `at`. */
static inline bool global_read_run(stitch__exec *x, stitch__race_log *log, uint64_t at, uint32_t lanes,
                                   uint32_t first_lane, uint32_t each, uint32_t pc)
{
    unsigned shift = log2_of(each);
    uint32_t tag = log->tag | shift << STITCH__TAG_EACH | (pc & STITCH__TAG_PC);
    uint64_t key = x->prefix | x->warp->clock;
    if (at % STITCH__LINE || each > STITCH__LINE)
        return false;
    for (uint32_t k = 0; k < lanes * each / STITCH__LINE; k++)
        if (!line_read(x, log, &log->line[at / STITCH__LINE + k],
                       key | (uint64_t)(first_lane + (STITCH__LINE >> shift) * k) << STITCH__KEY_LANE_SHIFT, tag, 0,
                       STITCH__LINE))
            return false;
    return true;
}

static inline bool global_write_run(stitch__exec *x, stitch__race_log *log, uint64_t at, uint32_t lanes,
                                    uint32_t first_lane, uint32_t each, uint32_t pc)
{
    unsigned shift = log2_of(each);
    uint32_t tag = log->tag | shift << STITCH__TAG_EACH | (pc & STITCH__TAG_PC);
    uint64_t key = x->prefix | x->warp->clock;
    if (at % STITCH__LINE || each > STITCH__LINE)
        return false;
    for (uint32_t k = 0; k < lanes * each / STITCH__LINE; k++)
        if (!line_write(log, &log->line[at / STITCH__LINE + k],
                        key | (uint64_t)(first_lane + (STITCH__LINE >> shift) * k) << STITCH__KEY_LANE_SHIFT, tag, 0,
                        STITCH__LINE))
            return false;
    return true;
}

static inline stitch__race_entry *global_word(const stitch__exec *x, stitch__race_log *log, uint64_t g)
{
    const stitch__race_line *l = &log->line[g / STITCH__LINE];
    if (!stitch__race_now(log, STITCH__SEE_TAG(l->e.wtag)) || STITCH__SEE(l->e.w) != STITCH__LINE_WORDS)
        stitch__race_expand(x, log, g / STITCH__LINE);
    return &log->word[g];
}

static inline bool word_read(stitch__exec *x, stitch__race_log *log, stitch__race_entry *e, uint64_t mine,
                             uint64_t several, uint32_t tag)
{
    uint64_t r = stitch__race_now(log, e->rtag) ? e->r : 0, w = stitch__race_now(log, e->wtag) ? e->w : 0,
             full = x->block->full;
    if (w && (several || (w ^ mine) >> STITCH__KEY_LANE_SHIFT) &&
        ((w ^ mine) >> STITCH__KEY_BLOCK_SHIFT || (w & STITCH__KEY_CLOCK) >= full))
        return false;
    if (r & STITCH__KEY_MULTIBLOCK && !x->talks)
        return true;
    mine |= several;
    if (r && (r ^ mine) >> STITCH__KEY_LANE_SHIFT) {
        mine |= (r ^ mine) >> STITCH__KEY_BLOCK_SHIFT       ? STITCH__KEY_MULTIBLOCK
                : (r & STITCH__KEY_CLOCK) < full            ? 0
                : (r ^ mine) >> STITCH__KEY_WARP_SHIFT & 31 ? STITCH__KEY_MULTIWARP
                : (r ^ mine) & STITCH__KEY_CLOCK            ? r & STITCH__KEY_MULTIWARP
                                                            : STITCH__KEY_MULTILANE | (r & STITCH__KEY_MULTIWARP);
        mine |= r & STITCH__KEY_MULTIBLOCK;
    }
    STITCH__PUT(e->r, mine);
    STITCH__PUT_TAG(e->rtag, tag);
    return true;
}

static inline bool word_write(stitch__exec *x, stitch__race_log *log, stitch__race_entry *e, uint64_t mine,
                              uint32_t tag)
{
    uint64_t r = stitch__race_now(log, e->rtag) ? e->r : 0, w = stitch__race_now(log, e->wtag) ? e->w : 0,
             full = x->block->full;
    if (w && (w ^ mine) >> STITCH__KEY_LANE_SHIFT &&
        ((w ^ mine) >> STITCH__KEY_BLOCK_SHIFT || (w & STITCH__KEY_CLOCK) >= full))
        return false;
    if (r && (r ^ mine) >> STITCH__KEY_LANE_SHIFT &&
        ((r ^ mine) >> STITCH__KEY_BLOCK_SHIFT || r & STITCH__KEY_MULTIBLOCK || (r & STITCH__KEY_CLOCK) >= full))
        return false;
    STITCH__PUT(e->w, mine);
    STITCH__PUT_TAG(e->wtag, tag);
    return true;
}

/* Starts to fetch what lanes that access single elements all over memory will touch. */
static inline void global_prefetch(const stitch__exec *x, const stitch__race_log *log, const uint8_t *host,
                                   const uint32_t *offset, const uint32_t *brief)
{
    for (uint32_t i = 0; i < 32; i++) {
        __builtin_prefetch(&brief[offset[i] >> x->global_shift], 1);
        __builtin_prefetch(host + offset[i]);
    }
}

/* What a warp's accesses to single elements have in common. */
typedef struct scattered {
    uint64_t key;      /* of lane 0 */
    uint32_t tag, pc;  /* launch and pc; pc + 1 */
    uint32_t head, id; /* stitch__race_brief.head; brief entry of lane 0 */
    bool brief;        /* there may be brief entries */
} scattered;

static inline scattered scattered_begin(const stitch__exec *x, const stitch__race_log *log, uint32_t pc)
{
    uint32_t seq = x->block->seq, time = x->warp->clock - x->block->begin;
    return (scattered){.key = x->prefix | x->warp->clock,
                       .tag = log->tag | (pc & STITCH__TAG_PC),
                       .pc = pc + 1,
                       .head = log->tag | time,
                       .id = seq << STITCH__BRIEF_SEQ_SHIFT | x->warp->index << 5,
                       .brief = !x->talks && time < STITCH__BRIEF_CLOSED && pc < STITCH__BRIEF_PC &&
                                !(seq >> (32 - STITCH__BRIEF_SEQ_SHIFT))};
}

/* Nothing touched the line in this launch: it gets brief entries, unless another thread is at it. */
static inline bool brief_open(const stitch__race_log *log, uint64_t line, uint32_t old, uint32_t head)
{
    stitch__race_line *l = &log->line[line];
    stitch__race_brief *b = &log->brief[line];
    if (stitch__race_now(log, old) || stitch__race_now(log, STITCH__SEE_TAG(l->e.wtag)) ||
        stitch__race_now(log, STITCH__SEE_TAG(l->e.rtag)) ||
        !__atomic_compare_exchange_n(&b->head, &old, log->tag | STITCH__BRIEF_CLOSED, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return false;
    STITCH__PUT(b->r, 0);
    STITCH__PUT(b->w, 0);
    STITCH__PUT(l->e.w, STITCH__LINE_BRIEF);
    STITCH__PUT_TAG(l->e.wtag, log->tag);
    STITCH__PUT_TAG(b->head, head);
    return true;
}

static inline bool brief_others(const uint32_t *entry, uint32_t count, uint32_t mine)
{
    bool bad = false;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t e = STITCH__SEE(entry[k]);
        bad |= e && e != mine;
    }
    return bad;
}

/* Puts `mine` into `count` entries. `pc`: of the line's entries of this kind; `others`: the entries of the other kind,
 * NULL if there are none. */
static inline bool brief_put(uint32_t *entries, const uint32_t *others, uint16_t *pc, uint32_t my_pc, uint64_t g,
                             uint32_t count, uint32_t mine)
{
    uint32_t known = STITCH__SEE(*pc);
    if (others && brief_others(others + g, count, mine))
        return false;
    if (known == 0) {
        memset(entries + g / STITCH__LINE * STITCH__LINE, 0, STITCH__LINE * sizeof(uint32_t));
        STITCH__PUT(*pc, (uint16_t)my_pc);
    } else if (known != my_pc || brief_others(entries + g, count, mine)) {
        return false;
    }
    for (uint32_t k = 0; k < count; k++)
        STITCH__PUT(entries[g + k], mine);
    return true;
}

/* `count` granules from `g` on, in one line. False: the line has no brief entries, or these do not fit. */
static inline bool brief_access(const scattered *c, const stitch__race_log *log, uint64_t g, uint32_t count,
                                uint32_t lane, bool write)
{
    stitch__race_brief *b = &log->brief[g / STITCH__LINE];
    uint32_t head = STITCH__SEE_TAG(b->head), mine = c->id | lane;
    if (!c->brief || (head != c->head && !brief_open(log, g / STITCH__LINE, head, c->head)))
        return false;
    if (write)
        return brief_put(log->brief_w, STITCH__SEE(b->r) ? log->brief_r : NULL, &b->w, c->pc, g, count, mine);
    return brief_put(log->brief_r, STITCH__SEE(b->w) ? log->brief_w : NULL, &b->r, c->pc, g, count, mine);
}

/* Each lane its own element. */
static inline bool global_read_each(stitch__exec *x, stitch__race_log *log, const uint32_t *offset, uint32_t each,
                                    uint32_t pc)
{
    scattered c = scattered_begin(x, log, pc);
    for (uint32_t i = 0; i < 32; i++) {
        if (i < 31 && offset[i] == offset[i + 1])
            continue; /* the last lane of those with one address speaks for them */
        uint64_t several = i && offset[i] == offset[i - 1] ? STITCH__KEY_MULTILANE : 0;
        uint64_t mine = c.key | (uint64_t)i << STITCH__KEY_LANE_SHIFT, g = offset[i] >> x->global_shift;
        if (g % STITCH__LINE + each <= STITCH__LINE && !several &&
            (brief_access(&c, log, g, each, i, false) ||
             line_read(x, log, &log->line[g / STITCH__LINE], mine, c.tag | 4u << STITCH__TAG_EACH, g % STITCH__LINE,
                       each)))
            continue;
        for (uint32_t k = 0; k < each; k++)
            if (!word_read(x, log, global_word(x, log, g + k), mine, several, c.tag))
                return false;
    }
    return true;
}

static inline bool global_write_each(stitch__exec *x, stitch__race_log *log, const uint32_t *offset, uint32_t each,
                                     uint32_t pc)
{
    scattered c = scattered_begin(x, log, pc);
    for (uint32_t i = 0; i < 32; i++) {
        uint64_t mine = c.key | (uint64_t)i << STITCH__KEY_LANE_SHIFT, g = offset[i] >> x->global_shift;
        if (g % STITCH__LINE + each <= STITCH__LINE &&
            (brief_access(&c, log, g, each, i, true) ||
             line_write(log, &log->line[g / STITCH__LINE], mine, c.tag | 4u << STITCH__TAG_EACH, g % STITCH__LINE,
                        each)))
            continue;
        for (uint32_t k = 0; k < each; k++)
            if (!word_write(x, log, global_word(x, log, g + k), mine, c.tag))
                return false;
    }
    return true;
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static void count_shared(stitch__mem_count *c, const uint32_t *offset, uint32_t bytes)
{
    uint32_t phases = bytes > 4 ? bytes / 4 : 1, lanes = 32 / phases, words = bytes > 4 ? bytes / 4 : 1;
    for (uint32_t p = 0; p < phases; p++) {
        int16_t head[32];
        int16_t next[32];
        uint32_t word[32], used = 0, worst = 0;
        uint8_t depth[32] = {0};
        memset(head, 0xff, sizeof(head));
        for (uint32_t l = p * lanes; l < (p + 1) * lanes; l++)
            for (uint32_t k = 0; k < words; k++) {
                uint32_t a = (offset[l] >> 2) + k, bank = a & 31;
                int16_t e = head[bank];
                while (e >= 0 && word[e] != a)
                    e = next[e];
                if (e >= 0 || used == 32)
                    continue;
                word[used] = a;
                next[used] = head[bank];
                head[bank] = (int16_t)used++;
                if (++depth[bank] > worst)
                    worst = depth[bank];
            }
        c->units += worst;
        c->ideal++;
    }
    c->requests++;
    c->bytes += 32 * bytes;
}

static void count_global(stitch__mem_count *c, const uint64_t *address, uint32_t bytes)
{
    uint64_t seen[128];
    uint32_t sectors = 0, distinct = 0;
    uint64_t last = ~UINT64_C(0);
    memset(seen, 0xff, sizeof(seen));
    for (uint32_t l = 0; l < 32; l++) {
        for (uint64_t s = address[l] >> 5; s <= (address[l] + bytes - 1) >> 5; s++) {
            if (s == last)
                continue;
            last = s;
            uint32_t h = (uint32_t)(s * UINT64_C(0x9e3779b97f4a7c15) >> 57);
            while (seen[h] != ~UINT64_C(0) && seen[h] != s)
                h = (h + 1) & 127;
            if (seen[h] == s)
                continue;
            seen[h] = s;
            sectors++;
        }
    }
    memset(seen, 0xff, sizeof(seen));
    for (uint32_t l = 0; l < 32; l++) {
        uint32_t h = (uint32_t)(address[l] * UINT64_C(0x9e3779b97f4a7c15) >> 57);
        while (seen[h] != ~UINT64_C(0) && seen[h] != address[l])
            h = (h + 1) & 127;
        distinct += seen[h] != address[l];
        seen[h] = address[l];
    }
    c->units += sectors;
    c->ideal += (distinct * bytes + 31) / 32;
    c->requests++;
    c->bytes += 32 * bytes;
}

static inline void count_run(stitch__mem_count *c, uint64_t address, uint32_t bytes, bool shared)
{
    c->requests++;
    c->bytes += 32 * bytes;
    if (shared) {
        uint32_t n = bytes > 4 ? bytes / 4 : 1;
        c->units += n;
        c->ideal += n;
    } else {
        c->units += ((address + 32 * bytes - 1) >> 5) - (address >> 5) + 1;
        c->ideal += bytes;
    }
}

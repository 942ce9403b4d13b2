/* SPDX-License-Identifier: MIT
 *
 * Requests and replies as bytes. Decoding checks every length, enum and number: what a worker sends is a stranger's.
 */
#include <math.h>

#include "worker/protocol.h"

enum {
    MAX_NAME = 255,
    MAX_PATH = 4096,
    MAX_FOLDERS = 65536,
    MAX_PROBE = 4096,
    MAX_ANSWER = 65536,
    MAX_DIST = 255, /* variants have kinds that no task can declare */
};

const char *stitch__worker_op_text(int op)
{
    static const char *const texts[] = {"doing nothing",
#define TEXT(name, text) text,
                                        STITCH__WORKER_REQUESTS(TEXT)
#undef TEXT
    };
    return op > 0 && op < STITCH__OP_WORKER_COUNT ? texts[op] : texts[0];
}

static int malformed(int op, bool reply, stitch_error **err)
{
    return stitch__err(NULL, err, STITCH_E_FORMAT, "the %s for %s is malformed", reply ? "reply" : "request",
                       stitch__worker_op_text(op));
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void put_run(stitch__buf *b, const stitch__run *run)
{
    stitch__put_u32(b, (uint32_t)run->set);
    stitch__put_u32(b, (uint32_t)run->poison);
    stitch__put_u32(b, (uint32_t)run->skip);
    stitch__put_u32(b, (uint32_t)run->moved);
    stitch__put_u64(b, run->flush_bytes);
    stitch__put_u32(b, (uint32_t)run->draw);
    stitch__put_u64(b, run->seed);
}

static void put_variant(stitch__buf *b, bool has, double scale, const stitch_dist *dist)
{
    stitch__put_u32(b, has);
    if (!has)
        return;
    stitch__put_f64(b, scale);
    stitch__put_u32(b, (uint32_t)dist->kind);
    if (dist->kind) {
        stitch__put_f64(b, dist->a);
        stitch__put_f64(b, dist->b);
    }
}

static void put_block(stitch__buf *b, const stitch__run_block *block)
{
    static const stitch_dist none;

    stitch__put_u32(b, block->count);
    for (uint32_t k = 0; k < block->count; k++) {
        const stitch__block_run *run = &block->runs[k];
        const stitch__variant *v = run->variant;
        put_run(b, &run->run);
        stitch__put_u32(b, run->does);
        stitch__put_u64(b, run->key);
        put_variant(b, v != NULL, v ? v->scale : 0, v && v->dist ? v->dist : &none);
    }
}

void stitch__request_encode(const stitch__request *q, stitch__buf *out)
{
    switch (q->op) {
    case STITCH__OP_WORKER_HELLO:
        stitch__buf_append(out, q->key, sizeof(q->key));
        stitch__put_u32(out, q->protocol);
        stitch__put_u32(out, q->sandbox);
        stitch__put_u32(out, q->role);
        stitch__put_text(out, q->device);
        stitch__put_text(out, q->cache_dir);
        stitch__put_text(out, q->cuda_path);
        stitch__put_text(out, q->text);
        break;
    case STITCH__OP_WORKER_OPEN:
        stitch__put_u64(out, q->task_bytes);
        stitch__put_u64(out, q->program_bytes);
        break;
    case STITCH__OP_WORKER_DATA:
        stitch__put_u64(out, q->tensor);
        stitch__put_u64(out, q->bytes);
        break;
    case STITCH__OP_WORKER_PLACE:
        stitch__put_u64(out, q->tensor);
        stitch__put_u64(out, q->bytes);
        stitch__put_u32(out, (uint32_t)q->set);
        stitch__put_u32(out, q->buffer);
        stitch__put_u64(out, q->wanted);
        break;
    case STITCH__OP_WORKER_CLOSE: stitch__put_u32(out, q->keep_buffers); break;
    case STITCH__OP_WORKER_START: stitch__put_u64(out, q->share_bytes); break;
    case STITCH__OP_WORKER_LOAD: stitch__put_u32(out, (uint32_t)q->load.poison); break;
    case STITCH__OP_WORKER_FILL_WEIGHTS: stitch__put_u64(out, q->seed); break;
    case STITCH__OP_WORKER_FILL_INPUTS:
        stitch__put_u64(out, q->seed);
        put_variant(out, q->has_variant, q->scale, &q->dist);
        break;
    case STITCH__OP_WORKER_CLEAR_STATES: stitch__put_u32(out, (uint32_t)q->set); break;
    case STITCH__OP_WORKER_HASH:
        stitch__put_u64(out, q->seed);
        stitch__put_u32(out, q->inputs);
        break;
    case STITCH__OP_WORKER_RUN:
    case STITCH__OP_WORKER_TIMED_RUN: put_run(out, &q->run); break;
    case STITCH__OP_WORKER_KEEP:
        stitch__put_u32(out, q->kept);
        stitch__put_u64(out, q->bytes);
        stitch__put_u32(out, q->buffer);
        break;
    case STITCH__OP_WORKER_RUN_BLOCK: put_block(out, &q->block); break;
    case STITCH__OP_WORKER_PROFILE:
        put_run(out, &q->run);
        stitch__put_u32(out, q->parts);
        stitch__put_u32(out, q->metrics);
        stitch__put_text(out, q->text);
        break;
    case STITCH__OP_WORKER_FETCH:
        stitch__put_u32(out, (uint32_t)q->set);
        stitch__put_u64(out, q->tensor);
        stitch__put_u64(out, q->offset);
        stitch__put_u64(out, q->bytes);
        stitch__put_u64(out, q->at);
        break;
    case STITCH__OP_WORKER_PROBE: stitch__put_text(out, q->text); break;
    case STITCH__OP_WORKER_COMPILE:
        stitch__put_u64(out, q->bytes);
        stitch__put_u32(out, q->seconds);
        break;
    case STITCH__OP_WORKER_CODE: stitch__put_u64(out, q->bytes); break;
    default: break;
    }
}

static bool in(int64_t v, int64_t low, int64_t high)
{
    return v >= low && v <= high;
}

static bool get_run(stitch__reader *r, stitch__run *run)
{
    run->set = (int32_t)stitch__get_u32(r);
    run->poison = (int32_t)stitch__get_u32(r);
    run->skip = (int32_t)stitch__get_u32(r);
    run->moved = (int32_t)stitch__get_u32(r);
    run->flush_bytes = stitch__get_u64(r);
    run->draw = (int32_t)stitch__get_u32(r);
    run->seed = stitch__get_u64(r);
    return in(run->draw, 0, 1) && in(run->set, 0, STITCH__SETS - 1) && in(run->poison, -1, 255) && run->skip >= -1 &&
           in(run->moved, 0, 1);
}

static bool get_variant(stitch__reader *r, bool *has, double *scale, stitch_dist *dist)
{
    *has = stitch__get_bool(r);
    if (!*has)
        return true;
    *scale = stitch__get_f64(r);
    dist->kind = (int32_t)stitch__get_u32(r);
    if (dist->kind) {
        dist->a = stitch__get_f64(r);
        dist->b = stitch__get_f64(r);
    }
    return isfinite(*scale) && isfinite(dist->a) && isfinite(dist->b) && in(dist->kind, 0, MAX_DIST);
}

static bool get_block(stitch__reader *r, stitch__request *q)
{
    stitch__run_block *b = &q->block;

    b->count = stitch__get_u32(r);
    if (!in(b->count, 1, STITCH__BLOCK))
        return false;
    for (uint32_t k = 0; k < b->count; k++) {
        stitch__block_run *run = &b->runs[k];
        bool has;
        if (!get_run(r, &run->run))
            return false;
        run->does = stitch__get_u32(r);
        run->key = stitch__get_u64(r);
        if (run->does > STITCH__RUN_FLAGS || !get_variant(r, &has, &q->variants[k].scale, &q->dists[k]))
            return false;
        q->variants[k].dist = q->dists[k].kind ? &q->dists[k] : NULL;
        run->variant = has ? &q->variants[k] : NULL;
    }
    return true;
}

static bool get_request(int op, stitch__reader *r, stitch__request *q)
{
    switch (op) {
    case STITCH__OP_WORKER_HELLO:
        for (int i = 0; i < STITCH__WORKER_KEY; i += 4) {
            uint32_t word = stitch__get_u32(r);
            for (int k = 0; k < 4; k++)
                q->key[i + k] = (uint8_t)(word >> 8 * k);
        }
        q->protocol = stitch__get_u32(r);
        q->sandbox = stitch__get_u32(r);
        q->role = stitch__get_u32(r);
        q->device = stitch__get_text(r, MAX_NAME);
        q->cache_dir = stitch__get_text(r, MAX_PATH);
        q->cuda_path = stitch__get_text(r, MAX_PATH);
        q->text = stitch__get_text(r, MAX_FOLDERS);
        return q->sandbox <= STITCH__SANDBOX_FULL && q->role <= STITCH__WORKER_COMPILER;
    case STITCH__OP_WORKER_OPEN:
        q->task_bytes = stitch__get_u64(r);
        q->program_bytes = stitch__get_u64(r);
        return q->task_bytes <= SIZE_MAX / 4 && q->program_bytes <= SIZE_MAX / 4;
    case STITCH__OP_WORKER_DATA:
        q->tensor = stitch__get_u64(r);
        q->bytes = stitch__get_u64(r);
        return true;
    case STITCH__OP_WORKER_PLACE:
        q->tensor = stitch__get_u64(r);
        q->bytes = stitch__get_u64(r);
        q->set = (int32_t)stitch__get_u32(r);
        q->buffer = stitch__get_u32(r);
        q->wanted = stitch__get_u64(r);
        return in(q->set, 0, STITCH__SETS - 1) && q->buffer < STITCH__WORKER_BUFFERS;
    case STITCH__OP_WORKER_CLOSE: q->keep_buffers = stitch__get_bool(r); return true;
    case STITCH__OP_WORKER_START: q->share_bytes = stitch__get_u64(r); return true;
    case STITCH__OP_WORKER_LOAD: q->load.poison = (int32_t)stitch__get_u32(r); return in(q->load.poison, -1, 255);
    case STITCH__OP_WORKER_FILL_WEIGHTS: q->seed = stitch__get_u64(r); return true;
    case STITCH__OP_WORKER_FILL_INPUTS:
        q->seed = stitch__get_u64(r);
        return get_variant(r, &q->has_variant, &q->scale, &q->dist);
    case STITCH__OP_WORKER_CLEAR_STATES: q->set = (int32_t)stitch__get_u32(r); return in(q->set, 0, STITCH__SETS - 1);
    case STITCH__OP_WORKER_HASH:
        q->seed = stitch__get_u64(r);
        q->inputs = stitch__get_bool(r);
        return true;
    case STITCH__OP_WORKER_RUN:
    case STITCH__OP_WORKER_TIMED_RUN: return get_run(r, &q->run);
    case STITCH__OP_WORKER_KEEP:
        q->kept = stitch__get_u32(r);
        q->bytes = stitch__get_u64(r);
        q->buffer = stitch__get_u32(r);
        return in(q->kept, 1, STITCH__BLOCK) && q->buffer < STITCH__WORKER_BUFFERS;
    case STITCH__OP_WORKER_RUN_BLOCK: return get_block(r, q);
    case STITCH__OP_WORKER_PROFILE:
        if (!get_run(r, &q->run))
            return false;
        q->parts = stitch__get_u32(r);
        q->metrics = stitch__get_u32(r);
        q->text = stitch__get_text(r, STITCH__WORKER_MAX_METRICS);
        return q->parts <= STITCH__PARTS && q->metrics <= STITCH__METRIC_FULL;
    case STITCH__OP_WORKER_FETCH:
        q->set = (int32_t)stitch__get_u32(r);
        q->tensor = stitch__get_u64(r);
        q->offset = stitch__get_u64(r);
        q->bytes = stitch__get_u64(r);
        q->at = stitch__get_u64(r);
        return in(q->set, 0, STITCH__SETS + STITCH__BLOCK - 1);
    case STITCH__OP_WORKER_PROBE: q->text = stitch__get_text(r, MAX_PROBE); return true;
    case STITCH__OP_WORKER_COMPILE:
        q->bytes = stitch__get_u64(r);
        q->seconds = stitch__get_u32(r);
        return true;
    case STITCH__OP_WORKER_CODE: q->bytes = stitch__get_u64(r); return true;
    case STITCH__OP_WORKER_PING:
    case STITCH__OP_WORKER_PREPARE:
    case STITCH__OP_WORKER_INSPECT: return true;
    default: return false;
    }
}

int stitch__request_decode(int op, const void *data, size_t len, stitch__request *out, stitch_error **err)
{
    stitch__reader r = {.data = data, .len = len};

    memset(out, 0, sizeof(*out));
    out->op = op;
    out->device = out->cache_dir = out->cuda_path = out->text = "";
    if (!get_request(op, &r, out) || r.failed || r.at != r.len)
        return malformed(op, false, err);
    return STITCH_OK;
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

/* At most `max` bytes, cut between characters. */
static void put_cut(stitch__buf *b, const char *s, size_t max)
{
    size_t len = s ? strlen(s) : 0;
    if (len > max) {
        for (len = max; len && ((unsigned char)s[len] & 0xc0) == 0x80;)
            len--;
    }
    stitch__put_u32(b, (uint32_t)len);
    stitch__buf_append(b, s ? s : "", len);
    stitch__buf_putc(b, 0);
}

static void put_took(stitch__buf *b, const stitch__took *took)
{
    stitch__put_f64(b, took->us);
    stitch__put_f64(b, took->least_us);
}

static void put_hashes(stitch__buf *b, const uint64_t *hashes, size_t count)
{
    stitch__put_u32(b, (uint32_t)count);
    for (size_t i = 0; i < count; i++)
        stitch__put_u64(b, hashes[i]);
}

static void put_compiled(stitch__buf *b, const stitch__reply *r)
{
    stitch__put_u32(b, r->result);
    stitch__put_u32(b, r->rtc_call);
    for (int i = 0; i < STITCH__PIECES; i++)
        stitch__put_u64(b, r->pieces[i]);
    stitch__put_u32(b, r->compiled != NULL);
    if (r->compiled)
        stitch__buf_append(b, r->compiled, (size_t)stitch__reply_code_bytes(r));
}

void stitch__reply_encode(const stitch__reply *r, const uint64_t *hashes, stitch__buf *out)
{
    stitch__put_u32(out, (uint32_t)r->rc);
    stitch__put_u32(out, (uint32_t)r->code);
    stitch__put_u32(out, (uint32_t)r->domain);
    stitch__put_u64(out, (uint64_t)r->native);
    put_cut(out, r->message, STITCH__WORKER_MAX_MESSAGE);
    put_cut(out, r->details, STITCH__WORKER_MAX_DETAILS);
    stitch__put_u64(out, r->busy_ns);
    if (r->rc || r->code)
        return;
    switch (r->op) {
    case STITCH__OP_WORKER_HELLO:
        stitch__put_u32(out, r->protocol);
        stitch__put_u32(out, r->pid);
        stitch__put_u32(out, r->nvrtc_major);
        stitch__put_u32(out, r->nvrtc_minor);
        stitch__buf_append(out, r->uuid, sizeof(r->uuid));
        put_cut(out, r->version, MAX_NAME);
        put_cut(out, r->arch, MAX_NAME);
        put_cut(out, r->name, MAX_NAME);
        put_cut(out, r->sandbox, MAX_NAME);
        break;
    case STITCH__OP_WORKER_PREPARE:
        stitch__put_f64(out, r->prepared.us);
        stitch__put_u64(out, r->prepared.workspace_bytes);
        stitch__put_u64(out, r->prepared.library_workspace_bytes);
        stitch__put_u64(out, r->prepared.launches);
        stitch__put_u64(out, r->prepared.prepare_launches);
        stitch__put_u64(out, r->prepared.steps);
        break;
    case STITCH__OP_WORKER_HASH: put_hashes(out, hashes, r->hash_count); break;
    case STITCH__OP_WORKER_RUN_BLOCK:
        stitch__put_u32(out, r->run_count);
        for (uint32_t k = 0; k < r->run_count; k++)
            put_took(out, &r->took[k]);
        put_hashes(out, hashes, r->hash_count);
        break;
    case STITCH__OP_WORKER_TIMED_RUN: put_took(out, &r->took[0]); break;
    case STITCH__OP_WORKER_PROFILE: put_cut(out, r->text, STITCH__WORKER_MAX_FACTS); break;
    case STITCH__OP_WORKER_PROBE: put_cut(out, r->text, MAX_ANSWER); break;
    case STITCH__OP_WORKER_COMPILE: put_compiled(out, r); break;
    default: break;
    }
}

static bool time_valid(double us)
{
    return isfinite(us) && us >= 0;
}

static bool get_took(stitch__reader *r, stitch__took *out)
{
    out->us = stitch__get_f64(r);
    out->least_us = stitch__get_f64(r);
    return time_valid(out->us) && time_valid(out->least_us);
}

/* At most as many as `sets` of all tensors have. */
static bool get_hashes(stitch__reader *r, stitch__reply *out, size_t sets)
{
    out->hash_count = stitch__get_u32(r);
    out->hashes_at = r->at;
    if (r->failed || out->hash_count > sets * STITCH__TASK_MAX_TENSORS || (r->len - r->at) / 8 < out->hash_count)
        return false;
    r->at += out->hash_count * 8;
    return true;
}

static bool get_compiled(stitch__reader *r, stitch__reply *out)
{
    uint64_t total = 0;

    out->result = stitch__get_u32(r);
    out->rtc_call = stitch__get_u32(r);
    for (int i = 0; i < STITCH__PIECES; i++) {
        out->pieces[i] = stitch__get_u64(r);
        if (out->pieces[i] > STITCH__WORKER_MAX_CODE)
            return false;
        total += out->pieces[i];
    }
    if (out->result > INT32_MAX || out->rtc_call >= STITCH__RTC_CALLS || total > STITCH__WORKER_MAX_CODE ||
        out->pieces[STITCH__PIECE_LOG] > STITCH__WORKER_MAX_LOG)
        return false;
    if (!stitch__get_bool(r))
        return true;
    if (r->failed || r->len - r->at < total)
        return false;
    out->compiled = r->data + r->at;
    r->at += (size_t)total;
    return true;
}

static bool get_reply(int op, stitch__reader *r, stitch__reply *out)
{
    switch (op) {
    case STITCH__OP_WORKER_HELLO:
        out->protocol = stitch__get_u32(r);
        out->pid = stitch__get_u32(r);
        out->nvrtc_major = stitch__get_u32(r);
        out->nvrtc_minor = stitch__get_u32(r);
        for (int i = 0; i < 4; i++) {
            uint32_t word = stitch__get_u32(r);
            for (int k = 0; k < 4; k++)
                out->uuid[4 * i + k] = (uint8_t)(word >> 8 * k);
        }
        out->version = stitch__get_text(r, MAX_NAME);
        out->arch = stitch__get_text(r, MAX_NAME);
        out->name = stitch__get_text(r, MAX_NAME);
        out->sandbox = stitch__get_text(r, MAX_NAME);
        return true;
    case STITCH__OP_WORKER_PREPARE:
        out->prepared.us = stitch__get_f64(r);
        out->prepared.workspace_bytes = stitch__get_u64(r);
        out->prepared.library_workspace_bytes = stitch__get_u64(r);
        out->prepared.launches = stitch__get_u64(r);
        out->prepared.prepare_launches = stitch__get_u64(r);
        out->prepared.steps = stitch__get_u64(r);
        /* Counts become numbers of a report, and of loops: as large as a plan may be, and no larger. */
        return time_valid(out->prepared.us) && out->prepared.steps <= 1u << 20 &&
               out->prepared.workspace_bytes <= INT64_MAX && out->prepared.library_workspace_bytes <= INT64_MAX &&
               out->prepared.launches <= INT64_MAX && out->prepared.prepare_launches <= INT64_MAX;
    case STITCH__OP_WORKER_HASH: return get_hashes(r, out, 1);
    case STITCH__OP_WORKER_RUN_BLOCK:
        out->run_count = stitch__get_u32(r);
        if (!in(out->run_count, 1, STITCH__BLOCK))
            return false;
        for (uint32_t k = 0; k < out->run_count; k++)
            if (!get_took(r, &out->took[k]))
                return false;
        return get_hashes(r, out, out->run_count);
    case STITCH__OP_WORKER_TIMED_RUN: return get_took(r, &out->took[0]);
    case STITCH__OP_WORKER_PROFILE: out->text = stitch__get_text(r, STITCH__WORKER_MAX_FACTS); return true;
    case STITCH__OP_WORKER_PROBE: out->text = stitch__get_text(r, MAX_ANSWER); return true;
    case STITCH__OP_WORKER_COMPILE: return get_compiled(r, out);
    default: return op > STITCH__OP_NONE && op < STITCH__OP_WORKER_COUNT;
    }
}

static bool status_valid(int32_t status)
{
    return status <= 0 && strcmp(stitch_status_name(status), "STITCH_E_UNKNOWN") != 0;
}

int stitch__reply_decode(int op, const void *data, size_t len, stitch__reply *out, stitch_error **err)
{
    stitch__reader r = {.data = data, .len = len};
    bool good;

    memset(out, 0, sizeof(*out));
    out->op = op;
    out->version = out->arch = out->name = out->sandbox = out->text = "";
    out->rc = (int32_t)stitch__get_u32(&r);
    out->code = (int32_t)stitch__get_u32(&r);
    out->domain = (int32_t)stitch__get_u32(&r);
    out->native = (int64_t)stitch__get_u64(&r);
    out->message = stitch__get_text(&r, STITCH__WORKER_MAX_MESSAGE);
    out->details = stitch__get_text(&r, STITCH__WORKER_MAX_DETAILS);
    out->busy_ns = stitch__get_u64(&r);
    good = !r.failed && status_valid(out->rc) && status_valid(out->code) && !(out->rc && out->code) &&
           strcmp(stitch_domain_name(out->domain), "unknown") != 0;
    if (good && (out->rc || out->code))
        good = op > STITCH__OP_NONE && op < STITCH__OP_WORKER_COUNT;
    else if (good)
        good = get_reply(op, &r, out);
    return good && !r.failed && r.at == r.len ? STITCH_OK : malformed(op, true, err);
}

uint64_t stitch__reply_hash(const stitch__reply *r, const void *data, size_t i)
{
    stitch__reader at = {
        .data = data, .len = (size_t)r->hashes_at + 8 * r->hash_count, .at = (size_t)r->hashes_at + 8 * i};
    return i < r->hash_count ? stitch__get_u64(&at) : 0;
}

uint64_t stitch__reply_code_bytes(const stitch__reply *r)
{
    uint64_t total = 0;
    for (int i = 0; i < STITCH__PIECES; i++)
        total += r->pieces[i];
    return total;
}

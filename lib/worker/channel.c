/* SPDX-License-Identifier: MIT
 *
 * Frames over a stream socket. Each carries a type, a bounded length, the number of its request and a code that only
 * those with the worker's key can make, so that nothing else that gets hold of the descriptor can forge a reply. The
 * verifier reads exactly one reply a request: what comes unasked is never taken for one.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/protocol.h"

static const uint8_t magic[4] = {'S', 'T', 'W', '1'};

enum {
    SLICE_MS = 5,     /* how late a cancellation may be noticed */
    ACTIVE_US = 1000, /* of a wait: most answers are there sooner, and a processor that slept needs long to wake up */
    MAX_FDS = 8,      /* that a message may bring before they are closed: the kernel drops the others */
};

/* ---- frames ------------------------------------------------------------------------------------------------------ */

void stitch__frame_encode(const stitch__frame *f, bool reply, uint8_t out[STITCH__FRAME_BYTES])
{
    uint64_t words[3] = {f->op | (uint64_t)reply << 32, f->bytes, f->sequence};
    memset(out, 0, STITCH__FRAME_BYTES);
    memcpy(out, magic, sizeof(magic));
    for (int w = 0; w < 3; w++)
        for (int i = 0; i < 8; i++)
            out[8 + 8 * w + i] = (uint8_t)(words[w] >> 8 * i);
    memcpy(out + 32, f->mac, sizeof(f->mac));
}

int stitch__frame_decode(const uint8_t data[STITCH__FRAME_BYTES], bool reply, stitch__frame *out, stitch_error **err)
{
    static const uint8_t zero[4];
    uint64_t words[3] = {0};

    for (int w = 0; w < 3; w++)
        for (int i = 0; i < 8; i++)
            words[w] |= (uint64_t)data[8 + 8 * w + i] << 8 * i;
    memset(out, 0, sizeof(*out));
    if (memcmp(data, magic, sizeof(magic)) != 0 || memcmp(data + 4, zero, sizeof(zero)) != 0)
        return stitch__err(NULL, err, STITCH_E_FORMAT, "what came is no message");
    if (words[0] >> 32 != (uint64_t)reply)
        return stitch__err(NULL, err, STITCH_E_FORMAT, "a %s came instead of a %s", reply ? "request" : "reply",
                           reply ? "reply" : "request");
    out->op = (uint32_t)words[0];
    if (out->op <= STITCH__OP_NONE || out->op >= STITCH__OP_WORKER_COUNT)
        return stitch__err(NULL, err, STITCH_E_FORMAT, "a message of unknown type %" PRIu32 " came", out->op);
    if (words[1] > STITCH__WORKER_MAX_PAYLOAD)
        return stitch__err(NULL, err, STITCH_E_FORMAT, "a message of %" PRIu64 " bytes came; the limit is %d", words[1],
                           STITCH__WORKER_MAX_PAYLOAD);
    out->bytes = (uint32_t)words[1];
    out->sequence = words[2];
    memcpy(out->mac, data + 32, sizeof(out->mac));
    return STITCH_OK;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Looks again and again for a moment. */
static bool soon_ready(const stitch__channel *c, short events)
{
    int64_t end = stitch__now_ns() + ACTIVE_US * INT64_C(1000);
    struct pollfd p = {c->fd, events, 0};

    while (poll(&p, 1, 0) <= 0) {
        if (stitch__now_ns() >= end)
            return false;
        (void)sched_yield(); /* to the one that is waited for, where there is but one processor */
    }
    return true;
}

/* Until the socket is ready or the scope has ended. */
static int wait_ready(stitch__channel *c, const stitch__scope *scope, short events, const char *what,
                      stitch_error **err)
{
    for (bool first = true;; first = false) {
        struct pollfd p = {c->fd, events, 0};
        int rc = scope ? stitch__scope_check(scope, what, err) : STITCH_OK;
        if (rc)
            return rc;
        if (first && soon_ready(c, events))
            return STITCH_OK;
        int n = poll(&p, 1, scope ? (int)stitch__scope_left_ms(scope, SLICE_MS) : -1);
        if (n > 0) /* a hang-up, too: the call that follows says what is the matter */
            return STITCH_OK;
        if (n < 0 && errno != EINTR)
            return stitch__err_errno(c->ctx, err, STITCH_E_IO, "waiting for a socket");
    }
}

static int closed(stitch__channel *c, stitch_error **err)
{
    return stitch__err(c->ctx, err, STITCH_E_IO, "the other side has closed the connection");
}

static int send_all(stitch__channel *c, const stitch__scope *scope, struct iovec *parts, size_t count, int memory,
                    const char *what, stitch_error **err)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};

    while (count) {
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = count};
        if (memory >= 0) {
            m.msg_control = control.bytes;
            m.msg_controllen = sizeof(control.bytes);
            struct cmsghdr *head = CMSG_FIRSTHDR(&m);
            head->cmsg_level = SOL_SOCKET;
            head->cmsg_type = SCM_RIGHTS;
            head->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(head), &memory, sizeof(memory));
        }
        ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return closed(c, err);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return stitch__err_errno(c->ctx, err, STITCH_E_IO, "sending a message");
        if (n < 0) {
            int rc = errno == EINTR ? STITCH_OK : wait_ready(c, scope, POLLOUT, what, err);
            if (rc)
                return rc;
            continue;
        }
        memory = -1;
        for (size_t left = (size_t)n; count && left >= parts->iov_len;) {
            left -= parts->iov_len;
            parts++;
            count--;
            n = (ssize_t)left;
        }
        if (count) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= (size_t)n;
        }
    }
    return STITCH_OK;
}

/* Keeps one descriptor in *memory and closes the others. */
static void take_fds(struct msghdr *m, int *memory)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(m); head; head = CMSG_NXTHDR(m, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
            if (*memory < 0)
                *memory = fd;
            else
                close(fd);
        }
    }
}

/* Without room for control data (memory NULL) the kernel closes whatever descriptors come. */
static int receive_all(stitch__channel *c, const stitch__scope *scope, void *data, size_t len, int *memory,
                       const char *what, stitch_error **err)
{
    union {
        char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;

    for (size_t at = 0; at < len;) {
        struct iovec part = {(char *)data + at, len - at};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
        if (memory) {
            m.msg_control = control.bytes;
            m.msg_controllen = sizeof(control.bytes);
        }
        ssize_t n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n > 0) {
            if (memory)
                take_fds(&m, memory);
            at += (size_t)n;
            continue;
        }
        if (n == 0 || errno == ECONNRESET)
            return closed(c, err);
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return stitch__err_errno(c->ctx, err, STITCH_E_IO, "receiving a message");
        int rc = wait_ready(c, scope, POLLIN, what, err);
        if (rc)
            return rc;
    }
    return STITCH_OK;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void sign(const stitch__channel *c, const stitch__frame *f, bool reply, const void *payload,
                 uint8_t mac[STITCH__SHA256_SIZE])
{
    uint8_t head[STITCH__FRAME_BYTES];
    stitch__frame bare = *f;
    memset(bare.mac, 0, sizeof(bare.mac));
    stitch__frame_encode(&bare, reply, head);
    stitch__hmac_sha256(c->key, head, sizeof(head), payload, f->bytes, mac);
}

int stitch__channel_send(stitch__channel *c, const stitch__scope *scope, int op, const stitch__buf *payload, int memory,
                         const char *what, stitch_error **err)
{
    uint8_t head[STITCH__FRAME_BYTES];
    stitch__frame f = {.op = (uint32_t)op};

    if (c->fd < 0)
        return closed(c, err);
    if (payload->failed)
        return stitch__err_nomem(c->ctx, err);
    if (payload->len > STITCH__WORKER_MAX_PAYLOAD)
        return stitch__err(c->ctx, err, STITCH_E_LIMIT, "a message of %zu bytes; the limit is %d", payload->len,
                           STITCH__WORKER_MAX_PAYLOAD);
    if (!c->server)
        c->sequence++;
    f.bytes = (uint32_t)payload->len;
    f.sequence = c->sequence;
    sign(c, &f, c->server, payload->data, f.mac);
    stitch__frame_encode(&f, c->server, head);
    struct iovec parts[2] = {{head, sizeof(head)}, {payload->data, payload->len}};
    return send_all(c, scope, parts, payload->len ? 2 : 1, memory, what, err);
}

static int receive_payload(stitch__channel *c, const stitch__scope *scope, const stitch__frame *f, int *memory,
                           const char *what, stitch_error **err)
{
    if (c->server ? f->sequence != c->sequence + 1 : f->sequence != c->sequence)
        return stitch__err(c->ctx, err, STITCH_E_FORMAT, "message %" PRIu64 " came where %" PRIu64 " was due",
                           f->sequence, c->server ? c->sequence + 1 : c->sequence);
    if (f->bytes > c->cap) {
        uint8_t *grown = stitch__realloc(c->ctx, c->payload, f->bytes);
        if (!grown)
            return stitch__err_nomem(c->ctx, err);
        c->payload = grown;
        c->cap = f->bytes;
    }
    c->bytes = f->bytes;
    return receive_all(c, scope, c->payload, f->bytes, memory, what, err);
}

/* The first message brings the key; nothing untrusted is in the worker yet. */
static int take_key(stitch__channel *c, const stitch__frame *f, stitch_error **err)
{
    if (c->keyed)
        return STITCH_OK;
    if (f->op != STITCH__OP_WORKER_HELLO || f->bytes < STITCH__WORKER_KEY)
        return stitch__err(c->ctx, err, STITCH_E_FORMAT, "the first message is no greeting");
    memcpy(c->key, c->payload, sizeof(c->key));
    c->keyed = true;
    return STITCH_OK;
}

int stitch__channel_receive(stitch__channel *c, const stitch__scope *scope, int *op, int *memory, const char *what,
                            stitch_error **err)
{
    uint8_t head[STITCH__FRAME_BYTES], mac[STITCH__SHA256_SIZE];
    stitch__frame f;
    int rc;

    *op = STITCH__OP_NONE;
    if (memory)
        *memory = -1;
    if (c->fd < 0)
        return closed(c, err);
    rc = receive_all(c, scope, head, sizeof(head), memory, what, err);
    if (!rc)
        rc = stitch__frame_decode(head, !c->server, &f, err);
    if (!rc)
        rc = receive_payload(c, scope, &f, memory, what, err);
    if (!rc)
        rc = take_key(c, &f, err);
    if (!rc) {
        sign(c, &f, !c->server, c->payload, mac);
        if (!stitch__same_bytes(mac, f.mac, sizeof(mac)))
            rc = stitch__err(c->ctx, err, STITCH_E_FORMAT, "a message came that is not signed with the worker's key");
    }
    if (rc) {
        if (memory && *memory >= 0) {
            close(*memory);
            *memory = -1;
        }
        return rc;
    }
    if (c->server)
        c->sequence = f.sequence;
    *op = (int)f.op;
    return STITCH_OK;
}

void stitch__channel_close(stitch__channel *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    stitch_free(c->payload);
    c->payload = NULL;
    c->cap = c->bytes = 0;
    memset(c->key, 0, sizeof(c->key));
}

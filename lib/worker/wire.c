/* SPDX-License-Identifier: MIT
 *
 * Numbers and texts in a message; authentication of messages.
 */
#include "worker/protocol.h"

/* ---- writing ----------------------------------------------------------------------------------------------------- */

void stitch__put_u32(stitch__buf *b, uint32_t v)
{
    uint8_t bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(v >> 8 * i);
    stitch__buf_append(b, bytes, sizeof(bytes));
}

void stitch__put_u64(stitch__buf *b, uint64_t v)
{
    stitch__put_u32(b, (uint32_t)v);
    stitch__put_u32(b, (uint32_t)(v >> 32));
}

void stitch__put_f64(stitch__buf *b, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    stitch__put_u64(b, bits);
}

void stitch__put_text(stitch__buf *b, const char *s)
{
    size_t len = s ? strlen(s) : 0;
    if (len > UINT32_MAX - 1) {
        b->failed = true;
        return;
    }
    stitch__put_u32(b, (uint32_t)len);
    stitch__buf_append(b, s ? s : "", len + 1);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static const uint8_t *take(stitch__reader *r, size_t len)
{
    const uint8_t *at = r->data + r->at;
    if (r->failed || len > r->len - r->at) {
        r->failed = true;
        return NULL;
    }
    r->at += len;
    return at;
}

uint32_t stitch__get_u32(stitch__reader *r)
{
    const uint8_t *at = take(r, 4);
    return at ? at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24 : 0;
}

uint64_t stitch__get_u64(stitch__reader *r)
{
    uint64_t low = stitch__get_u32(r);
    return low | (uint64_t)stitch__get_u32(r) << 32;
}

double stitch__get_f64(stitch__reader *r)
{
    uint64_t bits = stitch__get_u64(r);
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

bool stitch__get_bool(stitch__reader *r)
{
    uint32_t v = stitch__get_u32(r);
    r->failed |= v > 1;
    return v == 1;
}

const char *stitch__get_text(stitch__reader *r, size_t max)
{
    uint32_t len = stitch__get_u32(r);
    const uint8_t *at = len > max ? NULL : take(r, (size_t)len + 1);
    if (!at || at[len] || memchr(at, 0, len)) {
        r->failed = true;
        return "";
    }
    return (const char *)at;
}

/* ---- authentication ---------------------------------------------------------------------------------------------- */

void stitch__hmac_sha256(const uint8_t key[STITCH__WORKER_KEY], const void *head, size_t head_len, const void *data,
                         size_t len, uint8_t out[STITCH__SHA256_SIZE])
{
    uint8_t pad[64];
    stitch__sha256 h;

    memset(pad, 0x36, sizeof(pad));
    for (int i = 0; i < STITCH__WORKER_KEY; i++)
        pad[i] ^= key[i];
    stitch__sha256_init(&h);
    stitch__sha256_update(&h, pad, sizeof(pad));
    stitch__sha256_update(&h, head, head_len);
    if (len)
        stitch__sha256_update(&h, data, len);
    stitch__sha256_final(&h, out);
    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] ^= 0x36 ^ 0x5c;
    stitch__sha256_init(&h);
    stitch__sha256_update(&h, pad, sizeof(pad));
    stitch__sha256_update(&h, out, STITCH__SHA256_SIZE);
    stitch__sha256_final(&h, out);
}

bool stitch__same_bytes(const void *a, const void *b, size_t len)
{
    const uint8_t *x = a, *y = b;
    unsigned differ = 0;
    for (size_t i = 0; i < len; i++)
        differ |= (unsigned)(x[i] ^ y[i]);
    return differ == 0;
}

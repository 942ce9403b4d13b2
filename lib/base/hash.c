/* SPDX-License-Identifier: MIT
 *
 * SHA-256 (FIPS 180-4).
 */
#include "base/base.h"

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void compress(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    memcpy(v, state, sizeof(v));
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25), ch = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t t1 = v[7] + s1 + ch + k[i] + w[i];
        uint32_t s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22),
                 maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + s0 + maj;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void stitch__sha256_init(stitch__sha256 *h)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(h->state, start, sizeof(start));
    h->total = 0;
}

void stitch__sha256_update(stitch__sha256 *h, const void *data, size_t len)
{
    const uint8_t *p = data;
    if (!len)
        return;
    size_t used = (size_t)(h->total % 64);
    h->total += len;
    if (used) {
        size_t n = len < 64 - used ? len : 64 - used;
        memcpy(h->block + used, p, n);
        p += n;
        len -= n;
        if (used + n < 64)
            return;
        compress(h->state, h->block);
    }
    for (; len >= 64; p += 64, len -= 64)
        compress(h->state, p);
    if (len)
        memcpy(h->block, p, len);
}

void stitch__sha256_string(stitch__sha256 *h, const char *s)
{
    uint64_t len = s ? strlen(s) : UINT64_MAX;
    stitch__sha256_update(h, &len, sizeof(len));
    if (s)
        stitch__sha256_update(h, s, (size_t)len);
}

void stitch__sha256_final(stitch__sha256 *h, uint8_t out[STITCH__SHA256_SIZE])
{
    static const uint8_t zeros[64];
    uint64_t bits = h->total * 8;
    uint8_t one = 0x80, length[8];
    stitch__sha256_update(h, &one, 1);
    stitch__sha256_update(h, zeros, (size_t)((120 - h->total % 64) % 64));
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    stitch__sha256_update(h, length, 8);
    for (int i = 0; i < 32; i++)
        out[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
}

void stitch__sha256_hex(stitch__sha256 *h, char out[65])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t raw[STITCH__SHA256_SIZE];
    stitch__sha256_final(h, raw);
    for (int i = 0; i < STITCH__SHA256_SIZE; i++) {
        out[2 * i] = digits[raw[i] >> 4];
        out[2 * i + 1] = digits[raw[i] & 15];
    }
    out[64] = 0;
}

void stitch__sha256_of(const void *data, size_t len, char hex[65])
{
    stitch__sha256 h;
    stitch__sha256_init(&h);
    stitch__sha256_update(&h, data, len);
    stitch__sha256_hex(&h, hex);
}

/* SPDX-License-Identifier: MIT
 *
 * What is worth another try, and when.
 */
#include <strings.h>
#include <time.h>

#include "model/curl.h"
#include "model/model.h"

#define MAX_PAUSE_MS ((int64_t)365 * 24 * 3600 * 1000) /* longer than any deadline */

bool stitch__retry_status(long status)
{
    return status == 408 || status == 409 || status == 425 || status == 429 ||
           (status >= 500 && status < 600 && status != 501);
}

static bool says(const stitch__refusal *r, const char *word)
{
    return strcasestr(r->code, word) || strcasestr(r->type, word);
}

bool stitch__retry_refusal(const stitch__refusal *r)
{
    static const char *const hopeless[] = {"quota",          "billing",        "invalid",
                                           "auth",           "permission",     "not_found",
                                           "context_length", "content_policy", "content_filter"};
    for (size_t i = 0; i < STITCH__COUNT(hopeless); i++) {
        if (says(r, hopeless[i]))
            return false;
    }
    return r->status ? stitch__retry_status(r->status) : true;
}

int64_t stitch__retry_after_ms(const char *value, int64_t now_s)
{
    const char *p = value + strspn(value, " \t");
    int64_t ms = 0, unit = 1000;

    if (*p >= '0' && *p <= '9') { /* seconds; some servers send fractions */
        for (; *p >= '0' && *p <= '9'; p++)
            ms = ms > MAX_PAUSE_MS ? ms : ms * 10 + (*p - '0') * 1000;
        if (*p == '.')
            for (p++; *p >= '0' && *p <= '9'; p++)
                ms += (*p - '0') * (unit /= 10);
        p += strspn(p, " \t\r\n");
        if (!*p)
            return ms < MAX_PAUSE_MS ? ms : MAX_PAUSE_MS;
        return -1;
    }
    time_t at = *p ? curl_getdate(p, NULL) : -1;
    if (at == -1)
        return -1;
    int64_t seconds = (int64_t)at > now_s ? (int64_t)at - now_s : 0;
    return seconds < MAX_PAUSE_MS / 1000 ? seconds * 1000 : MAX_PAUSE_MS;
}

int64_t stitch__retry_pause_ms(int tries, int64_t first_ms, int64_t max_ms, int64_t retry_after_ms, uint64_t *random)
{
    uint64_t x = *random | 1;
    int64_t full = first_ms < max_ms ? first_ms : max_ms;
    for (int i = 1; i < tries && full < max_ms; i++)
        full = full > max_ms / 2 ? max_ms : full * 2;
    x ^= x << 13; /* xorshift64: only so that many clients do not come back at once */
    x ^= x >> 7;
    x ^= x << 17;
    *random = x;
    int64_t ms = full / 2 + (int64_t)(x % (uint64_t)(full / 2 + 1));
    if (retry_after_ms < 0 || retry_after_ms >= MAX_PAUSE_MS)
        return retry_after_ms < 0 ? ms : MAX_PAUSE_MS;
    /* Whoever was told the same time should not come back in the same instant either. */
    return retry_after_ms > full / 2 ? retry_after_ms + (int64_t)(x % (uint64_t)(full / 8 + 1)) : ms;
}

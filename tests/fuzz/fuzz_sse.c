/* SPDX-License-Identifier: MIT
 *
 * Server-sent events: whatever the bytes, the events do not depend on how the bytes are cut, and nothing outgrows the
 * limit. The first byte of the input says how long the pieces are.
 */
#include <stdlib.h>

#include "model/model.h"

enum { LIMIT = 512 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int gather(const char *data, size_t len, void *userdata)
{
    stitch__buf *b = userdata;
    if (len > LIMIT || strlen(data) > len)
        abort();
    stitch__buf_printf(b, "%zu:", len);
    stitch__buf_append(b, data, len);
    return STITCH_OK;
}

static int parse(const char *bytes, size_t size, size_t piece, stitch__buf *events)
{
    stitch_error *err = NULL;
    stitch__sse s;
    int rc = STITCH_OK;

    stitch__buf_init(events, NULL);
    stitch__sse_init(&s, NULL, LIMIT, gather, events);
    for (size_t at = 0; at < size && rc == STITCH_OK; at += piece)
        rc = stitch__sse_feed(&s, bytes + at, size - at < piece ? size - at : piece, &err);
    if (rc == STITCH_OK)
        rc = stitch__sse_finish(&s, &err);
    if (rc != STITCH_OK && (rc != STITCH_E_LIMIT || !*stitch_error_message(err)))
        abort();
    stitch_error_free(err);
    stitch__sse_free(&s);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch__buf whole, pieces;
    if (size == 0)
        return 0;
    size_t piece = data[0] % 16 + 1;
    const char *bytes = (const char *)data + 1;
    int rc = parse(bytes, size - 1, size, &whole), rc_pieces = parse(bytes, size - 1, piece, &pieces);
    if (rc != rc_pieces)
        abort();
    if (whole.len != pieces.len || (whole.len && memcmp(whole.data, pieces.data, whole.len) != 0))
        abort();
    stitch__buf_free(&whole);
    stitch__buf_free(&pieces);
    return 0;
}

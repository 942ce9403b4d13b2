/* SPDX-License-Identifier: MIT
 *
 * Facts from a stranger: any text is either facts within their bounds, which are written and read again as they are, or
 * an error.
 */
#include <stdlib.h>

#include "../support/facts_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *text_of(const stitch__facts *f, size_t *len)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    if (stitch__facts_write(f, &b) != STITCH_OK)
        abort();
    return stitch__buf_take(&b, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch__facts *f, *again;
    stitch_error *err = NULL;
    size_t len, again_len;

    int rc = stitch__facts_read(NULL, (const char *)data, size, &f, &err);
    if (rc) {
        if ((rc != STITCH_E_FORMAT && rc != STITCH_E_LIMIT) || f || !*stitch_error_message(err))
            abort();
        stitch_error_free(err);
        return 0;
    }
    if (!facts_ok(f))
        abort();
    char *text = text_of(f, &len);
    if (!text || stitch__facts_read(NULL, text, len, &again, &err) != STITCH_OK)
        abort();
    char *text_again = text_of(again, &again_len);
    if (!text_again || again_len != len || memcmp(text, text_again, len) != 0)
        abort();
    stitch_free(text);
    stitch_free(text_again);
    stitch__facts_free(f);
    stitch__facts_free(again);
    return 0;
}

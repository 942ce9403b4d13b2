/* SPDX-License-Identifier: MIT
 *
 * Messages for the host's logger.
 */
#include <stdio.h>

#include "base/context_private.h"

void stitch__log(const stitch_context *ctx, int level, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    if (!ctx || !ctx->options.log || level > ctx->options.log_level)
        return;
    va_start(ap, fmt);
    stitch__vformat(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (char *c = text; *c; c++) { /* text from outside must not be able to forge a line */
        if ((unsigned char)*c < 0x20 && *c != '\t')
            *c = ' ';
    }
    ctx->options.log(level, text, ctx->options.log_userdata);
}

/* SPDX-License-Identifier: MIT
 *
 * In place of http.c where the library is built without libcurl.
 */
#include "model/model.h"

const char *stitch__curl_open(const char **why)
{
    *why = "built without libcurl: models over HTTP cannot be used";
    return NULL;
}

int stitch_http_options_init(stitch_http_options *options, size_t struct_size)
{
    return stitch__options_init(options, struct_size, sizeof(stitch_http_options));
}

int stitch_model_new_http(stitch_context *ctx, const stitch_http_options *options, stitch_model **out,
                          stitch_error **err)
{
    (void)options;
    if (out)
        *out = NULL;
    return stitch__err(ctx, err, STITCH_E_UNSUPPORTED,
                       "this libstitch was built without libcurl: models over HTTP are not available");
}

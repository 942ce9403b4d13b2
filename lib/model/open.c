/* SPDX-License-Identifier: MIT
 *
 * Models from a text.
 */
#include "model/model.h"

enum { MAX_SPEC = 4096, MAX_NESTED = 4 };

static int open_http(stitch_context *ctx, const char *spec, stitch_model **out, stitch_error **err)
{
    stitch_http_options o = STITCH_HTTP_OPTIONS_INIT;
    const char *hash = strchr(spec, '#');
    if (!hash || !hash[1])
        return stitch__err(ctx, err, STITCH_E_INVALID, "'%.200s' names no model: write https://HOST/v1#MODEL", spec);
    char *url = stitch__strndup(ctx, spec, (size_t)(hash - spec));
    if (!url)
        return stitch__err_nomem(ctx, err);
    o.base_url = url;
    o.model = hash + 1;
    int rc = stitch_model_new_http(ctx, &o, out, err);
    stitch_free(url);
    return rc;
}

static int open_spec(stitch_context *ctx, const char *spec, int depth, stitch_model **out, stitch_error **err);

static int open_record(stitch_context *ctx, const char *rest, int depth, stitch_model **out, stitch_error **err)
{
    const char *comma = strchr(rest, ',');
    stitch_model *inner = NULL;
    int rc;
    if (!comma || comma == rest)
        return stitch__err(ctx, err, STITCH_E_INVALID, "'record:%.200s': write record:FILE,MODEL", rest);
    if ((rc = open_spec(ctx, comma + 1, depth + 1, &inner, err)) != STITCH_OK)
        return rc;
    char *path = stitch__strndup(ctx, rest, (size_t)(comma - rest));
    rc = path ? stitch_model_new_record(ctx, inner, path, out, err) : stitch__err_nomem(ctx, err);
    if (rc)
        stitch_model_free(inner);
    stitch_free(path);
    return rc;
}

static int open_spec(stitch_context *ctx, const char *spec, int depth, stitch_model **out, stitch_error **err)
{
    static const struct {
        const char *prefix, *what, *wanted;
    } prefixes[] = {
        {"replay:", "recording", "FILE"}, {"replay-strict:", "recording", "FILE"}, {"relay:", "folder", "FOLDER"}};

    if (depth > MAX_NESTED)
        return stitch__err(ctx, err, STITCH_E_INVALID, "more than %d models inside each other", MAX_NESTED);
    if (strncmp(spec, "https://", 8) == 0 || strncmp(spec, "http://", 7) == 0)
        return open_http(ctx, spec, out, err);
    for (size_t i = 0; i < STITCH__COUNT(prefixes); i++)
        if (strcmp(spec, prefixes[i].prefix) == 0)
            return stitch__err(ctx, err, STITCH_E_INVALID, "'%s' names no %s: write %s%s", spec, prefixes[i].what, spec,
                               prefixes[i].wanted);
    if (strncmp(spec, "replay:", 7) == 0)
        return stitch_model_new_replay(ctx, spec + 7, 0, out, err);
    if (strncmp(spec, "replay-strict:", 14) == 0)
        return stitch_model_new_replay(ctx, spec + 14, 1, out, err);
    if (strncmp(spec, "relay:", 6) == 0)
        return stitch_model_new_relay(ctx, spec + 6, out, err);
    if (strncmp(spec, "record:", 7) == 0)
        return open_record(ctx, spec + 7, depth, out, err);
    return stitch__err(ctx, err, STITCH_E_INVALID,
                       "'%.200s' is no model: use https://HOST/v1#MODEL, replay:FILE, replay-strict:FILE, relay:FOLDER "
                       "or record:FILE,MODEL",
                       spec);
}

int stitch_model_open(stitch_context *ctx, const char *spec, stitch_model **out, stitch_error **err)
{
    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_open: out must not be NULL");
    *out = NULL;
    if (!ctx || !spec || strlen(spec) > MAX_SPEC)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_model_open: context and text must not be NULL, the text at most %d bytes", MAX_SPEC);
    return open_spec(ctx, spec, 0, out, err);
}

/* SPDX-License-Identifier: MIT
 *
 * Programs: source and launch plan, validated, compiled.
 */
#include "program/program.h"

static int check_source(stitch_context *ctx, const char *source, const stitch__limits *limits, stitch_error **err)
{
    size_t len = strlen(source);
    if (len > limits->source_bytes)
        return stitch__err_native(ctx, err, STITCH_E_LIMIT, STITCH_DOMAIN_PROGRAM, 0,
                                  "the source has %zu bytes, the limit is %" PRIu64, len, limits->source_bytes);
    if (!stitch__utf8_valid(source, len))
        return stitch__err_native(ctx, err, STITCH_E_FORMAT, STITCH_DOMAIN_PROGRAM, 0, "the source is not valid UTF-8");
    return STITCH_OK;
}

int stitch__program_from_json(stitch_context *ctx, const char *source, const json_t *root, const stitch__limits *limits,
                              stitch_program **out, stitch_error **err)
{
    stitch__sha256 h;
    stitch_program *p = stitch__calloc(ctx, 1, sizeof(*p));
    int rc;

    *out = NULL;
    if (!p)
        return stitch__err_nomem(ctx, err);
    p->ctx = ctx;
    p->limits = *limits;
    if ((rc = check_source(ctx, source, limits, err)) != STITCH_OK ||
        (rc = stitch__doc_parse(ctx, root, limits, &p->doc, err)) != STITCH_OK)
        goto out;
    p->source = stitch__strdup(ctx, source);
    p->json = stitch__json_dump(ctx, root, 2);
    if (!p->source || !p->json) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    stitch__sha256_init(&h);
    stitch__sha256_string(&h, p->source);
    stitch__sha256_string(&h, p->json);
    stitch__sha256_hex(&h, p->hash);
    *out = p;
    p = NULL;
out:
    stitch_program_free(p);
    stitch__err_domain(err, STITCH_DOMAIN_PROGRAM);
    return rc;
}

int stitch_program_parse(stitch_context *ctx, const char *source, const char *json, const stitch_program_limits *limits,
                         stitch_program **out, stitch_error **err)
{
    stitch__limits l;
    json_t *root = NULL;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_program_parse: out must not be NULL");
    *out = NULL;
    if (!ctx || !source || !json)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_program_parse: context, source and json must not be NULL");
    int rc = stitch__limits_resolve(ctx, limits, &l, err);
    if (rc == STITCH_OK)
        rc = stitch__json_parse(ctx, json, strlen(json), l.json_bytes, "the launch plan", &root, err);
    if (rc == STITCH_OK)
        rc = stitch__program_from_json(ctx, source, root, &l, out, err);
    json_decref(root);
    return rc;
}

void stitch_program_free(stitch_program *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->compiled_count; i++) {
        stitch_image_free(p->compiled[i].image);
        stitch_image_free(p->compiled[i].helpers);
    }
    stitch_free(p->compiled);
    stitch_image_free(p->failed);
    stitch_interface_free(p->iface);
    stitch__doc_free(&p->doc);
    stitch_free(p->source);
    stitch_free(p->json);
    stitch_free(p);
}

const char *stitch_program_source(const stitch_program *p)
{
    return p ? p->source : "";
}

const char *stitch_program_json(const stitch_program *p)
{
    return p ? p->json : "";
}

const char *stitch_program_hash(const stitch_program *p)
{
    return p ? p->hash : "";
}

const stitch_interface *stitch_program_interface(const stitch_program *p)
{
    return p ? p->iface : NULL;
}

int stitch_program_validate(stitch_program *p, const stitch_interface *i, const char *arch, stitch_error **err)
{
    stitch_interface *copy = NULL;
    if (!p || !i)
        return stitch__err(p ? p->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_program_validate: program and interface must not be NULL");
    int rc = stitch__interface_copy(i, &copy, err);
    if (rc == STITCH_OK)
        rc = stitch__doc_validate(&p->doc, copy, arch, &p->limits, err);
    stitch_interface_free(p->iface); /* names are resolved against the new one now, or against none */
    p->iface = rc ? NULL : copy;
    if (rc)
        stitch_interface_free(copy);
    stitch__err_domain(err, STITCH_DOMAIN_PROGRAM);
    return rc;
}

stitch__compiled *stitch__program_compiled(stitch_program *p, const char *arch, bool ptx)
{
    for (size_t i = 0; i < p->compiled_count; i++) {
        const stitch_image *image = p->compiled[i].image;
        if (strcmp(stitch_image_arch(image), arch) == 0 && (stitch_image_is_ptx(image) != 0) == ptx)
            return &p->compiled[i];
    }
    return NULL;
}

size_t stitch__program_forget_brought(stitch_program *p)
{
    size_t kept = 0, all = p->compiled_count;

    for (size_t i = 0; i < p->compiled_count; i++) {
        if (p->compiled[i].brought) {
            stitch_image_free(p->compiled[i].image);
            stitch_image_free(p->compiled[i].helpers);
        } else {
            p->compiled[kept++] = p->compiled[i];
        }
    }
    p->compiled_count = kept;
    return all - kept;
}

int stitch__program_keep(stitch_program *p, stitch_image *image, stitch_image *helpers, stitch_error **err)
{
    stitch__compiled *there = stitch__program_compiled(p, stitch_image_arch(image), stitch_image_is_ptx(image) != 0);
    if (!there) {
        if (stitch__grow(p->ctx, &p->compiled, &p->compiled_cap, p->compiled_count + 1, sizeof(*p->compiled))) {
            stitch_image_free(image);
            stitch_image_free(helpers);
            return stitch__err_nomem(p->ctx, err);
        }
        there = &p->compiled[p->compiled_count++];
        *there = (stitch__compiled){NULL, NULL, false};
    }
    stitch_image_free(there->image);
    stitch_image_free(there->helpers);
    *there = (stitch__compiled){image, helpers, false};
    return STITCH_OK;
}

int stitch__program_signatures(stitch_program *p, const stitch_image *image, stitch_error **err)
{
    stitch__findings f;
    stitch__findings_init(&f, p->ctx);
    int rc = stitch__check_signatures(&p->doc, image, p->iface, &f, err);
    if (rc == STITCH_OK)
        rc = stitch__findings_end(&f, STITCH_E_VALIDATE, err);
    stitch__buf_free(&f.text);
    return rc;
}

int stitch_program_compile(stitch_program *p, const stitch_compile_options *options, const stitch_image **image,
                           stitch_error **err)
{
    return stitch__program_compile_by(p, options, NULL, image, err);
}

int stitch__program_compile_by(stitch_program *p, const stitch_compile_options *options, const stitch__compiler *by,
                               const stitch_image **image, stitch_error **err)
{
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    stitch_image *made = NULL, *helpers = NULL;
    const char **names = NULL;
    int rc = STITCH_OK;

    if (image)
        *image = NULL;
    if (!p)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_program_compile: the program must not be NULL");
    if (options &&
        (rc = stitch__options_copy(p->ctx, &o, sizeof(o), options, "stitch_compile_options", err)) != STITCH_OK)
        return rc;
    if ((rc = stitch__kernel_names(&p->doc, &names, &o.name_count, err)) != STITCH_OK)
        return rc;
    o.names = names;
    rc = stitch__compile_by(p->ctx, p->source, &o, by, &made, err);
    stitch_free(names);
    if (rc) {
        stitch_image_free(p->failed);
        p->failed = made;
        if (image)
            *image = made;
        return rc;
    }
    if (stitch__needs_helpers(&p->doc))
        rc = stitch__compile_helpers(p->ctx, stitch_image_arch(made), stitch_image_is_ptx(made) != 0, o.no_cache != 0,
                                     &helpers, err);
    if (rc) {
        stitch_image_free(made);
        return rc;
    }
    rc = stitch__program_keep(p, made, helpers, err);
    if (rc)
        return rc;
    if (image)
        *image = made;
    return stitch__program_signatures(p, made, err);
}

/* SPDX-License-Identifier: MIT
 *
 * Prompt templates: {{name}} and {{#name}}...{{/name}}.
 */
#include "agent/agent.h"

typedef struct renderer {
    const stitch_context *ctx;
    const char *name, *text;
    const stitch__var *vars;
    size_t count;
    bool stable;
    stitch_error **err;
} renderer;

static const char *var_value(const stitch__var *v, bool stable)
{
    const char *value = stable && v->stable ? v->stable : v->value;
    return value ? value : "";
}

static const stitch__var *var_find(const renderer *r, const char *name, size_t len)
{
    for (size_t i = 0; i < r->count; i++) {
        if (strlen(r->vars[i].name) == len && memcmp(r->vars[i].name, name, len) == 0)
            return &r->vars[i];
    }
    return NULL;
}

static int fail_at(const renderer *r, const char *at, const char *what, const char *tag, size_t len)
{
    size_t line = 1;
    for (const char *c = r->text; c < at; c++)
        line += *c == '\n';
    return stitch__err(r->ctx, r->err, STITCH_E_FORMAT, "prompt template %s, line %zu: %s {{%.*s}}", r->name, line,
                       what, (int)(len < 64 ? len : 64), tag);
}

int stitch__template_render(const stitch_context *ctx, const char *name, const char *text, const stitch__var *vars,
                            size_t count, bool stable, char **out, stitch_error **err)
{
    enum { MAX_DEPTH = 8 };
    renderer r = {ctx, name, text, vars, count, stable, err};
    const stitch__var *open[MAX_DEPTH];
    int depth = 0, hidden = 0; /* sections that are open, and how many of them are left out */
    stitch__buf b;
    int rc = STITCH_OK;

    *out = NULL;
    stitch__buf_init(&b, ctx);
    for (const char *p = text;;) {
        const char *tag = strstr(p, "{{");
        if (!hidden)
            stitch__buf_append(&b, p, tag ? (size_t)(tag - p) : strlen(p));
        if (!tag)
            break;
        const char *start = tag + 2, *end = strstr(start, "}}");
        if (!end) {
            rc = fail_at(&r, tag, "not closed:", start, strcspn(start, "\n"));
            goto out;
        }
        char kind = *start == '#' || *start == '/' ? *start : 0;
        const char *word = start + (kind ? 1 : 0);
        const stitch__var *v = var_find(&r, word, (size_t)(end - word));
        if (!v) {
            rc = fail_at(&r, tag, "unknown variable", start, (size_t)(end - start));
            goto out;
        }
        if (kind == '#') {
            if (depth == MAX_DEPTH) {
                rc = fail_at(&r, tag, "too many open sections at", start, (size_t)(end - start));
                goto out;
            }
            open[depth++] = v;
            if (hidden || !*var_value(v, stable))
                hidden++;
        } else if (kind == '/') {
            if (depth == 0 || open[depth - 1] != v) {
                rc = fail_at(&r, tag, "section end without its beginning:", start, (size_t)(end - start));
                goto out;
            }
            depth--;
            if (hidden)
                hidden--;
        } else if (!hidden) {
            stitch__buf_puts(&b, var_value(v, stable));
        }
        p = end + 2;
    }
    if (depth) {
        rc = fail_at(&r, text + strlen(text), "section is not closed:", open[depth - 1]->name,
                     strlen(open[depth - 1]->name));
        goto out;
    }
    *out = stitch__buf_take(&b, NULL);
    if (!*out)
        rc = stitch__err_nomem(ctx, err);
out:
    stitch__buf_free(&b);
    return rc;
}

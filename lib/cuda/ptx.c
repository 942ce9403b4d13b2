/* SPDX-License-Identifier: MIT
 *
 * Reads the entry functions of a PTX text: parameter lists, .maxntid, static shared memory. Not a PTX parser: what it
 * does not look for it skips. Safe on any text.
 */
#include "cuda/internal.h"

typedef struct lexer {
    const char *at, *end;
    const char *token; /* not NUL-terminated; len 0 at the end of the text */
    size_t len;
} lexer;

enum { MAX_BYTES = 1 << 30 };

static void skip_space(lexer *l)
{
    while (l->at < l->end) {
        if (*l->at == ' ' || (*l->at >= '\t' && *l->at <= '\r')) {
            l->at++;
        } else if (*l->at == '/' && l->at + 1 < l->end && l->at[1] == '/') {
            const char *nl = memchr(l->at, '\n', (size_t)(l->end - l->at));
            l->at = nl ? nl : l->end;
        } else if (*l->at == '/' && l->at + 1 < l->end && l->at[1] == '*') {
            l->at += 2;
            while (l->at < l->end && !(l->at[0] == '*' && l->at + 1 < l->end && l->at[1] == '/'))
                l->at++;
            l->at = l->at + 2 < l->end ? l->at + 2 : l->end;
        } else {
            break;
        }
    }
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '%' || c == '.';
}

static bool next(lexer *l)
{
    skip_space(l);
    l->token = l->at;
    if (l->at < l->end && *l->at == '"') {
        const char *quote = memchr(l->at + 1, '"', (size_t)(l->end - l->at - 1));
        l->at = quote ? quote + 1 : l->end;
    } else if (l->at < l->end && !is_word(*l->at)) {
        l->at++;
    } else {
        while (l->at < l->end && is_word(*l->at))
            l->at++;
    }
    l->len = (size_t)(l->at - l->token);
    return l->len > 0;
}

static bool is(const lexer *l, const char *text)
{
    return strlen(text) == l->len && memcmp(l->token, text, l->len) == 0;
}

/* A plain decimal number up to MAX_BYTES; -1 otherwise. */
static int64_t number(const lexer *l)
{
    int64_t n = 0;
    if (l->len == 0 || l->len > 10)
        return -1;
    for (size_t i = 0; i < l->len; i++) {
        if (l->token[i] < '0' || l->token[i] > '9')
            return -1;
        n = n * 10 + (l->token[i] - '0');
    }
    return n <= MAX_BYTES ? n : -1;
}

/* Bytes of ".u64", ".b8", ...; 0 for anything else. */
static unsigned type_size(const lexer *l)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } types[] = {{".u64", 8}, {".s64", 8}, {".b64", 8}, {".f64", 8},   {".u32", 4},   {".s32", 4},
                 {".b32", 4}, {".f32", 4}, {".u16", 2}, {".s16", 2},   {".b16", 2},   {".f16", 2},
                 {".u8", 1},  {".s8", 1},  {".b8", 1},  {".b128", 16}, {".f16x2", 4}, {".bf16", 2}};
    for (size_t i = 0; i < STITCH__COUNT(types); i++) {
        if (is(l, types[i].name))
            return types[i].bytes;
    }
    return 0;
}

/* After ".param" or ".shared": [.align N] .type ... name [N]... up to one of `stops`, which stays the current token. */
static bool variable(lexer *l, const char *stops, uint64_t *size, uint64_t *align)
{
    uint64_t bytes = 0, count = 1;
    *align = 0;
    while (next(l)) {
        if (l->len == 1 && strchr(stops, *l->token))
            break;
        if (is(l, "{") || is(l, "}"))
            return false;
        if (is(l, ".align") || is(l, "[")) {
            bool array = is(l, "[");
            if (!next(l) || number(l) < 1)
                return false;
            uint64_t n = (uint64_t)number(l);
            if (array) {
                if (n > MAX_BYTES / count)
                    return false;
                count *= n;
            } else if (!bytes) { /* the one after .ptr is of what is pointed to */
                *align = n;
            }
        } else if (!bytes) {
            bytes = type_size(l);
        }
    }
    if (!l->len || !bytes || bytes * count > MAX_BYTES)
        return false;
    *size = bytes * count;
    if (!*align)
        *align = bytes;
    return (*align & (*align - 1)) == 0;
}

static uint64_t align_up(uint64_t n, uint64_t align)
{
    return (n + align - 1) & ~(align - 1);
}

static int read_params(lexer *l, stitch__arena *arena, stitch__entry *e, const char **why)
{
    size_t cap = 0;
    uint64_t offset = 0;
    while (next(l) && !is(l, ")")) {
        uint64_t size, align;
        if (is(l, ","))
            continue;
        if (!is(l, ".param") || !variable(l, ",)", &size, &align)) {
            *why = "a parameter list cannot be read";
            return STITCH_E_FORMAT;
        }
        if (e->param_count == cap) {
            size_t more = cap ? cap * 2 : 16;
            stitch__param_layout *list = stitch__arena_array(arena, more, sizeof(*list));
            if (!list)
                return STITCH_E_NOMEM;
            if (e->param_count)
                memcpy(list, e->params, e->param_count * sizeof(*list));
            e->params = list;
            cap = more;
        }
        offset = align_up(offset, align);
        e->params[e->param_count++] = (stitch__param_layout){offset, size};
        offset += size;
        if (is(l, ")"))
            break;
    }
    return STITCH_OK;
}

/* ".maxntid 256, 1, 1" with one to three numbers; leaves the token after them current. */
static void read_threads(lexer *l, stitch__entry *e)
{
    int64_t product = 1;
    while (next(l)) {
        int64_t n = number(l);
        if (n < 1 || n > 1024)
            return;
        product *= n;
        if (product > 1024 * 1024)
            return;
        e->max_threads = product;
        if (!next(l) || !is(l, ","))
            return;
    }
}

/* From the name to the end of the body. */
static int read_entry(lexer *l, stitch__arena *arena, stitch__entry *e, const char **why)
{
    if (!next(l) || !is_word(*l->token)) {
        *why = "an .entry has no name";
        return STITCH_E_FORMAT;
    }
    *e = (stitch__entry){stitch__arena_strndup(arena, l->token, l->len), -1, 0, -1, -1, -1, -1, 0, NULL};
    if (!e->symbol)
        return STITCH_E_NOMEM;
    bool more = next(l);
    if (more && is(l, "(")) {
        int rc = read_params(l, arena, e, why);
        if (rc)
            return rc;
        more = next(l);
    }
    while (more && !is(l, "{") && !is(l, ";")) {
        if (is(l, ".maxntid") || is(l, ".reqntid")) {
            read_threads(l, e);
            more = l->len > 0;
        } else {
            more = next(l);
        }
    }
    for (size_t depth = is(l, "{") ? 1 : 0; depth > 0;) {
        if (!next(l)) {
            *why = "a function body does not end";
            return STITCH_E_FORMAT;
        }
        uint64_t size, align;
        bool was_dot = is(l, ".shared");
        if (is(l, "{"))
            depth++;
        else if (is(l, "}"))
            depth--;
        else if (was_dot && variable(l, ";", &size, &align))
            e->static_shared = (int64_t)(align_up((uint64_t)e->static_shared, align) + size);
        if (e->static_shared > MAX_BYTES)
            e->static_shared = MAX_BYTES;
    }
    return STITCH_OK;
}

int stitch__ptx_parse(stitch__arena *arena, const char *text, size_t len, stitch__entries *out, const char **why)
{
    lexer l = {text, text + len, text, 0};
    size_t cap = 0, depth = 0;
    bool module_shared = false, version = false, external = false;
    *out = (stitch__entries){0};
    *why = "";
    while (next(&l)) {
        version = version || is(&l, ".version");
        if (is(&l, "{"))
            depth++;
        else if (is(&l, "}") && depth)
            depth--;
        if (depth == 0 && is(&l, ".shared") && !external)
            module_shared = true; /* which kernels use it would need their whole call trees */
        external = is(&l, ".extern");
        if (!is(&l, ".entry"))
            continue;
        if (out->count == cap) {
            size_t more = cap ? cap * 2 : 16;
            stitch__entry *list = stitch__arena_array(arena, more, sizeof(*list));
            if (!list)
                return STITCH_E_NOMEM;
            if (out->count)
                memcpy(list, out->list, out->count * sizeof(*list));
            out->list = list;
            cap = more;
        }
        int rc = read_entry(&l, arena, &out->list[out->count], why);
        if (rc) {
            *out = (stitch__entries){0};
            return rc;
        }
        out->count++;
    }
    if (!version) {
        *why = "it has no .version: it is no PTX";
        *out = (stitch__entries){0};
        return STITCH_E_FORMAT;
    }
    for (size_t i = 0; i < out->count && module_shared; i++)
        out->list[i].static_shared = -1;
    return STITCH_OK;
}

/* ---- PTX lines to source lines ---- */

static bool starts(const char *line, size_t len, const char *word, const char **rest)
{
    while (len && (*line == ' ' || *line == '\t')) {
        line++;
        len--;
    }
    size_t n = strlen(word);
    *rest = line + n;
    return len > n && memcmp(line, word, n) == 0;
}

static int small_number(const char **at, const char *end)
{
    int n = 0, digits = 0;
    while (*at < end && (**at == ' ' || **at == '\t'))
        ++*at;
    while (*at < end && **at >= '0' && **at <= '9' && digits++ < 9)
        n = n * 10 + (*(*at)++ - '0');
    return digits ? n : -1;
}

int stitch__ptx_source_line(const char *text, size_t len, int ptx_line)
{
    static const char name[] = "program.cu\"";
    const char *end = text + len, *rest;
    int file = -1, line = 0, source = 0;
    for (int pass = 0; pass < 2; pass++) { /* .file directives come last in the text */
        line = 0;
        for (const char *at = text; at < end && (pass == 0 || line < ptx_line);) {
            const char *nl = memchr(at, '\n', (size_t)(end - at)), *stop = nl ? nl : end;
            line++;
            if (pass == 0 && starts(at, (size_t)(stop - at), ".file", &rest)) {
                int index = small_number(&rest, stop);
                const char *found = memmem(rest, (size_t)(stop - rest), name, sizeof(name) - 1);
                if (found && (found[-1] == '/' || found[-1] == '"'))
                    file = index;
            } else if (pass == 1 && starts(at, (size_t)(stop - at), ".loc", &rest)) {
                int index = small_number(&rest, stop), number_of = small_number(&rest, stop);
                if (index == file && number_of > 0)
                    source = number_of;
            }
            at = nl ? nl + 1 : end;
        }
        if (file < 0)
            return 0;
    }
    return source;
}

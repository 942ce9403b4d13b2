/* SPDX-License-Identifier: MIT
 *
 * Reads the log of NVRTC and ptxas into messages with places. Lines that quote the source are indented, so that text in
 * the source cannot pass for a message of the compiler.
 */
#include "cuda/internal.h"

typedef struct span {
    const char *at;
    size_t len;
} span;

typedef struct parser {
    stitch__arena *arena;
    const char *at, *end;
    const char *ptx;
    size_t ptx_len;
    stitch__diagnostics *out;
    stitch__usages *usages;
    stitch_diagnostic *open;  /* the message that indented lines belong to */
    stitch_diagnostic *owner; /* the error or warning that it explains, where it is a note; otherwise itself */
    int quoted;               /* indented lines seen since it began */
    bool context;             /* "detected during" is among them: the rest is about where the owner came from */
    stitch__usage *usage;     /* of the kernel that ptxas reports on */
    bool frame_is_kernels;    /* the next stack-frame line is of that kernel, not of a function that it calls */
} parser;

/* ---- text ---- */

static span trim(span s)
{
    while (s.len && (s.at[0] == ' ' || s.at[0] == '\t')) {
        s.at++;
        s.len--;
    }
    while (s.len && (s.at[s.len - 1] == ' ' || s.at[s.len - 1] == '\t' || s.at[s.len - 1] == '\r'))
        s.len--;
    return s;
}

static bool starts(span s, const char *word)
{
    size_t n = strlen(word);
    return s.len >= n && memcmp(s.at, word, n) == 0;
}

static bool eat(span *s, const char *word)
{
    if (!starts(*s, word))
        return false;
    s->at += strlen(word);
    s->len -= strlen(word);
    return true;
}

static bool has(span s, const char *part, size_t *where)
{
    const char *found = s.len ? memmem(s.at, s.len, part, strlen(part)) : NULL;
    if (found && where)
        *where = (size_t)(found - s.at);
    return found != NULL;
}

static bool number(span *s, int64_t *out)
{
    int64_t n = 0;
    size_t digits = 0;
    while (digits < s->len && s->at[digits] >= '0' && s->at[digits] <= '9') {
        if (digits >= 12)
            return false;
        n = n * 10 + (s->at[digits++] - '0');
    }
    if (!digits)
        return false;
    s->at += digits;
    s->len -= digits;
    *out = n;
    return true;
}

static bool next_line(parser *p, span *line)
{
    if (p->at >= p->end)
        return false;
    const char *nl = memchr(p->at, '\n', (size_t)(p->end - p->at));
    *line = (span){p->at, (size_t)((nl ? nl : p->end) - p->at)};
    p->at = nl ? nl + 1 : p->end;
    return true;
}

/* NVRTC's advice is an option that this library does not set: it would turn host functions into device functions
 * silently, and the program's exported form would not compile with nvcc. */
static span without_wrong_advice(span s)
{
    size_t at;
    if (has(s, " Consider using -default-device flag", &at))
        s.len = at;
    return s;
}

static char *copy_clean(parser *p, span s)
{
    stitch__buf b;
    stitch__buf_init(&b, p->arena->ctx);
    s = trim(s);
    bool host = has(s, "is considered a host", NULL);
    stitch__buf_puts_clean(&b, s.at, without_wrong_advice(s).len, 2000);
    if (host && b.len && b.data[b.len - 1] == '.')
        stitch__buf_truncate(&b, b.len - 1);
    if (host)
        stitch__buf_puts(&b, ". Write __device__ (or __constant__, __shared__) in front of it");
    for (size_t i = 0; i < b.len; i++) {
        if (b.data[i] == '\n' || b.data[i] == '\t')
            b.data[i] = ' ';
    }
    char *copy = b.failed ? NULL : stitch__arena_strdup(p->arena, b.data ? b.data : "");
    stitch__buf_free(&b);
    return copy;
}

/* ---- messages ---- */

static stitch_diagnostic *slot(stitch__diagnostics *list, int severity)
{
    if (list->count < STITCH__DIAGNOSTICS_MAX)
        return &list->list[list->count++];
    for (size_t i = list->count; severity == STITCH_SEVERITY_ERROR && i-- > 0;) {
        if (list->list[i].severity != STITCH_SEVERITY_ERROR)
            return &list->list[i];
    }
    return NULL;
}

int stitch__diagnostics_add(stitch__arena *arena, stitch__diagnostics *list, int severity, int line, int column,
                            const char *file, const char *message)
{
    if (!list->list) {
        list->list = stitch__arena_array(arena, STITCH__DIAGNOSTICS_MAX, sizeof(*list->list));
        if (!list->list)
            return STITCH_E_NOMEM;
    }
    if (severity == STITCH_SEVERITY_ERROR)
        list->errors++;
    stitch_diagnostic *d = slot(list, severity);
    if (!d)
        return STITCH_OK; /* there are enough */
    *d = (stitch_diagnostic){
        sizeof(*d), severity, line, column, 0, stitch__arena_strdup(arena, file), stitch__arena_strdup(arena, message)};
    return d->file && d->message ? STITCH_OK : STITCH_E_NOMEM;
}

static void close_message(parser *p)
{
    p->open = p->owner = NULL;
    p->context = false;
}

static int add(parser *p, int severity, int64_t line, span file, span message)
{
    char *text = copy_clean(p, message), *name;
    size_t slash = file.len;
    while (slash > 0 && file.at[slash - 1] != '/')
        slash--;
    span last = {file.at + slash, file.len - slash};
    if (last.len == 10 && starts(last, "program.cu"))
        file = last;
    name = copy_clean(p, file);
    if (!text || !name)
        return STITCH_E_NOMEM;
    size_t before = p->out->count;
    int rc = stitch__diagnostics_add(p->arena, p->out, severity, line > 0 && line < INT32_MAX ? (int)line : 0, 0, name,
                                     text);
    p->open = p->out->count > before ? &p->out->list[p->out->count - 1] : NULL;
    if (severity != STITCH_SEVERITY_NOTE || !p->owner)
        p->owner = p->open;
    p->quoted = 0;
    p->context = false;
    return rc;
}

/* "error: ", "warning #174-D: ", "catastrophic error: " ...; `s` is left behind it. */
static bool severity(span *s, int *out)
{
    static const struct {
        const char *word;
        int severity;
    } words[] = {{"error", STITCH_SEVERITY_ERROR},
                 {"catastrophic error", STITCH_SEVERITY_ERROR},
                 {"internal error", STITCH_SEVERITY_ERROR},
                 {"command-line error", STITCH_SEVERITY_ERROR},
                 {"fatal", STITCH_SEVERITY_ERROR},
                 {"warning", STITCH_SEVERITY_WARNING},
                 {"remark", STITCH_SEVERITY_NOTE},
                 {"note", STITCH_SEVERITY_NOTE},
                 {"info", STITCH_SEVERITY_NOTE}};
    for (size_t i = 0; i < STITCH__COUNT(words); i++) {
        span rest = *s;
        if (!eat(&rest, words[i].word))
            continue;
        if (starts(rest, " #")) {
            while (rest.len && *rest.at != ':') {
                rest.at++;
                rest.len--;
            }
        }
        rest = trim(rest);
        if (!eat(&rest, ":"))
            continue;
        *s = trim(rest);
        *out = words[i].severity;
        return true;
    }
    return false;
}

/* "program.cu(12): error: ..." */
static bool located(span line, span *file, int64_t *number_of, int *sev, span *message)
{
    for (size_t i = 0; i < line.len && i < 4096; i++) {
        if (line.at[i] != '(' || i == 0)
            continue;
        span rest = {line.at + i + 1, line.len - i - 1};
        if (!number(&rest, number_of) || !eat(&rest, "): ") || !severity(&rest, sev))
            continue;
        *file = (span){line.at, i};
        *message = rest;
        return true;
    }
    return false;
}

static int append(parser *p, stitch_diagnostic *d, span words)
{
    char *more = copy_clean(p, words);
    const char *joined = more ? stitch__arena_printf(p->arena, "%s; %s", d->message, more) : NULL;
    if (!joined)
        return STITCH_E_NOMEM;
    if (strlen(joined) < 4000)
        d->message = joined;
    return STITCH_OK;
}

/* An indented line: the quoted source, the caret under it, or more words. Where notes follow an error, how the compiler
 * got there ("detected during") is printed once, under the last of them: it belongs to the error. */
static int continuation(parser *p, span line)
{
    span words = trim(line);
    bool in_front = p->quoted == 0 && (starts(words, "argument types are: ") || starts(words, "operand types are: ") ||
                                       starts(words, "object type is: "));
    p->context = p->context || starts(words, "detected during");
    stitch_diagnostic *d = p->context ? p->owner : p->open;
    if (!in_front)
        p->quoted++;
    if (!d || !words.len)
        return STITCH_OK;
    if (p->quoted == 2 && words.len == 1 && *words.at == '^') {
        size_t column = (size_t)(words.at - line.at) - 1; /* two blanks in front of the source, columns from 1 */
        d->column = column < 100000 ? (int32_t)column : 0;
        return STITCH_OK;
    }
    return in_front || p->context || p->quoted > 2 ? append(p, d, words) : STITCH_OK;
}

/* ---- ptxas ---- */

static int usage_begin(parser *p, span line)
{
    size_t quote;
    span name = line;
    if (!has(name, "'", &quote))
        return STITCH_OK;
    name.at += quote + 1;
    name.len -= quote + 1;
    if (!has(name, "'", &quote))
        return STITCH_OK;
    if (stitch__grow(p->arena->ctx, &p->usages->list, &p->usages->cap, p->usages->count + 1,
                     sizeof(*p->usages->list)) != STITCH_OK)
        return STITCH_E_NOMEM;
    p->usage = &p->usages->list[p->usages->count];
    *p->usage = (stitch__usage){stitch__arena_strndup(p->arena, name.at, quote), -1, 0, 0, 0, 0};
    if (!p->usage->symbol)
        return STITCH_E_NOMEM;
    p->usages->count++;
    return STITCH_OK;
}

/* "464 bytes stack frame, 876 bytes spill stores": the number in front of each word. */
static void amounts(span line, stitch__usage *u)
{
    const struct {
        const char *words;
        int64_t *to;
    } kinds[] = {{" bytes stack frame", &u->stack},
                 {" bytes spill stores", &u->spill_stores},
                 {" bytes spill loads", &u->spill_loads},
                 {" bytes cumulative stack size", &u->stack},
                 {" bytes smem", &u->shared},
                 {" registers", &u->registers}};
    for (size_t i = 0; i < STITCH__COUNT(kinds); i++) {
        size_t at;
        if (!has(line, kinds[i].words, &at))
            continue;
        size_t begin = at;
        while (begin > 0 && line.at[begin - 1] >= '0' && line.at[begin - 1] <= '9')
            begin--;
        span digits = {line.at + begin, at - begin};
        int64_t value;
        if (number(&digits, &value) && value >= *kinds[i].to)
            *kinds[i].to = value;
    }
}

static bool is_resource_line(span line)
{
    if (!starts(line, "ptxas"))
        return has(line, " bytes stack frame, ", NULL) && has(line, " bytes spill stores", NULL) &&
               starts(line, "    ");
    span rest = line;
    eat(&rest, "ptxas");
    rest = trim(rest);
    return starts(rest, ".") || starts(rest, "info ");
}

static int resource_line(parser *p, span line)
{
    close_message(p);
    if (!p->usages)
        return STITCH_OK;
    if (has(line, "Compiling entry function ", NULL))
        return usage_begin(p, line);
    if (!p->usage)
        return STITCH_OK;
    size_t at;
    if (has(line, "Function properties for ", &at)) {
        span name = trim((span){line.at + at + 24, line.len - at - 24});
        p->frame_is_kernels = name.len == strlen(p->usage->symbol) && starts(name, p->usage->symbol);
    } else if (has(line, " bytes stack frame", NULL)) {
        if (p->frame_is_kernels)
            amounts(line, p->usage);
    } else if (has(line, "Used ", NULL)) {
        amounts(line, p->usage);
    }
    return STITCH_OK;
}

/* "ptxas application ptx input, line 29; error   : ...", "ptxas fatal   : ...", "ptxas warning : ..." */
static int assembler(parser *p, span line)
{
    static const char here[] = "program.cu";
    int64_t ptx_line = 0;
    int sev;
    size_t at;
    span rest = line;
    eat(&rest, "ptxas");
    rest = trim(rest);
    if (has(rest, ", line ", &at)) {
        span after = {rest.at + at + 7, rest.len - at - 7};
        if (number(&after, &ptx_line) && eat(&after, ";"))
            rest = trim(after);
    }
    if (!severity(&rest, &sev))
        return STITCH_OK;
    if (has(rest, "Ptx assembly aborted due to errors", NULL) && p->out->errors)
        return STITCH_OK;
    int64_t source = 0;
    if (ptx_line > 0 && ptx_line < INT32_MAX && p->ptx && p->out->count < STITCH__DIAGNOSTICS_MAX)
        source = stitch__ptx_source_line(p->ptx, p->ptx_len, (int)ptx_line);
    return add(p, sev, source, (span){here, sizeof(here) - 1}, rest);
}

/* ---- the log ---- */

static int parse_line(parser *p, span line)
{
    static const char here[] = "program.cu";
    const span program = {here, sizeof(here) - 1};
    span file, message, rest;
    int64_t at;
    int sev;
    if (is_resource_line(line))
        return resource_line(p, line);
    if (starts(line, " ") || starts(line, "\t"))
        return continuation(p, line);
    if (starts(line, "ptxas"))
        return assembler(p, line);
    if (located(line, &file, &at, &sev, &message))
        return add(p, sev, at, file, message);
    rest = line;
    if (eat(&rest, "At end of source: ") || eat(&rest, "nvrtc: ") || eat(&rest, "nvlink ") || eat(&rest, "NVVM ")) {
        if (severity(&rest, &sev))
            return add(p, sev, 0, program, rest);
    }
    rest = line;
    if (severity(&rest, &sev) && sev != STITCH_SEVERITY_NOTE)
        return add(p, sev, 0, program, rest);
    close_message(p);
    return STITCH_OK;
}

int stitch__diagnostics_parse(stitch__arena *arena, const char *log, size_t len, const char *ptx, size_t ptx_len,
                              stitch__diagnostics *out, stitch__usages *usages)
{
    parser p = {
        .arena = arena, .at = log, .end = log + len, .ptx = ptx, .ptx_len = ptx_len, .out = out, .usages = usages};
    span line;
    int rc = STITCH_OK;
    while (rc == STITCH_OK && next_line(&p, &line))
        rc = parse_line(&p, line);
    return rc;
}

void stitch__log_strip(const char *log, size_t len, stitch__buf *out)
{
    parser p = {.at = log, .end = log + len};
    span line;
    while (next_line(&p, &line)) {
        if (is_resource_line(line))
            continue;
        stitch__buf_append(out, line.at, line.len);
        stitch__buf_putc(out, '\n');
    }
}

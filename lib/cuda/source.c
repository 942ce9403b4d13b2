/* SPDX-License-Identifier: MIT
 *
 * What is looked for in source text before NVRTC sees it. NVRTC runs in this process, with this process's rights:
 * `#include "/proc/self/environ"` would put the environment, API keys included, into a compile log that goes to a
 * language model; and deep nesting overruns its stack, which ends the process.
 *
 * The scan knows comments, literals and spliced lines, but what is a directive it does not leave to that: whatever
 * begins a line, or what follows a comment, is looked at as one, for the compiler may see the end of a literal
 * elsewhere. At worst that refuses an odd comment.
 */
#include <limits.h>
#include <unistd.h>

#include "cuda/internal.h"

/* NVRTC gets a stack of 256 MiB; it was measured to hold well beyond these. */
enum { MAX_NESTING = 1000, MAX_RUN = 4000, MAX_ELSE = 20000, MAX_FINDINGS = 20 };

typedef struct scanner {
    stitch__arena *arena;
    const char *at, *end;
    int line;
    int depth, run, elses, findings;
    bool deep, long_run, many_elses, pasted, silent;
    bool asked;             /* the next word is only asked for: #ifdef, defined( */
    uint32_t pieces[5][18]; /* of names that are looked for: the ends of words that begin here */
    char *const *folders;
    stitch__diagnostics *out;
    int rc;
} scanner;

__attribute__((format(printf, 2, 3))) static void refuse(scanner *s, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    if (s->rc || s->silent || s->findings++ >= MAX_FINDINGS)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    s->rc = stitch__diagnostics_add(s->arena, s->out, STITCH_SEVERITY_ERROR, s->line, 0, "program.cu", text);
}

/* Spliced lines are gone for what looks at single characters. */
static void splice(scanner *s)
{
    while (s->at + 1 < s->end && s->at[0] == '\\' &&
           (s->at[1] == '\n' || (s->at[1] == '\r' && s->at + 2 < s->end && s->at[2] == '\n'))) {
        s->at += s->at[1] == '\n' ? 2 : 3;
        s->line++;
    }
}

static int peek(scanner *s)
{
    splice(s);
    return s->at < s->end ? (unsigned char)*s->at : -1;
}

static int take(scanner *s)
{
    int c = peek(s);
    if (c >= 0)
        s->at++;
    if (c == '\n')
        s->line++;
    return c;
}

/* The character behind the current one, spliced lines left out. */
static int peek_second(scanner *s)
{
    scanner ahead = *s;
    if (peek(&ahead) < 0)
        return -1;
    ahead.at++;
    return peek(&ahead);
}

/* The current character and the next one are skipped. */
static void take_two(scanner *s)
{
    take(s);
    take(s);
}

static bool is_word(int c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}

static void skip_line_comment(scanner *s)
{
    while (peek(s) >= 0 && peek(s) != '\n')
        s->at++;
}

static void skip_comment(scanner *s)
{
    int last = 0, c;
    while ((c = take(s)) >= 0) {
        if (last == '*' && c == '/')
            return;
        last = c;
    }
}

/* Blanks and comments, not the end of the line. */
static void skip_blanks(scanner *s)
{
    for (;;) {
        int c = peek(s);
        if (c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f') {
            s->at++;
        } else if (c == '/' && peek_second(s) == '*') {
            take_two(s);
            skip_comment(s);
        } else {
            return;
        }
    }
}

/* A literal ends with its line: a stray quote (an apostrophe in an #error) must not hide the rest of the text. */
static void skip_literal(scanner *s, int quote)
{
    int c;
    while ((c = peek(s)) >= 0 && c != '\n') {
        s->at++;
        if (c == '\\')
            take(s);
        else if (c == quote)
            return;
    }
}

/* R"tag( ... )tag": no escapes, no splices. */
static void skip_raw(scanner *s)
{
    const char *tag = s->at + 1, *p = tag;
    while (p < s->end && p - tag <= 16 && *p != '(' && *p != ')' && *p != '\\' && *p > ' ' && *p != '"')
        p++;
    if (p >= s->end || *p != '(') {
        refuse(s, "a raw string must begin with at most 16 characters and a (");
        return;
    }
    size_t len = (size_t)(p - tag);
    for (const char *q = p + 1; (size_t)(s->end - q) > len + 1; q++) {
        if (*q == '\n')
            s->line++;
        /* Whether a raw string hides a directive depends on more than this scan knows (#if 0). */
        if (*q == '#' || (*q == '%' && q[1] == ':'))
            refuse(s, "a raw string must not contain '%c'", *q);
        if (*q == ')' && memcmp(q + 1, tag, len) == 0 && q[1 + len] == '"') {
            s->at = q + len + 2;
            return;
        }
    }
    s->at = s->end;
}

static bool in_folders(scanner *s, const char *name)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < stitch__header_count; i++) {
        if (strcmp(stitch__headers[i].name, name) == 0)
            return true;
    }
    for (size_t i = 0; s->folders && s->folders[i]; i++) {
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", s->folders[i], name) < sizeof(path) &&
            access(path, F_OK) == 0)
            return true;
    }
    return false;
}

static bool leaves_folder(const char *name)
{
    for (const char *p = name; (p = strstr(p, "..")) != NULL; p++) {
        if ((p == name || p[-1] == '/') && (p[2] == '/' || !p[2]))
            return true;
    }
    return *name == '/' || strchr(name, '\\');
}

/* After `#include`. */
static void include(scanner *s)
{
    char name[256];
    size_t n = 0;
    skip_blanks(s);
    int open = peek(s), close = open == '<' ? '>' : open == '"' ? '"' : 0;
    if (!close) {
        refuse(s, "#include must name its file as <file> or \"file\"; names made by macros are not allowed");
        return;
    }
    s->at++;
    int c;
    while ((c = peek(s)) >= 0 && c != '\n' && c != close && n + 1 < sizeof(name)) {
        name[n++] = (char)c;
        s->at++;
    }
    name[n] = '\0';
    if (c != close || memchr(name, '\0', n))
        refuse(s, "#include has no closing %c or too long a name", close);
    else if (leaves_folder(name))
        refuse(s, "#include of \"%s\" is not allowed: only CUDA's own headers can be included, by relative names",
               name);
    else if (open == '"' && !in_folders(s, name) && access(name, F_OK) == 0)
        refuse(s, "#include of \"%s\" is not allowed: it is no CUDA header", name); /* a file of the current folder */
}

static void directive(scanner *s)
{
    char word[16];
    size_t n = 0;
    s->run = 0;
    skip_blanks(s);
    while (is_word(peek(s))) {
        if (n + 1 < sizeof(word))
            word[n++] = (char)peek(s);
        s->at++;
    }
    word[n] = '\0';
    s->asked = strcmp(word, "ifdef") == 0 || strcmp(word, "ifndef") == 0;
    if (n == 0 && peek(s) == '\\')
        refuse(s, "a directive must be written out");
    if (strcmp(word, "include") == 0 || strcmp(word, "include_next") == 0 || strcmp(word, "import") == 0)
        include(s);
    else if (strcmp(word, "embed") == 0 || strcmp(word, "line") == 0)
        refuse(s, "#%s is not allowed", word);
    else if (*word >= '0' && *word <= '9') { /* what preprocessors write: `# 1 "file"` means #line */
        skip_blanks(s);
        if (peek(s) == '"' || peek(s) == '\n' || peek(s) < 0)
            refuse(s, "a line marker is not allowed");
    }
}

/* The file name of __has_include: a comment may seem to begin in it. */
static void skip_header_name(scanner *s)
{
    skip_blanks(s);
    if (peek(s) != '(')
        return;
    s->at++;
    skip_blanks(s);
    if (peek(s) != '<')
        return;
    while (peek(s) >= 0 && peek(s) != '\n' && peek(s) != '>')
        s->at++;
}

/* Words by which a source can mean something else in another place, or at another time: it is compiled several times
 * (for the device, for the simulator, for the scan, and later where it is used), and kept in a cache. */
static const char *const elsewhere[] = {"__TIME__", "__DATE__", "__has_include", "__has_include_next",
                                        "_CCCL_HAS_INCLUDE"};

#define MUST_NOT "what a source means must not depend on when it is compiled, or where"

/* The preprocessor can paste words together. The name that those of the source make, this one the last of them; NULL.
 */
static const char *makes_name(scanner *s, const char *word, size_t len)
{
    for (size_t i = 0; i < STITCH__COUNT(elsewhere); i++) {
        size_t whole = strlen(elsewhere[i]);
        uint32_t reached = 1;
        for (size_t at = 0; len < whole && at + len <= whole; at++) {
            if (memcmp(elsewhere[i] + at, word, len) == 0)
                s->pieces[i][at] |= 1u << (at + len);
        }
        for (size_t at = 0; at < whole; at++)
            reached |= reached >> at & 1 ? s->pieces[i][at] : 0;
        if (reached >> whole)
            return elsewhere[i];
    }
    return NULL;
}

/* After __has_include, which may ask for CUDA's headers alone: a process that compiles may see other files than the
 * next one, and whether a file is there is nobody's business. */
static void has_include(scanner *s)
{
    char name[256];
    size_t n = 0;
    int open, close, c;

    while (peek(s) == ' ' || peek(s) == '\t')
        s->at++;
    if (peek(s) == '(')
        s->at++;
    while (peek(s) == ' ' || peek(s) == '\t')
        s->at++;
    open = peek(s);
    close = open == '<' ? '>' : open == '"' ? '"' : 0;
    if (close)
        s->at++;
    while (close && (c = peek(s)) >= 0 && c != '\n' && c != close && n + 1 < sizeof(name)) {
        name[n++] = (char)c;
        s->at++;
    }
    name[n] = '\0';
    if (!close || peek(s) != close || memchr(name, '\0', n) || leaves_folder(name) ||
        (open == '"' && !in_folders(s, name)))
        refuse(s,
               "__has_include is not allowed but for CUDA's own headers, as in __has_include(<cuda_fp8.h>): " MUST_NOT);
}

/* A word anywhere, in what may be a comment, too: the compiler may see its end elsewhere. */
static void any_word(scanner *s)
{
    char text[40];
    size_t len = 0;
    bool asked = s->asked;

    for (; peek(s) < 0x80 && is_word(peek(s)); s->at++)
        if (len++ < sizeof(text) - 1)
            text[len - 1] = (char)*s->at;
    text[len < sizeof(text) ? len : sizeof(text) - 1] = '\0';
    s->asked = len == 7 && memcmp(text, "defined", 7) == 0;
    if (len == 8 && (memcmp(text, elsewhere[0], 8) == 0 || memcmp(text, elsewhere[1], 8) == 0))
        refuse(s, "%s is not allowed: " MUST_NOT, text[2] == 'T' ? elsewhere[0] : elsewhere[1]);
    if (strcasestr(text, "has_include") && !asked) /* headers have macros for it */
        has_include(s);
}

/* A number as the preprocessor sees it: "1.'5", "0x1p-3". */
static void skip_number(scanner *s)
{
    int last = 0, c;
    for (; (c = peek(s)) >= 0; last = c) {
        int next = c == '\'' ? peek_second(s) : 0;
        bool sign = (c == '+' || c == '-') && last && strchr("eEpP", last);
        if (!is_word(c) && c != '.' && !sign && !(next < 0x80 && is_word(next)))
            return;
        s->at++;
    }
}

static void word(scanner *s)
{
    char text[20]; /* without spliced lines */
    size_t len = 0;
    for (; is_word(peek(s)); s->at++)
        if (len++ < sizeof(text))
            text[len - 1] = (char)*s->at;
    if (len == 4 && memcmp(text, "else", 4) == 0 && ++s->elses > MAX_ELSE && !s->many_elses) {
        s->many_elses = true;
        refuse(s, "there are more than %d else branches: use a table or a switch", MAX_ELSE);
    }
    const char *name = len < sizeof(text) && !s->pasted ? makes_name(s, text, len) : NULL;
    if (name) {
        s->pasted = true;
        refuse(s, "words that make %s when they are pasted together are not allowed: " MUST_NOT, name);
    }
    if (len >= 13 && memcmp(text, "__has_include", 13) == 0)
        skip_header_name(s);
    bool raw = (len == 1 && *text == 'R') || (len == 2 && text[1] == 'R' && strchr("LuU", *text)) ||
               (len == 3 && memcmp(text, "u8R", 3) == 0);
    if (raw && s->at < s->end && *s->at == '"') {
        skip_raw(s);
        s->run++;
    }
}

static void count(scanner *s, int c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (++s->depth > MAX_NESTING && !s->deep) {
            s->deep = true;
            refuse(s, "brackets are nested more than %d deep", MAX_NESTING);
        }
    } else if ((c == ')' || c == ']' || c == '}') && s->depth > 0) {
        s->depth--;
    }
    if (c == ';' || c == '{' || c == '}' || c == ',')
        s->run = 0;
    else if (++s->run > MAX_RUN && !s->long_run) {
        s->long_run = true;
        refuse(s, "an expression has more than %d parts: split it", MAX_RUN);
    }
}

/* `#`, or one of its other spellings, is the current character: skipped if so. Anywhere in a line, to be sure. */
static bool hash(scanner *s, int c)
{
    if (c == '#') {
        s->at++;
        return true;
    }
    if (c == '%' && peek_second(s) == ':') {
        take_two(s);
        return true;
    }
    return false;
}

/* Directives, wherever a line begins with one, and words that are not allowed anywhere. */
static void check_lines(scanner *s)
{
    bool first = true;
    int last = 0, c;
    while (s->rc == STITCH_OK && (c = peek(s)) >= 0) {
        if (first && hash(s, c)) {
            directive(s);
            first = false;
            last = 0;
            continue;
        }
        if (c < 0x80 && is_word(c)) {
            any_word(s);
            first = false;
            last = 'w';
            continue;
        }
        if (c == '\n' || (last == '*' && c == '/'))
            first = true;
        else if (c > ' ' && c < 0x80) /* a byte order mark is none */
            first = false;
        if (c == '\n' || (c > ' ' && c != '('))
            s->asked = false;
        take(s);
        last = c;
    }
}

/* What people and models see of a source must be what the compiler sees. Behind a carriage return alone they see a line
 * of its own, and so does a C++ compiler that has the text in a raw string; NVRTC does not, to which it is still in the
 * comment before. */
static void check_characters(scanner *s)
{
    for (const char *p = s->at; p < s->end; p++) {
        size_t left = (size_t)(s->end - p);
        if (*p == '\n')
            s->line++;
        if (*p == '\r') {
            while (p + 1 < s->end && p[1] == '\r')
                p++;
            if (p + 1 < s->end && p[1] != '\n')
                refuse(s, "a carriage return without a line feed is not allowed: only some readers see a new line");
        } else if ((left > 2 && (memcmp(p, "\u2028", 3) == 0 || memcmp(p, "\u2029", 3) == 0)) ||
                   (left > 1 && memcmp(p, "\xc2\x85", 2) == 0)) {
            refuse(s, "a separator of lines other than a line feed is not allowed: only some readers see a new line");
        } else if (left > 2 && ((memcmp(p, "\u202a", 3) >= 0 && memcmp(p, "\u202e", 3) <= 0) ||
                                (memcmp(p, "\u2066", 3) >= 0 && memcmp(p, "\u2069", 3) <= 0))) {
            refuse(s, "a character that changes the order in which text is shown is not allowed");
        }
    }
    s->line = 1;
}

int stitch__source_check(stitch__arena *arena, const char *source, size_t len, char *const *folders,
                         stitch__diagnostics *out)
{
    bool first = true; /* in its line */
    scanner s = {.arena = arena, .at = source, .end = source + len, .line = 1, .folders = folders, .out = out};
    if (memmem(source, len, "?\?/", 3) || memmem(source, len, "?\?=", 3))
        refuse(&s, "trigraphs are not allowed");
    check_characters(&s);
    check_lines(&s);
    s.at = source;
    s.line = 1;
    while (s.rc == STITCH_OK && peek(&s) >= 0) {
        skip_blanks(&s);
        int c = peek(&s);
        if (c < 0)
            break;
        if (c == '\n') {
            take(&s);
            first = true;
            continue;
        }
        if (c == '/' && peek_second(&s) == '/') {
            skip_line_comment(&s);
        } else if ((c >= '0' && c <= '9') || (c == '.' && peek_second(&s) >= '0' && peek_second(&s) <= '9')) {
            count(&s, 'w');
            skip_number(&s);
        } else if (is_word(c)) {
            count(&s, 'w');
            word(&s);
        } else if (c == '"' || c == '\'') {
            s.at++;
            count(&s, 'w');
            skip_literal(&s, c);
            while (is_word(peek(&s))) /* "1"_s */
                s.at++;
        } else if (hash(&s, c)) {
            s.silent = true; /* what it says has been looked at */
            if (first)
                directive(&s);
            s.silent = false;
        } else {
            s.at++;
            count(&s, c);
        }
        first = false;
    }
    return s.rc;
}

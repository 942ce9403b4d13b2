/* SPDX-License-Identifier: MIT
 *
 * Models behind a folder: requests are written as files, and something (a person, another program) writes the answers.
 * docs/recordings.md describes the files.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/model.h"

enum { POLL_MS = 50, MAX_REPLY = 16 << 20, HINT_AFTER_MS = 5000 };

static const char end_mark[] = "<!-- end -->";

typedef struct relay_model {
    stitch_model base;
    char *folder;
} relay_model;

/* A request whose answer is awaited. */
typedef struct relay_wait {
    stitch__call *call;
    stitch__scope scope;
    int64_t number; /* of the files */
    char *json_path, *md_path;
    size_t seen;      /* bytes of an incomplete answer */
    int64_t since_ns; /* that it has not grown any more */
    bool hinted, done;
} relay_wait;

static char *file_name(const relay_model *m, int64_t number, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof(name), "%04" PRId64 ".%s", number, suffix);
    return stitch__path_join(m->base.ctx, m->folder, name);
}

/* ---- requests ---- */

/* One more than the number of any file in the folder, answered or not. */
static int64_t next_number(const relay_model *m)
{
    int64_t next = 1;
    struct dirent *entry;
    DIR *dir = opendir(m->folder);
    while (dir && (entry = readdir(dir))) {
        char *end;
        long long n = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? strtoll(entry->d_name, &end, 10) : -1;
        if (n >= next && n < INT32_MAX && *end == '.')
            next = n + 1;
    }
    if (dir)
        closedir(dir);
    return next;
}

/* Takes a number that nobody else has: several models, and several processes, may use one folder. */
static int claim(relay_model *m, int64_t *number, char **path, stitch_error **err)
{
    enum { MAX_TRIES = 1000 };
    *number = next_number(m);
    for (int i = 0; i < MAX_TRIES; i++, ++*number) {
        *path = file_name(m, *number, "request.md");
        if (!*path)
            return stitch__err_nomem(m->base.ctx, err);
        int fd = open(*path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            close(fd);
            return STITCH_OK;
        }
        if (errno != EEXIST)
            return stitch__err_errno(m->base.ctx, err, STITCH_E_IO, "%s: cannot be written", *path);
        stitch__zero_free(*path);
    }
    return stitch__err(m->base.ctx, err, STITCH_E_BUSY, "%s: no number is free for a request", m->folder);
}

static void write_markdown(stitch__buf *md, const stitch__call *call, int64_t number)
{
    const stitch_request *r = call->request;
    stitch__buf_printf(md,
                       "> %s #%" PRId64 ". Write the answer to `%04" PRId64
                       ".reply.md` in this folder. It counts once its "
                       "last line is `%s`.\n\n",
                       *call->label ? call->label : "request", call->number, number, end_mark);
    for (size_t i = 0; i < r->message_count; i++)
        stitch__buf_printf(md, "<!-- %s -->\n\n%s\n\n", stitch__message_role(r->messages[i].role),
                           r->messages[i].content);
}

static json_t *request_json(const stitch__call *call)
{
    const stitch_request *r = call->request;
    json_t *messages = stitch__messages_json(r->messages, r->message_count);
    json_t *doc = messages ? json_pack("{s:s, s:I, s:s, s:o}", "label", call->label, "number", (json_int_t)call->number,
                                       "fingerprint", call->fingerprint, "messages", messages)
                           : NULL;
    int bad = !doc;
    if (doc && r->max_tokens > 0)
        bad |= json_object_set_new(doc, "max_tokens", json_integer(r->max_tokens));
    if (doc && r->temperature >= 0)
        bad |= json_object_set_new(doc, "temperature", json_real(r->temperature));
    if (doc && r->json_schema)
        bad |= json_object_set_new(doc, "json_schema", json_loads(r->json_schema, 0, NULL));
    if (bad) {
        json_decref(doc);
        return NULL;
    }
    return doc;
}

static int write_request(relay_model *m, relay_wait *w, stitch_error **err)
{
    const stitch_context *ctx = m->base.ctx;
    json_t *doc = request_json(w->call);
    char *path = NULL, *text = doc ? stitch__json_dump(ctx, doc, 2) : NULL;
    stitch__buf md;
    int rc;

    stitch__buf_init(&md, ctx);
    json_decref(doc);
    if (!text) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    if ((rc = claim(m, &w->number, &path, err)) != STITCH_OK)
        goto out;
    write_markdown(&md, w->call, w->number);
    /* The .md file first: whoever waits for the .json finds both. */
    rc = md.failed ? stitch__err_nomem(ctx, err) : stitch__file_write(ctx, path, md.data, md.len, err);
    if (rc)
        goto out;
    stitch_free(path);
    path = file_name(m, w->number, "request.json");
    w->json_path = file_name(m, w->number, "reply.json");
    w->md_path = file_name(m, w->number, "reply.md");
    rc = path && w->json_path && w->md_path ? stitch__file_write(ctx, path, text, strlen(text), err)
                                            : stitch__err_nomem(ctx, err);
out:
    stitch__buf_free(&md);
    stitch_free(path);
    stitch_free(text);
    return rc;
}

/* ---- answers ---- */

static int read_json(stitch__call *call, const stitch_context *ctx, const char *path, const char *text, size_t len)
{
    json_t *doc = NULL;
    const char *content = NULL, *reasoning = NULL;
    int64_t in = -1, out = -1;
    const stitch__jpath at = {NULL, "usage", 0};
    stitch_error **err = &call->error;
    int rc = stitch__json_parse(ctx, text, len, MAX_REPLY, path, &doc, err);
    if (rc)
        return rc;
    const json_t *usage = json_object_get(doc, "usage");
    rc = stitch__json_string(ctx, doc, NULL, "content", true, &content, err);
    if (rc == STITCH_OK)
        rc = stitch__json_string(ctx, doc, NULL, "reasoning", false, &reasoning, err);
    if (rc == STITCH_OK && usage && !json_is_object(usage))
        rc = stitch__json_err(ctx, &at, err, "expected an object, found %s", stitch__json_type(usage));
    if (rc == STITCH_OK && usage)
        rc = stitch__json_int(ctx, usage, &at, "prompt_tokens", false, -1, INT64_MAX, &in, err);
    if (rc == STITCH_OK && usage)
        rc = stitch__json_int(ctx, usage, &at, "completion_tokens", false, -1, INT64_MAX, &out, err);
    if (rc)
        stitch__err_prefix(err, "%s: ", path);
    else if (stitch_reply_set(call->reply, content, reasoning, in, out) != STITCH_OK)
        rc = stitch__err_nomem(ctx, err);
    json_decref(doc);
    return rc;
}

/* Content of a file that may not be there yet, or just not now: editors replace files. */
static int read_if_there(const stitch_context *ctx, const char *path, char **text, size_t *len, stitch_error **err)
{
    *text = NULL;
    if (!stitch__path_exists(path))
        return STITCH_OK;
    int rc = stitch__file_read(ctx, path, MAX_REPLY, text, len, err);
    if (rc == STITCH_E_NOT_FOUND) {
        stitch_error_free(err ? *err : NULL);
        if (err)
            *err = NULL;
        return STITCH_OK;
    }
    return rc;
}

/* Whoever forgets the mark should be told, as nothing else happens. */
static void hint(relay_model *m, relay_wait *w, const char *path, size_t len)
{
    int64_t now = stitch__now_ns();
    if (len != w->seen || !w->since_ns) {
        w->seen = len;
        w->since_ns = now;
    } else if (!w->hinted && now - w->since_ns > (int64_t)HINT_AFTER_MS * 1000000) {
        w->hinted = true;
        if (path == w->md_path)
            stitch__log(m->base.ctx, STITCH_LOG_WARN, "%s does not count yet: its last line must be %s", path,
                        end_mark);
        else
            stitch__log(m->base.ctx, STITCH_LOG_WARN, "%s does not count yet: it is not whole JSON", path);
    }
}

static int take_markdown(relay_model *m, relay_wait *w, char *text, size_t len, bool *complete)
{
    const stitch_context *ctx = m->base.ctx;
    size_t whole = len, mark = sizeof(end_mark) - 1;

    while (len && strchr(" \t\r\n", text[len - 1]) && text[len - 1])
        len--;
    *complete =
        len >= mark && memcmp(text + len - mark, end_mark, mark) == 0 && (len == mark || text[len - mark - 1] == '\n');
    if (!*complete) {
        hint(m, w, w->md_path, whole);
        return STITCH_OK;
    }
    len -= mark;
    text[len] = 0;
    if (memchr(text, 0, len) || !stitch__utf8_valid(text, len))
        return stitch__err(ctx, &w->call->error, STITCH_E_FORMAT, "%s is not UTF-8 text", w->md_path);
    if (stitch_reply_set(w->call->reply, text, NULL, -1, -1) != STITCH_OK)
        return stitch__err_nomem(ctx, &w->call->error);
    return STITCH_OK;
}

/* Half-written files are told from whole ones by their end: JSON that parses, Markdown that ends with the mark. */
static int try_answer(relay_model *m, relay_wait *w, bool *complete)
{
    const stitch_context *ctx = m->base.ctx;
    char *text = NULL;
    size_t len = 0;
    int rc = read_if_there(ctx, w->json_path, &text, &len, &w->call->error);

    *complete = false;
    if (rc == STITCH_OK && text) {
        json_t *doc = json_loadb(text, len, 0, NULL);
        *complete = doc != NULL;
        json_decref(doc);
        if (*complete)
            rc = read_json(w->call, ctx, w->json_path, text, len);
        else
            hint(m, w, w->json_path, len);
    } else if (rc == STITCH_OK && (rc = read_if_there(ctx, w->md_path, &text, &len, &w->call->error)) == STITCH_OK &&
               text) {
        rc = take_markdown(m, w, text, len, complete);
    }
    stitch_free(text);
    return rc;
}

static void start(relay_model *m, stitch__call *c, relay_wait *w)
{
    w->call = c;
    w->scope = stitch__scope_make(m->base.ctx, c->request->cancel, c->request->timeout_ms);
    w->done = true;
    if (stitch__call_begin(&m->base, c) != STITCH_OK)
        return;
    int rc = stitch__reply_new(m->base.ctx, &c->reply, &c->error);
    if (rc == STITCH_OK)
        rc = write_request(m, w, &c->error);
    if (rc)
        stitch__call_failed(c, rc);
    else
        w->done = false;
}

static void relay_complete(stitch_model *base, stitch__call *calls, size_t count)
{
    relay_model *m = (relay_model *)base;
    relay_wait *waits = stitch__calloc(base->ctx, count, sizeof(*waits));
    int64_t began = stitch__now_ns();

    /* All requests are out before the first answer is awaited. */
    for (size_t i = 0; i < count; i++) {
        if (waits)
            start(m, &calls[i], &waits[i]);
        else
            calls[i].status = stitch__err_nomem(base->ctx, &calls[i].error);
    }
    for (size_t open = waits ? count : 0; open;) {
        stitch__scope any = {base->ctx, NULL, 0};
        open = 0;
        for (size_t i = 0; i < count; i++) {
            relay_wait *w = &waits[i];
            bool complete = false;
            if (w->done)
                continue;
            int rc = try_answer(m, w, &complete);
            if (rc == STITCH_OK && !complete)
                rc = stitch__scope_check(&w->scope, "the wait for a reply file", &w->call->error);
            w->done = rc || complete;
            if (rc) {
                stitch__call_failed(w->call, rc);
            } else if (complete) {
                w->call->reply->milliseconds = (double)(stitch__now_ns() - began) / 1e6;
                stitch__call_pieces(w->call);
                stitch__call_answered(base, w->call);
            } else {
                open++;
                any = w->scope;
            }
        }
        if (open) /* short enough for the tokens and deadlines of the other calls */
            stitch__scope_sleep(&any, POLL_MS, "the wait for a reply file", NULL);
    }
    for (size_t i = 0; waits && i < count; i++) {
        stitch_free(waits[i].json_path);
        stitch_free(waits[i].md_path);
    }
    stitch_free(waits);
}

static void relay_destroy(stitch_model *base)
{
    stitch_free(((relay_model *)base)->folder);
}

static const stitch__model_kind relay_kind = {"relay", relay_complete, relay_destroy, false};

int stitch_model_new_relay(stitch_context *ctx, const char *folder, stitch_model **out, stitch_error **err)
{
    int rc;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_relay: out must not be NULL");
    *out = NULL;
    if (!ctx || !folder || !*folder)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_relay: context and folder must not be NULL");
    if ((rc = stitch__mkdirs(ctx, folder, err)) != STITCH_OK)
        return rc;
    relay_model *m = stitch__model_alloc(ctx, &relay_kind, sizeof(*m), err);
    if (!m)
        return STITCH_E_NOMEM;
    m->folder = stitch__strdup(ctx, folder);
    if (!m->folder) {
        stitch_model_free(&m->base);
        return stitch__err_nomem(ctx, err);
    }
    *out = &m->base;
    return STITCH_OK;
}

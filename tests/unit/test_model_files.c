/* SPDX-License-Identifier: MIT
 *
 * Models without a network: recordings, relay folders, host functions, model texts; and the event parser.
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"
#include "model/model.h"

static char folder[64];

static const char *path_in(const char *name)
{
    static char path[2][128];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
    return path[turn];
}

static stitch_context *context(void)
{
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    strcpy(folder, "/tmp/stitch-test-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    return ctx;
}

static void put(const char *name, const char *text)
{
    stitch_error *err = NULL;
    CHECK_OK(stitch__file_write(NULL, path_in(name), text, strlen(text), &err));
}

static int echo(const stitch_request *r, stitch_reply *reply, void *userdata)
{
    int *calls = userdata;
    char text[128];
    if (++*calls == 3)
        return STITCH_E_BUSY;
    snprintf(text, sizeof(text), "%d: %s", *calls, r->messages[0].content);
    return stitch_reply_set(reply, text, *calls == 2 ? "thought" : NULL, 10, 20);
}

static stitch_message message = {STITCH_MESSAGE_USER, 0, "q"};

static stitch_request request(const char *label, const char *fingerprint)
{
    stitch_request r = STITCH_REQUEST_INIT;
    r.messages = &message;
    r.message_count = 1;
    r.label = label;
    r.fingerprint = fingerprint;
    return r;
}

static stitch_reply *ask(stitch_model *m, const char *label, const char *fingerprint)
{
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    stitch_request r = request(label, fingerprint);
    CHECK_OK(stitch_model_complete(m, &r, &reply, &err));
    return reply;
}

TEST(records_and_replays)
{
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_model *host = NULL, *record = NULL, *replay = NULL;
    stitch_request r;
    stitch_reply *reply = NULL;
    int calls = 0;
    CHECK_OK(stitch_model_new_host(ctx, echo, &calls, &host, &err));
    CHECK_OK(stitch_model_new_record(ctx, host, path_in("r.jsonl"), &record, &err));
    stitch_reply_free(ask(record, "plan", "f1"));
    stitch_reply_free(ask(record, "code", "f2"));
    r = request("code", "f3");
    CHECK_ERR(stitch_model_complete(record, &r, &reply, &err), STITCH_E_BUSY, "host's model failed");
    stitch_reply_free(ask(record, "code", "f4"));
    stitch_model_free(record);

    CHECK_OK(stitch_model_new_replay(ctx, path_in("r.jsonl"), 0, &replay, &err));
    reply = ask(replay, "code", "f2");
    CHECK_STR(stitch_reply_text(reply), "2: q");
    CHECK_STR(stitch_reply_reasoning(reply), "thought");
    CHECK_STR(stitch_reply_notice(reply), "");
    CHECK_INT(stitch_reply_tokens_in(reply), 10);
    stitch_reply_free(reply);
    reply = ask(replay, "plan", "other");
    CHECK_STR(stitch_reply_text(reply), "1: q");
    CHECK_HAS(stitch_reply_notice(reply), "plan #1 differs");
    stitch_reply_free(reply);
    r = request("plan", "f1");
    CHECK_ERR(stitch_model_complete(replay, &r, &reply, &err), STITCH_E_REPLAY, "no reply for plan #2");
    stitch_model_free(replay);

    CHECK_OK(stitch_model_new_replay(ctx, path_in("r.jsonl"), 1, &replay, &err));
    r = request("plan", "other");
    CHECK_ERR(stitch_model_complete(replay, &r, &reply, &err), STITCH_E_REPLAY, "differs");
    stitch_model_free(replay);
    stitch_context_free(ctx);
}

#define ENTRY "{\"label\":\"a\",\"number\":1,\"fingerprint\":\"f\",\"reply\":{\"content\":\"hello\"}}\n"

TEST(damaged_recordings)
{
    static const struct {
        const char *text;
        int status;
        const char *part;
    } cases[] = {
        {"{}\n", STITCH_E_FORMAT, "line 1: 'label' is missing"},
        {ENTRY "\n[]\n", STITCH_E_FORMAT, "line 3: expected an object"},
        {ENTRY "{\"label\":\n" ENTRY, STITCH_E_FORMAT, "line 2"},
        {"{\"label\":\"a\",\"number\":0,\"fingerprint\":\"f\",\"reply\":{\"content\":\"\"}}\n", STITCH_E_FORMAT,
         "number: 0"},
        {"{\"label\":\"a\",\"number\":1,\"fingerprint\":\"f\",\"reply\":{\"content\":3}}\n", STITCH_E_FORMAT,
         "reply.content: expected a string"},
        {"{\"label\":\"a\",\"nmuber\":1}\n", STITCH_E_FORMAT, "did you mean 'number'"},
    };
    stitch_context *ctx = context();
    stitch_error *err = NULL;
    stitch_model *m = NULL;
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        put("bad.jsonl", cases[i].text);
        CHECK_ERR(stitch_model_new_replay(ctx, path_in("bad.jsonl"), 0, &m, &err), cases[i].status, cases[i].part);
        CHECK(m == NULL);
    }
    CHECK_ERR(stitch_model_new_replay(ctx, path_in("none.jsonl"), 0, &m, &err), STITCH_E_NOT_FOUND, "none.jsonl");
    CHECK_ERR(stitch_model_new_replay(ctx, folder, 0, &m, &err), STITCH_E_IO, "regular");
    /* A killed run leaves half a last line: what is whole still answers. */
    put("cut.jsonl", ENTRY "{\"label\":\"b\",\"num");
    CHECK_OK(stitch_model_new_replay(ctx, path_in("cut.jsonl"), 0, &m, &err));
    stitch_reply *reply = ask(m, "a", "f");
    CHECK_STR(stitch_reply_text(reply), "hello");
    stitch_reply_free(reply);
    stitch_request r = request("b", "f");
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_REPLAY, "incomplete");
    stitch_model_free(m);
    stitch_context_free(ctx);
}

static void *answer_slowly(void *userdata)
{
    (void)userdata;
    FILE *f;
    stitch__sleep_ms(150);
    f = fopen(path_in("0001.reply.md"), "w");
    fputs("half of the", f);
    fflush(f);
    stitch__sleep_ms(400);
    fputs(" answer\n<!-- end -->\n", f);
    fclose(f);
    f = fopen(path_in("0002.reply.json"), "w");
    fputs("{\"content\": \"from js", f);
    fflush(f);
    stitch__sleep_ms(300);
    fputs("on\", \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 4}}", f);
    fclose(f);
    return NULL;
}

TEST(relays_files)
{
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_model *m = NULL;
    pthread_t thread;
    char *text;
    size_t len;
    CHECK_OK(stitch_model_new_relay(ctx, folder, &m, &err));
    pthread_create(&thread, NULL, answer_slowly, NULL);
    stitch_reply *reply = ask(m, "plan", "f");
    CHECK_STR(stitch_reply_text(reply), "half of the answer\n");
    stitch_reply_free(reply);
    reply = ask(m, "code", "f");
    CHECK_STR(stitch_reply_text(reply), "from json");
    CHECK_INT(stitch_reply_tokens_out(reply), 4);
    stitch_reply_free(reply);
    pthread_join(thread, NULL);
    CHECK_OK(stitch__file_read(ctx, path_in("0001.request.md"), 0, &text, &len, &err));
    CHECK_HAS(text, "<!-- user -->\n\nq");
    stitch_free(text);
    stitch_model_free(m);

    /* A second model in the same folder goes on with the next number. */
    CHECK_OK(stitch_model_new_relay(ctx, folder, &m, &err));
    stitch_request r = request("code", "f");
    r.timeout_ms = 200;
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_TIMEOUT, "reply file");
    CHECK(stitch__path_exists(path_in("0003.request.json")));
    stitch_model_free(m);
    stitch_context_free(ctx);
}

TEST(opens_texts)
{
    static const struct {
        const char *spec, *part;
        int status;
    } bad[] = {
        {"gpt", "is no model", STITCH_E_INVALID},
        {"https://host/v1", "names no model", STITCH_E_INVALID},
        {"record:file", "record:FILE,MODEL", STITCH_E_INVALID},
        {"record:a,record:b,record:c,record:d,record:e,record:f,replay:g", "inside each other", STITCH_E_INVALID},
        {"replay:/nonexistent", "/nonexistent", STITCH_E_NOT_FOUND},
        {"", "is no model", STITCH_E_INVALID},
    };
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_model *m = NULL;
    char spec[256];
    for (size_t i = 0; i < STITCH__COUNT(bad); i++) {
        CHECK_ERR(stitch_model_open(ctx, bad[i].spec, &m, &err), bad[i].status, bad[i].part);
        CHECK(m == NULL);
    }
    put("r.jsonl", ENTRY);
    snprintf(spec, sizeof(spec), "record:%s/again.jsonl,replay:%s/r.jsonl", folder, folder);
    CHECK_OK(stitch_model_open(ctx, spec, &m, &err));
    stitch_reply_free(ask(m, "a", "new"));
    stitch_model_free(m);
    snprintf(spec, sizeof(spec), "replay-strict:%s/again.jsonl", folder);
    CHECK_OK(stitch_model_open(ctx, spec, &m, &err));
    stitch_reply *reply = ask(m, "a", "new");
    CHECK_STR(stitch_reply_notice(reply), "");
    stitch_reply_free(reply);
    stitch_model_free(m);
    stitch_context_free(ctx);
}

TEST(refuses_bad_requests)
{
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_model *m = NULL;
    stitch_reply *reply = NULL;
    int calls = 0;
    CHECK_OK(stitch_model_new_host(ctx, echo, &calls, &m, &err));
    stitch_request r = STITCH_REQUEST_INIT;
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_INVALID, "at least one message");
    stitch_message bad = {7, 0, "x"};
    r.messages = &bad;
    r.message_count = 1;
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_INVALID, "role");
    bad.role = 0;
    bad.content = "\xc3";
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_INVALID, "UTF-8");
    r = request("a", "f");
    r.struct_size = sizeof(r) + 8;
    struct {
        stitch_request r;
        uint64_t more;
    } newer = {r, 1};
    CHECK_ERR(stitch_model_complete(m, &newer.r, &reply, &err), STITCH_E_INVALID, "newer library");
    CHECK_INT(calls, 0);
    stitch_context_cancel(ctx);
    r = request("a", "f");
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_CANCELLED, "cancelled");
    stitch_context_cancel_reset(ctx);
    stitch_model_free(m);
    stitch_context_free(ctx);
}

/* ---- events ---- */

static int gather(const char *data, size_t len, void *userdata)
{
    stitch__buf *b = userdata;
    stitch__buf_printf(b, "[%.*s]", (int)len, data);
    return STITCH_OK;
}

TEST(events_in_any_pieces)
{
    static const char stream[] =
        "\xef\xbb\xbf"
        ":hi\n\ndata: one\r\n\r\ndata:two\ndata: three\n\nevent: x\nid: 7\ndata\n\rdata: {\"a\":1}\r\rdata: tail";
    static const char want[] = "[one][two\nthree][][{\"a\":1}]";
    for (size_t piece = 1; piece < sizeof(stream); piece++) {
        stitch_error *err = NULL;
        stitch__buf got;
        stitch__sse s;
        stitch__buf_init(&got, NULL);
        stitch__sse_init(&s, NULL, 1000, gather, &got);
        for (size_t at = 0; at < sizeof(stream) - 1; at += piece) {
            size_t n = sizeof(stream) - 1 - at < piece ? sizeof(stream) - 1 - at : piece;
            CHECK_OK(stitch__sse_feed(&s, stream + at, n, &err));
        }
        CHECK_OK(stitch__sse_finish(&s, &err));
        CHECK_STR(got.data, want);
        stitch__sse_free(&s);
        stitch__buf_free(&got);
    }
}

TEST(last_event_counts_if_it_is_whole)
{
    stitch_error *err = NULL;
    stitch__buf got;
    stitch__sse s;
    stitch__buf_init(&got, NULL);
    stitch__sse_init(&s, NULL, 1000, gather, &got);
    CHECK_OK(stitch__sse_feed(&s, "data: {\"a\":2}", 13, &err));
    CHECK_OK(stitch__sse_finish(&s, &err));
    CHECK_STR(got.data, "[{\"a\":2}]");
    stitch__sse_free(&s);
    stitch__buf_free(&got);
}

/* ---- running out of memory ---- */

typedef struct failing {
    int left, live;
} failing;

static void *f_alloc(size_t n, void *u)
{
    failing *f = u;
    void *p = f->left-- > 0 ? malloc(n) : NULL;
    f->live += p != NULL;
    return p;
}

static void *f_realloc(void *p, size_t n, void *u)
{
    failing *f = u;
    return f->left-- > 0 ? realloc(p, n) : NULL;
}

static void f_free(void *p, void *u)
{
    failing *f = u;
    f->live--;
    free(p);
}

static int everything(stitch_context *ctx)
{
    stitch_model *m = NULL;
    stitch_budget *b = NULL;
    stitch_reply *reply = NULL;
    stitch_error *err = NULL;
    stitch_request r = request("a", "other");
    char spec[256];
    int rc = stitch_budget_new(ctx, 1000, 0, &b, &err);
    snprintf(spec, sizeof(spec), "record:%s/oom.jsonl,replay:%s/r.jsonl", folder, folder);
    if (!rc)
        rc = stitch_model_open(ctx, spec, &m, &err);
    if (!rc) {
        stitch_model_set_budget(m, b);
        rc = stitch_model_complete(m, &r, &reply, &err);
    }
    CHECK((rc == STITCH_OK) == (reply != NULL));
    stitch_reply_free(reply);
    stitch_model_free(m);
    stitch_budget_free(b);
    stitch_error_free(err);
    return rc;
}

TEST(survives_every_failed_allocation)
{
    stitch_context_free(context());
    put("r.jsonl", ENTRY);
    for (int n = 0;; n++) {
        failing f = {n, 0};
        stitch_allocator a = {sizeof(a), f_alloc, f_realloc, f_free, &f};
        stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
        stitch_context *ctx = NULL;
        o.allocator = &a;
        int rc = stitch_context_new(&ctx, &o, NULL);
        if (rc == STITCH_OK)
            rc = everything(ctx);
        bool exhausted = f.left < 0;
        stitch_context_free(ctx);
        CHECK_INT(f.live, 0);
        CHECK(rc == STITCH_OK || rc == STITCH_E_NOMEM);
        if (!exhausted) {
            CHECK_INT(rc, STITCH_OK);
            CHECK(n > 20);
            break;
        }
        CHECK(n < 5000);
    }
}

TEST_MAIN(RUN(records_and_replays), RUN(damaged_recordings), RUN(relays_files), RUN(opens_texts),
          RUN(refuses_bad_requests), RUN(events_in_any_pieces), RUN(last_event_counts_if_it_is_whole),
          RUN(survives_every_failed_allocation))

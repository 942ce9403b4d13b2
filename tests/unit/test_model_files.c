/* SPDX-License-Identifier: MIT
 *
 * Models without a network: recordings, host functions, model texts; and the event parser.
 */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "model_folder.h"

static int echo(const stitch_request *r, stitch_reply *reply, void *userdata)
{
    int *calls = userdata;
    char text[128];
    if (++*calls == 3)
        return STITCH_E_BUSY;
    snprintf(text, sizeof(text), "%d: %s", *calls, r->messages[0].content);
    return stitch_reply_set(reply, text, *calls == 2 ? "thought" : NULL, 10, 20);
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
    drop(ctx);
}

#define ENTRY "{\"label\":\"a\",\"number\":1,\"fingerprint\":\"f\",\"reply\":{\"content\":\"hello\"}}\n"

TEST(recordings_are_gone_on_with)
{
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_model *host = NULL, *m = NULL;
    char *text;
    size_t len;
    int calls = 10;
    /* Half a last line goes, a missing newline comes, and the numbers do not begin again. */
    static const char *const before[] = {ENTRY "{\"label\":\"a\",\"num",
                                         "{\"label\":\"a\",\"number\":1,\"reply\":{\"content\":\"hello\"}}"};
    for (size_t i = 0; i < STITCH__COUNT(before); i++) {
        put("go.jsonl", before[i]);
        CHECK_OK(stitch_model_new_host(ctx, echo, &calls, &host, &err));
        CHECK_OK(stitch_model_new_record(ctx, host, path_in("go.jsonl"), &m, &err));
        stitch_reply_free(ask(m, "a", "f2"));
        stitch_reply_free(ask(m, "b", "f3"));
        stitch_model_free(m);
        CHECK_OK(stitch__file_read(ctx, path_in("go.jsonl"), 0, &text, &len, &err));
        CHECK(!strstr(text, "num{") && strstr(text, "}}\n{\"label\":\"a\",\"number\":2,"));
        stitch_free(text);
        CHECK_OK(stitch_model_new_replay(ctx, path_in("go.jsonl"), 1, &m, &err));
        stitch_reply *reply = ask(m, "a", "f");
        CHECK_STR(stitch_reply_text(reply), "hello");
        stitch_reply_free(reply);
        stitch_reply_free(ask(m, "a", "f2"));
        stitch_request r = request("a", "f");
        CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_REPLAY, "a #3; it still has: b #1");
        stitch_reply_free(ask(m, "b", "f3"));
        CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_REPLAY, "a #3; it still has: nothing");
        stitch_model_free(m);
    }
    /* Nothing else is appended to. */
    put("notes.txt", "remember the milk\n");
    CHECK_OK(stitch_model_new_host(ctx, echo, &calls, &host, &err));
    CHECK_ERR(stitch_model_new_record(ctx, host, path_in("notes.txt"), &m, &err), STITCH_E_FORMAT,
              "notes.txt, entry on line 1");
    CHECK_ERR(stitch_model_new_record(ctx, host, folder, &m, &err), STITCH_E_IO, folder);
    CHECK_ERR(stitch_model_new_record(ctx, host, path_in("no/folder"), &m, &err), STITCH_E_IO, "no/folder");
    stitch_model_free(host);
    drop(ctx);
}

TEST(failures_use_up_no_numbers)
{
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_model *host = NULL, *m = NULL;
    stitch_request r[3];
    stitch_reply *replies[3];
    int statuses[3], calls = 0;
    for (int i = 0; i < 3; i++)
        r[i] = request("x", "f");
    CHECK_OK(stitch_model_new_host(ctx, echo, &calls, &host, &err));
    CHECK_OK(stitch_model_new_record(ctx, host, path_in("n.jsonl"), &m, &err));
    stitch_reply_free(ask(m, "x", "f"));
    stitch_reply_free(ask(m, "x", "f"));
    CHECK_INT(stitch_model_complete_many(m, r, 1, statuses, replies, NULL), STITCH_E_BUSY); /* its third */
    calls = 1;
    CHECK_INT(stitch_model_complete_many(m, r, 3, statuses, replies, NULL), STITCH_E_BUSY); /* the second of three */
    CHECK(replies[0] && !replies[1] && replies[2]);
    stitch_reply_free(replies[0]);
    stitch_reply_free(replies[2]);
    stitch_model_free(m);
    CHECK_OK(stitch_model_new_replay(ctx, path_in("n.jsonl"), 1, &m, &err));
    stitch_reply_free(ask(m, "x", "f"));
    stitch_reply_free(ask(m, "x", "f"));
    CHECK_INT(stitch_model_complete_many(m, r, 3, statuses, replies, NULL), STITCH_E_REPLAY);
    CHECK(replies[0] && !replies[1] && replies[2]);
    CHECK_STR(stitch_reply_text(replies[2]), "4: q");
    stitch_reply_free(replies[0]);
    stitch_reply_free(replies[2]);
    stitch_model_free(m);
    drop(ctx);
}

TEST(full_disk_costs_no_reply)
{
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_model *host = NULL, *m = NULL;
    struct rlimit before, small;
    int calls = 10;
    char *text;
    size_t len;
    put("full.jsonl", ENTRY);
    CHECK_OK(stitch_model_new_host(ctx, echo, &calls, &host, &err));
    CHECK_OK(stitch_model_new_record(ctx, host, path_in("full.jsonl"), &m, &err));
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = strlen(ENTRY) + 30; /* room for the beginning of a line */
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    stitch_reply *reply = ask(m, "b", "f");
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK_STR(stitch_reply_text(reply), "11: q");
    CHECK_HAS(stitch_reply_notice(reply), "could not be recorded");
    stitch_reply_free(reply);
    stitch_model_free(m);
    CHECK_OK(stitch__file_read(ctx, path_in("full.jsonl"), 0, &text, &len, &err));
    CHECK_STR(text, ENTRY);
    stitch_free(text);
    drop(ctx);
}

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
        {ENTRY ENTRY, STITCH_E_FORMAT, "lines 1 and 2 are both 'a' #1"},
        {"{\"label\":\"a\",\"number\":1,\"reply\":{\"content\":\"\",\"cost\":-1}}\n", STITCH_E_FORMAT, "cost"},
        {"{\"label\":\"a\",\"number\":1,\"reply\":{\"content\":\"\",\"cost\":NaN}}\n", STITCH_E_FORMAT, "line 1"},
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
    drop(ctx);
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
    drop(ctx);
}

TEST(http_or_a_clear_no)
{
    stitch_http_options o = STITCH_HTTP_OPTIONS_INIT;
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_model *m = NULL;
    CHECK_INT(stitch_http_options_init(&o, sizeof(o)), STITCH_OK);
    o.base_url = "http://127.0.0.1:9/v1";
    o.model = "m";
    int rc = stitch_model_new_http(ctx, &o, &m, &err);
    if (rc != STITCH_OK)
        CHECK_ERR(rc, STITCH_E_UNSUPPORTED, "without libcurl");
    CHECK((rc == STITCH_OK) == (m != NULL));
    stitch_model_free(m);
    drop(ctx);
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
    static const char *const labels[] = {"a\nb", "\xff", "\x7f"};
    for (size_t i = 0; i < STITCH__COUNT(labels); i++) {
        r = request(labels[i], "f");
        CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_INVALID, "label");
    }
    char label[STITCH__MODEL_MAX_LABEL + 2];
    memset(label, 'a', sizeof(label) - 1);
    label[sizeof(label) - 1] = 0;
    r = request(label, "f");
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_INVALID, "label");
    r = request("a", label);
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_INVALID, "fingerprint");
    r = request("a", "f");
    r.temperature = NAN;
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_INVALID, "temperature");
    r = request("a", "f");
    r.max_tokens = -1;
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_INVALID, "max_tokens");
    r = request("a", "f");
    r.json_schema = "{\"type\":";
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_FORMAT, "json_schema");
    r.json_schema = "[]";
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_INVALID, "json_schema");
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
    drop(ctx);
}

typedef struct pieces {
    char text[200];
} pieces;

static void on_piece(size_t index, int reasoning, const char *text, size_t len, void *userdata)
{
    pieces *p = userdata;
    size_t used = strlen(p->text);
    snprintf(p->text + used, sizeof(p->text) - used, "%zu%s%.*s ", index, reasoning ? "r" : ":", (int)len, text);
}

static int speak(const stitch_request *r, stitch_reply *reply, void *userdata)
{
    int *calls = userdata;
    if (++*calls == 2 && r->on_token)
        r->on_token(0, 0, "bit", 3, r->userdata);
    if (*calls == 4)
        return 7;
    if (*calls == 5)
        return STITCH_OK;
    if (*calls == 6 && stitch_reply_set(reply, "\xff", NULL, 1, 1) != STITCH_OK)
        return STITCH_E_REPLY;
    return stitch_reply_set(reply, "all", "why", 1, -5);
}

TEST(host_functions)
{
    enum { N = 6 };
    stitch_error *errors[N] = {NULL}, *err = NULL;
    stitch_context *ctx = context();
    stitch_model *m = NULL;
    stitch_budget *budget = NULL;
    stitch_request r[N];
    stitch_reply *replies[N];
    pieces p = {""};
    int statuses[N], calls = 0;
    int64_t tokens, requests;
    CHECK_OK(stitch_model_new_host(ctx, speak, &calls, &m, &err));
    CHECK_OK(stitch_budget_new(ctx, 0, 0, &budget, &err));
    stitch_model_set_budget(m, budget);
    for (int i = 0; i < N; i++) {
        r[i] = request("a", NULL);
        r[i].on_token = on_piece;
        r[i].userdata = &p;
    }
    CHECK_INT(stitch_model_complete_many(m, r, N, statuses, replies, errors), STITCH_E_INTERNAL);
    CHECK_STR(p.text, "0rwhy 0:all 1:bit 2rwhy 2:all ");
    CHECK_INT(statuses[3], STITCH_E_INTERNAL);
    CHECK_HAS(stitch_error_message(errors[3]), "returned 7");
    CHECK_INT(statuses[4], STITCH_E_REPLY);
    CHECK_HAS(stitch_error_message(errors[4]), "no reply");
    CHECK_INT(statuses[5], STITCH_E_REPLY);
    CHECK_INT(stitch_reply_tokens_out(replies[0]), -1);
    stitch_budget_used(budget, &tokens, NULL, &requests);
    CHECK_INT(requests, 3);
    CHECK_INT(tokens, 3 * (1 + 2)); /* six bytes of answer are two tokens where nobody counted */
    for (int i = 0; i < N; i++) {
        stitch_reply_free(replies[i]);
        stitch_error_free(errors[i]);
    }
    stitch_model_free(m);
    stitch_budget_free(budget);
    drop(ctx);
}

TEST(callers_of_other_versions)
{
    /* Elements of the size of a header that ended with on_token's userdata. */
    enum { OLD = offsetof(stitch_request, cancel), N = 3 };
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_model *m = NULL;
    stitch_reply *replies[N];
    char array[N * OLD] __attribute__((aligned(16)));
    int statuses[N], calls = 10;
    for (int i = 0; i < N; i++) {
        stitch_request r = request("a", "f");
        r.struct_size = OLD;
        memcpy(array + i * OLD, &r, OLD);
    }
    CHECK_OK(stitch_model_new_host(ctx, echo, &calls, &m, &err));
    CHECK_INT(stitch_model_complete_many(m, (const stitch_request *)(const void *)array, N, statuses, replies, NULL),
              STITCH_OK);
    CHECK_STR(stitch_reply_text(replies[2]), "13: q");
    for (int i = 0; i < N; i++)
        stitch_reply_free(replies[i]);
    stitch_model_free(m);
    drop(ctx);
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
            drop(NULL);
            break;
        }
        CHECK(n < 5000);
    }
}

TEST_MAIN(RUN(records_and_replays), RUN(recordings_are_gone_on_with), RUN(failures_use_up_no_numbers),
          RUN(full_disk_costs_no_reply), RUN(damaged_recordings), RUN(opens_texts), RUN(http_or_a_clear_no),
          RUN(refuses_bad_requests), RUN(host_functions), RUN(callers_of_other_versions), RUN(events_in_any_pieces),
          RUN(last_event_counts_if_it_is_whole), RUN(survives_every_failed_allocation))

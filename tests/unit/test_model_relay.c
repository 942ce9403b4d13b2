/* SPDX-License-Identifier: MIT
 *
 * Models behind a folder: half-written answers, several models, bad answers, cancellation.
 */
#include <pthread.h>

#include "model_folder.h"

static void wait_for(const char *name)
{
    for (int i = 0; i < 2000 && !stitch__path_exists(path_in(name)); i++)
        stitch__sleep_ms(5);
}

static void write_slowly(const char *name, const char *first, const char *second)
{
    FILE *f = fopen(path_in(name), "w");
    fputs(first, f);
    fflush(f);
    stitch__sleep_ms(300);
    fputs(second, f);
    fclose(f);
}

static void *answer_slowly(void *userdata)
{
    (void)userdata;
    wait_for("0001.request.json");
    write_slowly("0001.reply.md", "half of the", " answer\n<!-- end -->\n");
    wait_for("0002.request.json");
    write_slowly("0002.reply.json", "{\"content\": \"from js",
                 "on\", \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 4}}");
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
    CHECK_HAS(text, "> plan #1. Write the answer to `0001.reply.md`");
    CHECK_HAS(text, "<!-- user -->\n\nq");
    stitch_free(text);
    CHECK_OK(stitch__file_read(ctx, path_in("0002.request.json"), 0, &text, &len, &err));
    json_t *doc = json_loads(text, 0, NULL);
    CHECK_STR(json_string_value(json_object_get(doc, "label")), "code");
    CHECK_STR(json_string_value(json_object_get(json_array_get(json_object_get(doc, "messages"), 0), "content")), "q");
    json_decref(doc);
    stitch_free(text);
    stitch_model_free(m);

    /* A second model in the same folder goes on with the next number that nothing in the folder has. */
    put("0007.reply.md", "stale\n<!-- end -->\n");
    CHECK_OK(stitch_model_new_relay(ctx, folder, &m, &err));
    stitch_request r = request("code", "f");
    r.timeout_ms = 200;
    CHECK_ERR(stitch_model_complete(m, &r, &reply, &err), STITCH_E_TIMEOUT, "reply file");
    CHECK(stitch__path_exists(path_in("0008.request.json")));
    stitch_model_free(m);
    drop(ctx);
}

static void *ask_relay(void *userdata)
{
    stitch_context *ctx = userdata;
    stitch_model *m = NULL;
    stitch_reply *reply = NULL;
    stitch_request r = request("x", "f");
    bool ok = stitch_model_new_relay(ctx, folder, &m, NULL) == STITCH_OK;
    for (int i = 0; ok && i < 5; i++) {
        ok = stitch_model_complete(m, &r, &reply, NULL) == STITCH_OK;
        stitch_reply_free(reply);
    }
    stitch_model_free(m);
    return ok ? userdata : NULL;
}

static void *answer_all(void *userdata)
{
    atomic_int *stop = userdata;
    char request_name[32], reply_name[32];
    for (int next = 1; !atomic_load(stop);) {
        snprintf(request_name, sizeof(request_name), "%04d.request.json", next);
        snprintf(reply_name, sizeof(reply_name), "%04d.reply.json", next);
        if (stitch__path_exists(path_in(request_name))) {
            put(reply_name, "{\"content\":\"y\"}");
            next++;
        } else {
            stitch__sleep_ms(2);
        }
    }
    return NULL;
}

TEST(relays_of_several_models_in_one_folder)
{
    enum { N = 4 };
    stitch_context *ctx = context();
    pthread_t askers[N], answerer;
    atomic_int stop = 0;
    void *ok;
    pthread_create(&answerer, NULL, answer_all, &stop);
    for (int i = 0; i < N; i++)
        pthread_create(&askers[i], NULL, ask_relay, ctx);
    for (int i = 0; i < N; i++) {
        pthread_join(askers[i], &ok);
        CHECK(ok != NULL);
    }
    atomic_store(&stop, 1);
    pthread_join(answerer, NULL);
    CHECK(stitch__path_exists(path_in("0020.request.json")) && !stitch__path_exists(path_in("0021.request.json")));
    drop(ctx);
}

typedef struct late {
    const char *name, *text;
    stitch_cancel *cancel;
    int64_t at_ns;
} late;

static void *write_or_cancel(void *userdata)
{
    late *l = userdata;
    wait_for("0001.request.json");
    if (l->name)
        put(l->name, l->text);
    if (l->cancel) {
        stitch__sleep_ms(100);
        l->at_ns = stitch__now_ns();
        stitch_cancel_trigger(l->cancel);
    }
    return NULL;
}

TEST(relay_answers_that_are_bad)
{
    static const struct {
        const char *name, *text, *part;
        int status;
    } cases[] = {
        {"0001.reply.md", "\xff\xfe\n<!-- end -->", "not UTF-8", STITCH_E_FORMAT},
        {"0001.reply.md", "no mark", "deadline", STITCH_E_TIMEOUT},
        {"0001.reply.md", "not its own line <!-- end -->", "deadline", STITCH_E_TIMEOUT},
        {"0001.reply.md", "<!-- end -->\r\n \r\n", "", STITCH_OK},
        {"0001.reply.json", "{\"content\":", "deadline", STITCH_E_TIMEOUT},
        {"0001.reply.json", "{\"content\":3}", "content: expected a string", STITCH_E_FORMAT},
        {"0001.reply.json", "[]", "'content' is missing", STITCH_E_FORMAT},
        {"0001.reply.json", "{\"content\":\"a\",\"usage\":{\"prompt_tokens\":-7}}", "prompt_tokens", STITCH_E_FORMAT},
        {"0001.reply.json", "{\"content\":\"a\",\"usage\":[]}", "usage: expected an object, found a list",
         STITCH_E_FORMAT},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch_error *err = NULL;
        stitch_context *ctx = context();
        stitch_model *m = NULL;
        stitch_reply *reply = NULL;
        stitch_request r = request("a", "f");
        late l = {cases[i].name, cases[i].text, NULL, 0};
        pthread_t thread;
        r.timeout_ms = cases[i].status == STITCH_E_TIMEOUT ? 300 : 10000;
        CHECK_OK(stitch_model_new_relay(ctx, folder, &m, &err));
        pthread_create(&thread, NULL, write_or_cancel, &l);
        int rc = stitch_model_complete(m, &r, &reply, &err);
        pthread_join(thread, NULL);
        CHECK_ERR(rc, cases[i].status, cases[i].part);
        CHECK((rc == STITCH_OK) == (reply != NULL));
        stitch_reply_free(reply);
        stitch_model_free(m);
        drop(ctx);
    }
}

TEST(relay_is_cancelled)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < 3 && best >= 100000000; i++) {
        stitch_error *err = NULL;
        stitch_context *ctx = context();
        stitch_model *m = NULL;
        stitch_reply *replies[2];
        int statuses[2];
        late l = {NULL, NULL, NULL, 0};
        pthread_t thread;
        CHECK_INT(stitch_cancel_new(&l.cancel), STITCH_OK);
        stitch_request r[2] = {request("a", "f"), request("b", "f")};
        r[0].cancel = r[1].cancel = l.cancel;
        CHECK_OK(stitch_model_new_relay(ctx, folder, &m, &err));
        pthread_create(&thread, NULL, write_or_cancel, &l);
        CHECK_INT(stitch_model_complete_many(m, r, 2, statuses, replies, NULL), STITCH_E_CANCELLED);
        int64_t now = stitch__now_ns();
        pthread_join(thread, NULL);
        CHECK_INT(statuses[1], STITCH_E_CANCELLED);
        best = now - l.at_ns < best ? now - l.at_ns : best;
        CHECK(stitch__path_exists(path_in("0002.request.json"))); /* both had been asked at once */
        stitch_cancel_free(l.cancel);
        stitch_model_free(m);
        drop(ctx);
    }
    CHECK(best < 100000000);
}

TEST_MAIN(RUN(relays_files), RUN(relays_of_several_models_in_one_folder), RUN(relay_answers_that_are_bad),
          RUN(relay_is_cancelled))

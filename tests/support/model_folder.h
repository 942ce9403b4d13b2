/* SPDX-License-Identifier: MIT
 *
 * A folder of its own for each test of models that work with files, and a request.
 */
#ifndef STITCH_TESTS_MODEL_FOLDER_H
#define STITCH_TESTS_MODEL_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"
#include "model/model.h"

#define CHECK_UNUSED __attribute__((unused))

static char folder[64];

CHECK_UNUSED static const char *path_in(const char *name)
{
    static _Thread_local char path[2][512];
    static _Thread_local int turn;
    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
    return path[turn];
}

CHECK_UNUSED static stitch_context *context(void)
{
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    strcpy(folder, "/tmp/stitch-test-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    return ctx;
}

/* The end of a test that called context(). */
CHECK_UNUSED static void drop(stitch_context *ctx)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);
    stitch_context_free(ctx);
    while (dir && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlink(path_in(entry->d_name));
    if (dir)
        closedir(dir);
    rmdir(folder);
}

CHECK_UNUSED static void put(const char *name, const char *text)
{
    stitch_error *err = NULL;
    CHECK_OK(stitch__file_write(NULL, path_in(name), text, strlen(text), &err));
}

static stitch_message message = {STITCH_MESSAGE_USER, 0, "q"};

CHECK_UNUSED static stitch_request request(const char *label, const char *fingerprint)
{
    stitch_request r = STITCH_REQUEST_INIT;
    r.messages = &message;
    r.message_count = 1;
    r.label = label;
    r.fingerprint = fingerprint;
    return r;
}

CHECK_UNUSED static stitch_reply *ask(stitch_model *m, const char *label, const char *fingerprint)
{
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    stitch_request r = request(label, fingerprint);
    CHECK_OK(stitch_model_complete(m, &r, &reply, &err));
    return reply;
}

#endif

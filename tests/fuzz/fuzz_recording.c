/* SPDX-License-Identifier: MIT
 *
 * Recordings: any text is either entries that are read again as they are written, or an error that names the line.
 */
#include <stdio.h>
#include <stdlib.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const char *a, const char *b)
{
    if (strcmp(a ? a : "", b ? b : "") != 0)
        abort();
}

static void check_round_trip(const stitch__recorded *e)
{
    const stitch_message message = {STITCH_MESSAGE_USER, 0, "q"};
    stitch_request request = STITCH_REQUEST_INIT;
    stitch__call call = {.request = &request, .label = e->label, .number = e->number};
    stitch_reply reply = {NULL,     e->text,      e->reasoning,  e->finish, NULL,
                          e->model, e->tokens_in, e->tokens_out, e->cost,   1};
    stitch__recording again;
    stitch_error *err = NULL;

    request.messages = &message;
    request.message_count = 1;
    if (e->fingerprint && strlen(e->fingerprint) < sizeof(call.fingerprint))
        snprintf(call.fingerprint, sizeof(call.fingerprint), "%s", e->fingerprint);
    char *line = stitch__recording_line(NULL, &call, &reply);
    if (!line || stitch__recording_parse(NULL, line, strlen(line), "again", &again, &err) != STITCH_OK ||
        again.count != 1 || again.cut || again.unterminated || again.whole_bytes != strlen(line))
        abort();
    const stitch__recorded *f = &again.entries[0];
    check_same(f->label, e->label);
    check_same(f->fingerprint, call.fingerprint);
    check_same(f->text, e->text);
    check_same(f->reasoning, e->reasoning);
    check_same(f->finish, e->finish);
    check_same(f->model, e->model);
    if (f->number != e->number || f->tokens_in != e->tokens_in || f->tokens_out != e->tokens_out)
        abort();
    stitch__recording_free(&again);
    stitch_free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch__recording r;
    stitch_error *err = NULL;
    char *text = malloc(size + 1); /* files are read with a NUL behind them */

    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = 0;
    int rc = stitch__recording_parse(NULL, text, size, "recording", &r, &err);
    if (rc != STITCH_OK && (!strstr(stitch_error_message(err), "line") || r.count))
        abort();
    if (rc == STITCH_OK && r.whole_bytes > size)
        abort();
    for (size_t i = 0; i < r.count; i++)
        check_round_trip(&r.entries[i]);
    stitch__recording_free(&r);
    stitch_error_free(err);
    free(text);
    return 0;
}

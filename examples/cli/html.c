/* SPDX-License-Identifier: MIT
 *
 * Reports to read in a browser: one self-contained page, made of the template in html/ and data as JSON. What comes
 * from a candidate is data and nothing else: it stays in strings of that JSON, in which nothing can end the element
 * that holds it, and the page's script shows it as text.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

extern const char cli_report[]; /* html/report.html with its style and script; @DATA@ stands where the data go */
extern const size_t cli_report_size;

enum { RECORDS = 20000 }; /* of a timeline; what comes after is counted */

/* Length of a UTF-8 sequence; 0: none begins here. */
static size_t sequence(const unsigned char *p)
{
    size_t len = *p < 0x80                 ? 1
                 : *p >= 0xc2 && *p < 0xe0 ? 2
                 : (*p & 0xf0) == 0xe0     ? 3
                 : *p >= 0xf0 && *p < 0xf5 ? 4
                                           : 0;

    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if (len == 3 && ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] >= 0xa0))) /* overlong, surrogates */
        return 0;
    return len == 4 && ((*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] >= 0x90)) ? 0 : len;
}

json_t *cli_html_text(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    const unsigned char *p = (const unsigned char *)text;
    json_t *value = json_string(text ? text : "");
    char *clean, *to;

    if (value || !text)
        return value;
    to = clean = malloc(3 * strlen(text) + 1);
    while (clean && *p) {
        size_t len = sequence(p);
        memcpy(to, len ? (const char *)p : replacement, len ? len : 3);
        to += len ? len : 3;
        p += len ? len : 1;
    }
    if (clean)
        value = json_stringn(clean, (size_t)(to - clean));
    free(clean);
    return value;
}

json_t *cli_html_begin(cli *c, const stitch_task *task)
{
    stitch_device_info info = STITCH_DEVICE_INFO_INIT;
    time_t now = time(NULL);
    struct tm utc;
    char when[32] = "";
    json_t *data = json_object();

    if (gmtime_r(&now, &utc))
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M UTC", &utc);
    json_object_set_new(data, "command", cli_html_text(c->o.command));
    json_object_set_new(data, "made", json_string(when));
    json_object_set_new(data, "version", json_string(stitch_version_string()));
    json_object_set_new(data, "task", cli_html_text(stitch_task_name(task)));
    json_object_set_new(data, "description", cli_html_text(stitch_task_description(task)));
    if (stitch_device_query(c->ctx, &info, NULL) == STITCH_OK) {
        json_object_set_new(data, "device", cli_html_text(info.name));
        json_object_set_new(data, "arch", cli_html_text(info.arch));
    }
    return data;
}

/* Every run's time is a page nobody reads. */
static void drop_samples(json_t *report)
{
    json_t *time = json_object_get(report, "time"), *row;
    size_t i;

    json_object_del(json_object_get(time, "candidate"), "samples_us");
    json_array_foreach(json_object_get(time, "baselines"), i, row) json_object_del(row, "samples_us");
    json_object_del(report, "admission");
}

json_t *cli_html_attempt(stitch_program *program, const stitch_report *report)
{
    json_t *attempt = json_object(), *value = json_loads(stitch_report_json(report), 0, NULL);
    char *feedback = NULL;

    drop_samples(value);
    json_object_set_new(attempt, "report", value);
    if (stitch_report_feedback(report, 0, &feedback, NULL) == STITCH_OK)
        json_object_set_new(attempt, "feedback", cli_html_text(feedback));
    stitch_free(feedback);
    if (program) {
        json_object_set_new(attempt, "source", cli_html_text(stitch_program_source(program)));
        json_object_set_new(attempt, "plan_json", cli_html_text(stitch_program_json(program)));
    }
    return attempt;
}

static json_t *record_json(const stitch_trace_record *r)
{
    json_t *o = json_object();

    json_object_set_new(o, "kind", json_string(stitch_trace_kind_name(r->kind)));
    json_object_set_new(o, "name", cli_html_text(r->name));
    json_object_set_new(o, "start", json_real(r->start_us));
    json_object_set_new(o, "end", json_real(r->end_us));
    if (r->kind > STITCH_TRACE_FILL) {
        json_object_set_new(o, "thread", json_integer(r->thread));
        return o;
    }
    json_object_set_new(o, "stream", json_integer(r->stream));
    if (r->step >= 0)
        json_object_set_new(o, "step", json_integer(r->step));
    if (r->bytes)
        json_object_set_new(o, "bytes", json_integer((json_int_t)r->bytes));
    if (r->kind == STITCH_TRACE_KERNEL) {
        json_object_set_new(o, "grid", json_pack("[i, i, i]", r->grid[0], r->grid[1], r->grid[2]));
        json_object_set_new(o, "block", json_pack("[i, i, i]", r->block[0], r->block[1], r->block[2]));
        json_object_set_new(o, "registers", json_integer(r->registers));
        json_object_set_new(o, "shared", json_integer((json_int_t)r->static_shared + r->dynamic_shared));
    }
    return o;
}

json_t *cli_html_trace(const stitch_trace *trace)
{
    json_t *out = json_object(), *records = json_array();
    size_t count = stitch_trace_count(trace);

    for (size_t i = 0; i < count && i < RECORDS; i++) {
        stitch_trace_record r = STITCH_TRACE_RECORD_INIT;
        if (stitch_trace_record_get(trace, i, &r) == STITCH_OK && r.start_us >= 0)
            json_array_append_new(records, record_json(&r));
    }
    json_object_set_new(out, "records", records);
    json_object_set_new(out, "left_out", json_integer((json_int_t)(count > RECORDS ? count - RECORDS : 0)));
    return out;
}

/* JSON has these characters in strings only, where they may be written so. What is left cannot end a script element,
 * begin one, or begin a comment. */
static bool put_escaped(FILE *f, const char *json)
{
    while (*json) {
        size_t plain = strcspn(json, "<>&");
        if (fwrite(json, 1, plain, f) != plain)
            return false;
        json += plain;
        if (*json && fprintf(f, "\\u%04x", (unsigned)*json++) < 0)
            return false;
    }
    return true;
}

static bool put_page(FILE *f, const char *json)
{
    static const char here[] = "@DATA@";
    const char *at = strstr(cli_report, here);
    size_t before = (size_t)(at - cli_report), after = before + sizeof(here) - 1;

    return fwrite(cli_report, 1, before, f) == before && put_escaped(f, json) &&
           fwrite(cli_report + after, 1, cli_report_size - after, f) == cli_report_size - after;
}

int cli_html_write(cli *c, const json_t *data, const char *path)
{
    char *json = data ? json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    FILE *f = NULL;
    bool written;

    if (!json)
        return cli_fail(c, path, STITCH_E_NOMEM, NULL);
    f = fopen(path, "wb");
    written = f && put_page(f, json);
    free(json);
    if ((f && fclose(f) != 0) || !written) { /* a full disk may show only here */
        cli_clear(c);
        fprintf(stderr, "stitch: %s: %s\n", path, strerror(errno));
        return EXIT_USAGE;
    }
    return 0;
}

/* SPDX-License-Identifier: MIT
 *
 * Status codes and errors.
 */
#include <errno.h>
#include <stdio.h>

#include "base/base.h"

enum { MAX_MESSAGE = 2048, MAX_DETAILS = 1 << 20 };

struct stitch_error {
    int code, domain;
    int64_t native;
    char *message, *details; /* NULL: none */
};

/* What is handed out when there is no memory for an error. Never freed. */
static const struct stitch_error out_of_memory = {STITCH_E_NOMEM, STITCH_DOMAIN_NONE, 0, NULL, NULL};

const char *stitch_status_name(int status)
{
    switch (status) {
#define NAME(name, value, text)                                                                                        \
    case value: return "STITCH_" #name;
        STITCH_STATUS_LIST(NAME)
#undef NAME
    default: return "STITCH_E_UNKNOWN";
    }
}

const char *stitch_status_text(int status)
{
    switch (status) {
#define TEXT(name, value, text)                                                                                        \
    case value: return text;
        STITCH_STATUS_LIST(TEXT)
#undef TEXT
    default: return "unknown status";
    }
}

const char *stitch_domain_name(int domain)
{
    static const char *const names[] = {
#define NAME(name, text) text,
        STITCH_DOMAIN_LIST(NAME)
#undef NAME
    };
    return domain >= 0 && (size_t)domain < STITCH__COUNT(names) ? names[domain] : "unknown";
}

int stitch_error_code(const stitch_error *e)
{
    return e ? e->code : STITCH_OK;
}

int stitch_error_domain(const stitch_error *e)
{
    return e ? e->domain : STITCH_DOMAIN_NONE;
}

int64_t stitch_error_native(const stitch_error *e)
{
    return e ? e->native : 0;
}

const char *stitch_error_message(const stitch_error *e)
{
    return !e ? "" : e->message ? e->message : stitch_status_text(e->code);
}

const char *stitch_error_details(const stitch_error *e)
{
    return e && e->details ? e->details : "";
}

void stitch_error_free(stitch_error *e)
{
    if (!e || e == &out_of_memory)
        return;
    stitch_free(e->message);
    stitch_free(e->details);
    stitch_free(e);
}

/* Makes a message of whatever went into it: one line of valid UTF-8, so that it can go into logs and JSON. */
static char *message_of(const stitch_context *ctx, char *text)
{
    stitch__buf b;
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < 0x20)
            text[i] = ' ';
    }
    stitch__buf_init(&b, ctx);
    stitch__buf_puts_clean(&b, text, len, len);
    return stitch__buf_take(&b, NULL);
}

static void set(const stitch_context *ctx, stitch_error **err, int code, int domain, int64_t native, const char *fmt,
                va_list ap)
{
    char text[MAX_MESSAGE];
    if (!err)
        return;
    stitch__vformat(text, sizeof(text), fmt, ap); /* before the old error goes: it may be among the arguments */
    stitch_error_free(*err);
    stitch_error *e = stitch__calloc(ctx, 1, sizeof(*e));
    char *message = e ? message_of(ctx, text) : NULL;
    if (!message) {
        stitch_free(e);
        *err = (stitch_error *)(uintptr_t)&out_of_memory;
        return;
    }
    e->code = code;
    e->domain = domain;
    e->native = native;
    e->message = message;
    *err = e;
}

int stitch__err(const stitch_context *ctx, stitch_error **err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set(ctx, err, code, STITCH_DOMAIN_NONE, 0, fmt, ap);
    va_end(ap);
    return code;
}

int stitch__err_native(const stitch_context *ctx, stitch_error **err, int code, int domain, int64_t native,
                       const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set(ctx, err, code, domain, native, fmt, ap);
    va_end(ap);
    return code;
}

int stitch__err_nomem(const stitch_context *ctx, stitch_error **err)
{
    (void)ctx;
    if (err) {
        stitch_error_free(*err);
        *err = (stitch_error *)(uintptr_t)&out_of_memory;
    }
    return STITCH_E_NOMEM;
}

int stitch__err_errno(const stitch_context *ctx, stitch_error **err, int code, const char *fmt, ...)
{
    int native = errno;
    char reason[128], text[MAX_MESSAGE];
    va_list ap;
    const char *r = strerror_r(native, reason, sizeof(reason));
    va_start(ap, fmt);
    stitch__vformat(text, sizeof(text), fmt, ap);
    va_end(ap);
    return stitch__err_native(ctx, err, code, STITCH_DOMAIN_SYSTEM, native, "%s: %s", text, r);
}

static stitch_error *writable(stitch_error **err)
{
    return err && *err && *err != &out_of_memory ? *err : NULL;
}

void stitch__err_domain(stitch_error **err, int domain)
{
    stitch_error *e = writable(err);
    if (e && e->domain == STITCH_DOMAIN_NONE)
        e->domain = domain;
}

void stitch__err_hand_on(stitch_error **err, stitch_error **from)
{
    if (err) {
        stitch_error_free(*err);
        *err = *from;
    } else {
        stitch_error_free(*from);
    }
    *from = NULL;
}

void stitch__err_prefix(stitch_error **err, const char *fmt, ...)
{
    stitch_error *e = writable(err);
    char prefix[MAX_MESSAGE];
    va_list ap;
    if (!e)
        return;
    va_start(ap, fmt);
    stitch__vformat(prefix, sizeof(prefix), fmt, ap);
    va_end(ap);
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__buf_printf(&b, "%s%s", prefix, stitch_error_message(e));
    char *joined = b.failed ? NULL : message_of(NULL, b.data);
    stitch__buf_free(&b);
    if (!joined)
        return;
    stitch_free(e->message);
    e->message = joined;
}

void stitch__err_details(stitch_error **err, const char *text)
{
    stitch_error *e = writable(err);
    if (!e || !text)
        return;
    size_t len = strlen(text);
    char *copy = stitch__strndup(NULL, text, len < MAX_DETAILS ? len : MAX_DETAILS);
    if (!copy)
        return;
    stitch_free(e->details);
    e->details = copy;
}

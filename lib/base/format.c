/* SPDX-License-Identifier: MIT
 *
 * Text of numbers and back. A host may have set a locale (a GUI toolkit does) in which a number has a comma: JSON would
 * be none any more, and a prompt not the one that was recorded. The locale of the calling thread is the C locale
 * meanwhile, which costs tens of nanoseconds, for the C library keeps that one ready.
 */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

typedef struct locales {
    locale_t c, before;
} locales;

static locales enter(void)
{
    locales l = {newlocale(LC_ALL_MASK, "C", (locale_t)0), (locale_t)0};

    if (l.c)
        l.before = uselocale(l.c);
    return l;
}

static void leave(locales l)
{
    if (!l.c)
        return;
    (void)uselocale(l.before);
    freelocale(l.c);
}

int stitch__vformat(char *out, size_t size, const char *fmt, va_list ap)
{
    locales l = enter();
    int n = vsnprintf(out, size, fmt, ap);

    leave(l);
    return n;
}

int stitch__format(char *out, size_t size, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = stitch__vformat(out, size, fmt, ap);
    va_end(ap);
    return n;
}

double stitch__read_double(const char *text, char **end)
{
    locales l = enter();
    double value = strtod(text, end);

    leave(l);
    return value;
}

/* SPDX-License-Identifier: MIT
 *
 * Device functions that the driver provides: vprintf and __assertfail.
 */
#include "sim/exec.h"
#include "sim/job.h"

enum { TEXT_MAX = 4096 };

/* A string at a generic address, at most TEXT_MAX - 1 bytes. */
static bool read_string(stitch__exec *x, const stitch__instr *in, uint64_t address, uint32_t lane, char text[TEXT_MAX])
{
    uint32_t n = 0;
    for (; n < TEXT_MAX - 1; n++) {
        if (!stitch__read_bytes(x, in, STITCH__SIM_GENERIC, address + n, &text[n], 1, 1, lane))
            return false;
        if (!text[n])
            return true;
    }
    text[n] = '\0';
    return true;
}

static uint64_t scratch_value(const stitch__exec *x, const stitch__sim_callee_param *p, uint32_t lane)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < p->size && i < 8; i++)
        v |= (uint64_t)x->frame->scratch[stitch__row(p->offset + i, lane)] << (8 * i);
    return v;
}

/* One conversion: `spec` is it with its flags, ready for snprintf() apart from the length modifier. */
static bool convert(stitch__exec *x, const stitch__instr *in, uint32_t lane, stitch__buf *out, const char *spec,
                    size_t len, char kind, bool wide, uint64_t args, uint32_t *at)
{
    char fmt[32], text[TEXT_MAX];
    bool eight = wide || kind == 'p' || kind == 's' || strchr("aAeEfFgG", kind) != NULL;
    uint32_t size = eight ? 8 : 4;
    uint64_t v = 0;
    *at = (*at + size - 1) & ~(size - 1);
    for (size_t i = 0, digits = 0; i < len; i++) {
        digits = spec[i] >= '0' && spec[i] <= '9' ? digits + 1 : 0;
        if (digits > 4)
            return false;
    }
    if (len + 4 > sizeof(fmt) || !stitch__read_bytes(x, in, STITCH__SIM_GENERIC, args + *at, &v, size, size, lane))
        return false;
    *at += size;
    memcpy(fmt, spec, len);
    switch (kind) {
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        memcpy(fmt + len, "ll", 2);
        fmt[len + 2] = kind;
        fmt[len + 3] = '\0';
        if (kind == 'd' || kind == 'i')
            snprintf(text, sizeof(text), fmt, eight ? (long long)v : (long long)(int32_t)v);
        else
            snprintf(text, sizeof(text), fmt, (unsigned long long)v);
        break;
    case 'c':
        fmt[len] = 'c';
        fmt[len + 1] = '\0';
        snprintf(text, sizeof(text), fmt, (int)v);
        break;
    case 'p': snprintf(text, sizeof(text), "0x%" PRIx64, v); break;
    case 's': {
        char s[TEXT_MAX];
        if (!read_string(x, in, v, lane, s))
            return false;
        fmt[len] = 's';
        fmt[len + 1] = '\0';
        snprintf(text, sizeof(text), fmt, s);
        break;
    }
    default: {
        double d;
        memcpy(&d, &v, 8);
        fmt[len] = kind;
        fmt[len + 1] = '\0';
        stitch__format(text, sizeof(text), fmt, d);
        break;
    }
    }
    stitch__buf_puts(out, text);
    return true;
}

static void print_lane(stitch__exec *x, const stitch__instr *in, uint32_t lane, const char *format, uint64_t args,
                       stitch__buf *out)
{
    uint32_t at = 0;
    for (const char *s = format; *s; s++) {
        if (*s != '%') {
            stitch__buf_putc(out, *s);
            continue;
        }
        if (s[1] == '%') {
            stitch__buf_putc(out, '%');
            s++;
            continue;
        }
        const char *e = s + 1;
        while (*e && strchr("-+ #0123456789.", *e) && e - s < 20)
            e++;
        size_t len = (size_t)(e - s);
        bool wide = false;
        while (*e == 'l' || *e == 'h' || *e == 'z' || *e == 'j' || *e == 't') {
            wide |= *e != 'h';
            e++;
        }
        if (!*e || !strchr("diuxXocpsaAeEfFgG", *e) || !convert(x, in, lane, out, s, len, *e, wide, args, &at)) {
            stitch__buf_puts(out, s); /* not a conversion of device printf: printed as it is */
            return;
        }
        s = e;
    }
}

int stitch__builtin_call(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const stitch__call *c = in->data;
    const stitch__sim_callee_param *p = &c->piece[c->returns];
    uint32_t args = c->count - c->returns;
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(m);
        char text[TEXT_MAX];
        if (c->builtin == STITCH__BUILTIN_ASSERT) {
            char file[TEXT_MAX];
            if (args < 3 || !read_string(x, in, scratch_value(x, &p[0], lane), lane, text) ||
                !read_string(x, in, scratch_value(x, &p[1], lane), lane, file))
                text[0] = file[0] = '\0';
            stitch__report(x, STITCH__SIM_ASSERT, in, lane, STITCH__SIM_GENERIC, 0, 0,
                           "%.70s:%u: assertion `%.60s' failed", file,
                           args > 2 ? (uint32_t)scratch_value(x, &p[2], lane) : 0, text);
            return STITCH__RUN_KILL;
        }
        if (args < 2 || !read_string(x, in, scratch_value(x, &p[0], lane), lane, text))
            continue;
        print_lane(x, in, lane, text, scratch_value(x, &p[1], lane), &x->job->printed);
        if (x->job->printed.len > (1u << 20) || x->kill) /* the device's buffer is that large by default */
            stitch__buf_truncate(&x->job->printed, 1u << 20);
    }
    for (uint32_t i = 0; i < c->returns; i++)
        memset(x->frame->scratch + stitch__row(c->piece[i].offset & ~3u, 0), 0, 128);
    return STITCH__RUN_NEXT;
}

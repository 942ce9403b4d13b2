/* SPDX-License-Identifier: MIT
 *
 * How much of other people's PTX the simulator takes: loads every file, says of each kernel whether it is decoded or
 * refused and at which instruction, runs those that are decoded with made-up arguments, and prints tables by category.
 * A tool, not a test: it needs PTX that does not belong here.
 *
 * usage: ptx_coverage [--load-only] [--verbose] [--seconds N] FILE.ptx...
 *
 * The category of a file is the name of its folder. Each kernel runs in a process of its own, so that a crash or a hang
 * (no answer long after the deadline) is seen as one; both make the exit status 1. Parameters whose value the
 * text uses as an address get a buffer of 4 MiB of zeros each, floats are 1 and integers 64 (parts of structs too);
 * kernels that declare no block size are tried with several, the best outcome counts. "findings" need not be errors of
 * the kernel: often these arguments are wrong for it.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "sim/sim.h"

enum { BUFFER = 4 << 20, MAX_SLOTS = 4096 };

static const uint32_t block_sizes[] = {128, 256, 64, 32, 512, 1024};

typedef enum outcome {
    CLEAN,    /* ran to its end, no finding */
    FOUND,    /* ran to its end or to an error that hardware has too, with findings */
    STOPPED,  /* the deadline or the instruction budget came first */
    REJECTED, /* the launch is refused with a message */
    REFUSED,  /* not decoded */
    CRASHED,
    HUNG,
    OUTCOMES
} outcome;

static const char *const outcome_names[] = {"clean", "findings", "stopped", "rejected", "refused", "crashed", "hung"};

/* What the child says of one kernel. */
typedef struct answer {
    outcome how;
    size_t findings;
    uint64_t instructions;
    char words[1600];
} answer;

typedef struct category {
    char name[64];
    unsigned files, broken, kernels, count[OUTCOMES];
} category;

typedef struct mnemonic {
    char name[64], example[300];
    unsigned count;
} mnemonic;

typedef struct state {
    stitch_context *ctx;
    bool load_only, verbose;
    unsigned seconds;
    category categories[64];
    size_t category_count;
    mnemonic mnemonics[256];
    size_t mnemonic_count;
    uint64_t instructions;
} state;

static category *category_of(state *s, const char *path)
{
    const char *slash = strrchr(path, '/'), *start = slash;
    while (start && start > path && start[-1] != '/')
        start--;
    size_t len = slash ? (size_t)(slash - start) : 0;
    const char *name = len ? start : "-";
    len = len ? len : 1;
    for (size_t i = 0; i < s->category_count; i++)
        if (strlen(s->categories[i].name) == len && memcmp(s->categories[i].name, name, len) == 0)
            return &s->categories[i];
    if (s->category_count == sizeof(s->categories) / sizeof(s->categories[0]))
        return &s->categories[0];
    category *c = &s->categories[s->category_count++];
    snprintf(c->name, sizeof(c->name), "%.*s", (int)(len < 63 ? len : 63), name);
    return c;
}

/* "PTX line 8 (source line 3): 'tex.2d.v4.f32.f32' is not supported" */
static void count_refusal(state *s, const char *text)
{
    const char *at = strchr(text, '\'');
    at = at ? at + 1 : text;
    size_t len = strcspn(at, "' ");
    mnemonic *m = s->mnemonics;
    while (m < s->mnemonics + s->mnemonic_count && !(strlen(m->name) == len && memcmp(m->name, at, len) == 0))
        m++;
    if (m == s->mnemonics + sizeof(s->mnemonics) / sizeof(s->mnemonics[0]))
        return;
    if (m == s->mnemonics + s->mnemonic_count) {
        s->mnemonic_count++;
        snprintf(m->name, sizeof(m->name), "%.*s", (int)(len < 63 ? len : 63), at);
        snprintf(m->example, sizeof(m->example), "%s", text);
    }
    m->count++;
}

/* ---- one launch -------------------------------------------------------------------------------------------------- */

/* A value that the kernel loads from its parameters: where it lies, and what it is. */
typedef struct slot {
    uint32_t offset, size;
    char type; /* 'u' integer, 'f' float, 'p' address */
    char reg[24];
} slot;

typedef struct slots {
    slot at[MAX_SLOTS];
    size_t count;
} slots;

static void note_registers(slots *s, const char *regs, uint32_t offset, uint32_t size, char type)
{
    for (const char *r = strchr(regs, '%'); r && s->count < MAX_SLOTS; r = strchr(r + 1, '%')) {
        slot *t = &s->at[s->count++];
        size_t len = strcspn(r, ", }\t");
        *t = (slot){.offset = offset, .size = size, .type = type};
        snprintf(t->reg, sizeof(t->reg), "%.*s", (int)(len < 23 ? len : 23), r);
        offset += size;
    }
}

/* ld.param.u64 %rd1, [kernel_param_0+8]; ld.param.v2.f32 {%f1, %f2}, [...]; */
static void note_load(slots *s, const stitch__sim_function_info *info, const char *line)
{
    char mods[64], regs[160], name[1024];
    unsigned long plus = 0;
    const char *open = strchr(line, '[');
    if (sscanf(line, " ld.param%63[^ \t] %159[^[]", mods, regs) != 2 || !open ||
        sscanf(open + 1, "%1023[^]+]", name) != 1)
        return;
    const char *sign = strchr(open, '+'), *type = strrchr(mods, '.');
    if (sign && sign < open + 1 + strlen(name) + 1)
        plus = strtoul(sign + 1, NULL, 10);
    for (uint32_t i = 0; i < info->param_count && type; i++)
        if (info->params[i].name && strcmp(info->params[i].name, name) == 0)
            note_registers(s, regs, info->params[i].offset + (uint32_t)plus, (uint32_t)strtoul(type + 2, NULL, 10) / 8,
                           type[1] == 'f' ? 'f' : 'u');
}

/* The slot whose value is in the register named at `reg`, or that went into its sum. */
static slot *slot_of(slots *s, const char *reg)
{
    size_t len = strcspn(reg, "+]}; ,");
    for (size_t i = s->count; i-- > 0;)
        if (s->at[i].size == 8 && strlen(s->at[i].reg) == len && memcmp(s->at[i].reg, reg, len) == 0)
            return &s->at[i];
    return NULL;
}

/* Follows 8-byte values through copies and sums to where they are used as an address: cvta.to.global.u64 %rd2, %rd1;
 * or [%rd1] or [%rd1+16]. */
static void note_use(slots *s, const char *line)
{
    bool cvta = strstr(line, "cvta.to.") != NULL;
    if (cvta || strstr(line, "add.s64") || strstr(line, "add.u64") || strstr(line, "mov.u64") ||
        strstr(line, "mov.b64")) {
        const char *to = strchr(line, '%');
        for (const char *from = to ? strchr(to + 1, '%') : NULL; from; from = strchr(from + 1, '%')) {
            slot *t = slot_of(s, from);
            if (!t)
                continue;
            if (cvta)
                t->type = 'p';
            if (s->count < MAX_SLOTS && !slot_of(s, to)) {
                s->at[s->count] = *t;
                snprintf(s->at[s->count].reg, sizeof(t->reg), "%.*s", (int)strcspn(to, "+]}; ,"), to);
                s->count++;
            }
            break;
        }
        return;
    }
    for (const char *at = strstr(line, "[%"); at; at = strstr(at + 1, "[%")) {
        slot *t = slot_of(s, at + 1);
        if (t)
            t->type = 'p';
    }
}

static void find_slots(slots *s, const stitch__sim_function_info *info, const char *ptx)
{
    size_t len = strlen(info->name);
    const char *at = ptx;
    s->count = 0;
    while ((at = strstr(at, ".entry ")) != NULL) {
        at += 7;
        if (strncmp(at, info->name, len) == 0 && at[len] == '(')
            break;
    }
    for (int pass = 0; at && pass < 2; pass++) {
        for (const char *line = at; line;) {
            char text[2048];
            size_t n = strcspn(line, "\n");
            snprintf(text, sizeof(text), "%.*s", (int)(n < 2047 ? n : 2047), line);
            if (line != at && strstr(text, ".entry "))
                break;
            if (pass == 0 && strstr(text, "ld.param"))
                note_load(s, info, text);
            else if (pass == 1)
                note_use(s, text);
            line = line[n] ? line + n + 1 : NULL;
        }
    }
}

static bool new_buffer(stitch__sim_memory *mem, uint32_t offset, uint8_t *params)
{
    stitch__sim_alloc *a;
    char name[64];
    snprintf(name, sizeof(name), "parameter at byte %u", offset);
    if (stitch__sim_memory_alloc(mem, BUFFER, 0, name, &a, NULL))
        return false;
    stitch__sim_memory_fill(mem, a->base, 0, 4, BUFFER / 4);
    memcpy(params + offset, &a->base, 8);
    return true;
}

static bool fill_params(const stitch__sim_function_info *info, const slots *s, stitch__sim_memory *mem, uint8_t *params)
{
    for (uint32_t i = 0; i < info->param_count; i++)
        if (info->params[i].is_pointer && !new_buffer(mem, info->params[i].offset, params))
            return false;
    for (size_t i = 0; i < s->count; i++) {
        const slot *t = &s->at[i];
        uint64_t value = t->type == 'f' ? (t->size == 8 ? UINT64_C(0x3ff0000000000000) : 0x3f800000) : 64, old = 0;
        if (t->offset + t->size > info->param_bytes || t->size > 8)
            continue;
        memcpy(&old, params + t->offset, t->size);
        if (old >= STITCH__SIM_GLOBAL_BASE)
            continue;
        if (t->type != 'p')
            memcpy(params + t->offset, &value, t->size);
        else if (!new_buffer(mem, t->offset, params))
            return false;
    }
    return true;
}

static bool bind_variables(stitch__sim_module *m, stitch__sim_memory *mem)
{
    size_t n = stitch__sim_module_variable_count(m);
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            const stitch__sim_variable *v = stitch__sim_module_variable(m, i);
            static stitch__sim_alloc *allocs[4096];
            if (i >= sizeof(allocs) / sizeof(allocs[0]))
                return false;
            if (pass == 0) {
                if (stitch__sim_memory_alloc(mem, v->size ? v->size : 1, v->align, v->name, &allocs[i], NULL))
                    return false;
                stitch__sim_module_bind(m, i, allocs[i]->base);
                continue;
            }
            uint8_t *bytes = calloc(1, v->size + 64);
            if (!bytes)
                return false;
            stitch__sim_module_init(m, i, bytes);
            stitch__sim_memory_store(mem, allocs[i]->base, bytes, v->size);
            free(bytes);
        }
    }
    return true;
}

/* False: this block size is no new choice for the kernel. */
static bool choose_sizes(stitch__sim_launch *l, const stitch__sim_function_info *info, size_t way)
{
    uint32_t threads = block_sizes[way], cluster = 1;
    bool declared = info->required_block[0] || info->max_threads < 1024; /* then the kernel is written for that size */
    if (way && (declared || threads > info->max_threads))
        return false;
    if (declared)
        threads = info->max_threads;
    for (int i = 0; i < 3; i++) {
        l->block[i] = info->required_block[0] ? info->required_block[i] : i ? 1 : threads;
        l->cluster[i] = info->required_cluster[0] ? info->required_cluster[i] : 1;
        cluster *= l->cluster[i];
        l->grid[i] = l->cluster[i] * (i == 0 && cluster == 1 ? 2 : 1);
    }
    if (info->dynamic_shared) {
        uint32_t room = STITCH__SIM_SHARED_MAX - info->static_shared;
        l->dynamic_shared = room / 1024 * 1024;
    }
    l->cooperative = info->grid_sync;
    return true;
}

static void tell(answer *a, const stitch__sim_result *r, const char *kernel)
{
    stitch__buf text = {0};
    a->how = r->report_count ? FOUND : CLEAN;
    for (size_t i = 0; i < r->report_count; i++)
        if (r->reports[i].kind == STITCH__SIM_BUDGET)
            a->how = STOPPED;
    if (r->report_count)
        stitch__sim_report_text(&text, &r->reports[0], kernel);
    snprintf(a->words, sizeof(a->words), "%zu findings: %s", r->report_count, text.data ? text.data : "");
    a->findings = r->report_count;
    a->instructions = r->warp_instructions;
    stitch__buf_free(&text);
}

static void run_kernel(const state *s, stitch__sim_module *m, size_t index, const char *ptx, answer *a)
{
    static slots found;
    const stitch__sim_function *f = stitch__sim_module_function(m, index);
    const stitch__sim_function_info *info = stitch__sim_function_info_get(f);
    int64_t end = stitch__now_ns() + (int64_t)s->seconds * 1000000000;
    find_slots(&found, info, ptx);
    for (size_t way = 0; way < sizeof(block_sizes) / sizeof(block_sizes[0]); way++) {
        answer now = {0};
        stitch__sim_memory *mem = NULL;
        stitch__sim_result r = {0};
        stitch_error *err = NULL;
        uint8_t params[STITCH__SIM_PARAM_MAX + 8] = {0};
        stitch__sim_launch l = {.function = f,
                                .params = params,
                                .param_bytes = info->param_bytes,
                                .threads = 1,
                                .seed = 1,
                                .flags = STITCH__SIM_CHECK_ALL,
                                .instruction_budget = 4u << 20};
        if (!choose_sizes(&l, info, way) || (way && stitch__now_ns() > end))
            continue;
        int rc = stitch__sim_memory_new(&mem, &err);
        l.memory = mem;
        l.deadline_ns = end;
        if (!rc && (!fill_params(info, &found, mem, params) || !bind_variables(m, mem)))
            rc = STITCH_E_NOMEM;
        if (!rc)
            rc = stitch__sim_launch_run(&l, &r, &err);
        if (rc) {
            now.how = rc == STITCH_E_TIMEOUT ? STOPPED : REJECTED;
            snprintf(now.words, sizeof(now.words), "%s: %s", stitch_status_name(rc),
                     err ? stitch_error_message(err) : "");
        } else {
            tell(&now, &r, info->name);
        }
        if (way == 0 || now.how < a->how || (now.how == a->how && now.findings < a->findings))
            *a = now;
        stitch_error_free(err);
        stitch__sim_result_clear(&r);
        stitch__sim_memory_free(mem);
        if (a->how == CLEAN)
            return;
    }
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

/* Runs a kernel, or only loads the file (m NULL), in a child. */
static void in_child(const state *s, stitch__sim_module *m, size_t index, const char *ptx, size_t size,
                     const char *path, answer *a)
{
    int ends[2];
    memset(a, 0, sizeof(*a));
    a->how = CRASHED;
    if (pipe(ends))
        return;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        if (m) {
            run_kernel(s, m, index, ptx, a);
        } else {
            stitch_error *err = NULL;
            int rc = stitch__sim_module_load(&m, s->ctx, ptx, size, path, &err);
            a->how = rc ? REFUSED : CLEAN;
            snprintf(a->words, sizeof(a->words), "%s", rc && err ? stitch_error_message(err) : "");
        }
        ssize_t done = write(ends[1], a, sizeof(*a));
        _exit(done == (ssize_t)sizeof(*a) ? 0 : 1);
    }
    close(ends[1]);
    struct pollfd wait = {.fd = ends[0], .events = POLLIN};
    int status = 0, ready;
    /* The deadline is the child's own affair; a minute more means that nothing looks at it. */
    while ((ready = poll(&wait, 1, (int)(s->seconds + 60) * 1000)) < 0 && errno == EINTR)
        ;
    if (pid > 0 && ready == 0) {
        kill(pid, SIGKILL);
        a->how = HUNG;
    } else if (read(ends[0], a, sizeof(*a)) != (ssize_t)sizeof(*a)) {
        a->how = CRASHED;
    }
    close(ends[0]);
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (a->how == CRASHED)
        snprintf(a->words, sizeof(a->words), "signal %d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void do_kernel(state *s, category *c, stitch__sim_module *m, size_t index, const char *ptx, const char *path)
{
    const stitch__sim_function_info *info = stitch__sim_function_info_get(stitch__sim_module_function(m, index));
    answer a = {.how = CLEAN};
    if (info->refusal) {
        a.how = REFUSED;
        snprintf(a.words, sizeof(a.words), "%s", info->refusal);
        count_refusal(s, info->refusal);
    } else if (!s->load_only) {
        in_child(s, m, index, ptx, 0, path, &a);
    }
    c->kernels++;
    c->count[a.how]++;
    s->instructions += a.instructions;
    if (s->verbose || a.how == REFUSED || a.how >= CRASHED)
        printf("  %-9s %s: %s\n", outcome_names[a.how], info->name, a.words);
}

static void do_file(state *s, const char *path)
{
    category *c = category_of(s, path);
    stitch_error *err = NULL;
    stitch__sim_module *m = NULL;
    char *ptx = NULL;
    size_t size = 0;
    answer a = {.how = CRASHED};
    unsigned before[OUTCOMES], kernels = c->kernels;
    memcpy(before, c->count, sizeof(before));
    c->files++;
    int rc = stitch__file_read(s->ctx, path, 0, &ptx, &size, &err);
    if (!rc)
        in_child(s, NULL, 0, ptx, size, path, &a);
    if (!rc && a.how == CLEAN)
        rc = stitch__sim_module_load(&m, s->ctx, ptx, size, path, &err);
    if (rc || !m) {
        printf("%s: %s\n", path, rc ? stitch_error_message(err) : a.words);
        c->broken++;
        c->count[CRASHED] += a.how == CRASHED && !rc;
        c->count[HUNG] += a.how == HUNG;
    } else {
        size_t n = stitch__sim_module_function_count(m);
        fflush(stdout);
        for (size_t i = 0; i < n; i++)
            do_kernel(s, c, m, i, ptx, path);
        printf("%s: %u kernels", path, c->kernels - kernels);
        for (int i = 0; i < OUTCOMES; i++)
            if (c->count[i] > before[i])
                printf(", %u %s", c->count[i] - before[i], s->load_only && i == CLEAN ? "decoded" : outcome_names[i]);
        printf("\n");
    }
    fflush(stdout);
    stitch__sim_module_free(m);
    stitch_error_free(err);
    stitch_free(ptx);
}

static int summary(const state *s)
{
    category all = {.name = "all"};
    printf("\n%-16s %5s %7s %7s", "category", "files", "kernels", "decoded");
    for (int i = 0; i < OUTCOMES; i++)
        printf(" %8s", outcome_names[i]);
    printf("\n");
    for (size_t k = 0; k <= s->category_count; k++) {
        const category *c = k < s->category_count ? &s->categories[k] : &all;
        double share = c->kernels ? 100.0 * (c->kernels - c->count[REFUSED]) / c->kernels : 0;
        printf("%-16s %5u %7u %6.1f%%", c->name, c->files, c->kernels, share);
        for (int i = 0; i < OUTCOMES; i++)
            printf(" %8u", c->count[i]);
        if (c->broken)
            printf("  (%u files not read)", c->broken);
        printf("\n");
        if (c == &all)
            break;
        all.files += c->files;
        all.broken += c->broken;
        all.kernels += c->kernels;
        for (int i = 0; i < OUTCOMES; i++)
            all.count[i] += c->count[i];
    }
    printf("%llu warp instructions ran\n", (unsigned long long)s->instructions);
    for (size_t i = 0; i < s->mnemonic_count; i++)
        printf("refused: %4u %-40s %s\n", s->mnemonics[i].count, s->mnemonics[i].name, s->mnemonics[i].example);
    return all.count[CRASHED] || all.count[HUNG] ? 1 : 0;
}

int main(int argc, char **argv)
{
    static state s = {.seconds = 5};
    stitch_error *err = NULL;
    int i = 1;
    if (stitch_context_new(&s.ctx, NULL, &err)) {
        fprintf(stderr, "ptx_coverage: %s\n", stitch_error_message(err));
        return 2;
    }
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--load-only") == 0)
            s.load_only = true;
        else if (strcmp(argv[i], "--verbose") == 0)
            s.verbose = true;
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            s.seconds = (unsigned)strtoul(argv[++i], NULL, 10);
        else
            break;
    }
    if (i == argc || argv[i][0] == '-') {
        fprintf(stderr, "usage: ptx_coverage [--load-only] [--verbose] [--seconds N] FILE.ptx...\n");
        return 2;
    }
    for (; i < argc; i++)
        do_file(&s, argv[i]);
    int rc = summary(&s);
    stitch_context_free(s.ctx);
    return rc;
}

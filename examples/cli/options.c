/* SPDX-License-Identifier: MIT
 *
 * Arguments of the stitch command line, and its help.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const char help_main[] =
    "usage: stitch COMMAND [OPTIONS]\n"
    "\n"
    "Has a language model write a whole GPU program for a task, proves it, times it, and improves it.\n"
    "\n"
    "Commands\n"
    "  run       plan, code, verify, until the target or the budget is reached\n"
    "  verify    check and time one program against a task\n"
    "  profile   what a program, or what a task is measured against, spends its time on and what to do about it\n"
    "  admit     check a task: would a cheap answer pass for a right one?\n"
    "  compile   check and compile one program without a GPU; with -o, save it as one file\n"
    "  doctor    what was found on this machine, and what is missing\n"
    "  help COMMAND\n"
    "\n"
    "Options of every command\n"
    "  --device D       auto (default: the first GPU, otherwise the simulator), cuda:N, sim:sm_90a, none\n"
    "  --cache-dir DIR  compile cache (default: $STITCH_CACHE_DIR, else ~/.cache/stitch; \"\" for none)\n"
    "  --json           machine-readable output on stdout; run prints one JSON object a line\n"
    "  -q, --quiet      errors only\n"
    "  -v, --verbose    what the library logs, too\n"
    "  -h, --help, --version\n"
    "\n"
    "Exit codes\n"
    "  0    done; for run, verify and profile: the program is correct (and reached --target, if it was timed)\n"
    "  1    no correct program, or the target was missed; for admit: the task is degenerate\n"
    "  2    bad arguments or bad input; for tasks in Python: no Python with PyTorch\n"
    "  3    no device, a missing library, or a device fault\n"
    "  4    the model failed: endpoint, credentials, budget, recording\n"
    "  130  interrupted (Ctrl-C ends a run after the call in progress and reports what there is)\n";

/* Of every command that takes a task. */
#define HELP_PYTHON                                                                                                    \
    "\n"                                                                                                               \
    "A task can be a PyTorch module: FILE.py with Model, get_inputs() and get_init_inputs(), as KernelBench has "      \
    "them.\n"                                                                                                          \
    "It is imported, with your rights, in a Python process that runs the command: --python PYTHON, else\n"             \
    "$STITCH_PYTHON, else python3 on PATH; with PyTorch (docs/python.md, \"From the command line\"). For it only:\n"   \
    "  --set NAME=VALUE   another value for what the file assigns to NAME at its top level: --set batch_size=8\n"      \
    "  --tolerance X      outputs may be off by X + X * |expected|\n"                                                  \
    "  --precision P      the least precise arithmetic that programs may use: f32, tf32, f16, any\n"                   \
    "  --cast T           module and inputs in another type: f16, bf16, f32, f64\n"

static const char help_run[] =
    "usage: stitch run --task TASK --model MODEL [OPTIONS]\n"
    "\n"
    "  --task FILE        what to compute: a JSON file (docs/task-format.md), or a PyTorch module\n"
    "  --model MODEL      who writes: https://HOST/v1#NAME (OpenAI-compatible; key in $STITCH_API_KEY or "
    "$OPENAI_API_KEY),\n"
    "                     replay:FILE, replay-strict:FILE (recorded replies), relay:FOLDER (you or another program "
    "answers\n"
    "                     files), record:FILE,MODEL\n"
    "  --planner MODEL    another model for plans\n"
    "  --record FILE      append every exchange to FILE\n"
    "  -o, --out FILE     save the fastest correct program (default: TASK-NAME.stitch)\n"
    "  --keep DIR         save every attempt: reply, program and report\n"
    "  --html FILE        write a report to read in a browser: attempts with their code, speed-ups, profile of the "
    "best\n"
    "  --no-profile       profile neither attempts nor, before the first plan, what the task is measured against\n"
    "  --attempts N       at most N programs (15)\n"
    "  --plans N          at most N plans (3)\n"
    "  --candidates N     ask for N programs at once, keep the best (1)\n"
    "  --target X         stop at a speed-up of X\n"
    "  --budget-tokens N, --budget-cost X\n"
    "  --trials N, --iterations N, --seed N, --where W   as for verify\n" HELP_PYTHON "\n"
    "Example: stitch run --task examples/tasks/gpt_block/task.json --model replay:examples/replies/gpt_block.jsonl\n";

static const char help_verify[] = "usage: stitch verify --task TASK (PROGRAM.stitch | --reply REPLY.md | --source "
                                  "X.cu --plan X.json) [OPTIONS]\n"
                                  "\n"
                                  "  --trials N       correctness trials with fresh inputs (5)\n"
                                  "  --iterations N   timed runs of program and baseline, interleaved (100)\n"
                                  "  --seed N         repeat a report's inputs: its \"seed\", 0x... or decimal\n"
                                  "  --where W        where the program runs: worker (a process of its own: whatever "
                                  "it does hurts\n"
                                  "                   nobody), here (this process), auto (worker on a GPU, here on "
                                  "the simulator)\n"
                                  "  -o, --out FILE   save the program with its compiled code\n" HELP_PYTHON;

static const char help_profile[] =
    "usage: stitch profile TASK [PROGRAM.stitch | --reply REPLY.md | --source X.cu --plan X.json] [OPTIONS]\n"
    "\n"
    "Verifies a program and says what bounds it, which lines its warps wait at, and what to change, most gain first\n"
    "(docs/profile.md). Without a program: the same of what the task is measured against. A simulated device counts\n"
    "what programs do, and has no times.\n"
    "\n"
    "  --full           all hardware counters that the advice knows, instead of a few\n"
    "  --metrics A,B    more of CUPTI's metrics by name (lts__t_sectors.sum), at most 64\n"
    "  --trace FILE     the timeline of one run for ui.perfetto.dev; the program runs in this process for it\n"
    "  --html FILE      a report to read in a browser\n"
    "  --json           the profile as JSON\n"
    "  --trials N, --iterations N, --seed N, --where W   as for verify\n" HELP_PYTHON;

static const char help_admit[] =
    "usage: stitch admit TASK [OPTIONS]\n"
    "\n"
    "Runs the task's reference and asks which wrong answers its tolerance would take for right: zeros, means, the\n"
    "output for other inputs, the inputs, elements in another order; and which inputs and weights matter at all\n"
    "(docs/task-format.md, \"Degenerate tasks\").\n"
    "\n"
    "  --runs N         at most N runs of the reference, at least 4 (8 + the number of inputs)\n"
    "  --seed N         repeat an admission's contents\n" HELP_PYTHON;

static const char help_compile[] =
    "usage: stitch compile [--task TASK] (PROGRAM.stitch | --reply REPLY.md | --source X.cu --plan X.json) "
    "[OPTIONS]\n"
    "\n"
    "  --task FILE      validate against this task first (needed for programs that were not saved with an interface)\n"
    "  --arch ARCH      sm_90a, sm_80, ... (default: the device's)\n"
    "  -o, --out FILE   save the program with its compiled code\n" HELP_PYTHON;

static const char help_doctor[] =
    "usage: stitch doctor [--json]\n\nPrints what was found, in which version, and what to do about what is missing.\n";

enum {
    OPT_DEVICE = 256,
    OPT_CACHE,
    OPT_JSON,
    OPT_VERSION,
    OPT_TASK,
    OPT_MODEL,
    OPT_PLANNER,
    OPT_RECORD,
    OPT_KEEP,
    OPT_ATTEMPTS,
    OPT_PLANS,
    OPT_CANDIDATES,
    OPT_TARGET,
    OPT_TOKENS,
    OPT_COST,
    OPT_TRIALS,
    OPT_ITERATIONS,
    OPT_SEED,
    OPT_WHERE,
    OPT_RUNS,
    OPT_FULL,
    OPT_METRICS,
    OPT_TRACE,
    OPT_HTML,
    OPT_NO_PROFILE,
    OPT_REPLY,
    OPT_SOURCE,
    OPT_PLAN,
    OPT_ARCH,
    OPT_PYTHON,
    OPT_SET,
    OPT_TOLERANCE,
    OPT_PRECISION,
    OPT_CAST,
};

static const struct option long_options[] = {
    {"device", required_argument, NULL, OPT_DEVICE},
    {"cache-dir", required_argument, NULL, OPT_CACHE},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, 'q'},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {"task", required_argument, NULL, OPT_TASK},
    {"model", required_argument, NULL, OPT_MODEL},
    {"planner", required_argument, NULL, OPT_PLANNER},
    {"record", required_argument, NULL, OPT_RECORD},
    {"out", required_argument, NULL, 'o'},
    {"keep", required_argument, NULL, OPT_KEEP},
    {"attempts", required_argument, NULL, OPT_ATTEMPTS},
    {"plans", required_argument, NULL, OPT_PLANS},
    {"candidates", required_argument, NULL, OPT_CANDIDATES},
    {"target", required_argument, NULL, OPT_TARGET},
    {"budget-tokens", required_argument, NULL, OPT_TOKENS},
    {"budget-cost", required_argument, NULL, OPT_COST},
    {"trials", required_argument, NULL, OPT_TRIALS},
    {"iterations", required_argument, NULL, OPT_ITERATIONS},
    {"seed", required_argument, NULL, OPT_SEED},
    {"where", required_argument, NULL, OPT_WHERE},
    {"runs", required_argument, NULL, OPT_RUNS},
    {"full", no_argument, NULL, OPT_FULL},
    {"metrics", required_argument, NULL, OPT_METRICS},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"html", required_argument, NULL, OPT_HTML},
    {"no-profile", no_argument, NULL, OPT_NO_PROFILE},
    {"reply", required_argument, NULL, OPT_REPLY},
    {"source", required_argument, NULL, OPT_SOURCE},
    {"plan", required_argument, NULL, OPT_PLAN},
    {"arch", required_argument, NULL, OPT_ARCH},
    {"python", required_argument, NULL, OPT_PYTHON},
    {"set", required_argument, NULL, OPT_SET},
    {"tolerance", required_argument, NULL, OPT_TOLERANCE},
    {"precision", required_argument, NULL, OPT_PRECISION},
    {"cast", required_argument, NULL, OPT_CAST},
    {NULL, 0, NULL, 0},
};

static const char *help_of(const char *command)
{
    static const struct {
        const char *name, *text;
    } texts[] = {{"run", help_run},     {"verify", help_verify},   {"profile", help_profile},
                 {"admit", help_admit}, {"compile", help_compile}, {"doctor", help_doctor}};
    for (size_t i = 0; command && i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(texts[i].name, command) == 0)
            return texts[i].text;
    }
    return NULL;
}

static bool take_long(const char *text, long long min, long long max, long long *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < min || v > max)
        return false;
    *out = v;
    return true;
}

static bool take_double(const char *text, double *out)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (errno || end == text || *end || !(v > 0) || v > 1e12)
        return false;
    *out = v;
    return true;
}

/* Which of the names it is; -1: none of them. */
static int find(const char *value, const char *const *names)
{
    for (int i = 0; names[i]; i++) {
        if (strcmp(value, names[i]) == 0)
            return i;
    }
    return -1;
}

static bool take_where(const char *value, int *out)
{
    static const char *const names[] = {"auto", "here", "worker", NULL}; /* stitch_verify_where */

    *out = find(value, names);
    return *out >= 0;
}

static bool take_precision(const char *value, cli_options *o)
{
    static const char *const names[] = {"any", "f32", "tf32", "f16", NULL};

    o->precision = value;
    return find(value, names) >= 0;
}

static bool take_cast(const char *value, cli_options *o)
{
    static const char *const names[] = {"f16", "bf16", "f32", "f64", NULL};

    o->cast = value;
    return find(value, names) >= 0;
}

/* "name=value" */
static bool take_set(const char *text, cli_options *o)
{
    const char *equals = strchr(text, '=');

    if (!equals || equals == text || !equals[1] || o->set_count == sizeof(o->set) / sizeof(o->set[0]))
        return false;
    o->set[o->set_count++] = text;
    return true;
}

/* "a,b", which becomes "a\0b". */
static bool take_names(char *text, cli_options *o)
{
    const size_t most = sizeof(o->metrics) / sizeof(o->metrics[0]);
    char *save = NULL;

    for (char *name = strtok_r(text, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        if (o->metric_count == most)
            return false;
        o->metrics[o->metric_count++] = name;
    }
    return o->metric_count > 0;
}

/* As reports have it (0x and 16 digits), or as people count. */
static bool take_seed(const char *text, unsigned long long *out)
{
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    char *end;

    if (!isxdigit((unsigned char)text[hex ? 2 : 0]))
        return false;
    errno = 0;
    *out = strtoull(text, &end, hex ? 16 : 10);
    return !errno && !*end && *out > 0;
}

static bool take_count(const char *text, long max, long *out)
{
    long long v;
    if (!take_long(text, 1, max, &v))
        return false;
    *out = (long)v;
    return true;
}

/* false: the value is bad */
static bool apply(cli_options *o, int option, char *value)
{
    long long v;
    switch (option) {
    case OPT_DEVICE: o->device = value; return true;
    case OPT_CACHE: o->cache_dir = value; return true;
    case OPT_JSON: o->json = true; return true;
    case 'q': o->quiet = true; return true;
    case 'v': o->verbose = true; return true;
    case OPT_TASK: o->task = value; return true;
    case OPT_MODEL: o->models[STITCH_ROLE_CODER] = value; return true;
    case OPT_PLANNER: o->models[STITCH_ROLE_PLANNER] = value; return true;
    case OPT_RECORD: o->record = value; return true;
    case 'o': o->out = value; return true;
    case OPT_KEEP: o->attempts_dir = value; return true;
    case OPT_REPLY: o->reply = value; return true;
    case OPT_SOURCE: o->source = value; return true;
    case OPT_PLAN: o->plan_file = value; return true;
    case OPT_ARCH: o->arch = value; return true;
    case OPT_PYTHON: o->python = value; return *value;
    case OPT_SET: return take_set(value, o);
    case OPT_TOLERANCE: return take_double(value, &o->tolerance);
    case OPT_PRECISION: return take_precision(value, o);
    case OPT_CAST: return take_cast(value, o);
    case OPT_FULL: o->full = true; return true;
    case OPT_METRICS: return take_names(value, o);
    case OPT_TRACE: o->trace = value; return true;
    case OPT_HTML: o->html = value; return true;
    case OPT_NO_PROFILE: o->no_profile = true; return true;
    case OPT_ATTEMPTS: return take_count(value, 10000, &o->attempts);
    case OPT_PLANS: return take_count(value, 1000, &o->plans);
    case OPT_CANDIDATES: return take_count(value, 64, &o->candidates);
    case OPT_TRIALS: return take_count(value, 1000, &o->trials);
    case OPT_ITERATIONS: return take_count(value, 100000, &o->iterations);
    case OPT_WHERE: return take_where(value, &o->where);
    case OPT_RUNS: return take_count(value, 100000, &o->runs) && o->runs >= 4;
    case OPT_TARGET: return take_double(value, &o->target);
    case OPT_COST: return take_double(value, &o->budget_cost);
    case OPT_TOKENS:
        if (!take_long(value, 1, INT64_MAX, &v))
            return false;
        o->budget_tokens = v;
        return true;
    case OPT_SEED: return take_seed(value, &o->seed);
    default: return false;
    }
}

/* What an option takes, for a message about a value that it does not. */
static const char *wanted(int option)
{
    switch (option) {
    case OPT_ATTEMPTS: return "a whole number from 1 to 10000";
    case OPT_PLANS: return "a whole number from 1 to 1000";
    case OPT_CANDIDATES: return "a whole number from 1 to 64";
    case OPT_TRIALS: return "a whole number from 1 to 1000";
    case OPT_ITERATIONS: return "a whole number from 1 to 100000";
    case OPT_RUNS: return "a whole number from 4 to 100000";
    case OPT_TOKENS: return "a whole number of at least 1";
    case OPT_SEED: return "a whole number of 64 bits, not 0; 0x... as in reports";
    case OPT_TARGET:
    case OPT_COST:
    case OPT_TOLERANCE: return "a number above 0";
    case OPT_WHERE: return "auto, here or worker";
    case OPT_PRECISION: return "any, f32, tf32 or f16";
    case OPT_CAST: return "f16, bf16, f32 or f64";
    case OPT_METRICS: return "1 to 64 names with commas between";
    case OPT_SET: return "NAME=VALUE, at most 64 times";
    default: return "a text";
    }
}

static const char *name_of(int option)
{
    for (const struct option *o = long_options; o->name; o++) {
        if (o->val == option)
            return o->name;
    }
    return "";
}

static int bad_value(const char *command, int option, const char *value)
{
    fprintf(stderr, "stitch: --%s: not a valid value: '%s'; it takes %s\ntry: stitch %s --help\n", name_of(option),
            value, wanted(option), command);
    return EXIT_USAGE;
}

static int usage(const char *command, const char *what, const char *detail)
{
    fprintf(stderr, "stitch: %s%s%s\ntry: stitch %s%s--help\n", what, detail ? ": " : "", detail ? detail : "",
            command ? command : "", command ? " " : "");
    return EXIT_USAGE;
}

static bool is(const cli_options *o, const char *command)
{
    return strcmp(o->command, command) == 0;
}

bool cli_needs_python(const cli_options *o)
{
    size_t length = o->task ? strlen(o->task) : 0;
    return length > 3 && strcmp(o->task + length - 3, ".py") == 0;
}

/* What the command cannot do without. */
static int check_inputs(const cli_options *o)
{
    int given = !!o->program + !!o->reply + (o->source || o->plan_file);
    bool optional = is(o, "profile");

    if (is(o, "run") && (!o->task || !o->models[STITCH_ROLE_CODER]))
        return usage(o->command, "--task and --model are needed", NULL);
    if (is(o, "verify") && !o->task)
        return usage(o->command, "--task is needed", NULL);
    if ((is(o, "profile") || is(o, "admit")) && !o->task)
        return usage(o->command, "TASK is needed", NULL);
    if ((is(o, "verify") || is(o, "compile") || optional) &&
        (given > 1 || (!given && !optional) || !o->source != !o->plan_file))
        return usage(o->command, "give one of PROGRAM, --reply, or --source with --plan", NULL);
    if (is(o, "profile") && !given && o->trace)
        return usage(o->command, "--trace needs a program", NULL);
    if (o->html && ((o->trace && strcmp(o->html, o->trace) == 0) || (o->out && strcmp(o->html, o->out) == 0)))
        return usage(o->command, "two of the files to write have one name", o->html);
    if ((o->set_count || o->tolerance > 0 || o->precision || o->cast) && !cli_needs_python(o))
        return usage(o->command, "--set, --tolerance, --precision and --cast are for a task in a Python file", NULL);
    return 0;
}

int cli_parse(cli_options *o, int argc, char **argv)
{
    int option, index = 0;
    char given[256];

    memset(o, 0, sizeof(*o));
    if (argc < 2) {
        fputs(help_main, stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("stitch %s\n", stitch_version_string());
        return -1;
    }
    if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        const char *text = argc > 2 ? help_of(argv[2]) : help_main;
        if (!text)
            return usage(NULL, "no such command", argv[2]);
        fputs(text, stdout);
        return -1;
    }
    o->command = argv[1];
    if (!help_of(o->command))
        return usage(NULL, "no such command", o->command);
    optind = 2;
    while ((option = getopt_long(argc, argv, "o:qvh", long_options, &index)) != -1) {
        if (option == 'h') {
            fputs(help_of(o->command), stdout);
            return -1;
        }
        if (option == OPT_VERSION) {
            printf("stitch %s\n", stitch_version_string());
            return -1;
        }
        if (option == '?')
            return usage(o->command, "bad arguments", NULL);
        snprintf(given, sizeof(given), "%.200s", optarg ? optarg : ""); /* taking it may cut it into pieces */
        if (!apply(o, option, optarg))
            return bad_value(o->command, option, given);
    }
    if (optind < argc && (is(o, "profile") || is(o, "admit")) && !o->task)
        o->task = argv[optind++];
    if (optind < argc && (is(o, "verify") || is(o, "compile") || is(o, "profile")))
        o->program = argv[optind++];
    if (optind < argc)
        return usage(o->command, "unexpected argument", argv[optind]);
    return check_inputs(o);
}

/* SPDX-License-Identifier: MIT
 *
 * The tricks of docs/trust.md as programs: each with what must catch it, beside an honest twin that must pass.
 */
#ifndef STITCH_TESTS_ADVERSARIAL_TRICKS_H
#define STITCH_TESTS_ADVERSARIAL_TRICKS_H

#include <stdbool.h>
#include <stddef.h>

/* A task, as a document without its reference, and the reference's source. */
typedef struct trick_task {
    const char *head, *oracle, *baseline, *plan;
    const char *fixed; /* an input of float32 that has the host's data; NULL: none */
} trick_task;

/* What must happen to a trick. */
enum {
    REJECTED,   /* at the stage, with the words */
    REPORTED,   /* passes, with a minor finding that has this id; the twin has none */
    FLAGGED,    /* passes, but the report has the words, and the twin's has not: what is odd is the task */
    DEGENERATE, /* the task is reported as degenerate, and nothing is won */
    NOT_FASTER, /* passes, but is not faster than its twin by more than a tenth */
};

/* Where a trick can be shown. */
enum {
    ANYWHERE,
    REAL,        /* its effect is one of time: a real GPU only */
    GUARDS,      /* it writes where it may not: the simulator, and GPUs with guard pages in a worker */
    REAL_GUARDS, /* it does so when it is timed: GPUs with guard pages in a worker only */
    WORKER,      /* it costs the process its context: on a real GPU each row has a process of its own anyway */
};

typedef struct trick {
    int row; /* of the table */
    const char *name;
    int where, outcome;
    const trick_task *task;      /* of the trick, */
    const trick_task *twin_task; /* and of the twin; NULL: the same */
    const char *source, *plan;
    const char *twin_source, *twin_plan; /* NULL: that of the trick */
    int stage;                           /* that rejects it */
    const char *words;                   /* in its message, alternatives separated by '|' */
    int sim_stage; /* the same on the simulator, where its checkers see it first; 0: no difference */
    const char *sim_words;
    enum {
        LIMIT_NONE,
        LIMIT_CORRECT, /* the source has "LIMIT": replaced by the number of runs that stage correct makes, */
        LIMIT_TIME,    /* a few of the timed runs, */
        LIMIT_AFTER,   /* all runs until the end of timing since the module was loaded */
    } limit;
    int timeout_ms;     /* of the trick; 0: the default. Others on the device wait for it */
    int time_budget_ms; /* for timing, of both; 0: the default */
    bool odd_twin;      /* the twin's task may be degenerate: it is the trick's */
} trick;

extern const trick tricks[], more_tricks[];
extern const size_t trick_count, more_trick_count;

/* Rows that cannot be written as a program, with the reason. */
typedef struct impossible {
    int row;
    const char *trick, *why;
} impossible;

extern const impossible impossibles[];
extern const size_t impossible_count;

#endif

/* SPDX-License-Identifier: MIT
 *
 * Private interface of the agent module: prompts, replies, plans, candidates.
 */
#ifndef STITCH_LIB_AGENT_H
#define STITCH_LIB_AGENT_H

#include "base/base.h"
#include <stitch/agent.h>
#include <stitch/device.h>

/* ---- template.c: {{name}} is replaced; {{#name}}...{{/name}} stays only if name has a value that is not "" ------- */

typedef struct stitch__var {
    const char *name;
    const char *value;  /* NULL counts as "" */
    const char *stable; /* what the fingerprint sees instead; NULL: the value */
} stitch__var;

/* Renders `text`; with `stable`, the form that fingerprints are made of. Values are never scanned for variables.
 * STITCH_E_FORMAT names the line of an unknown variable or an unbalanced section. */
int stitch__template_render(const stitch_context *ctx, const char *name, const char *text, const stitch__var *vars,
                            size_t count, bool stable, char **out, stitch_error **err);

/* ---- roles.c: what a context keeps for the agent ----------------------------------------------------------------- */

/* The model of a role, or of the coder. STITCH_E_STATE says how to set one. */
int stitch__agent_model(stitch_context *ctx, int role, stitch_model **out, stitch_error **err);
/* The template in force; NULL if there is none of this name. */
const char *stitch__agent_prompt(stitch_context *ctx, const char *name);

/* ---- next.c ------------------------------------------------------------------------------------------------------ */

/* What the host says of its attempts: sizes of structs, numbers in range. */
int stitch__attempts_check(const stitch_context *ctx, const stitch_attempt *attempts, size_t count, stitch_error **err);

/* ---- prompt.c: texts that templates are filled with; each released with stitch_free ------------------------------ */

int stitch__prompt_interface(stitch_context *ctx, const stitch_task *task, char **out, stitch_error **err);
/* Facts about the device, and the short form that fingerprints see. */
int stitch__prompt_device(stitch_context *ctx, char **facts, char **stable, stitch_error **err);
/* A candidate's two blocks (or its raw reply where it has no program). */
int stitch__prompt_program(stitch_context *ctx, const stitch_candidate *candidate, char **out, stitch_error **err);
int stitch__prompt_history(stitch_context *ctx, const stitch_attempt *attempts, const stitch_report *const *reports,
                           size_t count, char **out, char **stable, stitch_error **err);
/* Renders template `name` and its fingerprint (64 hex digits and a NUL). */
int stitch__prompt_render(stitch_context *ctx, const char *name, const stitch__var *vars, size_t count, char **prompt,
                          char fingerprint[65], stitch_error **err);
extern const char stitch__prompt_docs_program_format[];

/* ---- reply.c: fenced blocks of a reply --------------------------------------------------------------------------- */

typedef struct stitch__blocks {
    char *cuda, *json, *notes; /* NULL where there is none; notes is never NULL */
} stitch__blocks;

/* Finds at most one block of each kind. STITCH_E_REPLY: two of a kind, or a block that is not closed. */
int stitch__reply_split(const stitch_context *ctx, const char *text, stitch__blocks *out, stitch_error **err);
void stitch__blocks_free(stitch__blocks *b);

/* ---- ask.c: a request, its format repairs, several at once ------------------------------------------------------- */

/* Reads one reply. Returns STITCH_OK, STITCH_E_REPLY / STITCH_E_FORMAT / STITCH_E_LIMIT for what a repair may cure
 * (with `instruction` set to what to ask for), or another status that ends everything. `state` is per answer and may
 * keep parts of earlier tries. */
typedef int (*stitch__ask_read)(stitch_context *ctx, const stitch_reply *reply, void *state, const char **instruction,
                                stitch_error **err);

enum { STITCH__MAX_REPAIRS = 16 }; /* of one answer, whatever a caller asks for */

typedef struct stitch__ask {
    stitch_model *model;
    const char *label;
    const char *prompt; /* user message; the system message is template "system" */
    const char *fingerprint;
    const char *json_schema; /* may be NULL */
    int max_repairs;
    stitch_token_fn on_token;
    void *userdata;
    const stitch_cancel *cancel;
    int64_t timeout_ms;
    stitch__ask_read read;
} stitch__ask;

typedef struct stitch__answer {
    void *state; /* for read() */
    int status;  /* of this answer */
    bool unread; /* a reply came, and could not be read; false where there is none because the model failed */
    stitch_error *error;
    char *text; /* last reply */
    char *notice;
    int repairs;
    int64_t tokens; /* -1: unknown */
} stitch__answer;

/* Asks `count` times at once. Each answer has its own status; returns STITCH_OK if one at least is STITCH_OK or unread
 * after all repairs, else the first failure. */
int stitch__ask_many(stitch_context *ctx, const stitch__ask *ask, stitch__answer *answers, size_t count,
                     stitch_error **err);
void stitch__answer_clear(stitch__answer *a);

/* ---- candidates and plans ---------------------------------------------------------------------------------------- */

struct stitch_candidate {
    stitch_program *program;    /* NULL: could not be parsed */
    stitch_error *format_error; /* why */
    char *reply, *notes, *notice;
    int format_repairs;
    int64_t tokens;
};

typedef struct stitch__subtask {
    const char *id, *level, *title, *goal;
} stitch__subtask;

struct stitch_plan_doc {
    stitch__arena arena;
    char *json;
    const char *strategy;
    stitch__subtask *subtasks;
    size_t subtask_count;
};

#endif

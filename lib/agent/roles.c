/* SPDX-License-Identifier: MIT
 *
 * What a context keeps for the agent: the models of the roles and overridden prompt templates.
 */
#include "agent/agent.h"

/* Built-in templates: X(name). Each is lib/agent/prompts/<name>.md. */
#define PROMPT_LIST(X)                                                                                                 \
    X(system) X(plan) X(code_draft) X(code_repair_compile) X(code_repair_correctness) X(code_optimise) X(format_repair)

#define PROMPT_EXTERN(name) extern const char stitch__prompt_##name[];
PROMPT_LIST(PROMPT_EXTERN)
#undef PROMPT_EXTERN

static const struct {
    const char *name, *text;
} builtin[] = {
#define PROMPT_ENTRY(name) {#name, stitch__prompt_##name},
    PROMPT_LIST(PROMPT_ENTRY)
#undef PROMPT_ENTRY
};

enum { ROLE_COUNT = STITCH_ROLE_JUDGE + 1 };

typedef struct agent_state {
    stitch_model *models[ROLE_COUNT];
    char *prompts[STITCH__COUNT(builtin)]; /* NULL: the built-in one */
} agent_state;

static int state_make(stitch_context *ctx, void **state, stitch_error **err)
{
    *state = stitch__calloc(ctx, 1, sizeof(agent_state));
    return *state ? STITCH_OK : stitch__err_nomem(ctx, err);
}

static void state_destroy(void *state)
{
    agent_state *s = state;
    for (size_t i = 0; i < STITCH__COUNT(builtin); i++)
        stitch_free(s->prompts[i]);
    stitch_free(s);
}

static int state_get(stitch_context *ctx, agent_state **out, stitch_error **err)
{
    void *state = NULL;
    int rc = stitch__context_slot(ctx, STITCH__SLOT_AGENT, state_make, state_destroy, &state, err);
    *out = state;
    return rc;
}

int stitch_context_set_model(stitch_context *ctx, int role, stitch_model *model, stitch_error **err)
{
    agent_state *s;
    int rc;

    if (!ctx || role < 0 || role >= ROLE_COUNT)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_context_set_model: %d is no role", role);
    if ((rc = state_get(ctx, &s, err)) != STITCH_OK)
        return rc;
    s->models[role] = model;
    return STITCH_OK;
}

int stitch__agent_model(stitch_context *ctx, int role, stitch_model **out, stitch_error **err)
{
    static const char *const names[ROLE_COUNT] = {"planner", "coder", "critic", "judge"};
    agent_state *s;
    int rc;

    *out = NULL;
    if ((rc = state_get(ctx, &s, err)) != STITCH_OK)
        return rc;
    *out = s->models[role] ? s->models[role] : s->models[STITCH_ROLE_CODER];
    if (!*out)
        return stitch__err(ctx, err, STITCH_E_STATE,
                           "there is no model for the %s: call stitch_context_set_model() first", names[role]);
    return STITCH_OK;
}

static int prompt_index(const char *name)
{
    for (size_t i = 0; i < STITCH__COUNT(builtin); i++) {
        if (strcmp(builtin[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

int stitch_context_set_prompt(stitch_context *ctx, const char *name, const char *text, stitch_error **err)
{
    agent_state *s;
    char *copy = NULL;
    int rc, index;

    if (!ctx || !name)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_context_set_prompt: context and name must not be NULL");
    if ((index = prompt_index(name)) < 0)
        return stitch__err(ctx, err, STITCH_E_NOT_FOUND, "there is no prompt template '%s'", name);
    if (text && (strlen(text) > (1u << 20) || !stitch__utf8_valid(text, strlen(text))))
        return stitch__err(ctx, err, STITCH_E_FORMAT, "prompt template %s: not UTF-8, or longer than 1 MiB", name);
    if ((rc = state_get(ctx, &s, err)) != STITCH_OK)
        return rc;
    if (text && !(copy = stitch__strdup(ctx, text)))
        return stitch__err_nomem(ctx, err);
    stitch_free(s->prompts[index]);
    s->prompts[index] = copy;
    return STITCH_OK;
}

const char *stitch__agent_prompt(stitch_context *ctx, const char *name)
{
    int index = prompt_index(name);
    if (index < 0)
        return NULL;
    agent_state *s = stitch__context_slot_peek(ctx, STITCH__SLOT_AGENT);
    return s && s->prompts[index] ? s->prompts[index] : builtin[index].text;
}

const char *stitch_context_prompt(stitch_context *ctx, const char *name)
{
    return ctx && name ? stitch__agent_prompt(ctx, name) : NULL;
}

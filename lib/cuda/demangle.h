/* SPDX-License-Identifier: MIT
 *
 * Private to the demangler: what its files share. demangle.c: the whole name; demangle_name.c: names of functions and
 * types, local ones too; demangle_type.c: types.
 */
#ifndef STITCH_LIB_CUDA_DEMANGLE_H
#define STITCH_LIB_CUDA_DEMANGLE_H

#include "cuda/internal.h"

enum {
    STITCH__DM_DEPTH = 64,
    STITCH__DM_TEXT = 2048,
    STITCH__DM_LIST = 1024,
    STITCH__DM_TYPES = 1 << 16,
    STITCH__DM_BYTES = 4 << 20
};

typedef struct stitch__dm_type {
    const char *text; /* NULL: cannot be written down */
    const char *head; /* functions and arrays: what comes before a '*' and after it ("float (", ")(int)"); NULL */
    const char *tail;
    int kind; /* stitch_param_kind */
    int dtype;
    uint32_t size; /* 0: unknown */
    bool is_const; /* of the type itself, not of what it points to */
    bool tensor_map;
    bool is_void;
    int reference; /* 1: &, 2: && */
    const struct stitch__dm_type *pointee;
    const struct stitch__dm_list *pack; /* a parameter pack */
    bool expansion;                     /* Dp: `pack` is to be spliced in */
    /* Which function's template arguments it depends on, if on any. A substitution for it means the same in terms of
     * the function that it stands in: there it is parsed again. */
    bool depends;
    int function;
    const char *from; /* where it is written; NULL: it cannot be parsed again */
} stitch__dm_type;

typedef struct stitch__dm_list {
    const stitch__dm_type **items;
    size_t count, cap;
} stitch__dm_list;

typedef struct stitch__dm_state {
    stitch__arena *arena;
    const char *at;
    int depth;
    bool failed, nomem;
    stitch__dm_list subs;    /* S_, S0_, ... */
    stitch__dm_list args;    /* T_, T0_, ...: template arguments of the function */
    int function, functions; /* the one that `args` are of; how many there were */
    int types;               /* that were parsed */
    size_t bytes;            /* of texts */
    bool depends;            /* what is being parsed has a T_ */
    bool last_is_template;
    bool last_is_const; /* of the member function that was parsed last */
    bool in_lambda;     /* among the parameters of one, where T_ is "auto" */
    const char *base;   /* of the name that was parsed last: without its template arguments */
} stitch__dm_state;

/* ---- demangle.c ---- */

/* NULL, and everything after it fails. */
void *stitch__dm_give_up(stitch__dm_state *s);
void *stitch__dm_out_of_memory(stitch__dm_state *s);
stitch__dm_type *stitch__dm_make(stitch__dm_state *s, const char *text, int kind, int dtype, uint32_t size);
bool stitch__dm_append(stitch__dm_state *s, stitch__dm_list *l, const stitch__dm_type *t);
/* Text of limited length: substitutions could make it grow exponentially. NULL operands give NULL. */
const char *stitch__dm_join(stitch__dm_state *s, const char *a, const char *b, const char *c);
bool stitch__dm_eat(stitch__dm_state *s, char c);
/* "_" is 0, "0_" is 1, "Z_" is 36 (base 36), or base 10 for template parameters. -1: malformed. */
int stitch__dm_sequence(stitch__dm_state *s, int base);
/* Types up to and with the E, or up to the end, packs unfolded; "void" alone is none. */
bool stitch__dm_params(stitch__dm_state *s, bool to_end, stitch__dm_list *params);
/* "(float, int)" */
const char *stitch__dm_params_text(stitch__dm_state *s, const stitch__dm_list *params);

/* ---- demangle_name.c ---- */

/* `into` (may be NULL) receives the template arguments of the last part. */
const stitch__dm_type *stitch__dm_nested(stitch__dm_state *s, stitch__dm_list *into);   /* after the N */
const stitch__dm_type *stitch__dm_unscoped(stitch__dm_state *s, stitch__dm_list *into); /* "St" may begin it */
const stitch__dm_type *stitch__dm_local(stitch__dm_state *s, stitch__dm_list *into);    /* after the Z */
/* I args E behind the name `text`; after the I. */
const stitch__dm_type *stitch__dm_instance(stitch__dm_state *s, const char *text, stitch__dm_list *into);
const stitch__dm_type *stitch__dm_substitution(stitch__dm_state *s); /* after the S; not "St" */
bool stitch__dm_name_starts(const stitch__dm_state *s);

/* ---- demangle_type.c ---- */

const stitch__dm_type *stitch__dm_parse_type(stitch__dm_state *s);
/* A class or an enumeration: which of the two cannot be seen, except for known names. */
const stitch__dm_type *stitch__dm_named(stitch__dm_state *s, const char *text, bool is_template);
const stitch__dm_type *stitch__dm_template_param(stitch__dm_state *s); /* after the T */

#endif

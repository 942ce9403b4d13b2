/* SPDX-License-Identifier: MIT
 *
 * What the tests of programs share: contexts, an interface from short text, a program from a plan, files of the data
 * folder.
 */
#ifndef STITCH_TESTS_PROGRAM_FIXTURE_H
#define STITCH_TESTS_PROGRAM_FIXTURE_H

#include "check.h"
#include "program/program.h"

/* CHECK_OK for code that may be included where the names ctx and err are taken. */
#define CHECK_CALL(call, error)                                                                                        \
    do {                                                                                                               \
        int check_rc = (call);                                                                                         \
        if (check_rc != 0)                                                                                             \
            FAIL("%s: %s: %s", #call, stitch_status_name(check_rc), stitch_error_message(error));                      \
    } while (0)

__attribute__((unused)) static stitch_context *new_context(const stitch_allocator *allocator)
{
    stitch_context *made = NULL;
    stitch_error *why = NULL;
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    o.device = "none";
    o.allocator = allocator;
    CHECK_CALL(stitch_context_new(&made, &o, &why), why);
    return made;
}

#ifdef STITCH_TEST_DATA
__attribute__((unused)) static char *read_data(const char *name)
{
    char path[1024], *text;
    size_t len;
    stitch_error *why = NULL;
    snprintf(path, sizeof(path), STITCH_TEST_DATA "/%s", name);
    CHECK_CALL(stitch__file_read(NULL, path, 0, &text, &len, &why), why);
    return text;
}
#endif

/* "B=4 C=8; input x f32 B,C; output y f32 B,C": dims, then tensors. */
__attribute__((unused)) static stitch_interface *new_interface(stitch_context *owner, const char *text)
{
    static const char *const roles[] = {"input", "weight", "output", "state"};
    char copy[2048], *part, *rest = copy;
    stitch_interface *i;
    stitch_error *why = NULL;
    snprintf(copy, sizeof(copy), "%s", text);
    CHECK_CALL(stitch_interface_new(owner, &i, &why), why);
    part = strtok_r(copy, ";", &rest);
    for (char *save, *dim = strtok_r(part, " ", &save); dim; dim = strtok_r(NULL, " ", &save)) {
        char *value = strchr(dim, '=');
        *value++ = 0;
        CHECK_CALL(stitch_interface_set_dim(i, dim, atoll(value), &why), why);
    }
    while ((part = strtok_r(NULL, ";", &rest))) {
        char *save, *role = strtok_r(part, " ", &save), *name = strtok_r(NULL, " ", &save),
                    *dtype = strtok_r(NULL, " ", &save);
        const char *shape[STITCH_MAX_RANK];
        size_t rank = 0;
        int r = 0;
        for (char *e = strtok_r(NULL, " ,", &save); e; e = strtok_r(NULL, " ,", &save))
            shape[rank++] = e;
        while (strcmp(roles[r], role) != 0)
            r++;
        CHECK_CALL(stitch_interface_add_tensor(i, r, name, stitch_dtype_parse(dtype), rank, shape, &why), why);
    }
    return i;
}

/* The interface of the GPT block that the recorded reply is for. */
#define GPT_BLOCK                                                                                                      \
    "B=128 T=512 C=768 H=8; input x f32 B,T,C; weight ln_1.weight f32 C; weight ln_1.bias f32 C;"                      \
    "weight attn.c_attn.weight f32 3*C,C; weight attn.c_attn.bias f32 3*C; weight attn.c_proj.weight f32 C,C;"         \
    "weight attn.c_proj.bias f32 C; weight ln_2.weight f32 C; weight ln_2.bias f32 C; weight mlp.c_fc.weight f32 "     \
    "4*C,C;"                                                                                                           \
    "weight mlp.c_fc.bias f32 4*C; weight mlp.c_proj.weight f32 C,4*C; weight mlp.c_proj.bias f32 C; output y f32 "    \
    "B,T,C"

#endif

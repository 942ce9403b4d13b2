/* SPDX-License-Identifier: MIT
 *
 * PTX text: whatever it says, loading it answers or refuses, and every kernel that is decoded runs to an end within its
 * instruction budget, with arguments that may be anything.
 */
#include <stdlib.h>

#include "sim/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(const stitch__sim_function *f, stitch__sim_memory *mem, uint64_t buffer)
{
    const stitch__sim_function_info *info = stitch__sim_function_info_get(f);
    uint8_t params[STITCH__SIM_PARAM_MAX + 8] = {0};
    stitch__sim_result result;
    stitch_error *err = NULL;
    for (uint32_t i = 0; i < info->param_count; i++) {
        uint64_t v = info->params[i].size == 8 ? buffer + 4096 * (i & 7) : 3;
        memcpy(params + info->params[i].offset, &v, info->params[i].size < 8 ? info->params[i].size : 8);
    }
    stitch__sim_launch launch = {.function = f,
                                 .grid = {2, 1, 1},
                                 .block = {48, 1, 1},
                                 .dynamic_shared = info->dynamic_shared ? 1024 : 0,
                                 .params = params,
                                 .param_bytes = info->param_bytes,
                                 .memory = mem,
                                 .flags = STITCH__SIM_CHECK_ALL | STITCH__SIM_COUNT,
                                 .instruction_budget = 3000,
                                 .threads = 1};
    int rc = stitch__sim_launch_run(&launch, &result, &err);
    if (rc != STITCH_OK && !*stitch_error_message(err))
        abort();
    for (size_t i = 0; i < result.report_count; i++) {
        stitch__buf text;
        stitch__buf_init(&text, NULL);
        stitch__sim_report_text(&text, &result.reports[i], info->name);
        stitch__buf_free(&text);
    }
    stitch__sim_result_clear(&result);
    stitch_error_free(err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch__sim_module *module = NULL;
    stitch__sim_memory *mem = NULL;
    stitch__sim_alloc *a = NULL;
    stitch_error *err = NULL;
    int rc = stitch__sim_module_load(&module, NULL, (const char *)data, size, "fuzz.ptx", &err);
    if (rc != STITCH_OK) {
        if (!*stitch_error_message(err) || module)
            abort();
        stitch_error_free(err);
        return 0;
    }
    if (stitch__sim_memory_new(&mem, &err) != STITCH_OK ||
        stitch__sim_memory_alloc(mem, 65536, 0, "buffer", &a, &err) != STITCH_OK)
        abort();
    memset(a->host, 0, 65536);
    stitch__sim_memory_mark(a, 0, 65536, true);
    uint64_t buffer = a->base;
    for (size_t i = 0; i < stitch__sim_module_variable_count(module); i++) {
        const stitch__sim_variable *v = stitch__sim_module_variable(module, i);
        stitch__sim_alloc *where = NULL;
        if (v->size <= 1 << 20 && stitch__sim_memory_alloc(mem, v->size, 0, v->name, &where, &err) == STITCH_OK) {
            stitch__sim_module_bind(module, i, where->base);
            stitch__sim_module_init(module, i, where->host);
            stitch__sim_memory_mark(where, 0, v->size, true);
        }
    }
    for (size_t i = 0; i < stitch__sim_module_function_count(module) && i < 50; i++)
        run(stitch__sim_module_function(module, i), mem, buffer);
    stitch__sim_memory_free(mem);
    stitch__sim_module_free(module);
    stitch_error_free(err);
    return 0;
}

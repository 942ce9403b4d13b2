/* SPDX-License-Identifier: MIT
 *
 * stitch verify, compile and doctor.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static int save_program(cli *c, const stitch_program *program, const char *path)
{
    stitch_error *err = NULL;
    int rc = stitch_program_save(program, path, &err);
    if (rc)
        return cli_fail(c, "save", rc, err); /* the message names the file */
    cli_say(c, "saved %s", path);
    return 0;
}

/* The report as a JSON object; reports are our own, so this cannot fail for other reasons than memory. */
static json_t *report_object(const stitch_report *report)
{
    return json_loads(stitch_report_json(report), 0, NULL);
}

int cli_verify(cli *c)
{
    stitch_task *task = NULL;
    stitch_program *program = NULL;
    stitch_report *report = NULL;
    stitch_error *err = NULL;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    int code, rc;

    if ((code = cli_load_task(c, &task)) != 0 || (code = cli_load_program(c, &program)) != 0)
        goto out;
    o.trials = (int32_t)c->o.trials;
    o.iterations = (int32_t)c->o.iterations;
    o.seed = c->o.seed;
    o.on_stage = cli_on_stage;
    o.userdata = c;
    o.cancel = c->cancel;
    o.where = c->o.where;
    if ((rc = stitch_verify_program(c->ctx, task, program, &o, &report, &err)) != STITCH_OK) {
        code = cli_fail(c, "verify", rc, err);
        goto out;
    }
    cli_clear(c);
    if (c->o.json)
        cli_emit(c, report_object(report));
    else
        fputs(stitch_report_text(report), stdout);
    stitch_report_summary_get(report, &s);
    code = s.failed_stage == STITCH_STAGE_NONE                              ? EXIT_OK
           : s.status == STITCH_E_FAULT && !s.isolated && !cli_simulated(c) ? EXIT_ENVIRONMENT
                                                                            : EXIT_NOT_CORRECT;
    if (c->o.out && (code == EXIT_OK || s.failed_stage > STITCH_STAGE_COMPILE)) {
        int saved = save_program(c, program, c->o.out);
        code = code ? code : saved;
    }
out:
    stitch_report_free(report);
    stitch_program_free(program);
    cli_free_task(c, task);
    return code;
}

static json_t *diagnostics_json(const stitch_image *image)
{
    json_t *list = json_array();
    for (size_t i = 0; image && i < stitch_image_diagnostic_count(image); i++) {
        stitch_diagnostic d = STITCH_DIAGNOSTIC_INIT;
        static const char *const names[] = {"note", "warning", "error"};
        if (stitch_image_diagnostic(image, i, &d) == STITCH_OK)
            json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:s, s:s}", "severity", names[d.severity], "line",
                                                  (int)d.line, "column", (int)d.column, "file", d.file, "message",
                                                  d.message));
    }
    return list;
}

static void put_count(char *out, size_t size, int64_t count)
{
    snprintf(out, size, count < 0 ? "?" : "%lld", (long long)count); /* PTX does not tell */
}

static void print_kernel(const stitch_kernel_info *k)
{
    char registers[24], shared[24], local[24];

    put_count(registers, sizeof(registers), k->registers);
    put_count(shared, sizeof(shared), k->static_shared);
    put_count(local, sizeof(local), k->local);
    printf("  %-32s %4s registers  %6s B shared  %5s B local\n", k->name, registers, shared, local);
}

static void print_compiled(cli *c, const stitch_image *image, bool ok)
{
    json_t *kernels = json_array(), *diagnostics = diagnostics_json(image);
    if (!c->o.json && image)
        printf("%s for %s in %.1f ms%s\n", ok ? "compiled" : "does not compile", stitch_image_arch(image),
               stitch_image_milliseconds(image), stitch_image_cached(image) ? " (cached)" : "");
    for (size_t i = 0; image && i < stitch_image_kernel_count(image); i++) {
        stitch_kernel_info k = STITCH_KERNEL_INFO_INIT;
        if (stitch_image_kernel(image, i, &k) != STITCH_OK)
            continue;
        json_array_append_new(kernels, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "name", k.name, "registers",
                                                 (json_int_t)k.registers, "static_shared", (json_int_t)k.static_shared,
                                                 "local", (json_int_t)k.local, "spill_stores",
                                                 (json_int_t)k.spill_stores, "max_threads", (json_int_t)k.max_threads));
        if (!c->o.json)
            print_kernel(&k);
    }
    if (c->o.json)
        cli_emit(c, json_pack("{s:b, s:s, s:f, s:b, s:o, s:o}", "ok", ok, "arch", image ? stitch_image_arch(image) : "",
                              "milliseconds", image ? stitch_image_milliseconds(image) : 0.0, "cached",
                              image ? stitch_image_cached(image) : 0, "kernels", kernels, "diagnostics", diagnostics));
    else
        json_decref(kernels), json_decref(diagnostics);
}

int cli_compile(cli *c)
{
    stitch_task *task = NULL;
    stitch_program *program = NULL;
    stitch_error *err = NULL;
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    const stitch_image *image = NULL;
    int code, rc;

    if ((code = cli_load_program(c, &program)) != 0)
        return code;
    if (c->o.task) {
        if ((code = cli_load_task(c, &task)) != 0)
            goto out;
        if ((rc = stitch_program_validate(program, stitch_task_interface(task), c->o.arch, &err)) != STITCH_OK) {
            code = cli_fail(c, "validate", rc, err);
            goto out;
        }
    }
    o.arch = c->o.arch;
    o.cancel = c->cancel;
    rc = stitch_program_compile(program, &o, &image, &err);
    if (image)
        print_compiled(c, image, rc == STITCH_OK);
    if (rc) {
        code = cli_fail(c, "compile", rc, err);
        goto out;
    }
    if (c->o.out)
        code = save_program(c, program, c->o.out);
out:
    stitch_program_free(program);
    cli_free_task(c, task);
    return code;
}

int cli_doctor(cli *c)
{
    stitch_error *err = NULL;
    char *text = NULL;
    int rc = stitch_doctor(c->ctx, &text, &err);
    if (rc)
        return cli_fail(c, "doctor", rc, err);
    json_t *doc = json_loads(text, 0, NULL);
    bool ok = json_is_true(json_object_get(doc, "ok"));
    if (c->o.json) {
        cli_emit(c, json_incref(doc));
    } else {
        json_t *items = json_object_get(doc, "items"), *item;
        size_t i;
        json_array_foreach(items, i, item)
        {
            const char *version = json_string_value(json_object_get(item, "version")),
                       *path = json_string_value(json_object_get(item, "path")),
                       *detail = json_string_value(json_object_get(item, "detail"));
            printf("%-10s %-8s %-12s %s\n", json_string_value(json_object_get(item, "name")),
                   json_string_value(json_object_get(item, "status")), version ? version : "", path ? path : "");
            if (detail && *detail)
                printf("           %s\n", detail);
        }
    }
    json_decref(doc);
    stitch_free(text);
    return ok ? EXIT_OK : EXIT_ENVIRONMENT;
}

/* SPDX-License-Identifier: MIT
 *
 * Saved programs: round trips, damaged and hostile files, failed allocations.
 */
#include <unistd.h>

#include "cuda/cuda.h"
#include "program_fixture.h"

#define IFACE "B=4 C=64; input x f64 B,C; weight w f64 C,C; weight b f64 C; output y f64 B,C"
#define PLAN                                                                                                           \
    "{\"stitch\": 1, \"let\": {\"N\": \"B*C\"}, \"buffers\": {\"h\": {\"dtype\": \"f64\", \"shape\": [\"B\", "         \
    "\"C\"]}}, \"run\": ["                                                                                             \
    "{\"kernel\": \"twice\", \"grid\": [1], \"block\": [64], \"args\": [\"x\", \"h\", {\"i32\": \"N\"}, {\"f64\": "    \
    "0.1}]}, "                                                                                                         \
    "{\"gemm\": {\"a\": \"h\", \"b\": \"w\", \"c\": \"y\", \"m\": \"B\", \"n\": \"C\", \"k\": \"C\", \"bias\": "       \
    "\"b\", \"compute\": \"f64\"}}]}"

static const char source[] =
    "__global__ void twice(const double *x, double *h, int n, double f)\n{\n"
    "    for (int i = threadIdx.x; i < n; i += blockDim.x) h[i] = 2 * x[i] * f; // \"quoted\" \\ \xc3\xa9\n}\n";

static stitch_program *new_program(stitch_context *ctx, const char *arch)
{
    stitch_error *err = NULL;
    stitch_program *p;
    stitch_interface *i = new_interface(ctx, IFACE);
    CHECK_OK(stitch_program_parse(ctx, source, PLAN, NULL, &p, &err));
    CHECK_OK(stitch_program_validate(p, i, NULL, &err));
    stitch_interface_free(i);
    if (arch) {
        stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
        o.arch = arch;
        int rc = stitch_program_compile(p, &o, NULL, &err);
        if (rc == STITCH_E_NO_LIBRARY)
            SKIP("NVRTC is not there");
        CHECK_OK(rc);
    }
    return p;
}

TEST(round_trip)
{
    stitch_context *ctx = new_context(NULL);
    stitch_error *err = NULL;
    stitch_program *p = new_program(ctx, NULL), *back;
    void *data, *again;
    size_t size, size2;
    CHECK_OK(stitch_program_save_memory(p, &data, &size, &err));
    CHECK_OK(stitch_program_load_memory(ctx, data, size, NULL, &back, &err));
    CHECK_STR(stitch_program_source(back), source);
    CHECK_STR(stitch_program_json(back), stitch_program_json(p));
    CHECK_STR(stitch_program_hash(back), stitch_program_hash(p));
    const stitch_interface *i = stitch_program_interface(back);
    stitch_tensor_info t = STITCH_TENSOR_INFO_INIT;
    CHECK(i);
    CHECK_INT(stitch_interface_tensor(i, 1, &t), STITCH_OK);
    CHECK_STR(t.name, "w");
    CHECK_INT(t.role, STITCH_TENSOR_WEIGHT);
    CHECK_INT(t.bytes, 64 * 64 * 8);
    CHECK_OK(stitch_program_save_memory(back, &again, &size2, &err));
    CHECK_INT(size2, size);
    CHECK(memcmp(data, again, size) == 0);
    stitch_free(again);
    stitch_program_free(back);

    char path[] = "/tmp/stitch-program-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    CHECK_OK(stitch_program_save(p, path, &err));
    CHECK_OK(stitch_program_load(ctx, path, NULL, &back, &err));
    stitch_program_free(back);
    CHECK_OK(stitch__file_write(ctx, path, "{}", 2, &err));
    CHECK_ERR(stitch_program_load(ctx, path, NULL, &back, &err), STITCH_E_FORMAT, path);
    unlink(path);
    CHECK_ERR(stitch_program_load(ctx, path, NULL, &back, &err), STITCH_E_NOT_FOUND, path);
    CHECK_ERR(stitch_program_save(p, "/nonexistent/x", &err), STITCH_E_IO, "/nonexistent/x");
    CHECK_ERR(stitch_program_load(ctx, NULL, NULL, &back, &err), STITCH_E_INVALID, "must not be NULL");
    CHECK_ERR(stitch_program_load_memory(ctx, NULL, 0, NULL, &back, &err), STITCH_E_INVALID, "must not be NULL");
    CHECK_ERR(stitch_program_save_memory(NULL, &data, &size, &err), STITCH_E_INVALID, "must not be NULL");
    stitch_free(data);
    stitch_program_free(p);
    stitch_context_free(ctx);
}

TEST(without_interface)
{
    stitch_context *ctx = new_context(NULL);
    stitch_error *err = NULL;
    stitch_program *p, *back;
    void *data;
    size_t size;
    CHECK_OK(stitch_program_parse(ctx, source, PLAN, NULL, &p, &err));
    CHECK_OK(stitch_program_save_memory(p, &data, &size, &err));
    CHECK_OK(stitch_program_load_memory(ctx, data, size, NULL, &back, &err));
    CHECK(stitch_program_interface(back) == NULL);
    stitch_free(data);
    stitch_program_free(back);
    stitch_program_free(p);
    stitch_context_free(ctx);
}

TEST(images)
{
    stitch_context *ctx = new_context(NULL);
    stitch_error *err = NULL;
    stitch_program *p = new_program(ctx, "sm_90a"), *back;
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    void *data;
    size_t size;
    o.arch = "sm_80";
    o.ptx = 1;
    CHECK_OK(stitch_program_compile(p, &o, NULL, &err));
    CHECK_OK(stitch_program_save_memory(p, &data, &size, &err));
    CHECK_OK(stitch_program_load_memory(ctx, data, size, NULL, &back, &err));
    CHECK_INT(back->compiled_count, 2);
    for (size_t i = 0; i < 2; i++) {
        size_t want, got;
        const void *a = stitch_image_data(p->compiled[i].image, &want),
                   *b = stitch_image_data(back->compiled[i].image, &got);
        CHECK_INT(got, want);
        CHECK(memcmp(a, b, want) == 0);
        CHECK(back->compiled[i].brought && !p->compiled[i].brought);
        CHECK(back->compiled[i].helpers); /* a product of doubles has no bias in cuBLASLt */
        CHECK_STR(stitch_image_arch(back->compiled[i].image), stitch_image_arch(p->compiled[i].image));
    }
    CHECK(stitch__program_compiled(back, "sm_80", true));
    CHECK(!stitch__program_compiled(back, "sm_80", false));
    stitch_kernel_info k = STITCH_KERNEL_INFO_INIT;
    CHECK_INT(stitch_image_kernel(back->compiled[0].image, 0, &k), STITCH_OK);
    CHECK_STR(k.name, "twice");
    CHECK_INT(k.param_count, 4);
    /* What was compiled here is no file's any more, and stays. */
    CHECK_OK(stitch_program_compile(back, &o, NULL, &err));
    CHECK_INT(back->compiled_count, 2);
    CHECK_INT(stitch__program_forget_brought(back), 1);
    CHECK_INT(back->compiled_count, 1);
    CHECK(stitch__program_compiled(back, "sm_80", true));
    CHECK_INT(stitch__program_forget_brought(back), 0);
    stitch_program_free(back);
    stitch_free(data);
    stitch_program_free(p);
    stitch_context_free(ctx);
}

/* ---- damaged and hostile files ---- */

/* Follows "images/0/code/data" through a document; `last` gets the final key. */
static json_t *follow(json_t *root, const char *path, char *last)
{
    char copy[128], *save, *part;
    snprintf(copy, sizeof(copy), "%s", path);
    part = strtok_r(copy, "/", &save);
    for (char *next; (next = strtok_r(NULL, "/", &save)); part = next)
        root = json_is_array(root) ? json_array_get(root, (size_t)atoi(part)) : json_object_get(root, part);
    strcpy(last, part);
    return root;
}

TEST(edited_files)
{
    static const struct {
        const char *path, *value; /* NULL: removed */
        int code;
        const char *part;
    } cases[] = {
        {"stitch_program_file", "2", STITCH_E_UNSUPPORTED,
         "the program file has version 2, this library reads version 1"},
        {"stitch_program_file", NULL, STITCH_E_FORMAT, "'stitch_program_file' is missing"},
        {"extra", "1", STITCH_E_FORMAT, "unknown key 'extra'"},
        {"hash", "\"00\"", STITCH_E_FORMAT, "do not have the stated hash"},
        {"hash", NULL, STITCH_E_FORMAT, "'hash' is missing"},
        {"source", "\"__global__ void twice() {}\"", STITCH_E_FORMAT, "do not have the stated hash"},
        {"source", "7", STITCH_E_FORMAT, "source: expected a string, found an integer"},
        {"plan", NULL, STITCH_E_FORMAT, "plan: expected an object, found nothing"},
        {"plan/run", "[]", STITCH_E_FORMAT, "do not have the stated hash"},
        {"plan/run/0/grid", "[2]", STITCH_E_FORMAT, "do not have the stated hash"},
        {"plan/run/0/gird", "[2]", STITCH_E_FORMAT, "run[0]: unknown key 'gird'; did you mean 'grid'?"},
        {"interface", "[]", STITCH_E_FORMAT, "interface: expected an object, found a list"},
        {"interface/dims/B", "0", STITCH_E_FORMAT,
         "interface.dims.B: a dim has a plain name and an integer of at least 1"},
        {"interface/dims/x", "3", STITCH_E_FORMAT, "interface.tensors[0]: there is already a dim or tensor named 'x'"},
        {"interface/dims", "7", STITCH_E_FORMAT, "interface.dims: expected an object"},
        {"interface/tensors", "{}", STITCH_E_FORMAT, "interface.tensors: expected a list"},
        {"interface/tensors/0", "[]", STITCH_E_FORMAT, "interface.tensors[0]: expected an object"},
        {"interface/tensors/0/role", "\"sink\"", STITCH_E_FORMAT, "role 'sink' is not known"},
        {"interface/tensors/0/dtype", "\"f99\"", STITCH_E_FORMAT, "dtype 'f99' is not known"},
        {"interface/tensors/0/shape", "[\"B +\"]", STITCH_E_FORMAT,
         "interface.tensors[0]: tensor x: shape[0]: \"B +\", column 4"},
        {"interface/tensors/0/shape", "[\"B*0\"]", STITCH_E_FORMAT, "shape[0] is 0"},
        {"interface/tensors/0/shape", "[1,2]", STITCH_E_FORMAT, "shape[0] must be a string"},
        {"interface/tensors/0/shape", "[\"B\"]", STITCH_E_VALIDATE, "run[0]" /* never: see below */},
        {"interface/tensors/3/name", "\"z\"", STITCH_E_VALIDATE, "run[1].gemm.c: there is no tensor or buffer 'y'"},
        {"interface/tensors/1/shape", "[\"C\"]", STITCH_E_VALIDATE,
         "run[1].gemm.b: reaches 4096 elements from element 0 on, but w has 64"},
        {"images", "7", STITCH_E_FORMAT, "images: expected a list of at most 64 images, found an integer"},
        {"images/0", "[]", STITCH_E_FORMAT, "images[0]: expected an object"},
        {"images/0/code", NULL, STITCH_E_FORMAT, "images[0].code: expected an object, found nothing"},
        {"images/0/code/data", "\"!!!!\"", STITCH_E_FORMAT, "images[0].code: 'data' is not base64"},
        {"images/0/code/data", "\"AAAA\"", STITCH_E_FORMAT, "images[0].code: the code does not have the stated hash"},
        {"images/0/code/data", NULL, STITCH_E_FORMAT, "images[0].code: 'data' is missing"},
        {"images/0/code/sha256", "\"\"", STITCH_E_FORMAT, "images[0].code: the code does not have the stated hash"},
        {"images/0/code/meta", "3", STITCH_E_FORMAT, "images[0].code: 'meta' must be an object"},
        {"images/0/code/meta", "{}", STITCH_E_FORMAT, "images[0].code: "},
        {"images/0/code/meta/arch", "\"sm_0\"", STITCH_E_FORMAT, "images[0].code: "},
        {"images/0/code/meta/arch", "\"x86\"", STITCH_E_FORMAT, "images[0].code: "},
        {"images/0/code/meta/kernels", "[]", STITCH_E_VALIDATE, "run[0].kernel: the compiled code has no kernel twice"},
        {"images/0/code/meta/kernels/0/symbol", "\"other\"", STITCH_E_FORMAT, "images[0].code: "},
        {"images/0/helpers/data", "\"AAAA\"", STITCH_E_FORMAT,
         "images[0].helpers: the code does not have the stated hash"},
        {"images/0/helpers/meta/arch", "\"sm_80\"", STITCH_E_FORMAT,
         "images[0]: code and helpers are for different architectures"},
    };
    stitch_context *ctx = new_context(NULL);
    stitch_error *err = NULL;
    stitch_program *p = new_program(ctx, "sm_90a"), *back;
    void *data;
    size_t size;
    json_error_t e;
    CHECK_OK(stitch_program_save_memory(p, &data, &size, &err));
    for (size_t k = 0; k < STITCH__COUNT(cases); k++) {
        char last[64];
        json_t *root = json_loadb(data, size, 0, &e),
               *value = cases[k].value ? json_loads(cases[k].value, JSON_DECODE_ANY, &e) : NULL;
        json_t *at = follow(root, cases[k].path, last);
        CHECK(root && at && (value || !cases[k].value));
        if (json_is_array(at))
            json_array_set_new(at, (size_t)atoi(last), value);
        else if (value)
            json_object_set_new(at, last, value);
        else
            json_object_del(at, last);
        char *text = stitch__json_dump(ctx, root, 0);
        int rc = stitch_program_load_memory(ctx, text, strlen(text), NULL, &back, &err);
        bool shape = strcmp(cases[k].part, "run[0]") == 0; /* x as one row: the kernel's pointers do not mind */
        if (shape ? rc != STITCH_OK
                  : (rc != cases[k].code || !strstr(stitch_error_message(err), cases[k].part) || back))
            FAIL("%s: got %s \"%s\", expected \"%s\"", cases[k].path, stitch_status_name(rc), stitch_error_message(err),
                 cases[k].part);
        stitch_program_free(back);
        stitch_error_free(err);
        err = NULL;
        stitch_free(text);
        json_decref(root);
    }
    stitch_program_limits l = STITCH_PROGRAM_LIMITS_INIT;
    l.file_bytes = size - 1;
    CHECK_ERR(stitch_program_load_memory(ctx, data, size, &l, &back, &err), STITCH_E_LIMIT, "the limit is");
    l.file_bytes = 0;
    l.json_bytes = 100;
    CHECK_ERR(stitch_program_load_memory(ctx, data, size, &l, &back, &err), STITCH_E_LIMIT, "plan: ");
    l.json_bytes = 0;
    l.source_bytes = 100;
    CHECK_ERR(stitch_program_load_memory(ctx, data, size, &l, &back, &err), STITCH_E_LIMIT, "the source has");
    l.source_bytes = 0;
    l.steps = 1;
    CHECK_ERR(stitch_program_load_memory(ctx, data, size, &l, &back, &err), STITCH_E_LIMIT, "more than 1 steps");
    stitch_free(data);
    stitch_program_free(p);
    stitch_context_free(ctx);
}

/* Cut off or with a changed byte, a file is refused, or means the same: never something else. */
TEST(damaged_files)
{
    stitch_context *ctx = new_context(NULL);
    stitch_error *err = NULL;
    stitch_program *p = new_program(ctx, NULL), *back;
    void *data;
    size_t size;
    uint64_t seed = 12345;
    CHECK_OK(stitch_program_save_memory(p, &data, &size, &err));
    char *copy = stitch__alloc(NULL, size);
    for (size_t n = 0; n < size; n += 1 + n / 50) {
        if (stitch_program_load_memory(ctx, data, n, NULL, &back, NULL) == STITCH_OK)
            FAIL("the first %zu bytes of %zu load", n, size);
    }
    for (int k = 0; k < 3000; k++) {
        memcpy(copy, data, size);
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        copy[(seed >> 33) % size] = (char)(seed >> 20);
        if (stitch_program_load_memory(ctx, copy, size, NULL, &back, NULL) == STITCH_OK) {
            CHECK_STR(stitch_program_hash(back), stitch_program_hash(p));
            stitch_program_free(back);
        }
    }
    stitch_free(copy);
    stitch_free(data);
    stitch_program_free(p);
    stitch_context_free(ctx);
}

/* ---- failed allocations ---- */

typedef struct meter {
    long left, live;
} meter;

static void *meter_alloc(size_t size, void *userdata)
{
    meter *m = userdata;
    if (m->left-- <= 0)
        return NULL;
    void *ptr = malloc(size);
    m->live += ptr != NULL;
    return ptr;
}

static void *meter_realloc(void *ptr, size_t size, void *userdata)
{
    meter *m = userdata;
    return m->left-- <= 0 ? NULL : realloc(ptr, size);
}

static void meter_free(void *ptr, void *userdata)
{
    ((meter *)userdata)->live--;
    free(ptr);
}

/* Parse, validate, save and load with `left` allocations. */
static int everything(stitch_context *ctx, const char *plan, stitch_interface *i, stitch_error **err)
{
    stitch_program *p = NULL, *back = NULL;
    void *data = NULL;
    size_t size;
    int rc = stitch_program_parse(ctx, source, plan, NULL, &p, err);
    if (rc == STITCH_OK)
        rc = stitch_program_validate(p, i, NULL, err);
    if (rc == STITCH_OK)
        rc = stitch_program_save_memory(p, &data, &size, err);
    if (rc == STITCH_OK)
        rc = stitch_program_load_memory(ctx, data, size, NULL, &back, err);
    stitch_free(data);
    stitch_program_free(back);
    stitch_program_free(p);
    return rc;
}

TEST(every_failed_allocation)
{
    static const char *const plans[] = {
        PLAN,
        "{\"stitch\": 1, \"buffers\": {\"h\": {\"dtype\": \"f64\", \"shape\": [\"B\", \"C\"]}}, \"run\": [{\"fill\": "
        "{\"buffer\": \"h\", \"value\": 0}, \"id\": \"a\"}, "
        "{\"repeat\": {\"var\": \"t\", \"count\": 2, \"steps\": [{\"copy\": {\"from\": \"h\", \"to\": \"y + t\", "
        "\"count\": 1}}]}, \"after\": [\"a\"]}, "
        "{\"op\": {\"name\": \"f\", \"args\": [\"x\", {\"f32\": 1.5}], \"attrs\": {\"a\": [1]}}, \"after\": []}, "
        "{\"kernel\": \"k\", \"grid\": [1], \"block\": [1], \"args\": [{\"tensor_map\": {\"buffer\": \"w\", \"shape\": "
        "[\"C\", \"C\"], \"box\": [8, 8]}}]}]}",
        "{\"stitch\": 1, \"run\": [{\"kernel\": \"k\", \"grid\": [0], \"block\": [1], \"args\": [\"yy\", {\"i32\": "
        "\"Q\"}]}]}", /* findings */
    };
    static const int last[] = {STITCH_OK, STITCH_OK, STITCH_E_VALIDATE};
    for (size_t k = 0; k < STITCH__COUNT(plans); k++) {
        meter m = {1000000, 0};
        stitch_allocator a = {sizeof(a), meter_alloc, meter_realloc, meter_free, &m};
        stitch_context *ctx = new_context(&a);
        stitch_interface *i = new_interface(ctx, IFACE);
        long before = m.live;
        for (long n = 0;; n++) {
            stitch_error *err = NULL;
            m.left = n;
            int rc = everything(ctx, plans[k], i, &err);
            long left = m.left;
            if (rc != STITCH_OK && rc != STITCH_E_NOMEM && rc != last[k])
                FAIL("plan %zu, %ld allocations: %s %s", k, n, stitch_status_name(rc), stitch_error_message(err));
            if (rc)
                CHECK(stitch_error_message(err)[0]);
            stitch_error_free(err);
            if (m.live != before)
                FAIL("plan %zu, %ld allocations: %ld blocks are left", k, n, m.live - before);
            if (left > 0) {
                CHECK_INT(rc, last[k]);
                break;
            }
            CHECK(n < 100000);
        }
        m.left = 1000000;
        stitch_interface_free(i);
        stitch_context_free(ctx);
        CHECK_INT(m.live, 0);
    }
}

TEST_MAIN(RUN(round_trip), RUN(without_interface), RUN(images), RUN(edited_files), RUN(damaged_files),
          RUN(every_failed_allocation))

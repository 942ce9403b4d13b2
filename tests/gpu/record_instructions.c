/* SPDX-License-Identifier: MIT
 *
 * Records what a GPU answers, for the simulator's tests and tables:
 *
 *     record_instructions OUT_FOLDER [samples] [kept]
 *
 * OUT_FOLDER/instructions.bin: for every scalar instruction of tests/sim/instructions.c a hash of its results on
 * `samples` inputs (default 4096) and the first `kept` of them (64). test_sim_instructions.c reads it.
 * OUT_FOLDER/sfu.bin: results of the special functions at chosen inputs, from which lib/sim/gen_sfu_tables.py solves
 * for the hardware's coefficients. OUT_FOLDER/half.bin: ex2 and tanh of all 65,536 inputs of f16 and bf16. The driver
 * is libcuda.so.1, or what STITCH_CUDA_DRIVER names (libstitch-sim.so works too). In all below 2 MB.
 */
#include "instructions.h"
#include "runner.h"

enum { GROUP = 50, BATCH = 65536 };

static int die(const char *what, const char *detail)
{
    fprintf(stderr, "record_instructions: %s: %s\n", what, detail);
    return 1;
}

static FILE *create(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f)
        perror(path);
    return f;
}

/* ---- all instructions ------------------------------------------------------------------------------------------ */

static int record_group(runner *gpu, FILE *f, const instr *items, size_t first, size_t count, unsigned samples,
                        unsigned kept_usually, uint64_t *in, uint64_t *out)
{
    char *ptx = instr_kernels(items + first, count, 90);
    CUmodule module;
    if (!ptx)
        return die("PTX", "out of memory");
    if (!runner_load(gpu, ptx, &module)) {
        free(ptx);
        return die(items[first].name, gpu->error);
    }
    free(ptx);
    for (size_t i = 0; i < count; i++) {
        const instr *one = &items[first + i];
        char kernel[32];
        snprintf(kernel, sizeof(kernel), "k%zu", i);
        for (unsigned s = 0; s < samples; s++)
            for (unsigned k = 0; k < 3; k++)
                in[s * 3 + k] = instr_input(one, first + i, s, k);
        bool ran = runner_run(gpu, module, kernel, (samples + 127) / 128, 128, in, (size_t)samples * 24, out,
                              (size_t)samples * 8, samples);
        if (!ran && strstr(gpu->error, "NOT_SUPPORTED")) { /* the simulator refuses some */
            printf("not recorded: %s\n", one->name);
            continue;
        }
        if (!ran)
            return die(one->name, gpu->error);
        unsigned bytes = instr_width(one->dst) / 8, kept = kept_usually;
        uint64_t hash = 0, mask = bytes == 8 ? ~0ull : (1ull << (8 * bytes)) - 1;
        for (unsigned s = 0; s < samples; s++) {
            hash = (hash ^ (out[s] & mask)) * 0x9e3779b97f4a7c15u;
            hash ^= hash >> 29;
        }
        fprintf(f, "%s|%u|%u\n", one->name, kept, bytes);
        fwrite(&hash, 8, 1, f);
        for (unsigned s = 0; s < kept; s++)
            fwrite(&out[s], bytes, 1, f); /* little-endian */
    }
    gpu->Unload(module);
    return 0;
}

static int record_instructions(runner *gpu, const char *folder, unsigned samples, unsigned kept)
{
    size_t count = 0;
    instr *items = instr_list(&count);
    uint64_t *in = malloc((size_t)samples * 24), *out = calloc(samples, 8);
    FILE *f = create(folder, "instructions.bin");
    int rc = 1;
    if (!items || !in || !out || !f)
        goto out;
    fprintf(f, "STITCH-INSTRUCTIONS 1\n%s, driver %d\n%zu %u\n", gpu->name, gpu->driver_version, count, samples);
    for (size_t first = 0; first < count; first += GROUP) {
        size_t n = count - first < GROUP ? count - first : GROUP;
        if ((rc = record_group(gpu, f, items, first, n, samples, kept < samples ? kept : samples, in, out)))
            goto out;
    }
    printf("%zu instructions recorded\n", count);
out:
    if (f && fclose(f))
        rc = die("instructions.bin", "write failed");
    free(items);
    free(in);
    free(out);
    return rc;
}

/* ---- special functions at chosen inputs ------------------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint32_t float_bits(float f)
{
    uint32_t x;
    memcpy(&x, &f, 4);
    return x;
}

/* rcp, lg2: [1, 2); rsqrt, sqrt: [1, 4); ex2: multiples of 2^-23 in [0, 1), which the unit reads exactly; sin: [0, pi /
 * 2); tanh: all binades from 2^-13 to 2^4. */
static uint32_t sfu_input(int function, unsigned i, uint64_t *state)
{
    uint32_t m = (uint32_t)next(state) & 0x7fffff;
    switch (function) {
    case 0:
    case 4: return 0x3f800000 | m;
    case 1:
    case 5: return (i & 1 ? 0x3f800000 : 0x40000000) | m;
    case 3: return float_bits((float)m * 0x1p-23f);
    case 2: return float_bits((float)((double)m * (1.5707963267948966 / 8388608)));
    default: return (114 + i % 17) << 23 | m;
    }
}

static const struct {
    const char *name, *ptx;
    unsigned count;
} sfu[7] = {
    {"rcp", "rcp.approx.ftz.f32", 16384}, {"rsqrt", "rsqrt.approx.ftz.f32", 16384},
    {"sin", "sin.approx.ftz.f32", 8192},  {"ex2", "ex2.approx.ftz.f32", 8192},
    {"lg2", "lg2.approx.ftz.f32", 8192},  {"sqrt", "sqrt.approx.ftz.f32", 16384},
    {"tanh", "tanh.approx.f32", 32768},
};

/* kernel `f` applies one instruction to words of `width` bits, 64-bit slots. */
static bool apply(runner *gpu, const char *instruction, unsigned width, const uint64_t *in, uint64_t *out, unsigned n)
{
    instr one;
    memset(&one, 0, sizeof(one));
    snprintf(one.name, sizeof(one.name), "%s", instruction);
    snprintf(one.code, sizeof(one.code), "%s %%d, %%a;", instruction);
    one.inputs = 1;
    one.dst = one.src[0] = width == 16 ? STITCH__U16 : width == 32 ? STITCH__U32 : STITCH__U64;
    char *ptx = instr_kernels(&one, 1, 90);
    CUmodule module;
    bool ok = ptx && runner_load(gpu, ptx, &module);
    free(ptx);
    if (!ok)
        return false;
    ok = runner_run(gpu, module, "k0", (n + 127) / 128, 128, in, (size_t)n * 24, out, (size_t)n * 8, n);
    gpu->Unload(module);
    return ok;
}

static int record_sfu(runner *gpu, const char *folder, uint64_t *in, uint64_t *out)
{
    FILE *f = create(folder, "sfu.bin");
    int rc = 1;
    if (!f)
        return 1;
    fprintf(f, "SFU1 %s, driver %d\n", gpu->name, gpu->driver_version);
    for (int k = 0; k < 7; k++) {
        uint64_t state = (uint64_t)k;
        for (unsigned i = 0; i < sfu[k].count; i++)
            in[3 * i] = sfu_input(k, i, &state);
        if (!apply(gpu, sfu[k].ptx, 32, in, out, sfu[k].count)) {
            rc = die(sfu[k].ptx, gpu->error);
            goto out;
        }
        fprintf(f, "%s %u\n", sfu[k].name, sfu[k].count);
        for (unsigned i = 0; i < sfu[k].count; i++) {
            uint32_t pair[2] = {(uint32_t)in[3 * i], (uint32_t)out[i]};
            fwrite(pair, 4, 2, f);
        }
    }
    rc = 0;
out:
    if (fclose(f))
        rc = die("sfu.bin", "write failed");
    return rc;
}

static int record_half(runner *gpu, const char *folder, uint64_t *in, uint64_t *out)
{
    static const char *const names[4] = {"ex2.approx.f16", "tanh.approx.f16", "ex2.approx.ftz.bf16",
                                         "tanh.approx.bf16"};
    FILE *f = create(folder, "half.bin");
    int rc = 1;
    if (!f)
        return 1;
    for (int k = 0; k < 4; k++) {
        for (uint32_t i = 0; i < 65536; i++)
            in[3 * i] = i;
        if (!apply(gpu, names[k], 16, in, out, 65536)) {
            rc = die(names[k], gpu->error);
            goto out;
        }
        for (uint32_t i = 0; i < 65536; i++)
            fwrite(&out[i], 2, 1, f);
    }
    rc = 0;
out:
    if (fclose(f))
        rc = die("half.bin", "write failed");
    return rc;
}

int main(int argc, char **argv)
{
    static runner gpu;
    if (argc < 2)
        return die("usage", "record_instructions OUT_FOLDER [samples] [kept]");
    unsigned samples = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 4096,
             kept = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : 64;
    void *driver = runner_dlopen();
    if (!driver) {
        printf("SKIP: no CUDA driver here (%s)\n", dlerror());
        return 77;
    }
    if (!samples || !runner_open(&gpu, runner_dlsym, driver))
        return die("driver", gpu.error);
    printf("%s, driver %d, sm_%d\n", gpu.name, gpu.driver_version, gpu.arch);
    uint64_t *in = calloc((size_t)BATCH * 3, 8), *out = calloc(BATCH, 8);
    int rc = !in || !out;
    if (!rc)
        rc = record_sfu(&gpu, argv[1], in, out);
    if (!rc)
        rc = record_half(&gpu, argv[1], in, out);
    if (!rc)
        rc = record_instructions(&gpu, argv[1], samples, kept);
    free(in);
    free(out);
    runner_close(&gpu);
    return rc;
}

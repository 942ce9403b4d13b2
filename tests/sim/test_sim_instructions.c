/* SPDX-License-Identifier: MIT
 *
 * Every scalar instruction, type and rounding as a PTX kernel through the simulator's driver, against the reference in
 * C; those that C lacks against the answers of an H200 (tests/sim/data/h200_instructions.bin, made by
 * tests/gpu/record_instructions.c).
 */
#include "check.h"
#include "instructions.h"
#include "runner.h"

void *stitch__sim_get_proc(const char *symbol, void *userdata);

enum { SAMPLES = 512, GROUP = 50 };

static runner sim;
static bool opened;

static void open_simulator(void)
{
    if (!opened && !runner_open(&sim, stitch__sim_get_proc, NULL))
        FAIL("%s", sim.error);
    opened = true;
}

static uint64_t width_mask(unsigned type)
{
    return instr_width(type) == 64 ? ~0ull : (1ull << instr_width(type)) - 1;
}

/* Runs instructions [first, first + count) of the list, `samples` each; out[count][samples]. The simulator may refuse
 * one. */
static void run_group(const instr *items, size_t first, size_t count, unsigned samples, uint64_t *out, bool *refused)
{
    char *ptx = instr_kernels(items + first, count, 90);
    CUmodule module;
    uint64_t *in = malloc(samples * 3 * sizeof(*in));
    CHECK(ptx && in);
    if (!runner_load(&sim, ptx, &module))
        FAIL("instructions %zu .. %zu (%s ...): %s", first, first + count - 1, items[first].name, sim.error);
    for (size_t i = 0; i < count; i++) {
        char kernel[32];
        snprintf(kernel, sizeof(kernel), "k%zu", i);
        for (unsigned s = 0; s < samples; s++)
            for (unsigned k = 0; k < 3; k++)
                in[s * 3 + k] = instr_input(&items[first + i], first + i, s, k);
        bool ran = runner_run(&sim, module, kernel, (samples + 127) / 128, 128, in, samples * 24, out + i * samples,
                              samples * 8, samples);
        refused[i] = !ran && strstr(sim.error, "NOT_SUPPORTED");
        if (!ran && !refused[i])
            FAIL("%s: %s", items[first + i].name, sim.error);
    }
    sim.Unload(module);
    free(in);
    free(ptx);
}

TEST(every_instruction_matches_its_reference)
{
    size_t count = 0, compared = 0, left = 0, refusals = 0, wrong = 0;
    bool refused[GROUP];
    open_simulator();
    instr *items = instr_list(&count);
    uint64_t *out = calloc((size_t)GROUP * SAMPLES, sizeof(*out));
    CHECK(items && out);
    for (size_t first = 0; first < count; first += GROUP) {
        size_t n = count - first < GROUP ? count - first : GROUP;
        run_group(items, first, n, SAMPLES, out, refused);
        for (size_t i = 0; i < n; i++) {
            const instr *in = &items[first + i];
            if (refused[i]) {
                printf("# refused: %s\n", in->name);
                refusals++;
                continue;
            }
            if (in->flags & INSTR_APPROXIMATE) {
                left++;
                continue;
            }
            for (unsigned s = 0; s < SAMPLES; s++) {
                uint64_t x[3], want, got = out[i * SAMPLES + s] & width_mask(in->dst);
                for (unsigned k = 0; k < 3; k++)
                    x[k] = instr_input(in, first + i, s, k);
                if (!in->ref(in, x, &want)) {
                    left++;
                    break;
                }
                want &= width_mask(in->dst);
                if (got != want) {
                    if (wrong++ < 40)
                        printf("# %s of %" PRIx64 ", %" PRIx64 ", %" PRIx64 ": got %" PRIx64 ", expected %" PRIx64 "\n",
                               in->name, x[0], x[1], x[2], got, want);
                    break;
                }
            }
            compared++;
        }
    }
    printf("# %zu instructions: %zu compared with the reference, %zu wrong, %zu refused, %zu need recordings\n", count,
           compared, wrong, refusals, left);
    CHECK_INT(wrong, 0);
    CHECK(compared > 1300);
    free(items);
    free(out);
}

/* The recording: text header "STITCH-INSTRUCTIONS 1\n<device>\n<count> <samples>\n", then for each instruction its name
 * and
 * "\n", uint64 hash of all results, and the first `kept` results, where a line "<name> <kept> <bytes of a result>" says
 * how many. */
TEST(recorded_instructions_give_the_hardware_bits)
{
    char line[256], name[128], path[4096];
    unsigned samples;
    size_t count = 0, total;
    snprintf(path, sizeof(path), "%s/h200_instructions.bin", STITCH_TEST_DATA);
    FILE *f = fopen(path, "rb");
    if (!f)
        SKIP("no recording: run record_instructions on a GPU and put h200_instructions.bin into tests/sim/data");
    open_simulator();
    instr *items = instr_list(&count);
    CHECK(items);
    CHECK(fgets(line, sizeof(line), f) && strcmp(line, "STITCH-INSTRUCTIONS 1\n") == 0);
    CHECK(fgets(line, sizeof(line), f) != NULL);
    printf("# recorded on %s", line);
    CHECK(fgets(line, sizeof(line), f) && sscanf(line, "%zu %u", &total, &samples) == 2);
    uint64_t *out = calloc(samples, sizeof(*out));
    CHECK(out);
    int different = 0, same = 0;
    while (fgets(line, sizeof(line), f)) {
        unsigned kept, bytes;
        uint64_t hash, want_hash = 0;
        CHECK(sscanf(line, "%127[^|]|%u|%u", name, &kept, &bytes) == 3);
        CHECK(kept <= samples && bytes <= 8);
        uint8_t *raw = calloc(kept + 1, bytes);
        CHECK(raw && fread(&hash, 8, 1, f) == 1 && fread(raw, bytes, kept, f) == kept);
        size_t at = 0;
        while (at < count && strcmp(items[at].name, name) != 0)
            at++;
        if (at < count) {
            bool inexact = false;
            if (items[at].flags & INSTR_APPROXIMATE)
                inexact = !stitch__arith_sfu_accuracy((stitch__fop)items[at].u.op.op).exact;
            bool refused;
            run_group(items, at, 1, samples, out, &refused);
            for (unsigned s = 0; s < samples; s++) {
                uint64_t got = out[s] & width_mask(items[at].dst), want = got;
                want_hash = (want_hash ^ got) * 0x9e3779b97f4a7c15u;
                want_hash ^= want_hash >> 29;
                if (s < kept) {
                    want = 0;
                    memcpy(&want, raw + (size_t)s * bytes, bytes);
                }
                if (got != want && !inexact) {
                    if (different++ < 20)
                        printf("# %s of %" PRIx64 ", %" PRIx64 ", %" PRIx64 ": got %" PRIx64 ", the GPU gave %" PRIx64
                               "\n",
                               name, instr_input(&items[at], at, s, 0), instr_input(&items[at], at, s, 1),
                               instr_input(&items[at], at, s, 2), got, want);
                    break;
                }
            }
            if (want_hash == hash)
                same++;
            else if (!inexact)
                different++;
        }
        free(raw);
    }
    printf("# %d of %zu instructions give the recorded results\n", same, total);
    CHECK_INT(different, 0);
    free(out);
    free(items);
    fclose(f);
}

TEST_MAIN(RUN(every_instruction_matches_its_reference), RUN(recorded_instructions_give_the_hardware_bits))

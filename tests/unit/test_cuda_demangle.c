/* SPDX-License-Identifier: MIT
 *
 * Names of kernels as NVRTC mangles them, and parameter types from them.
 */
#include "check.h"
#include "cuda/internal.h"

typedef struct row {
    const char *symbol, *name, *types; /* types: "a, b"; NULL: not understood */
} row;

static void join_types(const stitch__demangled *d, char *out, size_t size)
{
    out[0] = '\0';
    for (size_t i = 0; i < d->param_count; i++)
        snprintf(out + strlen(out), size - strlen(out), "%s%s", i ? ", " : "", d->params[i].type);
}

static void check_rows(const row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        stitch__arena arena = {0};
        stitch__demangled d;
        char types[2000];
        CHECK_INT(stitch__demangle(&arena, rows[i].symbol, &d), STITCH_OK);
        CHECK_STR(d.name, rows[i].name);
        if (d.has_params != (rows[i].types != NULL))
            FAIL("%s: has_params is %d", rows[i].symbol, d.has_params);
        join_types(&d, types, sizeof(types));
        CHECK_STR(types, rows[i].types ? rows[i].types : "");
        stitch__arena_free(&arena);
    }
}

TEST(plain_kernels)
{
    static const row rows[] = {
        {"ec", "ec", NULL},
        {"_Z1kv", "k", ""},
        {"_Z1kPf", "k", "float *"},
        {"_Z1kPKfPfi", "k", "const float *, float *, int"},
        {"_ZL2stP6float26float4PK7__half2", "st", "float2 *, float4, const __half2 *"},
        {"_Z2stP6float26float4PK7__half2", "st", "float2 *, float4, const __half2 *"},
        {"_Z1kPKvPjmyb", "k", "const void *, unsigned int *, unsigned long, unsigned long long, bool"},
        {"_Z1kPVfPPKfPKPKf", "k", "volatile float *, const float **, const float *const *"},
        {"_Z1kPfS_S_PKfS1_", "k", "float *, float *, float *, const float *, const float *"},
        {"_ZN1k5plainEPK13__nv_bfloat16P13__nv_fp8_e4m314CUtensorMap_stymb", "k::plain",
         "const __nv_bfloat16 *, __nv_fp8_e4m3 *, CUtensorMap, unsigned long long, unsigned long, bool"},
        {"_ZN1n43_GLOBAL__N__00000000_10_program_cu_a8c4c5404anonEPf", "n::(anonymous namespace)::anon", "float *"},
        {"_Z1kP1SS0_PKS_S_", "k", "S *, S *, const S *, S"},
        {"_Z1kSt4pairIifE", "k", "std::pair<int, float>"},
    };
    check_rows(rows, STITCH__COUNT(rows));
}

TEST(templates)
{
    static const row rows[] = {
        {"_Z2lnILi32EfEvPKT0_PS0_i", "ln<32, float>", "const float *, float *, int"},
        {"_Z2lnILi256E6__halfEvPKT0_PS1_i", "ln<256, __half>", "const __half *, __half *, int"},
        {"_Z1gIyEvPKT_PPS0_PKS2_PVfltsach", "g<unsigned long long>",
         "const unsigned long long *, unsigned long long **, const unsigned long long *const *, volatile float *, "
         "long, unsigned short, "
         "short, signed char, char, unsigned char"},
        {"_ZN1n1hENS_1SENS_1QIiS0_EEPS0_PKNS1_IS0_S0_EENS_1EENS_2ECEPS2_", "n::h",
         "n::S, n::Q<int, n::S>, n::S *, const n::Q<n::S, n::S> *, n::E, n::EC, n::Q<int, n::S> *"},
        {"_ZN1n3varIJiPfPKfEEEvDpT_", "n::var<int, float *, const float *>", "int, float *, const float *"},
        {"_ZN1n2enILNS_1EE0ELb1EdEEvPT1_", "n::en<(n::E)0, true, double>", "double *"},
        {"_Z1kILin3EEvPf", "k<-3>", "float *"},
        {"_Z1kIJEEvDpT_", "k<>", ""},
        {"_Z1kILi1EEvi", "k<1>", "int"},
    };
    check_rows(rows, STITCH__COUNT(rows));
}

TEST(what_is_not_understood_is_not_guessed)
{
    static const row rows[] = {
        {"_ZN1n2laILi3EEEvNS_3arrIXT_EEENS1_IXplT_Li1EEEE", "n::la<3>", NULL}, /* an expression */
        {"_Z2fpIXadL_Z2sqfEEEvPf", "_Z2fpIXadL_Z2sqfEEEvPf", NULL},
        {"_Z1kDTcl1fEE", "k", NULL},
        {"_Z1kIJifEEvDpPT_", "k<int, float>", NULL}, /* a pattern over a pack */
        {"_Z1kM1Sf", "k", NULL},
        {"_Z1k", "k", NULL},
        {"_Z", "_Z", NULL},
        {"_ZN", "_ZN", NULL},
        {"_Z5ab", "_Z5ab", NULL},
        {"_Z1kS_", "k", NULL},
        {"_Z1kT_", "k", NULL},
        {"_Z1kPfvi", "k", NULL},
        {"_Z99999999999999999999k", "_Z99999999999999999999k", NULL},
        {"", "", NULL},
    };
    check_rows(rows, STITCH__COUNT(rows));
}

TEST(kinds_and_dtypes)
{
    static const struct {
        const char *code;
        int kind, dtype, is_const;
        uint64_t size;
    } rows[] = {
        {"f", STITCH_PARAM_SCALAR, STITCH_DTYPE_F32, 0, 4},
        {"d", STITCH_PARAM_SCALAR, STITCH_DTYPE_F64, 0, 8},
        {"j", STITCH_PARAM_SCALAR, STITCH_DTYPE_I32, 0, 4},
        {"m", STITCH_PARAM_SCALAR, STITCH_DTYPE_I64, 0, 8},
        {"b", STITCH_PARAM_SCALAR, STITCH_DTYPE_BOOL, 0, 1},
        {"6__half", STITCH_PARAM_SCALAR, STITCH_DTYPE_F16, 0, 2},
        {"PKf", STITCH_PARAM_POINTER, STITCH_DTYPE_F32, 1, 8},
        {"P6__half", STITCH_PARAM_POINTER, STITCH_DTYPE_F16, 0, 8},
        {"PK13__nv_bfloat16", STITCH_PARAM_POINTER, STITCH_DTYPE_BF16, 1, 8},
        {"P13__nv_fp8_e5m2", STITCH_PARAM_POINTER, STITCH_DTYPE_F8E5M2, 0, 8},
        {"PK6float4", STITCH_PARAM_POINTER, STITCH_DTYPE_NONE, 1, 8}, /* 16 bytes at a time of anything */
        {"PPf", STITCH_PARAM_POINTER, STITCH_DTYPE_NONE, 0, 8},
        {"PKPf", STITCH_PARAM_POINTER, STITCH_DTYPE_NONE, 1, 8},
        {"Pv", STITCH_PARAM_POINTER, STITCH_DTYPE_NONE, 0, 8},
        {"1S", STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0, 0},
        {"1QIiE", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 0, 0},
        {"6float4", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 0, 16},
        {"14CUtensorMap_st", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 0, 128},
        {"PFviE", STITCH_PARAM_POINTER, STITCH_DTYPE_NONE, 0, 8},
    };
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch__arena arena = {0};
        stitch__demangled d;
        char symbol[64];
        snprintf(symbol, sizeof(symbol), "_Z1k%s", rows[i].code);
        CHECK_INT(stitch__demangle(&arena, symbol, &d), STITCH_OK);
        if (!d.has_params || d.param_count != 1)
            FAIL("%s is not understood", symbol);
        const stitch_param_info *p = &d.params[0];
        if (p->kind != rows[i].kind || p->dtype != rows[i].dtype || p->is_const != rows[i].is_const ||
            p->size != rows[i].size)
            FAIL("%s: kind %d, dtype %d, const %d, size %d", symbol, p->kind, p->dtype, p->is_const, (int)p->size);
        CHECK_INT(p->is_tensor_map, rows[i].size == 128);
        stitch__arena_free(&arena);
    }
}

/* Every prefix and every change of one byte of some symbols: no crash, no endless loop, no huge text. */
TEST(hostile_symbols)
{
    static const char *const seeds[] = {"_ZN1n1hENS_1SENS_1QIiS0_EEPS0_PKNS1_IS0_S0_EENS_1EENS_2ECEPS2_",
                                        "_ZN1n3varIJiPfPKfEEEvDpT_", "_Z1gIyEvPKT_PPS0_RA3_iPFviEPKS2_PVfltsach",
                                        "_ZN1n2laILi3EEEvNS_3arrIXT_EEENS1_IXplT_Li1EEEE"};
    static const char alphabet[] = "_0123456789ZNESTIJLXDpPKVrRAFMvibfhd.";
    for (size_t s = 0; s < STITCH__COUNT(seeds); s++) {
        size_t len = strlen(seeds[s]);
        for (size_t at = 0; at <= len; at++) {
            for (size_t c = 0; c < sizeof(alphabet); c++) { /* the NUL too: every prefix */
                char text[256];
                stitch__arena arena = {0};
                stitch__demangled d;
                memcpy(text, seeds[s], len + 1);
                text[at] = alphabet[c];
                text[len + 1] = '\0';
                CHECK_INT(stitch__demangle(&arena, text, &d), STITCH_OK);
                CHECK(d.name != NULL && strlen(d.name) < 4096);
                stitch__arena_free(&arena);
            }
        }
    }
}

TEST(deep_and_growing_symbols)
{
    char deep[5000] = "_Z1k", doubling[4000] = "_Z1kP1QIffE";
    stitch__arena arena = {0};
    stitch__demangled d;
    memset(deep + 4, 'P', sizeof(deep) - 6);
    deep[sizeof(deep) - 2] = 'f';
    CHECK_INT(stitch__demangle(&arena, deep, &d), STITCH_OK);
    CHECK(!d.has_params);
    for (int i = 0; i < 60; i++) /* each names the one before it twice */
        snprintf(doubling + strlen(doubling), sizeof(doubling) - strlen(doubling), "S_IS%d_S%d_E", i + 1, i + 1);
    CHECK_INT(stitch__demangle(&arena, doubling, &d), STITCH_OK);
    for (size_t i = 0; i < d.param_count; i++)
        CHECK(strlen(d.params[i].type) <= 600);
    stitch__arena_free(&arena);
}

TEST_MAIN(RUN(plain_kernels), RUN(templates), RUN(what_is_not_understood_is_not_guessed), RUN(kinds_and_dtypes),
          RUN(hostile_symbols), RUN(deep_and_growing_symbols))

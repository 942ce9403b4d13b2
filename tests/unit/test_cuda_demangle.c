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
        {"_Z2fpIXadL_Z2sqfEEEvPf", "fp<&sq>", "float *"},
    };
    check_rows(rows, STITCH__COUNT(rows));
}

/* Names as PyTorch's and other libraries' kernels have them; what they mean is what c++filt says. */
TEST(local_names)
{
#define GELU                                                                                                           \
    "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase &, at::native::GeluType)::{lambda()#2}::operator()() "      \
    "const::{lambda()#2}::operator()() const::{lambda(float)#1}"
#define COPY                                                                                                           \
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::{lambda()#3}::operator()() "                       \
    "const::{lambda()#7}::operator()() const::{lambda(float)#1}"
    static const row rows[] = {
        {"_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_18GeluCUDAKernelImplERNS_18TensorIteratorBaseENS0_"
         "8GeluTypeEENKUlvE0_clEvENKUlvE0_clEvEUlfE_St5arrayIPcLm2EEEEviT0_T1_",
         "at::native::vectorized_elementwise_kernel<4, " GELU ", std::array<char *, 2>>",
         "int, " GELU ", std::array<char *, 2>"},
        {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
         "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char *, 3>>",
         "int, at::native::CUDAFunctor_add<float>, std::array<char *, 3>"},
        {"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZNS0_11sum_functorIfffEclERNS_"
         "14TensorIteratorEEUlffE_EEjfLi4EEEEEvT1_",
         "at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
         "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator &)::{lambda(float, float)#1}>, "
         "unsigned int, float, 4>>",
         "at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float, float, "
         "float>::operator()(at::TensorIterator &)::{lambda(float, float)#1}>, unsigned int, float, 4>"},
        {"_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct_copy_kernel_"
         "cudaERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_EEvS4_RKT_EUliE_EEviT1_",
         "at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<" COPY
         ">(at::TensorIteratorBase &, const " COPY " &)::{lambda(int)#1}>",
         "int, at::native::gpu_kernel_impl_nocast<" COPY ">(at::TensorIteratorBase &, const " COPY
         " &)::{lambda(int)#1}"},
        {"_Z3runI2TrIL1E1EEEvNT_6ParamsEPFffiERA4_i", "run<Tr<(E)1>>",
         "Tr<(E)1>::Params, float (*)(float, int), int (&) [4]"},
        {"_Z6kernelILi1EZNK12_GLOBAL__N_11A1mEvEUlfE_EviT0_",
         "kernel<1, (anonymous namespace)::A::m() const::{lambda(float)#1}>",
         "int, (anonymous namespace)::A::m() const::{lambda(float)#1}"},
        {"_Z6kernelILi2EZNK2OpclIdEEvT_EUldE_EviT0_",
         "kernel<2, Op::operator()<double>(double) const::{lambda(double)#1}>",
         "int, Op::operator()<double>(double) const::{lambda(double)#1}"},
        {"_Z6kernelILi3EZ7genericvEUlT_T0_E_EviS1_", "kernel<3, generic()::{lambda(auto:1, auto:2)#1}>",
         "int, generic()::{lambda(auto:1, auto:2)#1}"},
        {"_Z6kernelILi9EZ4mainEUlvE0_EviT0_", "kernel<9, main::{lambda()#2}>", "int, main::{lambda()#2}"},
        {"_ZZ7genericvENKUlT_T0_E_clIifEEDaS_S0_", "generic()::{lambda(auto:1, auto:2)#1}::operator()<int, float>",
         "int, float"},
        {"_ZN1AC2IRfEEOT_", "A::A<float &>", NULL}, /* constructors return nothing */
        {"_Z1kIXadL_Z1fIfET_S0_EEEvi", "k<&f<float>>", "int"},
        {"_Z1kIOfEvOT_", "k<float &&>", "float &&"},
        {"_Z1kIRfEvOT_", "k<float &>", "float &"},
        {"_Z1kUlvE", "k", NULL}, /* no number */
        {"_Z1kZ1fvE", "k", NULL},
        {"_ZZZZZZZZZZ", "_ZZZZZZZZZZ", NULL},
    };
    check_rows(rows, STITCH__COUNT(rows));
#undef GELU
#undef COPY
}

/* A substitution for T0_ means the second argument of the function that it stands in, which need not be the one whose
 * parameters had it first: GCC takes both for the same type. */
TEST(template_parameters_of_several_functions)
{
#define INNER "inner<char, int>(const char &, int)::{lambda(int)#1}"
#define OUTER "outer<float, " INNER ", int>(float, const " INNER " &, const int &)::{lambda(int)#1}"
    static const row rows[] = {
        {"_Z1kIZ5outerIfZ5innerIciEvRKT_T0_EUliE_iEvS2_RKS5_RKT1_EUliE_EvS2_S4_", "k<" OUTER ">",
         OUTER ", const " OUTER " &"},
    };
    check_rows(rows, STITCH__COUNT(rows));
#undef INNER
#undef OUTER
}

TEST(what_is_not_understood_is_not_guessed)
{
    static const row rows[] = {
        {"_ZN1n2laILi3EEEvNS_3arrIXT_EEENS1_IXplT_Li1EEEE", "n::la<3>", NULL}, /* an expression */
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
                                        "_ZN1n3varIJiPfPKfEEEvDpT_",
                                        "_Z1gIyEvPKT_PPS0_RA3_iPFviEPKS2_PVfltsach",
                                        "_ZN1n2laILi3EEEvNS_3arrIXT_EEENS1_IXplT_Li1EEEE",
                                        "_Z1kIZ5outerIfZ5innerIciEvRKT_T0_EUliE_iEvS2_RKS5_RKT1_EUliE_EvS2_S4_",
                                        "_Z6kernelILi2EZNK2OpclIdEEvT_EUldE_EviT0_",
                                        "_Z1kIXadL_Z1fIfET_S0_EEEvS0_"};
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
        CHECK(strlen(d.params[i].type) <= 2100);
    /* Each is parsed again, and with it the one before, twice. */
    snprintf(doubling, sizeof(doubling), "_Z1kIZ1fIiEvT_");
    for (int i = 0; i < 30; i++)
        snprintf(doubling + strlen(doubling), sizeof(doubling) - strlen(doubling), "1QIS%c_S%c_E", "0123456789"[i % 10],
                 "0123456789"[(i + 1) % 10]);
    strcat(doubling, "EUlvE_EvS9_S8_");
    CHECK_INT(stitch__demangle(&arena, doubling, &d), STITCH_OK);
    CHECK(strlen(d.name) <= 2100 + strlen(doubling));
    stitch__arena_free(&arena);
}

TEST_MAIN(RUN(plain_kernels), RUN(templates), RUN(local_names), RUN(template_parameters_of_several_functions),
          RUN(what_is_not_understood_is_not_guessed), RUN(kinds_and_dtypes), RUN(hostile_symbols),
          RUN(deep_and_growing_symbols))

/* SPDX-License-Identifier: MIT
 *
 * Small stand-ins for host headers. NVRTC has none, and model-written device code includes them out of habit; what they
 * would bring for device code is either built into NVRTC (printf, assert, the mathematical functions) or given here.
 * The types agree with libcu++'s own ones under NVRTC, so both may be included.
 */
#include "cuda/internal.h"

/* libcu++ defines some of the same macros in other words and without looking; that is no news to the programmer. */
#define NO_REDEFINITION_WARNING "#pragma nv_diag_suppress 47\n"

static const char stdint_h[] =
    "#pragma once\n"
    "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;\n"
    "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;\n"
    "typedef unsigned long long uint64_t;\n"
    "typedef int8_t int_least8_t; typedef int16_t int_least16_t; typedef int32_t int_least32_t; typedef int64_t "
    "int_least64_t;\n"
    "typedef uint8_t uint_least8_t; typedef uint16_t uint_least16_t; typedef uint32_t uint_least32_t;\n"
    "typedef uint64_t uint_least64_t;\n"
    "typedef int8_t int_fast8_t; typedef int16_t int_fast16_t; typedef int32_t int_fast32_t; typedef int64_t "
    "int_fast64_t;\n"
    "typedef uint8_t uint_fast8_t; typedef uint16_t uint_fast16_t; typedef uint32_t uint_fast32_t;\n"
    "typedef uint64_t uint_fast64_t;\n"
    "typedef int64_t intptr_t; typedef uint64_t uintptr_t; typedef int64_t intmax_t; typedef uint64_t uintmax_t;\n"
    "#include <limits.h>\n"
    "#ifndef INT8_MIN\n"
    "#define INT8_MIN   SCHAR_MIN\n#define INT16_MIN  SHRT_MIN\n#define INT32_MIN  INT_MIN\n#define INT64_MIN  "
    "LLONG_MIN\n"
    "#define INT8_MAX   SCHAR_MAX\n#define INT16_MAX  SHRT_MAX\n#define INT32_MAX  INT_MAX\n#define INT64_MAX  "
    "LLONG_MAX\n"
    "#define UINT8_MAX  UCHAR_MAX\n#define UINT16_MAX USHRT_MAX\n#define UINT32_MAX UINT_MAX\n#define UINT64_MAX "
    "ULLONG_MAX\n"
    "#define INTPTR_MIN  INT64_MIN\n#define INTPTR_MAX  INT64_MAX\n#define UINTPTR_MAX UINT64_MAX\n"
    "#define INTMAX_MIN  INT64_MIN\n#define INTMAX_MAX  INT64_MAX\n#define UINTMAX_MAX UINT64_MAX\n"
    "#define PTRDIFF_MIN INT64_MIN\n#define PTRDIFF_MAX INT64_MAX\n#define SIZE_MAX UINT64_MAX\n"
    "#define INT8_C(X)   ((::int_least8_t)(X))\n#define INT16_C(X)  ((::int_least16_t)(X))\n"
    "#define INT32_C(X)  ((::int_least32_t)(X))\n#define INT64_C(X)  ((::int_least64_t)(X))\n"
    "#define UINT8_C(X)  ((::uint_least8_t)(X))\n#define UINT16_C(X) ((::uint_least16_t)(X))\n"
    "#define UINT32_C(X) ((::uint_least32_t)(X))\n#define UINT64_C(X) ((::uint_least64_t)(X))\n"
    "#endif\n";

static const char limits_h[] =
    "#pragma once\n"
    "#ifndef CHAR_BIT\n#define CHAR_BIT 8\n#endif\n"
    "#ifndef SCHAR_MIN\n#define SCHAR_MIN (-128)\n#endif\n#ifndef SCHAR_MAX\n#define SCHAR_MAX 127\n#endif\n"
    "#ifndef UCHAR_MAX\n#define UCHAR_MAX 255\n#endif\n"
    "#ifndef CHAR_MIN\n#define CHAR_MIN SCHAR_MIN\n#endif\n#ifndef CHAR_MAX\n#define CHAR_MAX SCHAR_MAX\n#endif\n"
    "#ifndef SHRT_MIN\n#define SHRT_MIN (-32768)\n#endif\n#ifndef SHRT_MAX\n#define SHRT_MAX 32767\n#endif\n"
    "#ifndef USHRT_MAX\n#define USHRT_MAX 65535\n#endif\n"
    "#ifndef INT_MIN\n#define INT_MIN (-2147483647 - 1)\n#endif\n#ifndef INT_MAX\n#define INT_MAX 2147483647\n#endif\n"
    "#ifndef UINT_MAX\n#define UINT_MAX 4294967295U\n#endif\n"
    "#ifndef LONG_MIN\n#define LONG_MIN (-9223372036854775807L - 1)\n#endif\n"
    "#ifndef LONG_MAX\n#define LONG_MAX 9223372036854775807L\n#endif\n"
    "#ifndef ULONG_MAX\n#define ULONG_MAX 18446744073709551615UL\n#endif\n"
    "#ifndef LLONG_MIN\n#define LLONG_MIN (-9223372036854775807LL - 1)\n#endif\n"
    "#ifndef LLONG_MAX\n#define LLONG_MAX 9223372036854775807LL\n#endif\n"
    "#ifndef ULLONG_MAX\n#define ULLONG_MAX 18446744073709551615ULL\n#endif\n";

static const char float_h[] =
    "#pragma once\n"
    "#ifndef FLT_RADIX\n#define FLT_RADIX 2\n#endif\n"
    "#ifndef FLT_MANT_DIG\n#define FLT_MANT_DIG 24\n#endif\n#ifndef FLT_DIG\n#define FLT_DIG 6\n#endif\n"
    "#ifndef FLT_MAX\n#define FLT_MAX 3.402823466e+38F\n#endif\n#ifndef FLT_MIN\n#define FLT_MIN "
    "1.175494351e-38F\n#endif\n"
    "#ifndef FLT_EPSILON\n#define FLT_EPSILON 1.192092896e-07F\n#endif\n"
    "#ifndef DBL_MANT_DIG\n#define DBL_MANT_DIG 53\n#endif\n#ifndef DBL_DIG\n#define DBL_DIG 15\n#endif\n"
    "#ifndef DBL_MAX\n#define DBL_MAX 1.7976931348623157e+308\n#endif\n"
    "#ifndef DBL_MIN\n#define DBL_MIN 2.2250738585072014e-308\n#endif\n"
    "#ifndef DBL_EPSILON\n#define DBL_EPSILON 2.2204460492503131e-16\n#endif\n";

static const char math_h[] =
    "#pragma once\n" NO_REDEFINITION_WARNING "#ifndef INFINITY\n#define INFINITY (__int_as_float(0x7f800000))\n#endif\n"
    "#ifndef NAN\n#define NAN (__int_as_float(0x7fffffff))\n#endif\n"
    "#ifndef HUGE_VALF\n#define HUGE_VALF INFINITY\n#endif\n"
    "#ifndef HUGE_VAL\n#define HUGE_VAL (__longlong_as_double(0x7ff0000000000000LL))\n#endif\n"
    "#ifndef M_E\n#define M_E 2.71828182845904523536\n#endif\n"
    "#ifndef M_LOG2E\n#define M_LOG2E 1.44269504088896340736\n#endif\n"
    "#ifndef M_LOG10E\n#define M_LOG10E 0.43429448190325182765\n#endif\n"
    "#ifndef M_LN2\n#define M_LN2 0.69314718055994530942\n#endif\n"
    "#ifndef M_LN10\n#define M_LN10 2.30258509299404568402\n#endif\n"
    "#ifndef M_PI\n#define M_PI 3.14159265358979323846\n#endif\n"
    "#ifndef M_PI_2\n#define M_PI_2 1.57079632679489661923\n#endif\n"
    "#ifndef M_PI_4\n#define M_PI_4 0.78539816339744830962\n#endif\n"
    "#ifndef M_1_PI\n#define M_1_PI 0.31830988618379067154\n#endif\n"
    "#ifndef M_2_PI\n#define M_2_PI 0.63661977236758134308\n#endif\n"
    "#ifndef M_2_SQRTPI\n#define M_2_SQRTPI 1.12837916709551257390\n#endif\n"
    "#ifndef M_SQRT2\n#define M_SQRT2 1.41421356237309504880\n#endif\n"
    "#ifndef M_SQRT1_2\n#define M_SQRT1_2 0.70710678118654752440\n#endif\n";

static const char stddef_h[] =
    "#pragma once\n"
    "typedef decltype(sizeof(0)) size_t; typedef decltype((char *)0 - (char *)0) ptrdiff_t;\n"
    "#ifndef NULL\n#define NULL 0\n#endif\n"
    "#ifndef offsetof\n#define offsetof(type, member) __builtin_offsetof(type, member)\n#endif\n";

/* The real cuda.h declares host functions, which NVRTC refuses; device code wants one type of it. */
static const char cuda_h[] =
    "#pragma once\n"
    "typedef struct CUtensorMap_st {\n    alignas(64) unsigned long long opaque[16];\n} CUtensorMap;\n";

static const char nothing[] = "#pragma once\n";
static const char cstdint[] =
    "#pragma once\n#include <stdint.h>\n"
    "namespace std { using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t; using ::uint8_t;\n"
    "using ::uint16_t; using ::uint32_t; using ::uint64_t; using ::intptr_t; using ::uintptr_t; }\n";
static const char cstddef[] =
    "#pragma once\n#include <stddef.h>\nnamespace std { using ::size_t; using ::ptrdiff_t; }\n";
/* Not by way of libcu++, whose header takes 0.6 s: the functions are built into NVRTC. */
static const char cmath[] =
    "#pragma once\n#include <math.h>\nnamespace std {\n"
    "using ::abs; using ::fabs; using ::sqrt; using ::cbrt; using ::hypot; using ::exp; using ::exp2;\n"
    "using ::expm1; using ::log; using ::log2; using ::log10; using ::log1p; using ::pow; using ::sin;\n"
    "using ::cos; using ::tan; using ::asin; using ::acos; using ::atan; using ::atan2; using ::sinh;\n"
    "using ::cosh; using ::tanh; using ::asinh; using ::acosh; using ::atanh; using ::erf; using ::erfc;\n"
    "using ::tgamma; using ::lgamma; using ::floor; using ::ceil; using ::round; using ::trunc;\n"
    "using ::rint; using ::nearbyint; using ::lround; using ::llround; using ::lrint; using ::llrint;\n"
    "using ::fmod; using ::remainder; using ::fma; using ::fmin; using ::fmax; using ::fdim;\n"
    "using ::copysign; using ::ldexp; using ::frexp; using ::modf; using ::scalbn; using ::logb;\n"
    "using ::ilogb; using ::nextafter; using ::isnan; using ::isinf; using ::isfinite; using ::signbit;\n"
    "}\n";

/* Host headers of the C++ library by way of libcu++, where that has them. */
#define FROM_LIBCUXX(name)                                                                                             \
    "#pragma once\n#include <cuda/std/" name ">\nnamespace std { using namespace ::cuda::std; }\n"

/* Which headers of libcu++ exist depends on its version. */
static const char algorithm[] =
    "#pragma once\n#if __has_include(<cuda/std/algorithm>)\n#include <cuda/std/algorithm>\n"
    "namespace std { using namespace ::cuda::std; }\n#else\n"
    "namespace std {\n"
    "template <class T> __host__ __device__ constexpr const T &min(const T &a, const T &b) { return b < a ? b : a; }\n"
    "template <class T> __host__ __device__ constexpr const T &max(const T &a, const T &b) { return a < b ? b : a; }\n"
    "template <class T> __host__ __device__ constexpr const T &clamp(const T &v, const T &lo, const T &hi)\n"
    "{ return v < lo ? lo : hi < v ? hi : v; }\n"
    "template <class T> __host__ __device__ constexpr void swap(T &a, T &b) { T t = a; a = b; b = t; }\n"
    "}\n#endif\n";

const stitch__header stitch__headers[] = {
    {"stdint.h", stdint_h},
    {"inttypes.h", "#pragma once\n#include <stdint.h>\n"},
    {"stddef.h", stddef_h},
    {"stdbool.h", nothing},
    {"limits.h", limits_h},
    {"float.h", float_h},
    {"math.h", math_h},
    {"stdio.h", nothing},
    {"stdlib.h", "#pragma once\n#include <stddef.h>\n"},
    {"string.h", "#pragma once\n#include <stddef.h>\n"},
    {"assert.h", nothing},
    {"cstdint", cstdint},
    {"cstddef", cstddef},
    {"climits", "#pragma once\n#include <limits.h>\n"},
    {"cfloat", "#pragma once\n#include <float.h>\n"},
    {"cmath", cmath},
    {"cstdio", nothing},
    {"cstdlib", "#pragma once\n#include <stddef.h>\n"},
    {"cstring", "#pragma once\n#include <stddef.h>\n"},
    {"cassert", nothing},
    {"type_traits", FROM_LIBCUXX("type_traits")},
    {"utility", FROM_LIBCUXX("utility")},
    {"limits", FROM_LIBCUXX("limits")},
    {"algorithm", algorithm},
    {"array", FROM_LIBCUXX("array")},
    {"tuple", FROM_LIBCUXX("tuple")},
    {"cuda.h", cuda_h},
    {"cudaTypedefs.h", "#pragma once\n#include <cuda.h>\n"},
    {"cuda_runtime.h", nothing},
    {"cuda_runtime_api.h", nothing},
    {"device_launch_parameters.h", nothing},
};
const size_t stitch__header_count = STITCH__COUNT(stitch__headers);

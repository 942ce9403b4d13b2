/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of the CPU simulator: what each PTX floating-point, conversion and matrix instruction computes, bit
 * for bit where the hardware's result is known. It knows nothing of registers, memory or control flow.
 *
 * Use at decode time:   f = stitch__arith_lanes(&op)      (NULL: PTX has no such combination, refuse the instruction)
 * Use at run time:      f(d, a, b, c)                     32 lanes at once, all of them, whatever the active mask is
 *
 * Lane arrays. A type of at most 32 bits (f16 and bf16 in the low half, f16x2, f32, s8 ... u32, tf32, fp8 pairs in the
 * low half) is uint32_t[32]; unused high bits are ignored on input and zero on output (signed integer results narrower
 * than 32 bits are sign-extended to 32). A 64-bit type is uint64_t[32]. `d` may be the same array as an input, but must
 * not overlap one otherwise; when source and destination differ in width they must be different arrays. An input that
 * an instruction lacks is passed as NULL. No function here fails, allocates, traps or reads global state; the
 * floating-point environment must be the default one (round to nearest, no flush to zero), which is what a new thread
 * has.
 *
 * NaN. Results of f16, bf16 and f32 are the canonical NaN: 0x7fff, 0x7fffffff; neg and abs canonicalise as well. f64
 * instructions pass on an operand's NaN, quieted (of two that of b, of three b, c, a; a division that of a; sign
 * changes leave it alone), and make 0xfff8000000000000 where no operand is one. Conversions from and to f64 keep the
 * payload. All that is measured on an H200.
 *
 * .ftz makes a result zero that is below the smallest normal number after rounding without a limit on the exponent.
 */
#ifndef STITCH_SIM_ARITH_H
#define STITCH_SIM_ARITH_H

#include <stdbool.h>
#include <stdint.h>

enum { STITCH__LANES = 32 };

/* Scalar types of PTX as instructions name them. The x2 types are two elements in one register, element 0 in the low
 * half. */
typedef enum stitch__num {
    STITCH__NUM_NONE = 0,
    STITCH__U8,
    STITCH__S8,
    STITCH__U16,
    STITCH__S16,
    STITCH__U32,
    STITCH__S32,
    STITCH__U64,
    STITCH__S64,
    STITCH__F16,
    STITCH__BF16,
    STITCH__F32,
    STITCH__F64,
    STITCH__F16X2,
    STITCH__BF16X2,
    STITCH__F32X2, /* a 64-bit register: sm_100 and later, kept for completeness */
    STITCH__TF32,
    STITCH__E4M3X2,
    STITCH__E5M2X2,
    STITCH__U16X2,
    STITCH__S16X2,
    STITCH__NUM_COUNT
} stitch__num;

/* Rounding modifiers. RN..RP also mean .rni .rzi .rmi .rpi where `integer` is set in a conversion. */
typedef enum stitch__round {
    STITCH__RN = 0, /* to nearest, ties to even */
    STITCH__RZ,     /* toward zero */
    STITCH__RM,     /* toward minus infinity */
    STITCH__RP,     /* toward plus infinity */
    STITCH__RNA     /* to nearest, ties away from zero: cvt.rna.tf32 */
} stitch__round;

enum {
    STITCH__FTZ = 1,          /* .ftz: subnormal f32 (f16 where PTX has it) inputs and results become signed zero */
    STITCH__SAT = 2,          /* .sat: clamp to [0, 1], NaN becomes +0; for integer destinations clamp to the type */
    STITCH__RELU = 4,         /* .relu: negative becomes +0, NaN canonical */
    STITCH__NAN = 8,          /* .NaN of min and max */
    STITCH__XORSIGN_ABS = 16, /* .xorsign.abs of min and max */
    STITCH__SATFINITE = 32,   /* .satfinite of cvt */
};

typedef enum stitch__fop {
    STITCH__ADD,
    STITCH__SUB,
    STITCH__MUL,
    STITCH__FMA, /* also mad for floating point */
    STITCH__DIV, /* div.rn .rz .rm .rp */
    STITCH__DIV_APPROX,
    STITCH__DIV_FULL,
    STITCH__RCP, /* correctly rounded */
    STITCH__RCP_APPROX,
    STITCH__SQRT, /* correctly rounded */
    STITCH__SQRT_APPROX,
    STITCH__RSQRT_APPROX,
    STITCH__EX2_APPROX,
    STITCH__LG2_APPROX,
    STITCH__SIN_APPROX,
    STITCH__COS_APPROX,
    STITCH__TANH_APPROX,
    STITCH__MIN, /* two operands, or three (sm_100) when `args` is 3 */
    STITCH__MAX,
    STITCH__NEG,
    STITCH__ABS,
    STITCH__COPYSIGN, /* copysign d, a, b: the sign of a with the magnitude of b, as PTX orders them */
    STITCH__FOP_COUNT
} stitch__fop;

/* One floating-point instruction: mnemonic with its modifiers. */
typedef struct stitch__arith_op {
    uint8_t op;    /* stitch__fop */
    uint8_t type;  /* stitch__num: F16 BF16 F32 F64 F16X2 BF16X2 F32X2 */
    uint8_t round; /* stitch__round; RN when the instruction names none */
    uint8_t flags; /* STITCH__FTZ ... */
    uint8_t args;  /* 0: the usual number for the op; 3: three-operand min and max */
} stitch__arith_op;

typedef void (*stitch__lanes_fn)(void *d, const void *a, const void *b, const void *c);

/* The function for an instruction; NULL where PTX has no such combination. Cheap, but meant for decode time. */
stitch__lanes_fn stitch__arith_lanes(const stitch__arith_op *op);
/* The same on one lane: registers zero-extended to 64 bits, for atomics, constant folding and tests. 0 where
 * stitch__arith_lanes gives NULL. */
uint64_t stitch__arith_eval(const stitch__arith_op *op, uint64_t a, uint64_t b, uint64_t c);

/* cvt.
 *   dst F16X2, BF16X2, E4M3X2, E5M2X2 from src F32 takes two inputs: a becomes the high element, b the low one.
 *   dst E4M3X2, E5M2X2 from F16X2, and F16X2 from E4M3X2, E5M2X2, take one.
 *   dst TF32 from F32: the result is an f32 whose low 13 bits are zero.
 * `integer` says that the modifier was .rni and the like: needed for float to integer (always) and for rounding a float
 * to an integral value in the same type. NaN to integer: 0, except when the source is f64 or the destination 64 bits
 * wide: then only the top bit is set. */
typedef struct stitch__arith_cvt {
    uint8_t dst, src; /* stitch__num */
    uint8_t round;    /* stitch__round */
    uint8_t flags;    /* FTZ, SAT, RELU, SATFINITE */
    bool integer;
} stitch__arith_cvt;

stitch__lanes_fn stitch__arith_lanes_cvt(const stitch__arith_cvt *cvt);
uint64_t stitch__arith_eval_cvt(const stitch__arith_cvt *cvt, uint64_t a, uint64_t b);

/* Comparisons of setp, set and slct. EQ..GE are ordered (false with a NaN), EQU..GEU are true with a NaN, NUM and NAN
 * test the operands. LO LS HI HS are the unsigned names of LT LE GT GE. */
typedef enum stitch__cmp {
    STITCH__EQ,
    STITCH__NE,
    STITCH__LT,
    STITCH__LE,
    STITCH__GT,
    STITCH__GE,
    STITCH__EQU,
    STITCH__NEU,
    STITCH__LTU,
    STITCH__LEU,
    STITCH__GTU,
    STITCH__GEU,
    STITCH__NUM,
    STITCH__ISNAN,
    STITCH__CMP_COUNT
} stitch__cmp;

/* Bit i of the result: lane i compares true. For f16x2 and bf16x2, `hi` receives the second predicate of each lane. */
typedef uint32_t (*stitch__cmp_fn)(const void *a, const void *b, uint32_t *hi);
/* Types: all integer types of 16 bits and more, F16 BF16 F32 F64 F16X2 BF16X2. NULL where there is no such comparison.
 */
stitch__cmp_fn stitch__arith_lanes_cmp(stitch__num type, stitch__cmp cmp, bool ftz);

/* testp.finite ... on F32 and F64. */
typedef enum stitch__testp {
    STITCH__TESTP_FINITE,
    STITCH__TESTP_INFINITE,
    STITCH__TESTP_NUMBER,
    STITCH__TESTP_NOTANUMBER,
    STITCH__TESTP_NORMAL,
    STITCH__TESTP_SUBNORMAL
} stitch__testp;
uint32_t stitch__arith_testp(stitch__num type, stitch__testp test, const void *a);

/* Scalar helpers that other parts of the simulator use directly; all take and return bit patterns. */
uint32_t stitch__f32_from_f16(uint16_t x);
uint16_t stitch__f16_from_f32(uint32_t x, stitch__round round);
uint32_t stitch__f32_from_bf16(uint16_t x);
uint16_t stitch__bf16_from_f32(uint32_t x, stitch__round round);
uint16_t stitch__f16_from_fp8(uint8_t x,
                              stitch__num format); /* STITCH__E4M3X2 or STITCH__E5M2X2 names the element format */
uint8_t stitch__fp8_from_f32(uint32_t x, stitch__num format, bool relu); /* .rn.satfinite */

/* How exactly the special functions follow the hardware, in f32 and in what is made of it: whether this build's tables
 * reproduce it on all inputs, and the largest error in units in the last place (0: bounded in absolute error only; sin
 * and cos within one turn, lg2 between 1/2 and 2). */
typedef struct stitch__sfu_accuracy {
    bool exact;
    uint32_t ulp;
    double absolute;
} stitch__sfu_accuracy;
stitch__sfu_accuracy stitch__arith_sfu_accuracy(stitch__fop op);

/* Matrix multiply-accumulate, D = A B + C, on whole matrices: the caller maps fragments. Row-major, tightly packed:
 * A[m][k], B[k][n], C and D[m][n]. Elements:
 *   F16, BF16         uint16_t bits
 *   TF32              uint32_t bits of an f32; the low 13 bits are ignored as the hardware does
 *   E4M3X2, E5M2X2    uint8_t, one element a byte
 *   U8, S8            uint8_t, int8_t; 4-bit integers are passed as these, already widened
 *   F64               uint64_t bits
 * Accumulators: F32 uint32_t bits, F16 uint16_t bits, S32 uint32_t, F64 uint64_t bits. D may be C.
 * `exact` follows the hardware's fused sum as measured on an H200 (arith_mma.c says what); otherwise float32
 * accumulators are plain float32 FMA chains in order of k, several times faster and within the usual rounding error of
 * it. f64 is always a chain of FMAs in order of k, integers are always exact (modulo 2^32, or clamped with
 * `satfinite`). */
typedef struct stitch__mma {
    uint16_t m, n, k;
    uint8_t a, b; /* stitch__num */
    uint8_t c, d; /* F32, F16, S32 or F64; c and d may differ between F16 and F32 */
    bool exact;
    bool satfinite;
} stitch__mma;
enum { STITCH__MMA_MAX_K = 256 };

/* False where the combination does not exist: nothing is written then. `C` NULL means zero. */
bool stitch__mma_run(const stitch__mma *mma, void *d, const void *a, const void *b, const void *c);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Integer and logic instructions on 32 lanes at once, with the calling convention of arith.h: d = f(a, b, c).
 */
#ifndef STITCH_LIB_SIM_ALU_H
#define STITCH_LIB_SIM_ALU_H

#include "sim/arith.h"

/* X(name, type of d, of a, of b, of c, expression of A, B, C). Shift amounts are 32 bits wide. */
#define STITCH__ALU_LIST(X)                                                                                            \
    X(ADD16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)(A + B))                                                \
    X(ADD32, uint32_t, uint32_t, uint32_t, uint32_t, A + B)                                                            \
    X(ADD64, uint64_t, uint64_t, uint64_t, uint64_t, A + B)                                                            \
    X(SUB16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)(A - B))                                                \
    X(SUB32, uint32_t, uint32_t, uint32_t, uint32_t, A - B)                                                            \
    X(SUB64, uint64_t, uint64_t, uint64_t, uint64_t, A - B)                                                            \
    X(ADD16X2, uint32_t, uint32_t, uint32_t, uint32_t, ((A + B) & 0xffffu) | ((A & 0xffff0000u) + (B & 0xffff0000u)))  \
    X(ADDS32, uint32_t, uint32_t, uint32_t, uint32_t, alu_sat((int64_t)(int32_t)A + (int32_t)B))                       \
    X(SUBS32, uint32_t, uint32_t, uint32_t, uint32_t, alu_sat((int64_t)(int32_t)A - (int32_t)B))                       \
    X(MUL16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)(A * B))                                                \
    X(MUL32, uint32_t, uint32_t, uint32_t, uint32_t, A * B)                                                            \
    X(MUL64, uint64_t, uint64_t, uint64_t, uint64_t, A * B)                                                            \
    X(MULHI_U16, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)(uint16_t)A * (uint16_t)B >> 16)                    \
    X(MULHI_S16, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((int16_t)A * (int16_t)B >> 16))                    \
    X(MULHI_U32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((uint64_t)A * B >> 32))                            \
    X(MULHI_S32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((int64_t)(int32_t)A * (int32_t)B >> 32))           \
    X(MULHI_U64, uint64_t, uint64_t, uint64_t, uint64_t, (uint64_t)((unsigned __int128)A * B >> 64))                   \
    X(MULHI_S64, uint64_t, uint64_t, uint64_t, uint64_t, (uint64_t)((__int128)(int64_t)A * (int64_t)B >> 64))          \
    X(MULW_U16, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)(uint16_t)A * (uint16_t)B)                           \
    X(MULW_S16, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((int16_t)A * (int16_t)B))                           \
    X(MULW_U32, uint64_t, uint32_t, uint32_t, uint32_t, (uint64_t)A * B)                                               \
    X(MULW_S32, uint64_t, uint32_t, uint32_t, uint32_t, (uint64_t)((int64_t)(int32_t)A * (int32_t)B))                  \
    X(MUL24LO_U, uint32_t, uint32_t, uint32_t, uint32_t, (A & 0xffffffu) * (B & 0xffffffu))                            \
    X(MUL24LO_S, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)alu_s24(A) * (uint32_t)alu_s24(B))                  \
    X(MUL24HI_U, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((uint64_t)(A & 0xffffffu) * (B & 0xffffffu) >> 16)) \
    X(MUL24HI_S, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((int64_t)alu_s24(A) * alu_s24(B) >> 16))           \
    X(MAD16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)(A * B + C))                                            \
    X(MAD32, uint32_t, uint32_t, uint32_t, uint32_t, A * B + C)                                                        \
    X(MAD64, uint64_t, uint64_t, uint64_t, uint64_t, A * B + C)                                                        \
    X(MADHI_U16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)(((uint32_t)(uint16_t)A * (uint16_t)B >> 16) + C))  \
    X(MADHI_S16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)((uint32_t)((int16_t)A * (int16_t)B >> 16) + C))    \
    X(MADHI_U32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((uint64_t)A * B >> 32) + C)                        \
    X(MADHI_S32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((int64_t)(int32_t)A * (int32_t)B >> 32) + C)       \
    X(MADHI_U64, uint64_t, uint64_t, uint64_t, uint64_t, (uint64_t)((unsigned __int128)A * B >> 64) + C)               \
    X(MADHI_S64, uint64_t, uint64_t, uint64_t, uint64_t, (uint64_t)((__int128)(int64_t)A * (int64_t)B >> 64) + C)      \
    X(MADW_U16, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)(uint16_t)A * (uint16_t)B + C)                       \
    X(MADW_S16, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((int16_t)A * (int16_t)B) + C)                       \
    X(MADW_U32, uint64_t, uint32_t, uint32_t, uint64_t, (uint64_t)A * B + C)                                           \
    X(MADW_S32, uint64_t, uint32_t, uint32_t, uint64_t, (uint64_t)((int64_t)(int32_t)A * (int32_t)B) + C)              \
    X(MAD24LO_U, uint32_t, uint32_t, uint32_t, uint32_t, (A & 0xffffffu) * (B & 0xffffffu) + C)                        \
    X(MAD24LO_S, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)alu_s24(A) * (uint32_t)alu_s24(B) + C)              \
    X(SAD_U32, uint32_t, uint32_t, uint32_t, uint32_t, (A > B ? A - B : B - A) + C)                                    \
    X(SAD_S32, uint32_t, uint32_t, uint32_t, uint32_t, ((int32_t)A > (int32_t)B ? A - B : B - A) + C)                  \
    X(SAD_U16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)(((uint16_t)A > (uint16_t)B ? A - B : B - A) + C))    \
    X(SAD_S16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)(((int16_t)A > (int16_t)B ? A - B : B - A) + C))      \
    X(SAD_U64, uint64_t, uint64_t, uint64_t, uint64_t, (A > B ? A - B : B - A) + C)                                    \
    X(SAD_S64, uint64_t, uint64_t, uint64_t, uint64_t, ((int64_t)A > (int64_t)B ? A - B : B - A) + C)                  \
    X(DIV_U16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)B ? (uint16_t)A / (uint16_t)B : 0xffffu)              \
    X(DIV_S16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)((int16_t)B ? (int16_t)A / (int16_t)B : -1))          \
    X(DIV_U32, uint32_t, uint32_t, uint32_t, uint32_t, alu_divu32(A, B))                                               \
    X(DIV_S32, uint32_t, uint32_t, uint32_t, uint32_t, alu_divs32(A, B))                                               \
    X(DIV_U64, uint64_t, uint64_t, uint64_t, uint64_t, B ? A / B : ~UINT64_C(0))                                       \
    X(DIV_S64, uint64_t, uint64_t, uint64_t, uint64_t, alu_divs64(A, B))                                               \
    X(REM_U16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)B ? (uint16_t)A % (uint16_t)B : (uint16_t)A)          \
    X(REM_S16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)((int16_t)B ? (int16_t)A % (int16_t)B : (int16_t)A))  \
    X(REM_U32, uint32_t, uint32_t, uint32_t, uint32_t, B ? A - alu_divu32(A, B) * B : A)                               \
    X(REM_S32, uint32_t, uint32_t, uint32_t, uint32_t, B ? A - alu_divs32(A, B) * B : A)                               \
    X(REM_U64, uint64_t, uint64_t, uint64_t, uint64_t, B ? A % B : A)                                                  \
    X(REM_S64, uint64_t, uint64_t, uint64_t, uint64_t, B ? A - alu_divs64(A, B) * B : A)                               \
    X(ABS16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)((int16_t)A < 0 ? 0u - A : A))                          \
    X(ABS32, uint32_t, uint32_t, uint32_t, uint32_t, (int32_t)A < 0 ? 0u - A : A)                                      \
    X(ABS64, uint64_t, uint64_t, uint64_t, uint64_t, (int64_t)A < 0 ? 0u - A : A)                                      \
    X(NEG16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)(0u - A))                                               \
    X(NEG32, uint32_t, uint32_t, uint32_t, uint32_t, 0u - A)                                                           \
    X(NEG64, uint64_t, uint64_t, uint64_t, uint64_t, 0u - A)                                                           \
    X(MIN_U16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)A < (uint16_t)B ? (uint16_t)A : (uint16_t)B)          \
    X(MIN_S16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)((int16_t)A < (int16_t)B ? A : B))                    \
    X(MIN_U32, uint32_t, uint32_t, uint32_t, uint32_t, A < B ? A : B)                                                  \
    X(MIN_S32, uint32_t, uint32_t, uint32_t, uint32_t, (int32_t)A < (int32_t)B ? A : B)                                \
    X(MIN_U64, uint64_t, uint64_t, uint64_t, uint64_t, A < B ? A : B)                                                  \
    X(MIN_S64, uint64_t, uint64_t, uint64_t, uint64_t, (int64_t)A < (int64_t)B ? A : B)                                \
    X(MAX_U16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)A > (uint16_t)B ? (uint16_t)A : (uint16_t)B)          \
    X(MAX_S16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)((int16_t)A > (int16_t)B ? A : B))                    \
    X(MAX_U32, uint32_t, uint32_t, uint32_t, uint32_t, A > B ? A : B)                                                  \
    X(MAX_S32, uint32_t, uint32_t, uint32_t, uint32_t, (int32_t)A > (int32_t)B ? A : B)                                \
    X(MAX_U64, uint64_t, uint64_t, uint64_t, uint64_t, A > B ? A : B)                                                  \
    X(MAX_S64, uint64_t, uint64_t, uint64_t, uint64_t, (int64_t)A > (int64_t)B ? A : B)                                \
    X(MIN_S32_RELU, uint32_t, uint32_t, uint32_t, uint32_t, alu_relu((int32_t)A < (int32_t)B ? A : B))                 \
    X(MAX_S32_RELU, uint32_t, uint32_t, uint32_t, uint32_t, alu_relu((int32_t)A > (int32_t)B ? A : B))                 \
    X(MIN_U16X2, uint32_t, uint32_t, uint32_t, uint32_t, alu_min2u(A, B))                                              \
    X(MAX_U16X2, uint32_t, uint32_t, uint32_t, uint32_t, alu_max2u(A, B))                                              \
    X(MIN_S16X2, uint32_t, uint32_t, uint32_t, uint32_t, alu_min2s(A, B))                                              \
    X(MAX_S16X2, uint32_t, uint32_t, uint32_t, uint32_t, alu_max2s(A, B))                                              \
    X(AND32, uint32_t, uint32_t, uint32_t, uint32_t, A &B)                                                             \
    X(AND64, uint64_t, uint64_t, uint64_t, uint64_t, A &B)                                                             \
    X(OR32, uint32_t, uint32_t, uint32_t, uint32_t, A | B)                                                             \
    X(OR64, uint64_t, uint64_t, uint64_t, uint64_t, A | B)                                                             \
    X(XOR32, uint32_t, uint32_t, uint32_t, uint32_t, A ^ B)                                                            \
    X(XOR64, uint64_t, uint64_t, uint64_t, uint64_t, A ^ B)                                                            \
    X(NOT16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)~A)                                                     \
    X(NOT32, uint32_t, uint32_t, uint32_t, uint32_t, ~A)                                                               \
    X(NOT64, uint64_t, uint64_t, uint64_t, uint64_t, ~A)                                                               \
    X(CNOT16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)A == 0)                                                \
    X(CNOT32, uint32_t, uint32_t, uint32_t, uint32_t, A == 0)                                                          \
    X(CNOT64, uint64_t, uint64_t, uint64_t, uint64_t, A == 0)                                                          \
    X(SHL16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)(B > 15 ? 0 : A << (B & 31)))                           \
    X(SHL32, uint32_t, uint32_t, uint32_t, uint32_t, B > 31 ? 0 : A << (B & 31))                                       \
    X(SHL64, uint64_t, uint64_t, uint32_t, uint32_t, B > 63 ? 0 : A << (B & 63))                                       \
    X(SHR_U16, uint32_t, uint32_t, uint32_t, uint32_t, B > 15 ? 0 : (uint32_t)(uint16_t)A >> (B & 31))                 \
    X(SHR_S16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)((int16_t)A >> (B > 15 ? 15 : B)))                    \
    X(SHR_U32, uint32_t, uint32_t, uint32_t, uint32_t, B > 31 ? 0 : A >> (B & 31))                                     \
    X(SHR_S32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((int32_t)A >> (B > 31 ? 31 : B)))                    \
    X(SHR_U64, uint64_t, uint64_t, uint32_t, uint32_t, B > 63 ? 0 : A >> (B & 63))                                     \
    X(SHR_S64, uint64_t, uint64_t, uint32_t, uint32_t, (uint64_t)((int64_t)A >> (B > 63 ? 63 : B)))                    \
    X(SHF_L_WRAP, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((((uint64_t)B << 32 | A) << (C & 31)) >> 32))     \
    X(SHF_R_WRAP, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)(((uint64_t)B << 32 | A) >> (C & 31)))             \
    X(SHF_L_CLAMP, uint32_t, uint32_t, uint32_t, uint32_t,                                                             \
      (uint32_t)((((uint64_t)B << 32 | A) << (C > 32 ? 32 : C)) >> 32))                                                \
    X(SHF_R_CLAMP, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)(((uint64_t)B << 32 | A) >> (C > 32 ? 32 : C)))   \
    X(POPC32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)__builtin_popcount(A))                                 \
    X(POPC64, uint32_t, uint64_t, uint64_t, uint64_t, (uint32_t)__builtin_popcountll(A))                               \
    X(CLZ32, uint32_t, uint32_t, uint32_t, uint32_t, A ? (uint32_t)__builtin_clz(A) : 32u)                             \
    X(CLZ64, uint32_t, uint64_t, uint64_t, uint64_t, A ? (uint32_t)__builtin_clzll(A) : 64u)                           \
    X(BREV32, uint32_t, uint32_t, uint32_t, uint32_t, alu_brev(A))                                                     \
    X(BREV64, uint64_t, uint64_t, uint64_t, uint64_t, (uint64_t)alu_brev((uint32_t)A) << 32 | alu_brev((uint32_t)(A >> 32))) \
    X(BFIND_U32, uint32_t, uint32_t, uint32_t, uint32_t, A ? 31u - (uint32_t)__builtin_clz(A) : ~0u)                   \
    X(BFIND_S32, uint32_t, uint32_t, uint32_t, uint32_t, alu_bfind((uint64_t)((int64_t)(int32_t)A < 0 ? ~A : A)))      \
    X(BFIND_U64, uint32_t, uint64_t, uint64_t, uint64_t, alu_bfind(A))                                                 \
    X(BFIND_S64, uint32_t, uint64_t, uint64_t, uint64_t, alu_bfind((int64_t)A < 0 ? ~A : A))                           \
    X(BFIND_SHIFT_U32, uint32_t, uint32_t, uint32_t, uint32_t, A ? (uint32_t)__builtin_clz(A) : ~0u)                   \
    X(BFIND_SHIFT_S32, uint32_t, uint32_t, uint32_t, uint32_t, alu_bshift(alu_bfind((int32_t)A < 0 ? ~A : A), 31))     \
    X(BFIND_SHIFT_U64, uint32_t, uint64_t, uint64_t, uint64_t, alu_bshift(alu_bfind(A), 63))                           \
    X(BFIND_SHIFT_S64, uint32_t, uint64_t, uint64_t, uint64_t, alu_bshift(alu_bfind((int64_t)A < 0 ? ~A : A), 63))     \
    X(BFE_U32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)alu_bfe(A, (uint8_t)B, (uint8_t)C, 32, 0))            \
    X(BFE_S32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)alu_bfe(A, (uint8_t)B, (uint8_t)C, 32, 1))            \
    X(BFE_U64, uint64_t, uint64_t, uint32_t, uint32_t, alu_bfe(A, B, C, 64, 0))                                        \
    X(BFE_S64, uint64_t, uint64_t, uint32_t, uint32_t, alu_bfe(A, B, C, 64, 1))                                        \
    X(BMSK_CLAMP, uint32_t, uint32_t, uint32_t, uint32_t, alu_bmsk(A, B, 0))                                           \
    X(BMSK_WRAP, uint32_t, uint32_t, uint32_t, uint32_t, alu_bmsk(A & 31, B & 31, 1))                                  \
    X(SZEXT_CLAMP_U32, uint32_t, uint32_t, uint32_t, uint32_t, B > 31 ? A : B ? A & (~0u >> (32 - B)) : 0u)            \
    X(SZEXT_CLAMP_S32, uint32_t, uint32_t, uint32_t, uint32_t, alu_sext(A, B > 32 ? 32 : B))                           \
    X(SZEXT_WRAP_U32, uint32_t, uint32_t, uint32_t, uint32_t, (B & 31) ? A & (~0u >> (32 - (B & 31))) : 0u)            \
    X(SZEXT_WRAP_S32, uint32_t, uint32_t, uint32_t, uint32_t, alu_sext(A, B & 31))                                     \
    X(FNS, uint32_t, uint32_t, uint32_t, uint32_t, alu_fns(A, B, (int32_t)C))                                          \
    X(DP4A_UU, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp4a(A, B, C, 0, 0))                                        \
    X(DP4A_US, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp4a(A, B, C, 0, 1))                                        \
    X(DP4A_SU, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp4a(A, B, C, 1, 0))                                        \
    X(DP4A_SS, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp4a(A, B, C, 1, 1))                                        \
    X(DP2A_LO_UU, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp2a(A, B, C, 0, 0))                                     \
    X(DP2A_LO_US, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp2a(A, B, C, 0, 1))                                     \
    X(DP2A_LO_SU, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp2a(A, B, C, 1, 0))                                     \
    X(DP2A_LO_SS, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp2a(A, B, C, 1, 1))                                     \
    X(DP2A_HI_UU, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp2a(A, B >> 16, C, 0, 0))                               \
    X(DP2A_HI_US, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp2a(A, B >> 16, C, 0, 1))                               \
    X(DP2A_HI_SU, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp2a(A, B >> 16, C, 1, 0))                               \
    X(DP2A_HI_SS, uint32_t, uint32_t, uint32_t, uint32_t, alu_dp2a(A, B >> 16, C, 1, 1))                               \
    X(PRMT, uint32_t, uint32_t, uint32_t, uint32_t, alu_prmt(A, B, C))                                                 \
    X(PRMT_F4E, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)(((uint64_t)B << 32 | A) >> (8 * (C & 3))))          \
    X(PRMT_B4E, uint32_t, uint32_t, uint32_t, uint32_t, alu_prmt(A, B, alu_b4e(C)))                                    \
    X(PRMT_RC8, uint32_t, uint32_t, uint32_t, uint32_t, (A >> (8 * (C & 3)) & 0xff) * 0x01010101u)                     \
    X(PRMT_ECL, uint32_t, uint32_t, uint32_t, uint32_t, alu_prmt(A, B, alu_ecl(C)))                                    \
    X(PRMT_ECR, uint32_t, uint32_t, uint32_t, uint32_t, alu_prmt(A, B, alu_ecr(C)))                                    \
    X(PRMT_RC16, uint32_t, uint32_t, uint32_t, uint32_t, (A >> (16 * (C & 1)) & 0xffff) * 0x00010001u)                 \
    X(SX8, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)(int8_t)A)                                                \
    X(SX16, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)(int16_t)A)                                              \
    X(ZX8, uint32_t, uint32_t, uint32_t, uint32_t, (uint8_t)A)                                                         \
    X(ZX16, uint32_t, uint32_t, uint32_t, uint32_t, (uint16_t)A)                                                       \
    X(SX32_64, uint64_t, uint32_t, uint32_t, uint32_t, (uint64_t)(int64_t)(int32_t)A)                                  \
    X(SX16_64, uint64_t, uint32_t, uint32_t, uint32_t, (uint64_t)(int64_t)(int16_t)A)                                  \
    X(SX8_64, uint64_t, uint32_t, uint32_t, uint32_t, (uint64_t)(int64_t)(int8_t)A)                                    \
    X(ZX32_64, uint64_t, uint32_t, uint32_t, uint32_t, (uint64_t)A)                                                    \
    X(ZX16_64, uint64_t, uint32_t, uint32_t, uint32_t, (uint64_t)(uint16_t)A)                                          \
    X(ZX8_64, uint64_t, uint32_t, uint32_t, uint32_t, (uint64_t)(uint8_t)A)                                            \
    X(LOW32, uint32_t, uint64_t, uint64_t, uint64_t, (uint32_t)A)                                                      \
    X(HIGH32, uint32_t, uint64_t, uint64_t, uint64_t, (uint32_t)(A >> 32))                                             \
    X(HIGH16, uint32_t, uint32_t, uint32_t, uint32_t, A >> 16)                                                         \
    X(PACK16, uint32_t, uint32_t, uint32_t, uint32_t, (A & 0xffff) | B << 16)                                          \
    X(PACK8, uint32_t, uint32_t, uint32_t, uint32_t, (A & 0xff) | (B & 0xff) << 8)                                     \
    X(PACK32, uint64_t, uint32_t, uint32_t, uint32_t, (uint64_t)B << 32 | A)                                           \
    X(CMOV32, uint32_t, uint32_t, uint32_t, uint32_t, (int32_t)C >= 0 ? A : B)                                         \
    X(CMOV64, uint64_t, uint64_t, uint64_t, uint32_t, (int32_t)C >= 0 ? A : B)                                         \
    X(FCMOV32, uint32_t, uint32_t, uint32_t, uint32_t, alu_not_below_zero(C, 0) ? A : B)                               \
    X(FCMOV32_FTZ, uint32_t, uint32_t, uint32_t, uint32_t, alu_not_below_zero(C, 1) ? A : B)                           \
    X(FCMOV64, uint64_t, uint64_t, uint64_t, uint32_t, alu_not_below_zero(C, 0) ? A : B)                               \
    X(FCMOV64_FTZ, uint64_t, uint64_t, uint64_t, uint32_t, alu_not_below_zero(C, 1) ? A : B)

typedef enum stitch__alu {
#define STITCH__ALU_ENUM(name, d, a, b, c, expr) STITCH__ALU_##name,
    STITCH__ALU_LIST(STITCH__ALU_ENUM)
#undef STITCH__ALU_ENUM
    STITCH__ALU_COUNT
} stitch__alu;

extern const stitch__lanes_fn stitch__alu_generic[STITCH__ALU_COUNT];
extern const stitch__lanes_fn stitch__alu_avx2[STITCH__ALU_COUNT]; /* on x86-64 only */

stitch__lanes_fn stitch__alu_lanes(stitch__alu op); /* the best of this processor */

#endif

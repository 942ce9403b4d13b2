/* SPDX-License-Identifier: MIT
 *
 * What one SASS instruction of sm_80 to sm_121 computes with.
 *
 * NVIDIA documents the names but not the encodings. The table and the masks below come from tests/sass: corpus.py has a
 * PTX kernel for each kind of arithmetic; ptxas assembles each for sm_80, sm_89, sm_90a, sm_100a and sm_120a, and
 * `nvdisasm -hex` prints text beside bits. check_sass.py repeats that and compares the text with what this file says.
 *
 * An instruction is 128 bits, `low` and `high` here. Bits 0 to 11 say what it does (0 to 8) and where its operands lie
 * (9 to 11: 1 registers, 2 immediate in b, 4 immediate in c, ...), registers are at 24 (a), 32 (b) and 64 (c); 255 is
 * RZ, the zero. An opcode that the table does not have is reported as not known, whatever it looks like.
 */
#include <stdio.h>

#include "verify/scan.h"

enum { RZ = 255 };

enum what {
    W_PLAIN,
    W_HMMA,
    W_IMMA,
    W_DMMA,
    W_BMMA,
    W_QMMA,
    W_OMMA,
    W_HGMMA,
    W_IGMMA,
    W_QGMMA,
    W_UTCMMA,
    W_HADD2,
    W_HFMA2,
    W_HMUL2,
    W_F2F,
    W_F2FP,
    W_I2F,
    W_MUFU,
    W_STORE,
    W_REDUCE,  /* RED, ATOM and ATOMG with the types of sm_80 */
    W_REDUCE2, /* those of floating types from sm_90 on */
    W_UBLKCP,
    W_UBLKRED,
    W_LOCAL,
    W_CLOCK, /* S2R, CS2R: if they read a clock */
    W_TRAP,
    W_CALL,
    W_IDP,
};

typedef struct opcode {
    uint16_t code;
    uint8_t generations; /* 1: before sm_100; 2: from it on. 0x235 is HFMA2.MMA in one and IADD in the other */
    uint8_t what;
    char name[16];
} opcode;

/* Sorted by code, then generations. */
static const opcode opcodes[] = {
#include "verify/scan_sass_table.h"
};

static const char *const type_names[] = {"",
#define STITCH__SCAN_TYPE_TEXT(name, text) text,
                                         STITCH__SCAN_TYPE_LIST(STITCH__SCAN_TYPE_TEXT)
#undef STITCH__SCAN_TYPE_TEXT
};

static const char *const kind_names[] = {
    "other",
#define STITCH__SCAN_KIND_TEXT(name, text) text,
    STITCH__SCAN_KIND_LIST(STITCH__SCAN_KIND_TEXT)
#undef STITCH__SCAN_KIND_TEXT
        "not known",
};

const char *stitch__scan_type_name(int type)
{
    return type >= 0 && type < (int)STITCH__COUNT(type_names) ? type_names[type] : "?";
}

const char *stitch__scan_kind_name(int kind)
{
    return kind >= 0 && kind < (int)STITCH__COUNT(kind_names) ? kind_names[kind] : "?";
}

bool stitch__sass_arch_known(int number)
{
    static const int known[] = {80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
    for (size_t i = 0; i < STITCH__COUNT(known); i++) {
        if (known[i] == number)
            return true;
    }
    return false;
}

static unsigned bits(uint64_t word, int at, int count)
{
    return (unsigned)(word >> at & ((1u << count) - 1));
}

static void set(stitch__sass *s, int kind, int a, int b, int acc)
{
    s->kind = kind;
    s->a = a;
    s->b = b;
    s->acc = acc;
}

/* Operand type of QMMA: one bit, and two more from sm_120 on. */
static int quarter(unsigned code)
{
    static const uint8_t types[8] = {STITCH__SCAN_E4M3,         STITCH__SCAN_E5M2,         STITCH__SCAN_UNKNOWN,
                                     STITCH__SCAN_NARROW_FLOAT, STITCH__SCAN_NARROW_FLOAT, STITCH__SCAN_NARROW_FLOAT,
                                     STITCH__SCAN_UNKNOWN,      STITCH__SCAN_UNKNOWN};
    return types[code & 7];
}

static void tensor_half(stitch__sass *s, unsigned type, bool f32)
{
    static const uint8_t types[4] = {STITCH__SCAN_F16, STITCH__SCAN_BF16, STITCH__SCAN_TF32, STITCH__SCAN_UNKNOWN};
    int t = types[type & 3];
    set(s, STITCH__SCAN_TENSOR, t, t, f32 ? STITCH__SCAN_F32 : STITCH__SCAN_F16);
}

/* The fifth generation's products: bits 72 and 73 say which, and 48 to 55 the register of the block scales (255: none).
 * UTCOMMA has the same bits as UTCHMMA but for bit 63, which goes with its scales. */
static void tensor_utc(stitch__sass *s, uint64_t low, uint64_t high)
{
    unsigned which = bits(high, 8, 2);
    bool scaled = bits(low, 48, 8) != RZ;
    if (which == 0 && !scaled) {
        snprintf(s->name, sizeof(s->name), "UTCHMMA");
        set(s, STITCH__SCAN_TENSOR, STITCH__SCAN_UNDECIDED, STITCH__SCAN_UNDECIDED, STITCH__SCAN_UNKNOWN);
    } else if (which == 0 && bits(low, 63, 1)) {
        snprintf(s->name, sizeof(s->name), "UTCOMMA");
        set(s, STITCH__SCAN_TENSOR, STITCH__SCAN_NARROW_FLOAT, STITCH__SCAN_NARROW_FLOAT, STITCH__SCAN_F32);
    } else if (which == 1 && !scaled) {
        snprintf(s->name, sizeof(s->name), "UTCIMMA");
        set(s, STITCH__SCAN_TENSOR, STITCH__SCAN_INT8, STITCH__SCAN_INT8, STITCH__SCAN_INT32);
    } else if (which == 3) { /* E4M3 stands for all of kind::f8f6f4 */
        snprintf(s->name, sizeof(s->name), "UTCQMMA");
        set(s, STITCH__SCAN_TENSOR, STITCH__SCAN_E4M3, STITCH__SCAN_E4M3, STITCH__SCAN_UNKNOWN);
    } else {
        snprintf(s->name, sizeof(s->name), "UTC?MMA");
        set(s, STITCH__SCAN_TENSOR, STITCH__SCAN_UNKNOWN, STITCH__SCAN_UNKNOWN, STITCH__SCAN_UNKNOWN);
    }
}

static void tensor(stitch__sass *s, int what, uint64_t low, uint64_t high)
{
    int integer;
    switch (what) {
    case W_HMMA: tensor_half(s, bits(high, 18, 2), bits(high, 12, 1)); break;
    case W_HGMMA: tensor_half(s, bits(high, 12, 2), bits(high, 11, 1)); break;
    case W_DMMA: set(s, STITCH__SCAN_TENSOR, STITCH__SCAN_F64, STITCH__SCAN_F64, STITCH__SCAN_F64); break;
    case W_BMMA: set(s, STITCH__SCAN_TENSOR, STITCH__SCAN_BIT, STITCH__SCAN_BIT, STITCH__SCAN_INT32); break;
    case W_IMMA:
        integer = bits(high, 19, 2) == 3 ? STITCH__SCAN_INT4 : STITCH__SCAN_INT8;
        set(s, STITCH__SCAN_TENSOR, integer, integer, STITCH__SCAN_INT32);
        break;
    case W_IGMMA: set(s, STITCH__SCAN_TENSOR, STITCH__SCAN_INT8, STITCH__SCAN_INT8, STITCH__SCAN_INT32); break;
    case W_QMMA:
        set(s, STITCH__SCAN_TENSOR, quarter(bits(high, 14, 1) | bits(high, 18, 2) << 1),
            quarter(bits(high, 15, 1) | bits(high, 20, 2) << 1),
            bits(high, 13, 1) ? STITCH__SCAN_F32 : STITCH__SCAN_F16);
        break;
    case W_OMMA:
        set(s, STITCH__SCAN_TENSOR, STITCH__SCAN_NARROW_FLOAT, STITCH__SCAN_NARROW_FLOAT, STITCH__SCAN_F32);
        break;
    case W_QGMMA:
        set(s, STITCH__SCAN_TENSOR, bits(high, 12, 1) ? STITCH__SCAN_E5M2 : STITCH__SCAN_E4M3,
            bits(high, 13, 1) ? STITCH__SCAN_E5M2 : STITCH__SCAN_E4M3,
            bits(high, 11, 1) ? STITCH__SCAN_F32 : STITCH__SCAN_F16);
        break;
    default: tensor_utc(s, low, high); break;
    }
}

/* Compilers move constants and take absolute values with these: an operand that is RZ makes them no arithmetic. */
static void half(stitch__sass *s, int what, unsigned form, uint64_t low, uint64_t high)
{
    int type = bits(high, 21, 1) ? STITCH__SCAN_BF16 : STITCH__SCAN_F16;
    bool zero = bits(low, 24, 8) == RZ || (form == 1 && bits(low, 32, 8) == RZ);
    if (what == W_HFMA2 && form == 2 && bits(high, 0, 8) == RZ)
        zero = true;                            /* the addend is the immediate, the second factor lies where c does */
    if (what == W_HADD2 && bits(high, 14, 1)) { /* .F32: the sum of two halves is rounded to float32 */
        set(s, STITCH__SCAN_WIDEN, STITCH__SCAN_F32, STITCH__SCAN_F16, 0);
        return;
    }
    if (!zero)
        set(s, STITCH__SCAN_HALF, type, 0, 0);
}

static int float_type(unsigned code)
{
    static const uint8_t types[8] = {STITCH__SCAN_UNKNOWN, STITCH__SCAN_F16,    STITCH__SCAN_F32,
                                     STITCH__SCAN_F64,     STITCH__SCAN_BF16,   STITCH__SCAN_UNKNOWN,
                                     STITCH__SCAN_UNKNOWN, STITCH__SCAN_UNKNOWN};
    return types[code & 7];
}

static void convert(stitch__sass *s, int to, int from)
{
    bool widens = to == STITCH__SCAN_F64 || (to == STITCH__SCAN_F32 && from != STITCH__SCAN_F64) || to == from ||
                  (to == STITCH__SCAN_F16 && (from == STITCH__SCAN_E4M3 || from == STITCH__SCAN_E5M2));
    widens = widens && to != STITCH__SCAN_UNKNOWN;
    set(s, widens ? STITCH__SCAN_WIDEN : STITCH__SCAN_CONVERT, to, from, 0);
}

/* Bits 76 to 78: the format (79: rounded to zero); 89: from or to a single 8-bit (or TF32) value; 90: beside what c
 * has.
 */
static void convert_pack(stitch__sass *s, uint64_t high)
{
    unsigned format = bits(high, 12, 3);
    if (bits(high, 26, 1)) {
        int from = format & 4 ? STITCH__SCAN_F32 : STITCH__SCAN_F16, to = STITCH__SCAN_NARROW_FLOAT;
        if (bits(high, 21, 3) == 4)
            to = format & 1 ? STITCH__SCAN_E4M3 : STITCH__SCAN_E5M2;
        convert(s, to, from);
    } else if (bits(high, 25, 1)) {
        if (format == 5)
            convert(s, STITCH__SCAN_TF32, STITCH__SCAN_F32);
        else if (format == 0 && bits(high, 21, 2) == 0)
            convert(s, STITCH__SCAN_F16, bits(high, 9, 1) ? STITCH__SCAN_E4M3 : STITCH__SCAN_E5M2);
        else
            convert(s, STITCH__SCAN_UNKNOWN, STITCH__SCAN_UNKNOWN);
    } else if (format < 2) {
        convert(s, format ? STITCH__SCAN_BF16 : STITCH__SCAN_F16, STITCH__SCAN_F32);
    } else {
        convert(s, STITCH__SCAN_UNKNOWN, STITCH__SCAN_UNKNOWN);
    }
}

/* Bit 72 is .F16 and 73 .BF16 from sm_90 on; before, 73 is .F16. */
static void special(stitch__sass *s, int arch, uint64_t high)
{
    static const char *const functions[16] = {"COS",    "SIN",    "EX2",  "LG2",  "RCP", "RSQ",
                                              "RCP64H", "RSQ64H", "SQRT", "TANH", NULL};
    const char *function = functions[bits(high, 10, 4)];
    bool bf16 = arch >= 90 && bits(high, 9, 1);
    snprintf(s->name, sizeof(s->name), "MUFU.%s", function ? function : "?");
    if (bits(high, 8, 2))
        set(s, STITCH__SCAN_HALF, bf16 ? STITCH__SCAN_BF16 : STITCH__SCAN_F16, 0, 0);
    else
        set(s, STITCH__SCAN_APPROX, STITCH__SCAN_F32, 0, 0);
}

/* Stores whose result may be rounded to half; `acc` keeps that, for the kind can be only one. */
static void reduce(stitch__sass *s, int what, uint64_t high)
{
    unsigned type = what == W_UBLKRED ? bits(high, 17, 4) : what == W_REDUCE2 ? bits(high, 9, 4) : bits(high, 9, 3);
    int half_type = 0;
    if (what == W_REDUCE && type == 4)
        half_type = STITCH__SCAN_F16;
    else if (what == W_REDUCE2 && type < 3) /* pairs, 4 and 8 of them */
        half_type = STITCH__SCAN_F16;
    else if (what == W_REDUCE2 && type < 6)
        half_type = STITCH__SCAN_BF16;
    else if (what == W_UBLKRED && (type == 4 || type == 8))
        half_type = type == 4 ? STITCH__SCAN_F16 : STITCH__SCAN_BF16;
    set(s, STITCH__SCAN_STORE, 0, 0, half_type);
}

static const opcode *find(unsigned code, unsigned generation)
{
    size_t low = 0, high = STITCH__COUNT(opcodes);
    while (low < high) { /* the first with this code */
        size_t middle = (low + high) / 2;
        if (opcodes[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < STITCH__COUNT(opcodes) && opcodes[low].code == code; low++) {
        if (opcodes[low].generations & generation)
            return &opcodes[low];
    }
    return NULL;
}

/* Bits 9 to 11 say where the operands come from (registers, a constant, the instruction itself), the nine below which
 * instruction it is: every form in the table agrees on that. So a form that is not in it is known from its siblings,
 * where none of them has to be looked at further. */
static const opcode *find_sibling(unsigned code, unsigned generation)
{
    const opcode *found = NULL;
    for (size_t i = 0; i < STITCH__COUNT(opcodes); i++) {
        const opcode *o = &opcodes[i];
        if ((o->code & 0x1ff) != (code & 0x1ff) || !(o->generations & generation))
            continue;
        if (o->what != W_PLAIN)
            return NULL;
        found = o;
    }
    return found;
}

void stitch__sass_decode(int arch, uint64_t low, uint64_t high, stitch__sass *out)
{
    unsigned code = bits(low, 0, 12);
    unsigned generation = arch < 100 ? 1 : 2;
    const opcode *o = find(code, generation);
    memset(out, 0, sizeof(*out));
    if (!o)
        o = find_sibling(code, generation);
    if (!o) {
        out->kind = STITCH__SCAN_NOT_KNOWN;
        snprintf(out->name, sizeof(out->name), "op 0x%03x", code);
        return;
    }
    snprintf(out->name, sizeof(out->name), "%s", o->name);
    switch (o->what) {
    case W_PLAIN: break;
    case W_HADD2:
    case W_HFMA2:
    case W_HMUL2: half(out, o->what, bits(low, 9, 3), low, high); break;
    case W_F2F: convert(out, float_type(bits(high, 11, 3)), float_type(bits(high, 20, 2))); break;
    case W_F2FP: convert_pack(out, high); break;
    case W_I2F: /* integers become halves without having been float32 */
        if (float_type(bits(high, 11, 3)) == STITCH__SCAN_F16 || float_type(bits(high, 11, 3)) == STITCH__SCAN_BF16)
            set(out, STITCH__SCAN_CONVERT, float_type(bits(high, 11, 3)), STITCH__SCAN_INT32, 0);
        break;
    case W_MUFU: special(out, arch, high); break;
    case W_STORE: set(out, STITCH__SCAN_STORE, 0, 0, 0); break;
    case W_REDUCE:
    case W_REDUCE2:
    case W_UBLKRED: reduce(out, o->what, high); break;
    case W_UBLKCP: /* .G.S, from shared to global memory */
        if (bits(high, 9, 2) == 2)
            set(out, STITCH__SCAN_STORE, 0, 0, 0);
        break;
    case W_LOCAL: set(out, STITCH__SCAN_LOCAL, 0, 0, 0); break;
    case W_CLOCK: /* SR_CLOCKLO, SR_CLOCKHI, SR_GLOBALTIMERLO, SR_GLOBALTIMERHI */
        if (bits(high, 8, 8) >= 0x50 && bits(high, 8, 8) <= 0x53)
            set(out, STITCH__SCAN_CLOCK, 0, 0, 0);
        break;
    case W_TRAP: set(out, STITCH__SCAN_TRAP, 0, 0, 0); break;
    case W_CALL: set(out, STITCH__SCAN_CALL, 0, 0, 0); break;
    case W_IDP: set(out, STITCH__SCAN_DOT, STITCH__SCAN_INT8, STITCH__SCAN_INT8, STITCH__SCAN_INT32); break;
    default: tensor(out, o->what, low, high); break;
    }
}

bool stitch__sass_computes(const stitch__sass *s)
{
    /* Of those that are of no interest otherwise, and of stores; integers are indices here. */
    static const char *const names[] = {
        "ATOM",   "ATOMG", "ATOMS", "CALL",  "CREDUX", "DADD",    "DFMA",     "DMUL",     "DSETP",    "FADD",
        "FCHK",   "FFMA",  "FFMA2", "FMNMX", "FMUL",   "FRND",    "FSET",     "FSETP",    "HMNMX2",   "HSET2",
        "HSETP2", "RED",   "REDUX", "SURED", "TEX",    "UBLKRED", "UTMAREDG", "VABSDIFF", "VABSDIFF4"};
    if (s->kind == STITCH__SCAN_TENSOR || s->kind == STITCH__SCAN_DOT || s->kind == STITCH__SCAN_HALF ||
        s->kind == STITCH__SCAN_APPROX || s->kind == STITCH__SCAN_CALL || s->kind == STITCH__SCAN_NOT_KNOWN)
        return true;
    if (s->kind != STITCH__SCAN_PLAIN && s->kind != STITCH__SCAN_STORE)
        return false;
    for (size_t i = 0; i < STITCH__COUNT(names); i++) {
        if (strcmp(s->name, names[i]) == 0)
            return true;
    }
    return false;
}

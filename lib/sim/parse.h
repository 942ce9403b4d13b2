/* SPDX-License-Identifier: MIT
 *
 * Inside of the PTX front end: tokens, names, operands as written, and what the decoders use.
 *
 * lex.c makes tokens, parse_module.c reads directives and variables, parse_body.c function bodies, decode_*.c turn one
 * instruction each into IR. Malformed text sets `failed` and every function unwinds; an instruction that is well formed
 * but not run by the interpreter only marks its function as refused.
 */
#ifndef STITCH_LIB_SIM_PARSE_H
#define STITCH_LIB_SIM_PARSE_H

#include "sim/alu.h"
#include "sim/ir.h"

typedef enum ptx_token_kind {
    PTX_EOF,
    PTX_ID,   /* a name */
    PTX_DOT,  /* .word, with ::word parts; text leaves the dot out */
    PTX_INT,  /* value */
    PTX_F32,  /* value: bits of a float (0f...) */
    PTX_F64,  /* value: bits of a double */
    PTX_STR,  /* text without quotes */
    PTX_PUNCT /* text[0] */
} ptx_token_kind;

typedef struct ptx_token {
    ptx_token_kind kind;
    const char *text;
    uint32_t len, line;
    uint64_t value;
    bool glued; /* no white space before it */
} ptx_token;

typedef enum ptx_symbol_kind {
    PTX_SYM_REG,     /* index: first virtual register; count */
    PTX_SYM_VAR,     /* index in module->variables */
    PTX_SYM_SHARED,  /* shared variable */
    PTX_SYM_LOCAL,   /* offset in local memory */
    PTX_SYM_PARAM,   /* kernel parameter: offset */
    PTX_SYM_SCRATCH, /* parameter of a call or of a device function: offset in the scratch area */
    PTX_SYM_FUNC,
    PTX_SYM_PROTO, /* .callprototype: index in parser->protos */
    PTX_SYM_TABLE  /* .branchtargets: index in parser->tables */
} ptx_symbol_kind;

typedef struct ptx_symbol {
    const char *name;
    uint32_t len, hash;
    ptx_symbol_kind kind;
    bool ranged;
    uint32_t index, count;
    uint8_t bank, num;
    uint64_t size;
    stitch__shared_var *shared;
    int32_t next; /* in the hash bucket */
    uint32_t scope;
} ptx_symbol;

typedef enum ptx_operand_kind {
    PTX_O_NONE,
    PTX_O_REG,
    PTX_O_SREG,
    PTX_O_INT,
    PTX_O_F32,
    PTX_O_F64,
    PTX_O_SYM,  /* symbol + imm */
    PTX_O_NAME, /* unknown name: a label */
    PTX_O_VEC,  /* sub[first .. first + count) */
    PTX_O_ADDR, /* [base + imm]: base in sub[first], further parts behind it */
    PTX_O_LIST, /* ( ... ) of a call */
    PTX_O_SINK  /* _ */
} ptx_operand_kind;

typedef struct ptx_operand {
    ptx_operand_kind kind;
    uint32_t reg; /* virtual register or special register */
    uint8_t bank, num;
    bool negated; /* !p */
    int32_t pair; /* a|b: index of b in sub[], or -1 */
    uint64_t value;
    int64_t imm;
    const ptx_symbol *symbol;
    ptx_token name;
    uint32_t first, count;
} ptx_operand;

#define PTX_MAX_MODS     24
#define PTX_MAX_OPERANDS 16
#define PTX_MAX_SUB      320

typedef struct ptx_fixup { /* a branch to a label not known yet */
    uint32_t instr;
    uint32_t scope, line;
    const char *name;
    uint32_t len;
    uint32_t *table_slot; /* an entry of a jump table instead of instr.imm */
} ptx_fixup;

typedef struct ptx_label {
    const char *name;
    uint32_t len, scope, instr, hash;
    int32_t next;
} ptx_label;

typedef struct ptx_table {
    uint32_t count, scope, line;
    ptx_token *names;
} ptx_table;

typedef struct ptx_loc {
    uint32_t file, line, column, place_inlined; /* place_inlined: index + 1 */
    const char *function_label;
    uint32_t function_len;
} ptx_loc;

typedef struct ptx_parser {
    stitch__sim_module *m;
    const char *text, *pos, *end, *what;
    uint32_t line;
    ptx_token tok;
    bool failed, nomem;
    char error[512];

    ptx_symbol *symbols;
    size_t symbol_count, symbol_cap;
    int32_t buckets[4096];
    uint32_t scope, scope_count;
    uint32_t *scope_parent;
    size_t scope_cap;

    /* current function */
    stitch__sim_function *f;
    stitch__instr *code;
    size_t code_count, code_cap;
    ptx_fixup *fixups;
    size_t fixup_count, fixup_cap;
    ptx_label *labels;
    size_t label_count, label_cap;
    ptx_table *tables;
    size_t table_count, table_cap;
    uint32_t *const_index; /* open-addressing table over f->consts, entries + 1 */
    size_t const_index_cap;
    uint32_t bytes_mask;
    uint32_t place; /* index in module->places; 0: none */

    /* the instruction being read */
    char mnemonic[192];
    ptx_token mods[PTX_MAX_MODS];
    uint32_t mod_count;
    uint64_t mod_used; /* bit per mod */
    char op[32];
    ptx_operand operands[PTX_MAX_OPERANDS];
    uint32_t operand_count;
    ptx_operand sub[PTX_MAX_SUB];
    uint32_t sub_count;
    uint32_t guard;
    bool guard_not;
    uint32_t instr_line;

    ptx_loc *locs; /* parallel to m->places */
    size_t loc_cap;
    int32_t *loc_buckets; /* 4096 */
    int32_t *loc_next;
    size_t loc_next_cap;
    struct {
        uint32_t number;
        char *name;
    } * files;
    size_t file_count, file_cap;
    struct {
        const char *label;
        uint32_t len;
        char *text;
    } * strings;
    size_t string_count, string_cap;
} ptx_parser;

/* ---- lex.c ---- */
void ptx_next(ptx_parser *p);
STITCH__PRINTF(2, 3) bool ptx_fail(ptx_parser *p, const char *fmt, ...); /* returns false; keeps the first message */
bool ptx_nomem(ptx_parser *p);
static inline bool ptx_is(const ptx_parser *p, char punct)
{
    return p->tok.kind == PTX_PUNCT && p->tok.text[0] == punct;
}
bool ptx_accept(ptx_parser *p, char punct);
bool ptx_expect(ptx_parser *p, char punct);
bool ptx_word(const ptx_token *t, const char *word); /* the text of t is `word` */
int ptx_sreg(const char *name, uint32_t len);        /* stitch__sreg or -1 */

/* ---- parse_module.c ---- */
ptx_symbol *ptx_define(ptx_parser *p, ptx_token name, ptx_symbol_kind kind);
ptx_symbol *ptx_lookup(ptx_parser *p, ptx_token name, uint32_t *number); /* number: offset in a register range */
bool ptx_scope_enter(ptx_parser *p);
void ptx_scope_leave(ptx_parser *p, size_t symbols, uint32_t scope);
/* Type word of a declaration: bytes of an element and its bank; false if it is none. */
bool ptx_decl_type(const ptx_token *t, uint32_t *size, uint8_t *bank, uint8_t *num);
/* .align 4 .b8 name[16]: parses from the type or .align on, up to the name and its dimensions. */
typedef struct ptx_decl {
    ptx_token name;
    uint32_t elem_size, align;
    uint64_t size;
    bool open_array, pointer;
    uint8_t bank, num;
} ptx_decl;
bool ptx_parse_decl(ptx_parser *p, ptx_decl *d);
bool ptx_parse_loc(ptx_parser *p);
bool ptx_parse_file(ptx_parser *p);
bool ptx_skip_section(ptx_parser *p);
bool ptx_place_here(ptx_parser *p, uint32_t *place); /* of the instruction on p->instr_line */
stitch__shared_var *ptx_shared_declare(ptx_parser *p, const ptx_decl *d, bool dynamic);
bool ptx_constant_int(ptx_parser *p, int64_t *out); /* optional sign, number */

/* ---- parse_body.c ---- */
bool ptx_parse_body(ptx_parser *p);
/* An instruction slot filled with guard, place and line; NULL when out of memory. Valid until the next call. */
stitch__instr *ptx_emit(ptx_parser *p);
uint32_t ptx_vreg(ptx_parser *p, uint8_t bank); /* a fresh one, as an operand */
/* A constant operand. */
uint32_t ptx_const(ptx_parser *p, uint64_t value, bool wide);
uint32_t ptx_const_ref(ptx_parser *p, bool wide, uint8_t kind, uint32_t ref, uint64_t addend);
bool ptx_branch_fixup(ptx_parser *p, uint32_t instr, ptx_token name, uint32_t *table_slot);

/* ---- decode_*.c: false only if parsing must stop; they refuse with ptx_refuse() ---- */
bool ptx_decode(ptx_parser *p);
STITCH__PRINTF(2, 3) bool ptx_refuse(ptx_parser *p, const char *fmt, ...); /* returns true */

bool ptx_mod(ptx_parser *p, const char *word);                          /* takes the modifier if present */
bool ptx_mod_prefix(ptx_parser *p, const char *prefix, ptx_token *out); /* takes the first one that starts so */
stitch__num ptx_type(ptx_parser *p); /* takes the next unused modifier that names a scalar type */
uint32_t ptx_num_bits(stitch__num t);
bool ptx_num_signed(stitch__num t);
bool ptx_num_float(stitch__num t);
uint8_t ptx_bank(uint32_t bits);
/* Operands as IR. `bits`: 16, 32, 64, or 1 for predicates. They refuse and return 0 if it does not fit. */
uint32_t ptx_dst(ptx_parser *p, const ptx_operand *o, uint32_t bits);
uint32_t ptx_src(ptx_parser *p, const ptx_operand *o, stitch__num type, uint32_t bits);
uint32_t ptx_src_pred(ptx_parser *p, const ptx_operand *o); /* plain; a negated one gets its own instruction */
const ptx_operand *ptx_arg(ptx_parser *p, uint32_t index);  /* &operands[index], refuses and returns NULL if missing */
/* Addresses: fills o[at] (a 32- or 64-bit base), imm and the ADDR64 flag. */
bool ptx_address(ptx_parser *p, const ptx_operand *o, stitch__instr *in, uint32_t at, stitch__sim_space space);
stitch__sim_space ptx_space(ptx_parser *p); /* takes .global, .shared, .shared::cta ... */
bool ptx_refused(const ptx_parser *p);
/* An instruction that a function runs. NULL: refused, or parsing has failed; `return !p->failed` is right for both. */
stitch__instr *ptx_emit_fn(ptx_parser *p, stitch__exec_fn fn, stitch__sim_class cls);
/* Its operands, the `defs` that it writes first. */
void ptx_operands(stitch__instr *in, uint8_t defs, const uint32_t *o, size_t count);
#define PTX_OPERANDS(in, defs, ...)                                                                                    \
    ptx_operands(in, defs, (const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
uint32_t ptx_address64(ptx_parser *p, const ptx_operand *o,
                       stitch__sim_space space); /* decode_async.c: in one 64-bit register */
uint32_t *ptx_more(ptx_parser *p, stitch__instr *in, uint32_t count);
void ptx_note_access(ptx_parser *p, stitch__sim_space space, uint32_t size, bool talks);

/* ---- decode_arith.c: what decode_convert.c uses as well ---- */
stitch__sim_class ptx_class(stitch__num t);
bool ptx_emit_lanes(ptx_parser *p, stitch__lanes_fn fn, uint32_t d, uint32_t a, uint32_t b, uint32_t c,
                    stitch__sim_class cls, uint32_t flops);
bool ptx_emit_alu(ptx_parser *p, stitch__alu op, uint32_t d, uint32_t a, uint32_t b, uint32_t c);
bool ptx_emit_pred(ptx_parser *p, int what); /* predicate logic: STITCH__BOOL_* */
stitch__round ptx_round(ptx_parser *p);      /* takes the rounding modifier */
uint8_t ptx_flags(ptx_parser *p);            /* takes .ftz, .sat and the like: STITCH__FTZ ... */

bool ptx_dec_arith(ptx_parser *p, int op); /* decode_arith.c */
bool ptx_dec_logic(ptx_parser *p, int op);
bool ptx_dec_bits(ptx_parser *p, int op);
bool ptx_dec_cvt(ptx_parser *p, int op);
bool ptx_dec_float(ptx_parser *p, int op);
bool ptx_dec_compare(ptx_parser *p, int op);
bool ptx_dec_move(ptx_parser *p, int op);
bool ptx_dec_control(ptx_parser *p, int op); /* decode_flow.c */
bool ptx_dec_call(ptx_parser *p, int op);
bool ptx_dec_ldst(ptx_parser *p, int op); /* decode_memory.c */
bool ptx_dec_atom(ptx_parser *p, int op);
bool ptx_dec_hint(ptx_parser *p, int op);
bool ptx_dec_cp(ptx_parser *p, int op); /* decode_async.c */
bool ptx_dec_mbarrier(ptx_parser *p, int op);
bool ptx_dec_warp(ptx_parser *p, int op); /* decode_warp.c */
bool ptx_dec_barrier(ptx_parser *p, int op);
bool ptx_dec_matrix(ptx_parser *p, int op); /* decode_matrix.c */

#endif

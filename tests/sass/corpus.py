# SPDX-License-Identifier: MIT
"""Small PTX kernels, one for each kind of arithmetic, that the tables of lib/verify/scan_sass.c were derived from.

kernels() yields (name, lowest architecture, body). A body may use the registers that ptx() declares: %h (16 bits), %r
(32 bits), %f (f32), %d (f64), %q (64 bits), %p1 to %p3.
"""


import re


def regs(kind, first, count):
    return "{" + ",".join(f"%{kind}{i}" for i in range(first, first + count)) + "}"


def mma():
    """(name, arch, shape and types, registers of a, b, c)"""
    shapes = [
        ("m16n8k8", "f16", "f16", 2, 1), ("m16n8k16", "f16", "f16", 4, 2),
        ("m16n8k8", "bf16", "f32", 2, 1), ("m16n8k16", "bf16", "f32", 4, 2),
        ("m16n8k4", "tf32", "f32", 2, 1), ("m16n8k8", "tf32", "f32", 4, 2),
    ]
    for shape, t, least, a, b in shapes:
        for acc in ["f16", "f32"] if least == "f16" else ["f32"]:
            n = 2 if acc == "f16" else 4
            k = "r" if acc == "f16" else "f"
            yield (f"mma_{shape}_{t}_{acc}", "80",
                   f"mma.sync.aligned.{shape}.row.col.{acc}.{t}.{t}.{acc} {regs(k, 40, n)},{regs('r', 0, a)},"
                   f"{regs('r', 4, b)},{regs(k, 40, n)};")
    for shape, t, a, b in [("m16n8k16", "s8", 2, 1), ("m16n8k32", "s8", 4, 2), ("m16n8k32", "u8", 4, 2),
                           ("m16n8k32", "s4", 2, 1), ("m16n8k64", "s4", 4, 2), ("m16n8k64", "u4", 4, 2)]:
        for sat in ["", ".satfinite"]:
            yield (f"mma_{shape}_{t}{sat[:4].replace('.', '_')}", "80",
                   f"mma.sync.aligned.{shape}.row.col{sat}.s32.{t}.{t}.s32 {regs('r', 40, 4)},{regs('r', 0, a)},"
                   f"{regs('r', 4, b)},{regs('r', 40, 4)};")
    for op in ["xor", "and"]:
        for shape, a, b in [("m16n8k128", 2, 1), ("m16n8k256", 4, 2)]:
            yield (f"mma_{shape}_b1_{op}", "80",
                   f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{op}.popc {regs('r', 40, 4)},{regs('r', 0, a)},"
                   f"{regs('r', 4, b)},{regs('r', 40, 4)};")
    yield ("mma_m8n8k4_f64", "80", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d4,%d5},{%d0},{%d1},{%d4,%d5};")
    for shape, a, b in [("m16n8k4", 2, 1), ("m16n8k8", 4, 2), ("m16n8k16", 8, 4)]:
        yield (f"mma_{shape}_f64", "90",
               f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64 {regs('d', 16, 4)},{regs('d', 0, a)},"
               f"{regs('d', 8, b)},{regs('d', 16, 4)};")
    for shape, t, a, b in [("m16n8k16", "f16", 2, 2), ("m16n8k32", "f16", 4, 4), ("m16n8k16", "bf16", 2, 2),
                           ("m16n8k32", "bf16", 4, 4), ("m16n8k8", "tf32", 2, 2), ("m16n8k16", "tf32", 4, 4)]:
        yield (f"mmasp_{shape}_{t}", "80",
               f"mma.sp::ordered_metadata.sync.aligned.{shape}.row.col.f32.{t}.{t}.f32 {regs('f', 40, 4)},"
               f"{regs('r', 0, a)},{regs('r', 4, b)},{regs('f', 40, 4)},%r9,0x0;")
    yield ("mmasp_m16n8k64_s8", "80",
           f"mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {regs('r', 40, 4)},"
           f"{regs('r', 0, 4)},{regs('r', 4, 4)},{regs('r', 40, 4)},%r9,0x0;")
    for acc in ["f16", "f32"]:
        for ta in ["e4m3", "e5m2"]:
            for tb in ["e4m3", "e5m2"]:
                for shape, a, b in [("m16n8k16", 2, 1), ("m16n8k32", 4, 2)]:
                    k, n = ("r", 2) if acc == "f16" else ("f", 4)
                    yield (f"mma_{shape}_{ta}_{tb}_{acc}", "89",
                           f"mma.sync.aligned.{shape}.row.col.{acc}.{ta}.{tb}.{acc} {regs(k, 40, n)},{regs('r', 0, a)},"
                           f"{regs('r', 4, b)},{regs(k, 40, n)};")
    for ta, tb in [("e2m1", "e2m1"), ("e4m3", "e2m1"), ("e3m2", "e2m3"), ("e5m2", "e5m2"), ("e2m1", "e4m3")]:
        for acc in ["f32", "f16"]:
            k, n = ("r", 2) if acc == "f16" else ("f", 4)
            yield (f"mma_f8f6f4_{ta}_{tb}_{acc}", "120a",
                   f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.{acc}.{ta}.{tb}.{acc} {regs(k, 40, n)},"
                   f"{regs('r', 0, 4)},{regs('r', 4, 2)},{regs(k, 40, n)};")
    for kind, shape, t, size, scale in [("mxf4", "m16n8k64", "e2m1", "2X", "ue8m0"),
                                        ("mxf4nvf4", "m16n8k64", "e2m1", "4X", "ue4m3"),
                                        ("mxf8f6f4", "m16n8k32", "e4m3", "1X", "ue8m0")]:
        yield (f"mma_{kind}", "120a",
               f"mma.sync.aligned.{shape}.row.col.kind::{kind}.block_scale.scale_vec::{size}.f32.{t}.{t}.f32.{scale} "
               f"{regs('f', 40, 4)},{regs('r', 0, 4)},{regs('r', 4, 2)},{regs('f', 40, 4)},"
               "{%r9},{0,0},{%r10},{0,0};")


def wgmma():
    for t, k, acc, tail in [("f16", 16, "f32", "1,1,0,0"), ("f16", 16, "f16", "1,1,0,0"), ("bf16", 16, "f32", "1,1,0,0"),
                            ("tf32", 8, "f32", "1,1"), ("e4m3", 32, "f32", "1,1"), ("e5m2", 32, "f32", "1,1"),
                            ("e4m3", 32, "f16", "1,1"), ("e5m2", 32, "f16", "1,1")]:
        for other in ["e4m3", "e5m2"] if k == 32 else [t]:
            kind, n = ("r", 2) if acc == "f16" else ("f", 4)
            yield (f"wgmma_{t}_{other}_{acc}", "90a",
                   "wgmma.fence.sync.aligned;\n"
                   f"wgmma.mma_async.sync.aligned.m64n8k{k}.{acc}.{t}.{other} {regs(kind, 40, n)},%q1,%q2,%p1,{tail};\n"
                   "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;")
            yield (f"wgmma_reg_{t}_{other}_{acc}", "90a",
                   "wgmma.fence.sync.aligned;\n"
                   f"wgmma.mma_async.sync.aligned.m64n8k{k}.{acc}.{t}.{other} {regs(kind, 40, n)},{regs('r', 0, 4)},%q2,"
                   f"%p1,{tail[:-2] if k == 16 else tail};\n"
                   "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;")
    for t in ["s8", "u8"]:
        for sat in ["", ".satfinite"]:
            yield (f"wgmma_{t}{sat.replace('.', '_')}", "90a",
                   "wgmma.fence.sync.aligned;\n"
                   f"wgmma.mma_async.sync.aligned.m64n8k32{sat}.s32.{t}.{t} {regs('r', 40, 4)},%q1,%q2,%p1;\n"
                   "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;")
    yield ("wgmma_b1", "90a",
           "wgmma.fence.sync.aligned;\n"
           f"wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {regs('r', 40, 4)},%q1,%q2,%p1;\n"
           "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;")
    for t, k, acc in [("f16", 32, "f32"), ("bf16", 32, "f32"), ("tf32", 16, "f32"), ("e4m3", 64, "f32")]:
        yield (f"wgmmasp_{t}", "90a",
               "wgmma.fence.sync.aligned;\n"
               f"wgmma.mma_async.sp.sync.aligned.m64n8k{k}.{acc}.{t}.{t} {regs('f', 40, 4)},%q1,%q2,%r9,0,%p1,"
               f"{'1,1,0,0' if t in ('f16', 'bf16') else '1,1'};\n"
               "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;")


def tcgen05():
    for kind in ["f16", "tf32", "f8f6f4", "i8"]:
        for group in ["1", "2"]:
            yield (f"tcgen05_{kind}_{group}", "100a",
                   f"tcgen05.mma.cta_group::{group}.kind::{kind} [%r1],%q1,%q2,%r2,%p1;")
        yield (f"tcgen05_tmem_{kind}", "100a", f"tcgen05.mma.cta_group::1.kind::{kind} [%r1],[%r3],%q2,%r2,%p1;")
        yield (f"tcgen05_ws_{kind}", "100a", f"tcgen05.mma.ws.cta_group::1.kind::{kind} [%r1],%q1,%q2,%r2,%p1;")
        yield (f"tcgen05_sp_{kind}", "100a",
               f"tcgen05.mma.sp.cta_group::1.kind::{kind} [%r1],%q1,%q2,[%r4],%r2,%p1;")
    for kind, size in [("mxf8f6f4", ""), ("mxf4", ".block32"), ("mxf4nvf4", ".block16")]:
        yield (f"tcgen05_{kind}", "100a",
               f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale{size} [%r1],%q1,%q2,%r2,[%r4],[%r5],%p1;")
    yield ("tcgen05_move", "100a",
           "tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r0,%r1,%r2,%r3},[%r4];\ntcgen05.wait::ld.sync.aligned;\n"
           "tcgen05.st.sync.aligned.32x32b.x4.b32 [%r4],{%r0,%r1,%r2,%r3};\ntcgen05.wait::st.sync.aligned;\n"
           "tcgen05.cp.cta_group::1.128x256b [%r4],%q1;\ntcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%q2];")


def half():
    for t, least in [("f16", "80"), ("f16x2", "80"), ("bf16", "90"), ("bf16x2", "90")]:
        k = "r" if t.endswith("x2") else "h"
        for op in ["add", "sub", "mul"]:
            yield f"{op}_{t}", least, f"{op}.rn.{t} %{k}0,%{k}1,%{k}2;"
            yield f"{op}_{t}_imm", least, f"mov.b{32 if k == 'r' else 16} %{k}2,0x3c00; {op}.rn.{t} %{k}0,%{k}1,%{k}2;"
        yield f"fma_{t}", "80", f"fma.rn.{t} %{k}0,%{k}1,%{k}2,%{k}3;"
        yield f"fma_relu_{t}", "80", f"fma.rn.relu.{t} %{k}0,%{k}1,%{k}2,%{k}3;"
        for op in ["min", "max", "min.NaN", "max.NaN"]:
            yield f"{op.replace('.', '_')}_{t}", "80", f"{op}.{t} %{k}0,%{k}1,%{k}2;"
        for op in ["neg", "abs"]:
            yield f"{op}_{t}", "80", f"{op}.{t} %{k}0,%{k}1;"
    for t in ["f16", "bf16"]:
        least = "80" if t == "f16" else "90"
        yield f"setp_{t}", least, f"setp.lt.{t} %p1,%h1,%h2; selp.b32 %r0,%r1,%r2,%p1;"
        yield f"setp_{t}x2", least, f"setp.lt.{t}x2 %p1|%p2,%r1,%r2; selp.b32 %r0,%r1,%r2,%p1; selp.b32 %r1,%r1,%r4,%p2;"
        yield f"set_{t}x2", least, f"set.lt.{t}x2.{t}x2 %r0,%r1,%r2;"
        yield f"ex2_{t}", "80" if t == "f16" else "90", f"ex2.approx{'.ftz' if t == 'bf16' else ''}.{t} %h0,%h1;"
        yield f"tanh_{t}", "80" if t == "f16" else "90", f"tanh.approx.{t} %h0,%h1;"
        yield f"tanh_{t}x2", "80" if t == "f16" else "90", f"tanh.approx.{t}x2 %r0,%r1;"
    yield "red_f16x2", "80", "red.global.add.noftz.f16x2 [%q0],%r1;"
    yield "red_bf16x2", "90", "red.global.add.noftz.bf16x2 [%q0],%r1;"
    yield "atom_f16", "80", "atom.global.add.noftz.f16 %h0,[%q0],%h1;"


def convert():
    for t in ["f16", "bf16", "tf32"]:
        out = "r" if t == "tf32" else "h"
        yield f"cvt_{t}_f32", "80", f"cvt.{'rna' if t == 'tf32' else 'rn'}.{t}.f32 %{out}0,%f0;"
    yield "cvt_rz_f16_f32", "80", "cvt.rz.f16.f32 %h0,%f0;"
    yield "cvt_rn_tf32_f32", "90", "cvt.rn.tf32.f32 %r0,%f0;"
    yield "cvt_rna_sat_tf32_f32", "100", "cvt.rna.satfinite.tf32.f32 %r0,%f0;"
    yield "cvt_f16x2_f32", "80", "cvt.rn.f16x2.f32 %r0,%f0,%f1;"
    yield "cvt_bf16x2_f32", "80", "cvt.rn.bf16x2.f32 %r0,%f0,%f1;"
    yield "cvt_relu_bf16x2_f32", "80", "cvt.rn.relu.bf16x2.f32 %r0,%f0,%f1;"
    yield "cvt_relu_f16x2_f32", "80", "cvt.rn.relu.f16x2.f32 %r0,%f0,%f1;"
    for t in ["e4m3x2", "e5m2x2"]:
        yield f"cvt_{t}_f32", "89", f"cvt.rn.satfinite.{t}.f32 %h0,%f0,%f1;"
        yield f"cvt_{t}_f16x2", "89", f"cvt.rn.satfinite.{t}.f16x2 %h0,%r1;"
        yield f"cvt_f16x2_{t}", "89", f"cvt.rn.f16x2.{t} %r0,%h1;"
    for t in ["e3m2x2", "e2m3x2"]:
        yield f"cvt_{t}_f32", "100a", f"cvt.rn.satfinite.{t}.f32 %h0,%f0,%f1;"
    yield "cvt_ue8m0x2_f32", "100a", "cvt.rz.satfinite.ue8m0x2.f32 %h0,%f0,%f1;"
    yield "cvt_e2m1x2_f32", "100a", ".reg .b8 %b0; cvt.rn.satfinite.e2m1x2.f32 %b0,%f0,%f1; cvt.u32.u8 %r0,%b0;"
    yield "cvt_f32_f16", "80", "cvt.f32.f16 %f0,%h0;"
    yield "cvt_f32_bf16", "90", "cvt.f32.bf16 %f0,%h0;"
    yield "cvt_f16_f64", "80", "cvt.rn.f16.f64 %h0,%d0;"
    yield "cvt_f32_f64", "80", "cvt.rn.f32.f64 %f0,%d0;"
    yield "cvt_f64_f32", "80", "cvt.f64.f32 %d0,%f0;"
    yield "cvt_f64_f16", "80", "cvt.f64.f16 %d0,%h0;"
    yield "cvt_ftz_f32_f32", "80", "cvt.rni.ftz.f32.f32 %f0,%f1;"
    yield "cvt_f16_f16", "80", "cvt.rni.f16.f16 %h0,%h1;"
    for i in ["s32", "u32"]:
        yield f"cvt_{i}_f32", "80", f"cvt.rzi.{i}.f32 %r0,%f0;"
        yield f"cvt_{i}_f16", "80", f"cvt.rzi.{i}.f16 %r0,%h0;"
        yield f"cvt_f32_{i}", "80", f"cvt.rn.f32.{i} %f0,%r0;"
        yield f"cvt_f16_{i}", "80", f"cvt.rn.f16.{i} %h0,%r0;"
        yield f"cvt_bf16_{i}", "90", f"cvt.rn.bf16.{i} %h0,%r0;"
        yield f"cvt_f64_{i}", "80", f"cvt.rn.f64.{i} %d0,%r0;"
    yield "cvt_f16_s64", "80", "cvt.rn.f16.s64 %h0,%q3;"
    yield "cvt_f16_u16", "80", "cvt.rn.f16.u16 %h0,%h1;"
    yield "cvt_s16_f16", "80", "cvt.rzi.s16.f16 %h0,%h1;"
    yield "cvt_s64_f16", "80", "cvt.rzi.s64.f16 %q3,%h1;"


def other():
    for op in ["rcp.approx", "rsqrt.approx", "sqrt.approx", "ex2.approx", "lg2.approx", "sin.approx", "cos.approx",
               "tanh.approx"]:
        yield op.replace(".", "_"), "80", f"{op}.f32 %f0,%f1;"
        yield op.replace(".", "_") + "_ftz", "80", f"{op}{'' if 'tanh' in op else '.ftz'}.f32 %f0,%f1;"
    for op in ["rcp", "sqrt", "div"]:
        yield op + "_rn", "80", f"{op}.rn.f32 %f0,%f1{',%f2' if op == 'div' else ''};"
    yield "rcp_f64", "80", "rcp.approx.ftz.f64 %d0,%d1;"
    yield "rsqrt_f64", "80", "rsqrt.approx.f64 %d0,%d1;"
    yield "fma_f32", "80", "fma.rn.f32 %f0,%f1,%f2,%f3; add.f32 %f0,%f0,%f4; mul.f32 %f0,%f0,%f5;"
    yield "fma_f32x2", "100", "fma.rn.f32x2 %q3,%q4,%q5,%q6;"
    yield "fma_f64", "80", "fma.rn.f64 %d0,%d1,%d2,%d3; add.f64 %d0,%d0,%d4; mul.f64 %d0,%d0,%d5;"
    yield "store_generic", "80", "st.b32 [%q0],%r1;"
    yield "store_shared", "80", "st.shared.b32 [%r0],%r1; bar.sync 0; ld.shared.b32 %r0,[%r2];"
    yield "store_local", "80", ".local .b32 buf[64]; mov.u32 %r0,buf; add.u32 %r0,%r0,%r1; st.local.b32 [%r0],%r2; ld.local.b32 %r0,[%r0+4];"
    for op in ["add.f32", "min.s32", "and.b32", "add.u64", "add.f64"]:
        t = op[-3:]
        k = {"f32": "f", "f64": "d", "u64": "q"}.get(t, "r")
        yield f"red_{op.replace('.', '_')}", "80", f"red.global.{op} [%q0],%{k}3;"
        yield f"atom_{op.replace('.', '_')}", "80", f"atom.global.{op} %{k}3,[%q0],%{k}4;"
        yield f"atoms_{op.replace('.', '_')}", "80", f"atom.shared.{op} %{k}3,[%r0],%{k}4;"
    yield "atom_cas", "80", "atom.global.cas.b32 %r0,[%q0],%r1,%r2; atom.shared.cas.b32 %r3,[%r4],%r1,%r2;"
    yield "atom_exch_generic", "80", "atom.exch.b32 %r0,[%q0],%r1; red.add.u32 [%q1],%r2;"
    yield "atom_cas_generic", "80", "atom.cas.b32 %r0,[%q0],%r1,%r2; atom.cas.b64 %q2,[%q1],%q3,%q4;"
    yield "red_v4", "90", "red.global.v4.f32.add [%q0],{%f0,%f1,%f2,%f3};"
    yield "bulk_store", "90", "cp.async.bulk.global.shared::cta.bulk_group [%q0],[%r0],%r1; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    yield "bulk_load", "90", "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0],[%q0],%r1,[%r2];"
    yield "bulk_reduce", "90", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%q0],[%r0],%r1;"
    yield "bulk_reduce_f16", "90", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%q0],[%r0],%r1;"
    yield "bulk_reduce_bf16", "90", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%q0],[%r0],%r1;"
    yield "tensor_store", "90", "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%q0,{%r1,%r2}],[%r0];"
    yield "tensor_reduce", "90", "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%q0,{%r1,%r2}],[%r0];"
    yield "tensor_load", "90", "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0],[%q0,{%r1,%r2}],[%r3];"
    yield "tensor_prefetch", "90", "cp.async.bulk.prefetch.tensor.2d.L2.global [%q0,{%r1,%r2}]; cp.async.bulk.prefetch.L2.global [%q0],%r1;"
    yield "bulk_remote", "90", "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r0],[%r1],%r2,[%r3]; st.shared::cluster.b32 [%r4],%r5;"
    yield "st_async", "90", "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r0],%r1,[%r2];"
    yield "multimem", "90", "multimem.red.global.add.f32 [%q0],%f0; multimem.st.global.f32 [%q0],%f0; multimem.ld_reduce.global.add.f32 %f0,[%q0];"
    yield "multimem_f16", "90", "multimem.ld_reduce.global.add.acc::f32.v4.f16x2 {%r0,%r1,%r2,%r3},[%q0];"
    yield "mbarrier", "90", "mbarrier.init.shared.b64 [%r0],32; mbarrier.arrive.shared.b64 %q3,[%r0]; mbarrier.inval.shared.b64 [%r0]; fence.proxy.async; fence.mbarrier_init.release.cluster;"
    yield "cp_async", "80", "cp.async.ca.shared.global [%r0],[%q0],16; cp.async.commit_group; cp.async.wait_group 0;"
    yield "ldmatrix", "80", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0,%r1,%r2,%r3},[%r4];"
    yield "stmatrix", "90", "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4],{%r0,%r1,%r2,%r3};"
    yield "movmatrix", "80", "movmatrix.sync.aligned.m8n8.trans.b16 %r0,%r1;"
    yield "clock", "80", "mov.u32 %r0,%clock; mov.u64 %q3,%clock64; mov.u64 %q4,%globaltimer; mov.u32 %r1,%clock_hi; mov.u32 %r2,%globaltimer_lo;"
    yield "clock32", "80", "mov.u32 %r0,%clock;"
    yield "globaltimer", "80", "mov.u64 %q4,%globaltimer;"
    yield "smid", "80", "mov.u32 %r0,%smid; mov.u32 %r1,%laneid; mov.u32 %r2,%warpid; mov.u32 %r3,%lanemask_lt;"
    yield "trap", "80", "@%p1 trap;"
    yield "brkpt", "80", "@%p1 brkpt;"
    yield "nanosleep", "80", "nanosleep.u32 %r0;"
    yield "integers", "80", ("bfe.u32 %r0,%r1,%r2,%r3; bfi.b32 %r4,%r5,%r6,%r7,%r8; brev.b32 %r9,%r9; popc.b32 %r10,%r10;"
                             " clz.b32 %r11,%r11; bfind.u32 %r12,%r12; prmt.b32 %r13,%r14,%r15,%r16; lop3.b32 %r17,%r18,%r19,%r20,0x96;"
                             " shf.l.wrap.b32 %r21,%r22,%r23,%r24; dp4a.s32.s32 %r25,%r26,%r27,%r28; mad.lo.s32 %r29,%r30,%r31,%r32;"
                             " mul.wide.u32 %q3,%r33,%r34; sad.u32 %r35,%r35,%r36,%r37; div.u32 %r38,%r38,%r39; abs.s32 %r40,%r40; min.s32 %r41,%r41,%r42;"
                             " add.u64 %q4,%q4,%q5; mul.hi.u32 %r43,%r44,%r45; dp2a.lo.s32.s32 %r46,%r46,%r47,%r48; vadd.s32.s32.s32 %r49,%r49,%r50;")
    yield "video", "80", "vabsdiff4.u32.u32.u32.add %r0,%r1,%r2,%r3;"
    yield "warp", "80", ("shfl.sync.bfly.b32 %r0,%r1,1,31,-1; vote.sync.ballot.b32 %r2,%p1,-1;"
                         " match.any.sync.b32 %r3,%r4,-1; match.all.sync.b32 %r13|%p3,%r4,-1;"
                         " redux.sync.add.s32 %r5,%r6,-1; activemask.b32 %r7; bar.warp.sync -1;")
    yield "elect", "90", ("elect.sync %r8|%p3,-1; selp.b32 %r0,%r1,%r2,%p3; griddepcontrol.wait;"
                          " griddepcontrol.launch_dependents;")
    yield "cluster", "90", "barrier.cluster.arrive; barrier.cluster.wait; mapa.shared::cluster.u32 %r0,%r1,%r2; mov.u32 %r3,%cluster_ctarank;"
    yield "barriers", "80", "bar.arrive 1,64; bar.red.popc.u32 %r0,0,%p1; bar.sync 2,64; barrier.sync.aligned 0;"
    yield "fences", "80", "fence.sc.gpu; membar.sys; fence.acq_rel.cta; membar.cta;"
    yield "loads", "80", "ld.global.nc.b32 %r0,[%q0]; ld.global.v4.b32 {%r1,%r2,%r3,%r4},[%q1]; ld.volatile.global.b32 %r5,[%q0]; ld.acquire.gpu.global.b32 %r6,[%q0]; ld.b32 %r7,[%q1]; prefetch.global.L2 [%q0]; discard.global.L2 [%q0],128;"
    yield "release_store", "80", "st.release.gpu.global.b32 [%q0],%r0;"
    yield "texture", "80", "tex.2d.v4.f32.f32 {%f0,%f1,%f2,%f3},[%q0,{%f4,%f5}];"
    yield "surface", "80", "suld.b.2d.b32.trap {%r0},[%q0,{%r1,%r2}]; sust.b.2d.b32.trap [%q1,{%r1,%r2}],{%r0};"
    yield "surface_reduce", "80", "sured.b.add.2d.u32.trap [%q1,{%r1,%r2}],%r0;"
    yield "branches", "80", ("@%p1 bra X; add.u32 %r0,%r0,1; X: setp.lt.u32 %p1,%r0,%r1; @%p1 bra X; T: .branchtargets A,B; "
                             "brx.idx %r2,T; A: add.u32 %r3,%r3,2; B: add.u32 %r4,%r4,5;")
    yield "minmax", "80", "min.f32 %f0,%f1,%f2; max.NaN.f32 %f3,%f4,%f5; setp.lt.f32 %p1,%f6,%f7; selp.f32 %f8,%f9,%f10,%p1; copysign.f32 %f11,%f12,%f13; min.f64 %d0,%d1,%d2; set.lt.f32.f32 %f14,%f15,%f16; slct.f32.f32 %f20,%f21,%f22,%f23; testp.finite.f32 %p2,%f24; selp.f32 %f25,%f26,%f27,%p2;"


def kernels():
    for part in (mma, wgmma, tcgen05, half, convert, other):
        yield from part()


TYPES = {"h": ("b16", 2), "r": ("b32", 4), "f": ("f32", 4), "d": ("f64", 8), "q": ("b64", 8)}


def ptx(name, body, constant=None):
    """One kernel: everything is loaded, the body runs, everything is stored. `constant` 0 or 1: registers with an even
    or odd number are parameters, which instructions can take from the constant bank or from uniform registers."""
    used = {}
    for k, n in re.findall(r"%([hrfdq])(\d+)", body):
        used.setdefault(k, set()).add(int(n))
    load, store, params, at = [], [], [".param .u64 p"], 64
    for k, ns in sorted(used.items()):
        kind = TYPES[k][0]
        for n in sorted(ns):
            if constant is not None and n % 2 == constant:
                params.append(f".param .{kind} p{k}{n}")
                load.append(f"ld.param.{kind} %{k}{n},[p{k}{n}];")
            else:
                load.append(f"ld.global.{kind} %{k}{n},[%in+{at}];")
            store.append(f"st.global.{kind} [%in+{at + 4096}],%{k}{n};")
            at += 8
    suffix = "" if constant is None else f"_c{constant}"
    return (f".visible .entry {name}{suffix}({', '.join(params)})\n{{\n"
            ".reg .b16 %h<32>; .reg .b32 %r<64>; .reg .f32 %f<256>; .reg .f64 %d<32>; .reg .b64 %q<16>;\n"
            ".reg .pred %p<4>; .reg .b32 %t; .reg .b64 %in;\nld.param.u64 %in,[p];\n"
            "ld.global.b32 %t,[%in]; setp.ne.u32 %p1,%t,0; setp.ne.u32 %p2,%t,1; setp.ne.u32 %p3,%t,2;\n"
            + "\n".join(load) + "\n" + body + "\n" + "\n".join(store) + "\nret;\n}\n")


def module(arch, texts):
    return f".version 8.8\n.target sm_{arch}\n.address_size 64\n" + "".join(texts)

# SPDX-License-Identifier: MIT
"""Compares what lib/verify/scan_sass.c says about instructions with the text that nvdisasm prints for them.

usage: check_sass.py SCAN_DUMP [--archs 80,90a] [--only NAME] [--extra FILE.cu] [--table FILE]

The kernels of corpus.py (and of --extra, by nvcc) are assembled by ptxas for each architecture and disassembled. Exits
with 77 (skipped) where ptxas or nvdisasm is missing; NVDISASM and PTXAS name them where they are not on the path.
--table writes lib/verify/scan_sass_table.h anew from what was seen, added to what the file already has.
"""
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

import corpus


def tool(name):
    found = os.environ.get(name.upper()) or shutil.which(name)
    if not found and os.path.exists(f"/usr/local/cuda/bin/{name}"):
        found = f"/usr/local/cuda/bin/{name}"
    if not found:
        print(f"1..0 # SKIP {name} is not installed")
        sys.exit(77)
    return found


def number(arch):
    return int(re.match(r"\d+", arch).group())


def wanted(arch, least):
    return arch == least if least.endswith("a") else number(arch) >= number(least)


def disassemble(nvdisasm, cubin):
    """(text, low, high) of every instruction."""
    run = subprocess.run([nvdisasm, "-ndf", "-c", "-hex", cubin], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr)
    text = None
    for line in run.stdout.splitlines():
        m = re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/", line)
        if m:
            text, low = m.group(1), m.group(2)
            continue
        m = re.match(r"\s*/\* 0x([0-9a-f]{16}) \*/", line)
        if m and text:
            yield re.sub(r"^\{?\s*(@!?U?P\w+\s+)?", "", text), low, m.group(1)
            text = None


def assemble(ptxas, arch, texts, cubin):
    """All kernels at once, into `cubin`; those that this ptxas does not know are left out. Returns how many."""
    def run(part):
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as f:
            f.write(corpus.module(arch, part))
            f.flush()
            return subprocess.run([ptxas, "-arch", f"sm_{arch}", f.name, "-o", cubin],
                                  capture_output=True).returncode == 0
    def good(part):
        if not part or run(part):
            return part
        if len(part) == 1:
            return []
        return good(part[:len(part) // 2]) + good(part[len(part) // 2:])
    known = good(texts)
    if known:
        run(known)
    return len(texts) - len(known)


TYPES = {"E4M3": "e4m3", "E5M2": "e5m2", "E2M1": "fp6/fp4", "E3M2": "fp6/fp4", "E2M3": "fp6/fp4", "S8": "int8",
         "U8": "int8", "S4": "int4", "U4": "int4", "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64",
         "TF32": "tf32", "E8": "fp6/fp4"}


def expected(text):
    """(kind, a, b, accumulator) that nvdisasm's text means; None: nothing to compare but that the opcode is known."""
    op, _, rest = text.partition(" ")
    parts = op.split(".")
    name = parts[0]
    if re.fullmatch(r"(D|B|BG)MMA", name):
        t, acc = ("f64", "f64") if name == "DMMA" else ("bit", "int32")
        return "tensor product", t, t, acc
    if name in ("HMMA", "HGMMA"):
        t = "tf32" if "TF32" in parts else "bf16" if "BF16" in parts else "f16"
        return "tensor product", t, t, "f32" if "F32" in parts else "f16"
    if name in ("IMMA", "IGMMA"):
        t = [TYPES[p] for p in parts if p in ("S8", "U8", "S4", "U4")]
        return "tensor product", t[0], t[-1], "int32"
    if name in ("QMMA", "QGMMA", "OMMA"):
        t = [TYPES[p] for p in parts if p in ("E4M3", "E5M2", "E2M1", "E3M2", "E2M3")]
        return "tensor product", t[0], t[1], "f32" if "F32" in parts else "f16"
    if name.startswith("UTC") and name.endswith("MMA"):
        t = {"UTCHMMA": "f16/bf16/tf32", "UTCIMMA": "int8", "UTCQMMA": "e4m3", "UTCOMMA": "fp6/fp4"}[name]
        return "tensor product", t, t, {"UTCIMMA": "int32", "UTCOMMA": "f32"}.get(name, "?")
    if name in ("HADD2", "HMUL2", "HFMA2"):
        if name == "HADD2" and "F32" in parts:
            return "widening", "f32", "f16", ""
        operands = [o.strip() for o in rest.split(",")]
        factors = operands[1:3] if name != "HFMA2" or len(operands) < 5 else (
            [operands[1], operands[2]] if re.match(r"[-|]*R", operands[2]) else [operands[1]])
        if any(re.match(r"[-|]*RZ\b", o) for o in factors):
            return "other", "", "", ""
        return "half arithmetic", "bf16" if "BF16_V2" in parts or "BF16" in parts else "f16", "", ""
    if name == "MUFU":
        t = "f16" if "F16" in parts else "bf16" if "BF16" in parts else None
        return ("half arithmetic", t, "", "") if t else ("approximate function", "f32", "", "")
    if name == "F2FP":
        t = [TYPES[p] for p in parts if p in TYPES]
        to = t[0] if t else "f16"
        source = t[1] if len(t) > 1 else "f32"
        return ("widening" if to == "f16" and source in ("e4m3", "e5m2") else "conversion"), to, source, ""
    if name == "F2F":
        t = [TYPES[p] for p in parts if p in TYPES]
        order = ["f16", "bf16", "f32", "f64"]
        t = t + ["f32"] * (2 - len(t))
        return ("widening" if order.index(t[0]) > order.index(t[1]) else "conversion"), t[0], t[1], ""
    if name == "I2F":
        t = [TYPES[p] for p in parts if p in ("F16", "BF16")]
        return ("conversion", t[0], "int32", "") if t else ("other", "", "", "")
    if name in ("ST", "STG", "SUST", "SURED", "UTMASTG", "UTMAREDG", "ATOM", "RED", "REDG", "ATOMG", "UBLKRED"):
        t = next((p for p in parts if re.match(r"B?F16", p)), None)
        half = "" if not t else "bf16" if t.startswith("B") else "f16"
        return "store to global memory", "", "", half
    if name == "UBLKCP":
        return ("store to global memory" if parts[1:3] == ["G", "S"] else "other"), "", "", ""
    if name == "IDP":
        return "integer dot product", "int8", "int8", "int32"
    if name in ("LDL", "STL"):
        return "local memory", "", "", ""
    if name in ("S2R", "CS2R", "S2UR"):
        return ("clock" if re.search(r"SR_(CLOCK|GLOBALTIMER)", rest) else "other"), "", "", ""
    if name == "BPT":
        return "trap", "", "", ""
    return None


SPECIAL = {"HMMA": "HMMA", "IMMA": "IMMA", "DMMA": "DMMA", "BMMA": "BMMA", "QMMA": "QMMA", "OMMA": "OMMA",
           "HGMMA": "HGMMA", "IGMMA": "IGMMA", "BGMMA": "BMMA", "QGMMA": "QGMMA", "HADD2": "HADD2", "HFMA2": "HFMA2",
           "HFMA2.MMA": "HFMA2", "HMUL2": "HMUL2", "F2F": "F2F", "F2FP": "F2FP", "I2F": "I2F", "MUFU": "MUFU",
           "ST": "STORE", "STG": "STORE", "SUST": "STORE", "SURED": "STORE", "UTMASTG": "STORE", "UTMAREDG": "STORE",
           "ATOM": "REDUCE", "RED": "REDUCE", "ATOMG": "REDUCE", "UBLKCP": "UBLKCP", "UBLKRED": "UBLKRED",
           "LDL": "LOCAL", "STL": "LOCAL", "CS2R": "CLOCK", "S2R": "CLOCK", "S2UR": "CLOCK", "BPT": "TRAP"}


def what(code, name):
    if code in (0x9a2, 0x9a3, 0x9a6):
        return "REDUCE2"
    if code in (0x38b, 0x3a9):  # compare and swap: no type
        return "STORE"
    if name == "CALL":  # 0x944 is relative: it stays in the section
        return "PLAIN" if code == 0x944 else "CALL"
    if name in ("UTCMMA", "IDP"):
        return name
    return SPECIAL.get(name, "PLAIN")


def table_name(text):
    op = text.split()[0]
    name = op.split(".")[0]
    if name == "HFMA2" and ".MMA" in op:
        return "HFMA2.MMA"
    if name.startswith("UTC") and name.endswith("MMA"):
        return "UTCMMA"
    return "RED" if name == "REDG" else name


def write_table(path, seen):
    with open(path, encoding="utf-8") as f:
        old = f.read()
    for m in re.finditer(r'\{0x(\w+), (\d), W_\w+, "(\S+)"\}', old):
        seen[int(m[1], 16), m[3]] |= int(m[2])
    head = old[:old.index("/* clang-format off */")]
    rows = [f'{{0x{c:03x}, {g}, W_{what(c, n)}, "{n}"}},' for (c, n), g in sorted(seen.items())]
    with open(path, "w", encoding="utf-8") as f:
        f.write(head + "/* clang-format off */\n" + "\n".join(rows) + "\n/* clang-format on */\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("scan_dump")
    p.add_argument("--archs", default="80,89,90a,100a,120a")
    p.add_argument("--only", default="")
    p.add_argument("--extra")
    p.add_argument("--table")
    o = p.parse_args()
    nvdisasm, ptxas = tool("nvdisasm"), tool("ptxas")
    archs = o.archs.split(",")
    print(f"1..{len(archs)}")
    failed = 0
    seen = collections.Counter()
    for index, arch in enumerate(archs):
        items = {}
        with tempfile.TemporaryDirectory() as folder:
            cubin = os.path.join(folder, "k.cubin")
            texts = [corpus.ptx(name, body, constant) for name, least, body in corpus.kernels()
                     if wanted(arch, least) and o.only in name for constant in (None, 0, 1)]
            left_out = assemble(ptxas, arch, texts, cubin)
            if len(texts) > left_out:
                for text, low, high in disassemble(nvdisasm, cubin):
                    items[low, high] = text
            if o.extra:
                subprocess.run([tool("nvcc"), f"-arch=sm_{arch}", "-std=c++17", "-cubin", o.extra, "-o", cubin],
                               check=True)
                for text, low, high in disassemble(nvdisasm, cubin):
                    items[low, high] = text
        keys = list(items)
        for low, high in keys:
            seen[int(low, 16) & 0xfff, table_name(items[low, high])] |= 1 if number(arch) < 100 else 2
        run = subprocess.run([o.scan_dump], input="".join(f"{number(arch)} {a} {b}\n" for a, b in keys),
                             capture_output=True, text=True, check=True)
        bad = 0
        for key, line in zip(keys, run.stdout.splitlines(), strict=True):
            kind, a, b, acc, _ = line.split("|")
            want = expected(items[key])
            good = kind != "not known" if want is None else (kind, a, b, acc) == want
            if not good:
                bad += 1
                if bad <= 20:
                    print(f"# {items[key]}  ({key[0]} {key[1]}): got {line}, expected {want}")
        failed += bad > 0 or not keys
        print(f"{'not ok' if bad or not keys else 'ok'} {index + 1} - sm_{arch}: {len(keys)} instructions, {bad} wrong, "
              f"{left_out} kernels that this ptxas does not assemble")
    if o.table:
        write_table(o.table, seen)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

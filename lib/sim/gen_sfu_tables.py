#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Make arith_sfu_tables.h: the coefficients of the special function unit.

    gen_sfu_tables.py > arith_sfu_tables.h                        fit them to the functions
    gen_sfu_tables.py --samples sfu.bin > arith_sfu_tables.h      solve for the hardware's from its own results

Fitted coefficients keep each function within the error that stitch__arith_sfu_accuracy states. Solved ones are the hardware's:
each output y of the unit says y <= (C0 2^s0 + C1 x + C2 2^s2 sq(x) + bias) / 2^shift < y + 1, and some hundred outputs of one
table entry leave a single integer triple. tests/gpu/record_instructions.c records the outputs on a GPU (sfu.bin).
"""
import argparse
import math
import sys

import numpy as np


def square(x):
    """The truncated square of the unit, of 17-bit numbers."""
    total = np.zeros_like(x)
    for i in range(17):
        total += np.where(x >> i & 1, x >> (18 - i), 0)
    return total >> 1


class Function:
    def __init__(self, name, entries, bits, s0, s2, bias, shift, value, sq_shift=0):
        self.name, self.entries, self.bits = name, entries, bits
        self.s0, self.s2, self.bias, self.shift, self.value, self.sq_shift = s0, s2, bias, shift, value, sq_shift

    def basis(self, x):
        return x, square(x << self.sq_shift) << self.s2


# value(entry, x) is the unit's exact target, scaled so that the output is its integer part after `shift`.
def fraction(entry, x, bits):
    return (np.float64(entry) * 2.0 ** bits + x) / 2.0 ** 23


def rsqrt_value(entry, x):
    w = entry * 2.0 ** 17 + x
    v = np.where(w < 2 ** 23, 1 + w / 2.0 ** 23, 2 * (1 + (w - 2.0 ** 23) / 2.0 ** 23))
    return 2.0 ** 40 / np.sqrt(v)


# tanh: the binades from 2^-8 to 2^3 have 2^k table entries each; x is the next 17 bits of the significand.
TANH_BITS = [0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3]


def tanh_value(entry, x):
    for binade, k in enumerate(TANH_BITS):
        if entry < 1 << k:
            break
        entry -= 1 << k
    return 2.0 ** 39 * np.tanh(2.0 ** (binade - 8) * (1 + (entry + x / 2.0 ** 17) / 2 ** k))


def tanh_entry(inputs):
    """Table entry and x of float bits within those binades."""
    binade, m = (inputs >> 23) - 119, inputs & 0x7FFFFF
    k = np.array(TANH_BITS)[binade]
    start = np.cumsum([0] + [1 << bits for bits in TANH_BITS])[binade]
    return start + (m >> (23 - k)), m >> (6 - k) & 0x1FFFF


FUNCTIONS = [
    Function("rcp", 128, 16, 13, 0, 0x47E7, 15, lambda i, x: 2.0 ** 39 / (1 + fraction(i, x, 16)), 1),
    Function("rsqrt", 128, 17, 14, 2, 0x7FFF, 16, rsqrt_value),
    Function("sin", 64, 17, 11, 0, 0, 14, lambda i, x: 2.0 ** 37 * np.sin(math.pi / 2 * fraction(i, x, 17))),
    Function("ex2", 64, 17, 13, 0, 0x77E2, 15, lambda i, x: 2.0 ** 38 * np.exp2(fraction(i, x, 17))),
    Function("lg2", 64, 17, 12, 1, 0x3345, 2, lambda i, x: 2.0 ** 38 * np.log2(1 + fraction(i, x, 17))),
    Function("sqrt", 128, 17, 15, 1, 0xFFFF, 17, lambda i, x: 2.0 ** 80 / rsqrt_value(i, x)),
    Function("tanh", sum(1 << k for k in TANH_BITS), 17, 15, 1, 0, 16, tanh_value),
]
TRUNCATED = ("sin", "lg2", "tanh")  # the sum is normalised and cut, not rounded to a fixed place


def fit(f, entry):
    """Integer coefficients whose result, before truncation, is nearest the function in the largest error."""
    n = 1 << f.bits
    x = np.unique(np.clip(np.round(n / 2 - n / 2 * np.cos(np.pi * np.arange(4097) / 4096)), 0, n - 1)).astype(np.int64)
    b1, b2 = (b.astype(np.float64) for b in f.basis(x))
    half = 0 if f.name in TRUNCATED else 2.0 ** (f.shift - 1)
    target = f.value(entry, x) + half - f.bias
    scale = np.array([2.0 ** f.s0, n, n * n / 2.0 ** 19])
    a = np.stack([np.full(len(x), 2.0 ** f.s0), b1, b2], axis=1)
    # Chebyshev nodes: least squares is within a small factor of minimax.
    start = np.linalg.lstsq(a / scale, target, rcond=None)[0] / scale
    best = None
    for c2 in range(math.floor(start[2]) - 1, math.floor(start[2]) + 3):
        rest = target - c2 * b2
        line = np.linalg.lstsq(a[:, :2] / scale[:2], rest, rcond=None)[0] / scale[:2]
        for c1 in range(math.floor(line[1]) - 1, math.floor(line[1]) + 3):
            left = rest - c1 * b1
            middle = (left.max() + left.min()) / 2 / 2.0 ** f.s0
            for c0 in (math.floor(middle), math.floor(middle) + 1):
                if entry == 0 and f.name == "sin":
                    c0 = 0  # sin(0) is zero, and small results need the relative error
                elif entry == 0 and f.name == "ex2":
                    c0 = 1 << 25
                error = np.abs(c0 * 2.0 ** f.s0 - left)
                if f.name in ("sin", "lg2") and entry == 0:
                    error = error * n / (x + n / 16)
                error = error.max()
                if best is None or error < best[0]:
                    best = (error, (c0, c1, c2))
    return best[1]


def solve(f, x, low, high):
    """All integer triples whose sums at x lie in [low, high]."""
    b1, b2 = f.basis(x)
    # Least squares on the middle of the intervals gives a start within a few units.
    a = np.stack([np.full(len(x), 2.0 ** f.s0), b1, b2], axis=1).astype(np.float64)
    scale = np.abs(a).max(axis=0)
    middle = (low + high) / 2.0
    start = np.linalg.lstsq(a / scale, middle, rcond=None)[0] / scale
    found = []
    for c2 in range(round(start[2]) - 6, round(start[2]) + 7):
        line = np.linalg.lstsq(a[:, :2] / scale[:2], middle - c2 * b2, rcond=None)[0] / scale[:2]
        for c1 in range(round(line[1]) - 12, round(line[1]) + 13):
            least = (low - c1 * b1 - c2 * b2).max()
            most = (high - c1 * b1 - c2 * b2).min()
            # C0 2^s0 lies in between
            for c0 in range(-(-int(least) >> f.s0), (int(most) >> f.s0) + 1):
                found.append((c0, c1, c2))
    return found


def floats(bits):
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def observations(name, inputs, outputs):
    """Table entry, x and the interval of the sum before truncation, of each recorded input and output (as bits)."""
    m = inputs & 0x7FFFFF
    y, above = floats(outputs), floats(outputs + 1)
    if name == "rcp":
        entry, x, low, bias, shift = m >> 16, m & 0xFFFF, y * 2.0 ** 24, 0x47E7, 15
    elif name == "tanh":
        keep = (inputs >= 0x3B800000) & (inputs < 0x41000000)
        entry, x = tanh_entry(inputs[keep])
        low, high = np.ceil(y[keep] * 2.0 ** 39), np.ceil(above[keep] * 2.0 ** 39) - 1
        return entry, x, low.astype(np.int64), high.astype(np.int64)
    elif name == "sqrt":
        w = m | np.where(inputs >= 0x40000000, 1 << 23, 0)
        entry, x, low, bias, shift = w >> 17, w & 0x1FFFF, y * 2.0 ** 23, 0xFFFF, 17
    elif name == "rsqrt":
        w = m | np.where(inputs >= 0x40000000, 1 << 23, 0)
        entry, x, low, bias, shift = w >> 17, w & 0x1FFFF, y * 2.0 ** 24, 0x7FFF, 16
        keep = w != 0  # a power of four is answered without the table
        entry, x, low = entry[keep], x[keep], low[keep]
    elif name == "ex2":
        fixed = (floats(inputs) * 2.0 ** 23).astype(np.int64)
        entry, x, low, bias, shift = fixed >> 17, fixed & 0x1FFFF, y * 2.0 ** 23, 0x77E2, 15
    elif name == "sin":
        # The instruction multiplies by 1 / 2 pi, toward zero, and the unit reads the top bits.
        product = floats(inputs) * floats(np.array([0x3E22F983]))
        turns = product.astype(np.float32).astype(np.float64)
        turns = np.where(turns > product, np.nextafter(turns.astype(np.float32), np.float32(0)).astype(np.float64), turns)
        fixed = np.floor(turns * 2.0 ** 25).astype(np.int64)
        entry, x = fixed >> 17, fixed & 0x1FFFF
        low, high = np.ceil(y * 2.0 ** 37), np.ceil(above * 2.0 ** 37) - 1
        return entry, x, low.astype(np.int64), high.astype(np.int64)
    else:
        keep = m != 0
        entry, x = m[keep] >> 17, m[keep] & 0x1FFFF
        low, high = np.ceil(y[keep] * 2.0 ** 36), np.ceil(above[keep] * 2.0 ** 36) - 1
        return entry, x, 4 * low.astype(np.int64) - 0x3345, 4 * high.astype(np.int64) + 3 - 0x3345
    low = low.astype(np.int64)
    return entry, x, (low << shift) - bias, ((low + 1) << shift) - 1 - bias


def read_samples(path):
    """A text line "SFU1 ...", then for each function a line "name count" and count pairs of uint32: input, output."""
    with open(path, "rb") as file:
        if not file.readline().startswith(b"SFU1 "):
            sys.exit(f"{path}: not a recording of the special function unit")
        out = {}
        while True:
            line = file.readline().split()
            if not line:
                return out
            count = int(line[1])
            pairs = np.frombuffer(file.read(8 * count), dtype="<u4").reshape(count, 2).astype(np.int64)
            out[line[0].decode()] = (pairs[:, 0], pairs[:, 1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples")
    args = parser.parse_args()
    samples = read_samples(args.samples) if args.samples else {}
    how = "solved from outputs recorded on the hardware" if samples else "fitted to the functions"
    print("/* SPDX-License-Identifier: MIT")
    print(" *")
    print(f" * Made by gen_sfu_tables.py; do not edit. Coefficients {how}.")
    print(" */")
    print("#ifndef STITCH_SIM_ARITH_SFU_TABLES_H\n#define STITCH_SIM_ARITH_SFU_TABLES_H\n\n#include <stdint.h>\n\n/* clang-format off */\n")
    print(f"/* 1: the hardware's own coefficients. */\n#define SFU_TABLES_EXACT {int(bool(samples))}\n")
    for f in FUNCTIONS:
        rows = []
        if samples:
            entries, x, low, high = observations(f.name, *samples[f.name])
        for entry in range(f.entries):
            if samples:
                here = entries == entry
                found = solve(f, x[here], low[here], high[here])
                if len(found) != 1:
                    sys.exit(f"{f.name}[{entry}]: {len(found)} solutions: {found[:8]}")
                rows.append(found[0])
            else:
                rows.append(fit(f, entry))
        for k in range(3):
            print(f"static const int32_t sfu_{f.name}_c{k}[{f.entries}] = {{")
            values = [str(r[k]) for r in rows]
            line = "   "
            for v in values:
                if len(line) + len(v) + 2 > 120:
                    print(line)
                    line = "   "
                line += f" {v},"
            print(line + "\n};")
        print()
    print("#endif")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pack what h200_sfu_mma.cu wrote on an H200 (8 MB) into what the tests need.

    pack_h200.py h200_sfu_mma.bin h200_sfu.bin h200_mma.bin
    pack_h200.py half.bin h200_half.bin

h200_sfu.bin: uint64 checksum[9 operations][256 blocks of 2^24 inputs], uint64 statistics[9][4], as the program made them.
h200_mma.bin: uint64 hash[4 types][4096 matrices] of each result matrix of 16 x 8 float32, then, to see where one differs,
uint32 results[4 types][first 8 matrices][16][8]. hash = sum over i of mix(bits[i] ^ mix(i)) * (2 i + 1), modulo 2^64, with
the mix of h200_sfu_mma.cu.
h200_half.bin, from what tests/gpu/record_instructions.c wrote: uint64 checksum[4 functions][256 blocks of 256 inputs], the sum
over x of mix(x ^ mix(y)) * (x | 1), modulo 2^64, where y is ex2.approx.f16, tanh.approx.f16, ex2.approx.ftz.bf16 or
tanh.approx.bf16 of x.
"""
import struct
import sys

MASK32, MASK64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def mix(x):
    x ^= x >> 16
    x = x * 0x7FEB352D & MASK32
    x ^= x >> 15
    x = x * 0x846CA68B & MASK32
    return x ^ x >> 16


def pack_half(source, target):
    data = open(source, "rb").read()
    if len(data) != 4 * 65536 * 2:
        sys.exit(f"{source}: {len(data)} bytes")
    results = struct.unpack(f"<{4 * 65536}H", data)
    with open(target, "wb") as out:
        for start in range(0, 4 * 65536, 256):
            inputs = range(start & 0xFFFF, (start & 0xFFFF) + 256)
            total = sum(mix(x ^ mix(y)) * (x | 1) for x, y in zip(inputs, results[start : start + 256]))
            out.write(struct.pack("<Q", total & MASK64))


def main():
    if len(sys.argv) == 3:
        return pack_half(*sys.argv[1:])
    source, sfu, mma = sys.argv[1:]
    data = open(source, "rb").read()
    size = 2340 * 8
    if len(data) != size + 4 * 524288 * 4:
        sys.exit(f"{source}: {len(data)} bytes")
    with open(sfu, "wb") as out:
        out.write(data[:size])
    mixed = [mix(i) for i in range(128)]
    with open(mma, "wb") as out:
        for matrix in range(4 * 4096):
            bits = struct.unpack_from("<128I", data, size + matrix * 512)
            out.write(struct.pack("<Q", sum(mix(b ^ mixed[i]) * (2 * i + 1) for i, b in enumerate(bits)) & MASK64))
        for kind in range(4):
            start = size + kind * 4096 * 512
            out.write(data[start:start + 8 * 512])


if __name__ == "__main__":
    main()

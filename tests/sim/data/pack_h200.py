#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pack what h200_sfu_mma.cu wrote on an H200 (8 MB) into what the tests need.

    pack_h200.py h200_sfu_mma.bin h200_sfu.bin h200_mma.bin

h200_sfu.bin: uint64 checksum[9 operations][256 blocks of 2^24 inputs], uint64 statistics[9][4], as the program made them.
h200_mma.bin: uint64 hash[4 types][4096 matrices] of each result matrix of 16 x 8 float32, then, to see where one differs,
uint32 results[4 types][first 8 matrices][16][8]. hash = sum over i of mix(bits[i] ^ mix(i)) * (2 i + 1), modulo 2^64, with
the mix of h200_sfu_mma.cu.
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


def main():
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

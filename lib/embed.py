# SPDX-License-Identifier: MIT
"""Writes a C file that holds text files as NUL-terminated arrays.

usage: embed.py OUTPUT.c PREFIX FILE...

Each FILE becomes `const char PREFIX_<stem>[]` with every character outside [A-Za-z0-9] turned into `_`, and
`const size_t PREFIX_<stem>_size` (without the NUL).
"""
import os
import re
import sys


def main():
    output, prefix, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    with open(output, "w", encoding="ascii") as out:
        out.write("/* Made by embed.py; do not edit. */\n#include <stddef.h>\n")
        for path in files:
            stem = re.sub(r"[^A-Za-z0-9]", "_", os.path.splitext(os.path.basename(path))[0])
            with open(path, "rb") as f:
                data = f.read()
            name = f"{prefix}_{stem}"
            out.write(f"extern const char {name}[];\nextern const size_t {name}_size;\n")
            out.write(f"const char {name}[] = {{")
            for i, byte in enumerate(data + b"\0"):
                out.write(("\n    " if i % 24 == 0 else "") + f"{byte if byte < 128 else byte - 256},")
            out.write(f"\n}};\nconst size_t {name}_size = {len(data)};\n")


if __name__ == "__main__":
    main()

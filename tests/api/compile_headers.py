# SPDX-License-Identifier: MIT
"""Every public header compiles alone, as C11 and as C++17, without a warning. Prints TAP.

usage: compile_headers.py INCLUDE-FOLDER CC CXX
"""
import os
import subprocess
import sys

FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def main():
    folder, cc, cxx = sys.argv[1:4]
    headers = sorted(name for name in os.listdir(os.path.join(folder, "stitch")) if name.endswith(".h"))
    print(f"1..{2 * len(headers)}")
    number, bad = 0, False
    for name in headers:
        for compiler, language, standard in ((cc, "c", "c11"), (cxx, "c++", "c++17")):
            number += 1
            if not compiler:
                print(f"ok {number} - {name} as {standard} # SKIP no compiler")
                continue
            done = subprocess.run([*compiler.split(), f"-std={standard}", *FLAGS, "-I", folder, "-x", language, "-"],
                                  input=f"#include <stitch/{name}>\n", text=True, capture_output=True)
            bad |= done.returncode != 0
            print(f"{'not ok' if done.returncode else 'ok'} {number} - {name} as {standard}")
            for line in done.stderr.splitlines():
                print("# " + line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

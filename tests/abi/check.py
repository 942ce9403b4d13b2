# SPDX-License-Identifier: MIT
"""Compares the library with the ABI of the last release (tests/abi/libstitch.abi). Prints TAP.

usage: check.py LIBSTITCH.SO INCLUDE-FOLDER            compare
       check.py --update LIBSTITCH.SO INCLUDE-FOLDER   write the baseline (with a release)
"""
import os
import shutil
import subprocess
import sys

BASELINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libstitch.abi")


def main():
    update = sys.argv[1] == "--update"
    library, include = sys.argv[2:4] if update else sys.argv[1:3]
    if not shutil.which("abidw") or not shutil.which("abidiff"):
        print("1..0 # SKIP abidw and abidiff are not installed (Debian package abigail-tools)")
        return 0
    if update:
        return subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--headers-dir", include, "--out-file", BASELINE,
                               library], check=False).returncode
    if not os.path.exists(BASELINE):
        print("1..0 # SKIP there is no release yet to compare with")
        return 0
    done = subprocess.run(["abidiff", "--headers-dir2", include, "--no-added-syms", BASELINE, library], capture_output=True, text=True)
    # Bit 2 (4): the ABI changed; bit 3 (8): incompatibly. Bits 0 and 1: the tool failed.
    bad = bool(done.returncode & 0b1011)
    print("1..1")
    print(f"{'not ok' if bad else 'ok'} 1 - compatible with the last release")
    for line in done.stdout.splitlines():
        print("# " + line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

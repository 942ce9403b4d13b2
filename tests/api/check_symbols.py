# SPDX-License-Identifier: MIT
"""Headers, version map and library must name the same functions. Prints TAP.

usage: check_symbols.py INCLUDE-FOLDER STITCH.MAP LIBSTITCH.SO
"""
import glob
import os
import re
import subprocess
import sys


def from_headers(folder):
    names = set()
    for path in glob.glob(os.path.join(folder, "stitch", "*.h")):
        with open(path, encoding="utf-8") as header:
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read(), flags=re.S)
        text = re.sub(r"#define[^\n]*(\\\n[^\n]*)*", "", text)
        for declaration in re.findall(r"\bSTITCH_API\b([^;{]*?)\(", text):
            names.add(re.findall(r"\w+", declaration)[-1])
    return names


def from_map(path):
    with open(path, encoding="utf-8") as text:
        exported = re.findall(r"global:(.*?)local:", re.sub(r"#[^\n]*", "", text.read()), flags=re.S)
    return set(re.findall(r"(\w+);", " ".join(exported)))


def from_library(path):
    out = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    names = {line.split()[-1].split("@")[0] for line in out.splitlines() if line.split()[-2] in "TDBRVW"}
    return {name for name in names if not name.startswith("STITCH_")}


def main():
    headers, version_map, library = from_headers(sys.argv[1]), from_map(sys.argv[2]), from_library(sys.argv[3])
    tests = [("headers and map", headers, version_map), ("map and library", version_map, library)]
    print(f"1..{len(tests) + 1}")
    print(f"{'ok' if len(headers) > 20 else 'not ok'} 1 - headers were read ({len(headers)} functions)")
    bad = len(headers) <= 20
    for i, (name, a, b) in enumerate(tests, 2):
        print(f"{'ok' if a == b else 'not ok'} {i} - {name}")
        bad |= a != b
        for symbol in sorted(a - b):
            print(f"# only in the first: {symbol}")
        for symbol in sorted(b - a):
            print(f"# only in the second: {symbol}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

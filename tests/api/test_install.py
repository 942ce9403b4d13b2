# SPDX-License-Identifier: MIT
"""An installed library is found by pkg-config and by CMake, and links. Prints TAP.

usage: test_install.py BUILD-FOLDER MESON-COMMAND CC
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

BUILD, MESON, CC = sys.argv[1:4]
PROGRAM = """
#include <stdio.h>
#include <stitch/stitch.h>
int main(void) { puts(stitch_version_string()); return stitch_version() == STITCH_VERSION_NUM ? 0 : 1; }
"""
CMAKE = """
cmake_minimum_required(VERSION 3.13)
project(test C)
find_package(stitch 0.1 REQUIRED)
add_executable(test test.c)
target_link_libraries(test stitch::stitch)
"""
tests = []


def check(name, ok, detail=""):
    tests.append(ok)
    print(f"{'ok' if ok else 'not ok'} {len(tests)} - {name}", flush=True)
    for line in "" if ok else str(detail).splitlines():
        print("# " + line)


def main():
    folder = tempfile.mkdtemp()
    root = os.path.join(folder, "root")
    done = subprocess.run([*MESON.split(), "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", root], capture_output=True, text=True)
    check("installs", done.returncode == 0, done.stdout + done.stderr)
    pc = glob.glob(os.path.join(root, "**", "stitch.pc"), recursive=True)
    check("has a pkg-config file", len(pc) == 1, pc)
    prefix = pc[0][: pc[0].index("/lib", len(root))]
    libdir = os.path.dirname(os.path.dirname(pc[0]))
    source = os.path.join(folder, "test.c")
    with open(source, "w", encoding="ascii") as f:
        f.write(PROGRAM)
    env = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(pc[0]), LD_LIBRARY_PATH=libdir)
    flags = subprocess.run(["pkg-config", "--define-variable=prefix=" + prefix, "--cflags", "--libs", "stitch"], capture_output=True, text=True,
                           env=env)
    done = subprocess.run([*CC.split(), source, "-o", folder + "/test", *flags.stdout.split()], capture_output=True, text=True)
    check("links through pkg-config", done.returncode == 0, flags.stderr + done.stderr)
    check("runs", subprocess.run([folder + "/test"], env=env, capture_output=True).returncode == 0)
    if shutil.which("cmake"):
        with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="ascii") as f:
            f.write(CMAKE)
        done = subprocess.run(["cmake", "-S", folder, "-B", folder + "/b", "-DCMAKE_PREFIX_PATH=" + prefix], capture_output=True, text=True)
        if done.returncode == 0:
            done = subprocess.run(["cmake", "--build", folder + "/b"], capture_output=True, text=True)
        check("links through CMake", done.returncode == 0, done.stdout + done.stderr)
        for version, fits in (("", True), ("0.1.0 EXACT", True), ("0.2", False), ("1", False), ("0.1.99", False)):
            with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="ascii") as f:
                f.write(CMAKE.replace("stitch 0.1 ", f"stitch {version} "))
            done = subprocess.run(["cmake", "-S", folder, "-B", folder + "/v", "-DCMAKE_PREFIX_PATH=" + prefix], capture_output=True, text=True)
            check(f"CMake {'finds' if fits else 'refuses'} version '{version}'", (done.returncode == 0) == fits, done.stdout + done.stderr)
    else:
        tests.append(True)
        print(f"ok {len(tests)} - links through CMake # SKIP no cmake")
    print(f"1..{len(tests)}")
    shutil.rmtree(folder)
    return 0 if all(tests) else 1


if __name__ == "__main__":
    sys.exit(main())

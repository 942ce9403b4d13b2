#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs the GPU suite from a build folder that may have been built elsewhere: nothing is built, nothing is installed.
# The last line is "N passed, N failed, N skipped".
#
# usage: sh tests/gpu.sh [BUILD-FOLDER]     (default: build)
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
LD_LIBRARY_PATH="$PWD/$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
STITCH_BUILD="$PWD/$build"
STITCH_LIBRARY="$PWD/$build/lib/libstitch.so"
export LD_LIBRARY_PATH STITCH_BUILD STITCH_LIBRARY
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
list=
for test in "$build"/tests/gpu/test_* tests/gpu/test_*.py; do
    [ -f "$test" ] && [ ! -d "$test" ] || continue
    name=$(basename "$test" .py)
    case $test in
    *.p) continue ;;
    *.py) python3 "$test" >"$logs/$name" 2>&1 ;;
    *) timeout 300 "$test" >"$logs/$name" 2>&1 ;;
    esac
    echo "exit $?" >>"$logs/$name"
    list="$list $name $logs/$name"
done
[ -n "$list" ] || {
    echo "no GPU tests under $build/tests/gpu: build first (sh tests/run.sh)"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
# shellcheck disable=SC2086
python3 tests/summary.py --tap $list

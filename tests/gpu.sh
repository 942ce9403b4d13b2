#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs the GPU suite from a build folder that may have been built elsewhere: nothing is built, nothing is installed, and
# Meson is not needed. The last line is "N passed, N failed, N skipped"; exits 1 if any failed.
#
# usage: sh tests/gpu.sh [BUILD-FOLDER]     (default: build)
set -u
case ${1:-build} in
/*) build=$1 ;;
*) build=$(cd "$(dirname "$0")/.." && pwd)/${1:-build} ;;
esac
cd "$(dirname "$0")/.." || exit 1
LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
STITCH_BUILD="$build"
STITCH_LIBRARY="$build/lib/libstitch.so"
STITCH_EXAMPLES="$PWD/examples"
STITCH_TEST_WORKER="$build/tests/unit/test-worker"
export LD_LIBRARY_PATH STITCH_BUILD STITCH_LIBRARY STITCH_EXAMPLES STITCH_TEST_WORKER
if [ -z "${VIRTUAL_ENV:-}" ] && [ -d "$build/venv/lib" ]; then
    VIRTUAL_ENV="$build/venv" # CUDA libraries from wheels, where the build has them
    export VIRTUAL_ENV
fi
logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM
programs=0
for test in "$build"/tests/gpu/test_* "$build"/tests/adversarial/test_* tests/gpu/test_*.py; do
    [ -f "$test" ] || continue
    name=$(basename "$test") # with .py: a program and a script may share the rest
    [ ! -e "$logs/$name" ] || {
        echo "two tests are called $name" >&2
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    }
    echo "$name" >&2
    case $test in
    *.py)
        timeout -k 10 600 python3 "$test" >"$logs/$name" 2>&1
        status=$?
        ;;
    *)
        [ -x "$test" ] || continue
        programs=$((programs + 1))
        timeout -k 10 600 "$test" >"$logs/$name" 2>&1
        status=$?
        ;;
    esac
    printf '\nexit %s\n' "$status" >>"$logs/$name"
done
[ "$programs" -gt 0 ] || {
    echo "no GPU tests under $build/tests/gpu: build first (sh tests/run.sh)" >&2
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
python3 tests/summary.py --tap "$logs"/*

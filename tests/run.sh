#!/bin/sh
# SPDX-License-Identifier: MIT
# Sets up, builds and runs the tests. The last line is "N passed, N failed, N skipped".
#
# usage: sh tests/run.sh [SUITE...]     suites: unit api sim adversarial profile python fuzz gpu (default: all that exist)
set -u
cd "$(dirname "$0")/.." || exit 1
. examples/setup.sh
stitch_setup && stitch_build || {
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
suites=
for suite in "$@"; do
    suites="$suites --suite libstitch:$suite"
done
# shellcheck disable=SC2086
meson test -C build --no-rebuild --print-errorlogs $suites >build/test.log 2>&1
status=$?
exec python3 tests/summary.py build/meson-logs/testlog.json "$status" build/test.log

#!/bin/sh
# SPDX-License-Identifier: MIT
# Sets up, builds and runs the tests. The last line is "N passed, N failed, N skipped"; exits 1 if any failed.
#
# usage: sh tests/run.sh [SUITE...]     suites: unit api sim adversarial profile python fuzz gpu (default: all that exist)
set -u
known="unit api sim adversarial profile python fuzz gpu"

stop() {
    printf '%s\n' "$1" >&2
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}

cd "$(dirname "$0")/.." || exit 1
for suite in "$@"; do
    case " $known " in
    *" $suite "*) ;;
    *) stop "there is no suite '$suite'; suites: $known" ;;
    esac
done
. examples/setup.sh
stitch_setup && stitch_wheel_tools && stitch_numpy && stitch_build || stop "could not build"

log=build/meson-logs/testlog.json
rm -f "$log"
present=$(meson introspect --tests build | python3 -c 'import json, sys
print(" ".join({suite.split(":")[-1] for test in json.load(sys.stdin) for suite in test["suite"]}))') || stop "cannot list the tests"
chosen=
absent=
for suite in "$@"; do
    case " $present " in
    *" $suite "*) chosen="$chosen --suite libstitch:$suite" ;;
    *) absent="$absent $suite" ;;
    esac
done
status=0
if [ $# = 0 ] || [ -n "$chosen" ]; then
    # Shown as it goes; the exit status takes the long way round the pipe.
    # shellcheck disable=SC2086
    {
        meson test -C build --no-rebuild --timeout-multiplier 4 $chosen 2>&1
        echo $? >build/test.status
    } | tee build/test.log
    status=$(cat build/test.status)
fi
# shellcheck disable=SC2086
exec python3 tests/summary.py "$log" "$status" build/test.log $absent

#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs the GPU suite from a build folder that may have been built elsewhere: nothing is built, nothing is installed, and
# Meson is not needed. The last line is "N passed, N failed, N skipped"; exits 1 if any failed.
#
# usage: sh tests/gpu.sh [-j JOBS] [-t SECONDS] [BUILD-FOLDER]     (default: build)
#
#   -j       how many tests run at once (1), but for those that must have the device to themselves
#   -t       time limit of a test (600)
set -u

# They measure times, or count and sample with CUPTI, where another process on the device shows in the figures or finds
# the counters taken. The tricks (test_adversarial) do both: they share the device among themselves.
alone=" test_gpu_ceilings test_gpu_counters test_gpu_profile test_gpu_rules test_gpu_sampling test_gpu_trace test_gpu_verify test_adversarial \
test_gpt_block.py test_gpu_cli_torch.py test_gpu_kernelbench_judge.py test_gpu_profile_cli.py test_gpu_profile_torch.py \
test_gpu_torch.py test_gpu_torch_gpt.py test_gpu_wheel.py "

usage() {
    sed -n '6,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

jobs=1
limit=600
while getopts j:t: option; do
    case $option in
    j | t)
        case $OPTARG in '' | 0* | *[!0-9]*) usage ;; esac
        case $option in j) jobs=$OPTARG ;; t) limit=$OPTARG ;; esac
        ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -le 1 ] || usage
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
runs=
trap 'rm -rf "$logs"' EXIT
trap '[ -z "$runs" ] || kill $runs 2>/dev/null; exit 130' INT TERM

# A test with its output in a file, and its exit status as the last line of that.
run_test() {
    test=$1
    name=$(basename "$test") # with .py: a program and a script may share the rest
    set -- "$test"
    case $name in
    *.py) set -- python3 "$@" ;;
    test_adversarial) set -- "$@" --jobs "$jobs" ;;
    esac
    timeout -k 10 "$limit" "$@" >"$logs/$name" 2>&1 &
    child=$!
    trap 'kill "$child" 2>/dev/null; exit 130' INT TERM
    wait "$child"
    printf '\nexit %s\n' "$?" >>"$logs/$name"
}

programs=0
together=
in_turn=
for test in "$build"/tests/gpu/test_* "$build"/tests/adversarial/test_* tests/gpu/test_*.py; do
    [ -f "$test" ] || continue
    name=$(basename "$test")
    [ ! -e "$logs/$name" ] || {
        echo "two tests are called $name" >&2
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    }
    case $test in
    *.py) ;;
    *)
        [ -x "$test" ] || continue
        programs=$((programs + 1))
        ;;
    esac
    : >"$logs/$name"
    case $jobs:$alone in
    1:* | *" $name "*) in_turn="$in_turn
$test" ;;
    *) together="$together
$test" ;;
    esac
done
[ "$programs" -gt 0 ] || {
    echo "no GPU tests under $build/tests/gpu: build first (sh tests/run.sh)" >&2
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
IFS='
'
# A token for each that may run; a test that begins takes one and puts it back when it has ended.
mkfifo "$logs/.tokens" || exit 1
exec 9<>"$logs/.tokens"
free=$jobs
while [ "$free" -gt 0 ]; do
    echo >&9
    free=$((free - 1))
done
for test in $together; do
    read -r _ <&9
    basename "$test" >&2
    {
        run_test "$test"
        echo >&9
    } &
    runs="$runs
$!"
done
wait
for test in $in_turn; do
    basename "$test" >&2
    run_test "$test" &
    runs=$!
    wait "$runs"
done
exec 9>&-
python3 tests/summary.py --tap "$logs"/*

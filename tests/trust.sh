#!/bin/sh
# SPDX-License-Identifier: MIT
# Measures what a verdict is worth, and writes the report (docs/trust-report.md holds the last one from a GPU): the table
# of tricks, random faults in workers, verdicts about right and slightly wrong programs. Works from a build folder that
# may have been built elsewhere: nothing is built, and Meson is not needed. Exits 1 if anything failed, 75 if nothing did
# but a part is not finished.
#
# usage: sh tests/trust.sh [-f FAULTS] [-v VERDICTS] [-r REPEATS] [-j JOBS] [-t SECONDS] [-p PART]... [BUILD [OUT.md]]
#
#   -f, -v   how many faults and verdicts (1000 and 200; on a simulated device 40 and 8)
#   -r       how often costs and speed-ups are measured (20)
#   -j       how many processes share a part (1)
#   -t       ends faults and verdicts after so many seconds. Faults that are missing then are injected when the part runs
#            again: it adds to what is there until all are done, and starts anew after that.
#   -p       tricks, faults or verdicts: do only that part and take the others from the last run that did them, for
#            machines where a command may not take long. All are kept in BUILD/trust.
#   BUILD    default: build;   OUT.md: default: BUILD/trust/report.md
set -u

usage() {
    sed -n '7,19s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

faults=
verdicts=
repeats=20
jobs=1
seconds=0
parts=
while getopts f:v:r:j:t:p: option; do
    case $option in
    f | v | r | j | t)
        case $OPTARG in '' | *[!0-9]*) usage ;; esac
        case $option in f) faults=$OPTARG ;; v) verdicts=$OPTARG ;; r) repeats=$OPTARG ;; j) jobs=$OPTARG ;; t) seconds=$OPTARG ;; esac
        ;;
    p)
        case $OPTARG in tricks | faults | verdicts) parts="$parts $OPTARG" ;; *) usage ;; esac
        ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -le 2 ] || usage
here=$(pwd)
case ${1:-} in
'') build=$(cd "$(dirname "$0")/.." && pwd)/build ;;
/*) build=$1 ;;
*) build=$here/$1 ;;
esac
out=${2:-$build/trust/report.md}
case $out in /*) ;; *) out=$here/$out ;; esac
cd "$(dirname "$0")/.." || exit 1
for program in adversarial/test_adversarial gpu/fault_campaign gpu/verdict_campaign; do
    [ -x "$build/tests/$program" ] || {
        echo "there is no tests/$program in the build folder: build first (sh tests/run.sh)" >&2
        exit 1
    }
done
LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
if [ -z "${VIRTUAL_ENV:-}" ] && [ -d "$build/venv/lib" ]; then
    VIRTUAL_ENV="$build/venv" # CUDA libraries from wheels, where the build has them
    export VIRTUAL_ENV
fi
kept=$build/trust
mkdir -p "$kept" "$(dirname "$out")" || exit 1

"$build/tests/gpu/verdict_campaign" --environment >"$kept/environment.md" || {
    cat "$kept/environment.md" >&2
    exit 1
}
simulated=
if grep -q '^| device | simulated' "$kept/environment.md"; then
    simulated=1
    echo "no GPU: the simulator's part, with small counts" >&2
fi
faults=${faults:-${simulated:+40}}
faults=${faults:-1000}
verdicts=${verdicts:-${simulated:+8}}
verdicts=${verdicts:-200}

# A part's output and, as its last line, its exit status.
part() {
    name=$1
    shift
    case " ${parts:-tricks faults verdicts} " in *" $name "*) ;; *) return ;; esac
    echo "$name" >&2
    rm -f "$kept/$name.md"
    timeout -k 10 3600 "$@" >"$kept/$name.new" 2>"$kept/$name.log"
    echo "$?" >>"$kept/$name.new"
    mv "$kept/$name.new" "$kept/$name.md"
}

part tricks "$build/tests/adversarial/test_adversarial" --markdown --jobs "$jobs"
part faults "$build/tests/gpu/fault_campaign" "$faults" 1 "$jobs" "$seconds" "$kept/faults.state"
part verdicts "$build/tests/gpu/verdict_campaign" "$verdicts" "$repeats" "$jobs" "$seconds"

failed=
unfinished=
put() {
    printf '\n## %s\n\n' "$2"
    if [ -f "$kept/$1.md" ]; then
        # Loose lines become a list; tables, headings and lists are left as they are.
        if [ "$1" = faults ]; then
            sed -e '$d' -e '/^$/b' -e '/^[|#-]/b' -e 's/^/- /' "$kept/$1.md"
        else
            sed '$d' "$kept/$1.md"
        fi
        status=$(tail -n 1 "$kept/$1.md")
    else
        echo "Not run."
        status=1
    fi
    case $status in
    0) ;;
    75)
        unfinished="$unfinished $1"
        printf '\n**This part is not finished**: time was up.\n'
        ;;
    *)
        failed="$failed $1"
        printf '\n**This part failed** (exit status %s).\n' "$status"
        ;;
    esac
}

{
    echo "# What a verdict is worth: measured"
    # shellcheck disable=SC2016
    printf '\nWritten by `tests/trust.sh` on %s. [trust.md](trust.md) says what each check does, [worker.md](worker.md) what a worker is.\n' \
        "$(date -u +%Y-%m-%d)"
    [ -z "$simulated" ] || printf '\nThere was no GPU: this is the part that the simulator can do, with small counts.\n'
    printf '\n'
    cat "$kept/environment.md"
    put tricks "Tricks"
    put faults "Faults in workers, while this process works on the same device"
    put verdicts "Verdicts"
    printf '\n## To repeat it\n\n'
    printf '    sh tests/run.sh                      # builds\n'
    printf '    sh tests/trust.sh build report.md    # this report; exits 1 if anything failed\n\n'
    # shellcheck disable=SC2016
    printf 'Its parts are programs of the build folder: `tests/adversarial/test_adversarial --markdown [--jobs N] [ROW...]`, `tests/gpu/fault_campaign %s 1 [JOBS]`,\n' "$faults"
    # shellcheck disable=SC2016
    printf '`tests/gpu/verdict_campaign %s %s [JOBS]`. `STITCH_TEST_DEVICE` names another device; without a GPU the simulator stands in.\n' "$verdicts" "$repeats"
} >"$kept/report.new"
mv "$kept/report.new" "$out"
if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    for name in $failed; do
        [ ! -s "$kept/$name.log" ] || tail -n 20 "$kept/$name.log" >&2
    done
    exit 1
fi
[ -z "$unfinished" ] || {
    echo "not finished:$unfinished" >&2
    exit 75
}
echo "passed" >&2

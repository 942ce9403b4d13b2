# SPDX-License-Identifier: MIT
"""Prints failed and skipped tests, then "N passed, N failed, N skipped".

usage: summary.py TESTLOG.json STATUS LOG    meson's log, its exit status, and its output
       summary.py --tap NAME FILE...         output of test programs, run without meson

Counted are the single tests of each program (TAP lines); a program that printed none counts as one test, and one that ended
badly with no failed test in its output counts as a failure.
"""
import json
import re
import sys

LINE = re.compile(r"^(not )?ok\b[ \t]*\d*[ \t]*-?[ \t]*([^#\n]*)(#[ \t]*SKIP\b[ \t]*(.*))?", re.IGNORECASE | re.MULTILINE)


def count(program, output, bad, totals):
    """Adds one program's tests to totals = [passed, failed, skipped]."""
    found = failed = 0
    for match in LINE.finditer(output):
        found += 1
        name = match.group(2).strip()
        if match.group(1):
            failed += 1
            totals[1] += 1
            print(f"failed: {program}: {name}")
        elif match.group(3):
            totals[2] += 1
            print(f"skipped: {program}: {name}: {match.group(4).strip()}")
        else:
            totals[0] += 1
    whole = re.search(r"^1\.\.0[ \t]*#[ \t]*SKIP[ \t]*(.*)", output, re.IGNORECASE | re.MULTILINE)
    if whole and not found:
        totals[2] += 1
        print(f"skipped: {program}: {whole.group(1).strip()}")
    elif not found:
        totals[1 if bad else 0] += 1
        if bad:
            print(f"failed: {program}")
    elif bad and not failed:
        totals[1] += 1
        print(f"failed: {program}: ended with an error")


def from_meson(path, status, log):
    totals = [0, 0, 0]
    try:
        with open(path, encoding="utf-8") as lines:
            tests = [json.loads(line) for line in lines if line.strip()]
    except OSError:
        tests = []
    for test in tests:
        result = test.get("result", "")
        if result == "SKIP" and not LINE.search(test.get("stdout", "")):
            totals[2] += 1
            print(f"skipped: {test['name']}: {test.get('stdout', '').strip().splitlines()[-1:]}")
            continue
        count(test["name"], test.get("stdout", ""), result not in ("OK", "SKIP", "EXPECTEDFAIL"), totals)
        if result not in ("OK", "SKIP", "EXPECTEDFAIL"):
            print("\n".join("    " + line for line in (test.get("stdout", "") + test.get("stderr", "")).splitlines()[-60:]))
    if status and not totals[1]:
        totals[1] += 1
        with open(log, encoding="utf-8", errors="replace") as text:
            print(text.read()[-4000:])
    return totals


def from_tap(pairs):
    totals = [0, 0, 0]
    for name, path in pairs:
        with open(path, encoding="utf-8", errors="replace") as text:
            output = text.read()
        bad = not output.rstrip().endswith("exit 0")
        count(name, output, bad, totals)
        if bad:
            print("\n".join("    " + line for line in output.splitlines()[-60:]))
    return totals


def main():
    if sys.argv[1] == "--tap":
        totals = from_tap(zip(sys.argv[2::2], sys.argv[3::2]))
    else:
        totals = from_meson(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())

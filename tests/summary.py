# SPDX-License-Identifier: MIT
"""Prints failed and skipped tests, then "N passed, N failed, N skipped".

usage: summary.py TESTLOG.json STATUS LOG [SUITE...]    meson's log, its exit status, its output, suites without tests
       summary.py --tap FILE...     output of test programs, run without meson; the last line of each is "exit STATUS"

Counted are the single tests of each program (TAP lines). A program that printed none counts as one test. One that ended badly, or
before its plan was done, with no failed test in its output counts as one more failure.
"""
import json
import os
import re
import sys

PLAN = re.compile(r"^1\.\.(\d+)[ \t]*(#.*)?$", re.MULTILINE)
LINE = re.compile(r"^(not )?ok\b[ \t]*\d*[ \t]*-?[ \t]*([^#\n]*)(#[ \t]*SKIP\b[ \t]*(.*))?", re.IGNORECASE | re.MULTILINE)


def count(program, output, bad, totals):
    """Adds one program's tests to totals = [passed, failed, skipped]."""
    found = failed = 0
    skipped = {}  # names by reason: a program's tests often share one
    for match in LINE.finditer(output):
        found += 1
        name = match.group(2).strip()
        if match.group(1):
            failed += 1
            totals[1] += 1
            print(f"failed: {program}: {name}")
        elif match.group(3):
            totals[2] += 1
            skipped.setdefault(match.group(4).strip(), []).append(name)
        else:
            totals[0] += 1
    for reason, names in skipped.items():
        print(f"skipped: {program}: {names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {reason}")
    plan = PLAN.search(output)
    if plan and found < int(plan.group(1)):
        bad = True
    whole = re.search(r"^1\.\.0[ \t]*#[ \t]*SKIP[ \t]*(.*)", output, re.IGNORECASE | re.MULTILINE)
    if whole and not found and not bad:
        totals[2] += 1
        print(f"skipped: {program}: {whole.group(1).strip()}")
    elif not found:
        totals[1 if bad else 0] += 1
        if bad:
            print(f"failed: {program}")
    elif bad and not failed:
        totals[1] += 1
        print(f"failed: {program}: ended with an error, or early")
    return bad or failed > 0


def tail(output):
    """The end of a failed program's output; what it quotes (a report in JSON) may have lines of any length."""
    for line in output.splitlines()[-60:]:
        print("    " + (line if len(line) <= 1000 else f"{line[:1000]}... ({len(line) - 1000} more)"))


def from_meson(path, status, log):
    totals = [0, 0, 0]
    try:
        with open(path, encoding="utf-8") as lines:
            tests = [json.loads(line) for line in lines if line.strip()]
    except OSError:
        tests = []
    for test in tests:
        result = test.get("result", "")
        name, output = test["name"].split(" / ")[-1], test.get("stdout", "")
        if result == "SKIP" and not LINE.search(output) and not PLAN.search(output):
            totals[2] += 1
            print(f"skipped: {name}: {' '.join(output.split()[-20:]) or 'gave no reason'}")
            continue
        if count(name, output, result not in ("OK", "SKIP", "EXPECTEDFAIL"), totals):
            print(f"    result: {result}, exit status {test.get('returncode')}")
            tail(output + test.get("stderr", ""))
    if status and not totals[1]:
        totals[1] += 1
        with open(log, encoding="utf-8", errors="replace") as text:
            print(text.read()[-4000:])
    return totals


def from_tap(paths):
    totals = [0, 0, 0]
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as text:
            output = text.read()
        if count(os.path.basename(path), output, not output.endswith("\nexit 0\n"), totals):
            tail(output)
    return totals


def main():
    if sys.argv[1] == "--tap":
        totals = from_tap(sys.argv[2:])
    else:
        totals = from_meson(sys.argv[1], int(sys.argv[2]), sys.argv[3])
        for suite in sys.argv[4:]:
            totals[2] += 1
            print(f"skipped: {suite}: this suite has no tests in this build")
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())

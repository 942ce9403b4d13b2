# SPDX-License-Identifier: MIT
"""The closing line of tests/run.sh and tests/gpu.sh counts what it should. Prints TAP.

usage: test_summary.py SUMMARY.py
"""
import json
import os
import subprocess
import sys
import tempfile

# What a program printed, its exit status, and what that must add up to.
TAP = [
    ("all pass", "1..2\nok 1 - a\nok 2 - b\n", 0, (2, 0, 0)),
    ("one fails", "1..2\nok 1 - a\n# x.c:1: why\nnot ok 2 - b\n", 1, (1, 1, 0)),
    ("one is skipped", "1..2\nok 1 - a # SKIP no GPU\nok 2\n", 0, (1, 0, 1)),
    ("all are skipped", "1..0 # SKIP nothing to do\n", 0, (0, 0, 1)),
    ("crashes half-way", "1..3\nok 1 - a\n", 139, (1, 1, 0)),
    ("leaves half-way with 0", "1..3\nok 1 - a\n", 0, (1, 1, 0)),
    ("crashes at the start", "", 139, (0, 1, 0)),
    ("fails after its tests", "1..1\nok 1 - a\n", 1, (1, 1, 0)),
    ("fails and crashes", "1..3\nnot ok 1 - a\n", 139, (0, 1, 0)),
    ("prints no tests", "fine\n", 0, (1, 0, 0)),
    ("skips all, then crashes", "1..0 # SKIP nothing to do\n", 139, (0, 1, 0)),
    ("output that has no newline at its end", "1..1\nok 1 - a", 0, (1, 0, 0)),
    ("output that imitates an exit", "1..1\nok 1 - a\nexit 0\n", 1, (1, 1, 0)),
]


def closing(summary, *args):
    done = subprocess.run([sys.executable, summary, *args], capture_output=True, text=True)
    return done.stdout.splitlines()[-1], done.returncode


def line(totals):
    return "{} passed, {} failed, {} skipped".format(*totals), 1 if totals[1] else 0


def main():
    summary, results = sys.argv[1], []
    with tempfile.TemporaryDirectory() as folder:
        log, out = os.path.join(folder, "testlog.json"), os.path.join(folder, "out")
        with open(out, "w", encoding="utf-8") as text:
            text.write("what meson said\n")
        for name, output, status, want in TAP:
            path = os.path.join(folder, "program")
            with open(path, "w", encoding="utf-8") as text:
                text.write(f"{output}\nexit {status}\n")
            results.append((f"program: {name}", closing(summary, "--tap", path), line(want)))
        with open(log, "w", encoding="utf-8") as text:
            for name, output, status, want in TAP:
                result = "SKIP" if output.startswith("1..0") and not status else "FAIL" if want[1] else "OK"
                text.write(json.dumps({"name": f"libstitch:unit / {name}", "stdout": output, "stderr": "", "result": result,
                                       "returncode": status}) + "\n")
        whole = [sum(want[i] for _, _, _, want in TAP) for i in range(3)]
        results.append(("meson: the sum", closing(summary, log, "1", out), line(whole)))
        whole[2] += 2
        results.append(("meson: suites without tests", closing(summary, log, "1", out, "python", "profile"), line(whole)))
        missing = os.path.join(folder, "none")
        results.append(("meson: did not run", closing(summary, missing, "1", out), line((0, 1, 0))))
        with open(log, "w", encoding="utf-8") as text:
            text.write(json.dumps({"name": "t", "stdout": "1..1\nok 1\n", "result": "OK", "returncode": 0}) + "\n")
        results.append(("meson: failed though its tests passed", closing(summary, log, "1", out), line((1, 1, 0))))
        with open(out, "w", encoding="utf-8") as text:
            text.write("1..4\nok 1 - a # SKIP no GPU\nok 2 - b # SKIP no GPU\nok 3 - c # SKIP no\nok 4 - d # SKIP no GPU\nexit 0\n")
        done = subprocess.run([sys.executable, summary, "--tap", out], capture_output=True, text=True)
        want = "skipped: out: a and 2 more: no GPU\nskipped: out: c: no\n0 passed, 0 failed, 4 skipped\n"
        results.append(("a reason is said once", (done.stdout, done.returncode), (want, 0)))
    print(f"1..{len(results)}")
    for number, (name, got, want) in enumerate(results, 1):
        print(f"{'ok' if got == want else 'not ok'} {number} - {name}")
        if got != want:
            print(f"# got {got}, expected {want}")
    return 0 if all(got == want for _, got, want in results) else 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: MIT
"""The whole loop on the simulator with recorded replies: planted mistakes come back as findings that name the line, the replies that follow mend
them, and the saved program runs in the other examples. Prints TAP.

usage: test_loop.py BUILD-EXAMPLES-FOLDER EXAMPLES-FOLDER LIBSTITCH-SIM
"""
import json
import os
import subprocess
import sys
import tempfile

BUILT, EXAMPLES, SIM = (os.path.abspath(path) for path in sys.argv[1:4])  # Meson gives them relative to the build folder
TASK = os.path.join(EXAMPLES, "tasks", "swiglu_mlp", "task.json")
REPLIES = os.path.join(EXAMPLES, "replies", "swiglu_mlp.jsonl")
FOLDER = tempfile.mkdtemp()
SAVED = os.path.join(FOLDER, "p.stitch")
# What was planted: the source text of the line, and the words of the finding.
PLANTED = [("c <= width", "access outside of every buffer"),
           ("partial[i]", "no barrier between"),
           ("partial[threadIdx.x & 31]", "memory that nothing wrote")]
tests = []


def check(name, ok, detail=""):
    tests.append(bool(ok))
    print(f"{'ok' if ok else 'not ok'} {len(tests)} - {name}", flush=True)
    for line in [] if ok else str(detail).splitlines():
        print("# " + line)


def run(*args, **env):
    return subprocess.run(args, capture_output=True, text=True, timeout=280, cwd=FOLDER,
                          env=dict(os.environ, STITCH_CACHE_DIR=os.path.join(FOLDER, "cache"), **env))


def source_of(number):
    with open(REPLIES, encoding="utf-8") as lines:
        replies = [json.loads(line) for line in lines]
    code = [r for r in replies if r["label"].startswith("code")]
    return code[number]["reply"]["content"].split("```cuda\n")[1].split("```")[0].splitlines()


def main():
    stitch = os.path.join(BUILT, "stitch")
    done = run(stitch, "run", "--device", "sim:sm_90a", "--task", TASK, "--model", "replay-strict:" + REPLIES, "--out", SAVED, "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    attempts = [e for e in events if e["event"] == "attempt"]
    check("the loop ends with a correct program", done.returncode == 0 and os.path.exists(SAVED), done.stdout + done.stderr)
    check("it takes every turn", [e["action"] for e in attempts] == ["draft", "repair_correctness", "repair_correctness", "draft"] and
          len([e for e in events if e["event"] == "plan"]) == 2, [e["action"] for e in attempts])
    check("no prompt has changed since the recording", all(not e["notice"] for e in attempts))
    for i, (text, words) in enumerate(PLANTED):
        findings = attempts[i]["report"]["findings"] if i < len(attempts) else ""
        lines = [n for n, line in enumerate(source_of(i), 1) if text in line]
        check(f"found: {text}", words in findings and any(f"program.cu:{n}" in findings for n in (*lines, *(n + 1 for n in lines))),
              f"lines {lines}: {findings}")
    check("the last one is correct", attempts and attempts[-1]["report"]["summary"]["correct"])
    done = run(stitch, "verify", "--device", "sim:sm_90a", "--task", TASK, SAVED, "--json")
    check("the saved program verifies", done.returncode == 0, done.stdout + done.stderr)
    done = run(os.path.join(BUILT, "loop"), TASK, "replay:" + REPLIES, "2", os.path.join(FOLDER, "q.stitch"))
    check("the small loop finds it too", done.returncode == 0 and os.path.exists(os.path.join(FOLDER, "q.stitch")), done.stdout + done.stderr)
    if os.path.exists(os.path.join(BUILT, "engine")):
        done = run(os.path.join(BUILT, "engine"), os.path.join(FOLDER, "q.stitch"), "1", STITCH_CUDA_DRIVER=SIM)
        check("the engine runs it on the simulated driver", done.returncode == 0 and "mean |output|" in done.stdout, done.stdout + done.stderr)
    print(f"1..{len(tests)}")
    return 0 if all(tests) else 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: MIT
"""`stitch profile` and `stitch run --html` on a GPU: table, JSON, Perfetto trace, report, profile of what the task is measured against.

Prints TAP, with the figures in diagnostics. Needs a build folder (STITCH_BUILD, default build) and a GPU with CUPTI; STITCH_TEST_KEEP names a folder
that the files are kept in.
"""
import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("STITCH_BUILD", os.path.join(ROOT, "build"))
STITCH = os.path.join(BUILD, "examples", "stitch")
TASK = os.path.join(ROOT, "examples", "tasks", "gpt_block", "task.json")
REPLIES = os.path.join(ROOT, "examples", "replies", "gpt_block.jsonl")
KEEP = os.environ.get("STITCH_TEST_KEEP") or tempfile.mkdtemp()
results = []


def report(name, ok, detail=""):
    results.append(bool(ok))
    print(f"{'ok' if ok else 'not ok'} {len(results)} - {name}", flush=True)
    if detail:
        print("# " + str(detail)[:4000].replace("\n", "\n# "), flush=True)


def doctor():
    done = subprocess.run([STITCH, "doctor", "--json"], capture_output=True, text=True)
    try:
        return {item["name"]: item for item in json.loads(done.stdout)["items"]}
    except (ValueError, KeyError):
        return {}


def run(*args):
    start = time.monotonic()
    done = subprocess.run([STITCH, *args], capture_output=True, text=True, timeout=500, cwd=KEEP)
    print(f"# stitch {args[0]}: {time.monotonic() - start:.1f} s, exit {done.returncode}", flush=True)
    return done


class Data(html.parser.HTMLParser):
    """What a report holds."""

    def __init__(self, path):
        super().__init__()
        self.inside, self.text = False, ""
        with open(path, encoding="utf-8") as f:
            self.feed(f.read())
        self.data = json.loads(self.text)

    def handle_starttag(self, tag, attrs):
        self.inside = tag == "script" and dict(attrs).get("id") == "data"

    def handle_data(self, data):
        if self.inside:
            self.text += data


def kernels_of(profile):
    return [(k["name"], k.get("time_us"), k.get("share"), len(k.get("metrics", {})), k.get("samples", 0)) for k in profile["facts"]["kernels"]]


def loop():
    """The whole run: the plan begins with the baseline's profile, attempts are profiled with all counters, the best one is traced."""
    done = run("run", "--task", TASK, "--model", "replay:" + REPLIES, "--target", "12", "--out", "gpt.stitch", "--html", "run.html", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    attempts = [e for e in events if e["event"] == "attempt"]
    report("a run with a report", done.returncode == 0 and os.path.exists(os.path.join(KEEP, "run.html")), done.stderr[-3000:])
    report("the plan had a profile", "the plan has no profile" not in done.stderr)
    report("the recording still matches the plan's prompt", "the prompt of plan #1 differs" not in done.stderr)
    correct = [e["report"] for e in attempts if e["report"]["summary"]["correct"]]
    correct = [r for r in correct if not r["summary"]["failed_stage"]]  # not refused for something else than its results
    report("correct attempts have profiles", correct and all("profile" in r for r in correct), [r["stages"][-1] for r in correct])
    data = Data(os.path.join(KEEP, "run.html")).data
    best = data["attempts"][data["best"]]
    report("the report has the profile of the baseline", data.get("reference", {}).get("facts", {}).get("kernels"),
           kernels_of(data["reference"]) if "reference" in data else "none")
    traced = [r for r in best.get("trace", {}).get("records", []) if r["kind"] == "kernel"]
    report("the best attempt has a timeline", traced, [(r["name"], round(r["end"] - r["start"], 2), r.get("step")) for r in traced])
    report("its kernels have steps", traced and any("step" in r for r in traced))


def profile():
    done = run("profile", TASK, "gpt.stitch", "--json", "--full", "--metrics", "lts__t_sectors.sum", "--trace", "trace.json", "--html", "profile.html")
    report("profile --json", done.returncode == 0, done.stderr)
    value = json.loads(done.stdout)
    kernels = value["facts"]["kernels"]
    report("kernels with times, counters and samples", kernels and all(k.get("time_us", 0) > 0 for k in kernels) and any(len(k.get("metrics", {})) > 20 for k in kernels) and
           any(k.get("samples", 0) > 0 for k in kernels), kernels_of(value))
    report("a metric by name", value["facts"]["extra_names"] == ["lts__t_sectors.sum"] and any(k.get("extra", [None])[0] for k in kernels),
           [k.get("extra") for k in kernels])
    report("ceilings were measured", value["facts"]["ceilings"].get("measured"), value["facts"]["ceilings"])
    with open(os.path.join(KEEP, "trace.json"), encoding="utf-8") as f:
        trace = json.load(f)
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    report("--trace writes events of one run", events, f"{len(events)} events")
    report("the report of one program", Data(os.path.join(KEEP, "profile.html")).data["attempts"][0].get("trace", {}).get("records"))
    done = run("profile", TASK, "gpt.stitch")
    report("the table", done.returncode == 0 and "Lines that warps wait at" in done.stdout and re.search(r"-bound: |^unknown", done.stdout), done.stdout)
    done = run("profile", TASK)
    report("what the task is measured against", done.returncode == 0 and "kernel" in done.stdout, done.stdout + done.stderr)


def main():
    items = doctor()
    missing = [name for name in ("driver", "device", "nvrtc", "cupti") if items.get(name, {}).get("status", "missing") not in ("ok", "unused")]
    if missing:
        print(f"1..0 # SKIP {', '.join(missing)}: not there")
        return 0
    loop()
    if os.path.exists(os.path.join(KEEP, "gpt.stitch")):
        profile()
    print(f"1..{len(results)}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

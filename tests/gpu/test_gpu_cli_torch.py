# SPDX-License-Identifier: MIT
"""`stitch verify`, `run`, `profile` and `admit` with a PyTorch module as the task, on a GPU: PyTorch's baselines, times, timelines, Ctrl-C.

Prints TAP, with the figures in diagnostics. Needs a build folder (STITCH_BUILD, default build), a GPU, and PyTorch for it in the Python that runs this
(or in STITCH_PYTHON).
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("STITCH_BUILD", os.path.join(ROOT, "build"))
STITCH = os.path.join(BUILD, "examples", "stitch")
PYTHON = os.environ.get("STITCH_PYTHON") or sys.executable
FOLDER = tempfile.mkdtemp()
ENV = dict(os.environ, STITCH_PYTHON=PYTHON, PYTHONPATH=os.path.join(ROOT, "bindings", "python"))
results = []

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return torch.tanh(torch.relu(x * self.w) + 1) * x


def get_inputs():
    return [torch.randn(8192, 4096)]


def get_init_inputs():
    return [4096]
"""
SOURCE = """extern "C" __global__ void tanh_of_relu(const float *x, const float *w, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = tanhf(fmaxf(x[i] * w[i & 4095], 0.0f) + 1.0f) * x[i];
}
"""
LAUNCH = {"stitch": 1, "run": [{"kernel": "tanh_of_relu", "grid": ["ceil_div(B*4096,256)"], "block": [256], "args": ["x", "w", "y", {"i32": "B*4096"}]}]}
PLAN = {"stitch_plan": 1, "strategy": "one kernel", "bottlenecks": [], "subtasks": [{"id": "a", "level": "kernel", "title": "t", "goal": "g", "after": []}]}


def report(name, ok, detail=""):
    results.append(bool(ok))
    print(f"{'ok' if ok else 'not ok'} {len(results)} - {name}", flush=True)
    if detail:
        print("# " + str(detail)[:4000].replace("\n", "\n# "), flush=True)


def put(name, text):
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as f:
        f.write(text)


def run(*args):
    start = time.monotonic()
    done = subprocess.run([STITCH, *args], capture_output=True, text=True, timeout=500, cwd=FOLDER, env=ENV)
    print(f"# stitch {args[0]}: {time.monotonic() - start:.1f} s, exit {done.returncode}", flush=True)
    return done


def verify():
    args = ["verify", "--task", "model.py", "--source", "all.cu", "--plan", "launch.json", "-o", "all.stitch"]
    done = run(*args, "--json")
    value = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    right = done.returncode == 0 and value["summary"]["timed"] and value["summary"]["speedup"] > 1
    report("a right program, timed", right, done.stderr + str(value.get("summary")) + ("" if right else str(value.get("stages"))))
    baselines = [line for line in json.dumps(value.get("time", {}), indent=1).splitlines() if "name" in line]
    report("PyTorch's baselines are in the report", len(baselines) >= 4, "\n".join(baselines))
    report("it ran in a worker", value and value["environment"]["program_ran"].startswith("in a worker"), value and value["environment"]["program_ran"])
    put("wrong.cu", SOURCE.replace("+ 1.0f", "+ 1.01f"))
    done = run("verify", "--task", "model.py", "--source", "wrong.cu", "--plan", "launch.json")
    report("a wrong one", done.returncode == 1 and done.stdout.startswith("FAILED"), done.stdout[:600] + done.stderr)


def loop():
    reply = f"```cuda\n{SOURCE}```\n```json\n{json.dumps(LAUNCH)}\n```\n"
    put("r.jsonl", "".join(json.dumps({"label": label, "number": 1, "reply": {"content": text}}) + "\n" for label, text in (("plan", json.dumps(PLAN)), ("code:draft", reply))))
    done = run("run", "--task", "model.py", "--model", "replay:r.jsonl", "--attempts", "1", "--json", "--html", "report.html")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    report("run", done.returncode == 0 and [e["event"] for e in events] == ["plan", "attempt", "result"] and events[-1]["speedup"] > 1, done.stderr)
    with open(os.path.join(FOLDER, "report.html"), encoding="utf-8") as f:
        page = f.read()
    report("its report has a timeline and the module's profile", '"trace":' in page and '"reference":' in page)


def profile():
    done = run("profile", "model.py", "all.stitch", "--trace", "trace.json", "--html", "profile.html")
    report("profile of a program", done.returncode == 0 and "tanh_of_relu" in done.stdout and os.path.exists(os.path.join(FOLDER, "trace.json")), done.stdout + done.stderr)
    done = run("profile", "model.py", "--json")
    kernels = json.loads(done.stdout)["facts"]["kernels"] if done.returncode == 0 else []
    report("profile of the module", len(kernels) >= 2, [k["name"] for k in kernels] or done.stderr)
    done = run("admit", "model.py")
    report("admit", done.returncode == 0 and done.stdout.startswith("ADMITTED"), done.stdout[:300] + done.stderr)


def interrupt():
    """While verify works: the exit code, and no process left."""
    child = subprocess.Popen([STITCH, "verify", "--task", "model.py", "all.stitch", "--iterations", "100000"], cwd=FOLDER, env=ENV, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, start_new_session=True)
    time.sleep(15)
    begun = time.monotonic()
    child.send_signal(signal.SIGINT)
    out = child.communicate(timeout=120)[0]
    left = subprocess.run(["ps", "-o", "pid,args", "-s", str(child.pid)], capture_output=True, text=True).stdout.splitlines()[1:]
    report("SIGINT ends it", child.returncode == 130 and "Traceback" not in out, f"after {time.monotonic() - begun:.1f} s\n{out}")
    report("nothing is left", not left, left)


def main():
    done = subprocess.run([PYTHON, "-c", "import torch; assert torch.cuda.is_available(); print(torch.__version__)"], capture_output=True, text=True)
    if done.returncode:
        print("1..0 # SKIP no PyTorch with a GPU")
        return 0
    print("# PyTorch", done.stdout.strip())
    for name, text in (("model.py", MODEL), ("all.cu", SOURCE), ("launch.json", json.dumps(LAUNCH))):
        put(name, text)
    verify()
    loop()
    profile()
    interrupt()
    print(f"1..{len(results)}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

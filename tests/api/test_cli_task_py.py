# SPDX-License-Identifier: MIT
"""The command line with tasks that are PyTorch modules: what Python it finds, that commands say and return the same as
for other tasks, signals, and bad files. On the simulator; what needs PyTorch is skipped without it. Prints TAP.

usage: test_cli_task_py.py STITCH STITCH-CLI.SO LIBSTITCH.SO CHECKOUT
"""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time

STITCH, MODULE, LIBRARY, CHECKOUT = (os.path.abspath(path) for path in sys.argv[1:5])
PACKAGE = os.path.join(CHECKOUT, "bindings", "python")
PYTHON = os.environ.pop("STITCH_PYTHON", "") or sys.executable
FOLDER = tempfile.mkdtemp()
SIM = ["--device", "sim:sm_90a"]
tests = []

MODEL = """
import torch
from torch import nn

print("a line of the file's own")


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return x * self.w + 1


def get_inputs():
    return [torch.randn(8, 32)]


def get_init_inputs():
    return [32]
"""
SOURCE = """extern "C" __global__ void scale(const float *x, const float *w, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] * w[i % 32] + 1.0f;
}
"""
LAUNCH = {
    "stitch": 1,
    "run": [{"kernel": "scale", "grid": ["ceil_div(B*32,64)"], "block": [64], "args": ["x", "w", "y", {"i32": "B*32"}]}],
}
# The same as a document, with a program for its reference.
DOCUMENT = {
    "stitch_task": 1,
    "name": "document",
    "dims": {"B": 8},
    "reduced_dims": {"B": 2},
    "inputs": [{"name": "x", "dtype": "f32", "shape": ["B", 32]}],
    "weights": [{"name": "w", "dtype": "f32", "shape": [32]}],
    "outputs": [{"name": "y", "dtype": "f32", "shape": ["B", 32]}],
    "reference": {"program": {"source": "right64.cu", "plan": "launch.json"}, "outputs": "f64"},
}
PLAN = {
    "stitch_plan": 1,
    "strategy": "one kernel",
    "bottlenecks": [],
    "subtasks": [{"id": "a", "level": "kernel", "title": "t", "goal": "g", "after": []}],
}


def put(name, text, mode=0o644):
    path = os.path.join(FOLDER, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, mode)
    return path


def get(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as f:
        return f.read()


def environment(**changed):
    env = dict(os.environ, STITCH_CACHE_DIR=os.path.join(FOLDER, "cache"), STITCH_PYTHON=PYTHON, PYTHONPATH=PACKAGE)
    env.update(changed)
    return {name: value for name, value in env.items() if value is not None}


def run(*args, stitch=STITCH, stdin="", **changed):
    return subprocess.run(
        [stitch, *args],
        capture_output=True,
        text=True,
        timeout=250,
        cwd=FOLDER,
        env=environment(**changed),
        input=stdin,
        check=False,
    )


def check(name, ok, done=None):
    tests.append(bool(ok))
    print(f"{'ok' if ok else 'not ok'} {len(tests)} - {name}", flush=True)
    if not ok and done is not None:
        for line in (f"exit {done.returncode}", *done.stdout.splitlines(), *done.stderr.splitlines()):
            print("# " + line[:500])


def skip(name, reason):
    tests.append(True)
    print(f"ok {len(tests)} - {name} # SKIP {reason}", flush=True)


def events(done):
    """--json: every line is one."""
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(name, done, word, code=2):
    """One message for people, and the same as an event where that was asked for; nothing else but its details."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("stitch: ")]
    ok = done.returncode == code and len(lines) == 1 and lines[0].startswith("stitch: task: ") and word in lines[0]
    found = events(done)
    ok = ok and len(found) == 1 and found[0]["event"] == "error" and found[0]["message"] in lines[0]
    check(name, ok and "_command.py" not in done.stderr and "<string>" not in done.stderr, done)


# ---- which Python ----------------------------------------------------------------------------------------------------


def usage():
    for args, code, word in (
        (["help", "run"], 0, "--python PYTHON"),
        (["help", "admit"], 0, "usage: stitch admit TASK"),
        (["admit", "model.py", "--python", ""], 2, "not a valid value"),
        (["verify", "--task", "model.py"], 2, "give one of"),  # before any Python is looked for
        (["run", "--task", "model.py"], 2, "--task and --model"),
    ):
        done = run(*args, STITCH_PYTHON="/nonexistent")
        check("usage: stitch " + " ".join(args), done.returncode == code and word in done.stdout + done.stderr, done)


def interpreters():
    admit = ["admit", "model.py", *SIM, "--json"]
    refused("no Python at all", run(*admit, STITCH_PYTHON=None, PATH="/nonexistent"), "there is no program python3;")
    refused("STITCH_PYTHON names none", run(*admit, STITCH_PYTHON="/no/python"), "there is no program /no/python;")
    refused("--python names none", run(*admit, "--python", "no-such-python"), "there is no program no-such-python;")
    refused("--python names a folder", run(*admit, "--python", FOLDER), "there is no program " + FOLDER)
    refused("a program that is no Python", run(*admit, "--python", "true"), "is no Python 3; name one")
    refused("a script without an interpreter", run(*admit, "--python", put("odd", "#!/no/such\n", 0o755)), "cannot be started")
    # Text without "#!": a shell would run it.
    refused("a script without a first line", run(*admit, "--python", put("text", "touch ran\n", 0o755)), "cannot be started")
    check("and no shell ran it", not os.path.exists(os.path.join(FOLDER, "ran")))
    bare = put("bare", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', 0o755)  # without what is installed
    refused("a Python without PyTorch", run(*admit, "--python", bare), "has no PyTorch: install it")
    broken = os.path.join(FOLDER, "broken", "torch")
    os.makedirs(broken)
    put("broken/torch/__init__.py", "raise ImportError('libsomething.so: no such file')\n")
    done = run(*admit, PYTHONPATH=os.path.dirname(broken))
    refused("a PyTorch that cannot be imported", done, "libsomething.so: no such file")
    put("broken/torch/__init__.py", "__version__ = '2.1.0+cpu'\n")
    refused("a PyTorch that is too old", run(*admit, PYTHONPATH=os.path.dirname(broken)), "2.5 or later")
    done = run("admit", "none.py", *SIM, "--json", "--python", bare)
    refused("no file", done, "there is no file none.py")
    os.makedirs(os.path.join(FOLDER, "old"))
    old = put("old/python", '#!/bin/sh\nshift\nsource=$1\nshift\nexec %s -S -c "import sys\nsys.version_info = (3, 8, 1)\n$source" "$@"\n' % sys.executable, 0o755)
    refused("a Python that is too old", run(*admit, "--python", old), "libstitch needs Python 3.9")


def elsewhere():
    """A program away from the checkout uses the package that Python has."""
    folder = os.path.join(FOLDER, "elsewhere", "examples")
    os.makedirs(folder)
    os.makedirs(os.path.join(FOLDER, "elsewhere", "lib"))
    stitch = shutil.copy(STITCH, folder)
    shutil.copy(LIBRARY, os.path.join(FOLDER, "elsewhere", "lib", "libstitch.so.0"))
    bare = put("bare", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', 0o755)
    admit = ["admit", "model.py", *SIM, "--json", "--python", bare]
    refused("stitch-cli.so is missing", run(*admit, stitch=stitch), "stitch-cli.so")
    shutil.copy(MODULE, folder)
    refused("a Python without the package", run(*admit, stitch=stitch, PYTHONPATH=None), "No module named 'stitch'")
    refused("a Python with it", run(*admit, stitch=stitch), "has no PyTorch")
    # The current folder is not where modules are looked for.
    os.makedirs(os.path.join(FOLDER, "stitch"))
    put("stitch/__init__.py", "raise SystemExit(0)\n")
    refused("modules of the current folder are not meant", run(*admit, stitch=stitch, PYTHONPATH=None), "No module named 'stitch'")
    shutil.rmtree(os.path.join(FOLDER, "stitch"))
    done = run(*admit, stitch=stitch, STITCH_LIBRARY="/no/such.so")
    refused("a libstitch that cannot be loaded", done, "libstitch was not found")


# ---- the commands ----------------------------------------------------------------------------------------------------


def program(name):
    return ["--source", name + ".cu", "--plan", "launch.json"]


def alike(a, b):
    """The same is there, whatever it says; of lists the first item."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a if key != "share_changed")  # names of outputs
    if isinstance(a, list) and isinstance(b, list):
        return not a or not b or alike(a[0], b[0])
    return a is None or b is None or type(a) is type(b)


def verifies():
    verify = ["verify", "--task", "model.py", *SIM, "--trials", "2"]
    done = run(*verify, *program("right"), "-o", "saved.stitch")
    ok = done.returncode == 0 and done.stdout.startswith("PASSED") and "task model at" in done.stdout
    check("verify: a right program passes", ok and os.path.getsize(os.path.join(FOLDER, "saved.stitch")), done)
    check("what the file prints is not on stdout", "a line of the file's own" in done.stderr and "own" not in done.stdout, done)
    done = run("verify", "--task", "model.py", "saved.stitch", *SIM, "--trials", "1", "--python", PYTHON, STITCH_PYTHON="/no/python", PYTHONPATH=None)
    check("--python counts before STITCH_PYTHON", done.returncode == 0, done)
    done = run(*verify, *program("wrong"))
    check("verify: a wrong one fails", done.returncode == 1 and done.stdout.startswith("FAILED") and "correct" in done.stdout, done)
    module, document = run(*verify, *program("right"), "--json"), run("verify", "--task", "document.json", *SIM, *program("right"), "--json")
    same = alike(json.loads(module.stdout), json.loads(document.stdout))
    check("verify --json is as for a JSON task", same and module.returncode == document.returncode == 0, module)
    for where, words in (("here", "in this process"), ("worker", "in a worker (")):
        done = run(*verify, *program("right"), "--where", where, "--json")
        check(f"verify --where {where}", done.returncode == 0 and json.loads(done.stdout)["environment"]["program_ran"].startswith(words), done)
    done = run(*verify, "--source", "right.cu", "--plan", "/nonexistent.json")
    check("verify: a program that is not there", done.returncode == 2 and "/nonexistent.json" in done.stderr, done)


def options():
    """What only such tasks take."""
    put("sized.py", MODEL.replace("torch.randn(8, 32)", "torch.randn(batch, n)").replace("return [32]", "return [n]") + "\nbatch, n = 16, 64\n")
    verify = ["verify", "--task", "sized.py", *SIM, "--trials", "1", "--json"]
    done = run(*verify, *program("right"), "--set", "n=32", "--set", "batch=4")
    task = json.loads(done.stdout)["task"] if done.returncode == 0 else {}
    check("--set: other sizes", task and task["tensors"][0]["shape"] == [2, 32] and task["tolerance"] == {"atol": 1e-4, "rtol": 1e-4}, done)
    done = run(*verify, *program("wrong"), "--set", "n=32", "--tolerance", "2", "--precision", "f16")
    task = json.loads(done.stdout)["task"] if done.returncode == 0 else {}
    check("--tolerance, --precision", task and task["tolerance"] == {"atol": 2, "rtol": 2} and task["precision"] == "f16", done)
    done = run(*verify, *program("right"), "--set", "n=32", "--cast", "f16")
    check("--cast: tensors of halves", done.returncode == 1 and [t["dtype"] for t in json.loads(done.stdout)["task"]["tensors"]] == ["f16"] * 3, done)
    for name, args, word in (
        ("a name that the file does not assign", ["--set", "m=1"], "assigns no m"),
        ("a value that is none", ["--set", "n=a b"], "needs quotes"),
        ("a value that does not fit", ["--set", "n='x'"], "Model() raised TypeError"),
        ("no value", ["--set", "n="], "not a valid value"),
        ("no name", ["--set", "=1"], "not a valid value"),
        ("a tolerance of 0", ["--tolerance", "0"], "not a valid value"),
        ("an unknown precision", ["--precision", "f8"], "not a valid value"),
        ("an unknown type", ["--cast", "i32"], "not a valid value"),
        ("more than there is room for", ["--set", "n=1"] * 65, "not a valid value"),
    ):
        done = run("admit", "sized.py", *SIM, *args)
        check("options: " + name, done.returncode == 2 and word in done.stderr, done)
    done = run("admit", "document.json", *SIM, "--set", "n=1")
    check("options: not for a JSON task", done.returncode == 2 and "for a task in a Python file" in done.stderr, done)


def runs():
    reply = "```cuda\n%s```\n```json\n" + json.dumps(LAUNCH) + "\n```\n"
    answers = [("plan", 1, json.dumps(PLAN)), ("code:draft", 1, reply % SOURCE.replace("1.0f", "2.0f")), ("code:repair_correctness", 1, reply % SOURCE)]
    put("r.jsonl", "".join(json.dumps({"label": a, "number": n, "reply": {"content": text}}) + "\n" for a, n, text in answers))
    common = ["--model", "replay:r.jsonl", *SIM, "--attempts", "2", "--trials", "1", "--json"]
    module = run("run", "--task", "model.py", *common, "--keep", "kept", "--html", "report.html")
    document = run("run", "--task", "document.json", *common)
    found = events(module)
    check("run: the second attempt is right", module.returncode == 0 and [e["event"] for e in found] == ["plan", "attempt", "attempt", "result"] and
          [e["report"]["summary"]["correct"] for e in found[1:3]] == [False, True] and found[-1]["saved"] == "model.stitch", module)
    check("run --json: events are as for a JSON task", len(found) == 4 and alike({str(i): e for i, e in enumerate(found)}, {str(i): e for i, e in enumerate(events(document))}), document)
    kept = sorted(os.listdir(os.path.join(FOLDER, "kept")))
    check("run --keep, --html and the saved program", len(kept) == 8 and "<html" in get("report.html") and os.path.exists(os.path.join(FOLDER, "model.stitch")), module)
    done = run("run", "--task", "model.py", "--model", "gpt", *SIM)
    check("run: no such model", done.returncode == 2 and "is no model" in done.stderr, done)
    done = run("run", "--task", "model.py", "--model", "replay:" + put("empty.jsonl", ""), *SIM, "--json")
    check("run: a recording without replies", done.returncode == 4 and events(done)[-1]["exit"] == 4, done)


def profiles_and_admits():
    done = run("profile", "model.py", *program("right"), *SIM, "--trials", "1", "--json")
    check("profile --json", done.returncode == 0 and json.loads(done.stdout)["facts"]["kernels"][0]["name"] == "scale", done)
    done = run("profile", "--task", "model.py", *program("right"), *SIM, "--metrics", "lts__t_sectors.sum,a b")
    check("profile: every metric arrives", done.returncode == 2 and "metrics[1]" in done.stderr, done)
    done = run("profile", "model.py", *SIM)
    check("profile of the module needs a GPU", done.returncode == 3 and "simulated" in done.stderr, done)
    module, document = run("admit", "model.py", *SIM, "--seed", "5", "--json"), run("admit", "document.json", *SIM, "--json")
    result = json.loads(module.stdout)
    check("admit", module.returncode == 0 and result["verdict"] == "admitted" and result["seed"] == "0x0000000000000005" and
          result.keys() == json.loads(document.stdout).keys(), module)
    put("zeros.py", MODEL.replace("x * self.w + 1", "x * self.w * 0"))
    done = run("admit", "--task", "zeros.py", *SIM)
    check("admit: a degenerate module", done.returncode == 1 and done.stdout.startswith("DEGENERATE"), done)
    done = run("compile", "--task", "model.py", *program("right"), *SIM, "--json")
    check("compile validates against a module", done.returncode == 0 and json.loads(done.stdout)["ok"], done)
    done = run("compile", "--task", "model.py", "--source", "right.cu", "--plan", put("p.json", json.dumps(LAUNCH).replace('"w"', '"v"')), *SIM)
    check("compile: a program that does not fit the module", done.returncode == 2 and "'v'" in done.stderr, done)
    done = run("admit", "model.py", "--device", "none")
    check("without a device", done.returncode == 3 and "device" in done.stderr, done)


# ---- bad files, and processes ----------------------------------------------------------------------------------------


def bad_files():
    for name, text, word, code in (
        ("a file that raises", "raise ValueError('not today')", "ValueError: not today", 2),
        ("a file with a syntax error", "def f(:", "SyntaxError", 2),
        ("a file that imports what is not there", "import no_such_module", "no_such_module", 2),
        ("a file that exits", "raise SystemExit(0)", "SystemExit", 2),
        ("a file without Model", "x = 1", "has no Model", 2),
        ("a file that is not text", "\0", "cannot be", 2),
        ("get_inputs() raises", MODEL.replace("torch.randn(8, 32)", "torch.no_such(8)"), "get_inputs() raised", 2),
        ("forward raises", MODEL.replace("x * self.w + 1", "x @ x"), "forward raised", 2),
        ("what the library has no type for", MODEL.replace("x * self.w + 1", "torch.complex(x, x)"), "complex", 2),
        ("a file that ends its process", "import os\nos._exit(0)", "ended with exit status 0 before the command did", 3),
        ("a file that crashes its process", "import os\nos.abort()", "ended with signal 6 before the command did", 3),
    ):
        put("bad.py", text)
        refused(name, run("admit", "bad.py", *SIM, "--json"), word, code)
    put("bad.py", "def helper():\n    raise ValueError('inner')\nhelper()\n")
    done = run("admit", "bad.py", *SIM)
    check("the traceback begins in the file", 'bad.py", line 2, in helper' in done.stderr and "_file.py" not in done.stderr, done)
    put("tired.py", MODEL.replace("        return x *", "        Model.calls += 1\n        if Model.calls > 9:\n            raise RuntimeError('tired')\n        return x *")
        .replace("    def __init__", "    calls = 0\n\n    def __init__"))
    done = run("admit", "tired.py", *SIM, "--json")
    check("a reference that raises later", done.returncode == 3 and "RuntimeError: tired" in events(done)[0]["details"] and "in forward" in done.stderr, done)


def processes():
    put("tells.py", "import os, sys\nopen('pids', 'w').write(f'{os.getpid()} {os.getppid()} ' + open(f'/proc/{os.getppid()}/task/{os.getppid()}/children').read())\n"
        "open('input', 'w').write(sys.stdin.read())\n" + MODEL)
    done = run("admit", "tells.py", *SIM, "-q", stdin="for the file")
    own, _, *children = get("pids").split()
    check("one helper process, which has our standard input", done.returncode == 0 and children == [own] and get("input") == "for the file", done)
    put("late.py", "import atexit, os\natexit.register(os.abort)\n" + MODEL)
    done = run("admit", "late.py", *SIM)
    check("a crash after the command has ended does not matter", done.returncode == 0 and done.stdout.startswith("ADMITTED"), done)


def gone(pid):
    """Within a while."""
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                if f.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def wait_for(path):
    for _ in range(1200):
        if os.path.exists(path) and os.path.getsize(path):
            with open(path, encoding="ascii") as f:
                return int(f.read())
        time.sleep(0.05)
    raise RuntimeError("the file was never imported")


def interrupted(name, file, how, want, quiet=True):
    """Starts an admission of `file`, which says that it hangs, and then does `how`."""
    marker = os.path.join(FOLDER, "here")
    if os.path.exists(marker):
        os.unlink(marker)
    parent, terminal = pty.fork()
    if parent == 0:
        os.chdir(FOLDER)
        os.execve(STITCH, [STITCH, "admit", file, *SIM], environment())
    helper, output, code = wait_for(marker), b"", None
    time.sleep(0.3)
    how(parent, helper, terminal)
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # nobody has the other end
            break
        if not data:
            break
        output += data
    status = os.waitpid(parent, 0)[1]
    os.close(terminal)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    ok = code == want and gone(helper) and not (quiet and b"Traceback" in output)
    check(name, ok, subprocess.CompletedProcess([], code, output.decode("utf-8", "replace"), ""))


def signals():
    say = "import os, time\n\n\ndef hang(busy):\n    with open('here.new', 'w') as f:\n        f.write(str(os.getpid()))\n    os.rename('here.new', 'here')\n" \
          "    while busy:\n        time.sleep(0.01)\n"
    put("hangs.py", say + "hang(True)\n")
    # An import that goes on, and a reference that does: one call in progress, which ends by itself.
    calls = MODEL.replace("    def __init__", "    calls = 0\n\n    def __init__")
    put("slow.py", say + calls.replace("        return x *", "        Model.calls += 1\n        if Model.calls == 8:\n            hang(False)\n            time.sleep(2)\n        return x *"))
    put("stuck.py", say + calls.replace("        return x *", "        Model.calls += 1\n        if Model.calls == 8:\n            hang(True)\n        return x *"))

    def ctrl_c(times):
        def how(parent, helper, terminal):
            for _ in range(times):
                os.write(terminal, b"\x03")
                time.sleep(0.5)
        return how

    def to_parent(number):
        return lambda parent, helper, terminal: os.kill(parent, number)

    interrupted("Ctrl-C while the file is imported", "hangs.py", ctrl_c(1), 130)
    interrupted("SIGINT to the command only", "hangs.py", to_parent(signal.SIGINT), 130)
    interrupted("SIGTERM to the command only", "hangs.py", to_parent(signal.SIGTERM), 130)
    interrupted("Ctrl-C while the reference runs", "slow.py", ctrl_c(1), 130)
    interrupted("SIGINT to the command only, while the reference runs", "slow.py", to_parent(signal.SIGINT), 130)
    interrupted("SIGINT to the whole group counts once", "slow.py", lambda parent, helper, terminal: os.killpg(parent, signal.SIGINT), 130)
    interrupted("the second Ctrl-C ends what does not end", "stuck.py", ctrl_c(2), 130)
    interrupted("the helper ends with the command", "stuck.py", to_parent(signal.SIGKILL), -signal.SIGKILL)


def main():
    put("model.py", MODEL)
    put("right.cu", SOURCE)
    put("right64.cu", SOURCE.replace("float *y", "double *y").replace("x[i] *", "(double)x[i] *"))
    put("wrong.cu", SOURCE.replace("1.0f", "2.0f"))
    put("launch.json", json.dumps(LAUNCH))
    put("document.json", json.dumps(DOCUMENT))
    usage()
    interpreters()
    elsewhere()
    done = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=False)
    doctor = json.loads(run("doctor", "--json").stdout)
    if done.returncode:
        skip("commands, bad files, signals", f"{PYTHON} has no PyTorch (STITCH_PYTHON names another)")
    elif next(item for item in doctor["items"] if item["name"] == "nvrtc")["status"] != "ok":
        skip("commands, bad files, signals", "no NVRTC")
    else:
        print("# PyTorch", done.stdout.strip())
        for part in (verifies, options, runs, profiles_and_admits, bad_files, processes, signals):
            part()
    print(f"1..{len(tests)}")
    shutil.rmtree(FOLDER)
    return 0 if all(tests) else 1


if __name__ == "__main__":
    sys.exit(main())

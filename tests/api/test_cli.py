# SPDX-License-Identifier: MIT
"""The command line without a GPU: help, exit codes, JSON, bad input. Prints TAP.

usage: test_cli.py STITCH EXAMPLES-FOLDER
"""
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

STITCH, EXAMPLES = (os.path.abspath(path) for path in sys.argv[1:3])
TASK = os.path.join(EXAMPLES, "tasks", "swiglu_mlp", "task.json")
SOURCE = os.path.join(EXAMPLES, "tasks", "swiglu_mlp", "eager.cu")
PLAN = os.path.join(EXAMPLES, "tasks", "swiglu_mlp", "eager_f32.json")
FOLDER = tempfile.mkdtemp()
tests = []


def run(*args, **more):
    env = dict(os.environ, STITCH_CACHE_DIR=os.path.join(FOLDER, "cache"))
    return subprocess.run([STITCH, *args], capture_output=True, text=True, timeout=120, env=env, **more)


def check(name, ok, done=None):
    tests.append(ok)
    print(f"{'ok' if ok else 'not ok'} {len(tests)} - {name}", flush=True)
    if not ok and done is not None:
        for line in (f"exit {done.returncode}", *done.stdout.splitlines(), *done.stderr.splitlines()):
            print("# " + line)


def put(name, text):
    path = os.path.join(FOLDER, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def pipe(name):
    path = os.path.join(FOLDER, name)
    os.mkfifo(path)
    return path


def usage():
    for args, code, word in ((["--help"], 0, "Exit codes"), (["help", "run"], 0, "--model"), (["run", "--help"], 0, "--attempts"),
                             (["--version"], 0, "stitch 0."), ([], 2, "usage"), (["nonsense"], 2, "nonsense"),
                             (["run"], 2, "--task and --model"), (["verify", "--task", TASK], 2, "give one of"),
                             (["compile", "--nonsense"], 2, "--help"), (["compile", "a", "b"], 2, "unexpected"),
                             (["run", "--task", TASK, "--model", "x", "--attempts", "0"], 2, "--attempts: not a valid value: '0'; it takes a whole number from 1 to"),
                             (["run", "--task", TASK, "--model", "x", "--target", "nan"], 2, "--target: not a valid value: 'nan'; it takes a number above 0"),
                             (["compile", "--source", SOURCE], 2, "--plan"), (["admit"], 2, "TASK is needed"), (["help", "admit"], 0, "--runs"),
                             (["admit", "--task", TASK, "x"], 2, "unexpected"), (["admit", "--task", TASK, "--runs", "3"], 2, "--runs: not a valid value: '3'; it takes a whole number from 4"),
                             (["verify", "--task", TASK, "--where", "elsewhere", "x.stitch"], 2, "not a valid value"), (["verify", "--where"], 2, "where"),
                             (["run", "--task", TASK, "--model", "x", "--where", ""], 2, "not a valid value"), (["help", "verify"], 0, "--where"), (["profile"], 2, "TASK is needed"), (["help", "profile"], 0, "--metrics"),
                             (["profile", TASK, "a", "b"], 2, "unexpected"), (["profile", TASK, "--source", SOURCE], 2, "--plan"),
                             (["profile", TASK, "--trace", "x.json"], 2, "--trace needs a program"),
                             (["profile", TASK, "x", "--trace", "x.json", "--html", "x.json"], 2, "two of the files to write have one name: x.json"),
                             (["run", "--task", TASK, "--model", "replay:x", "--out", "x", "--html", "x"], 2, "two of the files to write have one name: x"), (["profile", TASK, "x", "--metrics", "a,,b," * 40], 2, "not a valid value: 'a,,b,a,,b,"), (["profile", TASK, "x", "--metrics", ","], 2, "--metrics: not a valid value: ','"),
                             (["profile", TASK, "x", "--metrics", ",".join("m%d" % i for i in range(65))], 2, "not a valid value")):
        done = run(*args)
        check("usage: stitch " + " ".join(os.path.basename(a) for a in args), done.returncode == code and word in done.stdout + done.stderr,
              done)


def inputs():
    for args, code, word in ((["compile", "/nonexistent.stitch"], 2, "/nonexistent.stitch"),
                             (["compile", put("bad.stitch", "{}")], 2, "bad.stitch"),
                             (["compile", "--reply", put("none.md", "no blocks")], 2, "no ```cuda block"),
                             (["compile", "--reply", put("cut.md", "```cuda\nint x;\n")], 2, "cut off"),
                             (["verify", "--task", put("t.json", "{\"stitch_task\": 2}"), "x.stitch"], 2, "stitch_task"),
                             (["verify", "--task", "/nonexistent.json", "x.stitch"], 2, "/nonexistent.json"),
                             (["compile", "--reply", FOLDER], 2, "Is a directory"),
                             (["compile", "--reply", put("nul.md", "```cuda\n\0\n```\n")], 2, "nul.md: it holds a NUL byte"),
                             (["compile", "--reply", pipe("pipe.md")], 2, "pipe.md: not a regular file"),
                             (["run", "--task", TASK, "--model", "gpt"], 2, "is no model"),
                             (["run", "--task", TASK, "--model", "replay:/nonexistent"], 2, "/nonexistent"),
                             (["admit", put("saved.stitch", '{"stitch_program_file": 1}')], 2, "saved.stitch: this is a saved program"),
                             (["compile", TASK], 2, "this is a task"), (["compile", PLAN], 2, "this is a launch plan"),
                             (["run", "--task", TASK, "--model", "relay:"], 2, "'relay:' names no folder: write relay:FOLDER"),
                             (["run", "--task", TASK, "--model", "replay:"], 2, "'replay:' names no recording"),
                             (["admit", "/nonexistent.py"], 2, "there is no file /nonexistent.py"),
                             (["doctor", "--device", "gpu"], 2, "device 'gpu'")):
        done = run(*args)
        check("input: " + word, done.returncode == code and word in done.stderr, done)


    for args in (["--reply", "/nonexistent.md"], ["--source", SOURCE, "--plan", "/nonexistent.json"]):
        done = run("compile", *args, "--json")
        check("input: an event for " + args[-1], done.returncode == 2 and json.loads(done.stdout)["what"] == args[-1], done)
    done = subprocess.run([STITCH.encode(), b"compile", b"/nonexistent\xff.stitch", b"--json"], capture_output=True, timeout=120)
    check("input: a path that is not UTF-8", done.returncode == 2 and json.loads(done.stdout)["event"] == "error", done)


def outputs():
    """What cannot be written is known before anything is done for it; what was not written is said."""
    replies = "replay:" + os.path.join(EXAMPLES, "replies", "swiglu_mlp.jsonl")
    for option, path in (("--out", "/nonexistent/x"), ("--out", FOLDER), ("--html", "/nonexistent/x.html"), ("--out", put("file", "") + "/x"),
                         ("--out", "/dev/null")):
        done = run("run", "--task", TASK, "--model", replies, option, path)
        check(f"output: {option} {path}", done.returncode == 2 and f"{option} {path}: cannot be written" in done.stderr and "plan 1" not in done.stderr, done)
    done = run("profile", TASK, "x.stitch", "--trace", "/nonexistent/t.json")
    check("output: --trace", done.returncode == 2 and "--trace /nonexistent/t.json: cannot be written" in done.stderr, done)
    with open("/dev/full", "w") as full:
        done = subprocess.run([STITCH, "doctor", "--json"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    check("output: a full disk", done.returncode not in (0, 1) and "could not be written" in done.stderr)
    folder = os.path.join(FOLDER, "closed")
    os.mkdir(folder)
    saved = os.path.join(folder, "p.stitch")
    done = subprocess.run(["sh", "-c", f'exec "$@" >&- 2>&- <&-', "sh", STITCH, "compile", "--task", TASK, "--source", SOURCE, "--plan", PLAN, "--arch",
                           "sm_90a", "-o", saved, "--json", "--cache-dir", os.path.join(folder, "cache")], timeout=120)
    if done.returncode != 3:  # no NVRTC
        with open(saved, encoding="utf-8") as f:
            check("output: nothing lands in a file where stdout is closed", done.returncode == 0 and set(json.load(f)) >= {"stitch_program_file"})


def doctor():
    done = run("doctor", "--json")
    items = {item["name"]: item for item in json.loads(done.stdout)["items"]}
    check("doctor prints JSON", {"driver", "nvrtc", "cublaslt", "cache"} <= set(items), done)
    return items["nvrtc"]["status"] == "ok"


def compiles():
    saved = os.path.join(FOLDER, "p.stitch")
    args = ["--task", TASK, "--source", SOURCE, "--plan", PLAN, "--arch", "sm_90a"]
    done = run("compile", *args, "-o", saved, "--json")
    report = json.loads(done.stdout)
    check("compile saves a program", done.returncode == 0 and report["ok"] and os.path.getsize(saved) > 1000, done)
    check("kernels are listed", {k["name"] for k in report["kernels"]} >= {"rms_norm", "silu", "mul", "add"}, done)
    done = run("compile", *args, "--json")
    check("the second time comes from the cache", json.loads(done.stdout)["cached"], done)
    done = run("compile", saved, "--arch", "sm_90a")
    check("a saved program compiles without its task", done.returncode == 0, done)
    with open(SOURCE, encoding="utf-8") as f:
        source = f.read()
    done = run("compile", "--task", TASK, "--source", put("e.cu", source.replace("float sum = 0;", "flaot sum = 0;")), "--plan", PLAN, "--arch",
               "sm_90a", "--json")
    lines = done.stdout.splitlines()
    check("a compile error names its line", done.returncode == 2 and json.loads(lines[0])["diagnostics"][0]["line"] == 9, done)
    with open(PLAN, encoding="utf-8") as f:
        plan = f.read()
    done = run("compile", "--task", TASK, "--source", SOURCE, "--plan", put("p.json", plan.replace('"k": "C", "trans_b"', '"k": "F", "trans_b"')),
               "--arch", "sm_90a")
    check("a wrong product is found without compiling", done.returncode == 2 and "run[1].gemm" in done.stderr, done)


def hostile_names():
    """The name of a task file says nothing about where its program is saved."""
    kernel = 'extern "C" __global__ void k(const float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }\n'
    launch = json.dumps({"stitch": 1, "run": [{"kernel": "k", "grid": [1], "block": ["N"], "args": ["x", "y"]}]})
    put("k.cu", kernel)
    put("k.json", launch)
    task = put("hostile.json", json.dumps({
        "stitch_task": 1, "name": "../up/../../name", "dims": {"N": 32}, "inputs": [{"name": "x", "dtype": "f32", "shape": ["N"]}],
        "outputs": [{"name": "y", "dtype": "f32", "shape": ["N"]}], "reference": {"program": {"source": "k.cu", "plan": "k.json"}}}))
    forged = "attempt 1 (draft): correct, 1.0 us, 900.00x"
    plan = {"stitch_plan": 1, "strategy": f"s\x1b[2J\n{forged}\r{forged}", "bottlenecks": [], "subtasks": [
        {"id": "a", "level": "kernel", "title": "t", "goal": "g", "after": []}]}
    replies = put("hostile.jsonl", "".join(json.dumps({"label": label, "number": 1, "reply": {"content": content}}) + "\n" for label, content in (
        ("plan", json.dumps(plan)), ("code:draft", f"```cuda\n{kernel}```\n```json\n{launch}\n```\n"))))
    inner = os.path.join(FOLDER, "inner", "folder")
    os.makedirs(os.path.join(inner, "up"))
    done = run("run", "--task", task, "--model", "replay:" + replies, "--attempts", "1", "--device", "sim:sm_90a", "--json", cwd=inner)
    if done.returncode == 3:
        tests.append(True)
        print(f"ok {len(tests)} - default names stay in the folder # SKIP no simulator")
        return
    check("default names stay in the folder", done.returncode == 0 and json.loads(done.stdout.splitlines()[-1])["saved"] == "_._up_.._.._name.stitch" and
          os.listdir(os.path.join(FOLDER, "inner")) == ["folder"] and os.path.exists(os.path.join(inner, "_._up_.._.._name.stitch")), done)
    lines = done.stderr.replace("\r", "\n").split("\n")
    check("what a planner says looks like no line of the command's", "\x1b[2J" not in done.stderr and forged not in lines and
          any(line.startswith("plan 1: 1 sub-tasks. s") for line in lines), done)


class TooLong(http.server.BaseHTTPRequestHandler):
    """An endpoint for which every prompt is too long."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        said = b'{"error": {"message": "This model\'s maximum context length is 8 tokens", "code": "context_length_exceeded"}}'
        self.send_response(400)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_):
        pass


def models():
    """What a model sends is no input of the caller's; who answers through files is told where."""
    replies = put("noplan.jsonl", "".join(json.dumps({"label": label, "number": number, "reply": {"content": '```json\n{"stitch": 1}\n```\n'}}) + "\n"
                                          for label, number in (("plan", 1), ("plan:format", 1), ("plan:format", 2))))
    done = run("run", "--task", TASK, "--model", "replay:" + replies, "--device", "sim:sm_90a")
    check("a model that plans nothing", done.returncode in (3, 4) and (done.returncode == 3 or "unknown key 'stitch'" in done.stderr), done)
    server = http.server.HTTPServer(("127.0.0.1", 0), TooLong)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    done = run("run", "--task", TASK, "--model", f"http://127.0.0.1:{server.server_port}/v1#m", "--device", "sim:sm_90a")
    server.shutdown()
    check("a prompt that is too long", done.returncode in (3, 4) and (done.returncode == 3 or "maximum context length" in done.stderr), done)
    folder = os.path.join(FOLDER, "asked")
    asked = subprocess.Popen([STITCH, "run", "--task", TASK, "--model", "relay:" + folder, "--device", "sim:sm_90a"], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while asked.poll() is None and time.monotonic() < until and not os.path.exists(os.path.join(folder, "0001.request.json")):
        time.sleep(0.02)
    asked.send_signal(signal.SIGINT)
    said = asked.communicate(timeout=60)[1]
    check("a relay says where", asked.returncode == 3 or asked.returncode == 130 and f"replies are awaited in {folder}: " in said)


def asks_for_too_much():
    """Memory that a simulated device does not have is the program's failure, and takes none of the host's."""
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    if have // 2 > 60_000_000_000:
        tests.append(True)
        print(f"ok {len(tests)} - a program that asks for too much memory # SKIP it may have as much as a program may ask for")
        return
    put("much.cu", 'extern "C" __global__ void k(const float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }\n')
    step = {"kernel": "k", "grid": [1], "block": ["N"], "args": ["x", "y"]}
    plan = put("much.json", json.dumps({"stitch": 1, "run": [step]}))
    task = put("much.task.json", json.dumps({
        "stitch_task": 1, "name": "a", "dims": {"N": 32}, "inputs": [{"name": "x", "dtype": "f32", "shape": ["N"]}],
        "outputs": [{"name": "y", "dtype": "f32", "shape": ["N"]}], "reference": {"program": {"source": "much.cu", "plan": "much.json"}}}))
    put("much.json", json.dumps({"stitch": 1, "buffers": {"h": {"dtype": "u8", "shape": [have // 2 + 1]}},
                                 "run": [{"fill": {"buffer": "h", "value": 1}}, step]}))
    done = run("verify", "--task", task, "--source", os.path.join(FOLDER, "much.cu"), "--plan", plan, "--device", "sim:sm_90a", "--json")
    if done.returncode == 3:
        tests.append(True)
        print(f"ok {len(tests)} - a program that asks for too much memory # SKIP no simulator")
        return
    found = json.loads(done.stdout)["summary"]
    check("a program that asks for too much memory", done.returncode == 1 and found["failed_stage"] == "simulate" and
          found["status"] == "STITCH_E_NOMEM", done)


def admits():
    """One honest task and one that zeros pass: exit codes, text, JSON."""
    put("a.cu", 'extern "C" __global__ void k(const float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }\n')
    put("a.json", json.dumps({"stitch": 1, "run": [{"kernel": "k", "grid": [1], "block": ["N"], "args": ["x", "y"]}]}))
    for atol, code, verdict in ((1e-4, 0, "admitted"), (100, 1, "degenerate")):
        task = put("a.task.json", json.dumps({
            "stitch_task": 1, "name": "a", "dims": {"N": 256}, "inputs": [{"name": "x", "dtype": "f32", "shape": ["N"]}],
            "outputs": [{"name": "y", "dtype": "f32", "shape": ["N"]}], "tolerance": {"atol": atol, "rtol": 0},
            "reference": {"program": {"source": "a.cu", "plan": "a.json"}}}))
        done = run("admit", "--task", task, "--device", "sim:sm_90a", "--seed", "5", "--json")
        if done.returncode == 3:
            tests.append(True)
            print(f"ok {len(tests)} - admit # SKIP no simulator")
            return
        result = json.loads(done.stdout)
        check("admit: " + verdict, done.returncode == code and result["verdict"] == verdict and result["seed"] == "0x0000000000000005", done)
        check("admit gives reason and cure where there is one", bool(result["reason"]) == bool(result["cure"]) == bool(code), done)
        done = run("admit", "--task", task, "--device", "sim:sm_90a")
        check("admit for people: " + verdict, done.returncode == code and done.stdout.startswith(verdict.upper()), done)
    done = run("admit", "--task", task, "--device", "sim:sm_90a", "--runs", "3")
    check("admit with too few runs", done.returncode == 2 and "from 4" in done.stderr, done)


def places():
    """The same program here, in a worker, and where there is none to be had."""
    kernel = 'extern "C" __global__ void k(const float *x, %s *y) { y[threadIdx.x] = 2 * (%s)x[threadIdx.x]; }\n'
    put("w.cu", kernel % ("float", "float"))
    put("w64.cu", kernel % ("double", "double"))
    put("w.json", json.dumps({"stitch": 1, "run": [{"kernel": "k", "grid": [1], "block": ["N"], "args": ["x", "y"]}]}))
    task = put("w.task.json", json.dumps({
        "stitch_task": 1, "name": "w", "dims": {"N": 256}, "inputs": [{"name": "x", "dtype": "f32", "shape": ["N"]}],
        "outputs": [{"name": "y", "dtype": "f32", "shape": ["N"]}], "reference": {"program": {"source": "w64.cu", "plan": "w.json"}, "outputs": "f64"}}))
    args = ["verify", "--task", task, "--source", os.path.join(FOLDER, "w.cu"), "--plan", os.path.join(FOLDER, "w.json"), "--device", "sim:sm_90a",
            "--trials", "1", "--json"]
    for where, words in (("here", "in this process"), ("worker", "in a worker ("), ("auto", "in this process")):
        done = run(*args, "--where", where)
        if done.returncode == 3:
            tests.append(True)
            print(f"ok {len(tests)} - verify --where # SKIP no simulator")
            return
        report = json.loads(done.stdout.splitlines()[-1])
        check(f"verify --where {where}", done.returncode == 0 and report["environment"]["program_ran"].startswith(words), done)
    os.environ["STITCH_WORKER"] = os.path.join(FOLDER, "no-such-worker")
    done = run(*args, "--where", "worker")
    check("verify --where worker without a worker", done.returncode == 2 and "no-such-worker" in done.stdout + done.stderr, done)
    done = run(*args, "--where", "here")
    check("verify --where here needs none", done.returncode == 0, done)
    del os.environ["STITCH_WORKER"]
    beside = os.path.join(os.path.dirname(os.path.abspath(STITCH)), os.pardir, "lib")
    names = ["libstitch.so.0", "stitch-worker"]
    if all(os.path.exists(os.path.join(beside, name)) for name in names):
        copies = os.path.join(FOLDER, "copies")
        os.mkdir(copies)
        for name in names:
            shutil.copy(os.path.join(beside, name), copies)
        before = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = copies + (":" + before if before else "")
        for mode, code, words in ((0o755, 0, "in a worker"), (0o777, 2, "no stitch-worker near the library")):
            os.chmod(copies, mode)
            done = run(*args, "--where", "worker")
            check(f"a worker in a folder of mode {mode:o}", done.returncode == code and words in done.stdout + done.stderr, done)
        del os.environ["LD_LIBRARY_PATH"]
        if before:
            os.environ["LD_LIBRARY_PATH"] = before


def repeats():
    """A report's seed makes the same trials again, written as the report writes it."""
    kernel = 'extern "C" __global__ void k(const float *x, %s *y) { y[threadIdx.x] = (%s)x[threadIdx.x] * x[threadIdx.x] / 3; }\n'
    put("q.cu", kernel % ("float", "float"))
    put("q64.cu", kernel % ("double", "double"))
    put("q.json", json.dumps({"stitch": 1, "run": [{"kernel": "k", "grid": [1], "block": ["N"], "args": ["x", "y"]}]}))
    task = put("q.task.json", json.dumps({
        "stitch_task": 1, "name": "q", "dims": {"N": 256}, "tolerance": {"atol": 1e-5, "rtol": 1e-5},
        "inputs": [{"name": "x", "dtype": "f32", "shape": ["N"], "dist": {"uniform": [-1.23456789012345, 1000003]}}],
        "outputs": [{"name": "y", "dtype": "f32", "shape": ["N"]}], "reference": {"program": {"source": "q64.cu", "plan": "q.json"}, "outputs": "f64"}}))
    args = ["verify", "--task", task, "--source", os.path.join(FOLDER, "q.cu"), "--plan", os.path.join(FOLDER, "q.json"), "--device", "sim:sm_90a"]
    done = run(*args, "--json")
    if done.returncode == 3:
        tests.append(True)
        print(f"ok {len(tests)} - verify --seed # SKIP no simulator")
        return
    report = json.loads(done.stdout)
    seed = report["seed"]
    check("a report says how its inputs are drawn, to the last digit", report["task"]["tensors"][0]["data"] == "uniform(-1.23456789012345, 1000003)", done)
    for form in (seed, seed.upper().replace("X", "x"), str(int(seed, 16))):
        again = json.loads(run(*args, "--json", "--seed", form).stdout)
        check("--seed " + form[:2] + "... repeats the trials", again["seed"] == seed and again["correct"] == report["correct"], again["seed"])
    other = json.loads(run(*args, "--json").stdout)
    check("without --seed they are others", other["seed"] != seed and other["correct"] != report["correct"], other["seed"])
    done = run(*args, "--seed", seed)
    check("the seed is in the text, too", "seed " + seed in done.stdout, done)
    for form in ("0", "0x", "0x0", "0x10000000000000000", "-1", "+1", " 1", "1f", "18446744073709551616"):
        done = run(*args, "--seed", form)
        check(f"--seed '{form}' is refused", done.returncode == 2 and "--seed" in done.stderr, done)


def profiles():
    """What the simulator counted of a strided kernel, for people and as JSON; what only a GPU can do says so."""
    put("s.cu", 'extern "C" __global__ void scale(const float *x, float *y, int n)\n{\n    int t = threadIdx.x + 128 * blockIdx.x;\n'
        '    int i = t * 8 % n + t * 8 / n;\n    y[i] = 2 * x[i];\n}\n')
    put("s.json", json.dumps({"stitch": 1, "run": [{"kernel": "scale", "grid": [8], "block": [128], "args": ["x", "y", {"i32": "N"}]}]}))
    task = put("s.task.json", json.dumps({
        "stitch_task": 1, "name": "s", "dims": {"N": 1024}, "inputs": [{"name": "x", "dtype": "f32", "shape": ["N"]}],
        "outputs": [{"name": "y", "dtype": "f32", "shape": ["N"]}], "reference": {"program": {"source": "s.cu", "plan": "s.json"}}}))
    program = ["--source", os.path.join(FOLDER, "s.cu"), "--plan", os.path.join(FOLDER, "s.json"), "--device", "sim:sm_90a", "--trials", "1"]
    done = run("profile", task, *program, "--json")
    if done.returncode == 3 and "simulator" not in done.stderr:
        tests.append(True)
        print(f"ok {len(tests)} - profile # SKIP no simulator")
        return
    kernel = json.loads(done.stdout)["facts"]["kernels"][0]
    check("profile --json counts", done.returncode == 0 and kernel["name"] == "scale" and kernel["metrics"]["global_sectors"] == 2048 and
          kernel["metrics"]["global_ideal_sectors"] == 256, done)
    done = run("profile", "--task", task, *program)
    check("profile for people", done.returncode == 0 and "scale (run[0])" in done.stdout and "y[i] = 2 * x[i];" in done.stdout and "[uncoalesced]" in done.stdout and
          "8.00 x the sectors" in done.stdout, done)
    done = run("verify", "--task", task, *program)
    check("a report says once what bounds the program", done.returncode == 0 and done.stdout.count("-bound: ") == 1 and done.stdout.count("operations for each byte") == 1, done)
    done = run("profile", task, *program, "--full", "--metrics", "lts__t_sectors.sum,a b")
    check("a metric that cannot be one", done.returncode == 2 and "metrics[1]" in done.stderr, done)
    done = run("profile", task, *program, "--trace", os.path.join(FOLDER, "trace.json"))
    check("a simulated device has no timeline", done.returncode == 3 and "simulated" in done.stderr and not os.path.exists(os.path.join(FOLDER, "trace.json")), done)
    done = run("profile", task, "--device", "sim:sm_90a")
    check("nor a profile of the reference", done.returncode == 3 and "simulated" in done.stderr, done)
    put("wrong.cu", 'extern "C" __global__ void scale(const float *x, float *y, int n)\n{\n    y[threadIdx.x + 128 * blockIdx.x] = 3;\n}\n')
    done = run("profile", task, *[a.replace("s.cu", "wrong.cu") for a in program])
    check("a wrong program has no profile", done.returncode == 1 and "FAILED" in done.stderr and not done.stdout, done)
    done = run("profile", task, *[a.replace("s.cu", "wrong.cu") for a in program], "--json")
    check("as JSON it has its report", done.returncode == 1 and json.loads(done.stdout)["summary"]["failed_stage"] == "correct", done)


def interrupts():
    """Ctrl-C at any time: before the command listens (-2), in it (130), or too late (0)."""
    args = [STITCH, "compile", "--task", TASK, "--source", SOURCE, "--plan", PLAN, "--arch", "sm_90a", "--cache-dir", ""]
    found = []
    for i in range(16):
        process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.02 * (i + 1))
        process.send_signal(signal.SIGINT)
        found.append(process.wait(60))
    check(f"Ctrl-C while NVRTC compiles: {found}", set(found) <= {0, 130, -2})


def without_a_device():
    done = run("verify", "--task", TASK, "--source", SOURCE, "--plan", PLAN, "--device", "none")
    check("verify without a device", done.returncode == 3 and "device" in done.stderr, done)
    done = run("admit", "--task", TASK, "--device", "none")
    check("admit without a device", done.returncode == 3 and "device" in done.stderr, done)
    done = run("run", "--task", TASK, "--model", "replay:" + put("r.jsonl", ""), "--device", "none", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    check("run without a device", done.returncode == 3 and events[0]["event"] == "error" and events[-1]["event"] == "result", done)


def main():
    usage()
    inputs()
    outputs()
    if doctor():
        compiles()
        hostile_names()
        models()
        asks_for_too_much()
        admits()
        places()
        repeats()
        profiles()
        interrupts()
    else:
        tests.append(True)
        print(f"ok {len(tests)} - compile # SKIP no NVRTC")
    without_a_device()
    print(f"1..{len(tests)}")
    return 0 if all(tests) else 1


if __name__ == "__main__":
    sys.exit(main())

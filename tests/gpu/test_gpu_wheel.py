# SPDX-License-Identifier: MIT
"""The wheel in a clean virtual environment on a GPU: the five lines of docs/gallery.md, as they stand there, make the GPT
block faster; what came of them falls back, is saved, and loads in another process; with the recording that keeps to
KernelBench's own tolerance (examples/optimize_module.py --precise), what is exported is judged by KernelBench's own evaluator;
the command line works. Prints TAP.

usage: STITCH_WHEEL=libstitch-....whl test_gpu_wheel.py     (python3 -m pip wheel --no-deps . makes one)

Needs a GPU and a Python that has PyTorch for it, which the environment borrows; of the checkout only the example's
folders are used, as copies. STITCH_TEST_RECORD=FILE also records the replies, with the prompts that they answered;
STITCH_TEST_RECORD_PRECISE=FILE does so for the other recording. KERNELBENCH_ROOT names a checkout of KernelBench, whose
evaluator needs ninja, a C++ compiler and the CUDA toolkit.
"""

import ctypes
import glob
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))
import tap  # noqa: E402

TARGET = 5.0  # times eager float32, by PyTorch's events
ENOUGH = 600  # seconds for one step
JUDGED = 2.0  # times eager float32, by KernelBench's evaluator, at its own tolerance
FOLDER = os.path.join("examples", "tasks", "gpt_block")
SCRIPT = os.path.join("examples", "optimize_module.py")
PRECISE = os.path.join("examples", "replies", "gpt_block_split.jsonl")
# What the scripts below begin with: where everything comes from.
START = """
import json, os, statistics, sys, time
begun = time.perf_counter()
found = {}
def places():
    import stitch
    with open("/proc/self/maps") as maps:
        libraries = sorted({line.split()[-1] for line in maps if "libstitch" in line})
    return {"package": stitch.__file__, "libraries": libraries, "path": sys.path}
"""
# After the documented lines.
MEASURE = """
found["seconds"] = time.perf_counter() - begun
found["speedup"], found["notes"], found["device"] = fast.speedup, fast.notes, torch.cuda.get_device_name()
found["torch"] = torch.__version__
found["attempts"] = [
    {"correct": r["summary"]["correct"], "failed": r["summary"]["failed_stage"], "stages": {s["stage"]: round(s["milliseconds"], 1) for s in r["stages"] if s["milliseconds"]}}
    for r in fast.reports
]
import copy
torch.backends.cuda.matmul.allow_tf32 = False
flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
def timed(function):
    flush.zero_()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    function()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1000
with torch.no_grad():
    oracle = copy.deepcopy(module).double()
    expected = torch.cat([oracle(part.double()) for part in x.split(16)])
    error = (y.double() - expected).abs()
    found["largest error"] = float(error.max())
    found["beyond"] = int((error > 1e-3 + 1e-3 * expected.abs()).sum())
    del oracle, expected, error
    ours, eager = [], []
    for i in range(25):
        x.normal_()
        a, b = timed(lambda: fast(x)), timed(lambda: module(x))
        if i >= 5:
            ours.append(a)
            eager.append(b)
    found["times"] = {"ours": sorted(ours), "eager": sorted(eager)}
    found["before"] = [fast.runs, fast.fallbacks]
    found["other shape"] = torch.equal(fast(x[:64]), module(x[:64]))
    found["other dtype"] = "no error"
    try:
        fast(x[:1].half())
    except RuntimeError:  # what the original says of half inputs and float32 weights
        found["other dtype"] = "as the original"
    found["after"] = [fast.runs, fast.fallbacks]
part = fast(x[:4].requires_grad_())
part.sum().backward()
found["gradients"] = bool(module.mlp.c_fc.weight.grad.abs().sum() > 0) and fast.fallbacks == found["after"][1] + 1
fast.save("block.zip")
torch.save({"weights": module.state_dict(), "x": x.detach()[:2].cpu()}, "block.pt")
found.update(places())
print(json.dumps(found))
"""
AGAIN = """
import torch, stitch.torch
from model import Model
kept = torch.load("block.pt", weights_only=True)
module = Model().cuda()
module.load_state_dict(kept["weights"])
x = torch.randn(128, 512, 768, device="cuda")
torch.cuda.synchronize()
begun = time.perf_counter()
fast = stitch.torch.load("block.zip", module)
with torch.inference_mode():
    y = fast(x)
    torch.cuda.synchronize()
    found["seconds"] = time.perf_counter() - begun
    found["close"] = torch.allclose(y, module(x), atol=2e-3, rtol=2e-3)
found["runs"], found["speedup"] = [fast.runs, fast.fallbacks], fast.speedup
found.update(places())
print(json.dumps(found))
"""
MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(n))

    def forward(self, x):
        return torch.tanh(torch.relu(x * self.w) + 1) * x


def get_inputs():
    return [torch.randn(4096, 4096)]


def get_init_inputs():
    return [4096]
"""
TASK = {
    "stitch_task": 1,
    "name": "scale",
    "dims": {"N": 1 << 20},
    "inputs": [{"name": "x", "dtype": "f32", "shape": ["N"], "dist": {"normal": [0, 1]}}],
    "outputs": [{"name": "y", "dtype": "f32", "shape": ["N"]}],
    "tolerance": {"atol": 1e-5, "rtol": 1e-5},
    "reference": {"program": {"source": "right.cu", "plan": "plan.json"}},
}
PLAN = {
    "stitch": 1,
    "run": [{"kernel": "scale", "grid": ["ceil_div(N,256)"], "block": [256], "args": ["x", "y", {"i32": "N"}]}],
}
SCALE = """extern "C" __global__ void scale(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] * %s + 1.0f;
}
"""


def note(*words):
    print("# " + " ".join(str(word) for word in words).replace("\n", "\n# "), flush=True)


class Made:
    """What the tests hand on."""

    folder = environment = python = work = None

    @classmethod
    def need(cls, name):
        if getattr(cls, name) is None:
            raise tap.Skip(f"there is no {name} to go on from")
        return getattr(cls, name)


def clean_environment(**changed):
    """Without what leads to the checkout, to a build folder, or to an environment that is active."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("STITCH_", "PYTHON")) and name not in ("VIRTUAL_ENV", "LD_LIBRARY_PATH")
    }
    build = os.path.realpath(os.environ.get("STITCH_BUILD") or os.path.join(tap.CHECKOUT, "build"))
    paths = [
        path
        for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        if path and not os.path.realpath(path).startswith((os.path.realpath(tap.CHECKOUT) + "/", build + "/"))
    ]
    if paths:  # the system's: where the driver is, say
        env["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    return dict(env, STITCH_CACHE_DIR=os.path.join(Made.folder, "cache"), **changed)


def run(*command, cwd=None, status=0, **changed):
    begun = time.monotonic()
    done = subprocess.run(
        command,
        cwd=cwd or Made.folder,
        env=clean_environment(**changed),
        check=False,
        capture_output=True,
        text=True,
        timeout=ENOUGH,
    )
    name = " ".join(os.path.basename(word) for word in command[:4] if "\n" not in word)
    note(f"{name}: {time.monotonic() - begun:.1f} s, exit status {done.returncode}")
    assert done.returncode == status, f"{command[0]}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def documented():
    """The lines of the gallery, and the recording that they name."""
    with open(os.path.join(tap.CHECKOUT, "docs", "gallery.md"), encoding="utf-8") as text:
        (example,) = re.findall(r"```python\n(# example\n.*?)```", text.read(), flags=re.S)
    (recording,) = re.findall(r'"replay:(.*?)"', example)
    return example, os.path.normpath(os.path.join(FOLDER, recording))


def unpack(wheel, environment):
    """As an installer does: for a Python without pip."""
    (packages,) = glob.glob(os.path.join(environment, "lib", "python3*", "site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = archive.extract(entry, packages)
            if entry.external_attr >> 16:
                os.chmod(path, entry.external_attr >> 16 & 0o777)
    script = os.path.join(environment, "bin", "stitch")
    with open(script, "w", encoding="utf-8") as f:
        f.write(f"#!{environment}/bin/python\nimport sys\nfrom stitch.__main__ import main\nsys.exit(main())\n")
    os.chmod(script, 0o755)


def install(wheel, environment):
    """Into a new environment, without an index; says how."""
    options = ["install", "--no-index", "--no-deps", "--disable-pip-version-check", "-q", wheel]
    try:
        run(sys.executable, "-m", "venv", environment)
        run(environment + "/bin/python", "-m", "pip", *options)
        return "its own pip"
    except AssertionError as e:
        note("without ensurepip:", str(e).splitlines()[0])
    shutil.rmtree(environment, ignore_errors=True)
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    try:
        run(sys.executable, "-m", "pip", "--python", environment + "/bin/python", *options)
        return "the other Python's pip"
    except AssertionError as e:
        note("without pip:", str(e).splitlines()[0])
    unpack(wheel, environment)
    return "unpacking it"


def has_gpu(torch_folder):
    """Without the seconds that importing PyTorch takes."""
    with open(os.path.join(torch_folder, "version.py"), encoding="utf-8") as text:
        built = re.search(r"^cuda\b[^=]*= *'[0-9.]+'", text.read(), flags=re.M)
    try:
        return built is not None and ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


def test_installs_into_a_clean_environment():
    wheel = os.environ.get("STITCH_WHEEL")
    if not wheel:
        raise tap.Skip("STITCH_WHEEL names no wheel")
    wheel = os.path.abspath(wheel)
    assert os.path.exists(wheel), wheel
    found = importlib.util.find_spec("torch")
    if found is None or not found.origin:
        raise tap.Skip("PyTorch is not installed")
    if not has_gpu(os.path.dirname(found.origin)):
        raise tap.Skip("there is no GPU, or PyTorch is not for one")
    environment = os.path.join(Made.folder, "environment")
    note(f"installed by {install(wheel, environment)}")
    (packages,) = glob.glob(os.path.join(environment, "lib", "python3*", "site-packages"))
    # PyTorch, with what it needs: nothing else of where it lies comes before the environment's own.
    with open(os.path.join(packages, "borrowed.pth"), "w", encoding="utf-8") as f:
        f.write(os.path.dirname(os.path.dirname(os.path.realpath(found.origin))) + "\n")
    work = os.path.join(Made.folder, FOLDER)
    recording = documented()[1]
    for name in (os.path.join(FOLDER, "model.py"), recording, SCRIPT, PRECISE):
        os.makedirs(os.path.join(Made.folder, os.path.dirname(name)), exist_ok=True)
        shutil.copy(os.path.join(tap.CHECKOUT, name), os.path.join(Made.folder, name))
    assert sorted(os.listdir(work)) == ["model.py"]
    Made.environment, Made.python, Made.work = environment, environment + "/bin/python", work


def came_from_the_wheel(found):
    inside = os.path.realpath(Made.environment) + "/"
    assert os.path.realpath(found["package"]).startswith(inside), found["package"]
    assert len(found["libraries"]) == 1 and found["libraries"][0].startswith(inside), found["libraries"]
    checkout = os.path.realpath(tap.CHECKOUT) + "/"
    seen = [path for path in found["path"] if path and (os.path.realpath(path) + "/").startswith(checkout)]
    assert not [path for path in seen if "site-packages" not in path], seen


def test_the_five_lines():
    work = Made.need("work")
    example, _ = documented()
    record = os.environ.get("STITCH_TEST_RECORD")
    if record:
        example = example.replace('"replay:', f'"record:{os.path.abspath(record)},replay:')
    found = json.loads(run(Made.python, "-c", START + example + MEASURE, cwd=work).splitlines()[-1])
    came_from_the_wheel(found)
    for number, attempt in enumerate(found["attempts"], 1):
        note(
            f"attempt {number}: correct {attempt['correct']}, failed {attempt['failed']}, "
            f"{sum(attempt['stages'].values()):.0f} ms in stages {json.dumps(attempt['stages'])}"
        )
    ours, eager = (found["times"][name] for name in ("ours", "eager"))
    middle = len(ours) // 2
    ratio = eager[middle] / ours[middle]
    note(f"imports to result: {found['seconds']:.1f} s, {len(found['attempts'])} attempts, notes {found['notes']}")
    note(
        f"{found['speedup']:.2f}x by the library; {ratio:.2f}x by PyTorch's events: eager {eager[middle]:.0f} us ({eager[0]:.0f} to "
        f"{eager[-1]:.0f}), optimised {ours[middle]:.0f} us ({ours[0]:.0f} to {ours[-1]:.0f}); largest error {found['largest error']:.2e}; "
        f"{found['device']}, torch {found['torch']}"
    )
    assert found["speedup"] >= TARGET and ratio >= TARGET, ratio
    assert found["beyond"] == 0, (found["beyond"], found["largest error"])
    assert found["before"] == [26, 0], found["before"]
    assert found["other shape"] and found["other dtype"] == "as the original", found
    assert found["after"] == [26, 2], found["after"]
    assert found["gradients"]


def test_loads_in_another_process():
    work = Made.need("work")
    if not os.path.exists(os.path.join(work, "block.zip")):
        raise tap.Skip("there is no saved module to go on from")
    found = json.loads(run(Made.python, "-c", START + AGAIN, cwd=work).splitlines()[-1])
    came_from_the_wheel(found)
    note(f"load() and the first call: {found['seconds'] * 1e3:.0f} ms, which is {found['speedup']:.1f}x as saved")
    assert found["close"] and found["runs"] == [1, 0], found


def test_kernelbench_judges_what_is_exported():
    Made.need("work")
    if not os.environ.get("KERNELBENCH_ROOT"):
        raise tap.Skip("KERNELBENCH_ROOT does not name a checkout of KernelBench")
    options, record = ["--precise", "--export", "model_new.py", "--judge"], os.environ.get("STITCH_TEST_RECORD_PRECISE")
    if record:
        options += ["--model", f"record:{os.path.abspath(record)},replay:{os.path.join(Made.folder, PRECISE)}"]
    tools = os.path.dirname(sys.executable)  # ninja may be there, beside PyTorch
    out = run(Made.python, os.path.join(Made.folder, SCRIPT), *options, PATH=os.environ["PATH"] + os.pathsep + tools)
    note(out)
    lines = out.splitlines()
    turns = [line for line in lines if line.startswith(("draft: ", "repair_correctness: "))]
    assert len(turns) == 2 and "FAILED at correct" in turns[0] and "PASSED" in turns[1], turns
    (faster,) = (line for line in lines if " by the library; " in line)
    judged = json.loads(lines[-1])
    note(f"KernelBench's evaluator, of the exported file: correct {judged['correct']}, {judged['speedup']:.2f}x; {faster}")
    assert judged["compiled"] and judged["correct"] and judged["speedup"] >= JUDGED, judged
    assert "tolerance" not in judged and "precision" not in judged, judged  # as its own settings are


def test_command_line():
    Made.need("work")
    work = os.path.join(Made.folder, "elsewhere")
    os.makedirs(work)
    texts = {
        "task.json": json.dumps(TASK),
        "plan.json": json.dumps(PLAN),
        "right.cu": SCALE % "2.0f",
        "wrong.cu": SCALE % "3.0f",
    }
    for name, text in texts.items():
        with open(os.path.join(work, name), "w", encoding="ascii") as f:
            f.write(text)
    items = {
        item["name"]: item
        for item in json.loads(run(Made.python, "-m", "stitch", "doctor", "--json", cwd=work))["items"]
    }
    note(", ".join(f"{name} {item['status']}" for name, item in items.items()))
    assert items["driver"]["status"] == items["device"]["status"] == items["nvrtc"]["status"] == "ok", items
    verify = [Made.environment + "/bin/stitch", "verify", "--task", "task.json", "--plan", "plan.json", "--json"]
    made = json.loads(run(*verify, "--source", "right.cu", cwd=work))
    assert made["summary"]["correct"] and made["summary"]["timed"], made["summary"]
    assert made["environment"]["program_ran"].startswith("in a worker"), made["environment"]
    run(*verify, "--source", "wrong.cu", cwd=work, status=1)


def test_command_line_with_a_module():
    """Which runs in the environment's Python, with the package's stitch-cli.so."""
    Made.need("work")
    work = os.path.join(Made.folder, "elsewhere")
    with open(os.path.join(work, "model.py"), "w", encoding="ascii") as f:
        f.write(MODEL)
    out = run(Made.environment + "/bin/stitch", "admit", "model.py", cwd=work)
    note(out.splitlines()[0])
    assert out.startswith("ADMITTED"), out


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="stitch-wheel-") as Made.folder:
        tap.main(sys.modules[__name__])

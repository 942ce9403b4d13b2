# SPDX-License-Identifier: MIT
"""stitch.kernelbench: figures from results, resuming, and a small checkout on the simulator."""

import contextlib
import io
import json
import math
import os
import sys
import tempfile
import time
import types

import sim
import tap
import stitch
from stitch import kernelbench


def row(key, level, correct, speedup=0.0, **more):
    return {"key": key, "level": level, "correct": correct, "speedup": speedup, "attempts": 1, "seconds": 1, **more}


ROWS = [
    row("level1/1_a", 1, True, 4.0, speedups={"eager": 4.0, "compile": 1.0}),
    row("level1/2_b", 1, True, 1.0, speedups={"eager": 1.0, "compile": 0.5}),
    row("level1/3_c", 1, False),
    row("level3/1_d", 3, True, 9.0, degenerate=True, speedups={"eager": 9.0}),
    row("level3/2_e", 3, False, error="it does not load"),
]


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-9)


def test_figures():
    s = kernelbench.summary(ROWS)
    assert (s["tasks"], s["correct"], s["errors"]) == (5, 2, 1) and s["degenerate"] == ["level3/1_d"]
    assert near(s["mean_speedup"], 1.0) and near(s["geometric_mean"], 2.0) and near(s["success_rate"], 0.4)
    assert near(s["fast_0"], 0.4) and near(s["fast_1"], 0.2) and near(s["fast_2"], 0.2)
    assert near(s["levels"]["1"]["mean_speedup"], 5 / 3) and s["levels"]["3"]["correct"] == 0
    assert s["admitted"]["tasks"] == 4 and near(s["admitted"]["fast_0"], 0.5)
    compiled = s["baselines"]["compile"]
    assert near(compiled["mean_speedup"], 0.3) and compiled["fast_1"] == 0 and near(compiled["fast_0"], 0.4)
    text = kernelbench.describe(s)
    assert "level3/1_d" in text and "against compile" in text
    empty = kernelbench.summary([])
    assert empty["tasks"] == 0 and empty["mean_speedup"] == 0 and kernelbench.describe(empty)


def test_results_that_were_cut_off():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "r.jsonl")
        assert kernelbench.results(path) == {}
        kernelbench._append(path, ROWS[0])
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"key": "level1/2_b", "lev')
        assert list(kernelbench.results(path)) == ["level1/1_a"]
        kernelbench._append(path, ROWS[2])
        kernelbench._append(path, {**ROWS[0], "correct": False})
        found = kernelbench.results(path)
        assert list(found) == ["level1/1_a", "level1/3_c"] and not found["level1/1_a"]["correct"]
        with open(path, "r+", encoding="utf-8") as file:
            file.write("x")
        with tap.raises(stitch.FormatError, "line 1"):
            kernelbench.results(path)


def test_what_a_checkout_has():
    with tempfile.TemporaryDirectory() as root:
        with tap.raises(stitch.NotFoundError, "level1"):
            kernelbench.problems(root)
        for level, files in ((1, ["10_b.py", "9_a.py", "readme.md", "x.py"]), (2, ["1_c.py"])):
            os.makedirs(os.path.join(root, "KernelBench", f"level{level}"))
            for file in files:
                with open(os.path.join(root, "KernelBench", f"level{level}", file), "w", encoding="utf-8"):
                    pass
        assert [p.key for p in kernelbench.problems(root, (1, 2))] == ["level1/9_a", "level1/10_b", "level2/1_c"]
        assert [p.number for p in kernelbench.problems(root, (1, 2), [1, 10])] == [10, 1]
        assert [p.level for p in kernelbench.problems(os.path.join(root, "KernelBench"), (2,))] == [2]
        kept = os.environ.pop("KERNELBENCH_ROOT", None)
        try:
            with tap.raises(stitch.NotFoundError, "KERNELBENCH_ROOT"):
                kernelbench.problems()
            os.environ["KERNELBENCH_ROOT"] = root
            assert len(kernelbench.problems(levels=(1,))) == 2
        finally:
            os.environ.pop("KERNELBENCH_ROOT", None)
            if kept is not None:
                os.environ["KERNELBENCH_ROOT"] = kept


def check_model_new(path):
    """The file with ModelNew: Python and C++ that compile, the task's own source, and the fall-back where there is no
    GPU."""
    import torch
    import torch.utils.cpp_extension

    with open(path, encoding="utf-8") as text:
        source = text.read()
    assert "class Model(nn.Module)" in source and "class ModelNew(Model)" in source and "__global__" in source
    asked, real, ran = [], torch.utils.cpp_extension.load_inline, []

    class Library:
        """What is compiled, as if it ran on a GPU: the outputs come last."""

        def open_program(self, folders):
            ran.append("open")

        def workspace_bytes(self):
            return 256

        def prepare(self, tensors, workspace, stream):
            ran.append("prepare")

        def run(self, tensors, workspace, stream):
            ran.append("run")
            with torch.no_grad():
                tensors[-1].fill_(7)

    def load_inline(**options):
        asked.append(options)
        return Library()

    torch.utils.cpp_extension.load_inline = load_inline
    try:
        space = {"__name__": "exported"}
        exec(compile(source, path, "exec"), space)  # as KernelBench's evaluator does
    finally:
        torch.utils.cpp_extension.load_inline = real
    assert asked[0]["functions"] == ["open_program", "workspace_bytes", "prepare", "run"]
    torch.manual_seed(0)
    old = space["Model"](*space["get_init_inputs"]())
    torch.manual_seed(0)
    new = space["ModelNew"](*space["get_init_inputs"]())
    (x,) = space["get_inputs"]()
    assert torch.equal(old(x), new(x)) and new._WEIGHTS == list(old.state_dict())
    assert new._ARGUMENTS == [(torch.float32, (16, 12))] and new._OUTPUTS == [(torch.float32, (16, 5))] and not ran

    class OnCuda(torch.Tensor):
        is_cuda = True

    # The evaluator times it outside of no_grad(): the program runs there, too, and only gradients are refused.
    stream, torch.cuda.current_stream = torch.cuda.current_stream, lambda device: types.SimpleNamespace(cuda_stream=0)
    try:
        with torch.no_grad():
            assert new(x.as_subclass(OnCuda)).eq(7).all()
        y = new(x.as_subclass(OnCuda))
        assert y.eq(7).all() and y.requires_grad and ran == ["open", "prepare", "run", "run"], ran
        with tap.raises(NotImplementedError, "no backward pass"):
            y.sum().backward()
        other = new(x[:3].as_subclass(OnCuda))
        assert ran == ["open", "prepare", "run", "run"] and torch.allclose(other.as_subclass(torch.Tensor), old(x[:3])), ran
        new.one.weight = torch.nn.Parameter(new.one.weight.detach().t().contiguous().t())  # a copy of it is what runs
        with torch.inference_mode():
            assert new(x.as_subclass(OnCuda)).eq(7).all() and ran[4:] == ["prepare", "run"], ran
    finally:
        torch.cuda.current_stream = stream


def test_a_small_checkout():
    try:
        import module_cases as cases
    except ImportError as missing:
        raise tap.Skip(str(missing)) from None
    plan = {"stitch_plan": 1, "strategy": "s", "bottlenecks": ["b"],
            "subtasks": [{"id": "a", "level": "kernel", "title": "t", "goal": "g", "after": []}]}  # fmt: skip
    asked = []

    def answer(request):
        asked.append(request.label)
        if request.label == "plan":
            return f"```json\n{json.dumps(plan)}\n```"
        return f"```cuda\n{cases.MLP.source}\n```\n```json\n{json.dumps(cases.MLP.plan)}\n```\n"

    with tempfile.TemporaryDirectory() as root, sim.context() as ctx:
        os.makedirs(os.path.join(root, "level1"))
        wrong = cases.FILE.replace("torch.relu(", "torch.tanh(")
        for name, text in (("1_Right", cases.FILE), ("2_Wrong", wrong), ("3_Broken", "raise ValueError('no')")):
            with open(os.path.join(root, "level1", name + ".py"), "w", encoding="utf-8") as file:
                file.write(text)
        ctx.set_model(stitch.Model.host(ctx, answer))
        out = os.path.join(root, "out.jsonl")
        options = {"root": root, "levels": [1], "policy": stitch.Policy(max_attempts=1), "programs": os.path.join(root, "p"),
                   "verify_options": {"last_stage": "correct"}}  # fmt: skip
        for result in kernelbench.run(out, ctx, **options):
            assert result["key"] == "level1/1_Right" and result["correct"] and result["attempts"] == 1, result
            break  # stopped after the first
        assert stitch.Program.load(ctx, result["program"]).source
        check_model_new(result["model_new"])
        rest = list(kernelbench.run(out, ctx, **options))
        assert [(r["key"], r["correct"]) for r in rest] == [("level1/2_Wrong", False), ("level1/3_Broken", False)], rest
        assert "FAILED" in rest[0]["said"] and "cannot be imported" in rest[1]["error"]
        count = len(asked)
        assert list(kernelbench.run(out, ctx, **options)) == [] and len(asked) == count
        assert len(list(kernelbench.run(out, ctx, again=True, numbers=[2], **options))) == 1 and len(asked) > count
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            assert kernelbench.main(["summary", out]) == 0 and kernelbench.main(["summary", out, "--json"]) == 0
        assert "level 1" in shown.getvalue() and '"success_rate": 0.333' in shown.getvalue()
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            assert (
                kernelbench.main(["run", "--root", os.path.join(root, "no"), "--model", "replay:no", "--out", out]) == 1
            )
        assert "STITCH_E" in errors.getvalue()


def test_command_line_with_bad_files():
    with tempfile.TemporaryDirectory() as root:
        odd = os.path.join(root, "odd.jsonl")
        with open(odd, "wb") as file:
            file.write(b"\xff\n")
        run = ["run", "--model", "replay:no", "--levels", "1"]
        for argv, code, words in (
            (["summary", os.path.join(root, "none.jsonl")], 1, "none.jsonl"),
            (["summary", root], 1, "directory"),
            (["summary", odd], 1, "odd.jsonl is no file of results"),
            (["summary", "/dev/zero"], 1, "no regular file"),
            (["judge", os.path.join(root, "none.jsonl")], 1, "none.jsonl"),
            ([*run, "--out", os.path.join(root, "no", "out.jsonl")], 1, os.path.join("no", "out.jsonl")),
            ([*run, "--out", root], 1, "directory"),
            (["run", "--model", "m", "--out", "o", "--levels", "1,a"], 2, "'a' is no number and no range: write 1,4-8"),
        ):
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                try:
                    found = kernelbench.main(argv)
                except SystemExit as e:
                    found = e.code
            assert found == code and words in errors.getvalue(), (argv, found, errors.getvalue())


BAD = """import os, sys
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        late = "STITCH_TEST_LATE" in os.environ
        {}
        return x * 2 + 1


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""


def test_tasks_that_fail():
    """Whatever a task raises, when it is made or while programs for it are judged, is its line's; the run goes on."""
    try:
        import torch
    except ImportError as missing:
        raise tap.Skip(str(missing)) from None
    launch = json.dumps(sim.PLAN).replace('"N"', '"B*8"').replace("N,", "B*8,")
    plan = {"stitch_plan": 1, "strategy": "s", "bottlenecks": [],
            "subtasks": [{"id": "a", "level": "kernel", "title": "t", "goal": "g", "after": []}]}  # fmt: skip
    bodies = [
        ("1_late", "if late: 1 / 0", "ZeroDivisionError: division by zero", 0),
        ("2_shape", "if late: return x[:1]", "shapes that depend on values", 0),
        ("3_exits", "sys.exit(5)", "SystemExit: 5", 0),
        ("4_exits_late", "if late: sys.exit(5)", "SystemExit: 5", 0),
        ("5_nested", "return torch.nested.nested_tensor([x[0], x[1]])", "ested", 0),
        ("6_right", "pass", "", 1),
    ]

    def answer(request):
        if unplanned and isinstance(unplanned[-1], stitch.StitchError):
            raise unplanned[-1]
        if unplanned:
            return unplanned[-1]
        if request.label == "plan":
            return json.dumps(plan)
        if stop:
            raise ArithmeticError("the model's own")
        os.environ["STITCH_TEST_LATE"] = "1"
        return f"```cuda\n{sim.SOURCE}```\n```json\n{launch}\n```\n"

    stop, unplanned = [], []
    with tempfile.TemporaryDirectory() as root, sim.context() as ctx:
        os.makedirs(os.path.join(root, "level1"))
        for name, body, _, _ in bodies:
            with open(os.path.join(root, "level1", name + ".py"), "w", encoding="utf-8") as file:
                file.write(BAD.format(body))
        ctx.set_model(stitch.Model.host(ctx, answer))
        out = os.path.join(root, "out.jsonl")
        options = {"root": root, "levels": [1], "policy": stitch.Policy(max_attempts=1),
                   "verify_options": {"last_stage": "correct"}}  # fmt: skip
        rows = kernelbench.run(out, ctx, **options)
        for name, _, words, attempts in bodies:
            os.environ.pop("STITCH_TEST_LATE", None)
            row = next(rows)
            assert row["key"] == "level1/" + name and row["attempts"] == attempts, row
            assert row["correct"] == (not words) and words in row.get("error", ""), row
        os.environ.pop("STITCH_TEST_LATE", None)
        assert next(rows, None) is None and list(kernelbench.run(out, ctx, **options)) == []
        # Nor does it end with a model that plans nothing for one of them, or has no room for it.
        for said in ('```json\n{"stitch": 1}\n```', stitch.LimitError("maximum context length")):
            unplanned.append(said)
            row = next(kernelbench.run(out, ctx, again=True, numbers=[2], **options))
            assert "STITCH_E_REPLY" in row["error"] or "context length" in row["error"], row
        unplanned.clear()
        # What is not about a task ends the run, without a line.
        stop.append(True)
        with tap.raises(ArithmeticError, "own"):
            list(kernelbench.run(out, ctx, again=True, numbers=[2], **options))
        with tap.raises(stitch.InvalidError, "no baseline 'egaer'; there are eager, "):
            list(kernelbench.run(out, ctx, again=True, baselines=["egaer"], **options))
        with tap.raises(TypeError, "no option 'bacth'"):
            list(kernelbench.run(out, ctx, again=True, bacth="N", **options))
        assert len(kernelbench.results(out)) == len(bodies) and "error" in kernelbench.results(out)["level1/2_shape"]
    lost = types.SimpleNamespace(device=types.SimpleNamespace(simulated=False, ordinal=0, name="GPU 0"))

    def fails(device):
        raise RuntimeError("CUDA error: assert")

    kept, torch.cuda.synchronize = torch.cuda.synchronize, fails
    try:
        with tap.raises(stitch.DriverError, "GPU 0", "CUDA error: assert"):
            kernelbench.solve(kernelbench.Problem(1, 1, "a", "a.py"), lost)
    finally:
        torch.cuda.synchronize = kept


TORCH = (  # as far as the judge asks it
    "torch = types.ModuleType('torch')\ntorch.float16, torch.cuda = 'half', types.SimpleNamespace(is_available=bool)\n"
    "sys.modules['torch'] = torch\n\n\n"
)
HALVES = """import torch

width = 4096


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1


def get_inputs():
    return [torch.rand(8, width)]


def get_init_inputs():
    return []
"""


def test_other_sizes_and_halves():
    """Results of a file with other values, in the evaluator's precision; it is asked about the same."""
    try:
        import torch  # noqa: F401
    except ImportError as missing:
        raise tap.Skip(str(missing)) from None
    source = sim.SOURCE.replace("const float *x, float *y", "const __half *x, __half *y")
    source = source.replace("x[i] * 2.0f + 1.0f", "__float2half(__half2float(x[i]) * 2.0f + 1.0f)")
    launch = json.dumps(sim.PLAN).replace('"N"', '"B*16"').replace("N,", "B*16,")
    reply = f"```cuda\n#include <cuda_fp16.h>\n{source}```\n```json\n{launch}\n```\n"
    plan = {"stitch_plan": 1, "strategy": "s", "bottlenecks": [],
            "subtasks": [{"id": "a", "level": "kernel", "title": "t", "goal": "g", "after": []}]}  # fmt: skip
    evaluator = TORCH + (
        "def eval_kernel_against_ref(a, b, precision=None):\n"
        "    assert 'width = 16' in a and b.startswith(a.rstrip()) and precision == 'half'\n"
        "    return types.SimpleNamespace(compiled=True, correctness=True, runtime=1.0, ref_runtime=4.0, metadata={})\n"
    )
    with tempfile.TemporaryDirectory() as root, sim.context() as ctx:
        fake_checkout(root, evaluator)
        os.makedirs(os.path.join(root, "level1"))
        with open(os.path.join(root, "level1", "1_a.py"), "w", encoding="utf-8") as file:
            file.write(HALVES)
        ctx.set_model(stitch.Model.host(ctx, lambda request: json.dumps(plan) if request.label == "plan" else reply))
        out = os.path.join(root, "out.jsonl")
        options = {"root": root, "levels": [1], "policy": stitch.Policy(max_attempts=1), "programs": os.path.join(root, "p"), "values": {"width": 16},
                   "verify_options": {"last_stage": "correct"}}  # fmt: skip
        (row,) = kernelbench.run(out, ctx, precision="fp16", judging={"root": root, "timeout": 60}, **options)
        assert row["correct"] and row["precision"] == "fp16", row
        with tap.raises(stitch.InvalidError, "lines of the precision fp16; take another file"):
            next(kernelbench.run(out, ctx, **options))
        assert row["kernelbench"]["speedup"] == 4 and row["kernelbench"]["precision"] == "fp16", row
        (again,) = kernelbench.rejudge(out, root=root, again=True, timeout=60)
        assert again["kernelbench"]["correct"] and again["kernelbench"]["precision"] == "fp16", again
        with open(row["model_new"], encoding="utf-8") as file:
            assert "_ARGUMENTS = [(torch.float16, (8, 16))]" in file.read()
        with tap.raises(stitch.InvalidError, "fp16"):
            kernelbench.solve(kernelbench.problems(root, [1])[0], ctx, precision="f16")


def fake_checkout(root, body, place=("src", "kernelbench")):
    """A checkout with an evaluator of ours, and a judged file with its task's."""
    folder = os.path.join(root, *place)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "eval.py"), "w", encoding="utf-8") as file:
        file.write("import os, sys, time, types, subprocess\n\n\n" + body)
    for name in ("task.py", "new.py"):
        with open(os.path.join(root, name), "w", encoding="utf-8") as file:
            file.write(f"# {name}\n")
    return os.path.join(root, "new.py"), os.path.join(root, "task.py"), folder


GOOD = """
def eval_kernel_against_ref(original_model_src, custom_model_src, num_correct_trials=1, num_perf_trials=1,
                            measure_performance=False, build_dir=None):
    assert (original_model_src, custom_model_src) == ("# task.py\\n", "# new.py\\n")
    assert measure_performance and os.path.isdir(build_dir) and (num_correct_trials, num_perf_trials) == (3, 7)
    assert "A_SECRET_KEY" not in os.environ and "PATH" in os.environ
    return types.SimpleNamespace(compiled=True, correctness=True, runtime=2.0, ref_runtime=5.0, metadata={"trials": (3, 3)})
"""


def test_the_judge():
    with tempfile.TemporaryDirectory() as root:
        for place in (("src",), ("src", "kernelbench")):
            new, task, folder = fake_checkout(root, GOOD, place)
            os.environ["A_SECRET_KEY"] = "x"
            try:
                made = kernelbench.judge(new, task, root=root, trials=3, timings=7, timeout=60)
            finally:
                del os.environ["A_SECRET_KEY"]
            assert made.pop("seconds") > 0
            assert made == {"compiled": True, "correct": True, "speedup": 2.5, "runtime_ms": 2.0, "reference_ms": 5.0,
                            "metadata": {"trials": "(3, 3)"}}, made  # fmt: skip
        looser = "    assert get_tolerance_for_precision('fp32') == 0.01\n    return"
        fake_checkout(
            root, GOOD.replace("    return", looser) + "def get_tolerance_for_precision(precision):\n    return 1e-4\n"
        )
        assert kernelbench.judge(new, task, root=root, trials=3, timings=7, timeout=60)["error"].startswith(
            "AssertionError"
        )
        made = kernelbench.judge(new, task, root=root, trials=3, timings=7, timeout=60, tolerance=0.01)
        assert made["correct"] and made["tolerance"] == 0.01, made
        head = "def eval_kernel_against_ref(original_model_src, custom_model_src):\n    "
        with open(os.path.join(folder, "timing.py"), "w", encoding="utf-8") as file:
            file.write("def measure_ref_program_time(name, source, device):\n    return {'mean': 9.0}\n")
        result = "types.SimpleNamespace(compiled=True, correctness={}, runtime=3.0, metadata=None)"
        cases = [
            ("return " + result.format(True), {"correct": True, "speedup": 3.0, "reference_ms": 9.0}),
            ("return " + result.format(False), {"compiled": True, "correct": False, "speedup": 0.0}),
            ("return None", {"error": "the evaluator gave no result"}),
            ("raise ValueError('not so')", {"error": "ValueError: not so", "correct": False}),
            ("sys.exit(0)", {"error": "SystemExit: 0"}),
            ("print('gone'); sys.stdout.flush(); os._exit(3)", {"error": "the process ended with 3: gone"}),
        ]
        for body, want in cases:
            new, task, _ = fake_checkout(root, head + body)
            made = kernelbench.judge(new, task, root=root, timeout=60)
            assert {key: made.get(key) for key in want} == want, (body, made)
        # What it started is ended with it.
        left = os.path.join(root, "left")
        later = f"import time; time.sleep(4); open({left!r}, 'w')"
        sleeper = f"subprocess.Popen([sys.executable, '-c', {later!r}])"
        fake_checkout(root, head + sleeper + "; time.sleep(60)")
        begun = time.monotonic()
        made = kernelbench.judge(new, task, root=root, timeout=1.5)
        assert made["error"] == "it did not end within 1.5 s" and not made["correct"] and time.monotonic() - begun < 20
        time.sleep(4)
        assert not os.path.exists(left)
        # The judged code writes the answer as it likes: figures that are none do not come through.
        forged = '{\\"correct\\": true, \\"speedup\\": 1e400, \\"runtime_ms\\": \\"fast\\", \\"key\\": 1}'
        fake_checkout(
            root,
            head + f"import json; open(json.load(open(sys.argv[1]))['answer'], 'w').write('{forged}'); os._exit(0)",
        )
        made = kernelbench.judge(new, task, root=root, timeout=60)
        assert made["speedup"] == 0 and made["runtime_ms"] == 0 and "key" not in made and made["correct"], made
        with tap.raises(stitch.NotFoundError, "no file"):
            kernelbench.judge(os.path.join(root, "none.py"), task, root=root)
        with tap.raises(stitch.NotFoundError, "no folder"):
            kernelbench.judge(new, task, root=os.path.join(root, "none"))
        with tap.raises(stitch.InvalidError, "greater than 0"):
            kernelbench.judge(new, task, root=root, timeout=0)
        os.makedirs(os.path.join(root, "other"))
        assert "has no evaluator" in kernelbench.judge(new, task, root=os.path.join(root, "other"), timeout=60)["error"]


def test_an_evaluator_without_its_packages():
    """What its modules import for other work is stood in for; what judging uses is not, and is named."""
    from stitch import _judge_child

    unused = _judge_child.UNUSED
    with tempfile.TemporaryDirectory() as root:
        body = (
            "import no_client.models as models\nfrom no_client import Client, ask\nfrom no_settings import load_dotenv\n"
            "class Result(models.Base):\n    runtime: float = -1.0\n    metadata: dict = {}\n\n"
            "def eval_kernel_against_ref(a, b):\n    from .utils import name\n    return name() or Client()\n"
        )
        new, task, folder = fake_checkout(root, body)
        with open(os.path.join(folder, "utils.py"), "w", encoding="utf-8") as file:
            file.write("import no_bar\ndef name():\n    return None\n")
        made = kernelbench.judge(new, task, root=root, timeout=60)
        assert "the evaluator needs the package no_client" in made["error"] and sys.executable in made["error"], made
        _judge_child.UNUSED = (*unused, "no_client", "no_settings", "no_bar")
        kept, stand_ins = list(sys.path), []
        try:
            module = _judge_child._evaluator(root, stand_ins)
            assert stand_ins == ["no_bar", "no_client", "no_settings"] and not any(n.startswith("no_") for n in sys.modules)
            with tap.raises(ModuleNotFoundError, "no_client.Client", "install no_client"):
                module.eval_kernel_against_ref("", "")
            with tap.raises(ModuleNotFoundError, "no_client.models.Base"):
                module.Result()
        finally:
            _judge_child.UNUSED, sys.path[:] = unused, kept
            for name in [name for name in sys.modules if name.partition(".")[0] == "kernelbench"]:
                del sys.modules[name]
    assert _judge_child._StandIn("dotenv").load_dotenv("x") is False

    class Result(_judge_child._StandIn("pydantic").BaseModel):
        correct: bool = False
        metadata: dict = {}

    one, other = Result(correct=True), Result()
    one.metadata["a"] = 1
    assert one.correct and not other.correct and other.metadata == {} and Result(metadata={"b": 2}).metadata == {"b": 2}


def test_its_precision():
    with tempfile.TemporaryDirectory() as root:
        body = TORCH + (
            "def eval_kernel_against_ref(a, b, precision=None):\n    return types.SimpleNamespace("
            "compiled=True, correctness=True, runtime=2.0, ref_runtime=3.0, metadata={'p': precision})\n"
        )
        new, task, _ = fake_checkout(root, body)
        build = os.path.join(root, "build")
        made = kernelbench.judge(new, task, root=root, precision="fp16", timeout=60, build=build)
        assert made["metadata"] == {"p": "half"} and made["precision"] == "fp16" and made["speedup"] == 1.5 and os.path.isdir(build), made
        made = kernelbench.judge(new, task, root=root, timeout=60)
        assert made["metadata"] == {"p": "None"} and "precision" not in made, made
        fake_checkout(root, "def eval_kernel_against_ref(a, b):\n    return None\n")
        assert "has no precision" in kernelbench.judge(new, task, root=root, precision="bf16", timeout=60)["error"]
        with tap.raises(stitch.InvalidError, "fp32"):
            kernelbench.judge(new, task, root=root, precision="f16")


def test_rejudging():
    with tempfile.TemporaryDirectory() as root:
        new, _, _ = fake_checkout(root, GOOD.replace("(3, 7)", "(5, 100)").replace("# task.py", "# 1_a.py"))
        os.makedirs(os.path.join(root, "level1"))
        with open(os.path.join(root, "level1", "1_a.py"), "w", encoding="utf-8") as file:
            file.write("# 1_a.py\n")
        out = os.path.join(root, "out.jsonl")
        for line in (row("level1/1_a", 1, True, 4.0, number=1, model_new=new), row("level1/2_b", 1, False, number=2)):
            kernelbench._append(out, line)
        (made,) = kernelbench.rejudge(out, root=root, timeout=60)
        assert made["kernelbench"]["correct"] and made["kernelbench"]["speedup"] == 2.5, made
        assert list(kernelbench.rejudge(out, root=root)) == []
        figures = kernelbench.summary(kernelbench.results(out).values())
        theirs = figures["kernelbench"]
        assert (theirs["judged"], theirs["correct"], theirs["disagree"]) == (1, 1, []) and near(
            theirs["mean_speedup"], 1.25
        )
        assert near(theirs["fast_1"], 0.5) and near(figures["mean_speedup"], 2.0)
        fake_checkout(root, "def eval_kernel_against_ref(a, b):\n    raise ValueError(1)\n")
        (made,) = kernelbench.rejudge(out, root=root, again=True, timeout=60)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            assert kernelbench.main(["judge", out, "--root", root, "--again"]) == 0
        assert "level1/1_a: 4.00x; KernelBench's evaluator: " in shown.getvalue(), shown.getvalue()
        assert "it says otherwise than we do: level1/1_a" in shown.getvalue()
        odd = kernelbench.summary([{**ROWS[3], "kernelbench": {"correct": True, "speedup": 9.0}}])
        assert odd["kernelbench"]["correct"] == 0 and odd["kernelbench"]["fast_0"] == 0 and odd["degenerate"]


class FakeRay(types.ModuleType):
    """Runs what it is given in this process, newest first, as Ray may."""

    def __init__(self, dies=()):
        super().__init__("ray")
        self.asked, self.cancelled, self.dies, self.begun = [], [], dies, False

    def is_initialized(self):
        return self.begun

    def init(self):
        self.begun = True

    def remote(self, **options):
        assert options["num_gpus"] == 1 and options["max_calls"] == 1
        return lambda function: types.SimpleNamespace(remote=lambda *args: self.submit(function, args))

    def submit(self, function, args):
        self.asked.append((function, json.loads(json.dumps(args[0].key)), args))
        return len(self.asked) - 1

    def wait(self, references, num_returns):
        assert num_returns == 1
        return [references[-1]], references[:-1]

    def get(self, reference):
        function, key, args = self.asked[reference]
        if key in self.dies:
            raise RuntimeError("out of memory")
        return function(*args)

    def cancel(self, reference, force):
        assert force
        self.cancelled.append(self.asked[reference][1])


@contextlib.contextmanager
def module_ray(module):
    kept = sys.modules.get("ray")
    sys.modules["ray"] = module
    try:
        yield module
    finally:
        del sys.modules["ray"]
        if kept is not None:
            sys.modules["ray"] = kept


def broken_checkout(root, count):
    os.makedirs(os.path.join(root, "level1"))
    for i in range(1, count + 1):
        with open(os.path.join(root, "level1", f"{i}_Broken.py"), "w", encoding="utf-8") as file:
            file.write("raise ValueError('no')")
    replies = os.path.join(root, "replies.jsonl")
    with open(os.path.join(sim.EXAMPLES, "replies", "swiglu_mlp.jsonl"), encoding="utf-8") as text:
        with open(replies, "w", encoding="utf-8") as file:
            file.write(text.read())
    return {"root": root, "levels": [1], "device": "sim:sm_90a"}, "replay:" + replies


def test_several_gpus():
    try:
        import torch

        assert torch
    except ImportError as missing:
        raise tap.Skip(str(missing)) from None
    with tempfile.TemporaryDirectory() as root:
        out = os.path.join(root, "out.jsonl")
        options, model = broken_checkout(root, 3)
        with module_ray(FakeRay(dies=["level1/2_Broken"])) as ray:
            rows = list(kernelbench.run_on_ray(out, model, **options))
            assert [r["key"][7] for r in rows] == ["3", "2", "1"] and ray.begun and not ray.cancelled
            assert "cannot be imported" in rows[0]["error"] and "the worker failed" in rows[1]["error"], rows
            assert len(kernelbench.results(out)) == 3
            assert list(kernelbench.run_on_ray(out, model, **options)) == []
        with module_ray(FakeRay()) as ray:
            for _ in kernelbench.run_on_ray(out, model, again=True, **options):
                break  # stopped: what was still to come is cancelled
            assert len(ray.asked) == 3 and sorted(ray.cancelled) == ["level1/1_Broken", "level1/2_Broken"]
        with module_ray(FakeRay()) as ray, tap.raises(stitch.StitchError, "STITCH_E"):
            list(kernelbench.run_on_ray(out, "replay:none", again=True, **options))
        assert len(ray.cancelled) == 2
        with module_ray(None), tap.raises(stitch.UnsupportedError, "pip install ray"):
            list(kernelbench.run_on_ray(out, model, **options))


def test_ray_itself():
    try:
        import ray
        import torch

        assert torch
    except ImportError as missing:
        raise tap.Skip(str(missing)) from None
    package = os.path.join(tap.CHECKOUT, "bindings", "python")
    kept = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([package, *([kept] if kept else [])])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        ray.init(num_cpus=1, num_gpus=1, include_dashboard=False, log_to_driver=False)
        with tempfile.TemporaryDirectory() as root:
            options, model = broken_checkout(root, 2)
            out = os.path.join(root, "out.jsonl")
            rows = list(kernelbench.run_on_ray(out, model, **options))
            assert sorted(r["key"] for r in rows) == ["level1/1_Broken", "level1/2_Broken"]
            assert all("cannot be imported" in r["error"] for r in rows), rows
            assert len(kernelbench.results(out)) == 2
            with tap.raises(stitch.StitchError, "STITCH_E"):
                list(kernelbench.run_on_ray(out, "replay:none", again=True, **options))
    finally:
        ray.shutdown()
        os.environ.pop("PYTHONPATH")
        if kept is not None:
            os.environ["PYTHONPATH"] = kept


if __name__ == "__main__":
    tap.main(sys.modules[__name__])

# SPDX-License-Identifier: MIT
"""stitch.kernelbench: figures from results, resuming, and a small checkout on the simulator."""

import contextlib
import io
import json
import math
import os
import sys
import tempfile

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
    asked, real = [], torch.utils.cpp_extension.load_inline
    torch.utils.cpp_extension.load_inline = lambda **options: asked.append(options)
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
    assert new._ARGUMENTS == [(torch.float32, (16, 12))] and new._OUTPUTS == [(torch.float32, (16, 5))]


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


if __name__ == "__main__":
    tap.main(sys.modules[__name__])

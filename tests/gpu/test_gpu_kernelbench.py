# SPDX-License-Identifier: MIT
"""Files of a KernelBench checkout as tasks: for each a plain program is judged right, and a wrong one wrong for its values;
and the loop over some of them, with its report.

Prints TAP. Needs KERNELBENCH_ROOT and PyTorch with a GPU. STITCH_TEST_SIMULATED=1 runs it on the simulator and the CPU instead, with
smaller sizes and without times.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
import time

from with_torch import SIMULATED, note, torch_or_skip
import sim
import tap
import stitch

torch = torch_or_skip(SIMULATED, kernelbench=True)

import stitch.torch as bridge  # noqa: E402
from stitch import kernelbench  # noqa: E402
from kernelbench_cases import CASES  # noqa: E402

LOOP = [(1, 88), (2, 63), (2, 29), (3, 4)]  # the last with a wrong program only
PLAN = {
    "stitch_plan": 1,
    "strategy": "step by step",
    "bottlenecks": [],
    "subtasks": [{"id": "a", "level": "kernel", "title": "t", "goal": "g", "after": []}],
}


def sizes(case):
    return case.small if SIMULATED else case.values


def problem_of(case):
    found = kernelbench.problems(levels=[case.level], numbers=[case.number])
    if not found:
        raise tap.Skip(f"the checkout has no task {case.number} of level {case.level}")
    return found[0]


def constants(file):
    """What the file assigns at its top level, as far as it can be in a plan; and of lists the
    first number."""
    space = file.get_inputs.__globals__
    found = {name: value for name, value in space.items() if isinstance(value, int) and not isinstance(value, bool)}
    for name, short in (("input_shape", "dim1"), ("layer_sizes", "width")):
        if name in space:
            found[short] = space[name][0]
    return found


def judged(ctx, task, program):
    source, plan = program
    with stitch.Program.parse(ctx, source, plan) as made:
        return stitch.verify(ctx, task, made, last_stage="correct", simulate="never", profile="never")


def check(ctx, case):
    problem, begun = problem_of(case), time.perf_counter()
    file = bridge.read(problem.path, sizes(case))
    with bridge.from_file(file, ctx=ctx, baselines=[]) as task:
        assert not any("float64" in line for line in task.notes), task.notes  # the oracle is a float64 module
        loaded = time.perf_counter() - begun
        right, wrong = case.programs(task, constants(file))
        with judged(ctx, task, right) as report:
            good, text = report.summary, report.text
        assert good.correct and good.elements > 0 and good.mismatches == 0, f"{problem.key}: the right program:\n{text}"
        with judged(ctx, task, wrong) as report:
            bad, text = report.summary, report.text
        assert not bad.correct and bad.failed_stage is stitch.Stage.CORRECT, f"{problem.key}: the wrong program:\n{text}"
        assert bad.status is stitch.Status.E_VALIDATE and bad.mismatches > 0, f"{problem.key}: for another reason:\n{text}"
    note(
        f"{problem.key} {sizes(case) or 'as it is'}: error {good.max_abs_error:.1e} over {good.elements} elements, the wrong one "
        f"{bad.max_abs_error:.1e} ({bad.mismatches}); {loaded:.1f} s to load, {time.perf_counter() - begun:.1f} s in all"
    )


def test_right_and_wrong_programs():
    failed, begun = [], time.perf_counter()
    with sim.context("sim:sm_90a" if SIMULATED else "cuda:0") as ctx:
        for case in CASES:
            try:
                check(ctx, case)
            except (AssertionError, stitch.StitchError) as e:
                failed.append(f"level {case.level}, {case.number}")
                note(f"FAILED {failed[-1]}: {type(e).__name__}: {str(e)[:3000]}")
    levels = sorted({case.level for case in CASES})
    note(f"{len(CASES) - len(failed)} of {len(CASES)} of levels {levels}, {time.perf_counter() - begun:.1f} s")
    assert not failed and len(CASES) >= 20 and levels == [1, 2, 3], failed


def test_the_loop_and_its_report():
    """run() with a model that knows the plain programs, at the sizes of the first test."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, sim.context("sim:sm_90a" if SIMULATED else "cuda:0") as ctx:
        replies, out = {}, os.path.join(folder, "results.jsonl")

        def answer(request):
            label = "plan" if request.label == "plan" else "code"
            return replies[label]

        ctx.set_model(stitch.Model.host(ctx, answer))
        for level, number in LOOP:
            case = next(c for c in CASES if (c.level, c.number) == (level, number))
            problem = problem_of(case)
            file = bridge.read(problem.path, sizes(case))
            with bridge.from_file(file, ctx=ctx, baselines=[]) as task:
                programs = case.programs(task, constants(file))
            source, plan = programs[1 if (level, number) == LOOP[-1] else 0]
            replies["plan"] = f"```json\n{json.dumps(PLAN)}\n```"
            replies["code"] = f"```cuda\n{source}\n```\n```json\n{plan}\n```\n"
            (row,) = kernelbench.run(
                out,
                ctx,
                levels=[level],
                numbers=[number],
                values=sizes(case),
                policy=stitch.Policy(max_attempts=1),
                programs=os.path.join(folder, "programs"),
                baselines=[] if SIMULATED else ["eager", "tf32"],
                verify_options={"last_stage": "correct"} if SIMULATED else {"iterations": 30, "profile": "never", "simulate": "never"},
            )
            note(json.dumps(row)[:600])
        rows = kernelbench.results(out)
        figures = kernelbench.summary(rows.values())
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            assert kernelbench.main(["summary", out]) == 0
        note(shown.getvalue().rstrip())
        assert (figures["tasks"], figures["correct"], figures["errors"]) == (4, 3, 0) and not figures["degenerate"], figures
        assert figures["success_rate"] == figures["fast_0"] == 0.75 and sorted(figures["levels"]) == ["1", "2", "3"]
        assert figures["levels"]["3"]["success_rate"] == 0 and "FAILED at correct" in rows[problem.key]["said"], rows
        if not SIMULATED:
            speedups = [row["speedup"] for row in rows.values() if row["correct"]]
            assert min(speedups) > 0.05 and figures["measured"] == 3, speedups
            assert abs(figures["mean_speedup"] - sum(speedups) / 4) < 1e-6  # failures count as 0
            product = speedups[0] * speedups[1] * speedups[2]
            assert abs(figures["geometric_mean"] ** 3 - product) < 1e-6 * product
            assert figures["fast_1"] == sum(s > 1 for s in speedups) / 4
            assert {"eager", "tf32"} <= set(figures["baselines"]), figures["baselines"]
            for name in ("eager", "tf32"):
                assert figures["baselines"][name]["measured"] == 3, figures["baselines"][name]
        for row in rows.values():
            assert not row["correct"] or os.path.exists(row["model_new"]), row
            assert "task" not in row or os.path.exists(row["task"]), row  # only where sizes were changed
    note(f"{time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    tap.main(sys.modules[__name__])

# SPDX-License-Identifier: MIT
"""KernelBench's own evaluator on exported programs: right, and faster than the tasks' own modules.

A float32 program for a task of level 1 and the recorded one for the GPT block (level 3, task 44) whose products are of split halves, at the evaluator's own
tolerance; the recorded program for the block that computes in halves, with the evaluator's precision "fp16" and at the tolerance of its first versions.

Prints TAP, with the answers in diagnostics. Needs KERNELBENCH_ROOT, PyTorch with a GPU, ninja, a C++ compiler and the CUDA toolkit.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

from with_torch import GPT_SHAPES as SHAPES, SIMULATED, note, torch_or_skip
import sim
import tap
import stitch

torch = torch_or_skip(SIMULATED, kernelbench=True)  # on the simulator all but the judge

import stitch.torch as bridge  # noqa: E402
from stitch import kernelbench  # noqa: E402
from kernelbench_cases import CASES  # noqa: E402

DIMS = {"B": 128, "T": 512, "C": 768, "H": 8}
SMALL = {"B": 1, "T": 32, "C": 192, "H": 2}  # of the simulator; heads are as wide as in DIMS, which the programs count on
PROGRAMS = {}  # name: (text with ModelNew, the task's file)
FAILED = []


def kernel(name, count, *args):
    """A step with a thread for each of `count`."""
    return {"kernel": name, "grid": [f"ceil_div({count},256)"], "block": [256], "args": list(args)}


def recorded(ctx, name):
    """Source and plan of the last reply in a recording; sizes that the task has as dims are not the plan's."""
    with open(os.path.join(sim.EXAMPLES, "replies", name + ".jsonl"), encoding="utf-8") as lines:
        reply = [json.loads(line) for line in lines][-1]["reply"]["content"]
    with stitch.Candidate.from_reply(ctx, reply) as candidate:
        source, plan = candidate.program.source, candidate.program.plan
    plan["let"] = {size: value for size, value in plan.get("let", {}).items() if size not in DIMS}
    return source, plan


def of_halves(source, plan):
    """The same program for a task whose tensors are halves: widened at the beginning, narrowed at the end."""
    text, sizes = json.dumps(plan), {name: "*".join(f"({extent})" for extent in shape) for name, shape in SHAPES.items()}
    for name in SHAPES:
        text = text.replace(f'"{name}"', f'"f_{name.replace(".", "_")}"')
    plan = json.loads(text)

    def convert(function, name, *order):
        plan["buffers"][order[0] if order[0].startswith("f_") else order[1]] = {"dtype": "f32", "shape": SHAPES[name]}
        return kernel(function, sizes[name], *order, {"i32": sizes[name]})

    wide = {name: "f_" + name.replace(".", "_") for name in SHAPES}
    plan["prepare"] = [convert("widen", name, name, wide[name]) for name in SHAPES if name not in "xy"] + plan["prepare"]
    plan["run"] = [convert("widen", "x", "x", wide["x"]), *plan["run"], convert("narrow", "y", wide["y"], "y")]
    return source + """
extern "C" __global__ void widen(const __half *x, float *y, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        y[i] = __half2float(x[i]);
}
extern "C" __global__ void narrow(const float *x, __half *y, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        y[i] = __float2half_rn(x[i]);
}
""", plan


def block_task(ctx, problem, baselines=(), **options):
    if SIMULATED:
        small = {"batch_size": SMALL["B"], "seq_len": SMALL["T"], "n_embd": SMALL["C"], "n_head": SMALL["H"], "max_seqlen": 2 * SMALL["T"]}
        return bridge.from_file(problem.path, ctx=ctx, dims=SMALL, shapes=SHAPES, baselines=baselines, values=small, **options)
    return bridge.from_file(problem.path, ctx=ctx, dims=DIMS, shapes=SHAPES, baselines=baselines, **options)


def export(ctx, name, task, problem, source, plan, target=0.0):
    """Verified by us, timed where there is a target, and kept for the judge."""
    if SIMULATED:
        target = 0.0
    with stitch.Program.parse(ctx, source, plan) as program:
        options = {"simulate": "never", "profile": "never", "iterations": 20, "last_stage": "time" if target else "correct"}
        if SIMULATED:
            options["simulate"] = "auto"
        with stitch.verify(ctx, task, program, **options) as report:
            s = report.summary
            note(f"{name}: correct {s.correct}, error {s.max_abs_error:.1e}, {s.median_us:.0f} us, eager {s.baseline_us:.0f} us, {s.speedup:.2f}x; {task.notes}")
            if not report.correct or s.speedup < target:
                FAILED.append(name)
                note(report.text)
        PROGRAMS[name] = (kernelbench.export(ctx, program.to_bytes(), task), problem.path)


def test_our_own_verdict():
    (first,), (block,) = kernelbench.problems(levels=[1], numbers=[88]), kernelbench.problems(levels=[3], numbers=[44])
    with sim.context("sim:sm_90a" if SIMULATED else "cuda:0") as ctx:
        case = next(c for c in CASES if (c.level, c.number) == (1, 88))
        file = bridge.read(first.path, case.small if SIMULATED else case.values)
        with bridge.from_file(file, ctx=ctx, baselines=[]) as task:
            right, _ = case.programs(task, {**file.get_inputs.__globals__})
            export(ctx, "float32", task, first, *right)
        with block_task(ctx, block, [] if SIMULATED else ["eager"], precision="f16") as task:
            export(ctx, "split", task, block, *recorded(ctx, "gpt_block_split"), 2)
        if SIMULATED:
            assert not FAILED, FAILED
            return  # the recorded program is for the block's own size
        with block_task(ctx, block, precision="f16", atol=1e-3, rtol=1e-3) as task:
            export(ctx, "recorded", task, block, *recorded(ctx, "gpt_block"))
        with block_task(ctx, block, dtype="f16") as task:
            export(ctx, "halves", task, block, *of_halves(*recorded(ctx, "gpt_block")))
    assert not FAILED, FAILED


def test_kernelbench():
    if SIMULATED:
        raise tap.Skip("its evaluator needs a GPU")
    with tempfile.TemporaryDirectory() as folder:
        build, begun, compilers, paths = os.path.join(folder, "build"), time.perf_counter(), [], {}
        for name, (text, _) in PROGRAMS.items():  # all at once: each takes a core for half a minute
            paths[name] = os.path.join(folder, name + ".py")
            with open(paths[name], "w", encoding="utf-8") as file:
                file.write(text)
            compilers.append(
                subprocess.Popen(  # pylint: disable=consider-using-with
                    [sys.executable, "-c", f"exec(compile(open({paths[name]!r}).read(), 'new', 'exec'), {{'__name__': 'new'}})"],
                    env={**os.environ, "TORCH_EXTENSIONS_DIR": build},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
            )
        for name, compiler in zip(PROGRAMS, compilers):
            said = compiler.communicate(timeout=300)[1].decode(errors="replace")
            if compiler.returncode:
                note(f"{name} was not compiled: {said[-1500:]}")
        note(f"compiled in {time.perf_counter() - begun:.0f} s")
        asked = {
            "float32": [({}, 1.5)],
            "split": [({}, 2)],
            "recorded": [({}, None), ({"tolerance": 1e-2}, 8)],
            "halves": [({"precision": "fp16"}, 1.2)],
        }
        wrong = []
        for name, (_, task) in PROGRAMS.items():
            for options, target in asked[name]:
                made = kernelbench.judge(paths[name], task, build=build, timeout=200, **options)
                note(f"{name} {options or 'as it is'}: {json.dumps(made)}")
                if target is None:  # what its tolerance of 1e-4 makes of halves: to be seen, not decided here
                    continue
                if not (made["correct"] and made["speedup"] >= target):
                    wrong.append((name, options))
        assert not wrong and len(PROGRAMS) == 4, wrong or list(PROGRAMS)


if __name__ == "__main__":
    tap.main(sys.modules[__name__])

# SPDX-License-Identifier: MIT
"""The main job from PyTorch: optimize() on the GPT block's module with recorded replies, beside PyTorch's own ways.

Prints TAP. Needs a GPU, PyTorch, and STITCH_LIBRARY or a build folder. torch.compile's max-autotune, which takes most of a
minute to make ready, is beside it with STITCH_TEST_MAX_AUTOTUNE=1.
"""

import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time

from with_torch import GPT_SHAPES as SHAPES, note, torch_or_skip
import sim
import tap
import stitch

torch = torch_or_skip()

import stitch.torch as bridge  # noqa: E402
from stitch import kernelbench  # noqa: E402

TARGET = 8.0  # times eager float32
C, H = 768, 8


def block():
    spec = importlib.util.spec_from_file_location(
        "gpt_block", os.path.join(sim.EXAMPLES, "tasks", "gpt_block", "model.py")
    )
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    torch.manual_seed(1)
    return source, source.Model().cuda(), torch.randn(source.B, source.T, source.C, device="cuda")


def text_of_block():
    with open(os.path.join(sim.EXAMPLES, "tasks", "gpt_block", "model.py"), encoding="utf-8") as text:
        return text.read()


def timed(function, flush):
    flush.zero_()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    function()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1000


def test_the_block_gets_faster():
    source, module, x = block()
    turns = []

    def show(turn):
        s = turn.report.summary
        turns.append(turn.attempt.action.name)
        now = time.perf_counter()
        stages = sum(stage.milliseconds for stage in turn.report.stages) / 1e3
        note(
            f"attempt {len(turns)} ({turns[-1]}): correct {s.correct}, {s.median_us:.0f} us, {s.speedup:.2f}x, failed {s.failed_stage.name}; "
            f"{now - since[0]:.2f} s, of which in stages {stages:.2f} s"
            + (" (with the task's making)" if len(turns) == 1 else "")
        )
        since[0] = time.perf_counter()

    begun = time.perf_counter()
    since = [begun]
    with sim.context("cuda:0") as ctx:
        fast = bridge.optimize(
            module,
            [x],
            ctx=ctx,
            model="replay:" + os.path.join(sim.EXAMPLES, "replies", "gpt_block.jsonl"),
            policy=stitch.Policy(target_speedup=12),
            on_turn=show,
            name="gpt_block",
            dims={"B": source.B, "T": source.T, "C": C, "H": H},
            reduced_dims={"B": 1, "T": 128},
            shapes=SHAPES,
            atol=1e-3,
            rtol=1e-3,
            precision="f16",
            constructor=source.Model,
            baselines=["eager", "tf32"],
        )
        note(
            f"optimize(): {time.perf_counter() - begun:.0f} s, {len(turns)} attempts, {fast.speedup:.2f}x, notes {fast.notes}"
        )
        assert fast.enabled and {"DRAFT", "REPAIR_COMPILE", "REPAIR_CORRECTNESS", "OPTIMISE"} <= set(turns), turns
        assert fast.speedup >= TARGET, fast.speedup

        # The module itself, by PyTorch's events, and against float64.
        oracle = source.Model().double().cuda()
        oracle.load_state_dict({k: v.double() for k, v in module.state_dict().items()})
        flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        torch.backends.cuda.matmul.allow_tf32 = False
        ours, eager = [], []
        with torch.no_grad():
            y = fast(x)
            expected = torch.cat([oracle(part.double()) for part in x.split(16)])
            error = (y.double() - expected).abs()
            assert not bool((error > 1e-3 + 1e-3 * expected.abs()).any()), float(error.max())
            del expected, oracle
            for i in range(25):
                x.normal_()
                a, b = timed(lambda: fast(x), flush), timed(lambda: module(x), flush)
                if i >= 5:
                    ours.append(a)
                    eager.append(b)
        ratio = statistics.median(eager) / statistics.median(ours)
        note(
            f"{ratio:.2f}x by PyTorch's events: eager {statistics.median(eager):.0f} us, optimised {statistics.median(ours):.0f} us, "
            f"largest error {float(error.max()):.2e}, {torch.cuda.get_device_name()}, torch {torch.__version__}"
        )
        assert fast.fallbacks == 0 and ratio >= TARGET, ratio
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "block.zip")
            fast.save(path)
            again = bridge.load(path, module, ctx=ctx)
            with torch.no_grad():
                assert torch.allclose(again(x), fast(x), atol=2e-3, rtol=2e-3) and again.runs == 1

        # Beside torch.compile, in one verification.
        begun = time.perf_counter()
        with bridge.task(
            module,
            [x],
            ctx=ctx,
            dims={"B": source.B, "T": source.T, "C": C, "H": H},
            shapes=SHAPES,
            reduced_dims={"B": 1, "T": 128},
            atol=1e-3,
            rtol=1e-3,
            precision="f16",
            constructor=source.Model,
            source=text_of_block(),
            baselines=["eager", "tf32", "compile"] + ["max-autotune"] * bool(os.environ.get("STITCH_TEST_MAX_AUTOTUNE")),
        ) as task:
            task.warm()
            note(f"torch.compile took {time.perf_counter() - begun:.0f} s; notes {task.notes}")
            program = stitch.Program.from_bytes(ctx, fast.program_bytes)
            report = stitch.verify(ctx, task, program, simulate="never", iterations=30)
            note(report.text)
            note(
                json.dumps(
                    [(row["name"], row["median_us"], row["speedup"]) for row in report.json["time"]["baselines"]]
                )
            )
            assert report.correct, report.text
            text = kernelbench.export(ctx, fast.program_bytes, task)
        time_model_new(text, module, x, flush)
        judge_model_new(text)


def judge_model_new(text):
    """KernelBench's own evaluator on it, where there is a checkout: at the tolerance of its paper, since half-precision
    products are too far off for the 1e-4 that it has had since, which is asked as well."""
    if not os.environ.get("KERNELBENCH_ROOT"):
        note("KERNELBENCH_ROOT is not set: KernelBench's evaluator was not asked")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "new.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        task = os.path.join(sim.EXAMPLES, "tasks", "gpt_block", "model.py")
        note("KernelBench at its own tolerance:", json.dumps(kernelbench.judge(path, task)))
        made = kernelbench.judge(path, task, tolerance=1e-2)
        note("KernelBench at 1e-2:", json.dumps(made))
        if "set" in made.get("error", ""):  # an older one, whose tolerance is 1e-2
            made = kernelbench.judge(path, task)
        assert made["correct"] and made["speedup"] >= TARGET, made


def time_model_new(text, module, x, flush):
    """The exported ModelNew beside the module."""
    space = {"__name__": "exported"}
    try:
        exec(compile(text, "exported.py", "exec"), space)  # pylint: disable=exec-used
    except RuntimeError as e:
        if "ninja" not in str(e).lower() and "compiler" not in str(e).lower():
            raise
        note("ModelNew was not compiled: " + str(e).splitlines()[0])
        return
    new = space["ModelNew"]().cuda()
    new.load_state_dict(module.state_dict())
    with torch.no_grad():
        assert torch.allclose(new(x), module(x), atol=2e-3, rtol=2e-3)
        times = sorted(timed(lambda: new(x), flush) for _ in range(20))
    note(f"ModelNew: {times[10]:.0f} us")


if __name__ == "__main__":
    tap.main(sys.modules[__name__])

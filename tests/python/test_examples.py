# SPDX-License-Identifier: MIT
"""The scripts of examples/ as somebody runs them, and the recorded program of split halves at a small size."""

import json
import os
import subprocess
import sys
import tempfile

import sim
import tap
import stitch

TASK = os.path.join(sim.EXAMPLES, "tasks", "gpt_block", "task.json")
SPLIT = os.path.join(sim.EXAMPLES, "replies", "gpt_block_split.jsonl")
SMALL = {"B": 2, "T": 32, "C": 192, "H": 2}  # heads as wide as the block's


def run(folder, script, *args, status=0, paths=()):
    path = os.pathsep.join([*paths, os.path.join(tap.CHECKOUT, "bindings", "python")])
    env = dict(os.environ, PYTHONPATH=path, STITCH_CACHE_DIR=sim.CACHE, COLUMNS="120")
    env.pop("KERNELBENCH_ROOT", None)
    done = subprocess.run(
        [sys.executable, os.path.join(sim.EXAMPLES, script), *args],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
    )
    assert done.returncode == status and "Traceback" not in done.stderr, (done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr


def hide(folder, name):
    """A folder for Python's path that makes a module as good as not installed."""
    with open(os.path.join(folder, name + ".py"), "w", encoding="ascii") as f:
        f.write(f"raise ImportError({name!r} + ' is not there')\n")
    return [folder]


def test_the_loop():
    with tempfile.TemporaryDirectory() as folder:
        out, _ = run(folder, "loop.py", "--device", "sim:sm_90a")
        assert out.count("FAILED at simulate") == 3 and "attempt 4 (draft): PASSED" in out, out
        assert out.count("plan ") >= 2 and "saved best.stitch: correct, not timed" in out, out
        with sim.context("none") as ctx, stitch.Program.load(ctx, os.path.join(folder, "best.stitch")) as program:
            assert "rms_norm" in program.source
        out, said = run(folder, "loop.py", "--device", "sim:sm_90a", "--attempts", "1", "--out", "none.stitch", status=1)
        assert "no program was right" in said and not os.path.exists(os.path.join(folder, "none.stitch")), said
        _, said = run(folder, "loop.py", "--task", "no.json", "--device", "sim:sm_90a", status=2)
        assert "no.json" in said, said


def test_usage():
    with tempfile.TemporaryDirectory() as folder:
        for script, *words in (
            ("loop.py", "--task", "--model", "--device", "STITCH_API_KEY", "PyTorch is not needed"),
            ("optimize_module.py", "--file", "--precise", "--export", "--judge", "Needs a GPU"),
        ):
            out, _ = run(folder, script, "--help")
            assert all(word in out for word in ("usage: " + script, *words)), out
            _, said = run(folder, script, "--no-such-option", status=2)
            assert "--no-such-option" in said, said
            _, said = run(folder, script, status=1, paths=hide(folder, "stitch"))
            assert "there is no module stitch" in said and "pip install ." in said, said
            os.unlink(os.path.join(folder, "stitch.py"))
        for options, word in ((["--judge"], "--export"), (["--judge", "--export", "new.py"], "KERNELBENCH_ROOT")):
            _, said = run(folder, "optimize_module.py", *options, status=2)
            assert word in said.splitlines()[-1], said


def test_a_module_without_pytorch():
    with tempfile.TemporaryDirectory() as folder:
        _, said = run(folder, "optimize_module.py", status=1, paths=hide(folder, "torch"))
        assert "needs PyTorch 2.5 or later" in said and "torch is not there" in said, said


def test_a_module_without_a_gpu():
    try:
        import torch
    except ImportError:
        raise tap.Skip("PyTorch is not installed") from None
    if torch.cuda.is_available():
        raise tap.Skip("there is a GPU: tests/gpu/test_gpu_wheel.py runs it")
    with tempfile.TemporaryDirectory() as folder:
        _, said = run(folder, "optimize_module.py", status=1)
        assert "PyTorch finds no GPU here; examples/loop.py runs without one" in said, said


def test_recorded_program_of_split_halves():
    """At a tolerance of 1e-4, which the draft before it does not keep; here at a small size."""
    with open(SPLIT, encoding="utf-8") as lines:
        entries = [json.loads(line) for line in lines]
    assert [(entry["label"], entry["number"]) for entry in entries] == [
        ("plan", 1),
        ("code:draft", 1),
        ("code:repair_correctness", 1),
    ]
    with open(TASK, encoding="utf-8") as text:
        document = json.load(text)
    document["dims"], document["tolerance"] = SMALL, {"atol": 1e-4, "rtol": 1e-4}
    for tensor in document["weights"]:  # as nn.Linear draws them for this width
        if "uniform" in tensor["dist"]:
            bound = (4 if tensor["name"].startswith("mlp.c_proj") else 1) ** -0.5 * SMALL["C"] ** -0.5
            tensor["dist"] = {"uniform": [-bound, bound]}
    document.pop("reduced_dims")
    document["baselines"] = document["baselines"][:1]  # float32's own error is no excuse for the draft
    with sim.context() as ctx:
        task = stitch.Task.parse(ctx, document, os.path.dirname(TASK))
        right = []
        for entry in entries[1:]:
            with stitch.Candidate.from_reply(ctx, entry["reply"]["content"]) as candidate:
                source, plan = candidate.program.source, candidate.program.plan
            assert plan["let"].pop("T") == 512 and plan["let"].pop("C") == 768 and plan["let"].pop("H") == 8
            with stitch.Program.parse(ctx, source, plan) as program:
                report = stitch.verify(ctx, task, program, last_stage="correct", profile="never")
                right.append(report.correct)
                print(f"# {entry['label']}: largest error {report.summary.max_abs_error:.1e}")
                assert report.correct or report.summary.failed_stage == stitch.Stage.CORRECT, report.text
        assert right == [False, True], right


if __name__ == "__main__":
    tap.main(sys.modules[__name__])

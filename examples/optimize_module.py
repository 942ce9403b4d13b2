#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A PyTorch module in, a faster one out: the lines of docs/gallery.md as a program. Needs a GPU and PyTorch for it.

Without options it replays recorded replies for the GPT block of examples/tasks/gpt_block, which compute products in half
precision. --precise replays those whose products are of split halves and keep to the 1e-4 that KernelBench asks of float32
modules. With --model and --file it is your model, and your module.
"""

import argparse
import importlib
import json
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--file",
        default=os.path.join(HERE, "tasks", "gpt_block", "model.py"),
        help="a file in KernelBench's format (Model, get_inputs, get_init_inputs), which is imported (default: the GPT block)",
    )
    parser.add_argument("--model", help="https://HOST/v1#NAME (key in $STITCH_API_KEY), replay:FILE, record:FILE,MODEL, relay:FOLDER")
    parser.add_argument("--precise", action="store_true", help="within 1e-4 instead of 1e-3; stops at 3 times as fast instead of 12")
    parser.add_argument("--save", metavar="FILE", help="keeps what was found, for stitch.torch.load()")
    parser.add_argument("--export", metavar="FILE.py", help="writes it as KernelBench's ModelNew, which needs no libstitch")
    parser.add_argument(
        "--judge", action="store_true", help="asks KernelBench's own evaluator ($KERNELBENCH_ROOT) about the exported file"
    )
    return parser, parser.parse_args()


def recording(precise):
    return "replay:" + os.path.join(HERE, "replies", "gpt_block_split.jsonl" if precise else "gpt_block_torch.jsonl")


def microseconds(torch, function, count=20):
    """The median of what PyTorch's events say."""
    times = []
    for i in range(count + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def optimize(torch, stitch, given):
    """The module, faster."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(given.file)))
    file = importlib.import_module(os.path.basename(given.file).rpartition(".")[0])
    module = file.Model(*file.get_init_inputs()).cuda()
    inputs = [t.cuda() if isinstance(t, torch.Tensor) else t for t in file.get_inputs()]
    tolerance, target = (1e-4, 3) if given.precise else (1e-3, 12)

    fast = stitch.torch.optimize(
        module,
        inputs,
        model=given.model or recording(given.precise),
        policy=stitch.Policy(target_speedup=target),
        precision="f16",  # of what goes into products: the sums are float32
        atol=tolerance,
        rtol=tolerance,
        # A program may have four times the error of a baseline whose precision is allowed: too much of TF32's for 1e-4.
        baselines=["eager"] if given.precise else ["eager", "tf32"],
        on_turn=lambda turn: print(f"{turn.attempt.action.name.lower()}: {turn.report.text.splitlines()[0]}", flush=True),
    )
    with torch.inference_mode():
        y, expected = fast(*inputs), module(*inputs)
        if isinstance(y, torch.Tensor):
            print(f"largest difference from the module in float32: {(y - expected).abs().max().item():.2e}")
        ours, eager = microseconds(torch, lambda: fast(*inputs)), microseconds(torch, lambda: module(*inputs))
    print(f"{fast.speedup:.2f}x by the library; {eager / ours:.2f}x by PyTorch's events: {eager:.0f} us before, {ours:.0f} us after")
    return fast


def export(stitch, given, fast):
    """The program as a file with ModelNew, for a task that is made of the same file."""
    with stitch.Context() as ctx, stitch.torch.from_file(given.file, ctx=ctx, baselines=[]) as task:
        text = stitch.kernelbench.export(ctx, fast.program_bytes, task)
    with open(given.export, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"exported {given.export}")


def main():
    parser, given = options()
    if given.judge and not given.export:
        parser.error("--judge is for the file of --export")
    if given.judge and not os.environ.get("KERNELBENCH_ROOT"):
        parser.error("--judge needs a checkout of KernelBench, which KERNELBENCH_ROOT names")
    try:
        import stitch
    except ImportError:
        sys.exit("optimize_module.py: there is no module stitch; run `pip install .` in the checkout, or set PYTHONPATH=bindings/python")
    try:
        import torch
        import stitch.torch
        import stitch.kernelbench
    except ImportError as e:
        sys.exit(f"optimize_module.py: it needs PyTorch 2.5 or later (pip install torch): {e}")
    if not torch.cuda.is_available():
        sys.exit("optimize_module.py: PyTorch finds no GPU here; examples/loop.py runs without one, on the simulator")
    try:
        fast = optimize(torch, stitch, given)
        if given.save:
            fast.save(given.save)
            print(f"saved {given.save}")
        if given.export:
            export(stitch, given, fast)
        if given.judge:
            print(json.dumps(stitch.kernelbench.judge(given.export, given.file)))
    except stitch.StitchError as e:
        sys.exit(f"optimize_module.py: {e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

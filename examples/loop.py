#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The whole loop from Python: plan, code, verify, until next_step() says stop. The best program is saved.

Without arguments it replays recorded replies for a gated MLP, on the first GPU or, where there is none, on the simulator;
PyTorch is not needed. The first recorded programs are wrong on purpose, to show how they are found out and repaired.
examples/loop.c is the same in C, stitch.loop() the same as one call.
"""

import argparse
import os
import sys

try:
    import stitch
except ImportError:
    sys.exit("loop.py: there is no module stitch; run `pip install .` in the checkout, or set PYTHONPATH=bindings/python")

HERE = os.path.dirname(os.path.abspath(__file__))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default=os.path.join(HERE, "tasks", "swiglu_mlp", "task.json"), help="a task (docs/task-format.md)")
    parser.add_argument(
        "--model",
        default="replay:" + os.path.join(HERE, "replies", "swiglu_mlp.jsonl"),
        help="https://HOST/v1#NAME (key in $STITCH_API_KEY), replay:FILE, record:FILE,MODEL, relay:FOLDER",
    )
    parser.add_argument("--device", default="auto", help='"cuda:0", "sim:sm_90a", ...; auto: a GPU, else the simulator')
    parser.add_argument("--target", type=float, default=0, metavar="SPEEDUP", help="stop when the program is so much faster")
    parser.add_argument("--attempts", type=int, default=4, help="stop after so many (default: 4, as many as are recorded)")
    parser.add_argument("--out", default="best.stitch", help="where the best program goes (default: best.stitch)")
    return parser.parse_args()


def search(ctx, task, policy):
    """The best candidate with its report; None where none was right."""
    attempts, candidates, reports = [], [], []
    plan, plans = None, 0
    while True:
        step = stitch.next_step(attempts, plans, policy)
        if step.action == stitch.Action.STOP:
            print(f"stopped: {step.reason}")
            return (candidates[step.best], reports[step.best]) if step.best >= 0 else None
        if step.action in (stitch.Action.PLAN, stitch.Action.REPLAN):
            plan = stitch.plan(ctx, task, previous=plan, attempts=list(zip(attempts, reports)))
            plans += 1
            print(f"plan {plans}: {plan.strategy}\n")
            continue
        base = step.base  # the attempt that is revised
        (candidate,) = stitch.code(
            ctx,
            task,
            action=step.action,
            subtask=step.subtask,
            plan=plan,
            previous=candidates[base] if base >= 0 else None,
            report=reports[base] if base >= 0 else None,
        )
        report = stitch.verify(ctx, task, candidate)
        candidates.append(candidate)
        reports.append(report)
        attempts.append(stitch.Attempt.of(report, step.action, base, plans - 1, step.subtask))
        print(f"attempt {len(attempts)} ({step.action.name.lower()}): {report.text}")


def main():
    given = options()
    policy = stitch.Policy(max_attempts=given.attempts, target_speedup=given.target)
    try:
        with stitch.Context(given.device) as ctx:
            print(f"device: {ctx.device.name}")
            task = stitch.Task.load(ctx, given.task)
            ctx.set_model(stitch.Model.open(ctx, given.model))
            best = search(ctx, task, policy)
            if best is None:
                print("no program was right", file=sys.stderr)
                return 1
            candidate, report = best
            candidate.program.validate(task)  # with the task's full dims, where the simulator took smaller ones
            candidate.program.save(given.out)
            faster = f"{report.summary.speedup:.2f}x" if report.summary.timed else "not timed"
            print(f"saved {given.out}: correct, {faster}")
    except stitch.StitchError as e:
        print(f"loop.py: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

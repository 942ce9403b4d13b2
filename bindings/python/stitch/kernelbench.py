# SPDX-License-Identifier: MIT
"""KernelBench: the loop on the tasks of a checkout, one line of results a task, and what they come to.

    python3 -m stitch.kernelbench run --levels 1,2,3 --model https://host/v1#MODEL --out results.jsonl
    python3 -m stitch.kernelbench judge results.jsonl
    python3 -m stitch.kernelbench summary results.jsonl

Beside each right program lies a file with ModelNew for KernelBench's own evaluator, which `judge` (or run --judge) asks;
what it says stands beside ours. With --ray the tasks run on all GPUs that Ray has.

KERNELBENCH_ROOT (or --root) is a checkout of KernelBench; nothing of it comes with this package. Its files are imported
and run in this process. A run that ends early goes on with the same command: tasks that have a line are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import math
import os
import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._agent import Policy
from ._context import Context, Path
from ._errors import (
    CancelledError,
    DriverError,
    FormatError,
    InvalidError,
    LimitError,
    NotFoundError,
    ReplyError,
    StitchError,
    UnsupportedError,
)
from ._judge import judge, root_of
from ._model_new import to_model_new
from ._program import Program

if TYPE_CHECKING:
    from .torch import ModuleTask

LEVELS = (1, 2, 3)
P = (0, 1, 2)
PRECISIONS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}  # of KernelBench's evaluator: what files are cast to


@dataclass(frozen=True)
class Problem:
    """One file: `key` is "level3/43_MinGPTCausalAttention"."""

    level: int
    number: int
    name: str
    path: str

    @property
    def key(self) -> str:
        return f"level{self.level}/{self.name}"


def problems(
    root: Optional[Path] = None, levels: Sequence[int] = LEVELS, numbers: Optional[Iterable[int]] = None
) -> List[Problem]:
    """The files of some levels, by number. root None: $KERNELBENCH_ROOT. NotFoundError where there are none."""
    place = root_of(root)
    wanted = None if numbers is None else set(numbers)
    found: List[Problem] = []
    for level in levels:
        folder = next(
            (
                f
                for f in (os.path.join(place, "KernelBench", f"level{level}"), os.path.join(place, f"level{level}"))
                if os.path.isdir(f)
            ),
            None,
        )
        if folder is None:
            raise NotFoundError(f"{place} has no folder KernelBench/level{level}")
        for file in os.listdir(folder):
            match = re.fullmatch(r"(\d+)_.*\.py", file)
            if match and (wanted is None or int(match.group(1)) in wanted):
                found.append(Problem(level, int(match.group(1)), file[:-3], os.path.join(folder, file)))
    return sorted(found, key=lambda problem: (problem.level, problem.number, problem.name))


# ---- results ---------------------------------------------------------------------------------------------------------


def results(path: Path) -> Dict[str, Dict[str, Any]]:
    """The lines of a file of results by key; the last line of a key counts. A line that was cut off at the end (the
    machine went down) is left out; FormatError for one before it."""
    found: Dict[str, Dict[str, Any]] = {}
    if os.path.exists(path) and not os.path.isdir(path) and not os.path.isfile(path):  # a device may have no end
        raise FormatError(f"{os.fsdecode(path)} is no file of results: it is no regular file")
    try:
        with open(path, encoding="utf-8") as text:
            lines = text.read().split("\n")
    except FileNotFoundError:
        return found
    except UnicodeDecodeError:
        raise FormatError(f"{os.fsdecode(path)} is no file of results: it is not UTF-8") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            found[row["key"]] = row
        except (ValueError, KeyError, TypeError):
            if number == len(lines):
                break
            raise FormatError(f"{os.fsdecode(path)}, line {number}: it is no result") from None
    return found


def _append(path: Path, row: Mapping[str, Any]) -> None:
    with open(path, "a+b") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # the rest of a line that was cut off
                file.seek(0)
                kept = file.read().rpartition(b"\n")
                file.truncate(len(kept[0]) + len(kept[1]))
        file.write((json.dumps(row) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def _speedup(row: Mapping[str, Any], baseline: Optional[str]) -> float:
    """0 for what counts as a failure."""
    if not row.get("correct") or row.get("degenerate"):
        return 0.0
    if baseline is None:
        return float(row.get("speedup") or 0)
    return float(row.get("speedups", {}).get(baseline) or 0)


def _rates(rows: Sequence[Mapping[str, Any]], baseline: Optional[str]) -> Dict[str, Any]:
    values = [_speedup(row, baseline) for row in rows]
    right = [value for value in values if value > 0]
    count = max(1, len(rows))
    return {
        "mean_speedup": sum(values) / count,
        "geometric_mean": math.exp(sum(map(math.log, right)) / len(right)) if right else 0.0,
        "measured": len(right),
        # As KernelBench has it: correct and more than p times as fast; p = 0 is the share that is correct.
        **{
            f"fast_{p}": sum(
                bool(row.get("correct")) and not row.get("degenerate") and (p == 0 or value > p)
                for row, value in zip(rows, values)
            )
            / count
            for p in P
        },
    }


def _judged(rows: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """What KernelBench's evaluator says of all tasks; those that were not judged count as failures."""
    theirs = [{**row, **row["kernelbench"]} if "kernelbench" in row else {**row, "correct": False} for row in rows]
    asked = [row for row in rows if "kernelbench" in row]
    return {
        "judged": len(asked),
        "correct": sum(bool(row.get("correct")) and not row.get("degenerate") for row in theirs),
        "errors": sum("error" in row["kernelbench"] for row in asked),
        "disagree": [
            row["key"] for row in asked if bool(row.get("correct")) != bool(row["kernelbench"].get("correct"))
        ],
        **_rates(theirs, None),
    }


def summary(rows: Iterable[Mapping[str, Any]]) -> Dict[str, Any]:
    """What the results come to, for each level and all: tasks, how many were right, mean speed-up with failures as 0,
    geometric mean over those that were right, fast_p; against the main baseline and each other one. Degenerate tasks
    (on which a verdict means nothing) count as failures here and are named; `admitted` has the figures without them,
    `kernelbench` those of KernelBench's evaluator where it was asked."""
    every = list(rows)
    out: Dict[str, Any] = {"levels": {}}
    groups: List[Tuple[str, List[Mapping[str, Any]]]] = [("all", every)]
    groups += [(str(level), [r for r in every if r["level"] == level]) for level in sorted({r["level"] for r in every})]
    for label, chosen in groups:
        names = sorted({name for row in chosen for name in row.get("speedups", {})})
        good = [row for row in chosen if not row.get("degenerate")]
        figures = {
            "tasks": len(chosen),
            "correct": sum(bool(row.get("correct")) and not row.get("degenerate") for row in chosen),
            "errors": sum("error" in row for row in chosen),
            "degenerate": [row["key"] for row in chosen if row.get("degenerate")],
            **_rates(chosen, None),
            "admitted": {"tasks": len(good), **_rates(good, None)},
            "baselines": {name: _rates(chosen, name) for name in names},
            "kernelbench": _judged(chosen),
        }
        figures["success_rate"] = figures["correct"] / max(1, len(chosen))
        if label == "all":
            out.update(figures)
        else:
            out["levels"][label] = figures
    return out


def describe(figures: Mapping[str, Any]) -> str:
    """A summary as a table."""
    lines = [
        f"{'':10}{'tasks':>6}{'right':>7}{'rate':>8}{'mean':>8}{'geo':>8}" + "".join(f"{f'fast_{p}':>8}" for p in P)
    ]
    for label, row in [*((f"level {k}", v) for k, v in figures["levels"].items()), ("all", figures)]:
        lines.append(
            f"{label:10}{row['tasks']:6}{row['correct']:7}{row['success_rate']:8.3f}{row['mean_speedup']:8.3f}"
            f"{row['geometric_mean']:8.3f}" + "".join(f"{row[f'fast_{p}']:8.3f}" for p in P)
        )
    for name, row in figures["baselines"].items():
        lines.append(
            f"against {name}: mean {row['mean_speedup']:.3f}, geometric mean {row['geometric_mean']:.3f}, "
            + ", ".join(f"fast_{p} {row[f'fast_{p}']:.3f}" for p in P)
        )
    theirs = figures["kernelbench"]
    if theirs["judged"]:
        lines.append(
            f"KernelBench's evaluator: {theirs['correct']} right of {theirs['judged']} judged, mean "
            f"{theirs['mean_speedup']:.3f}, geometric mean {theirs['geometric_mean']:.3f}, "
            + ", ".join(f"fast_{p} {theirs[f'fast_{p}']:.3f}" for p in P)
        )
    if theirs["disagree"]:
        lines.append("it says otherwise than we do: " + ", ".join(theirs["disagree"]))
    if figures["degenerate"]:
        lines.append(
            "degenerate (their verdicts mean nothing, they count as failures): " + ", ".join(figures["degenerate"])
        )
    return "\n".join(lines)


# ---- running ---------------------------------------------------------------------------------------------------------


def _row(problem: Problem, begun: float, **more: Any) -> Dict[str, Any]:
    return {
        "key": problem.key,
        "level": problem.level,
        "number": problem.number,
        "name": problem.name,
        "seconds": round(time.monotonic() - begun, 3),
        **more,
    }


def _from_report(report: Mapping[str, Any]) -> Dict[str, Any]:
    figures, timing = report["summary"], report.get("time") or {}
    baselines = timing.get("baselines") or []
    return {
        "correct": bool(figures["correct"]),
        "degenerate": bool(figures.get("degenerate")),
        "median_us": figures.get("median_us") or 0,
        "speedup": figures.get("speedup") or 0,
        "speedups": {row["name"]: row.get("speedup") or 0 for row in baselines if row.get("name")},
    }


def _text_of(e: BaseException) -> str:
    return (str(e) if isinstance(e, StitchError) else f"{type(e).__name__}: {e}")[:2000]


def _check_device(ctx: Context) -> None:
    """DriverError where an earlier task has broken what this process has of the device (its own line says how):
    everything would fail from then on."""
    import torch  # pylint: disable=import-outside-toplevel

    if ctx.device.simulated:
        return
    try:
        torch.cuda.synchronize(ctx.device.ordinal)
    except RuntimeError as e:
        raise DriverError(f"{ctx.device.name} cannot be used in this process any more: {e}") from e


@contextlib.contextmanager
def _open_task(task: "ModuleTask") -> Iterator[None]:
    """Closes it afterwards. A device that the task has broken refuses that; the next one's _check_device() says so."""
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):
            task.close()


def export(ctx: Context, program: bytes, task: "ModuleTask") -> str:
    """A program for a task from a KernelBench-format file as such a file with ModelNew, which KernelBench's evaluator
    takes: the task's own source, and the program in C++ for torch.utils.cpp_extension.load_inline(). It compiles the
    device code with NVRTC, and needs neither libstitch nor nvcc. UnsupportedError names what cannot be exported."""
    with Program.from_bytes(ctx, program) as made:
        return to_model_new(task.source, made.source, made.plan, task.spec, task.interface)


def solve(
    problem: Problem,
    ctx: Context,
    *,
    policy: Optional[Policy] = None,
    programs: Optional[Path] = None,
    verify_options: Optional[Mapping[str, Any]] = None,
    judging: Optional[Mapping[str, Any]] = None,
    precision: Optional[str] = None,
    **options: Any,
) -> Dict[str, Any]:
    """The loop on one task with the models that the context has: its line of results. What the task itself does wrong,
    when it is made or later, and a model that has no plan or no room for it become an `error` of the line; exceptions
    that are not about this task (no model, cancelled, a device that was lost before) come through. programs: a folder
    for the best program, saved as <key>.stitch, and as <key>.py with ModelNew (beside <key>.task.py where `values`
    changed the task's file). judging: arguments of judge(), which is asked then, too: its answer is `kernelbench` of
    the line. precision "fp16" or "bf16" casts module and inputs, for us and for judge(). options: as for from_file()."""
    from . import torch as bridge  # pylint: disable=import-outside-toplevel
    from .torch import _optimize  # pylint: disable=import-outside-toplevel

    begun = time.monotonic()
    kept: Dict[str, Any] = {}
    if precision is not None:
        if precision not in PRECISIONS:
            raise InvalidError(f"precision is {', '.join(PRECISIONS)}, not {precision!r}")
        options["dtype"] = PRECISIONS[precision]
        kept["precision"] = precision
    known = {**inspect.signature(bridge.from_file).parameters, **inspect.signature(bridge.task).parameters}
    if set(options) - set(known):
        raise TypeError(f"solve() has no option {sorted(set(options) - set(known))[0]!r}")
    bridge.check_baselines(options.get("baselines"))
    _check_device(ctx)
    try:
        task = bridge.from_file(problem.path, ctx=ctx, name=problem.name, **options)
    except CancelledError:
        raise
    except (Exception, SystemExit) as e:  # pylint: disable=broad-except
        return _row(problem, begun, correct=False, attempts=0, error=_text_of(e), **kept)
    settings = dict(verify_options or {})
    turns: List[None] = []
    with _open_task(task):
        try:
            if settings.get("last_stage") in (None, "none", "time", "profile"):
                task.warm()
            program, report, reports, said = _optimize.search(
                ctx, task, policy, lambda turn: turns.append(None), settings
            )
        except (Exception, SystemExit) as e:  # pylint: disable=broad-except
            # Cleaning up after what a callback raised may have failed, too.
            failed = [function.failed for function in task._callbacks if function.failed is not None]
            # Nor is it about other tasks what the model makes of this one: no plan, or a prompt that is too long.
            about = isinstance(e, (LimitError, ReplyError))
            if not about and not any(one is e or one is e.__context__ for one in failed):
                raise
            return _row(problem, begun, correct=False, attempts=len(turns), error=_text_of(e), **kept)
        notes, model_new, source = list(task.notes), "", task.source
        if program is not None and programs is not None:
            try:
                model_new = export(ctx, program, task)
            except UnsupportedError as e:
                notes.append(f"no ModelNew: {e.message}")
    figures: Dict[str, Any]
    if program is None:
        degenerate = any(r["summary"].get("degenerate") for r in reports)
        figures = {"correct": False, "degenerate": degenerate, "said": said[:2000]}
    else:
        figures = _from_report(report)
    row = _row(problem, begun, attempts=len(reports), notes=notes, **figures, **kept)
    if program is None:
        return row
    if programs is not None:
        place = os.path.join(os.fsdecode(programs), problem.key + ".stitch")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(program)
        row["program"] = place
        if model_new:
            row["model_new"] = place[: -len("stitch")] + "py"
            with open(row["model_new"], "w", encoding="utf-8") as text:
                text.write(model_new)
            if options.get("values"):  # ours is not the checkout's file
                row["task"] = place[: -len("stitch")] + "task.py"
                with open(row["task"], "w", encoding="utf-8") as text:
                    text.write(source)
            if judging is not None:
                device = 0 if ctx.device.simulated else ctx.device.ordinal
                judging = {"device": device, "precision": precision, **judging}
                row["kernelbench"] = judge(row["model_new"], row.get("task", problem.path), **judging)
    return row


def rejudge(out: Path, *, root: Optional[Path] = None, again: bool = False, **judging: Any) -> Iterator[Dict[str, Any]]:
    """judge() for every result that has a file with ModelNew and no answer yet (again: those with one, too). Each gets a
    new line, which is yielded."""
    place = root_of(root)
    for key, row in results(out).items():
        if not row.get("model_new") or ("kernelbench" in row and not again):
            continue
        problem = next((p for p in problems(place, [row["level"]], [row["number"]]) if p.key == key), None)
        if problem is None:
            raise NotFoundError(f"{place} has no {key}")
        options = {"precision": row.get("precision"), **judging}
        made = {**row, "kernelbench": judge(row["model_new"], row.get("task", problem.path), root=place, **options)}
        _append(out, made)
        yield made


def run(
    out: Path,
    ctx: Context,
    *,
    root: Optional[Path] = None,
    levels: Sequence[int] = LEVELS,
    numbers: Optional[Iterable[int]] = None,
    again: bool = False,
    **options: Any,
) -> Iterator[Dict[str, Any]]:
    """solve() for every task that has no line in `out` yet, which gets one each. Yields the lines as they come; leave
    the loop to stop, and go on later. again: tasks whose line says `error` or that were not right are tried again.
    InvalidError if `out` has lines of another precision."""
    for problem in _open(out, root, levels, numbers, again, options.get("precision")):
        row = solve(problem, ctx, **options)
        _append(out, row)
        yield row


def _open(
    out: Path,
    root: Optional[Path],
    levels: Sequence[int],
    numbers: Optional[Iterable[int]],
    again: bool,
    precision: Optional[str],
) -> List[Problem]:
    """The tasks that are left to do. InvalidError if lines of another precision are there."""
    done, left = results(out), []
    other = next((row for row in done.values() if row.get("precision") != precision), None)
    if other is not None:
        raise InvalidError(
            f"{os.fsdecode(out)} has lines of the precision {other.get('precision') or 'that files have'}; take another "
            f"file for {precision or 'that of files'}"
        )
    for problem in problems(root, levels, numbers):
        old = done.get(problem.key)
        if old is None or (again and not old.get("correct")):
            left.append(problem)
    return left


def run_on_ray(
    out: Path,
    model: str,
    *,
    root: Optional[Path] = None,
    levels: Sequence[int] = LEVELS,
    numbers: Optional[Iterable[int]] = None,
    again: bool = False,
    device: str = "auto",
    gpus: float = 1,
    **options: Any,
) -> Iterator[Dict[str, Any]]:
    """run() with Ray: each task is a remote function with a GPU and a process of its own, and lines come, and are
    appended by this process, as tasks end. `model` is what Model.open() takes; checkout, recorded replies and `programs`
    must be at the same place on every machine. UnsupportedError without Ray."""
    from . import _ray  # pylint: disable=import-outside-toplevel

    _ray.load()
    if options.get("programs") is not None:
        options["programs"] = os.path.abspath(os.fsdecode(options["programs"]))
    begun = time.monotonic()
    precision = options.get("precision")
    kept = {} if precision is None else {"precision": precision}
    left = _open(out, root, levels, numbers, again, precision)
    for problem, found in _ray.solve_all(left, model, device, gpus, options):
        row = found if "key" in found else _row(problem, begun, correct=False, attempts=0, **kept, **found)
        _append(out, row)
        yield row


# ---- command line ----------------------------------------------------------------------------------------------------


def _numbers(text: str) -> List[int]:
    """ "1,3,5-8" """
    found: List[int] = []
    for part in text.split(","):
        named = re.fullmatch(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?", part)
        if not named:
            raise argparse.ArgumentTypeError(f"'{part}' is no number and no range: write 1,4-8")
        found += range(int(named[1]), int(named[2] or named[1]) + 1)
    return found


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m stitch.kernelbench", description=__doc__.split("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    runner = verbs.add_parser("run", help="the loop on tasks that have no result yet")
    runner.add_argument("--root", help="a checkout of KernelBench (default: $KERNELBENCH_ROOT)")
    runner.add_argument("--levels", type=_numbers, default=list(LEVELS), help="1,2,3")
    runner.add_argument("--numbers", type=_numbers, help="only these tasks of the levels: 1,4-8")
    runner.add_argument("--model", required=True, help="as for `stitch run`: https://host/v1#MODEL, replay:FILE, ...")
    runner.add_argument("--out", required=True, help="file of results, one JSON object a line; appended to")
    runner.add_argument("--programs", help="folder for the best programs (default: OUT.programs)")
    runner.add_argument("--device", default="auto")
    runner.add_argument("--attempts", type=int, default=0, help="at most this many for a task (default: 15)")
    runner.add_argument("--target", type=float, default=0.0, help="stop at this speed-up")
    runner.add_argument("--baselines", help="eager,tf32,compile,max-autotune")
    runner.add_argument("--precision", choices=list(PRECISIONS), help="cast modules and inputs (default: as they are)")
    runner.add_argument("--last-stage", default="none", help='stop verifying after this stage ("correct": no timing)')
    runner.add_argument("--again", action="store_true", help="try tasks again that were not right")
    runner.add_argument("--judge", action="store_true", help="ask KernelBench's own evaluator, too")
    runner.add_argument("--ray", action="store_true", help="on all GPUs that Ray has")
    judger = verbs.add_parser("judge", help="KernelBench's own evaluator on results that it has not judged")
    judger.add_argument("results")
    judger.add_argument("--root", help="a checkout of KernelBench (default: $KERNELBENCH_ROOT)")
    judger.add_argument("--device", type=int, default=0, help="number of the GPU")
    judger.add_argument("--again", action="store_true", help="judge all")
    for part in (runner, judger):
        part.add_argument("--judge-tolerance", type=float, help="instead of the evaluator's own")
        part.add_argument("--judge-timeout", type=float, default=900.0, help="seconds for one file (default: 900)")
    reporter = verbs.add_parser("summary", help="what results come to")
    reporter.add_argument("results")
    reporter.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    try:
        if args.verb != "run":
            with open(args.results, "rb"):  # results() of no file are none
                pass
        if args.verb == "summary":
            figures = summary(results(args.results).values())
            print(json.dumps(figures, indent=2) if args.json else describe(figures))
            return 0
        if args.verb == "judge":
            for row in rejudge(
                args.results,
                root=args.root,
                again=args.again,
                device=args.device,
                timeout=args.judge_timeout,
                tolerance=args.judge_tolerance,
            ):
                print(f"{row['key']}: {_verdict(row)}; {_their_verdict(row)}", flush=True)
            print(describe(summary(results(args.results).values())))
            return 0
        return _run_command(args)
    except (StitchError, OSError) as e:
        print(e, file=sys.stderr)
        return 1


def _verdict(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return str(row["error"]).split("\n", 1)[0]
    if row.get("degenerate"):
        return "degenerate"
    if row.get("speedup"):
        return f"{row['speedup']:.2f}x"
    return "right" if row["correct"] else "no right program"


def _their_verdict(row: Mapping[str, Any]) -> str:
    theirs = row["kernelbench"]
    said = "right" if theirs.get("correct") else "not right"
    if theirs.get("error"):
        said = str(theirs["error"]).split("\n", 1)[0]
    return f"KernelBench's evaluator: {said}" + (f", {theirs['speedup']:.2f}x" if theirs.get("speedup") else "")


def _run_command(args: argparse.Namespace) -> int:
    from ._model import Model  # pylint: disable=import-outside-toplevel

    options: Dict[str, Any] = {
        "root": args.root,
        "levels": args.levels,
        "numbers": args.numbers,
        "again": args.again,
        "policy": Policy(max_attempts=args.attempts, target_speedup=args.target),
        "programs": args.programs or args.out + ".programs",
        "verify_options": {"last_stage": args.last_stage},
    }
    if args.precision is not None:
        options["precision"] = args.precision
    if args.baselines is not None:
        options["baselines"] = [b for b in args.baselines.split(",") if b]
    if args.judge:
        options["judging"] = {
            "root": root_of(args.root),
            "timeout": args.judge_timeout,
            "tolerance": args.judge_tolerance,
        }
    with open(args.out, "ab"):  # before the model has worked for what cannot be written
        pass
    if args.ray:
        _print(run_on_ray(args.out, args.model, device=args.device, **options))
    else:
        with Context(args.device) as ctx:
            ctx.set_model(Model.open(ctx, args.model))
            _print(run(args.out, ctx, **options))
    print(describe(summary(results(args.out).values())))
    return 0


def _print(rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        theirs = "; " + _their_verdict(row) if "kernelbench" in row else ""
        print(f"{row['key']}: {_verdict(row)}, {row['attempts']} attempts, {row['seconds']:.0f} s{theirs}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

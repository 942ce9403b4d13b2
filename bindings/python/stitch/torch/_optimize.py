# SPDX-License-Identifier: MIT
"""The loop for a module: plan, code and verify until the policy says stop, and the module of the best program."""

from __future__ import annotations

import operator
import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from .._agent import Policy, Turn, loop
from .._context import Context, Role
from .._errors import (
    AuthError,
    BudgetError,
    DeadlineError,
    HttpError,
    InvalidError,
    LimitError,
    NotFoundError,
    ReplayError,
    ReplyError,
)
from .._model import HostModel, Model
from .._program import Program
from .._verify import verify
from . import _places
from ._engine import Engine
from ._module import Spec
from ._optimized import Optimized
from ._saved import Shapes
from ._task import ModuleTask, task as task_of


def _shapes_of(task: ModuleTask) -> Shapes:
    return {tensor.name: tuple(tensor.shape) for tensor in task.interface}


def _until_the_model_fails(turns: Iterator[Turn]) -> Iterator[Turn]:
    """The turns; a model that gives up (a spent budget, a lost connection, a prompt that is too long by now) takes nothing
    away that is right already."""
    best = False
    while True:
        try:
            turn = next(turns, None)
        except (AuthError, BudgetError, DeadlineError, HttpError, LimitError, ReplayError, ReplyError) as e:
            if not best:
                raise
            warnings.warn(f"the loop ended early, for the model failed: {e}")
            return
        if turn is None:
            return
        best = turn.best is not None
        yield turn


def search(
    ctx: Context,
    task: ModuleTask,
    policy: Optional[Policy],
    on_turn: Optional[Callable[[Turn], Any]],
    options: Mapping[str, Any],
    timeline: Optional[str] = None,
) -> Tuple[Optional[bytes], Dict[str, Any], List[Dict[str, Any]], str]:
    """The loop: the best program's bytes and report, all reports, and what the last one said."""
    reports: List[Dict[str, Any]] = []
    opened: List[Any] = []
    last: Optional[Turn] = None
    said = "no attempt was made"
    try:
        for turn in _until_the_model_fails(loop(ctx, task, policy, trace_summary=timeline, **options)):
            last, said = turn, turn.report.text
            opened += [turn.candidate, turn.report, turn.plan]
            reports.append(turn.report.json)
            if on_turn is not None:
                on_turn(turn)
        if last is None or last.best is None or last.best_report is None:
            return None, {}, reports, said
        program = last.best.program
        assert program is not None
        program.validate(task)  # with the task's full dims
        return program.to_bytes(), last.best_report.json, reports, said
    finally:
        for handle in opened:
            if handle is not None:
                handle.close()


def _other_batches(
    ctx: Context,
    task: ModuleTask,
    program: bytes,
    batches: Sequence[int],
    options: Mapping[str, Any],
    shapes: Dict[int, Shapes],
) -> None:
    """Verifies the program for further batches; those that fail are left to the original."""
    batch = task.spec.batch
    if not batches or batch is None:
        return
    full = task.spec.dims[batch]

    def resize(size: int, reduced: int) -> None:
        task.set_reduced_dim(batch, 1)  # which is never above the dim, whatever the two were
        task.set_dim(batch, size)
        task.set_reduced_dim(batch, reduced)

    try:
        for size in batches:
            resize(size, size if ctx.device.simulated else min(2, size))
            with Program.from_bytes(ctx, program) as made:
                with verify(ctx, task, made, **{**options, "last_stage": "correct"}) as report:
                    if report.correct:
                        shapes[size] = _shapes_of(task)
                    else:
                        warnings.warn(
                            f"with {batch} = {size} the program is not right, the original is used: {report.text}"
                        )
    finally:
        resize(full, min(2, full))


def optimize(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    model: Union[Model, str, HostModel, None] = None,
    ctx: Optional[Context] = None,
    policy: Optional[Policy] = None,
    batches: Sequence[int] = (),
    on_turn: Optional[Callable[[Turn], Any]] = None,
    timeline: bool = False,
    verify_options: Optional[Mapping[str, Any]] = None,
    **options: Any,
) -> Optimized:
    """Makes a task of the module, lets the model plan and write programs for it until `policy` says stop, and gives a
    module that runs the best one. The original's parameters stay its own.

    model    as for Model.open() ("https://host/v1#model"), a Model, or a function, for this call: ctx keeps the one that
             it has; None: what ctx has
    policy   when to stop
    batches  further sizes of the first dimension to verify the program for, where the task found that it is free
    on_turn  called after every attempt
    timeline  the planner gets a GPU timeline of the module (needs CUPTI, which one tool a process can use)
    verify_options  for verify(): trials, last_stage, ...
    options  for task()

    NotFoundError with the last report if no program was right. A program that was measured slower than the main
    baseline is kept, but not used (enabled is False), with a warning.
    """
    sizes = [operator.index(size) for size in batches]  # after the loop it would cost what the model has written
    if any(size < 1 for size in sizes):
        raise InvalidError(f"batches must be sizes of at least 1, not {min(sizes)}")
    task = task_of(module, example_inputs, ctx=ctx, **options)
    ctx = task._ctx
    had, opened = ctx._models.get(Role.CODER), None
    settings = dict(verify_options or {})
    try:
        _places.places(module, task.spec.paths)  # raises where it would after the loop: a tensor that forward captures
        if sizes and task.spec.batch is None:
            raise InvalidError(
                "the batch of this module cannot be changed, so that there are no further batches to verify"
            )
        if model is not None:
            if isinstance(model, Model):
                ctx.set_model(model)
            else:
                opened = Model.open(ctx, model) if isinstance(model, str) else Model.host(ctx, model)
                ctx.set_model(opened)
        if settings.get("last_stage") in (None, "none", "time", "profile"):
            task.warm()
        seen = task.timeline() if timeline else None
        program, report, reports, said = search(ctx, task, policy, on_turn, settings, seen)
        if program is None:
            raise NotFoundError(f"no program was right after {len(reports)} attempts; the last report: {said}")
        shapes = {_batch(task.spec): _shapes_of(task)}
        _other_batches(ctx, task, program, sizes, settings, shapes)
        made = Optimized(module, Engine(ctx, program, task.spec, shapes, task.device), report, reports, task.notes)
    finally:
        if model is not None:
            ctx.set_model(had)
        if opened is not None:
            opened.close()
        task.close()
    summary = report.get("summary", {})
    if summary.get("degenerate"):
        warnings.warn("the task cannot tell a right program from a cheap answer: the verdict means nothing")
    if summary.get("timed") and 0 < made.speedup < 1:
        made.enabled = False
        warnings.warn(f"the best program is slower than the module ({made.speedup:.2f}x), which is used instead")
    return made


def _batch(spec: Spec) -> int:
    """The batch of the example; 1 where there is none."""
    return spec.dims[spec.batch] if spec.batch else 1

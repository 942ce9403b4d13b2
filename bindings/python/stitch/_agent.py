# SPDX-License-Identifier: MIT
"""The loop's verbs: plan, code, verify, and the pure function that says which comes next."""

from __future__ import annotations

import json
from ctypes import byref, c_char_p, c_void_p
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

from . import _declarations as c
from ._core import OUT, Cancel, Cancelling, Handle, Ref, Uses, call, decode, encode, enum_value, make, milliseconds, need
from ._errors import InvalidError
from ._library import lib
from ._context import Context
from ._model import TokenCallback, token_callback
from ._program import Program
from ._task import Task
from ._verify import Report, Stage, verify

Action = c.stitch_action


@dataclass
class Attempt:
    """What next_step() needs to know of one candidate that was coded and verified.

    action   what it was made by: DRAFT, REPAIR_COMPILE, REPAIR_CORRECTNESS, OPTIMISE
    base     index of the attempt that it revises; -1: none
    plan     running number of the plan that it follows, from 0
    subtask  that it worked on; -1: the whole program
    """

    action: Action
    base: int = -1
    plan: int = 0
    subtask: int = -1
    failed_stage: Stage = Stage.NONE
    correct: bool = False
    speedup: float = 0.0
    median_us: float = 0.0

    @staticmethod
    def of(report: Report, action: Union[Action, str], base: int = -1, plan: int = 0, subtask: int = -1) -> "Attempt":
        """From a report, as stitch_attempt_from_report() has it."""
        value = make(c.stitch_attempt)
        need(Report, report=report)
        with Uses(report) as (address,):
            lib.stitch_attempt_from_report(byref(value), address)
        return Attempt(
            enum_value(Action, action, "action"),
            base,
            plan,
            subtask,
            Stage(value.failed_stage),
            bool(value.correct),
            value.speedup,
            value.median_us,
        )


@dataclass(frozen=True)
class Policy:
    """0: the default, which is in brackets."""

    max_attempts: int = 0  # (15)
    max_repairs: int = 0  # failures in a row before a new plan (3)
    stagnation: int = 0  # optimisations in a row without gain before a new plan (3)
    max_plans: int = 0  # (3)
    subtasks: int = 0  # of the current plan, worked on in turn while optimising (the whole program each time)
    target_speedup: float = 0.0  # stop when reached (none)
    min_gain: float = 0.0  # what counts as a gain (0.02)


@dataclass(frozen=True)
class Decision:
    action: Action
    base: int  # attempt to revise; -1: none
    subtask: int  # -1: the whole program
    best: int  # fastest correct attempt so far; -1: none
    reason: str


def _attempts(attempts: Sequence[Attempt]) -> Any:
    array = (c.stitch_attempt * max(1, len(attempts)))()
    for slot, attempt in zip(array, attempts):
        initial = make(c.stitch_attempt)
        for name in Attempt.__dataclass_fields__:
            setattr(initial, name, getattr(attempt, name))
        slot.__init__(*[getattr(initial, field[0]) for field in c.stitch_attempt._fields_])
    return array


def next_step(attempts: Sequence[Attempt], plans: int, policy: Optional[Policy] = None) -> Decision:
    """Pure: the same history and policy give the same decision. `plans` is the number of plans made so far: with 0 the
    answer is PLAN; after a REPLAN make a plan, call again with one more, and get DRAFT."""
    value, out = make(c.stitch_policy), make(c.stitch_decision)
    for name in Policy.__dataclass_fields__:
        setattr(value, name, getattr(policy or Policy(), name))
    call(lib.stitch_next, _attempts(attempts), len(attempts), plans, byref(value), byref(out))
    return Decision(Action(out.action), out.base, out.subtask, out.best, decode(out.reason))


@dataclass(frozen=True)
class Subtask:
    id: str
    level: str  # "system" (layouts, launches, data movement) or "kernel"
    title: str
    goal: str


class Plan(Handle):
    """A system-level strategy with sub-tasks. Immutable; several threads may read it. Made by plan() or
    Plan.parse()."""

    _shared = True
    _free = "stitch_plan_free"

    def __init__(self) -> None:
        raise TypeError("use plan() or Plan.parse()")

    @classmethod
    def parse(cls, ctx: Context, document: Union[str, Mapping[str, Any]]) -> "Plan":
        """From JSON text or a dict (docs/plan-format.md)."""
        self = cls.__new__(cls)
        self._adopt(
            ctx,
            lib.stitch_plan_parse,
            encode(document if isinstance(document, str) else json.dumps(document), "document"),
            OUT,
        )
        return self

    @property
    def json(self) -> Dict[str, Any]:
        return self._json(lib.stitch_plan_json)

    @property
    def strategy(self) -> str:
        return self._text(lib.stitch_plan_strategy)

    @property
    def subtasks(self) -> List[Subtask]:
        found = []
        address = self._begin()
        try:
            for i in range(lib.stitch_plan_subtask_count(address)):
                fields = [c_char_p() for _ in range(4)]
                lib.stitch_plan_subtask(address, i, *[byref(field) for field in fields])
                found.append(Subtask(*[decode(field.value) for field in fields]))
        finally:
            self._end()
        return found


def plan(
    ctx: Context,
    task: Task,
    *,
    previous: Optional[Plan] = None,
    attempts: Sequence[Tuple[Attempt, Report]] = (),
    trace_summary: Optional[str] = None,
    on_token: Optional[TokenCallback] = None,
    cancel: Optional[Cancel] = None,
    timeout: Optional[float] = None,
) -> Plan:
    """Has the planner decide the system-level strategy. previous and attempts: an earlier plan and what came of it, in
    order; trace_summary: a GPU timeline of the reference as text (Trace.text()); timeout in seconds. Ctrl-C ends the
    call."""
    options, made = make(c.stitch_plan_options), Plan.__new__(Plan)
    need(Context, ctx=ctx)
    need(Task, task=task)
    need(Plan, **({} if previous is None else {"previous": previous}))
    for _, verdict in attempts:
        need(Report, report=verdict)
    with (
        Uses(task, previous, *[report for _, report in attempts]) as (task_at, previous_at, *reports),
        Cancelling(cancel) as token,
        Uses(*ctx._models.values()),
    ):
        options.previous, options.attempts = previous_at, _attempts([attempt for attempt, _ in attempts])
        options.reports, options.attempt_count = (c_void_p * max(1, len(reports)))(*reports), len(attempts)
        options.trace_summary, options.on_token = encode(trace_summary, "trace_summary"), token_callback(on_token)
        options.cancel, options.timeout_ms = token.address, milliseconds(timeout)
        made._adopt(ctx, lib.stitch_plan, task_at, byref(options), OUT, trigger=token.trigger)
    return made


class Candidate(Handle):
    """What a model (or you) proposes: a program, or a reply that is none. Made by code(), from_reply() or
    from_program()."""

    _free = "stitch_candidate_free"

    def __init__(self) -> None:
        raise TypeError("use code(), Candidate.from_reply() or Candidate.from_program()")

    @classmethod
    def from_reply(cls, ctx: Context, text: str) -> "Candidate":
        """From the text of a reply (one ```cuda and one ```json block). ReplyError with the reason if it does not
        parse."""
        self = cls.__new__(cls)
        self._adopt(ctx, lib.stitch_candidate_from_reply, encode(text), OUT)
        return self

    @classmethod
    def from_program(cls, ctx: Context, program: Program) -> "Candidate":
        """The program is the candidate's from then on; `candidate.program` is it."""
        self = cls.__new__(cls)
        need(Program, program=program)
        with Uses(program) as (address,):
            self._adopt(ctx, lib.stitch_candidate_from_program, address, OUT)
            assert self._ref is not None
            program._hand_over(self._ref)
        return self

    @property
    def program(self) -> Optional[Program]:
        """None if the reply could not be parsed. Lives as long as the candidate is not closed."""
        address = self._begin()
        try:
            found = lib.stitch_candidate_program(address)
            for child in self._made():
                if isinstance(child, Program) and not child.closed:
                    return child  # one object, so that two threads do not get into each other's way
            return Program._borrow(found, self) if found else None
        finally:
            self._end()

    def close(self) -> None:
        """Releases the candidate and the programs that came from it."""
        for child in self._made():
            child.close()
        super().close()

    @property
    def reply(self) -> str:
        """The reply as it came; "" if there was none."""
        return self._text(lib.stitch_candidate_reply)

    @property
    def notes(self) -> str:
        """What the model wrote outside the two blocks."""
        return self._text(lib.stitch_candidate_notes)

    @property
    def notice(self) -> str:
        """Notices from the model (a recording that does not match, ...); "" if none."""
        return self._text(lib.stitch_candidate_notice)

    @property
    def format_repairs(self) -> int:
        return int(self._get(lib.stitch_candidate_format_repairs))

    @property
    def tokens(self) -> int:
        """In and out, all repairs; -1: unknown."""
        return int(self._get(lib.stitch_candidate_tokens))


def code(
    ctx: Context,
    task: Task,
    *,
    action: Union[Action, str] = Action.DRAFT,
    subtask: int = -1,
    plan: Optional[Plan] = None,
    previous: Optional[Candidate] = None,
    report: Optional[Report] = None,
    best: Optional[Candidate] = None,
    best_report: Optional[Report] = None,
    notes: Optional[str] = None,
    max_format_repairs: int = 0,
    count: int = 1,
    on_token: Optional[TokenCallback] = None,
    cancel: Optional[Cancel] = None,
    timeout: Optional[float] = None,
) -> List[Optional[Candidate]]:
    """Has the coder write or revise a program, `count` candidates at once; None where one failed, an exception where
    all did.

    action             "draft", "repair_compile", "repair_correctness", "optimise"
    previous, report   the candidate to revise, and what verify said of it
    best, best_report  the fastest correct one when it is another
    notes              more text for the prompt
    timeout            seconds. Ctrl-C ends the call.
    """
    if not 1 <= count <= 256:
        raise InvalidError(f"count must be 1 to 256, not {count}")
    need(Context, ctx=ctx)
    need(Task, task=task)
    given: List[Tuple[Type[Handle], str, Any]] = [(Plan, "plan", plan), (Candidate, "previous", previous)]
    given += [(Report, "report", report), (Candidate, "best", best), (Report, "best_report", best_report)]
    for kind, name, value in given:
        if value is not None:
            need(kind, **{name: value})
    options, out = make(c.stitch_code_options), (c_void_p * count)()
    made: List[Optional[Candidate]] = []
    with (
        Uses(ctx, task, plan, previous, report, best, best_report) as (owner, task_at, *others),
        Cancelling(cancel) as token,
        Uses(*ctx._models.values()),
    ):
        options.action, options.subtask = enum_value(Action, action, "action"), subtask
        options.plan, options.previous, options.report, options.best, options.best_report = others
        options.notes, options.max_format_repairs, options.on_token = (
            encode(notes, "notes"),
            max_format_repairs,
            token_callback(on_token),
        )
        options.cancel, options.timeout_ms = token.address, milliseconds(timeout)
        try:
            call(lib.stitch_code, owner, task_at, byref(options), count, out, trigger=token.trigger)
            for i in range(count):
                address, out[i] = out[i], None
                if address:
                    assert ctx._ref is not None
                    candidate = Candidate.__new__(Candidate)
                    Handle.__init__(candidate, Ref(address, lib.stitch_candidate_free, [ctx._ref]), ctx)
                made.append(candidate if address else None)
        finally:
            for address in out:
                lib.stitch_candidate_free(address)
    return made


@dataclass(frozen=True)
class Turn:
    """One attempt of loop(). `best` is the fastest correct candidate so far; None: there is none."""

    decision: Decision
    plan: Optional[Plan]
    attempt: Attempt
    candidate: Candidate
    report: Report
    best: Optional[Candidate]
    best_report: Optional[Report]


def loop(
    ctx: Context, task: Task, policy: Optional[Policy] = None, *, trace_summary: Optional[str] = None, **options: Any
) -> Iterator[Turn]:
    """The loop as examples/loop.c has it: plan, code, verify, until next_step() says stop. Yields after every attempt;
    leave the loop to stop early. trace_summary is for the planner; `options` go to verify()."""
    attempts: List[Attempt] = []
    candidates: List[Candidate] = []
    reports: List[Report] = []
    plans, current = 0, None
    while True:
        step = next_step(attempts, plans, policy)
        if step.action == Action.STOP:
            return
        if step.action in (Action.PLAN, Action.REPLAN):
            past = list(zip(attempts, reports))
            current, plans = plan(ctx, task, previous=current, attempts=past, trace_summary=trace_summary), plans + 1
            continue
        old, best = step.base, step.best
        made = code(
            ctx,
            task,
            action=step.action,
            subtask=step.subtask,
            plan=current,
            previous=candidates[old] if old >= 0 else None,
            report=reports[old] if old >= 0 else None,
            best=candidates[best] if best >= 0 else None,
            best_report=reports[best] if best >= 0 else None,
        )[0]
        assert made is not None
        candidates.append(made)
        reports.append(verify(ctx, task, made, **options))
        attempts.append(Attempt.of(reports[-1], step.action, old, plans - 1, step.subtask))
        best = next_step(attempts, plans, policy).best
        yield Turn(
            step,
            current,
            attempts[-1],
            made,
            reports[-1],
            candidates[best] if best >= 0 else None,
            reports[best] if best >= 0 else None,
        )

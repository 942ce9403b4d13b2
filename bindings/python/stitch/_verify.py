# SPDX-License-Identifier: MIT
"""Verification: is a candidate right, how fast is it, and what should be done next about it; and can the task tell at
all."""

from __future__ import annotations

from ctypes import byref, c_char_p, c_double, c_int, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from . import _declarations as c
from ._core import (
    OUT,
    Cancel,
    Cancelling,
    Handle,
    Uses,
    decode,
    encode,
    enum_value,
    make,
    milliseconds,
    need,
    strings,
    take_text,
    void_callback,
)
from ._errors import Status
from ._library import lib
from ._context import Context, record
from ._executor import Op, op_array
from ._program import Program
from ._task import Task

if TYPE_CHECKING:
    from ._agent import Candidate
    from ._profile import Profile

Stage = c.stitch_stage
StageStatus = c.stitch_stage_status
Where = c.stitch_verify_where
Simulate = c.stitch_verify_simulate
HowMuch = c.stitch_verify_profile


@dataclass(frozen=True)
class ReportSummary:
    """The figures of a report. Times in microseconds, 0 where not measured; sizes in bytes."""

    failed_stage: Stage  # NONE: all that ran passed
    status: Status  # why it failed
    correct: bool  # that stage passed; the result counts if failed_stage is NONE
    timed: bool
    max_abs_error: float  # errors: over all trials and outputs
    max_rel_error: float
    mean_abs_error: float
    elements: int  # compared
    mismatches: int  # beyond the tolerance
    median_us: float  # of the candidate: median, 5th and 95th percentile of the timed runs
    low_us: float
    high_us: float
    busy_us: float  # how long the device works in one of them
    baseline_us: float
    baseline_low_us: float
    baseline_high_us: float
    speedup: float  # baseline_us / median_us
    speedup_low: float  # 95 % bootstrap interval
    speedup_high: float
    prepare_us: float
    workspace_bytes: int
    launches: int
    seed: int
    degenerate: bool  # the task cannot tell a right program from a cheap answer: a verdict on it means nothing
    isolated: bool  # the program ran in a worker process


@dataclass(frozen=True)
class StageResult:
    stage: Stage
    status: StageStatus
    milliseconds: float
    message: str


class Report(Handle):
    """The result of one verification. Immutable; several threads may read it."""

    _shared = True
    _free = "stitch_report_free"

    def __init__(self) -> None:
        raise TypeError("use verify() or Report.of_reply_failure()")

    @classmethod
    def _of(cls, ctx: Context, function: Any, *args: Any, trigger: Any = None) -> "Report":
        self = cls.__new__(cls)
        self._adopt(ctx, function, *args, trigger=trigger)
        return self

    @classmethod
    def of_reply_failure(cls, ctx: Context, text: str) -> "Report":
        """The report of a model's reply that is no program: stage format failed. ValueError if the reply does parse."""
        out, err = c_void_p(), c_void_p()
        need(Context, ctx=ctx)
        with Uses(ctx) as (owner,):
            try:
                status = lib.stitch_candidate_from_reply(owner, encode(text), byref(out), byref(err))
                if status == 0:
                    raise ValueError("the reply is a candidate")
                return cls._of(ctx, lib.stitch_report_new_format_failure, err, OUT)
            finally:
                lib.stitch_candidate_free(out)
                lib.stitch_error_free(err)

    @property
    def summary(self) -> ReportSummary:
        value = make(c.stitch_report_summary)
        self._get(lib.stitch_report_summary_get, byref(value))
        flags = {name: bool(getattr(value, name)) for name in ("correct", "timed", "degenerate", "isolated")}
        return record(
            ReportSummary, value, failed_stage=Stage(value.failed_stage), status=Status(value.status), **flags
        )

    @property
    def correct(self) -> bool:
        """Stage correct passed. A result counts where summary.failed_stage is NONE, and the task is not degenerate."""
        return self.summary.correct

    @property
    def speedup(self) -> float:
        """0: not measured."""
        return self.summary.speedup

    def stage(self, stage: Union[Stage, str]) -> StageResult:
        which = enum_value(Stage, stage, "stage")
        status, ms, message = c_int(), c_double(), c_char_p()
        address = self._begin()
        try:
            lib.stitch_report_stage(address, which, byref(status), byref(ms), byref(message))
            return StageResult(which, StageStatus(status.value), ms.value, decode(message.value))
        finally:
            self._end()

    @property
    def stages(self) -> List[StageResult]:
        return [self.stage(stage) for stage in Stage if stage not in (Stage.NONE, Stage.COUNT)]

    @property
    def json_text(self) -> str:
        return self._text(lib.stitch_report_json)

    @property
    def json(self) -> Dict[str, Any]:
        """Everything (docs/report-format.md)."""
        return self._json(lib.stitch_report_json)

    @property
    def text(self) -> str:
        """For people: a few lines."""
        return self._text(lib.stitch_report_text)

    def feedback(self, max_bytes: int = 0) -> str:
        """For a model: the decisive fact first, at most max_bytes (0: 8 KiB)."""
        out = c_void_p()
        self._call(lib.stitch_report_feedback, max_bytes, byref(out))
        return take_text(out)

    @property
    def fingerprint(self) -> str:
        """Identifies what the feedback says apart from measured figures."""
        return self._text(lib.stitch_report_fingerprint)

    @property
    def profile(self) -> Optional["Profile"]:
        """Of the program, where its stage profile passed; else None. Lives as long as the report is not closed."""
        from ._profile import Profile  # pylint: disable=import-outside-toplevel

        address = self._begin()
        try:
            found = lib.stitch_report_profile(address)
            return Profile._borrow(found, self) if found else None
        finally:
            self._end()

    def close(self) -> None:
        """Releases the report and the profiles that came from it."""
        for child in self._made():
            child.close()
        super().close()

    def __str__(self) -> str:
        return self.text


StageCallback = Callable[[Stage, StageStatus, int, int], Any]


def verify(
    ctx: Context,
    task: Task,
    what: Union["Candidate", Program],
    *,
    trials: int = 0,
    warmup: int = 0,
    iterations: int = 0,
    last_stage: Union[Stage, str] = Stage.NONE,
    seed: int = 0,
    flush_bytes: int = 0,
    time_budget: Optional[float] = None,
    where: Union[Where, str] = Where.AUTO,
    simulate: Union[Simulate, str] = Simulate.AUTO,
    profile: Union[HowMuch, str] = HowMuch.AUTO,
    metrics: Sequence[str] = (),
    ops: Optional[Mapping[str, Op]] = None,
    on_stage: Optional[StageCallback] = None,
    cancel: Optional[Cancel] = None,
    timeout: Optional[float] = None,
) -> Report:
    """Verifies a candidate or a program, in the calling thread. A report is what comes back whatever it says of the
    program; exceptions mean that verification itself could not be done (no device, cancelled, the reference raised,
    ...).

    trials      correctness trials with fresh inputs; 0: 5, on a simulated device 2
    warmup      runs before timing; 0: 10
    iterations  timed runs of candidate and baseline each; 0: 100
    last_stage  stop after this stage ("compile" needs no device)
    seed        repeats a report; 0: a fresh one, which is in the report
    where       "auto" (a worker process unless simulated), "here" (for trusted programs), "worker"
    simulate    "auto" (the simulator checks it before it runs on a GPU, at reduced dims; up to 20 s), "never"
    profile     "auto" (timeline, a few counters, stalls by line), "full" (all counters), "timeline", "never"
    metrics     more of CUPTI's metrics by name, of each kernel; at most 64
    on_stage    on_stage(stage, status, done, total), in the calling thread
    time_budget, timeout: seconds. Ctrl-C ends the call.
    """
    need(Context, ctx=ctx)
    need(Task, task=task)
    if getattr(what, "_free", "") not in ("stitch_candidate_free", "stitch_program_free"):
        raise TypeError(f"what is verified must be a stitch.Candidate or Program, not a {type(what).__name__}")
    options = make(c.stitch_verify_options)
    options.trials, options.warmup, options.iterations = trials, warmup, iterations
    options.last_stage, options.seed, options.flush_bytes = enum_value(Stage, last_stage, "stage"), seed, flush_bytes
    options.time_budget_ms, options.timeout_ms = milliseconds(time_budget, "time_budget"), milliseconds(timeout)
    options.where, options.simulate = enum_value(Where, where, "place"), enum_value(Simulate, simulate, "choice")
    options.profile = enum_value(HowMuch, profile, "amount of profiling")
    options.metrics, options.metric_count = strings(metrics, "metrics"), len(metrics)
    options.ops, options.op_count, keep = op_array(ops)
    if on_stage is not None:
        notify = on_stage
        options.on_stage = void_callback(
            c.stitch_stage_fn,
            lambda stage, status, done, total, _: notify(Stage(stage), StageStatus(status), done, total),
        )
    function = lib.stitch_verify_program if isinstance(what, Program) else lib.stitch_verify
    with Uses(task, what) as (task_at, what_at), Cancelling(cancel) as token:
        options.cancel = token.address
        report = Report._of(ctx, function, task_at, what_at, byref(options), OUT, trigger=token.trigger)
    del keep
    return report


class Admission(Handle):
    """Whether a task can tell a right program from a cheap answer. Immutable; several threads may read it."""

    _shared = True
    _free = "stitch_admission_free"

    def __init__(self) -> None:
        raise TypeError("use admit()")

    @property
    def degenerate(self) -> bool:
        """A correctness verdict on this task means nothing."""
        return bool(self._get(lib.stitch_admission_degenerate))

    @property
    def reason(self) -> str:
        return self._text(lib.stitch_admission_reason)

    @property
    def cure(self) -> str:
        return self._text(lib.stitch_admission_cure)

    @property
    def json(self) -> Dict[str, Any]:
        """Every measurement (docs/task-format.md)."""
        return self._json(lib.stitch_admission_json)

    @property
    def text(self) -> str:
        return self._text(lib.stitch_admission_text)

    def __str__(self) -> str:
        return self.text


def admit(
    ctx: Context,
    task: Task,
    *,
    seed: int = 0,
    spread_factor: float = 0.0,
    max_runs: int = 0,
    ops: Optional[Mapping[str, Op]] = None,
    cancel: Optional[Cancel] = None,
    timeout: Optional[float] = None,
) -> Admission:
    """Runs the task's reference and asks which wrong answers its tolerance would take for right. timeout in seconds."""
    options = make(c.stitch_admit_options)
    options.seed, options.spread_factor, options.max_runs, options.timeout_ms = (
        seed,
        spread_factor,
        max_runs,
        milliseconds(timeout),
    )
    options.ops, options.op_count, keep = op_array(ops)
    admission = Admission.__new__(Admission)
    need(Context, ctx=ctx)
    need(Task, task=task)
    with Uses(task) as (task_at,), Cancelling(cancel) as token:
        options.cancel = token.address
        admission._adopt(ctx, lib.stitch_task_admit, task_at, byref(options), OUT, trigger=token.trigger)
    del keep
    return admission

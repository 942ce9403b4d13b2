# SPDX-License-Identifier: MIT
"""Profiles: what a stretch of GPU work spends its time on, and what to do about it."""

from __future__ import annotations

from ctypes import byref, c_char_p, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from . import _declarations as c
from ._core import (
    OUT,
    Cancel,
    Cancelling,
    Handle,
    Ref,
    Uses,
    call,
    callback,
    enum_value,
    make,
    milliseconds,
    need,
    strings,
    take_text,
)
from ._context import Context, record
from ._library import lib
from ._program import Program
from ._task import Task
from ._verify import HowMuch


@dataclass(frozen=True)
class ProfileVerdict:
    """What bounds the run, or a kernel."""

    bound: str  # "memory", "compute", "latency", "launch", "copy", "host", "unknown"
    because: str  # with its figures
    time_us: float  # of the run, or of all launches of the kernel in one run
    limit_us: float  # what the ceiling allows; 0: not known
    reached: float  # limit_us / time_us, 0 to 1; 0: not known
    name: str  # of the kernel; "" for the run


@dataclass(frozen=True)
class ProfileAdvice:
    """What to change, with the figures that say so."""

    rule: str  # its id in docs/profile.md
    kernel: str  # "" for the run as a whole
    problem: str
    evidence: str
    action: str
    file: str  # "" where no line is meant
    line: int
    step: int  # of the launch plan; -1
    gain_us: float  # what a run can gain at the most; 0: not known
    gain_share: float  # of the run's time, 0 to 1


class Profile(Handle):
    """From profile_region(), profile_task() or Report.profile. Immutable; several threads may read it."""

    _shared = True
    _free = "stitch_profile_free"

    def __init__(self) -> None:
        raise TypeError("use profile_region(), profile_task() or Report.profile")

    @classmethod
    def _borrow(cls, address: int, owner: Handle) -> "Profile":
        self = cls.__new__(cls)
        assert owner._ref is not None
        Handle.__init__(self, Ref(address, None, [owner._ref]), owner)
        return self

    @property
    def json_text(self) -> str:
        return self._text(lib.stitch_profile_json)

    @property
    def json(self) -> Dict[str, Any]:
        """Everything (docs/profile.md)."""
        return self._json(lib.stitch_profile_json)

    def text(self, max_bytes: int = 0) -> str:
        """Verdict, kernels and advice, the decisive fact first; 0: no limit."""
        out = c_void_p()
        self._call(lib.stitch_profile_text, max_bytes, byref(out))
        return take_text(out)

    def __str__(self) -> str:
        return self.text()

    def _verdict(self, address: int, index: int) -> ProfileVerdict:
        value = make(c.stitch_profile_verdict)
        lib.stitch_profile_verdict_get(address, index, byref(value))
        return record(ProfileVerdict, value)

    @property
    def verdict(self) -> ProfileVerdict:
        """Of the run."""
        address = self._begin()
        try:
            return self._verdict(address, c_size_t(-1).value)
        finally:
            self._end()

    @property
    def kernels(self) -> List[ProfileVerdict]:
        """Verdicts of the kernels, most time first; their figures are in json["facts"]["kernels"], in this order."""
        address = self._begin()
        try:
            return [self._verdict(address, i) for i in range(lib.stitch_profile_kernel_count(address))]
        finally:
            self._end()

    @property
    def advice(self) -> List[ProfileAdvice]:
        """Most gain first."""
        found = []
        address = self._begin()
        try:
            for i in range(lib.stitch_profile_advice_count(address)):
                value = make(c.stitch_profile_advice)
                lib.stitch_profile_advice_get(address, i, byref(value))
                found.append(record(ProfileAdvice, value))
        finally:
            self._end()
        return found


def _options(profile: Any, metrics: Sequence[str], token: Cancel, timeout: Optional[float]) -> Any:
    options = make(c.stitch_profile_options)
    options.profile = enum_value(HowMuch, profile, "amount of profiling")
    options.metrics, options.metric_count = strings(metrics, "metrics"), len(metrics)
    options.cancel, options.timeout_ms = token.address, milliseconds(timeout)
    return options


def profile_region(
    ctx: Context,
    function: Callable[[], Any],
    *,
    profile: Union[HowMuch, str] = HowMuch.AUTO,
    metrics: Sequence[str] = (),
    programs: Sequence[Program] = (),
    cancel: Optional[Cancel] = None,
    timeout: Optional[float] = None,
) -> Profile:
    """Profiles GPU work of your own: `function` is called again and again, in this thread, with the device's primary
    context current; it must do the same work each time and need not wait for the device. An exception of it comes out
    of this call. UnsupportedError: the device is simulated, or there is no CUPTI.

    profile   "auto" (a few counters), "full" (all that the advice knows), "timeline" (no counters, no stalls)
    metrics   more of CUPTI's metrics by name, at most 64
    programs  that the function runs kernels of, for stalls by source line
    timeout   seconds; None: 2 min
    """
    made = Profile.__new__(Profile)
    need(Context, ctx=ctx)
    for program in programs:
        need(Program, program=program)
    run = callback(c.stitch_region_fn, lambda _: _ignore(function()))
    with Uses(ctx, *programs) as (_, *addresses), Cancelling(cancel) as token:
        options = _options(profile, metrics, token, timeout)
        images, sources = (c_void_p * max(1, len(programs)))(), (c_char_p * max(1, len(programs)))()
        for i, address in enumerate(addresses):
            image = c_void_p()
            call(lib.stitch_program_compile, address, None, byref(image))
            images[i], sources[i] = image.value, lib.stitch_program_source(address)
        options.images, options.sources, options.image_count = images, sources, len(programs)
        made._adopt(ctx, lib.stitch_profile_region, run, None, byref(options), OUT, trigger=token.trigger)
    return made


def _ignore(_: Any) -> int:
    """What a function of the host returns is its own affair: it gives up by raising."""
    return 0


def profile_task(
    ctx: Context,
    task: Task,
    *,
    profile: Union[HowMuch, str] = HowMuch.AUTO,
    metrics: Sequence[str] = (),
    cancel: Optional[Cancel] = None,
    timeout: Optional[float] = None,
) -> Profile:
    """Profiles what a task is measured against: its first baseline, or its reference where it has none. text() is what
    plan() wants as trace_summary. UnsupportedError on a simulated device."""
    made = Profile.__new__(Profile)
    need(Task, task=task)
    with Uses(task) as (task_at,), Cancelling(cancel) as token:
        options = _options(profile, metrics, token, timeout)
        made._adopt(ctx, lib.stitch_profile_task, task_at, byref(options), OUT, trigger=token.trigger)
    return made

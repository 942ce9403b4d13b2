# SPDX-License-Identifier: MIT
"""The system timeline: what the GPU and the CUDA calls of this process did between two points, and what follows from
it."""

from __future__ import annotations

import json
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from . import _declarations as c
from ._core import OUT, Cancel, Cancelling, Handle, Uses, make, milliseconds, need, take_text
from ._errors import StateError
from ._library import lib
from ._context import Context, record
from ._executor import Executor

TraceKind = c.stitch_trace_kind


@dataclass(frozen=True)
class TraceRecord:
    """One record; times in microseconds since begin (-1: not known), sizes in bytes. stitch/trace.h explains every
    field."""

    kind: TraceKind
    result: int
    name: str
    symbol: str
    start_us: float
    end_us: float
    device: int
    context: int
    stream: int
    thread: int
    correlation: int
    calls: int
    graph: int
    step: int
    graph_node: int
    bytes: int
    grid: Tuple[int, int, int]
    block: Tuple[int, int, int]
    registers: int
    static_shared: int
    dynamic_shared: int
    local: int


@dataclass(frozen=True)
class TraceSummary:
    """The whole trace in numbers; device times are unions, in microseconds. stitch/trace.h explains every field."""

    records: int
    dropped: int
    incomplete: int
    unknown: int
    region_us: float
    span_us: float
    busy_us: float
    idle_us: float
    idle_share: float
    kernel_us: float
    copy_us: float
    overlap_us: float
    lead_us: float
    kernels: int
    copies: int
    fills: int
    copy_bytes: int
    graph_launches: int
    graph_nodes: int
    gaps: int
    short_gaps: int
    short_gap_us: float
    longest_gap_us: float
    idle_sync_us: float
    idle_call_us: float
    idle_host_us: float
    syncs: int
    sync_us: float
    calls: int
    call_us: float
    devices: int
    streams: int
    has_calls: bool


@dataclass(frozen=True)
class TraceKernel:
    """All launches of one kernel; sizes are those of its longest launch. Shares are 0 to 1."""

    name: str
    symbol: str
    count: int
    total_us: float
    mean_us: float
    min_us: float
    max_us: float
    share: float
    gap_before_us: float
    grid: Tuple[int, int, int]
    block: Tuple[int, int, int]
    registers: int
    static_shared: int
    dynamic_shared: int
    local: int
    occupancy: float
    waves: float
    limiter: str
    varied: bool
    step: int


@dataclass(frozen=True)
class TraceCopy:
    """All copies of one direction ("HtoD"), or all fills ("fill")."""

    name: str
    count: int
    bytes: int
    total_us: float
    gb_per_s: float
    pageable: int


@dataclass(frozen=True)
class TraceGap:
    """A time in which the device was idle. cause: "sync", "call", "host", "device", "unknown"."""

    start_us: float
    end_us: float
    before: str
    after: str
    cause: str
    call: str


class Trace(Handle):
    """Records the GPU work of the whole process; one at a time (BusyError), and only on a real GPU (UnsupportedError).

        with Trace(ctx) as trace:
            ...any work of this process, on any thread...
        print(trace.text())

    The end of the `with` block ends the recording (which waits for the device) and keeps the results; close() drops
    them.
    """

    _free = "stitch_trace_free"

    def __init__(
        self,
        ctx: Context,
        *,
        max_records: int = 0,
        sync: bool = True,
        driver: bool = True,
        runtime: bool = True,
        wait: bool = True,
        unload: bool = False,
        cancel: Optional[Cancel] = None,
        timeout: Optional[float] = None,
    ) -> None:
        """Starts. sync, driver, runtime: which records of the host are kept; wait: end() waits for the device, at most
        `timeout` seconds (None: 60), and Ctrl-C and `cancel` end the wait. max_records 0: 1 Mi. unload: end() takes
        CUPTI out of the process; no other thread may launch a graph or use CUPTI meanwhile (docs/trace.md)."""
        options = make(c.stitch_trace_options)
        options.max_records = max_records
        options.flags = (
            (0 if sync else c.TRACE_NO_SYNC)
            | (0 if driver else c.TRACE_NO_DRIVER)
            | (0 if runtime else c.TRACE_NO_RUNTIME)
            | (0 if wait else c.TRACE_NO_WAIT)
            | (c.TRACE_UNLOAD if unload else 0)
        )
        with Cancelling(cancel) as token:
            options.cancel, options.timeout_ms = token.address, milliseconds(timeout)
            self._adopt(ctx, lib.stitch_trace_begin, byref(options), OUT)
            assert self._ref is not None and token._ref is not None
            self._ref.add_parent(token._ref)
        self._cancel = token
        self._ended = False

    def end(self) -> None:
        """Stops recording and evaluates the records. StateError: it has ended already. DeadlineError, CancelledError:
        what was recorded is there."""
        self._ended = True
        self._call(lib.stitch_trace_end, trigger=self._cancel.trigger)

    def __exit__(self, *exc: Any) -> None:
        if not self._ended and not self.closed:
            try:
                self.end()
            except Exception:
                if exc[0] is None:  # what the block raised matters more
                    raise

    @property
    def summary(self) -> TraceSummary:
        value = make(c.stitch_trace_summary)
        self._fetch(lib.stitch_trace_summary_get, byref(value))
        return record(TraceSummary, value, has_calls=bool(value.has_calls))

    def _fetch(self, function: Any, *args: Any) -> None:
        if self._get(function, *args) != 0:
            raise StateError("the trace has not ended")

    def _list(self, what: str, kind: Any, struct: Any, getter: str) -> List[Any]:
        found = []
        address = self._begin()
        try:
            for i in range(getattr(lib, f"stitch_trace_{what}count")(address)):
                value = make(struct)
                getattr(lib, getter)(address, i, byref(value))
                extra: Dict[str, Any] = {}
                if struct is c.stitch_trace_record:
                    extra["kind"] = TraceKind(value.kind)
                elif struct is c.stitch_trace_kernel:
                    extra["varied"] = bool(value.varied)
                found.append(record(kind, value, **extra))
        finally:
            self._end()
        return found

    @property
    def records(self) -> List[TraceRecord]:
        """In the order of their start; those without times come last."""
        return self._list("", TraceRecord, c.stitch_trace_record, "stitch_trace_record_get")

    @property
    def kernels(self) -> List[TraceKernel]:
        """The one with the most time first."""
        return self._list("kernel_", TraceKernel, c.stitch_trace_kernel, "stitch_trace_kernel_get")

    @property
    def copies(self) -> List[TraceCopy]:
        return self._list("copy_", TraceCopy, c.stitch_trace_copy, "stitch_trace_copy_get")

    @property
    def gaps(self) -> List[TraceGap]:
        """The longest gaps, at most 16."""
        return self._list("gap_", TraceGap, c.stitch_trace_gap, "stitch_trace_gap_get")

    def chrome_json(self) -> str:
        """For Perfetto (ui.perfetto.dev) and chrome://tracing, as text."""
        out = c_void_p()
        self._call(lib.stitch_trace_json, byref(out))
        return take_text(out)

    def attribute(self, executor: Executor, runs: int = 1) -> None:
        """Gives the records of a trace of so many runs of a program, and of nothing else, the steps of its launch plan."""
        need(Executor, executor=executor)
        with Uses(executor) as (used,):
            self._call(lib.stitch_trace_attribute, used, runs)

    def text(self, max_bytes: int = 0) -> str:
        """What matters, one line a fact, the decisive one first; 0: everything."""
        out = c_void_p()
        self._call(lib.stitch_trace_text, max_bytes, byref(out))
        return take_text(out)

    def chrome(self) -> Dict[str, Any]:
        value: Dict[str, Any] = json.loads(self.chrome_json())
        return value

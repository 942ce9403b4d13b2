# SPDX-License-Identifier: MIT
"""Executors: a program loaded on a device, bound to memory, run on streams."""

from __future__ import annotations

import json
import sys
from ctypes import byref, c_int64, c_void_p, string_at
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from . import _declarations as c
from ._core import Handle, Ref, Uses, callback, decode, encode, error_from, make, need, strings
from ._errors import BusyError, InvalidError, StateError
from ._integers import array
from ._library import lib
from ._dlpack import View
from ._tensors import _torch_tensor, check, stream_pointer, view
from ._context import Context, record
from ._interface import Dtype, Interface, interface_from
from ._program import Program


@dataclass(frozen=True)
class ExecutorStats:
    """Facts after prepare(). Sizes in bytes; launches of one run, repeats unrolled."""

    workspace_bytes: int
    library_workspace_bytes: int
    launches: int
    prepare_launches: int
    graph_updates: int
    graph_builds: int
    prepare_build_ms: float


@dataclass(frozen=True)
class OpArg:
    """An argument of an `op` step: a tensor's address with the bytes from there to its end, or a scalar."""

    pointer: int
    value: float  # of a scalar; an int where its type is one
    dtype: Dtype
    is_pointer: bool
    nbytes: int


Op = Callable[[int, Sequence[OpArg], Dict[str, Any]], Optional[int]]


def op_array(ops: Optional[Mapping[str, Op]]) -> Tuple[Any, int, List[Any]]:
    """stitch_op[], its length, and what must stay alive."""
    if not ops:
        return None, 0, []
    array, keep = (c.stitch_op * len(ops))(), []

    def wrap(function: Op) -> Any:
        def enqueue(stream: Optional[int], args: Any, count: int, attrs: int, _: Any) -> Any:
            seen = [
                OpArg(
                    a.ptr, a.real if a.dtype <= Dtype.F8E5M2 else a.integer, Dtype(a.dtype), bool(a.is_pointer), a.bytes
                )
                for a in args[:count]
            ]
            return function(stream or 0, seen, json.loads(decode(string_at(attrs))) if attrs else {})

        return callback(c.stitch_op_fn, enqueue)

    for slot, (name, function) in zip(array, ops.items()):
        slot.name, slot.fn = encode(name, "op"), wrap(function)
        keep.append(slot.fn)
    return array, len(ops), [array, keep]


class Executor(Handle):
    """A program loaded on the context's device for given dims.

        executor = Executor(ctx, program, dims={"B": 4})
        executor.bind_all({"x": x, "weight": w, "y": y})
        executor.prepare()
        executor.run()            # enqueues one run; every time

    Everything that is bound stays referenced until it is bound anew or the executor is closed. Runs of one executor
    must not overlap on the device: use one stream, or an executor a stream. The program may be closed once this exists.

    dims          values for dims of the interface; the others keep theirs
    ops           host operators by name: op(stream, args, attrs) enqueues on the stream and returns None or a Status
    no_graph, max_plans, library_workspace_bytes, max_workspace_bytes, no_tuning, capturable: as in stitch/program.h
    """

    _free = "stitch_executor_free"

    def __init__(
        self,
        ctx: Context,
        program: Program,
        *,
        dims: Optional[Mapping[str, int]] = None,
        ops: Optional[Mapping[str, Op]] = None,
        no_graph: bool = False,
        max_plans: int = 0,
        library_workspace_bytes: int = 0,
        max_workspace_bytes: int = 0,
        no_tuning: bool = False,
        capturable: bool = False,
    ) -> None:
        options, dims = make(c.stitch_executor_options), dict(dims or {})
        options.dim_names, options.dim_count = strings(list(dims), "dim"), len(dims)
        options.dim_values = array(c_int64, list(dims.values()), "dim")
        options.ops, options.op_count, keep = op_array(ops)
        options.no_graph, options.max_plans, options.no_tuning, options.capturable = (
            int(no_graph),
            max_plans,
            int(no_tuning),
            int(capturable),
        )
        options.library_workspace_bytes, options.max_workspace_bytes = library_workspace_bytes, max_workspace_bytes
        out = c_void_p()
        need(Context, ctx=ctx)
        need(Program, program=program)
        with Uses(ctx, program) as (owner, address):
            try:
                ctx._interruptible(lib.stitch_executor_new, owner, address, byref(options), byref(out))
                assert ctx._ref is not None
                super().__init__(Ref(out.value or 0, lib.stitch_executor_free, [ctx._ref], keep), ctx)
                out.value = None
            finally:
                lib.stitch_executor_free(out)
        self._ctx = ctx
        self._bound: Dict[int, View] = {}
        self._again: Dict[str, Tuple[int, int]] = {}  # slot and bytes by name, for _rebind()
        self._torch = -1  # ordinal whose current PyTorch stream run() uses; -1: no torch tensor is bound
        self._interface: Optional[Interface] = None
        self._device = ctx.device.ordinal
        # For run(): bound once, nothing allocated there.
        self._run, self._error = lib.stitch_executor_run, c_void_p()
        self._error_at = byref(self._error)
        self._plain = not ops

    @property
    def interface(self) -> Interface:
        """The tensors and dims as this executor has them."""
        if self._interface is None:
            address = self._begin()
            try:
                self._interface = interface_from(lib.stitch_executor_interface(address))
            finally:
                self._end()
        return self._interface

    def set_dim(self, name: str, value: int) -> None:
        """Changes a dim. Takes effect with the next prepare(), which validates the program with the new dims."""
        self._call(lib.stitch_executor_set_dim, encode(name, "dim"), value)
        self._interface = None
        self._again.clear()

    def bind(self, name: str, memory: Any, *, nbytes: Optional[int] = None) -> None:
        """Binds device memory to a tensor: a torch tensor, anything with __dlpack__ or __cuda_array_interface__, a
        DevicePointer, or an address with nbytes. InvalidError where dtype, shape, contiguity, device, size or alignment
        (16 bytes) do not fit. Nothing is copied and nothing synchronised: what fills the memory must be ordered before
        run(). Binding a weight after prepare() makes another prepare() necessary."""
        slot = self.interface.slot(name)
        tensor = self.interface.tensors[slot]
        try:
            seen = view(memory, nbytes)
            check(tensor, seen, self._device)
        except (InvalidError, TypeError) as e:
            text = e.message if isinstance(e, InvalidError) else str(e)
            raise type(e)(f"what is bound to '{name}' {text}") from None
        self._call(lib.stitch_executor_bind, slot, seen.pointer, seen.nbytes)
        self._bound[slot] = seen
        self._again.pop(name, None)
        if _torch_tensor(memory):
            self._torch = self._device
        elif self._torch >= 0 and not any(_torch_tensor(bound.keep) for bound in self._bound.values()):
            self._torch = -1

    def bind_all(self, memory: Mapping[str, Any]) -> None:
        """bind() of each."""
        for name, value in memory.items():
            self.bind(name, value)

    def _rebind(self, name: str, pointer: int) -> None:
        """bind() of an address once more, to other memory that is known to fit. No other thread uses the executor."""
        found = self._again.get(name)
        if found is None:
            slot = self.interface.slot(name)
            found = self._again[name] = (slot, self._bound[slot].nbytes)
        assert self._ref is not None
        status = lib.stitch_executor_bind(self._ref.pointer, found[0], pointer, found[1], self._error_at)
        if status != 0:
            raise error_from(self._error, status)

    def _default_stream(self) -> int:
        """The current PyTorch stream where torch tensors are bound, else the default stream."""
        if self._torch < 0:
            return 0
        torch = sys.modules["torch"]
        # What Stream.cuda_stream is made of, without the object.
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        if raw is not None:
            return int(raw(self._torch))
        return int(torch.cuda.current_stream(self._torch).cuda_stream)

    def prepare(self, stream: Any = None) -> None:
        """Everything that allocates: workspace, algorithms, the `prepare` steps (enqueued on `stream`), the graph. All
        tensors must be bound; inputs and outputs may be bound to other memory later. May wait for the device; Ctrl-C
        and ctx.cancel() end it.
        """
        with Uses(self) as (address,):
            self._ctx._interruptible(
                lib.stitch_executor_prepare,
                address,
                self._default_stream() if stream is None else stream_pointer(stream),
            )

    def run(self, stream: Any = None) -> None:
        """Enqueues one run and returns. stream: an address, a torch.cuda.Stream or anything else with `cuda_stream` or
        `__cuda_stream__`; None: the current PyTorch stream if torch tensors are bound, else the default stream."""
        if stream is None:
            stream = 0 if self._torch < 0 else self._default_stream()
        elif type(stream) is not int:
            stream = stream_pointer(stream)
        if not self._plain:
            self._call(lib.stitch_executor_run, stream)
            return
        # Instead of _begin(): the gate is held for the call, which takes microseconds.
        if not self._gate.acquire(False):
            raise BusyError("this Executor is in use in another thread; use one object a thread")
        try:
            if self._ref is None:
                raise StateError("this Executor is closed")
            if self._users:
                raise BusyError("this Executor is being prepared or bound; it cannot run now")
            status = self._run(self._ref.pointer, stream, self._error_at)
            if status != 0:
                raise error_from(self._error, status)
        finally:
            self._gate.release()

    __call__ = run

    @property
    def stats(self) -> ExecutorStats:
        value = make(c.stitch_executor_stats)
        self._get(lib.stitch_executor_stats_get, byref(value))
        return record(ExecutorStats, value)

    def close(self) -> None:
        """Releases the executor and what was bound. Waits for nothing: no run may be in flight."""
        super().close()
        self._bound.clear()

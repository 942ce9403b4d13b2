# SPDX-License-Identifier: MIT
"""A verified program that runs on PyTorch's tensors, as an operator of PyTorch, too."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import torch

from .._context import Context
from .._errors import StateError
from .._executor import Executor
from .._program import Program
from .._tensors import DevicePointer
from ._module import Spec
from ._saved import Shapes

_KEPT = 8  # executors of one module: by batch and stream
_engines: "weakref.WeakValueDictionary[int, Engine]" = weakref.WeakValueDictionary()
_handles = itertools.count(1)


class _Ready:
    """One executor with the memory that it is bound to."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.weights: Any = None  # what it was prepared with, and the memory that is bound
        self.held: List[torch.Tensor] = []
        self.given: List[torch.Tensor] = []  # as they were given last: none gets the address of another that is gone
        self.seen: Optional[List[int]] = None  # seen() of them; None: that cannot be known
        self.bound: Dict[str, int] = {}

    def bind(self, name: str, tensor: torch.Tensor) -> None:
        """By address: PyTorch owns the memory and orders its uses on the stream, and graphs must not keep it."""
        if self.bound.get(name) != tensor.data_ptr():
            self.executor.bind(name, DevicePointer(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
            self.bound[name] = tensor.data_ptr()

    def rebind(self, form: "Form", pointers: Sequence[int]) -> None:
        """bind() of inputs and outputs that are known to fit."""
        bound = self.bound
        for name, pointer in zip(form.names, pointers):
            if bound[name] != pointer:
                self.executor._rebind(name, pointer)
                bound[name] = pointer


def _identity(weights: Sequence[torch.Tensor]) -> List[Any]:
    """Changes when a weight is replaced, by another view of its memory, too, or written."""
    made: List[Any] = []
    for w in weights:
        made.append(w.data_ptr())
        made.append(0 if w.is_inference() else w._version)
        made.append(w.stride())
        made.append(w.is_neg())  # the memory has the values' negatives
    return made


def seen(weights: Iterable[torch.Tensor]) -> List[int]:
    """Is the same only if _identity() is, of the same objects, and takes less time. RuntimeError for inference tensors,
    which have no version."""
    made: List[int] = []
    for w in weights:
        made.append(id(w))
        made.append(w.data_ptr())
        made.append(w._version)
    return made


class Form:
    """What the calls with one batch have in common."""

    __slots__ = ("batch", "names", "outputs")

    def __init__(self, spec: Spec, batch: int, shapes: Shapes) -> None:
        self.batch = batch
        self.names = [name for name, _, _ in (*spec.inputs, *spec.outputs)]
        self.outputs = [(shapes[name], dtype) for name, dtype, _ in spec.outputs]


def _usable(tensor: torch.Tensor) -> torch.Tensor:
    """Dense and aligned, with the values in its memory; a copy where it is not."""
    tensor = tensor.detach().resolve_neg().contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


class Engine:
    """A verified program for one interface: executors for the batches that it was verified for, made as they are
    needed. Several threads may use it; their runs are enqueued one after the other."""

    def __init__(
        self, ctx: Context, program: bytes, spec: Spec, shapes: Mapping[int, Shapes], device: torch.device
    ) -> None:
        self.ctx, self.data, self.spec, self.shapes, self.device = ctx, program, spec, dict(shapes), device
        self.program = Program.from_bytes(ctx, program)
        self.handle = next(_handles)
        self._lock = threading.Lock()
        self._ready: Dict[Tuple[int, int], _Ready] = {}
        self.staging: Any = None  # reaches the memory of a simulated device; None: tensors are where the program runs
        _engines[self.handle] = self

    def prepared(self, batch: int) -> bool:
        with self._lock:
            return any(key[0] == batch for key in self._ready)

    def _take(self, batch: int, stream: int, capturing: bool) -> _Ready:
        """The executor for a batch on a stream. Runs of one must not overlap, so each stream has its own; what is
        captured into graphs has one of its own too."""
        key = (batch, -1 if capturing else stream)
        found = self._ready.get(key)
        if found is None and capturing:
            # Nothing can be allocated now: one that was prepared before goes to the graphs for good.
            other = next((k for k in self._ready if k[0] == batch), None)
            if other is None:
                raise StateError(
                    "the program has not run with these shapes yet; run the module once before capturing it"
                )
            found = self._ready[key] = self._ready.pop(other)
        if found is None:
            old = [k for k in self._ready if k[1] != -1]
            if len(old) >= _KEPT:
                if self.staging is None:
                    torch.cuda.synchronize(self.device)
                self._ready.pop(old[0]).executor.close()
            dims = {name: value for name, value in self.spec.dims.items() if name != self.spec.batch}
            if self.spec.batch:
                dims[self.spec.batch] = batch
            found = self._ready[key] = _Ready(Executor(self.ctx, self.program, dims=dims, capturable=True))
        return found

    def run(self, inputs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], batch: int) -> List[torch.Tensor]:
        """The outputs, new ones. Enqueued on PyTorch's current stream."""
        if self.staging is not None:
            return list(self.staging.run(self, inputs, weights, batch))
        outputs = [
            torch.empty(self.shapes[batch][name], dtype=dtype, device=self.device)
            for name, dtype, _ in self.spec.outputs
        ]
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self.enqueue(
            [_usable(t) for t in inputs], weights, outputs, batch, stream, torch.cuda.is_current_stream_capturing()
        )
        return outputs

    def enqueue(
        self,
        inputs: Sequence[torch.Tensor],
        weights: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        batch: int,
        stream: int,
        capturing: bool,
    ) -> None:
        """One run on memory of the device."""
        names = [name for name, _, _ in self.spec.inputs] + [name for name, _, _ in self.spec.draws]
        with self._lock:
            ready = self._take(batch, stream, capturing)
            for name, tensor in zip(names, inputs):
                ready.bind(name, tensor)
            for (name, _, _), tensor in zip(self.spec.outputs, outputs):
                ready.bind(name, tensor)
            now = _identity(weights)
            if ready.weights != now:
                if capturing:
                    raise StateError("weights have changed since the last run; run the module once before capturing it")
                ready.held = [_usable(w) for w in weights]
                for name, tensor in zip(self.spec.weights, ready.held):
                    ready.bind(name, tensor)
                ready.executor.prepare(stream)
                ready.weights = now
            ready.given = list(weights)
            ready.seen = None if any(w.is_inference() for w in weights) else seen(weights)
            ready.executor.run(stream)

    def quick(self, form: Form, pointers: List[int], weights: List[int]) -> Optional[List[torch.Tensor]]:
        """run() once more on the same stream, with inputs by address and weights as they were (seen()); None: it is not
        that simple."""
        device = self.device
        if torch.cuda.is_current_stream_capturing():
            return None
        stream = _raw_stream(device.index) if _raw_stream else torch.cuda.current_stream(device).cuda_stream
        with self._lock:
            ready = self._ready.get((form.batch, stream))
            if ready is None or ready.seen != weights:
                return None
            outputs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in form.outputs]
            for made in outputs:
                pointers.append(made.data_ptr())
            ready.rebind(form, pointers)
            ready.executor.run(stream)
        return outputs

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # pylint: disable=broad-except
            pass  # the interpreter ends

    def close(self) -> None:
        """Waits for the device and releases the executors."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        with self._lock:
            for ready in self._ready.values():
                ready.executor.close()
            self._ready.clear()
            self.program.close()


# What Stream.cuda_stream is made of, without the object.
_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _run_engine(inputs: List[torch.Tensor], weights: List[torch.Tensor], handle: int, batch: int) -> List[torch.Tensor]:
    engine = _engines.get(handle)
    if engine is None:
        raise StateError("the module that this operator belongs to is gone")
    return engine.run(inputs, weights, batch)


def _run_fake(inputs: List[torch.Tensor], weights: List[torch.Tensor], handle: int, batch: int) -> List[torch.Tensor]:
    engine = _engines[handle]
    return [
        torch.empty(engine.shapes[batch][name], dtype=dtype, device=engine.device)
        for name, dtype, _ in engine.spec.outputs
    ]


_operator = torch.library.custom_op(
    "stitch::run",
    _run_engine,
    mutates_args=(),
    schema="(Tensor[] inputs, Tensor[] weights, int handle, int batch) -> Tensor[]",
)
_operator.register_fake(_run_fake)

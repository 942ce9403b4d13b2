# SPDX-License-Identifier: MIT
"""Tasks: what must be computed, on which data, how exactly, and against what it is measured."""

from __future__ import annotations

import json
from ctypes import byref, c_char, c_char_p, c_double, c_int, c_size_t, create_string_buffer, sizeof, string_at
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _declarations as c
from ._core import OUT, Handle, Uses, call, callback, decode, encode, encode_path, enum_value, make, need, strings
from ._library import lib
from ._tensors import BoundTensor, host_memory
from ._context import Context, Path
from ._interface import Dim, Dtype, Interface, TensorRole, interface_from, tensor_from
from ._program import Program

Precision = c.stitch_precision
DistKind = c.stitch_dist_kind
# reference(stream, tensors): enqueues on `stream` (an address) what writes every output from inputs and weights.
Reference = Callable[[int, Dict[str, BoundTensor]], Optional[int]]


@dataclass(frozen=True)
class Dist:
    """How the elements of a tensor are drawn: normal (mean a, deviation b), uniform [a, b), constant a, randint [a, b),
    bernoulli (1 with probability a), tril, arange (a + b * index)."""

    kind: Union[DistKind, str]
    a: float = 0.0
    b: float = 0.0


def _buffer(memory: memoryview) -> Tuple[Any, int]:
    """Its bytes, copied only where it is read-only."""
    if memory.readonly or memory.nbytes == 0:
        return memory.tobytes(), memory.nbytes
    return (c_char * memory.nbytes).from_buffer(memory), memory.nbytes


class Task(Handle):
    """A task by calls; Task.load() and Task.parse() read documents (docs/task-format.md).

    task = Task(ctx, "add")
    task.set_dim("N", 1 << 20)
    task.add_tensor("x", "f32", ["N"], "input")
    task.add_tensor("y", "f32", ["N"], "output")
    task.set_reference(reference)        # a function, a Program, or the path of recorded tensors
    """

    _free = "stitch_task_free"

    def __init__(self, ctx: Context, name: str) -> None:
        self._adopt(ctx, lib.stitch_task_new, encode(name, "name"), OUT)
        self._ctx = ctx

    @classmethod
    def load(cls, ctx: Context, path: Path) -> "Task":
        """From a file; paths in it are relative to it."""
        self = cls.__new__(cls)
        self._adopt(ctx, lib.stitch_task_load, encode_path(path), OUT)
        self._ctx = ctx
        return self

    @classmethod
    def parse(cls, ctx: Context, document: Union[str, Mapping[str, Any]], base: Optional[Path] = None) -> "Task":
        """From JSON text or a dict. base: the file or folder that relative paths start from; None: paths are
        refused."""
        text = document if isinstance(document, str) else json.dumps(document)
        self = cls.__new__(cls)
        self._adopt(ctx, lib.stitch_task_parse, encode(text, "document"), encode_path(base), OUT)
        self._ctx = ctx
        return self

    @property
    def name(self) -> str:
        return self._text(lib.stitch_task_name)

    @property
    def hash(self) -> str:
        """Hex SHA-256 of everything that defines the task, referenced files included."""
        hexadecimal = create_string_buffer(65)
        self._call(lib.stitch_task_hash, hexadecimal)
        return decode(hexadecimal.value)

    @property
    def interface(self) -> Interface:
        """The dims and tensors as they are now. A copy."""
        address = self._begin()
        try:
            return interface_from(lib.stitch_task_interface(address))
        finally:
            self._end()

    def set_dim(self, name: str, value: int) -> None:
        self._call(lib.stitch_task_set_dim, encode(name, "dim"), value)

    def set_reduced_dim(self, name: str, value: int) -> None:
        """A smaller value of a dim for simulation and quick checks."""
        self._call(lib.stitch_task_set_reduced_dim, encode(name, "dim"), value)

    @property
    def reduced(self) -> bool:
        """Whether the reduced dims are the current ones; may be set. StateError if there are none."""
        return bool(self._get(lib.stitch_task_is_reduced))

    @reduced.setter
    def reduced(self, reduced: bool) -> None:
        self._call(lib.stitch_task_use_reduced, int(reduced))

    def add_tensor(
        self,
        name: str,
        dtype: Union[Dtype, str],
        shape: Sequence[Dim],
        role: Union[TensorRole, str],
        dist: Union[Dist, str, None] = None,
    ) -> None:
        """shape: expressions over the dims. dist None: a normal distribution for inputs and weights of floating type,
        none for integers (they need one, or data, before the task is used)."""
        value = None
        if dist is not None:
            dist = Dist(dist) if isinstance(dist, str) else dist
            value = byref(c.stitch_dist(enum_value(DistKind, dist.kind, "distribution"), 0, dist.a, dist.b))
        self._call(
            lib.stitch_task_add_tensor,
            enum_value(TensorRole, role, "role"),
            encode(name, "name"),
            enum_value(Dtype, dtype, "dtype"),
            len(shape),
            strings([str(dim) for dim in shape], "shape"),
            value,
        )

    def set_data(self, name: str, data: Any) -> None:
        """Values of a weight or a recorded input from host memory (bytes, a NumPy array, ...), copied; replaces its
        distribution."""
        raw, size = _buffer(host_memory(data, name, self._dtype(name)))
        self._call(lib.stitch_task_set_data, encode(name, "name"), raw, size)

    def _dtype(self, name: str) -> Dtype:
        """Of one tensor; NONE if there is no such tensor."""
        address = self._begin()
        try:
            interface, index, info = lib.stitch_task_interface(address), c_size_t(), make(c.stitch_tensor_info)
            if lib.stitch_interface_find(interface, encode(name, "name"), byref(index)) == 0:
                lib.stitch_interface_tensor(interface, index, byref(info))
            return Dtype(info.dtype)
        finally:
            self._end()

    def set_weights_file(self, path: Path) -> None:
        """Weights by name from a safetensors file: its header is read now, its data when it is needed."""
        self._call(lib.stitch_task_set_weights_file, encode_path(path))

    @property
    def tolerance(self) -> Tuple[float, float]:
        """(atol, rtol): |got - want| <= atol + rtol * |want|. May be set."""
        atol, rtol = c_double(), c_double()
        self._get(lib.stitch_task_tolerance, byref(atol), byref(rtol))
        return atol.value, rtol.value

    @tolerance.setter
    def tolerance(self, value: Tuple[float, float]) -> None:
        self._call(lib.stitch_task_set_tolerance, *value)

    @property
    def precision(self) -> Precision:
        """The least precise arithmetic a candidate may use inside. May be set, by name too."""
        return Precision(self._get(lib.stitch_task_precision))

    @precision.setter
    def precision(self, value: Union[Precision, str]) -> None:
        self._call(lib.stitch_task_set_precision, enum_value(Precision, value, "precision"))

    def set_flops(self, expression: str) -> None:
        """Floating-point operations that one computation needs at the least, over the dims: "2*M*N*K"."""
        self._call(lib.stitch_task_set_flops, encode(expression, "expression"))

    @property
    def description(self) -> str:
        return self._text(lib.stitch_task_description)

    @property
    def source(self) -> str:
        return self._text(lib.stitch_task_source)

    def set_text(self, description: Optional[str] = None, source: Optional[str] = None) -> None:
        """Text for the planner and the coder; None leaves one unchanged."""
        self._call(lib.stitch_task_set_text, encode(description), encode(source))

    def _callback(self, function: Reference) -> Any:
        context = self._ctx
        # What the last call was given, byte for byte, and as objects: it is mostly the same again, and making hundreds
        # of objects would be on the time of a baseline.
        last: Any = (None, {}, [])

        def enqueue(stream: Optional[int], tensors: Any, count: int, _: Any) -> Any:
            nonlocal last
            given = (stream, string_at(tensors, count * sizeof(c.stitch_bound_tensor)))
            if given != last[0]:
                device, calls = context.device.ordinal, []
                seen = [
                    BoundTensor(tensor_from(bound.info), bound.ptr, device, context, stream or 0, calls)
                    for bound in tensors[:count]
                ]
                last = (given, {bound.name: bound for bound in seen}, calls)
            calls = last[2]
            calls.append(None)
            try:
                return function(stream or 0, last[1].copy())
            finally:
                calls.pop()

        return callback(c.stitch_reference_fn, enqueue)

    def _take(self, function: Any, program: Program, *args: Any) -> None:
        """A call that takes the program over, which is closed then."""
        need(Program, program=program)
        with Uses(self, program) as (task, address):
            call(function, task, *[address if arg is OUT else arg for arg in args])
            assert self._ref is not None
            program._hand_over(self._ref)

    def set_reference(
        self, reference: Union[Reference, Program, Path], output_dtype: Union[Dtype, str] = Dtype.NONE
    ) -> None:
        """Exactly one. A function reference(stream, tensors) that enqueues on the stream what writes every output, in
        the thread that verifies and with the device's context current; a Program, which is the task's from then on; or
        the path of a safetensors file with recorded inputs and outputs. output_dtype: of the reference's outputs of
        floating type ("f64" for an oracle).
        """
        dtype = enum_value(Dtype, output_dtype, "dtype")
        if isinstance(reference, Program):
            self._take(lib.stitch_task_set_reference_program, reference, OUT, dtype)
        elif callable(reference):
            function = self._callback(reference)
            self._call(lib.stitch_task_set_reference_fn, function, None, dtype)
            self._keep(function)
        else:
            self._call(lib.stitch_task_set_reference_tensors, encode_path(reference))

    def add_baseline(
        self, name: str, baseline: Union[Reference, Program], precision: Union[Precision, str] = Precision.ANY
    ) -> None:
        """What speed-ups are measured against, in order; the first is the main one. Without any the reference is
        used."""
        value = enum_value(Precision, precision, "precision")
        if isinstance(baseline, Program):
            self._take(lib.stitch_task_add_baseline_program, baseline, encode(name, "name"), value, OUT)
        else:
            if not callable(baseline):
                raise TypeError(f"baseline must be a function or a stitch.Program, not a {type(baseline).__name__}")
            function = self._callback(baseline)
            self._call(lib.stitch_task_add_baseline_fn, encode(name, "name"), value, function, None)
            self._keep(function)

    def _keep(self, function: Any) -> None:
        assert self._ref is not None
        self._ref.keep.append(function)

    @property
    def baselines(self) -> List[Tuple[str, Precision]]:
        found: List[Tuple[str, Precision]] = []
        address = self._begin()
        try:
            for i in range(lib.stitch_task_baseline_count(address)):
                name, precision = c_char_p(), c_int()
                lib.stitch_task_baseline(address, i, byref(name), byref(precision))
                found.append((decode(name.value), Precision(precision.value)))
        finally:
            self._end()
        return found

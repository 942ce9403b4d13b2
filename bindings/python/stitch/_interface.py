# SPDX-License-Identifier: MIT
"""What programs and tasks read and write: dims and tensors by name, as values of Python."""

from __future__ import annotations

from ctypes import byref, c_char_p, c_int64
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, Mapping, Sequence, Tuple, Union

from . import _declarations as c
from ._core import Ref, call, create, decode, encode, enum_value, make, strings, OUT
from ._errors import NotFoundError
from ._library import lib

Dtype = c.stitch_dtype
TensorRole = c.stitch_tensor_role
Dim = Union[int, str]


@dataclass(frozen=True)
class Tensor:
    """One tensor: contiguous, row-major. `shape_expr` holds the expressions over the dims, `shape` their values for the
    current dims (elements; empty in one that you made), `nbytes` the size."""

    name: str
    dtype: Dtype
    shape_expr: Tuple[str, ...]
    role: TensorRole = TensorRole.INPUT
    shape: Tuple[int, ...] = ()
    elements: int = 0
    nbytes: int = 0

    @staticmethod
    def make(
        name: str, dtype: Union[Dtype, str], shape: Sequence[Dim], role: Union[TensorRole, str] = TensorRole.INPUT
    ) -> "Tensor":
        """From short forms: Tensor.make("x", "f32", ["B", "2*C"], "input")."""
        return Tensor(
            name,
            enum_value(Dtype, dtype, "dtype"),
            tuple(str(dim) for dim in shape),
            enum_value(TensorRole, role, "role"),
        )


@dataclass(frozen=True)
class Interface:
    """Dims by name, and tensors in order: a tensor's index is its slot in an executor."""

    dims: Mapping[str, int]
    tensors: Tuple[Tensor, ...]
    _slots: Dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._slots.update({tensor.name: slot for slot, tensor in enumerate(self.tensors)})

    def slot(self, name: str) -> int:
        try:
            return self._slots[name]
        except KeyError:
            raise NotFoundError(f"there is no tensor '{name}'; there are {', '.join(self._slots) or 'none'}") from None

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[self.slot(name)]

    def __contains__(self, name: object) -> bool:
        return name in self._slots

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def tensor_from(info: Any) -> Tensor:
    rank = int(info.rank)
    return Tensor(
        decode(info.name),
        Dtype(info.dtype),
        tuple(decode(text) for text in info.shape_expr[:rank]),
        TensorRole(info.role),
        tuple(info.shape[:rank]),
        int(info.elements),
        int(info.bytes),
    )


def interface_from(address: int) -> Interface:
    """A copy of a `const stitch_interface *`."""
    dims, tensors = {}, []
    for i in range(lib.stitch_interface_dim_count(address)):
        name, value = c_char_p(), c_int64()
        lib.stitch_interface_dim(address, i, byref(name), byref(value))
        dims[decode(name.value)] = value.value
    for i in range(lib.stitch_interface_tensor_count(address)):
        info = make(c.stitch_tensor_info)
        lib.stitch_interface_tensor(address, i, byref(info))
        tensors.append(tensor_from(info))
    return Interface(dims, tuple(tensors))


def interface_new(context: int, interface: Interface) -> Ref:
    """A stitch_interface of the same content; freed with the last reference to the result."""
    made = Ref(create(lib.stitch_interface_free, lib.stitch_interface_new, context, OUT), lib.stitch_interface_free)
    for name, value in interface.dims.items():
        call(lib.stitch_interface_set_dim, made.pointer, encode(name, "dim"), value)
    for tensor in interface.tensors:
        call(
            lib.stitch_interface_add_tensor,
            made.pointer,
            tensor.role,
            encode(tensor.name, "tensor"),
            tensor.dtype,
            len(tensor.shape_expr),
            strings(tensor.shape_expr, "shape"),
        )
    return made

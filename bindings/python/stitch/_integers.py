# SPDX-License-Identifier: MIT
"""Integers on their way to C. ctypes takes as many of their low bits as there is room for: a dim of 2**64 + 5 would be 5.
Here what has no room is refused, in structs and as an argument."""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Dict, Sequence, Tuple

_INTEGERS = (ctypes.c_int, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t)


def _limits(kind: Any) -> Tuple[int, int]:
    """The least value of a C type and the first one that is too large."""
    bits = 8 * ctypes.sizeof(kind)
    return (-(1 << bits - 1), 1 << bits - 1) if kind(-1).value < 0 else (0, 1 << bits)


LIMITS: Dict[Any, Tuple[int, int]] = {kind: _limits(kind) for kind in _INTEGERS}


def _complaint(value: Any, limits: Tuple[int, int]) -> str:
    try:
        number = operator.index(value)
    except TypeError:  # for ctypes to judge
        return ""
    return "" if limits[0] <= number < limits[1] else f"{number} is not from {limits[0]} to {limits[1] - 1}"


def _refuse(what: str, complaint: str) -> None:
    from ._errors import InvalidError  # which is made of the structs' module

    raise InvalidError(f"{what}: {complaint}")


def array(kind: Any, values: Sequence[Any], what: str) -> Any:
    """A C array of an integer type."""
    for value in values:
        complaint = _complaint(value, LIMITS[kind])
        if complaint:
            _refuse(what, complaint)
    return (kind * max(1, len(values)))(*values)


class Structure(ctypes.Structure):
    """Base of the structs of the library."""

    _ranges: Dict[str, Tuple[int, int]]

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self)
        if "_ranges" not in kind.__dict__:
            kind._ranges = {field[0]: LIMITS[field[1]] for field in kind._fields_ if field[1] in LIMITS}
        limits = kind._ranges.get(name)
        complaint = "" if limits is None else _complaint(value, limits)
        if complaint:
            _refuse(name, complaint)
        super().__setattr__(name, value)


class _Argument:
    """Stands for an integer type among a function's argument types."""

    def __init__(self, kind: Any) -> None:
        self._kind, self._limits = kind, LIMITS[kind]

    def from_param(self, value: Any) -> Any:
        if isinstance(value, self._kind):
            return value
        complaint = _complaint(value, self._limits)
        if complaint:
            raise OverflowError(complaint)  # ctypes says which argument
        return self._kind.from_param(value)


_arguments = {kind: _Argument(kind) for kind in _INTEGERS}


def arguments(kinds: Tuple[Any, ...]) -> Tuple[Any, ...]:
    """The same argument types with checks."""
    return tuple(_arguments.get(kind, kind) for kind in kinds)

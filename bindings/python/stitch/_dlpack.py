# SPDX-License-Identifier: MIT
"""DLPack through ctypes: reads the capsules of others and makes our own. dlpack.h of DLPack 1.0 describes the
structs."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    cast,
    py_object,
    pythonapi,
)
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ._declarations import stitch_dtype as Dtype

CUDA, CUDA_MANAGED = 2, 13
DEVICES = {
    1: "CPU",
    2: "CUDA",
    3: "CUDA host (pinned)",
    4: "OpenCL",
    7: "Vulkan",
    8: "Metal",
    10: "ROCm",
    13: "CUDA managed",
    14: "oneAPI",
}


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class DLManagedTensor(Structure):
    pass


_DELETER = CFUNCTYPE(None, c_void_p)
DLManagedTensor._fields_ = [("tensor", DLTensor), ("context", c_void_p), ("deleter", _DELETER)]


class DLManagedTensorVersioned(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", _DELETER),
        ("flags", c_uint64),
        ("tensor", DLTensor),
    ]


# (type code, bits) of each dtype
CODES: Dict[Dtype, Tuple[int, int]] = {
    Dtype.F64: (2, 64),
    Dtype.F32: (2, 32),
    Dtype.TF32: (2, 32),
    Dtype.F16: (2, 16),
    Dtype.BF16: (4, 16),
    Dtype.F8E4M3: (10, 8),
    Dtype.F8E5M2: (12, 8),
    Dtype.I64: (0, 64),
    Dtype.I32: (0, 32),
    Dtype.I16: (0, 16),
    Dtype.I8: (0, 8),
    Dtype.U8: (1, 8),
    Dtype.BOOL: (6, 8),
}
NAMES: Dict[Tuple[int, int], str] = {code: dtype.name.lower() for dtype, code in reversed(list(CODES.items()))}

pythonapi.PyCapsule_IsValid.restype, pythonapi.PyCapsule_IsValid.argtypes = c_int, [py_object, c_char_p]
pythonapi.PyCapsule_GetPointer.restype, pythonapi.PyCapsule_GetPointer.argtypes = c_void_p, [py_object, c_char_p]
pythonapi.PyCapsule_New.restype, pythonapi.PyCapsule_New.argtypes = py_object, [c_void_p, c_char_p, c_void_p]


class View(NamedTuple):
    """Memory of someone else: what it is, and what has to stay alive for it."""

    pointer: int
    dtype: Optional[str]  # the library's name; None: not known
    shape: Optional[Tuple[int, ...]]
    nbytes: int
    device: Optional[int]  # ordinal
    contiguous: bool
    read_only: bool
    keep: Any


def contiguous(shape: Tuple[int, ...], strides: Optional[Tuple[int, ...]], unit: int = 1) -> bool:
    """Whether strides (counted in 1 / `unit` elements) are those of row-major memory without gaps."""
    if strides is None or 0 in shape:
        return True
    expected = unit
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def read(capsule: Any, keep: Any) -> View:
    """What a capsule describes. It stays the producer's: it is not consumed, only kept, so that its own destructor
    gives it back."""
    if pythonapi.PyCapsule_IsValid(capsule, b"dltensor"):
        tensor, read_only = (
            cast(pythonapi.PyCapsule_GetPointer(capsule, b"dltensor"), POINTER(DLManagedTensor)).contents.tensor,
            False,
        )
    elif pythonapi.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        managed = cast(
            pythonapi.PyCapsule_GetPointer(capsule, b"dltensor_versioned"), POINTER(DLManagedTensorVersioned)
        ).contents
        if managed.major != 1:
            raise TypeError(f"its __dlpack__() speaks version {managed.major} of DLPack; 1 is known here")
        tensor, read_only = managed.tensor, bool(managed.flags & 1)
    else:
        raise TypeError("its __dlpack__() did not return a DLPack capsule")
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else None
    elements = 1
    for extent in shape:
        elements *= extent
    known = NAMES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    return View(
        (tensor.data or 0) + tensor.byte_offset,
        known or f"DLPack type {tensor.code} of {tensor.bits} x {tensor.lanes} bits",
        shape,
        elements * tensor.lanes * tensor.bits // 8,
        tensor.device_id,
        contiguous(shape, strides),
        read_only,
        (keep, capsule),
    )


# ---- our own capsules ------------------------------------------------------------------------------------------------

_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = c_void_p, [c_size_t]


def export(pointer: int, dtype: Dtype, shape: Tuple[int, ...], device: int) -> Any:
    """A "dltensor" capsule of row-major memory, which the consumer does not keep alive.

    The tensor is one block of malloc() and its deleter is free(): consumers call it while a tensor of theirs goes,
    which may be with an exception under way, and Python code that ctypes calls then would lose that exception. For the
    same reason the capsule has no destructor: one that nobody consumes leaves its 100 bytes behind."""
    block = _libc.malloc(ctypes.sizeof(DLManagedTensor) + 8 * len(shape))
    if not block:
        raise MemoryError
    managed = DLManagedTensor.from_address(block)
    ctypes.memset(block, 0, ctypes.sizeof(DLManagedTensor))
    extents = (c_int64 * len(shape)).from_address(block + ctypes.sizeof(DLManagedTensor))
    extents[:] = list(shape)
    tensor = managed.tensor
    tensor.data, tensor.device_type, tensor.device_id, tensor.ndim = pointer, CUDA, device, len(shape)
    tensor.code, tensor.bits, tensor.lanes = (*CODES[dtype], 1)
    tensor.shape = cast(ctypes.addressof(extents), POINTER(c_int64))
    managed.deleter = cast(_libc.free, _DELETER)
    return pythonapi.PyCapsule_New(block, b"dltensor", None)

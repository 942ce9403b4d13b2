# SPDX-License-Identifier: MIT
"""Device memory of others: from PyTorch, DLPack, __cuda_array_interface__ or an address; and our tensors for them.

Streams too. Neither torch nor numpy is imported: a torch tensor can only come from a program that has imported torch.
"""

from __future__ import annotations

import sys
from ctypes import byref, c_char, sizeof
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple

from . import _declarations as c
from . import _dlpack
from ._core import Uses, call
from ._declarations import stitch_dtype as Dtype
from ._declarations import stitch_tensor_role as TensorRole
from ._dlpack import View
from ._errors import InvalidError, StateError
from ._interface import Tensor
from ._library import lib

TYPESTR: Dict[Dtype, str] = {
    Dtype.F64: "<f8",
    Dtype.F32: "<f4",
    Dtype.TF32: "<f4",
    Dtype.F16: "<f2",
    Dtype.BF16: "<V2",
    Dtype.F8E4M3: "|V1",
    Dtype.F8E5M2: "|V1",
    Dtype.I64: "<i8",
    Dtype.I32: "<i4",
    Dtype.I16: "<i2",
    Dtype.I8: "|i1",
    Dtype.U8: "|u1",
    Dtype.BOOL: "|b1",
}
_FROM_TYPESTR = {
    "f8": "f64",
    "f4": "f32",
    "f2": "f16",
    "i8": "i64",
    "i4": "i32",
    "i2": "i16",
    "i1": "i8",
    "u1": "u8",
    "b1": "bool",
}
_KINDS = {"f": ("e", "f", "d"), "i": ("h", "i", "l", "q", "n")}  # formats of buffers by the letter of a typestr
_FROM_TORCH = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
}


def host_memory(data: Any, name: str, dtype: Dtype) -> memoryview:
    """Host memory of a tensor's contents: contiguous, and of the tensor's type where it tells. Bytes are of any type;
    integers of 2 bytes are bits of a type that NumPy does not have."""
    memory = memoryview(data)
    if not memory.c_contiguous:
        raise InvalidError("the data is not contiguous")
    kind, size = memory.format.lstrip("@=<"), memory.itemsize
    bits = size == 1 or dtype is Dtype.NONE or kind[-1:] == "x" or (dtype is Dtype.BF16 and kind in ("h", "H"))
    typestr = TYPESTR.get(dtype, "|V0")
    if not bits and not (kind in _KINDS.get(typestr[1], ()) and size == int(typestr[2:])):
        raise InvalidError(
            f"tensor {name} is {dtype.name.lower()}; the data has elements of another type "
            f"(format '{memory.format}', {size} bytes each)"
        )
    return memory


@dataclass(frozen=True)
class DevicePointer:
    """Memory by its address: at least `nbytes` bytes that live as long as the runs that use them. dtype (a name as
    "f32"), shape and the device's ordinal are checked where they are given."""

    pointer: int
    nbytes: int
    dtype: Optional[str] = None
    shape: Optional[Tuple[int, ...]] = None
    device: Optional[int] = None


@dataclass(frozen=True)
class BoundTensor:
    """A tensor that the library hands to a callback: device memory, row-major, valid during the call.
    torch.as_tensor(), cupy.asarray() and from_dlpack() of anything make a view of it."""

    tensor: Tensor
    pointer: int
    device: int
    _context: Any = field(default=None, repr=False, compare=False)
    _stream: int = field(default=0, repr=False, compare=False)
    _calls: Any = field(default=None, repr=False, compare=False)  # empty when the callback has returned

    def read(self, into: Any = None) -> bytes:
        """Copies the contents to host memory, after what was enqueued on the callback's stream before; waits. Into a
        writable buffer (bytearray, array, a NumPy array), or as bytes. For callbacks that compute on the host; works on
        simulated devices too."""
        memory = memoryview(bytearray(self.nbytes) if into is None else into)
        if memory.readonly or not memory.c_contiguous:
            raise InvalidError("the memory to read into is read-only or not contiguous")
        host_memory(memory, self.name, self.dtype)
        if memory.nbytes:
            self._copy(lib.stitch_bound_tensor_read, (c_char * memory.nbytes).from_buffer(memory), memory.nbytes)
        return bytes(memory) if into is None else b""

    def write(self, data: Any) -> None:
        """Fills it from host memory (anything with the buffer protocol), in order of the callback's stream; waits."""
        memory = host_memory(data, self.name, self.dtype)
        if memory.nbytes != self.nbytes:
            raise InvalidError(f"tensor {self.name} has {self.nbytes} bytes, the data {memory.nbytes}")
        if memory.nbytes:
            raw: Any = memory.tobytes() if memory.readonly else (c_char * memory.nbytes).from_buffer(memory)
            self._copy(lib.stitch_bound_tensor_write, raw, memory.nbytes)

    def _copy(self, function: Any, raw: Any, nbytes: int) -> None:
        if self._context is None:
            raise StateError("this tensor did not come from a callback")
        if not self._calls:
            raise StateError(f"the callback that tensor {self.name} was for has returned; its memory may be gone")
        value = c.stitch_bound_tensor()
        value.info.struct_size = sizeof(value.info)
        value.info.name, value.info.bytes, value.ptr = self.name.encode(), self.nbytes, self.pointer
        with Uses(self._context) as (context,):
            call(function, context, self._stream, byref(value), raw, nbytes)

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def role(self) -> TensorRole:
        return self.tensor.role

    @property
    def dtype(self) -> Dtype:
        return self.tensor.dtype

    @property
    def shape(self) -> Tuple[int, ...]:
        return self.tensor.shape

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        # Inputs are not said to be read-only: PyTorch refuses such memory.
        return {
            "shape": self.shape,
            "typestr": TYPESTR[self.dtype],
            "data": (self.pointer, False),
            "version": 3,
            "strides": None,
            "stream": None,
        }

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (_dlpack.CUDA, self.device)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("the memory is on the device and is not copied")
        return _dlpack.export(self.pointer, self.dtype, self.shape, self.device)


def _torch_tensor(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, getattr(torch, "Tensor", ()))


def _from_torch(obj: Any) -> View:
    """Without DLPack, which refuses tensors that require gradients: weights do."""
    if obj.device.type != "cuda":
        raise InvalidError(f"is in {obj.device.type.upper()} memory; move it to the device (.cuda())")
    if getattr(obj, "is_sparse", False) or getattr(obj, "is_quantized", False):
        raise InvalidError("is sparse or quantised; only dense tensors can be bound")
    if getattr(obj, "is_conj", bool)() or getattr(obj, "is_neg", bool)():
        raise InvalidError("is a lazily conjugated or negated view; call .resolve_conj().resolve_neg() first")
    dtype = str(obj.dtype).rpartition(".")[2]
    return View(
        obj.data_ptr(),
        _FROM_TORCH.get(dtype, dtype),
        tuple(obj.shape),
        obj.numel() * obj.element_size(),
        obj.device.index or 0,
        obj.is_contiguous(),
        False,
        obj,
    )


def _from_dlpack(obj: Any) -> View:
    kind, _ = obj.__dlpack_device__()
    if int(kind) not in (_dlpack.CUDA, _dlpack.CUDA_MANAGED):
        raise InvalidError(
            f"is in {_dlpack.DEVICES.get(int(kind), f'device type {int(kind)}')} memory; move it to the device"
        )
    # -1: no synchronisation. The caller orders work on streams, as with every other way to bind.
    return _dlpack.read(obj.__dlpack__(stream=-1), obj)


def _from_cuda_array(obj: Any) -> View:
    facts = obj.__cuda_array_interface__
    pointer, read_only = facts["data"]
    shape, typestr = tuple(facts["shape"]), str(facts["typestr"])
    if typestr[:1] == ">":
        raise InvalidError("has the other byte order")
    if facts.get("mask") is not None:
        raise InvalidError("has a mask")
    size = nbytes = int(typestr[2:])
    for extent in shape:
        nbytes *= extent
    strides = facts.get("strides")
    dtype = _FROM_TYPESTR.get(typestr[1:], None if typestr[1:2] == "V" else f"typestr {typestr}")
    return View(
        pointer or 0,
        dtype,
        shape,
        nbytes,
        None,
        _dlpack.contiguous(shape, None if strides is None else tuple(strides), size),
        bool(read_only),
        (obj, facts),
    )


def view(obj: Any, nbytes: Optional[int] = None) -> View:
    """What an object describes. InvalidError and TypeError say "is ...", to go behind a name."""
    if isinstance(obj, DevicePointer):
        return View(obj.pointer, obj.dtype, obj.shape, obj.nbytes, obj.device, True, False, obj)
    if isinstance(obj, int) and not isinstance(obj, bool):
        if nbytes is None:
            raise InvalidError("is an address without a size; pass nbytes=")
        return View(obj, None, None, nbytes, None, True, False, None)
    if _torch_tensor(obj):
        return _from_torch(obj)
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return _from_dlpack(obj)
    if hasattr(obj, "__cuda_array_interface__"):
        return _from_cuda_array(obj)
    kind = type(obj)
    hint = "; NumPy arrays are in CPU memory" if kind.__module__.partition(".")[0] == "numpy" else ""
    raise TypeError(
        f"is a {kind.__module__}.{kind.__qualname__}, which has neither __dlpack__ nor __cuda_array_interface__{hint}"
    )


def _same_dtype(have: Optional[str], want: Dtype) -> bool:
    if have is None or have == want.name.lower():
        return True
    return want is Dtype.TF32 and have == "f32"  # TF32 is stored as float32


def check(tensor: Tensor, seen: View, device: int) -> None:
    """That memory fits a tensor. InvalidError says what does not."""
    have = seen.dtype
    if not _same_dtype(have, tensor.dtype):
        raise InvalidError(f"has elements of {have}; '{tensor.name}' needs {tensor.dtype.name.lower()}")
    if seen.shape is not None and seen.shape != tensor.shape:
        raise InvalidError(
            f"has the shape {list(seen.shape)}; '{tensor.name}' needs {list(tensor.shape)} "
            f"([{', '.join(tensor.shape_expr)}])"
        )
    if not seen.contiguous:
        raise InvalidError("is not contiguous; call .contiguous() or copy it")
    if seen.device is not None and seen.device != device:
        raise InvalidError(f"is on device {seen.device}; the context uses device {device}")
    if seen.read_only and tensor.role in (TensorRole.OUTPUT, TensorRole.STATE):
        raise InvalidError(f"is read-only; '{tensor.name}' is written")


# ---- streams ---------------------------------------------------------------------------------------------------------


def stream_pointer(stream: Any) -> int:
    """The CUstream of an int, of torch.cuda.Stream (cuda_stream), of anything with __cuda_stream__ (cuda-python), of
    cupy (ptr)."""
    if stream is None:
        return 0
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    found = getattr(stream, "cuda_stream", None)
    if found is None:
        found = getattr(stream, "__cuda_stream__", None)
        if found is not None:
            found = (found() if callable(found) else found)[1]
        else:
            found = getattr(stream, "ptr", None)
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    raise TypeError(
        f"a stream is an address or has cuda_stream, __cuda_stream__ or ptr; {type(stream).__name__} has none"
    )

# SPDX-License-Identifier: MIT
"""How the inputs of a task are drawn, from examples of them; and memory of tensors for ctypes."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Dict, Optional, Tuple

import torch

from .._errors import UnsupportedError
from .._interface import Dtype
from .._task import Dist

DTYPES: Dict[torch.dtype, Dtype] = {
    torch.float64: Dtype.F64,
    torch.float32: Dtype.F32,
    torch.float16: Dtype.F16,
    torch.bfloat16: Dtype.BF16,
    torch.float8_e4m3fn: Dtype.F8E4M3,
    torch.float8_e5m2: Dtype.F8E5M2,
    torch.int64: Dtype.I64,
    torch.int32: Dtype.I32,
    torch.int16: Dtype.I16,
    torch.int8: Dtype.I8,
    torch.uint8: Dtype.U8,
    torch.bool: Dtype.BOOL,
}
TORCH: Dict[Dtype, torch.dtype] = {value: key for key, value in DTYPES.items()}
TORCH[Dtype.TF32] = torch.float32
SAMPLES = 1 << 18  # elements that are looked at


def dtype_of(tensor: torch.Tensor, what: str) -> Dtype:
    """The library's dtype. UnsupportedError for tensors that it cannot hold."""
    if tensor.is_nested:
        raise UnsupportedError(f"{what} is a nested tensor; only dense tensors are known")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise UnsupportedError(f"{what} is sparse or quantised; only dense tensors are known")
    if tensor.dtype not in DTYPES:
        raise UnsupportedError(f"{what} has the dtype {str(tensor.dtype).rpartition('.')[2]}, which is not known")
    if tensor.dim() > 8:
        raise UnsupportedError(f"{what} has {tensor.dim()} dimensions; at most 8 are known")
    return DTYPES[tensor.dtype]


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Dense memory on the CPU; it may be the tensor's own."""
    return tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous()


def memory(tensor: torch.Tensor) -> Any:
    """The bytes of a dense CPU tensor, which lives as long as the result."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return b""
    block: Any = (ctypes.c_char * size).from_address(tensor.data_ptr())
    block.tensor = tensor  # often a copy that nobody else holds
    return block


def _correlated(x: torch.Tensor) -> bool:
    """Whether neighbours along an axis know of each other, rows have the same sum, or a matrix is its own transpose."""
    part = x
    for axis in range(x.dim()):
        part = part.narrow(axis, 0, min(part.shape[axis], 512 if axis >= x.dim() - 2 else 4))
    part = part.double()
    for axis in range(part.dim()):
        length = part.shape[axis]
        if length < 2 or part.numel() < 64:
            continue
        a = part.narrow(axis, 0, length - 1).flatten()
        b = part.narrow(axis, 1, length - 1).flatten()
        a, b = a - a.mean(), b - b.mean()
        scale = math.sqrt(float(a.square().sum()) * float(b.square().sum()))
        if scale > 0 and abs(float((a * b).sum())) / scale > 0.05 + 4 / math.sqrt(a.numel()):
            return True
        if x.numel() <= SAMPLES * 16:
            whole = x.narrow(0, 0, min(4, x.shape[0])).double() if axis else x.double()
            sums = whole.sum(axis)
            if sums.numel() > 4 and float(sums.std()) < 1e-4 * float(whole.std()):
                return True
    if part.dim() >= 2 and part.shape[-1] == part.shape[-2] == x.shape[-1] == x.shape[-2] and part.shape[-1] > 4:
        return bool((part - part.transpose(-1, -2)).abs().max() <= 1e-6 * part.abs().max())
    return False


def _floating(x: torch.Tensor, flat: torch.Tensor) -> Optional[Dist]:
    low, high = float(flat.min()), float(flat.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    if low == high:
        return Dist("constant", low)
    values = torch.unique(flat[:4096])
    mean, deviation, n = float(flat.mean()), float(flat.std()), flat.numel()
    if len(values) == 2 and (low, high) == (0.0, 1.0):
        return None if _correlated(x) else Dist("bernoulli", mean)
    if n < 64:  # too few to tell much
        return Dist("uniform", 0, 1) if low >= 0 and high < 1 else Dist("normal", mean, deviation)
    if len(values) < min(n, 4096) / 8 or float((flat == 0).double().mean()) > 0.01 or _correlated(x):
        return None
    shape = ((flat - mean) / deviation).double()
    skew, excess, slack = float((shape**3).mean()), float((shape**4).mean()) - 3, 15 / math.sqrt(n)
    if abs(skew) >= 0.1 + slack:
        return None
    # A few uniform numbers pass for normal ones by their moments, so they are asked for first, and by their range too,
    # which is as wide as their deviation says. The excess of normal numbers strays further up than down.
    unit = low >= 0 and high < 1 and high - low > 1 - 20 / n
    flat_enough = excess < (-0.6 if unit else -0.6 - 4 / math.sqrt(n))
    if flat_enough and (high - low) / deviation < math.sqrt(12) * (1 + 2.5 / math.sqrt(n)):
        return Dist("uniform", 0, 1) if unit else Dist("uniform", low, high)
    if -0.2 - slack < excess < 0.2 + 2 * slack:
        near = abs(mean) < 5 * deviation / math.sqrt(n) and abs(deviation - 1) < 0.02 + slack
        return Dist("normal", 0, 1) if near else Dist("normal", mean, deviation)
    return None


def _integer(x: torch.Tensor, flat: torch.Tensor) -> Optional[Dist]:
    low, high = int(flat.min()), int(flat.max())
    if x.numel() >= 2:
        step = int(flat[1]) - int(flat[0])
        if step and x.numel() <= SAMPLES and bool((flat == torch.arange(flat.numel()) * step + int(flat[0])).all()):
            return Dist("arange", int(flat[0]), step)
    reach = high - low + 1
    if reach <= flat.numel() // 16 and len(torch.unique(flat)) < reach:
        return None  # classes, signs: not every number between the smallest and the largest
    if reach > 2 and x.dim() and x.shape[-1] > 8 and bool((x[..., 1:] >= x[..., :-1]).all()):
        return None  # sorted: offsets, segments
    return Dist("randint", low, high + 1)


def fit(x: torch.Tensor) -> Optional[Dist]:
    """The distribution that a tensor looks like; None: it has a structure that none has (triangular, sorted, rows that
    sum to one, ...)."""
    if x.numel() == 0:
        return Dist("constant", 0)
    flat = x.detach().flatten()
    flat = flat[:: max(1, flat.numel() // SAMPLES)].cpu()
    if x.dtype is torch.bool:
        mean = float(flat.double().mean())
        structured = x.dim() >= 2 and 0 < mean < 1 and _correlated(x.detach().cpu().float())
        return None if structured else Dist("bernoulli", mean)
    if x.dtype.is_floating_point:
        return _floating(x.detach().float(), flat.float())
    return _integer(x.detach().cpu(), flat)


def another(x: torch.Tensor) -> torch.Tensor:
    """Other contents of the kind that a tensor has."""
    dist = fit(x)
    if dist is None or dist.kind in ("constant", "arange"):
        return torch.flip(x, [0]) if x.dim() else x
    if dist.kind == "randint":
        return torch.randint_like(x, int(dist.a), int(dist.b))
    made = torch.empty(x.shape, device=x.device)
    if dist.kind == "normal":
        made.normal_(dist.a, max(dist.b, 1e-6))
    elif dist.kind == "uniform":
        made.uniform_(dist.a, max(dist.b, dist.a + 1e-6))
    else:
        made.bernoulli_(dist.a)
    return made.to(x.dtype)


def linear(points: Tuple[Tuple[int, int], ...], name: str) -> Optional[str]:
    """An expression in `name` through (value of it, extent) points: "B", "4*B", "2*B+1"; None: it is not linear."""
    (b0, v0), (b1, v1) = points[0], points[1]
    if all(v == v0 for _, v in points):
        return str(v0)
    factor = (v1 - v0) // (b1 - b0)
    rest = v0 - factor * b0
    if any(v != factor * b + rest for b, v in points):
        return None
    text = name if factor == 1 else f"{factor}*{name}"
    return text + (f"+{rest}" if rest > 0 else f"-{-rest}" if rest else "")

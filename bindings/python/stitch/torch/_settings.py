# SPDX-License-Identifier: MIT
"""PyTorch's settings during a run, and back to what they were: of the process (precision flags), and of a thread."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

import torch
from torch.utils._python_dispatch import _pop_mode


@dataclass
class Flags:
    """PyTorch's settings for float32 products on CUDA: "highest" (float32), "high" (TF32) or "medium" for matrix
    products, and whether cuDNN may use TF32."""

    matmul: str = "highest"
    cudnn_tf32: bool = False
    new: Dict[str, str] = field(default_factory=dict)  # of releases that have fp32_precision, where it was set

    @staticmethod
    def _switches() -> Dict[str, Any]:
        found = {"matmul": torch.backends.cuda.matmul, "conv": getattr(torch.backends.cudnn, "conv", None)}
        found["rnn"] = getattr(torch.backends.cudnn, "rnn", None)
        return {name: switch for name, switch in found.items() if hasattr(switch, "fp32_precision")}

    @staticmethod
    def current() -> "Flags":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return Flags(torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
            except RuntimeError:  # set through fp32_precision, and the older names refuse then
                new = {name: switch.fp32_precision for name, switch in Flags._switches().items()}
                return Flags("high" if new.get("matmul") == "tf32" else "highest", new.get("conv") == "tf32", new)

    @property
    def tf32(self) -> bool:
        return self.matmul != "highest"

    def set(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, value in self.new.items():
                self._switches()[name].fp32_precision = value
            if not self.new:
                torch.set_float32_matmul_precision(self.matmul)
                torch.backends.cudnn.allow_tf32 = self.cudnn_tf32

    def like(self, tf32: bool) -> "Flags":
        """Everything in float32, or in TF32, set the way that these were."""
        word = "tf32" if tf32 else "ieee"
        return Flags("high" if tf32 else "highest", tf32, {name: word for name in self.new})


class Precision:
    """with Precision(tf32): products in float32, or in TF32. The flags belong to the process: where several threads set
    them at once the last one's hold, and what they were before comes back with the end of all. leave() once more does no
    harm."""

    _lock = threading.Lock()
    _active: List["Precision"] = []
    _before: Optional[Flags] = None

    def __init__(self, tf32: bool) -> None:
        self._tf32 = tf32

    def enter(self) -> None:
        with Precision._lock:
            if not Precision._active:
                Precision._before = Flags.current()
            Precision._active.append(self)
            self._set(Precision._active)

    def leave(self) -> None:
        with Precision._lock:
            if self in Precision._active:
                left = [other for other in Precision._active if other is not self]
                self._set(left)
                Precision._active[:] = left

    @staticmethod
    def _set(active: Sequence["Precision"]) -> None:
        before = Precision._before
        if before is not None:
            (before.like(active[-1]._tf32) if active else before).set()

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *exc: Any) -> None:
        self.leave()


# ---- what PyTorch keeps for a thread ---------------------------------------------------------------------------------


class Settings:
    """Gradients, autocast and modes of this thread. Their context managers put them back, but not where
    KeyboardInterrupt comes in the middle of one; restore() does then."""

    def __init__(self, device: torch.device) -> None:
        self._thread, self._device = threading.get_ident(), device.type
        self._grad, self._autocast = torch.is_grad_enabled(), torch.is_autocast_enabled(device.type)
        self._modes = torch._C._len_torch_dispatch_stack()

    def restore(self) -> None:
        if threading.get_ident() != self._thread:
            return
        while torch._C._len_torch_dispatch_stack() > self._modes:
            _pop_mode()
        torch._C._set_grad_enabled(self._grad)
        torch.set_autocast_enabled(self._device, self._autocast)

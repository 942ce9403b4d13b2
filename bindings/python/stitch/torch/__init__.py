# SPDX-License-Identifier: MIT
"""PyTorch modules as tasks, and verified programs as modules.

    import torch, stitch.torch
    fast = stitch.torch.optimize(module, [x], model="https://host/v1#model")
    y = fast(x)

docs/python.md is the guide. This package imports torch; the rest of stitch does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional, Union

import torch as _torch

from .._context import Context, Path
from .._errors import InvalidError
from ._file import ModelFile, read
from ._module import Spec
from ._task import BASELINES, ModuleTask, check_baselines, task  # noqa: F401

if TYPE_CHECKING:
    from ._optimize import optimize
    from ._optimized import Optimized, load

__all__ = ["BASELINES", "ModelFile", "ModuleTask", "Optimized", "Spec", "from_file", "load", "optimize", "read", "task"]


def from_file(
    path: Union[Path, ModelFile],
    *,
    ctx: Optional[Context] = None,
    device: Any = None,
    seed: int = 0,
    values: Optional[Mapping[str, Any]] = None,
    dtype: Union[_torch.dtype, str, None] = None,
    **options: Any,
) -> ModuleTask:
    """A task from a KernelBench-format file, which has Model, get_inputs() and get_init_inputs(). The file is imported:
    it is code that runs in this process. Weights and example inputs are drawn with `seed`; the reference is a module
    that is constructed anew. device None: the context's GPU, or the CPU for a simulated one; without a context the
    first GPU that PyTorch has. values: {"batch_size": 8} takes the place of what the file assigns to these names at its
    top level; the task's source has them. dtype: "f16", "bf16" (or PyTorch's) casts the module and its inputs where they
    are floating, as KernelBench's evaluator does for a precision. `options` as for task()."""
    if isinstance(path, ModelFile):
        if values:
            raise InvalidError("values are for read(), which has imported this file already")
        file = path
    else:
        file = read(path, values)
    cast = None if dtype is None else _dtype(dtype)
    if device is None:
        if ctx is not None:
            device = "cpu" if ctx.device.simulated else f"cuda:{ctx.device.ordinal}"
        else:
            device = "cuda:0" if _torch.cuda.is_available() else "cpu"
    module, inputs = file.load(device, seed, cast)
    options.setdefault("name", file.name)
    options.setdefault("source", file.source)
    return task(module, inputs, ctx=ctx, constructor=file.model, **options)


def _dtype(name: Union[_torch.dtype, str]) -> _torch.dtype:
    """Of the types that a module can be cast to."""
    known = {"f64": _torch.float64, "f32": _torch.float32, "f16": _torch.float16, "bf16": _torch.bfloat16}
    found = known.get(name) if isinstance(name, str) else name
    if found is None or found not in known.values():
        raise InvalidError(f"modules are cast to {', '.join(known)}, not to {name}")
    return found


def __getattr__(name: str) -> Any:
    """What registers an operator with PyTorch is loaded when it is asked for."""
    if name in ("Optimized", "load", "optimize"):
        from . import _optimize, _optimized  # pylint: disable=import-outside-toplevel

        return getattr(_optimize if name == "optimize" else _optimized, name)
    raise AttributeError(f"module 'stitch.torch' has no attribute '{name}'")

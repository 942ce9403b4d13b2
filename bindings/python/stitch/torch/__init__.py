# SPDX-License-Identifier: MIT
"""PyTorch modules as tasks, and verified programs as modules.

    import torch, stitch.torch
    fast = stitch.torch.optimize(module, [x], model="https://host/v1#model")
    y = fast(x)

docs/python.md is the guide. This package imports torch; the rest of stitch does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Union

import torch as _torch

from .._context import Context, Path
from .._errors import InvalidError
from .._interface import Dim
from .._task import Dist, Precision
from ._file import ModelFile, read
from ._module import Spec
from ._task import BASELINES, ModuleTask, task_of

if TYPE_CHECKING:
    from ._optimize import Optimized, load, optimize

__all__ = ["BASELINES", "ModelFile", "ModuleTask", "Optimized", "Spec", "from_file", "load", "optimize", "read", "task"]


def task(
    module: _torch.nn.Module,
    example_inputs: Any,
    *,
    ctx: Optional[Context] = None,
    name: Optional[str] = None,
    atol: Optional[float] = None,
    rtol: Optional[float] = None,
    precision: Union[Precision, str, None] = None,
    dims: Optional[Mapping[str, int]] = None,
    reduced_dims: Optional[Mapping[str, int]] = None,
    shapes: Optional[Mapping[str, Sequence[Dim]]] = None,
    dists: Optional[Mapping[str, Union[Dist, str, None]]] = None,
    batch: Optional[str] = "B",
    baselines: Optional[Sequence[str]] = None,
    constructor: Optional[Callable[[], _torch.nn.Module]] = None,
    source: Optional[str] = None,
    description: Optional[str] = None,
) -> ModuleTask:
    """A task from a module and example inputs (a tensor, a list or tuple of arguments, or a dict of keywords).

    Inputs are the tensors among forward's arguments, in its order and under its names; weights are the module's
    parameters, buffers and plain tensors under their names, with their values; outputs are `y`, or named after their
    place in a tuple or dict. The module runs a few times for that, as it is (training or evaluation); its state and
    PyTorch's generators are afterwards as before. What forward draws at random becomes inputs `random0`, ....

    ctx           the context; None: one for the module's device (a simulated one for a module on the CPU, where there
                  is no GPU)
    name          None: the class's
    atol, rtol    None: 1e-4 for precision f32, 1e-3 for less, 1e-2 where outputs are of half precision
    precision     the least precise arithmetic that programs may use; None: what PyTorch's flags allow now
    dims, shapes  names for extents: dims={"B": 8, "C": 64}, shapes={"x": ["B", "C"], "fc.weight": ["4*C", "C"]}; tensors
                  that are not named have their sizes as numbers, and nothing is found out about a batch then
    reduced_dims  smaller values of dims for the simulator; of a batch that was found it is 2
    dists         how inputs are drawn, by name; "data": always the example. Others are drawn like the example looks
    batch         name of the first dimension of the inputs where the module takes other sizes of it; None: leave it fixed
    baselines     of BASELINES; None: eager, tf32, compile, max-autotune on CUDA, none elsewhere
    constructor   makes the module anew, for the float64 reference; None: a copy of the module becomes one
    source, description  for the model; None: the source of the module's classes, and what was found

    InvalidError: forward raises, arguments do not fit, devices are mixed or not the context's. UnsupportedError: shapes
    that depend on values, sparse, nested, quantised or complex tensors, TorchScript, random operators that cannot be fed,
    a forward that changes parameters or gives other results for the same inputs. NoMemoryError: too large.
    """
    return task_of(
        module,
        example_inputs,
        ctx=ctx,
        name=name,
        atol=atol,
        rtol=rtol,
        precision=precision,
        dims=dims,
        reduced_dims=reduced_dims,
        shapes=shapes,
        dists=dists,
        batch=batch,
        baselines=baselines,
        constructor=constructor,
        source=source,
        description=description,
    )


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
        from . import _optimize  # pylint: disable=import-outside-toplevel

        return getattr(_optimize, name)
    raise AttributeError(f"module 'stitch.torch' has no attribute '{name}'")

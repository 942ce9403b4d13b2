# SPDX-License-Identifier: MIT
"""A task from a definition and a workload of flashinfer-bench: its run() as a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

import torch

from .._context import Context
from .._errors import FormatError, InvalidError, NoMemoryError, StitchError
from .._task import Dist
from . import _run
from ._module import clean
from ._task import ModuleTask, task as _module_task

if TYPE_CHECKING:
    from ..flashinfer_bench import Dataset, Definition, TensorSpec, Workload

# What flashinfer-bench draws integers from.
_INTEGERS = {"int8": (-128, 128), "int16": (-1024, 1024), "int32": (-1024, 1024), "int64": (-1024, 1024)}


def _torch_dtype(name: str) -> torch.dtype:
    made: torch.dtype = getattr(torch, name)
    return made


def _run_of(definition: "Definition") -> Callable[..., Any]:
    space: Dict[str, Any] = {"__name__": "flashinfer_bench_" + definition.name}
    try:
        exec(  # pylint: disable=exec-used
            compile(definition.reference, f"<reference of {definition.name}>", "exec"), space
        )
    except (Exception, SystemExit) as e:
        raise FormatError(f"{definition.name}: the reference cannot be loaded: {type(e).__name__}: {e}") from e
    run: Optional[Callable[..., Any]] = space.get("run")
    if run is None or not callable(run):
        raise FormatError(f"{definition.name}: the reference has no function run()")
    return run


class Reference(torch.nn.Module):
    """run() of a definition; its outputs by name."""

    def __init__(self, definition: "Definition", run: Callable[..., Any]) -> None:
        super().__init__()
        self._definition, self._run = definition, run

    def forward(self, **values: Any) -> Dict[str, torch.Tensor]:
        definition = self._definition
        device = next((v.device for v in values.values() if isinstance(v, torch.Tensor)), torch.device("cpu"))
        made = self._run(*(values[name] for name in definition.inputs))
        if isinstance(made, dict):
            missing = [name for name in definition.outputs if name not in made]
            found = [made.get(name) for name in definition.outputs]
        else:
            found = list(made) if isinstance(made, (list, tuple)) else [made]
            missing = list(definition.outputs)[len(found) :]
        if missing or len(found) != len(definition.outputs):
            raise FormatError(
                f"{definition.name}: run() gives {len(found)} results; the outputs are {', '.join(definition.outputs)}"
            )
        return {
            name: self._checked(name, spec, value, device)
            for (name, spec), value in zip(definition.outputs.items(), found)
        }

    def _checked(self, name: str, spec: "TensorSpec", value: Any, device: torch.device) -> torch.Tensor:
        wanted = _torch_dtype(spec.dtype)
        if isinstance(value, (bool, int, float)):
            value = torch.tensor(value, dtype=wanted, device=device)
        if not isinstance(value, torch.Tensor):
            raise FormatError(f"{self._definition.name}: run() gives a {type(value).__name__} for {name}")
        double = _run.in_double() and wanted.is_floating_point
        if value.dtype is not wanted and not (double and value.dtype is torch.float64):
            raise FormatError(
                f"{self._definition.name}: run() gives {str(value.dtype)[6:]} for {name}, which is declared as {spec.dtype}"
            )
        return value


def _drawn(place: str, name: str, spec: "TensorSpec", shape: List[int], device: torch.device) -> torch.Tensor:
    try:
        return _random(spec, shape, device)
    except (TypeError, RuntimeError, MemoryError) as e:  # a TypeError: the extents have no room in 64 bits
        why = str(e).split("\n", 1)[0]
        raise NoMemoryError(f"{place}: input {name} ({spec.dtype}, {shape}) cannot be made on {device}: {why}") from e


def _random(spec: "TensorSpec", shape: List[int], device: torch.device) -> torch.Tensor:
    dtype = _torch_dtype(spec.dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, device=device).to(dtype)
    if spec.dtype in _INTEGERS:
        return torch.randint(*_INTEGERS[spec.dtype], shape, dtype=dtype, device=device)
    return torch.randn(shape, device=device).to(dtype)


def _dist(spec: "TensorSpec") -> Dist:
    if spec.dtype == "bool":
        return Dist("bernoulli", 0.5)
    if spec.dtype in _INTEGERS:
        return Dist("randint", *_INTEGERS[spec.dtype])
    return Dist("normal", 0, 1)


def task_of(
    data: "Dataset",
    definition: "Definition",
    workload: "Workload",
    *,
    ctx: Optional[Context],
    device: Any,
    seed: int,
    **options: Any,
) -> ModuleTask:
    """What Dataset.task() documents."""
    from ..flashinfer_bench import read_tensor  # pylint: disable=import-outside-toplevel,cyclic-import

    if device is None:
        if ctx is not None:
            device = "cpu" if ctx.device.simulated else f"cuda:{ctx.device.ordinal}"
        else:
            device = "cuda:0" if torch.cuda.is_available() else "cpu"
    place = torch.device(device)
    dims, taken = workload.dims(definition), dict.fromkeys(definition.axes, True)
    for name, size in dims.items():
        if size < 1:
            raise InvalidError(f"{definition.name}: axis {name} is {size}; tasks have at least one element")
    values: Dict[str, Any] = {}
    shapes: Dict[str, List[str]] = {}
    dists: Dict[str, Any] = {}
    with torch.random.fork_rng(devices=[place.index or 0] if place.type == "cuda" else []):
        torch.manual_seed(seed)
        for name, spec in definition.inputs.items():
            given = workload.inputs[name]
            if spec.shape is None:
                values[name] = (
                    given["value"]
                    if given["type"] == "scalar"
                    else _drawn(definition.name, name, spec, [], place).item()
                )
                continue
            label = clean(name, taken)
            taken[label] = True
            shapes[label], extents = list(spec.shape), list(definition.shape(spec, workload))
            if given["type"] == "safetensors":
                raw = read_tensor(data.root, given["path"], given["tensor_key"], spec.dtype, extents)
                made = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(_torch_dtype(spec.dtype))
                values[name], dists[label] = made.view(extents).to(place), "data"
            else:
                values[name], dists[label] = _drawn(definition.name, name, spec, extents, place), _dist(spec)
                if definition.op_type == "sampling" and name == "probs":  # rows that sum to one
                    values[name], dists[label] = values[name].softmax(-1), "data"
    for name, spec in definition.outputs.items():
        label = clean(name, taken)
        taken[label] = True
        shapes[label] = list(spec.shape or ())
    run = _run_of(definition)
    options.setdefault("name", definition.name)
    options.setdefault("source", definition.reference)
    if "description" not in options:
        options["description"] = _describe(definition, workload, values)
    options.setdefault("baselines", ("eager",) if place.type == "cuda" else ())
    try:
        return _module_task(
            Reference(definition, run),
            values,
            ctx=ctx,
            dims=dims,
            shapes=shapes,
            dists=dists,
            batch=None,
            constructor=lambda: Reference(definition, run),
            **options,
        )
    except StitchError as e:
        if definition.name not in e.message:
            raise type(e)(f"{definition.name}: {e.message}", e.details, e.domain, e.native) from e
        raise


def _describe(definition: "Definition", workload: "Workload", values: Dict[str, Any]) -> str:
    lines = [definition.description or f"What run() of {definition.name} computes."]
    numbers = [f"{name} = {value!r}" for name, value in values.items() if not isinstance(value, torch.Tensor)]
    if numbers:
        lines.append("Numbers that it is called with: " + ", ".join(numbers) + ".")
    if definition.constraints:
        lines.append("It holds that " + "; ".join(definition.constraints) + ".")
    fixed = [name for name, given in workload.inputs.items() if given["type"] == "safetensors"]
    if fixed:
        lines.append("Recorded data, the same in each run: " + ", ".join(fixed) + ".")
    lines.append(
        "Outputs are " + ", ".join(f"{name} ({spec.dtype})" for name, spec in definition.outputs.items()) + "."
    )
    return "\n".join(lines)

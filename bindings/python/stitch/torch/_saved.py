# SPDX-License-Identifier: MIT
"""Files of optimised modules: a zip with the program and, as JSON, how it belongs to the module."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import torch

from .._context import Context, Path
from .._core import Uses
from .._errors import FormatError, NotFoundError, StitchError
from .._interface import Interface, interface_from, interface_new
from .._program import Program
from . import _data, _run, _tree
from ._module import Spec

_FORMAT = 1
Shapes = Dict[str, Tuple[int, ...]]


@dataclass(frozen=True)
class Saved:
    """What a file holds. shapes: of all tensors, for each batch; training: the mode that the program is for."""

    program: bytes
    spec: Spec
    shapes: Mapping[int, Shapes]
    training: bool
    report: Dict[str, Any]
    reports: Sequence[Dict[str, Any]]
    notes: Sequence[str]


def word(dtype: torch.dtype) -> str:
    return str(dtype).rpartition(".")[2]


def _dtype(name: str) -> torch.dtype:
    found = {word(dtype): dtype for dtype in _data.DTYPES}
    return found[name]


# ---- writing ---------------------------------------------------------------------------------------------------------


def write(path: Path, saved: Saved) -> None:
    spec = saved.spec
    document = {
        "stitch_torch": _FORMAT,
        "arguments": _tree.to_json(spec.arguments),
        "results": _tree.to_json(spec.results),
        "inputs": [[name, word(dtype), list(shape)] for name, dtype, shape in spec.inputs],
        "outputs": [[name, word(dtype), list(shape)] for name, dtype, shape in spec.outputs],
        "draws": [
            [name, [d.kind, d.a, d.b, word(d.dtype), list(d.shape)], list(shape)] for name, d, shape in spec.draws
        ],
        "weights": [list(pair) for pair in zip(spec.weights, spec.paths)],
        "written": list(spec.written),
        "batch": spec.batch,
        "dims": dict(spec.dims),
        "shapes": {str(b): {k: list(v) for k, v in named.items()} for b, named in saved.shapes.items()},
        "training": saved.training,
        "report": saved.report,
        "reports": saved.reports,
        "notes": saved.notes,
    }
    with zipfile.ZipFile(os.fsdecode(path), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("module.json", json.dumps(document))
        archive.writestr("program.stitch", saved.program)


# ---- reading ---------------------------------------------------------------------------------------------------------


def _open(path: Path) -> Tuple[Any, bytes]:
    with zipfile.ZipFile(os.fsdecode(path)) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        if sizes.get("module.json", 0) > 64 << 20 or sizes.get("program.stitch", 0) > 256 << 20:
            raise ValueError("its parts are too large")
        return json.loads(archive.read("module.json")), archive.read("program.stitch")


def read(path: Path) -> Saved:
    """FormatError for a file that is none; check() says whether the program is the one that it was saved with."""
    try:
        document, program = _open(path)
        return _from_document(document, program)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path!s}") from None
    except Exception as e:  # whatever zipfile, json and what follows make of a broken file
        raise FormatError(f"{path!s} is no saved module: {type(e).__name__}: {e}") from e


def _need(true: bool, what: str) -> None:
    if not true:
        raise ValueError(what)


def _texts(value: Any) -> Tuple[str, ...]:
    _need(isinstance(value, list) and all(isinstance(item, str) for item in value), "it has no list of texts")
    return tuple(value)


def _tensors_from(rows: Sequence[Any]) -> Tuple[Tuple[str, torch.dtype, Tuple[str, ...]], ...]:
    return tuple((str(name), _dtype(dtype), _texts(shape)) for name, dtype, shape in rows)


def _draw_from(kind: Any, a: Any, b: Any, dtype: Any, shape: Any) -> _run.Draw:
    draw = _run.Draw(str(kind), float(a), float(b), _dtype(dtype), tuple(map(int, shape)))
    _need(draw.kind in ("normal", "uniform", "bernoulli", "randint"), f"it draws {draw.kind}")
    with torch.random.fork_rng(devices=[]):
        draw.sample((1,), "cpu")  # raises where the parameters are none
    return draw


def _from_document(document: Any, program: bytes) -> Saved:
    _need(document["stitch_torch"] == _FORMAT, f"it has format {document['stitch_torch']}; {_FORMAT} is known")
    spec = Spec(
        _tree.from_json(document["arguments"]),
        _tensors_from(document["inputs"]),
        tuple((str(name), _draw_from(*how), _texts(shape)) for name, how, shape in document["draws"]),
        tuple(str(name) for name, _ in document["weights"]),
        tuple(str(at) for _, at in document["weights"]),
        _tree.from_json(document["results"]),
        _tensors_from(document["outputs"]),
        tuple(int(i) for i in document["written"]),
        document["batch"],
        {str(name): int(value) for name, value in document["dims"].items()},
    )
    shapes = {int(b): {k: tuple(map(int, v)) for k, v in named.items()} for b, named in document["shapes"].items()}
    _need(all(i in range(len(spec.inputs)) for i in spec.written), "it has no such input")
    _need(spec.batch is None or spec.dims[spec.batch] in shapes, "it lacks the example's batch")
    _need(_tree.is_call(spec.arguments), "its arguments are none")
    for tree, tensors in ((spec.arguments, spec.inputs), (spec.results, spec.outputs)):
        _need(_tree.indices(tree) == list(range(len(tensors))), "arguments or results have other tensors")
    names = _names(spec)
    _need(len(set(names)) == len(names), "a name is there twice")
    _need(bool(shapes) and all(name in named for named in shapes.values() for name in names), "it lacks shapes")
    report, reports, notes = document["report"], document["reports"], _texts(document["notes"])
    _need(all(isinstance(one, dict) for one in (report, report.get("summary", {}), *reports)), "it has no reports")
    _need(isinstance(report.get("summary", {}).get("speedup") or 0, (int, float)), "it has no speed-up")
    return Saved(program, spec, shapes, bool(document["training"]), report, reports, notes)


def _names(spec: Spec) -> List[str]:
    return [name for name, *_ in (*spec.inputs, *spec.draws, *spec.outputs)] + list(spec.weights)


def check(path: Path, ctx: Context, program: Program, saved: Saved) -> None:
    """FormatError if the program is for other tensors than the file says."""
    spec, interface = saved.spec, program.interface
    kinds = {name: (dtype, texts) for name, dtype, texts in (*spec.inputs, *spec.outputs)}
    kinds.update({name: (draw.dtype, texts) for name, draw, texts in spec.draws})
    try:
        if interface is None:
            raise ValueError("the program has no tensors")
        for name, (dtype, texts) in kinds.items():
            tensor = interface[name]
            _need(_data.TORCH[tensor.dtype] == dtype and tensor.shape_expr == texts, f"the program has another {name}")
        for batch, shapes in saved.shapes.items():
            dims = {**spec.dims, **({spec.batch: batch} if spec.batch else {})}
            with Uses(ctx) as (context,):
                at = interface_from(interface_new(context or 0, Interface(dims, interface.tensors)).pointer)
            for name in _names(spec):
                _need(at[name].shape == shapes[name], f"the program has another shape of {name}")
    except (StitchError, ValueError) as e:
        raise FormatError(f"{path!s} is no saved module: {e}") from e

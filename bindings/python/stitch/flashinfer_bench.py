# SPDX-License-Identifier: MIT
"""flashinfer-bench: tasks from the definitions and workloads of a dataset folder, solutions and traces for it.

    data = stitch.flashinfer_bench.read("dataset")
    for workload in data.workloads["gemm_n4096_k4096"]:
        with data.task(workload, ctx=ctx) as task:
            ...                                      # stitch.loop(), stitch.verify()

Nothing of flashinfer-bench is needed. task() needs PyTorch, and runs the definition's `reference`, which is code of the
dataset, in this process.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import struct
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _solution
from ._context import Context, Path
from ._errors import FileError, FormatError, InvalidError, NotFoundError, UnsupportedError
from ._interface import Dtype
from ._program import Program
from ._verify import Report

if TYPE_CHECKING:
    from .torch import ModuleTask

DTYPES: Dict[str, Optional[Dtype]] = {
    "float32": Dtype.F32,
    "float16": Dtype.F16,
    "bfloat16": Dtype.BF16,
    "float8_e4m3fn": Dtype.F8E4M3,
    "float8_e5m2": Dtype.F8E5M2,
    "float4_e2m1": None,  # known to the format, not to the library
    "int64": Dtype.I64,
    "int32": Dtype.I32,
    "int16": Dtype.I16,
    "int8": Dtype.I8,
    "bool": Dtype.BOOL,
}
_SAFETENSORS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn"}
_SAFETENSORS.update({"F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8"})
_SAFETENSORS["BOOL"] = "bool"
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2}  # others: 1
_HEADER = 100 << 20  # bytes that the header of a safetensors file may have
_DOCUMENT = 64 << 20  # and a JSON file


@dataclass(frozen=True)
class TensorSpec:
    """shape: names of axes; None: a number."""

    dtype: str
    shape: Optional[Tuple[str, ...]]


@dataclass(frozen=True)
class Definition:
    """axes: the value of constant ones, None for those that a workload sets."""

    name: str
    op_type: str
    axes: Mapping[str, Optional[int]]
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    reference: str
    description: str = ""
    constraints: Tuple[str, ...] = ()
    tags: Tuple[str, ...] = ()

    def shape(self, spec: TensorSpec, workload: "Workload") -> Tuple[int, ...]:
        return tuple(workload.dims(self)[axis] for axis in spec.shape or ())


@dataclass(frozen=True)
class Workload:
    """inputs: {"type": "random"}, {"type": "scalar", "value": ...}, or {"type": "safetensors", "path": ...,
    "tensor_key": ...}."""

    definition: str
    uuid: str
    axes: Mapping[str, int]
    inputs: Mapping[str, Mapping[str, Any]]

    def dims(self, definition: Definition) -> Dict[str, int]:
        return {name: self.axes[name] if value is None else value for name, value in definition.axes.items()}

    @property
    def json(self) -> Dict[str, Any]:
        return {"uuid": self.uuid, "axes": dict(self.axes), "inputs": {k: dict(v) for k, v in self.inputs.items()}}


# ---- reading ---------------------------------------------------------------------------------------------------------


def _member(document: Any, name: str, kind: Any, where: str, default: Any = ...) -> Any:
    """A member of a JSON object, of this type. FormatError if it is missing or another. None counts as missing where
    there is a default."""
    if not isinstance(document, dict):
        raise FormatError(f"{where}: it is no object")
    value = document.get(name)
    if value is None and default is not ...:
        return default
    if name not in document:
        raise FormatError(f"{where}: '{name}' is missing")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        wanted = {str: "text", dict: "an object", list: "a list", int: "an integer"}.get(kind, "a value")
        raise FormatError(f"{where}: '{name}' must be {wanted}")
    if kind is str and not value and default is ...:
        raise FormatError(f"{where}: '{name}' is empty")
    return value


def _name(text: Any, where: str) -> str:
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,239}", text):
        raise FormatError(f"{where}: {text!r} is no name: letters, digits and _ are, not beginning with a digit")
    return text


def _texts(document: Any, name: str, where: str) -> Tuple[str, ...]:
    found = _member(document, name, list, where, [])
    if not all(isinstance(text, str) for text in found):
        raise FormatError(f"{where}: '{name}' must be a list of texts")
    return tuple(found)


def _specs(document: Any, name: str, axes: Mapping[str, Any], where: str) -> Dict[str, TensorSpec]:
    found = {}
    for label, spec in _member(document, name, dict, where).items():
        place = f"{where}: {name}.{label}"
        _name(label, place)
        dtype = _member(spec, "dtype", str, place)
        if dtype not in DTYPES:
            raise FormatError(f"{place}: the dtype {dtype!r} is not known; there are {', '.join(DTYPES)}")
        if "shape" not in spec:
            raise FormatError(f"{place}: 'shape' is missing; null is a number")
        shape = spec["shape"]
        if shape is not None:
            if not isinstance(shape, list):
                raise FormatError(f"{place}: 'shape' must be a list of axes, or null")
            for axis in shape:
                if not isinstance(axis, str) or axis not in axes:
                    raise FormatError(f"{place}: there is no axis {axis!r}")
        found[label] = TensorSpec(dtype, None if shape is None else tuple(shape))
    return found


def parse_definition(document: Any, where: str = "the definition") -> Definition:
    """From a JSON object. FormatError says what is wrong with it; its `reference` is parsed, not run."""
    axes: Dict[str, Optional[int]] = {}
    for name, axis in _member(document, "axes", dict, where).items():
        place = f"{where}: axes.{_name(name, where)}"
        kind = _member(axis, "type", str, place)
        if kind not in ("const", "var"):
            raise FormatError(f"{place}: the type {kind!r} is not known; const and var are")
        axes[name] = _member(axis, "value", int, place) if kind == "const" else None
        if (axes[name] or 0) < 0:
            raise FormatError(f"{place}: it is negative")
    inputs, outputs = _specs(document, "inputs", axes, where), _specs(document, "outputs", axes, where)
    if not outputs:
        raise FormatError(f"{where}: there are no outputs")
    for name in inputs:
        if name in outputs:
            raise FormatError(f"{where}: '{name}' is an input and an output")
    reference = _member(document, "reference", str, where)
    try:
        body = ast.parse(reference).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise FormatError(f"{where}: the reference is no Python: {e}") from None
    if not any(isinstance(part, ast.FunctionDef) and part.name == "run" for part in body):
        raise FormatError(f"{where}: the reference has no function run()")
    return Definition(
        _member(document, "name", str, where),
        _member(document, "op_type", str, where),
        axes,
        inputs,
        outputs,
        reference,
        _member(document, "description", str, where, ""),
        _texts(document, "constraints", where),
        _texts(document, "tags", where),
    )


def _source(name: str, spec: Any, given: Any, where: str) -> Dict[str, Any]:
    kind = _member(given, "type", str, where)
    if kind == "scalar":
        value = given.get("value")
        if spec.shape is not None:
            raise FormatError(f"{where}: {name} is a tensor, not a number")
        wanted = bool if spec.dtype == "bool" else int if spec.dtype.startswith("int") else (int, float)
        if not isinstance(value, wanted) or (isinstance(value, bool) and spec.dtype != "bool"):
            raise FormatError(f"{where}: {value!r} is no {spec.dtype}")
        if not math.isfinite(value):
            raise FormatError(f"{where}: {value!r} is no number that programs can be made for")
    elif kind == "safetensors":
        if spec.shape is None:
            raise FormatError(f"{where}: {name} is a number, not a tensor")
        _member(given, "path", str, where)
        _member(given, "tensor_key", str, where)
    elif kind != "random":
        raise FormatError(f"{where}: the type {kind!r} is not known; random, scalar and safetensors are")
    return dict(given)


def parse_workload(document: Any, definition: Definition, where: str = "the workload") -> Workload:
    """From the JSON object of a workload. Inputs that it does not name are random."""
    axes = {}
    for name, value in _member(document, "axes", dict, where).items():
        if name not in definition.axes:
            raise FormatError(f"{where}: the definition has no axis '{name}'")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise FormatError(f"{where}: axis {name} must be an integer of at least 0, not {value!r}")
        if definition.axes[name] not in (None, value):
            raise FormatError(f"{where}: axis {name} is {definition.axes[name]}, not {value}")
        axes[name] = value
    for name, fixed in definition.axes.items():
        if fixed is None and name not in axes:
            raise FormatError(f"{where}: axis '{name}' has no value")
    inputs = {name: {"type": "random"} for name in definition.inputs}
    for name, given in _member(document, "inputs", dict, where).items():
        if name not in definition.inputs:
            raise FormatError(f"{where}: the definition has no input '{name}'")
        inputs[name] = _source(name, definition.inputs[name], given, f"{where}: input {name}")
    return Workload(definition.name, _member(document, "uuid", str, where), axes, inputs)


def _text(path: str) -> str:
    try:
        if os.path.getsize(path) > _DOCUMENT:
            raise FormatError(f"{path} is too large for a JSON document")
        with open(path, encoding="utf-8") as text:
            return text.read()
    except UnicodeDecodeError:
        raise FormatError(f"{path} is no UTF-8 text") from None
    except OSError as e:
        raise FileError(f"{path} cannot be read: {e.strerror}") from None


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{where}: it is no JSON: {e}") from None


def _files(folder: str, ending: str) -> Iterator[str]:
    found = []
    for place, _, names in os.walk(folder):
        found += [os.path.join(place, name) for name in names if name.endswith(ending)]
    return iter(sorted(found))


def read(root: Path) -> "Dataset":
    """A dataset folder: definitions/**/*.json and workloads/**/*.jsonl. FormatError names the file, the line and the
    member that is wrong."""
    place = os.path.abspath(os.fsdecode(root))
    if not os.path.isdir(os.path.join(place, "definitions")):
        raise NotFoundError(f"{place} has no folder definitions")
    data = Dataset(place)
    for path in _files(os.path.join(place, "definitions"), ".json"):
        definition = parse_definition(_json(_text(path), path), path)
        if definition.name in data.definitions:
            raise FormatError(f"{path}: there is a second definition {definition.name}")
        data.definitions[definition.name] = definition
        data.workloads[definition.name] = []
    for path in _files(os.path.join(place, "workloads"), ".jsonl"):
        for number, line in enumerate(_text(path).split("\n"), 1):
            if line.strip():
                where = f"{path}, line {number}"
                row = _json(line, where)
                name = _member(row, "definition", str, where)
                if name not in data.definitions:
                    raise FormatError(f"{where}: there is no definition '{name}'")
                inner = _member(row, "workload", dict, where)
                data.workloads[name].append(parse_workload(inner, data.definitions[name], where))
    return data


# ---- tensors of files ------------------------------------------------------------------------------------------------


def _inside(root: str, path: str) -> str:
    """The file that a path of the dataset names. FormatError if it leads out of the folder."""
    place = os.path.realpath(os.path.join(root, path))
    if os.path.isabs(path) or os.path.commonpath([os.path.realpath(root), place]) != os.path.realpath(root):
        raise FormatError(f"the path {path!r} leads out of the folder {root}")
    return place


def _entry(file: Any, size: int, key: str, path: str) -> Tuple[int, Any]:
    """Where the data begins, and the header's entry of a tensor."""
    head = file.read(8)
    if head == b"version ":
        raise FormatError(f"{path} is a pointer of Git LFS: fetch it with `git lfs pull`")
    length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
    if not 2 <= length <= min(_HEADER, size - 8):
        raise FormatError(f"{path} is no safetensors file: its header would have {length} bytes")
    try:
        header = _json(file.read(length).decode(), f"{path}: the header")
    except UnicodeDecodeError:
        raise FormatError(f"{path}: the header is no UTF-8 text") from None
    if not isinstance(header, dict) or key == "__metadata__" or key not in header:
        raise FormatError(f"{path} has no tensor '{key}'")
    return 8 + length, header[key]


def read_tensor(root: Path, path: str, key: str, dtype: str, shape: Sequence[int]) -> bytes:
    """The bytes of a tensor of a safetensors file inside of a folder, which must have this dtype and shape."""
    place = _inside(os.path.abspath(os.fsdecode(root)), path)
    try:
        with open(place, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin, entry = _entry(file, size, key, path)
            where = f"{path}: tensor '{key}'"
            found, extents = _member(entry, "dtype", str, where), _member(entry, "shape", list, where)
            if _SAFETENSORS.get(found) != dtype or extents != list(shape):
                raise FormatError(f"{where} is {found} {extents}; the workload needs {dtype} {list(shape)}")
            offsets = _member(entry, "data_offsets", list, where)
            need = math.prod(shape) * _BYTES.get(dtype, 1)
            if len(offsets) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) for n in offsets):
                raise FormatError(f"{where}: 'data_offsets' must be two integers")
            if not 0 <= offsets[0] <= offsets[1] <= size - begin or offsets[1] - offsets[0] != need:
                raise FormatError(
                    f"{where} needs {need} bytes, but is said to be at {offsets} of {size - begin}: the file is damaged"
                )
            file.seek(begin + offsets[0])
            data: bytes = file.read(need)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path} in {os.fsdecode(root)}") from None
    except OSError as e:
        raise FileError(f"{path} cannot be read: {e.strerror}") from None
    if len(data) != need:
        raise FormatError(f"{path}: it ended early")
    return data


# ---- tasks -----------------------------------------------------------------------------------------------------------


@dataclass
class Dataset:
    """What read() found: definitions by name, workloads by the name of their definition."""

    root: str
    definitions: Dict[str, Definition] = field(default_factory=dict)
    workloads: Dict[str, List[Workload]] = field(default_factory=dict)

    def task(
        self, workload: Workload, *, ctx: Optional[Context] = None, device: Any = None, seed: int = 0, **options: Any
    ) -> "ModuleTask":
        """The task of a workload: its definition's axes are the dims, inputs of files keep their contents, random ones
        are drawn anew in each trial, numbers are constants. The definition's reference, run in this process, is the
        reference (in float64 where it stays there) and the baseline. seed: of numbers that the workload leaves open.
        `options` as for stitch.torch.task()."""
        from .torch import _flashinfer  # pylint: disable=import-outside-toplevel

        definition = self.definitions.get(workload.definition)
        if definition is None:
            raise NotFoundError(f"there is no definition '{workload.definition}'")
        for name, spec in {**definition.inputs, **definition.outputs}.items():
            if DTYPES[spec.dtype] is None:
                raise UnsupportedError(f"{definition.name}: {name} has the dtype {spec.dtype}, which is not known")
        for name, spec in definition.outputs.items():
            if spec.shape is None:
                raise UnsupportedError(f"{definition.name}: the output {name} is a number, not a tensor")
        return _flashinfer.task_of(self, definition, workload, ctx=ctx, device=device, seed=seed, **options)

    # -- writing

    def _write(self, parts: Sequence[str], text: str, mode: str) -> str:
        for part in parts:
            if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.+-]*", part):
                raise InvalidError(f"{part!r} cannot be the name of a file: letters, digits and _ - . + can")
        place = _inside(self.root, os.path.join(*parts))
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, mode, encoding="utf-8") as file:
                file.write(text)
        except OSError as e:
            raise FileError(f"{place} cannot be written: {e.strerror}") from None
        return place

    def write_solution(self, document: Mapping[str, Any]) -> str:
        """Writes what solution() gave to solutions/<author>/<op_type>/<definition>/<name>.json; the path."""
        name = document["definition"]
        if name not in self.definitions:
            raise NotFoundError(f"there is no definition '{name}'")
        folder = ["solutions", document["author"], self.definitions[name].op_type, name]
        return self._write([*folder, document["name"] + ".json"], json.dumps(document, indent=2) + "\n", "w")

    def append_trace(self, document: Mapping[str, Any], author: str) -> str:
        """Appends what trace() gave to traces/<author>/<op_type>/<definition>.jsonl; the path."""
        name = document["definition"]
        if name not in self.definitions:
            raise NotFoundError(f"there is no definition '{name}'")
        parts = ["traces", author, self.definitions[name].op_type, name + ".jsonl"]
        return self._write(parts, json.dumps(document, allow_nan=False) + "\n", "a")


# ---- solutions and traces --------------------------------------------------------------------------------------------


def solution(
    definition: Definition,
    programs: Sequence[Tuple["ModuleTask", Union[Program, bytes]]],
    *,
    name: str,
    author: str,
    description: str = "",
) -> Dict[str, Any]:
    """A Solution of programs, each with the task (of a workload of the definition) that it was verified for: C++ for
    PyTorch's extension loader, which compiles the device code with NVRTC and does not need libstitch. Its function
    run(inputs..., outputs...) takes the program for the shapes and numbers of a call, and refuses others.
    UnsupportedError names what cannot be exported."""
    if not programs:
        raise InvalidError("a solution needs a program")
    kinds = {}
    for label, spec in definition.inputs.items():
        number = "bool" if spec.dtype == "bool" else "int64_t" if spec.dtype.startswith("int") else "double"
        kinds[label] = number if spec.shape is None else "tensor"
    variants = []
    for task, program in programs:
        names, scalars = _names(definition, task)
        held = Program.from_bytes(task._ctx, program) if isinstance(program, bytes) else program
        try:
            variants.append(_solution.Variant(held.source, held.plan, task.interface, scalars, names))
        finally:
            if held is not program:
                held.close()
    files = _solution.to_sources(variants, kinds, list(definition.outputs))
    made: Dict[str, Any] = {
        "name": name,
        "definition": definition.name,
        "author": author,
        "spec": {
            "language": "cuda",
            "target_hardware": ["cuda"],
            "entry_point": "::".join(_solution.ENTRY),
            "dependencies": [],
            "destination_passing_style": True,
            "binding": "torch",
        },
        "sources": [{"path": path, "content": text} for path, text in files],
    }
    if description:
        made["description"] = description
    return made


def _names(definition: Definition, task: "ModuleTask") -> Tuple[Dict[str, str], Dict[str, Any]]:
    """Names in the task of the definition's tensors, and its numbers."""
    _, keys, items, _ = task.spec.arguments[2][1]
    given = [label for label, _, _ in task.spec.outputs]
    if list(keys) != list(definition.inputs) or len(given) != len(definition.outputs) or task.spec.weights:
        raise InvalidError(f"the task {task.name} is not one of {definition.name}")
    names = dict(zip(definition.outputs, given))
    scalars = {}
    for key, item in zip(keys, items):
        if isinstance(item, int):
            names[key] = task.spec.inputs[item][0]
        else:
            scalars[key] = item[1]
    return names, scalars


_STATUS = {"format": "COMPILE_ERROR", "validate": "COMPILE_ERROR", "compile": "COMPILE_ERROR"}
_STATUS.update({"simulate": "RUNTIME_ERROR", "load": "RUNTIME_ERROR", "prepare": "RUNTIME_ERROR"})


def _error(value: Any) -> Any:
    """JSON of a figure; numbers that JSON does not have are texts, as flashinfer-bench writes them."""
    number = float(value or 0)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity"


def trace(
    workload: Workload, solution_name: str, report: Union[Report, Mapping[str, Any]], *, log: Optional[str] = None
) -> Dict[str, Any]:
    """A Trace of a verification: status, errors, latency of program and main baseline (medians), environment. A right
    program must have been timed (InvalidError). On a degenerate task nothing can be won: the factor is 0."""
    document = report.json if isinstance(report, Report) else report
    figures, environment = document["summary"], document.get("environment") or {}
    stage, reason = figures.get("failed_stage"), figures.get("status")
    if reason == "STITCH_E_TIMEOUT":
        status = "TIMEOUT"
    elif stage is None and figures.get("correct"):
        status = "PASSED"
    elif stage in _STATUS or reason in ("STITCH_E_FAULT", "STITCH_E_NOMEM"):
        status = _STATUS.get(stage or "", "RUNTIME_ERROR")
    else:
        status = "INCORRECT_NUMERICAL"
    if stage is None and not figures.get("correct"):
        raise InvalidError("the verification ended before outputs were compared; there is nothing to trace")
    if status == "PASSED" and not figures.get("timed"):
        raise InvalidError("a trace of a right program has its times; verify() it to the stage time")
    software = ("library", "driver", "driver_release", "nvrtc", "cublaslt")
    libs = {key: str(environment[key]) for key in software if environment.get(key)}
    said = log if log is not None else figures.get("degenerate_reason") or ""
    if log is None and status != "PASSED":
        said = next((row["message"] for row in document.get("stages", []) if row["stage"] == stage), "")
    evaluation: Dict[str, Any] = {
        "status": status,
        "environment": {
            "hardware": str(environment.get("device") or "unknown"),
            "libs": {"libstitch" if key == "library" else key: value for key, value in libs.items()},
        },
        "timestamp": datetime.now(timezone.utc).isoformat(),
        "log": said,
        "correctness": None,
        "performance": None,
    }
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        evaluation["correctness"] = {
            "max_relative_error": _error(figures.get("max_rel_error")),
            "max_absolute_error": _error(figures.get("max_abs_error")),
        }
        if figures.get("degenerate"):
            evaluation["correctness"]["extra"] = {"degenerate": True}
    if status == "PASSED":
        evaluation["performance"] = {
            "latency_ms": figures["median_us"] / 1000,
            "reference_latency_ms": figures["baseline_us"] / 1000,
            "speedup_factor": figures.get("speedup") or 0.0,
        }
    return {
        "definition": workload.definition,
        "workload": workload.json,
        "solution": solution_name,
        "evaluation": evaluation,
    }

# SPDX-License-Identifier: MIT
"""KernelBench-format files: Model, get_inputs() and get_init_inputs() in one Python file."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import os
import sys
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import torch

from .._context import Path
from .._errors import FormatError, InvalidError, NotFoundError
from . import _run

_number = itertools.count()


@dataclass(frozen=True)
class ModelFile:
    """A file that was imported. model() makes one more module with the same constructor's arguments."""

    path: str
    name: str
    source: str
    model_class: Any
    get_inputs: Callable[[], Any]
    get_init_inputs: Callable[[], Any]

    def model(self) -> torch.nn.Module:
        made = self._ask("get_init_inputs", self.get_init_inputs)
        args, kwargs = _call(made)
        module = self._ask("Model", lambda: self.model_class(*args, **kwargs))
        if not isinstance(module, torch.nn.Module):
            raise FormatError(f"{self.path}: Model is no torch.nn.Module")
        return module

    def inputs(self) -> List[Any]:
        made = self._ask("get_inputs", self.get_inputs)
        if not isinstance(made, (list, tuple)):
            raise FormatError(f"{self.path}: get_inputs() returned a {type(made).__name__}, not a list")
        return list(made)

    def _draw(self, place: torch.device) -> List[Any]:
        """The inputs, drawn where they are needed: gigabytes take long on the CPU."""
        if place.type != "cpu":
            try:
                with place:
                    return self.inputs()
            except FormatError:
                pass  # they are made of something that must be on the CPU
        return self.inputs()

    def _ask(self, what: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except torch.OutOfMemoryError:
            raise
        except (Exception, SystemExit) as e:
            raise FormatError(f"{self.path}: {what}() raised {type(e).__name__}: {e}") from e

    def load(
        self, device: Any = "cpu", seed: int = 0, dtype: Optional[torch.dtype] = None
    ) -> Tuple[torch.nn.Module, List[Any]]:
        """Module and inputs on the device, drawn with `seed`, then cast to dtype where they are floating; the caller's
        generators are left alone."""
        place = torch.device(device)
        with torch.random.fork_rng(devices=[place.index or 0] if place.type == "cuda" else []):
            torch.manual_seed(seed)
            module = self.model()
            inputs = _moved(self._draw(place), place, dtype)
        _run.move(module, place, dtype)
        return module, inputs


def _moved(value: Any, place: torch.device, dtype: Optional[torch.dtype]) -> Any:
    """The tensors of nested lists, tuples and dicts on a device; dtype: of what is floating."""
    if isinstance(value, torch.Tensor):
        return value.to(device=place, dtype=dtype if value.is_floating_point() else None)
    if isinstance(value, dict):
        items = {key: _moved(item, place, dtype) for key, item in value.items()}
        return items if type(value) is dict else type(value)(items)
    if isinstance(value, (list, tuple)):
        parts = [_moved(item, place, dtype) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _call(init: Any) -> Tuple[List[Any], Dict[str, Any]]:
    """What get_init_inputs() gives: positional arguments, or a dict of keywords (alone, or as [[...], {...}])."""
    if isinstance(init, dict):
        return [], dict(init)
    init = list(init)
    if len(init) == 2 and isinstance(init[0], (list, tuple)) and isinstance(init[1], dict):
        return list(init[0]), dict(init[1])
    return init, {}


def _initialised() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _assigned(step: ast.stmt) -> Iterator[Tuple[str, ast.expr]]:
    """Names that a statement assigns, each with the expression of its value: a = 1, a = b = 1, a: int = 1, a, b = 1, 2."""
    if isinstance(step, ast.AnnAssign):
        targets: List[ast.expr] = [step.target]
    elif isinstance(step, ast.Assign):
        targets = step.targets
    else:
        return
    for target in targets:
        if isinstance(target, ast.Name) and step.value is not None:
            yield target.id, step.value
        elif isinstance(target, ast.Tuple) and isinstance(step.value, ast.Tuple):
            if len(target.elts) == len(step.value.elts):
                for name, value in zip(target.elts, step.value.elts):
                    if isinstance(name, ast.Name):
                        yield name.id, value


def _with_values(source: str, values: Mapping[str, Any], place: str) -> str:
    """The source with other values for names that it assigns at its top level."""
    for name, value in values.items():
        try:
            ast.literal_eval(repr(value))
        except (ValueError, SyntaxError):
            raise InvalidError(f"the value of {name} is no number, string, list or the like: {value!r}") from None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as e:
        raise FormatError(f"{place} cannot be imported: {type(e).__name__}: {e}") from e
    begins = [0]  # of lines, in bytes, as the tree counts
    for line in source.encode().splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    places: Dict[int, Tuple[int, bytes]] = {}  # of expressions, by begin: end, what takes its place
    names = set()
    for step in tree.body:
        for name, at in _assigned(step):
            if name in values and at.end_lineno is not None and at.end_col_offset is not None:
                begin, end = begins[at.lineno - 1] + at.col_offset, begins[at.end_lineno - 1] + at.end_col_offset
                new = repr(values[name]).encode()
                if places.setdefault(begin, (end, new)) != (end, new):
                    raise InvalidError(f"{place} assigns {name} together with another name: they have one value")
                names.add(name)
    missing = sorted(set(values) - names)
    if missing:
        raise FormatError(f"{place} assigns no {missing[0]} at its top level, so it cannot have another value")
    text = source.encode()
    for begin, (end, new) in sorted(places.items(), reverse=True):
        text = text[:begin] + new + text[end:]
    return text.decode()


def read(path: Path, values: Optional[Mapping[str, Any]] = None) -> ModelFile:
    """Imports the file into this process: it is code that runs here, with all rights of this process. values: numbers,
    strings, lists, ... for names that the file assigns at its top level, in place of its own. FormatError if that fails
    or a member is missing."""
    place = os.fspath(path)
    place = place.decode() if isinstance(place, bytes) else place
    try:
        with open(place, encoding="utf-8") as text:
            source = text.read()
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {place}") from None
    except (OSError, UnicodeDecodeError) as e:
        raise FormatError(f"{place} cannot be read: {e}") from e
    if values:
        source = _with_values(source, values, place)
    module_name = f"_stitch_file_{next(_number)}"
    spec = importlib.util.spec_from_file_location(module_name, place)
    if spec is None or spec.loader is None:
        raise FormatError(f"{place} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # classes in it look themselves up there
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if _initialised() else []):
        try:
            if values:
                exec(compile(source, os.path.abspath(place), "exec"), module.__dict__)  # pylint: disable=exec-used
            else:
                spec.loader.exec_module(module)
        except (Exception, SystemExit) as e:
            del sys.modules[module_name]
            raise FormatError(f"{place} cannot be imported: {type(e).__name__}: {e}") from e
    found: Dict[str, Optional[Any]] = {
        name: getattr(module, name, None) for name in ("Model", "get_inputs", "get_init_inputs")
    }
    for name, member in found.items():
        if not callable(member):
            del sys.modules[module_name]
            raise FormatError(f"{place} has no {name}; Model, get_inputs() and get_init_inputs() are needed")
    name = os.path.splitext(os.path.basename(place))[0]
    return ModelFile(place, name, source, found["Model"], found["get_inputs"], found["get_init_inputs"])  # type: ignore[arg-type]

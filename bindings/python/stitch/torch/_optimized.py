# SPDX-License-Identifier: MIT
"""The module that runs a verified program where it may and the original where not, and its files."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import torch
from torch.autograd import forward_ad

from .._context import Context, Path
from .._errors import FormatError, InvalidError
from . import _data, _places, _run, _saved, _tree
from ._engine import Engine, Form, seen
from ._module import device_of, fitting_context
from ._saved import Saved


class Optimized(torch.nn.Module):
    """A module that runs a verified program where it may, and the original where not: other shapes than were verified,
    dtypes or devices, gradients that are wanted (forward-mode ones, too), torch.func's transforms, autocast, the other
    mode (training, evaluation), non-dense arguments.

    original    the module that it was made of; its parameters are this one's
    speedup     against the main baseline, as verified; 0: not measured
    report      the verification of the program, as a dict (docs/report-format.md)
    reports     those of all attempts
    notes       what the task's making found
    enabled     False: the original always runs
    runs, fallbacks   how many calls went which way (not counted in compiled code)

    What forward changes beside its result (running statistics) is not done by the program, and it calls no hooks of the
    original and its parts.
    """

    def __init__(
        self,
        original: torch.nn.Module,
        engine: Engine,
        report: Dict[str, Any],
        reports: Sequence[Dict[str, Any]] = (),
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.original = original
        self.training = original.training
        self.report, self.reports, self.notes = report, list(reports), list(notes)
        self.speedup = float(report.get("summary", {}).get("speedup") or 0)
        self.enabled = True
        self.runs = self.fallbacks = 0
        self._mode = original.training
        self._set_engine(engine)

    def _set_engine(self, engine: Engine) -> None:
        spec = engine.spec
        self._engine, self._handle = engine, engine.handle
        self._held = _places.places(self.original, spec.paths)
        self._aliases = _places.aliases(self.original, spec.paths, self._held)
        self._batches = tuple(engine.shapes)
        self._device_type = engine.device.type
        some = engine.shapes[self._batches[0]]
        # Extents with None where the batch is.
        self._inputs = [
            (
                dtype,
                tuple(
                    None if spec.batch and i == 0 and text == spec.batch else n
                    for i, (text, n) in enumerate(zip(texts, some[name]))
                ),
            )
            for name, dtype, texts in spec.inputs
        ]
        self._draws = [(draw, {b: engine.shapes[b][name] for b in self._batches}) for name, draw, _ in spec.draws]
        interface = engine.program.interface
        if interface is None or any(name not in interface for name in spec.weights):
            raise FormatError("the program was saved for other tensors than the module has; save both again")
        self._weights = [(_data.TORCH[interface[name].dtype], tuple(some[name])) for name in spec.weights]
        # For _quick(): calls with tensors by position and nothing else.
        arguments, keywords = spec.arguments[2]
        plain = all(isinstance(item, int) for item in arguments[2]) and not keywords[2] and not self._draws
        self._count = len(arguments[2]) if plain and self._device_type == "cuda" else -1
        self._dtypes = [dtype for _, dtype, _ in spec.inputs]
        self._forms = {
            tuple(tuple(shapes[name]) for name, _, _ in spec.inputs): Form(spec, batch, shapes)
            for batch, shapes in engine.shapes.items()
        }
        self._follow()
        self._single = isinstance(spec.results, int)

    def _follow(self) -> None:
        """For _quick(): where the weights are now."""
        self._tables = _places.tables(self._held)
        self._links = _places.links(self._held, self._aliases)

    def _current(self) -> Optional[List[torch.Tensor]]:
        """The weights as they are now; None: one is gone, or the module has another in a second place."""
        weights = [getattr(owner, name) for owner, name in self._held]
        if any(weight is None for weight in weights):
            return None
        if any(inside.tensor is not getattr(owner, name) for inside, owner, name in self._aliases):
            return None
        return weights

    @property
    def source(self) -> str:
        """The program's device code."""
        return self._engine.program.source

    @property
    def plan(self) -> Dict[str, Any]:
        """The program's launch plan."""
        return self._engine.program.plan

    @property
    def program_bytes(self) -> bytes:
        """The saved program, as Program.to_bytes() gives it."""
        return self._engine.data

    def _match(self, leaves: Sequence[torch.Tensor]) -> int:
        """The batch that the tensors have; 0: they do not fit."""
        batch = 0
        for leaf, (dtype, extents) in zip(leaves, self._inputs):
            if leaf.dtype != dtype or leaf.dim() != len(extents) or leaf.device != self._engine.device:
                return 0
            if leaf.layout != torch.strided:
                return 0
            for i, extent in enumerate(extents):
                if extent is None:
                    if batch not in (0, leaf.shape[0]):
                        return 0
                    batch = leaf.shape[0]
                elif leaf.shape[i] != extent:
                    return 0
        batch = batch or self._batches[0]
        return batch if batch in self._batches else 0

    def _fit(self, weights: Sequence[torch.Tensor]) -> bool:
        """Whether the weights are still of the kind that was verified."""
        for weight, (dtype, shape) in zip(weights, self._weights):
            if weight.dtype != dtype or tuple(weight.shape) != shape or weight.device != self._engine.device:
                return False
            if weight.layout != torch.strided:
                return False
        return True

    def _quick(self, args: Sequence[Any]) -> Optional[List[torch.Tensor]]:
        """What forward() does for a call like one before, in less time; None: go the long way."""
        if (
            not self.enabled
            or torch.is_grad_enabled()
            or self._modules["original"].training != self._mode  # type: ignore[union-attr]
            or torch.is_autocast_enabled("cuda")
            or forward_ad._current_level >= 0
        ):
            return None
        engine = self._engine
        device, shapes, pointers = engine.device, [], []
        try:
            for tensor, dtype in zip(args, self._dtypes):
                if type(tensor) not in _PLAIN or tensor.dtype is not dtype or tensor.device != device:
                    return None
                if tensor.layout is not torch.strided or not tensor.is_contiguous() or tensor.is_neg():
                    return None
                pointer = tensor.data_ptr()
                if pointer & 15:
                    return None
                shapes.append(tensor.shape)
                pointers.append(pointer)
            form, tables = self._forms.get(tuple(shapes)), self._tables
            if form is None or tables is None:
                return None
            for where, key, value in self._links:
                if where[key] is not value:
                    return None
            weights = seen([table[name] for table, name in tables])
        except (KeyError, IndexError, AttributeError, RuntimeError):  # replaced, an inference tensor, torch.func's own
            return None
        return engine.quick(form, pointers, weights)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and len(args) == self._count and not kwargs:
            quick = self._quick(args)
            if quick is not None:
                self.__dict__["runs"] += 1  # without Module.__setattr__
                return quick[0] if self._single else _tree.build(self._engine.spec.results, quick)
        if self._device_type == "cpu" and self._engine.staging is None:
            return self._fall_back(args, kwargs)  # a simulated device: for verifying, not for running
        if not self.enabled or self.original.training != self._mode or torch.is_autocast_enabled(self._device_type):
            return self._fall_back(args, kwargs)
        # Forward-mode derivatives and torch.func's transforms want more of a forward pass than its results.
        if forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active():
            return self._fall_back(args, kwargs)
        leaves: List[torch.Tensor] = []
        if not _take_leaves(self._engine.spec.arguments, args, kwargs, leaves):
            return self._fall_back(args, kwargs)
        weights = self._current()
        if weights is None:
            return self._fall_back(args, kwargs)
        if torch.is_grad_enabled() and any(t.requires_grad for t in leaves + weights):
            return self._fall_back(args, kwargs)
        batch = self._match(leaves)
        if batch == 0 or not self._fit(weights):
            return self._fall_back(args, kwargs)
        inputs = leaves + [draw.sample(shapes[batch], self._engine.device) for draw, shapes in self._draws]
        if torch.compiler.is_compiling() or any(type(t) not in _PLAIN for t in inputs):
            outputs = torch.ops.stitch.run(inputs, weights, self._handle, batch)
        else:
            if (
                self._device_type == "cuda"
                and torch.cuda.is_current_stream_capturing()
                and not self._engine.prepared(batch)
            ):
                return self._fall_back(args, kwargs)
            if self._links:
                self._follow()
            self.runs += 1
            outputs = self._engine.run(inputs, weights, batch)
        return _tree.build(self._engine.spec.results, outputs)

    def _fall_back(self, args: Any, kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            self.fallbacks += 1
        return self.original(*args, **kwargs)

    def save(self, path: Path) -> None:
        """One file: the program, how it belongs to the module, and the reports; no weights. load() needs the module."""
        engine = self._engine
        _saved.write(
            path, Saved(engine.data, engine.spec, engine.shapes, self._mode, self.report, self.reports, self.notes)
        )

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Optimized":
        import copy  # pylint: disable=import-outside-toplevel

        old = self._engine
        made = Optimized(
            copy.deepcopy(self.original, memo),
            Engine(old.ctx, old.data, old.spec, old.shapes, old.device),
            self.report,
            self.reports,
            self.notes,
        )
        made.enabled, made.training = self.enabled, self.training
        return made

    def __reduce__(self) -> Any:
        raise TypeError("an optimised module cannot be pickled; it has save(), and stitch.torch.load()")


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _take_leaves(tree: _tree.Tree, args: Any, kwargs: Any, leaves: List[torch.Tensor]) -> bool:
    """The tensors of a call in the program's order; False: the call has another form than the example."""
    return _walk(tree[2][0], list(args), leaves) and _walk(tree[2][1], kwargs, leaves)


def _walk(tree: _tree.Tree, value: Any, leaves: List[torch.Tensor]) -> bool:
    if isinstance(tree, int):
        if not isinstance(value, torch.Tensor):
            return False
        leaves.append(value)
        return True
    if tree[0] == "constant":
        return type(value) is type(tree[1]) and value == tree[1]
    if tree[0] == "dict":
        if not isinstance(value, dict) or len(value) != len(tree[1]):
            return False
        for key, item in zip(tree[1], tree[2]):
            if key not in value or not _walk(item, value[key], leaves):
                return False
        return True
    if not isinstance(value, (list, tuple)) or len(value) != len(tree[2]):
        return False
    for item, part in zip(tree[2], value):
        if not _walk(item, part, leaves):
            return False
    return True


def load(path: Path, module: torch.nn.Module, *, ctx: Optional[Context] = None, device: Any = None) -> Optimized:
    """A module that was saved with save(), for `module`: one like the original, on the device where it is to run and in
    the mode that the original had. device: where a module without any tensor is to run. FormatError if the file is
    broken, InvalidError if the module has other weights."""
    saved = _saved.read(path)
    if any(True for _ in _run.weights(module)) or device is None:
        device = device_of(module, [])
    else:
        device = torch.empty(0, device=device).device
    ctx = fitting_context(ctx, device)
    spec = saved.spec
    engine = Engine(ctx, saved.program, spec, saved.shapes, device)
    _saved.check(path, ctx, engine.program, saved)
    some = next(iter(saved.shapes.values()))
    for name, (owner, key) in zip(spec.weights, _places.places(module, spec.paths)):
        if tuple(getattr(owner, key).shape) != some[name]:
            raise InvalidError(
                f"the module's {key} has the shape {list(getattr(owner, key).shape)}; the program needs "
                f"{list(some[name])} for {name}"
            )
    made = Optimized(module, engine, saved.report, saved.reports, saved.notes)
    for name, (owner, key), (dtype, _) in zip(spec.weights, made._held, made._weights):
        if getattr(owner, key).dtype != dtype:
            raise InvalidError(
                f"the module's {key} is of type {_saved.word(getattr(owner, key).dtype)}; the program needs "
                f"{_saved.word(dtype)} for {name}"
            )
    made._mode = saved.training
    return made

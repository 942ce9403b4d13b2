# SPDX-License-Identifier: MIT
"""The loop for a module, and the module that runs what came of it."""

from __future__ import annotations

import itertools
import threading
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch.autograd import forward_ad

from .._agent import Policy, Turn, loop
from .._context import Context, Path, Role
from .._errors import (
    AuthError,
    BudgetError,
    DeadlineError,
    FormatError,
    HttpError,
    InvalidError,
    NotFoundError,
    ReplayError,
    ReplyError,
    StateError,
    StitchError,
)
from .._executor import Executor
from .._model import HostModel, Model
from .._program import Program
from .._tensors import DevicePointer
from .._verify import verify
from . import _data, _places, _run, _saved, _tree
from ._module import Spec, device_of, fitting_context
from ._saved import Saved, Shapes
from ._task import ModuleTask, task as task_of

_KEPT = 8  # executors of one module: by batch and stream
_engines: "weakref.WeakValueDictionary[int, Engine]" = weakref.WeakValueDictionary()
_handles = itertools.count(1)


# ---- a program that runs on tensors ----------------------------------------------------------------------------------


class _Ready:
    """One executor with the memory that it is bound to."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.weights: Any = None  # what it was prepared with, and the memory that is bound
        self.held: List[torch.Tensor] = []
        self.given: List[torch.Tensor] = []  # as they were given last: none gets the address of another that is gone
        self.seen: Optional[List[int]] = None  # _seen() of them; None: that cannot be known
        self.bound: Dict[str, int] = {}

    def bind(self, name: str, tensor: torch.Tensor) -> None:
        """By address: PyTorch owns the memory and orders its uses on the stream, and graphs must not keep it."""
        if self.bound.get(name) != tensor.data_ptr():
            self.executor.bind(name, DevicePointer(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
            self.bound[name] = tensor.data_ptr()

    def rebind(self, form: "_Form", pointers: Sequence[int]) -> None:
        """bind() of inputs and outputs that are known to fit."""
        bound = self.bound
        for name, pointer in zip(form.names, pointers):
            if bound[name] != pointer:
                self.executor._rebind(name, pointer)
                bound[name] = pointer


def _identity(weights: Sequence[torch.Tensor]) -> List[Any]:
    """Changes when a weight is replaced, by another view of its memory, too, or written."""
    made: List[Any] = []
    for w in weights:
        made.append(w.data_ptr())
        made.append(0 if w.is_inference() else w._version)
        made.append(w.stride())
        made.append(w.is_neg())  # the memory has the values' negatives
    return made


def _seen(weights: Iterable[torch.Tensor]) -> List[int]:
    """Is the same only if _identity() is, of the same objects, and takes less time. RuntimeError for inference tensors,
    which have no version."""
    made: List[int] = []
    for w in weights:
        made.append(id(w))
        made.append(w.data_ptr())
        made.append(w._version)
    return made


class _Form:
    """What the calls with one batch have in common."""

    __slots__ = ("batch", "names", "outputs")

    def __init__(self, spec: Spec, batch: int, shapes: Shapes) -> None:
        self.batch = batch
        self.names = [name for name, _, _ in (*spec.inputs, *spec.outputs)]
        self.outputs = [(shapes[name], dtype) for name, dtype, _ in spec.outputs]


def _usable(tensor: torch.Tensor) -> torch.Tensor:
    """Dense and aligned, with the values in its memory; a copy where it is not."""
    tensor = tensor.detach().resolve_neg().contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


class Engine:
    """A verified program for one interface: executors for the batches that it was verified for, made as they are
    needed. Several threads may use it; their runs are enqueued one after the other."""

    def __init__(
        self, ctx: Context, program: bytes, spec: Spec, shapes: Mapping[int, Shapes], device: torch.device
    ) -> None:
        self.ctx, self.data, self.spec, self.shapes, self.device = ctx, program, spec, dict(shapes), device
        self.program = Program.from_bytes(ctx, program)
        self.handle = next(_handles)
        self._lock = threading.Lock()
        self._ready: Dict[Tuple[int, int], _Ready] = {}
        self.staging: Any = None  # reaches the memory of a simulated device; None: tensors are where the program runs
        _engines[self.handle] = self

    def prepared(self, batch: int) -> bool:
        with self._lock:
            return any(key[0] == batch for key in self._ready)

    def _take(self, batch: int, stream: int, capturing: bool) -> _Ready:
        """The executor for a batch on a stream. Runs of one must not overlap, so each stream has its own; what is
        captured into graphs has one of its own too."""
        key = (batch, -1 if capturing else stream)
        found = self._ready.get(key)
        if found is None and capturing:
            # Nothing can be allocated now: one that was prepared before goes to the graphs for good.
            other = next((k for k in self._ready if k[0] == batch), None)
            if other is None:
                raise StateError(
                    "the program has not run with these shapes yet; run the module once before capturing it"
                )
            found = self._ready[key] = self._ready.pop(other)
        if found is None:
            old = [k for k in self._ready if k[1] != -1]
            if len(old) >= _KEPT:
                if self.staging is None:
                    torch.cuda.synchronize(self.device)
                self._ready.pop(old[0]).executor.close()
            dims = {name: value for name, value in self.spec.dims.items() if name != self.spec.batch}
            if self.spec.batch:
                dims[self.spec.batch] = batch
            found = self._ready[key] = _Ready(Executor(self.ctx, self.program, dims=dims, capturable=True))
        return found

    def run(self, inputs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], batch: int) -> List[torch.Tensor]:
        """The outputs, new ones. Enqueued on PyTorch's current stream."""
        if self.staging is not None:
            return list(self.staging.run(self, inputs, weights, batch))
        outputs = [
            torch.empty(self.shapes[batch][name], dtype=dtype, device=self.device)
            for name, dtype, _ in self.spec.outputs
        ]
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self.enqueue(
            [_usable(t) for t in inputs], weights, outputs, batch, stream, torch.cuda.is_current_stream_capturing()
        )
        return outputs

    def enqueue(
        self,
        inputs: Sequence[torch.Tensor],
        weights: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        batch: int,
        stream: int,
        capturing: bool,
    ) -> None:
        """One run on memory of the device."""
        names = [name for name, _, _ in self.spec.inputs] + [name for name, _, _ in self.spec.draws]
        with self._lock:
            ready = self._take(batch, stream, capturing)
            for name, tensor in zip(names, inputs):
                ready.bind(name, tensor)
            for (name, _, _), tensor in zip(self.spec.outputs, outputs):
                ready.bind(name, tensor)
            now = _identity(weights)
            if ready.weights != now:
                if capturing:
                    raise StateError("weights have changed since the last run; run the module once before capturing it")
                ready.held = [_usable(w) for w in weights]
                for name, tensor in zip(self.spec.weights, ready.held):
                    ready.bind(name, tensor)
                ready.executor.prepare(stream)
                ready.weights = now
            ready.given = list(weights)
            ready.seen = None if any(w.is_inference() for w in weights) else _seen(weights)
            ready.executor.run(stream)

    def quick(self, form: _Form, pointers: List[int], weights: List[int]) -> Optional[List[torch.Tensor]]:
        """run() once more on the same stream, with inputs by address and weights as they were (_seen()); None: it is not
        that simple."""
        device = self.device
        if torch.cuda.is_current_stream_capturing():
            return None
        stream = _raw_stream(device.index) if _raw_stream else torch.cuda.current_stream(device).cuda_stream
        with self._lock:
            ready = self._ready.get((form.batch, stream))
            if ready is None or ready.seen != weights:
                return None
            outputs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in form.outputs]
            for made in outputs:
                pointers.append(made.data_ptr())
            ready.rebind(form, pointers)
            ready.executor.run(stream)
        return outputs

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # pylint: disable=broad-except
            pass  # the interpreter ends

    def close(self) -> None:
        """Waits for the device and releases the executors."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        with self._lock:
            for ready in self._ready.values():
                ready.executor.close()
            self._ready.clear()
            self.program.close()


# What Stream.cuda_stream is made of, without the object.
_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _run_engine(inputs: List[torch.Tensor], weights: List[torch.Tensor], handle: int, batch: int) -> List[torch.Tensor]:
    engine = _engines.get(handle)
    if engine is None:
        raise StateError("the module that this operator belongs to is gone")
    return engine.run(inputs, weights, batch)


def _run_fake(inputs: List[torch.Tensor], weights: List[torch.Tensor], handle: int, batch: int) -> List[torch.Tensor]:
    engine = _engines[handle]
    return [
        torch.empty(engine.shapes[batch][name], dtype=dtype, device=engine.device)
        for name, dtype, _ in engine.spec.outputs
    ]


_operator = torch.library.custom_op(
    "stitch::run",
    _run_engine,
    mutates_args=(),
    schema="(Tensor[] inputs, Tensor[] weights, int handle, int batch) -> Tensor[]",
)
_operator.register_fake(_run_fake)


# ---- the module ------------------------------------------------------------------------------------------------------


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
            tuple(tuple(shapes[name]) for name, _, _ in spec.inputs): _Form(spec, batch, shapes)
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
            weights = _seen([table[name] for table, name in tables])
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


# ---- the loop --------------------------------------------------------------------------------------------------------


def _shapes_of(task: ModuleTask) -> Shapes:
    return {tensor.name: tuple(tensor.shape) for tensor in task.interface}


def _until_the_model_fails(turns: Iterator[Turn]) -> Iterator[Turn]:
    """The turns; a model that gives up (a spent budget, a lost connection) takes nothing away that is right already."""
    best = False
    while True:
        try:
            turn = next(turns, None)
        except (AuthError, BudgetError, DeadlineError, HttpError, ReplayError, ReplyError) as e:
            if not best:
                raise
            warnings.warn(f"the loop ended early, for the model failed: {e}")
            return
        if turn is None:
            return
        best = turn.best is not None
        yield turn


def _search(
    ctx: Context,
    task: ModuleTask,
    policy: Optional[Policy],
    on_turn: Optional[Callable[[Turn], Any]],
    options: Mapping[str, Any],
    timeline: Optional[str] = None,
) -> Tuple[Optional[bytes], Dict[str, Any], List[Dict[str, Any]], str]:
    """The loop: the best program's bytes and report, all reports, and what the last one said."""
    reports: List[Dict[str, Any]] = []
    opened: List[Any] = []
    last: Optional[Turn] = None
    said = "no attempt was made"
    try:
        for turn in _until_the_model_fails(loop(ctx, task, policy, trace_summary=timeline, **options)):
            last, said = turn, turn.report.text
            opened += [turn.candidate, turn.report, turn.plan]
            reports.append(turn.report.json)
            if on_turn is not None:
                on_turn(turn)
        if last is None or last.best is None or last.best_report is None:
            return None, {}, reports, said
        program = last.best.program
        assert program is not None
        program.validate(task)  # with the task's full dims
        return program.to_bytes(), last.best_report.json, reports, said
    finally:
        for handle in opened:
            if handle is not None:
                handle.close()


def _other_batches(
    ctx: Context,
    task: ModuleTask,
    program: bytes,
    batches: Sequence[int],
    options: Mapping[str, Any],
    shapes: Dict[int, Shapes],
) -> None:
    """Verifies the program for further batches; those that fail are left to the original."""
    batch = task.spec.batch
    if not batches or batch is None:
        return
    full = task.spec.dims[batch]
    try:
        for size in batches:
            task.set_dim(batch, int(size))
            task.set_reduced_dim(batch, int(size) if ctx.device.simulated else min(2, int(size)))
            with Program.from_bytes(ctx, program) as made:
                with verify(ctx, task, made, **{**options, "last_stage": "correct"}) as report:
                    if report.correct:
                        shapes[int(size)] = _shapes_of(task)
                    else:
                        warnings.warn(
                            f"with {batch} = {size} the program is not right, the original is used: {report.text}"
                        )
    finally:
        task.set_dim(batch, full)
        task.set_reduced_dim(batch, min(2, full))


def optimize(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    model: Union[Model, str, HostModel, None] = None,
    ctx: Optional[Context] = None,
    policy: Optional[Policy] = None,
    batches: Sequence[int] = (),
    on_turn: Optional[Callable[[Turn], Any]] = None,
    timeline: bool = False,
    verify_options: Optional[Mapping[str, Any]] = None,
    **options: Any,
) -> Optimized:
    """Makes a task of the module, lets the model plan and write programs for it until `policy` says stop, and gives a
    module that runs the best one. The original's parameters stay its own.

    model    as for Model.open() ("https://host/v1#model"), a Model, or a function, for this call: ctx keeps the one that
             it has; None: what ctx has
    policy   when to stop
    batches  further sizes of the first dimension to verify the program for, where the task found that it is free
    on_turn  called after every attempt
    timeline  the planner gets a GPU timeline of the module (needs CUPTI, which one tool a process can use)
    verify_options  for verify(): trials, last_stage, ...
    options  for task()

    NotFoundError with the last report if no program was right. A program that was measured slower than the main
    baseline is kept, but not used (enabled is False), with a warning.
    """
    task = task_of(module, example_inputs, ctx=ctx, **options)
    ctx = task._ctx
    had, opened = ctx._models.get(Role.CODER), None
    settings = dict(verify_options or {})
    try:
        _places.places(module, task.spec.paths)  # raises where it would after the loop: a tensor that forward captures
        if batches and task.spec.batch is None:
            raise InvalidError(
                "the batch of this module cannot be changed, so that there are no further batches to verify"
            )
        if model is not None:
            if isinstance(model, Model):
                ctx.set_model(model)
            else:
                opened = Model.open(ctx, model) if isinstance(model, str) else Model.host(ctx, model)
                ctx.set_model(opened)
        if settings.get("last_stage") in (None, "none", "time", "profile"):
            task.warm()
        seen = task.timeline() if timeline else None
        program, report, reports, said = _search(ctx, task, policy, on_turn, settings, seen)
        if program is None:
            raise NotFoundError(f"no program was right after {len(reports)} attempts; the last report: {said}")
        shapes = {_batch(task.spec): _shapes_of(task)}
        _other_batches(ctx, task, program, batches, settings, shapes)
        made = Optimized(module, Engine(ctx, program, task.spec, shapes, task.device), report, reports, task.notes)
    finally:
        if model is not None:
            ctx.set_model(had)
        if opened is not None:
            opened.close()
        task.close()
    summary = report.get("summary", {})
    if summary.get("degenerate"):
        warnings.warn("the task cannot tell a right program from a cheap answer: the verdict means nothing")
    if summary.get("timed") and 0 < made.speedup < 1:
        made.enabled = False
        warnings.warn(f"the best program is slower than the module ({made.speedup:.2f}x), which is used instead")
    return made


def _batch(spec: Spec) -> int:
    """The batch of the example; 1 where there is none."""
    return spec.dims[spec.batch] if spec.batch else 1


# ---- files -----------------------------------------------------------------------------------------------------------


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

# SPDX-License-Identifier: MIT
"""A task from a module: names and shapes found by running it, a float64 reference, PyTorch's own ways as baselines."""

from __future__ import annotations

import ctypes
import inspect
import re
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

import torch

from .. import _declarations as c
from .._context import Context
from .._core import OUT, call, encode
from .._errors import InvalidError, StitchError, UnsupportedError
from .._interface import Dim, Dtype
from .._library import lib
from .._task import Dist, Precision, Task
from .._tensors import BoundTensor
from . import _data, _run, _tree

Constructor = Callable[[], torch.nn.Module]
BASELINES = {  # name: (TF32 products, mode of torch.compile)
    "eager": (False, None),
    "tf32": (True, None),
    "compile": (False, "default"),
    "compile-tf32": (True, "default"),
    "max-autotune": (False, "max-autotune"),
    "max-autotune-tf32": (True, "max-autotune"),
}
ON_CUDA = ("eager", "tf32", "compile", "max-autotune")


@dataclass(frozen=True)
class Spec:
    """How calls of the module and tensors of the task belong together. Shapes hold expressions over the dims."""

    arguments: _tree.Tree  # ((positional), {keywords}) with indices into `inputs`
    inputs: Tuple[Tuple[str, torch.dtype, Tuple[str, ...]], ...]
    draws: Tuple[Tuple[str, _run.Draw, Tuple[str, ...]], ...]
    weights: Tuple[str, ...]  # names in the task
    paths: Tuple[str, ...]  # of the weights in the module
    results: _tree.Tree  # with indices into `outputs`
    outputs: Tuple[Tuple[str, torch.dtype, Tuple[str, ...]], ...]
    written: Tuple[int, ...]  # inputs that forward overwrites
    batch: Optional[str]  # the dim that may change from call to call
    dims: Mapping[str, int]


class ModuleTask(Task):
    """A task made of a module. Everything of Task, and:

    spec       how the module's arguments and results are named
    notes      what was found that is worth knowing: the reference computes in float32, an input keeps its contents, ...
    flags      PyTorch's precision settings when the task was made
    """

    spec: Spec
    notes: List[str]
    flags: _run.Flags
    module: torch.nn.Module
    device: torch.device
    _callbacks: List["_Callback"]
    _leaves: List[torch.Tensor]

    def warm(self) -> None:
        """Has torch.compile do its work for the baselines that need it, so that it does not count against the time of a
        verification. optimize() calls it. One that fails is left out, with a note."""
        for function in self._callbacks:
            if isinstance(function, _Baseline):
                function.warm(self._leaves)

    def close(self) -> None:
        """Releases the task, and what its reference and baselines hold on the device."""
        super().close()
        self._leaves = []
        for function in getattr(self, "_callbacks", []):
            function.release()
        if getattr(self, "device", torch.device("cpu")).type == "cuda":
            torch.cuda.empty_cache()


# ---- what a module is given and gives --------------------------------------------------------------------------------


def device_of(module: torch.nn.Module, leaves: Sequence[torch.Tensor]) -> torch.device:
    """The one device of module and inputs. InvalidError if there are several, UnsupportedError for one that cannot
    be used."""
    found: Dict[torch.device, str] = {}
    for name, tensor in [*_run.weights(module).items(), *[("an input", leaf) for leaf in leaves]]:
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise InvalidError(f"{name} has no shape yet: run the module once before it is made a task")
        found.setdefault(tensor.device, name)
    if len(found) > 1:
        places = ", ".join(f"{name} on {device}" for device, name in found.items())
        raise InvalidError(f"module and inputs are not on one device: {places}")
    device = next(iter(found), torch.device("cpu"))
    if device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"{found[device]} is on the device {device}; cpu and cuda can be used")
    return device


def fitting_context(ctx: Optional[Context], device: torch.device) -> Context:
    """The context, or one for the device. InvalidError if it does not fit."""
    if ctx is None:
        ctx = Context(f"cuda:{device.index or 0}" if device.type == "cuda" else "auto")
    if device.type == "cpu" and not ctx.device.simulated:
        raise InvalidError(f"the module is on the CPU, but the context uses {ctx.device.name}; call .cuda() on both, "
                           'or take a simulated device: Context("sim:sm_90a")')
    if device.type == "cuda" and (ctx.device.simulated or ctx.device.ordinal != (device.index or 0)):
        raise InvalidError(f"the module is on {device}, but the context uses {ctx.device.name} ({ctx.device.ordinal})")
    return ctx


def arguments(module: torch.nn.Module, example: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """example_inputs as a call: one tensor, positional ones, or a dict of keywords."""
    if isinstance(example, torch.Tensor):
        return (example,), {}
    if isinstance(example, dict):
        return (), dict(example)
    if isinstance(example, (list, tuple)):
        return tuple(example), {}
    raise TypeError(f"example_inputs must be a tensor, a list or tuple of arguments, or a dict, not {type(example).__name__}")


def _label(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> List[str]:
    """Names for the positional arguments, from forward's signature."""
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
        inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as e:
        raise InvalidError(f"the example inputs do not fit forward: {e}") from None
    except ValueError:  # no signature
        return [f"x{i}" for i in range(len(args))]
    names: List[str] = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}.{i}" for i in range(len(args) - len(names))]
    return names[: len(args)]


def clean(name: str, taken: Mapping[str, Any]) -> str:
    """A name that the library takes, and that is not taken."""
    name = re.sub(r"[^A-Za-z0-9_.]", "_", name) or "t"
    if not (name[0].isalpha() or name[0] == "_") or not name.isascii():
        name = "module." + name
    name, number = name[:240], 1
    made = name
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    return made


class Subject:
    """A module under examination: its call, run with inputs of other sizes too."""

    def __init__(self, module: torch.nn.Module, example: Any) -> None:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"a task is made of a torch.nn.Module, not of a {type(module).__name__}")
        args, kwargs = arguments(module, example)
        labels = _label(module, args, kwargs)
        found: List[Tuple[str, torch.Tensor]] = []
        positional = [_tree.flatten(arg, name, found, f"argument {name}") for name, arg in zip(labels, args)]
        keywords = {name: _tree.flatten(arg, name, found, f"argument {name}") for name, arg in kwargs.items()}
        self.tree = ("tuple", None, [("tuple", None, positional, tuple),
                                     ("dict", list(keywords), list(keywords.values()), dict)], tuple)
        self.labels = [name for name, _ in found]
        self.leaves = [tensor.detach() for _, tensor in found]
        self.module, self.device = module, device_of(module, self.leaves)
        self.results: _tree.Tree = None
        self.names: List[str] = []
        self.written: Set[int] = set()  # inputs that forward overwrites

    def call(self, runner: _run.Runner, leaves: Sequence[torch.Tensor], source: _run.Source = _run.generate,
             foreign: Sequence[torch.Tensor] = ()) -> Tuple[List[torch.Tensor], _run.Watch, _tree.Tree]:
        """One run: the results, copied, since modules may return their own state."""
        given = [leaf.clone() for leaf in leaves]
        args, kwargs = _tree.build(self.tree, given)
        known = [*given, *_run.weights(runner.module).values(), *_run.attributes(runner.module).values()]
        watch = _run.Watch(source, known, foreign)
        out: List[Tuple[str, torch.Tensor]] = []
        try:
            made = runner.run(args, kwargs, watch)
            results = _tree.flatten(made, "", out, "the result of forward")
        except StitchError:
            raise
        except torch.OutOfMemoryError as e:
            raise _out_of_memory(self.device, e) from e
        except Exception as e:
            raise InvalidError(f"forward raised {type(e).__name__}: {e}") from e
        self.names = [name for name, _ in out]
        for i, (one, leaf) in enumerate(zip(given, leaves)):
            if one._version or not torch.equal(one, leaf) and not bool((one != one).any()):
                self.written.add(i)
        return [tensor.detach().clone() for _, tensor in out], watch, results


def _out_of_memory(device: torch.device, e: BaseException) -> StitchError:
    from .._errors import NoMemoryError  # pylint: disable=import-outside-toplevel

    return NoMemoryError(f"the module does not fit into the memory of {device}: {str(e).splitlines()[0]}")


def _shapes(tensors: Sequence[torch.Tensor]) -> List[Tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in tensors]


def _resized(leaf: torch.Tensor, size: int) -> torch.Tensor:
    if size <= leaf.shape[0]:
        return leaf[:size]
    return torch.cat([leaf] * -(-size // leaf.shape[0]))[:size]


def _find_batch(subject: Subject, runner: _run.Runner, outputs: Sequence[torch.Tensor], draws: Sequence[_run.Draw],
                name: str) -> Optional[Tuple[List[bool], List[Tuple[str, ...]], List[Tuple[str, ...]]]]:
    """Which inputs have the first dimension as a free one, and the shapes of outputs and draws with it; None: it cannot
    be changed."""
    first = next((leaf.shape[0] for leaf in subject.leaves if leaf.dim()), 0)
    if first < 1:
        return None
    some = [bool(leaf.dim()) and leaf.shape[0] == first for leaf in subject.leaves]
    only = [flag and not any(some[:i]) for i, flag in enumerate(some)]
    sizes = [size for size in (2, 3, 4) if size != first][:2]
    for chosen in [some] if some == only else [some, only]:
        seen = [(first, _shapes(outputs), [draw.shape for draw in draws])]
        for size in sizes:
            leaves = [_resized(leaf, size) if flag else leaf for leaf, flag in zip(subject.leaves, chosen)]
            try:
                made, watch, results = subject.call(runner, leaves)
            except StitchError:
                break
            if not _tree.same(results, subject.results):
                break
            seen.append((size, _shapes(made), [draw.shape for draw in watch.draws]))
        texts = _expressions(seen, name) if len(seen) == 3 else None
        if texts is not None:
            return (chosen, *texts)
    return None


def _expressions(seen: Sequence[Any], name: str) -> Optional[Tuple[List[Tuple[str, ...]], List[Tuple[str, ...]]]]:
    made: List[List[Tuple[str, ...]]] = [[], []]
    for part in (0, 1):
        if any([len(shape) for shape in row[1 + part]] != [len(shape) for shape in seen[0][1 + part]] for row in seen):
            return None
        for i, shape in enumerate(seen[0][1 + part]):
            texts = [
                _data.linear(tuple((row[0], row[1 + part][i][axis]) for row in seen), name) for axis in range(len(shape))
            ]
            if None in texts:
                return None
            made[part].append(tuple(str(text) for text in texts))
    return made[0], made[1]


# ---- the reference ---------------------------------------------------------------------------------------------------


def _close(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> bool:
    """Whether two precisions of one computation are alike: a wrong module would be far off."""
    for a, b in zip(got, want):
        if a.shape != b.shape:
            return False
        if not b.dtype.is_floating_point:
            continue  # an argmax may differ by rounding
        a, b = a.double(), b.double()
        good = torch.isfinite(a) & torch.isfinite(b)
        scale = float(b[good].abs().max()) if bool(good.any()) else 0.0
        off = (a - b)[good].abs() > 0.05 * (scale + 1e-6)
        if float(off.double().mean() if off.numel() else 0.0) > 0.01:
            return False
    return True


def double_module(subject: Subject, runner: _run.Runner, leaves: Sequence[torch.Tensor],
                  constructor: Optional[Constructor]) -> Tuple[Optional[_run.Runner], str]:
    """The module in float64, tried on `leaves`; None and why there is none."""
    originals = [*_run.weights(subject.module).values(), *_run.attributes(subject.module).values()]
    drawn: List[torch.Tensor] = []

    def record(_: int, draw: _run.Draw, device: torch.device) -> torch.Tensor:
        drawn.append(draw.sample(draw.shape, device))
        return drawn[-1]

    want, _, _ = subject.call(runner, leaves, record)
    ways: List[Tuple[str, Constructor]] = [("a copy", lambda: _run.copy(subject.module))]
    if constructor is not None:
        ways.insert(0, ("one made anew", constructor))
    reasons: List[str] = []
    for what, make in ways:
        try:
            with torch.random.fork_rng(devices=_devices(subject.device)):
                made = make()
            if not isinstance(made, torch.nn.Module):
                raise InvalidError(f"the constructor returned a {type(made).__name__}")
            if made is subject.module:
                raise InvalidError("the constructor returned the module itself")
            _run.move(made, subject.device, torch.float64)
            _run.take_state(made, subject.module)
            double = _run.Runner(made)
            with _run.default_dtype(torch.float64):
                got, watch, _ = subject.call(double, _widen(leaves), lambda i, draw, device: drawn[i], originals)
            if watch.borrowed:
                reasons.append(f"{what} still uses tensors of the original")
            elif watch.lossy:
                reasons.append(f"{what} does not stay in float64: {watch.lossy}")
            elif any(a.dtype is not torch.float64 for a, b in zip(got, want) if b.dtype.is_floating_point):
                reasons.append(f"{what} does not give float64")
            elif not _close(got, want):
                reasons.append(f"{what} computes something else")
            else:
                return double, ""
        except Exception as e:  # whatever it is: the next way, and a note
            reasons.append(f"{what} fails: {str(e).splitlines()[0] if str(e) else type(e).__name__}"[:300])
    return None, "; ".join(reasons)


def _widen(leaves: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    return [leaf.double() if leaf.dtype.is_floating_point else leaf for leaf in leaves]


def _devices(device: torch.device) -> List[int]:
    return [device.index or 0] if device.type == "cuda" else []


class _Callback:
    """What the library calls: tensors by name in, outputs by name filled. On CUDA everything stays where it is; on a
    simulated device it is copied."""

    def __init__(self, ctx: Context, spec: Spec, runner: _run.Runner, device: torch.device, *, double: bool, tf32: bool,
                 mode: Optional[str], feed: bool) -> None:
        self.ctx, self.spec, self.device = ctx, spec, device
        self.runner: Optional[_run.Runner] = runner
        self.double, self.tf32, self.mode, self.feed = double, tf32, mode, feed
        self._compiled: Any = None
        self._pending: Optional[List[torch.Tensor]] = None
        self._stream = -1
        self.error = ""

    def release(self) -> None:
        self.runner = self._compiled = self._pending = None

    # -- memory

    def _get(self, bound: BoundTensor, stream: int) -> torch.Tensor:
        dtype = _data.TORCH[bound.dtype]
        if self.device.type == "cpu":
            made = torch.empty(bound.shape, dtype=dtype)
            _transfer(lib.stitch_bound_tensor_read, self.ctx, stream, bound, made)
            return made
        return view(bound, dtype)

    def _put(self, bound: BoundTensor, stream: int, value: torch.Tensor) -> None:
        if tuple(value.shape) != bound.shape:
            raise UnsupportedError(f"output {bound.name} has the shape {list(value.shape)} this time, not "
                                   f"{list(bound.shape)}: shapes that depend on values are not supported")
        dtype = _data.TORCH[bound.dtype]
        if self.device.type == "cpu":
            _transfer(lib.stitch_bound_tensor_write, self.ctx, stream, bound, value.to(dtype).contiguous())
        else:
            view(bound, dtype).copy_(value)

    # -- the two parts of a run

    def _compute(self, stream: int, tensors: Dict[str, BoundTensor]) -> None:
        assert self.runner is not None
        leaves = [self._get(tensors[name], stream) for name, _, _ in self.spec.inputs]
        for i in self.spec.written:  # not the library's own
            leaves[i] = leaves[i].clone()
        draws = [self._get(tensors[name], stream) for name, _, _ in self.spec.draws]
        args, kwargs = _tree.build(self.spec.arguments, _widen(leaves) if self.double else leaves)
        source = (lambda i, draw, device: draws[i]) if self.feed else _run.generate
        out: List[Tuple[str, torch.Tensor]] = []
        if self.double or self.feed:
            with _run.default_dtype(torch.float64 if self.double else torch.get_default_dtype()):
                with _run.Watch(source):
                    made = self.runner.call(args, kwargs)
        else:
            made = self.runner.call(args, kwargs, self._function())
        _tree.flatten(made, "", out, "the result of forward")
        if len(out) != len(self.spec.outputs):
            raise UnsupportedError("forward gives another number of tensors this time")
        self._pending = [tensor.detach() for _, tensor in out]

    def _function(self) -> Any:
        assert self.runner is not None
        if self.mode is None:
            return self.runner.module
        if self._compiled is None:
            self._compiled = torch.compile(self.runner.module, mode=None if self.mode == "default" else self.mode)
        torch.compiler.cudagraph_mark_step_begin()
        return self._compiled

    def _finish(self, stream: int, tensors: Dict[str, BoundTensor]) -> None:
        results, self._pending = self._pending or [], None
        with torch.no_grad():
            for (name, _, _), value in zip(self.spec.outputs, results):
                self._put(tensors[name], stream, value)
        assert self.runner is not None
        self.runner.restore()

    def __call__(self, stream: int, tensors: Dict[str, BoundTensor]) -> int:
        if self.runner is None:
            raise InvalidError("the task is closed")
        if self._pending is not None:
            with self._on(stream):
                self._finish(stream, tensors)
            return 0
        try:
            with self._on(stream), _run.precision(self.tf32):
                self._compute(stream, tensors)
        except BaseException:
            self._pending = None
            self.runner.restore()
            raise
        return int(c.AGAIN)

    def _on(self, stream: int) -> Any:
        if self.device.type == "cpu":
            return torch.inference_mode(False)
        if stream != self._stream:
            # What was cached for a stream that is gone is of no use any more.
            self._stream = stream
            getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
            torch.cuda.empty_cache()
        where = torch.cuda.ExternalStream(stream, device=self.device) if stream else torch.cuda.default_stream(self.device)
        return torch.cuda.stream(where)


class _Baseline(_Callback):
    """A baseline that fails is left out of the report, with the reason in the task's notes; it is not what is judged."""

    def __init__(self, *args: Any, notes: List[str], name: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._notes, self._name = notes, name

    def __call__(self, stream: int, tensors: Dict[str, BoundTensor]) -> int:
        if self.error:
            return int(c.stitch_status.E_UNSUPPORTED)
        try:
            return super().__call__(stream, tensors)
        except Exception as e:  # pylint: disable=broad-except
            self._give_up(e)
            return int(c.stitch_status.E_UNSUPPORTED)


    def warm(self, leaves: Sequence[torch.Tensor]) -> None:
        if self.mode is None or self.error or self.runner is None:
            return
        try:
            with _run.precision(self.tf32):
                for _ in range(3):
                    args, kwargs = _tree.build(self.spec.arguments, [leaf.clone() for leaf in leaves])
                    self.runner.call(args, kwargs, self._function())
                    self.runner.restore()
        except Exception as e:  # pylint: disable=broad-except
            self._give_up(e)

    def _give_up(self, e: BaseException) -> None:
        self.error = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"[:500]
        self._notes.append(f"baseline {self._name} failed: {self.error}")
        self._pending = None


def view(bound: BoundTensor, dtype: torch.dtype) -> torch.Tensor:
    """Device memory as a tensor; nothing is copied."""
    if bound.nbytes == 0:
        return torch.empty(bound.shape, dtype=dtype, device=f"cuda:{bound.device}")
    # As bytes, so that it does not matter which types the importer knows.
    raw = replace(bound, tensor=replace(bound.tensor, dtype=Dtype.U8, shape=(bound.nbytes,)))
    return torch.from_dlpack(raw).view(dtype).view(bound.shape)


def _transfer(function: Any, ctx: Context, stream: int, bound: BoundTensor, host: torch.Tensor) -> None:
    raw = c.stitch_bound_tensor()
    raw.info.struct_size = ctypes.sizeof(raw.info)
    raw.info.name, raw.info.bytes, raw.ptr = encode(bound.name), bound.nbytes, bound.pointer
    assert ctx._ref is not None
    call(function, ctx._ref.pointer, stream, ctypes.byref(raw), host.data_ptr(), bound.nbytes)


# ---- putting it together ---------------------------------------------------------------------------------------------


def source_of(module: torch.nn.Module) -> str:
    """The source text of the module's classes that are not PyTorch's, outermost last."""
    kinds: List[type] = []
    for part in module.modules():
        kind = type(part)
        if kind not in kinds and kind.__module__.partition(".")[0] != "torch":
            kinds.append(kind)
    texts = []
    for kind in reversed(kinds):
        try:
            texts.append(inspect.getsource(kind))
        except (OSError, TypeError):
            continue
    text = "\n\n".join(texts) or repr(module)
    return text[: 1 << 20].replace("\0", "")


def _describe(module: torch.nn.Module, subject: Subject, spec: Spec, changed: Sequence[str]) -> str:
    mode = "training" if module.training else "evaluation"
    lines = [f"The forward pass of the PyTorch module {type(module).__name__}, in {mode} mode."]
    fixed = {k: v for k, v in _tree.constants(("dict", ["args", "kwargs"], subject.tree[2], dict)).items()}
    if fixed:
        lines.append("Arguments that are no tensors: " + ", ".join(f"{k} = {v!r}" for k, v in fixed.items()) + ".")
    for name, draw, _ in spec.draws:
        values = {"normal": f"normal({draw.a:g}, {draw.b:g})", "uniform": f"uniform [{draw.a:g}, {draw.b:g})",
                  "bernoulli": f"1 with probability {draw.a:g}, else 0", "randint": f"integers from {draw.a:g} below {draw.b:g}"}
        lines.append(f"Input {name} holds the random numbers that forward draws ({values[draw.kind]}), in its order.")
    if any(draw.kind == "bernoulli" for _, draw, _ in spec.draws):
        lines.append("Of a dropout with probability p these are what is kept (1) of its input; what is kept is divided by 1 - p.")
    if changed:
        lines.append("Forward also changes " + ", ".join(changed) + "; that is not part of the task.")
    lines.append("Weights have the names and layouts of the module's state (a Linear weight is [out, in]).")
    return "\n".join(lines)


def _baseline_precision(module: torch.nn.Module, leaves: Sequence[torch.Tensor], tf32: bool) -> Precision:
    dtypes = {t.dtype for t in [*_run.weights(module).values(), *leaves] if t.dtype.is_floating_point}
    if dtypes & {torch.float16, torch.bfloat16}:
        return Precision.F16
    return Precision.TF32 if tf32 else Precision.F32


def _attach_weights(task: Task, subject: Subject, shapes: Mapping[str, Sequence[Dim]], taken: Dict[str, Any],
                    extra: Mapping[str, torch.Tensor]) -> Tuple[List[str], List[str]]:
    names, paths = [], []
    for path, tensor in {**_run.weights(subject.module), **extra}.items():
        name = clean(path, taken)
        taken[name] = True
        dtype = _data.dtype_of(tensor, f"weight {path}")
        task.add_tensor(name, dtype, list(shapes.get(name, [str(extent) for extent in tensor.shape])), "weight")
        host = _data.host_copy(tensor)
        task.set_data(name, _data.memory(host))
        names.append(name)
        paths.append(path)
    return names, paths


def _default_tolerance(precision: Precision, outputs: Sequence[torch.Tensor]) -> float:
    if any(out.dtype in (torch.float16, torch.bfloat16) for out in outputs):
        return 1e-2
    return 1e-4 if precision is Precision.F32 else 1e-3


def task_of(
    module: torch.nn.Module,
    example: Any,
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
    constructor: Optional[Constructor] = None,
    source: Optional[str] = None,
    description: Optional[str] = None,
) -> ModuleTask:
    """What stitch.torch.task() documents."""
    subject = Subject(module, example)
    ctx = fitting_context(ctx, subject.device)
    shapes, dims = dict(shapes or {}), dict(dims or {})
    unknown = set(baselines or ()) - set(BASELINES)
    if unknown:
        raise InvalidError(f"there is no baseline {sorted(unknown)[0]!r}; there are {', '.join(BASELINES)}")
    for label, leaf in zip(subject.labels, subject.leaves):
        _data.dtype_of(leaf, f"input {label}")
    task = ModuleTask(ctx, name or type(module).__name__)
    task.module, task.device, task.notes, task.flags = module, subject.device, [], _run.Flags.current()
    task._callbacks, task._leaves = [], subject.leaves
    try:
        with torch.random.fork_rng(devices=_devices(subject.device)):
            _fill(task, subject, ctx, dims, shapes, dict(dists or {}), batch, constructor)
            for dim, value in (reduced_dims or {}).items():
                task.set_reduced_dim(dim, value)
        found = _baseline_precision(module, subject.leaves, _may_use_tf32(task.flags, task._operators))
        task.precision = found if precision is None else precision
        tolerance = _default_tolerance(task.precision, task._examples)
        task.tolerance = (tolerance if atol is None else atol, tolerance if rtol is None else rtol)
        task.set_text(description or task._description, source or source_of(module))
        if baselines is None:
            baselines = ON_CUDA if subject.device.type == "cuda" else ()
        _add_baselines(task, subject, ctx, baselines)
        del task._examples
    except BaseException as e:
        task.close()
        if isinstance(e, torch.OutOfMemoryError):
            raise _out_of_memory(subject.device, e) from e
        raise
    return task


def _may_use_tf32(flags: _run.Flags, operators: Any) -> bool:
    """Whether PyTorch computes some of it in TF32 as it is set now."""
    return flags.tf32 or (flags.cudnn_tf32 and bool(operators & {"convolution", "_cudnn_rnn", "cudnn_convolution"}))


def _fill(task: Any, subject: Subject, ctx: Context, dims: Dict[str, int], shapes: Dict[str, Sequence[Dim]],
          dists: Dict[str, Any], batch: Optional[str], constructor: Optional[Constructor]) -> None:
    """Tensors, data and reference."""
    runner = _run.Runner(subject.module)
    outputs, watch, subject.results = subject.call(runner, subject.leaves)
    if not outputs:
        raise InvalidError("forward gives no tensor")
    for where, out in zip(subject.names, outputs):
        if out.device.type not in ("cpu", "cuda"):
            raise UnsupportedError(f"output {where or 'y'} is on the device {out.device}")
    again, _, results = subject.call(runner, [_data.another(leaf) for leaf in subject.leaves])
    if _shapes(again) != _shapes(outputs) or not _tree.same(results, subject.results):
        raise UnsupportedError("the shapes or numbers that forward gives depend on the values of its inputs")
    extra = {path: t for path, t in _run.attributes(subject.module).items() if _run.storage_of(t) in watch.used}
    extra.update({f"captured.{i}": tensor for i, tensor in enumerate(watch.strangers)})
    notes, taken = task.notes, dict.fromkeys(dims, True)

    names = []
    for label in subject.labels:
        names.append(clean(label, taken))
        taken[names[-1]] = True
    fitted = {}
    for i, (label, leaf) in enumerate(zip(names, subject.leaves)):
        fitted[label] = dists[label] if label in dists else _data.fit(leaf)
        if fitted[label] is None or fitted[label] == "data":
            fitted[label] = None
            notes.append(f"input {label} keeps the contents of the example: no distribution has its structure")
    reserved = {*_run.weights(subject.module), *extra}
    symbol = None
    if batch and not shapes and all(fitted[label] is not None for label in names):
        symbol = clean(batch, {**taken, **dict.fromkeys(reserved, True)})
    free = _find_batch(subject, runner, outputs, watch.draws, symbol) if symbol else None
    if free and symbol:
        chosen, out_shapes, draw_shapes = free
        size = next(leaf.shape[0] for leaf, flag in zip(subject.leaves, chosen) if flag)
        dims[symbol] = size
        taken[symbol] = True
    else:
        symbol, chosen = None, [False] * len(names)
        out_shapes = [tuple(map(str, out.shape)) for out in outputs]
        draw_shapes = [tuple(map(str, draw.shape)) for draw in watch.draws]
    for dim, value in dims.items():
        task.set_dim(dim, value)
    if symbol and dims[symbol] > 2:
        task.set_reduced_dim(symbol, 2)

    inputs = []
    for label, leaf, flag in zip(names, subject.leaves, chosen):
        extents = tuple(map(str, shapes.get(label, [symbol if flag and i == 0 else n for i, n in enumerate(leaf.shape)])))
        task.add_tensor(label, _data.dtype_of(leaf, label), extents, "input", fitted[label])
        if fitted[label] is None:
            task.set_data(label, _data.memory(_data.host_copy(leaf)))
        inputs.append((label, leaf.dtype, extents))
    draws = []
    for draw, extents in zip(watch.draws, draw_shapes):
        label = clean(f"random{len(draws)}", {**taken, **dict.fromkeys(reserved, True)})
        taken[label] = True
        extents = tuple(map(str, shapes.get(label, extents)))
        task.add_tensor(label, _data.DTYPES[draw.dtype], extents, "input", Dist(draw.kind, draw.a, draw.b))
        draws.append((label, draw, extents))
    weight_names, paths = _attach_weights(task, subject, shapes, taken, extra)
    made = []
    for i, (out, extents) in enumerate(zip(outputs, out_shapes)):
        where = subject.names[i]
        label = clean("y" if not where else where if not where[0].isdigit() else f"y{where}", taken)
        taken[label] = True
        extents = tuple(map(str, shapes.get(label, extents)))
        task.add_tensor(label, _data.dtype_of(out, f"output {label}"), extents, "output")
        made.append((label, out.dtype, extents))
    odd = sorted(set(shapes) - set(taken))
    if odd:
        raise InvalidError(f"shapes names '{odd[0]}', which the task does not have; there are {', '.join(taken)}")
    task.spec = Spec(subject.tree, tuple(inputs), tuple(draws), tuple(weight_names), tuple(paths), subject.results,
                     tuple(made), tuple(sorted(subject.written)), symbol, dims)
    notes += [f"forward overwrites its argument {names[i]}; programs do not" for i in task.spec.written]
    _check_shapes(task, subject, outputs)

    small = [_resized(leaf, 2) if flag and leaf.shape[0] > 2 else leaf for leaf, flag in zip(subject.leaves, chosen)]
    _add_reference(task, subject, ctx, runner, small, constructor)
    task._operators, task._examples = watch.operators, outputs
    task._description = _describe(subject.module, subject, task.spec, sorted(runner.changed))


def _check_shapes(task: Task, subject: Subject, outputs: Sequence[torch.Tensor]) -> None:
    """Shapes that the caller has given must have the values that were seen."""
    interface, spec = task.interface, task.spec  # type: ignore[attr-defined]
    seen = dict(zip([name for name, _, _ in spec.inputs], subject.leaves))
    seen.update(zip([name for name, _, _ in spec.outputs], outputs))
    for name, tensor in seen.items():
        if interface[name].shape != tuple(tensor.shape):
            raise InvalidError(f"'{name}' has the shape {list(tensor.shape)}, but [{', '.join(interface[name].shape_expr)}] "
                               f"is {list(interface[name].shape)}")


def _add_reference(task: Any, subject: Subject, ctx: Context, runner: _run.Runner, small: Sequence[torch.Tensor],
                   constructor: Optional[Constructor]) -> None:
    double, why = double_module(subject, runner, small, constructor)
    if double is None:
        task.notes.append(f"the reference computes in float32, for there is no float64 module: {why}")
    function = _Callback(ctx, task.spec, double or _own(subject), subject.device, double=double is not None, tf32=False,
                         mode=None, feed=True)
    task._callbacks.append(function)
    task.set_reference(function, Dtype.F64 if double else Dtype.NONE)


def _own(subject: Subject) -> _run.Runner:
    """A copy for us, so that what the caller does with the module meanwhile does not matter; the module itself where
    it cannot be copied."""
    try:
        return _run.Runner(_run.copy(subject.module))
    except Exception:  # pylint: disable=broad-except
        return _run.Runner(subject.module)


def _add_baselines(task: Any, subject: Subject, ctx: Context, names: Sequence[str]) -> None:
    runner = _own(subject) if names else None
    for name in names:
        tf32, mode = BASELINES[name]
        function = _Baseline(ctx, task.spec, runner, subject.device, double=False, tf32=tf32, mode=mode, feed=False,
                             notes=task.notes, name=name)
        task._callbacks.append(function)
        task.add_baseline(name, function, _baseline_precision(subject.module, subject.leaves, tf32))

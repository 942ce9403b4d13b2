# SPDX-License-Identifier: MIT
"""A task from a module: tensors with shapes, data and distributions, reference, baselines, texts."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

import torch

from .._context import Context
from .._errors import InvalidError, StitchError, UnsupportedError
from .._interface import Dim, Dtype
from .._task import Dist, Precision, Task
from . import _data, _run, _settings, _tree
from ._module import (
    Spec,
    Subject,
    clean,
    devices_of,
    find_batch,
    fitting_context,
    out_of_memory,
    reproduced,
    resized,
    shapes_of,
    too_large,
)
from ._reference import Baseline, Callback, Constructor, double_module

BASELINES = {  # name: (TF32 products, mode of torch.compile)
    "eager": (False, None),
    "tf32": (True, None),
    "compile": (False, "default"),
    "compile-tf32": (True, "default"),
    "max-autotune": (False, "max-autotune"),
    "max-autotune-tf32": (True, "max-autotune"),
}
ON_CUDA = ("eager", "tf32", "compile", "max-autotune")


def check_baselines(names: Optional[Sequence[str]]) -> None:
    unknown = set(names or ()) - set(BASELINES)
    if unknown:
        raise InvalidError(f"there is no baseline {sorted(unknown)[0]!r}; there are {', '.join(BASELINES)}")


class ModuleTask(Task):
    """A task made of a module. Everything of Task, and:

    spec       how the module's arguments and results are named
    notes      what was found that is worth knowing: the reference computes in float32, an input keeps its contents, ...
    flags      PyTorch's precision settings when the task was made
    """

    spec: Spec
    notes: List[str]
    flags: _settings.Flags
    module: torch.nn.Module
    device: torch.device
    _callbacks: List["Callback"]
    _leaves: List[torch.Tensor]

    def warm(self) -> None:
        """Has torch.compile do its work for the baselines that need it, so that it does not count against the time of a
        verification. optimize() calls it. One that fails is left out, with a note."""
        for function in self._callbacks:
            if isinstance(function, Baseline):
                function.warm(self._leaves)

    def timeline(self) -> str:
        """A GPU timeline of one run of the module as it is, as text: what plan() takes as trace_summary."""
        from .._trace import Trace  # pylint: disable=import-outside-toplevel

        if self.device.type != "cuda":
            raise UnsupportedError("there is no timeline of a module on the CPU")
        runner = _run.Runner(self.module)
        args, kwargs = _tree.build(self.spec.arguments, [leaf.clone() for leaf in self._leaves])
        try:
            with torch.random.fork_rng(devices=devices_of(self.device)):
                runner.call(args, kwargs)  # what happens only once
                torch.cuda.synchronize(self.device)
                with Trace(self._ctx) as trace:
                    runner.call(args, kwargs)
                    torch.cuda.synchronize(self.device)
            runner.restore()
        except BaseException:
            runner.restore()
            raise
        try:
            return trace.text()
        finally:
            trace.close()

    def close(self) -> None:
        """Releases the task, and what its reference and baselines hold on the device."""
        super().close()
        self._leaves = []
        for function in getattr(self, "_callbacks", []):
            function.release()
        if getattr(self, "device", torch.device("cpu")).type == "cuda":
            torch.cuda.empty_cache()


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
        values = {
            "normal": f"normal({draw.a:g}, {draw.b:g})",
            "uniform": f"uniform [{draw.a:g}, {draw.b:g})",
            "bernoulli": f"1 with probability {draw.a:g}, else 0",
            "randint": f"integers from {draw.a:g} below {draw.b:g}",
        }
        lines.append(f"Input {name} holds the random numbers that forward draws ({values[draw.kind]}), in its order.")
    if any(draw.kind == "bernoulli" for _, draw, _ in spec.draws):
        lines.append(
            "Of a dropout with probability p these are what is kept (1) of its input; what is kept is divided by 1 - p."
        )
    if changed:
        lines.append("Forward also changes " + ", ".join(changed) + "; that is not part of the task.")
    lines.append("Weights have the names and layouts of the module's state (a Linear weight is [out, in]).")
    return "\n".join(lines)


def _baseline_precision(subject: Subject, tf32: bool) -> Precision:
    tensors = [*_run.weights(subject.module).values(), *subject.leaves]
    if subject.half or any(t.dtype in (torch.float16, torch.bfloat16) for t in tensors):
        return Precision.F16
    return Precision.TF32 if tf32 else Precision.F32


def _attach_weights(
    task: Task,
    subject: Subject,
    shapes: Mapping[str, Sequence[Dim]],
    taken: Dict[str, Any],
    extra: Mapping[str, torch.Tensor],
) -> Tuple[List[str], List[str]]:
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


def task(
    module: torch.nn.Module,
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
    constructor: Optional[Constructor] = None,
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
    subject = Subject(module, example_inputs)
    ctx = fitting_context(ctx, subject.device)
    shapes, dims = dict(shapes or {}), dict(dims or {})
    check_baselines(baselines)
    for label, leaf in zip(subject.labels, subject.leaves):
        _data.dtype_of(leaf, f"input {label}")
    made = ModuleTask(ctx, name or type(module).__name__)
    made.module, made.device, made.notes, made.flags = module, subject.device, [], _settings.Flags.current()
    made._callbacks, made._leaves = [], subject.leaves
    runner: Optional[_run.Runner] = None
    settings = _settings.Settings(subject.device)
    try:
        runner = _run.Runner(subject.module, guard=True)
        with torch.random.fork_rng(devices=devices_of(subject.device)):
            operators, outputs, text = _fill(
                made, subject, runner, ctx, dims, shapes, dict(dists or {}), batch, constructor
            )
            for dim, value in (reduced_dims or {}).items():
                made.set_reduced_dim(dim, value)
        found = _baseline_precision(subject, _may_use_tf32(made.flags, operators))
        made.precision = found if precision is None else precision
        tolerance = _default_tolerance(made.precision, outputs)
        made.tolerance = (tolerance if atol is None else atol, tolerance if rtol is None else rtol)
        made.set_text(description or text, source or source_of(module))
        if baselines is None:
            baselines = ON_CUDA if subject.device.type == "cuda" else ()
        _add_baselines(made, subject, ctx, baselines)
    except BaseException as e:
        try:  # KeyboardInterrupt may have come where something was being put back
            settings.restore()
            if runner is not None:
                runner.restore()
        finally:
            made.close()
        if too_large(e) and not isinstance(e, StitchError):
            raise out_of_memory(subject.device, e) from e
        raise
    return made


def _may_use_tf32(flags: _settings.Flags, operators: Any) -> bool:
    """Whether PyTorch computes some of it in TF32 as it is set now."""
    return flags.tf32 or (flags.cudnn_tf32 and bool(operators & {"convolution", "_cudnn_rnn", "cudnn_convolution"}))


def _try_out(
    task: Any, subject: Subject, runner: _run.Runner, kept: Sequence[bool]
) -> Tuple[List[torch.Tensor], _run.Watch]:
    """A run, and others that show whether it tells what the module computes. kept: inputs whose contents are not to be
    changed, for they may be anything else's index."""
    record, generators = _run.Record(), _run.other_generators()
    outputs, watch, subject.results = subject.call(runner, subject.leaves, record.draw)
    if not outputs:
        raise InvalidError("forward gives no tensor")
    for where, out in zip(subject.names, outputs):
        if out.device.type not in ("cpu", "cuda"):
            raise UnsupportedError(f"output {where or 'y'} is on the device {out.device}")
    # Numbers of other generators than PyTorch's may be the same once or twice.
    for _ in range(1 if _run.other_generators() == generators else 8):
        again, _, results = subject.call(runner, subject.leaves, record.again, fill=True)
        if not _tree.same(results, subject.results) or not reproduced(outputs, again):
            raise UnsupportedError(
                "forward gives other results for the same inputs: from random numbers that are not PyTorch's, memory that "
                "it did not write, or state that lies neither in the module's attributes nor in lists and dicts there"
            )
    if watch.dynamic:
        task.notes.append(
            f"{watch.dynamic} gives shapes that depend on values; the task has those that were seen, which other inputs "
            "may not give"
        )
    for _ in range(4 if watch.dynamic else 1):
        others = [leaf if keep else _data.another(leaf) for leaf, keep in zip(subject.leaves, kept)]
        fresh = _run.Record()
        again, _, results = subject.call(runner, others, fresh.draw)
        if record.drew_the_same(fresh):
            raise UnsupportedError(
                "forward draws the same random numbers in each run, for it seeds their generator itself: what is made of "
                "them belongs into a buffer of the module"
            )
        if shapes_of(again) != shapes_of(outputs) or not _tree.same(results, subject.results):
            raise UnsupportedError("the shapes or numbers that forward gives depend on the values of its inputs")
    return outputs, watch


def _fill(
    task: Any,
    subject: Subject,
    runner: _run.Runner,
    ctx: Context,
    dims: Dict[str, int],
    shapes: Dict[str, Sequence[Dim]],
    dists: Dict[str, Any],
    batch: Optional[str],
    constructor: Optional[Constructor],
) -> Tuple[Set[str], List[torch.Tensor], str]:
    """Tensors, data and reference. The operators and outputs of a run, and a description."""
    kept = [dists.get(clean(label, dims)) == "data" for label in subject.labels]
    outputs, watch = _try_out(task, subject, runner, kept)
    # What is a parameter or buffer, too, has its name alone (recurrent layers keep a list of theirs).
    own = {id(t) for t in _run.weights(subject.module).values()}
    extra = {
        path: t
        for path, t in _run.attributes(subject.module).items()
        if _run.storage_of(t) in watch.used and id(t) not in own
    }
    extra.update({f"captured.{i}": tensor for i, tensor in enumerate(watch.strangers)})
    notes, taken = task.notes, dict.fromkeys(dims, True)

    names = []
    for label in subject.labels:
        names.append(clean(label, taken))
        taken[names[-1]] = True
    odd = sorted(set(dists) - set(names))
    if odd:
        raise InvalidError(f"dists names '{odd[0]}', which is no input; there are {', '.join(names) or 'none'}")
    fitted = {}
    for i, (label, leaf) in enumerate(zip(names, subject.leaves)):
        fitted[label] = dists[label] if label in dists else _data.fit(leaf)
        if fitted[label] is None or fitted[label] == "data":
            fitted[label] = None
            notes.append(f"input {label} keeps the contents of the example: no distribution has its structure")
    reserved = {*_run.weights(subject.module), *extra}
    symbol = None
    if batch and not shapes and all(fitted[label] is not None for label in names):
        everything = {**taken, **dict.fromkeys(reserved, True)}
        symbol = clean("batch" if batch in everything else batch, everything)
    free = find_batch(subject, runner, outputs, watch.draws, symbol) if symbol else None
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
        extents = tuple(
            map(str, shapes.get(label, [symbol if flag and i == 0 else n for i, n in enumerate(leaf.shape)]))
        )
        task.add_tensor(label, _data.dtype_of(leaf, label), extents, "input", fitted[label])
        if fitted[label] is None:
            task.set_data(label, _data.memory(_data.host_copy(leaf)))
        inputs.append((label, leaf.dtype, extents))
    draws: List[Tuple[str, _run.Draw, Tuple[str, ...]]] = []
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
    task.spec = Spec(
        subject.tree,
        tuple(inputs),
        tuple(draws),
        tuple(weight_names),
        tuple(paths),
        subject.results,
        tuple(made),
        tuple(sorted(subject.written)),
        symbol,
        dims,
    )
    notes += [f"forward overwrites its argument {names[i]}; programs do not" for i in task.spec.written]
    _check_shapes(task, subject, outputs)

    small = [resized(leaf, 2) if flag and leaf.shape[0] > 2 else leaf for leaf, flag in zip(subject.leaves, chosen)]
    _add_reference(task, subject, ctx, runner, small, constructor)
    subject.half = watch.half
    return watch.operators, outputs, _describe(subject.module, subject, task.spec, sorted(runner.changed))


def _check_shapes(task: Task, subject: Subject, outputs: Sequence[torch.Tensor]) -> None:
    """Shapes that the caller has given must have the values that were seen."""
    interface, spec = task.interface, task.spec  # type: ignore[attr-defined]
    seen = dict(zip([name for name, _, _ in spec.inputs], subject.leaves))
    seen.update(zip([name for name, _, _ in spec.outputs], outputs))
    for name, tensor in seen.items():
        if interface[name].shape != tuple(tensor.shape):
            raise InvalidError(
                f"'{name}' has the shape {list(tensor.shape)}, but [{', '.join(interface[name].shape_expr)}] "
                f"is {list(interface[name].shape)}"
            )


def _add_reference(
    task: Any,
    subject: Subject,
    ctx: Context,
    runner: _run.Runner,
    small: Sequence[torch.Tensor],
    constructor: Optional[Constructor],
) -> None:
    double, why = double_module(subject, runner, small, constructor)
    if double is None:
        task.notes.append(f"the reference computes in float32, for there is no float64 module: {why}")
    function = Callback(
        ctx,
        task.spec,
        double or _own(subject),
        subject.device,
        double=double is not None,
        tf32=False,
        mode=None,
        feed=True,
    )
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
        function = Baseline(
            ctx,
            task.spec,
            runner,
            subject.device,
            double=False,
            tf32=tf32,
            mode=mode,
            feed=False,
            notes=task.notes,
            name=name,
        )
        task._callbacks.append(function)
        task.add_baseline(name, function, _baseline_precision(subject, tf32))

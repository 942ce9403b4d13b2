# SPDX-License-Identifier: MIT
"""What the library calls: the module in float64 as the reference, and in PyTorch's own ways as baselines."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _declarations as c
from .._context import Context
from .._errors import InvalidError, UnsupportedError
from .._interface import Dtype
from .._tensors import BoundTensor
from . import _data, _run, _settings, _tree
from ._module import Spec, Subject, devices_of

Constructor = Callable[[], torch.nn.Module]


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


def double_module(
    subject: Subject, runner: _run.Runner, leaves: Sequence[torch.Tensor], constructor: Optional[Constructor]
) -> Tuple[Optional[_run.Runner], str]:
    """The module in float64, tried on `leaves`; None and why there is none."""
    originals = [*_run.weights(subject.module).values(), *_run.attributes(subject.module).values()]
    record = _run.Record()
    want, _, _ = subject.call(runner, leaves, record.draw)
    ways: List[Tuple[str, Constructor]] = [("a copy", lambda: _run.copy(subject.module))]
    if constructor is not None:
        ways.insert(0, ("one made anew", constructor))
    reasons: List[str] = []
    for what, make in ways:
        try:
            with torch.random.fork_rng(devices=devices_of(subject.device)):
                made = make()
            if not isinstance(made, torch.nn.Module):
                raise InvalidError(f"the constructor returned a {type(made).__name__}")
            if made is subject.module:
                raise InvalidError("the constructor returned the module itself")
            _run.move(made, subject.device, torch.float64)
            _run.take_state(made, subject.module)
            double = _run.Runner(made)
            got, watch, _ = subject.call(double, widen(leaves), record.again, originals, double=True)
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
        except (Exception, SystemExit) as e:  # whatever it is: the next way, and a note
            reasons.append(f"{what} fails: {str(e).splitlines()[0] if str(e) else type(e).__name__}"[:300])
    return None, "; ".join(reasons)


def widen(leaves: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    return [leaf.double() if leaf.dtype.is_floating_point else leaf for leaf in leaves]


class Callback:
    """What the library calls: tensors by name in, outputs by name filled. On CUDA everything stays where it is; on a
    simulated device it is copied."""

    def __init__(
        self,
        ctx: Context,
        spec: Spec,
        runner: _run.Runner,
        device: torch.device,
        *,
        double: bool,
        tf32: bool,
        mode: Optional[str],
        feed: bool,
    ) -> None:
        self.ctx, self.spec, self.device = ctx, spec, device
        self.runner: Optional[_run.Runner] = runner
        self.double, self.tf32, self.mode, self.feed = double, tf32, mode, feed
        self._compiled: Any = None
        self._call: Any = None  # function, arguments: ready to compute
        self._made: Any = None  # (result,): computed
        self._first: Any = None  # of the tensors; the same as long as they are in the same memory
        self._stack = contextlib.ExitStack()  # PyTorch's settings during a run
        self._precision = _settings.Precision(tf32)
        self._before: Optional[_settings.Settings] = None  # those of the thread before it
        self._stream = -1
        self.error = ""
        self.failed: Optional[BaseException] = None  # what the last run raised: it is the task's, not the library's

    def release(self) -> None:
        self.abandon()
        self.runner = self._compiled = self._first = self.failed = None

    # -- memory

    def _get(self, bound: BoundTensor) -> torch.Tensor:
        dtype = _data.TORCH[bound.dtype]
        if self.device.type == "cpu":
            made = torch.empty(bound.shape, dtype=dtype)
            bound.read(_data.memory(made))
            return made
        return view(bound, dtype)

    def _put(self, bound: BoundTensor, value: torch.Tensor) -> None:
        if tuple(value.shape) != bound.shape:
            raise UnsupportedError(
                f"output {bound.name} has the shape {list(value.shape)} this time, not "
                f"{list(bound.shape)}: shapes that depend on values are not supported"
            )
        dtype = _data.TORCH[bound.dtype]
        if self.device.type == "cpu":
            bound.write(_data.memory(_data.host_copy(value.to(dtype))))
        else:
            view(bound, dtype).copy_(value)

    # -- a run in three parts: what is looked up, what is computed (and timed), what becomes of the results

    def _prepare(self, tensors: Dict[str, BoundTensor]) -> Tuple[Any, Any, Any]:
        assert self.runner is not None
        leaves = [self._get(tensors[name]) for name, _, _ in self.spec.inputs]
        for i in self.spec.written:  # not the library's own
            leaves[i] = leaves[i].clone()
        function = self._function()
        if self.double or self.feed:
            draws = [self._get(tensors[name]) for name, _, _ in self.spec.draws]
            source: _run.Source = (lambda i, draw, device: draws[i]) if self.feed else _run.generate
            self._stack.enter_context(_run.Watch(source, double=self.double))
        args, kwargs = _tree.build(self.spec.arguments, widen(leaves) if self.double else leaves)
        return function, args, kwargs

    def _function(self) -> Any:
        assert self.runner is not None
        if self.mode is None:
            return self.runner.module
        if self._compiled is None:
            self._compiled = torch.compile(self.runner.module, mode=None if self.mode == "default" else self.mode)
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return self._compiled

    def _finish(self, tensors: Dict[str, BoundTensor], made: Any) -> None:
        out: List[Tuple[str, torch.Tensor]] = []
        _tree.flatten(made, "", out, "the result of forward")
        if len(out) != len(self.spec.outputs):
            raise UnsupportedError("forward gives another number of tensors this time")
        for (name, _, _), (_, value) in zip(self.spec.outputs, out):
            self._put(tensors[name], value.detach())

    def abandon(self) -> None:
        """Back to where a run begins: PyTorch's settings and the module's state are as before."""
        self._call = self._made = None
        self._stack.close()
        self._precision.leave()
        if self._before is not None:
            self._before.restore()
            self._before = None
        if self.runner is not None:
            self.runner.restore()

    def __call__(self, stream: int, tensors: Dict[str, BoundTensor]) -> int:
        first = next(iter(tensors.values()), None)
        self.failed = None
        try:
            if self._first is not first:  # another verification, whatever became of the last one
                self.abandon()
                self._first = first
            if self._call is not None:  # nothing but this is timed
                function, args, kwargs = self._call
                self._made, self._call = (function(*args, **kwargs),), None
                return int(c.AGAIN)
            if self._made is not None:
                (made,), self._made = self._made, None
                self._stack.close()
                with self._on(stream), torch.no_grad():
                    self._finish(tensors, made)
                    del made
                    self.abandon()
                if self.runner is not None:
                    self.runner.check()
                return 0
            if self.runner is None:
                raise InvalidError("the task is closed")
            self._before = _settings.Settings(self.device)
            self._precision.enter()
            enter = self._stack.enter_context
            enter(self._on(stream))
            enter(torch.no_grad())
            enter(torch.autocast(self.device.type, enabled=False))
            self._call = self._prepare(tensors)
            return int(c.READY)
        except BaseException as e:
            self.failed = e
            self.abandon()
            raise

    def _on(self, stream: int) -> Any:
        if self.device.type == "cpu":
            return contextlib.nullcontext()
        if stream != self._stream:
            # What was cached for a stream that is gone is of no use any more.
            self._stream = stream
            torch.cuda.empty_cache()
        where: Any = torch.cuda.default_stream(self.device)
        if stream:
            where = torch.cuda.ExternalStream(stream, device=self.device)  # type: ignore[no-untyped-call]
        return torch.cuda.stream(where)


class Baseline(Callback):
    """A baseline that fails is left out of the report, with the reason in the task's notes; it is not what is judged."""

    def __init__(self, *args: Any, notes: List[str], name: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._notes, self._name = notes, name

    def __call__(self, stream: int, tensors: Dict[str, BoundTensor]) -> int:
        if self.error:
            return int(c.stitch_status.E_UNSUPPORTED)
        try:
            return super().__call__(stream, tensors)
        except (Exception, SystemExit) as e:  # pylint: disable=broad-except
            self._give_up(e)
            return int(c.stitch_status.E_UNSUPPORTED)

    def warm(self, leaves: Sequence[torch.Tensor]) -> None:
        if self.mode is None or self.error or self.runner is None:
            return
        try:
            self._precision.enter()
            for _ in range(3):
                args, kwargs = _tree.build(self.spec.arguments, [leaf.clone() for leaf in leaves])
                self.runner.call(args, kwargs, self._function())
                self.runner.restore()
                self.runner.check()
        except (Exception, SystemExit) as e:  # pylint: disable=broad-except
            self._give_up(e)
        finally:
            self._precision.leave()

    def _give_up(self, e: BaseException) -> None:
        self.error = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"[:500]
        self.failed = None  # it would keep what the run had on the device
        self._notes.append(f"baseline {self._name} failed: {self.error}")


def view(bound: BoundTensor, dtype: torch.dtype) -> torch.Tensor:
    """Device memory as a tensor; nothing is copied."""
    if bound.nbytes == 0:
        return torch.empty(bound.shape, dtype=dtype, device=f"cuda:{bound.device}")
    # As bytes, so that it does not matter which types the importer knows.
    raw = replace(bound, tensor=replace(bound.tensor, dtype=Dtype.U8, shape=(bound.nbytes,)))
    return torch.utils.dlpack.from_dlpack(raw).view(dtype).view(bound.shape)

# SPDX-License-Identifier: MIT
"""A module under examination: which tensors go in and come out, under which names, and which extents are free."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import torch

from .._context import Context
from .._errors import InvalidError, NoMemoryError, StitchError, UnsupportedError
from . import _data, _run, _tree


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


# ---- what a module is given and gives --------------------------------------------------------------------------------


def device_of(module: torch.nn.Module, leaves: Sequence[torch.Tensor]) -> torch.device:
    """The one device of module and inputs. InvalidError if there are several, UnsupportedError for one that cannot
    be used."""
    found: Dict[torch.device, str] = {}
    for name, tensor in [*_run.weights(module).items(), *[("an input", leaf) for leaf in leaves]]:
        if torch.nn.parameter.is_lazy(tensor):
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
        raise InvalidError(
            f"the module is on the CPU, but the context uses {ctx.device.name}; call .cuda() on both, "
            'or take a simulated device: Context("sim:sm_90a")'
        )
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
    raise TypeError(
        f"example_inputs must be a tensor, a list or tuple of arguments, or a dict, not {type(example).__name__}"
    )


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
        for path, part in module.named_modules():
            if isinstance(part, torch.jit.ScriptModule):
                what = f"{path or 'the module'} is a TorchScript module"
                raise UnsupportedError(f"{what}; make the task of the module that it was made from")
        args, kwargs = arguments(module, example)
        labels = _label(module, args, kwargs)
        found: List[Tuple[str, torch.Tensor]] = []
        positional = [_tree.flatten(arg, name, found, f"argument {name}") for name, arg in zip(labels, args)]
        keywords = {name: _tree.flatten(arg, name, found, f"argument {name}") for name, arg in kwargs.items()}
        self.tree = (
            "tuple",
            None,
            [("tuple", None, positional, tuple), ("dict", list(keywords), list(keywords.values()), dict)],
            tuple,
        )
        self.labels = [name for name, _ in found]
        self.leaves = [tensor.detach() for _, tensor in found]
        self.module, self.device = module, device_of(module, self.leaves)
        self.half = False  # it multiplies halves, once it has been tried
        self.results: _tree.Tree = None
        self.names: List[str] = []
        self.written: Set[int] = set()  # inputs that forward overwrites

    def call(
        self,
        runner: _run.Runner,
        leaves: Sequence[torch.Tensor],
        source: _run.Source = _run.generate,
        foreign: Sequence[torch.Tensor] = (),
        double: bool = False,
        fill: bool = False,
    ) -> Tuple[List[torch.Tensor], _run.Watch, _tree.Tree]:
        """One run: the results, copied, since modules may return their own state."""
        given = [leaf.clone() for leaf in leaves]
        args, kwargs = _tree.build(self.tree, given)
        known = [*given, *_run.weights(runner.module).values(), *_run.attributes(runner.module).values()]
        watch = _run.Watch(source, known, foreign, double, fill)
        versions = [_run.version_of(one) for one in given]
        out: List[Tuple[str, torch.Tensor]] = []
        try:
            made = runner.run(args, kwargs, watch)
            results = _tree.flatten(made, "", out, "the result of forward")
            for name, tensor in out:
                _data.dtype_of(tensor, f"output {name or 'y'}")
        except StitchError:
            raise
        except (Exception, SystemExit) as e:
            if too_large(e):
                raise out_of_memory(self.device, e) from e
            raise InvalidError(f"forward raised {type(e).__name__}: {e}") from e
        self.names = [name for name, _ in out]
        for i, (one, leaf, version) in enumerate(zip(given, leaves, versions)):
            if _run.version_of(one) != version or not torch.equal(one, leaf) and not bool((one != one).any()):
                self.written.add(i)
        return [tensor.detach().clone() for _, tensor in out], watch, results


def too_large(e: BaseException) -> bool:
    """Whether memory was not enough; PyTorch has no class for the CPU's."""
    return isinstance(e, (torch.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator: " in str(e)


def reproduced(before: Sequence[torch.Tensor], now: Sequence[torch.Tensor]) -> bool:
    """Whether two runs with the same inputs gave the same. Sums in another order may round otherwise."""
    for a, b in zip(before, now):
        if a.shape != b.shape:
            return False
        if _run.same_values(a, b):
            continue
        if not a.dtype.is_floating_point:  # ranks of what is rounded
            off, most = a != b, 0.1
        else:
            tolerance, most = 1e-4 if a.dtype.itemsize >= 4 else 1e-2, 0.01
            a, b = a.double(), b.double()
            good = torch.isfinite(a) & torch.isfinite(b)
            scale = float(a[good].abs().max()) if bool(good.any()) else 0.0
            off = ~(((a - b).abs() <= tolerance * scale) | (a == b) | ((a != a) & (b != b)))
        if float(off.double().mean()) > most:
            return False
    return True


def out_of_memory(device: torch.device, e: BaseException) -> StitchError:
    return NoMemoryError(f"the module does not fit into the memory of {device}: {str(e).splitlines()[0]}")


def shapes_of(tensors: Sequence[torch.Tensor]) -> List[Tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in tensors]


def resized(leaf: torch.Tensor, size: int) -> torch.Tensor:
    if size <= leaf.shape[0]:
        return leaf[:size]
    return torch.cat([leaf] * -(-size // leaf.shape[0]))[:size]


def find_batch(
    subject: Subject, runner: _run.Runner, outputs: Sequence[torch.Tensor], draws: Sequence[_run.Draw], name: str
) -> Optional[Tuple[List[bool], List[Tuple[str, ...]], List[Tuple[str, ...]]]]:
    """Which inputs have the first dimension as a free one, and the shapes of outputs and draws with it; None: it cannot
    be changed."""
    first = next((leaf.shape[0] for leaf in subject.leaves if leaf.dim()), 0)
    if first < 1:
        return None
    some = [bool(leaf.dim()) and leaf.shape[0] == first for leaf in subject.leaves]
    only = [flag and not any(some[:i]) for i, flag in enumerate(some)]
    sizes = [size for size in (2, 3, 4) if size != first][:2]
    for chosen in [some] if some == only else [some, only]:
        seen = [(first, shapes_of(outputs), [draw.shape for draw in draws])]
        for size in sizes:
            leaves = [resized(leaf, size) if flag else leaf for leaf, flag in zip(subject.leaves, chosen)]
            try:
                made, watch, results = subject.call(runner, leaves)
            except StitchError:
                break
            if not _tree.same(results, subject.results):
                break
            seen.append((size, shapes_of(made), [draw.shape for draw in watch.draws]))
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
                _data.linear(tuple((row[0], row[1 + part][i][axis]) for row in seen), name)
                for axis in range(len(shape))
            ]
            if None in texts:
                return None
            made[part].append(tuple(str(text) for text in texts))
    return made[0], made[1]


def devices_of(device: torch.device) -> List[int]:
    return [device.index or 0] if device.type == "cuda" else []

# SPDX-License-Identifier: MIT
"""Running a module so that every run is the same: its state is put back, its random draws are ours.

A draw inside forward (dropout, an initial state) becomes an input of the task: the operator is caught while the module
runs and gets its numbers from there, in whatever precision it runs.
"""

from __future__ import annotations

import collections
import copy as copies
import pickle
import random
import sys
import types
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from .._errors import InvalidError, UnsupportedError

# ---- random draws ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draw:
    """One random draw: normal (mean a, deviation b), uniform [a, b), bernoulli (a), randint [a, b)."""

    kind: str
    a: float
    b: float
    dtype: torch.dtype
    shape: Tuple[int, ...]

    def sample(self, shape: Sequence[int], device: Any) -> torch.Tensor:
        """From PyTorch's generator of the device."""
        if self.kind == "randint":
            return torch.randint(int(self.a), int(self.b), tuple(shape), dtype=self.dtype, device=device)
        made = torch.empty(tuple(shape), dtype=self.dtype, device=device)
        if self.kind == "normal":
            return made.normal_(self.a, self.b)
        return made.uniform_(self.a, self.b) if self.kind == "uniform" else made.bernoulli_(self.a)


# What gives the numbers of a draw: (running number, draw, device) -> tensor.
Source = Callable[[int, Draw, torch.device], torch.Tensor]


def generate(_: int, draw: Draw, device: torch.device) -> torch.Tensor:
    return draw.sample(draw.shape, device)


class Record:
    """Draws numbers, and gives the same ones to further runs."""

    def __init__(self) -> None:
        self._drawn: List[torch.Tensor] = []

    def draw(self, _: int, draw: Draw, device: torch.device) -> torch.Tensor:
        self._drawn.append(draw.sample(draw.shape, device))
        return self._drawn[-1]

    def again(self, number: int, draw: Draw, _: torch.device) -> torch.Tensor:
        if number >= len(self._drawn) or tuple(self._drawn[number].shape) != draw.shape:
            raise UnsupportedError("forward draws other random numbers for the same inputs")
        return self._drawn[number]

    def drew_the_same(self, other: "Record") -> bool:
        """Whether two runs drew the same numbers, and that is no chance."""
        return (
            len(self._drawn) == len(other._drawn)
            and all(map(torch.equal, self._drawn, other._drawn))
            and sum(map(_surprise, self._drawn)) >= 32
        )


def _surprise(drawn: torch.Tensor) -> float:
    """How unlikely it is, in bits, that such numbers are drawn twice."""
    some = drawn.flatten()[:4096]
    shares = torch.unique(some, return_counts=True)[1].double() / max(some.numel(), 1)
    return -some.numel() * float(torch.log2((shares * shares).sum())) if some.numel() else 0.0


def other_generators() -> Any:
    """The states of Python's and NumPy's generators: whether forward draws from them, which cannot be fed."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else pickle.dumps(numpy.random.get_state(legacy=False))


def _arguments(func: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> Dict[str, Any]:
    named = {}
    for i, argument in enumerate(func._schema.arguments):
        named[argument.name] = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
    return named


def _is_default(generator: torch.Generator) -> bool:
    """By its state: operators are given another object for it."""
    on_gpu = generator.device.type == "cuda"
    default = torch.cuda.default_generators[generator.device.index or 0] if on_gpu else torch.default_generator
    return torch.equal(generator.get_state(), default.get_state())


def _no_dropout(named: Dict[str, Any]) -> bool:
    """An operator that could draw, but has nothing to draw for: attention and recurrent networks without dropout."""
    return any(name in named and float(named[name] or 0) == 0 for name in ("dropout", "dropout_p"))


# ---- what happens in a run -------------------------------------------------------------------------------------------


def storage_of(tensor: torch.Tensor) -> int:
    """Identifies the memory behind a tensor; 0: none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


# What PyTorch's default dtype makes where forward names none, and what that is in a run in float64.
_WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_UNWRITTEN = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
_HALVES = (torch.float16, torch.bfloat16)
# Operators whose precision a task states: of what they multiply.
_PRODUCTS = {
    *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear", "_addmm_activation"),
    *("convolution", "_convolution", "mkldnn_convolution", "mkldnn_linear", "mkldnn_rnn_layer", "cudnn_convolution"),
    *("_cudnn_rnn", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "_scaled_dot_product_flash_attention"),
    *(
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_attention_math",
    ),
    *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_fused_attention_overrideable"),
}
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator of a run: feeds the random ones, and notes tensors that come from nowhere, that belong to
    another module, and where float64 gets lost.

    double: what operators make of no floating tensor becomes float64, as under torch.set_default_dtype(), which would
    change what other threads of the process make at the same time.
    fill: memory that is made without contents gets some."""

    def __init__(
        self,
        source: Source,
        known: Sequence[torch.Tensor] = (),
        foreign: Sequence[torch.Tensor] = (),
        double: bool = False,
        fill: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.source = source
        self.double, self._fill = double, fill
        self._widens = double and torch.get_default_dtype() is torch.float32
        self._data: Dict[int, torch.Tensor] = {}  # float64 of torch.tensor(), by identity
        self.draws: List[Draw] = []
        self.strangers: List[torch.Tensor] = []
        self.used: Set[int] = set()  # what operators were given
        self.borrowed = False  # memory of `foreign` was used
        self.lossy = ""  # the first operator that made less than float64 of it
        self.half = False  # products of halves, whatever the inputs and weights are: autocast within forward
        self.operators: Set[str] = set()
        self.dynamic = ""  # the first operator whose result has a shape that depends on values
        self._known = {storage_of(tensor) for tensor in known} | {0}
        self._foreign = {storage_of(tensor) for tensor in foreign} - {0}

    def _draw(
        self, kind: str, a: float, b: float, dtype: torch.dtype, shape: Sequence[int], device: Any
    ) -> torch.Tensor:
        # Numbers are drawn in at most float32, so that a run in float64 gets the same ones.
        narrow = torch.float32 if dtype.is_floating_point and dtype.itemsize > 4 else dtype
        draw = Draw(kind, float(a), float(b), narrow, tuple(int(extent) for extent in shape))
        self.draws.append(draw)
        value = self.source(
            len(self.draws) - 1, draw, torch.device(device) if device is not None else torch.device("cpu")
        )
        return value.to(dtype)

    def _random(self, func: Any, named: Dict[str, Any]) -> Any:
        """The result of a random operator; NotImplemented: it draws nothing."""
        name = func._schema.name.partition("::")[2]
        if named.get("generator") is not None and not _is_default(named["generator"]):
            raise UnsupportedError(
                f"forward draws random numbers (aten.{name}) from a generator of its own, which an optimised module would "
                "not draw from: draw outside of it, or from PyTorch's default generator"
            )
        like: Any = named.get("self")
        dtype = named.get("dtype") or (like.dtype if isinstance(like, torch.Tensor) else None)
        if isinstance(dtype, int):  # the default of randint, by its number: int64
            dtype = None
        device = named.get("device") or (like.device if isinstance(like, torch.Tensor) else None)
        size: Any = named.get("size") if named.get("size") is not None else getattr(like, "shape", ())
        standard = dtype or (torch.float64 if self._widens else torch.get_default_dtype())
        if name in ("randn", "randn_like"):
            return self._draw("normal", 0, 1, standard, size, device)
        if name in ("rand", "rand_like"):
            return self._draw("uniform", 0, 1, standard, size, device)
        if name in ("randint", "randint_like"):
            return self._draw("randint", named.get("low") or 0, named["high"], dtype or torch.int64, size, device)
        if (
            name == "normal"
            and not isinstance(named["mean"], torch.Tensor)
            and not isinstance(named["std"], torch.Tensor)
        ):
            return self._draw("normal", named["mean"], named["std"], standard, size, device)
        if name == "normal_":
            return like.copy_(self._draw("normal", named["mean"], named["std"], like.dtype, like.shape, like.device))
        if name == "uniform_":
            return like.copy_(self._draw("uniform", named["from"], named["to"], like.dtype, like.shape, like.device))
        if name in ("bernoulli", "bernoulli_"):
            return self._bernoulli(name, like, named.get("p"))
        if name == "native_dropout" and named["train"] is not False:
            like, p = named["input"], float(named["p"])
            if p in (0.0, 1.0):
                mask = torch.full_like(like, 1 - p, dtype=torch.bool)
            else:
                mask = self._draw("bernoulli", 1 - p, 0, torch.bool, like.shape, like.device)
            return like * mask * (0.0 if p == 1.0 else 1 / (1 - p)), mask
        if name == "native_dropout" or _no_dropout(named):
            return NotImplemented
        raise UnsupportedError(
            f"forward draws random numbers with aten.{name}, which cannot be made an input of the task; put the module "
            "into eval mode, or draw outside of it"
        )

    def _bernoulli(self, name: str, like: torch.Tensor, p: Any) -> Any:
        if name == "bernoulli" and p is None or isinstance(p, torch.Tensor):
            odds = like if p is None else p
            drawn = self._draw("uniform", 0, 1, torch.float32, like.shape, like.device)
            value = (drawn < odds).to(like.dtype)
        elif float(p) in (0.0, 1.0):
            value = torch.full_like(like, float(p))
        else:
            value = self._draw("bernoulli", p, 0, like.dtype, like.shape, like.device)
        return like.copy_(value) if name == "bernoulli_" else value

    def _check(self, name: str, given: List[torch.Tensor], made: List[torch.Tensor]) -> None:
        for tensor in given:
            at = storage_of(tensor)
            self.used.add(at)
            self.borrowed |= at in self._foreign
            # Numbers that became tensors on the way are no strangers.
            if at not in self._known and tensor.dim() and not name.startswith("lift_fresh"):
                self._known.add(at)
                self.strangers.append(tensor)
        self._known.update(storage_of(tensor) for tensor in made)
        if not self.lossy and any(tensor.dtype is torch.float64 for tensor in given):
            for tensor in made:
                if tensor.dtype.is_floating_point and tensor.dtype.itemsize < 8:
                    self.lossy = f"aten.{name} makes {str(tensor.dtype).rpartition('.')[2]} of float64"

    def _widened(self, func: Any, args: Any, kwargs: Dict[str, Any], out: torch.Tensor) -> Any:
        """`out`, as it is with float64 as the default dtype."""
        wide = _WIDE.get(out.dtype)
        if wide is None:
            return out
        given = list(_tensors((args, kwargs)))
        name = func._schema.name.partition("::")[2]
        if name == "lift_fresh":  # of torch.tensor(), which may have been asked for float32: the numbers are the same
            made = out.to(wide)
            self._data[id(made)] = made
            return made
        if name == "_to_copy" and id(given[0]) in self._data:  # to where it was asked for
            return func(*args, **{**kwargs, "dtype": wide})
        if any(tensor.dtype not in _INTEGERS for tensor in given):
            return out
        if name == "scalar_tensor" or "dtype" in (argument.name for argument in func._schema.arguments):
            # Numbers in torch.where() become tensors of the default dtype by name.
            named = name != "scalar_tensor" and _arguments(func, args, kwargs)["dtype"] is not None
            return out if named else func(*args, **{**kwargs, "dtype": wide})
        if not given:
            return out
        args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.double, (args, kwargs))
        return func(*args, **kwargs)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        self.operators.add(name)
        if name in _PRODUCTS and any(given.dtype in _HALVES for given in _tensors((args, kwargs))):
            self.half = True
        if func.namespace == "quantized":
            raise UnsupportedError(
                f"forward computes with quantised weights (quantized.{name}); only dense tensors are known"
            )
        out = NotImplemented
        if torch.Tag.nondeterministic_seeded in func.tags:
            out = self._random(func, _arguments(func, args, kwargs))
        if out is NotImplemented:
            out = func(*args, **kwargs)
            if self._widens and isinstance(out, torch.Tensor):
                out = self._widened(func, args, kwargs, out)
            if self._fill and name in _UNWRITTEN:
                out.fill_(3)
        if not self.dynamic and torch.Tag.dynamic_output_shape in func.tags:
            # Indexing has the tag for masks; with numbers of places the shape is theirs.
            if name != "index" or any(at.dtype in (torch.bool, torch.uint8) for at in _tensors(args[1:])):
                self.dynamic = f"aten.{name}"
        self._check(name, list(_tensors((args, kwargs))), list(_tensors(out)))
        return out


def in_double() -> bool:
    """Whether this is called by a module that runs in float64."""
    modes = _get_current_dispatch_mode_stack()
    return any(isinstance(mode, Watch) and mode.double for mode in modes)


# ---- state -----------------------------------------------------------------------------------------------------------

_TABLES = ("_parameters", "_buffers", "_modules")
_CHANGEABLE = (dict, collections.OrderedDict, collections.defaultdict, list, set, collections.deque)


def _nested(value: Any, name: str) -> Iterator[Tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _nested(item, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _nested(item, f"{name}.{i}")


def attributes(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """Tensors that modules hold as plain attributes (an initial state, say), by path."""
    found: Dict[str, torch.Tensor] = {}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in _TABLES and not isinstance(value, torch.nn.Module):
                for label, tensor in _nested(value, f"{path}.{name}" if path else name):
                    found.setdefault(label, tensor)
    return found


def weights(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """Parameters and buffers under their state_dict names, those that are not saved too. Ones that are shared appear
    under every name."""
    found: Dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    found.update(module.named_buffers(remove_duplicate=False))
    return found


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape hold the same; NaN is itself."""
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


def _containers(value: Any, seen: Set[int]) -> Iterator[Any]:
    """Containers that Python code may change in place, and those in them, each once."""
    if type(value) in _CHANGEABLE:
        if id(value) in seen:
            return
        seen.add(id(value))
        yield value
    elif type(value) is not tuple:
        return
    for item in value.values() if isinstance(value, dict) else value:
        yield from _containers(item, seen)


def _put_back(now: Any, kept: Any, ordered: bool = True) -> List[Any]:
    """Gives a container the contents that it had; the keys or places that were changed. It is never empty on the way:
    KeyboardInterrupt may come anywhere in between, and a second call does what is left."""
    if isinstance(now, dict):
        odd = [key for key, value in kept.items() if key not in now or now[key] is not value]
        more = [key for key in now if key not in kept] if odd or len(now) != len(kept) else []
        if odd or more:
            now.update(kept)
        for key in more:
            del now[key]
        if ordered and any(a is not b for a, b in zip(now, kept)):
            for key in kept:
                now[key] = now.pop(key)
        return odd + more
    if isinstance(now, set):
        if now == kept:
            return []
        now |= kept
        now &= kept
    elif len(now) == len(kept) and all(a is b for a, b in zip(now, kept)):
        return []
    elif isinstance(now, list):
        now[:] = kept
    else:
        now.extend(kept)
        while len(now) > len(kept):
            now.popleft()
    return [""]


def version_of(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


class Runner:
    """A module that is run over and over, each time with the state that it had at first. guard: the first run is looked
    at closely, whether it writes parameters where PyTorch does not count it (.data); it takes memory for a copy of them.
    """

    def __init__(self, module: torch.nn.Module, guard: bool = False) -> None:
        self.module = module
        self.changed: Set[str] = set()  # buffers and attributes that forward changes
        self.written: Set[str] = set()  # parameters that it changes, which it must not
        self._examined = False
        # Of each module its attributes; then what lists, dicts and sets among them hold.
        self._tables: List[Tuple[str, Dict[str, Any], Dict[str, Any]]] = []
        self._contents: List[Tuple[str, bool, Any, Any]] = []
        seen: Set[int] = set()
        for path, part in module.named_modules():
            prefix = f"{path}." if path else ""
            self._tables.append((prefix, vars(part), dict(vars(part))))
            for name, value in vars(part).items():
                for one in _containers(value, seen):
                    table = one is value and name in _TABLES
                    self._contents.append((prefix if table else prefix + name, table, one, copies.copy(one)))
        self._parameters = dict(module.named_parameters())
        self._versions = {name: version_of(parameter) for name, parameter in self._parameters.items()}
        self._guarded: Dict[str, torch.Tensor] = {}
        with torch.no_grad():
            # Parameters in lists (recurrent layers have one) are looked at as parameters, and never written.
            known = {id(parameter) for parameter in self._parameters.values()}
            state = {**dict(module.named_buffers()), **attributes(module)}
            self._kept: Dict[str, List[Any]] = {
                name: [t, t._version, t.detach().clone()]
                for name, t in state.items()
                if not t.is_inference() and id(t) not in known
            }
            if guard:
                try:
                    self._guarded = {name: p.detach().clone() for name, p in self._parameters.items()}
                except torch.OutOfMemoryError:
                    self._guarded = {}  # what PyTorch counts is noticed all the same

    def call(self, args: Sequence[Any], kwargs: Dict[str, Any], call: Optional[Callable[..., Any]] = None) -> Any:
        """module(*args, **kwargs) without gradients and without autocast of the caller's; restore() afterwards."""
        device = next((tensor.device.type for tensor in _tensors((args, kwargs))), "cpu")
        with torch.no_grad(), torch.autocast(device, enabled=False):
            return (self.module if call is None else call)(*args, **kwargs)  # a compiled module has no truth value

    def restore(self) -> None:
        """Puts everything back that forward has changed. Once more does no harm, and completes what was interrupted."""
        for prefix, now, plain in self._tables:
            self.changed.update(prefix + name for name in _put_back(now, plain, ordered=False))
        for name, table, now, kept in self._contents:
            self.changed.update(name + key if table else name for key in _put_back(now, kept))
        with torch.no_grad():
            self._restore_parameters()
            for name, entry in self._kept.items():
                tensor, version, kept = entry
                # Operators may write a buffer without counting it as a new version (batch norm does): until a run was
                # looked at closely, everything is put back.
                if name in self.changed or tensor._version != version or not self._examined:
                    tensor.copy_(kept)
                    entry[1] = tensor._version

    def _restore_parameters(self) -> None:
        for name, parameter in self._parameters.items():
            kept = self._guarded.get(name)
            if version_of(parameter) != self._versions[name] or kept is not None and not same_values(parameter, kept):
                self.written.add(name)
                if kept is not None:
                    parameter.copy_(kept)
                self._versions[name] = version_of(parameter)

    def check(self) -> None:
        """UnsupportedError if a run changed parameters: another one would give something else."""
        if self.written:
            raise UnsupportedError(f"forward changes the parameter {min(self.written)}; runs of it cannot be repeated")

    def _examine(self) -> None:
        """Which values have changed."""
        for name, (tensor, _, kept) in self._kept.items():
            if name not in self.changed and not torch.equal(tensor, kept):
                self.changed.add(name)
        self._examined = True

    def run(self, args: Sequence[Any], kwargs: Dict[str, Any], watch: Watch) -> Any:
        """One watched run from the first state."""
        try:
            with watch:
                made = self.call(args, kwargs)
        finally:
            self._examine()
            self.restore()
        self._guarded = {}
        self.check()
        return made


# ---- copies ----------------------------------------------------------------------------------------------------------


def copy(module: torch.nn.Module) -> torch.nn.Module:
    """A deep copy whose functions close over the copy, where copy.deepcopy() leaves them with the original's parts."""
    memo: Dict[int, Any] = {}
    made = copies.deepcopy(module, memo)
    for part in made.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, types.FunctionType) and value.__closure__:
                object.__setattr__(part, name, _reclosed(value, memo))
    return made


def _reclosed(function: types.FunctionType, memo: Dict[int, Any]) -> types.FunctionType:
    cells = []
    for cell in function.__closure__ or ():
        try:
            inside = cell.cell_contents
        except ValueError:  # empty
            cells.append(cell)
            continue
        cells.append(types.CellType(memo[id(inside)]) if id(inside) in memo else cell)
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells)
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def take_state(module: torch.nn.Module, source: torch.nn.Module) -> None:
    """Gives a freshly made module the values of another: parameters, buffers, plain tensors, and its modes. InvalidError
    if they are not alike."""
    with torch.no_grad():
        for kind, mine, theirs in (
            ("parameters and buffers", weights(module), weights(source)),
            ("tensors", attributes(module), attributes(source)),
        ):
            if mine.keys() != theirs.keys() or any(mine[name].shape != theirs[name].shape for name in mine):
                raise InvalidError(f"the constructor makes other {kind} than the module has")
            for name, tensor in mine.items():
                tensor.copy_(theirs[name])
    modes = {path: part.training for path, part in source.named_modules()}
    for path, part in module.named_modules():
        part.training = modes.get(path, part.training)


def move(module: torch.nn.Module, device: torch.device, dtype: Optional[torch.dtype] = None) -> None:
    """Module.to() that takes plain tensors along; dtype: of everything that is floating."""
    module.to(device=device, dtype=dtype)

    def moved(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(device=device, dtype=dtype if value.dtype.is_floating_point else None)
        if type(value) in (list, tuple):
            return type(value)(moved(item) for item in value)
        return {key: moved(item) for key, item in value.items()} if type(value) is dict else value

    for part in module.modules():
        for name, value in list(vars(part).items()):
            if name not in _TABLES and any(True for _ in _nested(value, name)):
                vars(part)[name] = moved(value)

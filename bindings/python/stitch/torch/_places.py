# SPDX-License-Identifier: MIT
"""Where the weights of a module are found at every call, though they are replaced."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from .._errors import InvalidError
from . import _run


class Inside:
    """A tensor that a module has as a plain attribute, or in lists, tuples and dicts of one; looked up at every call."""

    def __init__(self, part: torch.nn.Module, name: str, keys: Tuple[Any, ...]) -> None:
        self.part, self.name, self.keys = part, name, keys

    @property
    def tensor(self) -> Any:
        """None: it is gone."""
        value = getattr(self.part, self.name, None)
        for key in self.keys:
            value = _item(value, key)
        return value

    def steps(self) -> Iterator[Tuple[Any, Any, Any]]:
        """The way to it: (where, key, what is there)."""
        where: Any = vars(self.part)
        for key in (self.name, *self.keys):
            value = _item(where, key)
            yield where, key, value
            where = value


def _item(value: Any, key: Any) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    return value[key] if isinstance(value, (list, tuple)) and isinstance(key, int) and key < len(value) else None


def _insides(module: torch.nn.Module) -> Dict[str, Inside]:
    """Where the tensors of _run.attributes() are found, by the same paths."""
    found: Dict[str, Inside] = {}

    def look(part: torch.nn.Module, path: str, value: Any, name: str, keys: Tuple[Any, ...]) -> None:
        if isinstance(value, torch.Tensor):
            found.setdefault(path, Inside(part, name, keys))
        elif isinstance(value, (dict, list, tuple)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                look(part, f"{path}.{key}", item, name, (*keys, key))

    for at, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in _run._TABLES and not isinstance(value, torch.nn.Module):
                look(part, f"{at}.{name}" if at else name, value, name, ())
    return found


Places = List[Tuple[Any, str]]  # an object and the attribute that holds the tensor


def places(module: torch.nn.Module, paths: Sequence[str]) -> Places:
    """Where each weight is found at every call."""
    parts = dict(module.named_modules())
    insides = _insides(module)
    found: Places = []
    for path in paths:
        owner, _, name = path.rpartition(".")
        if owner in parts and isinstance(getattr(parts[owner], name, None), torch.Tensor):
            found.append((parts[owner], name))
        elif path in insides:
            found.append((insides[path], "tensor"))
        else:
            raise InvalidError(f"the module has no tensor {path}, which the program needs")
    return found


def aliases(module: torch.nn.Module, paths: Sequence[str], held: Places) -> List[Tuple[Inside, Any, str]]:
    """Where else a module has its weights. Its forward may use those, the program has them from their places: both must
    be the same tensor still."""
    named: Dict[int, Places] = {}
    for owner, name in held:
        named.setdefault(id(getattr(owner, name)), []).append((owner, name))
    return [
        (inside, owner, name)
        for path, inside in _insides(module).items()
        if path not in paths
        for owner, name in named.get(id(inside.tensor), [])
    ]


def tables(held: Places) -> Optional[List[Tuple[Any, Any]]]:
    """The dicts (and lists) that getattr() would find them in; None: something else stands behind one (a
    parametrisation)."""
    found: List[Tuple[Any, Any]] = []
    for owner, name in held:
        if isinstance(owner, Inside):
            found.append([(where, key) for where, key, _ in owner.steps()][-1])
            continue
        some = (getattr(owner, "_parameters", {}), getattr(owner, "_buffers", {}), vars(owner))
        table = next((table for table in some if name in table), None)
        if table is None:
            return None
        found.append((table, name))
    return found


def links(held: Places, others: Sequence[Tuple[Inside, Any, str]]) -> List[Tuple[Any, Any, Any]]:
    """(where, key, what is there): as long as all of these are, tables() are where the module has its weights, and those
    of its aliases() are what they were."""
    found: List[Tuple[Any, Any, Any]] = []
    for owner, _ in held:
        if isinstance(owner, Inside):
            found += list(owner.steps())[:-1]
    for inside, _, _ in others:
        found += inside.steps()
    return found

# SPDX-License-Identifier: MIT
"""Nested arguments and results: tensors taken out in order, everything else kept as it is.

A tree is a tensor's index, or a tuple (kind, ...) that JSON can hold; named tuples and dict subclasses keep their type
as long as the tree is not saved.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, Dict, List, Sequence, Tuple

import torch

from .._errors import UnsupportedError

Tree = Any
CONSTANTS = (bool, int, float, str, type(None))


def flatten(value: Any, name: str, leaves: List[Tuple[str, torch.Tensor]], what: str) -> Tree:
    """The tree of `value`, whose tensors are appended to `leaves` with names that start with `name`."""
    if isinstance(value, torch.Tensor):
        leaves.append((name, value))
        return len(leaves) - 1
    if isinstance(value, dict):
        keys = list(value)
        if not all(isinstance(key, (str, int)) for key in keys):
            raise UnsupportedError(f"{what} has a dict with keys that are neither text nor integers")
        items = [flatten(value[key], f"{name}.{key}" if name else str(key), leaves, what) for key in keys]
        return ("dict", keys, items, type(value))
    if isinstance(value, (list, tuple)):
        fields = getattr(value, "_fields", None)
        labels = fields or range(len(value))
        items = [
            flatten(item, f"{name}.{label}" if name else str(label), leaves, what) for label, item in zip(labels, value)
        ]
        return ("list" if isinstance(value, list) else "tuple", list(fields) if fields else None, items, type(value))
    if isinstance(value, CONSTANTS) or isinstance(value, (torch.dtype, torch.device, slice)):
        return ("constant", value)
    raise UnsupportedError(
        f"{what} holds a {type(value).__module__}.{type(value).__qualname__}; tensors, numbers, text, None, and tuples, "
        "lists and dicts of them are known"
    )


def build(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The value again, with other tensors."""
    if isinstance(tree, int):
        return leaves[tree]
    if tree[0] == "constant":
        return tree[1]
    _, names, items, kind = tree
    parts = [build(item, leaves) for item in items]
    if tree[0] == "dict":
        made = dict(zip(names, parts))
        return made if kind is dict else kind(made)
    if tree[0] == "tuple" and names:
        return kind(*parts)
    return parts if tree[0] == "list" else tuple(parts)


def same(a: Tree, b: Tree) -> bool:
    """Whether two trees differ in nothing, constants included (NaN is itself)."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    if a[0] != b[0]:
        return False
    if a[0] == "constant":
        return type(a[1]) is type(b[1]) and (a[1] == b[1] or (a[1] != a[1] and b[1] != b[1]))
    return a[1] == b[1] and len(a[2]) == len(b[2]) and all(same(x, y) for x, y in zip(a[2], b[2]))


def constants(tree: Tree, name: str = "") -> Dict[str, Any]:
    """The constants by their place."""
    if isinstance(tree, int):
        return {}
    if tree[0] == "constant":
        return {name: tree[1]}
    found: Dict[str, Any] = {}
    for label, item in zip(tree[1] or range(len(tree[2])), tree[2]):
        found.update(constants(item, f"{name}.{label}" if name else str(label)))
    return found


def indices(tree: Tree) -> List[int]:
    """Of its tensors, in its order."""
    if isinstance(tree, int):
        return [tree]
    return [] if tree[0] == "constant" else [index for item in tree[2] for index in indices(item)]


def is_call(tree: Tree) -> bool:
    """Whether it is a tuple of positional arguments and a dict of keywords."""
    if isinstance(tree, int) or tree[0] != "tuple" or len(tree[2]) != 2:
        return False
    args, kwargs = tree[2]
    if isinstance(args, int) or isinstance(kwargs, int) or (args[0], kwargs[0]) != ("tuple", "dict"):
        return False
    return all(isinstance(name, str) for name in kwargs[1])


def to_json(tree: Tree) -> Any:
    if isinstance(tree, int):
        return tree
    if tree[0] == "constant":
        if not isinstance(tree[1], CONSTANTS):
            raise UnsupportedError(f"an argument {tree[1]!r} cannot be saved")
        return {"kind": "constant", "value": tree[1]}
    return {"kind": tree[0], "names": tree[1], "items": [to_json(item) for item in tree[2]]}


def from_json(value: Any) -> Tree:
    """Types are plain again: named tuples have a type of their own, dict subclasses are dicts. ValueError if it is no
    tree."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if not isinstance(value, dict):
        raise ValueError("it is no tree")
    if value.get("kind") == "constant" and isinstance(value.get("value"), CONSTANTS):
        return ("constant", value["value"])
    names, items = value.get("names"), value.get("items")
    if value.get("kind") not in ("dict", "list", "tuple") or not isinstance(items, list):
        raise ValueError("it is no tree")
    if names is None and value["kind"] == "dict" or names is not None and value["kind"] == "list":
        raise ValueError("it is no tree")
    if names is not None:
        if not isinstance(names, list) or not all(isinstance(name, (str, int)) for name in names):
            raise ValueError("it is no tree")
        if len(names) != len(items) or len(set(names)) != len(names):
            raise ValueError("it is no tree")
    kinds: Dict[str, Any] = {"dict": dict, "list": list, "tuple": tuple}
    if value["kind"] == "tuple" and names:
        kinds["tuple"] = namedtuple("Result", names)  # ValueError where they are no names
    return (value["kind"], names, [from_json(item) for item in items], kinds[value["kind"]])

# SPDX-License-Identifier: MIT
"""Finds libstitch, checks its version and gives its functions their types. Nothing is loaded before the first use."""

from __future__ import annotations

import ctypes
import glob
import os
import threading
from typing import Any, List, Optional, Tuple

from . import _declarations as c
from ._integers import arguments

_HERE = os.path.dirname(os.path.abspath(__file__))
_SONAME = "libstitch.so.0"


def _carried(name: str) -> str:
    """Where a file of the package's folder lib is: in an editable installation that is where it was built."""
    path = os.path.join(_HERE, "lib", name)
    if not os.path.exists(path) and _checkout():
        from importlib import resources  # only here, since it takes time

        found = resources.files(__package__ or "stitch").joinpath("lib").joinpath(name)
        path = str(found) if found.is_file() else path
    return path


def _checkout() -> str:
    """The checkout that this file belongs to, or ""."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
    return root if os.path.exists(os.path.join(root, "include", "stitch", "stitch.h")) else ""


def _built(*below: str) -> List[str]:
    """A file of the checkout's build folders, as far as it is there."""
    root = _checkout()
    paths = glob.glob(os.path.join(glob.escape(root), "build*", *below)) if root else []
    return sorted(paths, key=lambda path: (path.count("-"), path))


def program(name: str) -> str:
    """Path of a program that belongs to the package. FileNotFoundError says where it is not."""
    paths = [_carried(name), *_built("examples", name)]
    for path in paths:
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(f"there is no program {name}; looked for: " + ", ".join(paths))


def candidates() -> List[Tuple[str, str]]:
    """(where from, path) in the order in which they are tried. STITCH_LIBRARY alone counts where it is set."""
    named = os.environ.get("STITCH_LIBRARY")
    if named:
        return [("STITCH_LIBRARY", named)]
    found = [("the package", _carried(_SONAME))]
    root = _checkout()
    if root:
        builds = _built("lib", _SONAME) or [os.path.join(root, "build", "lib", _SONAME)]
        found += [("the build folder", path) for path in builds]
    return [*found, ("the system", _SONAME)]


def _version_complaint(library: Any) -> str:
    """Why this library does not fit these declarations, or "". While the ABI version is 0, a minor release may break
    the ABI."""
    try:
        library.stitch_version.restype = ctypes.c_uint32
        number = int(library.stitch_version())
    except AttributeError:
        return "it has no stitch_version()"
    have, want = (number >> 16, number >> 8 & 255), (c.VERSION_MAJOR, c.VERSION_MINOR)
    if have != want:
        return f"it is version {have[0]}.{have[1]}.{number & 255}, and this package needs {want[0]}.{want[1]}"
    missing = [name for name in c.functions() if not hasattr(library, name)]
    return f"it lacks {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "") if missing else ""


def load() -> Any:
    """The library, opened and typed. ImportError lists what was tried."""
    tried = []
    for where, path in candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as e:
            tried.append(f"  {path} ({where}): {e}")
            continue
        complaint = _version_complaint(library)
        if not complaint:
            for name, (restype, argtypes) in c.functions().items():
                function = getattr(library, name)
                function.restype, function.argtypes = restype, arguments(argtypes)
            return library
        tried.append(f"  {path} ({where}): {complaint}")
    raise ImportError(
        "libstitch was not found; set STITCH_LIBRARY to the path of libstitch.so.0. Tried:\n" + "\n".join(tried)
    )


class _Functions:
    """lib.stitch_x: loads the library when the first function is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: Optional[Any] = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        with self._lock:
            if self._library is None:
                self._library = load()
        function = getattr(self._library, name)
        setattr(self, name, function)
        return function


lib: Any = _Functions()


def version() -> str:
    """Version of the library that was loaded, "0.1.0"."""
    return str(lib.stitch_version_string().decode())

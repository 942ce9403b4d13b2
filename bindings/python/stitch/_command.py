# SPDX-License-Identifier: MIT
"""The command line in a Python process: `stitch run --task model.py` and the like.

The program `stitch` starts Python for it (examples/cli/python.c says how and why). All that is here is how a task is
made of a file; everything else is the same code as for other tasks, in stitch-cli.so.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import traceback
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any, Dict, List, Optional

from ._context import Context
from ._core import _Unraisable as Unraisable
from ._errors import InvalidError, NoDeviceError, NotFoundError, Status, StitchError
from ._library import lib


class _Loading(Structure):
    """cli_loading in examples/cli/cli.h."""

    _fields_ = [
        ("ctx", c_void_p),
        ("path", c_char_p),
        ("options", c_char_p),
        ("say", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("cli", c_void_p),
        ("timed", c_int32),
        ("reserved", c_int32),
        ("task", c_void_p),
        ("message", c_char * 4096),
        ("details", c_char * 16384),
    ]


_load_type = CFUNCTYPE(c_int, POINTER(_Loading))
_unload_type = CFUNCTYPE(None, POINTER(_Loading))


class _Host(Structure):
    """cli_host."""

    _fields_ = [("size", c_uint64), ("load", _load_type), ("unload", _unload_type)]


def _torch() -> Any:
    """stitch.torch; what keeps it from being imported as an error that says what to do."""
    another = "name a Python that has it with --python or STITCH_PYTHON"
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ModuleNotFoundError as e:
        if e.name != "torch":
            raise NotFoundError(f"PyTorch cannot be imported by {sys.executable}: {e}; {another}") from e
        raise NotFoundError(
            f"{sys.executable} has no PyTorch: install it there (pip install torch), or {another}"
        ) from None
    except (ImportError, OSError) as e:
        raise NotFoundError(f"PyTorch cannot be imported by {sys.executable}: {e}; {another}") from e
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 5):
        raise NotFoundError(f"{sys.executable} has PyTorch {torch.__version__}; 2.5 or later is needed; {another}")
    from . import torch as bridge  # pylint: disable=import-outside-toplevel

    return bridge


def _options(text: bytes) -> Dict[str, Any]:
    """For from_file(): what was given on the command line."""
    given = json.loads(text)
    options: Dict[str, Any] = {"dtype": given.get("cast"), "precision": given.get("precision")}
    options["atol"] = options["rtol"] = given.get("tolerance")
    values: Dict[str, Any] = {}
    for item in given["set"]:
        name, _, value = item.partition("=")
        try:
            values[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise InvalidError(
                f"--set {item}: the value is no number, list or the like as Python writes it (a text needs quotes)"
            ) from None
    return {**options, "values": values}


def _where(exception: BaseException, path: str) -> str:
    """The traceback of what a file raised, from the file on."""
    step, file = exception.__traceback__, os.path.abspath(path)
    while step is not None and step.tb_frame.f_code.co_filename != file:
        step = step.tb_next
    return "".join(traceback.format_exception(type(exception), exception, step))


def _clip(text: str, limit: int) -> bytes:
    """For a C string of that size."""
    return text.replace("\0", "").encode("utf-8", "replace")[: limit - 1].decode("utf-8", "ignore").encode()


class Command:
    """The command line of that library. ImportError, OSError: libstitch or it cannot be loaded."""

    def __init__(self, library: str) -> None:
        lib.stitch_version()  # libstitch, before what is linked with it
        self._library = CDLL(library)
        self._host = _Host(sizeof(_Loading), self._c_load(), self._c_unload())
        self._task: Any = None
        self._ctx: Optional[Context] = None
        self._said = 0  # of the task's notes
        self._loading: Any = None
        self._interrupted = False

    def run(self, arguments: List[str]) -> int:
        """As the program `stitch` with these arguments, the program's name included; its exit code."""
        sys.stdout = sys.stderr  # what a file prints is not the command's output
        sys.unraisablehook = self._raised
        raw = [os.fsencode(argument) for argument in arguments]
        return int(self._library.stitch_cli_main(len(raw), (c_char_p * (len(raw) + 1))(*raw, None), byref(self._host)))

    def _interrupt(self, *_: Any) -> None:
        """Noted, too: imports run code that swallows exceptions, this one included."""
        self._interrupted = True
        raise KeyboardInterrupt

    def _say(self, line: str) -> None:
        if self._loading is not None:
            self._loading.say(self._loading.cli, _clip(line, 1 << 16))

    def _say_notes(self) -> None:
        for note in self._task.notes[self._said :]:
            self._say("note: " + note)
        self._said = len(self._task.notes)

    def _raised(self, unraisable: Any) -> None:
        """What the reference raised: the call that it came from is the command line's, in C, which shows it."""
        if not isinstance(unraisable, Unraisable):
            if not self._interrupted:
                sys.__unraisablehook__(unraisable)
        elif unraisable.exc_value is not None and self._loading is not None and not self._loading.details:
            self._loading.details = _clip(_where(unraisable.exc_value, os.fsdecode(self._loading.path)), 16384)

    def _c_load(self) -> Any:
        def load(pointer: Any) -> int:
            loading = self._loading = pointer.contents
            path = os.fsdecode(loading.path)
            try:
                # Ctrl-C ends what Python does; the command line takes the signals back.
                signal.signal(signal.SIGINT, self._interrupt)
                signal.signal(signal.SIGTERM, self._interrupt)
                self._load(loading, path)
                if self._interrupted:
                    raise KeyboardInterrupt
                return 0
            except BaseException as e:  # pylint: disable=broad-except
                self._close()
                if self._interrupted:
                    return int(Status.E_CANCELLED)
                return self._explain(loading, path, e)

        return _load_type(load)

    @staticmethod
    def _explain(loading: Any, path: str, e: BaseException) -> int:
        """A failure for the command line."""
        status, details = Status.E_INTERNAL, ""
        text = f"{path}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
        if isinstance(e, StitchError):
            status, text, details = e.status, e.message, e.details
        cause = e.__cause__ if isinstance(e, StitchError) else e
        loading.message = _clip(text, 4096)
        loading.details = _clip(details if cause is None else _where(cause, path), 16384)
        return int(status)

    def _load(self, loading: Any, path: str) -> None:
        if not os.path.isfile(path):  # before PyTorch is imported, which takes seconds
            raise NotFoundError(f"there is no file {path}")
        bridge = _torch()
        self._ctx = ctx = Context._borrowed(loading.ctx)
        if not ctx.device.simulated and not bridge._torch.cuda.is_available():
            raise NoDeviceError(
                f"PyTorch {bridge._torch.__version__} of {sys.executable} cannot use {ctx.device.name}; "
                "install one for CUDA, or take --device sim:" + ctx.device.arch
            )
        self._task = task = bridge.from_file(path, ctx=ctx, **_options(loading.options))
        self._said = 0
        self._say_notes()
        if loading.timed:
            if any(bridge.BASELINES[name][1] for name, _ in task.baselines):
                self._say("torch.compile makes the baselines ready ...")
            task.warm()
            self._say_notes()
        loading.task = task._ref.pointer

    def _c_unload(self) -> Any:
        def unload(pointer: Any) -> None:
            try:
                self._say_notes()  # of baselines that failed
            finally:
                self._close()
                self._loading = None

        return _unload_type(unload)

    def _close(self) -> None:
        task, ctx = self._task, self._ctx
        self._task = self._ctx = None
        for handle in (task, ctx):
            if handle is not None:
                handle.close()

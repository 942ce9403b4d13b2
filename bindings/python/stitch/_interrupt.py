# SPDX-License-Identifier: MIT
"""Ctrl-C ends a C call that blocks the main thread.

Python runs signal handlers between two bytecodes of the main thread, so not while that thread is in a C call. But the
signal's number is written to signal.set_wakeup_fd() at once, from the C-level handler. During a blocking call a pipe of
ours is set there, and a thread that reads it triggers the call's cancel token. The call returns, and Python raises
KeyboardInterrupt (or does whatever the program's own handler does) right behind it. The call stays in the thread that
made it: its CUDA context and PyTorch's thread-local settings hold in callbacks. A wakeup descriptor that was set before
(asyncio's) gets every byte passed on and is put back.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, Callable, List, Optional

_lock = threading.Lock()
_pipe: Optional[List[int]] = None
_forward = -1
_running: List["Interruptible"] = []


def _watch(read_end: int) -> None:
    while True:
        try:
            data = os.read(read_end, 512)
        except InterruptedError:
            continue
        except OSError:
            return
        if not data:
            return
        with _lock:
            if _forward >= 0:
                try:
                    os.write(_forward, data)
                except OSError:
                    pass
            if signal.SIGINT in data:
                for call in _running:
                    call.hit = True
                    try:
                        call.trigger()
                    except Exception:  # pylint: disable=broad-except  # one that is closed; this thread goes on
                        pass


def _start() -> int:
    """The write end of the pipe that the watching thread reads."""
    global _pipe
    if _pipe is None:
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        threading.Thread(target=_watch, args=(read_end,), name="stitch-interrupt", daemon=True).start()
        _pipe = [read_end, write_end]
    return _pipe[1]


def _after_fork() -> None:
    """The thread is not in the child; the pipe is shared with the parent."""
    global _pipe, _lock, _forward
    _lock, _forward = threading.Lock(), -1
    _running.clear()
    if _pipe is not None:
        for end in _pipe:
            os.close(end)
        _pipe = None


os.register_at_fork(after_in_child=_after_fork)


class Interruptible:
    """with Interruptible(trigger): a C call. `trigger` is called from another thread when SIGINT arrives, which `hit`
    says afterwards. Nothing happens in other threads than the main one, which never get KeyboardInterrupt, or where the
    program leaves SIGINT to the system."""

    __slots__ = ("trigger", "hit", "_old")

    def __init__(self, trigger: Callable[[], None]) -> None:
        self.trigger, self.hit = trigger, False
        self._old: Optional[int] = None

    def __enter__(self) -> "Interruptible":
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            try:
                self._begin()
            except BaseException:
                self.__exit__()
                raise
        return self

    def _begin(self) -> None:
        global _forward
        ours = _start()
        with _lock:
            _running.append(self)
        try:
            self._old = old = signal.set_wakeup_fd(ours, warn_on_full_buffer=False)
        except ValueError:  # the main thread of a subinterpreter
            return
        if old != ours:
            with _lock:
                _forward = old

    def __exit__(self, *exc: Any) -> None:
        global _forward
        try:
            if self._old is not None and (_pipe is None or self._old != _pipe[1]):
                signal.set_wakeup_fd(self._old)
                with _lock:
                    _forward = -1
        finally:
            with _lock:
                if self in _running:
                    _running.remove(self)

    def must_raise(self) -> bool:
        """Whether KeyboardInterrupt is due. Python raises it by itself, but loses it at the very start of a callback."""
        return self.hit and signal.getsignal(signal.SIGINT) is signal.default_int_handler

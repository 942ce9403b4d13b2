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

import functools
import os
import select
import signal
import threading
from typing import Callable, List, Optional

_lock = threading.Lock()
_pipe: Optional[List[int]] = None
_forward = -1
_running: List["Interruptible"] = []
_set_wakeup_fd = functools.partial(signal.set_wakeup_fd, warn_on_full_buffer=False)


def _take(read_end: int) -> bool:
    """Does what the signals in the pipe ask for; False: there is no pipe any more. With the lock, so that what is not in
    the pipe is done."""
    try:
        data = os.read(read_end, 512)
    except (BlockingIOError, InterruptedError):
        return True
    except OSError:
        return False
    if _forward >= 0 and data:
        try:
            os.write(_forward, data)
        except OSError:
            pass
    if signal.SIGINT in data:
        for call in _running:
            call.hit = True
            try:
                call.trigger()
            except Exception:  # pylint: disable=broad-except  # one that is closed; the others are called
                pass
    return bool(data)


def _watch(read_end: int) -> None:
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    going = True
    while going:
        poll.poll()
        with _lock:
            going = _take(read_end)


def _start() -> List[int]:
    """The pipe that the watching thread reads: where it reads, where to write."""
    global _pipe
    if _pipe is None:
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        os.set_blocking(write_end, False)
        threading.Thread(target=_watch, args=(read_end,), name="stitch-interrupt", daemon=True).start()
        _pipe = [read_end, write_end]
    return _pipe


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
    """A C call between begin() and end(). `trigger` is called from another thread when SIGINT arrives. Nothing happens in
    other threads than the main one, which never get KeyboardInterrupt, or where the program leaves SIGINT to the system.
    """

    __slots__ = ("trigger", "hit", "ended", "_old")

    def __init__(self, trigger: Callable[[], None]) -> None:
        self.trigger = trigger
        self.hit = self.ended = False
        self._old: List[int] = []  # the descriptor that was set before

    def begin(self) -> None:
        global _forward
        if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
            return
        read_end, ours = _start()
        with _lock:
            _take(read_end)  # what came during a call before is not for this one
            _running.append(self)
        try:
            # Kept by the C call that sets ours: between two bytecodes KeyboardInterrupt would lose it.
            self._old.extend(map(_set_wakeup_fd, (ours,)))
        except ValueError:  # the main thread of a subinterpreter
            return
        if self._old[0] != ours:
            with _lock:
                _forward = self._old[0]

    def end(self) -> None:
        """Everything is as before, and `ended` says so: KeyboardInterrupt can come in between, and then the rest is for
        another call."""
        global _forward
        try:
            if self._old and (_pipe is None or self._old[0] != _pipe[1]):
                signal.set_wakeup_fd(self._old[0])
                with _lock:
                    _forward = -1
        finally:
            with _lock:
                if self in _running:
                    _running.remove(self)
        self.ended = True

    def must_raise(self) -> bool:
        """Whether KeyboardInterrupt is due. Python raises it by itself, but loses it at the very start of a callback,
        whose result is garbage then. Before end()."""
        if self._old and _pipe is not None:
            with _lock:
                _take(_pipe[0])  # the watching thread may not have come to it yet
        return self.hit and signal.getsignal(signal.SIGINT) is signal.default_int_handler

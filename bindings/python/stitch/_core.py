# SPDX-License-Identifier: MIT
"""What every class here is made of: references to C handles, calls that raise, callbacks whose exceptions come through.

- A `Ref` owns one C handle and is freed once: when it was released and nothing made from it is left. So a context that
  is closed or collected before its programs goes after them, in whatever order the garbage collector finds them.
- A `Handle` is the Python object around it. Where the C header says "one thread at a time", a second thread gets
  BusyError instead of a race; a closed handle gives StateError.
- `call` raises what a callback raised, else the StitchError of the status.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import weakref
from ctypes import ArgumentError, Structure, byref, c_char_p, c_void_p, sizeof, string_at
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Type, TypeVar

from . import _declarations as c
from ._errors import CLASSES, BusyError, Domain, InternalError, InvalidError, StateError, Status, StitchError
from ._interrupt import Interruptible
from ._library import lib

T = TypeVar("T", bound="Handle")
S = TypeVar("S", bound=Structure)
OUT: Any = object()  # in the arguments of create(): where the pointer to the new handle goes

# ---- text ------------------------------------------------------------------------------------------------------------


def encode(text: Any, what: str = "text") -> Optional[bytes]:
    """UTF-8 for a `const char *`; None stays NULL."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, not {type(text).__name__}")
    if "\0" in text:
        raise InvalidError(f"{what} contains a NUL character")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as e:
        raise InvalidError(f"{what} is not Unicode text: {e}") from None


def encode_path(path: Any, what: str = "path") -> Optional[bytes]:
    """The bytes of a file name (str, bytes or os.PathLike); None stays NULL."""
    if path is None:
        return None
    name = os.fsencode(path)
    if b"\0" in name:
        raise InvalidError(f"{what} contains a NUL character")
    return name


def decode(text: Optional[bytes]) -> str:
    return "" if text is None else text.decode("utf-8", "replace")


def take_text(pointer: c_void_p) -> str:
    """Copies text that the caller owns, and frees it."""
    try:
        return decode(string_at(pointer.value)) if pointer.value else ""
    finally:
        lib.stitch_free(pointer)


def strings(items: Sequence[str], what: str) -> Any:
    """A `const char *const *`; the array keeps the bytes alive."""
    if isinstance(items, str):  # whose letters it would be
        raise TypeError(f"{what} must be a sequence of str, not one str")
    return (c_char_p * max(1, len(items)))(*[encode(item, what) for item in items])


# ---- structs ---------------------------------------------------------------------------------------------------------


def make(kind: Type[S]) -> S:
    """A struct with the values of its _INIT macro: from the exported function where there is one."""
    value = kind()
    name = kind.__name__
    if name in c.INITIALISERS:
        call_plain(getattr(lib, c.INITIALISERS[name]), byref(value), sizeof(kind))
        return value
    if kind._fields_[0][0] == "struct_size":
        value.struct_size = sizeof(kind)
    for field, initial in c.INITIAL.get(name, {}).items():
        setattr(value, field, initial)
    return value


# ---- calls -----------------------------------------------------------------------------------------------------------


class _Frame:
    """One C call in progress: what its callbacks raised, and how to make it end."""

    __slots__ = ("raised", "trigger")

    def __init__(self, trigger: Optional[Callable[[], None]]) -> None:
        self.raised: Optional[BaseException] = None
        self.trigger = trigger


class _Local(threading.local):
    def __init__(self) -> None:
        self.frames: List[_Frame] = []


_local = _Local()


def error_from(pointer: c_void_p, status: int) -> StitchError:
    """The exception of a C error, which is freed."""
    try:
        kind = CLASSES.get(status, InternalError)
        if not pointer.value:
            return kind(decode(lib.stitch_status_text(status)))
        return kind(
            decode(lib.stitch_error_message(pointer)),
            decode(lib.stitch_error_details(pointer)),
            Domain(lib.stitch_error_domain(pointer)),
            int(lib.stitch_error_native(pointer)),
        )
    finally:
        lib.stitch_error_free(pointer)
        pointer.value = None


def call(function: Any, *args: Any, trigger: Optional[Callable[[], None]] = None) -> None:
    """function(*args, &err). Raises what a callback raised, else what the status says. With `trigger`, which makes the
    call end, SIGINT ends it, and so does an exception in a callback that has no other way."""
    err = c_void_p()
    frame = _Frame(trigger)
    frames = _local.frames
    interruptible = None if trigger is None else Interruptible(trigger)
    try:
        frames.append(frame)
        if interruptible is not None:
            interruptible.begin()
        try:
            status = function(*args, byref(err))
        except ArgumentError as e:  # before the call
            raise (InvalidError if "OverflowError" in str(e) else TypeError)(f"{function.__name__}: {e}") from None
        if frame.raised is None and interruptible is not None and interruptible.must_raise():
            raise KeyboardInterrupt
        if frame.raised is not None:
            raise frame.raised
        if status != 0:
            raise error_from(err, status)
    finally:
        # KeyboardInterrupt can come at any call of a Python function here, so there is none outside of this `try`.
        late: Optional[BaseException] = None
        tries = 0
        while interruptible is not None and not interruptible.ended and tries < 3:
            tries += 1
            try:
                interruptible.end()
            except BaseException as e:  # pylint: disable=broad-except
                late = e
        frames.remove(frame)
        frame.raised = None
        if err.value:
            lib.stitch_error_free(err)
        if late is not None:
            raise late


def call_plain(function: Any, *args: Any) -> None:
    """function(*args) of a function that returns a status and has no error."""
    status = function(*args)
    if status != 0:
        raise error_from(c_void_p(), status)


def create(free: Any, function: Any, *args: Any, trigger: Optional[Callable[[], None]] = None) -> int:
    """call() of a function that makes a handle; OUT among the arguments marks the out-parameter. The address of the
    handle."""
    out = c_void_p()
    try:
        call(function, *[byref(out) if arg is OUT else arg for arg in args], trigger=trigger)
        return out.value or 0
    except BaseException:
        free(out)
        raise


# ---- callbacks -------------------------------------------------------------------------------------------------------


def _failed(exception: BaseException) -> int:
    """Keeps what a callback raised for the call that it belongs to, and says what to tell the library."""
    frame = _local.frames[-1] if _local.frames else None
    if frame is None:
        sys.unraisablehook(_Unraisable(exception))
    elif frame.raised is None:
        frame.raised = exception
    if isinstance(exception, StitchError):
        return int(exception.status)
    return int(Status.E_INTERNAL if isinstance(exception, Exception) else Status.E_CANCELLED)


class _Unraisable:
    def __init__(self, exception: BaseException) -> None:
        self.exc_type = type(exception)
        self.exc_value: Optional[BaseException] = exception
        self.exc_traceback = exception.__traceback__
        self.err_msg: Optional[str] = "Exception ignored in a callback of libstitch"
        self.object: Any = None


def callback(kind: Any, function: Callable[..., Any]) -> Any:
    """A C function that calls `function` and returns its result, which must be an int, or a failure after an exception.
    After one exception in a call, further callbacks of that call fail at once."""

    def wrapped(*args: Any) -> int:
        try:
            if _local.frames and _local.frames[-1].raised is not None:
                return int(Status.E_CANCELLED)
            return int(function(*args) or 0)
        except BaseException as e:  # pylint: disable=broad-except
            return _failed(e)

    return kind(wrapped)


def void_callback(kind: Any, function: Callable[..., Any]) -> Any:
    """The same for a C function without a result: an exception ends the call through its cancel token."""

    def wrapped(*args: Any) -> None:
        frame = _local.frames[-1] if _local.frames else None
        if frame is not None and frame.raised is not None:
            return
        try:
            function(*args)
        except BaseException as e:  # pylint: disable=broad-except
            _failed(e)
            if frame is not None and frame.trigger is not None:
                frame.trigger()

    return kind(wrapped)


def pointer_callback(kind: Any, function: Callable[..., Any]) -> Any:
    """The same for a C function that returns an address: NULL after an exception."""

    def wrapped(*args: Any) -> Any:
        try:
            return function(*args)
        except BaseException as e:  # pylint: disable=broad-except
            _failed(e)
            return None

    return kind(wrapped)


# ---- handles ---------------------------------------------------------------------------------------------------------

_refs = threading.RLock()


class Ref:
    """Owns a C handle. `parents` are freed later than it; `keep` lives as long as it (callbacks, say)."""

    __slots__ = ("pointer", "_free", "_parents", "_holds", "_released", "keep", "__weakref__")

    def __init__(self, pointer: int, free: Any, parents: Iterable["Ref"] = (), keep: Iterable[Any] = ()) -> None:
        self.pointer, self._free, self._parents = pointer, free, list(parents)
        self._holds, self._released, self.keep = 0, False, list(keep)
        with _refs:
            for parent in self._parents:
                parent._holds += 1

    def add_parent(self, parent: "Ref") -> None:
        with _refs:
            parent._holds += 1
            self._parents.append(parent)

    def remove_parent(self, parent: "Ref") -> None:
        with _refs:
            self._parents.remove(parent)
        parent._drop()

    def disown(self) -> None:
        """The handle belongs to another one now."""
        self._free = None

    def release(
        self, _lock: Any = _refs
    ) -> None:  # the lock as a default: globals may be gone when the interpreter ends
        """Frees the handle as soon as nothing made from it is left."""
        with _lock:
            go = not self._released and self._holds == 0
            self._released = True
        if go:
            self._destroy()

    def _drop(self, _lock: Any = _refs) -> None:
        with _lock:
            self._holds -= 1
            go = self._released and self._holds == 0
        if go:
            self._destroy()

    def _destroy(self) -> None:
        """Called once. Without the lock: the library may wait for threads whose callbacks need it."""
        pointer, self.pointer = self.pointer, 0
        if self._free is not None and pointer:
            self._free(pointer)
        parents, self._parents, self.keep = self._parents, [], []
        for parent in parents:
            parent._drop()

    def __del__(self) -> None:
        self.release()


class Handle:
    """Base of everything that owns a C handle: a context manager with close(). Closing twice is no error; using it
    afterwards is (StateError). One thread at a time uses it, unless the class says that several may; BusyError
    otherwise."""

    _shared = False
    _owns = False  # others are made from it: a context
    _free = ""  # name of the function that frees one

    def __init__(self, ref: Ref, owner: Optional["Handle"] = None) -> None:
        self._ref: Optional[Ref] = ref
        self._gate = threading.Lock()
        self._users: List[int] = []
        # Ends a use. No Python function, so that KeyboardInterrupt cannot come before it.
        self._end: Callable[[], Any] = self._users.pop
        self._thread = 0
        self._owner = owner
        self._children: "weakref.WeakSet[Handle]" = weakref.WeakSet()
        if owner is not None:
            with _refs:
                owner._children.add(self)

    def _adopt(
        self,
        owner: "Handle",
        function: Any,
        *args: Any,
        trigger: Optional[Callable[[], None]] = None,
        keep: Iterable[Any] = (),
    ) -> None:
        """__init__ from function(owner, *args), with OUT among the arguments."""
        free = getattr(lib, self._free)
        if not getattr(owner, "_owns", False):
            raise TypeError(f"ctx must be a stitch.Context, not a {type(owner).__name__}")
        address = owner._begin()
        try:
            made = create(free, function, address, *args, trigger=trigger)
            assert owner._ref is not None
            Handle.__init__(self, Ref(made, free, [owner._ref], keep), owner)
        finally:
            owner._end()

    def _made(self) -> List["Handle"]:
        """What was made from it and is still there."""
        with _refs:
            return list(self._children)

    @property
    def closed(self) -> bool:
        return self._ref is None

    def close(self) -> None:
        """Releases the handle. BusyError while another call uses it."""
        with self._gate:
            if self._ref is None:
                return
            if self._users:
                raise BusyError(f"this {type(self).__name__} is in use by a call; it cannot be closed now")
            ref, self._ref = self._ref, None
        ref.release()

    def _hand_over(self, to: Ref) -> None:
        """The library has given the handle to that of `to`, which keeps alive what ours kept. Between _begin() and
        _end()."""
        ref, self._ref = self._ref, None
        if ref is not None:
            ref.disown()
            to.keep.append(ref)

    def __enter__(self: T) -> T:
        self._begin()
        self._end()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stitch.{type(self).__name__}{' (closed)' if self._ref is None else f' at {self._ref.pointer:#x}'}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be pickled; programs have save() and to_bytes()")

    def _begin(self) -> int:
        """Starts a use; the address."""
        me, users, mine = threading.get_ident(), self._users, False
        try:
            with self._gate:
                if self._ref is None:
                    raise StateError(f"this {type(self).__name__} is closed")
                if users and not self._shared and self._thread != me:
                    raise BusyError(f"this {type(self).__name__} is in use in another thread; use one object a thread")
                self._thread, pointer = me, self._ref.pointer
                users += (me,)
                mine = True
        except BaseException:
            if mine:  # KeyboardInterrupt, on the way out
                users.pop()
            raise
        return pointer

    def _get(self, function: Any, *args: Any) -> Any:
        """function(handle, *args) of a function that cannot fail."""
        pointer = self._begin()
        try:
            return function(pointer, *args)
        finally:
            self._end()

    def _text(self, function: Any) -> str:
        return decode(self._get(function))

    def _json(self, function: Any) -> Dict[str, Any]:
        value: Dict[str, Any] = json.loads(self._text(function))
        return value

    def _call(self, function: Any, *args: Any, trigger: Optional[Callable[[], None]] = None) -> None:
        """call(function, handle, *args)"""
        pointer = self._begin()
        try:
            call(function, pointer, *args, trigger=trigger)
        finally:
            self._end()


def need(kind: Type[Handle], **values: Any) -> None:
    """TypeError for arguments that are not of the kind, which the library would take for what they are not."""
    for name, value in values.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a stitch.{kind.__name__}, not a {type(value).__name__}")


class Uses:
    """with Uses(a, b, None) as (pa, pb, pc): several handles in use at once; None stays NULL."""

    __slots__ = ("_handles", "_begun")

    def __init__(self, *handles: Optional[Handle]) -> None:
        self._handles = handles
        self._begun: List[Handle] = []

    def __enter__(self) -> List[Optional[int]]:
        pointers: List[Optional[int]] = []
        try:
            for handle in self._handles:
                if handle is None:
                    pointers.append(None)
                else:
                    pointers.append(handle._begin())
                    self._begun.append(handle)
        except BaseException:
            self.__exit__()
            raise
        return pointers

    def __exit__(self, *exc: Any) -> None:
        while self._begun:
            self._begun.pop()._end()


class Cancel(Handle):
    """A flag that makes blocking calls raise CancelledError. trigger() from any thread; pass it as `cancel=`.

    The calls that take one are also ended by Ctrl-C; they trigger the given flag then, which stays so until reset()."""

    _shared = True

    def __init__(self) -> None:
        out = c_void_p()
        call_plain(lib.stitch_cancel_new, byref(out))
        super().__init__(Ref(out.value or 0, lib.stitch_cancel_free))

    @property
    def address(self) -> int:
        """Of the stitch_cancel."""
        return 0 if self._ref is None else self._ref.pointer

    def trigger(self) -> None:
        """Calls that use the flag end soon."""
        self._get(lib.stitch_cancel_trigger)

    def reset(self) -> None:
        """Makes the flag usable again. Not while a call uses it."""
        self._get(lib.stitch_cancel_reset)

    @property
    def triggered(self) -> bool:
        return bool(self._get(lib.stitch_cancel_triggered))


class Cancelling:
    """with Cancelling(cancel) as token: the given flag, or one of our own for the call."""

    __slots__ = ("_given", "_token")

    def __init__(self, given: Optional[Cancel]) -> None:
        self._given = given

    def __enter__(self) -> Cancel:
        self._token = Cancel() if self._given is None else self._given
        self._token._begin()
        return self._token

    def __exit__(self, *exc: Any) -> None:
        self._token._end()


def milliseconds(seconds: Optional[float], what: str = "timeout") -> int:
    """An option in milliseconds from seconds; None: the default."""
    if seconds is None:
        return 0
    if not seconds > 0:
        raise InvalidError(f"{what} must be more than 0 seconds")
    return max(1, int(min(seconds, 3e11) * 1000))


E = TypeVar("E", bound=Any)


def enum_value(kind: Type[E], value: Any, what: str) -> E:
    """An enumerator from itself, its name in any case ("f32", "Draft") or its number."""
    try:
        return kind[value.upper()] if isinstance(value, str) else kind(value)  # type: ignore[no-any-return]
    except (KeyError, ValueError):
        known = ", ".join(member.name.lower() for member in kind if member.name != "COUNT")
        raise InvalidError(f"{value!r} is no {what}; there are {known}") from None

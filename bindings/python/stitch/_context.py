# SPDX-License-Identifier: MIT
"""The context: which device, where to log, where to cache, when to stop; and what of NVIDIA's software was found."""

from __future__ import annotations

import json
import os
from ctypes import byref, c_int64, c_double, c_void_p, pointer, string_at
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Type, TypeVar, Union

from . import _declarations as c
from ._core import (
    OUT,
    Handle,
    Ref,
    call,
    create,
    decode,
    encode,
    encode_path,
    enum_value,
    make,
    pointer_callback,
    take_text,
    void_callback,
)
from ._errors import BusyError, InvalidError
from ._library import lib

if TYPE_CHECKING:
    from ._model import Model

LogLevel = c.stitch_log_level
Role = c.stitch_role
D = TypeVar("D")
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


@dataclass(frozen=True)
class DeviceInfo:
    """Facts about an opened device. Sizes in bytes, clocks in kHz; driver_version 13000 is 13.0."""

    name: str
    arch: str  # what device code is compiled for: "sm_90a"
    ordinal: int
    compute_major: int
    compute_minor: int
    simulated: bool
    driver_version: int
    multiprocessors: int
    max_threads_per_block: int
    clock_khz: int
    memory_clock_khz: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_block: int
    shared_bytes_per_block_optin: int
    shared_bytes_per_multiprocessor: int


def record(kind: Type[D], struct: Any, /, **changed: Any) -> D:
    """A dataclass from the fields of the same names of a struct: text decoded, arrays as tuples."""
    values = {}
    for name in kind.__dataclass_fields__:  # type: ignore[attr-defined]
        value = changed[name] if name in changed else getattr(struct, name)
        if value is None or isinstance(value, bytes):
            value = decode(value)
        elif hasattr(value, "_length_"):
            value = tuple(value)
        values[name] = value
    return kind(**values)


class Context(Handle):
    """A device with its settings. Cheap to make: no library and no device is opened before a call needs it.

    device             "auto" (the first GPU, otherwise the simulator), "cuda:N", "sim:sm_90a" (any simulated
                       architecture), "none"
    cache_dir          folder of the compile cache; None: $STITCH_CACHE_DIR or the user's; "": nothing is kept on disk
    cache_limit_bytes  0: 1 GiB
    cuda_path          root of a CUDA toolkit to use
    log                log(level: LogLevel, line: str)
    get_proc           get_proc(symbol: str) -> address or None: a driver of the host's own
    allocator          a _declarations.stitch_allocator, for embedding and tests; it must outlive everything made from
                       the context

    Several threads may use a context at once, each with programs, tasks and so on of its own. close() closes everything
    made from it.
    """

    _shared = _owns = True

    def __init__(
        self,
        device: str = "auto",
        *,
        cache_dir: Optional[Path] = None,
        cache_limit_bytes: int = 0,
        cuda_path: Optional[Path] = None,
        log: Optional[Callable[[LogLevel, str], Any]] = None,
        log_level: Union[LogLevel, str] = LogLevel.WARN,
        get_proc: Optional[Callable[[str], Optional[int]]] = None,
        allocator: Optional[c.stitch_allocator] = None,
    ) -> None:
        options = make(c.stitch_context_options)
        options.device = encode(device, "device")
        options.cache_dir = encode_path(cache_dir, "cache_dir")
        options.cache_limit_bytes = cache_limit_bytes
        options.cuda_path = encode_path(cuda_path, "cuda_path")
        keep: List[Any] = []
        if log is not None:
            function = log
            options.log = void_callback(
                c.stitch_log_fn, lambda level, line, _: function(LogLevel(level), decode(string_at(line)))
            )
            options.log_level = enum_value(LogLevel, log_level, "log level")
            keep.append(options.log)
        if get_proc is not None:
            find = get_proc
            options.get_proc = pointer_callback(c.stitch_get_proc_fn, lambda name, _: find(decode(string_at(name))))
            keep.append(options.get_proc)
        if allocator is not None:
            options.allocator = pointer(allocator)
            keep.append(allocator)
        made = create(lib.stitch_context_free, lib.stitch_context_new, OUT, byref(options))
        super().__init__(Ref(made, lib.stitch_context_free, keep=keep))
        self._models: Dict[Role, "Model"] = {}
        self._device: Optional[DeviceInfo] = None

    @classmethod
    def _borrowed(cls, address: int) -> "Context":
        """A context that belongs to somebody else, who frees it after this one is closed."""
        self = cls.__new__(cls)
        Handle.__init__(self, Ref(address, None))
        self._models, self._device = {}, None
        return self

    def close(self) -> None:
        """Closes everything made from the context, then the context. BusyError, with nothing closed, while a call uses
        any of it."""
        children = self._made()
        for handle in [self, *children]:
            if handle._users:
                raise BusyError(
                    f"a {type(handle).__name__} of this context is in use by a call; it cannot be closed now"
                )
        self._models.clear()
        for child in children:
            child.close()
        super().close()

    def _interruptible(self, function: Any, *args: Any) -> None:
        """call() of a blocking function that has no cancel token of its own: Ctrl-C cancels the context for as long as
        the call lasts."""
        address = self._begin()
        hit: List[bool] = []

        def trigger() -> None:
            hit.append(True)
            lib.stitch_context_cancel(address)

        try:
            call(function, *args, trigger=trigger)
        finally:
            if hit:
                lib.stitch_context_cancel_reset(address)
            self._end()

    def cancel(self) -> None:
        """Makes every blocking call of the context raise CancelledError, from any thread, until cancel_reset()."""
        self._get(lib.stitch_context_cancel)

    def cancel_reset(self) -> None:
        self._get(lib.stitch_context_cancel_reset)

    @property
    def device(self) -> DeviceInfo:
        """The device, which is opened if it is not yet. NoDeviceError says why there is none."""
        if self._device is None:
            info = make(c.stitch_device_info)
            pointer_ = self._begin()
            try:
                call(lib.stitch_device_query, pointer_, byref(info))
            finally:
                self._end()
            self._device = record(DeviceInfo, info, simulated=bool(info.simulated))
        return self._device

    def doctor(self) -> Dict[str, Any]:
        """What the library can use: {"ok": bool, "items": [{"name", "status": "ok|missing|broken|unused", "version",
        "path", "detail", "tried": []}]}."""
        out = c_void_p()
        self._call(lib.stitch_doctor, byref(out))
        found: Dict[str, Any] = json.loads(take_text(out))
        return found

    def set_model(self, model: Optional["Model"], role: Union[Role, str] = Role.CODER) -> None:
        """The model of a role ("planner", "coder", "critic", "judge"). A role without one uses the coder's; None takes
        it away. Not while another thread plans or codes with this context."""
        which = enum_value(Role, role, "role")
        self._not_planning()
        if model is not None and model._owner is not self:
            raise InvalidError("the model belongs to another context")
        address = None if model is None else model._begin()
        try:
            self._call(lib.stitch_context_set_model, which, address)
            if model is None:
                self._models.pop(which, None)
            else:
                self._models[which] = model
        finally:
            if model is not None:
                model._end()

    def _not_planning(self) -> None:
        if any(model._users for model in self._models.values()):
            raise BusyError("a model of this context is in use by a call; roles and prompts cannot be changed now")

    def _forget_model(self, model: "Model") -> None:
        """The model is about to go."""
        for role in [role for role, set_ in self._models.items() if set_ is model]:
            self.set_model(None, role)

    def prompt(self, name: str) -> Optional[str]:
        """A prompt template in force ("plan", "code_draft", ...: docs/prompts.md); None: there is none of this name."""
        text = self._get(lib.stitch_context_prompt, encode(name, "name"))
        return None if text is None else decode(text)

    def set_prompt(self, name: str, text: Optional[str]) -> None:
        """Overrides a template; None: the built-in one again. Not while another thread plans or codes with this
        context."""
        self._not_planning()
        self._call(lib.stitch_context_set_prompt, encode(name, "name"), encode(text))


class Budget(Handle):
    """A limit on tokens and cost that several models can share; 0: no limit. Usable from several threads."""

    _shared = True
    _free = "stitch_budget_free"

    def __init__(self, ctx: Context, max_tokens: int = 0, max_cost: float = 0.0) -> None:
        self._adopt(ctx, lib.stitch_budget_new, max_tokens, max_cost, OUT)

    @property
    def used(self) -> Mapping[str, float]:
        """{"tokens", "cost", "requests"} so far."""
        tokens, cost, requests = c_int64(), c_double(), c_int64()
        self._get(lib.stitch_budget_used, byref(tokens), byref(cost), byref(requests))
        return {"tokens": tokens.value, "cost": cost.value, "requests": requests.value}


def doctor(device: str = "auto", **options: Any) -> Dict[str, Any]:
    """Context(device, **options).doctor()"""
    with Context(device, **options) as ctx:
        return ctx.doctor()

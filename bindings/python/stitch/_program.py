# SPDX-License-Identifier: MIT
"""Programs: device code with a launch plan. Parse, validate, compile, save, load."""

from __future__ import annotations

import json
from ctypes import byref, c_size_t, c_void_p, string_at
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Tuple, Union

from . import _declarations as c
from ._core import (
    OUT,
    Cancel,
    Cancelling,
    Handle,
    Ref,
    Uses,
    call,
    decode,
    encode,
    encode_path,
    make,
    milliseconds,
    need,
    strings,
)
from ._errors import CompileError
from ._library import lib
from ._context import Context, Path, record
from ._interface import Dtype, Interface, interface_from, interface_new

if TYPE_CHECKING:
    from ._task import Task

Severity = c.stitch_severity
ParamKind = c.stitch_param_kind


@dataclass(frozen=True)
class Diagnostic:
    """One message of the compiler; line and column count from 1, 0: unknown."""

    severity: Severity
    line: int
    column: int
    file: str
    message: str


@dataclass(frozen=True)
class Param:
    """One kernel parameter; offset and size in bytes."""

    kind: ParamKind
    dtype: Dtype
    is_const: bool
    is_tensor_map: bool
    offset: int
    size: int
    type: str


@dataclass(frozen=True)
class Kernel:
    """One `__global__` function. Sizes in bytes; -1: not known, of max_threads: the device's limit."""

    name: str
    symbol: str
    registers: int
    static_shared: int
    local: int
    spill_stores: int
    spill_loads: int
    max_threads: int
    params: Tuple[Param, ...]


@dataclass(frozen=True)
class Image:
    """Compiled device code of one architecture, with what the compiler said about it."""

    data: bytes  # machine code (ELF) or PTX; empty when compilation failed
    arch: str
    is_ptx: bool
    cached: bool
    milliseconds: float
    log: str
    diagnostics: Tuple[Diagnostic, ...]
    kernels: Tuple[Kernel, ...]

    def __repr__(self) -> str:
        return f"<stitch.Image {self.arch}, {len(self.data)} bytes, {', '.join(k.name for k in self.kernels)}>"


def _kernel(image: int, index: int) -> Kernel:
    info, params = make(c.stitch_kernel_info), []
    lib.stitch_image_kernel(image, index, byref(info))
    for i in range(info.param_count):
        param = make(c.stitch_param_info)
        lib.stitch_image_param(image, index, i, byref(param))
        params.append(
            record(
                Param,
                param,
                kind=ParamKind(param.kind),
                dtype=Dtype(param.dtype),
                is_const=bool(param.is_const),
                is_tensor_map=bool(param.is_tensor_map),
            )
        )
    return record(Kernel, info, params=tuple(params))


def image_from(image: int) -> Image:
    """A copy of a `const stitch_image *`."""
    size, diagnostics = c_size_t(), []
    data = lib.stitch_image_data(image, byref(size))
    for i in range(lib.stitch_image_diagnostic_count(image)):
        entry = make(c.stitch_diagnostic)
        lib.stitch_image_diagnostic(image, i, byref(entry))
        diagnostics.append(record(Diagnostic, entry, severity=Severity(entry.severity)))
    return Image(
        string_at(data, size.value) if data else b"",
        decode(lib.stitch_image_arch(image)),
        bool(lib.stitch_image_is_ptx(image)),
        bool(lib.stitch_image_cached(image)),
        lib.stitch_image_milliseconds(image),
        decode(lib.stitch_image_log(image)),
        tuple(diagnostics),
        tuple(_kernel(image, i) for i in range(lib.stitch_image_kernel_count(image))),
    )


def _compile_options(
    arch: Optional[str],
    names: Sequence[str],
    flags: Sequence[str],
    no_cache: bool,
    ptx: bool,
    timeout: Optional[float],
    token: Optional[int],
) -> Any:
    options = make(c.stitch_compile_options)
    options.arch = encode(arch, "arch")
    options.names, options.name_count = strings(names, "names"), len(names)
    options.flags, options.flag_count = strings(flags, "flags"), len(flags)
    options.no_cache, options.ptx = int(no_cache), int(ptx)
    options.cancel, options.timeout_ms = token, milliseconds(timeout)
    return options


def compile_source(
    ctx: Context,
    source: str,
    *,
    names: Sequence[str] = (),
    arch: Optional[str] = None,
    flags: Sequence[str] = (),
    no_cache: bool = False,
    ptx: bool = False,
    cancel: Optional[Cancel] = None,
    timeout: Optional[float] = None,
) -> Image:
    """Compiles CUDA C++ with NVRTC, through the cache. `names` are the kernels that will be asked for ("ln<256>");
    timeout in seconds. CompileError has an `image` with the diagnostics. Several threads may compile at once."""
    out = c_void_p()
    need(Context, ctx=ctx)
    with Uses(ctx) as (owner,), Cancelling(cancel) as token:
        options = _compile_options(arch, names, flags, no_cache, ptx, timeout, token.address)
        try:
            call(lib.stitch_compile, owner, encode(source, "source"), byref(options), byref(out), trigger=token.trigger)
            return image_from(out.value or 0)
        except CompileError as e:
            e.image = image_from(out.value) if out.value else None
            raise
        finally:
            lib.stitch_image_free(out)


def _limits(limits: Optional[Mapping[str, int]]) -> Any:
    value = make(c.stitch_program_limits)
    for name, limit in (limits or {}).items():
        if name == "struct_size" or not hasattr(value, name):
            raise TypeError(f"there is no limit '{name}'")
        setattr(value, name, limit)
    return byref(value)


class Program(Handle):
    """A stitched program. Made by Program.parse(), load() or from_bytes(), or by a model (Candidate.program)."""

    _free = "stitch_program_free"

    def __init__(self) -> None:
        raise TypeError("use Program.parse(), Program.load() or Program.from_bytes()")

    @classmethod
    def _of(cls, ctx: Context, function: Any, *args: Any) -> "Program":
        self = cls.__new__(cls)
        self._adopt(ctx, function, *args)
        return self

    @classmethod
    def _borrow(cls, address: int, owner: Handle) -> "Program":
        self = cls.__new__(cls)
        assert owner._ref is not None
        Handle.__init__(self, Ref(address, None, [owner._ref]), owner)
        return self

    @classmethod
    def parse(
        cls,
        ctx: Context,
        source: str,
        plan: Union[str, Mapping[str, Any]],
        *,
        limits: Optional[Mapping[str, int]] = None,
    ) -> "Program":
        """From CUDA C++ and a launch plan (docs/program-format.md), as JSON text or a dict. Checks the form; validate()
        the rest. limits: source_bytes, json_bytes, steps, launches, workspace_bytes, file_bytes."""
        text = plan if isinstance(plan, str) else json.dumps(plan)
        return cls._of(
            ctx, lib.stitch_program_parse, encode(source, "source"), encode(text, "plan"), _limits(limits), OUT
        )

    @classmethod
    def load(cls, ctx: Context, path: Path, *, limits: Optional[Mapping[str, int]] = None) -> "Program":
        """A saved program. Everything in it is checked as if it came from a stranger."""
        return cls._of(ctx, lib.stitch_program_load, encode_path(path), _limits(limits), OUT)

    @classmethod
    def from_bytes(cls, ctx: Context, data: bytes, *, limits: Optional[Mapping[str, int]] = None) -> "Program":
        data = bytes(data)
        return cls._of(ctx, lib.stitch_program_load_memory, data, len(data), _limits(limits), OUT)

    def save(self, path: Path) -> None:
        """One self-contained file: launch plan, source, interface and the compiled images."""
        self._call(lib.stitch_program_save, encode_path(path))

    def to_bytes(self) -> bytes:
        data, size = c_void_p(), c_size_t()
        try:
            self._call(lib.stitch_program_save_memory, byref(data), byref(size))
            return string_at(data.value or 0, size.value) if data.value else b""
        finally:
            lib.stitch_free(data)

    @property
    def source(self) -> str:
        return self._text(lib.stitch_program_source)

    @property
    def plan_text(self) -> str:
        """The launch plan, normalised and indented."""
        return self._text(lib.stitch_program_json)

    @property
    def plan(self) -> Dict[str, Any]:
        return self._json(lib.stitch_program_json)

    @property
    def hash(self) -> str:
        """Hex SHA-256 of source and launch plan."""
        return self._text(lib.stitch_program_hash)

    @property
    def interface(self) -> Optional[Interface]:
        """What it was last validated against or saved with; None if nothing. A copy."""
        address = self._begin()
        try:
            found = lib.stitch_program_interface(address)
            return interface_from(found) if found else None
        finally:
            self._end()

    def validate(self, interface: Union[Interface, "Task"], arch: Optional[str] = None) -> None:
        """Everything that can be checked without a GPU and without compiling. The program keeps the interface.
        ValidateError: its message is the first finding, its details are all of them, a line each."""
        owner = self._owner
        while owner is not None and not isinstance(owner, Context):
            owner = owner._owner
        if isinstance(interface, Interface):
            with Uses(owner) as (context,):
                made = interface_new(context or 0, interface)
                self._call(lib.stitch_program_validate, made.pointer, encode(arch, "arch"))
        else:
            if getattr(interface, "_free", "") != "stitch_task_free":
                raise TypeError(f"interface must be a stitch.Interface or Task, not a {type(interface).__name__}")
            with Uses(interface) as (task,):
                self._call(lib.stitch_program_validate, lib.stitch_task_interface(task), encode(arch, "arch"))

    def compile(
        self,
        arch: Optional[str] = None,
        *,
        flags: Sequence[str] = (),
        no_cache: bool = False,
        ptx: bool = False,
        cancel: Optional[Cancel] = None,
        timeout: Optional[float] = None,
    ) -> Image:
        """Compiles for `arch` (None: the context's device) and checks every kernel step against the real signatures.
        The program keeps the image; what is returned is a copy. CompileError has an `image` with the diagnostics."""
        out = c_void_p()
        with Uses(self) as (program,), Cancelling(cancel) as token:
            options = _compile_options(arch, (), flags, no_cache, ptx, timeout, token.address)
            try:
                call(lib.stitch_program_compile, program, byref(options), byref(out), trigger=token.trigger)
            except CompileError as e:
                e.image = image_from(out.value) if out.value else None
                raise
            return image_from(out.value or 0)

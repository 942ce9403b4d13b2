# SPDX-License-Identifier: MIT
"""StitchError and one subclass a status."""

from __future__ import annotations

from typing import Any, Dict, Type

from . import _declarations as c

Domain = c.stitch_domain
Status = c.stitch_status


class StitchError(Exception):
    """A call failed.

    status   Status.E_*
    name     "STITCH_E_INVALID", ...
    message  one line: what was wrong, where, and what to do
    details  longer text (a compile log, all findings of a validation), or ""
    domain   where `native` comes from
    native   errno, CUresult, HTTP status, ...; 0: none
    """

    status: Status = Status.E_INTERNAL

    def __init__(self, message: str, details: str = "", domain: Domain = Domain.NONE, native: int = 0) -> None:
        super().__init__(message)
        self.message, self.details, self.domain, self.native = message, details, domain, native

    @property
    def name(self) -> str:
        return "STITCH_" + self.status.name

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.details, self.domain, self.native)

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" + ("\n" + self.details if self.details else "")


class InvalidError(StitchError, ValueError):
    status = Status.E_INVALID


class NoMemoryError(StitchError, MemoryError):
    status = Status.E_NOMEM


class NotFoundError(StitchError, LookupError):
    status = Status.E_NOT_FOUND


class UnsupportedError(StitchError):
    status = Status.E_UNSUPPORTED


class FileError(StitchError, OSError):
    status = Status.E_IO


class FormatError(StitchError, ValueError):
    status = Status.E_FORMAT


class LimitError(StitchError):
    status = Status.E_LIMIT


class CancelledError(StitchError):
    status = Status.E_CANCELLED


class DeadlineError(StitchError, TimeoutError):
    status = Status.E_TIMEOUT


class BusyError(StitchError):
    status = Status.E_BUSY


class NoDeviceError(StitchError):
    status = Status.E_NO_DEVICE


class NoLibraryError(StitchError):
    status = Status.E_NO_LIBRARY


class DriverError(StitchError):
    status = Status.E_DRIVER


class LibraryError(StitchError):
    status = Status.E_LIBRARY


class CompileError(StitchError):
    """The device code does not compile. `image` holds the diagnostics where the call made one, else None."""

    status = Status.E_COMPILE
    image: Any = None


class ValidateError(StitchError):
    status = Status.E_VALIDATE


class FaultError(StitchError):
    status = Status.E_FAULT


class HttpError(StitchError):
    status = Status.E_HTTP


class AuthError(StitchError):
    status = Status.E_AUTH


class BudgetError(StitchError):
    status = Status.E_BUDGET


class ReplyError(StitchError):
    status = Status.E_REPLY


class ReplayError(StitchError):
    status = Status.E_REPLAY


class StateError(StitchError):
    status = Status.E_STATE


class InternalError(StitchError):
    status = Status.E_INTERNAL


CLASSES: Dict[int, Type[StitchError]] = {int(kind.status): kind for kind in StitchError.__subclasses__()}

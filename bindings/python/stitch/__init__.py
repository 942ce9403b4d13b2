# SPDX-License-Identifier: MIT
"""libstitch: language models write, verify and optimise whole GPU programs in process.

    with stitch.Context() as ctx:
        task = stitch.Task.load(ctx, "task.json")
        ctx.set_model(stitch.Model.open(ctx, "https://host/v1#model"))
        plan = stitch.plan(ctx, task)
        candidate, = stitch.code(ctx, task, plan=plan)
        report = stitch.verify(ctx, task, candidate)

docs/python.md is the guide; the headers in include/stitch/ document every function underneath. Neither NumPy nor
PyTorch is needed, and neither is imported.
"""

from typing import TYPE_CHECKING, Any

from ._core import Cancel
from ._errors import (
    AuthError,
    BudgetError,
    BusyError,
    CancelledError,
    CompileError,
    DeadlineError,
    Domain,
    DriverError,
    FaultError,
    FileError,
    FormatError,
    HttpError,
    InternalError,
    InvalidError,
    LibraryError,
    LimitError,
    NoDeviceError,
    NoLibraryError,
    NoMemoryError,
    NotFoundError,
    ReplayError,
    ReplyError,
    StateError,
    Status,
    StitchError,
    UnsupportedError,
    ValidateError,
)
from ._library import version
from ._tensors import BoundTensor, DevicePointer
from ._agent import Action, Attempt, Candidate, Decision, Plan, Policy, Subtask, Turn, code, loop, next_step, plan
from ._context import Budget, Context, DeviceInfo, LogLevel, Role, doctor
from ._executor import Executor, ExecutorStats, OpArg
from ._interface import Dtype, Interface, Tensor, TensorRole
from ._model import Message, MessageRole, Model, Reply, Request
from ._program import Diagnostic, Image, Kernel, Param, ParamKind, Program, Severity, compile_source
from ._task import Dist, DistKind, Precision, Task
from ._verify import (
    Admission,
    HowMuch,
    Report,
    ReportSummary,
    Simulate,
    Stage,
    StageResult,
    StageStatus,
    Where,
    admit,
    verify,
)

if TYPE_CHECKING:
    from ._profile import Profile, ProfileAdvice, ProfileVerdict, profile_region, profile_task
    from ._trace import Trace, TraceCopy, TraceGap, TraceKernel, TraceKind, TraceRecord, TraceSummary

__version__: str  # version(), when it is asked for: that loads the library

__all__ = [
    "Action",
    "Admission",
    "Attempt",
    "AuthError",
    "BoundTensor",
    "Budget",
    "BudgetError",
    "BusyError",
    "Cancel",
    "CancelledError",
    "Candidate",
    "CompileError",
    "Context",
    "DeadlineError",
    "Decision",
    "DeviceInfo",
    "DevicePointer",
    "Diagnostic",
    "Dist",
    "DistKind",
    "Domain",
    "DriverError",
    "Dtype",
    "Executor",
    "ExecutorStats",
    "FaultError",
    "FileError",
    "FormatError",
    "HowMuch",
    "HttpError",
    "Image",
    "Interface",
    "InternalError",
    "InvalidError",
    "Kernel",
    "LibraryError",
    "LimitError",
    "LogLevel",
    "Message",
    "MessageRole",
    "Model",
    "NoDeviceError",
    "NoLibraryError",
    "NoMemoryError",
    "NotFoundError",
    "OpArg",
    "Param",
    "ParamKind",
    "Plan",
    "Policy",
    "Precision",
    "Profile",
    "ProfileAdvice",
    "ProfileVerdict",
    "Program",
    "ReplayError",
    "Reply",
    "ReplyError",
    "Report",
    "ReportSummary",
    "Request",
    "Role",
    "Severity",
    "Simulate",
    "Stage",
    "StageResult",
    "StageStatus",
    "StateError",
    "Status",
    "StitchError",
    "Subtask",
    "Task",
    "Tensor",
    "TensorRole",
    "Trace",
    "TraceCopy",
    "TraceGap",
    "TraceKernel",
    "TraceKind",
    "TraceRecord",
    "TraceSummary",
    "Turn",
    "UnsupportedError",
    "ValidateError",
    "Where",
    "admit",
    "code",
    "compile_source",
    "doctor",
    "loop",
    "next_step",
    "plan",
    "profile_region",
    "profile_task",
    "verify",
    "version",
]


def __getattr__(name: str) -> Any:
    """Traces and profiles are loaded when they are asked for: that keeps the import short."""
    if name == "__version__":
        return version()
    if name.startswith("Trace") and name in __all__:
        from . import _trace  # pylint: disable=import-outside-toplevel

        return getattr(_trace, name)
    if name.lower().startswith("profile") and name in __all__:
        from . import _profile  # pylint: disable=import-outside-toplevel

        return getattr(_profile, name)
    raise AttributeError(f"module 'stitch' has no attribute '{name}'")

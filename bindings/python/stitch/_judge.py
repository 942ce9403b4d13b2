# SPDX-License-Identifier: MIT
"""Re-judging of an exported file by KernelBench's own evaluator, in a process of its own with a deadline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, Optional

from ._context import Path
from ._errors import InvalidError, NotFoundError

_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
_SAID = 2000  # of what it printed
_ANSWER = 1 << 20


def root_of(root: Optional[Path]) -> str:
    """The checkout: `root`, or $KERNELBENCH_ROOT."""
    place = os.fsdecode(root) if root is not None else os.environ.get("KERNELBENCH_ROOT", "")
    if not place:
        raise NotFoundError("set KERNELBENCH_ROOT to a checkout of KernelBench, or pass root")
    return os.path.abspath(place)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """The process and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def _tail(path: str) -> str:
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _SAID))
        return file.read().decode(errors="replace").strip()


def _number(value: Any) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if good else 0.0


def _checked(path: str) -> Optional[Dict[str, Any]]:
    """The answer: judged code ran in the process that wrote it, so only what is expected of it is taken."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(_ANSWER).decode())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    answer: Dict[str, Any] = {key: found.get(key) is True for key in ("compiled", "correct")}
    answer.update({key: _number(found.get(key)) for key in ("speedup", "runtime_ms", "reference_ms")})
    if isinstance(found.get("error"), str):
        answer["error"] = found["error"][:_SAID]
    if isinstance(found.get("metadata"), dict):
        answer["metadata"] = {str(k)[:100]: str(v)[:500] for k, v in list(found["metadata"].items())[:32]}
    if isinstance(found.get("stand_ins"), list) and found["stand_ins"]:
        answer["stand_ins"] = [str(name)[:100] for name in found["stand_ins"][:32]]
    if not answer["correct"]:
        answer["speedup"] = 0.0
    return answer


def judge(
    model_new: Path,
    reference: Path,
    *,
    root: Optional[Path] = None,
    device: int = 0,
    trials: int = 5,
    timings: int = 100,
    timeout: float = 900.0,
    tolerance: Optional[float] = None,
    precision: Optional[str] = None,
    build: Optional[Path] = None,
) -> Dict[str, Any]:
    """What KernelBench's evaluator (of the checkout `root`, or $KERNELBENCH_ROOT) says of a file with ModelNew beside
    the task's own file:

        {"compiled": True, "correct": True, "speedup": 14.1, "runtime_ms": ..., "reference_ms": ..., "metadata": {...},
         "seconds": ...}

    with `error` if it could not judge or did not end within `timeout` seconds. precision "fp32", "fp16" or "bf16" is the
    evaluator's own setting: it casts both modules and their inputs to that type, for which it has a tolerance (1e-4 and
    1e-2). The file must have been made for a task in that type: from_file(dtype=...). tolerance None is the evaluator's
    own (1e-2 in v0 and v0.1); another one is put in its place. The answer names what was set.

    build is a folder for what the file compiles, kept and used again; None: one for this call.

    Of what the evaluator's modules import, only PyTorch and NumPy are needed for judging. Other packages that they do
    without here (clients of models, progress bars, ...) need not be installed: stand-ins that raise when they are used
    take their places, and the answer has their names as `stand_ins`. Another one that is missing is named by `error`.

    The evaluator runs both files in a process of its own, which is ended with all that it started; it has this process's
    rights, but no variables of the environment that look like secrets. NotFoundError for files that do not exist.
    """
    place = root_of(root)
    for path in (model_new, reference):
        if not os.path.isfile(path):
            raise NotFoundError(f"there is no file {os.fsdecode(path)}")
    if not os.path.isdir(place):
        raise NotFoundError(f"there is no folder {place}")
    if timeout <= 0 or trials < 1 or timings < 1:
        raise InvalidError("timeout, trials and timings must be greater than 0")
    if precision not in (None, "fp32", "fp16", "bf16"):
        raise InvalidError(f'precision is "fp32", "fp16" or "bf16", not {precision!r}')
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stitch-judge-") as folder:
        answer_path, said = os.path.join(folder, "answer.json"), os.path.join(folder, "said")
        request: Dict[str, Any] = {
            "root": place,
            "model_new": os.path.abspath(os.fsdecode(model_new)),
            "reference": os.path.abspath(os.fsdecode(reference)),
            "device": device,
            "trials": trials,
            "timings": timings,
            "folder": os.path.join(folder, "build") if build is None else os.path.abspath(os.fsdecode(build)),
            "answer": answer_path,
            "tolerance": tolerance,
            "precision": precision,
        }
        os.makedirs(request["folder"], exist_ok=True)
        with open(os.path.join(folder, "request.json"), "w", encoding="utf-8") as text:
            json.dump(request, text)
        child = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_judge_child.py")
        kept = {k: v for k, v in os.environ.items() if not any(word in k.upper() for word in _SECRET)}
        error = ""
        with open(said, "wb") as out:
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                [sys.executable, child, os.path.join(folder, "request.json")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=kept,
                start_new_session=True,
            )
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                error = f"it did not end within {timeout:g} s"
            finally:
                _end(process)
        found = None if error else _checked(answer_path)
        if found is None:
            found = {"compiled": False, "correct": False, "speedup": 0.0, "runtime_ms": 0.0, "reference_ms": 0.0}
            found["error"] = error or f"the process ended with {process.returncode}: {_tail(said)}"
    if tolerance is not None:
        found["tolerance"] = tolerance
    if precision is not None:
        found["precision"] = precision
    found["seconds"] = round(time.monotonic() - begun, 3)
    return found

# SPDX-License-Identifier: MIT
"""The tasks of a KernelBench checkout on several GPUs: each is one remote function of Ray with a GPU of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from ._context import Context
from ._errors import StitchError, UnsupportedError
from ._model import Model

if TYPE_CHECKING:
    from .kernelbench import Problem


def load() -> Any:
    """Ray. UnsupportedError without it."""
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]  # pylint: disable=import-outside-toplevel
    except ImportError as e:
        raise UnsupportedError(f"several GPUs need Ray, which cannot be imported ({e}): pip install ray") from None
    return ray


def work(problem: "Problem", model: str, device: str, options: Mapping[str, Any]) -> Tuple[Any, Any]:
    """What a worker does: the line of one task, or the exception that ends the run."""
    from . import kernelbench  # pylint: disable=import-outside-toplevel,cyclic-import

    try:
        with Context(device) as ctx:
            with Model.open(ctx, model) as opened:
                ctx.set_model(opened)
                return kernelbench.solve(problem, ctx, **options), None
    except StitchError as e:
        return None, e


def solve_all(
    problems: Sequence["Problem"], model: str, device: str, gpus: float, options: Mapping[str, Any]
) -> Iterator[Tuple["Problem", Dict[str, Any]]]:
    """Lines as they come, in any order. A worker that dies is an `error` of its task's line. Ends what is still running
    when the caller stops, or when an exception ends the run."""
    ray = load()
    if not ray.is_initialized():
        ray.init()
    # A worker is used once: what a task left on the GPU goes with its process.
    remote = ray.remote(num_gpus=gpus, max_calls=1, max_retries=0)(work)
    pending = {remote.remote(problem, model, device, dict(options)): problem for problem in problems}
    try:
        while pending:
            ready: List[Any]
            ready, _ = ray.wait(list(pending), num_returns=1)
            problem = pending.pop(ready[0])
            try:
                row, failure = ray.get(ready[0])
            except Exception as e:  # pylint: disable=broad-except
                yield problem, {"error": f"the worker failed: {type(e).__name__}: {e}"[:2000]}
                continue
            if failure is not None:
                raise failure
            yield problem, row
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)

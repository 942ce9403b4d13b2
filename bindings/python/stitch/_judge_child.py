# SPDX-License-Identifier: MIT
"""The process in which KernelBench's own evaluator judges a file: started by _judge.py as a script, with its request as
JSON in a file. It imports the checkout and runs the judged file, so nothing of stitch is loaded here, and only the one
file of the answer is written."""

import importlib
import inspect
import json
import os
import sys
from typing import Any, Dict

# The folder of this file would give what is imported as torch below.
sys.path[:] = [place for place in sys.path if os.path.abspath(place) != os.path.dirname(os.path.abspath(__file__))]


def _evaluator(root: str) -> Any:
    """The module with eval_kernel_against_ref(): as a package in src, or src itself in older checkouts."""
    if os.path.exists(os.path.join(root, "src", "kernelbench", "eval.py")):
        sys.path.insert(0, os.path.join(root, "src"))
        return importlib.import_module("kernelbench.eval")
    if os.path.exists(os.path.join(root, "src", "eval.py")):
        sys.path.insert(0, root)
        return importlib.import_module("src.eval")
    raise FileNotFoundError(f"{root} has no evaluator: neither src/kernelbench/eval.py nor src/eval.py")


def _judge(request: Dict[str, Any]) -> Dict[str, Any]:
    module = _evaluator(request["root"])
    evaluate = module.eval_kernel_against_ref
    if request["tolerance"] is not None:
        if not hasattr(module, "get_tolerance_for_precision"):
            raise ValueError("this evaluator has a tolerance that cannot be set")
        module.get_tolerance_for_precision = lambda precision: request["tolerance"]
    with open(request["reference"], encoding="utf-8") as text:
        reference = text.read()
    with open(request["model_new"], encoding="utf-8") as text:
        judged = text.read()
    options: Dict[str, Any] = {
        "num_correct_trials": request["trials"],
        "num_perf_trials": request["timings"],
        "measure_performance": True,
        "build_dir": request["folder"],
        "backend": "cuda",
        "verbose": False,
        "check_for_excessive_speedup": True,
    }
    torch = sys.modules.get("torch")  # the evaluator's
    if torch is not None and torch.cuda.is_available():
        options["device"] = torch.device(f"cuda:{request['device']}")
    known = inspect.signature(evaluate).parameters
    made = evaluate(reference, judged, **{key: value for key, value in options.items() if key in known})
    if made is None:
        return {"compiled": False, "correct": False, "error": "the evaluator gave no result"}
    runtime, against = getattr(made, "runtime", -1.0), getattr(made, "ref_runtime", -1.0)
    if made.correctness and against <= 0:  # older ones do not time the reference themselves
        against = _reference_time(module, reference, options)
    metadata = {key: str(value)[:500] for key, value in (made.metadata or {}).items()}
    answer = {
        "compiled": bool(made.compiled),
        "correct": bool(made.correctness),
        "runtime_ms": runtime if runtime > 0 else 0.0,
        "reference_ms": against if against > 0 else 0.0,
        "metadata": metadata,
    }
    answer["speedup"] = against / runtime if made.correctness and runtime > 0 and against > 0 else 0.0
    return answer


def _reference_time(module: Any, reference: str, options: Dict[str, Any]) -> float:
    try:
        timing = importlib.import_module(module.__name__.rpartition(".")[0] + ".timing")
        made = timing.measure_ref_program_time("reference", reference, device=options.get("device"))
        return float(made["mean"])
    except Exception as e:  # pylint: disable=broad-except
        print(f"the reference was not timed: {e}", file=sys.stderr)
        return -1.0


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as text:
        request = json.load(text)
    try:
        answer = _judge(request)
    except (Exception, SystemExit) as e:  # pylint: disable=broad-except
        answer = {"compiled": False, "correct": False, "error": f"{type(e).__name__}: {e}"[:2000]}
    with open(request["answer"], "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""The process in which KernelBench's own evaluator judges a file: started by _judge.py as a script, with its request as
JSON in a file. It imports the checkout and runs the judged file, so nothing of stitch is loaded here, and only the one
file of the answer is written."""

import copy
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import sys
import types
from typing import Any, Dict, List, Optional, Sequence

# The folder of this file would give what is imported as torch below.
sys.path[:] = [place for place in sys.path if os.path.abspath(place) != os.path.dirname(os.path.abspath(__file__))]


# What the evaluator's modules import for other work: asking models, fetching data sets, progress bars, settings. Judging
# calls none of it. Of pydantic it uses the constructor of one record.
UNUSED = (
    "anthropic",
    "datasets",
    "dotenv",
    "google",
    "litellm",
    "openai",
    "pydantic",
    "requests",
    "together",
    "tqdm",
    "transformers",
)
PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


class _Record:
    """In place of pydantic.BaseModel: fields from keywords, the class's values for the others."""

    def __init__(self, **given: Any) -> None:
        for kind in reversed(type(self).__mro__):
            for name in vars(kind).get("__annotations__", {}):
                if hasattr(kind, name):
                    setattr(self, name, copy.deepcopy(getattr(kind, name)))
        for name, value in given.items():
            setattr(self, name, value)


class _StandIn(types.ModuleType):
    """A package that is not installed: everything in it can be named and derived from, and what is used raises."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        package = self.__name__.partition(".")[0]
        if (package, name) == ("pydantic", "BaseModel"):
            return _Record

        if (package, name) == ("dotenv", "load_dotenv"):
            return lambda *_, **__: False  # there is no file of settings

        def refuse(*_: Any, **__: Any) -> Any:
            raise ModuleNotFoundError(f"the evaluator uses {self.__name__}.{name}: install {package}", name=package)

        return type(name, (), {"__new__": refuse})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what nothing else did."""

    def __init__(self) -> None:
        self.used: List[str] = []

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[types.ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname.partition(".")[0] not in UNUSED:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        self.used.append(spec.name)
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _evaluator(root: str, stand_ins: List[str]) -> Any:
    """The module with eval_kernel_against_ref(): as a package in src, or src itself in older checkouts. The names of
    packages that it imports, does without, and that are not installed are added to stand_ins."""
    if os.path.exists(os.path.join(root, "src", "kernelbench", "eval.py")):
        place, package = os.path.join(root, "src"), "kernelbench"
    elif os.path.exists(os.path.join(root, "src", "eval.py")):
        place, package = root, "src"
    else:
        raise FileNotFoundError(f"{root} has no evaluator: neither src/kernelbench/eval.py nor src/eval.py")
    sys.path.insert(0, place)
    finder = _Finder()
    sys.meta_path.append(finder)
    try:
        module = importlib.import_module(package + ".eval")
        for part in ("utils", "timing"):  # it imports them when it is called
            if os.path.exists(os.path.join(place, package, part + ".py")):
                importlib.import_module(f"{package}.{part}")
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError(
            f"the evaluator needs the package {e.name}, which {sys.executable} does not have: install it there"
        ) from e
    finally:
        sys.meta_path.remove(finder)
        for name in finder.used:  # what is judged sees what there is
            sys.modules.pop(name, None)
    stand_ins += sorted({name.partition(".")[0] for name in finder.used})
    return module


def _judge(request: Dict[str, Any], stand_ins: List[str]) -> Dict[str, Any]:
    module = _evaluator(request["root"], stand_ins)
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
    if request["precision"] is not None:
        if "precision" not in known or torch is None:
            raise ValueError("this evaluator has no precision that could be set")
        options["precision"] = getattr(torch, PRECISIONS[request["precision"]])
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
    stand_ins: List[str] = []
    try:
        answer = _judge(request, stand_ins)
    except (Exception, SystemExit) as e:  # pylint: disable=broad-except
        answer = {"compiled": False, "correct": False, "error": f"{type(e).__name__}: {e}"[:2000]}
    answer["stand_ins"] = stand_ins
    with open(request["answer"], "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()

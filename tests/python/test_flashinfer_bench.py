# SPDX-License-Identifier: MIT
"""stitch.flashinfer_bench: a small dataset as tasks, and solutions and traces for it, on the simulator."""

import copy
import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import sim
import tap
import stitch
from stitch import flashinfer_bench as fib

try:
    import torch
except ImportError as missing:
    torch, WHY = None, str(missing)

REFERENCE = '''import torch


def run(x, index, scale, bias):
    """Rows by index, scaled; and their sums."""
    y = x[index.long()] * scale + bias
    return y, y.sum(-1)
'''
DEFINITION = {
    "name": "gather_c8",
    "op_type": "gather",
    "description": "y = x[index] * scale + bias",
    "axes": {"N": {"type": "var"}, "M": {"type": "var", "description": "rows"}, "C": {"type": "const", "value": 8}},
    "inputs": {
        "x": {"shape": ["N", "C"], "dtype": "float32"},
        "index": {"shape": ["M"], "dtype": "int32"},
        "scale": {"shape": None, "dtype": "float32"},
        "bias": {"shape": ["C"], "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["M", "C"], "dtype": "float32"}, "sum": {"shape": ["M"], "dtype": "float32"}},
    "reference": REFERENCE,
    "constraints": ["M <= 64"],
    "tags": ["status:draft"],
}
WORKLOAD = {
    "uuid": "one",
    "axes": {"N": 6, "M": 5},
    "inputs": {
        "x": {"type": "random"},
        "index": {"type": "safetensors", "path": "blob/rows.safetensors", "tensor_key": "rows"},
        "scale": {"type": "scalar", "value": 1.5},
        "bias": {"type": "random"},
    },
}
ROWS = [5, 0, 3, 3, 1]  # backwards they would still do, plus one they would not
SOURCE = """
__device__ float cuScaled(float x, float scale) { return x * scale; }
extern "C" __global__ void rows(const float *x, const int *index, const float *bias, float *y, float *sum, int m, float scale)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m)
        return;
    float total = 0;
    for (int c = 0; c < 8; c++) {
        float value = cuScaled(x[index[i] * 8 + c], scale) + bias[c];
        y[i * 8 + c] = value;
        total += value;
    }
    sum[i] = total;
}
"""
PLAN = {
    "stitch": 1,
    "run": [{"kernel": "rows", "grid": ["ceil_div(M,32)"], "block": [32],
             "args": ["x", "index", "bias", "y", "sum", {"i32": "M"}, {"f32": 1.5}]}],
}  # fmt: skip


def tensors_file(path, entries):
    """A safetensors file of (name, dtype, shape, bytes)."""
    header, data = {}, b""
    for name, dtype, shape, raw in entries:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return len(text)


def dataset(root, definition=None, workloads=(WORKLOAD,)):
    definition = definition or DEFINITION
    os.makedirs(os.path.join(root, "definitions", "gather"), exist_ok=True)
    os.makedirs(os.path.join(root, "workloads", "gather"), exist_ok=True)
    with open(os.path.join(root, "definitions", "gather", "a.json"), "w", encoding="utf-8") as file:
        json.dump(definition, file)
    with open(os.path.join(root, "workloads", "gather", "a.jsonl"), "w", encoding="utf-8") as file:
        for workload in workloads:
            row = {"definition": definition["name"], "workload": workload, "solution": None, "evaluation": None}
            file.write(json.dumps(row) + "\n")
    tensors_file(
        os.path.join(root, "blob", "rows.safetensors"), [("rows", "I32", [len(ROWS)], struct.pack("<5i", *ROWS))]
    )
    return root


def changed(document, path, value=None, gone=False):
    made = copy.deepcopy(document)
    inner = made
    for part in path[:-1]:
        inner = inner[part]
    if gone:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return made


def test_a_dataset_is_read():
    with tempfile.TemporaryDirectory() as root:
        data = fib.read(dataset(root))
        (definition,) = data.definitions.values()
        assert definition.axes == {"N": None, "M": None, "C": 8} and definition.constraints == ("M <= 64",)
        assert definition.inputs["scale"].shape is None and definition.inputs["x"].shape == ("N", "C")
        (workload,) = data.workloads["gather_c8"]
        assert workload.dims(definition) == {"N": 6, "M": 5, "C": 8} and workload.json == WORKLOAD
        assert definition.shape(definition.outputs["y"], workload) == (5, 8)
        with tap.raises(stitch.NotFoundError, "definitions"):
            fib.read(os.path.join(root, "blob"))


def test_bad_definitions():
    cases = [
        (("name",), None, "'name' is missing"),
        (("axes",), None, "'axes' is missing"),
        (("reference",), None, "'reference' is missing"),
        (("inputs", "x", "dtype"), None, "inputs.x: 'dtype' is missing"),
        (("inputs", "x", "shape"), None, "'shape' is missing"),
        (("inputs", "x", "dtype"), "float31", "'float31' is not known"),
        (("inputs", "x", "shape"), ["N", "Z"], "no axis 'Z'"),
        (("inputs", "x", "shape"), "NC", "must be a list"),
        (("inputs", "a b"), {"shape": [], "dtype": "bool"}, "is no name"),
        (("inputs", "y"), {"shape": [], "dtype": "bool"}, "an input and an output"),
        (("outputs",), {}, "no outputs"),
        (("outputs",), [], "must be an object"),
        (("axes", "C"), {"type": "fixed"}, "'fixed' is not known"),
        (("axes", "C"), {"type": "const"}, "'value' is missing"),
        (("axes", "C"), {"type": "const", "value": True}, "must be an integer"),
        (("axes", "C"), {"type": "const", "value": -1}, "negative"),
        (("reference",), "def run(:", "no Python"),
        (("reference",), "def walk(x): pass", "no function run()"),
        (("name",), "", "empty"),
        (("constraints",), [1], "list of texts"),
    ]
    for path, value, words in cases:
        with tap.raises(stitch.FormatError, words):
            fib.parse_definition(changed(DEFINITION, path, value, gone=value is None))
    with tap.raises(stitch.FormatError, "no object"):
        fib.parse_definition([])


def test_bad_workloads():
    definition = fib.parse_definition(DEFINITION)
    cases = [
        (("uuid",), None, "'uuid' is missing"),
        (("axes", "M"), None, "'M' has no value"),
        (("axes", "M"), "5", "must be an integer"),
        (("axes", "M"), -5, "must be an integer"),
        (("axes", "C"), 9, "is 8, not 9"),
        (("axes", "Q"), 9, "no axis 'Q'"),
        (("inputs", "z"), {"type": "random"}, "no input 'z'"),
        (("inputs", "x"), {}, "'type' is missing"),
        (("inputs", "x"), {"type": "file"}, "'file' is not known"),
        (("inputs", "x"), {"type": "scalar", "value": 1}, "is a tensor"),
        (("inputs", "scale"), {"type": "scalar"}, "is no float32"),
        (("inputs", "scale"), {"type": "scalar", "value": "1"}, "is no float32"),
        (("inputs", "scale"), {"type": "scalar", "value": float("nan")}, "no number"),
        (("inputs", "scale"), {"type": "safetensors", "path": "a", "tensor_key": "b"}, "is a number"),
        (("inputs", "index", "path"), None, "'path' is missing"),
        (("inputs", "index", "tensor_key"), None, "'tensor_key' is missing"),
    ]
    for path, value, words in cases:
        with tap.raises(stitch.FormatError, words):
            fib.parse_workload(changed(WORKLOAD, path, value, gone=value is None), definition)
    few = fib.parse_workload(changed(WORKLOAD, ("inputs",), {}), definition)
    assert few.inputs["x"] == {"type": "random"}


def test_bad_files():
    with tempfile.TemporaryDirectory() as root:
        dataset(root)
        path = os.path.join(root, "definitions", "gather", "a.json")
        with open(os.path.join(root, "workloads", "gather", "a.jsonl"), "a", encoding="utf-8") as file:
            file.write('\n{"definition": "gather_c8", "wor')
        with tap.raises(stitch.FormatError, "line 3", "no JSON"):
            fib.read(root)
        dataset(root, workloads=[])
        shutil.copy(path, os.path.join(root, "definitions", "b.json"))
        with tap.raises(stitch.FormatError, "second definition gather_c8"):
            fib.read(root)
        os.remove(os.path.join(root, "definitions", "b.json"))
        for text, words in (("[" * 100000, "no JSON"), ("\udcff", "no UTF-8"), ("{}", "is missing")):
            with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
            with tap.raises(stitch.FormatError, path, words):
                fib.read(root)


def test_paths_and_tensors_of_files():
    with tempfile.TemporaryDirectory() as outside, tempfile.TemporaryDirectory() as root:
        dataset(root)
        good = ("blob/rows.safetensors", "rows", "int32", [5])
        assert struct.unpack("<5i", fib.read_tensor(root, *good)) == tuple(ROWS)
        secret = os.path.join(outside, "x.safetensors")
        shutil.copy(os.path.join(root, "blob", "rows.safetensors"), secret)
        os.symlink(secret, os.path.join(root, "blob", "link.safetensors"))
        for path in (secret, os.path.relpath(secret, root), "blob/../../x", "blob/link.safetensors", "../"):
            with tap.raises(stitch.FormatError, "leads out"):
                fib.read_tensor(root, path, *good[1:])
        with tap.raises(stitch.NotFoundError, "blob/none"):
            fib.read_tensor(root, "blob/none", *good[1:])
        with tap.raises(stitch.FileError, "cannot be read"):
            fib.read_tensor(root, "blob", *good[1:])
        with tap.raises(stitch.FormatError, "no tensor 'columns'"):
            fib.read_tensor(root, good[0], "columns", *good[2:])
        for dtype, shape in (("int64", [5]), ("int32", [6]), ("int32", [5, 1])):
            with tap.raises(stitch.FormatError, "is I32 [5]"):
                fib.read_tensor(root, good[0], "rows", dtype, shape)

        def lie(entry, *words, raw=None):
            text = json.dumps({"rows": entry}).encode()
            with open(os.path.join(root, good[0]), "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text + bytes(20) if raw is None else raw)
            with tap.raises(stitch.FormatError, *words):
                fib.read_tensor(root, *good)

        entry = {"dtype": "I32", "shape": [5], "data_offsets": [0, 20]}
        for offsets in ([0, 24], [4, 24], [-4, 16], [20, 0], [0, 16], [1 << 62, (1 << 62) + 20]):
            lie({**entry, "data_offsets": offsets}, "damaged")
        lie({**entry, "data_offsets": [0]}, "two integers")
        lie({**entry, "data_offsets": [False, 20]}, "two integers")
        lie({"dtype": "I32", "shape": [5]}, "'data_offsets' is missing")
        lie("rows", "no object")
        lie(None, "would have", raw=struct.pack("<Q", 1 << 60) + b"{}")
        lie(None, "would have", raw=b"")
        lie(None, "no JSON", raw=struct.pack("<Q", 4) + b"{{{{")
        lie(None, "no UTF-8", raw=struct.pack("<Q", 4) + b"\xff\xff\xff\xff")
        lie(None, "no tensor", raw=struct.pack("<Q", 2) + b"[]")
        lie(None, "git lfs pull", raw=b"version https://git-lfs.github.com/spec/v1\n")


def have_torch():
    if torch is None:
        raise tap.Skip(WHY)


def test_tasks_on_the_simulator():
    have_torch()
    with tempfile.TemporaryDirectory() as root, sim.context() as ctx:
        data = fib.read(dataset(root))
        (workload,) = data.workloads["gather_c8"]
        with data.task(workload, ctx=ctx) as task:
            interface = task.interface
            assert dict(interface.dims) == {"N": 6, "M": 5, "C": 8}
            assert [(t.name, t.shape_expr, t.role.name) for t in interface] == [
                ("x", ("N", "C"), "INPUT"),
                ("index", ("M",), "INPUT"),
                ("bias", ("C",), "INPUT"),
                ("y", ("M", "C"), "OUTPUT"),
                ("sum", ("M",), "OUTPUT"),
            ]
            assert "scale = 1.5" in task.description and "M <= 64" in task.description and task.source == REFERENCE
            assert not [note for note in task.notes if "float32" in note], task.notes  # the oracle is in float64
            with stitch.Program.parse(ctx, SOURCE, PLAN) as right:
                report = stitch.verify(ctx, task, right, last_stage="correct")
                assert report.correct, report.text
            with stitch.Program.parse(ctx, SOURCE.replace("+ bias[c]", ""), PLAN) as wrong:
                report = stitch.verify(ctx, task, wrong, last_stage="correct")
                assert not report.correct
            row = fib.trace(workload, "mine", report)
            assert row["evaluation"]["status"] == "INCORRECT_NUMERICAL" and row["evaluation"]["log"]
            assert row["evaluation"]["performance"] is None and row["workload"] == WORKLOAD
            assert row["evaluation"]["correctness"]["max_absolute_error"] > 0.01
            path = data.append_trace(row, "us")
            assert path == os.path.join(os.path.realpath(root), "traces", "us", "gather", "gather_c8.jsonl")
            data.append_trace(row, "us")
            with open(path, encoding="utf-8") as text:
                assert [json.loads(line)["definition"] for line in text] == ["gather_c8"] * 2


def test_references_that_do_not_fit():
    have_torch()
    cases = [
        ("import nothing_of_that_name\n" + REFERENCE, stitch.FormatError, "cannot be loaded"),
        (REFERENCE.replace("return y, y.sum(-1)", "return y"), stitch.FormatError, "gives 1 results"),
        (REFERENCE.replace("return y, y.sum(-1)", "return {'y': y}"), stitch.FormatError, "results"),
        (REFERENCE.replace("y.sum(-1)", "y.sum(-1).half()"), stitch.FormatError, "gives float16 for sum"),
        (REFERENCE.replace("y.sum(-1)", "'a'"), stitch.FormatError, "gives a str"),
        (REFERENCE.replace("y.sum(-1)", "y"), stitch.InvalidError, "'sum' has the shape"),
        (REFERENCE.replace("return", "raise KeyError(1)\n    return"), stitch.InvalidError, "KeyError"),
        (REFERENCE.replace("return", "import sys; sys.exit(3)\n    return"), (SystemExit, stitch.StitchError), ""),
    ]
    for text, kind, words in cases:
        with tempfile.TemporaryDirectory() as root, sim.context() as ctx:
            data = fib.read(dataset(root, {**DEFINITION, "reference": text}))
            with tap.raises(kind, words):
                data.task(data.workloads["gather_c8"][0], ctx=ctx)
    with tempfile.TemporaryDirectory() as root, sim.context() as ctx:
        for path, value, words in (
            (("inputs", "bias", "dtype"), "float4_e2m1", "float4_e2m1"),
            (("outputs", "sum", "shape"), None, "is a number"),
        ):
            made = changed(DEFINITION, path)
            made[path[0]][path[1]][path[2]] = value
            data = fib.read(dataset(root, made))
            with tap.raises(stitch.UnsupportedError, words):
                data.task(data.workloads["gather_c8"][0], ctx=ctx)
        empty = changed(WORKLOAD, ("axes", "N"), 0)
        data = fib.read(dataset(root, workloads=[empty]))
        with tap.raises(stitch.InvalidError, "axis N is 0"):
            data.task(data.workloads["gather_c8"][0], ctx=ctx)
        for size in (1 << 70, 1 << 62, 1 << 50):
            data = fib.read(dataset(root, workloads=[changed(WORKLOAD, ("axes", "N"), size)]))
            with tap.raises(stitch.NoMemoryError, f"gather_c8: input x (float32, [{size}, 8]) cannot be made"):
                data.task(data.workloads["gather_c8"][0], ctx=ctx)


DTYPE_TESTS = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int16", "int8", "bool"]


def test_the_dtypes():
    have_torch()
    axes = {"N": {"type": "var"}}
    for dtype in DTYPE_TESTS:
        definition = {"name": "copy", "op_type": "copy", "axes": axes,
                      "inputs": {"N": {"shape": ["N"], "dtype": dtype}},  # the name of the axis, too
                      "outputs": {"out": {"shape": ["N"], "dtype": dtype}},
                      "reference": "def run(N):\n    return N.clone()\n"}  # fmt: skip
        workload = {"uuid": "u", "axes": {"N": 70}, "inputs": {"N": {"type": "random"}}}
        plan = {"stitch": 1, "run": [{"copy": {"from": "N_2", "to": "out"}}]}
        with tempfile.TemporaryDirectory() as root, sim.context() as ctx:
            data = fib.read(dataset(root, definition, [workload]))
            with data.task(data.workloads["copy"][0], ctx=ctx) as task, stitch.Program.parse(ctx, "", plan) as program:
                report = stitch.verify(ctx, task, program, last_stage="correct")
                assert report.correct, (dtype, report.text)


def report_of(**figures):
    return {
        "summary": {"failed_stage": None, "status": "STITCH_OK", "correct": True, "timed": True, "degenerate": False,
                    "max_abs_error": 1e-3, "max_rel_error": "nan", "median_us": 20.0, "baseline_us": 50.0, "speedup": 2.5,
                    **figures},
        "stages": [{"stage": "compile", "message": "no such thing"}, {"stage": "correct", "message": "off"}],
        "environment": {"library": "0.1.0", "device": "GPU", "nvrtc": None},
    }  # fmt: skip


def test_traces():
    workload = fib.parse_workload(WORKLOAD, fib.parse_definition(DEFINITION))
    made = fib.trace(workload, "s", report_of())["evaluation"]
    assert made["status"] == "PASSED" and made["timestamp"] and made["log"] == ""
    assert made["performance"] == {"latency_ms": 0.02, "reference_latency_ms": 0.05, "speedup_factor": 2.5}
    assert made["correctness"] == {"max_absolute_error": 1e-3, "max_relative_error": "NaN"}
    assert made["environment"] == {"hardware": "GPU", "libs": {"libstitch": "0.1.0"}}
    cases = [
        ("compile", "STITCH_E_COMPILE", "COMPILE_ERROR"),
        ("validate", "STITCH_E_VALIDATE", "COMPILE_ERROR"),
        ("simulate", "STITCH_E_VALIDATE", "RUNTIME_ERROR"),
        ("correct", "STITCH_E_FAULT", "RUNTIME_ERROR"),
        ("correct", "STITCH_E_TIMEOUT", "TIMEOUT"),
        ("correct", "STITCH_E_VALIDATE", "INCORRECT_NUMERICAL"),
        ("exploit", "STITCH_E_VALIDATE", "INCORRECT_NUMERICAL"),
    ]
    for stage, reason, status in cases:
        figures = {"failed_stage": stage, "status": reason, "correct": False, "timed": False, "max_abs_error": "inf"}
        made = fib.trace(workload, "s", report_of(**figures))["evaluation"]
        assert made["status"] == status and made["performance"] is None, (stage, made)
        assert (made["correctness"] is not None) == (status == "INCORRECT_NUMERICAL")
        json.dumps(made, allow_nan=False)
    assert (
        fib.trace(workload, "s", report_of(failed_stage="compile", correct=False))["evaluation"]["log"]
        == "no such thing"
    )
    odd = fib.trace(workload, "s", report_of(degenerate=True, degenerate_reason="zeros pass", speedup=0))["evaluation"]
    assert odd["performance"]["speedup_factor"] == 0 and odd["log"] == "zeros pass"
    assert odd["correctness"]["extra"] == {"degenerate": True}
    for figures in ({"timed": False}, {"correct": False}):
        with tap.raises(stitch.InvalidError):
            fib.trace(workload, "s", report_of(**figures))


RUN_SOLUTION = """
import ctypes, sys
from ctypes import c_int, c_size_t, c_uint, c_uint64, c_void_p, byref
driver, made = ctypes.CDLL(sys.argv[2]), ctypes.CDLL(sys.argv[1])
context, stream = c_void_p(), None
assert driver.cuInit(c_uint(0)) == 0 and driver.cuDevicePrimaryCtxRetain(byref(context), c_int(0)) == 0
assert driver.cuCtxSetCurrent(context) == 0
made.stitched_missing_0.restype = made.stitched_error_0.restype = ctypes.c_char_p
made.stitched_workspace_0.restype = ctypes.c_ulonglong
assert made.stitched_missing_0() is None, made.stitched_missing_0()
assert made.stitched_open_0((ctypes.c_char_p * 0)(), c_int(0)) == 0, made.stitched_error_0()
def up(values, kind):
    data, at = (kind * len(values))(*values), c_uint64()
    assert driver.cuMemAlloc_v2(byref(at), c_size_t(ctypes.sizeof(data))) == 0
    assert driver.cuMemcpyHtoD_v2(at, data, c_size_t(ctypes.sizeof(data))) == 0
    return at
f = ctypes.c_float
x, rows, bias = [float(i) for i in range(48)], [5, 0, 3, 3, 1], [0.5] * 8
tensors = [up(x, f), up(rows, c_int), up(bias, f), up([0.0] * 40, f), up([0.0] * 5, f)]
work = up([0] * (made.stitched_workspace_0() + 256), ctypes.c_char)
addresses = (c_void_p * 5)(*[t.value for t in tensors])
assert made.stitched_prepare_0(addresses, c_void_p(work.value), None) == 0
assert made.stitched_run_0(addresses, c_void_p(work.value), None) == 0, made.stitched_error_0()
y, total = (f * 40)(), (f * 5)()
assert driver.cuCtxSynchronize() == 0
assert driver.cuMemcpyDtoH_v2(y, tensors[3], c_size_t(160)) == 0
assert driver.cuMemcpyDtoH_v2(total, tensors[4], c_size_t(20)) == 0
want = [x[r * 8 + c] * 1.5 + 0.5 for r in rows for c in range(8)]
assert list(y) == want, list(y)
assert list(total) == [sum(want[i * 8 : i * 8 + 8]) for i in range(5)]
"""


def toolkit():
    compiler = shutil.which("g++") or shutil.which("c++")
    home = next((h for h in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if h and os.path.exists(h)), None)
    if compiler is None or home is None or not os.path.exists(os.path.join(home, "include", "cublasLt.h")):
        raise tap.Skip("no C++ compiler, or no CUDA toolkit")
    return compiler, home


def test_solutions():
    have_torch()
    second = changed(changed(WORKLOAD, ("axes", "N"), 9), ("inputs", "scale", "value"), 0.25)
    quarter = copy.deepcopy(PLAN)
    quarter["run"][0]["args"][-1] = {"f32": 0.25}
    with tempfile.TemporaryDirectory() as root, sim.context() as ctx:
        data = fib.read(dataset(root, workloads=[WORKLOAD, second]))
        definition = data.definitions["gather_c8"]
        first, other = (data.task(w, ctx=ctx) for w in data.workloads["gather_c8"])
        with first, other:
            programs = []
            for task, plan in ((first, PLAN), (other, quarter)):
                with stitch.Program.parse(ctx, SOURCE, plan) as program:
                    program.validate(task)
                    programs.append((task, program.to_bytes()))
            made = fib.solution(definition, programs, name="rows_v1", author="us", description="rows")
            with tap.raises(stitch.InvalidError, "needs a program"):
                fib.solution(definition, [], name="a", author="b")
            foreign = fib.parse_definition({**DEFINITION, "inputs": {"x": DEFINITION["inputs"]["x"]}})
            with tap.raises(stitch.InvalidError, "is not one of"):
                fib.solution(foreign, programs, name="a", author="b")
        assert made["spec"]["entry_point"] == "main.cpp::run" and made["spec"]["language"] == "cuda"
        texts = {source["path"]: source["content"] for source in made["sources"]}
        assert list(texts) == ["main.cpp", "program_0.cpp", "program_1.cpp"]
        main = texts["main.cpp"]
        assert "v_scale == 1.5" in main and "v_scale == 0.25" in main and "double v_scale" in main
        assert (
            "fits(v_x, at::kFloat, std::vector<int64_t>{9, 8})" in main and "N = 6, M = 5, C = 8, scale = 1.5" in main
        )
        path = data.write_solution(made)
        assert path.endswith(os.path.join("solutions", "us", "gather", "gather_c8", "rows_v1.json"))
        with open(path, encoding="utf-8") as text:
            assert json.load(text) == made
        for name in ("../x", "a/b", "", ".x"):
            with tap.raises(stitch.InvalidError, "name of a file"):
                data.write_solution({**made, "name": name + "" if name != "" else "/"})
        run_solution(texts)


def run_solution(texts):
    """One extension of all files but main.cpp: it needs no library of CUDA to link, and finds them when it is loaded;
    the driver is the simulated one. And main.cpp compiles where PyTorch has CUDA's headers."""
    compiler, home = toolkit()
    sim.Driver()  # skips without
    with tempfile.TemporaryDirectory() as folder:
        # Not as libcuda.so.1 in the path of libraries: NVRTC would look into it for what only the real one has.
        driver = os.path.join(folder, "libdriver.so")
        os.symlink(os.path.abspath(os.environ["STITCH_TEST_SIM"]), driver + ".1")
        paths = []
        for name, text in texts.items():
            paths.append(os.path.join(folder, name))
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write(text.replace('"libcuda.so"', f'"{driver}"'))
        library = os.path.join(folder, "made.so")
        flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{home}/include"]
        done = subprocess.run(
            [compiler, *flags, *paths[1:], "-o", library, "-ldl"], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        command = [sys.executable, "-c", RUN_SOLUTION, library, driver + ".1"]
        env = dict(os.environ, CUDA_HOME=home)
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        import torch.utils.cpp_extension as extension

        includes = extension.include_paths()
        if not os.path.exists(os.path.join(includes[0], "c10", "cuda", "CUDAStream.h")) or torch.version.cuda is None:
            return
        import sysconfig

        flags = ["-std=c++20", "-fsyntax-only", "-DTORCH_EXTENSION_NAME=made", f"-I{home}/include"]
        flags += [f"-I{sysconfig.get_paths()['include']}", *(f"-isystem{place}" for place in includes)]
        done = subprocess.run([compiler, *flags, paths[0]], check=False, capture_output=True, text=True)
        assert done.returncode == 0 or "Python.h" in done.stderr, done.stderr[:4000]


if __name__ == "__main__":
    assert ctypes
    tap.main(sys.modules[__name__])

# SPDX-License-Identifier: MIT
"""Programs as C++ without libstitch: compiled here, run on the simulated driver in place of libcuda."""

import ctypes
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from ctypes import c_char_p, c_int, c_size_t, c_uint64, c_ulonglong, c_void_p

import sim
import tap
import stitch
from stitch import _export

WHEELS = os.path.join(os.environ.get("VIRTUAL_ENV", ""), "lib", "python3*", "site-packages", "nvidia", "cu1?")
CUDA = next(
    (
        folder
        for folder in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda", *glob.glob(WHEELS))
        if folder and os.path.exists(os.path.join(folder, "include", "cublasLt.h"))
    ),
    None,
)

SOURCE = """
template <int STEP> __global__ void add(const float *x, float *y, int n, float by)
{
    extern __shared__ float row[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    row[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n)
        y[i] = row[threadIdx.x] + STEP * by;
}
extern "C" __global__ void scale(const float *w, float *packed, int n, unsigned long long seed)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        packed[i] = w[i] * 2.0f + (seed == 5000000000ull ? 0.25f : 0.0f);
}
extern "C" __global__ void multiply(float *y, const float *packed, const short *two, int n, int t)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = y[i] * packed[i % 8] + t + two[i];
}
"""
PLAN = {
    "stitch": 1,
    "let": {"ALL": "ROWS*N", "ROWS": "max(B, 1)", "BLOCKS": "ceil_div(ALL, 32)"},
    "buffers": {
        "packed": {"dtype": "f32", "shape": ["N"]},
        "h": {"dtype": "f32", "shape": ["ALL"]},
        "two": {"dtype": "i16", "shape": ["ALL"]},
    },
    "prepare": [{"kernel": "scale", "grid": [1], "block": ["N"], "args": ["w", "packed", {"i32": "N"}, {"u64": 5000000000}]}],
    "run": [
        {"id": "last", "after": ["loop"], "copy": {"from": "h", "to": "y"}},
        {"id": "first", "after": [], "kernel": "add<3>", "grid": ["BLOCKS"], "block": [32], "shared": 128,
         "args": ["x", "h", {"i32": "ALL"}, {"f32": 0.5}]},
        {"id": "fill", "after": [], "fill": {"buffer": "two", "value": -2}},
        {"id": "loop", "after": ["first", "fill"], "repeat": {"var": "t", "count": "2+(N==8)", "steps": [
            {"kernel": "multiply", "grid": [1, "BLOCKS"], "block": [32],
             "args": ["h + 0*t", "packed", "two", {"i32": "(t+1)/(t+1) * 32 * BLOCKS * (t >= 0) - 32*BLOCKS + ALL"}, {"i32": "t"}]}]}},
    ],
}  # fmt: skip
PLAN["run"][3]["repeat"]["steps"][0]["grid"] = ["BLOCKS"]


def interface():
    return stitch.Interface(
        {"B": 3, "N": 8},
        (
            stitch.Tensor.make("x", "f32", ["B", "N"], "input"),
            stitch.Tensor.make("w", "f32", ["N"], "weight"),
            stitch.Tensor.make("y", "f32", ["B", "N"], "output"),
        ),
    )


def program(ctx, plan, source=SOURCE):
    made = stitch.Program.parse(ctx, source, plan)
    made.validate(interface())
    return made


def tools():
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise tap.Skip("no C++ compiler")
    if CUDA is None:
        raise tap.Skip("no folder with CUDA's headers")
    return compiler


def test_runs_without_the_library():
    compiler, driver = tools(), sim.Driver()
    # A wheel has no libnvrtc.so, but libnvrtc.so.13 alone.
    nvrtc = next((path for d in ("lib64", "lib") for path in sorted(glob.glob(os.path.join(CUDA, d, "libnvrtc.so*")))), None)
    if nvrtc is None:
        raise tap.Skip("no NVRTC to link with")
    with sim.context() as ctx, tempfile.TemporaryDirectory() as folder:
        p = program(ctx, PLAN)
        cpp, library = os.path.join(folder, "p.cpp"), os.path.join(folder, "p.so")
        with open(cpp, "w", encoding="utf-8") as text:
            text.write(_export.to_cpp(p.source, p.plan, p.interface))
        path = os.environ["STITCH_TEST_SIM"]
        flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{CUDA}/include"]
        done = subprocess.run(
            [compiler, *flags, cpp, "-o", library, path, nvrtc], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        # NVRTC asks for it by its bare name, which is no name of a file outside of the loader's folders.
        for builtins in glob.glob(os.path.join(os.path.dirname(nvrtc), "libnvrtc-builtins.so*")):
            ctypes.CDLL(builtins)
        ctypes.CDLL(nvrtc, ctypes.RTLD_GLOBAL)
        made = ctypes.CDLL(library)
        made.stitched_error.restype, made.stitched_workspace.restype = c_char_p, c_ulonglong
        folders = (c_char_p * 1)(f"{CUDA}/include".encode())
        assert made.stitched_open(folders, c_int(1)) == 0, made.stitched_error()
        assert made.stitched_workspace() == 256 + 256 + 256
        blocks = [sim.CudaArray(driver, sim.floats(n)) for n in (24, 8, 24)]
        workspace = c_uint64()
        driver("cuMemAlloc_v2", ctypes.byref(workspace), c_size_t(made.stitched_workspace()))
        tensors = (c_void_p * 3)(*[block.pointer for block in blocks])
        assert made.stitched_prepare(tensors, c_void_p(workspace.value), None) == 0, made.stitched_error()
        assert made.stitched_run(tensors, c_void_p(workspace.value), None) == 0, made.stitched_error()
        want = []
        for i, x in enumerate(blocks[0].values):
            value = x + 1.5
            for t in range(3):
                value = value * (blocks[1].values[i % 8] * 2 + 0.25) + t - 2
            want.append(value)
        assert list(blocks[2].read()) == want, (list(blocks[2].read()), want)


def test_products_and_tensor_maps_compile():
    compiler = tools()
    run = [
        {"gemm": {"a": "x", "b": "w + 0*N", "c": "y", "m": "B", "n": 1, "k": "N", "ldc": "N", "epilogue": "relu"}},
        {"gemm": {"a": "x", "b": "w", "c": "y", "m": 1, "n": 1, "k": "N", "batch": 2, "stride_b": 0, "compute": "tf32",
                  "alpha": 0.5, "beta": 1, "bias": "w"}},
        {"kernel": "maps", "grid": [2], "block": [32], "cluster": [2], "pdl": True, "args": [
            {"tensor_map": {"buffer": "x", "shape": ["B", "N"], "box": [1, 8], "swizzle": "32B"}},
            {"tensor_map": {"buffer": "h + N", "shape": [1, 2, 8], "strides": ["2*N", "N"], "box": [1, 2, 8]}},
            "y", {"f16": 0.1}, {"bf16": 1.5}, {"f64": 1e-300}, {"u32": 7}]},
    ]  # fmt: skip
    plan = {"stitch": 1, "buffers": {"h": {"dtype": "bf16", "shape": ["4*N"]}}, "run": run}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p.cpp")
        with open(path, "w", encoding="utf-8") as text:
            text.write(_export.to_cpp('a raw )stitched" string', plan, interface_with_shapes()))
        done = subprocess.run(
            [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{CUDA}/include", path],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr


def test_the_text_stays_what_it_is():
    """What NVRTC gets of an exported program is what it was verified with: no comment ends elsewhere."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise tap.Skip("no C++ compiler")
    for text in (
        "// a tile\r#define FAST 1\n",
        "int a;\r\nint b; // \\\r\nint c;\r\r",
        "x" * 7999 + "\r\n" + ")stitched\"",
        "// ??/\n\f\v\\ \n",
        "",
    ):
        with tempfile.TemporaryDirectory() as folder:
            cpp, printing = os.path.join(folder, "p.cpp"), os.path.join(folder, "p")
            with open(cpp, "wb") as file:
                file.write(
                    b"#include <cstdio>\nconst char *const text =\n"
                    + _export._literal(text).encode()
                    + b";\nint main() { return fputs(text, stdout) < 0; }\n"
                )
            subprocess.run([compiler, "-std=c++17", cpp, "-o", printing], check=True)
            assert subprocess.run([printing], check=True, capture_output=True).stdout == text.encode(), repr(text)


def interface_with_shapes():
    with sim.context("none") as ctx:
        p = stitch.Program.parse(ctx, "", {"stitch": 1, "run": [{"fill": {"buffer": "y", "value": 0}}]})
        p.validate(interface())
        return p.interface


def test_the_recorded_programs():
    compiler, count = tools(), 0
    with sim.context() as ctx, tempfile.TemporaryDirectory() as folder:
        for name in ("gpt_block", "swiglu_mlp"):
            task = stitch.Task.load(ctx, os.path.join(sim.EXAMPLES, "tasks", name, "task.json"))
            with open(os.path.join(sim.EXAMPLES, "replies", name + ".jsonl"), encoding="utf-8") as lines:
                reply = [json.loads(line)["reply"]["content"] for line in lines][-1]
            candidate = stitch.Candidate.from_reply(ctx, reply)
            candidate.program.validate(task)
            path = os.path.join(folder, name + ".cpp")
            with open(path, "w", encoding="utf-8") as text:
                text.write(_export.to_cpp(candidate.program.source, candidate.program.plan, task.interface))
            done = subprocess.run(
                [compiler, "-std=c++17", "-fsyntax-only", f"-I{CUDA}/include", path],
                check=False,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            count += 1
    assert count == 2


def test_what_cannot_be_exported():
    seen = interface_with_shapes()
    for step, word in [
        ({"op": {"name": "f", "args": []}}, "operators of the host"),
        ({"kernel": "k", "grid": ["Q"], "block": [1], "args": []}, "'Q'"),
        ({"kernel": "k", "grid": [1], "block": [1], "args": ["z"]}, "'z'"),
        ({"kernel": "k", "grid": [1], "block": [1], "args": [{"f16": "N"}]}, "f16"),
        ({"gemm": {"a": "x", "b": "w", "c": "y", "d": "h", "beta": 1, "m": 1, "n": 1, "k": 1}}, "another type"),
    ]:
        plan = {"stitch": 1, "buffers": {"h": {"dtype": "f16", "shape": [8]}}, "run": [step]}
        with tap.raises(stitch.UnsupportedError, word):
            _export.to_cpp("", plan, seen)
    with tap.raises(stitch.UnsupportedError, "states"):
        _export.to_cpp("", {"buffers": {"h": {"dtype": "f16", "shape": [8], "keep": True}}, "run": []}, seen)
    for dtype, value, bits in [
        ("f16", 1.5, 0x3E00), ("f16", 1e6, 0x7C00), ("bf16", 1.00390625, 0x3F80), ("bf16", 1.01171875, 0x3F82), ("f32", -1, 0xBF800000),
        ("f64", 1.0, 0x3FF0000000000000), ("i8", -1, 0xFF), ("i64", -2, 0xFFFFFFFFFFFFFFFE), ("bool", 3, 1), ("f8e4m3", 0, 0),
    ]:  # fmt: skip
        assert _export.bits_of(dtype, value) == bits, (dtype, value, hex(_export.bits_of(dtype, value)))


if __name__ == "__main__":
    tap.main(sys.modules[__name__])

# SPDX-License-Identifier: MIT
"""stitch.flashinfer_bench on a GPU: tasks of a small dataset, verified and timed; the solution built as flashinfer-bench
builds it, beside the definition's reference; a trace.

Prints TAP. Needs a GPU, PyTorch, and STITCH_LIBRARY or a build folder; for the solution ninja, a C++ compiler and the
CUDA toolkit.
"""

import json
import os
import sys
import tempfile
import time

from with_torch import note, torch_or_skip
import sim
import tap
import stitch
from stitch import flashinfer_bench as fib

torch = torch_or_skip()
import torch.utils.cpp_extension  # noqa: E402

GEMM = {
    "name": "gemm_n1024_k512",
    "op_type": "gemm",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 1024}, "K": {"type": "const", "value": 512}},
    "inputs": {
        "A": {"shape": ["M", "K"], "dtype": "float16"},
        "B": {"shape": ["N", "K"], "dtype": "float16"},
        "shift": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(A, B, shift):\n    return torch.matmul(A, B.T) + shift\n",
}
SOURCE = """
#include <cuda_fp16.h>
extern "C" __global__ void shift(const float *h, __half *c, int n, float by)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = __float2half(h[i] + by);
}
"""
PLAN = {
    "stitch": 1,
    "buffers": {"h": {"dtype": "f32", "shape": ["M", "N"]}},
    "run": [
        {"gemm": {"a": "A", "b": "B", "c": "h", "m": "M", "n": "N", "k": "K", "trans_b": True}},
        {"kernel": "shift", "grid": ["ceil_div(M*N,256)"], "block": [256], "args": ["h", "C", {"i32": "M*N"}, {"f32": 0.5}]},
    ],
}  # fmt: skip
SIZES = (256, 96)


def dataset(root):
    for folder, name, rows in (
        ("definitions", "gemm.json", [GEMM]),
        (
            "workloads",
            "gemm.jsonl",
            [
                {
                    "definition": GEMM["name"],
                    "workload": {
                        "uuid": f"m{size}",
                        "axes": {"M": size},
                        "inputs": {"A": {"type": "random"}, "shift": {"type": "scalar", "value": 0.5}},
                    },
                }
                for size in SIZES
            ],
        ),
    ):
        os.makedirs(os.path.join(root, folder))
        with open(os.path.join(root, folder, name), "w", encoding="utf-8") as file:
            file.write("\n".join(json.dumps(row) for row in rows))
    return fib.read(root)


def test_from_a_dataset_to_a_solution():
    with tempfile.TemporaryDirectory() as root, sim.context("cuda:0") as ctx:
        data = dataset(root)
        programs, tasks = [], []
        try:
            for workload in data.workloads[GEMM["name"]]:
                tasks.append(data.task(workload, ctx=ctx))
                assert tasks[-1].precision is stitch.Precision.F16 and [n for n, _ in tasks[-1].baselines] == ["eager"]
                with stitch.Program.parse(ctx, SOURCE, PLAN) as program:
                    report = stitch.verify(ctx, tasks[-1], program, simulate="never", profile="never", iterations=30)
                    note(report.text)
                    assert report.correct and report.summary.timed, report.text
                    program.validate(tasks[-1])
                    programs.append((tasks[-1], program.to_bytes()))
                row = fib.trace(workload, "gemm_v1", report)
                note(json.dumps(row["evaluation"]))
                found = row["evaluation"]
                assert found["status"] == "PASSED" and found["performance"]["latency_ms"] > 0
                assert found["environment"]["hardware"] not in ("", "unknown")
                data.append_trace(row, "us")
            solution = fib.solution(data.definitions[GEMM["name"]], programs, name="gemm_v1", author="us")
        finally:
            for task in tasks:
                task.close()
        data.write_solution(solution)
        try_solution(solution)


def build(solution, folder):
    """As flashinfer-bench's builder for the binding `torch` does."""
    paths = []
    for source in solution["sources"]:
        paths.append(os.path.join(folder, source["path"]))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(source["content"])
    try:
        return torch.utils.cpp_extension.load(
            name="stitch_gemm_v1",
            sources=paths,
            extra_include_paths=[folder],
            extra_ldflags=[],
            with_cuda=True,
            build_directory=folder,
        )
    except RuntimeError as e:
        if "ninja" not in str(e).lower() or "error building" in str(e).lower():
            raise
        raise tap.Skip("the solution was not built: " + str(e).splitlines()[0]) from None


def try_solution(solution):
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        made = build(solution, folder)
        note(f"built in {time.perf_counter() - begun:.0f} s")
        for size in SIZES:
            a = torch.randn(size, 512, device="cuda", dtype=torch.float16)
            b = torch.randn(1024, 512, device="cuda", dtype=torch.float16)
            c = torch.full((size, 1024), float("nan"), device="cuda", dtype=torch.float16)
            for given in (a, a.T.contiguous().T):  # dense or not
                c.fill_(float("nan"))
                made.run(given, b, 0.5, c)
                error = (c.double() - (a.double() @ b.double().T + 0.5)).abs().max()
                assert float(error) < 0.06, float(error)
            note(f"M = {size}: largest error {float(error):.4f}")
            for bad in ((a[:-1], b, 0.5, c), (a, b, 0.25, c), (a.float(), b, 0.5, c), (a, b, 0.5, c.T)):
                with tap.raises((RuntimeError, ValueError)):
                    made.run(*bad)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            made.run(a, b, 0.5, c.zero_())
        stream.synchronize()
        assert bool(torch.isfinite(c).all()) and float(c.abs().max()) > 1


if __name__ == "__main__":
    tap.main(sys.modules[__name__])

# SPDX-License-Identifier: MIT
"""The simulator beside numba's CUDA simulator: one elementwise kernel, in one run on one machine.

numba interprets the kernel's Python a thread at a time (NUMBA_ENABLE_CUDASIM=1); libstitch's simulator runs the PTX that NVRTC makes of the same
kernel, with all checks on. Needs numba and numpy (pip install numba) and a build folder (STITCH_BUILD, default build).
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("STITCH_BUILD", os.path.join(ROOT, "build"))
N = 1 << 14
TASK = """{"stitch_task": 1, "name": "axpy", "dims": {"N": %d},
 "inputs": [{"name": "x", "dtype": "f32", "shape": ["N"]}, {"name": "z", "dtype": "f32", "shape": ["N"]}],
 "outputs": [{"name": "y", "dtype": "f32", "shape": ["N"]}], "tolerance": {"atol": 1e-5, "rtol": 1e-5},
 "reference": {"program": {"source": {"text": "%s"}, "plan": %s}, "outputs": "f64"}}"""
SOURCE = "__global__ void k(const float *x, const float *z, %s *y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; " \
         "if (i < n) y[i] = 2 * x[i] + z[i]; }"
PLAN = '{"stitch": 1, "run": [{"kernel": "k", "grid": ["ceil_div(N, 256)"], "block": [256], "args": ["x", "z", "y", {"i32": "N"}]}]}'


def numba_seconds():
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    global cuda  # numba's simulator replaces the module of this name while a kernel runs
    import numpy
    from numba import cuda

    @cuda.jit
    def k(x, z, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = 2 * x[i] + z[i]

    x, z, y = (numpy.ones(N, dtype=numpy.float32) for _ in range(3))
    times = []
    for _ in range(3):
        began = time.perf_counter()
        k[(N + 255) // 256, 256](x, z, y)
        times.append(time.perf_counter() - began)
    assert (y == 3).all()
    return statistics.median(times)


def stitch_seconds():
    folder = tempfile.mkdtemp()
    files = {"task.json": TASK % (N, SOURCE % "double", PLAN), "k.cu": SOURCE % "float", "plan.json": PLAN}
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", encoding="ascii") as f:
            f.write(text)
    command = [os.path.join(BUILD, "examples", "stitch"), "verify", "--device", "sim:sm_90", "--task", folder + "/task.json", "--source",
               folder + "/k.cu", "--plan", folder + "/plan.json", "--trials", "1", "--json"]
    env = dict(os.environ, STITCH_CACHE_DIR=folder + "/cache")
    times = []
    for _ in range(4):
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
        stages = {s["stage"]: s for s in json.loads(done.stdout)["stages"]}
        assert stages["simulate"]["status"] == "passed"
        times.append(stages["simulate"]["milliseconds"] / 1e3)
    return statistics.median(times[1:])


def main():
    try:
        peer = numba_seconds()
    except ImportError as error:
        print(f"needs numba and numpy: {error}")
        return 77
    ours = stitch_seconds()
    print(f"axpy of {N} elements: numba's simulator {peer * 1e3:.1f} ms; libstitch, inputs filled, loaded, run and checked, {ours * 1e3:.1f} ms: "
          f"{peer / ours:.0f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: MIT
"""What Executor.run() costs over the C function, and what the import takes.

usage: bench_python.py [SAMPLES]     (default 200; each is the mean of 1000 runs, on a GPU of 50). Medians with the 5th and 95th percentile.

The binding alone: a C function that does nothing and returns 0 takes the place of stitch_executor_run(), so that all that is measured is
what Python adds. On a GPU also the whole, to be set beside what bench_executor says of the C function.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bindings", "python"), os.path.join(ROOT, "tests", "python")]
import sim  # noqa: E402
import stitch  # noqa: E402


def show(name, values, unit="us"):
    values.sort()
    n = len(values)
    print(
        f"{name:52} {values[n // 2]:9.3f} {unit}  ({values[n // 20]:.3f} to {values[n - 1 - n // 20]:.3f}, {n} samples)"
    )
    return values[n // 2]


def timed(function, count):
    begun = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - begun) * 1e6 / count


def measure_binding(x, samples):
    real, x._run = x._run, ctypes.CDLL(None).pthread_equal  # of an address and 0: they differ
    x._run.restype, x._run.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    run, bare, address = x.run, x._run, x._ref.pointer
    ours, call, loop = [], [], []
    for _ in range(samples):
        ours.append(timed(run, 1000))
        call.append(timed(lambda: bare(address, 0, None), 1000))
        loop.append(timed(lambda: None, 1000))
    x._run = real
    show("Executor.run, what the binding adds", ours)
    show("a call through ctypes alone, in a lambda", call)
    show("an empty lambda", loop)
    memory = stitch.DevicePointer(1 << 30, 1024, "f32", (256,), 0)
    show("Executor.bind of a DevicePointer", [timed(lambda: x.bind("x", memory), 100) for _ in range(samples)])


def measure_gpu(samples):
    try:
        driver = sim.Driver("libcuda.so.1")
    except OSError:
        print("there is no driver: nothing is run on a GPU")
        return
    with sim.context("cuda:0") as ctx:
        info = ctx.device
        print(f"{info.name}, driver {info.driver_version // 1000}.{info.driver_version % 1000 // 10}")
        x = stitch.Executor(ctx, sim.program(ctx))
        x.bind_all({"x": sim.CudaArray(driver, sim.floats(256)), "y": sim.CudaArray(driver, sim.floats(256))})
        x.prepare()
        stream = ctypes.c_void_p()
        driver("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))
        run, values = (lambda: x.run(stream.value)), []
        timed(run, 20)
        for _ in range(samples):
            driver.synchronise()
            values.append(timed(run, 50))
        show("Executor.run of a program of one kernel, host time", values)


def measure_import():
    """With compiled files, as an installed package has them."""
    script = "import time; t = time.perf_counter(); import stitch; print((time.perf_counter() - t) * 1e3)"
    with tempfile.TemporaryDirectory() as cache:
        env = dict(os.environ, PYTHONPATH=sys.path[0], PYTHONPYCACHEPREFIX=cache)
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        times = []
        for _ in range(21):
            done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=env)
            times.append(float(done.stdout))
    show("import stitch", times[1:], "ms")


def main():
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    measure_import()
    with sim.context("sim:sm_90a") as ctx, stitch.Executor(ctx, sim.program(ctx)) as x:
        measure_binding(x, samples)
    measure_gpu(samples)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""What Python adds: to a run of a program, to an attempt of the loop, and what the import takes.

usage: bench_python.py [SAMPLES]     (default 200). Medians with the 5th and 95th percentile.

Runs. Each sample is the mean of 50 calls (1000 where nothing is run), and the ways to call take turns in one process,
with the same executor, memory and stream: stitch_executor_run() in a loop in C (bench_calls.c), Executor.run(), and with
PyTorch the module that runs the program, stitch.torch's Optimized, beside the original. "What Python adds" is the
median of the differences of the pairs. Without a GPU a C function that does nothing takes the place of
stitch_executor_run(), and nothing else is compared.

Attempts. The overhead of an attempt is the wall time from one turn of loop() to the next (the plan included where one
is made) without the time in the model's function and without that of the verification's stages, which is compiling,
simulating, and work on the device. So it is what choosing the next step, prompts, parsing replies, making reports, and
the binding take. The model answers from the recordings in examples/replies. What no stage accounts for is overhead,
whatever it is; opening the device, once a process, is no attempt's.

Needs STITCH_LIBRARY or a build folder (STITCH_BUILD, default build); with a GPU the gpt_block task is used, else
swiglu_mlp. PyTorch is optional.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("STITCH_BUILD") or os.path.join(ROOT, "build")
sys.path[:0] = [os.path.join(ROOT, "bindings", "python"), os.path.join(ROOT, "tests", "python")]
import sim  # noqa: E402
import stitch  # noqa: E402

CALLS = 50  # on a device


def show(name, values, unit="us"):
    values = sorted(values)
    n = len(values)
    low, high = values[n // 20], values[n - 1 - n // 20]
    print(f"{name:64} {values[n // 2]:9.3f} {unit}  ({low:.3f} to {high:.3f}, {n} samples)", flush=True)
    return values[n // 2]


def timed(function, count):
    begun = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - begun) * 1e6 / count


def c_loop():
    """bench_calls.c as a function (C function, executor, stream, count) -> microseconds a call."""
    path = os.path.join(BUILD, "tests", "bench", "bench_calls.so")
    if not os.path.exists(path):
        sys.exit(f"there is no {path}: build first, or set STITCH_BUILD")
    calls = ctypes.CDLL(path).bench_calls
    pointer, status = ctypes.c_void_p, ctypes.c_int()
    calls.restype, calls.argtypes = ctypes.c_double, (pointer, pointer, pointer, ctypes.c_int, pointer)

    def loop(function, x, stream, count):
        took = calls(ctypes.cast(function, pointer), x._ref.pointer, stream, count, ctypes.byref(status))
        assert status.value == 0, status.value
        return took

    return loop


def take_turns(samples, ways, wait=lambda: None):
    """{name: samples} of functions that return microseconds, one of each after the other."""
    made = {name: [] for name in ways}
    for name, way in ways.items():
        way()
    for _ in range(samples):
        for name, way in ways.items():
            wait()
            made[name].append(way())
    wait()
    return made


def compare(title, made):
    """The first is what the others are compared with."""
    print(title)
    base = next(iter(made.values()))
    for name, values in made.items():
        show("  " + name, values)
    for name, values in list(made.items())[1:]:
        show(f"  what Python adds: {name}", [a - b for a, b in zip(values, base)])


# ---- runs ------------------------------------------------------------------------------------------------------------


def measure_binding(loop, samples):
    with sim.context("sim:sm_90a") as ctx, stitch.Executor(ctx, sim.program(ctx)) as x:
        nothing = ctypes.CDLL(None).pthread_equal  # of an address and 0: they differ
        nothing.restype, nothing.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        real, x._run = x._run, nothing
        ways = {
            "a C function that does nothing, in C": lambda: loop(nothing, x, 0, 1000),
            "Executor.run()": lambda: timed(x.run, 1000),
            "Executor.run(stream)": lambda: timed(lambda: x.run(0), 1000),
        }
        compare("the binding alone", take_turns(samples, ways))
        x._run = real
        memory = stitch.DevicePointer(1 << 30, 1024, "f32", (256,), 0)
        show("Executor.bind of a DevicePointer", [timed(lambda: x.bind("x", memory), 100) for _ in range(samples)])


def gpu():
    """A context on the GPU; None: there is none."""
    ctx = sim.context("cuda:0")
    try:
        info = ctx.device
        assert not info.simulated
    except (stitch.NoDeviceError, stitch.NoLibraryError):
        ctx.close()
        print("there is no GPU: nothing is run on one")
        return None
    print(
        f"{info.name}, driver {info.driver_version // 1000}.{info.driver_version % 1000 // 10}, Python {sys.version.split()[0]}"
    )
    return ctx


def measure_run(loop, ctx, samples):
    driver = sim.Driver("libcuda.so.1")
    with stitch.Executor(ctx, sim.program(ctx)) as x:
        x.bind_all({"x": sim.CudaArray(driver, sim.floats(256)), "y": sim.CudaArray(driver, sim.floats(256))})
        x.prepare()
        made = ctypes.c_void_p()
        driver("cuStreamCreate", ctypes.byref(made), ctypes.c_uint(1))
        stream, function = made.value, stitch._library.lib.stitch_executor_run
        ways = {
            "stitch_executor_run() in C": lambda: loop(function, x, stream, CALLS),
            "Executor.run(stream)": lambda: timed(lambda: x.run(stream), CALLS),
        }
        compare("a program of one kernel, host time", take_turns(samples, ways, driver.synchronise))


def measure_module(loop, ctx, samples):
    """Three layers on 16 rows, so that the host's time is all that there is."""
    try:
        import torch  # pylint: disable=import-outside-toplevel
        import module_cases as cases  # pylint: disable=import-outside-toplevel
        import stitch.torch as bridge  # pylint: disable=import-outside-toplevel
    except ImportError as e:
        print(f"no modules are run: {e}")
        return
    module, (x,) = cases.MLP.make()
    module, x = module.cuda(), x.cuda()
    plan = {
        "stitch_plan": 1,
        "strategy": "s",
        "bottlenecks": [],
        "subtasks": [{"id": "a", "level": "kernel", "title": "t", "goal": "g", "after": []}],
    }
    reply = f"```cuda\n{cases.MLP.source}\n```\n```json\n{json.dumps(cases.MLP.plan)}\n```\n"
    fast = bridge.optimize(
        module,
        [x],
        ctx=ctx,
        model=lambda request: json.dumps(plan) if request.label == "plan" else reply,
        policy=stitch.Policy(max_attempts=1),
        verify_options={"last_stage": "correct"},
        baselines=["eager"],
    )
    with torch.inference_mode():
        kept = [fast(x) for _ in range(3)]
        (ready,) = fast._engine._ready.values()
        stream, function = torch.cuda.current_stream().cuda_stream, stitch._library.lib.stitch_executor_run
        ways = {
            "stitch_executor_run() in C": lambda: loop(function, ready.executor, stream, CALLS),
            "Executor.run()": lambda: timed(ready.executor.run, CALLS),
            "the optimised module": lambda: timed(lambda: fast(x), CALLS),
            "the original": lambda: timed(lambda: module(x), CALLS),
        }
        made = take_turns(samples, ways, torch.cuda.synchronize)
        assert torch.allclose(fast(x), module(x), atol=1e-5) and fast.fallbacks == 0 and len(kept) == 3
    compare(f"a module of three kernels, host time, torch {torch.__version__}", made)


# ---- attempts --------------------------------------------------------------------------------------------------------


def measure_attempts(device, name, rounds):
    """Attempts with the recorded replies of a task: all of them in each round, after a single one that is told apart.
    It is the first of the process, and what reference and baselines need is compiled with it if no cache has it."""
    with open(os.path.join(sim.EXAMPLES, "replies", name + ".jsonl"), encoding="utf-8") as file:
        replies = {(r["label"], r["number"]): r["reply"]["content"] for r in map(json.loads, file)}
    overhead, wall, model = [], [], []
    for number in range(1 + rounds):
        asked, spent = {}, [0.0]

        def answer(request):
            begun = time.perf_counter()
            asked[request.label] = asked.get(request.label, 0) + 1
            text = replies[request.label, asked[request.label]]
            spent[0] += time.perf_counter() - begun
            return text

        with (
            sim.context(device) as ctx,
            stitch.Task.load(ctx, os.path.join(sim.EXAMPLES, "tasks", name, "task.json")) as task,
        ):
            ctx.set_model(stitch.Model.host(ctx, answer))
            stitch.Executor(ctx, sim.program(ctx)).close()  # the device is opened once, and is no attempt's
            attempts = sum(label.startswith("code") for label, _ in replies) if number else 1
            options = {"last_stage": "correct"} if ctx.device.simulated else {}
            begun = time.perf_counter()
            for turn in stitch.loop(ctx, task, stitch.Policy(max_attempts=attempts), **options):
                took = (time.perf_counter() - begun) * 1e3
                stages = sum(stage.milliseconds for stage in turn.report.stages)
                rest = took - stages - spent[0] * 1e3
                print(
                    f"  {turn.attempt.action.name.lower():20} {took:9.1f} ms, in stages {stages:9.1f} ms, overhead {rest:7.2f} ms{'' if number else ', the first'}",
                    flush=True,
                )
                if number:
                    overhead.append(rest)
                    wall.append(took)
                    model.append(spent[0] * 1e3)
                spent[0] = 0.0
                begun = time.perf_counter()
    print(f"attempts at {name}; the slowest overhead {max(overhead):.2f} ms")
    show("  wall time", wall, "ms")
    show("  in the model's function", model, "ms")
    show("  overhead: neither model nor a stage", overhead, "ms")


# ---- the import ------------------------------------------------------------------------------------------------------


def measure_import():
    """With compiled files, as an installed package has them."""
    script = """
import sys, time
wall, processor = time.perf_counter(), time.process_time()
import stitch
print((time.perf_counter() - wall) * 1e3, (time.process_time() - processor) * 1e3)
assert not {"torch", "numpy"} & set(sys.modules)
"""
    with tempfile.TemporaryDirectory() as cache:
        env = dict(os.environ, PYTHONPATH=sys.path[0], PYTHONPYCACHEPREFIX=cache)
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        times = []
        for _ in range(21):
            done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=env)
            times.append([float(word) for word in done.stdout.split()])
    show("import stitch, elapsed time", [row[0] for row in times[1:]], "ms")
    show("import stitch, processor time", [row[1] for row in times[1:]], "ms")


def main():
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    loop = c_loop()
    measure_import()
    measure_binding(loop, samples)
    ctx = gpu()
    if ctx is None:
        measure_attempts("sim:sm_90a", "swiglu_mlp", 2)
        return
    with ctx:
        measure_run(loop, ctx, samples)
        measure_module(loop, ctx, samples)
    measure_attempts("cuda:0", "gpt_block", 1)


if __name__ == "__main__":
    main()

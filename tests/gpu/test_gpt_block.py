# SPDX-License-Identifier: MIT
"""The main job on a GPU: `stitch run` with recorded replies on the GPT block, then the saved program beside PyTorch.

Prints TAP. Needs a build folder (STITCH_BUILD, default build) and a GPU; the comparison with PyTorch needs torch.
"""
import ctypes
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("STITCH_BUILD", os.path.join(ROOT, "build"))
TASK = os.path.join(ROOT, "examples", "tasks", "gpt_block")
REPLIES = os.path.join(ROOT, "examples", "replies", "gpt_block.jsonl")
SAVED = os.path.join(tempfile.mkdtemp(), "gpt_block.stitch")
TARGET = 8.0  # times PyTorch eager float32, the figure this task is measured by

results = []


def report(name, ok, detail=""):
    results.append(ok)
    print(f"{'ok' if ok else 'not ok'} {len(results)} - {name}", flush=True)
    if detail:
        print("# " + str(detail).replace("\n", "\n# "), flush=True)


def skip(name, why):
    results.append(True)
    print(f"ok {len(results)} - {name} # SKIP {why}", flush=True)


def have_gpu():
    doctor = subprocess.run([os.path.join(BUILD, "examples", "stitch"), "doctor", "--json"], capture_output=True, text=True)
    try:
        items = {item["name"]: item for item in json.loads(doctor.stdout)["items"]}
    except (ValueError, KeyError):
        return False
    return items.get("driver", {}).get("status") == "ok" and items.get("device", {}).get("status") == "ok"


def run_loop():
    command = [os.path.join(BUILD, "examples", "stitch"), "run", "--task", os.path.join(TASK, "task.json"), "--model",
               "replay:" + REPLIES, "--target", "12", "--out", SAVED, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    print("# " + done.stderr.replace("\n", "\n# "))
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    attempts = [e for e in events if e["event"] == "attempt"]
    actions = [e["action"] for e in attempts]
    stages = [e["report"]["summary"]["failed_stage"] for e in attempts]
    report("the loop ends with a correct program", done.returncode == 0 and os.path.exists(SAVED), done.returncode)
    report("every kind of turn was taken", {"draft", "repair_compile", "repair_correctness", "optimise"} <= set(actions), actions)
    report("a compile error and a wrong result were met", "compile" in stages and {"simulate", "correct", "exploit"} & set(stages), stages)
    result = [e for e in events if e["event"] == "result"]
    report(f"at least {TARGET:g}x the eager float32 baseline", bool(result) and result[0]["speedup"] >= TARGET,
           f"{result[0]['speedup']:.2f}x, {result[0]['median_us']:.1f} us" if result else "no result")


class Info(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("role", ctypes.c_int32), ("dtype", ctypes.c_int32),
                ("rank", ctypes.c_size_t), ("shape_expr", ctypes.c_char_p * 8), ("shape", ctypes.c_int64 * 8),
                ("elements", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class Program:
    """The saved program through the C API; what the Python binding does properly."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(os.path.join(BUILD, "lib", "libstitch.so"))
        self.lib.stitch_error_message.restype = ctypes.c_char_p
        self.lib.stitch_executor_interface.restype = ctypes.c_void_p
        self.lib.stitch_executor_interface.argtypes = [ctypes.c_void_p]
        self.lib.stitch_interface_tensor_count.argtypes = [ctypes.c_void_p]
        self.lib.stitch_interface_tensor_count.restype = ctypes.c_size_t
        self.lib.stitch_interface_tensor.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(Info)]
        self.lib.stitch_executor_bind.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
        self.lib.stitch_executor_prepare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.stitch_executor_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.stitch_executor_new.argtypes = [ctypes.c_void_p] * 5
        self.err = ctypes.c_void_p()
        self.ctx, program, self.executor = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        e = ctypes.byref(self.err)
        self.check(self.lib.stitch_context_new(ctypes.byref(self.ctx), None, e))
        self.check(self.lib.stitch_program_load(self.ctx, path.encode(), None, ctypes.byref(program), e))
        self.check(self.lib.stitch_executor_new(self.ctx, program, None, ctypes.byref(self.executor), e))
        self.lib.stitch_program_free(program)
        self.slots = {}
        interface = self.lib.stitch_executor_interface(self.executor)
        for i in range(self.lib.stitch_interface_tensor_count(interface)):
            info = Info(struct_size=ctypes.sizeof(Info))
            self.lib.stitch_interface_tensor(interface, i, ctypes.byref(info))
            self.slots[info.name.decode()] = i

    def check(self, rc):
        if rc:
            raise RuntimeError(self.lib.stitch_error_message(self.err).decode())

    def bind(self, name, tensor):
        self.check(self.lib.stitch_executor_bind(self.executor, self.slots[name], tensor.data_ptr(),
                                                 tensor.numel() * tensor.element_size(), ctypes.byref(self.err)))

    def prepare(self, stream):
        self.check(self.lib.stitch_executor_prepare(self.executor, stream, ctypes.byref(self.err)))

    def run(self, stream):
        self.check(self.lib.stitch_executor_run(self.executor, stream, ctypes.byref(self.err)))


def compare_with_torch():
    try:
        import torch
    except ImportError:
        return skip("beside PyTorch", "torch is not installed")
    spec = importlib.util.spec_from_file_location("model", os.path.join(TASK, "model.py"))
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
    module = source.Model().cuda()
    x = torch.randn(source.B, source.T, source.C, device="cuda")
    y = torch.full_like(x, float("nan"))
    program = Program(SAVED)
    for name, value in module.state_dict().items():
        program.bind(name, value)
    program.bind("x", x)
    program.bind("y", y)
    stream = torch.cuda.current_stream().cuda_stream
    program.prepare(stream)

    oracle = source.Model().double().cuda()
    oracle.load_state_dict({k: v.double() for k, v in module.state_dict().items()})
    with torch.no_grad():
        program.run(stream)
        expected = torch.cat([oracle(part.double()) for part in x.split(16)])
        error = (y.double() - expected).abs()
        worst = error.max().item()
        beyond = (error > 1e-3 + 1e-3 * expected.abs()).sum().item()
        report("within 1e-3 of the float64 module", beyond == 0 and worst == worst, f"largest error {worst:.2e}, {beyond} beyond")
        del expected, error, oracle
        torch.cuda.empty_cache()

        def timed(call):
            flush.zero_()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            return begin.elapsed_time(end) * 1000

        flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        torch.backends.cuda.matmul.allow_tf32 = False
        ours, eager = [], []
        for i in range(35):
            x.normal_()
            a, b = timed(lambda: program.run(stream)), timed(lambda: module(x))
            if i >= 5:
                ours.append(a)
                eager.append(b)
        module_out = module(x)
        program.run(stream)
        torch.cuda.synchronize()
        report("the last timed contents agree with the float32 module", torch.allclose(y, module_out, atol=2e-3, rtol=2e-3),
               (y - module_out).abs().max().item())
    ours_us, eager_us = statistics.median(ours), statistics.median(eager)
    report(f"at least {TARGET:g}x PyTorch eager float32 by PyTorch's events", eager_us / ours_us >= TARGET,
           f"{eager_us / ours_us:.2f}x: eager {eager_us:.0f} us ({min(eager):.0f} to {max(eager):.0f}), program {ours_us:.0f} us "
           f"({min(ours):.0f} to {max(ours):.0f}), {torch.cuda.get_device_name()}, torch {torch.__version__}, 30 interleaved pairs")


def run_engine():
    done = subprocess.run([os.path.join(BUILD, "examples", "engine"), SAVED], capture_output=True, text=True, timeout=300)
    report("the C++ engine runs the saved program", done.returncode == 0, done.stdout + done.stderr)


def main():
    if not have_gpu():
        print("1..0 # SKIP no GPU")
        return 0
    run_loop()
    if os.path.exists(SAVED):
        run_engine()
        compare_with_torch()
    print(f"1..{len(results)}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: MIT
"""The Python binding on a GPU: memory and streams of PyTorch, a reference in PyTorch, a trace. Prints TAP.

Needs a GPU, and STITCH_LIBRARY or a build folder; what is about PyTorch needs torch.
"""

import ctypes
import json
import sys

from with_torch import context
import sim
import tap
import stitch

N = 1 << 20


def pytorch():
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise tap.Skip("PyTorch is not installed") from None
    if not torch.cuda.is_available():
        raise tap.Skip("PyTorch has no GPU")
    return torch


def test_memory_of_the_driver():
    with context() as ctx, stitch.Executor(ctx, sim.program(ctx, n=N)) as x:
        driver = sim.Driver("libcuda.so.1")
        a, b = sim.CudaArray(driver, sim.floats(N)), sim.DLPack(driver, sim.floats(N, 0.0))
        x.bind_all({"x": a, "y": b})
        x.prepare()
        for _ in range(10):
            x.run()
        assert list(b.read()) == [v * 2 + 1 for v in a.values]
        a.free()
        b.free()


def test_trace():
    with context() as ctx, stitch.Executor(ctx, sim.program(ctx, n=N)) as x:
        driver = sim.Driver("libcuda.so.1")
        a, b = sim.CudaArray(driver, sim.floats(N)), sim.CudaArray(driver, sim.floats(N))
        x.bind_all({"x": a, "y": b})
        x.prepare()
        try:
            trace = stitch.Trace(ctx)
        except (stitch.NoLibraryError, stitch.UnsupportedError, stitch.BusyError) as e:
            raise tap.Skip(e.message) from None
        with trace:
            with tap.raises(stitch.BusyError):
                stitch.Trace(ctx)
            with tap.raises(stitch.StateError):
                trace.summary
            for _ in range(5):
                x.run()
        s = trace.summary
        assert s.kernels == 5 and s.graph_launches == 5 and s.busy_us > 0 and s.has_calls, s
        assert (
            trace.kernels[0].name == "scale" and trace.kernels[0].count == 5 and trace.kernels[0].block == (128, 1, 1)
        )
        assert len(trace.records) == s.records and isinstance(trace.gaps, list) and isinstance(trace.copies, list)
        assert json.loads(trace.chrome_json()) == trace.chrome() and "scale" in trace.text()
        with tap.raises(stitch.StateError):
            trace.end()
        trace.close()


def test_torch_tensors_and_streams():
    torch = pytorch()
    with context() as ctx, stitch.Executor(ctx, sim.program(ctx, n=N)) as x:
        a = torch.nn.Parameter(torch.randn(N, device="cuda"))
        b = torch.zeros(N, device="cuda")
        for wrong, words in (
            (a.detach().cpu(), "CPU memory"),
            (a.detach().half(), "f16"),
            (torch.zeros(2 * N, device="cuda")[::2], "not contiguous"),
            (a.detach().view(2, -1), "shape"),
        ):
            with tap.raises(stitch.InvalidError, words):
                x.bind("x", wrong)
        x.bind_all({"x": a, "y": b})
        x.prepare()
        x.run()
        assert torch.equal(b, a * 2 + 1)
        # What is done before and after on the current stream is ordered with the run, however long it takes.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            with torch.no_grad():
                big = torch.randn(4096, 4096, device="cuda")
                for _ in range(20):
                    big = big @ big * 1e-3
                a.fill_(3.0)
            x.run()
            c = b.clone()
        side.synchronize()
        assert torch.all(c == 7.0)
        b.zero_()
        side.wait_stream(torch.cuda.current_stream())
        x.run(side)
        side.synchronize()
        assert torch.all(b == 7.0)


def test_reference_in_torch():
    torch = pytorch()
    seen = []

    def reference(stream, tensors):
        current = torch.cuda.ExternalStream(stream) if stream else torch.cuda.default_stream()
        with torch.cuda.stream(current):
            x, y = torch.from_dlpack(tensors["x"]), torch.from_dlpack(tensors["y"])
            y.copy_(x.double() * 2 + 1)
            seen.append((torch.as_tensor(tensors["x"], device="cuda").data_ptr() == tensors["x"].pointer, y.dtype))

    with context() as ctx:
        task = stitch.Task(ctx, "scale")
        task.set_dim("N", N)
        task.add_tensor("x", "f32", ["N"], "input")
        task.add_tensor("y", "f32", ["N"], "output")
        task.tolerance = (1e-5, 1e-5)
        task.set_reference(reference, "f64")
        for source, right in ((sim.SOURCE, True), (sim.WRONG, False)):
            report = stitch.verify(ctx, task, sim.program(ctx, source, N), last_stage="correct")
            assert report.correct == right, report.text
        assert seen and all(same and dtype == torch.float64 for same, dtype in seen)

        def broken(stream, tensors):
            raise ctypes.ArgumentError("from PyTorch's side")

        other = stitch.Task(ctx, "broken")
        other.set_dim("N", N)
        other.add_tensor("x", "f32", ["N"], "input")
        other.add_tensor("y", "f32", ["N"], "output")
        other.set_reference(broken)
        with tap.raises(ctypes.ArgumentError):
            stitch.verify(ctx, other, sim.program(ctx, n=N), last_stage="correct")


if __name__ == "__main__":
    tap.main(sys.modules[__name__])

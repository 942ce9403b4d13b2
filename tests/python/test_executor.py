# SPDX-License-Identifier: MIT
"""Executors on the simulated driver: memory from every protocol, what is refused, streams, threads, overhead-free
runs."""

import array
import contextlib
import ctypes
import sys
import threading
import types
import weakref
from ctypes import c_void_p

import sim
import tap
import stitch
from stitch import _dlpack

N = 256


@contextlib.contextmanager
def executor(driver, n=N, **options):
    with driver.stitch() as ctx:
        program = sim.program(ctx, n=n)
        made = stitch.Executor(ctx, program, **options)
        program.close()
        yield made


def expected(values):
    return [v * 2 + 1 for v in values]


def test_runs_on_memory_from_every_protocol():
    driver = sim.Driver()
    for kind in (sim.CudaArray, sim.DLPack):
        with executor(driver) as x:
            a, b = kind(driver, sim.floats(N)), kind(driver, sim.floats(N, 0.0))
            x.bind_all({"x": a, "y": b})
            x.prepare()
            x.run()
            assert list(b.read()) == expected(a.values), kind
            assert x.stats.launches == 1 and x.stats.workspace_bytes >= 0
            other = sim.floats(N, 5.0)
            c = sim.Memory(driver, other)
            x.bind("x", c.pointer, nbytes=c.nbytes)
            x()
            assert list(b.read()) == [11.0] * N
            x.bind("x", stitch.DevicePointer(a.pointer, a.nbytes, "f32", (N,), 0))
            x.run(0)
            assert list(b.read()) == expected(a.values)


def test_rebound_to_other_memory():
    """The short way that optimised modules go from one call to the next."""
    driver = sim.Driver()
    with executor(driver) as x:
        a, b = sim.CudaArray(driver, sim.floats(N)), sim.CudaArray(driver, sim.floats(N, 0.0))
        x.bind_all({"x": stitch.DevicePointer(a.pointer, a.nbytes), "y": stitch.DevicePointer(b.pointer, b.nbytes)})
        x.prepare()
        x.run()
        for value in (3.0, 5.0):
            other, to = sim.CudaArray(driver, sim.floats(N, value)), sim.CudaArray(driver, sim.floats(N, 0.0))
            x._rebind("x", other.pointer)
            x._rebind("y", to.pointer)
            x.run()
            assert list(to.read()) == expected(other.values) and list(b.read()) == expected(a.values)
        with tap.raises(stitch.InvalidError, "16"):
            x._rebind("x", a.pointer + 4)
        x.run()
        assert list(to.read()) == expected(other.values)


def test_dims():
    driver = sim.Driver()
    with executor(driver, dims={"N": 100}) as x:
        assert (
            x.interface.dims == {"N": 100}
            and x.interface["y"].shape == (100,)
            and x.interface["y"].shape_expr == ("N",)
        )
        a, b = sim.CudaArray(driver, sim.floats(100)), sim.CudaArray(driver, sim.floats(100, 0.0))
        x.bind_all({"x": a, "y": b})
        x.prepare()
        x.run()
        assert list(b.read()) == expected(a.values)
        x.set_dim("N", 300)
        assert x.interface["x"].nbytes == 1200
        with tap.raises(stitch.StitchError):
            x.prepare()  # what is bound is too small now


def test_refuses_what_does_not_fit():
    driver = sim.Driver()
    with executor(driver) as x:
        good = sim.floats(N)
        cases = [
            (sim.CudaArray(driver, array.array("d", [0.0] * N)), "f64", "needs f32"),
            (sim.CudaArray(driver, sim.floats(N // 2)), "shape [128]", "needs [256]"),
            (sim.CudaArray(driver, good, strides=(8,)), "not contiguous", "x"),
            (sim.CudaArray(driver, good, typestr=">f4"), "byte order", "x"),
            (sim.CudaArray(driver, good, typestr="<V2", shape=(N,)), "bytes", "x"),
            (sim.CudaArray(driver, good, mask=1), "mask", "x"),
            (stitch.DevicePointer(1 << 40, N * 4, device=3), "on device 3", "device 0"),
            (stitch.DevicePointer(1 << 40, N * 4, dtype="i32"), "i32", "f32"),
            (1 << 40, "without a size", "nbytes="),
        ]
        for memory, *words in cases:
            with tap.raises(stitch.InvalidError, *words):
                x.bind("x", memory)
        small = sim.Memory(driver, sim.floats(8))
        with tap.raises(stitch.InvalidError, "bytes"):
            x.bind("x", small.pointer, nbytes=small.nbytes)
        with tap.raises(stitch.InvalidError, "16"):
            x.bind("x", small.pointer + 4, nbytes=N * 4)
        cpu = sim.DLPack(driver, good)
        cpu.device = (1, 0)
        with tap.raises(stitch.InvalidError, "CPU memory", "'x'"):
            x.bind("x", cpu)
        half = sim.DLPack(driver, good)
        half.dtype = stitch.Dtype.BF16
        with tap.raises(stitch.InvalidError, "bf16"):
            x.bind("x", half)
        elsewhere = sim.DLPack(driver, good)
        elsewhere.device = (2, 1)
        with tap.raises(stitch.InvalidError, "on device 1"):
            x.bind("x", elsewhere)
        read_only = sim.CudaArray(driver, good)
        read_only.facts["data"] = (read_only.pointer, True)
        x.bind("x", read_only)
        with tap.raises(stitch.InvalidError, "read-only"):
            x.bind("y", read_only)
        for wrong in (good, b"bytes", "text", None, 1.5, True):
            with tap.raises(TypeError, "neither __dlpack__ nor __cuda_array_interface__", "'x'"):
                x.bind("x", wrong)
        with tap.raises(stitch.NotFoundError, "there are x, y"):
            x.bind("z", read_only)
        with tap.raises(stitch.StateError):
            x.run()
        with tap.raises(stitch.StitchError, "y"):
            x.prepare()
        with tap.raises(TypeError, "cuda_stream"):
            x.run("stream")


def test_numpy_arrays_are_refused_with_a_reason():
    numpy = tap.numpy()
    driver = sim.Driver()
    with executor(driver) as x:
        with tap.raises((stitch.InvalidError, TypeError), "CPU memory"):
            x.bind("x", numpy.zeros(N, numpy.float32))
    with sim.context("none") as ctx:
        task = stitch.Task(ctx, "t")
        task.set_dim("N", 4)
        task.add_tensor("w", "f32", ["N"], "weight")
        task.set_data("w", numpy.arange(4, dtype=numpy.float32))
        with tap.raises(stitch.InvalidError, "not contiguous"):
            task.set_data("w", numpy.zeros((4, 2), numpy.float32)[:, 0])


def test_versioned_capsules():
    driver = sim.Driver()

    class Versioned(sim.DLPack):
        flags, major = 1, 1

        def __dlpack__(self, stream=None):
            self.managed = _dlpack.DLManagedTensorVersioned(self.major, 0, None, _dlpack._DELETER(), self.flags)
            self.extents = (ctypes.c_int64 * 1)(len(self.values))
            t = self.managed.tensor
            t.data, t.device_type, t.ndim, t.code, t.bits, t.lanes, t.shape, t.byte_offset = (
                self.pointer - 16,
                2,
                1,
                2,
                32,
                1,
                self.extents,
                16,
            )
            return ctypes.pythonapi.PyCapsule_New(ctypes.addressof(self.managed), b"dltensor_versioned", None)

    with executor(driver) as x:
        a = Versioned(driver, sim.floats(N))
        x.bind("x", a)
        with tap.raises(stitch.InvalidError, "read-only"):
            x.bind("y", a)
        b = Versioned(driver, sim.floats(N, 0.0))
        b.flags = 0
        x.bind("y", b)
        x.prepare()
        x.run()
        assert list(b.read()) == expected(a.values)
        b.major = 2
        with tap.raises(TypeError, "version 2"):
            x.bind("y", b)


def test_own_capsules():
    seen = _dlpack.read(_dlpack.export(4096, stitch.Dtype.F16, (2, 3), 5), None)
    assert (seen.pointer, seen.dtype, seen.shape, seen.nbytes, seen.device, seen.contiguous) == (
        4096,
        "f16",
        (2, 3),
        12,
        5,
        True,
    )
    seen = _dlpack.read(_dlpack.export(8192, stitch.Dtype.BOOL, (), 0), None)
    assert (seen.pointer, seen.dtype, seen.shape, seen.nbytes) == (8192, "bool", (), 1)

    class Consumer:
        """Takes a tensor over as torch.from_dlpack() does: renames the capsule, calls the deleter when it goes."""

        def __init__(self, capsule):
            self.managed = ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor")
            ctypes.pythonapi.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
            ctypes.pythonapi.PyCapsule_SetName(capsule, USED)

        def __del__(self):
            ctypes.cast(self.managed, ctypes.POINTER(_dlpack.DLManagedTensor)).contents.deleter(self.managed)

    for make in (
        lambda: Consumer(_dlpack.export(4096, stitch.Dtype.F32, (2,), 0)),
        lambda: _dlpack.export(4096, stitch.Dtype.F32, (2,), 0),
    ):
        with tap.raises(ValueError, "invalid literal"):  # goes while an exception is under way
            [make(), int("x")]


USED = b"used_dltensor"


def test_bound_memory_stays_referenced():
    driver = sim.Driver()
    with executor(driver) as x:
        a = sim.CudaArray(driver, sim.floats(N))
        gone = weakref.ref(a)
        x.bind("x", a)
        del a
        assert gone() is not None
        x.bind("x", sim.CudaArray(driver, sim.floats(N)))
        assert gone() is None


def test_streams():
    driver = sim.Driver()
    stream = c_void_p()
    driver("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))
    with executor(driver) as x:
        a, b = sim.CudaArray(driver, sim.floats(N)), sim.CudaArray(driver, sim.floats(N, 0.0))
        x.bind_all({"x": a, "y": b})
        x.prepare(stream.value)
        for given in (
            stream.value,
            types.SimpleNamespace(cuda_stream=stream.value),
            types.SimpleNamespace(ptr=stream.value),
            types.SimpleNamespace(__cuda_stream__=lambda: (0, stream.value)),
        ):
            driver.write(b.pointer, sim.floats(N, 0.0))
            x.run(given)
            assert list(b.read()) == expected(a.values)


def test_torch_tensors_and_their_current_stream():
    """A stand-in for torch with what is used of it: it is not imported, and need not be installed."""
    if "torch" in sys.modules:
        raise tap.Skip("the real torch is loaded")
    driver = sim.Driver()
    asked = []

    class Tensor(sim.Memory):
        dtype, requires_grad = "torch.float32", True
        device = types.SimpleNamespace(type="cuda", index=0)
        shape = (N,)

        def data_ptr(self):
            return self.pointer

        def numel(self):
            return len(self.values)

        def element_size(self):
            return 4

        def is_contiguous(self):
            return True

    def current(device):
        asked.append(device)
        return 0

    sys.modules["torch"] = types.SimpleNamespace(
        Tensor=Tensor, _C=types.SimpleNamespace(_cuda_getCurrentRawStream=current)
    )
    try:
        with executor(driver) as x:
            a, b = Tensor(driver, sim.floats(N)), Tensor(driver, sim.floats(N, 0.0))
            x.bind_all({"x": a, "y": b})
            x.prepare()
            x.run()
            assert list(b.read()) == expected(a.values) and asked == [0, 0]
            x.run(0)
            assert asked == [0, 0]
            a.device = types.SimpleNamespace(type="cpu", index=None)
            with tap.raises(stitch.InvalidError, "CPU memory", ".cuda()"):
                x.bind("x", a)
            x.bind("x", sim.CudaArray(driver, sim.floats(N)))
            x.run()
            assert asked == [0, 0, 0]  # y is still one of torch's
            x.bind("y", sim.CudaArray(driver, sim.floats(N)))
            x.run()
            assert asked == [0, 0, 0]
    finally:
        del sys.modules["torch"]


def test_host_operators():
    driver = sim.Driver()
    plan = dict(
        sim.PLAN, run=[*sim.PLAN["run"], {"op": {"name": "note", "args": ["y", {"i32": "N"}], "attrs": {"k": [1]}}}]
    )
    calls = []

    def note(stream, args, attrs):
        calls.append((stream, args, attrs))
        if len(calls) > 1:
            raise KeyError("the operator is unhappy")

    with driver.stitch() as ctx:
        program = stitch.Program.parse(ctx, sim.SOURCE, plan)
        program.validate(sim.interface())
        with tap.raises(stitch.StitchError, "note"):
            a = stitch.Executor(ctx, program)
            a.bind_all({"x": sim.CudaArray(driver, sim.floats(N)), "y": sim.CudaArray(driver, sim.floats(N))})
            a.prepare()
        x = stitch.Executor(ctx, program, ops={"note": note}, no_graph=True)
        y = sim.CudaArray(driver, sim.floats(N, 0.0))
        x.bind_all({"x": sim.CudaArray(driver, sim.floats(N)), "y": y})
        with tap.raises(KeyError, "unhappy"):
            x.prepare()
            for _ in range(3):
                x.run()
        stream, args, attrs = calls[0]
        assert isinstance(stream, int) and attrs == {"k": [1]}
        assert (
            args[0].is_pointer
            and args[0].pointer == y.pointer
            and args[0].nbytes == 4 * N
            and not args[1].is_pointer
            and args[1].value == N
        )


def test_closed_and_shared_handles():
    driver = sim.Driver()
    with executor(driver) as x:
        x.close()
        x.close()
        for use in (x.run, lambda: x.stats, lambda: x.bind("x", 1 << 20, nbytes=1024), x.prepare, x.__enter__):
            with tap.raises(stitch.StateError, "closed"):
                use()
    with driver.stitch() as ctx:
        program = sim.program(ctx)
        ctx.close()
        assert program.closed
        with tap.raises(stitch.StateError, "closed"):
            stitch.Executor(ctx, program)


def test_no_run_while_another_call_uses_it():
    driver = sim.Driver()
    with executor(driver) as x:
        x.bind_all({"x": sim.CudaArray(driver, sim.floats(N)), "y": sim.CudaArray(driver, sim.floats(N))})
        x.prepare()
        caught = []

        def run():
            driver.enter()
            try:
                x.run()
            except stitch.BusyError as e:
                caught.append(e)

        x._begin()  # as in prepare()
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        x._end()
        run()
        assert len(caught) == 1 and "in use" not in str(caught[0])


def test_threads_with_an_executor_each():
    driver = sim.Driver()
    failures = []
    with driver.stitch() as ctx:
        program = sim.program(ctx)
        program.compile()

        def work(seed):
            try:
                driver.enter()
                mine = stitch.Program.from_bytes(ctx, saved)
                with stitch.Executor(ctx, mine) as x:
                    a, b = sim.CudaArray(driver, sim.floats(N, float(seed))), sim.CudaArray(driver, sim.floats(N, 0.0))
                    x.bind_all({"x": a, "y": b})
                    x.prepare()
                    for _ in range(20):
                        x.run()
                    assert list(b.read()) == [seed * 2 + 1] * N
            except BaseException as e:  # pylint: disable=broad-except
                failures.append(e)

        saved = program.to_bytes()
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures


def test_a_run_allocates_nothing_that_stays():
    import tracemalloc

    driver = sim.Driver()
    with executor(driver, n=32) as x:
        x.bind_all({"x": sim.CudaArray(driver, sim.floats(32)), "y": sim.CudaArray(driver, sim.floats(32))})
        x.prepare()
        for _ in range(20):
            x.run()
        tracemalloc.start()
        x.run()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            x.run()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert grown < 1024, grown


if __name__ == "__main__":
    tap.main(sys.modules[__name__])

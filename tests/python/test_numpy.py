# SPDX-License-Identifier: MIT
"""NumPy beside the library, on the simulator: tasks whose reference is a Python function that computes in NumPy, and
programs that run on arrays' own memory."""

import sys
from ctypes import byref, c_char, c_size_t, c_uint, c_void_p

import sim
import tap
import stitch

ROWS, COLUMNS, PICKED = 48, 40, 33
# Softmax of some rows, a warp for each.
SOURCE = """#include <cuda_fp16.h>
extern "C" __global__ void pick(const __half *x, const int *rows, const float *scale, float *y, int n, int c)
{
    int i = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (i >= n)
        return;
    const __half *from = x + rows[i] * c;
    float most = -1e30f, sum = 0.0f;
    for (int k = lane; k < c; k += 32)
        most = fmaxf(most, __half2float(from[k]) * scale[k]);
    for (int step = 16; step > 0; step /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    for (int k = lane; k < c; k += 32)
        sum += expf(__half2float(from[k]) * scale[k] - most);
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    for (int k = lane; k < c; k += 32)
        y[i * c + k] = expf(__half2float(from[k]) * scale[k] - most) / sum;
}
"""
PLAN = {
    "stitch": 1,
    "run": [
        {
            "kernel": "pick",
            "grid": ["ceil_div(M,4)"],
            "block": [128],
            "args": ["x", "rows", "scale", "y", {"i32": "M"}, {"i32": "C"}],
        }
    ],
}
WRONG = {
    "a column too few in the sum": ("k < c; k += 32)\n        sum", "k < c - 1; k += 32)\n        sum"),
    "the row before": ("rows[i] * c", "max(rows[i] - 1, 0) * c"),
    "the last row is left out": ("i >= n", "i >= n - 1"),
    "a scale for each row": ("scale[k] - most) / sum", "scale[i % c] - most) / sum"),
}


def array_of(numpy, tensor):
    """What a tensor of a callback holds, as an array."""
    array = numpy.empty(tensor.shape, tensor.__cuda_array_interface__["typestr"])
    assert tensor.read(into=array) == b""
    return array


def reference_in(numpy, seen):
    def reference(stream, tensors):
        x, rows, scale = (array_of(numpy, tensors[name]) for name in ("x", "rows", "scale"))
        assert (x.dtype, rows.dtype, scale.dtype) == (numpy.float16, numpy.int32, numpy.float32)
        z = x.astype(numpy.float64)[rows] * scale
        e = numpy.exp(z - z.max(axis=1, keepdims=True))
        y = e / e.sum(axis=1, keepdims=True)
        assert tensors["y"].dtype == stitch.Dtype.F64 and y.dtype == numpy.float64 and y.shape == tensors["y"].shape
        tensors["y"].write(y)
        seen.append((x, rows, scale, y))

    return reference


def pick_task(ctx, numpy, reference):
    task = stitch.Task(ctx, "pick")
    for name, value in (("N", ROWS), ("C", COLUMNS), ("M", PICKED)):
        task.set_dim(name, value)
    task.add_tensor("x", "f16", ["N", "C"], "input", stitch.Dist("normal", 0, 2))
    task.add_tensor("rows", "i32", ["M"], "input", stitch.Dist("randint", 0, ROWS))
    task.add_tensor("scale", "f32", ["C"], "weight")
    task.add_tensor("y", "f32", ["M", "C"], "output")
    task.set_data("scale", numpy.linspace(0.5, 1.5, COLUMNS, dtype=numpy.float32))
    task.tolerance = (1e-6, 1e-5)
    task.set_reference(reference, "f64")
    return task


def test_a_reference_that_computes_in_numpy():
    numpy, seen = tap.numpy(), []
    with sim.context() as ctx:
        task = pick_task(ctx, numpy, reference_in(numpy, seen))
        program = stitch.Program.parse(ctx, SOURCE, PLAN)
        report = stitch.verify(ctx, task, program, last_stage="exploit")
        assert report.correct and report.summary.elements >= PICKED * COLUMNS, report.text
        for where, (old, new) in WRONG.items():
            assert SOURCE.count(old) == 1, where
            with stitch.Program.parse(ctx, SOURCE.replace(old, new), PLAN) as wrong:
                report = stitch.verify(ctx, task, wrong, last_stage="correct")
                s = report.summary
                assert not report.correct and s.failed_stage == stitch.Stage.CORRECT, (where, report.text)
    # The inputs were drawn anew, with the task's weights and within its distributions.
    x, rows, scale, y = seen[0]
    assert len(seen) > 5 and not numpy.array_equal(x, seen[1][0]) and not numpy.array_equal(rows, seen[1][1])
    assert rows.min() >= 0 and rows.max() < ROWS and 1 < x.astype(numpy.float32).std() < 3
    assert numpy.array_equal(scale, numpy.linspace(0.5, 1.5, COLUMNS, dtype=numpy.float32))
    assert numpy.allclose(y.sum(axis=1), 1)


def test_a_reference_in_numpy_that_fails():
    numpy = tap.numpy()

    def reference(stream, tensors):
        tensors["y"].write(array_of(numpy, tensors["x"]) @ numpy.ones((3, 3)))

    with sim.context() as ctx:
        task = pick_task(ctx, numpy, reference)
        with tap.raises(ValueError, "matmul"):
            stitch.verify(ctx, task, stitch.Program.parse(ctx, SOURCE, PLAN), last_stage="correct")


def test_arrays_that_are_read_into_and_written_from():
    numpy, seen = tap.numpy(), []

    def reference(stream, tensors):
        x, y = tensors["x"], tensors["y"]
        for refused in (numpy.empty((COLUMNS, ROWS), numpy.float16).T, numpy.empty((ROWS, 2 * COLUMNS), numpy.float16)[:, ::2]):
            with tap.raises(stitch.InvalidError, "not contiguous"):
                x.read(into=refused)
        fixed = numpy.zeros(x.shape, numpy.float16)
        fixed.flags.writeable = False
        with tap.raises(stitch.InvalidError, "read-only"):
            x.read(into=fixed)
        with tap.raises(stitch.InvalidError, "x is f16", "another type"):
            x.read(into=numpy.empty(x.shape, numpy.float32))
        with tap.raises(stitch.InvalidError, "not contiguous"):
            y.write(numpy.zeros((COLUMNS, PICKED)).T)
        with tap.raises(stitch.InvalidError, "another type"):
            y.write(numpy.zeros(y.shape, numpy.complex128))
        shaped = numpy.frombuffer(x.read(), numpy.float16).reshape(x.shape)  # bytes: a copy that is read-only
        assert numpy.array_equal(shaped, array_of(numpy, x)) and not shaped.flags.writeable
        result = numpy.full(y.shape, 1 / COLUMNS)
        result.flags.writeable = False
        y.write(result)
        seen.append(array_of(numpy, y))

    with sim.context() as ctx:
        task = pick_task(ctx, numpy, reference)
        assert not stitch.verify(ctx, task, stitch.Program.parse(ctx, SOURCE, PLAN), last_stage="correct").correct
    assert numpy.array_equal(seen[0], numpy.full((PICKED, COLUMNS), 1 / COLUMNS))


class Pinned:
    """An array in host memory that the device addresses, too: what NumPy says of it, by CUDA's name."""

    def __init__(self, numpy, driver, values):
        self.driver, self.pointer = driver, c_void_p()
        driver("cuMemHostAlloc", byref(self.pointer), c_size_t(values.nbytes), c_uint(2))
        memory = (c_char * values.nbytes).from_address(self.pointer.value)
        self.array = numpy.frombuffer(memory, values.dtype).reshape(values.shape)
        self.array[...] = values

    @property
    def __cuda_array_interface__(self):
        return self.array.__array_interface__

    def free(self):
        self.driver("cuMemFreeHost", self.pointer)


class Told:
    """The interface alone, of an array that is refused before its memory is looked at."""

    def __init__(self, array):
        self.array, self.__cuda_array_interface__ = array, array.__array_interface__


def test_a_program_on_the_memory_of_arrays():
    """Nothing is copied: what is written into the arrays is what the next run reads."""
    numpy, driver = tap.numpy(), sim.Driver()
    draw = numpy.random.default_rng(7)
    with driver.stitch() as ctx:
        task = pick_task(ctx, numpy, lambda stream, tensors: None)
        program = stitch.Program.parse(ctx, SOURCE, PLAN)
        program.validate(task)
        values = {
            "x": draw.normal(size=(ROWS, COLUMNS)).astype(numpy.float16),
            "rows": draw.integers(0, ROWS, PICKED, dtype=numpy.int32),
            "scale": numpy.linspace(0.5, 1.5, COLUMNS, dtype=numpy.float32),
            "y": numpy.full((PICKED, COLUMNS), numpy.nan, numpy.float32),
        }
        memory = {name: Pinned(numpy, driver, array) for name, array in values.items()}
        x, rows, scale, y = (memory[name].array for name in values)
        with stitch.Executor(ctx, program) as executor:
            executor.bind_all(memory)
            executor.prepare()
            for change in (lambda: None, lambda: numpy.negative(x, out=x), lambda: rows.sort()):
                change()
                executor.run()
                driver.synchronise()
                z = x.astype(numpy.float64)[rows] * scale
                e = numpy.exp(z - z.max(axis=1, keepdims=True))
                assert numpy.allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)
            refused = [
                (x.astype(numpy.float32), "f32", "f16"),
                (x[: ROWS // 2], f"[{ROWS // 2}, {COLUMNS}]", "shape"),
                (x[:, ::-1], "not contiguous", "x"),
                (x.astype(">f2"), "byte order", "x"),
            ]
            for array, *words in refused:
                with tap.raises(stitch.InvalidError, *words):
                    executor.bind("x", Told(array))
            y.flags.writeable = False
            with tap.raises(stitch.InvalidError, "read-only"):
                executor.bind("y", memory["y"])
        for pinned in memory.values():
            pinned.free()


if __name__ == "__main__":
    tap.main(sys.modules[__name__])

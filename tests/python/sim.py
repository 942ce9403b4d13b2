# SPDX-License-Identifier: MIT
"""What the tests of the binding share: contexts on the simulator, its memory, a vector program."""

import array
import ctypes
import os
import tempfile
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

import tap
import stitch

CACHE = os.path.join(tempfile.gettempdir(), f"stitch-python-{os.getuid()}")
EXAMPLES = os.path.join(tap.CHECKOUT, "examples")
SOURCE = """extern "C" __global__ void scale(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] * 2.0f + 1.0f;
}
"""
PLAN = {
    "stitch": 1,
    "run": [{"kernel": "scale", "grid": ["ceil_div(N,128)"], "block": [128], "args": ["x", "y", {"i32": "N"}]}],
}
WRONG = SOURCE.replace("2.0f", "3.0f")


def context(device="sim:sm_90a", **options):
    return stitch.Context(device, cache_dir=CACHE, **options)


def interface(n=256):
    return stitch.Interface(
        {"N": n}, (stitch.Tensor.make("x", "f32", ["N"], "input"), stitch.Tensor.make("y", "f32", ["N"], "output"))
    )


def program(ctx, source=SOURCE, n=256):
    made = stitch.Program.parse(ctx, source, PLAN)
    made.validate(interface(n))
    return made


class Driver:
    """The simulated driver as a library of its own, in place of libcuda, as an application would use it beside
    libstitch."""

    def __init__(self, path=None):
        path = path or os.environ.get("STITCH_TEST_SIM")
        if not path:
            raise tap.Skip("the library was built without the simulated driver (STITCH_TEST_SIM)")
        self.library = ctypes.CDLL(path)
        self("cuInit", c_uint(0))
        self.context = c_void_p()
        self("cuDevicePrimaryCtxRetain", byref(self.context), c_int(0))
        self("cuCtxSetCurrent", self.context)

    def __call__(self, name, *args):
        result = getattr(self.library, name)(*args)
        assert result == 0, f"{name}: {result}"

    def get_proc(self, name):
        try:
            return ctypes.cast(getattr(self.library, name), c_void_p).value
        except AttributeError:
            return None

    def stitch(self, **options):
        """A context of libstitch that uses this driver."""
        return context("cuda:0", get_proc=self.get_proc, **options)

    def enter(self):
        """Makes the context current in another thread."""
        self("cuCtxSetCurrent", self.context)

    def write(self, pointer, values):
        data = values.tobytes()
        self("cuMemcpyHtoD_v2", c_uint64(pointer), c_char_p(data), c_size_t(len(data)))

    def read(self, pointer, count, code="f"):
        values = array.array(code, bytes(array.array(code).itemsize * count))
        at, _ = values.buffer_info()
        self("cuMemcpyDtoH_v2", c_void_p(at), c_uint64(pointer), c_size_t(values.itemsize * count))
        return values

    def synchronise(self):
        self("cuCtxSynchronize")


class Memory:
    """Device memory that shows itself through the protocols that `protocols` names."""

    def __init__(self, driver, values, **changed):
        self.driver, self.values = driver, values
        at = c_uint64()
        driver("cuMemAlloc_v2", byref(at), c_size_t(max(1, len(values) * values.itemsize)))
        self.pointer = at.value
        driver.write(self.pointer, values)
        self.nbytes = len(values) * values.itemsize
        self.facts = {
            "shape": (len(values),),
            "typestr": {"f": "<f4", "d": "<f8", "h": "<i2"}[values.typecode],
            "data": (self.pointer, False),
            "version": 3,
            "strides": None,
            **changed,
        }

    def read(self):
        self.driver.synchronise()
        return self.driver.read(self.pointer, len(self.values), self.values.typecode)

    def free(self):
        self.driver("cuMemFree_v2", c_uint64(self.pointer))


class CudaArray(Memory):
    @property
    def __cuda_array_interface__(self):
        return self.facts


class DLPack(Memory):
    """Through DLPack: the capsule is one that the package makes for its own tensors."""

    device = (2, 0)
    dtype = stitch.Dtype.F32
    shape = None

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        from stitch import _dlpack

        assert stream == -1
        return _dlpack.export(self.pointer, self.dtype, self.shape or (len(self.values),), self.device[1])


def floats(count, value=None):
    return array.array("f", [float(i % 97) if value is None else value for i in range(count)])

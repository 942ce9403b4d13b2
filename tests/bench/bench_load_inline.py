# SPDX-License-Identifier: MIT
"""From source text to something that runs: PyTorch's load_inline against a whole verification by libstitch, on the same kernel, in one run.

Needs a GPU, torch, nvcc, and a build folder (STITCH_BUILD, default build). Prints a table; load_inline is timed once a variant since each takes most of
a minute (every source is new, so nothing is cached), the verification by bench_verify's medians.
"""
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("STITCH_BUILD", os.path.join(ROOT, "build"))
KERNEL = """
__global__ void k(const float *x, const float *z, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = fmaf(2.0f, x[i], z[i]);
}
torch::Tensor scale_add(torch::Tensor x, torch::Tensor z)
{
    auto y = torch::empty_like(x);
    int n = (int)x.numel();
    k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), z.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    try:
        import torch
        from torch.utils.cpp_extension import load_inline
    except ImportError as error:
        print(f"needs torch: {error}")
        return 77
    if not torch.cuda.is_available():
        print("needs a GPU")
        return 77
    inline = []
    for i in range(repeats):
        os.environ["TORCH_EXTENSIONS_DIR"] = tempfile.mkdtemp()
        os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
        began = time.perf_counter()
        module = load_inline(name=f"scale_add_{i}", cpp_sources="torch::Tensor scale_add(torch::Tensor x, torch::Tensor z);",
                             cuda_sources=f"// {i}\n" + KERNEL, functions=["scale_add"])
        inline.append(time.perf_counter() - began)
        x = torch.randn(1 << 20, device="cuda")
        assert torch.allclose(module.scale_add(x, x), 3 * x)
    print(f"load_inline alone             {min(inline) * 1e3:9.0f} ms  (to {max(inline) * 1e3:.0f}, {repeats} samples)")
    done = subprocess.run([os.path.join(BUILD, "tests", "bench", "bench_verify")], capture_output=True, text=True)
    print(done.stdout.split("\nlast cold run")[0] + done.stderr)
    for line in done.stdout.splitlines():
        if line.startswith("new"):
            ours = float(line[28:].split()[0])
            print(f"load_inline alone / whole verification of a new candidate: {min(inline) * 1e3 / ours:.0f} x")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

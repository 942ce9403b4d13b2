# SPDX-License-Identifier: MIT
"""Prints the folder(s) that hold cuda.h, nvrtc.h and cublasLt.h, one a line; exits 1 where there are none.

Only headers are needed to build: every NVIDIA library is opened at run time. Searched: the argument, CUDA_HOME,
CUDA_PATH, /usr/local/cuda*, nvcc's own folder, and the Python wheels (nvidia.*) of the interpreter that runs this (pip's
isolated build environments are only on its path) and of the virtual environment named by VIRTUAL_ENV.
"""
import glob
import os
import shutil
import site
import sys

# The last two are included by the third; wheels keep them apart.
NEEDED = ("cuda.h", "nvrtc.h", "cublasLt.h", "crt/host_defines.h", "nv/target")


def candidates():
    if len(sys.argv) > 1 and sys.argv[1]:
        yield sys.argv[1]
    for variable in ("STITCH_CUDA_PATH", "CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield os.path.join(os.environ[variable], "include")
    yield "/usr/local/cuda/include"
    yield from sorted(glob.glob("/usr/local/cuda-*/include"), reverse=True)
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "include")
    yield "/usr/include"
    roots = site.getsitepackages() + [site.getusersitepackages()] + [path for path in sys.path if path.endswith("-packages")]
    if os.environ.get("VIRTUAL_ENV"):
        roots += glob.glob(os.path.join(os.environ["VIRTUAL_ENV"], "lib", "python3*", "site-packages"))
    for root in roots:
        yield from sorted(glob.glob(os.path.join(root, "nvidia", "*", "include")))


def main():
    found, missing = [], set(NEEDED)
    for folder in candidates():
        here = {name for name in missing if os.path.isfile(os.path.join(folder, name))}
        if here:
            found.append(folder)
            missing -= here
        if not missing:
            print("\n".join(found))
            return 0
    print("not found: " + ", ".join(sorted(missing)), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: MIT
"""Programs as the sources of one PyTorch extension whose function takes inputs and outputs, for flashinfer-bench.

Each program is one C++ file of _export.py with names of its own; main.cpp picks the one for the shapes that it is
called with. The builder links with no library of CUDA: what is needed is looked up when the extension is loaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import List, Mapping, Sequence, Tuple

from ._export import to_cpp
from ._interface import Dtype, Interface, TensorRole, Tensor
from ._errors import UnsupportedError

ENTRY = ("main.cpp", "run")
_NAMES = ("error", "open", "workspace", "prepare", "run")
_TYPES = {
    Dtype.F64: "at::kDouble",
    Dtype.F32: "at::kFloat",
    Dtype.TF32: "at::kFloat",
    Dtype.F16: "at::kHalf",
    Dtype.BF16: "at::kBFloat16",
    Dtype.F8E4M3: "at::kFloat8_e4m3fn",
    Dtype.F8E5M2: "at::kFloat8_e5m2",
    Dtype.I64: "at::kLong",
    Dtype.I32: "at::kInt",
    Dtype.I16: "at::kShort",
    Dtype.I8: "at::kChar",
    Dtype.U8: "at::kByte",
    Dtype.BOOL: "at::kBool",
}

_LATE = r"""#include <cstdlib>
#include <dlfcn.h>
#include <cuda.h>
#include <nvrtc.h>
#if STITCHED_GEMMS
#include <cublasLt.h>
#endif

/* Functions of CUDA's libraries, which the extension is not linked with. */
#define STITCHED_TEXT_(x) #x
#define STITCHED_TEXT(x) STITCHED_TEXT_(x)

namespace stitched_late {

static const char *missing;

static inline void *library(const char *name, bool toolkit)
{
    const char *homes[] = {std::getenv("CUDA_HOME"), std::getenv("CUDA_PATH"), "/usr/local/cuda"};
    std::string versioned = std::string(name) + "." + std::to_string(toolkit ? CUDA_VERSION / 1000 : 1);
    void *found = dlopen(versioned.c_str(), RTLD_NOW);
    for (int i = 0; toolkit && !found && i < 3; i++)
        if (homes[i])
            found = dlopen((std::string(homes[i]) + "/lib64/" + versioned).c_str(), RTLD_NOW);
    return found;
}

static inline void *symbol(const char *name, const char *file, bool toolkit)
{
    void *from = library(file, toolkit), *found = from ? dlsym(from, name) : nullptr;
    if (!found)
        missing = name;
    return found;
}

"""

_MAIN = r"""#include <torch/extension.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

{declarations}
namespace {

struct program {
    const char *(*missing)(void);
    const char *(*error)(void);
    int (*open)(const char *const *, int);
    unsigned long long (*workspace)(void);
    int (*prepare)(void *const *, void *, CUstream);
    int (*run)(void *const *, void *, CUstream);
    at::Tensor *memory; /* never freed: it may not outlive the device's context */
    int device;
};

program programs[] = {
{programs}
};
std::mutex turn;

bool fits(const at::Tensor &tensor, at::ScalarType type, const std::vector<int64_t> &shape)
{
    return tensor.is_cuda() && tensor.scalar_type() == type && tensor.sizes() == at::IntArrayRef(shape);
}

void open(program &p, void *const *tensors, int device, CUstream stream)
{
    const char *homes[] = {std::getenv("CUDA_HOME"), std::getenv("CUDA_PATH"), "/usr/local/cuda"};
    std::vector<std::string> texts;
    std::vector<const char *> folders;
    for (const char *home : homes)
        if (home) {
            texts.push_back(std::string(home) + "/include");
            texts.push_back(std::string(home) + "/include/cccl");
        }
    for (const std::string &text : texts)
        folders.push_back(text.c_str());
    TORCH_CHECK(!p.missing(), "no library of CUDA has ", p.missing());
    TORCH_CHECK(p.open(folders.data(), (int)folders.size()) == 0, p.error());
    at::Tensor memory = at::empty({(int64_t)p.workspace() + 256}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA, device));
    int64_t skipped = (256 - (int64_t)((uintptr_t)memory.data_ptr() % 256)) % 256;
    memory = memory.narrow(0, skipped, memory.size(0) - skipped);
    TORCH_CHECK(p.prepare(tensors, memory.data_ptr(), stream) == 0, p.error());
    p.memory = new at::Tensor(memory);
    p.device = device;
}

void start(program &p, const std::vector<at::Tensor> &tensors)
{
    const int device = (int)tensors.back().get_device();
    std::vector<void *> addresses;
    for (const at::Tensor &tensor : tensors) {
        TORCH_CHECK(tensor.get_device() == device, "the tensors are not on one device");
        addresses.push_back(tensor.data_ptr());
    }
    std::lock_guard<std::mutex> lock(turn);
    c10::cuda::CUDAGuard guard((c10::DeviceIndex)device);
    CUstream stream = (CUstream)c10::cuda::getCurrentCUDAStream((c10::DeviceIndex)device).stream();
    TORCH_CHECK(!p.memory || p.device == device, "this process has the program on device ", p.device, " already");
    if (!p.memory)
        open(p, addresses.data(), device, stream);
    TORCH_CHECK(p.run(addresses.data(), p.memory->data_ptr(), stream) == 0, p.error());
}

at::Tensor dense(const at::Tensor &tensor) { return tensor.contiguous(); }

} // namespace

void run({parameters})
{
{dense}{checks}    TORCH_CHECK(false, "{refusal}");
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


@dataclass(frozen=True)
class Variant:
    """A program for one set of shapes. scalars: the numbers that it was verified with, by the definition's names;
    names: of the definition's tensors in the task."""

    source: str
    plan: Mapping[str, object]
    interface: Interface
    scalars: Mapping[str, object]
    names: Mapping[str, str]


def _late(cpp: str, index: int) -> str:
    """What goes before a program's text, so that it needs no library when it is linked."""
    lines = []
    cpp = re.sub(r'R"(stitched_*)\(.*?\)\1"', "", cpp, flags=re.S)  # device code, which may have such names of its own
    names = sorted(set(re.findall(r"\b(?:cu[A-Z]|nvrtc[A-Z]|cublasLt[A-Z])\w+(?=\()", cpp)))
    if "#define STITCHED_GEMMS 1" not in cpp:
        names = [name for name in names if not name.startswith("cublasLt")]
    for name in names:
        file = {"n": "libnvrtc.so", "b": "libcublasLt.so"}.get(name[0] if name[0] == "n" else name[2], "libcuda.so")
        toolkit = "false" if file == "libcuda.so" else "true"
        lines.append(
            f"static const auto late_{name} =\n    reinterpret_cast<decltype(&{name})>(symbol(STITCHED_TEXT({name}), "
            f'"{file}", {toolkit}));'
        )
    lines.append("\n} // namespace stitched_late\n")
    for name in names:
        lines += [f"#undef {name}", f"#define {name} stitched_late::late_{name}"]
    for name in _NAMES:
        lines.append(f"#define stitched_{name} stitched_{name}_{index}")
    lines.append(f'extern "C" const char *stitched_missing_{index}(void) {{ return stitched_late::missing; }}\n')
    return _LATE + "\n".join(lines) + "\n"


def _file(variant: Variant, index: int) -> str:
    cpp = to_cpp(variant.source, variant.plan, variant.interface)
    first, rest = cpp.split("\n", 1)  # #define STITCHED_GEMMS
    return f"{first}\n#include <string>\n{_late(cpp, index)}{rest}"


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value}LL" if isinstance(value, int) else repr(value)


def _check(variant: Variant, index: int, inputs: Sequence[str], outputs: Sequence[str]) -> Tuple[str, str]:
    """The test whether a call is for this program, and in words what it is for."""
    places = {variant.names[name]: f"v_{name}" for name in [*inputs, *outputs] if name in variant.names}
    order: List[Tensor] = list(variant.interface)
    if [tensor.name for tensor in order if tensor.name not in places] or len(order) != len(places):
        raise UnsupportedError("the task has other tensors than the definition: random draws or weights")
    tests = []
    for name, value in variant.scalars.items():
        tests.append(f"v_{name} == {_number(value)}")
    for tensor in order:
        shape = ", ".join(map(str, tensor.shape))
        tests.append(f"fits({places[tensor.name]}, {_TYPES[tensor.dtype]}, std::vector<int64_t>{{{shape}}})")
    arguments = [
        places[tensor.name] if tensor.role is TensorRole.OUTPUT else f"dense({places[tensor.name]})" for tensor in order
    ]
    words = ", ".join(
        f"{name} = {value}" for name, value in [*variant.interface.dims.items(), *variant.scalars.items()]
    )
    return (
        f"    if ({' && '.join(tests)})\n        return start(programs[{index}], {{{', '.join(arguments)}}});\n",
        words,
    )


def to_sources(variants: Sequence[Variant], inputs: Mapping[str, str], outputs: Sequence[str]) -> List[Tuple[str, str]]:
    """(path, text) of the files. inputs: by name "tensor", "double", "int64_t" or "bool", in the order of the call,
    which has the outputs after them."""
    files = [(f"program_{i}.cpp", _file(variant, i)) for i, variant in enumerate(variants)]
    checks = [_check(variant, i, list(inputs), outputs) for i, variant in enumerate(variants)]
    declarations = ""
    for i in range(len(variants)):
        declarations += (
            f'extern "C" const char *stitched_missing_{i}(void);\nextern "C" const char *stitched_error_{i}(void);\n'
            f'extern "C" int stitched_open_{i}(const char *const *folders, int count);\n'
            f'extern "C" unsigned long long stitched_workspace_{i}(void);\n'
            f'extern "C" int stitched_prepare_{i}(void *const *tensors, void *workspace, CUstream stream);\n'
            f'extern "C" int stitched_run_{i}(void *const *tensors, void *workspace, CUstream stream);\n'
        )
    rows = [
        "    {" + ", ".join(f"stitched_{name}_{i}" for name in ("missing", *_NAMES)) + ", nullptr, -1},"
        for i in range(len(variants))
    ]
    parameters = [
        f"const at::Tensor &v_{name}" if kind == "tensor" else f"{kind} v_{name}" for name, kind in inputs.items()
    ]
    parameters += [f"const at::Tensor &v_{name}" for name in outputs]
    dense = "".join(
        f'    TORCH_CHECK(v_{name}.is_contiguous(), "output {name} is not contiguous");\n' for name in outputs
    )
    used = "".join(f"    (void)v_{name};\n" for name in [*inputs, *outputs])
    refusal = "there is no program for these shapes, types and numbers; there are: " + "; ".join(w for _, w in checks)
    text = _MAIN
    for key, value in {
        "declarations": declarations,
        "programs": "\n".join(rows),
        "parameters": ", ".join(parameters),
        "dense": used + dense,
        "checks": "".join(test for test, _ in checks),
        "refusal": refusal.replace("\\", "\\\\").replace('"', '\\"'),
    }.items():
        text = text.replace("{" + key + "}", value)
    return [(ENTRY[0], text), *files]

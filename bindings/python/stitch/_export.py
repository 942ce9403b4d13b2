# SPDX-License-Identifier: MIT
"""A program as one C++ text that does the same without libstitch: NVRTC compiles the device code, the driver runs it.

    extern "C" const char *stitched_error(void);
    extern "C" int stitched_open(const char *const *folders, int count);            // compiles; 0: fine
    extern "C" unsigned long long stitched_workspace(void);                         // bytes of device memory
    extern "C" int stitched_prepare(void *const *tensors, void *workspace, CUstream stream);
    extern "C" int stitched_run(void *const *tensors, void *workspace, CUstream stream);

`tensors` are the device addresses in the order of the interface. The dims are those of the interface. Products take the
first algorithm that cuBLASLt offers; the library itself measures a few.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ._errors import UnsupportedError
from ._interface import Interface, TensorRole

SIZES = {"f64": 8, "f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1, "i64": 8, "i32": 4, "i16": 2}
SIZES.update({"i8": 1, "u8": 1, "bool": 1})
_SCALARS = {"i32": "int32_t", "u32": "uint32_t", "i64": "int64_t", "u64": "uint64_t", "f32": "float", "f64": "double"}
_LT = {"f64": "CUDA_R_64F", "f32": "CUDA_R_32F", "tf32": "CUDA_R_32F", "f16": "CUDA_R_16F", "bf16": "CUDA_R_16BF"}
_LT.update({"f8e4m3": "CUDA_R_8F_E4M3", "f8e5m2": "CUDA_R_8F_E5M2"})
_MAPS = {"f64": "FLOAT64", "f32": "FLOAT32", "tf32": "TFLOAT32", "f16": "FLOAT16", "bf16": "BFLOAT16", "i64": "INT64"}
_MAPS.update({"i32": "INT32", "i16": "UINT16"})
_FUNCTIONS = {"min": "lesser", "max": "greater", "ceil_div": "ceil_div", "align_up": "align_up"}
LIBRARY_WORKSPACE = 32 << 20

_PRELUDE = r"""
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>
#include <cuda.h>
#include <nvrtc.h>
#if STITCHED_GEMMS
#include <cublasLt.h>
#endif

namespace {

std::string failure;

inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t align_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

bool fine(CUresult result, const char *what)
{
    const char *text = nullptr;
    if (result == CUDA_SUCCESS)
        return true;
    cuGetErrorString(result, &text);
    failure = std::string(what) + ": " + (text ? text : "unknown error");
    return false;
}

struct kernel {
    const char *name;
    CUfunction function;
    int shared;
};

struct launch {
    int64_t grid[3], block[3], cluster[3], shared;
    bool clustered, cooperative, pdl;
};

inline bool start(kernel &k, const launch &l, void **args, CUstream stream)
{
    CUlaunchAttribute attributes[3];
    CUlaunchConfig config;
    std::memset(&config, 0, sizeof(config));
    std::memset(attributes, 0, sizeof(attributes));
    config.gridDimX = (unsigned)l.grid[0], config.gridDimY = (unsigned)l.grid[1], config.gridDimZ = (unsigned)l.grid[2];
    config.blockDimX = (unsigned)l.block[0], config.blockDimY = (unsigned)l.block[1];
    config.blockDimZ = (unsigned)l.block[2];
    config.sharedMemBytes = (unsigned)l.shared, config.hStream = stream, config.attrs = attributes;
    if (l.shared > 48 * 1024 && l.shared > k.shared) {
        if (!fine(cuFuncSetAttribute(k.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)l.shared), k.name))
            return false;
        k.shared = (int)l.shared;
    }
    if (l.clustered) {
        CUlaunchAttribute &a = attributes[config.numAttrs++];
        a.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        a.value.clusterDim.x = (unsigned)l.cluster[0], a.value.clusterDim.y = (unsigned)l.cluster[1];
        a.value.clusterDim.z = (unsigned)l.cluster[2];
        if (l.cluster[0] * l.cluster[1] * l.cluster[2] > 8 &&
            !fine(cuFuncSetAttribute(k.function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), k.name))
            return false;
    }
    if (l.cooperative) {
        CUlaunchAttribute &a = attributes[config.numAttrs++];
        a.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        a.value.cooperative = 1;
    }
    if (l.pdl) {
        CUlaunchAttribute &a = attributes[config.numAttrs++];
        a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        a.value.programmaticStreamSerializationAllowed = 1;
    }
    return fine(cuLaunchKernelEx(&config, k.function, args, nullptr), k.name);
}

inline bool fill(CUdeviceptr to, int64_t count, int size, uint64_t bits, CUstream stream)
{
    if (count <= 0)
        return true;
    if (size == 8 && (uint32_t)bits == (uint32_t)(bits >> 32))
        size = 4, count *= 2;
    if (size == 1)
        return fine(cuMemsetD8Async(to, (unsigned char)bits, (size_t)count, stream), "fill");
    if (size == 2)
        return fine(cuMemsetD16Async(to, (unsigned short)bits, (size_t)count, stream), "fill");
    if (size == 4)
        return fine(cuMemsetD32Async(to, (unsigned)bits, (size_t)count, stream), "fill");
    return fine(cuMemsetD2D32Async(to, 8, (unsigned)bits, 1, (size_t)count, stream), "fill") &&
           fine(cuMemsetD2D32Async(to + 4, 8, (unsigned)(bits >> 32), 1, (size_t)count, stream), "fill");
}

#if STITCHED_GEMMS
struct product {
    int64_t m, n, k, lda, ldb, ldc, ldd, batch, stride_a, stride_b, stride_c, stride_d;
    int32_t a, b, c, d, bias, trans_a, trans_b, epilogue, compute, scale; /* types; bias -1: none */
    int32_t half_alpha, half_beta;
    uint32_t align_a, align_b, align_c, align_d;
    double alpha, beta;
};

struct prepared {
    product key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d;
    cublasLtMatmulAlgo_t algo;
};

cublasLtHandle_t lt;
std::vector<prepared> products;

bool lt_fine(cublasStatus_t status, const char *what)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        failure = std::string(what) + ": " + cublasLtGetStatusName(status);
    return status == CUBLAS_STATUS_SUCCESS;
}

inline bool layout(cublasLtMatrixLayout_t *out, int32_t type, int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
    int32_t count = (int32_t)batch;
    return lt_fine(cublasLtMatrixLayoutCreate(out, (cudaDataType_t)type, (uint64_t)rows, (uint64_t)cols, ld), "gemm layout") &&
           (batch <= 1 || (lt_fine(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)), "gemm batch") &&
                           lt_fine(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)), "gemm stride")));
}

/* A row-major product is the column-major one of the transposed matrices with the operands swapped. */
prepared *find(const product &p, size_t workspace)
{
    for (prepared &e : products)
        if (std::memcmp(&e.key, &p, sizeof(p)) == 0)
            return &e;
    prepared e;
    std::memset(&e, 0, sizeof(e));
    std::memcpy(&e.key, &p, sizeof(p));
    cublasOperation_t op_a = p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    static const cublasLtEpilogue_t epilogues[3][2] = {{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS},
                                                       {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS},
                                                       {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS}};
    cublasLtEpilogue_t epilogue = epilogues[p.epilogue][p.bias >= 0];
    if (!lt && !lt_fine(cublasLtCreate(&lt), "cublasLtCreate"))
        return nullptr;
    if (!lt_fine(cublasLtMatmulDescCreate(&e.desc, (cublasComputeType_t)p.compute, (cudaDataType_t)p.scale), "gemm") ||
        !lt_fine(cublasLtMatmulDescSetAttribute(e.desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof(op_a)), "gemm") ||
        !lt_fine(cublasLtMatmulDescSetAttribute(e.desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof(op_b)), "gemm") ||
        !lt_fine(cublasLtMatmulDescSetAttribute(e.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)), "gemm"))
        return nullptr;
    if (p.bias >= 0 && !lt_fine(cublasLtMatmulDescSetAttribute(e.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &p.bias, sizeof(p.bias)), "gemm"))
        return nullptr;
    if (!layout(&e.a, p.b, p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.ldb, p.batch, p.stride_b) ||
        !layout(&e.b, p.a, p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.lda, p.batch, p.stride_a) ||
        !layout(&e.c, p.d, p.n, p.m, p.ldd, p.batch, p.stride_d) || !layout(&e.d, p.c, p.n, p.m, p.ldc, p.batch, p.stride_c))
        return nullptr;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    if (!lt_fine(cublasLtMatmulPreferenceCreate(&preference), "gemm"))
        return nullptr;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &p.align_b, 4);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &p.align_a, 4);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &p.align_d, 4);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &p.align_c, 4);
    bool found = lt_fine(cublasLtMatmulAlgoGetHeuristic(lt, e.desc, e.a, e.b, e.c, e.d, preference, 1, &result, &count), "gemm algorithm");
    cublasLtMatmulPreferenceDestroy(preference);
    if (!found || count == 0) {
        failure = "gemm: cuBLASLt has no algorithm";
        return nullptr;
    }
    e.algo = result.algo;
    products.push_back(e);
    return &products.back();
}

uint32_t alignment(CUdeviceptr p)
{
    uint32_t bytes = 256;
    while (p % bytes)
        bytes /= 2;
    return bytes;
}

inline bool gemm(product p, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, CUdeviceptr d, CUdeviceptr bias, char *workspace, size_t bytes, CUstream stream)
{
    p.align_a = alignment(a), p.align_b = alignment(b), p.align_c = alignment(c), p.align_d = alignment(d);
    prepared *e = find(p, bytes);
    float alpha = (float)p.alpha, beta = (float)p.beta;
    uint16_t half_alpha = (uint16_t)p.half_alpha, half_beta = (uint16_t)p.half_beta;
    const void *scales[2] = {&alpha, &beta};
    if (p.scale == CUDA_R_64F)
        scales[0] = &p.alpha, scales[1] = &p.beta;
    else if (p.scale == CUDA_R_16F)
        scales[0] = &half_alpha, scales[1] = &half_beta;
    if (!e)
        return false;
    if (p.bias >= 0) {
        const void *at = (const void *)(uintptr_t)bias;
        if (!lt_fine(cublasLtMatmulDescSetAttribute(e->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at, sizeof(at)), "gemm"))
            return false;
    }
    return lt_fine(cublasLtMatmul(lt, e->desc, scales[0], (const void *)(uintptr_t)b, e->a,
                                  (const void *)(uintptr_t)a, e->b, scales[1], (const void *)(uintptr_t)d,
                                  e->c, (void *)(uintptr_t)c, e->d, &e->algo, workspace, bytes, (cudaStream_t)stream),
                   "gemm");
}
#endif
"""

_OPEN = r"""
CUmodule module;

bool compile(const char *const *folders, int count)
{
    CUdevice device;
    int major = 0, minor = 0;
    if (!fine(cuCtxGetDevice(&device), "cuCtxGetDevice") ||
        !fine(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "device") ||
        !fine(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "device"))
        return false;
    std::vector<std::string> texts = {"--gpu-architecture=sm_" + std::to_string(major * 10 + minor) + (major >= 9 ? "a" : ""),
                                      "-std=c++17"};
    for (int i = 0; i < count; i++)
        texts.push_back(std::string("-I") + folders[i]);
    std::vector<const char *> options;
    for (const std::string &text : texts)
        options.push_back(text.c_str());
    nvrtcProgram program;
    if (nvrtcCreateProgram(&program, source, "program.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS)
        return failure = "nvrtcCreateProgram failed", false;
    for (kernel &k : kernels)
        nvrtcAddNameExpression(program, k.name);
    nvrtcResult result = nvrtcCompileProgram(program, (int)options.size(), options.data());
    size_t size = 0;
    if (result != NVRTC_SUCCESS) {
        nvrtcGetProgramLogSize(program, &size);
        failure.assign(size, 0);
        nvrtcGetProgramLog(program, &failure[0]);
        nvrtcDestroyProgram(&program);
        return false;
    }
    nvrtcGetCUBINSize(program, &size);
    std::vector<char> image(size);
    nvrtcGetCUBIN(program, image.data());
    CUresult loaded = cuModuleLoadData(&module, image.data());
    if (loaded == CUDA_ERROR_NO_BINARY_FOR_GPU) { /* the driver's own compiler then */
        nvrtcGetPTXSize(program, &size);
        image.resize(size);
        nvrtcGetPTX(program, image.data());
        loaded = cuModuleLoadData(&module, image.data());
    }
    bool good = fine(loaded, "cuModuleLoadData");
    for (kernel &k : kernels) {
        const char *symbol = nullptr;
        if (good && nvrtcGetLoweredName(program, k.name, &symbol) != NVRTC_SUCCESS)
            failure = std::string("no kernel ") + k.name, good = false;
        good = good && fine(cuModuleGetFunction(&k.function, module, symbol), k.name);
    }
    nvrtcDestroyProgram(&program);
    return good;
}

} // namespace

extern "C" const char *stitched_error(void) { return failure.c_str(); }
extern "C" int stitched_open(const char *const *folders, int count) { return module || compile(folders, count) ? 0 : 1; }
"""


class _Names(Dict[str, str]):
    """Dims, let names and loop variables as C++."""

    def text(self, value: Any) -> str:
        """An expression."""
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise UnsupportedError(f"{value!r} is no expression")
        if isinstance(value, int):
            return f"{value}LL"
        out = []
        for token in re.findall(r"[A-Za-z_][A-Za-z0-9_.]*|\d+|[<>=!]=|[-+*/%(),<>]|\S", value):
            if token.isdigit():
                out.append(token + "LL")
            elif token[0].isalpha() or token[0] == "_":
                known = self.get(token) or _FUNCTIONS.get(token)
                if known is None:
                    raise UnsupportedError(f"'{token}' in '{value}' is not known")
                out.append(known)
            else:
                out.append(token)
        return "(" + " ".join(out) + ")"


def _identifier(name: str, index: int) -> str:
    return f"v{index}_" + re.sub(r"\W", "_", name)


class _Writer:
    def __init__(self, plan: Mapping[str, Any], interface: Interface) -> None:
        self.plan, self.interface = plan, interface
        self.names = _Names()
        self.constants: List[str] = []
        self.kernels: List[str] = []
        self.gemms = False
        self.places: Dict[str, Tuple[str, str]] = {}  # tensor or buffer: its address and dtype
        self.extents: Dict[str, List[str]] = {}
        self._dims()
        self._tensors()

    def _dims(self) -> None:
        for name, value in self.interface.dims.items():
            self.names[name] = _identifier(name, len(self.names))
            self.constants.append(f"const int64_t {self.names[name]} = {value}LL;")
        left = dict(self.plan.get("let", {}))
        while left:
            ready = [
                n
                for n, text in left.items()
                if not any(re.search(rf"(?<![\w.]){re.escape(o)}(?![\w.])", str(text)) for o in left)
            ]
            if not ready:
                raise UnsupportedError("the let names use each other in a circle")
            for name in ready:
                text = self.names.text(left.pop(name))
                self.names[name] = _identifier(name, len(self.names))
                self.constants.append(f"const int64_t {self.names[name]} = {text};")

    def _tensors(self) -> None:
        for i, tensor in enumerate(self.interface):
            if tensor.role is TensorRole.STATE:
                raise UnsupportedError("a program with states cannot be exported")
            self.places[tensor.name] = (f"(CUdeviceptr)(uintptr_t)tensors[{i}]", tensor.dtype.name.lower())
            self.extents[tensor.name] = [f"{n}LL" for n in tensor.shape]
        self.constants.append("const int64_t w0 = 0;")
        for i, (name, buffer) in enumerate(self.plan.get("buffers", {}).items()):
            if buffer.get("keep"):
                raise UnsupportedError("a program with states cannot be exported")
            shape = [self.names.text(extent) for extent in buffer["shape"]]
            size = " * ".join([*shape, f"{SIZES[buffer['dtype']]}LL"])
            self.constants.append(f"const int64_t w{i + 1} = align_up(w{i} + {size}, 256);")
            self.places[name] = (f"((CUdeviceptr)(uintptr_t)workspace + w{i})", buffer["dtype"])
            self.extents[name] = shape
        self.end = f"w{len(self.plan.get('buffers', {}))}"

    # ---- operands

    def pointer(self, text: str) -> Tuple[str, str, str, str]:
        """Address, dtype, name and offset of "name + expression"."""
        name, plus, rest = text.partition("+")
        name = name.strip()
        if name not in self.places:
            raise UnsupportedError(f"there is no tensor or buffer '{name}'")
        at, dtype = self.places[name]
        offset = self.names.text(rest) if plus else "0LL"
        return (f"({at} + (CUdeviceptr)({offset} * {SIZES[dtype]}LL))" if plus else f"({at})"), dtype, name, offset

    def _count(self, name: str, offset: str) -> str:
        return f"({' * '.join(self.extents[name] or ['1LL'])} - {offset})"

    def scalar(self, kind: str, value: Any) -> Tuple[str, str]:
        """C++ type and value."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kind in ("f16", "bf16"):
            if not number:
                raise UnsupportedError(f"a scalar {{'{kind}': '{value}'}} cannot be exported")
            return "uint16_t", f"{bits_of(kind, value)}u"
        if kind not in _SCALARS:
            raise UnsupportedError(f"a scalar of type {kind} cannot be exported")
        text = (
            self.names.text(value)
            if isinstance(value, str)
            else repr(float(value)) if kind[0] == "f" else f"{int(value)}LL"
        )
        return _SCALARS[kind], f"({_SCALARS[kind]})({text})"

    # ---- steps

    def steps(self, steps: Sequence[Mapping[str, Any]], indent: str) -> List[str]:
        lines: List[str] = []
        for step in _ordered(steps):
            if "kernel" in step:
                lines += self._kernel(step, indent)
            elif "gemm" in step:
                lines += self._gemm(step["gemm"], indent)
            elif "copy" in step:
                lines += self._copy(step["copy"], indent)
            elif "fill" in step:
                lines += self._fill(step["fill"], indent)
            elif "repeat" in step:
                lines += self._repeat(step["repeat"], indent)
            else:
                raise UnsupportedError("a program with operators of the host cannot be exported")
        return lines

    def _kernel(self, step: Mapping[str, Any], indent: str) -> List[str]:
        if step["kernel"] not in self.kernels:
            self.kernels.append(step["kernel"])
        lines, names = ["{"], []
        for i, arg in enumerate(step.get("args", [])):
            names.append(f"&a{i}")
            if isinstance(arg, str):
                lines.append(f"    CUdeviceptr a{i} = {self.pointer(arg)[0]};")
            elif "tensor_map" in arg:
                lines += ["    " + line for line in self._map(f"a{i}", arg["tensor_map"])]
            else:
                ((kind, value),) = arg.items()
                type_, text = self.scalar(kind, value)
                lines.append(f"    {type_} a{i} = {text};")
        flags = ", ".join(
            "true" if flag else "false" for flag in ("cluster" in step, step.get("cooperative"), step.get("pdl"))
        )
        lines.append(f"    void *args[] = {{{', '.join(names) or 'nullptr'}}};")
        lines.append(
            f"    launch l = {{{{{self._triple(step['grid'])}}}, {{{self._triple(step['block'])}}}, {{{self._triple(step.get('cluster', []))}}}, "
            f"{self.names.text(step.get('shared', 0))}, {flags}}};"
        )
        lines.append(f"    if (!start(kernels[{self.kernels.index(step['kernel'])}], l, args, stream))")
        return [indent + line for line in [*lines, "        return 1;", "}"]]

    def _triple(self, values: Sequence[Any]) -> str:
        return ", ".join(([self.names.text(value) for value in values] + ["1LL"] * 3)[:3])

    def _map(self, name: str, value: Mapping[str, Any]) -> List[str]:
        at, dtype, _, _ = self.pointer(value["buffer"])
        shape = [self.names.text(extent) for extent in value["shape"]]
        strides = [self.names.text(s) for s in value.get("strides", [])]
        if "strides" not in value:
            strides = [" * ".join(shape[i + 1 :]) for i in range(len(shape) - 1)]
        box = [self.names.text(extent) for extent in value["box"]]
        swizzle = value.get("swizzle", "none")
        word = "NONE" if swizzle == "none" else swizzle
        return [
            f"CUtensorMap {name};",
            _array(f"cuuint64_t {name}_shape", shape[::-1]),
            _array(f"cuuint64_t {name}_strides", [f"({s}) * {SIZES[dtype]}LL" for s in strides[::-1]]),
            _array(f"cuuint32_t {name}_box", box[::-1]),
            _array(f"cuuint32_t {name}_ones", ["1"] * len(shape)),
            f"if (!fine(cuTensorMapEncodeTiled(&{name}, CU_TENSOR_MAP_DATA_TYPE_{_MAPS.get(dtype, 'UINT8')}, {len(shape)}, "
            f"(void *)(uintptr_t){at}, {name}_shape, {name}_strides, {name}_box, {name}_ones, "
            f"CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_{word}, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, "
            'CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE), "cuTensorMapEncodeTiled"))',
            "    return 1;",
        ]

    def _gemm(self, g: Mapping[str, Any], indent: str) -> List[str]:
        self.gemms = True
        text, op = self.names.text, {key: self.pointer(g[key]) for key in ("a", "b", "c")}
        op["d"] = self.pointer(g.get("d", g["c"]))
        m, n, k = text(g["m"]), text(g["n"]), text(g["k"])
        trans_a, trans_b = bool(g.get("trans_a")), bool(g.get("trans_b"))
        lda, ldb = text(g["lda"]) if "lda" in g else (m if trans_a else k), (
            text(g["ldb"]) if "ldb" in g else (k if trans_b else n)
        )
        ldc = text(g["ldc"]) if "ldc" in g else n
        ldd = text(g["ldd"]) if "ldd" in g else (ldc if "d" not in g else n)
        rows = {"a": f"{k if trans_a else m} * {lda}", "b": f"{n if trans_b else k} * {ldb}", "c": f"{m} * {ldc}"}
        rows["d"] = f"{m} * {ldd}"
        strides = {key: text(g[f"stride_{key}"]) if f"stride_{key}" in g else rows[key] for key in "abcd"}
        if "d" not in g:
            strides["d"] = strides["c"]
        bias = self.pointer(g["bias"]) if "bias" in g else None
        for what, operand in (("d", op["d"]), ("bias", bias)):
            if operand is not None and operand[1] != op["c"][1]:
                raise UnsupportedError(f"a product whose {what} has another type than c cannot be exported")
        compute = g.get("compute", "f64" if op["a"][1] == "f64" else "f32")
        kinds = {"f32": "CUBLAS_COMPUTE_32F", "tf32": "CUBLAS_COMPUTE_32F_FAST_TF32", "f64": "CUBLAS_COMPUTE_64F"}
        kinds["f16"] = "CUBLAS_COMPUTE_16F"
        wide = {"f64": "CUDA_R_64F", "f16": "CUDA_R_16F"}.get(compute, "CUDA_R_32F")
        epilogue = {"none": 0, "relu": 1, "gelu": 2}[g.get("epilogue", "none")]
        types = ", ".join(f"(int32_t){_LT[op[key][1]]}" for key in "abcd")
        batch, alpha, beta = text(g.get("batch", 1)), float(g.get("alpha", 1)), float(g.get("beta", 0))
        lines = [
            "{",
            "    product p;",
            "    std::memset(&p, 0, sizeof(p));",
            f"    p.m = {m}, p.n = {n}, p.k = {k}, p.batch = {batch};",
            f"    p.lda = {lda}, p.ldb = {ldb}, p.ldc = {ldc}, p.ldd = {ldd};",
            *[f"    p.stride_{key} = {strides[key]};" for key in "abcd"],
            f"    const int32_t types[] = {{{types}}};",
            "    p.a = types[0], p.b = types[1], p.c = types[2], p.d = types[3];",
            f"    p.bias = {'(int32_t)' + _LT[bias[1]] if bias else '-1'}, p.trans_a = {int(trans_a)}, p.trans_b = {int(trans_b)};",
            f"    p.epilogue = {epilogue}, p.compute = (int32_t){kinds[compute]}, p.scale = (int32_t){wide};",
            f"    p.alpha = {alpha!r}, p.beta = {beta!r};",
            f"    p.half_alpha = {bits_of('f16', alpha)}, p.half_beta = {bits_of('f16', beta)};",
            f"    if (!gemm(p, {op['a'][0]}, {op['b'][0]}, {op['c'][0]}, {op['d'][0]}, {bias[0] if bias else '0'}, "
            f"(char *)workspace + {self.end}, {LIBRARY_WORKSPACE}, stream))",
            "        return 1;",
            "}",
        ]
        return [indent + line for line in lines]

    def _copy(self, copy: Mapping[str, Any], indent: str) -> List[str]:
        source, dtype, name, offset = self.pointer(copy["from"])
        count = self.names.text(copy["count"]) if "count" in copy else self._count(name, offset)
        return [
            f"{indent}if ({count} > 0 && !fine(cuMemcpyDtoDAsync({self.pointer(copy['to'])[0]}, {source}, "
            f'(size_t)({count} * {SIZES[dtype]}LL), stream), "copy"))',
            f"{indent}    return 1;",
        ]

    def _fill(self, fill: Mapping[str, Any], indent: str) -> List[str]:
        at, dtype, name, offset = self.pointer(fill["buffer"])
        count = self.names.text(fill["count"]) if "count" in fill else self._count(name, offset)
        bits = bits_of(dtype, fill["value"])
        return [f"{indent}if (!fill({at}, {count}, {SIZES[dtype]}, {bits}ULL, stream))", f"{indent}    return 1;"]

    def _repeat(self, repeat: Mapping[str, Any], indent: str) -> List[str]:
        name, before = repeat["var"], self.names.get(repeat["var"])
        count = self.names.text(repeat["count"])
        self.names[name] = variable = _identifier(name, len(self.names)) + f"_{len(indent)}"
        try:
            inner = self.steps(repeat["steps"], indent + "    ")
        finally:
            if before is None:
                del self.names[name]
            else:
                self.names[name] = before
        return [f"{indent}for (int64_t {variable} = 0; {variable} < {count}; {variable}++) {{", *inner, f"{indent}}}"]


def _array(declared: str, items: Sequence[str]) -> str:
    """An array of the type that the declaration begins with."""
    kind = declared.partition(" ")[0]
    return f"{declared}[] = {{{', '.join(f'({kind})({item})' for item in items) or '0'}}};"


def _ordered(steps: Sequence[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    """Steps in an order that their dependencies allow."""
    left, done, out = list(steps), set(), []
    while left:
        step = next((s for s in left if all(name in done for name in s.get("after", []))), None)
        if step is None:
            raise UnsupportedError("the steps depend on each other in a circle")
        left.remove(step)
        done.add(step.get("id"))
        out.append(step)
    return out


def bits_of(dtype: str, value: Any) -> int:
    """A number as an element's bits."""
    if dtype == "f64":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    if dtype in ("f32", "tf32"):
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    if dtype == "f16":
        try:
            return int(struct.unpack("<H", struct.pack("<e", value))[0])
        except OverflowError:
            return 0x7C00 if value > 0 else 0xFC00
    if dtype == "bf16":
        word = int(struct.unpack("<I", struct.pack("<f", value))[0])
        return 0x7FC0 if math.isnan(value) else (word + 0x7FFF + (word >> 16 & 1)) >> 16
    if dtype.startswith("f8"):
        if value != 0:
            raise UnsupportedError("a fill of an fp8 buffer with anything but 0 cannot be exported")
        return 0
    if dtype == "bool":
        return int(value != 0)
    return int(value) & (1 << 8 * SIZES[dtype]) - 1


def _literal(text: str) -> str:
    """Text as a C++ raw string, in pieces that every compiler takes."""
    mark = "stitched"
    while f'){mark}"' in text:
        mark += "_"
    lines = []
    for part in re.split("(\r+)", text):  # which compilers would take for the ends of lines
        if part.startswith("\r"):
            lines.append('"' + "\\r" * len(part) + '"')
        else:
            lines += [f'R"{mark}({part[i : i + 8000]}){mark}"' for i in range(0, max(len(part), 1), 8000)]
    return "\n".join(lines)


def to_cpp(source: str, plan: Mapping[str, Any], interface: Interface) -> str:
    """The C++ text. UnsupportedError names what cannot be exported: states, operators of the host, products with mixed
    types of c, d and bias."""
    writer = _Writer(plan, interface)
    parts = {name: writer.steps(plan.get(name, []), "    ") for name in ("prepare", "run")}
    constants = "\n".join(writer.constants)
    kernels = "\n".join(f"    {{{_literal(name)}, nullptr, 0}}," for name in writer.kernels)
    if not writer.kernels:
        kernels = "    // none\n"
    bodies = []
    for name, lines in parts.items():
        body = "\n".join(lines)
        bodies.append(
            f'extern "C" int stitched_{name}(void *const *tensors, void *workspace, CUstream stream)\n{{\n'
            f"    (void)tensors, (void)workspace, (void)stream;\n{body}\n    return 0;\n}}"
        )
    extra = LIBRARY_WORKSPACE if writer.gemms else 0
    return (
        f"#define STITCHED_GEMMS {int(writer.gemms)}\n{_PRELUDE}\nconst char *const source =\n{_literal(source)};\n\n"
        f"std::vector<kernel> kernels = {{\n{kernels}\n}};\n\n{constants}\n{_OPEN}\n"
        f'extern "C" unsigned long long stitched_workspace(void) {{ return (unsigned long long)({writer.end} + {extra}); }}\n\n'
        + "\n\n".join(bodies)
        + "\n"
    )

# SPDX-License-Identifier: MIT
"""A program as KernelBench's ModelNew: one Python file that needs PyTorch, a C++ compiler and the CUDA toolkit."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, List, Mapping

from ._errors import UnsupportedError
from ._export import to_cpp
from ._interface import Interface

if TYPE_CHECKING:
    from .torch import Spec

_BINDING = r"""
static std::vector<void *> addresses(const std::vector<torch::Tensor> &tensors)
{
    std::vector<void *> found;
    for (const torch::Tensor &tensor : tensors)
        found.push_back(tensor.data_ptr());
    return found;
}

void open_program(std::vector<std::string> folders)
{
    std::vector<const char *> texts;
    for (const std::string &folder : folders)
        texts.push_back(folder.c_str());
    TORCH_CHECK(stitched_open(texts.data(), (int)texts.size()) == 0, stitched_error());
}

int64_t workspace_bytes() { return (int64_t)stitched_workspace(); }

void prepare(std::vector<torch::Tensor> tensors, torch::Tensor workspace, int64_t stream)
{
    TORCH_CHECK(stitched_prepare(addresses(tensors).data(), workspace.data_ptr(), (CUstream)stream) == 0, stitched_error());
}

void run(std::vector<torch::Tensor> tensors, torch::Tensor workspace, int64_t stream)
{
    TORCH_CHECK(stitched_run(addresses(tensors).data(), workspace.data_ptr(), (CUstream)stream) == 0, stitched_error());
}
"""

_TAIL = '''

_HOME = _cpp_extension.CUDA_HOME or "/usr/local/cuda"
_library = _cpp_extension.load_inline(
    name="{name}",
    cpp_sources=[_CPP],
    functions=["open_program", "workspace_bytes", "prepare", "run"],
    with_cuda=True,
    extra_ldflags=["-L" + _HOME + "/lib64/stubs", "-lcuda", "-lnvrtc"{libraries}],
)
_open = False


class _NoBackward(torch.autograd.Function):
    """Hands results through; what asks for their gradients is refused instead of getting none."""

    @staticmethod
    def forward(ctx, parameter, *outputs):
        return tuple(output.view_as(output) for output in outputs)

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError("ModelNew runs a program for the forward pass; it has no backward pass")


class ModelNew(Model):
    """Model with its forward pass run by the program above, for the shapes that it was verified for; Model's own
    otherwise. Parameters are made as Model makes them. The program has no backward pass."""

    _ARGUMENTS = {arguments}
    _WEIGHTS = {weights}
    _DRAWS = {draws}
    _OUTPUTS = {outputs}

    def _weight(self, path, device):
        found = self
        for part in path.split("."):
            found = getattr(found, part)
        return found.detach().to(device).contiguous()

    def _draw(self, kind, a, b, dtype, shape, device):
        if kind == "randint":
            return torch.randint(int(a), int(b), shape, dtype=dtype, device=device)
        made = torch.empty(shape, dtype=dtype, device=device)
        return made.normal_(a, b) if kind == "normal" else made.uniform_(a, b) if kind == "uniform" else made.bernoulli_(a)

    def _fits(self, args):
        if len(args) != len(self._ARGUMENTS):
            return False
        for value, wanted in zip(args, self._ARGUMENTS):
            if isinstance(wanted, tuple):
                if not (isinstance(value, torch.Tensor) and value.is_cuda and (value.dtype, tuple(value.shape)) == wanted):
                    return False
            elif isinstance(value, torch.Tensor) or value != wanted[0]:
                return False
        return True

    def forward(self, *args):
        global _open
        if not self._fits(args):
            return super().forward(*args)
        given = [value.detach().contiguous() for value in args if isinstance(value, torch.Tensor)]
        device = given[0].device if given else torch.device("cuda")
        stream = torch.cuda.current_stream(device).cuda_stream
        if not _open:
            _library.open_program([_HOME + "/include", _HOME + "/include/cccl"])
            _open = True
        held = self.__dict__.get("_stitched")
        weights = [self._weight(path, device) for path in self._WEIGHTS]
        key = [(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights]
        given += [self._draw(*draw, device) for draw in self._DRAWS]
        outputs = [torch.empty(shape, dtype=dtype, device=device) for dtype, shape in self._OUTPUTS]
        if held is None or held[0] != key:
            workspace = torch.empty(_library.workspace_bytes() + 256, dtype=torch.uint8, device=device)
            workspace = workspace[-workspace.data_ptr() % 256 :]
            held = self.__dict__["_stitched"] = (key, weights, workspace)
            _library.prepare(given + weights + outputs, workspace, stream)
        _library.run(given + held[1] + outputs, held[2], stream)
        if torch.is_grad_enabled():
            tensors = [value for value in args if isinstance(value, torch.Tensor)]
            learning = next((t for t in [*tensors, *self.parameters()] if t.requires_grad), None)
            if learning is not None:
                outputs = list(_NoBackward.apply(learning, *outputs))
        return {results}
'''


def _raw(text: str) -> str:
    """Python source of a text, readable where it can be."""
    if '"""' in text or "\\" == text[-1:]:
        return repr(text)
    return 'r"""' + text + '"""'


def _results(tree: Any) -> str:
    if isinstance(tree, int):
        return f"outputs[{tree}]"
    if tree[0] == "constant":
        return repr(tree[1])
    items = [_results(item) for item in tree[2]]
    if tree[0] == "dict":
        return "{" + ", ".join(f"{key!r}: {item}" for key, item in zip(tree[1], items)) + "}"
    if tree[0] == "list":
        return "[" + ", ".join(items) + "]"
    return "(" + "".join(item + ", " for item in items) + ")"


def _arguments(spec: "Spec", interface: Interface) -> List[str]:
    positional, keywords = spec.arguments[2]
    if keywords[2]:
        raise UnsupportedError("a module that is called with keywords cannot be exported as ModelNew")
    found = []
    for item in positional[2]:
        if isinstance(item, int):
            name, dtype, _ = spec.inputs[item]
            found.append(f"({dtype}, {interface[name].shape!r})")
        elif item[0] == "constant":
            found.append(repr([item[1]]))
        else:
            raise UnsupportedError("a module whose arguments are lists or dicts cannot be exported as ModelNew")
    return found


def to_model_new(source: str, program_source: str, plan: Mapping[str, Any], spec: "Spec", interface: Interface) -> str:
    """The file's text. `source` is the task's own file, whose Model the new one is derived from."""
    if any(path.startswith("captured.") for path in spec.paths):
        raise UnsupportedError("a module that uses tensors that no module holds cannot be exported as ModelNew")
    cpp = to_cpp(program_source, plan, interface) + _BINDING
    arguments = _arguments(spec, interface)
    draws = [
        f"({draw.kind!r}, {draw.a!r}, {draw.b!r}, {draw.dtype}, {interface[name].shape!r})"
        for name, draw, _ in spec.draws
    ]
    outputs = [f"({dtype}, {interface[name].shape!r})" for name, dtype, _ in spec.outputs]
    tail = _TAIL
    for key, text in {
        "name": "stitched_" + hashlib.sha256(cpp.encode()).hexdigest()[:16],
        "libraries": ', "-lcublasLt"' if "#define STITCHED_GEMMS 1" in cpp else "",
        "arguments": f"[{', '.join(arguments)}]",
        "weights": repr(list(spec.paths)),
        "draws": f"[{', '.join(draws)}]",
        "outputs": f"[{', '.join(outputs)}]",
        "results": _results(spec.results),
    }.items():
        tail = tail.replace("{" + key + "}", text)
    return (
        f"{source.rstrip()}\n\n\n# ---- the program, written by libstitch " + "-" * 79 + "\n\n"
        "import torch\nimport torch.utils.cpp_extension as _cpp_extension\n\n"
        f"_CPP = {_raw(cpp)}\n" + tail
    )

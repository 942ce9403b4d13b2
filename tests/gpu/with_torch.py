# SPDX-License-Identifier: MIT
"""What the tests with PyTorch on a GPU share: PyTorch or a skipped file, a context of the GPU, diagnostics, the GPT
block's tensors. Importing it makes the binding and tests/python importable."""

import importlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))
import sim  # noqa: E402
import tap  # noqa: E402
import stitch  # noqa: E402

SIMULATED = os.environ.get("STITCH_TEST_SIMULATED") == "1"  # of files that can be tried without a GPU

# examples/tasks/gpt_block/model.py: inputs, weights, output
GPT_SHAPES = {
    "x": ["B", "T", "C"],
    "ln_1.weight": ["C"],
    "ln_1.bias": ["C"],
    "attn.c_attn.weight": ["3*C", "C"],
    "attn.c_attn.bias": ["3*C"],
    "attn.c_proj.weight": ["C", "C"],
    "attn.c_proj.bias": ["C"],
    "ln_2.weight": ["C"],
    "ln_2.bias": ["C"],
    "mlp.c_fc.weight": ["4*C", "C"],
    "mlp.c_fc.bias": ["4*C"],
    "mlp.c_proj.weight": ["C", "4*C"],
    "mlp.c_proj.bias": ["C"],
    "y": ["B", "T", "C"],
}


def skip_file(reason):
    print(f"1..0 # SKIP {reason}")
    sys.exit(0)


def torch_or_skip(simulated=False, kernelbench=False):
    """PyTorch with a GPU (without one where `simulated`), beside a checkout of KernelBench if asked for."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as missing:
        skip_file(missing)
    if not simulated and not torch.cuda.is_available():
        skip_file("PyTorch has no GPU")
    if kernelbench and not os.environ.get("KERNELBENCH_ROOT"):
        skip_file("KERNELBENCH_ROOT does not name a checkout of KernelBench")
    return torch


def note(*words):
    print("# " + " ".join(str(word) for word in words).replace("\n", "\n# "), flush=True)


def context():
    """Of the first GPU, or the test is skipped."""
    ctx = sim.context("cuda:0")
    try:
        assert not ctx.device.simulated
    except (stitch.NoDeviceError, stitch.NoLibraryError) as e:
        raise tap.Skip(e.message) from None
    return ctx

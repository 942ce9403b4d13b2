# SPDX-License-Identifier: MIT
"""Modules of PyTorch with programs for them that are right, and changes that make those wrong. Shared by the tests on
the simulator and on a GPU."""

import torch
from torch import nn

HEAD = """
#define ROW(n) int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= (n)) return;
extern "C" __global__ void linear(const float *x, const float *w, const float *b, float *y, int n, int c, int o)
{
    ROW(n * o)
    float sum = b[i % o];
    for (int k = 0; k < c; k++)
        sum += x[i / o * c + k] * w[i % o * c + k];
    y[i] = sum;
}
"""


def step(kernel, count, *args):
    return {"kernel": kernel, "grid": [f"ceil_div({count},64)"], "block": [64], "args": list(args)}


def i32(value):
    return {"i32": value}


class Case:
    """make() -> module, example inputs; source and plan of a right program; `wrong`: (text, other text) for the
    source."""

    def __init__(self, make, source, plan, wrong, draws=0, outputs=("y",), device=None):
        self.make, self.source, self.wrong, self.draws, self.outputs = make, HEAD + source, wrong, draws, outputs
        self.plan = {"stitch": 1, **plan}
        self.device = device
        assert wrong[0] in self.source


class Bad(nn.Module):
    """Whose forward is any function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 20), nn.Linear(20, 5)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


MLP = Case(
    lambda: (Mlp(), [torch.randn(16, 12)]),
    """
extern "C" __global__ void relu(float *h, int n) { ROW(n) h[i] = fmaxf(h[i], 0.0f); }
""",
    {
        "buffers": {"h": {"dtype": "f32", "shape": ["B", 20]}},
        "run": [
            step("linear", "B*20", "x", "one.weight", "one.bias", "h", i32("B"), i32(12), i32(20)),
            step("relu", "B*20", "h", i32("B*20")),
            step("linear", "B*5", "h", "two.weight", "two.bias", "y", i32("B"), i32(20), i32(5)),
        ],
    },
    ("fmaxf(h[i], 0.0f)", "h[i]"),
)


class Norm(nn.Module):
    """Batch statistics, a buffer that is used, one that is not saved, and state that every call changes."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("scale", torch.rand(6) + 0.5)
        self.register_buffer("shift", torch.randn(6), persistent=False)
        self.last = torch.randn(6)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = self.norm(x) * self.scale + self.shift + self.last * self.calls
        self.last = y[0]
        return y


NORM = Case(
    lambda: (Norm(), [torch.randn(10, 6) * 3 + 1]),
    """
extern "C" __global__ void normalise(const float *x, const float *g, const float *b, const float *scale, const float *shift,
                                const float *last, float *y, int n)
{
    int c = threadIdx.x;
    float mean = 0, var = 0;
    for (int i = 0; i < n; i++)
        mean += x[i * 6 + c] / n;
    for (int i = 0; i < n; i++)
        var += (x[i * 6 + c] - mean) * (x[i * 6 + c] - mean) / n;
    for (int i = 0; i < n; i++)
        y[i * 6 + c] = ((x[i * 6 + c] - mean) * rsqrtf(var + 1e-5f) * g[c] + b[c]) * scale[c] + shift[c] + last[c];
}
""",
    {
        "run": [
            {
                "kernel": "normalise",
                "grid": [1],
                "block": [6],
                "args": ["x", "norm.weight", "norm.bias", "scale", "shift", "last", "y", i32("B")],
            }
        ]
    },
    ("+ last[c]", "+ 2 * last[c]"),
)


class Several(nn.Module):
    def forward(self, a, b, weight=0.5, mask=None):
        return {"sum": a + b * weight, "both": (a - b, [torch.where(mask, a, b), None])}


SEVERAL = Case(
    lambda: (
        Several(),
        {"a": torch.rand(8, 9), "b": torch.randn(8, 9), "mask": torch.rand(8, 9) < 0.5, "weight": 0.25},
    ),
    """
extern "C" __global__ void k(const float *a, const float *b, const bool *mask, float *sum, float *difference, float *chosen, int n)
{
    ROW(n)
    sum[i] = a[i] + b[i] * 0.25f;
    difference[i] = a[i] - b[i];
    chosen[i] = mask[i] ? a[i] : b[i];
}
""",
    {"run": [step("k", "B*9", "a", "b", "mask", "sum", "both.0", "both.1.0", i32("B*9"))]},
    ("mask[i] ? a[i] : b[i]", "a[i]"),
    outputs=("sum", "both.0", "both.1.0"),
)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8)

    def forward(self, tokens):
        return self.table(tokens), tokens + 1


WORDS = Case(
    lambda: (Words(), [torch.randint(0, 50, (6, 40))]),
    """
extern "C" __global__ void k(const long long *t, const float *table, float *y, long long *next, int n)
{
    ROW(n)
    for (int c = 0; c < 8; c++)
        y[i * 8 + c] = table[t[i] * 8 + c];
    next[i] = t[i] + 1;
}
""",
    {"run": [step("k", "B*40", "tokens", "table.weight", "y0", "y1", i32("B*40"))]},
    ("next[i] = t[i] + 1", "next[i] = t[i]"),
    outputs=("y0", "y1"),
)


class Noisy(nn.Module):
    """Dropout and an initial state that is drawn inside."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        start = torch.randn(x.shape[0], 7, device=x.device)
        return self.drop(x) + start.to(x.dtype)


NOISY = Case(
    lambda: (Noisy(), [torch.randn(9, 7)]),
    """
extern "C" __global__ void k(const float *x, const float *start, const MASK *keep, float *y, int n)
{
    ROW(n)
    y[i] = (keep[i] ? x[i] / 0.75f : 0.0f) + start[i];
}
""",
    {"run": [step("k", "B*7", "x", "random0", "random1", "y", i32("B*7"))]},
    ("x[i] / 0.75f", "x[i]"),
    draws=2,
)


class Closure(nn.Module):
    """forward goes through a function that closes over the original's parts: a copy's still does."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"fc": nn.Linear(12, 12), "act": nn.Tanh()})
        m = self.inner
        self.function = lambda x: m.act(m.fc(x))

    def forward(self, x):
        return x + self.function(x)


CLOSURE = Case(
    lambda: (Closure(), [torch.randn(8, 12)]),
    """
extern "C" __global__ void add(const float *x, float *y, int n) { ROW(n) y[i] = x[i] + tanhf(y[i]); }
""",
    {
        "run": [
            step("linear", "B*12", "x", "inner.fc.weight", "inner.fc.bias", "y", i32("B"), i32(12), i32(12)),
            step("add", "B*12", "x", "y", i32("B*12")),
        ]
    },
    ("tanhf(y[i])", "y[i]"),
)

CASES = {"mlp": MLP, "norm": NORM, "several": SEVERAL, "words": WORDS, "noisy": NOISY, "closure": CLOSURE}

# One step of a layer that has its parameters in a list, too.
RECURRENT = Case(
    lambda: (nn.RNN(4, 3, bias=False, batch_first=True), [torch.randn(16, 1, 4)]),
    """
extern "C" __global__ void k(const float *x, const float *w, float *y, float *h, int n)
{
    ROW(n)
    float sum = 0;
    for (int k = 0; k < 4; k++)
        sum += x[i / 3 * 4 + k] * w[i % 3 * 4 + k];
    y[i] = h[i] = tanhf(sum);
}
""",
    {"run": [step("k", "B*3", "input", "weight_ih_l0", "y0", "y1", i32("B*3"))]},
    ("tanhf(sum)", "sum"),
    outputs=("y0", "y1"),
)


class Listed(nn.Module):
    """A parameter in a second place, and a tensor in lists and dicts."""

    def __init__(self):
        super().__init__()
        self.one = nn.Parameter(torch.randn(7))
        self.used = [self.one]
        self.more = {"a": [torch.randn(7), torch.randn(7)]}

    def forward(self, x):
        return x * self.used[0] + self.more["a"][1]


LISTED = Case(
    lambda: (Listed(), [torch.randn(9, 7)]),
    """
extern "C" __global__ void k(const float *x, const float *a, const float *b, float *y, int n)
{
    ROW(n)
    y[i] = x[i] * a[i % 7] + b[i % 7];
}
""",
    {"run": [step("k", "B*7", "x", "one", "more.a.1", "y", i32("B*7"))]},
    ("+ b[i % 7]", ""),
)

FILE = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """A KernelBench-format file whose Model closes over its own parts."""

    def __init__(self, width, out):
        super().__init__()
        self.one, self.two = nn.Linear(width, 20), nn.Linear(20, out)
        two = self.two
        self.last = lambda h: two(h)

    def forward(self, x):
        return self.last(torch.relu(self.one(x)))


def get_inputs():
    return [torch.rand(16, 12)]


def get_init_inputs():
    return [12, 5]
'''

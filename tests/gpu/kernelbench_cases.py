# SPDX-License-Identifier: MIT
"""Plain programs for tasks of KernelBench, and changes that make them wrong: for test_gpu_kernelbench.py.

Nothing of KernelBench is here: a case names a file of a checkout by level and number. What a plan calls by a name that
the file assigns at its top level has that value (`let`); BATCH is the task's batch.
"""

import json
import re

HEAD = """
#define INFINITY __int_as_float(0x7f800000)
#define INDEX(n) long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i >= (n)) return;

/* Of a block of 256 threads; every thread gets it. */
__device__ float block_sum(float value)
{
    __shared__ float part[256];
    __syncthreads();
    part[threadIdx.x] = value;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    return part[0];
}

__device__ float block_max(float value)
{
    __shared__ float part[256];
    __syncthreads();
    part[threadIdx.x] = value;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + half]);
        __syncthreads();
    }
    return part[0];
}

__device__ float sigmoid(float v) { return 1.0f / (1.0f + expf(-v)); }
__device__ float mish(float v) { return v * tanhf(v > 20.0f ? v : log1pf(expf(v))); }
__device__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }
"""

CONV = """
/* One output element a thread: w is [co, ci / groups, kh, kw]. */
extern "C" __global__ void conv(const float *x, const float *w, const float *b, float *y, int n, int ci, int h, int width, int co,
                                int kh, int kw, int stride, int pad, int groups)
{
    int oh = (h + 2 * pad - kh) / stride + 1, ow = (width + 2 * pad - kw) / stride + 1, own = ci / groups;
    INDEX((long long)n * co * oh * ow)
    int c = i / (oh * ow) % co, first = c / (co / groups) * own;
    int row = i / ow % oh * stride - pad, column = i % ow * stride - pad;
    const float *image = x + i / ((long long)co * oh * ow) * ci * h * width;
    float sum = b ? b[c] : 0.0f;
    for (int k = 0; k < own; k++)
        for (int r = 0; r < kh; r++)
            for (int q = 0; q < kw; q++)
                if (row + r >= 0 && row + r < h && column + q >= 0 && column + q < width)
                    sum += image[((long long)(first + k) * h + row + r) * width + column + q] *
                           w[((c * own + k) * kh + r) * kw + q];
    y[i] = CONV_RESULT;
}
"""

POOL = """
extern "C" __global__ void pool(const float *x, float *y, int planes, int h, int w, int k, int stride, int pad)
{
    int oh = (h + 2 * pad - k) / stride + 1, ow = (w + 2 * pad - k) / stride + 1;
    INDEX((long long)planes * oh * ow)
    int row = i / ow % oh * stride - pad, column = i % ow * stride - pad;
    const float *plane = x + i / (oh * ow) * h * w;
    float best = -INFINITY;
    for (int r = 0; r < k; r++)
        for (int q = 0; q < k; q++)
            if (row + r >= 0 && row + r < h && column + q >= 0 && column + q < w)
                best = fmaxf(best, plane[(row + r) * w + column + q]);
    y[i] = best;
}
"""


def kernel(name, count, *args, block=256):
    """A step with a thread for each of `count` elements."""
    return {"kernel": name, "grid": [f"ceil_div({count},{block})"], "block": [block], "args": list(args)}


def rows(name, count, *args):
    """A step with a block of 256 threads for each of `count` rows."""
    return {"kernel": name, "grid": [str(count)], "block": [256], "args": list(args)}


def i32(*values):
    return [{"i32": str(value)} for value in values]


def i64(value):
    return {"i64": str(value)}


def gemm(a, b, c, m, n, k, **more):
    return {"gemm": {"a": a, "b": b, "c": c, "m": str(m), "n": str(n), "k": str(k), **more}}


def linear(x, name, y, m, n, k, **more):
    """torch.nn.Linear."""
    return gemm(x, name + ".weight", y, m, n, k, trans_b=True, bias=name + ".bias", **more)


def pointwise(expression, count="BATCH*dim", x="x"):
    """y = expression of v, an element of x."""
    source = f"""
extern "C" __global__ void each(const float *x, float *y, long long n)
{{
    INDEX(n)
    float v = x[i];
    y[i] = {expression};
}}
"""
    return source, [kernel("each", count, x, "y", i64(count))]


def buffer(*shape, dtype="f32"):
    return {"dtype": dtype, "shape": [str(extent) for extent in shape]}


class Case:
    """values: for names of the file, to make it smaller than it is; small: more of them, for the simulator. wrong: (text, other
    text) for the source or the plan."""

    def __init__(self, level, number, program, wrong, *, values=None, small=None, buffers=None):
        self.level, self.number, self.wrong = level, number, wrong
        self.values, self.small = values or {}, {**(values or {}), **(small or {})}
        self.source, self.run, self.buffers = HEAD + program[0], program[1], buffers or {}

    def programs(self, task, constants):
        """(source, plan) of the right program and of the wrong one."""
        known = {**constants, "BATCH": task.spec.batch or str(task.interface[task.spec.inputs[0][0]].shape[0])}
        text = json.dumps({"stitch": 1, "buffers": self.buffers, "run": self.run})
        used = {name for name in re.findall(r"[A-Za-z_]\w*", text) if name in known and name not in task.spec.dims}
        plan = {**json.loads(text), "let": {name: str(known[name]) for name in sorted(used)}}
        right = (self.source, json.dumps(plan))
        found = [part.count(self.wrong[0]) for part in right]
        if sum(found) != 1:
            raise ValueError(f"{self.wrong[0]!r} is there {sum(found)} times in level {self.level}, {self.number}")
        return right, tuple(part.replace(*self.wrong) for part in right)


def fused(expression, *, count="BATCH*out_features", bias="b", m="BATCH", n="out_features", k="in_features", name="linear", extra=None):
    """A Linear, then `expression` of each v; `p` is the element of the parameter `extra` for its column."""
    source = f"""
extern "C" __global__ void each(const float *h, {'const float *q, ' if extra else ''}float *y, long long n, int width)
{{
    INDEX(n)
    float v = h[i]{', p = q[i % width]' if extra else ''};
    y[i] = {expression};
}}
"""
    product = linear("x", name, "h", m, n, k)
    if bias is None:
        del product["gemm"]["bias"]
    return source, [product, kernel("each", count, "h", *([extra] if extra else []), "y", i64(count), *i32(n))]


H = {"h": buffer("BATCH", "out_features")}
WIDE = {"in_features": 2048, "out_features": 1024}
NARROW = {"batch_size": 16, "in_features": 48, "out_features": 32}

LOG_SOFTMAX = """
extern "C" __global__ void row(const float *x, float *y, long long n)
{
    float most = -INFINITY, sum = 0;
    x += blockIdx.x * n, y += blockIdx.x * n;
    for (long long k = threadIdx.x; k < n; k += 256)
        most = fmaxf(most, x[k]);
    most = block_max(most);
    for (long long k = threadIdx.x; k < n; k += 256)
        sum += expf(x[k] - most);
    sum = logf(block_sum(sum));
    for (long long k = threadIdx.x; k < n; k += 256)
        y[k] = x[k] - most - sum;
}
"""

BATCH_NORM = """
extern "C" __global__ void channel(const float *x, const float *g, const float *b, float *y, int batch, int channels, int plane)
{
    int c = blockIdx.x;
    float mean = 0, var = 0;
    for (int n = 0; n < batch; n++)
        for (int k = threadIdx.x; k < plane; k += 256)
            mean += x[(n * channels + c) * plane + k];
    mean = block_sum(mean) / (batch * plane);
    for (int n = 0; n < batch; n++)
        for (int k = threadIdx.x; k < plane; k += 256) {
            float d = x[(n * channels + c) * plane + k] - mean;
            var += d * d;
        }
    float scale = rsqrtf(block_sum(var) / (batch * plane) + 1e-5f) * g[c];
    for (int n = 0; n < batch; n++)
        for (int k = threadIdx.x; k < plane; k += 256)
            y[(n * channels + c) * plane + k] = (x[(n * channels + c) * plane + k] - mean) * scale + b[c];
}
"""

RMS_NORM = """
extern "C" __global__ void position(const float *x, float *y, long long n, int channels, int plane)
{
    INDEX(n)
    const float *at = x + i / plane * channels * plane + i % plane;
    float *to = y + i / plane * channels * plane + i % plane;
    float sum = 0;
    for (int c = 0; c < channels; c++)
        sum += at[c * plane] * at[c * plane];
    sum = sqrtf(sum / channels + 1e-5f);
    for (int c = 0; c < channels; c++)
        to[c * plane] = at[c * plane] / sum;
}
"""

LAYER_NORM = """
extern "C" __global__ void row(const float *x, const float *g, const float *b, float *y, long long n)
{
    float mean = 0, var = 0;
    x += blockIdx.x * n, y += blockIdx.x * n;
    for (long long k = threadIdx.x; k < n; k += 256)
        mean += x[k];
    mean = block_sum(mean) / n;
    for (long long k = threadIdx.x; k < n; k += 256)
        var += (x[k] - mean) * (x[k] - mean);
    var = rsqrtf(block_sum(var) / n + 1e-5f);
    for (long long k = threadIdx.x; k < n; k += 256)
        y[k] = (x[k] - mean) * var * g[k] + b[k];
}
"""

DIAGONAL = """
extern "C" __global__ void scale(const float *a, const float *b, float *y, long long n, int m)
{
    INDEX(n)
    y[i] = a[i / m] * b[i];
}
"""

COLUMN_SUM = """
extern "C" __global__ void column(const float *x, float *y, long long n, int rows, int columns)
{
    INDEX(n)
    const float *at = x + i / columns * rows * columns + i % columns;
    float sum = 0;
    for (int k = 0; k < rows; k++)
        sum += at[(long long)k * columns];
    y[i] = sum;
}
"""

ARGMAX = """
extern "C" __global__ void column(const float *x, long long *y, long long n, int rows, int columns)
{
    INDEX(n)
    const float *at = x + i / columns * rows * columns + i % columns;
    int best = 0;
    for (int k = 1; k < rows; k++)
        if (at[(long long)k * columns] > at[(long long)best * columns])
            best = k;
    y[i] = best;
}
"""

CUMSUM = """
extern "C" __global__ void scan(const float *x, float *y, long long n, int width)
{
    INDEX(n)
    float sum = 0;
    for (int k = 0; k < width; k++) {
        sum += x[i * width + k];
        y[i * width + k] = sum;
    }
}
"""

CROSS_ENTROPY = """
extern "C" __global__ void row(const float *x, const long long *target, float *loss, int n)
{
    float most = -INFINITY, sum = 0;
    const float *at = x + (long long)blockIdx.x * n;
    for (int k = threadIdx.x; k < n; k += 256)
        most = fmaxf(most, at[k]);
    most = block_max(most);
    for (int k = threadIdx.x; k < n; k += 256)
        sum += expf(at[k] - most);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        loss[blockIdx.x] = logf(sum) + most - at[target[blockIdx.x]];
}
extern "C" __global__ void mean(const float *loss, float *y, int n)
{
    float sum = 0;
    for (int k = threadIdx.x; k < n; k += 256)
        sum += loss[k];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *y = sum / n;
}
"""

SOFTMAX = """
extern "C" __global__ void softmax(float *x, int n, float scale, int causal)
{
    float most = -INFINITY, sum = 0;
    int last = causal ? blockIdx.x % n : n - 1;
    x += (long long)blockIdx.x * n;
    for (int k = threadIdx.x; k <= last; k += 256)
        most = fmaxf(most, x[k] * scale);
    most = block_max(most);
    for (int k = threadIdx.x; k <= last; k += 256)
        sum += expf(x[k] * scale - most);
    sum = block_sum(sum);
    for (int k = threadIdx.x; k < n; k += 256)
        x[k] = k <= last ? expf(x[k] * scale - most) / sum : 0.0f;
}
"""

ATTENTION = (
    SOFTMAX,
    [
        gemm("Q", "K", "s", "sequence_length", "sequence_length", "embedding_dimension", trans_b=True, batch="BATCH*num_heads"),
        rows("softmax", "BATCH*num_heads*sequence_length", "s", *i32("sequence_length"), {"f32": 0.0}, *i32(0)),
        gemm("s", "V", "y", "sequence_length", "embedding_dimension", "sequence_length", batch="BATCH*num_heads"),
    ],
)


def attention(width):
    """The scale is a number of the plan, not an expression: it is 1 / sqrt(width)."""
    source, steps = ATTENTION
    text = json.dumps(steps).replace('{"f32": 0.0}', json.dumps({"f32": width**-0.5}))
    return source, json.loads(text)


GPT_ATTENTION = (
    SOFTMAX
    + """
/* [B, T, 3, H, D] to three times [B, H, T, D], and [B, H, T, D] to [B, T, H, D] */
extern "C" __global__ void split(const float *x, float *q, float *k, float *v, long long n, int t, int h, int d)
{
    INDEX(n)
    long long from = ((i / (d * t) / h * t + i / d % t) * 3 * h + i / (d * t) % h) * d + i % d;
    q[i] = x[from];
    k[i] = x[from + h * d];
    v[i] = x[from + 2 * h * d];
}
extern "C" __global__ void join(const float *x, float *y, long long n, int t, int h, int d)
{
    INDEX(n)
    y[((i / (d * t) / h * t + i / d % t) * h + i / (d * t) % h) * d + i % d] = x[i];
}
""",
    [
        linear("x", "c_attn", "qkv", "BATCH*seq_len", "3*n_embd", "n_embd"),
        kernel("split", "BATCH*seq_len*n_embd", "qkv", "q", "k", "v", i64("BATCH*seq_len*n_embd"), *i32("seq_len", "n_head", "n_embd/n_head")),
        gemm("q", "k", "s", "seq_len", "seq_len", "n_embd/n_head", trans_b=True, batch="BATCH*n_head"),
        rows("softmax", "BATCH*n_head*seq_len", "s", *i32("seq_len"), {"f32": 96**-0.5}, *i32(1)),
        gemm("s", "v", "a", "seq_len", "n_embd/n_head", "seq_len", batch="BATCH*n_head"),
        kernel("join", "BATCH*seq_len*n_embd", "a", "o", i64("BATCH*seq_len*n_embd"), *i32("seq_len", "n_head", "n_embd/n_head")),
        linear("o", "c_proj", "y", "BATCH*seq_len", "n_embd", "n_embd"),
    ],
)

LENET = (
    CONV.replace("CONV_RESULT", "fmaxf(sum, 0.0f)") + POOL,
    [
        kernel("conv", "BATCH*6*28*28", "x", "conv1.weight", "conv1.bias", "a", *i32("BATCH", 1, 32, 32, 6, 5, 5, 1, 0, 1)),
        kernel("pool", "BATCH*6*14*14", "a", "b", *i32("BATCH*6", 28, 28, 2, 2, 0)),
        kernel("conv", "BATCH*16*10*10", "b", "conv2.weight", "conv2.bias", "c", *i32("BATCH", 6, 14, 14, 16, 5, 5, 1, 0, 1)),
        kernel("pool", "BATCH*16*5*5", "c", "d", *i32("BATCH*16", 10, 10, 2, 2, 0)),
        linear("d", "fc1", "e", "BATCH", 120, 400, epilogue="relu"),
        linear("e", "fc2", "f", "BATCH", 84, 120, epilogue="relu"),
        linear("f", "fc3", "y", "BATCH", "num_classes", 84),
    ],
)

GROUP_NORM = """
extern "C" __global__ void group(float *h, const float *g, const float *b, const float *w, float *y, int width, int groups)
{
    int size = width / groups, first = blockIdx.x % groups * size;
    h += (long long)blockIdx.x * size, y += (long long)blockIdx.x * size;
    float mean = 0, var = 0;
    for (int k = threadIdx.x; k < size; k += 256)
        mean += h[k];
    mean = block_sum(mean) / size;
    for (int k = threadIdx.x; k < size; k += 256)
        var += (h[k] - mean) * (h[k] - mean);
    var = rsqrtf(block_sum(var) / size + 1e-5f);
    for (int k = threadIdx.x; k < size; k += 256) {
        float v = (h[k] - mean) * var * g[first + k] + b[first + k];
        v = v * sigmoid(v) * w[first + k];
        y[k] = v * sigmoid(v);
    }
}
"""

JOIN = """
extern "C" __global__ void join(const float *x, const float *h, float *y, long long n, int a, int b)
{
    INDEX(n)
    y[i] = i % (a + b) < a ? x[i / (a + b) * a + i % (a + b)] : h[i / (a + b) * b + i % (a + b) - a];
}
extern "C" __global__ void squash(float *h, long long n) { INDEX(n) h[i] = tanhf(h[i]); }
"""

ROW_SOFTMAX = """
extern "C" __global__ void row(const float *h, float *y, int n)
{
    float most = -INFINITY, sum = 0;
    h += (long long)blockIdx.x * n, y += (long long)blockIdx.x * n;
    for (int k = threadIdx.x; k < n; k += 256)
        most = fmaxf(most, gelu(h[k]));
    most = block_max(most);
    for (int k = threadIdx.x; k < n; k += 256)
        sum += expf(gelu(h[k]) - most);
    sum = block_sum(sum);
    for (int k = threadIdx.x; k < n; k += 256)
        y[k] = expf(gelu(h[k]) - most) / sum;
}
"""

PLANES = {"dim1": 128, "dim2": 128}
TINY = {"dim1": 6, "dim2": 5}

CASES = [
    Case(1, 1, ("", [gemm("A", "B", "y", "BATCH", "N", "N")]), ('"k": "N"', '"k": "N-1"'), small={"N": 64}),
    Case(1, 3, ("", [gemm("A", "B", "y", "m", "n", "k", batch="BATCH")]),
         ('"batch": "BATCH"', '"batch": "BATCH", "stride_b": "0"'), values={"batch_size": 32}, small={"m": 16, "n": 24, "k": 40, "batch_size": 4}),
    Case(1, 12, (DIAGONAL, [kernel("scale", "BATCH*M", "A", "B", "y", i64("BATCH*M"), *i32("M"))]), ("a[i / m] * b[i]", "b[i]"), small={"M": 48, "N": 40}),
    Case(1, 21, pointwise("sigmoid(v)"), ("expf(-v)", "expf(-v) * 1.01f"), values={"batch_size": 64}, small={"batch_size": 4, "dim": 200}),
    Case(1, 24, (LOG_SOFTMAX, [rows("row", "BATCH", "x", "y", i64("dim"))]), ("y[k] = x[k] - most - sum", "y[k] = x[k] - sum"),
         values={"batch_size": 128}, small={"batch_size": 4, "dim": 300}),
    Case(1, 26, pointwise("gelu(v)"), ("0.5f * v * (1.0f", "0.5f * v * (1.001f"), values={"batch_size": 64}, small={"batch_size": 4, "dim": 200}),
    Case(1, 33, (BATCH_NORM, [rows("channel", "features", "x", "bn.weight", "bn.bias", "y", *i32("BATCH", "features", "dim1*dim2"))]),
         ("plane + k] - mean) * scale", "plane + k]) * scale"), values=PLANES, small={"batch_size": 4, "features": 8, **TINY}),
    Case(1, 36, (RMS_NORM, [kernel("position", "BATCH*dim1*dim2", "x", "y", i64("BATCH*dim1*dim2"), *i32("features", "dim1*dim2"))]),
         ("sum / channels", "sum / (channels + 1)"), values=PLANES, small={"batch_size": 4, "features": 8, **TINY}),
    Case(1, 40, (LAYER_NORM, [rows("row", "BATCH", "x", "ln.weight", "ln.bias", "y", i64("features*dim1*dim2"))]),
         ("(x[k] - mean) * var", "x[k] * var"), small={"batch_size": 4, "features": 8, **TINY}),
    Case(1, 42, (POOL, [kernel("pool", "BATCH*channels*(height-1)*(width-1)", "x", "y", *i32("BATCH*channels", "height", "width", "kernel_size", "stride", "padding"))]),
         ("best = -INFINITY", "best = 0.9f"), values={"batch_size": 4}, small={"channels": 3, "height": 12, "width": 9}),
    Case(1, 47, (COLUMN_SUM, [kernel("column", "BATCH*dim2", "x", "y", i64("BATCH*dim2"), *i32("dim1", "dim2"))]), ("float sum = 0", "float sum = 1"),
         values={"batch_size": 4}, small={"batch_size": 4, "dim1": 40, "dim2": 31}),
    Case(1, 51, (ARGMAX, [kernel("column", "BATCH*dim2", "x", "y", i64("BATCH*dim2"), *i32("dim1", "dim2"))]), ("k < rows;", "k < rows - 1;"),
         values={"batch_size": 4}, small={"batch_size": 4, "dim1": 20, "dim2": 31}),
    Case(1, 62, (CONV.replace("CONV_RESULT", "sum").replace("b ? b[c] : ", ""),
                 [kernel("conv", "BATCH*out_channels*(height-4)*(width-8)", "x", "conv2d.weight", "x", "y",
                         *i32("BATCH", "in_channels", "height", "width", "out_channels", 5, 9, 1, 0, 1))]),
         ("q < kw;", "q < kw - 1;"), values={"batch_size": 4, "height": 128, "width": 128}, small={"in_channels": 3, "out_channels": 4, "height": 12, "width": 14}),
    Case(1, 82, (CONV.replace("CONV_RESULT", "sum").replace("b ? b[c] : ", ""),
                 [kernel("conv", "BATCH*in_channels*(height-2)*(width-2)", "x", "conv2d.weight", "x", "y",
                         *i32("BATCH", "in_channels", "height", "width", "in_channels", "kernel_size", "kernel_size", 1, 0, "in_channels"))]),
         ("r < kh;", "r < kh - 1;"), values={"batch_size": 2}, small={"in_channels": 5, "height": 12, "width": 14}),
    Case(1, 88, pointwise("0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)))"), ("0.044715f", "0.05f"),
         small={"batch_size": 8, "dim": 100}),
    Case(1, 89, (CUMSUM, [kernel("scan", "BATCH", "x", "y", i64("BATCH"), *i32("dim1"), block=32)]), ("y[i * width + k] = sum", "y[i * width + k] = sum - x[i * width + k]"),
         values={"batch_size": 2048, "input_shape": (4096,)}, small={"batch_size": 4, "input_shape": (50,)}),
    Case(1, 95, (CROSS_ENTROPY, [rows("row", "BATCH", "predictions", "targets", "loss", *i32("num_classes")), rows("mean", 1, "loss", "y", *i32("BATCH"))]),
         ("logf(sum) + most", "logf(sum)"), values={"batch_size": 4096}, small={"batch_size": 16, "num_classes": 40}, buffers={"loss": buffer("BATCH")}),
    Case(1, 97, attention(1024), ("k <= last; k += 256)\n        sum", "k < last; k += 256)\n        sum"),
         values={"batch_size": 2}, small={"num_heads": 2, "sequence_length": 20}, buffers={"s": buffer("BATCH*num_heads", "sequence_length", "sequence_length")}),
    Case(2, 12, fused("v > 0 ? 2.0f * v : 0.2f * v", name="gemm"), ("0.2f * v", "0.1f * v"), small=NARROW, values=WIDE, buffers=H),
    Case(2, 29, fused("mish(mish(v))"), ("mish(mish(v))", "mish(v)"), small=NARROW, values=WIDE, buffers=H),
    Case(2, 40, fused("1.5f * v", name="matmul"), ("1.5f", "1.51f"), small=NARROW, values={"batch_size": 4096, **WIDE}, buffers=H),
    Case(2, 63, fused("fmaxf(v, 0.0f) / 2.0f"), ("fmaxf(v, 0.0f)", "v"), small=NARROW, values=WIDE, buffers=H),
    Case(2, 69, (CONV.replace("CONV_RESULT", "fmaxf(sum * fminf(fmaxf(sum + 3.0f, 0.0f), 6.0f) / 6.0f, 0.0f)"),
                 [kernel("conv", "BATCH*out_channels*126*126", "x", "conv.weight", "conv.bias", "y", *i32("BATCH", "in_channels", 128, 128, "out_channels", 3, 3, 1, 0, 1))]),
         ("b ? b[c] : 0.0f", "0.0f"), values={"batch_size": 16}, small={"batch_size": 2, "in_channels": 1, "out_channels": 2}),
    Case(2, 76, fused("fmaxf(v + p, 0.0f)", name="gemm", bias=None, extra="bias"), ("v + p", "v"), small=NARROW, values=WIDE, buffers=H),
    Case(2, 86, fused("gelu(v / 10.0f)", n="output_size", k="input_size", count="BATCH*output_size"), ("v / 10.0f", "v / 9.9f"),
         small={"batch_size": 16, "input_size": 48, "output_size": 32}, values={"input_size": 2048, "output_size": 1024}, buffers={"h": buffer("BATCH", "output_size")}),
    Case(2, 88, (GROUP_NORM, [linear("x", "gemm", "h", "BATCH", "out_features", "in_features"),
                              rows("group", "BATCH*num_groups", "h", "group_norm.weight", "group_norm.bias", "multiply_weight", "y", *i32("out_features", "num_groups"))]),
         ("v * sigmoid(v) * w", "v * w"), values={**WIDE, "num_groups": 32}, small={**NARROW, "num_groups": 4}, buffers=H),
    Case(2, 95, fused("fminf(fmaxf(gelu(tanhf((v + p) * sigmoid(v + p))), -1.0f), 1.0f)", name="matmul", extra="add_value"), ("gelu(tanhf(", "(tanhf("),
         small=NARROW, values=WIDE, buffers=H),
    Case(2, 99, (ROW_SOFTMAX, [linear("x", "linear", "h", "BATCH", "out_features", "in_features"), rows("row", "BATCH", "h", "y", *i32("out_features"))]),
         ("sum += expf(gelu(h[k]) - most)", "sum += expf(h[k] - most)"), values={"in_features": 2048, "out_features": 256}, small=NARROW, buffers=H),
    Case(3, 1, ("", [linear("x", "network.0", "a", "BATCH", "width", "input_size", epilogue="relu"),
                     linear("a", "network.2", "b", "BATCH", "width", "width", epilogue="relu"), linear("b", "network.4", "y", "BATCH", "output_size", "width")]),
         ('"bias": "network.2.bias", "epilogue": "relu"', '"bias": "network.2.bias"'),
         values={"input_size": 2048, "layer_sizes": [2048, 2048], "output_size": 1024},
         small={"batch_size": 4, "input_size": 64, "layer_sizes": [80, 80], "output_size": 32},
         buffers={"a": buffer("BATCH", "width"), "b": buffer("BATCH", "width")}),
    Case(3, 4, LENET, ("fmaxf(sum, 0.0f)", "sum"), small={"batch_size": 2},
         buffers={"a": buffer("BATCH", 6 * 28 * 28), "b": buffer("BATCH", 6 * 14 * 14), "c": buffer("BATCH", 1600), "d": buffer("BATCH", 400),
                  "e": buffer("BATCH", 120), "f": buffer("BATCH", 84)}),
    Case(3, 33, (JOIN, [kernel("join", "BATCH*(input_size+hidden_size)", "x", "initial_hidden", "c", i64("BATCH*(input_size+hidden_size)"), *i32("input_size", "hidden_size")),
                        linear("c", "i2h", "h", "BATCH", "hidden_size", "input_size+hidden_size"), kernel("squash", "BATCH*hidden_size", "h", i64("BATCH*hidden_size")),
                        linear("h", "h2o", "y", "BATCH", "output_size", "hidden_size")]),
         ("tanhf(h[i])", "h[i]"), values={"input_size": 1024, "hidden_size": 1024, "output_size": 512},
         small={"batch_size": 4, "input_size": 24, "hidden_size": 20, "output_size": 12},
         buffers={"c": buffer("BATCH", "input_size+hidden_size"), "h": buffer("BATCH", "hidden_size")}),
    Case(3, 43, GPT_ATTENTION, ("causal ? blockIdx.x % n : n - 1", "n - 1"), values={"batch_size": 16}, small={"batch_size": 2, "seq_len": 12, "n_embd": 192, "n_head": 2, "max_seqlen": 16},
         buffers={"qkv": buffer("BATCH*seq_len", "3*n_embd"), "s": buffer("BATCH*n_head*seq_len", "seq_len"),
                  **{name: buffer("BATCH*seq_len", "n_embd") for name in ("q", "k", "v", "a", "o")}}),
]  # fmt: skip

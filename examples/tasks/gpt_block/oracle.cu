// SPDX-License-Identifier: MIT
// The block in float64: the oracle that candidates are compared with. Plain on purpose.

__global__ void widen(const float *__restrict__ in, double *__restrict__ out, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i];
}

__device__ double block_sum(double v, double *scratch)
{
    for (int offset = 16; offset > 0; offset >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, offset);
    __syncthreads();
    if ((threadIdx.x & 31) == 0)
        scratch[threadIdx.x >> 5] = v;
    __syncthreads();
    double sum = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++)
        sum += scratch[w];
    return sum;
}

__device__ double block_max(double v, double *scratch)
{
    for (int offset = 16; offset > 0; offset >>= 1)
        v = fmax(v, __shfl_xor_sync(0xffffffffu, v, offset));
    __syncthreads();
    if ((threadIdx.x & 31) == 0)
        scratch[threadIdx.x >> 5] = v;
    __syncthreads();
    double best = scratch[0];
    for (int w = 1; w < (int)blockDim.x / 32; w++)
        best = fmax(best, scratch[w]);
    return best;
}

// One row a block.
template <typename In>
__global__ void layer_norm(const In *__restrict__ x, const float *__restrict__ w, const float *__restrict__ b,
                           double *__restrict__ out, int width)
{
    __shared__ double scratch[32];
    const In *row = x + blockIdx.x * (long long)width;
    double sum = 0;
    for (int c = threadIdx.x; c < width; c += blockDim.x)
        sum += row[c];
    double mean = block_sum(sum, scratch) / width;
    double squares = 0;
    for (int c = threadIdx.x; c < width; c += blockDim.x)
        squares += (row[c] - mean) * (row[c] - mean);
    double scale = 1.0 / sqrt(block_sum(squares, scratch) / width + 1e-5);
    for (int c = threadIdx.x; c < width; c += blockDim.x)
        out[blockIdx.x * (long long)width + c] = (row[c] - mean) * scale * w[c] + b[c];
}

// qkv [B*T, 3*C] -> q, k, v [B*H, T, D], biases added.
__global__ void split_heads(const double *__restrict__ qkv, const float *__restrict__ bias, double *__restrict__ q,
                            double *__restrict__ k, double *__restrict__ v, int T, int C, int H, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int D = C / H;
    int d = (int)(i % D);
    int t = (int)(i / D % T);
    int h = (int)(i / ((long long)D * T) % H);
    long long b = i / ((long long)D * T * H);
    const double *row = qkv + (b * T + t) * 3 * C;
    int c = h * D + d;
    q[i] = row[c] + bias[c];
    k[i] = row[C + c] + bias[C + c];
    v[i] = row[2 * C + c] + bias[2 * C + c];
}

// One row of scores [B*H*T, T] a block, in place.
__global__ void causal_softmax(double *__restrict__ s, int T, double scale)
{
    __shared__ double scratch[32];
    double *row = s + blockIdx.x * (long long)T;
    int last = blockIdx.x % T;
    double m = -1e300;
    for (int c = threadIdx.x; c <= last; c += blockDim.x)
        m = fmax(m, row[c] * scale);
    m = block_max(m, scratch);
    double sum = 0;
    for (int c = threadIdx.x; c <= last; c += blockDim.x)
        sum += exp(row[c] * scale - m);
    sum = block_sum(sum, scratch);
    for (int c = threadIdx.x; c < T; c += blockDim.x)
        row[c] = c <= last ? exp(row[c] * scale - m) / sum : 0.0;
}

// o [B*H, T, D] -> out [B*T, C]
__global__ void join_heads(const double *__restrict__ o, double *__restrict__ out, int T, int C, int H, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int D = C / H;
    int c = (int)(i % C);
    long long row = i / C;
    int t = (int)(row % T);
    long long b = row / T;
    out[i] = o[((b * H + c / D) * T + t) * D + c % D];
}

// out = residual + (product + bias)
template <typename Residual>
__global__ void add_bias_residual(const double *__restrict__ product, const float *__restrict__ bias,
                                  const Residual *__restrict__ residual, double *__restrict__ out, int width, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = residual[i] + (product[i] + bias[i % width]);
}

__global__ void bias_gelu(double *__restrict__ h, const float *__restrict__ bias, int width, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) {
        double x = h[i] + bias[i % width];
        h[i] = 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    }
}

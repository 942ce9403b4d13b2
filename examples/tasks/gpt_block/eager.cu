// SPDX-License-Identifier: MIT
// What an eager framework launches for the block in float32: one kernel an operator, products by the library. It is the
// baseline where no framework runs beside us; examples/tasks/gpt_block/README.md compares the two on one machine.

__device__ float warp_sum(float v)
{
    for (int offset = 16; offset > 0; offset >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, offset);
    return v;
}

__device__ float warp_max(float v)
{
    for (int offset = 16; offset > 0; offset >>= 1)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
    return v;
}

// One row a block of 256 threads.
__global__ void __launch_bounds__(256) layer_norm(const float *__restrict__ x, const float *__restrict__ w,
                                                  const float *__restrict__ b, float *__restrict__ out, int width)
{
    __shared__ float sums[8], squares[8];
    const float *row = x + blockIdx.x * (long long)width;
    float sum = 0;
    for (int c = threadIdx.x; c < width; c += 256)
        sum += row[c];
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0)
        sums[threadIdx.x >> 5] = sum;
    __syncthreads();
    float mean = 0;
    for (int i = 0; i < 8; i++)
        mean += sums[i];
    mean /= width;
    float square = 0;
    for (int c = threadIdx.x; c < width; c += 256)
        square += (row[c] - mean) * (row[c] - mean);
    square = warp_sum(square);
    if ((threadIdx.x & 31) == 0)
        squares[threadIdx.x >> 5] = square;
    __syncthreads();
    float variance = 0;
    for (int i = 0; i < 8; i++)
        variance += squares[i];
    float scale = rsqrtf(variance / width + 1e-5f);
    for (int c = threadIdx.x; c < width; c += 256)
        out[blockIdx.x * (long long)width + c] = (row[c] - mean) * scale * w[c] + b[c];
}

// part 0, 1, 2 of qkv [B*T, 3*C] -> out [B*H, T, D]
__global__ void take_heads(const float *__restrict__ qkv, float *__restrict__ out, int part, int T, int C, int H, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int D = C / H;
    int d = (int)(i % D);
    int t = (int)(i / D % T);
    int h = (int)(i / ((long long)D * T) % H);
    long long b = i / ((long long)D * T * H);
    out[i] = qkv[(b * T + t) * 3 * C + part * C + h * D + d];
}

__global__ void mask_scores(float *__restrict__ s, int T, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n && i % T > i / T % T)
        s[i] = -__int_as_float(0x7f800000);
}

// One row a warp, 4 rows a block.
__global__ void __launch_bounds__(128) softmax(float *__restrict__ s, int T, long long rows)
{
    long long r = blockIdx.x * 4ll + (threadIdx.x >> 5);
    if (r >= rows)
        return;
    float *row = s + r * T;
    int lane = threadIdx.x & 31;
    float m = -__int_as_float(0x7f800000);
    for (int c = lane; c < T; c += 32)
        m = fmaxf(m, row[c]);
    m = warp_max(m);
    float sum = 0;
    for (int c = lane; c < T; c += 32)
        sum += __expf(row[c] - m);
    sum = warp_sum(sum);
    for (int c = lane; c < T; c += 32)
        row[c] = __expf(row[c] - m) / sum;
}

// o [B*H, T, D] -> out [B*T, C]
__global__ void join_heads(const float *__restrict__ o, float *__restrict__ out, int T, int C, int H, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int D = C / H;
    int c = (int)(i % C);
    long long row = i / C;
    out[i] = o[((row / T * H + c / D) * T + row % T) * D + c % D];
}

__global__ void add(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ out, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = a[i] + b[i];
}

__global__ void gelu(const float *__restrict__ h, float *__restrict__ out, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) {
        float x = h[i];
        out[i] = 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    }
}

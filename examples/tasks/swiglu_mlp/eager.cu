// SPDX-License-Identifier: MIT
// The layer as an eager framework launches it in float32: one kernel an operator, products by the library.

// One row a block of 256 threads.
__global__ void rms_norm(const float *__restrict__ x, const float *__restrict__ w, float *__restrict__ out, int width)
{
    __shared__ float partial[256];
    const float *row = x + blockIdx.x * (long long)width;
    float sum = 0;
    for (int c = threadIdx.x; c < width; c += 256)
        sum += row[c] * row[c];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if ((int)threadIdx.x < step)
            partial[threadIdx.x] += partial[threadIdx.x + step];
        __syncthreads();
    }
    float scale = rsqrtf(partial[0] / width + 1e-6f);
    for (int c = threadIdx.x; c < width; c += 256)
        out[blockIdx.x * (long long)width + c] = row[c] * scale * w[c];
}

__global__ void silu(const float *__restrict__ g, float *__restrict__ out, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = g[i] / (1.0f + __expf(-g[i]));
}

__global__ void mul(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ out, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = a[i] * b[i];
}

__global__ void add(const float *__restrict__ x, const float *__restrict__ p, float *__restrict__ y, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] + p[i];
}

// SPDX-License-Identifier: MIT
// The layer in float64: the oracle that candidates are compared with. Plain on purpose.

__global__ void widen(const float *__restrict__ in, double *__restrict__ out, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i];
}

// One row a block of 256 threads.
__global__ void rms_norm(const float *__restrict__ x, const float *__restrict__ w, double *__restrict__ out, int width)
{
    __shared__ double partial[256];
    const float *row = x + blockIdx.x * (long long)width;
    double sum = 0;
    for (int c = threadIdx.x; c < width; c += 256)
        sum += (double)row[c] * row[c];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if ((int)threadIdx.x < step)
            partial[threadIdx.x] += partial[threadIdx.x + step];
        __syncthreads();
    }
    double scale = 1.0 / sqrt(partial[0] / width + 1e-6);
    for (int c = threadIdx.x; c < width; c += 256)
        out[blockIdx.x * (long long)width + c] = row[c] * scale * w[c];
}

// g = silu(g) * u
__global__ void silu_mul(double *__restrict__ g, const double *__restrict__ u, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        g[i] = g[i] / (1.0 + exp(-g[i])) * u[i];
}

__global__ void add(const float *__restrict__ x, const double *__restrict__ p, double *__restrict__ y, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] + p[i];
}

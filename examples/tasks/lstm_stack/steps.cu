// SPDX-License-Identifier: MIT
// The LSTM stack in float32, a step at a time: what code without a fused recurrent kernel launches.
// Sequences are kept [T, B, C], so that one step is one contiguous matrix.

// x [B, T, C] -> out [T, B, C]
__global__ void steps_first(const float *__restrict__ x, float *__restrict__ out, int B, int T, int C)
{
    int t = blockIdx.x, b = blockIdx.y;
    for (int c = threadIdx.x; c < C; c += blockDim.x)
        out[((long long)t * B + b) * C + c] = x[((long long)b * T + t) * C + c];
}

// s [T, B, C] -> y [B, T, C]
__global__ void batch_first(const float *__restrict__ s, float *__restrict__ y, int B, int T, int C)
{
    int t = blockIdx.x, b = blockIdx.y;
    for (int c = threadIdx.x; c < C; c += blockDim.x)
        y[((long long)b * T + t) * C + c] = s[((long long)t * B + b) * C + c];
}

// One step: gates_x and gates_h [B, 4*C] -> cell and hidden state [B, C]. One batch row a block.
__global__ void cell_step(const float *__restrict__ gates_x, const float *__restrict__ gates_h, const float *__restrict__ b_ih,
                          const float *__restrict__ b_hh, float *__restrict__ cell, float *__restrict__ hidden, int C)
{
    const float *gx = gates_x + blockIdx.x * 4ll * C, *gh = gates_h + blockIdx.x * 4ll * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        float g[4];
        for (int k = 0; k < 4; k++)
            g[k] = gx[k * C + c] + gh[k * C + c] + b_ih[k * C + c] + b_hh[k * C + c];
        long long at = blockIdx.x * (long long)C + c;
        float i = 1.0f / (1.0f + __expf(-g[0])), f = 1.0f / (1.0f + __expf(-g[1])), o = 1.0f / (1.0f + __expf(-g[3]));
        float next = f * cell[at] + i * tanhf(g[2]);
        cell[at] = next;
        hidden[at] = o * tanhf(next);
    }
}

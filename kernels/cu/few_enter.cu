// The beginning of a hyper-connection site for few rows, from the mixes that merging has begun (few_merge.cuh): gates,
// the block's input, and what merges its output later. Formulas: reference/hyper_connection.rs. A block a row.
#include "balance.cuh"
#include "intrinsics.cuh"

#define MIXES 24
#define MERGE 20
#define PARTIALS 25
#define THREADS 1024
// Quads of channels that a thread holds at most.
#define QUADS 2

struct Enter {
    const float *streams;       // [rows][4][width]
    const float *partials;      // [rows][25][panels]
    const float *base, *scale, *norm;
    float *input;               // [rows][width]
    float *merge;               // [rows][20]
    uint32_t width, panels, iterations;
    float norm_epsilon, mix_epsilon;
    uint32_t reserved;
};

// The mixes of a row, and its sum of squares, for every thread.
static __device__ __forceinline__ void gather_mixes(const Enter &e, uint32_t row, float *mixes) {
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (warp < PARTIALS) {
        const float *own = e.partials + ((size_t)row * PARTIALS + warp) * e.panels;
        double sum = 0;
        for (uint32_t panel = lane; panel < e.panels; panel += 32) sum += (double)own[panel];
        sum = sum_over_warp(sum);
        if (lane == 0) mixes[warp] = (float)sum;
    }
    __syncthreads();
}

static __device__ __forceinline__ float root_of(const Enter &e, const float *mixes) {
    return rsqrtf(mixes[MIXES] / (float)(e.width * STREAMS) + e.norm_epsilon);
}

// What merges the output: one thread balances the stream matrix.
static __device__ __forceinline__ void merge_values(const Enter &e, uint32_t row, float *mixes) {
    gather_mixes(e, row, mixes);
    const float root = root_of(e, mixes);
    float *merge = e.merge + (size_t)row * MERGE;
    if (threadIdx.x == 0) {
        float m[STREAMS][STREAMS];
#pragma unroll
        for (int i = 0; i < STREAMS * STREAMS; i++) m[i / STREAMS][i % STREAMS] = fmaf(root * mixes[2 * STREAMS + i], e.scale[2], e.base[2 * STREAMS + i]);
        balance(m, e.mix_epsilon, e.iterations);
#pragma unroll
        for (int i = 0; i < STREAMS * STREAMS; i++) merge[STREAMS + i] = m[i / STREAMS][i % STREAMS];
    } else if (threadIdx.x >= 32 && threadIdx.x < 32 + STREAMS) {
        const uint32_t i = threadIdx.x - 32;
        merge[i] = 2.0f * sigmoid(fmaf(root * mixes[STREAMS + i], e.scale[1], e.base[STREAMS + i]));
    }
}

// Two blocks a row: the input, and what merges the output.
extern "C" __global__ void __launch_bounds__(THREADS) few_enter(const __grid_constant__ Enter e) {
    __shared__ double shared[32];
    __shared__ float mixes[PARTIALS], gates[STREAMS];
    const uint32_t row = blockIdx.y, quads = e.width / 4;
    wait_for_previous();
    let_next_start();
    if (blockIdx.x == 1) return merge_values(e, row, mixes);
    const float4 *streams = (const float4 *)(e.streams + (size_t)row * STREAMS * e.width);
    float4 x[QUADS][STREAMS];
#pragma unroll
    for (uint32_t q = 0; q < QUADS; q++)
#pragma unroll
        for (uint32_t i = 0; i < STREAMS; i++) {
            const uint32_t quad = q * THREADS + threadIdx.x;
            x[q][i] = quad < quads ? streams[i * quads + quad] : make_float4(0, 0, 0, 0);
        }
    gather_mixes(e, row, mixes);
    if (threadIdx.x < STREAMS)
        gates[threadIdx.x] = sigmoid(fmaf(root_of(e, mixes) * mixes[threadIdx.x], e.scale[0], e.base[threadIdx.x])) + e.mix_epsilon;
    __syncthreads();
    double squares = 0;
    float4 sum[QUADS];
#pragma unroll
    for (uint32_t q = 0; q < QUADS; q++) {
        float4 s = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t i = 0; i < STREAMS; i++) {
            const float gate = gates[i];
            s.x = fmaf(gate, x[q][i].x, s.x), s.y = fmaf(gate, x[q][i].y, s.y), s.z = fmaf(gate, x[q][i].z, s.z), s.w = fmaf(gate, x[q][i].w, s.w);
        }
        sum[q] = s;
        squares += (double)fmaf(s.x, s.x, s.y * s.y) + (double)fmaf(s.z, s.z, s.w * s.w);
    }
    squares = sum_over_block(squares, shared);
    const float scale = (float)(1.0 / sqrt(squares / (double)e.width + (double)e.norm_epsilon));
#pragma unroll
    for (uint32_t q = 0; q < QUADS; q++) {
        const uint32_t quad = q * THREADS + threadIdx.x;
        if (quad >= quads) continue;
        const float4 norm = ((const float4 *)e.norm)[quad], s = sum[q];
        ((float4 *)(e.input + (size_t)row * e.width))[quad] = make_float4(s.x * scale * norm.x, s.y * scale * norm.y, s.z * scale * norm.z, s.w * scale * norm.w);
    }
}

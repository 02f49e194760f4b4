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
static __device__ __forceinline__ void gather_mixes(const Enter &e, uint32_t row, double *mixes) {
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (warp < PARTIALS) {
        const float *own = e.partials + ((size_t)row * PARTIALS + warp) * e.panels;
        double sum = 0;
        for (uint32_t panel = lane; panel < e.panels; panel += 32) sum += (double)own[panel];
        sum = sum_over_warp(sum);
        if (lane == 0) mixes[warp] = sum;
    }
    __syncthreads();
}

static __device__ __forceinline__ double root_of(const Enter &e, const double *mixes) {
    return 1.0 / sqrt(mixes[MIXES] / (double)(e.width * STREAMS) + (double)e.norm_epsilon);
}

// What merges the output: a warp balances the stream matrix.
static __device__ __forceinline__ void merge_values(const Enter &e, uint32_t row, double *mixes) {
    gather_mixes(e, row, mixes);
    const double root = root_of(e, mixes);
    float *merge = e.merge + (size_t)row * MERGE;
    if (threadIdx.x < 32) {
        const uint32_t element = threadIdx.x % (STREAMS * STREAMS), i = 2 * STREAMS + element;
        const double own = balanced(scaled(root * mixes[i], e.scale[2], e.base[i]), (double)e.mix_epsilon, e.iterations);
        merge[STREAMS + element] = (float)own;
    } else if (threadIdx.x < 32 + STREAMS) {
        const uint32_t i = threadIdx.x - 32;
        merge[i] = (float)(2.0 * sigmoid_double(scaled(root * mixes[STREAMS + i], e.scale[1], e.base[STREAMS + i])));
    }
}

// Two blocks a row: the input, and what merges the output.
extern "C" __global__ void __launch_bounds__(THREADS) few_enter(const __grid_constant__ Enter e) {
    __shared__ double shared[32], mixes[PARTIALS];
    __shared__ float gates[STREAMS];
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
    if (threadIdx.x < STREAMS) {
        const double mixed = root_of(e, mixes) * mixes[threadIdx.x];
        gates[threadIdx.x] = (float)(sigmoid_double(scaled(mixed, e.scale[0], e.base[threadIdx.x])) + (double)e.mix_epsilon);
    }
    __syncthreads();
    double squares = 0;
    float4 sum[QUADS];
#pragma unroll
    for (uint32_t q = 0; q < QUADS; q++) {
        float4 s = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t i = 0; i < STREAMS; i++) {
            const float gate = gates[i];
            s.x = __fadd_rn(s.x, __fmul_rn(gate, x[q][i].x)), s.y = __fadd_rn(s.y, __fmul_rn(gate, x[q][i].y));
            s.z = __fadd_rn(s.z, __fmul_rn(gate, x[q][i].z)), s.w = __fadd_rn(s.w, __fmul_rn(gate, x[q][i].w));
        }
        sum[q] = s;
        squares += (double)s.x * s.x + (double)s.y * s.y + (double)s.z * s.z + (double)s.w * s.w;
    }
    squares = sum_over_block(squares, shared);
    const double scale = 1.0 / sqrt(squares / (double)e.width + (double)e.norm_epsilon);
#pragma unroll
    for (uint32_t q = 0; q < QUADS; q++) {
        const uint32_t quad = q * THREADS + threadIdx.x;
        if (quad >= quads) continue;
        const float4 norm = ((const float4 *)e.norm)[quad], s = sum[q];
        ((float4 *)(e.input + (size_t)row * e.width))[quad] =
            make_float4((float)((double)s.x * scale * (double)norm.x), (float)((double)s.y * scale * (double)norm.y),
                        (float)((double)s.z * scale * (double)norm.z), (float)((double)s.w * scale * (double)norm.w));
    }
}

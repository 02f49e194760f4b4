// The beginning of a hyper-connection site for few rows, from the mixes that merging has begun (few_merge.cuh): gates and
// the block's input. Formulas: reference/hyper_connection.rs. A block a row. What merges the block's output is not needed
// before that output is there, and takes longer: merge_values.cuh.
#include "merge_values.cuh"
#include "intrinsics.cuh"

#define THREADS 1024
// Quads of channels that a thread holds at most.
#define QUADS 2

// Warps that add up one of the mixes that gates are made of, or the squares.
#define SHARING 6

struct Enter {
    Mixes mixes;
    const float *streams;       // [rows][4][width]
    const float *norm;
    float *input;               // [rows][width]
};

extern "C" __global__ void __launch_bounds__(THREADS) few_enter(const __grid_constant__ Enter e) {
    __shared__ double mixes[STREAMS + 1][SHARING];
    __shared__ float shared[32], gates[STREAMS];
    __shared__ float4 norm[QUADS * THREADS];
    const uint32_t row = blockIdx.x, width = e.mixes.width, quads = width / 4, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    // What the model gives comes all the way from memory: it is asked for before anything is waited for.
#pragma unroll
    for (uint32_t q = 0; q < QUADS; q++) {
        const uint32_t quad = q * THREADS + threadIdx.x;
        if (quad < quads) copy_async_16(shared_address(norm + quad), (const float4 *)e.norm + quad);
    }
    const float gate_scale = e.mixes.scale[0], gate_base = threadIdx.x < STREAMS ? e.mixes.base[threadIdx.x] : 0.0f;
    wait_for_previous();
    let_next_start();
    const float4 *streams = (const float4 *)(e.streams + (size_t)row * STREAMS * width);
    float4 x[QUADS][STREAMS];
#pragma unroll
    for (uint32_t q = 0; q < QUADS; q++)
#pragma unroll
        for (uint32_t i = 0; i < STREAMS; i++) {
            const uint32_t quad = q * THREADS + threadIdx.x;
            x[q][i] = quad < quads ? streams[i * quads + quad] : make_float4(0, 0, 0, 0);
        }
    const uint32_t mix = warp / SHARING;
    if (mix <= STREAMS) {
        const float *own = e.mixes.partials + ((size_t)row * PARTIALS + (mix < STREAMS ? mix : MIXES)) * e.mixes.panels;
        double sum = 0;
#pragma unroll 4
        for (uint32_t panel = warp % SHARING * 32 + lane; panel < e.mixes.panels; panel += SHARING * 32) sum += (double)own[panel];
        sum = sum_over_warp(sum);
        if (lane == 0) mixes[mix][warp % SHARING] = sum;
    }
    __syncthreads();
    if (threadIdx.x < STREAMS) {
        double own = 0, squares = 0;
#pragma unroll
        for (uint32_t i = 0; i < SHARING; i++) own += mixes[threadIdx.x][i], squares += mixes[STREAMS][i];
        const double mixed = root_of(e.mixes, squares) * own;
        const double gate = sigmoid_double(scaled(mixed, gate_scale, gate_base));
        gates[threadIdx.x] = (float)(gate + (double)e.mixes.mix_epsilon);
    }
    __syncthreads();
    float squares = 0;
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
        squares = fmaf(s.x, s.x, fmaf(s.y, s.y, fmaf(s.z, s.z, fmaf(s.w, s.w, squares))));
    }
    squares = sum_over_block(squares, shared);
    copies_done();
    const float scale = __fdiv_rn(1.0f, __fsqrt_rn(squares / (float)width + e.mixes.norm_epsilon));
#pragma unroll
    for (uint32_t q = 0; q < QUADS; q++) {
        const uint32_t quad = q * THREADS + threadIdx.x;
        if (quad >= quads) continue;
        const float4 weight = norm[quad], s = sum[q];
        ((float4 *)(e.input + (size_t)row * width))[quad] = make_float4(s.x * scale * weight.x, s.y * scale * weight.y, s.z * scale * weight.z, s.w * scale * weight.w);
    }
}

// What merges the output, where no other launch takes it along. A block a row.
extern "C" __global__ void __launch_bounds__(256) few_merge_values(const __grid_constant__ Mixes m) {
    __shared__ double mixes[PARTIALS];
    wait_for_previous();
    let_next_start();
    merge_values(m, blockIdx.x, mixes);
}

// Arithmetic that every operation shares.
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

// e^x with the operations of the CPU truth (reference/exp.rs), so that both give the same bits.
static __device__ __forceinline__ float exponential(float x) {
    const float clamped = fminf(fmaxf(x, -87.0f), 88.0f);
    const float rounder = 12582912.0f;
    const float n = __fsub_rn(fmaf(clamped, 1.44269504f, rounder), rounder);
    const float r = fmaf(n, 2.1219444e-4f, fmaf(n, -0.693359375f, clamped));
    float sum = 1.9875692e-4f;
    sum = fmaf(sum, r, 1.3982e-3f);
    sum = fmaf(sum, r, 8.333452e-3f);
    sum = fmaf(sum, r, 4.1665795e-2f);
    sum = fmaf(sum, r, 0.16666665f);
    sum = fmaf(sum, r, 0.5f);
    const float fraction = __fadd_rn(fmaf(sum, __fmul_rn(r, r), r), 1.0f);
    const float result = __fmul_rn(fraction, __uint_as_float((uint32_t)((int)n + 127) << 23));
    if (x < -87.0f) return 0.0f;
    if (x > 88.0f) return __uint_as_float(0x7f800000u);
    return result;
}

static __device__ __forceinline__ float sigmoid(float x) {
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, exponential(-x)));
}

template <typename T> static __device__ __forceinline__ T sum_over_warp(T value) {
    for (int lane = 16; lane > 0; lane >>= 1) value += __shfl_xor_sync(0xffffffffu, value, lane);
    return value;
}

// The sum over a block's threads, given to each of them. `shared` has room for 32 values; every thread takes part.
template <typename T> static __device__ __forceinline__ T sum_over_block(T value, T *shared) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    value = sum_over_warp(value);
    __syncthreads();
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    return sum_over_warp(lane < warps ? shared[lane] : T(0));
}

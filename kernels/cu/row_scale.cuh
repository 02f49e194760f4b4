// The power of two that brings a row into the range of half floats: its largest value into [2^14, 2^15).
#pragma once
#include <stdint.h>

struct RowScale {
    float scale, inverse;
};

static __device__ __forceinline__ RowScale row_scale(float largest) {
    const int exponent = min(max((int)(__float_as_uint(largest) >> 23) - 127, -112), 127);
    return {__uint_as_float((uint32_t)(127 + 14 - exponent) << 23), __uint_as_float((uint32_t)(127 - 14 + exponent) << 23)};
}

// The same from every thread's largest magnitude of the block's row, given to each of them.
static __device__ __forceinline__ RowScale row_scale_of_block(float x) {
    __shared__ float largest[32];
    for (int step = 16; step; step >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    if (!(threadIdx.x & 31)) largest[threadIdx.x >> 5] = x;
    __syncthreads();
    x = (threadIdx.x & 31) < (blockDim.x >> 5) ? largest[threadIdx.x & 31] : 0;
    for (int step = 16; step; step >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return row_scale(x);
}

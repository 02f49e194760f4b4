// Activations of F16 as pairs of half floats: the second is what the first leaves.
#pragma once
#include "common.cuh"
#include "row_scale.cuh"

// Of the lane's eight channels; returns what the warp's 256 are multiplied by afterwards.
static __device__ __forceinline__ float half_pairs(const float (&x)[8], uint32_t (&high)[4], uint32_t (&low)[4]) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(x[i]));
    const RowScale by = row_scale(__uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most))));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 v = {x[2 * i] * by.scale, x[2 * i + 1] * by.scale};
        const __half2 h = __float22half2_rn(v);
        const float2 back = __half22float2(h);
        const __half2 rest = __float22half2_rn(make_float2(v.x - back.x, v.y - back.y));
        high[i] = *(const uint32_t *)&h, low[i] = *(const uint32_t *)&rest;
    }
    return by.inverse;
}

// Products of F16 with few rows: activations as pairs of half floats, the second what the first leaves.
#pragma once
#include "few.cuh"
#include "half_pairs.cuh"

// 128 channels of 16 raw rows; channels are a multiple of 8.
struct FewF16 {
    uint4 upper[4], lower[4];

    __device__ __forceinline__ void load(const uint8_t *weights, uint32_t columns, uint32_t outputs, uint32_t panel, uint32_t half) {
        const uint32_t lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        const uint8_t *above = weights + (size_t)min(panel * PANEL + g, outputs - 1) * columns * 2;
        const uint8_t *below = weights + (size_t)min(panel * PANEL + g + 8, outputs - 1) * columns * 2;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t channel = half * 128 + i * 32 + t * 8;
            const bool is_there = channel < columns;
            upper[i] = is_there ? load_weights_16(above + channel * 2) : make_uint4(0, 0, 0, 0);
            lower[i] = is_there ? load_weights_16(below + channel * 2) : make_uint4(0, 0, 0, 0);
        }
    }

    // `planes`: high halves and, HALF_PLANE on, what they leave of the first row of activations.
    template <int FOURS> __device__ __forceinline__ void multiply(float (&part)[FOURS][2], uint32_t planes, const uint32_t (&column)[FOURS]) const {
        const uint32_t t = threadIdx.x & 3;
        float c[FOURS][4];
#pragma unroll
        for (int n = 0; n < FOURS; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const Half2 first[4] = {upper[i].x, lower[i].x, upper[i].y, lower[i].y}, second[4] = {upper[i].z, lower[i].z, upper[i].w, lower[i].w};
#pragma unroll
            for (int n = 0; n < FOURS; n++) {
                const uint4 b = load_shared_16(planes + column[n] + i * 64 + t * 16);
                multiply_16x8x16(c[n], first, b.x, b.y);
                multiply_16x8x16(c[n], second, b.z, b.w);
            }
        }
#pragma unroll
        for (int n = 0; n < FOURS; n++) part[n][0] = c[n][0] + c[n][1], part[n][1] = c[n][2] + c[n][3];
    }
};

// Bytes of a block's high or low halves of a row.
#define HALF_PLANE 576u

// Pairs of half floats of eight channels of each lane; returns the block's scale.
static __device__ __forceinline__ float stage_halves(uint32_t planes, const float (&x)[8]) {
    const uint32_t lane = threadIdx.x & 31;
    uint32_t high[4], low[4];
    const float scale = half_pairs(x, high, low);
    store_shared_16(planes + 16 * lane, make_uint4(high[0], high[1], high[2], high[3]));
    store_shared_16(planes + HALF_PLANE + 16 * lane, make_uint4(low[0], low[1], low[2], low[3]));
    return scale;
}

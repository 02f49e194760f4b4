// The end of a hyper-connection site, a panel of channels at a time: a block's output merged into the four streams, and
// what those channels add to the next site's mixes.
#pragma once
#include "few.cuh"

#define FEW_STREAMS 4
#define FEW_MIXES 24
#define FEW_MERGE 20
// Mixes and the sum of squares.
#define FEW_PARTIALS (FEW_MIXES + 1)

struct Merge {
    float *streams;             // [rows][4][width]; null: the output goes to `out`
    const float *merge;         // [rows][20]
    const __half *next;         // the next site's mixing matrix, [mixes][4 * width]; null: none follows
    float *partials;            // [rows][25][panels of channels]
    uint32_t width;
    uint32_t mixes;             // rows of `next`: 24, or 4 before the head
};

// What eight channels of a panel's 64 add to a mix, or to the sum of squares, added up over the eight threads that have them.
static __device__ __forceinline__ float mixed_eight(uint32_t mix, uint32_t mixes, const uint4 &weights, const float *x) {
    float sum = 0;
    if (mix < mixes) {
        const uint32_t pairs[4] = {weights.x, weights.y, weights.z, weights.w};
#pragma unroll
        for (int i = 0; i < 4; i++) sum = fmaf(half_high(pairs[i]), x[2 * i + 1], fmaf(half_low(pairs[i]), x[2 * i], sum));
    } else if (mix == FEW_MIXES) {
#pragma unroll
        for (int i = 0; i < 8; i++) sum = fmaf(x[i], x[i], sum);
    }
    for (int lane = 4; lane; lane >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    return sum;
}

// What merging a panel needs, copied to shared memory while its product is computed.
template <int ROWS> struct MergePanel {
    float old[ROWS][FEW_STREAMS * PANEL];
    float merge[ROWS][FEW_MERGE];
    uint4 next[FEW_MIXES][FEW_STREAMS * PANEL / 8];
    float output[ROWS][PANEL];

    // Asks for what was there before the launch in front of this one. Whole panels: the width is a multiple of 16.
    __device__ __forceinline__ void ask(const Merge &m, uint32_t panel, uint32_t rows) {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < rows * FEW_STREAMS * 4; i += FEW_THREADS)
            copy_async_16(shared_address(old[0]) + i * 16, m.streams + (size_t)(i / 4) * m.width + panel * PANEL + i % 4 * 4);
        if (!m.next) return;
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < m.mixes * FEW_STREAMS * 2; i += FEW_THREADS)
            copy_async_16(shared_address(next[0]) + i * 16, m.next + (size_t)(i / 2) * m.width + panel * PANEL + i % 2 * 8);
    }

    // Asks for the rest. Both come with copies_done().
    __device__ __forceinline__ void ask_values(const Merge &m, uint32_t rows) {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < rows * (FEW_MERGE / 4); i += FEW_THREADS) copy_async_16(shared_address(merge[0]) + i * 16, m.merge + i * 4);
    }

    // `output` is there. Every thread of the block takes part.
    __device__ __forceinline__ void finish(const Merge &m, uint32_t panel, uint32_t panels, uint32_t rows) {
        for (uint32_t i = threadIdx.x; i < rows * PANEL; i += FEW_THREADS) {
            const uint32_t row = i / PANEL, c = i % PANEL;
            float before[FEW_STREAMS];
#pragma unroll
            for (uint32_t j = 0; j < FEW_STREAMS; j++) before[j] = old[row][j * PANEL + c];
#pragma unroll
            for (uint32_t k = 0; k < FEW_STREAMS; k++) {
                float sum = __fmul_rn(merge[row][k], output[row][c]);
#pragma unroll
                for (uint32_t j = 0; j < FEW_STREAMS; j++)
                    sum = __fadd_rn(sum, __fmul_rn(merge[row][FEW_STREAMS + j * FEW_STREAMS + k], before[j]));
                old[row][k * PANEL + c] = sum;
                m.streams[((size_t)row * FEW_STREAMS + k) * m.width + panel * PANEL + c] = sum;
            }
        }
        __syncthreads();
        if (!m.next) return;
        const uint32_t mix = threadIdx.x / 8, eighth = threadIdx.x % 8;
        for (uint32_t row = 0; row < rows; row++) {
            const float sum = mixed_eight(mix, m.mixes, next[min(mix, FEW_MIXES - 1)][eighth], old[row] + eighth * 8);
            if (eighth == 0 && (mix < m.mixes || mix == FEW_MIXES)) m.partials[((size_t)row * FEW_PARTIALS + mix) * panels + panel] = sum;
        }
    }
};

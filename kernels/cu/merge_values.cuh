// What merges a block's output into the streams, from the mixes that merging before it has begun (few_merge.cuh). It is not
// needed before the output is there, so that launches of the block's own products take it along, in blocks of threads of
// its own.
#pragma once
#include "balance.cuh"

#define MIXES 24
#define MERGE 20
#define PARTIALS 25

struct Mixes {
    const float *partials;      // [rows][25][panels]; null: nothing is asked for
    const float *base, *scale;
    float *merge;               // [rows][20]
    uint32_t width, panels, iterations, rows;
    float norm_epsilon, mix_epsilon;
};

// The mixes of a row, and its sum of squares, for every thread of the block.
static __device__ __forceinline__ void gather_mixes(const Mixes &m, uint32_t row, double *mixes) {
    const uint32_t lane = threadIdx.x & 31;
    for (uint32_t mix = threadIdx.x >> 5; mix < PARTIALS; mix += blockDim.x >> 5) {
        const float *own = m.partials + ((size_t)row * PARTIALS + mix) * m.panels;
        double sum = 0;
        for (uint32_t panel = lane; panel < m.panels; panel += 32) sum += (double)own[panel];
        sum = sum_over_warp(sum);
        if (lane == 0) mixes[mix] = sum;
    }
    __syncthreads();
}

// One over the root of the streams' mean square.
static __device__ __forceinline__ double root_of(const Mixes &m, double squares) {
    return rsqrt(squares * (1.0 / (double)(m.width * STREAMS)) + (double)m.norm_epsilon);
}

// A warp balances the stream matrix.
static __device__ __noinline__ void merge_values(const Mixes &m, uint32_t row, double *mixes) {
    gather_mixes(m, row, mixes);
    const double root = root_of(m, mixes[MIXES]);
    float *merge = m.merge + (size_t)row * MERGE;
    if (threadIdx.x < 32) {
        const uint32_t element = threadIdx.x % (STREAMS * STREAMS), i = 2 * STREAMS + element;
        const double own = balanced(scaled(root * mixes[i], m.scale[2], m.base[i]), (double)m.mix_epsilon, m.iterations);
        merge[STREAMS + element] = (float)own;
    } else if (threadIdx.x < 32 + STREAMS) {
        const uint32_t i = threadIdx.x - 32;
        merge[i] = (float)(2.0 * sigmoid_double(scaled(root * mixes[STREAMS + i], m.scale[1], m.base[STREAMS + i])));
    }
}

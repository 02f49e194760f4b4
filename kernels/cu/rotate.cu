// Rotary position embedding of every head of every row.
#include "rope.cuh"
#include "step.cuh"

// A block per row: each pair's angle is computed once and turns that pair of every head. `direction` is 1, or -1 to
// undo.
extern "C" __global__ void rotate(float *rows, Step step, Rope rope, uint32_t width, uint32_t heads, float direction) {
    __shared__ Turn turns[PAIRS];
    if (threadIdx.x < PAIRS) {
        turns[threadIdx.x] = turn_at(rope, threadIdx.x, step.positions[blockIdx.x]);
        turns[threadIdx.x].sine *= direction;
    }
    __syncthreads();
    float *row = rows + (size_t)blockIdx.x * heads * width;
    for (uint32_t i = threadIdx.x; i < heads * PAIRS; i += blockDim.x) {
        const uint32_t head = i / PAIRS, pair = i % PAIRS;
        float2 *at = (float2 *)(row + (size_t)head * width + width - ROTARY) + pair;
        *at = turned(*at, turns[pair]);
    }
}

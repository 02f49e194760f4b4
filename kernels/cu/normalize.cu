// Root-mean-square normalisation, in double precision with one rounding at the end, as the CPU truth does it.
#include "common.cuh"

// A block per row. `weight` multiplies where it is given.
extern "C" __global__ void normalize(float *rows, const float *weight, uint32_t width, float epsilon) {
    __shared__ double shared[32];
    float *row = rows + (size_t)blockIdx.x * width;
    double squares = 0.0;
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) squares += (double)row[i] * (double)row[i];
    squares = sum_over_block(squares, shared);
    const double scale = 1.0 / sqrt(squares / (double)width + (double)epsilon);
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) row[i] = (float)((double)row[i] * scale * (double)weight[i]);
}

// A warp per head.
extern "C" __global__ void normalize_heads(float *heads, uint32_t count, uint32_t width, float epsilon) {
    const uint32_t head = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (head >= count) return;
    float *row = heads + (size_t)head * width;
    double squares = 0.0;
    for (uint32_t i = lane; i < width; i += 32) squares += (double)row[i] * (double)row[i];
    squares = sum_over_warp(squares);
    const double scale = 1.0 / sqrt(squares / (double)width + (double)epsilon);
    for (uint32_t i = lane; i < width; i += 32) row[i] = (float)((double)row[i] * scale);
}

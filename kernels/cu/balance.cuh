// The stream matrix of a hyper-connection site, balanced by one thread in f32: its 39 passes wait for each other, and in
// double precision they took longer than any product of the step.
#pragma once
#include "common.cuh"

#define STREAMS 4

static __device__ __forceinline__ float inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return fmaf(fmaf(-x, y, 1.0f), y, y);
}

// Row-wise softmax, then alternating column and row passes, the last one over columns.
static __device__ void balance(float (&m)[STREAMS][STREAMS], float epsilon, uint32_t iterations) {
    const auto columns = [&]() {
#pragma unroll
        for (int k = 0; k < STREAMS; k++) {
            const float by = inverse((m[0][k] + m[1][k]) + (m[2][k] + m[3][k]) + epsilon);
#pragma unroll
            for (int j = 0; j < STREAMS; j++) m[j][k] *= by;
        }
    };
#pragma unroll
    for (int j = 0; j < STREAMS; j++) {
        const float top = fmaxf(fmaxf(m[j][0], m[j][1]), fmaxf(m[j][2], m[j][3]));
        float sum = 0;
#pragma unroll
        for (int k = 0; k < STREAMS; k++) sum += m[j][k] = exponential(m[j][k] - top);
        const float by = inverse(sum);
#pragma unroll
        for (int k = 0; k < STREAMS; k++) m[j][k] = fmaf(m[j][k], by, epsilon);
    }
    columns();
#pragma unroll 1
    for (uint32_t pass = 1; pass < iterations; pass++) {
#pragma unroll
        for (int j = 0; j < STREAMS; j++) {
            const float by = inverse((m[j][0] + m[j][1]) + (m[j][2] + m[j][3]) + epsilon);
#pragma unroll
            for (int k = 0; k < STREAMS; k++) m[j][k] *= by;
        }
        columns();
    }
}

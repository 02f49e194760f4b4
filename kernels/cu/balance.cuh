// Gates of a hyper-connection site and its stream matrix, in double precision. The matrix is balanced by a warp: its 39
// passes wait for each other.
#pragma once
#include "common.cuh"

static const uint32_t STREAMS = 4;

static __device__ __forceinline__ double sigmoid_double(double x) { return 1.0 / (1.0 + exp(-x)); }

static __device__ __forceinline__ double scaled(double logit, float scale, float base) {
    return logit * (double)scale + (double)base;
}

// a / b for b in the range of normal numbers, to the last bit or the one before it. The passes wait for each other, and an
// exact division takes twice as long.
static __device__ __forceinline__ double quotient(double a, double b) {
    double inverse;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(b));
    // Good for 20 bits; what is missing, to the second power, makes it 60.
    const double missing = fma(-b, inverse, 1.0);
    return a * fma(inverse, fma(missing, missing, missing), inverse);
}

// A warp holds the stream matrix, twice: lane 4 j + k of each half has the element of row j and column k.
static __device__ __forceinline__ double divided_by_column(double element, double epsilon) {
    double column[STREAMS];
#pragma unroll
    for (uint32_t j = 0; j < STREAMS; j++) column[j] = __shfl_sync(0xffffffffu, element, 4 * j + threadIdx.x % 4);
    return quotient(element, (column[0] + column[1]) + (column[2] + (column[3] + epsilon)));
}

// The four elements of the lane's row, in order.
static __device__ __forceinline__ void row_of(double element, double row[STREAMS]) {
#pragma unroll
    for (uint32_t k = 0; k < STREAMS; k++) row[k] = __shfl_sync(0xffffffffu, element, (threadIdx.x & 12) + k);
}

// Row-wise softmax, then alternating column and row passes, the last one over columns.
static __device__ double balanced(double element, double epsilon, uint32_t iterations) {
    double row[STREAMS];
    row_of(element, row);
    element = exp(element - fmax(fmax(row[0], row[1]), fmax(row[2], row[3])));
    row_of(element, row);
    element = quotient(element, (row[0] + row[1]) + (row[2] + row[3])) + epsilon;
    element = divided_by_column(element, epsilon);
    for (uint32_t pass = 1; pass < iterations; pass++) {
        row_of(element, row);
        element = quotient(element, (row[0] + row[1]) + (row[2] + (row[3] + epsilon)));
        element = divided_by_column(element, epsilon);
    }
    return element;
}

// Products of stored weights with some rows of activations, 9 to 64: many answers written at once.
//
// The arithmetic is that of few rows (few.cuh): activations in 16 bits of fixed point as two signed bytes, codes of weights
// as they are, exact sums on the matrix units. Experts find their rows in fixed point in memory, as the lanes of a warp
// load them (`Order`).
#pragma once
#include "few.cuh"

// How the channels of a block of 256 lie in memory:
// four lines, each with 16 high and 16 low bytes of the lanes of every t: those whose codes IQ2_XXS (GRID) or Q2_K (PLANES)
// gives these lanes.
enum Order { GRID = 0, PLANES = 1 };

#define FIXED_BLOCK 512u        // bytes of a row's block
#define LINE 128u

// Rows of activations, block by block.
struct FixedRows {
    uint8_t *codes;             // [row][block][FIXED_BLOCK]
    float *scales;              // [row][block]
    int *sums;                  // PLANES: [row][block][16], each of 16 channels, in the order that Q2_K reads them
};

// 16-bit fixed point of the lane's eight channels: `high` and `low` bytes, and the block's scale.
static __device__ __forceinline__ float fixed_eight(const float (&x)[8], uint32_t (&high)[2], uint32_t (&low)[2], int &sum) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(x[i]));
    most = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most)));
    const float top = 32639.0f, inverse = most > 1e-33f ? __fdiv_rn(top, most) : 0.0f;
    uint32_t q[8];
    sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        // 1.5 * 2^23 + q: the bits below are q's.
        q[i] = __float_as_uint(__fadd_rn(__fmul_rn(x[i], inverse), 12582912.0f));
        sum += (int)(q[i] - 0x4b400000u);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        low[i] = permute(permute(q[4 * i], q[4 * i + 1], 0x0040), permute(q[4 * i + 2], q[4 * i + 3], 0x0040), 0x5410);
        high[i] = permute(permute(q[4 * i] + 128, q[4 * i + 1] + 128, 0x0051), permute(q[4 * i + 2] + 128, q[4 * i + 3] + 128, 0x0051), 0x5410);
    }
    return most * (1.0f / top);
}

// c = a . b, as multiply_signed and multiply_unsigned add it.
static __device__ __forceinline__ void first_signed(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}
static __device__ __forceinline__ void first_unsigned(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}

static __device__ __forceinline__ bool is_own_column() {
    const uint32_t lane = threadIdx.x & 31;
    return lane >> 3 == (lane & 3);
}

// The sum of the lane's four (t) for two values at once, each lane of a pair keeping one: lanes with even t get `a`, odd `b`.
static __device__ __forceinline__ float sum_of_four_either(float a, float b) {
    const bool odd = threadIdx.x & 1;
    const float keep = odd ? b : a, give = odd ? a : b;
    const float sum = keep + __shfl_xor_sync(0xffffffffu, give, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

// A site's mixing matrix applied to the streams of many rows, and the sum of squares of every row, in one pass over them.
//
// A block takes sixteen rows; its warps share out the channels, 32 at a time, of which a lane has eight. Channels are split
// into two numbers of eleven bits each, which together are as good as f32; weights are halves, exactly.
#include "common.cuh"

#define WARPS 16
#define ROWS 16
#define TILES 3                 // of eight outputs
#define OUTPUTS (8 * TILES)

// out += a . b: sixteen rows by eight channels, by eight outputs.
static __device__ __forceinline__ void multiply_wide(float (&out)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(out[0]), "+f"(out[1]), "+f"(out[2]), "+f"(out[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// What the units take of a number, and the rest of it.
static __device__ __forceinline__ void split_wide(float x, uint32_t &high, uint32_t &low) {
    high = __float_as_uint(x) & 0xffffe000u;
    low = __float_as_uint(x - __uint_as_float(high));
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
mix_products(const float *streams, const __half *weights, float *mixes, float *squares, uint32_t rows, uint32_t columns, uint32_t outputs, uint32_t) {
    __shared__ float parts[WARPS][ROWS * OUTPUTS], square_parts[WARPS][ROWS];
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, first = blockIdx.x * ROWS;
    const float *upper = streams + (size_t)min(first + g, rows - 1) * columns + t * 8, *lower = streams + (size_t)min(first + g + 8, rows - 1) * columns + t * 8;
    float sum[TILES][4] = {}, square[2] = {0, 0};
#pragma unroll 2
    for (uint32_t channel = warp * 32; channel < columns; channel += WARPS * 32) {
        float x[2][8];
        uint4 w[TILES];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            *(float4 *)&x[0][4 * i] = ((const float4 *)(upper + channel))[i];
            *(float4 *)&x[1][4 * i] = ((const float4 *)(lower + channel))[i];
        }
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const uint32_t output = n * 8 + g;
            w[n] = output < outputs ? *(const uint4 *)(weights + (size_t)output * columns + channel + t * 8) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) square[0] = fmaf(x[0][i], x[0][i], square[0]), square[1] = fmaf(x[1][i], x[1][i], square[1]);
#pragma unroll
        for (int step = 0; step < 4; step++) {
            uint32_t high[4], low[4];
            split_wide(x[0][2 * step], high[0], low[0]), split_wide(x[1][2 * step], high[1], low[1]);
            split_wide(x[0][2 * step + 1], high[2], low[2]), split_wide(x[1][2 * step + 1], high[3], low[3]);
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                const uint32_t word = step == 0 ? w[n].x : step == 1 ? w[n].y : step == 2 ? w[n].z : w[n].w;
                const float2 pair = __half22float2(*(const __half2 *)&word);
                multiply_wide(sum[n], high, __float_as_uint(pair.x), __float_as_uint(pair.y));
                multiply_wide(sum[n], low, __float_as_uint(pair.x), __float_as_uint(pair.y));
            }
        }
    }
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) parts[warp][(g + i / 2 * 8) * OUTPUTS + n * 8 + 2 * t + i % 2] = sum[n][i];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        square[i] += __shfl_xor_sync(0xffffffffu, square[i], 1);
        square[i] += __shfl_xor_sync(0xffffffffu, square[i], 2);
        if (t == 0) square_parts[warp][g + 8 * i] = square[i];
    }
    __syncthreads();
    if (threadIdx.x < ROWS * OUTPUTS) {
        const uint32_t row = first + threadIdx.x / OUTPUTS, output = threadIdx.x % OUTPUTS;
        float all = 0;
#pragma unroll
        for (int i = 0; i < WARPS; i++) all += parts[i][threadIdx.x];
        if (row < rows && output < outputs) mixes[(size_t)row * outputs + output] = all;
    } else if (threadIdx.x - ROWS * OUTPUTS < ROWS) {
        const uint32_t local = threadIdx.x - ROWS * OUTPUTS;
        float all = 0;
#pragma unroll
        for (int i = 0; i < WARPS; i++) all += square_parts[i][local];
        if (first + local < rows) squares[first + local] = all;
    }
}

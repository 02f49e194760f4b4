// A site's mixing matrix applied to the streams of many rows, and the sum of squares of every row, in one pass over them, in
// which the block's output before it may be merged into the streams.
//
// A block takes sixteen rows; its warps share out the channels, 32 at a time, of which a lane has eight. Channels are split
// into two numbers of eleven bits each, which together are as good as f32; weights are halves, exactly.
#include "common.cuh"
#include "intrinsics.cuh"

#define WARPS 16
#define ROWS 16
#define TILES 3                 // of eight outputs
#define OUTPUTS (8 * TILES)
#define STREAMS 4
#define MERGE_WIDTH (STREAMS + STREAMS * STREAMS)

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

// What a warp has added up.
struct Sums {
    float mixes[TILES][4] = {}, squares[2] = {0, 0};

    // A lane's channels of rows g and g + 8, and their weights, two a word.
    template <int COUNT> __device__ __forceinline__ void add(const float (&x)[2][COUNT], const uint32_t (&w)[TILES][COUNT / 2]) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) squares[0] = fmaf(x[0][i], x[0][i], squares[0]), squares[1] = fmaf(x[1][i], x[1][i], squares[1]);
#pragma unroll
        for (int step = 0; step < COUNT / 2; step++) {
            uint32_t high[4], low[4];
            split_wide(x[0][2 * step], high[0], low[0]), split_wide(x[1][2 * step], high[1], low[1]);
            split_wide(x[0][2 * step + 1], high[2], low[2]), split_wide(x[1][2 * step + 1], high[3], low[3]);
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                const float2 pair = __half22float2(*(const __half2 *)&w[n][step]);
                multiply_wide(mixes[n], high, __float_as_uint(pair.x), __float_as_uint(pair.y));
                multiply_wide(mixes[n], low, __float_as_uint(pair.x), __float_as_uint(pair.y));
            }
        }
    }

    // All warps' sums, in their order, to memory.
    __device__ __forceinline__ void finish(float *mixes_out, float *squares_out, uint32_t first, uint32_t rows, uint32_t outputs) {
        __shared__ float parts[WARPS][ROWS * OUTPUTS], square_parts[WARPS][ROWS];
        const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) parts[warp][(g + i / 2 * 8) * OUTPUTS + n * 8 + 2 * t + i % 2] = mixes[n][i];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            squares[i] += __shfl_xor_sync(0xffffffffu, squares[i], 1);
            squares[i] += __shfl_xor_sync(0xffffffffu, squares[i], 2);
            if (t == 0) square_parts[warp][g + 8 * i] = squares[i];
        }
        __syncthreads();
        if (threadIdx.x < ROWS * OUTPUTS) {
            const uint32_t row = first + threadIdx.x / OUTPUTS, output = threadIdx.x % OUTPUTS;
            float all = 0;
#pragma unroll
            for (int i = 0; i < WARPS; i++) all += parts[i][threadIdx.x];
            if (row < rows && output < outputs) mixes_out[(size_t)row * outputs + output] = all;
        } else if (threadIdx.x - ROWS * OUTPUTS < ROWS) {
            const uint32_t local = threadIdx.x - ROWS * OUTPUTS;
            float all = 0;
#pragma unroll
            for (int i = 0; i < WARPS; i++) all += square_parts[i][local];
            if (first + local < rows) squares_out[first + local] = all;
        }
    }
};

template <int COUNT> static __device__ __forceinline__ void load(float (&x)[COUNT], const float *from) {
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) *(float4 *)&x[4 * i] = ((const float4 *)from)[i];
}

// The weights of a lane's channels, `at` of a row of them.
template <int COUNT>
static __device__ __forceinline__ void load_weights(uint32_t (&w)[TILES][COUNT], const __half *weights, uint32_t at, uint32_t columns, uint32_t outputs) {
#pragma unroll
    for (uint32_t n = 0; n < TILES; n++) {
        const uint32_t output = n * 8 + (threadIdx.x & 31) / 4;
        const bool there = output < outputs;
        const __half *from = weights + (size_t)output * columns + at;
        if constexpr (COUNT == 4) *(uint4 *)w[n] = there ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
        else *(uint2 *)w[n] = there ? *(const uint2 *)from : make_uint2(0, 0);
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
mix_products(const float *streams, const __half *weights, float *mixes, float *squares, uint32_t rows, uint32_t columns, uint32_t outputs, uint32_t) {
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, first = blockIdx.x * ROWS;
    const float *own[2];
#pragma unroll
    for (int i = 0; i < 2; i++) own[i] = streams + (size_t)min(first + g + 8 * i, rows - 1) * columns + t * 8;
    Sums sums;
#pragma unroll 2
    for (uint32_t channel = warp * 32; channel < columns; channel += WARPS * 32) {
        float x[2][8];
        uint32_t w[TILES][4];
        load(x[0], own[0] + channel);
        load(x[1], own[1] + channel);
        load_weights(w, weights, channel + t * 8, columns, outputs);
        sums.add(x, w);
    }
    sums.finish(mixes, squares, first, rows, outputs);
}

// Merges `output` into the streams with the values of `merge` (hyper_connection.cu), and mixes what comes of it for the next
// site.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
merge_products(float *streams, const float *merge, const float *output, const __half *weights, float *mixes, float *squares, uint32_t rows, uint32_t width, uint32_t outputs,
               uint32_t) {
    __shared__ float values[ROWS][MERGE_WIDTH];
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, first = blockIdx.x * ROWS, columns = STREAMS * width;
    wait_for_previous();
    let_next_start();
    for (uint32_t i = threadIdx.x; i < ROWS * MERGE_WIDTH; i += blockDim.x)
        values[i / MERGE_WIDTH][i % MERGE_WIDTH] = merge[(size_t)min(first + i / MERGE_WIDTH, rows - 1) * MERGE_WIDTH + i % MERGE_WIDTH];
    __syncthreads();
    Sums sums;
#pragma unroll 1
    for (uint32_t channel = warp * 16 + t * 4; channel < width; channel += WARPS * 16) {
        float old[2][STREAMS][4], value[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const size_t row = min(first + g + 8 * i, rows - 1);
            load(value[i], output + row * width + channel);
#pragma unroll
            for (uint32_t j = 0; j < STREAMS; j++) load(old[i][j], streams + row * columns + j * width + channel);
        }
        // Not unrolled: there are no registers for more than one stream's weights.
#pragma unroll 1
        for (uint32_t k = 0; k < STREAMS; k++) {
            uint32_t w[TILES][2];
            float x[2][4];
            load_weights(w, weights, k * width + channel, columns, outputs);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float *own = values[g + 8 * i];
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    float sum = __fmul_rn(own[k], value[i][c]);
#pragma unroll
                    for (uint32_t j = 0; j < STREAMS; j++) sum = __fadd_rn(sum, __fmul_rn(own[STREAMS + j * STREAMS + k], old[i][j][c]));
                    x[i][c] = sum;
                }
                if (first + g + 8 * i < rows) *(float4 *)(streams + (size_t)(first + g + 8 * i) * columns + k * width + channel) = *(const float4 *)x[i];
            }
            sums.add(x, w);
        }
    }
    sums.finish(mixes, squares, first, rows, outputs);
}

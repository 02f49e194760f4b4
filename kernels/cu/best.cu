// The likeliest token of rows of logits: the first of the largest values.
#include <stdint.h>

#define PARTS 32
#define NOTHING 0xffffffffu

struct Best {
    float value;
    uint32_t place;     // NOTHING: a value is not finite
};

static __device__ __forceinline__ Best better(Best a, Best b) {
    if (a.place == NOTHING) return a;
    if (b.place == NOTHING) return b;
    const bool first = a.value > b.value || (a.value == b.value && a.place < b.place);
    return first ? a : b;
}

static __device__ __forceinline__ Best best_of_warp(Best own) {
    for (int lane = 16; lane; lane >>= 1) {
        const Best other = {__shfl_xor_sync(0xffffffffu, own.value, lane), __shfl_xor_sync(0xffffffffu, own.place, lane)};
        own = better(own, other);
    }
    return own;
}

// Grid: PARTS blocks a row.
extern "C" __global__ void __launch_bounds__(1024) best_part(const float *logits, Best *parts, uint32_t width, uint32_t) {
    __shared__ Best of_warps[32];
    const float *row = logits + (size_t)blockIdx.y * width;
    // A thread without a value loses against every other: no place is larger than its own.
    Best own = {__uint_as_float(0xff800000u), NOTHING - 1};
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += PARTS * blockDim.x) {
        const float value = row[i];
        own = better(own, {value, isfinite(value) ? i : NOTHING});
    }
    own = best_of_warp(own);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    own = best_of_warp(of_warps[threadIdx.x]);
    if (threadIdx.x == 0) parts[blockIdx.y * PARTS + blockIdx.x] = own;
}

// A warp a row.
extern "C" __global__ void __launch_bounds__(PARTS) best_whole(const Best *parts, uint32_t *tokens) {
    const Best best = best_of_warp(parts[blockIdx.x * PARTS + threadIdx.x]);
    if (threadIdx.x == 0) tokens[blockIdx.x] = best.place;
}

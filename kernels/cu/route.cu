// route: score = sqrt(softplus(logit)); the six best of score + bias, the lower id on ties, or six fixed ones per token;
// weight = score / sum of the chosen scores * scale. A warp a row.
#include "common.cuh"
#include "intrinsics.cuh"

#define EXPERTS_USED 6
#define ROUTE_WARPS 4
// Sums of chosen scores are not taken below the smallest normal half float.
#define SMALLEST_SUM 6.1035156e-5f

struct Router {
    const float *logits;        // [rows][stack]
    const float *bias;          // [stack], or null
    const uint32_t *fixed;      // [vocabulary][EXPERTS_USED], or null
    const uint32_t *tokens;     // of every row
    uint32_t *experts;          // [rows][EXPERTS_USED]
    float *weights;             // the same
    uint32_t rows;
    uint32_t stack;
    float scale;
    uint32_t reserved;
};

static __device__ __forceinline__ float score(float logit) { return sqrtf(fmaxf(logit, 0) + log1pf(exponential(-fabsf(logit)))); }

// Larger floats give larger numbers, and of equal ones the lower id.
static __device__ __forceinline__ uint64_t order(float x, uint32_t id) {
    const uint32_t bits = __float_as_uint(x);
    return (uint64_t)(bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u)) << 32 | (0xffffffffu - id);
}

extern "C" __global__ void __launch_bounds__(ROUTE_WARPS * 32) route(Router router) {
    extern __shared__ uint64_t keys_of_block[];
    wait_for_previous();
    let_next_start();
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row = blockIdx.x * ROUTE_WARPS + warp;
    if (row >= router.rows) return;
    const float *logits = router.logits + (size_t)row * router.stack;
    uint32_t chosen = 0;        // lane `rank` holds its expert
    if (router.fixed) {
        if (lane < EXPERTS_USED) chosen = min(router.fixed[(size_t)router.tokens[row] * EXPERTS_USED + lane], router.stack - 1);
    } else {
        uint64_t *keys = keys_of_block + warp * router.stack;
        for (uint32_t id = lane; id < router.stack; id += 32) keys[id] = order(score(logits[id]) + (router.bias ? router.bias[id] : 0), id);
        uint64_t limit = ~0ull;
        for (uint32_t rank = 0; rank < EXPERTS_USED; rank++) {
            uint64_t best = 0;
            for (uint32_t id = lane; id < router.stack; id += 32)
                if (keys[id] < limit && keys[id] > best) best = keys[id];
            for (int step = 16; step; step >>= 1) {
                const uint64_t other = __shfl_xor_sync(0xffffffffu, best, step);
                if (other > best) best = other;
            }
            limit = best;
            if (lane == rank) chosen = 0xffffffffu - (uint32_t)best;
        }
    }
    const float own = lane < EXPERTS_USED ? score(logits[chosen]) : 0;
    float sum = 0;
    for (int rank = 0; rank < EXPERTS_USED; rank++) sum += __shfl_sync(0xffffffffu, own, rank);
    if (lane < EXPERTS_USED) {
        router.experts[row * EXPERTS_USED + lane] = chosen;
        router.weights[row * EXPERTS_USED + lane] = own / fmaxf(sum, SMALLEST_SUM) * router.scale;
    }
}

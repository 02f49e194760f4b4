// Choosing experts. score = sqrt(softplus(logit)); the six best of score + bias, the lower id on ties, or six fixed ones per
// token; weight = score / sum of the chosen scores * scale.
#pragma once
#include "common.cuh"
#include "intrinsics.cuh"

#define EXPERTS_USED 6
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

// Larger floats give larger numbers, and none gives 0.
static __device__ __forceinline__ uint32_t order(float x) {
    const uint32_t bits = __float_as_uint(x);
    return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

// The six largest of a row's keys, the lower id of equals: lane `rank` gets its expert. A lane has every 32nd, and 0 where
// there is none.
template <uint32_t EACH> static __device__ __forceinline__ uint32_t best_keys(uint32_t (&keys)[EACH], uint32_t stack) {
    const uint32_t lane = threadIdx.x & 31;
    uint32_t chosen = 0;
#pragma unroll
    for (uint32_t rank = 0; rank < EXPERTS_USED; rank++) {
        uint32_t best = keys[0], place = 0;
#pragma unroll
        for (uint32_t i = 1; i < EACH; i++)
            if (keys[i] > best) best = keys[i], place = i;
        const uint32_t most = __reduce_max_sync(0xffffffffu, best);
        const uint32_t id = __reduce_min_sync(0xffffffffu, best == most ? place * 32 + lane : 0xffffffffu);
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            if (i * 32 + lane == id) keys[i] = 0;
        if (lane == rank) chosen = id;
    }
    return min(chosen, stack - 1);
}

// The best of a row's experts by score and bias.
template <uint32_t EACH> static __device__ __forceinline__ uint32_t best_experts(const float *logits, const float *bias, uint32_t stack) {
    const uint32_t lane = threadIdx.x & 31;
    uint32_t keys[EACH];
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        const uint32_t id = i * 32 + lane;
        keys[i] = id < stack ? order(score(logits[id]) + (bias ? bias[id] : 0)) : 0;
    }
    return best_keys<EACH>(keys, stack);
}

// A lane's weight from the score of its expert; every lane takes part.
static __device__ __forceinline__ float weight_of(float own, float scale) {
    float sum = 0;
    for (int rank = 0; rank < EXPERTS_USED; rank++) sum += __shfl_sync(0xffffffffu, own, rank);
    return own / fmaxf(sum, SMALLEST_SUM) * scale;
}

// Routes of a row by a warp: lane `rank` gets an expert and its weight. A lane has `EACH` of the experts at most.
template <uint32_t EACH> static __device__ __forceinline__ uint32_t route_row(const Router &router, uint32_t row, float &weight) {
    const uint32_t lane = threadIdx.x & 31;
    const float *logits = router.logits + (size_t)row * router.stack;
    uint32_t chosen = 0;
    if (router.fixed) {
        if (lane < EXPERTS_USED) chosen = min(router.fixed[(size_t)router.tokens[row] * EXPERTS_USED + lane], router.stack - 1);
    } else if (router.stack <= 256) {
        chosen = best_experts<8>(logits, router.bias, router.stack);
    } else {
        chosen = best_experts<EACH>(logits, router.bias, router.stack);
    }
    weight = weight_of(lane < EXPERTS_USED ? score(logits[chosen]) : 0, router.scale);
    return chosen;
}

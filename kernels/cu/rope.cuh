// Rotation of the last 64 channels, in interleaved pairs, by angles computed in double precision.
#pragma once
#include <stdint.h>

static const uint32_t ROTARY = 64;
static const uint32_t PAIRS = ROTARY / 2;

struct Rope {
    double frequencies[PAIRS];
};

struct Turn {
    float cosine, sine;
};

static __device__ __forceinline__ Turn turn_at(const Rope &rope, uint32_t pair, uint32_t position) {
    double sine, cosine;
    sincos((double)position * rope.frequencies[pair], &sine, &cosine);
    return {(float)cosine, (float)sine};
}

// Products and sums rounded one by one, as on the CPU.
static __device__ __forceinline__ float2 turned(float2 pair, Turn turn) {
    return {__fsub_rn(__fmul_rn(pair.x, turn.cosine), __fmul_rn(pair.y, turn.sine)),
            __fadd_rn(__fmul_rn(pair.x, turn.sine), __fmul_rn(pair.y, turn.cosine))};
}

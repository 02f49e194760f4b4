// What attention reads: a query's rows, and stored rows as halves.
#pragma once
#include "kv_rows.cuh"
#include "matrix_units.cuh"
#include "step.cuh"

static const uint32_t WINDOW = 128;

struct Attention {
    const float *queries, *new_rows, *sinks;
    // Chosen rows per query, `top` of them, where the layer chooses and a query sees more than that.
    const uint32_t *chosen;
    float *out;
    // Where shares leave their sums, and their largest score and weight.
    float *partial;
    float2 *shares;
    uint32_t heads, width, window_offset, rows_offset, ratio, top;
    RowArray array;
    // For queries as they were multiplied, which are normalised and turned with attention.
    Rope rope;
    float epsilon;
    uint32_t oldest;  // no query sees rows of positions before this one
};

// The rows that one query sees, in order: raw ones, then compressed ones.
struct Keys {
    const Attention &a;
    const Segment &segment;
    const uint32_t *chosen;
    uint32_t first_raw, raw, count;

    __device__ __forceinline__ Keys(const Attention &a, const Step &step, uint32_t row)
        : a(a), segment(step.segments[step.row_segments[row]]) {
        const uint32_t position = step.positions[row], finished = a.ratio ? (position + 1) / a.ratio : 0;
        raw = min(position + 1 - min(a.oldest, position), WINDOW);
        first_raw = position + 1 - raw;
        chosen = a.chosen && finished > a.top ? a.chosen + (size_t)row * a.top : nullptr;
        count = raw + (chosen ? a.top : finished);
    }

    // Whether this key's row is known, and stored, before the step's own rows are and before a layer chooses.
    __device__ __forceinline__ bool is_old(uint32_t key) const {
        if (key < raw) return first_raw + key < segment.start;
        return key < count && !chosen;
    }

    // The step's own row of this key, or nothing.
    __device__ __forceinline__ const float *own(uint32_t key) const {
        const uint32_t position = first_raw + key;
        if (key >= raw || position < segment.start) return nullptr;
        return a.new_rows + (size_t)(segment.first_row + position - segment.start) * a.width;
    }

    // The array that stores this key, and its place in it.
    __device__ __forceinline__ const uint8_t *stored(uint32_t key, RowArray &array, uint32_t &slot) const {
        if (key < raw) {
            array = {WINDOW, a.width};
            slot = (first_raw + key) % WINDOW;
            return segment.before + a.window_offset;
        }
        const uint32_t index = chosen ? chosen[key - raw] : key - raw;
        array = a.array;
        slot = index % array.rows;
        return segment.blocks + (size_t)(index / array.rows) * segment.block_bytes + a.rows_offset;
    }
};

static __device__ __forceinline__ void store_halves(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

static __device__ __forceinline__ uint32_t e4m3_pair(uint16_t codes, __half2 scale) {
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
    return bits_of(__hmul2(*(__half2 *)&halves, scale));
}

static __device__ __forceinline__ void store_codes(uint32_t address, uint2 codes, __half2 scale) {
    store_halves(address, e4m3_pair((uint16_t)codes.x, scale), e4m3_pair((uint16_t)(codes.x >> 16), scale),
                 e4m3_pair((uint16_t)codes.y, scale), e4m3_pair((uint16_t)(codes.y >> 16), scale));
}

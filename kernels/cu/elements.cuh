// Single elements of stored weights, with the operations of the CPU truth: value for value the same bits.
#pragma once
#include "weights.cuh"

struct Elements {
    const uint8_t *weights;
    uint32_t columns;

    // The tile of a split matrix that holds an element, and the lane that multiplies it.
    template <uint32_t CHANNELS, uint32_t BYTES> __device__ __forceinline__ const uint8_t *tile(uint32_t row, uint32_t channel) const {
        return weights + ((size_t)(row / PANEL_ROWS) * ((columns + CHANNELS - 1) / CHANNELS) + channel / CHANNELS) * BYTES;
    }
};

static __device__ __forceinline__ float half_at(const uint8_t *at) { return __half2float(*(const __half *)at); }
static __device__ __forceinline__ uint32_t upper_row(uint32_t row) { return row & 7; }
static __device__ __forceinline__ uint32_t half_of(uint32_t row) { return (row >> 3) & 1; }
static __device__ __forceinline__ uint32_t lane_bytes(uint32_t row, uint32_t t) { return (half_of(row) * 32 + 4 * upper_row(row) + t) * 16; }

struct ElementF32 {
    static __device__ float at(const Elements &e, uint32_t row, uint32_t k) { return ((const float *)e.weights)[(size_t)row * e.columns + k]; }
};
struct ElementF16 {
    static __device__ float at(const Elements &e, uint32_t row, uint32_t k) { return half_at(e.weights + ((size_t)row * e.columns + k) * 2); }
};
struct ElementBf16 {
    static __device__ float at(const Elements &e, uint32_t row, uint32_t k) {
        return __uint_as_float((uint32_t)((const uint16_t *)e.weights)[(size_t)row * e.columns + k] << 16);
    }
};
struct ElementQ8_0 {
    static __device__ float at(const Elements &e, uint32_t row, uint32_t k) {
        const uint8_t *tile = e.tile<64, Q8_0::TILE_BYTES>(row, k);
        const uint32_t block = (k >> 5) & 1, t = (k & 31) >> 3;
        const float d = half_at(tile + 1024 + ((upper_row(row) * 2 + half_of(row)) * 2 + block) * 2);
        return d * (float)(int8_t)tile[lane_bytes(row, t) + block * 8 + (k & 7)];
    }
};
struct ElementQ2_K {
    static __device__ float at(const Elements &e, uint32_t row, uint32_t k) {
        const uint8_t *tile = e.tile<256, Q2_K::TILE_BYTES>(row, k);
        const uint32_t half = (k >> 7) & 1, plane = (k >> 5) & 3, byte = k & 31, group = half * 8 + plane * 2 + (byte >> 4);
        const uint8_t scale = tile[1024 + ((upper_row(row) * 2 + (group & 1)) * 2 + half_of(row)) * 8 + (group >> 1)];
        const uint8_t *factors = tile + 1280 + (upper_row(row) * 2 + half_of(row)) * 4;
        const uint32_t code = (tile[lane_bytes(row, byte >> 3) + half * 8 + (byte & 7)] >> (2 * plane)) & 3;
        return __fsub_rn(half_at(factors) * (float)(scale & 15) * (float)code, half_at(factors + 2) * (float)(scale >> 4));
    }
};
struct ElementQ4_K {
    static __device__ float at(const Elements &e, uint32_t row, uint32_t k) {
        const uint8_t *tile = e.tile<256, Q4_K::TILE_BYTES>(row, k);
        const uint8_t *head = tile + 2048 + (upper_row(row) * 2 + half_of(row)) * 16, *packed = head + 4;
        const uint32_t group = (k >> 5) & 7, byte = k & 31;
        const uint32_t scale = group < 4 ? packed[group] & 63 : (packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4;
        const uint32_t minimum = group < 4 ? packed[group + 4] & 63 : (packed[group + 4] >> 4) | (packed[group] >> 6) << 4;
        const uint8_t codes = tile[half_of(row) * 1024 + (byte >> 4) * 512 + (4 * upper_row(row) + group / 2) * 16 + (byte & 15)];
        const uint32_t code = group & 1 ? codes >> 4 : codes & 15;
        return __fsub_rn(half_at(head) * (float)scale * (float)code, half_at(head + 2) * (float)minimum);
    }
};
struct ElementIQ2_XXS {
    static __device__ float at(const Elements &e, uint32_t row, uint32_t k) {
        const uint8_t *tile = e.tile<256, IQ2_XXS::TILE_BYTES>(row, k);
        const uint32_t t = (k & 255) >> 6, group = (k >> 5) & 1, eight = (k >> 3) & 3;
        const uint8_t *codes = tile + lane_bytes(row, t) + group * 8;
        const uint32_t signs = *(const uint32_t *)(codes + 4);
        const uint32_t nibbles = iq2_table_entry(codes[eight]) | iq2_table_entry(256 + ((signs >> (7 * eight)) & 127));
        const uint32_t value = (nibbles >> (4 * (k & 7))) & 7;
        const float level = (value & 3) == 0 ? 8.0f : (value & 3) == 1 ? 25.0f : 43.0f;
        const float step = half_at(tile + 1024 + (upper_row(row) * 2 + half_of(row)) * 2) * (0.5f + (float)(signs >> 28)) * 0.25f;
        return value & 4 ? -(step * level) : step * level;
    }
};

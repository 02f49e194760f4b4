// What kernels that choose compressed rows share: the indexer, and keys as operands.
//
// A row's 128 channels go through the tensor cores in an order of their own: lane t of four takes channels 32t to
// 32t + 31, which is one exponent group and sixteen bytes of codes.
#pragma once
#include "kv_rows.cuh"
#include "matrix_units.cuh"
#include "step.cuh"

static const uint32_t WIDTH = 128;
static const uint32_t STEPS = WIDTH / 16;
static const uint32_t KEYS_PER_WARP = 16;

struct Indexer {
    uint32_t rows_offset, ratio, top, heads;
    RowArray array;
    // The rows of the step that a launch takes, and floats from one row's scores to the next.
    uint32_t first_row, rows, stride, reserved;
};

static __host__ __device__ __forceinline__ uint32_t padded_heads(uint32_t heads) { return (heads + 7) & ~7u; }

static __device__ __forceinline__ uint32_t visible_rows(const Step &step, uint32_t row, uint32_t ratio) {
    return (step.positions[row] + 1) / ratio;
}

static __device__ __forceinline__ const uint8_t *index_memory(const Segment &segment, const Indexer &indexer, uint32_t key) {
    return segment.blocks + (size_t)(key / indexer.array.rows) * segment.block_bytes + indexer.rows_offset;
}

// What a head's product with a key is weighed with, over the head's own weight.
static __device__ __forceinline__ float score_scale(const Indexer &indexer) {
    return __fdiv_rn(1.0f, __fsqrt_rn((float)(indexer.heads * WIDTH)));
}

// A lane's 32 channels of one key, two halves a register, high and low parts.
struct PackedKey {
    static const bool HAS_LOW = false;
    uint4 codes;
    __half2 scale;

    __device__ __forceinline__ void load(const uint8_t *memory, RowArray array, uint32_t slot, uint32_t t) {
        codes = ((const uint4 *)Packed::index_codes(memory, array, slot))[t];
        scale = scale_of(Packed::index_exponents(memory, array, slot)[t]);
    }
    __device__ __forceinline__ void clear() { codes = {0, 0, 0, 0}, scale = __half2(); }
    // Two channels from a byte of two codes. A code's bits are those of a half 2^14 times smaller.
    __device__ __forceinline__ uint32_t pair(uint32_t byte) const {
        const uint32_t bits = (byte & 0x07) << 9 | (byte & 0x08) << 12 | (byte & 0x70) << 21 | (byte & 0x80) << 24;
        const uint32_t lift = 0x74007400u;
        return bits_of(__hmul2(__hmul2(*(const __half2 *)&bits, *(const __half2 *)&lift), scale));
    }
    __device__ __forceinline__ void channels(uint32_t step, uint32_t high[2], uint32_t low[2]) const {
        const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
        const uint32_t two = words[step / 2] >> (step % 2 * 16);
        high[0] = pair(two & 0xff), high[1] = pair((two >> 8) & 0xff);
    }
};

struct PlainKey {
    static const bool HAS_LOW = true;
    const float4 *row;

    __device__ __forceinline__ void load(const uint8_t *memory, RowArray array, uint32_t slot, uint32_t t) {
        row = (const float4 *)(Plain::row(memory, array, slot) + 32 * t);
    }
    __device__ __forceinline__ void clear() { row = nullptr; }
    __device__ __forceinline__ void channels(uint32_t step, uint32_t high[2], uint32_t low[2]) const {
        const float4 four = row ? row[step] : float4{0.0f, 0.0f, 0.0f, 0.0f};
        split({four.x, four.y}, high[0], low[0]);
        split({four.z, four.w}, high[1], low[1]);
    }
};

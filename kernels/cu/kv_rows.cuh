// Key-value rows in a bank: where they lie, and how they are rounded and stored. The truth is src/kv_rows.
#pragma once
#include "common.cuh"
#include "rope.cuh"

// An array of rows, section by section.
struct RowArray {
    uint32_t rows, width;
};

static __device__ __forceinline__ uint32_t padded(uint32_t bytes) { return (bytes + 15) & ~15u; }

static __device__ __forceinline__ float power_of_two(int exponent) { return __uint_as_float((uint32_t)(exponent + 127) << 23); }

// The smallest power of two `s`, as its exponent, with `peak <= s * top`.
static __device__ __forceinline__ int scale_exponent(float peak, float top) {
    const uint32_t bits = __float_as_uint(__fdiv_rn(peak, top));
    const int exponent = (int)(bits >> 23) - 127;
    return (bits & 0x7fffff) == 0 ? exponent : exponent + 1;
}

static const float FP8_TOP = 448.0f, FP8_PEAK_FLOOR = 1e-4f;

static __device__ __forceinline__ uint8_t fp8_encode(float value) {
    const uint8_t sign = (__float_as_uint(value) >> 24) & 0x80;
    const float magnitude = fabsf(value);
    if (magnitude < 0.015625f) return sign | (uint8_t)__float2int_rn(__fmul_rn(magnitude, 512.0f));
    const uint32_t bits = __float_as_uint(magnitude);
    return sign | (uint8_t)(((bits + 0x7ffff + ((bits >> 20) & 1)) >> 20) - ((127 - 7) << 3));
}

static __device__ __forceinline__ float fp8_decode(uint8_t code) {
    const uint32_t bits = ((uint32_t)(code & 0x80) << 24) | ((uint32_t)(code & 0x7f) << 20);
    return __fmul_rn(__uint_as_float(bits), __uint_as_float((120 + 127) << 23));
}

static __device__ __forceinline__ float round_to_half(float value) { return __half2float(__float2half_rn(value)); }

static __device__ __forceinline__ float fp8_clamp(float value) { return fminf(fmaxf(value, -FP8_TOP), FP8_TOP); }

// The code of `value` in units of `2^exponent`, after the half-float rounding of what it decodes to.
static __device__ __forceinline__ uint8_t fp8_code(float value, int exponent) {
    const float unit = power_of_two(-exponent);
    const uint8_t code = fp8_encode(fp8_clamp(__fmul_rn(value, unit)));
    const float rounded = round_to_half(__fmul_rn(fp8_decode(code), power_of_two(exponent)));
    return fp8_encode(fp8_clamp(__fmul_rn(rounded, unit)));
}

static const float FP4_TOP = 6.0f, FP4_PEAK_FLOOR = 6.0f * 1.17549435e-38f;

static __device__ __forceinline__ uint8_t fp4_encode(float value) {
    const float magnitude = fabsf(value);
    const uint8_t code = (magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) + (magnitude >= 1.75f) + (magnitude > 2.5f) +
                         (magnitude >= 3.5f) + (magnitude > 5.0f);
    return code | (uint8_t)((__float_as_uint(value) >> 31) << 3);
}

static __device__ __forceinline__ float fp4_decode(uint8_t code) {
    const float magnitude = (code & 7) < 2 ? 0.5f * (code & 7) : __uint_as_float(((((code >> 1) & 3) + 126) << 23) | ((code & 1) << 22));
    return code & 8 ? -magnitude : magnitude;
}

// What a code stands for that fp4_encode would give: to the nearest half below 2, whole number below 4, and even one from there
// on, the even one of two that are as near.
static __device__ __forceinline__ float fp4_rounded(float value) {
    const float magnitude = fabsf(value), rounder = magnitude < 2.0f ? 6291456.0f : magnitude < 4.0f ? 12582912.0f : 25165824.0f;
    return copysignf(fminf(__fsub_rn(__fadd_rn(magnitude, rounder), rounder), FP4_TOP), value);
}

static __device__ __forceinline__ uint8_t fp4_stored_code(float value, int exponent) {
    const float unit = power_of_two(-exponent);
    const float rounded = round_to_half(__fmul_rn(fp4_decode(fp4_encode(__fmul_rn(value, unit))), power_of_two(exponent)));
    return fp4_encode(__fmul_rn(rounded, unit));
}

// The Walsh-Hadamard transform of 128 values in a warp, four neighbours in every lane; natural order, lengths kept.
static __device__ __forceinline__ void hadamard_128(float value[4]) {
    const uint32_t lane = threadIdx.x % 32;
    const float a = __fadd_rn(value[0], value[1]), b = __fsub_rn(value[0], value[1]);
    const float c = __fadd_rn(value[2], value[3]), d = __fsub_rn(value[2], value[3]);
    value[0] = __fadd_rn(a, c), value[1] = __fadd_rn(b, d), value[2] = __fsub_rn(a, c), value[3] = __fsub_rn(b, d);
#pragma unroll
    for (uint32_t half = 1; half < 32; half *= 2)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const float other = __shfl_xor_sync(0xffffffffu, value[i], half);
            value[i] = lane & half ? __fsub_rn(other, value[i]) : __fadd_rn(value[i], other);
        }
    // 1 / sqrt(128) as the CPU computes it.
    const float scale = __fdiv_rn(1.0f, __fsqrt_rn(128.0f));
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) value[i] = __fmul_rn(value[i], scale);
}

// The exponent that 32 channels share: eight lanes of four values.
static __device__ __forceinline__ int fp4_exponent(const float value[4]) {
    float peak = fmaxf(fmaxf(fabsf(value[0]), fabsf(value[1])), fmaxf(fabsf(value[2]), fabsf(value[3])));
#pragma unroll
    for (uint32_t lane = 1; lane < 8; lane *= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, lane));
    return scale_exponent(fmaxf(peak, FP4_PEAK_FLOOR), FP4_TOP);
}

// E4M3 and half-float attention rows, E2M1 index rows.
struct Packed {
    static const uint32_t GROUP = 64;

    static __device__ __forceinline__ uint32_t plain(RowArray array) { return array.width - ROTARY; }
    static __device__ __forceinline__ uint32_t rotary_at(RowArray array) { return padded(array.rows * plain(array)); }
    static __device__ __forceinline__ uint32_t exponents_at(RowArray array) { return rotary_at(array) + padded(array.rows * ROTARY * 2); }
    static __device__ __forceinline__ uint32_t exponents_per_row(RowArray array) { return (plain(array) / GROUP + 7) & ~7u; }

    static __device__ __forceinline__ const uint8_t *codes(const uint8_t *memory, RowArray array, uint32_t index) {
        return memory + (size_t)index * plain(array);
    }
    static __device__ __forceinline__ const uint8_t *rotary(const uint8_t *memory, RowArray array, uint32_t index) {
        return memory + rotary_at(array) + (size_t)index * ROTARY * 2;
    }
    static __device__ __forceinline__ const uint8_t *exponents(const uint8_t *memory, RowArray array, uint32_t index) {
        return memory + exponents_at(array) + (size_t)index * exponents_per_row(array);
    }

    // A warp rounds 64 channels of a row, two in every lane, and stores them where there is memory.
    static __device__ __forceinline__ float2 store_group(uint8_t *memory, RowArray array, uint32_t index, uint32_t group, float2 value) {
        const uint32_t lane = threadIdx.x % 32;
        if (group * GROUP == plain(array)) {
            const __half2 rounded = __floats2half2_rn(value.x, value.y);
            if (memory) ((__half2 *)rotary(memory, array, index))[lane] = rounded;
            return __half22float2(rounded);
        }
        float peak = fmaxf(fabsf(value.x), fabsf(value.y));
        for (uint32_t other = 1; other < 32; other *= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, other));
        const int exponent = scale_exponent(fmaxf(peak, FP8_PEAK_FLOOR), FP8_TOP);
        const uint8_t low = fp8_code(value.x, exponent), high = fp8_code(value.y, exponent);
        if (memory) {
            ((uint16_t *)(codes(memory, array, index) + group * GROUP))[lane] = low | (uint16_t)high << 8;
            if (lane == 0) ((uint8_t *)exponents(memory, array, index))[group] = (uint8_t)(exponent + 127);
        }
        const float scale = power_of_two(exponent);
        return {__fmul_rn(fp8_decode(low), scale), __fmul_rn(fp8_decode(high), scale)};
    }

    static __device__ __forceinline__ const uint8_t *index_codes(const uint8_t *memory, RowArray array, uint32_t index) {
        return memory + (size_t)index * (array.width / 2);
    }
    static __device__ __forceinline__ const uint8_t *index_exponents(const uint8_t *memory, RowArray array, uint32_t index) {
        return memory + padded(array.rows * (array.width / 2)) + (size_t)index * (array.width / 32);
    }

    // A warp stores an index row of 128 channels, four in every lane.
    static __device__ __forceinline__ void store_index(uint8_t *memory, RowArray array, uint32_t index, float value[4]) {
        hadamard_128(value);
        const int exponent = fp4_exponent(value);
        const uint32_t lane = threadIdx.x % 32;
        uint16_t codes = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) codes |= (uint16_t)fp4_stored_code(value[i], exponent) << (4 * i);
        ((uint16_t *)index_codes(memory, array, index))[lane] = codes;
        if (lane % 8 == 0) ((uint8_t *)index_exponents(memory, array, index))[lane / 8] = (uint8_t)(exponent + 127);
    }

    // A warp brings one head of a query into the space and the precision of stored rows.
    static __device__ __forceinline__ void round_query(float value[4]) {
        hadamard_128(value);
        const int exponent = fp4_exponent(value);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            value[i] = __fmul_rn(fp4_rounded(__fmul_rn(value[i], power_of_two(-exponent))), power_of_two(exponent));
    }
};

// Rows as f32, unrounded: for comparison with references.
struct Plain {
    static const uint32_t GROUP = 64;

    static __device__ __forceinline__ const float *row(const uint8_t *memory, RowArray array, uint32_t index) {
        return (const float *)memory + (size_t)index * array.width;
    }
    static __device__ __forceinline__ float2 store_group(uint8_t *memory, RowArray array, uint32_t index, uint32_t group, float2 value) {
        if (memory) ((float2 *)(row(memory, array, index) + group * GROUP))[threadIdx.x % 32] = value;
        return value;
    }
    static __device__ __forceinline__ void store_index(uint8_t *memory, RowArray array, uint32_t index, float value[4]) {
        ((float4 *)row(memory, array, index))[threadIdx.x % 32] = {value[0], value[1], value[2], value[3]};
    }
    static __device__ __forceinline__ void round_query(float *) {}
};

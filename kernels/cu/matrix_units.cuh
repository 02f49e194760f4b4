// The tensor cores' half-precision product, and what feeds it.
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

// out += a . b: 16 x 16 halves times 16 x 8 halves. With g = lane / 4 and t = lane % 4 a lane has
// a: (g, 2t..) (g + 8, 2t..) (g, 2t + 8..) (g + 8, 2t + 8..), b: (2t.., g) (2t + 8.., g), out: (g, 2t..) (g + 8, 2t..).
static __device__ __forceinline__ void multiply_add(float out[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(out[0]), "+f"(out[1]), "+f"(out[2]), "+f"(out[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 tiles of halves from shared memory; lanes 8i to 8i + 7 name the rows of tile i.
static __device__ __forceinline__ void load_tiles(uint32_t out[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}
static __device__ __forceinline__ void load_tiles_transposed(uint32_t out[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ uint32_t bits_of(__half2 value) { return *(uint32_t *)&value; }

// Two numbers as halves, and what is left of them as halves: together good for 22 bits.
static __device__ __forceinline__ void split(float2 value, uint32_t &high, uint32_t &low) {
    const __half2 rounded = __floats2half2_rn(value.x, value.y);
    const float2 back = __half22float2(rounded);
    high = bits_of(rounded);
    low = bits_of(__floats2half2_rn(value.x - back.x, value.y - back.y));
}

// `2^(byte - 127)` in both halves; zero where halves end.
static __device__ __forceinline__ __half2 scale_of(uint8_t byte) {
    const int exponent = min((int)byte - 127, 15);
    const uint32_t half = exponent >= -14 ? (uint32_t)(exponent + 15) << 10 : exponent >= -24 ? 1u << (exponent + 24) : 0u;
    const uint32_t both = half | half << 16;
    return *(const __half2 *)&both;
}

// Products of stored weights with few rows of activations, close to the speed of memory.
//
// A row's block of 256 channels is brought to 16 bits of fixed point: value = scale * (256 high + low), two signed
// bytes. Codes of weights are signed or unsigned bytes as they are, so that the matrix units add up exact integers, and
// what is lost is 2^-16 of the block's largest value. The columns of a product of 16 weight rows by 8 are
//   dense: four rows of activations, high and low byte of each: lane t of four gets both sums of row t.
//   own:   one row, for formats whose four lanes t have codes under different scales: columns 2t and 2t + 1 have the
//          high and low bytes at the places of lane t and zeros elsewhere, so that each lane gets the sums of its own
//          codes and scales them itself.
// Everything is added in an order that depends on the matrix alone.
#pragma once
#include "intrinsics.cuh"
#include "iq2_grid.cuh"

#define FEW_WARPS 8
#define FEW_THREADS (FEW_WARPS * 32)
#define PANEL 16
#define CHANNELS 256
// Bytes of a block's high or low bytes in shared memory: 16 bytes between its halves, 16 at the end, so that the loads
// of a warp meet in no bank.
#define PLANE 288u
#define ROW_PLANES (2 * PLANE)

static __host__ __device__ __forceinline__ uint32_t few_blocks(uint32_t columns) { return (columns + CHANNELS - 1) / CHANNELS; }

static __device__ __forceinline__ uint2 load_shared_8(uint32_t at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}
static __device__ __forceinline__ float load_shared_float(uint32_t at) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at));
    return v;
}
static __device__ __forceinline__ void store_shared_8(uint32_t at, uint32_t a, uint32_t b) {
    asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(at), "r"(a), "r"(b) : "memory");
}
static __device__ __forceinline__ void store_shared_4(uint32_t at, uint32_t a) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(a) : "memory");
}
static __device__ __forceinline__ void store_shared_16(uint32_t at, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// c += a . b for 16 weight rows and 8 columns over 32 channels: signed codes, and unsigned ones.
static __device__ __forceinline__ void multiply_signed(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void multiply_unsigned(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Where a channel of a block lies in its plane.
static __device__ __forceinline__ constexpr uint32_t plane_at(uint32_t channel) { return channel + (channel >> 7) * 16; }

// Fixed point of eight channels of each lane. Returns the block's scale; `planes` is where the row's block lies, and
// `sums`, where it is not 0, a place for sixteen sums of 16 channels in the order that Q2_K reads them.
static __device__ __forceinline__ float stage_eight(uint32_t planes, uint32_t sums, const float (&x)[8]) {
    const uint32_t lane = threadIdx.x & 31;
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(x[i]));
    most = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most)));
    const float top = 32639.0f, inverse = most > 1e-33f ? __fdiv_rn(top, most) : 0.0f;
    // 1.5 * 2^23 + q: the bits below are q's.
    uint32_t q[8];
#pragma unroll
    for (int i = 0; i < 8; i++) q[i] = __float_as_uint(__fadd_rn(__fmul_rn(x[i], inverse), 12582912.0f));
    uint32_t low[2], high[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        low[i] = permute(permute(q[4 * i], q[4 * i + 1], 0x0040), permute(q[4 * i + 2], q[4 * i + 3], 0x0040), 0x5410);
        high[i] = permute(permute(q[4 * i] + 128, q[4 * i + 1] + 128, 0x0051), permute(q[4 * i + 2] + 128, q[4 * i + 3] + 128, 0x0051), 0x5410);
    }
    const uint32_t at = planes + plane_at(8 * lane);
    store_shared_8(at, high[0], high[1]);
    store_shared_8(at + PLANE, low[0], low[1]);
    if (sums) {
        int sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) sum += (int)(q[i] - 0x4b400000u);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        const uint32_t group = lane >> 1;
        if (!(lane & 1)) store_shared_4(sums + 4 * ((group & 1) * 8 + (group >> 3) * 4 + ((group >> 1) & 3)), (uint32_t)sum);
    }
    return most * (1.0f / top);
}

static __device__ __forceinline__ void load_eight(float (&x)[8], const float *row, uint32_t first, uint32_t columns) {
    if (first + 8 <= columns && columns % 4 == 0) {
        const float4 a = *(const float4 *)(row + first), b = *(const float4 *)(row + first + 4);
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) x[i] = first + i < columns ? row[first + i] : 0.0f;
}

// Calls `stage(channels, index)` for every index below `all` that is this warp's turn. `load(channels, index)` is called
// for some of them ahead, so that their ways to memory overlap.
template <uint32_t AHEAD, class Load, class Stage> static __device__ __forceinline__ void stage_all(uint32_t all, const Load &load, const Stage &stage) {
#pragma unroll 1
    for (uint32_t first = threadIdx.x >> 5; first < all; first += AHEAD * FEW_WARPS) {
        float x[AHEAD][8];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (first + i * FEW_WARPS < all) load(x[i], first + i * FEW_WARPS);
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (first + i * FEW_WARPS < all) stage(x[i], first + i * FEW_WARPS);
    }
}

static __device__ __forceinline__ int both(int high, int low) { return high * 256 + low; }

// Weights of 16 rows by 256 channels, as a lane (g, t) has them of rows g and g + 8.

struct FewQ8_0 {
    enum { TILE = 1088 };
    uint4 upper[4], lower[4];
    uint2 scales[4];

    __device__ __forceinline__ void load(const uint8_t *weights, uint32_t columns, uint32_t, uint32_t panel, uint32_t block) {
        const uint32_t lane = threadIdx.x & 31, across = (columns + 63) / 64;
        const uint8_t *at = weights + ((size_t)panel * across + block * 4) * TILE;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (block * 4 + i >= across) {
                upper[i] = lower[i] = make_uint4(0, 0, 0, 0), scales[i] = make_uint2(0, 0);
                continue;
            }
            upper[i] = load_weights_16(at + i * TILE + lane * 16);
            lower[i] = load_weights_16(at + i * TILE + 512 + lane * 16);
            scales[i] = load_weights_8(at + i * TILE + 1024 + (lane >> 2) * 8);
        }
    }

    // `planes`: the block of the first row of activations; the others follow. Lane t gets rows t, 4 + t, ...
    // `column`: what the lane's column adds to that for each of FOURS times four rows.
    template <int FOURS>
    __device__ __forceinline__ void multiply(float (&part)[FOURS][2], uint32_t planes, const uint32_t (&column)[FOURS]) const {
        const uint32_t t = threadIdx.x & 3;
#pragma unroll
        for (int n = 0; n < FOURS; n++) part[n][0] = part[n][1] = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t a[4] = {half ? upper[i].z : upper[i].x, half ? lower[i].z : lower[i].x,
                                       half ? upper[i].w : upper[i].y, half ? lower[i].w : lower[i].y};
                const float above = half ? half_high(scales[i].x) : half_low(scales[i].x);
                const float below = half ? half_high(scales[i].y) : half_low(scales[i].y);
#pragma unroll
                for (int n = 0; n < FOURS; n++) {
                    const uint2 b = load_shared_8(planes + column[n] + plane_at(64 * i + 32 * half) + 8 * t);
                    int c[4] = {0, 0, 0, 0};
                    multiply_signed(c, a, b.x, b.y);
                    part[n][0] = fmaf(above, (float)both(c[0], c[1]), part[n][0]);
                    part[n][1] = fmaf(below, (float)both(c[2], c[3]), part[n][1]);
                }
            }
    }
};

// What the lane's column adds for each four of `rows` rows; columns past the last row repeat it.
template <int FOURS> static __device__ __forceinline__ void dense_columns(uint32_t (&column)[FOURS], uint32_t rows) {
    const uint32_t g = (threadIdx.x & 31) >> 2;
#pragma unroll
    for (uint32_t n = 0; n < FOURS; n++) column[n] = min(4 * n + (g >> 1), rows - 1) * ROW_PLANES + (g & 1) * PLANE;
}

// Shared address that a lane reads in the `own` way: its plane, or zeros. `zeros` is a plane of them.
static __device__ __forceinline__ uint32_t own_plane(uint32_t planes, uint32_t zeros) {
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    return g >> 1 == t ? planes + (g & 1) * PLANE : zeros;
}

// Tables of IQ2_XXS: a word for each of 256 grid entries and then of 128 indices of signs, as many copies as there are banks.
// They begin at a multiple of their grid's size, so that an entry's address is put together without an addition.
#define FEW_GRID (256 * 128)
#define FEW_TABLES (384 * 128)

struct FewIQ2_XXS {
    enum { TILE = 1056 };
    uint4 upper, lower;
    uint32_t factors;

    __device__ __forceinline__ void load(const uint8_t *weights, uint32_t columns, uint32_t panel, uint32_t block) {
        const uint32_t lane = threadIdx.x & 31;
        const uint8_t *at = weights + ((size_t)panel * few_blocks(columns) + block) * TILE;
        upper = load_weights_16(at + lane * 16);
        lower = load_weights_16(at + 512 + lane * 16);
        factors = load_weights_4(at + 1024 + (lane >> 2) * 4);
    }

    // A nibble for each of eight values: 0, 1, 2 select 8, 25, 43, and 4 more its negative. `own`: the lane's copy of tables.
    static __device__ __forceinline__ uint32_t nibbles(uint32_t own, uint32_t indices, uint32_t signs, int part) {
        const uint32_t entry = part == 0 ? indices << 7 : indices >> (8 * part - 7);
        const uint32_t sign = part == 0 ? signs << 7 : signs >> (7 * part - 7);
        uint32_t values, minus;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(values) : "r"((entry & 0x7f80u) | own));
        asm volatile("ld.shared.u32 %0, [%1+32768];" : "=r"(minus) : "r"((sign & 0x3f80u) | own));
        return values | minus;
    }
    static __device__ __forceinline__ uint32_t values(uint32_t nibbles) { return permute(0x002b1908u, 0x00d5e7f8u, nibbles); }

    // c += the products of entry `eight` of a group, whose rows' codes and signs are given, with its eight channels.
    static __device__ __forceinline__ void multiply_eight(int (&c)[4], uint32_t own, int eight, uint32_t above, uint32_t above_signs, uint32_t below,
                                                             uint32_t below_signs, uint32_t b0, uint32_t b1) {
        const uint32_t up = nibbles(own, above, above_signs, eight), low = nibbles(own, below, below_signs, eight);
        const uint32_t a[4] = {values(up), values(low), values(up >> 16), values(low >> 16)};
        multiply_signed(c, a, b0, b1);
    }

    // Adds a group's sums to those of the lane's own codes: rows g and g + 8.
    static __device__ __forceinline__ void add(float (&part)[2], const int (&c)[4], uint32_t above_signs, uint32_t below_signs) {
        part[0] = fmaf((float)(2 * (above_signs >> 28) + 1), (float)both(c[0], c[1]), part[0]);
        part[1] = fmaf((float)(2 * (below_signs >> 28) + 1), (float)both(c[2], c[3]), part[1]);
    }

    // The same channels of two matrices. `row`: the lane's 64 channels of a block of activations.
    static __device__ __forceinline__ void multiply_both(float (&first_part)[2], float (&second_part)[2], const FewIQ2_XXS &first,
                                                            const FewIQ2_XXS &second, uint32_t row, uint32_t own) {
        first_part[0] = first_part[1] = second_part[0] = second_part[1] = 0;
#pragma unroll
        for (int group = 0; group < 2; group++) {
            const uint4 u = first.upper, l = first.lower, v = second.upper, m = second.lower;
            const uint32_t codes[4] = {group ? u.z : u.x, group ? l.z : l.x, group ? v.z : v.x, group ? m.z : m.x};
            const uint32_t signs[4] = {group ? u.w : u.y, group ? l.w : l.y, group ? v.w : v.y, group ? m.w : m.y};
            int c[4] = {0, 0, 0, 0}, d[4] = {0, 0, 0, 0};
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 b = load_shared_16(row + 32 * group + 16 * half);
                multiply_eight(c, own, 2 * half, codes[0], signs[0], codes[1], signs[1], b.x, b.y);
                multiply_eight(d, own, 2 * half, codes[2], signs[2], codes[3], signs[3], b.x, b.y);
                multiply_eight(c, own, 2 * half + 1, codes[0], signs[0], codes[1], signs[1], b.z, b.w);
                multiply_eight(d, own, 2 * half + 1, codes[2], signs[2], codes[3], signs[3], b.z, b.w);
            }
            add(first_part, c, signs[0], signs[1]);
            add(second_part, d, signs[2], signs[3]);
        }
        first_part[0] *= half_low(first.factors) * 0.125f, first_part[1] *= half_high(first.factors) * 0.125f;
        second_part[0] *= half_low(second.factors) * 0.125f, second_part[1] *= half_high(second.factors) * 0.125f;
    }
};

struct FewQ2_K {
    enum { TILE = 1344 };
    uint4 upper, lower, scales;
    uint2 factors;

    __device__ __forceinline__ void load(const uint8_t *weights, uint32_t columns, uint32_t panel, uint32_t block) {
        const uint32_t lane = threadIdx.x & 31;
        const uint8_t *at = weights + ((size_t)panel * few_blocks(columns) + block) * TILE;
        upper = load_weights_16(at + lane * 16);
        lower = load_weights_16(at + 512 + lane * 16);
        scales = load_weights_16(at + 1024 + (lane >> 1) * 16);
        factors = load_weights_8(at + 1280 + (lane >> 2) * 8);
    }

    // Sums of the lane's own codes, minima taken off. `plane` from own_plane; `sums` the row's block's.
    __device__ __forceinline__ void multiply(float (&part)[2], uint32_t plane, uint32_t sums) const {
        const uint32_t t = threadIdx.x & 3;
        int high[2] = {0, 0}, low[2] = {0, 0};
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int level = 0; level < 4; level++) {
                const uint32_t a[4] = {((half ? upper.z : upper.x) >> (2 * level)) & 0x03030303u, ((half ? lower.z : lower.x) >> (2 * level)) & 0x03030303u,
                                       ((half ? upper.w : upper.y) >> (2 * level)) & 0x03030303u, ((half ? lower.w : lower.y) >> (2 * level)) & 0x03030303u};
                const uint2 b = load_shared_8(plane + plane_at(128 * half + 32 * level) + 8 * t);
                int c[4] = {0, 0, 0, 0};
                multiply_unsigned(c, a, b.x, b.y);
                const int above = ((half ? scales.y : scales.x) >> (8 * level)) & 15, below = ((half ? scales.w : scales.z) >> (8 * level)) & 15;
                high[0] += c[0] * above, low[0] += c[1] * above;
                high[1] += c[2] * below, low[1] += c[3] * below;
            }
        const uint4 own = load_shared_16(sums + 16 * t);
        const uint32_t minima[2] = {(t & 1 ? scales.y : scales.x) >> 4, (t & 1 ? scales.w : scales.z) >> 4};
        int less[2];
#pragma unroll
        for (int row = 0; row < 2; row++)
            less[row] = (int)own.x * (int)(minima[row] & 15) + (int)own.y * (int)((minima[row] >> 8) & 15) +
                        (int)own.z * (int)((minima[row] >> 16) & 15) + (int)own.w * (int)((minima[row] >> 24) & 15);
        part[0] = half_low(factors.x) * (float)both(high[0], low[0]) - half_high(factors.x) * (float)less[0];
        part[1] = half_low(factors.y) * (float)both(high[1], low[1]) - half_high(factors.y) * (float)less[1];
    }
};

// Over the four lanes t of a weight row.
static __device__ __forceinline__ float sum_of_four(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

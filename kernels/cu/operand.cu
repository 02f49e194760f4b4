// From rows of f32 to the operand that products take (operand.cuh): plain rows, and what a gate and its linear part make.
// A block of threads a row, a thread a quad. The row is read twice, the second time from the cache.
#include "common.cuh"
#include "intrinsics.cuh"
#include "operand.cuh"
#include "row_scale.cuh"

struct Destination {
    uint4 *operand;
    float *scales;
    uint32_t columns;
};

// Two values as high and low halves; returns what the halves add up to.
static __device__ __forceinline__ float2 part(float2 x, Half2 &high, Half2 &low) {
    const __half2 h = __float22half2_rn(x);
    const float2 rounded = __half22float2(h);
    const __half2 l = __float22half2_rn(make_float2(x.x - rounded.x, x.y - rounded.y));
    high = *(const Half2 *)&h;
    low = *(const Half2 *)&l;
    const float2 rest = __half22float2(l);
    return make_float2(rounded.x + rest.x, rounded.y + rest.y);
}

// `source(quad)` gives four channels, zeros past the end.
template <class Source> static __device__ __forceinline__ void convert(const Destination &to, const Source &source) {
    wait_for_previous();
    let_next_start();
    const uint32_t row = blockIdx.x, quads = blocks_of(to.columns) * BLOCK_QUADS;
    float largest = 0;
    for (uint32_t quad = threadIdx.x; quad < quads; quad += blockDim.x) {
        const float4 x = source(quad);
        largest = fmaxf(fmaxf(largest, fmaxf(fabsf(x.x), fabsf(x.y))), fmaxf(fabsf(x.z), fabsf(x.w)));
    }
    const auto [scale, inverse] = row_scale_of_block(largest);
    if (!threadIdx.x) to.scales[row] = inverse;
    uint4 *out = to.operand + (size_t)row * blocks_of(to.columns) * BLOCK_ENTRIES;
    for (uint32_t quad = threadIdx.x; quad < quads; quad += blockDim.x) {
        const float4 x = source(quad);
        uint4 halves;
        const float2 a = part(make_float2(x.x * scale, x.y * scale), halves.x, halves.z);
        const float2 b = part(make_float2(x.z * scale, x.w * scale), halves.y, halves.w);
        uint4 *block = out + quad / BLOCK_QUADS * BLOCK_ENTRIES;
        block[quad % BLOCK_QUADS] = halves;
        float sum = (a.x + a.y) + (b.x + b.y);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (!(quad & 3)) {
            const uint32_t group = quad % BLOCK_QUADS / 4, t = (group >> 3) | (group & 1) << 1, j = (group & 7) >> 1;
            Half2 high, low;
            part(make_float2(sum / SUM_DIVISOR, 0), high, low);
            uint16_t *at = (uint16_t *)(block + BLOCK_QUADS + t);
            at[j] = (uint16_t)high;
            at[4 + j] = (uint16_t)low;
        }
    }
}

static __device__ __forceinline__ float4 load_quad(const float *row, uint32_t quad, uint32_t columns) {
    if (columns % 4 == 0) return quad * 4 < columns ? ((const float4 *)row)[quad] : make_float4(0, 0, 0, 0);
    float x[4];
    for (uint32_t i = 0; i < 4; i++) x[i] = quad * 4 + i < columns ? row[quad * 4 + i] : 0;
    return make_float4(x[0], x[1], x[2], x[3]);
}

struct FromRows {
    const float *row;
    uint32_t columns;
    __device__ __forceinline__ float4 operator()(uint32_t quad) const { return load_quad(row, quad, columns); }
};

// silu(min(gate, clamp)) * clamp(up) * weight
struct FromGates {
    const float *gate, *up, *weight;
    uint32_t columns;
    float clamp;

    __device__ __forceinline__ float one(float g, float u) const {
        const float capped = fminf(g, clamp);
        return capped * sigmoid(capped) * fminf(fmaxf(u, -clamp), clamp) * (weight ? *weight : 1);
    }
    __device__ __forceinline__ float4 operator()(uint32_t quad) const {
        const float4 g = load_quad(gate, quad, columns), u = load_quad(up, quad, columns);
        return make_float4(one(g.x, u.x), one(g.y, u.y), one(g.z, u.z), one(g.w, u.w));
    }
};

extern "C" __global__ void __launch_bounds__(1024) operand_rows(const float *rows, Destination to) {
    convert(to, FromRows{rows + (size_t)blockIdx.x * to.columns, to.columns});
}

// `weights` holds one value per row; null: one.
extern "C" __global__ void __launch_bounds__(1024)
operand_activated(const float *gates, const float *ups, const float *weights, Destination to, float clamp, uint32_t) {
    const size_t first = (size_t)blockIdx.x * to.columns;
    convert(to, FromGates{gates + first, ups + first, weights ? weights + blockIdx.x : nullptr, to.columns, clamp});
}

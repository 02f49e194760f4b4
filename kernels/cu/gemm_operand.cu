// From rows of f32 to the operand of products with many rows (gemm_operand.cuh). A block of threads a row.
#include "gemm_operand.cuh"
#include "row_scale.cuh"

struct GemmOperand {
    uint8_t *halves, *rest; // null: what halves leave of a value is not written
    float *scales;          // what a row's results are multiplied with
    uint32_t columns;
    uint32_t order;
    uint32_t groups;
    uint32_t reserved;
};

static __device__ __forceinline__ float channel(const float *row, uint32_t k, uint32_t columns) { return k < columns ? row[k] : 0; }

// Grid: rows by parts. Rows of a part follow each other; every part begins with a new group.
extern "C" __global__ void __launch_bounds__(256) gemm_operand_rows(const float *rows, GemmOperand to) {
    wait_for_previous();
    let_next_start();
    const uint32_t columns = to.columns, blocks = gemm_blocks(columns);
    const uint32_t target = blockIdx.y * round_to_group(gridDim.x) + blockIdx.x;
    const float *row = rows + ((size_t)blockIdx.x * gridDim.y + blockIdx.y) * columns;
    float largest = 0;
    if (columns % 4 == 0)
        for (uint32_t i = threadIdx.x; i < columns / 4; i += blockDim.x) {
            const float4 x = ((const float4 *)row)[i];
            largest = fmaxf(fmaxf(largest, fmaxf(fabsf(x.x), fabsf(x.y))), fmaxf(fabsf(x.z), fabsf(x.w)));
        }
    else
        for (uint32_t i = threadIdx.x; i < columns; i += blockDim.x) largest = fmaxf(largest, fabsf(row[i]));
    const auto [scale, inverse] = row_scale_of_block(largest);
    if (!threadIdx.x) to.scales[target] = inverse;
    for (uint32_t i = threadIdx.x; i < blocks * 32; i += blockDim.x) {
        const uint32_t block = i / 32, chunk = i % 32;
        Half2 halves[4], rest[4];
#pragma unroll
        for (uint32_t t = 0; t < 4; t++) {
            const uint32_t k = block * BLOCK_CHANNELS + quad(to.order, chunk / 2, t) * 4 + chunk % 2 * 2;
            float2 x;
            if (columns % 2 == 0) x = k < columns ? *(const float2 *)(row + k) : make_float2(0, 0);
            else x = make_float2(channel(row, k, columns), channel(row, k + 1, columns));
            x.x *= scale, x.y *= scale;
            const __half2 rounded = __float22half2_rn(x);
            halves[t] = *(const Half2 *)&rounded;
            const float2 back = __half22float2(rounded);
            const __half2 left = __float22half2_rn(make_float2(x.x - back.x, x.y - back.y));
            rest[t] = *(const Half2 *)&left;
        }
        const size_t place = chunk_place(target, to.groups, block, chunk);
        *(uint4 *)(to.halves + place) = make_uint4(halves[0], halves[1], halves[2], halves[3]);
        if (to.rest) *(uint4 *)(to.rest + place) = make_uint4(rest[0], rest[1], rest[2], rest[3]);
    }
}

// Rows of one operand as rows of another, slot by slot: a block of threads a slot. Slots without a source are left alone.
extern "C" __global__ void __launch_bounds__(256)
gemm_operand_gather(const uint8_t *from, const float *from_scales, const uint32_t *sources, GemmOperand to, uint32_t from_groups, uint32_t) {
    wait_for_previous();
    let_next_start();
    const uint32_t source = sources[blockIdx.x], blocks = gemm_blocks(to.columns);
    if (source == 0xffffffffu) return;
    if (!threadIdx.x) to.scales[blockIdx.x] = from_scales[source];
    for (uint32_t i = threadIdx.x; i < blocks * 32; i += blockDim.x)
        *(uint4 *)(to.halves + chunk_place(blockIdx.x, to.groups, i / 32, i % 32)) = *(const uint4 *)(from + chunk_place(source, from_groups, i / 32, i % 32));
}

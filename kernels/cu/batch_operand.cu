// Rows of f32 as fixed point for products with some rows: see batch.cuh. A warp takes a block of 256 channels of a row.
#include "batch.cuh"

struct FixedOperand {
    FixedRows to;
    uint32_t columns, rows;
    uint32_t order;
    uint32_t reserved;
};

#define OPERAND_WARPS 8

extern "C" __global__ void __launch_bounds__(OPERAND_WARPS * 32) batch_operand(const float *rows, const __grid_constant__ FixedOperand operand) {
    wait_for_previous();
    let_next_start();
    const FixedRows &to = operand.to;
    const uint32_t lane = threadIdx.x & 31, blocks = few_blocks(operand.columns), item = blockIdx.x * OPERAND_WARPS + (threadIdx.x >> 5);
    if (item >= operand.rows * blocks) return;
    float x[8];
    load_eight(x, rows + (size_t)(item / blocks) * operand.columns, item % blocks * CHANNELS + 8 * lane, operand.columns);
    uint32_t high[2], low[2];
    int sum;
    const float scale = fixed_eight(x, high, low, sum);
    if (lane == 0) to.scales[item] = scale;
    // The lanes that have these channels' codes, and which of their eight times eight channels these are.
    const bool is_grid = operand.order == GRID;
    const uint32_t t = is_grid ? lane >> 3 : lane & 3, eight = is_grid ? lane & 7 : lane >> 2;
    uint8_t *at = to.codes + (size_t)item * FIXED_BLOCK + (eight >> 1) * LINE + t * 32 + (eight & 1) * 8;
    *(uint2 *)at = make_uint2(high[0], high[1]);
    *(uint2 *)(at + 16) = make_uint2(low[0], low[1]);
    if (is_grid) return;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    const uint32_t group = lane >> 1;
    if (!(lane & 1)) to.sums[(size_t)item * 16 + (group & 1) * 8 + (group >> 3) * 4 + ((group >> 1) & 3)] = sum;
}

// The router of few rows in one launch: its product, F16, and the experts that every row chooses. Formula: route.cuh.
//
// A block of threads takes a panel of 16 experts and a part of the channels. The one that ends last adds the parts up, in
// order, and chooses: nobody waits for a launch of its own for that, and the blocks are small enough to lie beside those of
// the launch that comes next.
#include "few_half.cuh"
#include "route.cuh"

#define ROUTE_WARPS 4
#define ROUTE_THREADS (ROUTE_WARPS * 32)
#define ROUTE_PARTS 4
#define ROUTE_ROWS 8
#define STACK_MAX 384

struct RouteRows {
    Router router;              // `logits` are not there yet
    const uint8_t *weights;     // [stack][columns]
    const float *input;         // [rows][columns]
    float *parts;               // [ROUTE_PARTS][rows][stack]
    uint32_t columns;
    uint32_t reserved;
};

// Counts, after everything that the thread has written or seen written, and before everything that it reads from then on.
static __device__ __forceinline__ uint32_t arrive(uint32_t *counter) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

// Blocks of threads that have left their part. One stream launches this; the last block leaves 0 for the next launch.
static __device__ uint32_t arrivals;

extern "C" __global__ void __launch_bounds__(ROUTE_THREADS, 4) few_route(const __grid_constant__ RouteRows r) {
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ float results[ROUTE_WARPS][PANEL][ROUTE_ROWS];
    __shared__ bool is_last;
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const uint32_t rows = r.router.rows, stack = r.router.stack, panel = blockIdx.x / ROUTE_PARTS, part = blockIdx.x % ROUTE_PARTS;
    // The part's blocks of 256 channels, and its units of 128 that a warp multiplies with.
    const uint32_t all = few_blocks(r.columns), first_block = part * all / ROUTE_PARTS, blocks = (part + 1) * all / ROUTE_PARTS - first_block;
    const uint32_t planes = shared_address(shared), scales = planes + blocks * rows * 2 * HALF_PLANE, units = 2 * blocks;
    uint32_t column[2];
#pragma unroll
    for (uint32_t n = 0; n < 2; n++) column[n] = min(4 * n + (g >> 1), rows - 1) * 2 * HALF_PLANE + (g & 1) * HALF_PLANE;
    FewF16 weights[2];
    const auto load = [&](FewF16 &to, uint32_t unit) {
        if (unit < units) to.load(r.weights, r.columns, stack, panel, 2 * first_block + unit);
    };
    load(weights[0], warp), load(weights[1], warp + ROUTE_WARPS);
    // Bias and fixed experts are asked for while there is time.
    if (r.router.bias && threadIdx.x * 32 < stack) prefetch_line(r.router.bias + threadIdx.x * 32);
    if (r.router.fixed && threadIdx.x < rows) prefetch_line(r.router.fixed + (size_t)r.router.tokens[threadIdx.x] * EXPERTS_USED);
    wait_for_previous();
    let_next_start();
    for (uint32_t i = warp; i < blocks * rows; i += ROUTE_WARPS) {
        float x[8];
        load_eight(x, r.input + (size_t)(i % rows) * r.columns, (first_block + i / rows) * CHANNELS + 8 * lane, r.columns);
        const float scale = stage_halves(planes + i * 2 * HALF_PLANE, x);
        if (lane == 0) store_shared_4(scales + 4 * i, __float_as_uint(scale));
    }
    __syncthreads();
    float sum[2][2] = {};
    const auto multiply = [&](const FewF16 &by, uint32_t unit) {
        if (unit >= units) return;
        float partial[2][2];
        by.multiply<2>(partial, planes + unit / 2 * rows * 2 * HALF_PLANE + unit % 2 * 256, column);
#pragma unroll
        for (uint32_t n = 0; n < 2; n++) {
            const float scale = load_shared_float(scales + 4 * (unit / 2 * rows + min(4 * n + t, rows - 1)));
            sum[n][0] = fmaf(partial[n][0], scale, sum[n][0]), sum[n][1] = fmaf(partial[n][1], scale, sum[n][1]);
        }
    };
#pragma unroll 1
    for (uint32_t unit = warp; unit < units; unit += 2 * ROUTE_WARPS) {
        multiply(weights[0], unit), load(weights[0], unit + 2 * ROUTE_WARPS);
        multiply(weights[1], unit + ROUTE_WARPS), load(weights[1], unit + 3 * ROUTE_WARPS);
    }
#pragma unroll
    for (uint32_t n = 0; n < 2; n++) results[warp][g][4 * n + t] = sum[n][0], results[warp][g + 8][4 * n + t] = sum[n][1];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < PANEL * rows; i += ROUTE_THREADS) {
        const uint32_t output = i % PANEL, row = i / PANEL, expert = panel * PANEL + output;
        float one = 0;
#pragma unroll
        for (int w = 0; w < ROUTE_WARPS; w++) one += results[w][output][row];
        if (expert < stack) r.parts[((size_t)part * rows + row) * stack + expert] = one;
    }
    // The barriers make what all threads have written, or are going to read, that of the one that counts.
    __syncthreads();
    if (threadIdx.x == 0) is_last = arrive(&arrivals) + 1 == gridDim.x;
    __syncthreads();
    if (!is_last) return;
    if (threadIdx.x == 0) arrivals = 0;
    // Rows are done with: scores and their order take their place.
    float *scores = (float *)shared;
    uint32_t *orders = (uint32_t *)scores + rows * stack;
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < rows * stack; i += ROUTE_THREADS) {
        const float bias = r.router.bias ? r.router.bias[i % stack] : 0.0f;
        float parts[ROUTE_PARTS], logit = 0;
#pragma unroll
        for (uint32_t p = 0; p < ROUTE_PARTS; p++) parts[p] = __ldcg(r.parts + (size_t)p * rows * stack + i);
#pragma unroll
        for (uint32_t p = 0; p < ROUTE_PARTS; p++) logit += parts[p];
        scores[i] = score(logit), orders[i] = order(scores[i] + bias);
    }
    __syncthreads();
    for (uint32_t row = warp; row < rows; row += ROUTE_WARPS) {
        uint32_t chosen = 0;
        if (r.router.fixed) {
            if (lane < EXPERTS_USED) chosen = min(r.router.fixed[(size_t)r.router.tokens[row] * EXPERTS_USED + lane], stack - 1);
        } else {
            uint32_t keys[STACK_MAX / 32];
#pragma unroll
            for (uint32_t i = 0; i < STACK_MAX / 32; i++) keys[i] = i * 32 + lane < stack ? orders[row * stack + i * 32 + lane] : 0;
            chosen = best_keys<STACK_MAX / 32>(keys, stack);
        }
        const float weight = weight_of(lane < EXPERTS_USED ? scores[row * stack + chosen] : 0, r.router.scale);
        if (lane < EXPERTS_USED) r.router.experts[row * EXPERTS_USED + lane] = chosen, r.router.weights[row * EXPERTS_USED + lane] = weight;
    }
}

// The feed-forward site for few rows, in two launches: what gates and linear parts make (few_up), and the experts' sums
// (few_down), each with the shared expert. Routed experts are IQ2_XXS (gate, up) and Q2_K (down), the shared one Q8_0.
#include "few_merge.cuh"
#include "common.cuh"

#define EXPERTS_USED 6
#define UP_SHARED_WARPS 8

struct Up {
    const float *input;             // [rows][columns]
    const uint8_t *gate, *up;       // a stack of matrices each
    const uint8_t *shared_gate, *shared_up;
    const uint32_t *experts;        // [rows][6]
    const float *weights;           // the same
    float *hidden;                  // [rows][7][outputs]: six routed experts, then the shared one
    uint32_t columns, outputs, rows;
    uint32_t shared_blocks;         // the first blocks of threads take the shared expert
    uint32_t stack;
    float clamp;
};

static __device__ __forceinline__ float activated(float gate, float up, float clamp) {
    const float capped = fminf(gate, clamp);
    return capped * sigmoid(capped) * fminf(fmaxf(up, -clamp), clamp);
}

// Shared memory: tables; zeros; the row's planes, block by block; scales.
#define UP_ZEROS FEW_TABLES
#define UP_PLANES (UP_ZEROS + PLANE + 32)

static __device__ __forceinline__ void clear_zeros(uint32_t at) {
    for (uint32_t i = threadIdx.x; i < PLANE / 4; i += blockDim.x) store_shared_4(at + 4 * i, 0);
}

static __device__ __forceinline__ void up_routed(const Up &u) {
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ float results[2][FEW_WARPS][2][PANEL];
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, base = shared_address(shared);
    const uint32_t blocks = few_blocks(u.columns), panels = u.outputs / PANEL, items = u.rows * EXPERTS_USED * panels;
    const uint32_t own = blockIdx.x - u.shared_blocks, sharing = gridDim.x - u.shared_blocks;
    const uint32_t begin = (uint32_t)((uint64_t)own * items / sharing), end = (uint32_t)((uint64_t)(own + 1) * items / sharing);
    const uint32_t planes = base + UP_PLANES, scales = planes + blocks * ROW_PLANES;
    fill_few_tables(shared);
    clear_zeros(base + UP_ZEROS);
    wait_for_previous();
    let_next_start();
    uint32_t item = begin, block = warp;
    if (block >= blocks) item = end;
    FewIQ2_XXS next_gate, next_up;
    const auto load = [&]() {
        const uint32_t expert = min(u.experts[item / panels], u.stack - 1), panel = expert * panels + item % panels;
        next_gate.load(u.gate, u.columns, panel, block);
        next_up.load(u.up, u.columns, panel, block);
    };
    if (item < end) load();
    uint32_t row = 0xffffffffu;
    for (uint32_t current = begin; current < end; current++) {
        if (current / panels / EXPERTS_USED != row) {
            row = current / panels / EXPERTS_USED;
            __syncthreads();
            for (uint32_t i = warp; i < blocks; i += FEW_WARPS) {
                float x[8];
                load_eight(x, u.input + (size_t)row * u.columns, i * CHANNELS + 8 * lane, u.columns);
                const float scale = stage_eight(planes + i * ROW_PLANES, 0, x);
                if (lane == 0) store_shared_4(scales + 4 * i, __float_as_uint(scale));
            }
            __syncthreads();
        }
        float gate[2] = {0, 0}, up[2] = {0, 0};
        while (item == current) {
            const FewIQ2_XXS gates = next_gate, ups = next_up;
            const uint32_t now = block;
            block += FEW_WARPS;
            if (block >= blocks) block = warp, item++;
            if (item < end) load();
            uint4 x[4];
            FewIQ2_XXS::load_row(x, own_plane(planes + now * ROW_PLANES, base + UP_ZEROS));
            const float scale = load_shared_float(scales + 4 * now);
            float part[2];
            gates.multiply(part, x, shared);
            gate[0] = fmaf(part[0], scale, gate[0]), gate[1] = fmaf(part[1], scale, gate[1]);
            ups.multiply(part, x, shared);
            up[0] = fmaf(part[0], scale, up[0]), up[1] = fmaf(part[1], scale, up[1]);
        }
        const uint32_t turn = current & 1, g = lane >> 2;
        gate[0] = sum_of_four(gate[0]), gate[1] = sum_of_four(gate[1]), up[0] = sum_of_four(up[0]), up[1] = sum_of_four(up[1]);
        if (!(lane & 3)) {
            results[turn][warp][0][g] = gate[0], results[turn][warp][0][g + 8] = gate[1];
            results[turn][warp][1][g] = up[0], results[turn][warp][1][g + 8] = up[1];
        }
        __syncthreads();
        // The warp that is last with its loads is not always the first here.
        if (warp == current % FEW_WARPS && lane < PANEL) {
            float sums[2] = {0, 0};
#pragma unroll
            for (int w = 0; w < FEW_WARPS; w++) sums[0] += results[turn][w][0][lane], sums[1] += results[turn][w][1][lane];
            const uint32_t route = current / panels, rank = route % EXPERTS_USED;
            u.hidden[((size_t)row * (EXPERTS_USED + 1) + rank) * u.outputs + current % panels * PANEL + lane] =
                activated(sums[0], sums[1], u.clamp) * u.weights[route];
        }
    }
}

template <int FOURS> static __device__ __forceinline__ void up_shared(const Up &u) {
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ float results[2][FEW_WARPS][2][PANEL][4 * FOURS];
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, planes = shared_address(shared);
    const uint32_t blocks = few_blocks(u.columns), panels = (u.outputs + PANEL - 1) / PANEL;
    const uint32_t begin = (uint32_t)((uint64_t)blockIdx.x * panels / u.shared_blocks), end = (uint32_t)((uint64_t)(blockIdx.x + 1) * panels / u.shared_blocks);
    const uint32_t scales = planes + blocks * u.rows * ROW_PLANES;
    uint32_t column[FOURS];
    dense_columns<FOURS>(column, u.rows);
    // Gate and up of a block of channels in turn.
    uint32_t panel = begin, block = warp;
    bool is_up = false;
    if (block >= blocks) panel = end;
    FewQ8_0 next;
    if (panel < end) next.load(u.shared_gate, u.columns, u.outputs, panel, block);
    wait_for_previous();
    let_next_start();
    for (uint32_t i = warp; i < blocks * u.rows; i += FEW_WARPS) {
        float x[8];
        load_eight(x, u.input + (size_t)(i % u.rows) * u.columns, i / u.rows * CHANNELS + 8 * lane, u.columns);
        const float scale = stage_eight(planes + i * ROW_PLANES, 0, x);
        if (lane == 0) store_shared_4(scales + 4 * i, __float_as_uint(scale));
    }
    __syncthreads();
    for (uint32_t current = begin; current < end; current++) {
        float sum[2][FOURS][2];
#pragma unroll
        for (int i = 0; i < 2 * FOURS * 2; i++) (&sum[0][0][0])[i] = 0;
        while (panel == current) {
            const FewQ8_0 weights = next;
            const uint32_t now = block;
            const bool up = is_up;
            if (is_up) block += FEW_WARPS;
            is_up = !is_up;
            if (block >= blocks) block = warp, panel++;
            if (panel < end) next.load(is_up ? u.shared_up : u.shared_gate, u.columns, u.outputs, panel, block);
            float part[FOURS][2];
            weights.multiply<FOURS>(part, planes + now * u.rows * ROW_PLANES, column);
#pragma unroll
            for (uint32_t n = 0; n < FOURS; n++) {
                const float scale = load_shared_float(scales + 4 * (now * u.rows + min(4 * n + t, u.rows - 1)));
                part[n][0] *= scale, part[n][1] *= scale;
                if (up) sum[1][n][0] += part[n][0], sum[1][n][1] += part[n][1];
                else sum[0][n][0] += part[n][0], sum[0][n][1] += part[n][1];
            }
        }
        const uint32_t turn = current & 1;
#pragma unroll
        for (uint32_t which = 0; which < 2; which++)
#pragma unroll
            for (uint32_t n = 0; n < FOURS; n++)
                results[turn][warp][which][g][4 * n + t] = sum[which][n][0], results[turn][warp][which][g + 8][4 * n + t] = sum[which][n][1];
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < PANEL * u.rows; i += FEW_THREADS) {
            const uint32_t output = i % PANEL, row = i / PANEL, at = current * PANEL + output;
            float sums[2] = {0, 0};
#pragma unroll
            for (int w = 0; w < FEW_WARPS; w++) sums[0] += results[turn][w][0][output][row], sums[1] += results[turn][w][1][output][row];
            if (at < u.outputs) u.hidden[((size_t)row * (EXPERTS_USED + 1) + EXPERTS_USED) * u.outputs + at] = activated(sums[0], sums[1], u.clamp);
        }
    }
}

struct Down {
    Merge merge;
    const float *hidden;            // [rows][7][columns]
    const uint8_t *down;            // a stack
    const uint8_t *shared_down;
    const uint32_t *experts;        // [rows][6]
    float *out;                     // [rows][outputs], where nothing is merged
    uint32_t columns, outputs, rows;
    uint32_t stack;
};

// A warp's own shared memory: two buffers of a routed row's block, then the shared expert's rows' blocks.
#define DOWN_SUMS ROW_PLANES
#define DOWN_ONE (ROW_PLANES + 64)
#define DOWN_WARP(rows) (2 * DOWN_ONE + (rows) * ROW_PLANES + 64)

template <int FOURS> static __device__ __forceinline__ void down(const Down &d) {
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ float results[FEW_WARPS][4 * FOURS][PANEL];
    __shared__ MergePanel<4 * FOURS> merging;
    __shared__ uint32_t experts[4 * FOURS * EXPERTS_USED];
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const uint32_t blocks = few_blocks(d.columns), panels = (d.outputs + PANEL - 1) / PANEL;
    const uint32_t begin = (uint32_t)((uint64_t)blockIdx.x * panels / gridDim.x), end = (uint32_t)((uint64_t)(blockIdx.x + 1) * panels / gridDim.x);
    const uint32_t zeros = shared_address(shared), base = zeros + PLANE + 32 + warp * DOWN_WARP(d.rows);
    const uint32_t dense = base + 2 * DOWN_ONE, dense_scales = dense + d.rows * ROW_PLANES;
    uint32_t column[FOURS];
    dense_columns<FOURS>(column, d.rows);
    FewQ8_0 common;
    if (begin < end && warp < blocks) common.load(d.shared_down, d.columns, d.outputs, begin, warp);
    clear_zeros(zeros);
    wait_for_previous();
    let_next_start();
    for (uint32_t i = threadIdx.x; i < d.rows * EXPERTS_USED; i += FEW_THREADS) experts[i] = min(d.experts[i], d.stack - 1);
    __syncthreads();
    for (uint32_t panel = begin; panel < end; panel++) {
        for (uint32_t i = lane; i < d.rows * PANEL; i += 32) results[warp][i / PANEL][i % PANEL] = 0;
#pragma unroll 1
        for (uint32_t block = warp; block < blocks; block += FEW_WARPS) {
            if (panel != begin || block != warp) common.load(d.shared_down, d.columns, d.outputs, panel, block);
            const uint32_t slots = d.rows * EXPERTS_USED;
            FewQ2_K next;
            float x[8];
            const auto load = [&](uint32_t slot) {
                next.load(d.down, d.columns, experts[slot] * panels + panel, block);
                load_eight(x, d.hidden + (size_t)(slot + slot / EXPERTS_USED) * d.columns, block * CHANNELS + 8 * lane, d.columns);
            };
            __syncwarp();
            for (uint32_t row = 0; row < d.rows; row++) {
                load_eight(x, d.hidden + ((size_t)row * (EXPERTS_USED + 1) + EXPERTS_USED) * d.columns, block * CHANNELS + 8 * lane, d.columns);
                const float scale = stage_eight(dense + row * ROW_PLANES, 0, x);
                if (lane == 0) store_shared_4(dense_scales + 4 * row, __float_as_uint(scale));
            }
            __syncwarp();
            float part[FOURS][2];
            common.multiply<FOURS>(part, dense, column);
            load(0);
#pragma unroll
            for (uint32_t n = 0; n < FOURS; n++) {
                const uint32_t row = 4 * n + t;
                const float scale = load_shared_float(dense_scales + 4 * min(row, d.rows - 1));
                if (row < d.rows) results[warp][row][g] += part[n][0] * scale, results[warp][row][g + 8] += part[n][1] * scale;
            }
            uint32_t slot = 0;
#pragma unroll 1
            for (uint32_t row = 0; row < d.rows; row++) {
                float sum[2] = {0, 0};
#pragma unroll 1
                for (uint32_t rank = 0; rank < EXPERTS_USED; rank++) {
                    const uint32_t at = base + (slot & 1) * DOWN_ONE;
                    const FewQ2_K weights = next;
                    const float scale = stage_eight(at, at + DOWN_SUMS, x);
                    __syncwarp();
                    if (++slot < slots) load(slot);
                    float own[2];
                    weights.multiply(own, own_plane(at, zeros), at + DOWN_SUMS);
                    sum[0] = fmaf(own[0], scale, sum[0]), sum[1] = fmaf(own[1], scale, sum[1]);
                }
                const float upper = sum_of_four(sum[0]), lower = sum_of_four(sum[1]);
                if (t == 0) results[warp][row][g] += upper, results[warp][row][g + 8] += lower;
                __syncwarp();
            }
        }
        if (d.merge.streams) merging.load(d.merge, panel, d.rows);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < PANEL * d.rows; i += FEW_THREADS) {
            const uint32_t output = i % PANEL, row = i / PANEL, at = panel * PANEL + output;
            float all = 0;
#pragma unroll
            for (int w = 0; w < FEW_WARPS; w++) all += results[w][row][output];
            merging.output[row][output] = all;
            if (!d.merge.streams && at < d.outputs) d.out[(size_t)row * d.outputs + at] = all;
        }
        __syncthreads();
        if (d.merge.streams) merging.finish(d.merge, panel, panels, d.rows);
        __syncthreads();
    }
}

#define KERNELS(FOURS)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 2)                                                           \
    few_up_##FOURS(const __grid_constant__ Up up) {                                                                        \
        if (blockIdx.x < up.shared_blocks) up_shared<FOURS>(up);                                                           \
        else up_routed(up);                                                                                                \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 2)                                                           \
    few_down_##FOURS(const __grid_constant__ Down d) { down<FOURS>(d); }

KERNELS(1)
KERNELS(2)

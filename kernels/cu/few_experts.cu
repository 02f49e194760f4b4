// The experts of few rows, in two launches: what gates and linear parts make (few_up), and the experts' sums (few_down).
// Routed experts are IQ2_XXS (gate, up) and Q2_K (down), the shared one Q8_0.
//
// Both read what the launch before last has written before they wait for the last one: a kernel here lets the next start
// only when its own wait is over. So few_up multiplies with the shared expert, whose rows were there before, while their
// routes are being chosen (few_route.cu), and few_down knows the routes when it asks for its first weights. What few_up writes
// meanwhile is memory that was taken before the launch of few_route: src/cuda/arena.rs says why.
#include "few_merge.cuh"
#include "merge_values.cuh"

#define EXPERTS_USED 6

struct Up {
    const float *input;             // [rows][columns], there before the routes are
    const uint8_t *gate, *up;       // a stack of matrices each
    const uint8_t *shared_gate, *shared_up;
    float *hidden;                  // [rows][6][outputs]
    float *shared_hidden;           // [rows][outputs]
    const uint32_t *experts;        // [rows][6]
    const float *weights;           // [rows][6]
    Mixes mixes;                    // what will merge the output, made by the first blocks of threads
    uint32_t columns, outputs, rows, stack;
    float clamp;
    uint32_t reserved;
};

static __device__ __forceinline__ float activated(float gate, float up, float clamp) {
    const float capped = fminf(gate, clamp);
    return capped * sigmoid(capped) * fminf(fmaxf(up, -clamp), clamp);
}

// A block of threads of few_up has a multiprocessor for itself, but for the registers of 128 threads. Up to UP_ITEMS panels
// of 16 outputs of routed experts are taken at once, by two times eight warps; each of the eight has an eighth of the channels.
#define UP_WARPS 16
#define UP_SHARING 8
#define UP_SLOTS (UP_WARPS / UP_SHARING)
#define UP_ITEMS 6
#define UP_ENTRIES (384 / (UP_WARPS * 32 / 8))
// Rows that are multiplied with the shared expert at once.
#define UP_ROWS 4

// Shared memory: zeros; a row's planes, block by block; scales; tables, in whose place several rows are before.
#define UP_PLANES (PLANE + 32)

static __device__ __forceinline__ void clear_zeros(uint32_t at) {
    for (uint32_t i = threadIdx.x; i < PLANE / 4; i += blockDim.x) store_shared_4(at + 4 * i, 0);
}

// A block of gate and linear part.
struct UpPair {
    FewIQ2_XXS gate, up;
};

extern __shared__ __align__(128) uint8_t shared[];

// As many registers as 640 threads would leave each.
extern "C" __global__ void __launch_bounds__(640, 1) few_up(const __grid_constant__ Up u) {
    __shared__ float results[UP_ITEMS][UP_SHARING][2][PANEL];
    __shared__ float commons[UP_WARPS][PANEL][UP_ROWS];
    __shared__ double mixes[PARTIALS];
    const uint32_t before = u.mixes.partials ? u.mixes.rows : 0;
    // Mixes were there before the launch in front of this one began.
    if (blockIdx.x < before) return merge_values(u.mixes, blockIdx.x, mixes);
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, slot = warp / UP_SHARING, eighth = warp % UP_SHARING;
    const uint32_t own = blockIdx.x - before, others = gridDim.x - before, base = shared_address(shared);
    const uint32_t blocks = few_blocks(u.columns), panels = u.outputs / PANEL, of_row = EXPERTS_USED * panels, items = u.rows * of_row;
    const uint32_t planes = base + UP_PLANES, scales = planes + blocks * ROW_PLANES, tables = (scales + 4 * blocks + FEW_GRID - 1) & ~(FEW_GRID - 1u);
    // Brings `count` rows to shared memory, block by block. Every thread takes part.
    const auto stage_rows = [&](uint32_t first, uint32_t count, uint32_t at) {
        for (uint32_t i = warp; i < blocks * count; i += UP_WARPS) {
            float x[8];
            load_eight(x, u.input + (size_t)(first + i % count) * u.columns, i / count * CHANNELS + 8 * lane, u.columns);
            const float scale = stage_eight(at + i * ROW_PLANES, 0, x);
            if (lane == 0) store_shared_4(at + blocks * count * ROW_PLANES + 4 * i, __float_as_uint(scale));
        }
        __syncthreads();
    };

    // The shared expert: eight warps have a panel's gates, eight its linear parts.
    const uint32_t common_begin = own * panels / others, common_end = (own + 1) * panels / others;
    const uint8_t *stored = slot ? u.shared_up : u.shared_gate;
    FewQ8_0 common;
    bool is_there = common_begin < common_end && eighth < blocks;
    if (is_there) common.load(stored, u.columns, u.outputs, common_begin, eighth);
    if (threadIdx.x * 64 < 256) prefetch_line(IQ2_GRID + threadIdx.x * 64);
    clear_zeros(base);
    const uint32_t at_once = min((uint32_t)UP_ROWS, FEW_TABLES / (blocks * (ROW_PLANES + 4)));
    for (uint32_t first = 0, count; first < u.rows; first += count) {
        count = min(at_once, u.rows - first);
        const uint32_t at = u.rows == 1 ? planes : tables;
        uint32_t column[1];
        dense_columns<1>(column, count);
        stage_rows(first, count, at);
        for (uint32_t panel = common_begin; panel < common_end; panel++) {
            float sum[2] = {0, 0};
#pragma unroll 1
            for (uint32_t block = eighth; block < blocks; block += UP_SHARING) {
                if (!is_there) common.load(stored, u.columns, u.outputs, panel, block);
                is_there = false;
                float part[1][2];
                common.multiply<1>(part, at + block * count * ROW_PLANES, column);
                const float scale = load_shared_float(at + blocks * count * ROW_PLANES + 4 * (block * count + min(t, count - 1)));
                sum[0] = fmaf(part[0][0], scale, sum[0]), sum[1] = fmaf(part[0][1], scale, sum[1]);
            }
            commons[warp][g][t] = sum[0], commons[warp][g + 8][t] = sum[1];
            __syncthreads();
            if (threadIdx.x < PANEL * count) {
                const uint32_t output = threadIdx.x % PANEL, row = threadIdx.x / PANEL;
                float gate = 0, up = 0;
#pragma unroll
                for (int w = 0; w < UP_SHARING; w++) gate += commons[w][output][row], up += commons[UP_SHARING + w][output][row];
                u.shared_hidden[(size_t)(first + row) * u.outputs + panel * PANEL + output] = activated(gate, up, u.clamp);
            }
            __syncthreads();
        }
    }

    // Routed experts.
    const uint32_t begin = own * items / others, end = (own + 1) * items / others;
    uint32_t row = begin / of_row;
    // A row alone is where it was put.
    if (u.rows > 1 && begin < end) stage_rows(row, 1, planes);
    // Eight threads of a warp fill an entry's copies of tables. All entries are asked for at once.
    uint32_t entries[UP_ENTRIES];
#pragma unroll
    for (uint32_t i = 0; i < UP_ENTRIES; i++) entries[i] = iq2_table_entry(i * (UP_WARPS * 32 / 8) + threadIdx.x / 8);
#pragma unroll
    for (uint32_t i = 0; i < UP_ENTRIES; i++)
        store_shared_16(tables + (i * (UP_WARPS * 32 / 8) + threadIdx.x / 8) * 128 + threadIdx.x % 8 * 16, make_uint4(entries[i], entries[i], entries[i], entries[i]));
    __syncthreads();
    wait_for_previous();
    let_next_start();
    // Of every route, two in each lane.
    uint32_t experts[2] = {0, 0};
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (lane + 32 * i < u.rows * EXPERTS_USED) experts[i] = min(u.experts[lane + 32 * i], u.stack - 1);
    // A turn: items of one row. What is loaded next runs ahead of what is multiplied, from turn to turn.
    const auto turn_end = [&](uint32_t from) { return min(min(end, from + UP_ITEMS), (from / of_row + 1) * of_row); };
    uint32_t item = begin + slot, limit = turn_end(begin), block = eighth, panel = 0;
    const auto find = [&]() {
        while (item >= limit && limit < end) item = limit + slot, limit = turn_end(limit);
        if (item >= limit || eighth >= blocks) item = end;
        const uint32_t route = min(item / panels, u.rows * EXPERTS_USED - 1);
        panel = __shfl_sync(0xffffffffu, route < 32 ? experts[0] : experts[1], route % 32) * panels + item % panels;
    };
    const auto load = [&](UpPair &pair) {
        if (item >= end) return;
        pair.gate.load(u.gate, u.columns, panel, block), pair.up.load(u.up, u.columns, panel, block);
        block += UP_SHARING;
        if (block >= blocks) block = eighth, item += UP_SLOTS, find();
    };
    find();
    UpPair first, second;
    load(first), load(second);
    // The lane's copy of tables, and its channels of a block, or zeros.
    const uint32_t copy = tables | lane * 4, channels = 64 * t + (t >> 1) * 16;
    bool is_second = false;
    for (uint32_t from = begin, to; from < end; from = to) {
        to = turn_end(from);
        if (from / of_row != row) row = from / of_row, stage_rows(row, 1, planes);
        const uint32_t which = threadIdx.x / PANEL, output = threadIdx.x % PANEL, route = (from + which) / panels;
        const float weight = from + which < to ? u.weights[route] : 0;
        for (uint32_t current = from + slot; current < to; current += UP_SLOTS) {
            float gate[2] = {0, 0}, up[2] = {0, 0};
            const auto multiply = [&](UpPair &pair, uint32_t now) {
                float gates[2], ups[2];
                FewIQ2_XXS::multiply_both(gates, ups, pair.gate, pair.up, own_plane(planes + now * ROW_PLANES, base) + channels, copy);
                load(pair);
                const float scale = load_shared_float(scales + 4 * now);
                gate[0] = fmaf(gates[0], scale, gate[0]), gate[1] = fmaf(gates[1], scale, gate[1]);
                up[0] = fmaf(ups[0], scale, up[0]), up[1] = fmaf(ups[1], scale, up[1]);
            };
#pragma unroll 1
            for (uint32_t now = eighth; now < blocks; now += UP_SHARING, is_second = !is_second) {
                if (is_second) multiply(second, now);
                else multiply(first, now);
            }
            gate[0] = sum_of_four(gate[0]), gate[1] = sum_of_four(gate[1]), up[0] = sum_of_four(up[0]), up[1] = sum_of_four(up[1]);
            if (t == 0) {
                results[current - from][eighth][0][g] = gate[0], results[current - from][eighth][0][g + 8] = gate[1];
                results[current - from][eighth][1][g] = up[0], results[current - from][eighth][1][g + 8] = up[1];
            }
        }
        __syncthreads();
        if (from + which < to) {
            float sums[2] = {0, 0};
#pragma unroll
            for (int w = 0; w < UP_SHARING; w++) sums[0] += results[which][w][0][output], sums[1] += results[which][w][1][output];
            u.hidden[(size_t)route * u.outputs + (from + which) % panels * PANEL + output] = activated(sums[0], sums[1], u.clamp) * weight;
        }
        if (to < end) __syncthreads();
    }
}

struct Down {
    Merge merge;
    const float *hidden;            // [rows][6][columns]
    const float *shared_hidden;     // [rows][columns]
    const uint8_t *down;            // a stack
    const uint8_t *shared_down;
    float *out;                     // [rows][outputs], where nothing is merged
    const uint32_t *experts;        // [rows][6], there before `hidden` is
    uint32_t columns, outputs, rows, stack;
};

// A warp's own shared memory: two buffers of a routed row's block, then the shared expert's rows' blocks.
#define DOWN_SUMS ROW_PLANES
#define DOWN_ONE (ROW_PLANES + 64)
#define DOWN_WARP(rows) (2 * DOWN_ONE + (rows) * ROW_PLANES + 64)

// A routed expert's block of weights, and the lane's eight channels of the row that it is multiplied with.
struct DownSlot {
    FewQ2_K weights;
    float x[8];

    // `experts`: of every slot, two in each lane.
    __device__ __forceinline__ void load_weights(const Down &d, const uint32_t (&experts)[2], uint32_t slot, uint32_t panel, uint32_t panels, uint32_t block) {
        const uint32_t expert = __shfl_sync(0xffffffffu, slot < 32 ? experts[0] : experts[1], slot % 32);
        weights.load(d.down, d.columns, expert * panels + panel, block);
    }

    __device__ __forceinline__ void load_row(const Down &d, uint32_t slot, uint32_t block) {
        load_eight(x, d.hidden + (size_t)slot * d.columns, block * CHANNELS + 8 * (threadIdx.x & 31), d.columns);
    }

    // `at`: the warp's own memory for a row's block, which it reads no more when it comes here again.
    __device__ __forceinline__ void multiply(float (&sum)[2], uint32_t at, uint32_t zeros) const {
        const float scale = stage_eight(at, at + DOWN_SUMS, x);
        __syncwarp();
        float own[2];
        weights.multiply(own, own_plane(at, zeros), at + DOWN_SUMS);
        sum[0] = fmaf(own[0], scale, sum[0]), sum[1] = fmaf(own[1], scale, sum[1]);
    }
};
static_assert(EXPERTS_USED % 2 == 0, "slots are taken in pairs");

template <int FOURS> static __device__ __forceinline__ void down(const Down &d) {
    __shared__ float results[FEW_WARPS][4 * FOURS][PANEL];
    __shared__ MergePanel<4 * FOURS> merging;
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, rows = d.rows;
    const uint32_t blocks = few_blocks(d.columns), panels = (d.outputs + PANEL - 1) / PANEL;
    const uint32_t begin = (uint32_t)((uint64_t)blockIdx.x * panels / gridDim.x), end = (uint32_t)((uint64_t)(blockIdx.x + 1) * panels / gridDim.x);
    const uint32_t zeros = shared_address(shared), base = zeros + PLANE + 32 + warp * DOWN_WARP(rows);
    const uint32_t dense = base + 2 * DOWN_ONE, dense_scales = dense + rows * ROW_PLANES;
    uint32_t column[FOURS];
    dense_columns<FOURS>(column, rows);
    FewQ8_0 common;
    if (begin < end && warp < blocks) common.load(d.shared_down, d.columns, d.outputs, begin, warp);
    clear_zeros(zeros);
    __syncthreads();
    // Of every slot, two in each lane.
    const uint32_t slots = rows * EXPERTS_USED;
    uint32_t experts[2] = {0, 0};
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (lane + 32 * i < slots) experts[i] = min(d.experts[lane + 32 * i], d.stack - 1);
    if (d.merge.streams && begin < end) merging.ask(d.merge, begin, rows);
    bool waited = false;
    const auto wait = [&]() {
        wait_for_previous();
        let_next_start();
        if (d.merge.streams) merging.ask_values(d.merge, rows);
        waited = true;
    };
    for (uint32_t panel = begin; panel < end; panel++) {
        if (d.merge.streams && panel != begin) merging.ask(d.merge, panel, rows);
        for (uint32_t i = lane; i < rows * PANEL; i += 32) results[warp][i / PANEL][i % PANEL] = 0;
#pragma unroll 1
        for (uint32_t block = warp; block < blocks; block += FEW_WARPS) {
            if (panel != begin || block != warp) common.load(d.shared_down, d.columns, d.outputs, panel, block);
            // Two slots' weights and rows are on their way while another is multiplied; the second is asked for when there are
            // registers for it.
            DownSlot even, odd;
            even.load_weights(d, experts, 0, panel, panels, block);
            if (!waited) wait();
            __syncwarp();
            for (uint32_t row = 0; row < rows; row++) {
                float x[8];
                load_eight(x, d.shared_hidden + (size_t)row * d.columns, block * CHANNELS + 8 * lane, d.columns);
                const float scale = stage_eight(dense + row * ROW_PLANES, 0, x);
                if (lane == 0) store_shared_4(dense_scales + 4 * row, __float_as_uint(scale));
            }
            __syncwarp();
            even.load_row(d, 0, block);
            float part[FOURS][2];
            common.multiply<FOURS>(part, dense, column);
            odd.load_weights(d, experts, 1, panel, panels, block), odd.load_row(d, 1, block);
#pragma unroll
            for (uint32_t n = 0; n < FOURS; n++) {
                const uint32_t row = 4 * n + t;
                const float scale = load_shared_float(dense_scales + 4 * min(row, rows - 1));
                if (row < rows) results[warp][row][g] += part[n][0] * scale, results[warp][row][g + 8] += part[n][1] * scale;
            }
#pragma unroll 1
            for (uint32_t row = 0; row < rows; row++) {
                float sum[2] = {0, 0};
#pragma unroll 1
                for (uint32_t slot = row * EXPERTS_USED; slot < (row + 1) * EXPERTS_USED; slot += 2) {
                    even.multiply(sum, base, zeros);
                    if (slot + 2 < slots) even.load_weights(d, experts, slot + 2, panel, panels, block), even.load_row(d, slot + 2, block);
                    odd.multiply(sum, base + DOWN_ONE, zeros);
                    if (slot + 3 < slots) odd.load_weights(d, experts, slot + 3, panel, panels, block), odd.load_row(d, slot + 3, block);
                }
                const float upper = sum_of_four(sum[0]), lower = sum_of_four(sum[1]);
                if (t == 0) results[warp][row][g] += upper, results[warp][row][g + 8] += lower;
                __syncwarp();
            }
        }
        // Warps without channels have not waited yet.
        if (!waited) wait();
        copies_done();
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < PANEL * rows; i += FEW_THREADS) {
            const uint32_t output = i % PANEL, row = i / PANEL, at = panel * PANEL + output;
            float all = 0;
#pragma unroll
            for (int w = 0; w < FEW_WARPS; w++) all += results[w][row][output];
            merging.output[row][output] = all;
            if (!d.merge.streams && at < d.outputs) d.out[(size_t)row * d.outputs + at] = all;
        }
        __syncthreads();
        if (d.merge.streams) merging.finish(d.merge, panel, panels, rows);
        __syncthreads();
    }
}

#define KERNELS(FOURS)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 2)                                                           \
    few_down_##FOURS(const __grid_constant__ Down d) { down<FOURS>(d); }

KERNELS(1)
KERNELS(2)

// Products of stored weights with many rows of activations, for one matrix and for a stack with rows grouped by matrix.
//
// A block of threads stays on its multiprocessor and takes tile after tile: 256 weight rows by N rows of activations. Sixteen
// warps, four warpgroups, bring codes from memory into registers, make half floats of them there (gemm_weights.cuh) and
// multiply; the first warp also keeps a ring of stages in shared memory filled with activations, 128 channels each, and runs
// ahead into the next tile.
//
// A row's result does not depend on the rows that come with it: every result is summed over the channels in one order.
//
// GATED: the tile has 128 rows of a gate and the same rows of its linear part, eight and eight in a warp, so that a lane has
// both results; what they make is written as the operand of the next product.
#pragma once
#include "common.cuh"
#include "gemm_weights.cuh"
#include "group.cuh"

#define GEMM_WARPS 16
#define GEMM_THREADS (32 * GEMM_WARPS)
#define STAGE_CHANNELS 128
#define STAGES_MAX 16
// Stages that warps may be behind the first one before it waits for them.
#define STAGES_BEHIND 3

struct Gemm {
    const uint8_t *first_weights, *second_weights;
    const uint8_t *operand;
    const float *scales;            // of every operand row; null: `scale` of all
    const Group *groups;            // null: tiles of every part in turn
    float *out;
    uint8_t *hidden;                // GATED, and the weight of every row; null: 1
    const float *weights;
    uint32_t columns;
    uint32_t outputs;               // rows of one matrix, or of one part
    uint32_t parts;                 // without groups: parts of an operand row, each with its own weight rows
    uint32_t rows;                  // without groups: rows
    uint32_t tiles;                 // groups there can be, those that there are first; or tiles of the rows, all parts counted
    uint32_t bands;                 // tiles along the weight rows
    uint32_t stages;
    uint32_t hidden_order;
    float scale, clamp, hidden_scale;
    uint32_t reserved;
};

// The rows and the matrix of a tile.
struct GemmTile {
    uint32_t matrix, band, rows, operand_row, out_row, column;

    template <int N> static __device__ __forceinline__ GemmTile at(const Gemm &gemm, uint32_t item) {
        GemmTile tile;
        if (item >= gemm.tiles * gemm.bands) {
            tile.rows = 0;
        } else if (gemm.groups) {
            const Group group = gemm.groups[item / gemm.bands];
            tile = {group.matrix, item % gemm.bands, group.rows, group.first, group.first, 0};
        } else {
            const uint32_t across = gemm.tiles / gemm.parts, index = item % gemm.tiles, first = index % across * N;
            tile.matrix = index / across, tile.band = item / gemm.tiles, tile.rows = min((uint32_t)N, gemm.rows - first);
            tile.operand_row = tile.matrix * round_to_group(gemm.rows) + first, tile.out_row = first, tile.column = tile.matrix * gemm.outputs;
        }
        return tile;
    }
};

template <int N> struct Stage {
    enum { BYTES = N * STAGE_CHANNELS * 2 };
};

// A warp's place among the weight rows: eights of rows for GATED, sixteens otherwise.
template <bool GATED> struct WarpRows {
    enum { HEIGHT = GATED ? 8 : 16 };
    uint32_t begin, unit;

    __device__ __forceinline__ WarpRows(const Gemm &gemm, const GemmTile &tile) {
        begin = tile.matrix * gemm.outputs;
        unit = begin / PANEL_ROWS * (PANEL_ROWS / HEIGHT) + tile.band * GEMM_WARPS + (threadIdx.x >> 5);
    }

    // The lane's first output, counted from the matrix's first; it may be before that or after the last.
    __device__ __forceinline__ uint32_t output() const { return unit * HEIGHT + (own_lane() >> 2) - begin; }

    // Whether the warpgroup has any output, those included that fill up a block of GATED's result.
    __device__ __forceinline__ bool some(const Gemm &gemm) const {
        const uint32_t outputs = GATED ? gemm_blocks(gemm.outputs) * BLOCK_CHANNELS : gemm.outputs;
        return (unit - (threadIdx.x >> 5) % 4) * HEIGHT < begin + outputs;
    }

    // Where the lane's weights are. Rows past the last repeat it.
    template <class Weights> __device__ __forceinline__ LanePair<GATED> weights(const Gemm &gemm, uint32_t tables) const {
        LanePair<GATED> at;
        at.columns = gemm.columns, at.tables = tables;
        const uint32_t last = begin + gemm.outputs - 1, own = min(unit, last / HEIGHT), g = own_lane() >> 2;
        if constexpr (Weights::RAW) {
            const uint32_t first = min(own * HEIGHT + g, last);
            at.upper = gemm.first_weights + (size_t)first * gemm.columns * 2;
            at.apart = GATED ? gemm.second_weights - gemm.first_weights : (int64_t)(min(own * HEIGHT + g + 8, last) - first) * gemm.columns * 2;
            at.half = 0;
        } else {
            const size_t panel = own / (PANEL_ROWS / HEIGHT), across = (gemm.columns + Weights::TILE_CHANNELS - 1) / Weights::TILE_CHANNELS;
            at.upper = gemm.first_weights + panel * across * Weights::TILE_BYTES;
            at.apart = GATED ? gemm.second_weights - gemm.first_weights : 0;
            at.half = GATED ? own % 2 : 0;
        }
        return at;
    }
};

// Fills stage after stage with the activations of tile after tile: one warp, which multiplies as well.
template <int N> struct Feeder {
    uint32_t item, half, first, eights;

    __device__ __forceinline__ void take(const Gemm &gemm, uint32_t next) {
        item = next;
        const GemmTile tile = GemmTile::at<N>(gemm, item);
        first = tile.operand_row / GROUP_ROWS, eights = (tile.rows + GROUP_ROWS - 1) / GROUP_ROWS;
    }

    // Fills the stage that comes so many after the one which is multiplied that STAGES_BEHIND are left between them, as
    // soon as nobody reads what is in its place.
    __device__ __forceinline__ void feed(const Gemm &gemm, uint32_t base, uint32_t full, uint32_t empty, uint32_t multiplied, uint32_t parity) {
        if (!eights) return;
        const bool wraps = multiplied < STAGES_BEHIND;
        const uint32_t stage = multiplied - STAGES_BEHIND + (wraps ? gemm.stages : 0);
        parity ^= wraps;
        const uint32_t lane = threadIdx.x & 31, blocks = gemm_blocks(gemm.columns);
        barrier_wait(empty + stage * 8, parity);
        if (!lane) barrier_expect(full + stage * 8, eights * 2 * ATOM_BYTES);
        __syncwarp();
        if (lane < eights) {
            const size_t offset = ((size_t)(first + lane) * blocks * 2 + half) * (2 * ATOM_BYTES);
            const uint32_t to = base + stage * Stage<N>::BYTES + lane * 2 * ATOM_BYTES;
            copy_bulk(to, gemm.operand + offset, 2 * ATOM_BYTES, full + stage * 8);
        }
        if (++half == 2 * blocks) {
            half = 0;
            take(gemm, item + gridDim.x);
        }
    }
};

// One quarter of a block of channels: operands of four steps, then their products.
template <class Weights, int N, bool GATED, int BUFFERS, int Q>
static __device__ __forceinline__ void multiply_quarter(
    float (&sum)[N / 2], Weights &weights, Half2 (&a)[BUFFERS][16], const LanePair<GATED> &at, uint32_t block, uint32_t blocks, uint32_t stage) {
    Half2(&own)[16] = a[Q % BUFFERS];
    weights.template fragments<Q>(own, at, block, blocks);
    hold(sum);
    products_begin();
#pragma unroll
    for (int step = 0; step < 4; step++) multiply_step<N>(sum, own + 4 * step, stage + Q % 2 * ATOM_BYTES, 2 * ATOM_BYTES, step);
    products_end();
    hold(sum);
    products_wait<BUFFERS - 1>();
}

template <int N>
static __device__ __forceinline__ void store_results(const Gemm &gemm, const GemmTile &tile, const float (&sum)[N / 2], uint32_t upper) {
    const uint32_t lower = upper + 8;
    const uint32_t t = threadIdx.x & 3, stride = gemm.groups ? gemm.outputs : gemm.outputs * gemm.parts;
    float *out = gemm.out + (size_t)tile.out_row * stride + tile.column;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t row = n * 8 + 2 * t + i;
            // Keeps the compiler from loading every row's scale first, into registers that there are not.
            asm volatile("" ::: "memory");
            if (row >= tile.rows) continue;
            const float scale = gemm.scales ? gemm.scales[tile.operand_row + row] : gemm.scale;
            if (upper < gemm.outputs) out[(size_t)row * stride + upper] = sum[n * 4 + i] * scale;
            if (lower < gemm.outputs) out[(size_t)row * stride + lower] = sum[n * 4 + i + 2] * scale;
        }
}

// silu(min(gate, clamp)) * clamp(up) * weight as halves of the next operand; zeros after the last output, to its block's end.
template <int N>
static __device__ __forceinline__ void store_hidden(const Gemm &gemm, const GemmTile &tile, const float (&sum)[N / 2], uint32_t output) {
    const uint32_t t = threadIdx.x & 3, blocks = gemm_blocks(gemm.outputs);
    if (output >= blocks * BLOCK_CHANNELS) return;
    const uint2 place = half_place(gemm.hidden_order, output % BLOCK_CHANNELS);
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t row = n * 8 + 2 * t + i;
            // Keeps the compiler from loading every row's scale first, into registers that there are not.
            asm volatile("" ::: "memory");
            if (row >= tile.rows) continue;
            const float scale = gemm.scales ? gemm.scales[tile.operand_row + row] : gemm.scale;
            const float gate = fminf(sum[n * 4 + i] * scale, gemm.clamp), up = fminf(fmaxf(sum[n * 4 + i + 2] * scale, -gemm.clamp), gemm.clamp);
            const float weight = gemm.weights ? gemm.weights[tile.operand_row + row] : 1;
            const float value = output < gemm.outputs ? gate * sigmoid(gate) * up * weight * gemm.hidden_scale : 0;
            const size_t at = chunk_place(tile.operand_row + row, blocks, output / BLOCK_CHANNELS, place.x);
            *(__half *)(gemm.hidden + at + place.y * 2) = __float2half_rn(value);
        }
}

template <class Weights, int N, bool GATED>
static __device__ __forceinline__ void multiply_tiles(const Gemm &gemm, uint32_t base, uint32_t tables, uint32_t full, uint32_t empty) {
    constexpr int BUFFERS = N <= 64 && !Weights::RAW ? 2 : 1;
    const uint32_t blocks = gemm_blocks(gemm.columns);
    const bool first = !own_lane(), feeds = threadIdx.x < 32;
    uint32_t stage = 0, parity = 0, item = blockIdx.x;
    Feeder<N> feeder;
    if (feeds) {
        feeder.half = 0;
        feeder.take(gemm, item);
        // As if the stages before the first had been multiplied.
        for (uint32_t i = STAGES_BEHIND; i < gemm.stages; i++) feeder.feed(gemm, base, full, empty, i, 1);
    }
    for (;;) {
        GemmTile tile = GemmTile::at<N>(gemm, item);
        if (!tile.rows) return;
        const WarpRows<GATED> rows(gemm, tile);
        const LanePair<GATED> at = rows.template weights<Weights>(gemm, tables);
        Weights weights;
        weights.start(at);
        float sum[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum[i] = 0;
        if (rows.some(gemm)) {
            Half2 a[BUFFERS][16];
            uint32_t block = 0;
#pragma unroll 1
            do {
                // Stages are filled two at a time.
                if (feeds)
#pragma unroll 1
                    for (int i = 0; i < 2; i++) feeder.feed(gemm, base, full, empty, stage + i < gemm.stages ? stage + i : 0, stage + i < gemm.stages ? parity : parity ^ 1);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const uint32_t place = base + stage * Stage<N>::BYTES;
                    barrier_wait(full + stage * 8, parity);
                    if (half == 0) multiply_quarter<Weights, N, GATED, BUFFERS, 0>(sum, weights, a, at, block, blocks, place);
                    else multiply_quarter<Weights, N, GATED, BUFFERS, 2>(sum, weights, a, at, block, blocks, place);
                    // What the stage before was read for is done.
                    if (BUFFERS == 2 && block + half && first) barrier_arrive(empty + (stage ? stage - 1 : gemm.stages - 1) * 8);
                    if (half == 0) multiply_quarter<Weights, N, GATED, BUFFERS, 1>(sum, weights, a, at, block, blocks, place);
                    else multiply_quarter<Weights, N, GATED, BUFFERS, 3>(sum, weights, a, at, block, blocks, place);
                    if (BUFFERS == 1 && first) barrier_arrive(empty + stage * 8);
                    if (++stage == gemm.stages) stage = 0, parity ^= 1;
                }
            } while (++block < blocks);
            products_wait<0>();
            hold(sum);
            if (BUFFERS == 2 && first) barrier_arrive(empty + (stage ? stage - 1 : gemm.stages - 1) * 8);
        } else {
            for (uint32_t half = 0; half < 2 * blocks; half++) {
                barrier_wait(full + stage * 8, parity);
                if (feeds) feeder.feed(gemm, base, full, empty, stage, parity);
                if (first) barrier_arrive(empty + stage * 8);
                if (++stage == gemm.stages) stage = 0, parity ^= 1;
            }
        }
        // Computed anew, so that no register holds it meanwhile.
        asm volatile("" : "+r"(item));
        tile = GemmTile::at<N>(gemm, item);
        const uint32_t output = WarpRows<GATED>(gemm, tile).output();
        if constexpr (GATED) store_hidden<N>(gemm, tile, sum, output);
        else store_results<N>(gemm, tile, sum, output);
        item += gridDim.x;
    }
}

template <class Weights> static __device__ void gemm_tables(uint32_t tables) {}

template <template <bool> class Format, int N, bool GATED>
static __device__ __forceinline__ void gemm(const Gemm &gemm) {
    typedef Format<N <= 64> Weights;
    extern __shared__ __align__(1024) uint8_t stages[];
    __shared__ uint64_t full[STAGES_MAX], empty[STAGES_MAX];
    const uint32_t base = (shared_address(stages) + ATOM_BYTES - 1) & ~(ATOM_BYTES - 1u), tables = base + gemm.stages * Stage<N>::BYTES;
    if (threadIdx.x < gemm.stages) {
        barrier_init(shared_address(full + threadIdx.x), 1);
        barrier_init(shared_address(empty + threadIdx.x), GEMM_WARPS);
        barriers_ready();
    }
    gemm_tables<Weights>(tables);
    __syncthreads();
    wait_for_previous();
    let_next_start();
    multiply_tiles<Weights, N, GATED>(gemm, base, tables + (threadIdx.x & (GEMM_TABLE_COPIES - 1)) * 4, shared_address(full), shared_address(empty));
}

#define KERNEL(NAME, WEIGHTS, N, GATED) \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 1) NAME(const __grid_constant__ Gemm product) { gemm<WEIGHTS, N, GATED>(product); }

// Products of stored weights with many rows of activations: of some matrices of one format with the same rows, and of a stack
// with rows grouped by matrix.
//
// A block of threads stays on its multiprocessor and takes tile after tile: 256 weight rows by N rows of activations. Sixteen
// warps, four warpgroups, bring codes from memory into registers, make half floats of them there (gemm_weights.cuh) and
// multiply; the first warp also keeps a ring of stages in shared memory filled with activations, 128 channels each, and runs
// ahead into the next tile.
//
// A row's result does not depend on the rows that come with it: every result is summed over the channels in one order.
//
// Weights that are half floats themselves are multiplied with two half floats of every activation, which are as good as f32:
// these are the matrices whose results choose. Such an operand has the first halves of all rows, then what they leave, `rest`.
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

// A matrix, or a stack of them, and where its results go.
struct GemmJob {
    const uint8_t *weights;
    float *out;
    uint32_t outputs;               // rows of one matrix, or of one part
    uint32_t first_band;            // among those of all jobs
};
#define JOBS_MAX 8

struct Gemm {
    GemmJob jobs[JOBS_MAX];
    const uint8_t *second_weights;  // GATED
    const uint8_t *operand, *rest;
    const float *scales;            // of every operand row; null: `scale` of all
    const Group *groups;            // null: tiles of every part in turn
    uint8_t *hidden;                // GATED, and the weight of every row; null: 1
    const float *weights;
    uint32_t job_count;
    uint32_t columns;
    uint32_t parts;                 // without groups: parts of an operand row, each with its own weight rows
    uint32_t rows;                  // without groups: rows
    uint32_t tiles;                 // groups there can be, those that there are first; or tiles of the rows, all parts counted
    uint32_t bands;                 // tiles along the weight rows, of all jobs
    uint32_t stages;
    uint32_t hidden_order;
    uint32_t groups_of_eight;       // of the operand, and of the hidden one
    float scale, clamp, hidden_scale;
};

// The rows and the matrix of a tile.
struct GemmTile {
    uint32_t job, matrix, band, rows, operand_row, out_row, column;

    // MERGES: whether there can be more than one job.
    template <int N, bool MERGES> static __device__ __forceinline__ GemmTile at(const Gemm &gemm, uint32_t item) {
        GemmTile tile;
        if (item >= gemm.tiles * gemm.bands) {
            tile.rows = 0;
        } else if (gemm.groups) {
            const Group group = gemm.groups[item / gemm.bands];
            tile = {0, group.matrix, item % gemm.bands, group.rows, group.first, group.first, 0};
        } else {
            const uint32_t across = gemm.tiles / gemm.parts, index = item % gemm.tiles, first = index % across * N;
            tile.job = 0, tile.band = item / gemm.tiles;
            if (MERGES) {
#pragma unroll 1
                while (tile.job + 1 < gemm.job_count && tile.band >= gemm.jobs[tile.job + 1].first_band) tile.job++;
                tile.band -= gemm.jobs[tile.job].first_band;
            }
            tile.matrix = index / across, tile.rows = min((uint32_t)N, gemm.rows - first);
            tile.operand_row = tile.matrix * round_to_group(gemm.rows) + first, tile.out_row = first;
            tile.column = tile.matrix * gemm.jobs[tile.job].outputs;
        }
        return tile;
    }
};

// N rows of activations, or of their first halves and then of the rest.
template <class Weights, int N> struct Stage {
    enum { HALF = N * STAGE_CHANNELS * 2, BYTES = HALF * (Weights::RAW ? 2 : 1) };
};

// A warp's place among the weight rows: eights of rows for GATED, sixteens otherwise.
template <bool GATED> struct WarpRows {
    enum { HEIGHT = GATED ? 8 : 16 };
    uint32_t job, begin, unit;

    __device__ __forceinline__ WarpRows(const Gemm &gemm, const GemmTile &tile) {
        job = tile.job, begin = tile.matrix * gemm.jobs[job].outputs;
        unit = begin / PANEL_ROWS * (PANEL_ROWS / HEIGHT) + tile.band * GEMM_WARPS + (threadIdx.x >> 5);
    }

    // The lane's first output, counted from the matrix's first; it may be before that or after the last.
    __device__ __forceinline__ uint32_t output() const { return unit * HEIGHT + (own_lane() >> 2) - begin; }

    // Whether the warpgroup has any output, those included that fill up a block of GATED's result.
    __device__ __forceinline__ bool some(const Gemm &gemm) const {
        const uint32_t own = gemm.jobs[job].outputs, outputs = GATED ? gemm_blocks(own) * BLOCK_CHANNELS : own;
        return (unit - (threadIdx.x >> 5) % 4) * HEIGHT < begin + outputs;
    }

    // Where the lane's weights are. Rows past the last repeat it.
    template <class Weights> __device__ __forceinline__ LanePair<GATED> weights(const Gemm &gemm, uint32_t tables) const {
        LanePair<GATED> at;
        at.columns = gemm.columns, at.tables = tables;
        const uint8_t *const first_weights = gemm.jobs[job].weights;
        const uint32_t last = begin + gemm.jobs[job].outputs - 1, own = min(unit, last / HEIGHT), g = own_lane() >> 2;
        if constexpr (Weights::RAW) {
            const uint32_t first = min(own * HEIGHT + g, last);
            at.upper = first_weights + (size_t)first * gemm.columns * 2;
            at.apart = GATED ? gemm.second_weights - first_weights : (int64_t)(min(own * HEIGHT + g + 8, last) - first) * gemm.columns * 2;
            at.half = 0;
        } else {
            const size_t panel = own / (PANEL_ROWS / HEIGHT), across = (gemm.columns + Weights::TILE_CHANNELS - 1) / Weights::TILE_CHANNELS;
            at.upper = first_weights + panel * across * Weights::TILE_BYTES;
            at.apart = GATED ? gemm.second_weights - first_weights : 0;
            at.half = GATED ? own % 2 : 0;
        }
        return at;
    }
};

// Fills stage after stage with the activations of tile after tile: one warp, which multiplies as well.
template <class Weights, int N> struct Feeder {
    uint32_t item, half, first, eights;

    __device__ __forceinline__ void take(const Gemm &gemm, uint32_t next) {
        item = next;
        const GemmTile tile = GemmTile::at<N, false>(gemm, item);
        first = tile.operand_row / GROUP_ROWS, eights = (tile.rows + GROUP_ROWS - 1) / GROUP_ROWS;
    }

    // Fills the stage that comes so many after the one which is multiplied that STAGES_BEHIND are left between them, as
    // soon as nobody reads what is in its place.
    __device__ __forceinline__ void feed(const Gemm &gemm, uint32_t base, uint32_t full, uint32_t empty, uint32_t multiplied, uint32_t parity) {
        if (!eights) return;
        const bool wraps = multiplied < STAGES_BEHIND;
        const uint32_t stage = multiplied - STAGES_BEHIND + (wraps ? gemm.stages : 0);
        parity ^= wraps;
        if (!own_lane()) {
            barrier_wait(empty + stage * 8, parity);
            const uint32_t bytes = eights * HALF_BYTES, to = base + stage * Stage<Weights, N>::BYTES;
            const size_t offset = ((size_t)half * gemm.groups_of_eight + first) * HALF_BYTES;
            barrier_expect(full + stage * 8, bytes * (Weights::RAW ? 2 : 1));
            copy_bulk(to, gemm.operand + offset, bytes, full + stage * 8);
            if (Weights::RAW) copy_bulk(to + Stage<Weights, N>::HALF, gemm.rest + offset, bytes, full + stage * 8);
        }
        __syncwarp();
        const uint32_t blocks = gemm_blocks(gemm.columns);
        if (++half == 2 * blocks) {
            half = 0;
            take(gemm, item + gridDim.x);
        }
    }
};

// One quarter of a block of channels: operands of four steps, then their products, with the first FIT rows of the tile.
template <class Weights, int FIT, int N, bool GATED, int BUFFERS, int Q>
static __device__ __forceinline__ void multiply_quarter(
    float (&all)[N / 2], Weights &weights, Half2 (&a)[BUFFERS][16], const LanePair<GATED> &at, uint32_t block, uint32_t blocks, uint32_t stage) {
    Half2(&own)[16] = a[Q % BUFFERS];
    float(&sum)[FIT / 2] = (float(&)[FIT / 2])all;
    weights.template fragments<Q>(own, at, block, blocks);
    hold(sum);
    products_begin();
#pragma unroll
    for (int step = 0; step < 4; step++) {
        multiply_step<FIT>(sum, own + 4 * step, stage + Q % 2 * ATOM_BYTES, 2 * ATOM_BYTES, step);
        if (Weights::RAW) multiply_step<FIT>(sum, own + 4 * step, stage + Stage<Weights, N>::HALF + Q % 2 * ATOM_BYTES, 2 * ATOM_BYTES, step);
    }
    products_end();
    hold(sum);
    products_wait<BUFFERS - 1>();
}

template <int N>
static __device__ __forceinline__ void store_results(const Gemm &gemm, const GemmTile &tile, const float (&sum)[N / 2], uint32_t upper) {
    const uint32_t lower = upper + 8;
    const uint32_t outputs = gemm.jobs[tile.job].outputs;
    const uint32_t t = threadIdx.x & 3, stride = gemm.groups ? outputs : outputs * gemm.parts;
    float *out = gemm.jobs[tile.job].out + (size_t)(tile.out_row + 2 * t) * stride + tile.column + (int32_t)upper;
    const float2 *scales = (const float2 *)(gemm.scales + tile.operand_row) + t;
    const float2 same = {gemm.scale, gemm.scale};
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        // Keeps the compiler from loading every row's scale first, into registers that there are not.
        asm volatile("" ::: "memory");
        if (n * 8 >= tile.rows) break;
        const float2 scale = gemm.scales ? scales[n * 4] : same;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (n * 8 + 2 * t + i >= tile.rows) continue;
            float *at = out + (i ? stride : 0);
            if (upper < outputs) at[0] = sum[n * 4 + i] * (i ? scale.y : scale.x);
            if (lower < outputs) at[8] = sum[n * 4 + i + 2] * (i ? scale.y : scale.x);
        }
        out += (size_t)8 * stride;
    }
}

// silu(min(gate, clamp)) * clamp(up) * weight; what is left of it will have eleven bits.
static __device__ __forceinline__ float hidden_value(const Gemm &gemm, float gate, float up, float scale, float weight) {
    const float capped = fminf(gate * scale, gemm.clamp), bounded = fminf(fmaxf(up * scale, -gemm.clamp), gemm.clamp);
    return __fdividef(capped, 1.0f + __expf(-capped)) * bounded * (weight * gemm.hidden_scale);
}

// These values as halves of the next operand; zeros after the last output, to its block's end. Rows that fill up the last
// eight get what there is.
template <int N>
static __device__ __forceinline__ void store_hidden(const Gemm &gemm, const GemmTile &tile, const float (&sum)[N / 2], uint32_t output) {
    const uint32_t t = threadIdx.x & 3, outputs = gemm.jobs[0].outputs;
    if (output >= gemm_blocks(outputs) * BLOCK_CHANNELS) return;
    const uint2 place = half_place(gemm.hidden_order, output % BLOCK_CHANNELS);
    uint8_t *hidden[2];
#pragma unroll
    for (int i = 0; i < 2; i++) hidden[i] = gemm.hidden + chunk_place(tile.operand_row + 2 * t + i, gemm.groups_of_eight, output / BLOCK_CHANNELS, place.x) + place.y * 2;
    const float2 *scales = (const float2 *)(gemm.scales + tile.operand_row) + t, *weights = (const float2 *)(gemm.weights + tile.operand_row) + t;
    const float2 same = {gemm.scale, gemm.scale}, one = {1, 1};
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        // Keeps the compiler from loading every row's scale first, into registers that there are not.
        asm volatile("" ::: "memory");
        if (n * 8 >= tile.rows) break;
        const float2 scale = gemm.scales ? scales[n * 4] : same, weight = gemm.weights ? weights[n * 4] : one;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float value = output < outputs ? hidden_value(gemm, sum[n * 4 + i], sum[n * 4 + i + 2], i ? scale.y : scale.x, i ? weight.y : weight.x) : 0;
            *(__half *)(hidden[i] + n * HALF_BYTES) = __float2half_rn(value);
        }
    }
}

// All channels of a tile, its first FIT rows.
template <class Weights, int FIT, int N, bool GATED, int BUFFERS>
static __device__ __forceinline__ void multiply_blocks(const Gemm &gemm, float (&sum)[N / 2], Weights &weights, const LanePair<GATED> &at, Feeder<Weights, N> &feeder,
                                                       uint32_t base, uint32_t full, uint32_t empty, uint32_t &stage, uint32_t &parity) {
    const uint32_t blocks = gemm_blocks(gemm.columns);
    const bool first = !own_lane(), feeds = threadIdx.x < 32;
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
            const uint32_t place = base + stage * Stage<Weights, N>::BYTES;
            barrier_wait(full + stage * 8, parity);
            if (half == 0) multiply_quarter<Weights, FIT, N, GATED, BUFFERS, 0>(sum, weights, a, at, block, blocks, place);
            else multiply_quarter<Weights, FIT, N, GATED, BUFFERS, 2>(sum, weights, a, at, block, blocks, place);
            // What the stage before was read for is done.
            if (BUFFERS == 2 && block + half && first) barrier_arrive(empty + (stage ? stage - 1 : gemm.stages - 1) * 8);
            if (half == 0) multiply_quarter<Weights, FIT, N, GATED, BUFFERS, 1>(sum, weights, a, at, block, blocks, place);
            else multiply_quarter<Weights, FIT, N, GATED, BUFFERS, 3>(sum, weights, a, at, block, blocks, place);
            if (BUFFERS == 1 && first) barrier_arrive(empty + stage * 8);
            if (++stage == gemm.stages) stage = 0, parity ^= 1;
        }
    } while (++block < blocks);
    products_wait<0>();
    hold(sum);
}

// So many rows of a tile.
template <int COUNT> struct Fit {
    enum { ROWS = COUNT };
};

template <class Weights, int N, bool GATED>
static __device__ __forceinline__ void multiply_tiles(const Gemm &gemm, uint32_t base, uint32_t tables, uint32_t full, uint32_t empty) {
    constexpr int BUFFERS = N <= 64 && !Weights::RAW ? 2 : 1;
    constexpr bool MERGES = !GATED && Weights::MERGES;
    const uint32_t blocks = gemm_blocks(gemm.columns);
    const bool first = !own_lane(), feeds = threadIdx.x < 32;
    uint32_t stage = 0, parity = 0, item = blockIdx.x;
    Feeder<Weights, N> feeder;
    if (feeds) {
        feeder.half = 0;
        feeder.take(gemm, item);
        // As if the stages before the first had been multiplied.
        for (uint32_t i = STAGES_BEHIND; i < gemm.stages; i++) feeder.feed(gemm, base, full, empty, i, 1);
    }
    for (;;) {
        GemmTile tile = GemmTile::at<N, MERGES>(gemm, item);
        if (!tile.rows) return;
        const WarpRows<GATED> rows(gemm, tile);
        const LanePair<GATED> at = rows.template weights<Weights>(gemm, tables);
        Weights weights;
        weights.start(at);
        float sum[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum[i] = 0;
        if (rows.some(gemm)) {
            const auto blocks_of = [&](auto fit) {
                multiply_blocks<Weights, decltype(fit)::ROWS, N, GATED, BUFFERS>(gemm, sum, weights, at, feeder, base, full, empty, stage, parity);
            };
            if constexpr (N < 128 || !Weights::FITS) {
                blocks_of(Fit<N>());
            } else {
                if (tile.rows <= 80) blocks_of(Fit<80>());
                else if (tile.rows <= 96) blocks_of(Fit<96>());
                else if (tile.rows <= 112) blocks_of(Fit<112>());
                else blocks_of(Fit<N>());
            }
            if (BUFFERS == 2 && first) barrier_arrive(empty + (stage ? stage - 1 : gemm.stages - 1) * 8);
        } else {
            for (uint32_t half = 0; half < 2 * blocks; half++) {
                barrier_wait(full + stage * 8, parity);
                if (feeds) feeder.feed(gemm, base, full, empty, stage, parity);
                // Nothing here brings the lanes together: one that still waits would take a later phase for its own.
                __syncwarp();
                if (first) barrier_arrive(empty + stage * 8);
                if (++stage == gemm.stages) stage = 0, parity ^= 1;
            }
        }
        // Computed anew, so that no register holds it meanwhile.
        asm volatile("" : "+r"(item));
        tile = GemmTile::at<N, MERGES>(gemm, item);
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
    const uint32_t base = (shared_address(stages) + ATOM_BYTES - 1) & ~(ATOM_BYTES - 1u), tables = base + gemm.stages * Stage<Weights, N>::BYTES;
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

// Products of several matrices with the same few rows in one launch, and of one matrix whose result is merged into the
// streams. See few.cuh for the arithmetic.
//
// A block of threads takes some panels of one matrix. Up to eight warps share a panel's blocks of channels, and the
// block shares the rows of activations, which it brings to fixed point (or to pairs of half floats for F16) itself.
#include "common.cuh"
#include "few_half.cuh"
#include "few_merge.cuh"

#define FEW_JOBS 8

struct Job {
    const uint8_t *weights;
    float *out;                 // [rows][outputs]
    uint32_t outputs;
    uint32_t first_block, blocks;
    uint32_t is_half;           // F16 rows as the file has them; else Q8_0 tiles
};

struct Products {
    Job jobs[FEW_JOBS];
    Merge merge;                // used by few_merged only: one job
    const float *input;         // [rows][parts * columns]
    const float *norm;          // weights by which the input is normalised first; null: it is not
    uint32_t columns;           // of a part
    uint32_t parts;             // equal parts of a row and of the outputs: part by part
    uint32_t rows;
    float epsilon;
};

// Blocks of channels of all rows that are normalised.
#define NORM_BLOCKS 64

// The rows' channels of a part in shared memory, block by block, row by row; then their scales. Normalised rows are weighed
// here, and their scales take what is common to a row.
template <class Of, bool MERGED> static __device__ __forceinline__ void stage(const Products &p, uint32_t part, uint32_t planes, uint32_t scales) {
    __shared__ float squares[NORM_BLOCKS];
    const uint32_t lane = threadIdx.x & 31, blocks = few_blocks(p.columns);
    const auto load = [&](float (&x)[8], uint32_t i) {
        load_eight(x, p.input + ((size_t)(i % p.rows) * p.parts + part) * p.columns, i / p.rows * CHANNELS + 8 * lane, p.columns);
    };
    const auto store = [&](const float (&x)[8], uint32_t i) {
        const float scale = Of::IS_HALF ? stage_halves(planes + i * Of::ROW_BYTES, x) : stage_eight(planes + i * Of::ROW_BYTES, 0, x);
        if (lane == 0) store_shared_4(scales + 4 * i, __float_as_uint(scale));
    };
    if (!MERGED && p.norm)
        stage_all<1>(blocks * p.rows, load, [&](float (&x)[8], uint32_t i) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < 8; k++) sum = fmaf(x[k], x[k], sum);
            sum = sum_over_warp(sum);
            if (lane == 0) squares[i] = sum;
            float weights[8];
            load_eight(weights, p.norm, i / p.rows * CHANNELS + 8 * lane, p.columns);
#pragma unroll
            for (int k = 0; k < 8; k++) x[k] *= weights[k];
            store(x, i);
        });
    else
        stage_all<2>(blocks * p.rows, load, store);
    __syncthreads();
    if (MERGED || !p.norm) return;
    const uint32_t own = threadIdx.x;
    if (own < blocks * p.rows) {
        float all = 0;
        for (uint32_t block = 0; block < blocks; block++) all += squares[block * p.rows + own % p.rows];
        const float root = __fdiv_rn(1.0f, __fsqrt_rn(all / (float)p.columns + p.epsilon));
        store_shared_4(scales + 4 * own, __float_as_uint(load_shared_float(scales + 4 * own) * root));
    }
    __syncthreads();
}

// How a panel's channels are cut for one warp at a time, per format.
struct OfQ8_0 {
    enum { IS_HALF = 0, ROW_BYTES = 2 * PLANE };
    typedef FewQ8_0 Weights;
    static __device__ __forceinline__ uint32_t units(uint32_t columns) { return few_blocks(columns); }
    static __device__ __forceinline__ uint32_t block(uint32_t unit) { return unit; }
    static __device__ __forceinline__ uint32_t within(uint32_t) { return 0; }
};
struct OfF16 {
    enum { IS_HALF = 1, ROW_BYTES = 2 * HALF_PLANE };
    typedef FewF16 Weights;
    static __device__ __forceinline__ uint32_t units(uint32_t columns) { return (columns + 127) / 128; }
    static __device__ __forceinline__ uint32_t block(uint32_t unit) { return unit / 2; }
    static __device__ __forceinline__ uint32_t within(uint32_t unit) { return unit % 2 * 256; }
};

template <class Of, int FOURS, bool MERGED> static __device__ __forceinline__ void products(const Products &p, const Job &job) {
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ float results[2][FEW_WARPS][PANEL][4 * FOURS];
    __shared__ MergePanel<MERGED ? 4 * FOURS : 1> merging;
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const uint32_t panels = (job.outputs + PANEL - 1) / PANEL, own = blockIdx.x - job.first_block;
    const uint32_t begin = (uint32_t)((uint64_t)own * panels / job.blocks), end = (uint32_t)((uint64_t)(own + 1) * panels / job.blocks);
    // Warps of a panel: a power of two; the others take the panels after it.
    const uint32_t units = Of::units(p.columns);
    uint32_t sharing = 1;
    while (sharing < FEW_WARPS && sharing < units) sharing *= 2;
    const uint32_t at_once = FEW_WARPS / sharing, slot = warp / sharing, first = warp % sharing;
    const uint32_t panels_of_part = panels / p.parts, block_bytes = p.rows * Of::ROW_BYTES;
    const uint32_t planes = shared_address(shared), scales = planes + few_blocks(p.columns) * block_bytes;
    uint32_t column[FOURS];
#pragma unroll
    for (uint32_t n = 0; n < FOURS; n++) column[n] = min(4 * n + (g >> 1), p.rows - 1) * Of::ROW_BYTES + (g & 1) * (Of::ROW_BYTES / 2);

    uint32_t panel = begin + slot, unit = first;
    typename Of::Weights next;
    if (unit >= units) panel = end;
    if (panel < end) next.load(job.weights, p.columns, job.outputs, panel, unit);
    if (MERGED && begin < end) merging.ask(p.merge, begin, p.rows);
    if (!MERGED && p.norm && threadIdx.x * 32 < p.columns) prefetch_line(p.norm + threadIdx.x * 32);
    wait_for_previous();
    let_next_start();
    uint32_t part = 0xffffffffu;
    for (uint32_t from = begin, turn = 0; from < end; from += at_once, turn++) {
        // A part's panels fill whole turns where there are parts.
        if (from / panels_of_part != part) {
            if (part != 0xffffffffu) __syncthreads();
            part = from / panels_of_part;
            stage<Of, MERGED>(p, part, planes, scales);
        }
        if (MERGED && from != begin) merging.ask(p.merge, from, p.rows);
        if (MERGED) merging.ask_values(p.merge, p.rows);
        float sum[FOURS][2];
#pragma unroll
        for (int n = 0; n < FOURS; n++) sum[n][0] = sum[n][1] = 0;
        while (panel == from + slot && panel < end) {
            const typename Of::Weights weights = next;
            const uint32_t now = unit;
            unit += sharing;
            if (unit >= units) unit = first, panel += at_once;
            if (panel < end) next.load(job.weights, p.columns, job.outputs, panel, unit);
            float partial[FOURS][2];
            weights.template multiply<FOURS>(partial, planes + Of::block(now) * block_bytes + Of::within(now), column);
#pragma unroll
            for (uint32_t n = 0; n < FOURS; n++) {
                const float scale = load_shared_float(scales + 4 * (Of::block(now) * p.rows + min(4 * n + t, p.rows - 1)));
                sum[n][0] = fmaf(partial[n][0], scale, sum[n][0]);
                sum[n][1] = fmaf(partial[n][1], scale, sum[n][1]);
            }
        }
#pragma unroll
        for (uint32_t n = 0; n < FOURS; n++) {
            results[turn & 1][warp][g][4 * n + t] = sum[n][0];
            results[turn & 1][warp][g + 8][4 * n + t] = sum[n][1];
        }
        if (MERGED) copies_done();
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < at_once * PANEL * p.rows; i += FEW_THREADS) {
            const uint32_t output = i % PANEL, row = i / PANEL % p.rows, which = i / PANEL / p.rows;
            const uint32_t at = (from + which) * PANEL + output;
            if (from + which >= end || at >= job.outputs) continue;
            float all = 0;
            for (uint32_t w = 0; w < sharing; w++) all += results[turn & 1][which * sharing + w][output][row];
            if (MERGED) merging.output[row][output] = all;
            else job.out[(size_t)row * job.outputs + at] = all;
        }
        if (MERGED) {
            __syncthreads();
            merging.finish(p.merge, from, panels, p.rows);
            __syncthreads();
        }
    }
}

template <int FOURS, bool MERGED> static __device__ __forceinline__ void products(const Products &p) {
    uint32_t index = 0;
    while (index + 1 < FEW_JOBS && blockIdx.x >= p.jobs[index].first_block + p.jobs[index].blocks) index++;
    const Job &job = p.jobs[index];
    if (MERGED || !job.is_half) products<OfQ8_0, FOURS, MERGED>(p, job);
    else products<OfF16, FOURS, MERGED>(p, job);
}

#define KERNELS(FOURS)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 2)                                                           \
    few_products_##FOURS(const __grid_constant__ Products p) { products<FOURS, false>(p); }                                \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 2)                                                           \
    few_merged_##FOURS(const __grid_constant__ Products p) { products<FOURS, true>(p); }

KERNELS(1)
KERNELS(2)

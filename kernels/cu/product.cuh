// Products of stored weights with few rows of activations, for one matrix and for a stack with rows grouped by matrix. (Many
// rows: gemm.cuh.)
//
// Every result is the sum, in order, of one part per block of 256 channels, and a part is what weights.cuh computes in
// a fixed order. So a row's result has the same bits whichever kernel computed it, and whatever rows came with it.
//
// stream: a cluster of blocks of threads takes some panels of 16 weight rows and shares out their blocks of
// channels, a warp a part at a time; the parts meet in shared memory. Weights go from memory to registers in 16-byte
// loads; activations come through the cache, or lie in shared memory where a format takes long to decode and so has no
// registers to wait for them with (measured: each kind is the faster one for its formats).
#pragma once
#include "group.cuh"
#include "weights.cuh"

// What a launch multiplies; the grid is (panels, groups of rows, which of two products).
struct Product {
    const uint8_t *first_weights, *second_weights;
    float *first_out, *second_out;
    const uint4 *operand;           // rows of `blocks * BLOCK_ENTRIES` entries
    const float *scales;            // one per operand row: what its results are multiplied with
    const Group *groups;            // null: the rows of every part of a row in turn
    const uint32_t *sources;        // operand row of every row of a group; null: the row itself
    uint32_t columns;
    uint32_t outputs;               // rows of one matrix, or of one part
    uint32_t parts;                 // without groups: parts of an operand row, each with its own weight rows
    uint32_t rows;                  // without groups: rows
    uint32_t panels_per_cluster;
    uint32_t staged_bytes;          // shared memory for rows of activations

    __device__ __forceinline__ const uint8_t *weights(uint32_t index) const { return index ? second_weights : first_weights; }
    __device__ __forceinline__ float *out(uint32_t index) const { return index ? second_out : first_out; }
};

// The share of a block of threads.
struct Share {
    uint32_t matrix, first, rows, stride, column;
    bool some;

    __device__ __forceinline__ Share(const Product &product, uint32_t index, uint32_t tile) {
        if (product.groups) {
            const Group group = product.groups[index];
            matrix = group.matrix;
            first = group.first;
            rows = group.rows;
            some = rows > 0;
            stride = product.outputs;
            column = 0;
        } else {
            matrix = index % product.parts;
            first = index / product.parts * tile;
            rows = min(tile, product.rows - first);
            stride = product.outputs * product.parts;
            column = matrix * product.outputs;
            some = true;
        }
    }

    // The operand row of row `n`.
    __device__ __forceinline__ uint32_t source(const Product &product, uint32_t n) const {
        if (!product.groups) return (first + n) * product.parts + matrix;
        return product.sources ? product.sources[first + n] : first + n;
    }
};

// A row's block in shared memory: 32 bytes after every 16 quads, then the sums, then 16 bytes, so that the 16-byte loads
// of a warp touch every bank equally whichever way a format strides.
#define STAGED_SUMS (1024 + 4 * 32)
#define STAGED_ROW (STAGED_SUMS + 64 + 16)

static __device__ __forceinline__ uint32_t staged_entry(uint32_t entry) { return entry * 16 + entry / 16 * 32; }

// Rows of activations in memory, read by ordinary loads: the kernel that writes them may still run when this one starts.
// Lane (g, t) reads row g of every eight. Where there are fewer rows, lanes past the last read that one, and their columns
// of the result are left alone.
template <int TILES> struct RowsInMemory {
    const uint4 *rows[TILES];       // the lane's, at the block
    uint32_t t;

    // Quad `16 sixteen + within` of lane 0, and STRIDE further for every t.
    template <int STRIDE> __device__ __forceinline__ uint4 quad(int tile, int sixteen, int within) const {
        return rows[tile][STRIDE * t + sixteen * 16 + within];
    }
    __device__ __forceinline__ uint4 sums(int tile) const { return rows[tile][BLOCK_QUADS + t]; }
};

// The same in shared memory.
template <int TILES> struct StagedRows {
    uint32_t narrow[TILES], wide[TILES], last[TILES];   // the lane's quads at strides 2 and 16, and its sums

    __device__ __forceinline__ StagedRows(uint32_t base, uint32_t lane, uint32_t count) {
        const uint32_t t = lane & 3;
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const uint32_t row = base + min(tile * 8 + (lane >> 2), count - 1) * STAGED_ROW;
            narrow[tile] = row + t * 32;
            wide[tile] = row + t * (256 + 32);
            last[tile] = row + STAGED_SUMS + t * 16;
        }
    }
    template <int STRIDE> __device__ __forceinline__ uint4 quad(int tile, int sixteen, int within) const {
        return load_shared_16((STRIDE == 2 ? narrow : wide)[tile] + sixteen * (256 + 32) + within * 16);
    }
    __device__ __forceinline__ uint4 sums(int tile) const { return load_shared_16(last[tile]); }
};

template <class Weights> static __device__ void fill_tables(uint32_t *tables);
template <> __device__ void fill_tables<Q8_0>(uint32_t *) {}
template <> __device__ void fill_tables<F16>(uint32_t *) {}
template <> __device__ void fill_tables<Q2_K>(uint32_t *) {}
template <> __device__ void fill_tables<Q4_K>(uint32_t *) {}

#define STREAM_WARPS 8

// The rows' channels in `count` blocks from `first` on: block by block, row by row.
static __device__ __forceinline__ void stage_rows(
    uint32_t to, const Product &product, const Share &share, uint32_t blocks, uint32_t first, uint32_t count) {
    for (uint32_t i = threadIdx.x / 32; i < count * share.rows; i += STREAM_WARPS) {
        const uint32_t n = i % share.rows, lane = threadIdx.x & 31;
        const uint4 *row = product.operand + ((size_t)share.source(product, n) * blocks + first + i / share.rows) * BLOCK_ENTRIES;
        const uint32_t at = to + i * STAGED_ROW;
        copy_async_16(at + staged_entry(lane), row + lane);
        copy_async_16(at + staged_entry(lane + 32), row + lane + 32);
        if (lane < 4) copy_async_16(at + STAGED_SUMS + lane * 16, row + BLOCK_QUADS + lane);
    }
    copies_done();
}

// AHEAD: a warp loads its next block while it multiplies one, where registers allow.
template <class Weights, bool AHEAD>
static __device__ __forceinline__ void stream(const Product &product) {
    constexpr int TILES = 1;
    constexpr uint32_t ROWS = 8 * TILES, RESULTS = PANEL_ROWS * ROWS;
    extern __shared__ __align__(128) float parts[];
    __shared__ uint32_t tables[Weights::TABLES ? Weights::TABLES * TABLE_COPIES : 1];
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, blocks = blocks_of(product.columns);
    const uint32_t ranks = cluster_size(), rank = cluster_rank(), blocks_a_rank = (blocks + ranks - 1) / ranks;
    if (product.groups) wait_for_previous();
    const Share share(product, blockIdx.y, ROWS);
    if (!share.some) return;
    const uint32_t begin = share.matrix * product.outputs, end = begin + product.outputs;
    const uint32_t panel = begin / PANEL_ROWS + blockIdx.x / ranks * product.panels_per_cluster;
    if (panel * PANEL_ROWS >= end) return;
    const uint32_t panels = min(product.panels_per_cluster, (end - 1) / PANEL_ROWS + 1 - panel);
    const uint32_t first = rank * blocks_a_rank, own = first < blocks ? min(blocks_a_rank, blocks - first) : 0, items = panels * own;
    const Place place = {product.weights(blockIdx.z), product.columns, end - 1, lane, shared_address(tables) + lane % TABLE_COPIES * 4};

    // Items block by block: warps that multiply different panels read the same activations at the same time.
    uint32_t at = warp % panels, block = first + warp / panels;
    Block<Weights> next;
    if (warp < items) next.load(place, panel + at, block);
    fill_tables<Weights>(tables);
    wait_for_previous();
    let_next_start();
    const uint32_t staged = shared_address(parts + product.panels_per_cluster * blocks_a_rank * RESULTS);
    const uint32_t at_a_time = Weights::STAGED ? max(product.staged_bytes / (share.rows * STAGED_ROW), 1) : blocks;
    const uint4 *rows[TILES];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
        rows[tile] = product.operand + (size_t)share.source(product, min(tile * 8 + (lane >> 2), share.rows - 1)) * blocks * BLOCK_ENTRIES;
    uint32_t item = warp;
    for (uint32_t done = 0; done < own; done += at_a_time) {
        const uint32_t now = min(at_a_time, own - done);
        if (Weights::STAGED) {
            if (done) __syncthreads();
            stage_rows(staged, product, share, blocks, first + done, now);
            __syncthreads();
        }
        for (; item < (done + now) * panels; item += STREAM_WARPS) {
            const uint32_t current = block;
            if (!AHEAD && item != warp) next.load(place, panel + at, block);
            const Block<Weights> weights = next;
            for (at += STREAM_WARPS; at >= panels; at -= panels) block++;
            if (AHEAD && item + STREAM_WARPS < items) next.load(place, panel + at, block);
            float part[TILES][4];
            if constexpr (Weights::STAGED) {
                const StagedRows<TILES> activations(staged + (current - first - done) * share.rows * STAGED_ROW, lane, share.rows);
                weights.multiply(part, place, activations);
            } else {
                RowsInMemory<TILES> activations;
                activations.t = lane & 3;
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) activations.rows[tile] = rows[tile] + current * BLOCK_ENTRIES;
                weights.multiply(part, place, activations);
            }
            float *to = parts + item * RESULTS + (lane >> 2) * ROWS + 2 * (lane & 3);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                *(float2 *)(to + 8 * tile) = make_float2(part[tile][0], part[tile][1]);
                *(float2 *)(to + 8 * tile + 8 * ROWS) = make_float2(part[tile][2], part[tile][3]);
            }
        }
    }
    cluster_barrier(ranks);
    const uint32_t base = shared_address(parts);
    float *out = product.out(blockIdx.z);
    for (uint32_t result = rank * blockDim.x + threadIdx.x; result < panels * PANEL_ROWS * share.rows; result += ranks * blockDim.x) {
        const uint32_t n = result % share.rows, index = result / share.rows, row = panel * PANEL_ROWS + index;
        if (row < begin || row >= end) continue;
        float sum = 0;
        for (uint32_t owner = 0; owner * blocks_a_rank < blocks; owner++) {
            const uint32_t theirs = min(blocks_a_rank, blocks - owner * blocks_a_rank);
            const uint32_t at = base + (index / PANEL_ROWS * RESULTS + index % PANEL_ROWS * ROWS + n) * 4;
#pragma unroll 4
            for (uint32_t block = 0; block < theirs; block++) sum = __fadd_rn(sum, load_cluster(at + block * panels * RESULTS * 4, owner, ranks));
        }
        out[(size_t)(share.first + n) * share.stride + share.column + (row - begin)] = sum * product.scales[share.source(product, n)];
    }
    // Nobody's shared memory goes while another block reads it.
    if (ranks > 1) cluster_barrier(ranks);
}

// Types without codes: a warp takes a weight row and up to eight rows of activations, and multiplies in f32.
template <class Element>
static __device__ __forceinline__ void plain(const Product &product) {
    wait_for_previous();
    let_next_start();
    const Share share(product, blockIdx.y, 8);
    if (!share.some) return;
    const uint32_t lane = threadIdx.x & 31, output = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (output >= product.outputs) return;
    const uint32_t blocks = blocks_of(product.columns);
    const typename Element::Stored *weights = (const typename Element::Stored *)product.weights(blockIdx.z) + ((size_t)share.matrix * product.outputs + output) * product.columns;
    for (uint32_t n = 0; n < share.rows; n++) {
        const uint32_t source = share.source(product, n);
        const uint4 *row = product.operand + (size_t)source * blocks * BLOCK_ENTRIES;
        float sum = 0;
        for (uint32_t quad = lane; quad * 4 < product.columns; quad += 32) {
            const uint4 x = row[quad / BLOCK_QUADS * BLOCK_ENTRIES + quad % BLOCK_QUADS];
            const float values[4] = {half_low(x.x) + half_low(x.z), half_high(x.x) + half_high(x.z), half_low(x.y) + half_low(x.w), half_high(x.y) + half_high(x.w)};
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                if (quad * 4 + i < product.columns) sum = fmaf(Element::value(weights[quad * 4 + i]), values[i], sum);
        }
#pragma unroll
        for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (!lane) product.out(blockIdx.z)[(size_t)(share.first + n) * share.stride + share.column + output] = sum * product.scales[source];
    }
}

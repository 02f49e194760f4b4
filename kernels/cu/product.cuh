// Products of stored weights with rows of activations, for one matrix and for a stack with rows grouped by matrix.
//
// Every result is the sum, in order, of one part per block of 256 channels, and a part is what weights.cuh computes in
// a fixed order. So a row's result has the same bits whichever kernel computed it, and whatever rows came with it.
//
// stream: few rows. A block of threads takes some panels of 16 weight rows; its warps share out their parts, which meet
// in shared memory. Weights go from memory to registers in 16-byte loads; activations come through the cache.
// tile: many rows. A warp takes a panel, 64 rows of activations pass by in shared memory.
#pragma once
#include "weights.cuh"

// Rows of activations that belong to one matrix of a stack.
struct Group {
    uint32_t matrix;
    uint32_t first;
    uint32_t rows;
    uint32_t reserved;
};

// What a launch multiplies; the grid is (panels, groups of rows, which of two products).
struct Product {
    const uint8_t *first_weights, *second_weights;
    float *first_out, *second_out;
    const uint4 *operand;           // rows of `blocks * BLOCK_ENTRIES` entries
    const float *scales;            // one per operand row: what its results are multiplied with
    const Group *groups;            // null: the rows of every part of a row in turn
    const uint32_t *group_count;
    const uint32_t *sources;        // operand row of every row of a group; null: the row itself
    uint32_t columns;
    uint32_t outputs;               // rows of one matrix, or of one part
    uint32_t parts;                 // without groups: parts of an operand row, each with its own weight rows
    uint32_t rows;                  // without groups: rows
    uint32_t panels_per_block;
    uint32_t reserved;

    __device__ __forceinline__ const uint8_t *weights(uint32_t index) const { return index ? second_weights : first_weights; }
    __device__ __forceinline__ float *out(uint32_t index) const { return index ? second_out : first_out; }
};

// The share of a block of threads.
struct Share {
    uint32_t matrix, first, rows, stride, column;
    bool some;

    __device__ __forceinline__ Share(const Product &product, uint32_t index, uint32_t tile) {
        if (product.groups) {
            some = index < *product.group_count;
            if (!some) return;
            const Group group = product.groups[index];
            matrix = group.matrix;
            first = group.first;
            rows = group.rows;
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

// Activation rows in memory: lane (g, t) reads row g of every eight.
template <int TILES> struct RowsInMemory {
    const uint4 *rows[TILES];       // at the block; null where there is no row
    uint32_t t;

    __device__ __forceinline__ uint4 at(int tile, uint32_t entry) const {
        return rows[tile] ? __ldg(rows[tile] + entry) : make_uint4(0, 0, 0, 0);
    }
    template <int STRIDE> __device__ __forceinline__ uint4 quad(int tile, int first) const { return at(tile, STRIDE * t + first); }
    __device__ __forceinline__ uint4 sums(int tile) const { return at(tile, BLOCK_QUADS + t); }
};

template <class Weights> static __device__ void fill_tables(uint32_t *tables);
template <> __device__ void fill_tables<Q8_0>(uint32_t *) {}
template <> __device__ void fill_tables<F16>(uint32_t *) {}
template <> __device__ void fill_tables<Q2_K>(uint32_t *) {}
template <> __device__ void fill_tables<Q4_K>(uint32_t *) {}

#define STREAM_WARPS 8
#define STREAM_PARTS 64             // parts that meet in shared memory at a time, for 8 rows

template <class Weights, int TILES>
static __device__ __forceinline__ void stream(const Product &product) {
    constexpr int ROWS = 8 * TILES, RESULTS = PANEL_ROWS * ROWS, ROOM = STREAM_PARTS / TILES;
    __shared__ float parts[ROOM * RESULTS];
    __shared__ uint32_t tables[Weights::TABLES ? Weights::TABLES : 1];
    const Share share(product, blockIdx.y, ROWS);
    if (!share.some) return;
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, blocks = blocks_of(product.columns);
    const uint32_t begin = share.matrix * product.outputs, end = begin + product.outputs;
    const uint32_t panel = begin / PANEL_ROWS + blockIdx.x * product.panels_per_block;
    if (panel * PANEL_ROWS >= end) return;
    const uint32_t panels = min(product.panels_per_block, (end - 1) / PANEL_ROWS + 1 - panel);
    const Place place = {product.weights(blockIdx.z), product.columns, end - 1, lane, shared_address(tables)};
    float *out = product.out(blockIdx.z);

    Block<Weights> weights;
    // Blocks of channels in rounds that fit in shared memory; one round but for very long rows.
    const uint32_t in_round = min(blocks, ROOM / panels);
    if (warp < panels * in_round) weights.load(place, panel + warp / in_round, warp % in_round);
    fill_tables<Weights>(tables);
    wait_for_previous();
    let_next_start();
    const uint4 *rows[TILES];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const uint32_t n = tile * 8 + (lane >> 2);
        rows[tile] = n < share.rows ? product.operand + (size_t)share.source(product, n) * blocks * BLOCK_ENTRIES : nullptr;
    }
    if (Weights::TABLES) __syncthreads();

    for (uint32_t first = 0; first < blocks; first += in_round) {
        const uint32_t round = min(in_round, blocks - first), items = panels * round;
        for (uint32_t item = warp; item < items; item += STREAM_WARPS) {
            const uint32_t block = first + item % round;
            if (first || item >= STREAM_WARPS) weights.load(place, panel + item / round, block);
            RowsInMemory<TILES> activations;
            activations.t = lane & 3;
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) activations.rows[tile] = rows[tile] ? rows[tile] + block * BLOCK_ENTRIES : nullptr;
            float part[TILES][4];
            weights.multiply(part, place, activations);
            float *to = parts + item * RESULTS + (lane >> 2) * ROWS + 2 * (lane & 3);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                *(float2 *)(to + 8 * tile) = make_float2(part[tile][0], part[tile][1]);
                *(float2 *)(to + 8 * tile + 8 * ROWS) = make_float2(part[tile][2], part[tile][3]);
            }
        }
        __syncthreads();
        for (uint32_t result = threadIdx.x; result < panels * RESULTS; result += STREAM_WARPS * 32) {
            const uint32_t n = result % ROWS, row = (panel + result / RESULTS) * PANEL_ROWS + result / ROWS % PANEL_ROWS;
            if (n >= share.rows || row < begin || row >= end) continue;
            float *to = out + (size_t)(share.first + n) * share.stride + share.column + (row - begin);
            float sum = first ? *to : 0;
            for (uint32_t block = 0; block < round; block++) sum += parts[(result / RESULTS * round + block) * RESULTS + result % RESULTS];
            *to = first + round < blocks ? sum : sum * product.scales[share.source(product, n)];
        }
        if (first + round < blocks) __syncthreads();
    }
}

// Six warps: two blocks of threads share a multiprocessor at 168 registers a lane, and one computes while the other loads.
#define TILE_WARPS 6
#define TILE_ROWS 64
// A row's quads in shared memory: 32 bytes after every 16 quads and 16 after the row, so that the 16-byte loads of a
// warp touch every bank equally whichever way a format strides.
#define STAGED_ROW (1024 + 4 * 32 + 16)
#define STAGED_BYTES (TILE_ROWS * STAGED_ROW)

struct StagedRows {
    uint32_t narrow, wide, sum;     // the lane's addresses for strides 2 and 16, and for sums

    __device__ __forceinline__ StagedRows(uint32_t base, uint32_t lane) {
        const uint32_t row = base + (lane >> 2) * STAGED_ROW, t = lane & 3;
        narrow = row + t * 32;
        wide = row + t * (256 + 32);
        sum = base + STAGED_BYTES + lane * 16;
    }
    template <int STRIDE> __device__ __forceinline__ uint4 quad(int tile, int first) const {
        return load_shared_16((STRIDE == 2 ? narrow : wide) + tile * 8 * STAGED_ROW + first * 16 + (first >> 4) * 32);
    }
    __device__ __forceinline__ uint4 sums(int tile) const { return load_shared_16(sum + tile * 512); }
};

// One block of channels of 64 rows into shared memory. Rows that are not there repeat the first.
template <bool SUMS>
static __device__ __forceinline__ void stage(uint32_t base, const uint4 *const *rows, uint32_t block) {
    for (uint32_t i = threadIdx.x; i < TILE_ROWS * BLOCK_QUADS; i += TILE_WARPS * 32) {
        const uint32_t n = i / BLOCK_QUADS, quad = i % BLOCK_QUADS;
        copy_async_16(base + n * STAGED_ROW + quad * 16 + quad / 16 * 32, rows[n] + block * BLOCK_ENTRIES + quad);
    }
    if (SUMS)
        for (uint32_t i = threadIdx.x; i < TILE_ROWS * 4; i += TILE_WARPS * 32)
            copy_async_16(base + STAGED_BYTES + i * 16, rows[i / 4] + block * BLOCK_ENTRIES + BLOCK_QUADS + i % 4);
    copies_done();
}

template <class Weights>
static __device__ __forceinline__ void tile(const Product &product) {
    extern __shared__ __align__(128) uint8_t staged[];
    __shared__ uint32_t tables[Weights::TABLES ? Weights::TABLES : 1];
    __shared__ const uint4 *rows[TILE_ROWS];
    const Share share(product, blockIdx.y, TILE_ROWS);
    if (!share.some) return;
    const uint32_t lane = threadIdx.x & 31, blocks = blocks_of(product.columns);
    const uint32_t begin = share.matrix * product.outputs, end = begin + product.outputs, last = (end - 1) / PANEL_ROWS;
    const uint32_t first_panel = begin / PANEL_ROWS + blockIdx.x * TILE_WARPS;
    if (first_panel > last) return;
    // Warps past the last panel repeat it and store nothing: every warp takes part in staging.
    const uint32_t wanted = first_panel + (threadIdx.x >> 5), panel = min(wanted, last);
    const Place place = {product.weights(blockIdx.z), product.columns, end - 1, lane, shared_address(tables)};
    const uint32_t base = shared_address(staged);
    const StagedRows activations(base, lane);
    fill_tables<Weights>(tables);
    if (threadIdx.x < TILE_ROWS) {
        const uint32_t source = share.source(product, threadIdx.x < share.rows ? threadIdx.x : 0);
        rows[threadIdx.x] = product.operand + (size_t)source * blocks * BLOCK_ENTRIES;
    }

    float sum[TILE_ROWS / 8][4];
    clear(sum);
#pragma unroll 1
    for (uint32_t block = 0; block < blocks; block++) {
        typename Weights::Piece piece;
        if (Weights::PIECES < 4) piece = Weights::load(place, panel, block, 0);
        const typename Weights::Head head = Weights::load_head(place, panel, block);
        __syncthreads();
        stage<Weights::MINIMA>(base, rows, block);
        __syncthreads();
        float part[TILE_ROWS / 8][4];
        clear(part);
#pragma unroll 1
        for (int i = 0; i < Weights::PIECES; i++) {
            const typename Weights::Piece now = Weights::PIECES < 4 ? piece : Weights::load(place, panel, block, i);
            if (Weights::PIECES < 4) piece = Weights::load(place, panel, block, min(i + 1, Weights::PIECES - 1));
            Weights::multiply(part, head, now, i, place, activations);
        }
        Weights::finish(part, head, place, activations);
#pragma unroll
        for (int n = 0; n < TILE_ROWS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[n][i] += part[n][i];
    }
    if (wanted > last) return;
    float *out = product.out(blockIdx.z);
#pragma unroll
    for (int tile = 0; tile < TILE_ROWS / 8; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t n = tile * 8 + 2 * (lane & 3) + (i & 1), row = panel * PANEL_ROWS + (lane >> 2) + 8 * (i >> 1);
            if (n >= share.rows || row < begin || row >= end) continue;
            out[(size_t)(share.first + n) * share.stride + share.column + (row - begin)] = sum[tile][i] * product.scales[share.source(product, n)];
        }
}

// Types without codes: a warp takes a weight row and up to eight rows of activations, and multiplies in f32.
template <class Element>
static __device__ __forceinline__ void plain(const Product &product) {
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

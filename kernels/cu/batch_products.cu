// Products of several matrices with the same some rows in one launch. See batch.cuh for the arithmetic.
//
// A cluster of blocks of threads takes some panels of one matrix, and each of its blocks a slice of the channels, for which
// it brings the rows to fixed point (or to pairs of half floats for F16) itself. A warp multiplies a panel a round; after a
// round the cluster's blocks add up what they have of its panels, slice by slice, while the next round's weights come.
#include "batch.cuh"
#include "common.cuh"
#include "half_pairs.cuh"

#define BATCH_JOBS 8
#ifndef BATCH_WARPS
#define BATCH_WARPS 8
#endif
#define BATCH_THREADS (BATCH_WARPS * 32)

struct BatchJob {
    const uint8_t *weights;
    float *out;                 // [rows][outputs]
    uint32_t outputs;
    uint32_t first_cluster, clusters;
    uint32_t is_half;           // F16 rows as the file has them; else Q8_0 tiles
};

struct BatchProducts {
    BatchJob jobs[BATCH_JOBS];
    const float *input;         // [rows][parts * columns]
    const float *linear;        // null, or: the input is what this and `input` make as a gate
    uint32_t columns;           // of a part
    uint32_t parts;             // equal parts of a row and of the outputs: part by part
    uint32_t rows;
    float clamp;
};

static __device__ __forceinline__ float gated(float gate, float up, float clamp) {
    const float capped = fminf(gate, clamp);
    return capped * sigmoid(capped) * fminf(fmaxf(up, -clamp), clamp);
}

// Sixteen rows of activations are the rows of the matrix units' products here, and eight weight rows the columns: a lane's
// codes are operands as they were loaded. Rows lie in shared memory as lanes load them: 32 channels after 32, for every
// lane (g, t) four words of rows g, g + 8, g, g + 8.

// A quarter of a block of Q8_0: 64 channels of 16 weight rows.
struct QuarterQ8_0 {
    // Of sixteen rows' 32 channels: high and low bytes, and 64 bytes so that stores meet in no bank.
    enum { CHUNK = 2 * 512 + 64, AHEAD = 4 };
    uint4 upper, lower;
    uint4 scales;               // of outputs 2t and 2t + 1 of both eights

    __device__ __forceinline__ void load(const uint8_t *weights, uint32_t columns, uint32_t, uint32_t panel, uint32_t quarter) {
        const uint32_t lane = threadIdx.x & 31, across = columns / 64;
        const uint8_t *at = weights + ((size_t)panel * across + quarter) * FewQ8_0::TILE;
        upper = load_weights_16(at + lane * 16);
        lower = load_weights_16(at + 512 + lane * 16);
        scales = load_weights_16(at + 1024 + (lane & 3) * 16);
    }

    // The lane's eight channels of rows g and g + 8 of sixteen; gives the scales of both.
    static __device__ __forceinline__ float2 stage(uint32_t at, const float (&x)[2][8]) {
        uint32_t high[2][2], low[2][2];
        int sum;
        const float2 scales = {fixed_eight(x[0], high[0], low[0], sum), fixed_eight(x[1], high[1], low[1], sum)};
        store_shared_16(at, make_uint4(high[0][0], high[1][0], high[0][1], high[1][1]));
        store_shared_16(at + 512, make_uint4(low[0][0], low[1][0], low[0][1], low[1][1]));
        return scales;
    }

    // Adds to `part` of rows g and g + 8 of every sixteen, outputs 2t and 2t + 1 of both eights. `at`: the lane's place in the
    // first of the quarter's chunks; `apart`: bytes from sixteen rows to the next.
    template <int M> __device__ __forceinline__ void multiply(float (&part)[M][2][4], uint32_t at, uint32_t apart) const {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t b[2][2] = {{half ? upper.z : upper.x, half ? upper.w : upper.y}, {half ? lower.z : lower.x, half ? lower.w : lower.y}};
            const float scale[2][2] = {{half ? half_high(scales.x) : half_low(scales.x), half ? half_high(scales.z) : half_low(scales.z)},
                                       {half ? half_high(scales.y) : half_low(scales.y), half ? half_high(scales.w) : half_low(scales.w)}};
#pragma unroll
            for (int m = 0; m < M; m++) {
                const uint4 h = load_shared_16(at + m * apart + half * CHUNK), l = load_shared_16(at + m * apart + half * CHUNK + 512);
                const uint32_t high[4] = {h.x, h.y, h.z, h.w}, low[4] = {l.x, l.y, l.z, l.w};
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    int c[4], d[4];
                    first_signed(c, high, b[n][0], b[n][1]);
                    first_signed(d, low, b[n][0], b[n][1]);
#pragma unroll
                    for (int i = 0; i < 4; i++) part[m][n][i] = fmaf(scale[n][i & 1], (float)both(c[i], d[i]), part[m][n][i]);
                }
            }
        }
    }
};

// The same of F16: pairs of half floats of activations.
struct QuarterF16 {
    enum { CHUNK = 4 * 512 + 64, AHEAD = 2 };
    uint4 upper[2], lower[2];

    __device__ __forceinline__ void load(const uint8_t *weights, uint32_t columns, uint32_t outputs, uint32_t panel, uint32_t quarter) {
        const uint32_t lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        const uint8_t *above = weights + ((size_t)min(panel * PANEL + g, outputs - 1) * columns + quarter * 64 + t * 8) * 2;
        const uint8_t *below = weights + ((size_t)min(panel * PANEL + g + 8, outputs - 1) * columns + quarter * 64 + t * 8) * 2;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) upper[i] = load_weights_16(above + i * 64), lower[i] = load_weights_16(below + i * 64);
    }

    static __device__ __forceinline__ float2 stage(uint32_t at, const float (&x)[2][8]) {
        uint32_t high[2][4], low[2][4];
        const float2 scales = {half_pairs(x[0], high[0], low[0]), half_pairs(x[1], high[1], low[1])};
#pragma unroll
        for (int k = 0; k < 2; k++) {
            store_shared_16(at + k * 512, make_uint4(high[0][2 * k], high[1][2 * k], high[0][2 * k + 1], high[1][2 * k + 1]));
            store_shared_16(at + 1024 + k * 512, make_uint4(low[0][2 * k], low[1][2 * k], low[0][2 * k + 1], low[1][2 * k + 1]));
        }
        return scales;
    }

    template <int M> __device__ __forceinline__ void multiply(float (&part)[M][2][4], uint32_t at, uint32_t apart) const {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const Half2 b[2][2] = {{k ? upper[i].z : upper[i].x, k ? upper[i].w : upper[i].y}, {k ? lower[i].z : lower[i].x, k ? lower[i].w : lower[i].y}};
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int rest = 0; rest < 2; rest++) {
                        const uint4 v = load_shared_16(at + m * apart + i * CHUNK + rest * 1024 + k * 512);
                        const Half2 a[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                        for (int n = 0; n < 2; n++) multiply_16x8x16(part[m][n], a, b[n][0], b[n][1]);
                    }
            }
    }
};

template <class Of, int M> static __device__ __forceinline__ void products(const BatchProducts &p, const BatchJob &job) {
    constexpr uint32_t ROWS = 16 * M, STRIDE = ROWS + 1, BLOCK = 8 * Of::CHUNK, AHEAD = Of::AHEAD, UNITS = 4 / AHEAD;
    extern __shared__ __align__(128) uint8_t shared[];
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const uint32_t ranks = cluster_size(), rank = cluster_rank(), own = blockIdx.x / ranks - job.first_cluster;
    const uint32_t panels = (job.outputs + PANEL - 1) / PANEL, blocks = few_blocks(p.columns) / ranks, first = rank * blocks;
    const uint32_t begin = (uint32_t)((uint64_t)own * panels / job.clusters), end = (uint32_t)((uint64_t)(own + 1) * panels / job.clusters);
    const uint32_t panels_of_part = panels / p.parts, rounds = (end - begin + BATCH_WARPS - 1) / BATCH_WARPS;
    // Sixteen rows after sixteen, block by block; their scales, [block][row].
    const uint32_t planes = shared_address(shared), apart = blocks * BLOCK, scales = planes + M * apart;
    // [turn][panel of the round][output][row]
    float *results = (float *)(shared + M * apart + blocks * ROWS * 4);
    // Steps of more rows than the kernel has take several blocks of threads: which of their rows these are.
    const uint32_t first_row = blockIdx.y * ROWS, own_rows = min(ROWS, p.rows - first_row);
    uint32_t panel = begin + warp;
    Of next[AHEAD];
    if (panel < end) {
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) next[i].load(job.weights, p.columns, job.outputs, panel, first * 4 + i);
    }
    wait_for_previous();
    let_next_start();
    // A cluster's panels are of one part.
    const uint32_t part_of_rows = begin / panels_of_part;
    // Rows g and g + 8 of sixteen together. Rows past the last repeat it.
    const auto load = [&](float (&x)[2][8], const float *rows, uint32_t i) {
#pragma unroll
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t row = i % (8 * M) / 8 * 16 + i % 8 + 8 * k;
            const size_t from = ((size_t)(first_row + min(row, own_rows - 1)) * p.parts + part_of_rows) * p.columns;
            load_eight(x[k], rows + from, (first + i / (8 * M)) * CHANNELS + 8 * lane, p.columns);
        }
    };
    const auto stage = [&](const float (&x)[2][8], uint32_t i) {
        const uint32_t sixteen = i % (8 * M) / 8, row = i % 8, block = i / (8 * M);
        const float2 both = Of::stage(planes + sixteen * apart + block * BLOCK + (lane >> 2) * Of::CHUNK + row * 64 + (lane & 3) * 16, x);
        const uint32_t at = scales + 4 * (block * ROWS + sixteen * 16 + row);
        if (lane == 0) store_shared_4(at, __float_as_uint(both.x)), store_shared_4(at + 32, __float_as_uint(both.y));
    };
    constexpr uint32_t TOGETHER = 2;
#pragma unroll 1
    for (uint32_t from = warp; from < blocks * 8 * M; from += TOGETHER * BATCH_WARPS) {
        float x[TOGETHER][2][8];
#pragma unroll
        for (uint32_t i = 0; i < TOGETHER; i++)
            if (from + i * BATCH_WARPS < blocks * 8 * M) load(x[i], p.input, from + i * BATCH_WARPS);
        if (p.linear)
#pragma unroll 1
            for (uint32_t i = 0; i < TOGETHER; i++) {
                // Not unrolled: what is not taken needs no code. The rows are exchanged through registers.
                float up[2][8];
                if (from + i * BATCH_WARPS < blocks * 8 * M) load(up, p.linear, from + i * BATCH_WARPS);
#pragma unroll
                for (int k = 0; k < 16; k++) {
                    float &value = x[0][k / 8][k % 8];
                    const float other = x[TOGETHER - 1][k / 8][k % 8], made = gated(value, up[k / 8][k % 8], p.clamp);
                    value = other, x[TOGETHER - 1][k / 8][k % 8] = made;
                }
            }
#pragma unroll
        for (uint32_t i = 0; i < TOGETHER; i++)
            if (from + i * BATCH_WARPS < blocks * 8 * M) stage(x[i], from + i * BATCH_WARPS);
    }
    __syncthreads();
    const auto reduce = [&](uint32_t round) {
        const float *own = results + (round & 1) * BATCH_WARPS * PANEL * STRIDE;
        const uint32_t from = (begin + round * BATCH_WARPS) * PANEL, count = min(BATCH_WARPS, end - begin - round * BATCH_WARPS) * PANEL;
        const uint32_t at = shared_address(own);
        for (uint32_t i = rank * BATCH_THREADS + threadIdx.x; i < count * own_rows; i += ranks * BATCH_THREADS) {
            const uint32_t output = i % count, row = i / count;
            float all = 0;
#pragma unroll 1
            for (uint32_t r = 0; r < ranks; r++) all += load_cluster(at + (output * STRIDE + row) * 4, r, ranks);
            if (from + output < job.outputs) job.out[(size_t)(first_row + row) * job.outputs + from + output] = all;
        }
    };
    for (uint32_t round = 0; round < rounds; round++, panel += BATCH_WARPS) {
        float sum[M][2][4];
#pragma unroll
        for (int i = 0; i < 8 * M; i++) sum[i / 8][i / 4 % 2][i % 4] = 0;
        const bool has_next = panel + BATCH_WARPS < end;
        if (panel < end) {
#pragma unroll 1
            for (uint32_t unit = 0; unit < blocks * UNITS; unit++) {
                const bool wraps = unit + 1 == blocks * UNITS, some = !wraps || has_next;
                const uint32_t to_come = wraps ? panel + BATCH_WARPS : panel, quarter = first * 4 + (wraps ? 0 : (unit + 1) * AHEAD);
                const uint32_t at = planes + unit * AHEAD * 2 * Of::CHUNK + lane * 16;
                float part[M][2][4];
#pragma unroll
                for (int i = 0; i < 8 * M; i++) part[i / 8][i / 4 % 2][i % 4] = 0;
#pragma unroll
                for (uint32_t i = 0; i < AHEAD; i++) {
                    next[i].template multiply<M>(part, at + i * 2 * Of::CHUNK, apart);
                    if (some) next[i].load(job.weights, p.columns, job.outputs, to_come, quarter + i);
                }
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int lower = 0; lower < 2; lower++) {
                        const float scale = load_shared_float(scales + 4 * (unit / UNITS * ROWS + 16 * m + g + 8 * lower));
#pragma unroll
                        for (int i = 0; i < 4; i++) sum[m][i / 2][2 * lower + i % 2] = fmaf(part[m][i / 2][2 * lower + i % 2], scale, sum[m][i / 2][2 * lower + i % 2]);
                    }
            }
        }
        if (round) {
            if (ranks > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
            else __syncthreads();
            reduce(round - 1);
        }
        float *to = results + ((round & 1) * BATCH_WARPS + warp) * PANEL * STRIDE;
#pragma unroll
        for (int i = 0; i < 8 * M; i++) to[(i / 4 % 2 * 8 + 2 * t + i % 2) * STRIDE + i / 8 * 16 + g + i / 2 % 2 * 8] = sum[i / 8][i / 4 % 2][i % 4];
        if (ranks > 1) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    }
    if (ranks > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    else __syncthreads();
    reduce(rounds - 1);
    if (ranks > 1) asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

template <int M> static __device__ __forceinline__ void products(const BatchProducts &p) {
    uint32_t index = 0;
    const uint32_t cluster = blockIdx.x / cluster_size();
    while (index + 1 < BATCH_JOBS && cluster >= p.jobs[index].first_cluster + p.jobs[index].clusters) index++;
    const BatchJob &job = p.jobs[index];
    if (!job.is_half) products<QuarterQ8_0, M>(p, job);
    else products<QuarterF16, M>(p, job);
}

#define KERNEL(ROWS, M)                                                                                            \
    extern "C" __global__ void __launch_bounds__(BATCH_THREADS, 16 / BATCH_WARPS)                                  \
    batch_products_##ROWS(const __grid_constant__ BatchProducts p) { products<M>(p); }

KERNEL(16, 1)
KERNEL(32, 2)

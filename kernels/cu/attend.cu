// Latent attention: all heads of a query against one row per token, which is key and value at once. Formula:
// reference/attention.rs.
//
// A block takes one query, sixteen heads and a share of the rows, 32 at a time; a warp takes 64 channels. Its slice of
// every row is expanded to halves once, and serves as keys and as values. Stored rows are halves exactly; queries and
// weights are split into two halves each, so products are good for 22 bits; rows kept as f32 are split as well.
#include "attend.cuh"
#include "intrinsics.cuh"

static const uint32_t HEADS = 16;
static const uint32_t KEYS = 32;
static const uint32_t SLICE = 64;
// Elements from one row of scores or weights to the next: no two lanes of an access meet in a bank.
static const uint32_t SCORE_STRIDE = 40;

// Eight f32 numbers as halves at `address` and, where that is asked, what is left of them at `low`.
template <bool HAS_LOW> static __device__ __forceinline__ void store_floats(uint32_t address, uint32_t low, const float4 *at) {
    const float4 first = at[0], second = at[1];
    uint32_t high[4], rest[4];
    split({first.x, first.y}, high[0], rest[0]);
    split({first.z, first.w}, high[1], rest[1]);
    split({second.x, second.y}, high[2], rest[2]);
    split({second.z, second.w}, high[3], rest[3]);
    store_halves(address, high[0], high[1], high[2], high[3]);
    if (HAS_LOW) store_halves(low, rest[0], rest[1], rest[2], rest[3]);
}

struct PackedSlice {
    static const bool HAS_LOW = false;
    // Asks for what `expand` reads.
    static __device__ __forceinline__ void ask(const uint8_t *memory, RowArray array, uint32_t slot, uint32_t slice) {
        if (slice * SLICE == Packed::plain(array)) return prefetch_line(Packed::rotary(memory, array, slot));
        prefetch_line(Packed::codes(memory, array, slot) + slice * SLICE);
        if (slice == 0) prefetch_line(Packed::exponents(memory, array, slot));
    }
    // A lane expands channels 64 slice to 64 slice + 63 of one stored row.
    static __device__ __forceinline__ void expand(const uint8_t *memory, RowArray array, uint32_t slot, uint32_t slice, uint32_t to, uint32_t) {
        if (slice * SLICE == Packed::plain(array)) {
            const uint4 *halves = (const uint4 *)Packed::rotary(memory, array, slot);
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) store_halves(to + 16 * i, halves[i].x, halves[i].y, halves[i].z, halves[i].w);
            return;
        }
        const uint4 *codes = (const uint4 *)(Packed::codes(memory, array, slot) + slice * SLICE);
        const __half2 scale = scale_of(Packed::exponents(memory, array, slot)[slice]);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint4 sixteen = codes[i];
            store_codes(to + 32 * i, {sixteen.x, sixteen.y}, scale);
            store_codes(to + 32 * i + 16, {sixteen.z, sixteen.w}, scale);
        }
    }
};

struct PlainSlice {
    static const bool HAS_LOW = true;
    static __device__ __forceinline__ void ask(const uint8_t *memory, RowArray array, uint32_t slot, uint32_t slice) {
        const float *row = Plain::row(memory, array, slot) + slice * SLICE;
        prefetch_line(row), prefetch_line(row + SLICE / 2);
    }
    static __device__ __forceinline__ void expand(const uint8_t *memory, RowArray array, uint32_t slot, uint32_t slice, uint32_t to, uint32_t low) {
        const float4 *row = (const float4 *)(Plain::row(memory, array, slot) + slice * SLICE);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) store_floats<true>(to + 16 * i, low + 16 * i, row + 2 * i);
    }
};

// Shared memory of a block, as addresses. `warps` slices of rows (twice where they are split), `warps` parts of the
// scores, weights in two halves, and per head the largest score, the sum of weights and what to shrink sums by.
struct Places {
    uint32_t row_bytes, rows, low, scores, weights;
    float *score_at, *top, *sum, *shrink;
    __half *weight_at;

    __device__ __forceinline__ Places(uint8_t *shared, uint32_t width, bool has_low) {
        row_bytes = width * 2 + 16;
        const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared), plane = KEYS * row_bytes;
        const uint32_t scores_at = plane * (has_low ? 2 : 1);
        const uint32_t weights_at = scores_at + (width / SLICE) * HEADS * SCORE_STRIDE * 4;
        rows = base, low = base + plane, scores = base + scores_at, weights = base + weights_at;
        score_at = (float *)(shared + scores_at);
        weight_at = (__half *)(shared + weights_at);
        top = (float *)(shared + weights_at + 2 * HEADS * SCORE_STRIDE * 2);
        sum = top + HEADS, shrink = sum + HEADS;
    }
};

static __device__ __forceinline__ void load_queries(const Attention &a, uint32_t row, uint32_t head, uint32_t slice, uint32_t high[4][4],
                                                      uint32_t low[4][4]) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t s = 0; s < 4; s++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t own = head + g + 8 * (i % 2), channel = slice * SLICE + 16 * s + 2 * t + 8 * (i / 2);
            float2 pair = {0.0f, 0.0f};
            if (own < a.heads) pair = *(const float2 *)(a.queries + ((size_t)row * a.heads + own) * a.width + channel);
            split(pair, high[s][i], low[s][i]);
        }
}

// Parts of a block of threads that take tiles of their own; each waits for its own threads only.
static const uint32_t PARTS_MAX = 2;

static __device__ __forceinline__ void part_barrier(uint32_t part, uint32_t threads) {
    // The instruction wants whole warps at once.
    __syncwarp();
    asm volatile("bar.sync %0, %1;" ::"r"(part + 1), "r"(threads) : "memory");
}

// The lane's channels of queries as they were multiplied.
static __device__ __forceinline__ void ask_for_queries(const Attention &a, uint32_t row, uint32_t head, uint32_t slice, float2 (&pairs)[4][4]) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t s = 0; s < 4; s++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t own = head + g + 8 * (i % 2), channel = slice * SLICE + 16 * s + 2 * t + 8 * (i / 2);
            pairs[s][i] = {0.0f, 0.0f};
            if (own < a.heads) pairs[s][i] = *(const float2 *)(a.queries + ((size_t)row * a.heads + own) * a.width + channel);
        }
}

// Normalises and turns them, and splits them into halves. The part's threads all take part.
static __device__ __forceinline__ void prepare_queries(const Attention &a, uint32_t part, uint32_t slice, const Turn *turns, const float2 (&pairs)[4][4],
                                                         uint32_t high[4][4], uint32_t low[4][4]) {
    __shared__ float squares[PARTS_MAX][HEADS][8];
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = threadIdx.x % 4, slices = a.width / SLICE;
    float sums[2] = {0.0f, 0.0f};
#pragma unroll
    for (uint32_t s = 0; s < 4; s++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) sums[i % 2] = fmaf(pairs[s][i].x, pairs[s][i].x, fmaf(pairs[s][i].y, pairs[s][i].y, sums[i % 2]));
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
        sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
        if (t == 0) squares[part][g + 8 * half][slice] = sums[half];
    }
    part_barrier(part, slices * 32);
    float scales[2];
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        float all = 0.0f;
        for (uint32_t other = 0; other < slices; other++) all += squares[part][g + 8 * half][other];
        scales[half] = __fdiv_rn(1.0f, __fsqrt_rn(all / (float)a.width + a.epsilon));
    }
#pragma unroll
    for (uint32_t s = 0; s < 4; s++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float2 pair = {pairs[s][i].x * scales[i % 2], pairs[s][i].y * scales[i % 2]};
            if (slice + 1 == slices) pair = turned(pair, turns[8 * s + t + 4 * (i / 2)]);
            split(pair, high[s][i], low[s][i]);
        }
}

// A warp expands its slice of 32 rows, one a lane; rows that do not exist are zero.
template <typename Slice> static __device__ __forceinline__ void expand_rows(const Keys &keys, uint32_t first, uint32_t slice, const Places &at) {
    const uint32_t lane = threadIdx.x % 32, key = first + lane, offset = lane * at.row_bytes + slice * SLICE * 2;
    const uint32_t to = at.rows + offset, low = at.low + offset;
    const float *own = key < keys.count ? keys.own(key) : nullptr;
    if (key >= keys.count) {
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            store_halves(to + 16 * i, 0, 0, 0, 0);
            if (Slice::HAS_LOW) store_halves(low + 16 * i, 0, 0, 0, 0);
        }
    } else if (own) {
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            store_floats<Slice::HAS_LOW>(to + 16 * i, low + 16 * i, (const float4 *)(own + slice * SLICE) + 2 * i);
    } else {
        RowArray array;
        uint32_t slot;
        const uint8_t *memory = keys.stored(key, array, slot);
        Slice::expand(memory, array, slot, slice, to, low);
    }
    __syncwarp();
}

// The slice's part of the scores of sixteen heads and 32 rows, left for the other warps.
template <typename Slice> static __device__ __forceinline__ void score(const uint32_t high[4][4], const uint32_t low[4][4], uint32_t slice,
                                                                         const Places &at) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    // Lanes 0 to 7 name eight rows at channel 0, the next eight lanes the same rows at channel 8, then at 16 and 24.
    const uint32_t tile = (lane % 8) * at.row_bytes + slice * SLICE * 2 + (lane / 8) * 16;
    float *part = at.score_at + slice * HEADS * SCORE_STRIDE;
#pragma unroll
    for (uint32_t eight = 0; eight < KEYS / 8; eight++) {
        float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (uint32_t two = 0; two < 2; two++) {
            const uint32_t offset = tile + eight * 8 * at.row_bytes + two * 64;
            uint32_t keys[4];
            load_tiles(keys, at.rows + offset);
#pragma unroll
            for (uint32_t s = 0; s < 2; s++) {
                multiply_add(products, low[2 * two + s], keys[2 * s], keys[2 * s + 1]);
                multiply_add(products, high[2 * two + s], keys[2 * s], keys[2 * s + 1]);
            }
            if (Slice::HAS_LOW) {
                load_tiles(keys, at.low + offset);
#pragma unroll
                for (uint32_t s = 0; s < 2; s++) multiply_add(products, high[2 * two + s], keys[2 * s], keys[2 * s + 1]);
            }
        }
        *(float2 *)(part + g * SCORE_STRIDE + eight * 8 + 2 * t) = {products[0], products[1]};
        *(float2 *)(part + (g + 8) * SCORE_STRIDE + eight * 8 + 2 * t) = {products[2], products[3]};
    }
}

// Heads that a warp weighs at once: what they wait for overlaps.
static const uint32_t WEIGHED = 2;

// Scores of 32 rows to weights: a lane has a row.
static __device__ __forceinline__ void weigh(const Places &at, uint32_t width, uint32_t slice, uint32_t first, uint32_t count) {
    const uint32_t lane = threadIdx.x % 32, warps = width / SLICE;
    const float scale = __fdiv_rn(1.0f, __fsqrt_rn((float)width)), nothing = __uint_as_float(0xff800000u);
    for (uint32_t from = slice; from < HEADS; from += WEIGHED * warps) {
        float score[WEIGHED], top[WEIGHED], before[WEIGHED], now[WEIGHED], weight[WEIGHED], sum[WEIGHED];
        uint32_t head[WEIGHED];
#pragma unroll
        for (uint32_t i = 0; i < WEIGHED; i++) head[i] = from + i * warps < HEADS ? from + i * warps : from, score[i] = 0.0f;
        for (uint32_t part = 0; part < warps; part++)
#pragma unroll
            for (uint32_t i = 0; i < WEIGHED; i++) score[i] += at.score_at[(part * HEADS + head[i]) * SCORE_STRIDE + lane];
#pragma unroll
        for (uint32_t i = 0; i < WEIGHED; i++) score[i] = first + lane < count ? score[i] * scale : nothing, top[i] = score[i], before[i] = at.top[head[i]];
#pragma unroll
        for (uint32_t other = 16; other > 0; other /= 2)
#pragma unroll
            for (uint32_t i = 0; i < WEIGHED; i++) top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], other));
#pragma unroll
        for (uint32_t i = 0; i < WEIGHED; i++) now[i] = fmaxf(before[i], top[i]), weight[i] = exponential(score[i] - now[i]), sum[i] = weight[i];
#pragma unroll
        for (uint32_t other = 16; other > 0; other /= 2)
#pragma unroll
            for (uint32_t i = 0; i < WEIGHED; i++) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], other);
#pragma unroll
        for (uint32_t i = 0; i < WEIGHED; i++) {
            if (from + i * warps >= HEADS) continue;
            const float shrink = exponential(before[i] - now[i]);
            const __half rounded = __float2half_rn(weight[i]);
            at.weight_at[head[i] * SCORE_STRIDE + lane] = rounded;
            at.weight_at[(HEADS + head[i]) * SCORE_STRIDE + lane] = __float2half_rn(weight[i] - __half2float(rounded));
            __syncwarp();
            if (lane == 0) at.top[head[i]] = now[i], at.sum[head[i]] = at.sum[head[i]] * shrink + sum[i], at.shrink[head[i]] = shrink;
        }
    }
}

// Adds 32 weighed rows to the sums of the slice's channels.
template <typename Slice> static __device__ __forceinline__ void add_rows(float sums[8][4], uint32_t slice, const Places &at) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4;
    const float upper = at.shrink[g], lower = at.shrink[g + 8];
#pragma unroll
    for (uint32_t n = 0; n < 8; n++) sums[n][0] *= upper, sums[n][1] *= upper, sums[n][2] *= lower, sums[n][3] *= lower;
    // Tiles of weights: heads 0 to 7, heads 8 to 15, then the same eight rows further on.
    const uint32_t weights = at.weights + ((lane % 8 + (lane / 8 % 2) * 8) * SCORE_STRIDE + (lane / 16) * 8) * 2;
    const uint32_t tile = (lane % 16) * at.row_bytes + slice * SLICE * 2 + (lane / 16) * 16;
#pragma unroll
    for (uint32_t sixteen = 0; sixteen < KEYS / 16; sixteen++) {
        uint32_t high[4], low[4];
        load_tiles(high, weights + sixteen * 32);
        load_tiles(low, weights + HEADS * SCORE_STRIDE * 2 + sixteen * 32);
#pragma unroll
        for (uint32_t two = 0; two < 4; two++) {
            const uint32_t offset = tile + sixteen * 16 * at.row_bytes + two * 32;
            uint32_t rows[4];
            load_tiles_transposed(rows, at.rows + offset);
#pragma unroll
            for (uint32_t n = 0; n < 2; n++) {
                multiply_add(sums[2 * two + n], low, rows[2 * n], rows[2 * n + 1]);
                multiply_add(sums[2 * two + n], high, rows[2 * n], rows[2 * n + 1]);
            }
            if (Slice::HAS_LOW) {
                load_tiles_transposed(rows, at.low + offset);
#pragma unroll
                for (uint32_t n = 0; n < 2; n++) multiply_add(sums[2 * two + n], high, rows[2 * n], rows[2 * n + 1]);
            }
        }
    }
    // The warp overwrites its slice of the rows next.
    __syncwarp();
}

// Where the sums of a head's slice go, multiplied.
static __device__ __forceinline__ void write_sums(const float sums[8][4], float *to, uint32_t half, float factor) {
    const uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t n = 0; n < 8; n++) *(float2 *)(to + 8 * n + 2 * t) = {sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor};
}

// Grid: rows, groups of sixteen heads, shares of the rows seen.
template <typename Slice> static __device__ void attend(const Step &step, const Attention &a) {
    extern __shared__ __align__(16) uint8_t shared[];
    const Places at(shared, a.width, Slice::HAS_LOW);
    const uint32_t row = blockIdx.x, head = blockIdx.y * HEADS, slice = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    Keys keys(a, step, row);
    const uint32_t tiles = (keys.count + KEYS - 1) / KEYS, each = (tiles + gridDim.z - 1) / gridDim.z;
    const uint32_t from = blockIdx.z * each, to = min(tiles, from + each);
    if (threadIdx.x < HEADS) at.top[threadIdx.x] = __uint_as_float(0xff800000u), at.sum[threadIdx.x] = 0.0f;
    uint32_t high[4][4], low[4][4];
    load_queries(a, row, head, slice, high, low);
    float sums[8][4] = {};
    for (uint32_t tile = from; tile < to; tile++) {
        expand_rows<Slice>(keys, tile * KEYS, slice, at);
        score<Slice>(high, low, slice, at);
        __syncthreads();
        weigh(at, a.width, slice, tile * KEYS, keys.count);
        __syncthreads();
        add_rows<Slice>(sums, slice, at);
    }
    __syncthreads();
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t local = g + 8 * half, own = head + local;
        if (own >= a.heads) continue;
        const float top = at.top[local], sum = at.sum[local];
        if (gridDim.z == 1) {
            // The sink takes its share of the weights and has no value.
            const float sink = a.sinks[own], all = fmaxf(top, sink), shrink = exponential(top - all);
            const float factor = shrink / (sum * shrink + exponential(sink - all));
            write_sums(sums, a.out + ((size_t)row * a.heads + own) * a.width + slice * SLICE, half, factor);
        } else {
            const size_t share = ((size_t)row * a.heads + own) * gridDim.z + blockIdx.z;
            write_sums(sums, a.partial + share * a.width + slice * SLICE, half, 1.0f);
            if (threadIdx.x % 4 == 0 && slice == 0) a.shares[share] = {top, sum};
        }
    }
}

// Adds up the shares of every row and head, in order: a block each.
extern "C" __global__ void attend_combine(const __grid_constant__ Attention a, uint32_t shares) {
    const size_t head = (size_t)blockIdx.x * a.heads + blockIdx.y;
    const float2 *each = a.shares + head * shares;
    const float sink = a.sinks[blockIdx.y];
    float top = sink;
    for (uint32_t share = 0; share < shares; share++) top = fmaxf(top, each[share].x);
    float all = exponential(sink - top);
    for (uint32_t share = 0; share < shares; share++) all += each[share].y * exponential(each[share].x - top);
    for (uint32_t channel = threadIdx.x; channel < a.width; channel += blockDim.x) {
        float sum = 0.0f;
        for (uint32_t share = 0; share < shares; share++)
            sum += a.partial[(head * shares + share) * a.width + channel] * exponential(each[share].x - top);
        a.out[head * a.width + channel] = sum / all;
    }
}

// Shares of a query's rows at most: a lane has the weight of each.
static const uint32_t SHARES_MAX = 32;

// Floats from a head's sums to the next in shared memory: no two lanes of a store meet in a bank.
static __device__ __forceinline__ uint32_t sum_stride(uint32_t width) { return width + 8; }

// A head's largest score and sum of weights, to shared memory of the cluster's block `rank`.
static __device__ __forceinline__ void store_cluster_2(uint32_t at, uint32_t rank, uint32_t size, float2 v) {
    if (size > 1)
        asm volatile("{ .reg .u32 a; mapa.shared::cluster.u32 a, %0, %1; st.shared::cluster.v2.f32 [a], {%2,%3}; }" ::"r"(at), "r"(rank), "f"(v.x), "f"(v.y) : "memory");
    else asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(at), "f"(v.x), "f"(v.y) : "memory");
}

// Four floats of shared memory of the cluster's block `rank`.
static __device__ __forceinline__ float4 load_cluster_4(uint32_t at, uint32_t rank, uint32_t size) {
    float4 v;
    if (size > 1)
        asm volatile("{ .reg .u32 a; mapa.shared::cluster.u32 a, %4, %5; ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [a]; }"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at), "r"(rank) : "memory");
    else asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at) : "memory");
    return v;
}

// Shares whose sums a thread asks for together.
static const uint32_t TOGETHER = 10;

// Largest score and sum of weights of every share and head: no two lanes that read a head's meet in a bank.
typedef float2 Shares[SHARES_MAX][HEADS + 1];

// Shares of a head's rows, whose sums the cluster's blocks have in shared memory, added up in order, with the sink, and
// turned back: every block takes some channels. `rows` is where its first part's sums lie, the others each `bytes` further.
static __device__ __forceinline__ void combine(const Attention &a, uint32_t row, uint32_t head, uint32_t rows, uint32_t bytes, const Turn *turns,
                                                  const float *sinks, const Shares &shares) {
    __shared__ float weights[HEADS][SHARES_MAX], divisors[HEADS];
    const uint32_t parts = blockDim.x / (a.width / 2), size = cluster_size(), rank = cluster_rank(), count = size * parts;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t quads = a.width / 4, all = HEADS * quads, each = (all + size - 1) / size, begin = rank * each, end = min(all, begin + each);
    // Sums come from other multiprocessors: the first are on their way while weights are made. There are one or two parts.
    float4 sums[TOGETHER];
    const auto ask = [&](uint32_t i, uint32_t share) {
        const uint32_t from = rows + (i / quads * sum_stride(a.width) + i % quads * 4) * 4;
#pragma unroll
        for (uint32_t k = 0; k < TOGETHER; k++, share++)
            if (i < end && share < count) sums[k] = load_cluster_4(from + (share & (parts - 1)) * bytes, share >> (parts - 1), size);
    };
    ask(begin + threadIdx.x, 0);
    for (uint32_t local = warp; local < HEADS; local += blockDim.x / 32) {
        const float sink = sinks[local];
        const float2 own = lane < count ? shares[lane][local] : float2{__uint_as_float(0xff800000u), 0.0f};
        float all = own.x;
        for (uint32_t other = 16; other > 0; other /= 2) all = fmaxf(all, __shfl_xor_sync(0xffffffffu, all, other));
        all = fmaxf(all, sink);
        const float weight = exponential(own.x - all), sum = sum_over_warp(own.y * weight);
        weights[local][lane] = weight;
        if (lane == 0) divisors[local] = exponential(sink - all) + sum;
    }
    __syncthreads();
    for (uint32_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const uint32_t local = i / quads, channel = i % quads * 4;
        if (head + local >= a.heads) break;
        float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
        for (uint32_t from = 0; from < count; from += TOGETHER) {
            if (from) ask(i, from);
#pragma unroll
            for (uint32_t k = 0; k < TOGETHER; k++) {
                if (from + k >= count) continue;
                const float by = weights[local][from + k];
                sum.x = fmaf(sums[k].x, by, sum.x), sum.y = fmaf(sums[k].y, by, sum.y);
                sum.z = fmaf(sums[k].z, by, sum.z), sum.w = fmaf(sums[k].w, by, sum.w);
            }
        }
        ask(i + blockDim.x, 0);
        const float by = divisors[local];
        float2 pairs[2] = {{sum.x / by, sum.y / by}, {sum.z / by, sum.w / by}};
        if (channel >= a.width - ROTARY) {
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) {
                Turn turn = turns[(channel - (a.width - ROTARY)) / 2 + k];
                turn.sine = -turn.sine;
                pairs[k] = turned(pairs[k], turn);
            }
        }
        *(float4 *)(a.out + ((size_t)row * a.heads + head + local) * a.width + channel) = {pairs[0].x, pairs[0].y, pairs[1].x, pairs[1].y};
    }
    // A block's sums are read by the others.
    cluster_barrier(size);
}

// For raw queries, results turned back. Grid: rows, groups of sixteen heads, and a cluster whose blocks' parts take a share of
// the rows seen each. `bytes`: shared memory of a part.
template <typename Slice> static __device__ void attend_raw(const Step &step, const Attention &a, uint32_t bytes) {
    extern __shared__ __align__(16) uint8_t shared[];
    __shared__ Turn turns[PAIRS];
    __shared__ float sinks[HEADS];
    __shared__ Shares all_shares;
    const uint32_t size = cluster_size();
    arrive_in_cluster(size);
    const uint32_t threads = a.width / SLICE * 32, part = threadIdx.x / threads, parts = blockDim.x / threads;
    const Places at(shared + part * bytes, a.width, Slice::HAS_LOW);
    const uint32_t row = blockIdx.x, head = blockIdx.y * HEADS, slice = threadIdx.x % threads / 32, g = threadIdx.x % 32 / 4;
    if (threadIdx.x < PAIRS) turns[threadIdx.x] = turn_at(a.rope, threadIdx.x, step.positions[row]);
    if (threadIdx.x < HEADS) sinks[threadIdx.x] = head + threadIdx.x < a.heads ? a.sinks[head + threadIdx.x] : 0.0f;
    if (threadIdx.x % threads < HEADS) at.top[threadIdx.x % threads] = __uint_as_float(0xff800000u), at.sum[threadIdx.x % threads] = 0.0f;
    __syncthreads();
    const Keys keys(a, step, row);
    const uint32_t shares = gridDim.z * parts, tiles = (keys.count + KEYS - 1) / KEYS, each = (tiles + shares - 1) / shares;
    const uint32_t from = (blockIdx.z * parts + part) * each, to = min(tiles, from + each);
    // Rows come all the way from memory, and most are known already.
    for (uint32_t key = from * KEYS + threadIdx.x % 32; key < to * KEYS; key += 32) {
        if (!keys.is_old(key)) continue;
        RowArray array;
        uint32_t slot;
        const uint8_t *memory = keys.stored(key, array, slot);
        Slice::ask(memory, array, slot, slice);
    }
    wait_for_previous();
    let_next_start();
    // Queries and the first rows are asked for together.
    float2 pairs[4][4];
    ask_for_queries(a, row, head, slice, pairs);
    if (from < to) expand_rows<Slice>(keys, from * KEYS, slice, at);
    uint32_t high[4][4], low[4][4];
    prepare_queries(a, part, slice, turns, pairs, high, low);
    float sums[8][4] = {};
    for (uint32_t tile = from; tile < to; tile++) {
        if (tile != from) expand_rows<Slice>(keys, tile * KEYS, slice, at);
        score<Slice>(high, low, slice, at);
        part_barrier(part, threads);
        weigh(at, a.width, slice, tile * KEYS, keys.count);
        part_barrier(part, threads);
        add_rows<Slice>(sums, slice, at);
    }
    part_barrier(part, threads);
    // Rows are done with: sums take their place.
    float *own = (float *)(shared + part * bytes);
    write_sums(sums, own + g * sum_stride(a.width) + slice * SLICE, 0, 1.0f);
    write_sums(sums, own + (g + 8) * sum_stride(a.width) + slice * SLICE, 1, 1.0f);
    // What a share weighs is brought to every block, which saves them a way there and back.
    wait_for_cluster(size);
    for (uint32_t i = threadIdx.x % threads; i < HEADS * size; i += threads) {
        const uint32_t to = (uint32_t)__cvta_generic_to_shared(&all_shares[blockIdx.z * parts + part][i % HEADS]);
        store_cluster_2(to, i / HEADS, size, {at.top[i % HEADS], at.sum[i % HEADS]});
    }
    cluster_barrier(size);
    combine(a, row, head, (uint32_t)__cvta_generic_to_shared(shared), bytes, turns, sinks, all_shares);
}

extern "C" __global__ void attend_packed(Step step, const __grid_constant__ Attention attention) { attend<PackedSlice>(step, attention); }
extern "C" __global__ void attend_plain(Step step, const __grid_constant__ Attention attention) { attend<PlainSlice>(step, attention); }
extern "C" __global__ void __launch_bounds__(512) attend_raw_packed(Step step, const __grid_constant__ Attention attention, uint32_t bytes) {
    attend_raw<PackedSlice>(step, attention, bytes);
}
extern "C" __global__ void __launch_bounds__(512) attend_raw_plain(Step step, const __grid_constant__ Attention attention, uint32_t bytes) {
    attend_raw<PlainSlice>(step, attention, bytes);
}

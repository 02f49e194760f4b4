// Choosing the compressed rows that a query sees: scores of all of them, then the exact best. Formula and rule for ties:
// reference/indexer.rs.
//
// A row's 128 channels go through the tensor cores in an order of their own: lane t of four takes channels 32t to
// 32t + 31, which is one exponent group and sixteen bytes of codes. Queries are stored in that order once, so that a
// lane reads its part of eight heads with one load.
#include "kv_rows.cuh"
#include "matrix_units.cuh"
#include "step.cuh"

static const uint32_t WIDTH = 128;
static const uint32_t STEPS = WIDTH / 16;
static const uint32_t KEYS_PER_WARP = 16;
static const uint32_t WARPS = 4;
static const uint32_t ALL = 0xffffffffu;

struct Indexer {
    uint32_t rows_offset, ratio, top, heads;
    RowArray array;
    // The rows of the step that a launch takes, and floats from one row's scores to the next.
    uint32_t first_row, rows, stride, reserved;
};

static __device__ __forceinline__ uint32_t visible_rows(const Step &step, uint32_t row, uint32_t ratio) {
    return (step.positions[row] + 1) / ratio;
}

static __host__ __device__ __forceinline__ uint32_t padded_heads(uint32_t heads) { return (heads + 7) & ~7u; }

// Brings queries into the precision of stored rows and into the order above: a warp per head. Heads that do not exist
// are zero. Each half is followed, for all heads, by what it leaves of the f32 number.
template <typename Format> static __device__ void prepare(Step step, const float *queries, __half *prepared, const Indexer &indexer) {
    const uint32_t heads = padded_heads(indexer.heads), lane = threadIdx.x % 32;
    const uint32_t index = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, head = index % heads;
    const uint32_t local = index / heads, row = indexer.first_row + local;
    if (local >= indexer.rows || visible_rows(step, row, indexer.ratio) <= indexer.top) return;
    float value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (head < indexer.heads) {
        const float4 four = ((const float4 *)(queries + ((size_t)row * indexer.heads + head) * WIDTH))[lane];
        value[0] = four.x, value[1] = four.y, value[2] = four.z, value[3] = four.w;
        Format::round_query(value);
    }
    // Channels 4 lane to 4 lane + 3: thread t = lane / 8, step s = lane % 8.
    uint32_t high[2], low[2];
    split({value[0], value[1]}, high[0], low[0]);
    split({value[2], value[3]}, high[1], low[1]);
    uint2 *at = (uint2 *)(prepared + (size_t)local * heads * WIDTH * 2);
    const uint32_t place = ((head / 8) * STEPS + lane % 8) * 32 + (head % 8) * 4 + lane / 8;
    at[place] = {high[0], high[1]};
    at[heads * WIDTH / 4 + place] = {low[0], low[1]};
}

// A lane's 32 channels of one key, two halves a register, high and low parts.
struct PackedKey {
    static const bool HAS_LOW = false;
    uint4 codes;
    __half2 scale;

    __device__ __forceinline__ void load(const uint8_t *memory, RowArray array, uint32_t slot, uint32_t t) {
        codes = ((const uint4 *)Packed::index_codes(memory, array, slot))[t];
        scale = scale_of(Packed::index_exponents(memory, array, slot)[t]);
    }
    __device__ __forceinline__ void clear() { codes = {0, 0, 0, 0}, scale = __half2(); }
    // Two channels from a byte of two codes. A code's bits are those of a half 2^14 times smaller.
    __device__ __forceinline__ uint32_t pair(uint32_t byte) const {
        const uint32_t bits = (byte & 0x07) << 9 | (byte & 0x08) << 12 | (byte & 0x70) << 21 | (byte & 0x80) << 24;
        const uint32_t lift = 0x74007400u;
        return bits_of(__hmul2(__hmul2(*(const __half2 *)&bits, *(const __half2 *)&lift), scale));
    }
    __device__ __forceinline__ void channels(uint32_t step, uint32_t high[2], uint32_t low[2]) const {
        const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
        const uint32_t two = words[step / 2] >> (step % 2 * 16);
        high[0] = pair(two & 0xff), high[1] = pair((two >> 8) & 0xff);
    }
};

struct PlainKey {
    static const bool HAS_LOW = true;
    const float4 *row;

    __device__ __forceinline__ void load(const uint8_t *memory, RowArray array, uint32_t slot, uint32_t t) {
        row = (const float4 *)(Plain::row(memory, array, slot) + 32 * t);
    }
    __device__ __forceinline__ void clear() { row = nullptr; }
    __device__ __forceinline__ void channels(uint32_t step, uint32_t high[2], uint32_t low[2]) const {
        const float4 four = row ? row[step] : float4{0.0f, 0.0f, 0.0f, 0.0f};
        split({four.x, four.y}, high[0], low[0]);
        split({four.z, four.w}, high[1], low[1]);
    }
};

// Scores of one query against all finished rows. Grid: groups of keys by rows; a warp takes sixteen keys at a time.
template <typename Key, bool SPLIT_QUERY> static __device__ void score(Step step, const __half *prepared, const float *weights, float *scores,
                                                                         const Indexer &indexer) {
    const uint32_t row = indexer.first_row + blockIdx.y, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t visible = visible_rows(step, row, indexer.ratio), heads = padded_heads(indexer.heads);
    if (visible <= indexer.top) return;
    const Segment &segment = step.segments[step.row_segments[row]];
    const uint2 *query = (const uint2 *)(prepared + (size_t)blockIdx.y * heads * WIDTH * 2) + lane;
    const uint2 *query_low = query + heads * WIDTH / 4;
    weights += (size_t)row * indexer.heads;
    const float scale = __fdiv_rn(1.0f, __fsqrt_rn((float)(indexer.heads * WIDTH)));
    const uint32_t warps = gridDim.x * WARPS;
    for (uint32_t first = (blockIdx.x * WARPS + threadIdx.x / 32) * KEYS_PER_WARP; first < visible; first += warps * KEYS_PER_WARP) {
        Key keys[2];
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t key = first + g + 8 * half;
            if (key < visible) {
                const uint8_t *memory = segment.blocks + (size_t)(key / indexer.array.rows) * segment.block_bytes + indexer.rows_offset;
                keys[half].load(memory, indexer.array, key % indexer.array.rows, t);
            } else {
                keys[half].clear();
            }
        }
        uint32_t high[STEPS][4], low[STEPS][4];
#pragma unroll
        for (uint32_t s = 0; s < STEPS; s++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                uint32_t h[2], l[2];
                keys[half].channels(s, h, l);
                high[s][half] = h[0], high[s][half + 2] = h[1];
                if (Key::HAS_LOW) low[s][half] = l[0], low[s][half + 2] = l[1];
            }
        float sums[2] = {0.0f, 0.0f};
        for (uint32_t group = 0; group < heads / 8; group++) {
            float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (uint32_t s = 0; s < STEPS; s++) {
                const uint2 q = query[(group * STEPS + s) * 32];
                multiply_add(products, high[s], q.x, q.y);
                if (Key::HAS_LOW) multiply_add(products, low[s], q.x, q.y);
                if (SPLIT_QUERY) {
                    const uint2 rest = query_low[(group * STEPS + s) * 32];
                    multiply_add(products, high[s], rest.x, rest.y);
                }
            }
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                const uint32_t head = group * 8 + 2 * t + i;
                const float weight = head < indexer.heads ? __fmul_rn(weights[head], scale) : 0.0f;
#pragma unroll
                for (uint32_t half = 0; half < 2; half++)
                    sums[half] = __fadd_rn(sums[half], __fmul_rn(weight, fmaxf(products[2 * half + i], 0.0f)));
            }
        }
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
            sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
            const uint32_t key = first + g + 8 * half;
            if (t == 0 && key < visible) scores[(size_t)blockIdx.y * indexer.stride + key] = sums[half];
        }
    }
}

// A number whose order as an integer is the order of the float.
static __device__ __forceinline__ uint32_t ordered(float value) {
    const uint32_t bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// How many threads before this one, and in all, say yes.
static __device__ __forceinline__ uint2 rank_in_block(bool yes, uint32_t *shared) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const uint32_t votes = __ballot_sync(0xffffffffu, yes);
    __syncthreads();
    if (lane == 0) shared[warp] = __popc(votes);
    __syncthreads();
    const uint32_t mine = lane < warps ? shared[lane] : 0;
    uint32_t before = 0, all = 0;
    for (uint32_t other = 0; other < warps; other++) {
        const uint32_t count = __shfl_sync(0xffffffffu, mine, other);
        before += other < warp ? count : 0;
        all += count;
    }
    return {before + __popc(votes & ((1u << lane) - 1)), all};
}

// The best `top` rows of every query, ascending; the lower row wins a tie. A block per row. The smallest chosen score is
// found byte by byte, from the highest.
extern "C" __global__ void select_best(Step step, const float *scores, uint32_t *chosen, uint32_t *counts, Indexer indexer) {
    __shared__ uint32_t histogram[256], shared[32], digit, left;
    const uint32_t row = indexer.first_row + blockIdx.x, visible = visible_rows(step, row, indexer.ratio), top = indexer.top;
    if (threadIdx.x == 0) counts[row] = visible <= top ? ALL : top;
    if (visible <= top) return;
    scores += (size_t)blockIdx.x * indexer.stride;
    chosen += (size_t)row * top;
    uint32_t least = 0, mask = 0, wanted = top;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (uint32_t i = threadIdx.x; i < 256; i += blockDim.x) histogram[i] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < visible; i += blockDim.x) {
            const uint32_t value = ordered(scores[i]);
            if ((value & mask) == least) atomicAdd(&histogram[(value >> shift) & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t above = 0, d = 255;
            while (above + histogram[d] < wanted) above += histogram[d--];
            digit = d, left = wanted - above;
        }
        __syncthreads();
        least |= digit << shift, mask |= 255u << shift, wanted = left;
        __syncthreads();
    }
    uint32_t taken = 0, equals = 0;
    for (uint32_t from = 0; from < visible; from += blockDim.x) {
        const uint32_t i = from + threadIdx.x;
        const uint32_t value = i < visible ? ordered(scores[i]) : 0;
        const bool equal = i < visible && value == least;
        const uint2 rank = rank_in_block(equal, shared);
        const bool take = i < visible && (value > least || (equal && equals + rank.x < wanted));
        const uint2 place = rank_in_block(take, shared);
        if (take) chosen[taken + place.x] = i;
        equals += rank.y, taken += place.y;
    }
}

extern "C" __global__ void select_prepare_packed(Step step, const float *queries, __half *prepared, Indexer indexer) {
    prepare<Packed>(step, queries, prepared, indexer);
}
extern "C" __global__ void select_prepare_plain(Step step, const float *queries, __half *prepared, Indexer indexer) {
    prepare<Plain>(step, queries, prepared, indexer);
}
extern "C" __global__ void __launch_bounds__(32 * WARPS) select_score_packed(Step step, const __half *prepared, const float *weights,
                                                                              float *scores, Indexer indexer) {
    score<PackedKey, false>(step, prepared, weights, scores, indexer);
}
extern "C" __global__ void __launch_bounds__(32 * WARPS) select_score_plain(Step step, const __half *prepared, const float *weights,
                                                                             float *scores, Indexer indexer) {
    score<PlainKey, true>(step, prepared, weights, scores, indexer);
}

// Choosing the compressed rows that a query sees: scores of all of them, then the exact best. Formula and rule for ties:
// reference/indexer.rs. Scores of many queries: select_many.cu.
//
// Queries are stored once in the order in which keys go through the units (select.cuh), so that a lane reads its part of
// eight heads with one load.
#include "intrinsics.cuh"
#include "select.cuh"

static const uint32_t WARPS = 4;
static const uint32_t ALL = 0xffffffffu;

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
    const float scale = score_scale(indexer);
    const uint32_t warps = gridDim.x * WARPS;
    for (uint32_t first = (blockIdx.x * WARPS + threadIdx.x / 32) * KEYS_PER_WARP; first < visible; first += warps * KEYS_PER_WARP) {
        Key keys[2];
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t key = first + g + 8 * half;
            if (key < visible) {
                keys[half].load(index_memory(segment, indexer, key), indexer.array, key % indexer.array.rows, t);
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

static const uint32_t BINS = 2048, BEST_WARPS = 32;

// The bin at which, counted from the highest, the `wanted`th value lies, and how many are wanted of that bin. A block of
// BEST_WARPS warps takes part, each thread with two bins.
static __device__ __forceinline__ uint2 bin_of(const uint32_t *histogram, uint32_t wanted, uint32_t *sums, uint2 *found) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, upper = BINS - 1 - 2 * threadIdx.x;
    const uint32_t first = histogram[upper], both = first + histogram[upper - 1];
    uint32_t above = both;
    for (uint32_t step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, above, step);
        above += lane >= step ? other : 0;
    }
    if (lane == 31) sums[warp] = above;
    __syncthreads();
    const uint32_t own = sums[lane];
    above += __reduce_add_sync(0xffffffffu, lane < warp ? own : 0) - both;
    if (above < wanted && wanted <= above + both) *found = above + first < wanted ? make_uint2(upper - 1, wanted - above - first) : make_uint2(upper, wanted - above);
    __syncthreads();
    return *found;
}

// The best `top` rows of every query, ascending; the lower row wins a tie. A block per row. The smallest chosen score is
// found by its digits, from the highest; then every warp goes through a part of the scores, in order.
extern "C" __global__ void __launch_bounds__(32 * BEST_WARPS)
select_best(Step step, const float *scores, uint32_t *chosen, uint32_t *counts, Indexer indexer) {
    __shared__ uint32_t histogram[BINS], sums[BEST_WARPS], equal_sums[BEST_WARPS];
    __shared__ uint2 found;
    const uint32_t row = indexer.first_row + blockIdx.x, visible = visible_rows(step, row, indexer.ratio), top = indexer.top;
    wait_for_previous();
    let_next_start();
    if (threadIdx.x == 0) counts[row] = visible <= top ? ALL : top;
    if (visible <= top) return;
    scores += (size_t)blockIdx.x * indexer.stride;
    chosen += (size_t)row * top;
    uint32_t least = 0, mask = 0, wanted = top;
#pragma unroll
    for (uint32_t digit = 0; digit < 3; digit++) {
        const uint32_t shift = digit == 0 ? 21 : digit == 1 ? 10 : 0, bits = digit == 2 ? 10 : 11;
        for (uint32_t i = threadIdx.x; i < BINS; i += blockDim.x) histogram[i] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < visible; i += blockDim.x) {
            const uint32_t value = ordered(scores[i]);
            if ((value & mask) == least) atomicAdd(&histogram[(value >> shift) & ((1u << bits) - 1)], 1);
        }
        __syncthreads();
        const uint2 bin = bin_of(histogram, wanted, sums, &found);
        least |= bin.x << shift, mask |= ((1u << bits) - 1) << shift, wanted = bin.y;
    }
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, below = (1u << lane) - 1;
    const uint32_t part = (visible + 32 * BEST_WARPS - 1) / (32 * BEST_WARPS) * 32, begin = warp * part, end = min(begin + part, visible);
    uint32_t greater = 0, equal = 0;
    for (uint32_t from = begin; from < end; from += 32) {
        const uint32_t value = from + lane < end ? ordered(scores[from + lane]) : 0;
        greater += __popc(__ballot_sync(0xffffffffu, value > least));
        equal += __popc(__ballot_sync(0xffffffffu, value == least && from + lane < end));
    }
    if (lane == 0) sums[warp] = greater, equal_sums[warp] = equal;
    __syncthreads();
    const uint32_t others = sums[lane], equal_others = equal_sums[lane];
    greater = __reduce_add_sync(0xffffffffu, lane < warp ? others : 0), equal = __reduce_add_sync(0xffffffffu, lane < warp ? equal_others : 0);
    for (uint32_t from = begin; from < end; from += 32) {
        const bool there = from + lane < end;
        const uint32_t value = there ? ordered(scores[from + lane]) : 0;
        const bool more = value > least, same = there && value == least;
        const uint32_t mores = __ballot_sync(0xffffffffu, more), sames = __ballot_sync(0xffffffffu, same);
        const uint32_t equals = equal + __popc(sames & below), place = greater + __popc(mores & below) + min(equals, wanted);
        if (more || (same && equals < wanted)) chosen[place] = from + lane;
        greater += __popc(mores), equal += __popc(sames);
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

// Scores of compressed rows for few queries, in one launch: a block of threads turns the query's heads, brings them into
// the precision of stored rows and scores its share of those. select.cu then chooses.
#include "intrinsics.cuh"
#include "select.cuh"

static const uint32_t WARPS = 16;

struct Scoring {
    Rope rope;
    const float *queries, *weights;     // [rows][heads * 128] as they were multiplied, [rows][heads]
    float *scores;                      // [rows][stride]
    Indexer indexer;
};

template <typename Key> static __device__ __forceinline__ void load_keys(Key (&keys)[2], const Segment &segment, const Indexer &indexer, uint32_t first, uint32_t visible) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t key = first + g + 8 * half;
        if (key < visible) {
            keys[half].load(index_memory(segment, indexer, key), indexer.array, key % indexer.array.rows, t);
        } else {
            keys[half].clear();
        }
    }
}

// The query's heads in shared memory, in the order of keys: halves, and where they are split what is left of them.
template <typename Format, bool SPLIT> static __device__ __forceinline__ void prepare(const float *query, const Scoring &s, uint2 *to, const Turn (&turns)[2]) {
    const uint32_t heads = padded_heads(s.indexer.heads), lane = threadIdx.x % 32;
#pragma unroll 4
    for (uint32_t head = threadIdx.x / 32; head < heads; head += WARPS) {
        float value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (head < s.indexer.heads) {
            const float4 four = ((const float4 *)(query + (size_t)head * WIDTH))[lane];
            float2 pairs[2] = {{four.x, four.y}, {four.z, four.w}};
            if (4 * lane >= WIDTH - ROTARY) pairs[0] = turned(pairs[0], turns[0]), pairs[1] = turned(pairs[1], turns[1]);
            value[0] = pairs[0].x, value[1] = pairs[0].y, value[2] = pairs[1].x, value[3] = pairs[1].y;
            Format::round_query(value);
        }
        uint32_t high[2], low[2];
        split({value[0], value[1]}, high[0], low[0]);
        split({value[2], value[3]}, high[1], low[1]);
        const uint32_t place = ((head / 8) * STEPS + lane % 8) * 32 + (head % 8) * 4 + lane / 8;
        to[place] = {high[0], high[1]};
        if (SPLIT) to[heads * WIDTH / 4 + place] = {low[0], low[1]};
    }
}

// Grid: groups of keys by rows; a warp takes sixteen keys at a time.
template <typename Format, typename Key, bool SPLIT> static __device__ __forceinline__ void score(const Step &step, const Scoring &s) {
    extern __shared__ uint2 query[];        // the prepared heads, then their weights
    const uint32_t row = blockIdx.y, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t visible = visible_rows(step, row, s.indexer.ratio), heads = padded_heads(s.indexer.heads), warps = gridDim.x * WARPS;
    const Segment &segment = step.segments[step.row_segments[row]];
    uint32_t first = (blockIdx.x * WARPS + threadIdx.x / 32) * KEYS_PER_WARP;
    __shared__ Turn all_turns[PAIRS];
    if (visible <= s.indexer.top) {
        wait_for_previous();
        return;
    }
    // An angle takes longer than anything else here: a lane has one.
    if (threadIdx.x < PAIRS) all_turns[threadIdx.x] = turn_at(s.rope, threadIdx.x, step.positions[row]);
    __syncthreads();
    Turn turns[2] = {};
    if (4 * lane >= WIDTH - ROTARY) {
        const uint32_t pair = 2 * lane - (WIDTH - ROTARY) / 2;
        turns[0] = all_turns[pair], turns[1] = all_turns[pair + 1];
    }
    wait_for_previous();
    let_next_start();
    Key keys[2];
    load_keys(keys, segment, s.indexer, first, visible);
    float *weights = (float *)(query + heads * WIDTH / (SPLIT ? 2 : 4));
    const float scale = score_scale(s.indexer);
    for (uint32_t head = threadIdx.x; head < heads; head += blockDim.x)
        weights[head] = head < s.indexer.heads ? __fmul_rn(s.weights[(size_t)row * s.indexer.heads + head], scale) : 0.0f;
    prepare<Format, SPLIT>(s.queries + (size_t)row * s.indexer.heads * WIDTH, s, query, turns);
    __syncthreads();
    while (first < visible) {
        uint32_t high[STEPS][4], low[STEPS][4];
#pragma unroll
        for (uint32_t i = 0; i < STEPS; i++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                uint32_t h[2], l[2];
                keys[half].channels(i, h, l);
                high[i][half] = h[0], high[i][half + 2] = h[1];
                if (Key::HAS_LOW) low[i][half] = l[0], low[i][half + 2] = l[1];
            }
        const uint32_t current = first;
        first += warps * KEYS_PER_WARP;
        if (first < visible) load_keys(keys, segment, s.indexer, first, visible);
        float sums[2] = {0.0f, 0.0f};
        // Eight heads at a time wait for their products one after another; two times eight wait together.
        const uint32_t groups = heads / 8;
        for (uint32_t from = 0; from < groups; from += 2) {
            float products[2][4] = {};
            const uint32_t last = min(from + 1, groups - 1);
#pragma unroll
            for (uint32_t i = 0; i < STEPS; i++)
#pragma unroll
                for (uint32_t k = 0; k < 2; k++) {
                    const uint32_t at = ((k ? last : from) * STEPS + i) * 32 + lane;
                    const uint2 q = query[at];
                    multiply_add(products[k], high[i], q.x, q.y);
                    if (Key::HAS_LOW) multiply_add(products[k], low[i], q.x, q.y);
                    if (SPLIT) {
                        const uint2 rest = query[heads * WIDTH / 4 + at];
                        multiply_add(products[k], high[i], rest.x, rest.y);
                    }
                }
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) {
                if (from + k >= groups) continue;
#pragma unroll
                for (uint32_t i = 0; i < 2; i++) {
                    const float weight = weights[(from + k) * 8 + 2 * t + i];
#pragma unroll
                    for (uint32_t half = 0; half < 2; half++)
                        sums[half] = __fadd_rn(sums[half], __fmul_rn(weight, fmaxf(products[k][2 * half + i], 0.0f)));
                }
            }
        }
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
            sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
            const uint32_t key = current + g + 8 * half;
            if (t == 0 && key < visible) s.scores[(size_t)row * s.indexer.stride + key] = sums[half];
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) few_score_packed(Step step, const __grid_constant__ Scoring s) {
    score<Packed, PackedKey, false>(step, s);
}
extern "C" __global__ void __launch_bounds__(32 * WARPS) few_score_plain(Step step, const __grid_constant__ Scoring s) {
    score<Plain, PlainKey, true>(step, s);
}

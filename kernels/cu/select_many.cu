// Scores of many queries against compressed rows: what select.cu computes, for as many rows as fill the units.
//
// A block of threads keeps 256 keys in registers, sixteen to a warp, as operands of its warpgroup, and takes query after
// query through a ring in shared memory: the 64 heads of one are the other operand. While the units multiply a query, the
// lanes weigh and add up the heads of the one before.
#include "intrinsics.cuh"
#include "select.cuh"
#include "warpgroup.cuh"

#define HEADS 64
#define MANY_WARPS 16
#define TILE_KEYS (16 * MANY_WARPS)
#define QUERY_BYTES (HEADS * WIDTH * 2)
#define QUERIES_MAX 12
// Queries that warps may be behind the first one before it waits for them.
#define QUERIES_BEHIND 3

// Brings queries into the precision of stored rows, as operands (warpgroup.cuh), and scales their weights: a warp per head.
// Heads that do not exist are zero.
extern "C" __global__ void select_prepare_many(Step step, const float *queries, const float *weights, uint8_t *prepared, float *scaled, Indexer indexer) {
    const uint32_t lane = threadIdx.x % 32, index = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, head = index % HEADS;
    const uint32_t local = index / HEADS, row = indexer.first_row + local;
    if (local >= indexer.rows || visible_rows(step, row, indexer.ratio) <= indexer.top) return;
    float value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const bool there = head < indexer.heads;
    if (there) {
        const float4 four = ((const float4 *)(queries + ((size_t)row * indexer.heads + head) * WIDTH))[lane];
        value[0] = four.x, value[1] = four.y, value[2] = four.z, value[3] = four.w;
        Packed::round_query(value);
    }
    if (lane == 0) scaled[local * HEADS + head] = there ? __fmul_rn(weights[(size_t)row * indexer.heads + head], score_scale(indexer)) : 0.0f;
    // Channels 4 lane to 4 lane + 3: thread t = lane / 8, step s = lane % 8. Values are exact as halves.
    const uint32_t s = lane % 8, within = head % 8;
    uint8_t *at = prepared + (size_t)local * QUERY_BYTES + head / 8 * (2 * ATOM_BYTES) + s / 4 * ATOM_BYTES + within * 128 + lane / 8 * 4;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) *(uint32_t *)(at + ((2 * s + i) % 8 ^ within) * 16) = bits_of(__floats2half2_rn(value[2 * i], value[2 * i + 1]));
}

// A place in the ring, and the parity of its barriers' phase.
struct RingPlace {
    uint32_t stage, parity;
    __device__ __forceinline__ void next(uint32_t stages) {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

struct Ring {
    uint32_t queries, full, empty, stages;
};

// The products of a warp's keys with the heads of a query.
static __device__ __forceinline__ void multiply_query(float (&sum)[HEADS / 2], const Half2 (&keys)[4 * STEPS], uint32_t query) {
    products_begin();
#pragma unroll
    for (uint32_t s = 0; s < STEPS; s++) {
        if (s == 0) multiply_first<HEADS>(sum, keys, query, 2 * ATOM_BYTES, 0);
        else multiply_step<HEADS>(sum, keys + 4 * s, query + s / 4 * ATOM_BYTES, 2 * ATOM_BYTES, s % 4);
    }
    products_end();
    hold(sum);
}

// Weighs the heads of a query and adds them up: lanes of four with t = 0 and 1 get the scores of keys g and g + 8. A lane has
// the weights of two heads, 2 lane and 2 lane + 1.
static __device__ __forceinline__ float weigh(const float (&sum)[HEADS / 2], float2 weights) {
    float scores[2] = {0.0f, 0.0f};
#pragma unroll
    for (uint32_t n = 0; n < HEADS / 8; n++) {
        const uint32_t from = n * 4 + threadIdx.x % 4;
        const float2 weight = {__shfl_sync(0xffffffffu, weights.x, from), __shfl_sync(0xffffffffu, weights.y, from)};
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            scores[half] = fmaf(weight.x, fmaxf(sum[4 * n + 2 * half], 0.0f), scores[half]);
            scores[half] = fmaf(weight.y, fmaxf(sum[4 * n + 2 * half + 1], 0.0f), scores[half]);
        }
    }
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        scores[half] += __shfl_xor_sync(0xffffffffu, scores[half], 1);
        scores[half] += __shfl_xor_sync(0xffffffffu, scores[half], 2);
    }
    return threadIdx.x % 4 == 0 ? scores[0] : scores[1];
}

// Grid: tiles of keys by chunks of the launch's rows.
extern "C" __global__ void __launch_bounds__(32 * MANY_WARPS, 1)
select_score_many(Step step, const uint8_t *prepared, const float *scaled, float *scores, Indexer indexer, uint32_t chunk, uint32_t stages) {
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ uint64_t full[QUERIES_MAX], empty[QUERIES_MAX];
    const Ring ring = {(shared_address(memory) + ATOM_BYTES - 1) & ~(ATOM_BYTES - 1u), shared_address(full), shared_address(empty), stages};
    if (threadIdx.x < stages) {
        barrier_init(ring.full + threadIdx.x * 8, 1);
        barrier_init(ring.empty + threadIdx.x * 8, MANY_WARPS);
        barriers_ready();
    }
    __syncthreads();
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, first_key = blockIdx.x * TILE_KEYS, ratio = indexer.ratio;
    const uint32_t own_key = first_key + threadIdx.x / 32 * 16 + g, end = min((blockIdx.y + 1) * chunk, indexer.rows);
    RingPlace fed = {0, 1}, used = {0, 0};
    for (uint32_t row = blockIdx.y * chunk; row < end;) {
        const Segment &segment = step.segments[step.row_segments[indexer.first_row + row]];
        const uint32_t last = min(end, segment.first_row + segment.rows - indexer.first_row);
        // Rows before this position see none of the keys, or all that they see.
        const uint32_t needed = (max(indexer.top, first_key) + 1) * ratio - 1, origin = segment.start + indexer.first_row - segment.first_row;
        if (needed > origin + row) row = min(needed - origin, last);
        if (row < last) {
            const uint32_t finished = (segment.start + segment.rows) / ratio;
            Half2 keys[4 * STEPS];
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                const uint32_t key = own_key + 8 * half;
                PackedKey packed;
                if (key < finished) packed.load(index_memory(segment, indexer, key), indexer.array, key % indexer.array.rows, t);
                else packed.clear();
#pragma unroll
                for (uint32_t s = 0; s < STEPS; s++) {
                    uint32_t high[2], low[2];
                    packed.channels(s, high, low);
                    keys[4 * s + half] = high[0], keys[4 * s + half + 2] = high[1];
                }
            }
            // Two queries at a time; the last one of an odd number again.
            const uint32_t count = (last - row + 1) & ~1u;
            uint32_t next = 0;
            const auto feed = [&](uint32_t until) {
                if (threadIdx.x) return;
                for (; next < min(until, count); next++) {
                    const uint32_t query = min(row + next, last - 1);
                    barrier_wait(ring.empty + fed.stage * 8, fed.parity);
                    barrier_expect(ring.full + fed.stage * 8, QUERY_BYTES);
                    copy_bulk(ring.queries + fed.stage * QUERY_BYTES, prepared + (size_t)query * QUERY_BYTES, QUERY_BYTES, ring.full + fed.stage * 8);
                    fed.next(ring.stages);
                }
            };
            // The scores of a query in a stage.
            const auto finish = [&](float(&sum)[HEADS / 2], float2 weights, uint32_t stage, uint32_t query) {
                hold(sum);
                __syncwarp(); // every lane's products are done before the stage is given back
                if (!lane) barrier_arrive(ring.empty + stage * 8);
                const float score = weigh(sum, weights);
                const uint32_t key = own_key + 8 * t;
                if (t < 2 && query < last && key < (origin + query + 1) / ratio) scores[(size_t)query * indexer.stride + key] = score;
            };
            feed(stages - QUERIES_BEHIND);
#pragma unroll 1
            for (uint32_t index = 0; index < count; index += 2) {
                float even[HEADS / 2], odd[HEADS / 2];
                feed(index + stages - QUERIES_BEHIND);
                __syncwarp();
                // The weights of both, from memory while they are multiplied.
                const float2 *weights = (const float2 *)scaled + lane;
                const float2 even_weights = __ldg(weights + (row + index) * (HEADS / 2)), odd_weights = __ldg(weights + min(row + index + 1, last - 1) * (HEADS / 2));
                const uint32_t first = used.stage;
                barrier_wait(ring.full + first * 8, used.parity);
                multiply_query(even, keys, ring.queries + first * QUERY_BYTES);
                used.next(stages);
                const uint32_t second = used.stage;
                barrier_wait(ring.full + second * 8, used.parity);
                multiply_query(odd, keys, ring.queries + second * QUERY_BYTES);
                used.next(stages);
                products_wait<1>();
                finish(even, even_weights, first, row + index);
                products_wait<0>();
                finish(odd, odd_weights, second, row + index + 1);
            }
            row = last;
        }
    }
}

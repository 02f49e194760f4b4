// Pools tokens into compressed rows. Formula and order of additions: reference/compressor.rs.
//
// A block of at least as many threads as channels takes one window of one segment, a thread one channel. The window's running softmax starts from the bank's
// unfinished row where the segment begins inside the window, and otherwise from what the window before it, which is in
// this step as well, leaves for it; so every window is computed on its own.
#pragma once
#include "kv_rows.cuh"
#include "step.cuh"

static const uint32_t LANES = 16;

struct Compressor {
    Rope rope;
    const float *values, *gates, *bias, *norm;
    uint32_t ratio, channels, overlapped, pool_offset, rows_offset, is_index;
    RowArray array;
    float norm_epsilon;
    uint32_t reserved;
};

struct Pool {
    float top, weight, sum;

    __device__ __forceinline__ void clear() { top = __uint_as_float(0xff800000u), weight = 0.0f, sum = 0.0f; }

    __device__ __forceinline__ void add(float value, float gate, float bias) {
        gate = __fadd_rn(gate, bias);
        const bool higher = gate > top;
        const float smaller = exponential(-fabsf(__fsub_rn(top, gate)));
        const float shrink = higher ? smaller : 1.0f, share = higher ? 1.0f : smaller;
        top = higher ? gate : top;
        weight = __fadd_rn(__fmul_rn(weight, shrink), share);
        sum = __fadd_rn(__fmul_rn(sum, shrink), __fmul_rn(value, share));
    }
};

struct Window {
    const Compressor &c;
    const Segment &segment;
    uint32_t channel;

    __device__ __forceinline__ size_t state_at(uint32_t set) const {
        const uint32_t floats = LANES * (c.overlapped ? 6 : 3);
        return (size_t)(channel / LANES) * floats + set * 3 * LANES + channel % LANES;
    }
    __device__ __forceinline__ Pool read(uint32_t set) const {
        Pool pool;
        pool.clear();
        if (segment.start > 0) {
            const float *state = (const float *)(segment.before + c.pool_offset) + state_at(set);
            pool = {state[0], state[LANES], state[2 * LANES]};
        }
        return pool;
    }
    __device__ __forceinline__ void write(uint32_t set, Pool pool) const {
        float *state = (float *)(segment.next + c.pool_offset) + state_at(set);
        state[0] = pool.top, state[LANES] = pool.weight, state[2 * LANES] = pool.sum;
    }
    // Adds the step's tokens of window `window`; `half` 0 is what they give the next row, 1 what they give their own.
    __device__ __forceinline__ void add(Pool &pool, uint32_t window, uint32_t half) const {
        const uint32_t width = c.channels * (c.overlapped ? 2 : 1), end = segment.start + segment.rows;
        const uint32_t from = max(segment.start, window * c.ratio), to = min(end, (window + 1) * c.ratio);
        const uint32_t column = (c.overlapped ? half * c.channels : 0) + channel;
#pragma unroll 4
        for (uint32_t position = from; position < to; position++) {
            const size_t at = (size_t)(segment.first_row + position - segment.start) * width + column;
            pool.add(c.values[at], c.gates[at], c.bias[(position % c.ratio) * width + column]);
        }
    }
};

template <typename Format> static __device__ void finish(const Compressor &c, const Segment &segment, uint32_t window, float value) {
    extern __shared__ float row[];
    __shared__ double shared[32];
    const bool is_own = threadIdx.x < c.channels;
    const double squares = sum_over_block(is_own ? (double)value * (double)value : 0.0, shared);
    const double scale = 1.0 / sqrt(squares / (double)c.channels + (double)c.norm_epsilon);
    if (is_own) row[threadIdx.x] = (float)((double)value * scale * (double)c.norm[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x < PAIRS) {
        float2 *pair = (float2 *)(row + c.channels - ROTARY) + threadIdx.x;
        *pair = turned(*pair, turn_at(c.rope, threadIdx.x, window * c.ratio));
    }
    __syncthreads();
    uint8_t *memory = segment.blocks + (size_t)(window / c.array.rows) * segment.block_bytes + c.rows_offset;
    const uint32_t slot = window % c.array.rows, group = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (c.is_index) {
        if (group == 0) {
            float four[4] = {row[4 * lane], row[4 * lane + 1], row[4 * lane + 2], row[4 * lane + 3]};
            Format::store_index(memory, c.array, slot, four);
        }
    } else if (group < c.channels / Format::GROUP) {
        Format::store_group(memory, c.array, slot, group, ((float2 *)(row + group * Format::GROUP))[lane]);
    }
}

// Window `index` of those that a segment touches. Every thread of the block takes part.
template <typename Format> static __device__ void compress(const Step &step, const Compressor &c, uint32_t index, uint32_t of_segment) {
    const Segment &segment = step.segments[of_segment];
    const uint32_t end = segment.start + segment.rows, first = segment.start / c.ratio, last = end / c.ratio;
    const uint32_t window = first + index;
    if (window > last) return;
    const Window of{c, segment, threadIdx.x};
    Pool pool;
    pool.clear();
    if (threadIdx.x < c.channels) {
        if (window == first) {
            pool = of.read(0);
        } else if (c.overlapped) {
            if (window - 1 == first) pool = of.read(1);
            of.add(pool, window - 1, 0);
        }
        of.add(pool, window, 1);
        if (window == last) {
            of.write(0, pool);
            if (c.overlapped) {
                Pool next;
                next.clear();
                if (window == first) next = of.read(1);
                of.add(next, window, 0);
                of.write(1, next);
            }
        }
    }
    if (window < last) finish<Format>(c, segment, window, __fdiv_rn(pool.sum, pool.weight));
}

// What a site of attention does with the products of its input, for few rows, in one launch: the query's low rank
// normalised, new rows normalised, rotated, rounded and stored in their windows, and compressors fed; also what will merge
// the site's output. The parts are independent; a block of threads takes one of them for one row, or for one window of a
// segment.
#include "compress.cuh"
#include "intrinsics.cuh"
#include "merge_values.cuh"

#define THREADS 512
#define COMPRESSORS 2

struct Settle {
    Compressor compressors[COMPRESSORS];
    Rope rope;
    Mixes mixes;
    float *low, *rows;              // [rows][low_width], or null: the product of it normalises; [rows][row_width]
    const float *low_norm, *row_norm;
    uint32_t low_width, row_width, window_offset;
    uint32_t windows;               // blocks of threads for each compressor and segment
    RowArray window;
    uint32_t compressor_count;
    float epsilon;
};

// Root-mean-square normalisation of a row by the block.
static __device__ __forceinline__ void normalize_row(float *row, const float *weight, uint32_t width, float epsilon) {
    __shared__ double shared[32];
    double squares = 0.0;
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) squares += (double)row[i] * (double)row[i];
    squares = sum_over_block(squares, shared);
    const double scale = 1.0 / sqrt(squares / (double)width + (double)epsilon);
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) row[i] = (float)((double)row[i] * scale * (double)weight[i]);
}

// A warp takes 64 channels of the new row, two in every lane; the last 64 are turned.
template <typename Format> static __device__ __forceinline__ void store_row(const Step &step, const Settle &s, uint32_t index) {
    float *row = s.rows + (size_t)index * s.row_width;
    normalize_row(row, s.row_norm, s.row_width, s.epsilon);
    __syncthreads();
    const Segment &segment = step.segments[step.row_segments[index]];
    const bool stays = segment.first_row + segment.rows - index <= s.window.rows;
    uint8_t *memory = stays ? segment.next + s.window_offset : nullptr;
    const uint32_t lane = threadIdx.x % 32, position = step.positions[index];
    for (uint32_t group = threadIdx.x / 32; group < s.row_width / Format::GROUP; group += THREADS / 32) {
        float2 *at = (float2 *)(row + group * Format::GROUP) + lane;
        float2 value = *at;
        if ((group + 1) * Format::GROUP == s.row_width) value = turned(value, turn_at(s.rope, lane, position));
        *at = Format::store_group(memory, s.window, position % s.window.rows, group, value);
    }
}

// Grid: a block a row, two where the low rank is normalised, then one a row for merge values where they are asked for, then
// the windows of each segment for each compressor. Where the low rank is not taken, the launch in front is the product of
// it, and all that is read here was there before that one began.
template <typename Format> static __device__ __forceinline__ void settle(const Step &step, const Settle &s) {
    __shared__ double mixes[PARTIALS];
    if (s.low) wait_for_previous();
    let_next_start();
    uint32_t block = blockIdx.x;
    const uint32_t of_one = s.windows * step.segment_count;
    if (block < step.rows) {
        store_row<Format>(step, s, block);
    } else if (s.low && (block -= step.rows) < step.rows) {
        normalize_row(s.low + (size_t)block * s.low_width, s.low_norm, s.low_width, s.epsilon);
    } else if (s.mixes.partials && (block -= step.rows) < step.rows) {
        merge_values(s.mixes, block, mixes);
    } else {
        block -= step.rows;
        compress<Format>(step, s.compressors[block / of_one], block % s.windows, block % of_one / s.windows);
    }
    // Whoever waits for this launch waits for the one in front of it as well.
    if (!s.low) wait_for_previous();
}

extern "C" __global__ void __launch_bounds__(THREADS) few_settle_packed(Step step, const __grid_constant__ Settle s) { settle<Packed>(step, s); }
extern "C" __global__ void __launch_bounds__(THREADS) few_settle_plain(Step step, const __grid_constant__ Settle s) { settle<Plain>(step, s); }

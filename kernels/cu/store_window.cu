// Rounds new raw rows as storing does and stores the last 128 of every segment in its bank's window.
#include "kv_rows.cuh"
#include "step.cuh"

// A block per row, a warp per 64 channels.
template <typename Format> static __device__ void store(Step step, float *rows, uint32_t window_offset, RowArray array) {
    const uint32_t row = blockIdx.x, group = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Segment &segment = step.segments[step.row_segments[row]];
    const bool stays = segment.first_row + segment.rows - row <= array.rows;
    uint8_t *memory = stays ? segment.next + window_offset : nullptr;
    float2 *at = (float2 *)(rows + (size_t)row * array.width + group * Format::GROUP) + lane;
    *at = Format::store_group(memory, array, step.positions[row] % array.rows, group, *at);
}

extern "C" __global__ void store_window_packed(Step step, float *rows, uint32_t window_offset, RowArray array) {
    store<Packed>(step, rows, window_offset, array);
}
extern "C" __global__ void store_window_plain(Step step, float *rows, uint32_t window_offset, RowArray array) {
    store<Plain>(step, rows, window_offset, array);
}

// What a draft block takes from the model's streams, and what is kept of them: the streams of the token before.
#include "step.cuh"

// A thread takes four values; grid: values by rows. `streams` may be nothing: then every row takes what its bank keeps.
extern "C" __global__ void take_streams(Step step, const float4 *streams, float4 *out, uint32_t offset, uint32_t fours) {
    const uint32_t row = blockIdx.y, at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= fours) return;
    const Segment &segment = step.segments[step.row_segments[row]];
    const bool has_own = streams && row > segment.first_row;
    const float4 *from = has_own ? streams + (size_t)(row - 1) * fours : (const float4 *)(segment.before + offset);
    out[(size_t)row * fours + at] = from[at];
}

// Grid: values by segments.
extern "C" __global__ void leave_streams(Step step, const float4 *streams, uint32_t offset, uint32_t fours) {
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= fours) return;
    const Segment &segment = step.segments[blockIdx.y];
    ((float4 *)(segment.next + offset))[at] = streams[(size_t)(segment.first_row + segment.rows - 1) * fours + at];
}

extern "C" __global__ void add(float *values, const float *others, uint64_t count) {
    const uint64_t at = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] = __fadd_rn(values[at], others[at]);
}

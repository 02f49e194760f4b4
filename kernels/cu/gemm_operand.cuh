// Activations of many rows as the matrix units take them: one half float a value, or a second one, the rest, in another place.
//
// A row is scaled by a power of two so that its largest value lies in [2^14, 2^15): the halves keep 11 bits of every value
// that is not far below it. Eight rows are a group (the last one filled up with rows of anything), 256 channels a block
// (the last one filled up with zeros). Half a block of a group is two atoms (warpgroup.cuh): all groups' first halves of the
// first block come first, so that some groups of neighbouring rows lie together, as they are copied.
//
// The sixteen channels of one step of the units are those that a weight format's lanes supply together: quads of four
// channels, `quad(order, step, t)` of lane t, of which the lane has channels 0, 1 at 2t, 2t + 1 and 2, 3 at 2t + 8, 2t + 9.
#pragma once
#include "warpgroup.cuh"

#define BLOCK_CHANNELS 256
#define GROUP_ROWS 8
#define HALF_CHANNELS (BLOCK_CHANNELS / 2)
#define HALF_BYTES (2 * ATOM_BYTES)     // of a group

// Where a format's lanes find their codes decides which quads they supply: those of 32 neighbouring channels, or of all 256.
enum Order { NEAR = 0, FAR = 1 };

static __device__ __forceinline__ uint32_t gemm_blocks(uint32_t columns) { return (columns + BLOCK_CHANNELS - 1) / BLOCK_CHANNELS; }
static __device__ __forceinline__ uint32_t round_to_group(uint32_t rows) { return (rows + GROUP_ROWS - 1) & ~(GROUP_ROWS - 1u); }

static __device__ __forceinline__ uint32_t quad(uint32_t order, uint32_t step, uint32_t t) {
    return order == NEAR ? step / 2 * 8 + step % 2 + 2 * t : step + 16 * t;
}

// Bytes from the start of an operand of so many groups to a 16-byte chunk, the `chunk`th of 32 of a block.
static __device__ __forceinline__ size_t chunk_place(uint32_t row, uint32_t groups, uint32_t block, uint32_t chunk) {
    const uint32_t within = row % GROUP_ROWS;
    return ((size_t)(2 * block + chunk / 16) * groups + row / GROUP_ROWS) * HALF_BYTES + chunk / 8 % 2 * ATOM_BYTES + within * 128 + ((chunk % 8 ^ within) << 4);
}

// The chunk of a block that has channel `k` of it, and the half float in it.
static __device__ __forceinline__ uint2 half_place(uint32_t order, uint32_t k) {
    const uint32_t q = k / 4, t = order == NEAR ? q % 8 / 2 : q / 16, step = order == NEAR ? q / 8 * 2 + q % 2 : q % 16;
    return make_uint2(step * 2 + k % 4 / 2, 2 * t + k % 2);
}

// Activations as the matrix units take them.
//
// A row is scaled by a power of two so that its largest value lies in [2^14, 2^15), and every value is written as the
// sum of two half floats, `high` and `low`: 22 bits, so that a product is as good as one of f32 rows. Rows are cut
// into blocks of 256 channels (the last filled up with zeros). A block is 64 quads, each four channels as
// { high[4], low[4] } in 16 bytes, and four more quads with the sums of its sixteen groups of 16 channels, divided by
// 16; quad t has the groups 8 (t & 1) + 2 j + (t >> 1), j in 0..4. Formats with minima multiply those.
#pragma once
#include <stdint.h>

#define BLOCK_CHANNELS 256
#define BLOCK_QUADS 64
#define BLOCK_ENTRIES 68        // quads and sums
#define SUM_DIVISOR 16.0f

static __device__ __forceinline__ uint32_t blocks_of(uint32_t columns) {
    return (columns + BLOCK_CHANNELS - 1) / BLOCK_CHANNELS;
}

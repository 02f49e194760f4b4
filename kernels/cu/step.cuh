// What kernels know about a step's rows: `StepView` and `SegmentView` of src/cuda/step.rs, field by field.
#pragma once
#include <stdint.h>

struct Segment {
    const uint8_t *before;
    uint8_t *next;
    uint8_t *blocks;
    uint32_t start, first_row, rows, block_bytes;
};

struct Step {
    const uint32_t *tokens, *positions, *row_segments;
    const Segment *segments;
    const uint32_t *wanted;
    uint32_t rows, segment_count;
};

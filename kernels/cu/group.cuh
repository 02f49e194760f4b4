// Rows of activations that belong to one matrix of a stack.
#pragma once
#include <stdint.h>

struct Group {
    uint32_t matrix;
    uint32_t first;
    uint32_t rows;
    uint32_t count;         // in the first group: how many there are
};

// embed: every stream of a row is the token's row of the table.
#include "iq2_grid.cuh"
#include "elements.cuh"

#define STREAMS 4

template <class Element>
static __device__ __forceinline__ void embed(const Elements &table, const uint32_t *tokens, float *out) {
    wait_for_previous();
    let_next_start();
    const uint32_t row = blockIdx.y, token = tokens[row];
    for (uint32_t k = blockIdx.x * blockDim.x + threadIdx.x; k < table.columns; k += gridDim.x * blockDim.x) {
        const float value = Element::at(table, token, k);
#pragma unroll
        for (int stream = 0; stream < STREAMS; stream++) out[((size_t)row * STREAMS + stream) * table.columns + k] = value;
    }
}

#define KERNEL(NAME, ELEMENT)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                               \
    embed_##NAME(const uint8_t *table, const uint32_t *tokens, float *out, uint32_t columns, uint32_t) {            \
        embed<ELEMENT>({table, columns}, tokens, out);                                                              \
    }

KERNEL(f32, ElementF32)
KERNEL(f16, ElementF16)
KERNEL(bf16, ElementBf16)
KERNEL(q8_0, ElementQ8_0)
KERNEL(q2_k, ElementQ2_K)
KERNEL(q4_k, ElementQ4_K)
KERNEL(iq2_xxs, ElementIQ2_XXS)

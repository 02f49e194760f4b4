// multiply and multiply_groups, and the products inside feed_forward, for few rows: see product.cuh. One kernel per
// format, for groups of up to 8 rows.
#include "iq2_grid.cuh"
#include "product.cuh"

template <> __device__ void fill_tables<IQ2_XXS>(uint32_t *tables) {
    for (uint32_t i = threadIdx.x; i < IQ2_XXS::TABLES * TABLE_COPIES; i += blockDim.x) tables[i] = iq2_table_entry(i / TABLE_COPIES);
}

// BLOCKS: of threads that should share a multiprocessor. AHEAD: see `stream`.
#define KERNEL(NAME, WEIGHTS, BLOCKS, AHEAD)                                                                              \
    extern "C" __global__ void __launch_bounds__(STREAM_WARPS * 32, BLOCKS)                                               \
    multiply_stream_##NAME(const __grid_constant__ Product product) { stream<WEIGHTS, AHEAD>(product); }

KERNEL(q8_0, Q8_0, 2, true)
KERNEL(f16, F16, 2, false)
KERNEL(q2_k, Q2_K, 3, true)
KERNEL(q4_k, Q4_K, 3, false)
KERNEL(iq2_xxs, IQ2_XXS, 3, true)

struct PlainF32 {
    typedef float Stored;
    static __device__ __forceinline__ float value(float x) { return x; }
};
struct PlainF16 {
    typedef __half Stored;
    static __device__ __forceinline__ float value(__half x) { return __half2float(x); }
};
struct PlainBf16 {
    typedef uint16_t Stored;
    static __device__ __forceinline__ float value(uint16_t x) { return __uint_as_float((uint32_t)x << 16); }
};

extern "C" __global__ void __launch_bounds__(256) multiply_plain_f32(const __grid_constant__ Product product) { plain<PlainF32>(product); }
extern "C" __global__ void __launch_bounds__(256) multiply_plain_f16(const __grid_constant__ Product product) { plain<PlainF16>(product); }
extern "C" __global__ void __launch_bounds__(256) multiply_plain_bf16(const __grid_constant__ Product product) { plain<PlainBf16>(product); }

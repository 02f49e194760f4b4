// A gate and its linear part together, for the formats that published models have them in: see gemm.cuh.
#include "gemm.cuh"
#include "iq2_grid.cuh"

static __device__ void grid_tables(uint32_t tables) {
    for (uint32_t i = threadIdx.x; i < 384 * GEMM_TABLE_COPIES; i += blockDim.x)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(tables + i * 4), "r"(iq2_table_entry(i / GEMM_TABLE_COPIES)) : "memory");
}
template <> __device__ void gemm_tables<GemmIQ2_XXS<true>>(uint32_t tables) { grid_tables(tables); }
template <> __device__ void gemm_tables<GemmIQ2_XXS<false>>(uint32_t tables) { grid_tables(tables); }

KERNEL(gemm_32_gated_q8_0, GemmQ8_0, 32, true)
KERNEL(gemm_64_gated_q8_0, GemmQ8_0, 64, true)
KERNEL(gemm_32_gated_q4_k, GemmQ4_K, 32, true)
KERNEL(gemm_64_gated_q4_k, GemmQ4_K, 64, true)
KERNEL(gemm_32_gated_iq2_xxs, GemmIQ2_XXS, 32, true)
KERNEL(gemm_64_gated_iq2_xxs, GemmIQ2_XXS, 64, true)
// Formats that leave registers for wider tiles, where shared memory has room for their stages.
#if HAS_WARPGROUPS
KERNEL(gemm_128_gated_q8_0, GemmQ8_0, 128, true)
KERNEL(gemm_128_gated_iq2_xxs, GemmIQ2_XXS, 128, true)
#endif

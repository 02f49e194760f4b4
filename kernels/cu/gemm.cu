// multiply, multiply_groups and the last product of feed_forward for many rows: see gemm.cuh. A kernel per format and number
// of rows in a tile.
#include "gemm.cuh"

KERNEL(gemm_32_q8_0, GemmQ8_0, 32, false)
KERNEL(gemm_64_q8_0, GemmQ8_0, 64, false)
KERNEL(gemm_32_f16, GemmF16, 32, false)
KERNEL(gemm_64_f16, GemmF16, 64, false)
KERNEL(gemm_32_q2_k, GemmQ2_K, 32, false)
KERNEL(gemm_64_q2_k, GemmQ2_K, 64, false)
KERNEL(gemm_32_q4_k, GemmQ4_K, 32, false)
KERNEL(gemm_64_q4_k, GemmQ4_K, 64, false)
// Formats that leave registers for wider tiles, where shared memory has room for their stages.
#if HAS_WARPGROUPS
KERNEL(gemm_128_q8_0, GemmQ8_0, 128, false)
KERNEL(gemm_128_q2_k, GemmQ2_K, 128, false)
#endif

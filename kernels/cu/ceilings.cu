// What the device can do at best, for others to be compared with: reading memory, copying it, and the matrix units'
// product of bf16 numbers that lie in shared memory already.
#include <cuda_bf16.h>
#include <stdint.h>

// Reads `count` vectors of 16 bytes and keeps nothing of them.
extern "C" __global__ void ceilings_read(const uint4 *from, uint64_t count, uint32_t *never) {
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    uint32_t sum = 0;
    for (uint64_t at = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at + i * stride < count) v[i] = __ldcs(from + at + i * stride);
            else v[i] = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < 4; i++) sum += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
    }
    // The compiler cannot know that the sum of what was stored is never this.
    if (sum == 0x9e3779b9u) *never = sum;
}

extern "C" __global__ void ceilings_copy(const uint4 *from, uint4 *to, uint64_t count) {
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t at = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at + i * stride < count) v[i] = __ldcs(from + at + i * stride);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at + i * stride < count) __stcs(to + at + i * stride, v[i]);
    }
}

// 64 x 64 numbers, and 128 x 64.
constexpr uint32_t A_BYTES = 64 * 64 * 2, B_BYTES = 128 * 64 * 2;

// Small numbers that look random: all zeros would draw less power than real ones do.
static __device__ void fill(uint8_t *shared) {
    uint16_t *halves = (uint16_t *)shared;
    for (uint32_t i = threadIdx.x; i < (A_BYTES + B_BYTES) / 2; i += blockDim.x) {
        const uint32_t bits = (i * 2654435761u + blockIdx.x) >> 7;
        halves[i] = (uint16_t)((bits & 0x807f) | (120 + (bits >> 16 & 3)) << 7);
    }
}

// A block of 128 threads multiplies 64 x 64 with 64 x 128 numbers `rounds` times: 2^20 multiplications and additions
// each time.
extern "C" __global__ void __launch_bounds__(128) ceilings_product(uint32_t rounds, float *out) {
    extern __shared__ __align__(1024) uint8_t shared[];
    fill(shared);
    __syncthreads();
    float sums[64];
#pragma unroll
    for (int i = 0; i < 64; i++) sums[i] = 0.0f;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    // Rows of 128 bytes in groups of eight, swizzled over 128 bytes.
    const uint64_t form = (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16;
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(shared);
    const uint64_t a = form | (start & 0x3ffff) >> 4, b = form | ((start + A_BYTES) & 0x3ffff) >> 4;
#define FOUR(n) "+f"(sums[n]), "+f"(sums[n + 1]), "+f"(sums[n + 2]), "+f"(sums[n + 3])
#define SIXTEEN(n) FOUR(n), FOUR(n + 4), FOUR(n + 8), FOUR(n + 12)
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (uint32_t round = 0; round < rounds; round++) {
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                         "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                         "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                         "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                         "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, 1, 1, 1, 0, 0;"
                         : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
                         : "l"(a + 2 * k), "l"(b + 2 * k));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#else
    // A warp has 16 rows of the first and all columns of the second.
    const uint32_t *words = (const uint32_t *)shared, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t a[4][4];
#pragma unroll
    for (int i = 0; i < 16; i++) a[i / 4][i % 4] = words[warp * 512 + i * 32 + lane];
    for (uint32_t round = 0; round < rounds; round++) {
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int n = 0; n < 16; n++) {
                float *c = sums + 4 * n;
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                             : "r"(a[k][0]), "r"(a[k][1]), "r"(a[k][2]), "r"(a[k][3]), "r"(a[k][n % 4]), "r"(a[k][(n + 1) % 4]));
            }
    }
#endif
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 64; i++) sum += sums[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

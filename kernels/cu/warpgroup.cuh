// A warpgroup's matrix product, and the copies that feed it: 64 weight rows in registers times N rows of activations in
// shared memory. On Hopper one instruction of four warps, elsewhere instructions of single warps over the same operands
// and the same results: a warp has 16 of the 64 rows, and a lane (g = lane / 4, t = lane % 4) has for every eight rows of
// activations the results of rows g, g, g + 8, g + 8 with activations 2t, 2t + 1, 2t, 2t + 1.
//
// Activations lie in *atoms*: eight rows of 64 channels, 128 bytes a row, 1,024 in all, and the 16-byte chunk c of row r
// is at c ^ r, so that the units read a column of chunks without a conflict.
#pragma once
#include "intrinsics.cuh"

#define ATOM_BYTES 1024

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#else
#define HAS_WARPGROUPS 0
#endif

// Registers that the units may still be writing are not touched in between.
template <int COUNT> static __device__ __forceinline__ void hold(float (&values)[COUNT]) {
#if HAS_WARPGROUPS
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(values[i])::"memory");
#endif
}

// Before the first product after registers were written.
static __device__ __forceinline__ void products_begin() {
#if HAS_WARPGROUPS
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// Ends a group of products.
static __device__ __forceinline__ void products_end() {
#if HAS_WARPGROUPS
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Waits until only the last `PENDING` groups may be running, in all lanes: one of them may give back what they have read.
template <int PENDING> static __device__ __forceinline__ void products_wait() {
#if HAS_WARPGROUPS
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#else
    __syncwarp();
#endif
}

#define F8(d, i) F4(d, i), F4(d, i + 4)
#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16_(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)
#define NEW4(d, i) "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3])
#define NEW16(d, i) NEW4(d, i), NEW4(d, i + 4), NEW4(d, i + 8), NEW4(d, i + 12)
#define R16_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define R16_1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define R16_2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define R16_3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define R8_2 "%32,%33,%34,%35,%36,%37,%38,%39"
#define R8_3 "%48,%49,%50,%51,%52,%53,%54,%55"
#define A_AND_B(a, b) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)

#if HAS_WARPGROUPS
static __device__ __forceinline__ void warpgroup_multiply(float (&d)[16], const Half2 *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" R16_0 "}, {%16,%17,%18,%19}, %20, 1, 1, 1, 0;"
                 : F16_(d, 0) : A_AND_B(a, b));
}
static __device__ __forceinline__ void warpgroup_multiply(float (&d)[32], const Half2 *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" R16_0 "," R16_1 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
                 : F16_(d, 0), F16_(d, 16) : A_AND_B(a, b));
}
// The first of several products: what `d` held is forgotten.
static __device__ __forceinline__ void warpgroup_multiply_first(float (&d)[32], const Half2 *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" R16_0 "," R16_1 "}, {%32,%33,%34,%35}, %36, 0, 1, 1, 0;"
                 : NEW16(d, 0), NEW16(d, 16) : A_AND_B(a, b));
}
static __device__ __forceinline__ void warpgroup_multiply(float (&d)[48], const Half2 *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" R16_0 "," R16_1 "," R16_2 "}, {%48,%49,%50,%51}, %52, 1, 1, 1, 0;"
                 : F16_(d, 0), F16_(d, 16), F16_(d, 32) : A_AND_B(a, b));
}
static __device__ __forceinline__ void warpgroup_multiply(float (&d)[64], const Half2 *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" R16_0 "," R16_1 "," R16_2 "," R16_3 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 0;"
                 : F16_(d, 0), F16_(d, 16), F16_(d, 32), F16_(d, 48) : A_AND_B(a, b));
}
static __device__ __forceinline__ void warpgroup_multiply(float (&d)[40], const Half2 *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16 {" R16_0 "," R16_1 "," R8_2 "}, {%40,%41,%42,%43}, %44, 1, 1, 1, 0;"
                 : F16_(d, 0), F16_(d, 16), F8(d, 32) : A_AND_B(a, b));
}
static __device__ __forceinline__ void warpgroup_multiply(float (&d)[56], const Half2 *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n112k16.f32.f16.f16 {" R16_0 "," R16_1 "," R16_2 "," R8_3 "}, {%56,%57,%58,%59}, %60, 1, 1, 1, 0;"
                 : F16_(d, 0), F16_(d, 16), F16_(d, 32), F8(d, 48) : A_AND_B(a, b));
}
#endif

#if HAS_WARPGROUPS
// Start and stride in units of 16 bytes; 128-byte chunks change places as above.
static __device__ __forceinline__ uint64_t describe_atoms(uint32_t atom, uint32_t stride, uint32_t step) {
    return (uint64_t)((atom + step * 32) >> 4) | 1ull << 16 | (uint64_t)(stride >> 4) << 32 | 1ull << 62;
}
#endif

// sum += a . b over 16 channels. `atom`: the shared address of the first atom that has them; the next eight rows'
// is `stride` bytes further; `step`: which 16 of the atom's channels.
template <int N>
static __device__ __forceinline__ void multiply_step(float (&sum)[N / 2], const Half2 *a, uint32_t atom, uint32_t stride, uint32_t step) {
#if HAS_WARPGROUPS
    warpgroup_multiply(sum, a, describe_atoms(atom, stride, step));
#else
    const uint32_t lane = threadIdx.x & 31, row = lane & 7, chunk = step * 2 + (lane >> 3 & 1);
    const uint32_t address = atom + (lane >> 4) * stride + row * 128 + ((chunk ^ row) << 4);
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
        uint32_t b[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(address + n * 2 * stride) : "memory");
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float(&to)[4] = *(float(*)[4]) & sum[n * 8 + i * 4];
            const Half2 now[4] = {a[0], a[1], a[2], a[3]};
            multiply_16x8x16(to, now, b[2 * i], b[2 * i + 1]);
        }
    }
#endif
}

// The same, as the first product of a sum.
template <int N>
static __device__ __forceinline__ void multiply_first(float (&sum)[N / 2], const Half2 *a, uint32_t atom, uint32_t stride, uint32_t step) {
#if HAS_WARPGROUPS
    warpgroup_multiply_first(sum, a, describe_atoms(atom, stride, step));
#else
#pragma unroll
    for (int i = 0; i < N / 2; i++) sum[i] = 0;
    multiply_step<N>(sum, a, atom, stride, step);
#endif
}

// Barriers in shared memory that copies complete. A waiter names the parity of the phase that it waits for.
static __device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
static __device__ __forceinline__ void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
static __device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
static __device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    } while (!done);
}
static __device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
                 "r"(barrier) : "memory");
}

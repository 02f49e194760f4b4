// Single instructions under names, so that the arithmetic above them can also be compiled for a host and checked there.
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

// Two half floats in a register.
typedef uint32_t Half2;

// A byte permutation. (__byte_perm masks the selector first: one more instruction.)
static __device__ __forceinline__ uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
    uint32_t result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selector));
    return result;
}

static __device__ __forceinline__ Half2 half2_fma(Half2 a, Half2 b, Half2 c) {
    Half2 result;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}

static __device__ __forceinline__ Half2 half2_add(Half2 a, Half2 b) {
    Half2 result;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

static __device__ __forceinline__ Half2 half2_mul(Half2 a, Half2 b) {
    Half2 result;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

// Both halves from one float.
static __device__ __forceinline__ Half2 half2_of(float x) {
    Half2 result;
    asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(result) : "f"(x));
    return result;
}

static __device__ __forceinline__ float half_low(Half2 x) {
    return __half2float(__ushort_as_half((unsigned short)x));
}

static __device__ __forceinline__ float half_high(Half2 x) {
    return __half2float(__ushort_as_half((unsigned short)(x >> 16)));
}

// c += a . b for 16 weight rows (a) and 8 activation rows (b) over 16 channels.
static __device__ __forceinline__ void multiply_16x8x16(float (&c)[4], const Half2 (&a)[4], Half2 b0, Half2 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Weights are read once: past the first-level cache, which keeps activations.
static __device__ __forceinline__ uint4 load_weights_16(const void *at) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

static __device__ __forceinline__ uint2 load_weights_8(const void *at) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at));
    return v;
}

static __device__ __forceinline__ uint32_t load_weights_4(const void *at) {
    uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(at));
    return v;
}

static __device__ __forceinline__ uint32_t shared_address(const void *at) {
    return (uint32_t)__cvta_generic_to_shared(at);
}

static __device__ __forceinline__ uint4 load_shared_16(uint32_t at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}

static __device__ __forceinline__ uint32_t load_shared_4(uint32_t at) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

static __device__ __forceinline__ void copy_async_16(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

static __device__ __forceinline__ void copies_done() {
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

// Asks for a line of 128 bytes in the second-level cache.
static __device__ __forceinline__ void prefetch_line(const void *at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// With programmatic launches: what follows may start; what came before has ended and is visible.
static __device__ __forceinline__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
static __device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The blocks of threads of a cluster share memory; one block alone is a cluster of one.
static __device__ __forceinline__ uint32_t cluster_size() {
    uint32_t size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

static __device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// In two halves, for a block that is to write into others: they have to have begun, and have by the time it waits.
static __device__ __forceinline__ void arrive_in_cluster(uint32_t size) {
    if (size > 1) asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

static __device__ __forceinline__ void wait_for_cluster(uint32_t size) {
    if (size > 1) asm volatile("barrier.cluster.wait;" ::: "memory");
}

static __device__ __forceinline__ void cluster_barrier(uint32_t size) {
    if (size > 1) asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
    else __syncthreads();
}

// A float of shared memory of the cluster's block `rank`.
static __device__ __forceinline__ float load_cluster(uint32_t at, uint32_t rank, uint32_t size) {
    float value;
    if (size > 1) asm volatile("{ .reg .u32 a; mapa.shared::cluster.u32 a, %1, %2; ld.shared::cluster.f32 %0, [a]; }" : "=f"(value) : "r"(at), "r"(rank) : "memory");
    else asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(at) : "memory");
    return value;
}

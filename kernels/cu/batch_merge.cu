// The end of a hyper-connection site for some rows: a block's output, or the sum of its experts', merged into the four
// streams, and what a panel of channels adds to the next site's mixes (few_enter.cu takes them from there).
#include "intrinsics.cuh"

#define STREAMS 4
#define MIXES 24
#define MERGE 20
// Mixes and the sum of squares.
#define PARTIALS (MIXES + 1)
#define PANEL 16
#define WARPS 16
#define EXPERTS_USED 6

struct BatchMerge {
    float *streams;             // [rows][4][width]
    const float *merge;         // [rows][20]
    const __half *next;         // the next site's mixing matrix, [mixes][4 * width]; null: none follows
    float *partials;            // [rows][25][panels of channels]
    const float *output;        // [rows][width]
    const float *routed;        // null, or [slot][width], to be added to `output`
    const uint32_t *slots;      // [rows][6]
    uint32_t width;
    uint32_t mixes;             // rows of `next`
    uint32_t rows;
    uint32_t reserved;
};

// A block of threads a panel of 16 channels, a warp some rows. Lane (stream pair, channel): two streams of one channel.
extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) batch_merge(const __grid_constant__ BatchMerge m) {
    __shared__ float merged[WARPS][STREAMS * PANEL];
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, panel = blockIdx.x;
    const uint32_t channel = panel * PANEL + lane % PANEL, pair = lane / PANEL;
    // Of every mix 64 weights, stream by stream, and 16 bytes so that lanes meet in no bank.
    __shared__ uint4 weights[MIXES][STREAMS * PANEL / 8 + 1];
    if (m.next && threadIdx.x < m.mixes * STREAMS * PANEL / 8) {
        const uint32_t mix = threadIdx.x / (STREAMS * PANEL / 8), i = threadIdx.x % (STREAMS * PANEL / 8);
        weights[mix][i] = load_weights_16(m.next + ((size_t)mix * STREAMS + i / 2) * m.width + panel * PANEL + i % 2 * 8);
    }
    __syncthreads();
    wait_for_previous();
    let_next_start();
    for (uint32_t row = warp; row < m.rows; row += WARPS) {
        float output = m.output[(size_t)row * m.width + channel];
        if (m.routed) {
            float parts[EXPERTS_USED];
#pragma unroll
            for (int rank = 0; rank < EXPERTS_USED; rank++) parts[rank] = m.routed[(size_t)m.slots[row * EXPERTS_USED + rank] * m.width + channel];
#pragma unroll
            for (int rank = 0; rank < EXPERTS_USED; rank++) output += parts[rank];
        }
        float before[STREAMS];
#pragma unroll
        for (uint32_t j = 0; j < STREAMS; j++) before[j] = m.streams[((size_t)row * STREAMS + j) * m.width + channel];
        const float *merge = m.merge + (size_t)row * MERGE;
        float sums[2];
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t k = pair * 2 + i;
            float sum = __fmul_rn(merge[k], output);
#pragma unroll
            for (uint32_t j = 0; j < STREAMS; j++) sum = __fadd_rn(sum, __fmul_rn(merge[STREAMS + j * STREAMS + k], before[j]));
            sums[i] = sum;
        }
        // Both lanes of a channel have read its streams.
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            m.streams[((size_t)row * STREAMS + pair * 2 + i) * m.width + channel] = sums[i];
            merged[warp][(pair * 2 + i) * PANEL + lane % PANEL] = sums[i];
        }
        __syncwarp();
        if (m.next) {
            const float4 *x = (const float4 *)merged[warp];
            float sum = 0;
            if (lane < m.mixes) {
#pragma unroll
                for (uint32_t i = 0; i < STREAMS * PANEL / 8; i++) {
                    const float4 a = x[2 * i], b = x[2 * i + 1];
                    const uint4 w = weights[lane][i];
                    sum = fmaf(half_high(w.x), a.y, fmaf(half_low(w.x), a.x, sum));
                    sum = fmaf(half_high(w.y), a.w, fmaf(half_low(w.y), a.z, sum));
                    sum = fmaf(half_high(w.z), b.y, fmaf(half_low(w.z), b.x, sum));
                    sum = fmaf(half_high(w.w), b.w, fmaf(half_low(w.w), b.z, sum));
                }
            } else if (lane == MIXES) {
#pragma unroll
                for (uint32_t i = 0; i < STREAMS * PANEL; i++) sum = fmaf(merged[warp][i], merged[warp][i], sum);
            }
            if (lane < m.mixes || lane == MIXES) m.partials[((size_t)row * PARTIALS + lane) * gridDim.x + panel] = sum;
        }
        __syncwarp();
    }
}

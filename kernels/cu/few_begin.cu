// The mixes of a hyper-connection site whose streams no merging has left any for: the first of a step. What merging does for
// the next site (few_merge.cuh), by a block of threads for every panel of channels and row.
#include "few_merge.cuh"

struct Begin {
    const float *streams;       // [rows][4][width]
    const __half *mixing;       // [mixes][4 * width]
    float *partials;            // [rows][25][panels of channels]
    uint32_t width, mixes;
};

extern "C" __global__ void __launch_bounds__(FEW_THREADS) few_begin(const __grid_constant__ Begin b) {
    const uint32_t panel = blockIdx.x, row = blockIdx.y, mix = threadIdx.x / 8, eighth = threadIdx.x % 8;
    const uint32_t channel = panel * PANEL + eighth % 2 * 8, stream = eighth / 2;
    uint4 weights = {0, 0, 0, 0};
    if (mix < b.mixes) weights = load_weights_16(b.mixing + ((size_t)mix * FEW_STREAMS + stream) * b.width + channel);
    wait_for_previous();
    let_next_start();
    float x[8];
    load_eight(x, b.streams + ((size_t)row * FEW_STREAMS + stream) * b.width, channel, b.width);
    const float sum = mixed_eight(mix, b.mixes, weights, x);
    if (eighth == 0 && (mix < b.mixes || mix == FEW_MIXES)) b.partials[((size_t)row * FEW_PARTIALS + mix) * gridDim.x + panel] = sum;
}

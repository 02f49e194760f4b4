// Pooling tokens into compressed rows: see compress.cuh. Grid: windows by segments; a thread a channel.
#include "compress.cuh"

extern "C" __global__ void compress_packed(Step step, const __grid_constant__ Compressor compressor) {
    compress<Packed>(step, compressor, blockIdx.x, blockIdx.y);
}
extern "C" __global__ void compress_plain(Step step, const __grid_constant__ Compressor compressor) {
    compress<Plain>(step, compressor, blockIdx.x, blockIdx.y);
}

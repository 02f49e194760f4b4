// Hyper-connections: from four streams to a block's input and back. Formulas: reference/hyper_connection.rs.
#include "balance.cuh"
#include "intrinsics.cuh"
#include "step.cuh"

static const uint32_t MERGE_WIDTH = STREAMS + STREAMS * STREAMS;
static const uint32_t MIX_WIDTH = STREAMS + MERGE_WIDTH;

struct Constants {
    float norm_epsilon, mix_epsilon;
    uint32_t iterations;
};

// Sum of squares over the whole row of streams, for every thread.
static __device__ double stream_squares(const float *streams, uint32_t width, double *shared) {
    double squares = 0.0;
    const float4 *values = (const float4 *)streams;
    for (uint32_t i = threadIdx.x; i < width * STREAMS / 4; i += blockDim.x) {
        const float4 v = values[i];
        squares += (double)v.x * v.x + (double)v.y * v.y + (double)v.z * v.z + (double)v.w * v.w;
    }
    return sum_over_block(squares, shared);
}

// The streams weighed by `gates`, normalised and multiplied by `norm`. The block's threads all take part.
static __device__ void gather(const float *streams, const float *gates, const float *norm, float *out, uint32_t width, float epsilon,
                              double *shared) {
    double squares = 0.0;
    for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
        float sum = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < STREAMS; i++) sum = __fadd_rn(sum, __fmul_rn(gates[i], streams[(size_t)i * width + c]));
        out[c] = sum;
        squares += (double)sum * (double)sum;
    }
    squares = sum_over_block(squares, shared);
    const double scale = 1.0 / sqrt(squares / (double)width + (double)epsilon);
    for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) out[c] = (float)((double)out[c] * scale * (double)norm[c]);
}

// What a site's mixes, over the root mean square of the row of streams, say about a row: gates of the streams and values to
// merge with. The first threads take part, and then the last warp, which balances the stream matrix.
static __device__ __forceinline__ void begin_site(const float *mixes, double root, const float *base, const float *scale, float *gates, float *merge,
                                                  const Constants &constants) {
    if (threadIdx.x < STREAMS) {
        const uint32_t i = threadIdx.x;
        gates[i] = (float)(sigmoid_double(scaled(root * mixes[i], scale[0], base[i])) + (double)constants.mix_epsilon);
        merge[i] = (float)(2.0 * sigmoid_double(scaled(root * mixes[STREAMS + i], scale[1], base[STREAMS + i])));
    }
}

static __device__ __forceinline__ void balance_site(const float *mixes, double root, const float *base, const float *scale, float *merge, const Constants &constants) {
    const uint32_t element = threadIdx.x % (STREAMS * STREAMS), i = 2 * STREAMS + element;
    const double own = balanced(scaled(root * mixes[i], scale[2], base[i]), (double)constants.mix_epsilon, constants.iterations);
    merge[STREAMS + element] = (float)own;
}

static __device__ __forceinline__ double root_of(double squares, uint32_t width, const Constants &constants) {
    return 1.0 / sqrt(squares / (double)(width * STREAMS) + (double)constants.norm_epsilon);
}

// A block per row. `mixes` is the mixing matrix applied to the streams as they are: dividing by their root mean square
// is left to here. One warp balances the stream matrix while the others weigh the streams.
extern "C" __global__ void mix(const float *streams, const float *mixes, const float *base, const float *scale, const float *norm, float *input, float *merge,
                               uint32_t width, Constants constants) {
    __shared__ double shared[32];
    __shared__ float gates[STREAMS];
    streams += (size_t)blockIdx.x * width * STREAMS;
    mixes += (size_t)blockIdx.x * MIX_WIDTH;
    merge += (size_t)blockIdx.x * MERGE_WIDTH;
    const double root = root_of(stream_squares(streams, width, shared), width, constants);
    begin_site(mixes, root, base, scale, gates, merge, constants);
    __syncthreads();
    if (threadIdx.x >= blockDim.x - 32) balance_site(mixes, root, base, scale, merge, constants);
    gather(streams, gates, norm, input + (size_t)blockIdx.x * width, width, constants.norm_epsilon, shared);
}

// The same for many rows whose sums of squares are known, in two kernels: values of the site, a warp per row, ...
extern "C" __global__ void __launch_bounds__(32) mix_gates(const float *mixes, const float *squares, const float *base, const float *scale, float *gates, float *merge,
                                                           uint32_t width, Constants constants) {
    wait_for_previous();
    let_next_start();
    const uint32_t row = blockIdx.x;
    mixes += (size_t)row * MIX_WIDTH;
    merge += (size_t)row * MERGE_WIDTH;
    const double root = root_of((double)squares[row], width, constants);
    begin_site(mixes, root, base, scale, gates + row * STREAMS, merge, constants);
    balance_site(mixes, root, base, scale, merge, constants);
}

// ... and the streams weighed, a block per row: `width` is a multiple of four and at most WEIGH_EACH times four times as many
// as there are threads.
static const uint32_t WEIGH_EACH = 8, WEIGH_THREADS = 256;

extern "C" __global__ void __launch_bounds__(WEIGH_THREADS) mix_weigh(const float *streams, const float *gates, const float *norm, float *input, uint32_t width, float epsilon) {
    __shared__ double shared[32];
    wait_for_previous();
    let_next_start();
    const float4 gate = ((const float4 *)gates)[blockIdx.x], *from = (const float4 *)(streams + (size_t)blockIdx.x * width * STREAMS);
    const uint32_t quads = width / 4;
    float4 own[WEIGH_EACH];
    double squares = 0.0;
#pragma unroll
    for (uint32_t each = 0; each < WEIGH_EACH; each++) {
        const uint32_t i = each * WEIGH_THREADS + threadIdx.x;
        if (i >= quads) break;
        const float4 a = from[i], b = from[quads + i], c = from[2 * quads + i], d = from[3 * quads + i];
        const auto weighed = [&](float a, float b, float c, float d) {
            float sum = __fmul_rn(gate.x, a);
            sum = __fadd_rn(sum, __fmul_rn(gate.y, b));
            sum = __fadd_rn(sum, __fmul_rn(gate.z, c));
            sum = __fadd_rn(sum, __fmul_rn(gate.w, d));
            squares += (double)sum * (double)sum;
            return sum;
        };
        own[each] = make_float4(weighed(a.x, b.x, c.x, d.x), weighed(a.y, b.y, c.y, d.y), weighed(a.z, b.z, c.z, d.z), weighed(a.w, b.w, c.w, d.w));
    }
    squares = sum_over_block(squares, shared);
    const double scale = 1.0 / sqrt(squares / (double)width + (double)epsilon);
    float4 *to = (float4 *)(input + (size_t)blockIdx.x * width);
#pragma unroll
    for (uint32_t each = 0; each < WEIGH_EACH; each++) {
        const uint32_t i = each * WEIGH_THREADS + threadIdx.x;
        if (i >= quads) break;
        const float4 x = own[each], n = ((const float4 *)norm)[i];
        to[i] = make_float4((float)((double)x.x * scale * (double)n.x), (float)((double)x.y * scale * (double)n.y), (float)((double)x.z * scale * (double)n.z),
                            (float)((double)x.w * scale * (double)n.w));
    }
}

// Grid: channels by rows. Every thread takes one channel of all four streams.
extern "C" __global__ void merge(float *streams, const float *merge, const float *output, uint32_t width) {
    const uint32_t channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= width) return;
    streams += (size_t)blockIdx.y * width * STREAMS;
    merge += (size_t)blockIdx.y * MERGE_WIDTH;
    const float value = output[(size_t)blockIdx.y * width + channel];
    float old[STREAMS];
#pragma unroll
    for (uint32_t j = 0; j < STREAMS; j++) old[j] = streams[(size_t)j * width + channel];
#pragma unroll
    for (uint32_t k = 0; k < STREAMS; k++) {
        float sum = __fmul_rn(merge[k], value);
#pragma unroll
        for (uint32_t j = 0; j < STREAMS; j++) sum = __fadd_rn(sum, __fmul_rn(merge[STREAMS + j * STREAMS + k], old[j]));
        streams[(size_t)k * width + channel] = sum;
    }
}

// Copies the wanted rows of streams side by side: a block per wanted row.
extern "C" __global__ void pick(const float *streams, Step step, float *picked, uint32_t row_width) {
    const float4 *from = (const float4 *)(streams + (size_t)step.wanted[blockIdx.x] * row_width);
    float4 *to = (float4 *)(picked + (size_t)blockIdx.x * row_width);
    for (uint32_t i = threadIdx.x; i < row_width / 4; i += blockDim.x) to[i] = from[i];
}

// The head's site: a block per row, like `mix` without merging.
extern "C" __global__ void collapse(const float *streams, const float *mixes, const float *base, const float *scale, const float *norm,
                                    float *out, uint32_t width, Constants constants) {
    __shared__ double shared[32];
    __shared__ float gates[STREAMS];
    streams += (size_t)blockIdx.x * width * STREAMS;
    const double squares = stream_squares(streams, width, shared);
    const double root = 1.0 / sqrt(squares / (double)(width * STREAMS) + (double)constants.norm_epsilon);
    if (threadIdx.x < STREAMS) {
        const float mixed = mixes[(size_t)blockIdx.x * STREAMS + threadIdx.x];
        gates[threadIdx.x] = (float)(sigmoid_double(scaled(root * mixed, scale[0], base[threadIdx.x])) + (double)constants.mix_epsilon);
    }
    __syncthreads();
    gather(streams, gates, norm, out + (size_t)blockIdx.x * width, width, constants.norm_epsilon, shared);
}

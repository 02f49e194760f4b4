// Latent attention of many queries over packed rows, on Hopper: formula and rows as in attend.cu. Heads are normalised and
// rotated on the way in, rotated back on the way out, and what comes out is the operand of the product that follows
// (gemm_operand.cuh), so that between two products nothing but halves goes through memory.
//
// A block takes one query and 64 heads of 512 channels. One warpgroup brings rows into shared memory as halves, 64 at a time,
// each once for all heads, and once for keys and values. Two warpgroups multiply: each scores 32 of the rows, both then know
// every row's weight, and each sums half of the channels. Queries and weights are single halves; stored rows are halves exactly.
#include "attend.cuh"
#include "gemm_operand.cuh"
#include "row_scale.cuh"

// The step's own rows, which are rounded already, as halves: a thread a pair.
extern "C" __global__ void __launch_bounds__(256) attend_many_rows(const float2 *rows, __half2 *halves, uint32_t pairs) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pairs) halves[i] = __float22half2_rn(rows[i]);
}

#if HAS_WARPGROUPS

static const uint32_t HEADS = 64;
static const uint32_t KEYS = 64;
static const uint32_t WIDTH = 512;
static const uint32_t GROUP_BYTES = WIDTH / 64 * ATOM_BYTES;    // eight heads or rows
static const uint32_t TILE_BYTES = KEYS / 8 * GROUP_BYTES;
static const uint32_t WEIGHTS_AT = 3 * TILE_BYTES, MAXIMA_AT = WEIGHTS_AT + HEADS / 8 * ATOM_BYTES;
static const uint32_t TURNS_AT = MAXIMA_AT + 2 * HEADS * sizeof(float);
static const uint32_t CONSUMERS = 256;
static const float NOTHING = -INFINITY;

// What heads go through besides attention, and where results go: `parts` equal parts of a row's heads, rows of every part
// one after the other.
struct HeadPath {
    Rope rope;
    uint8_t *halves;
    float *scales;
    uint32_t rows, part_heads;
    float epsilon;
    uint32_t groups_of_eight;
};

// 64-channel atoms of eight rows, `stride` bytes from one eight to the next.
static __device__ __forceinline__ uint64_t by_rows(uint32_t address, uint32_t stride) {
    return (uint64_t)(address >> 4) | 1ull << 16 | (uint64_t)(stride >> 4) << 32 | 1ull << 62;
}
// The same memory read across: channels are the result's columns, `stride` bytes from one eight of summands to the next.
static __device__ __forceinline__ uint64_t by_channels(uint32_t address, uint32_t stride) {
    return (uint64_t)(address >> 4) | (uint64_t)(ATOM_BYTES >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | 1ull << 62;
}

static __device__ __forceinline__ void multiply_scores(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" R16_0 "}, %16, %17, 1, 1, 1, 0, 0;" : F16_(d, 0) : "l"(a), "l"(b));
}
#define R16_4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define R16_5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define R16_6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define R16_7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
static __device__ __forceinline__ void multiply_values(float (&d)[128], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" R16_0 "," R16_1 "," R16_2 "," R16_3 "," R16_4 "," R16_5 "," R16_6 "," R16_7
                 "}, %128, %129, 1, 1, 1, 0, 1;"
                 : F16_(d, 0), F16_(d, 16), F16_(d, 32), F16_(d, 48), F16_(d, 64), F16_(d, 80), F16_(d, 96), F16_(d, 112) : "l"(a), "l"(b));
}

static __device__ __forceinline__ void written_for_units() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
static __device__ __forceinline__ void consumers_meet(uint32_t which) { asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(CONSUMERS) : "memory"); }
static __device__ __forceinline__ float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Brings one tile of rows into shared memory: warp w of four has rows 4 i + w. Lane i finds row i's place for all lanes. A lane
// then brings chunk lane % 8 of atoms lane / 8 and lane / 8 + 4 of every row.
static __device__ __forceinline__ void bring_rows(const Keys &keys, const __half *own, uint32_t first, uint32_t tile) {
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, chunk = lane & 7;
    const uint32_t NO_ROW = 0xffffffffu, HALVES = 0xfffffffeu;
    const uint8_t *place = nullptr;
    uint32_t exponents = NO_ROW, rotary = 0;
    const uint32_t key = first + (lane & 15) * 4 + warp;
    if (key < keys.count) {
        const uint32_t position = keys.first_raw + key;
        if (key < keys.raw && position >= keys.segment.start) {
            place = (const uint8_t *)(own + (size_t)(keys.segment.first_row + position - keys.segment.start) * WIDTH);
            exponents = HALVES;
        } else {
            RowArray array;
            uint32_t slot;
            const uint8_t *memory = keys.stored(key, array, slot);
            place = Packed::codes(memory, array, slot);
            rotary = (uint32_t)(Packed::rotary(memory, array, slot) - place);
            exponents = (uint32_t)(Packed::exponents(memory, array, slot) - place);
        }
    }
#pragma unroll
    for (uint32_t batch = 0; batch < 2; batch++) {
        uint2 codes[8][2];
        uint32_t scale[8];
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t index = batch * 8 + i, row = index * 4 + warp;
            const uint8_t *at = (const uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)place, index);
            const uint32_t how = __shfl_sync(0xffffffffu, exponents, index), turning = __shfl_sync(0xffffffffu, rotary, index);
            const uint32_t to = tile + row / 8 * GROUP_BYTES + lane / 8 * ATOM_BYTES + row % 8 * 128 + ((chunk ^ row % 8) << 4);
            scale[i] = NO_ROW;
            if (how == NO_ROW) {
                store_halves(to, 0, 0, 0, 0);
                store_halves(to + 4 * ATOM_BYTES, 0, 0, 0, 0);
            } else if (how == HALVES) {
                copy_async_16(to, at + lane * 16);
                copy_async_16(to + 4 * ATOM_BYTES, at + 512 + lane * 16);
            } else {
                codes[i][0] = *(const uint2 *)(at + lane * 8);
                scale[i] = at[how + lane / 8] | at[how + min(lane / 8 + 4, 6u)] << 8;
                if (lane < 24) codes[i][1] = *(const uint2 *)(at + 256 + lane * 8);
                else copy_async_16(to + 4 * ATOM_BYTES, at + turning + chunk * 16);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t row = (batch * 8 + i) * 4 + warp;
            const uint32_t to = tile + row / 8 * GROUP_BYTES + lane / 8 * ATOM_BYTES + row % 8 * 128 + ((chunk ^ row % 8) << 4);
            if (scale[i] == NO_ROW) continue;
            store_codes(to, codes[i][0], scale_of((uint8_t)scale[i]));
            if (lane < 24) store_codes(to + 4 * ATOM_BYTES, codes[i][1], scale_of((uint8_t)(scale[i] >> 8)));
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    written_for_units();
}

// The query's heads, normalised, rotated and as halves: a warp a head at a time, a lane channels 8 lane to 8 lane + 7 and the
// same 256 further.
static __device__ __forceinline__ void bring_query(const Attention &a, uint32_t row, uint32_t head, float epsilon, const Turn *turns, uint32_t to) {
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll 2
    for (uint32_t local = warp; local < HEADS; local += CONSUMERS / 32) {
        float x[2][8] = {};
        if (head + local < a.heads) {
            const float4 *from = (const float4 *)(a.queries + ((size_t)row * a.heads + head + local) * WIDTH) + 2 * lane;
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int i = 0; i < 2; i++) *(float4 *)&x[half][4 * i] = from[half * 64 + i];
        }
        float squares = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) squares = fmaf(x[0][i], x[0][i], fmaf(x[1][i], x[1][i], squares));
        const float scale = __frsqrt_rn(sum_over_warp(squares) / (float)WIDTH + epsilon);
#pragma unroll
        for (int i = 0; i < 8; i++) x[0][i] *= scale, x[1][i] *= scale;
        if (lane >= 24)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 pair = turned({x[1][2 * i], x[1][2 * i + 1]}, turns[(lane - 24) * 4 + i]);
                x[1][2 * i] = pair.x, x[1][2 * i + 1] = pair.y;
            }
#pragma unroll
        for (int half = 0; half < 2; half++)
            store_halves(to + local / 8 * GROUP_BYTES + (half * 4 + lane / 8) * ATOM_BYTES + local % 8 * 128 + (((lane & 7) ^ local % 8) << 4),
                         bits_of(__floats2half2_rn(x[half][0], x[half][1])), bits_of(__floats2half2_rn(x[half][2], x[half][3])),
                         bits_of(__floats2half2_rn(x[half][4], x[half][5])), bits_of(__floats2half2_rn(x[half][6], x[half][7])));
    }
    written_for_units();
}

static __device__ __forceinline__ float over_four(float x, bool largest) {
    const float y = __shfl_xor_sync(0xffffffffu, x, 1), both = largest ? fmaxf(x, y) : x + y;
    const float z = __shfl_xor_sync(0xffffffffu, both, 2);
    return largest ? fmaxf(both, z) : both + z;
}

static __device__ __forceinline__ void sum_rows(const Attention &a, const HeadPath &path, uint32_t position, uint32_t count, uint32_t row,
                                                  uint32_t head, uint8_t *shared, uint32_t base, uint32_t full, uint32_t empty) {
    const uint32_t lane = threadIdx.x & 31, half = threadIdx.x >> 7, warp = threadIdx.x >> 5 & 3, g = lane >> 2, t = lane & 3;
    float *maxima = (float *)(shared + MAXIMA_AT);
    Turn *turns = (Turn *)(shared + TURNS_AT);
    if (threadIdx.x < PAIRS) turns[threadIdx.x] = turn_at(path.rope, threadIdx.x, position);
    consumers_meet(2);
    bring_query(a, row, head, path.epsilon, turns, base);
    consumers_meet(1);
    const float scale = 1.44269504f * __frsqrt_rn((float)WIDTH);
    float out[128], top[2] = {NOTHING, NOTHING}, all[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 128; i++) out[i] = 0;
    const uint32_t weights = base + WEIGHTS_AT, tiles = (count + KEYS - 1) / KEYS;
    uint32_t tile = 0;
#pragma unroll 1
    do {
        const uint32_t rows = base + TILE_BYTES + (tile & 1) * TILE_BYTES, parity = tile >> 1 & 1;
        float scores[16];
#pragma unroll
        for (int i = 0; i < 16; i++) scores[i] = 0;
        barrier_wait(full + (tile & 1) * 8, parity);
        hold(scores);
        products_begin();
#pragma unroll
        for (int step = 0; step < WIDTH / 16; step++) {
            const uint32_t at = step / 4 * ATOM_BYTES + step % 4 * 32;
            multiply_scores(scores, by_rows(base + at, GROUP_BYTES), by_rows(rows + half * 4 * GROUP_BYTES + at, GROUP_BYTES));
        }
        products_end();
        hold(scores);
        products_wait<0>();
        hold(scores);
        float largest[2] = {NOTHING, NOTHING};
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const uint32_t key = tile * KEYS + half * 32 + i / 4 * 8 + 2 * t + i % 2;
            scores[i] = key < count ? scores[i] * scale : NOTHING;
            largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], scores[i]);
        }
        largest[0] = over_four(largest[0], true), largest[1] = over_four(largest[1], true);
        if (t == 0) maxima[half * HEADS + warp * 16 + g] = largest[0], maxima[half * HEADS + warp * 16 + g + 8] = largest[1];
        // Also: the other warpgroup has read the last tile's weights.
        consumers_meet(1);
        float shrink[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float now = fmaxf(top[i], fmaxf(largest[i], maxima[(half ^ 1) * HEADS + warp * 16 + g + 8 * i]));
            shrink[i] = power(top[i] - now);
            top[i] = now;
            all[i] *= shrink[i];
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const __half2 both = __floats2half2_rn(power(scores[4 * j + 2 * i] - top[i]), power(scores[4 * j + 2 * i + 1] - top[i]));
                // Weights are summed as they are multiplied.
                const float2 rounded = __half22float2(both);
                all[i] += rounded.x + rounded.y;
                const uint32_t to = weights + (warp * 2 + i) * ATOM_BYTES + g * 128 + (((half * 4 + j) ^ g) << 4) + t * 4;
                asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(bits_of(both)) : "memory");
            }
        written_for_units();
        consumers_meet(2);
        if (__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
            for (int i = 0; i < 128; i++) out[i] *= shrink[i / 2 % 2];
        }
        hold(out);
        products_begin();
#pragma unroll
        for (int step = 0; step < KEYS / 16; step++)
            multiply_values(out, by_rows(weights + step * 32, ATOM_BYTES), by_channels(rows + step * 2 * GROUP_BYTES + half * 4 * ATOM_BYTES, GROUP_BYTES));
        products_end();
        hold(out);
        products_wait<0>();
        hold(out);
        if (lane == 0) barrier_arrive(empty + (tile & 1) * 8);
    } while (++tile < tiles);
    // The sink takes its share of the weights and has no value. Both warpgroups have weights.
    consumers_meet(1);
    all[0] = over_four(all[0], false), all[1] = over_four(all[1], false);
    if (t == 0) maxima[half * HEADS + warp * 16 + g] = all[0], maxima[half * HEADS + warp * 16 + g + 8] = all[1];
    consumers_meet(2);
    float sums[2], largest[2];
#pragma unroll
    for (int i = 0; i < 2; i++) sums[i] = all[i] + maxima[(half ^ 1) * HEADS + warp * 16 + g + 8 * i];
    consumers_meet(1);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t own = head + warp * 16 + g + 8 * i;
        const float sink = own < a.heads ? a.sinks[own] * 1.44269504f : NOTHING;
        const float highest = fmaxf(top[i], sink), shrunk = power(top[i] - highest), factor = shrunk / (sums[i] * shrunk + power(sink - highest));
        largest[i] = 0;
#pragma unroll
        for (int j = 0; j < 32; j++) {
            float2 pair = {out[4 * j + 2 * i] * factor, out[4 * j + 2 * i + 1] * factor};
            // The last 64 channels turn back.
            if (j >= 24 && half == 1) {
                const Turn turn = turns[(j - 24) * 4 + t];
                pair = turned(pair, {turn.cosine, -turn.sine});
            }
            out[4 * j + 2 * i] = pair.x, out[4 * j + 2 * i + 1] = pair.y;
            largest[i] = fmaxf(largest[i], fmaxf(fabsf(pair.x), fabsf(pair.y)));
        }
        largest[i] = over_four(largest[i], true);
    }
    if (t == 0) maxima[half * HEADS + warp * 16 + g] = largest[0], maxima[half * HEADS + warp * 16 + g + 8] = largest[1];
    consumers_meet(2);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t local = warp * 16 + g + 8 * i, own = head + local;
        if (own >= a.heads) continue;
        // A row of the operand has the heads of a part, and a scale for all of them.
        const uint32_t part = own / path.part_heads, within = own % path.part_heads, target = part * round_to_group(path.rows) + row;
        float most = 0;
        for (uint32_t other = local - within; other < local - within + path.part_heads; other++) most = fmaxf(most, fmaxf(maxima[other], maxima[HEADS + other]));
        const auto [scale, inverse] = row_scale(most);
        if (within == 0 && half == 0 && t == 0) path.scales[target] = inverse;
        const uint32_t block = within * (WIDTH / BLOCK_CHANNELS) + half;
        // Four neighbouring pairs of a lane are one chunk (Order NEAR).
#pragma unroll
        for (int chunk = 0; chunk < 8; chunk++) {
            uint32_t halves[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int at = 4 * (4 * chunk + j) + 2 * i;
                halves[j] = bits_of(__floats2half2_rn(out[at] * scale, out[at + 1] * scale));
            }
            *(uint4 *)(path.halves + chunk_place(target, path.groups_of_eight, block, chunk * 4 + t)) = make_uint4(halves[0], halves[1], halves[2], halves[3]);
        }
    }
}

// Grid: rows by heads / 64; a part's heads are within one of these.
extern "C" __global__ void __launch_bounds__(CONSUMERS + 128, 1)
attend_many(Step step, const __grid_constant__ Attention a, const __half *own, const __grid_constant__ HeadPath path) {
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ uint64_t full[2], empty[2];
    const uint32_t row = blockIdx.x, head = blockIdx.y * HEADS;
    const uint32_t base = (shared_address(memory) + ATOM_BYTES - 1) & ~(ATOM_BYTES - 1u);
    uint8_t *shared = memory + (base - shared_address(memory));
    if (threadIdx.x < 2) {
        barrier_init(shared_address(full + threadIdx.x), 128);
        barrier_init(shared_address(empty + threadIdx.x), CONSUMERS / 32);
        barriers_ready();
    }
    __syncthreads();
    Keys keys(a, step, row);
    if (threadIdx.x >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 104;");
        for (uint32_t tile = 0; tile * KEYS < keys.count; tile++) {
            barrier_wait(shared_address(empty) + (tile & 1) * 8, (tile >> 1 & 1) ^ 1);
            bring_rows(keys, own, tile * KEYS, base + TILE_BYTES + (tile & 1) * TILE_BYTES);
            barrier_arrive(shared_address(full) + (tile & 1) * 8);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 200;");
        sum_rows(a, path, step.positions[row], keys.count, row, head, shared, base, shared_address(full), shared_address(empty));
    }
}
#endif

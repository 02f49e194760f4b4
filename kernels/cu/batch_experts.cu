// The experts of some rows, grouped by expert: what gates and linear parts make (batch_up), and what the experts make of
// that (batch_down). A group is an expert and up to two of the rows that chose it; its weights are read once. Routed
// experts are IQ2_XXS (gate, up) and Q2_K (down).
//
// One block of threads a multiprocessor takes an equal share of all panels of 16 outputs of all groups, in order, and keeps
// the rows of its groups in shared memory. Every warp has a ring of blocks of weights there, which the copy engine fills
// ahead; it needs no barrier but one of two warps: in batch_up two have half of a panel's channels each.
#include "batch.cuh"
#include "common.cuh"
#include "group.cuh"
#include "warpgroup.cuh"

#define GROUP_ROWS_MAX 2
#ifndef UP_WARPS
#define UP_WARPS 20
#endif
#ifndef DOWN_WARPS
#define DOWN_WARPS 16
#endif
#ifndef UP_STAGES
#define UP_STAGES 2
#endif
#ifndef DOWN_STAGES
#define DOWN_STAGES 4
#endif
#define PAIRS (UP_WARPS / 2)
#define ZERO_BYTES FIXED_BLOCK

// Tables of IQ2_XXS: an entry's 256 bytes hold a copy of its grid's nibbles for every lane, then of its signs'.
#define ENTRY_BYTES 256
#define TABLE_BYTES (256 * ENTRY_BYTES)

struct BatchExperts {
    FixedRows rows;                 // batch_up: of the step, GRID; batch_down: of every slot, PLANES
    const uint8_t *first, *second;  // stacks of matrices: gate and linear part; or one
    const Group *groups;            // the first one says how many there are
    const uint32_t *sources;        // row of every slot; null: the slot itself
    const float *weights;           // batch_up: of every slot
    float *out;                     // [slot][outputs]
    uint32_t columns, outputs;
    float clamp;
    uint32_t rows_at_once;          // that shared memory has room for, whole groups
};

// What a panel costs: so much for its weights, and 1 for each row. Measured.
#define UP_WEIGHTS 4
#define DOWN_WEIGHTS 2

// Panels of groups that a block of threads takes: all of them are shared out by what they cost.
struct Share {
    uint32_t begin, end, panels;

    // Two warps look for a limit each. Every thread takes part; ends with a barrier.
    __device__ __forceinline__ Share(const BatchExperts &e, uint32_t weights) {
        __shared__ uint32_t limits[2];
        const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
        panels = e.outputs / PANEL;
        if (warp < 2) {
            const uint32_t count = e.groups[0].count;
            const Group last = e.groups[count - 1];
            const uint64_t all = (uint64_t)(weights * count + last.first + last.rows) * panels, limit = (blockIdx.x + warp) * all / gridDim.x;
            uint32_t before = 0;
#pragma unroll 4
            for (uint32_t from = 0; from < count; from += 32) {
                const uint32_t group = from + lane;
                const bool is_before = group < count && (uint64_t)(weights * group + e.groups[min(group, count - 1)].first) * panels <= limit;
                before += __popc(__ballot_sync(0xffffffffu, is_before));
            }
            const Group group = e.groups[before - 1];
            const uint32_t panel = (uint32_t)(limit - (uint64_t)(weights * (before - 1) + group.first) * panels) / (weights + group.rows);
            if (lane == 0) limits[warp] = (before - 1) * panels + panel;
        }
        __syncthreads();
        begin = limits[0], end = limits[1];
    }
};

// Where rows lie in shared memory: from slot `first_slot` on.
struct StagedRows {
    uint32_t codes, scales, sums, zeros, first_slot, blocks;
};

// The first group after `first` whose rows find no room in shared memory with those before it; `last` at most.
static __device__ __forceinline__ uint32_t groups_that_fit(const BatchExperts &e, uint32_t first, uint32_t last) {
    const uint32_t first_slot = e.groups[first].first;
    uint32_t group = first + 1;
    while (group <= last && e.groups[group].first + e.groups[group].rows - first_slot <= e.rows_at_once) group++;
    return group;
}

// Brings the rows of the groups `first` to `last` to shared memory. Every thread takes part; `barrier` counts one phase a call.
template <bool SUMS>
static __device__ __forceinline__ void stage_rows(const BatchExperts &e, StagedRows &staged, uint32_t first, uint32_t last, uint32_t barrier, uint32_t parity) {
    const Group last_group = e.groups[last];
    staged.first_slot = e.groups[first].first;
    const uint32_t count = last_group.first + last_group.rows - staged.first_slot, bytes = staged.blocks * FIXED_BLOCK;
    if (threadIdx.x == 0) barrier_expect(barrier, count * bytes);
    __syncthreads();
    if (threadIdx.x < count) {
        const uint32_t slot = staged.first_slot + threadIdx.x, row = e.sources ? e.sources[slot] : slot;
        copy_bulk(staged.codes + threadIdx.x * bytes, e.rows.codes + (size_t)row * bytes, bytes, barrier);
    }
    for (uint32_t i = threadIdx.x; i < count * staged.blocks; i += blockDim.x) {
        const uint32_t slot = staged.first_slot + i / staged.blocks, row = e.sources ? e.sources[slot] : slot;
        store_shared_4(staged.scales + 4 * i, __float_as_uint(e.rows.scales[(size_t)row * staged.blocks + i % staged.blocks]));
    }
    if (SUMS)
        for (uint32_t i = threadIdx.x; i < count * staged.blocks * 4; i += blockDim.x)
            store_shared_16(staged.sums + 16 * i, *(const uint4 *)(e.rows.sums + (size_t)staged.first_slot * staged.blocks * 16 + 4 * i));
    barrier_wait(barrier, parity);
    __syncthreads();
}

// A lane's place in a row's block: lanes whose column has another t read zeros.
static __device__ __forceinline__ uint32_t line_place() {
    const uint32_t lane = threadIdx.x & 31;
    return (lane & 3) * 32 + ((lane >> 2) & 1) * 16;
}

static __device__ __forceinline__ void fill_tables(uint8_t *tables) {
    const uint32_t at = shared_address(tables), eighth = threadIdx.x & 7;
    for (uint32_t i = threadIdx.x / 8; i < 512; i += blockDim.x / 8) {
        const uint32_t entry = iq2_table_entry(i < 256 ? i : 256 + (i & 127));
        store_shared_16(at + (i & 255) * ENTRY_BYTES + (i >> 8) * 128 + eighth * 16, make_uint4(entry, entry, entry, entry));
    }
}

// A nibble for each of eight values (few.cuh). The fields of seven bits come to whole bytes, a stray bit above them.
static __device__ __forceinline__ uint32_t nibbles_at(const uint8_t *tables, uint32_t own, uint32_t indices, uint32_t signs, int part) {
    const uint32_t entry = permute(indices, own, 0x5504 | part << 4), sign = permute(signs << part, own, 0x5504 | part << 4);
    return *(const uint32_t *)(tables + entry) + *(const uint32_t *)(tables + 128 + sign);
}

// Adds to `sum` what a block of weights makes of R rows: of rows g and g + 8 of the panel.
template <int R>
static __device__ __forceinline__ void multiply_grid(float (&sum)[R][2], uint32_t tile, const uint32_t (&lines)[R], const float (&scales)[R], const uint8_t *tables) {
    const uint32_t lane = threadIdx.x & 31, own = lane * 4;
    const uint4 w[2] = {load_shared_16(tile + lane * 16), load_shared_16(tile + 512 + lane * 16)};
    const uint32_t factors = load_shared_4(tile + 1024 + (lane >> 2) * 4);
    float part[R][2];
#pragma unroll
    for (int group = 0; group < 2; group++) {
        const uint32_t above = group ? w[0].z : w[0].x, above_signs = group ? w[0].w : w[0].y;
        const uint32_t below = group ? w[1].z : w[1].x, below_signs = group ? w[1].w : w[1].y;
        int c[R][4];
#pragma unroll
        for (int two = 0; two < 2; two++) {
            uint4 b[R];
#pragma unroll
            for (int r = 0; r < R; r++) b[r] = load_shared_16(lines[r] + (group * 2 + two) * LINE);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t upper = nibbles_at(tables, own, above, above_signs, two * 2 + i), lower = nibbles_at(tables, own, below, below_signs, two * 2 + i);
                const uint32_t a[4] = {FewIQ2_XXS::values(upper), FewIQ2_XXS::values(lower), FewIQ2_XXS::values(upper >> 16), FewIQ2_XXS::values(lower >> 16)};
#pragma unroll
                for (int r = 0; r < R; r++)
                    if (two + i) multiply_signed(c[r], a, i ? b[r].z : b[r].x, i ? b[r].w : b[r].y);
                    else first_signed(c[r], a, b[r].x, b[r].y);
            }
        }
        const float upper = (float)(2 * (above_signs >> 28) + 1), lower = (float)(2 * (below_signs >> 28) + 1);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const float first = (float)both(c[r][0], c[r][1]), second = (float)both(c[r][2], c[r][3]);
            part[r][0] = group ? fmaf(upper, first, part[r][0]) : upper * first;
            part[r][1] = group ? fmaf(lower, second, part[r][1]) : lower * second;
        }
    }
    const float upper = half_low(factors) * 0.125f, lower = half_high(factors) * 0.125f;
#pragma unroll
    for (int r = 0; r < R; r++) {
        sum[r][0] = fmaf(part[r][0] * upper, scales[r], sum[r][0]);
        sum[r][1] = fmaf(part[r][1] * lower, scales[r], sum[r][1]);
    }
}

static __device__ __forceinline__ void pair_barrier(uint32_t pair) { asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory"); }

static __device__ __forceinline__ float activated(float gate, float up, float clamp) {
    const float capped = fminf(gate, clamp);
    return capped * sigmoid(capped) * fminf(fmaxf(up, -clamp), clamp);
}

// A warp's ring: `STAGES` places of `BYTES` each, and a barrier for each.
template <int STAGES, uint32_t BYTES> struct Ring {
    uint32_t base, barriers, stage, parity;

    // The next place's weights are there.
    __device__ __forceinline__ uint32_t wait() const {
        barrier_wait(barriers + 8 * stage, parity);
        return base + stage * BYTES;
    }
    // Every lane has read the place.
    __device__ __forceinline__ void step() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

#define UP_TILE (2 * FewIQ2_XXS::TILE)
typedef Ring<UP_STAGES, UP_TILE> UpRing;

// Both tiles of block `tile` on their way to a place; called by one lane.
static __device__ __forceinline__ void fetch_up(const BatchExperts &e, const UpRing &ring, uint32_t stage, size_t tile) {
    const uint32_t to = ring.base + stage * UP_TILE, barrier = ring.barriers + 8 * stage;
    barrier_expect(barrier, UP_TILE);
    copy_bulk(to, e.first + tile * FewIQ2_XXS::TILE, FewIQ2_XXS::TILE, barrier);
    copy_bulk(to + FewIQ2_XXS::TILE, e.second + tile * FewIQ2_XXS::TILE, FewIQ2_XXS::TILE, barrier);
}

// One half of the channels of one panel, for R rows of a group. `next`: the first tile of the warp's next panel, if it has
// one.
template <int R>
static __device__ __forceinline__ void up_half(
    const BatchExperts &e, const StagedRows &staged, UpRing &ring, const Group &group, uint32_t panel, uint32_t turn, size_t tile, size_t next, bool has_next,
    const uint8_t *tables, float *exchange) {
    const uint32_t warp = threadIdx.x >> 5, half = warp & 1, lane = threadIdx.x & 31, own_blocks = staged.blocks / 2;
    const bool is_own = is_own_column();
    const uint32_t advance = is_own ? FIXED_BLOCK : 0;
    uint32_t lines[R], scales_at[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const uint32_t block = (group.first + min((uint32_t)r, group.rows - 1) - staged.first_slot) * staged.blocks + half * own_blocks;
        lines[r] = is_own ? staged.codes + block * FIXED_BLOCK + line_place() : staged.zeros;
        scales_at[r] = staged.scales + 4 * block;
    }
    float gate[R][2], up[R][2];
#pragma unroll
    for (int r = 0; r < R; r++) gate[r][0] = gate[r][1] = up[r][0] = up[r][1] = 0;
#pragma unroll 1
    for (uint32_t block = 0; block < own_blocks; block++) {
        float scales[R];
#pragma unroll
        for (int r = 0; r < R; r++) scales[r] = load_shared_float(scales_at[r]);
        const uint32_t at = ring.wait();
        multiply_grid<R>(gate, at, lines, scales, tables);
        multiply_grid<R>(up, at + FewIQ2_XXS::TILE, lines, scales, tables);
        __syncwarp();
        const uint32_t to_come = block + UP_STAGES;
        const bool wraps = to_come >= own_blocks;
        if (lane == 0 && (!wraps || has_next)) fetch_up(e, ring, ring.stage, wraps ? next + to_come - own_blocks : tile + to_come);
        ring.step();
#pragma unroll
        for (int r = 0; r < R; r++) lines[r] += advance, scales_at[r] += 4;
    }
    // A lane has: t = 0: gate of row g; 1: of row g + 8; 2, 3: the linear part's.
    float own[R];
    float *place = exchange + ((warp / 2) * 2 + turn) * GROUP_ROWS_MAX * 32 + lane;
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float g = sum_of_four_either(gate[r][0], gate[r][1]), l = sum_of_four_either(up[r][0], up[r][1]);
        own[r] = lane & 2 ? l : g;
        if (half) place[r * 32] = own[r];
    }
    pair_barrier(warp / 2);
    if (half) return;
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float all = own[r] + place[r * 32];
        const float linear = __shfl_xor_sync(0xffffffffu, all, 2);
        if (!(lane & 2) && r < group.rows)
            e.out[(size_t)(group.first + r) * e.outputs + panel * PANEL + (lane >> 2) + 8 * (lane & 1)] = activated(all, linear, e.clamp) * e.weights[group.first + r];
    }
}

extern __shared__ __align__(128) uint8_t shared[];

// Shared memory: tables; rings; zeros; the pairs' exchange; barriers; scales; rows.
#define UP_RINGS TABLE_BYTES
#define UP_ZEROS (UP_RINGS + UP_WARPS * UP_STAGES * UP_TILE)
#define UP_EXCHANGE (UP_ZEROS + ZERO_BYTES)
#define UP_BARRIERS (UP_EXCHANGE + PAIRS * 2 * GROUP_ROWS_MAX * 32 * 4)
#define UP_ROWS ((UP_BARRIERS + (UP_WARPS * UP_STAGES + 1) * 8 + 127) / 128 * 128)

extern "C" __global__ void __launch_bounds__(UP_WARPS * 32, 1) batch_up(const __grid_constant__ BatchExperts e) {
    const uint32_t base = shared_address(shared), warp = threadIdx.x >> 5, pair = warp / 2, half = warp & 1, lane = threadIdx.x & 31;
    StagedRows staged;
    staged.blocks = few_blocks(e.columns), staged.zeros = base + UP_ZEROS;
    staged.codes = base + UP_ROWS, staged.scales = staged.codes + e.rows_at_once * staged.blocks * FIXED_BLOCK;
    UpRing ring = {base + UP_RINGS + warp * UP_STAGES * UP_TILE, base + UP_BARRIERS + warp * UP_STAGES * 8, 0, 0};
    const uint32_t rows_barrier = base + UP_BARRIERS + UP_WARPS * UP_STAGES * 8;
    if (threadIdx.x <= UP_WARPS * UP_STAGES) barrier_init(base + UP_BARRIERS + 8 * threadIdx.x, 1), barriers_ready();
    for (uint32_t i = threadIdx.x; i < ZERO_BYTES / 4; i += blockDim.x) store_shared_4(staged.zeros + 4 * i, 0);
    fill_tables(shared);
    __syncthreads();
    wait_for_previous();
    let_next_start();
    const Share share(e, UP_WEIGHTS);
    const auto tile_of = [&](const Group &group, uint32_t item) { return ((size_t)group.matrix * share.panels + item % share.panels) * staged.blocks + half * (staged.blocks / 2); };
    uint32_t turn = 0, pass = 0;
    for (uint32_t from = share.begin; from < share.end; pass++) {
        const uint32_t first_group = from / share.panels, until = min(share.end, groups_that_fit(e, first_group, (share.end - 1) / share.panels) * share.panels);
        uint32_t item = from + pair;
        Group group = {};
        size_t tile = 0;
        if (item < until) {
            group = e.groups[item / share.panels], tile = tile_of(group, item);
            // Places are free: whoever had them has read them all.
            if (lane == 0)
                for (uint32_t i = 0; i < UP_STAGES; i++) fetch_up(e, ring, (ring.stage + i) % UP_STAGES, tile + i);
        }
        if (pass) __syncthreads();
        stage_rows<false>(e, staged, first_group, (until - 1) / share.panels, rows_barrier, pass & 1);
        while (item < until) {
            const uint32_t following = item + PAIRS, panel = item % share.panels;
            const bool has_next = following < until;
            const Group next_group = e.groups[has_next ? following / share.panels : 0];
            const size_t next = tile_of(next_group, following);
            float *exchange = (float *)(shared + UP_EXCHANGE);
            if (group.rows == 1) up_half<1>(e, staged, ring, group, panel, turn, tile, next, has_next, shared, exchange);
            else up_half<2>(e, staged, ring, group, panel, turn, tile, next, has_next, shared, exchange);
            item = following, group = next_group, tile = next, turn ^= 1;
        }
        from = until;
    }
}

// `level`: the codes at bits 2 level of every byte stay there, 4^level as large; scales make up for it: 4^(3 - level).
static __device__ __forceinline__ int scale_at(uint32_t scales, int level) {
    const int shift = 8 * level - 2 * (3 - level);
    return (int)((shift < 0 ? scales << -shift : scales >> shift) & (15u << (2 * (3 - level))));
}

template <int R>
static __device__ __forceinline__ void multiply_planes(float (&sum)[R][2], uint32_t tile, const uint32_t (&lines)[R], const uint32_t (&sums)[R], const float (&scales)[R]) {
    const uint32_t lane = threadIdx.x & 31, t = lane & 3;
    const uint4 upper = load_shared_16(tile + lane * 16), lower = load_shared_16(tile + 512 + lane * 16), sub = load_shared_16(tile + 1024 + (lane >> 1) * 16);
    const uint2 factors = load_shared_8(tile + 1280 + (lane >> 2) * 8);
    int high[R][2], low[R][2];
#pragma unroll
    for (int r = 0; r < R; r++) high[r][0] = high[r][1] = low[r][0] = low[r][1] = 0;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int two = 0; two < 2; two++) {
            uint4 b[R];
#pragma unroll
            for (int r = 0; r < R; r++) b[r] = load_shared_16(lines[r] + (half * 2 + two) * LINE);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int level = two * 2 + i;
                const uint32_t mask = 0x03030303u << (2 * level);
                const uint32_t a[4] = {(half ? upper.z : upper.x) & mask, (half ? lower.z : lower.x) & mask, (half ? upper.w : upper.y) & mask, (half ? lower.w : lower.y) & mask};
                const int above = scale_at(half ? sub.y : sub.x, level), below = scale_at(half ? sub.w : sub.z, level);
#pragma unroll
                for (int r = 0; r < R; r++) {
                    int c[4];
                    first_unsigned(c, a, i ? b[r].z : b[r].x, i ? b[r].w : b[r].y);
                    high[r][0] += c[0] * above, low[r][0] += c[1] * above;
                    high[r][1] += c[2] * below, low[r][1] += c[3] * below;
                }
            }
        }
    const uint32_t minima[2] = {(t & 1 ? sub.y : sub.x) >> 4, (t & 1 ? sub.w : sub.z) >> 4};
    const float factor[2][2] = {{half_low(factors.x), half_high(factors.x)}, {half_low(factors.y), half_high(factors.y)}};
#pragma unroll
    for (int r = 0; r < R; r++) {
        const uint4 own = load_shared_16(sums[r] + 16 * t);
#pragma unroll
        for (int row = 0; row < 2; row++) {
            const int less = (int)own.x * (int)(minima[row] & 15) + (int)own.y * (int)((minima[row] >> 8) & 15) +
                             (int)own.z * (int)((minima[row] >> 16) & 15) + (int)own.w * (int)((minima[row] >> 24) & 15);
            const float part = factor[row][0] * (float)both(high[r][row] >> 6, low[r][row] >> 6) - factor[row][1] * (float)less;
            sum[r][row] = fmaf(part, scales[r], sum[r][row]);
        }
    }
}

typedef Ring<DOWN_STAGES, FewQ2_K::TILE> DownRing;

static __device__ __forceinline__ void fetch_down(const BatchExperts &e, const DownRing &ring, uint32_t stage, size_t tile) {
    barrier_expect(ring.barriers + 8 * stage, FewQ2_K::TILE);
    copy_bulk(ring.base + stage * FewQ2_K::TILE, e.first + tile * FewQ2_K::TILE, FewQ2_K::TILE, ring.barriers + 8 * stage);
}

template <int R>
static __device__ __forceinline__ void down_panel(
    const BatchExperts &e, const StagedRows &staged, DownRing &ring, const Group &group, uint32_t panel, size_t tile, size_t next, bool has_next) {
    const uint32_t lane = threadIdx.x & 31;
    const bool is_own = is_own_column();
    const uint32_t advance = is_own ? FIXED_BLOCK : 0;
    uint32_t lines[R], sums[R], scales_at[R];
    float sum[R][2];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const uint32_t block = (group.first + min((uint32_t)r, group.rows - 1) - staged.first_slot) * staged.blocks;
        lines[r] = is_own ? staged.codes + block * FIXED_BLOCK + line_place() : staged.zeros;
        sums[r] = staged.sums + block * 64, scales_at[r] = staged.scales + block * 4;
        sum[r][0] = sum[r][1] = 0;
    }
#pragma unroll 1
    for (uint32_t block = 0; block < staged.blocks; block++) {
        float scales[R];
#pragma unroll
        for (int r = 0; r < R; r++) scales[r] = load_shared_float(scales_at[r]);
        multiply_planes<R>(sum, ring.wait(), lines, sums, scales);
        __syncwarp();
        const uint32_t to_come = block + DOWN_STAGES;
        const bool wraps = to_come >= staged.blocks;
        if (lane == 0 && (!wraps || has_next)) fetch_down(e, ring, ring.stage, wraps ? next + to_come - staged.blocks : tile + to_come);
        ring.step();
#pragma unroll
        for (int r = 0; r < R; r++) lines[r] += advance, sums[r] += 64, scales_at[r] += 4;
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float own = sum_of_four_either(sum[r][0], sum[r][1]);
        if (!(lane & 2) && r < group.rows) e.out[(size_t)(group.first + r) * e.outputs + panel * PANEL + (lane >> 2) + 8 * (lane & 1)] = own;
    }
}

// Shared memory: rings; zeros; barriers; rows; scales; sums.
#define DOWN_ZEROS (DOWN_WARPS * DOWN_STAGES * FewQ2_K::TILE)
#define DOWN_BARRIERS (DOWN_ZEROS + ZERO_BYTES)
#define DOWN_ROWS ((DOWN_BARRIERS + (DOWN_WARPS * DOWN_STAGES + 1) * 8 + 127) / 128 * 128)

extern "C" __global__ void __launch_bounds__(DOWN_WARPS * 32, 1) batch_down(const __grid_constant__ BatchExperts e) {
    const uint32_t base = shared_address(shared), warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    StagedRows staged;
    staged.blocks = few_blocks(e.columns), staged.zeros = base + DOWN_ZEROS;
    staged.codes = base + DOWN_ROWS, staged.sums = staged.codes + e.rows_at_once * staged.blocks * FIXED_BLOCK, staged.scales = staged.sums + e.rows_at_once * staged.blocks * 64;
    DownRing ring = {base + warp * DOWN_STAGES * FewQ2_K::TILE, base + DOWN_BARRIERS + warp * DOWN_STAGES * 8, 0, 0};
    const uint32_t rows_barrier = base + DOWN_BARRIERS + DOWN_WARPS * DOWN_STAGES * 8;
    if (threadIdx.x <= DOWN_WARPS * DOWN_STAGES) barrier_init(base + DOWN_BARRIERS + 8 * threadIdx.x, 1), barriers_ready();
    for (uint32_t i = threadIdx.x; i < ZERO_BYTES / 4; i += blockDim.x) store_shared_4(staged.zeros + 4 * i, 0);
    __syncthreads();
    // The groups were there before what made the rows: the first weights need not wait for it.
    const Share share(e, DOWN_WEIGHTS);
    const auto tile_of = [&](const Group &group, uint32_t item) { return ((size_t)group.matrix * share.panels + item % share.panels) * staged.blocks; };
    uint32_t pass = 0;
    for (uint32_t from = share.begin; from < share.end; pass++) {
        const uint32_t first_group = from / share.panels, until = min(share.end, groups_that_fit(e, first_group, (share.end - 1) / share.panels) * share.panels);
        uint32_t item = from + warp;
        Group group = {};
        size_t tile = 0;
        if (item < until) {
            group = e.groups[item / share.panels], tile = tile_of(group, item);
            if (lane == 0)
                for (uint32_t i = 0; i < DOWN_STAGES; i++) fetch_down(e, ring, (ring.stage + i) % DOWN_STAGES, tile + i);
        }
        if (pass) __syncthreads();
        else wait_for_previous(), let_next_start();
        stage_rows<true>(e, staged, first_group, (until - 1) / share.panels, rows_barrier, pass & 1);
        while (item < until) {
            const uint32_t following = item + DOWN_WARPS, panel = item % share.panels;
            const bool has_next = following < until;
            const Group next_group = e.groups[has_next ? following / share.panels : 0];
            const size_t next = tile_of(next_group, following);
            if (group.rows == 1) down_panel<1>(e, staged, ring, group, panel, tile, next, has_next);
            else down_panel<2>(e, staged, ring, group, panel, tile, next, has_next);
            item = following, group = next_group, tile = next;
        }
        from = until;
    }
}

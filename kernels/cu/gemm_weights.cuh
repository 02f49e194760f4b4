// Stored weights as half floats in the registers of the matrix units, for products with many rows (gemm.cuh).
//
// Where weights.cuh keeps codes exact and scales results, here every weight is its value, rounded to a half float once or
// twice: the results of many blocks of channels then add up inside the units. Layout and lanes are those of weights.cuh: a
// lane supplies a row of its *upper* eight and one of its *lower* eight, usually rows g and g + 8 of one panel, and here also
// rows of two panels.
//
// A struct holds a lane's codes. start() loads the first; fragments<Q>() gives the operands of the four steps of a block's
// quarter Q (64 channels) and loads what comes later: a whole block AHEAD, or, to keep registers free, when the last codes
// were used, while the units multiply.
#pragma once
#include "gemm_operand.cuh"

#define PANEL_ROWS 16

// Where a lane's two rows are: the first byte of the upper one's panel and which eight rows of the panel it is among; for raw
// rows its first byte. The lower one is the same row of another matrix, so many bytes further (GATED), or of the same panel's
// other eight; a raw one is `apart` bytes further.
template <bool GATED> struct LanePair {
    const uint8_t *upper;
    int64_t apart;
    uint32_t half, columns;
    uint32_t tables;        // shared address of the lane's column of the IQ2_XXS tables

    // From something of the upper row to the same of the lower row, of which both eights have so many bytes.
    __device__ __forceinline__ int64_t distance(uint32_t bytes) const { return GATED ? apart : bytes; }
};

// The address as it is now: the compiler keeps one pointer, not one for every load of a loop.
static __device__ __forceinline__ const uint8_t *pinned(const uint8_t *at) {
    asm volatile("" : "+l"(at));
    return at;
}

static __device__ __forceinline__ uint32_t own_lane() { return threadIdx.x & 31; }

static __device__ __forceinline__ Half2 low_twice(Half2 x) { return permute(x, x, 0x1010); }
static __device__ __forceinline__ Half2 high_twice(Half2 x) { return permute(x, x, 0x3232); }

// Small whole numbers in the first or last two bytes, as halves.
static __device__ __forceinline__ Half2 halves_of_low(uint32_t bytes) { return half2_add(permute(bytes, 0x64646464u, 0x4140), 0xe400e400u); }
static __device__ __forceinline__ Half2 halves_of_high(uint32_t bytes) { return half2_add(permute(bytes, 0x64646464u, 0x4342), 0xe400e400u); }

static __device__ __forceinline__ uint32_t part_of(const uint4 &v, int index) {
    return index == 0 ? v.x : index == 1 ? v.y : index == 2 ? v.z : v.w;
}

template <bool AHEAD> struct GemmQ8_0 {
    enum { PIECES = AHEAD ? 2 : 1 };
    enum { RAW = 0, MERGES = 1, FITS = 0, ORDER = NEAR, TABLES = 0, TILE_BYTES = 1088, TILE_CHANNELS = 64 };
    struct Piece { uint4 codes[2]; uint32_t scales[2]; } pieces[PIECES];

    const uint8_t *codes;   // the lane's, of the tile to load next

    // Two blocks of 32 a row; zeros past the last.
    template <bool GATED> __device__ __forceinline__ void load(Piece &piece, const LanePair<GATED> &at, uint32_t tile) {
        if (tile * TILE_CHANNELS >= at.columns) {
            piece = {};
            return;
        }
        const uint8_t *from = pinned(codes), *scales = from + scale_place(at.half);
        piece.codes[0] = load_weights_16(from);
        piece.codes[1] = load_weights_16(from + at.distance(512));
        piece.scales[0] = load_weights_4(scales);
        piece.scales[1] = load_weights_4(scales + at.distance(4));
        codes = from + TILE_BYTES;
    }
    static __device__ __forceinline__ int32_t scale_place(uint32_t half) { return 1024 + own_lane() / 4 * 8 + half * 4 - half * 512 - own_lane() * 16; }

    template <bool GATED> __device__ __forceinline__ void start(const LanePair<GATED> &at) {
        codes = at.upper + at.half * 512 + own_lane() * 16;
#pragma unroll
        for (int i = 0; i < PIECES; i++) load(pieces[i], at, i);
    }

    template <int Q, bool GATED> __device__ __forceinline__ void fragments(Half2 (&a)[16], const LanePair<GATED> &at, uint32_t block, uint32_t) {
        Piece &piece = pieces[Q % PIECES];
#pragma unroll
        for (int row = 0; row < 2; row++)
#pragma unroll
            for (int word = 0; word < 4; word++) {
                // The sign bit turned makes codes 0..255, and 1024 + that - 1152 is the code.
                const uint32_t codes = part_of(piece.codes[row], word) ^ 0x80808080u;
                const Half2 scale = word < 2 ? low_twice(piece.scales[row]) : high_twice(piece.scales[row]);
                a[4 * word + row] = half2_mul(half2_add(permute(codes, 0x64646464u, 0x4140), 0xe480e480u), scale);
                a[4 * word + row + 2] = half2_mul(half2_add(permute(codes, 0x64646464u, 0x4342), 0xe480e480u), scale);
            }
        load(piece, at, block * 4 + Q + PIECES);
    }
};

// Raw rows, two quarters ahead; channels are multiples of 8.
template <bool> struct GemmF16 {
    enum { RAW = 1, MERGES = 1, FITS = 0, ORDER = NEAR, TABLES = 0 };
    struct Piece { uint4 rows[2][2]; } pieces[2];

    const uint8_t *from;    // the lane's part of the upper row's next 64 channels

    template <bool GATED> __device__ __forceinline__ void load(Piece &piece, const LanePair<GATED> &at, uint32_t quarter) {
        from = pinned(from);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool there = quarter * 64 + i * 32 + own_lane() % 4 * 8 < at.columns;
            piece.rows[0][i] = there ? load_weights_16(from + i * 64) : make_uint4(0, 0, 0, 0);
            piece.rows[1][i] = there ? load_weights_16(from + i * 64 + at.apart) : make_uint4(0, 0, 0, 0);
        }
        from += 128;
    }

    template <bool GATED> __device__ __forceinline__ void start(const LanePair<GATED> &at) {
        from = at.upper + own_lane() % 4 * 16;
        load(pieces[0], at, 0);
        load(pieces[1], at, 1);
    }

    template <int Q, bool GATED> __device__ __forceinline__ void fragments(Half2 (&a)[16], const LanePair<GATED> &at, uint32_t block, uint32_t) {
        Piece &piece = pieces[Q % 2];
#pragma unroll
        for (int row = 0; row < 2; row++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                a[8 * i + row] = piece.rows[row][i].x, a[8 * i + row + 2] = piece.rows[row][i].y;
                a[8 * i + row + 4] = piece.rows[row][i].z, a[8 * i + row + 6] = piece.rows[row][i].w;
            }
        load(piece, at, block * 4 + Q + 2);
    }
};

template <bool AHEAD> struct GemmQ2_K {
    enum { RAW = 0, MERGES = 0, FITS = 1, ORDER = NEAR, TABLES = 0, TILE_BYTES = 1344, TILE_CHANNELS = 256 };
    struct Codes { uint4 rows[2]; } codes, next;
    uint2 scales[2];
    uint32_t factors[2];

    const uint8_t *place;   // the lane's codes in the tile to load next

    template <bool GATED> __device__ __forceinline__ void load_codes(Codes &codes, const LanePair<GATED> &at) {
        place = pinned(place);
        codes.rows[0] = load_weights_16(place);
        codes.rows[1] = load_weights_16(place + at.distance(512));
    }
    // After the codes; goes on to the next tile.
    template <bool GATED> __device__ __forceinline__ void load_scales(const LanePair<GATED> &at) {
        place = pinned(place);
        const uint8_t *groups = place + (int32_t)(1024 + own_lane() / 2 * 16 + at.half * 8 - at.half * 512 - own_lane() * 16);
        const uint8_t *all = place + (int32_t)(1280 + own_lane() / 4 * 8 + at.half * 4 - at.half * 512 - own_lane() * 16);
        scales[0] = load_weights_8(groups);
        scales[1] = load_weights_8(groups + at.distance(8));
        factors[0] = load_weights_4(all);
        factors[1] = load_weights_4(all + at.distance(4));
        place += TILE_BYTES;
    }

    template <bool GATED> __device__ __forceinline__ void start(const LanePair<GATED> &at) {
        place = at.upper + at.half * 512 + own_lane() * 16;
        load_codes(codes, at);
        load_scales(at);
    }

    template <int Q, bool GATED> __device__ __forceinline__ void fragments(Half2 (&a)[16], const LanePair<GATED> &at, uint32_t block, uint32_t blocks) {
        const bool more = block + 1 < blocks;
        if (AHEAD && Q == 0 && more) load_codes(next, at);
#pragma unroll
        for (int row = 0; row < 2; row++) {
            const uint32_t bytes = Q / 2 ? scales[row].y : scales[row].x, sizes = bytes & 0x0f0f0f0fu, minima = bytes >> 4 & 0x0f0f0f0fu;
            // For the quarter's two groups of 32: factor of a code, and what is taken off.
            const Half2 steps = half2_mul(Q % 2 ? halves_of_high(sizes) : halves_of_low(sizes), low_twice(factors[row]));
            const Half2 offs = half2_mul(Q % 2 ? halves_of_high(minima) : halves_of_low(minima), high_twice(factors[row]) ^ 0x80008000u);
#pragma unroll
            for (int plane = 0; plane < 2; plane++) {
                const Half2 step = plane ? high_twice(steps) : low_twice(steps), off = plane ? high_twice(offs) : low_twice(offs);
                const int shift = 4 - 2 * (Q % 2 * 2 + plane);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const uint32_t word = part_of(codes.rows[row], Q / 2 * 2 + i);
                    // Codes 0 to 3 at nibbles 1, 3, 5, 7 select the upper bytes of the halves 0, 1, 2, 3.
                    const uint32_t four = (shift > 0 ? word << (shift > 0 ? shift : 0) : word >> (shift > 0 ? 0 : -shift)) & 0x30303030u;
                    a[4 * (2 * plane + i) + row] = half2_fma(permute(0x42403c00u, 0, four), step, off);
                    a[4 * (2 * plane + i) + row + 2] = half2_fma(permute(0x42403c00u, 0, four >> 16), step, off);
                }
            }
        }
        if (Q == 3 && more) {
            if (AHEAD) codes = next;
            else load_codes(codes, at);
            load_scales(at);
        }
    }
};

template <bool> struct GemmQ4_K {
    enum { RAW = 0, MERGES = 0, FITS = 0, ORDER = FAR, TABLES = 0, TILE_BYTES = 2304, TILE_CHANNELS = 256 };
    // The codes of a lane's two groups of 32, in two parts, and what the groups' codes are multiplied with, and lose.
    uint4 codes[2][2];
    Half2 steps[2], offs[2];
    uint4 heads[2];

    const uint8_t *place;   // the lane's codes in the tile to load next

    template <bool GATED> __device__ __forceinline__ void load_heads(const LanePair<GATED> &at) {
        const uint8_t *from = pinned(place) + (int32_t)(2048 + own_lane() / 4 * 32 + at.half * 16 - at.half * 1024 - own_lane() * 16);
        heads[0] = load_weights_16(from);
        heads[1] = load_weights_16(from + at.distance(16));
    }
    template <int PART, bool GATED> __device__ __forceinline__ void load_codes(const LanePair<GATED> &at) {
        place = pinned(place);
        codes[0][PART] = load_weights_16(place + PART * 512);
        codes[1][PART] = load_weights_16(place + PART * 512 + at.distance(1024));
        if (PART == 1) place += TILE_BYTES;
    }

    template <bool GATED> __device__ __forceinline__ void start(const LanePair<GATED> &at) {
        place = at.upper + at.half * 1024 + own_lane() * 16;
        load_heads(at);
        load_codes<0>(at);
        load_codes<1>(at);
    }

    template <int Q, bool GATED> __device__ __forceinline__ void fragments(Half2 (&a)[16], const LanePair<GATED> &at, uint32_t block, uint32_t blocks) {
        if (Q == 0) {
#pragma unroll
            for (int row = 0; row < 2; row++) {
                const uint4 head = heads[row];
                const bool last = own_lane() & 2;
                const uint32_t scales = last ? (head.w & 0x0f0f0f0fu) | ((head.y >> 2) & 0x30303030u) : head.y & 0x3f3f3f3fu;
                const uint32_t minima = last ? (head.w >> 4 & 0x0f0f0f0fu) | ((head.z >> 2) & 0x30303030u) : head.z & 0x3f3f3f3fu;
                const uint32_t shift = 16 * (own_lane() & 1);
                steps[row] = half2_mul(halves_of_low(scales >> shift), low_twice(head.x));
                offs[row] = half2_mul(halves_of_low(minima >> shift), high_twice(head.x) ^ 0x80008000u);
            }
            if (block + 1 < blocks) load_heads(at);
        }
#pragma unroll
        for (int row = 0; row < 2; row++) {
            const Half2 step = Q / 2 ? high_twice(steps[row]) : low_twice(steps[row]), off = Q / 2 ? high_twice(offs[row]) : low_twice(offs[row]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t nibbles = part_of(codes[row][Q % 2], i) >> (Q / 2 * 4) & 0x0f0f0f0fu;
                a[4 * i + row] = half2_fma(halves_of_low(nibbles), step, off);
                a[4 * i + row + 2] = half2_fma(halves_of_high(nibbles), step, off);
            }
        }
        // A part is needed again two quarters after its last use.
        if (Q >= 2 && block + 1 < blocks) load_codes<Q % 2>(at);
    }
};

// The tables of weights.cuh (a word per grid entry with a nibble per value, then a word per sign index), one copy for every
// lane where shared memory allows it: no two lanes then meet in a bank.
#if HAS_WARPGROUPS
#define GEMM_TABLE_COPIES 32
#else
#define GEMM_TABLE_COPIES 8
#endif

template <bool AHEAD> struct GemmIQ2_XXS {
    enum { RAW = 0, MERGES = 0, FITS = 1, ORDER = FAR, TABLES = 384, TILE_BYTES = 1056, TILE_CHANNELS = 256 };
    struct Block { uint4 codes[2]; uint32_t factors[2]; } now, next;

    static __device__ __forceinline__ uint32_t load_half(const uint8_t *at) {
        uint16_t v;
        asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(at));
        return v;
    }

    const uint8_t *place;   // the lane's codes in the tile to load next

    template <bool GATED> __device__ __forceinline__ void load(Block &block, const LanePair<GATED> &at) {
        place = pinned(place);
        const uint8_t *all = place + (int32_t)(1024 + own_lane() / 4 * 4 + at.half * 2 - at.half * 512 - own_lane() * 16);
        block.codes[0] = load_weights_16(place);
        block.codes[1] = load_weights_16(place + at.distance(512));
        block.factors[0] = load_half(all);
        block.factors[1] = load_half(all + at.distance(2));
        place += TILE_BYTES;
    }

    template <bool GATED> __device__ __forceinline__ void start(const LanePair<GATED> &at) {
        place = at.upper + at.half * 512 + own_lane() * 16;
        load(now, at);
    }

    // Bits `from` and the next `count` of a word, times the bytes of an entry.
    template <int FROM, int COUNT> static __device__ __forceinline__ uint32_t entry(uint32_t word) {
        constexpr uint32_t BYTES = GEMM_TABLE_COPIES * 4, SHIFT = GEMM_TABLE_COPIES == 32 ? 7 : 5;
        return (FROM < (int)SHIFT ? word << (FROM < (int)SHIFT ? SHIFT - FROM : 0) : word >> (FROM < (int)SHIFT ? 0 : FROM - SHIFT)) & ((1u << COUNT) - 1) * BYTES;
    }

    // Four values over 8 and their signs, selected by four nibbles, times the scale.
    static __device__ __forceinline__ void values(Half2 &first, Half2 &second, uint32_t nibbles, Half2 scale) {
        const uint32_t upper = permute(0x0045423cu, 0x00c5c2bcu, nibbles), lower = permute(0x00604000u, 0x00604000u, nibbles);
        first = half2_mul(permute(lower, upper, 0x5140), scale);
        second = half2_mul(permute(lower, upper, 0x7362), scale);
    }

    template <int EIGHT> static __device__ __forceinline__ uint32_t nibbles(uint32_t tables, uint32_t indices, uint32_t signs) {
        return load_shared_4(tables + entry<8 * EIGHT, 8>(indices)) | load_shared_4(tables + 256 * GEMM_TABLE_COPIES * 4 + entry<7 * EIGHT, 7>(signs));
    }

    template <int Q, bool GATED> __device__ __forceinline__ void fragments(Half2 (&a)[16], const LanePair<GATED> &at, uint32_t block, uint32_t blocks) {
        const bool more = block + 1 < blocks;
        if (AHEAD && Q == 0 && more) load(next, at);
#pragma unroll
        for (int row = 0; row < 2; row++) {
            const uint32_t indices = part_of(now.codes[row], Q / 2 * 2), signs = part_of(now.codes[row], Q / 2 * 2 + 1);
            const Half2 scale = half2_of(half_low(now.factors[row]) * (float)(2 * (signs >> 28) + 1));
            const uint32_t first = nibbles<Q % 2 * 2>(at.tables, indices, signs), second = nibbles<Q % 2 * 2 + 1>(at.tables, indices, signs);
            values(a[row], a[row + 2], first, scale);
            values(a[row + 4], a[row + 6], first >> 16, scale);
            values(a[row + 8], a[row + 10], second, scale);
            values(a[row + 12], a[row + 14], second >> 16, scale);
        }
        if (Q == 3 && more) {
            if (AHEAD) now = next;
            else load(now, at);
        }
    }
};

// Stored weights as operands of the matrix units, for every format.
//
// A lane of a warp (g = lane / 4, t = lane % 4) supplies rows g and g + 8 of a panel of 16. In every step of 16
// channels it supplies four consecutive channels, one quad, of both rows; which quad is free as long as activations
// agree, so each format takes the quads whose codes the split layout (shared/gpu/src/layout) puts into the lane's
// 16-byte loads: quad `first + 2 t` or `first + 16 t` of a block of 256 channels.
//
// Weights enter the products as exact integers: code, code times sub-scale (at most 945), or grid value times sub-scale
// (at most 1,333), all below the 2,048 up to which half floats hold every integer. What remains of the scale, one f32
// factor per 32 (Q8_0) or 256 channels, multiplies the accumulated result. So no format loses anything here.
//
// A block of 256 channels is taken in PIECES. Each struct has: Head, what a lane needs for the whole block, and Piece, its
// codes of one piece; how to load them; multiply(), which adds a piece's products with 8 rows of activations a tile to
// `part[tile][4]` (rows g, g, g + 8, g + 8 of the panel by activation rows 2t, 2t + 1, 2t, 2t + 1); and finish(), after the
// last piece. The order of every sum is fixed, whatever the number of tiles.
#pragma once
#include "intrinsics.cuh"
#include "operand.cuh"

#define PANEL_ROWS 16

// Where a lane is, and the matrix: address of the first weight, channels, and the last row that may be read.
struct Place {
    const uint8_t *weights;
    uint32_t columns;
    uint32_t last_row;
    uint32_t lane;
    uint32_t tables;        // shared address of the IQ2_XXS tables
};

// 1024 + code for the first and the last two of four bytes.
static __device__ __forceinline__ Half2 biased_low(uint32_t bytes) { return permute(bytes, 0x64646464u, 0x4140); }
static __device__ __forceinline__ Half2 biased_high(uint32_t bytes) { return permute(bytes, 0x64646464u, 0x4342); }

static __device__ __forceinline__ uint32_t word_of(const uint4 &v, int index) {
    return index == 0 ? v.x : index == 1 ? v.y : index == 2 ? v.z : v.w;
}

// One step with both halves of the activations.
static __device__ __forceinline__ void step(float (&sum)[4], const Half2 (&a)[4], const uint4 &quad) {
    multiply_16x8x16(sum, a, quad.x, quad.y);
    multiply_16x8x16(sum, a, quad.z, quad.w);
}

// `scale * product`, rounded: what follows must not fuse it in one kernel and not in another. With minima
// `scale * product - minimum * sums`.
template <int TILES>
static __device__ __forceinline__ void scale_rows(float (&part)[TILES][4], float upper, float lower) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        part[tile][0] = __fmul_rn(part[tile][0], upper);
        part[tile][1] = __fmul_rn(part[tile][1], upper);
        part[tile][2] = __fmul_rn(part[tile][2], lower);
        part[tile][3] = __fmul_rn(part[tile][3], lower);
    }
}

// `minima`: the lane's four of rows g and g + 8, one byte each.
template <int TILES, class Activations>
static __device__ __forceinline__ void subtract_minima(
    float (&part)[TILES][4], uint32_t upper_minima, uint32_t lower_minima, float upper, float lower,
    const Activations &activations) {
    const Half2 minus_1024 = 0xe400e400u;
    const Half2 a[4] = {half2_add(biased_low(upper_minima), minus_1024), half2_add(biased_low(lower_minima), minus_1024),
                        half2_add(biased_high(upper_minima), minus_1024), half2_add(biased_high(lower_minima), minus_1024)};
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        float sums[4] = {0, 0, 0, 0};
        step(sums, a, activations.sums(tile));
        part[tile][0] = fmaf(-upper, sums[0], part[tile][0]);
        part[tile][1] = fmaf(-upper, sums[1], part[tile][1]);
        part[tile][2] = fmaf(-lower, sums[2], part[tile][2]);
        part[tile][3] = fmaf(-lower, sums[3], part[tile][3]);
    }
}

// Four codes of rows g and g + 8 (bytes) as `code * scale`: (1024 + code) * scale - 1024 * scale is exact.
static __device__ __forceinline__ void scaled_codes(
    Half2 (&a)[4], uint32_t upper, uint32_t lower, Half2 upper_scale, Half2 upper_bias, Half2 lower_scale, Half2 lower_bias) {
    a[0] = half2_fma(biased_low(upper), upper_scale, upper_bias);
    a[1] = half2_fma(biased_low(lower), lower_scale, lower_bias);
    a[2] = half2_fma(biased_high(upper), upper_scale, upper_bias);
    a[3] = half2_fma(biased_high(lower), lower_scale, lower_bias);
}

template <int TILES> static __device__ __forceinline__ void clear(float (&part)[TILES][4]) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) part[tile][0] = part[tile][1] = part[tile][2] = part[tile][3] = 0;
}

struct Nothing {};

struct Q8_0 {
    enum { STAGED = 0, PIECES = 4, TABLES = 0, TILE_BYTES = 1088 };
    typedef Nothing Head;
    struct Piece { uint4 codes[2]; uint2 scales; };

    static __device__ __forceinline__ Head load_head(const Place &, uint32_t, uint32_t) { return {}; }

    static __device__ __forceinline__ Piece load(const Place &place, uint32_t panel, uint32_t block, int index) {
        const uint32_t across = (place.columns + 63) / 64, tile = block * PIECES + index;
        Piece piece = {};
        if (tile < across) {
            const uint8_t *at = place.weights + ((size_t)panel * across + tile) * TILE_BYTES;
            piece.codes[0] = load_weights_16(at + place.lane * 16);
            piece.codes[1] = load_weights_16(at + 512 + place.lane * 16);
            piece.scales = load_weights_8(at + 1024 + (place.lane >> 2) * 8);
        }
        return piece;
    }

    // Four codes: the sign bit turned makes them 0..255, and 1024 + that - 1152 is the code.
    static __device__ __forceinline__ void operand(Half2 (&a)[4], uint32_t upper, uint32_t lower) {
        const Half2 minus_1152 = 0xe480e480u;
        upper ^= 0x80808080u;
        lower ^= 0x80808080u;
        a[0] = half2_add(biased_low(upper), minus_1152);
        a[1] = half2_add(biased_low(lower), minus_1152);
        a[2] = half2_add(biased_high(upper), minus_1152);
        a[3] = half2_add(biased_high(lower), minus_1152);
    }

    template <int TILES, class Activations>
    static __device__ __forceinline__ void multiply(
        float (&part)[TILES][4], const Head &, const Piece &piece, int index, const Place &, const Activations &activations) {
        // Not unrolled: registers.
#pragma unroll 1
        for (int block = 0; block < 2; block++) {
            Half2 a[2][4];
            operand(a[0], block ? piece.codes[0].z : piece.codes[0].x, block ? piece.codes[1].z : piece.codes[1].x);
            operand(a[1], block ? piece.codes[0].w : piece.codes[0].y, block ? piece.codes[1].w : piece.codes[1].y);
            const float upper = block ? half_high(piece.scales.x) : half_low(piece.scales.x);
            const float lower = block ? half_high(piece.scales.y) : half_low(piece.scales.y);
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                float sum[4] = {0, 0, 0, 0};
                step(sum, a[0], activations.template quad<2>(n, index, block * 8));
                step(sum, a[1], activations.template quad<2>(n, index, block * 8 + 1));
                part[n][0] = fmaf(upper, sum[0], part[n][0]);
                part[n][1] = fmaf(upper, sum[1], part[n][1]);
                part[n][2] = fmaf(lower, sum[2], part[n][2]);
                part[n][3] = fmaf(lower, sum[3], part[n][3]);
            }
        }
    }

    template <int TILES, class Activations>
    static __device__ __forceinline__ void finish(float (&)[TILES][4], const Head &, const Place &, const Activations &) {}
};

// Raw rows; channels are multiples of 8.
struct F16 {
    enum { STAGED = 0, PIECES = 4, TABLES = 0 };
    typedef Nothing Head;
    struct Piece { uint4 rows[2][2]; };

    static __device__ __forceinline__ Head load_head(const Place &, uint32_t, uint32_t) { return {}; }

    static __device__ __forceinline__ Piece load(const Place &place, uint32_t panel, uint32_t block, int index) {
        Piece piece;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t row = min(panel * PANEL_ROWS + (place.lane >> 2) + 8 * half, place.last_row);
            const uint8_t *at = place.weights + (size_t)row * place.columns * 2;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t channel = block * BLOCK_CHANNELS + index * 64 + i * 32 + (place.lane & 3) * 8;
                piece.rows[half][i] = channel < place.columns ? load_weights_16(at + channel * 2) : make_uint4(0, 0, 0, 0);
            }
        }
        return piece;
    }

    template <int TILES, class Activations>
    static __device__ __forceinline__ void multiply(
        float (&part)[TILES][4], const Head &, const Piece &piece, int index, const Place &, const Activations &activations) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 upper = piece.rows[0][i], lower = piece.rows[1][i];
            const Half2 first[4] = {upper.x, lower.x, upper.y, lower.y}, second[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
            for (int n = 0; n < TILES; n++) step(part[n], first, activations.template quad<2>(n, index, i * 8));
#pragma unroll
            for (int n = 0; n < TILES; n++) step(part[n], second, activations.template quad<2>(n, index, i * 8 + 1));
        }
    }

    template <int TILES, class Activations>
    static __device__ __forceinline__ void finish(float (&)[TILES][4], const Head &, const Place &, const Activations &) {}
};

struct Q2_K {
    enum { STAGED = 1, PIECES = 1, TABLES = 0, TILE_BYTES = 1344 };
    struct Head { uint4 scales; uint2 factors; };
    struct Piece { uint4 rows[2]; };

    static __device__ __forceinline__ const uint8_t *tile(const Place &place, uint32_t panel, uint32_t block) {
        return place.weights + ((size_t)panel * blocks_of(place.columns) + block) * TILE_BYTES;
    }

    static __device__ __forceinline__ Head load_head(const Place &place, uint32_t panel, uint32_t block) {
        const uint8_t *at = tile(place, panel, block);
        return {load_weights_16(at + 1024 + (place.lane >> 1) * 16), load_weights_8(at + 1280 + (place.lane >> 2) * 8)};
    }

    static __device__ __forceinline__ Piece load(const Place &place, uint32_t panel, uint32_t block, int) {
        const uint8_t *at = tile(place, panel, block) + place.lane * 16;
        return {{load_weights_16(at), load_weights_16(at + 512)}};
    }

    // Sub-scale `index` of the lane's eight, as both halves of a register.
    static __device__ __forceinline__ Half2 scale(uint32_t low, uint32_t high, int index) {
        return half2_of((float)(((index < 4 ? low : high) >> (8 * (index & 3))) & 15));
    }

    template <int TILES, class Activations>
    static __device__ __forceinline__ void multiply(
        float (&part)[TILES][4], const Head &head, const Piece &piece, int, const Place &, const Activations &activations) {
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int plane = 0; plane < 4; plane++) {
                const Half2 upper = scale(head.scales.x, head.scales.y, half * 4 + plane), upper_bias = half2_fma(upper, 0xe400e400u, 0);
                const Half2 lower = scale(head.scales.z, head.scales.w, half * 4 + plane), lower_bias = half2_fma(lower, 0xe400e400u, 0);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    Half2 a[4];
                    scaled_codes(a, (word_of(piece.rows[0], 2 * half + i) >> (2 * plane)) & 0x03030303u,
                                 (word_of(piece.rows[1], 2 * half + i) >> (2 * plane)) & 0x03030303u, upper, upper_bias, lower, lower_bias);
#pragma unroll
                    for (int n = 0; n < TILES; n++) step(part[n], a, activations.template quad<2>(n, half * 2 + plane / 2, plane % 2 * 8 + i));
                }
            }
    }

    template <int TILES, class Activations>
    static __device__ __forceinline__ void finish(float (&part)[TILES][4], const Head &head, const Place &place, const Activations &activations) {
        scale_rows(part, half_low(head.factors.x), half_low(head.factors.y));
        const bool second = place.lane & 1;
        subtract_minima(part, ((second ? head.scales.y : head.scales.x) >> 4) & 0x0f0f0f0fu, ((second ? head.scales.w : head.scales.z) >> 4) & 0x0f0f0f0fu,
                        half_high(head.factors.x) * SUM_DIVISOR, half_high(head.factors.y) * SUM_DIVISOR, activations);
    }
};

struct Q4_K {
    enum { STAGED = 1, PIECES = 2, TABLES = 0, TILE_BYTES = 2304 };
    struct Head { uint32_t scales[2], minima[2], factors[2]; };
    struct Piece { uint4 rows[2]; };

    static __device__ __forceinline__ const uint8_t *tile(const Place &place, uint32_t panel, uint32_t block) {
        return place.weights + ((size_t)panel * blocks_of(place.columns) + block) * TILE_BYTES;
    }

    static __device__ __forceinline__ Head load_head(const Place &place, uint32_t panel, uint32_t block) {
        const uint8_t *at = tile(place, panel, block) + 2048 + (place.lane >> 2) * 32;
        Head head;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint4 stored = load_weights_16(at + half * 16);
            head.scales[half] = scales(stored, place.lane & 3);
            head.minima[half] = minima(stored, place.lane & 3);
            head.factors[half] = stored.x;
        }
        return head;
    }

    static __device__ __forceinline__ Piece load(const Place &place, uint32_t panel, uint32_t block, int index) {
        const uint8_t *at = tile(place, panel, block) + index * 512 + place.lane * 16;
        return {{load_weights_16(at), load_weights_16(at + 1024)}};
    }

    // The sub-scales of groups 2t and 2t + 1, in the two low bytes.
    static __device__ __forceinline__ uint32_t scales(const uint4 &head, uint32_t t) {
        const uint32_t first = head.y & 0x3f3f3f3fu, last = (head.w & 0x0f0f0f0fu) | ((head.y >> 2) & 0x30303030u);
        return (t & 2 ? last : first) >> (16 * (t & 1));
    }

    // The minima of groups 4 (t & 1) .. 4 (t & 1) + 4.
    static __device__ __forceinline__ uint32_t minima(const uint4 &head, uint32_t t) {
        const uint32_t first = head.z & 0x3f3f3f3fu, last = ((head.w >> 4) & 0x0f0f0f0fu) | ((head.z >> 2) & 0x30303030u);
        return t & 1 ? last : first;
    }

    template <int TILES, class Activations>
    static __device__ __forceinline__ void multiply(
        float (&part)[TILES][4], const Head &head, const Piece &piece, int index, const Place &, const Activations &activations) {
#pragma unroll
        for (int group = 0; group < 2; group++) {
            const Half2 upper = half2_of((float)((head.scales[0] >> (8 * group)) & 63)), upper_bias = half2_fma(upper, 0xe400e400u, 0);
            const Half2 lower = half2_of((float)((head.scales[1] >> (8 * group)) & 63)), lower_bias = half2_fma(lower, 0xe400e400u, 0);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                Half2 a[4];
                scaled_codes(a, (word_of(piece.rows[0], i) >> (4 * group)) & 0x0f0f0f0fu,
                             (word_of(piece.rows[1], i) >> (4 * group)) & 0x0f0f0f0fu, upper, upper_bias, lower, lower_bias);
#pragma unroll
                for (int n = 0; n < TILES; n++) step(part[n], a, activations.template quad<16>(n, 0, group * 8 + index * 4 + i));
            }
        }
    }

    template <int TILES, class Activations>
    static __device__ __forceinline__ void finish(float (&part)[TILES][4], const Head &head, const Place &, const Activations &activations) {
        scale_rows(part, half_low(head.factors[0]), half_low(head.factors[1]));
        subtract_minima(part, head.minima[0], head.minima[1], half_high(head.factors[0]) * SUM_DIVISOR,
                        half_high(head.factors[1]) * SUM_DIVISOR, activations);
    }
};

// Lanes look up different entries, which often lie in the same bank; several copies make that rarer.
#define TABLE_COPIES 8

// Tables in shared memory: a word per grid entry with a nibble per value (its magnitude's index), then a word per
// 7-bit sign index with nibbles of 4 where the sign is minus. Both together select one of six bytes.
struct IQ2_XXS {
    enum { STAGED = 1, PIECES = 1, TABLES = 384, TILE_BYTES = 1056 };
    struct Head { uint32_t factors; };
    struct Piece { uint4 rows[2]; };

    static __device__ __forceinline__ const uint8_t *tile(const Place &place, uint32_t panel, uint32_t block) {
        return place.weights + ((size_t)panel * blocks_of(place.columns) + block) * TILE_BYTES;
    }

    static __device__ __forceinline__ Head load_head(const Place &place, uint32_t panel, uint32_t block) {
        return {load_weights_4(tile(place, panel, block) + 1024 + (place.lane >> 2) * 4)};
    }

    static __device__ __forceinline__ Piece load(const Place &place, uint32_t panel, uint32_t block, int) {
        const uint8_t *at = tile(place, panel, block) + place.lane * 16;
        return {{load_weights_16(at), load_weights_16(at + 512)}};
    }

    // Eight nibbles: grid entry `part` of a group's four, with its signs.
    static __device__ __forceinline__ uint32_t nibbles(uint32_t tables, uint32_t indices, uint32_t signs, int part) {
        const uint32_t entry = part == 0 ? indices << 5 : indices >> (8 * part - 5);
        const uint32_t sign = part == 0 ? signs << 5 : signs >> (7 * part - 5);
        return load_shared_4(tables + (entry & 255 << 5)) | load_shared_4(tables + (256 << 5) + (sign & 127 << 5));
    }

    // 128 + {8, 25, 43} or 128 - {8, 25, 43}, selected by four nibbles.
    static __device__ __forceinline__ uint32_t values(uint32_t nibbles) { return permute(0x00ab9988u, 0x00556778u, nibbles); }

    template <int TILES, class Activations>
    static __device__ __forceinline__ void multiply(
        float (&part)[TILES][4], const Head &, const Piece &piece, int, const Place &place, const Activations &activations) {
        const Half2 minus_1152 = 0xe480e480u;
#pragma unroll
        for (int group = 0; group < 2; group++) {
            const uint32_t upper_codes = word_of(piece.rows[0], 2 * group), upper_signs = word_of(piece.rows[0], 2 * group + 1);
            const uint32_t lower_codes = word_of(piece.rows[1], 2 * group), lower_signs = word_of(piece.rows[1], 2 * group + 1);
            const Half2 upper = half2_of((float)(2 * (upper_signs >> 28) + 1)), upper_bias = half2_fma(upper, minus_1152, 0);
            const Half2 lower = half2_of((float)(2 * (lower_signs >> 28) + 1)), lower_bias = half2_fma(lower, minus_1152, 0);
#pragma unroll
            for (int eight = 0; eight < 4; eight++) {
                const uint32_t above = nibbles(place.tables, upper_codes, upper_signs, eight);
                const uint32_t below = nibbles(place.tables, lower_codes, lower_signs, eight);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    Half2 a[4];
                    scaled_codes(a, values(above >> (16 * i)), values(below >> (16 * i)), upper, upper_bias, lower, lower_bias);
#pragma unroll
                    for (int n = 0; n < TILES; n++) step(part[n], a, activations.template quad<16>(n, 0, group * 8 + eight * 2 + i));
                }
            }
        }
    }

    template <int TILES, class Activations>
    static __device__ __forceinline__ void finish(float (&part)[TILES][4], const Head &head, const Place &, const Activations &) {
        scale_rows(part, half_low(head.factors) * 0.125f, half_high(head.factors) * 0.125f);
    }
};

// Everything a lane needs of a block of 256 channels, loaded at once.
template <class Weights> struct Block {
    typename Weights::Head head;
    typename Weights::Piece pieces[Weights::PIECES];

    __device__ __forceinline__ void load(const Place &place, uint32_t panel, uint32_t block) {
        head = Weights::load_head(place, panel, block);
#pragma unroll
        for (int i = 0; i < Weights::PIECES; i++) pieces[i] = Weights::load(place, panel, block, i);
    }

    template <int TILES, class Activations>
    __device__ __forceinline__ void multiply(float (&part)[TILES][4], const Place &place, const Activations &activations) const {
        clear(part);
#pragma unroll
        for (int i = 0; i < Weights::PIECES; i++) Weights::multiply(part, head, pieces[i], i, place, activations);
        Weights::finish(part, head, place, activations);
    }
};

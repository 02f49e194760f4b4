// What an owner does to weights on the device: cutting rows into tiles, and hashing them in the file's order.
//
// Byte orders are those of `layout/` beside this folder: a panel is 16 rows, a tile is `tile_row_bytes` bytes of each of
// them, permuted by a table that the host makes from `Tile::sources`.
#include <stdint.h>

#define PANEL_ROWS 16
// Largest table of a type: 16 rows of 144 bytes.
#define TABLE_MAX (PANEL_ROWS * 144)
// All four tables, one after the other.
#define TABLES_LEN (PANEL_ROWS * (68 + 66 + 84 + 144))

struct Split {
    // Bytes of a row in the file.
    uint32_t row_bytes;
    // Bytes that a row has in a tile.
    uint32_t tile_row_bytes;
    uint32_t tile_bytes;
    // Tiles of a panel.
    uint32_t tiles;
};

// Puts `len` bytes, which in the file start at byte `first_byte` of row `first_row`, to where the tiles have them.
// `to` is the tensor's start; `table[row in panel * tile_row_bytes + byte]` is a byte's place in its tile.
extern "C" __global__ void split_bytes(const uint8_t *from, uint32_t len, uint8_t *to, const uint16_t *table,
                                       Split split, uint64_t first_row, uint32_t first_byte) {
    __shared__ uint16_t places[TABLE_MAX];
    for (uint32_t i = threadIdx.x; i < split.tile_bytes; i += blockDim.x) places[i] = table[i];
    __syncthreads();
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < len; i += gridDim.x * blockDim.x) {
        uint32_t at = first_byte + i;
        uint32_t rows = at / split.row_bytes;
        uint32_t in_row = at - rows * split.row_bytes;
        uint32_t tile = in_row / split.tile_row_bytes;
        uint32_t in_tile = in_row - tile * split.tile_row_bytes;
        uint64_t row = first_row + rows;
        uint64_t first = ((row / PANEL_ROWS) * split.tiles + tile) * split.tile_bytes;
        to[first + places[(uint32_t)(row % PANEL_ROWS) * split.tile_row_bytes + in_tile]] = from[i];
    }
}

struct Leaf {
    // Start of the tensor.
    const uint8_t *tensor;
    // First byte of the leaf in the file's order, and how many.
    uint64_t start;
    uint32_t len;
    // Where the type's table starts among all.
    uint32_t table;
    // All zero for a tensor that lies as in the file.
    Split split;
};

// Reads a tensor's bytes in the file's order.
struct Reader {
    const uint8_t *tensor;
    const uint16_t *places;
    Split split;
    // The next byte: its row, its tile, its place in the row's part of that tile.
    uint64_t row;
    uint32_t tile;
    uint32_t in_tile;
    const uint8_t *tile_start;

    __device__ void seek(const Leaf &leaf, const uint16_t *tables) {
        tensor = leaf.tensor;
        split = leaf.split;
        if (split.row_bytes == 0) {
            tile_start = tensor + leaf.start;
            return;
        }
        places = tables + leaf.table;
        row = leaf.start / split.row_bytes;
        uint32_t in_row = (uint32_t)(leaf.start - row * split.row_bytes);
        tile = in_row / split.tile_row_bytes;
        in_tile = in_row - tile * split.tile_row_bytes;
        find_tile();
    }

    __device__ void find_tile() {
        tile_start = tensor + ((row / PANEL_ROWS) * split.tiles + tile) * split.tile_bytes;
    }

    __device__ uint32_t next() {
        uint32_t byte = tile_start[places[(uint32_t)(row % PANEL_ROWS) * split.tile_row_bytes + in_tile]];
        in_tile += 1;
        bool row_ends = tile * split.tile_row_bytes + in_tile == split.row_bytes;
        if (row_ends || in_tile == split.tile_row_bytes) {
            in_tile = 0;
            tile = row_ends ? 0 : tile + 1;
            row += row_ends;
            find_tile();
        }
        return byte;
    }

    // The next 16 words as SHA-256 reads them, most significant byte first.
    __device__ void block(uint32_t (&words)[16]) {
        if (split.row_bytes == 0) {
            // Tensors and leaves start at multiples of 256 bytes.
            const uint4 *quads = (const uint4 *)tile_start;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint4 quad = quads[i];
                words[4 * i] = __byte_perm(quad.x, 0, 0x0123);
                words[4 * i + 1] = __byte_perm(quad.y, 0, 0x0123);
                words[4 * i + 2] = __byte_perm(quad.z, 0, 0x0123);
                words[4 * i + 3] = __byte_perm(quad.w, 0, 0x0123);
            }
            tile_start += 64;
            return;
        }
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint32_t word = next() << 24;
            word |= next() << 16;
            word |= next() << 8;
            words[i] = word | next();
        }
    }

    __device__ uint32_t byte() { return split.row_bytes == 0 ? *tile_start++ : next(); }
};

__constant__ uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

__device__ __forceinline__ uint32_t rotated(uint32_t x, int by) { return __funnelshift_r(x, x, by); }

// One round of SHA-256's compression (FIPS 180-4, 6.2.2) for 16 words, which it uses up.
__device__ void compress(uint32_t (&state)[8], uint32_t (&w)[16]) {
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
#pragma unroll
    for (int i = 0; i < 64; i++) {
        if (i >= 16) {
            uint32_t w15 = w[(i + 1) & 15], w2 = w[(i + 14) & 15];
            uint32_t s0 = rotated(w15, 7) ^ rotated(w15, 18) ^ (w15 >> 3);
            uint32_t s1 = rotated(w2, 17) ^ rotated(w2, 19) ^ (w2 >> 10);
            w[i & 15] += s0 + w[(i + 9) & 15] + s1;
        }
        uint32_t s1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
        uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + ROUND[i] + w[i & 15];
        uint32_t s0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
        uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

// SHA-256 of every leaf, one thread a leaf: a hash is a chain, so speed comes from the number of leaves.
extern "C" __global__ void __launch_bounds__(64)
leaf_digests(const Leaf *leaves, uint32_t count, const uint16_t *tables, uint32_t *digests) {
    __shared__ uint16_t places[TABLES_LEN];
    for (uint32_t i = threadIdx.x; i < TABLES_LEN; i += blockDim.x) places[i] = tables[i];
    __syncthreads();
    uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    Leaf leaf = leaves[index];
    Reader reader;
    reader.seek(leaf, places);
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint32_t w[16];
    for (uint32_t block = 0; block < leaf.len / 64; block++) {
        reader.block(w);
        compress(state, w);
    }
    // The rest, a 1 bit, zeros, and the length in bits as the last two words.
    uint32_t rest = leaf.len % 64;
    for (int last = rest >= 56; last >= 0; last--) {
        bool begins = last == (rest >= 56);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint32_t word = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t at = 4 * i + j;
                uint32_t byte = !begins ? 0 : at < rest ? reader.byte() : at == rest ? 0x80 : 0;
                word = word << 8 | byte;
            }
            w[i] = word;
        }
        if (last == 0) {
            w[14] = leaf.len >> 29;
            w[15] = leaf.len << 3;
        }
        compress(state, w);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) digests[8 * index + i] = __byte_perm(state[i], 0, 0x0123);
}

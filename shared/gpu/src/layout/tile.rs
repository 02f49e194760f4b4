//! The order of bytes inside a tile, type by type.
//!
//! Lane `4g + t` of a warp (`g` in 0..8, `t` in 0..4) multiplies rows `g` and `g + 8` of a panel. A section's order is
//! written as the loops that walk it, outermost first.

use ds4_units::TensorType;

/// Rows of a panel, and of a tile.
pub const PANEL_ROWS: usize = 16;

/// The size of a type's tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    kind: TensorType,
    columns: usize,
    row_bytes: usize,
}

/// Where a byte of a tile comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileByte {
    /// Row of the panel, below [`PANEL_ROWS`].
    pub row: u8,
    /// Byte among those that the row's blocks have in this tile, in the file's order.
    pub offset: u16,
}

impl Tile {
    /// The tile of a type that is split.
    pub fn of(kind: TensorType) -> Option<Tile> {
        let columns = match kind {
            TensorType::Q8_0 => 64,
            TensorType::IQ2_XXS | TensorType::Q2_K | TensorType::Q4_K => 256,
            _ => return None,
        };
        let row_bytes = kind.byte_len(columns as u64)?.index();
        Some(Tile { kind, columns, row_bytes })
    }

    /// Inputs that a tile covers.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes that one row has in a tile.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Bytes of a tile.
    pub fn bytes(&self) -> usize {
        PANEL_ROWS * self.row_bytes
    }

    /// The source of every byte, in the tile's order.
    pub fn sources(&self) -> Vec<TileByte> {
        let mut bytes = Vec::with_capacity(self.bytes());
        match self.kind {
            TensorType::Q8_0 => q8_0(&mut bytes),
            TensorType::IQ2_XXS => iq2_xxs(&mut bytes),
            TensorType::Q2_K => q2_k(&mut bytes),
            TensorType::Q4_K => q4_k(&mut bytes),
            other => unreachable!("{other} has no tile"),
        }
        debug_assert_eq!(bytes.len(), self.bytes());
        bytes
    }
}

/// Both halves of the panel, and in each its 32 lanes: row and `t`.
fn lanes() -> impl Iterator<Item = (usize, usize)> {
    (0..2).flat_map(|half| (0..32).map(move |lane| (lane / 4 + 8 * half, lane % 4)))
}

/// Rows `g` and `g + 8` next to each other, as a lane wants them.
fn row_pairs() -> impl Iterator<Item = usize> {
    (0..8).flat_map(|g| [g, g + 8])
}

fn run(bytes: &mut Vec<TileByte>, row: usize, first: usize, len: usize) {
    bytes.extend((first..first + len).map(|offset| TileByte { row: row as u8, offset: offset as u16 }));
}

/// Two blocks of 32: a lane has eight codes of each, for its part of a product over one scale.
fn q8_0(bytes: &mut Vec<TileByte>) {
    for (row, t) in lanes() {
        run(bytes, row, 2 + 8 * t, 8);
        run(bytes, row, 34 + 2 + 8 * t, 8);
    }
    for row in row_pairs() {
        run(bytes, row, 0, 2);
        run(bytes, row, 34, 2);
    }
}

/// A lane has two whole groups of 32: grid indices, signs and scales.
fn iq2_xxs(bytes: &mut Vec<TileByte>) {
    for (row, t) in lanes() {
        run(bytes, row, 2 + 16 * t, 16);
    }
    for row in row_pairs() {
        run(bytes, row, 0, 2);
    }
}

/// A lane has eight code bytes of each half of the block. They belong to groups of 16 of one parity (`t / 2`), so the
/// scale bytes are parted by parity.
fn q2_k(bytes: &mut Vec<TileByte>) {
    for (row, t) in lanes() {
        run(bytes, row, 16 + 8 * t, 8);
        run(bytes, row, 16 + 32 + 8 * t, 8);
    }
    for g in 0..8 {
        for parity in 0..2 {
            for row in [g, g + 8] {
                (0..8).for_each(|group| run(bytes, row, 2 * group + parity, 1));
            }
        }
    }
    for row in row_pairs() {
        run(bytes, row, 80, 4);
    }
}

/// A lane has the 32 code bytes of two groups, in two loads; then each row's head with `d`, `dmin` and the scales.
fn q4_k(bytes: &mut Vec<TileByte>) {
    for half in 0..2 {
        for load in 0..2 {
            for lane in 0..32 {
                run(bytes, lane / 4 + 8 * half, 16 + 32 * (lane % 4) + 16 * load, 16);
            }
        }
    }
    for row in row_pairs() {
        run(bytes, row, 0, 16);
    }
}

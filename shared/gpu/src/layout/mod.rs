//! The split layout: how quantised weights lie in a GPU's memory.
//!
//! A matrix of `rows` outputs by `columns` inputs (a stack of experts is one matrix of all their rows) is cut into
//! panels of 16 rows, a panel into tiles along the inputs, and the tiles follow each other without gaps. Inside a tile
//! the bytes of its blocks are permuted so that every lane of a warp finds the codes it multiplies in one aligned
//! 16-byte load, the scales stand apart, and the whole tile is one contiguous read. A lane's codes are its part of the
//! 16 x 16 operand of the matrix units, so the same bytes serve one row of activations and a thousand.
//!
//! The layout takes as many bytes as the file's blocks, plus what the last panel and the last tile of a row lack:
//! missing blocks are zero bytes. Panels are independent, so a matrix may be built in pieces of whole panels.
//!
//! [`split`] and [`unsplit`] are the truth for every other builder.

mod tile;

pub use tile::{PANEL_ROWS, Tile, TileByte};

use ds4_units::{Bytes, TensorType};

/// Whether tensors of this type are stored split on a GPU. Others keep the file's order.
pub fn is_split(kind: TensorType) -> bool {
    Tile::of(kind).is_some()
}

/// Bytes of a split matrix; `None` when the type is not split, `columns` do not fill whole blocks, or the size does
/// not fit 64 bits.
pub fn split_len(kind: TensorType, rows: usize, columns: usize) -> Option<Bytes> {
    let tile = Tile::of(kind)?;
    kind.byte_len(columns as u64)?;
    let tiles = rows.div_ceil(PANEL_ROWS).checked_mul(columns.div_ceil(tile.columns()))?;
    (tiles as u64).checked_mul(tile.bytes() as u64).map(Bytes)
}

/// The split bytes of a matrix in the file's order.
///
/// # Panics
/// When the type is not split or `raw` is not exactly `rows` rows.
pub fn split(kind: TensorType, rows: usize, columns: usize, raw: &[u8]) -> Vec<u8> {
    let (tile, mut out, row_bytes) = sizes(kind, rows, columns);
    assert_eq!(raw.len(), rows * row_bytes, "{rows} rows of {columns} {kind}");
    each_byte(tile, rows, row_bytes, |to, from| out[to] = raw[from]);
    out
}

/// The exact inverse of [`split`].
///
/// # Panics
/// When the type is not split or `split` has not the length that [`split_len`] gives.
pub fn unsplit(kind: TensorType, rows: usize, columns: usize, split: &[u8]) -> Vec<u8> {
    let (tile, expected, row_bytes) = sizes(kind, rows, columns);
    assert_eq!(split.len(), expected.len(), "{rows} rows of {columns} {kind}");
    let mut raw = vec![0; rows * row_bytes];
    each_byte(tile, rows, row_bytes, |from, to| raw[to] = split[from]);
    raw
}

/// The type's tile, zeros for the split bytes, and the bytes of a row in the file's order.
fn sizes(kind: TensorType, rows: usize, columns: usize) -> (Tile, Vec<u8>, usize) {
    let tile = Tile::of(kind).unwrap_or_else(|| panic!("{kind} is not split"));
    let len = split_len(kind, rows, columns).unwrap_or_else(|| panic!("{columns} columns of {kind}"));
    let row_bytes = kind.byte_len(columns as u64).expect("checked by split_len");
    (tile, vec![0; len.index()], row_bytes.index())
}

/// Calls `pair` with the split and the file's offset of every byte.
fn each_byte(tile: Tile, rows: usize, row_bytes: usize, mut pair: impl FnMut(usize, usize)) {
    let sources = tile.sources();
    let tiles = row_bytes.div_ceil(tile.row_bytes());
    for panel in 0..rows.div_ceil(PANEL_ROWS) {
        for at in 0..tiles {
            let base = (panel * tiles + at) * tile.bytes();
            for (byte, source) in sources.iter().enumerate() {
                let row = panel * PANEL_ROWS + usize::from(source.row);
                let within = at * tile.row_bytes() + usize::from(source.offset);
                if row < rows && within < row_bytes {
                    pair(base + byte, row * row_bytes + within);
                }
            }
        }
    }
}

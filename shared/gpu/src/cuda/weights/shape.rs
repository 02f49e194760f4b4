//! Split matrices as the kernels see them.

use crate::layout::{Tile, split_len};
use bytemuck::NoUninit;
use ds4_units::{Bytes, TensorType};

/// Types that are split, in the order of their tables.
const KINDS: [TensorType; 4] = [TensorType::Q8_0, TensorType::IQ2_XXS, TensorType::Q2_K, TensorType::Q4_K];

/// A matrix that is stored split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitShape {
    kind: usize,
    tile: Tile,
    rows: usize,
    columns: usize,
    len: Bytes,
}

/// `Split` of `cu/weights.cu`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct SplitArg {
    pub(super) row_bytes: u32,
    pub(super) tile_row_bytes: u32,
    pub(super) tile_bytes: u32,
    pub(super) tiles: u32,
}

// SAFETY: four `u32` in C order: no padding, nothing but plain numbers.
unsafe impl NoUninit for SplitArg {}

impl SplitShape {
    /// The split form of a matrix of `rows` (of all matrices of a stack) by `columns`; `None` when its type is not
    /// split, its columns do not fill whole blocks, or a row has 2^32 bytes.
    pub fn new(kind: TensorType, rows: usize, columns: usize) -> Option<SplitShape> {
        let tile = Tile::of(kind)?;
        let len = split_len(kind, rows, columns)?;
        u32::try_from(kind.byte_len(columns as u64)?.0).ok()?;
        let kind = KINDS.iter().position(|there| *there == kind)?;
        Some(SplitShape { kind, tile, rows, columns, len })
    }

    /// Its length in memory.
    pub fn len(&self) -> Bytes {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == Bytes::ZERO
    }

    /// Its length in the file.
    pub(super) fn file_len(&self) -> u64 {
        self.rows as u64 * u64::from(self.row_bytes())
    }

    /// Bytes of a row in the file. They fit, see [`SplitShape::new`].
    pub(super) fn row_bytes(&self) -> u32 {
        KINDS[self.kind].byte_len(self.columns as u64).map_or(0, |bytes| bytes.0 as u32)
    }

    pub(super) fn arg(&self) -> SplitArg {
        SplitArg {
            row_bytes: self.row_bytes(),
            tile_row_bytes: self.tile.row_bytes() as u32,
            tile_bytes: self.tile.bytes() as u32,
            tiles: self.columns.div_ceil(self.tile.columns()) as u32,
        }
    }

    /// Where its type's table starts among [`tables`].
    pub(super) fn table_start(&self) -> u32 {
        KINDS[..self.kind].iter().filter_map(|kind| Tile::of(*kind)).map(|tile| tile.bytes() as u32).sum()
    }
}

/// For each type and each byte of a tile's rows, row after row: its place in the tile.
pub(super) fn tables() -> Vec<u16> {
    let mut tables = Vec::new();
    for tile in KINDS.into_iter().filter_map(Tile::of) {
        let start = tables.len();
        tables.resize(start + tile.bytes(), 0);
        for (place, source) in (0..).zip(tile.sources()) {
            tables[start + usize::from(source.row) * tile.row_bytes() + usize::from(source.offset)] = place;
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{PANEL_ROWS, is_split, split};

    #[test]
    fn every_split_type_has_a_table() {
        let split: Vec<TensorType> = TensorType::ALL.iter().copied().filter(|kind| is_split(*kind)).collect();
        assert_eq!(split.len(), KINDS.len());
        assert!(split.iter().all(|kind| KINDS.contains(kind)));
        // The kernel has room for exactly these.
        assert_eq!(tables().len(), PANEL_ROWS * (68 + 66 + 84 + 144));
    }

    #[test]
    fn the_tables_place_bytes_where_the_layout_has_them() {
        for kind in KINDS {
            let tile = Tile::of(kind).unwrap();
            let shape = SplitShape::new(kind, PANEL_ROWS, tile.columns()).unwrap();
            let raw: Vec<u8> = (0..tile.bytes()).map(|i| (i * 167 / 3) as u8).collect();
            let table = &tables()[shape.table_start() as usize..][..tile.bytes()];
            let mut placed = vec![0; tile.bytes()];
            raw.iter().zip(table).for_each(|(&byte, &place)| placed[usize::from(place)] = byte);
            assert_eq!(placed, split(kind, PANEL_ROWS, tile.columns(), &raw), "{kind}");
        }
    }
}

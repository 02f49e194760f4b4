//! How a product with many rows is cut into tiles. None of this changes a bit of a result.

/// Weight rows of a tile; of a tile that has a gate and its linear part: half of it of each.
const BAND: usize = 256;
/// Bytes of a stage for a row: 128 channels.
const STAGE_ROW: usize = 256;
/// Stages in shared memory: at most, and at least for a kernel to overlap copies with products.
const STAGES_MAX: usize = 16;
const STAGES_LEAST: usize = 5;
/// To align the first stage.
const ALIGNMENT: usize = 1024;
/// Shared memory that a kernel has besides: barriers.
const FIXED: usize = 1024;
/// Bytes of the tables of IQ2_XXS: 384 words, a copy for every lane or for every fourth.
const TABLES: usize = 384 * 4;
const TABLE_COPIES: [usize; 2] = [32, 8];
/// What a tile costs besides its rows, in rows: its weights are decoded once, and its pipeline fills and empties.
const TILE_COST: usize = 40;

/// Rows of activations in a tile, and with it the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TileRows {
    /// 32.
    Few,
    /// 64.
    Some,
    /// 128.
    Many,
}

impl TileRows {
    pub(super) const ALL: [TileRows; 3] = [TileRows::Few, TileRows::Some, TileRows::Many];

    /// The number.
    pub(super) const fn count(self) -> usize {
        match self {
            TileRows::Few => 32,
            TileRows::Some => 64,
            TileRows::Many => 128,
        }
    }
}

/// What a GPU and a format allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Multiprocessors, each with one block of threads.
    pub(super) multiprocessors: usize,
    /// Shared memory that a block may ask for.
    pub(super) shared: usize,
    /// Whether the units take operands of four warps: the kernels of such GPUs keep more copies of tables.
    pub(super) has_warpgroups: bool,
    /// The widest tile that the format has a kernel for.
    pub(super) widest: TileRows,
    /// Whether it needs tables.
    pub(super) has_tables: bool,
    /// Whether it takes two half floats of every activation.
    pub(super) is_split: bool,
}

impl Limits {
    fn tables(&self) -> usize {
        if self.has_tables { TABLES * TABLE_COPIES[usize::from(!self.has_warpgroups)] } else { 0 }
    }

    /// Stages that fit for tiles of so many rows, and the shared memory to ask for.
    pub(super) fn stages(&self, rows: TileRows) -> (usize, usize) {
        let stage = rows.count() * STAGE_ROW * if self.is_split { 2 } else { 1 };
        let rest = ALIGNMENT + self.tables();
        let stages = (self.shared.saturating_sub(rest + FIXED) / stage).min(STAGES_MAX);
        (stages, rest + stages * stage)
    }

    /// The tiles that have kernels and shared memory.
    pub(super) fn tiles(&self) -> impl Iterator<Item = TileRows> + use<> {
        let limits = *self;
        let fits = move |rows: &TileRows| *rows <= limits.widest && limits.stages(*rows).0 >= STAGES_LEAST;
        TileRows::ALL.into_iter().filter(fits)
    }

    /// The tile that multiplies `rows` rows with each of `parts` times `bands` bands of weight rows fastest.
    pub(super) fn for_rows(&self, rows: usize, parts: usize, bands: usize) -> TileRows {
        let cost = |tile: &TileRows| {
            let tiles = rows.div_ceil(tile.count()) * parts * bands;
            tiles.div_ceil(self.multiprocessors) * (tile.count() + TILE_COST)
        };
        self.tiles().min_by_key(cost).unwrap_or(TileRows::Few)
    }

    /// The tile for groups that have `mean` rows on average.
    pub(super) fn for_groups(&self, mean: usize) -> TileRows {
        // Groups spread around their mean, and a second tile reads the group's weights again.
        self.tiles().find(|tile| mean + mean / 4 <= tile.count()).or(self.tiles().last()).unwrap_or(TileRows::Few)
    }
}

/// Bands of a matrix with so many outputs, or of a gate and its linear part.
pub(super) fn bands(outputs: usize, is_gated: bool) -> usize {
    const BLOCK: usize = 256;
    const PANEL: usize = 16;
    // One whose rows do not fill panels may begin in the middle of one.
    let begins_inside = if outputs.is_multiple_of(PANEL) { 0 } else { PANEL };
    match is_gated {
        true => (outputs.next_multiple_of(BLOCK) + begins_inside).div_ceil(BAND / 2),
        false => (outputs + begins_inside).div_ceil(BAND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOPPER: Limits = Limits {
        multiprocessors: 132,
        shared: 227 << 10,
        has_warpgroups: true,
        widest: TileRows::Many,
        has_tables: true,
        is_split: false,
    };
    const SMALL: Limits = Limits { shared: 99 << 10, has_warpgroups: false, ..HOPPER };
    const SPLIT: Limits = Limits { has_tables: false, is_split: true, ..SMALL };

    #[test]
    fn every_choice_has_shared_memory_for_its_stages() {
        for limits in [HOPPER, SMALL, SPLIT] {
            for rows in [33, 64, 500, 2048, 8192] {
                for tile in [limits.for_rows(rows, 1, 16), limits.for_groups(rows)] {
                    let (stages, shared) = limits.stages(tile);
                    assert!(stages >= STAGES_LEAST && shared + FIXED <= limits.shared, "{limits:?}: {tile:?}");
                }
            }
        }
    }

    #[test]
    fn tiles_grow_with_the_rows_as_far_as_all_multiprocessors_have_some() {
        assert_eq!(HOPPER.for_rows(2048, 1, 128), TileRows::Many);
        assert_eq!(HOPPER.for_rows(2048, 1, 2), TileRows::Few);
        assert_eq!(HOPPER.for_rows(40, 1, 16), TileRows::Few);
        assert_eq!(HOPPER.for_rows(64, 1, 128), TileRows::Some);
        assert_eq!(HOPPER.for_groups(10), TileRows::Few);
        assert_eq!(HOPPER.for_groups(48), TileRows::Some);
        assert_eq!(HOPPER.for_groups(96), TileRows::Many);
        assert_eq!(HOPPER.for_groups(1000), TileRows::Many);
    }

    #[test]
    fn bands_cover_every_output() {
        assert_eq!((bands(4096, false), bands(24, false), bands(250, false)), (16, 1, 2));
        assert_eq!((bands(2048, true), bands(20, true)), (16, 3));
    }
}

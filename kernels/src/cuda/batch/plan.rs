//! How products with some rows are cut into clusters of blocks of threads. Only how many blocks a cluster has, which
//! depends on the channels alone, decides anything about a result.

use super::{blocks, panels};

/// Warps of a block of threads, each with a panel at a time.
pub(super) const WARPS: usize = 8;
/// Blocks of threads of a cluster at most, and blocks of channels that one of them has at least.
const RANKS_MAX: usize = 4;
const SLICE_MIN: usize = 2;
/// Rows of the kernels, and their blocks of threads for every multiprocessor.
const VARIANTS: [(usize, usize); 2] = [(16, 2), (32, 2)];
/// Shared memory of a row's block of channels, in fixed point and as pairs of half floats, its scale included.
const ROW_FIXED: usize = 2 * 256 + 32 + 4;
const ROW_HALVES: usize = 4 * 256 + 32 + 4;
/// Shared memory of a multiprocessor that a block of threads does not have: what the driver takes.
const RESERVED: usize = 1 << 10;

/// Shared memory of a block of threads with so many blocks of channels of so many rows.
fn shared(blocks: usize, rows: usize, row: usize) -> usize {
    blocks * rows * row + 2 * WARPS * super::PANEL * (rows + 1) * size_of::<f32>()
}

/// Clusters for a matrix whose warps take so many panels: each has as many as any, or one less.
fn clusters(outputs: usize, parts: usize, rounds: usize) -> usize {
    panels(outputs).div_ceil(WARPS * rounds * parts) * parts
}

/// What a GPU allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) multiprocessors: usize,
    /// Shared memory that a block of threads may ask for: nearly all that a multiprocessor has.
    pub(super) shared: usize,
}

/// A launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Which of the kernels, and how many of them take the rows.
    pub(super) variant: usize,
    pub(super) tiles: usize,
    /// Blocks of a cluster.
    pub(super) ranks: usize,
    pub(super) shared: usize,
    /// Clusters of every matrix.
    pub(super) clusters: Vec<usize>,
}

impl Limits {
    /// Blocks of threads that share out the channels, a power of two: as many as give every multiprocessor one and leave
    /// room for two, whatever the rows.
    fn ranks(&self, columns: usize, parts: usize, row: usize, outputs: &[usize]) -> usize {
        let blocks = blocks(columns);
        let panels: usize = outputs.iter().map(|&outputs| clusters(outputs, parts, 1)).sum();
        let mut ranks = 1;
        while ranks < RANKS_MAX && blocks.is_multiple_of(2 * ranks) && blocks / (2 * ranks) >= SLICE_MIN {
            let is_busy = 10 * panels * ranks >= 9 * self.multiprocessors;
            if is_busy && 2 * (shared(blocks / ranks, VARIANTS[0].0, row) + RESERVED) <= self.shared {
                break;
            }
            ranks *= 2;
        }
        ranks
    }

    /// The launch for so many rows of `parts` parts of `columns` channels with matrices of so many outputs, if there is a
    /// kernel for them.
    pub(super) fn plan(
        &self,
        rows: usize,
        columns: usize,
        parts: usize,
        some_halves: bool,
        outputs: &[usize],
    ) -> Option<Plan> {
        let row = if some_halves { ROW_HALVES } else { ROW_FIXED };
        let ranks = self.ranks(columns, parts, row, outputs);
        let shared = |room: usize| shared(blocks(columns) / ranks, room, row);
        let whole_parts = parts == 1 || outputs.iter().all(|outputs| outputs.is_multiple_of(parts * super::PANEL));
        // The kernel whose shared memory there is that takes all rows, or as many as any.
        let mut fitting = VARIANTS.iter().enumerate().filter(|(_, (room, _))| shared(*room) <= self.shared);
        let last = fitting.clone().next_back()?;
        let (variant, &(room, together)) = fitting.find(|(_, (room, _))| rows <= *room).unwrap_or(last);
        if !columns.is_multiple_of(super::CHANNELS) || !whole_parts {
            return None;
        }
        let (tiles, shared) = (rows.div_ceil(room), shared(room));
        let fit = (self.shared / (shared + RESERVED)).clamp(1, together);
        let most = (fit * self.multiprocessors / ranks).max(outputs.len() * parts);
        let clusters =
            |rounds: usize| -> Vec<usize> { outputs.iter().map(|&outputs| clusters(outputs, parts, rounds)).collect() };
        let rounds = (1..).find(|&rounds| clusters(rounds).iter().sum::<usize>() <= most)?;
        Some(Plan { variant, tiles, ranks, shared, clusters: clusters(rounds) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Limits = Limits { multiprocessors: 132, shared: 227 << 10 };
    const SMALL: Limits = Limits { multiprocessors: 48, shared: 99 << 10 };

    #[test]
    fn channels_are_shared_out_to_keep_the_device_busy_and_the_same_for_all_rows() {
        let ranks = |columns, parts, outputs: &[usize]| {
            let of = |rows| H200.plan(rows, columns, parts, false, outputs).expect("a launch").ranks;
            assert!((9..=32).all(|rows| of(rows) == of(9)));
            of(9)
        };
        assert_eq!(ranks(1024, 1, &[32_768]), 1);
        assert_eq!(ranks(2048, 1, &[4096]), 4);
        assert_eq!(ranks(4096, 8, &[8192]), 2);
        assert_eq!(ranks(4096, 1, &[1024, 512]), 4);
        assert_eq!(ranks(4096, 1, &[129_280]), 2);
        assert_eq!(ranks(8192, 1, &[4096]), 4);
        assert_eq!(ranks(2304, 1, &[4096]), 1);
    }

    #[test]
    fn every_plan_has_a_cluster_for_every_part_of_every_matrix_and_fits_shared_memory() {
        for limits in [H200, SMALL] {
            for rows in [9, 16, 17, 32] {
                // As models have them: half floats beside codes where attention and experts begin, codes alone elsewhere.
                for (columns, parts, some_halves, outputs) in [
                    (4096, 1, true, &[1024, 512, 64][..]),
                    (1024, 1, true, &[32_768, 8192]),
                    (4096, 8, false, &[8192]),
                    (8192, 1, false, &[4096]),
                    (4096, 1, false, &[129_280]),
                    (256, 1, true, &[24]),
                ] {
                    let plan = limits.plan(rows, columns, parts, some_halves, outputs).expect("a launch");
                    assert!(plan.tiles * VARIANTS[plan.variant].0 >= rows, "{plan:?}");
                    assert!(plan.shared <= limits.shared, "{plan:?}");
                    assert!(plan.clusters.iter().all(|&clusters| clusters > 0 && clusters.is_multiple_of(parts)));
                    let most = 2 * limits.multiprocessors / plan.ranks;
                    assert!(plan.clusters.iter().sum::<usize>() <= most.max(outputs.len() * parts), "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_left_to_others() {
        assert_eq!(H200.plan(16, 4000, 1, false, &[1024]), None);
        assert_eq!(H200.plan(16, 4096, 8, false, &[100]), None);
        assert_eq!(SMALL.plan(16, 65_536, 1, true, &[1024]), None);
        assert_eq!(SMALL.plan(16, 8192, 1, true, &[4096]), None);
        assert_eq!(H200.plan(32, 8192, 1, false, &[4096]).map(|plan| plan.tiles), Some(1));
        assert_eq!(SMALL.plan(32, 4096, 1, true, &[1024]).map(|plan| plan.tiles), Some(2));
    }
}

//! How a product with few rows is cut into blocks of threads. None of this changes a bit of a result.

/// Rows of weights that a warp multiplies together.
const PANEL_ROWS: usize = 16;
/// Channels of a block, the unit in which rows are cut.
const BLOCK: usize = 256;
/// Steps of more rows take the kernels for many rows.
pub(super) const FEW_ROWS: usize = 32;
/// Warps of a block of threads.
const STREAM_WARPS: usize = 8;
/// Shared memory of a row of activations in a block of channels.
const STAGED_ROW: usize = 1024 + 4 * 32 + 64 + 16;
/// Shared memory of a part for eight rows of activations.
const PART_BYTES: usize = PANEL_ROWS * 8 * size_of::<f32>();

/// Shared memory that a `stream` kernel gives to the parts of its results at most.
const PARTS_MAX: usize = 32 << 10;
/// What it gives to rows of activations, if it keeps them there: at most, and without sharing them out first.
const STAGED_MAX: usize = 40 << 10;
const STAGED_WELL: usize = 20 << 10;
/// All that it may ask for. Every architecture has as much for a block of threads.
pub(super) const STREAM_SHARED_MAX: usize = PARTS_MAX + STAGED_MAX;
/// Blocks of threads in a cluster at most: what every architecture takes.
const RANKS_MAX: usize = 8;
/// Blocks of threads for every multiprocessor that a launch wants before its blocks grow.
const PLENTY: usize = 3;

/// Rows of a group at most.
pub(super) const GROUP_ROWS: usize = 8;

/// A product's size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Weight rows of one matrix, or of one part.
    pub(super) outputs: usize,
    /// Channels.
    pub(super) columns: usize,
    /// Groups of rows, over all parts and both matrices.
    pub(super) groups: usize,
    /// Rows that a `stream` kernel of the format keeps in shared memory: of most groups, and of a group at most.
    pub(super) staged_rows: usize,
    pub(super) staged_rows_most: usize,
    /// Multiprocessors of the GPU.
    pub(super) multiprocessors: usize,
}

/// A launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Blocks of threads along the weight rows, in clusters of `ranks`.
    pub(super) across: usize,
    pub(super) ranks: usize,
    pub(super) threads: usize,
    pub(super) panels_per_cluster: usize,
    pub(super) staged_bytes: usize,
    pub(super) shared: usize,
}

impl Size {
    /// Panels that a matrix may touch: one whose rows do not fill panels may begin in the middle of one.
    fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL_ROWS) + usize::from(!self.outputs.is_multiple_of(PANEL_ROWS))
    }

    fn blocks(&self) -> usize {
        self.columns.div_ceil(BLOCK)
    }

    /// A cluster shares out the channels of a matrix with few outputs, as long as every warp has a part; of one with
    /// many, a cluster takes as many panels as leave every multiprocessor enough to do. Rows kept in shared memory are
    /// copied for every cluster, so many of them want few clusters, and few channels in each block of threads.
    pub(super) fn cut(&self) -> Cut {
        let part = PART_BYTES;
        let (panels, blocks) = (self.panels(), self.blocks());
        let own = |ranks: usize| blocks.div_ceil(ranks);
        let launched = |ranks: usize, each: usize| panels.div_ceil(each) * ranks * self.groups;
        let too_much = |ranks: usize| {
            own(ranks) * part > PARTS_MAX || own(ranks) * self.staged_rows * STAGED_ROW > STAGED_WELL && ranks < blocks
        };
        let (mut ranks, mut each) = (1, 1);
        while ranks < RANKS_MAX && too_much(ranks) {
            ranks *= 2;
        }
        while ranks < RANKS_MAX && launched(ranks, each) < self.multiprocessors && own(2 * ranks) >= STREAM_WARPS {
            ranks *= 2;
        }
        let fits = |each: usize| each * own(ranks) * part <= PARTS_MAX && each <= panels;
        while fits(2 * each) && each * own(ranks) < STREAM_WARPS {
            each *= 2;
        }
        let enough = self.multiprocessors * if self.staged_rows > 2 { 1 } else { PLENTY };
        while fits(2 * each) && launched(ranks, 2 * each) >= enough {
            each *= 2;
        }
        let staged_bytes = (own(ranks) * self.staged_rows).max(self.staged_rows_most) * STAGED_ROW;
        let staged_bytes = staged_bytes.min(STAGED_MAX);
        Cut {
            across: panels.div_ceil(each) * ranks,
            ranks,
            threads: STREAM_WARPS * 32,
            panels_per_cluster: each,
            staged_bytes,
            shared: each * own(ranks) * part + staged_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(outputs: usize, columns: usize, staged_rows: usize) -> Size {
        Size { outputs, columns, groups: 1, staged_rows, staged_rows_most: staged_rows, multiprocessors: 132 }
    }

    #[test]
    fn every_cut_covers_the_matrix_and_fits_shared_memory() {
        for outputs in [1, 5, 16, 24, 40, 256, 1024, 4096, 129_280] {
            for columns in [1, 32, 256, 1000, 1024, 4096, 8192, 28_672, 65_536] {
                for rows in [0, 1, 8] {
                    let cut = size(outputs, columns, rows).cut();
                    assert!(cut.shared <= STREAM_SHARED_MAX, "{outputs}x{columns}, {rows} rows: {cut:?}");
                    assert!(cut.staged_bytes >= rows * STAGED_ROW);
                    assert!(cut.across / cut.ranks * cut.panels_per_cluster * PANEL_ROWS >= outputs);
                    assert!(cut.across.is_multiple_of(cut.ranks));
                }
            }
        }
    }

    #[test]
    fn a_matrix_with_few_outputs_is_shared_out_along_its_channels() {
        assert_eq!(size(24, 16_384, 0).cut().ranks, 8);
        assert_eq!(size(1024, 4096, 0).cut().ranks, 2);
        assert_eq!(size(129_280, 4096, 0).cut().ranks, 1);
    }
}

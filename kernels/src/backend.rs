//! The operations a model graph is written against. [`crate::reference::Cpu`] is the truth; every other backend is
//! checked against it, operation by operation.

use crate::bank::{BankImage, BankSizes, BankState, BlockBytes, BlockPlace, StreamsPlace, WindowPlace};
use crate::compression::Compressor;
use crate::experts::{EXPERTS_USED, ExpertConstants};
use crate::hyper_connection::{HyperConstants, Mixed};
use crate::kv_rows::KvFormat;
use crate::rope::Rope;
use crate::step::Step;
use crate::{Matrix, MatrixError, Rows};
use ds4_gpu::{MemoryPiece, RangeError};
use ds4_units::{Bytes, MemoryUse, TokenId};
use std::ops::Range;

/// Why a backend could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BackendError {
    #[error("no memory for {what}: {asked} more are needed, {free} are free")]
    OutOfMemory { what: &'static str, asked: Bytes, free: Bytes },
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    /// The device refused or failed. Some failures are for good: [`BackendError::is_fatal`].
    #[error("{what}")]
    Device { what: String, fatal: bool },
    /// Memory of the host cannot be had or taken over.
    #[error(transparent)]
    Memory(#[from] HostMemoryError),
    #[error("a bank's memory has {found} and needs {needed}")]
    MemoryTooSmall { found: Bytes, needed: Bytes },
}

/// Why memory of the host cannot be had, in words.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct HostMemoryError(String);

impl From<RangeError> for BackendError {
    fn from(error: RangeError) -> BackendError {
        BackendError::Memory(HostMemoryError(error.to_string()))
    }
}

impl BackendError {
    /// Whether the device is lost to this process: only a new process can go on.
    pub fn is_fatal(&self) -> bool {
        matches!(self, BackendError::Device { fatal: true, .. })
    }
}

/// A hyper-connection site's weights.
#[derive(Clone, Debug)]
pub struct HyperSite<B: Backend> {
    /// `[mix width, 4E]`.
    pub mix: B::Matrix,
    /// Added to the scaled mixes.
    pub base: B::Vector,
    /// Scales the gates, the output gates and the stream matrix (the head's site has only the first).
    pub scale: B::Vector,
    /// Multiplies the normalised block input.
    pub norm: B::Vector,
}

/// Gate, up and down matrices of one expert or a stack of them.
#[derive(Clone, Debug)]
pub struct Mlp<B: Backend> {
    /// `[ff, E]` each.
    pub gate: B::Matrix,
    /// `[ff, E]` each.
    pub up: B::Matrix,
    /// `[E, ff]` each.
    pub down: B::Matrix,
}

/// What a layer does with its heads around attention.
#[derive(Clone, Copy, Debug)]
pub struct HeadPath<'a, B: Backend> {
    /// Channels of a head.
    pub width: usize,
    /// Under the root of a head's norm.
    pub epsilon: f32,
    /// Turns the end of every head, and of its result back.
    pub rope: &'a Rope,
    /// A value per head that takes part in its weights.
    pub sinks: &'a B::Vector,
    /// Multiplies the results, in so many groups of heads.
    pub output: &'a B::Matrix,
    /// See `output`.
    pub groups: usize,
}

/// How a layer chooses experts.
#[derive(Clone, Debug)]
pub enum Routing<B: Backend> {
    /// The best scores, after a bias.
    Best {
        /// One value per expert.
        bias: Option<B::Vector>,
    },
    /// Fixed per token of the vocabulary.
    ByToken(B::ExpertTable),
}

/// A layer's experts.
#[derive(Debug)]
pub struct Experts<'a, B: Backend> {
    /// `[experts, E]`.
    pub router: &'a B::Matrix,
    /// How its logits choose.
    pub routing: &'a Routing<B>,
    /// A stack each.
    pub routed: &'a Mlp<B>,
    /// One, for every row.
    pub shared: &'a Mlp<B>,
    /// Clamps and scales.
    pub constants: &'a ExpertConstants,
}

/// What attention does with the products of its input.
#[derive(Debug)]
pub struct Settling<'a, B: Backend> {
    /// Multiplies the query's normalised low rank.
    pub low_norm: &'a B::Vector,
    /// Multiplies normalised new rows.
    pub row_norm: &'a B::Vector,
    /// Under the roots.
    pub epsilon: f32,
    /// Turns new rows.
    pub rope: &'a Rope,
    /// Where new rows go.
    pub window: WindowPlace,
}

/// A compressor with the products it takes: values and gates.
pub type Feed<'a, B> = (&'a Compressor<<B as Backend>::Vector>, <B as Backend>::Rows, <B as Backend>::Rows);

/// What the operations of a step end with.
#[derive(Debug)]
pub struct Produced<R> {
    /// Of the wanted rows; nothing where none is wanted.
    pub logits: Option<R>,
    /// What a [`Backend::replay`] of a part of the step will need.
    pub kept: Vec<R>,
}

/// What a step gives back.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed<R> {
    /// The logits that were asked for, row after row.
    pub logits: Vec<f32>,
    /// The token of every wanted row's largest logit, the lowest of equal ones; none where a logit is not finite.
    pub best: Vec<Option<TokenId>>,
    /// What the operations kept, in their order. It can be read until the next step is computed, and not after it.
    pub kept: Vec<R>,
}

/// A device and its tensors.
///
/// Rows of a step are computed together, but a row's result never depends on the other rows. Operations that read or
/// write banks take the whole step; the caller brackets them with [`Backend::begin`] and [`Backend::commit`].
///
/// Operations may return before a device has done them and report no error themselves: the first that fails makes the
/// rest of the step void, and [`Backend::finish`] and [`Backend::download`] return it.
pub trait Backend: Send + Sync + Sized + 'static {
    /// How key-value rows are stored.
    type Kv: KvFormat;
    /// A weight matrix on the device.
    type Matrix: Clone + std::fmt::Debug + Send + Sync;
    /// A vector of `f32` weights on the device.
    type Vector: Clone + std::fmt::Debug + Send + Sync;
    /// Fixed experts by token on the device.
    type ExpertTable: Clone + std::fmt::Debug + Send + Sync;
    /// Activations on the device.
    type Rows: Send;
    /// Routes on the device.
    type Routes;
    /// Chosen compressed rows on the device.
    type Selection;
    /// One conversation's memory.
    type Bank: Send;
    /// A copy of a bank's recurrent part.
    type Checkpoint: Send;
    /// What a model keeps so that its steps repeat quickly.
    type Repeats: Default + Send + Sync;

    /// The widest head that attention takes, in channels.
    const HEAD_WIDTH_MAX: usize;

    /// Prompt rows in one step from which on more rows make no row cheaper.
    const PREFILL_ROWS: usize;

    /// Rows of a step of which a part may be done once more: with more of them, what is computed may differ in its last
    /// bits from what a step of one row gives, or too much would have to be kept.
    const REPLAY_ROWS: usize;

    /// Memory beyond weights and banks, by what it is for.
    fn memory(&self) -> Vec<(MemoryUse, Bytes)>;

    /// Runs the operations of one step where the backend wants them: the CPU's run inside its thread pool, so that a
    /// small operation need not wake another thread.
    fn run<R: Send>(&self, step: impl FnOnce() -> R + Send) -> R;

    /// Computes a step: `operations` put its operations in order and return the logits of its wanted rows, which come
    /// back for those whose places among the wanted ones are in `full`. Blocks until all of it is done.
    ///
    /// A backend may repeat what `operations` did for an earlier step of the same shape, with this step's rows. So
    /// they depend on nothing but the model, the number of rows and wanted rows, [`Step::reach`] and
    /// [`Step::longest`], and `repeats` belongs to the model alone.
    fn compute<'a>(
        &self,
        _repeats: &Self::Repeats,
        step: &mut Step<'a, Self::Bank>,
        full: &[usize],
        operations: impl FnOnce(&Self, &mut Step<'a, Self::Bank>) -> Produced<Self::Rows>,
    ) -> Result<Computed<Self::Rows>, BackendError> {
        compute(self, step, full, operations)
    }

    /// Does a part of the last computed step once more, from what it kept: `operations` only store. Blocks until all of
    /// it is done.
    fn replay<'a>(
        &self,
        step: &mut Step<'a, Self::Bank>,
        operations: impl FnOnce(&Self, &mut Step<'a, Self::Bank>),
    ) -> Result<(), BackendError> {
        self.prepare(step)?;
        operations(self, step);
        self.finish()
    }

    /// Memory that a step like this one would take at most, beside weights and banks and beyond what steps have taken
    /// already; with `take` it is taken, so that no such step has to. Computes nothing: `operations` are those that
    /// [`Backend::compute`] would get.
    fn try_out<'a>(
        &self,
        step: &mut Step<'a, Self::Bank>,
        take: bool,
        operations: impl FnOnce(&Self, &mut Step<'a, Self::Bank>) -> Produced<Self::Rows>,
    ) -> Result<Bytes, BackendError>;
    /// What was taken for steps and is in [`Backend::memory`] only when steps have reached it.
    fn memory_to_come(&self) -> Bytes {
        Bytes::ZERO
    }
    /// The most that [`Backend::memory`] may yet grow by for recordings of steps.
    fn recordings_to_come(&self, repeats: &Self::Repeats) -> Bytes {
        let _ = repeats;
        Bytes::ZERO
    }

    /// Takes a matrix where it is; refuses one in a layout or a memory that it cannot compute with.
    fn matrix(&self, stored: Matrix) -> Result<Self::Matrix, BackendError>;
    /// Takes a vector.
    fn vector(&self, values: Vec<f32>) -> Result<Self::Vector, BackendError>;
    /// Takes a table of fixed experts.
    fn expert_table(&self, table: Vec<[u32; EXPERTS_USED]>) -> Result<Self::ExpertTable, BackendError>;

    /// An empty bank. It takes memory when its first step begins.
    fn new_bank(&self, sizes: BankSizes) -> Self::Bank;
    /// Prepares a bank to hold `tokens` tokens after the step about to run. When it fails the bank holds what it held.
    fn begin(&self, bank: &mut Self::Bank, tokens: usize) -> Result<(), BackendError>;
    /// The same, going on from what the last step wrote, which is not committed and never will be: the next step reads
    /// and writes the same copy of the recurrent part, so its segment has a single row.
    fn begin_on_top(&self, bank: &mut Self::Bank, tokens: usize) -> Result<(), BackendError>;
    /// Makes the step's writes the bank's state.
    fn commit(&self, bank: &mut Self::Bank);
    /// A second bank with a copy of the first one's committed recurrent part, and of the blocks of its first `tokens`
    /// tokens. Where it held more, the copy has to be restored to a checkpoint of so many.
    fn fork(&self, bank: &Self::Bank, tokens: usize) -> Result<Self::Bank, BackendError>;
    /// Copies the committed recurrent part.
    fn checkpoint(&self, bank: &Self::Bank) -> Result<Self::Checkpoint, BackendError>;
    /// Goes back to a checkpoint taken when the bank held `tokens` tokens. What the bank's memory told before is intact
    /// until its next step; of pieces that are given back, for whoever keeps them.
    fn restore(&self, bank: &mut Self::Bank, checkpoint: &Self::Checkpoint, tokens: usize) -> Result<(), BackendError>;
    /// The bank's bytes from block `first` on. Waits for what was put before it.
    fn read_bank(&self, bank: &Self::Bank, first: usize) -> Result<BankImage, BackendError>;
    /// Gives a bank blocks with these bytes, `first` and those after it; the ones before must be there. Waits for it.
    fn write_blocks(&self, bank: &mut Self::Bank, first: usize, blocks: &[BlockBytes]) -> Result<(), BackendError>;
    /// Gives a bank's committed recurrent part these bytes. Waits for it.
    fn write_recurrent(&self, bank: &mut Self::Bank, bytes: &[u8]) -> Result<(), BackendError>;
    /// The most memory that a bank of so many blocks holds, however it has grown.
    fn bank_memory(sizes: BankSizes, blocks: usize) -> Bytes {
        Bytes((blocks * sizes.block + 2 * sizes.recurrent) as u64)
    }
    /// What a checkpoint holds.
    fn checkpoint_memory(sizes: BankSizes) -> Bytes {
        Bytes(sizes.recurrent as u64)
    }
    /// What the memory of banks is of: only the same device can go on with it.
    fn memory_of(&self) -> String;
    /// Which copy of the recurrent part tells the bank's state.
    fn committed(&self, bank: &Self::Bank) -> usize;
    /// A number that is another one whenever pieces of the bank's memory have come or gone.
    fn memory_changes(&self, bank: &Self::Bank) -> u64;
    /// Lengths of the pieces of the bank's memory.
    fn memory_pieces(&self, bank: &Self::Bank) -> Vec<Bytes>;
    /// Descriptors that keep the bank's memory when this process is gone.
    fn export_memory(&self, bank: &Self::Bank) -> Result<Vec<MemoryPiece>, BackendError>;
    /// A bank in memory that a dead process has left.
    fn adopt_memory(
        &self,
        sizes: BankSizes,
        state: BankState,
        pieces: Vec<MemoryPiece>,
    ) -> Result<Self::Bank, BackendError>;
    /// Lengths of the pieces of a checkpoint's memory.
    fn checkpoint_pieces(&self, checkpoint: &Self::Checkpoint) -> Vec<Bytes>;
    /// Descriptors that keep a checkpoint.
    fn export_checkpoint(&self, checkpoint: &Self::Checkpoint) -> Result<Vec<MemoryPiece>, BackendError>;
    /// A checkpoint that a dead process has left.
    fn adopt_checkpoint(&self, sizes: BankSizes, pieces: Vec<MemoryPiece>) -> Result<Self::Checkpoint, BackendError>;
    /// Memory a bank holds.
    fn bank_bytes(&self, bank: &Self::Bank) -> Bytes;
    /// Memory a checkpoint holds.
    fn checkpoint_bytes(&self, checkpoint: &Self::Checkpoint) -> Bytes;

    /// Brings what every operation of the step needs to know to the device. Called once, before the first of them.
    fn prepare(&self, step: &Step<'_, Self::Bank>) -> Result<(), BackendError>;
    /// Waits for the step's operations; an error means that none of them counts.
    fn finish(&self) -> Result<(), BackendError>;

    /// The same values as rows of `width`.
    fn reshaped(&self, rows: Self::Rows, width: usize) -> Self::Rows;
    /// Rows of kept ones, which can be read as long as those.
    fn part(&self, rows: &Self::Rows, range: Range<usize>) -> Self::Rows;
    /// Adds the same number of other values.
    fn add(&self, rows: &mut Self::Rows, others: &Self::Rows);
    /// For every row the streams of the token before it: those of the row before it in `streams`, and for the first of a
    /// segment, and where there are none, those that its bank keeps. An empty bank keeps zeros.
    fn take_streams(
        &self,
        step: &Step<'_, Self::Bank>,
        place: StreamsPlace,
        streams: Option<&Self::Rows>,
    ) -> Self::Rows;
    /// Makes every segment's bank keep the streams of its last row.
    fn leave_streams(&self, step: &mut Step<'_, Self::Bank>, place: StreamsPlace, streams: &Self::Rows);

    /// The four streams of every row, each the token's embedding.
    fn embed(&self, table: &Self::Matrix, step: &Step<'_, Self::Bank>) -> Self::Rows;
    /// `matrix . row` for every row.
    fn multiply(&self, matrix: &Self::Matrix, rows: &Self::Rows) -> Self::Rows;
    /// The same for several matrices.
    fn multiply_all(&self, matrices: &[&Self::Matrix], rows: &Self::Rows) -> Vec<Self::Rows> {
        matrices.iter().map(|matrix| self.multiply(matrix, rows)).collect()
    }
    /// Splits every row and the matrix's outputs into `groups` equal parts and multiplies part by part.
    fn multiply_groups(&self, matrix: &Self::Matrix, groups: usize, rows: &Self::Rows) -> Self::Rows;
    /// Root-mean-square normalisation of every row.
    fn normalize(&self, rows: &mut Self::Rows, weight: &Self::Vector, epsilon: f32);
    /// The same per head of `width` channels, without a weight.
    fn normalize_heads(&self, rows: &mut Self::Rows, width: usize, epsilon: f32);
    /// Rotates the end of every head of `width` channels at its row's position.
    fn rotate(&self, rows: &mut Self::Rows, width: usize, rope: &Rope, step: &Step<'_, Self::Bank>);
    /// Undoes [`Backend::rotate`].
    fn rotate_back(&self, rows: &mut Self::Rows, width: usize, rope: &Rope, step: &Step<'_, Self::Bank>);

    /// A site's block input and merge values from the streams.
    fn mix(&self, site: &HyperSite<Self>, constants: &HyperConstants, streams: &Self::Rows) -> Mixed<Self::Rows>;
    /// Merges a block's output into the streams.
    fn merge(&self, streams: &mut Self::Rows, merge: &Self::Rows, output: &Self::Rows);
    /// A product, merged. The site that comes next is named so that it may be begun.
    fn multiply_and_merge(
        &self,
        matrix: &Self::Matrix,
        rows: &Self::Rows,
        [streams, merge]: [&mut Self::Rows; 2],
        _next: Option<&HyperSite<Self>>,
    ) {
        let output = self.multiply(matrix, rows);
        self.merge(streams, merge, &output);
    }
    /// The head's input from the streams of the step's wanted rows.
    fn collapse(
        &self,
        site: &HyperSite<Self>,
        constants: &HyperConstants,
        streams: &Self::Rows,
        step: &Step<'_, Self::Bank>,
    ) -> Self::Rows;

    /// Rounds new raw rows as storing does and stores them in their banks' windows.
    fn store_window(&self, step: &mut Step<'_, Self::Bank>, place: WindowPlace, rows: &mut Self::Rows);
    /// Feeds a compressor and stores the rows it finishes.
    fn compress(
        &self,
        step: &mut Step<'_, Self::Bank>,
        compressor: &Compressor<Self::Vector>,
        values: &Self::Rows,
        gates: &Self::Rows,
    );
    /// Everything between the products of attention's input and those of the query's low rank.
    fn settle(
        &self,
        step: &mut Step<'_, Self::Bank>,
        settling: &Settling<'_, Self>,
        [low, rows]: [&mut Self::Rows; 2],
        feeds: &[Feed<'_, Self>],
    ) {
        settle(self, step, settling, [low, rows], feeds);
    }
    /// [`Backend::settle`], and then products of the low rank. `merge`: what the site's [`Backend::mix`] gave, of which a
    /// backend may have left something to be made meanwhile. The low rank itself is not asked for again.
    fn settle_and_multiply(
        &self,
        step: &mut Step<'_, Self::Bank>,
        settling: &Settling<'_, Self>,
        [low, rows]: [&mut Self::Rows; 2],
        feeds: &[Feed<'_, Self>],
        (matrices, merge): (&[&Self::Matrix], &Self::Rows),
    ) -> Vec<Self::Rows> {
        let _ = merge;
        self.settle(step, settling, [&mut *low, rows], feeds);
        self.multiply_all(matrices, low)
    }
    /// A selection of every finished row.
    fn select_all(&self, step: &Step<'_, Self::Bank>) -> Self::Selection;
    /// The `top` best finished rows for every query, by index rows in `place`. Queries are as they were multiplied; they
    /// are turned here.
    fn select(
        &self,
        step: &Step<'_, Self::Bank>,
        place: BlockPlace,
        top: usize,
        rope: &Rope,
        queries: Self::Rows,
        weights: &Self::Rows,
    ) -> Self::Selection;
    /// Latent attention over the window and, where the layer has them, the selected compressed rows in `compressed`.
    fn attend(
        &self,
        step: &Step<'_, Self::Bank>,
        window: WindowPlace,
        compressed: Option<(BlockPlace, &Self::Selection)>,
        queries: &Self::Rows,
        new_rows: &Self::Rows,
        sinks: &Self::Vector,
    ) -> Self::Rows;

    /// Everything between the product that makes heads and the one that takes their results, that one included: norm,
    /// rotation, attention, rotation back, and product by groups. The result is that of these operations one by one, but for
    /// rounding.
    fn attend_heads(
        &self,
        step: &Step<'_, Self::Bank>,
        window: WindowPlace,
        compressed: Option<(BlockPlace, &Self::Selection)>,
        queries: Self::Rows,
        new_rows: &Self::Rows,
        path: &HeadPath<'_, Self>,
    ) -> Self::Rows {
        attend_one_by_one(self, step, window, compressed, queries, new_rows, path)
    }

    /// Chooses and weighs experts from the router's logits.
    fn route(
        &self,
        step: &Step<'_, Self::Bank>,
        logits: &Self::Rows,
        routing: &Routing<Self>,
        constants: &ExpertConstants,
    ) -> Self::Routes;
    /// Shared expert plus weighted routed experts.
    fn feed_forward(
        &self,
        routed: &Mlp<Self>,
        shared: &Mlp<Self>,
        constants: &ExpertConstants,
        routes: &Self::Routes,
        rows: &Self::Rows,
    ) -> Self::Rows;

    /// The router's product, its routes, their experts, and the sum merged. The site that comes next is named so that
    /// it may be begun.
    fn feed_forward_and_merge(
        &self,
        step: &Step<'_, Self::Bank>,
        experts: &Experts<'_, Self>,
        rows: &Self::Rows,
        [streams, merge]: [&mut Self::Rows; 2],
        _next: Option<&HyperSite<Self>>,
    ) {
        let output = feed_forward(self, step, experts, rows);
        self.merge(streams, merge, &output);
    }

    /// Waits for the operations that made these rows and brings them to the host.
    fn download(&self, rows: Self::Rows) -> Result<Rows, BackendError>;
}

/// The place of the largest value, the first of equal ones; none where one is not finite.
pub fn best(row: &[f32]) -> Option<TokenId> {
    let mut best = None;
    for (&value, token) in row.iter().zip(0..) {
        if !value.is_finite() {
            return None;
        }
        if best.is_none_or(|(_, highest)| value > highest) {
            best = Some((TokenId(token), value));
        }
    }
    best.map(|(token, _)| token)
}

/// [`Backend::compute`] without repeating anything.
pub fn compute<'a, B: Backend>(
    backend: &B,
    step: &mut Step<'a, B::Bank>,
    full: &[usize],
    operations: impl FnOnce(&B, &mut Step<'a, B::Bank>) -> Produced<B::Rows>,
) -> Result<Computed<B::Rows>, BackendError> {
    backend.prepare(step)?;
    let Produced { logits, kept } = operations(backend, step);
    let rows = logits.map(|rows| backend.download(rows)).transpose()?;
    backend.finish()?;
    let Some(rows) = rows else { return Ok(Computed { logits: Vec::new(), best: Vec::new(), kept }) };
    let logits = full.iter().flat_map(|&row| rows.row(row)).copied().collect();
    Ok(Computed { logits, best: rows.iter().map(best).collect(), kept })
}

/// [`Backend::attend_heads`] out of the operations that it stands for.
pub(crate) fn attend_one_by_one<B: Backend>(
    backend: &B,
    step: &Step<'_, B::Bank>,
    window: WindowPlace,
    compressed: Option<(BlockPlace, &B::Selection)>,
    mut queries: B::Rows,
    new_rows: &B::Rows,
    path: &HeadPath<'_, B>,
) -> B::Rows {
    backend.normalize_heads(&mut queries, path.width, path.epsilon);
    backend.rotate(&mut queries, path.width, path.rope, step);
    let mut heads = backend.attend(step, window, compressed, &queries, new_rows, path.sinks);
    drop(queries);
    backend.rotate_back(&mut heads, path.width, path.rope, step);
    backend.multiply_groups(path.output, path.groups, &heads)
}

/// [`Backend::settle`] by its single operations.
pub fn settle<B: Backend>(
    backend: &B,
    step: &mut Step<'_, B::Bank>,
    settling: &Settling<'_, B>,
    [low, rows]: [&mut B::Rows; 2],
    feeds: &[Feed<'_, B>],
) {
    backend.normalize(low, settling.low_norm, settling.epsilon);
    backend.normalize(rows, settling.row_norm, settling.epsilon);
    backend.rotate(rows, settling.window.array.width, settling.rope, step);
    backend.store_window(step, settling.window, rows);
    for (compressor, values, gates) in feeds {
        backend.compress(step, compressor, values, gates);
    }
}

/// The feed-forward site's output by single operations.
pub fn feed_forward<B: Backend>(
    backend: &B,
    step: &Step<'_, B::Bank>,
    experts: &Experts<'_, B>,
    rows: &B::Rows,
) -> B::Rows {
    let routes = {
        let logits = backend.multiply(experts.router, rows);
        backend.route(step, &logits, experts.routing, experts.constants)
    };
    backend.feed_forward(experts.routed, experts.shared, experts.constants, &routes, rows)
}

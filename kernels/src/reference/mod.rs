//! The CPU backend: plain code that is the truth for every other backend, and fast enough to serve a small model.
//!
//! Work runs on rayon's threads; how it is cut never changes a result.

mod attention;
mod bank;
pub mod blocks;
mod ceiling;
mod compressor;
mod dot;
mod exp;
mod experts;
mod hyper_connection;
mod indexer;
mod multiply;
mod norm;
mod router;
mod workspace;

pub use bank::{HostBank, HostCheckpoint};
pub(crate) use ceiling::fastest_product;
pub(crate) use workspace::Piece;

use crate::backend::{Backend, BackendError, HyperSite, Mlp, Produced, Routing};
use crate::bank::{BankImage, BankSizes, BankState, BlockBytes, BlockPlace, StreamsPlace, WindowPlace};
use crate::compression::{Compressor, Selection};
use crate::experts::{EXPERTS_USED, ExpertConstants, Routes};
use crate::hyper_connection::{HyperConstants, Mixed, STREAMS};
use crate::kv_rows::KvFormat;
use crate::rope::{Rope, Rotation};
use crate::step::Step;
use crate::{Matrix, Rows};
use ds4_gpu::MemoryPiece;
use ds4_units::{Bytes, MemoryUse};
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use workspace::Workspace;

/// The CPU, keeping rows in format `F`. A clone shares its memory of steps.
#[derive(Clone, Debug)]
pub struct Cpu<F: KvFormat> {
    workspace: Workspace,
    rows: PhantomData<F>,
}

impl<F: KvFormat> Cpu<F> {
    /// The backend. It holds nothing yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Cpu<F> {
        Cpu { workspace: Workspace::default(), rows: PhantomData }
    }

    /// How many buffers of steps did not fit into the memory that was taken for them, so far.
    pub fn beyond_memory(&self) -> usize {
        self.workspace.beyond()
    }
}

impl<F: KvFormat> Backend for Cpu<F> {
    type Kv = F;
    type Matrix = Matrix;
    type Vector = Vec<f32>;
    type ExpertTable = Arc<[[u32; EXPERTS_USED]]>;
    type Rows = Rows;
    type Routes = Routes;
    type Selection = Selection;
    type Bank = HostBank;
    type Checkpoint = HostCheckpoint;
    type Repeats = ();

    const HEAD_WIDTH_MAX: usize = usize::MAX;
    const PREFILL_ROWS: usize = 512;
    const REPLAY_ROWS: usize = 64;

    fn memory(&self) -> Vec<(MemoryUse, Bytes)> {
        vec![(MemoryUse::Activations, self.workspace.made())]
    }

    fn memory_to_come(&self) -> Bytes {
        Bytes(self.workspace.bytes().0 - self.workspace.made().0)
    }

    fn run<R: Send>(&self, step: impl FnOnce() -> R + Send) -> R {
        // `join` moves to a thread of the pool and comes back when both halves are done; the other half is nothing.
        rayon::join(step, || ()).0
    }

    fn try_out<'a>(
        &self,
        step: &mut Step<'a, HostBank>,
        take: bool,
        operations: impl FnOnce(&Self, &mut Step<'a, HostBank>) -> Produced<Rows>,
    ) -> Result<Bytes, BackendError> {
        let needed = self.workspace.try_out(|| drop(operations(self, step)));
        let more = Bytes(needed.0.saturating_sub(self.workspace.bytes().0));
        if take {
            self.workspace.hold(needed)?;
        }
        Ok(more)
    }

    fn matrix(&self, stored: Matrix) -> Result<Matrix, BackendError> {
        Ok(stored.for_host()?)
    }

    fn vector(&self, values: Vec<f32>) -> Result<Vec<f32>, BackendError> {
        Ok(values)
    }

    fn expert_table(&self, table: Vec<[u32; EXPERTS_USED]>) -> Result<Self::ExpertTable, BackendError> {
        Ok(table.into())
    }

    fn new_bank(&self, sizes: BankSizes) -> HostBank {
        HostBank::new(sizes)
    }

    fn begin(&self, bank: &mut HostBank, tokens: usize) -> Result<(), BackendError> {
        bank.begin(tokens)
    }

    fn begin_on_top(&self, bank: &mut HostBank, tokens: usize) -> Result<(), BackendError> {
        bank.begin_on_top(tokens)
    }

    fn commit(&self, bank: &mut HostBank) {
        bank.commit();
    }

    fn fork(&self, bank: &HostBank, tokens: usize) -> Result<HostBank, BackendError> {
        bank.fork(tokens)
    }

    fn checkpoint(&self, bank: &HostBank) -> Result<HostCheckpoint, BackendError> {
        bank.checkpoint()
    }

    fn restore(&self, bank: &mut HostBank, checkpoint: &HostCheckpoint, tokens: usize) -> Result<(), BackendError> {
        bank.restore(checkpoint, tokens)
    }

    fn read_bank(&self, bank: &HostBank, first: usize) -> Result<BankImage, BackendError> {
        Ok(bank.image(first))
    }

    fn write_blocks(&self, bank: &mut HostBank, first: usize, blocks: &[BlockBytes]) -> Result<(), BackendError> {
        bank.write_blocks(first, blocks)
    }

    fn write_recurrent(&self, bank: &mut HostBank, bytes: &[u8]) -> Result<(), BackendError> {
        bank.write_recurrent(bytes)
    }

    fn memory_of(&self) -> String {
        "host".to_owned()
    }

    fn committed(&self, bank: &HostBank) -> usize {
        bank.state().committed
    }

    fn memory_changes(&self, bank: &HostBank) -> u64 {
        bank.memory().changes()
    }

    fn memory_pieces(&self, bank: &HostBank) -> Vec<Bytes> {
        bank.memory().pieces().collect()
    }

    fn export_memory(&self, bank: &HostBank) -> Result<Vec<MemoryPiece>, BackendError> {
        Ok(bank.memory().export()?)
    }

    fn adopt_memory(
        &self,
        sizes: BankSizes,
        state: BankState,
        pieces: Vec<MemoryPiece>,
    ) -> Result<HostBank, BackendError> {
        HostBank::adopt(sizes, state, pieces)
    }

    fn checkpoint_pieces(&self, checkpoint: &HostCheckpoint) -> Vec<Bytes> {
        checkpoint.memory().pieces().collect()
    }

    fn export_checkpoint(&self, checkpoint: &HostCheckpoint) -> Result<Vec<MemoryPiece>, BackendError> {
        Ok(checkpoint.memory().export()?)
    }

    fn adopt_checkpoint(&self, sizes: BankSizes, pieces: Vec<MemoryPiece>) -> Result<HostCheckpoint, BackendError> {
        HostCheckpoint::adopt(sizes, pieces)
    }

    fn bank_bytes(&self, bank: &HostBank) -> Bytes {
        Bytes(bank.bytes() as u64)
    }

    fn checkpoint_bytes(&self, checkpoint: &HostCheckpoint) -> Bytes {
        Bytes(checkpoint.bytes() as u64)
    }

    fn prepare(&self, _step: &Step<'_, HostBank>) -> Result<(), BackendError> {
        Ok(())
    }

    fn finish(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn reshaped(&self, rows: Rows, width: usize) -> Rows {
        rows.reshaped(width)
    }

    fn part(&self, rows: &Rows, range: Range<usize>) -> Rows {
        let mut part = self.workspace.rows(range.len(), rows.width());
        let values = range.start * rows.width()..range.end * rows.width();
        self.workspace.work(|| part.values_mut().copy_from_slice(&rows.values()[values]));
        part
    }

    fn add(&self, rows: &mut Rows, others: &Rows) {
        rows.values_mut().iter_mut().zip(others.values()).for_each(|(value, other)| *value += other);
    }

    fn take_streams(&self, step: &Step<'_, HostBank>, place: StreamsPlace, streams: Option<&Rows>) -> Rows {
        let mut taken = self.workspace.rows(step.len(), place.floats);
        self.workspace.work(|| {
            for segment in &step.segments {
                for row in segment.rows.clone() {
                    let before = match streams.filter(|_| row > segment.rows.start) {
                        Some(streams) => streams.row(row - 1),
                        None => segment.bank.before_floats(place.offset, place.floats),
                    };
                    taken.row_mut(row).copy_from_slice(before);
                }
            }
        });
        taken
    }

    fn leave_streams(&self, step: &mut Step<'_, HostBank>, place: StreamsPlace, streams: &Rows) {
        self.workspace.work(|| {
            for segment in &mut step.segments {
                let kept = segment.bank.next_floats(place.offset, place.floats);
                kept.copy_from_slice(streams.row(segment.rows.end - 1));
            }
        });
    }

    fn embed(&self, table: &Matrix, step: &Step<'_, HostBank>) -> Rows {
        let width = table.columns();
        let mut streams = self.workspace.rows(step.len(), width * STREAMS);
        self.workspace.work(|| {
            for (index, token) in step.tokens.iter().enumerate() {
                let (first, others) = streams.row_mut(index).split_at_mut(width);
                let row = token.index();
                blocks::expand(table.kind(), table.rows_bytes(0, row..row + 1), first);
                others.chunks_exact_mut(width).for_each(|stream| stream.copy_from_slice(first));
            }
        });
        streams
    }

    fn multiply(&self, matrix: &Matrix, rows: &Rows) -> Rows {
        multiply::multiply(&self.workspace, matrix, rows)
    }

    fn multiply_groups(&self, matrix: &Matrix, groups: usize, rows: &Rows) -> Rows {
        multiply::multiply_groups(&self.workspace, matrix, groups, rows)
    }

    fn normalize(&self, rows: &mut Rows, weight: &Vec<f32>, epsilon: f32) {
        norm::normalize_rows(rows, weight, epsilon);
    }

    fn normalize_heads(&self, rows: &mut Rows, width: usize, epsilon: f32) {
        let heads = rows.values_mut().par_chunks_exact_mut(width);
        heads.with_min_len(min_rows(width)).for_each(|head| norm::normalize(head, epsilon));
    }

    fn rotate(&self, rows: &mut Rows, width: usize, rope: &Rope, step: &Step<'_, HostBank>) {
        each_head(rows, width, rope, step, Rotation::apply);
    }

    fn rotate_back(&self, rows: &mut Rows, width: usize, rope: &Rope, step: &Step<'_, HostBank>) {
        each_head(rows, width, rope, step, Rotation::undo);
    }

    fn mix(&self, site: &HyperSite<Self>, constants: &HyperConstants, streams: &Rows) -> Mixed<Rows> {
        hyper_connection::mix(&self.workspace, &host_site(site), &site.norm, constants, streams)
    }

    fn merge(&self, streams: &mut Rows, merge: &Rows, output: &Rows) {
        hyper_connection::merge(streams, merge, output);
    }

    fn collapse(
        &self,
        site: &HyperSite<Self>,
        constants: &HyperConstants,
        streams: &Rows,
        step: &Step<'_, HostBank>,
    ) -> Rows {
        let mut wanted = self.workspace.rows(step.wanted.len(), streams.width());
        let rows = wanted.values_mut().chunks_exact_mut(streams.width()).zip(&step.wanted);
        rows.for_each(|(wanted, &row)| wanted.copy_from_slice(streams.row(row)));
        hyper_connection::collapse(&self.workspace, &host_site(site), &site.norm, constants, &wanted)
    }

    fn store_window(&self, step: &mut Step<'_, HostBank>, place: WindowPlace, rows: &mut Rows) {
        self.workspace.work(|| attention::store_window::<F>(step, place, rows));
    }

    fn compress(&self, step: &mut Step<'_, HostBank>, compressor: &Compressor<Vec<f32>>, values: &Rows, gates: &Rows) {
        compressor::compress::<F>(&self.workspace, step, compressor, values, gates);
    }

    fn select_all(&self, step: &Step<'_, HostBank>) -> Selection {
        Selection::all(step.len())
    }

    fn select(
        &self,
        step: &Step<'_, HostBank>,
        place: BlockPlace,
        top: usize,
        rope: &Rope,
        mut queries: Rows,
        weights: &Rows,
    ) -> Selection {
        self.rotate(&mut queries, place.array.width, rope, step);
        let indexer = indexer::Indexer { rows: place, ratio: place.ratio(), top };
        indexer::select::<F>(&self.workspace, step, &indexer, &queries, weights)
    }

    fn attend(
        &self,
        step: &Step<'_, HostBank>,
        window: WindowPlace,
        compressed: Option<(BlockPlace, &Selection)>,
        queries: &Rows,
        new_rows: &Rows,
        sinks: &Vec<f32>,
    ) -> Rows {
        let compressed =
            compressed.map(|(rows, selection)| attention::Compressed { rows, ratio: rows.ratio(), selection });
        attention::attend::<F>(&self.workspace, step, window, compressed.as_ref(), queries, new_rows, sinks)
    }

    fn route(
        &self,
        step: &Step<'_, HostBank>,
        logits: &Rows,
        routing: &Routing<Self>,
        constants: &ExpertConstants,
    ) -> Routes {
        match routing {
            Routing::Best { bias } => router::route(logits, bias.as_deref(), None, constants.weight_scale),
            Routing::ByToken(table) => {
                router::route(logits, None, Some(&step.fixed_experts(table)), constants.weight_scale)
            }
        }
    }

    fn feed_forward(
        &self,
        routed: &Mlp<Self>,
        shared: &Mlp<Self>,
        constants: &ExpertConstants,
        routes: &Routes,
        rows: &Rows,
    ) -> Rows {
        experts::feed_forward(&self.workspace, &host_mlp(routed), &host_mlp(shared), constants, routes, rows)
    }

    fn download(&self, rows: Rows) -> Result<Rows, BackendError> {
        Ok(rows)
    }
}

/// Rows of this width that are worth handing to another thread.
fn min_rows(width: usize) -> usize {
    (1usize << 14).div_ceil(width)
}

fn host_site<F: KvFormat>(site: &HyperSite<Cpu<F>>) -> hyper_connection::Site<'_> {
    hyper_connection::Site { mix: &site.mix, base: &site.base, scale: &site.scale }
}

fn host_mlp<F: KvFormat>(mlp: &Mlp<Cpu<F>>) -> experts::Mlp<'_> {
    experts::Mlp { gate: &mlp.gate, up: &mlp.up, down: &mlp.down }
}

fn each_head(
    rows: &mut Rows,
    width: usize,
    rope: &Rope,
    step: &Step<'_, HostBank>,
    turn: impl Fn(&Rotation, &mut [f32]) + Sync,
) {
    let row_width = rows.width();
    let rows = rows.values_mut().par_chunks_exact_mut(row_width).zip(&step.positions);
    rows.with_min_len(min_rows(row_width)).for_each(|(row, &position)| {
        let rotation = rope.at(position);
        row.chunks_exact_mut(width).for_each(|head| turn(&rotation, head));
    });
}

//! The operations of a model graph on a GPU: each is one call into its file.

use super::bank::{DeviceBank, DeviceCheckpoint};
use super::device::{CudaOptions, Device};
use super::growing::mapped_most;
use super::matrix::DeviceMatrix;
use super::plan::StepPlan;
use super::repeat::Repeats;
use super::route::{DeviceRoutes, ExpertTable};
use super::rows::DeviceRows;
use super::select::DeviceSelection;
use super::vector::DeviceVector;
use super::{
    attend, attend_many, batch, compress, embed, feed_forward, few, hyper_connection, matrix, multiply, normalize,
    repeat, rotate, route, select, store_window, streams,
};
use crate::backend::{
    self, Backend, BackendError, Computed, Experts, Feed, HeadPath, HyperSite, Mlp, Produced, Routing, Settling,
    attend_one_by_one,
};
use crate::bank::{BankImage, BankSizes, BankState, BlockBytes, BlockPlace, StreamsPlace, WindowPlace};
use crate::compression::{Compressor, Selection};
use crate::experts::{EXPERTS_USED, ExpertConstants};
use crate::hyper_connection::{HyperConstants, Mixed};
use crate::kv_rows::KvFormat;
use crate::rope::Rope;
use crate::step::Step;
use crate::{Matrix, Rows};
use ds4_gpu::MemoryPiece;
use ds4_gpu::cuda::Gpu;
use ds4_units::{Bytes, MemoryUse};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// A GPU, keeping rows in format `F`. Cloning shares the device.
#[derive(Clone)]
pub struct Cuda<F: KvFormat> {
    pub(crate) device: Arc<Device>,
    kv: PhantomData<F>,
}

impl<F: KvFormat> Cuda<F> {
    /// Loads the kernels for this GPU; one that this program has no kernels for is refused with the list of those it
    /// has. Blocks for some ten milliseconds.
    pub fn new(gpu: &Gpu, options: CudaOptions) -> Result<Cuda<F>, BackendError> {
        Ok(Cuda { device: Arc::new(Device::open(gpu, options)?), kv: PhantomData })
    }

    /// Rows from the host, to try an operation with. Blocks.
    pub fn upload(&self, rows: &Rows) -> Result<DeviceRows, BackendError> {
        self.device.upload_rows(rows)
    }

    /// Rows for the host, to look at in the middle of a step. Blocks.
    pub fn peek(&self, rows: &DeviceRows) -> Result<Rows, BackendError> {
        few::make_due(&self.device, rows);
        self.device.download(rows)
    }

    /// A selection for the host, for each of `queries` queries. Blocks.
    pub fn selection(&self, selection: &DeviceSelection, queries: usize) -> Result<Selection, BackendError> {
        select::download(&self.device, selection, queries)
    }

    /// The buffers of the step that was tried out last, and the life of each.
    pub fn plan(&self) -> StepPlan {
        self.device.plan()
    }

    /// Merges, and begins the next site where that costs no reading of its own.
    fn merge_before(
        &self,
        streams: &mut DeviceRows,
        merge: &DeviceRows,
        output: &DeviceRows,
        next: Option<&HyperSite<Self>>,
    ) {
        few::make_due(&self.device, merge);
        match next {
            Some(next) => hyper_connection::merge_and_mix(&self.device, streams, merge, output, &next.mix),
            None => hyper_connection::merge(&self.device, streams, merge, output),
        }
    }

    /// The same device, keeping rows in another format.
    pub fn with_rows<G: KvFormat>(&self) -> Cuda<G> {
        Cuda { device: Arc::clone(&self.device), kv: PhantomData }
    }
}

impl<F: KvFormat> Backend for Cuda<F> {
    type Kv = F;
    type Matrix = DeviceMatrix;
    type Vector = DeviceVector;
    type ExpertTable = ExpertTable;
    type Rows = DeviceRows;
    type Routes = DeviceRoutes;
    type Selection = DeviceSelection;
    type Bank = DeviceBank;
    type Checkpoint = DeviceCheckpoint;
    type Repeats = Repeats;

    const HEAD_WIDTH_MAX: usize = attend::WIDTH_MAX;
    const PREFILL_ROWS: usize = 4096;
    const REPLAY_ROWS: usize = few::ROWS_MAX;

    fn memory(&self) -> Vec<(MemoryUse, Bytes)> {
        vec![
            (MemoryUse::Activations, self.device.arena_bytes()),
            (MemoryUse::Recordings, self.device.recorded_bytes()),
            (MemoryUse::SmallWeights, self.device.copied_bytes()),
            (MemoryUse::Staging, self.device.staging_bytes()),
        ]
    }

    fn run<R: Send>(&self, step: impl FnOnce() -> R + Send) -> R {
        step()
    }

    fn matrix(&self, stored: Matrix) -> Result<DeviceMatrix, BackendError> {
        matrix::take(&self.device, stored)
    }

    fn vector(&self, values: Vec<f32>) -> Result<DeviceVector, BackendError> {
        Ok(DeviceVector::new(self.device.upload(bytemuck::cast_slice(&values))?, values.len()))
    }

    fn expert_table(&self, table: Vec<[u32; EXPERTS_USED]>) -> Result<ExpertTable, BackendError> {
        ExpertTable::new(&self.device, &table)
    }

    fn new_bank(&self, sizes: BankSizes) -> DeviceBank {
        DeviceBank::new(&self.device.stream, sizes, self.device.options.context)
    }

    fn begin(&self, bank: &mut DeviceBank, tokens: usize) -> Result<(), BackendError> {
        bank.begin(tokens)
    }

    fn begin_on_top(&self, bank: &mut DeviceBank, tokens: usize) -> Result<(), BackendError> {
        bank.begin_on_top(tokens)
    }

    fn commit(&self, bank: &mut DeviceBank) {
        bank.commit();
    }

    fn fork(&self, bank: &DeviceBank, tokens: usize) -> Result<DeviceBank, BackendError> {
        bank.fork(tokens)
    }

    fn checkpoint(&self, bank: &DeviceBank) -> Result<DeviceCheckpoint, BackendError> {
        bank.checkpoint()
    }

    fn restore(&self, bank: &mut DeviceBank, checkpoint: &DeviceCheckpoint, tokens: usize) -> Result<(), BackendError> {
        bank.restore(checkpoint, tokens)
    }

    fn read_bank(&self, bank: &DeviceBank, first: usize) -> Result<BankImage, BackendError> {
        bank.image(first)
    }

    fn write_blocks(&self, bank: &mut DeviceBank, first: usize, blocks: &[BlockBytes]) -> Result<(), BackendError> {
        bank.write_blocks(first, blocks)
    }

    fn write_recurrent(&self, bank: &mut DeviceBank, bytes: &[u8]) -> Result<(), BackendError> {
        bank.write_recurrent(bytes)
    }

    fn bank_memory(sizes: BankSizes, blocks: usize) -> Bytes {
        let recurrent = sizes.recurrent.next_multiple_of(256);
        Bytes(mapped_most((2 * recurrent + blocks * sizes.block) as u64))
    }

    fn checkpoint_memory(sizes: BankSizes) -> Bytes {
        // Memory comes in pages of 2 MiB.
        Bytes((sizes.recurrent as u64).next_multiple_of(2 << 20))
    }

    fn memory_of(&self) -> String {
        self.device.stream.gpu().uuid().to_owned()
    }

    fn committed(&self, bank: &DeviceBank) -> usize {
        bank.committed()
    }

    fn memory_changes(&self, bank: &DeviceBank) -> u64 {
        bank.changes()
    }

    fn memory_pieces(&self, bank: &DeviceBank) -> Vec<Bytes> {
        bank.pieces()
    }

    fn export_memory(&self, bank: &DeviceBank) -> Result<Vec<MemoryPiece>, BackendError> {
        bank.export()
    }

    fn adopt_memory(
        &self,
        sizes: BankSizes,
        state: BankState,
        pieces: Vec<MemoryPiece>,
    ) -> Result<DeviceBank, BackendError> {
        DeviceBank::adopt(&self.device.stream, sizes, self.device.options.context, state, pieces)
    }

    fn checkpoint_pieces(&self, checkpoint: &DeviceCheckpoint) -> Vec<Bytes> {
        checkpoint.pieces()
    }

    fn export_checkpoint(&self, checkpoint: &DeviceCheckpoint) -> Result<Vec<MemoryPiece>, BackendError> {
        checkpoint.export()
    }

    fn adopt_checkpoint(&self, sizes: BankSizes, pieces: Vec<MemoryPiece>) -> Result<DeviceCheckpoint, BackendError> {
        DeviceCheckpoint::adopt(&self.device.stream, sizes, pieces)
    }

    fn bank_bytes(&self, bank: &DeviceBank) -> Bytes {
        bank.bytes()
    }

    fn checkpoint_bytes(&self, checkpoint: &DeviceCheckpoint) -> Bytes {
        checkpoint.bytes()
    }

    fn prepare(&self, step: &Step<'_, DeviceBank>) -> Result<(), BackendError> {
        // A step that failed in between may have left work behind, and its copy of the metadata.
        if !self.device.stream.is_idle()? {
            self.device.finish()?;
        }
        Ok(self.device.step_memory().upload(&self.device.stream, step)?)
    }

    fn finish(&self) -> Result<(), BackendError> {
        self.device.finish()
    }

    fn compute<'a>(
        &self,
        repeats: &Repeats,
        step: &mut Step<'a, DeviceBank>,
        full: &[usize],
        operations: impl FnOnce(&Self, &mut Step<'a, DeviceBank>) -> Produced<DeviceRows>,
    ) -> Result<Computed<DeviceRows>, BackendError> {
        self.prepare(step)?;
        repeat::compute(self, repeats, step, full, operations)
    }

    fn try_out<'a>(
        &self,
        step: &mut Step<'a, DeviceBank>,
        take: bool,
        operations: impl FnOnce(&Self, &mut Step<'a, DeviceBank>) -> Produced<DeviceRows>,
    ) -> Result<Bytes, BackendError> {
        self.prepare(step)?;
        self.device.try_out(take, || {
            let _addresses = repeat::operate(self, step, operations);
        })
    }

    fn recordings_to_come(&self, repeats: &Repeats) -> Bytes {
        repeats.to_come()
    }

    fn reshaped(&self, rows: DeviceRows, width: usize) -> DeviceRows {
        rows.reshaped(width)
    }

    fn part(&self, rows: &DeviceRows, range: Range<usize>) -> DeviceRows {
        let first = range.start * rows.width() * size_of::<f32>();
        self.device.rows_left_at(rows.address().offset(first as u64), range.len(), rows.width())
    }

    fn add(&self, rows: &mut DeviceRows, others: &DeviceRows) {
        streams::add(&self.device, rows, others);
    }

    fn take_streams(
        &self,
        _step: &Step<'_, DeviceBank>,
        place: StreamsPlace,
        streams: Option<&DeviceRows>,
    ) -> DeviceRows {
        streams::take(&self.device, place, streams)
    }

    fn leave_streams(&self, _step: &mut Step<'_, DeviceBank>, place: StreamsPlace, streams: &DeviceRows) {
        streams::leave(&self.device, place, streams);
    }

    fn embed(&self, table: &DeviceMatrix, _step: &Step<'_, DeviceBank>) -> DeviceRows {
        embed::embed(&self.device, table)
    }

    fn multiply(&self, matrix: &DeviceMatrix, rows: &DeviceRows) -> DeviceRows {
        multiply::multiply(&self.device, matrix, rows)
    }

    fn multiply_all(&self, matrices: &[&DeviceMatrix], rows: &DeviceRows) -> Vec<DeviceRows> {
        multiply::multiply_all(&self.device, matrices, rows)
    }

    fn multiply_groups(&self, matrix: &DeviceMatrix, groups: usize, rows: &DeviceRows) -> DeviceRows {
        multiply::multiply_groups(&self.device, matrix, groups, rows)
    }

    fn normalize(&self, rows: &mut DeviceRows, weight: &DeviceVector, epsilon: f32) {
        normalize::normalize(&self.device, rows, weight, epsilon);
    }

    fn normalize_heads(&self, rows: &mut DeviceRows, width: usize, epsilon: f32) {
        normalize::normalize_heads(&self.device, rows, width, epsilon);
    }

    fn rotate(&self, rows: &mut DeviceRows, width: usize, rope: &Rope, _step: &Step<'_, DeviceBank>) {
        rotate::rotate(&self.device, rows, width, rope, true);
    }

    fn rotate_back(&self, rows: &mut DeviceRows, width: usize, rope: &Rope, _step: &Step<'_, DeviceBank>) {
        rotate::rotate(&self.device, rows, width, rope, false);
    }

    fn mix(&self, site: &HyperSite<Self>, constants: &HyperConstants, streams: &DeviceRows) -> Mixed<DeviceRows> {
        few::mix(&self.device, &site.mix, &vectors(site), constants, streams)
            .unwrap_or_else(|| hyper_connection::mix(&self.device, &site.mix, &vectors(site), constants, streams))
    }

    fn merge(&self, streams: &mut DeviceRows, merge: &DeviceRows, output: &DeviceRows) {
        few::make_due(&self.device, merge);
        hyper_connection::merge(&self.device, streams, merge, output);
    }

    fn multiply_and_merge(
        &self,
        matrix: &DeviceMatrix,
        rows: &DeviceRows,
        [streams, merge]: [&mut DeviceRows; 2],
        next: Option<&HyperSite<Self>>,
    ) {
        if !few::multiply_and_merge(&self.device, matrix, rows, [&mut *streams, &mut *merge], next)
            && !batch::multiply_and_merge(&self.device, matrix, rows, [&mut *streams, &mut *merge], next)
        {
            let output = self.multiply(matrix, rows);
            self.merge_before(streams, merge, &output, next);
        }
    }

    fn feed_forward_and_merge(
        &self,
        step: &Step<'_, DeviceBank>,
        experts: &Experts<'_, Self>,
        rows: &DeviceRows,
        [streams, merge]: [&mut DeviceRows; 2],
        next: Option<&HyperSite<Self>>,
    ) {
        if !few::feed_forward_and_merge(&self.device, experts, rows, [&mut *streams, &mut *merge], next)
            && !batch::feed_forward_and_merge(&self.device, experts, rows, [&mut *streams, &mut *merge], next)
        {
            let output = backend::feed_forward(self, step, experts, rows);
            self.merge_before(streams, merge, &output, next);
        }
    }

    fn settle(
        &self,
        step: &mut Step<'_, DeviceBank>,
        settling: &Settling<'_, Self>,
        [low, rows]: [&mut DeviceRows; 2],
        feeds: &[Feed<'_, Self>],
    ) {
        if !few::settle::<F, Self>(&self.device, step, settling, [&mut *low, &mut *rows], feeds) {
            backend::settle(self, step, settling, [low, rows], feeds);
        }
    }

    fn settle_and_multiply(
        &self,
        step: &mut Step<'_, DeviceBank>,
        settling: &Settling<'_, Self>,
        [low, rows]: [&mut DeviceRows; 2],
        feeds: &[Feed<'_, Self>],
        (matrices, merge): (&[&DeviceMatrix], &DeviceRows),
    ) -> Vec<DeviceRows> {
        let parts = (matrices, merge);
        few::settle_and_multiply::<F, Self>(&self.device, step, settling, [&mut *low, &mut *rows], feeds, parts)
            .unwrap_or_else(|| {
                self.settle(step, settling, [&mut *low, rows], feeds);
                self.multiply_all(matrices, low)
            })
    }

    fn collapse(
        &self,
        site: &HyperSite<Self>,
        constants: &HyperConstants,
        streams: &DeviceRows,
        step: &Step<'_, DeviceBank>,
    ) -> DeviceRows {
        let picked = hyper_connection::pick(&self.device, streams, step.wanted.len());
        let mixes = multiply::multiply(&self.device, &site.mix, &picked);
        hyper_connection::collapse(&self.device, &vectors(site), constants, &picked, &mixes)
    }

    fn store_window(&self, _step: &mut Step<'_, DeviceBank>, place: WindowPlace, rows: &mut DeviceRows) {
        store_window::store_window::<F>(&self.device, place, rows);
    }

    fn compress(
        &self,
        step: &mut Step<'_, DeviceBank>,
        compressor: &Compressor<DeviceVector>,
        values: &DeviceRows,
        gates: &DeviceRows,
    ) {
        compress::compress::<F>(&self.device, step, compressor, values, gates);
    }

    fn select_all(&self, _step: &Step<'_, DeviceBank>) -> DeviceSelection {
        DeviceSelection::All
    }

    fn select(
        &self,
        step: &Step<'_, DeviceBank>,
        place: BlockPlace,
        top: usize,
        rope: &Rope,
        mut queries: DeviceRows,
        weights: &DeviceRows,
    ) -> DeviceSelection {
        few::select::<F, _>(&self.device, step, place, top, rope, [&queries, weights]).unwrap_or_else(|| {
            rotate::rotate(&self.device, &mut queries, place.array.width, rope, true);
            select::select::<F>(&self.device, step, place, top, queries, weights)
        })
    }

    fn attend(
        &self,
        step: &Step<'_, DeviceBank>,
        window: WindowPlace,
        compressed: Option<(BlockPlace, &DeviceSelection)>,
        queries: &DeviceRows,
        new_rows: &DeviceRows,
        sinks: &DeviceVector,
    ) -> DeviceRows {
        let are = attend::Queries::Ready;
        attend::attend::<F>(&self.device, step, window, compressed, [queries, new_rows], sinks, are)
    }

    fn attend_heads(
        &self,
        step: &Step<'_, DeviceBank>,
        window: WindowPlace,
        compressed: Option<(BlockPlace, &DeviceSelection)>,
        queries: DeviceRows,
        new_rows: &DeviceRows,
        path: &HeadPath<'_, Self>,
    ) -> DeviceRows {
        if few::takes(step) {
            let are = attend::Queries::Raw { rope: path.rope, epsilon: path.epsilon };
            let rows = [&queries, new_rows];
            let heads = attend::attend::<F>(&self.device, step, window, compressed, rows, path.sinks, are);
            return self.multiply_groups(path.output, path.groups, &heads);
        }
        match attend_many::takes::<F>(&self.device, step.len(), path) {
            Some(kernels) => {
                let rows = (queries, new_rows);
                attend_many::attend_heads::<F>(&self.device, kernels, step, window, compressed, rows, path)
            }
            None => attend_one_by_one(self, step, window, compressed, queries, new_rows, path),
        }
    }

    fn route(
        &self,
        _step: &Step<'_, DeviceBank>,
        logits: &DeviceRows,
        routing: &Routing<Self>,
        constants: &ExpertConstants,
    ) -> DeviceRoutes {
        route::route(&self.device, logits, routing, constants)
    }

    fn feed_forward(
        &self,
        routed: &Mlp<Self>,
        shared: &Mlp<Self>,
        constants: &ExpertConstants,
        routes: &DeviceRoutes,
        rows: &DeviceRows,
    ) -> DeviceRows {
        feed_forward::feed_forward(&self.device, routed, shared, constants, routes, rows)
    }

    fn download(&self, rows: DeviceRows) -> Result<Rows, BackendError> {
        few::make_due(&self.device, &rows);
        self.device.download(&rows)
    }
}

fn vectors<F: KvFormat>(site: &HyperSite<Cuda<F>>) -> hyper_connection::Site<'_> {
    hyper_connection::Site { base: &site.base, scale: &site.scale, norm: &site.norm }
}

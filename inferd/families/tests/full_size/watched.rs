//! A backend that computes as another does and shows every operation's result to a [`Journal`].

use crate::journal::{Journal, Kind, Seen};
use ds4_gpu::MemoryPiece;
use ds4_kernels::backend::{Backend, BackendError, HeadPath, HyperSite, Mlp, Routing};
use ds4_kernels::bank::{BankImage, BankSizes, BankState, BlockBytes, BlockPlace, WindowPlace};
use ds4_kernels::compression::{Compressor, Selection};
use ds4_kernels::cuda::Cuda;
use ds4_kernels::experts::{EXPERTS_USED, ExpertConstants, Routes};
use ds4_kernels::hyper_connection::{HyperConstants, Mixed};
use ds4_kernels::kv_rows::KvFormat;
use ds4_kernels::reference::Cpu;
use ds4_kernels::rope::Rope;
use ds4_kernels::step::Step;
use ds4_kernels::{Matrix, Rows};
use ds4_units::Bytes;
use std::sync::{Arc, Mutex};

/// A backend whose tensors the host can read and replace in the middle of a step.
pub(crate) trait Observed: Backend {
    fn see_rows(&self, rows: &Self::Rows) -> Rows;
    fn put_rows(&self, rows: &Rows) -> Self::Rows;
    fn see_routes(&self, routes: &Self::Routes) -> Routes;
    fn put_routes(&self, routes: &Routes) -> Self::Routes;
    fn see_selection(&self, selection: &Self::Selection, queries: usize) -> Selection;
}

impl<F: KvFormat> Observed for Cpu<F> {
    fn see_rows(&self, rows: &Rows) -> Rows {
        rows.clone()
    }

    fn put_rows(&self, rows: &Rows) -> Rows {
        rows.clone()
    }

    fn see_routes(&self, routes: &Routes) -> Routes {
        routes.clone()
    }

    fn put_routes(&self, routes: &Routes) -> Routes {
        routes.clone()
    }

    fn see_selection(&self, selection: &Selection, _queries: usize) -> Selection {
        selection.clone()
    }
}

impl<F: KvFormat> Observed for Cuda<F> {
    fn see_rows(&self, rows: &Self::Rows) -> Rows {
        self.peek(rows).expect("the kernels ran")
    }

    fn put_rows(&self, rows: &Rows) -> Self::Rows {
        self.upload(rows).expect("rows fit the device")
    }

    fn see_routes(&self, routes: &Self::Routes) -> Routes {
        self.download_routes(routes).expect("the kernels ran")
    }

    fn put_routes(&self, routes: &Routes) -> Self::Routes {
        self.upload_routes(routes).expect("routes fit the device")
    }

    fn see_selection(&self, selection: &Self::Selection, queries: usize) -> Selection {
        self.selection(selection, queries).expect("the kernels ran")
    }
}

/// Computes as `inner` does.
pub(crate) struct Watched<B> {
    inner: B,
    journal: Arc<Mutex<Journal>>,
}

impl<B: Observed> Watched<B> {
    pub(crate) fn new(inner: B, journal: Arc<Mutex<Journal>>) -> Watched<B> {
        Watched { inner, journal }
    }

    fn journal(&self) -> std::sync::MutexGuard<'_, Journal> {
        self.journal.lock().expect("no test thread panicked")
    }

    /// Shows rows and returns what is to be gone on with.
    fn rows(&self, kind: Kind, rows: B::Rows) -> B::Rows {
        self.replaced(kind, &rows).unwrap_or(rows)
    }

    fn in_place(&self, kind: Kind, rows: &mut B::Rows) {
        if let Some(other) = self.replaced(kind, rows) {
            *rows = other;
        }
    }

    fn replaced(&self, kind: Kind, rows: &B::Rows) -> Option<B::Rows> {
        match self.journal().see(kind, || Seen::Rows(self.inner.see_rows(rows)))? {
            Seen::Rows(rows) => Some(self.inner.put_rows(rows)),
            _ => None,
        }
    }

    fn site(site: &HyperSite<Self>) -> HyperSite<B> {
        let HyperSite { mix, base, scale, norm } = site;
        HyperSite { mix: mix.clone(), base: base.clone(), scale: scale.clone(), norm: norm.clone() }
    }

    fn mlp(mlp: &Mlp<Self>) -> Mlp<B> {
        Mlp { gate: mlp.gate.clone(), up: mlp.up.clone(), down: mlp.down.clone() }
    }

    fn routing(routing: &Routing<Self>) -> Routing<B> {
        match routing {
            Routing::Best { bias } => Routing::Best { bias: bias.clone() },
            Routing::ByToken(table) => Routing::ByToken(table.clone()),
        }
    }
}

impl<B: Observed> Backend for Watched<B> {
    type Kv = B::Kv;
    type Matrix = B::Matrix;
    type Vector = B::Vector;
    type ExpertTable = B::ExpertTable;
    type Rows = B::Rows;
    type Routes = B::Routes;
    type Selection = B::Selection;
    type Bank = B::Bank;
    type Checkpoint = B::Checkpoint;
    type Repeats = ();

    const HEAD_WIDTH_MAX: usize = B::HEAD_WIDTH_MAX;
    const PREFILL_ROWS: usize = B::PREFILL_ROWS;

    fn memory(&self) -> Vec<(&'static str, Bytes)> {
        self.inner.memory()
    }

    fn run<R: Send>(&self, step: impl FnOnce() -> R + Send) -> R {
        self.inner.run(step)
    }

    fn matrix(&self, stored: Matrix) -> Result<Self::Matrix, BackendError> {
        self.inner.matrix(stored)
    }

    fn vector(&self, values: Vec<f32>) -> Result<Self::Vector, BackendError> {
        self.inner.vector(values)
    }

    fn expert_table(&self, table: Vec<[u32; EXPERTS_USED]>) -> Result<Self::ExpertTable, BackendError> {
        self.inner.expert_table(table)
    }

    fn new_bank(&self, sizes: BankSizes) -> Self::Bank {
        self.inner.new_bank(sizes)
    }

    fn begin(&self, bank: &mut Self::Bank, tokens: usize) -> Result<(), BackendError> {
        self.inner.begin(bank, tokens)
    }

    fn commit(&self, bank: &mut Self::Bank) {
        self.inner.commit(bank);
    }

    fn fork(&self, bank: &Self::Bank) -> Result<Self::Bank, BackendError> {
        self.inner.fork(bank)
    }

    fn checkpoint(&self, bank: &Self::Bank) -> Result<Self::Checkpoint, BackendError> {
        self.inner.checkpoint(bank)
    }

    fn restore(&self, bank: &mut Self::Bank, checkpoint: &Self::Checkpoint, tokens: usize) -> Result<(), BackendError> {
        self.inner.restore(bank, checkpoint, tokens)
    }

    fn read_bank(&self, bank: &Self::Bank, first: usize) -> Result<BankImage, BackendError> {
        self.inner.read_bank(bank, first)
    }

    fn write_blocks(&self, bank: &mut Self::Bank, first: usize, blocks: &[BlockBytes]) -> Result<(), BackendError> {
        self.inner.write_blocks(bank, first, blocks)
    }

    fn write_recurrent(&self, bank: &mut Self::Bank, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.write_recurrent(bank, bytes)
    }

    fn memory_of(&self) -> String {
        self.inner.memory_of()
    }

    fn committed(&self, bank: &Self::Bank) -> usize {
        self.inner.committed(bank)
    }

    fn memory_changes(&self, bank: &Self::Bank) -> u64 {
        self.inner.memory_changes(bank)
    }

    fn memory_pieces(&self, bank: &Self::Bank) -> Vec<Bytes> {
        self.inner.memory_pieces(bank)
    }

    fn export_memory(&self, bank: &Self::Bank) -> Result<Vec<MemoryPiece>, BackendError> {
        self.inner.export_memory(bank)
    }

    fn adopt_memory(
        &self,
        sizes: BankSizes,
        state: BankState,
        pieces: Vec<MemoryPiece>,
    ) -> Result<Self::Bank, BackendError> {
        self.inner.adopt_memory(sizes, state, pieces)
    }

    fn checkpoint_pieces(&self, checkpoint: &Self::Checkpoint) -> Vec<Bytes> {
        self.inner.checkpoint_pieces(checkpoint)
    }

    fn export_checkpoint(&self, checkpoint: &Self::Checkpoint) -> Result<Vec<MemoryPiece>, BackendError> {
        self.inner.export_checkpoint(checkpoint)
    }

    fn adopt_checkpoint(&self, sizes: BankSizes, pieces: Vec<MemoryPiece>) -> Result<Self::Checkpoint, BackendError> {
        self.inner.adopt_checkpoint(sizes, pieces)
    }

    fn bank_bytes(&self, bank: &Self::Bank) -> Bytes {
        self.inner.bank_bytes(bank)
    }

    fn checkpoint_bytes(&self, checkpoint: &Self::Checkpoint) -> Bytes {
        self.inner.checkpoint_bytes(checkpoint)
    }

    fn prepare(&self, step: &Step<'_, Self::Bank>) -> Result<(), BackendError> {
        self.inner.prepare(step)
    }

    fn finish(&self) -> Result<(), BackendError> {
        self.inner.finish()
    }

    fn embed(&self, table: &Self::Matrix, step: &Step<'_, Self::Bank>) -> Self::Rows {
        self.rows(Kind::Value("embed"), self.inner.embed(table, step))
    }

    fn multiply(&self, matrix: &Self::Matrix, rows: &Self::Rows) -> Self::Rows {
        self.rows(Kind::Value("multiply"), self.inner.multiply(matrix, rows))
    }

    fn multiply_groups(&self, matrix: &Self::Matrix, groups: usize, rows: &Self::Rows) -> Self::Rows {
        self.rows(Kind::Value("multiply groups"), self.inner.multiply_groups(matrix, groups, rows))
    }

    fn normalize(&self, rows: &mut Self::Rows, weight: &Self::Vector, epsilon: f32) {
        self.inner.normalize(rows, weight, epsilon);
        self.in_place(Kind::Value("normalize"), rows);
    }

    fn normalize_heads(&self, rows: &mut Self::Rows, width: usize, epsilon: f32) {
        self.inner.normalize_heads(rows, width, epsilon);
        self.in_place(Kind::Value("normalize heads"), rows);
    }

    fn rotate(&self, rows: &mut Self::Rows, width: usize, rope: &Rope, step: &Step<'_, Self::Bank>) {
        self.inner.rotate(rows, width, rope, step);
        self.in_place(Kind::Value("rotate"), rows);
    }

    fn rotate_back(&self, rows: &mut Self::Rows, width: usize, rope: &Rope, step: &Step<'_, Self::Bank>) {
        self.inner.rotate_back(rows, width, rope, step);
        self.in_place(Kind::Value("rotate back"), rows);
    }

    fn mix(&self, site: &HyperSite<Self>, constants: &HyperConstants, streams: &Self::Rows) -> Mixed<Self::Rows> {
        let Mixed { input, merge } = self.inner.mix(&Self::site(site), constants, streams);
        Mixed { input: self.rows(Kind::Value("mix"), input), merge: self.rows(Kind::Value("mix gates"), merge) }
    }

    fn merge(&self, streams: &mut Self::Rows, merge: &Self::Rows, output: &Self::Rows) {
        self.inner.merge(streams, merge, output);
        self.in_place(Kind::Streams, streams);
    }

    fn collapse(
        &self,
        site: &HyperSite<Self>,
        constants: &HyperConstants,
        streams: &Self::Rows,
        step: &Step<'_, Self::Bank>,
    ) -> Self::Rows {
        self.rows(Kind::Value("collapse"), self.inner.collapse(&Self::site(site), constants, streams, step))
    }

    fn store_window(&self, step: &mut Step<'_, Self::Bank>, place: WindowPlace, rows: &mut Self::Rows) {
        // What is stored comes from what was there before, so that is what a forced decision replaces.
        self.in_place(Kind::Unrounded("window"), rows);
        self.inner.store_window(step, place, rows);
        let kind = if B::Kv::NAME == "packed" { Kind::Codes("window") } else { Kind::Value("stored window") };
        self.in_place(kind, rows);
    }

    fn compress(
        &self,
        step: &mut Step<'_, Self::Bank>,
        compressor: &Compressor<Self::Vector>,
        values: &Self::Rows,
        gates: &Self::Rows,
    ) {
        let values_of_truth = self.replaced(Kind::Unrounded("compressor's values"), values);
        let gates_of_truth = self.replaced(Kind::Unrounded("compressor's gates"), gates);
        let values = values_of_truth.as_ref().unwrap_or(values);
        self.inner.compress(step, compressor, values, gates_of_truth.as_ref().unwrap_or(gates));
        self.journal().passed("compress");
    }

    fn select_all(&self, step: &Step<'_, Self::Bank>) -> Self::Selection {
        self.inner.select_all(step)
    }

    fn select(
        &self,
        step: &Step<'_, Self::Bank>,
        place: BlockPlace,
        top: usize,
        queries: &Self::Rows,
        weights: &Self::Rows,
    ) -> Self::Selection {
        let selection = self.inner.select(step, place, top, queries, weights);
        let seen = || Seen::Selection(self.inner.see_selection(&selection, step.len()));
        self.journal().see(Kind::Selection, seen);
        selection
    }

    fn attend(
        &self,
        step: &Step<'_, Self::Bank>,
        window: WindowPlace,
        compressed: Option<(BlockPlace, &Self::Selection)>,
        queries: &Self::Rows,
        new_rows: &Self::Rows,
        sinks: &Self::Vector,
    ) -> Self::Rows {
        let heads = self.inner.attend(step, window, compressed, queries, new_rows, sinks);
        self.rows(Kind::Value("attend"), heads)
    }

    fn attend_heads(
        &self,
        step: &Step<'_, Self::Bank>,
        window: WindowPlace,
        compressed: Option<(BlockPlace, &Self::Selection)>,
        queries: Self::Rows,
        new_rows: &Self::Rows,
        path: &HeadPath<'_, Self>,
    ) -> Self::Rows {
        let HeadPath { width, epsilon, rope, sinks, output, groups } = *path;
        let path = HeadPath { width, epsilon, rope, sinks, output, groups };
        let low = self.inner.attend_heads(step, window, compressed, queries, new_rows, &path);
        self.rows(Kind::Value("attend heads"), low)
    }

    fn route(
        &self,
        step: &Step<'_, Self::Bank>,
        logits: &Self::Rows,
        routing: &Routing<Self>,
        constants: &ExpertConstants,
    ) -> Self::Routes {
        let routes = self.inner.route(step, logits, &Self::routing(routing), constants);
        let seen = || Seen::Routes(self.inner.see_routes(&routes), self.inner.see_rows(logits));
        match self.journal().see(Kind::Routes, seen) {
            Some(Seen::Routes(truth, _)) => self.inner.put_routes(truth),
            _ => routes,
        }
    }

    fn feed_forward(
        &self,
        routed: &Mlp<Self>,
        shared: &Mlp<Self>,
        constants: &ExpertConstants,
        routes: &Self::Routes,
        rows: &Self::Rows,
    ) -> Self::Rows {
        let output = self.inner.feed_forward(&Self::mlp(routed), &Self::mlp(shared), constants, routes, rows);
        self.rows(Kind::Value("feed forward"), output)
    }

    fn download(&self, rows: Self::Rows) -> Result<Rows, BackendError> {
        self.inner.download(rows)
    }
}

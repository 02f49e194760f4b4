//! A backend that computes as another does and shows every operation's result to a [`Journal`].
//!
//! Some operations stand for several, which a backend may compute as one. Where the journal needs each of the several by
//! itself, they are computed one by one; else as the backend that is watched computes them.

use crate::journal::{Journal, Kind, Seen};
use crate::work::{self, Format, Part, Work};
use ds4_gpu::MemoryPiece;
use ds4_kernels::backend::{
    self, Backend, BackendError, Computed, Experts, Feed, HeadPath, HyperSite, Mlp, Produced, Routing, Settling,
};
use ds4_kernels::bank::{BankImage, BankSizes, BankState, BlockBytes, BlockPlace, StreamsPlace, WindowPlace};
use ds4_kernels::compression::{Compressor, Selection};
use ds4_kernels::cuda::Cuda;
use ds4_kernels::experts::{EXPERTS_USED, ExpertConstants, Routes};
use ds4_kernels::hyper_connection::{HyperConstants, Mixed};
use ds4_kernels::kv_rows::KvFormat;
use ds4_kernels::reference::Cpu;
use ds4_kernels::rope::Rope;
use ds4_kernels::step::Step;
use ds4_kernels::{Matrix, Rows};
use ds4_units::{Bytes, MemoryUse};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A backend whose tensors the host can read and replace in the middle of a step.
pub(crate) trait Observed: Backend {
    fn see_rows(&self, rows: &Self::Rows) -> Rows;
    fn put_rows(&self, rows: &Rows) -> Self::Rows;
    fn see_routes(&self, routes: &Self::Routes) -> Routes;
    fn put_routes(&self, routes: &Routes) -> Self::Routes;
    fn see_selection(&self, selection: &Self::Selection, queries: usize) -> Selection;
    /// Rows and channels.
    fn size(rows: &Self::Rows) -> [usize; 2];
    fn format(matrix: &Self::Matrix) -> Format;
    /// Whether a step of so many rows may be computed by operations that stand for several.
    fn fuses(&self, rows: usize) -> bool;
    /// Kernels that were launched so far.
    fn launched(&self) -> u64;
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

    fn size(rows: &Rows) -> [usize; 2] {
        [rows.len(), rows.width()]
    }

    fn format(matrix: &Matrix) -> Format {
        Format { kind: matrix.kind(), rows: matrix.rows(), columns: matrix.columns() }
    }

    fn fuses(&self, _rows: usize) -> bool {
        false
    }

    fn launched(&self) -> u64 {
        0
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

    fn size(rows: &Self::Rows) -> [usize; 2] {
        [rows.len(), rows.width()]
    }

    fn format(matrix: &Self::Matrix) -> Format {
        Format { kind: matrix.kind(), rows: matrix.rows(), columns: matrix.columns() }
    }

    fn fuses(&self, rows: usize) -> bool {
        Cuda::fuses(self, rows)
    }

    fn launched(&self) -> u64 {
        Cuda::launched(self)
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

    /// Whether an operation that stands for several is computed as the watched backend computes it.
    fn at_once(&self, rows: usize) -> bool {
        self.journal().takes_at_once(|| self.inner.fuses(rows))
    }

    /// Takes note of an operation that was put into the stream, and of what it takes at least.
    fn done(&self, part: Part, works: impl FnOnce() -> Vec<(Part, Work)>) {
        if !self.journal().traces() {
            return;
        }
        let works = works();
        self.journal().done(part, works, self.inner.launched());
    }

    fn multiplied(&self, matrices: &[&B::Matrix], rows: &B::Rows) {
        let part = self.journal().products();
        self.done(part, || {
            let product = |matrix: &&B::Matrix| work::product(B::format(matrix), B::size(rows)[0]);
            vec![(part, matrices.iter().map(product).sum())]
        });
    }

    /// What stored rows are.
    fn stored() -> Kind {
        if B::Kv::NAME == "packed" { Kind::Codes("window") } else { Kind::Value("stored window") }
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

/// Methods that are those of the watched backend.
macro_rules! delegate {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        fn $name(&self, $($argument: $kind),*) -> $result {
            self.inner.$name($($argument),*)
        }
    )*};
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
    type Repeats = B::Repeats;

    const HEAD_WIDTH_MAX: usize = B::HEAD_WIDTH_MAX;
    const PREFILL_ROWS: usize = B::PREFILL_ROWS;
    const REPLAY_ROWS: usize = B::REPLAY_ROWS;

    delegate! {
        fn memory() -> Vec<(MemoryUse, Bytes)>;
        fn memory_to_come() -> Bytes;
        fn matrix(stored: Matrix) -> Result<Self::Matrix, BackendError>;
        fn vector(values: Vec<f32>) -> Result<Self::Vector, BackendError>;
        fn expert_table(table: Vec<[u32; EXPERTS_USED]>) -> Result<Self::ExpertTable, BackendError>;
        fn new_bank(sizes: BankSizes) -> Self::Bank;
        fn begin(bank: &mut Self::Bank, tokens: usize) -> Result<(), BackendError>;
        fn begin_on_top(bank: &mut Self::Bank, tokens: usize) -> Result<(), BackendError>;
        fn commit(bank: &mut Self::Bank) -> ();
        fn fork(bank: &Self::Bank, tokens: usize) -> Result<Self::Bank, BackendError>;
        fn checkpoint(bank: &Self::Bank) -> Result<Self::Checkpoint, BackendError>;
        fn restore(bank: &mut Self::Bank, checkpoint: &Self::Checkpoint, tokens: usize) -> Result<(), BackendError>;
        fn read_bank(bank: &Self::Bank, first: usize) -> Result<BankImage, BackendError>;
        fn write_blocks(bank: &mut Self::Bank, first: usize, blocks: &[BlockBytes]) -> Result<(), BackendError>;
        fn write_recurrent(bank: &mut Self::Bank, bytes: &[u8]) -> Result<(), BackendError>;
        fn memory_of() -> String;
        fn committed(bank: &Self::Bank) -> usize;
        fn memory_changes(bank: &Self::Bank) -> u64;
        fn memory_pieces(bank: &Self::Bank) -> Vec<Bytes>;
        fn export_memory(bank: &Self::Bank) -> Result<Vec<MemoryPiece>, BackendError>;
        fn adopt_memory(sizes: BankSizes, state: BankState, pieces: Vec<MemoryPiece>) -> Result<Self::Bank, BackendError>;
        fn checkpoint_pieces(checkpoint: &Self::Checkpoint) -> Vec<Bytes>;
        fn export_checkpoint(checkpoint: &Self::Checkpoint) -> Result<Vec<MemoryPiece>, BackendError>;
        fn adopt_checkpoint(sizes: BankSizes, pieces: Vec<MemoryPiece>) -> Result<Self::Checkpoint, BackendError>;
        fn bank_bytes(bank: &Self::Bank) -> Bytes;
        fn checkpoint_bytes(checkpoint: &Self::Checkpoint) -> Bytes;
        fn prepare(step: &Step<'_, Self::Bank>) -> Result<(), BackendError>;
        fn finish() -> Result<(), BackendError>;
        fn reshaped(rows: Self::Rows, width: usize) -> Self::Rows;
        fn part(rows: &Self::Rows, range: Range<usize>) -> Self::Rows;
        fn add(rows: &mut Self::Rows, others: &Self::Rows) -> ();
        fn take_streams(step: &Step<'_, Self::Bank>, place: StreamsPlace, streams: Option<&Self::Rows>) -> Self::Rows;
        fn leave_streams(step: &mut Step<'_, Self::Bank>, place: StreamsPlace, streams: &Self::Rows) -> ();
        fn select_all(step: &Step<'_, Self::Bank>) -> Self::Selection;
        fn download(rows: Self::Rows) -> Result<Rows, BackendError>;
    }

    fn run<R: Send>(&self, step: impl FnOnce() -> R + Send) -> R {
        self.inner.run(step)
    }

    fn compute<'a>(
        &self,
        repeats: &Self::Repeats,
        step: &mut Step<'a, Self::Bank>,
        full: &[usize],
        operations: impl FnOnce(&Self, &mut Step<'a, Self::Bank>) -> Produced<Self::Rows>,
    ) -> Result<Computed<Self::Rows>, BackendError> {
        // A recording runs without anybody who could look at it.
        if self.journal().looks() {
            return backend::compute(self, step, full, operations);
        }
        self.inner.compute(repeats, step, full, |_, step| operations(self, step))
    }

    fn try_out<'a>(
        &self,
        step: &mut Step<'a, Self::Bank>,
        take: bool,
        operations: impl FnOnce(&Self, &mut Step<'a, Self::Bank>) -> Produced<Self::Rows>,
    ) -> Result<Bytes, BackendError> {
        self.inner.try_out(step, take, |_, step| operations(self, step))
    }

    fn embed(&self, table: &Self::Matrix, step: &Step<'_, Self::Bank>) -> Self::Rows {
        let streams = self.inner.embed(table, step);
        self.done(Part::Embedding, || vec![(Part::Embedding, work::embedding(B::format(table), B::size(&streams)))]);
        self.rows(Kind::Value("embed"), streams)
    }

    fn multiply(&self, matrix: &Self::Matrix, rows: &Self::Rows) -> Self::Rows {
        let product = self.inner.multiply(matrix, rows);
        self.multiplied(&[matrix], rows);
        self.rows(Kind::Value("multiply"), product)
    }

    fn multiply_all(&self, matrices: &[&Self::Matrix], rows: &Self::Rows) -> Vec<Self::Rows> {
        let products = self.inner.multiply_all(matrices, rows);
        self.multiplied(matrices, rows);
        products.into_iter().map(|product| self.rows(Kind::Value("multiply"), product)).collect()
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
        self.done(Part::IndexScores, || vec![(Part::IndexScores, Work::of_rows(&[B::size(rows); 2]))]);
        self.in_place(Kind::Value("rotate"), rows);
    }

    fn rotate_back(&self, rows: &mut Self::Rows, width: usize, rope: &Rope, step: &Step<'_, Self::Bank>) {
        self.inner.rotate_back(rows, width, rope, step);
        self.in_place(Kind::Value("rotate back"), rows);
    }

    fn mix(&self, site: &HyperSite<Self>, constants: &HyperConstants, streams: &Self::Rows) -> Mixed<Self::Rows> {
        let Mixed { input, merge } = self.inner.mix(&Self::site(site), constants, streams);
        self.done(Part::Mixing, || {
            let rows = Work::of_rows(&[B::size(streams), B::size(&input), B::size(&merge)]);
            vec![(Part::Mixing, rows + work::product(B::format(&site.mix), B::size(streams)[0]))]
        });
        Mixed { input: self.rows(Kind::Value("mix"), input), merge: self.rows(Kind::Value("mix gates"), merge) }
    }

    fn merge(&self, streams: &mut Self::Rows, merge: &Self::Rows, output: &Self::Rows) {
        self.inner.merge(streams, merge, output);
        self.in_place(Kind::Streams, streams);
    }

    fn multiply_and_merge(
        &self,
        matrix: &Self::Matrix,
        rows: &Self::Rows,
        [streams, merge]: [&mut Self::Rows; 2],
        next: Option<&HyperSite<Self>>,
    ) {
        let len = B::size(rows)[0];
        // There is no decision in between that anybody would miss.
        if !self.journal().takes_at_once(|| true) {
            let output = self.multiply(matrix, rows);
            return self.merge(streams, merge, &output);
        }
        let next = next.map(Self::site);
        self.inner.multiply_and_merge(matrix, rows, [&mut *streams, &mut *merge], next.as_ref());
        self.done(Part::OutputProduct, || {
            let merged = work::merging(B::size(streams), B::size(merge));
            vec![(Part::OutputProduct, work::product(B::format(matrix), len)), (Part::Merging, merged)]
        });
        self.journal().skip(1);
        self.in_place(Kind::Streams, streams);
    }

    fn collapse(
        &self,
        site: &HyperSite<Self>,
        constants: &HyperConstants,
        streams: &Self::Rows,
        step: &Step<'_, Self::Bank>,
    ) -> Self::Rows {
        let input = self.inner.collapse(&Self::site(site), constants, streams, step);
        self.done(Part::Collapse, || {
            vec![(
                Part::Collapse,
                work::product(B::format(&site.mix), step.wanted.len()) + Work::of_rows(&[B::size(&input)]),
            )]
        });
        self.rows(Kind::Value("collapse"), input)
    }

    fn store_window(&self, step: &mut Step<'_, Self::Bank>, place: WindowPlace, rows: &mut Self::Rows) {
        // What is stored comes from what was there before, so that is what a forced decision replaces.
        self.in_place(Kind::Unrounded("window"), rows);
        self.inner.store_window(step, place, rows);
        self.in_place(Self::stored(), rows);
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
    }

    fn settle(
        &self,
        step: &mut Step<'_, Self::Bank>,
        settling: &Settling<'_, Self>,
        [low, rows]: [&mut Self::Rows; 2],
        feeds: &[Feed<'_, Self>],
    ) {
        if !self.at_once(step.len()) {
            return backend::settle(self, step, settling, [low, rows], feeds);
        }
        let Settling { low_norm, row_norm, epsilon, rope, window } = *settling;
        let settling = Settling { low_norm, row_norm, epsilon, rope, window };
        self.inner.settle(step, &settling, [&mut *low, &mut *rows], feeds);
        self.done(Part::Settling, || {
            let fed = feeds.iter().flat_map(|(_, values, gates)| [B::size(values), B::size(gates)]);
            let sizes: Vec<_> =
                [B::size(low), B::size(low), B::size(rows), B::size(rows)].into_iter().chain(fed).collect();
            vec![(Part::Settling, Work::of_rows(&sizes))]
        });
        // One by one these are a norm, another one, a rotation, and what is stored, before and after.
        self.in_place(Kind::Value("normalize"), low);
        self.journal().skip(3);
        self.in_place(Self::stored(), rows);
        self.journal().skip(2 * feeds.len());
    }

    fn settle_and_multiply(
        &self,
        step: &mut Step<'_, Self::Bank>,
        settling: &Settling<'_, Self>,
        [low, rows]: [&mut Self::Rows; 2],
        feeds: &[Feed<'_, Self>],
        (matrices, merge): (&[&Self::Matrix], &Self::Rows),
    ) -> Vec<Self::Rows> {
        if !self.at_once(step.len()) {
            self.settle(step, settling, [&mut *low, rows], feeds);
            return self.multiply_all(matrices, low);
        }
        let len = step.len();
        let Settling { low_norm, row_norm, epsilon, rope, window } = *settling;
        let settling = Settling { low_norm, row_norm, epsilon, rope, window };
        let both = (matrices, merge);
        let products = self.inner.settle_and_multiply(step, &settling, [&mut *low, &mut *rows], feeds, both);
        self.done(Part::QueryProducts, || {
            let fed = feeds.iter().flat_map(|(_, values, gates)| [B::size(values), B::size(gates)]);
            let settled = [B::size(low), B::size(low), B::size(rows), B::size(rows)].into_iter().chain(fed);
            let multiplied = matrices.iter().map(|matrix| work::product(B::format(matrix), len)).sum();
            let settled = Work::of_rows(&settled.collect::<Vec<_>>());
            vec![(Part::Settling, settled), (Part::QueryProducts, multiplied)]
        });
        // One by one these are a norm, another one, a rotation, and what is stored, before and after; then the products.
        self.journal().skip(4);
        self.in_place(Self::stored(), rows);
        self.journal().skip(2 * feeds.len());
        products.into_iter().map(|product| self.rows(Kind::Value("multiply"), product)).collect()
    }

    fn select(
        &self,
        step: &Step<'_, Self::Bank>,
        place: BlockPlace,
        top: usize,
        rope: &Rope,
        queries: Self::Rows,
        weights: &Self::Rows,
    ) -> Self::Selection {
        let heads = B::size(&queries)[1];
        let selection = self.inner.select(step, place, top, rope, queries, weights);
        self.done(Part::IndexScores, || work::selection::<B::Kv>(&work::spans(step), place, heads));
        self.journal().chose(top);
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
        let heads = B::size(&queries)[1];
        let low = self.inner.attend_heads(step, window, compressed, queries, new_rows, &path);
        self.done(Part::Attention, || {
            let places = (window, compressed.map(|(place, _)| place));
            let attended = work::attention::<B::Kv>(&work::spans(step), places, self.journal().chosen(), heads);
            vec![(Part::Attention, attended), (Part::HeadProduct, work::product(B::format(output), step.len()))]
        });
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

    fn feed_forward_and_merge(
        &self,
        step: &Step<'_, Self::Bank>,
        experts: &Experts<'_, Self>,
        rows: &Self::Rows,
        [streams, merge]: [&mut Self::Rows; 2],
        next: Option<&HyperSite<Self>>,
    ) {
        if !self.at_once(step.len()) {
            let output = backend::feed_forward(self, step, experts, rows);
            return self.merge(streams, merge, &output);
        }
        let (routed, shared) = (Self::mlp(experts.routed), Self::mlp(experts.shared));
        let (routing, next) = (Self::routing(experts.routing), next.map(Self::site));
        let Experts { router, constants, .. } = *experts;
        let watched = Experts { router, routing: &routing, routed: &routed, shared: &shared, constants };
        self.inner.feed_forward_and_merge(step, &watched, rows, [&mut *streams, &mut *merge], next.as_ref());
        self.done(Part::ExpertsUp, || {
            let formats = |mlp: &Mlp<B>| [&mlp.gate, &mlp.up, &mlp.down].map(B::format);
            let merged = work::merging(B::size(streams), B::size(merge));
            let used = self.journal().next_routes();
            let mut works = work::routed_experts(&used, step.len(), formats(&routed)).to_vec();
            works.extend(work::shared_expert(step.len(), formats(&shared)));
            works.push((Part::RouterProduct, work::product(B::format(router), step.len())));
            works.push((Part::Merging, merged));
            works
        });
        // One by one these are the router's product, the choice of experts, their sum, and its merging.
        self.journal().skip(3);
        self.in_place(Kind::Streams, streams);
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
}

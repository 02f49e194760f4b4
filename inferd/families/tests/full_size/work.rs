//! What operations have to move and to compute at least, by the shapes that they are given and the experts that rows chose.
//!
//! Bytes are those of weights and of stored rows, each read once a step, and of activations where an operation has
//! nothing else: as `f32`, read and written once. Products count two operations for a weight and a row.

use ds4_kernels::bank::{BlockPlace, WINDOW, WindowPlace};
use ds4_kernels::experts::EXPERTS_USED;
use ds4_kernels::kv_rows::{KvFormat, RowArray};
use ds4_kernels::step::Step;
use ds4_units::TensorType;
use std::collections::BTreeSet;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// Channels of an index row.
const INDEX_WIDTH: usize = 128;

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Embedding,
    Mixing,
    InputProducts,
    Settling,
    QueryProducts,
    IndexScores,
    IndexChoice,
    Attention,
    HeadProduct,
    OutputProduct,
    Merging,
    RouterProduct,
    Choice,
    SharedUp,
    SharedDown,
    ExpertsUp,
    ExpertsDown,
    Gathering,
    Operands,
    Collapse,
    Head,
    Greedy,
}

impl Part {
    /// What it is, for a reader.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Embedding => "embedding",
            Part::Mixing => "streams mixed into a site's input",
            Part::InputProducts => "products of attention's input",
            Part::Settling => "norms, rotation, storing and compressing rows",
            Part::QueryProducts => "products of the query's low rank",
            Part::IndexScores => "index scores",
            Part::IndexChoice => "choice of compressed rows",
            Part::Attention => "attention",
            Part::HeadProduct => "product of the heads' results",
            Part::OutputProduct => "product of attention's output",
            Part::Merging => "outputs merged into streams",
            Part::RouterProduct => "router's product",
            Part::Choice => "choice of experts",
            Part::SharedUp => "shared expert, gate and linear part",
            Part::SharedDown => "shared expert, down",
            Part::ExpertsUp => "experts, gate and linear part",
            Part::ExpertsDown => "experts, down",
            Part::Gathering => "rows gathered by expert, results summed",
            Part::Operands => "activations made operands",
            Part::Collapse => "streams made the head's input",
            Part::Head => "product of the head",
            Part::Greedy => "greedy choice",
        }
    }

    /// The part whose kernel does this one's work where it has no kernel of its own.
    pub(crate) fn within(self) -> Option<Part> {
        match self {
            Part::IndexChoice => Some(Part::IndexScores),
            Part::HeadProduct => Some(Part::Attention),
            Part::RouterProduct => Some(Part::SharedUp),
            Part::SharedUp => Some(Part::ExpertsUp),
            Part::SharedDown => Some(Part::ExpertsDown),
            _ => None,
        }
    }
}

/// Bytes, and operations of products.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    pub(crate) bytes: f64,
    pub(crate) operations: f64,
}

impl Work {
    /// Activations that are read or written.
    pub(crate) fn of_rows(sizes: &[[usize; 2]]) -> Work {
        let values: usize = sizes.iter().map(|[rows, width]| rows * width).sum();
        Work { bytes: (values * size_of::<f32>()) as f64, operations: 0.0 }
    }
}

impl Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        Work { bytes: self.bytes + other.bytes, operations: self.operations + other.operations }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        *self = *self + other;
    }
}

impl Sum for Work {
    fn sum<I: Iterator<Item = Work>>(works: I) -> Work {
        works.fold(Work::default(), Add::add)
    }
}

/// A matrix, or a stack of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) kind: TensorType,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Format {
    /// Elements of one.
    fn elements(self) -> usize {
        self.rows * self.columns
    }

    /// Bytes of one.
    fn bytes(self) -> f64 {
        let blocks = self.elements() as f64 / self.kind.block_len() as f64;
        blocks * self.kind.block_bytes() as f64
    }
}

/// A product with so many rows.
pub(crate) fn product(matrix: Format, rows: usize) -> Work {
    Work { bytes: matrix.bytes(), operations: 2.0 * matrix.elements() as f64 * rows as f64 }
}

/// Looking up a token for every row.
pub(crate) fn embedding(table: Format, streams: [usize; 2]) -> Work {
    let read = streams[0] as f64 * table.bytes() / table.rows as f64;
    Work::of_rows(&[streams]) + Work { bytes: read, operations: 0.0 }
}

/// Merging a block's output, which is a quarter as wide as the streams.
pub(crate) fn merging(streams: [usize; 2], merge: [usize; 2]) -> Work {
    Work::of_rows(&[streams, streams, [streams[0], streams[1] / 4], merge])
}

/// Experts that rows chose together.
pub(crate) fn reached(routes: &[[u32; EXPERTS_USED]]) -> usize {
    routes.iter().flatten().collect::<BTreeSet<_>>().len()
}

/// The experts that rows chose, up and down. `formats`: gate, linear part, down.
pub(crate) fn routed_experts(
    routes: &[[u32; EXPERTS_USED]],
    rows: usize,
    [gate, up, down]: [Format; 3],
) -> [(Part, Work); 2] {
    let used = reached(routes) as f64;
    let work = |matrices: &[Format]| {
        let elements: usize = matrices.iter().map(|matrix| matrix.elements()).sum();
        let bytes: f64 = matrices.iter().map(|matrix| matrix.bytes()).sum();
        Work { bytes: used * bytes, operations: 2.0 * (elements * rows * EXPERTS_USED) as f64 }
    };
    [(Part::ExpertsUp, work(&[gate, up])), (Part::ExpertsDown, work(&[down]))]
}

/// The expert that every row takes.
pub(crate) fn shared_expert(rows: usize, [gate, up, down]: [Format; 3]) -> [(Part, Work); 2] {
    [(Part::SharedUp, product(gate, rows) + product(up, rows)), (Part::SharedDown, product(down, rows))]
}

/// Positions of a segment's first row and of the one after its last.
pub(crate) type Span = [usize; 2];

/// The segments of a step.
pub(crate) fn spans<Bank>(step: &Step<'_, Bank>) -> Vec<Span> {
    step.segments.iter().map(|segment| [segment.start.index(), segment.end()]).collect()
}

/// Scores of every finished index row for every query, and the choice among them.
pub(crate) fn selection<F: KvFormat>(spans: &[Span], place: BlockPlace, queries: usize) -> Vec<(Part, Work)> {
    let (mut scores, mut bytes) = (0.0, 0.0);
    for &[start, end] in spans {
        scores += (start..end).map(|position| ((position + 1) / place.ratio()) as f64).sum::<f64>();
        bytes += F::index_bytes(RowArray { rows: end / place.ratio(), width: place.array.width }) as f64;
    }
    let heads = (queries / INDEX_WIDTH) as f64;
    let operations = 2.0 * scores * heads * place.array.width as f64;
    let read = scores * size_of::<f32>() as f64;
    vec![(Part::IndexScores, Work { bytes, operations }), (Part::IndexChoice, Work { bytes: read, operations: 0.0 })]
}

/// Attention of heads of so many channels together over windows and compressed rows, of which a query sees `top` at most
/// where it has chosen.
pub(crate) fn attention<F: KvFormat>(
    spans: &[Span],
    (window, compressed): (WindowPlace, Option<BlockPlace>),
    top: Option<usize>,
    heads: usize,
) -> Work {
    let (mut seen, mut bytes) = (0.0, 0.0);
    for &[start, end] in spans {
        let finished = |position: usize| compressed.map_or(0, |place| position / place.ratio());
        let of_query =
            |position: usize| WINDOW.min(position + 1) + finished(position + 1).min(top.unwrap_or(usize::MAX));
        seen += (start..end).map(|position| of_query(position) as f64).sum::<f64>();
        // The queries of a segment may choose different rows, or the same.
        let rows = finished(end).min(top.map_or(usize::MAX, |top| top * (end - start)));
        let windows = WINDOW.min(start) + end - start;
        bytes += F::attention_bytes(RowArray { rows: rows + windows, width: window.array.width }) as f64;
    }
    // A score and a share of the result, for every channel.
    Work { bytes, operations: 4.0 * seen * heads as f64 }
}

//! Latent attention over windows and compressed rows.

use crate::data::matrix;
use crate::kit::{Pair, assert_close, rows, up};
use crate::multiply::FEW;
use ds4_kernels::backend::{HeadPath, Settling};
use ds4_kernels::bank::{BLOCK_TOKENS, BankSizes, BlockPlace, PoolPlace, WINDOW, WindowPlace, pool_floats};
use ds4_kernels::compression::{Compressor, RowKind};
use ds4_kernels::kv_rows::{KvFormat, PackedRows, PlainRows, RowArray};
use ds4_kernels::rope::Rope;
use ds4_kernels::{Backend, Matrix, Rows};
use ds4_units::TensorType;

struct Shape {
    heads: usize,
    width: usize,
    /// Tokens per compressed row; none without a compressor.
    ratio: Option<usize>,
    /// Rows that the indexer may choose, where it chooses.
    top: Option<usize>,
}

const SHAPES: [Shape; 7] = [
    Shape { heads: 64, width: 512, ratio: None, top: None },
    Shape { heads: 64, width: 512, ratio: Some(128), top: None },
    Shape { heads: 64, width: 512, ratio: Some(4), top: None },
    Shape { heads: 64, width: 512, ratio: Some(4), top: Some(60) },
    Shape { heads: 128, width: 512, ratio: Some(4), top: Some(33) },
    Shape { heads: 5, width: 128, ratio: Some(4), top: Some(8) },
    Shape { heads: 16, width: 192, ratio: Some(4), top: None },
];

/// Heads whose results are multiplied together.
const PART_HEADS: usize = 8;

/// Two conversations: prompts, single tokens, a chunk that starts inside a window.
const STEPS: [[usize; 2]; 5] = [[300, 1], [1, 1], [1, 200], [70, 1], [1, 130]];

#[test]
fn rounded_rows_are_attended_to_as_on_the_cpu() {
    SHAPES.iter().for_each(|shape| attends::<PackedRows>(shape, &STEPS, false));
}

#[test]
fn plain_rows_are_attended_to_as_on_the_cpu() {
    SHAPES.iter().for_each(|shape| attends::<PlainRows>(shape, &STEPS, false));
}

/// Norm, rotation, attention, rotation back and product, in one or one by one.
#[test]
fn heads_go_all_the_way_as_on_the_cpu() {
    for shape in SHAPES.iter().filter(|shape| shape.width == 512) {
        attends::<PackedRows>(shape, &STEPS, true);
    }
    attends::<PlainRows>(&SHAPES[2], &STEPS[..2], true);
    attends::<PackedRows>(&Shape { heads: 16, width: 192, ratio: Some(4), top: None }, &STEPS[..3], true);
}

#[test]
fn attention_of_every_kind_under_a_sanitizer() {
    let shapes = [
        Shape { heads: 17, width: 512, ratio: Some(128), top: None },
        Shape { heads: 5, width: 128, ratio: Some(4), top: Some(8) },
        Shape { heads: 16, width: 192, ratio: Some(4), top: None },
    ];
    for shape in &shapes {
        attends::<PackedRows>(shape, &[[140, 1], [1, 3]], false);
        attends::<PlainRows>(shape, &[[40, 1], [1, 3]], false);
    }
    // All the way: many rows, and then few, which are settled, scored and attended to by kernels of their own.
    attends::<PackedRows>(&Shape { heads: 64, width: 512, ratio: Some(4), top: Some(20) }, &[[140, 1], [1, 3]], true);
    attends::<PlainRows>(&Shape { heads: 16, width: 192, ratio: Some(4), top: Some(8) }, &[[40, 1], [1, 3]], true);
    // So many rows are seen that every block of threads of a cluster takes two shares. They come in parts, so that the memory
    // of a step stays in one piece of the arena: a memory checker takes its end for that of memory (kit.rs).
    let parts = [[370, 1], [370, 1], [370, 1], [1, 1]];
    attends::<PackedRows>(&Shape { heads: 16, width: 512, ratio: Some(4), top: None }, &parts, true);
}

struct Places {
    window: WindowPlace,
    rows: BlockPlace,
    index: BlockPlace,
    pools: [PoolPlace; 2],
    sizes: BankSizes,
}

fn places<F: KvFormat>(shape: &Shape) -> Places {
    let window = RowArray { rows: WINDOW, width: shape.width };
    let ratio = shape.ratio.unwrap_or(BLOCK_TOKENS);
    let array = RowArray { rows: BLOCK_TOKENS / ratio, width: shape.width };
    let index = RowArray { width: 128, ..array };
    let window_bytes = F::attention_bytes(window);
    let floats = [pool_floats(shape.width, ratio == 4), pool_floats(128, true)];
    Places {
        window: WindowPlace { offset: 0, array: window, oldest: 0 },
        rows: BlockPlace { offset: 0, array },
        index: BlockPlace { offset: F::attention_bytes(array), array: index },
        pools: [
            PoolPlace { offset: window_bytes, floats: floats[0] },
            PoolPlace { offset: window_bytes + floats[0] * 4, floats: floats[1] },
        ],
        sizes: BankSizes {
            block: F::attention_bytes(array) + F::index_bytes(index),
            recurrent: window_bytes + (floats[0] + floats[1]) * 4,
        },
    }
}

fn compressor<B: Backend>(
    backend: &B,
    ratio: usize,
    kind: RowKind,
    pool: PoolPlace,
    rows: BlockPlace,
) -> Compressor<B::Vector> {
    let (channels, overlapped) = (rows.array.width, ratio == 4);
    let gate_width = channels * if overlapped { 2 } else { 1 };
    Compressor {
        ratio,
        channels,
        overlapped,
        position_bias: backend.vector(vec![0.1; ratio * gate_width]).unwrap(),
        norm: backend.vector(vec![1.0; channels]).unwrap(),
        norm_epsilon: 1e-6,
        rope: Rope::new(160_000.0, None),
        pool,
        rows,
        kind,
    }
}

/// Runs what a layer runs, step by step, on both sides; every step's result is compared.
fn attends<F: KvFormat>(shape: &Shape, steps: &[[usize; 2]], all_the_way: bool) {
    let Shape { heads, width, ratio, top } = *shape;
    let places = places::<F>(shape);
    let mut pair = Pair::<F>::new(2, places.sizes);
    let sinks = rows(90, 1, heads).into_values();
    let output = all_the_way.then(|| {
        let groups = heads / PART_HEADS;
        matrix(TensorType::Q8_0, [1, groups.max(8) * 40, PART_HEADS * width], 91)
    });
    for (index, counts) in steps.iter().enumerate() {
        let (seed, len): (u64, usize) = (100 + 10 * index as u64, counts.iter().sum());
        let queries = rows(seed, len, heads * width);
        let new = rows(seed + 1, len, width);
        let index_queries = rows(seed + 2, len, 4 * 128);
        let index_weights = rows(seed + 3, len, 4);
        let gates = |width: usize| (rows(seed + 4, len, width), rows(seed + 5, len, width));
        pair.step(counts, |cpu, host, cuda, device| {
            let run = Run {
                queries: &queries,
                new: &new,
                index: [&index_queries, &index_weights],
                places: &places,
                ratio,
                top,
                sinks: &sinks,
                output: output.as_ref(),
            };
            let want = run.on(cpu, host, |rows| rows.clone(), &gates);
            let got = run.on(cuda, device, |rows| up(cuda, rows), &gates);
            let (want, got) = (cpu.download(want).unwrap(), cuda.download(got).unwrap());
            let what = format!("{} {heads} x {width}, ratio {ratio:?}, top {top:?}, step {index}", F::NAME);
            // Many rows through a large matrix: everything is rounded to half floats.
            let most = match output.is_some() {
                true if len > FEW => 2e-3,
                // The fewest rows are multiplied in 16 bits of fixed point.
                true => 5e-5,
                false => 2e-5,
            };
            assert_close(&what, &got, &want, most);
        });
    }
}

struct Run<'a> {
    queries: &'a ds4_kernels::Rows,
    new: &'a ds4_kernels::Rows,
    index: [&'a ds4_kernels::Rows; 2],
    places: &'a Places,
    ratio: Option<usize>,
    top: Option<usize>,
    sinks: &'a [f32],
    /// What results are multiplied with, if heads go all the way.
    output: Option<&'a Matrix>,
}

impl Run<'_> {
    fn on<B: Backend>(
        &self,
        backend: &B,
        step: &mut ds4_kernels::step::Step<'_, B::Bank>,
        take: impl Fn(&ds4_kernels::Rows) -> B::Rows,
        gates: &dyn Fn(usize) -> (ds4_kernels::Rows, ds4_kernels::Rows),
    ) -> B::Rows {
        if let Some(output) = self.output {
            return self.all_the_way_on(backend, step, take, gates, output);
        }
        let mut new = take(self.new);
        backend.store_window(step, self.places.window, &mut new);
        let feed = |step: &mut _, kind, pool, rows: BlockPlace, ratio| {
            let compressor = compressor(backend, ratio, kind, pool, rows);
            let (values, gates) = gates(rows.array.width * if ratio == 4 { 2 } else { 1 });
            backend.compress(step, &compressor, &take(&values), &take(&gates));
        };
        let selection = self.ratio.map(|ratio| {
            feed(step, RowKind::Attention, self.places.pools[0], self.places.rows, ratio);
            let Some(top) = self.top else { return backend.select_all(step) };
            feed(step, RowKind::Index, self.places.pools[1], self.places.index, ratio);
            let rope = Rope::new(10_000.0, None);
            backend.select(step, self.places.index, top, &rope, take(self.index[0]), &take(self.index[1]))
        });
        let compressed = selection.as_ref().map(|selection| (self.places.rows, selection));
        let sinks = backend.vector(self.sinks.to_vec()).unwrap();
        backend.attend(step, self.places.window, compressed, &take(self.queries), &new, &sinks)
    }

    /// From the products of a site's input to that of its heads' results, which it returns beside the low rank.
    fn all_the_way_on<B: Backend>(
        &self,
        backend: &B,
        step: &mut ds4_kernels::step::Step<'_, B::Bank>,
        take: impl Fn(&Rows) -> B::Rows,
        gates: &dyn Fn(usize) -> (Rows, Rows),
        output: &Matrix,
    ) -> B::Rows {
        let vector = |seed, len| backend.vector(rows(seed, 1, len).into_values()).unwrap();
        let (low_norm, row_norm) = (vector(91, 256), vector(92, self.new.width()));
        let rope = Rope::new(10_000.0, None);
        let window = self.places.window;
        let settling = Settling { low_norm: &low_norm, row_norm: &row_norm, epsilon: 1e-6, rope: &rope, window };
        let places = [(RowKind::Attention, self.places.rows), (RowKind::Index, self.places.index)];
        let count = self.ratio.map_or(0, |_| 1 + usize::from(self.top.is_some()));
        let each = places.iter().zip(self.places.pools).take(count);
        let compressors: Vec<_> =
            each.map(|(&(kind, rows), pool)| compressor(backend, self.ratio.unwrap(), kind, pool, rows)).collect();
        let feed = |compressor| {
            let &Compressor { channels, overlapped, .. } = compressor;
            let (values, gates) = gates(channels * if overlapped { 2 } else { 1 });
            (compressor, take(&values), take(&gates))
        };
        let feeds: Vec<_> = compressors.iter().map(feed).collect();
        let (mut low, mut new) = (take(&rows(93, step.len(), 256)), take(self.new));
        // One matrix whose products are brought to fixed point, and one whose are not.
        let low_matrices = [(TensorType::Q8_0, 4160), (TensorType::F16, 96)];
        let low_matrices = low_matrices.map(|(kind, len)| backend.matrix(matrix(kind, [1, len, 256], 95)).unwrap());
        let merge = take(&rows(94, step.len(), 20));
        let both = (&[&low_matrices[0], &low_matrices[1]][..], &merge);
        let products = backend.settle_and_multiply(step, &settling, [&mut low, &mut new], &feeds, both);
        let selection = match (self.ratio, self.top) {
            (Some(_), Some(top)) => {
                backend.select(step, self.places.index, top, &rope, take(self.index[0]), &take(self.index[1]))
            }
            _ => backend.select_all(step),
        };
        let path = HeadPath {
            width: self.new.width(),
            epsilon: 1e-6,
            rope: &rope,
            sinks: &backend.vector(self.sinks.to_vec()).unwrap(),
            output: &backend.matrix(output.clone()).unwrap(),
            groups: self.sinks.len() / PART_HEADS,
        };
        let compressed = self.ratio.map(|_| (self.places.rows, &selection));
        let heads = backend.attend_heads(step, window, compressed, take(self.queries), &new, &path);
        let heads = backend.download(heads).unwrap();
        let products: Vec<_> = products.into_iter().map(|rows| backend.download(rows).unwrap()).collect();
        let width = heads.width() + products.iter().map(Rows::width).sum::<usize>();
        let all = |row| std::iter::once(&heads).chain(&products).flat_map(move |rows: &Rows| rows.row(row).to_vec());
        take(&Rows::from_values(width, (0..heads.len()).flat_map(all).collect()))
    }
}

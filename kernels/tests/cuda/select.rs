//! Choosing compressed rows: the exact best, ties to the lower row.

use crate::kit::{Pair, numbers, rows, up};
use ds4_kernels::bank::{BLOCK_TOKENS, BankSizes, BlockPlace, PoolPlace, pool_floats};
use ds4_kernels::compression::{Compressor, RowKind, Selection};
use ds4_kernels::kv_rows::{KvFormat, PackedRows, PlainRows, RowArray};
use ds4_kernels::rope::Rope;
use ds4_kernels::{Backend, Rows};

const WIDTH: usize = 128;
const RATIO: usize = 4;
const ARRAY: RowArray = RowArray { rows: BLOCK_TOKENS / RATIO, width: WIDTH };
const PLACE: BlockPlace = BlockPlace { offset: 0, array: ARRAY };

/// Two conversations that hold index rows for so many tokens, the same on both sides.
fn filled<F: KvFormat>(tokens: [usize; 2]) -> Pair<F> {
    let pool = PoolPlace { offset: 0, floats: pool_floats(WIDTH, true) };
    let mut pair = Pair::<F>::new(2, BankSizes { block: F::index_bytes(ARRAY), recurrent: pool.floats * 4 });
    let host = compressor(&pair.cpu, pool);
    let device = compressor(&pair.cuda, pool);
    let all = tokens[0] + tokens[1];
    let (values, gates) = (rows(81, all, 2 * WIDTH), rows(82, all, 2 * WIDTH));
    pair.step(&tokens, |cpu, step, cuda, device_step| {
        cpu.compress(step, &host, &values, &gates);
        cuda.compress(device_step, &device, &up(cuda, &values), &up(cuda, &gates));
    });
    pair
}

fn rope() -> Rope {
    Rope::new(160_000.0, None)
}

fn compressor<B: Backend>(backend: &B, pool: PoolPlace) -> Compressor<B::Vector> {
    Compressor {
        ratio: RATIO,
        channels: WIDTH,
        overlapped: true,
        position_bias: backend.vector(vec![0.0; RATIO * 2 * WIDTH]).unwrap(),
        norm: backend.vector(vec![1.0; WIDTH]).unwrap(),
        norm_epsilon: 1e-6,
        rope: rope(),
        pool,
        rows: PLACE,
        kind: RowKind::Index,
    }
}

/// Both sides' choices for one more step of the two conversations.
fn choices<F: KvFormat>(
    pair: &mut Pair<F>,
    counts: [usize; 2],
    top: usize,
    queries: &Rows,
    weights: &Rows,
) -> [Selection; 2] {
    let mut both = Vec::new();
    pair.step(&counts, |cpu, host, cuda, device| {
        both.push(cpu.select(host, PLACE, top, &rope(), queries.clone(), weights));
        let selection = cuda.select(device, PLACE, top, &rope(), up(cuda, queries), &up(cuda, weights));
        both.push(cuda.selection(&selection, queries.len()).unwrap());
    });
    both.try_into().expect("two sides")
}

#[test]
fn exact_scores_give_exactly_the_cpus_choice() {
    // With these head counts and weights every score is exact in f32, whatever the order of additions; a zero query
    // ties everything.
    for (heads, counts) in [(8usize, [70, 1]), (32, [70, 1]), (32, [40, 1]), (8, [5, 300])] {
        let mut pair = filled::<PackedRows>([2600, 700]);
        let len = counts[0] + counts[1];
        let mut queries = rows(83, len, heads * WIDTH);
        queries.row_mut(3).fill(0.0);
        let weights: Vec<f32> =
            numbers(84, len * heads).iter().map(|value| if *value < 0.0 { -0.25 } else { 0.5 }).collect();
        let [want, got] = choices(&mut pair, counts, 96, &queries, &Rows::from_values(heads, weights));
        assert_eq!(got.of(3), Some(&(0..96).collect::<Vec<u32>>()[..]), "the lower row wins a tie");
        assert_eq!(got, want, "{heads} heads, {counts:?} rows");
    }
}

#[test]
fn rows_that_see_no_more_than_they_may_choose_see_all() {
    let mut pair = filled::<PackedRows>([400, 16]);
    let [want, got] = choices(&mut pair, [9, 1], 102, &rows(85, 10, 4 * WIDTH), &rows(86, 10, 4));
    assert_eq!(want.of(0), None);
    assert_eq!(got, want);
}

#[test]
fn products_shapes_choose_what_the_cpu_chooses() {
    for (heads, top, counts) in [(64, 512, [40, 1]), (64, 1024, [3, 1]), (5, 16, [130, 2]), (64, 512, [90, 37])] {
        chosen_alike::<PackedRows>([6000, 5000], heads, top, counts);
        chosen_alike::<PlainRows>([6000, 5000], heads, top, counts);
    }
}

#[test]
fn choices_under_a_sanitizer() {
    for (heads, top, counts) in [(64, 96, [3, 1]), (5, 16, [7, 1]), (5, 16, [20, 2]), (64, 96, [60, 9])] {
        chosen_alike::<PackedRows>([700, 500], heads, top, counts);
        chosen_alike::<PlainRows>([700, 500], heads, top, counts);
    }
}

/// Scores differ in their last bits, so that a few of the last places may go to another row.
fn chosen_alike<F: KvFormat>(tokens: [usize; 2], heads: usize, top: usize, counts: [usize; 2]) {
    let name = F::NAME;
    let mut pair = filled::<F>(tokens);
    let len = counts[0] + counts[1];
    let [want, got] = choices(&mut pair, counts, top, &rows(87, len, heads * WIDTH), &rows(88, len, heads));
    let mut different = 0;
    for query in 0..len {
        let (want, got) = (want.of(query).unwrap(), got.of(query).unwrap());
        assert!(got.is_sorted_by(|a, b| a < b) && got.len() == top);
        different += want.iter().filter(|row| got.binary_search(row).is_err()).count();
    }
    println!("{name}, {heads} heads, top {top}: {different} of {} choices differ", len * top);
    assert!(different * 1000 <= len * top, "{name}, {heads} heads: {different} of {} differ", len * top);
}

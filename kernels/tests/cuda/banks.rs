//! What operations leave in banks: windows and compressed rows, however tokens are cut into steps.

use crate::kit::{Pair, rows, up};
use ds4_kernels::Backend;
use ds4_kernels::bank::{BLOCK_TOKENS, BankSizes, BlockPlace, PoolPlace, WINDOW, WindowPlace, pool_floats};
use ds4_kernels::compression::{Compressor, RowKind};
use ds4_kernels::kv_rows::{KvFormat, PackedRows, PlainRows, RowArray};
use ds4_kernels::rope::Rope;

/// Steps of three conversations: cold, warm, one token at a time, across block borders.
const STEPS: [[usize; 3]; 6] = [[130, 1, 0], [1, 3, 300], [1, 124, 1], [62, 1, 83], [255, 0, 1], [1, 1, 129]];

#[test]
fn windows_hold_the_rows_they_hold_on_the_cpu() {
    windows::<PackedRows>(&STEPS);
    windows::<PlainRows>(&STEPS);
}

#[test]
fn windows_and_compressed_rows_under_a_sanitizer() {
    const FEW: [[usize; 3]; 3] = [[130, 1, 0], [1, 3, 9], [62, 1, 1]];
    windows::<PackedRows>(&FEW);
    windows::<PlainRows>(&FEW);
    for (ratio, channels, kind) in COMPRESSORS {
        compressor::<PackedRows>(ratio, channels, kind, &FEW);
        compressor::<PlainRows>(ratio, channels, kind, &FEW);
    }
}

fn windows<F: KvFormat>(steps: &[[usize; 3]]) {
    for width in [512, 128, 192] {
        let array = RowArray { rows: WINDOW, width };
        let place = WindowPlace { offset: 0, array, oldest: 0 };
        let mut pair = Pair::<F>::new(3, BankSizes { block: 16, recurrent: F::attention_bytes(array) });
        for (index, counts) in steps.iter().enumerate() {
            let mut new = rows(31 + index as u64, counts.iter().sum(), width);
            pair.step(counts, |cpu, host, cuda, device| {
                let mut on_device = up(cuda, &new);
                cpu.store_window(host, place, &mut new);
                cuda.store_window(device, place, &mut on_device);
                assert_eq!(cuda.download(on_device).unwrap(), new, "{} rows of {width} after rounding", F::NAME);
            });
        }
        for (bank, (host, device)) in pair.host.iter().zip(&pair.device).enumerate() {
            // Rows and not bytes: the CPU stores the rounded row, whose exponents may be smaller and its codes larger.
            let device = device.recurrent().unwrap();
            let tokens: usize = steps.iter().map(|step| step[bank]).sum();
            for slot in 0..WINDOW.min(tokens) {
                let (mut want, mut got) = (vec![0.0; width], vec![0.0; width]);
                F::read_attention(host.recurrent(), array, slot, &mut want);
                F::read_attention(&device, array, slot, &mut got);
                assert_eq!(got, want, "{} window of {width}, slot {slot}", F::NAME);
            }
        }
    }
}

#[test]
fn compressors_store_the_rows_they_store_on_the_cpu() {
    for (ratio, channels, kind) in COMPRESSORS {
        compressor::<PackedRows>(ratio, channels, kind, &STEPS);
        compressor::<PlainRows>(ratio, channels, kind, &STEPS);
    }
}

/// Tokens of a row, its channels, and what it is for.
const COMPRESSORS: [(usize, usize, RowKind); 4] = [
    (4, 512, RowKind::Attention),
    (4, 128, RowKind::Index),
    (128, 512, RowKind::Attention),
    (4, 128, RowKind::Attention),
];

fn compressor<F: KvFormat>(ratio: usize, channels: usize, kind: RowKind, steps: &[[usize; 3]]) {
    let overlapped = ratio == 4;
    let array = RowArray { rows: BLOCK_TOKENS / ratio, width: channels };
    let bytes = if kind == RowKind::Index { F::index_bytes(array) } else { F::attention_bytes(array) };
    let floats = pool_floats(channels, overlapped);
    let sizes = BankSizes { block: 64 + bytes, recurrent: 32 + floats * 4 };
    let gate_width = channels * if overlapped { 2 } else { 1 };
    let places = (PoolPlace { offset: 32, floats }, BlockPlace { offset: 64, array });
    let mut pair = Pair::<F>::new(3, sizes);
    let host = make(&pair.cpu, ratio, channels, gate_width, kind, places);
    let device = make(&pair.cuda, ratio, channels, gate_width, kind, places);
    for (index, counts) in steps.iter().enumerate() {
        let values = rows(41 + index as u64, counts.iter().sum(), gate_width);
        let gates = rows(51 + index as u64, counts.iter().sum(), gate_width);
        pair.step(counts, |cpu, step, cuda, device_step| {
            cpu.compress(step, &host, &values, &gates);
            cuda.compress(device_step, &device, &up(cuda, &values), &up(cuda, &gates));
        });
    }
    let name = format!("{} ratio {ratio}, {channels} channels, {kind:?}", F::NAME);
    for bank in 0..3 {
        let tokens: usize = steps.iter().map(|step| step[bank]).sum();
        assert_eq!(pair.host[bank].recurrent(), pair.device[bank].recurrent().unwrap(), "unfinished rows, {name}");
        compare_rows(&pair, bank, tokens / ratio, places.1, kind, &name);
    }
}

fn make<B: Backend>(
    backend: &B,
    ratio: usize,
    channels: usize,
    gate_width: usize,
    kind: RowKind,
    (pool, place): (PoolPlace, BlockPlace),
) -> Compressor<B::Vector> {
    Compressor {
        ratio,
        channels,
        overlapped: ratio == 4,
        position_bias: backend.vector(rows(61, ratio, gate_width).into_values()).unwrap(),
        norm: backend.vector(rows(62, 1, channels).into_values()).unwrap(),
        norm_epsilon: 1e-6,
        rope: Rope::new(160_000.0, None),
        pool,
        rows: place,
        kind,
    }
}

/// Rows are equal but for a last bit that decides a rounding now and then.
fn compare_rows<F: KvFormat>(pair: &Pair<F>, bank: usize, count: usize, place: BlockPlace, kind: RowKind, name: &str) {
    let (array, mut different, mut worst) = (place.array, 0, 0.0f32);
    let read = |memory: &[u8], index: usize| {
        let mut row = vec![0.0; array.width];
        match kind {
            RowKind::Attention => F::read_attention(&memory[place.offset..], array, index % array.rows, &mut row),
            RowKind::Index => F::read_index(&memory[place.offset..], array, index % array.rows, &mut row),
        }
        row
    };
    for index in 0..count {
        let want = read(pair.host[bank].block(index / array.rows), index);
        let got = read(&pair.device[bank].block(index / array.rows).unwrap(), index);
        different += want.iter().zip(&got).filter(|(want, got)| want != got).count();
        worst = want.iter().zip(&got).fold(worst, |worst, (want, got)| worst.max((want - got).abs()));
    }
    let all = count * array.width;
    println!("{name}, bank {bank}: {different} of {all} values differ, by at most {worst:.1e}");
    let (allowed, most) = if F::NAME == "packed" { (all / 5000, 0.5) } else { (all, 1e-5) };
    assert!(different <= allowed && worst <= most, "{name}: {different} of {all} differ, by up to {worst}");
}

#[test]
fn a_bank_goes_back_to_its_checkpoint_and_a_fork_goes_its_own_way() {
    let array = RowArray { rows: WINDOW, width: 128 };
    let place = WindowPlace { offset: 0, array, oldest: 0 };
    let sizes = BankSizes { block: 4096, recurrent: PackedRows::attention_bytes(array) };
    let mut pair = Pair::<PackedRows>::new(1, sizes);
    let store = |pair: &mut Pair<PackedRows>, seed: u64, count: usize| {
        let new = rows(seed, count, 128);
        pair.step(&[count], |cpu, host, cuda, device| {
            cpu.store_window(host, place, &mut new.clone());
            cuda.store_window(device, place, &mut up(cuda, &new));
        });
    };
    store(&mut pair, 71, 200);
    let at_200 = pair.device[0].recurrent().unwrap();
    let checkpoint = pair.cuda.checkpoint(&pair.device[0]).unwrap();
    let fork = pair.cuda.fork(&pair.device[0], 200).unwrap();
    store(&mut pair, 72, 30_000);
    assert_ne!(pair.device[0].recurrent().unwrap(), at_200);
    assert_eq!(fork.recurrent().unwrap(), at_200, "the fork does not follow");
    let grown = pair.cuda.bank_bytes(&pair.device[0]);
    let mut early = pair.cuda.fork(&pair.device[0], 200).unwrap();
    assert!(pair.cuda.bank_bytes(&early) <= grown);
    pair.cuda.restore(&mut early, &checkpoint, 200).unwrap();
    assert_eq!(early.recurrent().unwrap(), at_200, "a fork of the beginning");
    pair.cuda.restore(&mut pair.device[0], &checkpoint, 200).unwrap();
    assert_eq!(pair.device[0].recurrent().unwrap(), at_200);
    assert!(pair.cuda.bank_bytes(&pair.device[0]) <= grown);
}

//! Both backends, and the same inputs for them.

use ds4_gpu::cuda::Gpu;
use ds4_kernels::bank::BankSizes;
use ds4_kernels::cuda::{Cuda, CudaOptions, DeviceBank, DeviceRows};
use ds4_kernels::kv_rows::{KvFormat, PlainRows};
use ds4_kernels::reference::{Cpu, HostBank};
use ds4_kernels::step::Step;
use ds4_kernels::{Backend, Rows};
use ds4_units::{TokenId, TokenPos, Tokens};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) type TestCuda = Cuda<PlainRows>;

/// The longest conversation of a test's bank.
pub(crate) const CONTEXT: usize = 1 << 16;

/// Values of the rows whose memory a backend has from the beginning: the largest piece that the arena takes at once.
const AT_ONCE: usize = (64 << 20) / size_of::<f32>();

fn gpu() -> Gpu {
    Gpu::open(0).expect("these tests need a GPU")
}

/// A backend of the caller's own, so that its steps meet no other test's.
pub(crate) fn cuda_of<F: KvFormat>() -> Cuda<F> {
    let cuda = Cuda::new(&gpu(), CudaOptions { context: Tokens(CONTEXT as u32) }).expect("kernels for this GPU");
    // As a worker does at boot: memory of steps is there in large pieces, and does not grow by little ones as tests ask for
    // it. A memory checker takes the end of a piece for the end of memory, also where a copy goes on in the next.
    drop(cuda.upload(&Rows::from_values(4096, vec![0.0; AT_ONCE])).expect("memory of steps"));
    cuda
}

/// The shared backend. One test at a time has it: a backend runs one step at a time.
pub(crate) fn cuda() -> MutexGuard<'static, TestCuda> {
    static SHARED: OnceLock<Mutex<TestCuda>> = OnceLock::new();
    SHARED.get_or_init(|| Mutex::new(cuda_of())).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The truth.
pub(crate) fn cpu() -> Cpu<PlainRows> {
    Cpu::new()
}

/// A step of these tokens on the CPU, without banks.
pub(crate) fn cpu_step<R>(tokens: &[u32], work: impl FnOnce(&Step<'_, HostBank>) -> R) -> R {
    work(&bankless(tokens))
}

/// The same on the GPU, prepared.
pub(crate) fn cuda_step<R>(cuda: &TestCuda, tokens: &[u32], work: impl FnOnce(&Step<'_, DeviceBank>) -> R) -> R {
    let step = bankless(tokens);
    cuda.prepare(&step).expect("a step can be prepared");
    work(&step)
}

fn bankless<B>(tokens: &[u32]) -> Step<'static, B> {
    let tokens: Vec<TokenId> = tokens.iter().map(|&token| TokenId(token)).collect();
    let positions = (0..tokens.len() as u32).map(TokenPos).collect();
    Step { tokens, positions, segments: Vec::new(), wanted: Vec::new() }
}

/// Numbers that look random, between -1 and 1, the same for the same seed.
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// `len` rows of them.
pub(crate) fn rows(seed: u64, len: usize, width: usize) -> Rows {
    Rows::from_values(width, numbers(seed, len * width))
}

/// Rows on the GPU.
pub(crate) fn up<F: KvFormat>(cuda: &Cuda<F>, rows: &Rows) -> DeviceRows {
    cuda.upload(rows).expect("rows fit the device")
}

/// Rows from the GPU.
pub(crate) fn down<F: KvFormat>(cuda: &Cuda<F>, rows: DeviceRows) -> Rows {
    cuda.download(rows).expect("the kernels ran")
}

/// The largest difference, relative to the largest magnitude that is expected.
pub(crate) fn difference(got: &Rows, want: &Rows) -> f32 {
    assert_eq!((got.len(), got.width()), (want.len(), want.width()));
    let top = want.values().iter().fold(f32::MIN_POSITIVE, |top, value| top.max(value.abs()));
    let off = got.values().iter().zip(want.values()).map(|(got, want)| (got - want).abs());
    let worst = off.fold(0.0, |worst: f32, off| if off.is_nan() { f32::INFINITY } else { worst.max(off) });
    worst / top
}

/// Fails when rows differ by more than `most` of the largest magnitude; prints by how much they do.
pub(crate) fn assert_close(what: &str, got: &Rows, want: &Rows, most: f32) {
    let off = difference(got, want);
    println!("{what}: off by {off:.1e}");
    assert!(off <= most, "{what}: off by {off:.1e}, allowed are {most:.1e}");
}

/// Conversations with the same content on both sides, for one format of rows.
pub(crate) struct Pair<F: KvFormat> {
    pub(crate) cpu: Cpu<F>,
    pub(crate) cuda: Cuda<F>,
    pub(crate) host: Vec<HostBank>,
    pub(crate) device: Vec<DeviceBank>,
    tokens: Vec<usize>,
}

impl<F: KvFormat> Pair<F> {
    /// `count` empty conversations.
    pub(crate) fn new(count: usize, sizes: BankSizes) -> Pair<F> {
        let (cpu, cuda) = (Cpu::new(), cuda_of());
        let host = (0..count).map(|_| cpu.new_bank(sizes)).collect();
        let device = (0..count).map(|_| cuda.new_bank(sizes)).collect();
        Pair { cpu, cuda, host, device, tokens: vec![0; count] }
    }

    /// One step of so many new tokens per conversation on both sides (none: it takes no part), committed.
    pub(crate) fn step(
        &mut self,
        counts: &[usize],
        work: impl FnOnce(&Cpu<F>, &mut Step<'_, HostBank>, &Cuda<F>, &mut Step<'_, DeviceBank>),
    ) {
        let taking = |bank: &usize| counts[*bank] > 0;
        let ids = vec![TokenId(0); counts.iter().copied().max().unwrap_or(0)];
        for bank in (0..counts.len()).filter(taking) {
            let end = self.tokens[bank] + counts[bank];
            self.cpu.begin(&mut self.host[bank], end).expect("host memory");
            self.cuda.begin(&mut self.device[bank], end).expect("device memory");
        }
        let starts: Vec<TokenPos> = self.tokens.iter().map(|&tokens| TokenPos(tokens as u32)).collect();
        let host = self.host.iter_mut().enumerate().filter(|(bank, _)| counts[*bank] > 0);
        let mut host = Step::new(host.map(|(i, bank)| (starts[i], &ids[..counts[i]], bank)), Vec::new());
        let device = self.device.iter_mut().enumerate().filter(|(bank, _)| counts[*bank] > 0);
        let mut device = Step::new(device.map(|(i, bank)| (starts[i], &ids[..counts[i]], bank)), Vec::new());
        self.cuda.prepare(&device).expect("a step can be prepared");
        work(&self.cpu, &mut host, &self.cuda, &mut device);
        self.cuda.finish().expect("the kernels ran");
        for bank in (0..counts.len()).filter(taking) {
            self.cpu.commit(&mut self.host[bank]);
            self.cuda.commit(&mut self.device[bank]);
            self.tokens[bank] += counts[bank];
        }
    }
}

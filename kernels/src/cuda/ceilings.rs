//! What a GPU can do at best.

use super::loader::Loader;
use crate::BackendError;
use crate::ceilings::Ceilings;
use ds4_gpu::DeviceMemory;
use ds4_gpu::cuda::{Args, DeviceBuffer, Event, Gpu, Launch, Stream};
use ds4_units::Bytes;

/// Many times the cache.
const BUFFER: Bytes = Bytes::mib(1024);
const THREADS: u32 = 256;
const REPEATS: usize = 7;
/// Threads of a block of the product, and shared memory for its numbers.
const PRODUCT_THREADS: u32 = 128;
const PRODUCT_SHARED: u32 = (64 + 128) * 64 * 2;
/// Multiplications and additions of a block in a round.
const ROUND_OPERATIONS: f64 = 2.0 * 64.0 * 128.0 * 64.0;
const ROUNDS: u32 = 20_000;

/// Measures a GPU. Takes some ten milliseconds and two gibibytes, which it gives back.
pub fn ceilings(gpu: &Gpu) -> Result<Ceilings, BackendError> {
    let loader = Loader::new(gpu);
    let function = |name| loader.function("ceilings", name);
    let (read, copy, product) = (function("ceilings_read")?, function("ceilings_copy")?, function("ceilings_product")?);
    let (from, to) = (DeviceBuffer::zeroed(gpu, BUFFER)?, DeviceBuffer::zeroed(gpu, BUFFER)?);
    let blocks = 8 * gpu.multiprocessors();
    let vectors = BUFFER.0 / 16;
    let stream = Stream::new(gpu)?;
    let bytes = BUFFER.0 as f64;
    let args = Args::new().with(from.address()).with(vectors).with(to.address());
    // SAFETY: the kernel reads `vectors` times 16 bytes, which `from` has, and may write a word to `to`.
    let read = bytes / fastest(&stream, || unsafe { read.launch(&stream, &Launch::new(blocks, THREADS), &args) })?;
    let args = Args::new().with(from.address()).with(to.address()).with(vectors);
    // SAFETY: both buffers have `vectors` times 16 bytes.
    let copied = bytes / fastest(&stream, || unsafe { copy.launch(&stream, &Launch::new(blocks, THREADS), &args) })?;
    let blocks = 4 * gpu.multiprocessors();
    let launch = Launch::new(blocks, PRODUCT_THREADS).shared(PRODUCT_SHARED);
    let args = Args::new().with(ROUNDS).with(to.address());
    // SAFETY: every thread writes one float to `to`, which has room for far more; shared memory is what `fill` fills.
    let took = fastest(&stream, || unsafe { product.launch(&stream, &launch, &args) })?;
    let operations = f64::from(blocks) * f64::from(ROUNDS) * ROUND_OPERATIONS / took;
    Ok(Ceilings { read, copied, operations })
}

/// Seconds of the fastest of some repetitions.
fn fastest(stream: &Stream, launch: impl Fn() -> Result<(), ds4_gpu::cuda::CudaError>) -> Result<f64, BackendError> {
    let (start, end) = (Event::timed(stream.gpu())?, Event::timed(stream.gpu())?);
    launch()?;
    let mut least = f64::INFINITY;
    for _ in 0..REPEATS {
        stream.record(&start)?;
        launch()?;
        stream.record(&end)?;
        stream.synchronize()?;
        least = least.min(f64::from(end.millis_since(&start)?) / 1000.0);
    }
    Ok(least)
}

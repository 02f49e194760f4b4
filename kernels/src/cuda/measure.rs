//! How long operations take on the device alone.

use super::{Cuda, few};
use crate::BackendError;
use crate::kv_rows::KvFormat;
use ds4_gpu::cuda::{CudaError, Event};
use std::ops::Range;

/// Replays that are timed; the median counts.
const REPLAYS: usize = 7;

impl<F: KvFormat> Cuda<F> {
    /// Kernels that operations have put into the stream so far, or into the recording of a step: those of an operation are
    /// the ones between the counts before and after it.
    pub fn launched(&self) -> u64 {
        self.device.launched()
    }

    /// Whether a step of so many rows is computed by operations that stand for several, where a model has the shapes
    /// that they take.
    pub fn fuses(&self, rows: usize) -> bool {
        rows <= few::SITE_ROWS_MAX
    }

    /// Microseconds that the device takes for `work`: the middle of several replays of its launches, which it records
    /// once as a graph. `work` runs twice before that, so that it has all its memory. Returns the fastest and the slowest
    /// replay as well. Blocks.
    pub fn measure(&self, work: impl Fn()) -> Result<(f32, Range<f32>), BackendError> {
        let stream = &self.device.stream;
        for _ in 0..2 {
            work();
        }
        self.device.finish()?;
        let graph = stream.capture(|| -> Result<(), CudaError> {
            work();
            Ok(())
        })?;
        let graph = graph.instantiate()?;
        let (start, end) = (Event::timed(&self.device.gpu)?, Event::timed(&self.device.gpu)?);
        let mut times = Vec::new();
        for _ in 0..REPLAYS {
            stream.record(&start)?;
            // SAFETY: what the recorded kernels read and write is kept by the arena and by the caller of `work`.
            unsafe { graph.launch(stream)? };
            stream.record(&end)?;
            self.device.finish()?;
            times.push(end.millis_since(&start)? * 1000.0);
        }
        times.sort_by(f32::total_cmp);
        Ok((times[REPLAYS / 2], times[0]..times[REPLAYS - 1]))
    }
}

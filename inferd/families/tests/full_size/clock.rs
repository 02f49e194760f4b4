//! Where the time of a prompt's step goes, operation by operation.
//!
//! A mark stands between operations in the device's stream. Steps of many rows keep the device busy, so that what lies
//! between two marks is the operation's time; for a few rows it would be the time it takes to launch them.

use crate::truth::{Side, Sides};
use ds4_gpu::cuda::Event;
use ds4_kernels::cuda::{Cuda, CudaOptions};
use ds4_kernels::kv_rows::PackedRows;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Rows of a step.
const ROWS: usize = 2048;
/// What a conversation holds after the steps that are looked at.
const DEPTHS: [usize; 2] = [2048, 32_768];

/// Prints a line per operation and depth, the longest first.
pub(crate) fn clock(sides: &Sides<'_>, tokens: &[u32]) -> anyhow::Result<()> {
    let endless: Vec<u32> = tokens.iter().copied().cycle().take(DEPTHS[1]).collect();
    let cuda = Cuda::<PackedRows>::new(sides.gpu, CudaOptions { context: sides.context })?;
    let mut side = Side::new(cuda.clone(), sides, sides.device)?;
    // Once unmeasured, so that memory is there.
    side.conversation.feed(&endless[..ROWS], ROWS)?;
    side.conversation.restart();
    for depth in DEPTHS {
        let (held, last) = (side.conversation.held(), depth - ROWS);
        if held < last {
            side.conversation.feed(&endless[held..last], ROWS)?;
        }
        let marks = Arc::new(Mutex::new(vec![cuda.mark()?]));
        let (from, to) = (cuda.clone(), Arc::clone(&marks));
        side.journal().clock(move || to.lock().expect("nobody panicked").extend(from.mark()));
        side.conversation.feed(&endless[last..depth], ROWS)?;
        let operations = side.journal().marked();
        print(depth, &operations, &marks.lock().expect("nobody panicked"))?;
    }
    Ok(())
}

fn print(depth: usize, operations: &[&'static str], marks: &[Event]) -> anyhow::Result<()> {
    anyhow::ensure!(marks.len() == operations.len() + 1, "a mark was not made");
    let mut sums = BTreeMap::<&str, (usize, f32)>::new();
    for (operation, pair) in operations.iter().zip(marks.windows(2)) {
        let (count, time) = sums.entry(operation).or_default();
        *count += 1;
        *time += pair[1].millis_since(&pair[0])?;
    }
    let whole: f32 = sums.values().map(|(_, time)| time).sum();
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    println!("{ROWS} rows up to {depth}: {whole:.1} ms");
    for (operation, (count, time)) in sums {
        println!("  {operation:18} {count:5} x, {time:8.2} ms, {:5.1} %", 100.0 * time / whole);
    }
    Ok(())
}

//! How fast prompts are read and answers written, one conversation at a time.

use crate::conversation::Conversation;
use ds4_gpu::cuda::Gpu;
use std::time::Instant;

/// Rows of a prompt's step.
const ROWS: usize = 2048;
/// Tokens of an answer.
const ANSWER: usize = 32;

/// Prints a line per depth: tokens a second from the depth before to this one, and of an answer there.
pub(crate) fn measure(conversation: &mut Conversation, tokens: &[u32]) -> anyhow::Result<()> {
    let endless: Vec<u32> = tokens.iter().copied().cycle().take(33_000).collect();
    // Once unmeasured, so that memory is there.
    conversation.restart();
    conversation.feed(&endless[..ROWS], ROWS)?;
    conversation.restart();
    for depth in [2048, 8192, 32_768] {
        let from = conversation.held();
        let began = Instant::now();
        conversation.feed(&endless[from..depth], ROWS)?;
        let prefill = (depth - from) as f64 / began.elapsed().as_secs_f64();
        conversation.feed(&endless[depth..depth + 2], 1)?;
        let began = Instant::now();
        conversation.feed(&endless[depth + 2..depth + 2 + ANSWER], 1)?;
        let decode = ANSWER as f64 / began.elapsed().as_secs_f64();
        println!("speed: prefill {from} to {depth}: {prefill:.0} tokens/s; decode at {depth}: {decode:.1} tokens/s");
    }
    Ok(())
}

/// Prints how fast a prompt is read in steps of so many rows: what the backend's own figure is chosen by.
pub(crate) fn by_rows(conversation: &mut Conversation, tokens: &[u32]) -> anyhow::Result<()> {
    let mut line = String::new();
    for rows in [128, 256, 512, 1024, 2048, 4096] {
        let tokens = &tokens[..tokens.len().min(2 * rows)];
        conversation.restart();
        conversation.feed(tokens, rows)?;
        conversation.restart();
        let began = Instant::now();
        conversation.feed(tokens, rows)?;
        line += &format!(" {rows}: {:.0}", tokens.len() as f64 / began.elapsed().as_secs_f64());
    }
    println!("speed: prompt tokens/s in two steps of so many rows:{line}");
    Ok(())
}

/// Depths whose steps a profiler looks at.
const PROFILED: [usize; 2] = [2048, 32_768];

/// Computes prompts, and one step of each kind at every depth where a profiler sees it: a prompt's last rows, a token.
pub(crate) fn profile(conversation: &mut Conversation, tokens: &[u32], gpu: &Gpu) -> anyhow::Result<()> {
    let endless: Vec<u32> = tokens.iter().copied().cycle().take(33_000).collect();
    conversation.restart();
    for depth in PROFILED {
        let last = depth - ROWS;
        if conversation.held() < last {
            conversation.feed(&endless[conversation.held()..last], ROWS)?;
        }
        println!("profiled: {ROWS} rows up to {depth}");
        gpu.profiled(|| conversation.feed(&endless[last..depth], ROWS))??;
        conversation.feed(&endless[depth..depth + 3], 1)?;
        println!("profiled: a token at {depth}");
        gpu.profiled(|| conversation.feed(&endless[depth + 3..depth + 4], 1))??;
    }
    Ok(())
}

//! How fast prompts are read and answers written.

use crate::conversation::Conversation;
use ds4_gpu::cuda::Gpu;
use std::time::Instant;

/// Rows of a prompt's step.
const ROWS: usize = 4096;
/// Steps of an answer that are timed, after some that are not: the first of a shape are not what follows.
const STEPS: usize = 32;
const STEPS_BEFORE: usize = 4;
/// Answers that are written at a time.
const COMPANIES: [usize; 4] = [1, 4, 16, 32];
/// Tokens of all their prompts: where they would be more, fewer answers are written. Conversations that have nothing in
/// common choose other experts than copies of one do, so each prompt is computed.
const PROMPTS_MOST: usize = 32 * 2048;

/// Prints a line per depth: tokens a second from the depth before to this one, and of answers of strangers there.
pub(crate) fn measure(conversation: &mut Conversation, tokens: &[u32], depths: &[usize]) -> anyhow::Result<()> {
    let endless: Vec<u32> = tokens.iter().copied().cycle().take(33_000).collect();
    // Once unmeasured, so that memory is there.
    conversation.restart();
    conversation.feed(&endless[..ROWS], ROWS)?;
    conversation.restart();
    for &depth in depths {
        let from = conversation.held();
        let began = Instant::now();
        conversation.feed(&endless[from..depth], ROWS)?;
        let prefill = (depth - from) as f64 / began.elapsed().as_secs_f64();
        println!("speed: prompt from {from} to {depth}: {prefill:.0} tokens/s");
        let companies = || COMPANIES.into_iter().filter(|company| company * depth <= PROMPTS_MOST);
        let strangers = match companies().max() {
            None | Some(1) => conversation.forks(1)?,
            Some(most) => conversation.strangers(most, &endless, ROWS)?,
        };
        for company in companies() {
            let mut answers = conversation.copies(&strangers, company)?;
            conversation.write(&mut answers, STEPS_BEFORE, &endless)?;
            let began = Instant::now();
            conversation.write(&mut answers, STEPS, &endless)?;
            let micros = began.elapsed().as_secs_f64() * 1e6;
            conversation.close(answers);
            let (step, rate) = (micros / STEPS as f64, (STEPS * company) as f64 / micros * 1e6);
            println!("speed: {company} answers at {depth}: {step:.0} us a step, {rate:.1} tokens/s");
        }
        conversation.close(strangers);
    }
    Ok(())
}

/// Prints how fast a prompt is read in steps of so many rows: what the backend's own figure is chosen by.
pub(crate) fn by_rows(conversation: &mut Conversation, tokens: &[u32]) -> anyhow::Result<()> {
    let mut line = String::new();
    // Once unmeasured, so that memory is there.
    conversation.restart();
    conversation.feed(&tokens[..4096], 4096)?;
    for rows in [128, 256, 512, 1024, 2048, 4096] {
        let tokens = &tokens[..2 * rows];
        conversation.restart();
        let began = Instant::now();
        conversation.feed(tokens, rows)?;
        line += &format!(" {rows}: {:.0}", tokens.len() as f64 / began.elapsed().as_secs_f64());
    }
    println!("speed: prompt tokens/s in two steps of so many rows:{line}");
    Ok(())
}

/// Rows of a step that a profiler looks at, and depths.
const PROFILED_ROWS: usize = 2048;
const PROFILED: [usize; 2] = [2048, 32_768];

/// Computes prompts, and one step of each kind at every depth where a profiler sees it: a prompt's last rows, a token.
pub(crate) fn profile(conversation: &mut Conversation, tokens: &[u32], gpu: &Gpu) -> anyhow::Result<()> {
    let endless: Vec<u32> = tokens.iter().copied().cycle().take(33_000).collect();
    conversation.restart();
    for depth in PROFILED {
        let last = depth - PROFILED_ROWS;
        if conversation.held() < last {
            conversation.feed(&endless[conversation.held()..last], ROWS)?;
        }
        println!("profiled: {PROFILED_ROWS} rows up to {depth}");
        gpu.profiled(|| conversation.feed(&endless[last..depth], ROWS))??;
        conversation.feed(&endless[depth..depth + 3], 1)?;
        println!("profiled: a token at {depth}");
        gpu.profiled(|| conversation.feed(&endless[depth + 3..depth + 4], 1))??;
        for company in [16, 32] {
            let mut forks = conversation.forks(company)?;
            println!("profiled: a token of each of {company} at {depth}");
            gpu.profiled(|| conversation.write(&mut forks, 1, &endless))??;
            conversation.close(forks);
        }
    }
    Ok(())
}

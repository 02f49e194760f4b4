//! How fast prompts are read and answers written, one conversation at a time.

use crate::conversation::Conversation;
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

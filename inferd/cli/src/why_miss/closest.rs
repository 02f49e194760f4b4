//! The kept conversation that has most in common with a prompt, byte by byte.

use ds4_api::Explained;
use ds4_banks::{Disk, Entry, Name, Summary, read_said};
use std::io;

/// Bytes shown on either side of a difference.
const EXCERPT: usize = 40;

/// A conversation beside a prompt.
pub(super) struct Closest {
    pub(super) folder: String,
    pub(super) name: Name,
    pub(super) summary: Summary,
    /// Bytes of its text.
    pub(super) bytes: usize,
    /// Bytes from the start that both have.
    pub(super) common: usize,
    /// Tokens from the start that both have.
    pub(super) common_tokens: usize,
    /// What it says around the first byte that differs.
    pub(super) excerpt: Excerpt,
}

/// Bytes around a position.
pub(super) struct Excerpt {
    pub(super) before: String,
    pub(super) after: String,
}

impl Excerpt {
    pub(super) fn of(text: &[u8], at: usize) -> Excerpt {
        let at = at.min(text.len());
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Excerpt {
            before: shown(&text[at.saturating_sub(EXCERPT)..at]),
            after: shown(&text[at..(at + EXCERPT).min(text.len())]),
        }
    }
}

/// The conversation with the most bytes in common; of equals the one with the fewest of its own.
pub(super) fn closest(
    folder: &dyn Disk,
    kept: &[(&Entry, Name, Summary)],
    request: &Explained,
) -> io::Result<Option<Closest>> {
    let mut best: Option<Closest> = None;
    for (entry, name, summary) in kept {
        let said = match folder.open(&entry.folder, &entry.facts.name).and_then(|file| read_said(&*file, *name)) {
            Ok(Ok((said, _))) => said,
            // Damaged: `ds4 kv verify` is for that.
            Ok(Err(_)) => continue,
            // Given up by a server that runs.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let common = said.text().iter().zip(&request.text).take_while(|(a, b)| a == b).count();
        let rank = |common: usize, bytes: usize| (common, std::cmp::Reverse(bytes));
        if best.as_ref().is_some_and(|best| rank(best.common, best.bytes) >= rank(common, said.text().len())) {
            continue;
        }
        let tokens = said.tokens().iter().zip(request.record.tokens());
        best = Some(Closest {
            folder: entry.folder.clone(),
            name: *name,
            summary: *summary,
            bytes: said.text().len(),
            common,
            common_tokens: tokens.take_while(|(a, b)| a == b).count(),
            excerpt: Excerpt::of(said.text(), common),
        });
    }
    Ok(best.filter(|best| best.common > 0))
}

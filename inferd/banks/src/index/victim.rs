//! Which file to give up.
//!
//! A file is worth the tokens it saves, times how likely it is asked for again, for every byte. The likelihood falls
//! with the time since its last use, as one over it (agents come back within minutes or never), and grows slowly with
//! past hits: a session that was busy and ended must not outlive those that go on. Only files that nothing continues
//! can go, so a beginning that many conversations share outlives all of them; nothing that is being restored, waits to
//! be restored, or is being continued goes.

use super::{Entry, EntryId, Index, Stray};
use crate::limits::IDLE_SECONDS_LEAST;

/// What a file counts when a later one holds its blocks again.
const SUPERSEDED: f64 = 0.1;

/// A file to give up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// A conversation of this worker.
    Entry(EntryId),
    /// Another file of ours.
    Stray(Stray),
}

impl Index {
    /// The file whose loss costs least; `None` when none may go. Set-aside files go first, then files of other
    /// identities, then by value, and last what could not be read: it may be of use after a restart.
    pub(crate) fn victim(&self, now: u64) -> Option<Victim> {
        if let Some(stray) = self.bad.iter().min().or_else(|| self.others.iter().min()) {
            return Some(Victim::Stray(stray.clone()));
        }
        let free = self.iter().filter(|(_, entry)| entry.children == 0 && entry.pins == 0);
        let scored = free.map(|(id, entry)| (self.value(entry, now), entry.used, id));
        let least = scored.min_by(|a, b| a.0.total_cmp(&b.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
        match least {
            Some((_, _, id)) => Some(Victim::Entry(id)),
            None => self.unread.iter().min().cloned().map(Victim::Stray),
        }
    }

    /// Tokens saved per byte, times how likely it is that they are.
    fn value(&self, entry: &Entry, now: u64) -> f64 {
        let before = entry.parent.and_then(|parent| self.get(parent)).map_or(0, |parent| parent.tokens);
        let saved = f64::from(entry.tokens.saturating_sub(before));
        let idle = now.saturating_sub(entry.used) as f64;
        let likely = (1.0 + f64::from(entry.hits + 1).log2()) / (idle + IDLE_SECONDS_LEAST);
        let repeated = if entry.superseded { SUPERSEDED } else { 1.0 };
        likely * repeated * saved / entry.size.0.max(1) as f64
    }
}

//! Which tokens a part of an answer's text decodes from.

use std::collections::VecDeque;

/// Keeps, for every token that no event has accounted for, where its text ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// Text so far, in bytes.
    text: usize,
    ends: VecDeque<usize>,
    /// Tokens of a character whose end has not come.
    in_character: usize,
}

impl Ledger {
    /// Text so far, in bytes.
    pub(super) fn text(&self) -> usize {
        self.text
    }

    /// A token whose text completes `bytes` more. `cut` says that it ends inside a character.
    pub(super) fn push(&mut self, bytes: usize, cut: bool) {
        self.text += bytes;
        if cut {
            self.in_character += 1;
            return;
        }
        let waiting = std::mem::take(&mut self.in_character) + 1;
        self.ends.extend(std::iter::repeat_n(self.text, waiting));
    }

    /// The character that did not end became `bytes` of text.
    pub(super) fn end_character(&mut self, bytes: usize) {
        self.text += bytes;
        let waiting = std::mem::take(&mut self.in_character);
        self.ends.extend(std::iter::repeat_n(self.text, waiting));
    }

    /// Takes the tokens that end at or before a position of the text.
    pub(super) fn take(&mut self, until: usize) -> usize {
        let count = self.ends.iter().take_while(|&&end| end <= until).count();
        self.ends.drain(..count);
        count
    }

    /// The last position at or before `position` where a token ends; `from` when there is none after it.
    pub(super) fn floor(&self, from: usize, position: usize) -> usize {
        self.ends.iter().copied().take_while(|&end| end <= position).last().unwrap_or(from).max(from)
    }
}

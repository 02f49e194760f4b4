//! What a bank is at its last step, written where a kill does not erase it.
//!
//! A journal is shared memory beside the bank's own: the ids of the bank's tokens, a list of the pieces that its memory
//! is in, and one word that says how many tokens count, which copy of the recurrent part belongs to them, and which
//! list is true. Everything else is written first; the word is one indivisible store after the device has done the step.
//! So whoever takes the memory over finds the state after a step or before it, and no third one.
//!
//! Whoever keeps the pieces hears of new ones a moment after they were committed. Until then, and no longer than until the
//! next step writes, the word before is left beside the word: a kill in that moment leaves the state before the step.

use ds4_gpu::{RangeError, SharedWords};
use ds4_units::{BankId, Bytes, TokenId, Tokens};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// `ds4bank` and the layout's number.
const MAGIC: u64 = u64::from_le_bytes(*b"ds4bank\x02");

// Places of the words.
const FINGERPRINT: usize = 1;
const CAPACITY: usize = 5;
const USED: usize = 6;
const WORD: usize = 8;
/// The word before, where that one's list is another and its state is intact; else zero.
const BEFORE: usize = 9;
const LISTS: usize = 16;
/// Words of one of the two lists.
const LIST_LEN: usize = 2048;
const IDS: usize = LISTS + 2 * LIST_LEN;

/// Checkpoints and pieces that a list may name; more than any bank has.
const LISTED_MAX: u64 = 1024;

/// The pieces that a bank's memory is in, by their lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Of each checkpoint: how many tokens it is of, and its pieces.
    pub checkpoints: Vec<(Tokens, Vec<Bytes>)>,
    /// Of the bank itself.
    pub bank: Vec<Bytes>,
}

/// Descriptors that keep a bank when its process is gone: its journal, its checkpoints' pieces, its own.
#[derive(Debug)]
pub struct Parcel {
    /// Which of the journal's lists names them. With another one they are of no use.
    pub epoch: u32,
    /// The descriptors.
    pub fds: Vec<OwnedFd>,
}

/// A bank in memory that a dead process has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The bank.
    pub bank: BankId,
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// When it was used last, in milliseconds since 1970.
    pub used_ms: u64,
}

/// What a journal said when its writer died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The ids of all tokens that count.
    pub tokens: Vec<TokenId>,
    /// Which copy of the recurrent part belongs to them.
    pub copy: usize,
    /// The pieces.
    pub pieces: Pieces,
}

/// Why a journal is not believed.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum JournalError {
    #[error(transparent)]
    Memory(#[from] RangeError),
    #[error("is no journal of this build")]
    NotOne,
    #[error("is of other weights, another layout or another device")]
    OtherContent,
    #[error("was never committed, or was given up")]
    Void,
    #[error("was committed with pieces of epoch {committed}, and those of epoch {kept} were kept")]
    OtherPieces { committed: u32, kept: u32 },
    #[error("names more pieces or tokens than there can be")]
    Overlong,
}

/// The journal of one bank.
#[derive(Debug)]
pub struct Journal {
    words: SharedWords,
    capacity: Tokens,
    epoch: u32,
}

impl Journal {
    /// A journal for a bank of up to `capacity` tokens. `fingerprint` is of all that the bank's bytes depend on.
    pub fn create(fingerprint: [u8; 32], capacity: Tokens) -> Result<Journal, RangeError> {
        let words = SharedWords::create("ds4-journal", IDS + capacity.index().div_ceil(2))?;
        let all = words.words();
        for (word, value) in all[FINGERPRINT..].iter().zip(fingerprint_words(&fingerprint)) {
            word.store(value, Relaxed);
        }
        all[CAPACITY].store(u64::from(capacity.0), Relaxed);
        all[0].store(MAGIC, Release);
        Ok(Journal { words, capacity, epoch: 0 })
    }

    /// Takes over the journal of a dead process, if it is of this content and belongs to pieces of epoch `kept`.
    pub fn adopt(fd: OwnedFd, fingerprint: [u8; 32], kept: u32) -> Result<(Journal, Left), JournalError> {
        let words = SharedWords::adopt(fd)?;
        let all = words.words();
        if all.len() < IDS || all[0].load(Acquire) != MAGIC {
            return Err(JournalError::NotOne);
        }
        let same = |(word, value): (&std::sync::atomic::AtomicU64, u64)| word.load(Relaxed) == value;
        if !all[FINGERPRINT..].iter().zip(fingerprint_words(&fingerprint)).all(same) {
            return Err(JournalError::OtherContent);
        }
        let mut word = Word(all[WORD].load(Acquire));
        let before = Word(all[BEFORE].load(Acquire));
        if word.epoch() != kept && word.counts() && before.counts() && before.epoch() == kept {
            // Its writer died before the pieces of its last commit were kept.
            word = before;
            all[WORD].store(word.0, Release);
        }
        all[BEFORE].store(0, Relaxed);
        let (epoch, copy, tokens) = (word.epoch(), word.copy(), word.tokens());
        if !word.counts() {
            return Err(JournalError::Void);
        }
        if epoch != kept {
            return Err(JournalError::OtherPieces { committed: epoch, kept });
        }
        let capacity = u32::try_from(all[CAPACITY].load(Relaxed)).map_err(|_| JournalError::NotOne)?;
        let ids = &words.halves()[2 * IDS..];
        if tokens > capacity || ids.len() < capacity as usize {
            return Err(JournalError::Overlong);
        }
        let tokens = ids[..tokens as usize].iter().map(|id| TokenId(id.load(Relaxed))).collect();
        let pieces = read_list(&words, epoch).ok_or(JournalError::Overlong)?;
        Ok((Journal { words, capacity: Tokens(capacity), epoch }, Left { tokens, copy, pieces }))
    }

    /// The same journal with room for `capacity` tokens; this one is void from now on.
    pub fn replaced(self, fingerprint: [u8; 32], capacity: Tokens, held: Tokens) -> Result<Journal, RangeError> {
        let mut larger = Journal::create(fingerprint, capacity)?;
        larger.copy_ids(&self, held);
        larger.epoch = self.epoch;
        self.void();
        Ok(larger)
    }

    /// Tokens it has room for.
    pub fn capacity(&self) -> Tokens {
        self.capacity
    }

    /// The list that is true.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Notes ids from position `at` on, none of which counts yet. What there is no room for is left out, and cannot be
    /// committed.
    pub fn note(&self, at: Tokens, tokens: &[TokenId]) {
        let ids = self.words.halves().get(2 * IDS + at.index()..).unwrap_or_default();
        ids.iter().zip(tokens).for_each(|(id, token)| id.store(token.0, Relaxed));
    }

    /// Notes the first `count` ids of another journal.
    pub fn copy_ids(&self, from: &Journal, count: Tokens) {
        let (from, to) = (&from.words.halves()[2 * IDS..], &self.words.halves()[2 * IDS..]);
        from.iter().zip(to).take(count.index()).for_each(|(from, to)| to.store(from.load(Relaxed), Relaxed));
    }

    /// Says that the bank is about to be written to: of the commit before the last nothing is left.
    pub fn begin(&self) {
        self.words.words()[BEFORE].store(0, Relaxed);
        // Seen before anything that is written from now on.
        fence(Release);
    }

    /// Says that the first `tokens` tokens count, with copy `copy` of the recurrent part, in the pieces listed last or
    /// in these. The device must have done everything that they depend on.
    pub fn commit(&mut self, tokens: Tokens, copy: usize, pieces: Option<&Pieces>) -> Result<(), JournalError> {
        let mut before = 0;
        if let Some(pieces) = pieces {
            let next = self.epoch.checked_add(1).ok_or(JournalError::Overlong)?;
            // The list of the word before the last is overwritten; that of the last is not.
            self.begin();
            write_list(&self.words, next, pieces).ok_or(JournalError::Overlong)?;
            before = self.words.words()[WORD].load(Relaxed);
            self.epoch = next;
        }
        if tokens > self.capacity {
            return Err(JournalError::Overlong);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        self.words.words()[USED].store(now, Relaxed);
        if before != 0 {
            self.words.words()[BEFORE].store(before, Release);
        }
        let word = Word::new(self.epoch, copy, tokens).0;
        self.words.words()[WORD].store(word, Release);
        Ok(())
    }

    /// Says that nothing counts any more.
    pub fn void(&self) {
        self.begin();
        self.words.words()[WORD].store(0, Release);
    }

    /// When it was committed last, in milliseconds since 1970.
    pub fn used_ms(&self) -> u64 {
        self.words.words()[USED].load(Relaxed)
    }

    /// A descriptor for whoever is to keep it.
    pub fn export(&self) -> Result<OwnedFd, RangeError> {
        self.words.export()
    }
}

/// How many tokens count, which copy of the recurrent part belongs to them, and which list is true.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    fn new(epoch: u32, copy: usize, tokens: Tokens) -> Word {
        Word(u64::from(epoch) << 32 | (copy as u64 & 1) << 31 | u64::from(tokens.0))
    }

    fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn copy(self) -> usize {
        (self.0 >> 31 & 1) as usize
    }

    fn tokens(self) -> u32 {
        self.0 as u32 & !(1 << 31)
    }

    /// Whether there is anything that it tells of.
    fn counts(self) -> bool {
        self.epoch() != 0 && self.tokens() != 0
    }
}

fn fingerprint_words(fingerprint: &[u8; 32]) -> impl Iterator<Item = u64> + '_ {
    fingerprint.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Where the list of an epoch is: the next one does not overwrite it.
fn list(words: &SharedWords, epoch: u32) -> &[std::sync::atomic::AtomicU64] {
    &words.words()[LISTS + epoch as usize % 2 * LIST_LEN..][..LIST_LEN]
}

fn write_list(words: &SharedWords, epoch: u32, pieces: &Pieces) -> Option<()> {
    let mut numbers = vec![pieces.checkpoints.len() as u64];
    for (tokens, lens) in &pieces.checkpoints {
        numbers.extend([u64::from(tokens.0), lens.len() as u64]);
        numbers.extend(lens.iter().map(|len| len.0));
    }
    numbers.push(pieces.bank.len() as u64);
    numbers.extend(pieces.bank.iter().map(|len| len.0));
    let list = list(words, epoch);
    if numbers.len() > list.len() {
        return None;
    }
    list.iter().zip(numbers).for_each(|(word, number)| word.store(number, Relaxed));
    Some(())
}

fn read_list(words: &SharedWords, epoch: u32) -> Option<Pieces> {
    let mut numbers = list(words, epoch).iter().map(|word| word.load(Relaxed));
    let mut pieces = Pieces::default();
    for _ in 0..bounded(numbers.next())? {
        let tokens = Tokens(u32::try_from(numbers.next()?).ok()?);
        pieces.checkpoints.push((tokens, read_lens(&mut numbers)?));
    }
    pieces.bank = read_lens(&mut numbers)?;
    Some(pieces)
}

fn read_lens(numbers: &mut impl Iterator<Item = u64>) -> Option<Vec<Bytes>> {
    let count = bounded(numbers.next())?;
    let lens: Vec<Bytes> = numbers.take(count as usize).map(Bytes).collect();
    (lens.len() as u64 == count).then_some(lens)
}

fn bounded(count: Option<u64>) -> Option<u64> {
    count.filter(|&count| count <= LISTED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: [u8; 32] = [7; 32];

    fn ids(range: std::ops::Range<u32>) -> Vec<TokenId> {
        range.map(TokenId).collect()
    }

    fn pieces(bank: u64) -> Pieces {
        Pieces { checkpoints: vec![(Tokens(2), vec![Bytes(64)])], bank: vec![Bytes(bank), Bytes(8)] }
    }

    /// What somebody else would find after a kill now, if epoch `kept` was kept.
    fn after_kill(journal: Journal, kept: u32) -> Result<(Journal, Left), JournalError> {
        let fd = journal.export().unwrap();
        drop(journal);
        Journal::adopt(fd, OF, kept)
    }

    #[test]
    fn what_was_committed_is_found_and_what_was_only_noted_is_not() {
        let mut journal = Journal::create(OF, Tokens(10)).unwrap();
        journal.note(Tokens(0), &ids(100..104));
        journal.commit(Tokens(4), 1, Some(&pieces(16))).unwrap();
        journal.note(Tokens(4), &ids(200..206));
        let (mut journal, left) = after_kill(journal, 1).unwrap();
        assert_eq!(left, Left { tokens: ids(100..104), copy: 1, pieces: pieces(16) });
        journal.note(Tokens(4), &ids(300..306));
        journal.commit(Tokens(10), 0, None).unwrap();
        let (mut journal, left) = after_kill(journal, 1).unwrap();
        assert_eq!((left.tokens[3..5].to_vec(), left.copy), (vec![TokenId(103), TokenId(300)], 0));
        journal.commit(Tokens(3), 1, None).unwrap();
        assert_eq!(after_kill(journal, 1).unwrap().1.tokens, ids(100..103));
    }

    /// Four tokens in pieces that are kept, then nine in others that are not yet.
    fn ahead_of_its_keeper() -> Journal {
        let mut journal = Journal::create(OF, Tokens(10)).unwrap();
        journal.note(Tokens(0), &ids(0..9));
        journal.commit(Tokens(4), 0, Some(&pieces(16))).unwrap();
        journal.commit(Tokens(9), 1, Some(&pieces(32))).unwrap();
        journal
    }

    #[test]
    fn until_new_pieces_are_kept_a_kill_leaves_the_state_before_them() {
        let fd = ahead_of_its_keeper().export().unwrap();
        let again = || fd.try_clone().unwrap();
        let (mut journal, left) = Journal::adopt(again(), OF, 1).unwrap();
        assert_eq!(left, Left { tokens: ids(0..4), copy: 0, pieces: pieces(16) });
        // That is its state from now on, whoever asks.
        drop(journal);
        assert!(matches!(Journal::adopt(again(), OF, 2), Err(JournalError::OtherPieces { committed: 1, kept: 2 })));
        journal = Journal::adopt(again(), OF, 1).unwrap().0;
        journal.note(Tokens(4), &ids(50..56));
        journal.commit(Tokens(10), 1, Some(&pieces(48))).unwrap();
        let (_, left) = after_kill(journal, 2).unwrap();
        assert_eq!((left.tokens[3..5].to_vec(), left.pieces), (vec![TokenId(3), TokenId(50)], pieces(48)));
        // And with the new pieces kept it is the state after.
        assert_eq!(after_kill(ahead_of_its_keeper(), 2).unwrap().1.tokens, ids(0..9));
    }

    #[test]
    fn pieces_that_were_not_kept_before_the_next_step_are_in_doubt() {
        let other = |journal| after_kill(journal, 1).unwrap_err();
        let journal = ahead_of_its_keeper();
        journal.begin();
        assert!(matches!(other(journal), JournalError::OtherPieces { committed: 2, kept: 1 }));
        let mut journal = ahead_of_its_keeper();
        journal.commit(Tokens(9), 1, Some(&pieces(48))).unwrap();
        assert!(matches!(other(journal), JournalError::OtherPieces { committed: 3, kept: 1 }));
        let journal = ahead_of_its_keeper();
        journal.void();
        assert!(matches!(other(journal), JournalError::Void));
    }

    #[test]
    fn a_journal_of_something_else_a_void_one_and_one_whose_writer_lives_are_not_believed() {
        let mut journal = Journal::create(OF, Tokens(10)).unwrap();
        let fd = journal.export().unwrap();
        let again = || fd.try_clone().unwrap();
        assert!(matches!(Journal::adopt(again(), OF, 1), Err(JournalError::Memory(RangeError::InUse))));
        journal.note(Tokens(0), &ids(0..9));
        journal.commit(Tokens(9), 0, Some(&pieces(16))).unwrap();
        assert!(matches!(journal.commit(Tokens(11), 0, None), Err(JournalError::Overlong)));
        drop(journal);
        assert!(matches!(Journal::adopt(again(), [8; 32], 1), Err(JournalError::OtherContent)));
        let (journal, _) = Journal::adopt(again(), OF, 1).unwrap();
        let larger = journal.replaced(OF, Tokens(20), Tokens(9)).unwrap();
        assert_eq!((larger.capacity(), larger.epoch()), (Tokens(20), 1));
        assert!(matches!(Journal::adopt(again(), OF, 1), Err(JournalError::Void)));
        let other = SharedWords::create("other", IDS).unwrap();
        let fd = other.export().unwrap();
        drop(other);
        assert!(matches!(Journal::adopt(fd, OF, 1), Err(JournalError::NotOne)));
    }

    #[test]
    fn lists_too_long_and_numbers_that_cannot_be_are_refused() {
        let mut journal = Journal::create(OF, Tokens(10)).unwrap();
        let endless = Pieces { bank: vec![Bytes(1); LIST_LEN], ..Pieces::default() };
        assert!(matches!(journal.commit(Tokens(1), 0, Some(&endless)), Err(JournalError::Overlong)));
        journal.commit(Tokens(1), 0, Some(&pieces(16))).unwrap();
        list(&journal.words, 1)[0].store(u64::MAX, Relaxed);
        assert!(matches!(after_kill(journal, 1), Err(JournalError::Overlong)));
    }
}

//! One conversation's state: memory, frontier and the checkpoints it can be cut back to.

use ds4_gpu::MemoryPiece;
use ds4_kernels::backend::{Backend, BackendError};
use ds4_kernels::bank::{BLOCK_TOKENS, BankImage, BankSizes, BankState, BlockBytes};
use ds4_model::{Journal, JournalError, Left, Parcel, Pieces};
use ds4_units::{Bytes, TokenId, Tokens};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Checkpoints that a bank of so many tokens keeps at most; taking one more forgets the oldest. A short conversation
/// has few places to go back to, and each costs as much as hundreds of its tokens.
pub(super) fn checkpoints_most(tokens: Tokens) -> usize {
    (2 + tokens.index() / 1024).min(CHECKPOINTS_MAX)
}

/// Checkpoints of the longest.
const CHECKPOINTS_MAX: usize = 16;

/// Checkpoints that a bank at rest keeps: its end, where its last prompt ended, and one more of each.
const CHECKPOINTS_RESTING: usize = 4;

/// A bank takes a checkpoint by itself whenever a step ends this many tokens or more after the last one.
const CHECKPOINT_INTERVAL: u32 = 2048;

/// A bank on a backend.
pub(super) struct Bank<B: Backend> {
    memory: B::Bank,
    tokens: Tokens,
    /// Tokens the running step adds.
    pending: u32,
    /// In order of position, none twice.
    checkpoints: VecDeque<(Tokens, B::Checkpoint)>,
    /// The last checkpoint that the device is known to have copied.
    settled: Option<Tokens>,
    /// Another number whenever checkpoints that a journal may name have come or gone.
    checkpoint_changes: u64,
    /// For whoever goes on with the bank when this process is killed.
    journal: Option<Journal>,
    /// What the journal's list names.
    listed: Option<Listed>,
}

/// What a journal's list names: which changes of memory and checkpoints it knows, and the checkpoints by their positions,
/// all of which there are.
struct Listed {
    memory: u64,
    checkpoints: u64,
    at: Vec<Tokens>,
}

/// Why memory that was left is not taken over.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAdopted {
    #[error("has a journal that {0}")]
    Journal(#[from] JournalError),
    #[error("has {fds} descriptors, and its journal names {named}")]
    Descriptors { fds: usize, named: usize },
    #[error("has {} tokens; the context is {}", .tokens.0, .context.0)]
    TooLong { tokens: Tokens, context: Tokens },
    #[error("has a token that is none of this vocabulary's")]
    Token,
    #[error("cannot be had: {0}")]
    Memory(#[from] BackendError),
}

/// What a bank may be here.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) sizes: BankSizes,
    pub(super) context: Tokens,
    pub(super) vocabulary: usize,
}

impl<B: Backend> Bank<B> {
    /// An empty bank, which keeps a journal if it is given one.
    pub(super) fn empty(backend: &B, sizes: BankSizes, journal: Option<Journal>) -> Bank<B> {
        Bank::of(backend.new_bank(sizes), Tokens(0), journal)
    }

    fn of(memory: B::Bank, tokens: Tokens, journal: Option<Journal>) -> Bank<B> {
        let checkpoints = VecDeque::new();
        Bank { memory, tokens, pending: 0, checkpoints, settled: None, checkpoint_changes: 0, journal, listed: None }
    }

    /// A second bank with what this one held at [`Bank::restorable`]. They share no memory, so that each is what it takes;
    /// where the copy begins is a position it can be cut back to.
    pub(super) fn fork(
        &self,
        backend: &B,
        sizes: BankSizes,
        to: Tokens,
        journal: Option<Journal>,
    ) -> Result<Bank<B>, BackendError> {
        let reached = self.restorable(to);
        if reached.0 == 0 {
            return Ok(Bank::empty(backend, sizes, journal));
        }
        let mut copy = Bank::of(backend.fork(&self.memory, reached.index())?, reached, journal);
        if let (Some(from), Some(to)) = (&self.journal, &copy.journal) {
            // They count from the first step on, when the device has made the copy.
            to.copy_ids(from, reached);
        }
        let earlier = self.checkpoints.iter().find(|(at, _)| reached < self.tokens && *at == reached);
        if let Some((_, checkpoint)) = earlier {
            copy.begin_journal();
            backend.restore(&mut copy.memory, checkpoint, reached.index())?;
            copy.write_journal(backend);
        }
        // Without this checkpoint the bank is only reused less.
        let _ = copy.checkpoint(backend);
        Ok(copy)
    }

    /// Gives an empty bank blocks with these bytes, `first` and those after it.
    pub(super) fn fill(&mut self, backend: &B, first: usize, blocks: &[BlockBytes]) -> Result<(), BackendError> {
        backend.write_blocks(&mut self.memory, first, blocks)
    }

    /// Makes a bank that has all its blocks one of these tokens. Its end is a position it can be cut back to.
    pub(super) fn filled(&mut self, backend: &B, tokens: &[TokenId], recurrent: &[u8]) -> Result<(), BackendError> {
        backend.write_recurrent(&mut self.memory, recurrent)?;
        self.tokens = Tokens(tokens.len() as u32);
        self.note(Tokens(0), tokens);
        self.write_journal(backend);
        self.checkpoint(backend)
    }

    /// A bank in the memory that a dead process has left, and its tokens. `fingerprint` is what it must be of.
    pub(super) fn adopt(
        backend: &B,
        bounds: Bounds,
        fingerprint: [u8; 32],
        parcel: Parcel,
    ) -> Result<(Bank<B>, Vec<TokenId>), NotAdopted> {
        let fds = parcel.fds.len();
        let mut left_fds = parcel.fds.into_iter();
        let first = left_fds.next().ok_or(NotAdopted::Descriptors { fds, named: 1 })?;
        let (journal, Left { tokens: ids, copy, pieces }) = Journal::adopt(first, fingerprint, parcel.epoch)?;
        let named = 1 + pieces.bank.len() + pieces.checkpoints.iter().map(|(_, lens)| lens.len()).sum::<usize>();
        if fds != named {
            return Err(NotAdopted::Descriptors { fds, named });
        }
        let tokens = Tokens(ids.len() as u32);
        if tokens > bounds.context {
            return Err(NotAdopted::TooLong { tokens, context: bounds.context });
        }
        if ids.iter().any(|id| id.index() >= bounds.vocabulary) {
            return Err(NotAdopted::Token);
        }
        let mut checkpoints = VecDeque::with_capacity(pieces.checkpoints.len());
        for (at, lens) in &pieces.checkpoints {
            checkpoints.push_back((*at, backend.adopt_checkpoint(bounds.sizes, take(&mut left_fds, lens))?));
        }
        // A checkpoint beyond the frontier, or two in the wrong order, would be a defect of who wrote them.
        let ordered = checkpoints.iter().zip(checkpoints.iter().skip(1)).all(|((a, _), (b, _))| a < b);
        if !ordered || checkpoints.back().is_some_and(|(at, _)| *at > tokens) {
            return Err(JournalError::Overlong.into());
        }
        let state = BankState { blocks: tokens.index().div_ceil(BLOCK_TOKENS), committed: copy };
        let memory = backend.adopt_memory(bounds.sizes, state, take(&mut left_fds, &pieces.bank))?;
        let has_room = journal.capacity() >= bounds.context;
        let journal = match has_room {
            true => journal,
            false => journal.replaced(fingerprint, bounds.context, tokens).map_err(JournalError::from)?,
        };
        let mut bank = Bank::of(memory, tokens, Some(journal));
        bank.checkpoints = checkpoints;
        bank.settle();
        if has_room {
            bank.listed = Some(bank.listing(backend));
        } else {
            bank.write_journal(backend);
        }
        Ok((bank, ids))
    }

    /// Which descriptors keep it; `None` while there is nothing to keep, or after a step that took memory and failed, which
    /// the next step mends.
    pub(super) fn epoch(&self, backend: &B) -> Option<u32> {
        let (journal, listed) = (self.journal.as_ref()?, self.listed.as_ref()?);
        (listed.memory == backend.memory_changes(&self.memory)).then_some(journal.epoch())
    }

    /// When it was used last, in milliseconds since 1970; 0 without a journal.
    pub(super) fn used_ms(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::used_ms)
    }

    /// The descriptors that keep it.
    pub(super) fn parcel(&self, backend: &B) -> Result<Option<Parcel>, BackendError> {
        let (Some(epoch), Some(journal), Some(listed)) = (self.epoch(backend), &self.journal, &self.listed) else {
            return Ok(None);
        };
        let mut fds = vec![journal.export()?];
        // A checkpoint taken since is not named yet, and may not have been copied by the device yet.
        for (_, checkpoint) in self.checkpoints.iter().filter(|(at, _)| listed.at.contains(at)) {
            fds.extend(backend.export_checkpoint(checkpoint)?.into_iter().map(|piece| piece.fd));
        }
        fds.extend(backend.export_memory(&self.memory)?.into_iter().map(|piece| piece.fd));
        Ok(Some(Parcel { epoch, fds }))
    }

    /// Its bytes from block `first` on.
    pub(super) fn image(&self, backend: &B, first: usize) -> Result<BankImage, BackendError> {
        backend.read_bank(&self.memory, first)
    }

    /// Tokens the bank holds.
    pub(super) fn tokens(&self) -> Tokens {
        self.tokens
    }

    pub(super) fn memory_mut(&mut self) -> &mut B::Bank {
        &mut self.memory
    }

    /// Prepares to take `count` more tokens. Until [`Bank::commit`] the bank still holds what it held.
    pub(super) fn begin(&mut self, backend: &B, count: usize) -> Result<(), BackendError> {
        self.pending = u32::try_from(count).expect("a segment fits the context");
        self.begin_journal();
        backend.begin(&mut self.memory, self.tokens.index() + count)
    }

    /// Prepares to compute what follows `count` more tokens that will not be committed, from what the last such step
    /// wrote.
    pub(super) fn begin_on_top(&mut self, backend: &B, count: usize) -> Result<(), BackendError> {
        self.begin_journal();
        backend.begin_on_top(&mut self.memory, self.tokens.index() + count)
    }

    /// Takes the step's tokens, which the device has computed.
    pub(super) fn commit(&mut self, backend: &B, tokens: &[TokenId]) {
        self.note(self.tokens, tokens);
        backend.commit(&mut self.memory);
        self.tokens.0 += self.pending;
        self.settle();
        let last = self.checkpoints.back().map_or(0, |(tokens, _)| tokens.0);
        let is_due = self.tokens.0 - last >= CHECKPOINT_INTERVAL;
        if is_due {
            self.forget_oldest();
        }
        self.write_journal(backend);
        if is_due {
            // Without this checkpoint the bank is only reused less.
            let _ = self.checkpoint(backend);
        }
    }

    /// Remembers the present frontier.
    pub(super) fn checkpoint(&mut self, backend: &B) -> Result<(), BackendError> {
        if self.checkpoints.back().is_some_and(|(tokens, _)| *tokens == self.tokens) || self.tokens.0 == 0 {
            return Ok(());
        }
        if self.forget_oldest() && self.listed.is_some() {
            // The list must not name what is gone: nobody could be given it.
            self.write_journal(backend);
        }
        self.checkpoints.push_back((self.tokens, backend.checkpoint(&self.memory)?));
        Ok(())
    }

    /// Makes room for one more checkpoint; true if some had to go.
    fn forget_oldest(&mut self) -> bool {
        let before = self.checkpoints.len();
        while self.checkpoints.len() >= checkpoints_most(self.tokens) {
            self.checkpoints.pop_front();
        }
        let some_went = self.checkpoints.len() < before;
        self.checkpoint_changes += u64::from(some_went);
        some_went
    }

    /// Forgets all checkpoints but the latest.
    pub(super) fn trim(&mut self, backend: &B) {
        let old = self.checkpoints.len().saturating_sub(CHECKPOINTS_RESTING);
        if old > 0 {
            self.checkpoints.drain(..old);
            self.checkpoint_changes += 1;
            self.write_journal(backend);
        }
    }

    /// The largest position at or below `to` that the bank can be cut to.
    pub(super) fn restorable(&self, to: Tokens) -> Tokens {
        if to >= self.tokens {
            return self.tokens;
        }
        let reachable = self.checkpoints.iter().rev().map(|(tokens, _)| *tokens);
        reachable.into_iter().find(|&tokens| tokens <= to).unwrap_or(Tokens(0))
    }

    /// Cuts the bank to [`Bank::restorable`] and returns where that is.
    pub(super) fn truncate(&mut self, backend: &B, sizes: BankSizes, to: Tokens) -> Result<Tokens, BackendError> {
        let reached = self.restorable(to);
        if reached < self.tokens {
            self.checkpoints.retain(|(tokens, _)| *tokens <= reached);
            self.checkpoint_changes += 1;
            match self.checkpoints.back() {
                Some((tokens, checkpoint)) => {
                    self.begin_journal();
                    backend.restore(&mut self.memory, checkpoint, tokens.index())?;
                    self.tokens = reached;
                    self.settle();
                    self.write_journal(backend);
                }
                None => {
                    self.void_journal();
                    self.memory = backend.new_bank(sizes);
                    self.tokens = reached;
                }
            }
        }
        Ok(reached)
    }

    /// Memory of blocks, recurrent part and checkpoints.
    pub(super) fn resident_bytes(&self, backend: &B) -> Bytes {
        let checkpoints: u64 =
            self.checkpoints.iter().map(|(_, checkpoint)| backend.checkpoint_bytes(checkpoint).0).sum();
        Bytes(backend.bank_bytes(&self.memory).0 + checkpoints)
    }

    /// Its memory is about to be written to.
    fn begin_journal(&self) {
        if let Some(journal) = &self.journal {
            journal.begin();
        }
    }

    fn note(&self, at: Tokens, tokens: &[TokenId]) {
        if let Some(journal) = &self.journal {
            journal.note(at, tokens);
        }
    }

    /// Makes the present state the one that a kill leaves. The device must have done everything it depends on.
    fn write_journal(&mut self, backend: &B) {
        let Some(mut journal) = self.journal.take() else { return };
        let changes = (backend.memory_changes(&self.memory), self.checkpoint_changes);
        let is_listed = self.listed.as_ref().is_some_and(|listed| (listed.memory, listed.checkpoints) == changes);
        let pieces = (!is_listed).then(|| self.pieces(backend));
        let committed = journal.commit(self.tokens, backend.committed(&self.memory), pieces.as_ref());
        self.journal = Some(journal);
        match committed {
            Ok(()) if is_listed => {}
            Ok(()) => self.listed = Some(self.listing(backend)),
            // Such a bank is left to nobody.
            Err(_) => self.void_journal(),
        }
    }

    fn void_journal(&mut self) {
        self.listed = None;
        if let Some(journal) = &self.journal {
            journal.void();
        }
    }

    fn listing(&self, backend: &B) -> Listed {
        Listed {
            memory: backend.memory_changes(&self.memory),
            checkpoints: self.checkpoint_changes,
            at: self.settled_checkpoints().map(|(at, _)| *at).collect(),
        }
    }

    /// The device has done everything that was asked of it for this bank.
    fn settle(&mut self) {
        let last = self.checkpoints.back().map(|(at, _)| *at);
        self.checkpoint_changes += u64::from(self.settled != last);
        self.settled = last;
    }

    fn settled_checkpoints(&self) -> impl Iterator<Item = &(Tokens, B::Checkpoint)> {
        self.checkpoints.iter().filter(|(at, _)| Some(*at) <= self.settled)
    }

    fn pieces(&self, backend: &B) -> Pieces {
        Pieces {
            checkpoints: self.settled_checkpoints().map(|(at, copy)| (*at, backend.checkpoint_pieces(copy))).collect(),
            bank: backend.memory_pieces(&self.memory),
        }
    }
}

/// The next descriptors, one for each length.
fn take(fds: &mut impl Iterator<Item = OwnedFd>, lens: &[Bytes]) -> Vec<MemoryPiece> {
    lens.iter().zip(fds).map(|(&len, fd)| MemoryPiece { fd, len }).collect()
}

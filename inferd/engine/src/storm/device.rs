//! A device of pages, and a model whose banks live in them.
//!
//! Pages that nobody wrote hold poison, and pages that were given back keep what was in them: whoever reads past a bank's
//! frontier reads something wrong and answers something wrong.

use ds4_model::{
    BankError, BankFormat, BankImage, LogitsWanted, Model, ModelInfo, Segment, StepBatch, StepError, StepLogits,
    StepSize,
};
use ds4_units::{BankId, Bytes, MemoryUse, TokenId, Tokens};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// Tokens of a page.
pub(super) const PAGE_TOKENS: usize = 4;
/// What a page costs.
pub(super) const PAGE: u64 = 64;
/// Tokens the model knows.
pub(super) const VOCABULARY: usize = 24;
/// The longest conversation.
pub(super) const CONTEXT: u32 = 96;

const POISON: u32 = u32::MAX;

/// Memory in pages. Cloning gives another door to it; it outlives the models on it.
#[derive(Clone, Default)]
pub(super) struct Device(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    contents: Vec<[u32; PAGE_TOKENS]>,
    unused: Vec<usize>,
    /// Pages there may be.
    limit: usize,
    in_use: usize,
    /// Allocations so far, failed ones included.
    asked: u64,
    /// Allocations that fail, by number.
    failing: BTreeSet<u64>,
    operations: u64,
}

impl Device {
    pub(super) fn with_pages(limit: usize) -> Device {
        let device = Device::default();
        device.pages().limit = limit;
        device
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap()
    }

    /// Somebody else takes or gives back memory: so many pages are there for us.
    pub(super) fn limit_to(&self, pages: usize) {
        self.pages().limit = pages;
    }

    pub(super) fn in_use(&self) -> Bytes {
        Bytes(self.pages().in_use as u64 * PAGE)
    }

    pub(super) fn free(&self) -> Bytes {
        let pages = self.pages();
        Bytes(pages.limit.saturating_sub(pages.in_use) as u64 * PAGE)
    }

    /// A page is lost: nobody holds it, and nobody has it.
    pub(super) fn lose_page(&self) {
        self.pages().in_use += 1;
    }

    pub(super) fn asked(&self) -> u64 {
        self.pages().asked
    }

    pub(super) fn fail(&self, allocation: u64) {
        self.pages().failing.insert(allocation);
    }

    /// Operations on banks so far: every open, append, fork, cut, trim and close is one.
    pub(super) fn operations(&self) -> u64 {
        self.pages().operations
    }

    fn count(&self) {
        self.pages().operations += 1;
    }

    fn take(&self) -> Option<usize> {
        let mut pages = self.pages();
        let number = pages.asked;
        pages.asked += 1;
        if pages.failing.remove(&number) || pages.in_use >= pages.limit {
            return None;
        }
        pages.in_use += 1;
        let index = pages.unused.pop().unwrap_or_else(|| {
            pages.contents.push([POISON; PAGE_TOKENS]);
            pages.contents.len() - 1
        });
        Some(index)
    }

    fn give_back(&self, index: usize) {
        let mut pages = self.pages();
        pages.in_use -= 1;
        pages.unused.push(index);
    }
}

struct Bank {
    device: Device,
    pages: Vec<usize>,
    tokens: usize,
    checkpoints: BTreeSet<usize>,
    /// What checkpoints are in, all of a bank together.
    remembers: Option<usize>,
}

impl Bank {
    fn new(device: &Device) -> Bank {
        Bank { device: device.clone(), pages: Vec::new(), tokens: 0, checkpoints: BTreeSet::new(), remembers: None }
    }

    /// Memory for so many tokens, or as much as before.
    fn ensure(&mut self, tokens: usize) -> Result<(), StepError> {
        let before = self.pages.len();
        while self.pages.len() < tokens.div_ceil(PAGE_TOKENS) {
            let Some(page) = self.device.take() else {
                self.shrink(before);
                return Err(StepError::OutOfMemory { problem: "no page is left".into(), missing: Bytes(PAGE) });
            };
            self.pages.push(page);
        }
        Ok(())
    }

    fn shrink(&mut self, pages: usize) {
        while self.pages.len() > pages {
            if let Some(page) = self.pages.pop() {
                self.device.give_back(page);
            }
        }
    }

    /// Whether there is memory for checkpoints.
    fn has_checkpoints(&mut self) -> bool {
        self.remembers = self.remembers.or_else(|| self.device.take());
        self.remembers.is_some()
    }

    fn forget(&mut self) {
        self.checkpoints.clear();
        if let Some(page) = self.remembers.take() {
            self.device.give_back(page);
        }
    }

    fn held(&self) -> Bytes {
        Bytes((self.pages.len() + usize::from(self.remembers.is_some())) as u64 * PAGE)
    }

    fn write(&mut self, token: TokenId) {
        let (page, at) = (self.pages[self.tokens / PAGE_TOKENS], self.tokens % PAGE_TOKENS);
        self.device.pages().contents[page][at] = token.0;
        self.tokens += 1;
    }

    /// Everything up to the frontier, and nothing else.
    fn read(&self) -> Vec<u32> {
        let pages = self.device.pages();
        (0..self.tokens).map(|at| pages.contents[self.pages[at / PAGE_TOKENS]][at % PAGE_TOKENS]).collect()
    }

    fn copy(&self, to: usize) -> Result<Bank, StepError> {
        let mut copy = Bank::new(&self.device);
        copy.ensure(to)?;
        self.read()[..to].iter().for_each(|&token| copy.write(TokenId(token)));
        // Without memory for them a copy has none.
        if self.checkpoints.range(..=to).next().is_some() && copy.has_checkpoints() {
            copy.checkpoints = self.checkpoints.range(..=to).copied().collect();
        }
        Ok(copy)
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        self.shrink(0);
        self.forget();
    }
}

/// What a conversation costs: its tokens, and its checkpoints.
pub(super) fn price(tokens: Tokens) -> Bytes {
    Bytes((tokens.index().div_ceil(PAGE_TOKENS) + 1) as u64 * PAGE)
}

/// The token that follows these.
pub(super) fn follows(tokens: &[u32]) -> usize {
    let hash = tokens.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &token| {
        (hash ^ u64::from(token)).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
    });
    hash as usize % VOCABULARY
}

/// Rows whose activations fit a page, and steps that are recorded, each in a page of its own.
pub(super) const PAGE_ROWS: usize = 8;
pub(super) const RECORDINGS: usize = 3;

/// Memory of steps, which is never given back.
struct Steps {
    device: Device,
    activations: Vec<usize>,
    /// By the number of rows; from the second step of so many rows on.
    recordings: BTreeMap<usize, Option<usize>>,
}

impl Steps {
    fn take(&mut self, rows: usize) -> Result<(), StepError> {
        let missing = || StepError::OutOfMemory { problem: "no page is left for a step".into(), missing: Bytes(PAGE) };
        while self.activations.len() < rows.div_ceil(PAGE_ROWS) {
            self.activations.push(self.device.take().ok_or_else(missing)?);
        }
        let room = self.recordings.len() < RECORDINGS;
        match self.recordings.get_mut(&rows) {
            None if room => drop(self.recordings.insert(rows, None)),
            Some(page) if page.is_none() => *page = Some(self.device.take().ok_or_else(missing)?),
            _ => {}
        }
        Ok(())
    }

    fn pages(&self) -> impl Iterator<Item = usize> {
        self.activations.iter().copied().chain(self.recordings.values().filter_map(|page| *page))
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.pages().for_each(|page| self.device.give_back(page));
    }
}

pub(super) struct PagedModel {
    device: Device,
    steps: Steps,
    info: ModelInfo,
    banks: BTreeMap<BankId, Bank>,
    next_bank: u32,
}

impl PagedModel {
    pub(super) fn new(device: &Device) -> PagedModel {
        let info = ModelInfo {
            architecture: "paged".into(),
            shape: "paged".into(),
            trained_context: Tokens(CONTEXT),
            context: Tokens(CONTEXT),
            vocabulary: VOCABULARY,
            prefill_rows: 16,
        };
        let steps = Steps { device: device.clone(), activations: Vec::new(), recordings: BTreeMap::new() };
        PagedModel { device: device.clone(), steps, info, banks: BTreeMap::new(), next_bank: 0 }
    }

    fn insert(&mut self, bank: Bank) -> BankId {
        let id = BankId(self.next_bank);
        self.next_bank += 1;
        self.banks.insert(id, bank);
        id
    }

    fn bank(&self, bank: BankId) -> Result<&Bank, BankError> {
        self.banks.get(&bank).ok_or(BankError::UnknownBank(bank))
    }

    /// The token that follows, where it is asked for.
    fn append(&mut self, segment: &Segment<'_>) -> Option<TokenId> {
        let bank = self.banks.get_mut(&segment.bank)?;
        segment.tokens.iter().for_each(|&token| bank.write(token));
        (segment.logits != LogitsWanted::None).then(|| TokenId(follows(&bank.read()) as u32))
    }
}

impl Model for PagedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn open_bank(&mut self) -> BankId {
        self.device.count();
        self.insert(Bank::new(&self.device))
    }

    fn close_bank(&mut self, bank: BankId) {
        self.device.count();
        self.banks.remove(&bank);
    }

    fn frontier(&self, bank: BankId) -> Option<Tokens> {
        self.banks.get(&bank).map(|bank| Tokens(bank.tokens as u32))
    }

    fn step(&mut self, batch: &StepBatch<'_>) -> Result<StepLogits, StepError> {
        for segment in batch.segments {
            self.device.count();
            let bank = self.banks.get_mut(&segment.bank).ok_or(StepError::UnknownBank(segment.bank))?;
            assert_eq!(segment.start.index(), bank.tokens, "a segment begins at its bank's frontier");
            assert!(bank.tokens + segment.tokens.len() <= CONTEXT as usize, "no bank outgrows the context");
            bank.ensure(bank.tokens + segment.tokens.len())?;
        }
        self.steps.take(batch.segments.iter().map(|segment| segment.tokens.len()).sum())?;
        let next: Vec<Option<TokenId>> = batch.segments.iter().map(|segment| self.append(segment)).collect();
        Ok(StepLogits::new(VOCABULARY, &vec![0; next.len()], Vec::new()).with_drawn(next))
    }

    fn checkpoint(&mut self, bank: BankId) -> Result<(), BankError> {
        let held = self.banks.get_mut(&bank).ok_or(BankError::UnknownBank(bank))?;
        if !held.has_checkpoints() {
            return Err(BankError::Device { problem: "no page is left for checkpoints".into() });
        }
        held.checkpoints.insert(held.tokens);
        Ok(())
    }

    fn restorable(&self, bank: BankId, to: Tokens) -> Result<Tokens, BankError> {
        let held = self.bank(bank)?;
        assert!(to.index() <= held.tokens, "nobody asks for what is past the frontier");
        let exact = to.index() == held.tokens;
        let before = held.checkpoints.range(..=to.index()).next_back().copied().unwrap_or(0);
        Ok(if exact { to } else { Tokens(before as u32) })
    }

    fn truncate(&mut self, bank: BankId, to: Tokens) -> Result<Tokens, BankError> {
        self.device.count();
        let at = self.restorable(bank, to)?;
        let held = self.banks.get_mut(&bank).ok_or(BankError::UnknownBank(bank))?;
        held.tokens = at.index();
        held.checkpoints.retain(|&position| position <= at.index());
        held.shrink(at.index().div_ceil(PAGE_TOKENS));
        Ok(at)
    }

    fn fork(&mut self, source: BankId, to: Tokens) -> Result<(BankId, Tokens), BankError> {
        self.device.count();
        let at = self.restorable(source, to)?;
        let copy = self.bank(source)?.copy(at.index());
        let copy = copy.map_err(|error| BankError::Device { problem: error.to_string() })?;
        Ok((self.insert(copy), at))
    }

    fn trim(&mut self, bank: BankId) {
        self.device.count();
        if let Some(bank) = self.banks.get_mut(&bank) {
            bank.forget();
        }
    }

    fn bank_format(&self) -> BankFormat {
        let (block, block_tokens) = (Bytes(PAGE), Tokens(PAGE_TOKENS as u32));
        BankFormat { layout: "paged".into(), block_tokens, block, recurrent: Bytes::ZERO }
    }

    fn export(&self, _bank: BankId, _first_block: usize) -> Result<BankImage, BankError> {
        Err(BankError::Device { problem: "this device keeps nothing".into() })
    }

    fn import(&mut self, _tokens: &[TokenId], _image: &BankImage) -> Result<BankId, BankError> {
        Err(BankError::Device { problem: "this device keeps nothing".into() })
    }

    fn resident_bytes(&self, bank: BankId) -> Result<Bytes, BankError> {
        Ok(self.bank(bank)?.held())
    }

    fn activations(&mut self, size: StepSize) -> Result<Bytes, StepError> {
        let pages = size.rows.div_ceil(PAGE_ROWS).saturating_sub(self.steps.activations.len());
        Ok(Bytes(pages as u64 * PAGE))
    }

    fn take_activations(&mut self, size: StepSize) -> Result<(), StepError> {
        while self.steps.activations.len() < size.rows.div_ceil(PAGE_ROWS) {
            let page = self.device.take();
            let missing = || StepError::OutOfMemory { problem: "no page is left".into(), missing: Bytes(PAGE) };
            self.steps.activations.push(page.ok_or_else(missing)?);
        }
        Ok(())
    }

    fn device_memory(&self) -> Vec<(MemoryUse, Bytes)> {
        vec![(MemoryUse::Activations, Bytes(self.steps.pages().count() as u64 * PAGE))]
    }

    fn device_memory_to_come(&self) -> Bytes {
        let recorded = self.steps.recordings.values().flatten().count();
        Bytes((RECORDINGS - recorded) as u64 * PAGE)
    }

    fn price(&self, tokens: Tokens) -> Bytes {
        price(tokens)
    }
}

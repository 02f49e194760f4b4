//! The fake model, its rules and the controls that tests hold.

use super::vocabulary::{ASSISTANT, EOS, FAMILY_ASSISTANT, SIZE};
use ds4_model::{
    BankError, BankFormat, BankImage, DraftWish, Import, LogitsWanted, Model, ModelInfo, Parcel, StepBatch, StepError,
    StepLogits,
};
use ds4_units::{BankId, Bytes, TokenId, Tokens};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// From all tokens so far to the logits of the next.
pub type Rule = Box<dyn Fn(&[TokenId]) -> Vec<f32> + Send>;

/// Logits that look random and depend on every token before.
pub fn hash_rule() -> Rule {
    Box::new(|tokens| {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for token in tokens {
            hash = (hash ^ u64::from(token.0)).wrapping_mul(0x0100_0000_01b3);
        }
        let logit = |id: u64| {
            let mixed = (hash ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
            (mixed >> 40) as f32 / (1 << 22) as f32
        };
        // Letters only: the answer is readable, and goes on for ever.
        (0..SIZE as u64).map(|id| if (97..123).contains(&id) { logit(id) } else { -20.0 }).collect()
    })
}

/// Says `answer` after the opening of the last answer (the assistant token and one more), then ends.
pub fn script_rule(answer: Vec<TokenId>) -> Rule {
    Box::new(move |tokens| {
        let opening = tokens.iter().rposition(|&token| token == ASSISTANT).map_or(tokens.len(), |at| at + 2);
        let said = tokens.len().saturating_sub(opening);
        let next = answer.get(said).copied().unwrap_or(EOS);
        (0..SIZE).map(|id| if id == next.index() { 10.0 } else { 0.0 }).collect()
    })
}

/// Memory that a token takes.
pub const BYTES_PER_TOKEN: u64 = 4;

/// Says the answers in turn: the first after the first opening of an answer, and so on. They end themselves.
pub fn dialogue_rule(answers: Vec<Vec<TokenId>>) -> Rule {
    Box::new(move |tokens| {
        let openings = tokens.iter().enumerate().filter(|(_, token)| [ASSISTANT, FAMILY_ASSISTANT].contains(token));
        let openings: Vec<usize> = openings.map(|(at, _)| at + 2).collect();
        let answer = openings.len().checked_sub(1).and_then(|nth| answers.get(nth));
        let said = tokens.len().saturating_sub(openings.last().copied().unwrap_or(0));
        let next = answer.and_then(|answer| answer.get(said)).copied().unwrap_or(EOS);
        (0..SIZE).map(|id| if id == next.index() { 10.0 } else { 0.0 }).collect()
    })
}

/// What happened and what is allowed to happen, shared with the test.
#[derive(Clone, Default)]
pub struct Controls(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    /// Steps that may still run; `None`: any number.
    steps_allowed: Option<usize>,
    steps_begun: usize,
    /// Steps refused whole, by number from 0.
    failing_steps: BTreeSet<usize>,
    /// A step with this token is refused.
    poison: Option<TokenId>,
    panics: bool,
    /// Every step is refused for good.
    device_is_lost: bool,
    /// Stored banks are refused.
    refuses_images: bool,
    /// Stored banks come back a token short, without a word.
    shortens_images: bool,
    /// Parts in which stored banks come back; none means at once.
    import_parts: usize,
    /// Steps that had begun when each part came.
    parts_came: Vec<usize>,
    /// Rows per segment, step by step.
    steps: Vec<Vec<usize>>,
    /// Rows of logits of one segment.
    logits_rows_most: usize,
    banks_open: usize,
    banks_open_most: usize,
    /// Tokens in all banks.
    tokens_held: usize,
    /// Tokens for which others have taken the memory.
    tokens_of_others: usize,
    /// Every so many positions a guess is wrong; never when 0.
    wrong_guess_every: usize,
    /// Guesses are not taken into banks.
    refuses_guesses: bool,
}

impl Controls {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
        result
    }

    /// Steps wait from now on.
    pub fn hold(&self) {
        self.with(|state| state.steps_allowed = Some(0));
    }

    /// Lets so many waiting steps run.
    pub fn allow(&self, steps: usize) {
        self.with(|state| state.steps_allowed = state.steps_allowed.map(|allowed| allowed + steps));
    }

    pub fn release(&self) {
        self.with(|state| state.steps_allowed = None);
    }

    /// Returns once `steps` steps have begun (and perhaps wait).
    pub fn wait_for_steps(&self, steps: usize) {
        let mut state = self.0.0.lock().unwrap();
        while state.steps_begun < steps {
            let (next, timeout) = self.0.1.wait_timeout(state, Duration::from_secs(60)).unwrap();
            assert!(!timeout.timed_out(), "step {steps} never began");
            state = next;
        }
    }

    pub fn fail_step(&self, step: usize) {
        self.with(|state| state.failing_steps.insert(step));
    }

    pub fn poison(&self, token: TokenId) {
        self.with(|state| state.poison = Some(token));
    }

    /// Somebody else takes memory for so many tokens.
    pub fn others_take(&self, tokens: usize) {
        self.with(|state| state.tokens_of_others = tokens);
    }

    pub fn tokens_of_others(&self) -> usize {
        self.with(|state| state.tokens_of_others)
    }

    pub fn refuse_images(&self) {
        self.with(|state| state.refuses_images = true);
    }

    pub fn shorten_images(&self) {
        self.with(|state| state.shortens_images = true);
    }

    /// Stored banks come back in so many parts.
    pub fn import_in_parts(&self, parts: usize) {
        self.with(|state| state.import_parts = parts);
    }

    /// Steps that had begun when each part of a stored bank came.
    pub fn parts_came(&self) -> Vec<usize> {
        self.with(|state| state.parts_came.clone())
    }

    pub fn guess_wrong_every(&self, positions: usize) {
        self.with(|state| state.wrong_guess_every = positions);
    }

    pub fn refuse_guesses(&self) {
        self.with(|state| state.refuses_guesses = true);
    }

    pub fn lose_device(&self) {
        self.with(|state| state.device_is_lost = true);
    }

    pub fn panic_next(&self) {
        self.with(|state| state.panics = true);
    }

    pub fn steps(&self) -> Vec<Vec<usize>> {
        self.with(|state| state.steps.clone())
    }

    pub fn rows_computed(&self) -> usize {
        self.steps().iter().flatten().sum()
    }

    pub fn logits_rows_most(&self) -> usize {
        self.with(|state| state.logits_rows_most)
    }

    pub fn banks_open(&self) -> usize {
        self.with(|state| state.banks_open)
    }

    pub fn banks_open_most(&self) -> usize {
        self.with(|state| state.banks_open_most)
    }

    /// Tokens in all banks.
    pub fn tokens_held(&self) -> usize {
        self.with(|state| state.tokens_held)
    }

    /// Counts a step, waits for leave, and says whether it is to fail.
    fn begin_step(&self, batch: &StepBatch<'_>) -> bool {
        let number = self.with(|state| {
            state.steps_begun += 1;
            state.steps_begun - 1
        });
        let mut state = self.0.0.lock().unwrap();
        while state.steps_allowed == Some(0) {
            state = self.0.1.wait(state).unwrap();
        }
        state.steps_allowed = state.steps_allowed.map(|allowed| allowed - 1);
        assert!(!state.panics, "asked to panic");
        let poisoned = |token: &TokenId| Some(*token) == state.poison;
        let fails = state.failing_steps.contains(&number)
            || batch.segments.iter().any(|segment| segment.tokens.iter().any(poisoned));
        if !fails {
            state.steps.push(batch.segments.iter().map(|segment| segment.tokens.len()).collect());
        }
        fails
    }
}

/// Tokens of a block.
const BLOCK_TOKENS: usize = 4;

/// Which memory keeps so many tokens: every block is another descriptor.
pub fn epoch_of(tokens: usize) -> u32 {
    1 + (tokens / BLOCK_TOKENS) as u32
}

#[derive(Clone, Default)]
struct Bank {
    tokens: Vec<TokenId>,
    checkpoints: BTreeSet<usize>,
}

pub struct FakeModel {
    info: ModelInfo,
    rule: Rule,
    controls: Controls,
    banks: BTreeMap<BankId, Bank>,
    next_bank: u32,
    /// Of the last step: certain tokens and guesses of every segment with guesses.
    undecided: BTreeMap<BankId, (Vec<TokenId>, usize)>,
}

/// Rows of a step with guesses.
pub const DRAFT_ROWS: usize = 10;

impl FakeModel {
    pub fn new(rule: Rule, context: u32) -> (FakeModel, Controls) {
        let controls = Controls::default();
        let info = ModelInfo {
            architecture: "fake".into(),
            shape: "fake".into(),
            trained_context: Tokens(4096),
            context: Tokens(context),
            vocabulary: SIZE,
            prefill_rows: 512,
        };
        let (banks, undecided) = Default::default();
        (FakeModel { info, rule, controls: controls.clone(), banks, next_bank: 0, undecided }, controls)
    }

    fn bank(&self, bank: BankId) -> Result<&Bank, BankError> {
        self.banks.get(&bank).ok_or(BankError::UnknownBank(bank))
    }

    fn insert(&mut self, bank: Bank) -> BankId {
        let id = BankId(self.next_bank);
        self.next_bank += 1;
        self.banks.insert(id, bank);
        self.count();
        id
    }

    fn count(&self) {
        let open = self.banks.len();
        let held = self.banks.values().map(|bank| bank.tokens.len()).sum();
        self.controls.with(|state| {
            state.tokens_held = held;
            state.banks_open = open;
            state.banks_open_most = state.banks_open_most.max(open);
        });
    }

    fn check(&self, batch: &StepBatch<'_>) -> Result<(), StepError> {
        let mut seen = BTreeSet::new();
        for segment in batch.segments {
            let bank = self.banks.get(&segment.bank).ok_or(StepError::UnknownBank(segment.bank))?;
            let frontier = bank.tokens.len();
            if !seen.insert(segment.bank) {
                return Err(StepError::BankTwice(segment.bank));
            }
            if segment.tokens.is_empty() {
                return Err(StepError::EmptySegment(segment.bank));
            }
            if segment.start.index() != frontier {
                let frontier = Tokens(frontier as u32);
                return Err(StepError::NotAtFrontier { bank: segment.bank, frontier, start: segment.start });
            }
            let wanted = frontier + segment.tokens.len();
            if wanted > self.info.context.index() {
                let (wanted, context) = (Tokens(wanted as u32), self.info.context);
                return Err(StepError::PastContext { bank: segment.bank, wanted, context });
            }
        }
        Ok(())
    }
}

impl Model for FakeModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn open_bank(&mut self) -> BankId {
        self.insert(Bank::default())
    }

    fn close_bank(&mut self, bank: BankId) {
        self.banks.remove(&bank);
        self.count();
    }

    fn frontier(&self, bank: BankId) -> Option<Tokens> {
        self.banks.get(&bank).map(|bank| Tokens(bank.tokens.len() as u32))
    }

    fn step(&mut self, batch: &StepBatch<'_>) -> Result<StepLogits, StepError> {
        let fails = self.controls.begin_step(batch);
        if self.controls.with(|state| state.device_is_lost) {
            return Err(StepError::Device { problem: "lost".into(), lost: true });
        }
        self.check(batch)?;
        if fails {
            return Err(StepError::TokenOutsideVocabulary { token: u32::MAX, vocabulary: SIZE });
        }
        self.undecided.clear();
        let all: usize = batch.segments.iter().map(|segment| segment.tokens.len()).sum();
        assert!(all <= DRAFT_ROWS || batch.segments.iter().all(|segment| segment.drafted == 0), "{all} rows");
        let (mut rows, mut values, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
        for segment in batch.segments {
            let bank = self.banks.get_mut(&segment.bank).unwrap();
            let wanted = match segment.logits {
                LogitsWanted::None | LogitsWanted::Greedy => 0,
                LogitsWanted::Last => 1 + segment.drafted,
                LogitsWanted::All => segment.tokens.len(),
            };
            let (before, end) = (bank.tokens.len(), bank.tokens.len() + segment.tokens.len());
            bank.tokens.extend_from_slice(segment.tokens);
            rows.push(wanted);
            let greedy = segment.logits == LogitsWanted::Greedy;
            let likely = (end - segment.drafted..=end).map(|end| likeliest(&(self.rule)(&bank.tokens[..end])));
            drawn.push(if greedy { likely.collect() } else { Vec::new() });
            for end in end - wanted + 1..=end {
                values.extend((self.rule)(&bank.tokens[..end]));
            }
            if segment.drafted > 0 {
                bank.tokens.truncate(before);
                self.undecided.insert(segment.bank, (segment.tokens.to_vec(), segment.drafted));
            }
            self.controls.with(|state| state.logits_rows_most = state.logits_rows_most.max(wanted));
        }
        self.count();
        Ok(StepLogits::new(SIZE, &rows, values).with_all_drawn(drawn))
    }

    fn accept(&mut self, accepted: &[(BankId, usize)]) -> Result<(), StepError> {
        let mut undecided = std::mem::take(&mut self.undecided);
        for &(bank, count) in accepted {
            let (tokens, drafted) = undecided.remove(&bank).expect("the step before had guesses for this bank");
            assert!(count <= drafted, "{count} of {drafted}");
            if self.controls.with(|state| state.refuses_guesses) {
                return Err(StepError::NotGuessed { bank, count, drafted: 0 });
            }
            let held = self.banks.get_mut(&bank).unwrap();
            held.tokens.extend_from_slice(&tokens[..tokens.len() - drafted + count]);
        }
        self.count();
        Ok(())
    }

    fn draft_rows(&self) -> usize {
        DRAFT_ROWS
    }

    fn draft(&mut self, wishes: &[DraftWish]) -> Result<Vec<Vec<TokenId>>, StepError> {
        self.undecided.clear();
        let wrong_every = self.controls.with(|state| state.wrong_guess_every);
        let guesses = wishes.iter().map(|wish| {
            let mut tokens = self.banks[&wish.bank].tokens.clone();
            tokens.push(wish.next);
            let first = tokens.len();
            for _ in 0..wish.count {
                let right = likeliest(&(self.rule)(&tokens)).expect("finite logits");
                let is_wrong = wrong_every > 0 && tokens.len().is_multiple_of(wrong_every);
                tokens.push(if is_wrong { TokenId(right.0 ^ 1) } else { right });
            }
            tokens.split_off(first)
        });
        Ok(guesses.collect())
    }

    fn checkpoint(&mut self, bank: BankId) -> Result<(), BankError> {
        let bank = self.banks.get_mut(&bank).ok_or(BankError::UnknownBank(bank))?;
        bank.checkpoints.insert(bank.tokens.len());
        Ok(())
    }

    fn restorable(&self, bank: BankId, to: Tokens) -> Result<Tokens, BankError> {
        let held = self.bank(bank)?;
        let frontier = held.tokens.len();
        if to.index() > frontier {
            return Err(BankError::PastFrontier { bank, frontier: Tokens(frontier as u32), to });
        }
        let at = if to.index() == frontier {
            frontier
        } else {
            held.checkpoints.range(..=to.index()).next_back().copied().unwrap_or(0)
        };
        Ok(Tokens(at as u32))
    }

    fn truncate(&mut self, bank: BankId, to: Tokens) -> Result<Tokens, BankError> {
        let at = self.restorable(bank, to)?;
        let held = self.banks.get_mut(&bank).unwrap();
        held.tokens.truncate(at.index());
        held.checkpoints.retain(|&position| position <= at.index());
        self.count();
        Ok(at)
    }

    fn fork(&mut self, source: BankId, to: Tokens) -> Result<(BankId, Tokens), BankError> {
        let at = self.restorable(source, to)?;
        let mut copy = self.banks[&source].clone();
        copy.tokens.truncate(at.index());
        copy.checkpoints.retain(|&position| position <= at.index());
        Ok((self.insert(copy), at))
    }

    fn bank_format(&self) -> BankFormat {
        let block = Bytes(4 * BLOCK_TOKENS as u64);
        BankFormat { layout: "fake".into(), block_tokens: Tokens(BLOCK_TOKENS as u32), block, recurrent: Bytes(4) }
    }

    /// A block is its tokens' ids, the recurrent part their number.
    fn export(&self, bank: BankId, first_block: usize) -> Result<BankImage, BankError> {
        let tokens = &self.bank(bank)?.tokens;
        let block = |tokens: &[TokenId]| {
            let mut bytes: Vec<u8> = tokens.iter().flat_map(|token| token.0.to_le_bytes()).collect();
            bytes.resize(4 * BLOCK_TOKENS, 0);
            Arc::new(bytes) as Arc<_>
        };
        let blocks = tokens.chunks(BLOCK_TOKENS).skip(first_block).map(block).collect();
        Ok(BankImage { blocks, recurrent: (tokens.len() as u32).to_le_bytes().to_vec() })
    }

    fn import(&mut self, tokens: &[TokenId], image: &BankImage) -> Result<BankId, BankError> {
        let count = tokens.len() as u32;
        if self.controls.with(|state| state.refuses_images) || image.recurrent != count.to_le_bytes() {
            return Err(BankError::Image { problem: "is not one".into() });
        }
        let bytes = image.blocks.iter().flat_map(|block| block.as_ref().as_ref().as_chunks().0);
        let held = tokens.len() - usize::from(self.controls.with(|state| state.shortens_images));
        let tokens: Vec<TokenId> = bytes.take(held).map(|id| TokenId(u32::from_le_bytes(*id))).collect();
        let checkpoints = BTreeSet::from([tokens.len()]);
        Ok(self.insert(Bank { tokens, checkpoints }))
    }

    fn import_part(&mut self, import: &mut Import, _bytes: Bytes) -> Result<bool, BankError> {
        let bank = match import.bank {
            Some(bank) => bank,
            None => self.open_bank(),
        };
        import.bank = Some(bank);
        import.blocks += 1;
        let parts = self.controls.with(|state| {
            state.parts_came.push(state.steps_begun);
            state.import_parts
        });
        if import.blocks < parts {
            return Ok(false);
        }
        let whole = self.import(import.tokens(), import.image())?;
        let whole = self.banks.remove(&whole).expect("it was just made");
        self.banks.insert(bank, whole);
        self.count();
        Ok(true)
    }

    fn epoch(&self, bank: BankId) -> Option<u32> {
        let held = self.banks.get(&bank)?.tokens.len();
        (held > 0).then(|| epoch_of(held))
    }

    /// One descriptor that keeps nothing.
    fn parcel(&self, bank: BankId) -> Result<Option<Parcel>, BankError> {
        let Some(epoch) = self.epoch(bank) else { return Ok(None) };
        let nothing =
            std::fs::File::open("/dev/null").map_err(|error| BankError::Device { problem: error.to_string() })?;
        Ok(Some(Parcel { epoch, fds: vec![nothing.into()] }))
    }

    fn resident_bytes(&self, bank: BankId) -> Result<Bytes, BankError> {
        Ok(Bytes(BYTES_PER_TOKEN * self.bank(bank)?.tokens.len() as u64))
    }

    fn price(&self, tokens: Tokens) -> Bytes {
        Bytes(BYTES_PER_TOKEN * u64::from(tokens.0))
    }
}

/// The first of the largest logits, if all are finite.
fn likeliest(logits: &[f32]) -> Option<TokenId> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let place = logits.iter().position(|&logit| logit == most)?;
    logits.iter().all(|logit| logit.is_finite()).then_some(TokenId(place as u32))
}

//! Guesses: made by the draft block, computed as part of a step, and taken or forgotten.

use super::bank::Bank;
use super::bind::DraftWeights;
use super::draft;
use super::graph;
use super::model::{DeepSeek4, step_error};
use ds4_kernels::backend::{Backend, BackendError, Computed};
use ds4_kernels::step::Step;
use ds4_model::{DraftWish, StepBatch, StepError};
use ds4_units::{BankId, TokenId, TokenPos};

/// A draft block that is ready to guess.
pub(super) struct Draft<B: Backend> {
    pub(super) weights: DraftWeights<B>,
    pub(super) repeats: B::Repeats,
}

impl<B: Backend> Draft<B> {
    pub(super) fn new(weights: DraftWeights<B>) -> Draft<B> {
        Draft { weights, repeats: B::Repeats::default() }
    }
}

/// What is left of a step with guesses until it is known which of them were right.
pub(super) struct Undecided<B: Backend> {
    segments: Vec<UndecidedSegment>,
    kept: Vec<B::Rows>,
}

struct UndecidedSegment {
    bank: BankId,
    start: TokenPos,
    tokens: Vec<TokenId>,
    drafted: usize,
    first_row: usize,
}

impl<B: Backend> Undecided<B> {
    /// Of a batch that was computed; none where it had no guesses.
    pub(super) fn of(batch: &StepBatch<'_>, kept: Vec<B::Rows>) -> Option<Undecided<B>> {
        let mut first_row = 0;
        let mut segments = Vec::new();
        for segment in batch.segments {
            let (bank, start, drafted) = (segment.bank, segment.start, segment.drafted);
            if drafted > 0 {
                segments.push(UndecidedSegment { bank, start, tokens: segment.tokens.to_vec(), drafted, first_row });
            }
            first_row += segment.tokens.len();
        }
        (!segments.is_empty()).then_some(Undecided { segments, kept })
    }
}

impl<B: Backend> DeepSeek4<B> {
    /// See [`ds4_model::Model::accept`].
    pub(super) fn accept_guesses(&mut self, accepted: &[(BankId, usize)]) -> Result<(), StepError> {
        let undecided = self.undecided.take();
        let segments = undecided.as_ref().map_or(&[][..], |undecided| &undecided.segments);
        for &(bank, count) in accepted {
            let drafted = segments.iter().find(|segment| segment.bank == bank).map_or(0, |segment| segment.drafted);
            if count > drafted || drafted == 0 {
                return Err(StepError::NotGuessed { bank, count, drafted });
            }
        }
        let Some(Undecided { segments, mut kept }) = undecided else { return Ok(()) };
        let mut first_error = None;
        for segment in segments {
            let Some(&(_, count)) = accepted.iter().find(|(bank, _)| *bank == segment.bank) else { continue };
            let Some(mut bank) = self.banks.remove(&segment.bank) else { continue };
            if let Err(error) = self.take(&mut bank, &segment, count, &mut kept) {
                first_error.get_or_insert(error);
            }
            self.banks.insert(segment.bank, bank);
        }
        first_error.map_or(Ok(()), |error| Err(step_error(error)))
    }

    /// Moves a bank past a segment's certain tokens and `count` guesses.
    fn take(
        &self,
        bank: &mut Bank<B>,
        segment: &UndecidedSegment,
        count: usize,
        kept: &mut [B::Rows],
    ) -> Result<(), BackendError> {
        let tokens = &segment.tokens[..segment.tokens.len() - segment.drafted + count];
        if tokens.len() < segment.tokens.len() {
            let (backend, weights) = (&self.backend, &self.weights);
            let draft = &self.draft.as_ref().expect("guesses are computed beside a draft block").weights;
            bank.begin(backend, tokens.len())?;
            let rows = segment.first_row..segment.first_row + tokens.len();
            backend.run(|| {
                let mut step = Step::new([(segment.start, tokens, bank.memory_mut())], Vec::new());
                backend.replay(&mut step, |backend, step| {
                    graph::store_again(backend, weights, draft, step, kept, rows);
                })
            })?;
        }
        bank.commit(&self.backend, tokens);
        Ok(())
    }

    /// See [`ds4_model::Model::draft`].
    pub(super) fn guess(&mut self, wishes: &[DraftWish]) -> Result<Vec<Vec<TokenId>>, StepError> {
        let mut guesses = vec![Vec::new(); wishes.len()];
        self.undecided = None;
        if self.draft.is_none() {
            return Ok(guesses);
        }
        let mut open: Vec<usize> = (0..wishes.len()).filter(|&index| self.may_guess(&wishes[index], 0)).collect();
        for ahead in 0.. {
            open.retain(|&index| self.may_guess(&wishes[index], ahead));
            if open.is_empty() {
                break;
            }
            let rows: Vec<(DraftWish, TokenId)> = open
                .iter()
                .map(|&index| (wishes[index], guesses[index].last().copied().unwrap_or(wishes[index].next)))
                .collect();
            let found = self.guess_once(&rows, ahead)?;
            let mut found = found.into_iter();
            open.retain(|&index| match found.next().flatten() {
                Some(token) => {
                    guesses[index].push(token);
                    true
                }
                None => false,
            });
        }
        Ok(guesses)
    }

    /// Whether guess number `ahead` is wished for and its row has a place in the bank.
    fn may_guess(&self, wish: &DraftWish, ahead: usize) -> bool {
        let tokens = self.banks.get(&wish.bank).map_or(0, |bank| bank.tokens().index());
        ahead < wish.count
            && tokens > 0
            && tokens + ahead < self.info.context.index()
            && wish.next.index() < self.info.vocabulary
    }

    /// One guess for each bank, after a token that stands `ahead` tokens behind its frontier.
    fn guess_once(&mut self, rows: &[(DraftWish, TokenId)], ahead: usize) -> Result<Vec<Option<TokenId>>, StepError> {
        let mut banks: Vec<Bank<B>> = rows.iter().filter_map(|(wish, _)| self.banks.remove(&wish.bank)).collect();
        let computed = self.run_draft(rows, ahead, &mut banks);
        for (bank, (wish, _)) in banks.into_iter().zip(rows) {
            self.banks.insert(wish.bank, bank);
        }
        computed.map_err(step_error)
    }

    fn run_draft(
        &self,
        rows: &[(DraftWish, TokenId)],
        ahead: usize,
        banks: &mut [Bank<B>],
    ) -> Result<Vec<Option<TokenId>>, BackendError> {
        // How far the likeliest leads is seen in the logits only.
        let full: Vec<usize> = (0..rows.len()).filter(|&row| rows[row].0.margin > 0.0).collect();
        let tokens: Vec<TokenId> = rows.iter().map(|(_, token)| *token).collect();
        let computed = self.compute_draft(&tokens, ahead, banks, &full)?;
        let mut leads = computed.logits.chunks_exact(self.info.vocabulary).map(lead);
        let is_clear = |(wish, _): &(DraftWish, TokenId)| wish.margin <= 0.0 || leads.next() >= Some(wish.margin);
        let clear: Vec<bool> = rows.iter().map(is_clear).collect();
        Ok(computed.best.into_iter().zip(clear).map(|(best, is_clear)| best.filter(|_| is_clear)).collect())
    }

    /// Runs the block over one token for each bank. Logits come back for the banks whose places are in `full`.
    fn compute_draft(
        &self,
        tokens: &[TokenId],
        ahead: usize,
        banks: &mut [Bank<B>],
        full: &[usize],
    ) -> Result<Computed<B::Rows>, BackendError> {
        let draft = self.draft.as_ref().expect("who guesses has a draft block");
        let (backend, weights, shape) = (&self.backend, &self.weights, &self.shape);
        for bank in banks.iter_mut() {
            match ahead {
                0 => bank.begin(backend, 1)?,
                _ => bank.begin_on_top(backend, ahead + 1)?,
            }
        }
        backend.run(|| {
            let segments = banks.iter_mut().zip(tokens).map(|(bank, token)| {
                let start = TokenPos(bank.tokens().0 + ahead as u32);
                (start, std::slice::from_ref(token), bank.memory_mut())
            });
            let mut step = Step::new(segments, (0..tokens.len()).collect());
            backend.compute(&draft.repeats, &mut step, full, |backend, step| {
                draft::guess(backend, weights, &draft.weights, shape, step)
            })
        })
    }
}

/// How far the largest value is ahead of the second.
fn lead(logits: &[f32]) -> f32 {
    let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for &logit in logits {
        if logit > first {
            (first, second) = (logit, first);
        } else if logit > second {
            second = logit;
        }
    }
    first - second
}

#[cfg(test)]
pub(super) mod tests;

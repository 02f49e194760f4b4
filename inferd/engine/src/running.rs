//! One request that has a bank: what it computes next and what its logits lead to.

use crate::clock::Clock;
use crate::logprobs;
use crate::outbox::{Outbox, Undelivered};
use crate::output::{Emitted, Output};
use crate::sampler::Sampler;
use crate::{Event, FinishReason, Finished, GenerateRequest, RequestFault, ReuseKind, Started, Usage};
use ds4_model::{LogitsWanted, PromptRecord, Segment, Tokenizer};
use ds4_units::{BankId, TokenId, TokenPos, Tokens};
use std::time::Instant;

/// Where a request's bank came from.
pub(crate) struct Seat {
    pub(crate) bank: BankId,
    /// The request's prompt with the ids of what it shares with the bank.
    pub(crate) prompt: PromptRecord,
    /// Tokens the bank holds already: fewer than the prompt has.
    pub(crate) cached: usize,
    pub(crate) reuse: ReuseKind,
}

/// Why a request leaves its bank.
pub(crate) enum End {
    Finished(FinishReason),
    Fault(RequestFault),
    /// The reader is gone.
    Cancelled,
}

impl From<Undelivered> for End {
    fn from(undelivered: Undelivered) -> End {
        match undelivered {
            Undelivered::Gone => End::Cancelled,
            Undelivered::Slow => End::Fault(RequestFault::SlowReader { unread: crate::EVENTS_UNREAD_MAX }),
        }
    }
}

pub(crate) struct Running {
    pub(crate) bank: BankId,
    /// The prompt, then what was drawn, as far as it is in the bank.
    record: PromptRecord,
    /// Drawn, not yet in the bank: what a decode row computes.
    drawn: Option<TokenId>,
    /// Tokens in the bank.
    computed: usize,
    prompt_tokens: usize,
    cached: usize,
    reuse: ReuseKind,
    /// Where the prompt's own checkpoint is taken.
    boundary: usize,
    tokens_left: u32,
    top_logprobs: Option<usize>,
    sampler: Sampler,
    output: Output,
    outbox: Outbox,
    clock: Clock,
}

impl Running {
    pub(crate) fn start(
        request: GenerateRequest,
        seat: Seat,
        context: Tokens,
        outbox: Outbox,
        submitted: Instant,
    ) -> Running {
        let prompt_tokens = seat.prompt.tokens().len();
        Running {
            bank: seat.bank,
            boundary: boundary(&seat.prompt),
            record: seat.prompt,
            drawn: None,
            computed: seat.cached,
            prompt_tokens,
            cached: seat.cached,
            reuse: seat.reuse,
            tokens_left: request.max_tokens.0.min(context.0.saturating_sub(prompt_tokens as u32)),
            top_logprobs: request.top_logprobs,
            sampler: Sampler::new(request.sampling),
            output: Output::new(request.reader, request.stop),
            outbox,
            clock: Clock::start(submitted),
        }
    }

    /// Tells the reader that the request has its bank.
    pub(crate) fn announce(&self) -> Result<(), End> {
        Ok(self.outbox.send(Event::Started(Started {
            prompt_tokens: Tokens(self.prompt_tokens as u32),
            cached_tokens: Tokens(self.cached as u32),
            reuse: self.reuse,
        }))?)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.outbox.is_cancelled()
    }

    /// Whether the next row is a drawn token.
    pub(crate) fn is_decoding(&self) -> bool {
        self.drawn.is_some()
    }

    /// Prompt rows that may be computed in one step: up to the boundary, then the rest.
    pub(crate) fn prefill_left(&self) -> usize {
        let end = if self.computed < self.boundary { self.boundary } else { self.prompt_tokens };
        end - self.computed
    }

    /// The next `rows` tokens of the prompt, or the drawn token.
    pub(crate) fn segment(&self, rows: usize) -> Segment<'_> {
        let start = TokenPos(self.computed as u32);
        match &self.drawn {
            Some(token) => {
                Segment { bank: self.bank, start, tokens: std::slice::from_ref(token), logits: LogitsWanted::Last }
            }
            None => {
                let end = self.computed + rows;
                // A request without a token budget only fills its bank.
                let wanted = end == self.prompt_tokens && self.tokens_left > 0;
                let logits = if wanted { LogitsWanted::Last } else { LogitsWanted::None };
                Segment { bank: self.bank, start, tokens: &self.record.tokens()[self.computed..end], logits }
            }
        }
    }

    /// The rows given out by [`Running::segment`] are in the bank.
    pub(crate) fn advance(&mut self, rows: usize, tokenizer: &Tokenizer) {
        self.computed += rows;
        match self.drawn.take() {
            Some(token) => self.record.push_generated(token, tokenizer),
            None => {
                let (done, total) = (Tokens(self.computed as u32), Tokens(self.prompt_tokens as u32));
                self.outbox.hint(Event::Prefill { done, total });
                if done == total {
                    self.clock.prefilled();
                }
            }
        }
    }

    /// Whether the bank stands where the prompt's checkpoint belongs.
    pub(crate) fn at_boundary(&self) -> bool {
        self.computed == self.boundary
    }

    /// Draws from the logits of the last row, if it has any, and says what was drawn. An error ends the request.
    pub(crate) fn continue_with(&mut self, logits: Option<&[f32]>, stop_tokens: &[TokenId]) -> Result<(), End> {
        if self.computed < self.prompt_tokens {
            return Ok(());
        }
        let Some(logits) = logits.filter(|_| self.tokens_left > 0) else {
            return Err(self.close(FinishReason::Length));
        };
        let token = self.sampler.sample(logits).map_err(|fault| End::Fault(RequestFault::Step(fault.to_string())))?;
        self.clock.token();
        if let Some(count) = self.top_logprobs {
            self.outbox.send(Event::Logprobs(logprobs::of_position(logits, token, count)))?;
        }
        if stop_tokens.contains(&token) {
            return Err(self.close(FinishReason::EndOfTurn));
        }
        self.tokens_left -= 1;
        let emitted = self.output.push(token);
        if let Some(stop) = self.deliver(emitted)? {
            return Err(End::Finished(FinishReason::StopString(stop)));
        }
        if self.tokens_left == 0 {
            return Err(self.close(FinishReason::Length));
        }
        self.drawn = Some(token);
        Ok(())
    }

    /// Lets out what was held back and settles why the answer ended.
    fn close(&mut self, reason: FinishReason) -> End {
        let closed = self.output.finish();
        match self.deliver(closed.emitted) {
            Ok(Some(stop)) => End::Finished(FinishReason::StopString(stop)),
            // An answer that ends while reasoning has nothing to show: it counts as cut off.
            Ok(None) if closed.reasoning_open => End::Finished(FinishReason::Length),
            Ok(None) => End::Finished(reason),
            Err(end) => end,
        }
    }

    fn deliver(&self, emitted: Emitted) -> Result<Option<String>, End> {
        for delta in emitted.deltas {
            self.outbox.send(Event::Delta(delta))?;
        }
        Ok(emitted.stop)
    }

    /// Says goodbye to the reader and gives the bank back with the record of what it holds; `None` when the bank is
    /// not to be used again.
    pub(crate) fn leave(self, end: End) -> (BankId, Option<PromptRecord>) {
        let keep = !matches!(end, End::Fault(RequestFault::Step(_)));
        let usage = Usage {
            prompt_tokens: Tokens(self.prompt_tokens as u32),
            cached_tokens: Tokens(self.cached as u32),
            completion_tokens: self.output.completion_tokens(),
            reasoning_tokens: self.output.reasoning_tokens(),
        };
        match end {
            End::Finished(reason) => {
                let timings = self.clock.timings(self.reuse);
                self.outbox.end(Event::Finished(Finished { reason, usage, timings }));
            }
            End::Fault(fault) => self.outbox.end(Event::Failed(fault)),
            End::Cancelled => {}
        }
        let mut record = self.record;
        record.truncate(Tokens(self.computed as u32));
        (self.bank, keep.then_some(record))
    }

    /// What the bank holds, for others to copy the beginning of.
    pub(crate) fn record(&self) -> (&PromptRecord, Tokens) {
        (&self.record, Tokens(self.computed as u32))
    }
}

/// The position before the control tokens a prompt ends with, where the next turn may part from this one (an answer
/// that opens with reasoning now and without later); always before the last token, so that the same prompt again
/// finds it.
fn boundary(prompt: &PromptRecord) -> usize {
    prompt.tokens().len() - prompt.trailing_controls().max(1)
}

//! One request that has a bank: what it computes next and what its logits lead to.

mod draw;
mod guesses;
mod prompt;

pub(crate) use draw::Outcome;

use crate::admit::Origin;
use crate::chooser::Chooser;
use crate::clock::Clock;
use crate::foresight::ToDo;
use crate::limits::{DECODE_ROWS_MAX, PROMPT_LOGPROBS_ROWS};
use crate::outbox::{Outbox, Undelivered};
use crate::output::Output;
use crate::sampler::Sampler;
use crate::speculation::Standing;
use crate::{
    Event, FinishReason, Finished, GenerateRequest, Hear, Keep, RequestFault, ReuseKind, Started, Timings, Usage,
};
use ds4_model::{AnswerSummary, LogitsWanted, PromptRecord, Segment};
use ds4_units::{BankId, TokenId, TokenPos, Tokens};
use std::time::Instant;
use tracing::{Span, info};

/// Where a request's bank came from.
pub(crate) struct Seat {
    pub(crate) bank: BankId,
    /// The request's prompt with the ids of what it shares with the bank.
    pub(crate) prompt: PromptRecord,
    /// Tokens the bank holds already: fewer than the prompt has.
    pub(crate) cached: usize,
    pub(crate) reuse: ReuseKind,
    /// Where what the bank holds came from.
    pub(crate) origin: Origin,
}

/// Why a request leaves its bank.
pub(crate) enum End {
    Finished(FinishReason, AnswerSummary),
    Fault(RequestFault),
    /// The reader is gone.
    Cancelled,
}

/// What a request leaves behind.
pub(crate) struct Left {
    pub(crate) bank: BankId,
    /// What the bank holds; `None` when it is not to be used again.
    pub(crate) record: Option<PromptRecord>,
    pub(crate) keep: Keep,
    /// The answer ended with tool calls: a prompt that shares so much comes with their results.
    pub(crate) awaited_from: Option<Tokens>,
}

impl From<RequestFault> for End {
    fn from(fault: RequestFault) -> End {
        End::Fault(fault)
    }
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
    /// The prompt, then what was drawn or given; the first `computed` tokens are in the bank.
    record: PromptRecord,
    /// Tokens in the bank.
    computed: usize,
    prompt_tokens: usize,
    cached: usize,
    reuse: ReuseKind,
    /// Where the prompt's own checkpoint is taken.
    boundary: usize,
    /// Where others go on from a copy.
    pauses: Vec<usize>,
    /// Where a prompt that nothing was known of goes to disk.
    saved_at: usize,
    tokens_left: u32,
    /// Tokens its bank may come to hold: what memory was promised for.
    promise: Tokens,
    context: usize,
    top_logprobs: Option<usize>,
    prompt_logprobs: bool,
    chooser: Chooser,
    output: Output,
    outbox: Outbox,
    clock: Clock,
    /// Hears the time between tokens.
    gaps: Option<Hear>,
    /// What its log lines are part of.
    span: Span,
    /// Of its first tokens, how many are on disk or on their way there.
    pub(crate) stored: usize,
    /// Where its bank came from, until something was computed with it.
    origin: Origin,
    /// What its bank is worth when it leaves.
    pub(crate) keep: Keep,
    /// Tokens of the next step: what is left of the record, then guesses. Empty without guesses.
    ahead: Vec<TokenId>,
    guesses: usize,
    /// How it stands with guesses.
    pub(crate) standing: Standing,
    /// Guesses that were computed, and those that were right.
    guessed: (u32, u32),
}

impl Running {
    pub(crate) fn start(
        request: GenerateRequest,
        seat: Seat,
        promise: Tokens,
        context: Tokens,
        outbox: Outbox,
        submitted: Instant,
        span: Span,
    ) -> Running {
        let prompt_tokens = seat.prompt.tokens().len();
        Running {
            bank: seat.bank,
            boundary: boundary(&seat.prompt),
            pauses: Vec::new(),
            span,
            saved_at: boundary(&seat.prompt),
            record: seat.prompt,
            computed: seat.cached,
            prompt_tokens,
            cached: seat.cached,
            reuse: seat.reuse,
            tokens_left: request.max_tokens.0.min(context.0.saturating_sub(prompt_tokens as u32)),
            promise,
            context: context.index(),
            top_logprobs: request.top_logprobs,
            prompt_logprobs: request.prompt_logprobs,
            chooser: Chooser::new(Sampler::new(request.sampling), request.constraints),
            output: Output::new(request.reader, request.stop),
            outbox,
            clock: Clock::start(submitted),
            gaps: request.gaps,
            stored: 0,
            origin: seat.origin,
            keep: request.keep,
            ahead: Vec::new(),
            guesses: 0,
            standing: Standing::default(),
            guessed: (0, 0),
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

    /// Whether the next rows are drawn tokens, or few that follow without being drawn.
    pub(crate) fn is_decoding(&self) -> bool {
        self.computed >= self.prompt_tokens && self.rows_left() <= DECODE_ROWS_MAX
    }

    /// Whether its prompt is not in the bank yet.
    pub(crate) fn is_filling(&self) -> bool {
        self.computed < self.prompt_tokens
    }

    /// Tokens in the bank.
    pub(crate) fn computed(&self) -> usize {
        self.computed
    }

    /// Answer tokens so far.
    pub(crate) fn answered(&self) -> usize {
        self.output.completion_tokens().index()
    }

    /// What it has yet to do.
    pub(crate) fn left(&self) -> ToDo {
        let (prompt, answered) = (self.prompt_tokens.saturating_sub(self.computed), self.answered());
        ToDo { prompt, answered, answer: self.tokens_left as usize }
    }

    /// Stops for a moment when so many tokens are in the bank.
    pub(crate) fn pause_at(&mut self, tokens: usize) {
        if !self.pauses.contains(&tokens) {
            self.pauses.push(tokens);
        }
    }

    /// Rows that may be computed in one step: up to where something is kept or others part, then the rest.
    pub(crate) fn rows_left(&self) -> usize {
        let stops = self.pauses.iter().copied().chain([self.saved_at, self.boundary]);
        let end = stops.filter(|&stop| stop > self.computed).fold(self.record.tokens().len(), usize::min);
        let left = end - self.computed;
        if self.wants_prompt_logprobs() { left.min(PROMPT_LOGPROBS_ROWS) } else { left }
    }

    /// The next `rows` tokens, guesses included.
    pub(crate) fn segment(&self, rows: usize) -> Segment<'_> {
        let tokens = self.record.tokens();
        let end = self.computed + rows - self.guesses;
        // A request without a token budget only fills its bank.
        let wanted = end == tokens.len() && self.tokens_left > 0;
        let logits = match wanted {
            _ if self.wants_prompt_logprobs() => LogitsWanted::All,
            // Where nobody asks how likely it was, the device finds the likeliest token.
            true if self.top_logprobs.is_none() && self.chooser.is_greedy() => LogitsWanted::Greedy,
            true => LogitsWanted::Last,
            false => LogitsWanted::None,
        };
        let start = TokenPos(self.computed as u32);
        let tokens = if self.guesses > 0 { &self.ahead[..] } else { &tokens[self.computed..end] };
        Segment { bank: self.bank, start, tokens, logits, drafted: self.guesses }
    }

    /// The rows given out by [`Running::segment`] are in the bank.
    pub(crate) fn advance(&mut self, rows: usize) {
        self.origin = Origin::Here;
        self.computed += rows;
        if self.computed <= self.prompt_tokens {
            let (done, total) = (Tokens(self.computed as u32), Tokens(self.prompt_tokens as u32));
            self.outbox.hint(Event::Prefill { done, total });
            if done == total {
                self.clock.prefilled();
            }
        }
    }

    /// Tokens its bank may come to hold.
    pub(crate) fn promise(&self) -> Tokens {
        self.promise
    }

    /// The promise it needs before its next step, lengthened by `more` at least; `None` while what it has is enough.
    pub(crate) fn longer_promise(&self, more: Tokens) -> Option<Tokens> {
        let needed = self.record.tokens().len();
        let longer = (self.promise.0 + more.0).max(needed as u32).min(self.context as u32);
        (needed > self.promise.index()).then_some(Tokens(longer))
    }

    /// Memory was promised for so many tokens.
    pub(crate) fn was_promised(&mut self, promise: Tokens) {
        self.promise = promise;
    }

    /// Whether the bank stands where the prompt's checkpoint belongs.
    fn at_boundary(&self) -> bool {
        self.computed == self.boundary
    }

    /// Whether the bank stands where it will be cut back to or copied.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.at_boundary() || self.pauses.contains(&self.computed)
    }

    /// A prompt that nothing was known of goes to disk at this position.
    pub(crate) fn save_at(&mut self, position: usize) {
        self.saved_at = position;
    }

    /// Whether everything was computed and the bank stands where such a prompt goes to disk.
    pub(crate) fn is_new_and_to_be_saved(&self) -> bool {
        self.cached == 0 && self.computed == self.saved_at
    }

    /// Whether the disk has the beginning of an answer of which later prompts repeat every byte: without its end, the
    /// beginning could not be found.
    pub(crate) fn is_cut_on_disk(&self, end: &End) -> bool {
        self.stored > self.prompt_tokens && matches!(end, End::Finished(_, answer) if !answer.sampled.is_empty())
    }

    /// Where its bank came from, if nothing was computed with it yet.
    pub(crate) fn take_origin(&mut self) -> Origin {
        std::mem::replace(&mut self.origin, Origin::Here)
    }

    /// Begins the prompt again, in an empty bank.
    pub(crate) fn begin_cold(&mut self, bank: BankId) {
        self.bank = bank;
        self.guess(Vec::new());
        (self.computed, self.cached, self.stored) = (0, 0, 0);
        self.reuse = ReuseKind::Cold;
    }

    /// Says goodbye to the reader and gives the bank back.
    pub(crate) fn leave(self, end: End) -> Left {
        let sound = !matches!(end, End::Fault(RequestFault::Step(_)));
        let called = matches!(end, End::Finished(FinishReason::ToolCalls, _));
        let usage = Usage {
            prompt_tokens: Tokens(self.prompt_tokens as u32),
            cached_tokens: Tokens(self.cached as u32),
            completion_tokens: self.output.completion_tokens(),
            reasoning_tokens: self.output.reasoning_tokens(),
        };
        let (guesses, guesses_right) = self.guessed;
        let timings = Timings { guesses, guesses_right, ..self.clock.timings(self.reuse) };
        self.span.in_scope(|| tell(&end, &usage, &timings));
        let mut record = self.record;
        match end {
            End::Finished(reason, mut answer) => {
                record.note_answers(std::mem::take(&mut answer.sampled));
                self.outbox.end(Event::Finished(Finished { reason, answer, usage, timings }));
            }
            End::Fault(fault) => self.outbox.end(Event::Failed(fault)),
            End::Cancelled => {}
        }
        record.truncate(Tokens(self.computed as u32));
        Left {
            bank: self.bank,
            record: sound.then_some(record),
            keep: self.keep,
            awaited_from: called.then_some(Tokens(self.boundary as u32)),
        }
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

/// One line about a request that ends.
fn tell(end: &End, usage: &Usage, timings: &Timings) {
    let outcome = match end {
        End::Finished(FinishReason::EndOfTurn, _) => "stop",
        End::Finished(FinishReason::StopString(_), _) => "stop_string",
        End::Finished(FinishReason::ToolCalls, _) => "tool_calls",
        End::Finished(FinishReason::Length, _) => "length",
        End::Fault(_) => "failed",
        End::Cancelled => "canceled",
    };
    info!(
        outcome,
        prompt = usage.prompt_tokens.0,
        cached = usage.cached_tokens.0,
        reuse = timings.reuse.name(),
        answer = usage.completion_tokens.0,
        queued_ms = timings.queued.as_millis() as u64,
        first_token_ms = timings.first_token.map(|time| time.as_millis() as u64),
        decode_tok_s = timings.decode_rate(usage).map(|rate| rate as u64),
        "request ended"
    );
}

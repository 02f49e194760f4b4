//! From the logits of a request's last row to its next tokens, and to its end.

use super::{End, Running};
use crate::output::{Closed, Emitted};
use crate::{Event, FinishReason, logprobs};
use ds4_model::{AnswerSummary, Ending, NextToken, Prompt, Tokenizer};
use ds4_units::{TokenId, Tokens};

/// What a step says about the next token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome<'a> {
    /// How likely each token is.
    Logits(&'a [f32]),
    /// The likeliest, which the device has found.
    Likeliest(TokenId),
}

/// Tokens a second attempt needs at least to be worth its while.
const RETRY_TOKENS_MIN: usize = 64;

impl Running {
    /// Takes the next token, or the next few, from the outcome of the last row, if it has any, and says what they say.
    /// An error ends the request.
    pub(crate) fn continue_with(
        &mut self,
        outcome: Option<Outcome<'_>>,
        stop_tokens: &[TokenId],
        tokenizer: &Tokenizer,
    ) -> Result<(), End> {
        if self.computed < self.record.tokens().len() {
            return Ok(());
        }
        let Some(outcome) = outcome.filter(|_| self.tokens_left > 0) else {
            return self.close(Ending::OutOfTokens, tokenizer);
        };
        match self.output.next() {
            NextToken::Forced(tokens) => {
                self.clock.token();
                tokens.into_iter().try_for_each(|token| self.take(token, tokenizer))?;
            }
            // The last token said so already.
            NextToken::Complete => return self.close(self.end_of_turn(), tokenizer),
            how @ (NextToken::Sampled | NextToken::Greedy) => {
                let token = self.draw(outcome, how == NextToken::Greedy)?;
                if !stop_tokens.contains(&token) {
                    self.take(token, tokenizer)?;
                } else if let Some(tokens) = self.output.instead_of_ending() {
                    tokens.into_iter().try_for_each(|token| self.take(token, tokenizer))?;
                } else {
                    return self.close(self.end_of_turn(), tokenizer);
                }
            }
        }
        if self.output.next() == NextToken::Complete {
            return self.close(self.end_of_turn(), tokenizer);
        }
        if self.tokens_left == 0 {
            return self.close(Ending::OutOfTokens, tokenizer);
        }
        Ok(())
    }

    /// Ends the answer because there is no memory for more of it.
    pub(crate) fn run_out(&mut self, tokenizer: &Tokenizer) -> End {
        match self.close(Ending::OutOfTokens, tokenizer) {
            Err(end) => end,
            // An answer that ran out of tokens never begins again.
            Ok(()) => End::Finished(FinishReason::Length, AnswerSummary::default()),
        }
    }

    fn draw(&mut self, outcome: Outcome<'_>, greedy: bool) -> Result<TokenId, End> {
        let logits = match outcome {
            Outcome::Logits(logits) => logits,
            Outcome::Likeliest(token) => {
                self.clock.token();
                return Ok(token);
            }
        };
        let token = self.chooser.choose(logits, greedy, self.output.position())?;
        self.clock.token();
        if let Some(count) = self.top_logprobs {
            self.outbox.send(Event::Logprobs(logprobs::of_position(logits, token, count)))?;
        }
        Ok(token)
    }

    /// Makes a token part of the answer, while the budget lasts.
    fn take(&mut self, token: TokenId, tokenizer: &Tokenizer) -> Result<(), End> {
        if self.tokens_left == 0 {
            return Ok(());
        }
        self.tokens_left -= 1;
        self.chooser.commit(token, self.output.position())?;
        self.record.push_generated(token, tokenizer);
        if let (Some(gap), Some(hear)) = (self.clock.taken(), &self.gaps) {
            hear(gap);
        }
        let emitted = self.output.push(token);
        match self.deliver(emitted)? {
            Some(stop) => Err(self.stopped(stop)),
            None => Ok(()),
        }
    }

    fn end_of_turn(&self) -> Ending {
        let room = self.context.saturating_sub(self.record.tokens().len() + RETRY_TOKENS_MIN);
        let room = if (self.tokens_left as usize) < RETRY_TOKENS_MIN { 0 } else { room };
        Ending::EndOfTurn { room: Tokens(room as u32) }
    }

    /// Lets out what was held back and settles why the answer ended, unless it begins once more.
    fn close(&mut self, ending: Ending, tokenizer: &Tokenizer) -> Result<(), End> {
        match self.output.finish(ending) {
            Closed::Again(emitted, tail) => {
                self.deliver(emitted)?;
                self.begin_again(&tail, tokenizer)
            }
            Closed::Done(emitted, summary) => Err(match self.deliver(emitted)? {
                Some(stop) => End::Finished(FinishReason::StopString(stop), summary),
                None => End::Finished(reason(ending, &summary), summary),
            }),
        }
    }

    fn begin_again(&mut self, tail: &Prompt, tokenizer: &Tokenizer) -> Result<(), End> {
        self.record.append(tail, tokenizer);
        self.chooser.restart();
        let room = self.context.saturating_sub(self.record.tokens().len());
        self.tokens_left = self.tokens_left.min(room as u32);
        Ok(self.outbox.send(Event::Retrying)?)
    }

    /// A stop string ends the answer at once.
    fn stopped(&mut self, stop: String) -> End {
        let summary = match self.output.finish(Ending::StopString) {
            Closed::Done(_, summary) => summary,
            Closed::Again(..) => AnswerSummary::default(),
        };
        End::Finished(FinishReason::StopString(stop), summary)
    }

    fn deliver(&self, emitted: Emitted) -> Result<Option<String>, End> {
        for event in emitted.events {
            self.outbox.send(event)?;
        }
        Ok(emitted.stop)
    }
}

/// An answer that ends while reasoning has nothing to show: it counts as cut off. So does one whose tokens ran out,
/// whatever it holds.
fn reason(ending: Ending, summary: &AnswerSummary) -> FinishReason {
    match ending {
        Ending::OutOfTokens => FinishReason::Length,
        _ if summary.reasoning_open => FinishReason::Length,
        _ if summary.calls > 0 => FinishReason::ToolCalls,
        _ => FinishReason::EndOfTurn,
    }
}

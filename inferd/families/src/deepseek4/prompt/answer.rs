//! Reading an answer: which text is reasoning, which is content, and which calls tools.
//!
//! `surface.rs` splits the text, `scan.rs` finds where a block of calls opens, `ladder.rs` says what becomes of a
//! block, `correction.rs` what the model is told of a malformed one, `ledger.rs` which tokens a text came from.

mod correction;
mod ladder;
mod ledger;
mod sampled;
mod scan;
mod surface;

use super::Protocol;
use super::dsml::{BlockRules, ToolTable};
use ds4_model::{
    AnswerEnd, AnswerEvent, AnswerMemory, AnswerPosition, AnswerReader, AnswerSummary, Channel, Conversation, Ending,
    NextToken, SampledPart, ToolChoice, ToolFault, ToolOutcome, ToolUse, Utf8Stream,
};
use ds4_units::TokenId;
use sampled::Sampled;
use std::sync::Arc;
use surface::{Rules, State, Surface};

/// Reads one answer. Only the control token `</think>` ends reasoning; its spelling in ordinary tokens is a quotation.
pub(super) struct Reader {
    protocol: Arc<Protocol>,
    tools: ToolUse,
    sampled: Sampled,
    /// What the prompt opened the answer with.
    opens: Channel,
    text: Utf8Stream,
    surface: Surface,
    /// Nothing but a marker has come yet in this channel.
    at_start: bool,
    /// What was wrong with the first attempt.
    first_fault: Option<ToolFault>,
    retried: bool,
}

impl Reader {
    /// Reads the answer to a conversation.
    pub(super) fn new(
        protocol: Arc<Protocol>,
        opens: Channel,
        conversation: &Conversation,
        memory: &Arc<AnswerMemory>,
    ) -> Reader {
        let tools = conversation.tools.clone();
        let calls = tools.is_armed().then(|| BlockRules {
            tools: Arc::new(ToolTable::of(&tools)),
            allowed: tools.allowed.clone(),
            parallel: tools.parallel,
            coerce: tools.coerce,
            required: matches!(tools.choice, ToolChoice::Required | ToolChoice::Named(_)),
        });
        let rules = Rules { retries: calls.is_some(), calls, release: tools.release };
        let sampled = Sampled::new(conversation, memory);
        let surface = Surface::new(rules, first_state(opens));
        Reader::with(protocol, tools, sampled, opens, surface)
    }

    /// Reads what follows plain text: all of it is content.
    pub(super) fn raw(protocol: Arc<Protocol>) -> Reader {
        let rules = Rules { retries: false, calls: None, release: Default::default() };
        let surface = Surface::new(rules, State::Plain);
        let mut reader = Reader::with(protocol, ToolUse::default(), Sampled::nothing(), Channel::Content, surface);
        reader.at_start = false;
        reader
    }

    fn with(protocol: Arc<Protocol>, tools: ToolUse, sampled: Sampled, opens: Channel, surface: Surface) -> Reader {
        Reader {
            protocol,
            tools,
            sampled,
            opens,
            text: Utf8Stream::default(),
            surface,
            at_start: true,
            first_fault: None,
            retried: false,
        }
    }

    fn is_reasoning(&self) -> bool {
        matches!(self.surface.state, State::Reasoning(_))
    }

    /// A thinking marker that switches nothing: one that says again what the prompt said is dropped, any other is text.
    fn is_repeated(&self, token: TokenId) -> bool {
        let markers = &self.protocol.markers;
        self.at_start && token == if self.is_reasoning() { markers.think } else { markers.end_think }
    }

    /// The character that did not end is over.
    fn end_character(&mut self, events: &mut Vec<AnswerEvent>) {
        let text = self.text.finish();
        self.surface.ledger.end_character(text.len());
        self.surface.push(&text, events);
    }

    fn push_text(&mut self, token: TokenId, events: &mut Vec<AnswerEvent>) {
        let bytes = self.protocol.tokenizer.token_bytes(token).unwrap_or_default();
        let text = self.text.push(bytes);
        self.surface.ledger.push(text.len(), self.text.is_inside_character());
        self.surface.push(&text, events);
    }

    /// Whether the request owes its client a call.
    fn owes_a_call(&self) -> bool {
        self.tools.is_armed() && matches!(self.tools.choice, ToolChoice::Required | ToolChoice::Named(_))
    }

    fn forced_opening(&self) -> Option<Vec<TokenId>> {
        let name = match &self.tools.choice {
            ToolChoice::Required => None,
            ToolChoice::Named(name) => Some(name.as_str()),
            ToolChoice::Auto | ToolChoice::Forbidden => return None,
        };
        let opens_now = self.surface.is_at_start_of_content() && self.tools.is_armed();
        opens_now.then(|| self.protocol.tokenizer.encode(&super::dsml::opening(&self.protocol.markers, name)))
    }

    fn reset(&mut self) {
        self.first_fault = self.surface.fault.take();
        self.retried = true;
        let rules = Rules { retries: false, ..self.surface.rules.clone() };
        self.surface = Surface::new(rules, first_state(self.opens));
        self.sampled.forget();
        self.at_start = true;
    }

    fn summary(&mut self, sampled: Vec<SampledPart>) -> AnswerSummary {
        let outcome = match self.surface.outcome {
            Some(ToolOutcome::Ok | ToolOutcome::Repaired) if self.retried => Some(ToolOutcome::Retried),
            None if self.retried => Some(ToolOutcome::Failed),
            outcome => outcome,
        };
        AnswerSummary {
            reasoning_open: self.is_reasoning(),
            calls: self.surface.shown_calls.len() as u32,
            outcome,
            fault: self.first_fault.take().or(self.surface.fault.take()),
            sampled,
        }
    }
}

impl AnswerReader for Reader {
    fn push(&mut self, token: TokenId, events: &mut Vec<AnswerEvent>) {
        let markers = self.protocol.markers;
        let is_control = self.protocol.tokenizer.is_control(token);
        let repeated = self.is_repeated(token);
        let ends_reasoning = token == markers.end_think && self.is_reasoning();
        self.at_start = false;
        if is_control {
            self.end_character(events);
        }
        if ends_reasoning {
            self.surface.end_reasoning(events);
            self.surface.ledger.push(0, false);
        } else if !is_control || (!repeated && [markers.dsml, markers.think, markers.end_think].contains(&token)) {
            if is_control {
                let len = self.protocol.tokenizer.token_bytes(token).unwrap_or_default().len();
                self.sampled.note_control(self.surface.ledger.text(), len, token);
            }
            self.push_text(token, events);
        } else {
            self.surface.ledger.push(0, false);
        }
    }

    fn next(&mut self) -> NextToken {
        if self.surface.is_over() {
            return NextToken::Complete;
        }
        if let Some(tokens) = self.forced_opening() {
            return NextToken::Forced(tokens);
        }
        match &self.surface.state {
            State::Calls(calls) if calls.block.wants_end() => {
                let ending = super::dsml::ending(&self.protocol.markers, calls.block.is_mid_line());
                NextToken::Forced(self.protocol.tokenizer.encode(&ending))
            }
            State::Calls(calls) if calls.block.is_syntax() => NextToken::Greedy,
            _ => NextToken::Sampled,
        }
    }

    fn position(&self) -> AnswerPosition {
        self.surface.position()
    }

    /// Reasoning that ends without the call it owes is ended as if the model had said so: the call follows.
    fn instead_of_ending(&self) -> Option<Vec<TokenId>> {
        let unfinished = self.is_reasoning() && self.owes_a_call() && !self.surface.reasons_to_a_call();
        unfinished.then(|| vec![self.protocol.markers.end_think])
    }

    fn finish(&mut self, ending: Ending, events: &mut Vec<AnswerEvent>) -> AnswerEnd {
        self.end_character(events);
        let tail = match ending {
            Ending::EndOfTurn { room } if self.surface.may_need_another_attempt() => {
                let fault = self.surface.fault.as_ref();
                let tail = correction::tail(&self.protocol, &self.tools, fault, self.opens);
                let fits = self.protocol.tokenizer.encode(&tail).len() <= room.index();
                fits.then_some(tail)
            }
            _ => None,
        };
        let again = self.surface.settle_end(ending, tail.is_some(), events);
        if let Some(tail) = tail.filter(|_| again) {
            self.reset();
            return AnswerEnd::Again(tail);
        }
        let sampled = self.sampled.remember(&self.surface, self.retried);
        AnswerEnd::Done(self.summary(sampled))
    }
}

fn first_state(opens: Channel) -> State {
    match opens {
        Channel::Reasoning => State::Reasoning(None),
        Channel::Content => State::Content,
    }
}

#[cfg(test)]
mod tests;

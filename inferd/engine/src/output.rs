//! From drawn tokens to what the reader of a request hears: text, calls, stop strings, counts.

use crate::stop::{Chunk, StopMatcher};
use crate::{CallDelta, Channel, Delta, Event};
use ds4_model::{
    AnswerEnd, AnswerEvent, AnswerPosition, AnswerReader, AnswerSummary, CallEvent, Ending, NextToken, Prompt,
};
use ds4_units::{TokenId, Tokens};
use std::collections::VecDeque;

/// The readable side of one running request.
pub(crate) struct Output {
    reader: Box<dyn AnswerReader>,
    stops: StopMatcher,
    read: Vec<AnswerEvent>,
    /// Tokens that no event has accounted for: parts of a character, markers, text held back.
    unseen: VecDeque<TokenId>,
    completion: u32,
    reasoning: u32,
}

/// What a token or the end led to.
#[derive(Default)]
pub(crate) struct Emitted {
    /// Deltas of text and calls, in order.
    pub(crate) events: Vec<Event>,
    /// The stop string that was found; nothing may follow.
    pub(crate) stop: Option<String>,
}

/// What the end of an answer led to.
pub(crate) enum Closed {
    Done(Emitted, AnswerSummary),
    /// The model answers once more, after this text.
    Again(Emitted, Prompt),
}

impl Output {
    pub(crate) fn new(reader: Box<dyn AnswerReader>, stops: Vec<String>) -> Output {
        Output {
            reader,
            stops: StopMatcher::new(stops),
            read: Vec::new(),
            unseen: VecDeque::new(),
            completion: 0,
            reasoning: 0,
        }
    }

    /// How the next token is to be chosen.
    pub(crate) fn next(&mut self) -> NextToken {
        self.reader.next()
    }

    /// Where the next token stands.
    pub(crate) fn position(&self) -> AnswerPosition {
        self.reader.position()
    }

    /// What follows where the model would end its answer, while something is still owed.
    pub(crate) fn instead_of_ending(&self) -> Option<Vec<TokenId>> {
        self.reader.instead_of_ending()
    }

    /// Takes a token of the answer.
    pub(crate) fn push(&mut self, token: TokenId) -> Emitted {
        self.completion += 1;
        self.unseen.push_back(token);
        self.reader.push(token, &mut self.read);
        self.pass()
    }

    /// Ends an answer: what was held back comes out, or the model is asked once more.
    pub(crate) fn finish(&mut self, ending: Ending) -> Closed {
        let end = self.reader.finish(ending, &mut self.read);
        let mut emitted = self.pass();
        if emitted.stop.is_none() {
            self.flush_stops(&mut emitted.events);
        }
        match end {
            AnswerEnd::Again(tail) => {
                self.unseen.clear();
                Closed::Again(emitted, tail)
            }
            AnswerEnd::Done(summary) => {
                if emitted.stop.is_none() {
                    self.account_for_the_rest(&summary, &mut emitted.events);
                }
                Closed::Done(emitted, summary)
            }
        }
    }

    pub(crate) fn completion_tokens(&self) -> Tokens {
        Tokens(self.completion)
    }

    pub(crate) fn reasoning_tokens(&self) -> Tokens {
        Tokens(self.reasoning)
    }

    /// Passes events on. Stop strings apply to the answer's text, never to reasoning or calls.
    fn pass(&mut self) -> Emitted {
        let mut emitted = Emitted::default();
        for event in std::mem::take(&mut self.read) {
            match event {
                AnswerEvent::Text { channel: Channel::Reasoning, text, tokens } => {
                    let chunk = Chunk { text, ids: self.take_unseen(tokens) };
                    self.reasoning += chunk.ids.len() as u32;
                    push_text(&mut emitted.events, Channel::Reasoning, chunk);
                }
                AnswerEvent::Text { channel: Channel::Content, text, tokens } => {
                    let ids = self.take_unseen(tokens);
                    let released = self.stops.push(Chunk { text, ids });
                    push_text(&mut emitted.events, Channel::Content, released.chunk);
                    emitted.stop = released.hit;
                }
                AnswerEvent::Call { event, tokens } => {
                    // No text follows a call: what could have become a stop string is text.
                    self.flush_stops(&mut emitted.events);
                    let token_ids = self.take_unseen(tokens);
                    push_call(&mut emitted.events, event, token_ids);
                }
            }
            if emitted.stop.is_some() {
                break;
            }
        }
        emitted
    }

    fn take_unseen(&mut self, tokens: usize) -> Vec<TokenId> {
        self.unseen.drain(..tokens.min(self.unseen.len())).collect()
    }

    fn flush_stops(&mut self, events: &mut Vec<Event>) {
        let rest = self.stops.flush();
        push_text(events, Channel::Content, rest);
    }

    /// Tokens without text at the very end still belong to the answer.
    fn account_for_the_rest(&mut self, summary: &AnswerSummary, events: &mut Vec<Event>) {
        let ids: Vec<TokenId> = self.unseen.drain(..).collect();
        if ids.is_empty() {
            return;
        }
        if summary.reasoning_open {
            self.reasoning += ids.len() as u32;
        }
        let channel = if summary.reasoning_open { Channel::Reasoning } else { Channel::Content };
        match events.last_mut() {
            Some(Event::Call(call)) => call.token_ids.extend(ids),
            Some(Event::Delta(delta)) if delta.channel == channel => delta.token_ids.extend(ids),
            _ => push_text(events, channel, Chunk { text: String::new(), ids }),
        }
    }
}

fn push_text(events: &mut Vec<Event>, channel: Channel, chunk: Chunk) {
    if !chunk.text.is_empty() || !chunk.ids.is_empty() {
        events.push(Event::Delta(Delta { channel, text: chunk.text, token_ids: chunk.ids }));
    }
}

fn push_call(events: &mut Vec<Event>, event: CallEvent, token_ids: Vec<TokenId>) {
    events.push(Event::Call(CallDelta { event, token_ids }));
}

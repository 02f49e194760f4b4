//! From drawn tokens to text events: the answer's channels, stop strings, counts.

use crate::stop::{Chunk, StopMatcher};
use crate::{Channel, Delta};
use ds4_model::{AnswerEvent, AnswerReader};
use ds4_units::{TokenId, Tokens};

/// The text side of one running request.
pub(crate) struct Output {
    reader: Box<dyn AnswerReader>,
    stops: StopMatcher,
    events: Vec<AnswerEvent>,
    /// Tokens whose text has not appeared: parts of a character, markers between channels.
    unseen: Vec<TokenId>,
    completion: u32,
    reasoning: u32,
}

/// What a token led to.
pub(crate) struct Emitted {
    pub(crate) deltas: Vec<Delta>,
    pub(crate) stop: Option<String>,
}

/// What the end of an answer led to.
pub(crate) struct Closed {
    pub(crate) emitted: Emitted,
    pub(crate) reasoning_open: bool,
}

impl Output {
    pub(crate) fn new(reader: Box<dyn AnswerReader>, stops: Vec<String>) -> Output {
        Output {
            reader,
            stops: StopMatcher::new(stops),
            events: Vec::new(),
            unseen: Vec::new(),
            completion: 0,
            reasoning: 0,
        }
    }

    /// Takes a token of the answer.
    pub(crate) fn push(&mut self, token: TokenId) -> Emitted {
        self.completion += 1;
        self.unseen.push(token);
        self.reader.push(token, &mut self.events);
        self.pass()
    }

    /// Ends an answer that no stop string ended: what was held back comes out.
    pub(crate) fn finish(&mut self) -> Closed {
        let end = self.reader.finish(&mut self.events);
        let mut emitted = self.pass();
        if emitted.stop.is_none() {
            let mut rest = self.stops.flush();
            // Tokens without text at the very end still belong to the answer.
            rest.ids.append(&mut self.unseen);
            if end.reasoning_open {
                self.reasoning += rest.ids.len() as u32;
            }
            let channel = if end.reasoning_open { Channel::Reasoning } else { Channel::Content };
            push_chunk(&mut emitted.deltas, channel, rest);
        }
        Closed { emitted, reasoning_open: end.reasoning_open }
    }

    pub(crate) fn completion_tokens(&self) -> Tokens {
        Tokens(self.completion)
    }

    pub(crate) fn reasoning_tokens(&self) -> Tokens {
        Tokens(self.reasoning)
    }

    /// Passes events on. Stop strings apply to the answer, never to reasoning.
    fn pass(&mut self) -> Emitted {
        let mut emitted = Emitted { deltas: Vec::new(), stop: None };
        for event in std::mem::take(&mut self.events) {
            let AnswerEvent::Text { channel, text } = event else { continue };
            let chunk = Chunk { text, ids: std::mem::take(&mut self.unseen) };
            match channel {
                Channel::Reasoning => {
                    self.reasoning += chunk.ids.len() as u32;
                    push_chunk(&mut emitted.deltas, channel, chunk);
                }
                Channel::Content => {
                    let released = self.stops.push(chunk);
                    push_chunk(&mut emitted.deltas, channel, released.chunk);
                    emitted.stop = released.hit;
                }
            }
            if emitted.stop.is_some() {
                break;
            }
        }
        emitted
    }
}

fn push_chunk(deltas: &mut Vec<Delta>, channel: Channel, chunk: Chunk) {
    if !chunk.text.is_empty() || !chunk.ids.is_empty() {
        deltas.push(Delta { channel, text: chunk.text, token_ids: chunk.ids });
    }
}

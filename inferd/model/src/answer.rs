//! An answer as it is read: generated tokens in, events and the rules for the next token out.

use crate::{CallId, Prompt, SampledPart, ToolFault, ToolOutcome};
use ds4_units::{TokenId, Tokens};

/// What a part of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Reasoning, shown apart from the answer or not at all.
    Reasoning,
    /// The answer's text.
    Content,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerEvent {
    /// Text of one channel; never empty.
    Text {
        /// Where the text belongs.
        channel: Channel,
        /// The text.
        text: String,
        /// How many of the pushed tokens that no event has named yet it accounts for, the oldest first: those that
        /// decode to the text, and those before them that show nothing.
        tokens: usize,
    },
    /// A part of a tool call. Text may come before the first call, never after it.
    Call {
        /// The part.
        event: CallEvent,
        /// As for text.
        tokens: usize,
    },
}

/// A part of a tool call. Calls come one after the other; `index` counts them from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEvent {
    /// A call begins.
    Start {
        /// Its place among the answer's calls.
        index: u32,
        /// Drawn now; clients name it when they send the result.
        id: CallId,
        /// The tool's name as the prompt offered it; may be one that was not offered.
        name: String,
    },
    /// The next characters of the arguments; never empty. All fragments of a call joined are one JSON object, byte for
    /// byte the same whether they were streamed or not.
    Arguments {
        /// The call they belong to.
        index: u32,
        /// Whole characters of JSON text.
        json: String,
    },
    /// The call is complete.
    End {
        /// The call that ends.
        index: u32,
    },
}

/// How the next token of an answer is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextToken {
    /// As the request asks.
    Sampled,
    /// The likeliest: syntax is not a matter of taste. Penalties, filters and stop strings do not apply.
    Greedy,
    /// These tokens follow, whatever the model would say. They count as drawn and are pushed to the reader.
    Forced(Vec<TokenId>),
    /// None: the answer is complete.
    Complete,
}

/// Where an answer stands, for what applies to a part of it only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerPosition {
    /// Inside the reasoning.
    Reasoning,
    /// In the text of the answer (or at its very start).
    Content,
    /// Inside a block of tool calls: from the first token after its opening on.
    Calls,
}

/// Why no token follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model ended its answer with a stop token, or the reader said that it is complete.
    EndOfTurn {
        /// Tokens for which the context has room, if the model were asked once more; 0 when it may not be.
        room: Tokens,
    },
    /// The token budget or the context is used up.
    OutOfTokens,
    /// A stop string of the request was found in the answer's text: what is held back is not wanted.
    StopString,
}

/// Turns the tokens of one answer into events, in order. Concatenated texts do not depend on how tokens are grouped
/// into calls, and no event ends inside a character.
pub trait AnswerReader: Send {
    /// Takes the next generated token (not a stop token) and appends what it completes to `events`.
    fn push(&mut self, token: TokenId, events: &mut Vec<AnswerEvent>);

    /// How the next token is to be chosen. Asked before every token.
    fn next(&mut self) -> NextToken {
        NextToken::Sampled
    }

    /// Where the next token stands.
    fn position(&self) -> AnswerPosition;

    /// The model is about to end its answer: the tokens that follow instead, while something is still owed. They count
    /// as drawn and are pushed to the reader.
    fn instead_of_ending(&self) -> Option<Vec<TokenId>> {
        None
    }

    /// Ends the answer: whatever was held back is appended to `events`, or the model gets a second chance.
    fn finish(&mut self, ending: Ending, events: &mut Vec<AnswerEvent>) -> AnswerEnd;
}

/// What the end of an answer leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// It is over.
    Done(AnswerSummary),
    /// The calls were malformed and none of them was shown. This text goes after what was generated; the model answers
    /// once more and the same reader reads it. Happens once at most; its tokens fit the room that was stated.
    Again(Prompt),
}

/// How an answer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerSummary {
    /// The model was still reasoning: the answer has no content and counts as cut off.
    pub reasoning_open: bool,
    /// Complete calls among the events. With any, the answer ends with them ([`Ending::OutOfTokens`] excepted: such
    /// an answer is cut off, whatever it holds).
    pub calls: u32,
    /// What became of a block of calls, when there was one.
    pub outcome: Option<ToolOutcome>,
    /// What was wrong with it.
    pub fault: Option<ToolFault>,
    /// What later prompts are to say exactly as it was sampled.
    pub sampled: Vec<SampledPart>,
}

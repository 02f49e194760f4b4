//! Parts of answers as they were sampled, and the form in which they outlive the process.

use super::VisibleKey;
use crate::{CallId, JsonText, Piece, Prompt, PromptText, Tokenizer, ToolArguments, ToolCall};
use ds4_units::TokenId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A block of calls as it was sampled: everything between the answer's text and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledCalls {
    /// The pieces, white space before the block included.
    pub block: Prompt,
    /// Its calls, in order.
    pub calls: Vec<ToolCall>,
}

/// A part of an answer that clients return in other bytes, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampledPart {
    /// A block of calls.
    Calls(Arc<SampledCalls>),
    /// The reasoning of the answer that a visible conversation ends with.
    Reasoning(VisibleKey, PromptText),
}

impl SampledCalls {
    /// The calls' ids; `None` when one of them was not drawn here.
    pub(super) fn ids(&self) -> Option<Vec<CallId>> {
        self.calls.iter().map(|call| CallId::parse(&call.id)).collect()
    }

    pub(super) fn text_len(&self) -> usize {
        self.block.text_len() + self.calls.iter().map(ToolCall::text_len).sum::<usize>()
    }
}

#[derive(Serialize, Deserialize)]
struct StoredCalls {
    block: Vec<StoredPiece>,
    calls: Vec<StoredCall>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredPiece {
    Control(u32),
    Text(String),
}

#[derive(Serialize, Deserialize)]
struct StoredCall {
    id: String,
    name: String,
    arguments: StoredArguments,
}

/// Values of members are JSON text, so that numbers keep their spelling.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredArguments {
    Members(Vec<(String, String)>),
    Text(String),
}

/// What ids of reasoning begin with; those of calls are the calls' own.
const REASONING: &str = "reasoning:";

impl SampledPart {
    /// What the part is found by: equal for equal parts only.
    pub fn id(&self) -> String {
        match self {
            SampledPart::Calls(sampled) => sampled.calls.first().map_or_else(String::new, |call| call.id.clone()),
            SampledPart::Reasoning(key, _) => format!("{REASONING}{}", key.to_hex()),
        }
    }

    /// The part as bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            SampledPart::Calls(sampled) => {
                let stored = StoredCalls {
                    block: sampled.block.pieces().iter().map(StoredPiece::of).collect(),
                    calls: sampled.calls.iter().map(StoredCall::of).collect(),
                };
                serde_json::to_vec(&stored).unwrap_or_default()
            }
            SampledPart::Reasoning(_, text) => text.as_str().as_bytes().to_vec(),
        }
    }

    /// The part with this id and these bytes; `None` for what [`SampledPart::encode`] never wrote.
    pub fn decode(id: &str, bytes: &[u8], tokenizer: &Tokenizer) -> Option<SampledPart> {
        if let Some(key) = id.strip_prefix(REASONING) {
            let text = std::str::from_utf8(bytes).ok()?;
            return Some(SampledPart::Reasoning(VisibleKey::from_hex(key)?, PromptText::new(text)));
        }
        let stored: StoredCalls = serde_json::from_slice(bytes).ok()?;
        let mut block = Prompt::new();
        for piece in stored.block {
            match piece {
                StoredPiece::Text(text) => block.push_text(&text),
                StoredPiece::Control(token) => {
                    block.push_control(Some(TokenId(token)).filter(|&token| tokenizer.is_control(token))?);
                }
            }
        }
        let calls: Vec<ToolCall> = stored.calls.into_iter().map(StoredCall::into_call).collect::<Option<_>>()?;
        let sampled = SampledPart::Calls(Arc::new(SampledCalls { block, calls }));
        Some(sampled).filter(|sampled| sampled.id() == id)
    }
}

impl StoredPiece {
    fn of(piece: &Piece) -> StoredPiece {
        match piece {
            Piece::Control(token) => StoredPiece::Control(token.0),
            Piece::Text(text) => StoredPiece::Text(text.as_str().to_owned()),
        }
    }
}

impl StoredCall {
    fn of(call: &ToolCall) -> StoredCall {
        let arguments = match &call.arguments {
            ToolArguments::Members(members) => {
                let member = |(key, value): &(PromptText, JsonText)| (key.as_str().into(), value.as_str().into());
                StoredArguments::Members(members.iter().map(member).collect())
            }
            ToolArguments::Text(text) => StoredArguments::Text(text.as_str().into()),
        };
        StoredCall { id: call.id.clone(), name: call.name.clone(), arguments }
    }

    fn into_call(self) -> Option<ToolCall> {
        let arguments = match self.arguments {
            StoredArguments::Members(members) => {
                let member =
                    |(key, value): (String, String)| Some((PromptText::new(key), JsonText::parse(&value).ok()?));
                ToolArguments::Members(members.into_iter().map(member).collect::<Option<_>>()?)
            }
            StoredArguments::Text(text) => ToolArguments::Text(PromptText::new(text)),
        };
        Some(ToolCall { id: self.id, name: self.name, arguments })
    }
}

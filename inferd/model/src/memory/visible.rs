//! Naming a conversation by what everybody sees of it.

use crate::{CallId, Instructions, Message, ToolArguments};
use sha2::{Digest, Sha256};

/// A digest of the visible part of a conversation's first messages: everything but reasoning. Calls count by their ids
/// and names, since clients return arguments in other spellings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VisibleKey([u8; 32]);

impl VisibleKey {
    /// The key of no messages.
    pub fn start() -> VisibleKey {
        VisibleKey([0; 32])
    }

    /// The key of a conversation.
    pub fn of(messages: &[Message]) -> VisibleKey {
        let mut key = VisibleKey::start();
        messages.iter().for_each(|message| key.push(message));
        key
    }

    /// The key's digits.
    pub(super) fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The key with these digits.
    pub(super) fn from_hex(digits: &str) -> Option<VisibleKey> {
        let digit = |at: usize| digits.get(2 * at..2 * at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let mut key = [0; 32];
        for (at, byte) in key.iter_mut().enumerate() {
            *byte = digit(at)?;
        }
        Some(VisibleKey(key)).filter(|key| key.to_hex() == digits)
    }

    /// Appends a message.
    pub fn push(&mut self, message: &Message) {
        let mut hash = Fields(Sha256::new_with_prefix(self.0));
        match message {
            Message::System(body) => hash.instructions("system", body),
            Message::Developer(body) => hash.instructions("developer", body),
            Message::User(user) => hash.texts(&["user", user.text.as_str()]),
            Message::Assistant(answer) => {
                hash.texts(&["assistant", answer.content.as_str()]);
                for call in &answer.tool_calls {
                    // The same id whatever the protocol that it came back through.
                    let id = CallId::parse(&call.id).map_or_else(|| call.id.clone(), |id| id.with_prefix(""));
                    hash.texts(&[&id, &call.name]);
                    if let ToolArguments::Text(text) = &call.arguments {
                        hash.texts(&[text.as_str()]);
                    }
                }
            }
            Message::ToolResult(result) => hash.texts(&["tool", &result.call_id, result.text.as_str()]),
            Message::LatestReminder(text) => hash.texts(&["reminder", text.as_str()]),
        }
        self.0 = hash.0.finalize().into();
    }
}

/// Strings in a row, each with its length, so that none runs into the next.
struct Fields(Sha256);

impl Fields {
    fn texts(&mut self, texts: &[&str]) {
        for text in texts {
            self.0.update((text.len() as u64).to_le_bytes());
            self.0.update(text);
        }
    }

    fn instructions(&mut self, role: &str, body: &Instructions) {
        self.texts(&[role, body.text.as_str()]);
        body.tools.iter().for_each(|tool| self.texts(&[tool.json.as_str()]));
    }
}

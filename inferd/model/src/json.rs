//! JSON kept as the text it was sent as: key order, duplicate keys and number spellings survive.

mod equal;
mod print;
mod string;

pub(crate) use equal::same_members;
pub use print::NumberSpelling;

use serde::de::IgnoredAny;
use std::fmt;

/// One complete, valid JSON value as text, without white space around it. `Debug` shows its length only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonText(String);

/// Why a text is not JSON. The message names line and column, never the text.
#[derive(Debug, thiserror::Error)]
#[error("not valid JSON: {0}")]
pub struct JsonTextError(#[from] serde_json::Error);

impl JsonText {
    /// Checks a text. Any nesting depth is accepted: nothing here recurses.
    pub fn parse(text: &str) -> Result<JsonText, JsonTextError> {
        serde_json::from_str::<IgnoredAny>(text)?;
        Ok(JsonText(text.trim_ascii().to_owned()))
    }

    /// The text as it was sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The decoded value when this is a string. Lone surrogates become U+FFFD.
    pub fn to_string_value(&self) -> Option<String> {
        self.0.starts_with('"').then(|| string::decode(&self.0))
    }

    /// The members of an object in the order written, duplicates included; `None` when this is no object.
    pub fn members(&self) -> Option<Vec<(String, JsonText)>> {
        let mut rest = self.0.strip_prefix('{')?.trim_ascii_start();
        let mut members = Vec::new();
        while rest.starts_with('"') {
            let (key, after_key) = split_value(rest);
            let value_and_rest = after_key.trim_ascii_start().strip_prefix(':').unwrap_or_default().trim_ascii_start();
            let (value, after_value) = split_value(value_and_rest);
            members.push((string::decode(key), JsonText(value.to_owned())));
            let after_value = after_value.trim_ascii_start();
            rest = after_value.strip_prefix(',').unwrap_or(after_value).trim_ascii_start();
        }
        Some(members)
    }

    /// The value as JSON text that says `text`: a string, with escapes only where JSON demands them.
    pub fn from_str_value(text: &str) -> JsonText {
        let mut token = String::with_capacity(text.len() + 2);
        string::encode(text, &mut token);
        JsonText(token)
    }

    /// The same value without white space between tokens.
    pub fn to_minified(&self) -> String {
        print::minified(&self.0)
    }

    /// The same value printed as Python's `json.dumps(value, ensure_ascii=False)` would: `", "` and `": "` between
    /// tokens, no other white space, escapes only where JSON demands them. Duplicate keys stay.
    pub fn to_python(&self, numbers: NumberSpelling) -> String {
        print::python(&self.0, numbers)
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonText({} bytes)", self.0.len())
    }
}

/// Appends `text` as the inside of a JSON string: escapes only where JSON demands them, no quotes around it.
pub fn push_json_escaped(text: &str, out: &mut String) {
    string::encode_inside(text, out);
}

/// Splits the value at the start of `text`, which is inside a checked JSON value, from what follows it.
fn split_value(text: &str) -> (&str, &str) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let _ = values.next();
    text.split_at(values.byte_offset())
}

//! The arguments of a call as JSON text that only ever grows.

use super::coerce;
use super::schema::{ToolTable, Types};
use ds4_model::{JsonText, push_json_escaped};

/// Names of a parameter that holds all arguments, when the tool has no such parameter.
const WRAPPERS: [&str; 2] = ["arguments", "input"];

/// Writes the arguments of one call.
#[derive(Clone, Debug)]
pub(super) struct Arguments {
    json: String,
    /// Bytes of it that were handed out.
    shown: usize,
    /// A value that may turn out to be all arguments at once: its name, text and JSON.
    held: Option<(String, String, String)>,
}

impl Arguments {
    pub(super) fn begin() -> Arguments {
        Arguments { json: "{".to_owned(), shown: 0, held: None }
    }

    /// Whether this value must be complete before any of it is written: it may be all arguments.
    pub(super) fn may_wrap(&self, tools: &ToolTable, tool: &str, parameter: &str) -> bool {
        self.json.len() == 1
            && self.held.is_none()
            && WRAPPERS.contains(&parameter)
            && !tools.has_parameter(tool, parameter)
    }

    /// Keeps a complete value until it is known whether another follows.
    pub(super) fn hold(&mut self, name: String, text: String, json: String) {
        self.held = Some((name, text, json));
    }

    /// Begins a string value whose text comes in parts.
    pub(super) fn begin_string(&mut self, name: &str) {
        self.key(name);
        self.json.push('"');
    }

    /// A part of a string value.
    pub(super) fn string_part(&mut self, text: &str) {
        push_json_escaped(text, &mut self.json);
    }

    /// Ends a string value.
    pub(super) fn end_string(&mut self) {
        self.json.push('"');
    }

    /// A whole value.
    pub(super) fn value(&mut self, name: &str, json: &str) {
        self.key(name);
        self.json.push_str(json);
    }

    /// The call is complete.
    pub(super) fn end(&mut self) {
        if let Some((name, text, json)) = self.held.take() {
            match JsonText::parse(&text).ok().filter(|all| all.as_str().starts_with('{')) {
                // The braces are written around it anyway.
                Some(all) => self.json.push_str(&all.to_minified()[1..all.to_minified().len() - 1]),
                None => self.value(&name, &json),
            }
        }
        self.json.push('}');
    }

    /// What was written since the last time.
    pub(super) fn fragment(&mut self) -> Option<String> {
        let fragment = self.json[self.shown..].to_owned();
        self.shown = self.json.len();
        (!fragment.is_empty()).then_some(fragment)
    }

    /// All of it.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    fn key(&mut self, name: &str) {
        if let Some((held_name, _, held_json)) = self.held.take() {
            self.value(&held_name, &held_json);
        }
        if self.json.len() > 1 {
            self.json.push(',');
        }
        self.json.push_str(JsonText::from_str_value(name).as_str());
        self.json.push(':');
    }
}

/// What a value is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueRules {
    pub(super) types: Types,
    pub(super) coerce: bool,
}

impl ValueRules {
    /// Whether text can be written as it comes, because it is a string whatever it says.
    pub(super) fn streams(self) -> bool {
        !self.coerce || self.types.allows(Types::STRING)
    }

    pub(super) fn text(self, text: &str) -> String {
        coerce::from_text(text, self.types, self.coerce)
    }

    pub(super) fn json(self, text: &str) -> String {
        coerce::from_json(text, self.types, self.coerce)
    }
}

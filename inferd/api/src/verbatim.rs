//! Objects of a body that stay as the client spelled them: the arguments of earlier calls.
//!
//! Parsing a body keeps the last of equal keys and the value of a number, not its spelling. A call that is said in
//! other bytes than it was made in shares less with the state that is kept, so its arguments are found in the text.

use ds4_model::JsonText;
use std::borrow::Cow;
use std::collections::HashMap;

/// Where arguments may be objects; `*` is any item of an array.
const PLACES: [&[&str]; 4] = [
    &["messages", "*", "content", "*", "input"],
    &["messages", "*", "tool_calls", "*", "function", "arguments"],
    &["input", "*", "arguments"],
    &["input", "*", "action"],
];

/// The text of such objects, by their path.
#[derive(Debug, Default)]
pub(crate) struct Verbatim {
    texts: HashMap<String, JsonText>,
}

impl Verbatim {
    /// Finds them in a body, which must be valid JSON. Of several objects with one path the last is kept, as in the
    /// parsed body.
    pub(crate) fn of(text: &str) -> Verbatim {
        let mut scan = Scan { text, at: 0, path: Vec::new(), found: Verbatim::default() };
        scan.value();
        scan.found
    }

    /// The object at `path`, when it is one of those.
    pub(crate) fn at(&self, path: &str) -> Option<&JsonText> {
        self.texts.get(path)
    }
}

enum Step<'a> {
    Name(Cow<'a, str>),
    Item(usize),
}

/// How a path lies to the places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    There,
    OnTheWay,
    Elsewhere,
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    path: Vec<Step<'a>>,
    found: Verbatim,
}

impl<'a> Scan<'a> {
    /// Reads the value that begins here.
    fn value(&mut self) {
        self.skip_space();
        let (begin, first) = (self.at, self.peek());
        match (self.reach(), first) {
            (Reach::OnTheWay, Some(b'{')) => self.object(),
            (Reach::OnTheWay, Some(b'[')) => self.array(),
            (Reach::There, Some(b'{')) => {
                self.skip_value();
                if let Ok(json) = JsonText::parse(&self.text[begin..self.at]) {
                    self.found.texts.insert(self.spelled_path(), json);
                }
            }
            _ => self.skip_value(),
        }
    }

    fn object(&mut self) {
        self.at += 1;
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return self.pass(b'}');
            }
            let name = self.name();
            self.skip_space();
            self.pass(b':');
            self.path.push(Step::Name(name));
            self.value();
            self.path.pop();
            self.skip_space();
            self.pass(b',');
        }
    }

    fn array(&mut self) {
        self.at += 1;
        for index in 0.. {
            self.skip_space();
            if matches!(self.peek(), None | Some(b']')) {
                return self.pass(b']');
            }
            self.path.push(Step::Item(index));
            self.value();
            self.path.pop();
            self.skip_space();
            self.pass(b',');
        }
    }

    fn reach(&self) -> Reach {
        let fits = |(step, place): (&Step<'_>, &&str)| match step {
            Step::Name(name) => name == place,
            Step::Item(_) => *place == "*",
        };
        let along = |place: &&&[&str]| place.len() >= self.path.len() && self.path.iter().zip(place.iter()).all(fits);
        let reach = |place: &&[&str]| if place.len() == self.path.len() { Reach::There } else { Reach::OnTheWay };
        PLACES.iter().find(along).map_or(Reach::Elsewhere, reach)
    }

    /// As errors spell it.
    fn spelled_path(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Name(name) if path.is_empty() => path.push_str(name),
                Step::Name(name) => path.extend([".", name]),
                Step::Item(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }

    /// Reads the name of a member.
    fn name(&mut self) -> Cow<'a, str> {
        let begin = self.at;
        self.skip_string();
        let quoted = &self.text[begin..self.at];
        let escaped = || JsonText::parse(quoted).ok().and_then(|json| json.to_string_value());
        match quoted.contains('\\') {
            true => Cow::Owned(escaped().unwrap_or_default()),
            false => Cow::Borrowed(quoted.trim_matches('"')),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Goes on behind a byte, if it is here.
    fn pass(&mut self, byte: u8) {
        self.at += usize::from(self.peek() == Some(byte));
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'"' => return,
                b'\\' => self.at += 1,
                _ => {}
            }
        }
    }

    fn skip_value(&mut self) {
        let mut depth = 0u32;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => self.skip_string(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth == 0 => return,
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' if depth == 0 => return,
                _ => {
                    self.at += 1;
                    continue;
                }
            }
            if depth == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn at(text: &str, path: &str) -> Option<String> {
        Verbatim::of(text).at(path).map(|json| json.as_str().to_owned())
    }

    #[test]
    fn arguments_are_found_as_they_were_spelled() {
        let body = r#"{"tools": [{"input": {"a": 1}}], "me\u0073sages" : [ {"content":"input"},
            {"content": [ {"type": "text"}, {"input" : {"x": 1.50, "x": [1e2, "]}\""] } , "id": "t"}]},
            {"tool_calls": [{"function": {"name": "f", "arguments": {"n":-0.0}}}]} ]}"#;
        assert_eq!(at(body, "messages[1].content[1].input").unwrap(), r#"{"x": 1.50, "x": [1e2, "]}\""] }"#);
        assert_eq!(at(body, "messages[2].tool_calls[0].function.arguments").unwrap(), r#"{"n":-0.0}"#);
        assert_eq!(Verbatim::of(body).texts.len(), 2, "what only looks alike is left alone");
        let items = r#"{"input": [{"arguments": "{}"}, {"action": {"command": []}}, {"arguments": {"q": 1.0}}]}"#;
        assert_eq!(at(items, "input[1].action").unwrap(), r#"{"command": []}"#);
        assert_eq!(at(items, "input[2].arguments").unwrap(), r#"{"q": 1.0}"#);
        assert_eq!(at(items, "input[0].arguments"), None, "a text needs no keeping");
    }

    #[test]
    fn of_several_the_last_counts_as_in_the_parsed_body() {
        let body = r#"{"messages": [{"content": [{"input": {"a": 1}}]}],
            "messages": [{"content": [{"input": {"b": 1}, "input": {"c": 1.0}}]}]}"#;
        assert_eq!(at(body, "messages[0].content[0].input").unwrap(), r#"{"c": 1.0}"#);
    }

    /// JSON in which the names of the places are common.
    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("1.50".to_owned()),
            Just("null".into()),
            Just("\"a\\\"}]\"".into()),
            Just("{}".into()),
            Just("[ ]".into()),
        ];
        leaf.prop_recursive(7, 64, 4, |inner| {
            let name = prop_oneof![
                Just("messages"),
                Just("content"),
                Just("input"),
                Just("tool_calls"),
                Just("function"),
                Just("arguments"),
                Just("action"),
            ];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
                proptest::collection::vec((name, inner), 0..4).prop_map(|members| {
                    let members: Vec<String> =
                        members.iter().map(|(name, value)| format!("\n\"{name}\" :{value}")).collect();
                    format!("{{{} }}", members.join(","))
                }),
            ]
        })
    }

    proptest! {
        /// Whatever the body: what is found at a path where the parsed body has an object says the same as that.
        #[test]
        fn what_is_found_is_what_was_parsed(body in json()) {
            let parsed: Value = serde_json::from_str(&body).unwrap();
            for (path, json) in &Verbatim::of(&body).texts {
                let pointer = format!("/{}", path.replace('[', "/").replace(']', "").replace('.', "/"));
                if let Some(value) = parsed.pointer(&pointer).filter(|value| value.is_object()) {
                    prop_assert_eq!(&serde_json::from_str::<Value>(json.as_str()).unwrap(), value);
                }
            }
        }
    }
}

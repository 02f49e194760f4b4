//! Tool calls in DSML, the markup the model calls tools with.
//!
//! Values are printed as they are. Only where data would spell a closing tag of the markup itself is one character
//! replaced, so that a value always ends where its tag says.

use super::value::{escape_closers, escape_text};
use crate::deepseek4::prompt::markers::Markers;
use crate::deepseek4::prompt::wording::GAP;
use ds4_model::{JsonText, NumberSpelling, Prompt, ToolArguments, ToolCall};

/// The first character of a closing tag that is meant as text, in a JSON string.
const ESCAPED_IN_JSON: &str = "\\u003c";

/// The only parameter of a call whose arguments were no JSON object.
const WHOLE_ARGUMENTS: &str = "arguments";

/// Appends a block of calls.
pub(in super::super) fn print(prompt: &mut Prompt, markers: &Markers, calls: &[ToolCall]) {
    let mut out = Markup { prompt, markers };
    out.text(GAP);
    out.open("tool_calls>\n");
    for call in calls {
        out.open("invoke name=\"");
        out.text(&attribute(&call.name));
        out.text("\">\n");
        match &call.arguments {
            ToolArguments::Members(members) => {
                for (place, (name, value)) in members.iter().enumerate() {
                    if place > 0 {
                        out.text("\n");
                    }
                    out.json_parameter(name.as_str(), value);
                }
            }
            ToolArguments::Text(text) => out.string_parameter(WHOLE_ARGUMENTS, text.as_str()),
        }
        out.text("\n");
        out.close("invoke>\n");
    }
    out.close("tool_calls>");
}

/// How a block opens, up to where the model goes on; with the tool's name, up to its first parameter.
pub(in super::super) fn opening(markers: &Markers, tool: Option<&str>) -> Prompt {
    let mut prompt = Prompt::new();
    let mut out = Markup { prompt: &mut prompt, markers };
    out.text(GAP);
    out.open("tool_calls>\n");
    if let Some(tool) = tool {
        out.open("invoke name=\"");
        out.text(&attribute(tool));
        out.text("\">\n");
    }
    prompt
}

/// How a block ends after its last call, whose line may have ended already.
pub(in super::super) fn ending(markers: &Markers, mid_line: bool) -> Prompt {
    let mut prompt = Prompt::new();
    let mut out = Markup { prompt: &mut prompt, markers };
    out.text(if mid_line { "\n" } else { "" });
    out.close("tool_calls>");
    prompt
}

struct Markup<'a> {
    prompt: &'a mut Prompt,
    markers: &'a Markers,
}

impl Markup<'_> {
    fn text(&mut self, text: &str) {
        self.prompt.push_text(text);
    }

    fn open(&mut self, rest: &str) {
        self.tag("<", rest);
    }

    fn close(&mut self, rest: &str) {
        self.tag("</", rest);
    }

    fn tag(&mut self, bracket: &str, rest: &str) {
        self.text(bracket);
        self.prompt.push_control(self.markers.dsml);
        self.text(rest);
    }

    fn json_parameter(&mut self, name: &str, value: &JsonText) {
        match value.to_string_value() {
            Some(text) => self.string_parameter(name, &text),
            None => {
                let json = value.to_python(NumberSpelling::AsSent);
                self.parameter(name, "false", &escape_closers(&json, ESCAPED_IN_JSON));
            }
        }
    }

    fn string_parameter(&mut self, name: &str, text: &str) {
        self.parameter(name, "true", &escape_text(text));
    }

    fn parameter(&mut self, name: &str, is_string: &str, value: &str) {
        self.open("parameter name=\"");
        self.text(&attribute(name));
        self.text("\" string=\"");
        self.text(is_string);
        self.text("\">");
        self.text(value);
        self.close("parameter>");
    }
}

/// A name as an attribute's value.
fn attribute(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

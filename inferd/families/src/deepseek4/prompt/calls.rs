//! Tool calls in DSML, the markup the model calls tools with.
//!
//! Values are printed as they are. Only where data would spell a closing tag of the markup itself is one character
//! replaced, so that a value always ends where its tag says.

use super::markers::Markers;
use super::wording::GAP;
use ds4_model::{JsonText, NumberSpelling, Prompt, ToolArguments, ToolCall};

/// The end of a value, as text.
const PARAMETER_END: &str = "</｜DSML｜parameter>";
/// The same with its first character replaced in text and in JSON strings.
const PARAMETER_END_TEXT: &str = "&lt;/｜DSML｜parameter>";
const PARAMETER_END_JSON: &str = "\\u003c/｜DSML｜parameter>";

/// The only parameter of a call whose arguments were no JSON object.
const WHOLE_ARGUMENTS: &str = "arguments";

/// Appends a block of calls.
pub(super) fn print(prompt: &mut Prompt, markers: &Markers, calls: &[ToolCall]) {
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
                self.parameter(name, "false", &json.replace(PARAMETER_END, PARAMETER_END_JSON));
            }
        }
    }

    fn string_parameter(&mut self, name: &str, text: &str) {
        self.parameter(name, "true", &text.replace(PARAMETER_END, PARAMETER_END_TEXT));
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

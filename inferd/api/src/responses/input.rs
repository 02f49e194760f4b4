//! The `input` field: a text, or items of earlier turns and of this one.

use super::offer::{FREE_TEXT, TOOL_SEARCH, prompt_name, read as read_tools};
use crate::ApiError;
use crate::reader::{Fields, Node};
use crate::tools::{Names, Offer};
use crate::transcript::Transcript;
use ds4_model::{AssistantMessage, JsonText, PromptText, ToolArguments, ToolCall};
use serde_json::Value;

/// Reads all items. Tools that a search found join `offer`.
pub(super) fn read(node: &Node<'_>, offer: &mut Offer, names: &mut Names) -> Result<Transcript, ApiError> {
    let mut transcript = Transcript::default();
    if let Some(text) = node.value().as_str() {
        transcript.user(text);
        return Ok(transcript);
    }
    let list = node.value().as_array().ok_or_else(|| node.refuse("must be a string or an array of items"))?;
    if list.is_empty() {
        return Err(node.refuse("must not be empty"));
    }
    let mut reasoning = String::new();
    for (index, value) in list.iter().enumerate() {
        let item = node.item(index, value);
        let fields = item.fields()?;
        match fields.str("type")?.or_else(|| fields.get("role").map(|_| "message")) {
            Some("message") => message(fields, &mut reasoning, &mut transcript)?,
            Some("reasoning") => {
                reasoning.push_str(&text_of(fields, "summary", Unreadable::Refuse)?);
                reasoning.push_str(&text_of(fields, "content", Unreadable::Refuse)?);
            }
            // What a compaction left out cannot be had back.
            Some("compaction" | "context_compaction" | "compaction_summary") => {}
            Some(kind) if kind.ends_with("_output") => {
                if kind == "tool_search_output"
                    && let Some(tools) = fields.get("tools")
                {
                    read_tools(&tools, offer, names)?;
                }
                output(kind, fields, &mut transcript)?;
            }
            Some(kind) => {
                let Some(call) = call(kind, fields)? else { return Err(unsupported(&item, kind)) };
                answer(&mut transcript, &mut reasoning, String::new(), vec![call]);
            }
            None => return Err(fields.missing("type")),
        }
    }
    Ok(transcript)
}

fn unsupported(item: &Node<'_>, kind: &str) -> ApiError {
    ApiError::field(format!("{}.type", item.path()), format!("unsupported {kind:?}"))
}

/// More of the model's turn, with the reasoning that led to it.
fn answer(transcript: &mut Transcript, reasoning: &mut String, content: String, tool_calls: Vec<ToolCall>) {
    let reasoning = PromptText::new(std::mem::take(reasoning));
    transcript.answer(AssistantMessage { reasoning, content: PromptText::new(content), tool_calls });
}

fn message(fields: Fields<'_>, reasoning: &mut String, transcript: &mut Transcript) -> Result<(), ApiError> {
    let text = text_of(fields, "content", Unreadable::Refuse)?;
    let role = fields.str("role")?.unwrap_or("user");
    if role == "assistant" {
        answer(transcript, reasoning, text, Vec::new());
        return Ok(());
    }
    reasoning.clear();
    match role {
        "user" => transcript.user(text),
        "system" | "developer" => transcript.instructions(text),
        other => {
            let problem = format!("unsupported {other:?}; use user, assistant, system or developer");
            return Err(fields.require("role")?.refuse(problem));
        }
    }
    Ok(())
}

/// What becomes of a part that this model cannot read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unreadable {
    Refuse,
    /// Named in the text: an agent cannot take back what its tool returned.
    Name,
}

/// The text of a field: a string, or text parts joined as they stand.
fn text_of(fields: Fields<'_>, name: &str, unreadable: Unreadable) -> Result<String, ApiError> {
    let Some(node) = fields.get(name) else { return Ok(String::new()) };
    if let Some(text) = node.value().as_str() {
        return Ok(text.to_owned());
    }
    let parts = node.value().as_array().ok_or_else(|| node.refuse("must be a string or an array of parts"))?;
    let mut text = String::new();
    for (index, value) in parts.iter().enumerate() {
        let part = node.item(index, value);
        if let Some(bare) = value.as_str() {
            text.push_str(bare);
            continue;
        }
        let fields = part.fields()?;
        match fields.require("type")?.str()? {
            "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
                text.push_str(fields.require("text")?.str()?);
            }
            "refusal" => text.push_str(fields.require("refusal")?.str()?),
            kind if unreadable == Unreadable::Name => {
                text.push_str(&format!("[{} omitted]", kind.strip_prefix("input_").unwrap_or(kind)));
            }
            kind => {
                let problem = format!("unsupported {kind:?}: unsupported content part; this model reads text");
                return Err(ApiError::field(format!("{}.type", part.path()), problem));
            }
        }
    }
    Ok(text)
}

/// A tool's result: text, parts, or any JSON.
fn output(kind: &str, fields: Fields<'_>, transcript: &mut Transcript) -> Result<(), ApiError> {
    let field = if kind == "tool_search_output" && fields.get("output").is_none() { "tools" } else { "output" };
    let text = match fields.get(field).map(|node| node.value().clone()) {
        None => String::new(),
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) if parts.iter().all(is_part) => text_of(fields, field, Unreadable::Name)?,
        Some(json) => json.to_string(),
    };
    let id = fields.str("call_id")?.or(fields.str("id")?).unwrap_or_default();
    transcript.result(id, text);
    Ok(())
}

fn is_part(value: &Value) -> bool {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    kind.contains("text") || kind.starts_with("input_") || kind == "refusal"
}

/// A call of an earlier turn; `None` when the item is no call.
fn call(kind: &str, fields: Fields<'_>) -> Result<Option<ToolCall>, ApiError> {
    let (name, arguments) = match kind {
        "function_call" => {
            let name = prompt_name(fields.str("namespace")?, fields.require("name")?.str()?);
            (name, ToolArguments::parse(fields.str("arguments")?.unwrap_or_default()))
        }
        "custom_tool_call" => {
            let name = prompt_name(fields.str("namespace")?, fields.require("name")?.str()?);
            (name, free_text(fields.str("input")?.unwrap_or_default()))
        }
        "tool_search_call" => (TOOL_SEARCH.to_owned(), any(fields, "arguments")),
        "local_shell_call" => ("local_shell".to_owned(), any(fields, "action")),
        "web_search_call" => ("web_search".to_owned(), any(fields, "action")),
        "image_generation_call" => ("image_generation".to_owned(), any(fields, "action")),
        _ => return Ok(None),
    };
    let id = fields.str("call_id")?.or(fields.str("id")?).unwrap_or_default();
    Ok(Some(ToolCall { id: id.to_owned(), name, arguments }))
}

/// The arguments of a tool that takes free text.
fn free_text(text: &str) -> ToolArguments {
    // What was printed from a string is JSON.
    let value = JsonText::parse(&Value::from(text).to_string());
    ToolArguments::Members(value.map(|value| (PromptText::new(FREE_TEXT), value)).into_iter().collect())
}

fn any(fields: Fields<'_>, name: &str) -> ToolArguments {
    let Some(node) = fields.get(name) else { return ToolArguments::parse("") };
    match node.value() {
        Value::String(text) => ToolArguments::parse(text),
        _ => node.arguments(),
    }
}

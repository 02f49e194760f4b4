//! The `messages` array: roles, contents, calls and results.

use crate::ApiError;
use crate::reader::{Fields, Node};
use crate::transcript::Transcript;
use ds4_model::{AssistantMessage, PromptText, ToolArguments, ToolCall};

/// Reads all messages.
pub(super) fn read_all(node: &Node<'_>) -> Result<Transcript, ApiError> {
    let list = node.array()?;
    if list.is_empty() {
        return Err(ApiError::about("messages", "messages: must not be empty"));
    }
    let mut transcript = Transcript::default();
    for (index, value) in list.iter().enumerate() {
        read(&node.item(index, value), &mut transcript)?;
    }
    Ok(transcript)
}

fn read(node: &Node<'_>, transcript: &mut Transcript) -> Result<(), ApiError> {
    let fields = node.fields()?;
    let content = content(fields)?;
    match fields.str("role")?.unwrap_or("user") {
        "system" | "developer" => transcript.instructions(content),
        "user" => transcript.user(content),
        "assistant" => transcript.answer(AssistantMessage {
            reasoning: PromptText::new(reasoning(fields)?),
            content: PromptText::new(content),
            tool_calls: tool_calls(fields)?,
        }),
        "tool" => transcript.result(fields.str("tool_call_id")?.unwrap_or_default(), content),
        // The older form names the function instead of the call.
        "function" => transcript.result(fields.str("name")?.unwrap_or_default(), content),
        other => {
            let problem = format!("unsupported {other:?}; use system, developer, user, assistant or tool");
            return Err(fields.require("role")?.refuse(problem));
        }
    }
    Ok(())
}

/// Text, nothing, or text parts joined as they stand.
fn content(fields: Fields<'_>) -> Result<String, ApiError> {
    let Some(node) = fields.get("content") else { return Ok(String::new()) };
    if let Some(text) = node.value().as_str() {
        return Ok(text.to_owned());
    }
    let parts = node.value().as_array().ok_or_else(|| node.refuse("must be a string or an array of parts"))?;
    let mut text = String::new();
    for (index, value) in parts.iter().enumerate() {
        text.push_str(part(&node.item(index, value))?);
    }
    Ok(text)
}

fn part<'a>(node: &Node<'a>) -> Result<&'a str, ApiError> {
    // A part that is a bare string is text to every client that sends one.
    if let Some(text) = node.value().as_str() {
        return Ok(text);
    }
    let Some(map) = node.value().as_object() else { return Err(node.refuse("must be an object")) };
    let kind = map.get("type").and_then(|kind| kind.as_str());
    let field = match kind {
        Some("text") | None => "text",
        // What an assistant declined to say is what it said.
        Some("refusal") => "refusal",
        Some(other) => {
            let problem = format!("unsupported {other:?}: unsupported chat content block; this model reads text");
            return Err(ApiError::field(format!("{}.type", node.path()), problem));
        }
    };
    match map.get(field) {
        Some(text) if text.is_string() => Ok(text.as_str().unwrap_or_default()),
        None => Err(ApiError::field(format!("{}.{field}", node.path()), "is missing")),
        Some(_) => Err(ApiError::field(format!("{}.{field}", node.path()), "must be a string")),
    }
}

fn reasoning(fields: Fields<'_>) -> Result<&str, ApiError> {
    let published = fields.str("reasoning_content")?;
    Ok(published.or(fields.str("reasoning")?).unwrap_or_default())
}

fn tool_calls(fields: Fields<'_>) -> Result<Vec<ToolCall>, ApiError> {
    let Some(node) = fields.get("tool_calls") else { return Ok(Vec::new()) };
    let calls = node.array()?.iter().enumerate();
    calls.map(|(index, value)| tool_call(&node.item(index, value))).collect()
}

fn tool_call(node: &Node<'_>) -> Result<ToolCall, ApiError> {
    let fields = node.fields()?;
    let function = fields.require("function")?;
    let function = function.fields()?;
    let name = function.require("name")?.str()?;
    let Some(arguments) = function.present("arguments") else { return Err(function.missing("arguments")) };
    let arguments = match arguments.value() {
        value if value.is_null() => ToolArguments::parse(""),
        value if value.is_object() => arguments.arguments(),
        value => ToolArguments::parse(value.as_str().ok_or_else(|| arguments.refuse("must be a string or an object"))?),
    };
    Ok(ToolCall { id: fields.str("id")?.unwrap_or_default().to_owned(), name: name.to_owned(), arguments })
}

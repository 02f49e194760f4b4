//! The `messages` array: roles, contents, calls and results.

use crate::ApiError;
use crate::reader::{Fields, Node};
use ds4_model::{
    AssistantMessage, Instructions, Message, PromptText, ToolArguments, ToolCall, ToolResult, UserMessage,
};

/// A conversation's messages.
pub(super) struct Messages {
    pub(super) messages: Vec<Message>,
    /// The last one is the beginning of the answer.
    pub(super) ends_open: bool,
}

/// Reads all messages. System and developer texts at the very front are joined; later ones stay where they are, so
/// that a late one does not change the beginning of the prompt.
pub(super) fn read_all(node: &Node<'_>) -> Result<Messages, ApiError> {
    let list = node.array()?;
    if list.is_empty() {
        return Err(ApiError::about("messages", "messages: must not be empty"));
    }
    let mut messages: Vec<Message> = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let message = read(&node.item(index, value))?;
        match (messages.as_mut_slice(), message) {
            ([Message::System(first)], Message::System(next)) => {
                first.text = PromptText::new(format!("{}\n\n{}", first.text.as_str(), next.text.as_str()));
            }
            (_, message) => messages.push(message),
        }
    }
    let ends_open = matches!(messages.last(), Some(Message::Assistant(assistant)) if assistant.tool_calls.is_empty());
    Ok(Messages { messages, ends_open })
}

fn read(node: &Node<'_>) -> Result<Message, ApiError> {
    let fields = node.fields()?;
    let content = content(fields)?;
    match fields.str("role")?.unwrap_or("user") {
        "system" | "developer" => {
            Ok(Message::System(Instructions { text: PromptText::new(content), ..Instructions::default() }))
        }
        "user" => Ok(Message::User(UserMessage { text: PromptText::new(content), task: None })),
        "assistant" => Ok(Message::Assistant(AssistantMessage {
            reasoning: PromptText::new(reasoning(fields)?),
            content: PromptText::new(content),
            tool_calls: tool_calls(fields)?,
        })),
        "tool" => Ok(result(fields.str("tool_call_id")?, content)),
        // The older form names the function instead of the call.
        "function" => Ok(result(fields.str("name")?, content)),
        other => {
            let problem = format!("unsupported {other:?}; use system, developer, user, assistant or tool");
            Err(fields.require("role")?.refuse(problem))
        }
    }
}

fn result(id: Option<&str>, text: String) -> Message {
    Message::ToolResult(ToolResult { call_id: id.unwrap_or_default().to_owned(), text: PromptText::new(text) })
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
    match (kind, map.get("text").and_then(|text| text.as_str())) {
        (Some("text") | None, Some(text)) => Ok(text),
        (Some("text") | None, None) => Err(node
            .fields()?
            .require("text")
            .err()
            .unwrap_or_else(|| ApiError::field(format!("{}.text", node.path()), "must be a string"))),
        (Some(other), _) => Err(ApiError::field(
            format!("{}.type", node.path()),
            format!("unsupported {other:?}: unsupported chat content block; this model reads text"),
        )),
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
    let arguments = function.require("arguments")?;
    let arguments = match arguments.value().as_str() {
        Some(text) => ToolArguments::parse(text),
        None if arguments.value().is_object() => ToolArguments::parse(&arguments.value().to_string()),
        None => return Err(arguments.refuse("must be a string or an object")),
    };
    Ok(ToolCall { id: fields.str("id")?.unwrap_or_default().to_owned(), name: name.to_owned(), arguments })
}

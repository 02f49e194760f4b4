//! The `messages` array and its content blocks.

use crate::ApiError;
use crate::reader::{Fields, Node};
use crate::transcript::Transcript;
use ds4_model::{AssistantMessage, PromptText, ToolArguments, ToolCall};

/// What stands for a failed tool's silence.
const SILENT_ERROR: &str = "error";

/// Between the texts of one tool result.
const GAP: &str = "\n\n";

pub(super) fn read_all(node: &Node<'_>, transcript: &mut Transcript) -> Result<(), ApiError> {
    let list = node.array()?;
    if list.is_empty() {
        return Err(ApiError::about("messages", "messages: must not be empty"));
    }
    for (index, value) in list.iter().enumerate() {
        let message = node.item(index, value);
        let fields = message.fields()?;
        match fields.require("role")?.str()? {
            "user" => user(fields, transcript)?,
            "assistant" => transcript.answer(assistant(fields)?),
            "system" => instructions(fields, transcript)?,
            other => {
                let problem = format!("unsupported {other:?}; use user, assistant or system");
                return Err(fields.require("role")?.refuse(problem));
            }
        }
    }
    Ok(())
}

/// Calls `read` with the type of each block of `content`; a string is one block of text.
fn each_block(holder: Fields<'_>, mut read: impl FnMut(Block<'_>) -> Result<(), ApiError>) -> Result<(), ApiError> {
    let Some(node) = holder.get("content") else { return Ok(()) };
    if let Some(text) = node.value().as_str() {
        return read(Block::Text(text));
    }
    let blocks = node.value().as_array().ok_or_else(|| node.refuse("must be a string or an array of blocks"))?;
    for (index, value) in blocks.iter().enumerate() {
        let block = node.item(index, value);
        let fields = block.fields()?;
        match fields.require("type")?.str()? {
            "text" => read(Block::Text(fields.require("text")?.str()?))?,
            kind => read(Block::Other { block: &block, kind, fields })?,
        }
    }
    Ok(())
}

enum Block<'a> {
    Text(&'a str),
    Other { block: &'a Node<'a>, kind: &'a str, fields: Fields<'a> },
}

fn instructions(message: Fields<'_>, transcript: &mut Transcript) -> Result<(), ApiError> {
    each_block(message, |block| match block {
        Block::Text(text) => {
            transcript.instructions(text);
            Ok(())
        }
        Block::Other { block, kind, .. } => Err(unsupported(block, kind)),
    })
}

/// Results and texts, in their order.
fn user(message: Fields<'_>, transcript: &mut Transcript) -> Result<(), ApiError> {
    each_block(message, |block| match block {
        Block::Text(text) => {
            transcript.user(text);
            Ok(())
        }
        Block::Other { kind: "tool_result", fields, .. } => {
            transcript.result(fields.str("tool_use_id")?.unwrap_or_default(), result(fields)?);
            Ok(())
        }
        Block::Other { block, kind, .. } => Err(unsupported(block, kind)),
    })
}

/// The text of a tool result. What this model cannot read is named: an agent cannot take back what its tool returned.
fn result(fields: Fields<'_>) -> Result<String, ApiError> {
    let mut texts: Vec<String> = Vec::new();
    each_block(fields, |block| {
        texts.push(match block {
            Block::Text(text) => text.to_owned(),
            Block::Other { kind, .. } => format!("[{kind} omitted]"),
        });
        Ok(())
    })?;
    let text = texts.join(GAP);
    let failed = fields.bool("is_error")?.unwrap_or(false);
    Ok(if failed && text.is_empty() { SILENT_ERROR.to_owned() } else { text })
}

/// One answer. Its thinking is replayed whatever this request says about thinking; signatures are not looked at.
fn assistant(message: Fields<'_>) -> Result<AssistantMessage, ApiError> {
    let (mut reasoning, mut content, mut tool_calls) = (String::new(), String::new(), Vec::new());
    each_block(message, |block| {
        match block {
            Block::Text(text) => content.push_str(text),
            Block::Other { kind: "thinking", fields, .. } => {
                reasoning.push_str(fields.str("thinking")?.unwrap_or_default());
            }
            Block::Other { kind: "redacted_thinking", .. } => {}
            Block::Other { kind: "tool_use", fields, .. } => tool_calls.push(tool_use(fields)?),
            Block::Other { block, kind, .. } => return Err(unsupported(block, kind)),
        }
        Ok(())
    })?;
    Ok(AssistantMessage { reasoning: PromptText::new(reasoning), content: PromptText::new(content), tool_calls })
}

fn tool_use(fields: Fields<'_>) -> Result<ToolCall, ApiError> {
    let arguments = match fields.get("input") {
        Some(input) if input.value().is_object() => input.arguments(),
        Some(input) => return Err(input.refuse("must be an object")),
        None => ToolArguments::parse(""),
    };
    Ok(ToolCall {
        id: fields.str("id")?.unwrap_or_default().to_owned(),
        name: fields.require("name")?.str()?.to_owned(),
        arguments,
    })
}

fn unsupported(block: &Node<'_>, kind: &str) -> ApiError {
    let problem = format!("unsupported {kind:?}: unsupported content block; this model reads text");
    ApiError::field(format!("{}.type", block.path()), problem)
}

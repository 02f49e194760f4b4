//! Fields about tools. Calls do not work yet, so a request that could lead to one is refused by name.

use crate::ApiError;
use crate::reader::{Fields, Node};

/// Lets requests pass that offer no tools, or offer them and forbid calls.
pub(super) fn refuse(fields: Fields<'_>) -> Result<(), ApiError> {
    let choice = choice(fields)?;
    let tools = fields.get("tools").map(|node| node.array().map(|tools| (node, tools.len()))).transpose()?;
    // Without calls there are none in parallel either: both values say the same.
    fields.bool("parallel_tool_calls")?;
    match (tools, choice) {
        (_, Choice::None) => Ok(()),
        (Some((node, 1..)), _) => {
            Err(node.refuse("tool calls are not supported yet; leave tools out or send \"tool_choice\": \"none\""))
        }
        (_, Choice::Forced) => Err(ApiError::about("tool_choice", "tool_choice: needs tools, and there are none")),
        (_, Choice::Free) => Ok(()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Free,
    None,
    Forced,
}

fn choice(fields: Fields<'_>) -> Result<Choice, ApiError> {
    let Some(node) = fields.get("tool_choice") else { return Ok(Choice::Free) };
    let word = match node.value().as_str() {
        Some(word) => word.to_owned(),
        None => node.fields()?.require("type")?.str()?.to_owned(),
    };
    match word.as_str() {
        "auto" => Ok(Choice::Free),
        "none" => Ok(Choice::None),
        "required" | "any" | "function" | "tool" => Ok(Choice::Forced),
        "allowed_tools" => Ok(Choice::Free),
        other => Err(unknown(&node, other)),
    }
}

fn unknown(node: &Node<'_>, word: &str) -> ApiError {
    ApiError::about(&node.path(), format!("tool_choice={word} not supported"))
}

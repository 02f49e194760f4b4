//! `tool_choice` in the spellings of all protocols.

use crate::ApiError;
use crate::reader::{Fields, Node};

/// What a request says about calling tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Auto,
    None,
    Required,
    Named(String),
    /// Only these may be called; the prompt lists all.
    Allowed {
        names: Vec<String>,
        required: bool,
    },
}

/// Reads `tool_choice`: a word or an object with a type. `name` finds the prompt's name of a tool that an object names.
pub(crate) fn read(
    fields: Fields<'_>,
    name: impl Fn(Fields<'_>) -> Result<String, ApiError>,
) -> Result<Choice, ApiError> {
    let Some(node) = fields.get("tool_choice") else { return Ok(Choice::Auto) };
    if let Some(word) = node.value().as_str() {
        return by_word(&node, word);
    }
    let object = node.fields()?;
    match object.require("type")?.str()? {
        "function" => match object.get("function") {
            Some(function) => Ok(Choice::Named(name(function.fields()?)?)),
            None => Ok(Choice::Named(name(object)?)),
        },
        "tool" | "custom" => Ok(Choice::Named(name(object)?)),
        "allowed_tools" => match object.get("allowed_tools") {
            Some(inner) => allowed(inner.fields()?, name),
            None => allowed(object, name),
        },
        word => by_word(&node, word),
    }
}

fn by_word(node: &Node<'_>, word: &str) -> Result<Choice, ApiError> {
    match word {
        "auto" => Ok(Choice::Auto),
        "none" => Ok(Choice::None),
        "required" | "any" => Ok(Choice::Required),
        other => Err(ApiError::about(&node.path(), format!("tool_choice={other} not supported"))),
    }
}

fn allowed(object: Fields<'_>, name: impl Fn(Fields<'_>) -> Result<String, ApiError>) -> Result<Choice, ApiError> {
    let required = match object.str("mode")? {
        None | Some("auto") => false,
        Some("required") => true,
        Some(_) => return Err(object.require("mode")?.refuse("must be auto or required")),
    };
    let list = object.require("tools")?;
    let mut names = Vec::new();
    for (index, value) in list.array()?.iter().enumerate() {
        let tool = list.item(index, value);
        let tool = tool.fields()?;
        names.push(match tool.get("function") {
            Some(function) => name(function.fields()?)?,
            None => name(tool)?,
        });
    }
    Ok(Choice::Allowed { names, required })
}

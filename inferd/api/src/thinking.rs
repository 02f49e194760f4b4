//! Whether an answer reasons first, and how much: the many spellings clients use.

use crate::reader::{Fields, Node};
use crate::{ApiError, Settings};
use ds4_model::{Effort, ThinkingMode};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) thinking: ThinkingMode,
    pub(crate) effort: Option<Effort>,
}

/// An effort field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EffortWord {
    Off,
    Level(Effort),
}

/// Reads the fields of the OpenAI family. An explicit switch wins, then effort `none`, then what the requested model's
/// name stands for, then the operator's default. An effort alone never switches reasoning on.
pub(crate) fn openai(
    fields: Fields<'_>,
    by_model_name: Option<ThinkingMode>,
    settings: &Settings,
) -> Result<Wanted, ApiError> {
    let effort = match fields.get("reasoning_effort") {
        Some(node) => Some(effort_word(&node)?),
        None => effort_in(fields, "reasoning")?,
    };
    Ok(settled(switch(fields)?, effort, by_model_name, settings.thinking, settings))
}

/// Reads the fields of the Messages protocol, whose clients switch reasoning off by leaving the field out.
pub(crate) fn anthropic(
    fields: Fields<'_>,
    by_model_name: Option<ThinkingMode>,
    settings: &Settings,
) -> Result<Wanted, ApiError> {
    let effort = match fields.get("reasoning_effort") {
        Some(node) => Some(effort_word(&node)?),
        None => effort_in(fields, "output_config")?,
    };
    let switch = fields.get("thinking").map(|node| thinking_field(&node)).transpose()?;
    Ok(settled(switch, effort, by_model_name, settings.anthropic_thinking, settings))
}

fn settled(
    switch: Option<ThinkingMode>,
    effort: Option<EffortWord>,
    by_model_name: Option<ThinkingMode>,
    default: ThinkingMode,
    settings: &Settings,
) -> Wanted {
    let off_by_effort = (effort == Some(EffortWord::Off)).then_some(ThinkingMode::Off);
    let asked = match effort {
        // The published way: a client's level changes nothing at the start of the prompt.
        Some(EffortWord::Level(_)) if settings.effort_compat => Some(Effort::Low),
        Some(EffortWord::Level(level)) => Some(level),
        _ => None,
    };
    Wanted {
        thinking: switch.or(off_by_effort).or(by_model_name).unwrap_or(default),
        effort: asked.or(settings.effort),
    }
}

fn switch(fields: Fields<'_>) -> Result<Option<ThinkingMode>, ApiError> {
    if let Some(node) = fields.get("thinking") {
        return thinking_field(&node).map(Some);
    }
    for name in ["think", "enable_thinking"] {
        if let Some(on) = fields.bool(name)? {
            return Ok(Some(mode(on)));
        }
    }
    if let Some(node) = fields.get("chat_template_kwargs") {
        let kwargs = node.fields()?;
        for name in ["thinking", "enable_thinking"] {
            if let Some(on) = kwargs.bool(name)? {
                return Ok(Some(mode(on)));
            }
        }
    }
    let Some(node) = fields.get("reasoning") else { return Ok(None) };
    Ok(node.fields()?.bool("enabled")?.map(mode))
}

/// `thinking` is a bool or an object with a type, of which only `disabled` means off.
fn thinking_field(node: &Node<'_>) -> Result<ThinkingMode, ApiError> {
    if node.value().is_boolean() {
        return node.bool().map(mode);
    }
    if !node.value().is_object() {
        return Err(node.refuse("must be true, false or an object with a type"));
    }
    let kind = node.fields()?.str("type")?;
    Ok(mode(kind != Some("disabled")))
}

fn mode(on: bool) -> ThinkingMode {
    if on { ThinkingMode::On } else { ThinkingMode::Off }
}

fn effort_in<'a>(fields: Fields<'a>, holder: &'a str) -> Result<Option<EffortWord>, ApiError> {
    let Some(node) = fields.get(holder) else { return Ok(None) };
    let Some(word) = node.fields()?.get("effort").map(|effort| effort_word(&effort)) else { return Ok(None) };
    word.map(Some)
}

fn effort_word(node: &Node<'_>) -> Result<EffortWord, ApiError> {
    Ok(match node.str()? {
        "none" | "off" => EffortWord::Off,
        "minimal" | "low" | "medium" => EffortWord::Level(Effort::Low),
        "high" | "xhigh" => EffortWord::Level(Effort::High),
        "max" => EffortWord::Level(Effort::Max),
        _ => return Err(node.refuse("must be none, off, minimal, low, medium, high, xhigh or max")),
    })
}

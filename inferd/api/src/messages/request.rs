//! The body of a messages request, checked.

use super::blocks;
use crate::ask::{Ask, Reading, Wording};
use crate::body::JsonBody;
use crate::continuation::{self, Kept, Protocol, Said};
use crate::reader::{Fields, Node};
use crate::structured::{self, Form};
use crate::tools::{self, Offer};
use crate::transcript::Transcript;
use crate::{ApiError, params, thinking};
use ds4_model::{CallRelease, ToolUse};
use ds4_units::Tokens;
use serde_json::Value;

/// The beginning of a system part that says who is billed. It differs between conversations; in the prompt, no two of
/// them would share their beginning.
const BILLING: &str = "x-anthropic-";

/// A request, and how its reply is wanted.
pub(super) struct MessagesRequest {
    pub(super) ask: Ask,
    pub(super) model: String,
    pub(super) caching: bool,
}

pub(super) fn read(body: &JsonBody, reading: Reading<'_>) -> Result<MessagesRequest, ApiError> {
    let caching = marks_cache(&body.value);
    let body = Node::body(body);
    let fields = body.fields()?;
    let model = fields.str("model")?;
    let messages = fields.get("messages").ok_or_else(|| ApiError::about("messages", "missing messages"))?;
    refuse_unsupported(fields)?;
    let wanted = thinking::anthropic(fields, reading.thinking_by_name(model), reading.settings)?;
    let stream = fields.bool("stream")?.unwrap_or(false);
    let live = stream && reading.settings.anthropic_live_args;
    let mut transcript = Transcript::default();
    blocks::read_all(&messages, &mut transcript)?;
    let instructions = fields.get("system").map(|node| system(&node)).transpose()?.flatten();
    let said = Said { instructions, transcript, offer: offer(fields)?, ..Said::default() };
    let said = continuation::with_what_came_before(said, None, Protocol::Messages, reading)?;
    let release = if live { CallRelease::Live } else { CallRelease::Whole };
    let offered = tool_use(fields, said.offer.clone(), release)?;
    let mut wording = Wording::Conversation(reading.conversation(&said.whole(), wanted, offered));
    let constraints = structured::constraints(output_format(fields)?, said.offer.strict(), &mut wording, reading)?;
    Ok(MessagesRequest {
        ask: Ask {
            wording,
            sampling: params::sampling(fields, wanted, reading.settings)?,
            stop: params::stop(fields, "stop_sequences")?,
            max_tokens: fields.count("max_tokens")?.map_or(reading.settings.max_tokens, Tokens),
            stream,
            top_logprobs: None,
            prompt_logprobs: false,
            constraints,
            kept: Some(Kept { protocol: Protocol::Messages, id: None, said }),
        },
        model: reading.model_name(model),
        caching,
    })
}

/// The system text: a string, or text parts of which billing lines are left out.
fn system(node: &Node<'_>) -> Result<Option<String>, ApiError> {
    if let Some(text) = node.value().as_str() {
        return Ok(Some(text.to_owned()));
    }
    let parts = node.value().as_array().ok_or_else(|| node.refuse("must be a string or an array of text parts"))?;
    let mut texts = Vec::with_capacity(parts.len());
    for (index, value) in parts.iter().enumerate() {
        let part = node.item(index, value);
        let part = part.fields()?;
        match part.str("type")? {
            None | Some("text") => texts.push(part.require("text")?.str()?.to_owned()),
            Some(other) => return Err(part.require("type")?.refuse(format!("unsupported {other:?}; use text"))),
        }
    }
    texts.retain(|text| !text.starts_with(BILLING));
    Ok((!texts.is_empty()).then(|| texts.join("\n")))
}

fn offer(fields: Fields<'_>) -> Result<Offer, ApiError> {
    let mut offer = Offer::default();
    let Some(node) = fields.get("tools") else { return Ok(offer) };
    for (index, value) in node.array()?.iter().enumerate() {
        add_tool(&node.item(index, value), &mut offer)?;
    }
    Ok(offer)
}

fn tool_use(fields: Fields<'_>, offer: Offer, release: CallRelease) -> Result<ToolUse, ApiError> {
    let choice = tools::read_choice(fields, |tool| Ok(tools::name_of(tool)?.to_owned()))?;
    let one_at_a_time = match fields.get("tool_choice") {
        Some(node) if node.value().is_object() => node.fields()?.bool("disable_parallel_tool_use")?,
        _ => None,
    };
    offer.chosen(choice, one_at_a_time != Some(true), release)
}

/// A tool of the client's own. Those of other types run on the servers of the protocol's maker.
fn add_tool(node: &Node<'_>, offer: &mut Offer) -> Result<(), ApiError> {
    let tool = node.fields()?;
    match tool.str("type")? {
        None | Some("custom") => {
            let schema = tools::schema_of(tool, "input_schema")?;
            let name = tools::name_of(tool)?;
            offer.add(name, tool.str("description")?, schema);
            offer.hold(name, tool)?;
        }
        Some(kind) => tools::left_out(kind),
    }
    Ok(())
}

/// The form of the answer, by either of the names the protocol has had for it.
fn output_format(fields: Fields<'_>) -> Result<Option<Form>, ApiError> {
    if let Some(older) = fields.get("output_format") {
        return structured::flat(&older);
    }
    fields.get("output_config").map_or(Ok(None), |config| structured::format_of(config.fields()?))
}

fn refuse_unsupported(fields: Fields<'_>) -> Result<(), ApiError> {
    if let Some(node) = fields.get("mcp_servers")
        && !node.array()?.is_empty()
    {
        return Err(node.refuse("is not supported; leave it out"));
    }
    Ok(())
}

/// Whether the client marked anything to be kept. The marks move from turn to turn and never reach the prompt.
fn marks_cache(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| {
            (key == "cache_control" && !value.is_null())
                || (key != "input_schema" && key != "input" && marks_cache(value))
        }),
        Value::Array(list) => list.iter().any(marks_cache),
        _ => false,
    }
}

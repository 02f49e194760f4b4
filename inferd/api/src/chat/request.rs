//! The body of a chat completion request, checked.

use super::message;
use crate::ask::{Ask, Reading, Wording};
use crate::body::JsonBody;
use crate::reader::{Fields, Node};
use crate::{ApiError, logprobs, params, structured, thinking, tools};
use ds4_model::CallRelease;
use ds4_units::Tokens;

/// A request, and how its reply is wanted.
pub(super) struct ChatRequest {
    pub(super) ask: Ask,
    pub(super) model: String,
    pub(super) include_usage: bool,
    pub(super) token_ids: bool,
}

pub(super) fn read(body: &JsonBody, reading: Reading<'_>) -> Result<ChatRequest, ApiError> {
    let body = Node::body(body);
    let fields = body.fields()?;
    let model = fields.str("model")?;
    let messages = fields.get("messages").ok_or_else(|| ApiError::about("messages", "missing messages"))?;
    params::refuse_unsupported(fields)?;
    let wanted = thinking::openai(fields, reading.thinking_by_name(model), reading.settings)?;
    let stream = fields.bool("stream")?.unwrap_or(false);
    let choice = tools::read_choice(fields, |tool| Ok(tools::name_of(tool)?.to_owned()))?;
    let parallel = fields.bool("parallel_tool_calls")?.unwrap_or(true);
    // A whole reply shows nothing early, so that malformed calls can be tried once more.
    let release = if stream { CallRelease::Live } else { CallRelease::Whole };
    let offer = tools::chat(fields)?;
    let strict = offer.strict().to_vec();
    let offered = offer.chosen(choice, parallel, release)?;
    let conversation = reading.conversation(&message::read_all(&messages)?, wanted, offered);
    let mut wording = Wording::Conversation(conversation);
    let constraints = structured::constraints(structured::response_format(fields)?, &strict, &mut wording, reading)?;
    Ok(ChatRequest {
        ask: Ask {
            wording,
            sampling: params::sampling(fields, wanted, reading.settings)?,
            stop: params::stop(fields, "stop")?,
            max_tokens: max_tokens(fields)?.unwrap_or(reading.settings.max_tokens),
            stream,
            top_logprobs: logprobs::of_chat(fields)?,
            prompt_logprobs: false,
            constraints,
            kept: None,
        },
        model: reading.model_name(model),
        include_usage: params::include_usage(fields)? && stream,
        token_ids: fields.bool("return_token_ids")?.unwrap_or(false),
    })
}

/// The newer name wins, whatever the order.
fn max_tokens(fields: Fields<'_>) -> Result<Option<Tokens>, ApiError> {
    let older = fields.count("max_tokens")?;
    let newer = fields.count("max_completion_tokens")?;
    Ok(newer.or(older).map(Tokens))
}

//! The body of a chat completion request, checked.

use super::{message, tools};
use crate::reader::{Fields, Node};
use crate::{ApiError, Settings, params, thinking};
use ds4_engine::Sampling;
use ds4_model::{Conversation, PromptCodec};
use ds4_units::Tokens;
use serde_json::Value;

/// A request with nothing left open.
pub(super) struct ChatRequest {
    pub(super) conversation: Conversation,
    /// As the client spelled it; names nothing here.
    pub(super) model: Option<String>,
    pub(super) sampling: Sampling,
    pub(super) stop: Vec<String>,
    pub(super) max_tokens: Tokens,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) token_ids: bool,
}

impl ChatRequest {
    pub(super) fn read(body: &Value, codec: &dyn PromptCodec, settings: &Settings) -> Result<ChatRequest, ApiError> {
        let body = Node::body(body);
        let fields = body.fields()?;
        let model = fields.str("model")?;
        let messages = fields.get("messages").ok_or_else(|| ApiError::about("messages", "missing messages"))?;
        params::refuse_unsupported(fields)?;
        tools::refuse(fields)?;
        let by_name = model.and_then(|model| codec.thinking_by_model_name(model));
        let wanted = thinking::openai(fields, by_name, settings)?;
        let read = message::read_all(&messages)?;
        let stream = fields.bool("stream")?.unwrap_or(false);
        Ok(ChatRequest {
            conversation: Conversation {
                messages: read.messages,
                thinking: wanted.thinking,
                effort: wanted.effort,
                prefill: read.ends_open,
                ..Conversation::default()
            },
            model: model.map(str::to_owned),
            sampling: params::sampling(fields)?,
            stop: params::stop(fields)?,
            max_tokens: max_tokens(fields)?.unwrap_or(settings.max_tokens),
            stream,
            include_usage: include_usage(fields)? && stream,
            token_ids: fields.bool("return_token_ids")?.unwrap_or(false),
        })
    }
}

/// The newer name wins, whatever the order.
fn max_tokens(fields: Fields<'_>) -> Result<Option<Tokens>, ApiError> {
    let older = fields.count("max_tokens")?;
    let newer = fields.count("max_completion_tokens")?;
    Ok(newer.or(older).map(Tokens))
}

fn include_usage(fields: Fields<'_>) -> Result<bool, ApiError> {
    let Some(node) = fields.get("stream_options") else { return Ok(false) };
    Ok(node.fields()?.bool("include_usage")?.unwrap_or(false))
}

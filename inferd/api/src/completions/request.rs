//! The body of a completion request, checked.

use crate::ask::{Ask, Reading, Wording};
use crate::body::JsonBody;
use crate::reader::{Fields, Node};
use crate::thinking::Wanted;
use crate::{ApiError, logprobs, params, structured, thinking};
use ds4_model::{Conversation, Instructions, Message, PromptText, ThinkingMode, UserMessage};
use ds4_units::{TokenId, Tokens};
use serde_json::Value;

/// The instructions that `--wrap-completions` puts before a prompt.
const WRAP_INSTRUCTIONS: &str = "You are a helpful assistant";

/// A request, and how its reply is wanted.
pub(super) struct CompletionRequest {
    pub(super) ask: Ask,
    pub(super) model: String,
    pub(super) include_usage: bool,
    /// The prompt is repeated before the answer.
    pub(super) echo: bool,
    pub(super) token_ids: bool,
}

pub(super) fn read(body: &JsonBody, reading: Reading<'_>) -> Result<CompletionRequest, ApiError> {
    let body = Node::body(body);
    let fields = body.fields()?;
    let model = fields.str("model")?;
    let prompt = fields.get("prompt").ok_or_else(|| ApiError::about("prompt", "missing prompt"))?;
    params::refuse_unsupported(fields)?;
    params::refuse_unsupported_in_completions(fields)?;
    let stream = fields.bool("stream")?.unwrap_or(false);
    let wanted = thinking::openai(fields, reading.thinking_by_name(model), reading.settings)?;
    let mut wording = match prompt_of(&prompt, reading)? {
        Wording::Raw(text) if reading.settings.wrap_completions => wrapped(text, wanted),
        wording => wording,
    };
    // Raw text has no reasoning of its own.
    let thinking = if matches!(wording, Wording::Conversation(_)) { wanted.thinking } else { ThinkingMode::Off };
    let sampled = Wanted { thinking, ..wanted };
    let constraints = structured::constraints(structured::response_format(fields)?, &[], &mut wording, reading)?;
    let top_logprobs = logprobs::of_completions(fields)?;
    let echo = echo(fields, stream, &wording)?;
    Ok(CompletionRequest {
        ask: Ask {
            wording,
            sampling: params::sampling(fields, sampled, reading.settings)?,
            stop: params::stop(fields, "stop")?,
            max_tokens: fields.count("max_tokens")?.map_or(reading.settings.max_tokens, Tokens),
            stream,
            top_logprobs,
            prompt_logprobs: echo && top_logprobs.is_some(),
            constraints,
            kept: None,
        },
        model: reading.model_name(model),
        include_usage: params::include_usage(fields)? && stream,
        echo,
        token_ids: fields.bool("return_token_ids")?.unwrap_or(false),
    })
}

/// Whether the prompt is repeated. What a stream would have to say first is all known when it begins, and nobody asks.
fn echo(fields: Fields<'_>, stream: bool, wording: &Wording) -> Result<bool, ApiError> {
    let Some(node) = fields.get("echo") else { return Ok(false) };
    let echo = node.bool()?;
    if echo && stream {
        return Err(node.refuse("is not supported with \"stream\": true"));
    }
    if echo && matches!(wording, Wording::Conversation(_)) {
        return Err(node.refuse("is not supported where prompts are wrapped (--wrap-completions)"));
    }
    Ok(echo)
}

/// A text, an array of token ids, or an array that holds one of either.
fn prompt_of(node: &Node<'_>, reading: Reading<'_>) -> Result<Wording, ApiError> {
    if let Some(text) = node.value().as_str() {
        return Ok(Wording::Raw(text.to_owned()));
    }
    let list = node.value().as_array().ok_or_else(|| node.refuse("must be a string or an array"))?;
    match list.as_slice() {
        [Value::Number(_), ..] => tokens(node, list, reading),
        [one @ (Value::String(_) | Value::Array(_))] => prompt_of(&node.item(0, one), reading),
        [] => Err(node.refuse("must not be empty")),
        [Value::String(_) | Value::Array(_), ..] => {
            Err(node.refuse(format!("has {} prompts; send one in a request", list.len())))
        }
        [other, ..] => Err(node.item(0, other).refuse("must be a string, a token id or an array of token ids")),
    }
}

fn tokens(node: &Node<'_>, list: &[Value], reading: Reading<'_>) -> Result<Wording, ApiError> {
    let vocabulary = reading.serving.tokenizer.vocabulary_len();
    let token = |(index, value): (usize, &Value)| {
        let id = value.as_u64().filter(|&id| id < vocabulary as u64);
        id.map(|id| TokenId(id as u32))
            .ok_or_else(|| node.item(index, value).refuse(format!("must be a token id below {vocabulary}")))
    };
    Ok(Wording::Tokens(list.iter().enumerate().map(token).collect::<Result<_, _>>()?))
}

/// The prompt as a question in a conversation.
fn wrapped(text: String, wanted: Wanted) -> Wording {
    let instructions = Instructions { text: PromptText::new(WRAP_INSTRUCTIONS), ..Instructions::default() };
    let question = UserMessage { text: PromptText::new(text), task: None };
    Wording::Conversation(Conversation {
        messages: vec![Message::System(instructions), Message::User(question)],
        thinking: wanted.thinking,
        effort: wanted.effort,
        ..Conversation::default()
    })
}

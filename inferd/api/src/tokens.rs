//! `POST /tokenize`, `/detokenize` and `/apply-template`: what a prompt is, without computing it.

use crate::ask::{Reading, Wording};
use crate::body::JsonBody;
use crate::caller::Caller;
use crate::counting::reply;
use crate::reader::{Fields, Node};
use crate::state::Shared;
use crate::surface::Surface;
use crate::{ApiError, chat, generate};
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use ds4_model::{Piece, Prompt, TextTooLarge};
use ds4_units::TokenId;
use serde_json::{Value, json};

/// The longest reply: more than any model's context.
const TOKENS_MAX: usize = 2_000_000;

/// The tokens of a text (`prompt`, or `content`) or of a chat request (`messages` and all that goes with them).
pub(crate) async fn tokenize(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    reply(&caller, answer(&shared, request, tokens_of).await)
}

/// The text of `tokens`.
pub(crate) async fn detokenize(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    reply(&caller, answer(&shared, request, text_of).await)
}

/// The prompt of a chat request, control tokens spelled out.
pub(crate) async fn apply_template(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    reply(&caller, answer(&shared, request, prompt_of).await)
}

/// What evaluation harnesses want to know before they send prompts as tokens: which control tokens frame a text.
pub(crate) async fn info(State(shared): State<Shared>, Extension(caller): Extension<Caller>) -> Response {
    let info = shared.phase.serving().map(|serving| {
        let spelled = |token: Option<&TokenId>| {
            let bytes = token.and_then(|&token| serving.tokenizer.token_bytes(token));
            bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        };
        let begin = serving.codec.render_raw("").pieces().iter().find_map(|piece| match piece {
            Piece::Control(token) => Some(*token),
            Piece::Text(_) => None,
        });
        json!({
            "bos_token": spelled(begin.as_ref()),
            "eos_token": spelled(serving.codec.stop_tokens().first()),
            "vocab_size": serving.tokenizer.vocabulary_len(),
        })
    });
    reply(&caller, info)
}

async fn answer(
    shared: &Shared,
    request: Request,
    make: fn(&JsonBody, Reading<'_>) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    let serving = shared.phase.serving()?;
    let body = shared.read_body(request).await?;
    let working = shared.clone();
    shared
        .pool
        .run(move || {
            let reading = Reading { counting: true, ..working.reading(&serving) };
            make(&body.parse()?, reading)
        })
        .await
}

fn chat_wording(body: &JsonBody, reading: Reading<'_>) -> Result<Wording, ApiError> {
    Ok(chat::Chat::read(body, reading)?.0.wording)
}

fn prompt_of(body: &JsonBody, reading: Reading<'_>) -> Result<Value, ApiError> {
    let wording = chat_wording(body, reading)?;
    let prompt = generate::render(reading, &wording, "messages")?;
    Ok(json!({ "prompt": generate::spelled(&prompt.rendered, reading.serving) }))
}

fn tokens_of(body: &JsonBody, reading: Reading<'_>) -> Result<Value, ApiError> {
    let node = Node::body(body);
    let fields = node.fields()?;
    let tokens: Vec<TokenId> = if fields.get("messages").is_some() {
        let wording = chat_wording(body, reading)?;
        generate::render(reading, &wording, "messages")?.record.tokens().to_vec()
    } else {
        plain(fields, reading)?
    };
    let mut reply = json!({
        "count": tokens.len(),
        "max_model_len": reading.serving.engine.info().context.0,
        "tokens": tokens.iter().map(|token| token.0).collect::<Vec<_>>(),
    });
    if fields.bool("return_token_strs")? == Some(true) {
        let spelling = |&token: &TokenId| String::from_utf8_lossy(bytes_of(token, reading)).into_owned();
        reply["token_strs"] = tokens.iter().map(spelling).collect();
    }
    Ok(reply)
}

/// A text with the token that begins a prompt, unless it is not wanted.
fn plain(fields: Fields<'_>, reading: Reading<'_>) -> Result<Vec<TokenId>, ApiError> {
    let (field, text) = match (fields.str("prompt")?, fields.str("content")?) {
        (Some(text), _) => ("prompt", text),
        (None, Some(text)) => ("content", text),
        (None, None) => return Err(ApiError::about("prompt", "missing prompt")),
    };
    let special = fields.bool("add_special_tokens")?.or(fields.bool("add_special")?).unwrap_or(true);
    let prompt = if special {
        reading.serving.codec.render_raw(text)
    } else {
        let mut prompt = Prompt::new();
        prompt.push_text(text);
        prompt
    };
    reading.serving.tokenizer.encode_within(&prompt, TOKENS_MAX).map_err(|large| match large {
        TextTooLarge::Tokens { .. } => ApiError::field(field.into(), format!("{large}; the limit is {TOKENS_MAX}")),
        TextTooLarge::Unbroken { .. } => ApiError::field(field.into(), large),
    })
}

fn text_of(body: &JsonBody, reading: Reading<'_>) -> Result<Value, ApiError> {
    let node = Node::body(body);
    let list = node.fields()?.require("tokens")?;
    let vocabulary = reading.serving.tokenizer.vocabulary_len();
    let mut bytes = Vec::new();
    for (index, value) in list.array()?.iter().enumerate() {
        let token = value.as_u64().filter(|&id| id < vocabulary as u64);
        let token =
            token.ok_or_else(|| list.item(index, value).refuse(format!("must be a token id below {vocabulary}")))?;
        bytes.extend_from_slice(bytes_of(TokenId(token as u32), reading));
    }
    let text = String::from_utf8_lossy(&bytes);
    // One name for each of the clients that ask.
    Ok(json!({"prompt": text, "content": text}))
}

fn bytes_of<'a>(token: TokenId, reading: Reading<'a>) -> &'a [u8] {
    reading.serving.tokenizer.token_bytes(token).unwrap_or_default()
}

//! From a request to the engine's events.

use crate::ApiError;
use crate::ask::{Ask, Reading, Wording};
use crate::continuation::Kept;
use crate::error::{refused, too_large};
use crate::phase::Serving;
use crate::slip::{self, Again};
use crate::telemetry::{Telemetry, think_mode_of};
use ds4_engine::{EventStream, GenerateRequest, Keep, Refused};
use ds4_model::{Piece, Prompt, PromptRecord, TextTooLarge};
use ds4_units::{TokenId, Tokens};

/// A request as the engine takes it.
pub(crate) struct Prepared {
    pub(crate) rendered: Prompt,
    pub(crate) kept: Option<Kept>,
    /// A tool has just returned: the answer may announce another call and not make it.
    pub(crate) may_slip: bool,
    /// The same request once more, where that may be wanted.
    pub(crate) again: Option<Again>,
    /// How much reasoning is asked for, as metrics name it.
    think_mode: &'static str,
    request: GenerateRequest,
}

/// What the engine is to keep of an answer of so many tokens. Clients that cannot count tokens otherwise ask for answers
/// of one, and probes do: nobody goes on from those. An answer of none is asked for to have its prompt computed ahead,
/// for whatever comes.
fn worth_of(max_tokens: Tokens) -> Keep {
    match max_tokens {
        Tokens(0) => Keep::IfFree,
        Tokens(1) => Keep::Nothing,
        _ => Keep::Turn,
    }
}

/// Renders and tokenises. Blocks for as long as that takes: call it on the pool. `prompt_field` is what an error about
/// the prompt points at.
pub(crate) fn prepare(reading: Reading<'_>, ask: Ask, prompt_field: &str) -> Result<Prepared, ApiError> {
    let mut prompt = render(reading, &ask.wording, prompt_field)?;
    if let Wording::Conversation(conversation) = &ask.wording
        && reading.serving.engine.keeps_on_disk()
    {
        prompt.record.note_answers(reading.memory.sampled_parts(&conversation.messages));
    }
    let codec = &reading.serving.codec;
    let reader = match &ask.wording {
        Wording::Conversation(conversation) => codec.read_answer(&prompt.rendered, conversation, reading.memory),
        Wording::Raw(_) | Wording::Tokens(_) => codec.read_raw(),
    };
    let may_slip = matches!(&ask.wording, Wording::Conversation(conversation) if slip::may_slip(conversation));
    let again = may_slip.then(|| again(reading, &ask, &prompt)).flatten();
    let think_mode = match &ask.wording {
        Wording::Conversation(conversation) => think_mode_of(conversation),
        Wording::Raw(_) | Wording::Tokens(_) => "none",
    };
    let keep = worth_of(ask.max_tokens);
    Ok(Prepared {
        may_slip,
        again,
        think_mode,
        rendered: prompt.rendered,
        kept: ask.kept.filter(|_| keep != Keep::Nothing),
        request: GenerateRequest {
            prompt: prompt.record,
            reader,
            sampling: ask.sampling,
            stop: ask.stop,
            max_tokens: ask.max_tokens,
            top_logprobs: ask.top_logprobs,
            prompt_logprobs: ask.prompt_logprobs,
            gaps: None,
            constraints: ask.constraints,
            keep,
        },
    })
}

/// A plain request once more, where the operator wants that.
fn again(reading: Reading<'_>, ask: &Ask, prompt: &RenderedPrompt) -> Option<Again> {
    let Wording::Conversation(conversation) = &ask.wording else { return None };
    let plain = ask.constraints.is_empty() && ask.top_logprobs.is_none() && !ask.prompt_logprobs && !ask.stream;
    (plain && reading.settings.resample_slips).then(|| Again {
        serving: reading.serving.clone(),
        memory: reading.memory.clone(),
        conversation: conversation.clone(),
        rendered: prompt.rendered.clone(),
        record: prompt.record.clone(),
        sampling: ask.sampling,
        stop: ask.stop.clone(),
        max_tokens: ask.max_tokens,
    })
}

/// A prompt in both of its forms.
pub(crate) struct RenderedPrompt {
    pub(crate) rendered: Prompt,
    pub(crate) record: PromptRecord,
}

/// Renders and tokenises a wording. Blocks.
pub(crate) fn render(reading: Reading<'_>, wording: &Wording, field: &str) -> Result<RenderedPrompt, ApiError> {
    let serving = reading.serving;
    let context = serving.engine.info().context;
    let rendered = match wording {
        Wording::Conversation(conversation) => {
            let prompt = serving.codec.render(conversation, reading.memory);
            prompt.map_err(|error| ApiError::about(field, format!("{field}: {error}")))?
        }
        Wording::Raw(text) => serving.codec.render_raw(text),
        Wording::Tokens(tokens) if tokens.len() >= context.index() => {
            let at_least = Tokens(tokens.len() as u32);
            return Err(too_large(TextTooLarge::Tokens { at_least }, context, field));
        }
        Wording::Tokens(tokens) => return Ok(of_tokens(serving, tokens)),
    };
    let most = Tokens(context.0.saturating_sub(1));
    let record = PromptRecord::within(&rendered, &serving.tokenizer, most);
    let record = record.map_err(|large| too_large(large, context, field))?;
    Ok(RenderedPrompt { rendered, record })
}

/// The tokens of a wording, whether it fits the context or not; of one that is far too long, at least so many. Blocks.
pub(crate) fn count(reading: Reading<'_>, wording: &Wording, field: &str) -> Result<usize, ApiError> {
    match render(reading, wording, field) {
        Ok(prompt) => Ok(prompt.record.tokens().len()),
        Err(error) => error.overflowing_prompt().map(Tokens::index).ok_or(error),
    }
}

/// The pieces of a prompt that came as tokens. Text that ends inside a character keeps its tokens all the same.
fn of_tokens(serving: &Serving, tokens: &[TokenId]) -> RenderedPrompt {
    let (mut rendered, mut record) = (Prompt::new(), PromptRecord::default());
    for &token in tokens {
        record.push_generated(token, &serving.tokenizer);
        if serving.tokenizer.is_control(token) {
            rendered.push_control(token);
        } else {
            let bytes = serving.tokenizer.token_bytes(token).unwrap_or_default();
            rendered.push_text(&String::from_utf8_lossy(bytes));
        }
    }
    RenderedPrompt { rendered, record }
}

/// Hands a prepared request to the engine. Its log lines become part of the caller's span.
pub(crate) fn submit(
    serving: &Serving,
    telemetry: &Telemetry,
    prepared: Prepared,
    surface: &'static str,
    prompt_field: &str,
) -> Result<EventStream, ApiError> {
    let request = GenerateRequest { gaps: Some(telemetry.gaps(surface)), ..prepared.request };
    let events = serving.engine.submit(request).map_err(|refusal| {
        match refusal {
            Refused::QueueFull { .. } => telemetry.shed("queue_depth"),
            Refused::QueueBytesFull { .. } => telemetry.shed("queue_bytes"),
            _ => {}
        }
        refused(refusal, prompt_field, serving.engine.expected_wait())
    })?;
    telemetry.routed(surface, prepared.think_mode);
    Ok(events)
}

/// The text of tokens, control tokens spelled out.
pub(crate) fn text_of(tokens: &[TokenId], serving: &Serving) -> String {
    let bytes = tokens.iter().flat_map(|&token| serving.tokenizer.token_bytes(token).unwrap_or_default());
    String::from_utf8_lossy(&bytes.copied().collect::<Vec<u8>>()).into_owned()
}

/// A prompt as text, control tokens spelled out.
pub(crate) fn spelled(prompt: &Prompt, serving: &Serving) -> String {
    let mut text = String::new();
    for piece in prompt.pieces() {
        match piece {
            Piece::Control(token) => {
                let bytes = serving.tokenizer.token_bytes(*token).unwrap_or_default();
                text.push_str(&String::from_utf8_lossy(bytes));
            }
            Piece::Text(piece) => text.push_str(piece.as_str()),
        }
    }
    text
}

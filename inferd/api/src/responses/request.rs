//! The body of a responses request, checked.

use super::echo::Echo;
use super::input;
use super::offer;
use crate::ask::{Ask, Reading, Wording};
use crate::body::JsonBody;
use crate::continuation::{self, Kept, Protocol, Said};
use crate::reader::{Fields, Node};
use crate::structured;
use crate::tools::{self, Names, Offer};
use crate::{ApiError, logprobs, params, thinking};
use ds4_model::CallRelease;
use ds4_units::Tokens;

/// A request, and how its reply is wanted.
pub(super) struct ResponsesRequest {
    pub(super) ask: Ask,
    pub(super) model: String,
    /// The client wants to see the reasoning.
    pub(super) summary: bool,
    pub(super) echo: Echo,
    pub(super) names: Names,
}

/// Reads a body. `id` is the response's, under which the turn is kept.
pub(super) fn read(body: &JsonBody, id: &str, reading: Reading<'_>) -> Result<ResponsesRequest, ApiError> {
    let body = Node::body(body);
    let fields = body.fields()?;
    let model = fields.str("model")?;
    let input = fields.get("input").ok_or_else(|| ApiError::about("input", "missing input"))?;
    refuse_unsupported(fields)?;
    let wanted = thinking::openai(fields, reading.thinking_by_name(model), reading.settings)?;
    let (mut offer, mut names) = (Offer::default(), Names::default());
    if let Some(list) = fields.get("tools") {
        offer::read(&list, &mut offer, &mut names)?;
    }
    let transcript = input::read(&input, &mut offer, &mut names)?;
    let instructions = fields.str("instructions")?.map(str::to_owned);
    let said = Said { instructions, transcript, offer, names };
    let previous = fields.str("previous_response_id")?;
    let said = continuation::with_what_came_before(said, previous, Protocol::Responses, reading)?;
    let choice = tools::read_choice(fields, offer::named_in)?;
    let parallel = fields.bool("parallel_tool_calls")?.unwrap_or(true);
    let offered = said.offer.clone().chosen(choice, parallel, CallRelease::Whole)?;
    let form = fields.get("text").map_or(Ok(None), |text| structured::format_of(text.fields()?))?;
    let names = said.names.clone();
    let mut wording = Wording::Conversation(reading.conversation(&said.whole(), wanted, offered));
    let constraints = structured::constraints(form, said.offer.strict(), &mut wording, reading)?;
    // A client that wants nothing stored goes on by replaying everything.
    let stored = fields.bool("store")? != Some(false);
    Ok(ResponsesRequest {
        ask: Ask {
            wording,
            sampling: params::sampling(fields, wanted, reading.settings)?,
            stop: Vec::new(),
            max_tokens: max_tokens(fields)?.unwrap_or(reading.settings.max_tokens),
            stream: fields.bool("stream")?.unwrap_or(false),
            top_logprobs: top_logprobs(fields)?,
            prompt_logprobs: false,
            constraints,
            kept: Some(Kept { protocol: Protocol::Responses, id: stored.then(|| id.to_owned()), said }),
        },
        model: reading.model_name(model),
        summary: wants_summary(fields)?,
        echo: Echo::of(fields),
        names,
    })
}

fn max_tokens(fields: Fields<'_>) -> Result<Option<Tokens>, ApiError> {
    let published = fields.count("max_output_tokens")?;
    Ok(published.or(fields.count("max_tokens")?).map(Tokens))
}

fn wants_summary(fields: Fields<'_>) -> Result<bool, ApiError> {
    let Some(reasoning) = fields.get("reasoning") else { return Ok(false) };
    let summary = reasoning.fields()?.str("summary")?;
    Ok(matches!(summary, Some("auto" | "concise" | "detailed")))
}

/// Refuses by name what would change the answer's meaning.
fn refuse_unsupported(fields: Fields<'_>) -> Result<(), ApiError> {
    if fields.get("conversation").is_some() {
        return Err(ApiError::about("conversation", "conversation is not supported; replay full input instead"));
    }
    if fields.bool("background")? == Some(true) {
        return Err(ApiError::about("background", "background: is not supported; leave it out"));
    }
    if let Some(prompt) = fields.get("prompt") {
        return Err(prompt.refuse("is not supported; send input"));
    }
    if fields.str("truncation")?.is_some_and(|way| way != "disabled") {
        return Err(ApiError::about("truncation", "truncation: only \"disabled\" is supported"));
    }
    Ok(())
}

/// Log-probabilities come with the texts where `include` names them; `top_logprobs` says how many alternatives.
fn top_logprobs(fields: Fields<'_>) -> Result<Option<usize>, ApiError> {
    let count = logprobs::top(fields, "top_logprobs", logprobs::TOP_MAX)?;
    let Some(include) = fields.get("include") else { return Ok(count.filter(|count| *count > 0)) };
    let named = include.array()?.iter().any(|name| name == "message.output_text.logprobs");
    Ok(if named { Some(count.unwrap_or(0)) } else { count.filter(|count| *count > 0) })
}

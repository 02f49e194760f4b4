//! Turns that go on from one that is kept here: by the id of a response, or by the results of its calls alone.

use super::{Lost, Protocol, Said};
use crate::ApiError;
use crate::ask::Reading;

/// What a request says, after what was said before where it only goes on from that.
pub(crate) fn with_what_came_before(
    said: Said,
    previous: Option<&str>,
    protocol: Protocol,
    reading: Reading<'_>,
) -> Result<Said, ApiError> {
    if let Some(previous) = previous {
        let kept = reading.continuations.by_response(previous).ok_or_else(|| unknown_response(previous))?;
        let mut transcript = kept.said.transcript.clone();
        transcript.append(&said.transcript);
        return Ok(Said { transcript, ..said });
    }
    let Some(ids) = said.transcript.only_results() else { return Ok(said) };
    let kept = match reading.continuations.by_calls(protocol, &ids) {
        Ok(kept) => kept,
        // A prompt can be counted whatever became of its beginning.
        Err(_) if reading.counting => return Ok(said),
        Err(lost) => return Err(refused(protocol, lost)),
    };
    // Results alone go on with all that the turn was asked with.
    let mut transcript = kept.said.transcript.clone();
    transcript.append(&said.transcript);
    let (offer, names) = match said.offer.is_empty() {
        true => (kept.said.offer.clone(), kept.said.names.clone()),
        false => (said.offer, said.names),
    };
    Ok(Said { instructions: said.instructions.or_else(|| kept.said.instructions.clone()), transcript, offer, names })
}

fn unknown_response(id: &str) -> ApiError {
    let message = format!("Previous response with id {id:?} not found; retry by replaying the full input history");
    ApiError::coded("previous_response_not_found", "previous_response_id", message)
}

fn refused(protocol: Protocol, lost: Lost) -> ApiError {
    let (name, field, id_name) = match protocol {
        Protocol::Responses => ("Responses", "input", "call_id"),
        Protocol::Messages => ("Anthropic", "messages", "tool_use_id"),
    };
    let history = match protocol {
        Protocol::Responses => "full input history",
        Protocol::Messages => "full messages history",
    };
    match lost {
        Lost::Unknown(id) => ApiError::about(
            field,
            format!("{name} continuation state is not available for {id_name} {id}; retry by replaying the {history}"),
        ),
        Lost::MovedOn => ApiError::continuation_lost(format!(
            "{name} continuation state is not available; retry by replaying the {history}"
        )),
    }
}

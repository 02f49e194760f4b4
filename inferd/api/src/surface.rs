//! What every generating surface does between a body and a reply: read, prepare, submit, answer.
//!
//! A surface says how a body becomes an [`Ask`] and how answers are spelled; the path between is the same for all.

use crate::answer::{self, Answer, EventWriter};
use crate::ask::{Ask, Reading};
use crate::body::{JsonBody, PaidBody};
use crate::caller::Caller;
use crate::ending::Ending;
use crate::fuse::BodyHash;
use crate::generate::Prepared;
use crate::phase::Serving;
use crate::slip::Slip;
use crate::state::Shared;
use crate::telemetry::surface_of;
use crate::trace::Entry;
use crate::{ApiError, generate};
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use ds4_engine::Finished;
use serde_json::Value;
use std::time::Instant;

/// One generating surface: what it keeps of a request to spell the reply.
pub(crate) trait Surface: Sized + Send + 'static {
    /// The field that holds the prompt: errors about its length point there.
    const PROMPT_FIELD: &'static str;

    /// Whether a buffered answer that announces a tool call and makes none may be asked for once more.
    const RESAMPLES: bool = false;

    /// Writes the streamed form of a reply.
    type Writer: EventWriter;

    /// Reads a body. What is not supported is refused by name here, before anything is computed.
    fn read(body: &JsonBody, reading: Reading<'_>) -> Result<(Ask, Self), ApiError>;

    /// The whole reply.
    fn whole(self, answer: Answer, finished: &Finished) -> Value;

    /// Begins a streamed reply.
    fn writer(self) -> Self::Writer;
}

/// Serves a surface.
pub(crate) async fn create<S: Surface>(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    match serve::<S>(&shared, &caller, request).await {
        Ok(response) => response,
        Err(error) => caller.refuse(&error),
    }
}

/// A request after everything that is done before the engine sees it.
struct Ready<S> {
    surface: S,
    stream: bool,
    prepared: Prepared,
    trace: Option<Entry>,
    slip: Option<Slip>,
    body: BodyHash,
}

async fn serve<S: Surface>(shared: &Shared, caller: &Caller, request: Request) -> Result<Response, ApiError> {
    let serving = shared.phase.serving()?;
    let received = Instant::now();
    let place = shared.client_place()?;
    let path = request.uri().path().to_owned();
    let body = shared.read_body(request).await?;
    let preparing = (shared.clone(), serving.clone(), caller.clone());
    let surface_name = surface_of(&path);
    let ready = shared
        .pool
        .run(move || {
            let (shared, serving, caller) = preparing;
            make_ready::<S>(&shared, &serving, &caller, &path, body)
        })
        .await?;
    let Ready { surface, stream, mut prepared, trace, slip, body } = ready;
    let kept = prepared.kept.take();
    let events = generate::submit(&serving, &shared.telemetry, prepared, surface_name, S::PROMPT_FIELD)?;
    let ending = Ending {
        shared: shared.clone(),
        surface: surface_name,
        received,
        request_id: caller.request_id.clone(),
        body,
        kept,
        trace,
        slip,
        answer: Answer::default(),
        ended: false,
        _place: place,
    };
    if stream {
        answer::stream(surface.writer(), events, ending).await
    } else {
        answer::whole(surface, events, ending).await
    }
}

fn make_ready<S: Surface>(
    shared: &Shared,
    serving: &Serving,
    caller: &Caller,
    path: &str,
    body: PaidBody,
) -> Result<Ready<S>, ApiError> {
    let hash = body.hash();
    shared.fuse.check(hash)?;
    let json = body.parse()?;
    let reading = shared.reading(serving);
    let (ask, surface) = S::read(&json, reading)?;
    // The request holds copies of what it needs: the body's share of the budget can go back.
    drop(body);
    let stream = ask.stream;
    let mut prepared = generate::prepare(reading, ask, S::PROMPT_FIELD)?;
    let slips = prepared.may_slip && shared.traces.slips.is_some();
    let traced = shared.traces.all.is_some() || slips;
    let entry = traced.then(|| Entry::new(caller, path, json.value, &prepared.rendered, serving));
    let again = prepared.again.take().filter(|_| S::RESAMPLES);
    let slip = prepared.may_slip.then(|| Slip::new(again, entry.clone().filter(|_| slips)));
    let trace = entry.filter(|_| shared.traces.all.is_some());
    Ok(Ready { surface, stream, prepared, trace, slip, body: hash })
}

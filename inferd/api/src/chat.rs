//! `POST /v1/chat/completions`.

mod message;
mod reply;
mod request;
mod stream;
mod tools;

use crate::generate::{self, Generation};
use crate::guard::RequestId;
use crate::state::Shared;
use crate::{ApiError, ids, state};
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use reply::Replier;
use request::ChatRequest;

/// Where errors about the prompt's length point.
const PROMPT_FIELD: &str = "messages";

pub(crate) async fn create(
    State(shared): State<Shared>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    request: Request,
) -> Response {
    match answer(shared, request_id, request).await {
        Ok(response) => response,
        Err(error) => error.into_openai_response(),
    }
}

async fn answer(shared: Shared, request_id: String, request: Request) -> Result<Response, ApiError> {
    let serving = shared.phase.serving()?;
    let place = shared.client_place()?;
    let body = shared.bodies.read(request).await?;
    let preparing = (shared.clone(), serving.clone());
    let (chat, prepared) = shared
        .pool
        .run(move || {
            let (shared, serving) = preparing;
            let chat = ChatRequest::read(&body.parse()?, serving.codec.as_ref(), &shared.settings)?;
            // The conversation holds copies of what it needs: the body's share of the budget can go back.
            drop(body);
            let prepared = generate::prepare(&serving, &chat.conversation)?;
            Ok((chat, prepared))
        })
        .await?;
    let generation = Generation { sampling: chat.sampling, stop: chat.stop, max_tokens: chat.max_tokens };
    let events = generate::submit(&serving, prepared, generation, PROMPT_FIELD)?;
    let replier = Replier {
        id: ids::chat_completion(),
        created: state::unix_time(),
        model: chat.model.unwrap_or_else(|| serving.model_id.clone()),
        token_ids: chat.token_ids,
    };
    let log = generate::RequestLog::new(request_id, place);
    if chat.stream {
        Ok(stream::respond(replier, events, chat.include_usage, log))
    } else {
        reply::respond(replier, events, log).await
    }
}

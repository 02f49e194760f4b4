//! The checks every request passes before it is routed: request id, host, origin, key; and the headers every reply
//! carries.

use crate::caller::Caller;
use crate::error::Protocol;
use crate::settings::{Hosts, Origins};
use crate::state::Shared;
use crate::telemetry::surface_of;
use crate::{ApiError, ids, keys};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use std::net::IpAddr;
use tracing::Instrument;

/// Carries the id that the log lines of a request carry.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The same under the name that clients of the Messages protocol read.
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Runs around every route.
pub(crate) async fn guard(State(shared): State<Shared>, mut request: Request, next: Next) -> Response {
    let protocol = Protocol::of_path(request.uri().path());
    let caller = Caller { request_id: ids::request(), protocol };
    let surface = surface_of(request.uri().path());
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = match check(&shared, &request) {
        Err(error) => caller.refuse(&error),
        Ok(()) if request.method() == Method::OPTIONS => no_content(),
        Ok(()) => {
            request.extensions_mut().insert(caller.clone());
            let span = tracing::info_span!("request", id = %caller.request_id, surface);
            next.run(request).instrument(span).await
        }
    };
    shared.telemetry.replied(surface, response.status().as_u16());
    if let Ok(id) = HeaderValue::from_str(&caller.request_id) {
        if protocol == Protocol::Anthropic {
            response.headers_mut().insert(ANTHROPIC_REQUEST_ID, id.clone());
        }
        response.headers_mut().insert(REQUEST_ID, id);
    }
    allow_origin(&shared.settings.origins, origin, response.headers_mut());
    response
}

fn check(shared: &Shared, request: &Request) -> Result<(), ApiError> {
    let settings = &shared.settings;
    let headers = request.headers();
    if !host_is_allowed(&settings.hosts, request.uri(), headers) {
        return Err(ApiError::forbidden(
            "this Host is not served here; start the server with --allowed-host NAME to allow it",
        ));
    }
    if !origin_is_allowed(&settings.origins, headers) {
        return Err(ApiError::forbidden(
            "requests from web pages are refused; start the server with --cors or --cors-origin ORIGIN to allow them",
        ));
    }
    if is_open(request) || keys::opens(&settings.api_keys, headers) { Ok(()) } else { Err(ApiError::unauthorized()) }
}

/// What answers without a key: probes and preflights.
fn is_open(request: &Request) -> bool {
    matches!(
        (request.method(), request.uri().path()),
        (&Method::OPTIONS, _) | (&Method::HEAD, "/") | (&Method::GET | &Method::HEAD, "/health" | "/v1/health")
    )
}

fn origin_is_allowed(origins: &Origins, headers: &HeaderMap) -> bool {
    match (origins, headers.get(header::ORIGIN)) {
        (_, None) | (Origins::Any, _) => true,
        (Origins::None, Some(_)) => false,
        (Origins::Listed(listed), Some(origin)) => listed.contains(origin),
    }
}

fn host_is_allowed(hosts: &Hosts, uri: &Uri, headers: &HeaderMap) -> bool {
    let Hosts::LoopbackAnd(listed) = hosts else { return true };
    let named = uri.host().map(str::to_owned);
    let named = named.or_else(|| headers.get(header::HOST).map(|host| host_name(host).unwrap_or_default()));
    // A client that names no host is no browser.
    named.is_none_or(|name| is_loopback(&name) || listed.iter().any(|host| host.eq_ignore_ascii_case(&name)))
}

/// The name in a `Host` header, without its port.
fn host_name(host: &HeaderValue) -> Option<String> {
    let authority: http::uri::Authority = host.to_str().ok()?.parse().ok()?;
    Some(authority.host().to_owned())
}

fn is_loopback(name: &str) -> bool {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn allow_origin(origins: &Origins, origin: Option<HeaderValue>, headers: &mut HeaderMap) {
    let allowed = match origins {
        Origins::None => return,
        Origins::Any => HeaderValue::from_static("*"),
        Origins::Listed(listed) => {
            headers.append(header::VARY, HeaderValue::from_static("origin"));
            match origin.filter(|origin| listed.contains(origin)) {
                Some(origin) => origin,
                None => return,
            }
        }
    };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "*, authorization"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "x-request-id, retry-after"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

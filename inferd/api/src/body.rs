//! Request bodies: what they may be, how large, and who pays for their memory.

use crate::fuse::BodyHash;
use crate::verbatim::Verbatim;
use crate::{ApiError, limits, surrogates};
use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::{HeaderMap, header};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The memory all bodies together may take, handed out before it is used.
pub(crate) struct BodyBudget {
    bytes: Arc<Semaphore>,
    /// All of it.
    total: u64,
}

/// A body with the share of the budget it holds until it is dropped.
#[derive(Debug)]
pub(crate) struct PaidBody {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

/// A body as JSON, and what of it stays as it was spelled.
#[derive(Debug)]
pub(crate) struct JsonBody {
    pub(crate) value: Value,
    pub(crate) verbatim: Verbatim,
}

impl BodyBudget {
    /// A budget of so many bytes; 0 for one that all connections together cannot spend.
    pub(crate) fn new(total: ds4_units::Bytes) -> BodyBudget {
        let all = u64::from(limits::CONNECTIONS_MAX) * limits::BODY_MAX as u64;
        let total = if total.0 == 0 { all } else { total.0.min(all) };
        let permits = usize::try_from(total).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        BodyBudget { bytes: Arc::new(Semaphore::new(permits)), total: permits as u64 }
    }

    /// Bytes that one body may have: one that is larger than the whole budget could never be paid for.
    fn body_max(&self) -> usize {
        usize::try_from(self.total).unwrap_or(usize::MAX).min(limits::BODY_MAX)
    }

    /// Bytes of bodies in memory.
    pub(crate) fn in_use(&self) -> u64 {
        self.total - self.bytes.available_permits() as u64
    }

    /// Reads a body. A declared length is paid for before the first byte is read, an undeclared one as it arrives.
    pub(crate) async fn read(&self, request: Request) -> Result<PaidBody, ApiError> {
        let (head, body) = request.into_parts();
        let form = check_headers(&head.headers)?;
        let declared = declared_length(&head.headers, self.body_max())?;
        let mut permit = self.pay(declared.unwrap_or(0))?;
        let bytes = self.collect(body, declared, &mut permit).await?;
        if form == Form::JsonIfItLooksSo && bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(ApiError::unsupported_media("send JSON, with \"Content-Type: application/json\""));
        }
        Ok(PaidBody { bytes, _permit: permit })
    }

    async fn collect(
        &self,
        body: Body,
        declared: Option<usize>,
        permit: &mut OwnedSemaphorePermit,
    ) -> Result<Bytes, ApiError> {
        let mut stream = body.into_data_stream();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = next_chunk(&mut stream).await? {
            let total = bytes.len() + chunk.len();
            if total > self.body_max() {
                return Err(ApiError::body_too_large(self.body_max()));
            }
            let paid = permit.num_permits();
            if declared.is_none() && total > paid {
                let step = (total - paid).next_multiple_of(limits::BODY_STEP).min(self.body_max() - paid);
                permit.merge(self.pay(step)?);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }

    fn pay(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let bytes = u32::try_from(bytes).map_err(|_| ApiError::body_too_large(self.body_max()))?;
        self.bytes.clone().try_acquire_many_owned(bytes).map_err(|_| ApiError::body_budget())
    }
}

impl PaidBody {
    /// Stands for the body where only sameness matters.
    pub(crate) fn hash(&self) -> BodyHash {
        BodyHash::of(&self.bytes)
    }

    /// The body as JSON. Blocks for as long as parsing takes.
    pub(crate) fn parse(&self) -> Result<JsonBody, ApiError> {
        JsonBody::parse(&self.bytes)
    }
}

impl JsonBody {
    /// Reads JSON. Blocks for as long as that takes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<JsonBody, ApiError> {
        let parsed = parse(bytes).or_else(|error| match surrogates::replace_lone(bytes) {
            Some(mended) => parse(&mended),
            None => Err(error),
        });
        parsed.map_err(|error| {
            if error.to_string().starts_with("recursion limit exceeded") {
                let depth = limits::JSON_DEPTH_MAX;
                return ApiError::invalid(format!("invalid JSON request: nested {depth} levels deep or more"));
            }
            let (line, column) = (error.line(), error.column());
            ApiError::invalid(format!("invalid JSON request: line {line} column {column}"))
        })
    }
}

fn parse(bytes: &[u8]) -> Result<JsonBody, serde_json::Error> {
    let value = serde_json::from_slice(bytes)?;
    // What was parsed is UTF-8.
    let verbatim = std::str::from_utf8(bytes).map(Verbatim::of).unwrap_or_default();
    Ok(JsonBody { value, verbatim })
}

async fn next_chunk(stream: &mut BodyDataStream) -> Result<Option<Bytes>, ApiError> {
    let chunk = timeout(limits::READ_STALL_MAX, stream.next()).await;
    let chunk = chunk.map_err(|_| ApiError::invalid("bad HTTP request: the body stalled"))?;
    chunk.transpose().map_err(|_| ApiError::invalid("bad HTTP request: the body ended early or is malformed"))
}

/// How a body announces itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    /// Says it is something else, as `curl -d` does, but may be JSON all the same.
    JsonIfItLooksSo,
}

fn check_headers(headers: &HeaderMap) -> Result<Form, ApiError> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(ApiError::unsupported_media("Content-Encoding is not supported; send the body as it is"));
    }
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(Form::Json) };
    let kind = kind.to_str().unwrap_or_default().to_ascii_lowercase();
    if kind.starts_with("multipart/") {
        return Err(ApiError::unsupported_media("multipart bodies are not supported; send JSON"));
    }
    Ok(if kind.contains("json") { Form::Json } else { Form::JsonIfItLooksSo })
}

fn declared_length(headers: &HeaderMap, most: usize) -> Result<Option<usize>, ApiError> {
    let Some(length) = headers.get(header::CONTENT_LENGTH) else { return Ok(None) };
    let length = length.to_str().ok().and_then(|length| length.parse().ok());
    let length: usize = length.ok_or_else(|| ApiError::invalid("bad HTTP request"))?;
    if length > most { Err(ApiError::body_too_large(most)) } else { Ok(Some(length)) }
}

//! The part of server-sent events that completions use: one JSON object per `data:` line.

use serde_json::Value;

/// What one line of a stream says.
#[derive(Debug, PartialEq)]
pub(crate) enum Line {
    /// A piece of the answer arrived, and so many tokens with it where the server counts them.
    Piece { tokens: Option<usize> },
    /// Why the answer ended, and the token counts, where the object has them.
    Object { finished: bool, usage: Option<Usage> },
    /// The server gave up in the middle of the stream.
    Error(String),
    /// The stream is complete.
    Done,
    /// Nothing that counts: an empty line, a comment that keeps the connection alive.
    Other,
}

/// Token counts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: u64,
    pub(crate) cached: u64,
    pub(crate) completion: u64,
}

pub(crate) fn read(line: &str) -> Line {
    let Some(data) = line.strip_prefix("data:").map(str::trim) else { return Line::Other };
    if data == "[DONE]" {
        return Line::Done;
    }
    let Ok(object) = serde_json::from_str::<Value>(data) else {
        return Line::Error(format!("not JSON: {data}"));
    };
    if let Some(error) = object.get("error") {
        return Line::Error(error["message"].as_str().unwrap_or("unnamed").to_owned());
    }
    let choice = &object["choices"][0];
    let tokens = choice["token_ids"].as_array().map(Vec::len);
    let has_text = choice["text"].as_str().is_some_and(|text| !text.is_empty());
    if (has_text || tokens > Some(0)) && choice["finish_reason"].is_null() {
        return Line::Piece { tokens };
    }
    Line::Object { finished: !choice["finish_reason"].is_null(), usage: usage(&object["usage"]) }
}

fn usage(usage: &Value) -> Option<Usage> {
    Some(Usage {
        prompt: usage["prompt_tokens"].as_u64()?,
        cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0),
        completion: usage["completion_tokens"].as_u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_is_told_apart() {
        assert_eq!(read(""), Line::Other);
        assert_eq!(read(": prefill"), Line::Other);
        assert_eq!(read("data: [DONE]"), Line::Done);
        let piece = |ids: &str| read(&format!(r#"data: {{"choices":[{{"text":"a",{ids}"finish_reason":null}}]}}"#));
        assert_eq!(piece(""), Line::Piece { tokens: None });
        assert_eq!(piece(r#""token_ids":[7,8],"#), Line::Piece { tokens: Some(2) });
        let end = r#"data: {"choices":[{"text":"","finish_reason":"stop"}]}"#;
        assert_eq!(read(end), Line::Object { finished: true, usage: None });
        let counts = r#"data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,
            "prompt_tokens_details":{"cached_tokens":4}}}"#;
        let usage = Usage { prompt: 9, cached: 4, completion: 3 };
        assert_eq!(read(&counts.replace('\n', "")), Line::Object { finished: false, usage: Some(usage) });
        assert_eq!(read(r#"data: {"error":{"message":"gone"}}"#), Line::Error("gone".into()));
        assert!(matches!(read("data: {"), Line::Error(_)));
    }
}

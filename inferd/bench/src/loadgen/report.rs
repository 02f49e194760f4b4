//! The table on the screen and the file with one line per request.

use crate::client::End;
use crate::error::LoadgenError;
use crate::run::Request;
use crate::summary::{self, Latencies, Summary};
use ds4_host::printable;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// The columns of the file.
const COLUMNS: &str = "request,end,first_token_ms,total_ms,prompt_tokens,cached_tokens,completion_tokens";

/// Everything a run comes to, for a reader.
pub(crate) fn table(summary: &Summary) -> String {
    let mut text = String::new();
    let answered = summary.requests - summary.failed();
    let wall = summary.wall.as_secs_f64();
    let rate = |tokens: u64| if wall > 0.0 { tokens as f64 / wall } else { 0.0 };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "requests          {answered} answered, {} failed, in {wall:.2} s", summary.failed());
    for (end, count) in &summary.failures {
        let _ = writeln!(text, "  {count:6} x {}", printable(&describe(end)));
    }
    let _ = writeln!(
        text,
        "prompt tokens     {} ({} cached), {:.1} tok/s",
        summary.prompt_tokens,
        summary.cached_tokens,
        rate(summary.prompt_tokens)
    );
    let _ =
        writeln!(text, "output tokens     {}, {:.1} tok/s", summary.completion_tokens, rate(summary.completion_tokens));
    if let Some((rate, time)) = summary.all_writing {
        let _ = writeln!(text, "while all write   {rate:.1} tok/s, for {:.2} s", time.as_secs_f64());
    }
    let _ = writeln!(text, "{:18}{:>10}{:>10}{:>10}{:>10}", "milliseconds", "p50", "p90", "p99", "max");
    for (name, latencies) in [
        ("first token", &summary.first_token),
        ("between tokens", &summary.between_tokens),
        ("between pieces", &summary.between_pieces),
        ("whole request", &summary.whole),
    ] {
        let _ = writeln!(text, "{name:18}{}", percentiles(latencies));
    }
    text
}

fn percentiles(latencies: &Latencies) -> String {
    let cell = |percent| match latencies.percentile(percent) {
        Some(latency) => format!("{:>10.1}", milliseconds(latency)),
        None => format!("{:>10}", "-"),
    };
    [50.0, 90.0, 99.0, 100.0].map(cell).concat()
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn describe(end: &End) -> String {
    match end {
        End::Answered => "answered".into(),
        End::Status(status) => format!("HTTP {status}"),
        End::StreamError(message) => format!("error in the stream: {message}"),
        End::Broken(cause) => format!("broken: {cause}"),
    }
}

/// Writes one line per request.
pub(crate) fn write_csv(path: &Path, requests: &[Request]) -> Result<(), LoadgenError> {
    let mut text = format!("{COLUMNS}\n");
    for request in requests {
        text.push_str(&csv_line(request));
    }
    std::fs::write(path, text).map_err(|error| LoadgenError::Write { path: path.to_owned(), cause: error.to_string() })
}

fn csv_line(request: &Request) -> String {
    let end = match &request.felt.end {
        End::Answered => "answered".to_owned(),
        End::Status(status) => status.to_string(),
        End::StreamError(_) => "stream_error".to_owned(),
        End::Broken(_) => "broken".to_owned(),
    };
    let first = summary::first_token(request).map(|first| format!("{:.3}", milliseconds(first))).unwrap_or_default();
    let usage = request.felt.usage;
    format!(
        "{},{end},{first},{:.3},{},{},{}\n",
        request.index,
        milliseconds(summary::whole(request)),
        usage.prompt,
        usage.cached,
        usage.completion
    )
}

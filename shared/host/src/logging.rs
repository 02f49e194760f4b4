//! Log lines on standard error: one event, one line, cleaned.

use crate::printable;
use crate::progress::beside_bars;
use std::io::{self, Write};
use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Logging could not be set up.
#[derive(Debug, Error)]
pub enum LoggingError {
    /// The filter text is wrong.
    #[error("RUST_LOG={filter:?} is not a log filter ({reason}): try RUST_LOG=info or RUST_LOG=debug")]
    Filter {
        /// The text given.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Logging was set up before in this process.
    #[error("logging is already set up")]
    Twice,
}

/// Sends log events to standard error, `filter` being the value of `RUST_LOG` (`info` when absent).
///
/// Every line goes through [`printable`] as a whole, so no string from a file, a model or a peer can start a line of
/// its own or reach the terminal as a control sequence. For that reason log lines carry no colours.
pub fn init_logging(filter: Option<&str>) -> Result<(), LoggingError> {
    let text = filter.filter(|text| !text.is_empty()).unwrap_or("info");
    let filter = EnvFilter::try_new(text)
        .map_err(|error| LoggingError::Filter { filter: text.to_owned(), reason: error.to_string() })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false)
        .with_writer(CleanStderr)
        .try_init()
        .map_err(|_| LoggingError::Twice)
}

struct CleanStderr;

impl<'a> MakeWriter<'a> for CleanStderr {
    type Writer = CleanStderr;

    fn make_writer(&'a self) -> CleanStderr {
        CleanStderr
    }
}

impl Write for CleanStderr {
    /// `line` is one whole event: the formatter writes each in a single call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let clean = clean_line(line);
        beside_bars(|| io::stderr().write_all(clean.as_bytes()))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn clean_line(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let mut clean = printable(text).into_owned();
    clean.push('\n');
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_it_carries() {
        assert_eq!(clean_line(b"INFO name=a\nINFO forged\x1b[2J\n"), "INFO name=a\\nINFO forged\\u{1b}[2J\n");
    }
}

//! Where text goes: the answer to standard output, everything else beside it.

use crate::error::CliError;
use ds4_engine::{Channel, Finished};
use ds4_host::printable;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";
const CLEAR_LINE: &str = "\r\x1b[K";

/// Prompts shorter than this are over before anybody could read how far they are.
const PREFILL_SHOWN_MIN: u32 = 1_000;

/// The terminal or the pipes an answer is written to.
pub(crate) struct Screen {
    output_is_terminal: bool,
    error_is_terminal: bool,
    channel: Option<Channel>,
    ends_with_newline: bool,
    error_ends_with_newline: bool,
    progress_shown: bool,
}

impl Screen {
    pub(crate) fn new() -> Screen {
        Screen {
            output_is_terminal: io::stdout().is_terminal(),
            error_is_terminal: io::stderr().is_terminal(),
            channel: None,
            ends_with_newline: true,
            error_ends_with_newline: true,
            progress_shown: false,
        }
    }

    /// Shows how far a long prompt is.
    pub(crate) fn prefill(&mut self, done: u32, total: u32) {
        if self.error_is_terminal && total >= PREFILL_SHOWN_MIN {
            eprint!("{CLEAR_LINE}prompt {done} of {total} tokens");
            self.progress_shown = true;
        }
    }

    /// Writes a piece of text and flushes it.
    pub(crate) fn text(&mut self, channel: Channel, text: &str) -> Result<(), CliError> {
        self.clear_progress();
        self.write(channel, text).map_err(CliError::Output)
    }

    fn write(&mut self, channel: Channel, text: &str) -> io::Result<()> {
        let entered = self.channel.replace(channel) != Some(channel);
        let mut output = io::stdout().lock();
        if channel == Channel::Reasoning && !self.output_is_terminal {
            let mut error = io::stderr().lock();
            error.write_all(shown(text, self.error_is_terminal).as_bytes())?;
            self.error_ends_with_newline = text.ends_with('\n');
            return error.flush();
        }
        self.end_error_line();
        if self.output_is_terminal && entered {
            let style = if channel == Channel::Reasoning { DIM } else { PLAIN };
            let gap = if channel == Channel::Content && !self.ends_with_newline { "\n\n" } else { "" };
            write!(output, "{style}{gap}")?;
        }
        output.write_all(shown(text, self.output_is_terminal).as_bytes())?;
        self.ends_with_newline = text.ends_with('\n');
        output.flush()
    }

    /// Ends the text with a line end and prints where the time went.
    pub(crate) fn finish(&mut self, finished: Option<&Finished>) -> Result<(), CliError> {
        self.clear_progress();
        self.end_error_line();
        let style = if self.output_is_terminal { PLAIN } else { "" };
        let newline = if self.ends_with_newline { "" } else { "\n" };
        let mut output = io::stdout().lock();
        write!(output, "{style}{newline}").and_then(|()| output.flush()).map_err(CliError::Output)?;
        match finished {
            Some(finished) => eprintln!("ds4: {}", summary(finished)),
            None => eprintln!("ds4: interrupted"),
        }
        Ok(())
    }

    /// Reasoning on standard error ends its line before anything else is written.
    fn end_error_line(&mut self) {
        if !std::mem::replace(&mut self.error_ends_with_newline, true) {
            eprintln!();
        }
    }

    fn clear_progress(&mut self) {
        if std::mem::take(&mut self.progress_shown) {
            eprint!("{CLEAR_LINE}");
        }
    }
}

/// Text as it may reach a terminal: what a model writes must not move the cursor or forge what is on the screen.
fn shown(text: &str, terminal: bool) -> Cow<'_, str> {
    if !terminal {
        return Cow::Borrowed(text);
    }
    let pieces = text.split_inclusive(['\n', '\t']);
    Cow::Owned(
        pieces
            .map(|piece| {
                let bare = piece.trim_end_matches(['\n', '\t']);
                format!("{}{}", printable(bare), &piece[bare.len()..])
            })
            .collect(),
    )
}

fn summary(finished: &Finished) -> String {
    let (usage, timings) = (&finished.usage, &finished.timings);
    let rate = |rate: Option<f64>| rate.map(|rate| format!(" at {rate:.1} tok/s")).unwrap_or_default();
    let mut text = format!(
        "prompt {} tokens{}, answer {} tokens{}",
        usage.prompt_tokens.0,
        rate(timings.prefill_rate(usage)),
        usage.completion_tokens.0,
        rate(timings.decode_rate(usage)),
    );
    if let Some(first) = timings.first_token {
        text.push_str(&format!(", first token after {:.2} s", first.as_secs_f64()));
    }
    if finished.reason == ds4_engine::FinishReason::Length {
        text.push_str(", cut off");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_control_sequences_and_a_pipe_gets_the_bytes() {
        let text = "a\u{1b}[2Jb\n\tc";
        assert_eq!(shown(text, true), "a\\u{1b}[2Jb\n\tc");
        assert_eq!(shown(text, false), text);
    }
}

//! From generated tokens back to text, as a stream.

use crate::Tokenizer;
use ds4_units::TokenId;
use std::sync::Arc;

/// Turns a stream of bytes into text without ever splitting a character. What it returns, concatenated, is what
/// [`String::from_utf8_lossy`] makes of all bytes at once.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    /// The beginning of a character whose end has not arrived: at most three bytes.
    tail: Vec<u8>,
}

impl Utf8Stream {
    /// Takes the next bytes and returns the text that is now complete.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.tail.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.tail.len());
        let mut complete = 0;
        for chunk in self.tail.utf8_chunks() {
            text.push_str(chunk.valid());
            complete += chunk.valid().len();
            let invalid = chunk.invalid();
            let at_end = complete + invalid.len() == self.tail.len();
            if invalid.is_empty() || (at_end && is_character_start(invalid)) {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            complete += invalid.len();
        }
        self.tail.drain(..complete);
        text
    }

    /// Whether the beginning of a character waits for its end.
    pub fn is_inside_character(&self) -> bool {
        !self.tail.is_empty()
    }

    /// Ends the stream: an incomplete character becomes one U+FFFD.
    pub fn finish(&mut self) -> String {
        let incomplete = !self.tail.is_empty();
        self.tail.clear();
        if incomplete { char::REPLACEMENT_CHARACTER.to_string() } else { String::new() }
    }
}

/// Whether `bytes` can be continued to a valid character.
fn is_character_start(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Turns generated tokens into text. Control tokens render as nothing.
#[derive(Clone)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    text: Utf8Stream,
}

impl Detokenizer {
    /// A detokenizer at the start of a stream.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Detokenizer {
        Detokenizer { tokenizer, text: Utf8Stream::default() }
    }

    /// Takes the next token and returns the text that is now complete. A control token ends the text before it; an id
    /// outside the vocabulary has no text.
    pub fn push(&mut self, token: TokenId) -> String {
        if self.tokenizer.is_control(token) {
            return self.text.finish();
        }
        self.text.push(self.tokenizer.token_bytes(token).unwrap_or_default())
    }

    /// Ends the stream: an incomplete character becomes one U+FFFD.
    pub fn finish(&mut self) -> String {
        self.text.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` cut at every pair of positions and expects the same text as all at once.
    fn assert_split_invariant(bytes: &[u8]) {
        let expected = String::from_utf8_lossy(bytes);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let mut stream = Utf8Stream::default();
                let mut text = stream.push(&bytes[..first]);
                text += &stream.push(&bytes[first..second]);
                text += &stream.push(&bytes[second..]);
                text += &stream.finish();
                assert_eq!(text, expected, "{bytes:x?} cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn text_does_not_depend_on_how_the_bytes_arrive() {
        assert_split_invariant("aé｜😀\0z".as_bytes());
        assert_split_invariant(b"\xff\xe2\x82a\xf0\x9f\x98\xc3\xa9\xed\xa0\x80\xf4\x90\x80\x80");
        assert_split_invariant(b"ok\xf0\x9f\x98");
    }

    #[test]
    fn a_character_appears_only_when_its_last_byte_has_come() {
        let mut stream = Utf8Stream::default();
        assert_eq!(stream.push(b"a\xf0\x9f"), "a");
        assert_eq!(stream.push(b"\x98"), "");
        assert_eq!(stream.push(b"\x80"), "😀");
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn an_incomplete_tail_becomes_one_replacement_character() {
        let mut stream = Utf8Stream::default();
        assert_eq!(stream.push(b"\xf0\x9f\x98"), "");
        assert_eq!(stream.finish(), "\u{FFFD}");
        assert_eq!(stream.finish(), "");
    }
}

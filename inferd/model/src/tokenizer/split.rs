//! Cutting text into the pieces that BPE merges within.
//!
//! A vocabulary names its rules (`tokenizer.ggml.pre`). All rules here run on a finite automaton: the time is linear in
//! the text, whatever the text is.

use regex::Regex;

/// The names this build knows, for messages.
pub(super) const KNOWN: &str = "joyai-llm";

/// Up to three digits of any script.
const DIGITS: &str = r"\p{N}{1,3}";

/// Runs of Chinese characters and Japanese kana.
const HAN_AND_KANA: &str = "[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+";

/// ASCII punctuation with a Latin word; a word with at most one other character before it; punctuation with line ends;
/// white space up to the last line end; other white space.
const WORDS: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r"| ?[\p{P}\p{S}]+[\r\n]*",
    r"|\s*[\r\n]+",
    r"|\s+",
);

/// The rules named `joyai-llm`: three splits, each applied to every piece the one before it made, matches and gaps
/// alike.
pub(super) struct Splitter {
    digits: Regex,
    han_and_kana: Regex,
    words: Regex,
}

impl Splitter {
    /// The splitter of this name; `None` when it is unknown.
    pub(super) fn named(name: &str) -> Option<Splitter> {
        let compile = |pattern| Regex::new(pattern).expect("the patterns are constants that compile");
        (name == KNOWN).then(|| Splitter {
            digits: compile(DIGITS),
            han_and_kana: compile(HAN_AND_KANA),
            words: compile(WORDS),
        })
    }

    /// Calls `sink` with the pieces of `text`, in order. Together they are the text.
    pub(super) fn for_each_piece(&self, text: &str, sink: &mut impl FnMut(&str)) {
        isolate(&self.digits, text, |piece| {
            isolate(&self.han_and_kana, piece, |piece| self.split_words(piece, sink));
        });
    }

    fn split_words(&self, text: &str, sink: &mut impl FnMut(&str)) {
        let mut start = 0;
        while let Some(found) = self.words.find_at(text, start) {
            if found.start() > start {
                sink(&text[start..found.start()]);
            }
            let end = found.end() - spared_space(found.as_str(), found.end() == text.len());
            sink(&text[found.start()..end]);
            start = end;
        }
        if start < text.len() {
            sink(&text[start..]);
        }
    }
}

/// Bytes at the end of a match that belong to the next piece: a run of white space before a word leaves its last
/// character to that word (`\s+(?!\S)`, which an automaton cannot say). Only matches of white space without line ends
/// end in such a character.
fn spared_space(found: &str, at_end: bool) -> usize {
    match found.chars().next_back() {
        Some(last)
            if !at_end && last.is_whitespace() && !matches!(last, '\r' | '\n') && found.len() > last.len_utf8() =>
        {
            last.len_utf8()
        }
        _ => 0,
    }
}

/// Calls `sink` with the matches of `pattern` and the gaps between them, in order.
fn isolate(pattern: &Regex, text: &str, mut sink: impl FnMut(&str)) {
    let mut start = 0;
    for found in pattern.find_iter(text) {
        if found.start() > start {
            sink(&text[start..found.start()]);
        }
        sink(found.as_str());
        start = found.end();
    }
    if start < text.len() {
        sink(&text[start..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        Splitter::named("joyai-llm")
            .expect("a known name")
            .for_each_piece(text, &mut |piece| pieces.push(piece.into()));
        pieces
    }

    #[test]
    fn white_space_leaves_its_last_character_to_the_word_after_it() {
        assert_eq!(pieces("a   b"), ["a", "  ", " b"]);
        assert_eq!(pieces("a   "), ["a", "   "]);
        assert_eq!(pieces("   1"), ["   ", "1"]);
        assert_eq!(pieces(" \u{3000}\u{3000}x"), [" \u{3000}", "\u{3000}x"]);
        assert_eq!(pieces("\t\tx"), ["\t", "\tx"]);
        assert_eq!(pieces("  ."), [" ", " ."]);
    }

    #[test]
    fn line_ends_close_a_run_of_white_space() {
        assert_eq!(pieces("a \n \n  b"), ["a", " \n \n", " ", " b"]);
        assert_eq!(pieces(".\r\n\nx"), [".\r\n\n", "x"]);
    }

    #[test]
    fn digits_go_in_threes_and_han_runs_stand_alone() {
        assert_eq!(pieces("12345 日本語abc"), ["123", "45", " ", "日本語", "abc"]);
    }

    #[test]
    fn the_pieces_together_are_the_text() {
        let text = "\0x\u{301} \u{85}\u{a0}é١٢٣٤ ¿?\r\n\u{200b}e\u{fffd}";
        assert_eq!(pieces(text).concat(), text);
        assert!(pieces("").is_empty());
    }

    #[test]
    fn an_unknown_name_has_no_splitter() {
        assert!(Splitter::named("default").is_none());
    }
}

//! Stop strings, matched on decoded text across token edges.
//!
//! Text that may still become a stop string is held back, whole tokens at a time, so that what is released always
//! decodes from exactly the token ids that travel with it. Of several stop strings the one whose end comes first
//! wins, and of those the longest: the answer does not depend on how the text was cut into tokens.

use ds4_units::TokenId;
use std::collections::VecDeque;

/// Text with the tokens it decodes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) text: String,
    pub(crate) ids: Vec<TokenId>,
}

/// What a push let go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    pub(crate) chunk: Chunk,
    /// The stop string that was found; nothing may follow.
    pub(crate) hit: Option<String>,
}

/// Watches one channel of one request.
#[derive(Debug, Default)]
pub(crate) struct StopMatcher {
    stops: Vec<String>,
    held: VecDeque<Chunk>,
    text: String,
}

impl StopMatcher {
    /// Empty stop strings are ignored.
    pub(crate) fn new(stops: Vec<String>) -> StopMatcher {
        StopMatcher { stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(), ..StopMatcher::default() }
    }

    pub(crate) fn push(&mut self, chunk: Chunk) -> Released {
        let seen = self.text.len();
        self.text.push_str(&chunk.text);
        self.held.push_back(chunk);
        match self.first_match(seen) {
            Some((start, stop)) => {
                let hit = Some(stop.to_owned());
                Released { chunk: self.cut(start), hit }
            }
            None => Released { chunk: self.release(self.hold_from()), hit: None },
        }
    }

    /// The rest, at the end of the stream.
    pub(crate) fn flush(&mut self) -> Chunk {
        self.release(self.text.len())
    }

    /// Where the first stop string to end after `seen` starts, and which it is.
    fn first_match(&self, seen: usize) -> Option<(usize, &str)> {
        let text = self.text.as_bytes();
        (seen + 1..=text.len()).find_map(|end| {
            let ending = self.stops.iter().filter(|stop| text[..end].ends_with(stop.as_bytes()));
            ending.max_by_key(|stop| stop.len()).map(|stop| (end - stop.len(), stop.as_str()))
        })
    }

    /// Where the longest tail starts that a stop string could still grow from.
    fn hold_from(&self) -> usize {
        let text = self.text.as_bytes();
        let longest = self.stops.iter().map(String::len).max().unwrap_or(1);
        let first = text.len().saturating_sub(longest - 1);
        (first..text.len())
            .find(|&from| self.stops.iter().any(|stop| stop.as_bytes().starts_with(&text[from..])))
            .unwrap_or(text.len())
    }

    /// Lets go the held chunks that end at or before `limit`.
    fn release(&mut self, limit: usize) -> Chunk {
        let mut out = Chunk::default();
        while let Some(first) = self.held.front()
            && out.text.len() + first.text.len() <= limit
        {
            out.text.push_str(&first.text);
            out.ids.extend_from_slice(&first.ids);
            self.held.pop_front();
        }
        self.text.drain(..out.text.len());
        out
    }

    /// The text before a match at `start`. A token the match begins inside gives its text but not its id.
    fn cut(&mut self, start: usize) -> Chunk {
        let text = self.text[..start].to_owned();
        let whole = self.release(start);
        self.held.clear();
        self.text.clear();
        Chunk { text, ids: whole.ids }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matcher(stops: &[&str]) -> StopMatcher {
        StopMatcher::new(stops.iter().map(|stop| stop.to_string()).collect())
    }

    /// Pushes pieces as tokens 0, 1, 2… and returns released text, ids and the hit.
    fn run(stops: &[&str], pieces: &[&str]) -> (String, Vec<u32>, Option<String>) {
        let mut matcher = matcher(stops);
        let (mut text, mut ids) = (String::new(), Vec::new());
        for (piece, id) in pieces.iter().zip(0..) {
            let released = matcher.push(Chunk { text: piece.to_string(), ids: vec![TokenId(id)] });
            text.push_str(&released.chunk.text);
            ids.extend(released.chunk.ids.iter().map(|id| id.0));
            if released.hit.is_some() {
                return (text, ids, released.hit);
            }
        }
        let rest = matcher.flush();
        text.push_str(&rest.text);
        ids.extend(rest.ids.iter().map(|id| id.0));
        (text, ids, None)
    }

    #[test]
    fn a_stop_string_over_three_tokens_never_leaks() {
        let (text, ids, hit) = run(&["\n\nHuman"], &["Hi", "\n", "\nHu", "man", "never"]);
        assert_eq!((text.as_str(), ids.as_slice(), hit.as_deref()), ("Hi", &[0][..], Some("\n\nHuman")));
    }

    #[test]
    fn a_false_start_is_released_with_its_tokens() {
        assert_eq!(run(&["STOP"], &["a", "ST", "OR", "Y"]), ("aSTORY".into(), vec![0, 1, 2, 3], None));
    }

    #[test]
    fn a_token_cut_by_the_match_gives_text_without_its_id() {
        assert_eq!(run(&["X"], &["ab", "cX d"]), ("abc".into(), vec![0], Some("X".into())));
    }

    #[test]
    fn the_first_to_end_wins_and_of_those_the_longest() {
        assert_eq!(run(&["bc", "abcd"], &["abcd"]), ("a".into(), vec![], Some("bc".into())));
        assert_eq!(run(&["c", "abc"], &["abc"]), ("".into(), vec![], Some("abc".into())));
    }

    #[test]
    fn a_held_start_is_flushed_at_the_end() {
        assert_eq!(run(&["END"], &["x", "EN"]), ("xEN".into(), vec![0, 1], None));
    }

    #[test]
    fn empty_stop_strings_stop_nothing() {
        assert_eq!(run(&[""], &["a", "b"]), ("ab".into(), vec![0, 1], None));
    }

    #[test]
    fn multibyte_text_is_cut_between_characters() {
        assert_eq!(run(&["é!"], &["caf", "é", "?é", "!"]), ("café?".into(), vec![0, 1], Some("é!".into())));
    }

    proptest! {
        #[test]
        fn the_cut_into_tokens_changes_nothing(text in "[abc]{0,40}", cuts in proptest::collection::vec(1usize..5, 0..40)) {
            let stops = ["abca", "bcc", "cab"];
            let whole = run(&stops, &[&text]);
            let mut pieces = Vec::new();
            let mut rest = text.as_str();
            for cut in cuts {
                let (piece, tail) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = tail;
            }
            pieces.push(rest);
            let pieced = run(&stops, &pieces);
            prop_assert_eq!((whole.0, whole.2), (pieced.0, pieced.2));
        }
    }
}

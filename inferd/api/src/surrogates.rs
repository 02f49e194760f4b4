//! Halves of UTF-16 pairs in JSON escapes. Clients that cut text by UTF-16 length send them, and once one is in a
//! conversation every later request repeats it: they become U+FFFD instead of an error.

/// `text` with every escape of half a pair replaced; `None` when there is none.
pub(crate) fn replace_lone(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    let mut replaced = false;
    while at < text.len() {
        let len = match (unit(&text[at..]), unit(text.get(at + 6..).unwrap_or_default())) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                replaced = true;
                out.extend_from_slice(b"\\ufffd");
                at += 6;
                continue;
            }
            // An escaped backslash must not lend its second half to what follows.
            _ if text[at] == b'\\' => 2,
            _ => 1,
        };
        let end = (at + len).min(text.len());
        out.extend_from_slice(&text[at..end]);
        at = end;
    }
    replaced.then_some(out)
}

/// The UTF-16 unit that an escape at the start of `text` stands for.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_become_replacement_characters_and_pairs_stay() {
        for (text, expected) in [
            (r#""a\ud83d""#, r#""a\ufffd""#),
            (r#""\ude00\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\uD83Dx""#, r#""\ufffdx""#),
        ] {
            assert_eq!(replace_lone(text.as_bytes()).unwrap(), expected.as_bytes(), "{text}");
        }
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for text in [r#""\ud83d\ude00""#, r#""\\ud83d""#, r#""\u00e9""#, r#""\"#, r#""\ud8"#, r#""\u+83d""#, "", "😀"]
        {
            assert_eq!(replace_lone(text.as_bytes()), None, "{text}");
        }
    }
}

//! Printing checked JSON text with other spacing. One pass, no recursion: nesting depth costs nothing.

use super::string;

/// How numbers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberSpelling {
    /// As they were sent.
    AsSent,
    /// As Python prints them after reading them: `1.50` becomes `1.5`, `1e2` becomes `100.0`.
    Python,
}

/// Prints `json`, one valid JSON value, as `json.dumps(value, ensure_ascii=False)` would.
pub(super) fn python(json: &str, numbers: NumberSpelling) -> String {
    let mut out = String::with_capacity(json.len() + json.len() / 8);
    let mut rest = json;
    while let Some(first) = rest.bytes().next() {
        let len = token_len(rest);
        let (token, after) = rest.split_at(len);
        match first {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b',' => out.push_str(", "),
            b':' => out.push_str(": "),
            b'"' if !token.contains('\\') => out.push_str(token),
            b'"' => string::encode(&string::decode(token), &mut out),
            b'-' | b'0'..=b'9' if numbers == NumberSpelling::Python => out.push_str(&python_number(token)),
            _ => out.push_str(token),
        }
        rest = after;
    }
    out
}

/// Prints `json`, one valid JSON value, as it is but for white space between tokens.
pub(super) fn minified(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(first) = rest.bytes().next() {
        let (token, after) = rest.split_at(token_len(rest));
        match first {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'"' if token.contains('\\') => string::encode(&string::decode(token), &mut out),
            _ => out.push_str(token),
        }
        rest = after;
    }
    out
}

/// The length of the token at the start of `text`, which is not empty.
fn token_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    match bytes[0] {
        b'"' => string_len(bytes),
        b'-' | b'0'..=b'9' | b'a'..=b'z' => bytes
            .iter()
            .position(|b| !matches!(b, b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E'))
            .unwrap_or(bytes.len()),
        _ => text.chars().next().map_or(1, char::len_utf8),
    }
}

fn string_len(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// A JSON number as Python prints it after reading it: whole numbers keep their digits, others are the shortest
/// decimal that reads back as the same double, with an exponent below 1e-4 and from 1e16 on.
fn python_number(lexeme: &str) -> String {
    if !lexeme.contains(['.', 'e', 'E']) {
        return if lexeme == "-0" { "0".to_owned() } else { lexeme.to_owned() };
    }
    let Ok(value) = lexeme.parse::<f64>() else { return lexeme.to_owned() };
    if value.is_infinite() {
        return if value > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() };
    }
    // `{:e}` prints the shortest digits that read back, as `d.ddde±x`.
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..16).contains(&exponent) {
        let fixed = format!("{value}");
        return if fixed.contains('.') { fixed } else { fixed + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JsonText;

    fn print(json: &str) -> String {
        JsonText::parse(json).expect("valid JSON").to_python(NumberSpelling::Python)
    }

    #[test]
    fn numbers_print_as_python_prints_them() {
        let expected = [
            ("1.50", "1.5"),
            ("1e2", "100.0"),
            ("-0", "0"),
            ("-0.0", "-0.0"),
            ("1E16", "1e+16"),
            ("123456789012345678", "123456789012345678"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("9999999999999998.0", "9999999999999998.0"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("1.25e-7", "1.25e-07"),
            ("5e-324", "5e-324"),
            ("1e400", "Infinity"),
            ("-1e400", "-Infinity"),
            ("0.1", "0.1"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ];
        for (sent, printed) in expected {
            assert_eq!(print(sent), printed, "{sent}");
        }
    }

    #[test]
    fn spacing_order_and_escapes_follow_python() {
        assert_eq!(print("{ \"b\" :[ 1,2 ] ,\n\"a\":{}}"), r#"{"b": [1, 2], "a": {}}"#);
        assert_eq!(print(r#"["\u00e9\/\u001f", "—", "a:b,c", "\\\""]"#), r#"["é/\u001f", "—", "a:b,c", "\\\""]"#);
        assert_eq!(print("[true,false,null]"), "[true, false, null]");
    }

    #[test]
    fn arguments_keep_the_spelling_of_their_numbers() {
        let json = JsonText::parse("[1.50,1e2,-0]").expect("valid JSON");
        assert_eq!(json.to_python(NumberSpelling::AsSent), "[1.50, 1e2, -0]");
    }

    #[test]
    fn nesting_of_any_depth_is_printed_without_recursion() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        assert_eq!(print(&deep), deep);
    }
}

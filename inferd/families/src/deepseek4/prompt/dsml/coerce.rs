//! From what the model wrote as a value to JSON, with the schema's help where it leaves no doubt.

use super::schema::Types;
use ds4_model::JsonText;

/// The JSON of a value that was announced as text.
pub(super) fn from_text(text: &str, types: Types, coerce: bool) -> String {
    if coerce
        && !types.allows(Types::STRING)
        && let Some(json) = as_type(text.trim(), types)
    {
        return json;
    }
    JsonText::from_str_value(text).as_str().to_owned()
}

/// The JSON of a value that was announced as JSON. What is no JSON becomes a string.
pub(super) fn from_json(text: &str, types: Types, coerce: bool) -> String {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return "null".to_owned();
    }
    let Ok(json) = JsonText::parse(trimmed) else { return from_broken(text, types, coerce) };
    if coerce
        && !types.allows(Types::STRING)
        && let Some(inner) = json.to_string_value()
        && let Some(converted) = as_type(inner.trim(), types)
    {
        return converted;
    }
    json.to_minified()
}

fn from_broken(text: &str, types: Types, coerce: bool) -> String {
    let spelled = match text.trim() {
        "True" if types.allows(Types::BOOLEAN) => "true",
        "False" if types.allows(Types::BOOLEAN) => "false",
        "None" if types.allows(Types::NULL) => "null",
        _ => return from_text(text, types, coerce),
    };
    spelled.to_owned()
}

/// `text` as JSON of one of these types, none of which is a string.
fn as_type(text: &str, types: Types) -> Option<String> {
    let spelled = match text {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        other => other,
    };
    let kind = match spelled.as_bytes().first()? {
        b't' | b'f' => Types::BOOLEAN,
        b'n' => Types::NULL,
        b'{' => Types::OBJECT,
        b'[' => Types::ARRAY,
        b'"' => return None,
        _ if spelled.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') && types.allows(Types::INTEGER) => {
            Types::INTEGER
        }
        _ => Types::NUMBER,
    };
    let json = JsonText::parse(spelled).ok().filter(|_| types.allows(kind))?;
    Some(json.to_minified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_converted_only_when_the_schema_leaves_no_doubt() {
        assert_eq!(from_text("true", Types::BOOLEAN, true), "true");
        assert_eq!(from_text(" True ", Types::BOOLEAN, true), "true");
        assert_eq!(from_text("3", Types::INTEGER, true), "3");
        assert_eq!(from_text("1.50", Types::NUMBER, true), "1.50");
        assert_eq!(from_text("12", Types::NUMBER, true), "12");
        assert_eq!(from_text("[1, 2]", Types::ARRAY, true), "[1,2]");
        assert_eq!(from_text("3", Types::ANY, true), "\"3\"");
        assert_eq!(from_text("3", Types::INTEGER, false), "\"3\"");
        assert_eq!(from_text("3.5", Types::INTEGER, true), "\"3.5\"");
        assert_eq!(from_text("yes", Types::BOOLEAN, true), "\"yes\"");
        assert_eq!(from_text("{a}", Types::OBJECT, true), "\"{a}\"");
    }

    #[test]
    fn json_is_minified_and_what_is_none_becomes_a_string() {
        assert_eq!(from_json(" {\"a\": [1.50, \"\\ud83d\"]} ", Types::ANY, true), "{\"a\":[1.50,\"\u{FFFD}\"]}");
        assert_eq!(from_json("", Types::ANY, true), "null");
        assert_eq!(from_json("True", Types::ANY, true), "true");
        assert_eq!(from_json("None", Types::STRING, true), "\"None\"");
        assert_eq!(from_json("\"true\"", Types::BOOLEAN, true), "true");
        assert_eq!(from_json("\"3\"", Types::INTEGER, true), "3");
        assert_eq!(from_json("\"3\"", Types::ANY, true), "\"3\"");
        assert_eq!(from_json("hello", Types::ANY, true), "\"hello\"");
        assert_eq!(from_json("{a: 1}", Types::OBJECT, true), "\"{a: 1}\"");
    }
}

//! Masks over a vocabulary of full size: what they let through, and that they are repeatable.

mod support;

use ds4_grammar::{Grammars, MaskError};
use ds4_model::TokenConstraint;
use ds4_units::TokenId;
use serde_json::{Value, json};
use std::sync::OnceLock;
use support::{Vocabulary, Walk, full_size, ids, schemas};

fn shared() -> &'static (Vocabulary, Grammars) {
    static SHARED: OnceLock<(Vocabulary, Grammars)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let vocabulary = full_size();
        let grammars = vocabulary.grammars();
        (vocabulary, grammars)
    })
}

fn schema(name: &str) -> Value {
    schemas().into_iter().find(|(known, _)| *known == name).expect("a known schema").1
}

/// How many tokens of `text` follow the schema, and whether it is complete after them.
fn accepted(schema: &Value, text: &str) -> (bool, bool) {
    let (vocabulary, grammars) = shared();
    let mut mask = grammars.json_schema(schema, None).expect("a supported schema");
    for token in vocabulary.encode(text) {
        if !ids(mask.allowed().expect("a mask")).contains(&token) {
            println!("{text}: refused at {:?}", String::from_utf8_lossy(vocabulary.bytes(token)));
            return (false, false);
        }
        mask.push(token);
    }
    (true, ids(mask.allowed().expect("a mask")).contains(&vocabulary.end))
}

#[test]
fn answers_drawn_at_random_from_the_masks_follow_their_schema() {
    let (vocabulary, grammars) = shared();
    for (name, schema) in schemas() {
        for seed in 0..3 {
            let mut walk = Walk::new(grammars.json_schema(&schema, None).expect("supported"), seed);
            let ended = (0..150).any(|_| walk.step(vocabulary).is_none());
            let bytes: Vec<u8> = walk.tokens.iter().flat_map(|&token| vocabulary.bytes(token)).copied().collect();
            if ended {
                let answer: Value = serde_json::from_slice(&bytes).expect("a complete answer is JSON");
                assert!(answer.is_object(), "{name}: {answer}");
                let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                assert!(required.clone().all(|key| answer.get(key).is_some()), "{name}: {answer}");
            }
            let control = walk.tokens.iter().find(|&&token| vocabulary.tokenizer.is_control(token));
            assert_eq!(control, None, "{name}: a control token is no text");
        }
    }
}

#[test]
fn what_follows_the_schema_is_allowed_and_what_does_not_is_not() {
    let person = schema("person");
    for text in [
        r#"{"name":"Ada","age":36}"#,
        "{\n  \"name\": \"Ada Lovelace 😀 \\u00e9\",\n  \"age\": 36,\n  \"tags\": [\"math\", \"poetry\"]\n}",
        r#"{"name": "x", "age": 0, "email": "ada@example.org"}"#,
    ] {
        assert_eq!(accepted(&person, text), (true, true), "{text}");
    }
    for text in [
        r#"{"name":"Ada","age":-1}"#,
        r#"{"name":"Ada","age":151}"#,
        r#"{"name":"Ada","age":"36"}"#,
        r#"{"name":"Ada","size":1"#,
        r#"{"name":"Ada","age":36,"tags":["UPPER"]}"#,
        "Sure! {",
        "[1]",
        "```json",
    ] {
        assert!(!accepted(&person, text).0, "{text}");
    }
    assert_eq!(accepted(&person, r#"{"name":"Ada""#), (true, false), "not complete");
    assert_eq!(accepted(&schema("tree"), r#"{"kind":"branch","children":[{"kind":"leaf"}]}"#), (true, true));
}

#[test]
fn only_a_complete_answer_may_end_and_then_nothing_else_may_follow() {
    let (vocabulary, grammars) = shared();
    let mut mask = grammars.json_schema(&json!({"type": "object"}), None).expect("a mask");
    assert!(!ids(mask.allowed().unwrap()).contains(&vocabulary.end));
    for token in vocabulary.encode("{}") {
        mask.push(token);
    }
    assert_eq!(ids(mask.allowed().unwrap()), [vocabulary.end]);
}

#[test]
fn rows_without_a_token_and_control_tokens_are_never_allowed() {
    let (vocabulary, grammars) = shared();
    let mut mask = grammars.json_schema(&json!({"type": "object"}), None).expect("a mask");
    for token in vocabulary.encode(r#"{"text": "a string that can hold anything"#) {
        mask.push(token);
    }
    let allowed = ids(mask.allowed().unwrap());
    assert!(allowed.len() > 100_000, "a string holds most tokens: {}", allowed.len());
    for token in allowed {
        assert!(token.index() < vocabulary.tokenizer.vocabulary_len() && !vocabulary.tokenizer.is_control(token));
    }
}

#[test]
fn the_same_tokens_give_the_same_masks_whatever_went_before() {
    let (vocabulary, grammars) = shared();
    let schema = schema("steps");
    let mut first = Walk::new(grammars.json_schema(&schema, None).expect("supported"), 11);
    let mut masks = Vec::new();
    for _ in 0..60 {
        masks.push(first.mask.allowed().expect("a mask").to_vec());
        if first.step(vocabulary).is_none() {
            break;
        }
    }
    let fresh = vocabulary.grammars();
    for grammars in [grammars, &fresh] {
        let mut again = grammars.json_schema(&schema, None).expect("supported");
        for (position, mask) in masks.iter().enumerate() {
            assert!(again.allowed().expect("a mask") == mask, "position {position}");
            if let Some(&token) = first.tokens.get(position) {
                again.push(token);
            }
        }
    }
}

#[test]
fn a_token_that_breaks_the_schema_ends_the_masks_with_an_error() {
    let (vocabulary, grammars) = shared();
    let mut mask = grammars.json_schema(&json!({"type": "object"}), None).expect("a mask");
    let [word] = vocabulary.encode("Sure")[..] else { panic!("one token") };
    mask.push(word);
    assert_eq!(mask.allowed(), Err(MaskError::TokenNotAllowed { token: word.0 }));
    mask.push(TokenId(0));
    assert_eq!(mask.allowed(), Err(MaskError::TokenNotAllowed { token: word.0 }), "it stays ended");
}

#[test]
fn white_space_alone_cannot_go_on_for_ever() {
    let (vocabulary, grammars) = shared();
    let mut mask = grammars.json_schema(&json!({"type": "object"}), None).expect("a mask");
    mask.push(vocabulary.encode("{")[0]);
    let [space] = vocabulary.encode(" ")[..] else { panic!("one token") };
    let mut count = 0;
    while ids(mask.allowed().expect("a mask")).contains(&space) {
        mask.push(space);
        count += 1;
        assert!(count < 100);
    }
    assert_eq!(count, 64);
}

#[test]
fn a_client_cannot_change_the_options_of_the_engine() {
    let schema = json!({"type": "object", "x-guidance": {"whitespace_pattern": "x*", "lenient": true}});
    assert_eq!(accepted(&schema, "{\"a\": 1}"), (true, true));
    assert!(!accepted(&schema, "xxx{").0);
}

#[test]
fn an_answer_that_begins_once_more_is_held_to_its_beginning() {
    let (vocabulary, grammars) = shared();
    let mut mask = grammars.json_schema(&schema("person"), None).expect("supported");
    let beginning = mask.allowed().expect("a mask").to_vec();
    for token in vocabulary.encode("{\"name\": \"A") {
        mask.push(token);
    }
    assert!(mask.allowed().expect("a mask") != beginning);
    mask.restart();
    assert!(mask.allowed().expect("a mask") == beginning);
}

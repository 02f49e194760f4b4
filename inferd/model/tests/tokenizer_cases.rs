//! The tokenizer against ids that the reference implementation gave for the same strings.

mod fixture;

use ds4_model::{Detokenizer, Prompt, Tokenizer};
use ds4_units::TokenId;
use fixture::Vocabulary;
use serde_json::Value;
use std::sync::Arc;

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("a list of ids")
}

fn encode(tokenizer: &Tokenizer, prompt: &Prompt) -> Vec<u32> {
    tokenizer.encode(prompt).into_iter().map(|token| token.0).collect()
}

fn plain(text: &str) -> Prompt {
    let mut prompt = Prompt::new();
    prompt.push_text(text);
    prompt
}

#[test]
fn all_323_reference_cases_come_out_token_for_token() {
    let tokenizer = Arc::new(Vocabulary::reference().build());
    let cases = fixture::json("tokenizer/cases.json.zst");
    let cases = cases.as_array().expect("a list");
    assert_eq!(cases.len(), 323);
    for case in cases {
        let text = case["text"].as_str().expect("text");
        let trusted = ids(&case["ids"]);
        let typed = case.get("ids_plain_text").map_or_else(|| trusted.clone(), ids);
        assert_eq!(encode(&tokenizer, &tokenizer.parse_trusted(text)), trusted, "trusted {text:?}");
        assert_eq!(encode(&tokenizer, &plain(text)), typed, "typed {text:?}");

        let mut detokenizer = Detokenizer::new(tokenizer.clone());
        let mut back: String = typed.iter().map(|&id| detokenizer.push(TokenId(id))).collect();
        back += &detokenizer.finish();
        assert_eq!(back, text);
    }
}

#[test]
fn typed_spellings_of_control_tokens_stay_text() {
    let vocabulary = Vocabulary::reference();
    let tokenizer = vocabulary.build();
    let spellings: Vec<&String> =
        vocabulary.tokens.iter().zip(&vocabulary.types).filter(|(_, kind)| **kind != 1).map(|(text, _)| text).collect();
    assert_eq!(spellings.len(), 1283);
    for spelling in spellings {
        let typed = tokenizer.encode(&plain(spelling));
        assert!(typed.iter().all(|&token| !tokenizer.is_control(token)), "{spelling}");
        let bytes: Vec<u8> =
            typed.iter().flat_map(|&token| tokenizer.token_bytes(token).expect("a token")).copied().collect();
        assert_eq!(bytes, spelling.as_bytes());
        let trusted = tokenizer.encode(&tokenizer.parse_trusted(spelling));
        assert_eq!(trusted, [tokenizer.token(spelling).expect("in the vocabulary")]);
    }
}

#[test]
fn the_longest_spelling_wins_in_trusted_text() {
    let tokenizer = Vocabulary::small(&[], &["<a", "<a>", "<a>>b"]).build();
    let spelled: Vec<_> = ["<a", "<a>", "<a>>b"].map(|spelling| tokenizer.token(spelling).expect("a token")).into();
    let read = |text: &str| tokenizer.encode(&tokenizer.parse_trusted(text));
    assert_eq!(read("<a<a><a>>b"), spelled);
    assert_eq!(read("<a>>")[0], spelled[1]);
}

//! Properties that hold for every text and for every stream of tokens.

mod fixture;

use ds4_model::{Detokenizer, JsonText, NumberSpelling, Prompt, PromptRecord, TextTooLarge, Tokenizer, ToolArguments};
use ds4_units::{TokenId, Tokens};
use fixture::Vocabulary;
use proptest::prelude::*;
use std::sync::{Arc, OnceLock};

fn tokenizer() -> Arc<Tokenizer> {
    static TOKENIZER: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    TOKENIZER.get_or_init(|| Arc::new(Vocabulary::reference().build())).clone()
}

fn encode(text: &str) -> Vec<TokenId> {
    let mut tokens = Vec::new();
    tokenizer().encode_text(text, &mut tokens);
    tokens
}

/// The text of tokens that all are text.
fn decode(tokens: &[TokenId]) -> String {
    let mut detokenizer = Detokenizer::new(tokenizer());
    let text: String = tokens.iter().map(|&token| detokenizer.push(token)).collect();
    text + &detokenizer.finish()
}

/// Text with what the splitting rules look at: scripts, digits, punctuation, all kinds of white space, markers.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        any::<String>(),
        "[a-zA-Zéß]{1,8}",
        "[ \\t\\n\\r\u{b}\u{85}\u{a0}\u{3000}]{1,4}",
        "[0-9\u{661}-\u{669}]{1,7}",
        "[一-龥ぁ-んア-ン]{1,4}",
        "[!-/:-@。、]{1,3}",
        Just("<｜User｜>".to_owned()),
        Just("</think>".to_owned()),
        Just("｜DSML｜".to_owned()),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn every_text_comes_back_from_its_tokens_and_none_is_a_control_token(text in text()) {
        let tokens = encode(&text);
        prop_assert!(tokens.iter().all(|&token| !tokenizer().is_control(token)));
        prop_assert_eq!(decode(&tokens), text);
    }

    #[test]
    fn trusted_text_is_the_same_bytes_as_its_pieces(text in text()) {
        let tokenizer = tokenizer();
        let tokens = tokenizer.encode(&tokenizer.parse_trusted(&text));
        let bytes: Vec<u8> =
            tokens.iter().flat_map(|&token| tokenizer.token_bytes(token).expect("a token")).copied().collect();
        prop_assert_eq!(bytes, text.into_bytes());
    }

    #[test]
    fn any_token_stream_is_text_and_arrives_in_whole_characters(ids in prop::collection::vec(0..130_000_u32, 0..40)) {
        let tokens: Vec<TokenId> = ids.into_iter().map(TokenId).collect();
        let text = decode(&tokens);
        prop_assert!(!text.contains("<｜"));
    }

    #[test]
    fn printing_json_keeps_its_value(text in text(), whole in any::<i64>()) {
        let value = serde_json::json!({"b": [text.clone(), whole, 0.5], "a": {text: null}});
        for json in [value.to_string(), serde_json::to_string_pretty(&value).expect("JSON")] {
            let json = JsonText::parse(&json).expect("JSON");
            for numbers in [NumberSpelling::AsSent, NumberSpelling::Python] {
                let printed: serde_json::Value = serde_json::from_str(&json.to_python(numbers)).expect("JSON");
                prop_assert_eq!(&printed, &value);
            }
            prop_assert_eq!(json.members().expect("an object").len(), 2);
        }
    }

    #[test]
    fn a_number_printed_as_python_does_is_the_same_number(number in any::<f64>()) {
        let printed = JsonText::parse(&format!("{number:?}")).expect("JSON").to_python(NumberSpelling::Python);
        prop_assert_eq!(printed.parse::<f64>(), Ok(number));
    }

    #[test]
    fn any_arguments_text_is_read(text in any::<String>()) {
        let _ = ToolArguments::parse(&text);
        let _ = ToolArguments::parse(&format!("{{{text}}}"));
    }
}

#[test]
fn long_texts_without_a_boundary_are_encoded() {
    // One piece of a million bytes each: anything quadratic would not come back.
    for (unit, tokens) in [("a", 125_000), (" ", 7_813), ("\0", 1_000_000), ("!", 125_000)] {
        let text = unit.repeat(1_000_000);
        let encoded = encode(&text);
        assert_eq!(encoded.len(), tokens, "{unit:?}");
        assert!(decode(&encoded) == text, "{unit:?}");
    }
}

#[test]
fn adjacent_texts_are_encoded_as_one() {
    let mut prompt = Prompt::new();
    prompt.push_text("Hel");
    prompt.push_text("lo");
    assert_eq!(tokenizer().encode(&prompt), encode("Hello"));
}

#[test]
fn a_prompt_that_fits_is_the_same_with_a_bound_and_a_larger_one_is_counted_or_given_up() {
    let tokenizer = tokenizer();
    let prompt = |text: &str| {
        let mut prompt = Prompt::new();
        prompt.push_control(TokenId(0));
        prompt.push_text(text);
        prompt
    };
    let within = |text: &str, most: u32| {
        let record = PromptRecord::within(&prompt(text), &tokenizer, Tokens(most))?;
        assert!(record == PromptRecord::new(&prompt(text), &tokenizer), "{text:.20}");
        Ok(record.tokens().len())
    };
    assert_eq!(within("one two three", 4), Ok(4));
    assert_eq!(within("one two three", 3), Err(TextTooLarge::Tokens { at_least: Tokens(4) }));
    let words = " word".repeat(1_000);
    assert_eq!(within(&words, 600), Err(TextTooLarge::Tokens { at_least: Tokens(1_001) }), "exact, not far above");
    assert_eq!(within(&words, 100), Err(TextTooLarge::Tokens { at_least: Tokens(401) }), "given up");
    // Surely too long by its bytes alone: not tokenised at all.
    let letters = "a".repeat(64 << 20);
    assert_eq!(within(&letters, 1_000), Err(TextTooLarge::Tokens { at_least: Tokens((64 << 20) / 128 + 1) }));
    let unbroken = TextTooLarge::Unbroken { bytes: 2 << 20, limit: 1 << 20 };
    assert_eq!(within(&letters[..2 << 20], 1_000_000), Err(unbroken));
}

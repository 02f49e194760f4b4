//! What a cached conversation may lend to a new prompt.

mod fixture;

use ds4_model::{Overlap, Prompt, PromptRecord, Tokenizer};
use ds4_units::{TokenId, Tokens};
use fixture::Vocabulary;

/// 256 bytes, `he`, `ll`, `hell`, `hello` and two control tokens.
fn tokenizer() -> Tokenizer {
    Vocabulary::small(&["h e", "l l", "he ll", "hell o"], &["<U>", "<A>"]).build()
}

/// A prompt in which `<U>` and `<A>` as whole parts are control tokens.
fn prompt(tokenizer: &Tokenizer, parts: &[&str]) -> Prompt {
    let mut prompt = Prompt::new();
    for part in parts {
        match *part {
            "<U>" | "<A>" => prompt.push_control(tokenizer.token(part).expect("a control token")),
            text => prompt.push_text(text),
        }
    }
    prompt
}

fn record(tokenizer: &Tokenizer, parts: &[&str]) -> PromptRecord {
    PromptRecord::new(&prompt(tokenizer, parts), tokenizer)
}

/// The tokens of single bytes of an ASCII text, as a model might generate it.
fn bytewise(tokenizer: &Tokenizer, text: &str) -> Vec<TokenId> {
    text.chars().map(|c| tokenizer.token(&c.to_string()).expect("a byte")).collect()
}

fn overlap(record: &PromptRecord, prompt: &PromptRecord) -> (u32, u32) {
    let Overlap { reused, total } = record.overlap(prompt);
    (reused.0, total.0)
}

#[test]
fn a_typed_control_token_cannot_match_one_in_a_cached_prefix() {
    let tokenizer = tokenizer();
    let cached = record(&tokenizer, &["<U>", "hi", "<U>", "hello"]);
    let mut typed = Prompt::new();
    typed.push_control(tokenizer.token("<U>").expect("a control token"));
    typed.push_text("hi<U>hello");
    let typed = PromptRecord::new(&typed, &tokenizer);
    assert!(typed.tokens()[1..].iter().all(|&token| !tokenizer.is_control(token)));
    // `<U>`, `h` and `i` are the same tokens; the typed `<` is not the control token.
    assert_eq!(overlap(&cached, &typed), (3, 3 + 3 + 1));
    assert_eq!(cached.adopt(&typed).tokens(), typed.tokens());

    // A spelling that is a piece of its own is still text.
    let cached = record(&tokenizer, &["<A>", "<U>", "<A>"]);
    let mut typed = Prompt::new();
    typed.push_control(tokenizer.token("<A>").expect("a control token"));
    typed.push_text("<U>");
    typed.push_control(tokenizer.token("<A>").expect("a control token"));
    assert_eq!(overlap(&cached, &PromptRecord::new(&typed, &tokenizer)), (1, 5));
    assert_eq!(overlap(&PromptRecord::new(&typed, &tokenizer), &cached), (1, 3));
}

#[test]
fn a_cached_typed_spelling_lends_nothing_to_the_control_token() {
    let tokenizer = tokenizer();
    let mut typed = Prompt::new();
    typed.push_control(tokenizer.token("<U>").expect("a control token"));
    typed.push_text("hi<U>hello");
    let typed = PromptRecord::new(&typed, &tokenizer);
    let real = record(&tokenizer, &["<U>", "hi", "<U>", "hello"]);
    assert_eq!(overlap(&typed, &real), (3, 5));
}

#[test]
fn the_same_prompt_is_reused_whole() {
    let tokenizer = tokenizer();
    let cached = record(&tokenizer, &["<U>", "hello", "<A>"]);
    assert_eq!(overlap(&cached, &cached.clone()), (3, 3));
    assert_eq!(overlap(&PromptRecord::default(), &cached), (0, 3));
    assert_eq!(overlap(&cached, &PromptRecord::default()), (0, 0));
}

#[test]
fn what_the_model_chose_is_kept_even_where_the_tokenizer_would_choose_otherwise() {
    let tokenizer = tokenizer();
    let mut cached = record(&tokenizer, &["<U>", "hello", "<A>"]);
    for token in bytewise(&tokenizer, "hello") {
        cached.push_generated(token, &tokenizer);
    }
    cached.push_generated(tokenizer.token("<U>").expect("a control token"), &tokenizer);

    let next = record(&tokenizer, &["<U>", "hello", "<A>", "hello", "<U>", "hello", "<A>"]);
    assert_eq!(next.tokens().len(), 7);
    assert_eq!(overlap(&cached, &next), (9, 11));
    let adopted = cached.adopt(&next);
    assert_eq!(adopted.tokens()[..9], *cached.tokens());
    assert_eq!(adopted.tokens()[9..], next.tokens()[5..]);
    // The adopted record is as good as one that was generated.
    assert_eq!(overlap(&adopted, &next), (11, 11));
}

#[test]
fn a_longer_text_is_tokenised_from_its_control_boundary() {
    let tokenizer = tokenizer();
    let cached = record(&tokenizer, &["<U>", "hell"]);
    let longer = record(&tokenizer, &["<U>", "hello"]);
    // `hell` was one token; in `hello` it is none.
    assert_eq!(overlap(&cached, &longer), (1, 2));
    assert_eq!(cached.adopt(&longer).tokens(), longer.tokens());
    // Tokens of a changed text count as far as they come out the same.
    let cached = record(&tokenizer, &["<U>", "hello 1"]);
    let longer = record(&tokenizer, &["<U>", "hello 2"]);
    assert_eq!(overlap(&cached, &longer), (3, 4));
}

#[test]
fn generated_text_joins_the_text_it_continues() {
    let tokenizer = tokenizer();
    let mut cached = record(&tokenizer, &["<A>", "he"]);
    for token in bytewise(&tokenizer, "llo") {
        cached.push_generated(token, &tokenizer);
    }
    let next = record(&tokenizer, &["<A>", "hello", "<U>"]);
    assert_eq!(overlap(&cached, &next), (5, 6));
    assert_eq!(cached.adopt(&next).tokens()[..5], *cached.tokens());
}

#[test]
fn an_answer_cut_inside_a_character_never_equals_text() {
    let tokenizer = tokenizer();
    let mut cached = record(&tokenizer, &["<A>"]);
    cached.push_generated(tokenizer.token("Ã").expect("byte 0xC3"), &tokenizer);
    let next = record(&tokenizer, &["<A>", "\u{FFFD}"]);
    assert_eq!(overlap(&cached, &next), (1, 4));
}

#[test]
fn a_record_cut_inside_a_text_lends_its_tokens_but_not_its_text() {
    let tokenizer = tokenizer();
    let mut cut = record(&tokenizer, &["<U>", "x1y", "<A>"]);
    cut.truncate(Tokens(2));
    assert_eq!(cut.tokens().len(), 2);
    let same = record(&tokenizer, &["<U>", "x1y", "<A>"]);
    assert_eq!(overlap(&cut, &same), (2, 5));
    assert_eq!(overlap(&cut, &cut.clone()), (2, 2));

    // What is generated after the cut is a text of its own and must not bring the cut tokens along.
    cut.push_generated(bytewise(&tokenizer, "y")[0], &tokenizer);
    let y = record(&tokenizer, &["<U>", "y"]);
    assert_eq!(overlap(&cut, &y), (1, 2));
    assert_eq!(cut.adopt(&y).tokens(), y.tokens());
}

//! Vocabularies that lie, each refused with its own error.

mod fixture;

use ds4_gguf::{Array, Header, Metadata, Value, writer::Writer};
use ds4_model::{Tokenizer, TokenizerError, VocabularyParts};
use ds4_units::{Bytes, TokenId};
use fixture::Vocabulary;

/// A small good vocabulary: 256 bytes, `ab` (256), `abc` (257), `<x>` (258).
fn good() -> Vocabulary {
    Vocabulary::small(&["a b", "ab c"], &["<x>"])
}

fn refusal(vocabulary: &Vocabulary) -> TokenizerError {
    match Tokenizer::from_parts(vocabulary.parts()) {
        Ok(_) => panic!("accepted"),
        Err(error) => error,
    }
}

#[test]
fn the_good_vocabulary_is_accepted() {
    let tokenizer = good().build();
    assert_eq!(tokenizer.vocabulary_len(), 259);
    assert_eq!(tokenizer.token_bytes(TokenId(257)), Some(&b"abc"[..]));
    assert_eq!(tokenizer.token_bytes(TokenId(259)), None);
    assert!(!tokenizer.is_control(TokenId(u32::MAX)));
}

#[test]
fn a_repeated_token_names_both_places() {
    let mut vocabulary = good();
    vocabulary.tokens[257] = "ab".into();
    let expected = TokenizerError::DuplicateToken { first: 256, second: 257, spelling: "ab".into() };
    assert_eq!(refusal(&vocabulary), expected);
}

#[test]
fn an_empty_token_is_refused() {
    let mut vocabulary = good();
    vocabulary.tokens[258].clear();
    assert_eq!(refusal(&vocabulary), TokenizerError::EmptyToken { token: 258 });
}

#[test]
fn types_must_be_known_and_as_many_as_tokens() {
    let mut vocabulary = good();
    vocabulary.types.pop();
    assert_eq!(refusal(&vocabulary), TokenizerError::TypesDiffer { tokens: 259, types: 258 });
    for wrong in [0, 7, u64::MAX] {
        let mut vocabulary = good();
        vocabulary.types[5] = wrong;
        assert_eq!(refusal(&vocabulary), TokenizerError::UnknownType { token: 5, found: wrong });
    }
}

#[test]
fn every_byte_needs_a_text_token() {
    let mut vocabulary = good();
    let space = vocabulary.tokens.iter().position(|token| token == "Ġ").expect("the space");
    vocabulary.types[space] = 3;
    assert_eq!(refusal(&vocabulary), TokenizerError::MissingByte { byte: b' ' });
    vocabulary.types[space] = 1;
    vocabulary.tokens[space] = "ĠĠ".into();
    assert_eq!(refusal(&vocabulary), TokenizerError::MissingByte { byte: b' ' });
    let nothing = Vocabulary { tokens: vec![], types: vec![], merges: vec![] };
    assert_eq!(refusal(&nothing), TokenizerError::MissingByte { byte: 0 });
}

#[test]
fn merges_must_be_two_tokens_that_make_a_third() {
    for malformed in ["ab", "", " ", "a ", " b", "a b c", "a  b"] {
        let mut vocabulary = good();
        vocabulary.merges[1] = malformed.into();
        assert_eq!(refusal(&vocabulary), TokenizerError::MalformedMerge { merge: 1, found: malformed.into() });
    }
    for (merge, outside) in [("abx c", "abx"), ("a abx", "abx"), ("b c", "bc")] {
        let mut vocabulary = good();
        vocabulary.merges[1] = merge.into();
        let expected = TokenizerError::MergeOutsideVocabulary { merge: 1, spelling: outside.into() };
        assert_eq!(refusal(&vocabulary), expected);
    }
}

#[test]
fn merges_that_make_a_control_token_are_refused_because_text_could_become_it() {
    let mut vocabulary = Vocabulary::small(&["< x", "<x >"], &[]);
    vocabulary.types[257] = 3;
    let expected = TokenizerError::MergeMakesControl { merge: 1, spelling: "<x>".into() };
    assert_eq!(refusal(&vocabulary), expected);
}

#[test]
fn unknown_splitting_rules_are_refused_by_name() {
    let vocabulary = good();
    let Err(error) = Tokenizer::from_parts(VocabularyParts { split: "llama-bpe", ..vocabulary.parts() }) else {
        panic!("accepted")
    };
    assert_eq!(error.to_string(), "tokenizer.ggml.pre is \"llama-bpe\"; this build knows joyai-llm");
}

#[test]
fn special_tokens_are_found_by_spelling_and_must_be_control_tokens() {
    let tokenizer = good().build();
    assert_eq!(tokenizer.control("<x>"), Ok(TokenId(258)));
    assert_eq!(tokenizer.control("<y>"), Err(TokenizerError::NoSuchControl { spelling: "<y>" }));
    assert_eq!(tokenizer.control("ab"), Err(TokenizerError::NotControl { spelling: "ab", token: 256 }));
}

/// The metadata of a file that holds the good vocabulary and then `changes`.
fn metadata(changes: &[(&str, Value)]) -> Metadata {
    let Vocabulary { tokens, types, merges } = good();
    let types = types.into_iter().map(|kind| kind as i32).collect();
    let mut writer = Writer::new("example")
        .value("tokenizer.ggml.model", "gpt2".into())
        .value("tokenizer.ggml.pre", "joyai-llm".into())
        .value("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)))
        .value("tokenizer.ggml.token_type", Value::Array(Array::I32(types)))
        .value("tokenizer.ggml.merges", Value::Array(Array::String(merges)));
    for (key, value) in changes {
        writer = writer.value(key, value.clone());
    }
    let bytes = writer.to_bytes();
    let size = Bytes(bytes.len() as u64);
    Header::read(&bytes[..], size, Bytes::mib(1)).expect("a valid header").metadata
}

#[test]
fn a_gguf_file_gives_the_tokenizer_it_describes() {
    let tokenizer = Tokenizer::from_gguf(&metadata(&[])).expect("a vocabulary");
    assert_eq!(tokenizer.token("abc"), Some(TokenId(257)));
    assert!(tokenizer.is_control(TokenId(258)));
}

#[test]
fn metadata_without_a_key_is_refused_by_that_key() {
    let mut values: Vec<(String, Value)> = Vec::new();
    for key in ["model", "tokens", "token_type", "merges", "pre"] {
        let key = format!("tokenizer.ggml.{key}");
        let mut writer = Writer::new("example");
        for (there, value) in &values {
            writer = writer.value(there, value.clone());
        }
        let bytes = writer.to_bytes();
        let size = Bytes(bytes.len() as u64);
        let incomplete = Header::read(&bytes[..], size, Bytes::mib(1)).expect("a valid header").metadata;
        let error = Tokenizer::from_gguf(&incomplete).err().expect("a refusal");
        assert_eq!(error.to_string(), format!("metadata key {key} is missing"));
        values.push((key.clone(), metadata(&[]).get(&key).expect("a value").clone()));
    }
}

#[test]
fn metadata_of_the_wrong_kind_is_refused() {
    let refusal = |key, value| Tokenizer::from_gguf(&metadata(&[(key, value)])).err().expect("a refusal").to_string();
    assert_eq!(
        refusal("tokenizer.ggml.model", "llama".into()),
        "tokenizer.ggml.model is \"llama\"; only byte-level BPE (\"gpt2\") is supported"
    );
    assert_eq!(
        refusal("tokenizer.ggml.tokens", Value::U32(7)),
        "metadata key \"tokenizer.ggml.tokens\" is u32; it must be an array of strings"
    );
    assert_eq!(
        refusal("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1, -1]))),
        "metadata key \"tokenizer.ggml.token_type\" is -1; it must not be negative"
    );
}

//! The full-size vocabulary, some schemas, and random answers that follow them.

#![allow(dead_code, reason = "each user needs a part")]

use ds4_grammar::{GrammarMask, Grammars};
use ds4_model::{Tokenizer, VocabularyParts};
use ds4_units::TokenId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// A vocabulary and the token that ends answers.
pub(crate) struct Vocabulary {
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) end: TokenId,
}

impl Vocabulary {
    pub(crate) fn grammars(&self) -> Grammars {
        Grammars::new(self.tokenizer.clone(), &[self.end], self.rows()).expect("threads and a vocabulary")
    }

    /// A few rows more than there are tokens, as padded models have them.
    pub(crate) fn rows(&self) -> usize {
        self.tokenizer.vocabulary_len() + 7
    }

    pub(crate) fn bytes(&self, token: TokenId) -> &[u8] {
        self.tokenizer.token_bytes(token).unwrap_or_default()
    }

    pub(crate) fn encode(&self, text: &str) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        self.tokenizer.encode_text(text, &mut tokens);
        tokens
    }
}

/// The 129,280 tokens of the fixtures; `tests/fixtures/README.md` describes the file.
pub(crate) fn full_size() -> Vocabulary {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizer/vocabulary.txt.zst");
    let text = zstd::decode_all(std::fs::File::open(path).expect("the fixture")).expect("a zstd file");
    let text = String::from_utf8(text).expect("UTF-8 text");
    let mut sections = text.split("\n\n");
    let tokens: Vec<String> = sections.next().expect("tokens").lines().map(str::to_owned).collect();
    let types: Vec<u64> = sections.next().expect("types").bytes().map(|digit| u64::from(digit - b'0')).collect();
    let lengths = sections.next().expect("merges").lines().map(|line| line.parse().expect("a number"));
    let split = |(made, length): (&String, usize)| {
        let (at, _) = made.char_indices().nth(length).expect("a right part");
        format!("{} {}", &made[..at], &made[at..])
    };
    let merges: Vec<String> = tokens[259..].iter().zip(lengths).map(split).collect();
    let parts = VocabularyParts { tokens: &tokens, types: &types, merges: &merges, split: "joyai-llm" };
    let tokenizer = Arc::new(Tokenizer::from_parts(parts).expect("a valid vocabulary"));
    // Token 1 ends a turn in this vocabulary.
    Vocabulary { tokenizer, end: TokenId(1) }
}

/// Schemas from trivial to what agents send.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let person = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "email": {"type": "string", "format": "email"},
            "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z-]{1,12}$"}, "maxItems": 5},
        },
        "required": ["name", "age"],
        "additionalProperties": false,
    });
    let tree = json!({
        "$defs": {"node": {
            "type": "object",
            "properties": {"kind": {"enum": ["leaf", "branch"]}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["kind"],
            "additionalProperties": false,
        }},
        "$ref": "#/$defs/node",
    });
    let step = json!({
        "type": "object",
        "properties": {
            "steps": {"type": "array", "items": {
                "anyOf": [
                    {"type": "object", "properties": {"run": {"type": "string"}, "cwd": {"type": ["string", "null"]}},
                     "required": ["run", "cwd"], "additionalProperties": false},
                    {"type": "object", "properties": {"edit": {"type": "string"}, "line": {"type": "integer"}, "text": {"type": "string"}},
                     "required": ["edit", "line", "text"], "additionalProperties": false},
                ],
            }},
            "done": {"type": "boolean"},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["steps", "done", "confidence"],
        "additionalProperties": false,
    });
    let wide: serde_json::Map<String, Value> =
        (0..120).map(|i| (format!("field_{i}"), json!({"type": ["string", "number", "null"]}))).collect();
    vec![
        ("json_object", json!({"type": "object"})),
        ("person", person),
        ("tree", tree),
        ("steps", step),
        ("wide", json!({"type": "object", "properties": wide, "additionalProperties": {"type": "string"}})),
    ]
}

/// A random answer that a mask allows, token by token.
pub(crate) struct Walk {
    pub(crate) mask: GrammarMask,
    pub(crate) tokens: Vec<TokenId>,
    random: StdRng,
}

impl Walk {
    pub(crate) fn new(mask: GrammarMask, seed: u64) -> Walk {
        Walk { mask, tokens: Vec::new(), random: StdRng::seed_from_u64(seed) }
    }

    /// Draws the next token, all allowed ones alike; `None` once the answer ends.
    pub(crate) fn step(&mut self, vocabulary: &Vocabulary) -> Option<TokenId> {
        let allowed = ids(self.mask.allowed().expect("a mask"));
        // An answer that may end does so now and then, or random ones would go on for ever.
        let ends = allowed.contains(&vocabulary.end) && (allowed.len() == 1 || self.random.random_bool(0.3));
        if ends {
            return None;
        }
        let token = allowed[self.random.random_range(0..allowed.len())];
        self.tokens.push(token);
        self.mask.push(token);
        Some(token)
    }
}

/// The tokens of a mask.
pub(crate) fn ids(mask: &[u32]) -> Vec<TokenId> {
    let bits = |(word, bits): (usize, &u32)| {
        let bits = *bits;
        (0..32u32).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| TokenId(word as u32 * 32 + bit))
    };
    mask.iter().enumerate().flat_map(bits).collect()
}

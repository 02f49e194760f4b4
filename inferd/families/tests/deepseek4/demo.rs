//! The trained demo model's reference conversations, token for token.

use crate::kit;
use ds4_model::{KvRounding, LogitsWanted, Model};
use ds4_units::TokenId;
use serde_json::Value;

/// Prompt tokens that go into one step: what the server feeds at a time.
const CHUNK: usize = 512;

struct Transcript {
    name: String,
    kv_rounding: KvRounding,
    prompt: Vec<TokenId>,
    answer: Vec<TokenId>,
    /// The best eight tokens after the prompt, with their logits.
    first_best: Vec<(TokenId, f32)>,
}

fn transcripts() -> Vec<Transcript> {
    let packed = std::fs::File::open(kit::root().join("tests/fixtures/demo/transcripts.json.zst")).expect("fixture");
    let text = zstd::decode_all(packed).expect("readable fixture");
    let file: Value = serde_json::from_slice(&text).expect("valid JSON");
    file["transcripts"].as_array().expect("transcripts").iter().map(transcript).collect()
}

fn transcript(value: &Value) -> Transcript {
    let token = |id: &Value| TokenId(id.as_u64().expect("an id") as u32);
    let tokens = |key: &str| value[key].as_array().expect("ids").iter().map(token).collect();
    let best = |pair: &Value| (token(&pair[0]), pair[1].as_f64().expect("a logit") as f32);
    Transcript {
        name: format!("{} ({})", value["name"].as_str().expect("a name"), value["mode"].as_str().expect("a mode")),
        kv_rounding: if value["mode"] == "plain" { KvRounding::Off } else { KvRounding::Exact },
        prompt: tokens("prompt_ids"),
        answer: tokens("ids"),
        first_best: value["first_top8"].as_array().expect("logits").iter().map(best).collect(),
    }
}

/// Generates as many tokens as the reference has; the first logits come along.
fn generate(model: &mut dyn Model, prompt: &[TokenId], count: usize) -> (Vec<f32>, Vec<TokenId>) {
    let bank = model.open_bank();
    let mut logits = Vec::new();
    for (index, chunk) in prompt.chunks(CHUNK).enumerate() {
        let step = kit::feed(model, bank, index * CHUNK, chunk, LogitsWanted::Last);
        logits = step.last_of_segment(0).expect("logits were asked for").to_vec();
    }
    let first = logits.clone();
    let mut answer = vec![kit::argmax(&logits)];
    while answer.len() < count {
        let position = prompt.len() + answer.len() - 1;
        let step = kit::feed(model, bank, position, &answer[answer.len() - 1..], LogitsWanted::Last);
        answer.push(kit::argmax(step.last_of_segment(0).expect("logits were asked for")));
    }
    model.close_bank(bank);
    (first, answer)
}

#[test]
fn every_reference_conversation_is_reproduced_token_for_token() {
    let path = kit::root().join("scripts/demo-model/ds4-demo-16m.gguf");
    let mut plain = kit::load(&path, KvRounding::Off);
    let mut rounded = kit::load(&path, KvRounding::Exact);
    for transcript in transcripts() {
        let model = match transcript.kv_rounding {
            KvRounding::Off => plain.as_mut(),
            KvRounding::Exact => rounded.as_mut(),
        };
        let (first, answer) = generate(model, &transcript.prompt, transcript.answer.len());
        assert_eq!(answer, transcript.answer, "{}", transcript.name);
        let top = transcript.first_best[0].1.abs();
        let off = |(token, logit): &(TokenId, f32)| (first[token.index()] - logit).abs() / top;
        let worst = transcript.first_best.iter().map(off).fold(0.0, f32::max);
        println!("{}: {} tokens, first logits off by {worst:.1e}", transcript.name, answer.len());
        // Rounded rows may fall on the other side of a tie; whole answers still agree.
        let allowed = if transcript.kv_rounding == KvRounding::Off { 1e-4 } else { 1e-2 };
        assert!(worst <= allowed, "{}: first logits off by {worst:.1e}", transcript.name);
    }
}

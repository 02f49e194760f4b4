//! The trained demo model's reference conversations.

use crate::kit;
use ds4_model::{DraftWish, KvRounding, LogitsWanted, Model, Segment, StepBatch};
use ds4_units::{TokenId, TokenPos};
use serde_json::Value;

/// Prompt tokens that go into one step: what the server feeds at a time.
const CHUNK: usize = 512;

pub(crate) struct Transcript {
    pub(crate) name: String,
    pub(crate) kv_rounding: KvRounding,
    pub(crate) prompt: Vec<TokenId>,
    pub(crate) answer: Vec<TokenId>,
    /// What the reference's draft block guesses after each token of the answer.
    pub(crate) drafts: Vec<TokenId>,
    /// The best eight tokens after the prompt, with their logits.
    pub(crate) first_best: Vec<(TokenId, f32)>,
}

pub(crate) fn transcripts() -> Vec<Transcript> {
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
        drafts: tokens("mtp_drafts"),
        first_best: value["first_top8"].as_array().expect("logits").iter().map(best).collect(),
    }
}

/// Generates as many tokens as the reference has; the first logits come along.
pub(crate) fn generate(model: &mut dyn Model, prompt: &[TokenId], count: usize) -> (Vec<f32>, Vec<TokenId>) {
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

/// The same answer with up to `ahead` guesses a step, and how many of the guesses were right, of all.
pub(crate) fn generate_guessing(
    model: &mut dyn Model,
    prompt: &[TokenId],
    count: usize,
    ahead: usize,
) -> (Vec<TokenId>, [usize; 2]) {
    let bank = model.open_bank();
    let mut logits = Vec::new();
    for (index, chunk) in prompt.chunks(CHUNK).enumerate() {
        let step = kit::feed(model, bank, index * CHUNK, chunk, LogitsWanted::Last);
        logits = step.last_of_segment(0).expect("logits were asked for").to_vec();
    }
    let (mut answer, mut held) = (vec![kit::argmax(&logits)], prompt.len());
    let mut counts = [0, 0];
    while answer.len() < count {
        let next = *answer.last().expect("it is not empty");
        let wish = DraftWish { bank, next, count: ahead.min(count - answer.len()), margin: 0.0 };
        let guesses = model.draft(&[wish]).expect("the block runs").remove(0);
        let row: Vec<TokenId> = std::iter::once(next).chain(guesses.iter().copied()).collect();
        let (start, logits, drafted) = (TokenPos(held as u32), LogitsWanted::Greedy, guesses.len());
        let segment = Segment { bank, start, tokens: &row, logits, drafted };
        let step = model.step(&StepBatch { segments: &[segment] }).expect("the step runs");
        let mut right = 0;
        for &drawn in step.all_drawn(0) {
            let drawn = drawn.expect("finite logits");
            if answer.len() < count {
                answer.push(drawn);
            }
            if guesses.get(right) != Some(&drawn) {
                break;
            }
            right += 1;
        }
        if drafted > 0 {
            model.accept(&[(bank, right)]).expect("they are taken");
        }
        held += 1 + right;
        counts = [counts[0] + right, counts[1] + drafted];
    }
    model.close_bank(bank);
    (answer, counts)
}

//! The demo model on the CPU, token for token.

use crate::kit;
use crate::transcripts::{generate, transcripts};
use ds4_model::KvRounding;
use ds4_units::TokenId;

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

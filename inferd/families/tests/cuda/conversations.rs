//! The demo model says on a GPU what it says on the CPU.

use crate::transcripts::{generate, transcripts};
use crate::{gpu, kit, load};
use ds4_model::KvRounding;
use ds4_units::{TokenId, Tokens};

const MODEL: &str = "scripts/demo-model/ds4-demo-16m.gguf";

#[test]
fn every_reference_conversation_is_reproduced_token_for_token() {
    let path = kit::root().join(MODEL);
    let mut plain = load(&path, KvRounding::Off);
    let mut rounded = load(&path, KvRounding::Exact);
    for transcript in transcripts() {
        let model = match transcript.kv_rounding {
            KvRounding::Off => plain.as_mut(),
            KvRounding::Exact => rounded.as_mut(),
        };
        let (first, answer) = generate(model, &transcript.prompt, transcript.answer.len());
        let top = transcript.first_best[0].1.abs();
        let off = transcript.first_best.iter().map(|(token, logit)| (first[token.index()] - logit).abs() / top);
        println!("{}: {} tokens, first logits {:.1e} off", transcript.name, answer.len(), off.fold(0.0, f32::max));
        assert_eq!(answer, transcript.answer, "{}", transcript.name);
    }
}

/// Prompts nobody has seen: pieces of the reference prompts, cut and joined.
#[test]
fn fifty_other_prompts_are_continued_as_on_the_cpu() {
    const TOKENS: usize = 24;
    let path = kit::root().join(MODEL);
    let mut device = kit::load_on(gpu(), &path, KvRounding::Exact, Tokens(1 << 14));
    let mut host = kit::load(&path, KvRounding::Exact);
    let prompts: Vec<Vec<TokenId>> = transcripts().into_iter().map(|transcript| transcript.prompt).collect();
    let short: Vec<&Vec<TokenId>> = prompts.iter().filter(|prompt| prompt.len() < 700).collect();
    let mut other = 0;
    for index in 0..50 {
        let (first, second) = (short[index % short.len()], short[(index * 7 + 3) % short.len()]);
        let cut = first.len() * (index % 5 + 1) / 6;
        let prompt: Vec<TokenId> = first[..cut.max(1)].iter().chain(second).copied().collect();
        let (host_logits, want) = generate(host.as_mut(), &prompt, TOKENS);
        let (device_logits, got) = generate(device.as_mut(), &prompt, TOKENS);
        let (top, off) =
            (host_logits.iter().fold(0.0f32, |top, x| top.max(x.abs())), crate::off(&device_logits, &host_logits));
        if want != got {
            other += 1;
            println!(
                "prompt {index} of {} tokens: {want:?} and {got:?}; first logits {:.1e} apart",
                prompt.len(),
                off / top
            );
        }
    }
    assert_eq!(other, 0, "{other} of 50 prompts are continued differently");
}

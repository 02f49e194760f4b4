//! What a request gets does not depend on who computes beside it.

use crate::support::model::hash_rule;
use crate::support::{Bench, hear};
use ds4_engine::{EngineOptions, GenerateRequest, Sampling};
use ds4_units::TokenId;
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug)]
struct Wish {
    prompt: String,
    max_tokens: u32,
    sampling: Sampling,
}

fn wish() -> impl Strategy<Value = Wish> {
    let sampling = (0u8..3, 1u64..1_000, 0u32..5, 0.3f32..1.0).prop_map(|(kind, seed, top_k, top_p)| match kind {
        0 => Sampling::GREEDY,
        1 => Sampling { seed: Some(seed), ..Sampling::DEFAULT },
        _ => Sampling { seed: Some(seed), top_k, top_p, temperature: 1.5, ..Sampling::DEFAULT },
    });
    // Few letters, so that prompts share beginnings and banks are reused.
    ("[ab]{1,60}", 0u32..40, sampling).prop_map(|(prompt, max_tokens, sampling)| Wish { prompt, max_tokens, sampling })
}

fn request(bench: &Bench, wish: &Wish) -> GenerateRequest {
    GenerateRequest { sampling: wish.sampling, ..bench.request(&wish.prompt, wish.max_tokens) }
}

fn alone(wish: &Wish) -> (String, Vec<TokenId>) {
    let bench = Bench::new(hash_rule(), 200, EngineOptions::default());
    bench.complete(request(&bench, wish)).answer()
}

fn options() -> impl Strategy<Value = EngineOptions> {
    // Steps of no time at all make the fewest prompt rows, steps of a minute the most.
    (1usize..5, 1usize..40, 0u64..2).prop_map(|(banks, prefill_rows, minutes)| EngineOptions {
        banks,
        prefill_rows: Some(prefill_rows),
        step_target: Duration::from_secs(60 * minutes),
        ..EngineOptions::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_request_gets_what_it_would_get_alone(
        wishes in proptest::collection::vec(wish(), 1..9),
        options in options(),
        failing in proptest::collection::vec(0usize..60, 0..6),
    ) {
        let bench = Bench::new(hash_rule(), 200, options);
        // A step that fails as a whole is repeated one by one; a request fails only when its own repetition does.
        failing.into_iter().for_each(|step| bench.controls.fail_step(step));
        bench.controls.hold();
        let streams: Vec<_> = wishes.iter().map(|wish| bench.submit(request(&bench, wish))).collect();
        bench.controls.release();
        for (wish, stream) in wishes.iter().zip(streams) {
            let heard = hear(stream);
            if heard.end.is_ok() {
                prop_assert_eq!(heard.answer(), alone(wish));
            }
        }
        prop_assert!(bench.controls.banks_open_most() <= options.banks);
    }
}

#[test]
fn a_seed_repeats_an_answer_and_no_seed_does_not() {
    let bench = Bench::new(hash_rule(), 200, EngineOptions::default());
    let draw = |seed| {
        let sampling = Sampling { seed, ..Sampling::DEFAULT };
        bench.complete(GenerateRequest { sampling, ..bench.request("same", 60) }).text
    };
    assert_eq!(draw(Some(3)), draw(Some(3)));
    assert_ne!(draw(Some(3)), draw(Some(4)));
    assert_ne!(draw(None), draw(None));
}

//! Logits of every position against references that others computed.

use crate::{best, kit, load, off, top};
use ds4_model::KvRounding;

#[test]
fn plain_logits_agree_with_the_reference_at_every_position() {
    for model in kit::ORACLE_MODELS {
        let Some(path) = kit::oracle(model) else { continue };
        let mut loaded = load(&path.with_extension("gguf"), KvRounding::Off);
        for prompt in kit::oracle_prompts(&path) {
            let want = kit::reference_rows(&path.with_extension("npz"), &format!("{}.hf", prompt.name));
            let got = kit::all_logits(loaded.as_mut(), &prompt.tokens);
            let top = top(&want);
            let (mut worst, mut other_choice) = (0.0f32, 0);
            for (got, want) in got.iter().zip(&want) {
                let off = off(got, want);
                worst = worst.max(off / top);
                let (choice, margin) = best(want);
                other_choice += usize::from(best(got).0 != choice && margin > 2.0 * off);
            }
            println!("{model} {}: {worst:.1e} over {} positions", prompt.name, got.len());
            assert!(worst <= 2e-3, "{model} {} is off by {worst:.1e} of the largest logit", prompt.name);
            assert_eq!(other_choice, 0, "{model} {}", prompt.name);
        }
    }
}

/// With roundings a value near a tie falls to either side, and from there on the two computations differ for good; so
/// the mean tells, as it does between two references.
#[test]
fn rounded_logits_agree_with_the_reference_in_the_mean() {
    for model in kit::ORACLE_MODELS {
        let Some(path) = kit::oracle(model) else { continue };
        let mut loaded = load(&path.with_extension("gguf"), KvRounding::Exact);
        for prompt in kit::oracle_prompts(&path) {
            let want = kit::reference_rows(&path.with_extension("npz"), &format!("{}.qat", prompt.name));
            let got = kit::all_logits(loaded.as_mut(), &prompt.tokens);
            let square = |value: f32| f64::from(value) * f64::from(value);
            let pairs = got.iter().flatten().zip(want.iter().flatten());
            let (apart, all) =
                pairs.fold((0.0, 0.0), |(apart, all), (got, want)| (apart + square(got - want), all + square(*want)));
            let rms = (apart / all).sqrt();
            let before_flip = got.iter().zip(&want).take(prompt.first_flip).map(|(got, want)| off(got, want));
            let worst = before_flip.fold(0.0, f32::max) / top(&want);
            println!("{model} {}: rms {rms:.1e}, {worst:.1e} before position {}", prompt.name, prompt.first_flip);
            assert!(rms <= 0.02, "{model} {} is off by {rms:.1e} in the mean", prompt.name);
        }
    }
}

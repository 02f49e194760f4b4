//! Guessing on a GPU: the draft block guesses what it guesses on the CPU, and answers with guesses are those without.

use crate::gpu;
use crate::kit;
use crate::transcripts::{generate_guessing, transcripts};
use ds4_model::{DraftWish, KvRounding, LogitsWanted};

#[test]
fn every_reference_conversation_is_the_same_with_guesses() {
    let mut plain = kit::load_demo_with_draft(gpu(), KvRounding::Off);
    let mut rounded = kit::load_demo_with_draft(gpu(), KvRounding::Exact);
    for ahead in [1, 3] {
        let (mut right, mut all) = (0, 0);
        for transcript in transcripts() {
            let model = match transcript.kv_rounding {
                KvRounding::Off => plain.as_mut(),
                KvRounding::Exact => rounded.as_mut(),
            };
            let (answer, counts) = generate_guessing(model, &transcript.prompt, transcript.answer.len(), ahead);
            assert_eq!(answer, transcript.answer, "{} with {ahead} guesses", transcript.name);
            (right, all) = (right + counts[0], all + counts[1]);
        }
        println!("{ahead} ahead: {right} of {all} guesses right");
        assert!(ahead > 1 || right * 100 >= all * 95, "{right} of {all} are right");
    }
}

#[test]
fn guesses_are_those_of_the_reference() {
    let mut plain = kit::load_demo_with_draft(gpu(), KvRounding::Off);
    let mut rounded = kit::load_demo_with_draft(gpu(), KvRounding::Exact);
    let (mut same, mut all) = (0, 0);
    for transcript in transcripts().iter().filter(|transcript| transcript.prompt.len() < 512) {
        let model = match transcript.kv_rounding {
            KvRounding::Off => plain.as_mut(),
            KvRounding::Exact => rounded.as_mut(),
        };
        let bank = model.open_bank();
        kit::feed(model, bank, 0, &transcript.prompt, LogitsWanted::None);
        for (index, &next) in transcript.answer.iter().enumerate().take(transcript.drafts.len()) {
            let wish = DraftWish { bank, next, count: 1, margin: 0.0 };
            same +=
                usize::from(model.draft(&[wish]).expect("the block runs")[0].first() == transcript.drafts.get(index));
            all += 1;
            kit::feed(model, bank, transcript.prompt.len() + index, &[next], LogitsWanted::None);
        }
        model.close_bank(bank);
    }
    println!("{same} of {all} guesses are the reference's");
    assert!(same * 200 >= all * 199, "{same} of {all}");
}

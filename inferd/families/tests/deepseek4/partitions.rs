//! However tokens are cut into steps, and whatever else runs beside them, logits are the same bits.

use crate::kit;
use ds4_model::{BankError, KvRounding, LogitsWanted, Model, Segment, StepBatch, StepError};
use ds4_units::{BankId, TokenId, TokenPos, Tokens};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;

const PARTITIONS: u32 = 50;

/// A conversation being fed cut by cut.
struct Feeding<'a> {
    bank: BankId,
    tokens: &'a [TokenId],
    fed: usize,
    logits: Vec<Vec<f32>>,
}

impl<'a> Feeding<'a> {
    fn new(model: &mut dyn Model, tokens: &'a [TokenId]) -> Feeding<'a> {
        Feeding { bank: model.open_bank(), tokens, fed: 0, logits: Vec::new() }
    }

    fn next(&self, count: usize) -> Segment<'a> {
        let end = (self.fed + count).min(self.tokens.len());
        Segment {
            bank: self.bank,
            start: TokenPos(self.fed as u32),
            tokens: &self.tokens[self.fed..end],
            logits: LogitsWanted::All,
            drafted: 0,
        }
    }
}

/// Feeds the conversations together, the next cuts giving how many tokens of each go into the next step.
fn feed_together(model: &mut dyn Model, feedings: &mut [Feeding<'_>], cuts: &[usize]) {
    let mut cuts = cuts.iter().copied().cycle();
    while feedings.iter().any(|feeding| feeding.fed < feeding.tokens.len()) {
        let segments: Vec<Segment<'_>> = feedings
            .iter()
            .map(|feeding| feeding.next(cuts.next().expect("cuts repeat")))
            .filter(|segment| !segment.tokens.is_empty())
            .collect();
        let logits = model.step(&StepBatch { segments: &segments }).expect("the step runs");
        for (index, segment) in segments.iter().enumerate() {
            let feeding = feedings.iter_mut().find(|feeding| feeding.bank == segment.bank).expect("its own segment");
            feeding.fed += segment.tokens.len();
            feeding.logits.extend(logits.of_segment(index).map(<[f32]>::to_vec));
        }
    }
}

#[test]
fn random_partitions_of_flash_micro_give_bit_equal_logits() {
    check_random_partitions("flash-micro");
}

#[test]
fn random_partitions_of_pro_micro_give_bit_equal_logits() {
    check_random_partitions("pro-micro");
}

#[test]
fn random_partitions_of_kshape_give_bit_equal_logits() {
    check_random_partitions("kshape");
}

#[test]
fn random_partitions_of_f16_micro_give_bit_equal_logits() {
    check_random_partitions("f16-micro");
}

/// Every prompt of the model, cut into random steps that it shares with another bank.
fn check_random_partitions(name: &str) {
    let Some(path) = kit::oracle(name) else { return };
    let model = RefCell::new(kit::load(&path.with_extension("gguf"), KvRounding::Exact));
    let prompts = kit::oracle_prompts(&path);
    let whole: Vec<_> =
        prompts.iter().map(|prompt| kit::all_logits(model.borrow_mut().as_mut(), &prompt.tokens)).collect();
    for (index, prompt) in prompts.iter().enumerate() {
        // The company is a short prompt: it is there to share steps, not to be long.
        let other =
            prompts.iter().enumerate().filter(|(at, _)| *at != index).min_by_key(|(_, other)| other.tokens.len());
        let (other, _) = other.expect("oracle models have several prompts");
        // Mostly small cuts, so that windows and compressed rows end everywhere; zero lets a conversation wait.
        let cut = prop_oneof![Just(0usize), Just(1), 2usize..6, 6usize..140];
        let cuts = prop::collection::vec(cut, 3..40).prop_filter("progress", |cuts| cuts.iter().any(|&cut| cut > 0));
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(PARTITIONS) });
        runner
            .run(&cuts, |mut cuts| {
                let model = &mut *model.borrow_mut();
                // An odd number of cuts, so that both conversations take every cut in turn; the last one keeps lists of
                // small cuts from making hundreds of steps.
                cuts.resize(cuts.len() / 2 * 2, 1);
                cuts.push(61);
                let mut feedings = [index, other].map(|of| Feeding::new(model.as_mut(), &prompts[of].tokens));
                feed_together(model.as_mut(), &mut feedings, &cuts);
                for (feeding, of) in feedings.iter().zip([index, other]) {
                    prop_assert!(feeding.logits == whole[of], "{name} {} differs", prompts[of].name);
                    model.close_bank(feeding.bank);
                }
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{name} {}: {error}", prompt.name));
    }
}

#[test]
fn eight_conversations_together_give_the_bits_they_give_alone() {
    let path = kit::oracle("flash-micro").expect("a tracked fixture");
    let mut model = kit::load(&path.with_extension("gguf"), KvRounding::Exact);
    let model = model.as_mut();
    let prompts = kit::oracle_prompts(&path);
    // Eight of their own lengths and beginnings; some read their prompt while others already write.
    let longest = prompts.iter().max_by_key(|prompt| prompt.tokens.len()).expect("a prompt");
    let conversations: Vec<&[TokenId]> = (0..8).map(|nth| &longest.tokens[nth * 5..nth * 5 + 40 + nth * 17]).collect();
    let alone: Vec<_> = conversations.iter().map(|tokens| kit::all_logits(model, tokens)).collect();
    for cuts in [vec![1], vec![1, 64, 1, 33, 0, 7, 1, 128, 2], vec![97, 1, 1, 0, 31]] {
        let mut feedings: Vec<_> = conversations.iter().map(|tokens| Feeding::new(model, tokens)).collect();
        feed_together(model, &mut feedings, &cuts);
        for (nth, feeding) in feedings.iter().enumerate() {
            assert!(feeding.logits == alone[nth], "conversation {nth}, cut {cuts:?}");
            model.close_bank(feeding.bank);
        }
    }
}

#[test]
fn a_cut_or_forked_bank_continues_with_the_bits_of_a_fresh_one() {
    let path = kit::oracle("flash-micro").expect("a tracked fixture");
    let mut model = kit::load(&path.with_extension("gguf"), KvRounding::Exact);
    let model = model.as_mut();
    let prompt = &kit::oracle_prompts(&path)[0];
    let whole = kit::all_logits(model, &prompt.tokens);
    let bank = model.open_bank();
    kit::feed(model, bank, 0, &prompt.tokens[..131], LogitsWanted::None);
    model.checkpoint(bank).unwrap();
    kit::feed(model, bank, 131, &prompt.tokens[131..300], LogitsWanted::None);

    assert_eq!(model.restorable(bank, Tokens(299)), Ok(Tokens(131)));
    assert_eq!(model.restorable(bank, Tokens(130)), Ok(Tokens(0)));
    let (fork, reached) = model.fork(bank, Tokens(200)).unwrap();
    assert_eq!(reached, Tokens(131));
    // Both write over the same positions of blocks they share.
    for (bank, start) in [(fork, 131), (bank, 300)] {
        let logits = kit::feed(model, bank, start, &prompt.tokens[start..], LogitsWanted::All);
        for (row, want) in logits.of_segment(0).zip(&whole[start..]) {
            assert!(row == want);
        }
    }
    assert_eq!(model.truncate(bank, Tokens(150)), Ok(Tokens(131)));
    let logits = kit::feed(model, bank, 131, &prompt.tokens[131..], LogitsWanted::Last);
    assert!(logits.last_of_segment(0).unwrap() == whole.last().unwrap());
    assert_eq!(model.truncate(bank, Tokens(10)), Ok(Tokens(0)));
    let logits = kit::feed(model, bank, 0, &prompt.tokens, LogitsWanted::Last);
    assert!(logits.last_of_segment(0).unwrap() == whole.last().unwrap());
}

#[test]
fn a_refused_step_changes_no_bank() {
    let path = kit::oracle("flash-micro").expect("a tracked fixture");
    let mut model = kit::load(&path.with_extension("gguf"), KvRounding::Exact);
    let tokens = &kit::oracle_prompts(&path)[0].tokens[..40];
    let whole = kit::all_logits(model.as_mut(), tokens);
    let bank = model.open_bank();
    kit::feed(model.as_mut(), bank, 0, &tokens[..20], LogitsWanted::None);

    let good = Segment { bank, start: TokenPos(20), tokens: &tokens[20..], logits: LogitsWanted::Last, drafted: 0 };
    let unknown = BankId(999);
    let outside = [TokenId(u32::MAX)];
    let bad = [
        (vec![Segment { bank: unknown, ..good }], StepError::UnknownBank(unknown)),
        (vec![good, good], StepError::BankTwice(bank)),
        (vec![Segment { tokens: &[], ..good }], StepError::EmptySegment(bank)),
        (
            vec![Segment { start: TokenPos(19), ..good }],
            StepError::NotAtFrontier { bank, frontier: Tokens(20), start: TokenPos(19) },
        ),
        (
            vec![Segment { tokens: &outside, ..good }],
            StepError::TokenOutsideVocabulary { token: u32::MAX, vocabulary: 512 },
        ),
    ];
    for (segments, error) in bad {
        assert_eq!(model.step(&StepBatch { segments: &segments }).unwrap_err(), error);
        assert_eq!(model.frontier(bank), Some(Tokens(20)));
    }
    assert_eq!(
        model.truncate(bank, Tokens(21)),
        Err(BankError::PastFrontier { bank, frontier: Tokens(20), to: Tokens(21) })
    );
    let logits = model.step(&StepBatch { segments: &[good] }).unwrap();
    assert!(logits.last_of_segment(0).unwrap() == whole.last().unwrap());
}

#[test]
fn a_bank_never_outgrows_its_context_and_its_price_is_what_it_holds() {
    let path = kit::oracle("flash-micro").expect("a tracked fixture");
    let mut model = kit::load_with_context(&path.with_extension("gguf"), KvRounding::Exact, Tokens(30));
    let tokens = &kit::oracle_prompts(&path)[0].tokens[..31];
    let bank = model.open_bank();
    let segment = Segment { bank, start: TokenPos(0), tokens, logits: LogitsWanted::None, drafted: 0 };
    let error = model.step(&StepBatch { segments: &[segment] }).unwrap_err();
    assert_eq!(error, StepError::PastContext { bank, wanted: Tokens(31), context: Tokens(30) });
    // Checkpoints are part of the price, and no more of them are kept than it says.
    for at in [0, 10, 20] {
        kit::feed(model.as_mut(), bank, at, &tokens[at..at + 10], LogitsWanted::None);
        model.checkpoint(bank).unwrap();
        assert!(model.resident_bytes(bank).unwrap() <= model.price(Tokens(at as u32 + 10)));
    }
    assert_eq!(model.resident_bytes(bank), Ok(model.price(Tokens(30))));
    model.close_bank(bank);
    assert_eq!(model.frontier(bank), None);
}

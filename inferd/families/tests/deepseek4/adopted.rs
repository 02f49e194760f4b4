//! Banks whose process was killed, in the hands of the next one.

use crate::kit;
use ds4_model::{BankError, KvRounding, LogitsWanted, Model, Parcel};
use ds4_units::{BankId, TokenId, Tokens};
use std::path::PathBuf;

/// A model's file and tokens enough for several blocks and checkpoints.
fn fixture() -> Option<(PathBuf, Vec<TokenId>)> {
    let path = kit::oracle("flash-micro")?;
    let tokens = kit::oracle_prompts(&path).into_iter().map(|prompt| prompt.tokens).max_by_key(Vec::len)?;
    Some((path.with_extension("gguf"), tokens.iter().copied().cycle().take(700).collect()))
}

fn model(path: &std::path::Path, content: u8, context: u32) -> Box<dyn Model> {
    let mut model = kit::load_with_context(path, KvRounding::Exact, Tokens(context));
    model.keep_journals([content; 32]);
    model
}

fn go_on(model: &mut dyn Model, bank: BankId, tokens: &[TokenId], from: usize) -> Vec<Vec<f32>> {
    let logits = kit::feed(model, bank, from, &tokens[from..], LogitsWanted::All);
    logits.of_segment(0).map(<[f32]>::to_vec).collect()
}

/// The descriptors as a keeper has them.
fn kept(parcel: &Parcel) -> Parcel {
    Parcel { epoch: parcel.epoch, fds: parcel.fds.iter().map(|fd| fd.try_clone().expect("a descriptor")).collect() }
}

fn parcel(model: &dyn Model, bank: BankId) -> Parcel {
    let parcel = model.parcel(bank).expect("an export").expect("something to keep");
    assert_eq!(model.epoch(bank), Some(parcel.epoch));
    parcel
}

fn refused(model: &mut dyn Model, parcel: Parcel, says: &str) {
    match model.adopt(parcel) {
        Err(BankError::Left { problem }) => assert!(problem.contains(says), "{problem}"),
        other => panic!("{says}: {other:?}"),
    }
}

#[test]
fn a_bank_goes_on_with_the_same_bits_in_the_process_after_the_killed_one() {
    let Some((path, tokens)) = fixture() else { return };
    let expected = kit::all_logits(kit::load(&path, KvRounding::Exact).as_mut(), &tokens);
    for cut in [1_usize, 127, 128, 129, 300, 699] {
        let mut first = model(&path, 1, 4096);
        let bank = first.open_bank();
        assert_eq!(first.epoch(bank), None);
        kit::feed(first.as_mut(), bank, 0, &tokens[..cut.div_ceil(2)], LogitsWanted::None);
        first.checkpoint(bank).expect("a checkpoint");
        if cut > 1 {
            kit::feed(first.as_mut(), bank, cut.div_ceil(2), &tokens[cut.div_ceil(2)..cut], LogitsWanted::None);
        }
        let parcel = parcel(first.as_ref(), bank);
        // A kill may come in the middle of a step: rows beyond the frontier are written, and the other recurrent copy.
        drop(first);
        let mut second = model(&path, 1, 4096);
        let adopted = second.adopt(kept(&parcel)).expect("a bank");
        assert_eq!((adopted.tokens.as_slice(), adopted.used_ms > 0), (&tokens[..cut], true));
        assert_eq!(second.frontier(adopted.bank), Some(Tokens(cut as u32)));
        assert_eq!(second.epoch(adopted.bank), Some(parcel.epoch), "the keeper has it as it is");
        assert!(go_on(second.as_mut(), adopted.bank, &tokens, cut) == expected[cut..], "adopted at {cut}");
        if cut > 1 {
            // And a second kill, from which it goes back to a checkpoint of the first process.
            let at = Tokens(cut.div_ceil(2) as u32);
            let parcel = self::parcel(second.as_ref(), adopted.bank);
            drop(second);
            let mut third = model(&path, 1, 4096);
            let bank = third.adopt(parcel).expect("a bank").bank;
            assert_eq!(third.frontier(bank), Some(Tokens(tokens.len() as u32)));
            assert_eq!(third.truncate(bank, at), Ok(at));
            assert!(go_on(third.as_mut(), bank, &tokens, at.index()) == expected[at.index()..], "back to {at:?}");
        }
    }
}

#[test]
fn what_was_cut_back_forked_or_restored_is_left_as_it_is_and_not_as_it_was() {
    let Some((path, tokens)) = fixture() else { return };
    let expected = kit::all_logits(kit::load(&path, KvRounding::Exact).as_mut(), &tokens);
    let mut first = model(&path, 1, 4096);
    let bank = first.open_bank();
    kit::feed(first.as_mut(), bank, 0, &tokens[..200], LogitsWanted::None);
    first.checkpoint(bank).expect("a checkpoint");
    // Tokens that are none of the conversation's in the end.
    kit::feed(first.as_mut(), bank, 200, &vec![TokenId(3); 300], LogitsWanted::None);
    let (fork, at) = first.fork(bank, Tokens(400)).expect("a fork");
    assert_eq!(at, Tokens(200));
    kit::feed(first.as_mut(), fork, 200, &tokens[200..333], LogitsWanted::None);
    assert_eq!(first.truncate(bank, Tokens(200)), Ok(Tokens(200)));
    let image = first.export(fork, 0).expect("an image");
    let restored = first.import(&tokens[..333], &image).expect("an import");
    kit::feed(first.as_mut(), restored, 333, &tokens[333..340], LogitsWanted::None);
    first.trim(restored);
    let parcels: Vec<(Parcel, usize)> =
        [(bank, 200), (fork, 333), (restored, 340)].map(|(bank, at)| (parcel(first.as_ref(), bank), at)).into();
    drop(first);
    let mut second = model(&path, 1, 4096);
    for (parcel, at) in parcels {
        let adopted = second.adopt(parcel).expect("a bank");
        assert_eq!(adopted.tokens, &tokens[..at]);
        assert!(go_on(second.as_mut(), adopted.bank, &tokens, at) == expected[at..], "adopted at {at}");
    }
}

#[test]
fn until_the_keeper_has_heard_of_a_step_a_kill_leaves_the_bank_as_it_was_before() {
    let Some((path, tokens)) = fixture() else { return };
    let expected = kit::all_logits(kit::load(&path, KvRounding::Exact).as_mut(), &tokens);
    // A bank of 200 tokens as the keeper has it, and what comes then until the kill.
    let killed_after = |then: &dyn Fn(&mut dyn Model, BankId)| {
        let mut first = model(&path, 1, 4096);
        let bank = first.open_bank();
        kit::feed(first.as_mut(), bank, 0, &tokens[..150], LogitsWanted::None);
        first.checkpoint(bank).expect("a checkpoint");
        kit::feed(first.as_mut(), bank, 150, &tokens[150..200], LogitsWanted::None);
        let parcel = parcel(first.as_ref(), bank);
        // The next step has a checkpoint to tell of.
        first.checkpoint(bank).expect("a checkpoint");
        then(first.as_mut(), bank);
        assert_ne!(first.epoch(bank), Some(parcel.epoch), "the keeper is behind");
        parcel
    };
    let others = vec![TokenId(3); 300];
    let step = |model: &mut dyn Model, bank| drop(kit::feed(model, bank, 200, &others, LogitsWanted::None));
    let cut = |model: &mut dyn Model, bank| assert_eq!(model.truncate(bank, Tokens(199)), Ok(Tokens(150)));
    for then in [&step as &dyn Fn(&mut dyn Model, BankId), &cut] {
        let mut second = model(&path, 1, 4096);
        let adopted = second.adopt(killed_after(then)).expect("a bank");
        assert_eq!(adopted.tokens, &tokens[..200]);
        assert!(go_on(second.as_mut(), adopted.bank, &tokens, 200) == expected[200..]);
    }
    // What comes after that writes over it.
    let further = |model: &mut dyn Model, bank| {
        step(model, bank);
        kit::feed(model, bank, 500, &others[..1], LogitsWanted::None);
    };
    refused(model(&path, 1, 4096).as_mut(), killed_after(&further), "epoch");
    let further = |model: &mut dyn Model, bank| {
        cut(model, bank);
        kit::feed(model, bank, 150, &others[..1], LogitsWanted::None);
    };
    refused(model(&path, 1, 4096).as_mut(), killed_after(&further), "epoch");
}

#[test]
fn a_bank_is_left_to_others_however_many_checkpoints_it_has_forgotten() {
    let Some((path, tokens)) = fixture() else { return };
    let expected = kit::all_logits(kit::load(&path, KvRounding::Exact).as_mut(), &tokens);
    let mut first = model(&path, 1, 4096);
    let bank = first.open_bank();
    for at in (0..500).step_by(50) {
        kit::feed(first.as_mut(), bank, at, &tokens[at..at + 50], LogitsWanted::None);
        first.checkpoint(bank).expect("a checkpoint");
        parcel(first.as_ref(), bank);
    }
    let parcel = parcel(first.as_ref(), bank);
    drop(first);
    let mut second = model(&path, 1, 4096);
    let bank = second.adopt(parcel).expect("a bank").bank;
    // The last one is not known to have been made.
    assert_eq!(second.restorable(bank, Tokens(499)), Ok(Tokens(450)));
    assert!(go_on(second.as_mut(), bank, &tokens, 500) == expected[500..]);
}

#[test]
fn whatever_is_in_doubt_is_refused() {
    let Some((path, tokens)) = fixture() else { return };
    let mut first = model(&path, 1, 4096);
    let bank = first.open_bank();
    kit::feed(first.as_mut(), bank, 0, &tokens[..50], LogitsWanted::None);
    let parcel = parcel(first.as_ref(), bank);
    refused(model(&path, 1, 4096).as_mut(), kept(&parcel), "alive");
    // The bank is begun anew, and what the keeper has is of its first life.
    first.truncate(bank, Tokens(0)).expect("a cut");
    assert_eq!(first.epoch(bank), None);
    drop(first);
    refused(model(&path, 1, 4096).as_mut(), kept(&parcel), "never committed, or was given up");

    let mut first = model(&path, 1, 4096);
    let bank = first.open_bank();
    kit::feed(first.as_mut(), bank, 0, &tokens[..50], LogitsWanted::None);
    let whole = self::parcel(first.as_ref(), bank);
    drop(first);
    refused(model(&path, 2, 4096).as_mut(), kept(&whole), "other weights");
    refused(model(&path, 1, 40).as_mut(), kept(&whole), "the context is 40");
    refused(kit::load(&path, KvRounding::Exact).as_mut(), kept(&whole), "not looked for here");
    let mut other = kept(&whole);
    other.epoch += 1;
    refused(model(&path, 1, 4096).as_mut(), other, "epoch");
    let mut short = kept(&whole);
    short.fds.pop();
    refused(model(&path, 1, 4096).as_mut(), short, "descriptors");
    // A journal with too little room is replaced, and what was left before counts no more.
    let mut larger = model(&path, 1, 8192);
    let bank = larger.adopt(kept(&whole)).expect("a bank").bank;
    assert_ne!(larger.epoch(bank), Some(whole.epoch));
    drop(larger);
    refused(model(&path, 1, 8192).as_mut(), whole, "given up");
}

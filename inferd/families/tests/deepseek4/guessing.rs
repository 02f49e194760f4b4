//! The demo model through the engine: what it says is the same with guesses and without, alone and in company.

use crate::kit;
use crate::transcripts::{Transcript, transcripts};
use ds4_engine::{Account, Engine, EngineOptions, Event, GenerateRequest, Keep, Sampling, SpeculationOptions, Stats};
use ds4_families::deepseek4::{DeepSeek4Codec, PromptProfile};
use ds4_import::ComputeDevice;
use ds4_model::{KvRounding, LoadedModel, PromptCodec, PromptRecord, Tokenizer};
use ds4_units::{TokenId, Tokens};
use std::sync::Arc;

/// An engine over the demo model, guessing up to so many tokens ahead or not at all.
fn engine(ahead: Option<usize>) -> (Engine, Arc<Tokenizer>, Arc<dyn PromptCodec>) {
    let file = ds4_gguf::Model::open(&kit::root().join("scripts/demo-model/ds4-demo-16m.gguf")).expect("fixture opens");
    let tokenizer = Arc::new(Tokenizer::from_gguf(file.metadata()).expect("a tokenizer"));
    let codec = DeepSeek4Codec::new(tokenizer.clone(), PromptProfile::Release).expect("all markers");
    let codec: Arc<dyn PromptCodec> = Arc::new(codec);
    let model = kit::load_demo_with_draft(ComputeDevice::Cpu, KvRounding::Exact);
    let loaded = LoadedModel { model, tokenizer: tokenizer.clone(), codec: codec.clone() };
    let speculation = ahead.map(|ahead| SpeculationOptions { ahead, margin: 0.0 });
    let options = EngineOptions { banks: 4, speculation, ..EngineOptions::default() };
    (Engine::start(loaded, options, Account::unlimited()).expect("a thread"), tokenizer, codec)
}

/// A prompt, how it is to be continued, and for how long.
struct Ask {
    prompt: Vec<TokenId>,
    sampling: Sampling,
    tokens: u32,
}

/// The answers' tokens, so many asked for at a time.
fn answers(ahead: Option<usize>, asks: &[Ask], company: usize) -> (Vec<Vec<TokenId>>, Stats) {
    let (engine, tokenizer, codec) = engine(ahead);
    let mut all = Vec::new();
    for group in asks.chunks(company) {
        let streams: Vec<_> = group
            .iter()
            .map(|ask| {
                let request = GenerateRequest {
                    prompt: PromptRecord::of_tokens(&ask.prompt, &tokenizer),
                    reader: codec.read_raw(),
                    sampling: ask.sampling,
                    stop: Vec::new(),
                    max_tokens: Tokens(ask.tokens),
                    constraints: Vec::new(),
                    top_logprobs: None,
                    prompt_logprobs: false,
                    gaps: None,
                    keep: Keep::Nothing,
                };
                engine.handle().submit(request).expect("there is room")
            })
            .collect();
        for mut stream in streams {
            let mut ids = Vec::new();
            while let Some(event) = stream.blocking_next() {
                match event {
                    Event::Delta(delta) => ids.extend(delta.token_ids),
                    Event::Failed(fault) => panic!("{fault}"),
                    _ => {}
                }
            }
            all.push(ids);
        }
    }
    let stats = engine.handle().observatory().stats();
    engine.stop().expect("no panic");
    (all, stats)
}

#[test]
fn conversations_and_stories_are_the_same_with_guesses_and_without() {
    let short: Vec<Transcript> = transcripts().into_iter().filter(|one| one.prompt.len() < 150).collect();
    let mut asks: Vec<Ask> = short
        .iter()
        .map(|one| Ask { prompt: one.prompt.clone(), sampling: Sampling::GREEDY, tokens: one.answer.len() as u32 })
        .collect();
    // Prompts nobody has seen, continued by chance.
    for index in 0..50u64 {
        let (first, second) = (&short[index as usize % short.len()], &short[(index as usize * 7 + 3) % short.len()]);
        let cut = first.prompt.len() * (index as usize % 5 + 1) / 6;
        let prompt = first.prompt[..cut.max(1)].iter().chain(&second.prompt[second.prompt.len() / 2..]).copied();
        let sampling = Sampling { seed: Some(index), temperature: 0.8, ..Sampling::DEFAULT };
        asks.push(Ask { prompt: prompt.collect(), sampling, tokens: 12 });
    }
    let (want, _) = answers(None, &asks, 1);
    for (ahead, company) in [(1, 1), (3, 3)] {
        let (got, stats) = answers(Some(ahead), &asks, company);
        println!("{ahead} ahead, {company} at once: {} of {} guesses right", stats.guesses_right, stats.guesses);
        assert_eq!(got, want, "{ahead} guesses ahead, {company} at once");
        assert!(stats.guesses_right > 0, "nothing was guessed: {stats:?}");
    }
}

//! A model small enough to reason about: its next token is a function of all tokens before it, its vocabulary is the
//! 256 bytes and a few control tokens, and tests decide when it computes and when it fails.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod codec;
pub mod model;
pub mod vocabulary;

use codec::PlainCodec;
use ds4_engine::{
    Account, DiskBanks, DiskOptions, Engine, EngineOptions, Event, EventStream, Finished, GenerateRequest, Keep,
    RequestFault, Sampling, Stores, SyncMode, Watch,
};
use ds4_governor::{Census, Floors, Governor, Observation, Source, plan_banks};
use ds4_model::{AnswerMemory, AnswerReader, Conversation, LoadedModel, Prompt, PromptCodec, PromptRecord, Tokenizer};
use ds4_units::{Bytes, TokenId, Tokens};
use model::{BYTES_PER_TOKEN, Controls, FakeModel, Rule};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An engine over a fake model, with the means to steer it.
pub struct Bench<C = PlainCodec> {
    pub engine: Engine,
    pub controls: Controls,
    pub tokenizer: Arc<Tokenizer>,
    pub codec: Arc<C>,
}

impl Bench {
    pub fn new(rule: Rule, context: u32, options: EngineOptions) -> Bench {
        Bench::with_account(rule, context, options, |_| Account::unlimited())
    }

    /// A machine whose memory holds `room` tokens, above what must stay free.
    pub fn with_room(rule: Rule, context: u32, options: EngineOptions, room: u64) -> (Bench, Governor) {
        let floors = Floors { floor: Bytes(100), substrate_outstanding: Bytes::ZERO };
        let free = Observation::of(Source::MemAvailable, Bytes(100 + BYTES_PER_TOKEN * room));
        let price = |tokens: Tokens| Bytes(BYTES_PER_TOKEN * u64::from(tokens.0));
        let plan = plan_banks(&free, &floors, Tokens(context), price, None);
        let governor = Governor::new(floors, Census::default()).with_plan(plan);
        let bench = Bench::with_account(rule, context, options, |controls| {
            let controls = controls.clone();
            let observe = move || {
                let held = BYTES_PER_TOKEN * (controls.tokens_held() + controls.tokens_of_others()) as u64;
                Observation::of(Source::MemAvailable, Bytes(100 + BYTES_PER_TOKEN * room - held))
            };
            Account::new(governor.clone(), Box::new(observe))
        });
        (bench, governor)
    }

    /// The same, or one with memory for everything, by a watch of the test's own.
    pub fn by_watch(rule: Rule, options: EngineOptions, room: Option<u64>) -> (Bench, TestWatch) {
        let watch = TestWatch::default();
        let account = |controls: &Controls| room.map_or_else(Account::unlimited, |room| room_for(room, controls));
        let (model, controls) = FakeModel::new(rule, 4_000);
        let tokenizer = Arc::new(vocabulary::tokenizer());
        let codec = Arc::new(PlainCodec::new(tokenizer.clone()));
        let loaded = LoadedModel { model: Box::new(model), tokenizer: tokenizer.clone(), codec: codec.clone() };
        let engine = Engine::start_by(watch.watch(), loaded, options, account(&controls), Stores::default()).unwrap();
        (Bench { engine, controls, tokenizer, codec }, watch)
    }

    /// An engine that keeps conversations in `folder`.
    pub fn with_disk(rule: Rule, options: EngineOptions, folder: &Path, interval: u32) -> Bench {
        Bench::over_disk(rule, 2_000, options, (folder, interval), PlainCodec::new, &AnswerMemory::default())
    }

    /// The same on a machine whose memory holds `room` tokens.
    pub fn with_disk_and_room(rule: Rule, options: EngineOptions, folder: &Path, room: u64) -> Bench {
        let account = |controls: &Controls| room_for(room, controls);
        let memory = AnswerMemory::default();
        Bench::start_over_disk(rule, 2_000, options, (folder, 0), PlainCodec::new, &memory, account)
    }

    fn with_account(
        rule: Rule,
        context: u32,
        options: EngineOptions,
        account: impl FnOnce(&Controls) -> Account,
    ) -> Bench {
        Bench::build(rule, context, options, PlainCodec::new, account)
    }
}

impl<C: PromptCodec + 'static> Bench<C> {
    /// A bench whose prompts are in another protocol.
    pub fn over(rule: Rule, context: u32, options: EngineOptions, codec: impl FnOnce(Arc<Tokenizer>) -> C) -> Bench<C> {
        Bench::build(rule, context, options, codec, |_| Account::unlimited())
    }

    /// An engine that keeps conversations in a folder, saving them at every so many tokens. `memory` hears what those
    /// that are there remember.
    pub fn over_disk(
        rule: Rule,
        context: u32,
        options: EngineOptions,
        (folder, interval): (&Path, u32),
        codec: impl FnOnce(Arc<Tokenizer>) -> C,
        memory: &AnswerMemory,
    ) -> Bench<C> {
        let account = |_: &Controls| Account::unlimited();
        Bench::start_over_disk(rule, context, options, (folder, interval), codec, memory, account)
    }

    fn start_over_disk(
        rule: Rule,
        context: u32,
        options: EngineOptions,
        (folder, interval): (&Path, u32),
        codec: impl FnOnce(Arc<Tokenizer>) -> C,
        memory: &AnswerMemory,
        account: impl FnOnce(&Controls) -> Account,
    ) -> Bench<C> {
        let (model, controls) = FakeModel::new(rule, context);
        let tokenizer = Arc::new(vocabulary::tokenizer());
        let codec = Arc::new(codec(tokenizer.clone()));
        let disk = DiskOptions {
            folder: folder.to_owned(),
            budget: Bytes::mib(64),
            min_tokens: Tokens(4),
            cold_max_tokens: Tokens(1_000),
            interval_tokens: Tokens(interval),
            trim_tokens: Tokens(32),
            align_tokens: Tokens(128),
            sync: SyncMode::Data,
        };
        let disk = DiskBanks::open(&disk, [1; 32], "test/1", &model, tokenizer.clone()).unwrap();
        disk.recall_into(memory);
        let loaded = LoadedModel { model: Box::new(model), tokenizer: tokenizer.clone(), codec: codec.clone() };
        let stores = Stores { disk: Some(disk), parked: None };
        let engine = Engine::start_with(loaded, options, account(&controls), stores).unwrap();
        Bench { engine, controls, tokenizer, codec }
    }

    fn build(
        rule: Rule,
        context: u32,
        options: EngineOptions,
        codec: impl FnOnce(Arc<Tokenizer>) -> C,
        account: impl FnOnce(&Controls) -> Account,
    ) -> Bench<C> {
        let (model, controls) = FakeModel::new(rule, context);
        let tokenizer = Arc::new(vocabulary::tokenizer());
        let codec = Arc::new(codec(tokenizer.clone()));
        let loaded = LoadedModel { model: Box::new(model), tokenizer: tokenizer.clone(), codec: codec.clone() };
        let engine = Engine::start(loaded, options, account(&controls)).unwrap();
        Bench { engine, controls, tokenizer, codec }
    }

    /// A request for the raw text `prompt`.
    pub fn request(&self, prompt: &str, max_tokens: u32) -> GenerateRequest {
        let prompt = self.codec.render_raw(prompt);
        self.of_prompt(&prompt, self.codec.read_raw(), max_tokens)
    }

    /// A request for the next answer of a conversation.
    pub fn ask(&self, conversation: &Conversation, memory: &Arc<AnswerMemory>, max_tokens: u32) -> GenerateRequest {
        let prompt = self.codec.render(conversation, memory).unwrap();
        self.of_prompt(&prompt, self.codec.read_answer(&prompt, conversation, memory), max_tokens)
    }

    fn of_prompt(&self, prompt: &Prompt, reader: Box<dyn AnswerReader>, max_tokens: u32) -> GenerateRequest {
        GenerateRequest {
            reader,
            prompt: PromptRecord::new(prompt, &self.tokenizer),
            sampling: Sampling::GREEDY,
            stop: Vec::new(),
            max_tokens: Tokens(max_tokens),
            constraints: Vec::new(),
            top_logprobs: None,
            prompt_logprobs: false,
            gaps: None,
            keep: Keep::Turn,
        }
    }

    pub fn submit(&self, request: GenerateRequest) -> EventStream {
        self.engine.handle().submit(request).unwrap()
    }

    /// Submits and waits for the end.
    pub fn complete(&self, request: GenerateRequest) -> Heard {
        hear(self.submit(request))
    }
}

/// A machine whose memory holds `room` tokens.
fn room_for(room: u64, controls: &Controls) -> Account {
    let controls = controls.clone();
    let observe = move || {
        let held = BYTES_PER_TOKEN * controls.tokens_held() as u64;
        Observation::of(Source::MemAvailable, Bytes(BYTES_PER_TOKEN * room - held))
    };
    Account::new(Governor::new(Floors::default(), Census::default()), Box::new(observe))
}

/// Time as a test lets it pass.
#[derive(Clone, Default)]
pub struct TestWatch(Arc<Mutex<Duration>>);

impl TestWatch {
    pub fn watch(&self) -> Watch {
        let (start, passed) = (Instant::now(), self.0.clone());
        Watch::new(move || start + *passed.lock().unwrap())
    }

    pub fn pass(&self, seconds: u64) {
        *self.0.lock().unwrap() += Duration::from_secs(seconds);
    }
}

/// Everything a request heard.
#[derive(Debug)]
pub struct Heard {
    pub events: Vec<Event>,
    pub text: String,
    pub ids: Vec<TokenId>,
    pub end: Result<Finished, RequestFault>,
}

impl Heard {
    /// What does not depend on time.
    pub fn answer(&self) -> (String, Vec<TokenId>) {
        (self.text.clone(), self.ids.clone())
    }

    pub fn finished(&self) -> &Finished {
        self.end.as_ref().unwrap()
    }
}

/// Reads a stream to its end.
pub fn hear(mut stream: EventStream) -> Heard {
    let (mut events, mut text, mut ids) = (Vec::new(), String::new(), Vec::new());
    while let Some(event) = stream.blocking_next() {
        if let Event::Delta(delta) = &event {
            text.push_str(&delta.text);
            ids.extend_from_slice(&delta.token_ids);
        }
        events.push(event);
    }
    let end = match events.last() {
        Some(Event::Finished(finished)) => Ok(finished.clone()),
        Some(Event::Failed(fault)) => Err(fault.clone()),
        other => panic!("a stream ended with {other:?}"),
    };
    Heard { events, text, ids, end }
}

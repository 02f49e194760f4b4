//! A million random operations on a device of pages: the scheduler with its real account, a model that reads back every
//! token it was given, allocations that fail, readers that leave, machines that run short of memory, and workers that
//! die. Whatever happens, answers are right, the books agree with the device, and at the end nothing is held.

#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "../../tests/support/codec.rs"]
mod codec;
mod device;
#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "../../tests/support/vocabulary.rs"]
mod vocabulary;

use crate::engine::Queue;
use crate::scheduler::{Load, Scheduler};
use crate::{
    Account, EngineOptions, Event, EventStream, GenerateRequest, IDLE_TRIM, Keep, RequestFault, Sampling, Stores, Watch,
};
use codec::PlainCodec;
use device::{CONTEXT, Device, PAGE, PAGE_ROWS, PAGE_TOKENS, PagedModel, RECORDINGS, follows, price};
use ds4_governor::{Census, Consumer, Domain, Floors, Governor, Observation, Pressure, Reason, Source, plan_banks};
use ds4_model::{LoadedModel, Model, PromptCodec, PromptRecord, StepSize, Tokenizer};
use ds4_units::{Bytes, TokenId, Tokens};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Stays free, in pages.
const FLOOR: usize = 2;
/// Pages of a machine nobody else uses.
const PAGES: usize = 64;

/// The largest step there is: rows of prompts, and of answers beside them.
const STEP: StepSize = StepSize { rows: 16 + 6, conversations: 6 };
/// Pages that steps take at boot and may come to take.
const STEP_PAGES: usize = STEP.rows.div_ceil(PAGE_ROWS) + RECORDINGS;

/// A request under way and what its answer must be.
struct Asked {
    stream: EventStream,
    prompt: Vec<u32>,
    heard: Vec<u32>,
    max_tokens: u32,
}

/// Time as a storm lets it pass.
#[derive(Clone)]
struct Time(Arc<Mutex<Instant>>);

impl Default for Time {
    fn default() -> Time {
        // There is a time before the first.
        Time(Arc::new(Mutex::new(Instant::now() + IDLE_TRIM)))
    }
}

impl Time {
    fn watch(&self) -> Watch {
        let now = self.0.clone();
        Watch::new(move || *now.lock().unwrap())
    }

    fn pass(&self, seconds: u64) {
        *self.0.lock().unwrap() += Duration::from_secs(seconds);
    }
}

/// How requests ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ends {
    finished: u64,
    refused: BTreeMap<&'static str, u64>,
    /// By the crash of their worker.
    stopped: u64,
}

/// A worker on a device, and everybody who asked it something.
struct Storm {
    random: ChaCha8Rng,
    device: Device,
    census: Census,
    governor: Governor,
    time: Time,
    codec: Arc<PlainCodec>,
    tokenizer: Arc<Tokenizer>,
    scheduler: Scheduler,
    queue: Arc<Queue>,
    asked: Vec<Asked>,
    ends: Ends,
    operations: u64,
    /// How often workers that died had trimmed a conversation, and what that brought.
    trimmed: (u64, u64),
}

impl Storm {
    fn new(seed: u64, device: Device) -> Storm {
        let (census, time, tokenizer) = (Census::default(), Time::default(), Arc::new(vocabulary::tokenizer()));
        let codec = Arc::new(PlainCodec::new(tokenizer.clone()));
        let (governor, scheduler) = worker(&device, &census, &time, &tokenizer, &codec);
        Storm {
            random: ChaCha8Rng::seed_from_u64(seed),
            device,
            census,
            governor,
            time,
            codec,
            tokenizer,
            scheduler,
            queue: Queue::new(&EngineOptions::default()),
            asked: Vec::new(),
            ends: Ends::default(),
            operations: 0,
            trimmed: (0, 0),
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.next_u32() as usize % limit
    }

    /// One of a few beginnings, so that conversations meet, and an end of its own.
    fn prompt(&mut self) -> Vec<u32> {
        let family = self.below(5) as u32;
        let (shared, own) = (self.below(48), 1 + self.below(8));
        let beginning = (0..shared as u32).map(|at| (family * 7 + at * at) % device::VOCABULARY as u32);
        let mut prompt: Vec<u32> = beginning.collect();
        for _ in 0..own {
            prompt.push(self.below(device::VOCABULARY) as u32);
        }
        prompt
    }

    /// Asks something new, or goes on from an answer.
    fn ask(&mut self, continued: Option<Vec<u32>>) {
        let prompt = match continued {
            Some(before) if before.len() + 2 < CONTEXT as usize => {
                let own = self.below(device::VOCABULARY) as u32;
                before.into_iter().chain([own]).collect()
            }
            _ => self.prompt(),
        };
        let max_tokens = self.below(24) as u32;
        self.ask_for(prompt, max_tokens);
    }

    fn ask_for(&mut self, prompt: Vec<u32>, max_tokens: u32) {
        let mut record = PromptRecord::default();
        prompt.iter().for_each(|&token| record.push_generated(TokenId(token), &self.tokenizer));
        let request = GenerateRequest {
            prompt: record,
            reader: self.codec.read_raw(),
            sampling: Sampling::GREEDY,
            stop: Vec::new(),
            max_tokens: Tokens(max_tokens),
            constraints: Vec::new(),
            top_logprobs: None,
            prompt_logprobs: false,
            gaps: None,
            keep: match max_tokens {
                0 => Keep::IfFree,
                1..4 => Keep::Nothing,
                _ => Keep::Turn,
            },
        };
        if let Ok((waiting, stream)) = self.queue.enter(request) {
            self.scheduler.push(waiting);
            self.asked.push(Asked { stream, prompt, heard: Vec::new(), max_tokens });
        }
    }

    /// Reads what a request has heard; true when it is over.
    fn listen(&mut self, index: usize) -> bool {
        loop {
            let asked = &mut self.asked[index];
            match asked.stream.try_next() {
                None => return false,
                Some(Event::Delta(delta)) => asked.heard.extend(delta.token_ids.iter().map(|token| token.0)),
                Some(Event::Finished(_)) => {
                    self.ends.finished += 1;
                    return true;
                }
                Some(Event::Failed(RequestFault::Memory(refusal))) => {
                    *self.ends.refused.entry(refusal.reason.name()).or_default() += 1;
                    return true;
                }
                Some(Event::Failed(RequestFault::EngineStopped)) => {
                    self.ends.stopped += 1;
                    return true;
                }
                Some(Event::Failed(fault)) => panic!("a request failed for no reason of its own: {fault}"),
                Some(_) => {}
            }
        }
    }

    /// Listens to everybody; whoever is through may go on from the answer. What was heard is always the truth.
    fn listen_to_all(&mut self) {
        let mut index = 0;
        while index < self.asked.len() {
            if !self.listen(index) {
                index += 1;
                continue;
            }
            let Asked { prompt, heard, max_tokens, .. } = self.asked.swap_remove(index);
            assert!(heard.len() <= max_tokens as usize);
            let mut all = prompt;
            for token in heard {
                assert_eq!(follows(&all), token as usize, "an answer depends on nothing but its own conversation");
                all.push(token);
            }
            if self.below(3) == 0 {
                self.ask(Some(all));
            }
        }
    }

    fn turn(&mut self) {
        if self.scheduler.load() == Load::Nothing {
            // Memory that others take and give back is not explained by this account.
            self.scheduler.idle(Duration::ZERO);
        } else {
            self.scheduler.turn();
        }
        assert_eq!(self.in_books(), self.device.in_use(), "the books say what the device holds");
        assert_eq!(self.census.live(Domain::Device), self.device.in_use());
        assert_eq!(self.census.faults(), 0);
    }

    /// What conversations and steps hold, as the books say.
    fn in_books(&self) -> Bytes {
        let leases = self.governor.leases();
        Bytes(leases.get(Consumer::BatchBanks).resident.0 + leases.get(Consumer::Prewarm).resident.0)
    }

    /// Nobody asks for anything, nobody else takes memory, and the account is compared with the device.
    fn settle(&mut self) {
        self.device.limit_to(PAGES);
        if self.scheduler.load() == Load::Nothing {
            self.scheduler.idle(Duration::from_secs(2));
        }
    }

    fn trimmed(&self) -> (u64, u64) {
        let counters = &self.scheduler.counters;
        (self.trimmed.0 + counters.trims.get(), self.trimmed.1 + counters.trimmed_bytes.get())
    }

    fn flagged(&self) -> u64 {
        self.governor.reconciliation().map_or(0, |found| found.flagged)
    }

    /// The worker dies, and another one starts.
    fn crash(&mut self) {
        self.trimmed = self.trimmed();
        assert_eq!(self.flagged(), 0, "the account explains every page");
        let (governor, scheduler) = worker(&self.device, &Census::default(), &self.time, &self.tokenizer, &self.codec);
        drop(std::mem::replace(&mut self.scheduler, scheduler));
        assert_eq!(self.census.live(Domain::Device), Bytes::ZERO);
        self.census = governor.census().clone();
        self.governor = governor;
        assert_eq!(self.device.in_use(), self.in_books(), "what a dead worker held is free");
        self.listen_to_all();
    }

    /// One random operation.
    fn step(&mut self) {
        self.operations += 1;
        match self.below(1000) {
            0..150 if self.asked.len() < 40 => self.ask(None),
            150..180 if !self.asked.is_empty() => {
                let index = self.below(self.asked.len());
                self.asked.swap_remove(index);
            }
            180..300 => self.listen_to_all(),
            300..305 => {
                let allocation = self.device.asked() + self.below(20) as u64;
                self.device.fail(allocation);
            }
            305..310 => {
                let pages = FLOOR + self.below(PAGES);
                self.device.limit_to(pages);
            }
            310..319 => self.device.limit_to(PAGES),
            319 => self.settle(),
            320..324 => {
                let levels = [Pressure::None, Pressure::None, Pressure::Soft, Pressure::Hard];
                let level = levels[self.below(4)];
                self.governor.strained(level);
            }
            324..327 => self.governor.strained(Pressure::None),
            327..330 => self.time.pass(IDLE_TRIM.as_secs() / 2),
            330 if self.below(40) == 0 => self.crash(),
            _ => self.turn(),
        }
    }

    /// Lets everything end, and stops the worker.
    fn calm(mut self) -> Ends {
        self.device.limit_to(PAGES);
        self.governor.strained(Pressure::None);
        let mut turns = 0;
        while !self.asked.is_empty() {
            self.turn();
            self.listen_to_all();
            turns += 1;
            assert!(turns < 100_000, "{} requests never end", self.asked.len());
        }
        self.settle();
        assert_eq!(self.flagged(), 0, "the account explains every page");
        self.scheduler.stop();
        assert_eq!(self.device.in_use(), Bytes::ZERO);
        assert_eq!((self.census.live(Domain::Device), self.census.faults()), (Bytes::ZERO, 0));
        self.ends
    }
}

/// A scheduler with an account that sees the device.
fn worker(
    device: &Device,
    census: &Census,
    time: &Time,
    tokenizer: &Arc<Tokenizer>,
    codec: &Arc<PlainCodec>,
) -> (Governor, Scheduler) {
    let floors = Floors { floor: Bytes(FLOOR as u64 * PAGE), substrate_outstanding: Bytes::ZERO };
    let governor = Governor::new(floors, census.clone());
    let seen = device.clone();
    let observe = move || Observation::of(Source::CudaFree, seen.free());
    let mut model = PagedModel::new(device);
    // As at boot. One that fails here is tried again by the step that needs it.
    let _ = model.take_activations(STEP);
    let to_come = Floors { substrate_outstanding: model.device_memory_to_come(), ..floors };
    let free = Observation::of(Source::CudaFree, device.free());
    let governor = governor.with_plan(plan_banks(&free, &to_come, Tokens(CONTEXT), price, None));
    let account = Account::new(governor.clone(), Box::new(observe)).tolerating(Bytes(PAGE - 1));
    let loaded = LoadedModel { model: Box::new(model), tokenizer: tokenizer.clone(), codec: codec.clone() };
    let options = EngineOptions { banks: 6, charged_tokens: Tokens(8), ..EngineOptions::default() };
    (governor, Scheduler::new(loaded, options, account, Stores::default(), time.watch()))
}

#[test]
fn a_million_operations_leave_nothing_behind() {
    let mut storm = Storm::new(5, Device::with_pages(PAGES));
    while storm.operations + storm.device.operations() < 1_000_000 {
        storm.step();
    }
    assert_eq!(storm.flagged(), 0, "the account explains every page");
    let trimmed = storm.trimmed();
    let ends = storm.calm();
    println!("{ends:?}, trimmed {trimmed:?}");
    assert!(trimmed.0 > 100 && trimmed.1 > 100 * PAGE, "{trimmed:?}");
    assert!(ends.finished > 10_000 && ends.stopped > 10, "{ends:?}");
    assert!(ends.refused.contains_key("live_headroom") && ends.refused.contains_key("pressure"), "{ends:?}");
}

#[test]
fn a_page_that_is_lost_is_flagged_within_two_looks() {
    let mut storm = Storm::new(7, Device::with_pages(PAGES));
    storm.ask_for((0..9).collect(), 2);
    while storm.scheduler.load() != Load::Nothing {
        storm.turn();
    }
    (0..3).for_each(|_| storm.settle());
    assert_eq!(storm.flagged(), 0);
    storm.device.lose_page();
    (0..2).for_each(|_| storm.settle());
    let found = storm.governor.reconciliation().unwrap();
    assert_eq!((found.residual.bytes, found.residual.flagged), (PAGE as i64, true));
}

#[test]
fn a_conversation_that_rests_gives_back_what_it_need_not_have_whatever_others_do() {
    let mut storm = Storm::new(7, Device::with_pages(PAGES));
    let ask = |storm: &mut Storm, prompt: std::ops::Range<u32>, max_tokens| {
        storm.ask_for(prompt.collect(), max_tokens);
        while storm.scheduler.load() != Load::Nothing {
            storm.turn();
        }
        storm.asked.pop();
    };
    // After some time, in which others ask something that nobody will go on from.
    let after = |storm: &mut Storm, quarters: u64| {
        storm.time.pass(quarters * IDLE_TRIM.as_secs() / 4);
        ask(storm, 20..24, 2);
        (storm.scheduler.warm.held().0 / PAGE, storm.scheduler.counters.trims.get())
    };
    ask(&mut storm, 0..9, 4);
    assert_eq!(after(&mut storm, 3), (4, 0), "12 tokens, and checkpoints");
    ask(&mut storm, 10..19, 4);
    assert_eq!(after(&mut storm, 1), (7, 1), "only the first: the engine is as busy for both");
    assert_eq!(after(&mut storm, 2), (7, 1), "what gave back and was not used since has nothing more");
    assert_eq!(after(&mut storm, 1), (6, 2));
    // It is used again, and has a checkpoint again.
    ask(&mut storm, 0..9, 4);
    let (held, trims) = after(&mut storm, 4);
    assert_eq!((held < 12, trims > 2), (true, true), "{held} {trims}");
}

/// The same few hundred operations, with the allocations that fail.
fn squall(failing: Option<u64>) -> (u64, Ends) {
    let device = Device::with_pages(PAGES);
    device.limit_to(PAGES);
    failing.into_iter().for_each(|allocation| device.fail(allocation));
    let mut storm = Storm::new(11, device.clone());
    for _ in 0..120 {
        if storm.asked.len() < 12 && storm.below(3) == 0 {
            storm.ask(None);
        }
        storm.turn();
        storm.listen_to_all();
    }
    let ends = storm.calm();
    (device.asked(), ends)
}

#[test]
fn every_single_allocation_may_fail() {
    let (allocations, undisturbed) = squall(None);
    assert!(allocations > 200, "{allocations}");
    for allocation in 0..allocations {
        let (_, ends) = squall(Some(allocation));
        let refused: u64 = ends.refused.values().sum();
        let before: u64 = undisturbed.refused.values().sum();
        assert!(refused <= before + 2, "allocation {allocation}: {ends:?}, undisturbed {undisturbed:?}");
    }
}

/// As many conversations as fit are admitted in full, though steps take memory of their own meanwhile; a token more is
/// refused with the number that fits.
#[test]
fn what_the_plan_says_fits_is_admitted_in_full_and_not_one_token_more() {
    for (pages, tokens) in [(PAGES, 40), (PAGES, 41), (20, 7), (33, 96)] {
        let device = Device::with_pages(pages);
        let steps = Bytes(STEP_PAGES as u64 * PAGE);
        let floors = Floors { floor: Bytes(FLOOR as u64 * PAGE), substrate_outstanding: steps };
        let observation = Observation::of(Source::CudaFree, device.free());
        let plan = plan_banks(&observation, &floors, Tokens(tokens), price, None);
        let mut storm = Storm::new(3, device);
        let fits = plan.full.fit.min(6);
        let prompt = |nth: usize| (0..tokens - 2).map(move |at| (at + nth as u32 * 5) % device::VOCABULARY as u32);
        for nth in 0..fits {
            storm.ask_for(prompt(nth).collect(), 2);
        }
        storm.turn();
        let running = storm.scheduler.running.len();
        assert_eq!(running, fits, "{pages} pages, {tokens} tokens");
        let mut ends = 0;
        for _ in 0..200 {
            storm.turn();
            let mut index = 0;
            while index < storm.asked.len() {
                if storm.listen(index) {
                    let asked = storm.asked.swap_remove(index);
                    assert_eq!(asked.heard.len(), 2, "{pages} pages, {tokens} tokens");
                    ends += 1;
                } else {
                    index += 1;
                }
            }
        }
        assert_eq!((ends, storm.ends.finished), (fits, fits as u64));
        // One page is for checkpoints.
        let room = (pages - FLOOR - STEP_PAGES - 1) * PAGE_TOKENS;
        let most = room.min(CONTEXT as usize - 1);
        if most == room {
            storm.ask_for((0..most as u32).map(|at| at % 9).collect(), 1);
            storm.turn();
            let refused = storm.asked[0].stream.try_next();
            let Some(Event::Failed(RequestFault::Memory(refusal))) = refused else { panic!("{refused:?}") };
            assert_eq!((refusal.reason, refusal.max_admissible_tokens.index()), (Reason::ClassBudget, most));
        }
    }
}

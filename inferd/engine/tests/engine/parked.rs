//! What a keeper has heard of when a client reads, and when a bank is written to.

use crate::support::model::{FakeModel, epoch_of, hash_rule};
use crate::support::{Bench, codec::PlainCodec, vocabulary};
use ds4_engine::{Account, Engine, EngineOptions, Event, EventStream, ParkedBanks, ParkedOptions, ParkedStats, Stores};
use ds4_model::LoadedModel;
use ds4_wire::{Connection, Deadline, KeeperReply, KeeperRequest};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A keeper that takes its time. It keeps nothing: what it has heard is looked at.
struct SlowKeeper {
    folder: TempDir,
    state: Arc<(Mutex<Heard>, Condvar)>,
}

#[derive(Default)]
struct Heard {
    /// The generation that was parked last, of whatever set.
    generation: u64,
    /// It says nothing until it is let go on.
    hangs: bool,
}

/// How long it takes for everything: far longer than a token takes to its reader.
const SLOWNESS: Duration = Duration::from_millis(10);

impl SlowKeeper {
    fn start() -> SlowKeeper {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("keeper.sock")).unwrap();
        let state = Arc::<(Mutex<Heard>, Condvar)>::default();
        let keeper = SlowKeeper { folder, state: state.clone() };
        std::thread::spawn(move || {
            let connection = Connection::new(listener.accept().unwrap().0).unwrap();
            let soon = || Deadline::after(Duration::from_secs(60));
            // It ends with its client.
            while let Ok((request, _fds)) = connection.receive_with_fds::<KeeperRequest>(soon()) {
                std::thread::sleep(SLOWNESS);
                let (heard, changed) = &*state;
                let mut heard = changed.wait_while(heard.lock().unwrap(), |heard| heard.hangs).unwrap();
                let reply = match request {
                    KeeperRequest::List { .. } => KeeperReply::Listed(Vec::new()),
                    KeeperRequest::Park { generation, .. } => {
                        heard.generation = generation;
                        KeeperReply::Done
                    }
                    _ => KeeperReply::Done,
                };
                drop(heard);
                let _ = connection.send(&reply, soon());
            }
        });
        keeper
    }

    /// An engine with one bank that parks there.
    fn bench(&self) -> Bench {
        let (mut model, controls) = FakeModel::new(hash_rule(), 2_000);
        let tokenizer = Arc::new(vocabulary::tokenizer());
        let codec = Arc::new(PlainCodec::new(tokenizer.clone()));
        let socket = self.folder.path().join("keeper.sock");
        let options = ParkedOptions { socket, orphaned: Duration::from_secs(60) };
        let parked = ParkedBanks::open(&options, [1; 32], &mut model, &tokenizer).unwrap();
        let loaded = LoadedModel { model: Box::new(model), tokenizer: tokenizer.clone(), codec: codec.clone() };
        let stores = Stores { disk: None, parked: Some(parked) };
        let options = EngineOptions { banks: 1, ..EngineOptions::default() };
        let engine = Engine::start_with(loaded, options, Account::unlimited(), stores).unwrap();
        Bench { engine, controls, tokenizer, codec }
    }

    fn generation(&self) -> u64 {
        self.state.0.lock().unwrap().generation
    }

    fn hang(&self, hangs: bool) {
        self.state.0.lock().unwrap().hangs = hangs;
        self.state.1.notify_all();
    }
}

fn stats(bench: &Bench) -> ParkedStats {
    bench.engine.handle().observatory().parked().unwrap()
}

/// Whether this machine was so busy that the engine had to go on without the keeper.
fn is_late(bench: &Bench) -> bool {
    stats(bench).late > 0
}

/// Calls `each` with the number of tokens of the answer so far whenever there are more.
fn read(mut stream: EventStream, mut each: impl FnMut(usize)) -> usize {
    let mut tokens = 0;
    while let Some(event) = stream.blocking_next() {
        match event {
            Event::Delta(delta) => {
                tokens += delta.token_ids.len();
                each(tokens);
            }
            Event::Failed(fault) => panic!("{fault}"),
            _ => {}
        }
    }
    tokens
}

#[test]
fn what_a_client_reads_is_of_memory_that_the_keeper_has() {
    let keeper = SlowKeeper::start();
    let bench = keeper.bench();
    let prompt = bench.request("how are you", 20);
    let length = prompt.prompt.tokens().len();
    let mut looks = 0;
    let tokens = read(bench.submit(prompt), |tokens| {
        // Its last token is in no bank yet.
        let (has, needed) = (keeper.generation(), u64::from(epoch_of(length + tokens - 1)));
        assert!(has >= needed || is_late(&bench), "token {tokens} is of generation {needed}; the keeper has {has}");
        looks += 1;
    });
    assert!(tokens == 20 && looks > 10, "{looks} looks at {tokens} tokens");
}

#[test]
fn what_was_cut_back_is_told_before_it_is_written_to_again() {
    let keeper = SlowKeeper::start();
    let bench = keeper.bench();
    bench.complete(bench.request("how are you", 20));
    let before = keeper.generation();
    let steps = bench.controls.steps().len();
    bench.controls.hold();
    let mut stream = bench.submit(bench.request("how are you not", 20));
    let Some(Event::Started(started)) = stream.blocking_next() else { panic!("no bank") };
    bench.controls.wait_for_steps(steps + 1);
    let needed = epoch_of(started.cached_tokens.index());
    assert!(started.cached_tokens.0 > 0 && u64::from(needed) < before, "{started:?} {before}");
    assert!(keeper.generation() == u64::from(needed) || is_late(&bench), "{} {needed}", keeper.generation());
    bench.controls.release();
}

#[test]
fn a_keeper_that_hangs_holds_an_answer_up_once_and_not_at_every_step() {
    let keeper = SlowKeeper::start();
    let bench = keeper.bench();
    keeper.hang(true);
    let began = Instant::now();
    assert_eq!(read(bench.submit(bench.request("how are you", 160)), |_| {}), 160);
    let (took, late) = (began.elapsed(), stats(&bench).late);
    // Every fourth token is a new generation.
    assert!(late > 20, "{late} generations were not waited for");
    assert!(took < Duration::from_millis(100) * late as u32 / 2, "{took:?} for {late}");
    keeper.hang(false);
    let deadline = Instant::now() + Duration::from_secs(60);
    while stats(&bench).sets == 0 {
        assert!(Instant::now() < deadline, "{:?}", stats(&bench));
        std::thread::sleep(Duration::from_millis(1));
    }
}

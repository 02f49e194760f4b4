//! The threads.

use crate::support::disk::MemDisk;
use crate::support::{GEOMETRY, find, identity, open, options, save, snapshot, text, transcript};
use ds4_banks::{BankBytes, Folder, LoadError, Loaded, NotSaved, SaveReason, Service, Store, Unusable};
use ds4_units::Bytes;
use std::sync::mpsc::{self, Receiver, Sender};

#[test]
fn what_was_handed_over_is_on_disk_when_the_service_is_closed() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    let service = Service::start(store.clone(), Ok).unwrap();
    service.save(snapshot(&store, &transcript("<1 abcdef"), Vec::new())).unwrap();
    service.close();
    let service = Service::start(open(disk, 1 << 20), Ok).unwrap();
    let ticket = service.load(find(service.store(), "<1 abcdefg").unwrap()).unwrap();
    assert_eq!(ticket.wait().unwrap().transcript, transcript("<1 abcdef"));
    service.close();
}

/// A bank whose bytes come when the test lets them.
struct Slow {
    bank: crate::support::FakeBank,
    begun: Sender<()>,
    go: std::sync::Mutex<Receiver<()>>,
}

impl BankBytes for Slow {
    fn block(&self, index: u32) -> &[u8] {
        self.bank.block(index)
    }

    fn recurrent(&self) -> &[u8] {
        let _ = self.begun.send(());
        let _ = self.go.lock().unwrap().recv();
        self.bank.recurrent()
    }

    fn held(&self) -> Bytes {
        Bytes(1)
    }
}

#[test]
fn a_slow_disk_holds_nobody_up_and_costs_saves_not_memory() {
    let store = open(MemDisk::new(), 1 << 20);
    let service = Service::start(store.clone(), Ok).unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (go, waits) = mpsc::channel();
    let mut slow = snapshot(&store, &transcript("<1 abcdef"), Vec::new());
    slow.bank = Box::new(Slow {
        bank: crate::support::FakeBank::of(slow.transcript.tokens()),
        begun,
        go: std::sync::Mutex::new(waits),
    });
    service.save(slow).unwrap();
    has_begun.recv().unwrap();
    let mut refused = 0;
    for letter in "hijklmnop".chars() {
        let more = snapshot(&store, &transcript(&format!("<1 {letter}")), Vec::new());
        refused += usize::from(matches!(service.save(more), Err(NotSaved::QueueFull { .. })));
    }
    assert_eq!(refused, 9 - ds4_banks::limits::SAVES_WAITING_MAX);
    assert!(matches!(ask(&service, "<1 q"), Err(NotSaved::QueueFull { .. })));
    refused += 1;
    drop(go);
    service.close();
    assert_eq!(store.stats().files, 1 + ds4_banks::limits::SAVES_WAITING_MAX as u64);
    assert_eq!(store.stats().saves_failed.iter().sum::<u64>(), refused as u64);
}

#[test]
fn what_the_model_cannot_use_is_set_aside_by_the_restoring_thread() {
    let store = open(MemDisk::new(), 1 << 20);
    save(&store, "<1 abcdef").unwrap();
    let refuse = |loaded: Loaded| Err::<(), _>(Unusable { kept: loaded.kept, why: "not a number in layer 3".into() });
    let service = Service::start(store.clone(), refuse).unwrap();
    let ticket = service.load(find(&store, "<1 abcdefg").unwrap()).unwrap();
    let error = ticket.wait().unwrap_err().to_string();
    assert!(error.contains("not a number in layer 3"), "{error}");
    assert!(find(&store, "<1 abcdefg").is_none());
    assert_eq!(store.stats().quarantined, [0, 0, 1]);
    service.close();
}

#[test]
fn a_restore_that_fails_says_so() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    save(&store, "<1 abcdef").unwrap();
    let name = format!("{}.kv", ds4_banks::Name::of_text(transcript("<1 abcdef").text()));
    let service = Service::start(store, Ok).unwrap();
    let found = find(service.store(), "<1 abcdefg").unwrap();
    disk.edit(&name, |bytes| bytes[200] ^= 1);
    assert!(matches!(service.load(found).unwrap().wait(), Err(LoadError::Damaged(_))));
    service.close();
}

/// What is said of a save of this conversation before anything is copied for it.
fn ask(service: &Service<Loaded>, notation: &str) -> Result<(), NotSaved> {
    let tokens = transcript(notation);
    let plan = service.store().plan(tokens.tokens());
    service.would_save(tokens.len(), &plan, SaveReason::Continued)
}

#[test]
fn what_the_disk_will_not_take_is_refused_before_it_is_copied() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    let service = Service::start(store.clone(), Ok).unwrap();
    ask(&service, "<1 abcdef").unwrap();
    disk.set_capacity(100);
    assert!(matches!(save(&store, "<1 abcdef"), Err(NotSaved::DiskFull { .. })));
    disk.set_capacity(1 << 40);
    assert!(matches!(ask(&service, "<1 abcdef"), Err(NotSaved::Paused)));
    disk.later(60);
    ask(&service, "<1 abcdef").unwrap();
    disk.fail_at(2, std::io::ErrorKind::Other);
    assert!(matches!(save(&store, "<1 abcdef"), Err(NotSaved::Io(_))));
    assert!(matches!(ask(&service, "<1 abcdef"), Err(NotSaved::Failing)));
    disk.later(60);
    ask(&service, "<1 abcdef").unwrap();
    assert_eq!(store.stats().saves_failed, [0, 4, 0, 0]);
    service.close();
}

#[test]
fn a_save_that_succeeds_shows_that_the_disk_does_not_fail() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    let service = Service::start(store.clone(), Ok).unwrap();
    disk.fail_at(2, std::io::ErrorKind::Other);
    assert!(save(&store, "<1 abcdef").is_err() && ask(&service, "<1 xyz").is_err());
    save(&store, "<1 abcdef").unwrap();
    ask(&service, "<1 xyz").unwrap();
    service.close();
}

#[test]
fn what_can_never_fit_is_refused_before_it_is_copied() {
    let first = format!("<1 {}~", text(1, 100));
    let whole = save(&open(MemDisk::new(), 1 << 20), &first).unwrap().written.0;
    let store = open(MemDisk::new(), whole + 200);
    let service = Service::start(store.clone(), Ok).unwrap();
    let much = format!("<2 {}", text(1, 1_000));
    assert!(matches!(ask(&service, &much), Err(NotSaved::LargerThanBudget { .. })));
    save(&store, &first).unwrap();
    // What it continues must stay, however little is new.
    let longer = format!("<1 {}{}~", text(1, 100), text(2, 40));
    assert!(matches!(ask(&service, &longer), Err(NotSaved::NoRoom { .. })));
    assert!(matches!(save(&store, &longer), Err(NotSaved::NoRoom { .. })));
    ask(&service, &format!("<2 {}", text(2, 100))).unwrap();
    service.close();
}

#[test]
fn who_does_not_write_copies_nothing_until_the_one_that_does_is_gone() {
    let temporary = tempfile::tempdir().unwrap();
    let store = || {
        let folder = Folder::open(&temporary.path().join("kv")).unwrap();
        Store::open(Box::new(folder), &identity(), GEOMETRY, options(1 << 30)).unwrap()
    };
    let (first, second) = (store(), store());
    let service = Service::start(second.clone(), Ok).unwrap();
    assert!(matches!(ask(&service, "<1 abcdef"), Err(NotSaved::ReadOnly)));
    // The question had the saving thread look whether the first one still writes.
    service.close();
    save(&first, "<1 later").unwrap();
    drop(first);
    let service = Service::start(second.clone(), Ok).unwrap();
    assert!(matches!(ask(&service, "<1 abcdef"), Err(NotSaved::ReadOnly)));
    service.close();
    let service = Service::start(second.clone(), Ok).unwrap();
    ask(&service, "<1 abcdef").unwrap();
    assert!(find(&second, "<1 later <2").is_some(), "what the first one wrote meanwhile is known");
    assert_eq!(second.stats().saves_failed, [0, 2, 0, 0]);
    service.close();
}

//! The threads.

use crate::support::disk::MemDisk;
use crate::support::{find, open, save, snapshot, transcript};
use ds4_banks::{BankBytes, LoadError, Loaded, NotSaved, Service, Unusable};
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

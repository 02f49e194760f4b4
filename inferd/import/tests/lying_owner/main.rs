//! Owners that lie, stall or vanish, and the error a worker has for each.

mod owner;

use ds4_gpu::RangeError;
use ds4_import::{AttachOptions, Attached, ImportError, ImportFailure, MapError, attach};
use ds4_wire::{Phase, RangeSize, Refusal, Reply, Request, WireError};
use owner::{Answer, FakeOwner, RANGE_LEN, RANGES, plain_file, sealed};
use std::sync::atomic::AtomicBool;

static NO: AtomicBool = AtomicBool::new(false);
/// Tells the test program that it runs under a low limit.
const LIMITED: &str = "DS4_TEST_LIMITED";

/// Attaches to an owner that answers each request as `lie` says, and as it should where `lie` has nothing to say.
fn attach_to(lie: impl Fn(&Request) -> Option<Answer> + Send + 'static) -> Result<Attached, ImportError> {
    let owner = FakeOwner::start(lie);
    attach(&owner.manifest(), &AttachOptions::new("test", &NO))
}

fn failure(lie: impl Fn(&Request) -> Option<Answer> + Send + 'static) -> ImportError {
    match attach_to(lie) {
        Ok(_) => panic!("it attached"),
        Err(error) => error,
    }
}

fn refuses(refusal: Refusal) -> Option<Answer> {
    Some(Answer::Say(Reply::Refused(refusal)))
}

/// Ranges of fake owners that this process has mapped.
fn mapped() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:lying-owner").count()
}

#[test]
fn an_honest_owner_is_attached_to() {
    let attached = attach_to(|_| None).unwrap();
    assert_eq!(attached.report.ranges, RANGES);
    assert_eq!(attached.weights.tensor("t1").unwrap().bytes().unwrap()[..], [1; 64]);
}

#[test]
fn an_owner_that_vanishes_at_any_step_is_lost() {
    let steps: [fn(&Request) -> bool; 4] = [
        |request| matches!(request, Request::Hello(_)),
        |request| matches!(request, Request::Ranges),
        |request| matches!(request, Request::Fds { .. }),
        |request| matches!(request, Request::Ready { .. }),
    ];
    for is_here in steps {
        let error = failure(move |request| is_here(request).then_some(Answer::HangUp));
        assert_eq!(error.failure(), ImportFailure::OwnerLost, "{error}");
        assert!(error.to_string().contains("went away"), "{error}");
    }
}

// Nothing may stay mapped, whichever range is bad.
#[test]
fn a_bad_range_at_any_place_unmaps_all_the_others() {
    for bad in 0..RANGES {
        let error = failure(move |request| match request {
            Request::Fds { first, count, .. } => {
                let fds = (0..RANGES).map(|at| if at == bad { plain_file() } else { sealed(at) }).collect();
                Some(Answer::SayWithFds(Reply::Fds { first: *first, count: *count }, fds))
            }
            _ => None,
        });
        let ImportError::Range { id, source } = &error else { panic!("{error}") };
        assert_eq!(*id as usize, bad);
        assert!(matches!(source, MapError::Host(RangeError::NotMemory { .. })), "{source}");
    }
    // Other tests of this program map such ranges too, but not for long.
    while mapped() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn memory_that_could_still_change_is_not_mapped() {
    let error = failure(|request| match request {
        Request::Fds { .. } => {
            let fds = (0..RANGES).map(|_| owner::unsealed()).collect();
            Some(Answer::SayWithFds(Reply::Fds { first: 0, count: RANGES as u32 }, fds))
        }
        _ => None,
    });
    assert!(
        matches!(error, ImportError::Range { id: 0, source: MapError::Host(RangeError::NotSealed { .. }) }),
        "{error}"
    );
}

#[test]
fn a_range_of_another_length_is_not_mapped() {
    let error = failure(|request| match request {
        Request::Fds { .. } => {
            let fds = (0..RANGES).map(|at| owner::sealed_of(at, RANGE_LEN * 2)).collect();
            Some(Answer::SayWithFds(Reply::Fds { first: 0, count: RANGES as u32 }, fds))
        }
        _ => None,
    });
    assert!(
        matches!(error, ImportError::Range { id: 0, source: MapError::Host(RangeError::Length { .. }) }),
        "{error}"
    );
}

#[test]
fn too_few_too_many_and_unexpected_descriptors_are_errors() {
    for count in [0, RANGES - 1, RANGES + 1] {
        let error = failure(move |request| match request {
            Request::Fds { .. } => {
                let fds = (0..count).map(sealed).collect();
                Some(Answer::SayWithFds(Reply::Fds { first: 0, count: RANGES as u32 }, fds))
            }
            _ => None,
        });
        let ImportError::Wire(WireError::FdCount { got, want }) = error else { panic!("{error}") };
        assert_eq!((got, want), (count, RANGES));
    }
    let error = failure(|request| match request {
        Request::Ranges => Some(Answer::SayWithFds(owner::table(), vec![sealed(0)])),
        _ => None,
    });
    assert!(matches!(error, ImportError::Wire(WireError::UnexpectedFds { count: 1 })), "{error}");
}

#[test]
fn ranges_in_another_order_are_noticed_by_their_bytes() {
    let error = failure(|request| match request {
        Request::Fds { .. } => {
            let fds = (0..RANGES).rev().map(sealed).collect();
            Some(Answer::SayWithFds(Reply::Fds { first: 0, count: RANGES as u32 }, fds))
        }
        _ => None,
    });
    assert!(matches!(error, ImportError::Corrupt { .. }), "{error}");
}

#[test]
fn a_table_that_is_not_the_manifests_names_the_range() {
    let error = failure(|request| match request {
        Request::Ranges => {
            let ranges = vec![RangeSize { id: 0, len: RANGE_LEN }, RangeSize { id: 1, len: 7 }];
            Some(Answer::Say(Reply::Ranges { generation: 1, ranges }))
        }
        _ => None,
    });
    let ImportError::RangeTable { id: 1, manifest: Some(RANGE_LEN), owner: Some(7) } = error else { panic!("{error}") };
}

#[test]
fn answers_to_something_else_are_errors() {
    let steps: [fn(&Request) -> bool; 4] = [
        |request| matches!(request, Request::Hello(_)),
        |request| matches!(request, Request::Ranges),
        |request| matches!(request, Request::Fds { .. }),
        |request| matches!(request, Request::Ready { .. }),
    ];
    for is_here in steps {
        let error = failure(move |request| {
            is_here(request).then(|| Answer::Say(Reply::Ranges { generation: 5, ranges: vec![] }))
        });
        let named = matches!(error, ImportError::WrongReply { .. } | ImportError::RangeTable { .. });
        assert!(named, "{error}");
    }
}

#[test]
fn every_refusal_has_its_message() {
    let hello = |refusal: Refusal| {
        failure(move |request| match request {
            Request::Hello(_) => refuses(refusal.clone()),
            _ => None,
        })
    };
    let user = hello(Refusal::User { uid: 77, rule: "uid 5 and root may".into() });
    assert!(user.to_string().contains("uid 77: uid 5 and root may") && user.to_string().contains("--allow-uid 77"));
    let draining = hello(Refusal::Draining);
    assert_eq!(draining.failure(), ImportFailure::NotReady);
    let phase = Phase::Loading { done: 1, total: 4, elapsed_ms: 3000 };
    let loading = hello(Refusal::NotReady { phase });
    assert!(loading.to_string().contains("loading, 25 %, about 9 s left. Wait for it with --wait SECS"), "{loading}");
    let busy = hello(Refusal::Busy { max: 64 });
    assert!(busy.to_string().contains("64 connections"), "{busy}");
    let capability = hello(Refusal::MissingCapability { capability: "soa".into(), avoid_with: "--no-soa".into() });
    assert!(capability.to_string().contains("start the owner with --no-soa"), "{capability}");
}

#[test]
fn too_few_descriptors_are_named_with_the_limit() {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 66 && exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let output = command.args(["--exact", "with_66_descriptors", "--ignored"]).env(LIMITED, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Not a test: what the test above runs under its limit.
#[test]
#[ignore = "a child process of another test"]
fn with_66_descriptors() {
    if std::env::var_os(LIMITED).is_none() {
        return;
    }
    let error = failure(|_| None);
    assert!(matches!(error, ImportError::FdLimit { need: 67, have: 66 }), "{error}");
    assert!(error.to_string().contains("LimitNOFILE="), "{error}");
}

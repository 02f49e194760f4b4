//! The decoder under arbitrary bytes: a message or an error, never a panic and never a large allocation.

use ds4_wire::{Event, Hello, Phase, RangeSize, Refusal, Reply, Request, Want, Welcome, WireError, decode, encode};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn hello() -> impl Strategy<Value = Hello> {
    let want = (option::of(".{0,20}"), option::of(any::<[u8; 16]>()), option::of(any::<u64>()))
        .prop_map(|(model, instance, generation)| Want { model, instance, generation });
    (any::<u32>(), any::<u32>(), ".{0,40}", any::<u32>(), vec(".{0,20}", 0..4), want).prop_map(
        |(proto_min, proto_max, worker_id, pid, capabilities, want)| Hello {
            proto_min,
            proto_max,
            worker_id,
            pid,
            capabilities,
            want,
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        hello().prop_map(Request::Hello),
        Just(Request::Ranges),
        any::<(u64, u32, u32)>().prop_map(|(generation, first, count)| Request::Fds { generation, first, count }),
        any::<u64>().prop_map(|imported_bytes| Request::Ready { imported_bytes }),
        Just(Request::Status),
        Just(Request::Drain),
        Just(Request::Bye),
    ]
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![
        Just(Phase::Starting),
        any::<(u64, u64, u64)>().prop_map(|(done, total, elapsed_ms)| Phase::Loading { done, total, elapsed_ms }),
        Just(Phase::Ready),
        Just(Phase::Draining),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let welcome = (any::<u32>(), any::<[u8; 16]>(), any::<u64>(), phase())
        .prop_map(|(proto, instance, generation, phase)| Welcome { proto, instance, generation, phase });
    let ranges = (any::<u64>(), vec(any::<(u32, u64)>(), 0..200)).prop_map(|(generation, ranges)| Reply::Ranges {
        generation,
        ranges: ranges.into_iter().map(|(id, len)| RangeSize { id, len }).collect(),
    });
    let unknown = (vec(".{0,10}", 0..3), ".{0,10}").prop_map(|(have, want)| Refusal::UnknownModel { have, want });
    prop_oneof![
        welcome.prop_map(Reply::Welcome),
        ranges,
        any::<(u32, u32)>().prop_map(|(first, count)| Reply::Fds { first, count }),
        Just(Reply::Done),
        phase().prop_map(|phase| Reply::Refused(Refusal::NotReady { phase })),
        unknown.prop_map(Reply::Refused),
        any::<u64>().prop_map(|wait_ms| Reply::Event(Event::Draining { wait_ms })),
    ]
}

proptest! {
    #[test]
    fn every_request_survives_the_trip(request in request()) {
        prop_assert_eq!(decode::<Request>(&encode(&request).unwrap()).unwrap(), request);
    }

    #[test]
    fn every_reply_survives_the_trip(reply in reply()) {
        prop_assert_eq!(decode::<Reply>(&encode(&reply).unwrap()).unwrap(), reply);
    }

    #[test]
    fn arbitrary_bytes_give_a_message_or_an_error(bytes in vec(any::<u8>(), 0..300)) {
        let _ = decode::<Request>(&bytes);
        let _ = decode::<Reply>(&bytes);
    }

    #[test]
    fn a_damaged_message_gives_a_message_or_an_error(
        reply in reply(), at in any::<prop::sample::Index>(), byte in any::<u8>(), len in any::<prop::sample::Index>()
    ) {
        let mut bytes = encode(&reply).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(len.index(bytes.len()) + 1);
        let _ = decode::<Reply>(&bytes);
        let _ = decode::<Request>(&bytes);
    }

    #[test]
    fn a_cut_message_or_one_with_more_after_it_is_malformed(request in request()) {
        let whole = encode(&request).unwrap();
        for len in 0..whole.len() {
            let is_malformed = matches!(decode::<Request>(&whole[..len]), Err(WireError::Malformed { .. }));
            prop_assert!(is_malformed, "cut at {}", len);
        }
        let mut more = whole;
        more.push(0);
        let is_malformed = matches!(decode::<Request>(&more), Err(WireError::Malformed { .. }));
        prop_assert!(is_malformed);
    }
}

#[test]
fn nine_bytes_that_claim_a_huge_string_are_refused_without_allocating_it() {
    // Hello (variant 0), proto 1 to 1, then a string of 2^62 bytes.
    let mut bytes = vec![0, 1, 1, 253];
    bytes.extend_from_slice(&(1u64 << 62).to_le_bytes());
    let error = decode::<Request>(&bytes).unwrap_err();
    assert!(error.to_string().contains("LimitExceeded"), "{error}");
}

#[test]
fn a_message_too_large_for_a_frame_is_not_sent() {
    let hello = Hello { worker_id: "x".repeat(ds4_wire::FRAME_BODY_MAX), ..Hello::default() };
    assert!(encode(&Request::Hello(hello)).is_err());
}

#[test]
fn an_unknown_operation_is_an_error_that_the_connection_survives() {
    let error = decode::<Request>(&[99]).unwrap_err();
    assert!(error.is_recoverable(), "{error}");
}

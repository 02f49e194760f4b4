//! The rule against its worked examples and its properties.

use ds4_governor::{
    Census, Claim, Consumer, Floors, Governor, Lease, Leases, Observation, Quote, Source, Verdict, evaluate,
};
use ds4_units::Bytes;
use proptest::prelude::*;

fn lease(intent: u64, resident: u64, reservation: u64) -> Lease {
    Lease { intent: Bytes(intent), resident: Bytes(resident), reservation: Bytes(reservation) }
}

fn example() -> Leases {
    let mut leases = Leases::default();
    leases.set(Consumer::EngineBoot, lease(10_000, 10_000, 0));
    leases.set(Consumer::Prewarm, lease(200, 200, 0));
    leases.set(Consumer::BatchBanks, lease(1200, 1000, 0));
    leases.set(Consumer::Restore, lease(0, 0, 200));
    leases
}

const FLOORS: Floors = Floors { floor: Bytes(600), substrate_outstanding: Bytes(50) };

fn banks(proposed: u64, limit: Option<u64>) -> Claim {
    Claim { consumer: Consumer::BatchBanks, proposed: Bytes(proposed), transient: Bytes::ZERO, limit: limit.map(Bytes) }
}

fn free(bytes: u64) -> Observation {
    Observation::of(Source::CudaFree, Bytes(bytes))
}

fn decide(leases: &Leases, bytes: u64, claim: Claim) -> Quote {
    evaluate(leases, &FLOORS, &free(bytes), &claim)
}

#[test]
fn the_last_byte_decides() {
    assert_eq!(decide(&example(), 1350, banks(1500, None)).verdict, Verdict::Admit);
    let refused = decide(&example(), 1349, banks(1500, None));
    assert_eq!((refused.verdict, refused.required, refused.deficit), (Verdict::RefuseLive, Bytes(1350), Bytes(1)));
}

#[test]
fn more_than_the_plan_is_refused_for_good() {
    let refused = decide(&example(), 1 << 40, banks(2500, Some(2000)));
    assert_eq!((refused.verdict, refused.deficit), (Verdict::RefuseClass, Bytes(500)));
}

#[test]
fn what_others_were_promised_counts_until_they_have_taken_it() {
    let mut leases = example();
    leases.set(Consumer::Restore, lease(5000, 0, 200));
    assert_eq!(decide(&leases, 0, banks(1500, None)).required, Bytes(6350));
    leases.set(Consumer::Restore, lease(5000, 5000, 200));
    assert_eq!(decide(&leases, 0, banks(1500, None)).required, Bytes(1350));
}

#[test]
fn an_account_that_contradicts_itself_admits_nothing() {
    let mut leases = example();
    leases.set(Consumer::Prewarm, lease(100, 200, 0));
    assert_eq!(decide(&leases, u64::MAX, banks(1, None)).verdict, Verdict::Fault);
    leases.set(Consumer::Prewarm, lease(u64::MAX, 0, 1));
    assert_eq!(decide(&leases, u64::MAX, banks(1, None)).verdict, Verdict::Fault);
}

#[test]
fn two_admissions_do_not_spend_the_same_bytes() {
    let governor = Governor::new(FLOORS, Census::default());
    // Room for one conversation of 1,000 above the floors, not for two.
    let observation = free(650 + 1500);
    assert_eq!(governor.admit(&observation, &banks(1000, None)).verdict, Verdict::Admit);
    assert_eq!(governor.admit(&observation, &banks(2000, None)).verdict, Verdict::RefuseLive);
    // A conversation that ends early gives back what it did not use.
    governor.publish(Consumer::BatchBanks, Bytes(300), Bytes(300));
    assert_eq!(governor.admit(&free(650 + 1200), &banks(1300, None)).verdict, Verdict::Admit);
    assert_eq!(governor.decisions().count(Consumer::BatchBanks, Verdict::Admit), 2);
}

fn any_lease() -> impl Strategy<Value = Lease> {
    (0..1u64 << 40, 0..1u64 << 40, 0..1u64 << 30).prop_map(|(a, b, reservation)| lease(a.max(b), a.min(b), reservation))
}

fn any_leases() -> impl Strategy<Value = Leases> {
    proptest::collection::vec(any_lease(), Consumer::ALL.len()).prop_map(|all| {
        let mut leases = Leases::default();
        Consumer::ALL.iter().zip(all).for_each(|(&consumer, lease)| leases.set(consumer, lease));
        leases
    })
}

proptest! {
    #[test]
    fn more_free_memory_never_turns_a_yes_into_a_no(
        leases in any_leases(), bytes in 0..1u64 << 42, more in 0..1u64 << 40, proposed in 0..1u64 << 41,
    ) {
        if decide(&leases, bytes, banks(proposed, None)).verdict == Verdict::Admit {
            prop_assert_eq!(decide(&leases, bytes + more, banks(proposed, None)).verdict, Verdict::Admit);
        }
    }

    #[test]
    fn what_is_admitted_leaves_the_floor_when_everyone_takes_what_was_promised(
        leases in any_leases(), bytes in 0..1u64 << 43, proposed in 0..1u64 << 41,
    ) {
        if decide(&leases, bytes, banks(proposed, None)).verdict == Verdict::Admit {
            let own = leases.get(Consumer::BatchBanks).resident.0;
            let others: u64 = Consumer::ALL.iter().filter(|&&consumer| consumer != Consumer::BatchBanks)
                .map(|&consumer| leases.get(consumer)).map(|lease| lease.intent.0 - lease.resident.0 + lease.reservation.0).sum();
            let left = i128::from(bytes) - i128::from(others) - i128::from(proposed.saturating_sub(own));
            prop_assert!(left >= i128::from(FLOORS.floor.0 + FLOORS.substrate_outstanding.0));
        }
    }

    #[test]
    fn giving_back_is_admitted_wherever_the_promises_already_fit(leases in any_leases(), bytes in 0..1u64 << 43) {
        let own = leases.get(Consumer::BatchBanks);
        if decide(&leases, bytes, banks(own.intent.0, None)).verdict == Verdict::Admit {
            prop_assert_eq!(decide(&leases, bytes, banks(own.intent.0 / 2, None)).verdict, Verdict::Admit);
        }
    }
}

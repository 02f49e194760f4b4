//! The one rule that decides whether memory may be promised.

use crate::class::labels;
use crate::{Consumer, Leases, Observation, Status};
use ds4_units::Bytes;

labels! {
    /// What was decided.
    Verdict {
        /// Promised.
        Admit = "admit",
        /// More than the plan made at boot allows; asking again is useless.
        RefuseClass = "refuse_class",
        /// Not now: what others give back can make room.
        RefuseLive = "refuse_live",
        /// Memory could not be measured; running work goes on, new work waits.
        RetryObservation = "retry_obs",
        /// This machine cannot measure memory.
        Unsupported = "unsupported",
        /// The account contradicts itself; nothing is promised.
        Fault = "fault",
    }
}

/// What stays free whoever asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floors {
    /// Never promised to anyone.
    pub floor: Bytes,
    /// Taken by what does not ask, later: weights that are still being loaded.
    pub substrate_outstanding: Bytes,
}

/// A wish for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who asks.
    pub consumer: Consumer,
    /// What it may come to hold if admitted: all of it, not only what is new.
    pub proposed: Bytes,
    /// Needed on top, for the duration of the operation alone.
    pub transient: Bytes,
    /// The most the plan allows this consumer; `None` for no limit.
    pub limit: Option<Bytes>,
}

/// A decision with every number that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    /// What was decided.
    pub verdict: Verdict,
    /// Bytes that must be free.
    pub required: Bytes,
    /// Bytes that are.
    pub free: Bytes,
    /// Bytes that are missing: up to `required`, or down to the claim's limit.
    pub deficit: Bytes,
    /// The claim.
    pub claim: Claim,
}

/// Decides on a claim.
///
/// What must be free is what is never given away, what the others were promised and have not taken, and what this
/// consumer would still take:
///
/// `floor + substrate + sum of others (reservation + intent - resident) + max(0, proposed - resident) + transient`
///
/// Pure: the same numbers give the same decision. Nothing is promised when a sum does not fit 64 bits or a lease holds
/// more than its intent.
pub fn evaluate(leases: &Leases, floors: &Floors, observation: &Observation, claim: &Claim) -> Quote {
    let quote =
        |verdict, required, deficit| Quote { verdict, required, free: observation.free, deficit, claim: *claim };
    let Some(required) = required(leases, floors, claim) else {
        return quote(Verdict::Fault, Bytes(u64::MAX), Bytes::ZERO);
    };
    match observation.status {
        Status::Unsupported => return quote(Verdict::Unsupported, required, Bytes::ZERO),
        Status::QueryError => return quote(Verdict::RetryObservation, required, Bytes::ZERO),
        Status::Ok => {}
    }
    if let Some(limit) = claim.limit.filter(|&limit| claim.proposed > limit) {
        return quote(Verdict::RefuseClass, required, Bytes(claim.proposed.0 - limit.0));
    }
    match required.0.checked_sub(observation.free.0) {
        None | Some(0) => quote(Verdict::Admit, required, Bytes::ZERO),
        Some(deficit) => quote(Verdict::RefuseLive, required, Bytes(deficit)),
    }
}

fn required(leases: &Leases, floors: &Floors, claim: &Claim) -> Option<Bytes> {
    let mut sum = floors.floor.0.checked_add(floors.substrate_outstanding.0)?;
    for other in leases.others(claim.consumer) {
        sum = sum.checked_add(other.reservation.0)?.checked_add(other.outstanding()?.0)?;
    }
    let own = leases.get(claim.consumer);
    own.outstanding()?;
    let more = claim.proposed.0.saturating_sub(own.resident.0);
    sum.checked_add(more)?.checked_add(claim.transient.0).map(Bytes)
}

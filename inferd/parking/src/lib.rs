//! A worker's side of a keeper: sets of descriptors that keep the memory of conversations when the worker is killed.
//!
//! [`Parking::open`] takes over what dead workers have left for the same content. From then on one thread parks and
//! forgets as it is told, in order; whoever computes waits for it as long as it chooses to ([`Parking::settle`]), and never
//! for a socket. A keeper that goes away costs nothing but what it would have kept; when one is there again everything is
//! parked anew.
//!
//! What the descriptors are of is not known here.

mod orphans;
mod service;
mod stats;

pub use orphans::Orphan;
pub use service::{Parking, ParkingOptions};
pub use stats::Stats;

//! One account of memory: who holds how much ([`Census`]), what was promised ([`Leases`]), and whether more may be
//! promised ([`evaluate`]).
//!
//! Everything that can grow while the worker serves asks here first. Nothing in this crate reads the machine or a
//! clock: an [`Observation`] is handed in, so that every decision can be repeated from the numbers it carries.
//!
//! What a governor might have and this one has not, because something else makes it needless:
//! - a floor that changes while a worker runs: there are no administrative endpoints, and a worker is exchanged for one with
//!   another floor in well under a second, with its weights and, where a keeper runs, its conversations;
//! - memory that is mapped ahead of the step that needs it: a conversation's pieces grow with it, from 2 to 64 MiB, so that
//!   one is mapped once in some hundred tokens or more.

mod census;
mod class;
mod evaluate;
mod governor;
mod lease;
mod observation;
mod plan;
mod pressure;
mod reconcile;
mod refusal;

pub use census::{Cell, Census, Charge};
pub use class::{Class, Domain};
pub use evaluate::{Claim, Floors, Quote, Verdict, evaluate};
pub use governor::{Decisions, Governor, Looks, Reconciled};
pub use lease::{Consumer, Lease, Leases};
pub use observation::{Observation, Readings, Source, Status};
pub use plan::{BankPlan, LengthPlan, PlanError, plan_banks};
pub use pressure::{Pressure, PressureLimits, Strain};
pub use reconcile::{Reconciliation, Residual};
pub use refusal::{Reason, Refusal, most_tokens_within};

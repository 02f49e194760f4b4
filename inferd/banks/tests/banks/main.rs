//! The store as its users see it.

mod bits;
mod catalog;
mod chains;
mod crash;
mod evict;
mod folder;
mod hostile;
mod lookup;
mod service;
#[path = "../support/mod.rs"]
mod support;
mod workload;

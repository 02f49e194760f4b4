//! The engine through its public door, over a model whose steps the tests hold and fail.

#[path = "../support/mod.rs"]
mod support;

mod company;
mod disk;
mod ends;
mod faults;
mod guessing;
mod keeping;
mod limits;
mod memory;
mod parked;
mod prompt_logprobs;
mod reuse;
mod schedule;
mod stats;

//! The surfaces as agents use them: the real router, engine and prompt protocol over a model that says what the test
//! wants, tool calls and reasoning included.

#[path = "../../../engine/tests/support/mod.rs"]
mod support;

mod world;

mod calls;
mod captures;
mod cases;
mod continuations;
mod counting;
mod faults;
mod goldens;
mod messages;
mod prompts;
mod responses;

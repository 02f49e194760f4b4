//! Tool calls through the real engine: a scripted model writes markup token by token.

#[path = "../../../engine/tests/support/mod.rs"]
mod support;

mod calls;
mod kit;
mod retries;
mod turns;

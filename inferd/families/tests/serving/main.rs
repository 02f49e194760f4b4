//! Tool calls through the real engine: a scripted model writes markup token by token.

#[path = "../../../engine/tests/support/mod.rs"]
mod support;

mod calls;
mod kit;
mod restarts;
mod retries;
mod turns;

//! The HTTP side in process: the real router and the real engine, over a model that says what the test wants.

#[path = "../../../engine/tests/support/mod.rs"]
mod support;

mod client;

mod bad_input;
mod bodies;
mod chat;
mod doors;
mod hostile;
mod large;
mod logprobs;
mod metric_names;
mod observability;
mod phases;
mod rendering;
mod sheds;
mod slips;
mod sockets;
mod streams;
mod structured;

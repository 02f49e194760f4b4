//! The DeepSeek V4 family against independent references.

mod demo;
mod kit;
mod oracle;
mod partitions;
mod refusals;

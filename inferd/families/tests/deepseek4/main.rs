//! The DeepSeek V4 family against independent references.

mod adopted;
mod demo;
mod drafts;
mod guessing;
mod images;
mod kit;
mod oracle;
mod partitions;
mod refusals;
mod transcripts;

//! DSML, the markup in which the model calls tools.
//!
//! `tag.rs` knows how tags are spelled, `block.rs` reads a block of calls as it is generated, `value.rs` the values in
//! it, `arguments.rs` turns them into JSON, `schema.rs` and `coerce.rs` settle their types, and `print.rs` is the way
//! back: calls into markup.

mod arguments;
mod block;
mod coerce;
mod print;
mod schema;
mod tag;
mod value;

pub(super) use block::{Block, BlockCall, BlockEvent, BlockRules, BlockState, excerpt};
pub(super) use print::{ending, opening, print};
pub(super) use schema::ToolTable;
pub(super) use tag::{Kind, Lexed, Spellings, Tag, lex};

#[cfg(test)]
mod tests;

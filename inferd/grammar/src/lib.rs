//! Answers held to a JSON schema.
//!
//! [`Grammars`] is a model's vocabulary, prepared once; it compiles a schema to a [`GrammarMask`], which tells before
//! every token which ones keep the answer valid. What the next mask is follows from the schema and the tokens alone,
//! so that a constrained request stays repeatable. A mask is computed while the model computes the logits it applies
//! to: [`GrammarMask::push`] starts the work on a thread of this crate and [`GrammarMask::allowed`] takes its result.
//!
//! The automata are llguidance's. This crate gives it our vocabulary, bounds what a schema may cost, and refuses by
//! name what it cannot hold an answer to.

mod calls;
mod error;
mod grammars;
mod keywords;
mod lark;
mod mask;
mod size;
mod vocabulary;

pub use calls::{Callable, CallableTool};
pub use error::{MaskError, SchemaError};
pub use grammars::Grammars;
pub use mask::GrammarMask;

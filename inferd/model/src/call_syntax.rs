//! How a family spells tool calls, for grammars that hold answers to it.

/// The canonical spelling of a block of tool calls, in parts. Control tokens are spelled out, as in text that is
/// trusted ([`crate::Tokenizer::parse_trusted`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSyntax {
    /// Opens a block, after the text before it.
    pub opening: &'static str,
    /// Before and after the name of a tool, at the start of a call.
    pub call: [&'static str; 2],
    /// Before and after the name of a parameter whose value follows as it is.
    pub text: [&'static str; 2],
    /// Before and after the name of a parameter whose value follows as JSON.
    pub json: [&'static str; 2],
    /// Ends a parameter.
    pub parameter_end: &'static str,
    /// Ends a call.
    pub call_end: &'static str,
    /// Ends the block.
    pub closing: &'static str,
}

//! The control tokens of the protocol, found by spelling.

use ds4_model::{Task, Tokenizer, TokenizerError};
use ds4_units::TokenId;

/// Ids in the file's own vocabulary.
#[derive(Clone, Copy)]
pub(super) struct Markers {
    pub(super) begin_of_sentence: TokenId,
    pub(super) end_of_sentence: TokenId,
    pub(super) user: TokenId,
    pub(super) assistant: TokenId,
    pub(super) think: TokenId,
    pub(super) end_think: TokenId,
    pub(super) dsml: TokenId,
    pub(super) latest_reminder: TokenId,
    action: TokenId,
    query: TokenId,
    authority: TokenId,
    domain: TokenId,
    title: TokenId,
    read_url: TokenId,
}

impl Markers {
    /// Finds all of them, or names the first that is missing.
    pub(super) fn find(tokenizer: &Tokenizer) -> Result<Markers, TokenizerError> {
        let find = |spelling| tokenizer.control(spelling);
        Ok(Markers {
            begin_of_sentence: find("<｜begin▁of▁sentence｜>")?,
            end_of_sentence: find("<｜end▁of▁sentence｜>")?,
            user: find("<｜User｜>")?,
            assistant: find("<｜Assistant｜>")?,
            think: find("<think>")?,
            end_think: find("</think>")?,
            dsml: find("｜DSML｜")?,
            latest_reminder: find("<｜latest_reminder｜>")?,
            action: find("<｜action｜>")?,
            query: find("<｜query｜>")?,
            authority: find("<｜authority｜>")?,
            domain: find("<｜domain｜>")?,
            title: find("<｜title｜>")?,
            read_url: find("<｜read_url｜>")?,
        })
    }

    /// The token that asks for a task.
    pub(super) fn task(&self, task: Task) -> TokenId {
        match task {
            Task::Action => self.action,
            Task::Query => self.query,
            Task::Authority => self.authority,
            Task::Domain => self.domain,
            Task::Title => self.title,
            Task::ReadUrl => self.read_url,
        }
    }
}

//! What was likely at each position of a prompt, for requests that want to know.

use super::{End, Running};
use crate::{Event, logprobs};

impl Running {
    /// Whether the next rows are of the prompt and their logits are wanted.
    pub(super) fn wants_prompt_logprobs(&self) -> bool {
        self.prompt_logprobs && self.computed < self.prompt_tokens
    }

    /// Reports what the rows of a step say about the prompt's next tokens, before [`Running::advance`] counts them.
    /// Returns the last row, if these were rows of the prompt; else it leaves them all.
    pub(crate) fn take_prompt_logprobs<'a>(
        &self,
        rows: &mut impl Iterator<Item = &'a [f32]>,
    ) -> Result<Option<&'a [f32]>, End> {
        if !self.wants_prompt_logprobs() {
            return Ok(None);
        }
        let count = self.top_logprobs.unwrap_or_default();
        let following = &self.record.tokens()[self.computed + 1..self.prompt_tokens];
        let mut following = following.iter();
        let (mut found, mut last) = (Vec::new(), None);
        for row in rows {
            found.extend(following.next().map(|&token| logprobs::of_position(row, token, count)));
            last = Some(row);
        }
        self.outbox.send(Event::PromptLogprobs(found))?;
        Ok(last)
    }
}

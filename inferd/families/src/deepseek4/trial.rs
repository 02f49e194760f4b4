//! What steps take of a device before any was computed.

use super::model::DeepSeek4;
use super::{draft, graph};
use ds4_kernels::backend::{Backend, BackendError, Produced};
use ds4_kernels::step::Step;
use ds4_model::StepSize;
use ds4_units::{Bytes, TokenId, TokenPos};

/// A step that nothing comes of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trial {
    /// Tokens of each conversation.
    tokens: Vec<usize>,
    /// The rows whose logits are wanted.
    wanted: Vec<usize>,
    /// The draft block guesses, one token for each conversation; else the model computes.
    guesses: bool,
}

impl<B: Backend> DeepSeek4<B> {
    /// What a step of this size would take of the device, at the end of the longest conversations, and with a draft block
    /// what guesses take where that is more: they need not be fewer rows than a small step has.
    pub(super) fn try_out(&self, size: StepSize, take: bool) -> Result<Bytes, BackendError> {
        self.trials(size).iter().try_fold(Bytes::ZERO, |most, trial| {
            let tried = self.with_step(trial, |step| {
                self.backend.try_out(step, take, |backend, step| self.operations(trial, backend, step))
            })?;
            Ok(most.max(tried))
        })
    }

    /// The largest steps of every kind there is, that of a prompt last.
    fn trials(&self, size: StepSize) -> Vec<Trial> {
        let context = self.info.context.index();
        let mut trials = Vec::new();
        if self.draft.is_some() {
            // What is stored of these rows is kept until it is known which guesses were right.
            let rows = B::REPLAY_ROWS.min(context);
            trials.push(Trial { tokens: vec![rows], wanted: (0..rows).collect(), guesses: false });
            let rows = B::REPLAY_ROWS.min(size.conversations.max(1));
            trials.push(Trial { tokens: vec![1; rows], wanted: (0..rows).collect(), guesses: true });
        }
        let others = size.conversations.saturating_sub(1);
        let longest = size.rows.saturating_sub(others).clamp(1, context);
        let tokens = std::iter::once(longest).chain(std::iter::repeat_n(1, others)).collect();
        trials.push(Trial { tokens, wanted: (longest - 1..longest + others).collect(), guesses: false });
        trials
    }

    fn with_step<T>(&self, trial: &Trial, run: impl FnOnce(&mut Step<'_, B::Bank>) -> T) -> T {
        let longest = trial.tokens.iter().copied().max().unwrap_or(0);
        let tokens = vec![TokenId(0); longest];
        let mut banks: Vec<B::Bank> = trial.tokens.iter().map(|_| self.backend.new_bank(self.layout.sizes)).collect();
        let segments = banks
            .iter_mut()
            .zip(&trial.tokens)
            .map(|(bank, &count)| (TokenPos((self.info.context.index() - count) as u32), &tokens[..count], bank));
        run(&mut Step::new(segments, trial.wanted.clone()))
    }

    fn operations(&self, trial: &Trial, backend: &B, step: &mut Step<'_, B::Bank>) -> Produced<B::Rows> {
        let draft = self.draft.as_ref().map(|draft| &draft.weights);
        match draft.filter(|_| trial.guesses) {
            Some(draft) => draft::guess(backend, &self.weights, draft, &self.shape, step),
            None => graph::forward(backend, &self.weights, draft, &self.shape, step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deepseek4::speculate::tests::bound;
    use ds4_kernels::kv_rows::PlainRows;
    use ds4_kernels::reference::Cpu;
    use std::path::Path;

    /// The demo model, which has a draft block.
    fn demo() -> DeepSeek4<Cpu<PlainRows>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo-model");
        bound(&folder, "ds4-demo-16m")
    }

    #[test]
    fn with_a_draft_block_guesses_are_tried_out_too() {
        let mut model = demo();
        let size = StepSize { rows: 1024, conversations: 5 };
        let step = Trial { tokens: vec![1020, 1, 1, 1, 1], wanted: (1019..1024).collect(), guesses: false };
        let rows = Cpu::<PlainRows>::REPLAY_ROWS;
        let guessed = Trial { tokens: vec![rows], wanted: (0..rows).collect(), guesses: false };
        let guess = Trial { tokens: vec![1; 5], wanted: (0..5).collect(), guesses: true };
        assert_eq!(model.trials(size), [guessed, guess, step.clone()]);
        model.draft = None;
        assert_eq!(model.trials(size), [step]);
    }

    #[test]
    fn what_is_tried_out_is_what_steps_and_guesses_compute() {
        let model = demo();
        for trial in model.trials(StepSize { rows: 130, conversations: 3 }) {
            // Guesses of the draft block have no other rows to keep.
            let keeps = trial.tokens.iter().sum::<usize>() <= Cpu::<PlainRows>::REPLAY_ROWS && !trial.guesses;
            let computed = model.with_step(&trial, |step| {
                for segment in &mut step.segments {
                    model.backend.begin(segment.bank, segment.start.index() + segment.rows.len()).expect("memory");
                }
                model.operations(&trial, &model.backend, step)
            });
            assert_eq!(computed.logits.expect("wanted rows").len(), trial.wanted.len(), "{trial:?}");
            assert_eq!(!computed.kept.is_empty(), keeps, "{trial:?}");
        }
    }
}

//! The masks of one answer, each computed while the model computes the logits it applies to.

use crate::MaskError;
use crate::grammars::first_line;
use ds4_model::{ConstraintFault, ConstraintScope, TokenConstraint, TokenSet};
use ds4_units::TokenId;
use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Threads that compute masks: two answers at a time, and never the threads that compute logits.
pub(crate) struct MaskPool(ThreadPool);

impl MaskPool {
    pub(crate) fn new() -> Result<MaskPool, ThreadPoolBuildError> {
        let name = |index| format!("mask-{index}");
        Ok(MaskPool(ThreadPoolBuilder::new().num_threads(2).thread_name(name).build()?))
    }
}

/// Which tokens may come next in one answer.
pub struct GrammarMask {
    scope: ConstraintScope,
    pool: Arc<MaskPool>,
    beginning: Box<Position>,
    state: State,
}

/// The automaton and what it allows now.
#[derive(Clone)]
struct Position {
    matcher: Matcher,
    allowed: SimpleVob,
}

enum State {
    Known(Box<Position>),
    Computing(Receiver<Result<Box<Position>, MaskError>>),
    Failed(MaskError),
}

impl GrammarMask {
    pub(crate) fn start(
        matcher: Matcher,
        scope: ConstraintScope,
        pool: Arc<MaskPool>,
    ) -> Result<GrammarMask, MaskError> {
        let beginning = Box::new(position(matcher)?);
        Ok(GrammarMask { scope, pool, state: State::Known(beginning.clone()), beginning })
    }

    /// The tokens that may come next, one bit each, token 0 in the lowest bit of the first word. A complete answer
    /// allows the tokens that end it. Blocks while the mask is being computed.
    ///
    /// # Errors
    /// When an earlier token broke the schema, or following it costs more than its limit. The answer cannot go on.
    pub fn allowed(&mut self) -> Result<&[u32], MaskError> {
        self.settle();
        match &self.state {
            State::Known(position) => Ok(position.allowed.as_slice()),
            State::Failed(error) => Err(error.clone()),
            State::Computing(_) => unreachable!("settled above"),
        }
    }

    /// Takes the token that was drawn and starts computing the mask after it. Does not block when
    /// [`GrammarMask::allowed`] was asked before.
    pub fn push(&mut self, token: TokenId) {
        self.settle();
        let (done, next) = sync_channel(1);
        match std::mem::replace(&mut self.state, State::Computing(next)) {
            State::Known(position) => self.pool.0.spawn(move || {
                // Nobody may be waiting any more: the request was cancelled.
                let _ = done.send(after(position.matcher, token).map(Box::new));
            }),
            failed => self.state = failed,
        }
    }

    fn settle(&mut self) {
        if let State::Computing(next) = &self.state {
            let lost = || Err(MaskError::TooComplex { reason: "its computation failed".into() });
            self.state = match next.recv().unwrap_or_else(|_| lost()) {
                Ok(position) => State::Known(position),
                Err(error) => State::Failed(error),
            };
        }
    }
}

impl TokenConstraint for GrammarMask {
    fn scope(&self) -> ConstraintScope {
        self.scope
    }

    fn allow(&mut self, allowed: &mut TokenSet) -> Result<(), ConstraintFault> {
        allowed.intersect_words(self.allowed()?);
        Ok(())
    }

    fn commit(&mut self, token: TokenId) -> Result<(), ConstraintFault> {
        self.push(token);
        Ok(())
    }

    fn restart(&mut self) {
        self.state = State::Known(self.beginning.clone());
    }
}

impl From<MaskError> for ConstraintFault {
    fn from(error: MaskError) -> ConstraintFault {
        ConstraintFault(error.to_string())
    }
}

fn after(mut matcher: Matcher, token: TokenId) -> Result<Position, MaskError> {
    matcher.consume_token(token.0).map_err(|_| MaskError::TokenNotAllowed { token: token.0 })?;
    position(matcher)
}

fn position(mut matcher: Matcher) -> Result<Position, MaskError> {
    let allowed = matcher.compute_mask_or_eos();
    let allowed = allowed.map_err(|error| MaskError::TooComplex { reason: first_line(&error.to_string()) })?;
    Ok(Position { matcher, allowed })
}

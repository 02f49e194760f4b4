//! Which token comes next: sampled, the likeliest, or one of those a grammar allows.

use crate::RequestFault;
use crate::sampler::Sampler;
use ds4_model::{AnswerPosition, ConstraintFault, ConstraintScope, TokenConstraint, TokenSet};
use ds4_units::TokenId;

/// Chooses the tokens of one request.
pub(crate) struct Chooser {
    sampler: Sampler,
    constraint: Option<Constrained>,
}

/// A constraint with the room for its answers.
struct Constrained {
    constraint: Box<dyn TokenConstraint>,
    allowed: TokenSet,
}

impl Chooser {
    pub(crate) fn new(sampler: Sampler, constraint: Option<Box<dyn TokenConstraint>>) -> Chooser {
        let constraint = constraint.map(|constraint| Constrained { constraint, allowed: TokenSet::full(0) });
        Chooser { sampler, constraint }
    }

    /// Chooses the token at `position`.
    ///
    /// # Errors
    /// When the logits are not finite, or the grammar cannot go on.
    pub(crate) fn choose(
        &mut self,
        logits: &[f32],
        greedy: bool,
        position: AnswerPosition,
    ) -> Result<TokenId, RequestFault> {
        let Chooser { sampler, constraint } = self;
        let allowed = match at(constraint, position) {
            Some(constrained) => Some(constrained.ask(logits.len())?),
            None => None,
        };
        sampler.sample(logits, greedy, allowed).map_err(|fault| RequestFault::Step(fault.to_string()))
    }

    /// The answer begins once more.
    pub(crate) fn restart(&mut self) {
        if let Some(constrained) = &mut self.constraint {
            constrained.constraint.restart();
        }
    }

    /// Reports a token that was taken at `position`.
    pub(crate) fn commit(&mut self, token: TokenId, position: AnswerPosition) -> Result<(), RequestFault> {
        match at(&mut self.constraint, position) {
            Some(constrained) => Ok(constrained.constraint.commit(token)?),
            None => Ok(()),
        }
    }
}

/// The constraint, where it applies.
fn at(constraint: &mut Option<Constrained>, position: AnswerPosition) -> Option<&mut Constrained> {
    let place = match position {
        AnswerPosition::Reasoning => return None,
        AnswerPosition::Content => ConstraintScope::Content,
        AnswerPosition::Calls => ConstraintScope::Calls,
    };
    constraint.as_mut().filter(|constrained| constrained.constraint.scope() == place)
}

impl Constrained {
    fn ask(&mut self, vocabulary: usize) -> Result<&TokenSet, ConstraintFault> {
        if self.allowed.vocabulary() != vocabulary {
            self.allowed = TokenSet::full(vocabulary);
        }
        self.allowed.fill();
        self.constraint.allow(&mut self.allowed)?;
        if self.allowed.is_empty() {
            return Err(ConstraintFault("no token may come next".to_owned()));
        }
        Ok(&self.allowed)
    }
}

//! Which token comes next: sampled, the likeliest, or one of those a grammar allows.

use crate::RequestFault;
use crate::sampler::Sampler;
use ds4_model::{AnswerPosition, ConstraintFault, ConstraintScope, TokenConstraint, TokenSet};
use ds4_units::TokenId;

/// Chooses the tokens of one request.
pub(crate) struct Chooser {
    sampler: Sampler,
    constraints: Vec<Constrained>,
}

/// A constraint with the room for its answers.
struct Constrained {
    constraint: Box<dyn TokenConstraint>,
    allowed: TokenSet,
}

impl Chooser {
    pub(crate) fn new(sampler: Sampler, constraints: Vec<Box<dyn TokenConstraint>>) -> Chooser {
        let constrained = |constraint| Constrained { constraint, allowed: TokenSet::full(0) };
        Chooser { sampler, constraints: constraints.into_iter().map(constrained).collect() }
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
        let Chooser { sampler, constraints } = self;
        let allowed = match at(constraints, position) {
            Some(constrained) => Some(constrained.ask(logits.len())?),
            None => None,
        };
        sampler.sample(logits, greedy, allowed).map_err(|fault| RequestFault::Step(fault.to_string()))
    }

    /// Whether it is always the likeliest token of all.
    pub(crate) fn is_greedy(&self) -> bool {
        self.constraints.is_empty() && self.sampler.is_greedy()
    }

    /// The answer begins once more.
    pub(crate) fn restart(&mut self) {
        self.constraints.iter_mut().for_each(|constrained| constrained.constraint.restart());
    }

    /// Reports a token that was taken at `position`.
    pub(crate) fn commit(&mut self, token: TokenId, position: AnswerPosition) -> Result<(), RequestFault> {
        match at(&mut self.constraints, position) {
            Some(constrained) => Ok(constrained.constraint.commit(token)?),
            None => Ok(()),
        }
    }
}

/// The constraint that applies at a position.
fn at(constraints: &mut [Constrained], position: AnswerPosition) -> Option<&mut Constrained> {
    let place = match position {
        AnswerPosition::Reasoning => return None,
        AnswerPosition::Content => ConstraintScope::Content,
        AnswerPosition::Calls => ConstraintScope::Calls,
    };
    constraints.iter_mut().find(|constrained| constrained.constraint.scope() == place)
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

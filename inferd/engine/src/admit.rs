//! Finding a bank for a request: the conversation that leaves the least to compute, or an empty bank.

use crate::running::{Running, Seat};
use crate::warm::{Graces, Warm, WarmBanks};
use crate::{Keep, ReuseKind};
use ds4_banks::Kept;
use ds4_model::{Model, PromptRecord};
use ds4_units::{BankId, Tokens};
use std::time::Instant;

/// Where what a bank holds was computed.
pub(crate) enum Origin {
    /// In this process, or something was computed with it here.
    Here,
    /// It was read from this file.
    Disk(Kept),
    /// By a worker that was killed, whose memory this one has taken over.
    Adopted,
}

/// A bank that holds the beginning of a prompt.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    bank: BankId,
    /// Tokens the bank gives without computing.
    cached: Tokens,
    /// Tokens left to compute.
    left: u32,
    holder: Holder,
    /// The prompt is what the bank's grace waits for.
    awaited: bool,
}

/// Order of preference between equal candidates: the least copying first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    /// A finished conversation that the prompt continues from its very end.
    WarmWhole,
    /// A finished conversation that parts from the prompt somewhere.
    WarmPart,
    /// A conversation that runs.
    Running,
}

/// Where a prompt will be seated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    best: Option<Candidate>,
    /// The best candidate's bank itself is continued, not a copy of it.
    in_place: bool,
    keep: Keep,
}

/// What a bank is looked for with.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) prompt: &'a PromptRecord,
    /// Whether what others computed may be used; otherwise only an empty bank will do.
    pub(crate) reuse: bool,
    pub(crate) keep: Keep,
    pub(crate) graces: Graces,
}

impl Wish<'_> {
    /// Whether a kept bank may be gone on from itself, though that is not its end.
    fn may_cut(&self, best: &Candidate, warm: &WarmBanks) -> bool {
        self.keep == Keep::Turn && (best.awaited || warm.may_go(best.bank, self.graces))
    }
}

impl Choice {
    /// The bank whose contents the seat comes from.
    pub(crate) fn source(&self) -> Option<BankId> {
        self.best.map(|best| best.bank)
    }

    /// Tokens to compute; `None` without a candidate.
    pub(crate) fn left(&self) -> Option<usize> {
        self.best.map(|best| best.left as usize)
    }

    /// The same seat in the bank itself instead of a copy; `None` where it is so already, or the bank is in use.
    pub(crate) fn in_its_bank(&self, warm: &WarmBanks, wish: Wish<'_>) -> Option<Choice> {
        let kept = self.best.is_some_and(|best| warm.holds(best.bank) && wish.may_cut(&best, warm));
        (kept && !self.in_place).then_some(Choice { in_place: true, ..*self })
    }

    /// An empty bank instead.
    pub(crate) fn without(&self) -> Choice {
        Choice { best: None, in_place: false, keep: self.keep }
    }

    /// The bank whose grace waits for this prompt.
    pub(crate) fn awaited(&self) -> Option<BankId> {
        self.best.filter(|best| best.awaited).map(|best| best.bank)
    }

    /// The bank that is continued itself.
    pub(crate) fn continued(&self) -> Option<BankId> {
        self.source().filter(|_| self.in_place)
    }
}

/// Chooses a seat; changes nothing. `banks` is the most there may be, those beside not counted.
pub(crate) fn choose(model: &dyn Model, running: &[Running], warm: &WarmBanks, banks: usize, wish: Wish<'_>) -> Choice {
    let best = if wish.reuse { best_candidate(model, running, warm, wish.prompt) } else { None };
    let full = running.len() + warm.len() >= banks;
    let in_place = best.is_some_and(|best| match best.holder {
        // What nobody goes on from must not take the place of what somebody does.
        _ if wish.keep == Keep::Nothing => false,
        // Its end is the prompt's beginning: nothing is lost by going on in place.
        Holder::WarmWhole => true,
        // It may yet be continued from its end: it is copied, unless its bank is the only one to be had.
        Holder::WarmPart => {
            full && warm.least_recent(Some(best.bank), wish.graces).is_none() && wish.may_cut(&best, warm)
        }
        Holder::Running => false,
    });
    Choice { best, in_place, keep: wish.keep }
}

/// Seats a prompt as chosen; at least one bank is free or warm. Whatever goes wrong with a candidate, an empty bank is
/// always right.
pub(crate) fn seat(
    model: &mut dyn Model,
    running: &[Running],
    warm: &mut WarmBanks,
    prompt: &PromptRecord,
    choice: Choice,
    now: Instant,
) -> Seat {
    let best = choice.best;
    if choice.in_place
        && let Some(seat) = best.and_then(|best| cut_back(model, warm, best, prompt))
    {
        return seat;
    }
    best.and_then(|best| fork(model, running, warm, best, prompt, choice.keep, now)).unwrap_or_else(|| Seat {
        bank: model.open_bank(),
        prompt: prompt.clone(),
        cached: 0,
        reuse: ReuseKind::Cold,
        origin: Origin::Here,
    })
}

fn best_candidate(
    model: &dyn Model,
    running: &[Running],
    warm: &WarmBanks,
    prompt: &PromptRecord,
) -> Option<Candidate> {
    let warm = warm.iter().filter_map(|warm| {
        let held = Tokens(warm.record.tokens().len() as u32);
        let mut found = candidate(model, warm.bank, &warm.record, held, prompt)?;
        found.holder = if found.cached == held { Holder::WarmWhole } else { Holder::WarmPart };
        found.awaited = is_awaited(warm, found.cached);
        Some(found)
    });
    let running = running.iter().filter_map(|running| {
        let (record, held) = running.record();
        candidate(model, running.bank, record, held, prompt)
    });
    // Ties go to the later one in the list: the more recently used.
    warm.chain(running).reduce(|best, next| {
        let rank = |candidate: &Candidate| (candidate.left, candidate.holder);
        if rank(&next) <= rank(&best) { next } else { best }
    })
}

/// Whether a prompt that takes so many tokens from a kept bank is what it is kept for.
fn is_awaited(warm: &Warm, cached: Tokens) -> bool {
    warm.grace.is_some_and(|grace| cached >= grace.from)
}

/// What a bank whose first `held` tokens are `record`'s offers to a prompt. Nothing, when in doubt.
fn candidate(
    model: &dyn Model,
    bank: BankId,
    record: &PromptRecord,
    held: Tokens,
    prompt: &PromptRecord,
) -> Option<Candidate> {
    if model.frontier(bank) != Some(held) {
        return None;
    }
    let overlap = record.overlap(prompt);
    // The last token is always computed: its logits choose the first of the answer.
    let wanted = overlap.reused.min(held).min(Tokens(overlap.total.0.saturating_sub(1)));
    let cached = model.restorable(bank, wanted).ok().filter(|cached| cached.0 > 0)?;
    Some(Candidate { bank, cached, left: overlap.total.0 - cached.0, holder: Holder::Running, awaited: false })
}

/// Goes on in the bank itself, from its end or from further back.
fn cut_back(model: &mut dyn Model, warm: &mut WarmBanks, best: Candidate, prompt: &PromptRecord) -> Option<Seat> {
    let kept = warm.take(best.bank)?;
    let reuse = match best.holder {
        _ if matches!(kept.origin, Origin::Disk(_)) => ReuseKind::Disk,
        _ if matches!(kept.origin, Origin::Adopted) => ReuseKind::Adopted,
        Holder::WarmWhole => ReuseKind::Exact,
        _ => ReuseKind::Partial,
    };
    let cached = match model.truncate(best.bank, best.cached) {
        Ok(cached) => cached.index(),
        Err(_) => {
            model.close_bank(best.bank);
            return None;
        }
    };
    Some(Seat { bank: best.bank, prompt: kept.record.adopt(prompt), cached, reuse, origin: kept.origin })
}

/// Goes on in a copy of the bank's beginning.
fn fork(
    model: &mut dyn Model,
    running: &[Running],
    warm: &mut WarmBanks,
    best: Candidate,
    prompt: &PromptRecord,
    keep: Keep,
    now: Instant,
) -> Option<Seat> {
    let kept = warm.get(best.bank);
    let is_adopted = kept.is_some_and(|kept| matches!(kept.origin, Origin::Adopted));
    let record = kept
        .map(|warm| &warm.record)
        .or_else(|| running.iter().find(|row| row.bank == best.bank).map(|row| row.record().0))?;
    let prompt = record.adopt(prompt);
    let (bank, cached) = model.fork(best.bank, best.cached).ok()?;
    if keep != Keep::Nothing {
        warm.touch(best.bank, best.awaited, now);
    }
    let (reuse, origin) =
        if is_adopted { (ReuseKind::Adopted, Origin::Adopted) } else { (ReuseKind::Fork, Origin::Here) };
    Some(Seat { bank, prompt, cached: cached.index(), reuse, origin })
}

//! What happens in one turn of the engine thread: cancel, admit, compute, draw.
//!
//! Every drawn token goes first, then prompt rows: many while nobody decodes, else as many as keep the step short.

use crate::account::Account;
use crate::admit::{self, Choice, Origin};
use crate::clock::Watch;
use crate::disk::DiskBanks;
use crate::follow::{self, Following};
use crate::foresight::Foresight;
use crate::funding::Funded;
use crate::ghosts::Ghosts;
use crate::limits::{CHARGED_MORE, HELD_PASSED_MAX};
use crate::outbox::Outbox;
use crate::pace::Pace;
use crate::parked::ParkedBanks;
use crate::restore::Restoring;
use crate::rows;
use crate::running::{End, Left, Outcome, Running};
use crate::sampler::NotFinite;
use crate::speculation::Speculation;
use crate::stats::Counters;
use crate::tally::BankRates;
use crate::warm::{Grace, Graces, Warm, WarmBanks};
use crate::{EngineOptions, Event, GenerateRequest, Keep, QueueSlot, Refusal, RequestFault, Stores};
use ds4_governor::{Pressure, Reason};
use ds4_model::{LoadedModel, LogitsWanted, Model, PromptCodec, Segment, StepBatch, StepError, StepLogits, Tokenizer};
use ds4_units::{BankId, Bytes, Tokens};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::Span;

/// A request that waits for a bank.
pub(crate) struct Waiting {
    pub(crate) request: GenerateRequest,
    pub(crate) outbox: Outbox,
    pub(crate) submitted: Instant,
    /// When the engine saw it first, by its watch.
    pub(crate) since: Option<Instant>,
    /// Counts it as waiting until it is dropped.
    pub(crate) slot: QueueSlot,
    /// The disk was asked for its conversation.
    pub(crate) looked: bool,
    /// Another request computes the beginning of its prompt.
    pub(crate) following: Option<Following>,
    /// What its log lines are part of.
    pub(crate) span: Span,
}

/// The engine's state, all of it owned by one thread.
pub(crate) struct Scheduler {
    pub(crate) model: Box<dyn Model>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) codec: Arc<dyn PromptCodec>,
    pub(crate) options: EngineOptions,
    pub(crate) account: Account,
    pub(crate) watch: Watch,
    waiting: VecDeque<Waiting>,
    /// In order of admission.
    pub(crate) running: Vec<Running>,
    pub(crate) warm: WarmBanks,
    pub(crate) ghosts: Ghosts,
    pub(crate) disk: Option<DiskBanks>,
    pub(crate) parked: Option<ParkedBanks>,
    /// Requests whose conversations are being read.
    pub(crate) restoring: Vec<Restoring>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) bank_rates: BankRates,
    pace: Pace,
    foresight: Foresight,
    /// The guard's look that was last acted upon.
    pub(crate) relieved: u64,
    pub(crate) device_is_lost: bool,
    /// Where the model guesses.
    pub(crate) speculation: Option<Speculation>,
    /// Segments of the last step whose guesses were looked at, by request, bank, and guesses that were right.
    pub(crate) taken: Vec<(usize, BankId, usize)>,
}

/// What the engine's thread has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Steps, or reading from disk.
    Computes,
    /// Requests wait and nothing runs: the machine has no memory for them now, or what has is kept for others.
    Waits,
    /// Nothing.
    Nothing,
}

/// Rows that one running request computes in a step.
#[derive(Clone, Copy)]
struct Share {
    index: usize,
    rows: usize,
}

impl Scheduler {
    pub(crate) fn new(
        loaded: LoadedModel,
        options: EngineOptions,
        account: Account,
        stores: Stores,
        watch: Watch,
    ) -> Scheduler {
        let Stores { disk, parked } = stores;
        let pace = Pace::new(options.prefill_rows.unwrap_or(loaded.model.info().prefill_rows), options.step_target);
        let mut scheduler = Scheduler {
            pace,
            foresight: Foresight::default(),
            speculation: Speculation::new(options.speculation, loaded.model.as_ref()),
            taken: Vec::new(),
            bank_rates: BankRates::of(loaded.model.as_ref()),
            model: loaded.model,
            tokenizer: loaded.tokenizer,
            codec: loaded.codec,
            options,
            account,
            watch,
            waiting: VecDeque::new(),
            running: Vec::new(),
            warm: WarmBanks::default(),
            ghosts: Ghosts::default(),
            disk,
            parked,
            restoring: Vec::new(),
            counters: Arc::default(),
            relieved: 0,
            device_is_lost: false,
        };
        scheduler.counters.bytes_priced.set(scheduler.bank_rates.priced.index());
        scheduler.counters.note_work();
        scheduler.account.first_look();
        scheduler.keep_adopted();
        // What the device holds already is in the books before the first request comes.
        scheduler.enter_into_books();
        scheduler
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        let now = self.watch.now();
        let waiting = Waiting { since: Some(now), ..waiting };
        // What it goes on from must not be given up while it waits.
        if self.warm.has_graced(Graces::At(now))
            && let Some(bank) = self.choose(self.wish(&waiting)).awaited()
        {
            self.warm.keep_until(bank, now + self.options.grace);
        }
        self.waiting.push_back(waiting);
    }

    pub(crate) fn push_front(&mut self, waiting: Waiting) {
        self.waiting.push_front(waiting);
    }

    /// Whether the device computes nothing more for this process: only a new one can go on.
    pub(crate) fn device_is_lost(&self) -> bool {
        self.device_is_lost
    }

    /// How long an idle engine may wait for more requests before it computes what has come.
    pub(crate) fn patience(&self) -> Duration {
        let Some(waiting) = self.waiting.front() else { return Duration::ZERO };
        let prompt = &waiting.request.prompt;
        let choice = self.choose(self.wish(waiting));
        self.pace.patience(choice.left().unwrap_or(prompt.tokens().len()))
    }

    /// One turn.
    pub(crate) fn turn(&mut self) {
        self.counters.note_work();
        self.drop_cancelled();
        self.turn_away_old();
        self.relieve();
        self.give_back_beside();
        self.trim_rested();
        self.take_restored(Duration::ZERO);
        self.admit_waiting();
        self.lengthen_promises();
        let shares = self.plan();
        if shares.is_empty() {
            self.wait_for_disk();
        }
        self.compute(&shares);
        self.guess_ahead();
        self.enter_into_books();
        self.tell_keeper();
    }

    /// Whether requests wait that the next step may be for.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.restoring.is_empty() || (!self.waiting.is_empty() && self.running.len() < self.options.banks)
    }

    /// What there is to do.
    pub(crate) fn load(&self) -> Load {
        if !self.running.is_empty() || !self.restoring.is_empty() {
            Load::Computes
        } else if !self.waiting.is_empty() {
            Load::Waits
        } else {
            Load::Nothing
        }
    }

    /// Requests that wait.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// How long it will be until the first of those that run has ended, by how long steps and answers took so far;
    /// nothing when nothing runs or was measured.
    pub(crate) fn next_end(&self) -> Option<Duration> {
        self.running.iter().filter_map(|running| self.foresight.until_end(running.left())).min()
    }

    fn next_end_but(&self, index: usize) -> Option<Duration> {
        let others = self.running.iter().enumerate().filter(|&(other, _)| other != index);
        others.filter_map(|(_, running)| self.foresight.until_end(running.left())).min()
    }

    /// Takes the request that came last, if any waits.
    pub(crate) fn take_newest_waiting(&mut self) -> Option<Waiting> {
        self.waiting.pop_back()
    }

    /// Takes a request that was handed in before `then`.
    pub(crate) fn take_waiting_since(&mut self, then: Option<Instant>) -> Option<Waiting> {
        let then = then?;
        let index = self.waiting.iter().position(|waiting| waiting.submitted < then)?;
        self.waiting.remove(index)
    }

    /// Requests whose readers are gone leave, waiting ones and running ones.
    fn drop_cancelled(&mut self) {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| !waiting.outbox.is_cancelled());
        let restores = self.drop_cancelled_restores();
        self.counters.canceled.add(before - self.waiting.len() + restores);
        let gone = self.running.iter().enumerate().filter(|(_, running)| running.is_cancelled());
        let gone: Vec<(usize, End)> = gone.map(|(index, _)| (index, End::Cancelled)).collect();
        if restores > 0 || !gone.is_empty() {
            self.retire(gone);
            // Those who are admitted next must not be promised what these gave back a second time.
            self.enter_into_books();
        }
    }

    /// Gives banks to those who wait, in their order. Who follows another, or is held up by a bank that is kept for
    /// somebody else, lets others pass: one of them may be that somebody.
    fn admit_waiting(&mut self) {
        let (mut passed, mut held) = (Vec::new(), 0);
        let before = self.running.len();
        while self.running.len() < self.options.banks
            && held < HELD_PASSED_MAX
            && self.account.governor().pressure().0 == Pressure::None
        {
            let Some(mut waiting) = self.waiting.pop_front() else { break };
            if self.follows(&mut waiting) {
                passed.push(waiting);
                continue;
            }
            let Some(waiting) = self.restore_first(waiting) else { continue };
            let promise = self.first_promise(&waiting.request);
            match self.fund(&waiting, promise) {
                Funded::Yes(choice) => self.start(waiting, choice, promise),
                Funded::Never(refusal) => {
                    self.counters.refused(refusal.reason);
                    waiting.outbox.end(Event::Failed(refusal.into()));
                }
                Funded::Held => {
                    held += 1;
                    passed.push(waiting);
                }
                Funded::Later => {
                    self.waiting.push_front(waiting);
                    break;
                }
            }
        }
        self.counters.admissions(self.running.len().saturating_sub(before), !self.waiting.is_empty());
        passed.into_iter().rev().for_each(|waiting| self.waiting.push_front(waiting));
    }

    /// Whether a request waits for another to compute the beginning of its prompt.
    fn follows(&mut self, waiting: &mut Waiting) -> bool {
        let prompt = &waiting.request.prompt;
        let cached = || {
            let left = self.choose(self.wish(waiting)).left();
            left.map_or(0, |left| prompt.tokens().len().saturating_sub(left))
        };
        waiting.following = follow::leader(waiting, &self.running, cached);
        let Some(Following { bank, until }) = waiting.following else { return false };
        self.running.iter_mut().filter(|leader| leader.bank == bank).for_each(|leader| leader.pause_at(until));
        true
    }

    fn start(&mut self, waiting: Waiting, choice: Choice, promise: Tokens) {
        if choice.continued().is_none() {
            self.make_place(choice.source(), self.wish(&waiting));
        }
        let Waiting { request, outbox, submitted, slot, span, .. } = waiting;
        let driven_out = if request.prompt_logprobs { None } else { self.driven_out(&request.prompt) };
        let model = self.model.as_mut();
        let now = self.watch.now();
        let seat = admit::seat(model, &self.running, &mut self.warm, &request.prompt, choice, now);
        self.counters.admitted(seat.reuse, seat.cached);
        driven_out.into_iter().for_each(|held| self.note_refault(held, seat.cached));
        let context = self.model.info().context;
        let stored = self.stored(&seat.prompt, Tokens(seat.cached as u32));
        let mut running = Running::start(request, seat, promise, context, outbox, submitted, span);
        running.stored = stored;
        if let Some(disk) = &self.disk {
            running.save_at(disk.cold_position(running.record().0));
        }
        let announced = running.announce();
        self.running.push(running);
        // At no moment is it nowhere.
        self.counters.running.set(self.running.len());
        drop(slot);
        if let Err(end) = announced {
            self.retire(vec![(self.running.len() - 1, end)]);
        }
        // The next one is admitted by what this one has taken over, given back or copied.
        self.enter_into_books();
    }

    /// Answers that are longer than they were charged for are charged for more, or end.
    fn lengthen_promises(&mut self) {
        let more = Tokens(self.options.charged_tokens.0.div_ceil(CHARGED_MORE));
        let mut ended = Vec::new();
        for index in 0..self.running.len() {
            let Some(promise) = self.running[index].longer_promise(more) else { continue };
            if self.can_lengthen(index, promise) {
                self.counters.extensions_granted.add(1);
                self.running[index].was_promised(promise);
            } else {
                self.counters.extensions_refused.add(1);
                ended.push((index, self.running[index].run_out(&self.tokenizer)));
            }
        }
        self.retire(ended);
    }

    /// The next step's rows; without guesses where it has too many for a step with guesses.
    fn plan(&mut self) -> Vec<Share> {
        let shares = self.share_rows();
        let rows = shares.iter().map(|share| share.rows).sum();
        if self.drop_guesses_beyond(rows) { self.share_rows() } else { shares }
    }

    /// Every drawn token with its guesses, then prompt rows.
    fn share_rows(&self) -> Vec<Share> {
        let (decoding, filling): (Vec<usize>, Vec<usize>) =
            (0..self.running.len()).partition(|&index| self.running[index].is_decoding());
        let rows_left = |index: usize| self.running[index].rows_left();
        let drawn: usize = decoding.iter().map(|&index| rows_left(index)).sum();
        let budget = self.pace.rows(drawn);
        let left: Vec<usize> = filling.iter().map(|&index| rows_left(index)).collect();
        let given = filling.into_iter().zip(rows::share(budget, &left));
        let shares = decoding
            .into_iter()
            .map(|index| (index, rows_left(index) + self.running[index].guesses()))
            .chain(given.filter(|&(_, rows)| rows > 0));
        shares.map(|(index, rows)| Share { index, rows }).collect()
    }

    /// Computes one step. When the whole step is refused, each request is tried alone, so that only those that cannot
    /// be computed fail; what the others get does not depend on their company.
    fn compute(&mut self, shares: &[Share]) {
        if shares.is_empty() {
            return;
        }
        let mut ended = Vec::new();
        match self.step(shares) {
            Ok(logits) => {
                for (segment, share) in shares.iter().enumerate() {
                    self.advance(*share, &logits, segment, &mut ended);
                }
                self.accept_taken(&mut ended);
            }
            Err(error) if shares.len() == 1 => self.fail(shares[0].index, &error, &mut ended),
            Err(_) => {
                for share in shares {
                    match self.step(&[*share]) {
                        Ok(logits) => {
                            self.advance(*share, &logits, 0, &mut ended);
                            self.accept_taken(&mut ended);
                        }
                        Err(error) => self.fail(share.index, &error, &mut ended),
                    }
                }
            }
        }
        self.retire(ended);
    }

    /// Ends a request that cannot be computed, unless what it was restored from may be to blame, or memory, of which
    /// there may be more.
    fn fail(&mut self, index: usize, error: &StepError, ended: &mut Vec<(usize, End)>) {
        self.device_is_lost |= matches!(error, StepError::Device { lost: true, .. });
        if let StepError::OutOfMemory { missing, .. } = error {
            return self.fail_for_memory(index, *missing, ended);
        }
        if !self.begin_cold(index, error) {
            ended.push((index, step_fault(error)));
        }
    }

    /// The device had less memory than the machine said. Kept conversations go first, one at a time; without any, an
    /// answer ends for its length and a prompt is refused.
    fn fail_for_memory(&mut self, index: usize, missing: Bytes, ended: &mut Vec<(usize, End)>) {
        if let Some(victim) = self.oldest_kept() {
            return self.give_up(victim);
        }
        let running = &mut self.running[index];
        if !running.is_filling() {
            return ended.push((index, running.run_out(&self.tokenizer)));
        }
        let fits = Tokens(running.computed() as u32);
        let (reason, retry_after) = (Reason::LiveHeadroom, self.next_end_but(index));
        let refusal = Refusal { reason, deficit: missing, max_admissible_tokens: fits, retry_after };
        ended.push((index, End::Fault(RequestFault::Memory(refusal))));
    }

    fn step(&mut self, shares: &[Share]) -> Result<StepLogits, StepError> {
        self.hand_over();
        let segments: Vec<Segment<'_>> =
            shares.iter().map(|share| self.running[share.index].segment(share.rows)).collect();
        let began = Instant::now();
        let logits = self.model.step(&StepBatch { segments: &segments });
        if logits.is_ok() {
            self.count_step(shares, began.elapsed());
            // What comes of the logits is sent only now.
            self.hand_over();
        } else {
            self.counters.step_faults.add(1);
        }
        logits
    }

    fn count_step(&mut self, shares: &[Share], time: Duration) {
        let rows = |decoding: bool| -> usize {
            let kind = shares.iter().filter(|share| self.running[share.index].is_decoding() == decoding);
            kind.map(|share| share.rows).sum()
        };
        let (decoded, computed) = (rows(true), rows(false));
        self.pace.took(decoded, computed, time);
        self.foresight.took(decoded > 0, computed, time);
        if let Some(speculation) = self.speculation.as_mut().filter(|_| computed == 0) {
            speculation.took(decoded, time);
        }
        let guesses: usize = shares.iter().map(|share| self.running[share.index].guesses()).sum();
        // Of guesses the right ones count, when they are known.
        self.counters.decoded.add(decoded - guesses);
        self.counters.guesses.add(guesses);
        self.counters.prefilled_computed.add(computed);
        self.counters.steps.add(1);
        self.counters.decode_steps.add(usize::from(decoded > 0));
    }

    fn advance(&mut self, share: Share, logits: &StepLogits, segment: usize, ended: &mut Vec<(usize, End)>) {
        if self.running[share.index].guesses() > 0 {
            return self.verify(share.index, share.rows, logits, segment, ended);
        }
        let running = &mut self.running[share.index];
        let mut rows = logits.of_segment(segment);
        let outcome = match running.segment(share.rows).logits {
            LogitsWanted::Greedy => match logits.drawn(segment) {
                Some(token) => Some(Outcome::Likeliest(token)),
                None => return ended.push((share.index, End::Fault(RequestFault::Step(NotFinite.to_string())))),
            },
            _ => match running.take_prompt_logprobs(&mut rows) {
                Ok(last) => last.or_else(|| rows.next_back()).map(Outcome::Logits),
                Err(end) => return ended.push((share.index, end)),
            },
        };
        running.advance(share.rows);
        if running.wants_checkpoint() {
            // Without its checkpoint a bank is only reused less.
            let _ = self.model.checkpoint(running.bank);
        }
        self.save_if_due(share.index);
        if let Err(end) = self.running[share.index].continue_with(outcome, self.codec.stop_tokens(), &self.tokenizer) {
            ended.push((share.index, end));
        }
    }

    /// Ends requests, each named by its index, and keeps their banks warm where they are sound.
    pub(crate) fn retire(&mut self, mut ended: Vec<(usize, End)>) {
        ended.sort_unstable_by_key(|&(index, _)| index);
        // Readers hear of the end below: what they do next comes after this.
        let grace_ends = self.watch.now() + self.options.grace;
        for (removed, (index, end)) in ended.into_iter().enumerate() {
            self.counters.ended(&end);
            if let End::Finished(..) = end {
                self.foresight.answered(self.running[index - removed].answered());
            }
            let running = self.running.remove(index - removed);
            self.counters.running.set(self.running.len());
            let is_cut = running.is_cut_on_disk(&end);
            self.keep_or_close(running.leave(end), is_cut, grace_ends);
        }
    }

    fn keep_or_close(&mut self, left: Left, is_cut: bool, grace_ends: Instant) {
        let Left { bank, record, keep, awaited_from } = left;
        let worth_it = match keep {
            Keep::Turn => true,
            Keep::IfFree => self.banks() < self.options.banks,
            Keep::Nothing => false,
        };
        let holds = self.model.frontier(bank).map_or(0, |tokens| tokens.index());
        match record.filter(|record| worth_it && record.tokens().len() == holds) {
            Some(record) if self.model.checkpoint(bank).is_ok() => {
                self.leave_to_memory(bank, &record, is_cut);
                let held = self.held(bank);
                let used = self.watch.now();
                let grace = awaited_from.map(|from| Grace { until: grace_ends, from });
                self.warm.keep(Warm { bank, record, held, origin: Origin::Here, grace, used, trimmed: false });
                self.give_back_beside();
            }
            _ => self.model.close_bank(bank),
        }
    }

    /// Ends everything at once.
    pub(crate) fn stop(mut self) {
        self.counters.failed.add(self.waiting.len() + self.restoring.len() + self.running.len());
        for waiting in self.waiting.drain(..) {
            waiting.outbox.end(Event::Failed(RequestFault::EngineStopped));
        }
        for restoring in self.restoring.drain(..) {
            restoring.waiting.outbox.end(Event::Failed(RequestFault::EngineStopped));
        }
        self.counters.running.set(0);
        let left = self.running.drain(..).map(|running| running.leave(End::Fault(RequestFault::EngineStopped)));
        let turns = left.filter(|left| left.keep != Keep::Nothing);
        let sound = turns.filter_map(|left| Some((left.bank, left.record?))).collect();
        self.leave_to_disk(sound);
    }
}

fn step_fault(error: &StepError) -> End {
    End::Fault(RequestFault::Step(error.to_string()))
}

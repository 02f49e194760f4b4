//! What happens in one turn of the engine thread: cancel, admit, compute, draw.
//!
//! Every drawn token goes first, then prompt rows: many while nobody decodes, else as many as keep the step short.

use crate::account::Account;
use crate::admit::{self, Choice};
use crate::disk::DiskBanks;
use crate::funding::Funded;
use crate::limits::CHARGED_MORE;
use crate::outbox::Outbox;
use crate::pace::Pace;
use crate::restore::Restoring;
use crate::rows;
use crate::running::{End, Running};
use crate::stats::Counters;
use crate::warm::{Warm, WarmBanks};
use crate::{EngineOptions, Event, GenerateRequest, QueueSlot, RequestFault};
use ds4_model::{LoadedModel, Model, PromptCodec, Segment, StepBatch, StepError, StepLogits, Tokenizer};
use ds4_units::Tokens;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request that waits for a bank.
pub(crate) struct Waiting {
    pub(crate) request: GenerateRequest,
    pub(crate) outbox: Outbox,
    pub(crate) submitted: Instant,
    /// Counts it as waiting until it is dropped.
    pub(crate) slot: QueueSlot,
    /// The disk was asked for its conversation.
    pub(crate) looked: bool,
}

/// The engine's state, all of it owned by one thread.
pub(crate) struct Scheduler {
    pub(crate) model: Box<dyn Model>,
    tokenizer: Arc<Tokenizer>,
    codec: Arc<dyn PromptCodec>,
    pub(crate) options: EngineOptions,
    pub(crate) account: Account,
    waiting: VecDeque<Waiting>,
    /// In order of admission.
    pub(crate) running: Vec<Running>,
    pub(crate) warm: WarmBanks,
    pub(crate) disk: Option<DiskBanks>,
    /// Requests whose conversations are being read.
    pub(crate) restoring: Vec<Restoring>,
    pub(crate) counters: Arc<Counters>,
    pace: Pace,
    device_is_lost: bool,
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
        disk: Option<DiskBanks>,
    ) -> Scheduler {
        let pace = Pace::new(options.prefill_rows.unwrap_or(loaded.model.info().prefill_rows), options.step_target);
        Scheduler {
            pace,
            model: loaded.model,
            tokenizer: loaded.tokenizer,
            codec: loaded.codec,
            options,
            account,
            waiting: VecDeque::new(),
            running: Vec::new(),
            warm: WarmBanks::default(),
            disk,
            restoring: Vec::new(),
            counters: Arc::default(),
            device_is_lost: false,
        }
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
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
        let choice = admit::choose(self.model.as_ref(), &self.running, &self.warm, self.options.banks, prompt, true);
        self.pace.patience(choice.left().unwrap_or(prompt.tokens().len()))
    }

    /// One turn; `false` when there is nothing to do.
    pub(crate) fn turn(&mut self) -> bool {
        self.drop_cancelled();
        self.take_restored(Duration::ZERO);
        self.admit_waiting();
        self.lengthen_promises();
        let shares = self.plan();
        if shares.is_empty() {
            self.wait_for_disk();
        }
        self.compute(&shares);
        self.enter_into_books();
        self.counters.running.set(self.running.len());
        self.counters.warm.set(self.warm.len());
        !(self.running.is_empty() && self.waiting.is_empty() && self.restoring.is_empty())
    }

    /// Requests whose readers are gone leave, waiting ones and running ones.
    fn drop_cancelled(&mut self) {
        let before = self.waiting.len() + self.restoring.len();
        self.waiting.retain(|waiting| !waiting.outbox.is_cancelled());
        self.restoring.retain(|restoring| !restoring.waiting.outbox.is_cancelled());
        self.counters.canceled.add(before - self.waiting.len() - self.restoring.len());
        let gone = self.running.iter().enumerate().filter(|(_, running)| running.is_cancelled());
        let gone = gone.map(|(index, _)| (index, End::Cancelled)).collect();
        self.retire(gone);
    }

    fn admit_waiting(&mut self) {
        while self.running.len() < self.options.banks {
            let Some(waiting) = self.waiting.pop_front() else { return };
            let Some(waiting) = self.restore_first(waiting) else { continue };
            let promise = self.first_promise(&waiting.request);
            match self.fund(&waiting.request, promise) {
                Funded::Yes(choice) => self.start(waiting, choice, promise),
                Funded::Never(refusal) => {
                    self.counters.refused.add(1);
                    waiting.outbox.end(Event::Failed(refusal.into()));
                }
                Funded::Later => return self.waiting.push_front(waiting),
            }
        }
    }

    fn start(&mut self, waiting: Waiting, choice: Choice, promise: Tokens) {
        let Waiting { request, outbox, submitted, slot, .. } = waiting;
        drop(slot);
        if choice.continued().is_none() {
            self.make_place(choice.source());
        }
        let model = self.model.as_mut();
        let seat = admit::seat(model, &self.running, &mut self.warm, &request.prompt, choice);
        self.counters.admitted(seat.reuse, seat.cached);
        let context = self.model.info().context;
        let stored = self.stored(&seat.prompt, Tokens(seat.cached as u32));
        let mut running = Running::start(request, seat, promise, context, outbox, submitted);
        running.stored = stored;
        let announced = running.announce();
        self.running.push(running);
        if let Err(end) = announced {
            self.retire(vec![(self.running.len() - 1, end)]);
        }
    }

    /// Answers that are longer than they were charged for are charged for more, or end.
    fn lengthen_promises(&mut self) {
        let more = Tokens(self.options.charged_tokens.0.div_ceil(CHARGED_MORE));
        let mut ended = Vec::new();
        for index in 0..self.running.len() {
            let Some(promise) = self.running[index].longer_promise(more) else { continue };
            if self.can_lengthen(index, promise) {
                self.running[index].was_promised(promise);
            } else {
                ended.push((index, self.running[index].run_out(&self.tokenizer)));
            }
        }
        self.retire(ended);
    }

    /// Every drawn token, then prompt rows.
    fn plan(&self) -> Vec<Share> {
        let (decoding, filling): (Vec<usize>, Vec<usize>) =
            (0..self.running.len()).partition(|&index| self.running[index].is_decoding());
        let rows_left = |index: usize| self.running[index].rows_left();
        let budget = self.pace.rows(!decoding.is_empty());
        let left: Vec<usize> = filling.iter().map(|&index| rows_left(index)).collect();
        let given = filling.into_iter().zip(rows::share(budget, &left));
        let shares =
            decoding.into_iter().map(|index| (index, rows_left(index))).chain(given.filter(|&(_, rows)| rows > 0));
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
                    self.advance(*share, logits.of_segment(segment), &mut ended);
                }
            }
            Err(error) if shares.len() == 1 => self.fail(shares[0].index, &error, &mut ended),
            Err(_) => {
                for share in shares {
                    match self.step(&[*share]) {
                        Ok(logits) => self.advance(*share, logits.of_segment(0), &mut ended),
                        Err(error) => self.fail(share.index, &error, &mut ended),
                    }
                }
            }
        }
        self.retire(ended);
    }

    /// Ends a request that cannot be computed, unless what it was restored from may be to blame.
    fn fail(&mut self, index: usize, error: &StepError, ended: &mut Vec<(usize, End)>) {
        self.device_is_lost |= matches!(error, StepError::Device { lost: true, .. });
        if !self.begin_cold(index, error) {
            ended.push((index, step_fault(error)));
        }
    }

    fn step(&mut self, shares: &[Share]) -> Result<StepLogits, StepError> {
        let segments: Vec<Segment<'_>> =
            shares.iter().map(|share| self.running[share.index].segment(share.rows)).collect();
        let began = Instant::now();
        let logits = self.model.step(&StepBatch { segments: &segments });
        if logits.is_ok() {
            self.count_step(shares, began.elapsed());
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
        self.counters.decoded.add(decoded);
        self.counters.prefilled_computed.add(computed);
        self.counters.steps.add(1);
        self.counters.decode_steps.add(usize::from(decoded > 0));
    }

    fn advance<'a>(
        &mut self,
        share: Share,
        mut logits: impl DoubleEndedIterator<Item = &'a [f32]>,
        ended: &mut Vec<(usize, End)>,
    ) {
        let running = &mut self.running[share.index];
        let last = match running.take_prompt_logprobs(&mut logits) {
            Ok(last) => last.or_else(|| logits.next_back()),
            Err(end) => return ended.push((share.index, end)),
        };
        running.advance(share.rows);
        if running.at_boundary() {
            // Without its checkpoint a bank is only reused less.
            let _ = self.model.checkpoint(running.bank);
        }
        self.save_if_due(share.index);
        if let Err(end) = self.running[share.index].continue_with(last, self.codec.stop_tokens(), &self.tokenizer) {
            ended.push((share.index, end));
        }
    }

    /// Ends requests, each named by its index, and keeps their banks warm where they are sound.
    fn retire(&mut self, mut ended: Vec<(usize, End)>) {
        ended.sort_unstable_by_key(|&(index, _)| index);
        for (removed, (index, end)) in ended.into_iter().enumerate() {
            self.counters.ended(&end);
            let (bank, record) = self.running.remove(index - removed).leave(end);
            match record {
                Some(record) if self.model.checkpoint(bank).is_ok() => {
                    self.warm.keep(Warm { bank, record, restored: None })
                }
                _ => self.model.close_bank(bank),
            }
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
        let left = self.running.drain(..).map(|running| running.leave(End::Fault(RequestFault::EngineStopped)));
        let sound = left.filter_map(|(bank, record)| Some((bank, record?))).collect();
        self.leave_to_disk(sound);
    }
}

fn step_fault(error: &StepError) -> End {
    End::Fault(RequestFault::Step(error.to_string()))
}

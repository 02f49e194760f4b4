//! The model as the engine sees it: banks and steps over one graph.

use super::Sources;
use super::bank::{Bank, Bounds};
use super::bind::{self, ModelWeights};
use super::graph;
use super::layout::BankLayout;
use super::price;
use super::shape::Shape;
use super::speculate::{Draft, Undecided};
use super::tensors;
use ds4_kernels::backend::{Backend, BackendError, Computed};
use ds4_kernels::bank::{BLOCK_TOKENS, BankSizes};
use ds4_kernels::step::Step;
use ds4_model::{
    Adopted, BankError, BankFormat, BankImage, BindOptions, DraftWish, FamilyError, ImageCheck, Import, Journal,
    LogitsWanted, Model, ModelInfo, Parcel, Segment, StepBatch, StepError, StepLogits, StepSize, TokenWork,
};
use ds4_units::{BankId, Bytes, MemoryUse, TokenId, Tokens};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A DeepSeek V4 model on a backend.
pub(super) struct DeepSeek4<B: Backend> {
    pub(super) info: ModelInfo,
    pub(super) backend: B,
    pub(super) shape: Shape,
    pub(super) weights: ModelWeights<B>,
    pub(super) draft: Option<Draft<B>>,
    pub(super) layout: BankLayout,
    work: TokenWork,
    pub(super) banks: BTreeMap<BankId, Bank<B>>,
    next_bank: u32,
    repeats: B::Repeats,
    /// The last step had guesses.
    pub(super) undecided: Option<Undecided<B>>,
    /// Of what banks are, once journals are kept.
    fingerprint: Option<[u8; 32]>,
}

impl<B: Backend> DeepSeek4<B> {
    /// Binds the weights of a model of this shape.
    pub(super) fn new(
        backend: B,
        shape: Shape,
        sources: Sources<'_>,
        options: &BindOptions,
    ) -> Result<DeepSeek4<B>, FamilyError> {
        let layout = BankLayout::new::<B::Kv>(&shape, sources.draft.is_some());
        let info = ModelInfo {
            architecture: super::ARCHITECTURE.into(),
            shape: shape.name().to_string(),
            trained_context: Tokens(shape.trained_context),
            context: options.context,
            vocabulary: shape.vocabulary,
            prefill_rows: B::PREFILL_ROWS,
        };
        if shape.head_width > B::HEAD_WIDTH_MAX {
            let problem = format!("heads of {} channels; this device takes {}", shape.head_width, B::HEAD_WIDTH_MAX);
            return Err(FamilyError::Device(problem));
        }
        let work = tensors::token_work(&shape, sources.weights);
        let weights = bind::bind(&backend, sources.weights, &shape, &layout)?;
        let draft = match (sources.draft, layout.draft) {
            (Some(tensors), Some(places)) => Some(Draft::new(bind::bind_draft(&backend, tensors, &shape, places)?)),
            _ => None,
        };
        Ok(DeepSeek4 {
            info,
            backend,
            shape,
            weights,
            draft,
            layout,
            work,
            banks: BTreeMap::new(),
            next_bank: 0,
            repeats: B::Repeats::default(),
            undecided: None,
            fingerprint: None,
        })
    }

    fn check(&self, batch: &StepBatch<'_>) -> Result<(), StepError> {
        for (index, segment) in batch.segments.iter().enumerate() {
            if batch.segments[..index].iter().any(|earlier| earlier.bank == segment.bank) {
                return Err(StepError::BankTwice(segment.bank));
            }
            self.check_segment(segment)?;
        }
        let rows = batch.segments.iter().map(|segment| segment.tokens.len()).sum();
        let most = self.draft_rows();
        if rows > most && batch.segments.iter().any(|segment| segment.drafted > 0) {
            return Err(StepError::TooManyGuesses { rows, most });
        }
        Ok(())
    }

    fn check_segment(&self, segment: &Segment<'_>) -> Result<(), StepError> {
        let bank = segment.bank;
        let frontier = self.banks.get(&bank).ok_or(StepError::UnknownBank(bank))?.tokens();
        if segment.tokens.is_empty() {
            return Err(StepError::EmptySegment(bank));
        }
        if segment.drafted >= segment.tokens.len() {
            return Err(StepError::OnlyGuesses { bank, tokens: segment.tokens.len(), drafted: segment.drafted });
        }
        if segment.start.0 != frontier.0 {
            return Err(StepError::NotAtFrontier { bank, frontier, start: segment.start });
        }
        let wanted = frontier.index() + segment.tokens.len();
        if wanted > self.info.context.index() {
            let wanted = Tokens(u32::try_from(wanted).unwrap_or(u32::MAX));
            return Err(StepError::PastContext { bank, wanted, context: self.info.context });
        }
        match segment.tokens.iter().find(|token| token.index() >= self.info.vocabulary) {
            Some(token) => Err(StepError::TokenOutsideVocabulary { token: token.0, vocabulary: self.info.vocabulary }),
            None => Ok(()),
        }
    }

    /// Runs the graph over the batch's banks, which still hold what they held until they are committed.
    fn compute(
        &self,
        batch: &StepBatch<'_>,
        banks: &mut [Bank<B>],
        wanted: &Wanted,
    ) -> Result<Computed<B::Rows>, BackendError> {
        let draft = self.draft.as_ref().map(|draft| &draft.weights);
        let (backend, weights, shape, repeats) = (&self.backend, &self.weights, &self.shape, &self.repeats);
        for (bank, segment) in banks.iter_mut().zip(batch.segments) {
            bank.begin(backend, segment.tokens.len())?;
        }
        backend.run(|| {
            let segments = banks.iter_mut().zip(batch.segments);
            let segments = segments.map(|(bank, segment)| (segment.start, segment.tokens, bank.memory_mut()));
            let mut step = Step::new(segments, wanted.rows.clone());
            backend.compute(repeats, &mut step, &wanted.full, |backend, step| {
                graph::forward(backend, weights, draft, shape, step)
            })
        })
    }

    fn bank(&self, bank: BankId) -> Result<&Bank<B>, BankError> {
        self.banks.get(&bank).ok_or(BankError::UnknownBank(bank))
    }

    /// A journal for a new bank. A bank without one is left to nobody; everything else works.
    fn journal(&self) -> Option<Journal> {
        Journal::create(self.fingerprint?, self.info.context).ok()
    }

    fn add(&mut self, bank: Bank<B>) -> BankId {
        let id = BankId(self.next_bank);
        self.next_bank += 1;
        self.banks.insert(id, bank);
        id
    }
}

impl<B: Backend> Model for DeepSeek4<B> {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn open_bank(&mut self) -> BankId {
        self.add(Bank::empty(&self.backend, self.layout.sizes, self.journal()))
    }

    fn close_bank(&mut self, bank: BankId) {
        self.banks.remove(&bank);
    }

    fn frontier(&self, bank: BankId) -> Option<Tokens> {
        self.banks.get(&bank).map(Bank::tokens)
    }

    fn step(&mut self, batch: &StepBatch<'_>) -> Result<StepLogits, StepError> {
        self.undecided = None;
        self.check(batch)?;
        if batch.segments.is_empty() {
            return Ok(StepLogits::new(self.info.vocabulary, &[], Vec::new()));
        }
        // Banks leave the map while the step holds them all mutably.
        let mut banks: Vec<Bank<B>> =
            batch.segments.iter().filter_map(|segment| self.banks.remove(&segment.bank)).collect();
        let wanted = Wanted::of(batch);
        let computed = self.compute(batch, &mut banks, &wanted);
        for (mut bank, segment) in banks.into_iter().zip(batch.segments) {
            if computed.is_ok() && segment.drafted == 0 {
                bank.commit(&self.backend, segment.tokens);
            }
            self.banks.insert(segment.bank, bank);
        }
        let Computed { logits, best, kept } = computed.map_err(step_error)?;
        self.undecided = Undecided::of(batch, kept);
        let drawn = wanted.greedy.iter().map(|rows| best[rows.clone()].to_vec()).collect();
        Ok(StepLogits::new(self.info.vocabulary, &wanted.logits_per_segment, logits).with_all_drawn(drawn))
    }

    fn accept(&mut self, accepted: &[(BankId, usize)]) -> Result<(), StepError> {
        self.accept_guesses(accepted)
    }

    fn draft_rows(&self) -> usize {
        if self.draft.is_some() { B::REPLAY_ROWS } else { 0 }
    }

    fn draft(&mut self, wishes: &[DraftWish]) -> Result<Vec<Vec<TokenId>>, StepError> {
        self.guess(wishes)
    }

    fn checkpoint(&mut self, bank: BankId) -> Result<(), BankError> {
        let backend = &self.backend;
        let memory = self.banks.get_mut(&bank).ok_or(BankError::UnknownBank(bank))?;
        memory.checkpoint(backend).map_err(bank_error)
    }

    fn restorable(&self, bank: BankId, to: Tokens) -> Result<Tokens, BankError> {
        Ok(self.bank(bank)?.restorable(to))
    }

    fn truncate(&mut self, bank: BankId, to: Tokens) -> Result<Tokens, BankError> {
        let backend = &self.backend;
        let sizes = self.layout.sizes;
        let memory = self.banks.get_mut(&bank).ok_or(BankError::UnknownBank(bank))?;
        if to > memory.tokens() {
            return Err(BankError::PastFrontier { bank, frontier: memory.tokens(), to });
        }
        memory.truncate(backend, sizes, to).map_err(bank_error)
    }

    fn fork(&mut self, source: BankId, to: Tokens) -> Result<(BankId, Tokens), BankError> {
        let original = self.bank(source)?;
        if to > original.tokens() {
            return Err(BankError::PastFrontier { bank: source, frontier: original.tokens(), to });
        }
        let copy = original.fork(&self.backend, self.layout.sizes, to, self.journal()).map_err(bank_error)?;
        let reached = copy.tokens();
        Ok((self.add(copy), reached))
    }

    fn bank_format(&self) -> BankFormat {
        let BankSizes { block, recurrent } = self.layout.sizes;
        BankFormat {
            layout: format!("{} {}", super::ARCHITECTURE, self.layout.describe::<B::Kv>()),
            block_tokens: Tokens(BLOCK_TOKENS as u32),
            block: Bytes(block as u64),
            recurrent: Bytes(recurrent as u64),
        }
    }

    fn export(&self, bank: BankId, first_block: usize) -> Result<BankImage, BankError> {
        let held = self.bank(bank)?;
        let mut image = held.image(&self.backend, first_block).map_err(bank_error)?;
        // A step that failed may have left blocks beyond the frontier.
        image.blocks.truncate(held.tokens().index().div_ceil(BLOCK_TOKENS).saturating_sub(first_block));
        Ok(BankImage { blocks: image.blocks, recurrent: image.recurrent })
    }

    fn import(&mut self, tokens: &[TokenId], image: &BankImage) -> Result<BankId, BankError> {
        self.image_check()(Tokens(tokens.len() as u32), image).map_err(|problem| BankError::Image { problem })?;
        let mut import = Import::of_checked(tokens.to_vec(), image.clone());
        let whole = self.import_part(&mut import, Bytes(u64::MAX));
        let bank = import.bank.expect("the first part opens a bank");
        match whole {
            Ok(_) => Ok(bank),
            Err(error) => {
                self.close_bank(bank);
                Err(error)
            }
        }
    }

    fn image_check(&self) -> ImageCheck {
        let (layout, context) = (self.layout.clone(), self.info.context);
        Arc::new(move |tokens, image| {
            if tokens > context {
                return Err(format!("has {} tokens; the context is {}", tokens.0, context.0));
            }
            layout.check::<B::Kv>(tokens.index(), image)
        })
    }

    fn import_part(&mut self, import: &mut Import, bytes: Bytes) -> Result<bool, BankError> {
        let bank = match import.bank {
            Some(bank) => bank,
            None => self.open_bank(),
        };
        import.bank = Some(bank);
        let first = import.blocks;
        // Where no layer keeps compressed rows, blocks have no bytes.
        let count = (bytes.0 / (self.layout.sizes.block as u64).max(1)).max(1);
        let until = (first as u64).saturating_add(count).min(import.image().blocks.len() as u64) as usize;
        let filling = self.banks.get_mut(&bank).ok_or(BankError::UnknownBank(bank))?;
        filling.fill(&self.backend, first, &import.image().blocks[first..until]).map_err(bank_error)?;
        import.blocks = until;
        if until < import.image().blocks.len() {
            return Ok(false);
        }
        let whole = filling.filled(&self.backend, import.tokens(), &import.image().recurrent);
        whole.map(|()| true).map_err(bank_error)
    }

    fn keep_journals(&mut self, content: [u8; 32]) {
        let mut hash = Sha256::new_with_prefix(content);
        hash.update(self.bank_format().layout);
        hash.update(self.backend.memory_of());
        self.fingerprint = Some(hash.finalize().into());
    }

    fn fingerprint(&self) -> Option<[u8; 32]> {
        self.fingerprint
    }

    fn epoch(&self, bank: BankId) -> Option<u32> {
        self.banks.get(&bank)?.epoch(&self.backend)
    }

    fn parcel(&self, bank: BankId) -> Result<Option<Parcel>, BankError> {
        self.bank(bank)?.parcel(&self.backend).map_err(bank_error)
    }

    fn adopt(&mut self, parcel: Parcel) -> Result<Adopted, BankError> {
        let left = |problem: String| BankError::Left { problem };
        let fingerprint = self.fingerprint.ok_or_else(|| left("is not looked for here".into()))?;
        let (context, vocabulary) = (self.info.context, self.info.vocabulary);
        let bounds = Bounds { sizes: self.layout.sizes, context, vocabulary };
        let adopted = Bank::adopt(&self.backend, bounds, fingerprint, parcel);
        let (bank, tokens) = adopted.map_err(|error| left(error.to_string()))?;
        let used_ms = bank.used_ms();
        Ok(Adopted { bank: self.add(bank), tokens, used_ms })
    }

    fn resident_bytes(&self, bank: BankId) -> Result<Bytes, BankError> {
        Ok(self.bank(bank)?.resident_bytes(&self.backend))
    }

    fn trim(&mut self, bank: BankId) {
        if let Some(bank) = self.banks.get_mut(&bank) {
            bank.trim(&self.backend);
        }
    }

    fn device_memory(&self) -> Vec<(MemoryUse, Bytes)> {
        self.backend.memory()
    }

    fn activations(&mut self, size: StepSize) -> Result<Bytes, StepError> {
        self.try_out(size, false).map_err(step_error)
    }

    fn take_activations(&mut self, size: StepSize) -> Result<(), StepError> {
        self.try_out(size, true).map(|_| ()).map_err(step_error)
    }

    fn device_memory_to_come(&self) -> Bytes {
        let draft = self.draft.as_ref().map(|draft| self.backend.recordings_to_come(&draft.repeats));
        let recordings = Bytes(self.backend.recordings_to_come(&self.repeats).0 + draft.unwrap_or_default().0);
        Bytes(recordings.0 + self.backend.memory_to_come().0)
    }

    fn token_work(&self) -> Option<TokenWork> {
        Some(self.work)
    }

    fn price(&self, tokens: Tokens) -> Bytes {
        price::price::<B>(self.layout.sizes, tokens)
    }
}

pub(super) fn step_error(error: BackendError) -> StepError {
    let problem = error.to_string();
    match error {
        BackendError::OutOfMemory { asked, free, .. } => {
            StepError::OutOfMemory { problem, missing: Bytes(asked.0.saturating_sub(free.0).max(1)) }
        }
        error => StepError::Device { lost: error.is_fatal(), problem },
    }
}

fn bank_error(error: BackendError) -> BankError {
    BankError::Device { problem: error.to_string() }
}

/// What a batch wants of its rows.
#[derive(Default)]
struct Wanted {
    /// The rows whose logits are computed.
    rows: Vec<usize>,
    /// Places in `rows` whose logits come back.
    full: Vec<usize>,
    /// How many of those every segment has.
    logits_per_segment: Vec<usize>,
    /// For every segment the places in `rows` whose best tokens are wanted.
    greedy: Vec<Range<usize>>,
}

impl Wanted {
    fn of(batch: &StepBatch<'_>) -> Wanted {
        let mut wanted = Wanted::default();
        let mut first = 0;
        for segment in batch.segments {
            let end = first + segment.tokens.len();
            let start = match segment.logits {
                LogitsWanted::None => end,
                LogitsWanted::Last | LogitsWanted::Greedy => end - 1 - segment.drafted,
                LogitsWanted::All => first,
            };
            let is_greedy = segment.logits == LogitsWanted::Greedy;
            let place = wanted.rows.len();
            let places = place..place + end - start;
            wanted.logits_per_segment.push(if is_greedy { 0 } else { places.len() });
            if !is_greedy {
                wanted.full.extend(places.clone());
            }
            wanted.greedy.push(if is_greedy { places } else { place..place });
            wanted.rows.extend(start..end);
            first = end;
        }
        wanted
    }
}

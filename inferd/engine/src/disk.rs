//! Conversations on disk, in the engine's terms.

use ds4_banks::{
    BankBytes, Folder, FolderError, Geometry, Identity, Kept, LoadTicket, Loaded, Miss, Piece, PieceEnd, PieceKind,
    Remembered, SaveReason, Service, Snapshot, Stats, Store, StoreOptions, SyncMode, Transcript, Unusable,
};
use ds4_model::{AnswerMemory, BankImage, ImageCheck, Model, PartContent, PromptRecord, SampledPart, Tokenizer};
use ds4_units::{BankId, Bytes, TokenId, Tokens};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use tracing::warn;

/// Conversations that could have been saved, after which it is worth a warning that none was.
const CHANCES: u32 = 16;

/// When conversations are saved, and how much of the disk they may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder.
    pub folder: PathBuf,
    /// Bytes all its files may take.
    pub budget: Bytes,
    /// Shorter conversations are neither saved nor restored, and a restore must save computing so many.
    pub min_tokens: Tokens,
    /// Longer prompts are not saved for being new; 0 saves none for that.
    pub cold_max_tokens: Tokens,
    /// A conversation is saved whenever it has grown by so many tokens; 0 never.
    pub interval_tokens: Tokens,
    /// A prompt that ends inside a text is saved so many tokens before its end: a longer text may be cut into other
    /// tokens there.
    pub trim_tokens: Tokens,
    /// And at a multiple of so many tokens; 0 anywhere.
    pub align_tokens: Tokens,
    /// What a save waits for; what is saved when the worker stops is made to last in any case.
    pub sync: SyncMode,
}

/// A folder that cannot be used.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum DiskError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("cannot use {}: {source}", .folder.display())]
    Store { folder: PathBuf, source: io::Error },
}

/// Conversations on disk, for one engine.
pub struct DiskBanks {
    service: Service<Restored>,
    tokenizer: Arc<Tokenizer>,
    cold_max: usize,
    interval: usize,
    min: u32,
    trim: usize,
    align: usize,
    chances: Chances,
}

impl DiskBanks {
    /// Opens the folder and reads what is there. Blocks on the disk. `weights` is the content root of the model.
    pub fn open(
        options: &DiskOptions,
        weights: [u8; 32],
        renderer: &str,
        model: &dyn Model,
        tokenizer: Arc<Tokenizer>,
    ) -> Result<DiskBanks, DiskError> {
        let format = model.bank_format();
        let identity = Identity { weights, renderer: renderer.to_owned(), layout: format.layout.clone() };
        let geometry = Geometry {
            block_tokens: format.block_tokens.0,
            block_bytes: format.block.index(),
            recurrent_bytes: format.recurrent.index(),
            context: model.info().context.0,
            vocabulary: model.info().vocabulary as u32,
        };
        let limits = StoreOptions { budget: options.budget, min_tokens: options.min_tokens.0, sync: options.sync };
        let folder: &Path = &options.folder;
        let store = Store::open(Box::new(Folder::open(folder)?), &identity, geometry, limits);
        let check = model.image_check();
        let service = store.and_then(|store| Service::start(store, move |loaded| Restored::of(loaded, &check)));
        let service = service.map_err(|source| DiskError::Store { folder: folder.to_owned(), source })?;
        Ok(DiskBanks {
            service,
            tokenizer,
            cold_max: options.cold_max_tokens.index(),
            interval: options.interval_tokens.index(),
            min: options.min_tokens.0,
            trim: options.trim_tokens.index(),
            align: options.align_tokens.index().max(1),
            chances: Chances::default(),
        })
    }

    /// Lets `memory` know what the stored conversations' answers said exactly.
    pub fn recall_into(&self, memory: &AnswerMemory) {
        for part in self.service.store().take_remembered() {
            if let Some(sampled) = SampledPart::decode(&part.id, &part.written, &self.tokenizer) {
                memory.remember(sampled);
            }
        }
    }

    /// Counts.
    pub fn stats(&self) -> Stats {
        self.service.store().stats()
    }

    pub(crate) fn store(&self) -> Arc<Store> {
        self.service.store().clone()
    }

    /// How many of these tokens are on disk.
    pub(crate) fn stored(&self, tokens: &[TokenId]) -> usize {
        self.service.store().stored(tokens) as usize
    }

    /// Where a prompt that nothing is known of is saved: before the control tokens it ends with, where the next turn
    /// parts from it; inside a text, a little earlier.
    pub(crate) fn cold_position(&self, prompt: &PromptRecord) -> usize {
        let (tokens, controls) = (prompt.tokens().len(), prompt.trailing_controls());
        let trimmed = tokens.saturating_sub(self.trim) / self.align * self.align;
        let min = self.min as usize;
        if controls == 0 && tokens > min + self.trim && trimmed >= min.max(1) {
            trimmed
        } else {
            tokens - controls.max(1)
        }
    }

    /// A conversation ended that could have been saved. That none ever is must not pass unnoticed.
    pub(crate) fn note_chance(&mut self, tokens: usize) {
        if self.chances.are_over() || tokens < self.min as usize {
            return;
        }
        let stats = self.stats();
        if self.chances.miss(stats.saves.iter().sum()) {
            warn!(
                conversations = CHANCES,
                failed = stats.saves_failed.iter().sum::<u64>(),
                cold_max = self.cold_max,
                interval = self.interval,
                "conversations end and none is saved: after a crash all of them would be computed again"
            );
        }
    }

    /// Why a conversation is to be saved now, if it is: `cold` when all of it was computed and it stands where its
    /// next turn may part from it.
    pub(crate) fn due(&self, tokens: usize, stored: usize, cold: bool) -> Option<SaveReason> {
        match tokens.saturating_sub(stored) {
            0 => None,
            _ if cold && tokens <= self.cold_max => Some(SaveReason::Cold),
            grown if self.interval > 0 && grown >= self.interval => Some(SaveReason::Continued),
            _ => None,
        }
    }

    /// Hands a bank, which holds just the record, to the saving thread. True when it will be, or is, on disk.
    pub(crate) fn save(&self, model: &dyn Model, bank: BankId, record: &PromptRecord, reason: SaveReason) -> bool {
        let tokens = record.tokens().len() as u32;
        if tokens < self.min || model.frontier(bank) != Some(Tokens(tokens)) {
            return false;
        }
        let plan = self.service.store().plan(record.tokens());
        if plan.stored {
            return true;
        }
        // What is copied for nothing is copied again, and more of it, when the conversation has grown.
        if reason != SaveReason::Shutdown && self.service.would_save(tokens, &plan, reason).is_err() {
            return false;
        }
        let Some(transcript) = transcript(record, &self.tokenizer) else { return false };
        let first_block = plan.first_block;
        let Ok(image) = model.export(bank, first_block as usize) else { return false };
        let bank = Box::new(Exported { first_block, image });
        let answers = record.answers().to_vec();
        let remembered = Box::new(move || answers.iter().map(remembered).collect());
        let snapshot = Snapshot { transcript, reason, plan, bank, remembered };
        if reason == SaveReason::Shutdown {
            self.service.save_in_turn(snapshot);
            return true;
        }
        self.service.save(snapshot).is_ok()
    }

    /// Has the conversation read that leaves the least of the prompt to compute, if that is worth it: without it,
    /// `left` tokens are to be computed.
    pub(crate) fn look(&self, prompt: &PromptRecord, left: usize) -> Option<LoadTicket<Restored>> {
        let store = self.service.store();
        let Some(found) = store.find(pieces(prompt)) else {
            store.count_miss(Miss::Nothing);
            return None;
        };
        let left_then = prompt.tokens().len().saturating_sub(found.covered as usize);
        if left_then + self.min.max(1) as usize > left {
            store.count_miss(Miss::Little);
            return None;
        }
        let kind = found.kind;
        let ticket = self.service.load(found);
        match &ticket {
            Some(_) => store.count_hit(kind),
            None => store.count_miss(Miss::Busy),
        }
        ticket
    }

    /// The model cannot use what was restored.
    pub(crate) fn refuse(&self, kept: &Kept, why: &str) {
        self.service.store().refuse(kept, why);
    }

    /// Lets everything that waits be written, and makes sure that what was left to the disk is found by the prompts
    /// that go on from it.
    pub(crate) fn close<'a>(self, left: impl Iterator<Item = &'a PromptRecord>) {
        let store = self.store();
        self.service.close();
        let next = [TokenId(0)];
        let next = Piece { kind: PieceKind::Control, text: &[], tokens: &next };
        for record in left {
            let tokens = record.tokens().len() as u32;
            if store.stored(record.tokens()) != tokens || tokens < self.min {
                // Not saved: too short, or said when it failed.
                continue;
            }
            let found = store.find(pieces(record).chain([next])).map_or(0, |found| found.tokens);
            if found < tokens {
                warn!(tokens, found, "a conversation was saved and its next turn would not find it: a defect");
            }
        }
    }
}

/// Conversations that could have been saved, counted until one was or it was said that none is.
#[derive(Default)]
struct Chances(u32);

impl Chances {
    fn are_over(&self) -> bool {
        self.0 >= CHANCES
    }

    /// One more ended, after so many saves of any. True, once, when that is worth a warning.
    fn miss(&mut self, saves: u64) -> bool {
        if self.are_over() {
            return false;
        }
        self.0 = if saves > 0 { CHANCES } else { self.0 + 1 };
        saves == 0 && self.are_over()
    }
}

/// An export, read by the saving thread.
struct Exported {
    first_block: u32,
    image: BankImage,
}

impl BankBytes for Exported {
    fn block(&self, index: u32) -> &[u8] {
        self.image.blocks[(index - self.first_block) as usize].as_ref().as_ref()
    }

    fn recurrent(&self) -> &[u8] {
        &self.image.recurrent
    }

    fn held(&self) -> Bytes {
        let blocks: usize = self.image.blocks.iter().map(|block| block.as_ref().as_ref().len()).sum();
        Bytes((blocks + self.image.recurrent.len()) as u64)
    }
}

fn remembered(part: &SampledPart) -> Remembered {
    Remembered { id: part.id(), written: part.encode() }
}

/// A record's pieces, as the store looks for them.
fn pieces(record: &PromptRecord) -> impl Iterator<Item = Piece<'_>> {
    record.parts().map(|part| match part.content {
        PartContent::Control => Piece { kind: PieceKind::Control, text: &[], tokens: part.tokens },
        PartContent::Text(text) => Piece { kind: PieceKind::Text, text, tokens: part.tokens },
        PartContent::Cut => Piece { kind: PieceKind::Cut, text: &[], tokens: part.tokens },
    })
}

/// A record as the store keeps it; `None` when it is too long for that.
fn transcript(record: &PromptRecord, tokenizer: &Tokenizer) -> Option<Transcript> {
    let (mut text, mut pieces, mut tokens_end) = (Vec::new(), Vec::new(), 0);
    for part in record.parts() {
        let kind = match part.content {
            PartContent::Control => PieceKind::Control,
            PartContent::Text(_) => PieceKind::Text,
            PartContent::Cut => PieceKind::Cut,
        };
        match part.content {
            PartContent::Text(bytes) => text.extend_from_slice(bytes),
            PartContent::Control | PartContent::Cut => {
                part.tokens.iter().for_each(|&token| text.extend(tokenizer.token_bytes(token).unwrap_or_default()));
            }
        }
        tokens_end += part.tokens.len();
        let text_end = u32::try_from(text.len()).ok()?;
        pieces.push(PieceEnd { kind, text_end, tokens_end: tokens_end as u32 });
    }
    Transcript::new(text, record.tokens().to_vec(), pieces).ok()
}

/// A restored conversation.
pub(crate) struct Restored {
    pub(crate) record: PromptRecord,
    pub(crate) image: BankImage,
    /// Its file.
    pub(crate) kept: Kept,
}

impl Restored {
    /// What was read, if a bank can be made of it. Runs on the restoring thread.
    fn of(loaded: Loaded, check: &ImageCheck) -> Result<Restored, Unusable> {
        let Loaded { transcript, blocks, recurrent, kept, .. } = loaded;
        let record = PromptRecord::from_parts(transcript.pieces().map(|piece| ds4_model::RecordPart {
            content: match piece.kind {
                PieceKind::Control => PartContent::Control,
                PieceKind::Text => PartContent::Text(piece.text),
                PieceKind::Cut => PartContent::Cut,
            },
            tokens: piece.tokens,
        }));
        let blocks = blocks.into_iter().map(|block| Arc::new(block) as Arc<_>).collect();
        let image = BankImage { blocks, recurrent };
        match check(Tokens(record.tokens().len() as u32), &image) {
            Ok(()) => Ok(Restored { record, image, kept }),
            Err(why) => Err(Unusable { kept, why: format!("the stored bank {why}") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_model::{BankError, BankFormat, ModelInfo, RecordPart, StepBatch, StepError, StepLogits, VocabularyParts};
    use std::cell::Cell;

    const TEXT: &[u8] = b"abcdefgh";

    /// A model with one bank, which holds the text; counts how often it is copied.
    struct OneBank {
        info: ModelInfo,
        copies: Cell<usize>,
    }

    impl Model for OneBank {
        fn info(&self) -> &ModelInfo {
            &self.info
        }

        fn frontier(&self, _: BankId) -> Option<Tokens> {
            Some(Tokens(TEXT.len() as u32))
        }

        fn bank_format(&self) -> BankFormat {
            BankFormat { layout: "none".into(), block_tokens: Tokens(8), block: Bytes(1), recurrent: Bytes(1) }
        }

        fn export(&self, _: BankId, _: usize) -> Result<BankImage, BankError> {
            self.copies.set(self.copies.get() + 1);
            Ok(BankImage { blocks: vec![Arc::new(vec![0])], recurrent: vec![0] })
        }

        fn open_bank(&mut self) -> BankId {
            unreachable!()
        }

        fn close_bank(&mut self, _: BankId) {}

        fn step(&mut self, _: &StepBatch<'_>) -> Result<StepLogits, StepError> {
            unreachable!()
        }

        fn checkpoint(&mut self, _: BankId) -> Result<(), BankError> {
            unreachable!()
        }

        fn restorable(&self, _: BankId, _: Tokens) -> Result<Tokens, BankError> {
            unreachable!()
        }

        fn truncate(&mut self, _: BankId, _: Tokens) -> Result<Tokens, BankError> {
            unreachable!()
        }

        fn fork(&mut self, _: BankId, _: Tokens) -> Result<(BankId, Tokens), BankError> {
            unreachable!()
        }

        fn import(&mut self, _: &[TokenId], _: &BankImage) -> Result<BankId, BankError> {
            unreachable!()
        }

        fn resident_bytes(&self, _: BankId) -> Result<Bytes, BankError> {
            unreachable!()
        }

        fn price(&self, _: Tokens) -> Bytes {
            unreachable!()
        }
    }

    fn one_bank() -> OneBank {
        let (architecture, shape) = ("one".into(), "bank".into());
        let (trained_context, context) = (Tokens(64), Tokens(64));
        let info = ModelInfo { architecture, shape, trained_context, context, vocabulary: 256, prefill_rows: 8 };
        OneBank { info, copies: Cell::new(0) }
    }

    fn open(folder: &Path, model: &OneBank) -> DiskBanks {
        // A token for every byte, as byte-level vocabularies spell them.
        let letters = ('!'..='~').chain('\u{a1}'..='\u{ac}').chain('\u{ae}'..='\u{143}');
        let tokens: Vec<String> = letters.map(String::from).collect();
        let types = vec![1; tokens.len()];
        let parts = VocabularyParts { tokens: &tokens, types: &types, merges: &[], split: "joyai-llm" };
        let options = DiskOptions {
            folder: folder.to_owned(),
            budget: Bytes::mib(1),
            min_tokens: Tokens(1),
            cold_max_tokens: Tokens(64),
            interval_tokens: Tokens(8),
            trim_tokens: Tokens(0),
            align_tokens: Tokens(0),
            sync: SyncMode::Data,
        };
        DiskBanks::open(&options, [1; 32], "test/1", model, Arc::new(Tokenizer::from_parts(parts).unwrap())).unwrap()
    }

    #[test]
    fn what_will_not_be_written_is_not_copied_off_the_device() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("kv");
        let model = one_bank();
        let (writer, reader) = (open(&folder, &model), open(&folder, &model));
        let tokens: Vec<TokenId> = TEXT.iter().map(|&byte| TokenId(byte.into())).collect();
        let part = RecordPart { content: PartContent::Text(TEXT), tokens: &tokens };
        let record = PromptRecord::from_parts(std::iter::once(part));
        let save = |disk: &DiskBanks| disk.save(&model, BankId(0), &record, SaveReason::Continued);
        assert!(!save(&reader) && !save(&reader));
        assert_eq!((model.copies.get(), reader.stats().saves_failed), (0, [0, 2, 0, 0]));
        assert!(save(&writer));
        assert_eq!(model.copies.get(), 1);
        // Whoever stops has one attempt, and the writer may have stopped before.
        assert!(reader.save(&model, BankId(0), &record, SaveReason::Shutdown));
        assert_eq!(model.copies.get(), 2);
    }

    #[test]
    fn a_store_that_never_stores_is_a_warning_once() {
        let mut chances = Chances::default();
        let warned = (0..100).filter(|_| chances.miss(0)).count();
        assert_eq!(warned, 1);
        let mut chances = Chances::default();
        assert!(!(0..CHANCES - 1).any(|_| chances.miss(0)));
        assert!(!chances.miss(1) && !(0..100).any(|_| chances.miss(0)), "one that stored needs no warning");
    }
}

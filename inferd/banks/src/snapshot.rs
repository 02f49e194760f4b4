//! What a save and a restore carry.

use crate::format::{Remembered, SaveReason};
use crate::name::Name;
use crate::stats::HitKind;
use crate::store::Pin;
use crate::transcript::Transcript;
use ds4_units::Bytes;

/// The bytes of a bank at one frontier, owned or shared, whatever they mean. A saver reads them on its own thread.
pub trait BankBytes: Send {
    /// Block `index` of the conversation; asked for from the plan's first block to the last.
    fn block(&self, index: u32) -> &[u8];
    /// The recurrent part.
    fn recurrent(&self) -> &[u8];
    /// Memory that is held for them alone.
    fn held(&self) -> Bytes;
}

/// Which part of a bank a save needs.
pub struct SavePlan {
    /// The conversation's tokens are on disk already: nothing is to be saved.
    pub stored: bool,
    /// The first block that is not on disk, to the frontier.
    pub first_block: u32,
    pub(crate) parent: Option<Pin>,
    /// Files whose blocks will be written again.
    pub(crate) superseded: Vec<Pin>,
}

/// A bank at the end of a transcript, to be saved.
pub struct Snapshot {
    /// What it holds.
    pub transcript: Transcript,
    /// Why it is saved.
    pub reason: SaveReason,
    /// The plan that its bytes follow.
    pub plan: SavePlan,
    /// Its bytes, from the plan's first block on.
    pub bank: Box<dyn BankBytes>,
    /// What its answers said exactly; asked for on the saver's thread. What the files that it continues remember
    /// already is not written again.
    pub remembered: Box<dyn Fn() -> Vec<Remembered> + Send>,
}

/// A stored conversation that a prompt begins with, kept on disk as long as this lives.
pub struct Found {
    /// Tokens of the conversation: what a restored bank holds.
    pub tokens: u32,
    /// Tokens of the prompt, as the tokenizer cut it, that it stands for.
    pub covered: u32,
    /// How it was found.
    pub kind: HitKind,
    pub(crate) pin: Pin,
}

impl Found {
    /// The name of its file.
    pub fn name(&self) -> Name {
        self.pin.name
    }
}

/// A conversation as it was saved, every byte checked.
pub struct Loaded {
    /// What it holds.
    pub transcript: Transcript,
    /// All blocks.
    pub blocks: Vec<Vec<u8>>,
    /// The recurrent part.
    pub recurrent: Vec<u8>,
    /// What its answers said exactly.
    pub remembered: Vec<Remembered>,
    /// Bytes read from disk.
    pub read: Bytes,
    /// Its file.
    pub kept: Kept,
}

/// Keeps a restored conversation's file, so that it can be set aside if the model refuses it.
pub struct Kept(pub(crate) Pin);

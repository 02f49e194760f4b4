//! A model file that a family runs, and the model it becomes.

use crate::weights::{self, Derived, Source, WeightMemory};
use crate::{BootError, KvRows, ModelArgs, device, manifest};
use ds4_gguf::Model as GgufModel;
use ds4_host::printable_path;
use ds4_import::{ComputeDevice, ContentRoot, Lease};
use ds4_model::{BankPrice, BindOptions, DraftSource, Family, FamilyError, KvRounding, LoadedModel, Model, PromptSide};
use ds4_units::{Bytes, Tokens};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};
use tracing::info;

/// The longest conversation when the operator names none.
const CONTEXT_DEFAULT: u32 = 32_768;

/// A file whose header was read and whose family is known. No tensor was read.
pub struct ModelFile {
    file: GgufModel,
    path: PathBuf,
    family: &'static dyn Family,
    shape: String,
    trained_context: Option<u32>,
    /// The file of its draft block, if answers are guessed ahead.
    draft: Option<(PathBuf, GgufModel)>,
}

/// A model that is ready to run.
pub struct Booted {
    /// Model, tokenizer and prompt protocol.
    pub loaded: LoadedModel,
    /// The lease, when an owner lent the weights. The weights keep it alive.
    pub lease: Option<Arc<Lease>>,
    /// What the weights are.
    pub identity: ContentRoot,
    /// Where the model computes and keeps its conversations.
    pub device: ComputeDevice,
    /// What of the weights is in another form than the file's.
    pub derived: Derived,
    /// The weights in the account of memory.
    pub memory: WeightMemory,
}

/// A model on its weights.
struct Bound {
    source: Source,
    memory: WeightMemory,
    derived: Derived,
    model: Box<dyn Model>,
    /// How long binding took.
    time: Duration,
}

/// What running a model here would take.
pub struct Prospect {
    /// Where it would compute.
    pub device: ComputeDevice,
    /// What conversations cost there.
    pub price: BankPrice,
    /// Weights that are not in memory yet.
    pub to_load: Bytes,
}

impl ModelFile {
    /// Opens the file that the flags or the owner's manifest name, and checks that a family runs it. Reads headers
    /// only; waits for a manifest as long as the flags say.
    pub fn open(args: &ModelArgs, cancel: &AtomicBool) -> Result<ModelFile, BootError> {
        let path = match (&args.model, args.manifest()) {
            (Some(path), _) => path.clone(),
            (None, Some(manifest)) => manifest::model_path(args, manifest, cancel)?,
            (None, None) => return Err(BootError::NoModel),
        };
        let file = GgufModel::open(&path)?;
        let architecture = file.architecture();
        let family = ds4_families::find(architecture).ok_or_else(|| FamilyError::UnknownArchitecture {
            found: architecture.to_owned(),
            supported: ds4_families::architectures().join(", "),
        })?;
        let shape = family.validate(&file)?;
        let trained = file.metadata().u64(&format!("{architecture}.context_length"))?;
        let trained_context = trained.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
        info!(file = %printable_path(&path), architecture, %shape, "model");
        let mut opened = ModelFile { file, path, family, shape, trained_context, draft: None };
        if let Some(path) = draft_path(args, cancel)? {
            let draft = opened.open_draft(&path);
            opened.draft = Some(draft.map_err(|source| BootError::Draft { path, source: Box::new(source) })?);
        } else if let Some(ahead) = args.draft.mtp_draft {
            return Err(BootError::NoDraft { ahead });
        }
        Ok(opened)
    }

    fn open_draft(&self, path: &Path) -> Result<(PathBuf, GgufModel), BootError> {
        let draft = GgufModel::open(path)?;
        self.family.validate_draft(&self.file, &draft)?;
        info!(file = %printable_path(path), "draft block");
        Ok((path.to_owned(), draft))
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which of the family's shapes it is.
    pub fn shape(&self) -> &str {
        &self.shape
    }

    /// The id under which it is offered when the operator names none: the file's name without `.gguf` and without the
    /// number of a shard.
    pub fn default_id(&self) -> String {
        id_of(&self.path)
    }

    /// The longest conversation: as asked, within what the model was trained for.
    pub fn context(&self, asked: Option<u32>) -> Result<Tokens, BootError> {
        let trained = self.trained_context.unwrap_or(u32::MAX);
        match asked {
            Some(asked) if asked > trained => Err(BootError::ContextTooLong { asked, trained }),
            Some(asked) => Ok(Tokens(asked)),
            None => Ok(Tokens(CONTEXT_DEFAULT.min(trained))),
        }
    }

    /// Tokenizer and prompt protocol, for what needs no weights.
    pub fn prompt_side(&self, args: &ModelArgs) -> Result<PromptSide, BootError> {
        Ok(self.family.prompt_side(&self.file, args.prompt_profile.as_deref())?)
    }

    /// What conversations will cost and where they will be, without loading anything. Waits for an owner's manifest as
    /// long as the flags say.
    pub fn prospect(&self, args: &ModelArgs, cancel: &AtomicBool) -> Result<Prospect, BootError> {
        let held = args.manifest().map(|path| manifest::published_at(args, path, cancel)).transpose()?;
        let device = device::choose(args, held.as_ref())?;
        let price = self.family.bank_price(&self.file, self.draft.is_some(), rounding(args), &device)?;
        let files = std::iter::once(&self.file).chain(self.draft.iter().map(|(_, draft)| draft));
        let weights = files.flat_map(GgufModel::tensors).map(|tensor| tensor.len.0).sum();
        // An owner's weights are in memory already.
        let to_load = if held.is_some() { Bytes::ZERO } else { Bytes(weights) };
        Ok(Prospect { device, price, to_load })
    }

    /// Whether this process could load the weights itself now. Reads and takes nothing.
    pub fn preflight(&self, device: &ComputeDevice) -> Result<(), BootError> {
        let draft = self.draft.as_ref().map(|(_, draft)| draft);
        Ok(ds4_import::preflight(&self.file, draft, device)?)
    }

    /// Attaches or loads, and binds; meanwhile another thread reads the vocabulary. Blocks until the model is ready, an
    /// error, or `cancel`. `worker` is this process's name in the owner's log.
    pub fn load(&self, args: &ModelArgs, worker: &str, cancel: &AtomicBool) -> Result<Booted, BootError> {
        let context = self.context(args.ctx)?;
        let kv_rounding = rounding(args);
        let (bound, prompt_side) = thread::scope(|threads| {
            let prompt_side = threads.spawn(|| self.prompt_side(args));
            let bound = self.bind(args, context, worker, cancel);
            (bound, prompt_side.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let Bound { source, memory, derived, model, time } = bound?;
        let Source { lease, identity, device, .. } = source;
        let (tokenizer, codec) = prompt_side?;
        let loaded = LoadedModel { model, tokenizer, codec };
        info!(
            context = context.0,
            kv_rounding = ?kv_rounding,
            bank_bytes = %loaded.model.price(context),
            prompt = loaded.codec.renderer_version(),
            bind_ms = time.as_millis() as u64,
            "model bound"
        );
        for (purpose, bytes) in loaded.model.device_memory() {
            info!(%bytes, "memory beyond the weights: {purpose}");
        }
        Ok(Booted { loaded, lease, identity, device, derived, memory })
    }

    fn bind(&self, args: &ModelArgs, context: Tokens, worker: &str, cancel: &AtomicBool) -> Result<Bound, BootError> {
        let source = weights::obtain(args, &self.file, worker, cancel)?;
        let (mut memory, mut derived) = (WeightMemory::default(), Derived::default());
        derived.count(&source);
        let draft = match &self.draft {
            Some((path, file)) => {
                let obtained = weights::obtain_draft(args, file, source.lease.is_some(), worker, cancel);
                let wrong = |source| BootError::Draft { path: path.clone(), source: Box::new(source) };
                let obtained = obtained.map_err(wrong)?;
                derived.count(&obtained);
                Some((file, obtained))
            }
            None => None,
        };
        memory.enter(&self.file, &source, draft.as_ref().map(|(file, source)| (*file, source)));
        let draft = draft.as_ref().map(|(file, source)| DraftSource { file, weights: &source.weights });
        let began = Instant::now();
        let options = BindOptions { context, kv_rounding: rounding(args), device: source.device.clone() };
        let model = self.family.bind(&self.file, &source.weights, draft, &options)?;
        Ok(Bound { source, memory, derived, model, time: began.elapsed() })
    }
}

/// The draft block's file that the flags name, or the one that the owner of the model that its manifest names holds.
fn draft_path(args: &ModelArgs, cancel: &AtomicBool) -> Result<Option<PathBuf>, BootError> {
    match (&args.draft.mtp, args.manifest()) {
        (Some(path), _) => Ok(Some(path.clone())),
        (None, Some(path)) if args.model.is_none() && !args.draft.no_mtp => manifest::draft_path(args, path, cancel),
        _ => Ok(None),
    }
}

fn rounding(args: &ModelArgs) -> KvRounding {
    match args.kv_rounding {
        KvRows::Exact => KvRounding::Exact,
        KvRows::Off => KvRounding::Off,
    }
}

fn id_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".gguf").unwrap_or(&name);
    let unsharded = stem.rsplit_once("-of-").and_then(|(front, count)| {
        let (front, number) = front.rsplit_once('-')?;
        let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        (is_number(number) && is_number(count)).then_some(front)
    });
    unsharded.unwrap_or(stem).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_the_file_name_without_extension_and_shard_number() {
        for (path, id) in [
            ("/models/tiny.gguf", "tiny"),
            ("/models/big-Q4_K-00001-of-00009.gguf", "big-Q4_K"),
            ("one-of-two.gguf", "one-of-two"),
            ("x-1-of-9.gguf", "x-1-of-9"),
            ("noextension", "noextension"),
        ] {
            assert_eq!(id_of(Path::new(path)), id);
        }
    }
}

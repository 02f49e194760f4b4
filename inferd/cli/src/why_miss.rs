//! `ds4 why-miss`: which kept conversation a request would go on from, and where the closest one begins to differ.

mod closest;
mod report;

use crate::config::{ApiArg, EffortArg, Switch, WhyMissArgs};
use crate::error::CliError;
use crate::interrupt::Interrupt;
use closest::{Closest, closest};
use ds4_api::{Explained, Explainer, RequestKind, Settings};
use ds4_banks::{
    Catalog, Disk, Folder, Found, Geometry, Listed, Piece, PieceKind, Store, StoreOptions, Summary, SyncMode, read_said,
};
use ds4_boot::ModelFile;
use ds4_host::{Exit, printable_path};
use ds4_model::{AnswerMemory, ModelInfo, PartContent, SampledPart, ThinkingMode, Tokenizer};
use ds4_units::{Bytes, Tokens};
use serde_json::Value;
use std::io::Read;
use std::sync::Arc;

/// What a request would go on from.
struct Hit {
    folder: String,
    found: Found,
}

/// The answer to the question.
struct Answer<'a> {
    request: &'a Explained,
    renderer: &'a str,
    /// Conversations that were looked at, and those that are rendered otherwise.
    kept: (usize, usize),
    hit: Option<Hit>,
    closest: Option<Closest>,
    min_tokens: Tokens,
    context: Tokens,
}

pub(crate) fn run(args: &WhyMissArgs, interrupt: &Interrupt) -> Result<Exit, CliError> {
    let (body, kind) = request(args)?;
    let file = ModelFile::open(&args.model, interrupt.flag())?;
    let (tokenizer, codec) = file.prompt_side(&args.model)?;
    let context = file.context(args.model.ctx)?;
    let folder = Folder::existing(&args.folder.kv_disk_dir)?;
    let unreadable = |source| CliError::KvFolder { path: args.folder.kv_disk_dir.clone(), source };
    let catalog = Catalog::read(&folder).map_err(unreadable)?;
    let mut kept = (0, 0);
    let mut same = Vec::new();
    for entry in &catalog.entries {
        let Listed::Conversation(name, Ok(summary)) = &entry.listed else { continue };
        let described = catalog.identities.get(&entry.folder);
        if described.is_some_and(|described| described.renderer == codec.renderer_version()) {
            same.push((entry, *name, *summary));
            kept.0 += 1;
        } else {
            kept.1 += 1;
        }
    }
    let memory = Arc::new(AnswerMemory::default());
    for (entry, name, _) in same.iter().filter(|(.., summary)| summary.remembered_bytes > Bytes::ZERO) {
        let said = folder.open(&entry.folder, &entry.facts.name).and_then(|file| read_said(&*file, *name));
        // A file that is damaged, or gone meanwhile, says nothing.
        let Ok(Ok((_, remembered))) = said else { continue };
        let parts = remembered.iter().filter_map(|part| SampledPart::decode(&part.id, &part.written, &tokenizer));
        parts.for_each(|part| memory.remember(part));
    }
    let explainer = Explainer::new(info(&file, context, &tokenizer), tokenizer, codec.clone(), settings(args), memory);
    let request = explainer.explain(kind, body.as_bytes())?;
    let hit = hit(args, &catalog, &request, codec.renderer_version(), context).map_err(unreadable)?;
    let closest = closest(&folder, &same, &request).map_err(unreadable)?;
    let answer = Answer {
        request: &request,
        renderer: codec.renderer_version(),
        kept,
        hit,
        closest,
        min_tokens: args.min_tokens(),
        context,
    };
    report::print(&args.folder, &answer)?;
    Ok(if answer.hit.is_some() { Exit::Ok } else { Exit::KvMiss })
}

/// The body and the surface it is for.
fn request(args: &WhyMissArgs) -> Result<(String, RequestKind), CliError> {
    let from = args.request.as_str();
    let wrong = |reason: String| CliError::Request { from: from.to_owned(), reason };
    let text = if from == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(from)
    };
    let mut text = text.map_err(|error| wrong(error.to_string()))?;
    let mut body: Value = serde_json::from_str(&text).map_err(|error| wrong(format!("not JSON: {error}")))?;
    let traced = body["path"].as_str().and_then(RequestKind::of_path).filter(|_| body["request"].is_object());
    if traced.is_some() {
        body = body["request"].take();
        text = body.to_string();
    }
    if !body.is_object() {
        return Err(wrong("it is no JSON object".into()));
    }
    let kind = match args.api {
        Some(ApiArg::Chat) => RequestKind::Chat,
        Some(ApiArg::Completions) => RequestKind::Completions,
        Some(ApiArg::Responses) => RequestKind::Responses,
        Some(ApiArg::Messages) => RequestKind::Messages,
        None => traced.unwrap_or_else(|| RequestKind::of_body(&body)),
    };
    Ok((text, kind))
}

fn settings(args: &WhyMissArgs) -> Settings {
    Settings {
        effort: args.reasoning_effort.map(EffortArg::level),
        anthropic_thinking: match args.anthropic_default_thinking {
            Switch::On => ThinkingMode::On,
            Switch::Off => ThinkingMode::Off,
        },
        ..Settings::default()
    }
}

fn info(file: &ModelFile, context: Tokens, tokenizer: &Tokenizer) -> ModelInfo {
    ModelInfo {
        architecture: printable_path(file.path()),
        shape: file.shape().to_owned(),
        trained_context: context,
        context,
        vocabulary: tokenizer.vocabulary_len(),
        prefill_rows: 1,
    }
}

/// What a server would find, whichever weights it has.
fn hit(
    args: &WhyMissArgs,
    catalog: &Catalog,
    request: &Explained,
    renderer: &str,
    context: Tokens,
) -> std::io::Result<Option<Hit>> {
    let mut best: Option<Hit> = None;
    for (name, described) in &catalog.identities {
        let Some(identity) = described.identity().filter(|identity| identity.renderer == renderer) else { continue };
        let summaries = catalog.entries.iter().filter(|entry| entry.folder == *name);
        let summary = summaries.filter_map(|entry| match &entry.listed {
            Listed::Conversation(_, Ok(summary)) => Some(summary),
            _ => None,
        });
        let Some(geometry) = summary.map(|summary| geometry(summary, context)).next() else { continue };
        let Ok(folder) = Folder::existing(&args.folder.kv_disk_dir) else { continue };
        let (min_tokens, sync) = (args.kv_cache_min_tokens, SyncMode::default());
        let options = StoreOptions { budget: Bytes(u64::MAX), min_tokens, sync };
        let store = Store::look_into(Box::new(folder), &identity, geometry, options)?;
        let pieces = request.record.parts().map(|part| match part.content {
            PartContent::Control => Piece { kind: PieceKind::Control, text: &[], tokens: part.tokens },
            PartContent::Text(text) => Piece { kind: PieceKind::Text, text, tokens: part.tokens },
            PartContent::Cut => Piece { kind: PieceKind::Cut, text: &[], tokens: part.tokens },
        });
        let Some(found) = store.find(pieces) else { continue };
        if best.as_ref().is_none_or(|best| best.found.covered < found.covered) {
            best = Some(Hit { folder: name.clone(), found });
        }
    }
    Ok(best)
}

/// The sizes that the file states itself.
fn geometry(summary: &Summary, context: Tokens) -> Geometry {
    Geometry {
        block_tokens: summary.block_tokens,
        block_bytes: summary.block_bytes.index(),
        recurrent_bytes: summary.recurrent_bytes.index(),
        context: context.0,
        vocabulary: u32::MAX,
    }
}

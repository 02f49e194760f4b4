//! `ds4 kv list`.

use super::{age, open, print};
use crate::config::FolderArgs;
use crate::error::CliError;
use ds4_banks::{Catalog, Entry, FileFault, Listed, Summary};
use ds4_host::Exit;
use ds4_units::Bytes;
use serde_json::{Value, json};

pub(super) fn run(args: &FolderArgs) -> Result<Exit, CliError> {
    let (_, catalog) = open(args)?;
    let value = json!({
        "bytes": catalog.bytes().0,
        "identities": catalog.identities.iter().map(|(folder, described)| {
            json!({ "folder": folder, "weights": described.weights, "renderer": described.renderer })
        }).collect::<Value>(),
        "files": catalog.entries.iter().map(to_json).collect::<Value>(),
    });
    print(args, &value, &lines(&catalog))?;
    Ok(Exit::Ok)
}

fn lines(catalog: &Catalog) -> Vec<String> {
    let mut lines = Vec::new();
    for (folder, described) in &catalog.identities {
        let files: Vec<&Entry> = catalog.entries.iter().filter(|entry| entry.folder == *folder).collect();
        let bytes = Bytes(files.iter().map(|entry| entry.facts.len).sum());
        let (renderer, weights) = (described.renderer.as_str(), described.weights.get(..16).unwrap_or("unknown"));
        lines.push(format!("{folder}: {} files, {bytes}; prompts as {renderer}, weights {weights}...", files.len()));
        if !files.is_empty() {
            let head = ["file", "tokens", "size", "used", "saved", "state"];
            lines.push(row(head.map(str::to_owned)));
        }
        lines.extend(files.into_iter().map(line));
        lines.push(String::new());
    }
    lines.push(format!("{} files, {}", catalog.entries.len(), catalog.bytes()));
    lines
}

fn row([file, tokens, size, used, saved, state]: [String; 6]) -> String {
    format!("  {file:<16} {tokens:>8} {size:>10} {used:>9}  {saved:<9}  {state}").trim_end().to_owned()
}

fn line(entry: &Entry) -> String {
    let (tokens, saved) = match &entry.listed {
        Listed::Conversation(_, Ok(summary)) => (summary.tokens.to_string(), summary.reason.name()),
        _ => ("-".into(), "-"),
    };
    let name = entry.facts.name.get(..12).unwrap_or(&entry.facts.name).to_owned();
    row([name, tokens, Bytes(entry.facts.len).to_string(), age(entry.facts.used), saved.into(), state(entry)])
}

/// What a person should know of a file, in a few words.
pub(super) fn state(entry: &Entry) -> String {
    match &entry.listed {
        Listed::Conversation(_, Ok(Summary { continues: None, .. })) => "whole".into(),
        Listed::Conversation(_, Ok(Summary { continues: Some(parent), chain, .. })) => {
            let parent = parent.to_string();
            format!("continues {}, {chain} before it", parent.get(..12).unwrap_or(&parent))
        }
        Listed::Conversation(_, Err(fault)) if fault.is_foreign() => format!("not ours: {fault}"),
        Listed::Conversation(_, Err(fault)) => format!("damaged: {fault}"),
        Listed::Unfinished => "a save that did not end, or goes on".into(),
        Listed::SetAside => "set aside as damaged".into(),
    }
}

/// What a program should know of a file.
pub(super) fn to_json(entry: &Entry) -> Value {
    let mut value = json!({
        "folder": entry.folder,
        "file": entry.facts.name,
        "bytes": entry.facts.len,
        "used": entry.facts.used,
    });
    let (kind, summary): (&str, Option<&Result<Summary, FileFault>>) = match &entry.listed {
        Listed::Conversation(_, summary) => ("conversation", Some(summary)),
        Listed::Unfinished => ("unfinished", None),
        Listed::SetAside => ("set_aside", None),
    };
    value["kind"] = kind.into();
    match summary {
        Some(Ok(summary)) => {
            value["tokens"] = summary.tokens.into();
            value["reason"] = summary.reason.name().into();
            value["created"] = summary.created.into();
            value["continues"] = summary.continues.map(|parent| parent.file()).into();
            value["chain"] = summary.chain.into();
            value["remembered_bytes"] = summary.remembered_bytes.0.into();
        }
        Some(Err(fault)) => {
            value["fault"] = fault.to_string().into();
            value["foreign"] = fault.is_foreign().into();
        }
        None => {}
    }
    value
}

//! `ds4 kv show`.

use super::{age, conversation, list, named, open, print};
use crate::config::FolderArgs;
use crate::error::CliError;
use ds4_banks::{Catalog, Entry, Summary};
use ds4_host::Exit;
use ds4_units::Bytes;
use serde_json::Value;

pub(super) fn run(name: &str, args: &FolderArgs) -> Result<Exit, CliError> {
    let (_, catalog) = open(args)?;
    let entry = named(&catalog, name)?;
    let chain = chain(&catalog, entry);
    let mut value = list::to_json(entry);
    value["chain_files"] = chain.iter().map(|entry| list::to_json(entry)).collect::<Value>();
    print(args, &value, &lines(&catalog, entry, &chain))?;
    Ok(Exit::Ok)
}

/// The files that it goes on from, the first one first; ends where one is missing.
fn chain<'a>(catalog: &'a Catalog, entry: &'a Entry) -> Vec<&'a Entry> {
    let parent = |entry: &&'a Entry| {
        let wanted = entry.continues()?;
        let same = |other: &&Entry| {
            other.folder == entry.folder && conversation(other).is_some_and(|(name, _)| name == wanted)
        };
        catalog.entries.iter().find(same)
    };
    // A damaged file may name itself.
    let mut chain: Vec<&Entry> =
        std::iter::successors(Some(entry), parent).take(catalog.entries.len()).skip(1).collect();
    chain.reverse();
    chain
}

fn lines(catalog: &Catalog, entry: &Entry, chain: &[&Entry]) -> Vec<String> {
    let line = |name: &str, value: String| format!("{name:<14} {value}");
    let mut lines = vec![
        line("file", format!("{}/{}", entry.folder, entry.facts.name)),
        line("size", Bytes(entry.facts.len).to_string()),
        line("last used", format!("{} ago", age(entry.facts.used))),
        line("state", list::state(entry)),
    ];
    if let Some(described) = catalog.identities.get(&entry.folder) {
        lines.push(line("prompts as", described.renderer.clone()));
        lines.push(line("weights", described.weights.clone()));
    }
    if let Some((_, Ok(summary))) = conversation(entry) {
        lines.extend(of_summary(summary).into_iter().map(|(name, value)| line(name, value)));
    }
    let total: u64 = chain.iter().map(|entry| entry.facts.len).sum::<u64>() + entry.facts.len;
    if !chain.is_empty() {
        lines.push(line("goes on from", format!("{} files, {} with this one", chain.len(), Bytes(total))));
        lines.extend(chain.iter().filter_map(|entry| {
            let (_, summary) = conversation(entry)?;
            let tokens = summary.as_ref().map_or(0, |summary| summary.tokens);
            Some(line("", format!("{} to token {tokens}, {}", entry.facts.name, Bytes(entry.facts.len))))
        }));
    }
    lines
}

fn of_summary(summary: &Summary) -> Vec<(&'static str, String)> {
    let (first, count) = summary.blocks;
    vec![
        ("tokens", summary.tokens.to_string()),
        (
            "saved",
            format!(
                "{}, {} ago, by a worker with context {}",
                summary.reason.name(),
                age(summary.created),
                summary.context
            ),
        ),
        ("text", summary.text_bytes.to_string()),
        ("blocks", format!("{count} from number {first}, {} each", summary.block_bytes)),
        ("recurrent part", summary.recurrent_bytes.to_string()),
        ("remembered", format!("{} of calls and reasoning", summary.remembered_bytes)),
    ]
}

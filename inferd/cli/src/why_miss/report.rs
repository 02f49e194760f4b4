//! What `ds4 why-miss` says.

use super::closest::{Closest, Excerpt};
use super::{Answer, Hit};
use crate::config::FolderArgs;
use crate::error::CliError;
use ds4_host::printable;
use serde_json::{Value, json};
use std::io::{self, Write};

pub(super) fn print(args: &FolderArgs, answer: &Answer<'_>) -> Result<(), CliError> {
    let mut output = io::stdout().lock();
    let written = if args.json {
        writeln!(output, "{:#}", to_json(answer))
    } else {
        lines(answer).iter().try_for_each(|line| writeln!(output, "{}", printable(line)))
    };
    written.and_then(|()| output.flush()).map_err(CliError::Output)
}

fn lines(answer: &Answer<'_>) -> Vec<String> {
    let line = |name: &str, value: String| format!("{name:<10} {value}");
    let request = answer.request;
    let tokens = request.record.tokens().len();
    let (kept, others) = answer.kept;
    let mut lines = vec![
        line("request", format!("{tokens} tokens, {} bytes, as {} renders it", request.text.len(), answer.renderer)),
        line("kept", format!("{kept} conversations rendered so, {others} otherwise")),
    ];
    lines.push(match &answer.hit {
        Some(Hit { found, .. }) => {
            let (name, left) = (found.name().file(), tokens.saturating_sub(found.covered as usize));
            line("restores", format!("{name}: {} tokens, {left} are left to compute", found.tokens))
        }
        None => line("restores", "nothing: all of it would be computed".into()),
    });
    if let Some(closest) = &answer.closest {
        let Closest { name, summary, bytes, common, common_tokens, .. } = closest;
        lines.push(line("closest", format!("{}: {} tokens, {bytes} bytes", name.file(), summary.tokens)));
        lines.push(line("in common", format!("{common} bytes, {common_tokens} tokens")));
        if common < bytes {
            let there = Excerpt::of(&request.text, *common);
            lines.push(line("differs", format!("at byte {common}, in {}", request.part_at(*common))));
            lines.push(line("  kept", shown(&closest.excerpt)));
            lines.push(line("  request", shown(&there)));
        }
    }
    lines.push(line("why", why(answer)));
    lines
}

/// Both sides of a position, which the bar marks.
fn shown(excerpt: &Excerpt) -> String {
    format!("{:?}|{:?}", excerpt.before, excerpt.after)
}

/// The reason in a sentence.
fn why(answer: &Answer<'_>) -> String {
    let (kept, others) = answer.kept;
    let Some(closest) = &answer.closest else {
        return match (kept, others) {
            (0, 0) => "no conversation is kept in this folder".into(),
            (0, _) => "every kept conversation was rendered by other rules: another model, profile or version".into(),
            _ => "no kept conversation begins as the request does".into(),
        };
    };
    let tokens = closest.summary.tokens;
    let all = answer.hit.as_ref().is_some_and(|hit| hit.folder == closest.folder && hit.found.name() == closest.name);
    if all {
        return "it goes on from the conversation that has most in common with it".into();
    }
    if closest.common == answer.request.text.len() && closest.common < closest.bytes {
        return "the closest conversation goes on where the request ends, and is kept from later tokens on only".into();
    }
    if closest.common < closest.bytes {
        let part = answer.request.part_at(closest.common);
        return match &answer.hit {
            Some(_) => format!("{part} is not what the closest conversation goes on with: a shorter one is restored"),
            None => format!("{part} is not what the closest conversation goes on with, and no shorter one is kept"),
        };
    }
    if tokens < answer.min_tokens.0 {
        return format!("{tokens} tokens are fewer than --kv-cache-min-tokens {}", answer.min_tokens.0);
    }
    if tokens >= answer.context.0 {
        return format!("{tokens} tokens leave no place for more in a context of {}", answer.context.0);
    }
    if answer.request.record.tokens().len() <= closest.common_tokens {
        return "the last token of a prompt is always computed, and the conversation is kept to that token".into();
    }
    "the bytes are equal and the tokens are not: a text goes on where it was cut, or a control token was typed".into()
}

fn to_json(answer: &Answer<'_>) -> Value {
    let request = answer.request;
    let closest = answer.closest.as_ref().map(|closest| {
        let there = Excerpt::of(&request.text, closest.common);
        json!({
            "file": closest.name.file(),
            "folder": closest.folder,
            "tokens": closest.summary.tokens,
            "bytes": closest.bytes,
            "common_bytes": closest.common,
            "common_tokens": closest.common_tokens,
            "differs": (closest.common < closest.bytes).then(|| json!({
                "byte": closest.common,
                "in": request.part_at(closest.common),
                "before": closest.excerpt.before,
                "kept": closest.excerpt.after,
                "request": there.after,
            })),
        })
    });
    json!({
        "request": {
            "tokens": request.record.tokens().len(),
            "bytes": request.text.len(),
            "renderer": answer.renderer,
        },
        "kept": { "same_renderer": answer.kept.0, "other_renderer": answer.kept.1 },
        "restores": answer.hit.as_ref().map(|Hit { folder, found }| json!({
            "file": found.name().file(),
            "folder": folder,
            "tokens": found.tokens,
            "covered": found.covered,
            "kind": found.kind.name(),
        })),
        "closest": closest,
        "why": why(answer),
    })
}

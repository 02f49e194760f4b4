//! How large a schema may be, where the engine itself does not count what that costs.

use crate::SchemaError;
use serde_json::Value;
use std::collections::HashSet;

/// Levels of nested values in a schema and in all that its references lead to. The engine recurses on both, along one
/// way through the references that may visit each of them; a level takes some 4 KB of [`STACK`].
const LEVELS_MAX: usize = 2_000;

/// The stack of a thread that compiles, in bytes: several times what the levels need. Only what is used takes memory.
pub(crate) const STACK: usize = 64 << 20;

/// Refuses what would overflow the stack of the engine.
pub(crate) fn check(schema: &Value) -> Result<(), SchemaError> {
    let mut levels = 0;
    let mut seen = HashSet::new();
    let mut parts = vec![schema];
    while let Some(part) = parts.pop() {
        let mut references = Vec::new();
        levels += depth(part, &mut references);
        if levels > LEVELS_MAX {
            return Err(SchemaError::TooLarge {
                what: "nested levels, with what its references lead to",
                most: LEVELS_MAX,
            });
        }
        references.retain(|reference| seen.insert(*reference));
        parts.extend(references.into_iter().filter_map(|reference| target(schema, reference)));
    }
    Ok(())
}

/// How deep values nest in `value`, whose references are added to `references`. Values nest at most as deep as the
/// JSON reader allows.
fn depth<'a>(value: &'a Value, references: &mut Vec<&'a str>) -> usize {
    match value {
        Value::Object(members) => {
            references.extend(members.get("$ref").and_then(Value::as_str));
            1 + members.values().map(|member| depth(member, references)).max().unwrap_or(0)
        }
        Value::Array(elements) => 1 + elements.iter().map(|element| depth(element, references)).max().unwrap_or(0),
        _ => 0,
    }
}

/// What a reference leads to, read as the engine reads it: nothing in it is escaped.
fn target<'a>(schema: &'a Value, reference: &str) -> Option<&'a Value> {
    let path = reference.strip_prefix('#')?.trim_start_matches('/');
    if path.is_empty() {
        return Some(schema);
    }
    path.split('/').try_fold(schema, |value, step| match value {
        Value::Array(elements) => elements.get(step.parse::<usize>().ok()?),
        value => value.get(step),
    })
}

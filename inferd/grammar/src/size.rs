//! How large a schema may be, where the engine itself does not count what that costs.

use crate::SchemaError;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Levels of nested values in a schema and in all that its references lead to. The engine recurses on both, along one
/// way through the references that may visit each of them; a level takes some 4 KB of [`STACK`].
const LEVELS_MAX: usize = 2_000;

/// Names in all `patternProperties` of a schema: any two in one place are compared, some 20 us each.
const PATTERN_PROPERTIES_MAX: usize = 32;

/// Names in all `properties` of a schema. The time for one object grows with their square: half a second for so many.
const PROPERTIES_MAX: usize = 2_000;

/// Values in a schema, of which `const`, `enum` and `required` may hold any number: where alternatives meet, each is
/// compared with each, and copied for it, at some 100 ns a value.
const VALUES_MAX: usize = 10_000;

/// The stack of a thread that compiles, in bytes: several times what the levels need. Only what is used takes memory.
pub(crate) const STACK: usize = 64 << 20;

/// Refuses what would overflow the stack of the engine, or hold it up.
pub(crate) fn check(schema: &Value) -> Result<(), SchemaError> {
    check_counts(schema)?;
    check_levels(schema)
}

fn check_counts(schema: &Value) -> Result<(), SchemaError> {
    let mut counts = Counts::default();
    counts.add(schema);
    for (count, most, what) in [
        (counts.pattern_properties, PATTERN_PROPERTIES_MAX, "names in patternProperties"),
        (counts.properties, PROPERTIES_MAX, "names in properties"),
        (counts.values, VALUES_MAX, "values"),
    ] {
        if count > most {
            return Err(SchemaError::TooLarge { what, most });
        }
    }
    Ok(())
}

/// How much of what a schema holds.
#[derive(Default)]
struct Counts {
    pattern_properties: usize,
    properties: usize,
    values: usize,
}

impl Counts {
    fn add(&mut self, value: &Value) {
        self.values += 1;
        match value {
            Value::Object(members) => {
                let names = |keyword| members.get(keyword).and_then(Value::as_object).map_or(0, Map::len);
                self.pattern_properties += names("patternProperties");
                self.properties += names("properties");
                members.values().for_each(|member| self.add(member));
            }
            Value::Array(elements) => elements.iter().for_each(|element| self.add(element)),
            _ => {}
        }
    }
}

fn check_levels(schema: &Value) -> Result<(), SchemaError> {
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

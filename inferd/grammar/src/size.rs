//! How large a schema may be, where the engine itself does not count what that costs.

use crate::SchemaError;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

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

/// Values in a schema once references that stand beside other keywords, or are merged by `allOf`, are copied to their
/// places, and those in the copies to theirs. The engine takes some 7 us for each and counts none.
const COPIED_MAX: u64 = 10_000;

/// Keywords that say nothing to the engine: a reference beside these alone is not copied.
const ANNOTATIONS: [&str; 12] = [
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];

/// The stack of a thread that compiles, in bytes: several times what the levels need. Only what is used takes memory.
pub(crate) const STACK: usize = 64 << 20;

/// Refuses what would overflow the stack of the engine, or hold it up.
pub(crate) fn check(schema: &Value) -> Result<(), SchemaError> {
    check_counts(schema)?;
    check_levels(schema)?;
    let copied = Copies { schema, of: HashMap::new() }.of(schema, false);
    if copied > COPIED_MAX {
        let what = "values, once references that stand beside other keywords are copied to their places";
        return Err(SchemaError::TooLarge { what, most: COPIED_MAX as usize });
    }
    Ok(())
}

/// How many values a schema has when its references are copied.
struct Copies<'a> {
    schema: &'a Value,
    /// Of what references lead to. Those that are being counted count for nothing where they lead back to themselves.
    of: HashMap<&'a str, u64>,
}

impl<'a> Copies<'a> {
    /// Values in `value`; `merged` says that it is one of several that are made one.
    fn of(&mut self, value: &'a Value, merged: bool) -> u64 {
        let members = match value {
            Value::Object(members) => members,
            Value::Array(elements) => {
                return elements.iter().fold(1, |sum, element| self.of(element, merged).saturating_add(sum));
            }
            _ => return 1,
        };
        let is_beside = members.keys().any(|key| key != "$ref" && !ANNOTATIONS.contains(&key.as_str()));
        let mut sum: u64 = 1;
        for (key, member) in members {
            let of = match (key.as_str(), member.as_str()) {
                ("$ref", Some(reference)) if is_beside || merged => self.of_target(reference),
                _ => self.of(member, key == "allOf"),
            };
            sum = sum.saturating_add(of);
        }
        sum
    }

    fn of_target(&mut self, reference: &'a str) -> u64 {
        if let Some(&known) = self.of.get(reference) {
            return known;
        }
        self.of.insert(reference, 0);
        let count = target(self.schema, reference).map_or(0, |target| self.of(target, false));
        self.of.insert(reference, count);
        count
    }
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

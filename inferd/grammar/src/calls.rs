//! The grammar of tool calls whose arguments follow their schemas.
//!
//! A block is spelled canonically: parameters in the schema's order, each required one there. Text is written as it
//! is, everything else as JSON that follows the parameter's own schema.

use crate::SchemaError;
use crate::keywords;
use crate::lark::Lark;
use ds4_model::{CallSyntax, Tokenizer};
use serde_json::{Map, Value, json};

/// A tool that may be called.
#[derive(Clone, Copy, Debug)]
pub struct CallableTool<'a> {
    /// Its name.
    pub name: &'a str,
    /// The schema of its arguments.
    pub parameters: &'a Value,
    /// Whether calls are held to the schema; else only to the syntax.
    pub strict: bool,
}

/// What an answer may call.
#[derive(Clone, Copy, Debug)]
pub struct Callable<'a> {
    /// The tools, at least one.
    pub tools: &'a [CallableTool<'a>],
    /// Whether one block may hold several calls.
    pub parallel: bool,
}

/// The grammar of what follows the opening of a block. White space that belongs to the opening may still come.
pub(crate) fn lark(callable: Callable<'_>, syntax: &CallSyntax, tokenizer: &Tokenizer) -> Result<String, SchemaError> {
    let mut lark = Lark::new(tokenizer);
    let mut calls = Vec::new();
    for (index, tool) in callable.tools.iter().enumerate() {
        let name = format!("call_{index}");
        let arguments =
            if tool.strict { strict(&mut lark, syntax, tool, &name)? } else { free(&mut lark, syntax, &name) };
        let open = named(&lark, syntax.call, tool.name)?;
        let end = lark.literal(syntax.call_end);
        lark.rule(&name, &format!("{open} {arguments} {end}"));
        calls.push(name);
    }
    lark.rule("one_call", &calls.join(" | "));
    let closing = lark.literal(syntax.closing);
    let some = if callable.parallel { "one_call+" } else { "one_call" };
    lark.rule("start", &format!("/[ \\n]*/ {some} {closing}"));
    Ok(lark.finish())
}

/// The parameters of a schema, in its order.
fn strict(
    lark: &mut Lark<'_>,
    syntax: &CallSyntax,
    tool: &CallableTool<'_>,
    rule: &str,
) -> Result<String, SchemaError> {
    keywords::check(tool.parameters)?;
    keywords::check_references(tool.parameters)?;
    let root = tool.parameters.as_object().ok_or_else(|| SchemaError::NotASchema { path: String::new() })?;
    check_root(root)?;
    let none = Map::new();
    let not_an_object = || SchemaError::NotASchema { path: "properties".into() };
    let properties = root.get("properties").map_or(Ok(&none), |found| found.as_object().ok_or_else(not_an_object))?;
    let required = required(root, properties)?;
    let mut sequence = Vec::new();
    for (index, (name, schema)) in properties.iter().enumerate() {
        let rule = format!("{rule}_{index}");
        let spellings = parameter(lark, syntax, name, &with_definitions(schema, tool.parameters))?;
        lark.rule(&rule, &spellings.join(" | "));
        sequence.push(if required.contains(&name.as_str()) { rule } else { format!("{rule}?") });
    }
    Ok(sequence.join(" "))
}

/// Keywords that restrict the arguments as a whole. Parameters are written one by one, each by its own schema.
const OF_THE_WHOLE: [&str; 9] =
    ["$ref", "allOf", "anyOf", "oneOf", "const", "enum", "patternProperties", "minProperties", "maxProperties"];

fn check_root(root: &Map<String, Value>) -> Result<(), SchemaError> {
    let never_an_object = |kinds: Vec<&str>| !kinds.contains(&"object");
    let refused = match OF_THE_WHOLE.into_iter().find(|keyword| root.contains_key(*keyword)) {
        None if kinds(root).is_some_and(never_an_object) => Some("type"),
        found => found,
    };
    refused.map_or(Ok(()), |keyword| Err(SchemaError::UnsupportedAtRoot { path: keyword.into() }))
}

/// The names that a call must give, each of which is a property.
fn required<'a>(root: &'a Map<String, Value>, properties: &Map<String, Value>) -> Result<Vec<&'a str>, SchemaError> {
    let names = root.get("required").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    match names.iter().find(|name| !properties.contains_key(**name)) {
        Some(name) => Err(SchemaError::NoSuchProperty { path: "required".into(), name: (*name).to_owned() }),
        None => Ok(names),
    }
}

/// The ways to write one parameter.
fn parameter(lark: &mut Lark<'_>, syntax: &CallSyntax, name: &str, schema: &Value) -> Result<Vec<String>, SchemaError> {
    let mut spellings = Vec::new();
    match texts(schema) {
        Texts::Any => {
            spellings.push(format!("{} {}", named(lark, syntax.text, name)?, lark.text_up_to(syntax.parameter_end)))
        }
        Texts::These(values) => {
            let end = lark.literal(syntax.parameter_end);
            let open = named(lark, syntax.text, name)?;
            spellings.extend(values.iter().map(|value| format!("{open} {} {end}", Lark::text(value))));
        }
        Texts::AsJson => {}
    }
    let end = lark.literal(syntax.parameter_end);
    if let Some(schema) = without_text(schema) {
        spellings.push(format!("{} {} {end}", named(lark, syntax.json, name)?, Lark::json(&schema)));
    }
    Ok(spellings)
}

/// What stands before and after a name, with the name. In markup such a name would be escaped, and no client has one.
fn named(lark: &Lark<'_>, [before, after]: [&str; 2], name: &str) -> Result<String, SchemaError> {
    if name.contains(['"', '<', '>', '&']) || name.chars().any(char::is_control) {
        return Err(SchemaError::Unusable {
            reason: format!("the name {name:?} holds a character that markup escapes"),
        });
    }
    Ok([lark.literal(before), Lark::text(name), lark.literal(after)].join(" "))
}

/// Any parameters, any values.
fn free(lark: &mut Lark<'_>, syntax: &CallSyntax, rule: &str) -> String {
    let name = "/[^\"<>\\x00-\\x1f]+/";
    let text = syntax.text.map(|text| lark.literal(text)).join(&format!(" {name} "));
    let json = syntax.json.map(|text| lark.literal(text)).join(&format!(" {name} "));
    let (end, up_to) = (lark.literal(syntax.parameter_end), lark.text_up_to(syntax.parameter_end));
    let rule = format!("{rule}_any");
    lark.rule(&rule, &format!("{text} {up_to} | {json} {} {end}", Lark::json(&json!({}))));
    format!("{rule}*")
}

/// How the texts that a schema allows are written.
enum Texts<'a> {
    Any,
    These(Vec<&'a str>),
    /// As JSON strings, or there are none.
    AsJson,
}

/// Keywords that restrict a text beyond its type. Such a text is written as JSON, where they are enforced.
const TEXT_KEYWORDS: [&str; 10] =
    ["pattern", "format", "minLength", "maxLength", "$ref", "allOf", "anyOf", "oneOf", "const", "enum"];

fn texts(schema: &Value) -> Texts<'_> {
    let Some(keywords) = schema.as_object() else {
        return if *schema == true { Texts::Any } else { Texts::AsJson };
    };
    if let Some(values) = keywords.get("enum").and_then(Value::as_array) {
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        return if values.is_empty() { Texts::AsJson } else { Texts::These(values) };
    }
    let plain = !TEXT_KEYWORDS.iter().any(|keyword| keywords.contains_key(*keyword));
    if plain && kinds(keywords).is_none_or(|kinds| kinds.contains(&"string")) { Texts::Any } else { Texts::AsJson }
}

/// The types a schema names; `None` when it names none.
fn kinds(keywords: &Map<String, Value>) -> Option<Vec<&str>> {
    match keywords.get("type")? {
        Value::String(kind) => Some(vec![kind]),
        Value::Array(kinds) => Some(kinds.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

/// The schema of what is written as JSON: texts that are written as they are have no second spelling.
fn without_text(schema: &Value) -> Option<Value> {
    let mut rest = schema.clone();
    match (texts(schema), rest.as_object_mut()) {
        (Texts::AsJson, _) => {}
        (Texts::These(_), Some(keywords)) => {
            let values = keywords.get_mut("enum")?.as_array_mut()?;
            values.retain(|value| !value.is_string());
            if values.is_empty() {
                return None;
            }
        }
        (Texts::Any, Some(keywords)) => {
            let all = ["null", "boolean", "number", "array", "object"];
            let kinds = kinds(keywords)
                .map_or(all.to_vec(), |kinds| kinds.into_iter().filter(|kind| *kind != "string").collect());
            if kinds.is_empty() {
                return None;
            }
            let kinds = json!(kinds);
            keywords.insert("type".into(), kinds);
        }
        (_, None) => {}
    }
    Some(rest)
}

/// A parameter's schema with the definitions that its references lead to: those of the tool, whatever its own are.
fn with_definitions(schema: &Value, parameters: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(keywords) = schema.as_object_mut() {
        for place in ["$defs", "definitions"] {
            if let Some(definitions) = parameters.get(place) {
                keywords.insert(place.into(), definitions.clone());
            }
        }
    }
    schema
}

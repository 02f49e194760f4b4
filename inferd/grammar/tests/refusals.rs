//! Schemas that cannot be enforced, each refused by name; what a schema may cost.

mod support;

use ds4_grammar::{Grammars, MaskError, SchemaError};
use serde_json::{Value, json};
use std::sync::OnceLock;

fn grammars() -> &'static Grammars {
    static SHARED: OnceLock<Grammars> = OnceLock::new();
    SHARED.get_or_init(|| support::full_size().grammars())
}

fn refused(schema: &Value) -> SchemaError {
    grammars().json_schema(schema, None).err().unwrap_or_else(|| panic!("accepted: {:.200}", schema.to_string()))
}

#[test]
fn keywords_that_would_be_ignored_are_refused_with_their_path() {
    for (schema, path) in [
        (json!({"not": {"type": "string"}}), "not"),
        (json!({"type": "object", "properties": {"a": {"if": {}, "then": {}}}}), "properties.a.if"),
        (json!({"type": "array", "items": {"type": "array", "uniqueItems": true}}), "items.uniqueItems"),
        (json!({"$defs": {"x": {"contains": {}}}, "$ref": "#/$defs/x"}), "$defs.x.contains"),
        (json!({"anyOf": [{"type": "null"}, {"dependentRequired": {}}]}), "anyOf.dependentRequired"),
        (json!({"additionalProperties": {"propertyNames": {}}}), "additionalProperties.propertyNames"),
    ] {
        assert_eq!(refused(&schema), SchemaError::UnsupportedKeyword { path: path.into() });
    }
}

#[test]
fn unknown_formats_are_refused_where_they_restrict_strings() {
    let error = refused(&json!({"properties": {"p": {"type": "string", "format": "iri"}}}));
    assert_eq!(error, SchemaError::UnsupportedFormat { path: "properties.p.format".into(), found: "iri".into() });
    for schema in [
        json!({"type": "integer", "format": "int64"}),
        json!({"type": "object", "properties": {"format": {"type": "string"}, "not": {"type": "null"}}}),
        json!({"type": "object", "title": "T", "description": "d", "x-order": 3, "default": {}, "examples": []}),
    ] {
        assert_eq!(grammars().json_schema(&schema, None).err(), None, "{schema}");
    }
}

#[test]
fn schemas_that_nothing_satisfies_or_that_are_none_are_refused() {
    for schema in [
        json!(false),
        json!({"type": "string", "enum": [1]}),
        json!({"type": "integer", "minimum": 3, "maximum": 2}),
        json!({"$ref": "#/$defs/missing"}),
        json!({"$ref": "https://example.org/schema.json"}),
        json!({"type": "sting"}),
        json!({"type": "string", "pattern": "("}),
    ] {
        let error = refused(&schema);
        assert!(matches!(error, SchemaError::Unusable { .. }), "{error}");
        assert!(!error.to_string().contains('\n'));
    }
    assert_eq!(refused(&json!({"items": 7})), SchemaError::NotASchema { path: "items".into() });
    assert_eq!(refused(&json!([])), SchemaError::NotASchema { path: String::new() });
    let overlapping = json!({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]});
    assert_eq!(refused(&overlapping), SchemaError::OverlappingOneOf);
    let disjoint = json!({"oneOf": [{"type": "integer"}, {"type": "string"}]});
    assert!(grammars().json_schema(&disjoint, None).is_ok());
}

#[test]
fn a_schema_cannot_cost_without_limit() {
    let fields: serde_json::Map<String, Value> =
        (0..60_000).map(|i| (format!("f{i}"), json!({"type": "string"}))).collect();
    let large = json!({"type": "object", "properties": fields});
    assert!(matches!(refused(&large), SchemaError::TooLarge { .. }));

    // This one compiles at once; following it is what would cost.
    let repeated = json!({"type": "string", "pattern": "^(a?){2000}(a{1,900}){1,900}b$"});
    let mut mask = grammars().json_schema(&repeated, None).expect("it compiles");
    let vocabulary = support::full_size();
    let text = vocabulary.encode(&format!("\"{}b\"", "a".repeat(3_000)));
    let fault = text.into_iter().find_map(|token| {
        mask.push(token);
        mask.allowed().err()
    });
    assert!(matches!(fault, Some(MaskError::TooComplex { .. })), "{fault:?}");
}

/// `count` definitions, each of which `link` makes of a reference to the next; the last refers to the first.
fn ring(count: usize, link: impl Fn(Value) -> Value) -> Value {
    let next = |i: usize| link(json!({"$ref": format!("#/$defs/a{}", (i + 1) % count)}));
    let definitions: serde_json::Map<String, Value> = (0..count).map(|i| (format!("a{i}"), next(i))).collect();
    json!({"$defs": definitions, "$ref": "#/$defs/a0"})
}

#[test]
fn references_that_lead_too_deep_are_refused_and_none_overflows_the_stack() {
    let property = |next: Value| json!({"type": "object", "properties": {"x": next}});
    let merged = |next: Value| json!({"properties": {"x": {"allOf": [next, {"type": "object"}]}}});
    let listed = |next: Value| json!({"items": [next]});
    for (link, most) in [(property as fn(Value) -> Value, 660), (merged, 390), (listed, 660)] {
        assert!(matches!(refused(&ring(2_001, link)), SchemaError::TooLarge { .. }));
        // What is not refused compiles, or not, but the process lives.
        let _ = grammars().json_schema(&ring(most, link), None);
        assert_eq!(grammars().json_schema(&ring(40, property), None).err(), None);
    }
    let bare = refused(&ring(3_000, |next| next));
    assert_eq!(bare.to_string(), "the schema has more than 2000 nested levels, with what its references lead to");
    let _ = grammars().json_schema(&ring(1_990, |next| next), None);
}

#[test]
fn what_takes_time_by_its_square_is_refused_above_a_limit_that_is_named() {
    let names = |count: usize, like: &str| -> Value {
        (0..count).map(|i| (like.replace('#', &i.to_string()), json!(true))).collect::<serde_json::Map<_, _>>().into()
    };
    let patterns = |count| json!({"type": "object", "patternProperties": names(count, "^k#_[a-z]+$")});
    let properties = |count| json!({"type": "object", "properties": names(count, "f#")});
    let values = |count: usize| json!({"oneOf": [{"enum": vec!["a"; count / 2]}, {"enum": vec!["b"; count / 2]}]});
    for (schema, allowed, problem) in [
        (patterns(33), patterns(32), "the schema has more than 32 names in patternProperties"),
        (json!({"allOf": [patterns(17), patterns(16)]}), patterns(16), "more than 32 names in patternProperties"),
        (properties(2_001), properties(1_000), "the schema has more than 2000 names in properties"),
        (values(10_000), values(1_000), "the schema has more than 10000 values"),
    ] {
        let error = refused(&schema).to_string();
        assert!(error.ends_with(problem), "{error}");
        assert_eq!(grammars().json_schema(&allowed, None).err(), None);
    }
}

/// Definitions of which each names the next one twice.
fn doubling(count: usize, member: impl Fn(String) -> Value) -> Value {
    let definition = |i: usize| {
        let next = || member(format!("#/$defs/a{}", i + 1));
        let last = json!({"type": "object", "properties": {}});
        (
            format!("a{i}"),
            if i + 1 == count { last } else { json!({"type": "object", "properties": {"p": next(), "q": next()}}) },
        )
    };
    let definitions: serde_json::Map<String, Value> = (0..count).map(definition).collect();
    json!({"$ref": "#/$defs/a0", "$defs": definitions})
}

#[test]
fn references_that_are_copied_to_their_places_double_and_are_refused_above_a_limit_that_is_named() {
    let beside = |reference: String| json!({"$ref": reference, "type": "object"});
    let merged = |reference: String| json!({"allOf": [{"$ref": reference}, {"minProperties": 0}]});
    let alone = |reference: String| json!({"$ref": reference});
    let described = |reference: String| json!({"$ref": reference, "description": "the next one"});
    for (schema, is_allowed) in [
        (doubling(40, beside), false),
        (doubling(40, merged), false),
        (doubling(6, beside), true),
        (doubling(6, merged), true),
        (doubling(40, alone), true),
        (doubling(40, described), true),
    ] {
        if is_allowed {
            assert_eq!(grammars().json_schema(&schema, None).err(), None, "{schema}");
        } else {
            let problem = "more than 10000 values, once references that stand beside other keywords are copied";
            assert!(refused(&schema).to_string().contains(problem), "{}", refused(&schema));
        }
    }
}

#[test]
fn a_reference_back_to_itself_beside_other_keywords_ends() {
    let node = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/node", "type": "object"}}});
    let schema = json!({"$ref": "#/$defs/node", "$defs": {"node": node}});
    assert!(refused(&schema).to_string().contains("circular references with sibling keys"), "{}", refused(&schema));
}

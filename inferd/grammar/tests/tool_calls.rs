//! Blocks of tool calls, held to the schemas of their arguments.

mod support;

use ds4_grammar::{Callable, CallableTool, GrammarMask, Grammars};
use ds4_model::CallSyntax;
use serde_json::{Value, json};
use std::sync::OnceLock;
use support::{Vocabulary, Walk, full_size, ids};

const SYNTAX: CallSyntax = CallSyntax {
    opening: "<｜DSML｜tool_calls>\n",
    call: ["<｜DSML｜invoke name=\"", "\">\n"],
    text: ["<｜DSML｜parameter name=\"", "\" string=\"true\">"],
    json: ["<｜DSML｜parameter name=\"", "\" string=\"false\">"],
    parameter_end: "</｜DSML｜parameter>\n",
    call_end: "</｜DSML｜invoke>\n",
    closing: "</｜DSML｜tool_calls>",
};

fn shared() -> &'static (Vocabulary, Grammars) {
    static SHARED: OnceLock<(Vocabulary, Grammars)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let vocabulary = full_size();
        let grammars = vocabulary.grammars();
        (vocabulary, grammars)
    })
}

fn edit() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "line": {"type": "integer", "minimum": 1},
            "mode": {"enum": ["insert", "replace"]},
            "author": {"type": ["string", "null"]},
            "marks": {"type": "array", "items": {"$ref": "#/$defs/mark"}},
        },
        "required": ["path", "line", "mode"],
        "additionalProperties": false,
        "$defs": {"mark": {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"],
            "additionalProperties": false}},
    })
}

fn mask(parallel: bool) -> GrammarMask {
    let (edit, list) = (edit(), json!({"type": "object"}));
    let tools = [
        CallableTool { name: "edit", parameters: &edit, strict: true },
        CallableTool { name: "list", parameters: &list, strict: false },
    ];
    shared().1.calls(Callable { tools: &tools, parallel }, &SYNTAX).expect("a grammar")
}

fn accepts(parallel: bool, text: &str) -> bool {
    follows(mask(parallel), text)
}

/// Whether a block's rest is allowed token by token, to its end.
fn follows(mut mask: GrammarMask, text: &str) -> bool {
    let (vocabulary, _) = shared();
    for token in vocabulary.tokenizer.encode(&vocabulary.tokenizer.parse_trusted(text)) {
        if !ids(mask.allowed().expect("a mask")).contains(&token) {
            println!("refused at {:?}", String::from_utf8_lossy(vocabulary.bytes(token)));
            return false;
        }
        mask.push(token);
    }
    ids(mask.allowed().expect("a mask")) == [vocabulary.end]
}

fn call(tool: &str, parameters: &[(&str, bool, &str)]) -> String {
    let parameters: String = parameters
        .iter()
        .map(|(name, text, value)| {
            format!("<｜DSML｜parameter name=\"{name}\" string=\"{text}\">{value}</｜DSML｜parameter>\n")
        })
        .collect();
    format!("<｜DSML｜invoke name=\"{tool}\">\n{parameters}</｜DSML｜invoke>\n")
}

const END: &str = "</｜DSML｜tool_calls>";

#[test]
fn calls_that_follow_the_schema_are_allowed_whatever_their_texts_hold() {
    let text = "a </div> </ | </parameter> \"quoted\"\n\n<b>é 😀</b>";
    let full = call(
        "edit",
        &[
            ("path", true, text),
            ("line", false, "12"),
            ("mode", true, "insert"),
            ("author", false, "null"),
            ("marks", false, r#"[{"at": 3}, {"at": -1}]"#),
        ],
    );
    let short = call("edit", &[("path", true, ""), ("line", false, "1"), ("mode", true, "replace")]);
    let free = call("list", &[("anything", true, "x"), ("deep", false, r#"{"a": [1, null]}"#)]);
    for block in [
        format!("{full}{END}"),
        format!("\n{short}{END}"),
        format!("{free}{END}"),
        format!("{}{END}", call("list", &[])),
    ] {
        assert!(accepts(true, &block), "{block}");
    }
    assert!(accepts(true, &format!("{short}{free}{full}{END}")));
    assert!(!accepts(false, &format!("{short}{free}{END}")), "one call only");
}

#[test]
fn calls_that_break_the_schema_are_not() {
    let (path, line, mode) = (("path", true, "x"), ("line", false, "1"), ("mode", true, "insert"));
    for block in [
        call("delete", &[]),
        call("edit", &[]),
        call("edit", &[path, line]),
        call("edit", &[path, ("line", true, "1"), mode]),
        call("edit", &[path, ("line", false, "0"), mode]),
        call("edit", &[path, ("line", false, "1.5"), mode]),
        call("edit", &[path, line, ("mode", true, "append")]),
        call("edit", &[path, line, mode, ("color", true, "red")]),
        call("edit", &[path, line, mode, ("marks", false, r#"[{"at": "3"}]"#)]),
        String::new(),
    ] {
        assert!(!accepts(true, &format!("{block}{END}")), "{block}");
    }
}

#[test]
fn blocks_drawn_at_random_end_and_name_known_tools_only() {
    let (vocabulary, _) = shared();
    for seed in 0..4 {
        let mut walk = Walk::new(mask(true), seed);
        for _ in 0..200 {
            if walk.step(vocabulary).is_none() {
                break;
            }
        }
        let bytes: Vec<u8> = walk.tokens.iter().flat_map(|&token| vocabulary.bytes(token)).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let mut names = text.split("<｜DSML｜invoke name=\"").skip(1);
        assert!(names.all(|rest| rest.starts_with("edit\">\n") || rest.starts_with("list\">\n")), "{text}");
    }
}

#[test]
fn an_answer_that_may_be_json_or_a_block_of_calls_is_one_of_both() {
    let (vocabulary, grammars) = shared();
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
        "additionalProperties": false});
    let allowed = |text: &str| {
        let mut mask = grammars.json_schema(&schema, Some(&SYNTAX)).expect("a grammar");
        vocabulary.tokenizer.encode(&vocabulary.tokenizer.parse_trusted(text)).into_iter().all(|token| {
            let allowed = ids(mask.allowed().expect("a mask")).contains(&token);
            if !allowed {
                println!("{text}: refused at {:?}", String::from_utf8_lossy(vocabulary.bytes(token)));
            }
            mask.push(token);
            allowed
        })
    };
    for text in [r#"{"a": 1}"#, "\n\n<｜DSML｜tool_calls>", "<｜DSML｜tool_calls>\n"] {
        assert!(allowed(text), "{text}");
    }
    for text in ["Sure.", "\n\n<｜DSML｜invoke", r#"{"b": 1}"#, "<tool_calls>"] {
        assert!(!allowed(text), "{text}");
    }
}

#[test]
fn names_that_markup_would_escape_are_refused() {
    let (schema, odd) = (edit(), json!({"type": "object", "properties": {"a\"b": {"type": "string"}}}));
    for (name, parameters) in [("a<b", &schema), ("fine", &odd)] {
        let tools = [CallableTool { name, parameters, strict: true }];
        let error = shared().1.calls(Callable { tools: &tools, parallel: true }, &SYNTAX).err().expect("refused");
        assert!(error.to_string().contains("that markup escapes"), "{error}");
    }
}

#[test]
fn a_strict_schema_that_says_more_than_its_parameters_do_is_refused_by_name() {
    let refused = |parameters: Value| {
        let tools = [CallableTool { name: "f", parameters: &parameters, strict: true }];
        let error = shared().1.calls(Callable { tools: &tools, parallel: true }, &SYNTAX).err();
        error.unwrap_or_else(|| panic!("accepted: {parameters}"))
    };
    let object = json!({"type": "object", "properties": {"v": {"type": "integer"}}, "required": ["v"]});
    let root = "is not supported at the root of a strict tool's parameters; leave it out, or strict";
    let reference = "is not supported in a strict tool; refer to #/$defs/ or #/definitions/";
    for (parameters, path, problem) in [
        (json!({"$defs": {"A": object}, "$ref": "#/$defs/A"}), "$ref", root),
        (json!({"allOf": [object]}), "allOf", root),
        (json!({"anyOf": [object]}), "anyOf", root),
        (json!({"oneOf": [object]}), "oneOf", root),
        (json!({"type": "object", "patternProperties": {"^a": {}}}), "patternProperties", root),
        (json!({"type": "object", "properties": {"v": {}}, "minProperties": 1}), "minProperties", root),
        (json!({"type": "array", "items": object}), "type", root),
        (
            json!({"type": "object", "properties": {"v": {}}, "required": ["v", "w"]}),
            "required",
            "\"w\" is none of the properties, where a strict tool needs it",
        ),
        (
            json!({"type": "object", "properties": {"v": {"items": {"$ref": "#"}}}}),
            "properties.v.items.$ref",
            &format!("\"#\" {reference}"),
        ),
        (
            json!({"type": "object", "properties": {"x": {}, "v": {"$ref": "#/properties/x"}}}),
            "properties.v.$ref",
            &format!("\"#/properties/x\" {reference}"),
        ),
    ] {
        let error = refused(parameters);
        assert_eq!((error.path(), error.to_string()), (path, format!("{path}: {problem}")));
    }
}

#[test]
fn what_describes_a_strict_schema_is_no_hindrance_and_references_lead_to_its_own_definitions() {
    let described = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "$id": "f", "$comment": "c", "title": "F",
        "description": "d", "examples": [], "default": {}, "deprecated": false, "x-order": 1,
        "type": ["object", "null"], "additionalProperties": false, "required": ["v"],
        "properties": {
            "v": {"$defs": {"A": {"type": "boolean"}}, "$ref": "#/$defs/A"},
            "$ref": {"$ref": "#/definitions/B"},
        },
        "$defs": {"A": {"type": "integer"}}, "definitions": {"B": {"type": "null"}},
    });
    let tools = [CallableTool { name: "f", parameters: &described, strict: true }];
    let mask = || shared().1.calls(Callable { tools: &tools, parallel: true }, &SYNTAX).expect("a grammar");
    for (value, allowed) in [("7", true), ("true", false)] {
        let block = format!("{}{END}", call("f", &[("v", false, value), ("$ref", false, "null")]));
        assert_eq!(follows(mask(), &block), allowed, "{value}");
    }
}

//! Answers of a given form: the fields that ask for one, and the grammar that holds the answer to it.

use crate::ApiError;
use crate::ask::{Reading, Wording};
use crate::phase::Serving;
use crate::reader::{Fields, Node};
use ds4_grammar::{Callable, CallableTool, Grammars, SchemaError};
use ds4_model::{Conversation, Instructions, JsonText, Message, TokenConstraint, ToolChoice, ToolUse};
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The vocabulary as grammars need it, prepared when the first request asks for one: that takes a good part of a
/// second, which a worker that starts should not.
#[derive(Default)]
pub(crate) struct GrammarCell(OnceLock<Option<Grammars>>);

impl GrammarCell {
    fn get(&self, serving: &Serving) -> Result<&Grammars, ApiError> {
        let prepare = || {
            let rows = serving.engine.info().vocabulary;
            let grammars = Grammars::new(serving.tokenizer.clone(), serving.codec.stop_tokens(), rows);
            grammars.inspect_err(|reason| tracing::error!(reason, "structured output is not available")).ok()
        };
        self.0.get_or_init(prepare).as_ref().ok_or_else(ApiError::internal)
    }
}

/// The form that the text of an answer must have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Form {
    schema: Value,
    /// The field the schema came in.
    path: String,
    /// Whether the model is shown the schema, or only held to it.
    shown: bool,
}

/// Reads `response_format`, whose schema is inside an object with its name.
pub(crate) fn response_format(fields: Fields<'_>) -> Result<Option<Form>, ApiError> {
    let Some(format) = fields.get("response_format") else { return Ok(None) };
    read(&format, |format| {
        let holder = format.require("json_schema")?;
        let holder = holder.fields()?;
        let schema = holder.require("schema")?;
        Ok(Form { schema: schema.value().clone(), path: schema.path(), shown: true })
    })
}

/// Reads the field `format` of `holder`, whose schema is beside its name.
pub(crate) fn format_of(holder: Fields<'_>) -> Result<Option<Form>, ApiError> {
    holder.get("format").map_or(Ok(None), |format| flat(&format))
}

/// Reads a format whose schema is beside its name.
pub(crate) fn flat(format: &Node<'_>) -> Result<Option<Form>, ApiError> {
    read(format, |format| {
        let schema = format.require("schema")?;
        Ok(Form { schema: schema.value().clone(), path: schema.path(), shown: true })
    })
}

fn read(
    format: &Node<'_>,
    schema: impl FnOnce(Fields<'_>) -> Result<Form, ApiError>,
) -> Result<Option<Form>, ApiError> {
    let fields = format.fields()?;
    match fields.str("type")? {
        None | Some("text") => Ok(None),
        Some("json_object") => Ok(Some(Form { schema: json!({"type": "object"}), path: format.path(), shown: false })),
        Some("json_schema") => schema(fields).map(Some),
        Some(other) => {
            Err(fields.require("type")?.refuse(format!("unsupported {other:?}; use text, json_object or json_schema")))
        }
    }
}

/// The grammars of a request: for the text of its answer, and for its calls where a tool is strict. A schema that the
/// model is to follow is added to its instructions. Blocks while schemas compile.
pub(crate) fn constraints(
    form: Option<Form>,
    strict: &[String],
    wording: &mut Wording,
    reading: Reading<'_>,
) -> Result<Vec<Box<dyn TokenConstraint>>, ApiError> {
    let tools = match wording {
        Wording::Conversation(conversation) => Some(&conversation.tools).filter(|tools| tools.is_armed()),
        Wording::Raw(_) | Wording::Tokens(_) => None,
    };
    let mut constraints: Vec<Box<dyn TokenConstraint>> = Vec::new();
    // What is only counted needs the prompt and no grammar.
    if let Some(form) = form.as_ref().filter(|_| !reading.counting) {
        let calls = reading.serving.codec.call_syntax().filter(|_| tools.is_some());
        let mask = reading.grammars.get(reading.serving)?.json_schema(&form.schema, calls);
        constraints.push(Box::new(mask.map_err(|error| refused(&form.path, &error))?));
    }
    if let Some(tools) = tools.filter(|_| !reading.counting && !strict.is_empty()) {
        constraints.extend(calls(strict, tools, reading)?);
    }
    if let (Some(form), Wording::Conversation(conversation)) = (form.filter(|form| form.shown), wording) {
        show(&form.schema, conversation);
    }
    Ok(constraints)
}

/// Adds a schema to the leading instructions, in the words the model was trained on.
fn show(schema: &Value, conversation: &mut Conversation) {
    if !matches!(conversation.messages.first(), Some(Message::System(_))) {
        conversation.messages.insert(0, Message::System(Instructions::default()));
    }
    if let Some(Message::System(instructions)) = conversation.messages.first_mut() {
        // What was printed from a value is JSON.
        instructions.response_schema = JsonText::parse(&schema.to_string()).ok();
    }
}

/// The grammar of calls where some tools are strict.
fn calls(
    strict: &[String],
    tools: &ToolUse,
    reading: Reading<'_>,
) -> Result<Option<Box<dyn TokenConstraint>>, ApiError> {
    let Some(syntax) = reading.serving.codec.call_syntax() else { return Ok(None) };
    let listed: Vec<Value> =
        tools.schemas.iter().filter_map(|tool| serde_json::from_str(tool.json.as_str()).ok()).collect();
    let callable = |name: &str| match &tools.choice {
        ToolChoice::Named(named) => named == name,
        _ => tools.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|one| one == name)),
    };
    let offered: Vec<CallableTool<'_>> = listed
        .iter()
        .filter_map(|tool| {
            let name = tool["name"].as_str().filter(|name| callable(name))?;
            let strict = strict.iter().any(|one| one == name);
            Some(CallableTool { name, parameters: &tool["parameters"], strict })
        })
        .collect();
    if !offered.iter().any(|tool| tool.strict) {
        return Ok(None);
    }
    let grammars = reading.grammars.get(reading.serving)?;
    let mask = grammars.calls(Callable { tools: &offered, parallel: tools.parallel }, syntax);
    Ok(Some(Box::new(mask.map_err(|error| refused("tools", &error))?)))
}

/// A schema's refusal, pointing at the place in the request.
fn refused(field: &str, error: &SchemaError) -> ApiError {
    let message = error.to_string();
    match error.path() {
        "" => ApiError::field(field.to_owned(), message),
        path => {
            let problem = message.strip_prefix(&format!("{path}: ")).unwrap_or(&message);
            ApiError::field(format!("{field}.{path}"), problem)
        }
    }
}

//! A block of calls, read as it is generated.

use super::arguments::{Arguments, ValueRules};
use super::schema::{ToolTable, Types};
use super::tag::{Kind, Lexed, Spellings, Tag, lex};
use super::value::{Closers, JsonReader, Read, read_text};
use ds4_model::{CallEvent, CallId, PromptText, ToolArguments, ToolCall};
use std::sync::Arc;

/// What holds for all blocks of a request.
#[derive(Clone, Debug)]
pub(in super::super) struct BlockRules {
    pub(in super::super) tools: Arc<ToolTable>,
    /// Names that may be called; any, when not said.
    pub(in super::super) allowed: Option<Vec<String>>,
    pub(in super::super) parallel: bool,
    pub(in super::super) coerce: bool,
    /// A block without a call is a fault.
    pub(in super::super) required: bool,
}

/// Where a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum BlockState {
    Open,
    /// It ended; perhaps without a call.
    Closed,
    /// Something does not fit.
    Broken(&'static str),
}

/// A part of a call, as it became known.
pub(in super::super) type BlockEvent = CallEvent;

/// A complete call.
#[derive(Clone, Debug)]
pub(in super::super) struct BlockCall {
    pub(in super::super) id: CallId,
    pub(in super::super) name: String,
    /// A JSON object.
    pub(in super::super) json: String,
}

impl BlockCall {
    /// The call as a message says it.
    pub(in super::super) fn to_tool_call(&self) -> ToolCall {
        ToolCall { id: self.id.with_prefix(""), name: self.name.clone(), arguments: ToolArguments::parse(&self.json) }
    }
}

/// Reads one block, from after its opening tag on.
#[derive(Clone, Debug)]
pub(in super::super) struct Block {
    rules: BlockRules,
    /// Read a second time, after it did not end: closing tags end values wherever they are.
    lenient: bool,
    /// Text that was not taken yet: at most a tag, or white space.
    rest: String,
    place: Place,
    call: Option<Call>,
    complete: Vec<BlockCall>,
    opened_twice: bool,
    repaired: bool,
    /// The text so far ends with its line.
    line_ended: bool,
}

#[derive(Clone, Debug)]
struct Call {
    id: CallId,
    name: String,
    arguments: Arguments,
}

#[derive(Clone, Debug)]
enum Place {
    BetweenCalls,
    BetweenParameters,
    Value(Value),
    /// An object whose members are parameters in a parameter.
    Members {
        name: String,
        members: Arguments,
        member: Option<Box<Value>>,
    },
    Closed,
    Broken(&'static str),
}

#[derive(Clone, Debug)]
struct Value {
    name: String,
    kind: ValueKind,
    closers: Closers,
    rules: ValueRules,
    /// What was read, unless it is written as it comes.
    text: String,
    streams: bool,
}

#[derive(Clone, Copy, Debug)]
enum ValueKind {
    Text,
    Json(JsonReader),
    /// The tag does not say; the value's beginning will.
    Unsaid,
}

impl Block {
    pub(in super::super) fn new(rules: BlockRules) -> Block {
        Block {
            rules,
            lenient: false,
            rest: String::new(),
            place: Place::BetweenCalls,
            call: None,
            complete: Vec::new(),
            opened_twice: false,
            repaired: false,
            line_ended: false,
        }
    }

    /// Begins once more: closing tags of any spelling end values now, wherever they stand.
    pub(in super::super) fn again_leniently(&self) -> Block {
        Block { lenient: true, ..Block::new(self.rules.clone()) }
    }

    pub(in super::super) fn state(&self) -> BlockState {
        match self.place {
            Place::Closed => BlockState::Closed,
            Place::Broken(problem) => BlockState::Broken(problem),
            _ => BlockState::Open,
        }
    }

    /// Calls that are complete.
    pub(in super::super) fn calls(&self) -> &[BlockCall] {
        &self.complete
    }

    /// Whether something missing was taken as said.
    pub(in super::super) fn is_repaired(&self) -> bool {
        self.repaired
    }

    /// Text after the block's end, as far as it was pushed.
    pub(in super::super) fn rest(&self) -> &str {
        &self.rest
    }

    /// Whether the block should end here, since one call is all that is wanted.
    pub(in super::super) fn wants_end(&self) -> bool {
        !self.rules.parallel && !self.complete.is_empty() && matches!(self.place, Place::BetweenCalls)
    }

    /// Whether what comes next is in the middle of a line.
    pub(in super::super) fn is_mid_line(&self) -> bool {
        !self.line_ended
    }

    /// Whether the next token is syntax: everything but the text of values.
    pub(in super::super) fn is_syntax(&self) -> bool {
        let value = match &self.place {
            Place::Value(value) => Some(value),
            Place::Members { member, .. } => member.as_deref(),
            _ => None,
        };
        match value.map(|value| value.kind) {
            Some(ValueKind::Text | ValueKind::Unsaid) => self.rest.starts_with("</"),
            Some(ValueKind::Json(reader)) => !reader.in_string,
            None => true,
        }
    }

    /// Takes the next text.
    pub(in super::super) fn push(&mut self, text: &str, events: &mut Vec<BlockEvent>) {
        if let Some(last) = text.chars().next_back() {
            self.line_ended = last == '\n';
        }
        self.rest.push_str(text);
        let rest = std::mem::take(&mut self.rest);
        let mut at = 0;
        while let Some(taken) = self.step(&rest[at..], events) {
            at += taken;
        }
        self.show(events);
        self.rest = rest[at..].to_owned();
    }

    /// The model ended its answer inside the block: adds what is missing at its end, if only closing tags are.
    pub(in super::super) fn close(&mut self, events: &mut Vec<BlockEvent>) {
        let rest = std::mem::take(&mut self.rest);
        let rest = rest.trim_start();
        let inside_an_opening_tag = rest.len() > 1 && rest.starts_with('<') && !rest.starts_with("</");
        self.repaired = true;
        match std::mem::replace(&mut self.place, Place::BetweenCalls) {
            Place::BetweenParameters if inside_an_opening_tag => self.place = Place::Broken("it ends inside a tag"),
            Place::BetweenParameters => self.end_call(events),
            Place::Value(value) => self.close_value(value, rest, events),
            Place::Members { .. } => self.place = Place::Broken("it ends inside a value"),
            other => self.place = other,
        }
        if matches!(self.place, Place::BetweenCalls) {
            self.end_block();
        }
    }

    /// The tokens ran out inside the block: as [`Block::close`], but no value is taken for complete.
    pub(in super::super) fn close_cut_off(&mut self, events: &mut Vec<BlockEvent>) {
        if matches!(self.place, Place::Value(_) | Place::Members { .. }) || !self.rest.trim().is_empty() {
            self.place = Place::Broken("the tokens ran out");
        } else {
            self.close(events);
        }
    }

    fn close_value(&mut self, mut value: Value, rest: &str, events: &mut Vec<BlockEvent>) {
        if rest.starts_with('&') {
            self.value_text(&mut value, rest);
        }
        if matches!(value.kind, ValueKind::Json(_)) && ds4_model::JsonText::parse(&value.text).is_err() {
            self.place = Place::Broken("it ends inside a value");
            return;
        }
        self.end_value(value);
        self.end_call(events);
    }

    /// Takes something from the beginning of `rest` and says how much; `None` when more must come first.
    fn step(&mut self, rest: &str, events: &mut Vec<BlockEvent>) -> Option<usize> {
        match std::mem::replace(&mut self.place, Place::Closed) {
            Place::Value(value) => self.step_value(value, rest),
            Place::Members { name, members, member } => self.step_members(name, members, member, rest),
            place @ (Place::Closed | Place::Broken(_)) => {
                self.place = place;
                None
            }
            place => {
                self.place = place;
                let (tag, taken) = self.next_tag(rest)?;
                if let Some(tag) = tag {
                    self.tag(tag, events);
                }
                Some(taken)
            }
        }
    }

    /// The tag at the beginning of `rest`, or white space before it. Anything else breaks the block.
    fn next_tag(&mut self, rest: &str) -> Option<(Option<Tag>, usize)> {
        let space = rest.len() - rest.trim_start().len();
        if space > 0 {
            return Some((None, space));
        }
        if rest.is_empty() {
            return None;
        }
        match if rest.starts_with('<') { lex(rest, Spellings::ANY) } else { Lexed::NotATag } {
            Lexed::Tag(tag, len) => Some((Some(tag), len)),
            Lexed::Partial => None,
            Lexed::NotATag => {
                self.place = Place::Broken("there is text between its tags");
                Some((None, 0))
            }
        }
    }

    fn tag(&mut self, tag: Tag, events: &mut Vec<BlockEvent>) {
        let in_call = matches!(self.place, Place::BetweenParameters);
        match (tag.kind, tag.closing) {
            (Kind::Parameter, false) if in_call => match tag.name {
                Some(name) => self.begin_value(name, tag.string, tag.plain),
                None => self.place = Place::Broken("a parameter has no name"),
            },
            (Kind::Invoke, true) if in_call => self.end_call(events),
            (Kind::Invoke, false) => {
                if in_call {
                    self.repaired = true;
                    self.end_call(events);
                }
                self.begin_call(tag.name, events);
            }
            (Kind::Calls, true) => {
                if in_call {
                    self.repaired = true;
                    self.end_call(events);
                }
                self.end_block();
            }
            (Kind::Calls, false) if !in_call && !self.opened_twice && self.complete.is_empty() => {
                self.opened_twice = true;
            }
            _ => self.place = Place::Broken("a tag is out of place"),
        }
    }

    fn begin_call(&mut self, name: Option<String>, events: &mut Vec<BlockEvent>) {
        if self.wants_end() {
            return self.end_block();
        }
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            self.place = Place::Broken("a call has no name");
            return;
        };
        if self.rules.allowed.as_ref().is_some_and(|allowed| !allowed.contains(&name)) {
            self.place = Place::Broken("it calls a tool that may not be called now");
            return;
        }
        let id = CallId::draw();
        events.push(BlockEvent::Start { index: self.complete.len() as u32, id, name: name.clone() });
        self.call = Some(Call { id, name, arguments: Arguments::begin() });
        self.show(events);
        self.place = Place::BetweenParameters;
    }

    fn end_call(&mut self, events: &mut Vec<BlockEvent>) {
        if let Some(call) = &mut self.call {
            call.arguments.end();
        }
        self.show(events);
        if let Some(call) = self.call.take() {
            events.push(BlockEvent::End { index: self.complete.len() as u32 });
            let json = call.arguments.json().to_owned();
            self.complete.push(BlockCall { id: call.id, name: call.name, json });
        }
        self.place = Place::BetweenCalls;
    }

    fn end_block(&mut self) {
        let empty = self.complete.is_empty();
        // An empty block says nothing, unless something had to be said or it never ended.
        let broken = empty && (self.rules.required || self.repaired);
        self.place = if broken { Place::Broken("it holds no call") } else { Place::Closed };
    }

    fn begin_value(&mut self, name: String, is_string: Option<bool>, plain: bool) {
        let Some(call) = &mut self.call else { return };
        let types = self.rules.tools.types(&call.name, &name);
        let rules = ValueRules { types, coerce: self.rules.coerce };
        let kind = match is_string {
            Some(true) => ValueKind::Text,
            Some(false) => ValueKind::Json(JsonReader::default()),
            None => ValueKind::Unsaid,
        };
        let wraps = call.arguments.may_wrap(&self.rules.tools, &call.name, &name);
        let streams = is_string == Some(true) && rules.streams() && !wraps;
        if streams {
            call.arguments.begin_string(&name);
        }
        let closers = Closers { plain: plain || self.lenient, in_strings: self.lenient };
        self.place = Place::Value(Value { name, kind, closers, rules, text: String::new(), streams });
    }

    fn step_value(&mut self, mut value: Value, rest: &str) -> Option<usize> {
        if let ValueKind::Unsaid = value.kind {
            return self.settle_kind(value, rest);
        }
        let mut text = String::new();
        let read = value.read(rest, &mut text);
        self.value_text(&mut value, &text);
        match read {
            Read::Closed(taken) => {
                self.end_value(value);
                Some(taken)
            }
            Read::More(taken) => {
                self.place = Place::Value(value);
                (taken > 0).then_some(taken)
            }
        }
    }

    /// A value whose tag does not say what it is: parameters in it make it an object, anything else text.
    fn settle_kind(&mut self, mut value: Value, rest: &str) -> Option<usize> {
        let start = rest.trim_start();
        let lexed = if start.starts_with('<') { lex(start, Spellings::ANY) } else { Lexed::NotATag };
        if start.is_empty() || lexed == Lexed::Partial {
            self.place = Place::Value(value);
            return None;
        }
        if matches!(&lexed, Lexed::Tag(tag, _) if tag.kind == Kind::Parameter && !tag.closing) {
            self.place = Place::Members { name: value.name, members: Arguments::begin(), member: None };
        } else {
            value.kind = ValueKind::Text;
            self.place = Place::Value(value);
        }
        Some(0)
    }

    fn step_members(
        &mut self,
        name: String,
        mut members: Arguments,
        member: Option<Box<Value>>,
        rest: &str,
    ) -> Option<usize> {
        if let Some(mut member) = member {
            let mut text = String::new();
            let read = member.read(rest, &mut text);
            member.text.push_str(&text);
            let (member, taken) = match read {
                Read::Closed(taken) => {
                    members.value(&member.name, &member.json());
                    (None, Some(taken))
                }
                Read::More(taken) => (Some(member), (taken > 0).then_some(taken)),
            };
            self.place = Place::Members { name, members, member };
            return taken;
        }
        // Stays broken if the next tag breaks it.
        let found = self.next_tag(rest);
        if matches!(self.place, Place::Broken(_)) {
            return found.map(|(_, taken)| taken);
        }
        match found {
            Some((
                Some(Tag { kind: Kind::Parameter, closing: false, name: Some(inner), string, plain, .. }),
                taken,
            )) => {
                let kind = if string == Some(false) { ValueKind::Json(JsonReader::default()) } else { ValueKind::Text };
                let closers = Closers { plain: plain || self.lenient, in_strings: self.lenient };
                let rules = ValueRules { types: Types::ANY, coerce: self.rules.coerce };
                let member = Value { name: inner, kind, closers, rules, text: String::new(), streams: false };
                self.place = Place::Members { name, members, member: Some(Box::new(member)) };
                Some(taken)
            }
            Some((Some(Tag { kind: Kind::Parameter, closing: true, .. }), taken)) => {
                members.end();
                if let Some(call) = &mut self.call {
                    call.arguments.value(&name, members.json());
                }
                self.place = Place::BetweenParameters;
                Some(taken)
            }
            Some((Some(_), taken)) => {
                self.place = Place::Broken("a tag is out of place");
                Some(taken)
            }
            Some((None, taken)) => {
                self.place = Place::Members { name, members, member: None };
                Some(taken)
            }
            None => {
                self.place = Place::Members { name, members, member: None };
                None
            }
        }
    }

    fn value_text(&mut self, value: &mut Value, text: &str) {
        match &mut self.call {
            Some(call) if value.streams => call.arguments.string_part(text),
            _ => value.text.push_str(text),
        }
    }

    fn end_value(&mut self, value: Value) {
        self.place = Place::BetweenParameters;
        let Some(call) = &mut self.call else { return };
        if value.streams {
            return call.arguments.end_string();
        }
        let json = value.json();
        if call.arguments.may_wrap(&self.rules.tools, &call.name, &value.name) {
            call.arguments.hold(value.name, value.text, json);
        } else {
            call.arguments.value(&value.name, &json);
        }
    }

    fn show(&mut self, events: &mut Vec<BlockEvent>) {
        let index = self.complete.len() as u32;
        if let Some(json) = self.call.as_mut().and_then(|call| call.arguments.fragment()) {
            events.push(BlockEvent::Arguments { index, json });
        }
    }
}

impl Value {
    fn read(&mut self, rest: &str, out: &mut String) -> Read {
        match &mut self.kind {
            ValueKind::Json(reader) => reader.read(rest, self.closers, out),
            ValueKind::Text | ValueKind::Unsaid => read_text(rest, self.closers, out),
        }
    }

    fn json(&self) -> String {
        match self.kind {
            ValueKind::Json(_) => self.rules.json(&self.text),
            ValueKind::Text | ValueKind::Unsaid => self.rules.text(&self.text),
        }
    }
}

/// At most 200 bytes of the end of a text, for traces.
pub(in super::super) fn excerpt(text: &str) -> PromptText {
    let from = text.len().saturating_sub(200);
    let from = (from..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    PromptText::new(&text[from..])
}

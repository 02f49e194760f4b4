//! Printing a conversation.

use super::markers::Markers;
use super::turns::{Block, Turn, Turns};
use super::wording::{self, GAP, TOOL_RESULT, TOOL_RESULT_END};
use super::{PromptProfile, Protocol, dsml};
use ds4_model::{
    AnswerMemory, AssistantMessage, Conversation, Instructions, NumberSpelling, Prompt, Task, ThinkingMode, ToolChoice,
    ToolSchema,
};

/// A result that spells its own end has that end's first character replaced.
const TOOL_RESULT_END_TEXT: &str = "&lt;/tool_result>";

/// Renders a conversation that was checked: it has messages, and a prefill ends with an assistant message.
pub(super) fn render(protocol: &Protocol, conversation: &Conversation, memory: &AnswerMemory) -> Prompt {
    let thinking = conversation.thinking == ThinkingMode::On;
    let offered = match conversation.tools.choice {
        ToolChoice::Forbidden => &[][..],
        _ => &conversation.tools.schemas[..],
    };
    let mut printer = Printer {
        protocol,
        markers: &protocol.markers,
        memory,
        thinking,
        offered,
        reminder_after: conversation.reminder_after.map(|bytes| bytes.0 as usize),
        conversation: Turns::of(conversation, memory),
        prompt: Prompt::new(),
    };
    printer.prompt.push_control(protocol.markers.begin_of_sentence);
    if thinking {
        printer.prompt.push_text(wording::effort(protocol.profile, conversation.effort));
    }
    if !offered.is_empty() && !matches!(printer.conversation.turns.first(), Some(Turn::System(_))) {
        // Tools hang on a system text, if only an empty one.
        instructions(protocol, &mut printer.prompt, &Instructions::default(), offered);
    }
    let count = printer.conversation.turns.len();
    for place in 0..count {
        let stays_open = conversation.prefill && place + 1 == count;
        printer.turn(place, stays_open);
        printer.what_follows(place);
    }
    printer.prompt
}

struct Printer<'a> {
    protocol: &'a Protocol,
    markers: &'a Markers,
    memory: &'a AnswerMemory,
    thinking: bool,
    /// Tools of the request as a whole.
    offered: &'a [ToolSchema],
    reminder_after: Option<usize>,
    conversation: Turns<'a>,
    prompt: Prompt,
}

impl Printer<'_> {
    fn turn(&mut self, place: usize, stays_open: bool) {
        let Printer { protocol, prompt, .. } = self;
        match &self.conversation.turns[place] {
            Turn::System(body) => {
                let offered = if place == 0 { self.offered } else { &[] };
                instructions(protocol, prompt, body, offered);
            }
            Turn::Developer(body) => {
                prompt.push_control(self.markers.user);
                instructions(protocol, prompt, body, &[]);
            }
            Turn::User { blocks, .. } => {
                prompt.push_control(self.markers.user);
                user_blocks(prompt, blocks, self.reminder_after);
            }
            Turn::LatestReminder(text) => {
                prompt.push_control(self.markers.latest_reminder);
                prompt.push_text(text);
            }
            Turn::Assistant { message, reasoning } => {
                let (message, reasoning) = (*message, reasoning.clone());
                self.assistant(place, message, reasoning.as_str(), stays_open);
            }
        }
    }

    fn assistant(&mut self, place: usize, message: &AssistantMessage, reasoning: &str, stays_open: bool) {
        if self.shows_reasoning(place) {
            self.prompt.push_text(reasoning);
            self.prompt.push_control(self.markers.end_think);
        }
        self.prompt.push_text(message.content.as_str());
        if !message.tool_calls.is_empty() {
            match self.memory.recall_calls(&message.tool_calls) {
                Some(sampled) => self.prompt.push_all(sampled.block.pieces()),
                None => dsml::print(&mut self.prompt, self.markers, &message.tool_calls),
            }
        }
        if !stays_open {
            self.prompt.push_control(self.markers.end_of_sentence);
        }
    }

    /// Whether the assistant turn at `place` has its reasoning printed, even an empty one. The output of a task has
    /// none.
    fn shows_reasoning(&self, place: usize) -> bool {
        let turns = &self.conversation;
        let answers_task = place.checked_sub(1).is_some_and(|before| turns.turns[before].task().is_some());
        let is_current = turns.last_question.is_none_or(|question| place > question);
        self.thinking && !answers_task && (!turns.drop_reasoning || is_current)
    }

    /// Prints what opens an answer, when an answer follows the turn at `place` or ends the list.
    fn what_follows(&mut self, place: usize) {
        let turns = &self.conversation;
        let next = turns.turns.get(place + 1);
        if !matches!(next, None | Some(Turn::Assistant { .. } | Turn::LatestReminder(_))) {
            return;
        }
        let turn = &turns.turns[place];
        let opens = turn.is_question()
            || (self.protocol.profile == PromptProfile::Revised
                && matches!(turn, Turn::System(_))
                && matches!(next, None | Some(Turn::Assistant { .. })));
        let is_current = turns.last_question.is_none_or(|question| place >= question);
        let thinks = self.thinking && (!turns.drop_reasoning || is_current);
        match turn.task() {
            Some(Task::Action) => {
                self.open_answer(self.thinking);
                self.prompt.push_control(self.markers.task(Task::Action));
            }
            Some(task) => self.prompt.push_control(self.markers.task(task)),
            None if opens => self.open_answer(thinks),
            None => {}
        }
    }

    fn open_answer(&mut self, thinks: bool) {
        self.prompt.push_control(self.markers.assistant);
        self.prompt.push_control(if thinks { self.markers.think } else { self.markers.end_think });
    }
}

fn instructions(protocol: &Protocol, prompt: &mut Prompt, body: &Instructions, offered: &[ToolSchema]) {
    prompt.push_text(body.text.as_str());
    if !body.tools.is_empty() || !offered.is_empty() {
        prompt.push_text(GAP);
        tools(protocol, prompt, &[offered, &body.tools]);
    }
    if let Some(schema) = &body.response_schema {
        prompt.push_text(GAP);
        prompt.push_text(wording::RESPONSE_FORMAT);
        prompt.push_text(&schema.to_python(NumberSpelling::Python));
    }
}

/// Prints how to call tools, and which there are.
pub(super) fn tools(protocol: &Protocol, prompt: &mut Prompt, lists: &[&[ToolSchema]]) {
    prompt.push_all(protocol.tools_head.pieces());
    for (place, tool) in lists.iter().copied().flatten().enumerate() {
        if place > 0 {
            prompt.push_text("\n");
        }
        prompt.push_text(&tool.json.to_python(NumberSpelling::Python));
    }
    prompt.push_text(wording::TOOLS_TAIL);
}

/// Whether a result is reminded of how to call tools depends on the prompt before its end only, so that it is every
/// time or never.
fn user_blocks(prompt: &mut Prompt, blocks: &[Block<'_>], reminder_after: Option<usize>) {
    for (place, block) in blocks.iter().enumerate() {
        if place > 0 {
            prompt.push_text(GAP);
        }
        match block {
            Block::Text(text) => prompt.push_text(text),
            Block::ToolResult { text, .. } => {
                prompt.push_text(TOOL_RESULT);
                prompt.push_text(&text.replace(TOOL_RESULT_END, TOOL_RESULT_END_TEXT));
                if reminder_after.is_some_and(|after| prompt.text_len() > after) {
                    prompt.push_text(wording::REMINDER);
                }
                prompt.push_text(TOOL_RESULT_END);
            }
        }
    }
}

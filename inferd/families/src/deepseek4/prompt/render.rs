//! Printing a conversation.

use super::markers::Markers;
use super::turns::{Block, Turn, Turns};
use super::wording::{self, GAP};
use super::{DeepSeek4Codec, PromptProfile, calls};
use ds4_model::{AssistantMessage, Conversation, Instructions, NumberSpelling, Piece, Prompt, Task, ThinkingMode};

const TOOL_RESULT: &str = "<tool_result>";
const TOOL_RESULT_END: &str = "</tool_result>";
/// A result that spells its own end has that end's first character replaced.
const TOOL_RESULT_END_TEXT: &str = "&lt;/tool_result>";

/// Renders a conversation that was checked: it has messages, and a prefill ends with an assistant message.
pub(super) fn render(codec: &DeepSeek4Codec, conversation: &Conversation) -> Prompt {
    let thinking = conversation.thinking == ThinkingMode::On;
    let mut printer = Printer {
        codec,
        markers: &codec.markers,
        thinking,
        conversation: Turns::of(conversation),
        prompt: Prompt::new(),
    };
    printer.prompt.push_control(codec.markers.begin_of_sentence);
    if thinking {
        printer.prompt.push_text(wording::effort(codec.profile, conversation.effort));
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
    codec: &'a DeepSeek4Codec,
    markers: &'a Markers,
    thinking: bool,
    conversation: Turns<'a>,
    prompt: Prompt,
}

impl Printer<'_> {
    fn turn(&mut self, place: usize, stays_open: bool) {
        let Printer { codec, prompt, .. } = self;
        match &self.conversation.turns[place] {
            Turn::System(body) => instructions(codec, prompt, body),
            Turn::Developer(body) => {
                prompt.push_control(self.markers.user);
                instructions(codec, prompt, body);
            }
            Turn::User { blocks, .. } => {
                prompt.push_control(self.markers.user);
                user_blocks(prompt, blocks);
            }
            Turn::LatestReminder(text) => {
                prompt.push_control(self.markers.latest_reminder);
                prompt.push_text(text);
            }
            Turn::Assistant(message) => {
                let message = *message;
                self.assistant(place, message, stays_open);
            }
        }
    }

    fn assistant(&mut self, place: usize, message: &AssistantMessage, stays_open: bool) {
        if self.shows_reasoning(place) {
            self.prompt.push_text(message.reasoning.as_str());
            self.prompt.push_control(self.markers.end_think);
        }
        self.prompt.push_text(message.content.as_str());
        if !message.tool_calls.is_empty() {
            calls::print(&mut self.prompt, self.markers, &message.tool_calls);
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
        if !matches!(next, None | Some(Turn::Assistant(_) | Turn::LatestReminder(_))) {
            return;
        }
        let turn = &turns.turns[place];
        let opens = turn.is_question()
            || (self.codec.profile == PromptProfile::Revised
                && matches!(turn, Turn::System(_))
                && matches!(next, None | Some(Turn::Assistant(_))));
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

fn instructions(codec: &DeepSeek4Codec, prompt: &mut Prompt, body: &Instructions) {
    prompt.push_text(body.text.as_str());
    if !body.tools.is_empty() {
        prompt.push_text(GAP);
        append(prompt, &codec.tools_head);
        for (place, tool) in body.tools.iter().enumerate() {
            if place > 0 {
                prompt.push_text("\n");
            }
            prompt.push_text(&tool.json.to_python(NumberSpelling::Python));
        }
        prompt.push_text(wording::TOOLS_TAIL);
    }
    if let Some(schema) = &body.response_schema {
        prompt.push_text(GAP);
        prompt.push_text(wording::RESPONSE_FORMAT);
        prompt.push_text(&schema.to_python(NumberSpelling::Python));
    }
}

fn user_blocks(prompt: &mut Prompt, blocks: &[Block<'_>]) {
    for (place, block) in blocks.iter().enumerate() {
        if place > 0 {
            prompt.push_text(GAP);
        }
        match block {
            Block::Text(text) => prompt.push_text(text),
            Block::ToolResult { text, .. } => {
                prompt.push_text(TOOL_RESULT);
                prompt.push_text(&text.replace(TOOL_RESULT_END, TOOL_RESULT_END_TEXT));
                prompt.push_text(TOOL_RESULT_END);
            }
        }
    }
}

fn append(prompt: &mut Prompt, pieces: &Prompt) {
    for piece in pieces.pieces() {
        match piece {
            Piece::Control(token) => prompt.push_control(*token),
            Piece::Text(text) => prompt.push_text(text.as_str()),
        }
    }
}

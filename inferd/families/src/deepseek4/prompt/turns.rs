//! From messages to the protocol's turns.
//!
//! The protocol has no tool messages: results and user text that follow each other are blocks of one user turn.

use ds4_model::{
    AnswerMemory, AssistantMessage, Conversation, Instructions, Message, PastReasoning, PromptText, Task, ThinkingMode,
};
use std::collections::HashMap;

/// One turn of a conversation.
pub(super) enum Turn<'a> {
    System(&'a Instructions),
    Developer(&'a Instructions),
    User { blocks: Vec<Block<'a>>, task: Option<Task> },
    Assistant { message: &'a AssistantMessage, reasoning: PromptText },
    LatestReminder(&'a str),
}

/// A part of a user turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Block<'a> {
    Text(&'a str),
    ToolResult { call_id: &'a str, text: &'a str },
}

impl Turn<'_> {
    /// The small task asked for in this turn.
    pub(super) fn task(&self) -> Option<Task> {
        match self {
            Turn::System(body) | Turn::Developer(body) => body.task,
            Turn::User { task, .. } => *task,
            Turn::Assistant { .. } | Turn::LatestReminder(_) => None,
        }
    }

    /// Whether the turn is something to answer.
    pub(super) fn is_question(&self) -> bool {
        matches!(self, Turn::User { .. } | Turn::Developer(_))
    }
}

/// The turns to render, with what decides how they are rendered.
pub(super) struct Turns<'a> {
    pub(super) turns: Vec<Turn<'a>>,
    /// The place of the last question.
    pub(super) last_question: Option<usize>,
    /// Answers before the last question are rendered without reasoning.
    pub(super) drop_reasoning: bool,
}

impl<'a> Turns<'a> {
    /// The turns of a conversation. Answers whose reasoning did not come back get what `memory` knows of it.
    pub(super) fn of(conversation: &'a Conversation, memory: &AnswerMemory) -> Turns<'a> {
        let restored = match conversation.thinking {
            ThinkingMode::On => memory.restore_reasoning(&conversation.messages),
            ThinkingMode::Off => Vec::new(),
        };
        let mut turns = merge(&conversation.messages, restored);
        order_results(&mut turns);
        let drop_reasoning = match conversation.past_reasoning {
            PastReasoning::Keep => false,
            PastReasoning::Never => true,
            PastReasoning::Drop => conversation.tools.schemas.is_empty() && !has_tools(&turns),
        };
        if drop_reasoning && conversation.thinking == ThinkingMode::On {
            drop_past_developers(&mut turns);
        }
        Turns { last_question: last_question(&turns), turns, drop_reasoning }
    }
}

fn last_question(turns: &[Turn<'_>]) -> Option<usize> {
    turns.iter().rposition(Turn::is_question)
}

fn has_tools(turns: &[Turn<'_>]) -> bool {
    turns.iter().any(|turn| match turn {
        Turn::System(body) | Turn::Developer(body) => !body.tools.is_empty(),
        _ => false,
    })
}

/// `restored` holds the reasoning of answers that came without, by their places; it may be shorter.
fn merge(messages: &[Message], restored: Vec<Option<PromptText>>) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::with_capacity(messages.len());
    let mut restored = restored.into_iter();
    for message in messages {
        let restored = restored.next().flatten();
        let turn = match message {
            Message::User(user) => {
                let text = Block::Text(user.text.as_str());
                // A turn with a task is complete: the next text is a new question.
                if let Some(Turn::User { blocks, task: None }) = turns.last_mut() {
                    blocks.push(text);
                    // The task of a later message is not asked for: the turn is the earlier message's.
                    continue;
                }
                Turn::User { blocks: vec![text], task: user.task }
            }
            Message::ToolResult(result) => {
                let block = Block::ToolResult { call_id: &result.call_id, text: result.text.as_str() };
                if let Some(Turn::User { blocks, .. }) = turns.last_mut() {
                    blocks.push(block);
                    continue;
                }
                Turn::User { blocks: vec![block], task: None }
            }
            Message::System(body) => Turn::System(body),
            Message::Developer(body) => Turn::Developer(body),
            Message::Assistant(message) => {
                Turn::Assistant { message, reasoning: restored.unwrap_or_else(|| message.reasoning.clone()) }
            }
            Message::LatestReminder(text) => Turn::LatestReminder(text.as_str()),
        };
        turns.push(turn);
    }
    turns
}

/// Brings the results of each turn into the order of the calls before it. Results without a known call go last, in the
/// order in which they came; text between results stays where it is.
fn order_results(turns: &mut [Turn<'_>]) {
    let mut place_of_call: HashMap<&str, usize> = HashMap::new();
    for turn in turns {
        match turn {
            Turn::Assistant { message, .. } if !message.tool_calls.is_empty() => {
                place_of_call = message.tool_calls.iter().enumerate().map(|(place, call)| (&*call.id, place)).collect();
            }
            Turn::User { blocks, .. } => {
                let is_result = |block: &Block<'_>| matches!(block, Block::ToolResult { .. });
                let mut results: Vec<Block<'_>> = blocks.iter().copied().filter(is_result).collect();
                results.sort_by_key(|block| match block {
                    Block::ToolResult { call_id, .. } => place_of_call.get(call_id).copied().unwrap_or(usize::MAX),
                    Block::Text(_) => usize::MAX,
                });
                let places = blocks.iter_mut().filter(|block| is_result(block));
                places.zip(results).for_each(|(place, result)| *place = result);
            }
            _ => {}
        }
    }
}

/// With past reasoning, developer messages before the last question go too.
fn drop_past_developers(turns: &mut Vec<Turn<'_>>) {
    let Some(last) = last_question(turns) else { return };
    let mut place = 0;
    turns.retain(|turn| {
        place += 1;
        place > last || !matches!(turn, Turn::Developer(_))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_model::{ToolArguments, ToolCall, ToolResult, UserMessage};

    fn user(text: &str) -> Message {
        Message::User(UserMessage { text: PromptText::new(text), task: None })
    }

    fn result(call_id: &str) -> Message {
        Message::ToolResult(ToolResult { call_id: call_id.into(), text: PromptText::new(call_id) })
    }

    fn calls(ids: &[&str]) -> Message {
        let call =
            |id: &&str| ToolCall { id: (*id).into(), name: "f".into(), arguments: ToolArguments::Members(Vec::new()) };
        Message::Assistant(AssistantMessage { tool_calls: ids.iter().map(call).collect(), ..Default::default() })
    }

    fn blocks(messages: Vec<Message>) -> Vec<String> {
        let conversation = Conversation { messages, ..Default::default() };
        let turns = Turns::of(&conversation, &AnswerMemory::default());
        let Some(Turn::User { blocks, .. }) = turns.turns.last() else { panic!("no user turn") };
        let name = |block: &Block<'_>| match block {
            Block::Text(text) => format!("text {text}"),
            Block::ToolResult { call_id, .. } => (*call_id).to_owned(),
        };
        blocks.iter().map(name).collect()
    }

    #[test]
    fn results_follow_the_order_of_their_calls_and_unknown_ones_go_last() {
        let messages = vec![calls(&["a", "b", "c"]), result("x"), result("c"), user("u"), result("a"), result("y")];
        assert_eq!(blocks(messages), ["a", "c", "text u", "x", "y"]);
    }

    #[test]
    fn results_before_any_call_stay_as_they_came() {
        assert_eq!(blocks(vec![result("b"), result("a")]), ["b", "a"]);
    }

    #[test]
    fn text_after_a_task_is_a_new_turn_but_a_result_joins() {
        let task = Message::User(UserMessage { text: PromptText::new("q"), task: Some(Task::Title) });
        let conversation = Conversation { messages: vec![task, result("r"), user("u")], ..Default::default() };
        let turns = Turns::of(&conversation, &AnswerMemory::default()).turns;
        assert_eq!(turns.len(), 2);
        assert_eq!(turns[0].task(), Some(Task::Title));
    }
}

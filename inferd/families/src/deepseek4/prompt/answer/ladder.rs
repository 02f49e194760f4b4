//! What becomes of a block of calls: shown, repaired, tried once more, or text after all.

use super::surface::{Calls, State, Surface};
use crate::deepseek4::prompt::dsml::{BlockCall, BlockEvent, BlockState, excerpt};
use ds4_model::{AnswerEvent, Ending, ToolFault, ToolOutcome};

impl Surface {
    /// After text of a block: is it over?
    pub(super) fn settle_block(&mut self, events: &mut Vec<AnswerEvent>) {
        let State::Calls(calls) = &self.state else { return };
        match calls.block.state() {
            BlockState::Open => {}
            BlockState::Closed => self.accept(events),
            BlockState::Broken(problem) => self.note(problem, events),
        }
    }

    /// The answer ended. Says whether the model should be asked once more.
    pub(super) fn settle_end(&mut self, ending: Ending, may_retry: bool, events: &mut Vec<AnswerEvent>) -> bool {
        if let State::Reasoning(Some(_)) = &self.state {
            self.settle_tentative(ending, events);
        }
        let State::Calls(calls) = &mut self.state else {
            if ending != Ending::StopString {
                self.flush(events);
            }
            return false;
        };
        if self.outcome.is_some() {
            return false;
        }
        let mut parts = Vec::new();
        if calls.block.state() == BlockState::Open {
            match ending {
                Ending::OutOfTokens => calls.block.close_cut_off(&mut parts),
                _ if !calls.shown && read_once_more(calls) => {}
                _ => calls.block.close(&mut parts),
            }
            if calls.block.state() == BlockState::Closed && calls.outcome == ToolOutcome::Ok {
                calls.outcome = ToolOutcome::Repaired;
            }
        }
        let closed = calls.block.state() == BlockState::Closed;
        self.show(parts, events);
        if closed {
            self.accept(events);
            return false;
        }
        self.give_up(may_retry && ending != Ending::OutOfTokens, events)
    }

    /// The block is sound: its calls are shown and nothing follows.
    fn accept(&mut self, events: &mut Vec<AnswerEvent>) {
        let State::Calls(calls) = &mut self.state else { return };
        let complete = calls.block.calls().to_vec();
        if complete.is_empty() {
            self.state = State::Complete;
            return;
        }
        let repaired = calls.block.is_repaired() && calls.outcome == ToolOutcome::Ok;
        self.outcome = Some(if repaired { ToolOutcome::Repaired } else { calls.outcome });
        if !calls.shown {
            show_whole(&complete, self.ledger.take(self.held_at), events);
        }
        self.show_end(events);
        self.shown_calls = complete;
        // The state stays, so that text that came with the end of the block is still known as part of it.
    }

    /// The block is broken, and there is more of the answer to come.
    fn note(&mut self, problem: &'static str, events: &mut Vec<AnswerEvent>) {
        let State::Calls(calls) = &self.state else { return };
        self.fault.get_or_insert_with(|| ToolFault { problem, excerpt: excerpt(&calls.raw) });
        // A second attempt, or calls that are complete: nothing more is needed. Otherwise the rest is text, too.
        let over = calls.shown || self.rules.retries || !calls.block.calls().is_empty();
        if !over {
            self.give_up(false, events);
        }
    }

    /// Whether no token should follow.
    pub(super) fn is_over(&self) -> bool {
        match &self.state {
            State::Complete => true,
            State::Calls(calls) => calls.block.state() != BlockState::Open,
            _ => false,
        }
    }

    /// Nothing repairs the block: complete calls count, otherwise it is tried once more or shown as text.
    fn give_up(&mut self, may_retry: bool, events: &mut Vec<AnswerEvent>) -> bool {
        let State::Calls(calls) = &mut self.state else { return false };
        if let BlockState::Broken(problem) = calls.block.state() {
            self.fault.get_or_insert_with(|| ToolFault { problem, excerpt: excerpt(&calls.raw) });
        }
        let complete = calls.block.calls().to_vec();
        if !complete.is_empty() {
            self.outcome = Some(ToolOutcome::Repaired);
            if !calls.shown {
                show_whole(&complete, self.ledger.take(self.held_at), events);
            }
            self.show_end(events);
            self.shown_calls = complete;
            self.state = State::Complete;
            return false;
        }
        self.outcome = Some(ToolOutcome::Failed);
        if calls.shown {
            // Part of a call was shown: markup beside it would only confuse.
            self.state = State::Complete;
            return false;
        }
        if may_retry && self.rules.retries {
            return true;
        }
        let raw = std::mem::take(&mut calls.raw);
        self.state = State::Plain;
        self.show_as_content(raw, events);
        false
    }

    /// Whether the reasoning so far ends with a complete block of calls to tools that exist.
    pub(super) fn reasons_to_a_call(&self) -> bool {
        let State::Reasoning(Some(tentative)) = &self.state else { return false };
        let tools = self.rules.calls.as_ref().map(|rules| &rules.tools);
        let known = |call: &BlockCall| tools.is_some_and(|tools| tools.has(&call.name));
        let calls = tentative.block.calls();
        tentative.block.state() == BlockState::Closed && !calls.is_empty() && calls.iter().all(known)
    }

    /// Reasoning that ends with a complete block: its end was forgotten, if the tools exist.
    fn settle_tentative(&mut self, ending: Ending, events: &mut Vec<AnswerEvent>) {
        if self.reasons_to_a_call() && matches!(ending, Ending::EndOfTurn { .. }) {
            self.adopt_tentative();
            self.accept(events);
        } else {
            self.state = State::Reasoning(None);
        }
    }
}

/// Reads a block that did not end once more, with every closing tag that was ever seen. Says whether it ends then.
fn read_once_more(calls: &mut Calls) -> bool {
    let mut block = calls.block.again_leniently();
    block.push(&calls.raw[calls.inside..], &mut Vec::new());
    let ends = block.state() == BlockState::Closed && !block.calls().is_empty();
    if ends {
        calls.block = block;
    }
    ends
}

/// Shows complete calls at once.
fn show_whole(calls: &[BlockCall], tokens: usize, events: &mut Vec<AnswerEvent>) {
    let mut tokens = tokens;
    for (call, index) in calls.iter().zip(0..) {
        let parts = [
            BlockEvent::Start { index, id: call.id, name: call.name.clone() },
            BlockEvent::Arguments { index, json: call.json.clone() },
            BlockEvent::End { index },
        ];
        for event in parts {
            events.push(AnswerEvent::Call { event, tokens: std::mem::take(&mut tokens) });
        }
    }
}

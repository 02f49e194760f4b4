//! From an answer's text to its channels and calls.

use super::ledger::Ledger;
use super::scan::{Found, Watch, scan};
use crate::deepseek4::prompt::dsml::{Block, BlockCall, BlockEvent, BlockRules, BlockState};
use ds4_model::{AnswerEvent, AnswerPosition, CallRelease, Channel, ToolFault, ToolOutcome};

/// What tags are made of.
pub(super) const MARKER: &str = "DSML｜";

/// How an answer's text is read.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// What calls may be; `None` when there are none to be made.
    pub(super) calls: Option<BlockRules>,
    pub(super) release: CallRelease,
    /// A malformed block may be tried once more.
    pub(super) retries: bool,
}

/// Where the answer stands.
#[derive(Debug)]
pub(super) enum State {
    /// Reasoning, perhaps with a block in it that may turn out to be meant.
    Reasoning(Option<Tentative>),
    Content,
    Calls(Calls),
    /// Everything is content, markup included.
    Plain,
    /// Nothing may follow.
    Complete,
}

/// A block inside reasoning. It counts only when the answer ends with it.
#[derive(Debug)]
pub(super) struct Tentative {
    pub(super) block: Block,
    pub(super) events: Vec<BlockEvent>,
    /// Where in the held text its opening tag and its inside begin, and how much of that text it was given.
    tag: usize,
    inside: usize,
    fed: usize,
}

/// The block of calls of the answer.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) block: Block,
    /// Everything from the white space before the block on.
    pub(super) raw: String,
    /// Where in the answer's text that begins.
    pub(super) start: usize,
    /// Where in `raw` the block's inside begins.
    pub(super) inside: usize,
    /// Something of it was shown.
    pub(super) shown: bool,
    /// It began after an opening that was forgotten, or inside reasoning.
    pub(super) outcome: ToolOutcome,
}

/// Reads one answer's text.
#[derive(Debug)]
pub(super) struct Surface {
    pub(super) rules: Rules,
    pub(super) state: State,
    pub(super) ledger: Ledger,
    /// Text that was not passed on yet.
    held: String,
    /// Where in the answer's text `held` begins; while calls are read, where the text ends.
    pub(super) held_at: usize,
    /// What was passed on.
    pub(super) reasoning: String,
    pub(super) content: String,
    /// What became of the block, once that is known.
    pub(super) outcome: Option<ToolOutcome>,
    pub(super) fault: Option<ToolFault>,
    /// The end of a call that was not shown yet.
    end_to_show: Option<BlockEvent>,
    /// The calls that were shown as complete.
    pub(super) shown_calls: Vec<BlockCall>,
}

impl Surface {
    pub(super) fn new(rules: Rules, state: State) -> Surface {
        Surface {
            rules,
            state,
            ledger: Ledger::default(),
            held: String::new(),
            held_at: 0,
            reasoning: String::new(),
            content: String::new(),
            outcome: None,
            fault: None,
            end_to_show: None,
            shown_calls: Vec::new(),
        }
    }

    pub(super) fn position(&self) -> AnswerPosition {
        match self.state {
            State::Reasoning(_) => AnswerPosition::Reasoning,
            State::Calls(_) => AnswerPosition::Calls,
            State::Content | State::Plain | State::Complete => AnswerPosition::Content,
        }
    }

    /// Whether no text of the answer proper has come yet.
    pub(super) fn is_at_start_of_content(&self) -> bool {
        matches!(self.state, State::Content) && self.content.is_empty() && self.held.is_empty()
    }

    /// Whether the end may find calls that cannot be read and were not shown.
    pub(super) fn may_need_another_attempt(&self) -> bool {
        let unread = matches!(&self.state, State::Calls(calls) if !calls.shown);
        self.rules.retries && unread && self.outcome.is_none()
    }

    /// Takes the next text.
    pub(super) fn push(&mut self, text: &str, events: &mut Vec<AnswerEvent>) {
        match &mut self.state {
            _ if text.is_empty() => {}
            State::Complete => {}
            State::Calls(calls) => {
                calls.raw.push_str(text);
                self.held_at += text.len();
                self.feed_block(text, events);
            }
            _ => {
                self.held.push_str(text);
                self.advance(events);
            }
        }
    }

    /// The reasoning ends here.
    pub(super) fn end_reasoning(&mut self, events: &mut Vec<AnswerEvent>) {
        self.release(self.held.len(), events);
        self.state = State::Content;
    }

    /// Passes on what is held, as text of the current channel.
    pub(super) fn flush(&mut self, events: &mut Vec<AnswerEvent>) {
        self.release(self.held.len(), events);
    }

    fn advance(&mut self, events: &mut Vec<AnswerEvent>) {
        // As long as something is found or given up there may be more behind it.
        while match &self.state {
            State::Reasoning(Some(_)) => self.feed_tentative(events),
            State::Reasoning(None) if self.rules.calls.is_some() => self.look_for_a_block(events),
            State::Content => self.look_for_a_block(events),
            State::Reasoning(None) | State::Plain => self.pass_all(events),
            State::Calls(_) | State::Complete => false,
        } {}
    }

    fn pass_all(&mut self, events: &mut Vec<AnswerEvent>) -> bool {
        self.release(self.held.len(), events);
        false
    }

    fn look_for_a_block(&mut self, events: &mut Vec<AnswerEvent>) -> bool {
        let reasoning = matches!(self.state, State::Reasoning(_));
        let armed = self.rules.calls.is_some();
        let watch = Watch {
            plain: armed && !reasoning,
            drops_orphans: armed && !reasoning,
            at_line_start: self.content.is_empty() || self.content.ends_with('\n'),
            bare_calls: armed && !reasoning && !self.content.contains(MARKER),
        };
        match scan(&self.held, watch) {
            Found::Nothing { hold_from } => {
                // Whole tokens are passed on, so that their ids say exactly this text.
                let end = self.ledger.floor(self.held_at, self.held_at + hold_from) - self.held_at;
                self.release(end, events);
                false
            }
            Found::Orphan { start, end } => {
                self.release(start, events);
                self.drop_held(end - start);
                true
            }
            Found::Opening { space, tag, inside } => {
                self.release(space, events);
                self.open(tag - space, inside - space, events);
                true
            }
        }
    }

    /// A block opens; `held` begins with the white space before it.
    fn open(&mut self, tag: usize, inside: usize, events: &mut Vec<AnswerEvent>) {
        let Some(rules) = self.rules.calls.clone() else {
            // Without tools there is nothing to call, and markup is not shown.
            self.drop_held(self.held.len());
            self.state = State::Complete;
            return;
        };
        let block = Block::new(rules);
        if matches!(self.state, State::Reasoning(_)) {
            self.state = State::Reasoning(Some(Tentative { block, events: Vec::new(), tag, inside, fed: inside }));
            return;
        }
        let outcome = if tag == inside { ToolOutcome::Repaired } else { ToolOutcome::Ok };
        self.enter(block, inside, outcome);
        let State::Calls(calls) = &self.state else { return };
        let text = calls.raw[inside..].to_owned();
        self.feed_block(&text, events);
    }

    /// What is held is a block.
    fn enter(&mut self, block: Block, inside: usize, outcome: ToolOutcome) {
        let raw = std::mem::take(&mut self.held);
        let start = self.held_at;
        self.held_at += raw.len();
        self.state = State::Calls(Calls { block, raw, start, inside, shown: false, outcome });
    }

    /// Says whether the block was given up.
    fn feed_tentative(&mut self, events: &mut Vec<AnswerEvent>) -> bool {
        let State::Reasoning(Some(tentative)) = &mut self.state else { return false };
        tentative.block.push(&self.held[tentative.fed..], &mut tentative.events);
        tentative.fed = self.held.len();
        let meant = match tentative.block.state() {
            BlockState::Open => true,
            BlockState::Closed => tentative.block.rest().trim().is_empty(),
            BlockState::Broken(_) => false,
        };
        if !meant {
            // A quotation: it is reasoning, and what follows its opening is looked at afresh.
            let after = tentative.tag + 1;
            self.state = State::Reasoning(None);
            self.release(after, events);
        }
        !meant
    }

    /// The block that the reasoning ends with is meant.
    pub(super) fn adopt_tentative(&mut self) {
        if let State::Reasoning(tentative) = &mut self.state
            && let Some(tentative) = tentative.take()
        {
            self.enter(tentative.block, tentative.inside, ToolOutcome::ImpliedClose);
        }
    }

    fn feed_block(&mut self, text: &str, events: &mut Vec<AnswerEvent>) {
        let State::Calls(calls) = &mut self.state else { return };
        let mut parts = Vec::new();
        calls.block.push(text, &mut parts);
        self.show(parts, events);
        self.settle_block(events);
    }

    /// Shows parts of calls, if they are shown as they come.
    pub(super) fn show(&mut self, parts: Vec<BlockEvent>, events: &mut Vec<AnswerEvent>) {
        let State::Calls(calls) = &mut self.state else { return };
        if self.rules.release == CallRelease::Whole || parts.is_empty() {
            return;
        }
        calls.shown = true;
        for event in parts {
            self.show_end(events);
            match event {
                BlockEvent::End { .. } => self.end_to_show = Some(event),
                event => events.push(AnswerEvent::Call { event, tokens: self.ledger.take(self.held_at) }),
            }
        }
    }

    /// Shows the end of a call that waits for what follows it: the last one accounts for the end of the block.
    pub(super) fn show_end(&mut self, events: &mut Vec<AnswerEvent>) {
        if let Some(event) = self.end_to_show.take() {
            events.push(AnswerEvent::Call { event, tokens: self.ledger.take(self.held_at) });
        }
    }

    /// Passes on the first `len` bytes held.
    fn release(&mut self, len: usize, events: &mut Vec<AnswerEvent>) {
        if len > 0 {
            let text = self.held[..len].to_owned();
            self.drop_held(len);
            let tokens = self.ledger.take(self.held_at);
            let reasoning = matches!(self.state, State::Reasoning(_));
            let (channel, passed) = if reasoning {
                (Channel::Reasoning, &mut self.reasoning)
            } else {
                (Channel::Content, &mut self.content)
            };
            passed.push_str(&text);
            events.push(AnswerEvent::Text { channel, text, tokens });
        }
    }

    /// Shows text that was part of a block as content.
    pub(super) fn show_as_content(&mut self, raw: String, events: &mut Vec<AnswerEvent>) {
        if !raw.is_empty() {
            self.content.push_str(&raw);
            let tokens = self.ledger.take(self.held_at);
            events.push(AnswerEvent::Text { channel: Channel::Content, text: raw, tokens });
        }
    }

    fn drop_held(&mut self, len: usize) {
        self.held.drain(..len);
        self.held_at += len;
    }
}

//! Reading an answer: which text is reasoning and which is content.

use super::markers::Markers;
use ds4_model::{
    AnswerEnd, AnswerEvent, AnswerPosition, AnswerReader, AnswerSummary, Channel, Ending, Tokenizer, Utf8Stream,
};
use ds4_units::TokenId;
use std::sync::Arc;

/// Reads one answer. Only the control token `</think>` ends reasoning; its spelling in ordinary tokens is a quotation.
pub(super) struct Reader {
    tokenizer: Arc<Tokenizer>,
    markers: Markers,
    channel: Channel,
    text: Utf8Stream,
    /// Nothing but a marker has come yet in this channel.
    at_start: bool,
    /// Tokens that no event has accounted for.
    unseen: usize,
}

impl Reader {
    pub(super) fn new(tokenizer: Arc<Tokenizer>, markers: Markers, channel: Channel) -> Reader {
        Reader { tokenizer, markers, channel, text: Utf8Stream::default(), at_start: true, unseen: 0 }
    }

    fn emit(&mut self, text: String, events: &mut Vec<AnswerEvent>) {
        if !text.is_empty() {
            let tokens = std::mem::take(&mut self.unseen);
            events.push(AnswerEvent::Text { channel: self.channel, text, tokens });
        }
    }

    /// A thinking marker that switches nothing: one that says again what the prompt said is dropped, any other is text.
    fn is_repeated(&self, token: TokenId) -> bool {
        self.at_start
            && match self.channel {
                Channel::Reasoning => token == self.markers.think,
                Channel::Content => token == self.markers.end_think,
            }
    }

    fn is_text(&self, token: TokenId) -> bool {
        let spelled_out = [self.markers.dsml, self.markers.think, self.markers.end_think];
        !self.tokenizer.is_control(token) || spelled_out.contains(&token)
    }
}

impl AnswerReader for Reader {
    fn push(&mut self, token: TokenId, events: &mut Vec<AnswerEvent>) {
        let repeated = self.is_repeated(token);
        let ends_reasoning = token == self.markers.end_think && self.channel == Channel::Reasoning;
        self.at_start = false;
        if self.tokenizer.is_control(token) {
            let text = self.text.finish();
            self.emit(text, events);
        }
        self.unseen += 1;
        if ends_reasoning {
            self.channel = Channel::Content;
        } else if !repeated && self.is_text(token) {
            let text = self.text.push(self.tokenizer.token_bytes(token).unwrap_or_default());
            self.emit(text, events);
        }
    }

    fn position(&self) -> AnswerPosition {
        match self.channel {
            Channel::Reasoning => AnswerPosition::Reasoning,
            Channel::Content => AnswerPosition::Content,
        }
    }

    fn finish(&mut self, _ending: Ending, events: &mut Vec<AnswerEvent>) -> AnswerEnd {
        let text = self.text.finish();
        self.emit(text, events);
        AnswerEnd::Done(AnswerSummary { reasoning_open: self.channel == Channel::Reasoning, ..Default::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deepseek4::prompt::tests::tokenizer;
    use ds4_units::Tokens;

    /// Reads tokens of text in which control tokens are spelled out.
    fn read(channel: Channel, text: &str) -> (String, String, bool) {
        let tokenizer = tokenizer();
        let tokens = tokenizer.encode(&tokenizer.parse_trusted(text));
        read_tokens(channel, &tokens)
    }

    fn read_tokens(channel: Channel, tokens: &[TokenId]) -> (String, String, bool) {
        let tokenizer = tokenizer();
        let markers = Markers::find(&tokenizer).expect("all markers");
        let mut reader = Reader::new(tokenizer, markers, channel);
        let mut events = Vec::new();
        tokens.iter().for_each(|&token| reader.push(token, &mut events));
        let AnswerEnd::Done(end) = reader.finish(Ending::EndOfTurn { room: Tokens(0) }, &mut events) else {
            panic!("asked once more")
        };
        let mut texts = (String::new(), String::new());
        for event in events {
            match event {
                AnswerEvent::Text { text, .. } if text.is_empty() => panic!("an empty event"),
                AnswerEvent::Text { channel: Channel::Reasoning, text, .. } => texts.0 += &text,
                AnswerEvent::Text { channel: Channel::Content, text, .. } => texts.1 += &text,
                _ => panic!("only text"),
            }
        }
        (texts.0, texts.1, end.reasoning_open)
    }

    fn parts(reasoning: &str, content: &str, reasoning_open: bool) -> (String, String, bool) {
        (reasoning.to_owned(), content.to_owned(), reasoning_open)
    }

    #[test]
    fn reasoning_ends_at_the_control_token() {
        assert_eq!(
            read(Channel::Reasoning, "easy: 日本</think>\n\nIt is 4."),
            parts("easy: 日本", "\n\nIt is 4.", false)
        );
        assert_eq!(read(Channel::Reasoning, "</think>4"), parts("", "4", false));
        assert_eq!(read(Channel::Content, "4"), parts("", "4", false));
    }

    #[test]
    fn an_answer_that_never_leaves_reasoning_says_so() {
        assert_eq!(read(Channel::Reasoning, "hm"), parts("hm", "", true));
        assert_eq!(read(Channel::Reasoning, ""), parts("", "", true));
    }

    #[test]
    fn a_marker_the_prompt_already_gave_is_dropped_and_any_other_is_text() {
        assert_eq!(read(Channel::Reasoning, "<think>hm</think>4"), parts("hm", "4", false));
        assert_eq!(read(Channel::Content, "</think>4"), parts("", "4", false));
        assert_eq!(read(Channel::Content, "use </think> and <think>"), parts("", "use </think> and <think>", false));
        assert_eq!(read(Channel::Reasoning, "a<think>b</think></think>c"), parts("a<think>b", "</think>c", false));
    }

    #[test]
    fn the_spelling_of_the_end_in_ordinary_tokens_is_a_quotation() {
        let tokenizer = tokenizer();
        let mut tokens = Vec::new();
        tokenizer.encode_text("write </think> here", &mut tokens);
        assert_eq!(read_tokens(Channel::Reasoning, &tokens), parts("write </think> here", "", true));
    }

    #[test]
    fn tool_markup_is_text_and_other_control_tokens_are_nothing() {
        let answer = "ok\n\n<｜DSML｜tool_calls>\n<｜User｜>x<｜end▁of▁sentence｜>";
        assert_eq!(read(Channel::Content, answer), parts("", "ok\n\n<｜DSML｜tool_calls>\nx", false));
    }

    #[test]
    fn a_character_cut_off_by_a_marker_belongs_to_the_channel_before_it() {
        let tokenizer = tokenizer();
        let byte = |spelling| tokenizer.token(spelling).expect("a byte token");
        let end_think = tokenizer.control("</think>").expect("the marker");
        let tokens = [byte("ð"), byte("Ł"), end_think, byte("Ã"), byte("©"), byte("ð")];
        assert_eq!(read_tokens(Channel::Reasoning, &tokens), parts("\u{FFFD}", "é\u{FFFD}", false));
    }

    #[test]
    fn ids_outside_the_vocabulary_are_nothing() {
        assert_eq!(read_tokens(Channel::Content, &[TokenId(u32::MAX)]), parts("", "", false));
    }
}

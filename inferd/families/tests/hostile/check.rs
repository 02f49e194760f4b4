//! What holds for an answer of any bytes. The fuzz target and an ordinary test share it.

#[allow(dead_code, unreachable_pub)]
#[path = "../../../engine/tests/support/vocabulary.rs"]
mod vocabulary;

use ds4_families::deepseek4::{DeepSeek4Codec, PromptProfile};
use ds4_model::{
    AnswerEnd, AnswerEvent, AnswerReader, CallEvent, CallRelease, Conversation, Ending, JsonText, Message, NextToken,
    PromptCodec, PromptText, ThinkingMode, Tokenizer, ToolSchema, ToolUse, UserMessage,
};
use ds4_units::{TokenId, Tokens};
use std::sync::{Arc, OnceLock};

struct Side {
    tokenizer: Arc<Tokenizer>,
    codec: DeepSeek4Codec,
}

fn side() -> &'static Side {
    static SIDE: OnceLock<Side> = OnceLock::new();
    SIDE.get_or_init(|| {
        let tokenizer = Arc::new(vocabulary::tokenizer());
        let codec = DeepSeek4Codec::new(tokenizer.clone(), PromptProfile::Release).expect("all markers");
        Side { tokenizer, codec }
    })
}

/// Reads an answer whose first byte says how, and whose rest is what the model wrote.
pub(crate) fn check(input: &[u8]) {
    let Some((&how, answer)) = input.split_first() else { return };
    let schema =
        r#"{"name": "bash", "parameters": {"properties": {"command": {"type": "string"}, "n": {"type": "integer"}}}}"#;
    let conversation = Conversation {
        messages: vec![Message::User(UserMessage { text: PromptText::new("q"), task: None })],
        thinking: if how & 1 == 0 { ThinkingMode::Off } else { ThinkingMode::On },
        tools: ToolUse {
            schemas: if how & 2 == 0 {
                vec![ToolSchema { json: JsonText::parse(schema).expect("JSON") }]
            } else {
                Vec::new()
            },
            release: if how & 4 == 0 { CallRelease::Live } else { CallRelease::Whole },
            parallel: how & 8 == 0,
            ..ToolUse::default()
        },
        ..Conversation::default()
    };
    let Side { tokenizer, codec } = side();
    let memory = Arc::default();
    let prompt = codec.render(&conversation, &memory).expect("renders");
    let mut reader = codec.read_answer(&prompt, &conversation, &memory);
    let tokens = if how & 16 == 0 {
        answer.iter().map(|&byte| TokenId(u32::from(byte))).collect()
    } else {
        tokenizer.encode(&tokenizer.parse_trusted(&String::from_utf8_lossy(answer)))
    };
    let ending = if how & 32 == 0 { Ending::EndOfTurn { room: Tokens(100_000) } } else { Ending::OutOfTokens };
    read(reader.as_mut(), &tokens, ending);
}

fn read(reader: &mut dyn AnswerReader, tokens: &[TokenId], ending: Ending) {
    let mut events = Vec::new();
    for attempt in 0..2 {
        for &token in tokens {
            if reader.next() == NextToken::Complete {
                break;
            }
            reader.push(token, &mut events);
        }
        match reader.finish(ending, &mut events) {
            AnswerEnd::Done(summary) => return check_events(&events, summary.calls as usize),
            AnswerEnd::Again(_) => assert_eq!(attempt, 0, "asked a third time"),
        }
        assert!(events.iter().all(|event| matches!(event, AnswerEvent::Text { .. })), "a call before another attempt");
    }
    panic!("a second attempt was not the last");
}

/// Text before calls, calls one after the other, arguments that are objects once they are complete.
fn check_events(events: &[AnswerEvent], complete: usize) {
    let mut arguments: Vec<(String, bool)> = Vec::new();
    for event in events {
        match event {
            AnswerEvent::Text { text, .. } => assert!(!text.is_empty() && arguments.is_empty()),
            AnswerEvent::Call { event: CallEvent::Start { index, .. }, .. } => {
                assert_eq!(*index as usize, arguments.len());
                assert!(arguments.iter().all(|(_, ended)| *ended));
                arguments.push((String::new(), false));
            }
            AnswerEvent::Call { event: CallEvent::Arguments { index, json }, .. } => {
                assert_eq!(*index as usize + 1, arguments.len());
                arguments[*index as usize].0.push_str(json);
            }
            AnswerEvent::Call { event: CallEvent::End { index }, .. } => arguments[*index as usize].1 = true,
        }
    }
    assert_eq!(arguments.iter().filter(|(_, ended)| *ended).count(), complete);
    for (json, _) in arguments.iter().filter(|(_, ended)| *ended) {
        assert!(JsonText::parse(json).expect("JSON").members().is_some());
    }
}

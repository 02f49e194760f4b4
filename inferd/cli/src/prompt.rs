//! From the flags to a prompt.

use crate::config::{Args, EffortArg};
use crate::error::CliError;
use ds4_model::{
    AnswerMemory, AnswerReader, Conversation, Instructions, Message, Prompt, PromptCodec, PromptText, ThinkingMode,
    UserMessage,
};
use std::io::Read;
use std::sync::Arc;

/// The question's text.
pub(crate) fn question(args: &Args) -> Result<PromptText, CliError> {
    if args.prompt() != "-" {
        return Ok(PromptText::new(args.prompt()));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(CliError::Question)?;
    Ok(PromptText::new(text))
}

/// A prompt and what reads its answer.
pub(crate) struct Asked {
    pub(crate) prompt: Prompt,
    pub(crate) reader: Box<dyn AnswerReader>,
}

/// The question in the model's protocol, or as it is.
pub(crate) fn render(args: &Args, question: &PromptText, codec: &dyn PromptCodec) -> Result<Asked, CliError> {
    if args.raw {
        return Ok(Asked { prompt: codec.render_raw(question.as_str()), reader: codec.read_raw() });
    }
    let system = args
        .system
        .as_ref()
        .map(|text| Message::System(Instructions { text: PromptText::new(text.clone()), ..Instructions::default() }));
    let user = Message::User(UserMessage { text: question.clone(), task: None });
    let conversation = Conversation {
        messages: system.into_iter().chain([user]).collect(),
        thinking: if args.no_think { ThinkingMode::Off } else { ThinkingMode::On },
        effort: args.reasoning_effort.map(EffortArg::level),
        ..Conversation::default()
    };
    // One question has no earlier answers to remember.
    let memory = Arc::new(AnswerMemory::new(0, 0));
    let prompt = codec.render(&conversation, &memory)?;
    Ok(Asked { reader: codec.read_answer(&prompt, &conversation, &memory), prompt })
}

//! From the flags to a prompt.

use crate::config::{Args, EffortArg};
use crate::error::CliError;
use ds4_model::{
    Conversation, Instructions, Message, PastReasoning, Prompt, PromptCodec, PromptText, ThinkingMode, UserMessage,
};
use std::io::Read;

/// The question's text.
pub(crate) fn question(args: &Args) -> Result<PromptText, CliError> {
    if args.prompt != "-" {
        return Ok(PromptText::new(args.prompt.clone()));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(CliError::Question)?;
    Ok(PromptText::new(text))
}

/// The question in the model's protocol, or as it is.
pub(crate) fn render(args: &Args, question: &PromptText, codec: &dyn PromptCodec) -> Result<Prompt, CliError> {
    if args.raw {
        return Ok(codec.render_raw(question.as_str()));
    }
    let system = args
        .system
        .as_ref()
        .map(|text| Message::System(Instructions { text: PromptText::new(text.clone()), ..Instructions::default() }));
    let user = Message::User(UserMessage { text: question.clone(), task: None });
    Ok(codec.render(&Conversation {
        messages: system.into_iter().chain([user]).collect(),
        thinking: if args.no_think { ThinkingMode::Off } else { ThinkingMode::On },
        effort: args.reasoning_effort.map(EffortArg::level),
        past_reasoning: PastReasoning::default(),
        prefill: false,
    })?)
}

//! One request, from the engine to the screen.

use crate::config::Args;
use crate::dump::LogprobFile;
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::prompt;
use crate::screen::Screen;
use ds4_engine::{
    Account, Engine, EngineOptions, Event, EventStream, Finished, GenerateRequest, Keep, RequestFault,
    SpeculationOptions,
};
use ds4_host::Exit;
use ds4_model::{LoadedModel, PromptRecord, PromptText, Tokenizer};
use ds4_units::Tokens;
use std::sync::mpsc::{self, Receiver};

/// Asks and prints. Blocks until the answer is complete or interrupted.
pub(crate) fn answer(
    args: &Args,
    question: &PromptText,
    loaded: LoadedModel,
    interrupt: &Interrupt,
) -> Result<Exit, CliError> {
    let (tokenizer, codec) = (loaded.tokenizer.clone(), loaded.codec.clone());
    let asked = prompt::render(args, question, codec.as_ref())?;
    let (prompt, reader) = (asked.prompt, asked.reader);
    let record = PromptRecord::new(&prompt, &tokenizer);
    let mut dump = match &args.dump_logprobs {
        Some(path) => Some(LogprobFile::create(path, record.tokens())?),
        None => None,
    };
    let draft = &args.model.draft;
    let speculation = Some(SpeculationOptions { ahead: draft.ahead(), margin: draft.mtp_margin });
    let options = EngineOptions { banks: 1, speculation, ..EngineOptions::default() };
    let engine = Engine::start(loaded, options, Account::unlimited());
    let engine = engine.map_err(CliError::Thread)?;
    let events = engine.handle().submit(GenerateRequest {
        reader,
        prompt: record,
        sampling: args.answer.sampling(),
        stop: args.answer.stop.clone(),
        max_tokens: Tokens(args.answer.tokens.unwrap_or(u32::MAX)),
        constraints: Vec::new(),
        top_logprobs: dump.is_some().then_some(args.logprobs_top_k),
        prompt_logprobs: false,
        gaps: None,
        keep: Keep::Turn,
    })?;
    let mut screen = Screen::new();
    let finished = follow(&collect(events)?, &mut screen, dump.as_mut(), &tokenizer, interrupt)?;
    screen.finish(finished.as_ref())?;
    if let Some(dump) = dump {
        dump.write()?;
    }
    // Its end is the process's end; a panic was heard as an event.
    let _ = engine.stop();
    Ok(if finished.is_some() { Exit::Ok } else { Exit::Interrupted })
}

/// Takes events as fast as they come, so that a paused terminal or a full pipe never makes the engine drop the request.
/// What waits here is at most one answer.
fn collect(mut events: EventStream) -> Result<Receiver<Event>, CliError> {
    let (sender, receiver) = mpsc::channel();
    let forward = move || {
        while let Some(event) = events.blocking_next() {
            // Nobody listens any more: dropping the stream cancels the request.
            if sender.send(event).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("answer".into()).spawn(forward).map_err(CliError::Thread)?;
    Ok(receiver)
}

/// Prints events until the end; `None` when interrupted. Every step of the engine brings an event, so an interrupt is
/// noticed within one step.
fn follow(
    events: &Receiver<Event>,
    screen: &mut Screen,
    mut dump: Option<&mut LogprobFile>,
    tokenizer: &Tokenizer,
    interrupt: &Interrupt,
) -> Result<Option<Finished>, CliError> {
    for event in events {
        match event {
            // A question offers no tools, so there are no calls.
            Event::Started(_) | Event::PromptLogprobs(_) | Event::Call(_) | Event::Retrying => {}
            Event::Prefill { done, total } => screen.prefill(done.0, total.0),
            Event::Logprobs(position) => {
                if let Some(dump) = dump.as_deref_mut() {
                    dump.push(&position, tokenizer);
                }
            }
            Event::Delta(delta) => screen.text(delta.channel, &delta.text)?,
            Event::Finished(finished) => return Ok(Some(finished)),
            Event::Failed(fault) => return Err(fault.into()),
        }
        if interrupt.is_requested() {
            return Ok(None);
        }
    }
    Err(RequestFault::EngineStopped.into())
}

//! `scripted-server`: our HTTP side and engine, with the demo model's tokenizer and prompt protocol, over a model that
//! follows a script. For clients whose tests need a model that can act.

mod model;
mod script;

use anyhow::{Context, Result};
use clap::Parser;
use ds4_api::{Api, Machine, Serving, Settings, serve};
use ds4_boot::{ModelArgs, ModelFile};
use ds4_engine::{Account, Engine, EngineOptions};
use ds4_host::init_logging;
use ds4_model::LoadedModel;
use ds4_units::Tokens;
use model::ScriptedModel;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::TcpListener;

/// Longer than any prompt of an agent.
const CONTEXT: Tokens = Tokens(1 << 20);

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Port to listen on; 0 takes a free one and logs it
    #[arg(long, default_value_t = 0)]
    port: u16,

    /// How long each step takes
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    step_ms: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    init_logging(None)?;
    let mut args = Args::parse();
    let demo = ds4_tests::demo_model();
    let path = args.model.model.get_or_insert(demo).clone();
    let file = ModelFile::open(&args.model, &AtomicBool::new(false))?;
    let (tokenizer, codec) = file.prompt_side(&args.model)?;
    let control = |spelling| tokenizer.control(spelling).with_context(|| path.display().to_string());
    let mut model = ScriptedModel::new(tokenizer.clone(), CONTEXT, script::answer);
    model.assistant = control("<｜Assistant｜>")?;
    model.end = control("<｜end▁of▁sentence｜>")?;
    model.step = Duration::from_millis(args.step_ms);
    let loaded = LoadedModel { model: Box::new(model), tokenizer: tokenizer.clone(), codec: codec.clone() };
    let engine = Engine::start(loaded, EngineOptions::default(), Account::unlimited())?;
    let api = Api::new(Settings::default(), None);
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await?;
    tracing::info!("listening on http://{}", listener.local_addr()?);
    api.ready(Serving {
        model_id: "scripted".into(),
        engine: engine.handle(),
        tokenizer,
        codec,
        machine: Machine::default(),
    });
    serve(listener, api.router(), std::future::pending()).await;
    Ok(())
}

//! What a worker would be and promise here, for `--print-plan` and `--check-config`.

use crate::config::Config;
use ds4_boot::{Asked, BootError, ComputeDevice, Ledger, ModelFile, default_floor, observer};
use ds4_governor::{BankPlan, Floors, Observation, plan_banks};
use ds4_host::Exit;
use ds4_units::Bytes;
use std::sync::atomic::AtomicBool;

type Failure = (Exit, String);

/// Memory and what is promised of it.
struct Promise {
    observation: Observation,
    floor: Bytes,
    to_load: Bytes,
    /// What steps take; unknown before weights are where they are computed with.
    steps: Option<(usize, Bytes, Bytes)>,
    banks: BankPlan,
    /// Whether the weights are in memory or could be loaded now.
    weights: Result<(), BootError>,
}

/// Opens the model file, reads its header and says what it is, what conversations would cost and how many fit; then
/// whether what was asked for can be had on this machine now. An owner's weights are attached to for that and bound as
/// a worker would, so that what it would take for itself is known to the byte; a file's are not loaded, but whether there
/// is room for them is looked at.
pub(crate) fn check(config: &Config) -> Result<(Vec<String>, Result<(), Failure>), Failure> {
    let failed = |error: BootError| (error.exit(), error.to_string());
    let never = AtomicBool::new(false);
    let file = ModelFile::open(&config.model, &never).map_err(failed)?;
    let context = file.context(config.model.ctx).map_err(failed)?;
    let (_, codec) = file.prompt_side(&config.model).map_err(failed)?;
    let promise = promise(config, &file, &never).map_err(failed)?;
    let id = config.model_id.clone().unwrap_or_else(|| file.default_id());
    let mut lines = vec![
        line("file", &file.path().display().to_string(), "model"),
        line("shape", file.shape(), "model"),
        line("id", &id, if config.model_id.is_some() { "flag" } else { "model" }),
        line("prompt wording", codec.renderer_version(), "model"),
        line("context", &context.0.to_string(), if config.model.ctx.is_some() { "flag" } else { "model" }),
    ];
    lines.extend(promise.lines());
    let fits = promise.banks.check().map_err(|error| (Exit::Usage, error.to_string()));
    Ok((lines, promise.weights.map_err(failed).and(fits)))
}

fn promise(config: &Config, file: &ModelFile, cancel: &AtomicBool) -> Result<Promise, BootError> {
    let floor = |device: &ComputeDevice| config.memory_floor.unwrap_or(default_floor(device));
    let (rows, banks) = (config.engine.prefill_rows, config.max_seqs.asked());
    if config.model.manifest().is_none() {
        let prospect = file.prospect(&config.model, cancel)?;
        let (floor, observation) = (floor(&prospect.device), observer(&prospect.device)());
        let floors = Floors { floor, substrate_outstanding: prospect.to_load };
        let context = file.context(config.model.ctx)?;
        let banks = plan_banks(&observation, &floors, context, &prospect.price, banks);
        let weights = file.preflight(&prospect.device);
        return Ok(Promise { observation, floor, to_load: prospect.to_load, steps: None, banks, weights });
    }
    let worker = format!("ds4-server-plan-{}", std::process::id());
    let attach = ds4_boot::ModelArgs { weights_fallback: None, ..config.model.clone() };
    let mut booted = file.load(&attach, &worker, cancel)?;
    let (floor, observation) = (floor(&booted.device), observer(&booted.device)());
    let ledger = Ledger::plan(booted.loaded.model.as_mut(), &observation, &Asked { floor, rows, banks })?;
    let steps = Some((ledger.step.rows, ledger.activations, ledger.recordings));
    Ok(Promise { observation, floor, to_load: Bytes::ZERO, steps, banks: ledger.banks, weights: Ok(()) })
}

impl Promise {
    fn lines(&self) -> Vec<String> {
        let plan = &self.banks;
        let mut lines = vec![
            line("memory free", &self.observation.free.to_string(), self.observation.source.name()),
            line("memory floor", &self.floor.to_string(), "never promised"),
            line("weights to load", &self.to_load.to_string(), "model"),
        ];
        match self.steps {
            Some((rows, activations, recordings)) => {
                lines.push(line("for steps", &activations.to_string(), &format!("of {rows} prompt tokens")));
                if recordings > Bytes::ZERO {
                    lines.push(line("for recordings of steps", &recordings.to_string(), "at most"));
                }
            }
            None => lines.push(line("for steps", "not known", "known where an owner holds the weights: --weights")),
        }
        // Where steps are not known, what they take is still to come off.
        let (at_most, left) = if self.steps.is_some() {
            ("", "what is left")
        } else {
            ("at most ", "what is left for these and for steps")
        };
        lines.push(line("for conversations", &format!("{at_most}{}", plan.budget), left));
        lines.push(line("banks", &plan.banks.to_string(), if plan.asked { "flag" } else { "plan" }));
        for length in &plan.lengths {
            let name = format!("{} tokens", length.tokens.0);
            lines.push(line(&name, &format!("{at_most}{} fit", length.fit), &format!("{} each", length.price)));
        }
        lines.push(line("one more at full length", &plan.next_needs.to_string(), "more would be needed"));
        lines
    }
}

fn line(name: &str, value: &str, origin: &str) -> String {
    format!("{name:<26} {value:<24} {origin}")
}

//! What serving would do, shown without doing it.

use crate::backend::destination;
use crate::command::PlanConfig;
use crate::error::OwnerError;
use crate::loading::{Prepared, prepare};
use ds4_host::printable;
use ds4_resident::{Plan, Preflight};
use serde_json::json;
use std::io::{self, Write};
use tracing::warn;

/// Prints plan, memory table and, as JSON, every setting; ends like serving would if the memory does not suffice.
pub(crate) fn show_plan(config: &PlanConfig) -> Result<(), OwnerError> {
    let prepared = prepare(&config.load, destination(&config.load.backend)?)?;
    let tables = prepared.check_memory(&config.load)?;
    let Prepared { models, plan, .. } = &prepared;
    let text = if config.json {
        let object = json!({ "plan": plan, "preflight": tables, "settings": config.settings });
        format!("{object}\n")
    } else {
        let names = models.iter().map(|(role, model)| {
            let shards = model.shards().iter().map(|shard| printable(&shard.path().to_string_lossy()).into_owned());
            format!("{role:<16} {}\n", shards.collect::<Vec<_>>().join(", "))
        });
        let tables: Vec<String> = tables.iter().map(|table| format!("{table}\n")).collect();
        format!("{}{}\n{}", names.collect::<String>(), summary(plan), tables.join("\n"))
    };
    print(&text)?;
    tables.iter().try_for_each(|table| warn_or_refuse(table, config.load.preflight))
}

/// Refuses when the memory does not suffice, unless the operator has chosen to go on.
pub(crate) fn warn_or_refuse(table: &Preflight, refuse: bool) -> Result<(), OwnerError> {
    match table.check() {
        Err(refused) if refuse => Err(refused.into()),
        Err(refused) => {
            warn!("going on because of --no-preflight: {refused}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn summary(plan: &Plan) -> String {
    let totals = &plan.totals;
    let mut text = format!(
        "{:<16} {} in {} ranges of up to about {}, {} tensors\n",
        "plan", totals.allocated, totals.ranges, plan.span, totals.tensors
    );
    for range in &plan.ranges {
        let tensors = plan.models.iter().flat_map(|model| &model.tensors);
        let count = tensors.filter(|tensor| tensor.residency.place().is_some_and(|place| place.range == range.id));
        text.push_str(&format!(
            "  range {:>3}      {:>12}   {} {} tensors\n",
            range.id,
            range.allocated.to_string(),
            count.count(),
            range.role
        ));
    }
    text
}

/// Writes to standard output; a reader that has gone away is no error.
pub(crate) fn print(text: &str) -> Result<(), OwnerError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(OwnerError::System { action: "write to standard output", source: error })
        }
        _ => Ok(()),
    }
}

//! What the scripted model says: the part that an agent's test needs a capable model for.

use serde_json::Value;

/// Names under which agents offer a tool that runs a command, and the parameter that takes it.
const SHELLS: [(&str, &str); 5] = [
    ("exec_command", "cmd"),
    ("shell_command", "command"),
    ("bash", "command"),
    ("Bash", "command"),
    ("shell", "command"),
];

/// What tells that a command's output came back.
const MARKER: &str = "ds4-tool-ok";

/// Runs `echo` where it is asked to and can, once or twice; reports a result; says READY to anything else.
pub(crate) fn answer(prompt: &str) -> String {
    let reasons = prompt.ends_with("<think>");
    let said = turn(prompt);
    if reasons { format!("I decide what to do.</think>{said}") } else { said }
}

fn turn(prompt: &str) -> String {
    let last = prompt.rsplit("<｜User｜>").next().unwrap_or_default();
    if last.contains("<tool_result>") {
        let found =
            if last.contains(MARKER) { format!("The output is {MARKER}.") } else { "There is no output.".into() };
        return found;
    }
    if last.contains("say bye") {
        return "Bye.".into();
    }
    match (last.contains(MARKER), shell(prompt)) {
        (true, Some((tool, parameter))) => {
            let commands: &[&str] =
                if last.contains("twice") { &["echo first", "echo ds4-tool-ok"] } else { &["echo ds4-tool-ok"] };
            let calls: String = commands.iter().map(|command| call(tool, parameter, command)).collect();
            format!("\n\n<｜DSML｜tool_calls>\n{calls}</｜DSML｜tool_calls>")
        }
        _ => "READY".into(),
    }
}

fn call(tool: &str, parameter: &str, command: &str) -> String {
    let described = if tool == "Bash" || tool == "bash" {
        "<｜DSML｜parameter name=\"description\" string=\"true\">Print a marker</｜DSML｜parameter>\n"
    } else {
        ""
    };
    format!(
        "<｜DSML｜invoke name=\"{tool}\">\n<｜DSML｜parameter name=\"{parameter}\" string=\"true\">{command}</｜DSML｜parameter>\n{described}</｜DSML｜invoke>\n"
    )
}

/// The tool to run commands with, among those that the prompt lists one a line.
fn shell(prompt: &str) -> Option<(&'static str, &'static str)> {
    let schemas = prompt.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let names: Vec<String> = schemas.filter_map(|schema| Some(schema.get("name")?.as_str()?.to_owned())).collect();
    SHELLS.into_iter().find(|(name, _)| names.iter().any(|offered| offered == name))
}

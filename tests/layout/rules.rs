//! What may stand where.

use std::fs;

use crate::source::{Source, files_below, root, rust_sources};

const FILE_LINES_MAX: usize = 600;
const SCRIPT_LINES_MAX: usize = 100;
const FIXTURE_BYTES_MAX: u64 = 12 << 20;

/// The rooms where `unsafe` may appear, besides the one file of `shared/wire` below.
const UNSAFE_ROOMS: [&str; 2] = ["shared/gpu/", "kernels/"];
/// Holds the one conversion from a received raw descriptor to an owned one.
const UNSAFE_WIRE_FILE: &str = "shared/wire/src/fds.rs";

/// Lower-case parts of the names of model architectures.
const ARCHITECTURES: [&str; 9] =
    ["deepseek", "qwen", "exaone", "solar-open", "solar_open", "motif", "dots3", "mistral", "gemma"];
/// Rooms that are about architectures.
const ARCHITECTURE_ROOMS: [&str; 4] = ["inferd/families/", "manifests/", "tests/", "scripts/demo-model/"];

fn hold(reason: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{reason}\n  {}\n", findings.join("\n  "));
}

fn findings(accept: impl Fn(&Source) -> bool, patterns: &[&[&str]]) -> Vec<String> {
    let mut found = Vec::new();
    for source in rust_sources().iter().filter(|source| !accept(source)) {
        for pattern in patterns {
            found
                .extend(source.lines_with(pattern).map(|line| format!("{}:{line}: {}", source.path, pattern.concat())));
        }
    }
    found
}

#[test]
fn unsafe_code_stays_in_its_three_rooms() {
    let mut found = Vec::new();
    for source in rust_sources() {
        if UNSAFE_ROOMS.iter().any(|room| source.path.starts_with(room)) {
            continue;
        }
        let allowed = usize::from(source.path == UNSAFE_WIRE_FILE);
        let lines: Vec<usize> = source.tokens.iter().filter(|t| t.text == "unsafe").map(|t| t.line).collect();
        found.extend(lines.iter().skip(allowed).map(|line| format!("{}:{line}: unsafe", source.path)));
    }
    hold(
        "`unsafe` is for driver handles and mappings (shared/gpu), kernels, and the one conversion of a received \
         descriptor in shared/wire: everything else is proved by the compiler.",
        &found,
    );
}

#[test]
fn the_environment_is_read_only_in_config_files() {
    let reads: [&[&str]; 6] = [
        &["env", ":", ":", "var"],
        &["env", ":", ":", "var_os"],
        &["env", ":", ":", "vars"],
        &["env", ":", ":", "vars_os"],
        &["use", "std", ":", ":", "env", ":", ":", "{"],
        &["from_default_env"],
    ];
    let mut found = findings(|source| source.is_test_file() || source.is_config(), &reads);
    for source in rust_sources().iter().filter(|source| !source.is_config() && !source.is_test_file()) {
        found.extend(clap_environment_lines(source).map(|line| format!("{}:{line}: env in #[arg]", source.path)));
    }
    hold(
        "A setting that is read deep inside is one that nobody finds: flags and their DS4_* fallbacks live in config.rs.",
        &found,
    );
}

/// The lines on which a clap `#[arg(.., env, ..)]` reads a variable.
fn clap_environment_lines(source: &Source) -> impl Iterator<Item = usize> + '_ {
    let mut depth = 0_usize;
    source.tokens.windows(3).filter_map(move |window| {
        match window[1].text.as_str() {
            "(" if depth > 0 || window[0].text == "arg" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        let begins_item = window[0].text == "(" || window[0].text == ",";
        (depth == 1 && begins_item && window[1].text == "env").then_some(window[1].line)
    })
}

#[test]
fn anyhow_appears_only_in_main_and_in_tests() {
    let found = findings(|source| source.is_test_file() || source.file_name() == "main.rs", &[&["anyhow"]]);
    hold("A library's errors are small enums that carry the numbers that decided; anyhow ends in main.rs.", &found);
}

#[test]
fn no_architecture_is_named_outside_its_family() {
    let mut found = Vec::new();
    for source in rust_sources() {
        if source.is_test_file() || in_architecture_room(&source.path) {
            continue;
        }
        for token in source.tokens.iter().filter(|token| !token.only_in_tests && names_architecture(&token.text)) {
            found.push(format!("{}:{}: {}", source.path, token.line, token.text));
        }
    }
    for path in files_below("").iter().filter(|path| path.ends_with(".toml") || path.starts_with("scripts/")) {
        if path.ends_with(".gguf") || in_architecture_room(path) {
            continue;
        }
        let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let lines = text.lines().enumerate().filter(|(_, line)| names_architecture(line));
        found.extend(lines.map(|(index, line)| format!("{path}:{}: {line}", index + 1)));
    }
    hold("Everything about an architecture is in its family's folder: ask the family, never which family.", &found);
}

fn in_architecture_room(path: &str) -> bool {
    ARCHITECTURE_ROOMS.iter().any(|room| path.starts_with(room))
}

fn names_architecture(text: &str) -> bool {
    let text = text.to_lowercase();
    ARCHITECTURES.iter().any(|name| text.contains(name))
}

#[test]
fn no_source_file_is_longer_than_its_limit() {
    let mut found = Vec::new();
    for path in files_below("") {
        let limit = match path.rsplit_once('.').map(|(_, extension)| extension) {
            Some("rs" | "cu" | "cuh") => FILE_LINES_MAX,
            None if path.starts_with("scripts/") => SCRIPT_LINES_MAX,
            _ => continue,
        };
        let text = fs::read_to_string(root().join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let lines = text.lines().count();
        if lines > limit {
            found.push(format!("{path}:{limit}: {lines} lines, the limit is {limit}"));
        }
    }
    hold(
        "A file is one idea that can be read in one sitting; a long script is a program of the crate it serves.",
        &found,
    );
}

#[test]
fn fixtures_stay_small_enough_for_every_clone() {
    let sizes = files_below("tests/fixtures").into_iter().map(|path| fs::metadata(root().join(path)).map(|m| m.len()));
    let total: u64 = sizes.sum::<Result<u64, _>>().expect("readable fixtures");
    assert!(total <= FIXTURE_BYTES_MAX, "tests/fixtures holds {total} bytes, the limit is {FIXTURE_BYTES_MAX}");
}

#[test]
fn no_merge_is_left_half_done() {
    let mut found = Vec::new();
    for path in files_below("") {
        let bytes = fs::read(root().join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let Ok(text) = std::str::from_utf8(&bytes) else { continue };
        for (index, line) in text.lines().enumerate() {
            if line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") {
                found.push(format!("{path}:{}: {line}", index + 1));
            }
        }
    }
    hold("Both sides of a conflict stand in the file, and somebody reads them as one text.", &found);
}

//! Which crate may use which.

use std::collections::BTreeMap;
use std::process::Command;

use crate::source::root;

/// Each crate and the crates of the workspace that it may use. A new arrow is a change of the design: argue it in the
/// commit that adds it here.
const ARROWS: [(&str, &[&str]); 24] = [
    ("ds4-units", &[]),
    ("ds4-host", &["units"]),
    ("ds4-gguf", &["units"]),
    ("ds4-manifest", &["units"]),
    ("ds4-wire", &["units"]),
    ("ds4-gpu", &["units"]),
    ("ds4-nvcc", &[]),
    ("ds4-resident", &["units", "gguf", "manifest", "gpu"]),
    ("ds4-kernels", &["units", "gpu"]),
    ("ds4-weightd", &["units", "host", "gguf", "manifest", "wire", "gpu", "resident"]),
    ("ds4-import", &["units", "gguf", "manifest", "wire", "gpu", "resident"]),
    ("ds4-model", &["units", "gguf", "gpu", "import"]),
    ("ds4-families", &["units", "gguf", "gpu", "import", "model", "kernels"]),
    ("ds4-boot", &["units", "host", "gguf", "manifest", "gpu", "resident", "import", "model", "families", "governor"]),
    ("ds4-banks", &["units"]),
    ("ds4-governor", &["units"]),
    ("ds4-parking", &["wire"]),
    ("ds4-engine", &["units", "model", "governor", "banks", "parking"]),
    ("ds4-grammar", &["units", "model"]),
    ("ds4-api", &["units", "model", "governor", "engine", "grammar"]),
    ("ds4-server", &["units", "host", "model", "boot", "governor", "engine", "api"]),
    ("ds4", &["units", "host", "model", "boot", "banks", "engine", "api"]),
    ("ds4-bench", &["units", "host", "kernels", "model", "boot", "engine"]),
    ("ds4-tests", &["units", "manifest", "wire"]),
];

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

#[test]
fn every_dependency_between_crates_is_an_arrow_of_the_code_map() {
    let metadata: serde_json::Value =
        serde_json::from_str(&cargo(&["metadata", "--locked", "--no-deps", "--format-version", "1"])).expect("JSON");
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let Some(allowed) = allowed.get(name) else {
            found.push(format!("{name}: has no row in tests/layout/arrows.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let to = dependency["name"].as_str().expect("a name");
            let known = to.strip_prefix("ds4-").is_none_or(|room| allowed.contains(&room));
            if dependency["kind"].is_null() && !known {
                found.push(format!("{}: {name} uses {to}", package["manifest_path"]));
            }
        }
    }
    assert!(
        found.is_empty(),
        "Crates use each other only along the arrows of the code map.\n  {}\n",
        found.join("\n  ")
    );
}

/// The crates that end up in `package`, one a line with their folder.
fn linked_into(package: &str) -> String {
    cargo(&["tree", "--locked", "-p", package, "-e", "normal,build", "--prefix", "none", "--format", "{p}"])
}

#[test]
fn the_owner_links_no_kernels_and_nothing_of_the_worker() {
    let tree = linked_into("ds4-weightd");
    let worker = ["/inferd/", "/kernels)"];
    let found: Vec<&str> = tree.lines().filter(|line| worker.iter().any(|folder| line.contains(folder))).collect();
    assert!(
        found.is_empty(),
        "ds4-weightd stays up while workers are replaced: code that changes with models must not be in it.\n  {}\n",
        found.join("\n  ")
    );
}

#[test]
fn the_api_links_no_family() {
    let tree = linked_into("ds4-api");
    let found: Vec<&str> =
        tree.lines().filter(|line| line.contains("/families)") || line.contains("/kernels)")).collect();
    assert!(found.is_empty(), "HTTP surfaces ask the family through its contract only.\n  {}\n", found.join("\n  "));
}

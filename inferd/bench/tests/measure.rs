//! `ds4-bench` as a process, with the demo model on the CPU.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo-model/ds4-demo-16m.gguf")
}

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ds4-bench")).args(arguments).output().unwrap()
}

fn measured(arguments: &[&str]) -> (String, String) {
    let output = bench(&[&["-m", model().to_str().unwrap(), "--device", "cpu"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The lines of a table as numbers by column; an empty cell is no number.
fn numbers(csv: &str) -> Vec<Vec<Option<f64>>> {
    csv.lines().skip(1).map(|line| line.split(',').map(|cell| cell.parse().ok()).collect()).collect()
}

#[test]
fn a_conversation_is_read_on_from_frontier_to_frontier_and_answers_are_as_long_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let [csv, svg, text] = ["run.csv", "run.svg", "text"].map(|name| folder.path().join(name));
    // An answer to this would end at once.
    std::fs::write(&text, "Hello, my name is Clara. ".repeat(30)).unwrap();
    let flags = ["--ctx-start", "64", "--ctx-max", "256", "--step-mul", "2", "--gen-tokens", "40", "--ceilings"];
    let files = [("--csv", &csv), ("--plot", &svg), ("--prompt-file", &text)];
    let files: Vec<&str> = files.iter().flat_map(|(flag, path)| [*flag, path.to_str().unwrap()]).collect();
    let (table, said) = measured(&[&flags[..], &files].concat());
    assert!(table.starts_with(
        "ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,gen_tps_ss,first_token_ms,kvcache_bytes,prefill_share,gen_share\n"
    ));
    let lines = numbers(&table);
    let column = |column: usize| lines.iter().map(|line| line[column].unwrap()).collect::<Vec<f64>>();
    assert_eq!(column(0), [64.0, 128.0, 256.0]);
    // The token before a frontier is read again: its logits are what the answer begins with.
    assert_eq!(column(1), [64.0, 65.0, 129.0]);
    assert_eq!(column(3), [40.0; 3]);
    for rate in [2, 4, 5, 6, 7, 8, 9] {
        assert!(column(rate).iter().all(|&value| value > 0.0), "column {rate}: {table}");
    }
    assert!(column(8).iter().chain(&column(9)).all(|&share| share < 1.5), "{table}");
    assert!(said.contains("at best") && said.contains("of weights"), "{said}");
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), table);
    let curves = |path: &Path, colour: &str| std::fs::read_to_string(path).unwrap().matches(colour).count();
    assert!(curves(&svg, "\"#0000FF\"") >= 2 && curves(&svg, "\"#FF0000\"") == 0, "a blue curve in each half");

    let both = folder.path().join("both.svg");
    let drawn =
        bench(&["--from", csv.to_str().unwrap(), "--from", csv.to_str().unwrap(), "--plot", both.to_str().unwrap()]);
    assert!(drawn.status.success(), "{drawn:?}");
    assert!(curves(&both, "\"#0000FF\"") >= 2 && curves(&both, "\"#FF0000\"") >= 2, "another run is red");
}

#[test]
fn a_crowd_writes_together() {
    let (table, said) = measured(&["--concurrency", "1,3", "--ctx-start", "96", "--gen-tokens", "48"]);
    assert!(table.starts_with("requests,ctx_tokens,prefill_tps,gen_tps,between_tokens_ms,"), "{table}");
    let lines = numbers(&table);
    assert_eq!(lines.iter().map(|line| line[0].unwrap()).collect::<Vec<_>>(), [1.0, 3.0]);
    assert!(lines.iter().all(|line| line[2..7].iter().all(|cell| cell.is_some_and(|value| value > 0.0))), "{table}");
    assert!(lines.iter().all(|line| line[7].is_none() && line[8].is_none()), "no share without ceilings: {table}");
    assert!(!said.contains("at best"), "{said}");
}

#[test]
fn what_cannot_be_measured_is_named() {
    let output = bench(&["-m", "/nowhere.gguf"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nowhere.gguf"));
    let output = bench(&["--from", "/nowhere.csv", "--plot", "/tmp/never.svg"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nowhere.csv"));
    let model = model();
    let start = ["-m", model.to_str().unwrap(), "--device", "cpu", "--ctx-start", "64"];
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let missing = folder.path().join("missing");
    let [empty, missing] = [empty.to_str().unwrap(), missing.to_str().unwrap()];
    let wrong: [(&[&str], i32, &str); 5] = [
        (&["--ctx-max", "63"], 2, "--ctx-max 63 is below --ctx-start 64"),
        (&["--ctx-max", "64", "-c", "32"], 2, "32"),
        (&["--prompt-file", empty], 2, "no tokens"),
        (&["--prompt-file", missing], 1, missing),
        (&["--plot", "run.pdf"], 2, ".svg or .png"),
    ];
    for (flags, code, told) in wrong {
        let output = bench(&[&start[..], flags].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stdout.is_empty() || flags.contains(&"-c"), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(told), "{output:?}");
    }
}

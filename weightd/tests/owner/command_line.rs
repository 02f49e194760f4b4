//! What the program says and how it ends when it does not serve.

use crate::kit::Rig;
use ds4_gguf::writer::Writer;
use ds4_units::TensorType;
use std::fs;

#[test]
fn help_teaches_and_lists_the_exit_codes() {
    let help = Rig::new().run(&["--help"]);
    assert_eq!(help.code(), Some(0));
    for part in ["--base model.gguf --dry-run", "--status --wait 600", "DS4_SPAN_MB", "6  another owner holds the lock"]
    {
        assert!(help.output.contains(part), "{part} is not in\n{}", help.output);
    }
}

#[test]
fn a_wrong_flag_value_or_combination_ends_with_2() {
    let rig = Rig::new();
    for (arguments, says) in [
        (&["--span-mb", "10"][..], "'10' for '--span-mb <MIB>': must be an even whole number from 64 to 4096"),
        (&["--reserve-gb", "-3"], "'-3' for '--reserve-gb <GIB>': must be a whole number from 0 to 1048576"),
        (&["--no-lock"], "--no-lock is not taken: an owner always takes its lock"),
        (&["--scope", "base"], "--scope is not taken: what is held follows from the files"),
        (&["--backend", "vmm"], "use --backend memfd"),
        (&["--backend", "ipc"], "'ipc' for '--backend <BACKEND>'"),
        (&["--wait", "3"], "--status"),
        (&["--frobnicate"], "'--frobnicate'"),
        (&["--name", "a/b"], "--name"),
    ] {
        let model = rig.model();
        let ended = rig.run(&[&["--base", model.to_str().unwrap()], arguments].concat());
        assert_eq!(ended.code(), Some(2), "{arguments:?}\n{}", ended.output);
        assert!(ended.output.contains(says), "{arguments:?}\n{}", ended.output);
    }
    let ended = rig.run(&[]);
    assert_eq!((ended.code(), ended.output.contains("--base FILE")), (Some(2), true), "{}", ended.output);
    assert!(rig.left_behind().is_empty());
}

#[test]
fn a_run_directory_that_cannot_be_used_ends_with_2_and_names_the_flag() {
    let rig = Rig::new();
    let file = rig.path().join("file");
    fs::write(&file, "").unwrap();
    let ended = rig.run_owner(&["--manifest", file.join("m.json").to_str().unwrap()]);
    assert_eq!(ended.code(), Some(2), "{}", ended.output);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ds4-weightd"));
    command.arg("--base").arg(rig.model()).arg("--run-dir").arg(&file);
    let ended = ds4_tests::run(command).unwrap();
    assert_eq!(ended.code(), Some(2), "{}", ended.output);
    assert!(ended.output.contains("--run-dir"), "{}", ended.output);
}

#[test]
fn a_bad_model_file_ends_with_3_and_is_named() {
    let rig = Rig::new();
    let whole = fs::read(rig.model()).unwrap();
    for (bytes, says) in [
        (b"<html>not found</html>".to_vec(), "model.gguf"),
        (whole[..whole.len() - 64].to_vec(), "incomplete download"),
        (Writer::new("toy").to_bytes()[..20].to_vec(), "model.gguf"),
    ] {
        fs::write(rig.model(), bytes).unwrap();
        for arguments in [&[][..], &["--dry-run"], &["--print-plan", "json"]] {
            let ended = rig.run_owner(arguments);
            assert_eq!(ended.code(), Some(3), "{arguments:?}\n{}", ended.output);
            assert!(ended.output.contains(says), "{}", ended.output);
        }
    }
    fs::remove_file(rig.model()).unwrap();
    let ended = rig.run_owner(&[]);
    assert_eq!(ended.code(), Some(3), "{}", ended.output);
    assert!(rig.left_behind().is_empty());
}

#[test]
fn a_model_name_cannot_forge_a_log_line() {
    let rig = Rig::new();
    let evil = rig.path().join("m\nready manifest=\u{1b}[2J.gguf");
    let ended = rig.run(&["--base", evil.to_str().unwrap()]);
    assert_eq!(ended.code(), Some(3), "{}", ended.output);
    assert!(!ended.output.lines().any(|line| line.starts_with("ready")), "{}", ended.output);
    assert!(!ended.output.contains('\u{1b}'), "{}", ended.output);
}

#[test]
fn too_little_memory_ends_with_4_and_shows_table_and_remedies() {
    let rig = Rig::new();
    for arguments in [&["--reserve-gb", "1000000"][..], &["--reserve-gb", "1000000", "--dry-run"]] {
        let mut command = rig.weightd(&["--base", rig.model().to_str().unwrap()]);
        command.args(arguments);
        let ended = ds4_tests::run(command).unwrap();
        assert_eq!(ended.code(), Some(4), "{}", ended.output);
        for part in ["running total", "reserve", "budget", "missing", "Remedies", "--reserve-gb", "--no-preflight"] {
            assert!(ended.output.contains(part), "{part} is not in\n{}", ended.output);
        }
    }
    assert!(rig.left_behind().is_empty());
}

#[test]
fn the_refusal_can_be_overruled_and_says_so() {
    let rig = Rig::new();
    let mut command = rig.weightd(&["--base", rig.model().to_str().unwrap(), "--reserve-gb", "1000000"]);
    command.args(["--no-preflight", "--dry-run"]);
    let ended = ds4_tests::run(command).unwrap();
    assert_eq!(ended.code(), Some(0), "{}", ended.output);
    assert!(ended.output.contains("going on because of --no-preflight"), "{}", ended.output);
}

#[test]
fn a_dry_run_shows_the_plan_and_touches_nothing() {
    let rig = Rig::new();
    let ended = rig.run_owner(&["--dry-run"]);
    assert_eq!(ended.code(), Some(0), "{}", ended.output);
    for part in ["model.gguf", "ranges of up to about 1.00 GiB, 4 tensors", "base weights", "to spare"] {
        assert!(ended.output.contains(part), "{part} is not in\n{}", ended.output);
    }
    assert!(rig.left_behind().is_empty());
}

#[test]
fn the_printed_plan_is_one_json_object_with_settings_and_their_origin() {
    let rig = Rig::new();
    let mut command = rig.owner(&["--print-plan", "json"]);
    let output = command.env("DS4_SPAN_MB", "64").env_remove("DS4_NAME").output().unwrap();
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["plan"]["totals"]["tensors"], 4);
    assert_eq!(plan["preflight"][0]["rows"][0]["term"], "base weights");
    let origin = |flag: &str| {
        let settings = plan["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["flag"] == flag).unwrap()["origin"].as_str().unwrap().to_owned()
    };
    assert_eq!(origin("--span-mb"), "DS4_SPAN_MB");
    assert_eq!(origin("--reserve-gb"), "command line");
    assert_eq!(origin("--name"), "default");
}

#[test]
fn equal_inputs_print_equal_plans() {
    let rig = Rig::new();
    let plan = || {
        let output = rig.owner(&["--print-plan", "json"]).output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["plan"].clone()
    };
    assert_eq!(plan(), plan());
}

#[test]
fn shards_are_one_model_and_a_missing_one_ends_with_3() {
    let rig = Rig::new();
    let model = Writer::new("toy").tensor("a", TensorType::F32, &[64], vec![0; 256]).tensor(
        "b",
        TensorType::F32,
        &[64],
        vec![0; 256],
    );
    let paths = model.write_shards(rig.path(), "split", 2).unwrap();
    let ended = rig.run(&["--base", paths[0].to_str().unwrap(), "--reserve-gb", "0", "--dry-run"]);
    assert_eq!(ended.code(), Some(0), "{}", ended.output);
    fs::remove_file(&paths[1]).unwrap();
    let ended = rig.run(&["--base", paths[0].to_str().unwrap(), "--reserve-gb", "0"]);
    assert_eq!(ended.code(), Some(3), "{}", ended.output);
    assert!(ended.output.contains(paths[1].file_name().unwrap().to_str().unwrap()), "{}", ended.output);
}

#[test]
fn more_ranges_than_descriptors_end_with_4_and_name_the_limit() {
    let rig = Rig::new();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 60 && exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_ds4-weightd")).arg("--run-dir").arg(rig.run_dir());
    command.args(["--reserve-gb", "0", "--base"]).arg(rig.model());
    let ended = ds4_tests::run(command).unwrap();
    assert_eq!(ended.code(), Some(4), "{}", ended.output);
    for part in ["2 ranges", "68 file descriptors", "may have 60", "LimitNOFILE="] {
        assert!(ended.output.contains(part), "{part} is not in\n{}", ended.output);
    }
    assert!(rig.left_behind().is_empty());
}

//! Under a service manager: units that it accepts, and descriptors that it holds while a keeper is restarted.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ds4_tests::{Answer, Manager, Site, TURNS, binary, demo_model, messages, repository, run};
use tempfile::TempDir;

#[test]
fn everything_outlives_owner_worker_and_keeper_in_the_service_manager_s_store() -> Result<()> {
    let site = Site::new(&demo_model(), &[], &[])?;
    let manager = Manager::new()?;
    let first = manager.start(&site.keeper_command()?)?;
    manager.wait_for("READY=1")?;
    let owner = site.serving_owner()?;
    let worker = site.serving_worker()?;
    for (turn, (_, expected)) in TURNS.iter().enumerate().take(2) {
        assert_eq!(Answer::to(&worker, &messages(turn))?.text, *expected);
    }
    worker.wait_for_stat("parked", "conversations", |count| count == 1)?;
    let parked = worker.process().output();
    ensure!(parked.contains("conversations are parked with a keeper"), "{parked}");
    // Descriptions come last, so that half a set is none.
    manager.wait_for_sets(2)?;
    worker.kill()?;
    owner.kill()?;
    first.kill()?;

    // Nothing of it lives but what the manager holds.
    let second = manager.start(&site.keeper_command()?)?;
    second.wait_for_line("keeper listening")?;
    assert_eq!(second.output().matches("back from the service manager").count(), 2, "{}", second.output());
    let owner = site.serving_owner()?;
    ensure!(owner.output().contains("weights taken back"), "{}", owner.output());
    let worker = site.serving_worker()?;
    let answer = Answer::to(&worker, &messages(3))?;
    assert_eq!((answer.text.as_str(), answer.reuse.as_str()), (TURNS[3].1, "adopted"));
    worker.kill()?;
    drop(owner);

    // What is released is gone from the store as well.
    let mut release = Command::new(binary("ds4-weightd")?);
    release.args(["--release", "--run-dir"]).arg(site.run_dir());
    assert_eq!(run(release)?.code(), Some(0));
    manager.wait_for_fds(0)?;
    let ended = second.terminate()?;
    assert_eq!(ended.code(), Some(0), "{}", ended.output);
    manager.wait_for("STOPPING=1")
}

#[test]
fn the_units_are_clean() -> Result<()> {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        println!("systemd-analyze is not here: the units were not checked");
        return Ok(());
    };
    ensure!(version.status.success(), "systemd-analyze --version");
    let folder = TempDir::new()?;
    let programs = binary("ds4-weightd")?;
    let programs = programs.parent().context("a program lies in a folder")?.display().to_string();
    binary("ds4-server")?;
    let mut units = Vec::new();
    for name in ["ds4-keeper", "ds4-weightd", "ds4-server"] {
        let file = format!("{name}.service");
        let unit = fs::read_to_string(repository().join("manifests/systemd").join(&file)).context("a unit")?;
        // Programs have to be where a unit says.
        let unit = unit.replace("/usr/local/bin", &programs);
        let path = folder.path().join(file);
        fs::write(&path, unit)?;
        units.push(path);
    }
    let checked = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).output()?;
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    let about_ours: Vec<&str> = said.lines().filter(|line| line.contains("ds4-")).collect();
    ensure!(checked.status.success() && about_ours.is_empty(), "{said}");
    Ok(())
}

#[test]
fn a_worker_is_ordered_after_its_owner_and_never_bound_to_it() -> Result<()> {
    let unit = fs::read_to_string(repository().join("manifests/systemd/ds4-server.service"))?;
    ensure!(unit.contains("After=ds4-weightd.service") && unit.contains("Wants=ds4-weightd.service"), "{unit}");
    for bond in ["BindsTo=", "Requires=", "Requisite=", "PartOf="] {
        ensure!(!unit.lines().any(|line| line.starts_with(bond)), "{bond} ends the worker with its owner");
    }
    Ok(())
}

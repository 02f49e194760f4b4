//! Under a service manager: units that it accepts, and descriptors that it holds while a keeper is restarted.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ds4_tests::{Answer, Manager, Process, Site, TURNS, Worker, binary, demo_model, messages, repository, run};
use tempfile::TempDir;

/// A keeper that gets two sets back: the weights, and a conversation.
fn keeper_with_both(manager: &Manager, site: &Site) -> Result<Process> {
    let keeper = manager.start(&site.keeper_command()?)?;
    keeper.wait_for_line("keeper listening")?;
    assert_eq!(keeper.output().matches("back from the service manager").count(), 2, "{}", keeper.output());
    Ok(keeper)
}

/// An owner and a worker that go on with what a keeper has; the worker has answered.
fn going_on(site: &Site) -> Result<(Process, Worker)> {
    let owner = site.serving_owner()?;
    ensure!(owner.output().contains("weights taken back"), "{}", owner.output());
    let worker = site.serving_worker()?;
    let answer = Answer::to(&worker, &messages(3))?;
    assert_eq!((answer.text.as_str(), answer.reuse.as_str()), (TURNS[3].1, "adopted"));
    Ok((owner, worker))
}

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
    let second = keeper_with_both(&manager, &site)?;
    let (owner, worker) = going_on(&site)?;

    // They have parked the same memory again, and do so once more with a keeper that is restarted while they live.
    manager.wait_for_sets(2)?;
    second.kill()?;
    let third = keeper_with_both(&manager, &site)?;
    owner.wait_for_line(&format!("weights parked with the keeper keeper={}", third.pid()))?;
    worker.wait_for_stat("parked", "keepers_lost", |lost| lost == 1)?;
    worker.wait_for_stat("parked", "conversations", |count| count == 1)?;
    worker.kill()?;
    owner.kill()?;
    third.kill()?;
    let fourth = keeper_with_both(&manager, &site)?;
    let (owner, worker) = going_on(&site)?;
    worker.kill()?;
    drop(owner);

    // What is released is gone from the store as well.
    let mut release = Command::new(binary("ds4-weightd")?);
    release.args(["--release", "--run-dir"]).arg(site.run_dir());
    assert_eq!(run(release)?.code(), Some(0));
    manager.wait_for_fds(0)?;
    let ended = fourth.terminate()?;
    assert_eq!(ended.code(), Some(0), "{}", ended.output);
    manager.wait_for("STOPPING=1")
}

#[test]
fn what_is_left_of_a_set_that_is_not_whole_goes_from_the_service_manager_s_store() -> Result<()> {
    let site = Site::new(&demo_model(), &[], &[])?;
    let manager = Manager::new()?;
    // A keeper was killed while it removed the one, and while it stored the other.
    for name in ["1.2", "1.7", "2.0", "2.1"] {
        manager.store(name, tempfile::tempfile()?.into());
    }
    let keeper = manager.start(&site.keeper_command()?)?;
    keeper.wait_for_line("keeper listening")?;
    manager.wait_for_fds(0)?;
    assert_eq!(keeper.output().matches("is not whole, and is not kept").count(), 2, "{}", keeper.output());
    Ok(())
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

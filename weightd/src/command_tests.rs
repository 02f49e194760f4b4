use super::*;

fn parse(arguments: &[&str]) -> Result<Command, CommandError> {
    let arguments: Vec<OsString> = std::iter::once(&"ds4-weightd").chain(arguments).map(OsString::from).collect();
    Command::parse(&arguments, &Platform::default())
}

fn refused(arguments: &[&str]) -> String {
    parse(arguments).unwrap_err().to_string()
}

#[test]
fn the_command_line_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn numbers_are_strict_and_name_flag_value_and_range() {
    let cases = [
        ("--span-mb", "63", "from 64 to 4096"),
        ("--span-mb", "65", "even whole number"),
        ("--span-mb", "1e3", "from 64 to 4096"),
        ("--span-mb", "0", "from 64 to 4096"),
        ("--span-mb", "-1", "from 64 to 4096"),
        ("--reserve-gb", "", "from 0 to 1048576"),
        ("--reserve-gb", "99999999999999999999", "from 0 to 1048576"),
        ("--reserve-gb", "16GB", "from 0 to 1048576"),
        ("--device", "x", "from 0 to 4294967295"),
        ("--drain-timeout", "-5", "from 0 to 86400"),
        ("--allow-uid", "root", "from 0 to 4294967295"),
        ("--allow-gid", "4294967296", "from 0 to 4294967295"),
    ];
    for (flag, value, range) in cases {
        let text = refused(&["--base", "m.gguf", flag, value]);
        assert!(text.contains(flag) && text.contains(range) && text.contains(&format!("'{value}'")), "{text}");
    }
    let text = refused(&["--status", "--wait", "soon"]);
    assert!(text.contains("--wait") && text.contains("from 0 to 86400"), "{text}");
}

#[test]
fn every_published_flag_that_is_not_taken_names_what_replaces_it() {
    let published = [
        ("--scope", "--base FILE alone"),
        ("--drafter=x.gguf", "--mtp FILE"),
        ("--no-lock", "--name"),
        ("--exit-on-parent-pid", "systemd"),
        ("--copy-chunk-mb", "leave the flag out"),
        ("--derive-output-certifier", "leave the flag out"),
        ("--derive-group-count=8", "leave the flag out"),
        ("--derive-q8-f16", "leave the flag out"),
        ("--derive-q8-f32", "leave the flag out"),
        ("--derive-budget-gb", "leave the flag out"),
        ("--repack-iq2-aligned", "leave the flag out"),
        ("--no-repack-iq2-aligned", "leave the flag out"),
        ("--repack-q2k-aligned", "leave the flag out"),
        ("--no-repack-q2k-aligned", "leave the flag out"),
        ("--repack-q8-aligned", "leave the flag out"),
        ("--no-repack-q8-aligned", "leave the flag out"),
        ("--repack-threads", "leave the flag out"),
        ("--repack-hash", "leave the flag out"),
        ("--legacy-manifest", "--manifest FILE"),
        ("--listen-health", "--status --json"),
    ];
    for (flag, instead) in published {
        let error = parse(&["--base", "m.gguf", flag]).unwrap_err();
        assert!(matches!(error, CommandError::Replaced { .. }), "{flag}");
        assert!(error.to_string().contains(instead), "{error}");
    }
}

#[test]
fn backends_and_devices_that_do_not_exist_are_refused_by_name() {
    let text = refused(&["--base", "m", "--backend", "ipc"]);
    assert!(text.contains("'ipc'") && text.contains("memfd"), "{text}");
    assert!(refused(&["--base", "m", "--backend", "memfd", "--device", "1"]).contains("leave --device out"));
}

#[test]
fn a_model_must_be_named() {
    assert!(matches!(parse(&[]), Err(CommandError::NoModel)));
    assert!(matches!(parse(&["--mtp", "x.gguf", "--dry-run"]), Err(CommandError::NoModel)));
}

#[test]
fn a_name_is_part_of_a_file_name() {
    for name in ["", "a/b", "..", ".x", "a b", "\u{1b}[2J", &"x".repeat(65)] {
        assert!(matches!(parse(&["--status", "--name", name]), Err(CommandError::Name { .. })), "{name:?}");
    }
}

#[test]
fn the_socket_lies_beside_the_manifest_and_is_short_enough() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = dir.path().join("m.json");
    let serve = |manifest: &Path| {
        let dir = dir.path().to_str().unwrap();
        parse(&["--base", "m.gguf", "--run-dir", dir, "--manifest", manifest.to_str().unwrap()])
    };
    let Command::Serve(config) = serve(&manifest).unwrap() else { panic!("not serve") };
    assert_eq!(config.paths.socket, dir.path().join("m.json.sock"));
    assert_eq!(config.paths.lock, dir.path().join("weights.lock"));
    let long = dir.path().join(format!("{}.json", "x".repeat(100)));
    let text = serve(&long).unwrap_err().to_string();
    assert!(text.contains("107") && text.contains("--broker-socket /run/ds4/"), "{text}");
}

#[test]
fn a_manifest_where_others_may_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let (run_dir, manifest) = (dir.path().to_str().unwrap(), open.join("m.json"));
    let error = parse(&["--base", "m", "--run-dir", run_dir, "--manifest", manifest.to_str().unwrap()]).unwrap_err();
    assert!(matches!(error, CommandError::Untrusted(TrustError::Mode { mode: 0o777, .. })), "{error}");
}

#[test]
fn settings_carry_their_origin() {
    let Command::Plan(plan) = parse(&["--base", "m.gguf", "--span-mb", "64", "--print-plan", "json"]).unwrap() else {
        panic!("not a plan")
    };
    let origin = |flag: &str| {
        let setting = plan.settings.iter().find(|setting| setting.flag == flag).unwrap();
        (setting.value.as_str(), setting.origin.as_str())
    };
    assert_eq!(origin("--span-mb"), ("64", "command line"));
    assert_eq!(origin("--drain-timeout"), ("30", "default"));
    assert_eq!(plan.load.reserve, None);
}

#[test]
fn a_keeper_is_beside_the_manifest_unless_it_is_named_or_not_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().to_str().unwrap();
    let keeper = |arguments: &[&str]| {
        let arguments = [&["--base", "m.gguf", "--run-dir", run_dir], arguments].concat();
        let Command::Serve(config) = parse(&arguments).unwrap() else { panic!("not an owner") };
        config.keeper.map(|keeper| (keeper.socket, keeper.start))
    };
    assert_eq!(keeper(&[]), Some((dir.path().join("keeper.sock"), false)));
    assert_eq!(keeper(&["--keeper", "start", "--keeper-socket", "/k"]), Some(("/k".into(), true)));
    assert_eq!(keeper(&["--keeper", "off"]), None);
    let Command::Keep(config) = parse(&["keep", "--run-dir", run_dir]).unwrap() else { panic!("not a keeper") };
    assert_eq!((config.socket, config.lock), (dir.path().join("keeper.sock"), dir.path().join("keeper.lock")));
    assert!(refused(&["keep", "--base", "m.gguf"]).contains("'--base'"));
}

#[test]
fn a_named_gpu_is_meant_and_none_is_the_best_there_is() {
    let backend = |arguments: &[&str]| {
        let arguments = [&["--base", "m.gguf", "--dry-run"], arguments].concat();
        let Command::Plan(plan) = parse(&arguments).unwrap() else { panic!("not a plan") };
        plan.load.backend
    };
    assert_eq!(backend(&[]), BackendChoice::Best);
    assert_eq!(backend(&["--backend", "memfd"]), BackendChoice::Memfd);
    assert_eq!(backend(&["--backend", "vmm"]), BackendChoice::Vmm(DeviceChoice::Number(0)));
    assert_eq!(backend(&["--device", "2"]), BackendChoice::Vmm(DeviceChoice::Number(2)));
    assert_eq!(backend(&["--device-uuid", "GPU-1"]), BackendChoice::Vmm(DeviceChoice::Uuid("GPU-1".into())));
}

#[test]
fn a_reserve_of_nothing_is_still_a_preflight() {
    let Command::Plan(plan) = parse(&["--base", "m.gguf", "--reserve-gb", "0", "--dry-run"]).unwrap() else {
        panic!("not a plan")
    };
    assert_eq!((plan.load.reserve, plan.load.preflight), (Some(Bytes::ZERO), true));
}

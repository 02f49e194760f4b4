//! Preflight: the sum, the table and the refusal, for memory that the test makes up.

mod support;

use ds4_resident::{
    GroupLimit, HOST_RESERVE, MemoryError, MemorySource, Observation, Plan, PlanOptions, Preflight, ProcessMemory,
    Role, TensorTable, plan, preflight, staging_bytes,
};
use ds4_units::Bytes;

struct Machine {
    observation: Observation,
    processes: Vec<ProcessMemory>,
}

impl MemorySource for Machine {
    fn observe(&self) -> Result<Observation, MemoryError> {
        Ok(self.observation.clone())
    }

    fn largest_processes(&self) -> Vec<ProcessMemory> {
        self.processes.clone()
    }
}

fn machine(available: Bytes, groups: Vec<GroupLimit>) -> Machine {
    let process = |pid, name: &str, resident| ProcessMemory { pid, name: name.into(), resident };
    Machine {
        observation: Observation { available, groups, ..Observation::default() },
        processes: vec![process(7, "trainer", Bytes::gib(6)), process(8, "browser", Bytes::mib(300))],
    }
}

fn pair() -> Plan {
    let folder = tempfile::tempdir().unwrap();
    let model = support::model(folder.path());
    let table = |role| TensorTable { role, tensors: model.tensors() };
    plan(&[table(Role::Base), table(Role::Mtp)], &PlanOptions::default()).unwrap()
}

fn check(available: Bytes, groups: Vec<GroupLimit>) -> Preflight {
    preflight(&pair(), staging_bytes(4), HOST_RESERVE, Bytes::ZERO, &machine(available, groups)).unwrap()
}

#[test]
fn the_sum_has_every_term_and_a_running_total() {
    let plan = pair();
    let found = check(Bytes::gib(4), Vec::new());
    let terms: Vec<&str> = found.rows.iter().map(|row| row.term.as_str()).collect();
    assert_eq!(terms, ["base weights", "mtp weights", "staging", "page cache", "tables", "reserve"]);
    let mut total = 0;
    for row in &found.rows {
        total += row.bytes.0;
        assert_eq!(row.running_total.0, total, "{}", row.term);
    }
    assert_eq!(found.need.0, total);
    assert_eq!(found.rows[0].bytes.0 + found.rows[1].bytes.0, plan.totals.allocated.0);
    assert_eq!(found.rows[2].bytes, staging_bytes(4));
    assert_eq!(found.rows[5].bytes, Bytes::gib(1));
    assert!(found.check().is_ok() && found.remedies.is_empty());
}

#[test]
fn exactly_enough_is_enough_and_one_byte_less_is_not() {
    let need = check(Bytes::gib(4), Vec::new()).need;
    assert!(check(need, Vec::new()).check().is_ok());
    let refused = check(Bytes(need.0 - 1), Vec::new()).check().unwrap_err();
    assert_eq!(refused.deficit, Bytes(1));
    assert_eq!((refused.need, refused.available), (need, Bytes(need.0 - 1)));
}

#[test]
fn a_reserve_of_nothing_still_refuses_what_does_not_fit() {
    let plan = pair();
    let small = machine(Bytes::mib(20), Vec::new());
    let refused = preflight(&plan, staging_bytes(4), Bytes::ZERO, Bytes::ZERO, &small).unwrap().check().unwrap_err();
    assert!(refused.remedies.iter().all(|remedy| remedy.action != "lower --reserve-gb"));
}

#[test]
fn a_refusal_repeats_the_figures_and_names_remedies_that_are_enough_first() {
    let need = check(Bytes::gib(4), Vec::new()).need;
    let refused = check(Bytes(need.0 - (400 << 20)), Vec::new()).check().unwrap_err();
    let actions: Vec<&str> = refused.remedies.iter().map(|remedy| remedy.action.as_str()).collect();
    assert_eq!(actions, ["lower --reserve-gb", "stop pid 7 (trainer)", "stop pid 8 (browser)"]);
    let text = refused.to_string();
    for part in ["not enough memory: need 1.", "MemAvailable leaves", "400.00 MiB are missing", "(-6.00 GiB)"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_control_group_limit_below_the_machine_is_the_budget_and_a_remedy() {
    let group = |used| GroupLimit { file: "/sys/fs/cgroup/ds4/memory.max".into(), limit: Bytes::gib(2), used };
    let roomy = check(Bytes::gib(64), vec![group(Bytes::ZERO)]);
    assert_eq!(roomy.budget.chosen.source, "/sys/fs/cgroup/ds4/memory.max");
    assert!(roomy.check().is_ok());
    let refused = check(Bytes::gib(64), vec![group(Bytes::mib(1536))]).check().unwrap_err();
    assert_eq!(refused.available, Bytes::mib(512));
    assert!(refused.to_string().contains("/sys/fs/cgroup/ds4/memory.max leaves 512.00 MiB"), "{refused}");
    let raise = refused.remedies.iter().find(|remedy| remedy.action.starts_with("raise ")).unwrap();
    assert_eq!(raise.recovers, Bytes(Bytes::gib(64).0 - Bytes::mib(512).0));
    assert!(!refused.to_string().contains("stop pid"), "nobody knows who is in the group: {refused}");
}

#[test]
fn the_table_shows_terms_budget_and_what_is_missing() {
    let group = GroupLimit { file: "/ds4/memory.high".into(), limit: Bytes::mib(800), used: Bytes::ZERO };
    let table = check(Bytes::gib(4), vec![group]).to_string();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("term"), "{table}");
    assert!(lines[1].starts_with("base weights") && lines[1].ends_with("plan: 2 ranges"), "{table}");
    assert!(lines[7].starts_with("budget") && lines[7].ends_with("/ds4/memory.high"), "{table}");
    assert!(lines[8].ends_with("not the limit: MemAvailable"), "{table}");
    assert!(lines[9].starts_with("missing"), "{table}");
}

#[test]
fn leaving_out_the_second_model_is_a_remedy_of_its_size() {
    let plan = pair();
    let tight = machine(Bytes::gib(1), Vec::new());
    let tight = Machine { processes: Vec::new(), ..tight };
    let found = preflight(&plan, staging_bytes(1), HOST_RESERVE, Bytes::ZERO, &tight).unwrap();
    let mtp = found.remedies.iter().find(|remedy| remedy.action == "leave out --mtp").unwrap();
    assert_eq!(mtp.recovers, found.rows[1].bytes);
}

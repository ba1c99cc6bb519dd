use std::{cell::RefCell, fs, time::Duration};

use virtfleet_agent_core::pass::{RunOutcome, Stage, StepPlan, status_line};
use virtfleet_agent_host::{
    Change, CommandError, REQUEST_DIRECTORY, Roots, Service, Services, is_root, lock_within,
};
use virtfleet_agent_state::{
    GUEST_RECORD, StateError,
    settings::{self, LoadedSettings},
};
use virtfleet_wire::duration::Span;

use super::{
    guest::Report,
    stages::{ApplyError, apply_within, lock_timeout},
    *,
};

const GOOD: &str = "server: {listeners: [{name: default, address: \"127.0.0.1:0\", plain: true}]}\n";
const BOOT: &str = "11111111-2222-3333-4444-555555555555";

struct Machine {
    dir: tempfile::TempDir,
    roots: Roots,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().join("root"),
            procfs: dir.path().join("proc"),
            sysfs: dir.path().join("sys"),
            udev_data: dir.path().join("udev"),
        };
        let machine = Self { dir, roots };
        machine.write("proc/sys/kernel/random/boot_id", &format!("{BOOT}\n"));
        machine.settings(GOOD);
        machine
    }
    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fn settings(&self, text: &str) {
        let head = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n";
        self.write("root/etc/virtfleet/agent.yaml", &format!("{head}{text}"));
    }
    fn load(&self) -> LoadedSettings {
        settings::load(&self.roots, None)
    }
    fn pass(&self, services: &dyn Services, table: &[Step], stages: &[Stage]) -> Vec<Applied> {
        let lock_timeout = Duration::from_secs(20);
        apply_within(
            &self.roots,
            &|| self.load(),
            Some(services),
            table,
            stages,
            lock_timeout,
            &mut |_| {},
        )
        .unwrap()
    }
    /// Outcome and message of the step `settings` in a reconcile run.
    fn settings_step(&self, services: &Systemd) -> (RunOutcome, String) {
        let steps = &self.pass(services, STEPS, &[Stage::Reconcile])[0].record.steps;
        let step = steps.iter().find(|step| step.name == "settings").unwrap();
        (step.outcome, step.message.clone())
    }
}

/// A systemd with only the agent's service.
struct Systemd {
    service: Service,
    changes: RefCell<Vec<Change>>,
}

impl Systemd {
    fn running(digest: &str) -> Self {
        let service = Service {
            loaded: true,
            active: "active".into(),
            status: status_line(digest),
            ..Service::default()
        };
        Self {
            service,
            changes: RefCell::default(),
        }
    }
}

impl Services for Systemd {
    fn show(&self, _: &str) -> Result<Service, CommandError> {
        Ok(self.service.clone())
    }
    fn change(&self, _: &str, change: Change) -> Result<(), CommandError> {
        self.changes.borrow_mut().push(change);
        Ok(())
    }
}

const PROVISION: &[Stage] = &[Stage::Provision];

fn step(name: &'static str, needs: &'static [&'static str], run: fn(&mut Guest<'_>) -> Report) -> Step {
    Step {
        plan: StepPlan {
            name,
            stages: PROVISION,
            needs,
        },
        about: "",
        run,
    }
}

#[test]
fn a_failing_step_stops_only_the_steps_that_need_it() {
    let machine = Machine::new();
    let ok = |_: &mut Guest<'_>| Report::new(RunOutcome::Ok, "done\nand more");
    let table = [
        step("fails", &[], |_| Report::new(RunOutcome::Failed, "no")),
        step("panics", &[], |_| panic!("odd")),
        step("runs", &[], ok),
        step("needs", &["fails"], ok),
        step("needs-that", &["needs"], ok),
    ];
    let passes = machine.pass(&Systemd::running(""), &table, &[Stage::Provision]);
    let words = passes[0].record.steps.iter().map(|step| step.outcome.word());
    let outcomes: Vec<_> = words.collect();
    assert_eq!(outcomes, ["failed", "failed", "ok", "skipped", "skipped"]);
    assert_eq!(passes[0].record.outcome, RunOutcome::Failed);
    let text = text(&passes);
    assert!(
        text.contains("ok       provision runs: done and more\n"),
        "{text}"
    );
    assert!(
        text.contains("skipped  provision needs: not run: fails must succeed first\n"),
        "{text}"
    );
    let record = GUEST_RECORD.read(&machine.roots, BOOT).unwrap();
    assert_eq!(record.stages[&Stage::Provision], passes[0].record);
    assert!(matches!(
        GUEST_RECORD.read(&machine.roots, "other"),
        Err(StateError::OtherBoot)
    ));
}

#[test]
fn a_stage_without_steps_is_skipped_and_keeps_what_others_recorded() {
    let machine = Machine::new();
    let table = [step("a", &[], |_| Report::new(RunOutcome::Ok, ""))];
    machine.pass(&Systemd::running(""), &table, &[Stage::Provision]);
    let passes = machine.pass(&Systemd::running(""), &table, &[Stage::Dns]);
    assert_eq!(passes[0].record.outcome, RunOutcome::Skipped);
    assert!(text(&passes).starts_with("skipped  dns: this version"));
    let record = GUEST_RECORD.read(&machine.roots, BOOT).unwrap();
    assert_eq!(record.stages.len(), 2);
    machine.write("proc/sys/kernel/random/boot_id", "another\n");
    machine.pass(&Systemd::running(""), &table, &[Stage::Dns]);
    let record = GUEST_RECORD.read(&machine.roots, "another").unwrap();
    assert_eq!(record.stages.len(), 1, "the record starts again with each boot");
}

#[test]
fn only_a_reconcile_run_takes_the_requests() {
    let machine = Machine::new();
    machine.write("root/run/virtfleet/ask/device", "");
    let request = machine.roots.root(REQUEST_DIRECTORY).join("device");
    let passes = machine.pass(&Systemd::running(""), &[], &[Stage::Provision, Stage::Dns]);
    assert!(request.exists() && passes.iter().all(|pass| pass.record.triggers.is_empty()));
    let passes = machine.pass(&Systemd::running(""), &[], &[Stage::Reconcile]);
    assert_eq!(passes[0].record.triggers, ["device"]);
    assert!(!request.exists());
    machine.write("root/run/virtfleet/ask/full/x", "");
    let passes = machine.pass(&Systemd::running(""), &[], &[Stage::Reconcile]);
    assert_eq!(
        passes[0].record.outcome,
        RunOutcome::Failed,
        "a request that cannot be removed is reported"
    );
}

#[test]
fn concurrent_runs_wait_for_each_other() {
    let machine = Machine::new();
    let path = machine.roots.root("/run/virtfleet/apply.lock");
    let held = lock_within(&path, Duration::from_secs(20)).unwrap();
    let short = Duration::from_millis(50);
    let result = apply_within(
        &machine.roots,
        &|| machine.load(),
        None,
        &[],
        &Stage::ALL,
        short,
        &mut |_| {},
    );
    assert!(matches!(result, Err(ApplyError::Lock(_))), "{result:?}");
    drop(held);
    let long = Duration::from_secs(20);
    apply_within(
        &machine.roots,
        &|| machine.load(),
        None,
        &[],
        &Stage::ALL,
        long,
        &mut |_| {},
    )
    .unwrap();
}

#[test]
fn a_stage_waits_for_less_than_half_of_what_its_unit_may_take() {
    let limit = |unit: &str| {
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix("TimeoutStartSec="));
        let text = line.unwrap().replace("min", "m");
        text.parse::<Span>().unwrap().0
    };
    for (stage, unit) in [
        (
            Stage::Provision,
            include_str!("../../../packaging/systemd/virtfleet-provision.service"),
        ),
        (
            Stage::Dns,
            include_str!("../../../packaging/systemd/virtfleet-dns.service"),
        ),
        (
            Stage::Reconcile,
            include_str!("../../../packaging/systemd/virtfleet-reconcile.service"),
        ),
    ] {
        assert!(lock_timeout(&[stage]) < limit(unit) / 2, "{stage:?}");
    }
}

#[test]
fn a_stage_whose_wait_ends_leaves_a_request() {
    let machine = Machine::new();
    if !is_root() {
        return;
    }
    fs::create_dir_all(machine.roots.root(REQUEST_DIRECTORY)).unwrap();
    let held = lock_within(&machine.roots.root(LOCK_FILE), Duration::from_secs(20)).unwrap();
    let request = machine.roots.root(REQUEST_DIRECTORY).join("agent");
    let give_up = |stages: &[Stage]| {
        let none = Some(Duration::ZERO);
        let services = Systemd::running("");
        let result = apply(
            &machine.roots,
            &|| machine.load(),
            &services,
            &[],
            stages,
            none,
            &mut |_| {},
        );
        assert!(matches!(result, Err(ApplyError::Lock(_))), "{result:?}");
    };
    // An admin sees the error and runs it again.
    give_up(&Stage::ALL);
    assert!(!request.exists());
    give_up(&[Stage::Reconcile]);
    assert!(request.exists());
    drop(held);
}

#[test]
fn the_agent_is_restarted_once_for_changed_settings() {
    let machine = Machine::new();
    let before = machine.load().digest();
    let systemd = Systemd::running(&before);
    assert_eq!(machine.settings_step(&systemd).0, RunOutcome::Ok);
    assert!(systemd.changes.borrow().is_empty());

    machine.settings(&format!("{GOOD}log: {{level: debug}}\n"));
    let (outcome, message) = machine.settings_step(&systemd);
    assert_eq!(outcome, RunOutcome::Ok, "{message}");
    assert_eq!(*systemd.changes.borrow(), [Change::RestartIfRunning]);
    // It restarts with the old settings because it cannot read the new ones. Further restarts would
    // not help.
    let (outcome, message) = machine.settings_step(&systemd);
    assert!(
        outcome == RunOutcome::Failed && message.contains("journalctl"),
        "{message}"
    );
    assert_eq!(systemd.changes.borrow().len(), 1);
    // It restarts with the new settings, and the next change restarts it again.
    let systemd = Systemd::running(&machine.load().digest());
    assert_eq!(machine.settings_step(&systemd).0, RunOutcome::Ok);
    machine.settings(GOOD);
    assert_eq!(machine.settings_step(&systemd).0, RunOutcome::Ok);
    assert_eq!(*systemd.changes.borrow(), [Change::RestartIfRunning]);
}

#[test]
fn invalid_settings_do_not_restart_the_agent_and_are_recorded() {
    let machine = Machine::new();
    let systemd = Systemd::running(&machine.load().digest());
    machine.settings(&format!(
        "{GOOD}metrics:\n  collectors: {{cpu: maybe}}\nlog: {{level: debug}}\n"
    ));
    let (outcome, message) = machine.settings_step(&systemd);
    assert_eq!(outcome, RunOutcome::Failed);
    assert!(
        message.contains("/etc/virtfleet/agent.yaml:5: metrics.collectors.cpu"),
        "{message}"
    );
    assert!(systemd.changes.borrow().is_empty());
    let record = GUEST_RECORD.read(&machine.roots, BOOT).unwrap();
    let steps = &record.stages[&Stage::Reconcile].steps;
    let problem = &steps
        .iter()
        .find(|step| step.name == "settings")
        .unwrap()
        .problems[0];
    assert_eq!(
        (problem.file.as_str(), problem.line, problem.path.as_str()),
        ("/etc/virtfleet/agent.yaml", 5, "metrics.collectors.cpu")
    );
}

#[test]
fn a_failed_agent_is_started_once_its_settings_are_valid() {
    let machine = Machine::new();
    let systemd = Systemd {
        service: Service {
            active: "failed".into(),
            result: "exit-code".into(),
            exit_code: 78,
            ..Systemd::running("").service
        },
        changes: RefCell::default(),
    };
    machine.settings_step(&systemd);
    assert_eq!(*systemd.changes.borrow(), [Change::Start]);
}

#[test]
fn the_services_of_this_machine_are_not_touched_for_another_root_filesystem() {
    let machine = Machine::new();
    let systemd = Systemd::running("");
    let result = apply(
        &machine.roots,
        &|| machine.load(),
        &systemd,
        STEPS,
        &[Stage::Reconcile],
        None,
        &mut |_| {},
    );
    if !is_root() {
        assert!(matches!(result, Err(ApplyError::NotRoot)));
        return;
    }
    let steps = &result.unwrap()[0].record.steps;
    assert!(steps[1].message.contains("no disk is declared"), "{steps:?}");
    assert!(steps[2].message.contains("queues are left alone"), "{steps:?}");
    assert!(steps[3].message.contains("resolver is left alone"), "{steps:?}");
    assert!(
        steps[4].message.contains("certificates of kubelet: 0"),
        "{steps:?}"
    );
    assert!(
        steps[5].message.contains("kubeletCertificate is not set"),
        "{steps:?}"
    );
    assert!(steps[6].message.contains("services are left alone"), "{steps:?}");
    assert!(systemd.changes.borrow().is_empty());
    assert_eq!(steps[0].outcome, RunOutcome::Ok, "{steps:?}");
    assert!(machine.roots.root("/run/virtfleet/state/identity.json").exists());
}

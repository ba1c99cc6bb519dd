mod fallback;
mod kubelet;
mod restore;
mod rewritten;

use std::{cell::RefCell, fs, net::IpAddr, time::Duration};

use virtfleet_agent_core::{
    dns::{
        Plan,
        answers::{Answer, Purpose, QueryOutcome, Question},
        plan::RefusalKind,
        state::{DnsState, DnsStatus},
    },
    pass::Stage,
};
use virtfleet_agent_host::{FailPoints, FakeCommands, NoFailPoints, Roots, dns::DnsClient};
use virtfleet_agent_state::{
    DNS_STATE,
    settings::{
        self,
        dns::{Wanted, wanted},
    },
};
use virtfleet_wire::finding::Severity;

use super::*;
use crate::engine::{Mode, RunResult};

const BOOT: &str = "b";
const GOOD: &str = "192.0.2.1";
const CACHE: &str = "169.254.20.10";
const AUTO: &str = "dns: {manage: auto, config: {nameservers: [192.0.2.1]}}\n";
const REPORT: &str = "dns: {config: {nameservers: [192.0.2.1]}}\n";

/// A guest with a plain `/etc/resolv.conf` that names the cache's address.
struct Guest {
    dir: tempfile::TempDir,
    roots: Roots,
}

/// Decides which nameserver answers, given the current content of `/etc/resolv.conf`.
struct Answers<'a> {
    guest: &'a Guest,
    alive: fn(&str, &str) -> bool,
    asked: RefCell<usize>,
}

impl DnsClient for Answers<'_> {
    fn query(&self, questions: &[Question], _: Duration) -> Vec<Answer> {
        *self.asked.borrow_mut() += questions.len();
        let conf = self.guest.resolv_conf();
        let answer = |question: &Question| Answer {
            question: question.clone(),
            outcome: match question.purpose {
                _ if !(self.alive)(&question.nameserver.to_string(), &conf) => QueryOutcome::Timeout,
                Purpose::Random => QueryOutcome::NoSuchName,
                _ => QueryOutcome::Addresses { count: 1 },
            },
            micros: 900,
        };
        questions.iter().map(answer).collect()
    }
}

impl Guest {
    fn new(settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().join("root"),
            procfs: dir.path().join("proc"),
            sysfs: dir.path().join("sys"),
            udev_data: dir.path().join("udev"),
        };
        let guest = Self { dir, roots };
        guest.write("proc/net/fib_trie", "Main:\n");
        guest.write("root/etc/resolv.conf", &format!("nameserver {CACHE}\n"));
        guest.settings(settings);
        guest
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

    fn resolv_conf(&self) -> String {
        fs::read_to_string(self.dir.path().join("root/etc/resolv.conf")).unwrap_or_default()
    }

    fn wanted(&self) -> Wanted {
        wanted(&self.roots, &settings::load(&self.roots, None))
    }

    fn with<T>(&self, alive: fn(&str, &str) -> bool, run: impl FnOnce(&DnsProvisioner<'_>) -> T) -> T {
        let commands = FakeCommands::content();
        let dns_client = Answers {
            guest: self,
            alive,
            asked: RefCell::default(),
        };
        run(&DnsProvisioner {
            roots: &self.roots,
            commands: &commands,
            fail_points: &NoFailPoints,
            dns_client: &dns_client,
            boot_id: BOOT,
            settle: Duration::ZERO,
            network_wait: Duration::ZERO,
        })
    }

    fn pass(&self, alive: fn(&str, &str) -> bool, how: DnsMode<'_>) -> RunResult<Plan, DnsState> {
        self.with(alive, |provisioner| {
            provisioner.run(&self.wanted(), how).unwrap().unwrap()
        })
    }
}

fn by_stage() -> DnsMode<'static> {
    Mode::of_stage(Stage::Reconcile, None)
}

fn all(_: &str, _: &str) -> bool {
    true
}

#[test]
fn a_future_collision_is_removed_once() {
    let guest = Guest::new(AUTO);
    let passed = guest.pass(all, by_stage());
    assert!(passed.changed, "{:?}", passed.state);
    assert_eq!(passed.state.standing, DnsStatus::Verified);
    assert!(guest.resolv_conf().contains(&format!("nameserver {GOOD}\n")));
    assert!(!guest.resolv_conf().contains(CACHE), "{}", guest.resolv_conf());
    let kept = DNS_STATE.read(&guest.roots, BOOT).unwrap();
    assert_eq!(kept, passed.state);
    assert_eq!((kept.changes, kept.rollbacks), (1, 0));
    assert!(kept.verified_after_ms.is_some() && kept.verified_at_boottime_ms.is_some());
    let good = virtfleet_agent_host::dns::last_good(&guest.roots)
        .unwrap()
        .unwrap();
    assert_eq!(good.nameservers, [GOOD.parse::<IpAddr>().unwrap()]);
    // A second run has nothing to do, and the figure of this boot stays.
    let again = guest.pass(all, by_stage());
    assert!(!again.changed);
    assert_eq!(again.state.changes, 1);
    assert_eq!(again.state.verified_at_boottime_ms, kept.verified_at_boottime_ms);
    // `off` restores what was there.
    guest.settings("dns: {manage: off}\n");
    let off = guest.pass(all, by_stage());
    assert_eq!(off.state.standing, DnsStatus::Off);
    assert_eq!(guest.resolv_conf(), format!("nameserver {CACHE}\n"));
}

#[test]
fn report_only_changes_nothing_until_an_admin_applies() {
    let guest = Guest::new(REPORT);
    let before = guest.resolv_conf();
    let passed = guest.pass(all, by_stage());
    assert_eq!(passed.state.standing, DnsStatus::Colliding);
    assert!(!passed.changed);
    assert_eq!(guest.resolv_conf(), before);
    let plan = guest.with(all, |provisioner| {
        provisioner.plan(&guest.wanted().asked).unwrap().plan
    });
    // A plan whose observations have changed is not applied.
    let expected = Mode::of_admin(Some(&plan));
    let dead = guest.with(
        |who, _| who == CACHE,
        |provisioner| provisioner.run(&guest.wanted(), expected).unwrap(),
    );
    assert_eq!(dead, None);
    assert_eq!(guest.resolv_conf(), before);
    let passed = guest.pass(all, expected);
    assert_eq!(
        (passed.changed, passed.state.standing),
        (true, DnsStatus::Verified)
    );
}

#[test]
fn invalid_settings_do_not_undo_the_configuration() {
    let guest = Guest::new(AUTO);
    guest.pass(all, by_stage());
    let written = guest.resolv_conf();
    for wrong in [
        "dns: {manage: auto, config: {nameservers: [nonsense]}}\n",
        "dns: {manage: of}\n",
        "dns: {manage: off, config: {nameservers: [nonsense]}}\n",
        "dns: [\n",
    ] {
        guest.settings(wrong);
        let passed = guest.pass(all, by_stage());
        assert!(!passed.changed, "{wrong}");
        assert_eq!(guest.resolv_conf(), written, "{wrong}");
        let kinds: Vec<_> = passed.state.refusals.iter().map(|one| one.kind).collect();
        assert!(
            !kinds.is_empty() && kinds.iter().all(|kind| *kind == RefusalKind::Settings),
            "{wrong}: {kinds:?}"
        );
        assert!(passed.state.findings.iter().any(|one| one.id == "dns-settings"));
        // An admin's run does not either.
        assert!(!guest.pass(all, Mode::of_admin(None)).changed);
        assert_eq!(guest.resolv_conf(), written, "{wrong}");
    }
}

#[test]
fn a_failed_change_is_rolled_back_and_retried_only_after_a_delay() {
    let guest = Guest::new(AUTO);
    let before = guest.resolv_conf();
    let until_written: fn(&str, &str) -> bool = |who, conf| who != GOOD || !conf.contains(GOOD);
    let passed = guest.pass(until_written, by_stage());
    assert_eq!(passed.state.standing, DnsStatus::RolledBack);
    assert_eq!(guest.resolv_conf(), before);
    assert_eq!((passed.state.changes, passed.state.rollbacks), (0, 1));
    assert!(
        passed
            .state
            .error
            .as_ref()
            .unwrap()
            .contains("restored the previous")
    );
    assert!(
        passed
            .state
            .findings
            .iter()
            .any(|one| one.id == "dns-rolled-back")
    );
    // The run that our own write triggers does not retry.
    let again = guest.pass(until_written, by_stage());
    assert_eq!(
        (again.state.rollbacks, again.state.standing),
        (1, DnsStatus::RolledBack)
    );
    // A run that has nothing to do keeps the rollback in the record.
    let unanswered = guest.pass(|_, _| false, by_stage());
    assert_eq!(unanswered.state.standing, DnsStatus::Broken);
    assert_eq!(guest.pass(until_written, by_stage()).state.rollbacks, 1);
    // After the delay, or in an admin's run, it is tried again.
    let mut old = again.state.clone();
    old.put_back_at_boottime_ns = 0;
    old.put_back.clear();
    DNS_STATE.write(&guest.roots, &old).unwrap();
    let verified = guest.pass(all, by_stage());
    assert_eq!(verified.state.standing, DnsStatus::Verified);
    assert!(verified.state.put_back.is_empty());
}

#[test]
fn nothing_is_written_when_nothing_answers() {
    let guest = Guest::new(AUTO);
    let before = guest.resolv_conf();
    let passed = guest.pass(|_, _| false, by_stage());
    assert_eq!(passed.state.standing, DnsStatus::Broken);
    assert_eq!(guest.resolv_conf(), before);
    assert!(failed(&passed.state));
    assert!(
        passed
            .state
            .summary()
            .starts_with("broken; 169.254.20.10 by /etc/resolv.conf; ")
    );
}

#[test]
fn a_guest_without_a_nameserver_is_reported_and_does_not_delay() {
    let guest = Guest::new("dns: {manage: auto}\n");
    guest.write("root/etc/resolv.conf", "");
    let passed = guest.pass(all, by_stage());
    assert_eq!(passed.state.standing, DnsStatus::Broken);
    assert!(!failed(&passed.state) && !passed.changed);
    let worst = passed.state.findings.iter().map(|one| one.severity).max();
    assert_eq!(worst, Some(Severity::Warning), "{:?}", passed.state.findings);
    // A requested nameserver that does not answer does delay.
    guest.settings(AUTO);
    assert!(failed(&guest.pass(|_, _| false, by_stage()).state));
}

#[test]
fn a_failed_observation_is_reported_and_keeps_the_last_state() {
    let guest = Guest::new(AUTO);
    guest.pass(all, by_stage());
    fs::remove_file(guest.dir.path().join("proc/net/fib_trie")).unwrap();
    let error = guest.with(all, |provisioner| {
        provisioner.run(&guest.wanted(), by_stage()).unwrap_err()
    });
    assert!(error.to_string().contains("addresses are unknown"), "{error}");
    let state = DNS_STATE.read(&guest.roots, BOOT).unwrap();
    assert_eq!(state.standing, DnsStatus::Unknown);
    assert_eq!(state.effective.nameservers, [GOOD.parse::<IpAddr>().unwrap()]);
    assert!(state.findings.iter().any(|one| one.id == "dns-pass-failed"));
}

/// systemd-resolved whose link keeps its server whatever we write, because of another drop-in or
/// NetworkManager.
#[test]
fn a_change_for_the_better_stays_and_one_for_the_worse_is_rolled_back() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let upstreams = "root/run/systemd/resolve/resolv.conf";
    let run = |before: &str, left: &'static str| {
        let guest = Guest::new(AUTO);
        let etc = guest.dir.path().join("root/etc/resolv.conf");
        fs::remove_file(&etc).unwrap();
        symlink("../run/systemd/resolve/resolv.conf", &etc).unwrap();
        guest.write(upstreams, &format!("nameserver {before}\n"));
        for tool in ["systemctl", "resolvectl"] {
            let path = format!("root/usr/bin/{tool}");
            guest.write(&path, "");
            fs::set_permissions(guest.dir.path().join(path), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let (file, ours) = (
            guest.dir.path().join(upstreams),
            guest.roots.root(virtfleet_agent_core::dns::ours::RESOLVED),
        );
        let original = before.to_owned();
        let commands = FakeCommands::new(move |line| {
            if line.starts_with("systemctl try-reload") {
                let own = if ours.exists() { GOOD } else { &original };
                fs::write(&file, format!("nameserver {own}\nnameserver {left}\n")).unwrap();
            }
            Some(virtfleet_agent_host::CommandOutput::default())
        });
        let dns_client = Answers {
            guest: &guest,
            alive: all,
            asked: RefCell::default(),
        };
        let provisioner = DnsProvisioner {
            roots: &guest.roots,
            commands: &commands,
            fail_points: &NoFailPoints,
            dns_client: &dns_client,
            boot_id: BOOT,
            settle: Duration::ZERO,
            network_wait: Duration::ZERO,
        };
        let passed = provisioner.run(&guest.wanted(), by_stage()).unwrap().unwrap();
        (passed.state.standing, passed.state.rollbacks, passed.state.error)
    };
    let (standing, rollbacks, error) = run(CACHE, CACHE);
    assert_eq!((standing, rollbacks), (DnsStatus::Colliding, 0), "{error:?}");
    let (standing, rollbacks, error) = run("192.0.2.9", CACHE);
    assert_eq!((standing, rollbacks), (DnsStatus::RolledBack, 1), "{error:?}");
}

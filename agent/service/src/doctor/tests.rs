use virtfleet_agent_core::dns::{
    ResolvConf,
    answers::{Health, Judged},
    collision::{Collision, CollisionKind},
    state::DnsStatus,
};
use virtfleet_agent_core::pass::{RunOutcome as PassOutcome, Stage, StageRecord, StepRecord};
use virtfleet_agent_host::Roots;
use virtfleet_agent_state::{settings, virtio::sample};
use virtfleet_wire::{report::Clock, settings::NicSettings};

use super::*;

const NOW: u64 = 1_800_000_000;

/// A healthy machine.
pub(super) fn healthy() -> Seen {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots {
        rootfs: dir.path().to_owned(),
        ..Roots::default()
    };
    let mut settings = settings::load(&roots, None);
    settings.problems.clear();
    let pem = |key, content| PemFile {
        key,
        path: format!("/etc/virtfleet/{key}.pem"),
        content,
    };
    let valid = Ok(Some(Validity {
        not_before: NOW - 1,
        not_after: NOW + 90 * 86_400,
    }));
    Seen {
        settings,
        pem: vec![pem("certificate", valid), pem("key", Ok(None))],
        tls: None,
        enrolment: None,
        way: None,
        listeners: vec![ListenerSeen {
            name: "default".into(),
            address: "[::]:10911".into(),
            port: Port::Free,
            held_by_root: false,
        }],
        agent_pid: None,
        roots: vec![("--path.procfs", "/proc".into(), Ok(()))],
        missing: Vec::new(),
        vendor: Some("KubeVirt".into()),
        boot_id: "0b9f0b8e".into(),
        state: Ok(StateSeen {
            age_ms: 120_000,
            this_boot: true,
        }),
        passes: Ok(passes()),
        dns: Ok(dns_state()),
        disks: Ok(DisksState::default()),
        duplicates: Vec::new(),
        virtio: Virtio::of(sample::healthy(), None, None, &NicSettings::default()),
        drop_ins: vec![("kubelet.service", true)],
        clock: Clock {
            realtime_ns: NOW * 1_000_000_000,
            boottime_ns: 3600 * 1_000_000_000,
            ..Clock::default()
        },
        collectors: vec![CollectorRun {
            name: "cpu".into(),
            result: Ok(16),
        }],
    }
}

/// DNS state with one nameserver, which answers.
fn dns_state() -> DnsState {
    let nameserver = "10.96.0.10".parse().unwrap();
    let conf = ResolvConf {
        nameservers: vec![nameserver],
        ..ResolvConf::default()
    };
    DnsState {
        standing: DnsStatus::Verified,
        effective: conf.clone(),
        asked: conf,
        judged: vec![Judged {
            nameserver,
            health: Health::Healthy,
            because: "answers in 2 ms".into(),
            micros: Some(1500),
            answers: Vec::new(),
        }],
        ..DnsState::default()
    }
}

/// Every stage has run, a minute ago.
fn passes() -> GuestRecord {
    let mut record = GuestRecord::new("0b9f0b8e");
    for stage in Stage::ALL {
        let step = StepRecord {
            name: "identity".into(),
            outcome: PassOutcome::Ok,
            message: "wrote it".into(),
            ..StepRecord::default()
        };
        let done = StageRecord {
            outcome: PassOutcome::Ok,
            ended_at_boottime_ns: 3540 * 1_000_000_000,
            steps: vec![step],
            ..StageRecord::default()
        };
        record.stages.insert(stage, done);
    }
    record
}

#[test]
fn a_healthy_machine_has_only_ok_lines() {
    let lines = check(&healthy());
    assert!(
        lines
            .iter()
            .all(|line| line.status == CheckStatus::Ok && line.next.is_empty()),
        "{lines:#?}"
    );
    assert!(!any_failed(&lines));
}

fn certificate(seen: &mut Seen, not_before: u64, not_after: u64) {
    seen.pem[0].content = Ok(Some(Validity {
        not_before,
        not_after,
    }));
}

type Harm = fn(&mut Seen);

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_problem_has_its_line_and_the_next_command() {
    let cases: [(Harm, CheckStatus, &str); 23] = [
        (
            |seen| seen.passes = Err("guest.json: no such file".into()),
            CheckStatus::Warn,
            "passes: guest.json: no such file",
        ),
        (
            |seen| seen.passes = Ok(GuestRecord::new("0b9f0b8e")),
            CheckStatus::Warn,
            "dns: has not run in this boot",
        ),
        (
            |seen| {
                let mut record = passes();
                let stage = record.stages.get_mut(&Stage::Provision).unwrap();
                stage.steps[0].outcome = PassOutcome::Failed;
                stage.steps[0].message = "no".into();
                seen.passes = Ok(record);
            },
            CheckStatus::Fail,
            "provision: 1 min ago, step identity failed: no",
        ),
        (
            |seen| seen.clock.boottime_ns = 90_000 * 1_000_000_000,
            CheckStatus::Warn,
            "reconcile: 1441 min ago",
        ),
        (
            |seen| seen.drop_ins[0].1 = false,
            CheckStatus::Warn,
            "drop-in kubelet.service: not there: the service may start before its disks and DNS are ready",
        ),
        (
            |seen| certificate(seen, 0, NOW - 86_400),
            CheckStatus::Fail,
            "tls certificate: /etc/virtfleet/certificate.pem: expired 1 d ago",
        ),
        (
            |seen| certificate(seen, 0, NOW + 86_400),
            CheckStatus::Warn,
            "tls certificate: /etc/virtfleet/certificate.pem: 1 d left",
        ),
        (
            |seen| certificate(seen, NOW + 1, NOW + 9),
            CheckStatus::Fail,
            "tls certificate: /etc/virtfleet/certificate.pem: not valid yet",
        ),
        (
            |seen| seen.pem[1].content = Err("permission denied".into()),
            CheckStatus::Fail,
            "tls key: /etc/virtfleet/key.pem: permission denied",
        ),
        (
            |seen| seen.tls = Some("c.pem cannot be used".into()),
            CheckStatus::Fail,
            "tls: the files do not match: c.pem cannot be used",
        ),
        (
            |seen| seen.settings.problems = vec![virtfleet_wire::layered::Problem::of_file("f", 3, "wrong")],
            CheckStatus::Fail,
            "settings: f:3: wrong",
        ),
        (
            |seen| seen.listeners[0].port = Port::InUse,
            CheckStatus::Fail,
            "listener default: [::]:10911: in use by another program",
        ),
        (
            |seen| {
                seen.listeners[0].port = Port::InUse;
                seen.listeners[0].held_by_root = true;
            },
            CheckStatus::Warn,
            "listener default: [::]:10911: held by root, as by virtfleet-agent.socket; virtfleet-agent does not run",
        ),
        (
            |seen| seen.listeners[0].port = Port::Refused("no such address".into()),
            CheckStatus::Fail,
            "listener default: [::]:10911: no such address",
        ),
        (
            |seen| seen.listeners.clear(),
            CheckStatus::Fail,
            "listeners: none can be served, so metrics and the report are not available",
        ),
        (
            |seen| seen.roots[0].2 = Err("no such file".into()),
            CheckStatus::Fail,
            "--path.procfs: /proc: no such file",
        ),
        (
            |seen| seen.roots[0] = ("--path.udev.data", "/u".into(), Err("no such file".into())),
            CheckStatus::Warn,
            "--path.udev.data: /u: no such file",
        ),
        (
            |seen| seen.vendor = None,
            CheckStatus::Warn,
            "platform: SMBIOS vendor is unknown, not KubeVirt: the collector may not know this machine",
        ),
        (
            |seen| {
                seen.missing = vec![Missing {
                    field: "smbiosUuid".into(),
                    reason: "/sys/x: permission denied".into(),
                }];
            },
            CheckStatus::Warn,
            "identity smbiosUuid: /sys/x: permission denied",
        ),
        (
            |seen| {
                seen.state = Ok(StateSeen {
                    age_ms: 0,
                    this_boot: false,
                });
            },
            CheckStatus::Warn,
            "state file: written in another boot",
        ),
        (
            |seen| seen.boot_id.clear(),
            CheckStatus::Warn,
            "boot id: cannot be read: a reboot will go unnoticed",
        ),
        (
            |seen| seen.clock.realtime_ns = 1,
            CheckStatus::Fail,
            "clock: before 2024: it was never set, and certificates will not be valid",
        ),
        (
            |seen| seen.collectors[0].result = Err("/proc/stat: no such file".into()),
            CheckStatus::Fail,
            "collector cpu: /proc/stat: no such file",
        ),
    ];
    for (harm, status, expected) in cases {
        let mut seen = healthy();
        harm(&mut seen);
        let lines = check(&seen);
        let found = lines
            .iter()
            .find(|line| format!("{}: {}", line.what, line.detail) == expected);
        let found = found.unwrap_or_else(|| panic!("no line {expected:?} in {lines:#?}"));
        assert_eq!(found.status, status, "{expected}");
        assert!(
            lines
                .iter()
                .all(|line| line.status == CheckStatus::Ok || !line.next.is_empty()),
            "{lines:#?}"
        );
        if status == CheckStatus::Fail {
            assert!(any_failed(&lines));
        }
    }
}

#[test]
fn a_port_that_a_running_agent_holds_is_fine() {
    let mut seen = healthy();
    seen.listeners[0].port = Port::InUse;
    seen.agent_pid = Some(7);
    assert!(!any_failed(&check(&seen)));
}

#[test]
fn lines_are_aligned_and_json_is_valid() {
    let mut seen = healthy();
    seen.boot_id.clear();
    seen.collectors[0].result = Err("a\u{1b}[31mb".into());
    let lines = check(&seen);
    let text = text(&lines);
    assert!(
        !text.contains("\u{1b}[31mb"),
        "a guest's escape sequences are not passed on"
    );
    insta::assert_snapshot!("doctor", anstream::adapter::strip_str(&text).to_string());
    let json: serde_json::Value = serde_json::to_value(&lines).unwrap();
    assert_eq!(json[0]["status"], "ok");
}

#[test]
fn this_machine_has_lines() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.yaml");
    let text = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  tls: {certificate: /nowhere}\n  \
                listeners: [{name: default, address: \"127.0.0.1:0\", plain: true}]\n";
    std::fs::write(&file, text).unwrap();
    let roots = Roots::default();
    let settings = settings::load(&roots, Some(&file));
    let seen = collect(&roots, settings, &|_, _| Ok(None), &|_| Ok(()), Vec::new);
    assert_eq!(seen.listeners[0].port, Port::Free);
    assert_eq!(seen.pem[0].content, Err("no such file".into()));
    assert!(any_failed(&check(&seen)));
}

#[test]
fn drop_ins_are_checked_for_installed_services() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots {
        rootfs: dir.path().to_owned(),
        ..Roots::default()
    };
    let write = |path: &str| {
        let path = roots.root(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    };
    let drop_ins = || {
        collect(
            &roots,
            settings::load(&roots, None),
            &|_, _| Ok(None),
            &|_| Ok(()),
            Vec::new,
        )
        .drop_ins
    };
    assert_eq!(drop_ins(), []);
    write("/usr/lib/systemd/system/kubelet.service");
    assert_eq!(drop_ins(), [("kubelet.service", false)]);
    write("/etc/systemd/system/kubelet.service.d/10-virtfleet.conf");
    assert_eq!(drop_ins(), [("kubelet.service", true)]);
}

#[test]
fn tls_files_are_loaded_together_if_each_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    for name in ["c", "k", "ca"] {
        std::fs::write(at(name), "x").unwrap();
    }
    let (c, k, ca) = (at("c"), at("k"), at("ca"));
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  \
         tls: {{certificate: {c}, key: {k}, clientCA: {ca}}}\n  listeners: [{{name: default, address: \"127.0.0.1:0\"}}]\n"
    );
    std::fs::write(at("agent.yaml"), text).unwrap();
    let tls = |good: bool| {
        let settings = settings::load(&Roots::default(), Some(&dir.path().join("agent.yaml")));
        let inspect = |_: &str, _: &[u8]| if good { Ok(None) } else { Err("no PEM".to_owned()) };
        let agree = |_: &_| Err("a key of another certificate".to_owned());
        collect(&Roots::default(), settings, &inspect, &agree, Vec::new).tls
    };
    assert_eq!(tls(true).as_deref(), Some("a key of another certificate"));
    assert_eq!(tls(false), None, "each file has its own line instead");
}

#[test]
fn dns_and_each_nameserver_have_a_line() {
    let lines = |seen: &Seen| -> Vec<CheckResult> {
        let of_dns = |line: &CheckResult| line.what == "resolver" || line.what.starts_with("nameserver ");
        check(seen).into_iter().filter(of_dns).collect()
    };
    let mut seen = healthy();
    let good = lines(&seen);
    assert_eq!(good.len(), 2);
    assert!(
        good.iter()
            .all(|line| line.status == CheckStatus::Ok && line.next.is_empty())
    );
    assert_eq!(good[0].detail, "verified; 10.96.0.10 by /etc/resolv.conf");
    assert_eq!(good[1].detail, "healthy: answers in 2 ms");

    let mut state = dns_state();
    state.standing = DnsStatus::Colliding;
    state.collisions = vec![Collision {
        nameserver: "10.96.0.10".parse().unwrap(),
        kind: CollisionKind::ServiceRange,
        now: false,
        with: "10.96.0.0/12".into(),
        given_by: "a lease".into(),
    }];
    seen.dns = Ok(state.clone());
    let warned = lines(&seen);
    assert!(
        warned
            .iter()
            .all(|line| line.status == CheckStatus::Warn && line.next.contains("plan dns"))
    );
    assert!(
        warned[1]
            .detail
            .starts_with("will collide with 10.96.0.0/12, from a lease; ")
    );

    state.standing = DnsStatus::Broken;
    seen.dns = Ok(state);
    assert_eq!(lines(&seen)[0].status, CheckStatus::Fail);
    seen.dns = Err("no such file".into());
    assert_eq!(lines(&seen).len(), 1);
    seen.settings.config.dns.manage = virtfleet_wire::settings::DnsManage::Off;
    assert_eq!(lines(&seen), []);
}

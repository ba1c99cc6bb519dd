use std::{cell::RefCell, fs, net::IpAddr, path::Path};

use virtfleet_agent_core::dns::{
    answers::{Answer, QueryOutcome, Question},
    resolv::ResolvConf,
    state::{DnsStatus, FORMAT},
};
use virtfleet_agent_host::REQUEST_DIRECTORY;
use virtfleet_wire::settings::DnsSettings;

use super::*;

/// Answers each question with the same.
struct Says(QueryOutcome, RefCell<Vec<Question>>);

impl DnsClient for Says {
    fn query(&self, questions: &[Question], _: Duration) -> Vec<Answer> {
        self.1.borrow_mut().extend(questions.iter().cloned());
        let each = questions.iter().cloned();
        each.map(|question| Answer {
            question,
            outcome: self.0.clone(),
            micros: 1500,
        })
        .collect()
    }
}

fn roots(at: &Path) -> Roots {
    Roots {
        rootfs: at.to_owned(),
        procfs: at.join("proc"),
        ..Roots::default()
    }
}

fn write(at: &Path, path: &str, text: &str) {
    let path = at.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Changes between the run at boot and the start of the watch are not observed.
#[test]
fn a_run_is_requested_at_the_start_unless_the_last_one_found_all_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let roots = roots(dir.path());
    fs::create_dir_all(roots.root(REQUEST_DIRECTORY)).unwrap();
    let request = roots.root(REQUEST_DIRECTORY).join("dns");
    let settings = virtfleet_agent_state::settings::load(&roots, None);
    let begin = || {
        start(&roots, &settings, &DnsHistory::default()).unwrap();
        let asks = request.exists();
        fs::remove_file(&request).ok();
        asks
    };
    write(dir.path(), "proc/sys/kernel/random/boot_id", "b\n");
    assert!(begin());
    let mut state = DnsState {
        v: FORMAT,
        boot_id: "b".into(),
        standing: DnsStatus::Broken,
        ..DnsState::default()
    };
    let mut found = |standing| {
        state.standing = standing;
        write(
            dir.path(),
            "run/virtfleet/state/dns.json",
            &serde_json::to_string(&state).unwrap(),
        );
    };
    found(DnsStatus::Broken);
    assert!(begin());
    found(DnsStatus::Verified);
    assert!(!begin());
}

#[test]
fn nameservers_in_use_are_probed_and_root_learns_when_one_is_down() {
    let dir = tempfile::tempdir().unwrap();
    let roots = roots(dir.path());
    let write = |path: &str, text: &str| write(dir.path(), path, text);
    write("proc/sys/kernel/random/boot_id", "b\n");
    fs::create_dir_all(roots.root(REQUEST_DIRECTORY)).unwrap();
    let nameserver: IpAddr = "192.0.2.1".parse().unwrap();
    let state = DnsState {
        v: FORMAT,
        boot_id: "b".into(),
        standing: DnsStatus::Verified,
        effective: ResolvConf {
            nameservers: vec![nameserver],
            ..ResolvConf::default()
        },
        judged: vec![virtfleet_agent_core::dns::answers::Judged {
            nameserver,
            health: virtfleet_agent_core::dns::answers::Health::Healthy,
            because: String::new(),
            micros: Some(1),
            answers: Vec::new(),
        }],
        ..DnsState::default()
    };
    write(
        "run/virtfleet/state/dns.json",
        &serde_json::to_string(&state).unwrap(),
    );
    let asked = virtfleet_agent_core::dns::asked::check(&DnsSettings::default(), None).unwrap();
    let history = DnsHistory::default();
    let mut watch = DnsWatch::new(&roots, asked, history.clone());
    let silence = Says(QueryOutcome::Timeout, RefCell::default());
    for minute in 0..20 {
        let now = Duration::from_mins(2) * minute;
        watch.round(now, &silence, &mut || 0);
    }
    let questions = silence.1.into_inner();
    assert_eq!(questions.len(), 20);
    assert!(questions.iter().all(|one| one.name == "cluster.local"));
    let heard = history.snapshot();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].results.len(), 10);
    assert_eq!(heard[0].outcomes["timeout"], 20);
    let last = heard[0].last().unwrap();
    assert_eq!((last.good, last.micros), (false, None));
    assert!(roots.root(REQUEST_DIRECTORY).join("dns").exists());

    let good = Says(QueryOutcome::NoSuchName, RefCell::default());
    watch.round(Duration::from_hours(2), &good, &mut || 0);
    let heard = history.snapshot();
    assert_eq!(heard[0].last().unwrap().micros, Some(1500));
    // A nameserver that is not in use any more is not shown.
    fs::remove_file(roots.root(DNS_STATE.path)).unwrap();
    watch.round(Duration::from_hours(3), &good, &mut || 0);
    assert_eq!(history.snapshot(), []);
}

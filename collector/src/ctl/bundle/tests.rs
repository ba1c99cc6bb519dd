//! The archive has what it should have, and no secret.

use std::{collections::BTreeMap, io::Read as _, sync::Arc};

use clap::Parser as _;
use flate2::read::GzDecoder;
use virtfleet_collector_core::view::VmView;
use virtfleet_wire::finding::{Finding, Severity};

use serde_json::Value;

use super::*;
use crate::{
    api::{
        self,
        testing::{self, NOW, TestFleet},
    },
    ctl::{cli::Program, tests::Server},
};

/// Secrets of each kind that a text could quote.
const PLANTED: [&str; 6] = [
    "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIPLANTED1\n-----END EC PRIVATE KEY-----",
    "eyJhbGciOiJSUzI1NiJ9.eyJQTEFOVEVEMiI6MX0.UExBTlRFRDI",
    "vft1.3f9c1a7be204.abcdefabcdef",
    "Bearer PLANTED4PLANTED4",
    "https://admin:PLANTED5@registry.example",
    "client-key-data: LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tPLANTED7",
];

/// Parts of the secrets.
const TRACES: [&str; 7] = [
    "PLANTED",
    "PRIVATE KEY",
    "MHcCAQEE",
    "eyJ",
    "vft1.",
    "UExBTlRFRDI",
    "LS0tLS1",
];

/// A server whose VMs and findings quote the secrets.
fn server() -> Server {
    let mut fleet = testing::fleet();
    let text = PLANTED.join(" then ");
    for vm in fleet.vms.values_mut() {
        let mut view = VmView::clone(vm);
        view.health.message.clone_from(&text);
        *vm = Arc::new(view);
    }
    let finding = Finding::new("x", Severity::Critical, ("Manifest", "f"), "R", text.clone());
    fleet
        .findings
        .push(finding.with("clientSecret", "PLANTED6").remedy(text));
    let fleet = TestFleet::new(fleet);
    Server::serving(api::router(testing::state(fleet.clone())), fleet)
}

/// Exit code, output, and the files of the archive by name.
fn bundle(more: &[&str]) -> (String, BTreeMap<String, String>) {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.tar.gz");
    let url = server.url();
    let mut all = vec![
        "virtfleetctl",
        "support-bundle",
        "--server",
        &url,
        "-o",
        file.to_str().unwrap(),
    ];
    all.extend(more);
    let program = Program::try_parse_from(all).unwrap();
    let super::super::cli::TopLevelCommand::SupportBundle { args } = program.command else {
        panic!("another command");
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console {
        out: &mut out,
        err: &mut err,
        colour: false,
        terminal: false,
        now: || NOW,
    };
    run(&args, &program.connection, &mut console).unwrap();
    let again = run(&args, &program.connection, &mut console)
        .unwrap_err()
        .to_string();
    assert!(again.contains("cannot write") && again.contains("-o"), "{again}");
    let packed = std::fs::read(&file).unwrap();
    (String::from_utf8(out).unwrap(), unpack(&packed))
}

/// The files of an archive by name.
fn unpack(packed: &[u8]) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(GzDecoder::new(packed));
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let name = path.split_once('/').unwrap().1.to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(name, text);
    }
    files
}

#[test]
fn logs_are_packed_without_secrets() {
    let log = format!(
        "INFO begins\n{}\nINFO goes on vm=cluster-a/worker-0\n",
        PLANTED.join("\n")
    );
    let part = BundlePart {
        name: "logs/c-1.txt".to_owned(),
        about: "log",
        content: PartContent::Text(log),
    };
    let files = unpack(&pack("x", vec![part], &[], false, NOW).unwrap());
    let log = &files["logs/c-1.txt"];
    for part in TRACES {
        assert!(!log.contains(part), "{part}: {log}");
    }
    assert!(
        log.starts_with("INFO begins\n") && log.ends_with("INFO goes on vm=cluster-a/worker-0\n"),
        "{log}"
    );
    assert!(files["CONTENTS.txt"].contains("logs/c-1.txt"), "{files:?}");
}

#[test]
fn planted_secrets_are_not_in_the_archive() {
    let (out, files) = bundle(&[]);
    for (name, text) in &files {
        for part in TRACES {
            assert!(!text.contains(part), "{part} in {name}: {text}");
        }
    }
    for name in [
        "CONTENTS.txt",
        "versions.json",
        "status.json",
        "vms.json",
        "hosts.json",
        "clusters.json",
        "findings.json",
        "events.json",
        "migrations.json",
        "metrics.txt",
        "metrics-fleet.txt",
        "worst-vms/01.json",
    ] {
        assert!(files.contains_key(name), "{name} in {:?}", files.keys());
        let contents = &files["CONTENTS.txt"];
        assert!(
            name == "CONTENTS.txt" || contents.contains(name),
            "{name}: {contents}"
        );
    }
    assert!(files["vms.json"].contains("worker-0"));
    assert!(
        out.contains("It does not contain:") && out.contains("virtfleet-collector doctor"),
        "{out}"
    );
    assert!(
        files["CONTENTS.txt"].contains("settings.json: they need a kubeconfig"),
        "{files:?}"
    );
    assert!(
        files["CONTENTS.txt"].contains("logs: they need a kubeconfig"),
        "{files:?}"
    );
}

#[test]
fn names_and_addresses_can_be_replaced() {
    let (_, files) = bundle(&["--redact-names"]);
    for (name, text) in &files {
        for part in [
            "worker-",
            "cluster-a",
            "infra-1",
            "infra-2",
            "10.0.0.",
            "PLANTED",
            "127.0.0.1",
        ] {
            assert!(!text.contains(part), "{part} in {name}: {text}");
        }
    }
    let events: Value = serde_json::from_str(&files["events.json"]).unwrap();
    let vms: Value = serde_json::from_str(&files["vms.json"]).unwrap();
    let names: Vec<&Value> = vms["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|vm| &vm["name"])
        .collect();
    assert!(names.contains(&&events["items"][0]["name"]), "{events} {names:?}");
}

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
const PLANTED: [&str; 5] = [
    "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIPLANTED1\n-----END EC PRIVATE KEY-----",
    "eyJhbGciOiJSUzI1NiJ9.eyJQTEFOVEVEMiI6MX0.UExBTlRFRDI",
    "vft1.3f9c1a7be204.abcdefabcdef",
    "Bearer PLANTED4PLANTED4",
    "https://admin:PLANTED5@registry.example",
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
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(GzDecoder::new(packed.as_slice()));
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let name = path.split_once('/').unwrap().1.to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(name, text);
    }
    (String::from_utf8(out).unwrap(), files)
}

#[test]
fn planted_secrets_are_not_in_the_archive() {
    let (out, files) = bundle(&[]);
    for (name, text) in &files {
        for part in ["PLANTED", "PRIVATE KEY", "eyJ", "vft1.", "UExBTlRFRDI"] {
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

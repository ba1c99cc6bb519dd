//! Enrolment as the agent sees it (decision 0029): what it answers without a certificate and to
//! whom, which certificate it accepts, when it discards its key, and that its port is held for it.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

mod full_disk;
mod port;

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::Duration,
};

use hyper::{StatusCode, header};
use rcgen::ExtendedKeyUsagePurpose;
use virtfleet_tests::{
    client_hello,
    enrolment::{CsrContent, EnrolmentClient, parse_csr},
    pki::{Authority, Identity},
    scrape::Client,
    wait,
};
use virtfleet_wire::enrolment::{CERTIFICATE_PATH, EnrolmentAnswer, MAX_BODY_BYTES, REQUEST_PATH};

use crate::agent_stage::{AgentStage, IDENTITY, OTHER, SOON, UUID, csr, nonce, reason};

#[test]
fn without_a_certificate_only_enrolment_is_answered() {
    let stage = AgentStage::new();
    let agent = stage.start();
    let mut collector = stage.connect();
    assert_eq!(collector.identity(), None);
    for path in ["/metrics", "/v1/report", "/readyz", "/", "/nothing"] {
        let answer = collector.get(path).unwrap();
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert!(
            answer
                .text()
                .unwrap()
                .contains("waits for a collector to enrol it"),
            "{path}"
        );
    }
    assert_eq!(collector.get("/healthz").unwrap().status, StatusCode::OK);
    for path in [REQUEST_PATH, CERTIFICATE_PATH] {
        let answer = collector.get(path).unwrap();
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.headers[header::ALLOW], "POST");
        let answer = collector.post(path, &"x").unwrap();
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(reason(&answer.body).contains("not the expected JSON"));
    }
    let answer = stage
        .connect()
        .post(REQUEST_PATH, &"x".repeat(MAX_BODY_BYTES))
        .unwrap();
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(reason(&answer.body).contains("at most 65536 bytes"));
    let answer = collector
        .request("spiffe://virtfleet.test/collector", &nonce(), false)
        .unwrap();
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    collector
        .request(IDENTITY, &nonce(), false)
        .unwrap()
        .ok()
        .unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(stage.key_file().parent().unwrap()), 0o700);
    assert_eq!(mode(&stage.key_file()), 0o600);
    let report = stage.report();
    assert_eq!(report["sections"]["enrolment"]["items"][0]["state"], "waiting");
    let doctor = stage.doctor();
    assert!(
        doctor.contains("a collector at 127.0.0.1 tried to enrol this agent"),
        "{doctor}"
    );
    stage.enrol(IDENTITY);
    let doctor = stage.doctor();
    assert!(!doctor.contains("tried to enrol"), "{doctor}");
    agent.terminate(SOON).unwrap();
}

/// Whether a client gets any answer to anything.
fn is_answered(address: SocketAddr, identity: &Identity) -> bool {
    ["/metrics", "/v1/report", "/healthz", REQUEST_PATH]
        .iter()
        .any(|path| {
            let deadline = Duration::from_secs(5);
            let connected = EnrolmentClient::connect(address, identity, deadline);
            connected.is_ok_and(|mut client| client.get(path).is_ok() || client.post(path, &"x").is_ok())
        })
}

#[test]
fn an_impostor_gets_no_answer() {
    let stage = AgentStage::new();
    let _agent = stage.start();
    let foreign = Authority::new("clients").unwrap();
    for (who, identity) in [
        ("another authority", foreign.collector().unwrap()),
        ("the authority of agents", stage.agents.collector().unwrap()),
        (
            "another name",
            stage.client("spiffe://virtfleet.test/reader", &[]),
        ),
        (
            "another path",
            stage.client("spiffe://virtfleet.test/collector/x", &[]),
        ),
        ("an agent", stage.client(OTHER, &["agent.virtfleet.internal"])),
        ("a server", stage.clients.agent("a", "b", "c").unwrap()),
    ] {
        assert!(!is_answered(stage.home.address, &identity), "{who}");
    }
    assert!(is_answered(stage.home.address, &stage.collector()));
    // A reader whom the settings name reads, once there is a certificate, and enrols nothing.
    let reader = stage.client("spiffe://virtfleet.test/reader", &["prometheus.test"]);
    let connect = || EnrolmentClient::connect(stage.home.address, &reader, SOON).unwrap();
    assert_eq!(connect().get("/metrics").unwrap().status, StatusCode::FORBIDDEN);
    stage.enrol(IDENTITY);
    assert_eq!(connect().get("/metrics").unwrap().status, StatusCode::OK);
    for replace in [false, true] {
        let answer = connect().request(IDENTITY, &nonce(), replace).unwrap();
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        assert!(reason(&answer.body).contains("only a collector may enrol"));
    }
    assert_eq!(connect().deliver("x", "").unwrap().status, StatusCode::FORBIDDEN);
    // And no certificate at all.
    let get =
        |config| Client::tls(stage.home.address, config, SOON).and_then(|mut client| client.get("/metrics"));
    get(stage.agents.client_config(&reader).unwrap())
        .unwrap()
        .ok()
        .unwrap();
    get(stage.agents.anonymous_client_config().unwrap()).unwrap_err();
}

#[test]
fn a_client_of_tls_1_2_is_refused() {
    let stage = AgentStage::pushing();
    let _agent = stage.start();
    client_hello::refuses_tls_1_2(|| TcpStream::connect(stage.home.address)).unwrap();
    // The agent is the server of TLS also on a connection that it opens.
    let refuses = || client_hello::refuses_tls_1_2(|| Ok(stage.accept()));
    wait::eventually(SOON, "TLS 1.2 is refused", refuses).unwrap();
}

#[test]
fn an_agent_that_is_not_to_be_enrolled_says_so() {
    let stage = AgentStage::new();
    let own = stage.agents.agent("a", "b", "c").unwrap();
    fs::write(stage.at("own.pem"), own.certificate_pem()).unwrap();
    fs::write(stage.at("own.key"), own.key_pem()).unwrap();
    let files = format!(
        "enrolment: false, certificate: {}, key: {}",
        stage.at("own.pem").display(),
        stage.at("own.key").display()
    );
    stage.configure_tls(&files.replace("enrolment: false, ", ""));
    let text = fs::read_to_string(stage.at("agent.yaml")).unwrap();
    fs::write(
        stage.at("agent.yaml"),
        text.replace("enrolment: true", "enrolment: false"),
    )
    .unwrap();
    let _agent = stage.start();
    let mut collector = stage.connect();
    assert_eq!(collector.get("/metrics").unwrap().status, StatusCode::OK);
    for answer in [
        collector.request(IDENTITY, &nonce(), true).unwrap(),
        collector.deliver("x", "").unwrap(),
    ] {
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
    }
    assert!(!stage.key_file().exists());
    assert_eq!(stage.report()["sections"]["enrolment"], serde_json::Value::Null);
}

#[test]
fn a_csr_is_bound_to_the_nonce_and_the_connection() {
    let stage = AgentStage::new();
    let _agent = stage.start();
    let mut collector = stage.connect();
    let answer = collector
        .request(IDENTITY, &nonce(), false)
        .unwrap()
        .ok()
        .unwrap();
    let answer: EnrolmentAnswer = serde_json::from_slice(&answer.body).unwrap();
    let CsrContent {
        public_key,
        challenge,
        names,
    } = parse_csr(&answer.csr).unwrap();
    assert_eq!(challenge.as_deref(), Some(nonce().as_str()));
    assert_eq!(public_key, collector.public_key().unwrap());
    assert_eq!(names, 0);
    assert_eq!(answer.evidence.smbios_uuid, Some(UUID.parse().unwrap()));
    assert!(answer.evidence.boot_id.is_some() && answer.evidence.hostname.is_some());
}

#[test]
fn a_certificate_that_does_not_fit_is_refused() {
    let stage = AgentStage::new();
    let _agent = stage.start();
    let other = AgentStage::new();
    let other_agent = other.start();
    let mut collector = stage.connect();
    let own = csr(&mut collector, IDENTITY);
    let foreign = csr(&mut other.connect(), IDENTITY);
    let certify = |csr: &str, identity: &str| stage.agents.certify(csr, identity, |_| {}).unwrap();
    let client_only = stage.agents.certify(&own, IDENTITY, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    for (certificate, expected) in [
        (certify(&foreign, IDENTITY), "another key"),
        (certify(&own, OTHER), "was requested"),
        (client_only.unwrap(), "not valid for a server"),
        ("x".to_owned(), "contains no certificate"),
    ] {
        let answer = collector.deliver(&certificate, "").unwrap();
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(
            reason(&answer.body).contains(expected),
            "{}",
            reason(&answer.body)
        );
    }
    let answer = collector.deliver(&certify(&own, IDENTITY), "x").unwrap();
    assert!(reason(&answer.body).contains("an authority of clients contains no certificate"));
    let answer = collector.deliver(&certify(&own, IDENTITY), "").unwrap();
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let mut unrequested = other.connect();
    drop(other_agent);
    let _other_agent = other.start();
    assert!(unrequested.get("/healthz").is_err());
    let answer = other.connect().deliver(&certify(&foreign, IDENTITY), "").unwrap();
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(reason(&answer.body).contains("no certificate was requested"));
    assert_eq!(stage.connect().identity().as_deref(), Some(IDENTITY));
    assert_eq!(other.connect().identity(), None);
}

#[test]
fn an_enrolled_agent_serves_with_its_certificate_also_after_a_restart() {
    let stage = AgentStage::new();
    let agent = stage.start();
    let key = stage.connect().public_key().unwrap();
    stage.enrol(IDENTITY);
    // As a collector verifies it.
    let strict = stage.agents.client_config(&stage.collector()).unwrap();
    let page = |path: &str| {
        let mut client = Client::tls(stage.home.address, strict.clone(), SOON).unwrap();
        client.get(path).unwrap().ok().unwrap().text().unwrap().to_owned()
    };
    let check = || {
        let collector = stage.connect();
        assert_eq!(collector.identity().as_deref(), Some(IDENTITY));
        assert_eq!(collector.public_key().unwrap(), key);
        let metrics = page("/metrics");
        for line in [
            "virtfleet_agent_certificate_enrolled 1\n",
            "virtfleet_agent_certificate_not_before_timestamp_seconds ",
            "virtfleet_agent_certificate_not_after_timestamp_seconds ",
            "virtfleet_agent_certificate_refusals_total{reason=\"other_key\"} 0\n",
        ] {
            assert!(metrics.contains(line), "{line}");
        }
        let report: serde_json::Value = serde_json::from_str(&page("/v1/report")).unwrap();
        assert_eq!(report["sections"]["enrolment"]["items"][0]["identity"], IDENTITY);
        assert_eq!(
            stage.report()["sections"]["enrolment"]["items"],
            report["sections"]["enrolment"]["items"]
        );
    };
    check();
    agent.terminate(SOON).unwrap();
    let agent = stage.start();
    check();
    // A renewal, over a connection with the certificate before.
    stage.enrol(IDENTITY);
    check();
    agent.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
    drop(agent);
    let _agent = stage.start();
    check();
    let doctor = stage.doctor();
    assert!(doctor.contains(&format!("enrolled as {IDENTITY}")), "{doctor}");
}

#[test]
fn authorities_of_clients_that_an_issue_brings_are_accepted() {
    let stage = AgentStage::new();
    let agent = stage.start();
    let next = Authority::new("next clients").unwrap();
    let with_next = || EnrolmentClient::connect(stage.home.address, &next.collector().unwrap(), SOON);
    let answers = || with_next().is_ok_and(|mut collector| collector.get("/healthz").is_ok());
    let issue = |authorities: &str| {
        let mut collector = stage.connect();
        let csr = csr(&mut collector, IDENTITY);
        let certificate = stage.agents.certify(&csr, IDENTITY, |_| {}).unwrap();
        let answer = collector.deliver(&certificate, authorities).unwrap();
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
    };
    assert!(!answers());
    issue(&next.pem());
    assert!(answers());
    agent.terminate(SOON).unwrap();
    let _agent = stage.start();
    assert!(answers(), "after a restart");
    issue("");
    assert!(!answers());
}

#[test]
fn a_cloned_disk_is_noticed() {
    let stage = AgentStage::new();
    let agent = stage.start();
    stage.enrol(IDENTITY);
    let (key, file) = (
        stage.connect().public_key().unwrap(),
        fs::read(stage.key_file()).unwrap(),
    );
    agent.terminate(SOON).unwrap();
    stage
        .home
        .set_uuid("11111111-93ab-4e57-b0d6-5a1e7c9f2b34")
        .unwrap();
    let agent = stage.start();
    let mut collector = stage.connect();
    assert_eq!(collector.identity(), None);
    assert_ne!(collector.public_key().unwrap(), key);
    assert_ne!(fs::read(stage.key_file()).unwrap(), file);
    assert_eq!(collector.get("/metrics").unwrap().status, StatusCode::FORBIDDEN);
    stage.enrol(OTHER);
    let report = stage.report();
    let findings = report["findings"].as_array().unwrap();
    let found = findings
        .iter()
        .find(|finding| finding["id"] == "certificate-key-replaced");
    assert_eq!(found.unwrap()["evidence"]["before"], UUID);
    assert!(agent.log().contains("OtherMachine"), "{}", agent.log());
    // The same machine again: nothing changes.
    agent.terminate(SOON).unwrap();
    let _agent = stage.start();
    assert_eq!(stage.connect().identity().as_deref(), Some(OTHER));
}

#[test]
fn a_later_incarnation_replaces_the_key_and_another_vm_does_not() {
    let stage = AgentStage::new();
    let _agent = stage.start();
    stage.enrol(IDENTITY);
    let key = stage.connect().public_key().unwrap();
    for replace in [false, true] {
        let mut collector = stage.connect();
        let other = "spiffe://virtfleet.test/vmi/cluster-b/worker-0/uid-3";
        let answer = collector.request(other, &nonce(), replace).unwrap();
        assert_eq!(answer.status, StatusCode::MISDIRECTED_REQUEST);
        assert!(
            reason(&answer.body).contains(IDENTITY),
            "{}",
            reason(&answer.body)
        );
        assert_eq!(stage.connect().public_key().unwrap(), key);
    }
    assert_eq!(stage.connect().identity().as_deref(), Some(IDENTITY));

    let mut collector = stage.connect();
    let answer = collector.request(OTHER, &nonce(), false).unwrap();
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert_eq!(answer.headers[header::CONNECTION], "close");
    assert!(reason(&answer.body).contains("connect again"));
    let mut collector = stage.connect();
    assert_ne!(collector.public_key().unwrap(), key);
    assert_eq!(collector.identity(), None);
    assert_eq!(collector.get("/v1/report").unwrap().status, StatusCode::FORBIDDEN);
    stage.enrol(OTHER);
    assert_eq!(stage.connect().identity().as_deref(), Some(OTHER));
}

#[test]
fn another_trust_domain_is_no_other_vm() {
    let stage = AgentStage::new();
    let _agent = stage.start();
    stage.enrol(IDENTITY);
    let key = stage.connect().public_key().unwrap();
    let renamed = IDENTITY.replacen("virtfleet.test", "new.example", 1);
    assert_ne!(renamed, IDENTITY);
    stage.enrol(&renamed);
    let collector = stage.connect();
    assert_eq!(collector.identity(), Some(renamed));
    assert_eq!(collector.public_key().unwrap(), key);
}

#[test]
fn a_folder_that_cannot_be_written_is_a_finding() {
    let stage = AgentStage::new();
    fs::create_dir_all(stage.at("root/var/lib")).unwrap();
    fs::write(stage.at("root/var/lib/virtfleet-agent"), "").unwrap();
    let agent = stage.start();
    stage.enrol(IDENTITY);
    let mut collector = stage.connect();
    let report = collector.get("/v1/report").unwrap().json().unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|finding| finding["id"] == "certificate-key-not-stored"),
        "{findings:?}"
    );
    assert!(Path::new(&stage.at("root/var/lib/virtfleet-agent")).is_file());
    wait::until(SOON, "the log", || agent.log().contains("kept in memory only")).unwrap();
}

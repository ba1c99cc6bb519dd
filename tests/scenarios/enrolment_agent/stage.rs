//! A guest's folders, the authorities of its clients and of agents, and the agent's address.

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use hyper::StatusCode;
use rcgen::ExtendedKeyUsagePurpose;
use virtfleet_tests::{
    bins,
    enrolment::EnrolmentClient,
    pki::{Authority, Identity},
    ports,
    process::{Launch, Process},
};
use virtfleet_wire::enrolment::{EnrolmentAnswer, EnrolmentError, Nonce};

pub(super) const SOON: Duration = Duration::from_secs(30);
pub(super) const IDENTITY: &str = "spiffe://virtfleet.test/vmi/cluster-a/worker-0/uid-1";
pub(super) const OTHER: &str = "spiffe://virtfleet.test/vmi/cluster-a/worker-0/uid-2";
pub(super) const UUID: &str = "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34";

/// A guest's folders, the authorities of its clients and of agents, and an address.
pub(super) struct Stage {
    pub(super) folder: tempfile::TempDir,
    pub(super) clients: Authority,
    pub(super) agents: Authority,
    pub(super) address: SocketAddr,
}

impl Stage {
    pub(super) fn new() -> Self {
        let stage = Self {
            folder: tempfile::tempdir().unwrap(),
            clients: Authority::new("clients").unwrap(),
            agents: Authority::new("agents").unwrap(),
            address: ports::free().unwrap(),
        };
        fs::create_dir_all(stage.at("root/run/virtfleet/ask")).unwrap();
        fs::write(stage.at("ca.pem"), stage.clients.pem()).unwrap();
        stage.set_uuid(UUID);
        stage.configure("clients: [prometheus.test]");
        stage
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(super) fn key_file(&self) -> PathBuf {
        self.at("root/var/lib/virtfleet-agent/key.der")
    }

    /// SMBIOS is all that this guest has in sysfs.
    pub(super) fn set_uuid(&self, uuid: &str) {
        fs::create_dir_all(self.at("sys/class/dmi/id")).unwrap();
        fs::write(self.at("sys/class/dmi/id/product_uuid"), uuid).unwrap();
    }

    pub(super) fn configure(&self, tls: &str) {
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners: [{{name: default, address: \
             \"{}\"}}]\n  tls: {{enrolment: true, clientCA: {}, {tls}}}\n",
            self.address,
            self.at("ca.pem").display(),
        );
        fs::write(self.at("agent.yaml"), text).unwrap();
    }

    pub(super) fn agent(&self, verb: &str) -> Launch {
        let launch = Launch::new(bins::agent().unwrap());
        self.with_arguments(launch.arg(verb))
    }

    pub(super) fn with_arguments(&self, launch: Launch) -> Launch {
        launch
            .arg("--config")
            .arg(self.at("agent.yaml"))
            .arg("--path.rootfs")
            .arg(self.at("root"))
            .arg("--path.sysfs")
            .arg(self.at("sys"))
    }

    pub(super) fn start(&self) -> Process {
        self.ready(self.agent("run").start(self.folder.path()).unwrap())
    }

    pub(super) fn ready(&self, mut agent: Process) -> Process {
        agent.wait_for_port(self.address, SOON).unwrap();
        agent
    }

    pub(super) fn collector(&self) -> Identity {
        self.clients.collector().unwrap()
    }

    pub(super) fn client(&self, uri: &str, dns: &[&str]) -> Identity {
        self.clients
            .issue("client", uri, dns, ExtendedKeyUsagePurpose::ClientAuth)
            .unwrap()
    }

    pub(super) fn connect(&self) -> EnrolmentClient {
        EnrolmentClient::connect(self.address, &self.collector(), SOON).unwrap()
    }

    /// Enrols the agent with this identity.
    pub(super) fn enrol(&self, identity: &str) {
        let mut collector = self.connect();
        let csr = csr(&mut collector, identity);
        let certificate = self.agents.certify(&csr, identity, |_| {}).unwrap();
        let answer = collector.deliver(&certificate, "").unwrap();
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
    }

    pub(super) fn report(&self) -> serde_json::Value {
        let text = self.agent("report").text(SOON).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

pub(super) fn nonce() -> Nonce {
    Nonce::from_bytes([0xa7; 32])
}

/// The CSR for `identity`.
pub(super) fn csr(collector: &mut EnrolmentClient, identity: &str) -> String {
    let answer = collector
        .request(identity, &nonce(), false)
        .unwrap()
        .ok()
        .unwrap();
    let answer: EnrolmentAnswer = serde_json::from_slice(&answer.body).unwrap();
    answer.csr
}

pub(super) fn reason(body: &[u8]) -> String {
    serde_json::from_slice::<EnrolmentError>(body).unwrap().reason
}

//! An agent that no collector dials, and a listener that takes its connections.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail};
use hyper::StatusCode;
use rcgen::ExtendedKeyUsagePurpose;
use virtfleet_tests::{
    bins,
    enrolment::EnrolmentClient,
    pki::{Authority, Identity},
    ports,
    process::{Launch, Process},
    scrape::Client,
    wait,
};
use virtfleet_wire::enrolment::{EnrolmentAnswer, Nonce};

pub(super) const SOON: Duration = Duration::from_secs(30);
pub(super) const IDENTITY: &str = "spiffe://virtfleet.test/vmi/cluster-a/worker-0/uid-1";
pub(super) const READER: &str = "spiffe://virtfleet.test/reader";
/// Shown to collectors, and found nowhere else.
pub(super) const TOKEN: &str = "vft1.0a1b.c2VjcmV0LW9mLXRoZS10ZXN0";

pub(super) struct Stage {
    pub(super) folder: tempfile::TempDir,
    pub(super) clients: Authority,
    pub(super) agents: Authority,
    /// Where the agent listens.
    pub(super) address: SocketAddr,
    /// Where the collector accepts connections of agents.
    pub(super) ingest: TcpListener,
}

impl Stage {
    pub(super) fn new() -> Self {
        let stage = Self {
            folder: tempfile::tempdir().unwrap(),
            clients: Authority::new("clients").unwrap(),
            agents: Authority::new("agents").unwrap(),
            address: ports::free().unwrap(),
            ingest: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        stage.ingest.set_nonblocking(true).unwrap();
        fs::create_dir_all(stage.at("root/run/virtfleet/ask")).unwrap();
        fs::create_dir_all(stage.at("root/etc/virtfleet")).unwrap();
        fs::create_dir_all(stage.at("sys/class/dmi/id")).unwrap();
        let uuid = "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34";
        fs::write(stage.at("sys/class/dmi/id/product_uuid"), uuid).unwrap();
        fs::write(stage.at("ca.pem"), stage.clients.pem()).unwrap();
        let ingest = stage.ingest.local_addr().unwrap();
        stage.configure(&ingest.to_string(), "1s");
        stage
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Writes settings with this `push.collector` and `push.after`.
    pub(super) fn configure(&self, collector: &str, after: &str) {
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners: [{{name: default, address: \
             \"{}\"}}]\n  tls: {{enrolment: true, clientCA: {}, clients: [\"{READER}\"]}}\npush: {{collector: \
             \"{collector}\", after: {after}, tokenFile: /etc/virtfleet/token}}\n",
            self.address,
            self.at("ca.pem").display(),
        );
        fs::write(self.at("agent.yaml"), text).unwrap();
    }

    pub(super) fn write_token(&self) {
        fs::write(self.at("root/etc/virtfleet/token"), format!("{TOKEN}\n")).unwrap();
    }

    pub(super) fn agent(&self, verb: &str) -> Launch {
        Launch::new(bins::agent().unwrap())
            .arg(verb)
            .arg("--config")
            .arg(self.at("agent.yaml"))
            .arg("--path.rootfs")
            .arg(self.at("root"))
            .arg("--path.sysfs")
            .arg(self.at("sys"))
    }

    pub(super) fn start(&self) -> Process {
        let launch = self.agent("run").arg("--log.level").arg("debug");
        let mut agent = launch.start(self.folder.path()).unwrap();
        agent.wait_for_port(self.address, SOON).unwrap();
        agent
    }

    pub(super) fn doctor(&self) -> String {
        let output = self.agent("doctor").output(SOON).unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// The next connection of the agent.
    pub(super) fn accept(&self) -> TcpStream {
        let accept = || Ok(self.ingest.accept()?.0);
        wait::eventually(SOON, "a connection of the agent", accept).unwrap()
    }

    /// No connection of the agent is there.
    pub(super) fn no_connection(&self) -> Result<()> {
        match self.ingest.accept() {
            Ok(_) => bail!("the agent has connected"),
            Err(_) => Ok(()),
        }
    }

    pub(super) fn collector(&self) -> Identity {
        self.clients.collector().unwrap()
    }

    pub(super) fn client(&self, uri: &str) -> Identity {
        let purpose = ExtendedKeyUsagePurpose::ClientAuth;
        self.clients.issue("client", uri, &[], purpose).unwrap()
    }

    /// The next connection of the agent, as a collector that accepts any certificate.
    pub(super) fn push(&self) -> EnrolmentClient {
        EnrolmentClient::over(self.accept(), &self.collector(), SOON).unwrap()
    }

    /// The next connection of the agent, as a collector that verifies the agent's certificate.
    pub(super) fn strict_push(&self) -> Client {
        let config = self.agents.client_config(&self.collector()).unwrap();
        Client::over(self.accept(), config, SOON).unwrap()
    }

    /// A connection to the agent, as a collector that dials it.
    pub(super) fn dial(&self) -> Client {
        let config = self.agents.client_config(&self.collector()).unwrap();
        Client::tls(self.address, Arc::clone(&config), SOON).unwrap()
    }

    /// Enrols the agent over a connection.
    pub(super) fn enrol(&self, collector: &mut EnrolmentClient) {
        let nonce = Nonce::from_bytes([0xa7; 32]);
        let answer = collector.request(IDENTITY, &nonce, false).unwrap().ok().unwrap();
        let answer: EnrolmentAnswer = serde_json::from_slice(&answer.body).unwrap();
        let certificate = self.agents.certify(&answer.csr, IDENTITY, |_| {}).unwrap();
        let answer = collector.deliver(&certificate, "").unwrap();
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
    }

    /// Starts the agent, and enrols it over a connection that it opens.
    pub(super) fn enrolled(&self) -> Process {
        let agent = self.start();
        self.enrol(&mut self.push());
        agent
    }
}

//! The real agent, a listener that accepts its connections, and the authorities of its clients and
//! of agents. There is no collector: the test sends its requests.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    cell::Cell,
    fs,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Result, bail};
use hyper::StatusCode;
use rcgen::ExtendedKeyUsagePurpose;
use virtfleet_tests::{
    agent_home::AgentHome,
    enrolment::EnrolmentClient,
    pki::{Authority, Identity},
    ports,
    process::{Launch, Process},
    scrape::Client,
    wait,
};
use virtfleet_wire::enrolment::{EnrolmentAnswer, EnrolmentError, Nonce};

pub(crate) const SOON: Duration = Duration::from_secs(30);
pub(crate) const IDENTITY: &str = "spiffe://virtfleet.test/vmi/cluster-a/worker-0/uid-1";
pub(crate) const OTHER: &str = "spiffe://virtfleet.test/vmi/cluster-a/worker-0/uid-2";
pub(crate) const READER: &str = "spiffe://virtfleet.test/reader";
pub(crate) const UUID: &str = "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34";
/// Shown to collectors, and found nowhere else.
pub(crate) const TOKEN: &str = "vft1.0a1b.c2VjcmV0LW9mLXRoZS10ZXN0";

/// An agent without a collector.
pub(crate) struct AgentStage {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clients: Authority,
    pub(crate) agents: Authority,
    pub(crate) home: AgentHome,
    /// Where a collector would accept connections of agents.
    pub(crate) ingest: TcpListener,
    /// Number of connections of the agent that were taken.
    taken: Cell<u64>,
}

impl AgentStage {
    /// An agent that connects to no collector.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stage = Self {
            clients: Authority::new("clients").unwrap(),
            agents: Authority::new("agents").unwrap(),
            home: AgentHome::new(folder.path(), ports::free().unwrap(), UUID).unwrap(),
            ingest: TcpListener::bind("127.0.0.1:0").unwrap(),
            taken: Cell::new(0),
            folder,
        };
        stage.ingest.set_nonblocking(true).unwrap();
        fs::write(stage.at("ca.pem"), stage.clients.pem()).unwrap();
        stage.configure_tls("clients: [prometheus.test]");
        stage
    }

    /// An agent that connects to [`AgentStage::ingest`].
    pub(crate) fn pushing() -> Self {
        let stage = Self::new();
        fs::create_dir_all(stage.at("root/etc/virtfleet")).unwrap();
        let ingest = stage.ingest.local_addr().unwrap();
        stage.configure_push(&ingest.to_string(), "1s");
        stage
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.home.at(path)
    }

    /// Writes settings with this in `server.tls`.
    pub(crate) fn configure_tls(&self, tls: &str) {
        let tls = format!(", {tls}");
        self.home.configure(&self.at("ca.pem"), &tls, "").unwrap();
    }

    /// Writes settings with this `push.collector` and `push.after`.
    pub(crate) fn configure_push(&self, collector: &str, after: &str) {
        let tls = format!(", clients: [\"{READER}\"]");
        let push = format!(
            "push: {{collector: \"{collector}\", after: {after}, tokenFile: /etc/virtfleet/token}}\n"
        );
        self.home.configure(&self.at("ca.pem"), &tls, &push).unwrap();
    }

    pub(crate) fn write_token(&self) {
        fs::write(self.at("root/etc/virtfleet/token"), format!("{TOKEN}\n")).unwrap();
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.at("root/var/lib/virtfleet-agent/key.der")
    }

    pub(crate) fn agent(&self, verb: &str) -> Launch {
        self.home.command(&[verb]).unwrap()
    }

    pub(crate) fn start(&self) -> Process {
        let launch = self.agent("run").arg("--log.level").arg("debug");
        self.home.start(launch).unwrap()
    }

    pub(crate) fn doctor(&self) -> String {
        let output = self.agent("doctor").output(SOON).unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn report(&self) -> serde_json::Value {
        let text = self.agent("report").text(SOON).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn collector(&self) -> Identity {
        self.clients.collector().unwrap()
    }

    pub(crate) fn client(&self, uri: &str, dns: &[&str]) -> Identity {
        let purpose = ExtendedKeyUsagePurpose::ClientAuth;
        self.clients.issue("client", uri, dns, purpose).unwrap()
    }

    /// A connection to the agent, as a collector that accepts any certificate.
    pub(crate) fn connect(&self) -> EnrolmentClient {
        EnrolmentClient::connect(self.home.address, &self.collector(), SOON).unwrap()
    }

    /// A connection to the agent, as a collector that verifies the agent's certificate.
    pub(crate) fn strict_connect(&self) -> Client {
        let config = self.agents.client_config(&self.collector()).unwrap();
        Client::tls(self.home.address, config, SOON).unwrap()
    }

    /// The next connection of the agent.
    pub(crate) fn accept(&self) -> TcpStream {
        wait::eventually(SOON, "a connection of the agent", || self.take()).unwrap()
    }

    /// A connection of the agent that is there.
    fn take(&self) -> Result<TcpStream> {
        let (stream, _) = self.ingest.accept()?;
        self.taken.set(self.taken.get() + 1);
        Ok(stream)
    }

    /// How many connections of the agent were taken, also those that it had given up.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// No connection of the agent is there.
    pub(crate) fn no_connection(&self) -> Result<()> {
        match self.ingest.accept() {
            Ok(_) => bail!("the agent has connected"),
            Err(_) => Ok(()),
        }
    }

    /// The next living connection of the agent, as a collector that accepts any certificate.
    pub(crate) fn push(&self) -> EnrolmentClient {
        let collector = self.collector();
        self.over_next(|stream| EnrolmentClient::over(stream, &collector, SOON))
    }

    /// The next living connection of the agent, as a collector that verifies the agent's
    /// certificate.
    pub(crate) fn strict_push(&self) -> Client {
        let config = self.agents.client_config(&self.collector()).unwrap();
        self.over_next(|stream| Client::over(stream, config.clone(), SOON))
    }

    /// What `connect` makes of the next connection of the agent. While a test looks elsewhere, the
    /// agent gives up connections that were not accepted: these are passed over.
    fn over_next<T>(&self, connect: impl Fn(TcpStream) -> Result<T>) -> T {
        let next = || connect(self.take()?);
        wait::eventually(SOON, "a connection of the agent", next).unwrap()
    }

    /// Enrols the agent with this identity.
    pub(crate) fn enrol(&self, identity: &str) {
        self.enrol_over(&mut self.connect(), identity);
    }

    /// The same over a connection.
    pub(crate) fn enrol_over(&self, collector: &mut EnrolmentClient, identity: &str) {
        let csr = csr(collector, identity);
        let certificate = self.agents.certify(&csr, identity, |_| {}).unwrap();
        let answer = collector.deliver(&certificate, "").unwrap();
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
    }

    /// Starts the agent, and enrols it over a connection that it opens.
    pub(crate) fn enrolled_by_push(&self) -> Process {
        let agent = self.start();
        self.enrol_over(&mut self.push(), IDENTITY);
        agent
    }
}

pub(crate) fn nonce() -> Nonce {
    Nonce::from_bytes([0xa7; 32])
}

/// The CSR for `identity`.
pub(crate) fn csr(collector: &mut EnrolmentClient, identity: &str) -> String {
    let answer = collector.request(identity, &nonce(), false).unwrap();
    let answer: EnrolmentAnswer = serde_json::from_slice(&answer.ok().unwrap().body).unwrap();
    answer.csr
}

/// The reason in the body of a refusal.
pub(crate) fn reason(body: &[u8]) -> String {
    serde_json::from_slice::<EnrolmentError>(body).unwrap().reason
}

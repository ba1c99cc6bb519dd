//! An API server with its etcd.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Mutex,
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    audit_policy, client::Client, discovered::Discovered, etcd::Etcd, timeout::SERVER_TIMEOUT, user::User,
};
use crate::{
    parts,
    pki::{self, Authority},
    ports,
    process::{Launch, Process},
};

/// The controller manager's user.
pub(super) const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// The scheduler's user.
pub(super) const SCHEDULER: &str = "system:kube-scheduler";
/// Maximum start attempts with new ports, in case another program has taken one meanwhile.
const MAX_START_ATTEMPTS: usize = 3;
/// The API server's GOGC. Go's default of 100 spends a fifth of the CPU time of a start on garbage
/// collection; this takes 100 MiB more memory.
const GARBAGE_PERCENT: &str = "400";

/// A running API server with its etcd. Dropping it ends both and removes their files.
pub struct ApiServer {
    // In drop order: processes first, then what they use.
    process: Option<Process>,
    etcd: Etcd,
    pub(super) discovered: Mutex<BTreeMap<String, Discovered>>,
    client: Client,
    program: PathBuf,
    address: SocketAddr,
    ca: String,
    admin: User,
    users: Vec<User>,
    folder: TempDir,
}

impl ApiServer {
    /// Starts both in a new folder below `folder` and waits until the API server is ready. Its only
    /// user is the admin.
    ///
    /// Fails if the programs are missing (`parts::kube_assets`) or do not become ready.
    pub fn start(folder: &Path) -> Result<Self> {
        Self::start_with(folder, &[])
    }

    /// As [`ApiServer::start_with`], with `kube-apiserver` and `etcd` from another folder, e.g. of
    /// the oldest supported release (`parts::oldest_kube_assets`).
    pub fn start_from(assets: &Path, folder: &Path, users: &[User]) -> Result<Self> {
        let mut last = None;
        for _ in 0..MAX_START_ATTEMPTS {
            match Self::try_start(assets, folder, users) {
                Err(error) if format!("{error:#}").contains("address already in use") => last = Some(error),
                done => return done,
            }
        }
        Err(last.context("no try")?).context("no free port")
    }

    /// As [`ApiServer::start`], with further users, whose rights are those that RBAC grants. The
    /// users are fixed; for a token that can be revoked use [`ApiServer::service_account`].
    pub fn start_with(folder: &Path, users: &[User]) -> Result<Self> {
        Self::start_from(&parts::kube_assets()?, folder, users)
    }

    fn try_start(assets: &Path, parent: &Path, users: &[User]) -> Result<Self> {
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        let folder = tempfile::Builder::new().prefix("apiserver-").tempdir_in(parent)?;
        let path = folder.path();
        let admin = User::new("admin", &["system:masters"])?;
        let mut users = users.to_vec();
        // The API server itself grants these two users their rights.
        for name in [CONTROLLER_MANAGER, SCHEDULER] {
            users.push(User::new(name, &[])?);
        }
        let authority = Authority::new("kube-apiserver")?;
        let address = ports::free()?;
        pki::write(
            path,
            "apiserver",
            &authority,
            &authority.server("kube-apiserver", address.ip())?,
        )?;
        pki::write(
            path,
            "accounts",
            &authority,
            &authority.server("service-accounts", address.ip())?,
        )?;
        let tokens: String = users.iter().chain([&admin]).map(User::line).collect();
        fs::write(path.join("tokens.csv"), tokens)?;
        fs::write(path.join("audit.yaml"), audit_policy::POLICY)?;
        let etcd = Etcd::start(&assets.join("etcd"), path)?;
        let ca = authority.pem();
        let mut server = Self {
            process: None,
            etcd,
            discovered: Mutex::default(),
            client: Client::new(&format!("https://{address}"), &ca, &admin.token)?,
            program: assets.join("kube-apiserver"),
            address,
            ca,
            admin,
            users,
            folder,
        };
        server.launch()?;
        Ok(server)
    }

    fn launch(&mut self) -> Result<()> {
        let folder = self.folder.path();
        let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
        let mut process = Launch::new(&self.program)
            .arg(format!("--etcd-servers=http://{}", self.etcd.address()))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--secure-port={}", self.address.port()))
            .arg(file("tls-cert-file", "apiserver.pem"))
            .arg(file("tls-private-key-file", "apiserver.key"))
            .arg(file("token-auth-file", "tokens.csv"))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(file("service-account-signing-key-file", "accounts.key"))
            .arg(file("service-account-key-file", "accounts.pem"))
            .args(["--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none"])
            .arg("--authorization-mode=Node,RBAC")
            // Disables admission plugins whose effects only controllers undo: a default account, a
            // taint on every new Node, finalizers on volumes.
            .arg("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection")
            // Many clients send requests as one user here, and no test is about fairness.
            .args(["--enable-priority-and-fairness=false", "--max-requests-inflight=0"])
            .arg("--max-mutating-requests-inflight=0")
            .arg(file("audit-policy-file", "audit.yaml"))
            .arg(file("audit-log-path", audit_policy::FILE))
            // Blocking mode: when a test sees an answer, the log contains its line. One file, never
            // rotated.
            .args(["--audit-log-mode=blocking", "--audit-log-maxsize=100000"])
            .env("GOGC", GARBAGE_PERCENT)
            .tied()
            .start(folder)?;
        let client = self.client.clone();
        process.wait_for(SERVER_TIMEOUT, "the API server", |_| {
            let ready = client.get("/readyz")?;
            ensure!(ready.code == 200, "{}: {}", ready.code, ready.body);
            Ok(())
        })?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills the API server: connections are reset, and new ones refused. etcd continues.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts the API server again with the same address, data, certificates and users, and waits
    /// until it is ready.
    ///
    /// The new process has no watch history: a watch that resumes from an older resource version
    /// gets 410 (Gone).
    pub fn start_again(&mut self) -> Result<()> {
        self.stop();
        self.launch()
    }

    /// Stops the API server's process with SIGSTOP: connections are accepted and not answered.
    /// [`ApiServer::resume`] undoes this.
    pub fn pause(&self) -> Result<()> {
        self.process
            .as_ref()
            .context("it is stopped")?
            .signal(Signal::SIGSTOP)
    }

    /// Resumes the API server.
    pub fn resume(&self) -> Result<()> {
        self.process
            .as_ref()
            .context("it is stopped")?
            .signal(Signal::SIGCONT)
    }

    /// Stops etcd's process with SIGSTOP: after a while the API server answers 500 or 504 to
    /// requests that its cache cannot serve.
    pub fn pause_etcd(&self) -> Result<()> {
        self.etcd.process().signal(Signal::SIGSTOP)
    }

    /// Resumes etcd.
    pub fn resume_etcd(&self) -> Result<()> {
        self.etcd.process().signal(Signal::SIGCONT)
    }

    /// Compacts etcd's history. The API server still serves watches from memory and, since 1.34,
    /// further pages of a list that was begun earlier. Only after [`ApiServer::start_again`] does
    /// it answer both with 410 (Gone).
    pub fn etcd_compact(&self) -> Result<()> {
        self.etcd.compact()
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The CA certificate that signed the server's certificate, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca
    }

    /// The minor release, e.g. 36, to skip features that older releases lack. 0 if the server does
    /// not report its release, as Debian's 1.20.
    pub fn minor(&self) -> Result<u32> {
        let version = self.client.get("/version")?.ok()?;
        let release = version["gitVersion"].as_str().context("no gitVersion")?;
        let minor = release.split('.').nth(1).with_context(|| release.to_owned())?;
        minor.parse().with_context(|| release.to_owned())
    }

    /// The user in the group `system:masters`, which has all rights.
    pub fn admin_user(&self) -> &User {
        &self.admin
    }

    /// A user passed to [`ApiServer::start_with`], `admin`, or one of the control plane's programs.
    pub fn user(&self, name: &str) -> Result<&User> {
        let mut all = self.users.iter().chain([&self.admin]);
        all.find(|user| user.name == name)
            .with_context(|| format!("this API server was not started with a user {name}"))
    }

    /// The kubeconfig (YAML, with all data inline) of a user.
    pub fn kubeconfig(&self, user: &User) -> String {
        user.kubeconfig(&self.url(), &self.ca)
    }

    /// The admin's client.
    pub fn admin(&self) -> &Client {
        &self.client
    }

    /// A client for a user.
    pub fn client(&self, user: &User) -> Result<Client> {
        Client::new(&self.url(), &self.ca, &user.token)
    }

    /// The API server's process id, for measurements; `None` while it is stopped.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// etcd's process id.
    pub fn etcd_id(&self) -> u32 {
        self.etcd.process().id()
    }

    /// Where its files are, until it is dropped.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

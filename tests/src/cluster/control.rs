//! The control plane beside the API server: the controller manager and the scheduler, each with its
//! own user. The API server grants these users their rights itself.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use super::{
    client::Client,
    server::{ApiServer, CONTROLLER_MANAGER, SCHEDULER},
    timeout::SERVER_TIMEOUT,
};
use crate::{
    parts,
    pki::{self, Authority},
    ports,
    process::{Launch, Process},
};

/// The enabled controllers: those that delete unowned objects. Others require nodes with a kubelet:
/// a Node without a Lease is tainted within a minute.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,serviceaccount-controller";

/// A running controller manager. Its controllers delete namespaces with their contents, delete
/// dependents of deleted owners, and create the default service account of each namespace.
///
/// Start it after the CustomResourceDefinitions are installed: the garbage collector discovers new
/// kinds only every 30 seconds.
pub struct ControllerManager {
    _process: Process,
}

impl ControllerManager {
    /// Starts it and waits until it is healthy.
    pub fn start(server: &ApiServer) -> Result<Self> {
        Self::start_with(server, &[])
    }

    /// As [`ControllerManager::start`], with more controllers, e.g. `statefulset-controller`.
    pub fn start_with(server: &ApiServer, more: &[&str]) -> Result<Self> {
        let controllers = [&[CONTROLLERS], more].concat().join(",");
        let arguments = [
            format!("--controllers={controllers}"),
            // Each controller uses its own service account, with the role that the API server
            // defines for it.
            "--use-service-account-credentials".to_owned(),
        ];
        start(server, "kube-controller-manager", CONTROLLER_MANAGER, &arguments)
            .map(|process| Self { _process: process })
    }
}

/// A running scheduler with its default profile.
pub struct Scheduler {
    _process: Process,
}

impl Scheduler {
    /// Starts it and waits until it is healthy.
    pub fn start(server: &ApiServer) -> Result<Self> {
        start(server, "kube-scheduler", SCHEDULER, &[]).map(|process| Self { _process: process })
    }
}

fn start(server: &ApiServer, program: &str, user: &str, arguments: &[String]) -> Result<Process> {
    let folder = &server.folder().join(program);
    let address = ports::free()?;
    let authority = Authority::new(program)?;
    let identity = authority.server(program, address.ip())?;
    let files = pki::write(folder, program, &authority, &identity)?;
    let config = folder.join("kubeconfig");
    let kubeconfig = server.kubeconfig(server.user(user)?);
    fs::write(&config, kubeconfig).with_context(|| config.display().to_string())?;
    let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    let mut process = Launch::new(parts::kube_control_plane()?.join(program))
        .arg(file("kubeconfig", &config))
        .args(["--bind-address=127.0.0.1", "--leader-elect=false"])
        .arg(format!("--secure-port={}", address.port()))
        .arg(file("tls-cert-file", &files.certificate))
        .arg(file("tls-private-key-file", &files.key))
        .args(arguments)
        .tied()
        .start(folder)?;
    let client = Client::new(&format!("https://{address}"), &authority.pem(), "")?;
    process.wait_for(SERVER_TIMEOUT, program, |_| {
        let health = client.get("/healthz")?;
        ensure!(health.code == 200, "{}: {}", health.code, health.body);
        Ok(())
    })?;
    Ok(process)
}

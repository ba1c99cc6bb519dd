//! Tier 3: the chart with `tls.source=authority`, which makes no Secret: the collector issues the
//! certificate of its API from its own authority.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::json;
use virtfleet_tests::{
    bins,
    cluster::{
        ApiServer,
        live::{POD_ADDRESS, WAIT_TIMEOUT},
    },
    install::{self, Helm, RELEASE},
    parts,
    pki::TRUST_DOMAIN,
    ports,
    process::{Launch, Process},
    skip, wait,
};

/// A name in the certificate.
const HOST: &str = "virtfleet-collector.virtfleet.svc";

/// The collector of an installed chart, run by this machine in place of kubelet.
struct Installed {
    server: ApiServer,
    port: u16,
    folder: tempfile::TempDir,
}

impl Installed {
    /// Installs the chart. Its settings name what differs here: ports and the kubeconfig.
    fn new(helm: &Helm) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = install::server(helm, folder.path())?;
        let port = ports::free()?.port();
        let settings = json!({
            "inventory": { "cluster": { "kubeconfig": folder.path().join("kubeconfig") } },
            // On loopback it would serve HTTP without a certificate.
            "server": {
                "address": format!("0.0.0.0:{port}"), "probeAddress": ports::free()?.to_string(),
            },
            // In a pod it is the namespace of the pod.
            "leaderElection": { "namespace": RELEASE },
        });
        helm.install(&[
            "--set",
            &format!("trustDomain={TRUST_DOMAIN},size=small,tls.source=authority"),
            "--set-json",
            &format!("config={settings}"),
        ])?;
        Ok(Self { server, port, folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// What kubelet does: mounts the settings, and starts the program as its account.
    fn start(&self) -> Result<Process> {
        let settings = "/api/v1/namespaces/virtfleet/configmaps/virtfleet-settings";
        let settings = self.server.admin().get(settings)?.ok()?;
        let settings = settings["data"]["collector.yaml"].as_str().context("settings")?;
        let config = self.path().join("collector.yaml");
        fs::write(&config, settings)?;
        let account = self.server.service_account(RELEASE, "virtfleet-collector")?;
        fs::write(self.path().join("kubeconfig"), self.server.kubeconfig(&account))?;
        Launch::new(bins::collector()?)
            .args(["serve", "--config"])
            .arg(&config)
            .env("POD_IP", POD_ADDRESS)
            .start(self.path())
    }

    /// Writes the root that is in user-data to a file.
    fn write_root(&self) -> Result<()> {
        let path = "/api/v1/namespaces/virtfleet/secrets/virtfleet-ca";
        let secret = self.server.admin().get(path)?.ok()?;
        let root = secret["data"]["clients.crt"].as_str().context("no root")?;
        let root = BASE64_STANDARD.decode(root)?;
        Ok(fs::write(self.path().join("ca.crt"), root)?)
    }

    /// A token of the account for admins, as virtfleetctl requests it.
    fn token(&self) -> Result<String> {
        let path = "/api/v1/namespaces/virtfleet/serviceaccounts/virtfleetctl/token";
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": { "audiences": ["virtfleet-collector"] },
        });
        let made = self.server.admin().post(path, &request)?.ok()?;
        Ok(made["status"]["token"].as_str().context("a token")?.to_owned())
    }

    /// Sends a request to the API, over TLS by this name.
    fn get_status(&self, host: &str, token: &str) -> Result<String> {
        Launch::new("curl")
            .args(["--silent", "--show-error", "--fail", "--max-time", "10"])
            .arg("--cacert")
            .arg(self.path().join("ca.crt"))
            .args(["--resolve", &format!("{host}:{}:127.0.0.1", self.port)])
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .arg(format!("https://{host}:{}/api/v1/status", self.port))
            .text(WAIT_TIMEOUT)
    }
}

/// Clients of the API verify it with the root that is in user-data.
#[test]
fn tier3_install_makes_no_secret_with_the_collectors_own_authority() {
    let test = "tier3_install_makes_no_secret_with_the_collectors_own_authority";
    let needs = || {
        parts::kube_assets()?;
        skip::program("curl")?;
        Helm::new()
    };
    let Some(helm) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let installed = Installed::new(&helm).unwrap();
    let admin = installed.server.admin();
    let secrets = admin.get("/api/v1/namespaces/virtfleet/secrets");
    let secrets = secrets.unwrap().ok().unwrap();
    for secret in secrets["items"].as_array().unwrap() {
        // Helm's own record of the release.
        assert_eq!(secret["type"], "helm.sh/release.v1", "{secret}");
    }

    let collector = installed.start().unwrap();
    wait::eventually(WAIT_TIMEOUT, "the authority", || {
        installed.write_root().with_context(|| collector.log())
    })
    .unwrap();
    let token = installed.token().unwrap();
    for host in [HOST, "virtfleet-collector-leader.virtfleet.svc"] {
        wait::eventually(WAIT_TIMEOUT, host, || {
            installed
                .get_status(host, &token)
                .with_context(|| collector.log())
        })
        .unwrap();
    }
    let refused = installed.get_status("virtfleet-collector", &token);
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("SSL") || refused.contains("certificate"),
        "{refused}"
    );
    installed.get_status(HOST, "no-token").unwrap_err();
}

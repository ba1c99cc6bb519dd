//! Tier 3: from the chart to the first VM, as docs/install.md says: on a real API server, with the
//! settings, the account and the certificate that the chart makes. `make bench-install` prints the
//! time.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};
use virtfleet_tests::{
    bins,
    cluster::{
        self, ApiServer, kubevirt,
        live::{POD_ADDRESS, WAIT_TIMEOUT},
    },
    install::{Helm, RELEASE},
    parts, pki, ports,
    process::{Launch, Process},
    sim::{
        Guest, Options, Plan,
        enrol::{AgentHost, AgentSpec},
    },
    skip, wait,
};

/// The name in the certificate that the chart makes.
const HOST: &str = "virtfleet-collector.virtfleet.svc";
/// Maximum time from the chart to the first VM.
const MAX_WALK: Duration = Duration::from_mins(5);

/// The collector of an installed chart, run by this machine in place of kubelet.
struct Walk {
    server: ApiServer,
    port: u16,
    folder: tempfile::TempDir,
}

impl Walk {
    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Installs the chart. Its settings name what differs here: ports, and addresses on loopback.
    fn install(&self, helm: &Helm, agents: u16) -> Result<()> {
        let path = |name: &str| self.path().join(name);
        let settings = json!({
            "inventory": { "cluster": { "kubeconfig": path("kubeconfig") } },
            "server": {
                "address": format!("127.0.0.1:{}", self.port),
                "probeAddress": ports::free()?.to_string(),
                "tls": {
                    "certificate": path("tls.crt"), "key": path("tls.key"), "clientCA": path("ca.crt"),
                },
            },
            // In a pod it is the namespace of the pod.
            "leaderElection": { "namespace": RELEASE },
            "scrape": { "interval": "1s", "timeout": "1s", "port": agents, "allowCIDRs": ["127.0.0.0/8"] },
        });
        let chart = Helm::chart();
        helm.run(&[
            "install",
            RELEASE,
            chart.to_str().context("the path is not UTF-8")?,
            "--namespace",
            RELEASE,
            "--create-namespace",
            "--set",
            &format!("trustDomain={},size=small", pki::TRUST_DOMAIN),
            "--set-json",
            &format!("config={settings}"),
        ])?;
        Ok(())
    }

    /// What kubelet does: mounts settings and certificate, and starts the program as its account.
    fn start(&self) -> Result<Process> {
        let get = |path: &str| self.server.admin().get(path)?.ok();
        let settings = get("/api/v1/namespaces/virtfleet/configmaps/virtfleet-settings")?;
        let settings = settings["data"]["collector.yaml"].as_str().context("settings")?;
        let config = self.path().join("collector.yaml");
        fs::write(&config, settings)?;
        let secret = get("/api/v1/namespaces/virtfleet/secrets/virtfleet-collector-tls")?;
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            let content = BASE64_STANDARD.decode(secret["data"][name].as_str().context("a file")?)?;
            fs::write(self.path().join(name), content)?;
        }
        let account = self.server.service_account(RELEASE, "virtfleet-collector")?;
        fs::write(self.path().join("kubeconfig"), self.server.kubeconfig(&account))?;
        Launch::new(bins::collector()?)
            .args(["serve", "--config"])
            .arg(&config)
            .env("POD_IP", POD_ADDRESS)
            .start(self.path())
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

    /// Sends a request to the API, over TLS by the name in the certificate.
    fn get(&self, token: &str, path: &str) -> Result<String> {
        Launch::new("curl")
            .args(["--silent", "--show-error", "--fail", "--max-time", "10"])
            .arg("--cacert")
            .arg(self.path().join("ca.crt"))
            .args(["--resolve", &format!("{HOST}:{}:127.0.0.1", self.port)])
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .arg(format!("https://{HOST}:{}{path}", self.port))
            .text(WAIT_TIMEOUT)
    }
}

/// A running VM with its virt-launcher pod; returns the guest with the UID from the server.
fn run_vm(server: &ApiServer, guest: &Guest) -> Guest {
    let address = guest.address.ip().to_string();
    let vmi = cluster::vmi("vms", &guest.name)
        .phase("Running")
        .on("host-1")
        .with("/spec/domain/firmware", json!({ "uuid": guest.firmware }))
        .interface("default", &guest.mac, &[&address]);
    let vmi = server.apply(&vmi).unwrap();
    server.apply(&cluster::launcher(&vmi, &[&address])).unwrap();
    Guest {
        cluster: "vms".to_owned(),
        uid: vmi["metadata"]["uid"].as_str().unwrap().to_owned(),
        ..guest.clone()
    }
}

#[test]
fn tier3_install_walk_from_the_chart_to_the_first_vm() {
    let test = "tier3_install_walk_from_the_chart_to_the_first_vm";
    let needs = || {
        parts::kube_assets()?;
        skip::program("curl")?;
        Helm::new()
    };
    let Some(helm) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = ApiServer::start(folder.path()).unwrap();
    kubevirt::install(&server).unwrap();
    server.namespace("vms").unwrap();
    let agents = ports::free().unwrap().port();
    let options = Options {
        guests: 1,
        clusters: 1,
        port: agents,
        ..Options::default()
    };
    let guest = run_vm(&server, &Plan::new(&options).unwrap().guests[0]);
    helm.connect(&server).unwrap();
    let port = ports::free().unwrap().port();
    let walk = Walk { server, port, folder };

    let began = Instant::now();
    before_the_chart(&walk);
    walk.install(&helm, agents).unwrap();
    let installed = began.elapsed();
    let collector = walk.start().unwrap();
    let token = walk.token().unwrap();
    let roots = wait::eventually(WAIT_TIMEOUT, "the authority", || {
        walk.get(&token, "/api/v1/ca/clients.pem")
            .with_context(|| collector.log())
    })
    .unwrap();
    let file = walk.path().join("clients.pem");
    fs::write(&file, roots).unwrap();
    let host = AgentHost::new(&file).unwrap();
    let _agent = host.run(AgentSpec::honest(&guest).unwrap()).unwrap();
    wait::eventually(WAIT_TIMEOUT, "the first VM has joined", || {
        let vm = walk.get(&token, &format!("/api/v1/vms/vms/{}", guest.name))?;
        let vm: Value = serde_json::from_str(&vm)?;
        ensure!(vm["agent"]["status"] == "up", "{vm:#}");
        Ok(())
    })
    .unwrap();
    let joined = began.elapsed();
    println!(
        "from the chart to the first VM: {:.1} s, of which Helm {:.1} s",
        joined.as_secs_f64(),
        installed.as_secs_f64()
    );
    assert!(joined < MAX_WALK, "{joined:?}");
    after_the_chart(&walk);
}

/// Exit code and output of virtfleetctl with the kubeconfig of an admin.
fn ctl(walk: &Walk, arguments: &[&str]) -> (i32, String) {
    let kubeconfig = walk.path().join("admin.kubeconfig");
    fs::write(&kubeconfig, walk.server.kubeconfig(walk.server.admin_user())).unwrap();
    let launch = Launch::new(bins::ctl().unwrap())
        .args(arguments)
        .arg("--kubeconfig");
    launch.arg(&kubeconfig).said(WAIT_TIMEOUT).unwrap()
}

/// The checks as `status what`, and the exit code.
fn check(walk: &Walk) -> (i32, Vec<String>, String) {
    let (code, said) = ctl(walk, &["install", "check", "-o", "json"]);
    let results: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    let mut lines = Vec::new();
    for result in results.as_array().unwrap() {
        let text = |key: &str| result[key].as_str().unwrap_or_default();
        assert!(text("status") == "ok" || !text("next").is_empty(), "{result}");
        lines.push(format!("{} {}", text("status"), text("what")));
    }
    (code, lines, said)
}

fn before_the_chart(walk: &Walk) {
    let (code, lines, said) = check(walk);
    assert_eq!(code, 1);
    assert_eq!(lines, ["ok API server", "ok kubevirt.io", "fail Deployment"]);
    assert!(said.contains("helm install virtfleet"), "{said}");
    let (code, said) = ctl(walk, &["install", "--dry-run"]);
    assert_eq!(code, 0, "{said}");
    let creates = said
        .lines()
        .filter(|line| line.trim_end().ends_with("create"))
        .count();
    assert!(creates > 20 && !said.contains("unknown"), "{said}");
}

/// Everything is there except the pods, which no kubelet runs here.
fn after_the_chart(walk: &Walk) {
    let mut expected = vec![
        "ok API server",
        "ok kubevirt.io",
        "fail Deployment",
        "ok definitions",
        "ok certificate of the API",
        "ok settings",
        "ok rights",
        "ok drain",
        "ok volumes",
        "ok ClusterSources",
        "ok node conditions",
        "ok enrolment.secret",
        "ok enrolment.secret",
        "ok lease",
    ];
    // The API server lists new kinds only after a while.
    let said = wait::eventually(WAIT_TIMEOUT, "all checks but one succeed", || {
        let (code, lines, said) = check(walk);
        ensure!(code == 1 && lines == expected, "{said}");
        Ok(said)
    })
    .unwrap();
    assert!(said.contains("0 of 2 replicas are available"), "{said}");
    let (_, said) = ctl(walk, &["install", "--dry-run"]);
    assert!(said.contains("exists"), "{said}");

    // A right that is gone, and a certificate.
    let admin = walk.server.admin();
    for path in [
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/virtfleet-collector",
        "/api/v1/namespaces/virtfleet/secrets/virtfleet-collector-tls",
    ] {
        admin.delete(path).unwrap().ok().unwrap();
    }
    expected[4] = "fail certificate of the API";
    wait::eventually(WAIT_TIMEOUT, "what is missing is named", || {
        let (_, lines, said) = check(walk);
        ensure!(lines[4] == expected[4], "{said}");
        ensure!(lines.contains(&"fail right list pods".to_owned()), "{said}");
        Ok(())
    })
    .unwrap();
}

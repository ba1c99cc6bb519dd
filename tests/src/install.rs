//! The chart and the kustomize manifests, with Helm and kustomize of the tests.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tempfile::TempDir;
use virtfleet_wire::layered::{Node, parse_yaml};

use crate::{
    cluster::{ApiServer, kubevirt},
    parts,
    process::Launch,
};

/// Name of the release, and of its namespace.
pub const RELEASE: &str = "virtfleet";
/// What `diskSerials.enabled` of the chart needs of a cluster, for `--api-versions`.
pub const DISK_SERIALS_API: &str = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy";
/// Maximum time of one command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);

/// Helm with a home of its own, and the shipped chart.
#[derive(Debug)]
pub struct Helm {
    programs: PathBuf,
    home: TempDir,
}

impl Helm {
    /// Fails if the part `helm` is missing ([`parts::helm`]).
    pub fn new() -> Result<Self> {
        Ok(Self {
            programs: parts::helm()?,
            home: tempfile::tempdir().context("a folder for Helm")?,
        })
    }

    /// The folder of the chart.
    pub fn chart() -> PathBuf {
        root().join("packaging/helm/virtfleet")
    }

    /// The folder of the chart for Gardener's seeds.
    pub fn gardener_chart() -> PathBuf {
        root().join("packaging/helm/virtfleet-gardener")
    }

    /// The objects that the chart for Gardener's seeds makes with these arguments.
    pub fn gardener_objects(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let launch = self
            .launch()
            .args(["template", RELEASE])
            .arg(Self::gardener_chart());
        objects(&launch.args(arguments).text(COMMAND_TIMEOUT)?)
    }

    /// Helm, without the user's repositories, plugins and kubeconfig.
    pub fn launch(&self) -> Launch {
        let home = self.home.path();
        let launch = Launch::new(self.programs.join("helm")).env("HOME", home);
        let launch = launch.env("KUBECONFIG", home.join("kubeconfig"));
        ["CACHE", "CONFIG", "DATA"].iter().fold(launch, |launch, kind| {
            launch.env(format!("HELM_{kind}_HOME"), home.join(kind))
        })
    }

    /// Makes this API server the one of all commands, as its admin.
    pub fn connect(&self, server: &ApiServer) -> Result<()> {
        let file = self.home.path().join("kubeconfig");
        std::fs::write(&file, server.kubeconfig(server.admin_user()))
            .with_context(|| format!("write {}", file.display()))
    }

    /// Runs a command of Helm and returns its output.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        self.launch().args(arguments).text(COMMAND_TIMEOUT)
    }

    /// Installs the chart with these arguments, and creates the namespace of the release.
    pub fn install(&self, arguments: &[&str]) -> Result<String> {
        let chart = Self::chart();
        let chart = chart.to_str().context("the path is not UTF-8")?;
        let release = [
            "install",
            RELEASE,
            chart,
            "--namespace",
            RELEASE,
            "--create-namespace",
        ];
        self.run(&[&release[..], arguments].concat())
    }

    /// What `helm template` prints with these arguments.
    pub fn template(&self, arguments: &[&str]) -> Result<String> {
        let launch = self.launch().args(["template", RELEASE]).arg(Self::chart());
        launch
            .args(["--namespace", RELEASE])
            .args(arguments)
            .text(COMMAND_TIMEOUT)
    }

    /// The objects that the chart makes with these arguments.
    pub fn objects(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        objects(&self.template(arguments)?)
    }

    /// The objects that `kustomize build` prints for a folder of the repository.
    pub fn kustomized(&self, folder: &str) -> Result<Vec<Value>> {
        let launch = Launch::new(self.programs.join("kustomize")).arg("build");
        objects(&launch.arg(root().join(folder)).text(COMMAND_TIMEOUT)?)
    }
}

/// An API server with KubeVirt's kinds, to which `helm` is connected. Its files are in `folder`.
pub fn server(helm: &Helm, folder: &Path) -> Result<ApiServer> {
    let server = ApiServer::start(folder)?;
    kubevirt::install(&server)?;
    helm.connect(&server)?;
    Ok(server)
}

/// Definitions of the kinds of prometheus-operator that the chart can make. Fails if the part is
/// missing ([`parts::prometheus_operator`]).
pub fn prometheus_definitions() -> Result<Vec<Value>> {
    let folder = parts::prometheus_operator()?;
    let mut definitions = Vec::new();
    for kind in ["scrapeconfigs", "podmonitors", "prometheusrules"] {
        let file = folder.join(format!("{kind}.yaml"));
        let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        definitions.extend(objects(&text)?);
    }
    Ok(definitions)
}

/// Makes a collector that listens at `address`, which must not be one of loopback, the endpoint of
/// its Service: an API server proxies only to an address that a pod of the namespace has.
pub fn connect_service(server: &ApiServer, address: SocketAddr) -> Result<()> {
    let (ip, port) = (address.ip().to_string(), address.port());
    let pod = "virtfleet-collector-1";
    let target = json!({ "kind": "Pod", "namespace": RELEASE, "name": pod });
    let restricted = json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": RELEASE, "name": pod, "labels": { "app.kubernetes.io/name": "virtfleet-collector" },
        },
        "spec": { "nodeName": "host-1", "containers": [{
            "name": "collector", "image": "virtfleet-collector", "securityContext": restricted,
        }] },
        "status": { "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }] },
    });
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": { "namespace": RELEASE, "name": "virtfleet-collector" },
        "subsets": [{ "addresses": [{ "ip": ip, "targetRef": target }], "ports": [{ "name": "api", "port": port }] }],
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "namespace": RELEASE, "name": "virtfleet-collector-1",
            "labels": { "kubernetes.io/service-name": "virtfleet-collector" },
        },
        "endpoints": [{ "addresses": [ip], "conditions": { "ready": true }, "targetRef": target }],
        "ports": [{ "name": "api", "port": port }],
    });
    for object in [pod, endpoints, slice] {
        server.apply(&object)?;
    }
    Ok(())
}

/// The objects of a file below `packaging/collector/kubernetes`.
pub fn shipped(path: &str) -> Result<Vec<Value>> {
    let file = root().join("packaging/collector/kubernetes").join(path);
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    objects(&text).with_context(|| path.to_owned())
}

/// All objects of a text in YAML, without empty documents.
pub fn objects(text: &str) -> Result<Vec<Value>> {
    let documents = parse_yaml(text).context("this is not YAML")?;
    let objects = documents.iter().map(Node::to_json);
    Ok(objects.filter(|object| !object.is_null()).collect())
}

/// Kind, namespace and name of an object.
pub fn key(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    format!(
        "{} {}/{}",
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"])
    )
}

/// The documents of what `helm template` prints, each with the name of its template, e.g.
/// `rbac.yaml`, and its text.
pub fn documents(rendered: &str) -> Vec<(String, String)> {
    let parts = rendered
        .split("\n---\n")
        .map(|part| part.trim_start_matches("---\n"));
    let document = |part: &str| {
        let (head, text) = part.split_once('\n')?;
        let (_, template) = head.strip_prefix("# Source: ")?.split_once("/templates/")?;
        Some((template.to_owned(), format!("{}\n", text.trim_end())))
    };
    parts.filter_map(document).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

//! Collectors on real API servers: one infra cluster, and as many user clusters as a scenario
//! needs.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{ApiServer, kubevirt};
use crate::{
    bins,
    pki::{self, Authority},
    ports,
    process::{Launch, Process},
    scrape::Client,
    wait,
};

/// Maximum wait for any condition before a test fails.
pub const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
/// Settings that make Nodes follow a changed label of an infra node at once: for tests of other
/// features.
pub const NO_CONFIRMATION: &str = "labels: { confirmChange: 0s }\n";

/// A running collector.
pub struct Collector {
    /// The program.
    pub process: Process,
    /// Where it serves the API.
    pub api: SocketAddr,
}

/// The address that each collector takes for that of its pod. An EndpointSlice may not have one of
/// loopback.
pub const POD_ADDRESS: &str = "10.0.0.7";

impl Collector {
    /// Starts a collector with this YAML as `inventory:`.
    pub fn start(folder: &Path, inventory: &str) -> Result<Self> {
        Self::start_with(folder, inventory, "")
    }

    /// As [`Collector::start`], with further top-level settings in YAML.
    pub fn start_with(folder: &Path, inventory: &str, more: &str) -> Result<Self> {
        Self::start_scraping(folder, inventory, "", more)
    }

    /// As [`Collector::start_with`], with further settings of `scrape`, each a line that is
    /// indented by two spaces.
    pub fn start_scraping(folder: &Path, inventory: &str, scrape: &str, more: &str) -> Result<Self> {
        let authority = Authority::new("virtfleet test authority")?;
        Self::start_in_fleet(folder, &authority, inventory, scrape, more)
    }

    /// As [`Collector::start_scraping`], in the fleet of this authority: its agents accept the
    /// collector.
    pub fn start_in_fleet(
        folder: &Path,
        authority: &Authority,
        inventory: &str,
        scrape: &str,
        more: &str,
    ) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let pki = folder.join("pki");
        pki::write(&pki, "collector", authority, &authority.collector()?)?;
        let api = ports::free()?;
        let config = folder.join("collector.yaml");
        let pki = pki.display();
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\ninventory: {inventory}\n\
             server: {{ address: \"{api}\" }}\nscrape:\n{scrape}  allowCIDRs: [127.0.0.0/8]\n  tls:\n    ca: {pki}/ca.pem\n    \
             certificate: {pki}/collector.pem\n    key: {pki}/collector.key\n    trustDomain: {}\n{more}",
            pki::TRUST_DOMAIN
        );
        fs::write(&config, text)?;
        let process = Launch::new(bins::collector()?)
            .arg("serve")
            .arg("--config")
            .arg(&config)
            .env("POD_IP", POD_ADDRESS)
            .start(folder)?;
        Ok(Self { process, api })
    }

    fn get(&self, path: &str) -> Result<crate::scrape::Answer> {
        Client::plain(self.api, WAIT_TIMEOUT)?.get(path)
    }

    /// Waits until the inventory has been read completely.
    pub fn until_ready(&self) -> Result<()> {
        wait::eventually(WAIT_TIMEOUT, "the collector is ready", || {
            self.get("/readyz")?.ok().map(drop)
        })
    }

    /// The text of `/readyz` while the collector is not ready.
    pub fn waits_for(&self) -> Result<String> {
        let answer = self.get("/readyz")?;
        ensure!(answer.status == 503, "it is not unready: {}", answer.status);
        Ok(answer.text()?.to_owned())
    }

    /// The JSON response of an API path.
    pub fn json(&self, path: &str) -> Result<Value> {
        self.get(path)?.ok()?.json()
    }

    /// The text response of an API path.
    pub fn text(&self, path: &str) -> Result<String> {
        Ok(self.get(path)?.ok()?.text()?.to_owned())
    }

    /// The output of virtfleetctl.
    pub fn ctl(&self, arguments: &[&str]) -> Result<String> {
        Launch::new(bins::ctl()?)
            .env("VIRTFLEET_SERVER", format!("http://{}", self.api))
            .args(arguments)
            .text(WAIT_TIMEOUT)
    }

    /// The response of `/metrics/fleet`.
    pub fn fleet_metrics(&self) -> Result<String> {
        Ok(self.get("/metrics/fleet")?.ok()?.text()?.to_owned())
    }

    /// The collector's own metrics.
    pub fn metrics(&self) -> Result<String> {
        Ok(self.get("/metrics")?.ok()?.text()?.to_owned())
    }

    /// The value of one sample of the collector's own metrics. `series` is written as in the
    /// exposition: `name` or `name{label="value"}`.
    pub fn sample(&self, series: &str) -> Result<f64> {
        sample(&self.metrics()?, series)
    }

    /// Waits until no VM of a user cluster waits for its labels.
    pub fn until_no_labels_queued(&self, cluster: &str) -> Result<()> {
        let series = format!("virtfleet_collector_label_queue{{cluster=\"{cluster}\"}}");
        wait::eventually(WAIT_TIMEOUT, &series, || {
            let queued = self.sample(&series)?;
            ensure!(queued < 0.5, "{queued}");
            Ok(())
        })
    }

    /// Whether the collector holds the Lease. A collector that does not answer at once does not
    /// count as leader.
    pub fn leads(&self) -> Result<bool> {
        let page = Client::plain(self.api, Duration::from_secs(5))?
            .get("/metrics")?
            .ok()?;
        Ok(sample(page.text()?, "virtfleet_collector_leader")? > 0.0)
    }

    /// Waits until the collector holds the Lease.
    pub fn until_leads(&self) -> Result<()> {
        wait::eventually(WAIT_TIMEOUT, "it leads", || {
            ensure!(self.leads()?, "it does not");
            Ok(())
        })
    }

    /// Names of all VMs as `namespace/name`, sorted.
    pub fn vms(&self) -> Result<Vec<String>> {
        let list = self.json("/api/v1/vms")?;
        let items = list["items"].as_array().context("items")?;
        let name = |item: &Value| {
            let word = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", word("namespace"), word("name"))
        };
        Ok(items.iter().map(name).collect())
    }

    /// Waits until the VMs are exactly these, as `namespace/name`, sorted.
    pub fn until_vms(&self, expected: &[&str]) -> Result<()> {
        wait::eventually(WAIT_TIMEOUT, &format!("the VMs are {expected:?}"), || {
            let vms = self.vms()?;
            ensure!(vms == expected, "{vms:?}");
            Ok(())
        })
    }

    /// Waits until a field of a VM has this value.
    pub fn until_vm(&self, name: &str, key: &str, value: &Value) -> Result<()> {
        wait::eventually(WAIT_TIMEOUT, &format!("{key} of {name} is {value}"), || {
            let vm = self.json(&format!("/api/v1/vms/{name}"))?;
            ensure!(vm[key] == *value, "{}", vm[key]);
            Ok(())
        })
    }

    /// A user cluster, as listed by the API.
    pub fn cluster(&self, name: &str) -> Result<Value> {
        let list = self.json("/api/v1/clusters")?;
        let items = list["items"].as_array().context("items")?;
        let found = items.iter().find(|item| item["name"] == name);
        found.cloned().with_context(|| format!("no {name} in {list:#}"))
    }

    /// Waits until a field of a user cluster has this value; returns the cluster.
    pub fn until_cluster(&self, name: &str, key: &str, value: &Value) -> Result<Value> {
        wait::eventually(WAIT_TIMEOUT, &format!("{key} of {name} is {value}"), || {
            let cluster = self.cluster(name)?;
            ensure!(cluster[key] == *value, "{cluster:#}");
            Ok(cluster)
        })
    }

    /// The message of the finding with this id that contains `word`.
    pub fn finding(&self, id: &str, word: &str) -> Result<String> {
        let list = self.json("/api/v1/findings")?;
        let items = list["items"].as_array().context("items")?;
        let found = items.iter().find(|item| {
            let item = item.get("finding").unwrap_or(item);
            item["id"] == id && item.to_string().contains(word)
        });
        found
            .map(ToString::to_string)
            .with_context(|| format!("no {id} with {word:?} in {list:#}"))
    }

    /// Waits for such a finding; returns its message.
    pub fn until_finding(&self, id: &str, word: &str) -> Result<String> {
        wait::eventually(WAIT_TIMEOUT, &format!("a finding {id} with {word:?}"), || {
            self.finding(id, word)
        })
    }
}

/// An infra cluster with the kinds of KubeVirt and virtfleet.
pub fn infra(folder: &Path) -> Result<ApiServer> {
    let server = ApiServer::start(folder)?;
    install(&server)?;
    Ok(server)
}

/// Installs the kinds of KubeVirt and virtfleet.
pub fn install(server: &ApiServer) -> Result<()> {
    kubevirt::install(server)?;
    let ours = Launch::new(bins::collector()?)
        .args(["crds", "-o", "json"])
        .text(WAIT_TIMEOUT)?;
    let ours: Value = serde_json::from_str(&ours)?;
    server.install(ours["items"].as_array().context("items")?)
}

/// The collector's `inventory:` for a user of the infra cluster. All API servers of a test are on
/// loopback.
pub fn settings(folder: &Path, kubeconfig: &str, more: &str) -> Result<String> {
    let file: PathBuf = folder.join("infra.kubeconfig");
    fs::write(&file, kubeconfig)?;
    Ok(format!(
        "{{ cluster: {{ kubeconfig: {}, userClusters: {{ allowCIDRs: [127.0.0.0/8] }}{more} }} }}",
        file.display()
    ))
}

/// A `UserCluster` that selects a namespace; its kubeconfig is in the [`secret`] of its name.
pub fn user_cluster(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster",
        "metadata": { "name": name, "labels": { "tier": "gold" } },
        "spec": {
            "vmis": { "namespace": namespace },
            "kubeconfig": { "secret": { "namespace": "secrets", "name": name } },
        },
    })
}

/// The Secret with the kubeconfig of a [`user_cluster`], in the namespace `secrets`.
pub fn secret(name: &str, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "namespace": "secrets", "name": name },
        "stringData": { "kubeconfig": kubeconfig },
    })
}

/// The value of one sample of a page.
fn sample(page: &str, series: &str) -> Result<f64> {
    let value = page
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
        .with_context(|| format!("no {series}"))?;
    Ok(value.parse()?)
}

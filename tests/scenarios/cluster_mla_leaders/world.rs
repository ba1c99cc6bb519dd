//! An infra cluster with running VMs, a receiver that records, and collectors in one fleet.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use virtfleet_remote_write::request::STALE_NAN;
use virtfleet_tests::{
    cluster::{
        self, ApiServer,
        live::{self, Collector, WAIT_TIMEOUT},
    },
    pki::Authority,
    ports,
    remote_write::{Recorded, Recorder, Reply},
    sim::{Fleet, Options, Plan},
    wait,
};

/// Namespace of the VMs.
const VMS: &str = "vms";
/// Namespace of the Lease.
const LEASES: &str = "virtfleet";
/// Scrape interval of the collectors.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// Time for which the others wait before they take a Lease that is not renewed.
pub(super) const LEASE: Duration = Duration::from_secs(6);
/// Time after which a leader that cannot renew the Lease stops: a busy machine must not end a term.
const RENEW: Duration = Duration::from_secs(4);
/// Interval between two attempts to take the Lease.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// A sample as the receiver got it.
#[derive(Debug, Clone)]
pub(super) struct Received {
    /// Path of the request: it names the stream.
    pub(super) path: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) at_ms: i64,
    pub(super) is_stale: bool,
}

impl Received {
    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.labels.get(name).is_some_and(|label| label == value)
    }
}

/// The requests that were decoded: a wait reads all of them several times a second.
#[derive(Default)]
struct Decoded {
    /// Number of requests.
    requests: usize,
    samples: Vec<Received>,
}

/// The world. Dropping it ends everything but the collectors.
pub(super) struct World {
    pub(super) infra: ApiServer,
    pub(super) receiver: Recorder,
    decoded: Mutex<Decoded>,
    /// The VMIs, as the API server has them.
    pub(super) vmis: Vec<Value>,
    port: u16,
    authority: Authority,
    _fleet: Fleet,
    folder: TempDir,
}

impl World {
    /// Starts the API server, the receiver and so many guests, with the label `tenant: blue`.
    pub(super) fn new(guests: usize) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let infra = live::infra(folder.path())?;
        infra.namespace(VMS)?;
        infra.namespace(LEASES)?;
        infra.apply(&cluster::infra_node("host-1", &[]))?;
        let port = ports::free()?.port();
        let mut plan = Plan::new(&Options {
            guests,
            hosts: 1,
            zones: 1,
            clusters: 1,
            port,
            ..Options::default()
        })?;
        let mut vmis = Vec::new();
        for guest in &mut plan.guests {
            VMS.clone_into(&mut guest.cluster);
            let vmi = cluster::vmi_of(guest, "host-1").label("tenant", "blue");
            let vmi = infra.apply(&vmi)?;
            let address = guest.address.ip().to_string();
            infra.apply(&cluster::launcher(&vmi, &[&address]))?;
            let uid = vmi["metadata"]["uid"].as_str().context("no UID")?;
            uid.clone_into(&mut guest.uid);
            vmis.push(vmi);
        }
        let authority = Authority::new("virtfleet test authority")?;
        let fleet = Fleet::start(&plan, &authority)?;
        Ok(Self {
            infra,
            receiver: Recorder::start(|_, request| Some(accept(request)))?,
            decoded: Mutex::default(),
            vmis,
            port,
            authority,
            _fleet: fleet,
            folder,
        })
    }

    /// Creates a user cluster with the VMs that have the label `tenant: NAME`. Its samples go to
    /// the path `/tenant/NAME`.
    pub(super) fn tenant(&self, name: &str) -> Result<()> {
        self.tenant_at(name, &format!("http://{}/tenant/{name}", self.receiver.address()))
    }

    /// As [`World::tenant`], with another receiver.
    pub(super) fn tenant_at(&self, name: &str, url: &str) -> Result<()> {
        let object = json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster", "metadata": { "name": name },
            "spec": {
                "vmis": { "namespace": VMS, "selector": { "matchLabels": { "tenant": name } } },
                "mla": { "remoteWrite": { "url": url, "insecure": true } },
            },
        });
        self.infra.apply(&object).map(drop)
    }

    /// Starts a collector, and waits until it has read everything. The samples of its operator's
    /// stream go to the path `/fleet/NAME`.
    pub(super) fn collector(&self, name: &str) -> Result<Collector> {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder)?;
        let kubeconfig = self.infra.kubeconfig(self.infra.admin_user());
        let inventory = live::settings(&folder, &kubeconfig, "")?;
        let scrape = format!("  interval: 1s\n  timeout: 1s\n  port: {}\n", self.port);
        let more = self.settings(&folder, name);
        let collector = Collector::start_in_fleet(&folder, &self.authority, &inventory, &scrape, &more)?;
        collector.until_ready()?;
        Ok(collector)
    }

    fn settings(&self, folder: &Path, name: &str) -> String {
        format!(
            "leaderElection: {{ namespace: {LEASES}, leaseSeconds: {}, renewSeconds: {}, retrySeconds: {} }}\n\
             mla:\n  allowCIDRs: [127.0.0.0/8]\n  queue: {{ folder: {} }}\n  flush: {{ interval: 200ms, sync: 200ms }}\n  \
             fleet: {{ guests: true, remoteWrite: {{ url: \"http://{}/fleet/{name}\" }} }}\n",
            LEASE.as_secs(),
            RENEW.as_secs(),
            RETRY.as_secs(),
            folder.join("queues").display(),
            self.receiver.address(),
        )
    }

    /// Everything that was received, in order.
    pub(super) fn received(&self) -> Result<Vec<Received>> {
        self.read_received(<[Received]>::to_vec)
    }

    /// Calls `read` with everything that was received, in order. Decodes each request once.
    fn read_received<T>(&self, read: impl FnOnce(&[Received]) -> T) -> Result<T> {
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        for request in self.receiver.recorded_from(decoded.requests) {
            let message = request.v2()?;
            decoded.requests += 1;
            let symbol = |at: u32| message.symbols.get(at as usize).cloned().unwrap_or_default();
            for series in &message.timeseries {
                let labels = series.labels_refs.chunks(2);
                let labels: BTreeMap<_, _> = labels.map(|pair| (symbol(pair[0]), symbol(pair[1]))).collect();
                decoded
                    .samples
                    .extend(series.samples.iter().map(|sample| Received {
                        path: request.path.clone(),
                        labels: labels.clone(),
                        at_ms: sample.timestamp,
                        is_stale: sample.value.to_bits() == STALE_NAN,
                    }));
            }
        }
        Ok(read(&decoded.samples))
    }

    /// Times of the samples of `up` of a VM on paths that begin so, without stale markers, sorted.
    pub(super) fn ups(&self, path: &str, vm: &str) -> Result<Vec<i64>> {
        let is_up = |one: &&Received| {
            one.path.starts_with(path) && one.is("__name__", "up") && one.is("name", vm) && !one.is_stale
        };
        let mut times = self.read_received(|all| -> Vec<_> {
            let own = all.iter().filter(is_up);
            own.map(|one| one.at_ms).collect()
        })?;
        times.sort_unstable();
        Ok(times)
    }

    /// Waits until each VM has so many samples of `up` on this path.
    pub(super) fn until_pages(&self, path: &str, count: usize) -> Result<()> {
        wait::eventually(
            WAIT_TIMEOUT,
            &format!("{count} pages of each VM on {path}"),
            || {
                for vmi in &self.vmis {
                    let vm = vmi["metadata"]["name"].as_str().unwrap_or_default();
                    let ups = self.ups(path, vm)?.len();
                    ensure!(ups >= count, "{ups} of {vm}");
                }
                Ok(())
            },
        )
    }
}

/// Accepts everything, as a receiver of 2.0 does.
fn accept(request: &Recorded) -> Reply {
    let message = request.v2().unwrap_or_default();
    let samples: usize = message.timeseries.iter().map(|series| series.samples.len()).sum();
    Reply::status(204).written(samples as u64)
}

/// The present time in milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}

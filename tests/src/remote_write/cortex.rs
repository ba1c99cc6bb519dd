//! A real Cortex in one process: distributor, ingester and querier.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{
    ports,
    process::{Launch, Process},
    prometheus::encode,
    scrape::Client,
    stage::STAGE_TIMEOUT,
};

/// A Cortex that requires a tenant in each request, with the limits of KKP's.
#[derive(Debug)]
pub struct Cortex {
    program: PathBuf,
    folder: PathBuf,
    process: Option<Process>,
    grpc: SocketAddr,
    /// Where it accepts samples and queries.
    pub address: SocketAddr,
}

impl Cortex {
    /// Starts it. It stores below `folder`. Remote write 1.0 is always accepted, and 2.0 if
    /// `accepts_v2`.
    pub fn start(program: PathBuf, folder: &Path, accepts_v2: bool) -> Result<Self> {
        let folder = folder.join("cortex");
        for name in ["blocks", "tsdb", "sync"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        }
        let mut cortex = Self {
            program,
            folder,
            process: None,
            grpc: ports::free()?,
            address: ports::free()?,
        };
        cortex.restart(accepts_v2)?;
        Ok(cortex)
    }

    /// Kills it, if it runs, and starts it with the samples that it has accepted.
    pub fn restart(&mut self, accepts_v2: bool) -> Result<()> {
        drop(self.process.take());
        let file = self.folder.join("cortex.yaml");
        fs::write(&file, self.config(accepts_v2)).with_context(|| format!("write {}", file.display()))?;
        let mut process = Launch::new(&self.program)
            .arg(format!("-config.file={}", file.display()))
            .start(&self.folder)?;
        let address = self.address;
        process.wait_for(STAGE_TIMEOUT, "Cortex is ready", |_| {
            Client::plain(address, STAGE_TIMEOUT)?.get("/ready")?.ok()
        })?;
        self.process = Some(process);
        Ok(())
    }

    /// Queries go to the ingester only: no block is older than an hour.
    fn config(&self, accepts_v2: bool) -> String {
        let own = self.folder.display();
        let (ip, http, grpc) = (self.address.ip(), self.address.port(), self.grpc.port());
        format!(
            "\
target: distributor,ingester,querier
auth_enabled: true
server:
  http_listen_address: {ip}
  http_listen_port: {http}
  grpc_listen_address: {ip}
  grpc_listen_port: {grpc}
distributor:
  remote_writev2_enabled: {accepts_v2}
ingester:
  lifecycler:
    address: {ip}
    min_ready_duration: 0s
    ring:
      kvstore: {{ store: inmemory }}
      replication_factor: 1
querier:
  store_gateway_addresses: {ip}:{grpc}
  query_store_after: 1h
  active_query_tracker_dir: \"\"
blocks_storage:
  backend: filesystem
  filesystem: {{ dir: \"{own}/blocks\" }}
  tsdb: {{ dir: \"{own}/tsdb\" }}
  bucket_store: {{ sync_dir: \"{own}/sync\" }}
limits:
  max_label_names_per_series: 40
  out_of_order_time_window: 10m
  accept_ha_samples: true
"
        )
    }

    /// The series of an instant query of `tenant`.
    pub fn query(&self, tenant: &str, promql: &str) -> Result<Vec<Value>> {
        let path = format!("/prometheus/api/v1/query?query={}", encode(promql));
        let answer = Client::plain(self.address, STAGE_TIMEOUT)?
            .get_with(&path, &[("x-scope-orgid", tenant)])?
            .ok()?
            .json()?;
        let series = answer["data"]["result"].as_array();
        Ok(series.with_context(|| format!("{promql}: {answer}"))?.clone())
    }
}

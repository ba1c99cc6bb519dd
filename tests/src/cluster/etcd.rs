//! A single-member etcd. Its data need not survive a crash of the machine.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::timeout::SERVER_TIMEOUT;
use crate::{
    ports,
    process::{Launch, Process},
};

pub(super) struct Etcd {
    process: Process,
    address: SocketAddr,
}

impl Etcd {
    /// Starts etcd and waits until it serves. Fails early if another program has taken its port.
    pub(super) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let address = ports::free()?;
        let url = format!("http://{address}");
        let mut process = Launch::new(program)
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            // A single member has no peers.
            .args(["--listen-peer-urls", "http://127.0.0.1:0"])
            .args(["--log-level", "warn", "--unsafe-no-fsync"])
            .tied()
            .start(folder)?;
        process.wait_for(SERVER_TIMEOUT, "etcd", |_| {
            let health = agent()
                .get(format!("{url}/health"))
                .call()?
                .body_mut()
                .read_to_string()?;
            health.contains("true").then_some(()).context(health)
        })?;
        Ok(Self { process, address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// Compacts all revisions except the newest.
    pub(super) fn compact(&self) -> Result<()> {
        // Writes an unused key, so that there is an uncompacted revision. Keys are base64.
        let put = self.ask("kv/put", &json!({ "key": "dmlydGZsZWV0", "value": "" }))?;
        let revision = &put["header"]["revision"];
        self.ask(
            "kv/compaction",
            &json!({ "revision": revision, "physical": true }),
        )?;
        Ok(())
    }

    /// Calls etcd's JSON gateway, which encodes numbers as strings.
    fn ask(&self, call: &str, body: &Value) -> Result<Value> {
        let url = format!("http://{}/v3/{call}", self.address);
        let mut response = agent()
            .post(&url)
            .send(body.to_string())
            .with_context(|| url.clone())?;
        let text = response.body_mut().read_to_string()?;
        serde_json::from_str(&text).with_context(|| format!("{url}: {text}"))
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .proxy(None)
        .timeout_global(Some(SERVER_TIMEOUT));
    config.build().new_agent()
}

//! Memory of the real agent that is enrolled, beside one with certificate files.

use std::{fs, net::SocketAddr, path::Path, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use hyper::StatusCode;
use rustls::ClientConfig;
use virtfleet_tests::{
    bins,
    enrolment::EnrolmentClient,
    measure::{Table, usage},
    pki::{self, Authority, TRUST_DOMAIN},
    ports,
    process::{Launch, Process},
    scrape::Client,
};
use virtfleet_wire::enrolment::{EnrolmentAnswer, Nonce};

use super::SOON;

/// Pulls of each agent before it is measured.
const PULLS: usize = 300;
/// A collector keeps its connection, so only some pulls have a handshake.
const PULLS_PER_CONNECTION: usize = 10;
const KIB: u64 = 1024;

/// Measures the two in turn, with so many starts of each.
pub(super) fn memory(folder: &Path, starts: usize, table: &mut Table) -> Result<()> {
    let authority = Authority::new("benchmark")?;
    let (mut files, mut enrolled) = (Vec::new(), Vec::new());
    for start in 0..starts {
        for (enrols, found) in [(false, &mut files), (true, &mut enrolled)] {
            let home = folder.join(format!("agent-{start}-{enrols}"));
            found.push(resident(&home, &authority, enrols)?);
        }
    }
    let (files, enrolled) = (median(files), median(enrolled));
    let kib = |bytes: u64| format!("{} KiB", bytes / KIB);
    table.row(&["agent with certificate files: resident", &kib(files), ""]);
    table.row(&["agent with enrolment: resident", &kib(enrolled), ""]);
    let added = i64::try_from(enrolled)? - i64::try_from(files)?;
    let shown = format!("{} KiB", added / i64::try_from(KIB)?);
    table.row(&["enrolment: additional memory of the agent", &shown, "<= 1024 KiB"]);
    Ok(())
}

/// Resident memory of an agent after its pulls.
fn resident(home: &Path, authority: &Authority, enrols: bool) -> Result<u64> {
    let identity = authority.agent("bench", "agent", "uid")?;
    let files = pki::write(home, "agent", authority, &identity)?;
    let address = ports::free()?;
    let tls = if enrols {
        "enrolment: true".to_owned()
    } else {
        format!(
            "certificate: {}, key: {}",
            files.certificate.display(),
            files.key.display()
        )
    };
    let config = home.join("agent.yaml");
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners:\n  - name: default\n    \
         address: \"{address}\"\n  tls: {{ {tls}, clientCA: {} }}\n",
        files.ca.display()
    );
    fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
    let mut agent: Process = Launch::new(bins::agent()?)
        .args(["run", "--config"])
        .arg(&config)
        .env("STATE_DIRECTORY", home.join("state"))
        .start(home)?;
    agent.wait_for_port(address, SOON)?;
    if enrols {
        enrol(address, authority)?;
    }
    let client = authority.client_config(&authority.collector()?)?;
    for _ in 0..PULLS / PULLS_PER_CONNECTION {
        pull(address, &client)?;
    }
    usage::resident(agent.id())
}

fn pull(address: SocketAddr, client: &Arc<ClientConfig>) -> Result<()> {
    let mut client = Client::tls(address, Arc::clone(client), SOON)?;
    for _ in 0..PULLS_PER_CONNECTION {
        client.get("/v1/report")?.ok()?;
        client.get("/metrics")?.ok()?;
    }
    Ok(())
}

/// Enrols an agent as a collector does.
fn enrol(address: SocketAddr, authority: &Authority) -> Result<()> {
    let identity = format!("spiffe://{TRUST_DOMAIN}/vmi/bench/agent/uid");
    let mut client = EnrolmentClient::connect(address, &authority.collector()?, SOON)?;
    let answer = client
        .request(&identity, &Nonce::from_bytes([7; 32]), false)?
        .ok()?;
    let answer: EnrolmentAnswer = serde_json::from_slice(&answer.body)?;
    let certificate = authority.certify(&answer.csr, &identity, |_| {})?;
    let answer = client.deliver(&certificate, "")?;
    ensure!(
        answer.status == StatusCode::NO_CONTENT,
        "the agent did not accept its certificate: {}",
        answer.status
    );
    Ok(())
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

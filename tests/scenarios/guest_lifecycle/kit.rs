//! What the scenarios share: a stage, a guest with certificates, and its pages.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use virtfleet_tests::{
    guest::{Guest as Machine, Scene, Start, Suite, UUID},
    pki, real,
    scrape::Client,
    sim::Guest,
    stage::{STAGE_TIMEOUT, Stage},
    wait::eventually,
};

/// The command that runs what takes minutes.
pub(crate) const SOAK: &str = "make guest-soak";

/// A collector, and the real VM in its inventory.
pub(crate) fn stage() -> Result<(Stage, Guest)> {
    let stage = Stage::small_at(real::PULLS)?;
    let who = real::tenant(&stage, 1, UUID)?;
    let host = stage.plan.hosts.first().context("no host")?.name.clone();
    real::place(&stage, &who, &host)?;
    Ok((stage, who))
}

/// A guest that runs already, with what the folder of the agent holds in `/root/virtfleet`: the
/// static agent, its certificates under `tls`, and whatever `more` puts beside them.
pub(crate) fn booted(
    scene: &Scene,
    stage: &Stage,
    who: &Guest,
    suite: Suite,
    more: impl FnOnce(&Path) -> Result<()>,
) -> Result<Machine> {
    let folder = real::agent_folder(scene.path())?;
    let identity = stage.authority.agent(&who.cluster, &who.name, &who.uid)?;
    pki::write(&folder.join("tls"), "agent", &stage.authority, &identity)?;
    more(&folder)?;
    let machine = scene.start(&real::vm(who).suite(suite), Start::Booted)?;
    machine.copy_in(&folder, "/root/virtfleet")?;
    fs::remove_dir_all(&folder).context("remove a folder that was copied")?;
    Ok(machine)
}

/// Puts settings and certificates where the agent reads them, with as many collectors as guests in
/// the field have. Its user must exist.
pub(crate) const CERTIFICATES: &str = "set -e
mkdir -p /etc/virtfleet/agent.d /etc/virtfleet/tls
cp /root/virtfleet/tls/* /etc/virtfleet/tls/
chown root:virtfleet /etc/virtfleet/tls/agent.key
chmod 0640 /etc/virtfleet/tls/agent.key
cat >/etc/virtfleet/agent.d/10-tls.yaml <<END
apiVersion: virtfleet.io/v1alpha1
kind: AgentConfig
metrics: { profile: dashboards }
server:
  tls:
    certificate: /etc/virtfleet/tls/agent.pem
    key: /etc/virtfleet/tls/agent.key
    clientCA: /etc/virtfleet/tls/ca.pem
END
";

/// One page of the guest's agent, asked for as a scraper does.
pub(crate) fn page(stage: &Stage, who: &Guest, path: &str) -> Result<String> {
    let config = stage.authority.client_config(&stage.authority.collector()?)?;
    let answer = Client::tls(who.address, config, STAGE_TIMEOUT)?.get(path)?.ok()?;
    answer.text().map(str::to_owned)
}

/// The page once it is as `holds` wants it.
pub(crate) fn page_until(
    stage: &Stage,
    who: &Guest,
    path: &str,
    what: &str,
    holds: impl Fn(&str) -> bool,
) -> Result<String> {
    eventually(STAGE_TIMEOUT, what, || {
        let text = page(stage, who, path)?;
        anyhow::ensure!(holds(&text), "{path} is not so yet");
        Ok(text)
    })
}

/// What `systemctl show` says of a unit's property that is a number.
pub(crate) fn number(machine: &Machine, unit: &str, property: &str) -> Result<u64> {
    let text = machine.run(&format!("systemctl show -P {property} {unit}"))?;
    text.parse()
        .with_context(|| format!("{property} of {unit}: {text:?}"))
}

/// The samples of a page of metrics: name with labels, and value as it is printed.
pub(crate) fn samples(page: &str) -> BTreeMap<String, String> {
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

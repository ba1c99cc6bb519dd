//! What the scenarios share: a guest with the agent, its settings for disks, and what the agent
//! says of them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    guest::{Guest, Output, Scene, Vm},
    real::{self, AGENT},
};

/// Maximum time of a disk operation of the agent, under emulation on a busy machine.
pub(crate) const AGENT_TIMEOUT: Duration = Duration::from_mins(8);

/// The command that runs what takes minutes.
pub(crate) const SOAK: &str = "make guest-disk-soak";
/// How many power cuts are asked for: see `guest_disks.rs`.
pub(crate) const CUTS: &str = "VIRTFLEET_DISK_CUTS";

/// Stand-ins for containerd and kubelet, which note what was mounted when they were started.
const SERVICES: &str = "set -e
for name in containerd kubelet; do
cat >/etc/systemd/system/$name.service <<END
[Unit]
Description=a stand-in for $name
[Service]
ExecStart=/bin/sh -c 'findmnt -rno TARGET,FSTYPE,UUID | grep -E \"^(/var/lib|/var/log|/data)\" | sort >/run/saw-$name.new; mv /run/saw-$name.new /run/saw-$name; exec sleep infinity'
[Install]
WantedBy=multi-user.target
END
done
systemctl enable --quiet containerd kubelet
systemctl daemon-reload";

/// A VM whose boots are not held up by cloud-init.
pub(crate) fn vm(name: &str) -> Vm {
    Vm::new(name).no_seed()
}

/// A guest that runs already, with the agent installed and none of its units started, and with the
/// stand-ins for containerd and kubelet enabled and not started. `disks` are items of the settings'
/// list.
pub(crate) fn guest(scene: &Scene, vm: &Vm, disks: &str) -> Result<Guest> {
    let machine = real::installed(scene, vm)?;
    machine.run(SERVICES)?;
    declare(&machine, disks)?;
    Ok(machine)
}

/// The same items, each with a second for its proof of blankness unless it says how it is proven.
/// By default the proof reads for 20 seconds, and an emulated guest needs all of them in each plan.
fn proven_in_a_second(disks: &str) -> String {
    let items = disks.split("\n- ").map(|item| {
        if item.contains("proof") {
            item.to_owned()
        } else if let Some(rest) = item.strip_prefix("{ ") {
            format!("{{ proofSeconds: 1, {rest}")
        } else if item.starts_with("name:") {
            format!("proofSeconds: 1\n  {item}")
        } else {
            item.to_owned()
        }
    });
    items.collect::<Vec<_>>().join("\n- ")
}

/// Writes other disks to the settings, without a reconcile request.
pub(crate) fn declare(machine: &Guest, disks: &str) -> Result<()> {
    let disks = proven_in_a_second(disks);
    // No client connects from outside the guest, so no certificates are needed.
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners:\n  \
         - {{ name: default, address: \"127.0.0.1:10911\", plain: true }}\ndisks:\n{disks}"
    );
    machine.write_file("/etc/virtfleet/agent.d/50-disks.yaml", text.as_bytes(), "0644")?;
    machine.run(&format!("{AGENT} check-config")).map(drop)
}

/// One pass over the disks, whatever its exit code.
pub(crate) fn apply(machine: &Guest) -> Result<Output> {
    machine.sh_within(&format!("{AGENT} apply disks"), AGENT_TIMEOUT)
}

/// One pass that must succeed.
pub(crate) fn applied(machine: &Guest) -> Result<()> {
    machine
        .run_within(&format!("{AGENT} apply disks"), AGENT_TIMEOUT)
        .map(drop)
}

/// The plan, and its detailed exit code.
pub(crate) fn plan(machine: &Guest) -> Result<(Value, i32)> {
    let output = machine.sh_within(
        &format!("{AGENT} plan disks --detailed-exitcode -o json"),
        AGENT_TIMEOUT,
    )?;
    let plan = serde_json::from_str(&output.stdout)
        .with_context(|| format!("the plan: {}{}", output.stdout, output.stderr))?;
    Ok((plan, output.code))
}

/// Nothing is left to do: a plan with neither changes nor refusals.
pub(crate) fn settled(machine: &Guest) -> Result<()> {
    let (plan, code) = plan(machine)?;
    ensure!(code == 0, "the plan ends with {code}: {plan:#}");
    Ok(())
}

/// The refusals of a declared disk in a plan.
pub(crate) fn refusals_in(plan: &Value, name: &str) -> Result<Vec<Value>> {
    let disks = find(plan, "disks").with_context(|| format!("no disks in {plan:#}"))?;
    let disk = disks
        .as_array()
        .into_iter()
        .flatten()
        .find(|disk| disk["name"] == name);
    let disk = disk.with_context(|| format!("no disk {name} in {plan:#}"))?;
    Ok(disk["refusals"].as_array().cloned().unwrap_or_default())
}

/// The same in a new plan.
pub(crate) fn refusals(machine: &Guest, name: &str) -> Result<Vec<Value>> {
    refusals_in(&plan(machine)?.0, name)
}

/// The one refusal of a disk in a plan, which is of this kind.
pub(crate) fn refused_in(plan: &Value, name: &str, kind: &str) -> Result<Value> {
    let refusals = refusals_in(plan, name)?;
    ensure!(
        refusals.len() == 1 && refusals[0]["kind"] == kind,
        "{name} should be refused as {kind}: {refusals:#?}"
    );
    Ok(refusals[0].clone())
}

/// The same in a new plan.
pub(crate) fn refused(machine: &Guest, name: &str, kind: &str) -> Result<Value> {
    refused_in(&plan(machine)?.0, name, kind)
}

/// The first value of this name, wherever it is.
pub(crate) fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map
            .get(name)
            .or_else(|| map.values().find_map(|inner| find(inner, name))),
        Value::Array(list) => list.iter().find_map(|inner| find(inner, name)),
        _ => None,
    }
}

/// The ids of the report's findings.
pub(crate) fn findings(machine: &Guest) -> Result<Vec<String>> {
    let text = machine.run(&format!("{AGENT} report"))?;
    let report: Value = serde_json::from_str(&text).context("the report")?;
    let list = report["findings"]
        .as_array()
        .with_context(|| format!("no findings in {text}"))?;
    Ok(list
        .iter()
        .filter_map(|finding| finding["id"].as_str().map(str::to_owned))
        .collect())
}

/// What is mounted at a path: kind and filesystem's UUID.
pub(crate) fn mounted(machine: &Guest, path: &str) -> Result<(String, String)> {
    let text = machine.run(&format!("findmnt -rno FSTYPE,UUID --mountpoint {path}"))?;
    let (kind, uuid) = text
        .split_once(' ')
        .with_context(|| format!("{path}: {text:?}"))?;
    Ok((kind.to_owned(), uuid.trim().to_owned()))
}

/// Nothing is mounted at a path.
pub(crate) fn not_mounted(machine: &Guest, path: &str) -> Result<()> {
    let found = machine.sh(&format!("findmnt -no SOURCE --mountpoint {path}"))?;
    ensure!(found.code != 0, "{path} is a mount of {}", found.stdout);
    Ok(())
}

/// Waits until `path` is a mount point, without asking anybody for it.
pub(crate) fn until_mounted(machine: &Guest, path: &str) -> Result<()> {
    let shows = format!("grep -q ' {path} ' /proc/self/mounts");
    let waited = machine.run_until_within(&shows, &format!("{path} mounted"), AGENT_TIMEOUT / 4);
    waited.map_err(|error| {
        let said = machine.sh("journalctl --no-pager -n 60 -u 'virtfleet*'");
        error.context(said.map_or_else(|error| error.to_string(), |output| output.stdout))
    })
}

/// How often the audit record says that a step was begun.
pub(crate) fn begun(machine: &Guest, name: &str, step: &str) -> Result<usize> {
    let text = machine.run("cat /var/lib/virtfleet/journal/audit.jsonl 2>/dev/null || true")?;
    let mut count = 0;
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).with_context(|| format!("audit: {line}"))?;
        count +=
            usize::from(record["name"] == name && record["step"] == step && record["moment"] == "about-to");
    }
    Ok(count)
}

//! What the agent's `run` notices on a Debian that boots, with the package's units: a lease that
//! names others, and files of ours that somebody else changes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    guest::Suite,
    machine::{INFRA, Machine, NODE_LOCAL, OTHER, Options, Root, Site, play},
    wait::eventually,
};

/// A reconcile is requested at once, or within a minute once a burst of requests is used up; on a
/// busy machine it takes its time.
const NOTICED: Duration = Duration::from_secs(100);
const SOON: Duration = Duration::from_secs(30);
const RESOLVED: &str = "/etc/systemd/resolved.conf.d/zz-virtfleet.conf";

fn until_uses(machine: &Machine, nameserver: &str) -> Result<()> {
    let wanted = |state: &Value| {
        let now = &state["effective"]["nameservers"];
        state["standing"] == "verified" && *now == serde_json::json!([nameserver])
    };
    machine.until_dns(NOTICED, nameserver, wanted)?;
    // The agent's state may be older than an edit of the file that resolved has taken up.
    machine.until_sh(
        NOTICED,
        &format!("resolvectl --no-pager dns | grep -qx 'Global: {nameserver}'"),
    )?;
    eventually(SOON, "names", || machine.lookup("host.example"))
}

fn story(root: &Root) -> Result<()> {
    let mut site = Site::new(&format!("{NODE_LOCAL},{INFRA}"))?;
    let options = Options::default().networkd().agent("dns: {manage: auto}");
    let machine = Machine::boot(root, site.inside(), options)?;
    machine.is_active("virtfleet-agent.service")?;
    until_uses(&machine, INFRA)?;

    // The platform hands out another one.
    let resolved = machine.resolved()?;
    let lookups = machine.watch("w%d.example")?;
    site.give(&format!("{NODE_LOCAL},{OTHER}"))?;
    machine.sh("networkctl renew eth0")?;
    until_uses(&machine, OTHER)?;
    lookups.more(5)?;
    let (good, failed) = lookups.so_far();
    println!("{} of {good} lookups failed", failed.len());
    let faults = machine.unexplained(&failed)?;
    ensure!(faults.is_empty(), "{faults:?} beside {good} that succeeded");
    ensure!(machine.resolved()? == resolved, "systemd-resolved was restarted");

    // Somebody removes our file, then somebody writes into it, and each has it taken up. On a busy
    // machine the agent may already have put it right.
    let put_right = format!("grep -qsx DNS={OTHER} {RESOLVED}");
    let taken_up = format!(
        "systemctl reload-or-restart systemd-resolved && \
         {{ ! resolvectl --no-pager dns | grep -q {OTHER} || {put_right}; }}"
    );
    for edit in ["rm", "sed -i 's/^DNS=10.78.0.54$/DNS=10.78.0.99/'"] {
        machine.sh(&format!("{edit} {RESOLVED} && {taken_up}"))?;
        let edited = machine.until_sh(NOTICED, &put_right);
        edited.with_context(|| machine.story())?;
        until_uses(&machine, OTHER)?;
    }
    for line in machine
        .journal("virtfleet-agent")?
        .lines()
        .filter(|line| line.contains("asked for"))
    {
        println!("{line}");
    }
    Ok(())
}

#[test]
fn tier2_a_new_lease_and_edits_by_others_are_put_right_by_themselves() {
    let test = "tier2_a_new_lease_and_edits_by_others_are_put_right_by_themselves";
    play(test, Suite::Trixie, story).unwrap();
}

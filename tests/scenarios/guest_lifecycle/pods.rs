//! Pods as kubelet's systemd driver has them: slices below `kubepods.slice`, one of which wants
//! more memory than it may have.

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{guest::Guest as Machine, sim::Guest, stage::Stage};

use crate::guest_lifecycle::kit;

/// A container that stays, and one that the kernel kills.
const PODS: &str = "systemd-run --quiet --unit=fed --slice=kubepods-podfed.slice sleep 600
systemd-run --quiet --wait --unit=hungry --slice=kubepods-podhungry.slice -p MemoryMax=24M -p MemorySwapMax=0 tail /dev/zero
systemctl show -P Result hungry.service; systemctl start kubepods-podhungry.slice";
const GONE: &str = "systemctl stop fed.service kubepods.slice; systemctl reset-failed hungry.service";

/// The agent's unit sees the pods' cgroups, and says which of them the kernel has killed for want
/// of memory.
pub(crate) fn that_is_killed_is_reported(stage: &Stage, who: &Guest, machine: &Machine) -> Result<()> {
    let starts = kit::number(machine, "virtfleet-agent.service", "NRestarts")?;
    let result = machine.run(PODS)?;
    ensure!(result.contains("oom-kill"), "{result}");
    // A connection can end while the kernel takes memory back; the agent itself must live through
    // it.
    let page = kit::page_until(stage, who, "/metrics", "the cgroup of the killed pod", |page| {
        page.contains("kubepods-podhungry.slice")
    })?;
    let page = kit::samples(&page);
    let later = kit::number(machine, "virtfleet-agent.service", "NRestarts")?;
    ensure!(
        later == starts,
        "the agent was restarted {} times",
        later - starts
    );
    let says = |family: &str, cgroup: &str| -> Result<f64> {
        let name = format!("virtfleet_guest_cgroup_{family}{{cgroup=\"{cgroup}\"}}");
        let value = page.get(&name).with_context(|| format!("no {name}"))?;
        value.parse().context(name)
    };
    let (fed, hungry) = (
        "kubepods.slice/kubepods-podfed.slice",
        "kubepods.slice/kubepods-podhungry.slice",
    );
    // What is below a cgroup counts, too.
    let all = says("oom_kills_total", "kubepods.slice")?;
    ensure!(all >= 1.0, "{all} processes were killed below kubepods.slice");
    let (of_hungry, of_fed) = (says("oom_kills_total", hungry)?, says("oom_kills_total", fed)?);
    ensure!(
        of_hungry >= 1.0 && of_fed == 0.0,
        "{of_hungry} of hungry, {of_fed} of fed"
    );
    ensure!(says("memory_bytes", fed)? > 0.0 && says("tasks", fed)? >= 1.0);
    ensure!(says("cpu_seconds_total", "kubepods.slice")? > 0.0);
    let pressure = format!(
        "virtfleet_guest_cgroup_pressure_waiting_seconds_total{{cgroup=\"{hungry}\",resource=\"memory\"}}"
    );
    ensure!(page.contains_key(&pressure), "no {pressure}");
    machine.run(GONE).map(drop)
}

//! What the kernel answers of queues, with a driver that has some: a cable between two network
//! namespaces whose ends have four queues and two. It has queues that only receive and such that
//! only send, so what is set may touch neither.

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use virtfleet_agent_core::virtio::{Direction, counters::of_statistics};
use virtfleet_agent_host::{Kernel, NicCalls as _};
use virtfleet_tests::{
    dns::{NetNs, needs},
    skip,
};

const TIER: u8 = 2;

/// The receive queues that the driver counts, in order.
fn counted(nic: &str) -> Result<Vec<u32>, Errno> {
    let all = of_statistics(&Kernel.statistics(nic)?);
    let received = all
        .keys()
        .filter(|(direction, _)| *direction == Direction::Receive);
    Ok(received.map(|(_, queue)| *queue).collect())
}

fn questions() -> Result<()> {
    ensure!(Kernel.channels("four")?.is_none(), "it has no pairs of queues");
    ensure!(Kernel.rings("four")?.is_none() && Kernel.coalescing("four")?.is_none());
    ensure!(counted("four")? == [0, 1, 2, 3] && counted("two")? == [0, 1]);
    // Its driver tells nothing by netlink.
    let index = nix::net::if_::if_nametoindex("four").context("its number")?;
    ensure!(Kernel.queue_counters(index)?.is_none());
    Ok(())
}

fn changes() -> Result<()> {
    // None of what it has four of is changed, so the driver has nothing to do.
    Kernel.set_channels("four", 0)?;
    let answer = Kernel.set_channels("four", 2);
    ensure!(answer == Err(Errno::EINVAL), "{answer:?}");
    let answer = Kernel.set_rings("four", 64, 64);
    ensure!(answer == Err(Errno::EOPNOTSUPP), "{answer:?}");
    ensure!(counted("four")? == [0, 1, 2, 3], "queues went");
    Ok(())
}

fn gone() -> Result<()> {
    for nic in ["four", "two"] {
        ensure!(Kernel.channels(nic) == Err(Errno::ENODEV), "{nic}");
        ensure!(Kernel.set_channels(nic, 1) == Err(Errno::ENODEV), "{nic}");
        ensure!(Kernel.statistics(nic) == Err(Errno::ENODEV), "{nic}");
    }
    Ok(())
}

#[test]
fn tier2_queues_are_reported_and_what_is_set_touches_no_others() -> Result<()> {
    let test = "nic_calls::tier2_queues_are_reported_and_what_is_set_touches_no_others";
    if skip::need(TIER, test, needs(&[]))?.is_none() {
        return Ok(());
    }
    let inside = NetNs::new()?;
    inside.ip(
        "link add four numtxqueues 4 numrxqueues 4 type veth peer name two numtxqueues 2 numrxqueues 2",
    )?;
    inside.run(questions)??;
    inside.run(changes)??;
    inside.ip("link del four")?;
    inside.run(gone)?
}

//! The guest as a whole, and its kubelet.

use std::time::Duration;

use virtfleet_collector_core::view::AgentStatus;
use virtfleet_tests::guest::GIB;

use super::GuestState;

/// The condition that KubeVirt sets while it pauses a VM.
const PAUSED: &str =
    "  - type: Paused\n    status: \"True\"\n    reason: PausedByUser\n    message: VMI was paused by user\n";

pub(super) const STATES: [GuestState; 6] = [
    GuestState {
        script: "guest-healthy",
        create: |_| Ok(()),
        shows: |seen| seen.report().is_some() && seen.node.ready == "True",
        undo: |_| Ok(()),
    },
    GuestState {
        script: "node-kubelet-dead",
        create: |world| {
            world
                .machine
                .run("systemctl kill --signal=KILL kubelet")
                .map(drop)
        },
        shows: |seen| seen.report().is_some() && seen.node.ready == "Unknown",
        undo: |world| world.machine.run("systemctl start kubelet").map(drop),
    },
    GuestState {
        script: "node-memory-pressure",
        create: |world| {
            let text = world
                .machine
                .run("sed -n 's/^MemAvailable: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo")?;
            let available = text.parse::<u64>()? * 1024;
            // The balloon leaves 80 MiB of what is available.
            let less = available.saturating_sub(80 << 20);
            world.machine.balloon(GIB - less)
        },
        shows: |seen| seen.report().is_some() && seen.node.has_memory_pressure && seen.node.ready == "True",
        undo: |world| world.machine.balloon(GIB),
    },
    GuestState {
        script: "vm-paused-by-user",
        create: |world| {
            world.machine.pause()?;
            world.set_conditions(PAUSED)
        },
        shows: |seen| seen.vm.vm.agent.status == AgentStatus::Off,
        undo: |world| {
            world.machine.cont()?;
            world.set_conditions("")?;
            world.set_clock()
        },
    },
    GuestState {
        script: "guest-hung",
        create: |world| world.machine.pause(),
        shows: |seen| seen.failure() == Some(("timeout", false)) && seen.node.ready == "Unknown",
        undo: |world| {
            world.machine.cont()?;
            world.set_clock()
        },
    },
    GuestState {
        script: "migration-felt",
        // The pause is longer than in a real migration, so that a pull fails.
        create: |world| world.machine.pause(),
        shows: |seen| seen.failure() == Some(("timeout", false)),
        undo: |world| {
            world.machine.migrate(Duration::ZERO)?;
            world.set_clock()?;
            let felt = |seen: &super::Seen| seen.mentions("guest-paused");
            world.until("the report shows the pause", felt).map(drop)
        },
    },
];

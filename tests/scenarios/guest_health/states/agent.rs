//! The agent does not answer, or not as the VM's agent.

use virtfleet_tests::pki::Authority;

use super::GuestState;

pub(super) const STATES: [GuestState; 3] = [
    GuestState {
        script: "agent-stopped",
        create: |world| {
            let stop = "systemctl stop virtfleet-agent.socket virtfleet-agent.service";
            world.machine.run(stop).map(drop)
        },
        shows: |seen| seen.failure() == Some(("connect", true)),
        undo: |world| {
            let start = "systemctl start virtfleet-agent.socket virtfleet-agent.service";
            world.machine.run(start).map(drop)
        },
    },
    GuestState {
        script: "agent-certificate-refused",
        create: |world| world.certify(&Authority::new("another authority")?, &world.who.uid),
        shows: |seen| seen.failure() == Some(("tls", false)),
        undo: |world| world.certify(&world.stage.authority, &world.who.uid),
    },
    GuestState {
        script: "agent-wrong-vm",
        create: |world| world.certify(&world.stage.authority, "4ea1c1de-0000-4000-8000-00000000a9a1"),
        shows: |seen| seen.failure() == Some(("wrong_vm", false)),
        undo: |world| world.certify(&world.stage.authority, &world.who.uid),
    },
];

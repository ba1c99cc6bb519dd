//! The guest's clock.

use super::{super::world::NOT_SYNCHRONISED, GuestState};

pub(super) const STATES: [GuestState; 3] = [
    GuestState {
        script: "clock-not-synchronised",
        create: |world| world.set_clock_status(NOT_SYNCHRONISED),
        shows: |seen| seen.is_synchronised() == Some(false),
        undo: |world| world.set_clock(),
    },
    GuestState {
        script: "clock-off",
        create: |world| world.machine.run("date -s \"@$(($(date +%s) + 60))\"").map(drop),
        shows: |seen| seen.offset_ms() > Some(50_000),
        undo: |world| world.set_clock(),
    },
    GuestState {
        script: "clock-wrong",
        create: |world| {
            world
                .machine
                .run("date -s \"@$(($(date +%s) - 3600))\"")
                .map(drop)
        },
        shows: |seen| seen.offset_ms() > Some(3_500_000),
        undo: |world| world.set_clock(),
    },
];

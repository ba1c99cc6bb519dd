//! Attackers at full speed beside many honest agents.

use std::time::{Duration, Instant};

use virtfleet_tests::{
    sim::enrol::{AgentSpec, EnrolFault},
    stage::Beat,
    wait,
};

use super::kit::Kit;

/// Honest agents.
const HONEST: usize = 200;
/// Each attacks once in every VM of its own: 3 % of the agents.
const ATTACKS: [EnrolFault; 6] = [
    EnrolFault::Slow,
    EnrolFault::Silent,
    EnrolFault::Endless,
    EnrolFault::Forgets,
    EnrolFault::NewKeys,
    EnrolFault::ReplacesForever,
];
/// Maximum time until all are up, in a debug build on a busy machine.
const DEADLINE: Duration = Duration::from_mins(2);

/// Time until all honest agents are up.
fn measure(attacks: &[EnrolFault]) -> Duration {
    let beat = Beat {
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(2),
    };
    let kit = Kit::with(HONEST + ATTACKS.len(), beat);
    let (bad, good) = kit.stage.plan.guests.split_at(ATTACKS.len());
    let attackers: Vec<_> = bad
        .iter()
        .zip(attacks)
        .map(|(guest, attack)| kit.attack(guest, *attack))
        .collect();
    wait::until(DEADLINE, "the attacks are on", || {
        attackers.iter().all(|attacker| attacker.requests() > 0)
    })
    .unwrap();
    let started = Instant::now();
    for guest in good {
        kit.run(AgentSpec::honest(guest).unwrap());
    }
    wait::eventually(DEADLINE, "all honest agents are up", || {
        let list = kit.stage.json("/api/v1/vms?agent=up")?;
        let up = list["items"].as_array().map_or(0, Vec::len);
        anyhow::ensure!(up >= HONEST, "{up} are up");
        Ok(())
    })
    .unwrap();
    started.elapsed()
}

#[test]
fn attackers_at_full_speed_delay_honest_enrolments_by_seconds_at_most() {
    let alone = measure(&[]);
    let attacked = measure(&ATTACKS);
    // Both runs share the machine with other tests, so each may take a multiple of its own time.
    // Attackers that were not limited would hold their slots until the deadline.
    assert!(
        attacked < alone * 4 + Duration::from_secs(10),
        "{attacked:?} with attackers, {alone:?} without"
    );
}

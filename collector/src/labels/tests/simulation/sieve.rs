//! Every request of a fixed scenario, each with every fault of Sieve (Sun et al., OSDI 2022): the
//! collector restarts right after it, the watch event that it causes is lost, or it is answered
//! from an older state. Each run must end with the labels that the truth demands.

use std::time::Duration;

use tokio::time::sleep;
use virtfleet_collector_core::facts::InventoryEvent;

use super::{
    SimResult,
    collector::SimCollector,
    faults::{Faults, SieveFault},
    schedule::settle,
    simulate,
    truth::{FOREIGN, TARGETS, Truth},
    world::{SharedWorld, SimWorld},
};

/// The scenario: two Nodes of two tenants, a migration with a conflict, a relabelled infra node,
/// foreign labels, a Node that registers again, a policy that is withdrawn.
async fn scenario(world: &SharedWorld) {
    let steps: [fn(&mut SimWorld); 6] = [
        |_| {},
        |world| {
            // The change of the Node is reported after the migration: the patch is a conflict.
            world.faults.line_delay = 2_000;
            let (id, now) = (("alpha".to_owned(), "w0".to_owned()), world.now());
            let server = world.servers.get_mut("alpha").unwrap();
            server.write_as_other("w0", "team", Some(FOREIGN), now);
            world.servers.get_mut("beta").unwrap().set_pod("w0", true, now);
            for fact in world.truth.migrate(&id, Some("h1".to_owned()), now) {
                world.publish(InventoryEvent::Apply(fact));
            }
        },
        |world| {
            world.faults.line_delay = 0;
            let now = world.now();
            let fact = world.truth.relabel("h1", TARGETS[2].source, true, now);
            world.publish(InventoryEvent::Apply(fact.unwrap()));
        },
        |world| {
            let now = world.now();
            let server = world.servers.get_mut("beta").unwrap();
            server.write_as_other("w0", TARGETS[1].key, Some(FOREIGN), now);
            server.write_as_other("w0", TARGETS[2].key, Some(FOREIGN), now);
        },
        |world| {
            let now = world.now();
            let server = world.servers.get_mut("alpha").unwrap();
            server.delete("w0", now);
            server.register("w0", &[TARGETS[3].key], FOREIGN, now);
            // Not the zone, which a pod has required for longer than a stale answer may hide.
            let id = ("beta".to_owned(), "w0".to_owned());
            for fact in world.truth.migrate(&id, Some("h0".to_owned()), now) {
                world.publish(InventoryEvent::Apply(fact));
            }
        },
        |world| {
            let now = world.now();
            world.servers.get_mut("beta").unwrap().set_pod("w0", false, now);
            world.truth.policies.get_mut("place").unwrap().exists = false;
            let event = world.truth.policy_event("place");
            world.publish(event);
        },
    ];
    for step in steps {
        step(&mut world.lock());
        sleep(Duration::from_secs(40)).await;
    }
    settle(world).await;
}

/// Runs the scenario with a fault at one request: the result, and the number of requests before the
/// end.
fn run(fault: Option<(usize, SieveFault)>) -> (SimResult, usize) {
    simulate(1, || async move {
        let faults = Faults {
            sieve: fault,
            ..Faults::default()
        };
        let world = SharedWorld::new(1, Truth::new(2, &[("alpha", "w0"), ("beta", "w0")]), faults);
        let mut collector = SimCollector::start(&world, 1, false);
        let restart = world.lock().restart.clone();
        let mut scenario = Box::pin(scenario(&world));
        tokio::select! {
            biased;
            () = restart.notified() => {
                collector.kill().await;
                collector = SimCollector::start(&world, 2, false);
                scenario.await;
            }
            () = &mut scenario => {}
        }
        collector.check();
        let world = &mut *world.lock();
        let result = SimResult {
            trace: std::mem::take(&mut world.trace),
            wrong: std::mem::take(&mut world.wrong),
        };
        (result, world.calls)
    })
}

#[test]
fn each_request_survives_a_restart_a_lost_event_and_a_stale_answer() {
    let (result, calls) = run(None);
    assert_eq!(result.wrong, Vec::<String>::new(), "{:#?}", result.trace);
    assert!(calls > 25, "{calls} requests:\n{:#?}", result.trace);
    let is_patch = |number: usize| {
        let (prefix, patch) = (format!("#{number} c"), " patch ");
        let mut lines = result.trace.iter();
        lines.any(|line| line.contains(&prefix) && line.contains(patch))
    };
    for number in 1..=calls {
        let mut faults = vec![SieveFault::Restart];
        faults.push(if is_patch(number) {
            SieveFault::EventLost
        } else {
            SieveFault::Stale
        });
        for fault in faults {
            let (result, _) = run(Some((number, fault)));
            assert!(
                result.wrong.is_empty(),
                "{fault:?} at request {number}:\n{}\n{:#?}",
                result.trace.join("\n"),
                result.wrong
            );
        }
    }
}

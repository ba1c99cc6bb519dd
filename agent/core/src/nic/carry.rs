//! From a look and its plan to how each interface stands, with what is remembered of it.

use std::collections::BTreeMap;

use virtfleet_wire::settings::Multiqueue;

use super::{
    Plan,
    plan::NicPlan,
    state::{NicStanding, NicState, Standing},
};

/// How the interfaces of a plan stand. Those that are gone are forgotten, and so is all of an interface whose name another one has now.
pub fn carry(previous: &NicState, plan: &Plan) -> BTreeMap<String, NicStanding> {
    let cpus = u32::try_from(plan.online.len()).unwrap_or(u32::MAX);
    let each = plan.nics.iter().map(|one| {
        let known = previous.nics.get(&one.nic).filter(|known| known.mac == one.mac);
        (one.nic.clone(), stand(plan.multiqueue, one, known, cpus))
    });
    each.collect()
}

fn stand(multiqueue: Multiqueue, now: &NicPlan, known: Option<&NicStanding>, cpus: u32) -> NicStanding {
    let mut standing = known.cloned().unwrap_or_default();
    standing.mac.clone_from(&now.mac);
    standing.standing = now.standing;
    standing.because.clone_from(&now.because);
    if standing.first == 0 {
        standing.first = now.current.unwrap_or(0);
        standing.first_cpus = cpus;
    }
    // What was put back counts for as long as the same would be tried again.
    let again = now.wanted.is_some() && now.wanted != now.current;
    standing.put_back = standing
        .put_back
        .filter(|tried| again && now.wanted == Some(*tried));
    if let Some(tried) = standing.put_back {
        standing.standing = Standing::RolledBack;
        standing.because = format!(
            "with {tried} queues the link did not come back; sudo virtfleet-agent apply nic tries it again"
        );
    }
    let given_back = multiqueue == Multiqueue::Off && now.current.is_some() && !again;
    if given_back && matches!(now.standing, Standing::Excluded | Standing::Single) && standing.ours.is_some()
    {
        standing.give_back();
    }
    standing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(current: u32, wanted: u32) -> Plan {
        Plan {
            multiqueue: Multiqueue::Auto,
            online: (0..wanted).collect(),
            nics: vec![NicPlan {
                nic: "eth0".to_owned(),
                mac: "a".to_owned(),
                current: Some(current),
                possible: Some(8),
                wanted: Some(wanted),
                standing: Standing::Differs,
                ..NicPlan::default()
            }],
            ..Plan::default()
        }
    }

    fn state(standing: NicStanding) -> NicState {
        NicState {
            nics: BTreeMap::from([("eth0".to_owned(), standing)]),
            ..NicState::default()
        }
    }

    #[test]
    fn the_first_look_is_remembered_until_another_interface_has_the_name() {
        let first = carry(&NicState::default(), &seen(1, 2));
        assert_eq!((first["eth0"].first, first["eth0"].first_cpus), (1, 2));
        let later = carry(&state(first["eth0"].clone()), &seen(2, 3));
        assert_eq!((later["eth0"].first, later["eth0"].first_cpus), (1, 2));
        let mut other = seen(2, 3);
        other.nics[0].mac = "b".to_owned();
        let other = carry(&state(first["eth0"].clone()), &other);
        assert_eq!((other["eth0"].first, other["eth0"].first_cpus), (2, 3));
    }

    #[test]
    fn what_was_put_back_stays_so_until_something_else_would_be_tried() {
        let tried = || {
            state(NicStanding {
                mac: "a".to_owned(),
                first: 1,
                put_back: Some(2),
                ..NicStanding::default()
            })
        };
        let still = &carry(&tried(), &seen(1, 2))["eth0"];
        assert_eq!((still.standing, still.put_back), (Standing::RolledBack, Some(2)));
        assert_eq!(carry(&tried(), &seen(1, 3))["eth0"].put_back, None, "another CPU");
        assert_eq!(carry(&tried(), &seen(2, 2))["eth0"].put_back, None, "it is there");
    }

    #[test]
    fn off_forgets_what_was_ours_once_it_is_given_back() {
        let ours = NicStanding {
            mac: "a".to_owned(),
            first: 1,
            ours: Some(2),
            before: Some(1),
            ..NicStanding::default()
        };
        let mut plan = seen(2, 1);
        plan.multiqueue = Multiqueue::Off;
        plan.nics[0].standing = Standing::Excluded;
        let waiting = &carry(&state(ours.clone()), &plan)["eth0"];
        assert_eq!(waiting.ours, Some(2), "not yet done");
        plan.nics[0].current = Some(1);
        plan.nics[0].wanted = None;
        let done = &carry(&state(ours), &plan)["eth0"];
        assert_eq!((done.ours, done.before), (None, None));
    }
}

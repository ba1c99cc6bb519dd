//! Waits for a network at boot, and verifies a change by probes. The waits end at a change that the
//! kernel reports, not after a fixed time.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use virtfleet_agent_core::dns::{
    Asked, Seen,
    answers::Health,
    collision::{self, Collision, STUBS},
    effective::effective,
    resolv::{self, ResolvConf},
    seen::{Given, Link, Local, Manager, Owner, Source},
};
use virtfleet_agent_host::dns::{DnsChangeSource, ObserveDnsError};

use super::{DnsProvisioner, Observed, time::RunDeadline};

/// After this time an answering nameserver is enough, even if one of the platform's is still in use
/// beside it.
const EXACT_MATCH_TIME: Duration = Duration::from_secs(3);
/// Interval at which the state is observed without an event. Routes, and files that cannot be
/// watched, cause no event.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(500);

/// First pause before nameservers are probed again at boot. Each pause is twice the one before.
const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long the cluster's DNS is probed again before the platform's nameservers replace it, so that
/// a restart is not treated as an outage.
const FALLBACK_CONFIRM_TIME: Duration = Duration::from_secs(5);

/// Time that another program may take to fill `/etc/resolv.conf` after it has emptied the file, as
/// dhclient's script does. A script that was running when our hook came does so once more.
const REWRITE_TIME: Duration = Duration::from_secs(2);

/// No link may be in configuration for this long before the wait ends. A router advertisement
/// arrives without a visible configuration state (RFC 4861: up to 1 s until the solicitation, up to
/// 0.5 s until the answer).
const QUIET_TIME: Duration = Duration::from_secs(2);

/// Waits for changes, with a time limit.
pub(super) struct ChangeWait {
    changes: Option<DnsChangeSource>,
    began: Instant,
    limit: Duration,
    quiet_since: Option<Instant>,
}

impl ChangeWait {
    /// Changes before this call do not end a wait.
    pub(super) fn new(provisioner: &DnsProvisioner<'_>, limit: Duration) -> Self {
        Self {
            changes: (!limit.is_zero()).then(|| DnsChangeSource::open(provisioner.roots)),
            began: Instant::now(),
            limit,
            quiet_since: None,
        }
    }

    /// True if no more changes are expected: for a while, no link that is up has been in
    /// configuration.
    fn no_change_expected(&mut self, seen: &Seen) -> bool {
        if !seen.unsettled.is_empty() {
            self.quiet_since = None;
            return false;
        }
        self.quiet_since.get_or_insert_with(Instant::now).elapsed() >= QUIET_TIME
    }

    /// Waits for a change, at most `most`. False: the time limit is reached.
    pub(super) fn wait(&mut self, most: Duration) -> bool {
        let left = self.limit.saturating_sub(self.began.elapsed());
        match &mut self.changes {
            Some(changes) if !left.is_zero() => {
                changes.wait(left.min(most));
                true
            }
            _ => false,
        }
    }
}

impl DnsProvisioner<'_> {
    /// The plan, as soon as there is a network whose nameservers answer, or at the time limit. A
    /// guest without a network, or whose network names no nameserver, is not delayed.
    pub(super) fn plan_within(
        &self,
        asked: &Asked,
        by_admin: bool,
        until: RunDeadline,
    ) -> Result<Observed, ObserveDnsError> {
        let mut changes = ChangeWait::new(self, until.wait(self.network_wait));
        let mut seen = self.observe_for(by_admin)?;
        while !has_network(&seen) && !changes.no_change_expected(&seen) && changes.wait(OBSERVE_INTERVAL) {
            seen = self.observe_for(by_admin)?;
        }
        let mut observed = self.probe_and_plan(asked, seen);
        // The lease may come after the address, its nameservers after that, and the route to them
        // last.
        let mut pause = FIRST_RETRY_PAUSE;
        while (observed.plan.choice.is_none() || observed.plan.is_fallback())
            && !cannot_improve(&observed)
            && !(knows_no_nameserver(&observed) && changes.no_change_expected(&observed.seen))
            && changes.wait(pause)
        {
            observed = self.probe_and_plan(asked, self.observe_for(by_admin)?);
            if !knows_no_nameserver(&observed) {
                pause *= 2;
            }
        }
        let confirm = FALLBACK_CONFIRM_TIME
            .saturating_sub(self.network_wait)
            .min(self.settle);
        let mut changes = ChangeWait::new(self, until.wait(confirm));
        let mut pause = FIRST_RETRY_PAUSE;
        while observed.plan.is_fallback() && !observed.plan.steps.is_empty() && changes.wait(pause) {
            observed = self.probe_and_plan(asked, self.observe_for(by_admin)?);
            pause *= 2;
        }
        Ok(observed)
    }

    /// Verifies that the nameservers in use answer. Probes as programs do: resolved's stub if
    /// `/etc/resolv.conf` names it, and the nameservers behind it. A colliding nameserver fails the
    /// verification only if it was not in use before; otherwise the rollback would also undo the
    /// improvement.
    pub(super) fn verify(
        &self,
        asked: &Asked,
        wanted: Option<&ResolvConf>,
        before: &[IpAddr],
    ) -> Result<(), String> {
        let Some(wanted) = wanted else {
            return self.platform_restored(asked);
        };
        let mut changes = ChangeWait::new(self, self.settle);
        loop {
            let seen = self.observe().map_err(|error| error.to_string())?;
            let now = effective(&seen);
            let exact = same_nameservers(&now, wanted);
            // Services may need time until the colliding nameserver is no longer in use.
            let colliding = collide(asked, &seen, &now.nameservers);
            if !colliding.is_empty() && changes.wait(OBSERVE_INTERVAL) {
                continue;
            }
            let result = if let Some(one) = colliding.iter().find(|one| !before.contains(&one.nameserver)) {
                Err(format!("{} is in use, which is {}", one.nameserver, one.with))
            } else if exact || changes.began.elapsed() >= EXACT_MATCH_TIME || !colliding.is_empty() {
                self.answers(asked, &seen)
            } else {
                Err("the nameservers in use are not those that were written".to_owned())
            };
            match result {
                Ok(()) => return Ok(()),
                Err(_) if changes.wait(OBSERVE_INTERVAL) => {}
                Err(reason) => return Err(reason),
            }
        }
    }

    /// Observes, probes, and plans after a change. After `wrote_nameservers`, a file without one is
    /// one that another program is writing: its content is waited for.
    pub(super) fn observe_after_change(
        &self,
        asked: &Asked,
        by_admin: bool,
        wrote_nameservers: bool,
    ) -> Result<Observed, ObserveDnsError> {
        let mut changes = ChangeWait::new(self, self.settle.min(REWRITE_TIME));
        let mut seen = self.observe_for(by_admin)?;
        while wrote_nameservers && effective(&seen).nameservers.is_empty() && changes.wait(OBSERVE_INTERVAL) {
            seen = self.observe_for(by_admin)?;
        }
        Ok(self.probe_and_plan(asked, seen))
    }

    /// Verifies that the platform's own nameservers are in use again, and that one of them answers.
    fn platform_restored(&self, asked: &Asked) -> Result<(), String> {
        let mut changes = ChangeWait::new(self, self.settle);
        loop {
            let seen = self.observe().map_err(|error| error.to_string())?;
            let result = match links_are_silent(&seen) {
                Some(link) => Err(format!("{link} does not have its own nameservers again")),
                None => self.answers(asked, &seen),
            };
            match result {
                Ok(()) => return Ok(()),
                Err(_) if changes.wait(OBSERVE_INTERVAL) => {}
                Err(reason) => return Err(reason),
            }
        }
    }

    /// Verifies that at least one nameserver in use answers.
    pub(super) fn answers(&self, asked: &Asked, seen: &Seen) -> Result<(), String> {
        let now = effective(seen).nameservers;
        if now.is_empty() {
            return Err("no nameserver is in use".to_owned());
        }
        let stubs = program_nameservers(seen);
        let mut all = now.clone();
        all.extend(stubs.iter().filter(|stub| !now.contains(stub)));
        let judged = self.ask(asked, seen, &all);
        let bad = |one: &IpAddr| {
            let judged = judged.iter().find(|judged| judged.nameserver == *one);
            match judged {
                Some(judged) if judged.health.is_usable() => None,
                Some(judged) => Some(format!("{one}: {}", judged.because)),
                None => Some(format!("{one} was not probed")),
            }
        };
        for group in [&now, &stubs] {
            let reasons: Vec<String> = group.iter().filter_map(bad).collect();
            if !group.is_empty() && reasons.len() == group.len() {
                return Err(format!("nothing answers: {}", reasons.join("; ")));
            }
        }
        Ok(())
    }
}

/// A link whose DNS servers networkd does not pass to systemd-resolved, although its lease names
/// nameservers, while no link has passed any.
fn links_are_silent(seen: &Seen) -> Option<&str> {
    let by_networkd = |link: &&Link| link.manager == Manager::Networkd;
    let given = |link: &&Link| link.given.iter().any(|given| !given.conf.nameservers.is_empty());
    let mut links = seen.links.iter().filter(by_networkd);
    let told = links.clone().any(|link| !link.told.nameservers.is_empty());
    let silent = links
        .find(given)
        .filter(|_| seen.owner == Owner::Resolved && !told);
    silent.map(|link| link.name.as_str())
}

/// True if the guest has an address from which another host can be reached. Whether there is a
/// route to the nameservers shows when they are probed.
fn has_network(seen: &Seen) -> bool {
    seen.locals.iter().any(Local::is_routable)
}

/// True if no nameserver is known that could be probed. Without a network, requested nameservers do
/// not count.
fn knows_no_nameserver(observed: &Observed) -> bool {
    observed.plan.asked.nameservers.is_empty() || !has_network(&observed.seen)
}

/// True if waiting changes nothing: the requested nameservers are known, and the lease if it is
/// needed, and each nameserver collides, lies or loops. The DNS watch reports nameservers of a
/// later lease or router advertisement.
fn cannot_improve(observed: &Observed) -> bool {
    let Observed { seen, plan } = observed;
    let given = seen.links.iter().any(|link| {
        let counts = |given: &Given| {
            matches!(given.source, Source::Dhcp | Source::Advertised) && !given.conf.nameservers.is_empty()
        };
        link.given.iter().any(counts)
    });
    let hopeless = |one: &IpAddr| {
        plan.collisions.iter().any(|other| other.nameserver == *one)
            || plan.judged.iter().any(|judged| {
                judged.nameserver == *one && matches!(judged.health, Health::Lying | Health::Looping)
            })
    };
    given && !plan.asked.nameservers.is_empty() && plan.asked.nameservers.iter().all(hopeless)
}

fn collide(asked: &Asked, seen: &Seen, nameservers: &[IpAddr]) -> Vec<Collision> {
    let named: Vec<(IpAddr, String)> = nameservers.iter().map(|one| (*one, String::new())).collect();
    collision::find(asked, seen, &named)
}

/// The nameservers of `/etc/resolv.conf`, which are those that programs use.
fn program_nameservers(seen: &Seen) -> Vec<IpAddr> {
    let text = seen.resolv_conf.text.as_deref().unwrap_or_default();
    let mut nameservers = resolv::parse(text).nameservers;
    nameservers.retain(|one| STUBS.contains(one));
    nameservers
}

fn same_nameservers(now: &ResolvConf, wanted: &ResolvConf) -> bool {
    let all = |a: &ResolvConf, b: &ResolvConf| a.nameservers.iter().all(|one| b.nameservers.contains(one));
    all(now, wanted) && all(wanted, now)
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::dns::{Plan, answers::Judged, collision::CollisionKind};

    use super::*;

    #[test]
    fn the_wait_ends_if_no_nameserver_can_become_usable() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let observed = |asked: &str, lease: bool, health: Health| {
            let asked: Vec<IpAddr> = asked.split(' ').map(ip).collect();
            let conf = ResolvConf {
                nameservers: asked.clone(),
                ..ResolvConf::default()
            };
            let link = Link {
                given: vec![Given {
                    conf: conf.clone(),
                    ..Given::default()
                }],
                ..Link::default()
            };
            Observed {
                seen: Seen {
                    links: lease.then_some(link).into_iter().collect(),
                    ..Seen::default()
                },
                plan: Plan {
                    asked: conf,
                    collisions: vec![Collision {
                        nameserver: ip("169.254.20.10"),
                        kind: CollisionKind::NodeLocal,
                        now: false,
                        with: String::new(),
                        given_by: String::new(),
                    }],
                    judged: vec![Judged {
                        nameserver: ip("10.0.0.1"),
                        health,
                        because: String::new(),
                        micros: None,
                        answers: Vec::new(),
                    }],
                    ..Plan::default()
                },
            }
        };
        assert!(cannot_improve(&observed("169.254.20.10", true, Health::Dead)));
        assert!(cannot_improve(&observed(
            "169.254.20.10 10.0.0.1",
            true,
            Health::Lying
        )));
        // It may still answer, or a lease may come.
        assert!(!cannot_improve(&observed(
            "169.254.20.10 10.0.0.1",
            true,
            Health::Dead
        )));
        assert!(!cannot_improve(&observed("169.254.20.10", false, Health::Dead)));
    }

    #[test]
    fn the_wait_ends_if_no_link_is_in_configuration() {
        let quiet = Seen::default();
        let busy = Seen {
            unsettled: vec!["eth0".into()],
            ..Seen::default()
        };
        let began = Instant::now();
        let mut changes = ChangeWait {
            changes: None,
            began,
            limit: Duration::from_secs(30),
            quiet_since: began.checked_sub(QUIET_TIME),
        };
        assert!(changes.no_change_expected(&quiet));
        // A link is in configuration again: the quiet time starts again.
        assert!(!changes.no_change_expected(&busy));
        assert!(!changes.no_change_expected(&quiet));
    }

    #[test]
    fn a_network_is_an_address_that_is_not_local() {
        let has = |address: &str| {
            has_network(&Seen {
                locals: vec![Local {
                    address: address.parse().unwrap(),
                    interface: "eth0".into(),
                }],
                ..Seen::default()
            })
        };
        assert!(has("10.0.2.2") && has("fd00::2"));
        for none in ["127.0.0.1", "169.254.3.4", "fe80::1", "::1"] {
            assert!(!has(none), "{none}");
        }
        assert!(!has_network(&Seen::default()));
    }
}

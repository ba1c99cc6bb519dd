//! Waiting for a network at boot, and for what was written to answer. What is waited for is a change that the kernel tells of, not a time.

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

use super::{DnsProvisioner, Observed, time::Until};

/// From then on what answers is enough, also when something of the platform's is still beside it.
const EXACT: Duration = Duration::from_secs(3);
/// A look without being told: routes, and files that nobody may watch.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The first pause before nameservers are asked again at boot; each is twice the one before.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How long the cluster's DNS is probed again before the platform's nameservers take its place: a nameserver that restarts is no outage.
const CONFIRM_FALLBACK: Duration = Duration::from_secs(5);

/// For so long nobody must have been at any link until nothing is waited for: a router advertisement comes without anybody being seen at work (RFC 4861: a second until it is
/// asked for, half a second until it is answered).
const QUIET: Duration = Duration::from_secs(2);

/// Changes that are waited for, until a time.
pub(super) struct Patience {
    changes: Option<DnsChangeSource>,
    began: Instant,
    limit: Duration,
    quiet_since: Option<Instant>,
}

impl Patience {
    /// What has changed before is not waited for.
    pub(super) fn new(provisioner: &DnsProvisioner<'_>, limit: Duration) -> Self {
        Self {
            changes: (!limit.is_zero()).then(|| DnsChangeSource::open(provisioner.roots)),
            began: Instant::now(),
            limit,
            quiet_since: None,
        }
    }

    /// Whether nothing more comes: no link is up that somebody is at, and that for a while.
    fn nothing_comes(&mut self, seen: &Seen) -> bool {
        if !seen.unsettled.is_empty() {
            self.quiet_since = None;
            return false;
        }
        self.quiet_since.get_or_insert_with(Instant::now).elapsed() >= QUIET
    }

    /// Waits for a change, `most` at the longest; false when the time is up.
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
    /// The plan, as soon as there is a network whose nameservers answer, or when the time is up. A guest without a network, or whose network names no nameserver, is not held up
    /// for it.
    pub(super) fn plan_within(
        &self,
        asked: &Asked,
        by_admin: bool,
        until: Until,
    ) -> Result<Observed, ObserveDnsError> {
        let mut patience = Patience::new(self, until.wait(self.network_wait));
        let mut seen = self.looked(by_admin)?;
        while !has_network(&seen) && !patience.nothing_comes(&seen) && patience.wait(LOOK_AGAIN) {
            seen = self.looked(by_admin)?;
        }
        let mut observed = self.judged(asked, seen);
        // A lease may come after the address, its nameservers after that, and the way to them last.
        let mut pause = ASK_AGAIN;
        while (observed.plan.choice.is_none() || observed.plan.is_fallback())
            && !in_vain(&observed)
            && !(names_nobody(&observed) && patience.nothing_comes(&observed.seen))
            && patience.wait(pause)
        {
            observed = self.judged(asked, self.looked(by_admin)?);
            if !names_nobody(&observed) {
                pause *= 2;
            }
        }
        let confirm = CONFIRM_FALLBACK
            .saturating_sub(self.network_wait)
            .min(self.settle);
        let mut patience = Patience::new(self, until.wait(confirm));
        let mut pause = ASK_AGAIN;
        while observed.plan.is_fallback() && !observed.plan.steps.is_empty() && patience.wait(pause) {
            observed = self.judged(asked, self.looked(by_admin)?);
            pause *= 2;
        }
        Ok(observed)
    }

    /// Whether what is in use now answers, asked the way programs ask: resolved's stub, where it is in `/etc/resolv.conf`, and what is behind it. A nameserver that collides
    /// is a reason to put all back only when it was not in use before: else that would take away what is better already.
    pub(super) fn verify(
        &self,
        asked: &Asked,
        wanted: Option<&ResolvConf>,
        before: &[IpAddr],
    ) -> Result<(), String> {
        let Some(wanted) = wanted else {
            return self.given_back(asked);
        };
        let mut patience = Patience::new(self, self.settle);
        loop {
            let seen = self.observe().map_err(|error| error.to_string())?;
            let now = effective(&seen);
            let exact = same_nameservers(&now, wanted);
            // Services may need their time until the one that collides is gone.
            let colliding = collide(asked, &seen, &now.nameservers);
            if !colliding.is_empty() && patience.wait(LOOK_AGAIN) {
                continue;
            }
            let result = if let Some(one) = colliding.iter().find(|one| !before.contains(&one.nameserver)) {
                Err(format!("{} is in use, which is {}", one.nameserver, one.with))
            } else if exact || patience.began.elapsed() >= EXACT || !colliding.is_empty() {
                self.answers(asked, &seen)
            } else {
                Err("the nameservers in use are not those that were written".to_owned())
            };
            match result {
                Ok(()) => return Ok(()),
                Err(_) if patience.wait(LOOK_AGAIN) => {}
                Err(reason) => return Err(reason),
            }
        }
    }

    /// Whether the platform's own nameservers are back, and one of them answers.
    fn given_back(&self, asked: &Asked) -> Result<(), String> {
        let mut patience = Patience::new(self, self.settle);
        loop {
            let seen = self.observe().map_err(|error| error.to_string())?;
            let result = match links_are_silent(&seen) {
                Some(link) => Err(format!("{link} has not got its own nameservers back")),
                None => self.answers(asked, &seen),
            };
            match result {
                Ok(()) => return Ok(()),
                Err(_) if patience.wait(LOOK_AGAIN) => {}
                Err(reason) => return Err(reason),
            }
        }
    }

    /// Whether anybody who is in use answers.
    pub(super) fn answers(&self, asked: &Asked, seen: &Seen) -> Result<(), String> {
        let now = effective(seen).nameservers;
        if now.is_empty() {
            return Err("no nameserver is in use".to_owned());
        }
        let stubs = programs_ask(seen);
        let mut all = now.clone();
        all.extend(stubs.iter().filter(|stub| !now.contains(stub)));
        let judged = self.ask(asked, seen, &all);
        let bad = |one: &IpAddr| {
            let judged = judged.iter().find(|judged| judged.nameserver == *one);
            match judged {
                Some(judged) if judged.health.is_usable() => None,
                Some(judged) => Some(format!("{one}: {}", judged.because)),
                None => Some(format!("{one} was not asked")),
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

/// A link of which networkd tells systemd-resolved nothing, although a lease names nameservers, while no link has told any.
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

/// An address by which somebody else can be asked. Whether there is a way to the nameservers shows when they are.
fn has_network(seen: &Seen) -> bool {
    seen.locals.iter().any(Local::is_routable)
}

/// Whether nobody is known who could be asked. Without any network, who is asked for is known and of no use.
fn names_nobody(observed: &Observed) -> bool {
    observed.plan.asked.nameservers.is_empty() || !has_network(&observed.seen)
}

/// Whether waiting changes nothing: what was asked for is known, with a lease where a lease counts, and each of it collides, lies or loops. What comes later by another lease
/// or router advertisement is heard of by the watch.
fn in_vain(observed: &Observed) -> bool {
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

/// The stubs in `/etc/resolv.conf`.
fn programs_ask(seen: &Seen) -> Vec<IpAddr> {
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
    fn nobody_waits_for_what_cannot_become_good() {
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
        assert!(in_vain(&observed("169.254.20.10", true, Health::Dead)));
        assert!(in_vain(&observed("169.254.20.10 10.0.0.1", true, Health::Lying)));
        // It may answer yet, or a lease may come.
        assert!(!in_vain(&observed("169.254.20.10 10.0.0.1", true, Health::Dead)));
        assert!(!in_vain(&observed("169.254.20.10", false, Health::Dead)));
    }

    #[test]
    fn what_nobody_is_at_is_not_waited_for() {
        let quiet = Seen::default();
        let busy = Seen {
            unsettled: vec!["eth0".into()],
            ..Seen::default()
        };
        let began = Instant::now();
        let mut patience = Patience {
            changes: None,
            began,
            limit: Duration::from_secs(30),
            quiet_since: began.checked_sub(QUIET),
        };
        assert!(patience.nothing_comes(&quiet));
        // Somebody has begun: a while of quiet is needed again.
        assert!(!patience.nothing_comes(&busy));
        assert!(!patience.nothing_comes(&quiet));
    }

    #[test]
    fn a_network_is_an_address_that_others_can_answer_to() {
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

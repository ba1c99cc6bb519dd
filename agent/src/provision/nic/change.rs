//! Setting the number of queues of one interface: verified, and put back when the link does not come back.

use std::{net::IpAddr, time::Duration};

use nix::errno::Errno;
use virtfleet_agent_core::nic::plan::{Refusal, RefusalKind, Target};

use super::pass::Engine;
use crate::host::Link;

/// The pause between two looks at the link.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// What is put back has this long at least, whatever the stage has left.
const LEAST_SETTLE: Duration = Duration::from_secs(1);
/// A driver that is busy is asked so often.
const TRIES: u32 = 3;

/// Why a number of queues is not what was planned.
#[derive(Debug)]
pub(super) enum ChangeError {
    /// It is not the interface of the plan any more, or not as the plan found it; nothing was done.
    Refused(Refusal),
    /// The driver refused; nothing has changed.
    Failed(String),
    /// The link did not come back, and what was there before is there again.
    PutBack(String),
}

/// What there was before a change, and is to be there afterwards.
struct Before {
    link: Link,
    addresses: Vec<IpAddr>,
    /// Packets, where they were coming.
    packets: Option<u64>,
}

impl Engine<'_> {
    /// Sets `to` queues where there are `from`. `busy`: packets are coming, and must go on doing so.
    pub(super) fn change(
        &self,
        target: &Target,
        (from, to): (u32, u32),
        busy: bool,
        settle: Duration,
    ) -> Result<(), ChangeError> {
        let nic = &target.nic;
        let link = self.still(target).map_err(ChangeError::Refused)?;
        match self.calls.channels(nic) {
            Ok(Some(now)) if now.current == from => {}
            Ok(now) => {
                let now = now.map_or("unknown".to_owned(), |now| now.current.to_string());
                let message = format!("{nic} has {now} queues by now, and the plan was made for {from}");
                return Err(ChangeError::Refused(refusal(nic, message)));
            }
            Err(errno) => return Err(ChangeError::Failed(told(nic, "asking for its queues", errno))),
        }
        let before = Before {
            link,
            addresses: self.world.addresses(nic),
            packets: busy
                .then(|| self.world.traffic(nic))
                .flatten()
                .map(|traffic| traffic.packets),
        };
        self.witness.at(&format!("set {nic} to {to} queues"));
        self.set(nic, to)
            .map_err(|errno| ChangeError::Failed(told(nic, &format!("setting {to} queues"), errno)))?;
        self.witness.at(&format!("{nic} has {to} queues"));
        let Err(why) = self.verified(target, to, &before, settle) else {
            return Ok(());
        };
        if self.still(target).is_err() {
            let message = format!(
                "{nic} went away, or was replaced, while its queues were changed; the next pass looks again"
            );
            return Err(ChangeError::Failed(message));
        }
        self.witness.at(&format!("put {nic} back to {from} queues"));
        let back = self
            .set(nic, from)
            .map_err(|errno| told(nic, &format!("putting {from} queues back"), errno))
            .and_then(|()| self.verified(target, from, &before, settle.max(LEAST_SETTLE)));
        Err(ChangeError::PutBack(match back {
            Ok(()) => format!(
                "with {to} queues {why}, so {nic} has its {from} again; sudo virtfleet-agent apply nic tries once more"
            ),
            Err(still) => format!(
                "with {to} queues {why}; with {from} again {still}. Look at the link: ip -d link show {nic}; ethtool -l {nic}; journalctl -k -b"
            ),
        }))
    }

    /// The link, as long as it is that of the interface of the plan.
    pub(super) fn still(&self, target: &Target) -> Result<Link, Refusal> {
        let Target { nic, index, mac } = target;
        let Some(link) = self.world.link(nic) else {
            return Err(refusal(nic, format!("{nic} is gone since the plan was made")));
        };
        if link.index != *index || link.mac != *mac {
            let message = format!(
                "{nic} is another interface ({}, number {}) than that of the plan ({mac}, number {index})",
                link.mac, link.index
            );
            return Err(refusal(nic, message));
        }
        Ok(link)
    }

    fn set(&self, nic: &str, queues: u32) -> Result<(), Errno> {
        let mut result = self.calls.set_channels(nic, queues);
        for _ in 1..TRIES {
            if result != Err(Errno::EBUSY) {
                break;
            }
            self.world.pause(LOOK_AGAIN);
            result = self.calls.set_channels(nic, queues);
        }
        result
    }

    /// Waits until all is as before with this number of queues; else what is not.
    fn verified(
        &self,
        target: &Target,
        queues: u32,
        before: &Before,
        settle: Duration,
    ) -> Result<(), String> {
        let began = self.world.now();
        loop {
            let Err(why) = self.as_before(target, queues, before) else {
                return Ok(());
            };
            let left = settle.saturating_sub(self.world.now().saturating_sub(began));
            if left.is_zero() || self.still(target).is_err() {
                return Err(why);
            }
            self.world.pause(LOOK_AGAIN.min(left));
        }
    }

    fn as_before(&self, target: &Target, queues: u32, before: &Before) -> Result<(), String> {
        let nic = &target.nic;
        let link = self.still(target).map_err(|refusal| refusal.message)?;
        match self.calls.channels(nic) {
            Ok(Some(now)) if now.current == queues => {}
            Ok(Some(now)) => return Err(format!("the driver kept {} queues", now.current)),
            Ok(None) => return Err("the driver did not say any more how many queues it has".to_owned()),
            Err(errno) => return Err(told(nic, "asking for its queues", errno)),
        }
        if link.carrier != before.link.carrier || link.operstate != before.link.operstate {
            return Err(format!(
                "the link did not come back (it was {}, and is {})",
                before.link.operstate, link.operstate
            ));
        }
        let held = self.world.addresses(nic);
        if let Some(lost) = before.addresses.iter().find(|address| !held.contains(address)) {
            return Err(format!("the address {lost} was lost"));
        }
        let now = self.world.traffic(nic).map(|traffic| traffic.packets);
        match (before.packets, now) {
            (Some(then), Some(now)) if now == then => Err("no packet came through any more".to_owned()),
            _ => Ok(()),
        }
    }
}

fn refusal(nic: &str, message: String) -> Refusal {
    Refusal {
        kind: RefusalKind::Replaced,
        subject: nic.to_owned(),
        message,
        remedy: "sudo virtfleet-agent plan nic".to_owned(),
    }
}

/// An error of the kernel with what it means here and what to do next.
pub(super) fn told(subject: &str, what: &str, errno: Errno) -> String {
    let next = match errno {
        Errno::EPERM | Errno::EACCES => "it needs root: sudo virtfleet-agent apply nic",
        Errno::ENODEV | Errno::ENOENT => "it is gone; the next pass looks again",
        Errno::EBUSY => "something else is at it; the next pass tries again",
        Errno::EINVAL => {
            "the driver refuses that; an XDP program that needs the queues is a reason (ip -d link show)"
        }
        Errno::EOPNOTSUPP => {
            "the driver cannot do that; take it out of the settings, or name the interface in nic.exclude"
        }
        _ => "the kernel may say more: journalctl -k -b",
    };
    format!("{subject}: {what}: {}: {next}", errno.desc())
}

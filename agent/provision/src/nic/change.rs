//! Sets the number of queues of one interface, and verifies that the link is as before.

use std::{net::IpAddr, time::Duration};

use virtfleet_agent_core::nic::{
    plan::{Refusal, RefusalKind, Target},
    state::{Pending, Rates},
};
use virtfleet_agent_host::Errno;
use virtfleet_agent_host::{Link, Traffic};

use super::NicProvisioner;

const INSPECT_INTERVAL: Duration = Duration::from_millis(100);
/// How long the link must be as before without a break. The kernel reports a carrier change up to a
/// second late (`linkwatch`).
pub(super) const STEADY_TIME: Duration = Duration::from_secs(1);
/// Bytes per second from which an interface counts as receiving or sending: a hundred of the
/// smallest packets.
const MIN_TRAFFIC: f64 = 6000.0;
/// Number of attempts at a busy driver.
const MAX_ATTEMPTS: u32 = 3;

/// Why a number of queues was not set as planned.
#[derive(Debug)]
pub(super) enum ChangeError {
    /// The interface is no longer that of the plan, or not as the plan found it, or the driver does
    /// not support it. Nothing was changed.
    Refused(Refusal),
    /// The driver refused for now. Nothing was changed.
    Failed(String),
    /// The interface disappeared during the change.
    Gone(String),
    /// The link is not as before, so the earlier number must be restored.
    Broke(Fault),
    /// The link was not as before, and what was done about it.
    PutBack(String),
}

/// What is not as before a change.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// The link, an address, or the number itself.
    Lost(String),
    /// Traffic has stopped. It may have stopped for another reason.
    Silent(&'static str),
}

impl Fault {
    /// The reason as text.
    pub(super) fn words(&self) -> &str {
        match self {
            Self::Lost(why) => why,
            Self::Silent(why) => why,
        }
    }
}

/// State of an interface before a change, which must be restored after it.
#[derive(Debug, Default)]
pub(super) struct Before {
    carrier: bool,
    up: bool,
    /// Addresses of the interface, all of which must remain.
    addresses: Vec<IpAddr>,
    /// True if at least one address must remain. An interrupted run has recorded only that.
    address: bool,
    /// True for each direction, receiving and sending, in which there was traffic.
    flows: (bool, bool),
}

impl Before {
    /// From the record of an interrupted run.
    pub(super) fn of(pending: &Pending) -> Self {
        Self {
            carrier: pending.carrier,
            up: pending.up,
            address: pending.address,
            ..Self::default()
        }
    }
}

impl NicProvisioner<'_> {
    /// The state before a change from `from` to `to` queues. Changes nothing.
    pub(super) fn begin(
        &self,
        target: &Target,
        (from, to): (u32, u32),
        rates: Option<&Rates>,
    ) -> Result<(Pending, Before), ChangeError> {
        let nic = &target.nic;
        let link = self.still(target).map_err(ChangeError::Refused)?;
        match self.calls.channels(nic) {
            Ok(Some(now)) if now.current == from => {}
            Ok(now) => {
                let now = now.map_or("unknown".to_owned(), |now| now.current.to_string());
                let message = format!("{nic} has {now} queues by now, and the plan was made for {from}");
                return Err(ChangeError::Refused(refusal(nic, message)));
            }
            Err(errno) => {
                return Err(ChangeError::Failed(kernel_error(
                    nic,
                    "asking for its queues",
                    errno,
                )));
            }
        }
        let addresses = self.world.addresses(nic);
        let before = Before {
            carrier: link.carrier == Some(true),
            up: link.operstate == UP,
            address: !addresses.is_empty(),
            addresses,
            flows: rates.map_or((false, false), |rates| {
                (rates.rx_bytes >= MIN_TRAFFIC, rates.tx_bytes >= MIN_TRAFFIC)
            }),
        };
        let pending = Pending {
            from,
            to,
            carrier: before.carrier,
            up: before.up,
            address: before.address,
            ..Pending::default()
        };
        Ok((pending, before))
    }

    /// Sets `to` queues, and verifies that the link is as before.
    pub(super) fn change(
        &self,
        target: &Target,
        to: u32,
        before: &mut Before,
        settle: Duration,
    ) -> Result<(), ChangeError> {
        let nic = &target.nic;
        self.fail_points.at(&format!("set {nic} to {to} queues"));
        self.set(nic, to).map_err(|errno| {
            let message = kernel_error(nic, &format!("setting {to} queues"), errno);
            if matches!(errno, Errno::EINVAL | Errno::EOPNOTSUPP) {
                ChangeError::Refused(Refusal {
                    kind: RefusalKind::Unsupported,
                    remedy: format!("ip -d link show {nic}; sudo virtfleet-agent apply nic tries it again"),
                    ..refusal(nic, message)
                })
            } else {
                ChangeError::Failed(message)
            }
        })?;
        self.fail_points.at(&format!("{nic} has {to} queues"));
        let verified = self.verified(target, to, before, settle);
        verified.map_err(|why| match self.still(target) {
            Ok(_) => ChangeError::Broke(why),
            Err(_) => ChangeError::Gone(format!(
                "{nic} went away, or was replaced, while its queues were changed; the next run checks again"
            )),
        })
    }

    /// The link, if the interface is still that of the plan.
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

    pub(super) fn set(&self, nic: &str, queues: u32) -> Result<(), Errno> {
        let mut result = self.calls.set_channels(nic, queues);
        for _ in 1..MAX_ATTEMPTS {
            if result != Err(Errno::EBUSY) {
                break;
            }
            self.world.pause(INSPECT_INTERVAL);
            result = self.calls.set_channels(nic, queues);
        }
        result
    }

    /// Waits until the link is as before with this number of queues, stays so for [`STEADY_TIME`],
    /// and has traffic if it had traffic before. Otherwise it returns what is missing once `settle`
    /// has passed.
    pub(super) fn verified(
        &self,
        target: &Target,
        queues: u32,
        before: &mut Before,
        settle: Duration,
    ) -> Result<(), Fault> {
        let began = self.world.now();
        let mut steady = None;
        loop {
            let result = self.as_before(target, queues, before).map_err(Fault::Lost);
            let now = self.world.now();
            let result = match result {
                Ok(()) => {
                    let window = steady.get_or_insert(Window {
                        since: now,
                        middle: None,
                    });
                    self.goes_on(target, window, before)
                }
                Err(lost) => {
                    steady = None;
                    Err(lost)
                }
            };
            match result {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(fault) => {
                    if now.saturating_sub(began) >= settle || self.still(target).is_err() {
                        return Err(fault);
                    }
                }
            }
            self.world.pause(INSPECT_INTERVAL);
        }
    }

    /// True once the window is over. If there was traffic before, there must be traffic after the
    /// window's middle, or a little later if packets are rare: traffic at its beginning does not
    /// show that the link still works.
    fn goes_on(&self, target: &Target, window: &mut Window, before: &Before) -> Result<bool, Fault> {
        let age = self.world.now().saturating_sub(window.since);
        let traffic = self.world.traffic(&target.nic);
        if age >= STEADY_TIME / 2 && window.middle.is_none() {
            window.middle = traffic;
        }
        if age < STEADY_TIME {
            return Ok(false);
        }
        if let (Some(then), Some(now)) = (window.middle, traffic) {
            if before.flows.0 && now.rx_bytes == then.rx_bytes {
                return Err(Fault::Silent("nothing was received any more"));
            }
            if before.flows.1 && now.tx_bytes == then.tx_bytes {
                return Err(Fault::Silent("nothing was sent any more"));
            }
        }
        Ok(true)
    }

    /// Only a loss is a fault. A link that comes up meanwhile must stay up from then on.
    fn as_before(&self, target: &Target, queues: u32, before: &mut Before) -> Result<(), String> {
        let nic = &target.nic;
        let link = self.still(target).map_err(|refusal| refusal.message)?;
        match self.calls.channels(nic) {
            Ok(Some(now)) if now.current == queues => {}
            Ok(Some(now)) => return Err(format!("the driver kept {} queues", now.current)),
            Ok(None) => return Err("the driver no longer reports its number of queues".to_owned()),
            Err(errno) => return Err(kernel_error(nic, "asking for its queues", errno)),
        }
        let (carrier, up) = (link.carrier == Some(true), link.operstate == UP);
        if before.up && !up {
            return Err(format!(
                "the link did not come back (it was up, and is {})",
                link.operstate
            ));
        }
        if before.carrier && !carrier {
            return Err("the link did not come back (it has lost its carrier)".to_owned());
        }
        let held = self.world.addresses(nic);
        if let Some(lost) = before.addresses.iter().find(|address| !held.contains(address)) {
            return Err(format!("the address {lost} was lost"));
        }
        if before.address && held.is_empty() {
            return Err("it has no address any more".to_owned());
        }
        before.carrier |= carrier;
        before.up |= up;
        Ok(())
    }
}

/// `operstate` of a link that is up.
const UP: &str = "up";

/// The time during which the link has been as before.
#[derive(Debug)]
struct Window {
    since: Duration,
    /// Traffic counters at its middle.
    middle: Option<Traffic>,
}

fn refusal(nic: &str, message: String) -> Refusal {
    Refusal {
        kind: RefusalKind::Replaced,
        subject: nic.to_owned(),
        message,
        remedy: "sudo virtfleet-agent plan nic".to_owned(),
    }
}

/// An error of the kernel, with its meaning here and the next step.
pub(super) fn kernel_error(subject: &str, what: &str, errno: Errno) -> String {
    let next = match errno {
        Errno::EPERM | Errno::EACCES => "it needs root: sudo virtfleet-agent apply nic",
        Errno::ENODEV | Errno::ENOENT => "it is gone; the next run checks again",
        Errno::EBUSY => "it is in use by something else; the next run tries again",
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

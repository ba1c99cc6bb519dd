//! Requested number of queues of one interface.

use virtfleet_wire::settings::Multiqueue;

use crate::{
    nic::{
        Asked,
        state::{NicStatus, QueueStatus},
    },
    virtio::{Channels, Nic},
};

/// Driver whose number of queues the agent manages. Other drivers choose a number for their
/// hardware, and lose the link while it changes.
pub(super) const DRIVER: &str = "virtio_net";

/// Decision for one interface.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) wanted: Option<u32>,
    pub(super) standing: QueueStatus,
    pub(super) because: String,
    /// Number of queues to set.
    pub(super) change: Option<u32>,
    pub(super) note: Option<String>,
}

fn left(standing: QueueStatus, because: impl Into<String>) -> Verdict {
    Verdict {
        standing,
        because: because.into(),
        ..Verdict::default()
    }
}

pub(super) fn of(asked: &Asked, nic: &Nic, online: &[u32], known: Option<&NicStatus>) -> Verdict {
    if nic.driver != DRIVER {
        let driver = if nic.driver.is_empty() {
            "unknown"
        } else {
            &nic.driver
        };
        return left(
            QueueStatus::Excluded,
            format!("its driver is {driver}; the agent manages only {DRIVER}"),
        );
    }
    if let Some(pattern) = asked
        .exclude
        .as_ref()
        .filter(|pattern| pattern.matches(&nic.name))
    {
        return left(
            QueueStatus::Excluded,
            format!("it matches nic.exclude {:?}", pattern.text()),
        );
    }
    let Some(channels) = nic.channels.filter(|channels| channels.current > 0) else {
        return left(
            QueueStatus::Unknown,
            "the driver does not report its number of queues",
        );
    };
    let cpus = u32::try_from(online.len()).unwrap_or(u32::MAX);
    if cpus == 0 {
        return left(QueueStatus::Unknown, "the list of online CPUs cannot be read");
    }
    match asked.multiqueue {
        Multiqueue::Off => off(channels, known),
        Multiqueue::ReportOnly | Multiqueue::Auto => on(asked, nic, channels, cpus, known),
    }
}

/// Restores the number before the agent's change, and changes nothing else.
fn off(channels: Channels, known: Option<&NicStatus>) -> Verdict {
    let ours = known.filter(|known| known.ours == Some(channels.current));
    let before = ours.and_then(|known| known.before);
    let before = before.map(|before| before.clamp(1, channels.possible.max(1)));
    let mut verdict = left(QueueStatus::Excluded, "nic.multiqueue is off");
    if let Some(before) = before.filter(|before| *before != channels.current) {
        verdict.change = Some(before);
        verdict.wanted = Some(before);
        verdict.because =
            format!("nic.multiqueue is off; there were {before} queues before the agent's change");
    } else if channels.possible == 1 {
        return single();
    }
    verdict
}

fn single() -> Verdict {
    Verdict {
        wanted: Some(1),
        ..left(
            QueueStatus::Single,
            "the VM's interface has one queue (networkInterfaceMultiqueue in the VMI's spec)",
        )
    }
}

fn on(asked: &Asked, nic: &Nic, channels: Channels, cpus: u32, known: Option<&NicStatus>) -> Verdict {
    let Channels { current, possible } = channels;
    if possible <= 1 {
        return single();
    }
    let wanted = possible.min(cpus);
    let shown = format!("{possible} possible, CPUs online: {cpus}");
    if current == wanted {
        return Verdict {
            wanted: Some(wanted),
            ..left(QueueStatus::Spread, shown)
        };
    }
    let ours = known.is_some_and(|known| known.ours == Some(current));
    if asked.keep_manual && !ours && !is_kernel_default(channels, cpus, known) {
        return left(
            QueueStatus::Manual,
            format!(
                "{current} queues were set by an admin or another program, and nic.keepManual is set ({shown})"
            ),
        );
    }
    let mut verdict = Verdict {
        wanted: Some(wanted),
        ..left(
            QueueStatus::Differs,
            format!("{wanted} queues are requested: {shown}"),
        )
    };
    if current < wanted || ours {
        verdict.change = Some(wanted);
    } else {
        verdict.note = Some(format!(
            "{} has {current} queues and the guest {cpus} CPUs; the agent never removes queues that it did not add (to remove them: ethtool -L {} combined {wanted})",
            nic.name, nic.name
        ));
    }
    verdict
}

/// Whether the kernel sets up this number itself, given the CPUs at first sight (`virtnet_probe`).
fn is_kernel_default(channels: Channels, cpus: u32, known: Option<&NicStatus>) -> bool {
    let first = known.map_or(cpus, |known| known.first_cpus);
    channels.current == channels.possible.min(first)
}

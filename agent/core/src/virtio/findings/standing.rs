//! Findings about the last run: errors, refusals and reverted changes.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_nic},
    words::{count, few},
};
use crate::{
    nic::state::{NicStatus, QueueStatus},
    virtio::Nic,
};

const LOG: &str = "journalctl -b -u virtfleet-dns.service -u virtfleet-reconcile.service";

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let Some(state) = view.state else {
        return Vec::new();
    };
    let nics = view.machine.nics.iter();
    let stands = nics.filter_map(|nic| Some((nic, view.standing(nic)?)));
    let put_back = stands.filter(|(_, one)| one.standing == QueueStatus::RolledBack);
    let mut all: Vec<Finding> = put_back.map(|(nic, one)| rolled_back(nic, one)).collect();
    let all_of = |id: &str, reason: &str, message: String| {
        Finding::new(id, Severity::Warning, ("Interface", "*"), reason, message)
    };
    if let Some(error) = &state.error {
        let message = format!("the queues of interfaces could not be read or changed: {error}");
        all.push(all_of("virtio-nic-pass-failed", "PassFailed", message).remedy(LOG));
    }
    if let Some(first) = state.refusals.first() {
        let message = match state.refusals.len() {
            1 => first.clone(),
            more => format!("{first}; and {} more", more - 1),
        };
        all.push(
            all_of("virtio-nic-refused", "Refused", message)
                .with("refusals", few(&state.refusals))
                .remedy("sudo virtfleet-agent plan nic"),
        );
    }
    all
}

fn rolled_back(nic: &Nic, standing: &NicStatus) -> Finding {
    if standing.is_broken() {
        let message = format!(
            "{} does not work as before the change of its queues: {}",
            nic.name, standing.because
        );
        let id = "virtio-nic-rolled-back";
        return of_nic(id, Severity::Critical, nic, "NotPutBack", message).remedy(format!(
            "ip -d link show {name}; ethtool -l {name}; journalctl -k -b; then sudo virtfleet-agent apply nic",
            name = nic.name
        ));
    }
    let now = nic.channels.map_or(standing.first, |channels| channels.current);
    let message = format!(
        "after a change of the queues of {} its link, an address or its traffic did not come back in time; the agent reverted it to {}",
        nic.name,
        count(now, "queue")
    );
    let mut finding = of_nic(
        "virtio-nic-rolled-back",
        Severity::Warning,
        nic,
        "RolledBack",
        message,
    );
    if !standing.because.is_empty() {
        finding = finding.with("because", &standing.because);
    }
    finding.remedy(format!(
        "{LOG}; a longer nic.settle may help; sudo virtfleet-agent apply nic retries"
    ))
}

//! Events on a VM whose verdict changes.

use virtfleet_wire::ids::{ClusterName, Uid, VmKey};

use crate::{
    events::{EventObject, NewEvent},
    objects::GuestHealthStatus,
};

/// The Event about the change from `before` to `now`; none if the verdict is the same, or the first
/// one of the VM and no problem.
pub(super) fn event(
    key: &VmKey,
    uid: Option<&Uid>,
    cluster: Option<&ClusterName>,
    before: &GuestHealthStatus,
    now: &GuestHealthStatus,
) -> Option<NewEvent> {
    let verdict = now.verdict.as_deref()?;
    if before.verdict.as_deref() == Some(verdict) {
        return None;
    }
    let (is_problem, reason) = match verdict {
        "Critical" => (true, "VmCritical"),
        "Degraded" => (true, "VmDegraded"),
        "Unknown" => (false, "VmHealthUnknown"),
        _ => (false, "VmHealthy"),
    };
    if before.verdict.is_none() && !is_problem {
        return None;
    }
    let was = before.verdict.as_deref().unwrap_or("not known");
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let cause = now.cause.as_ref().map(|cause| format!(", cause {cause}"));
    let mut note = format!(
        "{verdict} ({}{}), was {was}: {}",
        text(&now.reason),
        cause.unwrap_or_default(),
        text(&now.message)
    );
    if let Some(next) = &now.next {
        note = format!("{note}. Next: {next}");
    }
    let about = EventObject::Vm {
        key: key.clone(),
        uid: uid.cloned(),
        cluster: cluster.cloned(),
    };
    Some(if is_problem {
        NewEvent::warning(about, reason, note)
    } else {
        NewEvent::normal(about, reason, note)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(verdict: &str) -> GuestHealthStatus {
        GuestHealthStatus {
            verdict: Some(verdict.to_owned()),
            cause: Some("host".to_owned()),
            reason: Some("HostDown".to_owned()),
            message: Some("the infra node h1 is down".to_owned()),
            next: Some("kubectl describe node h1".to_owned()),
            ..GuestHealthStatus::default()
        }
    }

    #[test]
    fn only_a_change_of_the_verdict_is_an_event() {
        let key = VmKey {
            namespace: "ns".parse().unwrap(),
            name: "a".parse().unwrap(),
        };
        let made = |before: &GuestHealthStatus, now: &str| event(&key, None, None, before, &status(now));
        let none = GuestHealthStatus::default();
        assert_eq!(made(&none, "Healthy"), None);
        assert_eq!(made(&none, "Unknown"), None);
        assert_eq!(made(&status("Critical"), "Critical"), None);
        let critical = made(&status("Healthy"), "Critical").unwrap();
        assert!(critical.warning);
        assert_eq!(
            critical.note,
            "Critical (HostDown, cause host), was Healthy: the infra node h1 is down. Next: kubectl describe node h1"
        );
        assert!(!made(&status("Critical"), "Healthy").unwrap().warning);
        assert!(made(&none, "Degraded").unwrap().warning);
    }
}

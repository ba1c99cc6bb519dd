//! Expiry of the roots of the fleet's authority.

use virtfleet_wire::finding::{Finding, Severity};

use crate::findings;

/// A root is to be rotated when less is left, in seconds: half a year. Guests created from older
/// user-data trust only the older root, and need new user-data before it expires.
const MAX_ROTATION_NOTICE: u64 = 180 * 86_400;
/// It is urgent when less is left, in seconds.
const MAX_URGENT_NOTICE: u64 = 30 * 86_400;
/// Part of a root's life that is left when it is to be rotated. For roots of others that live
/// shorter: cert-manager renews after two thirds of their life.
const ROTATION_PART: u64 = 10;
/// Part of a root's life that is left when it is urgent.
const URGENT_PART: u64 = 40;
const SECONDS_PER_DAY: u64 = 86_400;

/// First and last second of a root's validity, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootLife {
    /// First second.
    pub not_before: u64,
    /// Last second.
    pub not_after: u64,
}

/// How soon a root must be rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RotationNeed {
    /// Not yet.
    None,
    /// Now: certificates overlap for a while.
    Due,
    /// At once.
    Urgent,
    /// It is too late: nothing that it signed is accepted.
    Expired,
}

impl RootLife {
    /// How soon it must be rotated.
    pub fn rotation(self, now: u64) -> RotationNeed {
        let life = self.not_after.saturating_sub(self.not_before);
        if now > self.not_after {
            RotationNeed::Expired
        } else if self.not_after - now < MAX_URGENT_NOTICE.min(life / URGENT_PART) {
            RotationNeed::Urgent
        } else if now >= self.due_at() {
            RotationNeed::Due
        } else {
            RotationNeed::None
        }
    }

    /// When it is to be rotated, in seconds since 1970.
    pub fn due_at(self) -> u64 {
        let life = self.not_after.saturating_sub(self.not_before);
        self.not_after
            .saturating_sub(MAX_ROTATION_NOTICE.min(life / ROTATION_PART))
    }
}

/// The finding about the root of `kind` that signs, if it must be rotated. `owner` is what manages
/// it, if not the collector.
pub fn root_finding(kind: &str, life: RootLife, owner: Option<&str>, now: u64) -> Option<Finding> {
    let days = life.not_after.abs_diff(now) / SECONDS_PER_DAY;
    let (severity, reason, message) = match life.rotation(now) {
        RotationNeed::None => return None,
        RotationNeed::Due => (
            Severity::Warning,
            "RotationDue",
            format!("the root of {kind} expires in {days} d"),
        ),
        RotationNeed::Urgent => (
            Severity::Critical,
            "RotationUrgent",
            format!("the root of {kind} expires in {days} d; then no certificate that it signed is accepted"),
        ),
        RotationNeed::Expired => (
            Severity::Critical,
            "Expired",
            format!("the root of {kind} expired {days} d ago, so no certificate that it signed is accepted"),
        ),
    };
    let remedy = match owner {
        Some(owner) => format!("renew it in {owner}"),
        None => format!("virtfleetctl ca rotate {kind}"),
    };
    let finding = Finding::new(
        findings::AUTHORITY_EXPIRING,
        severity,
        ("Authority", kind),
        reason,
        message,
    );
    Some(finding.with("notAfter", life.not_after).remedy(remedy))
}

/// The finding about user-data that has only a root of clients that was replaced, and is accepted
/// until `not_after`, in seconds since 1970.
pub fn user_data_finding(not_after: u64, now: u64) -> Option<Finding> {
    let left = not_after.checked_sub(now)?;
    if left > MAX_ROTATION_NOTICE {
        return None;
    }
    let days = left / SECONDS_PER_DAY;
    let finding = Finding::new(
        findings::AUTHORITY_EXPIRING,
        Severity::Warning,
        ("Authority", "user-data"),
        "UserDataOutdated",
        format!(
            "in {days} d, new VMs with user-data that has only the older root of clients cannot be enrolled"
        ),
    );
    let remedy =
        "render user-data again, and use it for new VMs: virtfleetctl render; virtfleetctl ca status";
    Some(finding.with("notAfter", not_after).remedy(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const NOW: u64 = 1_800_000_000;

    fn life(days: u64) -> RootLife {
        RootLife {
            not_before: NOW,
            not_after: NOW + days * DAY,
        }
    }

    #[test]
    fn a_root_is_rotated_long_before_it_expires() {
        for (days, left, expected) in [
            (3650, 3650, RotationNeed::None),
            (3650, 181, RotationNeed::None),
            (3650, 180, RotationNeed::Due),
            (3650, 30, RotationNeed::Due),
            (3650, 29, RotationNeed::Urgent),
            (3650, 0, RotationNeed::Urgent),
            // cert-manager renews a root of 90 days with 30 days left, or 15 if configured.
            (90, 15, RotationNeed::None),
            (90, 9, RotationNeed::Due),
            (90, 2, RotationNeed::Urgent),
        ] {
            let found = life(days).rotation(NOW + (days - left) * DAY);
            assert_eq!(found, expected, "{left} of {days} days left");
        }
        assert_eq!(life(90).rotation(NOW + 90 * DAY + 1), RotationNeed::Expired);
        assert_eq!(life(90).rotation(0), RotationNeed::None, "a clock in 1970");
    }

    #[test]
    fn findings_say_what_to_do_and_get_critical() {
        let at = |left: u64, owner| root_finding("agents", life(3650), owner, NOW + (3650 - left) * DAY);
        assert_eq!(at(200, None), None);
        let due = at(100, None).unwrap();
        assert_eq!(
            (due.severity, due.message.as_str(), due.remedy.as_str()),
            (
                Severity::Warning,
                "the root of agents expires in 100 d",
                "virtfleetctl ca rotate agents"
            )
        );
        let urgent = at(10, Some("Secret x")).unwrap();
        assert_eq!(
            (urgent.severity, urgent.remedy.as_str()),
            (Severity::Critical, "renew it in Secret x")
        );
        let expired = root_finding("clients", life(10), None, NOW + 12 * DAY).unwrap();
        assert_eq!(
            (expired.severity, expired.reason.as_str()),
            (Severity::Critical, "Expired")
        );
        let user_data = |left: u64| user_data_finding(NOW + left * DAY, NOW);
        assert_eq!(user_data(200), None);
        assert_eq!(user_data(20).unwrap().severity, Severity::Warning);
        assert_eq!(user_data_finding(NOW, NOW + 1), None, "it is over");
    }
}

//! Findings about the authority, which all readers of the whole fleet see.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::authority::{root_finding, user_data_finding};
use virtfleet_wire::finding::Finding;

use super::{Authorities, CaService, RootKind, UnixSeconds};
use crate::fleet::Fleet;

/// Interval between two comparisons with the clock.
const CLOCK_INTERVAL: Duration = Duration::from_hours(1);

/// What an admin must know of the authority at `now`.
fn findings(authorities: &Authorities, now: UnixSeconds) -> Vec<Finding> {
    let of_roots = RootKind::ALL.into_iter().filter_map(|kind| {
        let root = authorities.roots(kind).first()?;
        root_finding(kind.as_str(), root.life(), authorities.owner(kind), now)
    });
    let oldest = authorities.client_chain().last();
    let of_user_data = oldest.and_then(|link| user_data_finding(link.validity.not_after, now));
    of_roots.chain(of_user_data).collect()
}

impl CaService {
    /// Keeps the fleet's findings about the authority current, until `stop`.
    pub(crate) async fn report(
        self,
        fleet: Arc<Fleet>,
        clock: fn() -> UnixSeconds,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut changes = self.authorities();
        loop {
            let found = findings(&changes.borrow_and_update(), clock());
            fleet.change(|index| index.set_authority_findings(found));
            let change = tokio::time::timeout(CLOCK_INTERVAL, changes.changed());
            match stop.run_until_cancelled(change).await {
                // Another authority, or an hour has passed.
                Some(Ok(Ok(())) | Err(_)) => {}
                None | Some(Ok(Err(_))) => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::Rotation;

    const DAY: u64 = 86_400;
    const NOW: UnixSeconds = 1_767_225_600;

    fn found(authorities: &Authorities, now: UnixSeconds) -> Vec<(String, String)> {
        let pair = |finding: Finding| (finding.subject.name, finding.reason);
        findings(authorities, now).into_iter().map(pair).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |(name, reason): &(&str, &str)| ((*name).to_owned(), (*reason).to_owned());
        expected.iter().map(own).collect()
    }

    #[test]
    fn a_rotation_ends_the_finding_of_its_root_and_names_older_user_data() {
        let created = Authorities::create("example.org", NOW).unwrap();
        assert_eq!(found(&created, NOW), []);
        let late = NOW + 3500 * DAY;
        assert_eq!(
            found(&created, late),
            pairs(&[("agents", "RotationDue"), ("clients", "RotationDue")])
        );
        let rotation = Rotation {
            root: RootKind::Clients,
            distrust_previous: false,
            drop_oldest: false,
        };
        let rotated = rotation.apply(&created, late).unwrap();
        assert_eq!(
            found(&rotated, late),
            pairs(&[("agents", "RotationDue"), ("user-data", "UserDataOutdated")])
        );
    }

    #[tokio::test]
    async fn the_fleet_shows_the_findings() {
        let ca = CaService::in_memory();
        let fleet = Arc::new(Fleet::new(
            virtfleet_collector_core::dial::DialRules::default(),
            jiff::Timestamp::now,
        ));
        let clock = || u64::MAX / 2;
        ca.report(Arc::clone(&fleet), clock, CancellationToken::new())
            .await
            .unwrap();
        let snapshot = crate::fleet::FleetRead::snapshot(&*fleet);
        let names: Vec<&str> = snapshot
            .findings
            .iter()
            .map(|finding| finding.subject.name.as_str())
            .collect();
        assert_eq!(names, ["agents", "clients"]);
    }
}

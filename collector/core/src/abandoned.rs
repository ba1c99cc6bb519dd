//! Migrations that KubeVirt has forgotten: the VMI still names one that is in progress, and its
//! VirtualMachineInstanceMigration does not exist any more, or has ended (kubevirt #2495).

use std::borrow::Cow;

use virtfleet_wire::ids::Uid;

use crate::{
    facts::{Migration, Vmi, VmiMove},
    pull_result::UnixMs,
};

/// Time for which a migration must be dead before it counts as ended, in milliseconds: KubeVirt
/// updates its two objects one after the other, and they come by two watches. A watch that has
/// stopped without an error is noticed within three minutes.
const ABANDONED_AFTER_MS: u64 = 300_000;

/// Which migration of a VMI is dead, and since when; the default: none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeadMigration {
    since: Option<(Uid, UnixMs)>,
    is_abandoned: bool,
    /// The objects are still being read.
    is_unknown: bool,
}

/// What is known of the migration objects of a VM.
#[derive(Debug, Clone)]
pub(crate) enum KnownMoves<M> {
    /// They are still being read.
    NotYet,
    /// Nothing watches them at present, or their VMI.
    NotFollowed,
    All(M),
}

impl DeadMigration {
    /// With what is known now. `moves` are the migration objects of the VM.
    pub(crate) fn then<'a>(
        &self,
        vmi: Option<&Vmi>,
        moves: KnownMoves<impl Iterator<Item = &'a VmiMove>>,
        now_ms: UnixMs,
    ) -> Self {
        let migration = vmi.and_then(|vmi| vmi.migration.as_ref());
        let migration = migration.filter(|one| one.in_progress());
        let uid = migration.and_then(|one| one.uid.as_ref());
        let Some(uid) = uid else {
            return Self::default();
        };
        let mut moves = match moves {
            KnownMoves::All(moves) => moves,
            KnownMoves::NotFollowed => return self.kept(uid),
            KnownMoves::NotYet => {
                return Self {
                    is_unknown: true,
                    ..Self::default()
                };
            }
        };
        let has_ended = |one: &VmiMove| matches!(one.phase.as_deref(), Some("Succeeded" | "Failed"));
        if moves.any(|one| one.uid.as_ref() == Some(uid) && !has_ended(one)) {
            return Self::default();
        }
        let before = self.since.as_ref().filter(|(known, _)| known == uid);
        let since_ms = before.map_or(now_ms, |(_, since_ms)| *since_ms);
        Self {
            since: Some((uid.clone(), since_ms)),
            is_abandoned: now_ms.saturating_sub(since_ms) >= ABANDONED_AFTER_MS,
            is_unknown: false,
        }
    }

    /// Without new evidence about the migration `uid`: one that was abandoned stays so, and the
    /// time of another one begins anew.
    fn kept(&self, uid: &Uid) -> Self {
        let is_same = self.since.as_ref().is_some_and(|(known, _)| known == uid);
        if self.is_abandoned && is_same {
            self.clone()
        } else {
            Self::default()
        }
    }

    /// Whether the migration has ended, whatever the VMI says.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    /// Whether it may turn out soon that the migration has ended.
    pub(crate) fn is_unsure(&self) -> bool {
        self.is_unknown || self.since.is_some() && !self.is_abandoned
    }

    /// When it counts as ended; none if it does, or is not dead.
    pub(crate) fn due_ms(&self) -> Option<UnixMs> {
        let (_, since_ms) = self.since.as_ref().filter(|_| !self.is_abandoned)?;
        Some(since_ms.saturating_add(ABANDONED_AFTER_MS))
    }

    /// The migration of a VMI: one that was abandoned has ended.
    pub(crate) fn migration_of<'a>(&self, vmi: &'a Vmi) -> Option<Cow<'a, Migration>> {
        let migration = vmi.migration.as_ref()?;
        if !self.is_abandoned {
            return Some(Cow::Borrowed(migration));
        }
        let is_there = migration.target.is_some() && migration.target == vmi.node;
        let why = "KubeVirt has forgotten it: its VirtualMachineInstanceMigration is gone or has ended";
        Some(Cow::Owned(Migration {
            completed: true,
            failed: !is_there,
            failure_reason: (!is_there).then(|| why.to_owned()),
            ..migration.clone()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{key, vmi};

    const NOW_MS: u64 = 1_800_000_000_000;

    fn moving(uid: Option<&str>) -> Vmi {
        let mut made = vmi("ns", "a");
        made.node = Some("h1".parse().unwrap());
        made.migration = Some(Migration {
            source: Some("h1".parse().unwrap()),
            target: Some("h2".parse().unwrap()),
            uid: uid.map(|uid| uid.parse().unwrap()),
            ..Migration::default()
        });
        made
    }

    fn object(uid: &str, phase: &str) -> VmiMove {
        VmiMove {
            uid: Some(uid.parse().unwrap()),
            phase: Some(phase.into()),
            ..VmiMove::new(uid, key("ns", "a"))
        }
    }

    fn after(vmi: &Vmi, moves: Option<&[VmiMove]>, for_ms: u64) -> DeadMigration {
        let then = |dead: &DeadMigration, now_ms| dead.then(Some(vmi), known(moves), now_ms);
        then(&then(&DeadMigration::default(), NOW_MS), NOW_MS + for_ms)
    }

    fn known(moves: Option<&[VmiMove]>) -> KnownMoves<impl Iterator<Item = &VmiMove>> {
        moves.map_or(KnownMoves::NotFollowed, |moves| KnownMoves::All(moves.iter()))
    }

    #[test]
    fn the_next_migration_has_its_own_time() {
        let next = moving(Some("w"));
        let first = after(&moving(Some("u")), Some(&[]), 299_000);
        let second = first.then(Some(&next), known(Some(&[])), NOW_MS + 300_000);
        assert!(!second.is_abandoned() && second.is_unsure());
        assert_eq!(second.due_ms(), Some(NOW_MS + 600_000));
        let last = second.then(Some(&next), known(Some(&[])), NOW_MS + 600_000);
        assert!(last.is_abandoned() && !last.is_unsure());
    }

    #[test]
    fn what_was_abandoned_stays_so_while_nothing_is_followed() {
        let (vmi, next) = (moving(Some("u")), moving(Some("w")));
        let later = |dead: &DeadMigration, vmi: &Vmi, moves: Option<&[VmiMove]>| {
            dead.then(Some(vmi), known(moves), NOW_MS + 330_000)
        };
        let dead = after(&vmi, Some(&[]), 300_000);
        assert_eq!(later(&dead, &vmi, None), dead);
        assert_eq!(later(&dead, &next, None), DeadMigration::default());
        let object = [object("u", "Running")];
        assert_eq!(later(&dead, &vmi, Some(&object[..])), DeadMigration::default());
        // What was read of it before does not count towards its time.
        let young = after(&vmi, Some(&[]), 299_000);
        assert_eq!(later(&young, &vmi, None), DeadMigration::default());
    }

    #[test]
    fn it_is_not_known_before_the_objects_were_read() {
        let unread = |vmi: &Vmi| {
            let moves = KnownMoves::<std::slice::Iter<'_, VmiMove>>::NotYet;
            DeadMigration::default()
                .then(Some(vmi), moves, NOW_MS)
                .is_unsure()
        };
        assert!(unread(&moving(Some("u"))));
        assert!(!unread(&moving(None)), "the VMI does not say which one it is");
        assert!(!unread(&vmi("ns", "a")), "none is in progress");
    }

    #[test]
    fn a_migration_without_its_object_has_ended_after_five_minutes() {
        let vmi = moving(Some("u"));
        let (other, failed) = ([object("v", "Running")], [object("u", "Failed")]);
        for moves in [&[][..], &other, &failed, &[object("u", "Succeeded")]] {
            assert_eq!(after(&vmi, Some(moves), 299_999).due_ms(), Some(NOW_MS + 300_000));
            let dead = after(&vmi, Some(moves), 300_000);
            assert!(dead.is_abandoned() && dead.due_ms().is_none(), "{moves:?}");
            let ended = dead.migration_of(&vmi).unwrap();
            assert!(!ended.in_progress() && ended.failed);
        }
        let mut arrived = vmi.clone();
        arrived.node = Some("h2".parse().unwrap());
        let ended = after(&arrived, Some(&[]), 300_000);
        assert!(!ended.migration_of(&arrived).unwrap().failed);
    }

    #[test]
    fn what_may_still_run_has_not_ended() {
        let vmi = moving(Some("u"));
        for phase in [
            "Pending",
            "Scheduling",
            "PreparingTarget",
            "TargetReady",
            "Running",
            "",
        ] {
            let moves = [object("v", "Failed"), object("u", phase)];
            assert_eq!(
                after(&vmi, Some(&moves), 900_000),
                DeadMigration::default(),
                "{phase}"
            );
        }
        // The objects are not watched, or the VMI does not say which one it is.
        assert_eq!(after(&vmi, None, 900_000), DeadMigration::default());
        assert_eq!(after(&moving(None), Some(&[]), 900_000), DeadMigration::default());
        let mut ended = vmi;
        ended.migration.as_mut().unwrap().completed = true;
        assert_eq!(after(&ended, Some(&[]), 900_000), DeadMigration::default());
    }
}

//! What was read of the volumes of one VM. Texts of objects are escaped and cut: their writers are
//! not trusted.

use virtfleet_wire::ids::ClaimName;

use crate::{findings::escaped, pull_result::UnixMs, reported::ReportedConditions, volumes::ClaimVolume};

/// Maximum bytes kept of a phase, a progress, or the name of a storage class.
const MAX_WORD_BYTES: usize = 128;
/// Maximum bytes kept of an error.
const MAX_ERROR_BYTES: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadAnswer<T> {
    /// The object exists.
    Found(T),
    /// There is no such object.
    NotFound,
    /// The API server does not serve this kind.
    NotServed,
    /// The collector may not read it.
    Denied,
    /// The request failed; the text says why.
    Failed(Box<str>),
}

impl<T> ReadAnswer<T> {
    pub fn failed(why: &str) -> Self {
        Self::Failed(escaped(why, MAX_ERROR_BYTES).into())
    }

    /// The object, if it was read.
    pub(crate) fn found(&self) -> Option<&T> {
        match self {
            Self::Found(one) => Some(one),
            Self::NotFound | Self::NotServed | Self::Denied | Self::Failed(_) => None,
        }
    }
}

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimState {
    /// `status.phase`, e.g. `Pending`; empty if it has none.
    pub phase: Box<str>,
    /// `spec.storageClassName`.
    pub storage_class: Option<Box<str>>,
    /// `metadata.deletionTimestamp` is set.
    pub is_deleting: bool,
    /// `metadata.creationTimestamp` in milliseconds since 1970.
    pub created_ms: Option<UnixMs>,
    /// When it was read, if it could not be read since. [`ReadVolumes::after`] sets it.
    pub kept_ms: Option<UnixMs>,
}

impl ClaimState {
    /// A claim; texts are escaped and cut.
    pub fn new(phase: Option<&str>, storage_class: Option<&str>, is_deleting: bool) -> Self {
        let class = storage_class.filter(|class| !class.is_empty());
        Self {
            phase: word(phase.unwrap_or_default()),
            storage_class: class.map(word),
            is_deleting,
            created_ms: None,
            kept_ms: None,
        }
    }

    /// Whether its PersistentVolume is gone.
    pub(crate) fn is_lost(&self) -> bool {
        &*self.phase == "Lost"
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataVolumeState {
    /// `status.phase`, e.g. `ImportInProgress`; empty if it has none.
    pub phase: Box<str>,
    /// `status.progress`, e.g. `40.00%`; none if CDI does not know it.
    pub progress: Option<Box<str>>,
    /// `status.conditions`: `Bound`, `Running`, `Ready`.
    pub conditions: ReportedConditions,
    /// When it was created, or the last of its conditions changed, in milliseconds since 1970.
    pub changed_ms: Option<UnixMs>,
}

impl DataVolumeState {
    /// A DataVolume; texts are escaped and cut.
    pub fn new(phase: Option<&str>, progress: Option<&str>, conditions: ReportedConditions) -> Self {
        let progress = progress.filter(|progress| !progress.is_empty() && *progress != "N/A");
        Self {
            phase: word(phase.unwrap_or_default()),
            progress: progress.map(word),
            conditions,
            changed_ms: None,
        }
    }

    /// Since when it has not moved, as it says itself; none while it is being filled: its progress
    /// has no time.
    fn unmoved_since_ms(&self) -> Option<UnixMs> {
        let is_moving = self.progress.is_some() || self.phase.ends_with("InProgress");
        self.changed_ms.filter(|_| !is_moving)
    }
}

fn word(text: &str) -> Box<str> {
    escaped(text, MAX_WORD_BYTES).into()
}

/// One volume, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadVolume {
    pub volume: ClaimVolume,
    pub claim: ReadAnswer<ClaimState>,
    /// Its DataVolume; none if the volume names none.
    pub data_volume: Option<ReadAnswer<DataVolumeState>>,
    /// Since when phases and progress are as now. [`ReadVolumes::after`] sets it.
    pub since_ms: UnixMs,
    /// [`ReadVolumes::after`] sets it.
    point: VolumePoint,
}

/// Where an object was when it was read last. A read that failed changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum ObjectPoint {
    /// It was not read yet.
    #[default]
    NotRead,
    NotFound,
    /// Phase and progress.
    At(Box<str>, Option<Box<str>>),
}

impl ObjectPoint {
    /// After this answer; none if the object was not to be read.
    fn then<T>(&self, answer: Option<&ReadAnswer<T>>, at: impl Fn(&T) -> Self) -> Self {
        match answer {
            Some(ReadAnswer::Found(one)) => at(one),
            Some(ReadAnswer::NotFound) => Self::NotFound,
            Some(ReadAnswer::NotServed | ReadAnswer::Denied | ReadAnswer::Failed(_)) | None => self.clone(),
        }
    }

    fn has_moved_to(&self, now: &Self) -> bool {
        *self != Self::NotRead && self != now
    }
}

/// Where a volume was when its objects were read last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct VolumePoint {
    claim: ObjectPoint,
    filled: ObjectPoint,
}

impl VolumePoint {
    /// After this read.
    fn then(&self, read: &ReadVolume) -> Self {
        let of_claim = |claim: &ClaimState| ObjectPoint::At(claim.phase.clone(), None);
        let of_filled = |one: &DataVolumeState| ObjectPoint::At(one.phase.clone(), one.progress.clone());
        Self {
            claim: self.claim.then(Some(&read.claim), of_claim),
            filled: self.filled.then(read.data_volume.as_ref(), of_filled),
        }
    }

    /// Whether an object was found.
    fn is_known(&self) -> bool {
        [&self.claim, &self.filled]
            .iter()
            .any(|point| matches!(point, ObjectPoint::At(..)))
    }

    /// Whether an object that was read before is elsewhere.
    fn has_moved_to(&self, now: &Self) -> bool {
        self.claim.has_moved_to(&now.claim) || self.filled.has_moved_to(&now.filled)
    }
}

impl ReadVolume {
    /// One volume, as read just now.
    pub fn new(
        volume: ClaimVolume,
        claim: ReadAnswer<ClaimState>,
        data_volume: Option<ReadAnswer<DataVolumeState>>,
    ) -> Self {
        Self {
            volume,
            claim,
            data_volume,
            since_ms: 0,
            point: VolumePoint::default(),
        }
    }

    /// Since when it is as it is, as the objects say.
    fn said_since_ms(&self) -> Option<UnixMs> {
        match self.data_volume.as_ref().and_then(ReadAnswer::found) {
            Some(filled) => filled.unmoved_since_ms(),
            None => self.claim.found()?.created_ms,
        }
    }

    /// A claim that was lost is so until another answer says otherwise: a failed read says nothing.
    /// `before` was read at `at_ms`.
    fn keep_lost(&mut self, before: &Self, at_ms: UnixMs) {
        if matches!(self.claim, ReadAnswer::Found(_) | ReadAnswer::NotFound) {
            return;
        }
        if let Some(lost) = before.claim.found().filter(|claim| claim.is_lost()) {
            self.claim = ReadAnswer::Found(ClaimState {
                kept_ms: lost.kept_ms.or(Some(at_ms)),
                ..lost.clone()
            });
        }
    }
}

/// The volumes of one VM, as read at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadVolumes {
    pub at_ms: UnixMs,
    /// At most [`super::MAX_CLAIM_VOLUMES`].
    pub volumes: Box<[ReadVolume]>,
    /// The manifest that grants the rights, below `packaging/collector/kubernetes`.
    pub manifest: &'static str,
}

impl ReadVolumes {
    /// Whether the collector may not read a claim.
    pub(crate) fn is_denied(&self) -> bool {
        self.volumes.iter().any(|one| one.claim == ReadAnswer::Denied)
    }

    /// Whether a claim could not be read.
    pub(crate) fn has_failed(&self) -> bool {
        let mut claims = self.volumes.iter().map(|one| &one.claim);
        claims.any(|claim| matches!(claim, ReadAnswer::Failed(_) | ReadAnswer::NotServed))
    }

    /// The first claim whose PersistentVolume was gone when it was read last.
    pub(crate) fn lost(&self) -> Option<&ClaimName> {
        let is_lost = |one: &&ReadVolume| one.claim.found().is_some_and(ClaimState::is_lost);
        Some(&self.volumes.iter().find(is_lost)?.volume.claim)
    }

    /// Keeps what these reads could not refute, and sets since when each volume has not moved: as
    /// these reads show, and before the first one, as the objects say.
    pub(crate) fn after(mut self, before: Option<&Self>) -> Self {
        let before_ms = before.map_or(0, |before| before.at_ms);
        let before = before.map_or(&[][..], |before| &before.volumes);
        for volume in &mut self.volumes {
            // The DataVolume of a VM that runs is not read each time.
            let same_claim = |one: &&ReadVolume| one.volume.claim == volume.volume.claim;
            if let Some(known) = before.iter().find(same_claim) {
                volume.keep_lost(known, before_ms);
            }
            let known = before.iter().find(|one| one.volume == volume.volume);
            let point = known.map(|known| known.point.clone()).unwrap_or_default();
            volume.point = point.then(volume);
            let said = volume.said_since_ms().unwrap_or(UnixMs::MAX);
            volume.since_ms = match known.filter(|known| known.point.is_known()) {
                Some(known) if known.point == volume.point => known.since_ms,
                Some(known) if known.point.has_moved_to(&volume.point) => self.at_ms,
                // An object could be read for the first time.
                _ => self.at_ms.min(said),
            };
        }
        self
    }
}

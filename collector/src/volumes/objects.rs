//! The parts of claims and DataVolumes that are read, as facts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{NotUsed, Object};
use serde::Deserialize;
use serde_json::Value;
use virtfleet_collector_core::{
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
    volumes::{ClaimState, DataVolumeState},
};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClaimSpec {
    storage_class_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimStatus {
    phase: Option<String>,
}

/// A PersistentVolumeClaim.
pub(super) type ClaimFields = Object<ClaimSpec, ClaimStatus>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct DataVolumeStatus {
    phase: Option<String>,
    progress: Option<String>,
    conditions: Vec<DataVolumeCondition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct DataVolumeCondition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
    #[serde(rename = "lastTransitionTime")]
    changed: Option<String>,
}

/// A DataVolume, `cdi.kubevirt.io/v1beta1`. Its `spec` is not kept: it names the source.
pub(super) type DataVolumeFields = Object<NotUsed, DataVolumeStatus>;

pub(super) fn claim_of(read: ClaimFields) -> ClaimState {
    let phase = read.status.and_then(|status| status.phase);
    let class = read.spec.storage_class_name.as_deref();
    ClaimState {
        created_ms: created_ms(&read.metadata),
        ..ClaimState::new(
            phase.as_deref(),
            class,
            read.metadata.deletion_timestamp.is_some(),
        )
    }
}

fn created_ms(metadata: &ObjectMeta) -> Option<u64> {
    let created = metadata.creation_timestamp.as_ref()?;
    u64::try_from(created.0.as_millisecond()).ok()
}

/// A time as milliseconds since 1970; none for another text.
fn time_ms(text: &str) -> Option<u64> {
    let time: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

pub(super) fn data_volume_of(read: DataVolumeFields) -> DataVolumeState {
    let status = read.status.unwrap_or_default();
    let conditions = status.conditions.iter().map(|one| {
        let given = |text: &'_ str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let (reason, message) = (given(&one.reason), given(&one.message));
        let state = ReportedStatus::of(&one.status);
        ReportedCondition::new(&one.r#type, state, reason.as_deref(), message.as_deref())
    });
    let changes = status.conditions.iter();
    let changes = changes.filter_map(|one| time_ms(one.changed.as_deref()?));
    DataVolumeState {
        changed_ms: changes.chain(created_ms(&read.metadata)).max(),
        ..DataVolumeState::new(
            status.phase.as_deref(),
            status.progress.as_deref(),
            ReportedConditions::new(conditions),
        )
    }
}

/// A claim, as the API server sends it.
///
/// # Errors
/// It is no PersistentVolumeClaim.
pub fn claim_state(object: Value) -> Result<ClaimState, serde_json::Error> {
    serde_json::from_value(object).map(claim_of)
}

/// A DataVolume, as the API server sends it.
///
/// # Errors
/// It is no DataVolume.
pub fn data_volume_state(object: Value) -> Result<DataVolumeState, serde_json::Error> {
    serde_json::from_value(object).map(data_volume_of)
}

//! `storage`: the state of the declared disks from `/run/virtfleet/state/disks.json`, one item per
//! disk; and their findings.

use serde_json::{Value, json};
use virtfleet_agent_core::disks::{
    health::Health,
    state::{DiskState, DiskStatus, DisksState},
};
use virtfleet_agent_host::Roots;
use virtfleet_agent_state::DISKS_STATE;
use virtfleet_wire::{
    finding::Finding,
    report::{Clock, Section, SectionStatus},
};

/// Section and findings of the declared disks.
pub(super) struct Storage {
    pub(super) section: Section,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn read(roots: &Roots, boot_id: &str, now: &Clock, declared: bool) -> Storage {
    let state = match DISKS_STATE.read(roots, boot_id) {
        Ok(state) => state,
        // No disk is or was declared: the section is known and empty.
        Err(error) if error.is_absent() && !declared => DisksState::default(),
        Err(error) => {
            let status = if error.is_absent() {
                SectionStatus::Unknown
            } else {
                SectionStatus::Failed
            };
            let items = vec![json!({"state": "unknown", "reason": format!("{DISKS_STATE}: {error}")})];
            let section = Section {
                status,
                items,
                ..Section::default()
            };
            return Storage {
                section,
                findings: Vec::new(),
            };
        }
    };
    let status = if state.error.is_some() {
        SectionStatus::Failed
    } else if state.disks.iter().all(|disk| disk.standing == DiskStatus::Ready) {
        SectionStatus::Ok
    } else {
        SectionStatus::Partial
    };
    let error = state.error.as_ref().map(|error| json!({"error": error}));
    Storage {
        section: Section {
            status,
            age_ms: if state.v == 0 {
                0
            } else {
                state.age_ms(now.boottime_ns)
            },
            items: error.into_iter().chain(state.disks.iter().map(item)).collect(),
            truncated: false,
        },
        findings: state.findings,
    }
}

fn item(disk: &DiskState) -> Value {
    let refusals: Vec<Value> = disk
        .refusals
        .iter()
        .map(|refusal| {
            json!({
                "kind": refusal.kind,
                "message": refusal.message,
                "remedy": refusal.remedy,
                "evidence": refusal.evidence,
            })
        })
        .collect();
    let audit: Vec<Value> = disk
        .audit
        .iter()
        .map(|record| {
            json!({
                "at": record.at_ns,
                "moment": record.moment,
                "step": record.step,
                "serial": record.device.serial,
                "diskseq": record.device.diskseq,
                "sizeBytes": record.device.size,
                "because": record.evidence,
                "uuid": record.uuid,
                "tool": record.tool,
                "error": record.error,
            })
        })
        .collect();
    let mut item = json!({
        "name": disk.name,
        "state": disk.standing.word(),
        "key": disk.key,
        "device": disk.device,
        "serial": disk.serial,
        "sizeBytes": disk.size_bytes,
        "filesystem": disk.filesystem,
        "filesystemBytes": disk.filesystem_bytes,
        "uuid": disk.uuid,
        "mountPoint": disk.mount_point,
        "required": disk.required,
        "health": disk.health.as_ref().map(health),
        "refusals": refusals,
        "notes": disk.notes,
        "error": disk.error,
        "audit": audit,
    });
    if !disk.places.is_empty() {
        item["places"] = json!(disk.places);
    }
    item
}

/// The health, without the samples from which the time until full is calculated.
fn health(health: &Health) -> Value {
    let mut item = json!(health.look);
    item["spaceFullInSeconds"] = json!(health.space_full_in_s);
    item["inodesFullInSeconds"] = json!(health.inodes_full_in_s);
    item
}

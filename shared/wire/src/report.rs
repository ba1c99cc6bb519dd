//! `GuestReport`: the report of a guest, as JSON of at most [`MAX_REPORT_BYTES`].
//!
//! Unknown fields are ignored and absent fields have defaults, so a collector can read the reports
//! of agents that are up to two versions older or one version newer.

mod census;
mod error;

pub use error::ReportError;
pub use error::{MAX_REPORT_BYTES, REPORT_API_VERSION, REPORT_KIND};
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    finding::Finding,
    identity::{Claims, Identity},
};

pub use census::{
    MAX_FEATURES, MAX_FINDINGS, MAX_INTERFACES, MAX_KUBELET_LABELS, MAX_REPORT_VALUES, MAX_SECTION_ITEMS,
    MAX_SECTIONS,
};

/// The program that made the report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentInfo {
    /// Version, e.g. `0.1.0`.
    pub version: String,
    /// Names of its features, sorted.
    pub features: Vec<String>,
}

/// Clocks of the guest at the time of the report, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Clock {
    /// `CLOCK_BOOTTIME`: time since boot, including suspend.
    pub boottime_ns: u64,
    /// `CLOCK_MONOTONIC`: time since boot, excluding suspend.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME`: time since 1970.
    pub realtime_ns: u64,
}

/// Completeness of a section.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SectionStatus {
    /// Complete.
    Ok,
    /// Incomplete. A finding or the item names the missing part.
    Partial,
    /// The content could not be read.
    Failed,
    /// A status of a newer agent that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A section: a list of objects of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Section {
    /// Completeness of the section.
    pub status: SectionStatus,
    /// Age of the content when the report was made, in milliseconds.
    pub age_ms: u64,
    /// Objects of the section, as JSON.
    pub items: Vec<serde_json::Value>,
    /// True if items were dropped to keep the report within [`MAX_REPORT_BYTES`].
    pub truncated: bool,
}

/// Report of a guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestReport {
    /// [`REPORT_API_VERSION`].
    pub api_version: String,
    /// [`REPORT_KIND`].
    pub kind: String,
    /// The program that made the report.
    pub agent: AgentInfo,
    /// `/proc/sys/kernel/random/boot_id`; a new value means a new boot. Empty if it could not be
    /// read.
    pub boot_id: String,
    /// Sequence number of the report in this process, from 1.
    pub seq: u64,
    /// Clocks of the guest.
    pub clock: Clock,
    /// Identity of the guest as the guest reports it.
    pub identity: Identity,
    /// Topology as configured in the guest.
    pub claims: Claims,
    /// Sections by name: `system`, `cpu`, `disks`, `nics`, `settings`, …
    pub sections: BTreeMap<String, Section>,
    /// Findings.
    pub findings: Vec<Finding>,
}

impl GuestReport {
    /// Parses a report from JSON. Checks the size first, then the number of entries of each kind,
    /// the shape, and the kind and version. The entries are counted before any of them is stored,
    /// so that a hostile report needs no memory beyond its bytes.
    ///
    /// # Errors
    /// [`ReportError`]: a violated limit, malformed JSON, or an unsupported kind or version.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ReportError> {
        if bytes.len() > MAX_REPORT_BYTES {
            return Err(ReportError::TooLarge(bytes.len()));
        }
        census::check(bytes)?;
        let report: Self = serde_json::from_slice(bytes)?;
        if report.api_version != REPORT_API_VERSION || report.kind != REPORT_KIND {
            return Err(ReportError::Foreign {
                api_version: report.api_version,
                kind: report.kind,
            });
        }
        Ok(report)
    }

    /// Serializes the report as JSON that [`GuestReport::from_json`] accepts. To fit the limits it
    /// shortens lists that are too long, then drops the last items of the largest section, then the
    /// last findings. A shortened section is marked `truncated`.
    ///
    /// # Errors
    /// The report cannot be serialized as JSON.
    pub fn to_json_within_limit(mut self) -> Result<Vec<u8>, serde_json::Error> {
        self.shorten_lists();
        loop {
            let json = serde_json::to_vec(&self)?;
            if json.len() <= MAX_REPORT_BYTES && census::check(&json).is_ok() {
                return Ok(json);
            }
            let items_bytes =
                |section: &Section| serde_json::to_string(&section.items).map_or(0, |text| text.len());
            let largest = self
                .sections
                .values_mut()
                .filter(|s| !s.items.is_empty())
                .max_by_key(|s| items_bytes(s));
            if let Some(section) = largest {
                section.items.truncate(section.items.len() / 2);
                section.truncated = true;
            } else if self.findings.is_empty() {
                // Only the identity is left: drop the fields that a hostile guest may have made too
                // large.
                self.identity = Identity::default();
                self.claims = Claims::default();
                self.sections = BTreeMap::new();
                self.agent.features.clear();
            } else {
                self.findings.truncate(self.findings.len() / 2);
            }
        }
    }

    fn shorten_lists(&mut self) {
        for section in self.sections.values_mut() {
            section.truncated |= section.items.len() > MAX_SECTION_ITEMS;
            section.items.truncate(MAX_SECTION_ITEMS);
        }
        self.findings.truncate(MAX_FINDINGS);
        self.agent.features.truncate(MAX_FEATURES);
        if let Some(interfaces) = &mut self.identity.interfaces {
            interfaces.value.truncate(MAX_INTERFACES);
        }
        let labels = &mut self.claims.kubelet_labels;
        while labels.len() > MAX_KUBELET_LABELS && labels.pop_last().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_and_values_of_a_newer_agent_are_read() {
        let text = r#"{"apiVersion":"report.virtfleet.io/v1","kind":"GuestReport","novel":{"a":1},
            "sections":{"disks":{"status":"shiny","items":[{"name":"vda","novel":true}]}},
            "findings":[{"id":"x","severity":"doom","subject":{"kind":"Disk","name":"vda"},"reason":"R","message":"m"}]}"#;
        let report = GuestReport::from_json(text.as_bytes()).unwrap();
        assert_eq!(report.sections["disks"].status, SectionStatus::Unknown);
        assert_eq!(report.findings[0].severity, crate::finding::Severity::Warning);
    }

    #[test]
    fn what_is_not_a_report_is_refused() {
        assert!(matches!(
            GuestReport::from_json(&vec![b' '; MAX_REPORT_BYTES + 1]),
            Err(ReportError::TooLarge(_))
        ));
        let zeros = format!(
            r#"{{"apiVersion":"{REPORT_API_VERSION}","kind":"{REPORT_KIND}","sections":{{"x":{{"items":[[{}0]]}}}}}}"#,
            "0,".repeat(MAX_REPORT_VALUES)
        );
        assert!(matches!(
            GuestReport::from_json(zeros.as_bytes()),
            Err(ReportError::TooMany { what: "values", .. })
        ));
        assert!(matches!(
            GuestReport::from_json(b"<html>"),
            Err(ReportError::Malformed(_))
        ));
        assert!(matches!(
            GuestReport::from_json(b"{}"),
            Err(ReportError::Foreign { .. })
        ));
    }

    #[test]
    fn a_report_is_cut_to_the_limit_and_says_so() {
        let items = (0..10_000)
            .map(|i| serde_json::json!({ "name": format!("nic{i}"), "pad": "x".repeat(100) }))
            .collect();
        let mut report = GuestReport {
            api_version: REPORT_API_VERSION.into(),
            kind: REPORT_KIND.into(),
            ..Default::default()
        };
        report.sections.insert(
            "nics".into(),
            Section {
                items,
                ..Default::default()
            },
        );
        report.sections.insert(
            "cpu".into(),
            Section {
                items: vec![serde_json::json!({ "n": 1 })],
                ..Default::default()
            },
        );
        let json = report.to_json_within_limit().unwrap();
        assert!(json.len() <= MAX_REPORT_BYTES);
        let back = GuestReport::from_json(&json).unwrap();
        assert!(back.sections["nics"].truncated && !back.sections["nics"].items.is_empty());
        assert!(!back.sections["cpu"].truncated);
        assert!(back.sections["nics"].items.len() <= MAX_SECTION_ITEMS);
    }
}

//! `GuestReport`: what a guest says of itself, as JSON of at most [`MAX_REPORT_BYTES`].
//!
//! Unknown fields are ignored and absent ones default, so a collector reads agents of two versions
//! back and of a later one.

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

/// The program that speaks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentInfo {
    /// Its version, e.g. `0.1.0`.
    pub version: String,
    /// What it can do, by name, sorted.
    pub features: Vec<String>,
}

/// The guest's clocks at the moment of the report, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Clock {
    /// `CLOCK_BOOTTIME`: since boot, suspend included.
    pub boottime_ns: u64,
    /// `CLOCK_MONOTONIC`: since boot, suspend excluded.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME`: since 1970.
    pub realtime_ns: u64,
}

/// Whether a section says what it should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SectionStatus {
    /// All of it is there.
    Ok,
    /// Part of it is missing; a finding or the item says what.
    Partial,
    /// It could not be had.
    Failed,
    /// Written by a newer agent with a status that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// One section: a list of like things.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Section {
    /// Whether it is complete.
    pub status: SectionStatus,
    /// How old its content was when the report was made, in milliseconds.
    pub age_ms: u64,
    /// Its things, each a JSON object.
    pub items: Vec<serde_json::Value>,
    /// Whether items were left out to keep the report within [`MAX_REPORT_BYTES`].
    pub truncated: bool,
}

/// What a guest says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestReport {
    /// [`REPORT_API_VERSION`].
    pub api_version: String,
    /// [`REPORT_KIND`].
    pub kind: String,
    /// The program that speaks.
    pub agent: AgentInfo,
    /// `/proc/sys/kernel/random/boot_id`; a new one means a new boot. Empty when it could not be
    /// read.
    pub boot_id: String,
    /// Counts the reports of this process, from 1.
    pub seq: u64,
    /// The guest's clocks.
    pub clock: Clock,
    /// Who it says it is.
    pub identity: Identity,
    /// Topology as it believes it.
    pub claims: Claims,
    /// `system`, `cpu`, `disks`, `nics`, `settings`, …
    pub sections: BTreeMap<String, Section>,
    /// What somebody should know.
    pub findings: Vec<Finding>,
}

impl GuestReport {
    /// Reads a report from JSON: size first, then how many there are of each thing, then shape,
    /// then kind and version. What a report holds is counted before any of it is kept, so that a
    /// hostile one costs no memory beyond its bytes.
    ///
    /// # Errors
    /// See [`ReportError`].
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

    /// The JSON, cut to what [`GuestReport::from_json`] takes: lists that are too long lose their
    /// ends, then the heaviest section loses its last items, then findings go from the end, until
    /// it fits. A section that was cut is marked `truncated`.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn to_json_within_limit(mut self) -> Result<Vec<u8>, serde_json::Error> {
        self.shorten_lists();
        loop {
            let json = serde_json::to_vec(&self)?;
            if json.len() <= MAX_REPORT_BYTES && census::check(&json).is_ok() {
                return Ok(json);
            }
            let weigh =
                |section: &Section| serde_json::to_string(&section.items).map_or(0, |text| text.len());
            let heaviest = self
                .sections
                .values_mut()
                .filter(|s| !s.items.is_empty())
                .max_by_key(|s| weigh(s));
            if let Some(section) = heaviest {
                section.items.truncate(section.items.len() / 2);
                section.truncated = true;
            } else if self.findings.is_empty() {
                // Only identity is left: cut what a hostile guest could have blown up.
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

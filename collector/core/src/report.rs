//! The stored form of a guest's report: the few bounded values that views and findings need, and
//! the complete document, compressed, for the details of a VM.
//!
//! A parsed report takes many times its size in memory, and a hostile guest can choose the factor.
//! So the parsed form exists only while [`KeptReport::read`] runs.

use std::{cell::RefCell, io::Read as _};

use flate2::{Compress, Compression, FlushCompress, Status, read::DeflateDecoder};
use virtfleet_wire::{
    finding::Finding,
    identity::{Claims, Identity, Interface, Sourced},
    ids::MacAddr,
    report::{GuestReport, MAX_REPORT_BYTES, ReportError, SectionStatus},
};

use crate::{
    findings::{self, guest_text},
    guest_hardware::GuestHardware,
    story::ClockEvents,
};

/// Maximum size of a stored report, in bytes after compression. An unmodified agent's report has a
/// tenth.
pub const MAX_KEPT_BYTES: usize = 64 * 1024;
/// Maximum number of hardware addresses that are compared with the VMI's. KubeVirt allows 32
/// interfaces.
const MAX_MACS: usize = 64;
/// Maximum length of a compared text, in bytes. The longest valid one is a DNS name.
const MAX_COMPARED: usize = 256;
/// The labels of kubelet that are compared with the placement.
const COMPARED_LABELS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// The complete document, or why it is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Document {
    /// Compressed JSON.
    Kept(Box<[u8]>),
    /// Its size in bytes after compression, more than [`MAX_KEPT_BYTES`].
    TooLarge(usize),
    /// Its size in bytes; its tenant's reports, or all reports, exceed the budget, and it was the
    /// largest.
    OverBudget(usize),
}

/// What is kept of a section that health depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SectionSummary {
    /// None if the report does not have the section.
    pub(crate) status: Option<SectionStatus>,
    pub(crate) items: usize,
    /// Items were left out.
    pub(crate) is_truncated: bool,
    /// The `state` of its first item is `off`.
    pub(crate) is_off: bool,
}

/// A guest's report as it is stored.
#[derive(Debug, Clone)]
pub struct KeptReport {
    pub(crate) agent_version: Box<str>,
    /// Empty when the guest could not read it.
    pub(crate) boot_id: Box<str>,
    pub(crate) os_name: Option<Box<str>>,
    pub(crate) kernel: Option<Box<str>>,
    /// Disks listed; none when the section is missing, failed or cut: then the number is unknown.
    pub(crate) disks: Option<usize>,
    /// Network interfaces listed, likewise.
    pub(crate) nics: Option<usize>,
    pub(crate) storage: SectionSummary,
    pub(crate) dns: SectionSummary,
    pub(crate) virtio: SectionSummary,
    /// What is compared with the VMI's specification.
    pub(crate) hardware: GuestHardware,
    /// Time of the guest's wall clock when it made the report, in milliseconds since 1970; none if
    /// it says none.
    pub(crate) realtime_ms: Option<u64>,
    pub(crate) clock: ClockEvents,
    /// Only the values that are compared with the VMI.
    pub(crate) identity: Identity,
    /// Only the values that are compared with the placement.
    pub(crate) claims: Claims,
    /// The guest's findings, marked as such and bounded.
    pub(crate) findings: Vec<Finding>,
    /// Number of findings that were dropped, because there were too many.
    pub(crate) dropped_findings: usize,
    pub(crate) document: Document,
}

impl KeptReport {
    /// Reads a report from JSON and keeps the needed values.
    ///
    /// # Errors
    /// As [`GuestReport::from_json`].
    pub fn read(json: &[u8]) -> Result<Self, ReportError> {
        let report = GuestReport::from_json(json)?;
        Ok(Self::extract(&report, compress(json)))
    }

    /// Converts a report, for tests.
    ///
    /// # Panics
    /// When the report cannot be written as JSON.
    #[cfg(test)]
    pub(crate) fn of(report: &GuestReport) -> Self {
        Self::extract(report, compress(&serde_json::to_vec(report).unwrap()))
    }

    fn extract(report: &GuestReport, document: Document) -> Self {
        let (findings, dropped_findings) = findings::guest_findings(&report.findings);
        Self {
            agent_version: guest_text(&report.agent.version).into(),
            boot_id: guest_text(&report.boot_id).into(),
            os_name: system(report, "osName"),
            kernel: system(report, "kernel"),
            disks: items(report, "disks"),
            nics: items(report, "nics"),
            storage: summary(report, "storage"),
            dns: summary(report, "dns"),
            virtio: summary(report, "virtio"),
            hardware: GuestHardware::of(report),
            realtime_ms: Some(report.clock.realtime_ns / 1_000_000).filter(|ms| *ms > 0),
            clock: ClockEvents::of(report),
            identity: identity(&report.identity),
            claims: claims(&report.claims),
            findings,
            dropped_findings,
            document,
        }
    }

    /// The complete report; none if it was not stored.
    pub(crate) fn whole(&self) -> Option<GuestReport> {
        let Document::Kept(packed) = &self.document else {
            return None;
        };
        let mut json = Vec::new();
        let limit = MAX_REPORT_BYTES as u64;
        DeflateDecoder::new(&**packed)
            .take(limit)
            .read_to_end(&mut json)
            .ok()?;
        GuestReport::from_json(&json).ok()
    }

    /// Size of the stored document in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        match &self.document {
            Document::Kept(packed) => packed.len(),
            Document::TooLarge(_) | Document::OverBudget(_) => 0,
        }
    }

    /// Drops the document to keep the budget.
    pub(crate) fn drop_document(&mut self) {
        if let Document::Kept(packed) = &self.document {
            self.document = Document::OverBudget(packed.len());
        }
    }
}

/// A compressor with its last result.
struct Packer {
    deflate: Compress,
    packed: Vec<u8>,
}

thread_local! {
    /// Kept from report to report: a compressor takes a third of a MiB, more than a report.
    static PACKER: RefCell<Packer> = RefCell::new(Packer {
        deflate: Compress::new(Compression::fast(), false),
        packed: Vec::new(),
    });
}

fn compress(json: &[u8]) -> Document {
    PACKER.with_borrow_mut(|Packer { deflate, packed }| {
        deflate.reset();
        packed.clear();
        // Enough for text that does not compress, too.
        packed.reserve(json.len() + json.len() / 8 + 64);
        let document = match deflate.compress_vec(json, packed, FlushCompress::Finish) {
            Ok(Status::StreamEnd) if packed.len() <= MAX_KEPT_BYTES => {
                Document::Kept(packed.as_slice().into())
            }
            Ok(Status::StreamEnd) => Document::TooLarge(packed.len()),
            // Only without room for the result.
            Ok(_) | Err(_) => Document::TooLarge(json.len()),
        };
        packed.clear();
        packed.shrink_to(MAX_KEPT_BYTES);
        document
    })
}

/// The text `name` of the report's section `system`; `docs/report.md` lists them.
fn system(report: &GuestReport, name: &str) -> Option<Box<str>> {
    let items = &report.sections.get("system")?.items;
    let text = items.iter().find_map(|item| item.get(name)?.as_str())?;
    Some(guest_text(text).into())
}

fn items(report: &GuestReport, name: &str) -> Option<usize> {
    let section = report.sections.get(name)?;
    (section.status != SectionStatus::Failed && !section.truncated).then_some(section.items.len())
}

fn summary(report: &GuestReport, name: &str) -> SectionSummary {
    let Some(section) = report.sections.get(name) else {
        return SectionSummary::default();
    };
    let first = section.items.first().and_then(|item| item.get("state")?.as_str());
    SectionSummary {
        status: Some(section.status),
        items: section.items.len(),
        is_truncated: section.truncated,
        is_off: first == Some("off"),
    }
}

fn identity(described: &Identity) -> Identity {
    Identity {
        smbios_uuid: described.smbios_uuid.as_ref().map(bounded),
        machine_id: described.machine_id.as_ref().map(bounded),
        hostname: described.hostname.as_ref().map(bounded),
        interfaces: described.interfaces.as_ref().map(|interfaces| Sourced {
            value: macs(&interfaces.value),
            source: cut(&interfaces.source),
        }),
        ..Identity::default()
    }
}

/// Hardware addresses of the physical interfaces; of all interfaces if none is marked as physical.
/// A node with many pods has one veth each.
fn macs(interfaces: &[Interface]) -> Vec<Interface> {
    let any = interfaces.iter().any(|interface| interface.physical);
    let meant = interfaces.iter().filter(|interface| interface.physical || !any);
    let with_mac = meant.filter_map(|interface| interface.mac);
    let kept = with_mac.filter(|mac: &MacAddr| !mac.is_zero()).take(MAX_MACS);
    kept.map(|mac| Interface {
        name: String::new(),
        mac: Some(mac),
        addresses: Vec::new(),
        physical: any,
    })
    .collect()
}

fn claims(described: &Claims) -> Claims {
    let labels = COMPARED_LABELS.into_iter().filter_map(|key| {
        let claim = described.kubelet_labels.get(key)?;
        Some((key.to_owned(), bounded(claim)))
    });
    Claims {
        kubelet_labels: labels.collect(),
        infra_node: described.infra_node.as_ref().map(bounded),
        vm: described.vm.as_ref().map(bounded),
        ..Claims::default()
    }
}

fn bounded(described: &Sourced<String>) -> Sourced<String> {
    Sourced {
        value: cut(&described.value),
        source: cut(&described.source),
    }
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_COMPARED);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::report::{REPORT_API_VERSION, REPORT_KIND};

    use super::*;

    /// A report with the largest parsed form that the limits allow, of text that does not compress.
    fn hostile() -> GuestReport {
        let mut number = 1_u64;
        let mut noise = |length: usize| -> String {
            let next = || {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b'a' + u8::try_from(number >> 59).unwrap_or(0) % 26)
            };
            std::iter::repeat_with(next).take(length).collect()
        };
        let mut report = GuestReport {
            api_version: REPORT_API_VERSION.into(),
            kind: REPORT_KIND.into(),
            boot_id: noise(5000),
            ..GuestReport::default()
        };
        report.agent.version = noise(5000);
        report.identity.hostname = Some(Sourced::new(noise(5000), "x"));
        report.claims.kubelet_labels = (0..100)
            .map(|_| (noise(20), Sourced::new(noise(20), "x")))
            .collect();
        let finding = |noise: &mut dyn FnMut(usize) -> String| {
            Finding::new(
                &noise(30),
                virtfleet_wire::finding::Severity::Critical,
                ("VM", "x"),
                &noise(30),
                noise(600),
            )
        };
        report.findings = (0..200).map(|_| finding(&mut noise)).collect();
        report
    }

    #[test]
    fn a_hostile_report_takes_little_memory() {
        let json = serde_json::to_vec(&hostile()).unwrap();
        assert!(
            (150_000..MAX_REPORT_BYTES).contains(&json.len()),
            "{}",
            json.len()
        );
        let kept = KeptReport::read(&json).unwrap();
        assert!(matches!(kept.document, Document::TooLarge(_)));
        assert_eq!((kept.kept_bytes(), kept.whole()), (0, None));
        let described = format!("{kept:?}").len();
        assert!(described < 40_000, "{described} bytes");
        assert!(kept.dropped_findings > 100, "{}", kept.dropped_findings);
    }

    #[test]
    fn reports_are_compressed_apart_from_each_other() {
        let large = serde_json::to_vec(&hostile()).unwrap();
        let zeros = vec![b'0'; 3 * MAX_KEPT_BYTES];
        let texts: [&[u8]; 6] = [b"a", &large, b"", &zeros, b"a", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"];
        for text in texts {
            match compress(text) {
                Document::Kept(packed) => {
                    let mut found = Vec::new();
                    DeflateDecoder::new(&*packed).read_to_end(&mut found).unwrap();
                    assert!(found == text, "{} bytes", text.len());
                }
                other => {
                    assert!(text == large && matches!(other, Document::TooLarge(_)));
                }
            }
        }
    }

    #[test]
    fn a_normal_report_is_kept_completely() {
        let report = GuestReport {
            findings: Vec::new(),
            boot_id: "b".into(),
            agent: virtfleet_wire::report::AgentInfo::default(),
            ..hostile()
        };
        let mut kept = KeptReport::of(&report);
        assert_eq!(kept.whole().unwrap(), report);
        kept.drop_document();
        assert_eq!((kept.kept_bytes(), kept.whole()), (0, None));
    }
}

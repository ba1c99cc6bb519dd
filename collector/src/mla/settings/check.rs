//! Validation of a stream's settings beyond their types. The same rules hold for `spec.mla` of a
//! UserCluster and for the operator's stream.

use std::collections::BTreeMap;

use http::Uri;
use rustls::pki_types::ServerName;
use virtfleet_collector_core::mla::relabel::{CompiledRules, RelabelRule};
use virtfleet_remote_write::{CompressionSetting, ProtocolSetting, check_settings};
use virtfleet_wire::{exposition::is_label_name, settings::Span};

use crate::config::FleetStreamSettings;
use crate::mla::send::parse_url;
use crate::objects::{
    HEADER_REFUSED, HTTP_REFUSED, PlacementLabelSpec, PlacementSource, REPLICA_REFUSED, RESERVED_LABELS,
    RemoteWriteCompression, RemoteWriteProtocol, StreamLimitsSpec, is_forbidden_header,
};

/// Maximum time between two pages of a VM. One of them may fail or be missing: the next one comes
/// within the five minutes that PromQL looks back for the last sample of a series.
pub(crate) const MAX_INTERVAL: Span = Span::seconds(120);

/// The parts of a stream's settings that are checked.
pub(crate) struct Sections<'a> {
    /// `remoteWrite.url`.
    pub(crate) url: &'a str,
    /// `remoteWrite.insecure`.
    pub(crate) insecure: bool,
    /// `remoteWrite.timeout`.
    pub(crate) timeout: Span,
    /// The names in `remoteWrite.headers`.
    pub(crate) headers: Vec<&'a str>,
    /// Whether `remoteWrite.auth` is set.
    pub(crate) has_auth: bool,
    pub(crate) external_labels: &'a BTreeMap<String, String>,
    pub(crate) placement_labels: &'a [PlacementLabelSpec],
    pub(crate) relabel: &'a [RelabelRule],
    pub(crate) interval: Option<Span>,
    pub(crate) limits: &'a StreamLimitsSpec,
    /// `remoteWrite.protocol`.
    pub(crate) protocol: RemoteWriteProtocol,
    /// `remoteWrite.compression`.
    pub(crate) compression: RemoteWriteCompression,
    /// `remoteWrite.tls.serverName`.
    pub(crate) server_name: Option<&'a str>,
}

impl<'a> Sections<'a> {
    /// The parts of the operator's stream.
    pub(crate) fn of_fleet(fleet: &'a FleetStreamSettings) -> Self {
        let remote_write = &fleet.remote_write;
        Self {
            url: &remote_write.url,
            insecure: remote_write.insecure,
            timeout: remote_write.timeout,
            headers: remote_write
                .headers
                .iter()
                .map(|header| header.name.as_str())
                .collect(),
            has_auth: remote_write.auth.is_set(),
            external_labels: &fleet.external_labels,
            placement_labels: &fleet.placement_labels,
            relabel: &fleet.relabel,
            interval: fleet.interval,
            limits: &fleet.limits,
            protocol: remote_write.protocol,
            compression: remote_write.compression,
            server_name: remote_write.tls.server_name.as_deref(),
        }
    }
}

/// Reports all problems, each with its path below the stream's settings.
pub(crate) fn check_stream(stream: &Sections<'_>, report: &mut impl FnMut(&str, String)) {
    if let Err(why) = check_url(stream.url, stream.insecure) {
        report("remoteWrite.url", why);
    }
    if !(Span::seconds(1)..=Span::seconds(300)).contains(&stream.timeout) {
        report("remoteWrite.timeout", "must be 1s to 5m".to_owned());
    }
    if let Err(why) = check_settings(protocol(stream.protocol), compression(stream.compression)) {
        report("remoteWrite.compression", why.to_owned());
    }
    if let Some(name) = stream.server_name
        && ServerName::try_from(name).is_err()
    {
        report(
            "remoteWrite.tls.serverName",
            format!("{name:?} is neither a DNS name nor an IP address"),
        );
    }
    check_headers(&stream.headers, stream.has_auth, &mut |path, why| {
        report(&format!("remoteWrite.{path}"), why);
    });
    external_labels(stream.external_labels, report);
    placement_labels(stream, report);
    if let Err(error) = CompiledRules::new(stream.relabel) {
        report(&format!("relabel[{}]", error.index), error.why);
    }
    let intervals = Span::seconds(1)..=MAX_INTERVAL;
    if stream
        .interval
        .is_some_and(|interval| !intervals.contains(&interval))
    {
        report("interval", format!("must be 1s to {MAX_INTERVAL}"));
    }
    limits(stream.limits, report);
}

/// The protocol as the sender names it.
pub(super) fn protocol(protocol: RemoteWriteProtocol) -> ProtocolSetting {
    match protocol {
        RemoteWriteProtocol::Auto => ProtocolSetting::Auto,
        RemoteWriteProtocol::V1 => ProtocolSetting::V1,
        RemoteWriteProtocol::V2 => ProtocolSetting::V2,
    }
}

/// The compression as the sender names it.
pub(super) fn compression(compression: RemoteWriteCompression) -> CompressionSetting {
    match compression {
        RemoteWriteCompression::Auto => CompressionSetting::Auto,
        RemoteWriteCompression::Snappy => CompressionSetting::Snappy,
        RemoteWriteCompression::Zstd => CompressionSetting::Zstd,
    }
}

/// The URL, or why it is refused.
pub(crate) fn check_url(url: &str, insecure: bool) -> Result<Uri, String> {
    if url.is_empty() {
        return Err(
            "required: the URL of the receiver, e.g. https://mimir.example.com/api/v1/push".to_owned(),
        );
    }
    let parsed = parse_url(url).map_err(|why| why.to_string())?;
    match parsed.scheme_str() {
        Some("https") => Ok(parsed),
        _ if insecure || parsed.host().is_some_and(is_loopback) => Ok(parsed),
        _ => Err(HTTP_REFUSED.to_owned()),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Reports problems of the names of headers that are added to requests.
pub(crate) fn check_headers(names: &[&str], has_auth: bool, report: &mut impl FnMut(&str, String)) {
    for (at, name) in names.iter().enumerate() {
        let path = format!("headers[{at}].name");
        if name.parse::<http::HeaderName>().is_err() {
            report(&path, format!("{name:?} is not a name of a header"));
        } else if is_forbidden_header(name) {
            report(&path, format!("{name}: {HEADER_REFUSED}"));
        } else if has_auth && name.eq_ignore_ascii_case("authorization") {
            report(&path, "auth is set, too; remove one of them".to_owned());
        } else if names[..at]
            .iter()
            .any(|earlier| earlier.eq_ignore_ascii_case(name))
        {
            report(&path, format!("{name} occurs twice"));
        }
    }
}

/// Maximum bytes of a label's name, as in Cortex and Mimir.
const MAX_LABEL_NAME_BYTES: usize = 1024;

/// Why a label may not be set; none if it may.
fn refused_label(name: &str) -> Option<String> {
    let is_name = is_label_name(name);
    if name == "__replica__" {
        Some(REPLICA_REFUSED.to_owned())
    } else if !is_name || name.len() > MAX_LABEL_NAME_BYTES {
        Some(format!(
            "{name:?} is not a label's name: use letters, digits and '_', at most {MAX_LABEL_NAME_BYTES}"
        ))
    } else if name.starts_with("__") {
        Some(format!("{name}: names with two leading '_' belong to Prometheus"))
    } else if RESERVED_LABELS.contains(&name) {
        Some(format!(
            "{name} is reserved: the collector or the guest sets it; reserved are {}",
            RESERVED_LABELS.join(", ")
        ))
    } else {
        None
    }
}

fn external_labels(labels: &BTreeMap<String, String>, report: &mut impl FnMut(&str, String)) {
    for (name, value) in labels {
        let path = format!("externalLabels.{name}");
        if let Some(why) = refused_label(name) {
            report(&path, why);
        } else if value.is_empty() {
            report(
                &path,
                "empty, which is the same as no label; remove it".to_owned(),
            );
        }
    }
}

fn placement_labels(stream: &Sections<'_>, report: &mut impl FnMut(&str, String)) {
    let labels = stream.placement_labels;
    for (at, label) in labels.iter().enumerate() {
        let path = format!("placementLabels[{at}]");
        let name = label.label();
        let is_node_label = label.source == PlacementSource::NodeLabel;
        if is_node_label != label.key.is_some() {
            let message = if is_node_label {
                "key is required with the source NodeLabel: the key of the infra node's label"
            } else {
                "key has no effect without the source NodeLabel"
            };
            report(&format!("{path}.key"), message.to_owned());
        }
        if name.is_empty() {
            report(
                &format!("{path}.name"),
                "required with the source NodeLabel".to_owned(),
            );
        } else if let Some(why) = refused_label(name) {
            report(&format!("{path}.name"), why);
        } else if stream.external_labels.contains_key(name) {
            report(
                &format!("{path}.name"),
                format!("{name} is also an external label"),
            );
        } else if labels[..at].iter().any(|earlier| earlier.label() == name) {
            report(&format!("{path}.name"), format!("{name} occurs twice"));
        }
    }
}

fn limits(limits: &StreamLimitsSpec, report: &mut impl FnMut(&str, String)) {
    let mut range = |key: &str, value: Option<u64>, min: u64, max: u64| {
        if value.is_some_and(|value| !(min..=max).contains(&value)) {
            report(&format!("limits.{key}"), format!("must be {min} to {max}"));
        }
    };
    range("queueBytes", limits.queue_bytes, 1 << 20, 1 << 40);
    range("samplesPerVm", limits.samples_per_vm, 1, 10_000_000);
    range("seriesPerVm", limits.series_per_vm, 1, 10_000_000);
    range("series", limits.series, 1, 1_000_000_000);
    range("labelNames", limits.label_names.map(u64::from), 5, 256);
    range(
        "labelValueBytes",
        limits.label_value_bytes.map(u64::from),
        64,
        65_536,
    );
    if limits.queue_age.is_some_and(|age| age < Span::seconds(60)) {
        report("limits.queueAge", "must be at least 1m".to_owned());
    }
}

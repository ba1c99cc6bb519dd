//! Builds the settings of a stream from its spec and the data of its Secrets, or says why it
//! cannot. Pure except for the authorities of the system.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use virtfleet_wire::settings::Span;
use zeroize::Zeroizing;

use super::{
    PlacementLabel, PlacementValue, Sections, StreamLimits, StreamSettings,
    check::{check_url, compression, protocol},
    check_stream,
    input::SecretLookup,
    tls,
};
use crate::{
    config::CollectorConfig,
    mla::send::Endpoint,
    objects::{InfraSecretRef, MlaSpec, PlacementLabelSpec, PlacementSource, StreamLimitsSpec},
};

/// As in Cortex and Mimir, and in KKP's Cortex.
const DEFAULT_LABEL_NAMES: u32 = 40;
/// As in Cortex and Mimir.
const DEFAULT_LABEL_VALUE_BYTES: u32 = 2048;
/// Maximum time between two pages of a VM if the nearest pull is taken: half of the five minutes
/// that PromQL looks back.
const MAX_PAGE_DISTANCE: Duration = Duration::from_secs(150);
/// Maximum number of problems in a message.
const MAX_NAMED: usize = 5;

/// Limits in the collector's settings; a stream may have less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamDefaults {
    /// `mla.queue.maxBytesPerStream`.
    pub queue_bytes: u64,
    /// `mla.queue.maxAge`.
    pub queue_age: Duration,
    /// `scrape.maxSamples`.
    pub samples_per_page: u64,
    /// `mla.series.maxPerVm`.
    pub series_per_vm: u64,
    /// `mla.series.maxPerStream`.
    pub series: u64,
    /// `scrape.interval`.
    pub pull_interval: Duration,
}

impl StreamDefaults {
    /// The limits of these settings; none if they have no `mla`.
    pub fn new(config: &CollectorConfig) -> Option<Self> {
        let mla = config.mla.as_ref()?;
        let queue = &mla.queue;
        Some(Self {
            queue_bytes: queue.max_bytes_per_stream,
            queue_age: queue.max_age.0,
            samples_per_page: config.scrape.max_samples,
            series_per_vm: mla.series.max_per_vm,
            series: mla.series.max_per_stream,
            pull_interval: config.scrape.interval.0,
        })
    }
}

/// Why the present settings cannot be used.
#[derive(Debug)]
pub(super) struct Unusable {
    /// Reason of the condition, in CamelCase.
    pub(super) reason: &'static str,
    /// What is wrong, and where.
    pub(super) message: String,
    /// The settings, if only the endpoint is missing: samples can be queued.
    pub(super) without_endpoint: Option<Box<StreamSettings>>,
}

/// Everything about a stream but its credentials.
pub(super) struct StreamSpec<'a> {
    pub(super) sections: Sections<'a>,
    pub(super) suspend: bool,
    pub(super) guests: bool,
}

#[derive(Default)]
pub(super) struct Credentials<'a> {
    pub(super) pem: tls::Pem<'a>,
    pub(super) headers: Vec<(&'a str, Zeroizing<Vec<u8>>)>,
    /// Value of the header Authorization.
    pub(super) authorization: Option<Zeroizing<Vec<u8>>>,
}

/// The value of Authorization for a user name and a password (RFC 7617).
pub(super) fn basic(username: &[u8], password: &[u8]) -> Zeroizing<Vec<u8>> {
    let pair = Zeroizing::new([username, b":", password].concat());
    Zeroizing::new(format!("Basic {}", STANDARD.encode(&*pair)).into_bytes())
}

/// The value of Authorization for a bearer token (RFC 6750).
pub(super) fn bearer(token: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new([b"Bearer ", token].concat())
}

/// The spec of a user cluster's stream.
pub(super) fn tenant_spec(spec: &MlaSpec) -> StreamSpec<'_> {
    let remote_write = &spec.remote_write;
    StreamSpec {
        sections: Sections {
            url: &remote_write.url,
            insecure: remote_write.insecure,
            timeout: remote_write.timeout,
            headers: remote_write
                .headers
                .iter()
                .map(|header| header.name.as_str())
                .collect(),
            has_auth: remote_write.auth.is_some(),
            external_labels: &spec.external_labels,
            placement_labels: &spec.placement_labels,
            relabel: &spec.relabel,
            interval: spec.interval,
            limits: &spec.limits,
            protocol: remote_write.protocol,
            compression: remote_write.compression,
            server_name: remote_write
                .tls
                .as_ref()
                .and_then(|tls| tls.server_name.as_deref()),
        },
        suspend: spec.suspend,
        guests: true,
    }
}

/// The settings of a user cluster's stream at `now`, in seconds since 1970.
pub(super) fn tenant(
    spec: &MlaSpec,
    secrets: &BTreeMap<InfraSecretRef, SecretLookup>,
    defaults: &StreamDefaults,
    now: u64,
) -> Result<StreamSettings, Unusable> {
    let stream = tenant_spec(spec);
    let settings = without_endpoint(&stream, "spec.mla.", defaults)?;
    let endpoint = credentials(spec, secrets)
        .and_then(|found| endpoint(&stream, &found, now).map_err(|why| ("InvalidCredentials", why)));
    with_endpoint(settings, endpoint)
}

/// The settings with the endpoint, or with the problem in its place.
pub(super) fn with_endpoint(
    mut settings: StreamSettings,
    endpoint: Result<(Endpoint, Option<u64>), (&'static str, String)>,
) -> Result<StreamSettings, Unusable> {
    match endpoint {
        Ok((endpoint, ends)) => {
            settings.endpoint = Some(endpoint);
            settings.certificate_ends = ends;
            Ok(settings)
        }
        Err((reason, message)) => {
            settings.problem = Some(message.clone());
            Err(Unusable {
                reason,
                message,
                without_endpoint: Some(Box::new(settings)),
            })
        }
    }
}

/// The settings without endpoint. `prefix` is the path of the stream's settings in messages.
pub(super) fn without_endpoint(
    stream: &StreamSpec<'_>,
    prefix: &str,
    defaults: &StreamDefaults,
) -> Result<StreamSettings, Unusable> {
    let mut problems = Vec::new();
    check_stream(&stream.sections, &mut |path, why| {
        if problems.len() < MAX_NAMED {
            problems.push(format!("{prefix}{path}: {why}"));
        }
    });
    if !problems.is_empty() {
        return Err(Unusable {
            reason: "InvalidSettings",
            message: problems.join("; "),
            without_endpoint: None,
        });
    }
    let sections = &stream.sections;
    let labels = sections.external_labels.iter();
    Ok(StreamSettings {
        endpoint: None,
        external_labels: labels
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        placement_labels: sections.placement_labels.iter().map(placement).collect(),
        relabel: sections.relabel.to_vec(),
        min_gap: min_gap(sections.interval, defaults.pull_interval),
        limits: limits(sections.limits, defaults),
        suspend: stream.suspend,
        guests: stream.guests,
        certificate_ends: None,
        problem: None,
    })
}

fn placement(label: &PlacementLabelSpec) -> PlacementLabel {
    PlacementLabel {
        name: label.label().to_owned(),
        value: match label.source {
            PlacementSource::Zone => PlacementValue::Zone,
            PlacementSource::Region => PlacementValue::Region,
            PlacementSource::InfraNode => PlacementValue::InfraNode,
            PlacementSource::NodeLabel => PlacementValue::NodeLabel(label.key.clone().unwrap_or_default()),
        },
    }
}

/// Pulls are not exact: the one within half of their interval is taken, or the one before it if
/// pages would be too far apart.
fn min_gap(interval: Option<Span>, pull_interval: Duration) -> Duration {
    match interval {
        Some(Span(interval)) if interval > pull_interval => {
            let nearest = interval.saturating_sub(pull_interval / 2);
            nearest.min(MAX_PAGE_DISTANCE.saturating_sub(pull_interval))
        }
        _ => Duration::ZERO,
    }
}

fn limits(spec: &StreamLimitsSpec, defaults: &StreamDefaults) -> StreamLimits {
    let queue_age = spec.queue_age.map_or(defaults.queue_age, |Span(age)| age);
    let least = |own: Option<u64>, default: u64| own.map_or(default, |own| own.min(default));
    StreamLimits {
        queue_bytes: least(spec.queue_bytes, defaults.queue_bytes),
        queue_age: queue_age.min(defaults.queue_age),
        samples_per_page: least(spec.samples_per_vm, defaults.samples_per_page),
        series_per_vm: least(spec.series_per_vm, defaults.series_per_vm),
        series: least(spec.series, defaults.series),
        label_names: spec.label_names.unwrap_or(DEFAULT_LABEL_NAMES) as usize,
        label_value_bytes: spec.label_value_bytes.unwrap_or(DEFAULT_LABEL_VALUE_BYTES) as usize,
    }
}

/// The endpoint, and when its client certificate ends.
pub(super) fn endpoint(
    stream: &StreamSpec<'_>,
    credentials: &Credentials<'_>,
    now: u64,
) -> Result<(Endpoint, Option<u64>), String> {
    let sections = &stream.sections;
    let url = check_url(sections.url, sections.insecure)?;
    let (tls, ends) = if url.scheme_str() == Some("https") {
        let (tls, ends) = tls::client(&credentials.pem, now)?;
        (Some(tls), ends)
    } else {
        (None, None)
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &credentials.headers {
        let parsed = HeaderName::try_from(*name).map_err(|error| format!("header {name}: {error}"))?;
        headers.insert(parsed, sensitive(name, value)?);
    }
    if let Some(value) = &credentials.authorization {
        headers.insert(AUTHORIZATION, sensitive("Authorization", value)?);
    }
    let endpoint = Endpoint {
        url,
        headers,
        tls,
        server_name: sections.server_name.map(str::to_owned),
        protocol: protocol(sections.protocol),
        compression: compression(sections.compression),
        timeout: sections.timeout.0,
        user_agent: concat!("virtfleet-collector/", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    endpoint.check().map_err(|why| why.to_string())?;
    Ok((endpoint, ends))
}

/// A header's value without the line end that editors add to files.
fn sensitive(name: &str, value: &[u8]) -> Result<HeaderValue, String> {
    let trimmed = value.trim_ascii_end();
    if trimmed.is_empty() {
        return Err(format!("the value of the header {name} is empty"));
    }
    let mut value = HeaderValue::from_bytes(trimmed)
        .map_err(|_| format!("the value of the header {name} has characters that no header may have"))?;
    value.set_sensitive(true);
    Ok(value)
}

type CredentialResult<T> = Result<T, (&'static str, String)>;

/// The credentials of a user cluster's stream, or the reason and the message why they are not
/// there.
fn credentials<'a>(
    spec: &'a MlaSpec,
    secrets: &'a BTreeMap<InfraSecretRef, SecretLookup>,
) -> CredentialResult<Credentials<'a>> {
    let remote_write = &spec.remote_write;
    let mut found = Credentials::default();
    if let Some(secret) = remote_write.tls.as_ref().and_then(|tls| tls.secret.as_ref()) {
        let lookup = Lookup::new(secrets, secret)?;
        found.pem = tls::Pem {
            authorities: lookup.first(&["ca.crt"]),
            certificate: lookup.first(&["tls.crt", "client.crt"]),
            key: lookup.first(&["tls.key", "client.key"]),
        };
        let pem = &found.pem;
        if pem.authorities.is_none() && pem.certificate.is_none() && pem.key.is_none() {
            let message = format!(
                "{} has none of the keys ca.crt, tls.crt and tls.key",
                lookup.place()
            );
            return Err(("SecretKeyMissing", message));
        }
    }
    for header in &remote_write.headers {
        let value = match (&header.value, &header.secret) {
            (Some(value), None) => Zeroizing::new(value.clone().into_bytes()),
            (None, Some(at)) => Lookup::new(secrets, &at.secret())?.required(&at.key)?,
            _ => {
                let message = format!(
                    "spec.mla.remoteWrite.headers: {}: exactly one of value and secret must be set",
                    header.name
                );
                return Err(("InvalidSettings", message));
            }
        };
        found.headers.push((header.name.as_str(), value));
    }
    if let Some(auth) = &remote_write.auth {
        found.authorization = Some(match (&auth.basic, &auth.bearer) {
            (Some(at), None) => {
                let lookup = Lookup::new(secrets, &at.secret)?;
                let (username, password) = (lookup.required("username")?, lookup.required("password")?);
                basic(username.trim_ascii_end(), password.trim_ascii_end())
            }
            (None, Some(at)) => {
                let token = Lookup::new(secrets, &at.secret.secret())?.required(&at.secret.key)?;
                bearer(token.trim_ascii_end())
            }
            _ => {
                let message = "spec.mla.remoteWrite.auth: exactly one of basic and bearer must be set";
                return Err(("InvalidSettings", message.to_owned()));
            }
        });
    }
    Ok(found)
}

/// One Secret with its data.
struct Lookup<'a> {
    at: &'a InfraSecretRef,
    values: &'a super::SecretValues,
}

impl<'a> Lookup<'a> {
    fn new(
        secrets: &'a BTreeMap<InfraSecretRef, SecretLookup>,
        at: &InfraSecretRef,
    ) -> CredentialResult<Self> {
        let place = format!("Secret {}/{}", at.namespace, at.name);
        match secrets.get_key_value(at) {
            Some((at, SecretLookup::Found(values))) => Ok(Self { at, values }),
            None | Some((_, SecretLookup::Waiting)) => {
                Err(("SecretNotReadYet", format!("{place} has not been read yet")))
            }
            Some((_, SecretLookup::Absent)) => Err(("SecretMissing", format!("{place} does not exist"))),
            Some((_, SecretLookup::Failed(why))) => {
                Err(("SecretUnreadable", format!("{place} cannot be read: {why}")))
            }
        }
    }

    fn place(&self) -> String {
        format!("Secret {}/{}", self.at.namespace, self.at.name)
    }

    /// The first of these keys that is there: its name and value.
    fn first(&self, keys: &[&'static str]) -> Option<(&'static str, &'a [u8])> {
        keys.iter().find_map(|key| Some((*key, self.values.get(key)?)))
    }

    fn required(&self, key: &str) -> CredentialResult<Zeroizing<Vec<u8>>> {
        match self.values.get(key) {
            Some(value) if !value.trim_ascii().is_empty() => Ok(Zeroizing::new(value.to_vec())),
            Some(_) => Err((
                "InvalidCredentials",
                format!("{}: the key {key:?} is empty", self.place()),
            )),
            None => Err((
                "SecretKeyMissing",
                format!("{}: the Secret has no key {key:?}", self.place()),
            )),
        }
    }
}

//! Tests of the settings of streams: what is refused, and what a changed Secret changes.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use virtfleet_wire::ids::ClusterName;

use super::*;
use crate::objects::InfraSecretRef;

mod changes;

const NOW: u64 = 1_800_000_000;

fn defaults() -> StreamDefaults {
    StreamDefaults {
        queue_bytes: 1 << 30,
        queue_age: Duration::from_hours(2),
        samples_per_page: 50_000,
        series_per_vm: 40_000,
        series: 1_000_000,
        pull_interval: Duration::from_secs(30),
    }
}

fn registry() -> StreamRegistry {
    StreamRegistry::new(Some(defaults()), || NOW)
}

fn cluster() -> ClusterName {
    "blue".parse().unwrap()
}

/// A Secret's values as text.
fn found(values: &[(&str, &str)]) -> SecretLookup {
    let values = values.iter();
    SecretLookup::Found(
        values
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect(),
    )
}

fn tenant(mla: &Value, secrets: &[(&str, SecretLookup)]) -> TenantMla {
    let secrets = secrets.iter().map(|(name, lookup)| {
        let at = InfraSecretRef {
            namespace: "mla".to_owned(),
            name: (*name).to_owned(),
        };
        (at, lookup.clone())
    });
    TenantMla {
        spec: parse_spec(mla),
        secrets: secrets.collect(),
    }
}

/// The stream's settings in use.
fn in_use(registry: &StreamRegistry) -> Option<StreamSettings> {
    let all = registry.settings().borrow().clone();
    all.get(&StreamName::Tenant(cluster())).cloned()
}

/// A certificate that ends `days` after [`NOW`], with its key, in PEM.
fn certificate(days: i64) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(["client.example".to_owned()]).unwrap();
    let end = i64::try_from(NOW).unwrap() + days * 86_400;
    params.not_before = (std::time::UNIX_EPOCH).into();
    params.not_after = (std::time::UNIX_EPOCH + Duration::from_secs(end.try_into().unwrap())).into();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// When a certificate of 30 days ends.
const END: u64 = NOW + 30 * 86_400;

/// Whether the client certificate of a stream ends at `end`.
fn ends(settings: &StreamSettings, end: u64) -> bool {
    !settings.is_certificate_expired(end - 1) && settings.is_certificate_expired(end)
}

const URL: &str = "https://mla.example.com:30443/api/v1/push";

/// `spec.mla` with more keys; those of `remoteWrite` begin with `rw.`.
fn mla_with(more: &Value) -> Value {
    let mut mla = json!({ "remoteWrite": { "url": URL } });
    for (key, value) in more.as_object().unwrap() {
        match (key.strip_prefix("rw."), value) {
            (Some(key), value) => mla["remoteWrite"][key] = value.clone(),
            (None, value) => mla[key] = value.clone(),
        }
    }
    mla
}

/// Each set of keys is refused, with a message that has this part.
fn refused(all: &[(Value, &str)]) {
    for (more, expected) in all {
        let registry = registry();
        let mla = mla_with(more);
        let status = registry.set_tenant(&cluster(), Some(&tenant(&mla, &[]))).unwrap();
        assert!(!status.configured, "{more}");
        assert_eq!(status.reason, "InvalidSettings", "{more}: {}", status.message);
        assert!(status.message.contains(expected), "{more}: {}", status.message);
        assert!(in_use(&registry).is_none(), "{more}");
        // Its queue is kept.
        assert_eq!(registry.names(), [StreamName::Tenant(cluster())].into(), "{more}");
    }
}

#[test]
fn each_problem_of_a_receiver_is_named_with_its_path_and_reason() {
    let header = |name: &str| json!([{ "name": name, "value": "x" }]);
    refused(&[
        (
            json!({ "rw.url": "mla.example.com" }),
            "spec.mla.remoteWrite.url: ",
        ),
        (json!({ "rw.url": "ftp://a/" }), "spec.mla.remoteWrite.url: "),
        (json!({ "rw.url": "https://u:p@a/" }), "user name or password"),
        (json!({ "rw.url": "http://mla.example.com/" }), "insecure: true"),
        (
            json!({ "rw.timeout": "10m" }),
            "spec.mla.remoteWrite.timeout: must be 1s to 5m",
        ),
        (
            json!({ "rw.headers": header("Host") }),
            "headers[0].name: Host: the header belongs",
        ),
        (
            json!({ "rw.headers": header("content-TYPE") }),
            "headers[0].name: ",
        ),
        (
            json!({ "rw.headers": header("X-Prometheus-Remote-Write-Version") }),
            "headers[0].name: ",
        ),
        (
            json!({ "rw.headers": header("Transfer-Encoding") }),
            "headers[0].name: ",
        ),
        (
            json!({ "rw.headers": header("a b") }),
            "is not a name of a header",
        ),
        (
            json!({ "rw.headers": header("authorization"), "rw.auth": { "bearer": { "secret": { "namespace": "mla", "name": "s" } } } }),
            "auth is set, too",
        ),
        (
            json!({ "rw.protocol": "V2", "rw.compression": "Zstd" }),
            "remoteWrite.compression: ",
        ),
        (json!({ "rw.tls": { "serverName": "a b" } }), "tls.serverName: "),
    ]);
}

#[test]
fn each_problem_of_labels_rules_and_limits_is_named_with_its_path_and_reason() {
    refused(&[
        (
            json!({ "externalLabels": { "cluster": "x" } }),
            "externalLabels.cluster: cluster is reserved",
        ),
        (
            json!({ "externalLabels": { "__replica__": "x" } }),
            "Cortex and Mimir drop",
        ),
        (
            json!({ "externalLabels": { "a-b": "x" } }),
            "is not a label's name",
        ),
        (json!({ "externalLabels": { "__x": "x" } }), "two leading '_'"),
        (
            json!({ "externalLabels": { "a": "" } }),
            "externalLabels.a: empty",
        ),
        (
            json!({ "placementLabels": [{ "source": "NodeLabel", "name": "rack" }] }),
            "placementLabels[0].key: key is required",
        ),
        (
            json!({ "placementLabels": [{ "source": "Zone", "key": "rack" }] }),
            "placementLabels[0].key: key has no effect",
        ),
        (
            json!({ "placementLabels": [{ "source": "Zone" }, { "source": "Region", "name": "zone" }] }),
            "placementLabels[1].name: zone occurs twice",
        ),
        (
            json!({ "placementLabels": [{ "source": "Zone" }], "externalLabels": { "zone": "x" } }),
            "is also an external label",
        ),
        (
            json!({ "placementLabels": [{ "source": "Zone", "name": "instance" }] }),
            "instance is reserved",
        ),
        (
            json!({ "relabel": [{ "action": "keep" }, { "regex": "(" }] }),
            "spec.mla.relabel[",
        ),
        (
            json!({ "limits": { "queueAge": "5s" } }),
            "limits.queueAge: must be at least 1m",
        ),
        (json!({ "limits": { "seriesPerVm": 0 } }), "limits.seriesPerVm: "),
        (json!({ "limits": { "series": 0 } }), "limits.series: "),
        (json!({ "interval": "3m" }), "spec.mla.interval: must be 1s to 2m"),
    ]);
}

#[test]
fn settings_are_applied_and_limits_are_those_of_the_collector_at_most() {
    let registry = registry();
    let mla = json!({
        "remoteWrite": {
            "url": "http://127.0.0.1:9090/api/v1/write", "timeout": "5s", "headers": [{ "name": "X-Scope-OrgID", "value": "blue" }],
        },
        "externalLabels": { "region_group": "eu" },
        "placementLabels": [{ "source": "Zone" }, { "source": "NodeLabel", "key": "example.com/rack", "name": "rack" }],
        "relabel": [{ "sourceLabels": ["__name__"], "regex": "go_.*", "action": "drop" }],
        "limits": {
            "queueBytes": 2_097_152, "queueAge": "24h", "labelNames": 30, "seriesPerVm": 30_000, "series": 2_000_000,
        },
    });
    let status = registry.set_tenant(&cluster(), Some(&tenant(&mla, &[]))).unwrap();
    assert_eq!(
        (status.configured, status.reason),
        (true, "Configured"),
        "{}",
        status.message
    );
    assert_eq!(status.message, "samples are sent to 127.0.0.1:9090");
    let settings = in_use(&registry).unwrap();
    let endpoint = settings.endpoint.unwrap();
    assert!(endpoint.tls.is_none() && endpoint.headers["x-scope-orgid"] == "blue");
    assert_eq!(endpoint.timeout, Duration::from_secs(5));
    let limits = StreamLimits {
        queue_bytes: 2_097_152,
        queue_age: Duration::from_hours(2),
        samples_per_page: 50_000,
        series_per_vm: 30_000,
        series: 1_000_000,
        label_names: 30,
        label_value_bytes: 2048,
    };
    assert_eq!(settings.limits, limits);
    assert_eq!(settings.relabel.len(), 1);
    let labels: Vec<_> = settings
        .placement_labels
        .iter()
        .map(|label| label.name.as_str())
        .collect();
    assert_eq!(labels, ["zone", "rack"]);
    assert_eq!(
        settings.placement_labels[1].value,
        PlacementValue::NodeLabel("example.com/rack".to_owned())
    );
    assert!(settings.guests && !settings.suspend);
}

fn with_certificate() -> Value {
    json!({ "remoteWrite": { "url": URL, "tls": { "secret": { "namespace": "mla", "name": "gateway" } } } })
}

#[test]
fn a_rotated_certificate_is_used_and_a_broken_one_is_not() {
    let registry = registry();
    let mut changes = registry.settings();
    let (first, first_key) = certificate(30);
    let set = |lookup: SecretLookup| {
        registry
            .set_tenant(
                &cluster(),
                Some(&tenant(&with_certificate(), &[("gateway", lookup)])),
            )
            .unwrap()
    };
    let waiting = set(SecretLookup::Waiting);
    assert_eq!((waiting.configured, waiting.reason), (false, "SecretNotReadYet"));
    assert!(
        in_use(&registry).unwrap().endpoint.is_none(),
        "samples can be queued"
    );
    assert_eq!(set(SecretLookup::Absent).reason, "SecretMissing");

    let pair = |certificate: &str, key: &str| {
        found(&[("tls.crt", certificate), ("tls.key", key), ("ca.crt", &first)])
    };
    let good = set(pair(&first, &first_key));
    assert_eq!(
        (good.configured, good.reason),
        (true, "Configured"),
        "{}",
        good.message
    );
    assert!(registry.findings().borrow().is_empty());
    let settings = in_use(&registry).unwrap();
    assert!(ends(&settings, END));
    let tls = settings.endpoint.unwrap().tls.unwrap();

    // The same data is no change.
    changes.mark_unchanged();
    set(pair(&first, &first_key));
    set(SecretLookup::Waiting);
    assert!(!changes.has_changed().unwrap());

    // Broken versions: the certificate and key do not match, no PEM, expired, gone.
    let (second, second_key) = certificate(60);
    let (expired, expired_key) = certificate(-1);
    for (lookup, reason, part) in [
        (
            pair(&second, &first_key),
            "InvalidCredentials",
            "cannot be used together",
        ),
        (pair("x", &first_key), "InvalidCredentials", "tls.crt"),
        (
            pair(&first, "secret text"),
            "InvalidCredentials",
            "tls.key has no private key",
        ),
        (pair(&expired, &expired_key), "InvalidCredentials", "expired"),
        (
            found(&[("tls.crt", &first), ("ca.crt", &first)]),
            "InvalidCredentials",
            "private key is not",
        ),
        (found(&[("other", "x")]), "SecretKeyMissing", "none of the keys"),
        (
            SecretLookup::Absent,
            "SecretMissing",
            "Secret mla/gateway does not exist",
        ),
        (
            SecretLookup::Failed("forbidden".to_owned()),
            "SecretUnreadable",
            "forbidden",
        ),
    ] {
        let status = set(lookup);
        assert_eq!(
            (status.configured, status.reason),
            (false, reason),
            "{}",
            status.message
        );
        assert!(status.message.contains(part), "{}", status.message);
        assert!(
            status.message.ends_with("the last valid settings are used"),
            "{}",
            status.message
        );
        let settings = in_use(&registry).unwrap();
        assert!(Arc::ptr_eq(&tls, &settings.endpoint.unwrap().tls.unwrap()));
        assert!(settings.problem.unwrap().contains(part));
        let findings = registry.findings().borrow().clone();
        assert_eq!((findings.len(), findings[0].reason.as_str()), (1, reason));
        assert!(!format!("{findings:?}").contains("secret text"));
    }

    let rotated = set(found(&[
        ("client.crt", &second),
        ("client.key", &second_key),
        ("ca.crt", &first),
    ]));
    assert!(rotated.configured, "{}", rotated.message);
    let settings = in_use(&registry).unwrap();
    assert_eq!(settings.certificate_ends, Some(NOW + 60 * 86_400));
    assert!(!Arc::ptr_eq(&tls, &settings.endpoint.unwrap().tls.unwrap()));
    assert!(settings.problem.is_none() && registry.findings().borrow().is_empty());

    assert_eq!(registry.set_tenant(&cluster(), None), None);
    assert!(in_use(&registry).is_none());
}

#[test]
fn credentials_are_sent_and_never_shown() {
    let registry = registry();
    let secret = |name: &str, key: &str| json!({ "namespace": "mla", "name": name, "key": key });
    let url = "http://localhost/push";
    let header = json!([{ "name": "X-Key", "secret": secret("keys", "k") }]);
    let cases = [
        (
            json!({ "basic": { "secret": { "namespace": "mla", "name": "keys" } } }),
            "Basic Ymx1ZTpwYXNzcGhyYXNl",
        ),
        (
            json!({ "bearer": { "secret": { "namespace": "mla", "name": "keys" } } }),
            "Bearer t0ken",
        ),
    ];
    for (auth, expected) in cases {
        let mla = json!({ "remoteWrite": { "url": url, "headers": header, "auth": auth } });
        let values = [
            ("k", "ke7"),
            ("username", "blue"),
            ("password", "passphrase\n"),
            ("token", "t0ken\n"),
        ];
        let known = tenant(&mla, &[("keys", found(&values))]);
        let status = registry.set_tenant(&cluster(), Some(&known)).unwrap();
        assert!(status.configured, "{}", status.message);
        let settings = in_use(&registry).unwrap();
        let headers = &settings.endpoint.as_ref().unwrap().headers;
        assert_eq!(
            (&headers["authorization"], &headers["x-key"]),
            (
                &expected.parse::<http::HeaderValue>().unwrap(),
                &"ke7".parse::<http::HeaderValue>().unwrap(),
            )
        );
        assert!(headers.values().all(http::HeaderValue::is_sensitive));
        let shown = format!("{settings:?} {known:?} {registry:?} {headers:?}");
        for hidden in ["ke7", "passphrase", "t0ken", "Ymx1"] {
            assert!(!shown.contains(hidden), "{hidden}: {shown}");
        }
    }
    for (values, part) in [
        (&[("k", "a\u{0}b"), ("token", "x")][..], "X-Key has characters"),
        (&[("k", "  "), ("token", "x")], "the key \"k\" is empty"),
        (&[("k", "a")], "no key \"token\""),
    ] {
        let auth = json!({ "bearer": { "secret": { "namespace": "mla", "name": "keys" } } });
        let mla = json!({ "remoteWrite": { "url": url, "headers": header, "auth": auth } });
        let status = registry.set_tenant(&cluster(), Some(&tenant(&mla, &[("keys", found(values))])));
        let status = status.unwrap();
        assert!(
            !status.configured && status.message.contains(part),
            "{}",
            status.message
        );
    }
}

#[test]
fn secrets_named_by_a_spec_are_listed_once() {
    let secret = json!({ "namespace": "mla", "name": "all" });
    let mla = json!({ "remoteWrite": {
        "url": URL, "tls": { "secret": secret },
        "headers": [{ "name": "A", "secret": { "namespace": "mla", "name": "all", "key": "a" } }],
        "auth": { "basic": { "secret": { "namespace": "other", "name": "basic" } } },
    } });
    let named = parse_spec(&mla).unwrap().secrets();
    let named: Vec<_> = named
        .iter()
        .map(|at| (at.namespace.as_str(), at.name.as_str()))
        .collect();
    assert_eq!(named, [("mla", "all"), ("other", "basic")]);
}

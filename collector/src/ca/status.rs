//! Public description of the authority, for `GET /api/v1/ca`.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::authority::RotationNeed;

use super::{Authorities, Root, RootKind, UnixSeconds, authorities::trusted_until};

/// Public description of the fleet's authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaStatus {
    /// Where the roots and the deny list are kept.
    pub storage: String,
    /// Trust domain of the certificates.
    pub trust_domain: String,
    /// The roots, those that sign first, then cross-signed certificates.
    pub roots: Vec<CaRootView>,
    /// Number of denied serial numbers.
    pub denied_serials: usize,
    /// What an admin has to do or can expect next, one sentence each.
    pub next_steps: Vec<String>,
}

/// A certificate of the authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaRootView {
    /// What it signs.
    pub kind: RootKind,
    /// How it is used.
    pub role: RootRole,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub sha256: String,
    /// Serial number in hexadecimal digits.
    pub serial: String,
    /// First time at which it is valid.
    pub not_before: String,
    /// Last time at which it is valid.
    pub not_after: String,
    /// What manages it, if not this collector.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub managed_by: Option<String>,
}

/// How a certificate of the authority is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RootRole {
    /// It signs, and is trusted.
    Signs,
    /// It is trusted until the certificates that it signed have expired.
    Trusted,
    /// Collectors send it to agents that trust only an older root of clients.
    CrossSigned,
}

impl RootRole {
    /// The name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Signs => "signs",
            Self::Trusted => "trusted",
            Self::CrossSigned => "cross-signed",
        }
    }
}

impl CaStatus {
    /// Describes `authorities`; `lifetime` is that of certificates, in seconds.
    pub fn of(
        authorities: &Authorities,
        storage: &str,
        trust_domain: &str,
        lifetime: u64,
        now: UnixSeconds,
    ) -> Self {
        let mut roots = Vec::new();
        for kind in RootKind::ALL {
            for (index, root) in authorities.roots(kind).iter().enumerate() {
                let role = if index == 0 {
                    RootRole::Signs
                } else {
                    RootRole::Trusted
                };
                roots.push(view(kind, role, root, authorities.owner(kind)));
            }
        }
        let chain = authorities.client_chain().iter();
        roots.extend(chain.map(|link| view(RootKind::Clients, RootRole::CrossSigned, link, None)));
        Self {
            storage: storage.to_owned(),
            trust_domain: trust_domain.to_owned(),
            roots,
            denied_serials: authorities.denied(),
            next_steps: next_steps(authorities, lifetime, now),
        }
    }
}

fn view(kind: RootKind, role: RootRole, root: &Root, owner: Option<&str>) -> CaRootView {
    CaRootView {
        kind,
        role,
        sha256: root.fingerprint.clone(),
        serial: root.serial.to_string(),
        not_before: time(root.validity.not_before),
        not_after: time(root.validity.not_after),
        managed_by: owner.map(str::to_owned),
    }
}

fn next_steps(authorities: &Authorities, lifetime: u64, now: UnixSeconds) -> Vec<String> {
    let mut steps = Vec::new();
    for kind in RootKind::ALL {
        let roots = authorities.roots(kind);
        let owner = authorities.owner(kind);
        if let Some(signer) = roots.first() {
            steps.extend(expiry(kind, signer, owner, now));
        }
        for pair in roots.windows(2) {
            let until = time(trusted_until(&pair[0], &pair[1], lifetime));
            steps.push(format!(
                "root of {kind} {}: replaced; trusted until {until}, then removed; nothing to do",
                short(&pair[1])
            ));
        }
    }
    if let Some(link) = authorities.client_chain().last() {
        steps.push(format!(
            "user-data with an older root of clients is accepted until {}; render it again before: virtfleetctl render",
            time(link.validity.not_after)
        ));
    }
    if steps.is_empty() {
        let ends = RootKind::ALL
            .iter()
            .filter_map(|kind| authorities.roots(*kind).first());
        let first = ends.map(|root| root.life().due_at()).min().unwrap_or(now);
        steps.push(format!("nothing to do; rotate the roots before {}", time(first)));
    }
    steps
}

/// What to do about a root that has expired or expires soon.
fn expiry(kind: RootKind, root: &Root, owner: Option<&str>, now: UnixSeconds) -> Option<String> {
    let end = root.validity.not_after;
    if root.life().rotation(now) == RotationNeed::None {
        return None;
    }
    let state = if end < now { "expired at" } else { "expires at" };
    let step = match owner {
        Some(owner) => format!("renew it in {owner}"),
        None => format!("rotate it: virtfleetctl ca rotate {kind}"),
    };
    Some(format!(
        "root of {kind} {}: {state} {}; {step}",
        short(root),
        time(end)
    ))
}

fn short(root: &Root) -> String {
    root.fingerprint.chars().take(16).collect()
}

fn time(seconds: UnixSeconds) -> String {
    let timestamp = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok());
    timestamp.unwrap_or(Timestamp::MAX).to_string()
}

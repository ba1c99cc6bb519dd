//! Checks the fleet's authority: that it can be read, and how long its roots are valid.

use std::{fs, os::unix::fs::PermissionsExt as _};

use kube::Client;
use virtfleet_collector_core::authority::RotationNeed;

use super::CheckResult;
use crate::{
    ca::{self, Authorities, CaStore, CaStoreError, RootKind, SecretClients},
    config::{CollectorConfig, EnrolmentSettings},
};

/// The authority in a folder; nothing without `enrolment`, or with `inventory.cluster`.
pub(super) async fn folder(config: &CollectorConfig, now: u64) -> Vec<CheckResult> {
    const WHAT: &str = "enrolment.folder";
    let Some(settings) = enrolment(config).filter(|_| config.inventory.cluster.is_none()) else {
        return Vec::new();
    };
    let folder = &settings.folder;
    let mode = fs::metadata(folder).map(|found| found.permissions().mode() & 0o777);
    let mut results = Vec::new();
    if let Ok(mode) = mode
        && mode & 0o077 != 0
    {
        results.push(CheckResult::warn(
            WHAT,
            format!(
                "{folder} has mode {mode:04o}, so others may read keys; the collector sets 0700 at its start"
            ),
            format!("chmod 0700 {folder}"),
        ));
    }
    let store = ca::settings_store(config, settings, None);
    results.extend(check(WHAT, &store, now, &format!("ls -la {folder}")).await);
    results
}

/// The authority in a Secret; nothing without `enrolment`.
pub(super) async fn secret(
    config: &CollectorConfig,
    client: &Client,
    namespace: &str,
    now: u64,
) -> Vec<CheckResult> {
    let Some(settings) = enrolment(config) else {
        return Vec::new();
    };
    let clients = SecretClients {
        requests: client.clone(),
        watches: client.clone(),
    };
    let store = ca::settings_store(config, settings, Some(&clients));
    let next = format!(
        "kubectl -n {namespace} describe secret {}",
        names(settings).join(" ")
    );
    check("enrolment.secret", &store, now, &next).await
}

/// Names of all Secrets of the authority, its own first.
pub(super) fn names(settings: &EnrolmentSettings) -> Vec<&str> {
    let others = [&settings.agents_secret, &settings.clients_secret];
    let others = others.into_iter().flatten().map(String::as_str);
    std::iter::once(settings.secret.as_str()).chain(others).collect()
}

fn enrolment(config: &CollectorConfig) -> Option<&EnrolmentSettings> {
    config.enrolment.as_ref()
}

async fn check(what: &str, store: &CaStore, now: u64, next: &str) -> Vec<CheckResult> {
    match store.read(now).await {
        Ok(authorities) => RootKind::ALL
            .into_iter()
            .map(|kind| root(what, &authorities, kind, now))
            .collect(),
        Err(CaStoreError::Absent { place }) => {
            let detail = format!("{place} has no authority yet; the collector creates it at its start");
            vec![CheckResult::ok(what, detail)]
        }
        Err(error) => {
            let mut reason = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(source) = cause {
                // The message of an invalid authority includes its cause.
                if !reason.contains(&source.to_string()) {
                    reason = format!("{reason}: {source}");
                }
                cause = source.source();
            }
            vec![CheckResult::fail(what, reason, next)]
        }
    }
}

fn root(what: &str, authorities: &Authorities, kind: RootKind, now: u64) -> CheckResult {
    let Some(root) = authorities.roots(kind).first() else {
        return CheckResult::fail(
            what,
            format!("there is no root of {kind}"),
            "virtfleetctl ca status",
        );
    };
    let days = root.validity.not_after.abs_diff(now) / 86_400;
    let left = format!("root of {kind}: {days} d left");
    let next = match authorities.owner(kind) {
        Some(owner) => format!("renew it in {owner}"),
        None => format!("virtfleetctl ca rotate {kind}"),
    };
    match root.life().rotation(now) {
        RotationNeed::None => CheckResult::ok(what, left),
        RotationNeed::Due => CheckResult::warn(what, left, next),
        RotationNeed::Urgent => CheckResult::fail(what, left, next),
        RotationNeed::Expired => {
            CheckResult::fail(what, format!("the root of {kind} expired {days} d ago"), next)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::CheckStatus, *};

    const DAY: u64 = 86_400;

    /// Status and detail of each result.
    async fn results(config: &CollectorConfig, now: u64) -> Vec<(CheckStatus, String)> {
        let found = folder(config, now).await;
        let pair = |result: CheckResult| (result.status, result.detail);
        found.into_iter().map(pair).collect()
    }

    #[tokio::test]
    async fn an_authority_in_a_folder_is_checked() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("ca").display().to_string();
        let config = CollectorConfig {
            enrolment: Some(EnrolmentSettings {
                trust_domain: "example.org".to_owned(),
                folder: path.clone(),
                ..EnrolmentSettings::default()
            }),
            ..CollectorConfig::default()
        };
        let now = 1_767_225_600;
        let absent = format!("{path} has no authority yet; the collector creates it at its start");
        assert_eq!(results(&config, now).await, [(CheckStatus::Ok, absent)]);

        let store = ca::settings_store(&config, config.enrolment.as_ref().unwrap(), None);
        store.load_or_create(now).await.unwrap();
        let ok = |kind: &str| (CheckStatus::Ok, format!("root of {kind}: 3650 d left"));
        assert_eq!(results(&config, now).await, [ok("agents"), ok("clients")]);
        let found = results(&config, now + 3500 * DAY).await;
        assert!(
            found.iter().all(|(status, _)| *status == CheckStatus::Warn),
            "{found:?}"
        );
        let found = results(&config, now + 3651 * DAY).await;
        assert_eq!(found[1].1, "the root of clients expired 1 d ago");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(format!("{path}/agents.key")).unwrap();
        let found = results(&config, now).await;
        assert_eq!(
            (found[0].0, found[1].0, found.len()),
            (CheckStatus::Warn, CheckStatus::Fail, 2)
        );
        assert!(found[0].1.contains("mode 0755"), "{found:?}");
        assert!(found[1].1.contains("agents.key is missing"), "{found:?}");
        assert_eq!(
            found[1].1.matches("agents.key is missing").count(),
            1,
            "{found:?}"
        );
    }

    #[tokio::test]
    async fn without_enrolment_there_is_nothing_to_check() {
        assert_eq!(results(&CollectorConfig::default(), 0).await, []);
    }
}

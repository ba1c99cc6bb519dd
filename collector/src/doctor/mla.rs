//! Checks what MLA needs on this machine: the folder of queues, the space in it, and the files of
//! the operator's stream. UserClusters show in their condition `MlaConfigured` what they need.

use std::path::Path;

use kube::{Api, Client, api::ListParams};
use rustix::fs::{Access, access, statvfs};

use super::CheckResult;
use crate::{
    config::{CollectorConfig, MlaQueueSettings},
    credentials::pem_file,
    mla::settings::{StreamDefaults, check_fleet, read_files},
    objects::{ConditionStatus, UserCluster, status::MLA_CONFIGURED},
};

const FOLDER: &str = "mla.queue.folder";
const FLEET: &str = "mla.fleet";
/// Maximum UserClusters that are read.
const MAX_CLUSTERS: u32 = 5_000;

/// Results for `mla`. `now` is in seconds since 1970.
pub(super) fn check(config: &CollectorConfig, now: u64) -> Vec<CheckResult> {
    let (Some(mla), Some(defaults)) = (&config.mla, StreamDefaults::new(config)) else {
        return vec![CheckResult::ok("mla", "not set: no metrics are sent")];
    };
    let mut results = vec![folder(&mla.queue)];
    let Some(fleet) = &mla.fleet else {
        let detail = "not set: metrics are sent to tenants only";
        results.push(CheckResult::ok(FLEET, detail));
        return results;
    };
    let files = read_files(fleet);
    let before = results.len();
    for (key, path, problem) in files.states() {
        let is_pem = key.contains(".tls.");
        results.push(match problem {
            Some(why) => CheckResult::fail(key, why, format!("ls -l {path}")),
            None if is_pem => pem_file(key, path, key.ends_with(".tls.key"), now),
            None => CheckResult::ok(key, format!("{path}: readable")),
        });
    }
    let failed = results[before..]
        .iter()
        .any(|result| result.status == super::CheckStatus::Fail);
    // The file that cannot be used is named already.
    if let Some(why) = check_fleet(fleet, &files, &defaults, now).filter(|_| !failed) {
        results.push(CheckResult::fail(FLEET, why, "correct mla.fleet or its files"));
    }
    results
}

/// The folder of queues, or the nearest folder above it in which the collector creates it.
fn folder(queue: &MlaQueueSettings) -> CheckResult {
    let path = Path::new(&queue.folder);
    let present = path.ancestors().find(|folder| folder.exists());
    let Some(present) = present.filter(|folder| folder.is_dir()) else {
        let detail = format!("{} is not a folder", queue.folder);
        return CheckResult::fail(FOLDER, detail, format!("ls -ld {}", queue.folder));
    };
    let name = present.display();
    if let Err(error) = access(present, Access::WRITE_OK | Access::EXEC_OK) {
        let detail = format!("{name} cannot be written: {error}");
        let next = "run this as the collector's user; in a pod, put a volume there";
        return CheckResult::fail(FOLDER, detail, next);
    }
    let stat = match statvfs(present) {
        Ok(stat) => stat,
        Err(error) => {
            let detail = format!("the free space of {name} is unknown: {error}");
            return CheckResult::warn(FOLDER, detail, format!("df {name}"));
        }
    };
    space(
        &name.to_string(),
        stat.f_bavail.saturating_mul(stat.f_frsize),
        queue.max_bytes,
    )
}

fn space(name: &str, free: u64, max_bytes: u64) -> CheckResult {
    let mib = |bytes: u64| bytes >> 20;
    if free < max_bytes {
        let detail = format!(
            "{name} has {} MiB free, and the queues may need {} MiB: without space, samples are dropped",
            mib(free),
            mib(max_bytes)
        );
        return CheckResult::warn(FOLDER, detail, "lower mla.queue.maxBytes, or use a larger volume");
    }
    CheckResult::ok(
        FOLDER,
        format!("{name} is writable and has {} MiB free", mib(free)),
    )
}

/// A warning for each user cluster whose `spec.mla` is not used, or one result if there is none;
/// nothing if no UserCluster has one, or if they cannot be listed.
pub(super) async fn user_clusters(client: &Client) -> Vec<CheckResult> {
    let api: Api<UserCluster> = Api::all(client.clone());
    // Rights and definitions have checks of their own.
    let Ok(list) = api.list(&ListParams::default().limit(MAX_CLUSTERS)).await else {
        return Vec::new();
    };
    of_clusters(&list.items)
}

fn of_clusters(clusters: &[UserCluster]) -> Vec<CheckResult> {
    let with_mla: Vec<_> = clusters
        .iter()
        .filter(|cluster| cluster.spec.mla.is_some())
        .collect();
    let mut results: Vec<_> = with_mla
        .iter()
        .filter_map(|cluster| {
            let mut conditions = cluster.status.as_ref()?.conditions.iter();
            let refused =
                conditions.find(|one| one.kind == MLA_CONFIGURED && one.status == ConditionStatus::False)?;
            let name = cluster.metadata.name.as_deref().unwrap_or_default();
            Some(CheckResult::warn(
                format!("spec.mla of {name}"),
                refused.message.clone(),
                format!("kubectl describe usercluster {name}"),
            ))
        })
        .collect();
    if results.is_empty() && !with_mla.is_empty() {
        let detail = format!("{} user clusters have one, and each is used", with_mla.len());
        results.push(CheckResult::ok("spec.mla", detail));
    }
    results
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use virtfleet_wire::layered::Fragment;

    use super::*;
    use crate::doctor::CheckStatus;

    fn config(mla: &str) -> CollectorConfig {
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\nenrolment: {{trustDomain: a}}\nmla: {mla}\n"
        );
        let file = "c.yaml".to_owned();
        let loaded = CollectorConfig::load(&[Fragment { file, text }]);
        assert_eq!(loaded.problems, []);
        loaded.value
    }

    fn states(results: &[CheckResult]) -> Vec<(&str, CheckStatus)> {
        results
            .iter()
            .map(|result| (result.what.as_str(), result.status))
            .collect()
    }

    #[test]
    fn folder_and_files_are_checked_without_their_contents() {
        assert_eq!(
            states(&check(&CollectorConfig::default(), 0)),
            [("mla", CheckStatus::Ok)]
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let secret = folder.path().join("token");
        fs::write(&secret, "s3cret\n").unwrap();
        let new =
            format!("{{queue: {{folder: {path}/new/deeper, maxBytes: 16777216, maxBytesPerStream: 1048576}}");
        assert_eq!(
            states(&check(&config(&format!("{new}}}")), 0)),
            [(FOLDER, CheckStatus::Ok), (FLEET, CheckStatus::Ok)]
        );
        let remote_write = format!("url: 'http://127.0.0.1:1/', auth: {{tokenFile: {path}/token}}");
        let with_fleet = |more: &str| {
            config(&format!(
                "{new}, fleet: {{remoteWrite: {{{remote_write}{more}}}}}}}"
            ))
        };
        let found = check(&with_fleet(""), 0);
        let token = "mla.fleet.remoteWrite.auth.tokenFile";
        assert_eq!(
            states(&found),
            [(FOLDER, CheckStatus::Ok), (token, CheckStatus::Ok)]
        );
        assert!(!format!("{found:?}").contains("s3cret"));
        let absent = check(&with_fleet(", tls: {ca: /nonexistent/ca}"), 0);
        let ca = "mla.fleet.remoteWrite.tls.ca";
        assert_eq!(
            states(&absent),
            [
                (FOLDER, CheckStatus::Ok),
                (ca, CheckStatus::Fail),
                (token, CheckStatus::Ok)
            ]
        );
        fs::write(&secret, "\n").unwrap();
        let empty = check(&with_fleet(""), 0);
        assert_eq!(states(&empty)[1], (token, CheckStatus::Fail));
        assert!(empty[1].detail.ends_with("is empty"), "{}", empty[1].detail);
        fs::write(&secret, "a\u{0}b").unwrap();
        let refused = check(&with_fleet(""), 0);
        assert_eq!(states(&refused)[2], (FLEET, CheckStatus::Fail));
    }

    #[test]
    fn little_space_is_a_warning() {
        assert_eq!(space("/q", 1 << 30, 2 << 30).status, CheckStatus::Warn);
        assert_eq!(space("/q", 2 << 30, 2 << 30).status, CheckStatus::Ok);
    }

    #[test]
    fn user_clusters_that_are_not_configured_are_named() {
        let cluster = |name: &str, status: &str| -> UserCluster {
            serde_json::from_value(json!({
                "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster", "metadata": { "name": name },
                "spec": {
                    "vmis": { "namespace": "ns" }, "mla": { "remoteWrite": { "url": "https://a.example/push" } },
                },
                "status": { "conditions": [{
                    "type": MLA_CONFIGURED, "status": status, "reason": "r", "message": "Secret a/b does not exist",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }] },
            }))
            .unwrap()
        };
        let good = of_clusters(&[cluster("a", "True")]);
        assert_eq!(states(&good), [("spec.mla", CheckStatus::Ok)]);
        let bad = of_clusters(&[cluster("a", "True"), cluster("b", "False")]);
        assert_eq!(states(&bad), [("spec.mla of b", CheckStatus::Warn)]);
        assert!(bad[0].detail.contains("does not exist"));
    }
}

//! Tests of the watched folder: every change of a file reaches the fleet.

use std::{fs, path::Path, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch as channel},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{
    dial::DialRules,
    findings,
    view::{FleetSnapshot, VmState},
};
use virtfleet_wire::finding::Finding;

use super::{
    tests::{fixtures, key, vmi},
    watch,
};
use crate::{
    fleet::{Fleet, FleetRead},
    mla::settings::{StreamDefaults, StreamName, StreamRegistry},
};

/// A fleet that follows a folder.
struct Followed {
    fleet: Arc<Fleet>,
    problems: channel::Receiver<Vec<Finding>>,
    streams: Arc<StreamRegistry>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Followed {
    fn start(folder: &Path) -> Self {
        let fleet = Arc::new(Fleet::new(DialRules::default(), jiff::Timestamp::now));
        let (sender, mut events) = mpsc::channel(16);
        let (reported, problems) = channel::channel(Vec::new());
        let stop = CancellationToken::new();
        let limits = StreamDefaults {
            queue_bytes: 1,
            queue_age: Duration::from_mins(1),
            samples_per_page: 1,
            series_per_vm: 1,
            series: 1,
            pull_interval: Duration::from_secs(30),
        };
        let streams = Arc::new(StreamRegistry::new(Some(limits), || 0));
        let watching = watch(
            folder.to_owned(),
            sender,
            reported,
            Arc::clone(&streams),
            stop.clone(),
        );
        let taking = Arc::clone(&fleet);
        let tasks = vec![
            tokio::spawn(async move { watching.await.unwrap() }),
            tokio::spawn(async move {
                while let Some(event) = events.recv().await {
                    taking.apply(event);
                }
            }),
        ];
        Self {
            fleet,
            problems,
            streams,
            stop,
            tasks,
        }
    }

    /// Waits until the fleet matches, with a timeout for a loaded machine.
    async fn until(&self, what: &str, is_so: impl Fn(&FleetSnapshot) -> bool) {
        let mut revisions = self.fleet.revisions();
        let wait = async {
            while !is_so(&self.fleet.snapshot()) {
                revisions.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(10), wait).await;
        assert!(waited.is_ok(), "not within 10 s: {what}");
    }

    async fn until_problems(&mut self, what: &str, are_so: impl Fn(&[Finding]) -> bool) {
        let wait = async {
            while !are_so(&self.problems.borrow_and_update()) {
                self.problems.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(10), wait).await.is_ok();
        assert!(waited, "not within 10 s: {what}: {:?}", self.problems.borrow());
    }

    async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn runs_on(name: &str, node: &str) -> impl Fn(&FleetSnapshot) -> bool {
    move |snapshot| {
        let vm = snapshot.vms.get(&key(name));
        vm.and_then(|vm| vm.infra_node.as_ref())
            .is_some_and(|on| on.as_str() == node)
    }
}

#[tokio::test]
async fn the_folder_is_read_and_followed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("inventory");
    copy(&fixtures(), &folder);
    let mut followed = Followed::start(&folder);
    followed.until("the first pass", |snapshot| snapshot.synced).await;
    let snapshot = followed.fleet.snapshot();
    assert_eq!(
        (snapshot.vms.len(), snapshot.hosts.len(), snapshot.clusters.len()),
        (3, 2, 2)
    );
    let blue = &snapshot.vms[&key("blue-worker-0")];
    assert_eq!(
        (blue.zone.as_deref(), blue.state),
        (Some("eu-west-a"), VmState::Running)
    );
    assert_eq!(blue.user_node.as_ref().unwrap().as_str(), "blue-worker-0");
    assert_eq!(
        snapshot.vms[&key("blue-worker-1")]
            .cluster
            .as_ref()
            .unwrap()
            .as_str(),
        "blue"
    );

    // Edited in place, then replaced by rename.
    let vmis = folder.join("infra/vmis.yaml");
    let text = fs::read_to_string(&vmis)
        .unwrap()
        .replace("nodeName: infra-a1\n    phase", "nodeName: infra-b1\n    phase");
    fs::write(&vmis, &text).unwrap();
    followed
        .until("a move", runs_on("blue-worker-0", "infra-b1"))
        .await;
    fs::write(
        folder.join("infra/.new"),
        text.replace("infra-b1\n    phase", "infra-a1\n    phase"),
    )
    .unwrap();
    fs::rename(folder.join("infra/.new"), &vmis).unwrap();
    followed
        .until("a move by rename", runs_on("blue-worker-0", "infra-a1"))
        .await;

    // Truncated: reported, and no object is removed. Other files are read, also in new folders.
    fs::write(&vmis, "").unwrap();
    followed
        .until_problems("the empty file", |found| {
            found.iter().any(|f| f.message.contains("vmis.yaml:1: empty"))
        })
        .await;
    fs::create_dir_all(folder.join("infra/more")).unwrap();
    fs::write(folder.join("infra/more/late.yaml"), vmi("late", "infra-a1")).unwrap();
    followed
        .until("a file in a new folder", runs_on("late", "infra-a1"))
        .await;
    assert_eq!(followed.fleet.snapshot().vms.len(), 4);

    fs::remove_file(&vmis).unwrap();
    followed
        .until("a deleted file", |snapshot| snapshot.vms.len() == 2)
        .await;
    followed
        .until_problems("mended", |found| {
            found.iter().all(|f| f.id != findings::MANIFEST_BROKEN)
        })
        .await;

    // The folder is removed and restored.
    let away = dir.path().join("away");
    fs::rename(&folder, &away).unwrap();
    followed
        .until_problems("the folder away", |found| {
            found
                .iter()
                .any(|f| f.id == findings::INVENTORY_FOLDER_UNREADABLE)
        })
        .await;
    assert_eq!(followed.fleet.snapshot().vms.len(), 2);
    fs::rename(&away, &folder).unwrap();
    followed
        .until_problems("the folder back", |found| {
            found
                .iter()
                .all(|f| f.id != findings::INVENTORY_FOLDER_UNREADABLE)
        })
        .await;
    fs::write(folder.join("infra/more/late.yaml"), vmi("late", "infra-b1")).unwrap();
    followed
        .until("a move after that", runs_on("late", "infra-b1"))
        .await;
    followed.stop().await;
}

#[tokio::test]
async fn a_mounted_config_map_is_followed_through_its_links() {
    let dir = tempfile::tempdir().unwrap();
    let infra = dir.path().join("infra");
    for (version, node) in [("..v1", "n1"), ("..v2", "n2")] {
        fs::create_dir_all(infra.join(version)).unwrap();
        fs::write(infra.join(version).join("v.yaml"), vmi("a", node)).unwrap();
    }
    std::os::unix::fs::symlink("..v1", infra.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/v.yaml", infra.join("v.yaml")).unwrap();
    let followed = Followed::start(dir.path());
    followed.until("the first version", runs_on("a", "n1")).await;
    std::os::unix::fs::symlink("..v2", infra.join("..next")).unwrap();
    fs::rename(infra.join("..next"), infra.join("..data")).unwrap();
    followed.until("the second version", runs_on("a", "n2")).await;
    assert_eq!(
        followed.fleet.snapshot().findings.len(),
        1,
        "only the unknown node"
    );
    followed.stop().await;
}

#[tokio::test]
async fn a_missing_folder_is_an_error_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let (events, _events) = mpsc::channel(1);
    let (problems, _problems) = channel::channel(Vec::new());
    let missing = dir.path().join("missing");
    let streams = Arc::new(StreamRegistry::new(None, || 0));
    let error = watch(missing, events, problems, streams, CancellationToken::new())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}

#[tokio::test]
async fn streams_of_user_clusters_follow_the_secrets_in_their_folder() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("inventory");
    let blue = folder.join("clusters/blue");
    fs::create_dir_all(folder.join("infra")).unwrap();
    fs::create_dir_all(&blue).unwrap();
    let user_cluster = "apiVersion: virtfleet.io/v1alpha1
kind: UserCluster
metadata: {name: blue}
spec:
  vmis: {namespace: tenants}
  mla:
    remoteWrite:
      url: http://127.0.0.1/push
      auth: {bearer: {secret: {namespace: mla, name: token}}}
";
    fs::write(blue.join("cluster.yaml"), user_cluster).unwrap();
    let secret = |name: &str, token: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{token: {token}}}\n")
    };
    fs::write(blue.join("secrets.yaml"), secret("token", "0ne")).unwrap();
    fs::write(blue.join("other.yaml"), secret("other", "ignored")).unwrap();
    let mut followed = Followed::start(&folder);
    let mut settings = followed.streams.settings();
    let name = StreamName::Tenant("blue".parse().unwrap());
    let mut until = async |expected: &str| {
        let sends = |all: &crate::mla::settings::AllStreamSettings| {
            let endpoint = all.get(&name).and_then(|known| known.endpoint.as_ref());
            endpoint.is_some_and(|endpoint| endpoint.headers["authorization"] == expected)
        };
        let wait = async {
            while !sends(&settings.borrow_and_update()) {
                settings.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(10), wait).await;
        assert!(waited.is_ok(), "not within 10 s: {expected}");
    };
    until("Bearer 0ne").await;
    followed
        .until_problems("only the Secret that is not named is ignored", |found| {
            let ignored = |one: &&Finding| one.id == findings::MANIFEST_KIND_IGNORED;
            let ignored: Vec<_> = found
                .iter()
                .filter(ignored)
                .map(|one| &one.subject.name)
                .collect();
            ignored == ["clusters/blue/other.yaml"]
        })
        .await;
    fs::write(blue.join("secrets.yaml"), secret("token", "tw0")).unwrap();
    until("Bearer tw0").await;
    // A value that is no string is reported without the value, and the last valid version stays.
    fs::write(blue.join("secrets.yaml"), secret("token", "83713")).unwrap();
    followed
        .until_problems("the broken Secret", |found| {
            let message = found.iter().find(|one| one.id == findings::MANIFEST_BROKEN);
            let message = message.map(|one| format!("{one:?}"));
            message.is_some_and(|message| {
                message.contains("secrets.yaml:4: stringData.token: must be a string")
                    && !message.contains("83713")
            })
        })
        .await;
    until("Bearer tw0").await;
    fs::remove_file(blue.join("cluster.yaml")).unwrap();
    let mut gone = followed.streams.settings();
    let wait = async {
        while !gone.borrow_and_update().is_empty() {
            gone.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait).await.unwrap();
    followed.stop().await;
}

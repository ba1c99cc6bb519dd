use std::{
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::regular_file::make_fifo;

/// 2026-01-01T00:00:00Z.
const NOW: UnixSeconds = 1_767_225_600;

fn in_folder(path: &Path) -> CaStore {
    CaStore::folder(path.join("ca"), "example.org")
}

/// Secrets of an API server in memory, with resource versions. `race` is written by another client
/// just before the next write.
#[derive(Clone, Default)]
struct TestSecrets(Arc<Mutex<TestState>>);

#[derive(Default)]
struct TestState {
    secrets: BTreeMap<String, Value>,
    version: u64,
    race: Option<Value>,
    writes: usize,
}

impl TestState {
    fn put(&mut self, name: &str, mut secret: Value) -> Value {
        self.version += 1;
        self.writes += 1;
        secret["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.secrets.insert(name.to_owned(), secret.clone());
        secret
    }

    fn answer(&mut self, method: &str, name: &str, body: Value) -> (u16, Value) {
        let error = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "Conflict" };
            let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
                                 "message": "no", "reason": reason, "code": code });
            (code, status)
        };
        if method != "GET"
            && let Some(secret) = self.race.take()
        {
            self.put(name, secret);
        }
        let known = self.secrets.get(name);
        match (method, known) {
            ("GET", Some(secret)) => (200, secret.clone()),
            ("POST", None) => (201, self.put(name, body)),
            ("PUT", Some(known))
                if known["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"] =>
            {
                (200, self.put(name, body))
            }
            ("GET", None) => error(404),
            _ => error(409),
        }
    }
}

impl TestSecrets {
    fn client(&self) -> Client {
        let state = Arc::clone(&self.0);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let state = Arc::clone(&state);
            async move {
                let (head, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let last = head.uri.path().rsplit('/').next().unwrap().to_owned();
                let name = match body["metadata"]["name"].as_str() {
                    Some(name) => name.to_owned(),
                    None => last,
                };
                let (code, answer) = state.lock().unwrap().answer(head.method.as_str(), &name, body);
                let answer = http::Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        Client::new(service, "virtfleet")
    }

    fn store(&self, external: &[(RootKind, String)]) -> CaStore {
        let clients = SecretClients {
            requests: self.client(),
            watches: self.client(),
        };
        CaStore::secret(&clients, "virtfleet", "virtfleet-ca", external, "example.org")
    }

    fn put(&self, name: &str, files: BTreeMap<String, Vec<u8>>) {
        self.0.lock().unwrap().put(name, secret_of(name, files));
    }

    fn data(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let secret = self.0.lock().unwrap().secrets[name].clone();
        secret::data(&serde_json::from_value(secret).unwrap())
    }
}

fn secret_of(name: &str, files: BTreeMap<String, Vec<u8>>) -> Value {
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.to_owned());
    let data = files
        .into_iter()
        .map(|(name, bytes)| (name, k8s_openapi::ByteString(bytes)));
    secret.data = Some(data.collect());
    serde_json::to_value(secret).unwrap()
}

#[tokio::test]
async fn a_folder_is_created_once_and_private() {
    let root = tempfile::tempdir().unwrap();
    let store = in_folder(root.path());
    let first = store.load_or_create(NOW).await.unwrap();
    drop(store);
    let again = in_folder(root.path()).load_or_create(NOW).await.unwrap();
    assert!(first.is_same(&again));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = root.path().join("ca");
    assert_eq!(mode(&folder), 0o700);
    let files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 7, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn a_folder_that_others_may_read_is_restricted() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("ca");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    in_folder(root.path()).load_or_create(NOW).await.unwrap();
    assert_eq!(
        std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[tokio::test]
async fn two_collectors_cannot_use_one_folder() {
    let root = tempfile::tempdir().unwrap();
    let first = in_folder(root.path());
    first.load_or_create(NOW).await.unwrap();
    let second = in_folder(root.path());
    let error = second.load_or_create(NOW).await.unwrap_err();
    assert!(matches!(error, CaStoreError::Locked { .. }), "{error}");
    // The first may read again, e.g. after an error at its start.
    first.load_or_create(NOW).await.unwrap();
    drop(first);
    second.load_or_create(NOW).await.unwrap();
}

/// A key must not be stored beside the certificate of another.
#[tokio::test]
async fn an_interrupted_replacement_is_finished_or_undone() {
    let root = tempfile::tempdir().unwrap();
    let before = in_folder(root.path()).load_or_create(NOW).await.unwrap();
    let after = before.rotate(RootKind::Agents, NOW).unwrap();
    let folder = root.path().join("ca");
    let write_new = |names: &[&str]| {
        for (name, bytes) in after.files() {
            if names.contains(&name.as_str()) {
                std::fs::write(folder.join(format!("{name}.new")), bytes).unwrap();
            }
        }
    };
    // Before all new files were complete: the old state.
    write_new(&["agents.crt"]);
    let read = in_folder(root.path()).load_or_create(NOW).await.unwrap();
    assert!(read.is_same(&before));
    assert!(!folder.join("agents.crt.new").exists());
    // After that, with one file replaced already: the new state.
    write_new(&[
        "agents.key",
        "clients.crt",
        "clients.key",
        "clients-chain.crt",
        "deny",
    ]);
    std::fs::write(folder.join("agents.crt"), &after.files()["agents.crt"]).unwrap();
    std::fs::write(folder.join(".commit"), "").unwrap();
    let read = in_folder(root.path()).load_or_create(NOW).await.unwrap();
    assert!(read.is_same(&after));
    assert!(!folder.join(".commit").exists());
}

/// A FIFO would be waited for, and a symbolic link lead out of the folder.
#[tokio::test]
async fn only_regular_files_are_used_and_others_are_named() {
    for name in [
        "lock",
        "agents.crt",
        "agents.key",
        "clients.crt",
        "clients.key",
        "clients-chain.crt",
        "deny",
    ] {
        let root = tempfile::tempdir().unwrap();
        in_folder(root.path()).load_or_create(NOW).await.unwrap();
        let file = root.path().join("ca").join(name);
        let kept = root.path().join("kept");
        std::fs::rename(&file, &kept).unwrap();
        for is_fifo in [true, false] {
            if is_fifo {
                make_fifo(&file);
            } else {
                std::os::unix::fs::symlink(&kept, &file).unwrap();
            }
            let error = in_folder(root.path()).load_or_create(NOW).await.unwrap_err();
            let CaStoreError::File { path, source, .. } = &error else {
                panic!("{name}: {error}");
            };
            assert_eq!(*path, file);
            assert!(source.to_string().contains("not a regular file"), "{source}");
            std::fs::remove_file(&file).unwrap();
        }
        std::fs::rename(&kept, &file).unwrap();
        in_folder(root.path()).load_or_create(NOW).await.unwrap();
    }
}

#[tokio::test]
async fn a_damaged_authority_is_never_replaced() {
    let root = tempfile::tempdir().unwrap();
    in_folder(root.path()).load_or_create(NOW).await.unwrap();
    let key = root.path().join("ca/agents.key");
    std::fs::remove_file(&key).unwrap();
    let error = in_folder(root.path()).load_or_create(NOW).await.unwrap_err();
    assert!(error.to_string().contains("agents.key is missing"), "{error}");
    assert!(!error.is_transient() && !key.exists());
}

#[tokio::test]
async fn updates_are_stored_and_followed() {
    let root = tempfile::tempdir().unwrap();
    let store = in_folder(root.path());
    let first = store.load_or_create(NOW).await.unwrap();
    let (sender, mut seen) = watch::channel(Arc::new(first));
    let stop = CancellationToken::new();
    let task = tokio::spawn(store.clone().follow(sender, || NOW, stop.clone()));
    let rotated = store
        .update(NOW, |now| now.rotate(RootKind::Clients, NOW))
        .await
        .unwrap();
    soon(seen_as(&mut seen, |now| now.is_same(&rotated))).await;
    // What an admin edits by hand.
    std::fs::write(root.path().join("ca/deny"), "0a1b # worker-3\n").unwrap();
    soon(seen_as(&mut seen, |now| now.denied() == 1)).await;
    stop.cancel();
    task.await.unwrap();
}

async fn seen_as(
    seen: &mut watch::Receiver<Arc<Authorities>>,
    is_so: impl Fn(&Authorities) -> bool,
) -> Result<(), watch::error::RecvError> {
    while !is_so(&seen.borrow_and_update()) {
        seen.changed().await?;
    }
    Ok(())
}

async fn soon<T, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(20), future).await;
    done.expect("in time").unwrap()
}

#[tokio::test]
async fn the_loser_of_a_race_reads_the_winners_authority() {
    let secrets = TestSecrets::default();
    let winner = Authorities::create("example.org", NOW).unwrap();
    secrets.0.lock().unwrap().race = Some(secret_of("virtfleet-ca", winner.files()));
    let read = secrets.store(&[]).load_or_create(NOW).await.unwrap();
    assert!(read.is_same(&winner));
    assert_eq!(secrets.0.lock().unwrap().writes, 1);
}

#[tokio::test]
async fn an_update_keeps_what_another_writer_wrote_meanwhile() {
    let secrets = TestSecrets::default();
    let store = secrets.store(&[]);
    let first = store.load_or_create(NOW).await.unwrap();
    let mut theirs = first.clone();
    theirs.deny("0a".parse().unwrap());
    let mut theirs = theirs.files();
    theirs.insert("note".to_owned(), b"of an admin".to_vec());
    secrets.0.lock().unwrap().race = Some(secret_of("virtfleet-ca", theirs));
    let mut tries = 0;
    let updated = store
        .update(NOW, |now| {
            tries += 1;
            now.rotate(RootKind::Agents, NOW)
        })
        .await
        .unwrap();
    assert_eq!((tries, updated.denied()), (2, 1));
    assert_eq!(updated.roots(RootKind::Agents).len(), 2, "rotated once");
    assert!(store.read(NOW).await.unwrap().is_same(&updated));
    let note = &secrets.data("virtfleet-ca")["note"];
    assert_eq!(note, b"of an admin", "keys of others are kept");
}

#[tokio::test]
async fn a_refused_change_writes_nothing() {
    let secrets = TestSecrets::default();
    let store = secrets.store(&[]);
    store.load_or_create(NOW).await.unwrap();
    for (change, expected) in [
        (
            Box::new(|_: &Authorities| Err(CaError::Random)) as Box<dyn Fn(&_) -> _ + Send>,
            "no random numbers",
        ),
        (
            Box::new(|now: &Authorities| {
                let mut full = now.clone();
                for serial in 1..=10_001 {
                    full.deny(format!("{serial:x}").parse().unwrap());
                }
                Ok(full)
            }),
            "deny:10001: more than 10000 serial numbers",
        ),
    ] {
        let error = store.update(NOW, change).await.unwrap_err().to_string();
        assert!(
            error.starts_with("the Secret virtfleet/virtfleet-ca: ") && error.contains(expected),
            "{error}"
        );
    }
    assert_eq!(secrets.0.lock().unwrap().writes, 1);
}

/// A Secret that was deleted must not become another authority while the collector runs.
#[tokio::test]
async fn only_a_start_creates_an_authority() {
    let secrets = TestSecrets::default();
    let store = secrets.store(&[]);
    for error in [
        store.read(NOW).await.unwrap_err(),
        store.update(NOW, |now| Ok(now.clone())).await.unwrap_err(),
    ] {
        assert!(matches!(error, CaStoreError::Absent { .. }), "{error}");
    }
    assert_eq!(secrets.0.lock().unwrap().writes, 0);
}

#[tokio::test]
async fn secrets_of_cert_manager_are_read_and_never_written() {
    let secrets = TestSecrets::default();
    let store = secrets.store(&[
        (RootKind::Agents, "agents-ca".to_owned()),
        (RootKind::Clients, "clients-ca".to_owned()),
    ]);
    let error = store.load_or_create(NOW).await.unwrap_err().to_string();
    assert!(
        error.starts_with("the Secret virtfleet/agents-ca does not exist"),
        "{error}"
    );
    for (name, of) in [("agents-ca", "agents"), ("clients-ca", "clients")] {
        let other = Authorities::create("example.org", NOW).unwrap().files();
        let files = BTreeMap::from([
            ("tls.crt".to_owned(), other[&format!("{of}.crt")].clone()),
            ("tls.key".to_owned(), other[&format!("{of}.key")].clone()),
        ]);
        secrets.put(name, files);
    }
    let loaded = store.load_or_create(NOW).await.unwrap();
    assert_eq!(
        loaded.owner(RootKind::Agents),
        Some("the Secret virtfleet/agents-ca")
    );
    // The deny list is the collector's own.
    store
        .update(NOW, |now| {
            let mut denied = now.clone();
            denied.deny("0a".parse().unwrap());
            Ok(denied)
        })
        .await
        .unwrap();
    assert_eq!(
        secrets.data("virtfleet-ca").into_keys().collect::<Vec<_>>(),
        ["deny"]
    );
    assert_eq!(secrets.data("agents-ca").len(), 2);
    assert_eq!(store.read(NOW).await.unwrap().denied(), 1);
}

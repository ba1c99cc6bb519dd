//! The authority in a folder.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::CaStoreError;
use crate::regular_file::{open_regular, write_private};

/// Locked by the collector that uses the folder.
const LOCK_FILE: &str = "lock";
/// Exists while new files replace the old ones. They are complete then, and the replacement is
/// finished at the next start.
const COMMIT_FILE: &str = ".commit";
const NEW_SUFFIX: &str = ".new";
/// Names of all files of an authority.
const FILES: [&str; 6] = [
    "agents.crt",
    "agents.key",
    "clients.crt",
    "clients.key",
    "clients-chain.crt",
    "deny",
];
/// Maximum size of a file, in bytes: that of a Secret.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The authority in a folder. Clones share the lock.
#[derive(Debug, Clone)]
pub(super) struct FolderStore {
    folder: PathBuf,
    lock: Arc<Mutex<Option<File>>>,
}

/// Identifies the version of the files without reading them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FolderStamp(Vec<Option<(i64, i64, u64, u64)>>);

impl FolderStore {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            lock: Arc::default(),
        }
    }

    pub(super) fn name(&self) -> String {
        self.folder.display().to_string()
    }

    /// Creates the folder, takes its lock until the process ends, and finishes an interrupted
    /// replacement.
    pub(super) fn lock(&self) -> Result<(), CaStoreError> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(());
        }
        let folder = &self.folder;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| failed("create the folder", folder, source))?;
        // An existing folder, e.g. one that systemd created.
        fs::set_permissions(folder, Permissions::from_mode(0o700))
            .map_err(|source| failed("restrict the folder", folder, source))?;
        let path = folder.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = open_regular(&path, &options).map_err(|source| failed("open", &path, source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(CaStoreError::Locked {
                    folder: folder.clone(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path, source)),
        }
        *held = Some(file);
        self.finish().map_err(|source| failed("write", folder, source))
    }

    pub(super) async fn read(&self) -> Result<BTreeMap<String, Vec<u8>>, CaStoreError> {
        let store = self.clone();
        off_the_runtime(&self.folder, move || store.read_now()).await
    }

    fn read_now(&self) -> Result<BTreeMap<String, Vec<u8>>, CaStoreError> {
        let mut files = BTreeMap::new();
        for name in FILES {
            let path = self.folder.join(name);
            match read_bounded(&path) {
                Ok(bytes) => drop(files.insert(name.to_owned(), bytes)),
                Err(source) if source.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(failed("read", &path, source)),
            }
        }
        Ok(files)
    }

    /// Replaces all files, or none of them: a key must never be stored beside the certificate of
    /// another.
    pub(super) async fn write(&self, files: BTreeMap<String, Vec<u8>>) -> Result<(), CaStoreError> {
        let store = self.clone();
        off_the_runtime(&self.folder, move || {
            store
                .write_now(&files)
                .map_err(|source| failed("write", &store.folder, source))
        })
        .await
    }

    fn write_now(&self, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
        for (name, bytes) in files {
            write_private(&self.folder.join(format!("{name}{NEW_SUFFIX}")), bytes)?;
        }
        sync(&self.folder)?;
        write_private(&self.folder.join(COMMIT_FILE), b"")?;
        sync(&self.folder)?;
        self.finish()
    }

    /// Finishes a replacement whose new files are complete, and removes incomplete ones.
    fn finish(&self) -> io::Result<()> {
        let is_complete = self.folder.join(COMMIT_FILE).try_exists()?;
        for name in FILES {
            let new = self.folder.join(format!("{name}{NEW_SUFFIX}"));
            let done = if is_complete {
                fs::rename(&new, self.folder.join(name))
            } else {
                fs::remove_file(&new)
            };
            match done {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if is_complete {
            sync(&self.folder)?;
            fs::remove_file(self.folder.join(COMMIT_FILE))?;
        }
        sync(&self.folder)
    }

    /// The version of the files.
    pub(super) async fn stamp(&self) -> FolderStamp {
        let folder = self.folder.clone();
        let stamp = move || {
            let stamp = |meta: fs::Metadata| (meta.mtime(), meta.mtime_nsec(), meta.size(), meta.ino());
            let files = FILES.iter();
            files
                .map(|name| fs::metadata(folder.join(name)).ok().map(stamp))
                .collect()
        };
        FolderStamp(tokio::task::spawn_blocking(stamp).await.unwrap_or_default())
    }

    /// Whether new files are replacing the old ones at this moment.
    pub(super) fn is_being_replaced(&self) -> bool {
        self.folder.join(COMMIT_FILE).exists()
    }
}

/// Runs `work` on a blocking thread: a network filesystem may hang.
async fn off_the_runtime<T: Send + 'static>(
    folder: &Path,
    work: impl FnOnce() -> Result<T, CaStoreError> + Send + 'static,
) -> Result<T, CaStoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(failed("access", folder, io::Error::other(error))),
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> CaStoreError {
    CaStoreError::File {
        action,
        path: path.to_owned(),
        source,
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path, OpenOptions::new().read(true))?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other("larger than 1 MiB"));
    }
    Ok(bytes)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

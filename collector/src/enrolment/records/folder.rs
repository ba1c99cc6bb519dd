//! Records in one file, for a collector without a cluster.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::store::{RecordStore, RecordWriteError, StoredShard};
use crate::regular_file::{open_regular, write_private};

const FILE: &str = "enrolments.json";
/// Maximum size of the file: [`virtfleet_collector_core::enrolment::MAX_RECORDS`] with long names.
const MAX_FILE_BYTES: u64 = 128 * 1024 * 1024;

/// Records in `enrolments.json` of the authority's folder. One process at a time uses them: a
/// collector without the folder's lock has no authority, so it records nothing.
#[derive(Debug, Clone)]
pub struct FolderRecords(Arc<RecordsFolder>);

#[derive(Debug)]
struct RecordsFolder {
    path: PathBuf,
}

/// Identifies the version of a file without reading it.
pub(super) type FileVersion = (i64, i64, u64, u64);

impl FolderRecords {
    /// Records in this folder, which is created when the first record is written.
    pub fn new(folder: &Path) -> Self {
        Self(Arc::new(RecordsFolder {
            path: folder.to_owned(),
        }))
    }
}

impl RecordStore for FolderRecords {
    type Version = FileVersion;

    fn shards(&self) -> usize {
        1
    }

    async fn read(&self, _shard: Option<usize>) -> Result<Vec<StoredShard<FileVersion>>, String> {
        let folder = Arc::clone(&self.0);
        let read = tokio::task::spawn_blocking(move || folder.read()).await;
        let stored = read.map_err(|error| error.to_string())??;
        Ok(vec![StoredShard { shard: 0, stored }])
    }

    async fn write(
        &self,
        _shard: usize,
        json: String,
        over: Option<&FileVersion>,
    ) -> Result<FileVersion, RecordWriteError> {
        let (folder, over) = (Arc::clone(&self.0), over.copied());
        let written = tokio::task::spawn_blocking(move || folder.write(&json, over)).await;
        written.map_err(|error| RecordWriteError::Failed(error.to_string()))?
    }
}

impl RecordsFolder {
    fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    fn version(&self) -> io::Result<Option<FileVersion>> {
        match fs::metadata(self.file()) {
            Ok(meta) => Ok(Some((meta.mtime(), meta.mtime_nsec(), meta.size(), meta.ino()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self) -> Result<Option<(String, FileVersion)>, String> {
        let failed = |error: io::Error| format!("cannot read {}: {error}", self.file().display());
        let Some(version) = self.version().map_err(failed)? else {
            return Ok(None);
        };
        if version.2 > MAX_FILE_BYTES {
            return Err(format!(
                "{} has {} bytes, more than {MAX_FILE_BYTES}",
                self.file().display(),
                version.2
            ));
        }
        let mut json = String::new();
        let mut file = open_regular(&self.file(), OpenOptions::new().read(true)).map_err(failed)?;
        file.read_to_string(&mut json).map_err(failed)?;
        Ok(Some((json, version)))
    }

    fn write(&self, json: &str, over: Option<FileVersion>) -> Result<FileVersion, RecordWriteError> {
        let failed = |error: io::Error| {
            RecordWriteError::Failed(format!("cannot write {}: {error}", self.file().display()))
        };
        fs::create_dir_all(&self.path).map_err(failed)?;
        if self.version().map_err(failed)? != over {
            return Err(RecordWriteError::Conflict);
        }
        self.replace(json).map_err(failed)?;
        self.version()
            .map_err(failed)?
            .ok_or_else(|| RecordWriteError::Failed(format!("{} is gone", self.file().display())))
    }

    /// Writes a temporary file and renames it. A crash leaves the old file or the new one.
    fn replace(&self, json: &str) -> io::Result<()> {
        let new = self.path.join(format!(".{FILE}.new"));
        write_private(&new, json.as_bytes())?;
        fs::rename(&new, self.file())?;
        File::open(&self.path)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::regular_file::make_fifo;

    #[tokio::test]
    async fn a_fifo_in_place_of_the_file_is_an_error_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderRecords::new(folder.path());
        // What a crash left is replaced.
        make_fifo(&folder.path().join(format!(".{FILE}.new")));
        let version = store.write(0, "a".to_owned(), None).await.unwrap();
        let file = folder.path().join(FILE);
        fs::remove_file(&file).unwrap();
        make_fifo(&file);
        let error = store.read(None).await.unwrap_err();
        assert!(
            error.contains(&file.display().to_string()) && error.contains("not a regular file"),
            "{error}"
        );
        let written = store.write(0, "b".to_owned(), Some(&version)).await;
        assert_eq!(written, Err(RecordWriteError::Conflict));
    }

    #[tokio::test]
    async fn a_file_is_replaced_only_in_the_version_that_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderRecords::new(&folder.path().join("ca"));
        let read = store.read(None).await.unwrap();
        assert_eq!(
            read,
            [StoredShard {
                shard: 0,
                stored: None
            }]
        );
        let first = store.write(0, "a".to_owned(), None).await.unwrap();
        assert_eq!(
            store.write(0, "b".to_owned(), None).await,
            Err(RecordWriteError::Conflict)
        );
        let file = folder.path().join("ca").join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        // An admin edits the file.
        fs::write(&file, "edited").unwrap();
        assert_eq!(
            store.write(0, "b".to_owned(), Some(&first)).await,
            Err(RecordWriteError::Conflict)
        );
        let [read] = store.read(Some(0)).await.unwrap().try_into().unwrap();
        let (json, version) = read.stored.unwrap();
        assert_eq!(json, "edited");
        store.write(0, "b".to_owned(), Some(&version)).await.unwrap();
    }
}

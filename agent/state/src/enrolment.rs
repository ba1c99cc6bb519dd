//! Files of the enrolment: the agent's key, its certificate, and the record beside them. The
//! unprivileged agent writes them, into a directory of its own (`StateDirectory=` of its unit).

use std::{
    env,
    ffi::OsString,
    fmt,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use virtfleet_agent_core::enrolment::record::{FORMAT, KeyRecord};
use virtfleet_agent_host::{
    Kernel, ReadError, Roots, Statfs as _, WriteError, make_private_directory, read_bounded, read_text,
    remove_durably, sweep_directory, write_atomic,
};
use zeroize::Zeroizing;

/// The directory, by its path in the guest.
pub const ENROLMENT_DIRECTORY: &str = "/var/lib/virtfleet-agent";

/// The private key, PKCS #8 in DER.
const KEY: &str = "key.der";
/// The certificate and its chain, in PEM.
const CERTIFICATE: &str = "certificate.pem";
/// The record, JSON.
const RECORD: &str = "enrolment.json";
/// Maximum size of each file, in bytes.
const MAX_FILE_BYTES: usize = 256 * 1024;
/// All files are for their owner alone.
const MODE: u32 = 0o600;

#[derive(Debug, Clone)]
pub struct EnrolmentFiles {
    directory: PathBuf,
    /// Its path in the guest, for messages.
    shown: String,
}

#[derive(Debug)]
pub struct StoredEnrolment {
    /// The private key, PKCS #8 in DER.
    pub key: Zeroizing<Vec<u8>>,
    /// The record; an empty one if its file is missing or cannot be used.
    pub record: KeyRecord,
    /// The certificate and its chain, in PEM.
    pub certificate: Option<String>,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentFilesError {
    #[error("cannot create {path}: {source}")]
    Directory {
        /// The directory in the guest.
        path: String,
        source: std::io::Error,
    },
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file in the guest.
        path: String,
        source: ReadError,
    },
    #[error("{}", with_cause(.0))]
    Write(#[from] WriteError),
    #[error("cannot remove {path}: {source}")]
    Remove {
        /// The file in the guest.
        path: String,
        source: std::io::Error,
    },
    #[error("cannot encode {RECORD}: {0}")]
    Encode(#[from] serde_json::Error),
}

impl EnrolmentFilesError {
    /// True if a retry may succeed: the device is full, a write failed, or a stored file cannot be
    /// read. False if there is no directory and none can be created.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Directory { source, .. } => is_shortage(source.kind()),
            Self::Read { .. } | Self::Write(_) | Self::Remove { .. } | Self::Encode(_) => true,
        }
    }

    /// True if the filesystem is read-only.
    pub fn is_read_only(&self) -> bool {
        let kind = match self {
            Self::Directory { source, .. } | Self::Remove { source, .. } => source.kind(),
            Self::Write(error) => error.kind(),
            Self::Read { .. } | Self::Encode(_) => return false,
        };
        kind == ErrorKind::ReadOnlyFilesystem
    }
}

fn is_shortage(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn with_cause(error: &WriteError) -> String {
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
    format!("{error}{cause}")
}

impl EnrolmentFiles {
    /// The files below these roots, or in `$STATE_DIRECTORY`, which systemd sets to the unit's
    /// directory. Nothing is read or created.
    pub fn new(roots: &Roots) -> Self {
        Self::within(roots, env::var_os("STATE_DIRECTORY"))
    }

    fn within(roots: &Roots, state_directory: Option<OsString>) -> Self {
        // The variable is about this machine, not about a root filesystem elsewhere.
        let own = state_directory.map(PathBuf::from);
        let own = own.filter(|path| path.is_absolute() && roots.rootfs == Path::new("/"));
        let shown = own.unwrap_or_else(|| ENROLMENT_DIRECTORY.into());
        Self {
            directory: roots.root(&shown),
            shown: shown.display().to_string(),
        }
    }

    /// Creates the directory if it is missing, and removes temporary files that a killed agent
    /// left.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn prepare(&self) -> Result<(), EnrolmentFilesError> {
        make_private_directory(&self.directory).map_err(|source| EnrolmentFilesError::Directory {
            path: self.shown.clone(),
            source,
        })?;
        sweep_directory(&self.directory);
        Ok(())
    }

    /// Why the directory has no space for files. None if it has, or if that is unknown.
    pub fn shortage(&self) -> Option<String> {
        let space = Kernel.statfs(&self.directory).ok()?;
        // A filesystem without a fixed number of inodes has none (btrfs).
        let missing = if space.available == 0 && space.size > 0 {
            "space"
        } else if space.files_free == 0 && space.files > 0 {
            "inode"
        } else {
            return None;
        };
        Some(format!(
            "no {missing} is free on the filesystem of {ENROLMENT_DIRECTORY}"
        ))
    }

    /// Reads all files; none if there is no key.
    ///
    /// # Errors
    /// A file exists and cannot be read.
    pub fn read(&self) -> Result<Option<StoredEnrolment>, EnrolmentFilesError> {
        let key = self.present(KEY, read_bounded(&self.directory.join(KEY), MAX_FILE_BYTES))?;
        let Some(key) = key else {
            return Ok(None);
        };
        let text = |name| self.present(name, read_text(&self.directory.join(name), MAX_FILE_BYTES));
        let record = text(RECORD)?
            .and_then(|json| serde_json::from_str(&json).ok())
            .filter(|record: &KeyRecord| record.v == FORMAT);
        Ok(Some(StoredEnrolment {
            key: Zeroizing::new(key),
            record: record.unwrap_or_default(),
            certificate: text(CERTIFICATE)?,
        }))
    }

    /// Replaces the key and the record, and removes the certificate of the key before. If it is
    /// interrupted, the certificate is gone, or the record still names the machine of the key
    /// before.
    ///
    /// # Errors
    /// A file cannot be written or removed.
    pub fn write_key(&self, pkcs8: &[u8], record: &KeyRecord) -> Result<(), EnrolmentFilesError> {
        remove_durably(&self.directory.join(CERTIFICATE)).map_err(|source| EnrolmentFilesError::Remove {
            path: format!("{}/{CERTIFICATE}", self.shown),
            source,
        })?;
        write_atomic(&self.directory.join(KEY), pkcs8, MODE, None)?;
        self.write_record(record)
    }

    /// Replaces the certificate and the record.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_certificate(&self, pem: &str, record: &KeyRecord) -> Result<(), EnrolmentFilesError> {
        self.write_record(record)?;
        write_atomic(&self.directory.join(CERTIFICATE), pem.as_bytes(), MODE, None)?;
        Ok(())
    }

    /// Replaces the record.
    ///
    /// # Errors
    /// It cannot be encoded or written.
    pub fn write_record(&self, record: &KeyRecord) -> Result<(), EnrolmentFilesError> {
        let mut json = serde_json::to_vec(record)?;
        json.push(b'\n');
        write_atomic(&self.directory.join(RECORD), &json, MODE, None)?;
        Ok(())
    }

    /// The content; none if there is no such file.
    fn present<T>(&self, name: &str, read: Result<T, ReadError>) -> Result<Option<T>, EnrolmentFilesError> {
        match read {
            Ok(content) => Ok(Some(content)),
            Err(ReadError::Missing) => Ok(None),
            Err(source) => Err(EnrolmentFilesError::Read {
                path: format!("{}/{name}", self.shown),
                source,
            }),
        }
    }
}

impl fmt::Display for EnrolmentFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _};

    use super::*;

    fn files() -> (tempfile::TempDir, EnrolmentFiles) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            ..Roots::default()
        };
        let files = EnrolmentFiles::new(&roots);
        files.prepare().unwrap();
        (dir, files)
    }

    #[test]
    fn the_directory_of_the_unit_is_used_and_named_in_errors() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        let of = |rootfs: &str, variable: &str| {
            let rootfs = rootfs.into();
            EnrolmentFiles::within(
                &Roots {
                    rootfs,
                    ..Roots::default()
                },
                Some(variable.into()),
            )
        };
        let files = of("/", &own.to_string_lossy());
        files.prepare().unwrap();
        files.write_key(b"key", &record("a")).unwrap();
        assert!(own.join(KEY).is_file());
        fs::remove_file(own.join(KEY)).unwrap();
        fs::create_dir(own.join(KEY)).unwrap();
        let error = files.read().unwrap_err().to_string();
        assert!(error.contains(&own.join(KEY).display().to_string()), "{error}");
        for (rootfs, variable) in [("/mnt", "/srv/state"), ("/", ""), ("/", "state")] {
            let files = of(rootfs, variable);
            assert_eq!(files.to_string(), ENROLMENT_DIRECTORY, "{rootfs} {variable:?}");
        }
    }

    fn record(uuid: &str) -> KeyRecord {
        KeyRecord::of_new_key(Some(uuid.to_owned()), 1, None)
    }

    #[test]
    fn everything_is_private_and_a_new_key_has_no_certificate() {
        let (_dir, files) = files();
        assert!(files.read().unwrap().is_none());
        files.write_key(b"key 1", &record("a")).unwrap();
        files.write_certificate("pem", &record("a")).unwrap();
        let stored = files.read().unwrap().unwrap();
        assert_eq!(
            (stored.key.as_slice(), stored.record),
            (&b"key 1"[..], record("a"))
        );
        assert_eq!(stored.certificate.as_deref(), Some("pem"));
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&files.directory), 0o700);
        for entry in fs::read_dir(&files.directory).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
        files.write_key(b"key 2", &record("b")).unwrap();
        let stored = files.read().unwrap().unwrap();
        assert_eq!(
            (stored.certificate, stored.record.smbios_uuid.as_deref()),
            (None, Some("b"))
        );
    }

    #[test]
    fn an_unusable_record_is_empty_and_an_unreadable_file_is_an_error() {
        let (_dir, files) = files();
        files.write_key(b"key", &record("a")).unwrap();
        for text in ["{", r#"{"v":9,"smbiosUuid":"a"}"#] {
            fs::write(files.directory.join(RECORD), text).unwrap();
            assert_eq!(files.read().unwrap().unwrap().record, KeyRecord::default());
        }
        fs::write(files.directory.join(KEY), vec![0; MAX_FILE_BYTES + 1]).unwrap();
        let error = files.read().unwrap_err().to_string();
        assert!(
            error.contains("/var/lib/virtfleet-agent/key.der: larger"),
            "{error}"
        );
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("var/lib")).unwrap();
        fs::write(dir.path().join("var/lib/virtfleet-agent"), "").unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            ..Roots::default()
        };
        let error = EnrolmentFiles::new(&roots).prepare().unwrap_err().to_string();
        assert!(
            error.starts_with("cannot create /var/lib/virtfleet-agent: "),
            "{error}"
        );
    }
}

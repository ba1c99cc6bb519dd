//! The key of pseudonyms.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use virtfleet_collector_core::access::redact::KeyedHash;

/// Minimum size of a key.
const MIN_KEY_BYTES: usize = 32;
/// Maximum size of a key.
const MAX_KEY_BYTES: u64 = 4096;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum PseudonymKeyError {
    #[error("cannot read {}", file.display())]
    Read { file: PathBuf, source: io::Error },
    /// The file is too short or too long.
    #[error("{} has {bytes} bytes; a key has {MIN_KEY_BYTES} to {MAX_KEY_BYTES}", file.display())]
    Size { file: PathBuf, bytes: usize },
    #[error("the kernel returns no random bytes")]
    Random,
}

/// A keyed hash with the key in `file`, else with a random key.
///
/// # Errors
/// The file cannot be used, or there are no random bytes.
pub fn keyed_hash(file: Option<&Path>) -> Result<KeyedHash, PseudonymKeyError> {
    let key = match file {
        Some(file) => read(file),
        None => random(),
    }?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    Ok(Arc::new(move |text: &str| {
        let tag = hmac::sign(&key, text.as_bytes());
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&tag.as_ref()[..8]);
        bytes
    }))
}

fn random() -> Result<Vec<u8>, PseudonymKeyError> {
    let mut key = vec![0; MIN_KEY_BYTES];
    let filled = SystemRandom::new().fill(&mut key);
    filled.map_err(|_| PseudonymKeyError::Random)?;
    Ok(key)
}

fn read(file: &Path) -> Result<Vec<u8>, PseudonymKeyError> {
    let failed = |source| PseudonymKeyError::Read {
        file: file.to_owned(),
        source,
    };
    let mut key = Vec::new();
    let opened = fs::File::open(file).map_err(failed)?;
    opened
        .take(MAX_KEY_BYTES + 1)
        .read_to_end(&mut key)
        .map_err(failed)?;
    if key.len() < MIN_KEY_BYTES || key.len() as u64 > MAX_KEY_BYTES {
        return Err(PseudonymKeyError::Size {
            file: file.to_owned(),
            bytes: key.len(),
        });
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pseudonyms_depend_on_the_key() {
        let (one, other) = (keyed_hash(None).unwrap(), keyed_hash(None).unwrap());
        assert_eq!(one("infra-1"), one("infra-1"));
        assert_ne!(one("infra-1"), one("infra-2"));
        assert_ne!(one("infra-1"), other("infra-1"), "a random key for each start");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, [7; MIN_KEY_BYTES]).unwrap();
        let shared = || keyed_hash(Some(&file)).unwrap();
        assert_eq!(shared()("infra-1"), shared()("infra-1"), "replicas share a key");
        fs::write(&file, "short").unwrap();
        assert!(matches!(
            keyed_hash(Some(&file)),
            Err(PseudonymKeyError::Size { bytes: 5, .. })
        ));
        fs::remove_file(&file).unwrap();
        assert!(matches!(
            keyed_hash(Some(&file)),
            Err(PseudonymKeyError::Read { .. })
        ));
    }
}

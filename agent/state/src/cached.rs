//! A state file that is parsed again only when it has changed, for scrapes.

use virtfleet_agent_host::{Reread, RereadError, Roots, Stamped};

use crate::file::{StateError, StateFile, StateRecord};

/// The record of a [`StateFile`] in this boot, cached until the file changes.
#[derive(Debug)]
pub struct CachedState<T: 'static> {
    definition: &'static StateFile<T>,
    /// No record if the file is of another boot.
    file: Stamped<Result<Option<T>, String>>,
    boot_id: Reread,
}

/// Why the record is unknown.
#[derive(Debug, thiserror::Error)]
pub enum CachedStateError {
    /// The file, or the boot id, cannot be read.
    #[error(transparent)]
    Read(#[from] RereadError),
    #[error("{path}: {reason}")]
    Unusable {
        /// Path of the file in the guest.
        path: &'static str,
        /// The reason, from [`StateError`].
        reason: String,
    },
}

impl<T: StateRecord> CachedState<T> {
    /// Creates the cache. No file is read before the first [`CachedState::get`].
    pub fn new(roots: &Roots, definition: &'static StateFile<T>) -> Self {
        Self {
            definition,
            file: Stamped::new(roots.root(definition.path)),
            boot_id: Reread::new(roots.proc("sys/kernel/random/boot_id")).single_record(),
        }
    }

    /// The record of this boot. `None` if the file is missing or of another boot: root has not
    /// reconciled in this boot.
    ///
    /// # Errors
    /// The file cannot be read or parsed, or the boot id cannot be read. The next call tries again.
    pub fn get(&mut self) -> Result<Option<&T>, CachedStateError> {
        let mut unknown = None;
        let read = self.file.get(|bytes| match self.boot_id.text() {
            Ok(boot_id) => match self.definition.parse(bytes, boot_id.trim()) {
                Ok(record) => Ok(Some(record)),
                Err(StateError::OtherBoot) => Ok(None),
                Err(error) => Err(error.to_string()),
            },
            Err(error) => {
                unknown = Some(error);
                Ok(None)
            }
        });
        match read {
            Err(error) if error.is_missing() => return Ok(None),
            done => drop(done?),
        }
        if let Some(error) = unknown {
            self.file.forget();
            return Err(error.into());
        }
        match self.file.held() {
            Some(Ok(record)) => Ok(record.as_ref()),
            Some(Err(reason)) => Err(CachedStateError::Unusable {
                path: self.definition.path,
                reason: reason.clone(),
            }),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_agent_core::guest::health::GuestHealth;

    use super::*;
    use crate::GUEST_HEALTH as FILE;

    fn roots() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            procfs: dir.path().into(),
            rootfs: dir.path().into(),
            ..Roots::default()
        };
        (dir, roots)
    }

    fn write(path: &std::path::Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn health(boot_id: &str) -> GuestHealth {
        GuestHealth {
            v: virtfleet_agent_core::guest::health::FORMAT,
            boot_id: boot_id.to_owned(),
            at_ns: 7,
            ..GuestHealth::default()
        }
    }

    fn get(state: &mut CachedState<GuestHealth>) -> Result<Option<u64>, String> {
        let found = state.get().map_err(|error| error.to_string())?;
        Ok(found.map(|health| health.at_ns))
    }

    #[test]
    fn an_unreadable_boot_id_is_read_again() {
        let (_dir, roots) = roots();
        let mut state = CachedState::new(&roots, &FILE);
        assert_eq!(get(&mut state), Ok(None), "neither is there");
        write(
            &roots.root(FILE.path),
            &serde_json::to_string(&health("b1")).unwrap(),
        );
        let error = get(&mut state).unwrap_err();
        assert!(error.contains("random/boot_id"), "{error}");
        write(&roots.proc("sys/kernel/random/boot_id"), "b1\n");
        assert_eq!(get(&mut state), Ok(Some(7)));
        assert_eq!(get(&mut state), Ok(Some(7)));
    }

    #[test]
    fn a_file_of_another_boot_is_no_state_and_malformed_json_is_an_error() {
        let (_dir, roots) = roots();
        write(&roots.proc("sys/kernel/random/boot_id"), "b2\n");
        let file = roots.root(FILE.path);
        write(&file, &serde_json::to_string(&health("b1")).unwrap());
        let mut state = CachedState::new(&roots, &FILE);
        assert_eq!(get(&mut state), Ok(None));
        write(&file, "x");
        for _ in 0..2 {
            let error = get(&mut state).unwrap_err();
            assert!(
                error.starts_with("/run/virtfleet/state/guest-health.json: not a state"),
                "{error}"
            );
        }
    }
}

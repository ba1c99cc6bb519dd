//! A state that root's passes leave in a file, as it is in this boot; for collectors.

use super::CollectError;
use crate::host::{Reread, Roots, Stamped};

/// The file, and which boot this is.
#[derive(Debug)]
pub(super) struct PassState<T> {
    path: &'static str,
    /// None when it is of another boot.
    file: Stamped<Result<Option<T>, String>>,
    boot_id: Reread,
}

impl<T> PassState<T> {
    /// Of the file `path` in the guest. Nothing is read before the first [`PassState::get`].
    pub(super) fn new(roots: &Roots, path: &'static str) -> Self {
        Self {
            path,
            file: Stamped::new(roots.root(path)),
            boot_id: Reread::new(roots.proc("sys/kernel/random/boot_id")).made_at_once(),
        }
    }

    /// The state, which `parse` makes of the file's content and the boot's id when the file has changed. None when it is of another boot, and
    /// where root's passes do not run, which is no fault.
    ///
    /// Errors: the file cannot be read or understood; the boot's id cannot be read, and then it is asked for again the next time.
    pub(super) fn get(
        &mut self,
        parse: impl FnOnce(&[u8], &str) -> Result<Option<T>, String>,
    ) -> Result<Option<&T>, CollectError> {
        let mut unknown = None;
        let read = self.file.get(|bytes| match self.boot_id.text() {
            Ok(boot_id) => parse(bytes, boot_id.trim()),
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
            Some(Ok(state)) => Ok(state.as_ref()),
            Some(Err(error)) => Err(CollectError::failed(format!("{}: {error}", self.path))),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const STATE: &str = "/run/state.json";

    fn get(state: &mut PassState<String>) -> Result<Option<String>, String> {
        let parse = |bytes: &[u8], boot_id: &str| match str::from_utf8(bytes).unwrap().split_once(' ') {
            Some((boot, rest)) => Ok((boot == boot_id).then(|| rest.to_owned())),
            None => Err("nonsense".to_owned()),
        };
        let found = state.get(parse).map_err(|error| error.to_string())?;
        Ok(found.cloned())
    }

    #[test]
    fn a_boot_id_that_could_not_be_read_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            procfs: dir.path().into(),
            rootfs: dir.path().into(),
            ..Roots::default()
        };
        let mut state = PassState::new(&roots, STATE);
        assert_eq!(get(&mut state), Ok(None), "neither is there");
        fs::create_dir_all(dir.path().join("run")).unwrap();
        fs::write(dir.path().join("run/state.json"), "b1 here").unwrap();
        let error = get(&mut state).unwrap_err();
        assert!(error.contains("random/boot_id"), "{error}");
        fs::create_dir_all(dir.path().join("sys/kernel/random")).unwrap();
        fs::write(dir.path().join("sys/kernel/random/boot_id"), "b1\n").unwrap();
        assert_eq!(get(&mut state), Ok(Some("here".to_owned())));
        assert_eq!(get(&mut state), Ok(Some("here".to_owned())));
    }

    #[test]
    fn another_boot_has_no_state_and_nonsense_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            procfs: dir.path().into(),
            rootfs: dir.path().into(),
            ..Roots::default()
        };
        fs::create_dir_all(dir.path().join("sys/kernel/random")).unwrap();
        fs::write(dir.path().join("sys/kernel/random/boot_id"), "b2\n").unwrap();
        fs::create_dir_all(dir.path().join("run")).unwrap();
        let file = dir.path().join("run/state.json");
        fs::write(&file, "b1 here").unwrap();
        let mut state = PassState::new(&roots, STATE);
        assert_eq!(get(&mut state), Ok(None));
        fs::write(&file, "x").unwrap();
        for _ in 0..2 {
            assert_eq!(get(&mut state), Err("/run/state.json: nonsense".to_owned()));
        }
    }
}

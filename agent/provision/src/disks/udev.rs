//! Tells udev of the agent's own filesystem, in use, on a device that udev's blkid does not
//! identify as such: without its UUID, systemd never starts the unit that mounts it.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use virtfleet_agent_host::{Commands, JournalError, JournalStore, Roots, disks::own_filesystem};

/// Timeout of listing the signatures: udev waits for it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why the content of a device is unknown.
#[derive(Debug, thiserror::Error)]
pub enum UdevError {
    #[error("cannot tell whether the agent uses {}", device.display())]
    Journal { device: PathBuf, source: JournalError },
    #[error("cannot read the superblock of {}", device.display())]
    Read { device: PathBuf, source: io::Error },
}

/// Properties of a device that holds the agent's own filesystem, as udev's blkid would set them:
/// `KEY=value` lines. Empty for any other device, if the journal is not there (yet), and if
/// something else on the device is not proven to be the data of a file. `found` are the kinds that
/// udev's blkid has reported ([`udev_kinds`]).
///
/// It takes no lock: udev holds one.
///
/// # Errors
/// The journal or the device cannot be read.
pub fn udev_properties(
    roots: &Roots,
    commands: &dyn Commands,
    device: &Path,
    found: &[String],
) -> Result<String, UdevError> {
    let of_journal = |source| UdevError::Journal {
        device: device.to_owned(),
        source,
    };
    let Some(store) = JournalStore::existing(roots).map_err(of_journal)? else {
        return Ok(String::new());
    };
    let entries = store.load().map_err(of_journal)?.entries;
    if entries.is_empty() {
        return Ok(String::new());
    }
    let own =
        own_filesystem(commands, device, &entries, found, TIMEOUT).map_err(|source| UdevError::Read {
            device: device.to_owned(),
            source,
        })?;
    let superblock = own.as_ref().and_then(|own| own.proven());
    let Some((superblock, uuid)) = superblock.and_then(|own| Some((own, own.uuid.as_ref()?))) else {
        return Ok(String::new());
    };
    let (kind, usage) = match superblock.kind.as_str() {
        "swap" => ("swap", "other"),
        kind => (kind, "filesystem"),
    };
    // A UUID has no characters that udev would encode.
    Ok(format!(
        "ID_FS_TYPE={kind}\nID_FS_USAGE={usage}\nID_FS_UUID={uuid}\nID_FS_UUID_ENC={uuid}\n"
    ))
}

/// Kinds that udev's blkid has reported for a device, from the properties of its event, which udev
/// passes to a program as its environment.
///
/// A partition inherits the kind of the partition table from its disk: that is not on the
/// partition.
pub fn udev_kinds(property: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let is_partition = property("DEVTYPE").as_deref() == Some("partition");
    let table = property("ID_PART_TABLE_TYPE").filter(|_| !is_partition);
    let kinds = [property("ID_FS_TYPE"), table];
    kinds
        .into_iter()
        .flatten()
        .filter(|kind| !kind.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(properties: &[(&str, &str)]) -> Vec<String> {
        udev_kinds(|name| {
            let found = properties.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn kinds_of_an_event_are_those_on_the_device() {
        assert!(kinds(&[]).is_empty());
        assert!(kinds(&[("DEVTYPE", "disk"), ("ID_FS_TYPE", "")]).is_empty());
        let found = [("ID_FS_TYPE", "crypto_LUKS"), ("ID_PART_TABLE_TYPE", "sun")];
        for (device, expected) in [
            ("disk", &["crypto_LUKS", "sun"][..]),
            ("partition", &["crypto_LUKS"]),
        ] {
            let properties = [found[0], found[1], ("DEVTYPE", device)];
            assert_eq!(kinds(&properties), expected, "{device}");
        }
    }
}

//! udev's properties of a block device that `diskstats` exports.

use virtfleet_agent_core::procfs::udev::properties;

/// Properties by name; empty without udev data.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Udev(Vec<(&'static str, String)>);

/// The required properties.
const KEYS: [&str; 20] = [
    "DM_LV_LAYER",
    "DM_LV_NAME",
    "DM_NAME",
    "DM_UUID",
    "DM_VG_NAME",
    "ID_ATA",
    "ID_ATA_ROTATION_RATE_RPM",
    "ID_ATA_WRITE_CACHE",
    "ID_ATA_WRITE_CACHE_ENABLED",
    "ID_FS_TYPE",
    "ID_FS_USAGE",
    "ID_FS_UUID",
    "ID_FS_VERSION",
    "ID_MODEL",
    "ID_PATH",
    "ID_REVISION",
    "ID_SERIAL",
    "ID_SERIAL_SHORT",
    "ID_WWN",
    "SCSI_IDENT_SERIAL",
];

impl Udev {
    /// Without udev data.
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }

    /// Parses a file of udev's database.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut known: Vec<(&'static str, String)> = Vec::new();
        for (key, value) in properties(&text) {
            if let Some(key) = KEYS.iter().find(|wanted| **wanted == key) {
                known.retain(|(other, _)| other != key);
                known.push((key, value.to_owned()));
            }
        }
        Self(known)
    }

    /// Value of a property, if set.
    pub(super) fn find(&self, key: &str) -> Option<&str> {
        debug_assert!(KEYS.contains(&key), "{key} is not in KEYS");
        let found = self.0.iter().find(|(other, _)| *other == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Value of a property, or an empty string.
    pub(super) fn get(&self, key: &str) -> &str {
        self.find(key).unwrap_or_default()
    }

    /// The serial number: the printed one if udev has it, else the short one, else the one of
    /// virtio disks.
    pub(super) fn serial(&self) -> &str {
        ["SCSI_IDENT_SERIAL", "ID_SERIAL_SHORT", "ID_SERIAL"]
            .into_iter()
            .map(|key| self.get(key))
            .find(|serial| !serial.is_empty())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_selected_in_order_of_precedence() {
        let serial = |text: &str| Udev::parse(text.as_bytes()).serial().to_owned();
        assert_eq!(serial("E:ID_SERIAL=virtio"), "virtio");
        assert_eq!(serial("E:ID_SERIAL=a\nE:ID_SERIAL_SHORT=b\n"), "b");
        assert_eq!(
            serial("E:ID_SERIAL=a\nE:SCSI_IDENT_SERIAL=c\nE:ID_SERIAL_SHORT=\n"),
            "c"
        );
        assert_eq!(serial("E:ID_PATH=x"), "");
        assert_eq!(Udev::parse(b"\xff\xfe\0"), Udev::default());
    }
}

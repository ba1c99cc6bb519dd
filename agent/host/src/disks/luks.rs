//! Open LUKS containers of the agent, from device mapper's attributes in sysfs.

use std::{fs, path::PathBuf};

use virtfleet_agent_core::disks::DevNumber;

use super::{
    Disks,
    facts::{block, dev_number, line, number},
};
use crate::list;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenContainer {
    /// Its name in `/dev/mapper`.
    pub mapping: String,
    /// The kernel's name, e.g. `dm-0`.
    pub name: String,
    pub number: DevNumber,
    /// The LUKS header's UUID, in lower case with hyphens.
    pub luks_uuid: String,
    /// Size in bytes.
    pub size: u64,
    /// The kernel's names of the underlying devices.
    pub below: Vec<String>,
}

impl Disks<'_> {
    /// Open LUKS2 containers whose name in `/dev/mapper` starts with `prefix`.
    pub fn containers(&self, prefix: &str) -> Vec<OpenContainer> {
        let names = list(&self.roots.sys("block")).unwrap_or_default();
        names
            .into_iter()
            .filter(|name| name.starts_with("dm-"))
            .filter_map(|name| {
                let folder = block(self.roots, &name);
                let mapping = line(&folder.join("dm/name")).filter(|mapping| mapping.starts_with(prefix))?;
                // Format by cryptsetup: `CRYPT-LUKS2-<UUID without hyphens>-<mapping>`.
                let uuid = line(&folder.join("dm/uuid"))?;
                let digits = uuid.strip_prefix("CRYPT-LUKS2-")?.split('-').next()?.to_owned();
                Some(OpenContainer {
                    luks_uuid: hyphens(&digits)?,
                    number: dev_number(&line(&folder.join("dev"))?)?,
                    size: number(&folder.join("size"))?.checked_mul(512)?,
                    below: list(&folder.join("slaves")).unwrap_or_default(),
                    mapping,
                    name,
                })
            })
            .collect()
    }

    pub fn mapping_node(&self, mapping: &str) -> PathBuf {
        let path = self.roots.root("/dev/mapper").join(mapping);
        fs::canonicalize(&path).unwrap_or(path)
    }
}

fn hyphens(digits: &str) -> Option<String> {
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let digits = digits.to_ascii_lowercase();
    Some(
        [
            &digits[..8],
            &digits[8..12],
            &digits[12..16],
            &digits[16..20],
            &digits[20..],
        ]
        .join("-"),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_uuid_has_the_format_of_blkid() {
        assert_eq!(
            super::hyphens("0123456789ABCDEF0123456789abcdef").as_deref(),
            Some("01234567-89ab-cdef-0123-456789abcdef")
        );
        assert_eq!(super::hyphens("0123"), None);
    }
}

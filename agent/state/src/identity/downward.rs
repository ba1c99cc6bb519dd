//! The infra node's name from KubeVirt's downwardMetrics disk: a read-only virtio disk of 256 KiB.
//!
//! An unprivileged agent can read it only if udev gives the agent's group access; otherwise the
//! field is reported as missing. The virtio-serial channel is not opened: it allows one opener at a
//! time, and another program may use it.

use virtfleet_agent_core::identity::downward::{self, DISK_BYTES, NoMetrics};
use virtfleet_agent_host::{list, read_device};
use virtfleet_wire::identity::{Claims, Sourced};

use super::field_reader::{FieldReader, GuestFile, MAX_FILE_BYTES};

const FIELD: &str = "claims.infraNode";

pub(super) fn fill(claims: &mut Claims, reader: &mut FieldReader<'_>) {
    let word = |path: String| -> Option<u64> {
        GuestFile::Sys(&path)
            .read(reader.roots, MAX_FILE_BYTES)
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let candidates: Vec<String> = list(&reader.roots.sys("block"))
        .unwrap_or_default()
        .into_iter()
        .filter(|name| {
            name.starts_with("vd")
                && word(format!("block/{name}/size")) == Some(DISK_BYTES as u64 / 512)
                && word(format!("block/{name}/ro")) == Some(1)
        })
        .collect();
    let mut reasons = Vec::new();
    for name in &candidates {
        let path = format!("/dev/{name}");
        let disk = match read_device(&reader.roots.root(&path), DISK_BYTES) {
            Ok(disk) => disk,
            Err(error) => {
                reasons.push(format!("{path}: {error}"));
                continue;
            }
        };
        match downward::body(&disk) {
            Ok(xml) => match downward::host_name(xml) {
                Some(host) => {
                    claims.infra_node = Some(Sourced::new(host, path));
                    return;
                }
                None => reasons.push(format!("{path}: no host name")),
            },
            Err(NoMetrics::Foreign) => {}
            Err(error) => reasons.push(format!("{path}: {error}")),
        }
    }
    if reasons.is_empty() {
        reasons.push("/sys/block: no downwardMetrics disk".to_owned());
    }
    reader.miss(FIELD, reasons);
}

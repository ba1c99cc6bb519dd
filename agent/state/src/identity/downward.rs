//! The infra node's name from KubeVirt's downwardMetrics disk: a read-only virtio disk of 256 KiB.
//!
//! Without root it can be read only if udev gives the agent's group access; if not, that is said. The virtio-serial
//! channel is not opened: it has one opener at a time, and that may be another program's.

use virtfleet_agent_core::identity::downward::{self, DISK_BYTES, NoMetrics};
use virtfleet_agent_host::{list, read_device};
use virtfleet_wire::identity::{Claims, Sourced};

use super::look::{At, Look, SMALL};

const FIELD: &str = "claims.infraNode";

pub(super) fn fill(claims: &mut Claims, look: &mut Look<'_>) {
    let word =
        |path: String| -> Option<u64> { At::Sys(&path).read(look.roots, SMALL).ok()?.trim().parse().ok() };
    let candidates: Vec<String> = list(&look.roots.sys("block"))
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
        let disk = match read_device(&look.roots.root(&path), DISK_BYTES) {
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
                None => reasons.push(format!("{path}: names no host")),
            },
            Err(NoMetrics::Foreign) => {}
            Err(error) => reasons.push(format!("{path}: {error}")),
        }
    }
    if reasons.is_empty() {
        reasons.push("/sys/block: no downwardMetrics disk".to_owned());
    }
    look.miss(FIELD, reasons);
}

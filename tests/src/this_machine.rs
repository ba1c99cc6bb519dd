//! This machine as one of the fleet's VMs, with the data that an infra cluster would have.

use std::fs;

use anyhow::{Context as _, Result};
use virtfleet_wire::ids::Uuid;

use crate::{
    sim::{self, Guest},
    stage::Stage,
};

/// The firmware's UUID for a machine that has none: the agent reports none either, so there is no
/// contradiction.
const NONE_SHOWN: &str = "b0a7c1de-0000-4000-8000-000000000003";

/// This machine as a VM of the stage's first cluster on its last host, with its own SMBIOS UUID. If
/// there is none, its machine-id is used, which systemd derives from that UUID on KVM. A minimal
/// container has neither.
pub fn as_guest(stage: &Stage) -> Result<Guest> {
    let like = stage.plan.guests.first().context("the fleet is empty")?;
    Ok(Guest {
        name: name(),
        uid: "b0a7c1de-0000-4000-8000-000000000001".to_owned(),
        node_uid: "b0a7c1de-0000-4000-8000-000000000002".to_owned(),
        firmware: uuid()?,
        mac: mac().unwrap_or_else(|| like.mac.clone()),
        address: stage.own_address(),
        host: stage.plan.hosts.len() - 1,
        fault: None,
        ..like.clone()
    })
}

/// The VMI of [`as_guest`]. Its host name is this machine's, also if no VM can have that name.
pub fn vmi(guest: &Guest, host: &str) -> String {
    let own = hostname();
    let hostname = if own.is_empty() { &guest.name } else { &own };
    sim::vmi(guest, host).replacen(
        &format!("  hostname: {}\n", guest.name),
        &format!("  hostname: {hostname:?}\n"),
        1,
    )
}

fn uuid() -> Result<Uuid> {
    ["/sys/class/dmi/id/product_uuid", "/etc/machine-id"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<Uuid>().ok())
        .find(|uuid| !uuid.is_placeholder())
        .or_else(|| NONE_SHOWN.parse().ok())
        .context("a UUID for this machine")
}

/// The host name, if it is a valid VM name.
fn name() -> String {
    let name = hostname().to_lowercase();
    let fits = name.parse::<virtfleet_wire::ids::Namespace>().is_ok() && name != "localhost";
    if fits { name } else { "this-machine".to_owned() }
}

fn hostname() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    text.trim().to_owned()
}

/// The MAC address of the first interface with a device.
fn mac() -> Option<String> {
    let mut devices: Vec<_> = fs::read_dir("/sys/class/net")
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    devices.sort();
    let real = devices.into_iter().find(|path| path.join("device").exists())?;
    Some(fs::read_to_string(real.join("address")).ok()?.trim().to_owned())
}

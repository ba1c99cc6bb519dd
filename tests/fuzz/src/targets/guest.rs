//! What files, disks and firmware in the guest say of it.

use std::collections::BTreeMap;

use virtfleet_agent_core::identity::{
    cloud, dmi, downward as disk, kubelet, net,
    unit::{self as units, Service},
};

use super::input::text;

/// A disk of downwardMetrics.
pub(super) fn downward(bytes: &[u8]) {
    if let Ok(xml) = disk::body(bytes) {
        assert!(disk::is_disk(bytes) && xml.len() + 16 <= bytes.len());
    }
    let Ok(xml) = str::from_utf8(bytes) else { return };
    // With a header that fits, the body is read.
    let sum = xml.bytes().fold(0_u32, |sum, byte| sum.wrapping_add(byte.into()));
    let mut whole = b"mvbd\0\0\0\0".to_vec();
    whole.extend(sum.to_be_bytes());
    whole.extend(u32::try_from(xml.len()).unwrap_or(u32::MAX).to_be_bytes());
    whole.extend(xml.bytes());
    assert_eq!(disk::body(&whole), Ok(xml));
    if let Some(name) = disk::host_name(xml) {
        assert!((1..=253).contains(&name.len()) && xml.contains(&name));
    }
}

/// cloud-init's files, firmware, addresses, kubelet's configuration.
pub(super) fn identity(bytes: &[u8]) {
    let text = text(bytes);
    let text = text.as_str();
    cloud::nocloud(text).ok();
    cloud::config_drive(text).ok();
    cloud::instance_data(text).ok();
    cloud::datasource(text);
    for plain in [cloud::plain(text), dmi::clean(text)].into_iter().flatten() {
        assert!(!plain.is_empty() && plain.len() <= text.len());
    }
    if let Some(uuid) = dmi::uuid(text) {
        assert_eq!(dmi::uuid(&uuid), Some(uuid));
    }
    dmi::vm_of_asset_tag(text);
    for (address, prefix, _) in net::ipv6(text) {
        assert!(address.is_ipv6() && prefix <= 128);
    }
    let (trie, route) = text.split_once('\0').unwrap_or((text, text));
    for (address, prefix, _) in net::ipv4(trie, route) {
        assert!(address.is_ipv4() && prefix <= 32);
    }
    kubelet::configuration(text).ok();
}

/// kubelet's unit with its environment file (behind the first NUL), and its command line.
pub(super) fn unit(bytes: &[u8]) {
    if let Some(arguments) = kubelet::command_line(bytes) {
        kubelet::arguments(&arguments);
    }
    let text = text(bytes);
    let (unit, file) = text.split_once('\0').unwrap_or((&text, ""));
    let mut service = Service::default();
    service.read(unit);
    let mut environment: BTreeMap<String, String> = service.environment.clone();
    environment.extend(units::environment_file(file));
    let arguments = service.arguments(&environment);
    let held: usize = arguments.iter().map(|argument| argument.len() + 1).sum();
    assert!(
        held <= 64 * 1024 + 1 + 2 * text.len(),
        "{held} bytes of arguments"
    );
    kubelet::arguments(&arguments);
    assert!(units::words(&text).iter().map(String::len).sum::<usize>() <= text.len());
}

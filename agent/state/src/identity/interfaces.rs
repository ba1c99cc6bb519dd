//! Network interfaces: names, hardware addresses and kind from sysfs; IP addresses from the kernel.
//!
//! With the real roots, `getifaddrs` is called once: only the kernel knows which interface an IPv4
//! address is on. With other roots, that call would describe the wrong machine, so the procfs of
//! those roots is read.

use std::{collections::BTreeMap, net::IpAddr, path::Path};

use virtfleet_agent_core::identity::net;
use virtfleet_agent_host::{InterfaceAddresses, exists, interface_addresses, is_directory, list};
use virtfleet_wire::identity::{Interface, Sourced};

use super::field_reader::{FieldReader, GuestFile, MAX_FILE_BYTES, MAX_INSTANCE_DATA_BYTES};

/// Maximum number of reported interfaces. Interfaces with a device come first.
const MAX_INTERFACES: usize = 256;

pub(super) fn read(reader: &mut FieldReader<'_>) -> Option<Sourced<Vec<Interface>>> {
    let class = GuestFile::Sys("class/net");
    let names = match list(&class.path(reader.roots)) {
        Ok(names) => names,
        Err(error) => {
            reader.miss("interfaces", vec![format!("{}: {error}", class.source())]);
            return None;
        }
    };
    let (mut addresses, source) = match addresses(reader) {
        Ok(found) => found,
        Err(reasons) => {
            reader.miss("interfaces.addresses", reasons);
            (InterfaceAddresses::new(), "")
        }
    };
    let mut interfaces: Vec<Interface> = names
        .into_iter()
        // sysfs also contains the file `bonding_masters`.
        .filter(|name| is_directory(&reader.roots.sys(format!("class/net/{name}"))))
        .map(|name| {
            let mac = GuestFile::Sys(&format!("class/net/{name}/address")).read(reader.roots, MAX_FILE_BYTES);
            let held = addresses.remove(&name).unwrap_or_default();
            Interface {
                mac: mac.ok().and_then(|text| {
                    let text = text.trim();
                    (text != "00:00:00:00:00:00").then(|| text.parse().ok())?
                }),
                addresses: held.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect(),
                physical: exists(&reader.roots.sys(format!("class/net/{name}/device"))),
                name,
            }
        })
        .collect();
    if interfaces.len() > MAX_INTERFACES {
        interfaces.sort_by_key(|interface| !interface.physical);
        interfaces.truncate(MAX_INTERFACES);
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let source = [class.source().as_str(), source].join(", ");
    Some(Sourced::new(interfaces, source.trim_end_matches(", ")))
}

fn addresses(reader: &FieldReader<'_>) -> Result<(InterfaceAddresses, &'static str), Vec<String>> {
    if reader.roots.procfs == Path::new("/proc") && reader.roots.sysfs == Path::new("/sys") {
        return interface_addresses()
            .map(|held| (held, "getifaddrs"))
            .map_err(|error| vec![error.to_string()]);
    }
    let mut reasons = Vec::new();
    let mut text = |path: &str| match GuestFile::Proc(path).read(reader.roots, MAX_INSTANCE_DATA_BYTES) {
        Ok(text) => text,
        Err(error) => {
            reasons.push(format!("/proc/{path}: {error}"));
            String::new()
        }
    };
    let (trie, route, if_inet6) = (text("net/fib_trie"), text("net/route"), text("net/if_inet6"));
    let mut held: InterfaceAddresses = BTreeMap::<String, Vec<(IpAddr, u8)>>::new();
    for (address, prefix, name) in net::ipv4(&trie, &route).into_iter().chain(net::ipv6(&if_inet6)) {
        held.entry(name).or_default().push((address, prefix));
    }
    if held.is_empty() && !reasons.is_empty() {
        return Err(reasons);
    }
    Ok((held, "/proc/net/{fib_trie,route,if_inet6}"))
}

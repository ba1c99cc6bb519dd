//! DHCPv4 message as received; dhcpcd stores its leases this way
//! (`/var/lib/dhcpcd/<interface>.lease`).

use std::net::Ipv4Addr;

use super::Lease;
use crate::dns::seen::Given;

/// Length of the fixed part before the options, in bytes (RFC 2131, 2).
const FIXED_LENGTH: usize = 236;
/// Magic cookie before the options (RFC 2131, 3).
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Maximum number of labels in a name: compression pointers could form a cycle.
const MAX_LABELS: usize = 512;

/// Parses options 6 (nameservers), 15 (domain), 26 (MTU) and 119 (search domains, RFC 3397). `None`
/// if the bytes are not a DHCP message.
pub fn dhcp_packet(bytes: &[u8]) -> Option<Given> {
    let mut rest = bytes.get(FIXED_LENGTH..)?.strip_prefix(&COOKIE)?;
    let mut lease = Lease::default();
    let mut searches = Vec::new();
    while let [code, tail @ ..] = rest {
        rest = tail;
        match code {
            0 => continue,
            255 => break,
            _ => {}
        }
        let [length, tail @ ..] = rest else {
            break;
        };
        let Some((value, tail)) = tail.split_at_checked(usize::from(*length)) else {
            break;
        };
        rest = tail;
        match code {
            6 => lease.servers.extend(
                value
                    .chunks_exact(4)
                    .map(|four| Ipv4Addr::new(four[0], four[1], four[2], four[3]).to_string()),
            ),
            15 => {
                let text = String::from_utf8_lossy(value);
                lease.domain = vec![text.trim_end_matches('\0').to_owned()];
            }
            26 => {
                if let [high, low] = value {
                    lease.set_mtu(&u16::from_be_bytes([*high, *low]).to_string());
                }
            }
            // A long list is split into several options (RFC 3396).
            119 => searches.extend_from_slice(value),
            _ => {}
        }
    }
    lease.searches = names(&searches);
    Some(lease.given())
}

/// Parses consecutive names with compression pointers into the same list (RFC 1035, 4.1.4).
fn names(list: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = 0;
    while at < list.len() {
        let Some((name, next)) = name(list, at) else {
            break;
        };
        names.push(name);
        at = next;
    }
    names
}

/// Parses the name at an offset. Returns it with the offset of the next one.
fn name(list: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels: Vec<String> = Vec::new();
    let mut next = None;
    for _ in 0..MAX_LABELS {
        let length = *list.get(at)?;
        match length {
            0 => return Some((labels.join("."), next.unwrap_or(at + 1))),
            1..=63 => {
                let end = at + 1 + usize::from(length);
                labels.push(String::from_utf8_lossy(list.get(at + 1..end)?).into_owned());
                at = end;
            }
            192.. => {
                let low = *list.get(at + 1)?;
                next.get_or_insert(at + 2);
                at = usize::from(length & 63) << 8 | usize::from(low);
            }
            _ => return None,
        }
    }
    None
}

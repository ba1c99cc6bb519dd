//! A DHCPv4 message as it was received: dhcpcd keeps its leases so (`/var/lib/dhcpcd/<interface>.lease`).

use std::net::Ipv4Addr;

use super::Lease;
use crate::dns::seen::Given;

/// Where the options begin: behind the fixed part (RFC 2131, 2).
const FIXED: usize = 236;
/// What the options begin with (RFC 2131, 3).
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// The most labels that are followed: pointers could go round in a ring.
const MOST_LABELS: usize = 512;

/// Options 6 (nameservers), 15 (domain), 26 (MTU) and 119 (search domains, RFC 3397). None when it is no such message.
pub fn dhcp_packet(bytes: &[u8]) -> Option<Given> {
    let mut rest = bytes.get(FIXED..)?.strip_prefix(&COOKIE)?;
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
            // Parts of a long list follow one another (RFC 3396).
            119 => searches.extend_from_slice(value),
            _ => {}
        }
    }
    lease.searches = names(&searches);
    Some(lease.given())
}

/// Names one behind the other, with pointers into the same list (RFC 1035, 4.1.4).
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

/// The name at a place, and where the next one begins.
fn name(list: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels: Vec<String> = Vec::new();
    let mut next = None;
    for _ in 0..MOST_LABELS {
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

//! Listeners on port 53, from `net/udp` and `net/udp6`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Roots, read_once};

/// Port 53 in hexadecimal.
const PORT: &str = "0035";
/// Maximum size in bytes. A busy node has thousands of sockets, 150 bytes each.
const MAX_FILE_BYTES: usize = 8 << 20;

/// Addresses with a listener, without duplicates.
pub(super) fn listeners(roots: &Roots) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for name in ["net/udp", "net/udp6"] {
        let mut buffer = Vec::new();
        let Ok(bytes) = read_once(&roots.proc(name), &mut buffer, MAX_FILE_BYTES) else {
            continue;
        };
        let text = String::from_utf8_lossy(bytes);
        found.extend(text.lines().filter_map(listener));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The address of an unconnected socket with port 53: `sl local_address rem_address …`, each
/// `ADDRESS:PORT`, the address in words of the machine's byte order.
fn listener(line: &str) -> Option<IpAddr> {
    let mut fields = line.split_whitespace().skip(1);
    let (address, port) = fields.next()?.split_once(':')?;
    let remote = fields.next()?;
    if port != PORT || !remote.ends_with(":0000") {
        return None;
    }
    let word = |at: usize| {
        u32::from_str_radix(address.get(at..at + 8)?, 16)
            .ok()
            .map(u32::to_ne_bytes)
    };
    match address.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            let bytes: [u8; 16] = words.try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procfs_lines_are_parsed() {
        for (line, expected) in [
            (
                " 10: 3500007F:0035 00000000:0000 07 00000000:00000000",
                Some("127.0.0.53"),
            ),
            (" 11: 0A14FEA9:0035 00000000:0000 07", Some("169.254.20.10")),
            (" 12: 00000000:0035 00000000:0000 07", Some("0.0.0.0")),
            (" 13: 3500007F:0036 00000000:0000 07", None),
            (" 14: 3500007F:0035 0100007F:1234 01", None),
            (
                " 15: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07",
                Some("::1"),
            ),
            ("  sl  local_address rem_address   st", None),
            (" 16: XX:0035 00000000:0000", None),
            ("", None),
        ] {
            assert_eq!(
                listener(line),
                expected.map(|text| text.parse().unwrap()),
                "{line}"
            );
        }
    }
}

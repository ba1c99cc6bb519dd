//! Neighbour table, including ARP for IPv4 (`linux/neighbour.h`).

use super::{number, short};

/// `RTM_GETNEIGH`.
pub const GET: u16 = 30;
/// `NUD_NOARP`: needs no resolution, and is not in `/proc/net/arp`.
const NO_ARP: u16 = 0x40;

/// Request for the IPv4 table: `struct ndmsg` with `AF_INET`.
pub const REQUEST: [u8; 12] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Index of the interface.
    pub device: u32,
    /// Whether its address is resolved by ARP.
    pub resolved: bool,
}

/// Parses an entry of the dump. `None` if it is truncated.
pub fn neighbour(body: &[u8]) -> Option<Neighbour> {
    Some(Neighbour {
        device: number(body, 4)?,
        resolved: short(body, 8)? & NO_ARP == 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbour_entry_is_parsed() {
        let mut body = REQUEST;
        body[4..8].copy_from_slice(&3_u32.to_ne_bytes());
        for (state, resolved) in [(0x02_u16, true), (0x40, false), (0x80, true)] {
            body[8..10].copy_from_slice(&state.to_ne_bytes());
            assert_eq!(neighbour(&body), Some(Neighbour { device: 3, resolved }));
        }
        assert_eq!(neighbour(&body[..9]), None);
    }
}

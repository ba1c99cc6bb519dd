//! `/proc/net/ip_vs_stats` and `/proc/net/ip_vs` (kernel: `net/netfilter/ipvs/ip_vs_ctl.c`).

use std::net::{IpAddr, Ipv6Addr};

use super::{ParseError, counter, hex, words};

/// Parses the totals: connections, packets in and out, bytes in and out.
///
/// # Errors
///
/// A counter is missing or malformed.
pub fn totals(text: &str) -> Result<[u64; 5], ParseError> {
    // Two heading lines; the rates are below.
    let line = text.lines().nth(2).unwrap_or_default();
    let mut words = words(line);
    let mut totals = [0; 5];
    for total in &mut totals {
        *total = hex(words.next(), 2, "5 hexadecimal counters")?;
    }
    match words.next() {
        Some(more) => Err(ParseError::at(2, "5 counters", more)),
        None => Ok(totals),
    }
}

/// Virtual service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service<'text> {
    /// `TCP`, `UDP`, `SCTP` or `FWM`.
    pub protocol: &'text str,
    /// Address; `None` with a firewall mark.
    pub address: Option<IpAddr>,
    /// Port; 0 with a firewall mark.
    pub port: u16,
    /// Firewall mark in hexadecimal, or empty.
    pub mark: &'text str,
}

/// Real server of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend<'text> {
    pub service: Service<'text>,
    pub address: IpAddr,
    pub port: u16,
    pub weight: u64,
    /// Number of active connections.
    pub active: u64,
    /// Number of inactive connections.
    pub inactive: u64,
}

/// Parses the real servers of all services. Those below a malformed service, or one of another
/// protocol, are errors: it is unknown whose they are.
pub fn backends(text: &str) -> impl Iterator<Item = Result<Backend<'_>, ParseError>> {
    let mut service = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let mut words = words(line);
        match words.next()? {
            protocol @ ("TCP" | "UDP" | "SCTP") => match address_and_port(words.next(), index) {
                Ok((address, port)) => {
                    service = Some(Service {
                        protocol,
                        address: Some(address),
                        port,
                        mark: "",
                    });
                    None
                }
                Err(error) => {
                    service = None;
                    Some(Err(error))
                }
            },
            "FWM" => {
                service = words.next().map(|mark| Service {
                    protocol: "FWM",
                    address: None,
                    port: 0,
                    mark,
                });
                None
            }
            "->" if line.contains("RemoteAddress") => None,
            "->" => Some(backend(service, words, index)),
            "IP" | "Prot" => None,
            other => {
                service = None;
                Some(Err(ParseError::at(index, "TCP, UDP, SCTP or FWM", other)))
            }
        }
    })
}

fn backend<'text>(
    service: Option<Service<'text>>,
    mut words: std::str::SplitAsciiWhitespace<'text>,
    index: usize,
) -> Result<Backend<'text>, ParseError> {
    let service = service.ok_or_else(|| ParseError::at(index, "a service above its servers", "->"))?;
    let (address, port) = address_and_port(words.next(), index)?;
    words.next(); // Forwarding method.
    let mut number = |expected| counter(words.next(), index, expected);
    Ok(Backend {
        service,
        address,
        port,
        weight: number("a weight")?,
        active: number("open connections")?,
        inactive: number("other connections")?,
    })
}

/// Parses `C0A80001:0050` or `[2620:0000:0000:0000:0000:0000:0000:0001]:0050`.
fn address_and_port(word: Option<&str>, index: usize) -> Result<(IpAddr, u16), ParseError> {
    let word = word.unwrap_or_default();
    let read = || {
        let (address, port) = word.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let address = match address.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?.to_canonical(),
            None if address.len() == 8 => IpAddr::from(u32::from_str_radix(address, 16).ok()?.to_be_bytes()),
            None => return None,
        };
        Some((address, port))
    };
    read().ok_or_else(|| ParseError::at(index, "ADDRESS:PORT in hexadecimal", word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const TOTALS: &str = "   Total Incoming Outgoing         Incoming         Outgoing\n   Conns  Packets  Packets            Bytes            Bytes\n 16AA370 E33656E5        0     51D8C8883AB3                0\n\n Conns/s   Pkts/s   Pkts/s          Bytes/s          Bytes/s\n       4    1FB3C        0          1282A8F                0\n";
    const SERVICES: &str = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\nTCP  C0A80016:0CEA wlc\n  -> C0A85216:0CEA      Tunnel  100    248        2\nTCP  [2620:0000:0000:0000:0000:0000:0000:0001]:0050 sh\n  -> [2620:0000:0000:0000:0000:0000:0000:0002]:0050      Route   1      0          7\nFWM  10001000 wlc\n  -> C0A8321A:0CEA      Route   20     321        5\n";

    #[test]
    fn sums() {
        assert_eq!(
            totals(TOTALS).unwrap(),
            [23_765_872, 3_811_989_221, 0, 89_991_519_156_915, 0]
        );
        for text in ["", "a\nb\n1 2 3 4\n", "a\nb\n1 2 3 4 5 6\n", "a\nb\n1 2 3 4 x\n"] {
            assert_eq!(totals(text).unwrap_err().line, 3);
        }
    }

    #[test]
    fn real_servers_of_services() {
        let all: Vec<_> = backends(SERVICES).collect::<Result<_, _>>().unwrap();
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].service.address.unwrap().to_string(), "192.168.0.22");
        assert_eq!(
            (all[0].service.port, all[0].weight, all[0].active, all[0].inactive),
            (3306, 100, 248, 2)
        );
        assert_eq!(all[1].address.to_string(), "2620::2");
        assert_eq!(
            (
                all[2].service.protocol,
                all[2].service.mark,
                all[2].service.address
            ),
            ("FWM", "10001000", None)
        );
        for text in [
            "  -> C0A85216:0CEA Tunnel 1 2 3",
            "TCP C0A8:0CEA wlc",
            "FWM 1\n -> C0A85216:0CEA Tunnel 1 2",
        ] {
            assert!(backends(text).any(|one| one.is_err()), "{text}");
        }
        // No server is counted for the service above its own.
        for text in [
            SERVICES.replace("TCP  [2620", "TCP  [x"),
            SERVICES.replace("TCP  [2620", "AH  [2620"),
        ] {
            let all: Vec<_> = backends(&text).map(|one| one.ok().map(|one| one.port)).collect();
            assert_eq!(all, [Some(3306), None, None, Some(3306)], "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(sums in hostile::text(TOTALS), text in hostile::text(SERVICES)) {
            totals(&sums).ok();
            let _ = backends(&text).count();
        }
    }
}

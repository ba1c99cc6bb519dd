//! node_exporter's names of driver counters, and the link modes of `enum
//! ethtool_link_mode_bit_indices`.

/// Bit, speed in Mbit/s, duplex and medium of each speed among the first 32 link modes.
pub(super) const SPEEDS: [(u32, u32, &str, &str); 22] = [
    (0, 10, "half", "T"),
    (1, 10, "full", "T"),
    (2, 100, "half", "T"),
    (3, 100, "full", "T"),
    (4, 1000, "half", "T"),
    (5, 1000, "full", "T"),
    (12, 10_000, "full", "T"),
    (17, 1000, "full", "KX"),
    (18, 10_000, "full", "KX4"),
    (19, 10_000, "full", "KR"),
    (20, 10_000, "full", "R_FEC"),
    (21, 20_000, "full", "MLD2"),
    (22, 20_000, "full", "KR2"),
    (23, 40_000, "full", "KR4"),
    (24, 40_000, "full", "CR4"),
    (25, 40_000, "full", "SR4"),
    (26, 40_000, "full", "LR4"),
    (27, 56_000, "full", "KR4"),
    (28, 56_000, "full", "CR4"),
    (29, 56_000, "full", "SR4"),
    (30, 56_000, "full", "LR4"),
    (31, 25_000, "full", "CR"),
];

/// Port types by link mode bit.
pub(super) const PORTS: [(u32, &str); 6] = [
    (7, "TP"),
    (8, "AUI"),
    (9, "MII"),
    (10, "FIBRE"),
    (11, "BNC"),
    (16, "Backplane"),
];

/// Bits of autonegotiation, pause frames and asymmetric pause frames.
pub(super) const CAPABILITIES: [(u32, &str); 3] =
    [(6, "autonegotiate"), (13, "pause"), (14, "asymmetricpause")];

/// Counters with a fixed family: counter, family, HELP.
const COMMON: [(&str, &str, &str); 7] = [
    (
        "rx_bytes",
        "received_bytes_total",
        "Bytes that the driver received.",
    ),
    (
        "rx_dropped",
        "received_dropped_total",
        "Frames that the driver received and dropped.",
    ),
    (
        "rx_errors",
        "received_errors_total",
        "Frames that the driver received with errors.",
    ),
    (
        "rx_packets",
        "received_packets_total",
        "Packets that the driver received.",
    ),
    (
        "tx_bytes",
        "transmitted_bytes_total",
        "Bytes that the driver transmitted.",
    ),
    (
        "tx_errors",
        "transmitted_errors_total",
        "Frames that the driver could not transmit.",
    ),
    (
        "tx_packets",
        "transmitted_packets_total",
        "Packets that the driver transmitted.",
    ),
];

/// The name after `node_ethtool_`, which is used to detect collisions: lower case, with `received`
/// and `transmitted` for `rx` and `tx`.
pub(super) fn full_name(sanitized: &str) -> String {
    let lower = sanitized.trim_start_matches('_').to_ascii_lowercase();
    // Of two adjacent words the second is unchanged: the pattern `(^
    // _)rx(_
    // $)` has consumed the underscore between them.
    let mut consumed = "";
    let words: Vec<&str> = lower
        .split('_')
        .map(|word| {
            let long = match word {
                "rx" if consumed != "rx" => "received",
                "tx" if consumed != "tx" => "transmitted",
                word => word,
            };
            consumed = if long == word { "" } else { word };
            long
        })
        .collect();
    words.join("_")
}

/// Name of the family after `node_ethtool_`, and its HELP.
pub(super) fn family(sanitized: &str) -> (String, String) {
    match COMMON.iter().find(|(counter, ..)| *counter == sanitized) {
        Some((_, family, help)) => ((*family).to_owned(), (*help).to_owned()),
        None => (full_name(sanitized), format!("Network interface {sanitized}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric_name::sanitized;

    #[test]
    fn names_are_those_of_node_exporter() {
        for (counter, clean, full) in [
            (
                "rx_queue_0_packets",
                "rx_queue_0_packets",
                "received_queue_0_packets",
            ),
            ("veb.tx_bytes", "veb_tx_bytes", "veb_transmitted_bytes"),
            ("port.rx_dropped", "port_rx_dropped", "port_received_dropped"),
            ("Tx Frames -- all", "Tx_Frames_all", "transmitted_frames_all"),
            ("a_._b", "a_b", "a_b"),
            ("a__b", "a__b", "a__b"),
            (" rx", "_rx", "received"),
            ("rxtx", "rxtx", "rxtx"),
            ("rx.rx_rx", "rx_rx_rx", "received_rx_received"),
            ("a._.b", "a__b", "a__b"),
        ] {
            assert_eq!(sanitized(counter), clean, "{counter}");
            assert_eq!(full_name(clean), full, "{counter}");
        }
        assert_eq!(family("rx_bytes").0, "received_bytes_total");
        assert_eq!(family("rx_bytes_nic").0, "received_bytes_nic");
    }
}

//! udev's database of a device, `/run/udev/data/bMAJOR:MINOR` (systemd: `sd-device`).

/// Parses the device's properties as `(key, value)`: the lines with prefix `E:`.
pub fn properties(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter_map(|line| line.strip_prefix("E:")?.split_once('='))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str =
        "S:disk/by-path/pci-0000:04:00.0\nI:123\nE:ID_SERIAL=data=1\nE:ID_PATH=\nE:broken\nG:systemd\n";

    #[test]
    fn only_properties() {
        assert_eq!(
            properties(SAMPLE).collect::<Vec<_>>(),
            [("ID_SERIAL", "data=1"), ("ID_PATH", "")]
        );
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = properties(&text).count();
        }
    }
}

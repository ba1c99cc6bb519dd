//! `selinux`: whether SELinux is enabled and enforcing, from `/sys/fs/selinux` and
//! `/etc/selinux/config`.

use virtfleet_agent_host::{Roots, exists, read_once};
use virtfleet_wire::exposition::Page;

use crate::{CollectError, Collector, Context, RegistryError};

/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: usize = 64 << 10;
const ENFORCING: f64 = 1.0;
const PERMISSIVE: f64 = 0.0;
const DISABLED: f64 = -1.0;

struct Selinux {
    roots: Roots,
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Selinux {
        roots: context.roots.clone(),
        buffer: Vec::new(),
    }))
}

impl Collector for Selinux {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let enabled = self.is_enabled();
        page.gauge(
            "node_selinux_enabled",
            "Whether SELinux is enabled: 1 or 0.",
            f64::from(u8::from(enabled)),
        );
        if !enabled {
            return Ok(());
        }
        let config = read_once(
            &self.roots.root_file("/etc/selinux/config"),
            &mut self.buffer,
            MAX_FILE_BYTES,
        );
        page.gauge(
            "node_selinux_config_mode",
            "Configured SELinux mode: 1 enforcing, 0 permissive, -1 disabled.",
            config.map_or(DISABLED, |text| configured(&String::from_utf8_lossy(text))),
        );
        let current = read_once(
            &self.roots.sys("fs/selinux/enforce"),
            &mut self.buffer,
            MAX_FILE_BYTES,
        );
        page.gauge(
            "node_selinux_current_mode",
            "Current SELinux mode: 1 enforcing, 0 permissive, -1 disabled.",
            match current.map(<[u8]>::trim_ascii) {
                Ok(b"1") => ENFORCING,
                Ok(b"0") => PERMISSIVE,
                _ => DISABLED,
            },
        );
        Ok(())
    }
}

impl Selinux {
    /// True if its filesystem is mounted and a policy is loaded: without one every task has the
    /// label `kernel`.
    fn is_enabled(&mut self) -> bool {
        if !exists(&self.roots.sys("fs/selinux/enforce")) {
            return false;
        }
        let label = read_once(
            &self.roots.proc("self/attr/current"),
            &mut self.buffer,
            MAX_FILE_BYTES,
        );
        !label.is_ok_and(|label| label.trim_ascii_end().strip_suffix(b"\0").unwrap_or(label) == b"kernel")
    }
}

/// The value of `SELINUX=`; the first assignment has precedence, as in libselinux.
fn configured(text: &str) -> f64 {
    let value = text
        .lines()
        .filter_map(|line| line.trim().split_once('='))
        .find(|(key, _)| key.trim() == "SELINUX")
        .map(|(_, value)| value.trim().trim_matches('"'));
    match value {
        Some("enforcing") => ENFORCING,
        Some("permissive") => PERMISSIVE,
        _ => DISABLED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "the constants themselves")]
    fn modes_of_the_config_file_are_parsed() {
        for (text, mode) in [
            (
                "# SELINUX=permissive\nSELINUX=enforcing\nSELINUXTYPE=targeted\n",
                ENFORCING,
            ),
            (" SELINUX = permissive \n", PERMISSIVE),
            ("SELINUX=disabled\n", DISABLED),
            ("", DISABLED),
        ] {
            assert_eq!(configured(text), mode, "{text}");
        }
    }
}

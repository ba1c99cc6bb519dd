//! Files that `virtfleet-agent install` writes in a guest: the texts of `packaging/`, adapted to
//! another path of the binary.

use crate::payload::File;

/// Path of the binary in the texts of `packaging/`.
const PACKAGED: &str = "/usr/bin/virtfleet-agent";
/// Folder of the units.
const SYSTEM: &str = "/etc/systemd/system";
/// Folders of a package's units; if one of our units is there, the package owns all files.
pub const PACKAGE_UNITS: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];

/// A text of `packaging/` and its path in the guest.
#[derive(Debug, Clone, Copy)]
pub struct Shipped {
    /// Its absolute path in the guest.
    pub path: &'static str,
    /// The text in `packaging/`.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($from:literal => $path:literal),* $(,)?) => {
        &[$(Shipped { path: $path, text: include_str!(concat!("../../../packaging/", $from)) }),*]
    };
}

/// All files, one per line.
pub const SHIPPED: &[Shipped] = shipped! {
    "systemd/virtfleet-agent.service" => "/etc/systemd/system/virtfleet-agent.service",
    "systemd/virtfleet-agent.socket" => "/etc/systemd/system/virtfleet-agent.socket",
    "systemd/virtfleet-discard.service" => "/etc/systemd/system/virtfleet-discard.service",
    "systemd/virtfleet-discard.timer" => "/etc/systemd/system/virtfleet-discard.timer",
    "systemd/virtfleet-dns.service" => "/etc/systemd/system/virtfleet-dns.service",
    "systemd/virtfleet-port.service" => "/etc/systemd/system/virtfleet-port.service",
    "systemd/virtfleet-provision.service" => "/etc/systemd/system/virtfleet-provision.service",
    "systemd/virtfleet-reconcile.path" => "/etc/systemd/system/virtfleet-reconcile.path",
    "systemd/virtfleet-reconcile.service" => "/etc/systemd/system/virtfleet-reconcile.service",
    "systemd/virtfleet-reconcile.timer" => "/etc/systemd/system/virtfleet-reconcile.timer",
    "systemd/virtfleet-settings.path" => "/etc/systemd/system/virtfleet-settings.path",
    "systemd/virtfleet-settings.service" => "/etc/systemd/system/virtfleet-settings.service",
    "systemd/drop-ins/containerd.service.d/10-virtfleet.conf" => "/etc/systemd/system/containerd.service.d/10-virtfleet.conf",
    "systemd/drop-ins/kubelet.service.d/10-virtfleet.conf" => "/etc/systemd/system/kubelet.service.d/10-virtfleet.conf",
    "sysusers.d/virtfleet.conf" => "/etc/sysusers.d/virtfleet.conf",
    "tmpfiles.d/virtfleet.conf" => "/etc/tmpfiles.d/virtfleet.conf",
    "udev/90-virtfleet.rules" => "/etc/udev/rules.d/90-virtfleet.rules",
};

/// Units that are started before boot continues, in this order. Units that are not shipped are
/// skipped.
pub const SYNCHRONOUS: [&str; 2] = ["virtfleet-provision.service", "virtfleet-dns.service"];
/// The unit of the agent.
pub const AGENT_UNIT: &str = "virtfleet-agent.service";
/// The socket of the agent, which the agent's unit starts before itself.
pub const AGENT_SOCKET: &str = "virtfleet-agent.socket";
/// The user, and the group that may read files that root writes for the agent.
pub const USER: &str = "virtfleet";

/// A symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its path.
    pub path: String,
    /// Its target.
    pub target: String,
}

/// The files for a binary at `agent`.
pub fn files(agent: &str) -> Vec<File> {
    let file = |shipped: &Shipped| File {
        path: shipped.path.to_owned(),
        mode: 0o644,
        content: shipped.text.replace(PACKAGED, agent).into_bytes(),
    };
    SHIPPED.iter().map(file).collect()
}

/// The names of the units, without drop-ins.
pub fn units() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().filter_map(unit_name)
}

fn unit_name(shipped: &Shipped) -> Option<&'static str> {
    shipped
        .path
        .strip_prefix(SYSTEM)?
        .strip_prefix('/')
        .filter(|name| !name.contains('/'))
}

/// Units with an `[Install]` section: `install` enables and starts them.
pub fn enabled() -> impl Iterator<Item = &'static str> {
    SHIPPED
        .iter()
        .filter(|shipped| wants(shipped).next().is_some())
        .filter_map(unit_name)
}

/// The links that `systemctl enable` would create.
pub fn links() -> Vec<Link> {
    SHIPPED
        .iter()
        .filter_map(|shipped| Some((unit_name(shipped)?, shipped)))
        .flat_map(|(name, shipped)| {
            wants(shipped).map(move |(folder, target)| Link {
                path: format!("{SYSTEM}/{target}.{folder}/{name}"),
                target: format!("../{name}"),
            })
        })
        .collect()
}

/// Folder (`wants` or `requires`) and units of the `[Install]` section.
fn wants(shipped: &Shipped) -> impl Iterator<Item = (&'static str, &'static str)> {
    let section = shipped.text.split("\n[Install]\n").nth(1).unwrap_or_default();
    section.lines().flat_map(|line| {
        let found = [("wants", "WantedBy="), ("requires", "RequiredBy=")]
            .into_iter()
            .find_map(|(folder, key)| Some((folder, line.strip_prefix(key)?)));
        let (folder, units) = found.unwrap_or(("", ""));
        units.split_whitespace().map(move |unit| (folder, unit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_has_the_path_of_the_binary() {
        for file in files("/opt/x/bin/virtfleet-agent") {
            let text = String::from_utf8(file.content).unwrap();
            assert!(!text.contains("/usr/bin/virtfleet-agent"), "{}", file.path);
            assert!(text.ends_with('\n'), "{}", file.path);
        }
    }

    #[test]
    fn enabled_units_are_linked_like_systemctl() {
        let links = links();
        assert!(links.contains(&Link {
            path: "/etc/systemd/system/multi-user.target.wants/virtfleet-agent.service".to_owned(),
            target: "../virtfleet-agent.service".to_owned(),
        }));
        let linked: Vec<&str> = links
            .iter()
            .filter_map(|link| link.target.strip_prefix("../"))
            .collect();
        for unit in enabled() {
            assert!(linked.contains(&unit), "{unit}");
        }
        assert!(units().any(|unit| unit == AGENT_UNIT));
    }

    #[test]
    fn every_packaged_file_for_guests_is_listed() {
        let packaging = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        for folder in [
            "systemd",
            "systemd/drop-ins/containerd.service.d",
            "systemd/drop-ins/kubelet.service.d",
            "udev",
            "sysusers.d",
            "tmpfiles.d",
        ] {
            let Ok(entries) = std::fs::read_dir(packaging.join(folder)) else {
                continue;
            };
            for entry in entries.map(Result::unwrap).filter(|entry| entry.path().is_file()) {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                assert!(
                    SHIPPED.iter().any(|shipped| shipped.text == text),
                    "{}: add a line to SHIPPED",
                    entry.path().display()
                );
            }
        }
    }
}

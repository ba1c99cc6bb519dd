//! Content of the files below `/etc` for a disk: mount and swap units, drop-ins, the start gate,
//! fstab lines.

use std::collections::BTreeMap;
// Writing to a string cannot fail, so the results are ignored.
use std::fmt::Write as _;

use super::{binds::Bind, wanted::Wanted};
use virtfleet_wire::settings::DiskFilesystem;

/// Directory of the units: it overrides `/run` and `/usr/lib`, and persists over a reboot.
pub const DIRECTORY: &str = "/etc/systemd/system";
/// Marks a file of the disk whose name follows. systemd ignores keys that begin with `X-`.
pub const MARK: &str = "X-Virtfleet-Disk=";
/// Marks a file of the start gate.
pub const GATE_MARK: &str = "X-Virtfleet-Gate=";
/// Unit of the start gate.
pub const GATE: &str = "virtfleet-disks.service";
/// Kernel command line option that disables the start gate.
pub const GATE_OFF: &str = "virtfleet.disks=optional";
/// Kernel command line option that disables provisioning. It disables the start gate too, because
/// without provisioning no disk is mounted.
pub const PROVISION_OFF: &str = "virtfleet.provision=off";
/// Services that must not start without the required disks.
pub const GATED: [&str; 4] = [
    "containerd.service",
    "docker.service",
    "crio.service",
    "kubelet.service",
];
/// File that lists filesystems in a guest without systemd.
pub const FSTAB: &str = "/etc/fstab";
/// Timeout of a unit for its disk. A disk appears early in a boot or not at all.
const DEVICE_TIMEOUT: &str = "30s";
/// Timeout of a unit for a container, if something other than the agent starts the unit. Longer
/// than the start timeout of `virtfleet-provision.service`, which opens the container.
const CONTAINER_TIMEOUT: &str = "6min";
const FSTAB_MARK: &str = "# virtfleet disk ";

/// Source and options of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placing<'a> {
    pub wanted: &'a Wanted,
    /// UUID of the filesystem.
    pub uuid: &'a str,
    /// Name in `/dev/mapper` of its LUKS container.
    pub mapping: Option<&'a str>,
}

impl Placing<'_> {
    /// Node to mount. The name of a container is unique to the agent, so no clone can replace it.
    pub fn what(&self) -> String {
        match self.mapping {
            Some(mapping) => format!("/dev/mapper/{mapping}"),
            None => format!("/dev/disk/by-uuid/{}", self.uuid),
        }
    }

    pub fn unit(&self) -> String {
        match &self.wanted.mount_point {
            Some(path) => format!("{}.mount", escape_path(path)),
            None => format!("{}.swap", escape_path(&self.what())),
        }
    }

    /// Returns all files by path for a guest with systemd.
    pub fn files(&self) -> Vec<(String, String)> {
        let name = &self.wanted.name;
        let unit = self.unit();
        let text = match &self.wanted.mount_point {
            Some(path) => self.mount(path),
            None => self.swap(),
        };
        let limit = if self.mapping.is_some() {
            CONTAINER_TIMEOUT
        } else {
            DEVICE_TIMEOUT
        };
        let mut files = vec![
            (
                format!(
                    "{DIRECTORY}/{}.device.d/50-virtfleet.conf",
                    escape_path(&self.what())
                ),
                drop_in(name, &format!("JobRunningTimeoutSec={limit}")),
            ),
            (format!("{DIRECTORY}/{unit}"), text),
        ];
        // The agent starts the unit of a container after opening it. If the boot requested the unit
        // earlier, it would wait for the device, time out on a slow machine, and fail the unit
        // while the agent starts it.
        if self.mapping.is_none() {
            let mut units = specifiers(&unit);
            for bind in &self.wanted.binds {
                write!(units, " {}", specifiers(&bind_unit(bind))).ok();
            }
            files.push((wants_path(name), drop_in(name, &format!("Wants={units}"))));
        }
        if let Some(whole) = &self.wanted.mount_point {
            let binds = self.wanted.binds.iter();
            files.extend(binds.map(|bind| (bind_path(bind), self.bind(bind, whole))));
        }
        files
    }

    /// Unit that bind-mounts a directory at its place. systemd creates a missing source of a bind
    /// mount, which would be on the root disk while the filesystem is not mounted; the assertions
    /// prevent that.
    fn bind(&self, bind: &Bind, whole: &str) -> String {
        let name = &self.wanted.name;
        let source = specifiers(&bind.source(whole));
        let unit = specifiers(&self.unit());
        format!(
            "{}[Unit]\n{MARK}{name}\nDescription=Secondary disk {name} at {} (virtfleet)\n\
             DefaultDependencies=no\nConflicts=umount.target\n\
             Before=umount.target containerd.service docker.service crio.service kubelet.service\n\
             BindsTo={unit}\nAfter=local-fs-pre.target {unit}\n\
             AssertPathIsMountPoint={}\nAssertPathIsDirectory={source}\n\n\
             [Mount]\nWhat={source}\nWhere={}\nType=none\nOptions=bind\n",
            comment(name),
            specifiers(&bind.path),
            specifiers(whole),
            specifiers(&bind.path),
        )
    }

    fn head(&self) -> String {
        let name = &self.wanted.name;
        format!(
            "{}[Unit]\n{MARK}{name}\nDescription=Secondary disk {name} (virtfleet)\n",
            comment(name)
        )
    }

    /// Without systemd's default dependencies: they would order it before `local-fs.target`. The
    /// agent's run, which may open the container, is ordered after that target.
    fn mount(&self, path: &str) -> String {
        let what = self.what();
        let mut text = self.head();
        text.push_str("DefaultDependencies=no\nConflicts=umount.target\n");
        text.push_str(
            "Before=umount.target containerd.service docker.service crio.service kubelet.service\n",
        );
        text.push_str("After=local-fs-pre.target\n");
        if self.wanted.filesystem == DiskFilesystem::Ext4 {
            let check = format!("systemd-fsck@{}.service", specifiers(&escape_path(&what)));
            writeln!(text, "Requires={check}\nAfter={check}").ok();
        }
        writeln!(
            text,
            "\n[Mount]\nWhat={}\nWhere={}\nType={}",
            specifiers(&what),
            specifiers(path),
            self.wanted.filesystem.word()
        )
        .ok();
        self.options(&mut text);
        text
    }

    fn swap(&self) -> String {
        let mut text = self.head();
        text.push_str("DefaultDependencies=no\nConflicts=umount.target\nBefore=umount.target\n");
        writeln!(text, "\n[Swap]\nWhat={}", specifiers(&self.what())).ok();
        self.options(&mut text);
        text
    }

    fn options(&self, text: &mut String) {
        if !self.wanted.options.is_empty() {
            writeln!(text, "Options={}", specifiers(&self.wanted.options.join(","))).ok();
        }
    }

    /// Returns its fstab lines with the comments that mark them, without those of places in `held`.
    fn fstab_lines(&self, held: &[&str]) -> String {
        let wanted = self.wanted;
        let what = match self.mapping {
            Some(_) => self.what(),
            None => format!("UUID={}", self.uuid),
        };
        let (place, pass) = match (&wanted.mount_point, wanted.filesystem) {
            (Some(path), DiskFilesystem::Ext4) => (path.as_str(), 2),
            (Some(path), _) => (path.as_str(), 0),
            (None, _) => ("none", 0),
        };
        let mut options = wanted.options.clone();
        options.extend(["nofail".to_owned(), "x-systemd.device-timeout=30s".to_owned()]);
        let mut text = format!(
            "{FSTAB_MARK}{}\n{what} {place} {} {} 0 {pass}\n",
            wanted.name,
            wanted.filesystem.word(),
            options.join(",")
        );
        let binds = wanted
            .binds
            .iter()
            .filter(|bind| !held.contains(&bind.path.as_str()));
        for bind in binds {
            writeln!(
                text,
                "{}\n{} {} none bind,nofail 0 0",
                fstab_mark(&wanted.name, bind),
                bind.source(place),
                bind.path
            )
            .ok();
        }
        text
    }

    /// Returns the new content of fstab: this disk's lines replace its old ones, or are appended. A
    /// place in `held` gets no new line.
    pub fn fstab(&self, before: &str, held: &[&str]) -> String {
        let mark = format!("{FSTAB_MARK}{}", self.wanted.name);
        let of_place = format!("{mark} at ");
        let has = |path: &str| {
            before
                .lines()
                .any(|line| line.strip_prefix(&of_place) == Some(path))
        };
        let held: Vec<&str> = held.iter().copied().filter(|path| !has(path)).collect();
        let mut text = String::new();
        let mut lines = before.lines();
        let mut written = false;
        while let Some(line) = lines.next() {
            if line == mark || line.starts_with(&of_place) {
                lines.next();
                if !written {
                    text.push_str(&self.fstab_lines(&held));
                    written = true;
                }
            } else {
                text.push_str(line);
                text.push('\n');
            }
        }
        if !written {
            text.push_str(&self.fstab_lines(&held));
        }
        text
    }
}

/// Name of the unit of a place.
fn bind_unit(bind: &Bind) -> String {
    format!("{}.mount", escape_path(&bind.path))
}

/// Path of the unit of a place.
pub fn bind_path(bind: &Bind) -> String {
    format!("{DIRECTORY}/{}", bind_unit(bind))
}

/// Comment above the fstab line of a place.
fn fstab_mark(name: &str, bind: &Bind) -> String {
    format!("{FSTAB_MARK}{name} at {}", bind.path)
}

/// Path of the drop-in that makes the boot start the disk's unit. A file instead of a link in
/// `multi-user.target.wants`, because a file can contain the marker.
fn wants_path(name: &str) -> String {
    format!("{DIRECTORY}/multi-user.target.d/50-virtfleet-disk-{name}.conf")
}

fn comment(name: &str) -> String {
    format!(
        "# Written by virtfleet-agent for the disk {name:?} of its settings, and again when it is changed.\n"
    )
}

fn drop_in(name: &str, line: &str) -> String {
    format!("{}[Unit]\n{MARK}{name}\n{line}\n", comment(name))
}

/// Returns the start gate and the drop-ins that order it before containerd and kubelet, by path.
///
/// `agent` is the path of the agent's program; empty for the path of the package.
pub fn gate_files(agent: &str) -> Vec<(String, String)> {
    let agent = if agent.is_empty() {
        "/usr/bin/virtfleet-agent"
    } else {
        agent
    };
    let comment = "# Written by virtfleet-agent because a disk of its settings is required, and removed when none is.\n";
    let mut files = vec![(
        format!("{DIRECTORY}/{GATE}"),
        format!(
            "{comment}[Unit]\n{GATE_MARK}yes\nDescription=Required secondary disks are in place (virtfleet)\n\
             ConditionKernelCommandLine=!{GATE_OFF}\nConditionKernelCommandLine=!{PROVISION_OFF}\nAfter=virtfleet-provision.service\n\n\
             [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={agent} disks check\n"
        ),
    )];
    for service in GATED {
        files.push((
            format!("{DIRECTORY}/{service}.d/50-virtfleet-disks.conf"),
            format!("{comment}[Unit]\n{GATE_MARK}yes\nRequires={GATE}\nAfter={GATE}\n"),
        ));
    }
    files
}

/// Returns the disk of a file; `None` if the file is not the agent's, or belongs to the start gate.
pub fn disk_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix(MARK))
}

/// Returns the mount points of the agent's disks in a file: one in a unit, any number in fstab.
pub fn places_of(text: &str) -> Vec<&str> {
    let of_unit = text.lines().filter_map(|line| line.strip_prefix("Where="));
    let marked = text.lines().zip(text.lines().skip(1));
    let of_fstab = marked
        .filter(|(mark, _)| mark.starts_with(FSTAB_MARK))
        .filter_map(|(_, line)| line.split_ascii_whitespace().nth(1));
    of_unit
        .filter(|_| disk_of(text).is_some())
        .chain(of_fstab)
        .collect()
}

/// Returns the mount options in the unit or the fstab line of a disk, without those that the agent
/// adds.
pub fn options_of(files: &BTreeMap<String, String>, name: &str) -> Vec<String> {
    // The unit of a place has the options of the bind mount instead of the disk's.
    let is_bind = |text: &str| text.lines().any(|line| line == "Type=none");
    let unit = files
        .values()
        .filter(|text| disk_of(text) == Some(name) && !is_bind(text));
    let of_unit = unit
        .flat_map(|text| text.lines())
        .find_map(|line| line.strip_prefix("Options="))
        .map(|options| options.replace("%%", "%"));
    let of_fstab = || {
        let mut lines = files.get(FSTAB)?.lines();
        lines.find(|line| line.strip_prefix(FSTAB_MARK) == Some(name))?;
        let options = lines.next()?.split_ascii_whitespace().nth(3)?;
        Some(options.to_owned())
    };
    let options = of_unit.or_else(of_fstab).unwrap_or_default();
    let ours = |option: &&str| option.is_empty() || *option == "nofail" || option.starts_with("x-systemd.");
    options
        .split(',')
        .filter(|option| !ours(option))
        .map(str::to_owned)
        .collect()
}

/// Whether the file belongs to the start gate.
pub fn is_gates(text: &str) -> bool {
    text.lines().any(|line| line.starts_with(GATE_MARK))
}

/// Escapes a path like `systemd-escape --path`.
pub fn escape_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return "-".to_owned();
    }
    let mut text = String::new();
    for (index, byte) in parts.join("/").bytes().enumerate() {
        match byte {
            b'/' => text.push('-'),
            b'.' if index == 0 => text.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => text.push(char::from(byte)),
            _ => {
                write!(text, "\\x{byte:02x}").ok();
            }
        }
    }
    text
}

/// Escapes `%`, so that systemd finds no specifier.
fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

#[cfg(test)]
mod tests;

//! The text of every file that is written for a disk below `/etc`: mount and swap units, drop-ins, the gate, lines of fstab.

use std::collections::BTreeMap;
// Writing to a string cannot fail, so its results are of no use.
use std::fmt::Write as _;

use super::{binds::Bind, wanted::Wanted};
use virtfleet_wire::settings::DiskFilesystem;

/// Where the files are written: stronger than `/run` and `/usr/lib`, and still there at the next boot.
pub const DIRECTORY: &str = "/etc/systemd/system";
/// Marks a file as that of the disk whose name follows. systemd ignores keys that begin with `X-`.
pub const MARK: &str = "X-Virtfleet-Disk=";
/// Marks a file as that of the gate.
pub const GATE_MARK: &str = "X-Virtfleet-Gate=";
/// The gate.
pub const GATE: &str = "virtfleet-disks.service";
/// The gate's way out, on the kernel's command line.
pub const GATE_OFF: &str = "virtfleet.disks=optional";
/// The way out of provisioning, which is the gate's, too: without provisioning no disk is ever put in its place.
pub const PROVISION_OFF: &str = "virtfleet.provision=off";
/// What must not run without the required disks.
pub const GATED: [&str; 4] = [
    "containerd.service",
    "docker.service",
    "crio.service",
    "kubelet.service",
];
/// Where filesystems are listed for a guest without systemd.
pub const FSTAB: &str = "/etc/fstab";
/// How long a unit's start waits for a disk, which is there early in a boot or not at all.
const DEVICE: &str = "30s";
/// How long the start of a unit that somebody else asks for waits for a container: longer than the start of `virtfleet-provision.service`, which opens it, may
/// take.
const OPENED: &str = "6min";
const FSTAB_MARK: &str = "# virtfleet disk ";

/// What a disk is mounted from and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placing<'a> {
    /// The disk.
    pub wanted: &'a Wanted,
    /// The filesystem's UUID.
    pub uuid: &'a str,
    /// The name in `/dev/mapper` of the LUKS container that it is in.
    pub mapping: Option<&'a str>,
}

impl Placing<'_> {
    /// The node that is mounted. A container's name is ours alone, so no clone can take its place.
    pub fn what(&self) -> String {
        match self.mapping {
            Some(mapping) => format!("/dev/mapper/{mapping}"),
            None => format!("/dev/disk/by-uuid/{}", self.uuid),
        }
    }

    /// The unit's name.
    pub fn unit(&self) -> String {
        match &self.wanted.mount_point {
            Some(path) => format!("{}.mount", escape_path(path)),
            None => format!("{}.swap", escape_path(&self.what())),
        }
    }

    /// Every file, by path, for a guest with systemd.
    pub fn files(&self) -> Vec<(String, String)> {
        let name = &self.wanted.name;
        let unit = self.unit();
        let text = match &self.wanted.mount_point {
            Some(path) => self.mount(path),
            None => self.swap(),
        };
        let limit = if self.mapping.is_some() { OPENED } else { DEVICE };
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
        // A container is there only once the agent has opened it, and then the agent starts its unit: a boot that asked for it before would wait for the
        // device, on a slow machine in vain, and fail the unit while the agent starts it.
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

    /// The unit that mounts a directory at its place. systemd makes the source of a bind mount where it is missing, which
    /// would be on the root disk while the filesystem is not mounted: hence the assertions.
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

    /// Without systemd's default dependencies: these would put it before `local-fs.target`, after which our own pass comes, which
    /// may be what opens the disk.
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

    /// Its lines of fstab with the comments that mark them, without those of the places in `held`.
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

    /// The whole of fstab with this disk's lines in place of those that it had, or at the end. A place in `held` gets no
    /// line that it has not.
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

/// The name of the unit of a place.
fn bind_unit(bind: &Bind) -> String {
    format!("{}.mount", escape_path(&bind.path))
}

/// The file of the unit of a place.
pub fn bind_path(bind: &Bind) -> String {
    format!("{DIRECTORY}/{}", bind_unit(bind))
}

/// The comment above a place's line of fstab.
fn fstab_mark(name: &str, bind: &Bind) -> String {
    format!("{FSTAB_MARK}{name} at {}", bind.path)
}

/// The drop-in by which a boot asks for the disk's unit. A file and not a link in `multi-user.target.wants`: it can carry the mark.
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

/// The gate and the drop-ins that put it before containers and kubelet, by path.
///
/// `agent` is the path of the agent's program; empty means where a package puts it.
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

/// The disk whose file this is; none for a file that is not ours, and for the gate's.
pub fn disk_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix(MARK))
}

/// The mount points of our disks that a file has: a unit of ours one, fstab those of our lines.
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

/// The mount options that the unit of a disk has, or its line of fstab without those that we add.
pub fn options_of(files: &BTreeMap<String, String>, name: &str) -> Vec<String> {
    // The unit of a place has the options of the bind mount, which are none of the disk's.
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

/// Whether it is a file of the gate.
pub fn is_gates(text: &str) -> bool {
    text.lines().any(|line| line.starts_with(GATE_MARK))
}

/// As `systemd-escape --path`: what systemd names the unit of a path.
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

/// A value in which systemd finds no specifier.
fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

#[cfg(test)]
mod tests;

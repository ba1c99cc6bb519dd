//! kubelet's configuration: from its running command line, else from its systemd unit, else from
//! the environment files that units include.
//!
//! Labels and node name come from only one of the three, because only one is in effect. The
//! configuration file provides the provider id if no flag sets it.

use virtfleet_agent_core::identity::{
    kubelet::{KubeletConfig, arguments, command_line, configuration},
    unit::{Service, environment_file, words},
};
use virtfleet_agent_host::{Roots, list, read_bounded};
use virtfleet_wire::identity::{Claims, Sourced};

use super::field_reader::{FieldReader, GuestFile, MAX_FILE_BYTES};

/// Minimum interval between two searches of all processes, in nanoseconds.
const SEARCH_INTERVAL_NS: u64 = 60_000_000_000;
/// systemd's unit directories, lowest precedence first.
const UNITS: [&str; 4] = [
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/run/systemd/system",
    "/etc/systemd/system",
];
const ENVIRONMENT_FILES: [&str; 3] = [
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
];
const CONFIGURATION: &str = "/var/lib/kubelet/config.yaml";

/// Finds kubelet's process and caches its PID.
#[derive(Debug, Default)]
pub(super) struct Finder {
    pid: Option<u32>,
    searched_ns: Option<u64>,
}

impl Finder {
    /// kubelet's arguments and the path that they were read from. Tries the cached PID, then the
    /// processes in kubelet's cgroup, then all processes (at most once a minute).
    fn find(&mut self, roots: &Roots, now_ns: u64) -> Option<(Vec<String>, String)> {
        let cgroup = ["fs/cgroup", "fs/cgroup/systemd"].iter().find_map(|root| {
            let procs = format!("{root}/system.slice/kubelet.service/cgroup.procs");
            GuestFile::Sys(&procs).read(roots, MAX_FILE_BYTES).ok()
        });
        let near = cgroup.unwrap_or_default();
        let near = near.lines().filter_map(|line| line.parse().ok());
        if let Some((pid, found)) = self
            .pid
            .into_iter()
            .chain(near)
            .find_map(|pid| Self::read(roots, pid))
        {
            self.pid = Some(pid);
            return Some(found);
        }
        self.pid = None;
        if self
            .searched_ns
            .is_some_and(|last| now_ns.saturating_sub(last) < SEARCH_INTERVAL_NS)
        {
            return None;
        }
        self.searched_ns = Some(now_ns);
        let names = list(&roots.procfs).unwrap_or_default();
        let mut pids = names.iter().filter_map(|name| name.parse().ok());
        let (pid, found) = pids.find_map(|pid| Self::read(roots, pid))?;
        self.pid = Some(pid);
        Some(found)
    }

    fn read(roots: &Roots, pid: u32) -> Option<(u32, (Vec<String>, String))> {
        let comm = GuestFile::Proc(&format!("{pid}/comm"))
            .read(roots, MAX_FILE_BYTES)
            .ok()?;
        if !["kubelet", "hyperkube"].contains(&comm.trim()) {
            return None;
        }
        let path = format!("{pid}/cmdline");
        let bytes = read_bounded(&roots.proc(&path), 2 * MAX_FILE_BYTES).ok()?;
        Some((pid, (command_line(&bytes)?, format!("/proc/{path}"))))
    }
}

pub(super) fn fill(claims: &mut Claims, reader: &FieldReader<'_>, finder: &mut Finder, now_ns: u64) {
    let roots = reader.roots;
    let (settings, source) = finder
        .find(roots, now_ns)
        .map(|(line, source)| (arguments(&line), source))
        .or_else(|| from_unit(roots))
        .unwrap_or_else(|| from_environment_files(roots));
    let from = |value: Option<String>| value.map(|value| Sourced::new(value, source.clone()));
    claims.kubelet_labels = settings
        .labels
        .into_iter()
        .map(|(key, value)| (key, Sourced::new(value, source.clone())))
        .collect();
    claims.kubelet_node_name = from(settings.node_name);
    claims.provider_id = from(settings.provider_id)
        .or_else(|| from_configuration(roots, settings.config, settings.config_dir));
}

fn from_unit(roots: &Roots) -> Option<(KubeletConfig, String)> {
    let mut service = Service::default();
    let mut source = None;
    for directory in UNITS.iter().rev() {
        let path = format!("{directory}/kubelet.service");
        if let Ok(text) = GuestFile::Root(&path).read(roots, MAX_FILE_BYTES) {
            service.read(&text);
            source = Some(path);
            break;
        }
    }
    // For each name the file with the highest precedence, in the order of the names.
    let mut drop_ins = std::collections::BTreeMap::new();
    for directory in UNITS {
        let directory = format!("{directory}/kubelet.service.d");
        for name in list(&roots.root(&directory)).unwrap_or_default() {
            if is_drop_in(&name) {
                drop_ins.insert(name.clone(), format!("{directory}/{name}"));
            }
        }
    }
    for path in drop_ins.into_values() {
        if let Ok(text) = GuestFile::Root(&path).read(roots, MAX_FILE_BYTES) {
            service.read(&text);
            source = Some(path);
        }
    }
    let mut environment = service.environment.clone();
    for path in &service.environment_files {
        if let Ok(text) = GuestFile::Root(path).read(roots, MAX_FILE_BYTES) {
            environment.extend(environment_file(&text));
        }
    }
    service.exec_start.as_ref()?;
    Some((arguments(&service.arguments(&environment)), source?))
}

fn from_environment_files(roots: &Roots) -> (KubeletConfig, String) {
    let mut line = Vec::new();
    let mut sources = Vec::new();
    for path in ENVIRONMENT_FILES {
        if let Ok(text) = GuestFile::Root(path).read(roots, MAX_FILE_BYTES) {
            line.extend(environment_file(&text).values().flat_map(|value| words(value)));
            sources.push(path);
        }
    }
    (arguments(&line), sources.join(", "))
}

/// Drop-ins (kubelet's `--config-dir`, `*.conf`) override the configuration file; the last name has
/// the highest precedence.
fn from_configuration(
    roots: &Roots,
    file: Option<String>,
    directory: Option<String>,
) -> Option<Sourced<String>> {
    let mut files = vec![file.unwrap_or_else(|| CONFIGURATION.to_owned())];
    if let Some(directory) = directory {
        let names = list(&roots.root(&directory)).unwrap_or_default();
        let names = names.into_iter().filter(|name| is_drop_in(name));
        files.extend(names.map(|name| format!("{directory}/{name}")));
    }
    files.into_iter().rev().find_map(|path| {
        let text = GuestFile::Root(&path).read(roots, MAX_FILE_BYTES).ok()?;
        let id = configuration(&text).ok()?.provider_id?;
        Some(Sourced::new(id, path))
    })
}

fn is_drop_in(name: &str) -> bool {
    std::path::Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "conf")
}

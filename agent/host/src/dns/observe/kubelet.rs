//! kubelet's DNS settings. Its command line overrides its configuration file, as in kubelet.

use virtfleet_agent_core::dns::{ours, seen::Kubelet};
use virtfleet_wire::layered::{Node, parse_yaml};

use super::{MAX_FILE_BYTES, given::ends, processes::Processes};
use crate::{Roots, list, read_text};

/// Configuration files, used if the command line sets none: kubeadm, KKP and Gardener; EKS; k0s and
/// others.
const CONFIGURATIONS: [&str; 4] = [
    "/var/lib/kubelet/config.yaml",
    "/var/lib/kubelet/config/kubelet",
    "/etc/kubernetes/kubelet.conf.yaml",
    "/etc/kubernetes/kubelet/kubelet-config.json",
];
/// Directories of its unit and drop-ins.
const UNITS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
];
/// Files with arguments that units include.
const ARGUMENTS: [&str; 3] = [
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
];
const COMMAND_LINE: &str = "kubelet's command line";

/// kubelet's settings. `None` if there are none.
pub(super) fn kubelet(roots: &Roots, processes: &Processes) -> Option<Kubelet> {
    let running: Vec<String> = processes.args("kubelet").flatten().cloned().collect();
    // If kubelet does not run, the command line from its unit.
    let words = if running.is_empty() {
        written(roots)
    } else {
        running
    };
    let flag = |name: &str| flag(&words, name);
    let paths = flag("--config")
        .into_iter()
        .chain(CONFIGURATIONS.map(str::to_owned));
    let file = paths
        .into_iter()
        .find_map(|path| Some((document(roots, &path)?, path)));
    let config_dir = flag("--config-dir").filter(|folder| folder.starts_with('/'));
    // The last one that sets it has precedence.
    let drop_ins = drop_ins(roots, config_dir.as_deref());
    let ours = |path: &str| ours::is_kubelet_drop_in(path);
    let documents = || file.iter().chain(&drop_ins).rev();
    let from_file = |key: &str| documents().find_map(|(document, _)| word(document, key));
    let listed = |key: &str| -> Vec<String> {
        let value = documents().find_map(|(document, _)| document.get(key));
        let json = value.map(Node::to_json);
        let items = json
            .as_ref()
            .and_then(|json| json.as_array())
            .into_iter()
            .flatten();
        items
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect()
    };
    let (dns, domain, resolv) = (
        flag("--cluster-dns"),
        flag("--cluster-domain"),
        flag("--resolv-conf"),
    );
    let by_flags = dns.is_some() || domain.is_some() || resolv.is_some();
    let path = match (&file, by_flags) {
        (Some((_, path)), false) => path.clone(),
        (Some((_, path)), true) => format!("{path} and {COMMAND_LINE}"),
        (None, true) => COMMAND_LINE.to_owned(),
        (None, false) if processes.runs("kubelet") => COMMAND_LINE.to_owned(),
        (None, false) => return None,
    };
    let servers = dns.map_or_else(
        || listed("clusterDNS"),
        |list| list.split(',').map(str::to_owned).collect(),
    );
    let others = documents().filter(|(_, path)| !ours(path));
    let others = resolv.clone().or_else(|| {
        others
            .clone()
            .find_map(|(document, _)| word(document, "resolvConf"))
    });
    let text = |path: &String| read_text(&roots.root_file(path), MAX_FILE_BYTES).ok();
    Some(Kubelet {
        path,
        text: others
            .as_ref()
            .filter(|path| path.starts_with('/'))
            .and_then(text),
        others,
        by_flag: resolv.is_some(),
        flag_in: resolv.as_ref().and_then(|_| flag_in(roots)),
        config: file.as_ref().map(|(_, path)| path.clone()),
        config_dir,
        started_ns: processes.started_ns("kubelet"),
        cluster_dns: servers
            .iter()
            .filter_map(|word| word.trim().parse().ok())
            .collect(),
        cluster_domain: domain
            .or_else(|| from_file("clusterDomain"))
            .filter(|domain| !domain.is_empty()),
        resolv_conf: resolv.or_else(|| from_file("resolvConf")),
    })
}

/// A configuration file. JSON is valid YAML.
fn document(roots: &Roots, path: &str) -> Option<Node> {
    let text = read_text(&roots.root_file(path), MAX_FILE_BYTES).ok()?;
    parse_yaml(&text).ok()?.into_iter().next()
}

fn word(document: &Node, key: &str) -> Option<String> {
    document.get(key).and_then(Node::as_str).map(str::to_owned)
}

/// Drop-ins by name, which kubelet merges after its file.
fn drop_ins(roots: &Roots, folder: Option<&str>) -> Vec<(Node, String)> {
    let Some(folder) = folder.map(|folder| folder.trim_end_matches('/')) else {
        return Vec::new();
    };
    let mut names = list(&roots.root(folder)).unwrap_or_default();
    names.retain(|name| ends(name, "conf"));
    names.sort();
    let paths = names.into_iter().map(|name| format!("{folder}/{name}"));
    paths
        .filter_map(|path| Some((document(roots, &path)?, path)))
        .collect()
}

/// The value of `--name=value` or `--name value`; the last one has precedence.
fn flag(words: &[String], name: &str) -> Option<String> {
    let mut value = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix(name) {
            Some("") => value = words.next().cloned().or(value),
            Some(rest) => value = rest.strip_prefix('=').map(str::to_owned).or(value),
            None => {}
        }
    }
    value
}

/// Words of kubelet's unit, its drop-ins and the argument files that units include. Sufficient to
/// find flags: an unused variable counts as used.
fn written(roots: &Roots) -> Vec<String> {
    unit_files(roots)
        .into_iter()
        .flat_map(|(_, words)| words)
        .collect()
}

/// The file that contains `--resolv-conf`.
fn flag_in(roots: &Roots) -> Option<String> {
    let mut files = unit_files(roots).into_iter().rev();
    let has = |words: &[String]| words.iter().any(|word| word.starts_with("--resolv-conf"));
    files.find(|(_, words)| has(words)).map(|(path, _)| path)
}

fn unit_files(roots: &Roots) -> Vec<(String, Vec<String>)> {
    let mut paths = Vec::new();
    for folder in UNITS {
        paths.push(format!("{folder}/kubelet.service"));
        let drop_ins = format!("{folder}/kubelet.service.d");
        let names = list(&roots.root(&drop_ins)).unwrap_or_default();
        paths.extend(names.into_iter().map(|name| format!("{drop_ins}/{name}")));
    }
    let read = |path: String| Some((read_text(&roots.root_file(&path), MAX_FILE_BYTES).ok()?, path));
    let units: Vec<(String, String)> = paths.into_iter().filter_map(read).collect();
    let mut arguments: Vec<String> = ARGUMENTS.map(str::to_owned).to_vec();
    for path in units.iter().flat_map(|(text, _)| environment_files(text)) {
        if !arguments.contains(&path) {
            arguments.push(path);
        }
    }
    let split = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\');
    let arguments: Vec<(String, String)> = arguments.into_iter().filter_map(read).collect();
    units
        .into_iter()
        .chain(arguments)
        .map(|(text, path)| {
            let plain: Vec<String> = text
                .lines()
                .filter(|line| !line.trim_start().starts_with(['#', ';']))
                .flat_map(|line| line.split(split))
                // `KUBELET_EXTRA_ARGS=--resolv-conf=…`
                .map(|word| word.find("=--").map_or(word, |at| &word[at + 1..]))
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect();
            (path, plain)
        })
        .collect()
}

/// Paths of a unit's `EnvironmentFile=`, without the `-` that makes one optional (systemd.exec(5)).
fn environment_files(text: &str) -> impl Iterator<Item = String> {
    let values = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("EnvironmentFile="));
    let paths = values.map(|value| value.trim().trim_matches('"').trim_start_matches('-').to_owned());
    paths.filter(|path| path.starts_with('/'))
}

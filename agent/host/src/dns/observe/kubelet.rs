//! What kubelet is told about DNS: its command line wins over its configuration file, as kubelet has it.

use virtfleet_agent_core::dns::{ours, seen::Kubelet};
use virtfleet_wire::layered::{Node, parse_yaml};

use super::{CAP, given::ends, processes::Processes};
use crate::{Roots, list, read_text};

/// Where its configuration lies when its command line does not say: kubeadm, KKP and Gardener; EKS; k0s and others.
const CONFIGURATIONS: [&str; 4] = [
    "/var/lib/kubelet/config.yaml",
    "/var/lib/kubelet/config/kubelet",
    "/etc/kubernetes/kubelet.conf.yaml",
    "/etc/kubernetes/kubelet/kubelet-config.json",
];
/// Where its unit lies, with its drop-ins.
const UNITS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
];
/// Files of arguments that units name.
const ARGUMENTS: [&str; 3] = [
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
];
const COMMAND_LINE: &str = "kubelet's command line";

/// What it is told; none when nothing of it is there.
pub(super) fn kubelet(roots: &Roots, processes: &Processes) -> Option<Kubelet> {
    let running: Vec<String> = processes.args("kubelet").flatten().cloned().collect();
    // As long as it does not run, what its unit says.
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
    // The last one that says it counts.
    let drop_ins = drop_ins(roots, config_dir.as_deref());
    let ours = |path: &str| ours::is_kubelet_drop_in(path);
    let documents = || file.iter().chain(&drop_ins).rev();
    let said = |key: &str| documents().find_map(|(document, _)| word(document, key));
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
    let text = |path: &String| read_text(&roots.root_file(path), CAP).ok();
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
            .or_else(|| said("clusterDomain"))
            .filter(|domain| !domain.is_empty()),
        resolv_conf: resolv.or_else(|| said("resolvConf")),
    })
}

/// A configuration file. JSON is YAML.
fn document(roots: &Roots, path: &str) -> Option<Node> {
    let text = read_text(&roots.root_file(path), CAP).ok()?;
    parse_yaml(&text).ok()?.into_iter().next()
}

fn word(document: &Node, key: &str) -> Option<String> {
    document.get(key).and_then(Node::as_str).map(str::to_owned)
}

/// Its drop-ins, by their names, as it merges them behind its file.
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

/// The value of `--name=value` or `--name value`; the last one counts.
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

/// The words of kubelet's unit, of its drop-ins and of the files of arguments that units name. Good enough to find flags: a variable that is never
/// used is taken for used.
fn written(roots: &Roots) -> Vec<String> {
    unit_files(roots)
        .into_iter()
        .flat_map(|(_, words)| words)
        .collect()
}

/// The file in which `--resolv-conf` stands.
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
    let read = |path: String| Some((read_text(&roots.root_file(&path), CAP).ok()?, path));
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

/// The paths of a unit's `EnvironmentFile=`, without the `-` that lets one be missing (systemd.exec(5)).
fn environment_files(text: &str) -> impl Iterator<Item = String> {
    let values = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("EnvironmentFile="));
    let paths = values.map(|value| value.trim().trim_matches('"').trim_start_matches('-').to_owned());
    paths.filter(|path| path.starts_with('/'))
}

//! Whether links may be configured anew. networkd drops the routes and rules of others when it does so (unless `ManageForeignRoutes=no` and
//! `ManageForeignRoutingPolicyRules=no`), and those of a container network do not come back by themselves.

use serde_json::Value;
use virtfleet_agent_core::dns::seen::{Link, Manager};

use super::{ASKED, CAP, files::FOLDERS, given::ends, processes::Processes};
use crate::{Commands, Roots, Tool, list, read_text};

/// Who makes routes of networkd's, of the kernel's, or of somebody's who asks networkd's clients: rtnetlink(7), `/etc/iproute2/rt_protos`. `boot` is what `ip route add` says.
const ROUTES: [&str; 6] = ["kernel", "redirect", "ra", "dhcp", "boot", "static"];
/// The same of rules. A rule by hand says `unspec` or `boot`, and networkd drops it, too.
const RULES: [&str; 2] = ["kernel", "static"];

/// Who makes the guest a node: kubelet, or what has it within (k3s, MicroK8s).
const NODES: [&str; 4] = ["kubelet", "k3s-server", "k3s-agent", "kubelite"];

/// Why not; none when they may. What cannot be found out is a reason, too.
pub(super) fn live(
    roots: &Roots,
    commands: &dyn Commands,
    processes: &Processes,
    links: &[Link],
) -> Option<String> {
    let by_networkd = |link: &Link| link.manager == Manager::Networkd;
    if !links.iter().any(by_networkd) {
        return None;
    }
    if let Some(node) = NODES.iter().find(|program| processes.runs(program)) {
        return Some(format!("{node} runs"));
    }
    // Before the bus is there nobody's container network is, and without it no link could be told anything at run time.
    let early =
        roots.root("/run/systemd/system").is_dir() && !roots.root("/run/dbus/system_bus_socket").exists();
    let foreign = |what: &str, args: &[&str], known: &[&str]| {
        let tool = Tool::new("ip").args(args).deadline(ASKED);
        let said = commands.check(&tool).ok();
        match said.and_then(|done| foreign(&done.stdout, known).ok()) {
            Some(found) => found.map(|protocol| {
                format!("there are {what} of protocol {protocol}, which networkd would drop")
            }),
            None if early => None,
            None => Some(format!(
                "it is not known which {what} there are that networkd would drop, as `ip` does not say"
            )),
        }
    };
    let (routes, rules) = dropped(roots);
    let route = || foreign("routes", &["-json", "route", "show", "table", "all"], &ROUTES);
    let rule = || {
        let six = roots.proc("net/if_inet6").exists();
        foreign("rules", &["-json", "-details", "rule", "show"], &RULES).or_else(|| {
            six.then(|| foreign("rules", &["-6", "-json", "-details", "rule", "show"], &RULES))
                .flatten()
        })
    };
    let route = routes.then(route).flatten();
    route.or_else(|| rules.then(rule).flatten())
}

/// The protocol of one that is none of these. Errors: it is no list of them. Nothing at all is an empty list.
fn foreign(json: &str, known: &[&str]) -> Result<Option<String>, serde_json::Error> {
    let json = if json.trim().is_empty() { "[]" } else { json };
    let all: Vec<Value> = serde_json::from_str(json)?;
    let mut protocols = all.iter().filter_map(|one| match one.get("protocol")? {
        Value::String(word) => Some(word.clone()),
        other => Some(other.to_string()),
    });
    Ok(protocols.find(|protocol| !known.contains(&protocol.as_str())))
}

/// Whether networkd drops the routes of others, and their rules: networkd.conf(5), its drop-ins by their names, the last one counts.
fn dropped(roots: &Roots) -> (bool, bool) {
    let mut texts = Vec::new();
    let first = FOLDERS.iter().find_map(|folder| {
        let path = format!("{folder}/networkd.conf");
        read_text(&roots.root(path), CAP).ok()
    });
    let mut drop_ins: Vec<(String, String)> = Vec::new();
    for folder in FOLDERS {
        let folder = format!("{folder}/networkd.conf.d");
        for name in list(&roots.root(&folder)).unwrap_or_default() {
            if ends(&name, "conf") && !drop_ins.iter().any(|(other, _)| *other == name) {
                let text = read_text(&roots.root(format!("{folder}/{name}")), CAP).unwrap_or_default();
                drop_ins.push((name, text));
            }
        }
    }
    drop_ins.sort();
    texts.extend(first);
    texts.extend(drop_ins.into_iter().map(|(_, text)| text));
    let mut dropped = (true, true);
    for line in texts.iter().flat_map(|text| text.lines()) {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let yes = !matches!(value.trim(), "no" | "false" | "0" | "off" | "n" | "f");
        match key.trim() {
            "ManageForeignRoutes" => dropped.0 = yes,
            "ManageForeignRoutingPolicyRules" => dropped.1 = yes,
            _ => {}
        }
    }
    dropped
}

//! Whether links may be reconfigured. networkd then removes foreign routes and rules (unless
//! `ManageForeignRoutes=no` and `ManageForeignRoutingPolicyRules=no`), and those of a container
//! network are not restored.

use serde_json::Value;
use virtfleet_agent_core::dns::seen::{Link, Manager};

use super::{MAX_FILE_BYTES, QUERY_TIMEOUT, files::FOLDERS, given::ends, processes::Processes};
use crate::{Commands, ReadError, Roots, Tool, list, read_text};

/// Protocols of routes from networkd, the kernel, or clients of networkd: rtnetlink(7),
/// `/etc/iproute2/rt_protos`. `ip route add` uses `boot`.
const OWN_ROUTE_PROTOCOLS: [&str; 6] = ["kernel", "redirect", "ra", "dhcp", "boot", "static"];
/// Protocols of such rules. A manually added rule has `unspec` or `boot`, and networkd removes it
/// too.
const OWN_RULE_PROTOCOLS: [&str; 2] = ["kernel", "static"];

/// Programs that make the guest a node: kubelet, or a program that includes it (k3s, MicroK8s).
const NODE_PROGRAMS: [&str; 4] = ["kubelet", "k3s-server", "k3s-agent", "kubelite"];

/// Whether a program runs that makes the guest a node, in a container too. An unknown state counts
/// as yes.
pub fn is_node(roots: &Roots) -> bool {
    let ids = match list(&roots.procfs) {
        Ok(ids) => ids,
        Err(error) => return !matches!(error, ReadError::Missing),
    };
    ids.iter()
        .filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|id| read_text(&roots.proc(id).join("comm"), 64).ok())
        .any(|comm| NODE_PROGRAMS.contains(&comm.trim_end()))
}

fn running(processes: &Processes) -> Option<&'static str> {
    NODE_PROGRAMS.into_iter().find(|program| processes.runs(program))
}

/// Why links must not be reconfigured; `None` if they may. An unknown state is a reason too.
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
    if let Some(node) = running(processes) {
        return Some(format!("{node} runs"));
    }
    // In early boot, before the bus exists, there is no container network yet, and no runtime
    // configuration is possible.
    let early =
        roots.root("/run/systemd/system").is_dir() && !roots.root("/run/dbus/system_bus_socket").exists();
    let foreign = |what: &str, args: &[&str], known: &[&str]| {
        let tool = Tool::new("ip").args(args).deadline(QUERY_TIMEOUT);
        let listed = commands.check(&tool).ok();
        match listed.and_then(|done| foreign(&done.stdout, known).ok()) {
            Some(found) => found.map(|protocol| {
                format!("there are {what} of protocol {protocol}, which networkd would remove")
            }),
            None if early => None,
            None => Some(format!(
                "it is unknown which {what} networkd would remove, because `ip` did not list them"
            )),
        }
    };
    let (routes, rules) = dropped(roots);
    let route = || {
        foreign(
            "routes",
            &["-json", "route", "show", "table", "all"],
            &OWN_ROUTE_PROTOCOLS,
        )
    };
    let rule = || {
        let six = roots.proc("net/if_inet6").exists();
        foreign(
            "rules",
            &["-json", "-details", "rule", "show"],
            &OWN_RULE_PROTOCOLS,
        )
        .or_else(|| {
            six.then(|| {
                foreign(
                    "rules",
                    &["-6", "-json", "-details", "rule", "show"],
                    &OWN_RULE_PROTOCOLS,
                )
            })
            .flatten()
        })
    };
    let route = routes.then(route).flatten();
    route.or_else(|| rules.then(rule).flatten())
}

/// The protocol of a route or rule that is in none of the known ones. Empty output is an empty
/// list.
fn foreign(json: &str, known: &[&str]) -> Result<Option<String>, serde_json::Error> {
    let json = if json.trim().is_empty() { "[]" } else { json };
    let all: Vec<Value> = serde_json::from_str(json)?;
    let mut protocols = all.iter().filter_map(|one| match one.get("protocol")? {
        Value::String(word) => Some(word.clone()),
        other => Some(other.to_string()),
    });
    Ok(protocols.find(|protocol| !known.contains(&protocol.as_str())))
}

/// Whether networkd removes foreign routes, and foreign rules: networkd.conf(5) and its drop-ins by
/// name; the last one has precedence.
fn dropped(roots: &Roots) -> (bool, bool) {
    let mut texts = Vec::new();
    let first = FOLDERS.iter().find_map(|folder| {
        let path = format!("{folder}/networkd.conf");
        read_text(&roots.root(path), MAX_FILE_BYTES).ok()
    });
    let mut drop_ins: Vec<(String, String)> = Vec::new();
    for folder in FOLDERS {
        let folder = format!("{folder}/networkd.conf.d");
        for name in list(&roots.root(&folder)).unwrap_or_default() {
            if ends(&name, "conf") && !drop_ins.iter().any(|(other, _)| *other == name) {
                let text =
                    read_text(&roots.root(format!("{folder}/{name}")), MAX_FILE_BYTES).unwrap_or_default();
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

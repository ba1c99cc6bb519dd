//! The input: `kind: Delivery`, validated with file and line.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use virtfleet_wire::{
    layered::{Expect, Fragment, Origins, Problem, load, parse_yaml},
    settings::{AgentConfig, CONFIG_API_VERSION, Span},
};

use crate::payload::{OWN, TLS_PATHS};

/// Kinds of machines for which the agent is built, as `uname -m` prints them.
pub const MACHINES: [&str; 2] = ["x86_64", "aarch64"];

/// The input's `kind`.
pub const DELIVERY_KIND: &str = "Delivery";

/// Brings the agent into a guest at its first boot, and keeps it installed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Delivery {
    /// Always `virtfleet.io/v1alpha1`.
    pub api_version: String,
    /// Always `Delivery`.
    pub kind: String,
    /// The platform that runs the VMs, which determines some defaults of the settings.
    pub platform: Platform,
    /// The agent's binary. Absent if the image has the agent; then only settings and files are
    /// delivered.
    pub agent: Option<Agent>,
    /// The agent's settings, as in `kind: AgentConfig`, without its header.
    pub settings: AgentConfig,
    /// The agent's certificates: issued by a collector, or delivered with their key.
    pub tls: Option<Tls>,
    /// Additional files.
    pub files: Vec<Extra>,
    /// Maximum time that a boot waits for the agent, 10s to 10m. Afterwards the delivery is retried
    /// in the background.
    pub wait: Span,
    /// Make the next boot a first boot again (`cloud-init clean`, at most twice) if a power cut
    /// during the first boot left cloud-init's own files empty, so that the network never comes up.
    /// Only before any user command has run.
    pub repair_cloud_init: bool,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            api_version: CONFIG_API_VERSION.to_owned(),
            kind: DELIVERY_KIND.to_owned(),
            platform: Platform::default(),
            agent: None,
            settings: AgentConfig::default(),
            tls: None,
            files: Vec::new(),
            wait: Span::seconds(90),
            repair_cloud_init: true,
        }
    }
}

/// The platform that runs the VMs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// KubeVirt, independent of the tool that creates the VMs.
    #[default]
    Kubevirt,
    /// Kubermatic KKP: each secondary disk is a clone of the OS image (machine-controller,
    /// `getDataVolumeTemplates`). A disk of the settings without `content` gets `content:
    /// image-clone`.
    Kkp,
}

/// The agent's binary: its SHA-256 and its sources, or those of each kind of machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Agent {
    /// Its SHA-256, 64 hexadecimal digits. Either this or `file`.
    pub sha256: Option<String>,
    /// A copy next to this file, used to compute the SHA-256 at render time. It is not delivered.
    pub file: Option<String>,
    /// Its version, for display.
    pub version: Option<String>,
    /// Its sources, tried in this order.
    pub sources: Vec<Source>,
    /// In place of `sha256` or `file`, and of `sources`: the binary for each kind of machine,
    /// `x86_64` and `aarch64`, as `uname -m` prints it in the guest.
    pub machines: BTreeMap<String, MachineAgent>,
}

/// The agent's binary for one kind of machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MachineAgent {
    /// As `agent.sha256`.
    pub sha256: Option<String>,
    /// As `agent.file`.
    pub file: Option<String>,
    /// As `agent.sources`.
    pub sources: Vec<Source>,
}

/// A source of the binary: exactly one of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Source {
    /// An attached disk with a filesystem.
    pub disk: Option<Disk>,
    /// A URL: `https://`, `http://` or `file://`.
    pub url: Option<String>,
}

/// A file on a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Disk {
    /// The filesystem's label, as in `/dev/disk/by-label`.
    pub label: String,
    /// The file's path on the disk.
    pub path: String,
}

/// The agent's certificates: issued by a collector, or delivered with their key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Tls {
    /// A collector issues the agent's certificate, for a key that the agent makes in the guest. The
    /// rendered user-data then contains no secret.
    pub enrolment: bool,
    /// A PEM file next to this one: the agent's certificate and its chain. Not with `enrolment`.
    pub certificate: String,
    /// A PEM file next to this one: the certificate's private key. Not with `enrolment`.
    pub key: String,
    /// A PEM file next to this one: the authorities whose clients are authorized. Absent with
    /// `enrolment`: virtfleetctl reads the fleet's from the collector, or from `--fleet-ca`.
    #[serde(rename = "clientCA")]
    pub client_ca: String,
}

/// A file for the guest. Exactly one of `content` and `from`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Extra {
    /// Its path in the guest.
    pub path: String,
    /// Its permission bits in octal, quoted; default "0644".
    pub mode: Option<String>,
    /// Its content.
    pub content: Option<String>,
    /// A file next to the input with the content.
    pub from: Option<String>,
}

impl Extra {
    /// The permission bits, if they are valid.
    pub fn bits(&self) -> Option<u32> {
        let text = self.mode.as_deref().unwrap_or("0644");
        u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777)
    }
}

/// A valid input.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The input.
    pub delivery: Delivery,
    /// The settings as written, without defaults and header; null if there are none.
    pub settings: Value,
    /// Keys that earlier versions had.
    pub ignored: Vec<Problem>,
    /// File and line of each value.
    pub origins: Origins,
}

/// `/usr`, and the folders that are links into it.
const USR: [&str; 5] = ["/usr/", "/bin/", "/lib/", "/lib64/", "/sbin/"];

impl Checked {
    /// Why `files` cannot be written where Ignition configures the system: `/usr` is read-only
    /// there, and a machine on which Ignition fails does not boot.
    pub fn below_usr(&self) -> Vec<Problem> {
        let files = self.delivery.files.iter().enumerate();
        let below = files.filter(|(_, extra)| USR.iter().any(|folder| extra.path.starts_with(folder)));
        below
            .map(|(index, _)| {
                let path = format!("files[{index}].path");
                let message = "/usr is read-only on Flatcar and Fedora CoreOS, also by its links /bin, /lib, /lib64 and /sbin, and a \
                               machine whose Ignition fails does not boot; use /etc, /opt or /var (settings: /etc/virtfleet; \
                               Fedora CoreOS: /var/usrlocal for /usr/local)";
                Problem::at(&self.origins.of(&path), &path, message.to_owned())
            })
            .collect()
    }
}

/// Parses an input. `file` is its name for messages.
///
/// # Errors
/// All problems, each with its line.
pub fn read(file: &str, text: &str) -> Result<Checked, Vec<Problem>> {
    let fragment = Fragment {
        file: file.to_owned(),
        text: text.to_owned(),
    };
    let expect = Expect {
        api_version: CONFIG_API_VERSION,
        kind: DELIVERY_KIND,
    };
    let loaded = load::<Delivery>(&[fragment], expect, &[]);
    let mut problems = loaded.problems;
    if problems.is_empty() {
        problems = check(&loaded.value, &loaded.origins);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    // It was parsed before, so this cannot fail.
    let documents = parse_yaml(text).unwrap_or_default();
    let settings = documents.first().and_then(|document| document.get("settings"));
    Ok(Checked {
        settings: settings.map_or(Value::Null, virtfleet_wire::layered::Node::to_json),
        delivery: loaded.value,
        ignored: loaded.ignored,
        origins: loaded.origins,
    })
}

/// Validation beyond the types.
fn check(delivery: &Delivery, origins: &Origins) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut say = |path: &str, message: String| {
        problems.push(Problem::at(&origins.of(path), path, message));
    };
    if let Some(agent) = &delivery.agent {
        check_agent(agent, &mut say);
    }
    if let Some(tls) = &delivery.tls {
        for (key, file, enrols) in [
            ("certificate", &tls.certificate, false),
            ("key", &tls.key, false),
            ("clientCA", &tls.client_ca, true),
        ] {
            let message = match (tls.enrolment, file.is_empty()) {
                (false, true) => "required: the name of a PEM file next to this one",
                (true, false) if !enrols => {
                    "remove it: with tls.enrolment a collector issues the certificate"
                }
                _ => continue,
            };
            say(&format!("tls.{key}"), message.to_owned());
        }
        let named = &delivery.settings.server.tls;
        if named.certificate.is_some() || named.key.is_some() || named.client_ca.is_some() {
            let message = "tls delivers these files and sets them; remove certificate, key and clientCA here";
            say("settings.server.tls", message.to_owned());
        }
    }
    let mut paths = BTreeSet::new();
    for (index, extra) in delivery.files.iter().enumerate() {
        let at = |key: &str| format!("files[{index}].{key}");
        if let Some(message) = refused(&extra.path) {
            say(&at("path"), message);
        } else if !paths.insert(&extra.path) {
            say(&at("path"), format!("{} is listed twice", extra.path));
        }
        if extra.bits().is_none() {
            let message = "permission bits in octal between quotes, such as \"0644\"";
            say(&at("mode"), message.to_owned());
        }
        if extra.content.is_some() == extra.from.is_some() {
            say(
                &format!("files[{index}]"),
                "set either content or from".to_owned(),
            );
        }
    }
    let seconds = delivery.wait.0.as_secs();
    if !(10..=600).contains(&seconds) {
        say("wait", format!("{} is not between 10s and 10m", delivery.wait));
    }
    problems
}

fn check_agent(agent: &Agent, say: &mut impl FnMut(&str, String)) {
    if agent
        .version
        .as_deref()
        .is_some_and(|version| version.is_empty() || !version.bytes().all(|b| b.is_ascii_graphic()))
    {
        say("agent.version", "one word, such as 0.1.0".to_owned());
    }
    if agent.machines.is_empty() {
        check_binary(
            "agent",
            agent.sha256.as_ref(),
            agent.file.as_ref(),
            &agent.sources,
            say,
        );
        return;
    }
    if agent.sha256.is_some() || agent.file.is_some() || !agent.sources.is_empty() {
        let message =
            "with agent.machines, set sha256 or file, and sources, of each machine there and not here";
        say("agent", message.to_owned());
    }
    for (machine, binary) in &agent.machines {
        let at = format!("agent.machines.{machine}");
        if !MACHINES.contains(&machine.as_str()) {
            let message = format!(
                "there is no agent for {machine:?}; use {}, as `uname -m` prints it",
                MACHINES.join(" or ")
            );
            say(&at, message);
        }
        check_binary(
            &at,
            binary.sha256.as_ref(),
            binary.file.as_ref(),
            &binary.sources,
            say,
        );
    }
}

/// `at` is the path of these values in the input.
fn check_binary(
    at: &str,
    sha256: Option<&String>,
    file: Option<&String>,
    sources: &[Source],
    say: &mut impl FnMut(&str, String),
) {
    match (sha256, file) {
        (Some(sum), None) if sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit()) => {}
        (Some(_), None) => say(
            &format!("{at}.sha256"),
            "not 64 hexadecimal digits as printed by `sha256sum`".to_owned(),
        ),
        (None, Some(_)) => {}
        _ => say(
            at,
            "set either sha256 or file (from which the SHA-256 is computed)".to_owned(),
        ),
    }
    if sources.is_empty() {
        say(
            &format!("{at}.sources"),
            "empty: set at least one disk or url with the binary".to_owned(),
        );
    }
    for (index, source) in sources.iter().enumerate() {
        let at = format!("{at}.sources[{index}]");
        match (&source.disk, &source.url) {
            (Some(disk), None) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                if disk.label.is_empty() || disk.label.len() > 32 || !disk.label.chars().all(plain) {
                    let message = "a label of letters, digits, `.`, `_` and `-`, at most 32";
                    say(&format!("{at}.disk.label"), message.to_owned());
                }
                let steps = || disk.path.trim_start_matches('/').split('/');
                if steps().any(|step| matches!(step, "" | "." | "..")) || !printable(&disk.path) {
                    let message = "the path of a file on that disk, such as virtfleet-agent";
                    say(&format!("{at}.disk.path"), message.to_owned());
                }
            }
            (None, Some(url)) => {
                let known = ["https://", "http://", "file:///"]
                    .iter()
                    .any(|scheme| url.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
                if !known || !url.bytes().all(|b| b.is_ascii_graphic()) {
                    let message =
                        format!("{url:?} is not a URL such as https://mirror.example/virtfleet-agent");
                    say(&format!("{at}.url"), message);
                }
            }
            _ => say(&at, "set either disk or url".to_owned()),
        }
    }
}

fn printable(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
}

/// Why a path in the guest is not allowed.
fn refused(path: &str) -> Option<String> {
    let well_formed = path
        .strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(|step| !matches!(step, "" | "." | "..")))
        && path
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/._-@+=:,".contains(&b));
    if !well_formed {
        return Some(format!(
            "{path:?} is not an absolute path of letters, digits and `._-@+=:,` without `.`, `..` and double `/`"
        ));
    }
    if path.starts_with("/var/lib/cloud/") {
        return Some("`cloud-init clean` removes everything below /var/lib/cloud".to_owned());
    }
    let temporary = ["/run/", "/tmp/", "/dev/", "/proc/", "/sys/"];
    if temporary.iter().any(|folder| path.starts_with(folder)) {
        return Some("this folder is empty after each boot; use a persistent one".to_owned());
    }
    let ours = OWN.contains(&path) || TLS_PATHS.contains(&path) || path.starts_with("/opt/virtfleet/");
    ours.then(|| "the delivery itself writes this file".to_owned())
}

#[cfg(test)]
mod tests;

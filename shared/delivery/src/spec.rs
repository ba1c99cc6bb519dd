//! The input: `kind: Delivery`, checked with file and line.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use virtfleet_wire::{
    layered::{Expect, Fragment, Origins, Problem, load, parse_yaml},
    settings::{AgentConfig, CONFIG_API_VERSION, Span},
};

use crate::payload::{OWN, TLS_PATHS};

/// The input's `kind`.
pub const DELIVERY_KIND: &str = "Delivery";

/// What is brought into a guest at its first boot, and kept there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Delivery {
    /// Always `virtfleet.io/v1alpha1`.
    pub api_version: String,
    /// Always `Delivery`.
    pub kind: String,
    /// What runs the VMs, where the settings depend on it.
    pub platform: Platform,
    /// The agent's binary. Leave it out when the image has the agent; then only settings and files are brought.
    pub agent: Option<Agent>,
    /// The agent's settings, as `kind: AgentConfig` has them, without its header.
    pub settings: AgentConfig,
    /// The agent's certificate, its key and the authority of its clients: files beside this one.
    pub tls: Option<Tls>,
    /// Other files.
    pub files: Vec<Extra>,
    /// How long a boot waits for the agent, 10s to 10m. Afterwards it is tried again in the background.
    pub wait: Span,
    /// Make the next boot a first boot again (`cloud-init clean`, at most twice) when a power cut in the first boot left
    /// cloud-init's own files empty, so that the network never comes up. Only before anything of the user's has run.
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

/// What runs the VMs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// KubeVirt, whoever makes the VMs.
    #[default]
    Kubevirt,
    /// Kubermatic KKP: each secondary disk is a clone of the OS image (machine-controller, `getDataVolumeTemplates`). A disk of the settings without `content` gets
    /// `content: image-clone`.
    Kkp,
}

/// The agent's binary: which one, and where from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Agent {
    /// Its SHA-256, 64 hexadecimal digits. Either this or `file`.
    pub sha256: Option<String>,
    /// A copy beside this file, from which the SHA-256 is taken when this is rendered. It is not sent along.
    pub file: Option<String>,
    /// Its version, for people.
    pub version: Option<String>,
    /// Where it is, tried in their order.
    pub sources: Vec<Source>,
}

/// One place that has the binary: exactly one of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Source {
    /// An attached disk with a filesystem.
    pub disk: Option<Disk>,
    /// An address: `https://`, `http://` or `file://`.
    pub url: Option<String>,
}

/// A file on a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Disk {
    /// The filesystem's label, as `/dev/disk/by-label` has it.
    pub label: String,
    /// The file's path on it.
    pub path: String,
}

/// Files beside the input, PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Tls {
    /// The agent's certificate and its chain.
    pub certificate: String,
    /// The certificate's private key.
    pub key: String,
    /// The authorities whose clients may read.
    #[serde(rename = "clientCA")]
    pub client_ca: String,
}

/// A file for the guest. Exactly one of `content` and `from`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Extra {
    /// Its path in the guest.
    pub path: String,
    /// Its permission bits in octal, between quotes; "0644" when left out.
    pub mode: Option<String>,
    /// Its content.
    pub content: Option<String>,
    /// A file beside the input that has its content.
    pub from: Option<String>,
}

impl Extra {
    /// The permission bits, when they are well written.
    pub fn bits(&self) -> Option<u32> {
        let text = self.mode.as_deref().unwrap_or("0644");
        u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777)
    }
}

/// An input in which everything is right.
#[derive(Debug, Clone)]
pub struct Checked {
    /// What it says.
    pub delivery: Delivery,
    /// The settings as they were written, without defaults and header; null when there are none.
    pub settings: Value,
    /// Who set what.
    pub origins: Origins,
}

/// Reads an input. `file` is its name for messages.
///
/// Errors: every problem, each with its line.
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
    // It was read before, so it can be read again.
    let documents = parse_yaml(text).unwrap_or_default();
    let settings = documents.first().and_then(|document| document.get("settings"));
    Ok(Checked {
        settings: settings.map_or(Value::Null, virtfleet_wire::layered::Node::to_json),
        delivery: loaded.value,
        origins: loaded.origins,
    })
}

/// What the types cannot say.
fn check(delivery: &Delivery, origins: &Origins) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut say = |path: &str, message: String| {
        problems.push(Problem::at(&origins.of(path), path, message));
    };
    if let Some(agent) = &delivery.agent {
        check_agent(agent, &mut say);
    }
    if let Some(tls) = &delivery.tls {
        for (key, file) in [
            ("certificate", &tls.certificate),
            ("key", &tls.key),
            ("clientCA", &tls.client_ca),
        ] {
            if file.is_empty() {
                say(
                    &format!("tls.{key}"),
                    "required: the name of a PEM file beside this one".to_owned(),
                );
            }
        }
        let named = &delivery.settings.server.tls;
        if named.certificate.is_some() || named.key.is_some() || named.client_ca.is_some() {
            let message =
                "tls brings these files and names them; take certificate, key and clientCA away here";
            say("settings.server.tls", message.to_owned());
        }
    }
    let mut paths = BTreeSet::new();
    for (index, extra) in delivery.files.iter().enumerate() {
        let at = |key: &str| format!("files[{index}].{key}");
        if let Some(message) = refused(&extra.path) {
            say(&at("path"), message);
        } else if !paths.insert(&extra.path) {
            say(&at("path"), format!("{} stands here twice", extra.path));
        }
        if extra.bits().is_none() {
            let message = "permission bits in octal between quotes, such as \"0644\"";
            say(&at("mode"), message.to_owned());
        }
        if extra.content.is_some() == extra.from.is_some() {
            say(
                &format!("files[{index}]"),
                "needs either content or from, not both".to_owned(),
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
    match (&agent.sha256, &agent.file) {
        (Some(sum), None) if sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit()) => {}
        (Some(_), None) => say(
            "agent.sha256",
            "not 64 hexadecimal digits, as `sha256sum` prints them".to_owned(),
        ),
        (None, Some(_)) => {}
        _ => say(
            "agent",
            "needs either sha256 or file (from which the sum is taken), not both".to_owned(),
        ),
    }
    if agent
        .version
        .as_deref()
        .is_some_and(|version| version.is_empty() || !version.bytes().all(|b| b.is_ascii_graphic()))
    {
        say("agent.version", "one word, such as 0.1.0".to_owned());
    }
    if agent.sources.is_empty() {
        say(
            "agent.sources",
            "empty: name at least one disk or url that has the binary".to_owned(),
        );
    }
    for (index, source) in agent.sources.iter().enumerate() {
        let at = format!("agent.sources[{index}]");
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
                        format!("{url:?} is no address such as https://mirror.example/virtfleet-agent");
                    say(&format!("{at}.url"), message);
                }
            }
            _ => say(&at, "needs either disk or url, not both".to_owned()),
        }
    }
}

fn printable(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
}

/// Why a path in the guest cannot be had.
fn refused(path: &str) -> Option<String> {
    let well_formed = path
        .strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(|step| !matches!(step, "" | "." | "..")))
        && path
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/._-@+=:,".contains(&b));
    if !well_formed {
        return Some(format!(
            "{path:?} is no absolute path of letters, digits and `._-@+=:,` without `.`, `..` and double `/`"
        ));
    }
    if path.starts_with("/var/lib/cloud/") {
        return Some("nothing below /var/lib/cloud stays there: `cloud-init clean` removes it".to_owned());
    }
    let temporary = ["/run/", "/tmp/", "/dev/", "/proc/", "/sys/"];
    if temporary.iter().any(|folder| path.starts_with(folder)) {
        return Some("this folder is empty after each boot; name one that lasts".to_owned());
    }
    let ours = OWN.contains(&path) || TLS_PATHS.contains(&path) || path.starts_with("/opt/virtfleet/");
    ours.then(|| "the delivery itself writes this".to_owned())
}

#[cfg(test)]
mod tests;

//! The files that a guest needs, independent of how they are delivered.

pub(crate) use super::own::{OWN, TLS_PATHS};
pub use super::own::{SETTINGS, TLS_CA_PATH};
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use virtfleet_wire::{
    layered::{Problem, to_yaml},
    settings::{AGENT_CONFIG_KIND, CONFIG_API_VERSION},
};

use crate::{
    WANTED,
    spec::{Agent, Checked, Delivery, MachineAgent, Platform, Source, Tls},
};

/// The unit of the delivery.
pub(crate) const UNIT: &str = "virtfleet-delivery.service";
/// The unit's path.
pub(crate) const UNIT_PATH: &str = "/etc/systemd/system/virtfleet-delivery.service";

/// Maximum size of all files together: a Secret holds 1 MiB, and base64 needs a third.
const MAX_BYTES: usize = 700_000;

/// A file for the guest, owned by root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its absolute path.
    pub path: String,
    /// Its permission bits.
    pub mode: u32,
    /// Its content.
    pub content: Vec<u8>,
}

impl File {
    fn text(path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            mode,
            content: content.into(),
        }
    }
}

/// The agent's binary for one kind of machine, or for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentBinary {
    /// The machine, as `uname -m` prints it; none for all machines.
    pub machine: Option<String>,
    /// Its SHA-256 in lowercase hexadecimal digits.
    pub sha256: String,
    /// Its sources, tried in this order.
    pub sources: Vec<Source>,
}

/// Input of the renderers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Files that the script writes, in this order; without the script and its unit.
    pub files: Vec<File>,
    /// The agent's binaries; none if the image has the agent.
    pub binaries: Vec<AgentBinary>,
    /// The text of `virtfleet-delivery.service`.
    pub unit: String,
    /// Maximum time that a boot waits for the agent, in seconds.
    pub wait: u64,
}

/// Callbacks of [`build`] that access files; this crate does no I/O itself.
pub struct Outside<'a> {
    /// The content of a file that the input names, or why it cannot be read.
    pub read: &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>,
    /// SHA-256 in hexadecimal digits of a file that the input names, or why it cannot be read.
    pub sha256: &'a mut dyn FnMut(&str) -> Result<String, String>,
    /// The fleet's authority of clients in PEM, for an input with `tls.enrolment` that names none,
    /// or why it cannot be read.
    pub fleet_ca: &'a mut dyn FnMut() -> Result<Vec<u8>, String>,
}

/// Builds the payload.
///
/// # Errors
/// Files that cannot be read or have the wrong content, each with the line that names them.
pub fn build(checked: &Checked, outside: &mut Outside<'_>) -> Result<Payload, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut say = |path: &str, message: String| {
        problems.push(Problem::at(&checked.origins.of(path), path, message));
    };
    let delivery = &checked.delivery;
    let wait = delivery.wait.0.as_secs();

    let mut binaries = Vec::new();
    for binary in delivery.agent.iter().flat_map(binary_inputs) {
        let at = &binary.at;
        let sum = match (binary.sha256, binary.file) {
            (None, Some(file)) => (outside.sha256)(file).unwrap_or_else(|why| {
                say(&format!("{at}.file"), format!("{file} cannot be read: {why}"));
                String::new()
            }),
            (sum, _) => sum.cloned().unwrap_or_default(),
        };
        binaries.push(AgentBinary {
            machine: binary.machine.cloned(),
            sha256: sum.to_ascii_lowercase(),
            sources: binary.sources.to_vec(),
        });
    }

    let mut files = vec![File::text(WANTED, 0o644, wanted(delivery, &binaries))];
    if let Some(tls) = &delivery.tls {
        files.extend(tls_files(tls, outside, &mut say));
    }
    let text = settings(&checked.settings, delivery.tls.as_ref(), delivery.platform);
    files.push(File::text(SETTINGS, 0o644, text));
    for (index, extra) in delivery.files.iter().enumerate() {
        let content = match (&extra.content, &extra.from) {
            (Some(content), _) => Ok(content.clone().into_bytes()),
            (None, Some(name)) => (outside.read)(name).map_err(|why| format!("{name} cannot be read: {why}")),
            (None, None) => continue,
        };
        match content {
            Ok(content) => files.push(File::text(
                extra.path.as_str(),
                extra.bits().unwrap_or(0o644),
                content,
            )),
            Err(message) => say(&format!("files[{index}].from"), message),
        }
    }
    let bytes: usize = files.iter().map(|file| file.content.len()).sum();
    if bytes > MAX_BYTES {
        say(
            "files",
            format!("{bytes} bytes in total, but at most {MAX_BYTES} fit into a Secret"),
        );
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let unit = compact(include_str!("text/virtfleet-delivery.service"));
    Ok(Payload {
        files,
        binaries,
        unit: unit.replace("@LIMIT@", &(wait + 60).to_string()),
        wait,
    })
}

/// A packaged text without comments, indentation and empty lines: user-data must be small.
pub(crate) fn compact(text: &str) -> String {
    let lines = text.lines().map(str::trim_start);
    let read = |line: &&str| !line.is_empty() && (!line.starts_with('#') || line.starts_with("#!"));
    lines.filter(read).flat_map(|line| [line, "\n"]).collect()
}

/// The content of [`WANTED`].
fn wanted(delivery: &Delivery, binaries: &[AgentBinary]) -> String {
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        writeln!(text, "{arguments}").ok();
    };
    let prefix = |binary: &AgentBinary| {
        let machine = binary.machine.as_ref();
        machine.map_or_else(String::new, |machine| format!("on {machine} "))
    };
    for binary in binaries {
        line(format_args!("{}sha256 {}", prefix(binary), binary.sha256));
    }
    let version = delivery.agent.as_ref().and_then(|agent| agent.version.as_ref());
    if let Some(version) = version {
        line(format_args!("version {version}"));
    }
    for binary in binaries {
        let prefix = prefix(binary);
        for source in &binary.sources {
            match (&source.disk, &source.url) {
                (Some(disk), _) => {
                    let path = disk.path.trim_start_matches('/');
                    line(format_args!("{prefix}disk {} {path}", disk.label));
                }
                (None, Some(url)) => line(format_args!("{prefix}url {url}")),
                (None, None) => {}
            }
        }
    }
    if delivery.tls.as_ref().is_some_and(|tls| !tls.enrolment) {
        line(format_args!("group virtfleet {}", TLS_PATHS[1]));
    }
    let repair = if delivery.repair_cloud_init { "yes" } else { "no" };
    line(format_args!("repair {repair}"));
    text
}

/// A binary of the input.
struct BinaryInput<'a> {
    /// Its machine; none for all.
    machine: Option<&'a String>,
    /// Its path in the input.
    at: String,
    sha256: Option<&'a String>,
    file: Option<&'a String>,
    sources: &'a [Source],
}

/// The binary for all machines, or those of `machines`.
fn binary_inputs(agent: &Agent) -> Vec<BinaryInput<'_>> {
    if agent.machines.is_empty() {
        return vec![BinaryInput {
            machine: None,
            at: "agent".to_owned(),
            sha256: agent.sha256.as_ref(),
            file: agent.file.as_ref(),
            sources: &agent.sources,
        }];
    }
    let of_machine = |(machine, binary)| -> BinaryInput<'_> {
        let (machine, binary): (&String, &MachineAgent) = (machine, binary);
        BinaryInput {
            machine: Some(machine),
            at: format!("agent.machines.{machine}"),
            sha256: binary.sha256.as_ref(),
            file: binary.file.as_ref(),
            sources: &binary.sources,
        }
    };
    agent.machines.iter().map(of_machine).collect()
}

/// The certificates of the input.
fn tls_files(tls: &Tls, outside: &mut Outside<'_>, say: &mut impl FnMut(&str, String)) -> Vec<File> {
    let mut files = Vec::new();
    let named = [
        ("certificate", &tls.certificate, 0o644, "CERTIFICATE"),
        ("key", &tls.key, 0o640, "PRIVATE KEY"),
        ("clientCA", &tls.client_ca, 0o644, "CERTIFICATE"),
    ];
    for ((key, name, mode, kind), path) in named.into_iter().zip(TLS_PATHS) {
        let is_authority = key == "clientCA";
        if tls.enrolment && !is_authority {
            continue;
        }
        let at = format!("tls.{key}");
        let (name, content) = if is_authority && name.is_empty() {
            ("the fleet's authority", (outside.fleet_ca)())
        } else {
            (name.as_str(), (outside.read)(name))
        };
        match content {
            // User-data is read by anyone in the guest.
            Ok(content) if is_authority && is_pem(&content, "PRIVATE KEY") => {
                say(
                    &at,
                    format!("{name} contains a private key; name a file with certificates only"),
                );
            }
            Ok(content) if is_pem(&content, kind) => files.push(File::text(path, mode, content)),
            Ok(_) => say(&at, format!("{name} has no PEM block of the type {kind}")),
            Err(why) => say(&at, format!("{name} cannot be read: {why}")),
        }
    }
    files
}

/// The settings file. Its defaults differ from the agent's, because user-data is rendered for a
/// working guest: DNS and queues are managed, and the metrics of the public dashboards are on,
/// unless the input says otherwise.
fn settings(written: &Value, tls: Option<&Tls>, platform: Platform) -> String {
    let mut map = match written {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    map.remove("apiVersion");
    map.remove("kind");
    if let Some(tls) = tls {
        let named = section(section(&mut map, "server"), "tls");
        for (key, path) in ["certificate", "key", "clientCA"].into_iter().zip(TLS_PATHS) {
            if !tls.enrolment || key == "clientCA" {
                named.insert(key.to_owned(), path.into());
            }
        }
        if tls.enrolment {
            named.insert("enrolment".to_owned(), true.into());
        }
    }
    section(&mut map, "dns")
        .entry("manage")
        .or_insert_with(|| "auto".into());
    section(&mut map, "nic")
        .entry("multiqueue")
        .or_insert_with(|| "auto".into());
    section(&mut map, "metrics")
        .entry("profile")
        .or_insert_with(|| "dashboards".into());
    let clones = platform == Platform::Kkp && opt_into_image_clones(&mut map);
    let clones = if clones { IMAGE_CLONES } else { "" };
    format!(
        "# Written at every boot: put your own settings into another file.\n{clones}\
         apiVersion: {CONFIG_API_VERSION}\nkind: {AGENT_CONFIG_KIND}\n{}",
        to_yaml(&Value::Object(map))
    )
}

/// Comment in the settings about the opt-in for KKP.
const IMAGE_CLONES: &str = "# platform: kkp. The agent may erase untouched clones of the root disk.\n";

/// Sets `content: image-clone` on each disk without `content`; returns whether there is one. A
/// shared disk is never formatted.
fn opt_into_image_clones(map: &mut Map<String, Value>) -> bool {
    let disks = map.get_mut("disks").and_then(Value::as_array_mut);
    let mut any = false;
    for disk in disks.into_iter().flatten().filter_map(Value::as_object_mut) {
        if disk.get("shared") != Some(&Value::Bool(true)) {
            disk.entry("content").or_insert_with(|| "image-clone".into());
        }
        any |= disk
            .get("content")
            .is_some_and(|content| content == "image-clone");
    }
    any
}

/// The mapping at a key, created if missing or null.
fn section<'m>(map: &'m mut Map<String, Value>, key: &str) -> &'m mut Map<String, Value> {
    let value = map.entry(key).or_insert(Value::Null);
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was replaced by an object"),
    }
}

fn is_pem(content: &[u8], kind: &str) -> bool {
    let ends = format!("{kind}-----");
    std::str::from_utf8(content).is_ok_and(|text| {
        text.lines()
            .any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&ends))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_kkp_disks_without_content_opt_into_image_clones() {
        let written = json!({"disks": [
            {"name": "a", "match": {"size": "1Gi"}},
            {"name": "b", "content": "blank"},
            {"name": "c", "shared": true},
        ]});
        let text = settings(&written, None, Platform::Kkp);
        let count = |words: &str| text.lines().filter(|line| line.trim().ends_with(words)).count();
        assert_eq!(count("content: image-clone"), 1, "{text}");
        assert_eq!(count("content: blank"), 1, "{text}");
        assert!(text.contains("# platform: kkp."), "{text}");
        let other = settings(&written, None, Platform::Kubevirt);
        assert!(
            !other.contains("image-clone") && !other.contains("kkp"),
            "{other}"
        );
        // Without a disk that opts in there is no comment.
        for none in [
            json!({}),
            json!({"disks": []}),
            json!({"disks": [{"name": "b", "content": "blank"}]}),
        ] {
            assert!(!settings(&none, None, Platform::Kkp).contains("kkp"));
        }
    }
}

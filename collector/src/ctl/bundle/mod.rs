//! `virtfleetctl support-bundle`: what a person who helps needs to see, in one archive, without
//! secrets.
//!
//! ```text
//! API, kubeconfig ─▶ parts ─▶ secrets removed ─▶ names replaced (--redact-names) ─▶ tar.gz
//!                      └ what cannot be read ─▶ CONTENTS.txt
//! ```

mod archive;
mod cluster_parts;
mod log_parts;
mod part;
mod pseudonyms;
mod secrets;

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use serde_json::json;
use virtfleet_collector_core::fleet_status::FleetStatus;

use self::{
    archive::Archive,
    part::{BundlePart, PartContent},
    pseudonyms::Pseudonyms,
};
use super::{client::Client, connection_args::ConnectionArgs, console::Console, fail::Fail, text::bytes};

/// Arguments of the command.
#[derive(Debug, Args)]
pub(super) struct BundleArgs {
    /// The archive [default: virtfleet-support-TIME.tar.gz in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Replace names of VMs, namespaces, user clusters, Nodes and infra nodes, and addresses, by
    /// pseudonyms, and leave out logs
    #[arg(long)]
    pub(super) redact_names: bool,
}

/// Responses of the API that are collected: path, name of the file, what its items are, what it is.
const RESPONSES: [(&str, &str, &str, &str); 11] = [
    ("/api/v1/status", "status.json", "", "summary of the fleet"),
    ("/api/v1/vms", "vms.json", "vm", "VMs"),
    ("/api/v1/hosts", "hosts.json", "host", "infra nodes"),
    ("/api/v1/clusters", "clusters.json", "cluster", "user clusters"),
    ("/api/v1/findings", "findings.json", "", "findings with remedies"),
    ("/api/v1/events", "events.json", "", "what happened to the VMs"),
    ("/api/v1/migrations", "migrations.json", "", "live migrations"),
    ("/api/v1/labels", "labels.json", "", "labels of Nodes"),
    ("/api/v1/targets", "targets.json", "", "metrics pages of the VMs"),
    ("/api/v1/queues", "queues.json", "", "streams of samples"),
    (
        "/api/v1/ca",
        "ca.json",
        "",
        "the authority: fingerprints and validity",
    ),
];
/// Pages of metrics that are collected.
const PAGES: [(&str, &str, &str); 2] = [
    ("/metrics", "metrics.txt", "the collector's own metrics"),
    ("/metrics/fleet", "metrics-fleet.txt", "metrics about the VMs"),
];
/// What cannot be read, and how to add it.
const BY_HAND: &str = "the collector's doctor: kubectl -n NAMESPACE exec deploy/virtfleet-collector -- virtfleet-collector doctor";

/// Collects, and writes the archive.
///
/// # Errors
/// Nothing can be read at all, or the archive cannot be written.
pub(super) fn run(
    args: &BundleArgs,
    connection: &ConnectionArgs,
    console: &mut Console<'_>,
) -> Result<(), Fail> {
    let now_ms = (console.now)();
    let client = Client::new(connection)?;
    let mut missing = Vec::new();
    let mut parts = of_api(&client, &mut missing)?;
    let redact = args.redact_names;
    parts.extend(cluster_parts::collect(connection, redact, &mut missing));
    parts.insert(0, versions(&client, connection, now_ms, redact));
    let folder = folder_name(now_ms);
    let archive = pack(&folder, parts, &missing, redact, now_ms)?;
    let file = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    write(&file, &archive)?;
    let mut text = format!("{}: {}\n", file.display(), bytes(archive.len() as f64));
    if !missing.is_empty() {
        text.push_str("It does not contain:\n");
        for line in &missing {
            writeln!(text, "  {line}").ok();
        }
    }
    text.push_str("Look at CONTENTS.txt in it before you pass it on.\n");
    Ok(console.print(&text)?)
}

/// Everything that the API serves. The first response decides whether there is a collector at all.
fn of_api(client: &Client, missing: &mut Vec<String>) -> Result<Vec<BundlePart>, Fail> {
    let mut parts = Vec::new();
    for (path, name, _, about) in RESPONSES {
        match client.get(path, &[], Duration::ZERO) {
            Ok(answer) => parts.push(BundlePart::json(name, about, answer.body)),
            Err(fail) if parts.is_empty() => return Err(fail),
            Err(fail) => missing.push(format!("{name}: {fail}")),
        }
    }
    for (path, name, about) in PAGES {
        match client.get_text(path) {
            Ok(page) => parts.push(BundlePart {
                name: name.to_owned(),
                about,
                content: PartContent::Metrics(page),
            }),
            Err(fail) => missing.push(format!("{name}: {fail}")),
        }
    }
    let status = parts.first().map(|part| part.as_json().clone());
    let status: Option<FleetStatus> = status.and_then(|status| serde_json::from_value(status).ok());
    for (number, vm) in status.into_iter().flat_map(|status| status.worst).enumerate() {
        let path = format!("/api/v1/vms/{}/{}", vm.namespace, vm.name);
        let name = format!("worst-vms/{:02}.json", number + 1);
        match client.get(&path, &[], Duration::ZERO) {
            Ok(answer) => parts.push(BundlePart::json(
                &name,
                "one of the worst VMs in full",
                answer.body,
            )),
            Err(fail) => missing.push(format!("{name}: {fail}")),
        }
    }
    missing.push(BY_HAND.to_owned());
    Ok(parts)
}

fn versions(client: &Client, connection: &ConnectionArgs, now_ms: u64, redact: bool) -> BundlePart {
    let document = client.get("/api/v1/openapi.json", &[], Duration::ZERO);
    let of_collector = document
        .map(|document| document.body["info"]["version"].clone())
        .ok();
    let server = connection.server.as_ref().filter(|_| !redact);
    let value = json!({
        "virtfleetctl": env!("CARGO_PKG_VERSION"),
        "collector": of_collector,
        "server": server,
        "timeMs": now_ms,
    });
    BundlePart::json(
        "versions.json",
        "versions of virtfleetctl and the collector",
        value,
    )
}

/// The folder in the archive, with the time in UTC.
fn folder_name(now_ms: u64) -> String {
    let time = i64::try_from(now_ms).ok();
    let time = time.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let time = time.map_or_else(String::new, |time| format!("{time:.0}"));
    format!("virtfleet-support-{}", time.replace(':', ""))
}

fn pack(
    folder: &str,
    mut parts: Vec<BundlePart>,
    missing: &[String],
    redact: bool,
    now_ms: u64,
) -> Result<Vec<u8>, Fail> {
    let mut names = Pseudonyms::default();
    if redact {
        for part in &parts {
            let kind = RESPONSES.iter().find(|(_, name, ..)| *name == part.name);
            names.learn(part.as_json(), kind.map_or("", |(_, _, kind, _)| kind));
        }
    }
    let mut archive = Archive::new(folder, now_ms / 1000);
    let mut contents = contents(&parts, missing, redact);
    if redact {
        contents = names.replace(&contents);
    }
    archive.add("CONTENTS.txt", secrets::clean(&contents).as_bytes())?;
    for part in &mut parts {
        let text = match &mut part.content {
            PartContent::Json(value) => {
                secrets::clean_json(value);
                if redact {
                    names.replace_json(value);
                }
                format!("{value:#}\n")
            }
            PartContent::Metrics(page) => {
                let page = secrets::clean(page);
                if redact {
                    names.replace_metrics(&page)
                } else {
                    page
                }
            }
            PartContent::Text(text) => {
                let text = secrets::clean(text);
                if redact { names.replace(&text) } else { text }
            }
        };
        archive.add(&part.name, text.as_bytes())?;
    }
    Ok(archive.finish()?)
}

fn contents(parts: &[BundlePart], missing: &[String], redact: bool) -> String {
    let mut text = "This archive contains:\n".to_owned();
    for part in parts {
        writeln!(text, "  {:24} {}", part.name, part.about).ok();
    }
    text.push_str("\nIt does not contain:\n");
    for line in missing {
        writeln!(text, "  {line}").ok();
    }
    text.push_str(
        "\nTokens, passwords and PEM blocks are removed, also from texts of guests, as far as they can be recognised.\n",
    );
    text.push_str(if redact {
        "Names and addresses are replaced by pseudonyms, the same ones in all files; reports, labels and identities of VMs, and logs, are left out.\n"
    } else {
        "It has names of VMs, namespaces, clusters and nodes, and addresses: --redact-names replaces them.\n"
    });
    text
}

/// Writes the archive so that only its owner can read it. An existing file is not replaced.
fn write(file: &Path, archive: &[u8]) -> Result<(), Fail> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let opened = options.open(file);
    let written = opened.and_then(|mut out| out.write_all(archive));
    written.map_err(|error| {
        Fail::Input(format!(
            "cannot write {}: {error}; name another file with -o",
            file.display()
        ))
    })
}

#[cfg(test)]
mod tests;

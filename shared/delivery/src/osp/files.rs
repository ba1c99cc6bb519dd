//! The delivery's files as entries of a profile.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    gzip::gzip,
    own::{DELIVER, DELIVER_MODE},
    payload::{Payload, UNIT_PATH, compact},
    script::{Mechanism, script},
};

use super::{
    file::ProfileFile,
    profile::{Profile, Utility},
};

/// Drop-ins that start the delivery. OSM's script starts `setup.service` at the first boot; it
/// installs containerd and kubelet, so it waits for the first attempt. Later boots reach
/// `multi-user.target`.
const STARTERS: [&str; 2] = [
    "/etc/systemd/system/setup.service.d/20-virtfleet-delivery.conf",
    "/etc/systemd/system/multi-user.target.d/20-virtfleet-delivery.conf",
];

/// The entries, in the order of writing.
///
/// # Errors
/// A path that the profile already has.
pub(super) fn entries(payload: &Payload, profile: &Profile<'_>) -> Result<Vec<ProfileFile>, String> {
    let utility = profile.utility();
    let script = script(payload, Mechanism::Files);
    let starter = compact(include_str!("../text/want-delivery.conf"));
    let mut entries = vec![
        entry(DELIVER, DELIVER_MODE, &deliver(&script, utility), utility),
        entry(UNIT_PATH, 0o644, &unit(&payload.unit), utility),
    ];
    entries.extend(STARTERS.map(|path| entry(path, 0o644, &starter, utility)));

    let theirs = profile.paths();
    let written = payload.files.iter().map(|file| file.path.as_str());
    for path in entries.iter().map(|entry| entry.path.as_str()).chain(written) {
        if let Some((_, line)) = theirs.iter().find(|(there, _)| there == path) {
            return Err(format!(
                "{}:{line}: spec.provisioningConfig already has {path}; pass the original profile, or remove this file from it",
                profile.file()
            ));
        }
    }
    Ok(entries)
}

/// The script. With Ignition, OSM passes on text only, so the script unpacks itself.
fn deliver(script: &str, utility: Utility) -> String {
    match utility {
        Utility::CloudInit => script.to_owned(),
        Utility::Ignition => compact(include_str!("../text/unpack.sh")).replace("@SCRIPT@", &encoded(script)),
    }
}

/// The unit. It uses the proxy that OSM writes to `/etc/environment`. Nothing enables it.
fn unit(text: &str) -> String {
    let text = text.split("[Install]").next().unwrap_or_default();
    text.replace("[Service]\n", "[Service]\nEnvironmentFile=-/etc/environment\n")
        .replace("Before=", "Before=setup.service ")
}

/// An entry. OSM passes on `gz+b64` as it is, and encodes the data of `b64` itself.
fn entry(path: &str, mode: u32, text: &str, utility: Utility) -> ProfileFile {
    // A valid mode has three octal digits.
    let permissions = format!("{mode:03o}").parse().unwrap_or(644);
    let packed = encoded(text);
    let (encoding, data) = match utility {
        Utility::CloudInit if packed.len() < text.len() => (Some("gz+b64"), packed),
        Utility::CloudInit => (Some("b64"), escaped(text)),
        Utility::Ignition => (None, escaped(text)),
    };
    ProfileFile {
        path: path.to_owned(),
        permissions,
        encoding,
        data,
    }
}

fn encoded(text: &str) -> String {
    STANDARD.encode(gzip(text.as_bytes()))
}

/// A text that is the same after OSM has executed it as a template.
fn escaped(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

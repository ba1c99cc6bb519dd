//! The delivery's files as entries of a profile.

use crate::payload::{DROP_IN, File, Payload, UNIT};

use super::{
    file::ProfileFile,
    profile::{Profile, Utility},
};

/// Units that start the delivery. OSM's script starts `setup.service` at the first boot; it
/// installs containerd and kubelet, so it waits for the first attempt. Later boots reach
/// `multi-user.target`.
const STARTERS: [(&str, &str); 2] = [
    ("setup.service", include_str!("../text/wait-for-delivery.conf")),
    ("multi-user.target", include_str!("../text/want-delivery.conf")),
];

/// The entries, in the order of writing.
///
/// # Errors
/// A path that the profile already has; content that is not text, or that Ignition's form cannot
/// keep.
pub(super) fn entries(payload: &Payload, profile: &Profile<'_>) -> Result<Vec<ProfileFile>, String> {
    let theirs = profile.paths();
    let mut entries = Vec::new();
    for file in all_files(payload) {
        if let Some((_, line)) = theirs.iter().find(|(path, _)| *path == file.path) {
            return Err(format!(
                "{}:{line}: spec.provisioningConfig already has {}; pass the original profile, or remove this file from it",
                profile.file(),
                file.path
            ));
        }
        entries.push(entry(&file, profile.utility())?);
    }
    Ok(entries)
}

fn all_files(payload: &Payload) -> Vec<File> {
    let system = "/etc/systemd/system";
    let mut files = payload.all_files();
    for file in &mut files {
        if file.path == format!("{system}/{UNIT}") {
            file.content = unit(&payload.unit).into_bytes();
        }
    }
    files.extend(STARTERS.iter().map(|(unit, text)| File {
        path: format!("{system}/{unit}.d/{DROP_IN}"),
        mode: 0o644,
        content: (*text).into(),
    }));
    files
}

/// The unit. It uses the proxy that OSM writes to `/etc/environment`. It also syncs what cloud-init
/// wrote: cloud-init does not, and it is disabled at the next boot, so a power cut would leave
/// empty files for good.
fn unit(text: &str) -> String {
    text.replace(
        "[Service]\n",
        "[Service]\nEnvironmentFile=-/etc/environment\nExecStartPre=-/bin/sync\n",
    )
}

fn entry(file: &File, utility: Utility) -> Result<ProfileFile, String> {
    let path = &file.path;
    let not_text =
        || format!("{path}: an OperatingSystemProfile can contain only text; put this file into the image");
    let text = std::str::from_utf8(&file.content).map_err(|_| not_text())?;
    let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    let encoding = match utility {
        Utility::CloudInit => Some("b64"),
        Utility::Ignition if !text.chars().all(is_text) => return Err(not_text()),
        // OSM indents the content as a YAML block: the first line defines the indentation, and
        // line feeds at the end become one.
        Utility::Ignition if text.starts_with([' ', '\t', '\n']) => {
            return Err(format!(
                "{path}: with Ignition, OSM cannot pass on a file that begins with a blank; change its first line"
            ));
        }
        Utility::Ignition if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) => {
            return Err(format!(
                "{path}: with Ignition, OSM passes on a file with exactly one line feed at its end; change its end"
            ));
        }
        Utility::Ignition => None,
    };
    // A valid mode has three octal digits.
    let permissions = format!("{:03o}", file.mode).parse().unwrap_or(644);
    Ok(ProfileFile {
        path: path.clone(),
        permissions,
        encoding,
        data: text.replace("{{", "{{ \"{{\" }}"),
    })
}

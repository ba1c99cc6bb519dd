//! An OperatingSystemProfile of Kubermatic's operating-system-manager (OSM) that installs the
//! agent: an existing profile, with the delivery's files in its provisioning configuration.
//!
//! The rules are those of OSM v1.11 (`pkg/generator/generator.go`, the webhook in
//! `pkg/admission/operatingsystemprofile`):
//! - OSM executes each file's content as a Go template, so `{{` is escaped.
//! - With cloud-init, OSM encodes a content with `encoding: b64`, and passes on any other encoding,
//!   such as `gz+b64`, with a content that is encoded already. Ignition ignores the encoding, and
//!   its content is a YAML block of text.
//! - The webhook refuses `units` in a profile of another system than Flatcar. So the unit is a
//!   file, and drop-ins with `Wants=` start it.
//! - OSM's second run of cloud-init never reaches `runcmd`, and its script repeats until each entry
//!   of `write_files` has succeeded. So the profile gets files only: a missing agent delays a node,
//!   and never prevents it.

mod edit;
mod file;
mod files;
mod profile;

pub use profile::Profile;

use serde_json::{Value, json};
use virtfleet_wire::layered::to_yaml;

use self::{edit::FieldChange, file::ProfileFile, profile::CUSTOM_KIND};
use crate::{payload::Payload, spec::Platform};

/// Maximum size of the printed profile, in bytes. OSM stores the rendered files in a Secret, whose
/// limit is 1 MiB.
const MAX_BYTES: usize = 1_000_000;
/// Namespace from which KKP copies a CustomOperatingSystemProfile into each user cluster of a seed.
const SEED_NAMESPACE: &str = "kubermatic";

/// What the new profile is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Naming {
    /// `metadata.name`; default: the old name with `-virtfleet`.
    pub name: Option<String>,
    /// `spec.version`; default: the old version with a pre-release part that has `digest`.
    pub version: Option<String>,
    /// Print a CustomOperatingSystemProfile for a KKP seed.
    pub custom: bool,
}

/// A profile as YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedProfile {
    /// The text.
    pub text: String,
    /// Its `metadata.name`.
    pub name: String,
    /// Notes for the user who renders it.
    pub notes: Vec<String>,
}

/// Renders the new profile. `digest` computes a short hash in hexadecimal digits of a text; the
/// version contains it, because OSM refuses a changed profile with an unchanged version. `made` has
/// comment lines about the origin.
///
/// # Errors
/// A name or version that Kubernetes or OSM would refuse, and a file that the profile already has:
/// each with its place.
pub fn render(
    payload: &Payload,
    platform: Platform,
    profile: &Profile<'_>,
    naming: &Naming,
    digest: &dyn Fn(&str) -> String,
    made: &str,
) -> Result<RenderedProfile, String> {
    let name = profile.new_name(naming.name.as_deref())?;
    let entries = files::entries(payload, profile)?;
    let version = profile.new_version(naming.version.as_deref(), &|spec| digest(spec), &entries)?;

    let mut changes = vec![
        FieldChange::set("metadata.name", name.as_str()),
        FieldChange::set("spec.version", version.as_str()),
    ];
    if naming.custom {
        changes.push(FieldChange::set("kind", CUSTOM_KIND));
        changes.push(FieldChange::set("metadata.namespace", SEED_NAMESPACE));
    }
    let wanted = wanted(profile, &changes, &entries);
    let mut notes = Vec::new();
    let text = edit::apply(profile, &changes, &entries)
        .filter(|text| edit::document(text).as_ref() == Some(&wanted));
    let text = text.unwrap_or_else(|| {
        notes.push(format!(
            "{}: could not be extended in place, so its comments are lost",
            profile.file()
        ));
        to_yaml(&wanted)
    });
    let text = format!("{made}{text}");
    if text.len() > MAX_BYTES {
        return Err(format!(
            "{}: the new profile would have {} bytes, but at most {MAX_BYTES} fit into the Secret that OSM makes of it; deliver large \
             files in the image",
            profile.file(),
            text.len()
        ));
    }
    if platform != Platform::Kkp {
        notes.push(
            "the input has platform: kubevirt; machine-controller attaches secondary disks as clones of the OS image, which the agent \
             refuses to format. Set platform: kkp if the settings have disks"
                .to_owned(),
        );
    }
    notes.extend(profile.notes());
    Ok(RenderedProfile { text, name, notes })
}

/// The new profile as JSON.
fn wanted(profile: &Profile<'_>, changes: &[FieldChange<'_>], entries: &[ProfileFile]) -> Value {
    let mut value = profile.value().clone();
    for key in edit::SERVER_KEYS {
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove(key);
        }
    }
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    for change in changes {
        change.apply_to(&mut value);
    }
    let provisioning = &mut value["spec"]["provisioningConfig"];
    if !provisioning["files"].is_array() {
        provisioning["files"] = json!([]);
    }
    if let Some(list) = provisioning["files"].as_array_mut() {
        list.splice(0..0, entries.iter().map(ProfileFile::to_json));
    }
    value
}

#[cfg(test)]
mod tests;

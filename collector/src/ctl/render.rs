//! `virtfleetctl render`: reads the input and its files, and prints user-data, an Ignition config
//! or an OperatingSystemProfile.

mod fleet_ca;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use virtfleet_delivery::{
    cloud_init::{self, With},
    gzip, ignition,
    osp::{self, Naming, Profile},
    payload::{self, Outside, Payload},
    spec::{self, Checked},
};
use virtfleet_runtime::digest::{Sha256, sha256_file};
use virtfleet_wire::layered::Problem;

use super::{
    cli::{ConnectionArgs, Form, InputArgs, Render},
    console::Console,
    fail::Fail,
    input::{self, bytes},
};
use crate::delivered_settings;

/// Maximum user-data in the VM object itself (KubeVirt: `cloudInitUserMaxLen`).
const MAX_INLINE_BYTES: usize = 2048;

pub(super) fn run(what: &Render, connection: &ConnectionArgs, console: &mut Console<'_>) -> Result<(), Fail> {
    match what {
        Render::CloudInit {
            input,
            form,
            with,
            as_text,
        } => {
            if console.terminal && !as_text {
                let why = "gzip is not printed on a terminal; redirect it to a file, or use --text";
                return Err(Fail::Usage(why.to_owned()));
            }
            one_reads_standard_input(&input.file, with)?;
            let (_, payload) = load(input, connection, console)?;
            let texts = with
                .iter()
                .map(|path| Ok((input::shown(path), text(path)?)))
                .collect::<Result<Vec<_>, Fail>>()?;
            let with: Vec<With<'_>> = texts.iter().map(|(name, text)| With { name, text }).collect();
            let form = match form {
                Form::CloudConfig => cloud_init::Form::CloudConfig,
                Form::Mime => cloud_init::Form::Mime,
            };
            let made = made("cloud-init", &input.file);
            let rendered = cloud_init::render(&payload, form, &with, &made).map_err(Fail::Input)?;
            let user_data = if *as_text {
                rendered.text.into_bytes()
            } else {
                gzip(rendered.text.as_bytes())
            };
            console.print_bytes(&user_data)?;
            for note in rendered.notes {
                console.note(&format!("note: {note}"));
            }
            advise(user_data.len(), console);
        }
        Render::Ignition { input, with } => {
            one_reads_standard_input(&input.file, with.as_slice())?;
            let (checked, payload) = load(input, connection, console)?;
            refuse_below_usr(&checked)?;
            let theirs = with.as_deref().map(json).transpose()?;
            let config = ignition::render(&payload, theirs.as_deref()).map_err(|why| {
                let name = with.as_deref().map_or_else(String::new, input::shown);
                Fail::Input(format!("{name}: {why}"))
            })?;
            let note = ignition::note(&config);
            let config = format!("{config:#}\n");
            console.print(&config)?;
            if let Some(note) = note {
                console.note(&format!("note: {note}"));
            }
            advise(config.len(), console);
        }
        Render::Osp {
            input,
            from,
            name,
            profile_version,
            custom,
        } => {
            one_reads_standard_input(&input.file, std::slice::from_ref(from))?;
            let (checked, payload) = load(input, connection, console)?;
            let (shown, theirs) = (input::shown(from), text(from)?);
            let profile = Profile::read(&shown, &theirs).map_err(Fail::Input)?;
            if profile.is_ignition() {
                refuse_below_usr(&checked)?;
            }
            let naming = Naming {
                name: name.clone(),
                version: profile_version.clone(),
                custom: *custom,
            };
            let made = made("osp", &input.file);
            let platform = checked.delivery.platform;
            let rendered = osp::render(&payload, platform, &profile, &naming, &short_digest, &made)
                .map_err(Fail::Input)?;
            console.print(&rendered.text)?;
            for note in rendered.notes {
                console.note(&format!("note: {note}"));
            }
            console.note(&format!(
                "note: apply it, then set the annotation k8c.io/operating-system-profile: {} of each MachineDeployment. Existing \
                 machines keep their profile until they are replaced",
                rendered.name
            ));
        }
    }
    Ok(())
}

/// The first digits of the SHA-256 of a text.
fn short_digest(text: &str) -> String {
    let mut digest = Sha256::default();
    digest.update(text.as_bytes());
    let mut hex = digest.hex();
    hex.truncate(8);
    hex
}

/// Only user-data has this comment, because JSON has no comments.
fn made(what: &str, file: &Path) -> String {
    // Control characters in a name must not end the comment.
    let name: String = file
        .display()
        .to_string()
        .chars()
        .map(|c| if c.is_ascii_graphic() { c } else { '_' })
        .collect();
    format!(
        "# Made by `virtfleetctl render {what} {name}` (virtfleet {}): change {name} and render again.\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn advise(bytes: usize, console: &mut Console<'_>) {
    if bytes > MAX_INLINE_BYTES {
        console.note(&format!(
            "note: {bytes} bytes; KubeVirt accepts at most {MAX_INLINE_BYTES} in the VM object. Store it in a Secret under the key \
             `userdata`, and set cloudInitNoCloud.secretRef (userDataSecretRef)"
        ));
    }
}

/// Standard input can be read only once.
fn one_reads_standard_input(file: &Path, with: &[PathBuf]) -> Result<(), Fail> {
    let all = std::iter::once(file).chain(with.iter().map(PathBuf::as_path));
    if all.filter(|path| input::is_standard_input(path)).count() > 1 {
        let why =
            "`-` is given more than once, but standard input can be read only once; use files for the others";
        return Err(Fail::Usage(why.to_owned()));
    }
    Ok(())
}

fn refuse_below_usr(checked: &Checked) -> Result<(), Fail> {
    let found = checked.below_usr();
    if found.is_empty() {
        Ok(())
    } else {
        Err(problems(&found))
    }
}

/// An input and its payload, with settings validated as by the agent.
fn load(
    input: &InputArgs,
    connection: &ConnectionArgs,
    console: &mut Console<'_>,
) -> Result<(Checked, Payload), Fail> {
    let InputArgs {
        file,
        files_from_anywhere: anywhere,
        without_tls,
        fleet_ca,
    } = input;
    let given = fleet_ca.as_deref();
    let checked = spec::read(&input::shown(file), &text(file)?).map_err(|found| problems(&found))?;
    for key in &checked.ignored {
        console.note(&format!("warning: {key}"));
    }
    fleet_ca::check_use(&checked, given)?;
    let folder = input::folder(file);
    let find = |name: &str| -> Result<PathBuf, String> {
        let path = folder.join(name);
        let found = path.canonicalize().map_err(|error| error.to_string())?;
        let here = folder.canonicalize().map_err(|error| error.to_string())?;
        if *anywhere || found.starts_with(&here) {
            return Ok(found);
        }
        Err(format!(
            "it is outside of {}: copy it there, or use --files-from-anywhere if you trust the input",
            here.display()
        ))
    };
    let mut outside = Outside {
        read: &mut |name| bytes(&find(name)?).map_err(|error| error.to_string()),
        sha256: &mut |name| sha256_file(&find(name)?).map_err(|error| error.to_string()),
        fleet_ca: &mut || fleet_ca::read(given, connection),
    };
    let payload = payload::build(&checked, &mut outside).map_err(|found| problems(&found))?;
    fleet_ca::describe(&checked, &payload, console)?;
    let with_tls =
        delivered_settings::check(&checked, &payload, *without_tls).map_err(|found| problems(&found))?;
    if !with_tls {
        console.note(
            "warning: --without-tls: no certificate is set; unless the guest's image sets server.tls, the agent does not \
             serve with TLS and the collector cannot read it",
        );
    }
    Ok((checked, payload))
}

fn problems(found: &[Problem]) -> Fail {
    let mut text = String::new();
    for (index, problem) in found.iter().enumerate() {
        let end = if index == 0 { "" } else { "\n" };
        write!(text, "{end}{problem}").ok();
    }
    Fail::Input(text)
}

/// The text of a file that must be JSON.
fn json(path: &Path) -> Result<String, Fail> {
    let text = text(path)?;
    serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(|error| {
        Fail::Input(format!(
            "{}:{}: not JSON: {error}",
            input::shown(path),
            error.line()
        ))
    })?;
    Ok(text)
}

fn text(path: &Path) -> Result<String, Fail> {
    let failed = |why: String| Fail::Input(format!("{}: cannot be read: {why}", input::shown(path)));
    let bytes = bytes(path).map_err(|error| failed(error.to_string()))?;
    String::from_utf8(bytes)
        .map_err(|_| failed("not UTF-8 text (compressed user-data must be unpacked)".to_owned()))
}

#[cfg(test)]
mod tests;

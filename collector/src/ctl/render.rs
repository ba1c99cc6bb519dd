//! `virtfleetctl render`: reads the input and its files, and prints user-data or an Ignition
//! config.

mod fleet_ca;
mod settings;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use virtfleet_delivery::{
    cloud_init::{self, With},
    ignition,
    payload::{self, Outside, Payload},
    spec,
};
use virtfleet_runtime::digest::sha256_file;
use virtfleet_wire::layered::Problem;

use super::{
    cli::{ConnectionArgs, Form, Render},
    console::Console,
    fail::Fail,
    input::{self, bytes},
};

/// Maximum user-data in the VM object itself (KubeVirt: `cloudInitUserMaxLen`).
const MAX_INLINE_BYTES: usize = 2048;

pub(super) fn run(what: &Render, connection: &ConnectionArgs, console: &mut Console<'_>) -> Result<(), Fail> {
    match what {
        Render::CloudInit {
            file,
            form,
            with,
            files_from_anywhere,
            without_tls,
            fleet_ca,
        } => {
            one_reads_standard_input(file, with)?;
            let input = Input {
                file,
                files_from_anywhere: *files_from_anywhere,
                without_tls: *without_tls,
                fleet_ca: fleet_ca.as_deref(),
                connection,
            };
            let payload = load(&input, console)?;
            let texts = with
                .iter()
                .map(|path| Ok((input::shown(path), text(path)?)))
                .collect::<Result<Vec<_>, Fail>>()?;
            let with: Vec<With<'_>> = texts.iter().map(|(name, text)| With { name, text }).collect();
            let form = match form {
                Form::CloudConfig => cloud_init::Form::CloudConfig,
                Form::Mime => cloud_init::Form::Mime,
            };
            let made = made("cloud-init", file);
            let rendered = cloud_init::render(&payload, form, &with, &made).map_err(Fail::Input)?;
            console.print(&rendered.text)?;
            for note in rendered.notes {
                console.note(&format!("note: {note}"));
            }
            advise(rendered.text.len(), console);
        }
        Render::Ignition {
            file,
            with,
            files_from_anywhere,
            without_tls,
            fleet_ca,
        } => {
            one_reads_standard_input(file, with.as_slice())?;
            let input = Input {
                file,
                files_from_anywhere: *files_from_anywhere,
                without_tls: *without_tls,
                fleet_ca: fleet_ca.as_deref(),
                connection,
            };
            let payload = load(&input, console)?;
            let theirs = with.as_deref().map(json).transpose()?;
            let config = ignition::render(&payload, theirs.as_deref()).map_err(|why| {
                let name = with.as_deref().map_or_else(String::new, input::shown);
                Fail::Input(format!("{name}: {why}"))
            })?;
            let config = format!("{config:#}\n");
            console.print(&config)?;
            advise(config.len(), console);
        }
    }
    Ok(())
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

/// An input, and the options for it.
struct Input<'a> {
    file: &'a Path,
    /// `--files-from-anywhere`: also files outside of the input's folder.
    files_from_anywhere: bool,
    /// `--without-tls`: settings without certificates.
    without_tls: bool,
    /// `--fleet-ca`: the authority of an input with `tls.enrolment`.
    fleet_ca: Option<&'a Path>,
    /// The collector that has the authority otherwise.
    connection: &'a ConnectionArgs,
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

/// The payload of an input, with settings validated as by the agent.
fn load(input: &Input<'_>, console: &mut Console<'_>) -> Result<Payload, Fail> {
    let Input {
        file,
        files_from_anywhere: anywhere,
        without_tls,
        fleet_ca: given,
        connection,
    } = *input;
    let checked = spec::read(&input::shown(file), &text(file)?).map_err(|found| problems(&found))?;
    fleet_ca::check_use(&checked, given)?;
    let folder = input::folder(file);
    let find = |name: &str| -> Result<PathBuf, String> {
        let path = folder.join(name);
        let found = path.canonicalize().map_err(|error| error.to_string())?;
        let here = folder.canonicalize().map_err(|error| error.to_string())?;
        if anywhere || found.starts_with(&here) {
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
    let with_tls = settings::check(&checked, &payload, without_tls).map_err(|found| problems(&found))?;
    if !with_tls {
        console.note(
            "warning: --without-tls: no certificate is set; unless the guest's image sets server.tls, the agent does not \
             serve with TLS and the collector cannot read it",
        );
    }
    Ok(payload)
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

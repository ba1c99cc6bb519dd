//! Validates the settings that a delivery brings, as the agent will.

use std::collections::BTreeSet;

use virtfleet_agent_core::settings::{FRAGMENT_FOLDERS, MAIN_FILE, is_fragment, merge, reading_order};
use virtfleet_delivery::{
    payload::{Payload, SETTINGS},
    spec::Checked,
};
use virtfleet_wire::{
    layered::{Fragment, Origin, Problem},
    settings::AgentConfig,
};

/// The settings key under which the agent reports missing certificates.
const TLS: &str = "server.tls";
/// The settings key under which the agent reports that it could not prove its identity on the
/// connection that it opens.
const PUSH: &str = "push";

/// Validates the effective settings in the guest: those of the input and those in its `files`, in
/// the agent's order. `without_tls` accepts settings without certificates. Returns whether they
/// have certificates.
///
/// # Errors
/// Every problem that `virtfleet-agent check-config` would report, with the line of the input;
/// settings with which the agent would serve without TLS or not at all.
pub(crate) fn check(checked: &Checked, payload: &Payload, without_tls: bool) -> Result<bool, Vec<Problem>> {
    let loaded = merge(&fragments(payload));
    let named = TlsFilesSet::of(&loaded.value);
    let enrols = loaded.value.server.tls.enrolment;
    let mut problems: Vec<Problem> = loaded
        .problems
        .into_iter()
        .filter(|problem| {
            let may_be_in_image = named == TlsFilesSet::Nothing && !enrols;
            match problem.path.as_str() {
                TLS => !may_be_in_image && !enrols,
                PUSH => !(may_be_in_image && without_tls),
                _ => true,
            }
        })
        .map(|problem| in_input(checked, problem))
        .collect();
    let has_authority = loaded.value.server.tls.client_ca.as_deref();
    if enrols && has_authority.is_none_or(str::is_empty) {
        let message = "with enrolment clientCA is required, too: the agent accepts only collectors that it vouches for; add \
                       tls: {enrolment: true} to the input, which sets both";
        problems.push(at_settings(checked, TLS, message.to_owned()));
    } else if named == TlsFilesSet::Nothing && !without_tls {
        let message = "no certificate is set, so the agent would not serve with TLS and the collector could not read it; \
                       add tls: {enrolment: true} to the input, set settings.server.tls.certificate, key and clientCA to files that the guest \
                       has, or use --without-tls if the guest's image sets them";
        problems.push(at_settings(checked, TLS, message.to_owned()));
    }
    if problems.is_empty() {
        Ok(named == TlsFilesSet::Some)
    } else {
        Err(problems)
    }
}

/// Which of the three files of `server.tls` are set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TlsFilesSet {
    Nothing,
    Some,
}

impl TlsFilesSet {
    fn of(config: &AgentConfig) -> Self {
        let tls = &config.server.tls;
        let files = [&tls.certificate, &tls.key, &tls.client_ca];
        if files.into_iter().flatten().all(String::is_empty) {
            Self::Nothing
        } else {
            Self::Some
        }
    }
}

/// The settings files in the payload, as the agent reads them.
fn fragments(payload: &Payload) -> Vec<Fragment> {
    let text = |path: &str| {
        let file = payload.files.iter().find(|file| file.path == path)?;
        // An empty file masks others of its name and has no settings.
        (!file.content.is_empty()).then(|| Fragment {
            file: path.to_owned(),
            text: String::from_utf8_lossy(&file.content).into_owned(),
        })
    };
    let found = FRAGMENT_FOLDERS.into_iter().flat_map(|folder| {
        let paths = payload.files.iter().map(|file| file.path.as_str());
        let names: BTreeSet<&str> = paths
            .filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/'))
            .filter(|name| !name.contains('/') && is_fragment(name))
            .collect();
        names.into_iter().map(move |name| (folder, name.to_owned()))
    });
    let fragments = reading_order(found).read;
    let paths = std::iter::once(MAIN_FILE).chain(fragments.iter().map(String::as_str));
    paths.filter_map(text).collect()
}

/// Maps a problem to its place in the input.
fn in_input(checked: &Checked, problem: Problem) -> Problem {
    if problem.file == SETTINGS || problem.is_about_default() {
        let nearest = problem.nearest.clone();
        let problem = at_settings(checked, &problem.path, problem.message);
        return Problem { nearest, ..problem };
    }
    let files = &checked.delivery.files;
    let place = files.iter().position(|file| file.path == problem.file);
    let place = place.map_or_else(|| "files".to_owned(), |index| format!("files[{index}]"));
    let origin = checked.origins.of(&place);
    Problem::at(&origin, place, problem.to_string())
}

/// A problem of the input's `settings`.
fn at_settings(checked: &Checked, path: &str, message: String) -> Problem {
    let path = if path.is_empty() {
        "settings".to_owned()
    } else {
        format!("settings.{path}")
    };
    let mut origin = checked.origins.of(&path);
    if origin == Origin::Default {
        // A missing key is reported on the first line of `settings`.
        origin = checked.origins.of("kind");
    }
    Problem::at(&origin, path, message)
}

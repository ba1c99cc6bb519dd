//! Reverts a change.

use std::fs;

use virtfleet_agent_core::dns::{plan::Service, seen::Link};

use super::{
    ApplyDnsError, TEMPORARY_PREFIX, Undone, journal::Undo, path_state::PathState, reload, runtime_restore,
    wait_for_links,
};
use crate::{Commands, FailPoints, Roots, list};

/// Restores the files in reverse order, then reloads the services in reverse order, and removes the
/// record last. With `live`, no link is reconfigured.
pub(super) fn undo(
    roots: &Roots,
    commands: &dyn Commands,
    fail_points: &dyn FailPoints,
    live: Option<&[Link]>,
) -> Result<Option<Undone>, ApplyDnsError> {
    let Some(mut journal) = Undo::read(roots)? else {
        return Ok(None);
    };
    journal.after_a_boot(roots);
    let mut undone = Undone::default();
    let mut failed = None;
    for place in journal.places.iter().rev() {
        let path = roots.root(&place.path);
        clean(&path);
        // A file that cannot be read is restored too.
        let now = PathState::read(&path).ok();
        match now {
            Some(now) if now == place.before => continue,
            Some(now)
                if !(now == PathState::Nothing
                    || now.is_same(&place.after)
                    || now.is_same(&place.before)) =>
            {
                undone.left.push(place.path.clone());
            }
            _ => match place.before.put(&path) {
                Ok(()) => undone.restored.push(place.path.clone()),
                // The remaining files are restored nevertheless.
                Err(source) => failed = Some(ApplyDnsError::PutBack { path, source }),
            },
        }
        fail_points.at(&format!("after undo {}", place.path));
    }
    // Announcements resume before systemd-resolved drops the agent's servers.
    for announcement in journal
        .links
        .iter()
        .rev()
        .filter(|announcement| !announcement.quiet)
    {
        if let Err(error) = reload::announce(roots, commands, &announcement.link, &[], &[]) {
            undone.notes.push(error.to_string());
        }
        reload::wait_until_links_have_servers(roots, commands);
        fail_points.at(&format!("after undo quiet {}", announcement.link));
    }
    for service in journal.services.iter().rev() {
        if let (Some(links), Service::Networkd) = (live, service) {
            let errors = runtime_restore::restore_at_run_time(roots, commands, links, &journal);
            undone.notes.extend(errors.iter().map(ToString::to_string));
            fail_points.at(&format!("after undo {service:?} at run time"));
            continue;
        }
        wait_for_links(roots, commands, *service, &undone.reloaded);
        match reload::reload(roots, commands, *service) {
            Ok(()) => {
                match service {
                    Service::NetworkManager => {
                        reload::wait_until_network_manager_announces(roots, commands);
                        let notes = reload::revert_network_manager_announcements(roots, commands);
                        undone.notes.extend(notes);
                    }
                    Service::Networkd => reload::wait_until_reload_starts(roots, commands),
                    Service::Resolved | Service::Resolvconf => {}
                }
                undone.reloaded.push(*service);
            }
            Err(error) => undone.notes.push(error.to_string()),
        }
        fail_points.at(&format!("after undo reload {service:?}"));
    }
    for announcement in journal.links.iter().filter(|announcement| announcement.quiet) {
        if let Err(error) = reload::stop_announcing(commands, &announcement.link) {
            undone.notes.push(error.to_string());
        }
        fail_points.at(&format!("after undo unquiet {}", announcement.link));
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(Undo::remove(roots).map(|()| Some(undone))?),
    }
}

/// Removes temporary files that a crash left in the same directory.
fn clean(path: &std::path::Path) {
    let Some(folder) = path.parent() else { return };
    for name in list(folder).unwrap_or_default() {
        if name.starts_with(TEMPORARY_PREFIX) {
            fs::remove_file(folder.join(name)).ok();
        }
    }
}
